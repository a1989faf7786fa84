from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from paperworks.comonet.units import (
    CONVEX_UNITS,
    MONOTONE_UNITS,
    POSITIVE_MAPS,
    ROUTING,
    PositiveLinear,
    convex_units,
    group_max,
    group_min,
    init_log_normal,
    log_mean_exp,
    monotone_units,
    positive_map,
    relu_n,
)

GRID = torch.linspace(-30, 30, 4001, dtype=torch.float64)


def test_routing_keeps_every_invariant() -> None:
    sign = {"free": "±", "r": "±", "increasing": "+", "e": "+"}
    for source, to_convex, to_concave in [
        ("convex", "±", None),
        ("convex_increasing", "+", None),
        ("z", "+", None),
        ("concave", None, "±"),
        ("concave_increasing", None, "+"),
        ("k", None, "+"),
    ]:
        assert [ROUTING[source, t] for t in ("r", "e", "z", "k")] == [None, None, to_convex, to_concave]
        assert ROUTING[source, "output"] == (to_convex or to_concave)
    for source, expected in sign.items():
        assert {ROUTING[source, t] for t in ("e", "z", "k", "output")} == {expected}
    assert ROUTING["free", "r"] == ROUTING["r", "r"] == "±"
    assert ROUTING["increasing", "r"] is ROUTING["e", "r"] is None
    assert len(ROUTING) == 50


@pytest.mark.parametrize("name", POSITIVE_MAPS)
def test_positive_maps_are_nonnegative_and_inverted(name: str) -> None:
    forward, inverse = positive_map(name)
    assert bool((forward(GRID) >= 0).all())
    weight = torch.logspace(-6, 2, 50, dtype=torch.float64)
    torch.testing.assert_close(forward(inverse(weight)), weight)


def test_exp_neither_overflows_nor_hides_nan() -> None:
    values = positive_map("exp").forward(torch.tensor([1e30, -800.0, math.nan], dtype=torch.float64))
    assert float(values[0]) == math.exp(8)
    assert float(values[1]) == 0.0
    assert math.isnan(values[2])


@pytest.mark.parametrize("name", [*CONVEX_UNITS, *MONOTONE_UNITS])
def test_units_are_nondecreasing_and_convex_ones_convex_along_rays(name: str) -> None:
    make = convex_units if name in CONVEX_UNITS else monotone_units
    units = make(name, width=5, pieces=3)
    generator = torch.Generator().manual_seed(1)
    slope, shift = torch.randn(2, 20, sum(units.sizes), generator=generator, dtype=torch.float64)
    for k, sign in ((units, 1), (units.mirror(), -1)):
        rising = k((GRID[:, None, None] * slope.abs() + shift).reshape(-1, slope.shape[1])).reshape(len(GRID), 20, 5)
        assert float(rising.diff(dim=0).min()) >= 0
        if name in CONVEX_UNITS:
            line = k((GRID[:, None, None] * slope + shift).reshape(-1, slope.shape[1])).reshape(len(GRID), 20, 5)
            assert float((sign * line.diff(n=2, dim=0)).min()) >= -1e-13 * float(line.abs().max())


def test_mirror_is_minus_of_minus() -> None:
    a = torch.randn(50, 12, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for name in CONVEX_UNITS:
        units = convex_units(name, width=12 // (3 if name in ("maxout", "lse") else 1), pieces=3)
        torch.testing.assert_close(units.mirror()(a), -units(-a), rtol=0, atol=0)
        assert units.mirror().mirror() == units


def test_group_functions_take_consecutive_entries() -> None:
    a = torch.tensor([[1.0, 4.0, 2.0, -1.0]])
    assert group_max(a, 2).tolist() == [[4.0, 2.0]]
    assert group_min(a, 2).tolist() == [[1.0, -1.0]]
    assert float(log_mean_exp(torch.full((1, 3), 2.5), 3)) == pytest.approx(2.5)
    assert relu_n(torch.tensor([-2.0, 0.5, 3.0])).tolist() == pytest.approx([-0.02, 0.5, 1.02])


@pytest.mark.parametrize("name", [*CONVEX_UNITS, *MONOTONE_UNITS])
def test_units_along_another_dimension(name: str) -> None:
    units = (convex_units if name in CONVEX_UNITS else monotone_units)(name, width=5, pieces=3)
    a = torch.randn(2, 7, sum(units.sizes), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for one in (units, units.mirror()):
        torch.testing.assert_close(one(a.mT, dim=-2), one(a).mT)


# torch itself compiles its rules for forward mode in a way that it deprecates.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("group", [group_max, group_min])
def test_derivatives_of_extrema(group: Callable[[Tensor, int], Tensor]) -> None:
    a = torch.randn(4, 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: group(t, 3), a, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(lambda t: group(t, 3), a)
    tied = torch.tensor([2.0, 2.0, 2.0, 2.0], dtype=torch.float64)
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(
            jacobian(lambda t: group(t, 2))(tied), torch.eye(2).double().repeat_interleave(2, 1) / 2
        )
    rows = torch.func.vmap(torch.func.jacrev(lambda t: group(t, 3).prod()))(a.detach())
    torch.testing.assert_close(rows, torch.autograd.grad(group(a, 3).prod(1).sum(), a)[0])


def test_minmax_and_mixed_have_two_halves() -> None:
    a = torch.arange(6.0)[None]
    assert monotone_units("minmax", width=3, pieces=2)(a).tolist() == [[1.0, 3.0, 4.0]]
    assert monotone_units("mixed", width=2)(torch.tensor([[-1.0, -2.0]])).tolist() == [[0.0, -2.0]]
    assert monotone_units("minmax", width=1, pieces=2)(a[:, :2]).tolist() == [[1.0]]


@pytest.mark.parametrize(("n", "bias"), [(8, -0.6846), (32, -0.7249), (128, -0.7361)])
def test_initial_constants(n: int, bias: float) -> None:
    init = init_log_normal(n)
    assert init.bias == pytest.approx(bias, abs=5e-5)
    assert math.exp(init.log_mean + init.log_std**2 / 2) == pytest.approx(init.mean)
    assert math.expm1(init.log_std**2) * init.mean**2 == pytest.approx(1 / n)


@pytest.mark.parametrize("n", [1, 8, 32, 128])
def test_correlated_standard_normals_are_a_fixed_point(n: int) -> None:
    init = init_log_normal(n)
    mean, square = 1 / math.sqrt(2 * math.pi), 1 / 2
    product = (math.sqrt(3) / 2 + math.pi / 3) / (2 * math.pi)  # E relu(a) relu(a') at correlation 1/2
    uncentred = n * (1 / n + init.mean**2) * square + n * (n - 1) * init.mean**2 * product
    assert n * init.mean * mean + init.bias == pytest.approx(0)
    assert uncentred - init.bias**2 == pytest.approx(1)


@pytest.mark.parametrize("n", [8, 32])
@pytest.mark.parametrize("name", [*CONVEX_UNITS, *MONOTONE_UNITS])
def test_initialisation_passes_on_mean_variance_and_correlation(name: str, n: int) -> None:
    units = (convex_units if name in CONVEX_UNITS else monotone_units)(name, width=n)
    generator = torch.Generator().manual_seed(1)
    shared, own = (torch.randn(8000, k, generator=generator, dtype=torch.float64) for k in (1, sum(units.sizes)))
    layer = PositiveLinear([n], [], 1000, moments=[units.moments()], generator=generator, dtype=torch.float64)
    with torch.no_grad():
        a = layer(units((shared + own) / math.sqrt(2)))
    assert abs(float(a.mean())) < 0.05
    assert float(a.var()) == pytest.approx(1, abs=0.1)
    # What all outputs share is the layer's mean over them.
    assert float(a.mean(1).var()) == pytest.approx(0.5, abs=0.05)


def test_signed_weights_pass_on_variance() -> None:
    generator = torch.Generator().manual_seed(1)
    units = torch.randn(8000, 32, generator=generator, dtype=torch.float64).relu()
    moments = convex_units("relu", width=32).moments()
    layer = PositiveLinear([], [32], 1000, moments=[moments], generator=generator, dtype=torch.float64)
    with torch.no_grad():
        assert float(layer(units).var()) == pytest.approx(1, abs=0.1)


def test_moments_of_units_are_those_of_correlated_normals() -> None:
    mean = 1 / math.sqrt(2 * math.pi)
    product = (math.sqrt(3) / 2 + math.pi / 3) / (2 * math.pi)
    relu = (mean, 1 / 2, 1 / 2 - mean**2, product - mean**2)
    assert convex_units("relu", width=4).moments() == pytest.approx(relu, abs=0.015)
    # The maximum of four standard normals has mean 1.02938 and variance 0.49172; the shared half is added to it.
    maxout = convex_units("maxout", width=4, pieces=4)
    expected = (1.02938 / math.sqrt(2), 1.02938**2 / 2 + 0.74586, 0.74586, 0.5)
    assert maxout.moments() == pytest.approx(expected, abs=0.03)
    assert maxout.mirror().moments() == pytest.approx((-maxout.moments().mean, *maxout.moments()[1:]))
    assert monotone_units("minmax", width=4).moments().mean == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("positivity", POSITIVE_MAPS)
def test_positive_linear_draws_the_same_weights_under_every_map(positivity: str) -> None:
    def layer(name: str) -> PositiveLinear:
        generator = torch.Generator().manual_seed(3)
        return PositiveLinear([3, 2], [4], 6, positivity=name, generator=generator, dtype=torch.float64)

    mine = layer(positivity)
    torch.testing.assert_close(mine.weight, layer("exp").weight)
    assert bool((mine.weight[:, :5] >= 0).all())
    assert bool((mine.weight[:, 5:] < 0).any())


def test_positive_linear_survives_copies_and_pickle() -> None:
    layer = PositiveLinear([3], [2], 4, generator=torch.Generator().manual_seed(4))
    x = torch.ones(2, 5)
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x), layer(x))


@pytest.mark.untyped
@pytest.mark.parametrize("name", ["selu", "GELU", "silu", "mish"])
def test_units_that_break_shapes_are_named_so(name: str) -> None:
    with pytest.raises(ValueError, match=f"unit '{name}' is not convex and nondecreasing"):
        convex_units(name, width=2)


@pytest.mark.untyped
def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"unit must be one of 'relu'.*'maxpool'"):
        convex_units("maxpool", width=2)
    with pytest.raises(ValueError, match=r"mono_unit must be one of 'relu_n'.*'tanh'"):
        monotone_units("tanh", width=2)
    with pytest.raises(ValueError, match=r"positivity must be one of 'exp'.*'relu'"):
        PositiveLinear([1], [], 1, positivity="relu")
    with pytest.raises(ValueError, match="pieces must be at least 1, got 0"):
        convex_units("maxout", width=2, pieces=0)
    with pytest.raises(TypeError, match=r"width must be an integer, got 2\.0"):
        convex_units("maxout", width=2.0)  # type: ignore[arg-type]
