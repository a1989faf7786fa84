"""Roots of many decreasing functions at once: bracketed, derivative-free, safe at jumps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

__all__ = ["balance", "decreasing_root"]

_EPS = float(np.finfo(np.float64).eps)
Floats = NDArray[np.float64]


def decreasing_root(
    f: Callable[[Floats], Floats], guess: ArrayLike, step: float, low: ArrayLike = -700.0, high: ArrayLike = 700.0
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

    Examples
    --------
    >>> decreasing_root(lambda x: np.array([1.0, 8.0]) - x**3, [0.0, 0.0], 0.5)
    array([1., 2.])
    """
    with np.errstate(all="ignore"):
        x = np.clip(np.asarray(guess, dtype=np.float64), low, high)
        fx = f(x)
        up = fx > 0
        other, f_other, open_ = x, fx, np.ones(x.shape, dtype=bool)
        while open_.any():
            x, fx = np.where(open_, other, x), np.where(open_, f_other, fx)
            other = np.where(open_, np.clip(np.where(up, x + step, x - step), low, high), other)
            f_other = f(other)
            open_ &= ((f_other > 0) == up) & (other != x)
            step *= 8
        crossed = (f_other > 0) != up
        root = _chandrupatla(f, np.where(crossed, other, x), np.where(crossed, f_other, fx), x, fx)
        bound = np.broadcast_to(np.where(up, high, low), root.shape)
        return np.where(crossed, root, bound)


def _chandrupatla(f: Callable[[Floats], Floats], a: Floats, fa: Floats, b: Floats, fb: Floats) -> Floats:
    """Close the brackets [a, b] (Chandrupatla, 1997); entries with a = b are done from the start."""
    t = np.full(a.shape, 0.5)
    for _ in range(200):
        best = np.where(np.abs(fa) < np.abs(fb), a, b)
        tolerance = 2 * _EPS * (1 + np.abs(best))
        width = np.abs(b - a)
        done = (width <= 2 * tolerance) | (fa == 0) | (fb == 0)
        if done.all():
            break
        limit = tolerance / np.where(done, 1.0, width)
        x = np.where(done, a, a + np.clip(t, limit, 1 - limit) * (b - a))
        fx = np.where(done, fa, f(x))
        same = done | ((fx > 0) == (fa > 0))
        c, fc = np.where(same, a, b), np.where(same, fa, fb)
        b, fb = np.where(same, b, a), np.where(same, fb, fa)
        a, fa = x, fx
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
        t = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        t = np.where((phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi) & np.isfinite(t), t, 0.5)
    return best


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
