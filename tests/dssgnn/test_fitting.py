from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paperworks.dssgnn.fitting import pick_device, train


class Point(nn.Module):
    """Two numbers to move."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(1))
        self.second = nn.Parameter(torch.zeros(1))


def total(module: Any) -> Tensor:
    """Its gradient is 1 everywhere, so that each step of Adam is by the learning rate."""
    return (module.first + module.second).sum()


def scripted(losses: Iterable[float]) -> Callable[[nn.Module], float]:
    values = iter(losses)
    return lambda module: next(values)


def both(module: Point) -> list[float]:
    return [module.first.item(), module.second.item()]


class TestSteps:
    def test_one_step_an_epoch_by_the_learning_rate(self) -> None:
        for lr, epochs in ((0.01, 1), (0.01, 7), (0.25, 3)):
            module = Point()
            history = train(module, total, module.parameters(), lr=lr, epochs=epochs, seed=0)
            assert both(module) == pytest.approx([-lr * epochs] * 2, rel=1e-4)
            assert (history.steps, history.stopped) == (epochs, "steps")
        module = Point()
        train(module, total, module.parameters(), epochs=1, seed=0)
        assert both(module) == pytest.approx([-0.01] * 2, rel=1e-4)

    def test_groups_have_learning_rates_and_decays_of_their_own(self) -> None:
        module = Point()
        with torch.no_grad():
            module.second.fill_(10.0)
        groups = [{"params": [module.first], "lr": 0.5}, {"params": [module.second], "weight_decay": 1.0}]
        train(module, lambda net: (net.first + 0 * net.second).sum(), groups, lr=0.125, epochs=2, seed=0)
        assert both(module) == pytest.approx([-1.0, 9.75], rel=1e-3)
        module = Point()
        train(module, total, [module.first], lr=0.5, epochs=2, seed=0)
        assert both(module) == pytest.approx([-1, 0], rel=1e-4)


class TestValidation:
    @pytest.mark.parametrize(
        ("patience", "every", "steps"), [(8, 4, 12), (100, 4, 40), (4, 4, 8), (3, 4, 8), (5, 1, 6), (1, 1, 2)]
    )
    def test_patience_is_in_epochs(self, patience: int, every: int, steps: int) -> None:
        """The first validation is the best; training ends `patience` epochs later, after one more validation at least."""
        module = Point()
        history = train(
            module, total, module.parameters(), validate=lambda net: 1.0, epochs=40, patience=patience,
            evaluate_every=every, seed=0,
        )  # fmt: skip
        assert history.steps == steps
        assert history.stopped == ("steps" if steps == 40 else "patience")
        assert [record["step"] for record in history.records] == list(range(every, steps + 1, every))

    def test_ends_with_the_best_validated_weights(self) -> None:
        module = Point()
        history = train(
            module, total, module.parameters(), validate=scripted([3, 2, 1, 5, 4]), epochs=20, evaluate_every=4, seed=0
        )
        assert history.best is not None
        assert (history.best["step"], history.best["validation_loss"]) == (12, 1)
        assert both(module) == pytest.approx([-0.12] * 2, rel=1e-4)
        # Of equal ones the first; and the last epoch is validated too.
        module = Point()
        train(module, total, module.parameters(), validate=scripted([2, 2, 1]), epochs=9, evaluate_every=4, seed=0)
        assert both(module) == pytest.approx([-0.09] * 2, rel=1e-4)
        module = Point()
        train(module, total, module.parameters(), validate=scripted([2, 2]), epochs=8, evaluate_every=4, seed=0)
        assert both(module) == pytest.approx([-0.04] * 2, rel=1e-4)

    def test_without_validation_the_last_weights_stay(self) -> None:
        module = Point()
        history = train(module, total, module.parameters(), epochs=12, patience=1, evaluate_every=4, seed=0)
        assert both(module) == pytest.approx([-0.12] * 2, rel=1e-4)
        assert history.best is None

    def test_in_eval_mode_without_gradients(self) -> None:
        module, modes = Point(), []

        def validate(net: nn.Module) -> dict[str, Any]:
            modes.append((net.training, torch.is_grad_enabled(), net is module))
            return {"loss": 1.0, "accuracy": 0.5}

        def loss(net: nn.Module) -> Tensor:
            assert net.training
            return total(net)

        module.eval()
        history = train(module, loss, module.parameters(), validate=validate, epochs=4, evaluate_every=2, seed=0)
        assert modes == [(False, False, True)] * 2
        assert not module.training
        assert history.best is not None
        assert history.best["validation_accuracy"] == 0.5


class TestSeed:
    @staticmethod
    def trained(seed: int) -> list[float]:
        module, weights = Point(), torch.ones(64)

        def loss(net: Any) -> Tensor:
            noise = nn.functional.dropout(weights, 0.5).mean()
            return ((net.first - noise) ** 2 + (net.second + torch.rand(1)) ** 2).sum()

        train(module, loss, module.parameters(), lr=0.1, epochs=6, seed=seed)
        return both(module)

    def test_alone_decides(self) -> None:
        torch.manual_seed(1)
        first = self.trained(5)
        torch.manual_seed(2)
        assert self.trained(5) == first
        assert self.trained(6) != first

    def test_torchs_own_generator_is_left_as_it_was(self) -> None:
        torch.manual_seed(7)
        before = torch.random.get_rng_state()
        self.trained(0)
        assert torch.equal(torch.random.get_rng_state(), before)


class TestArguments:
    @pytest.mark.parametrize("name", ["epochs", "patience", "evaluate_every"])
    @pytest.mark.parametrize("value", [0, -3])
    def test_counts(self, name: str, value: int) -> None:
        module = Point()
        with pytest.raises(ValueError, match=f"{name}.*{value}"):
            train(module, total, module.parameters(), seed=0, **{name: value})  # type: ignore[arg-type]

    def test_devices(self) -> None:
        assert pick_device("cpu") == pick_device(torch.device("cpu")) == torch.device("cpu")
        assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
        assert pick_device("meta") == torch.device("meta")
        for absent in ("abacus", "cuda:99"):
            with pytest.raises(
                ValueError, match=f"device must be 'auto' or a device of torch on this machine, got '{absent}'"
            ):
                pick_device(absent)

    def test_shows_progress_if_asked(self, capfd: pytest.CaptureFixture[str]) -> None:
        for verbose in (0, 1):
            module = Point()
            train(module, total, module.parameters(), epochs=2, seed=0, verbose=verbose)
            assert ("2/2" in capfd.readouterr().err) == bool(verbose)
