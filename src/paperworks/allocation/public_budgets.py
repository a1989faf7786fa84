"""Equilibrium where the mechanism knows the budgets and caps the charges harmonically."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from paperworks.allocation.families import log_odds_of
from paperworks.allocation.mechanism import harmonic_log_demand
from paperworks.allocation.roots import balance, decreasing_root
from paperworks.allocation.valuations import Valuations

__all__ = ["elasticity", "public_market", "public_regret"]

Floats = NDArray[np.float64]

# Entries of the agents × rivals tables that regret works on at a time.
_CHUNK = 2_000_000


def elasticity(spent: Floats, alpha: float) -> Floats:
    """Return ε = −dlog x/dlog λ of a harmonic demand that spends this fraction of its budget."""
    return np.asarray(1 / (alpha + (1 - alpha) * spent))


class _Market:
    """The two nested roots, in coordinates in which each is safe.

    With E = Σ ε_j s_j, Z = λE and τ_i = ε_i s_i/E, the budget constraint is τ ≤ B/Z, the share is s = E·g(τ) with
    g = ατ/(1 − (1−α)τZ/B), and the first-order condition is w'(s) = (Z/E)·(1 + ατ/(1−τ)/(1 − (1−α)τZ/B)).
    For fixed Z every share rises with E, so Σs = 1 has one root E(Z); then Στ = 1 is a root in Z, which exists because
    Στ falls from more than 1 to 0.
    """

    def __init__(self, valuations: Valuations, alpha: float, capacity: float, budgets: Floats, tol: float) -> None:
        self.valuations, self.alpha, self.capacity, self.budgets, self.tol = valuations, alpha, capacity, budgets, tol
        self.log_odds = np.zeros(len(valuations))
        self.log_volume = 0.0
        self.count = 0

    def shares_at(self, log_volume: float, log_money: float) -> Floats:
        """Return the shares for E and Z."""
        self.count += 1
        load = (1 - self.alpha) * np.exp(log_money) / self.budgets
        ceiling = np.clip(log_odds_of(np.minimum(self.budgets / np.exp(log_money), 1.0)), -700, 700)

        def share(y: Floats) -> Floats:
            return np.asarray(np.exp(log_volume) * self.alpha * expit(y) / (1 - load * expit(y)))

        def surplus(y: Floats) -> Floats:
            worth = np.log(self.capacity * self.valuations.marginal(self.capacity * np.minimum(share(y), 1.0), "left"))
            cost = log_money - log_volume + np.log1p(self.alpha * np.exp(y) / (1 - load * expit(y)))
            return np.where(worth > -np.inf, worth - cost, -np.inf)

        self.log_odds = decreasing_root(surplus, self.log_odds, 0.1, -700.0, ceiling)
        return np.where(self.log_odds > -700, share(self.log_odds), 0.0)

    def excess(self, log_money: float) -> float:
        """Return Στ − 1 at Z, after finding E(Z)."""

        def falling(x: float) -> Floats:
            return self.shares_at(-x, log_money)

        x, step = -self.log_volume, 0.5
        short = falling(x).sum() < 1
        other = x
        while (falling(other).sum() < 1) == short and abs(other) < 700:
            x, other, step = other, other - step if short else other + step, 2 * step
        x, shares, _ = balance(falling, min(x, other), max(x, other), self.tol * 1e-3)
        self.log_volume, self.shares = -x, shares
        spent = shares * np.exp(log_money + x) / self.budgets
        return float(np.sum(shares * elasticity(np.minimum(spent, 1.0), self.alpha)) * np.exp(x)) - 1


def public_market(
    valuations: Valuations, alpha: float, capacity: float, budgets: NDArray[np.float64], tol: float
) -> tuple[NDArray[np.float64], float, int]:
    """Return shares and price of the equilibrium with public budgets.

    Parameters
    ----------
    valuations : Valuations
        Of the agents with a positive budget who want anything; two or more.
    alpha : float
        In (0, 1].
    capacity : float
        Units of the resource.
    budgets : ndarray, shape (n,)
        Positive, ``inf`` for no limit.
    tol : float
        A thousand times the relative accuracy of the price.

    Returns
    -------
    shares : ndarray, shape (n,)
    price : float
        Of the whole resource.
    iterations : int

    Warns
    -----
    RuntimeWarning
        The equilibrium may not be the only one.
    """
    state = _Market(valuations, alpha, capacity, budgets, tol)
    reach = capacity * valuations.marginal(capacity / len(valuations))
    low = high = float(np.log(reach.max())) if reach.max() > 0 else 0.0
    step = 0.5
    while state.excess(low) <= 0 and low > -700:
        low, step = low - step, 2 * step
    step = 0.5
    while state.excess(high) > 0 and high < 700:
        low, high, step = high, high + step, 2 * step
    log_money = float(brentq(state.excess, low, high, xtol=tol * 1e-3, rtol=1e-14))
    grid = log_money + np.array([-3.0, -1.0, -0.3, -0.1, 0.1, 0.3, 1.0, 3.0])
    if any((state.excess(z) > 0) != (z < log_money) for z in grid):
        warnings.warn("several prices may clear the market with public budgets", RuntimeWarning, stacklevel=3)
    state.excess(log_money)
    return state.shares, float(np.exp(log_money - state.log_volume)), state.count


def public_regret(
    valuations: Valuations,
    bids: NDArray[np.float64],
    shares: NDArray[np.float64],
    price: float,
    alpha: float,
    capacity: float,
    budgets: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return what each agent could gain by another bid, all others keeping theirs, under the harmonic cap.

    Another bid moves the price along the others' demands D: at price λ the agent gets 1 − D(λ) and pays λ a share, at
    most its budget. Its payment is convex in its share, so the best price is one root.
    """
    live = (bids > 0) & (budgets > 0)
    with np.errstate(divide="ignore"):
        log_bids, log_budgets = np.log(bids[live]), np.log(budgets[live])
        log_limit = np.log(budgets)
    column = np.full(len(valuations), -1)
    column[live] = np.arange(live.sum())

    def rivals(log_price: Floats) -> tuple[Floats, Floats]:
        """Return the demand of all others, at each agent's own price, and its elasticity times it."""
        demand, slope = np.zeros(log_price.size), np.zeros(log_price.size)
        rows = max(_CHUNK // max(int(live.sum()), 1), 1)
        for first in range(0, log_price.size, rows):
            part = slice(first, first + rows)
            log_x = harmonic_log_demand(log_price[part, None], log_bids, log_budgets, alpha)
            own = column[part, None] == np.arange(log_bids.size)
            x = np.where(own, 0.0, np.exp(np.minimum(log_x, 700.0)))
            spent = np.exp(log_x + log_price[part, None] - log_budgets)
            demand[part], slope[part] = x.sum(1), (x * elasticity(spent, alpha)).sum(1)
        return demand, slope

    def surplus(log_price: Floats) -> Floats:
        demand, slope = rivals(log_price)
        share = np.maximum(1 - demand, 0.0)
        worth = np.log(capacity * valuations.marginal(capacity * share, "left"))
        gain = np.minimum(worth - log_price - np.log1p(share / slope), log_limit - log_price - np.log(share))
        return np.where(share > 0, gain, np.inf)

    at = np.full(len(valuations), np.log(price))
    best = decreasing_root(surplus, at, 1e-7)
    wanted = np.maximum(1 - rivals(best)[0], 0.0)
    gain = valuations.value(capacity * wanted) - np.exp(best) * wanted
    gain -= valuations.value(capacity * shares) - price * shares
    steeper = np.where(
        wanted > shares, *(capacity * valuations.marginal(capacity * shares, s) for s in ("right", "left"))
    )
    slope = np.abs(steeper - price * (1 + shares / rivals(at)[1]))
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(wanted == shares, 0.0, np.clip(gain, 0.0, slope * np.abs(wanted - shares))))
