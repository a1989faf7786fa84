"""Maps and fields: what is iterated, or set to zero, and where they come from."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from paperworks.anchoring.arrays import (
    all_finite,
    as_point,
    copied,
    inner,
    normal_like,
    norms,
    owner,
    same_kind,
    unchanged,
)
from paperworks.anchoring.schedules import Kind
from paperworks.core.validation import check_integer, check_real

__all__ = [
    "Operator",
    "as_field",
    "as_map",
    "averaged",
    "check_monotone",
    "check_nonexpansive",
    "douglas_rachford_map",
    "estimate_lipschitz",
    "pdhg_map",
    "pdhg_norm",
    "reflected",
    "resolvent_map",
]


class Operator:
    """A map T, of which a fixed point is wanted, or a field F, of which a zero is.

    Calling it checks that the answer has the shape of the argument, which must not be changed in place, and counts.

    Attributes
    ----------
    kind : {"map", "field"}
    calls : int
        How often it was called.
    """

    __slots__ = ("_args", "_call", "_last", "calls", "kind", "matrix")

    def __init__(self, call: Callable[..., Any], kind: Kind, args: tuple[Any, ...] = (), matrix: Any = None) -> None:
        self._call, self._args, self.kind, self.matrix = call, args, kind, matrix
        self.calls = 0
        self._last: weakref.ref[Any] | None = None

    def __call__(self, z: Any) -> Any:
        """Return the operator's value at `z`, an array of its shape and precision."""
        self.calls += 1
        if self._last is None:
            with unchanged(z):
                value = self._call(z, *self._args)
        else:
            value = self._call(z, *self._args)
        value = same_kind(value, z, "T" if self.kind == "map" else "F")
        # A function may fill and return the same array every time, and earlier answers are still needed.
        memory = owner(value)
        if self._last is None or self._last() is memory:
            value = copied(value)
        self._last = weakref.ref(memory)
        return value


def as_map(T: Any, args: tuple[Any, ...] = ()) -> Operator:
    """Return a callable or a `LinearOperator` as a map.

    Raises
    ------
    TypeError
        Not callable, or made with `as_field`.
    ValueError
        A `LinearOperator` that is not square.
    """
    if isinstance(T, Operator):
        if T.kind != "map":
            raise TypeError("T must be a map, got a field: use solve_equation for fields")
        return T
    if not callable(T):
        raise TypeError(f"T must be callable or a LinearOperator, got {type(T).__name__}")
    if isinstance(T, LinearOperator) and T.shape[0] != T.shape[1]:
        raise ValueError(f"T must be square, got shape {T.shape}")
    return Operator(T, "map", tuple(args))


def as_field(F: Any, b: Any = None, args: tuple[Any, ...] = ()) -> Operator:
    """Return a callable, matrix or `LinearOperator` as a field; of the latter it is x ↦ F x − b.

    Raises
    ------
    TypeError
        Not callable, or made with `as_map`.
    ValueError
        A matrix that is not square or not finite, a `b` of another length or not finite, or one with a callable.
    """
    if isinstance(F, Operator):
        if F.kind != "field":
            raise TypeError("F must be a field, got a map: use fixed_point for maps")
        return F
    if sparse.issparse(F) or isinstance(F, (LinearOperator, np.ndarray)):
        matrix = F if isinstance(F, np.ndarray) else aslinearoperator(F) if not sparse.issparse(F) else F
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"F must be square, got shape {matrix.shape}")
        if not isinstance(F, LinearOperator) and not all_finite(F.data if sparse.issparse(F) else F):
            raise ValueError("F must be finite")
        shift = None if b is None else as_point(b, "b")
        if shift is not None and shift.shape != matrix.shape[:1]:
            raise ValueError(f"b must have shape {matrix.shape[:1]}, as F has shape {matrix.shape}, got {shift.shape}")

        def call(z: Any) -> Any:
            if z.shape != matrix.shape[:1]:
                raise ValueError(
                    f"F has shape {matrix.shape} and takes points of shape {matrix.shape[:1]}, got {z.shape}"
                )
            return matrix @ z if shift is None else matrix @ z - shift

        return Operator(call, "field", (), matrix)
    if not callable(F):
        raise TypeError(f"F must be callable or a LinearOperator, got {type(F).__name__}")
    if b is not None:
        raise ValueError("b is for a matrix or LinearOperator F; a callable subtracts it itself")
    return Operator(F, "field", tuple(args))


def reflected(T: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return x ↦ 2T(x) − x, which is nonexpansive if T is firmly nonexpansive."""
    return lambda x: 2 * T(x) - x


def averaged(T: Callable[[Any], Any], theta: float = 0.5) -> Callable[[Any], Any]:
    """Return x ↦ (1 − θ)x + θT(x), the Krasnoselskii–Mann map.

    Raises
    ------
    ValueError
        θ outside (0, 1].
    """
    theta = check_real(theta, "theta", low=0, high=1, open_low=True)
    return lambda x: (1 - theta) * x + theta * T(x)


def resolvent_map(solve: Callable[[Any], Any]) -> Operator:
    """Return the resolvent x ↦ (I + F)⁻¹x as a map; `solve` returns it. It is firmly nonexpansive if F is monotone."""
    return as_map(solve)


def douglas_rachford_map(prox_f: Callable[[Any], Any], prox_g: Callable[[Any], Any]) -> Operator:
    """Return the Douglas–Rachford map z ↦ z + prox_g(2·prox_f(z) − z) − prox_f(z); it is firmly nonexpansive.

    Where z is a fixed point, prox_f(z) minimises f + g.

    Parameters
    ----------
    prox_f, prox_g : callable
        Proximal operators of convex functions: the minimiser of f(u) + ½‖u − z‖².
    """

    def call(z: Any) -> Any:
        x = prox_f(z)
        return z + prox_g(2 * x - z) - x

    return as_map(call)


def pdhg_map(
    prox_g: Callable[[Any, float], Any],
    prox_fstar: Callable[[Any, float], Any],
    A: Any,
    tau: float,
    sigma: float,
) -> Operator:
    """Return one iteration of the primal-dual hybrid gradient method for min g(x) + f(Ax), on the vector (x, y).

    With τσ‖A‖² ≤ 1 it is firmly nonexpansive in the norm of `pdhg_norm`, not in the Euclidean one.

    Parameters
    ----------
    prox_g, prox_fstar : callable
        ``prox_g(v, tau)`` is the minimiser of τ·g(u) + ½‖u − v‖²; `prox_fstar` the same of the conjugate of f.
    A : array, sparse matrix or LinearOperator, shape (m, n)
        The map between them.
    tau, sigma : float
        Steps, positive.

    Raises
    ------
    ValueError
        A step that is not positive, or a matrix of another form.
    """
    tau = check_real(tau, "tau", low=0, open_low=True)
    sigma = check_real(sigma, "sigma", low=0, open_low=True)
    matrix = A if isinstance(A, np.ndarray) or sparse.issparse(A) else aslinearoperator(A)
    if len(matrix.shape) != 2:
        raise ValueError(f"A must have two dimensions, got shape {matrix.shape}")
    transposed, n = matrix.T, matrix.shape[1]

    def call(z: Any) -> Any:
        x, y = z[:n], z[n:]
        x_new = prox_g(x - tau * (transposed @ y), tau)
        y_new = prox_fstar(y + sigma * (matrix @ (2 * x_new - x)), sigma)
        return np.concatenate([x_new, y_new])

    return as_map(call)


def pdhg_norm(A: Any, tau: float, sigma: float) -> Callable[[Any], float]:
    """Return the norm of the primal-dual hybrid gradient method, (‖x‖²/τ − 2⟨Ax, y⟩ + ‖y‖²/σ)^½ of the vector (x, y).

    Parameters
    ----------
    A, tau, sigma
        As in `pdhg_map`, τσ‖A‖² ≤ 1.
    """
    n = A.shape[1]

    def norm(z: Any) -> float:
        x, y = z[:n], z[n:]
        square = inner(x, x) / tau - 2 * inner(A @ x, y) + inner(y, y) / sigma
        return float(np.sqrt(max(square, 0.0)))

    return norm


def estimate_lipschitz(F: Any, x0: Any, n_probe: int = 8, seed: int = 0) -> float:
    """Return an estimate of the Lipschitz constant of a field, from below.

    Of a matrix it is the largest singular value, by power iteration; of a callable the largest ratio
    ‖F(u) − F(v)‖/‖u − v‖ on random pairs around `x0`, which can be far too small elsewhere.

    Parameters
    ----------
    F : callable, matrix or LinearOperator
        The field.
    x0 : array
        Where to look, and how far: steps are of the size of its entries, at least 1.
    n_probe : int
        Pairs, or power iterations times 25.
    seed : int
        Of the directions.
    """
    operator, n_probe = as_field(F), check_integer(n_probe, "n_probe", low=1)
    x0 = as_point(x0)
    rng = np.random.default_rng(check_integer(seed, "seed", low=0))
    if operator.matrix is not None:
        return _largest_singular_value(operator.matrix, rng, 25 * n_probe)
    size = max(1.0, norms(x0, "inf"))
    found, here = 0.0, operator(x0)
    for k in range(n_probe):
        step = normal_like(x0, rng)
        step *= size * 10.0 ** -(k % 4)
        value = operator(x0 + step)
        found = max(found, norms(value - here) / norms(step))
    return found


def _largest_singular_value(matrix: Any, rng: np.random.Generator, steps: int) -> float:
    operator = aslinearoperator(matrix)
    v = rng.standard_normal(operator.shape[1])
    size = 0.0
    for _ in range(steps):
        v /= np.linalg.norm(v)
        u = operator.matvec(v)
        size = float(np.linalg.norm(u))
        v = operator.rmatvec(u)
        if not np.any(v):
            break
    return size


def check_monotone(F: Any, x0: Any, n: int = 64, seed: int = 0) -> float:
    """Return the least ⟨F(u) − F(v), u − v⟩/‖u − v‖² over random pairs around `x0`: negative refutes, nothing proves."""
    return min(_secants(as_field(F), x0, n, seed, lambda change, step: inner(change, step) / inner(step, step)))


def check_nonexpansive(T: Any, x0: Any, n: int = 64, seed: int = 0) -> float:
    """Return the largest ‖T(u) − T(v)‖/‖u − v‖ over random pairs around `x0`: above 1 refutes, nothing proves."""
    return max(_secants(as_map(T), x0, n, seed, lambda change, step: norms(change) / norms(step)))


def _secants(operator: Operator, x0: Any, n: int, seed: int, ratio: Callable[[Any, Any], float]) -> list[float]:
    """Return a ratio of change to step for random pairs at four scales."""
    x0 = as_point(x0)
    rng = np.random.default_rng(check_integer(seed, "seed", low=0))
    size = max(1.0, norms(x0, "inf"))
    found = []
    for k in range(check_integer(n, "n", low=1)):
        scale = size * 10.0 ** -(k % 4)
        u, v = (x0 + scale * normal_like(x0, rng) for _ in range(2))
        found.append(float(ratio(operator(u) - operator(v), u - v)))
    return found
