"""Sets of agents' valuations: values, marginals, anticipated demand, construction and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.allocation.valuations import Valuations, from_table


def mixed() -> Valuations:
    """One agent a family, so that every formula is exercised in one set."""
    return (
        Valuations.linear([2.0], names=["lin"])
        + Valuations.log([3.0], [0.5], names=["log"])
        + Valuations.power([1.5], [0.5], names=["pow"])
        + Valuations.saturating([2.0], [0.7], names=["sat"])
        + Valuations.quadratic([4.0], [0.8], names=["quad"])
        + Valuations.piecewise([[(0, 0), (0.25, 1.0), (1.0, 1.75)]], names=["pw"])
    )


class TestFormulas:
    def test_values_of_every_family(self) -> None:
        q = 0.4
        expected = [
            2 * q,
            3 * math.log(1 + q / 0.5),
            1.5 * q**0.5,
            2 * (1 - math.exp(-q / 0.7)),
            4 * (q - q * q / 1.6),
            1.0 + (q - 0.25) * 1.0,
        ]
        np.testing.assert_allclose(mixed().value(np.full(6, q)), expected, rtol=1e-13)

    def test_marginals_of_every_family(self) -> None:
        q = 0.4
        expected = [
            2.0,
            3 / (0.5 + q),
            0.75 / math.sqrt(q),
            2 / 0.7 * math.exp(-q / 0.7),
            4 * (1 - q / 0.8),
            1.0,
        ]
        np.testing.assert_allclose(mixed().marginal(np.full(6, q)), expected, rtol=1e-13)

    def test_nothing_is_worth_nothing(self) -> None:
        np.testing.assert_array_equal(mixed().value(np.zeros(6)), np.zeros(6))

    def test_marginal_at_zero(self) -> None:
        expected = [2.0, 6.0, math.inf, 2 / 0.7, 4.0, 4.0]
        np.testing.assert_allclose(mixed().marginal0(), expected, rtol=1e-13)

    def test_satiation(self) -> None:
        expected = [math.inf, math.inf, math.inf, math.inf, 0.8, 1.0]
        np.testing.assert_allclose(mixed().satiation(), expected, rtol=1e-13)

    def test_flat_beyond_satiation(self) -> None:
        v = Valuations.quadratic([4.0], [0.8]) + Valuations.piecewise([[(0, 0), (0.25, 1.0), (1.0, 1.75)]])
        np.testing.assert_allclose(v.value(np.array([5.0, 5.0])), [1.6, 1.75], rtol=1e-13)
        np.testing.assert_array_equal(v.marginal(np.array([5.0, 5.0])), [0.0, 0.0])

    def test_sides_of_a_kink(self) -> None:
        v = Valuations.piecewise([[(0, 0), (0.5, 2.0), (1.0, 2.5)]])
        at = np.array([0.5])
        assert v.marginal(at, side="left") == pytest.approx([4.0])
        assert v.marginal(at, side="right") == pytest.approx([1.0])
        assert v.marginal(at) == pytest.approx([1.0])

    def test_power_one_is_linear(self) -> None:
        q = np.array([0.3, 0.6])
        power, linear = Valuations.power([2.0, 3.0], 1.0), Valuations.linear([2.0, 3.0])
        np.testing.assert_allclose(power.value(q), linear.value(q))
        np.testing.assert_allclose(power.marginal0(), linear.marginal0())

    def test_segment_of_slope_zero_is_satiation(self) -> None:
        v = Valuations.piecewise([[(0, 0), (0.5, 2.0), (1.0, 2.0)]])
        assert v.satiation() == pytest.approx([0.5])

    def test_zero_width_segments_are_merged(self) -> None:
        v = Valuations.piecewise([[(0, 0), (0.5, 2.0), (0.5, 2.0), (1.0, 2.5)]])
        assert v.value(np.array([0.75])) == pytest.approx([2.25])
        assert v.marginal(np.array([0.5]), side="left") == pytest.approx([4.0])

    @settings(max_examples=30, deadline=None)
    @given(st.floats(0.02, 0.98))
    def test_marginal_is_the_derivative(self, q: float) -> None:
        if abs(q - 0.25) < 1e-3 or abs(q - 0.8) < 1e-3:
            return
        h = 1e-6
        at = np.full(6, q)
        slope = (mixed().value(at + h) - mixed().value(at - h)) / (2 * h)
        np.testing.assert_allclose(mixed().marginal(at), slope, rtol=1e-6, atol=1e-8)


class TestDemand:
    @pytest.mark.parametrize("alpha", [1.0, 0.5, 0.1])
    @pytest.mark.parametrize("capacity", [1.0, 0.6])
    @pytest.mark.parametrize("price", [0.05, 0.4, 1.1, 3.0])
    def test_marginal_value_equals_marked_up_price(self, alpha: float, capacity: float, price: float) -> None:
        v = mixed()
        s = v.demand(price, alpha, capacity)
        assert s.shape == (6,)
        assert np.all((s >= 0) & (s < 1))
        markup = 1 + alpha * s / (1 - s)
        left = capacity * v.marginal(capacity * s, side="left")
        right = capacity * v.marginal(capacity * s, side="right")
        assert np.all(right <= price * markup * (1 + 1e-8))
        bought = s > 0
        assert np.all(left[bought] >= (price * markup * (1 - 1e-8))[bought])

    @pytest.mark.parametrize("family", ["linear", "log", "power", "saturating", "quadratic", "piecewise", "callable"])
    @pytest.mark.parametrize("alpha", [1.0, 0.3, 0.0])
    def test_many_prices_at_once(self, family: str, alpha: float) -> None:
        rng = np.random.default_rng(2)
        a, b = rng.exponential(size=3) + 0.1, rng.exponential(size=3) + 0.1
        v = {
            "linear": lambda: Valuations.linear(a),
            "log": lambda: Valuations.log(a, b),
            "power": lambda: Valuations.power(a, 1 / (1 + b)),
            "saturating": lambda: Valuations.saturating(a, b),
            "quadratic": lambda: Valuations.quadratic(a, b),
            "piecewise": lambda: Valuations.piecewise(
                [[(0, 0), (0.4, s), (1, s + t)] for s, t in zip(a, a / 9, strict=True)]
            ),
            "callable": lambda: Valuations.from_callable([lambda q, s=s: s * np.log1p(q) for s in a]),
        }[family]()
        prices = np.geomspace(0.02, 1.2, 25 if family != "callable" else 6) * v.marginal(np.full(3, 0.05)).max()
        rows = [v.demand(float(price), alpha, 1.0) for price in prices]
        np.testing.assert_allclose(v.demand(prices[:, None], alpha, 1.0), rows, rtol=1e-6, atol=1e-12)
        markup = prices[:, None] * (1 + alpha * np.array(rows) / np.maximum(1 - np.array(rows), 1e-300))
        smooth = (np.array(rows) > 1e-9) & (np.array(rows) < 1 - 1e-9) & (family not in ("linear", "piecewise"))
        marginal = v.marginal(np.array(rows))
        np.testing.assert_allclose(marginal[smooth], markup[smooth], rtol=1e-6)

    def test_linear_closed_form(self) -> None:
        alpha, price, c = 0.25, 1.3, np.array([3.0, 2.0, 1.0])
        expected = np.maximum(c - price, 0) / (c - (1 - alpha) * price)
        np.testing.assert_allclose(Valuations.linear(c).demand(price, alpha, 1.0), expected, rtol=1e-13)

    def test_log_closed_form(self) -> None:
        alpha, price, capacity = 0.5, 1.7, 2.0
        a, b = np.array([1.0, 2.0, 0.1]), np.array([0.2, 0.5, 4.0])
        bh = capacity / b
        k = a * bh / price
        q1 = bh - (1 - alpha) + k
        root = q1 + np.sqrt(np.maximum(q1**2 - 4 * (1 - alpha) * bh * (k - 1), 0))
        expected = np.maximum(2 * (k - 1) / root, 0)
        got = Valuations.log(a, b).demand(price, alpha, capacity)
        np.testing.assert_allclose(got, expected, rtol=1e-12)
        assert got[2] == 0.0

    @settings(max_examples=30, deadline=None)
    @given(st.floats(0.01, 8.0), st.floats(1.0, 3.0), st.sampled_from([1.0, 0.5, 0.05]))
    def test_demand_falls_with_the_price(self, price: float, factor: float, alpha: float) -> None:
        v = mixed()
        assert np.all(v.demand(price * factor, alpha, 1.0) <= v.demand(price, alpha, 1.0) + 1e-10)

    @settings(max_examples=30, deadline=None)
    @given(st.floats(0.01, 8.0), st.floats(0.05, 1.0))
    def test_demand_falls_with_alpha(self, price: float, alpha: float) -> None:
        v = mixed()
        assert np.all(v.demand(price, 1.0, 1.0) <= v.demand(price, alpha, 1.0) + 1e-10)

    def test_callables_agree_with_the_closed_form(self) -> None:
        log = Valuations.log([1.0, 2.0], [0.1, 2 / 3])
        called = Valuations.from_callable([lambda q: np.log1p(q / 0.1), lambda q: 2 * np.log1p(q * 1.5)])
        for price in (0.3, 1.0, 2.5):
            np.testing.assert_allclose(
                called.demand(price, 0.5, 1.0), log.demand(price, 0.5, 1.0), rtol=1e-5, atol=1e-9
            )


class TestConstruction:
    def test_sum_keeps_order_names_and_budgets(self) -> None:
        v = Valuations.linear([1.0], names=["a"], budgets=[3.0]) + Valuations.log(
            [1.0], [2.0], names=["b"], budgets=[5]
        )
        assert list(v.names) == ["a", "b"]
        np.testing.assert_array_equal(v.budgets, [3.0, 5.0])
        assert len(v) == 2

    def test_arrays_broadcast(self) -> None:
        v = Valuations.log([1.0, 2.0, 3.0], 0.5)
        np.testing.assert_allclose(v.marginal0(), [2.0, 4.0, 6.0])

    def test_default_names_are_distinct(self) -> None:
        names = Valuations.linear([1.0, 2.0, 3.0]).names
        assert len(set(names)) == 3

    def test_subset(self) -> None:
        v = mixed()
        sub = v.subset(np.array([False, True, False, False, True, True]))
        assert list(sub.names) == ["log", "quad", "pw"]
        q = np.array([0.1, 0.2, 0.3])
        np.testing.assert_allclose(sub.value(q), v.value(np.array([0, 0.1, 0, 0, 0.2, 0.3]))[[1, 4, 5]])

    def test_samples_are_repaired_to_the_least_concave_majorant(self) -> None:
        with pytest.warns(UserWarning, match=r"not concave.*13.9%"):
            v = Valuations.from_samples([[0, 1, 2, 4, 6]], [[0, 1.0, 0.9, 1.203, 1.1]])
        np.testing.assert_allclose(v.value(np.array([2.0])), [1 + 0.203 / 3], rtol=1e-12)
        np.testing.assert_allclose(v.value(np.array([6.0])), [1.203], rtol=1e-12)
        assert float(np.max(v.repair_gap)) == pytest.approx((1 + 0.203 / 3 - 0.9) / 1.203, rel=1e-12)

    def test_small_repair_is_silent(self) -> None:
        v = Valuations.from_samples([[0, 1, 2, 3]], [[0, 1.0, 1.5, 2.01]])
        np.testing.assert_allclose(v.value(np.array([2.0])), [1.505], rtol=1e-12)

    def test_concave_samples_stay(self) -> None:
        v = Valuations.from_samples([[0, 1, 2]], [[0, 2.0, 3.0]])
        np.testing.assert_allclose(v.value(np.array([1.5])), [2.5])
        assert float(np.max(v.repair_gap)) == 0.0

    def test_given_derivative_is_used(self) -> None:
        v = Valuations.from_callable([lambda q: 3 * np.log1p(q)], [lambda q: 3 / (1 + q)])
        np.testing.assert_allclose(v.marginal(np.array([0.5])), [2.0], rtol=1e-13)

    def test_derivative_is_computed(self) -> None:
        v = Valuations.from_callable([lambda q: 3 * np.log1p(q)])
        np.testing.assert_allclose(v.marginal(np.array([0.5])), [2.0], rtol=1e-6)


class TestTable:
    ROWS = (
        "agent,budget,family,a,b,p,points\n"
        "nlp,10,log,3,2,,\n"
        "vision,,linear,2,,,\n"
        "speech,5,power,1.5,,0.5,\n"
        "robots,,saturating,2,0.7,,\n"
        "maps,,quadratic,4,0.8,,\n"
        'ads,7,piecewise,,,,"0:0;2:1.9;4:3.5"\n'
    )

    def test_file(self, tmp_path) -> None:  # type: ignore[no-untyped-def]
        path = tmp_path / "agents.csv"
        path.write_text(self.ROWS)
        v = from_table(path)
        assert list(v.names) == ["nlp", "vision", "speech", "robots", "maps", "ads"]
        np.testing.assert_array_equal(v.budgets, [10, math.inf, 5, math.inf, math.inf, 7])
        q = np.full(6, 0.4)
        expected = [3 * math.log(1.2), 0.8, 1.5 * 0.4**0.5, 2 * (1 - math.exp(-0.4 / 0.7)), 4 * 0.3, 0.38]
        np.testing.assert_allclose(v.value(q), expected, rtol=1e-12)

    def test_frame(self) -> None:
        v = from_table(pd.DataFrame({"agent": ["x", "y"], "family": ["linear", "linear"], "a": [1.0, 2.0]}))
        assert list(v.names) == ["x", "y"]
        np.testing.assert_allclose(v.marginal0(), [1.0, 2.0])

    @pytest.mark.untyped
    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("agent,a\nx,1\n", r"family"),
            ("agent,family,a\nx,linear,1\ny,cubic,2\n", r"(?s)(3.*family|family.*3).*cubic|cubic.*3"),
            ("agent,family,a,b\nx,log,1,2\ny,log,1,\n", r"(?s)3.*\bb\b|\bb\b.*3"),
            ("agent,family,a\nx,linear,1\nx,linear,2\n", r"x"),
            ("agent,family,a\n", r"at least one agent"),
            ("agent,family,points\nx,piecewise,0:0;1:1;2:5\n", r"concave"),
        ],
    )
    def test_bad_file_names_row_and_column(self, tmp_path, text: str, says: str) -> None:  # type: ignore[no-untyped-def]
        path = tmp_path / "agents.csv"
        path.write_text(text)
        with pytest.raises(ValueError, match=says):
            from_table(path)


@pytest.mark.untyped
class TestRefused:
    def test_convex_points(self) -> None:
        with pytest.raises(ValueError, match=r"not concave near q=.*from_samples"):
            Valuations.piecewise([[(0, 0), (1, 1), (2, 3)]])

    def test_decreasing_points(self) -> None:
        with pytest.raises(ValueError, match=r"q="):
            Valuations.piecewise([[(0, 0), (1, 1), (2, 0.5)]])

    def test_points_not_from_zero(self) -> None:
        with pytest.raises(ValueError, match=r"0"):
            Valuations.piecewise([[(0, 1), (1, 2)]])

    def test_samples_without_repair(self) -> None:
        with pytest.raises(ValueError, match="not concave near q="):
            Valuations.from_samples([[0, 1, 2]], [[0, 1.0, 3.0]], repair=False)

    def test_convex_callable(self) -> None:
        with pytest.raises(ValueError, match="not concave near q="):
            Valuations.from_callable([lambda q: q**2]).demand(0.5, 0.5, 1.0)

    def test_decreasing_callable(self) -> None:
        with pytest.raises(ValueError, match="q="):
            Valuations.from_callable([lambda q: q - q**2]).demand(0.5, 0.5, 1.0)

    def test_callable_not_zero_at_zero(self) -> None:
        with pytest.raises(ValueError, match="0"):
            Valuations.from_callable([lambda q: 1 + np.log1p(q)]).demand(0.5, 0.5, 1.0)

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_callable_not_finite(self, bad: float) -> None:
        with pytest.raises(ValueError, match="q"):
            Valuations.from_callable([lambda q: np.where(q > 0.5, bad, q)]).demand(0.5, 0.5, 1.0)

    def test_duplicate_names(self) -> None:
        with pytest.raises(ValueError, match="'x'"):
            Valuations.linear([1.0, 2.0], names=["x", "x"])

    def test_duplicate_names_in_a_sum(self) -> None:
        with pytest.raises(ValueError, match="'x'"):
            Valuations.linear([1.0], names=["x"]) + Valuations.linear([2.0], names=["x"])

    def test_wrong_number_of_names(self) -> None:
        with pytest.raises(ValueError, match="names"):
            Valuations.linear([1.0, 2.0], names=["x"])

    def test_wrong_number_of_budgets(self) -> None:
        with pytest.raises(ValueError, match="budgets"):
            Valuations.linear([1.0, 2.0], budgets=[1.0])

    def test_negative_budget(self) -> None:
        with pytest.raises(ValueError, match=r"budgets.* must be non-negative"):
            Valuations.linear([1.0, 2.0], budgets=[1.0, -1.0])

    def test_lengths_differ(self) -> None:
        with pytest.raises(ValueError, match=r"length|shape|broadcast"):
            Valuations.log([1.0, 2.0], [1.0, 2.0, 3.0])

    def test_empty(self) -> None:
        with pytest.raises(ValueError, match="empty"):
            Valuations.linear([])

    @pytest.mark.parametrize("slope", [-1.0, math.nan, math.inf])
    def test_bad_slope(self, slope: float) -> None:
        with pytest.raises(ValueError, match=r"\ba\b"):
            Valuations.linear([1.0, slope])

    @pytest.mark.parametrize("scale", [0.0, -1.0, math.nan])
    def test_bad_scale(self, scale: float) -> None:
        with pytest.raises(ValueError, match=r"\bb\b"):
            Valuations.log([1.0], [scale])

    @pytest.mark.parametrize("power", [0.0, 1.5, math.nan])
    def test_bad_power(self, power: float) -> None:
        with pytest.raises(ValueError, match=r"\bp\b"):
            Valuations.power([1.0], [power])

    def test_not_numeric(self) -> None:
        with pytest.raises(TypeError, match=r"\ba\b"):
            Valuations.linear(["one", "two"])

    @pytest.mark.parametrize("capacity", [0.0, -1.0, math.nan])
    def test_bad_capacity(self, capacity: float) -> None:
        with pytest.raises(ValueError, match="capacity must be positive"):
            Valuations.linear([1.0]).demand(0.5, 0.5, capacity)


def test_no_samples() -> None:
    with pytest.raises(ValueError, match="q and v must not be empty"):
        Valuations.from_samples([], [])


def test_points_closer_than_their_values_have_digits() -> None:
    # Between the middle points the slope is 2.2, an artefact of rounding.
    points = [(0, 0), (0.5, 1.0), (0.5 + 4e-16, 1.0 + 9e-16), (1, 1.2)]
    agents = Valuations.piecewise([points])
    assert agents.marginal0() == pytest.approx(2.0)
    assert agents.value(0.75) == pytest.approx(1.1, rel=1e-12)
    with pytest.raises(ValueError, match="not concave"):
        Valuations.piecewise([[(0, 0), (0.5, 1.0), (0.5 + 1e-9, 1.0 + 1e-8), (1, 1.2)]])
