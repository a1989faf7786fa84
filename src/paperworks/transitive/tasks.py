"""Transitive inference tasks: items in an order, comparisons to learn from, and exceptions that contradict the order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from paperworks.core.extras import require
from paperworks.core.validation import check_choice, check_integer, check_names, check_real

__all__ = ["TransitiveTask", "check_exceptions", "check_pairs"]

Index = NDArray[np.intp]


class TransitiveTask:
    """Items in an order, the comparisons that are shown, and the exceptions among them.

    Item 0 is the best. An exception, in which a lower item beats a higher one, closes a cycle over the items from its
    loser to its winner; cycles that share an item are one.

    Parameters
    ----------
    n_items : int
        Number of items, at least 2.
    exception : (winner, loser) or list of such, optional
        Added to the comparisons; the winner is at least two below the loser.
    items : iterable of str, optional
        Names, best first.
    exception_weight : float
        Presentations of an exception for one of any other comparison.
    edges : "adjacent" or array_like of int, shape (m, 2)
        The comparisons, (winner, loser): by default every item beats the next. In a list of them, each in which the
        lower item wins is an exception; comparisons may be missing, skip items, and form several chains.

    Attributes
    ----------
    pairs : ndarray of int, shape (m, 2)
        All comparisons, (winner, loser).
    targets : ndarray, shape (m,)
        Margin of the winner: 1.
    weights : ndarray, shape (m,)
        Presentations.
    is_exception : ndarray of bool, shape (m,)
        Which comparisons contradict the order.
    cycle_items : ndarray of int
        The items in a cycle.

    Raises
    ------
    ValueError, TypeError
        An exception that is none, a comparison that is listed twice, or an argument out of range.

    Examples
    --------
    >>> task = TransitiveTask(9, exception=(5, 3))
    >>> task.pair_table()["cls"].value_counts().sort_index().to_dict()
    {'boundary': 16, 'cross': 9, 'cycle': 2, 'exception': 1, 'rule': 6, 'within': 2}
    """

    pairs: NDArray[np.intp]
    targets: NDArray[np.float64]
    weights: NDArray[np.float64]
    is_exception: NDArray[np.bool_]
    cycle_items: NDArray[np.intp]

    def __init__(
        self,
        n_items: int,
        exception: ArrayLike | None = None,
        *,
        items: Iterable[Any] | None = None,
        exception_weight: float = 1.0,
        edges: ArrayLike = "adjacent",
    ) -> None:
        self.n_items = check_integer(n_items, "n_items", low=2)
        self.items = None if items is None else check_names(items, "items", length=self.n_items)
        self.exception_weight = check_real(exception_weight, "exception_weight", low=0, open_low=True)
        if isinstance(edges, str):
            check_choice(edges, "edges", ("adjacent",))
            comparisons = np.column_stack([np.arange(self.n_items - 1), np.arange(1, self.n_items)])
        else:
            comparisons = check_pairs(edges, self.n_items, "edges")
        if exception is not None:
            comparisons = np.concatenate([comparisons, check_exceptions(exception, self.n_items)])
        _check_once(comparisons, self.n_items)
        self.pairs = comparisons
        self.targets = np.ones(len(comparisons))
        self.is_exception = comparisons[:, 0] > comparisons[:, 1]
        self.weights = np.where(self.is_exception, self.exception_weight, 1.0)
        self._cycle, self._section = self._sections()
        self.cycle_items = np.flatnonzero(self._cycle >= 0)

    def __repr__(self) -> str:
        exceptions = ", ".join(f"{winner} beats {loser}" for winner, loser in self.pairs[self.is_exception])
        return (
            f"TransitiveTask({self.n_items} items, {len(self.pairs)} comparisons, exceptions: {exceptions or 'none'})"
        )

    def _sections(self) -> tuple[Index, Index]:
        """Return the cycle of each item, −1 outside, and the number of cycles that begin at or before it."""
        linked = np.zeros(self.n_items + 1, dtype=bool)  # entry i: items i − 1 and i are in one cycle
        for winner, loser in self.pairs[self.is_exception]:
            linked[loser + 1 : winner + 1] = True
        inside = linked[:-1] | linked[1:]
        begun = np.cumsum(inside & ~linked[:-1], dtype=np.intp)
        return np.asarray(np.where(inside, begun, -1)), begun

    def pair_table(self) -> pd.DataFrame:
        """Return every pair of items with its class and what is right.

        Returns
        -------
        DataFrame, n(n − 1)/2 rows
            first, second
                The higher and the lower item, from 0.
            distance
                second − first.
            cls
                Of the comparisons shown: ``exception``, ``cycle`` (both items in one cycle) or ``rule``. Of the others:
                ``intra`` (both in one cycle), ``boundary`` (one in a cycle, or each in another), ``within`` (no cycle
                between them) and ``cross``; all ``transitive`` where no exception is.
            trained
                Whether the pair is shown.
            truth
                1 where the first should win, −1 for an exception, NaN for intra, which no order decides.
            first_item, second_item
                Their names, if the task has any.
        """
        first, second = np.triu_indices(self.n_items, 1)
        shown = np.zeros((self.n_items, self.n_items), dtype=np.int8)
        shown[self.pairs.min(axis=1), self.pairs.max(axis=1)] = np.where(self.is_exception, -1, 1)
        outcome = shown[first, second]
        in_one = (self._cycle[first] == self._cycle[second]) & (self._cycle[first] >= 0)
        outside = (self._cycle[first] < 0) & (self._cycle[second] < 0)
        no_exception = np.full(len(first), not self.is_exception.any())
        cls = np.select(
            [
                outcome < 0,
                (outcome > 0) & in_one,
                outcome > 0,
                no_exception,
                in_one,
                outside & (self._section[first] == self._section[second]),
                outside,
            ],
            ["exception", "cycle", "rule", "transitive", "intra", "within", "cross"],
            "boundary",
        )
        table = pd.DataFrame(
            {
                "first": first,
                "second": second,
                "distance": second - first,
                "cls": cls,
                "trained": outcome != 0,
                "truth": np.where(outcome < 0, -1.0, np.where(cls == "intra", np.nan, 1.0)),
            }
        )
        if self.items is None:
            return table
        names = np.array(self.items, dtype=object)
        return table.assign(first_item=names[first], second_item=names[second])

    def reversed(self) -> TransitiveTask:
        """Return the task in which every comparison comes out the other way, so that the worst item is the best.

        Examples
        --------
        >>> TransitiveTask(5, exception=(2, 0)).reversed()
        TransitiveTask(5 items, 5 comparisons, exceptions: 4 beats 2)
        """
        items = None if self.items is None else self.items[::-1]
        return self._changed(items, self.n_items - 1 - self.pairs[:, ::-1])

    def relabel(self, items: Iterable[Any]) -> TransitiveTask:
        """Return the same task with other names, best first."""
        return self._changed(items, self.pairs)

    def _changed(self, items: Iterable[Any] | None, pairs: Index) -> TransitiveTask:
        return TransitiveTask(self.n_items, items=items, exception_weight=self.exception_weight, edges=pairs)

    def to_networkx(self) -> Any:
        """Return the comparisons as a directed graph from winners to losers.

        Returns
        -------
        networkx.DiGraph
            Nodes are items from 0, with their names as attribute ``item`` if the task has any; edges have attributes
            ``target``, ``weight`` and ``exception``.

        Raises
        ------
        MissingExtra
            networkx is not installed.
        """
        graph = require("networkx", "transitive").DiGraph()
        for item in range(self.n_items):
            graph.add_node(item, **({} if self.items is None else {"item": self.items[item]}))
        columns = (self.pairs.tolist(), self.targets.tolist(), self.weights.tolist(), self.is_exception.tolist())
        for (winner, loser), target, weight, exception in zip(*columns, strict=True):
            graph.add_edge(winner, loser, target=target, weight=weight, exception=exception)
        return graph


def check_exceptions(exception: ArrayLike, n_items: int) -> Index:
    """Return (winner, loser) of each exception."""
    with contextlib.suppress(ValueError):  # rows of different lengths
        exception = np.atleast_2d(exception)
    pairs = check_pairs(exception, n_items, "exception")
    for winner, loser in pairs.tolist():
        if winner < loser + 2:
            raise ValueError(
                f"exception has winner {winner} and loser {loser}, which are adjacent or in order: not an exception; "
                f"the winner must be at least {loser + 2}"
            )
    return pairs


def _check_once(pairs: Index, n_items: int) -> None:
    keys, counts = np.unique(pairs.min(axis=1) * n_items + pairs.max(axis=1), return_counts=True)
    if counts.max() > 1:
        higher, lower = divmod(int(keys[np.argmax(counts)]), n_items)
        raise ValueError(f"edges and exception must list a pair once, got items {higher} and {lower} again")


def check_pairs(pairs: ArrayLike, n_items: int, name: str, *, distinct: bool = True) -> NDArray[np.intp]:
    """Return pairs of items as an integer array.

    Parameters
    ----------
    pairs : array_like of int, shape (m, 2)
        At least one pair.
    n_items : int
        Items are 0 to `n_items` - 1.
    name : str
        The argument's name, for the message.
    distinct : bool
        Refuse an item paired with itself.

    Raises
    ------
    TypeError
        Not integers.
    ValueError
        Another shape, an item out of range, or one paired with itself; the message names the row.

    Examples
    --------
    >>> check_pairs([(0, 1), (2, 2)], 3, "pairs")
    Traceback (most recent call last):
    ...
    ValueError: pairs compares an item with itself in row 1: (2, 2)
    """
    try:
        array = np.asarray(pairs)
    except ValueError:
        raise ValueError(f"{name}: expected shape (m, 2), got rows of different lengths") from None
    if array.ndim != 2 or array.shape[1] != 2 or not len(array):
        raise ValueError(f"{name}: expected shape (m, 2) with m >= 1, got {array.shape}")
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}")
    array = array.astype(np.intp)
    outside = ((array < 0) | (array >= n_items)).any(axis=1)
    if outside.any():
        row = int(np.argmax(outside))
        raise ValueError(f"{name} must be items 0 to {n_items - 1}, got {tuple(array[row].tolist())} in row {row}")
    same = array[:, 0] == array[:, 1]
    if distinct and same.any():
        row = int(np.argmax(same))
        raise ValueError(f"{name} compares an item with itself in row {row}: {tuple(array[row].tolist())}")
    return array
