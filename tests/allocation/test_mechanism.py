"""Clearing from bids: one price, the family's ends, caps, reserve, ties, extremes and what is refused."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.allocation.mechanism import AlphaProportional, GeneralProxy

ALPHAS = st.sampled_from([1.0, 0.5, 0.1, 1e-3, 1e-6])
BIDS = st.lists(st.floats(-6, 6).map(lambda u: 10.0**u), min_size=1, max_size=8).map(np.array)
INF = math.inf


class TestKnownAnswers:
    @pytest.mark.parametrize(("alpha", "price"), [(1.0, 7.0), (0.5, 4.582576), (0.25, 4.064814)])
    def test_price_of_421(self, alpha: float, price: float) -> None:
        assert AlphaProportional(alpha).clear([4.0, 2.0, 1.0]).price == pytest.approx(price, abs=6e-7)

    def test_half(self) -> None:
        out = AlphaProportional(0.5).clear([4.0, 2.0, 1.0])
        np.testing.assert_allclose(out.shares, np.array([16, 4, 1]) / 21, rtol=1e-14)
        np.testing.assert_allclose(out.payments, [3.491486, 0.872872, 0.218218], atol=6e-7)
        assert out.revenue == pytest.approx(math.sqrt(21), rel=1e-14)

    def test_kelly(self) -> None:
        bids = np.array([4.0, 2.0, 1.0])
        out = AlphaProportional(1.0).clear(bids)
        np.testing.assert_allclose(out.shares, bids / 7, rtol=1e-14)
        np.testing.assert_allclose(out.payments, bids, rtol=1e-14)

    @pytest.mark.parametrize(
        ("alpha", "shares", "price", "atol"),
        [
            (0.5, [0.356315, 0.388108, 0.255576], 1.978060, 6e-7),
            (1.0, [2 / 7, 5 / 14, 5 / 14], 2.8, 1e-12),
        ],
    )
    def test_harmonic_cap(self, alpha: float, shares: list[float], price: float, atol: float) -> None:
        out = AlphaProportional(alpha).clear([4.0, 2.0, 1.0], budgets=[1.0, 2.0, INF], cap="harmonic")
        np.testing.assert_allclose(out.shares, shares, atol=atol)
        assert out.price == pytest.approx(price, abs=atol)

    def test_units(self) -> None:
        out = AlphaProportional(0.5, capacity=42.0).clear([4.0, 2.0, 1.0])
        np.testing.assert_allclose(out.amounts, [32.0, 8.0, 2.0], rtol=1e-13)
        assert out.unit_price == pytest.approx(math.sqrt(21) / 42)
        np.testing.assert_allclose(out.payments, out.unit_price * out.amounts, rtol=1e-13)
        assert out.sold == pytest.approx(1.0)


class TestFirstPrice:
    def test_highest_bid_takes_all(self) -> None:
        out = AlphaProportional(0.0).clear([4.0, 2.0, 1.0])
        np.testing.assert_array_equal(out.shares, [1, 0, 0])
        assert out.price == 4.0
        np.testing.assert_array_equal(out.payments, [4, 0, 0])

    def test_ties_split_equally(self) -> None:
        out = AlphaProportional(0.0).clear([4.0, 1.0, 4.0])
        np.testing.assert_array_equal(out.shares, [0.5, 0, 0.5])
        assert out.price == 4.0

    def test_is_the_limit(self) -> None:
        out = AlphaProportional(1e-6).clear([4.0, 2.0, 4.0])
        np.testing.assert_allclose(out.shares, [0.5, 0, 0.5], atol=1e-12)
        assert out.price == pytest.approx(4.0, rel=1e-6)

    def test_below_reserve_nothing_is_sold(self) -> None:
        out = AlphaProportional(0.0, reserve=5.0).clear([4.0, 2.0])
        np.testing.assert_array_equal(out.shares, [0, 0])
        assert out.price == 5.0


class TestReserve:
    def test_binding(self) -> None:
        out = AlphaProportional(0.5, reserve=8.0).clear([4.0, 2.0, 1.0])
        assert out.price == 8.0
        np.testing.assert_allclose(out.shares, [1 / 4, 1 / 16, 1 / 64], rtol=1e-13)
        np.testing.assert_allclose(out.payments, [2.0, 0.5, 0.125], rtol=1e-13)
        assert out.revenue == pytest.approx(2.625)

    def test_not_binding(self) -> None:
        free, held = (AlphaProportional(0.5, reserve=r).clear([4.0, 2.0, 1.0]) for r in (0.0, 4.5))
        np.testing.assert_allclose(held.shares, free.shares, rtol=1e-14)
        assert held.price == free.price

    @pytest.mark.parametrize("bids", [[0.0, 0.0], [0.0]])
    @pytest.mark.parametrize("alpha", [1.0, 0.5, 0.0])
    def test_no_bids(self, bids: list[float], alpha: float) -> None:
        out = AlphaProportional(alpha, reserve=3.0).clear(bids)
        assert out.status == "no_bids"
        assert out.price == 3.0
        np.testing.assert_array_equal(out.shares, np.zeros(len(bids)))
        assert out.revenue == 0.0

    @settings(max_examples=40, deadline=None)
    @given(BIDS, ALPHAS, st.floats(0, 1e3))
    def test_price_at_least_reserve_and_shares_at_most_one(self, bids, alpha, reserve) -> None:  # type: ignore[no-untyped-def]
        out = AlphaProportional(alpha, reserve=reserve).clear(bids)
        assert out.price >= reserve
        assert out.shares.sum() <= 1 + 1e-12
        np.testing.assert_array_less(out.payments, bids * (1 + 1e-9))


class TestProperties:
    @settings(max_examples=60, deadline=None)
    @given(BIDS, ALPHAS)
    def test_one_price_within_the_family_bounds(self, bids, alpha) -> None:  # type: ignore[no-untyped-def]
        out = AlphaProportional(alpha).clear(bids)
        assert out.shares.sum() == pytest.approx(1.0, abs=1e-12)
        assert 1 - 1e-12 <= out.price / bids.max() <= len(bids) ** alpha * (1 + 1e-12)
        np.testing.assert_allclose(out.payments, out.price * out.shares, rtol=1e-12, atol=0)
        assert np.all(out.payments <= bids * (1 + 1e-9))
        assert out.revenue == pytest.approx(out.price, rel=1e-12)

    @settings(max_examples=30, deadline=None)
    @given(BIDS, ALPHAS, st.randoms(use_true_random=False))
    def test_permutation(self, bids, alpha, random) -> None:  # type: ignore[no-untyped-def]
        order = list(range(len(bids)))
        random.shuffle(order)
        mechanism = AlphaProportional(alpha)
        straight, mixed = mechanism.clear(bids), mechanism.clear(bids[order])
        np.testing.assert_allclose(mixed.shares, straight.shares[order], rtol=1e-12)
        assert mixed.price == pytest.approx(straight.price, rel=1e-13)

    @settings(max_examples=30, deadline=None)
    @given(BIDS, ALPHAS, st.floats(1e-3, 1e3))
    def test_currency(self, bids, alpha, factor) -> None:  # type: ignore[no-untyped-def]
        mechanism = AlphaProportional(alpha)
        one, other = mechanism.clear(bids), mechanism.clear(bids * factor)
        # a rounding of log(bid) is magnified 1/alpha times
        np.testing.assert_allclose(other.shares, one.shares, rtol=1e-13 / alpha + 1e-12, atol=1e-300)
        assert other.price == pytest.approx(one.price * factor, rel=1e-12)

    @settings(max_examples=30, deadline=None)
    @given(BIDS, st.floats(1e-6, 1e6), ALPHAS)
    def test_another_bid_never_lowers_the_price(self, bids, bid, alpha) -> None:  # type: ignore[no-untyped-def]
        mechanism = AlphaProportional(alpha)
        assert mechanism.clear(np.append(bids, bid)).price >= mechanism.clear(bids).price * (1 - 1e-13)

    @settings(max_examples=40, deadline=None)
    @given(BIDS, st.sampled_from([1.0, 0.5, 0.1]))
    def test_bids_for_inverts_clear(self, bids, alpha) -> None:  # type: ignore[no-untyped-def]
        mechanism = AlphaProportional(alpha)
        out = mechanism.clear(bids)
        again = mechanism.clear(mechanism.bids_for(out.shares, out.price))
        np.testing.assert_allclose(again.shares, out.shares, atol=1e-12)
        assert again.price == pytest.approx(out.price, rel=1e-10)


class TestCaps:
    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.tuples(st.floats(-6, 6), st.floats(-4, 4)), min_size=1, max_size=7),
        st.sampled_from([1.0, 0.5, 0.1, 0.01]),
    )
    def test_harmonic_solves_its_equation_within_budgets(self, logs, alpha) -> None:  # type: ignore[no-untyped-def]
        bids, budgets = 10.0 ** np.array(logs).T
        out = AlphaProportional(alpha).clear(bids, budgets=budgets, cap="harmonic")
        assert np.all(out.payments <= budgets * (1 + 1e-9))
        assert out.shares.sum() == pytest.approx(1.0, abs=1e-9)
        sold = out.shares > 1e-200
        x = out.shares[sold]
        np.testing.assert_allclose(out.price * (x**alpha / bids[sold] + x / budgets[sold]), 1.0, rtol=1e-7)

    def test_all_in_spends_exactly_the_budget(self) -> None:
        out = AlphaProportional(0.25).clear([INF, 2.0, 1.0], budgets=[0.5, 9.0, INF], cap="harmonic")
        assert out.payments[0] == pytest.approx(0.5, rel=1e-10)
        assert out.shares.sum() == pytest.approx(1.0, abs=1e-10)

    def test_everybody_all_in_splits_by_budget(self) -> None:
        out = AlphaProportional(0.25).clear([INF, INF, INF], budgets=[1.0, 2.0, 5.0], cap="harmonic")
        np.testing.assert_allclose(out.shares, np.array([1, 2, 5]) / 8, rtol=1e-10)
        assert out.price == pytest.approx(8.0, rel=1e-10)

    @pytest.mark.parametrize("cap", ["harmonic", "hard"])
    def test_without_budgets_it_is_the_plain_mechanism(self, cap: str) -> None:
        plain = AlphaProportional(0.5).clear([4.0, 2.0, 1.0])
        out = AlphaProportional(0.5).clear([4.0, 2.0, 1.0], budgets=[INF, INF, INF], cap=cap)
        np.testing.assert_allclose(out.shares, plain.shares, rtol=1e-10)
        assert out.price == pytest.approx(plain.price, rel=1e-10)

    def test_kelly_harmonic_is_kelly_with_capped_bids(self) -> None:
        bids, budgets = np.array([4.0, 2.0, 0.5]), np.array([1.0, 7.0, 3.0])
        out = AlphaProportional(1.0).clear(bids, budgets=budgets, cap="harmonic")
        effective = bids * budgets / (bids + budgets)
        np.testing.assert_allclose(out.shares, effective / effective.sum(), rtol=1e-10)
        assert out.price == pytest.approx(effective.sum(), rel=1e-10)

    def test_hard_cap(self) -> None:
        bids, budgets = np.array([4.0, 2.0, 1.0]), np.array([0.5, 9.0, INF])
        out = AlphaProportional(0.5).clear(bids, budgets=budgets, cap="hard")
        expected = np.minimum((bids / out.price) ** 2, budgets / out.price)
        np.testing.assert_allclose(out.shares, expected, rtol=1e-9)
        assert out.shares.sum() == pytest.approx(1.0, abs=1e-10)
        assert out.payments[0] == pytest.approx(0.5, rel=1e-9)

    def test_zero_bid_or_zero_budget_gets_nothing(self) -> None:
        out = AlphaProportional(0.5).clear([0.0, 2.0, 1.0], budgets=[1.0, 0.0, 3.0], cap="harmonic")
        np.testing.assert_allclose(out.shares, [0, 0, 1], atol=1e-12)

    def test_harmonic_bids_for(self) -> None:
        mechanism = AlphaProportional(0.5)
        budgets = np.array([1.0, 2.0, INF])
        out = mechanism.clear([4.0, 2.0, 1.0], budgets=budgets, cap="harmonic")
        np.testing.assert_allclose(
            mechanism.bids_for(out.shares, out.price, budgets=budgets), [4.0, 2.0, 1.0], rtol=1e-8
        )

    def test_harmonic_with_reserve(self) -> None:
        out = AlphaProportional(0.5, reserve=10.0).clear([4.0, 2.0], budgets=[1.0, 3.0], cap="harmonic")
        assert out.price == 10.0
        x = out.shares
        np.testing.assert_allclose(10.0 * (np.sqrt(x) / [4.0, 2.0] + x / [1.0, 3.0]), 1.0, rtol=1e-9)


class TestExtremes:
    @pytest.mark.parametrize("alpha", [1.0, 0.5, 1e-3, 1e-6, 0.0])
    def test_six_hundred_decades(self, alpha: float) -> None:
        bids = np.array([1e-300, 1e-10, 1.0, 1e200, 1e300])
        out = AlphaProportional(alpha).clear(bids)
        assert np.all(np.isfinite(out.shares))
        assert out.shares.sum() == pytest.approx(1.0)
        assert 1e300 * (1 - 1e-9) <= out.price <= 5e300

    @pytest.mark.parametrize("alpha", [1e-3, 1e-6])
    def test_equal_tiny_bids(self, alpha: float) -> None:
        out = AlphaProportional(alpha).clear(np.full(4, 1e-300))
        np.testing.assert_allclose(out.shares, 0.25)
        assert out.price == pytest.approx(1e-300 * 4**alpha)

    def test_one_bid(self) -> None:
        out = AlphaProportional(0.5).clear([3.0])
        np.testing.assert_array_equal(out.shares, [1.0])
        assert out.price == pytest.approx(3.0)

    def test_hundred_thousand_bids(self) -> None:
        bids = np.random.default_rng(0).lognormal(size=100_000)
        out = AlphaProportional(0.25).clear(bids)
        np.testing.assert_allclose(out.shares, bids**4 / np.sum(bids**4), rtol=1e-9)

    def test_harmonic_over_many_decades(self) -> None:
        rng = np.random.default_rng(1)
        bids, budgets = 10.0 ** rng.uniform(-100, 100, 50), 10.0 ** rng.uniform(-50, 50, 50)
        out = AlphaProportional(0.01).clear(bids, budgets=budgets, cap="harmonic")
        assert np.all(np.isfinite(out.shares))
        assert np.all(out.payments <= budgets * (1 + 1e-9))
        assert out.shares.sum() == pytest.approx(1.0, abs=1e-8)


class TestInterface:
    def test_names_travel(self) -> None:
        bids = {"nlp": 90.0, "vision": 60.0, "speech": 20.0}
        mechanism = AlphaProportional(0.25, capacity=414.0)
        from_map, from_series = mechanism.clear(bids), mechanism.clear(pd.Series(bids))
        assert list(from_map.names) == list(from_series.names) == ["nlp", "vision", "speech"]
        np.testing.assert_array_equal(from_map.shares, from_series.shares)
        np.testing.assert_array_equal(from_map.shares, mechanism.clear([90.0, 60.0, 20.0]).shares)

    def test_table(self) -> None:
        out = AlphaProportional(0.5, capacity=21.0).clear({"x": 4.0, "y": 2.0, "z": 1.0})
        table = out.table()
        assert isinstance(table, pd.DataFrame)
        assert {"agent", "share", "amount", "payment"} <= set(table.columns)
        assert list(table["agent"]) == ["x", "y", "z"]
        np.testing.assert_allclose(table["amount"], [16, 4, 1])

    def test_json_round_trip(self) -> None:
        out = AlphaProportional(0.5, capacity=21.0).clear({"x": 4.0, "y": 2.0, "z": 1.0})
        back = json.loads(out.to_json())
        np.testing.assert_array_equal(back["shares"], out.shares)
        assert back["price"] == out.price
        assert list(back["names"]) == ["x", "y", "z"]

    def test_pickle_round_trip(self) -> None:
        out = AlphaProportional(0.5).clear([4.0, 2.0, 1.0])
        back = pickle.loads(pickle.dumps(out))
        np.testing.assert_array_equal(back.shares, out.shares)
        assert back.price == out.price

    def test_integer_amounts(self) -> None:
        out = AlphaProportional(1.0, capacity=10.5).clear([1.0, 1.0, 1.0])
        whole = np.asarray(out.integer_amounts())
        assert whole.sum() == 10
        assert sorted(whole) == [3, 3, 4]

    @settings(max_examples=30, deadline=None)
    @given(BIDS, st.floats(0.5, 500))
    def test_integer_amounts_stay_within_one(self, bids, capacity) -> None:  # type: ignore[no-untyped-def]
        out = AlphaProportional(0.5, capacity=capacity).clear(bids)
        whole = np.asarray(out.integer_amounts())
        assert whole.sum() <= math.floor(capacity)
        assert np.all(np.abs(whole - out.amounts) < 1 + 1e-9)


class TestQuote:
    def test_price_curve_is_what_clearing_gives(self) -> None:
        mechanism = AlphaProportional(0.5)
        bids, grid = np.array([4.0, 2.0, 1.0]), np.array([0.5, 2.0, 8.0])
        quote = mechanism.quote(bids, 1, grid)
        for k, bid in enumerate(grid):
            out = mechanism.clear([4.0, bid, 1.0])
            assert quote["share"][k] == pytest.approx(out.shares[1])
            assert quote["price"][k] == pytest.approx(out.price)
            assert quote["payment"][k] == pytest.approx(out.payments[1])

    @pytest.mark.parametrize("alpha", [1.0, 0.5, 0.2])
    def test_marginal_price_is_what_a_little_more_costs(self, alpha: float) -> None:
        grid = np.array([1.0, 1 + 1e-6, 3.0, 3 * (1 + 1e-6)])
        quote = AlphaProportional(alpha).quote([4.0, 2.0, 1.0], 1, grid)
        steps = quote[["share", "payment"]].diff()
        slopes = (steps["payment"] / steps["share"]).to_numpy()[[1, 3]]
        np.testing.assert_allclose(quote["marginal_price"].to_numpy()[[0, 2]], slopes, rtol=1e-4)


class TestGeneralProxy:
    def test_power_proxy_is_the_family(self) -> None:
        alpha = 0.5
        out = GeneralProxy(lambda x, theta: theta * x**-alpha).clear([4.0, 2.0, 1.0])
        np.testing.assert_allclose(out.shares, np.array([16, 4, 1]) / 21, rtol=1e-8)
        assert out.price == pytest.approx(math.sqrt(21), rel=1e-8)

    def test_with_inverse(self) -> None:
        proxy = GeneralProxy(lambda x, theta: theta / x, inverse=lambda price, theta: theta / price)
        out = proxy.clear([4.0, 2.0, 1.0])
        np.testing.assert_allclose(out.shares, np.array([4, 2, 1]) / 7, rtol=1e-9)
        assert out.price == pytest.approx(7.0, rel=1e-9)

    def test_another_proxy(self) -> None:
        out = GeneralProxy(lambda x, theta: theta / (x + 0.5) ** 2).clear([4.0, 1.0])
        marginals = np.array([4.0, 1.0]) / (np.asarray(out.shares) + 0.5) ** 2
        assert out.shares.sum() == pytest.approx(1.0, abs=1e-9)
        np.testing.assert_allclose(marginals, out.price, rtol=1e-7)


@pytest.mark.untyped
class TestRefused:
    @pytest.mark.parametrize("alpha", [-0.1, 1.1, math.nan, True])
    def test_alpha(self, alpha: object) -> None:
        with pytest.raises(ValueError, match=r"alpha must be in \[0, 1\]"):
            AlphaProportional(alpha)  # type: ignore[arg-type]

    @pytest.mark.parametrize("capacity", [0.0, -1.0, math.nan])
    def test_capacity(self, capacity: float) -> None:
        with pytest.raises(ValueError, match="capacity must be positive"):
            AlphaProportional(0.5, capacity=capacity)

    def test_reserve(self) -> None:
        with pytest.raises(ValueError, match="reserve must be non-negative"):
            AlphaProportional(0.5, reserve=-1.0)

    @pytest.mark.parametrize("bid", [-1.0, math.nan, INF])
    def test_bid_names_agent_and_value(self, bid: float) -> None:
        with pytest.raises(ValueError, match=rf"(?s){bid}.*'vision'|'vision'.*{bid}"):
            AlphaProportional(0.5).clear({"nlp": 1.0, "vision": bid})

    def test_infinite_bid_needs_a_finite_budget(self) -> None:
        with pytest.raises(ValueError, match="budget"):
            AlphaProportional(0.5).clear({"x": INF, "y": 1.0}, budgets=[INF, 1.0], cap="harmonic")

    @pytest.mark.parametrize("bids", [["a", "b"], np.array([1.0, None], dtype=object)])
    def test_not_numeric(self, bids: object) -> None:
        with pytest.raises(TypeError, match="bids"):
            AlphaProportional(0.5).clear(bids)  # type: ignore[arg-type]

    def test_two_dimensional(self) -> None:
        with pytest.raises(ValueError, match="bids"):
            AlphaProportional(0.5).clear(np.ones((2, 2)))

    @pytest.mark.parametrize("bids", [[], {}])
    def test_empty(self, bids: object) -> None:
        with pytest.raises(ValueError, match="empty"):
            AlphaProportional(0.5).clear(bids)  # type: ignore[arg-type]

    def test_duplicate_names(self) -> None:
        with pytest.raises(ValueError, match="'x'"):
            AlphaProportional(0.5).clear(pd.Series([1.0, 2.0], index=["x", "x"]))

    def test_budget_length(self) -> None:
        with pytest.raises(ValueError, match="budgets"):
            AlphaProportional(0.5).clear([1.0, 2.0], budgets=[1.0], cap="harmonic")

    def test_negative_budget(self) -> None:
        with pytest.raises(ValueError, match=r"budgets.* must be non-negative"):
            AlphaProportional(0.5).clear([1.0, 2.0], budgets=[1.0, -1.0], cap="harmonic")

    def test_unknown_cap(self) -> None:
        with pytest.raises(ValueError, match="cap must be one of"):
            AlphaProportional(0.5).clear([1.0, 2.0], budgets=[1.0, 1.0], cap="soft")  # type: ignore[arg-type]


def test_whole_units_need_a_capacity_that_counts_them() -> None:
    with pytest.raises(ValueError, match="capacity must be below 2\\^53"):
        AlphaProportional(0.5, capacity=1e300).clear([1.0, 2.0]).integer_amounts()
