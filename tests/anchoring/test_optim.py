"""The torch optimizers make the iterates of the methods that they are named after."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from paperworks.anchoring import bases, drive, schedules
from paperworks.anchoring.data import ouyang_xu
from paperworks.anchoring.optim import AnchoredExtragradient, AnchoredForward, AnchoredPopov

METHODS: dict[str, tuple[Any, Any]] = {
    "forward": (AnchoredForward, "forward"),
    "extragradient": (AnchoredExtragradient, "extragradient"),
    "popov": (AnchoredPopov, "popov"),
    "popov-stored": (AnchoredPopov, bases.popov("stored")),
}


def options(name: str) -> dict[str, Any]:
    return {"past": "stored"} if name == "popov-stored" else {}


class Saddle:
    """½xᵀHx − hᵀx − ⟨Ax − b, y⟩ of Ouyang and Xu, to be minimised over x and maximised over y."""

    def __init__(self, n: int) -> None:
        problem = ouyang_xu(n)
        assert problem.matrix is not None
        assert problem.b is not None
        matrix, b = torch.from_numpy(problem.matrix), torch.from_numpy(problem.b)
        self.H, self.A, self.h, self.b = matrix[:n, :n], matrix[n:, :n], b[:n], b[n:]
        self.lipschitz = problem.lipschitz
        self.x = torch.nn.Parameter(torch.zeros(n, dtype=torch.float64))
        self.y = torch.nn.Parameter(torch.zeros(n, dtype=torch.float64))

    def loss(self) -> torch.Tensor:
        x, y = self.x, self.y
        return x @ (self.H @ x) / 2 - self.h @ x - (self.A @ x - self.b) @ y

    def groups(self) -> list[dict[str, Any]]:
        return [{"params": [self.x]}, {"params": [self.y], "maximize": True}]

    def run(self, optimizer: torch.optim.Optimizer, steps: int) -> None:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = self.loss()
            loss.backward()
            return loss

        for _ in range(steps):
            optimizer.step(closure)

    @property
    def point(self) -> Any:
        return torch.cat([self.x, self.y]).detach().numpy().copy()


@pytest.mark.parametrize("name", METHODS)
def test_iterates_are_those_of_the_numpy_reference(name: str) -> None:
    """500 steps by autograd; the parameters of Popov's method are one look-ahead before its iterate."""
    make, method = METHODS[name]
    saddle, problem = Saddle(100), ouyang_xu(100)
    optimizer = make(saddle.groups(), lipschitz=saddle.lipschitz, **options(name))
    saddle.run(optimizer, 500 + name.startswith("popov"))
    reference = drive.solve_equation(
        problem.matrix, problem.x0, b=problem.b, method=method, lipschitz=problem.lipschitz, maxiter=500, tol=0
    )
    assert reference.nit == 500
    with optimizer.iterate():
        assert np.abs(saddle.point - reference.x).max() <= 1e-10
    if name.startswith("popov"):
        assert np.abs(saddle.point - reference.x).max() > 1e-4


def rotation_orbit(make: Any, steps: int, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """Play min over x, max over y of x·y from (1, 0)."""
    x = torch.nn.Parameter(torch.ones((), dtype=torch.float64))
    y = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
    optimizer = make([{"params": [x]}, {"params": [y], "maximize": True}], lipschitz=1.0, **kwargs)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = x * y
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return x, y, optimizer


@pytest.mark.parametrize(
    ("make", "kwargs", "steps", "expected"),
    [
        (AnchoredExtragradient, {}, 1, (0.68359375, 0.45703125)),
        (AnchoredExtragradient, {}, 10, (0.0253836348, 0.1484172806)),
        (AnchoredPopov, {}, 2, (0.93109375, 0.21328125)),
        (AnchoredPopov, {}, 11, (-0.0867112277, 0.3920744629)),
        (AnchoredPopov, {"past": "stored"}, 3, (0.833203125, 0.3864739583)),
        (AnchoredPopov, {"past": "stored"}, 11, (-0.1060595174, 0.3991219111)),
        (AnchoredForward, {}, 1, (1.0, 3**-0.5)),
        (AnchoredForward, {}, 10, (0.1626212505, 0.2691773277)),
    ],
)
def test_known_iterates_of_a_rotation(
    make: Any, kwargs: dict[str, Any], steps: int, expected: tuple[float, float]
) -> None:
    x, y, optimizer = rotation_orbit(make, steps, **kwargs)
    with optimizer.iterate():
        assert (x.item(), y.item()) == pytest.approx(expected, abs=1e-10)


def test_popov_asks_where_it_looks_ahead() -> None:
    """y₀ = x₀ − η₀F(x₀) with η₀ = 0.45 − 1.5/8."""
    x, y, optimizer = rotation_orbit(AnchoredPopov, 1)
    assert (x.item(), y.item()) == pytest.approx((1.0, 0.45 - 1.5 / 8))
    with optimizer.iterate():
        assert (x.item(), y.item()) == (1.0, 0.0)
        with optimizer.iterate():
            assert (x.item(), y.item()) == (1.0, 0.0)
        x.data.fill_(7.0)
    assert (x.item(), y.item()) == pytest.approx((1.0, 0.45 - 1.5 / 8))


def test_iterate_gives_the_parameters_back_after_an_error() -> None:
    x, _, optimizer = rotation_orbit(AnchoredPopov, 5)
    before = x.item()
    inside = []

    def fail() -> None:
        with optimizer.iterate():
            inside.append(x.item())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert x.item() == before
    assert inside[0] != before
    optimizer.step()


def test_no_step_is_made_with_lent_parameters() -> None:
    _, _, optimizer = rotation_orbit(AnchoredPopov, 5)
    with optimizer.iterate(), pytest.raises(RuntimeError, match="iterate"):
        optimizer.step()


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("through", ["file", "deepcopy"])
def test_a_resumed_run_is_the_uninterrupted_one(name: str, through: str) -> None:
    make, _ = METHODS[name]
    whole, first, second = Saddle(5), Saddle(5), Saddle(5)
    optimizer = make(whole.groups(), lipschitz=whole.lipschitz, a=2.0, b=12.0, **options(name))
    whole.run(optimizer, 20)
    begun = make(first.groups(), lipschitz=first.lipschitz, a=2.0, b=12.0, **options(name))
    first.run(begun, 7)
    saved = begun.state_dict()
    if through == "file":
        file = io.BytesIO()
        torch.save(saved, file)
        file.seek(0)
        saved = torch.load(file, weights_only=True)
    else:
        saved = copy.deepcopy(saved)
    second.x.data.copy_(first.x.data)
    second.y.data.copy_(first.y.data)
    resumed = make(second.groups(), lipschitz=3.0)  # what was saved replaces it
    resumed.load_state_dict(saved)
    second.run(resumed, 13)
    assert np.array_equal(second.point, whole.point)
    with resumed.iterate(), optimizer.iterate():
        assert np.array_equal(second.point, whole.point)


def test_groups_have_steps_and_schedules_of_their_own() -> None:
    """Two games side by side: each group's orbit is the one it has alone."""
    x = torch.nn.Parameter(torch.ones(3))
    y = torch.nn.Parameter(torch.full((2,), 2.0))
    optimizer = AnchoredForward(
        [{"params": [x], "lipschitz": 4.0}, {"params": [y], "lr": 0.5, "a": 1.5, "b": 5.0}], lipschitz=1.0
    )
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.5]
    for _ in range(10):
        optimizer.zero_grad()
        (2 * (x**2).sum() + (y**2).sum()).backward()
        optimizer.step()
    for parameter, L, plan, start in (
        (x, 4.0, schedules.forward(), 1.0),
        (y, 2.0, schedules.forward(1.5, 5), 2.0),
    ):
        alone = drive.solve_equation(
            lambda z, L=L: L * z,
            np.full(parameter.shape, start),
            method="forward",
            schedule=plan,
            lipschitz=L,
            maxiter=10,
            tol=0,
        )
        assert parameter.detach().numpy() == pytest.approx(alone.x, rel=1e-5)


def test_maximize_is_the_gradient_of_the_negated_loss() -> None:
    def run(sign: float, maximize: bool) -> float:
        x = torch.nn.Parameter(torch.tensor(1.0))
        optimizer = AnchoredPopov([x], lipschitz=2.0, maximize=maximize)
        for _ in range(8):
            optimizer.zero_grad()
            (sign * (x - 3) ** 2).backward()
            optimizer.step()
        return x.item()

    assert run(-1.0, True) == run(1.0, False)
    assert run(-1.0, True) != pytest.approx(run(1.0, True))


def test_a_scheduler_changes_the_step() -> None:
    """With lr halved after each step of F = z, x⁺ = x − lr·η_k·x − δ_k(x − x₀)."""
    p = torch.nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
    optimizer = AnchoredForward([p], lipschitz=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    x = 1.0
    for k in range(6):
        optimizer.zero_grad()
        (p**2 / 2).backward()
        optimizer.step()
        scheduler.step()
        delta = 2 / (k + 3)
        x = x - 0.5**k * (delta - 0.75 * delta**2) ** 0.5 * x - delta * (x - 1)
        assert p.item() == pytest.approx(x, abs=1e-14)
    assert optimizer.param_groups[0]["lr"] == 2.0**-6


def test_a_parameter_without_gradient_stays_and_starts_later() -> None:
    for make in (AnchoredForward, AnchoredPopov, AnchoredExtragradient):
        x, late = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
        optimizer = make([x, late], lipschitz=1.0)

        def closure(both: bool, x: Any = x, late: Any = late, optimizer: Any = optimizer) -> Callable[[], Any]:
            def run() -> torch.Tensor:
                optimizer.zero_grad()
                loss = (x**2).sum() / 2 + ((late**2).sum() / 2 if both else 0)
                loss.backward()
                return loss

            return run

        trail = []
        for k in range(7):
            optimizer.step(closure(k >= 3))
            trail.append((x[0].item(), late[0].item()))
        assert [point for _, point in trail[:3]] == [1.0, 1.0, 1.0]
        assert [point for _, point in trail[3:]] == [point for point, _ in trail[:4]]


def test_the_loss_of_the_closure_is_returned() -> None:
    """Of the extragradient method at the iterate, not at the point ahead; without a closure there is none."""
    for make in (AnchoredForward, AnchoredPopov, AnchoredExtragradient):
        saddle = Saddle(3)
        optimizer = make(saddle.groups(), lipschitz=1.0)
        saddle.run(optimizer, 2)
        expected = saddle.loss().item()

        def closure(saddle: Saddle = saddle, optimizer: Any = optimizer) -> torch.Tensor:
            assert torch.is_grad_enabled()
            optimizer.zero_grad()
            loss = saddle.loss()
            loss.backward()
            return loss

        assert optimizer.step(closure).item() == expected
    assert optimizer.zero_grad() is None
    forward = AnchoredForward([torch.nn.Parameter(torch.ones(1))], lipschitz=1.0)
    assert forward.step() is None


def test_extragradient_needs_a_closure_and_undoes_a_step_whose_second_half_fails() -> None:
    saddle = Saddle(3)
    optimizer = AnchoredExtragradient(saddle.groups(), lipschitz=1.0)
    saddle.run(optimizer, 3)
    with pytest.raises(TypeError, match="closure"):
        optimizer.step()
    before, calls = saddle.point, []

    def closure() -> torch.Tensor:
        calls.append(saddle.point)
        if len(calls) == 2:
            raise KeyboardInterrupt
        optimizer.zero_grad()
        loss = saddle.loss()
        loss.backward()
        return loss

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure)
    assert not np.array_equal(calls[1], before)
    assert np.array_equal(saddle.point, before)
    assert [state["step"] for state in optimizer.state.values()] == [3, 3]


@pytest.mark.parametrize("name", METHODS)
def test_complex_and_half_precision_parameters_keep_their_dtype(name: str) -> None:
    make, _ = METHODS[name]
    for dtype in (torch.complex64, torch.float32, torch.bfloat16):
        p = torch.nn.Parameter(torch.full((2, 2), 1.0, dtype=dtype))
        optimizer = make([p], lipschitz=1.0, **options(name))

        def closure(p: Any = p, optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = (p * p.conj()).real.sum() / 2
            loss.backward()
            return loss

        for _ in range(40):
            optimizer.step(closure)
        with optimizer.iterate():
            assert p.dtype == dtype
            assert p.abs().max().item() < 0.5


def test_parameters_may_be_on_several_devices() -> None:
    """Nothing is computed across parameters: one on the device without data does not disturb the other."""
    here, alone = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    there = torch.nn.Parameter(torch.ones(5, device="meta"))
    optimizer, reference = AnchoredPopov([here, there], lipschitz=1.0), AnchoredPopov([alone], lipschitz=1.0)
    for _ in range(4):
        here.grad, alone.grad, there.grad = here.detach().clone(), alone.detach().clone(), torch.ones(5, device="meta")
        optimizer.step()
        reference.step()
    assert torch.equal(here, alone)
    assert optimizer.state[there]["iterate"].device.type == "meta"


def test_the_residual_is_the_norm_over_all_parameters() -> None:
    x, y = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = AnchoredForward([{"params": [x]}, {"params": [y], "maximize": True}], lipschitz=1.0)
    assert optimizer.residual() == 0.0
    x.grad, y.grad = torch.tensor([2.0, 3.0]), torch.tensor([6.0], dtype=torch.float64)
    assert optimizer.residual() == pytest.approx(7.0)


def test_sparse_gradients_are_refused() -> None:
    for make in (AnchoredForward, AnchoredPopov, AnchoredExtragradient):
        table = torch.nn.Embedding(5, 2, sparse=True)
        before = table.weight.detach().clone()
        optimizer = make(table.parameters(), lipschitz=1.0)

        def closure(table: Any = table, optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = table(torch.tensor([1])).sum()
            loss.backward()
            return loss

        with pytest.raises(TypeError, match="dense gradients"):
            optimizer.step(closure)
        assert torch.equal(table.weight, before)


@pytest.mark.parametrize(
    ("make", "kwargs", "error", "message"),
    [
        (AnchoredPopov, {"lipschitz": 0.0}, ValueError, "lipschitz must be positive"),
        (AnchoredPopov, {"lipschitz": float("nan")}, ValueError, "lipschitz must be positive"),
        (AnchoredForward, {"lipschitz": float("inf")}, ValueError, "lipschitz must be positive"),
        (AnchoredForward, {"lipschitz": "1"}, TypeError, "lipschitz"),
        (AnchoredForward, {"lipschitz": 1.0, "a": 4.0}, ValueError, "b must be at least a"),
        (AnchoredForward, {"lipschitz": 1.0, "a": -1.0}, ValueError, "a must be positive"),
        (AnchoredExtragradient, {"lipschitz": 1.0, "mu": 1.0}, ValueError, "mu must be below 1"),
        (AnchoredExtragradient, {"lipschitz": 1.0, "a": 7.0}, ValueError, "a / b must be below mu"),
        (AnchoredPopov, {"lipschitz": 1.0, "mu": 0.578}, ValueError, "mu must be below 0.5774"),
        (AnchoredPopov, {"lipschitz": 1.0, "past": "twice"}, ValueError, "'requery', 'stored'"),
        (AnchoredPopov, {"lipschitz": 1.0, "maximize": "yes"}, ValueError, "maximize"),
    ],
)
@pytest.mark.untyped
def test_bad_options(make: Any, kwargs: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make([torch.nn.Parameter(torch.ones(1))], **kwargs)


@pytest.mark.untyped
def test_bad_options_of_a_group() -> None:
    p = torch.nn.Parameter(torch.ones(1))
    for group in ({"lipschitz": -1.0}, {"lr": -1.0}, {"mu": 0.9}, {"past": "other"}):
        with pytest.raises(ValueError, match="must be"):
            AnchoredPopov([{"params": [p], **group}], lipschitz=1.0)
    optimizer = AnchoredPopov([p], lipschitz=1.0)
    with pytest.raises(ValueError, match="a / b"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "a": 8.0})
    assert len(optimizer.param_groups) == 1
