"""How strongly iteration k is pulled to the anchor, and how far it steps: δ_k and η_k."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from paperworks.core.validation import check_choice, check_real

__all__ = ["Schedule", "contraction", "custom", "extragradient", "forward", "halpern", "plain", "popov"]

Kind = Literal["map", "field"]
Weight = Callable[[Any], Any]

POPOV_LIMIT = 1 / math.sqrt(3)
"""Largest η·L at which Popov's method without an anchor converges on rotations."""


@dataclass(frozen=True)
class Schedule:
    """Weights of the anchor and of the operator in iteration k ≥ 0.

    A map T becomes ``(1 − δ_k)·T(x) + δ_k·x₀``, a field F becomes ``η_k·F(x) + δ_k·(x − x₀)``.

    Attributes
    ----------
    name : str
        What results call it.
    delta, eta : callable
        δ and η of k (a number, or an array of them), η for L = 1.
    kind : {"map", "field"}
        What it is for.
    certified : bool
        Whether the residual recurrence is proved with it, for the base method of its name.
    params : mapping
        What it was made from.

    Examples
    --------
    >>> halpern().weights(0)
    (0.5, 0.5)
    """

    name: str
    delta: Weight
    eta: Weight
    kind: Kind
    certified: bool = False
    params: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def weights(self, k: int, lipschitz: float = 1.0) -> tuple[float, float]:
        """Return δ_k and η_k; of a field η_k is for Lipschitz constant `lipschitz`.

        Raises
        ------
        ValueError
            δ_k outside [0, 1), or η_k not positive and finite.
        """
        delta, eta = float(self.delta(k)), float(self.eta(k))
        if not (0 <= delta < 1 or (delta == 1 and self.name == "forward")):
            raise ValueError(f"delta must be in [0, 1), got {delta} at k = {k} from schedule {self.name!r}")
        if not 0 < eta < math.inf:
            raise ValueError(f"eta must be positive and finite, got {eta} at k = {k} from schedule {self.name!r}")
        return delta, eta if self.kind == "map" else eta / lipschitz

    @classmethod
    def from_callable(cls, delta: Weight, eta: Weight | None = None, kind: Kind = "field") -> Schedule:
        """Return a schedule of the user's own functions of k, which are checked where they are used.

        Parameters
        ----------
        delta, eta : callable
            As the attributes; a map has no `eta`, it is 1 − δ.
        kind : {"map", "field"}
            What the schedule is for.

        Raises
        ------
        TypeError
            A function is not callable, or is given for a map or missing for a field.
        """
        check_choice(kind, "kind", ("map", "field"))
        given = (callable(delta), callable(eta))
        if given != (True, kind == "field"):
            needs = "delta alone" if kind == "map" else "delta and eta"
            raise TypeError(f"a schedule for a {kind} needs {needs}, callable, got delta={delta!r} and eta={eta!r}")
        return cls("custom", delta, eta if eta is not None else _complement(delta), kind)


def _complement(delta: Weight) -> Weight:
    return lambda k: 1 - delta(k)


def _hyperbola(a: float, b: float) -> Weight:
    return lambda k: a / (k + b)


def _check_a_b(a: float, b: float, *, log_factor: bool) -> tuple[float, float]:
    a = check_real(a, "a", low=0, open_low=True)
    b = check_real(b, "b", low=0, open_low=True)
    if b < a or (b == a and not log_factor):
        raise ValueError(f"b must be at least a, so that delta <= 1, got a = {a} and b = {b}")
    if a < 1:
        warnings.warn(f"a = {a} is below the proven range, a >= 1", stacklevel=3)
    elif a == 1 and log_factor:
        warnings.warn("a = 1 is proven with a log factor only: take a > 1", stacklevel=3)
    return a, b


def halpern(a: float = 1.0, b: float | None = None) -> Schedule:
    """Return δ_k = a/(k + b) for nonexpansive maps, with b = a + 1 by default.

    With a = 1 and b = 2 the residual is at most 2‖x₀ − x*‖/(k + 1), which no other weights improve.

    Raises
    ------
    ValueError
        a or b not positive, or b ≤ a.
    """
    a, b = _check_a_b(a, a + 1 if b is None else b, log_factor=False)
    delta = _hyperbola(a, b)
    return Schedule("halpern", delta, _complement(delta), "map", a >= 1, MappingProxyType({"a": a, "b": b}))


def contraction(gamma: float) -> Schedule:
    r"""Return the weights for maps of Lipschitz constant γ ≤ 1, δ_k = 1/Σ_{i ≤ k+1} γ^{-2i}.

    At γ = 1 it is `halpern`; for small γ the anchor vanishes and the plain iteration is left.

    Raises
    ------
    ValueError
        γ outside (0, 1].
    """
    gamma = check_real(gamma, "gamma", low=0, high=1, open_low=True)
    log = 2 * math.log(gamma)

    def delta(k: Any) -> Any:
        # (1 − γ²) γ^{2(k+1)} / (1 − γ^{2(k+2)}), without cancellation near γ = 1.
        if log == 0:
            return 1 / (k + 2)
        return np.expm1(log) * np.exp(log * (k + 1)) / np.expm1(log * (k + 2))

    return Schedule("contraction", delta, _complement(delta), "map", True, MappingProxyType({"gamma": gamma}))


def forward(a: float = 2.0, b: float = 3.0) -> Schedule:
    """Return δ_k = a/(k + b) and η_k = √(δ_k − ¾δ_k²)/L for the forward step: (1 − δ)² + η²L² = (1 − δ/2)².

    Raises
    ------
    ValueError
        a or b not positive, or b < a.
    """
    a, b = _check_a_b(a, b, log_factor=True)
    delta = _hyperbola(a, b)

    def eta(k: Any) -> Any:
        d = delta(k)
        return np.sqrt(d - 0.75 * d * d)

    return Schedule("forward", delta, eta, "field", a > 1, MappingProxyType({"a": a, "b": b}))


def extragradient(a: float = 1.5, b: float = 8.0, mu: float = 0.75) -> Schedule:
    """Return δ_k = a/(k + b) and η_k = (μ − δ_k)/L for the extragradient method: η_k·L + δ_k = μ < 1.

    Raises
    ------
    ValueError
        a or b not positive, μ outside (0, 1), or a/b ≥ μ.
    """
    return _constant_modulus("extragradient", a, b, mu, 1.0, 1.0)


def popov(a: float = 1.5, b: float = 8.0, mu: float = 0.45) -> Schedule:
    """Return δ_k = a/(k + b) and η_k = (μ − δ_k)/L for Popov's method; certified for μ < 1/2.

    Raises
    ------
    ValueError
        a or b not positive, μ not positive or at least 1/√3, or a/b ≥ μ.
    """
    return _constant_modulus("popov", a, b, mu, POPOV_LIMIT, 0.5)


def _constant_modulus(name: str, a: float, b: float, mu: float, limit: float, certified: float) -> Schedule:
    a, b = _check_a_b(a, b, log_factor=True)
    mu = check_real(mu, "mu", low=0, open_low=True)
    if mu >= limit:
        raise ValueError(f"mu must be below {limit:.4g} for {name}, got {mu}")
    if a / b >= mu:
        raise ValueError(f"a / b must be below mu, so that eta > 0, got {a} / {b} = {a / b:.4g} and mu = {mu}")
    delta = _hyperbola(a, b)
    params = MappingProxyType({"a": a, "b": b, "mu": mu})
    return Schedule(name, delta, lambda k: mu - delta(k), "field", a > 1 and mu < certified, params)


def plain(step: float = 1.0, kind: Kind = "field") -> Schedule:
    """Return δ_k = 0, the base method itself; of a field with step/L.

    Raises
    ------
    ValueError
        A step that is not positive, or another kind.
    """
    step = check_real(step, "step", low=0, open_low=True)
    check_choice(kind, "kind", ("map", "field"))
    size = step if kind == "field" else 1.0
    return Schedule("plain", lambda k: 0.0 * k, lambda k: size + 0.0 * k, kind, False, MappingProxyType({"step": size}))


custom = Schedule.from_callable
