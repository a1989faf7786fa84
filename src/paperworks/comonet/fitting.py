"""What a network is fitted to (losses and the penalty) and the two solvers that do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from lightning_fabric import Fabric
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn import functional

from paperworks.comonet.products import ProductBank
from paperworks.comonet.units import PositiveLinear
from paperworks.core.training import NonFiniteLoss
from paperworks.core.training import fit as train
from paperworks.core.validation import check_choice, check_integer, check_real

__all__ = ["LOSSES", "FitLog", "Loss", "Objective", "OrdinalLoss", "fit_adam", "fit_lbfgs", "make_loss"]

Loss = Callable[[Tensor, Tensor], Tensor]
"""From the outputs (n,) of a network and the targets (n,) to the loss of each row (n,)."""

LOSSES = ("squared_error", "absolute_error", "huber", "quantile", "poisson", "logistic")
"""The names that `make_loss` knows."""

_HISTORY = 50
"""Steps that L-BFGS remembers: the weights have very different scales, and 10 leave the objective visibly higher."""


def make_loss(name: str, *, quantile: float = 0.5, log_link: bool = False) -> Loss:
    """Return the loss ℓ(g, t) of each row, for the output g of a network and the target t.

    ``squared_error`` (p - t)²; ``absolute_error`` |p - t|; ``huber`` quadratic within 1 of the target; ``quantile``
    max(q(t - p), (q - 1)(t - p)); ``poisson`` exp(g) - t·g; ``logistic`` log(1 + exp(g)) - t·g. Here p is g, or exp(g)
    with `log_link`; the last two have their link built in.

    Parameters
    ----------
    name : str
        One of `LOSSES`.
    quantile : float
        The q of ``quantile``, inside (0, 1).
    log_link : bool
        Whether the prediction is exp(g).

    Examples
    --------
    >>> pinball = make_loss("quantile", quantile=0.9)
    >>> pinball(torch.tensor([0.0, 0.0]), torch.tensor([1.0, -1.0]))
    tensor([0.9000, 0.1000])
    """
    check_choice(name, "loss", LOSSES)
    if not 0 < check_real(quantile, "quantile") < 1:
        raise ValueError(f"quantile must be inside (0, 1), got {quantile!r}")
    if name == "poisson":
        return lambda g, t: torch.exp(g) - t * g
    if name == "logistic":
        return lambda g, t: functional.softplus(g) - t * g
    rows: dict[str, Loss] = {
        "squared_error": lambda p, t: (p - t) ** 2,
        "absolute_error": lambda p, t: (p - t).abs(),
        "huber": lambda p, t: functional.huber_loss(p, t, reduction="none"),
        "quantile": lambda p, t: torch.maximum(quantile * (t - p), (quantile - 1) * (t - p)),
    }
    loss = rows[name]
    return (lambda g, t: loss(torch.exp(g), t)) if log_link else loss


class OrdinalLoss(nn.Module):
    """Negative log-likelihood of ordered classes: P(y ≤ k) = σ(θ_k - g), with θ_1 < θ_2 < … learned.

    θ_1 is free and θ_{k+1} = θ_k + softplus(·), so a larger g moves mass to higher classes for every parameter value.

    Parameters
    ----------
    shares : Tensor, shape (n_classes,)
        How often each class occurs, all positive; the thresholds start at these classes' own.

    Shapes
    ------
    outputs g (n,), targets (n,) with values 0 … n_classes - 1 → losses (n,)

    Examples
    --------
    >>> ordinal = OrdinalLoss(torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64))
    >>> ordinal(torch.zeros(3), torch.arange(3)).detach().exp()
    tensor([5.0000, 2.0000, 3.3333], dtype=torch.float64)
    """

    def __init__(self, shares: Float[Tensor, " classes"]) -> None:
        super().__init__()
        start = torch.logit(shares.cumsum(0)[:-1])
        steps = start.diff()
        # The inverse of softplus: log(exp(s) - 1) = s + log(1 - exp(-s)).
        self.theta = nn.Parameter(torch.cat([start[:1], steps + torch.log(-torch.expm1(-steps))]))

    @property
    def thresholds(self) -> Float[Tensor, " cuts"]:
        """θ_1 < … < θ_{n_classes - 1}."""
        return torch.cat([self.theta[:1], functional.softplus(self.theta[1:])]).cumsum(0)

    def forward(self, outputs: Float[Tensor, " rows"], targets: Float[Tensor, " rows"]) -> Float[Tensor, " rows"]:
        """Return -log P(y = target) of each row."""
        index = targets.long()[:, None]
        return -self._log_probabilities(outputs).gather(1, index)[:, 0]

    def _log_probabilities(self, outputs: Float[Tensor, " rows"]) -> Float[Tensor, "rows classes"]:
        """Return log(σ(a) - σ(b)) = log σ(a) + log σ(-b) + log(1 - exp(b - a)), a and b the cuts above and below."""
        cuts = self.thresholds
        away = cuts - outputs[:, None]
        zero = outputs.new_zeros(len(outputs), 1)
        below, above = functional.logsigmoid(away), functional.logsigmoid(-away)
        width = torch.log(-torch.expm1(-cuts.diff())).expand(len(outputs), -1)
        return torch.cat([below, zero], 1) + torch.cat([zero, above], 1) + torch.cat([zero, width, zero], 1)


class Objective(nn.Module):
    """Σ wᵢ ℓ(g(xᵢ), tᵢ) / Σ w + α / Σ w · Σ (effective weights)², biases excluded.

    Parameters
    ----------
    net : Module
        From (n, d) to (n,), of linear and positive layers and product banks.
    loss : Loss
        A function, or a module with parameters of its own.
    alpha : float
        α, not negative.
    total_weight : float
        Σ w; the weights that come with a batch are those of the rows divided by their mean.
    """

    def __init__(self, net: nn.Module, loss: Loss, *, alpha: float, total_weight: float) -> None:
        super().__init__()
        self.net, self.loss = net, loss
        self.strength = check_real(alpha, "alpha", low=0) / check_real(total_weight, "total_weight", low=0)

    def forward(
        self, x: Float[Tensor, "rows columns"], targets: Float[Tensor, " rows"], weights: Float[Tensor, " rows"]
    ) -> Float[Tensor, ""]:
        """Return the objective on these rows."""
        fit = (weights * self.loss(self.net(x), targets)).mean()
        return fit + self.strength * torch.cat([w.flatten() for w in _effective_weights(self.net)]).square().sum()


def _effective_weights(net: nn.Module) -> Iterator[Tensor]:
    """Yield every weight that multiplies an input, a unit or a basis function, as it acts."""
    for part in net.modules():
        if isinstance(part, PositiveLinear):
            yield from (part.P, part.A)
        elif isinstance(part, nn.Linear):
            yield part.weight
        elif isinstance(part, ProductBank):
            for bank in (part.positive, part.negative):
                yield from (functional.softplus(weight) for weight in (bank.c, *bank.theta.values()))


@dataclass(frozen=True)
class FitLog:
    """What a solver did.

    Attributes
    ----------
    loss : list of float
        The objective: with L-BFGS the best value after each evaluation, with Adam the mean over each epoch.
    n_iter : int
        Iterations of L-BFGS, or epochs of Adam.
    converged : bool
        Whether it stopped at a small gradient, or because held-out rows were fitted no better.
    """

    loss: list[float] = field(repr=False)
    n_iter: int
    converged: bool


Rows = tuple[Tensor, Tensor, Tensor]
"""Inputs (n, d), targets (n,) and weights (n,) of mean 1."""


class _BadValue(ArithmeticError):
    """The objective is NaN or infinite within a line search."""


def fit_lbfgs(
    objective: Objective,
    rows: Rows,
    *,
    validation: Rows | None = None,
    max_iter: int = 200,
    patience: int = 20,
    tol: float = 1e-7,
    seed: int = 0,
) -> FitLog:
    """Fit by full-batch L-BFGS (SciPy's), in place and in the objective's own precision.

    The best parameters seen are kept: on `validation` if given, else on the objective. If a line search meets a value
    that is not finite, Adam carries on from there.

    Parameters
    ----------
    objective : Objective
        What is minimised; make it float64.
    rows : tuple of Tensor
        Inputs (n, d), targets (n,), weights (n,).
    validation : tuple of Tensor, optional
        The same for rows held out; fitting stops after `patience` iterations without improvement there.
    max_iter : int
        Most iterations.
    tol : float
        Converged when no entry of the gradient is larger.
    seed : int
        For Adam, if it comes to that.

    Raises
    ------
    RuntimeError
        The objective is not finite even with Adam.
    """
    best = _Best(objective)
    curve: list[float] = []
    done = stale = 0

    def evaluate(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        _set(best.parameters, point)
        objective.zero_grad()
        loss: Tensor = objective(*rows)
        if not torch.isfinite(loss):
            raise _BadValue
        if validation is None:
            best.offer(loss.item())
        curve.append(min([loss.item(), *curve[-1:]]))
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item(), _flat([torch.zeros_like(p) if p.grad is None else p.grad for p in best.parameters])

    def look(point: NDArray[np.float64]) -> None:
        nonlocal done, stale
        done += 1
        if validation is not None:
            _set(best.parameters, point)
            stale = 0 if best.offer(_value(objective, validation)) else stale + 1
            if stale >= patience:
                raise StopIteration

    if validation is not None:
        best.offer(_value(objective, validation))
    options = {"maxcor": _HISTORY, "maxiter": max_iter, "maxfun": 4 * max_iter, "gtol": tol, "ftol": 0.0}
    try:
        start = _flat(best.parameters)
        found = minimize(evaluate, start, jac=True, method="L-BFGS-B", callback=look, options=options)
    except _BadValue:
        best.restore()
        log = fit_adam(objective, rows, validation=validation, max_iter=max_iter, patience=patience, seed=seed)
        return FitLog(curve + log.loss, done + log.n_iter, log.converged)
    best.restore()
    # 0: the gradient is small; 99: `look` had enough.
    return FitLog(curve, done, found.status in (0, 99))


def _flat(tensors: Sequence[Tensor]) -> NDArray[np.float64]:
    """Return all entries as one vector."""
    flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
    return np.asarray(flat.cpu().numpy(), dtype=np.float64)


@torch.no_grad()
def _set(parameters: Sequence[Tensor], point: NDArray[np.float64]) -> None:
    """Set the parameters to what `_flat` would return."""
    parts = torch.split(torch.tensor(point), [p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.copy_(part.view_as(parameter))


class _Best:
    """The parameters with the smallest finite value so far."""

    def __init__(self, module: nn.Module) -> None:
        self.parameters = list(module.parameters())
        self.value = float("inf")
        self.keep()

    def keep(self) -> None:
        self.kept = [p.detach().clone() for p in self.parameters]

    def offer(self, value: float) -> bool:
        """Keep the parameters if `value` is the smallest so far, and return whether it is."""
        if better := value < self.value:
            self.value = value
            self.keep()
        return better

    def restore(self) -> None:
        with torch.no_grad():
            for parameter, kept in zip(self.parameters, self.kept, strict=True):
                parameter.copy_(kept)


def _value(objective: Objective, rows: Rows) -> float:
    """Return the loss without the penalty on held-out rows."""
    x, targets, weights = rows
    with torch.no_grad():
        losses: Tensor = objective.loss(objective.net(x), targets)
        return (weights * losses).mean().item()


def fit_adam(
    objective: Objective,
    rows: Rows,
    *,
    validation: Rows | None = None,
    max_iter: int = 200,
    batch_size: int = 256,
    learning_rate: float = 1e-2,
    patience: int = 20,
    fabric: Fabric | None = None,
    progress: bool = False,
    seed: int = 0,
) -> FitLog:
    """Fit by Adam on minibatches drawn with replacement, with one cycle of the rate and gradients clipped to norm 1.

    Parameters
    ----------
    objective : Objective
        What is minimised, in place and in its own precision.
    rows, validation : tuple of Tensor
        As for `fit_lbfgs`.
    max_iter : int
        Most epochs.
    batch_size : int
        Rows a step.
    learning_rate : float
        Largest rate; parameters whose exponential is the weight get ten times as much.
    fabric : lightning_fabric.Fabric, optional
        Device and processes.
    progress : bool
        Show a progress bar.
    seed : int
        Of the batches.

    Raises
    ------
    RuntimeError
        The objective is not finite.
    """
    n = len(rows[0])
    size = min(check_integer(batch_size, "batch_size", low=1), n)
    epoch = -(-n // size)
    steps = max_iter * epoch
    groups = _by_rate(objective, learning_rate)

    def batches(_: int, generator: torch.Generator) -> Rows:
        if size == n:
            return rows
        chosen = torch.randint(n, (size,), generator=generator)
        return rows[0][chosen], rows[1][chosen], rows[2][chosen]

    try:
        history = train(
            objective,
            batches,
            lambda module, batch: {"loss": module(*batch)},
            optimizer=torch.optim.Adam(groups),
            schedule=lambda adam: torch.optim.lr_scheduler.OneCycleLR(
                adam, [group["lr"] for group in adam.param_groups], total_steps=steps + 1
            ),
            steps=steps,
            clip=1.0,
            validate=None if validation is None else lambda _: _value(objective, _beside(objective, validation)),
            validate_every=epoch,
            patience=None if validation is None else patience,
            fabric=fabric,
            progress=progress,
            seed=seed,
        )
    except NonFiniteLoss as error:
        raise RuntimeError(f"{error}; scale the data, or raise alpha") from error
    losses = [record["loss"] for record in history.records]
    means = [sum(part) / len(part) for part in (losses[i : i + epoch] for i in range(0, len(losses), epoch))]
    return FitLog(means, len(means), history.stopped == "patience")


def _beside(module: nn.Module, rows: Rows) -> Rows:
    device = next(module.parameters()).device
    return rows[0].to(device), rows[1].to(device), rows[2].to(device)


def _by_rate(objective: Objective, rate: float) -> list[dict[str, object]]:
    """Return the two groups of parameters, with their rates."""
    exponents = [
        part.theta for part in objective.modules() if isinstance(part, PositiveLinear) and part.positivity == "exp"
    ]
    fast = set(map(id, exponents))
    slow = [p for p in objective.parameters() if id(p) not in fast]
    return [{"params": ps, "lr": lr} for ps, lr in ((slow, rate), (exponents, 10 * rate)) if ps]
