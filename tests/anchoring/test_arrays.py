"""Vectors that do not fit the processor's cache are worked on part by part: nothing else may change."""

from __future__ import annotations

import numpy as np
import pytest

from paperworks.anchoring import fixed_point, schedules, solve_equation
from paperworks.anchoring.arrays import BLOCK, blocks, equal, gap_norm

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


@pytest.mark.parametrize("n", [1, 10, BLOCK, N])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_gap_norm_is_the_norm_of_the_difference(n, dtype):
    rng = np.random.default_rng(n)
    x, y = (rng.standard_normal(n).astype(dtype) for _ in range(2))
    found = gap_norm(x, y, np.empty(min(n, BLOCK), dtype))
    assert found == pytest.approx(np.linalg.norm(x - y), rel=1e-5 if dtype == np.float32 else 1e-12)


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
