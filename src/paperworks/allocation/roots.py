"""Roots of many decreasing functions at once: bracketed, derivative-free, safe at jumps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

__all__ = ["balance", "decreasing_root"]

_EPS = float(np.finfo(np.float64).eps)
Floats = NDArray[np.float64]
Index = NDArray[np.intp]


def decreasing_root(
    f: Callable[..., Floats],
    guess: ArrayLike,
    step: float,
    low: ArrayLike = -700.0,
    high: ArrayLike = 700.0,
    *,
    indexed: bool = False,
) -> Floats:
    """Return, entry by entry, where the decreasing `f` crosses zero.

    From `guess` the bracket grows by steps of `step` times 8, 64, …, then Chandrupatla's method closes it.
    Without a sign change the result is the bound that `f` points to; at a jump through zero it is the jump.

    Parameters
    ----------
    f : callable
        Maps an array to an array of the same shape, each entry a decreasing function of its own argument;
        infinite values are allowed.
    guess : array_like
        Where to start; its shape is that of the result.
    step : float
        First step away from `guess`.
    low, high : array_like
        Bounds of the search.
    indexed : bool
        Call ``f(x, index)`` with those entries only that are not done, flat, and their positions.

    Examples
    --------
    >>> decreasing_root(lambda x: np.array([1.0, 8.0]) - x**3, [0.0, 0.0], 0.5)
    array([1., 2.])
    """
    start = np.clip(np.asarray(guess, dtype=np.float64), low, high)
    points = start.ravel()
    least, most = (np.broadcast_to(np.asarray(bound), start.shape).ravel() for bound in (low, high))

    def at(x: Floats, index: Index) -> Floats:
        if not index.size:
            return x
        if indexed:
            return f(x, index)
        points[index] = x
        return f(points.reshape(start.shape)).ravel()[index]

    with np.errstate(all="ignore"):
        a, index = points.copy(), np.arange(points.size)
        fa = at(a, index)
        up = fa > 0
        b, fb = a.copy(), fa.copy()
        while index.size:
            a[index], fa[index] = b[index], fb[index]
            b[index] = np.clip(np.where(up[index], a[index] + step, a[index] - step), least[index], most[index])
            index = index[a[index] != b[index]]
            fb[index] = at(b[index], index)
            index = index[(fb[index] > 0) == up[index]]
            step *= 8
        root = np.where(up, most, least)
        crossed = np.flatnonzero((fb > 0) != up)
        root[crossed] = _chandrupatla(at, crossed, b[crossed], fb[crossed], a[crossed], fa[crossed])
    return root.reshape(start.shape)


def _chandrupatla(
    f: Callable[[Floats, Index], Floats], index: Index, a: Floats, fa: Floats, b: Floats, fb: Floats
) -> Floats:
    """Close the brackets [a, b] (Chandrupatla, 1997)."""
    root, place, t = a.copy(), np.arange(a.size), np.full(a.size, 0.5)
    while True:
        best = np.where(np.abs(fa) < np.abs(fb), a, b)
        tolerance = 2 * _EPS * (1 + np.abs(best))
        width = np.abs(b - a)
        todo = (width > 2 * tolerance) & (fa != 0) & (fb != 0)
        root[place] = best
        if not todo.any():
            return root
        if not todo.all():
            place, index, t, tolerance, width = place[todo], index[todo], t[todo], tolerance[todo], width[todo]
            a, fa, b, fb = a[todo], fa[todo], b[todo], fb[todo]
        limit = tolerance / width
        x = a + np.clip(t, limit, 1 - limit) * (b - a)
        fx = f(x, index)
        same = (fx > 0) == (fa > 0)
        c, fc = np.where(same, a, b), np.where(same, fa, fb)
        b, fb = np.where(same, b, a), np.where(same, fb, fa)
        a, fa = x, fx
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
        t = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        t = np.where((phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi) & np.isfinite(t), t, 0.5)


def balance(
    shares_at: Callable[[float], Floats], low: float, high: float, xtol: float = 1e-13
) -> tuple[float, Floats, int]:
    """Return where shares that fall with `x` sum to 1, these shares and the number of evaluations.

    `shares_at` sums to at least 1 at `low` and at most 1 at `high`. Where the sum jumps across 1, or is too steep for
    floating point, the shares at the two ends of the last bracket are mixed linearly.

    Examples
    --------
    >>> x, shares, _ = balance(lambda x: np.array([0.5, 0.5 if x <= 2 else 0.0]) + (1 - x) / 100, 0.0, 5.0)
    >>> round(x, 9), shares.round(9)
    (1.0, array([0.5, 0.5]))
    """
    gaps: dict[float, float] = {}
    ends: dict[bool, tuple[float, Floats]] = {}

    def excess(x: float) -> float:
        if x not in gaps:
            shares = shares_at(x)
            gaps[x] = float(shares.sum()) - 1
            side = gaps[x] >= 0
            if side not in ends or (x > ends[side][0]) == side:
                ends[side] = (x, shares)
        return gaps[x]

    for x, wrong in ((low, -1), (high, 1)):
        if excess(x) * wrong >= 0:
            shares = ends[gaps[x] >= 0][1]
            return x, shares / shares.sum(), len(gaps)
    brentq(excess, low, high, xtol=xtol, rtol=4 * _EPS)
    (x, most), (_, least) = ends[True], ends[False]
    surplus, deficit = float(most.sum()) - 1, 1 - float(least.sum())
    if min(surplus, deficit) > 1e-12:
        return x, most + (least - most) * (surplus / (surplus + deficit)), len(gaps)
    x, shares = ends[surplus <= deficit]
    return x, shares / shares.sum(), len(gaps)
