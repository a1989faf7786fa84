"""Nash equilibria without budgets: known answers, an independent program, deviations, reserve, kinks, dynamics."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paperworks.allocation.equilibrium import solve
from paperworks.allocation.mechanism import AlphaProportional
from paperworks.allocation.responses import best_response, dynamics, regret
from paperworks.allocation.valuations import Valuations

Make = Callable[[], Valuations]
ALPHAS = st.sampled_from([1.0, 0.5, 0.25, 0.05])
TWO_LOGS = Valuations.log([1.0, 2.0], [1 / 10, 1 / 3])


@st.composite
def piecewise(draw: st.DrawFn, most: int = 5) -> Make:
    """Random concave piecewise-linear agents on [0, 1]."""
    agents = draw(
        st.lists(
            st.lists(st.tuples(st.floats(0.01, 20), st.floats(0.05, 1)), min_size=1, max_size=3),
            min_size=2,
            max_size=most,
        )
    )
    points = []
    for segments in agents:
        slopes = np.sort([slope for slope, _ in segments])[::-1]
        widths = np.array([width for _, width in segments])
        widths /= widths.sum()
        q, v = np.cumsum(np.append(0, widths)), np.cumsum(np.append(0, slopes * widths))
        points.append(list(zip(q.tolist(), v.tolist(), strict=True)))
    return partial(Valuations.piecewise, points)


@st.composite
def logs(draw: st.DrawFn, most: int = 6) -> Make:
    """Random agents of value a·log(1 + q/b)."""
    pairs = draw(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.02, 5)), min_size=2, max_size=most))
    a, b = np.array(pairs).T
    return partial(Valuations.log, a, b)


def random_piecewise(rng: np.random.Generator) -> Valuations:
    """Random instance over many orders of steepness and width."""
    points = []
    for _ in range(rng.integers(2, 7)):
        k = rng.integers(1, 5)
        slopes = np.sort(rng.exponential(size=k) ** rng.uniform(0.2, 4) + 1e-5)[::-1]
        widths = rng.dirichlet(np.full(k, rng.uniform(0.2, 2)))
        widths = np.maximum(widths, 1e-6) / np.maximum(widths, 1e-6).sum()
        q, v = np.cumsum(np.append(0, widths)), np.cumsum(np.append(0, slopes * widths))
        points.append(list(zip(q.tolist(), v.tolist(), strict=True)))
    return Valuations.piecewise(points)


def gain_on_a_grid(v: Valuations, bids: NDArray[np.float64], alpha: float, capacity: float = 1.0) -> float:
    """Largest gain of one agent from any of many other bids, by clearing each one from the definition."""
    n = len(bids)
    factors = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 1500), np.linspace(0.9, 1.1, 1001)])

    def utility(profile: NDArray[np.float64], i: int) -> NDArray[np.float64]:
        y = (profile / bids.max()) ** (1 / alpha)
        share = y / y.sum(axis=1, keepdims=True)
        price = bids.max() * y.sum(axis=1) ** alpha
        amounts = np.zeros((len(profile), n))
        amounts[:, i] = capacity * share[:, i]
        return v.value(amounts)[:, i] - price * share[:, i]

    worst = -math.inf
    for i in range(n):
        own = bids[i] if bids[i] > 0 else bids.max()
        profile = np.tile(bids, (len(factors), 1))
        profile[:, i] = own * factors
        now = utility(bids[None, :], i)[0]
        worst = max(worst, float(np.max(utility(profile, i)) - now))
    return worst


class TestKnownAnswers:
    @pytest.mark.parametrize(
        ("alpha", "share", "price", "welfare"),
        [
            (1.0, 2 / 3, 1 / 3, 5 / 6),
            (0.5, math.sqrt(3) - 1, 1 - 1 / math.sqrt(3), math.sqrt(3) / 2),
            (0.25, math.sqrt(2 / 3), None, None),
        ],
    )
    def test_linear_one_half(self, alpha: float, share: float, price: float | None, welfare: float | None) -> None:
        v = Valuations.linear([1.0, 0.5])
        eq = solve(v, alpha)
        np.testing.assert_allclose(eq.shares, [share, 1 - share], atol=1e-11)
        if price is not None:
            assert eq.price == pytest.approx(price, abs=1e-11)
            assert v.value(eq.amounts).sum() == pytest.approx(welfare, abs=1e-11)
        assert eq.status == "ok"
        assert eq.converged

    def test_linear_321_kelly(self) -> None:
        eq = solve(Valuations.linear([3.0, 2.0, 1.0]), 1.0)
        np.testing.assert_allclose(eq.shares, [0.6, 0.4, 0], atol=1e-11)
        assert eq.price == pytest.approx(1.2, abs=1e-11)
        np.testing.assert_allclose(eq.payments, [0.72, 0.48, 0], atol=1e-11)

    def test_linear_321_half(self) -> None:
        eq = solve(Valuations.linear([3.0, 2.0, 1.0]), 0.5)
        np.testing.assert_allclose(eq.shares, [0.645751, 0.354249, 0], atol=6e-7)
        assert eq.price == pytest.approx(1.569499, abs=6e-7)

    @pytest.mark.parametrize(("alpha", "share", "price"), [(1.0, 0.447328, 1.009764), (0.5, 0.434980, 1.349697)])
    def test_two_logs(self, alpha: float, share: float, price: float) -> None:
        eq = solve(TWO_LOGS, alpha)
        assert eq.shares[0] == pytest.approx(share, abs=6e-7)
        assert eq.price == pytest.approx(price, abs=6e-7)

    @pytest.mark.parametrize("alpha", [1.0, 0.5, 0.1])
    @pytest.mark.parametrize("n", [2, 5, 40])
    def test_equal_agents(self, alpha: float, n: int) -> None:
        for v, slope in (
            (Valuations.linear(np.full(n, 2.0)), 2.0),
            (Valuations.log(np.full(n, 2.0), 0.5), 2 / (0.5 + 1 / n)),
            (Valuations.power(np.full(n, 2.0), 0.5), math.sqrt(n)),
            (Valuations.saturating(np.full(n, 2.0), 0.5), 4 * math.exp(-2 / n)),
        ):
            eq = solve(v, alpha)
            np.testing.assert_allclose(eq.shares, 1 / n, rtol=1e-8)
            assert eq.price == pytest.approx(slope / (1 + alpha / (n - 1)), rel=1e-8)

    def test_kinks_leave_a_price_interval(self) -> None:
        v = Valuations.piecewise([[(0, 0), (0.5, 2.0), (1, 2.5)], [(0, 0), (0.5, 1.5), (1, 2.5)]])
        eq = solve(v, 0.5)
        np.testing.assert_allclose(eq.shares, [0.5, 0.5], atol=1e-10)
        np.testing.assert_allclose(eq.price_interval, [4 / 3, 2.0], rtol=1e-9)
        assert eq.price == pytest.approx(4 / 3, rel=1e-9)

    def test_smooth_agents_have_one_price(self) -> None:
        low, high = solve(TWO_LOGS, 0.5).price_interval
        assert low == pytest.approx(high, rel=1e-9)

    def test_bids_markups_and_marginal_values(self) -> None:
        alpha, capacity = 0.5, 7.0
        v = Valuations.log([1.0, 2.0, 1.5], [0.3, 1.0, 5.0])
        eq = solve(v, alpha, capacity=capacity)
        s = eq.shares
        np.testing.assert_allclose(eq.bids, eq.price * s**alpha, rtol=1e-9)
        np.testing.assert_allclose(eq.markup, 1 + alpha * s / (1 - s), rtol=1e-9)
        np.testing.assert_allclose(eq.marginal_value, eq.price * eq.markup / capacity, rtol=1e-9)
        np.testing.assert_allclose(v.marginal(eq.amounts), eq.marginal_value, rtol=1e-8)
        assert eq.unit_price == pytest.approx(eq.price / capacity)


class TestReserve:
    V = Valuations.log([1.0, 1.0], [0.25, 0.25])

    def test_binding_leaves_some_unsold(self) -> None:
        eq = solve(self.V, 1.0, reserve=2.0)
        np.testing.assert_allclose(eq.shares, [0.25, 0.25], atol=1e-10)
        assert eq.price == 2.0
        assert eq.status == "reserve_binding"
        assert eq.revenue == pytest.approx(1.0)

    def test_window(self) -> None:
        eq = solve(self.V, 1.0, reserve=1.2)
        np.testing.assert_allclose(eq.shares, [0.5, 0.5], atol=1e-10)
        assert eq.price == pytest.approx(1.2)
        assert eq.kappa == pytest.approx(1 / 9, abs=1e-9)
        assert eq.status == "reserve_window"

    def test_irrelevant(self) -> None:
        eq = solve(self.V, 1.0, reserve=0.5)
        np.testing.assert_allclose(eq.shares, [0.5, 0.5], atol=1e-10)
        assert eq.price == pytest.approx(2 / 3, abs=1e-10)
        assert eq.status == "ok"

    @settings(max_examples=25, deadline=None)
    @given(logs(), ALPHAS, st.floats(0.01, 30))
    def test_price_at_least_reserve(self, make: Make, alpha: float, reserve: float) -> None:
        v = make()
        eq, free = solve(v, alpha, reserve=reserve), solve(v, alpha)
        assert eq.price >= reserve * (1 - 1e-12)
        assert eq.price >= free.price * (1 - 1e-9)
        assert eq.shares.sum() <= 1 + 1e-9
        if eq.status == "reserve_window":
            assert 0 <= eq.kappa <= 1


class TestProperties:
    @settings(max_examples=40, deadline=None)
    @given(st.one_of(piecewise(), logs()), ALPHAS)
    def test_sells_everything_at_one_price_without_regret(self, make: Make, alpha: float) -> None:
        v = make()
        eq = solve(v, alpha)
        assert eq.shares.sum() == pytest.approx(1.0, abs=1e-9)
        np.testing.assert_allclose(eq.payments, eq.price * eq.shares, rtol=1e-12)
        assert np.all(eq.regret >= 0)
        assert np.max(eq.regret) <= 1e-8 * eq.price
        assert eq.converged

    @settings(max_examples=40, deadline=None)
    @given(st.one_of(piecewise(), logs()), ALPHAS)
    def test_first_order_conditions(self, make: Make, alpha: float) -> None:
        v = make()
        eq = solve(v, alpha)
        target = eq.price * (1 + alpha * eq.shares / (1 - eq.shares))
        nudge = 1e-9
        right = v.marginal(eq.amounts + nudge, side="right")
        left = v.marginal(np.maximum(eq.amounts - nudge, 0), side="left")
        assert np.all(right <= target * (1 + 1e-6))
        bought = eq.shares > 1e-8
        assert np.all(left[bought] >= target[bought] * (1 - 1e-6))

    @settings(max_examples=25, deadline=None)
    @given(logs(), ALPHAS, st.randoms(use_true_random=False))
    def test_permutation(self, make: Make, alpha: float, random) -> None:  # type: ignore[no-untyped-def]
        v = make()
        order = list(range(len(v)))
        random.shuffle(order)
        mixed = v.subset(np.array([order[0]]))
        for i in order[1:]:
            mixed = mixed + v.subset(np.array([i]))
        one, other = solve(v, alpha), solve(mixed, alpha)
        np.testing.assert_allclose(other.shares, one.shares[order], atol=1e-9)
        assert other.price == pytest.approx(one.price, rel=1e-9)

    @settings(max_examples=25, deadline=None)
    @given(
        st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.02, 5)), min_size=2, max_size=6),
        ALPHAS,
        st.floats(1e-4, 1e4),
        st.floats(1e-4, 1e4),
    )
    def test_units_do_not_matter(self, pairs, alpha, money, size) -> None:  # type: ignore[no-untyped-def]
        a, b = np.array(pairs).T
        one = solve(Valuations.log(a, b), alpha)
        other = solve(Valuations.log(a * money, b * size), alpha, capacity=size)
        np.testing.assert_allclose(other.shares, one.shares, atol=1e-9)
        assert other.price == pytest.approx(one.price * money, rel=1e-9)

    @settings(max_examples=25, deadline=None)
    @given(st.one_of(piecewise(), logs()))
    def test_price_rises_as_alpha_falls(self, make: Make) -> None:
        v = make()
        prices = [solve(v, alpha).price for alpha in (1.0, 0.5, 0.1, 0.02)]
        assert all(b >= a * (1 - 1e-8) for a, b in itertools.pairwise(prices))

    @settings(max_examples=25, deadline=None)
    @given(piecewise(4), logs(3), ALPHAS)
    def test_another_agent_never_lowers_the_price(self, make: Make, make_others: Make, alpha: float) -> None:
        v, others = make(), make_others()
        names = [f"other {i}" for i in range(len(others))]
        more = Valuations.log(others.marginal0(), 1.0, names=names)
        assert solve(v + more, alpha).price >= solve(v, alpha).price * (1 - 1e-8)

    @settings(max_examples=30, deadline=None)
    @given(st.one_of(piecewise(), logs()), ALPHAS)
    def test_clearing_the_bids_gives_the_shares(self, make: Make, alpha: float) -> None:
        v = make()
        eq = solve(v, alpha)
        mechanism = AlphaProportional(alpha)
        for bids in (eq.bids, mechanism.bids_for(eq.shares, eq.price)):
            out = mechanism.clear(bids)
            np.testing.assert_allclose(out.shares, eq.shares, atol=1e-8)
            assert out.price == pytest.approx(eq.price, rel=1e-8)


class TestDeviations:
    """Nobody gains by another bid: bids are tried one by one through the definition of the mechanism."""

    @pytest.mark.parametrize("alpha", [1.0, 0.5, 0.2])
    def test_mixed_families(self, alpha: float) -> None:
        v = (
            Valuations.linear([2.0], names=["a"])
            + Valuations.log([3.0], 0.5, names=["b"])
            + Valuations.power([1.5], 0.5, names=["c"])
            + Valuations.piecewise([[(0, 0), (0.25, 1.0), (1.0, 1.75)]], names=["d"])
        )
        eq = solve(v, alpha)
        assert gain_on_a_grid(v, eq.bids, alpha) <= 1e-7 * eq.price

    def test_other_capacity(self) -> None:
        v = Valuations.log([1.0, 2.0, 1.5], [3.0, 1.0, 5.0])
        eq = solve(v, 0.5, capacity=7.0)
        assert gain_on_a_grid(v, eq.bids, 0.5, capacity=7.0) <= 1e-8 * eq.price

    def test_random_piecewise(self) -> None:
        rng = np.random.default_rng(11)
        for _ in range(6):
            v, alpha = random_piecewise(rng), float(rng.choice([1.0, 0.5, 0.25]))
            eq = solve(v, alpha)
            assert eq.converged
            assert gain_on_a_grid(v, eq.bids, alpha) <= 1e-7 * eq.price

    def test_regret_sees_a_profitable_deviation(self) -> None:
        v, alpha = Valuations.linear([3.0, 2.0, 1.0]), 0.5
        bids = np.array([1.0, 1.0, 1.0])
        best = float(np.max(regret(v, bids, alpha)))
        assert best > 0.1
        assert best == pytest.approx(gain_on_a_grid(v, bids, alpha), rel=2e-4)

    def test_regret_is_per_agent(self) -> None:
        v = Valuations.linear([1.0, 0.5])
        eq = solve(v, 1.0)
        np.testing.assert_allclose(regret(v, eq.bids, 1.0), [0, 0], atol=1e-10)

    def test_best_response_of_a_linear_agent(self) -> None:
        # against a total S, a slope-c Kelly bidder answers sqrt(cS) - S
        v = Valuations.linear([3.0, 2.0])
        answer = best_response(v, [0.1, 0.5], 1.0)
        np.testing.assert_allclose(answer, [math.sqrt(1.5) - 0.5, math.sqrt(0.2) - 0.1], rtol=1e-8)

    @settings(max_examples=20, deadline=None)
    @given(logs(4), st.sampled_from([1.0, 0.5, 0.2]))
    def test_equilibrium_bids_answer_each_other(self, make: Make, alpha: float) -> None:
        v = make()
        eq = solve(v, alpha)
        assume(np.all(eq.shares > 1e-6))
        np.testing.assert_allclose(best_response(v, eq.bids, alpha), eq.bids, rtol=1e-5)


class TestAgainstAConeSolver:
    """The equilibrium as the optimum of a concave program of potentials, by cvxpy."""

    @pytest.mark.parametrize("alpha", [1.0, 0.5, 0.25])
    @pytest.mark.parametrize("family", ["linear", "log"])
    def test_equilibrium_program(self, family: str, alpha: float) -> None:
        cp = pytest.importorskip("cvxpy")
        rng = np.random.default_rng(3)
        n = 25
        a, b = rng.exponential(size=n) + 0.1, 10.0 ** rng.uniform(-1, 1.5, n)
        s = cp.Variable(n)
        beta = 1 - alpha
        if family == "linear":
            v = Valuations.linear(a)
            potential = s - cp.square(s) / 2 if beta == 0 else s / beta + alpha / beta**2 * cp.log(1 - beta * s)
            objective = cp.sum(cp.multiply(a, potential))
        else:
            v = Valuations.log(a, 1 / b)
            grow = cp.multiply((b + 1) / (b + beta), cp.log(1 + cp.multiply(b, s)))
            damp = -s if beta == 0 else cp.multiply(b * alpha / ((b + beta) * beta), cp.log(1 - beta * s))
            objective = cp.sum(cp.multiply(a, grow + damp))
        market = cp.sum(s) == 1
        cp.Problem(cp.Maximize(objective), [s >= 0, market]).solve(solver="CLARABEL")
        eq = solve(v, alpha)
        np.testing.assert_allclose(eq.shares, s.value, atol=2e-5)
        assert eq.price == pytest.approx(abs(float(market.dual_value)), rel=1e-4)


class TestExtremes:
    def test_one_agent_has_no_competition(self) -> None:
        eq = solve(Valuations.linear([3.0]), 0.5)
        assert eq.status == "no_competition"
        assert eq.price == 0.0
        np.testing.assert_allclose(eq.shares, [1.0])

    def test_one_agent_with_reserve_pays_it(self) -> None:
        eq = solve(Valuations.log([1.0], [0.25]), 0.5, reserve=2.0)
        assert eq.price == 2.0

    def test_only_one_agent_wants_any(self) -> None:
        eq = solve(Valuations.linear([0.0, 3.0, 0.0]), 0.5)
        assert eq.status == "no_competition"
        np.testing.assert_allclose(eq.shares, [0, 1, 0])

    def test_nobody_wants_any(self) -> None:
        eq = solve(Valuations.linear([0.0, 0.0]), 0.5)
        assert eq.status == "no_competition"
        assert eq.revenue == 0.0
        np.testing.assert_array_equal(eq.shares, [0, 0])

    def test_enough_for_everybody(self) -> None:
        eq = solve(Valuations.quadratic([1.0, 4.0], [2.0, 3.0]), 0.5, capacity=10.0)
        assert eq.status == "unsaturated"
        assert eq.price == 0.0
        np.testing.assert_allclose(eq.amounts, [2.0, 3.0])

    def test_just_scarce(self) -> None:
        eq = solve(Valuations.quadratic([1.0, 4.0], [2.0, 3.0]), 0.5, capacity=4.999)
        assert eq.status == "ok"
        assert eq.shares.sum() == pytest.approx(1.0, abs=1e-9)
        assert 0 < eq.price < 0.01

    def test_an_agent_without_value_gets_nothing(self) -> None:
        eq = solve(Valuations.linear([1.0, 0.0, 0.5]), 1.0)
        np.testing.assert_allclose(eq.shares, [2 / 3, 0, 1 / 3], atol=1e-10)

    @pytest.mark.parametrize("alpha", [1e-3, 1e-6])
    def test_tiny_alpha(self, alpha: float) -> None:
        eq = solve(Valuations.linear([3.0, 2.0, 1.0]), alpha)
        assert eq.shares.sum() == pytest.approx(1.0, abs=1e-9)
        assert eq.price == pytest.approx(2.0, rel=5 * alpha)
        assert eq.shares[0] == pytest.approx(1.0, abs=3 * alpha)
        logs = solve(TWO_LOGS, alpha)
        marginals = TWO_LOGS.marginal(logs.amounts)
        np.testing.assert_allclose(marginals, logs.price, rtol=5 * alpha)

    def test_tiny_alpha_on_ties(self) -> None:
        eq = solve(Valuations.linear([2.0, 2.0, 2.0, 1.0]), 1e-6)
        np.testing.assert_allclose(eq.shares, [1 / 3, 1 / 3, 1 / 3, 0], atol=1e-6)
        assert eq.converged

    def test_limit(self) -> None:
        eq = solve(TWO_LOGS, 0.0)
        assert eq.status == "limit"
        near = solve(TWO_LOGS, 1e-6)
        np.testing.assert_allclose(eq.shares, near.shares, atol=1e-5)
        assert eq.price == pytest.approx(near.price, rel=1e-5)
        np.testing.assert_allclose(TWO_LOGS.marginal(eq.amounts), eq.price, rtol=1e-9)

    def test_limit_where_one_agent_takes_all(self) -> None:
        v = Valuations.log([3.0, 0.2], [0.5, 0.5])
        assert solve(v, 0.0).price == pytest.approx(solve(v, 1e-6).price, rel=1e-5)
        assert solve(v, 0.0).price == pytest.approx(0.4, rel=1e-5)

    def test_limit_of_linear_agents(self) -> None:
        eq = solve(Valuations.linear([3.0, 2.0, 1.0]), 0.0)
        assert eq.status == "limit"
        np.testing.assert_allclose(eq.shares, [1, 0, 0], atol=1e-9)
        assert eq.price == pytest.approx(2.0, rel=1e-6)

    def test_values_over_forty_decades(self) -> None:
        v = Valuations.log([1e-20, 1.0, 1e20, 2e20], [1e-3, 1.0, 1.0, 10.0])
        eq = solve(v, 0.5)
        assert np.all(np.isfinite(eq.bids))
        assert eq.shares.sum() == pytest.approx(1.0, abs=1e-9)
        assert eq.converged

    def test_hundred_thousand_agents(self) -> None:
        rng = np.random.default_rng(4)
        n = 100_000
        v = Valuations.log(rng.exponential(size=n) + 0.1, 10.0 ** -rng.uniform(0, 3, n))
        eq = solve(v, 0.25)
        assert eq.shares.sum() == pytest.approx(1.0, abs=1e-10)
        active = eq.shares > 0
        target = eq.price * (1 + 0.25 * eq.shares / (1 - eq.shares))
        np.testing.assert_allclose(v.marginal(eq.amounts)[active], target[active], rtol=1e-7)
        assert np.all(v.marginal0()[~active] <= eq.price * (1 + 1e-9))


class TestDynamics:
    @pytest.mark.parametrize("order", ["simultaneous", "sequential"])
    def test_damped_play_of_logs_reaches_the_equilibrium(self, order: str) -> None:
        v = Valuations.log([1.0, 2.0, 1.5], [0.1, 1 / 3, 1.0])
        path = dynamics(v, 0.5, order=order, seed=0)  # type: ignore[arg-type]
        assert path.converged
        np.testing.assert_allclose(path.shares[-1], solve(v, 0.5).shares, atol=1e-5)
        assert path.shares.shape[1] == 3
        np.testing.assert_allclose(path.shares.sum(axis=1), 1.0)

    def test_starts_do_not_matter(self) -> None:
        v = Valuations.log([1.0, 2.0, 1.5], [0.1, 1 / 3, 1.0])
        ends = [dynamics(v, 0.5, init=init).shares[-1] for init in ([1.0, 1.0, 1.0], [1e-3, 5.0, 0.2])]
        np.testing.assert_allclose(ends[0], ends[1], atol=1e-5)

    @pytest.mark.untyped
    def test_not_converged_is_said(self) -> None:
        with pytest.warns(RuntimeWarning, match="converge"):
            path = dynamics(TWO_LOGS, 0.5, max_iter=2)
        assert not path.converged

    @pytest.mark.filterwarnings("ignore:.*converge.*:RuntimeWarning")
    def test_small_alpha_does_not_underflow(self) -> None:
        path = dynamics(TWO_LOGS, 0.02, damping=0.2, max_iter=60)
        assert np.all(np.isfinite(path.log_bids))
        assert np.all(np.isfinite(path.shares))

    @pytest.mark.filterwarnings("ignore:.*converge.*:RuntimeWarning")
    def test_noise_is_seeded(self) -> None:
        one, same, other = (dynamics(TWO_LOGS, 0.5, noise=0.05, max_iter=20, seed=k) for k in (1, 1, 2))
        np.testing.assert_array_equal(one.shares, same.shares)
        assert not np.array_equal(one.shares, other.shares)


class TestInterface:
    V = Valuations.log([1.0, 2.0], [1 / 10, 1 / 3], names=["nlp", "vision"])

    def test_table(self) -> None:
        eq = solve(self.V, 0.5, capacity=1.0)
        table = eq.table()
        columns = (
            "agent share amount bid payment unit_price marginal_value markup budget spend_fraction capped "
            "value utility regret"
        )
        assert set(columns.split()) <= set(table.columns)
        assert list(table["agent"]) == ["nlp", "vision"]
        np.testing.assert_allclose(table["share"], eq.shares)
        np.testing.assert_allclose(table["utility"], table["value"] - table["payment"])
        np.testing.assert_allclose(table["value"], self.V.value(eq.amounts))

    def test_summary(self) -> None:
        eq = solve(self.V, 0.5)
        found = eq.summary(vcg=True)
        assert found["price"] == eq.price
        assert found["efficiency"] == pytest.approx(eq.welfare / found["optimum"])
        assert found["guarantee"] == pytest.approx(math.sqrt(3) / 2)
        assert found["guarantee"] <= found["certificate"] <= found["efficiency"] + 1e-12
        assert eq.revenue >= found["vcg_revenue"] / 1.5
        assert found["liquid_welfare"] is None

    def test_summary_where_budgets_bind(self) -> None:
        found = solve(Valuations.linear([3.0, 2.0, 1.0]), 1.0, budgets=[0.5, 9.0, 9.0]).summary()
        assert found["liquid_welfare"] == pytest.approx(1.5)
        assert found["liquid_optimum"] == pytest.approx(0.5 + 2 * 5 / 6)
        assert found["guarantee"] is None
        assert found["certificate"] is None

    def test_pickle(self) -> None:
        eq = solve(self.V, 0.5)
        back = pickle.loads(pickle.dumps(eq))
        np.testing.assert_array_equal(back.shares, eq.shares)
        assert back.status == eq.status

    def test_json(self) -> None:
        eq = solve(self.V, 0.5)
        back = json.loads(eq.to_json())
        np.testing.assert_array_equal(back["shares"], eq.shares)
        np.testing.assert_array_equal(back["bids"], eq.bids)
        assert back["status"] == "ok"

    def test_names(self) -> None:
        assert list(solve(self.V, 0.5).names) == ["nlp", "vision"]


@pytest.mark.untyped
class TestRefused:
    V = Valuations.linear([1.0, 0.5])

    @pytest.mark.parametrize("alpha", [-0.1, 1.1, math.nan, True])
    def test_alpha(self, alpha: object) -> None:
        with pytest.raises(ValueError, match=r"alpha must be in \[0, 1\]"):
            solve(self.V, alpha)  # type: ignore[arg-type]

    @pytest.mark.parametrize("capacity", [0.0, -1.0, math.nan])
    def test_capacity(self, capacity: float) -> None:
        with pytest.raises(ValueError, match="capacity must be positive"):
            solve(self.V, 0.5, capacity=capacity)

    @pytest.mark.parametrize("reserve", [-1.0, math.nan])
    def test_reserve(self, reserve: float) -> None:
        with pytest.raises(ValueError, match="reserve must be non-negative"):
            solve(self.V, 0.5, reserve=reserve)

    def test_bids_of_another_length(self) -> None:
        with pytest.raises(ValueError, match="bids"):
            regret(self.V, [1.0, 2.0, 3.0], 0.5)

    def test_order(self) -> None:
        with pytest.raises(ValueError, match="order must be one of"):
            dynamics(self.V, 0.5, order="random")  # type: ignore[arg-type]

    @pytest.mark.parametrize("damping", [0.0, 1.5, math.nan])
    def test_damping(self, damping: float) -> None:
        with pytest.raises(ValueError, match="damping"):
            dynamics(self.V, 0.5, damping=damping)

    def test_callable_that_breaks_inside(self) -> None:
        with pytest.raises(ValueError, match="q"):
            solve(
                Valuations.from_callable([lambda q: np.where(q > 0.5, np.nan, q), lambda q: np.log1p(q)]),
                0.5,
            )


def test_summary_of_one_agent() -> None:
    told = solve(Valuations.log(1.0, 1.0), 0.5).summary()
    assert told["status"] == "no_competition"
    assert told["guarantee"] is None
    assert told["efficiency"] == 1.0


def test_certificate_of_an_agent_who_takes_everything() -> None:
    assert solve(Valuations.linear([1e-200, 1e200]), 0.5).summary()["certificate"] == 1.0
