"""The greatest welfare that there is, liquid or not, and the payments of the VCG mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paperworks.allocation.families import Piecewise
from paperworks.allocation.market import market
from paperworks.allocation.roots import decreasing_root
from paperworks.allocation.valuations import Valuations
from paperworks.core.validation import check_real

__all__ = ["Optimum", "Outcome", "efficient", "liquid_optimum", "vcg"]

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
