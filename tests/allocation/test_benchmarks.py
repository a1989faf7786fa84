"""Efficient and liquid optima, Vickrey payments and other mechanisms, against answers known or found another way."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize import linprog

from paperworks.allocation.benchmarks import SanghaviHajek, VCGKelly, compare, equal_split, kelly, max_min, proportional
from paperworks.allocation.data import speedups
from paperworks.allocation.equilibrium import solve
from paperworks.allocation.mechanism import AlphaProportional
from paperworks.allocation.optima import efficient, liquid_optimum, vcg
from paperworks.allocation.valuations import Valuations

INF = math.inf


def random_logs(n: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    return rng.exponential(size=n) + 0.1, 10.0 ** -rng.uniform(-1, 1.5, n)


class TestEfficient:
    def test_slopes(self) -> None:
        best = efficient(Valuations.linear([3.0, 2.0, 1.0]))
        np.testing.assert_allclose(best.shares, [1, 0, 0], atol=1e-12)
        assert best.welfare == pytest.approx(3.0)
        assert 2.0 - 1e-9 <= best.price <= 3.0 + 1e-9

    def test_tied_slopes_are_split_by_width(self) -> None:
        best = efficient(Valuations.linear([2.0, 2.0, 1.0]))
        np.testing.assert_allclose(best.shares, [0.5, 0.5, 0], atol=1e-9)
        v = Valuations.piecewise([[(0, 0), (0.3, 0.6)], [(0, 0), (0.9, 1.8)]])
        np.testing.assert_allclose(efficient(v).shares, [0.25, 0.75], atol=1e-9)
        assert efficient(v).welfare == pytest.approx(2.0)

    def test_greedy_by_slope(self) -> None:
        v = Valuations.piecewise([[(0, 0), (0.5, 2.0), (1, 2.5)], [(0, 0), (0.5, 1.5), (1, 2.5)]])
        best = efficient(v)
        np.testing.assert_allclose(best.shares, [0.5, 0.5], atol=1e-10)
        assert best.welfare == pytest.approx(3.5)

    def test_capacity(self) -> None:
        a, b = np.array([1.0, 2.0]), np.array([0.1, 1 / 3])
        one, other = efficient(Valuations.log(a, b)), efficient(Valuations.log(a, b * 7), capacity=7.0)
        np.testing.assert_allclose(other.shares, one.shares, atol=1e-10)
        assert other.price == pytest.approx(one.price, rel=1e-9)

    def test_enough_for_everybody(self) -> None:
        best = efficient(Valuations.quadratic([1.0, 4.0], [2.0, 3.0]), capacity=10.0)
        np.testing.assert_allclose(best.shares, [0.2, 0.3], atol=1e-9)
        assert best.price == 0.0
        assert best.welfare == pytest.approx(1.0 + 6.0)

    def test_steep_only_at_zero(self) -> None:
        # the share of the first underflows, although it would pay any price for the first crumb
        v = Valuations.power([0.1, 2.0], [0.999, 0.5])
        best = efficient(v)
        np.testing.assert_allclose(best.shares, [0, 1], atol=1e-12)
        assert best.price == pytest.approx(1.0, rel=1e-6)
        assert vcg(v).revenue == pytest.approx(0.1, rel=1e-6)

    def test_measured_speed_ups(self) -> None:
        best = efficient(speedups(), capacity=24.0)
        assert best.welfare == pytest.approx(23.4419, abs=6e-5)
        assert best.shares.sum() == pytest.approx(1.0)

    def test_mixed_families_against_a_cone_solver(self) -> None:
        cp = pytest.importorskip("cvxpy")
        a, b = random_logs(20, 5)
        rng = np.random.default_rng(6)
        c, qa, qb = rng.exponential(size=10), rng.exponential(size=10) * 3, rng.uniform(0.05, 2, 10)
        sa, sb = rng.exponential(size=10) * 2, rng.uniform(0.05, 1, 10)
        names = [str(k) for k in range(50)]
        v = (
            Valuations.log(a, b, names=names[:20])
            + Valuations.linear(c, names=names[20:30])
            + Valuations.quadratic(qa, qb, names=names[30:40])
            + Valuations.saturating(sa, sb, names=names[40:])
        )
        x = cp.Variable(50, nonneg=True)
        welfare = (
            cp.sum(cp.multiply(a, cp.log(1 + cp.multiply(1 / b, x[:20]))))
            + cp.sum(cp.multiply(c, x[20:30]))
            + cp.sum(cp.multiply(qa, x[30:40] - cp.multiply(1 / (2 * qb), cp.square(x[30:40]))))
            + cp.sum(cp.multiply(sa, 1 - cp.exp(cp.multiply(-1 / sb, x[40:]))))
        )
        market = cp.sum(x) == 1
        cp.Problem(cp.Maximize(welfare), [market, x[30:40] <= qb]).solve(solver="CLARABEL")
        best = efficient(v)
        assert best.welfare == pytest.approx(welfare.value, rel=1e-6)
        assert best.welfare >= welfare.value * (1 - 1e-9)
        np.testing.assert_allclose(best.shares, x.value, atol=2e-4)
        assert best.price == pytest.approx(abs(float(market.dual_value)), rel=1e-4)

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.02, 5)), min_size=1, max_size=6))
    def test_marginals_meet_the_price(self, pairs) -> None:  # type: ignore[no-untyped-def]
        a, b = np.array(pairs).T
        v = Valuations.log(a, b)
        best = efficient(v)
        marginal = v.marginal(best.shares)
        bought = best.shares > 1e-10
        # Who buys everything may value a little more of it above the price; nobody else may.
        assert (marginal[bought] >= best.price * (1 - 1e-7)).all()
        if bought.sum() > 1:
            np.testing.assert_allclose(marginal[bought], best.price, rtol=1e-7)
        assert np.all(marginal <= best.price * (1 + 1e-7))
        assert best.welfare == pytest.approx(v.value(best.shares).sum())


class TestLiquidOptimum:
    def test_linear(self) -> None:
        best = liquid_optimum(Valuations.linear([3.0, 2.0]), budgets=[0.6, INF])
        np.testing.assert_allclose(best.shares, [0.2, 0.8], atol=1e-9)
        assert best.welfare == pytest.approx(2.2)

    def test_all_budgets_reached(self) -> None:
        assert liquid_optimum(Valuations.linear([3.0, 2.0]), budgets=[0.6, 0.5]).welfare == pytest.approx(1.1)

    def test_cut_inside_a_segment(self) -> None:
        v = Valuations.piecewise([[(0, 0), (0.5, 2.0), (1, 2.5)], [(0, 0), (1, 0.9)]])
        # the first stops at value 2.2, amount .7
        best = liquid_optimum(v, budgets=[2.2, INF])
        np.testing.assert_allclose(best.shares, [0.7, 0.3], atol=1e-9)
        assert best.welfare == pytest.approx(2.2 + 0.27)

    def test_cut_inside_the_first_of_many_segments(self) -> None:
        points = [(0, 0), (0.3, 2.0), (0.7, 2.5), (1, 2.6)]
        best = liquid_optimum(Valuations.piecewise([points, [(0, 0), (0.6, 0.9), (1, 1)]]), budgets=[0.1, 0.15])
        np.testing.assert_allclose(best.shares, [0.015, 0.1], atol=1e-12)
        assert best.welfare == pytest.approx(0.25)

    @settings(max_examples=20, deadline=None)
    @given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 0.9), st.floats(0.01, 1)), min_size=1, max_size=5))
    def test_piecewise_against_a_linear_program(self, rows) -> None:  # type: ignore[no-untyped-def]
        steep, cut, budgets = np.array(rows).T
        flat = steep / 10
        v = Valuations.piecewise(
            [[(0, 0), (c, c * s), (1, c * s + (1 - c) * t)] for s, t, c in zip(steep, flat, cut, strict=True)]
        )
        slopes, widths = np.concatenate([steep, flat]), np.concatenate([cut, 1 - cut])
        n = len(rows)
        spend = np.hstack([np.diag(steep), np.diag(flat)])
        program = linprog(
            -slopes,
            A_ub=np.vstack([np.ones(2 * n), spend]),
            b_ub=np.append(1.0, budgets),
            bounds=list(zip(np.zeros(2 * n), widths, strict=True)),
        )
        assert liquid_optimum(v, budgets=budgets).welfare == pytest.approx(-program.fun, rel=1e-8)

    def test_without_budgets_it_is_the_optimum(self) -> None:
        a, b = random_logs(8, 2)
        v = Valuations.log(a, b)
        assert liquid_optimum(v, budgets=np.full(8, INF)).welfare == pytest.approx(efficient(v).welfare)

    def test_against_a_cone_solver(self) -> None:
        cp = pytest.importorskip("cvxpy")
        n = 20
        a, b = random_logs(n, 7)
        budgets = np.random.default_rng(8).exponential(size=n) * 0.2
        x = cp.Variable(n, nonneg=True)
        value = cp.multiply(a, cp.log(1 + cp.multiply(1 / b, x)))
        problem = cp.Problem(cp.Maximize(cp.sum(cp.minimum(value, budgets))), [cp.sum(x) <= 1])
        problem.solve(solver="CLARABEL")
        best = liquid_optimum(Valuations.log(a, b), budgets=budgets)
        assert best.welfare == pytest.approx(problem.value, rel=1e-6)


class TestVCG:
    def test_slopes_on_halves(self) -> None:
        v = Valuations.piecewise([[(0, 0), (0.5, 2.0), (1, 2.5)], [(0, 0), (0.5, 1.5), (1, 2.5)]])
        out = vcg(v)
        assert out.revenue == pytest.approx(1.5)
        np.testing.assert_allclose(out.payments, [1.0, 0.5], atol=1e-9)

    def test_second_price(self) -> None:
        out = vcg(Valuations.linear([3.0, 2.0, 1.0]))
        np.testing.assert_allclose(out.payments, [2, 0, 0], atol=1e-9)
        assert out.revenue == pytest.approx(2.0)

    def test_measured_speed_ups(self) -> None:
        out = vcg(speedups(), capacity=24.0)
        assert out.revenue == pytest.approx(21.5369, abs=6e-5)

    @pytest.mark.parametrize("seed", [1, 2])
    @pytest.mark.parametrize("kind", ["log", "power", "mixed"])
    def test_payments_are_the_harm_to_others(self, kind: str, seed: int) -> None:
        a, b = random_logs(5, seed)
        v = Valuations.power(a, 1 / (1 + b)) if kind == "power" else Valuations.log(a, b)
        if kind == "mixed":
            a, b = random_logs(6, 10 + seed)
            v = (
                v
                + Valuations.quadratic(a[:3], b[:3], names=[*"xyz"])
                + Valuations.saturating(a[3:], b[3:], names=[*"uvw"])
            )
        n, best, out = len(v), efficient(v), vcg(v)
        for i in range(n):
            others = v.subset(np.arange(n) != i)
            left = 1 - best.shares[i]
            alone = efficient(others, capacity=left).welfare if left > 0 else 0.0
            harm = efficient(others).welfare - alone
            assert out.payments[i] == pytest.approx(harm, rel=1e-6, abs=1e-9)

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.02, 5)), min_size=2, max_size=6))
    def test_between_nothing_and_the_competitive_price(self, pairs) -> None:  # type: ignore[no-untyped-def]
        a, b = np.array(pairs).T
        v = Valuations.log(a, b)
        out, best = vcg(v), efficient(v)
        assert np.all(out.payments >= 0)
        assert np.all(out.payments <= out.shares * best.price * (1 + 1e-9) + 1e-12)
        np.testing.assert_allclose(out.shares, best.shares, atol=1e-9)


class TestSpeedUps:
    """Six measured training jobs on 24 GPUs."""

    @pytest.mark.parametrize(
        ("alpha", "efficiency", "revenue", "digits"),
        [
            (1.0, 0.98006, 0.763, 6e-4),
            (0.5, 0.98197, 0.878, 6e-4),
            (0.25, 0.98651, 0.942, 6e-4),
            (0.1, 0.99792, 0.981, 6e-4),
            (0.05, 0.99957, 1.02, 6e-3),
        ],
    )
    def test_efficiency_and_revenue(self, alpha: float, efficiency: float, revenue: float, digits: float) -> None:
        v = speedups()
        eq = solve(v, alpha, capacity=24.0)
        assert v.value(eq.amounts).sum() / efficient(v, capacity=24.0).welfare == pytest.approx(efficiency, abs=6e-6)
        assert eq.revenue / vcg(v, capacity=24.0).revenue == pytest.approx(revenue, abs=digits)


class TestKelly:
    def test_is_alpha_one(self) -> None:
        v = Valuations.linear([3.0, 2.0, 1.0])
        np.testing.assert_allclose(kelly(v).shares, [0.6, 0.4, 0], atol=1e-10)


class TestVCGKelly:
    def test_known_payments(self) -> None:
        out = VCGKelly(0.5).clear([4.0, 2.0, 1.0])
        np.testing.assert_allclose(out.payments, [2.28996, 0.82680, 0.21556], atol=6e-6)
        np.testing.assert_allclose(out.payments / out.shares, [3.006, 4.341, 4.527], atol=6e-4)
        np.testing.assert_allclose(out.shares, AlphaProportional(0.5).clear([4.0, 2.0, 1.0]).shares)

    def test_at_one(self) -> None:
        s = np.array([4, 2, 1]) / 7
        out = VCGKelly(1.0).clear([4.0, 2.0, 1.0])
        np.testing.assert_allclose(out.payments, -7 * (1 - s) * np.log(1 - s), rtol=1e-10)

    def test_equilibrium(self) -> None:
        v = Valuations.log([1.0, 2.0, 1.5], [0.1, 1 / 3, 0.4])
        best, out = efficient(v), VCGKelly(0.5).equilibrium(v)
        np.testing.assert_allclose(out.shares, best.shares, rtol=1e-9)
        again = VCGKelly(0.5).clear(best.price * np.sqrt(best.shares))
        np.testing.assert_allclose(out.payments, again.payments, rtol=1e-8)

    def test_unit_prices_differ(self) -> None:
        assert VCGKelly(0.5).clear([4.0, 2.0, 1.0]).dispersion == pytest.approx(4.527 / 3.006, abs=6e-4)

    def test_continuous_at_one(self) -> None:
        near, one = VCGKelly(1 - 1e-6).clear([4.0, 2.0, 1.0]), VCGKelly(1.0).clear([4.0, 2.0, 1.0])
        np.testing.assert_allclose(near.payments, one.payments, rtol=1e-5)

    def test_efficient_bids_are_an_equilibrium(self) -> None:
        alpha = 0.5
        v = Valuations.log([1.0, 2.0, 1.5], [0.1, 1 / 3, 0.4])
        best = efficient(v)
        bids = best.price * best.shares**alpha
        mechanism = VCGKelly(alpha)
        now = mechanism.clear(bids)
        np.testing.assert_allclose(now.shares, best.shares, rtol=1e-9)
        utility = v.value(now.shares) - now.payments
        for i in range(3):
            for factor in (0.0, 0.3, 0.8, 0.98, 1.02, 1.25, 3.0):
                trial = bids.copy()
                trial[i] *= factor
                out = mechanism.clear(trial)
                assert v.value(out.shares)[i] - out.payments[i] < utility[i]


class TestSanghaviHajek:
    @pytest.mark.parametrize("beta", [1.0, 0.5, 0.2])
    def test_two_linear_agents(self, beta: float) -> None:
        bids = np.array([beta / 2, beta**2 / 2])
        out = SanghaviHajek().clear(bids)
        np.testing.assert_allclose(out.shares, [1 - beta / 2, beta / 2], rtol=1e-12)
        assert out.shares @ [1, beta] == pytest.approx(1 - beta / 2 + beta**2 / 2, rel=1e-12)
        np.testing.assert_allclose(out.payments, bids)

    def test_linear_equilibrium(self) -> None:
        out = SanghaviHajek().linear_equilibrium(4.0, 1.0)
        np.testing.assert_allclose(out.shares, [7 / 8, 1 / 8])
        np.testing.assert_allclose(out.payments, [0.5, 0.125])

    def test_seven_eighths_is_the_worst_of_two(self) -> None:
        def efficiency(beta: float) -> float:
            return float(SanghaviHajek().clear([beta / 2, beta**2 / 2]).shares @ [1, beta])

        assert efficiency(0.5) == pytest.approx(7 / 8, rel=1e-12)
        assert min(efficiency(beta) for beta in np.linspace(0.02, 1, 50)) == pytest.approx(7 / 8, abs=1e-9)

    def test_two_linear_agents_do_not_gain_by_another_bid(self) -> None:
        beta = 0.5
        bids = np.array([beta / 2, beta**2 / 2])
        out = SanghaviHajek().clear(bids)
        utility = out.shares * [1, beta] - out.payments
        for bid in np.linspace(0.01, 0.6, 60):
            first, second = SanghaviHajek().clear([bid, bids[1]]), SanghaviHajek().clear([bids[0], bid])
            assert first.shares[0] - bid <= utility[0] + 1e-12
            assert beta * second.shares[1] - bid <= utility[1] + 1e-12

    def test_integral(self) -> None:
        bids = np.array([4.0, 2.0, 1.0, 3.5, 0.3])
        r = bids / bids.max()
        expected = [
            r[i] * quad(lambda t, i=i: np.prod(1 - t * np.delete(r, i)), 0, 1, epsabs=1e-13)[0] for i in range(5)
        ]
        np.testing.assert_allclose(SanghaviHajek().clear(bids).shares, expected, rtol=1e-11)

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30))
    def test_sells_everything(self, bids) -> None:  # type: ignore[no-untyped-def]
        assert SanghaviHajek().clear(bids).shares.sum() == pytest.approx(1.0, rel=1e-10)

    def test_equal_bids(self) -> None:
        np.testing.assert_allclose(SanghaviHajek().clear(np.ones(7)).shares, 1 / 7, rtol=1e-12)


class TestStaticRules:
    def test_equal_split(self) -> None:
        np.testing.assert_allclose(equal_split(4, capacity=10.0), [2.5, 2.5, 2.5, 2.5])

    def test_proportional(self) -> None:
        np.testing.assert_allclose(proportional([3.0, 0.0, 1.0], capacity=8.0), [6, 0, 2])


class TestMaxMin:
    def test_small_demands_are_met_first(self) -> None:
        np.testing.assert_allclose(max_min([2.0, 8.0, 8.0], capacity=10.0), [2, 4, 4])

    def test_enough_for_everybody(self) -> None:
        np.testing.assert_allclose(max_min([2.0, 3.0], capacity=10.0), [2, 3])

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.floats(0, 100), min_size=1, max_size=10), st.floats(0.1, 300))
    def test_water_level(self, demands, capacity) -> None:  # type: ignore[no-untyped-def]
        got = np.asarray(max_min(demands, capacity=capacity))
        assert got.sum() == pytest.approx(min(capacity, sum(demands)), rel=1e-9, abs=1e-9)
        short = got < np.array(demands) - 1e-9
        if short.any():
            np.testing.assert_allclose(got[short], got.max(), rtol=1e-9)


class TestCompare:
    def test_table(self) -> None:
        v = speedups()
        table = compare(v, alphas=[1.0, 0.25], capacity=24.0)
        assert isinstance(table, pd.DataFrame)
        by_alpha = table.dropna(subset=["alpha"]).set_index("alpha")
        np.testing.assert_allclose(by_alpha.loc[[1.0, 0.25], "efficiency"], [0.98006, 0.98651], atol=6e-6)
        np.testing.assert_allclose(by_alpha.loc[[1.0, 0.25], "revenue_over_vcg"], [0.763, 0.942], atol=6e-4)
        by_name = table.set_index("mechanism")
        assert by_name.loc["vcg", "efficiency"] == pytest.approx(1.0)
        assert by_name.loc["vcg", "revenue"] == pytest.approx(21.5369, abs=6e-5)
        bound = by_alpha["certificate"]
        assert np.all((by_alpha["guarantee"] <= bound + 1e-12) & (bound <= by_alpha["efficiency"] + 1e-9))
        np.testing.assert_allclose(by_alpha["price_dispersion"], 1.0)

    def test_budgets(self) -> None:
        v = Valuations.linear([3.0, 2.0, 1.0])
        table = compare(v, alphas=[1.0], baselines=["max_min", "equal", "proportional"], budgets=[0.5, 9.0, 9.0])
        # shares (.5, .5, 0) against the optimum: a sixth for the first, the rest to the second
        expected = (0.5 + 1.0) / (0.5 + 2 * 5 / 6)
        assert table["liquid_efficiency"].iloc[0] == pytest.approx(expected, rel=1e-8)


@pytest.mark.untyped
class TestRefused:
    def test_alpha(self) -> None:
        with pytest.raises(ValueError, match=r"alpha must be in \[0, 1\]|alpha must be in \(0, 1\]"):
            VCGKelly(2.0)

    @pytest.mark.parametrize("run", [efficient, vcg])
    def test_capacity(self, run) -> None:  # type: ignore[no-untyped-def]
        with pytest.raises(ValueError, match="capacity must be positive"):
            run(Valuations.linear([1.0, 2.0]), capacity=0.0)

    def test_bids(self) -> None:
        with pytest.raises(ValueError, match="-1"):
            SanghaviHajek().clear([1.0, -1.0])

    def test_budgets_missing(self) -> None:
        with pytest.raises(ValueError, match="budgets"):
            liquid_optimum(Valuations.linear([1.0, 2.0]))

    def test_demand(self) -> None:
        with pytest.raises(ValueError, match="-1"):
            max_min([1.0, -1.0], capacity=1.0)
