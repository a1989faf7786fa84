"""Concave valuations of many agents at once: what a quantity is worth to each, and what each demands at a price."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from paperworks.allocation.families import (
    Family,
    Functions,
    Log,
    Piecewise,
    Power,
    Quadratic,
    Saturating,
    Side,
    check_concave,
)
from paperworks.core.validation import check_choice, check_names, check_real, check_vector

__all__ = ["Valuations", "from_table"]

Floats = NDArray[np.float64]
Index = NDArray[np.intp]
Names = tuple[str, ...] | range


def _segments(points: ArrayLike, name: object) -> tuple[Floats, Floats]:
    """Return slopes and right ends of one agent's concave (q, v) points."""
    array = np.asarray(points, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != 2 or not np.isfinite(array).all() or not len(array):
        raise ValueError(f"points of {name!r} must be finite (quantity, value) pairs, got {points!r}")
    if array[0, 0] > 0:
        array = np.vstack([np.zeros((1, 2)), array])
    if array[0, 0] < 0 or (np.diff(array[:, 0]) < 0).any():
        raise ValueError(f"points of {name!r} must have increasing quantities from 0 up, got {array[:, 0].tolist()}")
    array = array[np.append(True, np.any(np.diff(array, axis=0) != 0, axis=1))]
    jump = np.diff(array[:, 0]) == 0
    if jump.any():
        raise ValueError(f"the valuation of {name!r} jumps and so is not concave near q={array[np.argmax(jump), 0]:g}")
    if len(array) == 1:
        array = np.vstack([array, [[1.0, array[0, 1]]]])
    remedy = "from_samples(repair=True) mends samples"
    try:
        slopes = check_concave(array[None, :, 0], array[None, :, 1], [name], remedy, 1e-9)[0]
    except ValueError:
        # Points that lie closer together than their values have digits can look convex.
        array, gap = _majorant(array[:, 0], array[:, 1], name)
        if gap > 1e-14:
            raise
        slopes = np.diff(array[:, 1]) / np.diff(array[:, 0])
    return slopes, array[1:, 0]


def _majorant(q: ArrayLike, v: ArrayLike, name: object) -> tuple[Floats, float]:
    """Return the points of the least concave non-decreasing majorant, and how far it lies above the samples."""
    q, v = check_vector(q, f"q of {name!r}", low=0), check_vector(v, f"v of {name!r}")
    if q.size != v.size or not q.size:
        raise ValueError(f"q and v of {name!r} must have one common positive length, got {q.size} and {v.size}")
    order = np.argsort(q, kind="stable")
    q, v = q[order], v[order]
    if q[0] > 0:
        q, v = np.append(0.0, q), np.append(0.0, v)
    elif np.any(v[q == 0] != 0):
        raise ValueError(f"the valuation of {name!r} must be 0 at q=0, got {v[q == 0].max():g}")
    hull: list[tuple[float, float]] = []
    for x, y in zip(q.tolist(), np.maximum.accumulate(v).tolist(), strict=True):
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-2][0]) <= (y - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        if hull and hull[-1][0] == x:
            hull.pop()
        hull.append((x, y))
    points = np.array(hull)
    gap = np.abs(np.interp(q, points[:, 0], points[:, 1]) - v).max() / max(np.abs(v).max(), 1e-300)
    return points, float(gap)


class Valuations:
    """The valuations of n agents: concave, non-decreasing, worth 0 at 0; never changed after they are made.

    Make them with `linear`, `log`, `power`, `saturating`, `quadratic`, `piecewise`, `from_samples`, `from_callable`
    or `from_table`; join sets of any families with ``+``. Quantities are in units of the resource, values in money.

    Attributes
    ----------
    names : tuple of str or range
        The agents; ``range(n)`` where none were given.
    budgets : ndarray, shape (n,), or None
        What each agent can spend, in money; ``inf`` is no limit.
    repair_gap : float
        How far `from_samples` lifted a sample, relative to that agent's largest value; 0 for all other kinds.

    Examples
    --------
    >>> teams = Valuations.log([1.0, 2.0], [0.1, 0.5]) + Valuations.linear([3.0], names=["batch"])
    >>> len(teams), teams.names
    (3, ('0', '1', 'batch'))
    >>> teams.value(0.5).round(3)
    array([1.792, 1.386, 1.5  ])
    """

    def __init__(
        self,
        blocks: Iterable[tuple[Index, Any]],
        names: Iterable[Any] | None = None,
        budgets: ArrayLike | None = None,
        repair_gap: float = 0.0,
    ) -> None:
        self._blocks: tuple[tuple[Index, Family], ...] = tuple(blocks)
        n = sum(len(index) for index, _ in self._blocks)
        if n == 0:
            raise ValueError("valuations must not be empty: give at least one agent")
        self.names: Names = range(n) if names is None else check_names(names, length=n)
        self.budgets = None if budgets is None else _check_budgets(budgets, n, self.names)
        self.repair_gap = repair_gap

    # Constructors

    @classmethod
    def _of(cls, family: Family, n: int, names: Iterable[Any] | None, budgets: ArrayLike | None) -> Valuations:
        return cls([(np.arange(n), family)], names, budgets)

    @classmethod
    def linear(
        cls, a: ArrayLike, *, names: Iterable[Any] | None = None, budgets: ArrayLike | None = None
    ) -> Valuations:
        """Return v(q) = a·q.

        Parameters
        ----------
        a : array_like, shape (n,) or ()
            Value of a unit, non-negative.
        names : iterable of str, optional
            The agents.
        budgets : array_like, shape (n,), optional
            What each can spend.

        Examples
        --------
        >>> Valuations.linear([1, 0.5]).value(0.5)
        array([0.5 , 0.25])
        """
        (slope,) = _parameters(a=a)
        return cls._of(Piecewise(slope[:, None], np.full((slope.size, 1), np.inf)), slope.size, names, budgets)

    @classmethod
    def log(
        cls, a: ArrayLike, b: ArrayLike, *, names: Iterable[Any] | None = None, budgets: ArrayLike | None = None
    ) -> Valuations:
        """Return v(q) = a·log(1 + q/b).

        Parameters
        ----------
        a, b : array_like, shape (n,) or ()
            Scale of the value (non-negative) and of the quantity (positive); they broadcast.
        names, budgets
            As in `linear`.

        Examples
        --------
        >>> Valuations.log(1.0, [0.1, 1.0]).marginal(0.0)
        array([10.,  1.])
        """
        a, b = _parameters(a=a, b=b)
        return cls._of(Log(a, b), a.size, names, budgets)

    @classmethod
    def power(
        cls, a: ArrayLike, p: ArrayLike, *, names: Iterable[Any] | None = None, budgets: ArrayLike | None = None
    ) -> Valuations:
        """Return v(q) = a·q^p.

        Parameters
        ----------
        a, p : array_like, shape (n,) or ()
            Scale (non-negative) and exponent, 0 < p ≤ 1; they broadcast.
        names, budgets
            As in `linear`.

        Examples
        --------
        >>> Valuations.power(2.0, [0.5, 1.0]).value(4.0)
        array([4., 8.])
        """
        a, p = _parameters(a=a, p=p)
        return cls._of(Power(a, p), a.size, names, budgets)

    @classmethod
    def saturating(
        cls, a: ArrayLike, b: ArrayLike, *, names: Iterable[Any] | None = None, budgets: ArrayLike | None = None
    ) -> Valuations:
        """Return v(q) = a·(1 − exp(−q/b)).

        Parameters
        ----------
        a, b : array_like, shape (n,) or ()
            Greatest value (non-negative) and scale of the quantity (positive); they broadcast.
        names, budgets
            As in `linear`.

        Examples
        --------
        >>> Valuations.saturating([1.0, 3.0], 2.0).marginal(0.0)
        array([0.5, 1.5])
        """
        a, b = _parameters(a=a, b=b)
        return cls._of(Saturating(a, b), a.size, names, budgets)

    @classmethod
    def quadratic(
        cls, a: ArrayLike, b: ArrayLike, *, names: Iterable[Any] | None = None, budgets: ArrayLike | None = None
    ) -> Valuations:
        """Return v(q) = a·(q − q²/2b) up to q = b, flat afterwards.

        Parameters
        ----------
        a, b : array_like, shape (n,) or ()
            First marginal value (non-negative) and satiation (positive); they broadcast.
        names, budgets
            As in `linear`.

        Examples
        --------
        >>> Valuations.quadratic(2.0, [1.0, 4.0]).satiation()
        array([1., 4.])
        """
        a, b = _parameters(a=a, b=b)
        return cls._of(Quadratic(a, b), a.size, names, budgets)

    @classmethod
    def piecewise(
        cls, points: Sequence[Any], *, names: Iterable[Any] | None = None, budgets: ArrayLike | None = None
    ) -> Valuations:
        """Return valuations that are linear between points and flat after the last.

        Parameters
        ----------
        points : sequence of array_like, shape (K_i, 2)
            For each agent its (quantity, value) pairs, concave and non-decreasing; (0, 0) may be left out.
        names, budgets
            As in `linear`.

        Raises
        ------
        ValueError
            Decreasing or not concave, or worth something at 0; the message names agent and quantity.

        Examples
        --------
        >>> teams = Valuations.piecewise([[(0, 0), (2, 1.9), (4, 3.5)], [(1, 1)]])
        >>> teams.marginal(2.0), teams.marginal(2.0, side="left")
        (array([0.8, 0. ]), array([0.95, 0.  ]))
        """
        labels = _labels(names, len(points))
        segments = [_segments(agent, name) for agent, name in zip(points, labels, strict=True)]
        size = max((len(ends) for _, ends in segments), default=0)
        slopes = [np.pad(slope, (0, size - len(slope))) for slope, _ in segments]
        ends = [np.pad(end, (0, size - len(end)), mode="edge") for _, end in segments]
        return cls._of(Piecewise(np.array(slopes), np.array(ends)), len(points), names, budgets)

    @classmethod
    def from_samples(
        cls,
        q: Sequence[Any] | NDArray[Any],
        v: Sequence[Any] | NDArray[Any],
        repair: bool = True,
        *,
        names: Iterable[Any] | None = None,
        budgets: ArrayLike | None = None,
    ) -> Valuations:
        """Return piecewise linear valuations through measured values.

        Parameters
        ----------
        q : array_like, shape (K,), or a sequence of such, one an agent
            Quantities at which values were measured.
        v : array_like of the same shapes, or (n, K) with shared quantities
            Measured values.
        repair : bool
            Take the least concave non-decreasing majorant; otherwise the samples must be concave as they are.
        names, budgets
            As in `linear`.

        Warns
        -----
        UserWarning
            The repair lifted a sample by more than 5 % of the agent's largest value; see `repair_gap`.

        Examples
        --------
        >>> Valuations.from_samples([1, 2, 3], [1.0, 1.98, 3.0]).value(2.0)
        array([2.])
        """
        if not len(q) or not len(v):
            raise ValueError(f"q and v must not be empty, got {len(q)} and {len(v)} entries")
        values = [v] if np.ndim(v[0]) == 0 else list(v)
        quantities = [q] * len(values) if np.ndim(q[0]) == 0 else list(q)
        labels = _labels(names, len(values))
        if len(quantities) != len(values):
            raise ValueError(f"q and v must have one entry an agent, got {len(quantities)} and {len(values)}")
        if not repair:
            pairs = [np.column_stack([x, y]) for x, y in zip(quantities, values, strict=True)]
            return cls.piecewise(pairs, names=names, budgets=budgets)
        repaired = [_majorant(x, y, name) for x, y, name in zip(quantities, values, labels, strict=True)]
        made = cls.piecewise([points for points, _ in repaired], names=names, budgets=budgets)
        made.repair_gap = max(gap for _, gap in repaired)
        if made.repair_gap > 0.05:
            worst = labels[int(np.argmax([gap for _, gap in repaired]))]
            warnings.warn(
                f"the samples of {worst!r} are not concave: the repair lifts them by up to {made.repair_gap:.1%}",
                stacklevel=2,
            )
        return made

    @classmethod
    def from_callable(
        cls,
        v: Callable[[Any], Any] | Sequence[Callable[[Any], Any]],
        dv: Callable[[Any], Any] | Sequence[Callable[[Any], Any]] | None = None,
        check: bool = True,
        *,
        upto: float = 1.0,
        names: Iterable[Any] | None = None,
        budgets: ArrayLike | None = None,
    ) -> Valuations:
        """Return valuations given as functions of the quantity.

        Parameters
        ----------
        v : callable or sequence of callables
            Value of a quantity, one function an agent; called with numbers and with arrays.
        dv : the same, optional
            Derivatives; numerical ones if left out, which are slower and less exact.
        check : bool
            Check at 257 points that the functions are concave and non-decreasing.
        upto : float
            The check covers quantities from 0 to here; give the capacity.
        names, budgets
            As in `linear`.

        Raises
        ------
        ValueError
            Decreasing, not concave, not 0 at 0 or not finite; the message names the quantity.

        Examples
        --------
        >>> Valuations.from_callable([np.sqrt, np.log1p]).marginal(1.0).round(6)
        array([0.5, 0.5])
        """
        functions: list[Any] = [v] if callable(v) else list(v)
        slopes: list[Any] = [dv] if callable(dv) else [None] * len(functions) if dv is None else list(dv)
        if len(slopes) != len(functions):
            raise ValueError(f"dv must have length {len(functions)}, got {len(slopes)}")
        if not all(map(callable, functions)) or not (dv is None or all(map(callable, slopes))):
            raise TypeError("v and dv must hold callables")
        family = Functions(_objects(functions), _objects(slopes))
        if check:
            family.check(check_real(upto, "upto", low=0, open_low=True), _labels(names, len(functions)))
        return cls._of(family, len(functions), names, budgets)

    # A set of agents

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{len(index)} {type(family).__name__.lower()}" for index, family in self._blocks)
        return f"Valuations({kinds})"

    def __add__(self, other: Valuations) -> Valuations:
        n = len(self)
        blocks = [*self._blocks, *((index + n, family) for index, family in other._blocks)]
        named = isinstance(self.names, tuple) or isinstance(other.names, tuple)
        mine = self.names
        theirs = range(n, n + len(other)) if isinstance(other.names, range) else other.names
        budgets = None
        if self.budgets is not None or other.budgets is not None:
            budgets = np.concatenate(
                [np.full(len(part), np.inf) if part.budgets is None else part.budgets for part in (self, other)]
            )
        gap = max(self.repair_gap, other.repair_gap)
        return Valuations(blocks, [*mine, *theirs] if named else None, budgets, gap)

    def subset(self, mask: ArrayLike) -> Valuations:
        """Return some of the agents.

        Parameters
        ----------
        mask : array_like of bool, shape (n,), or of int
            Which agents, or their positions in the order wanted.

        Examples
        --------
        >>> Valuations.linear([3, 2, 1], names=["a", "b", "c"]).subset([True, False, True]).names
        ('a', 'c')
        """
        chosen = np.arange(len(self))[np.asarray(mask)]
        budgets = None if self.budgets is None else self.budgets[chosen]
        return Valuations(self._blocks_of(chosen), [self.names[i] for i in chosen], budgets, self.repair_gap)

    def _blocks_of(self, chosen: Index) -> list[tuple[Index, Family]]:
        """Return the blocks of some agents, in that order."""
        if len(self._blocks) == 1:
            return [(np.arange(chosen.size), self._blocks[0][1].take(chosen))]
        block = np.empty(len(self), dtype=np.intp)
        row = np.empty(len(self), dtype=np.intp)
        for k, (index, _) in enumerate(self._blocks):
            block[index], row[index] = k, np.arange(len(index))
        blocks = []
        for k, (_, family) in enumerate(self._blocks):
            places = np.flatnonzero(block[chosen] == k)
            if places.size:
                blocks.append((places, family.take(row[chosen[places]])))
        return blocks

    def marginal_of(self, chosen: NDArray[np.intp], q: NDArray[np.float64]) -> Floats:
        """Return the left derivative of some agents.

        Parameters
        ----------
        chosen : ndarray of int, shape (m,)
            Positions of the agents.
        q : ndarray, shape (m,)
            A quantity for each.

        Examples
        --------
        >>> Valuations.linear([3, 2, 1]).marginal_of(np.array([2, 0]), np.array([0.1, 0.1]))
        array([1., 3.])
        """
        blocks = self._blocks if chosen.size == len(self) else self._blocks_of(chosen)
        out = np.empty(q.shape)
        for index, family in blocks:
            out[index] = family.marginal(q[index], "left")
        return out

    def truncated(self, budgets: ArrayLike) -> Valuations:
        """Return min(v, budget): what counts as value where nobody can be worth more than they can pay.

        Parameters
        ----------
        budgets : array_like, shape (n,)
            Non-negative, ``inf`` for no limit.

        Examples
        --------
        >>> Valuations.linear([2.0, 1.0]).truncated([0.5, np.inf]).value(1.0)
        array([0.5, 1. ])
        """
        limits = _check_budgets(budgets, len(self), self.names)
        blocks = [(index, family.truncated(limits[index])) for index, family in self._blocks]
        names = self.names if isinstance(self.names, tuple) else None
        return Valuations(blocks, names, self.budgets, self.repair_gap)

    # What they are worth

    def _each(self, shape: tuple[int, ...], one: Callable[[Family, Index | slice], Floats]) -> Floats:
        """Return an array of `shape` (..., n) that each block fills for its agents."""
        if len(self._blocks) == 1:
            return np.asarray(one(self._blocks[0][1], slice(None)), dtype=np.float64)
        out = np.empty(shape)
        for index, family in self._blocks:
            out[..., index] = one(family, index)
        return out

    def _quantities(self, q: ArrayLike) -> Floats:
        array = np.asarray(q, dtype=np.float64)
        if not (array >= 0).all():
            raise ValueError(f"q must be non-negative, got {array[~(array >= 0)].flat[0]}")
        if array.ndim and array.shape[-1] not in (1, len(self)):
            raise ValueError(f"q must have last dimension {len(self)}, one an agent, got shape {array.shape}")
        return np.broadcast_to(array, np.broadcast_shapes(array.shape, (len(self),)))

    def value(self, q: ArrayLike) -> Floats:
        """Return what quantities are worth.

        Parameters
        ----------
        q : array_like, shape (), (n,), (k, 1) or (k, n)
            Quantities in units of the resource.

        Returns
        -------
        ndarray, shape (n,) or (k, n)
            In money.

        Examples
        --------
        >>> Valuations.linear([2, 1]).value([0.5, 0.5])
        array([1. , 0.5])
        """
        array = self._quantities(q)
        return self._each(array.shape, lambda family, index: family.value(array[..., index]))

    def marginal(self, q: ArrayLike, side: Side = "right") -> Floats:
        """Return the value of a little more (``side="right"``) or of the last bit (``"left"``), a unit.

        Parameters
        ----------
        q : array_like, shape (), (n,), (k, 1) or (k, n)
            Quantities. Within a relative 1e-12 of a kink they count as the kink.
        side : {"right", "left"}
            Which derivative.

        Returns
        -------
        ndarray, shape (n,) or (k, n)
            Money a unit; ``inf`` is possible at 0.

        Examples
        --------
        >>> Valuations.quadratic(2.0, [1.0, 4.0]).marginal(1.0)
        array([0. , 1.5])
        """
        check_choice(side, "side", ("right", "left"))
        array = self._quantities(q)
        return self._each(array.shape, lambda family, index: family.marginal(array[..., index], side))

    def marginal0(self) -> Floats:
        """Return the value of the first unit's beginning, v'(0+), shape (n,); may be ``inf``.

        Examples
        --------
        >>> Valuations.power(1.0, [0.5, 1.0]).marginal0()
        array([inf,  1.])
        """
        return self.marginal(0.0)

    def satiation(self) -> Floats:
        """Return the least quantity of greatest value, shape (n,); ``inf`` if more is always better.

        Examples
        --------
        >>> (Valuations.linear([1.0]) + Valuations.piecewise([[(2, 1)]])).satiation()
        array([inf,  2.])
        """
        return self._each((len(self),), lambda family, _: family.satiation())

    def demand(
        self,
        price: ArrayLike,
        alpha: float,
        capacity: float = 1.0,
        guess: NDArray[np.float64] | None = None,
        step: float = 0.25,
    ) -> Floats:
        """Return the share each agent wants at a price, foreseeing its own effect on it.

        With w(s) = v(capacity·s) this is sup{s : w'(s) ≥ price·(1 + alpha·s/(1 − s))}; ``alpha=0`` is the demand of
        agents who take the price as given. Without any worth in more, no more is demanded even at price 0.

        Parameters
        ----------
        price : array_like, shape (), (k, 1) or (k, n)
            Price of the whole resource, in money.
        alpha : float
            Exponent of the mechanism, in [0, 1].
        capacity : float
            Units of the resource.
        guess : ndarray, shape (n,) or (k, n), optional
            Shares near the answer; they save time for families without a closed form.
        step : float
            How near: a first step in log-odds.

        Returns
        -------
        ndarray, shape (n,) or (k, n)
            Shares of the capacity.

        Examples
        --------
        >>> Valuations.linear([1, 0.5]).demand(1 / 3, alpha=1.0).round(6)
        array([0.666667, 0.333333])
        """
        alpha = check_real(alpha, "alpha", low=0, high=1)
        capacity = check_real(capacity, "capacity", low=0, open_low=True)
        cost = np.asarray(price, dtype=np.float64)
        if not (cost >= 0).all():
            raise ValueError(f"price must be non-negative, got {price!r}")
        cost = np.broadcast_to(cost, np.broadcast_shapes(cost.shape, (len(self),)))

        def one(family: Family, index: Index | slice) -> Floats:
            near = (None if guess is None else guess[..., index], step)
            return np.minimum(family.demand(cost[..., index], alpha, capacity, near), 1.0)

        return self._each(cost.shape, one)


def _objects(items: list[Any]) -> NDArray[np.object_]:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def _labels(names: Iterable[Any] | None, n: int) -> Sequence[Any]:
    return range(n) if names is None else check_names(names, length=n)


def _check_budgets(budgets: ArrayLike, n: int, names: Names) -> Floats:
    labels = names if isinstance(names, tuple) else None
    return check_vector(budgets, "budgets", length=n, low=0, allow_inf=True, labels=labels)


_BAD_PARAMETER: dict[str, tuple[str, Callable[[Floats], NDArray[np.bool_]]]] = {
    "a": ("non-negative", lambda x: ~((x >= 0) & (x < np.inf))),
    "b": ("positive", lambda x: ~((x > 0) & (x < np.inf))),
    "p": ("in (0, 1]", lambda x: ~((x > 0) & (x <= 1))),
    "budget": ("non-negative", lambda x: ~(x >= 0)),
}


def _parameters(**given: ArrayLike) -> tuple[Floats, ...]:
    """Return the parameters of a family, checked and broadcast to one length."""
    arrays = [
        check_vector(np.atleast_1d(np.asarray(value)), name, low=-np.inf, allow_inf=True)
        for name, value in given.items()
    ]
    for name, array in zip(given, arrays, strict=True):
        expected, is_bad = _BAD_PARAMETER[name]
        bad = is_bad(array)
        if bad.any():
            raise ValueError(f"{name} must be {expected}, got {array[np.argmax(bad)]} for entry {np.argmax(bad)}")
    try:
        return tuple(np.array(array) for array in np.broadcast_arrays(*arrays))
    except ValueError:
        lengths = ", ".join(f"{name}: {array.size}" for name, array in zip(given, arrays, strict=True))
        raise ValueError(f"parameters must have one common length, got {lengths}") from None


_COLUMNS = {
    "linear": ("a",),
    "log": ("a", "b"),
    "power": ("a", "p"),
    "saturating": ("a", "b"),
    "quadratic": ("a", "b"),
    "piecewise": ("points",),
}


def from_table(table: str | os.PathLike[str] | pd.DataFrame) -> Valuations:
    """Return the valuations that a table lists, one agent a row.

    Parameters
    ----------
    table : path of a CSV file, or DataFrame
        Columns ``agent``, ``family`` (linear, log, power, saturating, quadratic, piecewise) and what the family
        needs: ``a``, ``b``, ``p``, or ``points`` as ``"0:0;2:1.9;4:3.5"``. Optional ``budget``, empty for no limit.

    Returns
    -------
    Valuations
        In the order of the rows.

    Raises
    ------
    ValueError
        With the row (the header is row 1) and the column.

    Examples
    --------
    >>> table = pd.DataFrame({"agent": ["nlp", "batch"], "family": ["log", "linear"], "a": [2, 1], "b": [3, ""]})
    >>> from_table(table).value(3.0).round(3)
    array([1.386, 3.   ])
    """
    if isinstance(table, pd.DataFrame):
        frame = table.astype(object).where(table.notna(), "").astype(str).reset_index(drop=True)
    else:
        try:
            frame = pd.read_csv(table, dtype=str, keep_default_na=False, skipinitialspace=True)
        except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
            raise ValueError(f"{os.fspath(table)} is not a CSV table: {error}") from None
        if not isinstance(frame.index, pd.RangeIndex):
            raise ValueError(f"row 2 has more cells than the header, which is {', '.join(frame.columns)}")
    frame = frame.apply(lambda column: column.str.strip())
    for column in ("agent", "family"):
        if column not in frame:
            raise ValueError(f"row 1: column {column!r} is missing, got {', '.join(map(repr, frame.columns))}")
    if frame.empty:
        raise ValueError("the table must have at least one agent, got only a header")
    _check_cells(frame["agent"], frame["agent"] == "", "agent", "empty")
    _check_cells(frame["agent"], frame["agent"].duplicated(), "agent", "listed twice:")
    unknown = ~frame["family"].isin(list(_COLUMNS))
    _check_cells(frame["family"], unknown, "family", f"must be one of {', '.join(_COLUMNS)}, got")
    blocks: list[tuple[Index, Family]] = []
    for family, needed in _COLUMNS.items():
        places = np.flatnonzero(frame["family"] == family)
        if places.size:
            blocks.append((places, _family_block(frame.iloc[places], family, needed)))
    budgets = _numbers(frame, "budget", empty=np.inf) if "budget" in frame else None
    return Valuations(blocks, frame["agent"], budgets)


def _family_block(frame: pd.DataFrame, family: str, needed: tuple[str, ...]) -> Family:
    """Return the agents of one family; `frame` keeps the row numbers of the whole table."""
    for column in needed:
        if column not in frame:
            row = _row(frame["family"], 0)
            raise ValueError(f"row {row}: column {column!r} is missing, needed by family {family!r}")
        _check_cells(frame[column], frame[column] == "", column, f"needed by family {family!r}, got an empty cell")
    make = getattr(Valuations, family)
    if family == "piecewise":
        return _first_block(make([_points(frame["points"], i, frame["agent"].iloc[i]) for i in range(len(frame))]))
    columns = [_numbers(frame, column) for column in needed]
    return _first_block(make(*columns))


def _first_block(valuations: Valuations) -> Family:
    return valuations._blocks[0][1]


def _row(column: pd.Series[Any], place: int) -> int:
    """Return the row of the file, counting the header as row 1."""
    return int(column.index[place]) + 2


def _check_cells(column: pd.Series[Any], bad: pd.Series[bool], name: str, problem: str) -> None:
    if bad.any():
        place = int(np.argmax(bad.to_numpy()))
        cell = column.iloc[place]
        raise ValueError(f"row {_row(column, place)}, column {name!r}: {problem}{f' {cell!r}' if cell else ''}")


def _numbers(frame: pd.DataFrame, name: str, empty: float | None = None) -> Floats:
    """Return a column as numbers in their range; `empty` stands for an empty cell."""
    cells = frame[name]
    numbers = pd.to_numeric(cells, errors="coerce")
    if empty is not None:
        numbers = numbers.mask(cells == "", empty)
    expected, is_bad = _BAD_PARAMETER[name]
    _check_cells(cells, numbers.isna(), name, "must be a number, got")
    _check_cells(cells, pd.Series(is_bad(numbers.to_numpy()), index=cells.index), name, f"must be {expected}, got")
    return numbers.to_numpy(dtype=np.float64)


def _points(cells: pd.Series[Any], place: int, agent: str) -> list[tuple[float, float]]:
    """Return the points of one cell, such as "0:0;2:1.9"."""
    try:
        pairs = [point.split(":") for point in cells.iloc[place].split(";") if point.strip()]
        points = [(float(q), float(v)) for q, v in pairs]
        _segments(points, agent)
    except ValueError as error:
        where = f"row {_row(cells, place)}, column 'points'"
        reason = str(error) if "valuation" in str(error) else f"must look like '0:0;2:1.9', got {cells.iloc[place]!r}"
        raise ValueError(f"{where}: {reason}") from None
    return points
