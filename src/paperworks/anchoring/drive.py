"""Drivers with SciPy's result shape: fixed points of maps and zeros of fields, anchored, restarted and certified."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from paperworks.anchoring import schedules
from paperworks.anchoring.arrays import (
    BLOCK,
    as_point,
    choose_rows,
    copied,
    epsilon,
    equal,
    is_safe,
    norms,
    same_kind,
    unchanged,
)
from paperworks.anchoring.bases import BASES
from paperworks.anchoring.certificates import apriori_bound, is_certified, recurrence_slack
from paperworks.anchoring.operators import Operator, as_field, as_map, estimate_lipschitz, reflected
from paperworks.anchoring.regularize import Query, Step
from paperworks.anchoring.schedules import Schedule
from paperworks.core.validation import check_choice, check_integer, check_real

__all__ = ["AnchorResult", "fixed_point", "solve_equation"]

CONVERGED, MAXITER, DIVERGED, STOPPED, STALLED = range(5)
MESSAGES = (
    "the residual is within the tolerance",
    "maxiter iterations were made",
    "the residual is not finite, or has grown 1e8 times",
    "the callback raised StopIteration",
    "the iterate does not move, and its residual is above the tolerance",
)
GROWN = 1e8

# An epoch ends when the residual is down to this share of its first; when it is down to the next and rises; or when the
# epoch takes up this share of all iterations, of which there are more than the last.
SUFFICIENT, NECESSARY, ARTIFICIAL, YOUNG = 0.2, 0.5, 0.36, 50

ROUNDINGS = 16
"""How many roundings of an iterate's size, times L, the residual is taken to have."""


class AnchorResult(OptimizeResult):  # type: ignore[misc]
    """What a driver returns: a dictionary whose entries are attributes too, as SciPy's results are.

    Attributes
    ----------
    x : array
        Last iterate, of the kind, shape and precision of ``x0``; the best one if the run diverged or if
        ``return_best=True``.
    fun : array
        F(x), or x − T(x).
    residual : float, or ndarray with one a problem
        Norm of `fun`: of the operator itself, not of the anchored one.
    success : bool
        Whether the residual is within the tolerance.
    status : int
        0 converged, 1 iterations used up, 2 diverged, 3 stopped by the callback, 4 stalled.
    message : str
    nit, nfev, restarts : int
        Iterations, calls of the operator, and times that the run was anchored anew.
    lipschitz : float or None
        L as given or found; None for maps.
    bound : float or None
        What the residual cannot exceed if the operator is as promised, where ``distance`` was given, the schedule is
        certified, the norm is Euclidean, the anchor is the start and the run was not anchored anew.
    history : dict of ndarray
        One entry a check: ``it``, ``k`` (since the last restart), ``epoch``, ``residual``, ``R`` (norm of the anchored
        operator over η), ``V`` (what the recurrence is about), ``delta``, ``eta``, ``lambda_`` (δ/η), ``distance`` (of the
        iterate from its anchor), and what `recurrence_slack` needs besides.
    flags : dict
        ``slack``, the largest of `recurrence_slack`, and ``recurrence_violated``, where that is above 1: evidence of a
        wrong L or of an operator that is not monotone. ``not_firmly_nonexpansive``, if a reflected map expands.
        ``lipschitz_estimated``.
    trace : list of list of arrays, or None
        The points that every iteration asked for, with ``trace=True``.
    """


def fixed_point(
    T: Any,
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    schedule: Schedule | str = "halpern",
    reflect: bool = False,
    restart: str | int | None = None,
    tol: float = 1e-8,
    rtol: float = 0.0,
    maxiter: int = 10_000,
    norm: Any = 2,
    anchor: Any = None,
    distance: float | None = None,
    callback: Callable[..., Any] | None = None,
    check_every: int = 1,
    trace: bool = False,
    batch_dims: int = 0,
    return_best: bool = False,
) -> AnchorResult:
    """Find a fixed point of a nonexpansive map by anchored iteration: x ← (1 − δ_k)·T(x) + δ_k·x₀.

    Parameters
    ----------
    T : callable
        ``T(x, *args)`` returns an array of the shape of `x`.
    x0 : array
        Start, NumPy or torch, of any shape; real or complex. Integers become float64.
    args : tuple
        More arguments of `T`.
    schedule : Schedule or {"halpern", "plain"}
        Weights, of those in `paperworks.anchoring.schedules`.
    reflect : bool
        Iterate 2T − I, which halves the bound; for firmly nonexpansive maps only (resolvents, projections on convex
        sets, proximal operators, Douglas–Rachford), which cannot be told from outside.
    restart : {"adaptive"}, int or None
        Anchor anew where the iterate is: when the residual has fallen enough, or after so many iterations. Keeps the
        bound, since iterates do not leave the solutions; linear convergence needs a sharp problem, such as a linear
        programme.
    tol, rtol : float
        Stop when the residual is at most max(tol, rtol·first residual).
    maxiter : int
        Most iterations.
    norm : {2, "inf"} or callable
        Of the residual. A callable gets an array of the shape of `x0`, and returns a float; it is also the norm in which
        a reflected map must be nonexpansive, where the Euclidean one is not.
    anchor : array, optional
        x₀ of the pull, if it is not the start.
    distance : float, optional
        Upper bound of the distance from the start to a fixed point, for `bound`.
    callback : callable, optional
        Called at every check with ``intermediate_result=``; ``StopIteration`` ends the run.
    check_every : int
        Iterations between checks of the residual.
    trace : bool
        Keep the points that were asked for.
    batch_dims : {0, 1}
        With 1, rows of `x0` are problems of their own, which stop on their own; one that is not finite ends the run of all.
    return_best : bool
        Return the iterate with the least residual.

    Returns
    -------
    AnchorResult

    Raises
    ------
    TypeError, ValueError
        A map that cannot be called or changes the shape, a schedule for fields, or an argument out of range.

    Examples
    --------
    >>> turn = np.array([[0.0, 1.0], [-1.0, 0.0]])  # plain iteration goes round and round
    >>> found = fixed_point(lambda x: turn @ x, np.ones(2), tol=1e-2, distance=2**0.5)
    >>> found.success, found.residual <= found.bound
    (True, True)
    """
    return _solve(
        as_map(T, args), x0, BASES["picard"], _schedule(schedule, "map", "halpern"), reflect=reflect, restart=restart,
        tol=tol, rtol=rtol, maxiter=maxiter, norm=norm, anchor=anchor, distance=distance, callback=callback,
        check_every=check_every, trace=trace, batch_dims=batch_dims, return_best=return_best,
    )  # fmt: skip


def solve_equation(
    F: Any,
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    method: str | Step = "extragradient",
    schedule: Schedule | str | None = None,
    lipschitz: float | None = None,
    b: Any = None,
    restart: str | int | None = None,
    tol: float = 1e-8,
    rtol: float = 0.0,
    maxiter: int = 10_000,
    norm: Any = 2,
    anchor: Any = None,
    distance: float | None = None,
    callback: Callable[..., Any] | None = None,
    check_every: int | None = None,
    trace: bool = False,
    batch_dims: int = 0,
    return_best: bool = False,
) -> AnchorResult:
    """Find a zero of a monotone Lipschitz field by an anchored method: it is queried as η_k·F(x) + δ_k·(x − x₀).

    Parameters
    ----------
    F : callable, matrix, sparse matrix or LinearOperator
        ``F(x, *args)`` returns an array of the shape of `x`; a matrix is x ↦ F x − b.
    x0, args, tol, rtol, maxiter, norm, anchor, distance, callback, trace, batch_dims, return_best
        As in `fixed_point`.
    method : {"extragradient", "popov", "forward"} or callable
        Base method; ``step(query, x, state) → (x, state)`` of the user's own, to which `query` is the operator.
    schedule : Schedule or {"plain"}, optional
        By default the one that is named as the method; a method of one's own takes that of the extragradient method.
    lipschitz : float, optional
        L. Otherwise it is found on the way: a step is redone with a larger L when the field varied faster along it.
    b : array, optional
        Right-hand side, for a matrix.
    restart : {"adaptive"}, int or None
        As in `fixed_point`; nothing is promised of it without sharpness.
    check_every : int, optional
        Iterations between checks. Popov's method never evaluates F at the iterate, so a check costs a call: 10 by
        default for it, else 1.

    Returns
    -------
    AnchorResult

    Raises
    ------
    TypeError, ValueError
        A field that cannot be called or changes the shape, a schedule for maps, or an argument out of range.

    Examples
    --------
    >>> game = np.array([[0.0, 1.0], [-1.0, 0.0]])  # min over x, max over y of x·y: the forward step diverges
    >>> found = solve_equation(game, np.ones(2), lipschitz=1.0, tol=1e-3)
    >>> found.success, found.flags["recurrence_violated"]
    (True, False)
    """
    if isinstance(method, str):
        check_choice(method, "method", [name for name in BASES if name != "picard"])
    step = BASES[method] if isinstance(method, str) else method
    if not callable(step):
        raise TypeError(f"method must be a name or a callable, got {method!r}")
    if getattr(step, "kind", "field") != "field":
        raise TypeError("method is for maps, and F is a field: use fixed_point")
    name = getattr(step, "name", "custom")
    default = {"popov-stored": "popov"}.get(name, name)
    plan = _schedule(schedule, "field", default if default in BASES else "extragradient")
    operator = as_field(F, b, args)
    if check_every is None:
        check_every = 10 if name.startswith("popov") else 1
    if lipschitz is not None:
        try:
            lipschitz = check_real(lipschitz, "lipschitz", low=0, open_low=True)
        except ValueError:
            raise ValueError(f"lipschitz must be positive and finite, got {lipschitz!r}") from None
    return _solve(
        operator, x0, step, plan, lipschitz=lipschitz, restart=restart, tol=tol, rtol=rtol, maxiter=maxiter, norm=norm,
        anchor=anchor, distance=distance, callback=callback, check_every=check_every, trace=trace,
        batch_dims=batch_dims, return_best=return_best,
    )  # fmt: skip


def _schedule(schedule: Schedule | str | None, kind: str, default: str) -> Schedule:
    """Return a schedule of the right kind, from a name if need be."""
    if schedule is None:
        schedule = default
    if isinstance(schedule, str):
        check_choice(schedule, "schedule", [default, "plain"])
        schedule = schedules.plain(kind=kind) if schedule == "plain" else getattr(schedules, schedule)()  # type: ignore[arg-type]
    if not isinstance(schedule, Schedule):
        raise TypeError(f"schedule must be a Schedule or a name, got {schedule!r}")
    if schedule.kind != kind:
        raise TypeError(f"schedule {schedule.name!r} is for a {schedule.kind}, and the operator is a {kind}")
    return schedule


def _solve(
    operator: Operator,
    x0: Any,
    base: Step,
    schedule: Schedule,
    *,
    lipschitz: float | None = None,
    reflect: bool = False,
    restart: str | int | None,
    tol: float,
    rtol: float,
    maxiter: int,
    norm: Any,
    anchor: Any,
    distance: float | None,
    callback: Callable[..., Any] | None,
    check_every: int,
    trace: bool,
    batch_dims: int,
    return_best: bool,
) -> AnchorResult:
    x = as_point(x0)
    start = x if anchor is None else as_point(anchor, "anchor")
    if tuple(start.shape) != tuple(x.shape):
        raise ValueError(f"anchor must have the shape of x0, {tuple(x.shape)}, got {tuple(start.shape)}")
    check_choice(batch_dims, "batch_dims", (0, 1))
    if batch_dims and (not x.ndim or restart is not None):
        raise ValueError("batch_dims=1 needs an x0 of at least one dimension, and no restart")
    if restart is not None and restart != "adaptive":
        restart = check_integer(restart, "restart", low=1)
    if not callable(norm):
        check_choice(norm, "norm", (2, "inf"))
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {callback!r}")
    if distance is not None:
        distance = check_real(distance, "distance", low=0)
    run = _Run(
        operator=Operator(reflected(operator), "map") if reflect else operator,
        base=base,
        schedule=schedule,
        tol=check_real(tol, "tol", low=0),
        rtol=check_real(rtol, "rtol", low=0),
        maxiter=check_integer(maxiter, "maxiter", low=1),
        check_every=check_integer(check_every, "check_every", low=1),
        norm=norm,
        restart=restart,
        callback=callback,
        lipschitz=1.0 if operator.kind == "map" else lipschitz or _first_guess(operator, x),
        adaptive=operator.kind == "field" and lipschitz is None,
        reflect=reflect,
        batch_dims=batch_dims,
        keep_trace=trace,
    )
    status, nit, last, value = run.solve(x, start)
    bounded = norm == 2 and (anchor is None or equal(start, x))
    return _result(
        run, status, nit, last, value, distance=distance if bounded else None, return_best=return_best,
        estimated=lipschitz is None,
    )  # fmt: skip


def _first_guess(operator: Operator, x: Any) -> float:
    """Return a Lipschitz constant to begin with; it only grows."""
    found = estimate_lipschitz(operator, x, n_probe=3)
    return found if math.isfinite(found) and found > 0 else 1.0


@dataclass
class _Run:
    """One solve: the problem, its limits, and what is known so far."""

    operator: Operator
    base: Step
    schedule: Schedule
    tol: float
    rtol: float
    maxiter: int
    check_every: int
    norm: Any
    restart: str | int | None
    callback: Callable[..., Any] | None
    lipschitz: float
    adaptive: bool
    reflect: bool
    batch_dims: int
    keep_trace: bool
    history: list[dict[str, Any]] = field(default_factory=list)
    trace: list[list[Any]] = field(default_factory=list)
    restarts: int = 0
    done: Any = False
    # Largest residual, residual or residuals, and iterate.
    best: tuple[float, Any, Any] = (math.inf, None, None)
    expands: bool = False
    # At how many checks in a row the next iterate was the same.
    still: int = 0
    # The last point that was asked for, and the operator's answer there.
    previous: tuple[Any, Any] | None = None
    _seen: Any = None
    # Memory for what is not kept, where all are arrays of NumPy.
    _work: Any = None

    def solve(self, x: Any, anchor: Any) -> tuple[int, int, Any, Any]:
        """Return status, iterations, the last iterate, and what the operator answers there."""
        state = value = None
        it = k = 0
        if isinstance(x, np.ndarray) and isinstance(anchor, np.ndarray) and x.dtype == anchor.dtype:
            self._work = np.empty(min(x.size, BLOCK), x.dtype)
        while True:
            query = self._query(anchor, k, x, value)
            checked = it % self.check_every == 0 or it == self.maxiter
            if checked:
                status = self._check(query, x, it, k)
                if status is not None:
                    return status, it, x, query.raw(x)
                if k and self._ends_epoch(it, k):
                    is_map = self.operator.kind == "map"
                    x, value = (query.raw(x), None) if is_map else (x, query.raw(x))
                    anchor, state, k, self.previous, self.still = x, None, 0, None, 0
                    self.restarts += 1
                    continue
            new, value, state = self._advance(query, x, state, anchor, k, checked)
            if self.batch_dims and np.any(self.done):
                new, value = choose_rows(self.done, x, new), None
            if checked:
                self.still = self.still + 1 if equal(new, x) else 0
            x, it, k = new, it + 1, k + 1

    def _query(self, anchor: Any, k: int, x: Any, value: Any) -> Query:
        query = Query(self.operator, anchor, *self.schedule.weights(k, self.lipschitz), self._work)
        if value is not None:
            query.know(x, value)
        return query

    @property
    def _is_popov(self) -> bool:
        return getattr(self.base, "name", "").startswith("popov")

    def _norms(self, x: Any) -> Any:
        return norms(x, self.norm, self.batch_dims)

    def _sizes(self, query: Query, x: Any) -> tuple[Any, Any, Any]:
        """Return the norms of F(x) or x − T(x), of x − x₀, and of F or I − T with the anchor's pull."""
        squares = [0.0, 0.0, 0.0] if self._work is not None and self.norm == 2 and not self.batch_dims else None
        answer = query.prepare(x, squares)
        if squares and all(is_safe(total, x.dtype) for total in squares):
            return math.sqrt(squares[0]), math.sqrt(squares[1]), math.sqrt(squares[2])
        value, gap = query.raw(x), self._norms(x - query.anchor)
        if self.operator.kind == "field":
            return self._norms(value), gap, self._norms(answer)
        residual = self._norms(x - value)
        return residual, gap, residual if answer is value else self._norms(x - answer)

    def _check(self, query: Query, x: Any, it: int, k: int) -> int | None:
        """Record the iterate, and return a status if the run ends with it."""
        residual, *sizes = self._sizes(query, x)
        if self.reflect:
            residual = residual / 2.0
        zero = np.zeros(np.shape(residual)) if self.batch_dims else 0.0
        self.history.append(
            {
                "it": it, "k": k, "epoch": self.restarts, "residual": residual, "past": zero, "spread": zero,
            }
        )  # fmt: skip
        self._weigh(query, *sizes)
        first = self.history[0]["residual"]
        worst, largest = (float(np.max(r)) if self.batch_dims else float(r) for r in (residual, first))
        if not math.isfinite(worst) or worst > GROWN * (largest + 1):
            return DIVERGED
        if worst < self.best[0]:
            self.best = worst, residual, x
        if self.batch_dims:
            self.done = residual <= np.maximum(self.tol, self.rtol * first)
        if np.all(self.done) if self.batch_dims else residual <= max(self.tol, self.rtol * first):
            return CONVERGED
        value = query.raw(x)
        if self.callback is not None:
            fun = value if self.operator.kind == "field" else x - value
            shown = OptimizeResult(x=copied(x), fun=fun, nit=it, nfev=self.operator.calls, **self.history[-1])
            try:
                self.callback(intermediate_result=shown)
            except StopIteration:
                return STOPPED
        if it == self.maxiter:
            return MAXITER
        seen, self._seen = self._seen, (x, value) if self.reflect else None
        if not it or not k:
            return None
        if seen and not self.expands and _expands(seen, (x, value), self.norm if callable(self.norm) else 2):
            self.expands = True
            warnings.warn(
                "reflect=True needs a firmly nonexpansive map, and 2T - I expands", RuntimeWarning, stacklevel=5
            )
        # Once may be by chance, as the weights change; twice is not.
        return STALLED if self.still > 1 else None

    def _weigh(self, query: Query, distance: Any, pulled: Any) -> None:
        """Record an iteration's weights, and the size of the operator that is anchored with them."""
        pulled = pulled / query.eta
        self.history[-1].update(
            delta=query.delta, eta=query.eta, lambda_=query.delta / query.eta, lipschitz=self.lipschitz,
            distance=distance,
            R=pulled, V=pulled * math.nan if self._is_popov else pulled,
        )  # fmt: skip

    def _ends_epoch(self, it: int, k: int) -> bool:
        if not isinstance(self.restart, str):
            return self.restart is not None and k >= self.restart
        first = next(record for record in self.history if record["epoch"] == self.restarts)["residual"]
        now, before = self.history[-1]["residual"], self.history[-2]["residual"]
        fell = now <= SUFFICIENT * first or (now <= NECESSARY * first and now > before)
        return bool(fell or (k >= ARTIFICIAL * it and it > YOUNG))

    def _advance(self, query: Query, x: Any, state: Any, anchor: Any, k: int, checked: bool) -> tuple[Any, Any, Any]:
        """Return the next iterate, the operator's value there if it is known, and the method's state."""
        while True:
            query.served = 0
            with unchanged(x) if k < 3 else nullcontext():
                new, after = self.base(query, x, state)
            new = same_kind(new, x, "the base method")
            if not self.adaptive:
                value = None
                break
            # A method that asks at its iterate asks there next, so this call is none too many.
            value = query.raw(new) if query.served or any(point is x for point in query.points) else None
            asked = [*([self.previous] if self.previous else []), *zip(query.points, query.values, strict=True)]
            steepest = max((_slope(*pair) for pair in itertools.pairwise(asked)), default=0.0)
            if not self.lipschitz * (1 + 1e-12) < steepest < math.inf:
                break
            self.lipschitz = 1.1 * steepest
            query = self._query(anchor, k, x, query.answered(x))
            if checked:
                self._weigh(query, *self._sizes(query, x)[1:])
        if checked and self._is_popov:
            self._record_past(query, x)
        if self.keep_trace:
            self.trace.append([point for point in query.points if point is not new])
        if query.points and (self.adaptive or self._is_popov):
            self.previous = query.points[-1], query.values[-1]
        return new, value, after

    def _record_past(self, query: Query, x: Any) -> None:
        """Record what Popov's recurrence is about: g = G(x), and the past answer p that led to y = x - p."""
        y = next(point for point in query.points if point is not x) if len(query.points) > 1 else query.points[0]
        g, p = query.remix(x, query.answered(x)), x - y
        sizes = self._norms(g), self._norms(g - p)
        record = self.history[-1]
        record["V"] = np.hypot(*sizes) / query.eta
        record["past"] = self._norms(p)
        if self.previous:
            record["spread"] = self._norms(x - self.previous[0])


def _slope(first: tuple[Any, Any], second: tuple[Any, Any]) -> float:
    """Return by how much the field varied between two points, over their distance."""
    apart = norms(first[0] - second[0])
    return norms(first[1] - second[1]) / apart if apart > 0 else 0.0


def _expands(first: tuple[Any, Any], second: tuple[Any, Any], order: Any) -> bool:
    """Tell whether a map moves two points apart, by more than rounding."""
    apart = norms(first[0] - second[0], order)
    return bool(norms(first[1] - second[1], order) > apart * (1 + 1e-9) + 1e-12 * norms(second[0], order))


def _result(
    run: _Run,
    status: int,
    nit: int,
    x: Any,
    value: Any,
    *,
    distance: float | None,
    return_best: bool,
    estimated: bool,
) -> AnchorResult:
    is_field = run.operator.kind == "field"
    residual = run.history[-1]["residual"]
    history = {name: np.array([record[name] for record in run.history]) for name in run.history[0]}
    if (return_best or status == DIVERGED) and run.best[2] is not None and run.best[2] is not x:
        _, residual, x = run.best
        value = run.operator(x)
    fun = value if is_field else x - value
    if run.reflect:
        x, fun = (x + value) / 2, fun / 2
    name = getattr(run.base, "name", "custom")
    flags: dict[str, Any] = {"not_firmly_nonexpansive": run.expands, "lipschitz_estimated": is_field and estimated}
    slack = recurrence_slack(history, name) if run.norm == 2 and not run.batch_dims else np.empty(0)
    flags["slack"] = float(slack.max()) if slack.size else None
    if slack.size:
        rounding = ROUNDINGS * epsilon(x) * (run._norms(x) + history["distance"]) * history["lipschitz"]
        slack = recurrence_slack(history, name, rounding)
    flags["recurrence_violated"] = bool((slack > 1 + 1e-9).any())
    bound = None
    if distance is not None and is_certified(name, run.schedule) and not run.restarts and not (is_field and estimated):
        bound = float(apriori_bound(name, run.schedule, nit, distance, run.lipschitz)[-1]) / (
            2.0 if run.reflect else 1.0
        )
    message = MESSAGES[status] + (f" (at iteration {nit})" if status == DIVERGED else "")
    return AnchorResult(
        x=x, fun=fun, residual=residual, success=status == CONVERGED, status=status, message=message, nit=nit,
        nfev=run.operator.calls, restarts=run.restarts, lipschitz=run.lipschitz if is_field else None, bound=bound,
        history=history, flags=flags, trace=run.trace if run.keep_trace else None,
    )  # fmt: skip
