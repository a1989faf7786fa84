"""The rules of the ledger: each can fail, and what is cheap to measure is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from paperworks.core.claims import Trial, ledger
from paperworks.core.results import table as join
from paperworks.transitive import claims
from paperworks.transitive.data import DESIGNS
from paperworks.transitive.tasks import TransitiveTask
from paperworks.transitive.theory import predict_margins

# Measuring takes long under a checker of every call, and adds nothing to it.
pytestmark = pytest.mark.untyped

RULES = {claim.id: claim.judge for claim in claims.CLAIMS}
EXPERIMENTS = {experiment.id: experiment for experiment in claims.EXPERIMENTS}


def measured(name: str, keep: Callable[[Trial], bool] = lambda trial: True, artifact: Path | None = None) -> Any:
    """Measure the trials of the quick scale that are kept, and return them as the rules see them."""
    records = []
    for trial in filter(keep, EXPERIMENTS[name].trials("quick")):
        rows = EXPERIMENTS[name].measure(replace(trial, artifact=artifact))
        params = {**trial.params, "seed": trial.seed}
        records.append({"params": params, "rows": [rows] if isinstance(rows, dict) else rows, "run": {}})
    return join(records)


def changed(table: pd.DataFrame, column: str, value: Any, **where: Any) -> pd.DataFrame:
    """Return a copy with a column set to a value where other columns have theirs."""
    rows = np.ones(len(table), dtype=bool)
    for name, wanted in where.items():
        full = f"param.{name}" if f"param.{name}" in table else f"value.{name}"
        rows &= (table[full] == wanted).to_numpy()
    assert rows.any()
    copy = table.copy()
    copy.loc[rows, f"value.{column}"] = value
    return copy


def word(name: str, *tables: pd.DataFrame) -> str:
    return RULES[name](*tables).word


def test_the_ledger_has_the_claims_of_the_paper_and_ours() -> None:
    book = ledger("transitive")
    ours = [claim.id for claim in book.claims.values() if claim.source == "ours"]
    assert ours == ["early_stopping", "living_subjects", "real_rankings"]
    assert len(book.claims) == 15


@pytest.mark.parametrize(
    ("name", "quick", "full"),
    [
        ("margins", 16, 16),
        ("exactness", 17, 17),
        ("wide", 2, 9),
        ("phases", 1, 1),
        ("chains", 11, 11),
        ("critical", 32, 32),
        ("networks", 18, 18),
        ("leak", 5, 5),
        ("cases", 8, 12),
        ("times", 3, 3),
        ("lm_pairs", 20, 20),
        ("lm_fits", 20, 20),
        ("lm_transfer", 6, 6),
        ("sweep", 13, 13),
        ("geometry", 2, 12),
        ("finetuned", 32, 32),
        ("subjects", 2, 2),
        ("dominance", 16, 32),
    ],
)
def test_trials(name: str, quick: int, full: int) -> None:
    experiment = EXPERIMENTS[name]
    assert [len(experiment.trials("quick")), len(experiment.trials("full"))] == [quick, full]


def test_only_what_needs_a_language_model_or_a_peer_requires_a_package() -> None:
    needy = {name for name, experiment in EXPERIMENTS.items() if experiment.requires}
    assert needy == {"geometry", "finetuned"}
    peers = [trial["method"] for trial in EXPERIMENTS["dominance"].trials("quick") if trial.requires]
    assert peers == ["bt", "bt"]


@pytest.fixture(scope="module", name="task_margins")
def _task_margins() -> pd.DataFrame:
    return measured("margins", lambda trial: trial["conjunctivity"] in (0, 1))


def test_ranks_that_are_not_numbers_are_neither_exact_nor_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "chain_ranks", lambda n, *_: np.full(n, np.nan))
    differences = EXPERIMENTS["exactness"].measure(Trial({"n_items": 6, "random": 0}))
    assert [np.isnan(row["difference"]) for row in differences] == [True, False, True]
    chain = EXPERIMENTS["chains"].measure(Trial({"n_items": 6}))
    assert chain["wrong"] == chain["pairs"]
    cases = EXPERIMENTS["cases"].measure(Trial({"n_items": 6}))
    assert cases["order_violations"] == 72  # with 6 of 10 places of the exception, two items on one side
    assert min(cases[f"{kind}_violations"] for kind in ("ends", "nearest", "weight")) > 0


class TestTask:
    def test_holds(self, task_margins: pd.DataFrame) -> None:
        verdict = RULES["separates_rule_from_memory"](task_margins)
        assert verdict.word == "holds"
        assert verdict.headline[0].value == pytest.approx(2)
        assert task_margins["value.truth"].isna().sum() == 10

    @pytest.mark.parametrize(
        ("column", "value", "where"),
        [
            ("margin", -1e-3, {"conjunctivity": 0, "cls": "cross"}),
            ("margin", 1e-6, {"conjunctivity": 0, "cls": "exception"}),
            ("margin", -0.99, {"conjunctivity": 1, "cls": "exception"}),
            ("margin", 1e-6, {"conjunctivity": 1, "cls": "within"}),
            ("cls", "cross", {"design": "exc_mid_n11", "cls": "boundary"}),
        ],
    )
    def test_can_fail(self, task_margins: pd.DataFrame, column: str, value: Any, where: dict[str, Any]) -> None:
        assert word("separates_rule_from_memory", changed(task_margins, column, value, **where)) == "fails"


class TestExactness:
    def test_three_ways_agree_also_with_weights(self) -> None:
        rows = EXPERIMENTS["exactness"].measure(Trial({"n_items": 6, "random": 20}, seed=1))
        assert [row["settings"] for row in rows] == [3 * 10 + 20] * 3
        assert max(row["difference"] for row in rows) < 1e-12

    def test_a_random_kernel_has_the_values_it_says(self) -> None:
        values, kernel = claims._random_kernel(np.random.default_rng(0))
        base = np.array([[0, 1]])
        others = {"same": [0, 1], "flipped": [1, 0], "overlap": [0, 2], "crossed": [2, 0], "distinct": [2, 3]}
        assert {name: kernel(base, np.array([pair])).item() for name, pair in others.items()} == pytest.approx(values)

    def test_rule(self) -> None:
        rows = {"param.n_items": [5, 6], "value.compared": ["a", "a"], "value.settings": [18, 30]}
        small, large = (pd.DataFrame(rows | {"value.difference": [0.0, worst]}) for worst in (1e-10, 1e-8))
        assert (word("exact_characterisation", small), word("exact_characterisation", large)) == ("holds", "fails")
        assert RULES["exact_characterisation"](small).headline[1].value == 48


class TestWide:
    def test_a_narrow_network_is_near_and_a_wider_one_nearer(self) -> None:
        table = measured("wide")
        verdict = RULES["wide_networks"](table)
        assert verdict.word == "holds"
        assert verdict.headline[0].value == pytest.approx(0.9977, abs=5e-5)
        assert word("wide_networks", table[table["param.width"] == 1000]) == "fails"
        shown = table[table["value.trained"].astype(bool)]
        assert shown["value.network"].to_numpy() == pytest.approx(shown["value.theory"].to_numpy(), abs=1e-8)

    def test_more_is_asked_of_the_widest(self) -> None:
        theory = predict_margins(TransitiveTask(9, (5, 3)), 0.147155).table()
        theory = theory[~theory["trained"]]
        noise = np.random.default_rng(0).normal(size=len(theory))
        words = {}
        for width in (10_000, 100_000):
            rows = {"param.width": width, "param.seed": 0, "value.trained": False, "value.theory": theory["margin"]}
            table = pd.DataFrame(rows | {"value.network": theory["margin"] + 0.05 * noise})
            assert 0.995 < np.corrcoef(table["value.network"], table["value.theory"])[0, 1] < 0.999
            words[width] = word("wide_networks", table)
        assert words == {10_000: "holds", 100_000: "fails"}


class TestPhases:
    @staticmethod
    def fits(alpha: float) -> pd.DataFrame:
        row = {"param.design": "exc_mid_n9", "value.alpha": alpha, "value.ridge": 0.0}
        return pd.DataFrame([row, row | {"param.design": "ti_n9"}])

    @pytest.fixture
    def phases(self, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
        monkeypatch.setattr(claims, "GRID", 12)
        return measured("phases")

    def test_rule(self, phases: pd.DataFrame) -> None:
        verdict = RULES["balance_is_possible"](phases, self.fits(0.2))
        assert verdict.word == "holds"
        assert "1 of 1 finetuned" in verdict.sentence
        assert "0 of 1 finetuned" in RULES["balance_is_possible"](phases, self.fits(0.4)).sentence
        assert word("balance_is_possible", changed(phases, "balanced", False), self.fits(0.2)) == "fails"
        first = phases.iloc[0]
        where = {"conjunctivity": first["value.conjunctivity"], "ridge": first["value.ridge"]}
        assert word("balance_is_possible", changed(phases, "generalizes", False, **where), self.fits(0.2)) == "fails"


@pytest.fixture(scope="module", name="geometry_tables")
def _geometry_tables() -> tuple[pd.DataFrame, ...]:
    return measured("critical"), measured("networks"), measured("chains")


class TestGeometry:
    def test_known_values(self, geometry_tables: tuple[pd.DataFrame, ...]) -> None:
        critical, networks, chains = geometry_tables
        verdict = RULES["geometry_decides"](*geometry_tables)
        assert verdict.word == "holds"
        assert verdict.headline[1].value == pytest.approx(1 / 3, abs=1e-12)
        wrong = networks.set_index(["param.n_items", "param.kind", "param.depth"])["value.wrong_cross"]
        assert wrong[9, "ntk", 2] == pytest.approx(1 / 9)
        assert wrong[11].tolist() == pytest.approx([0, 0, 1 / 16, 1 / 16, 1 / 16, 3 / 16])
        assert wrong[21, "nngp", 1] == pytest.approx(15 / 81)
        assert chains["value.pairs"].sum() == 102 * sum((n - 1) * (n - 2) // 2 for n in range(5, 16))
        assert critical["value.critical"].isna().sum() == 6

    @pytest.mark.parametrize(
        ("which", "column", "value", "where"),
        [
            (0, "critical", 0.333330, {"items_per_side": 3, "span": 2}),
            (0, "solved", 0.2, {"items_per_side": 8, "span": 4}),
            (0, "solved", None, {"items_per_side": 8, "span": 4}),
            (0, "critical", 0.9, {"items_per_side": 2, "span": 2}),
            (1, "wrong_cross", 0.0, {"kind": "ntk", "depth": 2, "n_items": 9}),
            (1, "wrong_cross", 0.1, {"kind": "additive", "n_items": 21}),
            (2, "wrong", 1, {"n_items": 15}),
        ],
    )
    def test_can_fail(
        self, geometry_tables: tuple[pd.DataFrame, ...], which: int, column: str, value: Any, where: dict[str, Any]
    ) -> None:
        shown = list(geometry_tables)
        shown[which] = changed(shown[which], column, value, **where)
        assert word("geometry_decides", *shown) == "fails"


@pytest.fixture(scope="module", name="leak_tables")
def _leak_tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    return measured("leak"), measured("cases", lambda trial: trial["n_items"] >= 9)


class TestLeak:
    def test_holds(self, leak_tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
        verdict = RULES["leaking_ranks"](*leak_tables)
        assert verdict.word == "holds"
        assert verdict.headline[1].value == 12 * (28 + 36)
        grown = leak_tables[1].set_index("param.n_items")
        # From 1/3 with three items a side to 3 − 2√2 with four, and to .318669 with a span of three.
        assert grown.loc[9, "value.wider_loss"] == pytest.approx(1 / 3 - 0.171573, abs=1e-6)
        assert grown.loc[9, "value.longer_loss"] == pytest.approx(1 / 3 - 0.318669, abs=1e-6)

    @pytest.mark.parametrize("kind", ["order", "ends", "nearest", "weight", "wider", "longer"])
    def test_one_violation_fails(self, leak_tables: tuple[pd.DataFrame, pd.DataFrame], kind: str) -> None:
        assert (
            word("leaking_ranks", leak_tables[0], changed(leak_tables[1], f"{kind}_violations", 1, n_items=9))
            == "fails"
        )

    def test_parts_must_add_up(self, leak_tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
        assert word("leaking_ranks", leak_tables[0], changed(leak_tables[1], "decompose_error", 1e-8)) == "fails"
        assert word("leaking_ranks", changed(leak_tables[0], "rank", 0.5, item=4), leak_tables[1]) == "fails"

    def test_all_cases_of_the_full_scale_are_those_up_to_fourteen_items(self) -> None:
        sizes = [trial["n_items"] for trial in EXPERIMENTS["cases"].trials("full")]
        assert 12 * sum((n - 1) * (n - 2) // 2 for n in sizes) == 4368


def test_stopping_early_reverses_the_nearest_pair() -> None:
    table = measured("times", lambda trial: trial["conjunctivity"] == 0.147155)
    verdict = RULES["early_stopping"](table)
    assert verdict.word == "holds"
    assert [number.value for number in verdict.headline] == pytest.approx([-0.063, 0.314], abs=5e-4)
    assert word("early_stopping", changed(table, "margin", 0.1, cls="nearest")) == "fails"
    late = table["value.time"].isna() & (table["value.cls"] == "nearest")
    assert word("early_stopping", table.assign(**{"value.margin": table["value.margin"].mask(late, -0.1)})) == "fails"


@pytest.fixture(scope="module", name="lm_answers")
def _lm_answers() -> pd.DataFrame:
    return measured("lm_pairs")


class TestLanguageModels:
    def test_the_public_runs_err_as_foretold(self, lm_answers: pd.DataFrame) -> None:
        verdict = RULES["language_models_err"](lm_answers)
        assert verdict.word == "holds"
        assert "exc_mid_n9 0.906/0.782/0.502" in verdict.sentence
        assert verdict.headline[1].value == pytest.approx(0.3525)

    @pytest.mark.parametrize(
        ("rate", "where"),
        [
            (0.75, {"design": "exc_mid_n9", "cls": "within"}),
            (0.4, {"design": "exc_far_n11", "cls": "cross"}),
            (0.9, {"design": "exc_mid_n9", "first": 2, "second": 6}),
            (0.1, {"design": "exc_far_n11", "first": 2, "second": 8}),
        ],
    )
    def test_can_fail(self, lm_answers: pd.DataFrame, rate: float, where: dict[str, Any]) -> None:
        assert word("language_models_err", changed(lm_answers, "win_rate", rate, **where)) == "fails"

    @staticmethod
    def fits(r2: float, additive: float) -> pd.DataFrame:
        rows = [
            {"param.design": design, "param.task": "fake", "param.model": model, "value.r2": value}
            for design in DESIGNS
            for model, value in (("llama32-1b", 0.99), ("qwen35-2b", r2 if design != "ti_n9" else -0.2))
        ]
        extra = {"value.alpha": 0.2, "value.identified": True, "value.rank_only_r2": 0.5, "value.additive_r2": 0.2}
        table = pd.DataFrame(rows).assign(**extra)
        return changed(table, "additive_r2", additive, design="exc_mid_n9", model="qwen35-2b")

    @pytest.mark.parametrize(
        ("r2", "additive", "expected"), [(0.85, 0.2, "holds"), (0.85, 0.86, "fails"), (0.8, 0.2, "fails")]
    )
    def test_three_numbers(self, r2: float, additive: float, expected: str) -> None:
        # The median of three at 0.99 and three at r2 is their mean.
        assert word("three_numbers", self.fits(r2, additive), pd.DataFrame()) == expected

    def test_three_numbers_fit_a_run(self) -> None:
        def is_run(trial: Trial) -> bool:
            return trial.params == {"design": "exc_far_n11", "task": "fake", "model": "llama32-1b"}

        row = measured("lm_fits", is_run).iloc[0]
        assert row[["value.alpha", "value.ridge", "value.r2"]].tolist() == pytest.approx(
            [0.2052, 0.1563, 0.9897], abs=1e-3
        )
        assert row["value.additive_r2"] == pytest.approx(0.353, abs=1e-3)

    def test_transfer(self) -> None:
        table = measured("lm_transfer", lambda trial: trial.params == {"task": "fake", "model": "llama32-1b"})
        assert table["value.design"].tolist() == ["exc_mid_n9", "exc_mid_n11", "exc_far_n11"]
        assert word("rule_predicts_exceptions", table) == "holds"
        assert table["value.r"].min() > 0.98
        where = {"design": "exc_mid_n11"}
        assert word("rule_predicts_exceptions", changed(table, "r", 0.89, **where)) == "fails"
        assert word("rule_predicts_exceptions", changed(table, "additive_r", 0.999, **where)) == "fails"

    def test_sweep(self) -> None:
        table = measured("sweep")
        verdict = RULES["regularisation_trades"](table)
        assert verdict.word == "holds"
        assert [number.value for number in verdict.headline] == pytest.approx([0.375, 0.56, -0.0426], abs=1e-4)

    @pytest.mark.parametrize(
        ("column", "value", "where"),
        [
            ("win_rate", 0.5, {"source": "model", "strength": 10.0, "first": 2, "second": 6}),
            ("win_rate", 0.5, {"source": "model", "strength": 10.0, "first": 0, "second": 2}),
            ("win_rate", 1.0, {"source": "model", "strength": 10.0, "first": 3, "second": 4}),
            ("win_rate", 0.3, {"source": "model", "strength": 1e-4, "first": 2, "second": 6}),
            ("value", 0.01, {"source": "theory", "strength": 0.5, "first": 2, "second": 6}),
            ("value", -0.01, {"source": "theory", "strength": 0.5, "first": 0, "second": 2}),
            ("value", 1.1, {"source": "theory", "strength": 0.5, "first": 3, "second": 4}),
        ],
    )
    def test_sweep_can_fail(self, column: str, value: float, where: dict[str, Any]) -> None:
        assert word("regularisation_trades", changed(measured("sweep"), column, value, **where)) == "fails"


def store_features(folder: Path, alpha: float, noise: float = 0.0) -> None:
    """Write what the experiments prepare: features of conjunctivity alpha, and a readout that says nothing."""
    pairs = np.argwhere(~np.eye(9, dtype=bool))
    eye = np.eye(9)
    shared = np.sqrt((1 - alpha) / 2) * np.hstack([eye[pairs[:, 0]], eye[pairs[:, 1]]])
    features = np.hstack([shared, np.sqrt(alpha) * np.eye(72)])
    features += noise * np.random.default_rng(0).normal(size=features.shape)
    np.savez(folder / "names0.npz", features=features, pairs=pairs, leads=np.zeros(72))


class TestFrozen:
    def test_an_exchangeable_representation_is_exactly_as_the_theory(self, tmp_path: Path) -> None:
        store_features(tmp_path, 0.1)
        table = measured("geometry", artifact=tmp_path)
        assert table["value.alpha"].to_numpy() == pytest.approx(0.1)
        assert table["value.mean"].to_numpy() == pytest.approx(table["value.theory"].to_numpy(), abs=1e-8)
        # With nothing peculiar to any item nothing is ever wrong, so the exception does not lower a share.
        assert set(table["value.share_right"]) == {1.0}
        assert word("frozen_model", table) == "fails"

    @pytest.fixture
    def table(self, tmp_path: Path) -> pd.DataFrame:
        store_features(tmp_path, 0.1, noise=0.05)
        return measured("geometry", artifact=tmp_path)

    def test_holds(self, table: pd.DataFrame) -> None:
        assert word("frozen_model", table) == "holds"

    @pytest.mark.parametrize(
        ("column", "value", "where"),
        [
            ("share_right", 1.0, {"design": "exc_mid_n9", "first": 2, "second": 6}),
            ("share_right", 0.0, {"design": "ti_n9", "first": 2, "second": 6}),
            ("share_right", 0.1, {"design": "exc_mid_n9", "cls": "within"}),
            ("theory", 5.0, {"design": "ti_n9", "first": 0, "second": 2}),
        ],
    )
    def test_can_fail(self, table: pd.DataFrame, column: str, value: float, where: dict[str, Any]) -> None:
        assert word("frozen_model", changed(table, column, value, **where)) == "fails"

    def test_a_wrong_scale_fails_though_it_correlates(self, table: pd.DataFrame) -> None:
        assert word("frozen_model", table.assign(**{"value.theory": 2 * table["value.theory"]})) == "fails"


@pytest.fixture(scope="module", name="finetuned_table")
def _finetuned_table(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder = tmp_path_factory.mktemp("features")
    store_features(folder, 0.2, noise=0.1)
    return measured("finetuned", lambda trial: trial["names"] < 4, folder)


class TestFinetuned:
    def test_a_trained_readout_shows_the_error(self, finetuned_table: pd.DataFrame) -> None:
        verdict = RULES["finetuned_model"](finetuned_table)
        assert verdict.word == "holds"
        assert (finetuned_table["value.train_accuracy"] == 1).all()
        assert (finetuned_table["value.before"] == 0).all()
        change, theory, additive = (number.value for number in verdict.headline)
        assert change < 0
        assert theory > additive

    def test_an_exception_that_changes_nothing_fails(self, finetuned_table: pd.DataFrame) -> None:
        control = finetuned_table.loc[~finetuned_table["param.exception"].astype(bool), "value.after"].to_numpy()
        same = finetuned_table.copy()
        same.loc[same["param.exception"].astype(bool), "value.after"] = control
        assert word("finetuned_model", same) == "fails"

    def test_two_standard_errors_are_needed(self, finetuned_table: pd.DataFrame) -> None:
        assert (
            word("finetuned_model", changed(finetuned_table, "after", 30.0, names=0, exception=True, first=2, second=6))
            == "fails"
        )

    def test_ranks_alone_must_not_be_better(self, finetuned_table: pd.DataFrame) -> None:
        shown = finetuned_table["param.exception"].astype(bool) & ~(
            (finetuned_table["value.first"] == 2) & (finetuned_table["value.second"] == 6)
        )
        additive = predict_margins(TransitiveTask(9, (5, 3)), 0.0).margins
        like = finetuned_table.copy()
        like.loc[shown, "value.after"] = additive[finetuned_table["value.first"], finetuned_table["value.second"]][
            shown.to_numpy()
        ]
        assert word("finetuned_model", like) == "fails"

    def test_the_full_scale_trains_blocks_on_eight_sets_of_names_both_ways(self) -> None:
        trials = EXPERIMENTS["finetuned"].trials("full")
        assert {trial["method"] for trial in trials} == {"top"}
        assert len({(trial["names"], trial["reversed"]) for trial in trials if trial["exception"]}) == 16

    def test_names_are_nine_teams(self) -> None:
        assert claims._names(0)[:3] == ["Padres", "Marlins", "Guardians"]
        assert all(len(set(claims._names(seed))) == 9 for seed in range(8))


@pytest.fixture(scope="module", name="subjects_table")
def _subjects_table() -> pd.DataFrame:
    return measured("subjects")


class TestSubjects:
    def test_holds(self, subjects_table: pd.DataFrame) -> None:
        verdict = RULES["living_subjects"](subjects_table)
        assert verdict.word == "holds"
        assert [number.value for number in verdict.headline] == pytest.approx([0.876, 0.734], abs=1e-3)

    @pytest.mark.parametrize(
        ("value", "where"),
        [
            (0.9, {"species": "humans", "distance": 2}),
            (0.6, {"species": "monkeys", "distance": 6}),
            (0.6, {"species": "monkeys", "first": 0, "second": 2}),
        ],
    )
    def test_can_fail(self, subjects_table: pd.DataFrame, value: float, where: dict[str, Any]) -> None:
        low = 0.5 if where.get("first") == 0 else value
        shown = changed(subjects_table, "value", low, **where)
        if where["species"] == "humans":
            shown = changed(shown, "value", 0.5, species="humans", distance=3)
        assert word("living_subjects", shown) == "fails"

    def test_ranks_alone_must_explain_less(self, subjects_table: pd.DataFrame) -> None:
        assert (
            word("living_subjects", subjects_table.assign(**{"value.additive": subjects_table["value.value"]}))
            == "fails"
        )


class TestDominance:
    @staticmethod
    def table(gains: list[float], kind: str = "animals", without: tuple[str, ...] = ()) -> pd.DataFrame:
        rows = [
            {
                "param.kind": kind,
                "param.method": method,
                "value.group": f"{kind} {i}",
                "value.accuracy": 0.8 + i / 100 + (gain if method == "0.1" else 0.0),
            }
            for i, gain in enumerate(gains)
            for method in claims.DOMINANCE_METHODS
            if method not in without
        ]
        return pd.DataFrame(rows)

    @pytest.mark.parametrize(
        ("gains", "expected"),
        [([0.01, 0.02, 0.015, 0.012], "holds"), ([0.04, -0.02, 0.01, 0.0], "fails"), ([-0.01, -0.02, -0.01], "fails")],
    )
    def test_two_standard_errors_over_the_peer_are_needed(self, gains: list[float], expected: str) -> None:
        assert word("real_rankings", self.table(gains)) == expected

    def test_without_the_peer_it_holds_in_part_at_most(self) -> None:
        verdict = RULES["real_rankings"](self.table([0.01, 0.02, 0.015], without=("bt",)))
        assert verdict.word == "partly"
        assert "not being installed" in verdict.sentence
        assert word("real_rankings", self.table([0.03, -0.02, 0.0], without=("bt",))) == "fails"

    def test_the_control_is_told(self) -> None:
        both = pd.concat([self.table([0.01, 0.02, 0.015], "upsets"), self.table([0.0, -0.001, 0.0], "control")])
        verdict = RULES["real_rankings"](both)
        assert verdict.word == "holds"
        assert "without upsets that is -0.0003" in verdict.sentence

    def test_colley_is_a_ranking_with_a_ridge_of_one(self) -> None:
        contests, n = claims._made_group(np.random.default_rng(3), 0.1)
        pairs = np.argwhere(~np.eye(n, dtype=bool))
        colley, ranks = (claims._learned(method, contests, n)(pairs) for method in ("colley", "0"))
        assert 2 * colley == pytest.approx(ranks, abs=1e-9)

    def test_the_peer_orders_a_chain(self) -> None:
        pytest.importorskip("choix")
        contests = np.repeat([[0, 1], [1, 2], [2, 3]], 5, axis=0)
        lead = claims._learned("bt", contests, 4)(np.array([[0, 3], [0, 1], [2, 1]]))
        assert lead[0] > lead[1] > 0 > lead[2]

    def test_made_groups_have_the_sizes_of_real_ones(self) -> None:
        groups = claims._groups("upsets", 0, 0)
        sizes = np.array([(n, len(contests)) for _, contests, n in groups])
        assert len(groups) == claims.BLOCK
        assert sizes[:, 0].min() >= 6
        assert sizes[:, 0].max() <= 60
        assert sizes[:, 1].min() >= 150
        assert sizes[:, 1].max() <= 5000
        assert 9 <= np.median(sizes[:, 0]) <= 18

    @pytest.mark.data("transitive/domarchive_edges.csv.gz")
    @pytest.mark.data("transitive/domarchive_meta.csv.gz")
    def test_real_groups(self) -> None:
        groups = claims._groups("animals", 3, 0)
        names = [name for name, *_ in groups]
        assert (len(groups), names == sorted(names)) == (30, True)
        assert all(6 <= n <= 60 and 150 <= len(contests) <= 5000 for _, contests, n in groups)
        assert all(contests.max() == n - 1 for _, contests, n in groups)
