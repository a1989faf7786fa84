"""The usual way to an efficient split, to compare against: a cone program through cvxpy."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import ArrayLike

from paperworks.core.extras import require
from paperworks.core.validation import check_vector

__all__ = ["cone_optimum"]


def cone_optimum(a: ArrayLike, b: ArrayLike, solver: str) -> tuple[float, float | None]:
    """Maximise Σ aᵢ·log(1 + bᵢ sᵢ) over shares that sum to at most one, with a solver's own default settings.

    Parameters
    ----------
    a, b : array_like, shape (n,)
        Of logarithmic agents.
    solver : str
        Name of an installed cvxpy solver, e.g. ``"SCS"`` or ``"CLARABEL"``.

    Returns
    -------
    seconds : float
        Spent in cvxpy and the solver.
    welfare : float or None
        At the shares found, scaled down where they exceed the resource; None where the solver gives up.

    Raises
    ------
    MissingExtra
        cvxpy is not installed.
    """
    cvxpy = require("cvxpy", "peers")
    weight, slope = check_vector(a, "a", low=0), check_vector(b, "b", low=0)
    shares = cvxpy.Variable(weight.size, nonneg=True)
    value = weight @ cvxpy.log1p(cvxpy.multiply(slope, shares))
    problem = cvxpy.Problem(cvxpy.Maximize(value), [cvxpy.sum(shares) <= 1])
    start = time.perf_counter()
    try:
        problem.solve(solver=solver)
    except cvxpy.error.SolverError:
        return time.perf_counter() - start, None
    seconds = time.perf_counter() - start
    if shares.value is None:
        return seconds, None
    found = np.maximum(shares.value, 0)
    found /= max(1.0, float(found.sum()))
    return seconds, float(weight @ np.log1p(slope * found))
