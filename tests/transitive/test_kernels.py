"""Conjunctivity of kernels, networks and features: published tables, brute force, scikit-learn's protocol."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import WhiteKernel
from sklearn.kernel_ridge import KernelRidge

from paperworks.transitive.kernels import (
    OverlapKernel,
    conjunctivity,
    empirical_margins,
    network_conjunctivity,
    representation_geometry,
)
from paperworks.transitive.tasks import TransitiveTask
from paperworks.transitive.theory import predict_margins

Floats = NDArray[np.float64]


def every_pair(n: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(n) for j in range(n) if i != j]


def mixture(n: int, alpha: float) -> Floats:
    """Features whose kernel is exactly that of the theory."""
    item, whole = np.sqrt((1 - alpha) / 2) * np.eye(n), np.sqrt(alpha) * np.eye(n * n)
    return np.array([np.concatenate([item[i], item[j], whole[i * n + j]]) for i, j in every_pair(n)])


def test_conjunctivity_of_a_kernel() -> None:
    assert conjunctivity(1.0, 0.5, 0.0) == 0
    assert conjunctivity(1.0, 0.0, 0.0) == 1
    same, overlap, distinct = 0.9, 0.4, 0.1
    assert conjunctivity(same, overlap, distinct) == pytest.approx((same + distinct - 2 * overlap) / (same - distinct))
    assert conjunctivity(1.0, 0.4, 0.1, flipped=-0.5, crossed=0.2) == pytest.approx(1 - 2 * 0.2 / 1.5)


@pytest.mark.parametrize(
    ("kind", "rho", "expected"),
    [
        ("nngp", 1.0, (0.147155, 0.248721, 0.325348, 0.386035, 0.435661)),
        ("ntk", 1.0, (0.257864, 0.424644, 0.539084, 0.620843, 0.681213)),
        ("nngp", 0.5, (0.059651, 0.111416, 0.157006)),
    ],
)
def test_conjunctivity_of_networks(kind: Any, rho: float, expected: tuple[float, ...]) -> None:
    measured = [network_conjunctivity(depth, kind, rho) for depth in range(1, len(expected) + 1)]
    np.testing.assert_allclose(measured, expected, rtol=0, atol=5e-7)


def test_linear_networks_are_additive_and_deep_ones_remember() -> None:
    for kind in ("nngp", "ntk"):
        assert network_conjunctivity(0, kind) == pytest.approx(0)
        assert network_conjunctivity(4, kind, rho=0.0) == pytest.approx(0)
        deep = [network_conjunctivity(depth, kind) for depth in (1, 10, 100, 1000)]
        assert (np.diff(deep) > 0).all()
        assert 0.99 < deep[-1] < 1


@pytest.mark.parametrize(("alpha", "scale"), [(0.0, 1.0), (0.3, 1e200), (0.9, 1e-200)])
def test_geometry_of_exchangeable_features(alpha: float, scale: float) -> None:
    """Neither the order of the rows, a scale, what is the same in both orders, nor names change it."""
    n = 6
    pairs = every_pair(n)
    rng = np.random.default_rng(0)
    even = {frozenset(pair): rng.normal(size=4) for pair in pairs}
    features = scale * np.hstack([3 * mixture(n, alpha), [even[frozenset(pair)] for pair in pairs]])
    order = rng.permutation(len(pairs))
    geometry = representation_geometry(features[order], [(f"t{i}", f"t{j}") for i, j in np.array(pairs)[order]])
    assert geometry.alpha == pytest.approx(alpha, abs=1e-12)
    assert geometry.alpha_se == pytest.approx(0, abs=1e-10)
    assert geometry.residual == pytest.approx(0, abs=1e-12)
    assert geometry.orbits["overlap"] == pytest.approx((1 - alpha) / 2)
    assert geometry.alpha == pytest.approx(conjunctivity(**geometry.orbits), abs=1e-12)


def brute_force(odd: dict[tuple[int, int], Floats], items: list[int]) -> tuple[float, float]:
    """Conjunctivity and residual from the kernel of all ordered pairs, by their definitions."""
    pairs = [(i, j) for i in items for j in items if i != j]
    rows = np.array([odd[pair] for pair in pairs])
    kernel = rows @ rows.T
    kernel /= kernel.diagonal().mean()
    matched = np.array([[(i == k) != (j == m) and i != m and j != k for k, m in pairs] for i, j in pairs])
    overlap = kernel[matched].mean()
    slots = np.array([[(i == k) + (j == m) - (i == m) - (j == k) for k, m in pairs] for i, j in pairs])
    orbit = np.select([slots == 2, slots == -2], [1.0, -1.0], overlap * slots)
    return 1 - 2 * overlap, np.linalg.norm(kernel - orbit) / np.linalg.norm(kernel)


def test_geometry_by_brute_force() -> None:
    n = 6
    pairs = every_pair(n)
    features = np.random.default_rng(1).normal(size=(len(pairs), 7))
    row = dict(zip(pairs, features, strict=True))
    odd = {(i, j): row[i, j] - row[j, i] for i, j in pairs}
    geometry = representation_geometry(features, pairs)
    assert (geometry.alpha, geometry.residual) == pytest.approx(brute_force(odd, list(range(n))))
    dropped = [brute_force(odd, [i for i in range(n) if i != k])[0] for k in range(n)]
    assert geometry.alpha_se == pytest.approx(np.sqrt((n - 1) * np.var(dropped)))


def test_margins_of_exchangeable_features_are_the_theory_in_every_assignment() -> None:
    task = TransitiveTask(7, (4, 2), exception_weight=3.0)
    measured = empirical_margins(mixture(7, 0.3), every_pair(7), task, ridge=0.2, n_assignments=3, keep=True)
    expected = predict_margins(task, 0.3, 0.2).margins
    assert measured.stack is not None
    np.testing.assert_allclose(measured.stack, np.tile(expected, (3, 1, 1)), rtol=0, atol=1e-12)
    assert measured.share_right[4, 2] == measured.share_right[2, 4] == 1


def test_margins_of_a_wide_random_network() -> None:
    """One assignment is not evidence; the mean over many is near the theory."""
    n = 9
    pairs = every_pair(n)
    inputs = np.array([np.concatenate([np.eye(n)[i], np.eye(n)[j]]) for i, j in pairs])
    features = np.maximum(inputs @ np.random.default_rng(0).normal(size=(2 * n, 1000)), 0)
    alpha = network_conjunctivity(1, "nngp")
    assert representation_geometry(features, pairs).alpha == pytest.approx(alpha, abs=0.02)
    task = TransitiveTask(n, (5, 3))
    measured = empirical_margins(features, pairs, task, n_assignments=40, keep=True)
    theory = predict_margins(task, alpha).margins
    assert measured.stack is not None
    off = ~np.eye(n, dtype=bool)
    single = np.mean([np.corrcoef(margins[off], theory[off])[0, 1] for margins in measured.stack])
    together = np.corrcoef(measured.mean[off], theory[off])[0, 1]
    assert together > max(0.998, single)
    np.testing.assert_allclose(measured.mean, measured.stack.mean(axis=0), rtol=0, atol=1e-12)
    np.testing.assert_allclose(measured.mean, -measured.mean.T, rtol=0, atol=1e-12)
    assert measured.share_right[2, 6] == (measured.stack[:, 2, 6] > 0).mean()
    again = empirical_margins(features, pairs, task, n_assignments=40)
    np.testing.assert_array_equal(again.mean, measured.mean)
    assert again.stack is None


def test_pairs_without_a_truth_have_no_share() -> None:
    measured = empirical_margins(mixture(6, 0.2), every_pair(6), TransitiveTask(6, (4, 1)), n_assignments=1)
    assert np.isnan(measured.share_right[1, 3])
    assert np.isnan(np.diagonal(measured.share_right)).all()


@given(
    alpha=st.floats(1e-4, 0.99),
    table=st.lists(st.lists(st.sampled_from("abc"), min_size=3, max_size=3), min_size=1, max_size=6),
)
@settings(max_examples=25)
def test_kernel_is_positive_and_its_gradient_that_of_log_conjunctivity(alpha: float, table: list[list[str]]) -> None:
    kernel = OverlapKernel(alpha)
    values, gradient = kernel(table, eval_gradient=True)
    np.testing.assert_allclose(np.diag(values), kernel.diag(table))
    assert np.linalg.eigvalsh(values).min() > -1e-12
    step = 1e-6
    up, down = (kernel.clone_with_theta(kernel.theta + s)(table) for s in (step, -step))
    np.testing.assert_allclose(gradient[..., 0], (up - down) / (2 * step), rtol=0, atol=1e-8)
    np.testing.assert_allclose(kernel(table, table[:1]), values[:, :1])


def test_kernel_follows_the_protocol() -> None:
    kernel = OverlapKernel(0.2, (1e-3, 0.5))
    copy = clone(kernel)
    assert copy == kernel
    assert copy.get_params() == {"conjunctivity": 0.2, "conjunctivity_bounds": (1e-3, 0.5)}
    np.testing.assert_allclose(np.exp(copy.bounds), [[1e-3, 0.5]])
    copy.theta = np.log([0.4])
    assert copy.conjunctivity == pytest.approx(0.4)
    assert not kernel.is_stationary()
    assert not kernel.requires_vector_input
    assert repr(kernel) == "OverlapKernel(conjunctivity=0.2)"
    fixed = OverlapKernel(0.2, "fixed")
    assert fixed.theta.size == 0
    assert fixed([["a", "b"]], eval_gradient=True)[1].shape == (1, 1, 0)
    np.testing.assert_array_equal(kernel(["a", "b"]), np.eye(2))  # one column


def test_a_gaussian_process_on_names_finds_the_conjunctivity() -> None:
    names = [f"team {i}" for i in range(12)]
    table = np.array([(a, b) for a in names for b in names if a != b])
    rng = np.random.default_rng(0)
    values = rng.multivariate_normal(np.zeros(len(table)), OverlapKernel(0.5)(table) + 1e-6 * np.eye(len(table)))
    model = GaussianProcessRegressor(OverlapKernel(0.05) + WhiteKernel(1e-4, "fixed")).fit(table, values)
    assert model.kernel_.k1.conjunctivity == pytest.approx(0.5, abs=0.15)
    np.testing.assert_allclose(model.predict(table), values, rtol=0, atol=0.01)


def test_kernel_ridge_with_it_is_the_theory() -> None:
    task = TransitiveTask(9, (5, 3))
    both = np.concatenate([task.pairs, task.pairs[:, ::-1]])
    model = KernelRidge(kernel=OverlapKernel(0.2), alpha=0.3).fit(both, np.repeat([1.0, -1.0], len(task.pairs)))
    expected = predict_margins(task, 0.2, 0.3).margins
    pairs = np.array(every_pair(9))
    np.testing.assert_allclose(model.predict(pairs), expected[tuple(pairs.T)], rtol=0, atol=1e-12)


@pytest.mark.untyped
def test_bad_kernels() -> None:
    with pytest.raises(
        ValueError, match="degenerate representation: same-pair similarity must exceed that of distinct"
    ):
        conjunctivity(0.2, 0.1, 0.2, flipped=0.0)
    with pytest.raises(ValueError, match="degenerate representation: same-pair similarity must exceed that of flipped"):
        conjunctivity(1.0, 0.1, 0.0, flipped=1.0)
    with pytest.raises(ValueError, match="overlap must be a finite number, got nan"):
        conjunctivity(1.0, float("nan"), 0.0)
    with pytest.raises(ValueError, match="depth must be at least 0"):
        network_conjunctivity(-1)
    with pytest.raises(ValueError, match="kind must be one of 'ntk', 'nngp', got 'relu'"):
        network_conjunctivity(1, "relu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"rho must be in \[0, 2\]"):
        network_conjunctivity(1, rho=2.5)
    with pytest.raises(ValueError, match="Y must have 2 columns as X does, got 3"):
        OverlapKernel()([["a", "b"]], [["a", "b", "c"]])
    with pytest.raises(ValueError, match="eval_gradient needs Y=None"):
        OverlapKernel()([["a", "b"]], [["a", "b"]], eval_gradient=True)
    with pytest.raises(ValueError, match=r"X: expected shape \(m, d\)"):
        OverlapKernel()(np.zeros((2, 0)))


@pytest.mark.untyped
def test_bad_features() -> None:
    pairs = every_pair(5)
    features = mixture(5, 0.2)
    with pytest.raises(ValueError, match=r"every ordered pair of two items once, got \(4, 3\) 0 times"):
        representation_geometry(features[:-1], pairs[:-1])
    with pytest.raises(ValueError, match=r"got \(0, 1\) 2 times"):
        representation_geometry(np.vstack([features, features[:1]]), [*pairs, (0, 1)])
    with pytest.raises(ValueError, match=r"got \(0, 0\) 1 times"):
        representation_geometry(np.vstack([features, features[:1]]), [*pairs, (0, 0)])
    with pytest.raises(ValueError, match=r"pairs: expected shape \(20, 2\)"):
        representation_geometry(features, pairs[:-1])
    for bad in (np.full((20, 2), np.nan), np.ones((20, 0))):
        with pytest.raises(ValueError, match="features must be a finite matrix"):
            representation_geometry(bad, pairs)
    with pytest.raises(ValueError, match="degenerate representation: same-pair similarity must exceed that of flipped"):
        representation_geometry([[i + j] for i, j in pairs], pairs)
    with pytest.raises(ValueError, match="at least 4 items, got 3"):
        representation_geometry(mixture(3, 0.2), every_pair(3))
    with pytest.raises(ValueError, match="the task's 6 items, got 5"):
        empirical_margins(features, pairs, TransitiveTask(6))
    with pytest.raises(ValueError, match="ridge must be positive"):
        empirical_margins(features, pairs, TransitiveTask(5), ridge=0.0)
    with pytest.raises(ValueError, match="n_assignments must be at least 1"):
        empirical_margins(features, pairs, TransitiveTask(5), n_assignments=0)
