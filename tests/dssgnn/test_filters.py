from __future__ import annotations

import copy
import math
import pickle
import warnings
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import chebyshev, legendre
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from paperworks.dssgnn.filters import (
    BASES,
    PRIORS,
    ChebProp,
    GraphPolynomialFilter,
    from_chebyshev,
    normalized_shift,
    prior_coefficients,
    response,
    to_chebyshev,
)

GRID = torch.linspace(-1, 1, 2001, dtype=torch.float64)
SEED = st.integers(0, 2**31 - 1)


def rand(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def undirected(pairs: Any) -> Tensor:
    edges = torch.as_tensor(pairs, dtype=torch.long).reshape(-1, 2).T
    return torch.cat([edges, edges.flip(0)], dim=1)


def path(n: int) -> Tensor:
    return undirected([(i, i + 1) for i in range(n - 1)])


def random_edges(seed: int, n: int, p: float = 0.4) -> Tensor:
    upper = torch.rand(n, n, generator=torch.Generator().manual_seed(seed)).triu(1)
    return undirected(((upper > 0) & (upper < p)).nonzero())


def shift_of(edge_index: Tensor, **options: Any) -> Tensor:
    return normalized_shift(edge_index, dtype=torch.float64, **options)


def plain_series(u: Tensor, theta: Tensor, shift: Tensor) -> Tensor:
    """Sum the series with nothing but differentiable dense operations."""
    terms = [u, torch.einsum("ij,jpc->ipc", shift, u)]
    for _ in range(2, theta.shape[1]):
        terms.append(2 * torch.einsum("ij,jpc->ipc", shift, terms[-1]) - terms[-2])
    return sum((theta[:, k, None] * terms[k] for k in range(theta.shape[1])), torch.zeros_like(u))


def jacobi(degree: int, a: float, b: float, x: Tensor) -> Tensor:
    """Return the Jacobi polynomials up to a degree at x by their three-term recurrence, shape (degree + 1, points)."""
    values = [torch.ones_like(x), (a + 1) + (a + b + 2) * (x - 1) / 2]
    for n in range(2, degree + 1):
        s = 2 * n + a + b
        linear = (s - 1) * (s * (s - 2) * x + a * a - b * b) * values[-1]
        values.append((linear - 2 * (n + a - 1) * (n + b - 1) * s * values[-2]) / (2 * n * (n + a + b) * (s - 2)))
    return torch.stack(values[: degree + 1])


def basis_values(basis: str, degree: int, a: float, b: float, x: Tensor) -> Tensor:
    points, k = x.numpy(), range(degree + 1)
    match basis:
        case "chebyshev":
            return torch.from_numpy(chebyshev.chebvander(points, degree).T)
        case "monomial":
            return torch.stack([x**j for j in k])
        case "bernstein":
            return torch.stack([math.comb(degree, j) * ((1 - x) / 2) ** j * ((1 + x) / 2) ** (degree - j) for j in k])
        case "jacobi":
            return jacobi(degree, a, b, x)
    return torch.from_numpy(legendre.legvander(points, degree).T)


# Bases


@given(basis=st.sampled_from(BASES), degree=st.integers(0, 20), seed=SEED, a=st.floats(-0.5, 3), b=st.floats(-0.5, 3))
@settings(max_examples=40)
def test_conversion_keeps_the_response_and_is_undone(basis: str, degree: int, seed: int, a: float, b: float) -> None:
    theta = rand(seed, 2, degree + 1)
    values = basis_values(basis, degree, a, b, GRID)
    scale = float(values.abs().max())
    converted = to_chebyshev(theta, basis, a=a, b=b)
    torch.testing.assert_close(response(converted, GRID), theta @ values, rtol=0, atol=1e-11 * scale)
    back = from_chebyshev(converted, basis, a=a, b=b)
    torch.testing.assert_close(response(to_chebyshev(back, basis, a=a, b=b), GRID), theta @ values, rtol=0, atol=1e-8)
    torch.testing.assert_close(
        to_chebyshev(from_chebyshev(theta, basis, a=a, b=b), basis, a=a, b=b), theta, atol=1e-8, rtol=0
    )


def test_known_conversions() -> None:
    cubic = to_chebyshev(torch.tensor([0.0, 0.0, 0.0, 1.0]).double(), "monomial")
    torch.testing.assert_close(cubic, torch.tensor([0.0, 0.75, 0.0, 0.25]).double())
    p2 = to_chebyshev(torch.tensor([0.0, 0.0, 1.0]).double(), "legendre")
    torch.testing.assert_close(p2, torch.tensor([0.25, 0.0, 0.75]).double())
    torch.testing.assert_close(
        to_chebyshev(torch.tensor([0.0, 1.0]).double(), "jacobi", a=2.0, b=0.0), torch.tensor([1.0, 2.0]).double()
    )
    torch.testing.assert_close(
        to_chebyshev(torch.arange(5.0).double(), "bernstein"), torch.tensor([2.0, -2.0, 0.0, 0.0, 0.0]).double()
    )
    theta = rand(0, 3, 6)
    torch.testing.assert_close(to_chebyshev(theta, "jacobi", a=0.0, b=0.0), to_chebyshev(theta, "legendre"))
    assert torch.equal(to_chebyshev(theta, "chebyshev"), theta)
    assert to_chebyshev(theta.float(), "bernstein").dtype == torch.float32


def test_conversion_and_response_are_differentiable() -> None:
    theta = rand(1, 2, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: to_chebyshev(t, "bernstein"), theta)
    assert torch.autograd.gradcheck(lambda t: response(t, GRID[::400]), theta)


def test_response_is_the_chebyshev_series_in_any_shape() -> None:
    theta, x = rand(2, 2, 3, 8), rand(3, 4, 5).tanh()
    expected = chebyshev.chebval(x.numpy(), theta.movedim(-1, 0).numpy())
    torch.testing.assert_close(response(theta, x), torch.from_numpy(np.asarray(expected)))
    assert response(theta[0, 0], torch.tensor(1.0).double()).item() == pytest.approx(theta[0, 0].sum().item())
    assert response(theta[..., :1], x).shape == (2, 3, 4, 5)


# Priors


@pytest.mark.parametrize(
    ("K", "error"), [(2, 1.398e-1), (4, 1.178e-2), (6, 5.417e-4), (8, 1.542e-5), (10, 2.960e-7), (12, 4.081e-9)]
)
def test_heat_kernel_error(K: int, error: float) -> None:
    found = (response(prior_coefficients("heat", K, t=3.0), GRID) - torch.exp(-3 * (1 - GRID))).abs().max()
    assert float(found) == pytest.approx(error, rel=5e-4)


def test_known_priors() -> None:
    heat = prior_coefficients("heat", 10, t=2.0)
    assert heat[:4].tolist() == pytest.approx([0.30850832, 0.43053858, 0.18647807, 0.05758245], abs=5e-9)
    assert bool((heat > 0).all())
    ppr = prior_coefficients("ppr", 10)
    x = torch.tensor([-1, -0.5, 0, 0.5, 1], dtype=torch.float64)
    assert response(ppr, x).tolist() == pytest.approx([0.38295852, 0.06928254, 0.1, 0.18209678, 1], abs=5e-9)
    assert ppr[:5].tolist() == pytest.approx([0.27928945, 0.22680584, 0.26006188, 0.06508416, 0.10930375], abs=5e-9)
    assert ppr.dtype == torch.float64
    assert response(prior_coefficients("highpass", 4), x).tolist() == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert response(prior_coefficients("identity", 4), x).tolist() == [1.0] * 5
    torch.testing.assert_close(response(prior_coefficients("mix", 10), x), (1 + response(ppr, x)) / 2)
    assert prior_coefficients("ppr", 0).tolist() == [1.0]
    assert prior_coefficients("heat", 2, t=0.0).tolist() == [1.0, 0.0, 0.0]


@given(alpha=st.floats(0.01, 1), K=st.integers(0, 20))
def test_ppr_is_a_sum_of_walks_and_one_where_smooth(alpha: float, K: int) -> None:
    found = response(prior_coefficients("ppr", K, alpha=alpha), GRID)
    walk = (1 - alpha) * GRID
    torch.testing.assert_close(found, alpha * sum((walk**k for k in range(K)), torch.zeros(())) + walk**K)
    assert float(found[-1]) == pytest.approx(1)


# The shift


@pytest.mark.parametrize("n", [2, 3, 8, 30])
def test_spectrum_of_a_path(n: int) -> None:
    shift = shift_of(path(n), self_loops=False)
    assert shift.layout == torch.sparse_csr
    found = torch.linalg.eigvalsh(shift.to_dense()).flip(0)
    torch.testing.assert_close(found, torch.cos(math.pi * torch.arange(n).double() / (n - 1)))


@given(seed=SEED, n=st.integers(1, 12), self_loops=st.booleans())
@settings(max_examples=30)
def test_shift_is_the_normalised_adjacency(seed: int, n: int, self_loops: bool) -> None:
    edges = random_edges(seed, n, 0.3)
    half = rand(seed, edges.shape[1] // 2).abs()
    shift = shift_of(edges, edge_weight=torch.cat([half, half]), num_nodes=n, self_loops=self_loops)
    dense = torch.zeros(n, n, dtype=torch.float64)
    dense[edges[0], edges[1]] = torch.cat([half, half])
    dense += torch.eye(n) * self_loops
    scale = torch.where(dense.sum(1) > 0, dense.sum(1) ** -0.5, 0.0)
    found = shift.to_dense()
    torch.testing.assert_close(found, scale[:, None] * dense * scale)
    assert torch.equal(found, found.T)
    assert float(torch.linalg.eigvalsh(found).abs().max()) <= 1 + 1e-12


@given(seed=SEED)
@settings(max_examples=15)
def test_shift_does_not_depend_on_order_or_layout(seed: int) -> None:
    edges = random_edges(seed, 9)
    weight = (edges.sum(0) + 1).double()
    expected = normalized_shift(edges, weight, num_nodes=9).to_dense()
    order = torch.randperm(edges.shape[1], generator=torch.Generator().manual_seed(seed))
    assert torch.equal(normalized_shift(edges[:, order], weight[order], num_nodes=9).to_dense(), expected)
    coo = torch.sparse_coo_tensor(edges, weight, (9, 9), check_invariants=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse (CSR|CSC) tensor support is in beta", UserWarning)
        layouts = [coo, coo.coalesce(), coo.to_sparse_csr(), coo.to_sparse_csc()]
    for adjacency in layouts:
        assert torch.equal(normalized_shift(adjacency).to_dense(), expected)


def test_repeated_edges_and_self_loops_are_merged_with_one_warning() -> None:
    edges = torch.tensor([[0, 1, 0, 1, 0, 2, 2], [1, 0, 1, 2, 1, 1, 2]])
    weight = torch.tensor([1.0, 4.0, 4.0, 2.0, 3.0, 2.0, 9.0])
    with pytest.warns(UserWarning, match=r"has 2 repeated edges.*largest weight.* and 1 self loops") as caught:
        found = normalized_shift(edges, weight)
    assert len(caught) == 1
    clean = normalized_shift(undirected([(0, 1), (1, 2)]), torch.tensor([4.0, 2.0, 4.0, 2.0]))
    assert torch.equal(found.to_dense(), clean.to_dense())
    doubled = torch.sparse_coo_tensor(edges, weight, (3, 3), check_invariants=True)
    with pytest.warns(UserWarning, match="has 2 repeated edges"):
        assert torch.equal(normalized_shift(doubled).to_dense(), clean.to_dense())


def test_directed_input_is_symmetrised_with_the_larger_weight() -> None:
    edges, weight = torch.tensor([[0, 1, 2], [1, 0, 1]]), torch.tensor([1.0, 5.0, 2.0])
    expected = normalized_shift(undirected([(0, 1), (1, 2)]), torch.tensor([5.0, 2.0, 5.0, 2.0])).to_dense()
    with pytest.warns(UserWarning, match="directed"):
        assert torch.equal(normalized_shift(edges, weight).to_dense(), expected)
    assert torch.equal(normalized_shift(edges, weight, assume_undirected=True).to_dense(), expected)
    with pytest.warns(UserWarning, match="directed"):
        unequal = normalized_shift(edges[:, :2], weight[:2], self_loops=False)
    assert unequal.to_dense().tolist() == [[0, 1], [1, 0]]
    once = normalized_shift(path(4)[:, :3], assume_undirected=True)
    assert torch.equal(once.to_dense(), normalized_shift(path(4)).to_dense())


def test_dtypes_of_the_shift() -> None:
    edges = path(3)
    assert normalized_shift(edges).dtype == torch.float32
    assert normalized_shift(edges).col_indices().dtype == torch.int32
    assert normalized_shift(edges.int(), torch.ones(4, dtype=torch.int64)).dtype == torch.float32
    assert normalized_shift(edges, torch.ones(4).double()).dtype == torch.float64
    assert normalized_shift(edges, torch.ones(4, requires_grad=True), dtype=torch.float64).dtype == torch.float64
    for size in (1e-320, 1e300):
        extreme = normalized_shift(edges, torch.full((4,), size, dtype=torch.float64), self_loops=False)
        assert bool(extreme.values().isfinite().all())


# Propagation


@given(seed=SEED, degree=st.integers(0, 12))
@settings(max_examples=15)
def test_propagation_equals_the_spectral_filter(seed: int, degree: int) -> None:
    shift, u, theta = shift_of(random_edges(seed, 8), num_nodes=8), rand(seed, 8, 3, 2), rand(seed + 1, 3, degree + 1)
    values, vectors = torch.linalg.eigh(shift.to_dense())
    spectrum = torch.einsum("pi,ipc->ipc", response(theta, values), torch.einsum("ji,jpc->ipc", vectors, u))
    expected = torch.einsum("ji,ipc->jpc", vectors, spectrum)
    torch.testing.assert_close(ChebProp.apply(u, theta, shift), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 7])
def test_gradients(degree: int) -> None:
    shift = shift_of(random_edges(4, 6), num_nodes=6)
    u, theta = rand(5, 6, 3, 2).requires_grad_(), rand(6, 3, degree + 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda *args: ChebProp.apply(*args, shift), (u, theta))
    weight, dense = rand(7, 6, 3, 2), shift.to_dense()
    found = torch.autograd.grad((weight * ChebProp.apply(u, theta, shift).tanh()).sum(), (u, theta))
    expected = torch.autograd.grad((weight * plain_series(u, theta, dense).tanh()).sum(), (u, theta))
    torch.testing.assert_close(found, expected)
    for one in (u, theta):
        alone = torch.autograd.grad(
            ChebProp.apply(*(t if t is one else t.detach() for t in (u, theta)), shift).square().sum(), one
        )[0]
        both = torch.autograd.grad(ChebProp.apply(u, theta, dense).square().sum(), one)[0]
        torch.testing.assert_close(alone, both)


def test_input_is_not_overwritten_and_need_not_be_contiguous() -> None:
    shift, theta = shift_of(path(5)), rand(8, 3, 6)
    u = rand(9, 2, 3, 5).permute(2, 1, 0)
    before = u.clone()
    found = ChebProp.apply(u, theta, shift)
    assert torch.equal(u, before)
    torch.testing.assert_close(found, plain_series(u, theta, shift.to_dense()))


def test_second_derivatives_are_refused() -> None:
    u = rand(10, 4, 1, 1).requires_grad_()
    filtered = ChebProp.apply(u, rand(11, 1, 4), shift_of(path(4)))
    with pytest.raises(RuntimeError, match="ChebProp cannot be differentiated twice"):
        torch.autograd.grad(filtered.square().sum(), u, create_graph=True)


class LiveTensors(TorchDispatchMode):
    """Count the storages of one size that are alive at the same time."""

    def __init__(self, numel: int) -> None:
        super().__init__()
        self.numel, self.peak, self.alive = numel, 0, weakref.WeakSet[Any]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.layout == torch.strided and out.numel() == self.numel:
            self.alive.add(out.untyped_storage())
            self.peak = max(self.peak, len({storage.data_ptr() for storage in self.alive}))
        return out


def test_memory_does_not_depend_on_the_degree() -> None:
    shift, u = shift_of(path(50)), rand(12, 50, 3, 2).requires_grad_()

    def use(degree: int, plain: bool = False, learn: bool = True) -> tuple[int, int]:
        theta = rand(13, 3, degree + 1).requires_grad_(learn)
        saved: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            if tensor.layout == torch.strided and tensor.numel() == u.numel():
                saved[tensor.data_ptr()] = tensor.numel()
            return tensor

        with LiveTensors(u.numel()) as live:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                out = plain_series(u, theta, shift.to_dense()) if plain else ChebProp.apply(u, theta, shift)
            if not plain:
                out.sum().backward()
        return len(saved), live.peak

    assert use(4) == use(40)
    assert use(40)[0] == 1
    assert use(40, learn=False)[0] == 0
    assert 3 <= use(40)[1] <= 8
    assert min(use(40, plain=True)) >= 40


@given(seed=SEED, n=st.integers(1, 10), self_loops=st.booleans())
@settings(max_examples=20)
def test_permutation_equivariance(seed: int, n: int, self_loops: bool) -> None:
    edges, u, theta = random_edges(seed, n), rand(seed, n, 2, 3), rand(seed + 1, 2, 8)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    place = order.argsort()
    found = ChebProp.apply(u[order], theta, shift_of(place[edges], num_nodes=n, self_loops=self_loops))
    expected = ChebProp.apply(u, theta, shift_of(edges, num_nodes=n, self_loops=self_loops))[order]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


def test_disjoint_graphs_do_not_mix() -> None:
    one, two, u, theta = path(4), random_edges(14, 5), rand(15, 9, 2, 3), rand(16, 2, 6)
    together = ChebProp.apply(u, theta, shift_of(torch.cat([one, two + 4], dim=1), num_nodes=9))
    parts = [ChebProp.apply(u[:4], theta, shift_of(one)), ChebProp.apply(u[4:], theta, shift_of(two, num_nodes=5))]
    torch.testing.assert_close(together, torch.cat(parts))


@pytest.mark.parametrize("n", [0, 1, 5])
def test_isolated_nodes(n: int) -> None:
    nothing, u, theta = torch.zeros(2, 0, dtype=torch.long), rand(17, n, 2, 3), rand(18, 2, 5)
    smooth = response(theta, torch.ones(1).double())
    torch.testing.assert_close(ChebProp.apply(u, theta, shift_of(nothing, num_nodes=n)), smooth * u)
    bare = (theta[:, 0] - theta[:, 2] + theta[:, 4])[:, None]
    torch.testing.assert_close(ChebProp.apply(u, theta, shift_of(nothing, num_nodes=n, self_loops=False)), bare * u)


def test_edges_of_weight_zero_are_no_edges() -> None:
    shift = normalized_shift(path(3), torch.tensor([0.0, 1.0, 0.0, 1.0]), self_loops=False)
    assert shift.to_dense().tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0]]


def test_an_isolated_node_beside_a_graph() -> None:
    u, theta = rand(19, 4, 2, 3), rand(20, 2, 5)
    found = ChebProp.apply(u, theta, shift_of(path(3), num_nodes=4))
    torch.testing.assert_close(found[3], response(theta, torch.ones(1).double()) * u[3])
    torch.testing.assert_close(found[:3], ChebProp.apply(u[:3], theta, shift_of(path(3))))


# Universality


def krylov(shift: Tensor, x: Tensor, degree: int) -> Tensor:
    """Return T_k(S) x for k = 0, …, degree as columns."""
    u = x[:, None, None].expand(-1, degree + 1, 1)
    return ChebProp.apply(u, torch.eye(degree + 1, dtype=torch.float64), shift)[..., 0]


def test_a_filter_reaches_every_signal_on_a_path() -> None:
    shift, target = shift_of(path(8), self_loops=False), rand(22, 8)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(8))
    columns = krylov(shift, x, 7)
    theta = torch.linalg.solve(columns, target)
    reached = ChebProp.apply(x[:, None, None], theta[None], shift).flatten()
    assert float((reached - target).abs().max()) < 1e-12
    assert float(torch.linalg.cond(columns)) == pytest.approx(5.9938, abs=1e-3)
    powers = from_chebyshev(torch.eye(8, dtype=torch.float64), "monomial").inverse() @ columns.T
    assert float(torch.linalg.cond(powers)) == pytest.approx(479.71, abs=0.1)


def test_a_filter_cannot_separate_equal_frequencies_of_a_star() -> None:
    shift, x, target = shift_of(undirected([(0, 1), (0, 2), (0, 3)]), self_loops=False), rand(23, 4), rand(24, 4)
    assert torch.linalg.eigvalsh(shift.to_dense()).tolist() == pytest.approx([-1, 0, 0, 1], abs=1e-12)
    columns = krylov(shift, x, 12)
    assert int(torch.linalg.matrix_rank(columns)) == 3
    best = columns @ torch.linalg.pinv(columns, rtol=1e-10) @ target
    assert float((best - target).norm() / target.norm()) > 1e-3


# The module


def test_filter_with_the_ppr_prior_is_a_random_walk_with_restarts() -> None:
    shift, u = normalized_shift(random_edges(25, 12), num_nodes=12), rand(26, 12, 1, 4).float()
    walk = u[:, 0]
    for _ in range(10):
        walk = 0.9 * (shift @ walk) + 0.1 * u[:, 0]
    for basis in BASES:
        filters = GraphPolynomialFilter(1, 10, basis, "ppr", learn=False)
        assert not filters.delta.requires_grad
        torch.testing.assert_close(filters(u, shift)[:, 0], walk)


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("prior", PRIORS)
def test_filter_starts_at_its_prior_and_adds_delta_in_its_basis(basis: str, prior: str) -> None:
    filters = GraphPolynomialFilter(2, 6, basis, prior, alpha=0.3, t=1.5, a=0.5, b=2.0).double()
    start = response(prior_coefficients(prior, 6, 0.3, 1.5), GRID)
    torch.testing.assert_close(filters.response(GRID), start.expand(2, -1))
    with torch.no_grad():
        filters.delta[1] = rand(27, 7)
    torch.testing.assert_close(
        filters.response(GRID)[1], start + filters.delta[1].detach() @ basis_values(basis, 6, 0.5, 2.0, GRID)
    )
    torch.testing.assert_close(filters.response(GRID)[0], start)
    filters.reset_parameters()
    torch.testing.assert_close(filters.response(GRID), start.expand(2, -1))


def test_nonnegative_filters() -> None:
    filters = GraphPolynomialFilter(2, 10, "bernstein", "ppr", nonnegative=True)
    filters.response(GRID.float()).sum().backward()
    assert filters.delta.grad is not None
    assert bool((filters.delta.grad > 0).all())
    with torch.no_grad():
        filters.delta.copy_(rand(28, 2, 11))
    assert float(filters.double().response(GRID).detach().min()) >= -1e-12


def test_filter_learns_and_is_copied_exactly() -> None:
    filters, shift = GraphPolynomialFilter(2, 4, "jacobi", "heat"), normalized_shift(path(6))
    u = rand(29, 6, 2, 3).float()
    filters(u, shift).square().sum().backward()
    assert filters.delta.grad is not None
    assert bool((filters.delta.grad != 0).all())
    with torch.no_grad():
        filters.delta.add_(filters.delta.grad)
    for other in (copy.deepcopy(filters), pickle.loads(pickle.dumps(filters))):
        assert torch.equal(other(u, shift), filters(u, shift))
    other = GraphPolynomialFilter(2, 4, "monomial", "ppr")
    other.load_state_dict(filters.state_dict())
    assert torch.equal(other(u, shift), filters(u, shift))
    assert "basis='jacobi', prior='heat'" in repr(filters)


def test_filter_under_autocast() -> None:
    filters, shift, u = GraphPolynomialFilter(2, 4), normalized_shift(path(6)), rand(30, 6, 2, 3).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = filters(u, shift)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, filters(u.float(), shift))


# Bad input


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("edge_index", "options", "error", "message"),
    [
        ([[0], [12]], {"num_nodes": 10}, ValueError, "edge_index refers to node 12 but x has 10 rows"),
        ([[0], [-1]], {"num_nodes": 10}, ValueError, "edge_index refers to node -1 but x has 10 rows"),
        ([0, 1], {}, ValueError, r"edge_index must have shape \(2, edges\), got \(2,\)"),
        ([[0], [1], [2]], {}, ValueError, r"edge_index must have shape \(2, edges\), got \(3, 1\)"),
        ([[0.0], [1.0]], {}, TypeError, r"edge_index must be of integers, got torch\.float32"),
        ([[True], [False]], {}, TypeError, r"edge_index must be of integers, got torch\.bool"),
        ([[0, 1], [1, 0]], {"edge_weight": [1.0]}, ValueError, r"edge_weight must have shape \(2,\), got \(1,\)"),
        ([[0, 1], [1, 0]], {"edge_weight": [1.0, -2.0]}, ValueError, r"non-negative and finite, got -2\.0 for edge 1"),
        ([[0, 1], [1, 0]], {"edge_weight": [math.nan, 1.0]}, ValueError, "non-negative and finite, got nan for edge 0"),
        ([[0, 1], [1, 0]], {"edge_weight": [1.0, math.inf]}, ValueError, "non-negative and finite, got inf for edge 1"),
        ([[0, 1], [1, 0]], {"num_nodes": 2.0}, TypeError, r"num_nodes must be an integer, got 2\.0"),
        ([[0, 1], [1, 0]], {"num_nodes": -1}, ValueError, "num_nodes must be at least 0, got -1"),
    ],
)
def test_bad_edges(edge_index: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    if "edge_weight" in options:
        options = options | {"edge_weight": torch.tensor(options["edge_weight"])}
    with pytest.raises(error, match=message):
        normalized_shift(torch.tensor(edge_index), **options)


@pytest.mark.untyped
def test_bad_adjacency() -> None:
    with pytest.raises(TypeError, match="edge_index must be a tensor, got list"):
        normalized_shift([[0], [1]])  # type: ignore[arg-type]
    square = torch.eye(3).to_sparse_coo()
    with pytest.raises(ValueError, match="edge_weight must be None for a sparse edge_index"):
        normalized_shift(square, torch.ones(3))
    with pytest.raises(ValueError, match=r"must be square, got shape \(2, 3\)"):
        normalized_shift(torch.ones(2, 3).to_sparse_coo())
    with pytest.raises(ValueError, match="of 3 nodes does not fit x, which has 4 rows"):
        normalized_shift(square, num_nodes=4)


@pytest.mark.untyped
def test_bad_settings() -> None:
    with pytest.raises(ValueError, match=r"basis must be one of 'chebyshev'.*'legendre', got 'fourier'"):
        GraphPolynomialFilter(1, 3, basis="fourier")
    with pytest.raises(ValueError, match=r"prior must be one of 'ppr'.*'highpass', got 'lowpass'"):
        prior_coefficients("lowpass", 3)
    with pytest.raises(ValueError, match="K must be at least 0, got -1"):
        GraphPolynomialFilter(1, -1)
    with pytest.raises(ValueError, match="K must be at least 1, got 0"):
        prior_coefficients("highpass", 0)
    with pytest.raises(TypeError, match=r"K must be an integer, got 2\.5"):
        prior_coefficients("ppr", 2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="orders must be at least 1, got 0"):
        GraphPolynomialFilter(0, 3)
    with pytest.raises(ValueError, match=r"alpha must be in \[0, 1\], got 1\.5"):
        prior_coefficients("ppr", 3, alpha=1.5)
    with pytest.raises(ValueError, match="t must be non-negative, got -1"):
        prior_coefficients("heat", 3, t=-1)
    with pytest.raises(ValueError, match=r"b must be greater than -1, got -1"):
        to_chebyshev(torch.ones(3), "jacobi", b=-1)
    with pytest.raises(ValueError, match=r"theta must have at least one coefficient, got shape \(2, 0\)"):
        response(torch.ones(2, 0), torch.ones(1))
    with pytest.raises(ValueError, match="nonnegative filters need basis='bernstein', got 'monomial'"):
        GraphPolynomialFilter(1, 3, "monomial", nonnegative=True)


@pytest.mark.untyped
def test_bad_signals() -> None:
    filters, shift = GraphPolynomialFilter(2, 3), normalized_shift(path(4))
    with pytest.raises(ValueError, match=r"u must have shape \(nodes, 2, channels\), got \(4, 3, 1\)"):
        filters(torch.ones(4, 3, 1), shift)
    with pytest.raises(ValueError, match=r"shift must have shape \(5, 5\), got \(4, 4\)"):
        filters(torch.ones(5, 2, 1), shift)
    with pytest.raises(TypeError, match=r"shift must be torch\.float64 as u is, got torch\.float32"):
        filters(torch.ones(4, 2, 1).double(), shift)
