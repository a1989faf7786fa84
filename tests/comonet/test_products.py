"""Bases and product banks: shapes for all parameters, in [0, 1], started near 1."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paperworks.comonet.products import ProductBank, merge_knots, shape_basis
from paperworks.comonet.shapes import Shape

SHAPED = [shape for shape in Shape if shape is not Shape.FREE]
KNOTS = torch.tensor([-1.5, -1.0, 0.25, 2.0], dtype=torch.float64)
LOW, HIGH = -2.0, 3.0


def violation(x: Tensor, y: Tensor, shape: Shape) -> float:
    """The largest breach of `shape` by the values y (points, …) at the increasing points x."""
    worst = torch.zeros((), dtype=y.dtype)
    if shape.monotonicity:
        worst = torch.maximum(worst, (-shape.monotonicity * y.diff(dim=0)).max())
    if shape.curvature:
        # With the weight of the points as they are, rounding of the grid does not count.
        weight = ((x[2:] - x[1:-1]) / (x[2:] - x[:-2])).reshape(-1, *[1] * (y.ndim - 1))
        chord = weight * y[:-2] + (1 - weight) * y[2:]
        worst = torch.maximum(worst, (shape.curvature * (y[1:-1] - chord)).max())
    return float(worst)


def randomised(bank: ProductBank, seed: int, scale: float = 2.0) -> ProductBank:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in bank.parameters():
            parameter.normal_(0, scale, generator=generator)
    return bank


def bank_of(*shapes: Shape, **options: object) -> ProductBank:
    domain = torch.tensor([[LOW, HIGH]] * len(shapes), dtype=torch.float64)
    return ProductBank(shapes, domain=domain, knots=[KNOTS] * len(shapes), **options)  # type: ignore[arg-type]


class TestBasis:
    @pytest.mark.parametrize("shape", SHAPED)
    def test_between_0_and_1_with_its_shape(self, shape: Shape) -> None:
        x = torch.linspace(LOW, HIGH, 1001, dtype=torch.float64)
        basis = shape_basis(x, LOW, HIGH, KNOTS, shape)
        assert basis.min() >= 0
        assert basis.max() <= 1
        assert violation(x, basis, shape) <= 1e-14
        torch.testing.assert_close(basis[:, 0], torch.ones_like(x))
        torch.testing.assert_close(
            basis[:, 1:].amax(0), torch.ones(basis.shape[1] - 1, dtype=x.dtype), atol=3e-3, rtol=0
        )

    @pytest.mark.parametrize("shape", SHAPED)
    def test_shape_everywhere_and_sign_where_promised(self, shape: Shape) -> None:
        x = torch.linspace(LOW - 4, HIGH + 4, 1001, dtype=torch.float64)
        basis = shape_basis(x, LOW, HIGH, KNOTS, shape)
        assert violation(x, basis, shape) <= 1e-14
        m, concave = shape.monotonicity, shape.curvature < 0
        inside = torch.full_like(x, True, dtype=torch.bool)
        if concave:
            inside = (x >= LOW if m >= 0 else inside) & (x <= HIGH if m <= 0 else inside)
            assert (basis[~inside] < 0).any()
        assert (basis[inside] >= 0).all()

    @pytest.mark.parametrize(
        ("shape", "size"),
        [
            (Shape.INCREASING, 6),
            (Shape.DECREASING, 6),
            (Shape.CONVEX_INCREASING, 6),
            (Shape.CONVEX_DECREASING, 6),
            (Shape.CONVEX, 11),
            (Shape.CONCAVE_INCREASING, 6),
            (Shape.CONCAVE_DECREASING, 6),
            (Shape.CONCAVE, 7),
        ],
    )
    def test_size(self, shape: Shape, size: int) -> None:
        assert shape_basis(torch.zeros(3, dtype=torch.float64), LOW, HIGH, KNOTS, shape).shape == (3, size)

    @pytest.mark.parametrize(
        ("shape", "values"),
        [
            (Shape.INCREASING, [1, 1, 0.5]),
            (Shape.DECREASING, [1, 0, 0.5]),
            (Shape.CONVEX_INCREASING, [1, 0.625, 0.5]),
            (Shape.CONVEX_DECREASING, [1, 0.375, 0]),
            (Shape.CONVEX, [1, 0.625, 0.5, 0.375, 0]),
            (Shape.CONCAVE_INCREASING, [1, 0.625, 1]),
            (Shape.CONCAVE_DECREASING, [1, 0.375, 0.5]),
            (Shape.CONCAVE, [1, 0.625, 0.375, 0.5]),
        ],
    )
    def test_values_by_hand(self, shape: Shape, values: list[float]) -> None:
        """At 2.5 on [0, 4] with one knot at 1."""
        basis = shape_basis(torch.tensor([2.5]), 0.0, 4.0, torch.tensor([1.0]), shape)
        assert sorted(basis[0].tolist()) == pytest.approx(sorted(values), abs=1e-6)

    @pytest.mark.parametrize(
        ("increasing", "decreasing"),
        [
            (Shape.CONVEX_INCREASING, Shape.CONVEX_DECREASING),
            (Shape.CONCAVE_INCREASING, Shape.CONCAVE_DECREASING),
            (Shape.INCREASING, Shape.DECREASING),
        ],
    )
    def test_mirrored(self, increasing: Shape, decreasing: Shape) -> None:
        x = torch.linspace(LOW, HIGH, 50, dtype=torch.float64)
        one = shape_basis(x, LOW, HIGH, KNOTS, increasing)
        other = shape_basis(-x, -HIGH, -LOW, -KNOTS.flip(0), decreasing)
        torch.testing.assert_close(one.sort(1).values, other.sort(1).values, rtol=0, atol=1e-14)

    def test_knots_that_a_cast_merges_leave_no_nan(self) -> None:
        knots = torch.tensor([1000.5, 1000.5])
        for shape in SHAPED:
            basis = shape_basis(torch.linspace(1000, 1001, 9), 1000.0, 1001.0, knots, shape)
            assert basis.isfinite().all()
            assert basis.min() >= 0
            assert basis.max() <= 1

    @pytest.mark.untyped
    def test_free_has_none(self) -> None:
        with pytest.raises(ValueError, match="shape must not be free"):
            shape_basis(torch.zeros(2), 0.0, 1.0, torch.zeros(0), Shape.FREE)


class TestMergeKnots:
    def test_repeated_outer_and_close_ones(self) -> None:
        knots = torch.tensor([0.5, 0.2, 0.5, 0.0, 1.0, -3.0, 7.0, 0.5 + 1e-9, 1 - 1e-9], dtype=torch.float64)
        assert merge_knots(knots, 0.0, 1.0).tolist() == [0.2, 0.5]

    def test_none_left(self) -> None:
        merged = merge_knots(torch.zeros(4), 0.0, 1.0)
        assert merged.shape == (0,)
        assert shape_basis(torch.zeros(2), 0.0, 1.0, merged, Shape.CONCAVE).shape == (2, 3)

    def test_a_bank_of_repeated_knots_has_the_functions_of_distinct_ones(self) -> None:
        shapes, domain = [Shape.CONVEX, Shape.INCREASING], torch.tensor([[0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
        few = torch.tensor([0.2, 0.7], dtype=torch.float64)
        one = ProductBank(shapes, domain=domain, knots=[few, few])
        other = ProductBank(shapes, domain=domain, knots=[few.repeat_interleave(3)] * 2)
        other.load_state_dict(one.state_dict())
        x = torch.rand(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        assert torch.equal(one(x), other(x))


class TestBank:
    @settings(max_examples=25)
    @given(
        shapes=st.lists(st.sampled_from(list(Shape)), min_size=1, max_size=4),
        seed=st.integers(0, 2**32 - 1),
        n_knots=st.integers(0, 6),
    )
    def test_all_shapes_for_all_parameters(self, shapes: list[Shape], seed: int, n_knots: int) -> None:
        rng = np.random.default_rng(seed)
        low = rng.normal(0, 3, len(shapes))
        domain = torch.from_numpy(np.stack([low, low + rng.uniform(0.01, 10, len(shapes))], 1))
        knots = [a + (b - a) * torch.from_numpy(rng.uniform(0, 1, n_knots).round(1)) for a, b in domain]
        bank = randomised(ProductBank(shapes, rank=3, width=4, domain=domain, knots=knots), seed)
        for j, shape in enumerate(shapes):
            points, lines = 41, 20
            x = domain[:, 0] + domain.diff(dim=1)[:, 0] * torch.from_numpy(
                rng.uniform(0, 1, (points, lines, len(shapes)))
            )
            x[...] = x[:1]
            grid = torch.linspace(0, 1, points, dtype=torch.float64) * domain[j].diff() + domain[j, 0]
            grid[-1] = domain[j, 1]
            x[:, :, j] = grid[:, None]
            rows = x.reshape(points * lines, -1)
            with torch.no_grad():
                y = bank(rows).reshape(points, lines)
                scale = bank.positive(rows, bank.domain).max() + bank.negative(rows, bank.domain).max()
            assert violation(grid, y, shape) <= 1e-12 * float(scale)

    def test_shapes_hold_on_all_that_is_guaranteed(self) -> None:
        """Beyond the domain, as far as `guaranteed` says; a convex column is bounded, as its negative bank is concave."""
        shapes = tuple(SHAPED)
        bank = randomised(bank_of(*shapes, rank=3), 5, scale=1.0)
        low, high = bank.guaranteed.T
        expected = {
            Shape.INCREASING: (-math.inf, math.inf),
            Shape.DECREASING: (-math.inf, math.inf),
            Shape.CONVEX: (LOW, HIGH),
            Shape.CONCAVE: (LOW, HIGH),
            Shape.CONVEX_INCREASING: (-math.inf, HIGH),
            Shape.CONVEX_DECREASING: (LOW, math.inf),
            Shape.CONCAVE_INCREASING: (LOW, math.inf),
            Shape.CONCAVE_DECREASING: (-math.inf, HIGH),
        }
        assert list(zip(low.tolist(), high.tolist(), strict=True)) == [expected[shape] for shape in shapes]
        low, high = low.clamp(min=LOW - 5), high.clamp(max=HIGH + 5)
        generator = torch.Generator().manual_seed(1)
        for j, shape in enumerate(shapes):
            base = low + (high - low) * torch.rand(50, len(shapes), dtype=torch.float64, generator=generator)
            x = base.repeat(61, 1, 1)
            grid = torch.linspace(float(low[j]), float(high[j]), 61, dtype=torch.float64)
            x[:, :, j] = grid[:, None]
            rows = x.reshape(-1, len(shapes))
            with torch.no_grad():
                y, scale = bank(rows).reshape(61, 50), bank.positive(rows, bank.domain).max()
                scale = scale + bank.negative(rows, bank.domain).max()
            assert violation(grid, y, shape) <= 1e-12 * float(scale)

    def test_a_convex_column_beyond_its_domain_breaks_another(self) -> None:
        """Why the domain bounds convex columns too."""
        bank = randomised(bank_of(Shape.CONVEX, Shape.INCREASING), 0)
        x = torch.tensor([[HIGH + 9, LOW], [HIGH + 9, HIGH]], dtype=torch.float64)
        with torch.no_grad():
            bank.positive.c.fill_(-800.0)
            bank.negative.theta["0"].fill_(1.0)
            assert bank(x).diff() < 0

    def test_monotone_to_the_last_bit(self) -> None:
        bank = randomised(bank_of(Shape.INCREASING, Shape.INCREASING, Shape.FREE), 3)
        x = LOW + (HIGH - LOW) * torch.rand(2000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        above = x.clone()
        above[:, 0] = torch.nextafter(x[:, 0], torch.full_like(x[:, 0], math.inf))
        with torch.no_grad():
            assert (bank(above) >= bank(x)).all()

    @pytest.mark.parametrize(
        ("values", "tolerance"),
        # Between the last knot and the end, the knots do not tell how long a tail is.
        [(np.linspace(1, 2, 4001), 0.001), (np.random.default_rng(0).gamma(2.0, size=4000), 0.2)],
        ids=["uniform", "gamma"],
    )
    def test_starts_with_means_of_1(self, values: np.ndarray, tolerance: float) -> None:
        x = torch.from_numpy(values)
        inner = torch.quantile(x, torch.arange(1, 13, dtype=torch.float64) / 13)
        domain = torch.stack([x.min(), x.max()]).repeat(len(SHAPED), 1)
        bank = ProductBank(SHAPED, rank=32, domain=domain, knots=[inner] * len(SHAPED))
        low, high = domain[0].tolist()
        for part in (bank.positive, bank.negative):
            assert torch.nn.functional.softplus(part.c).tolist() == pytest.approx([0.6 / 32] * 32)
            for j, shape in part.shaped.items():
                weight = torch.nn.functional.softplus(part.theta[str(j)]).detach()
                active = weight > 0.5 * weight.amax(1, keepdim=True)
                assert (active.sum(1) == math.ceil(weight.shape[1] / 2)).all()
                phi = shape_basis(x, low, high, part.get_buffer(f"knots_{j}"), shape) @ weight.T
                assert phi.mean(0).tolist() == pytest.approx([1] * 32, abs=tolerance)

    def test_free_columns_start_near_1(self) -> None:
        bank = bank_of(Shape.FREE, Shape.FREE, rank=64)
        x = LOW + (HIGH - LOW) * torch.rand(500, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        gamma = torch.nn.functional.softplus(bank.positive.gamma(bank.positive.standardised(x, bank.domain)))
        assert 0.8 < gamma.mean() < 1.4
        assert gamma.min() >= 0

    def test_seeds_and_the_global_generator(self) -> None:
        before = torch.random.get_rng_state()
        shapes = (Shape.FREE, Shape.CONVEX)
        x = torch.rand(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        one, same, other = (
            bank_of(*shapes, generator=torch.Generator().manual_seed(seed))(x).detach() for seed in (1, 1, 2)
        )
        assert torch.equal(one, same)
        assert not torch.equal(one, other)
        assert torch.equal(before, torch.random.get_rng_state())

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_state_dict_dtype_and_gradient(self, dtype: torch.dtype) -> None:
        shapes = (Shape.FREE, Shape.CONCAVE, Shape.DECREASING)
        bank = randomised(bank_of(*shapes), 0, scale=0.5).to(dtype)
        x = torch.rand(9, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
        again = bank_of(*shapes).to(dtype)
        again.load_state_dict(bank.state_dict())
        assert bank(x).dtype == dtype
        assert bank(x).shape == (9,)
        assert torch.equal(again(x), bank(x))
        bank(x).sum().backward()
        assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in bank.parameters())

    def test_learns_a_convex_times_a_concave_column(self) -> None:
        """No sum of a function convex in x and one concave in y can be 4x²√y."""
        generator = torch.Generator().manual_seed(0)
        x = torch.rand(400, 2, dtype=torch.float64, generator=generator)
        y = 4 * x[:, 0] ** 2 * x[:, 1].sqrt()
        knots = [torch.linspace(0, 1, 14, dtype=torch.float64)[1:-1]] * 2
        shapes = [Shape.CONVEX_INCREASING, Shape.CONCAVE_INCREASING]
        domain = torch.tensor([[0.0, 1.0]] * 2, dtype=torch.float64)
        bank = ProductBank(shapes, rank=4, domain=domain, knots=knots, generator=generator)
        solver = torch.optim.LBFGS(bank.parameters(), max_iter=100, history_size=20, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            solver.zero_grad()
            error = (bank(x) - y).square().mean()
            error.backward()
            return error

        solver.step(loss)
        assert float(loss().detach()) < 0.002 * float(y.var())


@pytest.mark.untyped
class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"rank": 0}, ValueError, "rank must be at least 1, got 0"),
            ({"width": 1.5}, TypeError, "width must be an integer"),
            ({"domain": torch.zeros(2, 2)}, ValueError, r"domain must have shape \(1, 2\), got \(2, 2\)"),
            ({"domain": torch.tensor([[0, 1]])}, TypeError, "domain must be floating point"),
            ({"domain": torch.tensor([[1.0, 1.0]])}, ValueError, r"low < high, got \[1.0, 1.0\] for column 0"),
            ({"domain": torch.tensor([[0.0, math.inf]])}, ValueError, "domain must be finite"),
            ({"knots": []}, ValueError, "knots must have one entry for each of the 1 columns, got 0"),
            ({"shapes": ["wavy"]}, ValueError, "wavy"),
        ],
    )
    def test_refused(self, change: dict[str, object], error: type[Exception], message: str) -> None:
        good = {"shapes": [Shape.CONVEX], "domain": torch.tensor([[0.0, 1.0]]), "knots": [torch.tensor([0.5])]}
        with pytest.raises(error, match=message):
            ProductBank(**(good | change))  # type: ignore[arg-type]
