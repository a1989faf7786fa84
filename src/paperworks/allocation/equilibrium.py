"""Nash equilibria of the alpha-proportional mechanism, best responses, regret and learning dynamics."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from paperworks.allocation.mechanism import AlphaProportional, Clearing, Record, log_norm, log_rest, rest_of
from paperworks.allocation.public_budgets import elasticity, public_market, public_regret
from paperworks.allocation.roots import balance, decreasing_root
from paperworks.allocation.valuations import Valuations
from paperworks.core.validation import check_choice, check_integer, check_real, check_vector

__all__ = ["Equilibrium", "Trajectory", "best_response", "dynamics", "market", "regret", "solve"]

Floats = NDArray[np.float64]
Index = NDArray[np.intp]
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
        from paperworks.allocation import benchmarks, guarantees

        valuations = self._known()
        optimum = float(benchmarks.efficient(valuations, self.capacity).welfare)
        liquid = None
        if self.budgets is not None:
            liquid = float(benchmarks.liquid_optimum(valuations, self.budgets, self.capacity).welfare)
        guarantee = certificate = None
        if self.status in ("ok", "limit") and not self.capped.any():
            guarantee = guarantees.efficiency_bound(float(self.alpha or 0.0), len(valuations))
            if self.budget_mode == "public":
                # Caps that do not bind yet act like a larger exponent.
                spent = min(float(self.table()["spend_fraction"].max()), 1.0)
                guarantee = guarantees.efficiency_bound((self.alpha or 0.0) * (1 - spent) + spent)
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
    limits = _budgets_of(valuations, budgets)
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


def _budgets_of(valuations: Valuations, budgets: ArrayLike | None) -> Floats | None:
    if budgets is None:
        return valuations.budgets
    labels = valuations.names if isinstance(valuations.names, tuple) else None
    return check_vector(budgets, "budgets", length=len(valuations), low=0, allow_inf=True, labels=labels)


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


def _markup(shares: Floats, alpha: float) -> Floats:
    """Return 1 + α·s/(1 − s), with 1 − s taken as what the others have."""
    with np.errstate(divide="ignore"):
        odds = np.divide(shares, rest_of(shares), out=np.zeros_like(shares), where=shares > 0)
    return 1 + alpha * odds if alpha > 0 else np.ones_like(shares)


def _price_interval(
    valuations: Valuations, alpha: float, capacity: float, budgets: Floats, shares: Floats
) -> tuple[float, float]:
    """Return the least and the greatest price at which nobody wants to move from these shares."""
    markup = _markup(shares, alpha)
    ceiling = np.divide(budgets, shares, out=np.where(budgets > 0, np.inf, 0.0), where=shares > 0)
    right, left = (
        np.minimum(capacity * valuations.marginal(capacity * shares, side) / markup, ceiling)
        for side in ("right", "left")
    )
    return float(right[np.isfinite(right)].max()), float(left[shares > 0].min())


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
        regrets = _regret(valuations, shares, price, _Game(level, alpha, capacity, spendable, reserve))
    else:
        regrets = np.zeros_like(shares)
    bids = price * np.where(shares > 0, shares**alpha, 0.0)
    return _assembled(
        valuations, alpha, capacity, limits, outcome, bids, _markup(shares, alpha * outcome.kappa), regrets
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


@dataclass(frozen=True)
class _Game:
    """What an agent plays against: `level` is α·log S, S the sum of the others' bids to the power 1/α."""

    level: Floats
    alpha: float
    capacity: float
    budgets: Floats
    reserve: float

    def log_price(self, log_odds: Floats) -> Floats:
        """Return the log price if the agent takes the share with these log-odds."""
        price = self.level + self.alpha * np.logaddexp(0, log_odds)
        return np.maximum(price, np.log(self.reserve)) if self.reserve > 0 else price

    def log_marginal_price(self, log_odds: Floats, index: Index | slice = slice(None)) -> Floats:
        """Return the log of what a little more costs, all or some of the agents."""
        free = self.level[index] + self.alpha * np.logaddexp(0, log_odds)
        marginal = free + np.log1p(self.alpha * np.exp(log_odds))
        return np.where(free < np.log(self.reserve), np.log(self.reserve), marginal) if self.reserve > 0 else marginal


def _reply(valuations: Valuations, game: _Game, guess: Floats, step: float) -> Floats:
    """Return the log-odds of each agent's best share."""

    def surplus(x: Floats, index: Index) -> Floats:
        worth = np.log(game.capacity * valuations.marginal_of(index, game.capacity * expit(x)))
        return np.where(worth > -np.inf, worth - game.log_marginal_price(x, index), -np.inf)

    def affordable(x: Floats) -> Floats:
        return np.log(game.budgets) - game.log_price(x) + np.logaddexp(0, -x)

    best = decreasing_root(surplus, guess, step, indexed=True)
    if np.isfinite(game.budgets).any():
        best = np.minimum(best, decreasing_root(affordable, guess, step))
    return best


def _regret(valuations: Valuations, shares: Floats, price: float, game: _Game) -> Floats:
    """Return what the best reply gains over these shares."""
    capacity = game.capacity
    with np.errstate(divide="ignore", over="ignore"):
        now = np.log(shares) - np.log(rest_of(shares) + max(1 - shares.sum(), 0.0))
        best = _reply(valuations, game, now, 1e-8)
        wanted = np.where(best > -700, expit(best), 0.0)
        gain = valuations.value(capacity * wanted) - np.exp(game.log_price(best)) * wanted
        gain -= valuations.value(capacity * shares) - price * shares
        right, left = (capacity * valuations.marginal(capacity * shares, side) for side in ("right", "left"))
        slope = np.where(wanted > shares, right, left) - np.exp(game.log_marginal_price(np.clip(now, -700, 700)))
    # By concavity the gain is at most slope times distance, which does not cancel where values are large.
    with np.errstate(invalid="ignore"):
        bound = np.abs(slope) * np.abs(wanted - shares)
    return np.asarray(np.where(wanted == shares, 0.0, np.clip(gain, 0.0, bound)))


def _level(log_bids: Floats, alpha: float) -> Floats:
    """Return α·log Σ_{j≠i} θ_j^(1/α), or the others' highest log bid for α = 0."""
    if alpha == 0:
        top = int(np.argmax(log_bids))
        others = np.delete(log_bids, top)
        return np.asarray(np.where(np.arange(log_bids.size) == top, others.max(initial=-np.inf), log_bids[top]))
    highest = log_bids.max()
    if highest == -np.inf:
        return log_bids
    return np.asarray(highest + alpha * log_rest((log_bids - highest) / alpha))


def _log(values: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def best_response(
    valuations: Valuations,
    bids: ArrayLike,
    alpha: float,
    capacity: float = 1.0,
    budgets: ArrayLike | None = None,
    reserve: float = 0.0,
) -> NDArray[np.float64]:
    """Return each agent's best bid against the bids of all others.

    Parameters
    ----------
    valuations : Valuations
        Of n agents.
    bids : array_like, shape (n,)
        Non-negative; an agent's own entry does not matter to it.
    alpha : float
        In (0, 1].
    capacity, budgets, reserve
        As in `solve`; budgets are private.

    Returns
    -------
    ndarray, shape (n,)
        Bids. Against nobody, without a reserve, every positive bid wins everything and the infimum 0 is returned.

    Examples
    --------
    >>> best_response(Valuations.linear([1, 0.5]), [2 / 9, 1 / 9], alpha=1.0).round(6)
    array([0.222222, 0.111111])
    """
    alpha = check_real(alpha, "alpha", low=0, high=1, open_low=True)
    game = _game(valuations, bids, alpha, capacity, budgets, reserve)
    with np.errstate(divide="ignore"):
        best = _reply(valuations, game, np.zeros(len(valuations)), 1.0)
        log_bids = game.log_price(best) - alpha * np.logaddexp(0, -best)
    return np.where(best > -700, np.exp(log_bids), 0.0)


def _game(
    valuations: Valuations,
    bids: ArrayLike,
    alpha: float,
    capacity: float,
    budgets: ArrayLike | None,
    reserve: float,
) -> _Game:
    labels = valuations.names if isinstance(valuations.names, tuple) else None
    theta = check_vector(bids, "bids", length=len(valuations), low=0, labels=labels)
    limits = _budgets_of(valuations, budgets)
    return _Game(
        _level(_log(theta), alpha),
        alpha,
        check_real(capacity, "capacity", low=0, open_low=True),
        np.full(theta.size, np.inf) if limits is None else limits,
        check_real(reserve, "reserve", low=0),
    )


def regret(
    valuations: Valuations,
    bids: ArrayLike,
    alpha: float,
    capacity: float = 1.0,
    budgets: ArrayLike | None = None,
    budget_mode: BudgetMode = "private",
    reserve: float = 0.0,
) -> NDArray[np.float64]:
    """Return how much each agent could gain by another bid, all others keeping theirs.

    Parameters
    ----------
    valuations : Valuations
        Of n agents.
    bids : array_like, shape (n,)
        Non-negative; ``inf`` is allowed with public budgets.
    alpha, capacity, budgets, budget_mode, reserve
        As in `solve`.

    Returns
    -------
    ndarray, shape (n,)
        In money, non-negative; all 0 at an equilibrium.

    Examples
    --------
    >>> regret(Valuations.linear([1, 0.5]), [0.5, 0.5], alpha=1.0).round(6)
    array([0.085786, 0.25    ])
    """
    alpha = check_real(alpha, "alpha", low=0, high=1)
    check_choice(budget_mode, "budget_mode", ("private", "public"))
    if budget_mode == "public":
        limits = _budgets_of(valuations, budgets)
        out = AlphaProportional(alpha, capacity).clear(bids, budgets=limits, cap="harmonic")
        if limits is None or out.status == "no_bids":
            raise ValueError("bids must include a positive one in public mode, got none")
        return public_regret(valuations, out.bids, out.shares, out.price, alpha, out.capacity, limits)
    game = _game(valuations, bids, alpha, capacity, budgets, reserve)
    out = AlphaProportional(alpha, capacity, reserve).clear(bids)
    return _regret(valuations, out.shares, out.price, game)


@dataclass(frozen=True, kw_only=True, eq=False)
class Trajectory(Record):
    """Rounds of bidding.

    Attributes
    ----------
    shares, log_bids : ndarray, shape (T, n)
        In each round.
    price, gap : ndarray, shape (T,)
        Price of the whole resource, and the largest distance of a share from the best reply.
    converged : bool
        The last gap is within the tolerance.
    """

    shares: NDArray[np.float64]
    log_bids: NDArray[np.float64]
    price: NDArray[np.float64]
    gap: NDArray[np.float64]
    converged: bool

    def table(self) -> pd.DataFrame:
        """Return one row a round: round, price, gap."""
        return pd.DataFrame({"round": np.arange(self.price.size), "price": self.price, "gap": self.gap})


# Log-odds at which best replies stop, so that an agent who gave up can come back.
_FLOOR = 60.0


def dynamics(
    valuations: Valuations,
    alpha: float,
    init: ArrayLike | None = None,
    order: Literal["simultaneous", "sequential"] = "simultaneous",
    damping: float = 0.5,
    max_iter: int = 500,
    tol: float = 1e-6,
    noise: float = 0.0,
    seed: int | None = None,
    *,
    capacity: float = 1.0,
    budgets: ArrayLike | None = None,
) -> Trajectory:
    """Let the agents reply to each other, round after round.

    Each round log θ moves to (1 − d)·log θ + d·log(best reply). Convergence is not guaranteed, and is reported.

    Parameters
    ----------
    valuations : Valuations
        Of n agents.
    alpha : float
        In (0, 1].
    init : array_like, shape (n,), optional
        First bids; left out, what price takers would bid at an equal split.
    order : {"simultaneous", "sequential"}
        Whether all agents of a round see the same bids, or each sees those before it.
    damping : float
        d, in (0, 1]; 1 jumps to the best reply.
    max_iter : int
        Rounds at most.
    tol : float
        Converged when no share is further than this from the best reply.
    noise : float
        Standard deviation of log-normal errors in every new bid.
    seed : int, optional
        Of the errors.
    capacity, budgets
        As in `solve`; budgets are private.

    Returns
    -------
    Trajectory

    Warns
    -----
    RuntimeWarning
        Not converged.

    Examples
    --------
    >>> path = dynamics(Valuations.log([1.0, 2.0], [0.1, 0.5]), alpha=1.0)
    >>> path.converged, path.shares[-1].round(4)
    (True, array([0.4728, 0.5272]))
    """
    alpha = check_real(alpha, "alpha", low=0, high=1, open_low=True)
    check_choice(order, "order", ("simultaneous", "sequential"))
    damping = check_real(damping, "damping", low=0, high=1, open_low=True)
    noise = check_real(noise, "noise", low=0)
    limit = check_integer(max_iter, "max_iter", low=1)
    n = len(valuations)
    if n < 2:
        raise ValueError("valuations must have at least two agents to reply to each other, got 1")
    bids = check_vector(capacity * valuations.marginal(capacity / n) if init is None else init, "init", length=n, low=0)
    if not bids.max() > 0:
        raise ValueError("init must include a positive bid, got only zeros")
    log_bids = np.maximum(_log(bids), np.log(bids.max()) - alpha * _FLOOR)
    game = _game(valuations, bids, alpha, capacity, budgets, 0.0)
    random = np.random.default_rng(seed)
    groups = [np.arange(n)] if order == "simultaneous" else [np.array([i]) for i in range(n)]
    parts = [valuations.subset(group) for group in groups]
    rounds: list[tuple[Floats, Floats, float, float]] = []
    for _ in range(limit):
        log_y = (log_bids - log_bids.max()) / alpha
        norm = log_norm(log_y)
        shares = np.exp(log_y - norm)
        target = _target(valuations, replace(game, level=_level(log_bids, alpha)))
        gap = float(np.abs(expit(target) - shares).max())
        rounds.append((shares, log_bids, float(np.exp(log_bids.max() + alpha * norm)), gap))
        if gap <= tol:
            break
        log_bids = log_bids.copy()
        for group, part in zip(groups, parts, strict=True):
            level = _level(log_bids, alpha)[group]
            reply = _target(part, replace(game, level=level, budgets=game.budgets[group]))
            moved = (1 - damping) * log_bids[group] + damping * (level + alpha * reply)
            log_bids[group] = moved + noise * random.standard_normal(group.size)
    converged = rounds[-1][3] <= tol
    if not converged:
        warnings.warn(f"the dynamics did not converge in {limit} rounds: gap {gap:.3g}", RuntimeWarning, stacklevel=2)
    s, b, p, g = (np.array(column) for column in zip(*rounds, strict=True))
    return Trajectory(shares=s, log_bids=b, price=p, gap=g, converged=converged)


def _target(valuations: Valuations, game: _Game) -> Floats:
    with np.errstate(divide="ignore"):
        return np.clip(_reply(valuations, game, np.zeros(len(valuations)), 1.0), -_FLOOR, _FLOOR)
