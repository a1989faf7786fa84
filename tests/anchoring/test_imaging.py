from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse
from scipy.sparse.linalg import aslinearoperator
from sklearn.datasets import load_diabetes

from paperworks.anchoring.data import phantom
from paperworks.anchoring.imaging import gradient_matrix, nnls, radon_matrix, total_variation, tv_reconstruct


def noisy_scan(n: int) -> tuple[sparse.csr_array, np.ndarray]:
    A = radon_matrix(n, 24)
    clean = A @ phantom(n).ravel()
    return A, clean + 0.01 * clean.max() * np.random.default_rng(0).standard_normal(clean.size)


def test_rays_at_right_angles_are_columns_and_rows() -> None:
    image = np.arange(16.0).reshape(4, 4)
    scan = (radon_matrix(4, [0.0, 90.0, 180.0, 270.0]) @ image.ravel()).reshape(4, 4)
    np.testing.assert_allclose(scan[0], image.sum(axis=0))
    np.testing.assert_allclose(scan[1], image.sum(axis=1)[::-1])
    np.testing.assert_allclose(scan[2], image.sum(axis=0)[::-1])
    np.testing.assert_allclose(scan[3], image.sum(axis=1))


@pytest.mark.parametrize("angle", [10.0, 45.0, 77.3, 123.0])
def test_rays_have_the_length_of_their_chord_of_the_square(angle: float) -> None:
    n, n_det = 8, 13
    scan = radon_matrix(n, [angle], n_det) @ np.ones(n * n)
    cos, sin = abs(math.cos(math.radians(angle))), abs(math.sin(math.radians(angle)))
    for t, length in zip(np.arange(n_det) - 6.0, scan, strict=True):
        # The chord at distance |t| from the middle of a square, by its support function.
        reach = n / 2 * (cos + sin)
        expected = max(0.0, min(n / max(cos, sin), (reach - abs(t)) / (cos * sin)))
        assert length == pytest.approx(expected, abs=1e-9)


def test_a_point_is_seen_where_it_is() -> None:
    n = 21
    image = np.zeros((n, n))
    image[4, 13] = 1
    x, y = 13 - 10, 10 - 4
    for angle in (0.0, 30.0, 60.0, 90.0, 150.0):
        scan = radon_matrix(n, [angle]) @ image.ravel()
        at = x * math.cos(math.radians(angle)) + y * math.sin(math.radians(angle))
        assert abs(int(scan.argmax()) - 10 - at) <= 0.75


def test_a_disk_has_projections_of_its_own_shape() -> None:
    n, r = 128, 50.0
    axis = np.arange(n) + 0.5 - n / 2
    disk = (np.hypot(axis[None], axis[:, None]) <= r).astype(float)
    scan = (radon_matrix(n, 5) @ disk.ravel()).reshape(5, n)
    expected = 2 * np.sqrt(np.maximum(r**2 - axis**2, 0.0))
    assert np.abs(scan - expected).max() < 0.08 * 2 * r
    assert np.abs(scan - expected).mean() < 0.006 * 2 * r


def test_angles_may_be_a_number() -> None:
    a, b = radon_matrix(6, 4, 9), radon_matrix(6, [0, 45, 90, 135], 9)
    assert a.shape == (36, 36)
    assert abs(a - b).max() == 0


def test_gradients_are_differences_of_neighbours() -> None:
    rng = np.random.default_rng(0)
    image = rng.standard_normal((3, 4, 2))
    found = (gradient_matrix(image.shape) @ image.ravel()).reshape(3, *image.shape)
    for axis in range(3):
        padded = np.concatenate([image, np.take(image, [-1], axis=axis)], axis=axis)
        np.testing.assert_allclose(found[axis], np.diff(padded, axis=axis))
    assert np.linalg.norm(gradient_matrix((9, 9)).toarray(), 2) <= math.sqrt(8)
    assert total_variation(image) == pytest.approx(np.sqrt((found**2).sum(axis=0)).sum())


def test_denoising_moves_plateaus_together() -> None:
    clean = np.array([0.0] * 4 + [1.0] * 6)
    found = tv_reconstruct(np.eye(10), clean, (10,), alpha=0.2, tol=1e-10)
    assert found.success
    np.testing.assert_allclose(found.image, [0.05] * 4 + [1 - 0.2 / 6] * 6, atol=1e-7)
    assert found.objective == pytest.approx((4 * 0.05**2 + 0.2**2 / 6) / 2 + 0.2 * (0.95 - 0.2 / 6), abs=1e-9)


def test_without_variation_it_is_least_squares() -> None:
    rng = np.random.default_rng(3)
    A, b = rng.standard_normal((20, 6)), rng.standard_normal(20)
    x, residual = optimize.nnls(A, b)
    found = tv_reconstruct(A, b, (2, 3), alpha=0, tol=1e-11)
    np.testing.assert_allclose(found.image.ravel(), x, atol=1e-8)
    assert found.objective == pytest.approx(residual**2 / 2, abs=1e-9)


def test_an_image_is_reconstructed_and_anchoring_is_no_faster() -> None:
    A, b = noisy_scan(32)
    found = tv_reconstruct(A, b, (32, 32), alpha=0.5, tol=0, maxiter=600)
    plain = tv_reconstruct(A, b, (32, 32), alpha=0.5, tol=0, maxiter=600, method="pdhg")
    unrestarted = tv_reconstruct(A, b, (32, 32), alpha=0.5, tol=0, maxiter=600, method="halpern")
    assert found.image.min() >= 0
    assert np.linalg.norm(found.image - phantom(32)) < 0.13 * np.linalg.norm(phantom(32))
    assert found.residual <= 2 * plain.residual < 1e-4
    assert unrestarted.residual > 20 * plain.residual
    assert found.objective == pytest.approx(plain.objective, rel=1e-6)
    misfit = A @ found.image.ravel() - b
    assert found.objective == pytest.approx(misfit @ misfit / 2 + 0.5 * total_variation(found.image))
    # No change of the image is better.
    rng = np.random.default_rng(1)
    for size in (1e-3, 1e-2, 0.1):
        other = np.maximum(found.image + size * rng.standard_normal((32, 32)), 0)
        misfit = A @ other.ravel() - b
        assert misfit @ misfit / 2 + 0.5 * total_variation(other) > found.objective


def test_units_and_the_form_of_the_matrix_do_not_matter() -> None:
    A, b = noisy_scan(16)
    found = tv_reconstruct(A, b, (16, 16), alpha=0.3, tol=0, maxiter=100)
    scaled = tv_reconstruct(100 * A, 1000 * b, (16, 16), alpha=0.3 * 1e5, tol=0, maxiter=100)
    np.testing.assert_allclose(scaled.image, 10 * found.image, atol=1e-9)
    assert scaled.residual == pytest.approx(found.residual, rel=1e-6)
    operator = tv_reconstruct(aslinearoperator(A), b, (16, 16), alpha=0.3, tol=0, maxiter=100)
    np.testing.assert_allclose(operator.image, found.image, atol=1e-10)
    dense = tv_reconstruct(A.toarray(), b, (16, 16), alpha=0.3, tol=1e-8)
    np.testing.assert_allclose(dense.image, tv_reconstruct(A, b, (16, 16), alpha=0.3, tol=1e-8).image, atol=1e-4)


def test_nothing_measured_is_an_empty_image() -> None:
    found = tv_reconstruct(radon_matrix(4, 3), np.zeros(12), (4, 4), alpha=1.0)
    assert found.success
    assert found.nit == 0
    assert not found.image.any()


def assert_optimal(A: Any, b: np.ndarray, x: np.ndarray, tol: float) -> None:
    slope = A.T @ (A @ x - b)
    unit = np.abs(A.T @ b).max()
    assert x.min() >= 0
    assert slope.min() >= -tol * unit
    assert np.abs(slope[x > 1e-6 * x.max(initial=0)]).max(initial=0) <= tol * unit


def test_least_squares_of_the_diabetes_data() -> None:
    A, b = load_diabetes(return_X_y=True)
    b = b - b.mean()
    x, residual = optimize.nnls(A, b)
    for method in ("r2halpern", "pdhg"):
        found = nnls(A, b, method=method, maxiter=2000)
        assert found.success
        np.testing.assert_allclose(found.x, x, rtol=1e-6, atol=1e-4)
        assert found.residual == pytest.approx(residual, abs=1e-9)
        assert_optimal(A, b, found.x, 2e-8)
    assert not nnls(A, b, method="halpern", maxiter=2000).success


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(0, 4), st.integers(0, 10**6))
def test_least_squares_against_scipy(n: int, more: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, b = rng.standard_normal((2 * n + more, n)), rng.standard_normal(2 * n + more)
    found = nnls(A, b, tol=1e-9)
    assert found.success
    assert found.residual == pytest.approx(optimize.nnls(A, b)[1], abs=1e-9)
    assert_optimal(A, b, found.x, 1e-8)
    for form in (sparse.csr_array(A), aslinearoperator(A)):
        np.testing.assert_allclose(nnls(form, b, tol=1e-9).x, found.x, atol=1e-6)


def test_projected_gradients_are_firmly_nonexpansive_in_their_own_norm_only() -> None:
    A = np.array([[1.0, 0.9], [0.0, 0.5]])
    L = np.linalg.norm(A, 2) ** 2
    rng = np.random.default_rng(0)

    def T(x: np.ndarray) -> np.ndarray:
        return np.maximum(x - A.T @ (A @ x) / L, 0)

    def own(d: np.ndarray) -> float:
        return float(L * d @ d - (A @ d) @ (A @ d))

    ratios = []
    for u, v in itertools.pairwise(rng.standard_normal((400, 2))):
        reflected = (2 * T(u) - u) - (2 * T(v) - v)
        assert own(reflected) <= own(u - v) + 1e-12
        ratios.append(np.linalg.norm(reflected) / np.linalg.norm(u - v))
    assert max(ratios) > 1.01


def test_least_squares_without_a_positive_part() -> None:
    found = nnls(np.eye(3), -np.ones(3))
    assert found.success
    assert found.x.tolist() == [0, 0, 0]
    assert nnls(sparse.csr_array((2, 3)), np.ones(2)).x.tolist() == [0, 0, 0]
    assert nnls(np.ones((4, 1)), np.arange(4.0)).x == pytest.approx([1.5])


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("A", "b", "error", "words"),
    [
        ([[1.0], [1.0, 2.0]], [1.0, 1.0], ValueError, "same length"),
        ([1.0, 2.0], [1.0, 1.0], ValueError, "matrix"),
        (np.empty((0, 3)), [], ValueError, "at least one entry"),
        ([[np.nan]], [1.0], ValueError, "finite"),
        (sparse.csr_array([[np.inf]]), [1.0], ValueError, "finite"),
        ([["a"]], [1.0], TypeError, "real numbers"),
        ([[1j]], [1.0], TypeError, "real numbers"),
        ([[1.0]], [1.0, 2.0], ValueError, "b must have length 1"),
        ([[1.0]], [np.nan], ValueError, "b must be finite"),
    ],
)
def test_bad_measurements(A: Any, b: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        nnls(A, b)
    with pytest.raises(error, match=words):
        tv_reconstruct(A, b, (1,), 0.1)


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"shape": (3, 1)}, "as many pixels"),
        ({"shape": ()}, "as many pixels"),
        ({"shape": (0, 4)}, "shape"),
        ({"alpha": -1.0}, "alpha"),
        ({"alpha": np.inf}, "alpha"),
        ({"tol": -1.0}, "tol"),
        ({"maxiter": 0}, "maxiter"),
        ({"method": "fista"}, "method"),
        ({"weight": 0.0}, "weight"),
    ],
)
def test_bad_arguments(bad: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tv_reconstruct(np.eye(4), np.ones(4), **({"shape": (2, 2), "alpha": 0.1} | bad))


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((0, 3), ValueError, "n must be"),
        ((4, 0), ValueError, "angles"),
        ((4, []), ValueError, "angles must not be empty"),
        ((4, [np.nan]), ValueError, "angles"),
        ((4, 3, 0), ValueError, "n_det"),
        ((4.0, 3), TypeError, "n must be"),
    ],
)
def test_bad_scanners(arguments: tuple[Any, ...], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        radon_matrix(*arguments)


def test_nnls_does_not_call_optimal_what_only_underflows() -> None:
    found = nnls(np.eye(2), [1e-170, 1e-170])
    assert found.success == (found.gradient <= 1e-8)
    assert found.gradient == pytest.approx(np.abs(1e-170 - found.x).max() / 1e-170, rel=0.01)
