"""Fits against the parameters that made the answers, the likelihood on a grid, and published choices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from paperworks.transitive.data import DESIGNS, load_jensen, load_lm_pairs
from paperworks.transitive.fit import fit_theory, most_likely_scale
from paperworks.transitive.tasks import TransitiveTask
from paperworks.transitive.theory import predict_margins

BASE = TransitiveTask(9, exception=(5, 3))


def noisy(noise: float, seed: int = 0) -> np.ndarray:
    """Antisymmetric answers of a learner with α = .2, λ = .1 and scale 5."""
    upper = np.triu(np.random.default_rng(seed).normal(scale=noise, size=(9, 9)), 1)
    return 5 * predict_margins(BASE, 0.2, 0.1).margins + upper - upper.T


class TestRecovery:
    @pytest.mark.parametrize("link", ["identity", "logistic"])
    def test_exact_answers(self, link: str) -> None:
        margins = 3 * predict_margins(BASE, 0.15, 0.4).margins
        observed = expit(margins) if link == "logistic" else margins
        observed[0, 1] = observed[1, 0] = observed[8, 2] = np.nan
        fit = fit_theory(observed, BASE, link=link)
        assert [fit.alpha, fit.ridge, fit.scale] == pytest.approx([0.15, 0.4, 3], rel=1e-4)
        assert fit.alpha_eff == pytest.approx(0.55 / 1.4, rel=1e-4)
        assert fit.r2 == pytest.approx(1)
        assert fit.identified
        assert fit.alpha_interval[0] <= fit.alpha <= fit.alpha_interval[1]
        assert (fit.baselines["r2"] < 0.95).all()
        other = TransitiveTask(7, exception=(4, 2))
        expected = 3 * predict_margins(other, 0.15, 0.4).margins
        np.testing.assert_allclose(
            fit.predict(other), expit(expected) if link == "logistic" else expected, rtol=1e-3, atol=1e-9
        )

    def test_without_ridge(self) -> None:
        fit = fit_theory(predict_margins(BASE, 0.3).margins, BASE, fit_ridge=False)
        assert (fit.alpha, fit.ridge) == (pytest.approx(0.3), 0)
        assert fit.alpha_eff == fit.alpha
        assert fit.baselines.index.tolist() == ["additive"]

    def test_a_learner_without_conjunctivity_is_a_baseline(self) -> None:
        fit = fit_theory(predict_margins(BASE, 0.0, 0.3).margins, BASE)
        rank_only = fit.baselines.loc["rank_only"]
        assert rank_only["r2"] == pytest.approx(1)
        assert rank_only["ridge"] == pytest.approx(0.3, rel=1e-2)
        assert fit.alpha_interval[0] == 1e-3

    def test_an_order_and_several_answers_on_a_pair(self) -> None:
        """A table of both orders and of unequal numbers of trials says what its means say."""
        answers = noisy(0.3)
        first, second = np.triu_indices(9, 1)
        value = answers[first, second]
        rng = np.random.default_rng(1)
        shift = rng.normal(size=36)
        table = pd.concat(
            [
                pd.DataFrame({"first": first, "second": second, "value": value + 3 * shift, "n": 1}),
                pd.DataFrame({"first": second, "second": first, "value": -(value - shift), "n": 3}),
            ]
        ).sample(frac=1, random_state=0)
        a, b = fit_theory(answers, BASE), fit_theory(table, BASE)
        assert [a.alpha, a.ridge, a.scale, a.r2, a.aic] == pytest.approx(
            [b.alpha, b.ridge, b.scale, b.r2, b.aic], rel=1e-6
        )

    def test_trials_are_weights(self) -> None:
        first, second = np.triu_indices(9, 1)
        value = predict_margins(BASE, 0.2, 0.1).margins[first, second]
        value[:3] = 50
        n = np.where(np.arange(36) < 3, 1e-9, 20)
        fit = fit_theory(pd.DataFrame({"first": first, "second": second, "value": value, "n": n}), BASE)
        assert [fit.alpha, fit.ridge, fit.scale] == pytest.approx([0.2, 0.1, 1], rel=1e-2)

    def test_no_point_of_a_grid_is_more_likely(self) -> None:
        rng = np.random.default_rng(0)
        first, second = np.triu_indices(9, 1)
        n = rng.integers(5, 60, 36)
        margins = predict_margins(BASE, 0.1, 0.3).margins[first, second]
        shares = rng.binomial(n, expit(2 * margins)) / n
        fit = fit_theory(
            pd.DataFrame({"first": first, "second": second, "value": shares, "n": n}), BASE, link="logistic"
        )

        def deviance(alpha: float, ridge: float, scale: float) -> float:
            logits = scale * predict_margins(BASE, alpha, ridge).margins[first, second]
            return float(2 * n @ (np.logaddexp(0, logits) - shares * logits))

        assert fit.aic == pytest.approx(deviance(fit.alpha, fit.ridge, fit.scale) + 6)
        grid = [(a, r, s) for a in (0.05, 0.1, 0.2) for r in (0.1, 0.3, 0.6) for s in (1.5, 2.0, 2.5)]
        assert fit.aic - 6 <= min(deviance(*point) for point in grid)
        assert fit.aic < fit.baselines["aic"].loc["additive"]


class TestConfidence:
    def test_the_interval_holds_the_truth_and_grows_with_the_noise(self) -> None:
        exact, rough = fit_theory(noisy(0.05), BASE), fit_theory(noisy(0.5), BASE)
        widths = []
        for fit in (exact, rough):
            low, high = fit.alpha_interval
            assert low < 0.2 < high
            assert low < fit.alpha < high
            widths.append(high - low)
        assert 5 * widths[0] < widths[1]

    def test_untrained_pairs_identify_effective_conjunctivity_alone(self) -> None:
        fit = fit_theory(predict_margins(BASE, 0.2, 0.1).margins, BASE, pairs="test")
        assert fit.alpha_eff == pytest.approx(0.3 / 1.1, rel=1e-4)
        assert not fit.identified
        assert fit_theory(predict_margins(BASE, 0.2).margins, BASE, pairs="test", fit_ridge=False).identified

    def test_answers_that_hardly_vary_identify_nothing(self) -> None:
        flat = np.triu(6 + 0.1 * np.random.default_rng(0).normal(size=(7, 7)), 1)
        fit = fit_theory(flat - flat.T, TransitiveTask(7))
        assert not fit.identified
        assert fit.r2 < 0


class TestTransfer:
    def test_is_judged_on_untrained_pairs(self) -> None:
        seen = TransitiveTask(9)
        fit = fit_theory(predict_margins(seen, 0.2, 0.1).margins, seen)
        observed = 4 * predict_margins(BASE, 0.2, 0.1).margins
        observed[0, 1], observed[1, 0] = 99, -99
        score = fit.transfer_score(observed, BASE)
        assert score.loc["theory"].tolist() == pytest.approx([4, 1, 1, 1], rel=1e-4)
        additive = predict_margins(BASE, 0.0).margins
        table = BASE.pair_table().query("not trained")
        pairs = table["first"].to_numpy(), table["second"].to_numpy()
        assert score.loc["additive", "r"] == pytest.approx(np.corrcoef(additive[pairs], observed[pairs])[0, 1])
        assert (score.loc["additive"] < score.loc["theory"]).all()

    def test_undecided_pairs_have_no_sign(self) -> None:
        fit = fit_theory(predict_margins(BASE, 0.2, 0.1).margins, BASE)
        table = BASE.pair_table().query("not trained")[["first", "second"]]
        table["value"] = 4 * fit.predict(BASE)[table["first"], table["second"]]
        wrong = table.index[:4]
        rate = pd.Series(np.where(table["value"] > 0, 0.9, 0.1), index=table.index)
        rate[wrong] = 0.5 - 0.04 * np.sign(table.loc[wrong, "value"])
        assert fit.transfer_score(table.assign(win_rate=rate), BASE).loc["theory", "sign_agreement"] == 1
        rate[wrong] = 0.5 - 0.06 * np.sign(table.loc[wrong, "value"])
        agreement = fit.transfer_score(table.assign(win_rate=rate), BASE).loc["theory", "sign_agreement"]
        assert agreement == pytest.approx(1 - 4 / len(table))


class TestRealAnswers:
    def test_monkeys(self) -> None:
        fit = fit_theory(load_jensen("monkeys"), TransitiveTask(7), link="logistic")
        assert fit.r2 == pytest.approx(0.876, abs=2e-3)
        assert fit.baselines.loc["additive", "r2"] == pytest.approx(0.734, abs=2e-3)
        assert fit.alpha < 0.03

    @pytest.mark.data("transitive/lm_pairs.csv.gz")
    def test_a_language_model_has_one_conjunctivity_in_all_designs(self) -> None:
        """0.205, 0.211 and 0.205, with R² of .985 to .990; the order alone predicts the exceptions."""
        runs = {name: load_lm_pairs(name, "fake", "full", "llama32-1b") for name in DESIGNS}
        tasks = {name: TransitiveTask(*design) for name, design in DESIGNS.items()}
        order = fit_theory(runs["ti_n9"], tasks["ti_n9"])
        assert (order.alpha, order.r2) == (pytest.approx(0.197, abs=2e-3), pytest.approx(0.980, abs=2e-3))
        middle = fit_theory(runs["exc_mid_n11"], tasks["exc_mid_n11"])
        assert (middle.alpha, middle.r2) == (pytest.approx(0.211, abs=2e-3), pytest.approx(0.990, abs=2e-3))
        for name in ("exc_mid_n9", "exc_mid_n11", "exc_far_n11"):
            score = order.transfer_score(runs[name], tasks[name])
            assert score.loc["theory", "r"] > 0.98
            assert score.loc["additive", "r"] < 0.9


class TestScale:
    @settings(max_examples=25)
    @given(st.integers(0, 999))
    def test_the_likelihood_is_flat_there(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        margins, shares, weights = rng.normal(size=9), rng.uniform(size=9), rng.uniform(0.5, 2, 9)
        scale = most_likely_scale(margins, shares, weights)
        slope = (weights * margins) @ (expit(scale * margins) - shares)
        assert abs(slope) < 1e-9 if scale > 0 else slope >= 0

    def test_ends(self) -> None:
        ones = np.ones(2)
        assert most_likely_scale(np.zeros(2), ones, ones) == 0
        assert most_likely_scale(-ones, ones, ones) == 0
        assert expit(most_likely_scale(ones, ones, ones)) == 1
        assert 1e6 <= most_likely_scale(np.array([1, 1e-9]), ones, ones) < 2e6


class TestBadInput:
    @pytest.mark.untyped
    @pytest.mark.parametrize(
        ("observed", "options", "message"),
        [
            (np.full((9, 9), np.nan), {}, "cannot identify conjunctivity: observed has no finite value"),
            (np.triu(np.ones((9, 9)), 1) - np.tril(np.ones((9, 9)), -1), {}, "cannot identify conjunctivity: needs 4"),
            (pd.DataFrame({"first": [0, 1, 2], "second": 3, "value": [1.0, 2, 3]}), {}, "that differ, got 3 answers"),
            (np.zeros((8, 8)), {}, r"observed must have shape \(9, 9\), got \(8, 8\)"),
            (pd.DataFrame({"first": [0], "value": [1.0]}), {}, r"got none named \['second'\]"),
            (pd.DataFrame({"first": [0], "second": [9], "value": [1.0]}), {}, "observed must be items 0 to 8"),
            (pd.DataFrame({"first": [2], "second": [2], "value": [1.0]}), {}, "compares an item with itself in row 0"),
            (pd.DataFrame({"first": [0], "second": [2], "value": [np.inf]}), {}, "value must be finite, got inf"),
            (pd.DataFrame({"first": [0], "second": [2], "value": [1.0], "n": [-1]}), {}, "n must be non-negative"),
            (noisy(0.1), {"link": "logistic"}, r"value must be shares in \[0, 1\], got -"),
            (noisy(0.1), {"link": "probit"}, "link must be one of 'identity', 'logistic', got 'probit'"),
            (noisy(0.1), {"pairs": "train"}, "pairs must be one of 'all', 'test', got 'train'"),
        ],
    )
    def test_is_refused(self, observed: Any, options: dict[str, str], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            fit_theory(observed, BASE, **options)

    def test_too_few_untrained_pairs(self) -> None:
        task = TransitiveTask(4)
        observed = predict_margins(task, 0.2).margins
        with pytest.raises(ValueError, match="needs 4 answers on untrained pairs that differ, got 3"):
            fit_theory(observed, task, pairs="test")
