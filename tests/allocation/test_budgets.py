"""Equilibria with budgets: private (payment at most the budget) and public (harmonic cap), and the liquid welfare."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paperworks.allocation.equilibrium import solve
from paperworks.allocation.guarantees import efficiency_bound, liquid_certificate
from paperworks.allocation.mechanism import AlphaProportional
from paperworks.allocation.optima import liquid_optimum
from paperworks.allocation.valuations import Valuations

INF = math.inf
ALPHAS = st.sampled_from([1.0, 0.5, 0.1])
LOGS = Valuations.log([1.0, 2.0, 1.5, 0.7], [0.1, 1 / 3, 1.0, 0.05])


@st.composite
def budgeted(draw: st.DrawFn) -> tuple[Callable[[], Valuations], NDArray[np.float64]]:
    """Random agents, linear or logarithmic, with budgets from binding hard to not at all."""
    rows = draw(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.02, 5), st.floats(-2, 1)), min_size=2, max_size=5))
    a, b, power = np.array(rows).T
    make = partial(Valuations.linear, a) if draw(st.booleans()) else partial(Valuations.log, a, b)
    return make, 10.0**power


def liquid_welfare(v: Valuations, amounts: NDArray[np.float64], budgets: NDArray[np.float64]) -> float:
    return float(np.minimum(v.value(amounts), budgets).sum())


def harmonic(
    bids: NDArray[np.float64], budgets: NDArray[np.float64], alpha: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Harmonic clearing of many rounds [rounds, n] from its definition, by nested bisection."""

    def demand(price: NDArray[np.float64]) -> NDArray[np.float64]:
        low, high = np.full(bids.shape, -60.0), np.full(bids.shape, 5.0)
        for _ in range(55):
            u = (low + high) / 2
            over = price[:, None] * (np.exp(alpha * u) / bids + np.exp(u) / budgets) > 1
            low, high = np.where(over, low, u), np.where(over, u, high)
        return np.exp(low)

    low, high = np.full(len(bids), -20.0), np.full(len(bids), 10.0)
    for _ in range(55):
        middle = (low + high) / 2
        over = demand(np.exp(middle)).sum(axis=1) > 1
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    return demand(np.exp(low)), np.exp(low)


class TestPrivateKnownAnswers:
    @pytest.mark.parametrize(
        ("alpha", "shares", "price"),
        [(1.0, [0.5, 0.5, 0.0], 1.0), (0.5, [0.421535, 0.578465, 0.0], 1.186141)],
    )
    def test_linear_321(self, alpha: float, shares: list[float], price: float) -> None:
        eq = solve(Valuations.linear([3.0, 2.0, 1.0]), alpha, budgets=[0.5, INF, INF])
        np.testing.assert_allclose(eq.shares, shares, atol=6e-7)
        assert eq.price == pytest.approx(price, abs=6e-7)
        assert eq.payments[0] == pytest.approx(0.5, rel=1e-9)
        np.testing.assert_array_equal(eq.capped, [True, False, False])

    def test_budgets_of_the_agents_are_used(self) -> None:
        v = Valuations.linear([3.0, 2.0, 1.0], budgets=[0.5, INF, INF])
        np.testing.assert_allclose(solve(v, 1.0).shares, [0.5, 0.5, 0.0], atol=1e-9)

    def test_the_argument_overrides_the_agents(self) -> None:
        v = Valuations.linear([3.0, 2.0, 1.0], budgets=[0.1, INF, INF])
        np.testing.assert_allclose(solve(v, 1.0, budgets=[0.5, INF, INF]).shares, [0.5, 0.5, 0.0], atol=1e-9)

    @pytest.mark.parametrize("alpha", [1.0, 0.5, 0.1])
    def test_ample_budgets_change_nothing(self, alpha: float) -> None:
        free, held = solve(LOGS, alpha), solve(LOGS, alpha, budgets=np.full(4, 1e6))
        np.testing.assert_allclose(held.shares, free.shares, atol=1e-10)
        assert not np.any(held.capped)

    def test_everybody_capped_splits_by_budget(self) -> None:
        eq = solve(Valuations.linear([30.0, 20.0]), 0.5, budgets=[0.1, 0.3])
        np.testing.assert_allclose(eq.shares, [0.25, 0.75], atol=1e-9)
        assert eq.price == pytest.approx(0.4, rel=1e-9)
        assert np.all(eq.capped)

    def test_zero_budget_gets_nothing(self) -> None:
        eq = solve(Valuations.linear([5.0, 1.0, 0.5]), 1.0, budgets=[0.0, INF, INF])
        np.testing.assert_allclose(eq.shares, [0, 2 / 3, 1 / 3], atol=1e-10)

    @pytest.mark.parametrize(("alpha", "ratio"), [(1.0, 1.999999), (0.5, 1.9995), (0.1, 1.9991)])
    def test_two_is_nearly_lost(self, alpha: float, ratio: float) -> None:
        x = 1e-3
        price = 1 / (1 + alpha * x / (1 - x))
        v, budgets = Valuations.linear([1.0, 1e7]), np.array([INF, price * (1 - x)])
        eq = solve(v, alpha, budgets=budgets)
        assert eq.shares[0] == pytest.approx(x, rel=1e-6)
        best = liquid_optimum(v, budgets=budgets).welfare
        assert best / liquid_welfare(v, eq.amounts, budgets) == pytest.approx(ratio, abs=6e-5)
        assert best / liquid_welfare(v, eq.amounts, budgets) <= 2


class TestPrivateProperties:
    @settings(max_examples=40, deadline=None)
    @given(budgeted(), ALPHAS)
    def test_feasible_and_half_of_the_liquid_optimum(self, instance, alpha) -> None:  # type: ignore[no-untyped-def]
        v, budgets = instance[0](), instance[1]
        eq = solve(v, alpha, budgets=budgets)
        assert np.all(eq.payments <= budgets * (1 + 1e-9))
        assert eq.shares.sum() == pytest.approx(1.0, abs=1e-9)
        achieved = liquid_welfare(v, eq.amounts, budgets)
        best = liquid_optimum(v, budgets=budgets).welfare
        assert achieved <= best * (1 + 1e-8)
        assert achieved >= best / 2 * (1 - 1e-9)
        certified = liquid_certificate(eq.shares, alpha, eq.capped)
        assert 0.5 - 1e-12 <= certified <= achieved / best + 1e-8
        assert np.max(eq.regret) <= 1e-7 * eq.price

    @settings(max_examples=25, deadline=None)
    @given(budgeted(), ALPHAS)
    def test_conditions(self, instance, alpha) -> None:  # type: ignore[no-untyped-def]
        v, budgets = instance[0](), instance[1]
        eq = solve(v, alpha, budgets=budgets)
        marginal = v.marginal(eq.amounts)
        target = eq.price * (1 + alpha * eq.shares / (1 - eq.shares))
        inner = (eq.shares > 1e-9) & ~eq.capped
        np.testing.assert_allclose(marginal[inner], target[inner], rtol=1e-6)
        assert np.all(marginal[eq.capped] >= target[eq.capped] * (1 - 1e-6))
        np.testing.assert_allclose(eq.payments[eq.capped], budgets[eq.capped], rtol=1e-7)

    @settings(max_examples=20, deadline=None)
    @given(budgeted(), ALPHAS)
    def test_budgets_only_lower_the_price(self, instance, alpha) -> None:  # type: ignore[no-untyped-def]
        v, budgets = instance[0](), instance[1]
        assert solve(v, alpha, budgets=budgets).price <= solve(v, alpha).price * (1 + 1e-9)

    def test_no_affordable_bid_is_better(self) -> None:
        alpha, budgets = 0.5, np.array([0.3, 0.2, INF, 0.1])
        eq = solve(LOGS, alpha, budgets=budgets)
        assert 0 < eq.capped.sum() < 4
        for i in range(4):
            others = np.delete(eq.bids, i)
            bids = np.concatenate([[0], np.geomspace(1e-3, 1e3, 4001) * eq.bids[i]])
            y, rest = bids ** (1 / alpha), np.sum(others ** (1 / alpha))
            share, price = y / (y + rest), (y + rest) ** alpha
            allowed = price * share <= budgets[i]
            amounts = np.zeros((len(bids), 4))
            amounts[:, i] = share
            utility = np.array([LOGS.value(row)[i] for row in amounts]) - price * share
            now = LOGS.value(eq.amounts)[i] - eq.payments[i]
            assert np.max(utility[allowed]) <= now + 1e-8


class TestPublic:
    @settings(max_examples=9, deadline=None)
    @given(budgeted(), ALPHAS)
    def test_feasible_stable_and_half_of_the_liquid_optimum(self, instance, alpha) -> None:  # type: ignore[no-untyped-def]
        v, budgets = instance[0](), instance[1]
        eq = solve(v, alpha, budgets=budgets, budget_mode="public")
        s = eq.shares
        assert np.all(eq.payments <= budgets * (1 + 1e-9))
        assert s.sum() == pytest.approx(1.0, abs=1e-8)
        assert np.max(eq.regret) <= 1e-7 * eq.price
        achieved = liquid_welfare(v, eq.amounts, budgets)
        assert achieved >= liquid_optimum(v, budgets=budgets).welfare / 2 * (1 - 1e-8)
        fraction = eq.price * s / budgets
        weight = s / (alpha + (1 - alpha) * fraction)
        target = eq.price * (1 + s / (weight.sum() - weight))
        marginal = v.marginal(eq.amounts)
        inner = (s > 1e-8) & (fraction < 1 - 1e-7)
        np.testing.assert_allclose(marginal[inner], target[inner], rtol=1e-5)
        full = fraction >= 1 - 1e-9
        assert np.all(marginal[full] >= target[full] * (1 - 1e-5))

    @pytest.mark.parametrize("alpha", [1.0, 0.5, 0.25])
    def test_no_bid_is_better_for_an_agent_who_ignores_budgets(self, alpha: float) -> None:
        budgets = np.array([0.6, 0.8, 5.0, 0.5])
        eq = solve(LOGS, alpha, budgets=budgets, budget_mode="public")
        bids = np.clip(eq.bids, 1e-12, 1e9)
        factors = np.array([1e-3, 0.1, 0.5, 0.9, 0.99, 1.01, 1.1, 2.0, 10.0, 1e4])
        rounds = np.tile(bids, (1 + 4 * len(factors), 1))
        who = np.repeat(np.arange(4), len(factors))
        own = np.where(eq.shares > 0, bids, eq.price)
        rounds[1 + np.arange(len(who)), who] = own[who] * np.tile(factors, 4)
        shares, price = harmonic(rounds, budgets, alpha)
        np.testing.assert_allclose(shares[0], eq.shares, atol=1e-6)
        assert price[0] == pytest.approx(eq.price, rel=1e-6)
        utility = LOGS.value(shares) - price[:, None] * shares
        now = LOGS.value(eq.amounts) - eq.payments
        assert np.all(utility[1 + np.arange(len(who)), who] <= now[who] + 1e-7)

    def test_clearing_the_bids_gives_the_shares(self) -> None:
        budgets = np.array([0.6, 0.8, 5.0, 0.5])
        eq = solve(LOGS, 0.5, budgets=budgets, budget_mode="public")
        out = AlphaProportional(0.5).clear(eq.bids, budgets=budgets, cap="harmonic")
        np.testing.assert_allclose(out.shares, eq.shares, atol=1e-8)
        assert out.price == pytest.approx(eq.price, rel=1e-8)

    @pytest.mark.parametrize("alpha", [1.0, 0.5, 0.1])
    def test_ample_budgets_change_nothing(self, alpha: float) -> None:
        free = solve(LOGS, alpha)
        held = solve(LOGS, alpha, budgets=np.full(4, 1e9), budget_mode="public")
        np.testing.assert_allclose(held.shares, free.shares, atol=1e-7)
        assert held.price == pytest.approx(free.price, rel=1e-7)

    @settings(max_examples=5, deadline=None)
    @given(budgeted())
    def test_at_one_it_is_kelly_with_private_budgets(self, instance) -> None:  # type: ignore[no-untyped-def]
        v, budgets = instance[0](), instance[1]
        public = solve(v, 1.0, budgets=budgets, budget_mode="public")
        private = solve(v, 1.0, budgets=budgets)
        np.testing.assert_allclose(public.shares, private.shares, atol=1e-7)
        assert public.price == pytest.approx(private.price, rel=1e-7)

    def test_alone_against_spent_budgets_it_is_kelly(self) -> None:
        v, budgets = Valuations.log([9.0, 9.0, 3.0], [1.0, 1.0, 0.5]), [0.3, 0.6, 5.0]
        half, one = (solve(v, alpha, budgets=budgets, budget_mode="public") for alpha in (0.5, 1.0))
        np.testing.assert_array_equal(half.capped, [True, True, False])
        np.testing.assert_allclose(half.shares, one.shares, atol=1e-8)
        assert half.bids[0] == half.bids[1] == INF

    @settings(max_examples=5, deadline=None)
    @given(budgeted(), ALPHAS, st.floats(2, 100))
    def test_efficient_where_budgets_do_not_bind(self, instance, alpha, room) -> None:  # type: ignore[no-untyped-def]
        v = instance[0]()
        budgets = np.full(len(v), room * solve(v, alpha).price)
        eq = solve(v, alpha, budgets=budgets, budget_mode="public")
        spent = float(np.max(eq.payments / budgets))
        best = liquid_optimum(v, budgets=np.full(len(v), 1e12)).welfare
        bound = efficiency_bound(alpha + (1 - alpha) * spent)
        assert v.value(eq.amounts).sum() >= bound * best * (1 - 1e-8)

    def test_scale(self) -> None:
        budgets = np.array([0.6, 0.8, 5.0, 0.5])
        one = solve(LOGS, 0.5, budgets=budgets, budget_mode="public")
        big = Valuations.log([1e3, 2e3, 1.5e3, 0.7e3], np.array([0.1, 1 / 3, 1.0, 0.05]) * 50)
        other = solve(big, 0.5, capacity=50.0, budgets=budgets * 1e3, budget_mode="public")
        np.testing.assert_allclose(other.shares, one.shares, atol=1e-8)
        assert other.price == pytest.approx(1e3 * one.price, rel=1e-8)


class TestLiquidCertificate:
    def test_formula(self) -> None:
        # the only free agent: s = .4, mu = 1 + .5 * .4/.6
        mu = 1 + 0.5 * 0.4 / 0.6
        expected = (0.6 + mu * 0.4) / (0.6 + mu)
        assert liquid_certificate([0.6, 0.4], 0.5, [True, False]) == pytest.approx(expected, rel=1e-12)

    def test_everybody_at_the_budget(self) -> None:
        assert liquid_certificate([0.6, 0.4], 0.5, [True, True]) == 1.0


@pytest.mark.untyped
class TestRefused:
    V = Valuations.linear([1.0, 0.5])

    def test_public_without_budgets(self) -> None:
        with pytest.raises(ValueError, match="budgets"):
            solve(self.V, 0.5, budget_mode="public")

    def test_public_with_reserve(self) -> None:
        with pytest.raises(ValueError, match="reserve"):
            solve(self.V, 0.5, budgets=[1.0, 1.0], budget_mode="public", reserve=0.1)

    def test_hard_cap_has_no_solver(self) -> None:
        with pytest.raises(ValueError, match=r"budget_mode|hard"):
            solve(self.V, 0.5, budgets=[1.0, 1.0], budget_mode="hard")  # type: ignore[arg-type]

    def test_budget_length(self) -> None:
        with pytest.raises(ValueError, match="budgets"):
            solve(self.V, 0.5, budgets=[1.0])

    @pytest.mark.parametrize("budget", [-1.0, math.nan])
    def test_budget_value(self, budget: float) -> None:
        with pytest.raises(ValueError, match=r"budgets.* must be non-negative"):
            solve(self.V, 0.5, budgets=[1.0, budget])


def test_public_mode_is_told_also_where_nobody_competes() -> None:
    assert solve(LOGS, 0.5, budgets=[0, 0, 0, 1.0], budget_mode="public").budget_mode == "public"
