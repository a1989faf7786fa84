"""Maps and fields from functions, matrices and proximal operators, and what is measured of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from paperworks.anchoring import operators
from paperworks.anchoring.data import ouyang_xu, random_monotone
from paperworks.anchoring.operators import Operator, as_field, as_map

SEEDS = st.integers(0, 2**31)
MATRIX = np.array([[1.0, 2.0], [-2.0, 0.5]])


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.coo_matrix, aslinearoperator])
def test_a_matrix_is_the_field_that_subtracts_b(form: Callable[[Any], Any]) -> None:
    assert as_field(form(MATRIX))(np.array([1.0, 1.0])).tolist() == [3.0, -1.5]
    assert as_field(form(MATRIX), b=[1, 2])(np.array([1.0, 1.0])).tolist() == [2.0, -3.5]


def test_a_linear_operator_is_a_map_too() -> None:
    assert as_map(aslinearoperator(MATRIX))(np.array([1.0, 1.0])).tolist() == [3.0, -1.5]


def test_calls_are_counted_and_arguments_handed_on() -> None:
    operator = as_map(lambda x, shift, scale: scale * x + shift, (1.0, 3.0))
    assert operator(np.ones(2)).tolist() == [4.0, 4.0]
    operator(np.zeros(2))
    assert operator.calls == 2
    assert operator.kind == "map"
    assert as_map(operator) is operator


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: as_map(3), TypeError, "T must be callable or a LinearOperator, got int"),
        (lambda: as_field("F"), TypeError, "F must be callable or a LinearOperator, got str"),
        (lambda: as_map(as_field(lambda x: x)), TypeError, "must be a map, got a field"),
        (lambda: as_field(as_map(lambda x: x)), TypeError, "must be a field, got a map"),
        (lambda: as_field(np.ones((2, 3))), ValueError, r"square, got shape \(2, 3\)"),
        (lambda: as_field(np.ones(3)), ValueError, "square"),
        (lambda: as_field(sparse.csr_array(np.ones((2, 3)))), ValueError, "square"),
        (lambda: as_field(aslinearoperator(np.ones((2, 3)))), ValueError, "square"),
        (lambda: as_map(aslinearoperator(np.ones((2, 3)))), ValueError, "square"),
        (lambda: as_field(np.array([[np.nan]])), ValueError, "F must be finite"),
        (lambda: as_field(sparse.csr_array([[np.inf]])), ValueError, "F must be finite"),
        (lambda: as_field(MATRIX, b=[1.0, np.inf]), ValueError, "b must be finite"),
        (lambda: as_field(MATRIX, b=[1.0]), ValueError, r"b must have shape \(2,\).*got \(1,\)"),
        (lambda: as_field(MATRIX, b=["a", "b"]), TypeError, "b must be numbers"),
        (lambda: as_field(lambda x: x, b=np.ones(2)), ValueError, "a callable subtracts it itself"),
        (lambda: operators.averaged(lambda x: x, 0.0), ValueError, "theta must be in"),
        (lambda: operators.pdhg_map(min, min, np.ones((2, 3)), 0.0, 1.0), ValueError, "tau must be positive"),
        (lambda: operators.pdhg_map(min, min, np.ones((2, 3)), 1.0, -1.0), ValueError, "sigma must be positive"),
        (lambda: operators.pdhg_map(min, min, np.ones(3), 1.0, 1.0), ValueError, "two dimensions"),
        (lambda: operators.estimate_lipschitz(lambda x: x, np.ones(2), 0), ValueError, "n_probe must be at least 1"),
        (lambda: operators.check_monotone(lambda x: x, np.ones(2), 0), ValueError, "n must be at least 1"),
    ],
)
def test_bad_operators(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_an_answer_of_another_shape_or_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r"T must return the shape of its argument, \(3,\), got \(2,\)"):
        as_map(lambda x: x[:2])(np.ones(3))
    with pytest.raises(ValueError, match=r"F must return .* \(3,\), got \(\)"):
        as_field(np.sum)(np.ones(3))
    with pytest.raises(TypeError, match="torch"):
        as_map(lambda x: x.numpy())(torch.ones(2))
    with pytest.raises(TypeError, match="torch"):
        as_map(torch.from_numpy)(np.ones(2))
    for x in (np.ones(2), torch.ones(2)):
        with pytest.raises(TypeError, match="complex"):
            as_field(lambda z: 1j * z)(x)
    with pytest.raises(TypeError, match="object"):
        as_field(lambda z: np.array(["a", 1], dtype=object))(np.ones(2))


def test_an_answer_has_the_precision_of_the_argument() -> None:
    single = np.ones(2, np.float32)
    assert as_field(MATRIX)(single).dtype == np.float32
    assert as_field(lambda x: np.array([1, 2]))(np.ones(2)).dtype == np.float64
    assert as_field(lambda x: [1, 2])(np.ones(2)).tolist() == [1.0, 2.0]
    assert as_field(lambda x: x.double())(torch.ones(2)).dtype == torch.float32
    assert as_field(lambda x: x.real)(np.ones(2, complex)).dtype == np.complex128


def test_an_argument_changed_in_place_is_refused() -> None:
    for like in (np.ones(2), torch.ones(2)):
        with pytest.raises(ValueError, match="must not change its argument in place"):
            as_map(lambda z: z.__imul__(-1))(like)
    with torch.inference_mode():
        assert as_map(lambda z: -z)(torch.ones(2)).tolist() == [-1.0, -1.0]


def test_an_operator_may_go_through_another_library() -> None:
    """Which warns, or refuses, if it is given arrays that it could not write to."""
    T = as_map(lambda z: torch.from_numpy(z).flip(0).numpy())
    assert T(np.array([1.0, 2.0])).tolist() == [2.0, 1.0]
    assert np.isnan(as_map(lambda z: z)(np.array([np.nan]))).all()


@pytest.mark.parametrize("view", [False, True])
def test_a_function_may_fill_the_same_array_every_time(view: bool) -> None:
    buffer, tensor = np.empty(2), torch.empty(2)

    def fill(z: Any) -> Any:
        np.multiply(2, z, out=buffer)
        return buffer[:] if view else buffer

    def fill_tensor(z: Any) -> Any:
        torch.mul(z, 2, out=tensor)
        return tensor[:] if view else tensor

    for call, like in ((fill, np.ones), (fill_tensor, torch.ones)):
        operator = as_field(call)
        answers = [operator(k * like(2)) for k in range(4)]
        assert [float(answer[0]) for answer in answers] == [0.0, 2.0, 4.0, 6.0]


def shrink(z: Any) -> Any:
    """The proximal operator of |·|."""
    return np.sign(z) * np.maximum(np.abs(z) - 1, 0)


def test_maps_by_hand() -> None:
    assert operators.reflected(shrink)(np.array([3.0, 0.5])).tolist() == [1.0, -0.5]
    assert operators.averaged(lambda x: -x, 0.25)(np.array([2.0])).tolist() == [1.0]
    half = operators.resolvent_map(lambda x: x / 2)
    assert half.kind == "map"
    assert half(np.array([2.0])).tolist() == [1.0]
    # z = (3, ½): x = (2, 0), 2x − z = (1, −½), its projection on [0, ∞) is (1, 0), so z + (−1, 0).
    splitting = operators.douglas_rachford_map(shrink, lambda z: np.maximum(z, 0))
    assert splitting(np.array([3.0, 0.5])).tolist() == [2.0, 0.5]


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, aslinearoperator])
def test_the_primal_dual_map_by_hand(form: Callable[[Any], Any]) -> None:
    """Min ½(x − 3)² + |2x| has the solution x = 1 with the multiplier y = 1."""
    A = form(np.array([[2.0]]))
    T = operators.pdhg_map(
        lambda v, tau: (v + 3 * tau) / (1 + tau), lambda v, sigma: np.clip(v, -1, 1), A, tau=0.5, sigma=0.25
    )
    assert T(np.array([1.0, 1.0])) == pytest.approx([1.0, 1.0], abs=1e-15)
    # From 0: x = 1.5/1.5 = 1, y = clip(¼·2·(2 − 0)) = 1.
    assert T(np.zeros(2)).tolist() == [1.0, 1.0]


@given(seed=SEEDS)
def test_proximal_maps_are_firmly_nonexpansive(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x0 = rng.standard_normal(4)
    for T in (
        shrink,
        operators.douglas_rachford_map(shrink, lambda z: np.clip(z, 0, 1)),
        operators.resolvent_map(lambda z: np.linalg.solve(np.eye(4) + MONOTONE, z)),
    ):
        assert operators.check_nonexpansive(operators.reflected(T), x0, seed=seed, n=8) <= 1 + 1e-12


MONOTONE = np.array([[0.0, 2, 0, 0], [-2, 0, 0, 0], [0, 0, 1, 3], [0, 0, -3, 1]])


def test_lipschitz_constants_of_matrices_are_singular_values() -> None:
    """That of Ouyang and Xu's field, n = 100, is 0.809."""
    problem = ouyang_xu(100)
    assert problem.lipschitz == pytest.approx(0.809, abs=1e-3)
    assert problem.matrix is not None
    found = operators.estimate_lipschitz(sparse.csr_array(problem.matrix), problem.x0)
    assert 0.95 * problem.lipschitz <= found <= problem.lipschitz * (1 + 1e-12)
    assert operators.estimate_lipschitz(np.diag([1.0, -4.0]), np.zeros(2)) == pytest.approx(4.0)
    assert operators.estimate_lipschitz(aslinearoperator(1j * np.eye(2)), np.zeros(2, complex)) == pytest.approx(1.0)
    assert operators.estimate_lipschitz(np.zeros((2, 2)), np.zeros(2)) == 0.0


@given(seed=SEEDS)
def test_lipschitz_constants_of_functions_are_bounded_from_below(seed: int) -> None:
    for kind in ("linear", "nonlinear"):
        problem = random_monotone(kind, 5, seed)
        found = operators.estimate_lipschitz(problem.field, problem.x0, seed=seed)
        assert 0.05 <= found <= problem.lipschitz * (1 + 1e-9)
        assert found == operators.estimate_lipschitz(problem.field, problem.x0, seed=seed)


def test_an_expansion_and_a_field_that_is_not_monotone_are_refuted() -> None:
    x0 = np.zeros((2, 2))
    assert operators.check_monotone(lambda x: 3 * x, x0) == pytest.approx(3)
    assert operators.check_monotone(lambda x: -x, x0) == pytest.approx(-1)
    assert operators.check_monotone(lambda x: x.T - x, x0) >= -2 - 1e-12
    assert operators.check_nonexpansive(lambda x: x.T, x0) == pytest.approx(1)
    assert operators.check_nonexpansive(np.sin, x0) <= 1
    assert operators.check_nonexpansive(lambda x: 1.1 * x, x0) == pytest.approx(1.1)
    tensor = torch.zeros(3, dtype=torch.float64)
    assert operators.check_monotone(lambda x: 2 * x, tensor) == pytest.approx(2)
    assert operators.estimate_lipschitz(lambda x: 2 * x, tensor) == pytest.approx(2)


def test_an_operator_can_be_made_without_as() -> None:
    operator = Operator(LinearOperator((2, 2), matvec=lambda v: -v), "map")
    assert operator(np.ones(2)).tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("shape", [(2, 2), (2, 1), (3,)])
def test_a_matrix_takes_vectors_only(shape: tuple[int, ...]) -> None:
    """A right-hand side would be subtracted along the wrong axis, and rows of a batch would be mixed."""
    with pytest.raises(ValueError, match=r"F has shape \(2, 2\) and takes points of shape \(2,\), got"):
        as_field(np.eye(2), b=[1.0, 2.0])(np.ones(shape))
