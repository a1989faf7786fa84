"""What the mechanism is measured against: optima, VCG, other mechanisms and static rules, and one table of them all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import exprel, logsumexp

from paperworks.allocation.equilibrium import Equilibrium, market, solve
from paperworks.allocation.families import Piecewise
from paperworks.allocation.roots import decreasing_root
from paperworks.allocation.valuations import Valuations
from paperworks.core.validation import check_choice, check_integer, check_names, check_real, check_vector

__all__ = [
    "Optimum",
    "Outcome",
    "SanghaviHajek",
    "VCGKelly",
    "compare",
    "efficient",
    "equal_split",
    "kelly",
    "liquid_optimum",
    "max_min",
    "proportional",
    "vcg",
]

Floats = NDArray[np.float64]
Names = tuple[str, ...] | range


@dataclass(frozen=True)
class Optimum:
    """The best division of the resource.

    Attributes
    ----------
    names : tuple of str or range
    shares : ndarray, shape (n,)
        Shares of the capacity. Where agents tie they split in proportion to what each could still use.
    price : float
        Competitive price of the whole resource; the lowest one where several support the optimum.
    welfare : float
        Sum of the values, which is unique. For `liquid_optimum`: the liquid welfare.
    """

    names: Names
    shares: Floats
    price: float
    welfare: float


@dataclass(frozen=True)
class Outcome:
    """Shares and payments of a mechanism whose unit prices may differ between agents.

    Attributes
    ----------
    names : tuple of str or range
    shares : ndarray, shape (n,)
        Shares of the capacity.
    payments : ndarray, shape (n,)
        Money.
    capacity : float
        Amount of the resource.
    welfare : float, optional
        Sum of the values, where the mechanism was given valuations.
    """

    names: Names
    shares: Floats
    payments: Floats
    capacity: float
    welfare: float | None = None

    @property
    def revenue(self) -> float:
        """Sum of the payments."""
        return float(self.payments.sum())

    @cached_property
    def unit_prices(self) -> Floats:
        """Payment per unit of the resource; NaN for an agent with nothing."""
        got = self.shares > 0
        return np.where(got, self.payments, np.nan) / np.where(got, self.shares * self.capacity, 1.0)

    @property
    def dispersion(self) -> float:
        """Largest over smallest unit price: 1 for a uniform price, ``inf`` if only some pay nothing."""
        paid = self.unit_prices[self.shares > 0]
        if not paid.any():
            return 1.0
        return float(paid.max() / paid.min()) if paid.min() > 0 else math.inf


def efficient(valuations: Valuations, capacity: float = 1.0) -> Optimum:
    """Return the division of greatest total value.

    Piecewise-linear valuations are solved exactly, by filling the steepest segments first; others by the price at
    which demand meets capacity.

    Parameters
    ----------
    valuations : Valuations
        The agents.
    capacity : float
        Amount of the resource.

    Examples
    --------
    >>> best = efficient(Valuations.log([1.0, 2.0], [1.0, 1.0]), capacity=4.0)
    >>> best.shares.round(4), round(best.price, 4), round(best.welfare, 4)
    (array([0.25, 0.75]), 2.0, 3.4657)
    """
    capacity = check_real(capacity, "capacity", low=0, open_low=True)
    segments = _segments(valuations, capacity)
    shares, price = valuations.demand(0.0, 0.0, capacity), 0.0
    if shares.sum() > 1 and segments is None:
        shares, price, _, _ = market(valuations, 0.0, capacity)
    elif shares.sum() >= 1:
        shares = shares if segments is None else _fill(*segments)
        price = float(capacity * valuations.marginal(capacity * shares).max())
    return Optimum(valuations.names, shares, price, float(valuations.value(capacity * shares).sum()))


def liquid_optimum(valuations: Valuations, budgets: ArrayLike | None = None, capacity: float = 1.0) -> Optimum:
    """Return the division of greatest liquid welfare, in which a value counts only up to the agent's budget.

    Parameters
    ----------
    valuations : Valuations
        The agents.
    budgets : array_like, shape (n,), optional
        Money; those of the valuations if left out.
    capacity : float
        Amount of the resource.

    Raises
    ------
    ValueError
        No budgets anywhere.

    Examples
    --------
    >>> liquid_optimum(Valuations.linear([4.0, 1.0]), budgets=[1.0, 9.0]).shares
    array([0.25, 0.75])
    """
    limits = valuations.budgets if budgets is None else budgets
    if limits is None:
        raise ValueError("budgets must be given, here or with the valuations")
    return efficient(valuations.truncated(limits), capacity)


def vcg(valuations: Valuations, capacity: float = 1.0) -> Outcome:
    """Return the efficient division with Vickrey–Clarke–Groves payments: each pays what its presence costs the others.

    Examples
    --------
    >>> vcg(Valuations.linear([3.0, 2.0, 1.0])).payments
    array([2., 0., 0.])

    References
    ----------
    Clarke: Multipart pricing of public goods, 1971. Groves: Incentives in teams, 1973.
    """
    best = efficient(valuations, capacity)
    values = valuations.value(capacity * best.shares)
    winners = np.flatnonzero(best.shares > 0)
    segments = _segments(valuations, capacity)
    size = len(valuations) if segments is None else segments[0].size
    # Blocks of winners keep the (winners × agents) arrays small enough for the processor's cache.
    blocks = np.array_split(winners, max(1, -(-winners.size * size // 2**17)))
    if segments is None:
        without = [_welfare_without(valuations, capacity, best.price, block) for block in blocks]
    else:
        without = [_fill_without(*segments, block) for block in blocks]
    payments = np.zeros(len(valuations))
    payments[winners] = np.concatenate(without) - (best.welfare - values[winners])
    slack = 1e-9 * best.welfare
    assert (payments >= -slack).all()
    assert (payments <= best.shares * best.price + slack).all()
    # Both hold exactly; what is cut off here is rounding.
    payments = np.clip(payments, 0.0, best.shares * best.price)
    return Outcome(best.names, best.shares, payments, capacity, best.welfare)


class VCGKelly:
    r"""Scalar bids with VCG payments: the shares of the α-proportional mechanism, at prices that differ.

    .. math:: p_i = \frac{Y_{-i}^\alpha - Y_{-i} Y^{\alpha - 1}}{1 - \alpha}, \quad y_i = \theta_i^{1/\alpha},
       \quad Y = \sum_j y_j, \qquad p_i = -\lambda (1 - s_i) \log(1 - s_i) \text{ at } \alpha = 1.

    Equilibria are efficient.

    Parameters
    ----------
    alpha : float
        In (0, 1].
    capacity : float
        Amount of the resource.

    Examples
    --------
    >>> VCGKelly(0.5).clear([4, 2, 1]).payments.round(5)
    array([2.28996, 0.8268 , 0.21556])

    References
    ----------
    Yang, Hajek: VCG-Kelly mechanisms for allocation of divisible goods, 2007.
    Johari, Tsitsiklis: Efficiency of scalar-parameterized mechanisms, 2009.
    """

    def __init__(self, alpha: float = 1.0, capacity: float = 1.0) -> None:
        self.alpha = check_real(alpha, "alpha", low=0, high=1, open_low=True)
        self.capacity = check_real(capacity, "capacity", low=0, open_low=True)

    def clear(self, bids: ArrayLike, names: Sequence[str] | None = None) -> Outcome:
        """Return shares and payments; all zero if nobody bids.

        Parameters
        ----------
        bids : array_like, shape (n,)
            Non-negative money.
        names : sequence of str, optional
            Agents; the numbers 0, 1, … otherwise.
        """
        theta, labels = _bids(bids, names)
        if not theta.any():
            return Outcome(labels, theta, theta, self.capacity)
        with np.errstate(divide="ignore"):
            log_mass = np.log(theta) / self.alpha
        total = logsumexp(log_mass)
        return self._charge(labels, np.exp(log_mass - total), float(np.exp(self.alpha * total)))

    def equilibrium(self, valuations: Valuations) -> Outcome:
        """Return the efficient equilibrium, at which agent i bids λ·s_i^α with λ the competitive price.

        Examples
        --------
        >>> VCGKelly(0.5).equilibrium(Valuations.linear([2.0, 1.0])).welfare
        2.0
        """
        best = efficient(valuations, self.capacity)
        outcome = self._charge(best.names, best.shares, best.price)
        return Outcome(outcome.names, outcome.shares, outcome.payments, self.capacity, best.welfare)

    def _charge(self, names: Names, shares: Floats, price: float) -> Outcome:
        # log of what the others keep; a sole bidder displaces nobody and pays nothing.
        kept = np.log1p(-np.where(shares < 1, shares, 0.0))
        # One formula for every α: (1 − (1−s)^(1−α)) / (1−α) = −log(1−s) · exprel((1−α) log(1−s)).
        payments = price * np.exp(self.alpha * kept) * -kept * exprel((1 - self.alpha) * kept)
        return Outcome(names, shares, payments, self.capacity)


class SanghaviHajek:
    r"""Scalar bids, pay your own bid, and shares that make the worst equilibrium about 0.8741 efficient.

    .. math:: s_i = \int_0^1 \frac{b_i}{b_{\max}} \prod_{j \ne i}\Bigl(1 - t \frac{b_j}{b_{\max}}\Bigr) dt.

    For two agents the worst case is 7/8.

    Parameters
    ----------
    capacity : float
        Amount of the resource.

    Examples
    --------
    >>> SanghaviHajek().clear([2.0, 1.0]).shares
    array([0.75, 0.25])

    References
    ----------
    Sanghavi, Hajek: Optimal allocation of a divisible good to strategic buyers, 2004.
    """

    def __init__(self, capacity: float = 1.0) -> None:
        self.capacity = check_real(capacity, "capacity", low=0, open_low=True)

    def clear(self, bids: ArrayLike, names: Sequence[str] | None = None) -> Outcome:
        """Return shares and payments (the bids); all zero if nobody bids.

        Parameters
        ----------
        bids : array_like, shape (n,)
            Non-negative money.
        names : sequence of str, optional
            Agents; the numbers 0, 1, … otherwise.
        """
        b, labels = _bids(bids, names)
        if not b.any():
            return Outcome(labels, b, b, self.capacity)
        # The integrand is a polynomial of degree n − 1 in t, for which this quadrature is exact.
        nodes, weights = np.polynomial.legendre.leggauss(b.size // 2 + 1)
        factors = 1 - np.outer((nodes + 1) / 2, b / b.max())
        shares = (weights / 2 * factors.prod(axis=1)) @ (b / b.max() / factors)
        return Outcome(labels, shares, b, self.capacity)

    def linear_equilibrium(self, high: float, low: float) -> Outcome:
        """Return the equilibrium of two agents with constant values per share, ``high >= low > 0``.

        With β = low/high the bids are high·(β/2, β²/2) and the efficiency is 1 − β/2 + β²/2. The second agent is
        indifferent between its bids, so best-response dynamics do not settle here.

        Examples
        --------
        >>> SanghaviHajek().linear_equilibrium(1.0, 0.5).welfare
        0.875
        """
        high = check_real(high, "high", low=0, open_low=True)
        low = check_real(low, "low", low=0, open_low=True)
        if low > high:
            raise ValueError(f"low must be at most high, got {low!r} > {high!r}")
        outcome = self.clear([low / 2, low**2 / high / 2])
        welfare = float(outcome.shares @ [high, low])
        return Outcome(outcome.names, outcome.shares, outcome.payments, self.capacity, welfare)


def kelly(valuations: Valuations, capacity: float = 1.0, budgets: ArrayLike | None = None) -> Equilibrium:
    """Return the equilibrium of Kelly's proportional mechanism: `solve` at α = 1.

    Examples
    --------
    >>> kelly(Valuations.linear([1.0, 0.5])).shares.round(6)
    array([0.666667, 0.333333])

    References
    ----------
    Kelly: Charging and rate control for elastic traffic, 1997.
    """
    return solve(valuations, 1.0, capacity, budgets=budgets)


def equal_split(n: int, capacity: float = 1.0) -> Floats:
    """Return the same amount for each of n agents.

    Examples
    --------
    >>> equal_split(4, capacity=10.0)
    array([2.5, 2.5, 2.5, 2.5])
    """
    return np.full(check_integer(n, "n", low=1), check_real(capacity, "capacity", low=0, open_low=True) / n)


def proportional(quotas: ArrayLike, capacity: float = 1.0) -> Floats:
    """Return amounts in proportion to quotas.

    Parameters
    ----------
    quotas : array_like, shape (n,)
        Non-negative, not all zero.
    capacity : float
        Amount of the resource.

    Examples
    --------
    >>> proportional([3, 1], capacity=8.0)
    array([6., 2.])
    """
    weights = check_vector(quotas, "quotas", low=0)
    if not weights.any():
        raise ValueError("quotas must not all be zero")
    return np.asarray(weights * (check_real(capacity, "capacity", low=0, open_low=True) / weights.sum()))


def max_min(demands: ArrayLike, capacity: float = 1.0) -> Floats:
    """Return max-min fair amounts: everybody gets the same, but nobody more than it demands.

    Parameters
    ----------
    demands : array_like, shape (n,)
        Amounts; ``inf`` takes whatever there is.
    capacity : float
        Amount of the resource.

    Returns
    -------
    ndarray, shape (n,)
        Amounts; they sum to less than the capacity if demand does not exhaust it.

    Examples
    --------
    >>> max_min([1.0, 4.0, 9.0], capacity=10.0)
    array([1., 4., 5.])
    """
    wanted = check_vector(demands, "demands", low=0, allow_inf=True)
    if not wanted.size:
        raise ValueError("demands must not be empty")
    ordered = np.minimum(np.sort(wanted), check_real(capacity, "capacity", low=0, open_low=True))
    # Level k serves the k smallest demands in full and splits the rest equally; the first that binds is the one.
    served = np.concatenate([[0.0], np.cumsum(ordered)[:-1]])
    level = (capacity - served) / np.arange(wanted.size, 0, -1)
    short = ordered >= level
    return np.minimum(wanted, level[np.argmax(short)] if short.any() else np.inf)


def compare(
    valuations: Valuations,
    alphas: ArrayLike = (1.0, 0.5, 0.25, 0.1),
    baselines: Sequence[str] = ("vcg", "max_min", "equal"),
    capacity: float = 1.0,
    budgets: ArrayLike | None = None,
) -> pd.DataFrame:
    """Return welfare, revenue and guarantees of α-proportional equilibria and of other mechanisms, one a row.

    Parameters
    ----------
    valuations : Valuations
        The agents.
    alphas : array_like
        In [0, 1].
    baselines : sequence of str
        Of ``"vcg"`` and ``"vcg_kelly"`` (α = ½, efficient equilibrium), which know no budgets, and of the static
        rules ``"max_min"`` (demand is what satiates an agent), ``"equal"`` and ``"proportional"`` (to the budgets).
    capacity : float
        Amount of the resource.
    budgets : array_like, shape (n,), optional
        Private budgets; those of the valuations if left out, none if all are ``inf``.

    Returns
    -------
    DataFrame
        Columns ``mechanism``, ``alpha``, ``welfare``, ``efficiency`` (over the optimum), ``revenue``,
        ``revenue_over_vcg``, ``price_dispersion`` (largest over smallest unit price), ``guarantee`` (before any
        data) and ``certificate`` (from the shares). With budgets also ``liquid_welfare`` and ``liquid_efficiency``,
        to which guarantee and certificate then refer.

    Examples
    --------
    >>> table = compare(Valuations.linear([1.0, 0.5]), alphas=[1.0, 0.25], baselines=["vcg", "equal"])
    >>> table[["mechanism", "welfare", "revenue", "guarantee"]].round(3)
                     mechanism  welfare  revenue  guarantee
    0     α-proportional (α=1)    0.833    0.333      0.828
    1  α-proportional (α=0.25)    0.908    0.473      0.905
    2                      vcg    1.000    0.500        NaN
    3                    equal    0.750    0.000        NaN
    """
    given = valuations.budgets if budgets is None else budgets
    limits = None if given is None else check_vector(given, "budgets", length=len(valuations), low=0, allow_inf=True)
    clarke = vcg(valuations, capacity)
    found = [solve(valuations, float(alpha), capacity, limits) for alpha in check_vector(alphas, "alphas", low=0)]
    if limits is not None and np.isinf(limits).all():
        limits = None
    rows = [_equilibrium_row(each, valuations, limits) for each in found]
    for name in baselines:
        rule = _BASELINES[check_choice(name, "baselines", list(_BASELINES))]
        outcome = clarke if name == "vcg" else rule(valuations, capacity, limits)
        rows.append({"mechanism": name, **_measures(outcome, valuations, limits)})
    table = pd.DataFrame(rows)
    table["efficiency"] = table["welfare"] / efficient(valuations, capacity).welfare
    table["revenue_over_vcg"] = table["revenue"] / clarke.revenue
    if limits is None:
        return table[_COLUMNS]
    table["liquid_efficiency"] = table["liquid_welfare"] / liquid_optimum(valuations, limits, capacity).welfare
    return table[[*_COLUMNS, "liquid_welfare", "liquid_efficiency"]]


_COLUMNS = [
    "mechanism",
    "alpha",
    "welfare",
    "efficiency",
    "revenue",
    "revenue_over_vcg",
    "price_dispersion",
    "guarantee",
    "certificate",
]


def _measures(outcome: Outcome, valuations: Valuations, budgets: Floats | None) -> dict[str, Any]:
    values = valuations.value(outcome.capacity * outcome.shares)
    measured = {
        "alpha": math.nan,
        "welfare": values.sum(),
        "revenue": outcome.revenue,
        "price_dispersion": outcome.dispersion,
        "guarantee": math.nan,
        "certificate": math.nan,
    }
    return measured if budgets is None else measured | {"liquid_welfare": np.minimum(values, budgets).sum()}


def _equilibrium_row(found: Equilibrium, valuations: Valuations, budgets: Floats | None) -> dict[str, Any]:
    from paperworks.allocation import guarantees

    alpha = float(found.alpha or 0.0)
    outcome = Outcome(found.names, found.shares, found.payments, found.capacity)
    row = {"mechanism": f"α-proportional (α={alpha:g})", **_measures(outcome, valuations, budgets), "alpha": alpha}
    if found.status in ("ok", "limit"):
        if budgets is None:
            row["guarantee"] = guarantees.efficiency_bound(alpha, len(valuations))
            row["certificate"] = guarantees.efficiency_certificate(found.shares, alpha)
        else:
            row["guarantee"] = guarantees.liquid_bound()
            row["certificate"] = guarantees.liquid_certificate(found.shares, alpha, found.capped)
    return row


def _static(amounts: Floats, valuations: Valuations, capacity: float) -> Outcome:
    """Return amounts that nobody pays for."""
    return Outcome(valuations.names, amounts / capacity, np.zeros(len(valuations)), capacity)


def _by_budget(valuations: Valuations, capacity: float, budgets: Floats | None) -> Outcome:
    if budgets is None:
        raise ValueError("budgets must be given for the baseline 'proportional'")
    return _static(proportional(budgets, capacity), valuations, capacity)


_BASELINES: dict[str, Callable[[Valuations, float, Floats | None], Outcome]] = {
    "vcg": lambda valuations, capacity, _: vcg(valuations, capacity),
    "vcg_kelly": lambda valuations, capacity, _: VCGKelly(0.5, capacity).equilibrium(valuations),
    "max_min": lambda valuations, capacity, _: _static(max_min(valuations.satiation(), capacity), valuations, capacity),
    "equal": lambda valuations, capacity, _: _static(equal_split(len(valuations), capacity), valuations, capacity),
    "proportional": _by_budget,
}


def _bids(bids: ArrayLike, names: Sequence[str] | None) -> tuple[Floats, Names]:
    b = check_vector(bids, "bids", low=0, labels=names)
    return b, range(b.size) if names is None else check_names(names, length=b.size)


def _segments(valuations: Valuations, capacity: float) -> tuple[Floats, Floats] | None:
    """Return worth (of the whole resource) and width (as a share) of every segment, or None if any agent is curved."""
    blocks = [(index, family) for index, family in valuations._blocks if isinstance(family, Piecewise)]
    if len(blocks) < len(valuations._blocks):
        return None
    size = max(family.slopes.shape[1] for _, family in blocks)
    slopes, widths = np.zeros((2, len(valuations), size))
    for index, family in blocks:
        columns = slice(0, family.slopes.shape[1])
        slopes[index, columns] = capacity * family.slopes
        # No agent can use more than all; cutting there also makes endless segments finite.
        widths[index, columns] = np.diff(np.minimum(family.ends / capacity, 1.0), axis=1, prepend=0.0)
    return slopes, widths


def _fill(slopes: Floats, widths: Floats) -> Floats:
    """Return the shares that fill the steepest segments first; equal slopes at the margin fill in proportion.

    Together the segments of positive slope are wider than 1.
    """
    usable = np.where(slopes > 0, widths, 0.0)
    order = np.argsort(-slopes, axis=None, kind="stable")
    filled = np.cumsum(usable.ravel()[order])
    margin = slopes.ravel()[order[np.searchsorted(filled, min(1.0, filled[-1]))]]
    above, tied = np.where(slopes > margin, usable, 0.0), np.where(slopes == margin, usable, 0.0)
    return np.asarray((above + tied * (max(1 - above.sum(), 0.0) / tied.sum())).sum(axis=1))


def _fill_without(slopes: Floats, widths: Floats, agents: NDArray[np.intp]) -> Floats:
    """Return the greatest welfare of the others without each of `agents`, one at a time."""
    order = np.argsort(-slopes, axis=None, kind="stable")
    owner = order // slopes.shape[1]
    usable = np.where(owner == agents[:, None], 0.0, widths.ravel()[order])
    before = np.cumsum(usable, axis=1) - usable
    return np.asarray(np.clip(1 - before, 0.0, usable) @ slopes.ravel()[order])


def _welfare_without(valuations: Valuations, capacity: float, price: float, agents: NDArray[np.intp]) -> Floats:
    """Return the greatest welfare of the others without each of `agents`, one at a time.

    It is the least value over prices of price + Σ (value − price · demand), so that an error in the price hardly
    matters and ties need no care.
    """
    rows = np.arange(agents.size)

    def demand(log_price: Floats) -> Floats:
        shares = valuations.demand(np.exp(log_price)[:, None], 0.0, capacity)
        shares[rows, agents] = 0.0
        return shares

    # exp(−800) is 0: where the others do not want everything, the resource is free to them.
    free = -800.0
    top = math.log(price) if price > 0 else free
    guess = np.full(agents.size, top)
    log_price = decreasing_root(lambda x: demand(x).sum(axis=1) - 1, guess, 0.1, low=free, high=top)
    shares = demand(log_price)
    values = valuations.value(capacity * shares).sum(axis=1)
    return np.asarray(values + np.exp(log_price) * (1 - shares.sum(axis=1)))
