"""Matrix games between two players: equilibrium strategies from an anchored, restarted primal-dual method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paperworks.anchoring.drive import fixed_point
from paperworks.anchoring.operators import Operator, pdhg_map, pdhg_norm
from paperworks.core.validation import check_choice, check_integer, check_real

__all__ = ["METHODS", "GameResult", "game_map", "project_simplex", "solve_matrix_game"]

Floats = NDArray[np.float64]

METHODS: dict[str, dict[str, Any]] = {
    "r2halpern": {"reflect": True, "restart": "adaptive"},
    "halpern": {"reflect": True},
    "pdhg": {"schedule": "plain"},
}
"""How the primal-dual map is iterated: arguments of `fixed_point`."""

CHECK_EVERY = 20


@dataclass(frozen=True)
class GameResult:
    """An equilibrium of a matrix game.

    Attributes
    ----------
    value : float
        What the row player gets, the middle of what the two strategies guarantee: wrong by at most ``gap / 2``.
    x, y : ndarray, shapes (m,) and (n,)
        Probabilities of the rows and of the columns.
    gap : float
        What the best row earns against `y` less what `x` earns against the best column, ``max(A y) − min(Aᵀx)``: at least
        0 up to rounding, and 0 at an equilibrium.
    nit : int
        Iterations.
    success : bool
        Whether the gap is within the tolerance.
    """

    value: float
    x: Floats
    y: Floats
    gap: float
    nit: int
    success: bool


def project_simplex(v: Floats) -> Floats:
    """Return the nearest vector of non-negative entries that sum to 1, by sorting.

    Examples
    --------
    >>> project_simplex(np.array([0.75, 0.75, -1.0]))
    array([0.5, 0.5, 0. ])
    """
    falling = np.sort(v)[::-1]
    shift = (np.cumsum(falling) - 1) / np.arange(1, v.size + 1)
    return np.asarray(np.maximum(v - shift[np.count_nonzero(falling > shift) - 1], 0.0))


def game_map(A: ArrayLike) -> tuple[Operator, Callable[[Floats], float]]:
    """Return the primal-dual map of a game on the vector (y, x), and the norm in which it is firmly nonexpansive.

    Its fixed points are the equilibria. Payoffs are taken less their mean, which changes no strategy, and the steps are
    0.998 over the largest singular value, so neither the unit nor the zero of the payoffs matters.

    Parameters
    ----------
    A : array_like, shape (m, n)
        As in `solve_matrix_game`.
    """
    payoff = _payoff(A)
    payoff -= payoff.mean()
    size = float(np.linalg.norm(payoff, 2))
    step = 0.998 / size if size > 0 else 1.0

    def project(v: Floats, step: float) -> Floats:
        return project_simplex(v)

    return pdhg_map(project, project, payoff, step, step), pdhg_norm(payoff, step, step)


def solve_matrix_game(
    A: ArrayLike, tol: float = 1e-9, *, method: str = "r2halpern", maxiter: int = 100_000
) -> GameResult:
    """Find an equilibrium of max over x, min over y of xᵀA y, with x and y probabilities.

    Parameters
    ----------
    A : array_like, shape (m, n)
        What the row player gets, and the column player pays.
    tol : float
        Largest gap, in the unit of the payoffs. It is tested every 20 iterations.
    method : {"r2halpern", "halpern", "pdhg"}
        Reflected, anchored and restarted; without restarts; or the plain primal-dual hybrid gradient method.
    maxiter : int
        Most iterations.

    Returns
    -------
    GameResult

    Raises
    ------
    TypeError
        Payoffs that are not real numbers.
    ValueError
        Payoffs that are not finite, ragged, empty or not a matrix; `tol` negative; `maxiter` below 1; an unknown method.

    Examples
    --------
    >>> found = solve_matrix_game([[3, -1], [-2, 1]])  # mixed: (3, 4)/7 against (2, 5)/7, value 1/7
    >>> round(7 * found.value, 6), (7 * found.x).round(6), (7 * found.y).round(6)
    (1.0, array([3., 4.]), array([2., 5.]))
    """
    payoff = _payoff(A)
    tol, maxiter = check_real(tol, "tol", low=0), check_integer(maxiter, "maxiter", low=1)
    options = METHODS[check_choice(method, "method", METHODS)]
    T, norm = game_map(payoff)
    m, n = payoff.shape

    z = np.concatenate([np.full(n, 1 / n), np.full(m, 1 / m)])

    def guaranteed(z: Floats) -> tuple[float, float]:
        return float((z[n:] @ payoff).min()), float((payoff @ z[:n]).max())

    def stop_within_gap(intermediate_result: Any) -> None:
        nonlocal z
        z = T(intermediate_result.x)
        low, high = guaranteed(z)
        if high - low <= tol:
            raise StopIteration

    found = fixed_point(
        T, z, tol=0.0, maxiter=maxiter, norm=norm, check_every=CHECK_EVERY, callback=stop_within_gap, **options
    )
    if found.success:
        z = T(found.x)
    low, high = guaranteed(z)
    return GameResult((low + high) / 2, z[n:], z[:n], high - low, found.nit, high - low <= tol)


def _payoff(A: ArrayLike) -> Floats:
    """Return payoffs as a new matrix of finite numbers."""
    try:
        payoff = np.array(A)
    except ValueError:
        raise ValueError("the rows of A must have the same length") from None
    if payoff.ndim != 2 or not payoff.size:
        raise ValueError(f"A must be a matrix with at least one entry, got shape {payoff.shape}")
    if payoff.dtype.kind not in "biuf":
        raise TypeError(f"A must be real numbers, got dtype {payoff.dtype}")
    if not np.isfinite(payoff).all():
        raise ValueError("A must be finite")
    return payoff.astype(np.float64)
