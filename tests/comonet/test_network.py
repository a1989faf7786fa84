from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paperworks.comonet.network import COMONet
from paperworks.comonet.shapes import Shape
from paperworks.comonet.units import CONVEX_UNITS, MONOTONE_UNITS, POSITIVE_MAPS, ROUTING

GROUPS = [shape for shape in Shape if shape.monotonicity >= 0]
LINES, STEPS = 24, 33


SEED = st.integers(0, 2**31 - 1)


def random_net(shapes: Sequence[Any], seed: int, std: float | None = 2.0, **options: Any) -> COMONet:
    """Return a float64 network with all parameters drawn from N(0, std²), or as they are initialised."""
    generator = torch.Generator().manual_seed(seed)
    net = COMONet(shapes, generator=generator, dtype=torch.float64, **options)
    if std is not None:
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.normal_(0, std, generator=generator)
    return net


def values(net: COMONet, x: Tensor) -> Tensor:
    with torch.no_grad():
        return net(x.reshape(-1, x.shape[-1])).reshape(x.shape[:-1])


def lines(net: COMONet, column: int, seed: int) -> Tensor:
    """Return values on lines through random points along a column, shape (lines, steps)."""
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.randn(LINES, 1, len(net.shapes), generator=generator, dtype=torch.float64).repeat(1, STEPS, 1)
    x[:, :, column] = torch.linspace(-4, 4, STEPS, dtype=torch.float64)
    return values(net, x)


def assert_shaped(net: COMONet, seed: int) -> None:
    for j, shape in enumerate(net.shapes):
        y = lines(net, j, seed)
        scale = float(y.abs().max()) + 1
        assert float((shape.monotonicity * y.diff(dim=1)).min()) >= -1e-12 * scale
        assert float((shape.curvature * y.diff(n=2, dim=1)).min()) >= -1e-12 * scale


@given(
    shapes=st.lists(st.sampled_from(Shape), min_size=1, max_size=6),
    seed=SEED,
    unit=st.sampled_from(list(CONVEX_UNITS)),
    mono_unit=st.sampled_from(list(MONOTONE_UNITS)),
    positivity=st.sampled_from(list(POSITIVE_MAPS)),
    depth=st.integers(1, 3),
    std=st.sampled_from([2.0, None]),
)
@settings(max_examples=25)
def test_every_network_has_its_shapes(shapes: list[Shape], seed: int, std: float | None, **options: Any) -> None:
    assert_shaped(random_net(shapes, seed, std, width=4, pieces=2, **options), seed)


@pytest.mark.parametrize(
    ("unit", "mono_unit", "positivity"),
    [
        *itertools.product(CONVEX_UNITS, MONOTONE_UNITS, ["exp"]),
        *(("lse", "minmax", name) for name in POSITIVE_MAPS if name != "exp"),
    ],
)
def test_every_choice_has_all_nine_shapes(unit: str, mono_unit: str, positivity: str) -> None:
    options = {"unit": unit, "mono_unit": mono_unit, "positivity": positivity}
    assert_shaped(random_net(list(Shape), 5, width=5, **options), 7)


def test_the_check_of_shapes_can_fail() -> None:
    net = random_net(["convex", "convex increasing"], 0, None, width=4)
    net.shapes = (Shape.CONCAVE, Shape.CONVEX_INCREASING)
    with pytest.raises(AssertionError):
        assert_shaped(net, 0)


def dependencies(net: COMONet, x: Tensor) -> dict[str, set[str]]:
    """Return which groups move each stream of the last layer and the output, by perturbation."""
    found: dict[str, set[str]] = {}
    seen: dict[str, Tensor] = {}
    hooks = [
        layer.register_forward_hook(lambda _m, _i, out, name=name: seen.__setitem__(name, out))
        for name, layer in {**dict(net.layers[-1].items()), "output": net.output}.items()  # type: ignore[operator, dict-item]
    ]
    values(net, x)
    base = dict(seen)
    for group, columns in net.groups.items():
        moved = x.clone()
        moved[:, list(columns)] += torch.linspace(-1.5, 1.5, len(x), dtype=x.dtype)[:, None]
        values(net, moved)
        for name, out in seen.items():
            if not torch.equal(out, base[name]):
                found.setdefault(name, set()).add(str(group))
    for hook in hooks:
        hook.remove()
    return found


def reachable(groups: Sequence[str]) -> dict[str, set[str]]:
    """Return the groups from which ROUTING leads to each stream that exists, and to the output."""
    reach = {group: {group} for group in groups}
    owners = {
        "r": {"free"},
        "e": {"increasing"},
        "z": {"convex", "convex_increasing"},
        "k": {"concave", "concave_increasing"},
    }
    targets = [name for name, own in owners.items() if own & set(groups)] + ["output"]
    for target in targets:
        sources = [source for source in reach if ROUTING[source, target]]
        reach[target] = set().union(*(reach[source] for source in sources))
    return {target: reach[target] for target in targets}


SUBSETS = [subset for n in range(1, 7) for subset in itertools.combinations(map(str, GROUPS), n)]


def test_each_stream_depends_on_exactly_the_groups_the_routing_names() -> None:
    assert len(SUBSETS) == 63
    for subset in SUBSETS:
        net = random_net(subset, 1, None, width=3, pieces=2)
        x = torch.randn(40, len(subset), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        assert dependencies(net, x) == reachable(subset), subset


def test_signs_of_the_effective_weights_are_those_of_the_routing() -> None:
    net = random_net(list(Shape), 3)
    for streams in net._streams:
        for target, layer in streams.items():
            start = 0
            for source, size in zip(layer.sources, (*layer.linear.positive, *layer.linear.signed), strict=True):
                block, start = layer.linear.weight[:, start : start + size], start + size
                assert bool((block >= 0).all()) == (ROUTING[source, target] == "+"), (source, target)


@given(shapes=st.lists(st.sampled_from(Shape), min_size=1, max_size=5), seed=SEED)
@settings(max_examples=20)
def test_reflecting_a_column_with_its_shape_changes_nothing(shapes: list[Shape], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    center, scale = torch.randn(len(shapes), generator=generator), torch.rand(len(shapes), generator=generator) + 0.1
    net = random_net(shapes, seed, width=3, center=center, scale=scale)
    flip = torch.tensor([1.0 if shape.monotonicity == 0 else -1.0 for shape in shapes], dtype=torch.float64)
    mirrored = [Shape.of(-shape.monotonicity, shape.curvature) for shape in shapes]
    other = random_net(mirrored, seed, width=3, center=center * flip, scale=scale)
    x = torch.randn(10, len(shapes), generator=generator, dtype=torch.float64)
    assert torch.equal(values(net, x), values(other, x * flip))


@pytest.mark.parametrize("mono_unit", MONOTONE_UNITS)
@pytest.mark.parametrize("unit", ["relu", "maxout"])
def test_monotone_to_the_last_bit(unit: str, mono_unit: str) -> None:
    shapes = ["inc", "dec", "cvx inc", "cvx dec", "ccv inc", "ccv dec", "free", "cvx", "ccv"]
    net = random_net(shapes, 9, None, unit=unit, mono_unit=mono_unit, center=0.1, scale=0.7)
    x = 2 * torch.randn(500, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    before = values(net, x)
    for j, shape in enumerate(net.shapes[:6]):
        up = x.clone()
        for _ in range(2):
            up[:, j] = torch.nextafter(up[:, j], torch.tensor(math.inf, dtype=torch.float64))
            assert float((shape.monotonicity * (values(net, up) - before)).min()) >= 0.0


@given(seed=SEED, depth=st.integers(1, 3), unit=st.sampled_from(["relu", "softplus"]))
@settings(max_examples=15)
def test_separable_units_have_mixed_differences_of_one_sign(seed: int, depth: int, unit: str) -> None:
    shapes = ["cvx inc", "cvx dec", "inc", "cvx", "ccv dec", "ccv inc", "ccv", "dec"]
    net = random_net(shapes, seed, unit=unit, width=4, depth=depth)
    generator = torch.Generator().manual_seed(seed)
    low, high = (2 * torch.randn(2, 50, len(shapes), generator=generator, dtype=torch.float64)).sort(0).values
    pairs = list(itertools.combinations(range(len(shapes)), 2))
    corners = low.repeat(len(pairs), 2, 2, 1, 1)
    for corner, (i, j) in zip(corners, pairs, strict=True):
        corner[1, :, :, i] = high[:, i]
        corner[:, 1, :, j] = high[:, j]
    for (i, j), at in zip(pairs, values(net, corners), strict=True):
        mixed, tol = at[1, 1] + at[0, 0] - at[1, 0] - at[0, 1], 1e-12 * (1 + float(at.abs().max()))
        groups = {net.shapes[i].group, net.shapes[j].group}
        sign = net.shapes[i].monotonicity * net.shapes[j].monotonicity
        if groups in ({"convex_increasing"}, {"convex_increasing", "increasing"}):
            assert float((sign * mixed).min()) >= -tol
        elif groups in ({"concave_increasing"}, {"concave_increasing", "increasing"}):
            assert float((sign * mixed).max()) <= tol
        elif {group.curvature for group in groups} == {1, -1}:
            assert float(mixed.abs().max()) <= tol


def max_of_two(shapes: Sequence[str]) -> COMONet:
    net = COMONet(shapes, width=1, depth=1, pieces=2, center=0, scale=1, dtype=torch.float64)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        hidden = net._streams[0]["z" if "convex_increasing" in net.groups else "k"].linear
        hidden.theta.copy_(torch.tensor([[0.0, -800.0], [-800.0, 0.0]]))
        sources = net.output.sources  # type: ignore[union-attr]
        skip = [-800.0 if source in net.groups else 0.0 for source in sources for _ in net.groups.get(source, (0,))]
        net.output.linear.theta.copy_(torch.tensor([skip]))  # type: ignore[union-attr]
    return net


def test_one_maxout_unit_is_the_maximum_and_one_minout_unit_the_minimum() -> None:
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.equal(values(max_of_two(["convex increasing"] * 2), x), x.amax(1))
    assert torch.equal(values(max_of_two(["concave increasing"] * 2), x), x.amin(1))


@pytest.mark.parametrize("interactions", ["additive", "product", "both"])
def test_state_dict_copies_and_pickle_give_equal_bits(interactions: str) -> None:
    shapes, box = ["cvx inc", "ccv", "free", "dec"], [[-2.0, 2.0]] * 4
    net = random_net(shapes, 1, None, interactions=interactions, domain=box, center=[0, 1, 2, 3], scale=2)
    other = random_net(shapes, 2, None, interactions=interactions, domain=box)
    x = torch.rand(20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert not torch.equal(values(other, x), values(net, x))
    other.load_state_dict(net.state_dict())
    for twin in (other, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(values(twin, x), values(net, x))


@pytest.mark.parametrize("interactions", ["product", "both"])
def test_products_keep_shapes_on_the_domain(interactions: str) -> None:
    net = random_net(list(Shape), 3, 1.0, interactions=interactions, domain=[[-8, 8]] * 9, product_rank=3)
    x = torch.randn(LINES, 1, 9, generator=torch.Generator().manual_seed(4), dtype=torch.float64).clamp(-8, 8)
    for j, shape in enumerate(net.shapes):
        line = x.repeat(1, STEPS, 1)
        line[:, :, j] = torch.linspace(-8, 8, STEPS, dtype=torch.float64)
        y = values(net, line)
        assert float((shape.monotonicity * y.diff(dim=1)).min()) >= -1e-12 * float(y.abs().max())
        assert float((shape.curvature * y.diff(n=2, dim=1)).min()) >= -1e-12 * float(y.abs().max())


@pytest.mark.parametrize(
    ("unit", "mono_unit", "interactions"),
    [
        *itertools.product(CONVEX_UNITS, MONOTONE_UNITS, ["additive"]),
        *itertools.product(["lse"], ["minmax"], ["product", "both"]),
    ],
)
def test_the_graph_computes_what_the_network_computes(unit: str, mono_unit: str, interactions: str) -> None:
    options: dict[str, Any] = {"unit": unit, "mono_unit": mono_unit, "width": 3, "interactions": interactions}
    net = random_net(list(Shape), 6, None, domain=[[-3, 3]] * 9, center=0.3, scale=1.7, **options)
    x = torch.rand(30, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 4 - 2
    torch.testing.assert_close(net.to_graph().evaluate(x), values(net, x), rtol=1e-12, atol=1e-12)
    assert (net.to_graph().domain is None) == (interactions == "additive")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_derivatives(dtype: torch.dtype) -> None:
    net = COMONet(list(Shape), unit="lse", width=3, generator=torch.Generator().manual_seed(0)).to(dtype)
    x = torch.randn(6, 9, generator=torch.Generator().manual_seed(1)).to(dtype)
    assert net(x).dtype == dtype
    gradient = torch.func.vmap(torch.func.jacrev(lambda row: net(row[None])[0]))(x)
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(gradient, torch.autograd.grad(net(leaf).sum(), leaf)[0])
    signs = torch.tensor([shape.monotonicity for shape in net.shapes])
    assert bool((gradient * signs >= 0).all())
    hessian = torch.func.jacrev(torch.func.jacrev(lambda row: net(row[None])[0]))(x[0])
    curvature = torch.tensor([shape.curvature for shape in net.shapes])
    assert float((hessian.detach().diagonal() * curvature).min()) >= -1e-6
    params = dict(net.named_parameters())
    per_row = torch.func.vmap(lambda row: torch.func.functional_call(net, params, (row[None],))[0])(x)
    torch.testing.assert_close(per_row, net(x))


def test_same_seed_same_network_and_the_global_generator_is_left_alone() -> None:
    state = torch.random.get_rng_state()
    one, two = (random_net(list(Shape), 5, None).state_dict() for _ in range(2))
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_groups_routing_and_size() -> None:
    net = COMONet(list(Shape), width=8, generator=torch.Generator().manual_seed(0))
    assert net.groups == {
        "free": (0,),
        "increasing": (1, 2),
        "convex": (3,),
        "concave": (4,),
        "convex_increasing": (5, 6),
        "concave_increasing": (7, 8),
    }
    assert sum(parameter.numel() for parameter in net.parameters()) == 3042
    assert "e ← +e ±r" in repr(net)
    assert "z ← +convex_increasing +e +z ±convex ±r" in repr(net)
    assert set(COMONet(["convex"], depth=1)._streams[0]) == {"z"}


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"shapes": []}, ValueError, "shapes must have one entry a column"),
        ({"shapes": "convex"}, ValueError, "shapes must have one entry a column, got 'convex'"),
        ({"shapes": ["up"]}, ValueError, "'up' is unknown"),
        ({"width": 0}, ValueError, "width must be at least 1, got 0"),
        ({"depth": 0}, ValueError, "depth must be at least 1, got 0"),
        ({"depth": 1.5}, TypeError, r"depth must be an integer, got 1\.5"),
        ({"pieces": 0}, ValueError, "pieces must be at least 1, got 0"),
        ({"unit": "gelu"}, ValueError, "not convex and nondecreasing"),
        ({"mono_unit": "relu"}, ValueError, "mono_unit must be one of"),
        ({"positivity": "relu", "interactions": "product"}, ValueError, "positivity must be one of"),
        ({"interactions": "all"}, ValueError, "interactions must be one of 'additive', 'product', 'both', got 'all'"),
        ({"interactions": "both"}, ValueError, "domain must be given"),
        ({"interactions": "both", "domain": [[0, 1]]}, ValueError, r"domain must have shape \(2, 2\)"),
        ({"interactions": "both", "domain": [[0, 1], [1, 1]]}, ValueError, "low < high.*column 1"),
        ({"interactions": "both", "domain": [[0, 1]] * 2, "product_rank": 0}, ValueError, "product_rank"),
        ({"interactions": "both", "domain": [[0, 1]] * 2, "product_knots": 0}, ValueError, "product_knots"),
        ({"scale": 0}, ValueError, r"scale must be positive, got 0\.0"),
        ({"scale": [1, 2, 3]}, ValueError, "scale must have length 2, got 3"),
        ({"center": [0, np.nan]}, ValueError, "center must be finite, got nan"),
    ],
)
def test_bad_input(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        COMONet(**({"shapes": ["convex", "free"]} | options))


@pytest.mark.untyped
def test_wrong_number_of_columns() -> None:
    with pytest.raises(ValueError, match="x must have 2 columns, got 3"):
        COMONet(["convex", "free"])(torch.zeros(1, 3))


@pytest.mark.parametrize("unit", ["relu", "maxout", "lse"])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_outputs_start_on_the_scale_of_standardised_targets(unit: str, depth: int) -> None:
    x = torch.randn(500, 9, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    spread = [float(values(random_net(list(Shape), seed, None, unit=unit, depth=depth), x).std()) for seed in range(12)]
    assert 0.6 < sum(spread) / len(spread) < 1.6
