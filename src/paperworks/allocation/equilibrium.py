"""Nash equilibria of the alpha-proportional mechanism, best responses, regret and learning dynamics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from paperworks.allocation.mechanism import Clearing
from paperworks.allocation.roots import balance
from paperworks.allocation.valuations import Valuations
from paperworks.core.validation import check_choice, check_real, check_vector

__all__ = ["Equilibrium", "Trajectory", "best_response", "dynamics", "market", "regret", "solve"]

Floats = NDArray[np.float64]
BudgetMode = Literal["private", "public"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Equilibrium(Clearing):
    """A Nash equilibrium, with what it takes to trust it.

    Attributes
    ----------
    markup : ndarray, shape (n,)
        How much the marginal price that an agent faces exceeds the price: 1 + α·s/(1 − s) without public budgets.
    marginal_value : ndarray, shape (n,)
        Price times markup a unit: what one more unit is worth to an active agent. An upper bound for an agent with
        nothing, a lower bound for one at its budget.
    value, utility : ndarray, shape (n,)
        What the amount is worth, and that minus the payment.
    regret : ndarray, shape (n,)
        What each agent could still gain by another bid.
    price_interval : (float, float)
        All prices that support the shares; `price` is the lowest.
    budgets : ndarray, shape (n,), or None
        What each agent can spend.
    capped : ndarray of bool, shape (n,)
        Who spends the whole budget.
    kappa : float
        Market power that is left at a binding reserve price: 1 above the reserve, 0 if a part stays unsold.
    iterations : int
        Prices tried.
    converged : bool
        Largest regret at most 1e-8 of the price.
    status : str
        ``ok``, ``limit`` (alpha=0), ``unsaturated``, ``no_competition``, ``reserve_binding`` or ``reserve_window``.
    valuations : Valuations or None
        What was solved; not part of the JSON.
    """

    markup: NDArray[np.float64]
    marginal_value: NDArray[np.float64]
    value: NDArray[np.float64]
    utility: NDArray[np.float64]
    regret: NDArray[np.float64]
    price_interval: tuple[float, float]
    budgets: NDArray[np.float64] | None
    capped: NDArray[np.bool_]
    kappa: float
    iterations: int
    converged: bool
    valuations: Valuations | None = field(default=None, repr=False, metadata={"json": False})

    @property
    def welfare(self) -> float:
        """Sum of the values."""
        return float(self.value.sum())

    @property
    def liquid_welfare(self) -> float | None:
        """Sum of the values, each counted up to the agent's budget; None without budgets."""
        return None if self.budgets is None else float(np.minimum(self.value, self.budgets).sum())

    def table(self, vcg: bool = False) -> pd.DataFrame:
        """Return one row an agent.

        Parameters
        ----------
        vcg : bool
            Add what the agent would pay under the Vickrey–Clarke–Groves rule.

        Returns
        -------
        DataFrame
            Columns agent, share, amount, bid, payment, unit_price, marginal_value, markup, budget, spend_fraction,
            capped, value, utility, regret and, if asked for, vcg_payment.
        """
        budgets = np.full(self.shares.size, np.inf) if self.budgets is None else self.budgets
        spent = np.divide(self.payments, budgets, out=np.zeros_like(budgets), where=budgets > 0)
        frame = super().table().assign(
            marginal_value=self.marginal_value,
            markup=self.markup,
            budget=budgets,
            spend_fraction=spent,
            capped=self.capped,
            value=self.value,
            utility=self.utility,
            regret=self.regret,
        )
        return frame.assign(vcg_payment=self._vcg().payments) if vcg else frame

    def summary(self, vcg: bool = False) -> dict[str, Any]:
        """Return the numbers of the whole market.

        Parameters
        ----------
        vcg : bool
            Work out ``vcg_revenue`` too; else it is None.

        Returns
        -------
        dict
            price, price_interval, revenue, welfare, optimum, efficiency (measured), guarantee (before any data),
            certificate (from the shares alone), liquid_welfare, liquid_optimum (None without budgets), vcg_revenue and
            status.
        """
        from paperworks.allocation import benchmarks, guarantees

        valuations = self._known()
        optimum = float(benchmarks.efficient(valuations, self.capacity).welfare)
        liquid = None
        if self.budgets is not None:
            liquid = float(benchmarks.liquid_optimum(valuations, self.budgets, self.capacity).welfare)
        alpha = float(self.alpha or 0.0)
        competing = self.status in ("ok", "reserve_window")
        return {
            "price": self.price,
            "price_interval": self.price_interval,
            "revenue": self.revenue,
            "welfare": self.welfare,
            "optimum": optimum,
            "efficiency": self.welfare / optimum if optimum > 0 else 1.0,
            "guarantee": float(guarantees.efficiency_bound(alpha, len(valuations))),
            "certificate": float(guarantees.efficiency_certificate(self.shares, alpha)) if competing else None,
            "liquid_welfare": self.liquid_welfare,
            "liquid_optimum": liquid,
            "vcg_revenue": float(self._vcg().revenue) if vcg else None,
            "status": self.status,
        }

    def _known(self) -> Valuations:
        if self.valuations is None:
            raise ValueError("valuations must be known, got an equilibrium read from JSON; solve it again")
        return self.valuations

    def _vcg(self) -> Any:
        from paperworks.allocation import benchmarks

        return benchmarks.vcg(self._known(), self.capacity)


def solve(
    valuations: Valuations,
    alpha: float,
    capacity: float = 1.0,
    budgets: ArrayLike | None = None,
    budget_mode: BudgetMode = "private",
    reserve: float = 0.0,
    tol: float = 1e-10,
    cap: Literal["harmonic"] = "harmonic",
) -> Equilibrium:
    """Return the Nash equilibrium of the alpha-proportional mechanism.

    Each agent's anticipated demand falls with the price, so one root in the price gives the shares, which are unique.
    The price is not unique where every active agent sits at a kink: then the lowest is taken and the interval told.

    Parameters
    ----------
    valuations : Valuations
        What quantities are worth to the agents.
    alpha : float
        Exponent of the mechanism, in [0, 1]; 0 gives the limit α → 0: efficient shares at the competitive price.
    capacity : float
        Units of the resource.
    budgets : array_like, shape (n,), optional
        What each agent can spend, ``inf`` for no limit; those of `valuations` if left out.
    budget_mode : {"private", "public"}
        ``private``: agents keep to their budgets. ``public``: the mechanism knows the budgets and caps the charges
        harmonically, and agents ignore budgets in their strategies.
    reserve : float
        Least price of the whole resource.
    tol : float
        Relative accuracy of the price is a thousandth of this.
    cap : {"harmonic"}
        The form of the public budgets.

    Returns
    -------
    Equilibrium
        With every agent's regret.

    Raises
    ------
    ValueError
        Arguments out of range; public budgets without budgets, with a reserve, with alpha=0, or with the hard cap.

    Examples
    --------
    >>> eq = solve(Valuations.linear([1, 0.5], names=["nlp", "speech"]), alpha=1.0)
    >>> eq.shares.round(6), round(eq.price, 6), eq.converged
    (array([0.666667, 0.333333]), 0.333333, True)

    References
    ----------
    R. Johari and J. Tsitsiklis, "Efficiency loss in a network resource allocation game", 2004 (alpha = 1).
    """
    alpha = check_real(alpha, "alpha", low=0, high=1)
    capacity = check_real(capacity, "capacity", low=0, open_low=True)
    reserve = check_real(reserve, "reserve", low=0)
    tol = check_real(tol, "tol", low=0, open_low=True)
    limits = _budgets_of(valuations, budgets)
    if cap != "harmonic" or budget_mode == "hard":
        raise ValueError(
            "cap must be 'harmonic' to solve: under the hard cap payments are not convex and there may be no equilibrium"
        )
    check_choice(budget_mode, "budget_mode", ("private", "public"))
    if budget_mode == "public":
        return _solve_public(valuations, alpha, capacity, limits, reserve, tol)
    spendable = np.full(len(valuations), np.inf) if limits is None else limits
    outcome = _find(valuations, alpha, capacity, spendable, reserve, tol)
    return _certified(valuations, alpha, capacity, limits, spendable, reserve, outcome)


@dataclass
class _Outcome:
    """Shares and price of a market, and how they came about."""

    shares: Floats
    price: float
    price_high: float
    status: str = "ok"
    kappa: float = 1.0
    iterations: int = 0


def _budgets_of(valuations: Valuations, budgets: ArrayLike | None) -> Floats | None:
    if budgets is None:
        return valuations.budgets
    labels = valuations.names if isinstance(valuations.names, tuple) else None
    return check_vector(budgets, "budgets", length=len(valuations), low=0, allow_inf=True, labels=labels)


def _degenerate(
    valuations: Valuations, alpha: float, capacity: float, budgets: Floats, reserve: float
) -> _Outcome | None:
    """Return the outcome where nobody competes, or None where some do."""
    active = (valuations.marginal0() > 0) & (budgets > 0)
    satiation = np.where(active, np.minimum(valuations.satiation() / capacity, 1.0), 0.0)
    if active.sum() < 2:
        status = "no_competition"
    elif satiation.sum() <= 1 and reserve == 0:
        status = "unsaturated"
    else:
        return None
    shares = satiation
    if reserve > 0:
        shares = np.minimum(np.where(active, valuations.demand(reserve, 0.0, capacity), 0.0), budgets / reserve)
    return _Outcome(shares, reserve, reserve, status, kappa=0.0)


def _find(
    valuations: Valuations, alpha: float, capacity: float, budgets: Floats, reserve: float, tol: float
) -> _Outcome:
    """Return the equilibrium with private budgets."""
    outcome = _degenerate(valuations, alpha, capacity, budgets, reserve)
    if outcome is not None:
        return outcome
    if reserve > 0:

        def at_reserve(kappa: float) -> Floats:
            return np.minimum(valuations.demand(reserve, kappa * alpha, capacity), budgets / reserve)

        taken = at_reserve(0.0)
        if taken.sum() <= 1:
            return _Outcome(taken, reserve, reserve, "reserve_binding", 0.0, 1)
        if at_reserve(1.0).sum() < 1:
            kappa, shares, count = balance(at_reserve, 0.0, 1.0, tol * 1e-3)
            return _Outcome(shares, reserve, reserve, "reserve_window", kappa, count + 2)
    shares, low, high, count = market(valuations, alpha, capacity, budgets, tol)
    low = max(low, reserve)
    return _Outcome(shares, low, max(low, high), "ok" if alpha > 0 else "limit", 1.0, count)


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
    latest: list[Floats] = []

    def shares_at(log_price: float) -> Floats:
        price = np.exp(log_price)
        demand = valuations.demand(price, alpha, capacity, latest[-1] if latest else None)
        latest[:] = [demand]
        return np.minimum(demand, limits / price)

    n = len(valuations)
    reach = capacity * valuations.marginal(capacity / n)
    start = float(np.log(reach.max())) if reach.max() > 0 else float(np.log(capacity * _finite_max(valuations, capacity)))
    low, high, step = _bracket(shares_at, start)
    log_price, shares, count = balance(shares_at, low, high, tol * 1e-3)
    price = float(np.exp(log_price))
    least, most = _price_interval(valuations, alpha, capacity, limits, shares)
    if not least < most * (1 - 1e-10):
        least = most = price
    return shares, least, most, count + step


def _finite_max(valuations: Valuations, capacity: float) -> float:
    """Return the largest first marginal value, or one near 0 where it is infinite."""
    first = valuations.marginal0()
    first = first if np.isfinite(first).all() else valuations.marginal(capacity * 1e-9)
    return float(first[first > 0].max())


def _bracket(shares_at: Any, start: float) -> tuple[float, float, int]:
    """Return log prices below and above the one that clears the market, and the number of prices tried."""
    low = high = start
    step, count = 0.5, 0
    while shares_at(low).sum() < 1 and low > -740:
        low, high, step, count = low - step, low, 2 * step, count + 1
    while low == start and shares_at(high).sum() >= 1 and high < 709:
        low, high, step, count = low if high == start else high, high + step, 2 * step, count + 1
    return low, high, count
