"""Full-batch training of node classifiers on the core's loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from paperworks.core.training import History, fit
from paperworks.core.validation import check_integer

__all__ = ["pick_device", "train"]


def pick_device(device: str | torch.device) -> torch.device:
    """Return the device that a name stands for; "auto" is a GPU if there is one.

    Raises
    ------
    ValueError
        No such device.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=device)
        return torch.device(device)
    except (RuntimeError, TypeError, AssertionError):
        raise ValueError(f"device must be 'auto' or a device of torch on this machine, got {device!r}") from None


def train(
    module: nn.Module,
    loss: Callable[[nn.Module], Tensor],
    groups: Iterable[Any],
    *,
    validate: Callable[[nn.Module], Any] | None = None,
    lr: float = 0.01,
    epochs: int = 200,
    patience: int = 100,
    evaluate_every: int = 4,
    seed: int,
    device: str | torch.device = "cpu",
    verbose: int = 0,
) -> History:
    """Train a module in place with Adam, one step an epoch, and leave it with the best validated weights.

    Parameters
    ----------
    module : nn.Module
        What to train; it moves to `device`, where everything that `loss` uses must be.
    loss : callable ``module -> scalar Tensor``
        Of the whole graph.
    groups : iterable of parameters or of Adam's parameter groups
        What to update.
    validate : callable ``module -> float or dict with "loss"``, optional
        Lower is better. Called in eval mode, without gradients, every `evaluate_every` epochs.
    lr : float
        Learning rate of groups that set none.
    epochs : int
        Most updates.
    patience : int
        Stop after so many epochs without improvement, rounded down to whole validations.
    evaluate_every : int
        Epochs between validations.
    seed : int
        Of dropout; torch's own generator is left as it was.
    device : str or torch.device
        Where to train.
    verbose : int
        Show a progress bar if positive.
    """
    epochs, patience = check_integer(epochs, "epochs", low=1), check_integer(patience, "patience", low=1)
    evaluate_every = check_integer(evaluate_every, "evaluate_every", low=1)
    module.to(device)
    return fit(
        module,
        lambda index, generator: None,
        lambda wrapped, batch: {"loss": loss(module)},
        optimizer=torch.optim.Adam(groups, lr=lr, fused=True),
        steps=epochs,
        validate=validate,
        validate_every=evaluate_every,
        patience=None if validate is None else max(1, patience // evaluate_every),
        checkpoint_every=epochs,
        log_every=evaluate_every,
        progress=verbose > 0,
        seed=seed,
    )
