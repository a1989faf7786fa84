"""The rules of the ledger: each can fail, and what is cheap to measure is measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from paperworks.anchoring import claims, schedules
from paperworks.anchoring.certificates import pep_worst_case, spectral_points
from paperworks.core.claims import Trial, ledger
from paperworks.core.extras import missing
from paperworks.core.results import table as join

# Measuring takes long under a checker of every call, and adds nothing to it.
pytestmark = pytest.mark.untyped

RULES = {claim.id: claim.judge for claim in claims.CLAIMS}
EXPERIMENTS = {experiment.id: experiment for experiment in claims.EXPERIMENTS}
needs_pep = pytest.mark.skipif(bool(missing(claims.PEP_PEERS)), reason="needs PEPit, cvxpy and Clarabel")


def measured(name: str, keep: Callable[[Trial], bool] = lambda trial: True) -> pd.DataFrame:
    """Measure the trials of the quick scale that are kept, and return them as the rules see them."""
    records = []
    for trial in filter(keep, EXPERIMENTS[name].trials("quick")):
        rows = EXPERIMENTS[name].measure(trial)
        params = {**trial.params, "seed": trial.seed}
        records.append({"params": params, "rows": [rows] if isinstance(rows, dict) else rows, "run": {}})
    return join(records)


def changed(table: pd.DataFrame, column: str, value: Any, **where: Any) -> pd.DataFrame:
    """Return a copy with a column set to a value, or changed by a function, where other columns have theirs."""
    rows = np.ones(len(table), dtype=bool)
    for name, wanted in where.items():
        full = f"param.{name}" if f"param.{name}" in table else f"value.{name}"
        rows &= (table[full] == wanted).to_numpy()
    assert rows.any()
    copy = table.copy()
    full = f"value.{column}"
    copy.loc[rows, full] = value(copy.loc[rows, full]) if callable(value) else value
    return copy


def word(name: str, *tables: pd.DataFrame) -> str:
    return RULES[name](*tables).word


def test_the_ledger_has_the_claims_of_the_paper_and_ours() -> None:
    book = ledger("anchoring")
    paper = [claim.id for claim in book.claims.values() if claim.source == "paper"]
    assert paper == [
        "picard_is_halpern",
        "halpern_rate",
        "forward_rate",
        "extragradient_rate",
        "popov_rate",
        "shared_recurrence",
        "query_pattern",
        "unmodified_methods",
    ]
    assert all(set(experiment.hours) == {"quick", "full"} for experiment in book.experiments.values())


def test_the_full_scale_has_more() -> None:
    sizes = {name: [len(e.trials("quick")), len(e.trials("full"))] for name, e in EXPERIMENTS.items()}
    assert {name: sizes[name] for name in ("pep", "recurrence", "fixed_points")} == {
        "pep": [16, 24],
        "recurrence": [6, 100],
        "fixed_points": [20, 200],
    }
    assert {trial["n"] for trial in EXPERIMENTS["spectral"].trials("full")} == {100_000}


def test_only_peers_and_torch_are_required() -> None:
    assert {n: e.requires for n, e in EXPERIMENTS.items() if e.requires} == {
        "pep": ("PEPit", "cvxpy", "clarabel"),
        "optimizers": ("torch",),
        "programmes": ("highspy",),
    }
    peers = {trial.requires for trial in EXPERIMENTS["fixed_points"].trials("quick")}
    assert peers == {(), ("jaxopt",), ("optimistix",), ("anderson-acceleration",)}


def test_identity() -> None:
    table = measured("identity")
    assert word("picard_is_halpern", table) == "holds"
    assert word("picard_is_halpern", changed(table, "difference", 2e-13)) == "fails"


@pytest.fixture(scope="module", name="spectral")
def _spectral() -> pd.DataFrame:
    return measured("spectral", lambda trial: trial["a"] is None and trial["mu"] is None)


@pytest.fixture(scope="module", name="grid")
def _grid() -> pd.DataFrame:
    rows = [
        {"method": method, "n": 300, "a": a, "mu": 0.4, "constant": constant}
        for method in ("extragradient", "popov")
        for a, constant in ((1.1, 3.0), (2.9, None))
    ]
    return table(rows, "method", "n")


def table(rows: list[dict[str, Any]], *params: str) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    return frame.rename(columns=lambda name: f"param.{name}" if name in params else f"value.{name}")


class TestRates:
    def test_known_constants(self, spectral: pd.DataFrame, grid: pd.DataFrame) -> None:
        forward = RULES["forward_rate"](spectral)
        assert [forward.word, *(h.value for h in forward.headline)] == [
            "holds",
            pytest.approx(-0.509, abs=1e-3),
            pytest.approx(1.879, abs=1e-3),
        ]
        extragradient = RULES["extragradient_rate"](spectral, grid)
        assert extragradient.word == "holds"
        assert extragradient.headline[1].value == pytest.approx(2.971, abs=1e-3)
        popov = RULES["popov_rate"](spectral, grid)
        assert popov.word == "holds"
        assert popov.headline[1].value == pytest.approx(5.218, abs=1e-3)

    @pytest.mark.parametrize(
        ("claim", "method"),
        [("forward_rate", "forward"), ("extragradient_rate", "extragradient"), ("popov_rate", "popov-stored")],
    )
    def test_slope_and_constant_decide(
        self, spectral: pd.DataFrame, grid: pd.DataFrame, claim: str, method: str
    ) -> None:
        tables = () if claim == "forward_rate" else (grid,)
        rate = 0.06 * np.log(spectral.loc[spectral["param.method"] == method, "value.k"] + 1)
        flatter = changed(spectral, "residual", lambda r: r * np.exp(rate), method=method)
        assert word(claim, flatter, *tables) == "fails"
        assert word(claim, changed(spectral, "largest", 6.0, method=method), *tables) == "fails"

    def test_halpern(self, spectral: pd.DataFrame) -> None:
        tight = measured("tight")
        rows = [{"method": "picard", "n": n, "pep": 2 / (n + 1) + 5e-5} for n in (5, 10)]
        pep = table(rows, "method", "n")
        assert word("halpern_rate", tight, spectral, pep) == "holds"
        assert word("halpern_rate", tight, spectral, changed(pep, "pep", 0.18195, n=10)) == "fails"
        assert word("halpern_rate", tight, changed(spectral, "largest", 2.01, method="picard"), pep) == "fails"
        assert word("halpern_rate", changed(tight, "residual", 0.5, N=5), spectral, pep) == "fails"

    def test_plain_methods_are_slower(self) -> None:
        plain, orbits = measured("plain"), measured("orbits")
        verdict = RULES["plain_methods"](plain, orbits)
        assert verdict.word == "holds"
        assert verdict.headline[2].value == pytest.approx(2.1e4, rel=0.01)
        assert word("plain_methods", changed(plain, "residual", 1e-3, method="forward", k=2000), orbits) == "fails"


@needs_pep
class TestPEP:
    def test_known_answers(self) -> None:
        assert pep_worst_case("picard", schedules.halpern(), 5).value == pytest.approx(1 / 3, abs=1e-5)
        found = pep_worst_case("forward", schedules.forward(), 2)
        assert (round(found.value, 4), found.status) == (1.085, "optimal")

    def test_sandwich(self) -> None:
        found = measured("pep", lambda trial: trial["n"] == 4)
        assert word("independent_certificates", found) == "holds"
        extragradient = found[found["param.method"] == "extragradient"]
        assert extragradient["value.pep"].item() == pytest.approx(0.70469, abs=1e-4)
        for column, value in (("spectral", 1.0), ("recurrence", 0.1), ("scaled", 7.0)):
            assert word("independent_certificates", changed(found, column, value, method="popov")) == "fails"
        doubted = RULES["independent_certificates"](changed(found, "status", "optimal_inaccurate", method="popov"))
        assert "inaccurate for popov at n = 4" in doubted.sentence


def test_spectral_points_are_on_the_boundary() -> None:
    assert np.abs(1 - spectral_points("map", 50)) == pytest.approx(1)
    z = spectral_points("field", 50)
    assert np.minimum(np.abs(z.real), np.abs(np.abs(z) - 1)).max() < 1e-12
    assert z.real.min() > -1e-12


def test_grid_leaves_out_what_is_no_schedule() -> None:
    rows = EXPERIMENTS["grid"].measure(Trial({"method": "popov", "n": 5, "points": 11}))
    assert len(rows) == claims.GRID**2
    assert all((row["constant"] is None) == (row["a"] / 8 >= row["mu"]) for row in rows)


def test_recurrence() -> None:
    found = measured("recurrence", lambda trial: trial["first"] == 0)
    assert len(found) == 10 * 5
    assert word("shared_recurrence", found) == "holds"
    assert found.loc[found["value.method"] == "popov-stored", "value.share"].isna().all()
    assert word("shared_recurrence", changed(found, "slack", 1.001, method="popov", operator=3)) == "fails"
    assert word("shared_recurrence", changed(found, "share", 1.01, method="forward", operator=3)) == "fails"


def test_query_pattern() -> None:
    orbits, placement = measured("orbits"), measured("placement")
    verdict = RULES["query_pattern"](orbits, placement)
    assert verdict.word == "holds"
    moved = changed(orbits, "first", 0.5, method="popov", version="anchored", role="anchored", k=3, order=1)
    assert word("query_pattern", moved, placement) == "fails"
    assert word("query_pattern", orbits, changed(placement, "apart", 0.3)) == "fails"


def test_unmodified() -> None:
    same = measured("unmodified", lambda trial: trial["kind"] == "plain")
    assert same["value.identical"].astype(bool).all()
    rows = [
        {"kind": "box", "method": "any", "version": version, "k": k, "residual": k**slope}
        for version, slope in (("anchored", -1.0), ("plain", -0.5))
        for k in (1000, 3000, 10_000)
    ]
    box = table(rows, "kind", "method")
    assert word("unmodified_methods", pd.concat([same, box])) == "holds"
    assert word("unmodified_methods", pd.concat([changed(same, "identical", False, method="popov"), box])) == "fails"
    flat = changed(box, "residual", 1e-3, version="anchored")
    assert word("unmodified_methods", pd.concat([same, flat])) == "fails"


def test_a_method_in_a_box_is_anchored_as_it_is() -> None:
    found = measured("unmodified", lambda trial: trial["method"] == "projected extragradient")
    last = found[found["value.k"] == 10_000].set_index("value.version")["value.residual"]
    assert last.to_dict() == pytest.approx({"anchored": 2.13e-2, "plain": 2.76e-3}, rel=0.01)


def test_existing_methods() -> None:
    keep = ("FEG", "EAG-V", "regularized extragradient")
    found = measured("existing", lambda trial: trial["method"] in keep and trial["problem"] != "spectral")
    values = found.set_index(["param.problem", "param.method"])["value.value"]
    found = pd.concat([found, found.assign(**{"param.problem": "spectral"})])
    assert values["Ouyang–Xu", "FEG"] == pytest.approx(0.0835, abs=5e-5)
    assert values["Ouyang–Xu", "regularized extragradient"] == pytest.approx(0.189, abs=5e-4)
    eag_c = found[found["param.method"] == "EAG-V"].assign(**{"param.method": "EAG-C"})
    found = pd.concat([found, eag_c])
    assert word("existing_anchored_methods", found) == "holds"
    better = changed(found, "value", 0.1, method="EAG-C", problem="Ouyang–Xu")
    assert word("existing_anchored_methods", better) == "fails"


def test_nearest_solution() -> None:
    found = measured("selection", lambda trial: trial["method"] == "popov")
    late = found.loc[found["param.n"] == 20_000, "value.distance"].item()
    assert late < 1e-3
    every = pd.concat([found.assign(**{"param.method": method}) for method in claims.SELECTION])
    assert word("nearest_solution", every) == "holds"
    assert word("nearest_solution", changed(every, "distance", 1.1e-3, method="resolvent", n=20_000)) == "fails"
    assert word("nearest_solution", changed(every, "distance", late / 2, method="forward", n=5_000)) == "fails"


def test_fixed_point_packages() -> None:
    keep = ("Halpern", "SciPy del2")
    ours = measured("fixed_points", lambda trial: trial["method"] in keep)
    halpern = ours[ours["param.method"] == "Halpern"]
    restarted = halpern.assign(**{"param.method": "Halpern, restarted"})
    other = halpern.assign(**{"param.method": "SciPy anderson", "value.residual": [0.063, 0.0036]})
    ours = pd.concat([ours, restarted, other], ignore_index=True)
    verdict = RULES["fixed_point_packages"](ours)
    assert verdict.word == "partly"
    assert "SciPy del2 fails on 2 of 2." in verdict.sentence
    halpern = halpern.set_index("param.map")
    assert (halpern["value.residual"] <= halpern["value.bound"]).all()
    assert halpern.loc["isometry", "value.residual"] == pytest.approx(0.0065, abs=5e-5)
    best = changed(ours, "residual", 0.1, method="SciPy anderson")
    assert word("fixed_point_packages", best) == "holds"
    assert word("fixed_point_packages", changed(ours, "residual", 0.02, method="Halpern", map="isometry")) == "fails"


def test_a_map_of_the_packages_does_not_expand_and_calls_are_counted() -> None:
    calls = []

    def T(x: Any) -> Any:
        calls.append(1)
        return -0.5 * x + 1

    x, _ = claims._scipy_anderson(T, np.zeros(3))
    assert len(calls) <= claims.CALLS
    assert x == pytest.approx(2 / 3)


def test_torch_optimizers() -> None:
    pytest.importorskip("torch")
    rows = [EXPERIMENTS["optimizers"].measure(Trial({"method": m, "n": 20})) for m in ("popov", "extragradient")]
    assert max(row["difference"] for row in rows) < 1e-12
    found = table([{"method": "popov", "n": 20, "difference": d} for d in (1e-11, 1e-9)], "method", "n")
    assert [word("torch_optimizers", found.iloc[[k]]) for k in (0, 1)] == ["holds", "fails"]


def test_limits() -> None:
    found = measured("limits", lambda trial: trial["method"] == "extragradient")
    assert word("limits", found) == "holds"
    assert found["value.residual"].iloc[0] == pytest.approx(7e77, rel=0.1)
    for column, value in (("flagged", False), ("status", 1), ("residual", 0.5)):
        assert word("limits", changed(found, column, value, case="step × 2")) == "fails"


def test_games_and_their_value() -> None:
    games = measured("games", lambda trial: trial["method"] == "r2halpern" or trial["game"] == "kuhn")
    games = pd.concat([games, games[games["param.method"] != "r2halpern"].assign(**{"param.game": "random"})])
    assert word("matrix_games", games) == "holds"
    assert word("matrix_games", changed(games, "value", -0.05, game="kuhn")) == "fails"
    assert word("matrix_games", changed(games, "solved", False, method="r2halpern")) == "fails"
    assert word("matrix_games", changed(games, "solved", False, method="pdhg")) == "holds"


def test_images() -> None:
    images = measured("images")
    assert word("tomography", images) == "holds"
    assert word("tomography_gain", images) == "fails"
    assert word("tomography", changed(images, "residual", lambda r: 2 * r, method="r2halpern")) == "fails"
    assert word("tomography_gain", changed(images, "residual", lambda r: 0.1 * r, method="r2halpern")) == "holds"


def test_a_linear_programme() -> None:
    pytest.importorskip("highspy")
    found = measured("programmes", lambda t: t["programme"] == "afiro" and t["method"] == "r2halpern").iloc[0]
    assert (found["value.solved"], found["value.iterations"]) == (True, 300)
    assert 200 <= found["value.pdlp"] <= 400
    assert found["value.error"] <= 1e-5
    assert found["value.kkt"] <= 1e-6


def test_linear_programmes() -> None:
    rows = [
        {"programme": name, "method": method, "tol": 1e-6, "solved": method == "r2halpern" or name == "afiro"}
        for name in claims.HARD
        for method in ("r2halpern", "pdhg")
    ]
    given = table(
        [row | {"iterations": 900, "error": 1e-6, "pdlp": 1000} for row in rows], "programme", "method", "tol"
    )
    assert word("linear_programmes", given) == "holds"
    assert "0.90 times" in RULES["linear_programmes"](given).sentence
    assert word("linear_programmes", changed(given, "solved", False, method="r2halpern")) == "fails"
    assert word("linear_programmes", changed(given, "error", 1e-4, method="r2halpern")) == "fails"
    assert word("linear_programmes", changed(given, "solved", True, programme="israel")) == "fails"


def test_processes() -> None:
    cycle = measured("processes", lambda trial: trial["process"] == "cycle")
    assert word("value_iteration", cycle) == "holds"
    assert word("value_iteration", changed(cycle, "ratio", 1.01)) == "fails"
    assert word("value_iteration", changed(cycle, "anchored_error", 2e-3)) == "fails"
    lake = {"process": "FrozenLake-v1", "gamma": 0.99, "plain_sweeps": 369, "anchored_sweeps": 554}
    given = table([lake, lake | {"gamma": 0.9, "anchored_sweeps": None}, lake | {"gamma": 0.999}], "process", "gamma")
    assert word("ordinary_processes", given) == "fails"
    assert "FrozenLake, γ = 0.99: 369 plain, 554 anchored" in RULES["ordinary_processes"](given).sentence
    assert word("ordinary_processes", changed(given, "anchored_sweeps", 100)) == "holds"
