"""The judges: each rule says no when the measurements say no."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from paperworks.allocation import claims
from paperworks.core.claims import Trial, judge, ledger
from paperworks.core.results import table

# Measuring takes long under a checker of every call, and adds nothing to it.
pytestmark = pytest.mark.untyped

BOOK = ledger("allocation")


def measured(name, keep=None, **smaller):
    """Measure some quick trials of an experiment in this process, with some parameters made smaller."""
    experiment = BOOK.experiments[name]
    records = []
    for number, trial in enumerate(experiment.trials("quick")):
        if keep is None or keep(trial):
            trial = replace(trial, params={**trial.params, **{k: v for k, v in smaller.items() if trial.params.get(k)}})
            got = experiment.measure(trial)
            rows = [dict(row) for row in (got if isinstance(got, list) else [got])]
            params = {**trial.params, "seed": trial.seed}
            records.append({"params": params, "rows": rows, "run": {"status": "ok", "error": "", "trial": number}})
    return table(records)


def verdict(name, *tables):
    return judge(BOOK.claims[name], tables, sum(t["run.trial"].nunique() for t in tables)).word


@pytest.fixture(scope="module")
def random_agents():
    return measured("random-agents", lambda trial: trial["alpha"] in (1.0, 0.1))


@pytest.fixture(scope="module")
def extreme_agents():
    return measured("extreme-agents", lambda trial: trial["n"] <= 3)


SEARCH = table(
    [
        {
            "params": {"objective": "efficiency", "alpha": 0.5, "n": 2, "seed": 0},
            "rows": [{"ratio": 0.8660255, "guarantee": 0.8660254, "evaluations": 10}],
            "run": {"status": "ok", "error": "", "trial": 0},
        }
    ]
)


def test_efficiency_holds_and_would_not_with_one_instance_below(random_agents, extreme_agents):
    assert verdict("efficiency", random_agents, extreme_agents, SEARCH) == "holds"
    spoiled = random_agents.copy()
    spoiled.loc[0, "value.efficiency"] = spoiled.loc[0, "value.bound"] - 1e-6
    assert verdict("efficiency", spoiled, extreme_agents, SEARCH) == "fails"
    assert verdict("efficiency", random_agents, extreme_agents, SEARCH.assign(**{"value.ratio": 0.88})) == "fails"


def test_revenue_holds_and_would_not_below_the_bound(random_agents, extreme_agents):
    assert verdict("revenue", random_agents, extreme_agents, SEARCH) == "holds"
    spoiled = random_agents.assign(**{"value.revenue_ratio": random_agents["value.revenue_bound"] - 1e-6})
    assert verdict("revenue", spoiled, extreme_agents, SEARCH) == "fails"


def test_liquid_and_certificate(random_agents):
    liquid = measured("private-budgets", lambda trial: trial["kind"] == "tight" or trial.seed == 0, instances=20)
    assert verdict("liquid", liquid) == "holds"
    assert verdict("certificate", random_agents, liquid) == "holds"
    spoiled = liquid.copy()
    spoiled.loc[5, "value.ratio"] = 0.49
    assert verdict("liquid", spoiled) == "fails"
    spoiled = random_agents.copy()
    spoiled.loc[3, "value.certificate"] = spoiled.loc[3, "value.efficiency"] + 1e-9
    assert verdict("certificate", spoiled, liquid) == "fails"


def test_interpolates():
    few = [Trial({"alpha": alpha, "profiles": 20}) for alpha in (1.0, 1e-3, 1e-6)]
    rows = pd.DataFrame([{f"value.{k}": v for k, v in claims._measure_interpolation(t).items()} for t in few])
    rows = rows.assign(**{"param.alpha": [1.0, 1e-3, 1e-6], "run.status": "ok", "run.error": "", "run.trial": range(3)})
    assert verdict("interpolates", rows) == "holds"
    for measured_value in ("kelly", "formula", "unit_price", "overpaid"):
        assert verdict("interpolates", rows.assign(**{f"value.{measured_value}": 1e-9})) == "fails"


def test_full_efficiency():
    rows = measured("convergence", lambda trial: trial["data"] != "log agents" and trial["alpha"] in (1.0, 0.25, 0.01))
    assert verdict("full-efficiency", rows) == "holds"
    at = (rows["param.data"] == "pollux") & (rows["param.alpha"] == 0.01)
    assert verdict("full-efficiency", rows.assign(**{"value.mean": rows["value.mean"].mask(at, 0.5)})) == "fails"


def test_public_budgets():
    rows = measured("public-budgets", lambda trial: trial.seed == 0 and trial["alpha"] == 1.0, count=3, hours=1)
    assert verdict("public-budgets", rows) == "holds"
    assert verdict("public-budgets", rows.assign(**{"value.spend": 1.001})) == "fails"
    assert verdict("public-budgets", rows.assign(**{"value.ratio": 0.4})) == "fails"


def test_simple_noise_and_cluster():
    assert verdict("simple", measured("rivals")) == "holds"
    noise = measured(
        "noise", lambda trial: trial["sigma"] in (0.03, 0.3) and trial["alpha"] in (0.01, 0.15, 1.0), sets=5
    )
    assert verdict("noise", noise) == "holds"
    assert verdict("noise", noise.assign(**{"value.efficiency": 1 - noise["param.alpha"] / 10})) == "fails"
    cluster = measured("cluster", hours=20)
    assert verdict("cluster", cluster) == "holds"
    upside_down = cluster.assign(**{"value.of_optimum": 1 - cluster["value.of_optimum"]})
    assert verdict("cluster", upside_down) == "fails"


@pytest.mark.data("allocation/philly.csv")
def test_contested_hours_of_the_trace():
    hours = claims._demand_hours(10_000)
    assert len(hours) == 499
    assert len(claims._demand_hours(25)) == 25
