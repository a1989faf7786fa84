"""Nash equilibria of the α-proportional mechanism, each with every agent's regret."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from paperworks.allocation import optima
from paperworks.allocation.guarantees import efficiency_bound
from paperworks.allocation.market import market, markups
from paperworks.allocation.mechanism import AlphaProportional, Clearing, rest_of
from paperworks.allocation.public_budgets import elasticity, public_market, public_regret
from paperworks.allocation.responses import BudgetMode, Game, budgets_of, gains
from paperworks.allocation.roots import balance
from paperworks.allocation.valuations import Valuations
from paperworks.core.validation import check_choice, check_real

__all__ = ["Equilibrium", "solve"]

Floats = NDArray[np.float64]
Index = NDArray[np.intp]


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
    budget_mode : str
        ``private`` or ``public``.
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
    budget_mode: BudgetMode
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
        frame = (
            super()
            .table()
            .assign(
                marginal_value=self.marginal_value,
                markup=self.markup,
                budget=budgets,
                spend_fraction=spent,
                capped=self.capped,
                value=self.value,
                utility=self.utility,
                regret=self.regret,
            )
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
            price, price_interval, revenue, welfare, optimum, efficiency (measured), guarantee (least efficiency in any
            such market), certificate (least efficiency for these shares; both None where a budget or the reserve
            binds), liquid_welfare, liquid_optimum (None without budgets), vcg_revenue and status.
        """
        valuations = self._known()
        optimum = float(optima.efficient(valuations, self.capacity).welfare)
        liquid = None
        if self.budgets is not None:
            liquid = float(optima.liquid_optimum(valuations, self.budgets, self.capacity).welfare)
        guarantee = certificate = None
        if self.status in ("ok", "limit") and not self.capped.any():
            guarantee = efficiency_bound(float(self.alpha or 0.0), len(valuations))
            if self.budget_mode == "public":
                # Caps that do not bind yet act like a larger exponent.
                spent = min(float(self.table()["spend_fraction"].max()), 1.0)
                guarantee = efficiency_bound((self.alpha or 0.0) * (1 - spent) + spent)
            # An infinite markup is that of an agent who has everything.
            largest = float(self.markup.max())
            certificate = float(self.shares @ self.markup) / largest if largest < np.inf else 1.0
        return {
            "price": self.price,
            "price_interval": self.price_interval,
            "revenue": self.revenue,
            "welfare": self.welfare,
            "optimum": optimum,
            "efficiency": self.welfare / optimum if optimum > 0 else 1.0,
            "guarantee": guarantee,
            "certificate": certificate,
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
        return optima.vcg(self._known(), self.capacity)


def solve(
    valuations: Valuations,
    alpha: float,
    capacity: float = 1.0,
    budgets: ArrayLike | None = None,
    budget_mode: BudgetMode = "private",
    reserve: float = 0.0,
    tol: float = 1e-10,
    cap: Literal["harmonic", "hard"] = "harmonic",
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
        How public budgets limit charges; the mechanism's ``"hard"`` cap is refused.

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
    limits = budgets_of(valuations, budgets)
    if cap == "hard":
        raise ValueError("cap must be 'harmonic', got 'hard': its payments are not convex, so equilibria may not exist")
    check_choice(cap, "cap", ("harmonic",))
    check_choice(budget_mode, "budget_mode", ("private", "public"))
    if budget_mode == "public":
        return _solve_public(valuations, alpha, capacity, limits, reserve, tol)
    spendable = np.full(len(valuations), np.inf) if limits is None else limits
    outcome = _find(valuations, alpha, capacity, spendable, reserve, tol)
    return _certified(valuations, alpha, capacity, limits, reserve, outcome)


@dataclass
class _Outcome:
    """Shares and price of a market, and how they came about."""

    shares: Floats
    price: float
    price_high: float
    status: str = "ok"
    kappa: float = 1.0
    iterations: int = 0
    budget_mode: BudgetMode = "private"


def _degenerate(valuations: Valuations, capacity: float, budgets: Floats, reserve: float) -> _Outcome | None:
    """Return the outcome where nobody competes, or None where some do."""
    active = (valuations.marginal0() > 0) & (budgets > 0)
    satiation = np.where(active, valuations.demand(0.0, 0.0, capacity), 0.0)
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
    outcome = _degenerate(valuations, capacity, budgets, reserve)
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
    if alpha == 0:
        # In the limit an agent who takes everything pays what the others would.
        others = rest_of(shares) > 0
        low = min(low, float((capacity * valuations.marginal(capacity * shares))[others].max(initial=0.0)))
    low = max(low, reserve)
    return _Outcome(shares, low, max(low, high), "ok" if alpha > 0 else "limit", 1.0, count)


def _certified(
    valuations: Valuations,
    alpha: float,
    capacity: float,
    limits: Floats | None,
    reserve: float,
    outcome: _Outcome,
) -> Equilibrium:
    """Return the equilibrium with bids, marginal values and every agent's regret."""
    shares, price = outcome.shares, outcome.price
    spendable = np.full(len(valuations), np.inf) if limits is None else limits
    if price > 0:
        with np.errstate(divide="ignore"):
            level = (
                np.log(price) + alpha * np.log(rest_of(shares)) if alpha > 0 else np.full_like(shares, np.log(price))
            )
        regrets = gains(valuations, shares, price, Game(level, alpha, capacity, spendable, reserve))
    else:
        regrets = np.zeros_like(shares)
    bids = price * np.where(shares > 0, shares**alpha, 0.0)
    return _assembled(
        valuations, alpha, capacity, limits, outcome, bids, markups(shares, alpha * outcome.kappa), regrets
    )


def _assembled(
    valuations: Valuations,
    alpha: float,
    capacity: float,
    limits: Floats | None,
    outcome: _Outcome,
    bids: Floats,
    markup: Floats,
    regrets: Floats,
) -> Equilibrium:
    shares, price = outcome.shares, outcome.price
    value = valuations.value(capacity * shares)
    capped = np.zeros(shares.size, dtype=bool)
    if limits is not None:
        capped = (shares > 0) & (price * shares >= limits * (1 - 1e-9))
    return Equilibrium(
        names=valuations.names,
        bids=bids,
        shares=shares,
        price=price,
        capacity=capacity,
        alpha=alpha,
        status=outcome.status,
        markup=markup,
        marginal_value=price * markup / capacity,
        value=value,
        utility=value - price * shares,
        regret=regrets,
        price_interval=(price, outcome.price_high),
        budgets=limits,
        budget_mode=outcome.budget_mode,
        capped=capped,
        kappa=outcome.kappa,
        iterations=outcome.iterations,
        converged=bool(regrets.max() <= 1e-8 * price) if price > 0 else True,
        valuations=valuations,
    )


def _solve_public(
    valuations: Valuations, alpha: float, capacity: float, budgets: Floats | None, reserve: float, tol: float
) -> Equilibrium:
    if budgets is None:
        raise ValueError("budgets must be given in public mode, got None")
    if reserve > 0:
        raise ValueError(f"reserve must be 0 in public mode, got {reserve:g}: budgets and a reserve price may conflict")
    if alpha == 0:
        raise ValueError("alpha must be positive in public mode, got 0: first-price demands jump and cannot be capped")
    outcome = _degenerate(valuations, capacity, budgets, 0.0)
    if outcome is not None:
        outcome.budget_mode = "public"
        return _certified(valuations, alpha, capacity, budgets, 0.0, outcome)
    active = (valuations.marginal0() > 0) & (budgets > 0)
    shares = np.zeros(len(valuations))
    shares[active], price, count = public_market(valuations.subset(active), alpha, capacity, budgets[active], tol)
    outcome = _Outcome(shares, price, price, iterations=count, budget_mode="public")
    bids = AlphaProportional(alpha, capacity).bids_for(np.minimum(shares, budgets / price), price, budgets)
    spent = np.divide(price * shares, budgets, out=np.zeros_like(shares), where=budgets > 0)
    markup = 1 + shares / rest_of(shares * elasticity(np.minimum(spent, 1.0), alpha))
    regrets = public_regret(valuations, bids, shares, price, alpha, capacity, budgets)
    return _assembled(valuations, alpha, capacity, budgets, outcome, bids, markup, regrets)
