"""Bounds before data, certificates from shares alone, and instances that attain them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.allocation.equilibrium import solve
from paperworks.allocation.guarantees import (
    alpha_for_efficiency,
    efficiency_bound,
    efficiency_certificate,
    liquid_bound,
    revenue_bound,
    revenue_certificate,
)
from paperworks.allocation.optima import efficient, vcg
from paperworks.allocation.valuations import Valuations
from paperworks.allocation.worst_cases import search_worst_case, worst_case_instance

Make = Callable[[], Valuations]
ALPHAS = st.floats(0.01, 1)


@st.composite
def agents(draw: st.DrawFn) -> Make:
    """Random agents of piecewise-linear, logarithmic or linear value on [0, 1]."""
    kind = draw(st.sampled_from(["piecewise", "log", "linear"]))
    rows = draw(st.lists(st.tuples(st.floats(-2, 2), st.floats(-2, 1), st.floats(0.05, 0.95)), min_size=2, max_size=6))
    steep, shape, cut = np.array(rows).T
    a = 10.0**steep
    if kind == "linear":
        return partial(Valuations.linear, a)
    if kind == "log":
        return partial(Valuations.log, a, 10.0**shape)
    low = a * 10.0 ** (shape - 1)
    return partial(
        Valuations.piecewise,
        [[(0, 0), (c, c * s), (1, c * s + (1 - c) * t)] for c, s, t in zip(cut, a, low, strict=True)],
    )


class TestBounds:
    @pytest.mark.parametrize(
        ("alpha", "bound"),
        [(1.0, 0.75), (0.5, 0.828427), (0.25, 0.888889), (0.1, 0.942278), (0.05, 0.966605), (0.01, 0.991736)],
    )
    def test_any_number_of_agents(self, alpha: float, bound: float) -> None:
        assert efficiency_bound(alpha) == pytest.approx(bound, abs=6e-7)
        assert efficiency_bound(alpha) == pytest.approx((1 + 2 * math.sqrt(alpha)) / (1 + math.sqrt(alpha)) ** 2)

    @pytest.mark.parametrize(
        ("alpha", "bound"), [(1.0, 2 * math.sqrt(2) - 2), (0.5, math.sqrt(3) / 2), (0.25, (5 + math.sqrt(5)) / 8)]
    )
    def test_two_agents(self, alpha: float, bound: float) -> None:
        assert efficiency_bound(alpha, n=2) == pytest.approx(bound, rel=1e-12)

    def test_first_price_is_efficient(self) -> None:
        assert efficiency_bound(0.0) == 1.0
        assert revenue_bound(0.0) == 1.0

    def test_falls_with_alpha_and_with_n(self) -> None:
        grid = np.linspace(0.01, 1, 40)
        assert np.all(np.diff([efficiency_bound(float(a)) for a in grid]) < 0)
        assert np.all(np.diff([efficiency_bound(0.5, n=n) for n in range(2, 40)]) < 0)
        assert efficiency_bound(0.5, n=10**6) == pytest.approx(efficiency_bound(0.5), rel=1e-5)

    @pytest.mark.parametrize(
        ("target", "n", "alpha"),
        [(0.95, math.inf, 0.082948), (0.8741, math.inf, 0.30246), (7 / 8, 2, 0.426777), (0.75, math.inf, 1.0)],
    )
    def test_inverse(self, target: float, n: float, alpha: float) -> None:
        assert alpha_for_efficiency(target, n=n) == pytest.approx(alpha, abs=2e-6)

    @settings(max_examples=40, deadline=None)
    @given(st.floats(0.001, 1), st.sampled_from([2, 3, 10, math.inf]))
    def test_inverse_round_trip(self, alpha: float, n: float) -> None:
        assert alpha_for_efficiency(efficiency_bound(alpha, n=n), n=n) == pytest.approx(alpha, rel=1e-7)

    @pytest.mark.parametrize(("target", "n"), [(0.5, math.inf), (0.8, 2)])
    def test_easy_target_allows_kelly(self, target: float, n: float) -> None:
        assert alpha_for_efficiency(target, n=n) == 1.0

    @pytest.mark.parametrize(("alpha", "bound"), [(1.0, 0.5), (0.5, 2 / 3), (0.25, 0.8), (0.1, 1 / 1.1)])
    def test_revenue(self, alpha: float, bound: float) -> None:
        assert revenue_bound(alpha) == pytest.approx(bound, rel=1e-14)

    def test_liquid(self) -> None:
        assert liquid_bound() == 0.5

    @settings(max_examples=60, deadline=None)
    @given(agents(), ALPHAS)
    def test_hold_and_certificates_lie_between(self, make: Make, alpha: float) -> None:
        v = make()
        eq = solve(v, alpha)
        efficiency = v.value(eq.amounts).sum() / efficient(v).welfare
        certificate = efficiency_certificate(eq.shares, alpha)
        assert efficiency_bound(alpha, n=len(v)) - 1e-9 <= certificate <= efficiency + 1e-9
        assert efficiency <= 1 + 1e-9

    @settings(max_examples=40, deadline=None)
    @given(agents(), ALPHAS)
    def test_revenue_holds(self, make: Make, alpha: float) -> None:
        v = make()
        eq = solve(v, alpha)
        revenue = vcg(v).revenue
        certificate = revenue_certificate(eq.shares, alpha)
        assert eq.revenue >= certificate * revenue * (1 - 1e-8)
        assert certificate >= revenue_bound(alpha) - 1e-12


class TestTight:
    @pytest.mark.parametrize("alpha", [1.0, 0.5, 0.25, 0.1, 0.01])
    @pytest.mark.parametrize("n", [2, 3, 6, 50])
    def test_worst_case_attains_the_bound(self, alpha: float, n: int) -> None:
        v = worst_case_instance(alpha, n)
        assert len(v) == n
        eq = solve(v, alpha)
        efficiency = v.value(eq.amounts).sum() / efficient(v).welfare
        assert efficiency == pytest.approx(efficiency_bound(alpha, n=n), abs=1e-9)

    @pytest.mark.parametrize("alpha", [1.0, 0.3])
    def test_worst_case_is_the_stated_one(self, alpha: float) -> None:
        n = 4
        odds = math.sqrt(1 / alpha + 1 / 3) + 1 / 3
        small = 1 / (3 * odds + 2)
        slopes = worst_case_instance(alpha, n).marginal0()
        beta = (1 + alpha * small) / (1 + alpha * odds)
        np.testing.assert_allclose(slopes / slopes.max(), [1, beta, beta, beta], rtol=1e-12)
        eq = solve(worst_case_instance(alpha, n), alpha)
        assert eq.shares[0] == pytest.approx(odds / (1 + odds), rel=1e-9)

    @pytest.mark.parametrize("alpha", [1.0, 0.5, 0.1, 0.01])
    def test_two_equal_agents_attain_the_revenue_bound(self, alpha: float) -> None:
        v = Valuations.linear([1.0, 1.0])
        assert solve(v, alpha).revenue / vcg(v).revenue == pytest.approx(1 / (1 + alpha), abs=1e-9)
        assert revenue_certificate([0.5, 0.5], alpha) == pytest.approx(1 / (1 + alpha), rel=1e-12)

    @pytest.mark.parametrize(
        ("objective", "alpha", "limit", "within"), [("efficiency", 1.0, 0.828427, 0.02), ("revenue", 0.5, 2 / 3, 0.03)]
    )
    def test_search_comes_near_and_never_below(self, objective: str, alpha: float, limit: float, within: float) -> None:
        found = search_worst_case(objective, alpha, 2, segments=1, budget=3, seed=0)  # type: ignore[arg-type]
        assert limit - 1e-6 <= found.ratio <= limit + within


class TestCertificates:
    @pytest.mark.parametrize(("alpha", "value"), [(1.0, 0.839286), (0.5, 0.892857)])
    def test_known(self, alpha: float, value: float) -> None:
        assert efficiency_certificate([0.5, 0.3, 0.2], alpha) == pytest.approx(value, abs=6e-7)

    def test_slack(self) -> None:
        tight, loose = (efficiency_certificate([0.5, 0.3, 0.2], 0.5, slack=d) for d in (0.0, 0.1))
        assert loose == pytest.approx(tight * 0.9 / 1.1, rel=1e-12)

    def test_equal_shares_prove_efficiency(self) -> None:
        assert efficiency_certificate(np.full(5, 0.2), 1.0) == pytest.approx(1.0)

    def test_a_single_buyer(self) -> None:
        assert efficiency_certificate([1.0, 0.0], 0.5) == 1.0

    def test_shares_only_of_clearing(self) -> None:
        # the largest share .8, its markup 1 + .5 * 4 = 3, the other's 1.125
        assert efficiency_certificate([0.8, 0.2], 0.5) == pytest.approx((2.4 + 0.225) / 3, rel=1e-12)

    def test_revenue(self) -> None:
        assert revenue_certificate([0.5, 0.3, 0.2], 0.5) == pytest.approx(1 / 1.4, rel=1e-12)

    def test_unsold_capacity_is_no_credit(self) -> None:
        assert efficiency_certificate([0.4, 0.2], 0.5) < efficiency_certificate([0.4, 0.2, 0.4], 0.5)

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.floats(0.001, 1), min_size=2, max_size=8), ALPHAS)
    def test_never_below_the_bound(self, weights, alpha) -> None:  # type: ignore[no-untyped-def]
        shares = np.array(weights) / sum(weights)
        assert efficiency_bound(alpha, n=len(shares)) - 1e-12 <= efficiency_certificate(shares, alpha) <= 1 + 1e-12


@pytest.mark.untyped
class TestRefused:
    @pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, True])
    @pytest.mark.parametrize("run", [efficiency_bound, revenue_bound])
    def test_alpha(self, run, bad: object) -> None:  # type: ignore[no-untyped-def]
        with pytest.raises(ValueError, match=r"alpha must be in \[0, 1\]"):
            run(bad)

    @pytest.mark.parametrize("n", [1, 0, -2])
    def test_n(self, n: int) -> None:
        with pytest.raises(ValueError, match=r"\bn\b"):
            efficiency_bound(0.5, n=n)

    @pytest.mark.parametrize("target", [1.5, -0.1, math.nan])
    def test_target(self, target: float) -> None:
        with pytest.raises(ValueError, match="target"):
            alpha_for_efficiency(target)

    @pytest.mark.parametrize("run", [efficiency_certificate, revenue_certificate])
    @pytest.mark.parametrize("shares", [[0.5, -0.1], [0.9, 0.2], [0.5, math.nan], []])
    def test_shares(self, run, shares: list[float]) -> None:  # type: ignore[no-untyped-def]
        with pytest.raises(ValueError, match="shares"):
            run(shares, 0.5)

    @pytest.mark.parametrize("slack", [-0.1, 1.5, math.nan])
    def test_slack(self, slack: float) -> None:
        with pytest.raises(ValueError, match="slack"):
            efficiency_certificate([0.5, 0.3, 0.2], 0.5, slack=slack)

    def test_objective(self) -> None:
        with pytest.raises(ValueError, match="objective must be one of"):
            search_worst_case("speed", 0.5, 2)  # type: ignore[arg-type]

    def test_a_full_share_beside_another(self) -> None:
        with pytest.raises(ValueError, match="shares"):
            efficiency_certificate([1.0, 1e-10], 0.5)


def test_certificate_of_a_share_that_rounds_to_one() -> None:
    assert efficiency_certificate([1.0, 1e-40], 0.05) == 1.0
    with pytest.raises(ValueError, match="share of 1 beside"):
        efficiency_certificate([1.0, 1e-10], 0.05)
