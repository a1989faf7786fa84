"""The shape of a function in one column: monotone, convex, concave, a combination, or free."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from enum import StrEnum
from numbers import Integral
from typing import Any

import pandas as pd

from paperworks.core.validation import check_integer, check_names

__all__ = ["Shape", "resolve_shapes"]


class Shape(StrEnum):
    """What a function must be in one column while all others are held fixed, whatever their values.

    A shape is a pair (m, c): `monotonicity` m is 1 for increasing, -1 for decreasing; `curvature` c is 1 for convex,
    -1 for concave; 0 asks for nothing. Increasing means nondecreasing, convex includes straight.

    Examples
    --------
    >>> Shape.parse("Decreasing convex")
    <Shape.CONVEX_DECREASING: 'convex_decreasing'>
    >>> Shape.CONVEX_DECREASING.monotonicity, Shape.CONVEX_DECREASING.curvature
    (-1, 1)
    >>> Shape.CONVEX_DECREASING.implies(Shape.CONVEX)
    True
    """

    FREE = "free"
    INCREASING = "increasing"
    DECREASING = "decreasing"
    CONVEX = "convex"
    CONCAVE = "concave"
    CONVEX_INCREASING = "convex_increasing"
    CONVEX_DECREASING = "convex_decreasing"
    CONCAVE_INCREASING = "concave_increasing"
    CONCAVE_DECREASING = "concave_decreasing"

    @property
    def monotonicity(self) -> int:
        """1 for increasing, -1 for decreasing, 0 for neither."""
        return ("increasing" in self.value) - ("decreasing" in self.value)

    @property
    def curvature(self) -> int:
        """1 for convex, -1 for concave, 0 for neither."""
        return ("convex" in self.value) - ("concave" in self.value)

    @property
    def group(self) -> Shape:
        """The shape of t ↦ f(-t) if this one is decreasing, else this one: one of the six that do not decrease."""
        return Shape.of(abs(self.monotonicity), self.curvature)

    def implies(self, other: Shape) -> bool:
        """Return whether every function of this shape also has the shape `other`."""
        return other.monotonicity in (0, self.monotonicity) and other.curvature in (0, self.curvature)

    @classmethod
    def of(cls, monotonicity: int, curvature: int) -> Shape:
        """Return the shape with this monotonicity and curvature, each -1, 0 or 1.

        Raises
        ------
        ValueError
            Any other number.

        Examples
        --------
        >>> Shape.of(1, -1)
        <Shape.CONCAVE_INCREASING: 'concave_increasing'>
        """
        for name, value in (("monotonicity", monotonicity), ("curvature", curvature)):
            if value not in (-1, 0, 1):
                raise ValueError(f"{name} must be -1, 0 or 1, got {value!r}")
        words = (_CURVATURE[curvature], _MONOTONICITY[monotonicity])
        return cls("_".join(word for word in words if word) or "free")

    @classmethod
    def parse(cls, shape: Any) -> Shape:
        """Return the shape that a user wrote down.

        Parameters
        ----------
        shape : Shape, str, int or None
            Words in any order and case, joined by spaces or any of ``_-+,``: increasing (inc), decreasing (dec),
            convex (cvx), concave (ccv), free (none). Or 1, -1, 0 as in scikit-learn's ``monotonic_cst``; None is free.

        Raises
        ------
        ValueError
            An unknown word or number, or words that contradict each other.
        TypeError
            Anything else.

        Examples
        --------
        >>> Shape.parse("inc+ccv")
        <Shape.CONCAVE_INCREASING: 'concave_increasing'>
        >>> Shape.parse("increasing decreasing")
        Traceback (most recent call last):
        ...
        ValueError: shape 'increasing decreasing' is contradictory: increasing, decreasing
        """
        if shape is None:
            return cls.FREE
        if isinstance(shape, str):
            return cls._from_words(shape)
        if isinstance(shape, bool) or not isinstance(shape, Integral):
            raise TypeError(f"shape must be a string, -1, 0, 1 or None, got {shape!r}")
        if int(shape) not in (-1, 0, 1):
            raise ValueError(f"shape must be -1, 0 or 1 if it is a number, got {shape!r}")
        return cls.of(int(shape), 0)

    @classmethod
    def _from_words(cls, text: str) -> Shape:
        words = [word for word in re.split(r"[\s_\-+,]+", text.lower()) if word]
        unknown = [word for word in words if word not in _WORDS]
        if unknown or not words:
            raise ValueError(
                f"shape must be one of {', '.join(cls)}, got {text!r}"
                + (f", where {unknown[0]!r} is unknown" if unknown else "")
            )
        pairs = {_WORDS[word] for word in words}
        if len({axis for axis, _ in pairs}) < len(pairs) or (("free", 0) in pairs and len(pairs) > 1):
            raise ValueError(f"shape {text!r} is contradictory: {', '.join(words)}")
        found = dict(pairs)
        return cls.of(found.get("monotonicity", 0), found.get("curvature", 0))


_MONOTONICITY = {1: "increasing", 0: "", -1: "decreasing"}
_CURVATURE = {1: "convex", 0: "", -1: "concave"}
_WORDS = {
    "increasing": ("monotonicity", 1),
    "inc": ("monotonicity", 1),
    "decreasing": ("monotonicity", -1),
    "dec": ("monotonicity", -1),
    "convex": ("curvature", 1),
    "cvx": ("curvature", 1),
    "concave": ("curvature", -1),
    "ccv": ("curvature", -1),
    "free": ("free", 0),
    "none": ("free", 0),
}


def resolve_shapes(shapes: Any, n_features: int, feature_names: Sequence[str] | None = None) -> tuple[Shape, ...]:
    """Return one shape a column.

    Parameters
    ----------
    shapes : None, str, sequence or mapping
        None: all free. One string: that shape for all columns. A sequence: one shape a column. A mapping from column
        names or indices to shapes, or a Series with such an index: the columns that are not named are free.
    n_features : int
        Number of columns.
    feature_names : sequence of str, optional
        The columns' names.

    Returns
    -------
    tuple of Shape, length n_features

    Raises
    ------
    ValueError
        Wrong length, a key that is no column, a column given twice, or a bad shape.
    TypeError
        Not one of these forms.

    Examples
    --------
    >>> resolve_shapes({"age": "increasing", 0: "convex"}, 3, ["income", "age", "zip"])
    (<Shape.CONVEX: 'convex'>, <Shape.INCREASING: 'increasing'>, <Shape.FREE: 'free'>)
    """
    n_features = check_integer(n_features, "n_features", low=1)
    names = None if feature_names is None else check_names(feature_names, "feature_names", length=n_features)
    if shapes is None or isinstance(shapes, str):
        return (Shape.parse(shapes),) * n_features
    if isinstance(shapes, pd.Series):
        shapes = dict(shapes.items())
    if isinstance(shapes, Set):
        raise TypeError(f"shapes must have an order or names, got a set: {shapes!r}")
    if isinstance(shapes, Mapping):
        return _from_mapping(shapes, n_features, names)
    try:
        listed = tuple(shapes)
    except TypeError:
        raise TypeError(f"shapes must be None, a string, a sequence or a mapping, got {shapes!r}") from None
    if len(listed) != n_features:
        raise ValueError(f"shapes must have one entry for each of the {n_features} columns, got {len(listed)}")
    return tuple(map(Shape.parse, listed))


def _from_mapping(shapes: Mapping[Any, Any], n_features: int, names: tuple[str, ...] | None) -> tuple[Shape, ...]:
    where = {key: _column(key, n_features, names) for key in shapes}
    missing = [key for key, column in where.items() if column is None]
    if missing:
        known = ", ".join(map(repr, names)) if names else f"0 to {n_features - 1}, without names"
        raise ValueError(
            f"shapes has keys that are no columns: {', '.join(map(repr, missing))}; the columns are {known}"
        )
    resolved: dict[int | None, Shape] = {}
    for key, column in where.items():
        if column in resolved:
            raise ValueError(f"shapes has column {column} given twice, the second time as {key!r}")
        resolved[column] = Shape.parse(shapes[key])
    return tuple(resolved.get(column, Shape.FREE) for column in range(n_features))


def _column(key: Any, n_features: int, names: tuple[str, ...] | None) -> int | None:
    """Return the index of the column that `key` names, or None."""
    if isinstance(key, bool) or not isinstance(key, Integral):
        return names.index(key) if names is not None and key in names else None
    return int(key) if 0 <= int(key) < n_features else None
