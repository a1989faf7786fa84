"""Anchored methods as torch optimizers, for min-max training: the gradients are the field."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

from paperworks.anchoring import schedules
from paperworks.anchoring.schedules import Schedule
from paperworks.core.validation import check_choice, check_real

__all__ = ["AnchoredExtragradient", "AnchoredForward", "AnchoredPopov"]

Closure = Callable[[], Any]


@lru_cache(maxsize=64)
def _schedule(name: str, *params: float) -> Schedule:
    schedule: Schedule = getattr(schedules, name)(*params)
    return schedule


class _Anchored(torch.optim.Optimizer):
    """What the three have in common: groups with a step 1/L, an anchor a parameter, and a count of its iterations."""

    _name: str
    _params: tuple[str, ...] = ("a", "b", "mu")
    # How many `iterate` contexts are open.
    _evaluating = 0

    def __init__(self, params: Any, lipschitz: float, maximize: bool, **options: Any) -> None:
        L = check_real(lipschitz, "lipschitz", low=0, open_low=True)
        super().__init__(params, {"lr": 1 / L, "maximize": maximize, **options})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, with options of their own: ``lr`` (1/L) or ``lipschitz``, ``maximize``, and the schedule's.

        Raises
        ------
        TypeError, ValueError
            An option out of range.
        """
        group = dict(param_group)
        if "lipschitz" in group:
            group["lr"] = 1 / check_real(group.pop("lipschitz"), "lipschitz", low=0, open_low=True)
        options = {**self.defaults, **group}
        check_real(options["lr"], "lr", low=0)
        check_choice(options["maximize"], "maximize", (False, True))
        if "past" in options:
            check_choice(options["past"], "past", ("requery", "stored"))
        self._schedule_of(options)
        super().add_param_group(group)

    def _schedule_of(self, group: dict[str, Any]) -> Schedule:
        return _schedule(self._name, *(group[name] for name in self._params))

    def _weights(self, group: dict[str, Any], k: int) -> tuple[float, float]:
        """Return δ_k, and η_k with the sign of the player."""
        delta, eta = self._schedule_of(group).weights(k)
        return delta, eta * group["lr"] * (-1 if group["maximize"] else 1)

    def _moving(self) -> Iterator[tuple[dict[str, Any], Tensor, Tensor, dict[str, Any]]]:
        """Go through group, parameter, gradient and state, where there is a gradient; a new state has an anchor."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(step=0, anchor=p.clone())
                yield group, p, p.grad, state

    def _evaluate(self, closure: Closure | None) -> Any:
        """Return the closure's loss, and see that the gradients can be used."""
        if self._evaluating:
            raise RuntimeError("step() inside `with optimizer.iterate():`, where parameters are lent for evaluation")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and p.grad.layout is not torch.strided:
                    raise TypeError(f"{type(self).__name__} needs dense gradients, got layout {p.grad.layout}")
        return loss

    @contextlib.contextmanager
    def iterate(self) -> Iterator[None]:
        """Put the iterate x_k in the parameters for a while, to evaluate or save a model, and then what was there.

        Parameters of `AnchoredPopov` are the points where it asks for gradients next, and not the iterate; those of the
        other methods are the iterate already.
        """
        lent = [(p, p.detach().clone(), state["iterate"]) for p, state in self.state.items() if "iterate" in state]
        self._evaluating += 1
        try:
            with torch.no_grad():
                for p, _, x in lent:
                    p.copy_(x)
            yield
        finally:
            with torch.no_grad():
                for p, point, _ in lent:
                    p.copy_(point)
            self._evaluating -= 1

    @torch.no_grad()
    def residual(self) -> float:
        """Return the norm of all gradients as they are now: ‖F‖, where the last backward pass was made.

        Norms are taken on each parameter's device and combined on the CPU.
        """
        found = [
            torch.linalg.vector_norm(p.grad).double().cpu()
            for group in self.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        return float(torch.linalg.vector_norm(torch.stack(found))) if found else 0.0


def _anchored(z: Tensor, gradient: Tensor, anchor: Tensor, delta: float, eta: float) -> Tensor:
    """Return η·F(z) + δ·(z − x₀)."""
    return (z - anchor).mul_(delta).add_(gradient, alpha=eta)


class AnchoredForward(_Anchored):
    """The anchored forward step, x ← x − η_k·F(x) − δ_k·(x − x₀): one backward pass a step.

    The last iterate's residual falls like 1/√k for monotone F, where gradient descent-ascent may diverge.

    Parameters
    ----------
    params : iterable
        Parameters, or dictionaries of parameter groups. F is made of the gradients, those of groups with
        ``maximize=True`` negated.
    lipschitz : float
        L of F; it becomes ``lr`` = 1/L, which a learning-rate scheduler may change and a group may override.
    a, b : float
        Of `paperworks.anchoring.schedules.forward`.
    maximize : bool
        Whether the player of a group goes up.

    Examples
    --------
    >>> x, y = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))
    >>> optimizer = AnchoredForward([{"params": [x]}, {"params": [y], "maximize": True}], lipschitz=1.0)
    >>> for _ in range(300):
    ...     optimizer.zero_grad()
    ...     (x * y).sum().backward()
    ...     optimizer.step()
    >>> optimizer.residual() < 0.2
    True
    """

    _name = "forward"
    _params = ("a", "b")

    def __init__(
        self, params: Any, lipschitz: float, a: float = 2.0, b: float = 3.0, *, maximize: bool = False
    ) -> None:
        super().__init__(params, lipschitz, maximize, a=a, b=b)

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Make one iteration; parameters without a gradient stay as they are.

        Parameters
        ----------
        closure : callable, optional
            Zeroes the gradients, computes them and returns the loss, which is returned.

        Raises
        ------
        TypeError
            Sparse gradients.
        RuntimeError
            Inside `iterate`.
        """
        loss = self._evaluate(closure)
        for group, p, gradient, state in self._moving():
            p.sub_(_anchored(p, gradient, state["anchor"], *self._weights(group, state["step"])))
            state["step"] += 1
        return loss


class AnchoredExtragradient(_Anchored):
    """The anchored extragradient method: y = x − G_k(x), x ← x − G_k(y) with G_k(z) = η_k·F(z) + δ_k·(z − x₀).

    A step evaluates the closure twice. The last iterate's residual falls like 1/k for monotone F.

    Parameters
    ----------
    params, lipschitz, maximize
        As of `AnchoredForward`.
    a, b, mu : float
        Of `paperworks.anchoring.schedules.extragradient`.

    Examples
    --------
    >>> x, y = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))
    >>> optimizer = AnchoredExtragradient([{"params": [x]}, {"params": [y], "maximize": True}], lipschitz=1.0)
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (x * y).sum()
    ...     loss.backward()
    ...     return loss
    >>> for _ in range(300):
    ...     loss = optimizer.step(closure)
    >>> optimizer.residual() < 0.01
    True
    """

    _name = "extragradient"

    def __init__(
        self,
        params: Any,
        lipschitz: float,
        a: float = 1.5,
        b: float = 8.0,
        mu: float = 0.75,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lipschitz, maximize, a=a, b=b, mu=mu)

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Make one iteration, and return the loss at the iterate before it.

        Parameters
        ----------
        closure : callable
            Zeroes the gradients, computes them and returns the loss. It is called at x and at y.

        Raises
        ------
        TypeError
            No closure, or sparse gradients.
        RuntimeError
            Inside `iterate`.
        """
        if closure is None:
            raise TypeError("AnchoredExtragradient evaluates gradients twice a step: give step() a closure")
        loss = self._evaluate(closure)
        before = []
        for group, p, gradient, state in self._moving():
            delta, eta = self._weights(group, state["step"])
            x = p.clone()
            before.append((p, state, x, delta, eta))
            p.sub_(_anchored(x, gradient, state["anchor"], delta, eta))
        try:
            self._evaluate(closure)
        except BaseException:
            for p, _, x, _, _ in before:
                p.copy_(x)
            raise
        for p, state, x, delta, eta in before:
            ahead = p.grad
            p.copy_(x if ahead is None else x - _anchored(p, ahead, state["anchor"], delta, eta))
            state["step"] += 1
        return loss


class AnchoredPopov(_Anchored):
    """The anchored past extragradient method of L. D. Popov: one backward pass a step, two vectors of memory.

    Parameters hold the look-ahead y_k where gradients are asked for; the iterate, whose residual falls like 1/k for
    monotone F, is in them inside ``with optimizer.iterate():`` only. The first step goes to y₀; step k + 1 makes
    x_{k+1} = x_k − G_k(y_k) and y_{k+1} = x_{k+1} − G_{k+1}(y_k), with G_k(z) = η_k·F(z) + δ_k·(z − x₀). To go on
    later, keep the model's parameters as they are outside `iterate` beside this optimizer's ``state_dict()``.

    Parameters
    ----------
    params, lipschitz, maximize
        As of `AnchoredForward`.
    a, b, mu : float
        Of `paperworks.anchoring.schedules.popov`.
    past : {"requery", "stored"}
        Whether the look-ahead anchors F(y_k) with the next weights, as above, or takes G_k(y_k) as it was.

    Examples
    --------
    >>> x, y = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))
    >>> optimizer = AnchoredPopov([{"params": [x]}, {"params": [y], "maximize": True}], lipschitz=1.0)
    >>> for _ in range(500):
    ...     optimizer.zero_grad()
    ...     (x * y).sum().backward()
    ...     optimizer.step()
    >>> with optimizer.iterate():
    ...     bool(torch.hypot(x, y) < 0.02)
    True
    """

    _name = "popov"

    def __init__(
        self,
        params: Any,
        lipschitz: float,
        a: float = 1.5,
        b: float = 8.0,
        mu: float = 0.45,
        past: Literal["requery", "stored"] = "requery",
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lipschitz, maximize, a=a, b=b, mu=mu, past=past)

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Make one iteration, or the first look-ahead; parameters without a gradient stay as they are.

        Parameters
        ----------
        closure : callable, optional
            Zeroes the gradients, computes them and returns the loss, which is returned.

        Raises
        ------
        TypeError
            Sparse gradients.
        RuntimeError
            Inside `iterate`.
        """
        loss = self._evaluate(closure)
        for group, y, gradient, state in self._moving():
            anchor, k = state["anchor"], state["step"]
            if "iterate" not in state:
                state["iterate"] = y.clone()
                y.sub_(_anchored(y, gradient, anchor, *self._weights(group, 0)))
                continue
            answer = _anchored(y, gradient, anchor, *self._weights(group, k))
            state["iterate"].sub_(answer)
            if group["past"] == "requery":
                answer = _anchored(y, gradient, anchor, *self._weights(group, k + 1))
            y.copy_(state["iterate"] - answer)
            state["step"] = k + 1
        return loss
