"""From bids to shares and one price: the alpha-proportional mechanism and its relatives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import expit

from paperworks.allocation.roots import decreasing_root
from paperworks.core.validation import check_choice, check_integer, check_names, check_real, check_vector

__all__ = ["AlphaProportional", "Clearing", "GeneralProxy", "Record"]

Floats = NDArray[np.float64]
Names = tuple[str, ...] | range
Bids = ArrayLike | Mapping[Any, Any] | pd.Series
Cap = Literal["harmonic", "hard"]
R = TypeVar("R", bound="Record")


class Record:
    """A frozen dataclass of arrays that goes to JSON and comes back."""

    def to_json(self) -> str:
        """Return one JSON object; numbers that are not finite become strings such as ``"inf"``."""
        kept = (f.name for f in fields(self) if f.metadata.get("json", True))  # type: ignore[arg-type]
        return json.dumps({name: _to_plain(getattr(self, name)) for name in kept}, allow_nan=False)

    @classmethod
    def from_json(cls: type[R], text: str) -> R:
        """Return the object that `to_json` wrote.

        Raises
        ------
        ValueError
            Not such a text.
        """
        plain = json.loads(text)
        wanted = {f.name for f in fields(cls) if f.metadata.get("json", True)}  # type: ignore[arg-type]
        if not isinstance(plain, dict) or set(plain) != wanted:
            raise ValueError(f"text must be the JSON of a {cls.__name__} with {', '.join(sorted(wanted))}")
        return cls(**{name: _from_plain(name, value) for name, value in plain.items()})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and type(self) is type(other) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]


def _to_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple, range)):
        return [_to_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


def _from_plain(name: str, value: Any) -> Any:
    if name == "names":
        return tuple(value) if isinstance(value[0], str) else range(len(value))
    if name == "price_interval":
        return tuple(map(float, value))
    if isinstance(value, list):
        array = np.asarray(value)
        return array if array.dtype.kind == "b" else array.astype(np.float64)
    return float(value) if value in ("inf", "-inf", "nan") else value


@dataclass(frozen=True, kw_only=True, eq=False)
class Clearing(Record):
    """What a mechanism made of the bids.

    Attributes
    ----------
    names : tuple of str or range
        The agents.
    bids : ndarray, shape (n,)
        In money.
    shares : ndarray, shape (n,)
        Of the capacity; they sum to `sold`.
    price : float
        Of the whole resource, in money; everybody pays ``price · share``.
    capacity : float
        Units of the resource.
    alpha : float or None
        Exponent of the mechanism.
    status : str
        ``ok``, ``reserve_binding`` (the reserve is the price) or ``no_bids``.
    """

    names: Names
    bids: NDArray[np.float64]
    shares: NDArray[np.float64]
    price: float
    capacity: float
    alpha: float | None
    status: str

    @property
    def amounts(self) -> NDArray[np.float64]:
        """Units of the resource that each agent gets."""
        return self.capacity * self.shares

    @property
    def unit_price(self) -> float:
        """Price of one unit, the same for everybody."""
        return self.price / self.capacity

    @property
    def payments(self) -> NDArray[np.float64]:
        """What each agent pays."""
        return self.price * self.shares

    @property
    def revenue(self) -> float:
        """Sum of the payments."""
        return self.price * self.sold

    @property
    def sold(self) -> float:
        """Share of the capacity that is sold."""
        return float(self.shares.sum())

    def table(self) -> pd.DataFrame:
        """Return one row an agent: agent, share, amount, bid, payment, unit_price."""
        return pd.DataFrame(
            {
                "agent": list(self.names),
                "share": self.shares,
                "amount": self.amounts,
                "bid": self.bids,
                "payment": self.payments,
                "unit_price": self.unit_price,
            }
        )

    def integer_amounts(self) -> NDArray[np.int64]:
        """Return whole units by largest remainder, together at most ⌊capacity⌋; each is charged `unit_price`.

        Raises
        ------
        ValueError
            A capacity from 2^53 on, of which single units cannot be told apart.

        Examples
        --------
        >>> AlphaProportional(1.0, capacity=10).clear([1, 1, 1]).integer_amounts()
        array([4, 3, 3])
        """
        if self.capacity >= 2**53:
            raise ValueError(f"capacity must be below 2^53 for whole units, got {self.capacity:g}")
        whole = np.floor(self.amounts * (1 + 1e-12)).astype(np.int64)
        units = int(min(np.floor(self.amounts.sum() * (1 + 1e-12)), np.floor(self.capacity)))
        order = np.argsort(whole - self.amounts, kind="stable")
        whole[order[: max(units - int(whole.sum()), 0)]] += 1
        return whole


def log_norm(log_y: Floats) -> float:
    """Return log Σ exp(log_y)."""
    top = log_y.max()
    return float(top + np.log(np.exp(log_y - top).sum())) if np.isfinite(top) else float(top)


def log_rest(log_y: Floats) -> Floats:
    """Return log Σ_{j≠i} exp(log_y_j) for every i, exact also for an agent who outweighs all others."""
    top = int(np.argmax(log_y))
    others = np.delete(log_y, top)
    if not others.size or others.max() == -np.inf:
        return np.where(np.arange(log_y.size) == top, -np.inf, log_y[top])
    total = np.logaddexp(log_norm(others), log_y[top])
    with np.errstate(divide="ignore"):
        rest = total + np.log1p(-np.exp(log_y - total))
    rest[top] = log_norm(others)
    return np.asarray(rest)


def rest_of(shares: Floats) -> Floats:
    """Return Σ_{j≠i} s_j for every i, exact also for an agent who has nearly everything."""
    top = int(np.argmax(shares))
    rest = shares.sum() - shares
    rest[top] = shares[:top].sum() + shares[top + 1 :].sum()
    return np.asarray(rest)


def log_ratio(values: Floats, reference: float) -> Floats:
    """Return log(values / reference), exact also near a ratio of 1 and where the ratio underflows."""
    with np.errstate(divide="ignore", over="ignore"):
        excess = (values - reference) / reference
        return np.where(np.abs(excess) < 0.5, np.log1p(excess), np.log(values) - np.log(reference))


def _power(values: Floats, reference: float, alpha: float) -> Floats:
    """Return (values / reference)^(1/α), for values up to the reference."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(log_ratio(values, reference) / alpha))


def harmonic_log_demand(log_price: Floats | float, log_bids: Floats, log_budgets: Floats, alpha: float) -> Floats:
    """Return log x of the demand of the proxies 1/(x^α/θ + x/B): λx^α/θ + λx/B = 1.

    In u = log x this is log(e^(αu − log θ) + e^(u − log B)) = −log λ, increasing and convex, so Newton's method from
    the right converges monotonically.
    """
    u = np.minimum((log_bids - log_price) / alpha, log_budgets - log_price)
    for _ in range(60):
        power, linear = alpha * u - log_bids, u - log_budgets
        total = np.logaddexp(power, linear)
        step = (total + log_price) / (alpha + (1 - alpha) * np.exp(linear - total))
        u = u - step
        if (np.abs(step) <= 1e-15 * (1 + np.abs(u))).all():
            break
    return u


def _hard_log_demand(log_price: Floats | float, log_bids: Floats, log_budgets: Floats, alpha: float) -> Floats:
    return np.minimum((log_bids - log_price) / alpha, log_budgets - log_price)


_CAPS: dict[str, Callable[[Floats | float, Floats, Floats, float], Floats]] = {
    "harmonic": harmonic_log_demand,
    "hard": _hard_log_demand,
}


def _named(bids: Bids) -> tuple[Names, Any]:
    """Return names and values of bids in any of the accepted forms."""
    if isinstance(bids, Mapping):
        names: Names = check_names(bids, "bids")
        return names, np.array(list(bids.values()))
    if isinstance(bids, pd.Series):
        return check_names(bids.index, "bids"), bids.to_numpy()
    array = np.asarray(bids)
    if array.ndim == 1 and not array.size:
        raise ValueError("bids must not be empty")
    return range(array.size), array


@dataclass(frozen=True)
class AlphaProportional:
    """Shares in proportion to bids to the power 1/α, at one price for everybody.

    With θ the bids, s_i = θ_i^(1/α) / Σ θ_j^(1/α) and the whole resource costs λ = (Σ θ_j^(1/α))^α; agent i pays
    λ·s_i = θ_i·s_i^(1−α) ≤ θ_i. ``alpha=1`` is Kelly's proportional mechanism, ``alpha=0`` the first-price auction.

    Parameters
    ----------
    alpha : float
        In [0, 1]. Smaller is more efficient in equilibrium and more sensitive to errors in bids.
    capacity : float
        Units of the resource.
    reserve : float
        Least price of the whole resource, in money; below it a part stays unsold.

    Examples
    --------
    >>> out = AlphaProportional(0.5, capacity=21).clear({"nlp": 4, "vision": 2, "speech": 1})
    >>> out.amounts.round(6), round(out.price, 6)
    (array([16.,  4.,  1.]), 4.582576)

    References
    ----------
    "A Unified Framework for Uniform-Price Resource Allocation Mechanisms", 2026, arXiv:2606.06151.
    F. Kelly, "Charging and rate control for elastic traffic", 1997.
    """

    alpha: float
    capacity: float = 1.0
    reserve: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", check_real(self.alpha, "alpha", low=0, high=1))
        object.__setattr__(self, "capacity", check_real(self.capacity, "capacity", low=0, open_low=True))
        object.__setattr__(self, "reserve", check_real(self.reserve, "reserve", low=0))

    def clear(self, bids: Bids, budgets: Bids | None = None, cap: Cap | None = None) -> Clearing:
        """Return shares and price.

        Parameters
        ----------
        bids : array_like, shape (n,), mapping or Series
            Non-negative, in money. With ``cap="harmonic"`` an agent with a finite budget may bid ``inf``: all in.
        budgets : array_like, shape (n,), mapping or Series, optional
            What each agent may be charged, ``inf`` for no limit; needs `cap`.
        cap : {"harmonic", "hard"}, optional
            How budgets enter each agent's proxy demand: harmonically (λx^α/θ + λx/B = 1; others' prices stay convex,
            so equilibria exist) or as the smaller of the two demands.

        Returns
        -------
        Clearing

        Raises
        ------
        ValueError
            Negative, NaN or infinite bids; the message names the agent.
        TypeError
            Bids that are not numbers.

        Examples
        --------
        >>> out = AlphaProportional(0.5).clear([4, 2, 1], budgets=[1, 2, float("inf")], cap="harmonic")
        >>> out.shares.round(6), round(out.price, 6)
        (array([0.356315, 0.388108, 0.255576]), 1.97806)
        """
        names, values = _named(bids)
        labels = names if isinstance(names, tuple) else None
        theta = check_vector(values, "bids", low=0, allow_inf=cap == "harmonic", labels=labels)
        if cap is not None:
            return self._clear_capped(names, theta, self._budgets(budgets, names), cap)
        if budgets is not None:
            raise ValueError("budgets need cap='harmonic' or cap='hard', got cap=None")
        highest = float(theta.max())
        if highest == 0:
            return self._nothing(names, theta)
        if self.alpha == 0:
            winners = theta == highest
            shares, price = winners / winners.sum(), highest
        else:
            y = _power(theta, highest, self.alpha)
            shares, price = y / y.sum(), float(highest * y.sum() ** self.alpha)
        if price < self.reserve:
            shares = _power(theta, self.reserve, self.alpha) if self.alpha else np.zeros(theta.size)
        return self._sold(names, theta, shares, price)

    def _sold(self, names: Names, bids: Floats, shares: Floats, price: float) -> Clearing:
        status = "reserve_binding" if price < self.reserve else "ok"
        price = max(price, self.reserve)
        return Clearing(
            names=names, bids=bids, shares=shares, price=price, capacity=self.capacity, alpha=self.alpha, status=status
        )

    def _nothing(self, names: Names, bids: Floats) -> Clearing:
        return Clearing(
            names=names,
            bids=bids,
            shares=np.zeros(bids.size),
            price=self.reserve,
            capacity=self.capacity,
            alpha=self.alpha,
            status="no_bids",
        )

    def _budgets(self, budgets: Bids | None, names: Names) -> Floats:
        """Return budgets in the order of `names`."""
        if budgets is None:
            raise ValueError("cap needs budgets, got None")
        given, values = _named(budgets)
        if isinstance(given, tuple) and isinstance(names, tuple):
            if set(given) != set(names):
                odd = sorted(set(given) ^ set(names))
                raise ValueError(f"budgets must be for the agents that bid, got a mismatch at {odd[0]!r}")
            place = {name: k for k, name in enumerate(given)}
            values = values[[place[name] for name in names]]
        labels = names if isinstance(names, tuple) else None
        return check_vector(values, "budgets", length=len(names), low=0, allow_inf=True, labels=labels)

    def _clear_capped(self, names: Names, bids: Floats, budgets: Floats, cap: Cap) -> Clearing:
        check_choice(cap, "cap", tuple(_CAPS))
        if self.alpha == 0:
            raise ValueError("cap needs alpha > 0, got alpha=0: first-price demands jump and cannot be capped")
        endless = np.isinf(bids) & np.isinf(budgets)
        if endless.any():
            raise ValueError(f"bids must be finite without a budget, got inf for {names[int(np.argmax(endless))]!r}")
        live = (bids > 0) & (budgets > 0)
        shares = np.zeros(bids.size)
        if not live.any():
            return self._nothing(names, bids)
        # In units of the largest single-agent price, so that logarithms of near ties stay exact.
        unit = float(np.minimum(bids, budgets)[live].max())
        log_bids, log_budgets = log_ratio(bids[live], unit), log_ratio(budgets[live], unit)
        log_reserve = np.log(self.reserve / unit) if self.reserve else -np.inf

        def log_sold(log_price: float) -> float:
            return log_norm(_CAPS[cap](log_price, log_bids, log_budgets, self.alpha))

        low, high = -np.log(2.0), np.log(bids.size) + 1e-9
        log_price = float(brentq(log_sold, low, high, xtol=1e-15, rtol=1e-14)) if log_sold(low) > 0 else low
        at = max(log_price, float(log_reserve))
        log_shares = _CAPS[cap](at, log_bids, log_budgets, self.alpha)
        if at == log_price:
            log_shares -= log_norm(log_shares)
        shares[live] = np.exp(log_shares)
        return self._sold(names, bids, shares, float(unit * np.exp(log_price)))

    def bids_for(self, shares: ArrayLike, price: float, budgets: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return the bids that lead to these shares at this price.

        Parameters
        ----------
        shares : array_like, shape (n,)
            Shares of the capacity.
        price : float
            Of the whole resource.
        budgets : array_like, shape (n,), optional
            Then the bids are for ``cap="harmonic"``; who spends the whole budget bids ``inf``.

        Returns
        -------
        ndarray, shape (n,)
            θ = λ·s^α, or θ = s^α / (1/λ − s/B).

        Examples
        --------
        >>> AlphaProportional(0.5).bids_for([0.25, 0.75], 2.0).round(6)
        array([1.      , 1.732051])
        """
        s = check_vector(shares, "shares", low=0)
        price = check_real(price, "price", low=0)
        power = np.where(s > 0, s**self.alpha, 0.0)
        if budgets is None:
            return price * power
        limits = check_vector(budgets, "budgets", length=s.size, low=0, allow_inf=True)
        spent = np.divide(price * s, limits, out=np.ones_like(s), where=limits > 0)
        if (spent > 1 + 1e-9).any():
            i = int(np.argmax(spent))
            raise ValueError(f"shares must be payable, got a payment of {price * s[i]:g} with budget {limits[i]:g}")
        with np.errstate(divide="ignore", invalid="ignore"):
            bids = price * power / np.where(spent < 1 - 1e-12, 1 - spent, 0.0)
        return np.where(s > 0, bids, 0.0)

    def quote(self, bids: Bids, i: str | int, grid: ArrayLike) -> pd.DataFrame:
        """Return what agent `i` would get and pay for other bids of its own.

        Parameters
        ----------
        bids : array_like, shape (n,), mapping or Series
            Everybody's bids; the own entry does not matter.
        i : str or int
            The agent, by name or position.
        grid : array_like, shape (k,)
            Own bids to try.

        Returns
        -------
        DataFrame
            Columns bid, share, amount, price, payment, marginal_price (what a little more of the whole resource costs
            a unit of share: λ·(1 + α·s/(1 − s)), or the reserve while it binds).

        Examples
        --------
        >>> AlphaProportional(1.0).quote([1, 1], 0, [1, 3])[["share", "payment", "marginal_price"]]
           share  payment  marginal_price
        0   0.50      1.0             4.0
        1   0.75      3.0            16.0
        """
        names, values = _named(bids)
        theta = check_vector(values, "bids", low=0)
        place = list(names).index(i) if i in names else i
        if isinstance(place, str) or check_integer(place, "i", low=0) >= theta.size:
            raise ValueError(f"i must be one of the agents or their positions, got {i!r}")
        rows = []
        for bid in check_vector(grid, "grid", low=0):
            theta[place] = bid
            out = self.clear(theta)
            share, rest = out.shares[place], rest_of(out.shares)[place]
            with np.errstate(divide="ignore", invalid="ignore"):
                markup = 1.0 if out.status != "ok" or share == 0 else 1 + self.alpha * share / rest
            rows.append((bid, share, self.capacity * share, out.price, out.payments[place], out.price * markup))
        return pd.DataFrame(rows, columns=["bid", "share", "amount", "price", "payment", "marginal_price"])


@dataclass(frozen=True)
class GeneralProxy:
    """The uniform price for any proxies: each bid stands for a falling marginal value, and demand meets supply.

    Parameters
    ----------
    marginal : callable
        ``marginal(x, theta)``: proxy marginal value of share x for bids theta, falling in x, elementwise on arrays.
    inverse : callable, optional
        ``inverse(price, theta)``: the share at which the marginal is `price`, elementwise; found numerically if left
        out.
    capacity : float
        Units of the resource.

    Examples
    --------
    >>> kelly = GeneralProxy(lambda x, theta: theta / x)
    >>> kelly.clear([4, 2, 1]).shares.round(6)
    array([0.571429, 0.285714, 0.142857])
    """

    marginal: Callable[[Any, Any], Any]
    inverse: Callable[[Any, Any], Any] | None = None
    capacity: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "capacity", check_real(self.capacity, "capacity", low=0, open_low=True))

    def clear(self, bids: Bids) -> Clearing:
        """Return shares and price.

        Parameters
        ----------
        bids : array_like, shape (n,), mapping or Series
            Non-negative; a bid of 0 gets nothing.

        Returns
        -------
        Clearing
        """
        names, values = _named(bids)
        theta = check_vector(values, "bids", low=0, labels=names if isinstance(names, tuple) else None)
        live = theta > 0
        shares, price, status = np.zeros(theta.size), 0.0, "no_bids"
        if live.any():
            active = theta[live]

            def excess(log_price: float) -> float:
                return float(np.sum(self._demand(np.exp(log_price), active))) - 1

            middle = float(np.log(np.max(self.marginal(1 / active.size, active))))
            low, high = middle, middle + 1.0
            while excess(low) < 0 and low > -700:
                low -= 2 * (high - low)
            while excess(high) > 0 and high < 700:
                high += 2 * (high - low)
            price = float(np.exp(brentq(excess, low, high, xtol=1e-14)))
            demands = self._demand(price, active)
            shares[live], status = demands / demands.sum(), "ok"
        return Clearing(
            names=names, bids=theta, shares=shares, price=price, capacity=self.capacity, alpha=None, status=status
        )

    def _demand(self, price: float, theta: Floats) -> Floats:
        if self.inverse is not None:
            return np.minimum(np.asarray(self.inverse(price, theta), dtype=np.float64), 1.0)
        log_odds = decreasing_root(lambda x: self.marginal(expit(x), theta) - price, np.zeros(theta.size), 1.0)
        return np.asarray(expit(log_odds))
