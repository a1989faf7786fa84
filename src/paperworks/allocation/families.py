"""The forms a concave valuation can take: value, marginal value, satiation and demand of many agents at once."""

# ruff: noqa: D102  (what a method is for stands once, in `Family`)

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.differentiate import derivative
from scipy.special import expit

from paperworks.allocation.roots import decreasing_root

__all__ = ["Family", "Functions", "Log", "Piecewise", "Power", "Quadratic", "Saturating", "Truncated"]

Floats = NDArray[np.float64]
Index = NDArray[np.intp]
Side = Literal["left", "right"]
# Shares to start a root from, and the first step away from them in log-odds.
Near = tuple[Floats | None, float]

# A quantity relatively this close to a kink counts as the kink.
_KINK = 1e-12


def log_odds_of(share: Floats) -> Floats:
    """Return log(s / (1 - s)), infinite at 0 and 1."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(share) - np.log1p(-share))


class Family(ABC):
    """Valuations of one form; subclasses are dataclasses, fields are arrays with one row an agent."""

    def take(self, index: Index) -> Family:
        """Return some of the agents."""
        return type(self)(*(getattr(self, f.name)[index] for f in fields(self)))  # type: ignore[arg-type]

    @abstractmethod
    def value(self, q: Floats) -> Floats:
        """Return v(q), shape (..., n)."""

    @abstractmethod
    def marginal(self, q: Floats, side: Side) -> Floats:
        """Return the one-sided derivative at q, shape (..., n)."""

    @abstractmethod
    def satiation(self) -> Floats:
        """Return the least quantity of greatest value, shape (n,)."""

    def demand(self, price: Floats, alpha: float, capacity: float, near: Near) -> Floats:
        """Return the anticipated demand at prices of shape (..., n), here by a root in log-odds."""
        log_price = np.log(price, out=np.full(price.shape, -np.inf), where=price > 0).ravel()
        n = price.shape[-1]

        def surplus(x: Floats, index: Index) -> Floats:
            family = self if index.size == n == price.size else self.take(index % n)
            worth = np.log(capacity * family.marginal(capacity * expit(x), "left"))
            return np.where(worth > -np.inf, worth - log_price[index] - np.log1p(alpha * np.exp(x)), -np.inf)

        guess, step = near
        start = np.zeros(price.shape) if guess is None else np.broadcast_to(log_odds_of(guess), price.shape)
        shares = np.asarray(expit(decreasing_root(surplus, start, step, indexed=True)))
        return np.where(shares > 1e-300, shares, 0.0)

    def truncated(self, budgets: Floats) -> Family:
        """Return min(v, budget)."""

        def shortfall(x: Floats) -> Floats:
            return budgets - self.value(np.exp(x))

        log_top = decreasing_root(shortfall, np.zeros(budgets.shape), 0.25, -60.0, 60.0)
        top = np.where(log_top < 60, np.exp(log_top), np.inf)
        return Truncated(self, np.where(budgets > 0, top, 0.0))


@dataclass(frozen=True)
class Truncated(Family):
    """Another family, worth nothing more beyond the quantity `top`."""

    inner: Family
    top: Floats

    def take(self, index: Index) -> Family:
        return Truncated(self.inner.take(index), self.top[index])

    def value(self, q: Floats) -> Floats:
        return self.inner.value(np.minimum(q, self.top))

    def marginal(self, q: Floats, side: Side) -> Floats:
        below = q < self.top * (1 - _KINK) if side == "right" else q <= self.top * (1 + _KINK)
        return np.where(below & (self.top > 0), self.inner.marginal(np.minimum(q, self.top), side), 0.0)

    def satiation(self) -> Floats:
        return np.minimum(self.inner.satiation(), self.top)

    def demand(self, price: Floats, alpha: float, capacity: float, near: Near) -> Floats:
        return np.minimum(self.inner.demand(price, alpha, capacity, near), self.top / capacity)


@dataclass(frozen=True)
class Piecewise(Family):
    """Segments with falling `slopes` and right `ends`, both (n, K); flat afterwards. Linear: one endless segment."""

    slopes: Floats
    ends: Floats

    @property
    def starts(self) -> Floats:
        return np.concatenate([np.zeros((len(self.ends), 1)), self.ends[:, :-1]], axis=1)

    def value(self, q: Floats) -> Floats:
        inside = np.clip(q[..., None] - self.starts, 0, self.ends - self.starts)
        return np.asarray((self.slopes * inside).sum(-1))

    def marginal(self, q: Floats, side: Side) -> Floats:
        open_ = self.ends > q[..., None] * (1 + _KINK if side == "right" else 1 - _KINK)
        return np.asarray(np.where(open_, self.slopes, 0.0).max(-1))

    def satiation(self) -> Floats:
        return np.asarray(np.where(self.slopes > 0, self.ends, 0.0).max(-1))

    def demand(self, price: Floats, alpha: float, capacity: float, near: Near) -> Floats:
        worth, cost = capacity * self.slopes, price[..., None]
        profit = np.maximum(worth - cost, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            unlimited = profit / (profit + alpha * cost)
        # 0/0: indifferent (or free), so everything is demanded, unless it is worth nothing.
        unlimited = np.where(np.isnan(unlimited), 1.0, unlimited)
        unlimited = np.where((worth > 0) & (worth >= cost), unlimited, 0.0)
        return np.asarray(np.minimum(unlimited, self.ends / capacity).max(-1))

    def truncated(self, budgets: Floats) -> Family:
        left = np.maximum(budgets[:, None] - self.value(self.starts.T).T, 0.0)
        width = np.divide(left, self.slopes, out=np.zeros_like(left), where=self.slopes > 0)
        top = np.where(self.starts + width < self.ends, self.starts + width, np.inf).min(axis=1, keepdims=True)
        return Piecewise(self.slopes, np.minimum(self.ends, top))


@dataclass(frozen=True)
class Log(Family):
    """a·log(1 + q/b)."""

    a: Floats
    b: Floats

    def value(self, q: Floats) -> Floats:
        return self.a * np.log1p(q / self.b)

    def marginal(self, q: Floats, side: Side) -> Floats:
        return self.a / (self.b + q)

    def satiation(self) -> Floats:
        return np.where(self.a > 0, np.inf, 0.0)

    def demand(self, price: Floats, alpha: float, capacity: float, near: Near) -> Floats:
        # The smaller root of the quadratic, with a discriminant that is a sum of non-negative terms.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            v = price / self.a
            u = v * self.b / capacity
            gain = np.maximum(1 - u, 0.0)
            root = np.sqrt((v - gain) ** 2 + alpha * (2 * u * (v + gain) + alpha * u**2 + 4 * v * gain))
            shares = 2 * gain / (v + gain + alpha * u + root)
        return np.where((self.a > 0) & (gain > 0), shares, 0.0)


@dataclass(frozen=True)
class Power(Family):
    """a·q^p."""

    a: Floats
    p: Floats

    def value(self, q: Floats) -> Floats:
        return self.a * q**self.p

    def marginal(self, q: Floats, side: Side) -> Floats:
        with np.errstate(divide="ignore", over="ignore"):
            slope = self.p * np.asarray(q, dtype=np.float64) ** (self.p - 1)
        return np.where(self.a > 0, self.a, 0.0) * np.where(self.a > 0, slope, 0.0)

    def satiation(self) -> Floats:
        return np.where(self.a > 0, np.inf, 0.0)


@dataclass(frozen=True)
class Saturating(Family):
    """a·(1 − exp(−q/b))."""

    a: Floats
    b: Floats

    def value(self, q: Floats) -> Floats:
        return -self.a * np.expm1(-q / self.b)

    def marginal(self, q: Floats, side: Side) -> Floats:
        return self.a / self.b * np.exp(-q / self.b)

    def satiation(self) -> Floats:
        return np.where(self.a > 0, np.inf, 0.0)


@dataclass(frozen=True)
class Quadratic(Family):
    """a·(q − q²/2b) up to b, flat afterwards."""

    a: Floats
    b: Floats

    def value(self, q: Floats) -> Floats:
        x = np.minimum(q, self.b)
        return self.a * x * (1 - x / (2 * self.b))

    def marginal(self, q: Floats, side: Side) -> Floats:
        return self.a * np.maximum(1 - q / self.b, 0.0)

    def satiation(self) -> Floats:
        return np.where(self.a > 0, self.b, 0.0)


def _evaluate(functions: NDArray[np.object_], q: Floats) -> Floats:
    """Return function i at q[..., i]; one that several agents share is called once, on an array."""
    if q.ndim == 1 and len(set(map(id, functions))) == len(functions):
        return np.array([f(x) for f, x in zip(functions, q, strict=True)], dtype=np.float64)
    _, owner = np.unique([id(f) for f in functions], return_inverse=True)
    groups = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner))[:-1])
    out = np.empty(q.shape)
    for group in groups:
        out[..., group] = _call(functions[group[0]], q[..., group])
    return out


def _call(f: Callable[[Any], Any], x: Floats) -> Any:
    """Call `f` on an array, or, if it takes numbers only, on each entry."""
    try:
        return f(x)
    except TypeError:
        return np.array([f(entry) for entry in x.ravel()], dtype=np.float64).reshape(x.shape)


@dataclass(frozen=True)
class Functions(Family):
    """Callables, one an agent; a `None` among the derivatives stands for a numerical one."""

    v: NDArray[np.object_]
    dv: NDArray[np.object_]

    def value(self, q: Floats) -> Floats:
        with np.errstate(all="ignore"):
            return _finite(_evaluate(self.v, q), q, "value")

    def marginal(self, q: Floats, side: Side) -> Floats:
        with np.errstate(all="ignore"):
            if self.dv[0] is not None:
                return _finite(_evaluate(self.dv, q), q, "derivative")
            agents = np.broadcast_to(np.arange(len(self.v)), q.shape)
            at_zero = q <= 0
            result = derivative(
                lambda x, i: _evaluate(self.v[i.reshape(len(x), -1)[:, 0]], x.T).T,
                q,
                args=(agents,),
                initial_step=np.where(at_zero, 1e-3, q / 4),
                step_direction=at_zero.astype(int),
            )
            return np.maximum(_finite(result.df, q, "derivative"), 0.0)

    def satiation(self) -> Floats:
        return np.full(len(self.v), np.inf)

    def check(self, upto: float, names: Sequence[Any]) -> None:
        """Raise unless every function is concave and non-decreasing on [0, upto]."""
        grid = np.linspace(0.0, upto, 257)
        for first in range(0, len(self.v), 1000):
            with np.errstate(all="ignore"):
                values = np.array([np.broadcast_to(_call(f, grid), grid.shape) for f in self.v[first : first + 1000]])
            values = _finite(values.astype(np.float64), np.broadcast_to(grid, values.shape), "value")
            remedy = "pass samples to from_samples(repair=True) instead"
            check_concave(np.broadcast_to(grid, values.shape), values, names[first:], remedy, 1e-7)


def _finite(values: Floats, q: Floats, what: str) -> Floats:
    """Return `values` if they are finite wherever q > 0 (a derivative may be infinite at 0)."""
    bad = ~np.isfinite(values) & (q > 0) | np.isnan(values)
    if bad.any():
        i = np.unravel_index(np.argmax(bad), bad.shape)
        raise ValueError(f"the callable's {what} must be finite, got {values[i]} at q={q[i]:g}")
    return values


def check_concave(q: Floats, v: Floats, names: Sequence[Any], remedy: str, slack: float) -> Floats:
    """Return the slopes between points (q, v), both (n, K), if they are non-negative and fall, else raise."""
    nonzero = np.abs(v[:, 0]) > 1e-9 * np.abs(v).max(axis=1)
    if nonzero.any():
        i = int(np.argmax(nonzero))
        raise ValueError(f"the valuation of {names[i]!r} must be 0 at q=0, got {v[i, 0]:g}")
    slopes = np.diff(v, axis=1) / np.diff(q, axis=1)
    tolerance = slack * np.abs(slopes).max(axis=1, keepdims=True)
    wrong = slopes < -tolerance
    wrong[:, 1:] |= np.diff(slopes, axis=1) > tolerance
    if wrong.any():
        i, k = np.argwhere(wrong)[0]
        raise ValueError(f"the valuation of {names[i]!r} is decreasing or not concave near q={q[i, k]:g}; {remedy}")
    return np.asarray(np.minimum.accumulate(np.maximum(slopes, 0.0), axis=1))
