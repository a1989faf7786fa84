"""Linear programmes by the primal-dual hybrid gradient method, anchored, reflected and restarted."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import Bounds, OptimizeResult

from paperworks.anchoring import schedules
from paperworks.anchoring.arrays import inner, norms
from paperworks.anchoring.drive import ARTIFICIAL, NECESSARY, SUFFICIENT, YOUNG
from paperworks.anchoring.operators import _largest_singular_value
from paperworks.core.extras import require
from paperworks.core.validation import check_choice, check_integer, check_real, check_vector

__all__ = ["KKTErrors", "LPModel", "Ray", "dual_ray", "kkt_errors", "linprog", "primal_ray", "read_mps", "solve_mps"]

Floats = NDArray[np.float64]

OPTIMAL, MAXITER, INFEASIBLE, UNBOUNDED, NUMERICAL = range(5)

RUIZ_PASSES, POWER_PASSES, POWER_MARGIN, STEP = 10, 200, 1.0005, 0.998
WEIGHT_NOW, WEIGHT_SUM, WEIGHT_MEMORY = 0.99, 0.01, 0.3
# Where the primal and the dual error are further apart, the weight goes back to the one that balanced them best.
BALANCE = 1e5
CHECK_EVERY = 50

# A ray proves that no solution has a norm below 1/violation: that must be so many, and so many times the iterate's.
RAY_REACH, RAY_FACTOR = 1e6, 1e3


@dataclass(frozen=True)
class _Method:
    anchored: bool
    reflected: bool = False
    restarted: bool = False


METHODS = {
    "r2halpern": _Method(anchored=True, reflected=True, restarted=True),
    "rhalpern": _Method(anchored=True, restarted=True),
    "halpern": _Method(anchored=True),
    "pdhg": _Method(anchored=False),
}


@dataclass(frozen=True, eq=False, init=False)
class LPModel:
    """A linear programme: the least, or largest, cᵀx + offset with row_lower ≤ A x ≤ row_upper and lb ≤ x ≤ ub.

    Attributes
    ----------
    c : ndarray, shape (n,)
        Cost of every variable.
    A : csr_array, shape (m, n)
        Rows; a dense or sparse matrix is converted.
    row_lower, row_upper : ndarray, shape (m,)
        Limits of the rows, −inf and inf where there is none.
    lb, ub : ndarray, shape (n,)
        Limits of the variables.
    offset : float
        Constant of the objective.
    sense : {"min", "max"}
    columns, rows : tuple of str
        Names, or none at all.

    Raises
    ------
    TypeError
        Not numbers.
    ValueError
        Shapes that do not fit, c or A not finite, or limits that are NaN or leave no number.

    Examples
    --------
    >>> model = LPModel([1.0, 1.0], [[1.0, 2.0]], [2.0], [np.inf], [0.0, 0.0], [np.inf, np.inf])
    >>> model.A.shape
    (1, 2)
    """

    c: Floats
    A: Any
    row_lower: Floats
    row_upper: Floats
    lb: Floats
    ub: Floats
    offset: float
    sense: Literal["min", "max"]
    columns: tuple[str, ...]
    rows: tuple[str, ...]

    def __init__(
        self,
        c: ArrayLike,
        A: Any,
        row_lower: ArrayLike,
        row_upper: ArrayLike,
        lb: ArrayLike,
        ub: ArrayLike,
        offset: float = 0.0,
        sense: Literal["min", "max"] = "min",
        columns: tuple[str, ...] = (),
        rows: tuple[str, ...] = (),
    ) -> None:
        c = _costs(c)
        A = _matrix(A, "A", c.size)
        fields = {
            "c": c,
            "A": A,
            "row_lower": _limits(row_lower, "row_lower", A.shape[0], -math.inf),
            "row_upper": _limits(row_upper, "row_upper", A.shape[0], math.inf),
            "lb": _limits(lb, "lb", c.size, -math.inf),
            "ub": _limits(ub, "ub", c.size, math.inf),
            "offset": check_real(offset, "offset"),
            "sense": check_choice(sense, "sense", ("min", "max")),
            "columns": tuple(columns),
            "rows": tuple(rows),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)


def _costs(c: ArrayLike) -> Floats:
    costs = check_vector(c, "c")
    if not costs.size:
        raise ValueError("c must not be empty")
    return costs


def _matrix(A: Any, name: str, n: int) -> Any:
    if not sparse.issparse(A):
        try:
            A = np.asarray(A)
        except ValueError:
            raise ValueError(f"{name} must be a matrix, got rows of different lengths") from None
        A = A.reshape(0, n) if not A.size else np.atleast_2d(A)
    if A.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be numeric, got dtype {A.dtype}")
    if A.ndim != 2 or A.shape[1] != n:
        raise ValueError(f"{name} must have a column for each of {n} variables, got shape {A.shape}")
    matrix = sparse.csr_array(A, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if not np.isfinite(matrix.data).all():
        raise ValueError(f"{name} must be finite")
    return matrix


def _limits(values: Any, name: str, length: int, none: float) -> Floats:
    """Return limits of `length` entries, that are `none` where there is none; the other infinity is refused."""
    try:
        limits = np.array([none if value is None else value for value in np.ravel(values)], dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be numeric, got {values!r}") from None
    if limits.shape != (length,):
        raise ValueError(f"{name} must have length {length}, got {limits.size}")
    bad = np.isnan(limits) | (limits == -none)
    if bad.any():
        i = int(bad.argmax())
        raise ValueError(f"{name} must be finite or {none}, got {limits[i]} for entry {i}")
    return limits


def read_mps(path: str | os.PathLike[str], *, relax: bool = False) -> LPModel:
    """Read a file in MPS or LP format, gzipped or not.

    Parameters
    ----------
    path : path
        Ends in ``.mps`` or ``.lp``, with or without ``.gz``.
    relax : bool
        Take integer variables as real ones.

    Raises
    ------
    FileNotFoundError
        No such file.
    ValueError
        Not such a file, a quadratic objective, or integer variables without `relax`.
    MissingExtra
        Without highspy, which reads the file.
    """
    highspy = require("highspy", "anchoring")
    if not Path(path).is_file():
        raise FileNotFoundError(f"no such file: {path}")
    highs = highspy._Highs()  # that of the public name greets on standard output
    highs.setOptionValue("output_flag", False)
    if highs.readModel(str(path)) == highspy.HighsStatus.kError:
        raise ValueError(f"{path} is not an MPS or LP file that HiGHS can read")
    if highs.getHessianNumNz():
        raise ValueError(f"{path} has a quadratic objective")
    lp = highs.getLp()
    kinds = set(lp.integrality_) - {highspy.HighsVarType.kContinuous}
    if kinds == {highspy.HighsVarType.kInteger} and not relax:
        raise ValueError(f"{path} has integer variables: relax=True takes them as real ones")
    if kinds - {highspy.HighsVarType.kInteger}:
        raise ValueError(f"{path} has semicontinuous variables")
    matrix = lp.a_matrix_
    by_column = matrix.format_ == highspy.MatrixFormat.kColwise
    build = sparse.csc_array if by_column else sparse.csr_array
    A = build((matrix.value_, matrix.index_, matrix.start_), shape=(lp.num_row_, lp.num_col_))
    return LPModel(
        lp.col_cost_, A, lp.row_lower_, lp.row_upper_, lp.col_lower_, lp.col_upper_, lp.offset_,
        "max" if lp.sense_ == highspy.ObjSense.kMaximize else "min", tuple(lp.col_names_), tuple(lp.row_names_),
    )  # fmt: skip


class _Interval:
    """A box [lower, upper], and what duality says of it; arrays of NumPy or torch, as `array` makes them."""

    def __init__(self, lower: Floats, upper: Floats, array: Callable[[Floats], Any]) -> None:
        below, above = np.isfinite(lower), np.isfinite(upper)
        self.lower, self.upper = array(lower), array(upper)
        self._below, self._above = array(below.astype(np.float64)), array(above.astype(np.float64))
        self._least, self._most = array(np.where(below, lower, 0.0)), array(np.where(above, upper, 0.0))

    def nearest(self, v: Any) -> Any:
        """Return the nearest point of the box."""
        return v.clip(self.lower, self.upper)

    def multiplier(self, y: Any) -> Any:
        """Return the part of `y` that a multiplier may have: ≥ 0 only where a lower limit is, ≤ 0 where an upper is."""
        return y.clip(0, None) * self._below + y.clip(None, 0) * self._above

    def value(self, y: Any) -> float:
        """Return the least of yᵀv over the box, for a multiplier `y`."""
        return inner(y.clip(0, None), self._least) + inner(y.clip(None, 0), self._most)

    def recede(self, d: Any) -> Any:
        """Return the nearest direction in which one can go for ever."""
        return d.clip(0, None) * (1 - self._above) + d.clip(None, 0) * (1 - self._below)


@dataclass(frozen=True)
class KKTErrors:
    """Relative errors of a primal and a dual point, as `kkt_errors` defines them.

    Attributes
    ----------
    primal, dual, gap : float
        Of feasibility, dual feasibility, and between the objectives.
    """

    primal: float
    dual: float
    gap: float

    @property
    def worst(self) -> float:
        """The largest of the three."""
        return max(self.primal, self.dual, self.gap)


@dataclass(frozen=True, eq=False)
class Ray:
    """A direction that proves a linear programme infeasible or unbounded, as far as `violation` is 0.

    Attributes
    ----------
    direction : ndarray
        A multiplier for each row, or a change of each variable; the largest entry is 1 or −1.
    value : float
        What it gains, positive.
    violation : float
        Norm of what it violates, over `value`.
    """

    direction: Floats
    value: float
    violation: float


class _Conditions:
    """Optimality conditions of an LPModel to be minimised, on arrays of NumPy or torch."""

    def __init__(self, model: LPModel, array: Callable[[Floats], Any]) -> None:
        self.c = array(model.c)
        self.rows = _Interval(model.row_lower, model.row_upper, array)
        self.bounds = _Interval(model.lb, model.ub, array)
        self.cost_scale = 1 + norms(model.c)
        self.row_scale = 1 + _finite_norm(model.row_lower, model.row_upper)

    def errors(self, x: Any, y: Any, Ax: Any, ATy: Any) -> KKTErrors:
        reduced = self.c - ATy
        outside = math.hypot(norms(Ax - self.rows.nearest(Ax)), norms(x - self.bounds.nearest(x)))
        wrong = norms(reduced - self.bounds.multiplier(reduced)) + norms(y - self.rows.multiplier(y))
        primal, dual = inner(self.c, x), self.rows.value(y) + self.bounds.value(reduced)
        return KKTErrors(
            outside / self.row_scale, wrong / self.cost_scale, abs(primal - dual) / (1 + abs(primal) + abs(dual))
        )

    def dual_ray(self, y: Any, transposed: Callable[[Any], Any]) -> tuple[Any, float, float]:
        """Return a direction, its value, and its violation over its value."""
        y = self.rows.multiplier(y)
        reduced = -transposed(y)
        value = self.rows.value(y) + self.bounds.value(reduced)
        violation = norms(reduced - self.bounds.multiplier(reduced))
        return y, value, violation / value if value > 0 else math.inf

    def primal_ray(self, d: Any, product: Callable[[Any], Any]) -> tuple[Any, float, float]:
        """Return a direction, its value, and its violation over its value."""
        d = self.bounds.recede(d)
        value = -inner(self.c, d)
        if value <= 0:
            return d, value, math.inf
        Ad = product(d)
        return d, value, norms(Ad - self.rows.recede(Ad)) / value


def _finite_norm(lower: Floats, upper: Floats) -> float:
    """Return the norm of all finite limits; of an equality, of one."""
    sides = np.concatenate([lower, upper[upper != lower]])
    return float(norms(sides[np.isfinite(sides)]))


def _to_minimise(model: LPModel) -> LPModel:
    return model if model.sense == "min" else replace(model, c=-model.c, sense="min")


def kkt_errors(model: LPModel, x: ArrayLike, y: ArrayLike) -> KKTErrors:
    """Return how far a point and multipliers are from optimal, in relative terms.

    With r = c − Aᵀy, the Euclidean norm ‖·‖, and multipliers that are allowed to be ≥ 0 where there is a lower limit and ≤ 0
    where there is an upper one, ``primal`` is what x and A x lack to their limits over 1 + ‖finite limits of rows‖ (of an
    equality counted once), ``dual`` is (‖disallowed part of r‖ + ‖disallowed part of y‖)/(1 + ‖c‖), and ``gap`` is
    |p − d|/(1 + |p| + |d|), where p = cᵀx and d sums every allowed multiplier times its limit.

    Parameters
    ----------
    model : LPModel
        To be minimised, or with ``sense="max"`` maximised.
    x : array_like, shape (n,)
        Variables.
    y : array_like, shape (m,)
        Change of the optimum with the limit of each row.

    Raises
    ------
    TypeError, ValueError
        Not finite numbers, or another length.

    Examples
    --------
    >>> model = LPModel([1.0, 1.0], [[1.0, 2.0]], [2.0], [np.inf], [0.0, 0.0], [np.inf, np.inf])
    >>> kkt_errors(model, [0.0, 1.0], [0.5])
    KKTErrors(primal=0.0, dual=0.0, gap=0.0)
    """
    x = check_vector(x, "x", length=model.c.size)
    return _errors(model, x, check_vector(y, "y", length=model.A.shape[0]))


def _errors(model: LPModel, x: Floats, y: Floats) -> KKTErrors:
    y = y if model.sense == "min" else -y
    return _Conditions(_to_minimise(model), np.asarray).errors(x, y, model.A @ x, model.A.T @ y)


def dual_ray(model: LPModel, y: ArrayLike) -> Ray:
    """Return how well multipliers of the rows prove that no point is feasible.

    With y cut to what multipliers may be and r = −Aᵀy, every feasible x has ``value`` ≤ ‖disallowed part of r‖·‖x‖, where
    ``value`` sums allowed multipliers times limits; ``violation`` is that norm over ``value``, infinite where the value is
    not positive. So no point with a norm below 1/violation is feasible.

    Parameters
    ----------
    model : LPModel
        Of which the objective does not matter.
    y : array_like, shape (m,)
        Of any length.

    Raises
    ------
    TypeError, ValueError
        Not finite numbers, or another length.

    Examples
    --------
    >>> model = LPModel([0.0], [[1.0], [1.0]], [2.0, -np.inf], [np.inf, 1.0], [0.0], [np.inf])  # x ≥ 2 and x ≤ 1
    >>> dual_ray(model, [1.0, -1.0])
    Ray(direction=array([ 1., -1.]), value=1.0, violation=0.0)
    """
    y = _direction(y, "y", model.A.shape[0])
    return Ray(*_Conditions(model, np.asarray).dual_ray(y, lambda v: model.A.T @ v))


def primal_ray(model: LPModel, d: ArrayLike) -> Ray:
    """Return how well a direction proves that the objective is unbounded, if any point is feasible.

    With d cut to the directions that the limits of the variables allow for ever, ``value`` is by how much the objective gets
    better along it, and ``violation`` is ‖what A d lacks to such a direction of the rows‖ over ``value``, infinite where the
    value is not positive.

    Parameters
    ----------
    model : LPModel
        To be minimised, or with ``sense="max"`` maximised.
    d : array_like, shape (n,)
        Of any length.

    Raises
    ------
    TypeError, ValueError
        Not finite numbers, or another length.

    Examples
    --------
    >>> model = LPModel([-1.0, 0.0], [[1.0, -1.0]], [-np.inf], [1.0], [0.0, 0.0], [np.inf, np.inf])
    >>> primal_ray(model, [2.0, 2.0])
    Ray(direction=array([1., 1.]), value=1.0, violation=0.0)
    """
    d = _direction(d, "d", model.c.size)
    return Ray(*_Conditions(_to_minimise(model), np.asarray).primal_ray(d, lambda v: model.A @ v))


def _direction(values: ArrayLike, name: str, length: int) -> Floats:
    direction = check_vector(values, name, length=length)
    size = float(np.abs(direction).max(initial=0.0))
    return direction / size if size else direction


def linprog(
    c: ArrayLike,
    A_ub: Any = None,
    b_ub: ArrayLike | None = None,
    A_eq: Any = None,
    b_eq: ArrayLike | None = None,
    bounds: Any = (0, None),
    *,
    method: str = "r2halpern",
    tol: float = 1e-6,
    maxiter: int = 200_000,
    callback: Callable[[OptimizeResult], Any] | None = None,
    device: Any = None,
) -> OptimizeResult:
    """Minimise cᵀx with A_ub x ≤ b_ub, A_eq x = b_eq and bounds on x; called as `scipy.optimize.linprog` is.

    Every iteration multiplies with A and with its transpose once, and nothing is factorised.

    Parameters
    ----------
    c : array_like, shape (n,)
        Costs.
    A_ub, A_eq : matrix, shape (m, n), optional
        Dense or sparse.
    b_ub, b_eq : array_like, shape (m,), optional
        Right-hand sides.
    bounds : pair, sequence of pairs or scipy.optimize.Bounds
        Lower and upper limit, of all variables or of each; None for none.
    method : {"r2halpern", "rhalpern", "halpern", "pdhg"}
        Anchored, reflected and restarted; without reflection; without restarts either; plain.
    tol : float
        Largest of the three errors of `kkt_errors` at which it stops.
    maxiter : int
        Most iterations.
    callback : callable, optional
        Called with the state every 50 iterations; ``StopIteration`` ends the run.
    device : torch device or str, optional
        Where to iterate with torch, in double precision; NumPy by default.

    Returns
    -------
    OptimizeResult
        As SciPy's: ``x``, ``fun``, ``slack`` = b_ub − A_ub x, ``con`` = b_eq − A_eq x, ``ineqlin.marginals``,
        ``eqlin.marginals``, ``lower.marginals`` and ``upper.marginals`` (change of the optimum with each limit), ``nit``,
        ``success``, ``message`` and ``status``: 0 optimal, 1 maxiter or stopped, 2 infeasible, 3 unbounded, 4 not finite.
        And ``kkt`` (`KKTErrors`), ``ray`` (`Ray` that proves status 2 or 3, else None), ``restarts``, and ``history``, a
        dict of arrays with an entry each 50 iterations: ``it``, ``k`` (since the anchor was set), ``epoch``, ``primal``,
        ``dual``, ``gap``, ``residual`` (of the scaled map, in its own norm), ``weight`` (of the primal variables).

    Raises
    ------
    TypeError, ValueError
        Not numbers, not finite, shapes that do not fit, or an option out of range.

    Notes
    -----
    Lower limits above upper ones are no error: the status is 2.

    With row limits ℓ ≤ A x ≤ u, multipliers −w and P for the nearest point within limits, the map is
    x⁺ = P(x − τ(c + Aᵀw)), v = w + σA(2x⁺ − x), w⁺ = v − σP(v/σ), with τ = η/ω, σ = ηω and η = 0.998/‖A‖. It is firmly
    nonexpansive in the norm (ω‖x‖² + ‖w‖²/ω − 2η⟨w, A x⟩)^½/η^½, which measures the residual. A is scaled by ten passes of
    Ruiz and one of Pock and Chambolle, costs and row limits by 1 + their norms. An epoch ends at T(x, w), where the next
    is anchored, as in `fixed_point`; there ω is multiplied by exp(0.99e + 0.01Σ) with e = log(‖Δw‖/(ω‖Δx‖)), Δ the
    change between anchors, and Σ ← 0.3Σ + e. Where primal and dual error are 1e5 times apart, ω goes back to the one that
    balanced them best.

    A ray is taken for a proof if it leaves no point with a norm below 1e6, nor below 1000 times that of the iterate.

    Examples
    --------
    >>> found = linprog([-1.0, -2.0], A_ub=[[1.0, 1.0], [1.0, 3.0]], b_ub=[4.0, 6.0])
    >>> found.status, found.x.round(4) + 0.0, round(found.fun, 4)
    (0, array([3., 1.]), -5.0)

    References
    ----------
    H. Lu and J. Yang: Restarted Halpern PDHG for linear programming, arXiv 2407.16144.
    """
    c = _costs(c)
    A_ub, b_ub = _rows(A_ub, b_ub, "ub", c.size)
    A_eq, b_eq = _rows(A_eq, b_eq, "eq", c.size)
    lb, ub = _bounds(bounds, c.size)
    model = LPModel(
        c, sparse.vstack([A_ub, A_eq], format="csr"), np.concatenate([np.full(b_ub.size, -np.inf), b_eq]),
        np.concatenate([b_ub, b_eq]), lb, ub,
    )  # fmt: skip
    result = solve_mps(model, method=method, tol=tol, maxiter=maxiter, callback=callback, device=device)
    rows, split = result.pop("rows"), b_ub.size
    result.slack, result.con = b_ub - rows.activity[:split], b_eq - rows.activity[split:]
    for name, part, residual in (("ineqlin", slice(split), result.slack), ("eqlin", slice(split, None), result.con)):
        result[name] = OptimizeResult(residual=residual, marginals=rows.marginals[part])
    return result


def _rows(A: Any, b: ArrayLike | None, name: str, n: int) -> tuple[Any, Floats]:
    if (A is None) != (b is None):
        raise ValueError(f"A_{name} and b_{name} must be given together")
    A = _matrix(np.zeros((0, n)) if A is None else A, f"A_{name}", n)
    return A, check_vector(np.zeros(0) if b is None else np.atleast_1d(b), f"b_{name}", length=A.shape[0])


def _bounds(bounds: Any, n: int) -> tuple[Any, Any]:
    if bounds is None:
        bounds = (0, None)
    if isinstance(bounds, Bounds):
        return np.broadcast_to(bounds.lb, n), np.broadcast_to(bounds.ub, n)
    try:
        pairs = np.array(bounds, dtype=object)
    except ValueError:
        pairs = np.empty(0)
    if pairs.shape in ((2,), (1, 2)) and not any(map(np.ndim, pairs.flat)):
        pairs = np.broadcast_to(pairs.reshape(1, 2), (n, 2))
    if pairs.shape != (n, 2):
        raise ValueError(f"bounds must be a pair, or a pair for each of {n} variables, got {bounds!r}")
    return pairs[:, 0], pairs[:, 1]


def solve_mps(
    model: LPModel | str | os.PathLike[str],
    *,
    method: str = "r2halpern",
    tol: float = 1e-6,
    maxiter: int = 200_000,
    callback: Callable[[OptimizeResult], Any] | None = None,
    device: Any = None,
    relax: bool = False,
) -> OptimizeResult:
    """Solve a linear programme from a file in MPS or LP format, or an `LPModel`.

    Parameters
    ----------
    model : LPModel or path
        The programme.
    method, tol, maxiter, callback, device
        As in `linprog`.
    relax : bool
        Take integer variables of a file as real ones.

    Returns
    -------
    OptimizeResult
        As of `linprog`, with ``rows.activity`` (A x) and ``rows.marginals`` in place of what SciPy splits by the kind of
        row, and ``model``. `fun` holds the constant of the objective, and the marginals are of the objective as it is
        written, to be minimised or maximised.

    Raises
    ------
    FileNotFoundError, TypeError, ValueError
        As of `read_mps` and `linprog`.

    Examples
    --------
    >>> model = LPModel([1.0, 1.0], [[1.0, 2.0]], [2.0], [np.inf], [0.0, 0.0], [np.inf, np.inf])
    >>> found = solve_mps(model)
    >>> round(found.fun, 4), found.rows.marginals.round(4)
    (1.0, array([0.5]))
    """
    check_choice(method, "method", METHODS)
    tol, maxiter = check_real(tol, "tol", low=0), check_integer(maxiter, "maxiter", low=1)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {callback!r}")
    if not isinstance(model, LPModel):
        model = read_mps(model, relax=relax)
    for low, high, name in ((model.row_lower, model.row_upper, "row"), (model.lb, model.ub, "variable")):
        if (low > high).any():
            i = int((low > high).argmax())
            message = f"infeasible: {name} {i} has lower limit {low[i]:g} above upper limit {high[i]:g}"
            x = np.clip(np.zeros(model.c.size), model.lb, np.maximum(model.lb, model.ub))
            return _result(model, x, np.zeros(model.A.shape[0]), INFEASIBLE, message)
    run = _Run(_to_minimise(model), METHODS[method], tol, maxiter, callback, device)
    status, message = run.solve()
    x, y = (run.host(part) for part in run.unscaled(run.image))
    result = _result(model, np.clip(x, model.lb, model.ub), y if model.sense == "min" else -y, status, message, run)
    if status == UNBOUNDED:
        # The ray proves it of a feasible programme only.
        feasibility = replace(model, c=np.zeros(model.c.size))
        left = max(maxiter - run.it, 1)
        _judge_ray(result, solve_mps(feasibility, method=method, tol=tol, maxiter=left, device=device))
    return result


def _judge_ray(result: OptimizeResult, feasible: OptimizeResult) -> None:
    """Set what follows from a ray of the objective, and a solution of the programme without its objective."""
    result.nit += feasible.nit
    if feasible.status == OPTIMAL:
        result.update(x=feasible.x, fun=float(result.model.c @ feasible.x) + result.model.offset)
        result.rows.activity = feasible.rows.activity
        result.message = "unbounded: from x, which is feasible, the objective gets better along `ray` for ever"
    elif feasible.status == INFEASIBLE:
        result.update(status=INFEASIBLE, message=feasible.message, ray=feasible.ray)
    else:
        result.update(status=feasible.status, ray=None)
        result.message = f"unbounded if any point is feasible, but none was found: {feasible.message}"


def _result(model: LPModel, x: Floats, y: Floats, status: int, message: str, run: _Run | None = None) -> OptimizeResult:
    multipliers = _Interval(model.lb, model.ub, np.asarray)
    sign = 1.0 if model.sense == "min" else -1.0
    reduced = sign * multipliers.multiplier(sign * (model.c - model.A.T @ y))
    lower, upper = (reduced.clip(0, None), reduced.clip(None, 0))[:: int(sign)]
    activity = model.A @ x
    return OptimizeResult(
        x=x, fun=float(model.c @ x) + model.offset, status=status, success=status == OPTIMAL, message=message,
        nit=run.it if run else 0, restarts=run.epoch if run else 0, kkt=_errors(model, x, y),
        ray=run.ray if run else None, model=model,
        rows=OptimizeResult(activity=activity, marginals=y),
        lower=OptimizeResult(residual=x - model.lb, marginals=lower),
        upper=OptimizeResult(residual=model.ub - x, marginals=upper),
        history={name: np.array([record[name] for record in run.history]) for name in _RECORDED} if run else {},
    )  # fmt: skip


_RECORDED = ("it", "k", "epoch", "primal", "dual", "gap", "residual", "weight")


@dataclass
class _Scaling:
    """What a model is divided by: x = column·x̂/bound, y = row·ŷ/cost, Â = row·A·column."""

    A: Any
    row: Floats
    column: Floats
    cost: float
    bound: float

    @classmethod
    def of(cls, model: LPModel) -> _Scaling:
        """Return ten passes of Ruiz, one of Pock and Chambolle, and the sizes of the costs and the limits."""
        A = model.A.copy()
        row, column = np.ones(A.shape[0]), np.ones(A.shape[1])
        entries = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
        for k in range((RUIZ_PASSES + 1) if A.nnz else 0):
            size = abs(A)
            along = [
                np.asarray(size.max(axis=axis).toarray() if k < RUIZ_PASSES else size.sum(axis=axis)).ravel()
                for axis in (1, 0)
            ]
            rows, columns = (1 / np.sqrt(np.where(found > 0, found, 1.0)) for found in along)
            A.data *= rows[entries] * columns[A.indices]
            row *= rows
            column *= columns
        cost = 1 / (1 + norms(column * model.c))
        return cls(A, row, column, cost, 1 / (1 + _finite_norm(row * model.row_lower, row * model.row_upper)))


class _Pdhg:
    """The iteration on z = (x, w) with unit steps, w being minus the multiplier; `image` is T(z), `ahead` what is anchored.

    T is firmly nonexpansive in ‖x‖² + ‖w‖² − 2⟨w, A x⟩, since ‖A‖ < 1. The matrix holds the steps and no weight; a weight
    scales the two parts of z.
    """

    def __init__(self, xp: Any, A: Any, transposed: Any, empty: Callable[[int], Any], method: _Method) -> None:
        self.xp, self.A, self.transposed = xp, A, transposed
        self._m, self._n = A.shape
        self._method, self._delta = method, schedules.halpern().delta
        self.z, self.image, self.ahead, self.anchor, self._pull = (empty(self._n + self._m) for _ in range(5))
        self._w = empty(self._m)

    def limit(self, c: Any, bounds: tuple[Any, Any], rows: tuple[Any, Any]) -> None:
        """Set costs and limits, in the units of z; None is no limit at all."""
        self._c = c
        self._sides = [(cut, side) for cut, side in zip(self._cuts, bounds, strict=True) if side is not None]
        self._row_sides = [(cut, side) for cut, side in zip(self._cuts, rows, strict=True) if side is not None]

    @property
    def _cuts(self) -> tuple[Any, Any]:
        return self.xp.maximum, self.xp.minimum

    def parts(self, z: Any) -> tuple[Any, Any]:
        """Return views of x and w."""
        return z[: self._n], z[self._n :]

    def run(self, k: int, count: int) -> None:
        """Make iterations k to k + count − 1 of an epoch, each a step to the anchored map and the map's value there."""
        for delta in self._delta(np.arange(k, k + count)).tolist():
            if self._method.anchored:
                self.xp.multiply(self.ahead, 1 - delta, out=self.z)
                self.xp.multiply(self.anchor, delta, out=self._pull)
                self.z += self._pull
            else:
                self.z[:] = self.image
            self.apply()

    def apply(self) -> None:
        """Compute the map at z, and its reflection if that is iterated."""
        xp = self.xp
        (x, w), (x_new, w_new), (x_ahead, w_ahead) = map(self.parts, (self.z, self.image, self.ahead))
        gradient = self.transposed @ w
        gradient += self._c
        xp.subtract(x, gradient, out=x_new)
        for cut, side in self._sides:
            cut(x_new, side, out=x_new)
        xp.multiply(x_new, 2.0, out=x_ahead)
        x_ahead -= x
        v = self.A @ x_ahead
        v += w
        inside = v
        for cut, side in self._row_sides:
            inside = cut(inside, side, out=self._w)
        xp.subtract(v, inside, out=w_new)
        if self._method.reflected:
            xp.multiply(w_new, 2.0, out=w_ahead)
            w_ahead -= w
        else:
            self.ahead[:] = self.image

    def residual(self) -> float:
        """Return the norm of z − T(z)."""
        x, w = self.parts(self.z - self.image)
        return math.sqrt(max(inner(x, x) + inner(w, w) - 2 * inner(w, self.A @ x), 0.0))


class _Run:
    """One solve of a programme to be minimised."""

    def __init__(
        self,
        model: LPModel,
        method: _Method,
        tol: float,
        maxiter: int,
        callback: Callable[[OptimizeResult], Any] | None,
        device: Any,
    ) -> None:
        self._method, self._tol, self._maxiter, self._callback = method, tol, maxiter, callback
        scaling = _Scaling.of(model)
        size = _largest_singular_value(scaling.A, np.random.default_rng(0), POWER_PASSES) if scaling.A.nnz else 0.0
        self._step = STEP / (size * POWER_MARGIN) if size else STEP
        A = scaling.A * self._step
        array, matrix, xp = _backend(device)
        self._map = _Pdhg(xp, matrix(A), matrix(A.T.tocsr()), lambda n: array(np.zeros(n)), method)
        self._row, self._column = array(scaling.row), array(scaling.column)
        self._cost, self._bound = scaling.cost, scaling.bound
        self._conditions = _Conditions(model, array)
        self._c = array(scaling.column * model.c * scaling.cost)
        self._bounds, self._rows = (
            tuple(array(side * factor) if np.isfinite(side).any() else None for side in sides)
            for sides, factor in (
                ((model.lb, model.ub), scaling.bound / scaling.column),
                ((model.row_lower, model.row_upper), scaling.bound * scaling.row),
            )
        )
        self._model = model
        self.it = self.epoch = 0
        self.ray: Ray | None = None
        self.history: list[dict[str, float]] = []
        self._weight, self._weight_sum = 1.0, 0.0
        self._balanced = math.inf, 1.0
        self._set_limits()
        x, _ = self._map.parts(self._map.z)
        x += array(np.clip(np.zeros(model.c.size), model.lb, model.ub) * (scaling.bound / scaling.column))
        x /= self._units[0]

    @property
    def image(self) -> Any:
        """The map at the last iterate, scaled: the point that is returned."""
        return self._map.image

    @property
    def _units(self) -> tuple[float, float]:
        """Return by what the parts of z differ from the scaled x and w: the square roots of their steps."""
        return math.sqrt(self._step / self._weight), math.sqrt(self._step * self._weight)

    def _set_limits(self) -> None:
        x, w = self._units
        self._map.limit(
            self._c * x,
            tuple(None if side is None else side / x for side in self._bounds),  # type: ignore[arg-type]
            tuple(None if side is None else side * w for side in self._rows),  # type: ignore[arg-type]
        )

    @staticmethod
    def host(v: Any) -> Floats:
        """Return an array of NumPy."""
        return np.asarray(v if isinstance(v, np.ndarray) else v.cpu().numpy())

    def unscaled(self, z: Any) -> tuple[Any, Any]:
        """Return x and the multipliers y of the model, from z."""
        x, w = self._map.parts(z)
        return (
            x * self._column * (self._units[0] / self._bound),
            w * self._row * (-self._units[1] / self._cost),
        )

    def _product(self, x: Any) -> Any:
        return (self._map.A @ (x / self._column)) / self._row / self._step

    def _transposed(self, y: Any) -> Any:
        return (self._map.transposed @ (y / self._row)) / self._column / self._step

    def solve(self) -> tuple[int, str]:
        """Iterate, and return status and message."""
        k, first, before = 0, math.inf, math.inf
        self._map.anchor[:] = self._map.z
        self._map.apply()
        while True:
            now = self._map.residual()
            if k == 0:
                first = before = now
            ended = self._check(k, now)
            if ended is not None:
                return ended
            fell = now <= SUFFICIENT * first or (now <= NECESSARY * first and now > before)
            before = now
            if self._method.restarted and k and (fell or (k >= ARTIFICIAL * self.it and self.it > YOUNG)):
                self._restart()
                k, first = 0, self._map.residual()
                before = first
            count = min(CHECK_EVERY, self._maxiter - self.it)
            self._map.run(k, count)
            k, self.it = k + count, self.it + count

    def _restart(self) -> None:
        """Anchor at the map's value, and weigh primal against dual by how far each has come since the last anchor."""
        moved = [norms(part) for part in self._map.parts(self._map.image - self._map.anchor)]
        before = self._units
        imbalance = self._imbalance()
        if imbalance < self._balanced[0]:
            self._balanced = imbalance, self._weight
        if imbalance > BALANCE or not (min(moved) > 0 and math.isfinite(max(moved))):
            self._weight, self._weight_sum = self._balanced[1], 0.0
        else:
            error = math.log(moved[1] / moved[0])
            self._weight_sum = WEIGHT_MEMORY * self._weight_sum + error
            self._weight *= math.exp(WEIGHT_NOW * error + WEIGHT_SUM * self._weight_sum)
        self._map.z[:] = self._map.image
        for part, old, new in zip(self._map.parts(self._map.z), before, self._units, strict=True):
            part *= old / new
        self._map.anchor[:] = self._map.z
        self._set_limits()
        self._map.apply()
        self.epoch += 1

    def _imbalance(self) -> float:
        """Return how many times the larger of the primal and the dual error is the smaller."""
        errors = self.history[-1]["primal"], self.history[-1]["dual"]
        return max(errors) / min(errors) if min(errors) > 0 else math.inf

    def _check(self, k: int, residual: float) -> tuple[int, str] | None:
        x, y = self.unscaled(self._map.image)
        errors = self._conditions.errors(x, y, self._product(x), self._transposed(y))
        record = {
            "it": self.it, "k": k, "epoch": self.epoch, "primal": errors.primal, "dual": errors.dual, "gap": errors.gap,
            "residual": residual, "weight": self._weight,
        }  # fmt: skip
        self.history.append(record)
        if not math.isfinite(residual + errors.worst):
            return NUMERICAL, f"the iterate is not finite after {self.it} iterations"
        if errors.worst <= self._tol:
            return OPTIMAL, f"optimal: the relative errors are at most {self._tol:g}"
        if self._callback is not None:
            try:
                self._callback(OptimizeResult(x=self.host(x), nit=self.it, kkt=errors, **record))
            except StopIteration:
                return MAXITER, "the callback raised StopIteration"
        found = self._look_for_ray(x, y) if k else None
        if found is not None:
            return found
        if self.it >= self._maxiter:
            return MAXITER, f"{self._maxiter} iterations were made"
        return None

    def _look_for_ray(self, x: Any, y: Any) -> tuple[int, str] | None:
        """Test where the iterate goes, which converges to a ray where there is no solution: from the anchor, or at last."""
        origin = self._map.anchor if self._method.anchored else self._map.z
        change, multipliers = self.unscaled(self._map.image - origin)
        for test, direction, product, of_model, size, status in (
            (self._conditions.dual_ray, multipliers, self._transposed, dual_ray, norms(x), INFEASIBLE),
            (self._conditions.primal_ray, change, self._product, primal_ray, norms(y), UNBOUNDED),
        ):
            most = 1 / max(RAY_REACH, RAY_FACTOR * size)
            if test(direction, product)[2] <= most:
                ray = of_model(self._model, self.host(direction))
                if ray.violation <= most:
                    self.ray = ray
                    return status, "infeasible, as `ray` proves"
        return None


def _backend(device: Any) -> tuple[Callable[[Floats], Any], Callable[[Any], Any], Any]:
    """Return how to make arrays and matrices, and the module of their functions."""
    if device is None:
        return np.array, lambda A: A, np
    torch = require("torch", "anchoring")

    def matrix(A: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(
                *(torch.from_numpy(part) for part in (A.indptr, A.indices, A.data)),
                size=A.shape, device=device, check_invariants=True,
            )  # fmt: skip

    return lambda v: torch.from_numpy(np.array(v)).to(device), matrix, torch
