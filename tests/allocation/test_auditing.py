from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from paperworks.allocation import AlphaProportional, Valuations, audit, efficiency_certificate, solve


def rounds(bids, alpha=None):
    """One table of rounds from a list of {agent: bid}."""
    rows = [(k, agent, bid) for k, each in enumerate(bids) for agent, bid in each.items()]
    return pd.DataFrame(rows, columns=["round", "agent", "bid"])


def test_equals_clearing_each_round():
    bids = [{"a": 4.0, "b": 2.0, "c": 1.0}, {"a": 1.0, "c": 3.0}]
    found = audit(rounds(bids), alpha=0.5, capacity=10)
    for number, each in enumerate(bids):
        clearing = AlphaProportional(0.5, capacity=10).clear(each)
        seen = found.agents[found.agents["round"] == number].set_index("agent")
        assert found.rounds["price"].iloc[number] == pytest.approx(clearing.price)
        assert found.rounds["efficiency_certificate"].iloc[number] == pytest.approx(
            efficiency_certificate(clearing.shares, 0.5)
        )
        assert seen.loc[list(each), "share"].to_numpy() == pytest.approx(clearing.shares)
        assert seen.loc[list(each), "payment"].to_numpy() == pytest.approx(clearing.payments)


def test_implied_marginal_values_are_the_true_ones_at_an_equilibrium():
    agents = Valuations.log([1.0, 2.0, 1.5], [0.1, 0.3, 0.2])
    found = solve(agents, 0.25, capacity=3.0)
    seen = audit(rounds([dict(zip("abc", found.bids, strict=True))]), alpha=0.25, capacity=3.0)
    assert seen.agents["marginal_value"].to_numpy() == pytest.approx(agents.marginal(found.amounts))


def test_shares_alone_are_enough():
    table = pd.DataFrame({"round": 0, "agent": list("abc"), "share": [0.5, 0.3, 0.2]})
    found = audit(table, alpha=1.0)
    assert found.rounds["efficiency_certificate"].iloc[0] == pytest.approx(0.839286, abs=1e-6)
    assert "marginal_value" not in found.agents


def test_a_mistaken_bid_stands_out():
    steady = [{"a": 1.0, "b": 1.0}] * 5
    found = audit(rounds([*steady, {"a": 1.0, "b": 100.0}, *steady]), alpha=0.5)
    jumps = found.agents[(found.agents["jump"] > 5) | (found.agents["jump"] < 0.2)]
    assert set(jumps["round"]) == {5, 6}
    assert found.summary["jumps"] == len(jumps)
    assert next(iter(found.summary["top_spenders"])) == "b"


def test_counts_rounds_below_the_threshold():
    found = audit(rounds([{"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 0.2}]), alpha=1.0, threshold=0.95)
    assert found.summary["share_below_threshold"] == 0.5


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("table", "says"),
    [
        (pd.DataFrame({"agent": ["a"], "bid": [1.0]}), "'round'"),
        (pd.DataFrame({"round": [0], "agent": ["a"]}), "'bid' or 'share'"),
        (pd.DataFrame({"round": [], "agent": [], "bid": []}), "empty"),
        (rounds([{"a": -1.0}]), "a in round 0"),
        (rounds([{"a": np.nan}]), "a in round 0"),
        (rounds([{"a": 1.0}, {"a": 0.0}]), "round 1"),
        (pd.concat([rounds([{"a": 1.0}])] * 2), "twice"),
        (pd.DataFrame({"round": 0, "agent": list("ab"), "share": [0.9, 0.9]}), "shares"),
    ],
)
def test_bad_rounds(table, says):
    with pytest.raises(ValueError, match=says):
        audit(table, alpha=0.5)


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"agent": ["a", None]}, "name the agent in every row, entry 1"),
        ({"round": [0, float("nan")]}, "name the round in every row, entry 1"),
        ({"price": [1.0, 2.0]}, "one price each, round 0"),
        ({"price": [-1.0, -1.0]}, "price must be non-negative"),
        ({"price": [1.0, float("nan")]}, "price must be non-negative"),
    ],
)
def test_nothing_is_dropped(change, match):
    rounds = {"round": [0, 0], "agent": ["a", "b"], "share": [0.5, 0.5], "price": [1.0, 1.0]}
    with pytest.raises(ValueError, match=match):
        audit(pd.DataFrame(rounds | change), alpha=0.5)


def test_a_share_that_rounds_to_one():
    seen = pd.DataFrame({"round": [0, 0], "agent": ["a", "b"], "bid": [90.0, 10.0]})
    assert audit(seen, alpha=0.05).rounds["efficiency_certificate"].tolist() == [1.0]
