"""The choice of alpha between efficient equilibria and sensitivity to bid noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paperworks.allocation.design import choose_alpha
from paperworks.allocation.guarantees import efficiency_bound
from paperworks.allocation.valuations import Valuations


def teams(n: int = 8, seed: int = 0) -> Valuations:
    rng = np.random.default_rng(seed)
    return Valuations.log(rng.exponential(size=n) + 0.1, 10.0 ** -rng.uniform(-1, 1.5, n))


class TestTarget:
    @pytest.mark.parametrize(("target", "alpha"), [(0.95, 0.082948), (0.8741, 0.30246)])
    def test_closed_form(self, target: float, alpha: float) -> None:
        assert choose_alpha(target_efficiency=target).alpha == pytest.approx(alpha, abs=2e-6)

    def test_number_of_agents(self) -> None:
        assert choose_alpha(target_efficiency=7 / 8, n=2).alpha == pytest.approx(0.426777, abs=6e-7)


class TestNoise:
    def test_best_alpha_is_interior_and_grows_with_noise(self) -> None:
        best = [choose_alpha(teams(), noise=noise, trials=60, seed=1).alpha for noise in (0.01, 0.05, 0.3)]
        assert 0.01 < best[0] < best[1] < best[2] <= 1.0

    def test_without_noise_small_alpha_is_best(self) -> None:
        curve = choose_alpha(teams(), noise=0.0, trials=2).curve.sort_values("alpha")
        assert np.all(np.diff(curve["mean"]) <= 1e-9)

    def test_tiny_alpha_is_not_free_under_noise(self) -> None:
        curve = choose_alpha(teams(), noise=0.03, alphas=[0.01, 1.0], trials=60, seed=1).curve
        by_alpha = curve.set_index("alpha")["mean"]
        assert by_alpha.loc[0.01] < by_alpha.loc[1.0]

    def test_curve(self) -> None:
        choice = choose_alpha(teams(), noise=0.05, alphas=[0.1, 0.5, 1.0], trials=40, seed=1)
        curve = choice.curve
        assert {"alpha", "mean", "guarantee", "revenue", "sensitivity"} <= set(curve.columns)
        assert {0.1, 0.5, 1.0} <= set(curve["alpha"])
        np.testing.assert_allclose(curve["sensitivity"], 1 / curve["alpha"])
        bounds = [efficiency_bound(a, n=8) for a in curve["alpha"]]
        anyn = [efficiency_bound(a) for a in curve["alpha"]]
        assert np.allclose(curve["guarantee"], bounds) or np.allclose(curve["guarantee"], anyn)
        low = next(c for c in curve.columns if "5" in str(c))
        assert np.all(curve[low] <= curve["mean"])
        assert np.all((curve["mean"] > 0) & (curve["mean"] <= 1 + 1e-9))

    def test_the_choice_is_at_least_as_good_as_the_grid(self) -> None:
        choice = choose_alpha(teams(), noise=0.05, trials=40, seed=1)
        curve = choice.curve
        assert choice.alpha == pytest.approx(float(curve.loc[curve["mean"].idxmax(), "alpha"]))

    def test_seed(self) -> None:
        one, same = (choose_alpha(teams(), noise=0.05, alphas=[0.1, 0.5], trials=10, seed=3) for _ in range(2))
        other = choose_alpha(teams(), noise=0.05, alphas=[0.1, 0.5], trials=10, seed=4)
        np.testing.assert_array_equal(one.curve["mean"], same.curve["mean"])
        assert not np.array_equal(one.curve["mean"], other.curve["mean"])

    def test_noiseless_mean_is_the_equilibrium_efficiency(self) -> None:
        from paperworks.allocation.equilibrium import solve
        from paperworks.allocation.optima import efficient

        v = teams()
        curve = choose_alpha(v, noise=0.0, alphas=[1.0], trials=3).curve.set_index("alpha")
        expected = v.value(solve(v, 1.0).amounts).sum() / efficient(v).welfare
        assert curve["mean"].loc[1.0] == pytest.approx(expected, rel=1e-8)

    def test_default_agents(self) -> None:
        choice = choose_alpha(noise=0.05, alphas=[0.1, 0.5], trials=10, seed=0)
        assert 0.1 <= choice.alpha <= 0.5


@pytest.mark.untyped
class TestRefused:
    @pytest.mark.parametrize("noise", [-0.1, math.nan, math.inf])
    def test_noise(self, noise: float) -> None:
        with pytest.raises(ValueError, match="noise"):
            choose_alpha(teams(), noise=noise)

    @pytest.mark.parametrize("trials", [0, -1])
    def test_trials(self, trials: int) -> None:
        with pytest.raises(ValueError, match="trials"):
            choose_alpha(teams(), noise=0.1, trials=trials)

    @pytest.mark.parametrize("alphas", [[-0.1, 0.5], [0.5, 2.0], []])
    def test_alphas(self, alphas: list[float]) -> None:
        with pytest.raises(ValueError, match="alpha"):
            choose_alpha(teams(), noise=0.1, alphas=alphas)

    def test_target(self) -> None:
        with pytest.raises(ValueError, match="target"):
            choose_alpha(target_efficiency=1.5)
