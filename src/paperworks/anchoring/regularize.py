"""The construction: an operator with a vanishing pull to an anchor, which any base method can query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from paperworks.anchoring.arrays import as_point, blocks, square
from paperworks.anchoring.operators import Operator, as_field, as_map
from paperworks.anchoring.schedules import Schedule
from paperworks.core.validation import check_choice, check_integer, check_real

__all__ = ["Query", "RegularizedOperator", "Step", "anchored", "regularize"]


@runtime_checkable
class Step(Protocol):
    """One iteration of a base method: from the operator, the iterate and the method's state to the next two."""

    def __call__(self, query: Callable[[Any], Any], x: Any, state: Any) -> tuple[Any, Any]:
        """Return the next iterate and state."""


class Query:
    """The operator that one iteration of a base method sees: ``η·F(z) + δ·(z − x₀)``, or ``(1 − δ)·T(z) + δ·x₀``.

    Where δ = 0 the anchor is not touched: the base method is then the plain one, to the last bit. Where the operator was
    already called with the same array, that answer is used again.

    Attributes
    ----------
    delta, eta : float
        Weights of this iteration; η is 1 − δ for a map.
    points, values : list of arrays
        What was asked, and what the operator itself answered.
    served : int
        How often an answer was known.
    """

    __slots__ = ("_operator", "_prepared", "_work", "anchor", "delta", "eta", "points", "served", "values")

    def __init__(self, operator: Operator, anchor: Any, delta: float, eta: float, work: Any = None) -> None:
        self._operator, self.anchor, self._work = operator, anchor, work
        self.delta, self.eta = delta, eta
        self.points: list[Any] = []
        self.values: list[Any] = []
        self._prepared: tuple[Any, Any] | None = None
        self.served = 0

    def __call__(self, z: Any) -> Any:
        """Return the anchored operator at `z`."""
        if self._prepared is not None and self._prepared[0] is z:
            (_, answer), self._prepared = self._prepared, None
            self.served += 1
            return answer
        return self.remix(z, self.raw(z))

    def prepare(self, z: Any, squares: list[float] | None = None) -> Any:
        """Return the anchored operator at `z`, and keep it for the next call with `z`; see `remix`."""
        answer = self.remix(z, self.raw(z), squares)
        self._prepared = z, answer
        return answer

    def raw(self, z: Any) -> Any:
        """Return the operator itself at `z`."""
        value = self.answered(z)
        if value is not None:
            self.served += 1
            return value
        value = self._operator(z)
        self.know(z, value)
        return value

    def know(self, z: Any, value: Any) -> None:
        """Take `value` as the operator's answer at `z`."""
        self.points.append(z)
        self.values.append(value)

    def answered(self, z: Any) -> Any:
        """Return what the operator answered at `z`, or None."""
        for point, value in zip(self.points, self.values, strict=True):
            if point is z:
                return value
        return None

    def remix(self, z: Any, value: Any, squares: list[float] | None = None) -> Any:
        """Return the anchored operator at `z`, where the operator itself answered `value`: no call is made.

        To the three `squares`, if given, are added those of the norms of F(z), z − x₀ and the answer, or of z − T(z), z − x₀
        and z less the answer, where they are met on the way: for arrays of NumPy with memory to work in, and δ > 0.
        """
        if self._operator.kind == "map":
            if self.delta == 0:
                return value
            if not self._fits(z):
                return self.eta * value + self.delta * self.anchor
            mixed = np.empty(z.shape, z.dtype)
            for work, part, here, there, known in blocks(self._work, mixed, z, self.anchor, value):
                np.multiply(there, self.delta, out=part)
                part += np.multiply(known, self.eta, out=work)
                if squares is not None:
                    for i, other in enumerate((known, there, part)):
                        squares[i] += square(np.subtract(here, other, out=work))
            return mixed
        if self.delta == 0:
            return self.eta * value
        if not self._fits(z):
            pulled = z - self.anchor
            pulled *= self.delta
            pulled += self.eta * value
            return pulled
        pulled = np.empty(z.shape, z.dtype)
        for work, part, here, there, known in blocks(self._work, pulled, z, self.anchor, value):
            np.subtract(here, there, out=part)
            if squares is not None:
                squares[0] += square(known)
                squares[1] += square(part)
            part *= self.delta
            part += np.multiply(known, self.eta, out=work)
            if squares is not None:
                squares[2] += square(part)
        return pulled

    def _fits(self, z: Any) -> bool:
        return self._work is not None and type(z) is np.ndarray and z.dtype == self._work.dtype


class RegularizedOperator:
    """An operator, an anchor and a schedule: the anchored operator of every iteration.

    Attributes
    ----------
    kind : {"map", "field"}
        As the operator's.
    """

    def __init__(self, operator: Operator, anchor: Any, schedule: Schedule, lipschitz: float, scale: str) -> None:
        self._operator, self._anchor, self._schedule = operator, anchor, schedule
        self._lipschitz, self._scale = lipschitz, scale
        self.kind = operator.kind

    def at(self, k: int) -> Query:
        """Return the operator of iteration `k`, to be called with points.

        With ``scale="field"`` it is F + (δ_k/η_k)(· − x₀), for methods that have a step of their own: `step`.
        """
        delta, eta = self._schedule.weights(check_integer(k, "k", low=0), self._lipschitz)
        if self._scale == "field":
            delta, eta = delta / eta, 1.0
        return Query(self._operator, self._anchor, delta, eta)

    def step(self, k: int) -> float:
        """Return η_k, the step that belongs to the operator with ``scale="field"``."""
        return self._schedule.weights(check_integer(k, "k", low=0), self._lipschitz)[1]


def regularize(
    operator: Any,
    anchor: Any,
    schedule: Schedule,
    *,
    lipschitz: float = 1.0,
    scale: Literal["unit", "field"] = "unit",
) -> RegularizedOperator:
    """Anchor an operator, for a loop of the user's own.

    Parameters
    ----------
    operator : callable, matrix or LinearOperator
        T or F; the schedule says which.
    anchor : array
        x₀; of its shape are the points.
    schedule : Schedule
        Weights of the iterations.
    lipschitz : float
        L > 0 of a field.
    scale : {"unit", "field"}
        Of a field: η_k·F(z) + δ_k(z − x₀), with which the base takes steps of 1; or F(z) + (δ_k/η_k)(z − x₀), with which
        it takes steps of η_k.

    Raises
    ------
    TypeError, ValueError
        An operator that cannot be called, a schedule of the other kind, or an argument out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from paperworks.anchoring.schedules import halpern
    >>> turn = regularize(lambda x: -x, np.ones(1), halpern())
    >>> turn.at(0)(np.ones(1))
    array([0.])
    """
    check_choice(scale, "scale", ("unit", "field"))
    found = as_map(operator) if schedule.kind == "map" else as_field(operator)
    if scale == "field" and found.kind == "map":
        raise ValueError("scale='field' is for fields; a map has no step")
    return RegularizedOperator(
        found, as_point(anchor, "anchor"), schedule, check_real(lipschitz, "lipschitz", low=0, open_low=True), scale
    )


def anchored(step: Step, schedule: Schedule, *, lipschitz: float = 1.0) -> Callable[..., tuple[Any, Any]]:
    """Return the anchored version of one iteration of a base method: ``(operator, x, k, state, anchor) → (x, state)``.

    Parameters
    ----------
    step : callable
        ``(query, x, state) → (x, state)``; it sees the anchored operator as `query` and nothing else.
    schedule : Schedule
        Of the same kind as the method.
    lipschitz : float
        L > 0.

    Examples
    --------
    >>> import numpy as np
    >>> from paperworks.anchoring.bases import picard
    >>> from paperworks.anchoring.schedules import halpern
    >>> x, state, anchor = np.ones(1), None, np.ones(1)
    >>> halpern_step = anchored(picard, halpern())
    >>> for k in range(3):
    ...     x, state = halpern_step(lambda z: -z, x, k, state, anchor)
    >>> x
    array([0.])
    """
    kind = getattr(step, "kind", "field")
    if kind != schedule.kind:
        raise TypeError(f"schedule {schedule.name!r} is for a {schedule.kind}, the base method for a {kind}")

    def anchored_step(operator: Any, x: Any, k: int, state: Any, anchor: Any) -> tuple[Any, Any]:
        return step(regularize(operator, anchor, schedule, lipschitz=lipschitz).at(k), x, state)

    return anchored_step
