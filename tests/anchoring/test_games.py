from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.optimize import linprog

from paperworks.anchoring.data import kuhn_poker, morra
from paperworks.anchoring.games import METHODS, GameResult, game_map, project_simplex, solve_matrix_game

PAYOFFS = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=5), elements=st.integers(-4, 4).map(float))
RANDOM = np.random.default_rng(0).standard_normal((50, 40))


def value_by_linear_programme(A: np.ndarray) -> float:
    m, n = A.shape
    found = linprog(
        np.append(np.zeros(m), -1.0), A_ub=np.hstack([-A.T, np.ones((n, 1))]), b_ub=np.zeros(n),
        A_eq=np.append(np.ones(m), 0.0)[None], b_eq=[1.0], bounds=[(0, None)] * m + [(None, None)],
    )  # fmt: skip
    return float(-found.fun)


def assert_equilibrium(A: np.ndarray, found: GameResult, tol: float) -> None:
    for p, size in ((found.x, A.shape[0]), (found.y, A.shape[1])):
        assert p.shape == (size,)
        assert p.min() >= 0
        assert p.sum() == pytest.approx(1, abs=1e-12)
    best_row = max(float(A[i] @ found.y) for i in range(A.shape[0]))
    best_column = min(float(A[:, j] @ found.x) for j in range(A.shape[1]))
    assert found.gap == pytest.approx(best_row - best_column, abs=1e-12)
    assert best_column - 1e-12 <= found.value <= best_row + 1e-12
    assert found.success == (found.gap <= tol)


def test_kuhn_poker_is_worth_a_loss_of_an_eighteenth() -> None:
    found = solve_matrix_game(kuhn_poker(), tol=1e-10, maxiter=2000)
    assert found.success
    assert found.gap <= 1e-10
    assert found.value == pytest.approx(-1 / 18, abs=1e-10)
    assert_equilibrium(kuhn_poker(), found, 1e-10)


def test_a_random_game_is_solved_and_restarts_are_what_solves_it() -> None:
    found = solve_matrix_game(RANDOM, tol=1e-10, maxiter=2000)
    assert found.success
    assert_equilibrium(RANDOM, found, 1e-10)
    assert found.value == pytest.approx(value_by_linear_programme(RANDOM), abs=1e-9)
    for method in ("halpern", "pdhg"):
        without = solve_matrix_game(RANDOM, tol=1e-10, method=method, maxiter=1000)
        assert not without.success
        assert without.nit == 1000
        assert 5e-4 < without.gap < 5e-3
        assert_equilibrium(RANDOM, without, 1e-10)


def test_known_games() -> None:
    found = solve_matrix_game([[3, -1], [-2, 1]], tol=1e-12)
    np.testing.assert_allclose(found.x, [3 / 7, 4 / 7], atol=1e-10)
    np.testing.assert_allclose(found.y, [2 / 7, 5 / 7], atol=1e-10)
    assert found.value == pytest.approx(1 / 7, abs=1e-12)
    assert solve_matrix_game(morra(3)).value == pytest.approx(0, abs=1e-9)
    saddle = solve_matrix_game([[4, 2, 5], [3, 1, 9]])
    np.testing.assert_allclose([saddle.x @ [1, 0], saddle.y @ [0, 1, 0], saddle.value], [1, 1, 2], atol=1e-9)
    assert solve_matrix_game(np.full((2, 3), 7)).value == 7
    found = solve_matrix_game([[5, 3, 4]], method="pdhg")  # ends in a fixed point to the last bit
    assert (found.value, found.gap, found.success) == (3, 0, True)


@settings(max_examples=40, deadline=None)
@given(PAYOFFS)
def test_values_are_those_of_a_linear_programme(A: np.ndarray) -> None:
    found = solve_matrix_game(A, tol=1e-8)
    assert found.success
    assert_equilibrium(A, found, 1e-8)
    assert found.value == pytest.approx(value_by_linear_programme(A), abs=1e-7)


@settings(max_examples=25, deadline=None)
@given(PAYOFFS, st.sampled_from([1e-3, 1.0, 1e4]), st.sampled_from([-50.0, 0.0, 1e3]))
def test_neither_unit_nor_zero_of_the_payoffs_matters(A: np.ndarray, unit: float, zero: float) -> None:
    found = solve_matrix_game(A, tol=1e-7)
    other = solve_matrix_game(unit * A + zero, tol=1e-7 * unit)
    assert other.value == pytest.approx(unit * found.value + zero, abs=2e-7 * unit)
    swapped = solve_matrix_game(-A.T, tol=1e-7)
    assert swapped.value == pytest.approx(-found.value, abs=2e-7)


@settings(max_examples=40, deadline=None)
@given(arrays(np.float64, st.integers(1, 8), elements=st.floats(-10, 10)))
def test_the_projection_satisfies_its_optimality_conditions(v: np.ndarray) -> None:
    p = project_simplex(v)
    assert p.min() >= 0
    assert p.sum() == pytest.approx(1)
    slope = v - p
    np.testing.assert_allclose(slope[p > 1e-9], slope.max(), atol=1e-9)


@pytest.mark.parametrize("A", [kuhn_poker(), RANDOM], ids=["kuhn", "random"])
def test_the_map_is_firmly_nonexpansive_in_its_norm(A: np.ndarray) -> None:
    T, norm = game_map(A)
    rng = np.random.default_rng(1)
    points = [0.1 * rng.standard_normal(sum(A.shape)) for _ in range(20)]
    images = [T(z) for z in points]
    for (u, Tu), (v, Tv) in itertools.combinations(zip(points, images, strict=True), 2):
        assert norm(Tu - Tv) ** 2 + norm((u - Tu) - (v - Tv)) ** 2 <= norm(u - v) ** 2 * (1 + 1e-9)


def test_methods_are_the_ones_of_the_drivers() -> None:
    assert METHODS == {
        "r2halpern": {"reflect": True, "restart": "adaptive"},
        "halpern": {"reflect": True},
        "pdhg": {"schedule": "plain"},
    }


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("A", "error", "words"),
    [
        ([], ValueError, "at least one entry"),
        ([[]], ValueError, "at least one entry"),
        ([1.0, 2.0], ValueError, "matrix"),
        ([[1.0], [1.0, 2.0]], ValueError, "same length"),
        ([[1.0, np.nan]], ValueError, "finite"),
        ([[np.inf, 1.0]], ValueError, "finite"),
        ([["a", "b"]], TypeError, "real numbers"),
        ([[1j]], TypeError, "real numbers"),
        ([[None]], TypeError, "real numbers"),
    ],
)
def test_bad_payoffs(A: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        solve_matrix_game(A)


@pytest.mark.untyped
@pytest.mark.parametrize("bad", [{"tol": -1.0}, {"tol": np.nan}, {"maxiter": 0}, {"method": "simplex"}])
def test_bad_options(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        solve_matrix_game([[1.0]], **bad)


def test_payoffs_are_not_changed() -> None:
    A = np.array([[3.0, -1.0], [-2.0, 1.0]])
    A.flags.writeable = False
    solve_matrix_game(A)
