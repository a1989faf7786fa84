"""The one torch training loop, on Lightning Fabric: devices, precision, checkpoints, resume, early stop, progress."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import paperworks
from paperworks.core.atomic import atomic_file, write_text
from paperworks.core.extras import require
from paperworks.core.validation import check_integer, check_real

require("lightning_fabric", "torch")

import torch  # noqa: E402
from lightning_fabric import Fabric  # noqa: E402
from lightning_fabric.strategies.ddp import DDPStrategy  # noqa: E402
from lightning_fabric.strategies.single_device import SingleDeviceStrategy  # noqa: E402
from safetensors import SafetensorError  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch import nn  # noqa: E402
from torch.optim import Optimizer  # noqa: E402
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau  # noqa: E402

__all__ = ["FORMAT", "History", "NonFiniteLoss", "fit"]

FORMAT = 1
"""Version of the checkpoint's layout; `fit` refuses to resume from every other."""

Record = dict[str, int | float]


class NonFiniteLoss(ArithmeticError):
    """The loss, the gradient norm or the validation loss is NaN or infinite.

    Attributes
    ----------
    what : str
        The quantity, as it is named in the history.
    value : float
        Its value.
    step : int
        The update, counted from 1, that was about to be made; the parameters are those of before it (of after it where
        `what` is ``"validation_loss"``).
    learning_rate : float
        Of the first parameter group.
    """

    def __init__(self, what: str, value: float, step: int, learning_rate: float) -> None:
        super().__init__(what, value, step, learning_rate)
        self.what, self.value, self.step, self.learning_rate = what, value, step, learning_rate

    def __str__(self) -> str:
        return (
            f"{self.what} is {self.value} at step {self.step} (learning rate {self.learning_rate:g}): "
            "lower the learning rate, clip the gradients or look for bad values in the batch"
        )


@dataclass
class History:
    """What happened during a run.

    Attributes
    ----------
    records : list of dict
        One every `log_every` steps, and one for every validation and the last step: ``step`` (from 1), ``loss`` and
        whatever else `step` returned (means over the processes), ``lr`` (of the first parameter group), ``grad_norm``
        (before clipping), what hooks added, and ``validation_loss`` etc. where it was validated.
    best : dict or None
        The record with the smallest ``validation_loss``, the earliest of equals.
    steps : int
        Updates made.
    stopped : str or None
        ``"steps"`` when all steps were done, ``"patience"`` when validation no longer improved.
    """

    records: list[Record] = field(default_factory=list)
    best: Record | None = None
    stopped: str | None = None
    steps: int = 0

    def frame(self) -> pd.DataFrame:
        """Return the records as a table, one row each; NaN where a record has no such entry."""
        return pd.DataFrame(self.records)


def fit(
    module: nn.Module,
    batches: Callable[[int, torch.Generator], Any],
    step: Callable[[nn.Module, Any], Mapping[str, Any]],
    *,
    optimizer: Optimizer | Callable[..., Optimizer],
    schedule: Callable[[Optimizer], LRScheduler] | None = None,
    steps: int,
    clip: float | None = None,
    validate: Callable[[nn.Module], Any] | None = None,
    validate_every: int = 100,
    patience: int | None = None,
    on_step: Sequence[Callable[[int, nn.Module, Record], object]] = (),
    fabric: Fabric | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 500,
    log_every: int = 1,
    progress: bool = False,
    seed: int,
) -> History:
    """Train `module` in place and return what happened.

    The generators of a step, torch's own among them (dropout), are seeded by `seed`, the step and the process alone;
    so a run that was stopped and resumed gives on a CPU the same bits as one that was not. Afterwards torch's
    generators are as before, and so is the mode of every part of the module (one in eval mode is put in train mode for
    the run, parts in eval mode of one in train mode stay so).

    Parameters
    ----------
    module : nn.Module
        What to train. It moves to the device of `fabric`, and stays there.
    batches : callable ``(index, generator) -> batch``
        The batch of step `index`, counted from 0: a pure function of its arguments. In several processes each one's
        generator differs, and so do their batches. Tensors in the batch are moved to the device.
    step : callable ``(module, batch) -> dict``
        Must hold a scalar ``loss``; other scalars are recorded. The module that it gets is wrapped by Fabric; to call
        another method than ``forward`` in several processes, use its ``mark_forward_method`` first.
    optimizer : Optimizer or callable ``parameters -> Optimizer``
        For example ``torch.optim.Adam``. To resume, pass a callable or a fresh optimizer.
    schedule : callable ``optimizer -> LRScheduler``, optional
        Advanced once a step.
    steps : int
        Number of updates.
    clip : float, optional
        Largest norm of the gradient; longer ones are scaled down to it.
    validate : callable ``module -> float or dict``, optional
        The loss, lower is better, or scalars that include ``loss``. It gets `module` itself in eval mode, without
        gradients, every `validate_every` steps and after the last. Means over the processes are recorded.
    validate_every : int
        Steps between validations.
    patience : int, optional
        Stop after so many validations in a row without improvement. The module then ends with its best validated
        weights, also where all steps were done.
    on_step : sequence of callables ``(step, module, record)``
        Called after each update and before validation, `step` counted from 1; numbers that they add to the record are
        recorded. The state of one with ``state_dict`` and ``load_state_dict`` (tensors, numbers, strings; nested) is
        part of the checkpoint.
    fabric : lightning_fabric.Fabric, optional
        Device, precision and processes; launched where there are several. Default: the device where the module is.
        Strategies that shard the parameters are refused.
    checkpoint : path, optional
        Folder for the checkpoint. If it holds one of the same run, that run is continued. Written by the first process
        after every `checkpoint_every` steps, at the end, and when interrupted (Ctrl-C), after the step under way; a
        second Ctrl-C stops at once. All processes read it.
    checkpoint_every : int
        Steps between checkpoints.
    log_every : int
        Steps between records of the history, which every checkpoint holds: for long runs, more than 1.
    progress : bool
        Show a progress bar on stderr.
    seed : int
        Non-negative.

    Returns
    -------
    History
        The records, the best one, and why the run stopped.

    Raises
    ------
    NonFiniteLoss
        The loss or the gradient is NaN or infinite; the parameters were not updated with it.
    ValueError
        `checkpoint` holds another run (the message names the first difference), an unknown format or a damaged file.

    Examples
    --------
    >>> line = nn.Linear(1, 1)
    >>> def batches(index, generator):
    ...     x = torch.rand(16, 1, generator=generator)
    ...     return x, 3 * x + 1
    >>> def step(module, batch):
    ...     x, y = batch
    ...     return {"loss": nn.functional.mse_loss(module(x), y)}
    >>> adam = lambda parameters: torch.optim.Adam(parameters, lr=0.1)
    >>> history = fit(line, batches, step, optimizer=adam, steps=300, seed=0)
    >>> round(line.weight.item(), 1), round(line.bias.item(), 1), history.stopped
    (3.0, 1.0, 'steps')
    """
    for number, name, low in ((steps, "steps", 1), (validate_every, "validate_every", 1), (seed, "seed", 0)):
        check_integer(number, name, low=low)
    for number, name in ((checkpoint_every, "checkpoint_every"), (log_every, "log_every")):
        check_integer(number, name, low=1)
    limit = math.inf if clip is None else check_real(clip, "clip", low=0, open_low=True)
    if patience is not None and validate is None:
        raise ValueError(f"patience must be None without validate, got {patience!r}")
    lasting = None if patience is None else check_integer(patience, "patience", low=1)
    solver = optimizer if isinstance(optimizer, Optimizer) else optimizer(module.parameters())
    scheduler = None if schedule is None else schedule(solver)
    if isinstance(scheduler, ReduceLROnPlateau):
        raise ValueError("schedule must advance without a metric, got ReduceLROnPlateau")
    fabric = _fabric_beside(module) if fabric is None else fabric
    if not isinstance(fabric.strategy, (SingleDeviceStrategy, DDPStrategy)):
        kind = type(fabric.strategy).__name__
        raise ValueError(f"fabric must keep the whole module in each process (one device or DDP), got {kind}")
    settings = {"seed": seed, "steps": steps, "clip": clip, "patience": patience}
    if validate is not None:
        settings["validate_every"] = validate_every
    run = _Run(
        module, solver, scheduler, fabric, batches, step, limit, validate, validate_every, lasting, tuple(on_step),
        steps, seed, None if checkpoint is None else Path(checkpoint), checkpoint_every, log_every, settings,
    )  # fmt: skip
    return run.go(progress)


@dataclass
class _Run:
    """A run under way: its parts, and the state that a checkpoint holds."""

    module: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler | None
    fabric: Fabric
    batches: Callable[[int, torch.Generator], Any]
    step: Callable[[nn.Module, Any], Mapping[str, Any]]
    clip: float
    validate: Callable[[nn.Module], Any] | None
    validate_every: int
    patience: int | None
    hooks: tuple[Any, ...]
    steps: int
    seed: int
    folder: Path | None
    checkpoint_every: int
    log_every: int
    settings: dict[str, Any]
    history: History = field(default_factory=History)
    best: dict[str, torch.Tensor] = field(default_factory=dict)
    stale: int = 0

    def go(self, progress: bool) -> History:
        """Set up, resume, loop, and leave the module with the weights that count."""
        # Before the set-up moves or wraps anything: the same run is described alike everywhere.
        self.settings |= _describe(self.module, self.optimizer, self.scheduler, self.hooks, self.fabric)
        self.wrapped, self.wrapped_optimizer = self.fabric.setup(self.module, self.optimizer)
        cuda = [self.fabric.device] if self.fabric.device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda), _mode(self.module, True), _held_interrupt() as interrupted:
            if self.folder is not None and not self.resume(self.folder):
                # At once, so that a folder or a state that cannot be written shows now and not after hours.
                self.save()
            with _bar(self.steps, progress and self.fabric.is_global_zero) as show:
                self.loop(interrupted, show)
        self.module.zero_grad()
        if self.best:
            _put(self.best, self.module)
        self.fabric.barrier()
        return self.history

    def loop(self, interrupted: Callable[[], bool], show: Callable[[Record], None]) -> None:
        """Make one update after the other until all are done, or validation no longer improves."""
        while self.history.stopped is None:
            try:
                batch = self.draw()
            except KeyboardInterrupt:
                # Nothing of this step has happened yet, so the state is whole.
                self.save()
                raise
            record = self.update(batch)
            for hook in self.hooks:
                hook(record["step"], self.module, record)
            record |= _numbers({name: value for name, value in record.items() if name != "step"}, "on_step")
            done = self.history.steps + 1
            if self.validate is not None and (done % self.validate_every == 0 or done == self.steps):
                self.judge(self.validate, record)
            self.history.steps = done
            if self.patience is not None and self.stale >= self.patience:
                self.history.stopped = "patience"
            elif done == self.steps:
                self.history.stopped = "steps"
            if done % self.log_every == 0 or "validation_loss" in record or self.history.stopped:
                self.history.records.append(record)
            show(record)
            stop = self.mean({"interrupted": float(interrupted())})["interrupted"] > 0
            if stop or self.history.stopped or done % self.checkpoint_every == 0:
                self.save()
            if stop:
                raise KeyboardInterrupt

    def draw(self) -> Any:
        """Seed every generator of this step and return its batch, on the device."""
        key = (self.seed, self.history.steps, self.fabric.global_rank)
        ours, theirs = (int(word) for word in np.random.SeedSequence(key).generate_state(2, np.uint64))
        torch.default_generator.manual_seed(ours)
        if self.fabric.device.type == "cuda":
            torch.cuda.default_generators[self.fabric.device.index].manual_seed(ours)
        batch = self.batches(self.history.steps, torch.Generator().manual_seed(theirs))
        return self.fabric.to_device(batch)

    def update(self, batch: Any) -> Record:
        """Make one update and return its record."""
        self.module.zero_grad()
        with self.fabric.autocast():
            output = self.step(self.wrapped, batch)
        rate = float(self.optimizer.param_groups[0]["lr"])
        scores = self.mean(_with_loss(output, "step"))
        if taken := scores.keys() & {"step", "lr", "grad_norm"}:
            raise ValueError(f"step must leave these names to the training loop, got {sorted(taken)}")
        record: Record = {"step": self.history.steps + 1, **scores, "lr": rate}
        _guard(record, "loss")
        self.fabric.backward(output["loss"])
        norm = self.fabric.clip_gradients(
            self.wrapped, self.wrapped_optimizer, max_norm=self.clip, error_if_nonfinite=False
        )
        record["grad_norm"] = math.nan if norm is None else float(norm)
        if getattr(self.fabric.strategy.precision, "scaler", None) is None:
            # A gradient scaler meets overflow by itself: it skips the update and lowers the scale.
            _guard(record, "grad_norm")
        self.wrapped_optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        return record

    def judge(self, validate: Callable[[nn.Module], Any], record: Record) -> None:
        """Validate, add the result to `record`, and keep the weights if they are the best so far."""
        with _mode(self.module, False), torch.no_grad(), self.fabric.autocast():
            result = validate(self.module)
        scores = self.mean(_with_loss(result if isinstance(result, Mapping) else {"loss": result}, "validate"))
        record |= {f"validation_{name}": value for name, value in scores.items()}
        if math.isnan(scores["loss"]):
            _guard(record, "validation_loss")
        best = self.history.best
        if best is None or scores["loss"] < best["validation_loss"]:
            self.history.best, self.stale = record, 0
            self.best = {} if self.patience is None else _take(self.module)
        else:
            self.stale += 1

    def mean(self, values: dict[str, float]) -> dict[str, float]:
        """Return the mean of each value over the processes, so that all of them decide alike."""
        if self.fabric.world_size == 1:
            return values
        local = torch.tensor(list(values.values()), dtype=torch.float64, device=self.fabric.device)
        joint: Any = self.fabric.all_reduce(local, reduce_op="mean")
        return dict(zip(values, joint.tolist(), strict=True))

    def state(self) -> dict[str, Any]:
        """Return all that the next steps depend on."""
        return {
            "module": _take(self.module),
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.scheduler is None else self.scheduler.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "hooks": [hook.state_dict() if hasattr(hook, "load_state_dict") else None for hook in self.hooks],
            "best": self.best,
            "stale": self.stale,
        }

    def save(self) -> None:
        """Write the checkpoint: first the tensors, then the JSON that names them, so what can be read is whole."""
        if self.folder is None or not self.fabric.is_global_zero:
            return
        tensors: dict[str, torch.Tensor] = {}
        content = {
            "format": FORMAT,
            "version": paperworks.__version__,
            "settings": self.settings,
            "tensors": f"tensors-{self.history.steps}.safetensors",
            "stopped": self.history.stopped,
            "steps": self.history.steps,
            "best": None if self.history.best is None else self.history.best["step"],
            "state": _pack(self.state(), tensors, "checkpoint"),
            "records": self.history.records,
        }
        file = self.folder / f"tensors-{self.history.steps}.safetensors"
        with atomic_file(file) as part:
            save_file(tensors, part)
        write_text(self.folder / "checkpoint.json", json.dumps(content))
        for old in self.folder.iterdir():
            if old != file and re.fullmatch(r"\.?tensors-\d+\.safetensors.*", old.name):
                old.unlink()

    def resume(self, folder: Path) -> bool:
        """Take over the state of the checkpoint in `folder`; False if there is none."""
        content = _read(folder, self.settings)
        # No process may write before all have read.
        self.fabric.barrier()
        if content is None:
            return False
        state, records = content["state"], content["records"]
        _put(state["module"], self.module)
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["schedule"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        for hook, saved in zip(self.hooks, state["hooks"], strict=True):
            if saved is not None:
                hook.load_state_dict(saved)
        self.best, self.stale = state["best"], state["stale"]
        best = next((record for record in records if record["step"] == content["best"]), None)
        self.history = History(records, best, content["stopped"], content["steps"])
        return True


def _fabric_beside(module: nn.Module) -> Fabric:
    """Return a Fabric for the device where the module is."""
    device = next((tensor.device for tensor in module.parameters()), torch.device("cpu"))
    return Fabric(accelerator=device.type, devices=1 if device.type == "cpu" else [device.index or 0])


def _describe(
    module: nn.Module, optimizer: Optimizer, scheduler: LRScheduler | None, hooks: tuple[Any, ...], fabric: Fabric
) -> dict[str, Any]:
    """Return what must be equal for a checkpoint to be of the same run, as flat names and values."""
    entries: dict[str, Any] = {
        "processes": fabric.world_size,
        "precision": fabric.strategy.precision.precision,
        "optimizer": type(optimizer).__name__,
        "schedule": type(scheduler).__name__,
        "on_step": ", ".join(getattr(hook, "__name__", type(hook).__name__) for hook in hooks),
    }
    for number, group in enumerate(optimizer.param_groups):
        entries |= {f"optimizer[{number}].{name}": str(value) for name, value in group.items() if name != "params"}
    for name, value in ({} if scheduler is None else scheduler.state_dict()).items():
        if isinstance(value, (bool, int, float, str)):
            entries[f"schedule.{name}"] = value
    for name, tensor in _take(module).items():
        entries[f"module.{name}"] = f"{tensor.dtype} {list(tensor.shape)}"
    return entries


def _read(folder: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return the content of the checkpoint in `folder`, its tensors in place, or None if there is none."""
    file = folder / "checkpoint.json"
    if not file.exists():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"it has format {content['format']!r}, this version reads {FORMAT}")
        before = content["settings"]
        for name in [*settings, *before]:
            then, now = before.get(name), settings.get(name)
            if then != now:
                raise ValueError(f"it is of another run: {name} was {then!r}, is {now!r}")
        content["state"] = _unpack(content["state"], load_file(folder / content["tensors"]))
    except (ValueError, KeyError, TypeError, OSError, SafetensorError) as error:
        raise ValueError(f"checkpoint {str(folder)!r} cannot be resumed: {error}") from error
    return dict(content)


def _take(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return CPU copies of all parameters and buffers, also of buffers that a ``state_dict`` leaves out."""
    named = [*module.named_parameters(), *module.named_buffers()]
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in named}


@torch.no_grad()
def _put(tensors: Mapping[str, torch.Tensor], module: nn.Module) -> None:
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        tensor.copy_(tensors[name])


def _pack(value: Any, tensors: dict[str, torch.Tensor], path: str) -> Any:
    """Return `value` as JSON in which every object has one key, its kind; its tensors go to `tensors`."""
    if isinstance(value, torch.Tensor):
        name = f"{len(tensors)} {path}"
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()
        return {"tensor": name}
    if isinstance(value, Mapping) and all(isinstance(key, (str, int)) for key in value):
        return {"dict": [[key, _pack(item, tensors, f"{path}.{key}")] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        items = [_pack(item, tensors, f"{path}[{number}]") for number, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{path} must hold tensors, numbers, strings and containers of them, got {type(value).__name__}")


def _unpack(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(_unpack(item, tensors) for item in content)
    return {key: _unpack(item, tensors) for key, item in content}


def _with_loss(values: Any, source: str) -> dict[str, float]:
    """Return what `step` or `validate` gave as floats, ``loss`` among them."""
    if not isinstance(values, Mapping) or "loss" not in values:
        got = f"keys {sorted(map(str, values))}" if isinstance(values, Mapping) else type(values).__name__
        raise ValueError(f"{source} must return a dict with 'loss', got {got}")
    return _numbers(values, source)


def _numbers(values: Mapping[Any, Any], source: str) -> dict[str, float]:
    for name, value in values.items():
        if not (value.numel() == 1 if isinstance(value, torch.Tensor) else isinstance(value, Real)):
            kind = f"shape {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            raise ValueError(f"{source} must give scalars, got {kind} for {name!r}")
    return {
        str(name): float(value.detach() if isinstance(value, torch.Tensor) else value) for name, value in values.items()
    }


def _guard(record: Record, name: str) -> None:
    if not math.isfinite(record[name]):
        raise NonFiniteLoss(name, record[name], int(record["step"]), record["lr"])


@contextlib.contextmanager
def _mode(module: nn.Module, training: bool) -> Iterator[None]:
    """Put the module in train or eval mode unless it is, then give each part back the mode that it had."""
    before = [(part, part.training) for part in module.modules()]
    if module.training != training:
        module.train(training)
    try:
        yield
    finally:
        for part, mode in before:
            part.training = mode


@contextlib.contextmanager
def _held_interrupt() -> Iterator[Callable[[], bool]]:
    """Hold the first Ctrl-C back, and yield a function that tells whether it came; a second one acts at once."""
    came = False

    def hold(number: int, frame: Any) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    main = threading.current_thread() is threading.main_thread()
    # A handler of the caller's own stays in charge.
    ours = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, hold)
    try:
        yield lambda: came
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _bar(total: int, visible: bool) -> Iterator[Callable[[Record], None]]:
    """Yield a function that shows a record on the progress bar."""
    if not visible:
        yield lambda record: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("training", total=total)

        def show(record: Record) -> None:
            progress.update(task, completed=record["step"], description=f"loss {record['loss']:.4g}")

        yield show
