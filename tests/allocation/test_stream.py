"""Repeated rounds: balances, refills, spending limits, state, replay and simulated agents."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.allocation.equilibrium import solve
from paperworks.allocation.mechanism import AlphaProportional
from paperworks.allocation.stream import BestResponder, PacedBidder, PriceTaker, StreamingAuctioneer, simulate
from paperworks.allocation.valuations import Valuations

BIDS = {"a": 4.0, "b": 2.0, "c": 1.0}


class TestStep:
    def test_first_round_is_a_clearing_with_the_refill_as_budget(self) -> None:
        out = StreamingAuctioneer(0.5, capacity=10.0, refill=3.0).step(BIDS)
        expected = AlphaProportional(0.5, capacity=10.0).clear(BIDS, budgets=[3.0, 3.0, 3.0], cap="harmonic")
        np.testing.assert_allclose(out.shares, expected.shares, rtol=1e-12)
        assert out.price == pytest.approx(expected.price, rel=1e-12)

    def test_balance_is_refilled_and_charged(self) -> None:
        auctioneer = StreamingAuctioneer(0.5, capacity=10.0, refill=3.0)
        first = auctioneer.step(BIDS)
        left = 3.0 - first.payments
        second = auctioneer.step(BIDS)
        expected = AlphaProportional(0.5, capacity=10.0).clear(BIDS, budgets=left + 3.0, cap="harmonic")
        np.testing.assert_allclose(second.payments, expected.payments, rtol=1e-10)

    def test_nothing_carried_over(self) -> None:
        auctioneer = StreamingAuctioneer(0.5, capacity=10.0, refill=3.0, carry_over=0.0)
        first, second = auctioneer.step(BIDS), auctioneer.step(BIDS)
        np.testing.assert_allclose(second.payments, first.payments, rtol=1e-12)

    def test_spending_limit(self) -> None:
        auctioneer = StreamingAuctioneer(0.5, capacity=10.0, refill=100.0, max_spend=0.5)
        for _ in range(4):
            assert np.all(auctioneer.step(BIDS).payments <= 0.5 * (1 + 1e-9))

    def test_capacity_of_one_round(self) -> None:
        auctioneer = StreamingAuctioneer(0.5, capacity=10.0, refill=100.0)
        assert auctioneer.step(BIDS, capacity=4.0).amounts.sum() == pytest.approx(4.0)
        assert auctioneer.step(BIDS).amounts.sum() == pytest.approx(10.0)

    def test_newcomers_join_with_the_refill(self) -> None:
        auctioneer = StreamingAuctioneer(0.5, capacity=1.0, refill=2.0)
        auctioneer.step({"a": 1.0, "b": 1.0})
        out = auctioneer.step({"a": 1.0, "b": 1.0, "new": math.inf})
        assert dict(zip(out.names, out.payments, strict=True))["new"] == pytest.approx(2.0, rel=1e-9)

    def test_reserve(self) -> None:
        auctioneer = StreamingAuctioneer(0.5, capacity=1.0, reserve=50.0, refill=100.0)
        assert auctioneer.step(BIDS).price == 50.0

    @settings(max_examples=20, deadline=None)
    @given(
        st.lists(st.dictionaries(st.sampled_from("abcd"), st.floats(0.01, 50), min_size=1), min_size=1, max_size=8),
        st.sampled_from([1.0, 0.5, 0.1]),
        st.floats(0.1, 10),
    )
    def test_nobody_spends_more_than_was_given(self, rounds, alpha, refill) -> None:  # type: ignore[no-untyped-def]
        auctioneer = StreamingAuctioneer(alpha, capacity=5.0, refill=refill)
        spent: dict[str, float] = {}
        for k, bids in enumerate(rounds, start=1):
            out = auctioneer.step(bids)
            for name, payment in zip(out.names, out.payments, strict=True):
                spent[name] = spent.get(name, 0.0) + payment
                assert spent[name] <= k * refill * (1 + 1e-9)


class TestState:
    def test_ledger(self) -> None:
        auctioneer = StreamingAuctioneer(0.5, capacity=10.0, refill=3.0)
        outs = [auctioneer.step(BIDS) for _ in range(3)]
        ledger = auctioneer.ledger()
        assert isinstance(ledger, pd.DataFrame)
        assert len(ledger) == 9
        assert {"round", "agent", "payment", "balance"} <= set(ledger.columns)
        assert ledger["payment"].sum() == pytest.approx(sum(out.revenue for out in outs))
        last = ledger[ledger["round"] == ledger["round"].max()].set_index("agent")["balance"]
        paid = ledger.groupby("agent")["payment"].sum()
        np.testing.assert_allclose(last[["a", "b", "c"]], 9.0 - paid[["a", "b", "c"]], rtol=1e-9)

    def test_state_survives_json(self) -> None:
        one = StreamingAuctioneer(0.5, capacity=10.0, refill=3.0, carry_over=0.9)
        one.step(BIDS)
        state = json.loads(json.dumps(one.state_dict()))
        other = StreamingAuctioneer(0.5, capacity=10.0, refill=3.0, carry_over=0.9)
        other.load_state_dict(state)
        a, b = one.step({"b": 1.0, "d": 7.0}), other.step({"b": 1.0, "d": 7.0})
        np.testing.assert_array_equal(a.shares, b.shares)
        np.testing.assert_array_equal(a.payments, b.payments)
        assert one.state_dict() == other.state_dict()

    def test_replay(self) -> None:
        rows = [{"round": k, "agent": name, "bid": bid * (1 + 0.1 * k)} for k in range(3) for name, bid in BIDS.items()]
        by_hand = StreamingAuctioneer(0.5, capacity=10.0, refill=3.0)
        outs = [by_hand.step({name: bid * (1 + 0.1 * k) for name, bid in BIDS.items()}) for k in range(3)]
        replayed = StreamingAuctioneer(0.5, capacity=10.0, refill=3.0)
        replayed.replay(pd.DataFrame(rows))
        assert replayed.ledger()["payment"].sum() == pytest.approx(sum(out.revenue for out in outs))


class TestAgents:
    def test_price_takers_bid_their_marginal_value(self) -> None:
        v = Valuations.log([2.0], [0.25])
        bid = PriceTaker(v, alpha=0.5).bid(share=0.25, price=1.0)
        assert bid == pytest.approx(v.marginal(np.array([0.25]))[0] * 0.5, rel=1e-9)

    def test_best_responders_settle_in_the_equilibrium(self) -> None:
        a, b, alpha = np.array([1.0, 2.0, 1.5]), np.array([0.1, 1 / 3, 1.0]), 0.5
        v = Valuations.log(a, b)
        bidders = {str(i): BestResponder(v.subset(np.arange(3) == i), alpha=alpha) for i in range(3)}
        ledger = simulate(StreamingAuctioneer(alpha), bidders, rounds=30)
        last = ledger[ledger["round"] == 29]
        np.testing.assert_allclose(last["share"], solve(v, alpha).shares, atol=1e-5)

    def test_paced_bidder_finds_its_spending(self) -> None:
        bidder, mechanism, bid = PacedBidder(target_spend=0.3, eta=0.3), AlphaProportional(0.5), 1.0
        for _ in range(300):
            out = mechanism.clear([bid, 2.0, 1.0])
            bid = bidder.bid(share=float(out.shares[0]), price=out.price)
        assert mechanism.clear([bid, 2.0, 1.0]).payments[0] == pytest.approx(0.3, rel=1e-2)


@pytest.mark.untyped
class TestRefused:
    @pytest.mark.parametrize(
        ("argument", "value", "says"),
        [
            ("alpha", 1.5, r"alpha must be in \[0, 1\]"),
            ("capacity", 0.0, "capacity must be positive"),
            ("reserve", -1.0, "reserve must be non-negative"),
            ("refill", -1.0, "refill must be non-negative"),
            ("carry_over", 1.5, "carry_over"),
            ("max_spend", -1.0, "max_spend"),
            ("cap", "soft", "cap must be one of"),
        ],
    )
    def test_arguments(self, argument: str, value: object, says: str) -> None:
        with pytest.raises(ValueError, match=says):
            StreamingAuctioneer(**{"alpha": 0.5, "capacity": 1.0, argument: value})  # type: ignore[arg-type]

    def test_bad_bid_leaves_the_state_alone(self) -> None:
        auctioneer = StreamingAuctioneer(0.5, capacity=1.0, refill=3.0)
        auctioneer.step(BIDS)
        before = json.dumps(auctioneer.state_dict())
        with pytest.raises(ValueError, match="'b'"):
            auctioneer.step({"a": 1.0, "b": -1.0, "z": 2.0})
        assert json.dumps(auctioneer.state_dict()) == before

    def test_state_of_another_kind(self) -> None:
        with pytest.raises((ValueError, TypeError), match="state"):
            StreamingAuctioneer(0.5, capacity=1.0).load_state_dict({"nonsense": 1})

    def test_replay_without_a_column(self) -> None:
        with pytest.raises(ValueError, match="bid"):
            StreamingAuctioneer(0.5, capacity=1.0).replay(pd.DataFrame({"round": [0], "agent": ["a"]}))


@pytest.mark.untyped
def test_state_with_balances_that_are_no_mapping() -> None:
    with pytest.raises(ValueError, match="balances must map agents to tokens"):
        StreamingAuctioneer(0.5).load_state_dict({"balances": [1], "rounds": 1})
