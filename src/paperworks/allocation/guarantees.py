"""What an α-proportional equilibrium guarantees before any data, and what observed shares certify afterwards."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paperworks.core.validation import check_integer, check_real

__all__ = [
    "alpha_for_efficiency",
    "efficiency_bound",
    "efficiency_certificate",
    "liquid_bound",
    "liquid_certificate",
    "revenue_bound",
    "revenue_certificate",
]

Certificate = float | NDArray[np.float64]


def efficiency_bound(alpha: float, n: float = math.inf) -> float:
    r"""Return the worst equilibrium welfare of `n` agents as a fraction of the optimum.

    .. math:: \rho_n(\alpha) = 1 - \frac{1}{(1+k)^2}, \quad k = \sqrt{\tfrac1\alpha + \tfrac1{n-1}},
       \qquad \rho_\infty(\alpha) = \frac{1 + 2\sqrt\alpha}{(1 + \sqrt\alpha)^2}.

    It is attained by `worst_case_instance`; 3/4 at α = 1 is Kelly's mechanism.

    Parameters
    ----------
    alpha : float
        In [0, 1].
    n : int or inf
        Number of agents, at least 2; ``inf`` holds for any number.

    Examples
    --------
    >>> efficiency_bound(1.0), round(efficiency_bound(0.25), 4), round(efficiency_bound(1.0, n=2), 4)
    (0.75, 0.8889, 0.8284)

    References
    ----------
    Johari, Tsitsiklis: Efficiency loss in a network resource allocation game, 2004 (α = 1, any n).
    A Unified Framework for Uniform-Price Resource Allocation Mechanisms, 2026, arXiv 2606.06151 (any α, any n).
    """
    alpha = check_real(alpha, "alpha", low=0, high=1)
    others = _others(n)
    if alpha == 0:
        return 1.0
    return 1 - 1 / (1 + math.sqrt(1 / alpha + 1 / others)) ** 2


def alpha_for_efficiency(target: float, n: float = math.inf) -> float:
    """Return the largest α whose `efficiency_bound` reaches `target`.

    Parameters
    ----------
    target : float
        Fraction of the optimum, in [0, 1]; 1 gives α = 0.
    n : int or inf
        Number of agents, at least 2.

    Examples
    --------
    >>> round(alpha_for_efficiency(0.95), 6), alpha_for_efficiency(0.7)
    (0.082948, 1.0)
    """
    target = check_real(target, "target", low=0, high=1)
    others = _others(n)
    if target == 1:
        return 0.0
    excess = (1 / math.sqrt(1 - target) - 1) ** 2 - 1 / others
    return 1.0 if excess <= 1 else 1 / excess


def revenue_bound(alpha: float) -> float:
    """Return the worst equilibrium revenue as a fraction of the VCG revenue: 1/(1+α).

    Two equal linear agents attain it for every α. It holds where all of the resource is sold and no budget binds.

    Examples
    --------
    >>> revenue_bound(0.25)
    0.8
    """
    return 1 / (1 + check_real(alpha, "alpha", low=0, high=1))


def liquid_bound() -> float:
    """Return the worst liquid welfare under budgets as a fraction of the liquid optimum: ½ for every α.

    Liquid welfare counts an agent's value only up to its budget.

    Examples
    --------
    >>> liquid_bound()
    0.5

    References
    ----------
    Caragiannis, Voudouris: The efficiency of resource allocation mechanisms for budget-constrained users, 2018,
    arXiv 1707.03551 (α = 1, and that no mechanism of this kind does better with many agents).
    """
    return 0.5


def efficiency_certificate(
    shares: ArrayLike, alpha: float, slack: float = 0.0, markup: ArrayLike | None = None
) -> Certificate:
    r"""Return a lower bound on efficiency that needs no valuations, only observed shares.

    If the bids behind the shares are an equilibrium, marginal values are proportional to the markups
    :math:`\mu_i = 1 + \alpha s_i/(1-s_i)`, hence

    .. math:: \frac{W}{W^*} \ge \frac{1-\delta}{1+\delta} \cdot \frac{\sum_i s_i \mu_i}{\max_i \mu_i}.

    Parameters
    ----------
    shares : array_like, shape (n,) or (rounds, n)
        Shares of the capacity, each row summing to at most 1. A row in which one agent has everything is certified
        by 1, and a row in which nothing is sold by 0.
    alpha : float
        In [0, 1].
    slack : float
        δ in [0, 1): by how much, relatively, the equilibrium conditions may be violated.
    markup : array_like, same shape, optional
        Markups to use in place of μ: those of an equilibrium with public budgets, ``Equilibrium.markup``.

    Returns
    -------
    float, or array of shape (rounds,)

    Raises
    ------
    ValueError
        A negative share, a row above 1 + 1e-9, or a share of 1 beside others that hold more than rounding, 1e-14.

    Examples
    --------
    >>> round(efficiency_certificate([0.5, 0.3, 0.2], alpha=1.0), 6)
    0.839286
    >>> efficiency_certificate([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0]], alpha=0.5).round(6)
    array([0.892857, 1.      ])
    """
    rows, odds = _rows(shares)
    mu = _markups(odds, alpha, markup)
    slack = check_real(slack, "slack", low=0, high=1)
    if slack == 1:
        raise ValueError("slack must be below 1, got 1")
    # Everything to one agent leaves nothing to compare: its markup is infinite and the certificate is 1.
    bound = np.where(_sole(odds), 1.0, (rows * mu).sum(axis=-1) / mu.max(axis=-1))
    return _scalar((1 - slack) / (1 + slack) * np.minimum(bound, 1.0))


def revenue_certificate(shares: ArrayLike, alpha: float) -> Certificate:
    r"""Return a lower bound on revenue over VCG revenue from observed shares: :math:`1/(1+\alpha(x_{(1)}+x_{(2)}))`.

    Parameters
    ----------
    shares : array_like, shape (n,) or (rounds, n)
        :math:`x_{(1)}, x_{(2)}` are the two largest of a row. A row that leaves some of the resource unsold (below
        1 − 1e-9) gets 0: nothing is proved for it.
    alpha : float
        In [0, 1].

    Returns
    -------
    float, or array of shape (rounds,)

    Examples
    --------
    >>> round(revenue_certificate([0.5, 0.3, 0.2], alpha=1.0), 6)
    0.555556
    """
    rows, _ = _rows(shares)
    alpha = check_real(alpha, "alpha", low=0, high=1)
    largest = np.sort(rows, axis=-1)[..., -2:].sum(axis=-1)
    return _scalar(np.where(rows.sum(axis=-1) < 1 - 1e-9, 0.0, 1 / (1 + alpha * largest)))


def liquid_certificate(
    shares: ArrayLike, alpha: float, capped: ArrayLike, unsaturated: bool = False, markup: ArrayLike | None = None
) -> Certificate:
    r"""Return a lower bound on liquid welfare over its optimum from shares and from who spent all of its budget.

    With T the share sold and μ the markups, it is the smallest of
    :math:`(T - s_i + \mu_i s_i)/(T - s_i + \mu_i)` over the agents that are not at their budget, and 1 if all are.
    With `unsaturated` it is :math:`(z + \sum_i \mu_i s_i)/(z + \max_i \mu_i)`, both over the agents that are not at
    their budget, where z is the share of those that are.

    Parameters
    ----------
    shares : array_like, shape (n,) or (rounds, n)
        Shares of the capacity, each row summing to at most 1.
    alpha : float
        In [0, 1].
    capped : array_like of bool, same shape
        Whether the agent's payment equals its budget.
    unsaturated : bool
        The operator asserts that no agent below its budget values its share above its budget.
    markup : array_like, same shape, optional
        Markups to use in place of :math:`1 + \alpha s_i/(1-s_i)`: those of an equilibrium with public budgets.

    Returns
    -------
    float, or array of shape (rounds,)

    Examples
    --------
    >>> round(liquid_certificate([0.5, 0.3, 0.2], alpha=1.0, capped=[True, False, False]), 6)
    0.512195
    >>> round(liquid_certificate([0.5, 0.3, 0.2], alpha=1.0, capped=[True, False, False], unsaturated=True), 6)
    0.611111
    """
    rows, odds = _rows(shares)
    mu = _markups(odds, alpha, markup)
    mask = np.asarray(capped)
    if mask.dtype != bool:
        raise TypeError(f"capped must be boolean, got dtype {mask.dtype}")
    if mask.shape != rows.shape:
        raise ValueError(f"capped must have the shape {rows.shape} of shares, got {mask.shape}")
    if unsaturated:
        capped_share = np.where(mask, rows, 0.0).sum(axis=-1)
        kept = capped_share + np.where(mask, 0.0, rows * mu).sum(axis=-1)
        bound = kept / (capped_share + np.where(mask, 0.0, mu).max(axis=-1))
    else:
        rest = rows.sum(axis=-1, keepdims=True) - rows
        bound = np.where(mask, 1.0, (rest + mu * rows) / (rest + mu)).min(axis=-1)
    return _scalar(np.where(_sole(odds) | mask.all(axis=-1), 1.0, np.minimum(bound, 1.0)))


def _others(n: float) -> float:
    """Return n − 1 for a valid number of agents."""
    return math.inf if n == math.inf else check_integer(n, "n", low=2) - 1


def _rows(shares: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return checked shares and their odds s/(1−s); a share of 1 has infinite odds."""
    array = np.asarray(shares)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"shares must be numeric, got dtype {array.dtype}")
    if array.ndim not in (1, 2) or array.shape[-1] == 0:
        raise ValueError(f"shares must have shape (n,) or (rounds, n), got {array.shape}")
    rows = array.astype(np.float64)
    bad = ~(rows >= 0)
    if bad.any():
        raise ValueError(f"shares must be non-negative, got {rows[bad][0]} at {tuple(map(int, np.argwhere(bad)[0]))}")
    if rows.sum(axis=-1).max(initial=0.0) > 1 + 1e-9:
        raise ValueError(f"shares must sum to at most 1, got {rows.sum(axis=-1).max()}")
    full = rows >= 1
    # Where the others hold less than rounding, as after a small α, a share is 1 and still one of several.
    if (full.any(axis=-1) & (np.where(full, 0.0, rows).sum(axis=-1) > 1e-14)).any():
        raise ValueError("shares must not hold a share of 1 beside another positive share")
    return rows, np.where(full, np.inf, rows / np.where(full, 1.0, 1 - rows))


def _sole(odds: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell in which rows one agent has everything."""
    return np.asarray(np.isinf(odds).any(axis=-1))


def _markups(odds: NDArray[np.float64], alpha: float, markup: ArrayLike | None) -> NDArray[np.float64]:
    """Return 1 + α·odds, or the given markups, checked."""
    alpha = check_real(alpha, "alpha", low=0, high=1)
    if markup is None:
        return 1 + alpha * np.where(np.isinf(odds), 0.0, odds)
    mu = np.asarray(markup, dtype=np.float64)
    if mu.shape != odds.shape or not (mu >= 1).all():
        raise ValueError(f"markup must have the shape {odds.shape} of shares and be at least 1")
    return mu


def _scalar(values: ArrayLike) -> Certificate:
    array = np.asarray(values, dtype=np.float64)
    return float(array) if array.ndim == 0 else array
