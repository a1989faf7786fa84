"""Where anticipated demands add up to the capacity: shares and the interval of prices that support them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from paperworks.allocation.mechanism import rest_of
from paperworks.allocation.roots import balance
from paperworks.allocation.valuations import Valuations

__all__ = ["market", "markups"]

Floats = NDArray[np.float64]


def market(
    valuations: Valuations,
    alpha: float,
    capacity: float = 1.0,
    budgets: NDArray[np.float64] | None = None,
    tol: float = 1e-10,
) -> tuple[NDArray[np.float64], float, float, int]:
    """Return the shares at which anticipated demands fill the capacity, and the interval of their prices.

    Parameters
    ----------
    valuations, alpha, capacity, tol
        As in `solve`; together the agents must want at least the capacity.
    budgets : ndarray, shape (n,), optional
        Private budgets.

    Returns
    -------
    shares : ndarray, shape (n,)
    low, high : float
        Prices of the whole resource; equal unless the active agents sit at kinks.
    iterations : int

    Examples
    --------
    >>> shares, low, high, _ = market(Valuations.piecewise([[(0.5, 2), (1, 2.5)], [(0.5, 1.5), (1, 2.5)]]), 0.5)
    >>> shares, round(low, 6), round(high, 6)
    (array([0.5, 0.5]), 1.333333, 2.0)
    """
    limits = np.full(len(valuations), np.inf) if budgets is None else budgets
    free = valuations.demand(0.0, 0.0, capacity)
    if free.sum() <= 1:
        return free, 0.0, 0.0, 1
    nearest: dict[float, Floats] = {np.inf: free}

    def shares_at(log_price: float) -> Floats:
        price = np.exp(log_price)
        near = min(nearest, key=lambda other: abs(other - log_price))
        demand = valuations.demand(price, alpha, capacity, nearest[near], min(abs(near - log_price), 0.25) + 1e-12)
        nearest[log_price] = demand
        if len(nearest) > 3:
            del nearest[max(nearest, key=lambda other: abs(other - log_price))]
        return np.asarray(np.minimum(demand, limits / price))

    low, high, tried = _bracket(shares_at, _typical_log_price(valuations, capacity))
    log_price, shares, count = balance(shares_at, low, high, tol * 1e-3)
    least, most = _price_interval(valuations, alpha, capacity, limits, shares)
    if not least < most * (1 - 1e-10):
        least = most = float(np.clip(np.exp(log_price), min(least, most), max(least, most)))
    return shares, least, most, count + tried


def _typical_log_price(valuations: Valuations, capacity: float) -> float:
    """Return the largest marginal value at an equal split, or at a smaller share if all of it underflows there."""
    share = 1 / len(valuations)
    while (worth := capacity * valuations.marginal(capacity * share).max()) <= 0:
        share /= 2
    return float(np.log(worth))


def _bracket(shares_at: Callable[[float], Floats], start: float) -> tuple[float, float, int]:
    """Return log prices below and above the one that clears the market, and the number of prices tried."""
    rising = shares_at(start).sum() >= 1
    here, there, step, count = start, start, 0.5, 1
    while (shares_at(there).sum() >= 1) == rising and -740 < there < 700:
        here, there, step, count = there, there + step if rising else there - step, 2 * step, count + 1
    return min(here, there), max(here, there), count


def markups(shares: Floats, alpha: float) -> Floats:
    """Return 1 + α·s/(1 − s), with 1 − s taken as what the others have."""
    with np.errstate(divide="ignore"):
        odds = np.divide(shares, rest_of(shares), out=np.zeros_like(shares), where=shares > 0)
    return 1 + alpha * odds if alpha > 0 else np.ones_like(shares)


def _price_interval(
    valuations: Valuations, alpha: float, capacity: float, budgets: Floats, shares: Floats
) -> tuple[float, float]:
    """Return the least and the greatest price at which nobody wants to move from these shares."""
    markup = markups(shares, alpha)
    ceiling = np.divide(budgets, shares, out=np.where(budgets > 0, np.inf, 0.0), where=shares > 0)
    right, left = (
        np.minimum(capacity * valuations.marginal(capacity * shares, side) / markup, ceiling)
        for side in ("right", "left")
    )
    return float(right[np.isfinite(right)].max()), float(left[shares > 0].min())
