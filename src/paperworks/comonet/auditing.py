"""Sampled check of the shapes of any callable: it can find violations, it cannot prove that there are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from paperworks.comonet.shapes import Shape, resolve_shapes
from paperworks.core.validation import check_integer, check_names, check_real

__all__ = ["AuditReport", "ColumnAudit", "audit"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ColumnAudit:
    """What the sampled lines of one column show.

    Attributes
    ----------
    index, name
        The column.
    shape : Shape
        What was checked.
    checked : int
        Segments: neighbouring pairs for monotone, neighbouring triples for curved.
    share : float
        Share of the segments that violate the shape.
    worst : float
        Largest violation, in units of the prediction (a difference or a second difference); 0 if there is none.
    row : int or None
        Position in X of the row whose line has the worst violation.
    where : tuple of float or None
        The column's values there, two or three of them.
    """

    index: int
    name: str
    shape: Shape
    checked: int
    share: float
    worst: float
    row: int | None
    where: tuple[float, ...] | None

    def __str__(self) -> str:
        text = f"{self.name}: {self.shape.value.replace('_', ' ')}, "
        if self.row is None:
            return f"{text}no violation in {self.checked} sampled segments"
        points = ", ".join(f"{value:.6g}" for value in self.where or ())
        return f"{text}{self.share:.2%} of {self.checked} sampled segments VIOLATED, worst {self.worst:.3g} at {points}"


@dataclass(frozen=True)
class AuditReport:
    """One `ColumnAudit` for every column with a shape; a sample, not a proof."""

    columns: tuple[ColumnAudit, ...]

    @property
    def ok(self) -> bool:
        """Whether no sampled segment violates a shape."""
        return all(column.row is None for column in self.columns)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a column, the fields of `ColumnAudit`."""
        names = list(ColumnAudit.__dataclass_fields__)
        frame = pd.DataFrame([vars(column) for column in self.columns], columns=names)
        return frame.astype({"shape": str, "row": "Int64"})

    def __str__(self) -> str:
        head = "no violation found" if self.ok else "VIOLATIONS found"
        return "\n".join([f"Sampled audit (not a proof): {head}", *(f"  {column}" for column in self.columns)])


def audit(
    predict: Callable[[Any], Any],
    X: Any,
    shapes: Any,
    *,
    n_lines: int = 200,
    n_points: int = 41,
    tol: float = 1e-9,
    random_state: int = 0,
    feature_names: list[str] | None = None,
) -> AuditReport:
    """Look for violations of declared shapes along axis-parallel lines through rows of X.

    Parameters
    ----------
    predict : callable
        Maps rows like X to one number a row. It receives a DataFrame if X is one.
    X : array or DataFrame, shape (n, d)
        Rows through which the lines go; a line spans the column's range in X (one unit around a constant).
    shapes : None, str, sequence or mapping
        As in `resolve_shapes`.
    n_lines : int
        Lines a column; all rows are used if there are fewer.
    n_points : int
        Equally spaced points a line, at least 3.
    tol : float
        What counts as rounding, relative to the largest absolute prediction on the column's lines.
    random_state : int
        Seed of the choice of rows.
    feature_names : list of str, optional
        The columns' names; the default is a DataFrame's.

    Returns
    -------
    AuditReport

    Raises
    ------
    ValueError
        A bad argument, an empty X, NaN or infinite values in X or in a prediction, a prediction of a wrong shape.
    TypeError
        `predict` is not callable, or a column with a shape is not numeric.

    Examples
    --------
    >>> rows = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    >>> report = audit(lambda X: X[:, 0] + X[:, 1] ** 2, rows, ["increasing", "concave"])
    >>> [column.share for column in report.columns], report.ok
    ([0.0, 1.0], False)
    """
    if not callable(predict):
        raise TypeError(f"predict must be callable, got {type(predict).__name__}")
    n_lines = check_integer(n_lines, "n_lines", low=1)
    n_points = check_integer(n_points, "n_points", low=3)
    tol = check_real(tol, "tol", low=0)
    rng = np.random.default_rng(check_integer(random_state, "random_state", low=0))
    table, is_frame = _table(X)
    if feature_names is not None:
        names: tuple[str, ...] | None = check_names(feature_names, "feature_names", length=table.shape[1])
    else:
        names = tuple(map(str, table.columns)) if is_frame else None
    resolved = resolve_shapes(shapes, table.shape[1], names)
    rows = np.sort(rng.permutation(len(table))[:n_lines])
    columns = []
    for j, shape in enumerate(resolved):
        if shape != Shape.FREE:
            grid = _grid(table, j, n_points)
            values = _line_values(predict, table, is_frame, rows, j, grid)
            columns.append(_column(j, names[j] if names else f"x{j}", shape, rows, grid, values, tol))
    return AuditReport(tuple(columns))


def _table(X: Any) -> tuple[pd.DataFrame, bool]:
    is_frame = isinstance(X, pd.DataFrame)
    if not is_frame:
        array = np.asarray(X)
        if array.ndim != 2:
            raise ValueError(f"X must have shape (rows, columns), got {array.shape}")
        if array.dtype.kind not in "iufb":
            raise TypeError(f"X must be numeric, got dtype {array.dtype}")
        X = pd.DataFrame(array.astype(np.float64))
    if X.empty:
        raise ValueError(f"X must have at least one row and one column, got shape {X.shape}")
    return X, is_frame


def _grid(table: pd.DataFrame, j: int, n_points: int) -> Floats:
    """Equally spaced points over the column's range."""
    column = table.iloc[:, j]
    if not pd.api.types.is_numeric_dtype(column):
        raise TypeError(f"column {table.columns[j]!r} of X must be numeric to have a shape, got {column.dtype}")
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if not np.isfinite(values).all():
        raise ValueError(f"column {table.columns[j]!r} of X must be finite, got NaN or infinity")
    low, high = values.min(), values.max()
    if low == high:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, n_points)


def _line_values(
    predict: Callable[[Any], Any], table: pd.DataFrame, is_frame: bool, rows: NDArray[np.intp], j: int, grid: Floats
) -> Floats:
    """Predictions on all lines, shape (lines, points)."""
    lines = table.iloc[np.repeat(rows, len(grid))].reset_index(drop=True)
    lines = lines.astype({table.columns[j]: np.float64})
    lines.isetitem(j, np.tile(grid, len(rows)))
    values = np.asarray(predict(lines if is_frame else lines.to_numpy()), dtype=np.float64)
    if values.shape not in ((len(lines),), (len(lines), 1)):
        raise ValueError(f"predict must return one number a row, shape ({len(lines)},), got shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"predict must return finite numbers, got {values[~np.isfinite(values)][0]} on column {j}")
    return values.reshape(len(rows), len(grid))


def _column(
    j: int, name: str, shape: Shape, rows: NDArray[np.intp], grid: Floats, values: Floats, tol: float
) -> ColumnAudit:
    """Pool the violations of first and second differences; positive means violated."""
    slack = tol * max(float(np.abs(values).max()), np.finfo(np.float64).tiny)
    checked = violated = 0
    worst, row, where = 0.0, None, None
    for order, sign in ((1, shape.monotonicity), (2, shape.curvature)):
        if not sign:
            continue
        excess = -sign * np.diff(values, order, axis=1)
        checked, violated = checked + excess.size, violated + int((excess > slack).sum())
        line, start = np.unravel_index(int(excess.argmax()), excess.shape)
        if excess[line, start] > max(slack, worst):
            worst, row = float(excess[line, start]), int(rows[line])
            where = tuple(float(v) for v in grid[start : start + order + 1])
    return ColumnAudit(j, name, shape, checked, violated / checked, worst, row, where)
