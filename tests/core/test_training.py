from __future__ import annotations

import importlib.util
import json
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from paperworks.core.extras import MissingExtra

torch = pytest.importorskip("torch")
pytest.importorskip("lightning_fabric")

from lightning_fabric import Fabric  # noqa: E402
from lightning_fabric.strategies import FSDPStrategy  # noqa: E402
from torch import nn  # noqa: E402
from torch.optim import lr_scheduler  # noqa: E402
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn  # noqa: E402

from paperworks.core import training  # noqa: E402
from paperworks.core.training import History, NonFiniteLoss, fit  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tensors this small gain nothing from threads, which burn time waiting for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Net(nn.Module):
    """Has all that a resume can lose: dropout, running statistics and a buffer outside the state_dict."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def forward(self, x):
        if self.training:
            self.seen += x.abs().sum()
        return self.body(x)


class Ema:
    """Moving average of the weights."""

    def __init__(self, module, decay=0.9):
        self.average = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(decay))

    def __call__(self, step, module, record):
        self.average.update_parameters(module)

    def state_dict(self):
        return self.average.state_dict()

    def load_state_dict(self, state):
        self.average.load_state_dict(state)


def net(kind=Net):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return kind()


def batches(index, generator):
    x = torch.randn(16, 3, generator=generator)
    return x, x @ torch.tensor([[1.0], [-2.0], [0.5]])


def step(module, batch):
    x, y = batch
    loss = nn.functional.mse_loss(module(x), y)
    return {"loss": loss, "rmse": loss.detach().sqrt()}


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def cosine(optimizer):
    return lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)


def held_out(module):
    return step(module, batches(0, torch.Generator().manual_seed(99)))


def train(module, **changes):
    arguments = {"batches": batches, "step": step, "optimizer": adam, "steps": 20, "seed": 0} | changes
    return fit(module, arguments.pop("batches"), arguments.pop("step"), **arguments)


def everything(module):
    return dict([*module.named_parameters(), *module.named_buffers()])


def assert_same_bits(left, right):
    left, right = everything(left), everything(right)
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


def at(number, action, inner=step):
    """Return a step function that calls `action` in its call `number`, counted from 1."""
    calls = 0

    def wrapped(module, batch):
        nonlocal calls
        calls += 1
        if calls == number:
            action()
        return inner(module, batch)

    return wrapped


def crash():
    raise RuntimeError("the machine is gone")


def test_equals_a_plain_torch_loop_bit_for_bit():
    drawn = []

    def keep(index, generator):
        drawn.append(batches(index, generator))
        return drawn[-1]

    ours, plain = net(lambda: nn.Linear(3, 1)), net(lambda: nn.Linear(3, 1))
    history = train(ours, batches=keep, schedule=cosine, clip=0.5)
    optimizer = adam(plain.parameters())
    schedule = cosine(optimizer)
    for record, batch in zip(history.records, drawn, strict=True):
        optimizer.zero_grad()
        loss = step(plain, batch)["loss"]
        loss.backward()
        norm = nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        rate = schedule.get_last_lr()[0]
        measured = {"loss": loss.item(), "rmse": loss.sqrt().item(), "lr": rate, "grad_norm": norm.item()}
        assert record == {"step": record["step"], **measured}
        optimizer.step()
        schedule.step()
    assert_same_bits(ours, plain)
    assert len(drawn) == history.steps == 20
    assert history.stopped == "steps"


def test_history_is_a_table():
    history = train(net(), steps=6, validate=held_out, validate_every=4)
    frame = history.frame()
    assert list(frame["step"]) == [1, 2, 3, 4, 5, 6]
    assert list(frame["validation_rmse"].notna()) == [False, False, False, True, False, True]
    assert history.best == min((history.records[3], history.records[5]), key=lambda r: r["validation_loss"])
    assert History().frame().empty


def test_a_sparse_history_changes_nothing_else(tmp_path):
    dense, sparse = net(), net()
    every = train(dense, validate=held_out, validate_every=7)
    some = train(sparse, validate=held_out, validate_every=7, log_every=5, checkpoint=tmp_path, checkpoint_every=3)
    assert_same_bits(dense, sparse)
    assert some.steps == 20
    assert some.records == [record for record in every.records if record["step"] in (5, 7, 10, 14, 15, 20)]
    assert some.best == every.best
    # What is read back from the checkpoint of a finished run is the same history.
    assert train(net(), validate=held_out, validate_every=7, log_every=5, checkpoint=tmp_path) == some


def test_same_seed_same_bits_other_seed_other_bits():
    first, second, third = net(), net(), net()
    assert train(first).records == train(second).records != train(third, seed=1).records
    assert_same_bits(first, second)
    assert not torch.equal(first.body[0].weight, third.body[0].weight)


def test_batches_depend_on_seed_and_step_alone():
    def drawn(seed, steps):
        seen = []

        def keep(index, generator):
            seen.append((index, generator.initial_seed()))
            return batches(index, generator)

        train(net(), batches=keep, seed=seed, steps=steps)
        return seen

    long = drawn(0, 9)
    assert drawn(0, 5) == long[:5]
    assert [index for index, _ in long] == list(range(9))
    assert len({*long, *drawn(1, 9)}) == 18


@pytest.mark.untyped  # the hook samples what it checks with Python's generator
def test_no_global_generator_is_touched():
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)

    def states():
        return random.getstate(), pickle.dumps(np.random.get_state()), torch.get_rng_state()  # noqa: NPY002

    before = states()
    train(net(), validate=held_out, validate_every=5)
    with pytest.raises(RuntimeError, match="machine"):
        train(net(), step=at(3, crash))
    after = states()
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])


@pytest.mark.parametrize("stop", [1, 7, 13, 19])
@pytest.mark.parametrize("how", ["ctrl-c in a step", "ctrl-c in batches", "crash"])
def test_resumes_bit_for_bit(tmp_path, stop, how):
    whole = net()
    whole_ema = Ema(whole)
    arguments = {"schedule": cosine, "clip": 1.0, "validate": held_out, "validate_every": 6, "patience": 9}
    expected = train(whole, on_step=[whole_ema], **arguments)

    def interrupt_once(index, generator):
        if how == "ctrl-c in batches" and index == stop:
            raise KeyboardInterrupt
        return batches(index, generator)

    action = {"crash": crash}.get(how, lambda: signal.raise_signal(signal.SIGINT))
    broken = step if how == "ctrl-c in batches" else at(stop, action)
    module = net()
    arguments |= {"checkpoint": tmp_path / "run", "checkpoint_every": 5}
    with pytest.raises((KeyboardInterrupt, RuntimeError)):
        train(module, batches=interrupt_once, step=broken, on_step=[Ema(module)], **arguments)
    saved = json.loads((tmp_path / "run" / "checkpoint.json").read_text())
    assert len(saved["records"]) == (stop if how != "crash" else (stop - 1) // 5 * 5)

    module = net()
    ema = Ema(module)
    history = train(module, on_step=[ema], **arguments)
    assert history == expected
    assert_same_bits(module, whole)
    assert_same_bits(ema.average, whole_ema.average)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("optimizer", "schedule"),
    [
        (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), lambda o: lr_scheduler.MultiStepLR(o, [3, 7, 7], gamma=0.5)),
        (torch.optim.AdamW, lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=12)),
        (lambda p: torch.optim.Adam(p, 0.1, amsgrad=True), lambda o: lr_scheduler.LambdaLR(o, lambda k: 1 / (k + 1))),
        (
            torch.optim.RMSprop,
            lambda o: lr_scheduler.SequentialLR(
                o, [lr_scheduler.LinearLR(o, total_iters=4), lr_scheduler.ExponentialLR(o, 0.9)], [5]
            ),
        ),
    ],
)
def test_common_optimizers_and_schedules_resume(tmp_path, optimizer, schedule):
    whole, module = net(), net()
    expected = train(whole, optimizer=optimizer, schedule=schedule, steps=10)
    arguments = {"optimizer": optimizer, "schedule": schedule, "steps": 10, "checkpoint": tmp_path}
    with pytest.raises(RuntimeError, match="machine"):
        train(net(), step=at(7, crash), checkpoint_every=6, **arguments)
    assert train(module, **arguments) == expected
    assert_same_bits(module, whole)


def test_a_finished_run_is_not_repeated(tmp_path):
    first, again = net(), net()
    expected = train(first, checkpoint=tmp_path)
    assert train(again, batches=lambda index, generator: crash(), checkpoint=tmp_path) == expected
    assert_same_bits(again, first)


def test_second_interrupt_stops_at_once(tmp_path):
    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(net(), step=at(8, twice), checkpoint=tmp_path, checkpoint_every=3)
    assert len(json.loads((tmp_path / "checkpoint.json").read_text())["records"]) == 6


def test_an_interrupt_handler_of_the_callers_own_stays_in_charge():
    calls = []
    before = signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    try:
        history = train(net(), step=at(2, lambda: signal.raise_signal(signal.SIGINT)))
    finally:
        signal.signal(signal.SIGINT, before)
    assert (calls, history.stopped) == ([signal.SIGINT], "steps")


@pytest.mark.parametrize("function", ["save_file", "write_text"])
def test_a_failed_write_leaves_the_old_checkpoint(tmp_path, monkeypatch, function):
    whole = net()
    expected = train(whole)
    original, calls = getattr(training, function), 0

    def fail_in_the_middle(*arguments):
        nonlocal calls
        calls += 1
        original(*arguments) if calls < 3 else crash()

    with monkeypatch.context() as patch:
        patch.setattr(training, function, fail_in_the_middle)
        with pytest.raises(RuntimeError, match="machine"):
            train(net(), checkpoint=tmp_path, checkpoint_every=6)
    assert len(json.loads((tmp_path / "checkpoint.json").read_text())["records"]) == 6
    module, seen = net(), []

    def keep(index, generator):
        seen.append(index)
        return batches(index, generator)

    assert train(module, batches=keep, checkpoint=tmp_path, checkpoint_every=6) == expected
    assert seen == list(range(6, 20))
    assert_same_bits(module, whole)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["checkpoint.json", "tensors-20.safetensors"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "seed was 0, is 1"),
        ({"steps": 30}, "steps was 20, is 30"),
        ({"clip": 1.0}, "clip was None, is 1.0"),
        ({"optimizer": torch.optim.SGD}, "optimizer was 'Adam', is 'SGD'"),
        ({"optimizer": torch.optim.Adam}, r"optimizer\[0\].lr was '0.01', is '0.001'"),
        ({"schedule": cosine}, "schedule was 'NoneType', is 'CosineAnnealingLR'"),
        ({"on_step": [print]}, "on_step was '', is 'print'"),
        ({"validate": held_out}, "validate_every was None, is 100"),
        ({"fabric": Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")}, "precision was '32-true'"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, changes, message):
    train(net(), checkpoint=tmp_path)
    module, untouched = net(), net()
    with pytest.raises(ValueError, match=message):
        train(module, checkpoint=tmp_path, **changes)
    assert_same_bits(module, untouched)


def test_a_checkpoint_of_another_module_is_refused(tmp_path):
    train(net(lambda: nn.Linear(3, 1)), checkpoint=tmp_path)
    for other, message in [
        (nn.Linear(3, 2), r"module.weight was 'torch.float32 \[1, 3\]', is 'torch.float32 \[2, 3\]'"),
        (nn.Linear(3, 1).double(), "module.weight was 'torch.float32"),
        (nn.Linear(3, 1, bias=False), "module.bias was 'torch.float32"),
    ]:
        with pytest.raises(ValueError, match=message):
            train(other, checkpoint=tmp_path)


@pytest.mark.parametrize("harm", ["format", "json", "cut", "gone"])
def test_a_damaged_checkpoint_is_refused(tmp_path, harm):
    train(net(), checkpoint=tmp_path)
    file, tensors = tmp_path / "checkpoint.json", tmp_path / "tensors-20.safetensors"
    if harm == "format":
        file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 2}))
    elif harm == "json":
        file.write_text(file.read_text()[:-9])
    elif harm == "cut":
        tensors.write_bytes(tensors.read_bytes()[:-9])
    else:
        tensors.unlink()
    with pytest.raises(ValueError, match="cannot be resumed"):
        train(net(), checkpoint=tmp_path)


def test_other_files_beside_the_checkpoint_stay(tmp_path):
    (tmp_path / "tensors-mine.safetensors").write_text("mine")
    train(net(), checkpoint=tmp_path, checkpoint_every=3)
    assert (tmp_path / "tensors-mine.safetensors").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_before_the_update(tmp_path, value):
    def spoil(module, batch):
        output = step(module, batch)
        return output | {"loss": output["loss"] * value}

    calls = 0

    def fifth(module, batch):
        nonlocal calls
        calls += 1
        return (spoil if calls == 5 else step)(module, batch)

    module, until_then = net(lambda: nn.Linear(3, 1)), net(lambda: nn.Linear(3, 1))
    with pytest.raises(NonFiniteLoss, match=rf"loss is {value} at step 5 \(learning rate 0.01\)") as caught:
        train(module, step=fifth, checkpoint=tmp_path, checkpoint_every=1)
    train(until_then, steps=4)
    assert_same_bits(module, until_then)
    assert (caught.value.what, caught.value.step, caught.value.learning_rate) == ("loss", 5, 0.01)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert len(json.loads((tmp_path / "checkpoint.json").read_text())["records"]) == 4


def test_a_gradient_that_is_not_finite_stops_before_the_update():
    module, before = net(lambda: nn.Linear(3, 1)), net(lambda: nn.Linear(3, 1))

    def root_of_zero(module, batch):
        return {"loss": (module(batch[0]) * 0).square().sum().sqrt()}

    with pytest.raises(NonFiniteLoss, match="grad_norm is nan at step 1"):
        train(module, step=root_of_zero, optimizer=torch.optim.SGD)
    assert_same_bits(module, before)


def test_a_validation_loss_of_nan_stops_and_one_of_inf_is_only_bad():
    with pytest.raises(NonFiniteLoss, match="validation_loss is nan at step 5"):
        train(net(), validate=lambda module: float("nan"), validate_every=5)
    losses = iter([float("inf"), 2.0, float("inf"), 3.0])
    assert train(net(), validate=lambda module: next(losses), validate_every=5).best["step"] == 10


@pytest.mark.parametrize("losses", [[5, 4, 6, 4, 9, 0, 0], [1, 2, 2, 3, 0, 0, 0]])
def test_patience_stops_and_restores_the_best_weights(tmp_path, losses):
    scores, weights = iter(losses), []

    def validate(module):
        assert not any(part.training for part in module.modules())
        assert not torch.is_grad_enabled()
        weights.append({name: tensor.clone() for name, tensor in everything(module).items()})
        return torch.tensor(float(next(scores)))

    module = net()
    arguments = {"validate": validate, "validate_every": 2, "patience": 3, "checkpoint": tmp_path}
    history = train(module, **arguments)
    best = losses.index(min(losses[:4]))
    assert (history.stopped, history.steps) == ("patience", 2 * (best + 4))
    assert history.best is history.records[2 * best + 1]
    assert all(torch.equal(tensor, weights[best][name]) for name, tensor in everything(module).items())
    again = net()
    assert train(again, **arguments) == history
    assert_same_bits(again, module)


def test_patience_restores_the_best_weights_after_the_last_step_too():
    scores, weights = iter([3.0, 1.0, 2.0]), []

    def validate(module):
        weights.append(module.weight.clone())
        return {"loss": next(scores)}

    module = net(lambda: nn.Linear(3, 1))
    history = train(module, steps=5, validate=validate, validate_every=2, patience=2)
    assert (history.stopped, history.best["step"], len(weights)) == ("steps", 4, 3)
    assert torch.equal(module.weight, weights[1])
    scores = iter([3.0, 1.0, 2.0])
    train(module, steps=5, validate=validate, validate_every=2)
    assert torch.equal(module.weight, weights[-1])


def test_hooks_get_the_module_and_may_add_to_the_record():
    module, seen = net(), []

    def hook(step, given, record):
        assert given is module
        seen.append((step, record["loss"]))
        record["twice"] = torch.tensor(2 * record["loss"])

    frame = train(module, on_step=(hook,)).frame()
    assert seen == list(zip(frame["step"], frame["loss"], strict=True))
    np.testing.assert_allclose(frame["twice"], 2 * frame["loss"], rtol=1e-6)


def test_nested_hook_state_comes_back_as_it_was(tmp_path):
    class Keeper:
        state = None

        def __call__(self, step, module, record):
            self.state = {
                "tensors": [torch.full((2,), step, dtype=torch.bfloat16), (torch.tensor(step),)],
                1: {"1": step / 3, "nan": float("inf"), "none": None, "big": 2**100, "yes": True},
                "1": np.random.default_rng(step).bit_generator.state,
            }

        def state_dict(self):
            return self.state

        def load_state_dict(self, state):
            self.state = state

    first, second = Keeper(), Keeper()
    train(net(), on_step=[first, print_nothing], checkpoint=tmp_path)
    train(net(), on_step=[second, print_nothing], checkpoint=tmp_path)
    assert torch.equal(first.state["tensors"].pop(0), second.state["tensors"].pop(0))
    assert first.state == second.state
    assert isinstance(second.state["tensors"][0], tuple)


def print_nothing(step, module, record):
    pass


def test_a_hook_state_that_cannot_be_stored_shows_at_once(tmp_path):
    class Odd(Ema):
        def state_dict(self):
            return {"log": {1, 2}}

    calls = []
    with pytest.raises(TypeError, match=re.escape("checkpoint.hooks[0].log must hold tensors")):
        train(net(), on_step=[Odd(net())], batches=lambda i, g: calls.append(i), checkpoint=tmp_path)
    assert calls == []


def test_clip_bounds_the_update():
    module = net(lambda: nn.Linear(3, 1))
    before = torch.cat([p.detach().ravel() for p in module.parameters()])
    history = train(module, optimizer=lambda p: torch.optim.SGD(p, lr=1.0), steps=1, clip=0.01)
    after = torch.cat([p.detach().ravel() for p in module.parameters()])
    assert history.records[0]["grad_norm"] > 1
    assert (after - before).norm().item() == pytest.approx(0.01, rel=1e-3)


def test_modes_and_gradients_are_left_as_they_were():
    module = net().eval()
    train(module, step=lambda m, b: step(m, b) if module.body[1].training else crash())
    assert not any(part.training for part in module.modules())
    module.train()
    module.body[1].eval()
    frozen = module.body[1].running_mean.clone()
    train(module, validate=held_out, validate_every=3)
    assert [part.training for part in module.body] == [True, False, True, True]
    assert torch.equal(module.body[1].running_mean, frozen)
    assert all(parameter.grad is None for parameter in module.parameters())


def test_an_optimizer_of_the_callers_own_is_used():
    module = net()
    optimizer = torch.optim.SGD([{"params": module.body[3].parameters(), "lr": 0.1}])
    before = module.body[0].weight.clone()
    train(module, optimizer=optimizer)
    assert torch.equal(module.body[0].weight, before)
    assert not torch.equal(module.body[3].weight, net().body[3].weight)


@pytest.mark.parametrize(
    ("precision", "weights", "product"),
    [("bf16-mixed", torch.float32, torch.bfloat16), ("64-true", torch.float64, torch.float64)],
)
def test_the_fabric_sets_the_precision(precision, weights, product):
    seen = set()

    def look(module, batch):
        seen.add((module.weight.dtype, (batch[0] @ module.weight.T).dtype if precision == "bf16-mixed" else product))
        return step(module, batch)

    module = nn.Linear(3, 1)
    fabric = Fabric(accelerator="cpu", devices=1, precision=precision)
    train(module, step=look, fabric=fabric, steps=2)
    assert seen == {(weights, product)}
    assert module.weight.dtype == weights


def test_updates_go_through_the_fabric():
    class Counter:
        updates = 0

        def on_after_optimizer_step(self, strategy, optimizer):
            self.updates += 1

    counter = Counter()
    train(net(), fabric=Fabric(accelerator="cpu", devices=1, callbacks=[counter]), steps=3)
    assert counter.updates == 3


def test_a_double_module_stays_double():
    module = nn.Linear(3, 1).double()
    train(module, batches=lambda i, g: tuple(t.double() for t in batches(i, g)))
    assert module.weight.dtype == torch.float64


def test_progress_goes_to_stderr_and_only_when_asked(capsys):
    train(net())
    assert capsys.readouterr() == ("", "")
    train(net(), progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "20/20" in err
    assert "loss" in err


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"steps": 0}, ValueError, "steps must be at least 1, got 0"),
        ({"steps": 2.0}, TypeError, "steps must be an integer"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        ({"clip": 0.0}, ValueError, "clip must be positive"),
        ({"patience": 2}, ValueError, "patience must be None without validate, got 2"),
        ({"patience": 0, "validate": held_out}, ValueError, "patience must be at least 1"),
        ({"validate_every": 0}, ValueError, "validate_every must be at least 1"),
        ({"checkpoint_every": 0}, ValueError, "checkpoint_every must be at least 1"),
        ({"schedule": lr_scheduler.ReduceLROnPlateau}, ValueError, "schedule must advance without a metric"),
        ({"step": lambda m, b: m(b[0]).sum()}, ValueError, "step must return a dict with 'loss', got Tensor"),
        ({"step": lambda m, b: {"los": 1}}, ValueError, r"with 'loss', got keys \['los'\]"),
        (
            {"step": lambda m, b: {"loss": m(b[0])}},
            ValueError,
            r"step must give scalars, got shape \[16, 1\]",
        ),
        ({"step": lambda m, b: step(m, b) | {"lr": 1}}, ValueError, r"leave these names .* got \['lr'\]"),
        ({"validate": lambda m: "good"}, ValueError, "validate must give scalars, got str for 'loss'"),
        (
            {"on_step": [lambda s, m, r: r.update(note="x")]},
            ValueError,
            "on_step must give scalars, got str",
        ),
    ],
)
def test_bad_arguments_are_named(changes, error, message):
    with pytest.raises(error, match=message):
        train(net(), **changes)


def test_sharding_is_refused():
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric._strategy = FSDPStrategy()
    with pytest.raises(ValueError, match=r"whole module in each process .* got FSDPStrategy"):
        train(net(), fabric=fabric)


def test_without_fabric_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    spec = importlib.util.spec_from_file_location("bare", training.__file__)
    with pytest.raises(MissingExtra, match=r"pip install 'paperworks\[torch\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


# One script for all that needs processes of its own, so that torch is imported once.
SCRIPT = """
    import json, os, signal, sys
    import torch
    from lightning_fabric import Fabric
    from torch import nn
    from paperworks.core import training
    from paperworks.core.training import NonFiniteLoss, fit

    torch.set_num_threads(1)
    folder, answers = sys.argv[1], {}
    adam = lambda parameters: torch.optim.Adam(parameters, lr=0.01)

    def net():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double()

    def joined(index):
        x = torch.randn(16, 3, generator=torch.Generator().manual_seed(index), dtype=torch.float64)
        return x, x.sum(1, keepdim=True).sin()

    def step(module, batch):
        return {"loss": nn.functional.mse_loss(module(batch[0]), batch[1])}

    def flat(module):
        return torch.cat([p.detach().ravel() for p in module.parameters()]).tolist()

    class Drawn:
        def __init__(self): self.seeds = []
        def __call__(self, index, generator):
            self.seeds.append(generator.initial_seed())
            return joined(index)

    def killed():
        # A real SIGKILL, half way through the second checkpoint.
        write, calls = training.save_file, []
        def half(tensors, part):
            write(tensors, part)
            calls.append(part)
            if len(calls) == 3:
                os.truncate(part, os.path.getsize(part) // 2)
                os.kill(os.getpid(), signal.SIGKILL)
        run = dict(optimizer=adam, steps=12, seed=0, checkpoint=folder + "/killed", checkpoint_every=4)
        if (child := os.fork()) == 0:
            training.save_file = half
            fit(net(), lambda i, g: joined(i), step, **run)
            os._exit(0)
        answers["signal"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with open(folder + "/killed/checkpoint.json") as file:
            answers["killed left"] = len(json.load(file)["records"])
        module = net()
        fit(module, lambda i, g: joined(i), step, **run)
        answers["after the kill"] = flat(module)
        answers["files"] = sorted(os.listdir(folder + "/killed"))

    def distributed(fabric):
        rank = fabric.global_rank
        split = lambda index, generator: tuple(t[rank::2] for t in joined(index))
        run = dict(optimizer=adam, steps=12, seed=0, clip=0.3, fabric=fabric)
        mine = {}
        module = net()
        history = fit(module, split, step, **run)
        mine["weights"], mine["losses"] = flat(module), [r["loss"] for r in history.records]

        drawn = Drawn()
        fit(net(), drawn, step, **run)
        mine["seeds"] = drawn.seeds

        # Bad on the second process alone.
        spoil = lambda module, batch: {"loss": step(module, batch)["loss"] * (float("nan") if rank else 1.0)}
        try:
            fit(net(), split, spoil, **run)
        except NonFiniteLoss as error:
            mine["nan"] = str(error)

        # Alone, the first process would stop and the second would go on.
        scores = iter([[1.0, 2.0, 3.0, 4.0], [8.0, 6.0, 6.0, 6.0]][rank])
        history = fit(net(), split, step, validate=lambda m: next(scores), validate_every=3, patience=2, **run)
        mine["validated"] = [r["validation_loss"] for r in history.records if "validation_loss" in r]
        mine["stopped"], mine["best"] = history.stopped, history.best["step"]

        # Ctrl-C reaches the second process alone.
        module, calls = net(), []
        def interrupted(m, batch):
            calls.append(1)
            if rank and len(calls) == 5:
                signal.raise_signal(signal.SIGINT)
            return step(m, batch)
        writes = []
        write = training.save_file
        training.save_file = lambda *a: (writes.append(1), write(*a))
        try:
            fit(module, split, interrupted, checkpoint=folder + "/ddp", **run)
        except KeyboardInterrupt:
            mine["interrupted"] = len(calls)
        fabric.barrier()
        module = net()
        history = fit(module, split, step, checkpoint=folder + "/ddp", **run)
        mine["resumed"], mine["resumed losses"] = flat(module), [r["loss"] for r in history.records]
        mine["writes"] = len(writes)
        with open(f"{folder}/rank{rank}.json", "w") as file:
            json.dump(mine, file)

    killed()
    module = net()
    history = fit(module, lambda i, g: joined(i), step, optimizer=adam, steps=12, seed=0)
    answers["plain"] = flat(module)
    module = net()
    history = fit(module, lambda i, g: joined(i), step, optimizer=adam, steps=12, seed=0, clip=0.3)
    answers["weights"], answers["losses"] = flat(module), [r["loss"] for r in history.records]
    with open(folder + "/single.json", "w") as file:
        json.dump(answers, file)
    Fabric(accelerator="cpu", strategy="ddp_fork", devices=2).launch(distributed)
"""


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    script = folder / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    environment = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(folder)]
    with subprocess.Popen(
        command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as script_run:
        try:
            _, errors = script_run.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            # Its forked processes wait for each other, and would for ever.
            os.killpg(script_run.pid, signal.SIGKILL)
            raise
    assert script_run.returncode == 0, errors
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in ("single", "rank0", "rank1")}


def test_a_kill_in_the_middle_of_a_write_leaves_the_old_checkpoint(processes):
    single = processes["single"]
    assert single["signal"] == -signal.SIGKILL
    assert single["killed left"] == 4
    assert single["after the kill"] == single["plain"]
    assert single["files"] == ["checkpoint.json", "tensors-12.safetensors"]


def test_two_processes_equal_one_on_the_joined_batch(processes):
    single, first, second = processes["single"], processes["rank0"], processes["rank1"]
    assert first["weights"] == second["weights"]
    np.testing.assert_allclose(first["weights"], single["weights"], atol=1e-6, rtol=0)
    assert first["losses"] == second["losses"]
    np.testing.assert_allclose(first["losses"], single["losses"], atol=1e-6, rtol=0)


def test_each_process_has_generators_of_its_own(processes):
    assert len({*processes["rank0"]["seeds"], *processes["rank1"]["seeds"]}) == 24


def test_all_processes_stop_at_a_loss_that_is_bad_on_one(processes):
    assert processes["rank0"]["nan"] == processes["rank1"]["nan"]
    assert processes["rank0"]["nan"].startswith("loss is nan at step 1 ")


def test_processes_agree_on_validation(processes):
    for rank in ("rank0", "rank1"):
        assert processes[rank]["validated"] == [4.5, 4.0, 4.5, 5.0]
        assert (processes[rank]["best"], processes[rank]["stopped"]) == (6, "patience")


def test_processes_stop_together_and_resume(processes):
    first, second = processes["rank0"], processes["rank1"]
    assert first["interrupted"] == second["interrupted"] == 5
    assert (first["writes"] > 0, second["writes"]) == (True, 0)
    for rank in (first, second):
        assert rank["resumed"] == rank["weights"]
        assert rank["resumed losses"] == rank["losses"]
