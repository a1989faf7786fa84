"""What the mechanism is measured against: other mechanisms, static rules, and one table of them all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import exprel, logsumexp

from paperworks.allocation.equilibrium import Equilibrium, solve
from paperworks.allocation.optima import Outcome, efficient, liquid_optimum, vcg
from paperworks.allocation.valuations import Valuations
from paperworks.core.validation import check_choice, check_integer, check_names, check_real, check_vector

__all__ = ["SanghaviHajek", "VCGKelly", "compare", "equal_split", "kelly", "max_min", "proportional"]

Floats = NDArray[np.float64]
Names = tuple[str, ...] | range


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
