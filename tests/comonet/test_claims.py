"""The rules of the ledger: each can fail, and what is cheap to measure is measured."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from paperworks.comonet import claims, peers
from paperworks.core.claims import Trial, ledger

RULES = {claim.id: claim.judge for claim in claims.CLAIMS}
MEASURES = {experiment.id: experiment.measure for experiment in claims.EXPERIMENTS}


def table(rows: list[dict[str, object]]) -> pd.DataFrame:
    return pd.DataFrame(rows)


def regimes(**changes: float) -> pd.DataFrame:
    """Return a table in which everything holds, but for the changed values of COMONet's rows."""
    nmse = {"comonet": 0.03, "mlp": 0.3, "xgboost": 0.09, "pygam": 0.02}
    rows = [
        {
            "param.method": method,
            "param.rows": 600,
            "param.noise": noise,
            "param.seed": 0,
            "value.nmse": value,
            "value.violated": 0.2 if method in ("mlp", "xgboost") else 0.0,
            "value.worst_column": 0.4,
            "value.checked": 1000,
            "value.certified": True if method == "comonet" else None,
        }
        for noise in (0.1, 0.5, 1.0)
        for method, value in nmse.items()
    ]
    made = table(rows)
    for name, value in changes.items():
        made.loc[made["param.method"] == "comonet", f"value.{name}"] = value
    return made


def test_one_broken_segment_or_one_missing_proof_fails_the_guarantee():
    assert RULES["eight_regimes"](regimes(), table([])).word == "holds"
    assert RULES["eight_regimes"](regimes(violated=0.001), table([])).word == "fails"
    assert RULES["eight_regimes"](regimes(certified=False), table([])).word == "fails"


def test_competitors_decide_and_a_better_gam_is_told():
    verdict = RULES["competitive_synth"](regimes())
    assert verdict.word == "holds"
    assert "pyGAM is better" in verdict.sentence
    assert RULES["competitive_synth"](regimes(nmse=0.1)).word == "fails"


def test_noise_is_judged_at_two_levels():
    assert RULES["noise_robust"](regimes()).word == "holds"
    assert RULES["noise_robust"](regimes(nmse=0.2)).word == "fails"
    half = regimes()
    half.loc[(half["param.method"] == "comonet") & (half["param.noise"] == 1.0), "value.nmse"] = 0.2
    assert RULES["noise_robust"](half).word == "partly"


def test_a_penalty_that_breaks_nothing_refutes_the_claim():
    penalty = table([{"param.strength": s, "value.violated": 0.1, "value.nmse": 0.2} for s in (1e-4, 1e-2, 1.0)])
    assert RULES["penalty_not_enough"](penalty, regimes()).word == "holds"
    penalty.loc[2, "value.violated"] = 0.0
    assert RULES["penalty_not_enough"](penalty, regimes()).word == "fails"


def test_subsets_need_both_refutations():
    subset = table([{"value.violated": True}])
    assert RULES["subset_only"](regimes(), subset).word == "holds"
    assert RULES["subset_only"](regimes(), table([{"value.violated": False}])).word == "fails"
    without = regimes()
    assert "not installed" in RULES["subset_only"](without[without["param.method"] != "xgboost"], subset).sentence


def real(score: float, accuracy: float) -> pd.DataFrame:
    rows = [("auto-mpg", "mse", "comonet", score), ("auto-mpg", "mse", "hgb", 8.0), ("auto-mpg", "mse", "mlp", 9.0)]
    rows += [("heart", "accuracy", "comonet", accuracy), ("heart", "accuracy", "pygam", 0.82)]
    return table(
        [dict(zip(("param.data", "value.metric", "param.method", "value.score"), r, strict=True)) for r in rows]
    )


@pytest.mark.parametrize(
    ("score", "accuracy", "word"),
    [(8.7, 0.80, "holds"), (8.9, 0.80, "partly"), (8.7, 0.78, "partly"), (8.9, 0.78, "fails")],
)
def test_real_tables_are_judged_against_the_best_peer(score, accuracy, word):
    assert RULES["competitive_real"](real(score, accuracy)).word == word


def test_the_blind_spot_needs_the_ratio_and_the_bound():
    rows = [
        {"param.target": target, "param.unit": unit, "value.nmse": nmse, "value.sup": sup, "value.bound": bound}
        for target, bound in claims.BOUNDS.items()
        for unit, nmse, sup in (("relu", 0.1, 0.6), ("maxout", 1e-4, 0.01), ("mlp", 1e-4, 0.01))
    ]
    maps = table([])
    assert RULES["blind_spot"](table(rows), maps).word == "holds"
    low = table(rows).replace({"value.sup": {0.6: 0.4}})
    assert RULES["blind_spot"](low, maps).word == "fails"
    close = table(rows)
    close.loc[close["param.target"] == "max", "value.nmse"] = 0.1
    assert RULES["blind_spot"](close, maps).word == "partly"


def test_prices_must_not_break_once_and_peers_must():
    def smile(ours: float, mlp: float) -> pd.DataFrame:
        rows = [("comonet", ours), ("mlp", mlp), ("truth", 0.0)]
        return table(
            [
                {"param.method": m, "param.seed": 0, "value.nmse": 0.1, "value.negative": share, "value.rising": 0.0}
                for m, share in rows
            ]
        )

    assert RULES["no_arbitrage"](smile(0.0, 0.1)).word == "holds"
    assert RULES["no_arbitrage"](smile(0.001, 0.1)).word == "fails"
    assert RULES["no_arbitrage"](smile(0.0, 0.0)).word == "fails"


def test_random_networks_ulps_answers_and_products_can_fail():
    random = {"value.proved": [True, True], "value.worst": [0.0, -1e-15], "value.checked": [10, 10]}
    assert RULES["by_construction"](pd.DataFrame(random)).word == "holds"
    assert RULES["by_construction"](pd.DataFrame(random | {"value.worst": [0.0, -1e-11]})).word == "fails"
    assert RULES["by_construction"](pd.DataFrame(random | {"value.proved": [True, False]})).word == "fails"
    ulp = {"value.steps": [10], "value.wrong": [0], "value.moved": [3]}
    assert RULES["ulp_exact"](pd.DataFrame(ulp)).word == "holds"
    assert RULES["ulp_exact"](pd.DataFrame(ulp | {"value.wrong": [1]})).word == "fails"
    answers = {"value.case": ["a"], "value.expected": ["proved"], "value.boxes": [3], "value.seconds": [0.1]}
    assert RULES["certify_any"](pd.DataFrame(answers | {"value.status": ["proved"]})).word == "holds"
    assert RULES["certify_any"](pd.DataFrame(answers | {"value.status": ["unknown"]})).word == "fails"
    products = table(
        [
            {"param.target": target, "param.method": method, "value.nmse": 0.1 if method == "additive" else 0.01}
            for target in claims.PRODUCTS
            for method in ("additive", "product", "both", "relu")
        ]
    )
    assert RULES["products"](products).word == "holds"
    products.loc[1, "value.nmse"] = 0.011
    assert RULES["products"](products).word == "fails"


def test_data_that_cannot_be_had_are_said_to_be_out_of_reach():
    assert RULES["large_real"](table([])).word == "out of reach"


def test_every_unit_is_connected_as_the_table_says():
    rows = MEASURES["routing"](Trial({"groups": 3}))
    assert len(rows) == 20
    assert all(row["wrong"] == 0 and row["units"] > 0 for row in rows)


def test_the_convex_trunk_is_refuted_by_three_points_above_their_chord():
    rows = MEASURES["subset"](Trial())
    points = [(row["x"], row["prediction"]) for row in rows if row["kind"] == "witness"]
    assert len(points) == 3
    (a, fa), (b, fb), (c, fc) = points
    assert fb < fa + (fc - fa) * (b - a) / (c - a)


def test_random_parameters_keep_their_shapes():
    rows = MEASURES["random-networks"](Trial({"interactions": "both", "networks": 4}))
    assert all(row["proved"] and row["worst"] >= -1e-12 for row in rows)


def test_full_trials_are_tuned_and_quick_ones_need_no_file():
    for name, experiment in ledger("comonet").experiments.items():
        full = experiment.trials("full")
        if name in ("regimes", "real"):
            assert all(trial["tune"] for trial in full)
    assert {trial["data"] for trial in ledger("comonet").experiments["real"].trials("quick")} == {"auto-mpg", "heart"}


@pytest.mark.parametrize("method", [m for m in peers.METHODS if m not in ("comonet-relu",)])
@pytest.mark.parametrize("classify", [False, True])
def test_every_method_has_nine_candidates(method, classify):
    from sklearn.model_selection import ParameterGrid

    assert len(ParameterGrid(peers._grid(method, classify))) == 9


def test_a_penalty_lowers_the_share_of_broken_segments_and_leaves_some():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (80, 2))
    y = X[:, 0] + 0.5 * rng.normal(size=80)
    shapes = [peers.Shape.INCREASING, peers.Shape.CONVEX]
    broken = []
    for strength in (0.0, 10.0):
        model = peers.PenaltyMLP(shapes, strength).fit(X, y)
        broken.append(claims._broken(model.predict, X, shapes, 40)[0])
    assert 0 < broken[1] < broken[0]
