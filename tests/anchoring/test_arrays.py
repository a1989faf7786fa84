"""Vectors that do not fit the processor's cache are worked on part by part: nothing else may change."""

from __future__ import annotations

import numpy as np
import pytest

from paperworks.anchoring import fixed_point, schedules, solve_equation
from paperworks.anchoring.arrays import BLOCK, blocks, equal, is_safe, norms, square
from paperworks.anchoring.operators import Operator
from paperworks.anchoring.regularize import Query

N = 2 * BLOCK + 7


def turn(z):
    flat = z.reshape(-1)
    half = flat.size // 2
    return np.concatenate([flat[half:], -flat[:half]]).reshape(z.shape)


def test_blocks_cover_every_entry_once():
    x, seen = np.arange(N, dtype=float), np.zeros(N)
    for work, part, mark in blocks(np.empty(BLOCK), x, seen):
        assert work.size == part.size
        mark += part
    assert np.array_equal(seen, x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_square_is_the_squared_norm(dtype):
    x = np.array([3, -4], dtype) * (1 if np.dtype(dtype).kind == "f" else 1j)
    assert square(x) == 25.0
    assert is_safe(square(x), dtype)


@pytest.mark.parametrize("total", [0.0, 1e-300, np.inf, np.nan])
def test_a_sum_of_squares_that_lost_digits_is_not_safe(total):
    assert not is_safe(total, np.float64)


@pytest.mark.parametrize("kind", ["map", "field"])
@pytest.mark.parametrize("n", [1, 10, BLOCK, N])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_the_squares_that_are_met_on_the_way_are_those_of_the_differences(kind, n, dtype):
    x, anchor, value = np.random.default_rng(n).standard_normal((3, n)).astype(dtype)
    query = Query(Operator(turn, kind), anchor, 0.25, 0.75, np.empty(min(n, BLOCK), dtype))
    squares = [0.0, 0.0, 0.0]
    mixed = query.remix(x, value, squares)
    assert np.array_equal(mixed, query.remix(x, value))
    compared = (value, x - anchor, mixed) if kind == "field" else (x - value, x - anchor, x - mixed)
    expected = [np.linalg.norm(y) ** 2 for y in compared]
    assert squares == pytest.approx(expected, rel=1e-5 if dtype == np.float32 else 1e-12)


def test_sizes_far_below_the_iterate_and_each_other_keep_their_digits():
    """All three differences of a map are of neighbours, at which ‖x‖² − 2⟨x, y⟩ + ‖y‖² would leave nothing."""
    x = np.full(N, 1e6)
    x0, shift = x - 2.0**-10, 3.0 * 2.0**-20
    found = fixed_point(lambda z: z + shift, x, anchor=x0, maxiter=1, tol=0.0)
    size, delta = np.sqrt(N), schedules.halpern().weights(0)[0]
    first = {name: found.history[name][0] for name in ("residual", "distance", "R")}
    assert first["residual"] == pytest.approx(shift * size, rel=1e-12)
    assert first["distance"] == pytest.approx(2.0**-10 * size, rel=1e-12)
    assert first["R"] == pytest.approx(abs(delta * 2.0**-10 - (1 - delta) * shift) * size / (1 - delta), rel=1e-6)


@pytest.mark.parametrize("order", ["C", "F"])
def test_large_iterates_are_those_of_the_formulas(order):
    x0 = np.asarray(np.random.default_rng(0).standard_normal((2, BLOCK + 3)), order=order)
    halpern, x = fixed_point(turn, x0, maxiter=4, tol=0.0), x0
    for k in range(4):
        delta, eta = schedules.halpern().weights(k)
        x = eta * turn(x) + delta * x0
    assert np.array_equal(halpern.x, x)
    field, x = solve_equation(turn, x0, lipschitz=1.0, maxiter=4, tol=0.0), x0
    for k in range(4):
        delta, eta = schedules.extragradient().weights(k)
        y = x - (delta * (x - x0) + eta * turn(x))
        x = x - (delta * (y - x0) + eta * turn(y))
    assert np.array_equal(field.x, x)
    assert field.history["distance"][-1] == pytest.approx(np.linalg.norm(x - x0))


def test_a_change_of_any_entry_is_seen():
    x = np.zeros(5)
    for i in range(5):
        assert not equal(x, np.eye(5)[i])
    assert equal(x, x.copy())
    assert not equal(np.full(2, np.nan), np.full(2, np.nan))


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e-160, 1e160, 1e200, 1e307])
@pytest.mark.parametrize("n", [2, N])
def test_norms_hold_where_squares_do_not(scale, n):
    x = np.zeros(n)
    x[:2] = 3 * scale, -4 * scale
    assert norms(x) == pytest.approx(5 * scale, rel=1e-3 if scale < 1e-300 else 1e-14, abs=0)
    assert norms(1j * x) == pytest.approx(norms(x), abs=0)
    found = fixed_point(lambda z: z / 2, x, anchor=-x, maxiter=1, tol=0.0).history
    assert [found[name][0] for name in ("residual", "distance", "R")] == pytest.approx(
        [norms(x / 2), norms(x) * 2, norms(x) * 2.5], rel=1e-2 if scale < 1e-300 else 1e-14, abs=0
    )


def test_norms_of_short_floats_zeros_and_what_is_not_finite():
    assert norms(np.full(4, 1e30, np.float32)) == pytest.approx(2e30, rel=1e-6)
    assert norms(np.full(10_000, 100.0, np.float16)) == 10_000.0
    assert norms(np.zeros(3)) == norms(np.empty(0)) == 0.0
    assert norms(np.array([1.0, -np.inf])) == np.inf
    assert np.isnan(norms(np.array([1.0, np.nan])))


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_a_run_does_not_depend_on_the_unit(scale):
    found = solve_equation(turn, scale * np.ones(2), tol=0.0, rtol=0.1, maxiter=100)
    assert found.success
    assert found.nit == solve_equation(turn, np.ones(2), tol=0.0, rtol=0.1).nit > 0
