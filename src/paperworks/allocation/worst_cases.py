"""Agents for whom equilibria are as bad as they can be: constructed, or searched for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.optimize import differential_evolution
from scipy.special import softmax

from paperworks.allocation.equilibrium import solve
from paperworks.allocation.guarantees import efficiency_bound, liquid_bound, revenue_bound
from paperworks.allocation.optima import efficient, liquid_optimum, vcg
from paperworks.allocation.valuations import Valuations
from paperworks.core.validation import check_choice, check_integer, check_real

__all__ = ["WorstCase", "search_worst_case", "worst_case_instance"]


Objective = Literal["efficiency", "revenue", "liquid"]


def worst_case_instance(alpha: float, n: int) -> Valuations:
    r"""Return n linear agents whose equilibrium is exactly `efficiency_bound(alpha, n)` efficient.

    With N = n − 1, :math:`k = \sqrt{1/\alpha + 1/N}`, odds :math:`r = k + 1/N` and :math:`r_y = 1/(Nr + N - 1)`
    the slopes are (1, β, …, β), :math:`\beta = (1+\alpha r_y)/(1+\alpha r)`. At the equilibrium agent 1 has the
    share r/(1+r), the others share the rest equally, and the price is 1/(1+αr).

    Parameters
    ----------
    alpha : float
        In (0, 1].
    n : int
        At least 2.

    Examples
    --------
    >>> worst_case_instance(1.0, 2).marginal0().round(4)
    array([1.    , 0.4142])
    """
    alpha = check_real(alpha, "alpha", low=0, high=1, open_low=True)
    others = check_integer(n, "n", low=2) - 1
    odds = math.sqrt(1 / alpha + 1 / others) + 1 / others
    odds_other = 1 / (others * odds + others - 1)
    slope = (1 + alpha * odds_other) / (1 + alpha * odds)
    return Valuations.linear(np.r_[1.0, np.full(others, slope)])


@dataclass(frozen=True)
class WorstCase:
    """The worst instance that a search found.

    Attributes
    ----------
    objective : {"efficiency", "revenue", "liquid"}
        What was minimised.
    ratio : float
        Its value: welfare, revenue or liquid welfare of the equilibrium over its benchmark.
    guarantee : float
        The closed-form bound, which no instance can undercut.
    valuations : Valuations
        The instance, with its budgets where the objective is ``"liquid"``; the capacity is 1.
    evaluations : int
        Instances solved.
    """

    objective: Objective
    ratio: float
    guarantee: float
    valuations: Valuations
    evaluations: int


def search_worst_case(
    objective: Objective = "efficiency",
    alpha: float = 1.0,
    n: int = 2,
    segments: int = 2,
    budget: int = 40,
    seed: int = 0,
    n_jobs: int = 1,
) -> WorstCase:
    """Search by differential evolution for the piecewise-linear instance with the worst equilibrium.

    Coordinates u in [−1, 1]: slopes are exp(6u), sorted, segment widths are softmax(3u) and, for the liquid
    objective, budgets are exp(6u); 8 individuals a coordinate.

    Parameters
    ----------
    objective : {"efficiency", "revenue", "liquid"}
        Welfare over the optimum, revenue over VCG revenue, or liquid welfare over its optimum under private budgets.
    alpha : float
        In (0, 1].
    n : int
        Number of agents, at least 2.
    segments : int
        Linear pieces of each valuation.
    budget : int
        Generations of the search.
    seed : int
        Of the search; the result does not depend on `n_jobs`.
    n_jobs : int
        Processes, as in joblib.

    Examples
    --------
    >>> found = search_worst_case("efficiency", alpha=1.0, n=2, segments=1, budget=5)
    >>> bool(found.ratio >= found.guarantee)
    True

    References
    ----------
    Storn, Price: Differential evolution, 1997.
    """
    check_choice(objective, "objective", list(_RATIOS))
    alpha = check_real(alpha, "alpha", low=0, high=1, open_low=True)
    n, segments = check_integer(n, "n", low=2), check_integer(segments, "segments", low=1)
    size = 2 * n * segments + (n if objective == "liquid" else 0)
    with Parallel(n_jobs=n_jobs) as pool:
        found = differential_evolution(
            partial(_objective, objective=objective, alpha=alpha, n=n, segments=segments),
            bounds=[(-1.0, 1.0)] * size,
            maxiter=check_integer(budget, "budget", low=1),
            popsize=8,
            rng=check_integer(seed, "seed", low=0),
            tol=0,
            polish=False,
            updating="deferred",
            workers=partial(_spread, pool),
        )
    guarantee = {"efficiency": efficiency_bound(alpha, n), "revenue": revenue_bound(alpha), "liquid": liquid_bound()}
    instance = _instance(found.x, n, segments)
    return WorstCase(objective, float(found.fun), guarantee[objective], instance, int(found.nfev))


def _efficiency(instance: Valuations, alpha: float) -> float:
    shares = solve(instance, alpha).shares
    return float(instance.value(shares).sum()) / efficient(instance).welfare


def _revenue(instance: Valuations, alpha: float) -> float:
    return float(solve(instance, alpha).price / vcg(instance).revenue)


def _liquid(instance: Valuations, alpha: float) -> float:
    return (solve(instance, alpha).liquid_welfare or 0.0) / liquid_optimum(instance).welfare


_RATIOS: dict[str, Callable[[Valuations, float], float]] = {
    "efficiency": _efficiency,
    "revenue": _revenue,
    "liquid": _liquid,
}


def _objective(u: NDArray[np.float64], objective: str, alpha: float, n: int, segments: int) -> float:
    return _RATIOS[objective](_instance(u, n, segments), alpha)


def _instance(u: NDArray[np.float64], n: int, segments: int) -> Valuations:
    """Decode search coordinates into valuations on [0, 1], with budgets if coordinates are left for them."""
    slopes = -np.sort(-np.exp(6 * u[: n * segments].reshape(n, segments)), axis=1)
    widths = softmax(3 * u[n * segments : 2 * n * segments].reshape(n, segments), axis=1)
    edges = np.concatenate([np.zeros((n, 1)), np.cumsum(widths, axis=1)], axis=1)
    values = np.concatenate([np.zeros((n, 1)), np.cumsum(slopes * widths, axis=1)], axis=1)
    budgets = np.exp(6 * u[2 * n * segments :]) if u.size > 2 * n * segments else None
    return Valuations.piecewise(list(np.stack([edges, values], axis=2)), budgets=budgets)


def _spread(pool: Any, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Map `function` over `items` in the joblib pool."""
    return list(pool(delayed(function)(item) for item in items))
