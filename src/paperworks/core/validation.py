"""Small checks shared by systems: each raises with the argument's name and the offending value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["check_choice", "check_integer", "check_names", "check_real", "check_vector"]


def check_real(
    value: Any, name: str, *, low: float | int = -math.inf, high: float | int = math.inf, open_low: bool = False
) -> float:
    """Return `value` as a finite float in the given range.

    Parameters
    ----------
    value : real number
        Not a bool, not NaN, not infinite.
    name : str
        The argument's name, for the message.
    low, high : float
        The range, closed.
    open_low : bool
        Whether `low` itself is outside.

    Raises
    ------
    TypeError
        Not a real number.
    ValueError
        NaN, infinite or outside the range.

    Examples
    --------
    >>> check_real(2, "capacity", low=0, open_low=True)
    2.0
    >>> check_real(-1, "reserve", low=0)
    Traceback (most recent call last):
    ...
    ValueError: reserve must be non-negative, got -1
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        kind = ValueError if isinstance(value, (bool, np.bool_)) else TypeError
        raise kind(f"{name} must be {_range(low, high, open_low)}, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf  # of either sign: refused below
    inside = low < number if open_low else low <= number
    if not (math.isfinite(number) and inside and number <= high):
        also = " and finite" if number == math.inf == high and low > -math.inf else ""
        raise ValueError(f"{name} must be {_range(low, high, open_low)}{also}, got {value!r}")
    return number


def _range(low: float, high: float, open_low: bool) -> str:
    if math.isfinite(high):
        return f"in {'(' if open_low else '['}{low:g}, {high:g}]"
    if low == 0:
        return "positive" if open_low else "non-negative"
    return "a finite number" if low == -math.inf else f"at least {low:g}"


def check_integer(value: Any, name: str, *, low: int | None = None) -> int:
    """Return `value` as an int that is at least `low`; a bool or a float is a TypeError.

    Examples
    --------
    >>> check_integer(3, "n", low=1)
    3
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if low is not None and value < low:
        raise ValueError(f"{name} must be at least {low}, got {value!r}")
    return int(value)


def check_choice(value: Any, name: str, choices: Iterable[Any]) -> Any:
    """Return `value` if it is one of `choices`.

    Examples
    --------
    >>> check_choice("weekly", "freq", ["hourly", "daily"])
    Traceback (most recent call last):
    ...
    ValueError: freq must be one of 'hourly', 'daily', got 'weekly'
    """
    options = list(choices)
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {value!r}")
    return value


def check_vector(
    values: ArrayLike,
    name: str,
    *,
    length: int | None = None,
    low: float | int = -math.inf,
    allow_inf: bool = False,
    labels: Sequence[str] | None = None,
) -> NDArray[np.float64]:
    """Return `values` as a new one-dimensional float64 array.

    Parameters
    ----------
    values : array_like, shape (n,)
        Real numbers; object and string arrays are refused.
    name : str
        The argument's name, for the message.
    length : int, optional
        Required length.
    low : float
        Smallest value allowed.
    allow_inf : bool
        Whether ``+inf`` is allowed.
    labels : sequence of str, optional
        What to call entry i in a message, e.g. the agent's name.

    Raises
    ------
    TypeError
        Not numeric.
    ValueError
        Wrong shape or length, NaN, infinite, or below `low`; the message names the entry and its value.

    Examples
    --------
    >>> check_vector([1, 2], "bids", low=0)
    array([1., 2.])
    >>> check_vector([1, -2], "bids", low=0, labels=["nlp", "vision"])
    Traceback (most recent call last):
    ...
    ValueError: bids must be non-negative, got -2.0 for 'vision'
    """
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name} must be one-dimensional, got entries of different lengths") from None
    if array.dtype.kind not in "iuf" and array.size:
        raise TypeError(f"{name} must be numeric, got dtype {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    if length is not None and array.size != length:
        raise ValueError(f"{name} must have length {length}, got {array.size}")
    array = array.astype(np.float64)
    bad = np.isnan(array) | (array < low) | np.isneginf(array)
    if not allow_inf:
        bad |= np.isinf(array)
    if bad.any():
        i = int(np.argmax(bad))
        expected = _range(low, math.inf, False) if low > -math.inf else "finite"
        if array[i] == math.inf and low > -math.inf:
            expected += " and finite"
        where = repr(labels[i]) if labels is not None else f"entry {i}"
        raise ValueError(f"{name} must be {expected}, got {array[i]} for {where}")
    return array


def check_names(names: Iterable[Any], name: str = "names", *, length: int | None = None) -> tuple[str, ...]:
    """Return `names` as distinct strings.

    Raises
    ------
    TypeError
        One string, whose letters would be taken for names.
    ValueError
        None given, a wrong number, or a duplicate (which is named).

    Examples
    --------
    >>> check_names(["a", "b", "a"])
    Traceback (most recent call last):
    ...
    ValueError: names must be distinct, got 'a' twice
    """
    if isinstance(names, str):
        raise TypeError(f"{name} must be several names, got one string {names!r}")
    labels = tuple(str(label) for label in names)
    if not labels:
        raise ValueError(f"{name} must not be empty")
    if length is not None and len(labels) != length:
        raise ValueError(f"{name} must have length {length}, got {len(labels)}")
    if len(set(labels)) < len(labels):
        seen: set[str] = set()
        twice = next(label for label in labels if label in seen or seen.add(label))  # type: ignore[func-returns-value]
        raise ValueError(f"{name} must be distinct, got {twice!r} twice")
    return labels
