"""What is known about a run before it starts, and what its history says of the operator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paperworks.anchoring.bases import BASES
from paperworks.anchoring.operators import Operator
from paperworks.anchoring.regularize import Query, Step
from paperworks.anchoring.schedules import Kind, Schedule
from paperworks.core.extras import require
from paperworks.core.validation import check_choice, check_integer, check_real

__all__ = [
    "PEPBound",
    "apriori_bound",
    "is_certified",
    "pep_worst_case",
    "recurrence_slack",
    "shrinkage",
    "spectral_points",
    "spectral_worst_case",
]

Floats = NDArray[np.float64]

_PROVED = {
    "picard": ("halpern", "contraction"),
    "forward": ("forward",),
    "extragradient": ("extragradient",),
    "popov": ("popov",),
}


def shrinkage(method: str, delta: Floats, step: Floats) -> Floats:
    """Return by what factor one iteration shrinks the residual of the anchored operator at most.

    Parameters
    ----------
    method : {"picard", "forward", "extragradient", "popov", "popov-stored"}
        The base; of Popov's method it is the factor of √(‖g‖² + ‖g − p‖²).
    delta, step : ndarray
        δ, and η·L.

    Returns
    -------
    ndarray
        Infinite where nothing is proved.
    """
    if method == "picard":
        return 1 - delta
    if method == "forward":
        return np.asarray(np.sqrt((1 - delta) ** 2 + step**2))
    w = 1 - (1 if method == "extragradient" else 4) * (step + delta) ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = np.sqrt(np.maximum(1 - 2 * delta * w / (w + 2 * delta), 0.0))
    return np.where(w > 0, factor, np.inf)


def is_certified(method: str, schedule: Schedule) -> bool:
    """Tell whether a bound is proved for this schedule with this base method."""
    return schedule.certified and schedule.name in _PROVED.get(method, ())


def apriori_bound(method: str, schedule: Schedule, n: int, distance: float = 1.0, lipschitz: float = 1.0) -> Floats:
    """Return what the residual of iterates 0 to n cannot exceed, shape (n + 1,).

    Parameters
    ----------
    method : {"picard", "forward", "extragradient", "popov"}
        The base.
    schedule : Schedule
        A certified one.
    n : int
        Iterations.
    distance : float
        D = ‖x₀ − x*‖, or an upper bound.
    lipschitz : float
        L of the field.

    Raises
    ------
    ValueError
        The schedule is not certified for the method.

    Examples
    --------
    >>> from paperworks.anchoring.schedules import halpern
    >>> apriori_bound("picard", halpern(), 3).tolist()
    [2.0, 1.0, 0.6666666666666666, 0.5]
    """
    n = check_integer(n, "n", low=0)
    D = check_real(distance, "distance", low=0)
    L = check_real(lipschitz, "lipschitz", low=0, open_low=True) if method != "picard" else 1.0
    if not is_certified(method, schedule):
        raise ValueError(f"schedule {schedule.name!r} with {dict(schedule.params)} has no proved bound for {method!r}")
    if schedule.name == "halpern" and schedule.params == {"a": 1.0, "b": 2.0}:
        return np.asarray(2 * D / (np.arange(n + 1) + 1))
    k = np.arange(n + 1, dtype=float)
    delta = np.broadcast_to(np.asarray(schedule.delta(k), dtype=float), k.shape)
    eta = np.broadcast_to(np.asarray(schedule.eta(k), dtype=float), k.shape)
    pull = delta / eta * L
    shrink = shrinkage(method, delta[:-1], eta[:-1])
    if method in ("picard", "forward"):
        radius = (2.0 if method == "picard" else 3.0) * D
    else:
        w = 1 - (1 if method == "extragradient" else 4) * float(delta[0] + eta[0]) ** 2
        radius = (1 + np.sqrt(1 + delta[0] / w)) * D
    drift = np.abs(np.diff(pull)) * radius
    value = 2 * D if method == "picard" else L * D
    values = [value]
    for factor, moved in zip(shrink.tolist(), drift.tolist(), strict=True):
        value = factor * value + moved
        values.append(value)
    return np.asarray(np.asarray(values) + pull * radius)


def recurrence_slack(history: Mapping[str, Any], method: str, rounding: Floats | float = 0.0) -> Floats:
    """Return, for each two checks of consecutive iterations, what the residual was over what the recurrence allows.

    Parameters
    ----------
    history : mapping of str to ndarray
        Of an `AnchorResult` in the Euclidean norm.
    method : {"picard", "forward", "extragradient", "popov", "popov-stored"}
        The base; for any other nothing is proved, and the result is empty.
    rounding : float or ndarray, shape (checks,)
        What rounding may add to the residual, and is allowed too.

    Returns
    -------
    ndarray
        At most 1 up to rounding. More is evidence of a wrong Lipschitz constant or an operator that is not monotone.
    """
    if method not in ("picard", "forward", "extragradient", "popov", "popov-stored"):
        return np.empty(0)
    it, epoch, L = history["it"], history["epoch"], history["lipschitz"]
    together = (np.diff(it) == 1) & (np.diff(epoch) == 0) & (np.diff(L) == 0)
    if method.startswith("popov"):
        together &= np.isfinite(history["V"][1:]) & np.isfinite(history["V"][:-1])
    now, then = np.flatnonzero(together), np.flatnonzero(together) + 1
    delta, eta, pull, distance = (history[name] for name in ("delta", "eta", "lambda_", "distance"))
    scale = np.ones_like(eta) if method == "picard" else L
    if method == "popov-stored":
        past = np.abs(eta[now] / eta[then] - 1) * history["past"][then] / eta[now]
        drift = np.sqrt(2) * np.abs(pull[then] - pull[now]) * distance[then] + past
    else:
        drift = np.abs(pull[then] - pull[now]) * np.hypot(distance[then], history["spread"][then])
    allowed = shrinkage(method, delta[now], eta[now] * scale[now]) * history["V"][now] + drift
    allowed += np.broadcast_to(rounding, it.shape)[then]
    found = history["V"][then]
    return np.asarray(np.divide(found, allowed, out=np.where(found > 0, np.inf, 0.0), where=allowed > 0))


def _base(step: Step | str, schedule: Schedule) -> Step:
    """Return a base method, by its name if need be, that is for what the schedule is for."""
    if isinstance(step, str):
        step = BASES[check_choice(step, "step", BASES)]
    kind = getattr(step, "kind", schedule.kind)
    if kind != schedule.kind:
        raise TypeError(f"schedule {schedule.name!r} is for a {schedule.kind}, and the base method is for a {kind}")
    return step


def spectral_points(kind: Kind, points: int = 1501) -> NDArray[np.complex128]:
    """Return the scalars z at which normal linear fields F = z are hardest: the boundary of the right half disk, |z| ≤ 1.

    Of maps they are those of F = I − T with T nonexpansive: the circle of radius 1 around 1.

    Parameters
    ----------
    kind : {"map", "field"}
        What is iterated.
    points : int
        Scalars on each part of the boundary, at least 2; small ones lie close together. Conjugates are left out.

    Examples
    --------
    >>> np.abs(spectral_points("map", 2)).round(3).tolist()
    [0.0, 0.0, 2.0]
    """
    points = check_integer(points, "points", low=2)
    if kind == "map":
        angles = np.union1d(np.linspace(0, np.pi, points), np.geomspace(1e-6, np.pi, points))
        return np.asarray(1 - np.exp(1j * angles))
    axis = np.union1d(np.linspace(0, 1, points), np.geomspace(1e-6, 1, points))
    return np.concatenate([1j * axis, np.exp(1j * np.linspace(0, np.pi / 2, points))])


def spectral_worst_case(step: Step | str, schedule: Schedule, n: int, points: int = 1501) -> Floats:
    """Return the largest residual over normal linear monotone operators with L = 1 and ‖x₀ − x*‖ = 1, shape (n + 1,).

    It is attained at scalars on the boundary of the right half disk (of the disk around 1 for maps), by the maximum
    principle; so it is exact for these operators, and a lower bound for all.

    Parameters
    ----------
    step : callable or str
        A base method that is linear in what the operator answers, or the name of one.
    schedule : Schedule
        Weights.
    n : int
        Iterations.
    points : int
        Scalars on each part of the boundary.

    Raises
    ------
    TypeError, ValueError
        A schedule of another kind than the base method, another name, or an argument out of range.
    """
    base = _base(step, schedule)
    n = check_integer(n, "n", low=0)
    z = spectral_points(schedule.kind, points)
    operator = Operator((lambda x: (1 - z) * x) if schedule.kind == "map" else (lambda x: z * x), schedule.kind)
    x, anchor, state = np.ones(len(z), complex), np.ones(len(z), complex), None
    worst = [float(np.abs(z * x).max())]
    for k in range(n):
        x, state = base(Query(operator, anchor, *schedule.weights(k)), x, state)
        worst.append(float(np.abs(z * x).max()))
    return np.array(worst)


class PEPBound(NamedTuple):
    """The optimum of a performance estimation problem.

    Attributes
    ----------
    value : float
        What the residual cannot exceed, with L = 1 and ‖x₀ − x*‖ ≤ 1.
    status : str
        What the solver says of it: ``"optimal"``, or ``"optimal_inaccurate"``, where the value is not that exact.
    """

    value: float
    status: str


class _Unknown(Operator):
    """An operator that answers points of a performance estimation problem with such points."""

    __slots__ = ()

    def __call__(self, z: Any) -> Any:
        self.calls += 1
        return self._call(z)


def pep_worst_case(step: Step | str, schedule: Schedule, n: int) -> PEPBound:
    """Return the largest residual of iterate n over all operators with L = 1 and ‖x₀ − x*‖ ≤ 1, or an upper bound of it.

    It is a semidefinite programme of about 2n rows (Y. Drori and M. Teboulle, Math. Program. 145, 2014), put together by
    PEPit. For maps it is exact. For fields its conditions on monotone Lipschitz operators are necessary, not sufficient:
    it bounds from above.

    Parameters
    ----------
    step : callable or str
        A base method that is linear in what the operator answers, or the name of one.
    schedule : Schedule
        Weights; they need not be certified.
    n : int
        Iterations, few: seconds at 10, minutes at 30.

    Returns
    -------
    PEPBound
        Value and solver status.

    Raises
    ------
    TypeError, ValueError
        As of `spectral_worst_case`.
    MissingExtra
        PEPit or the solver Clarabel is not installed.

    Examples
    --------
    >>> from paperworks.anchoring.schedules import halpern
    >>> found = pep_worst_case("picard", halpern(), 3)  # doctest: +SKIP
    >>> round(found.value, 4), found.status  # doctest: +SKIP
    (0.5, 'optimal')
    """
    base = _base(step, schedule)
    n = check_integer(n, "n", low=0)
    pepit, classes = require("PEPit", "peers"), require("PEPit.operators", "peers")
    require("clarabel", "peers")
    problem = pepit.PEP()
    if schedule.kind == "map":
        unknown = problem.declare_function(classes.LipschitzOperator, L=1.0)
        solution = unknown.fixed_point()[0]
    else:
        unknown = problem.declare_function(classes.LipschitzStronglyMonotoneOperatorCheap, mu=0.0, L=1.0)
        solution = unknown.stationary_point()
    anchor = problem.set_initial_point()
    problem.set_initial_condition((anchor - solution) ** 2 <= 1)
    operator = _Unknown(unknown.gradient, schedule.kind)
    x, state = anchor, None
    for k in range(n):
        x, state = base(Query(operator, anchor, *schedule.weights(k)), x, state)
    value = operator(x)
    problem.set_performance_metric((x - value if schedule.kind == "map" else value) ** 2)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        square = problem.solve(wrapper="cvxpy", solver="CLARABEL", verbose=0)
    return PEPBound(math.sqrt(max(square, 0.0)), str(problem.wrapper.prob.status))
