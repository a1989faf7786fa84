"""Base methods, one iteration each: the very same function runs plain and anchored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from paperworks.anchoring.regularize import Step
from paperworks.anchoring.schedules import Kind
from paperworks.core.validation import check_choice

__all__ = [
    "BASES",
    "extragradient",
    "forward",
    "forward_reflected_backward",
    "picard",
    "popov",
    "projected_extragradient",
    "tseng_fbf",
]

Projection = Callable[[Any], Any]


def _base(name: str, kind: Kind = "field") -> Callable[[Step], Step]:
    def mark(step: Step) -> Step:
        step.name, step.kind = name, kind  # type: ignore[attr-defined]
        return step

    return mark


@_base("picard", "map")
def picard(query: Callable[[Any], Any], x: Any, state: Any) -> tuple[Any, Any]:
    """Iterate the map: x⁺ = Q(x)."""
    return query(x), state


@_base("forward")
def forward(query: Callable[[Any], Any], x: Any, state: Any) -> tuple[Any, Any]:
    """Take a step against the field: x⁺ = x − Q(x)."""
    return x - query(x), state


@_base("extragradient")
def extragradient(query: Callable[[Any], Any], x: Any, state: Any) -> tuple[Any, Any]:
    """Look ahead and step with what is found there: y = x − Q(x), x⁺ = x − Q(y)."""
    y = x - query(x)
    return x - query(y), state


def popov(past: Literal["requery", "stored"] = "requery") -> Step:
    """Return the past extragradient method: y = x − Q(y₋), x⁺ = x − Q(y), one call an iteration.

    Parameters
    ----------
    past : {"requery", "stored"}
        What Q(y₋) is: the stored value of the operator itself, anchored with this iteration's weights, or the anchored
        value of the last iteration as it was.
    """
    check_choice(past, "past", ("requery", "stored"))

    @_base("popov")
    def requery(query: Any, x: Any, state: Any) -> tuple[Any, Any]:
        before, value = (x, query.raw(x)) if state is None else state
        y = x - query.remix(before, value)
        return x - query(y), (y, query.raw(y))

    @_base("popov-stored")
    def stored(query: Callable[[Any], Any], x: Any, state: Any) -> tuple[Any, Any]:
        y = x - (query(x) if state is None else state)
        answer = query(y)
        return x - answer, answer

    return requery if past == "requery" else stored


def projected_extragradient(project: Projection) -> Step:
    """Return the extragradient method on a convex set: y = P(x − Q(x)), x⁺ = P(x − Q(y))."""

    @_base("projected_extragradient")
    def step(query: Callable[[Any], Any], x: Any, state: Any) -> tuple[Any, Any]:
        y = project(x - query(x))
        return project(x - query(y)), state

    return step


def tseng_fbf(prox: Projection) -> Step:
    """Return Tseng's forward-backward-forward method: y = prox(x − Q(x)), x⁺ = y − Q(y) + Q(x)."""

    @_base("tseng_fbf")
    def step(query: Callable[[Any], Any], x: Any, state: Any) -> tuple[Any, Any]:
        here = query(x)
        y = prox(x - here)
        return y - query(y) + here, state

    return step


def forward_reflected_backward(prox: Projection) -> Step:
    """Return the method x⁺ = prox(x − 2Q(x) + Q(x₋)), one call an iteration."""

    @_base("forward_reflected_backward")
    def step(query: Any, x: Any, state: Any) -> tuple[Any, Any]:
        value = query.raw(x)
        before, past = (x, value) if state is None else state
        return prox(x - 2 * query.remix(x, value) + query.remix(before, past)), (x, value)

    return step


BASES: dict[str, Step] = {
    "picard": picard,
    "forward": forward,
    "extragradient": extragradient,
    "popov": popov(),
}
"""Base methods by name, with their anchored versions' guarantees."""
