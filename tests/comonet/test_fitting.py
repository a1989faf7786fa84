import math

import pytest
import torch
from torch import nn

from paperworks.comonet.fitting import LOSSES, FitLog, Objective, OrdinalLoss, fit_adam, fit_lbfgs, make_loss
from paperworks.comonet.network import COMONet


class Flat(nn.Module):
    """A linear net from (n, d) to (n,)."""

    def __init__(self, d: int = 2) -> None:
        super().__init__()
        self.linear = nn.Linear(d, 1).double()
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)[:, 0]


def line(n: int = 64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, 1 + x @ torch.tensor([2.0, -1.0], dtype=torch.float64), torch.ones(n, dtype=torch.float64)


def squared(net: nn.Module, alpha: float = 0.0) -> Objective:
    return Objective(net, make_loss("squared_error"), alpha=alpha, total_weight=64.0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("squared_error", 4.0),
        ("absolute_error", 2.0),
        ("huber", 1.5),
        ("quantile", 0.2),
        ("poisson", math.exp(3) - 3),
        ("logistic", math.log1p(math.exp(3)) - 3),
    ],
)
def test_losses_have_their_closed_forms_at_output_3_and_target_1(name, expected):
    g, t = torch.tensor([3.0], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64)
    assert make_loss(name, quantile=0.9)(g, t).item() == pytest.approx(expected)


def test_the_log_link_compares_the_exponential():
    g, t = torch.tensor([math.log(3.0)]), torch.tensor([1.0])
    assert make_loss("squared_error", log_link=True)(g, t).item() == pytest.approx(4.0, rel=1e-5)


@pytest.mark.parametrize("name", ["quantile", "absolute_error"])
def test_the_best_constant_of_a_quantile_loss_is_the_quantile(name):
    t = torch.arange(101, dtype=torch.float64)
    loss = make_loss(name, quantile=0.8)
    total = torch.stack([loss(c.expand(101), t).sum() for c in t])
    assert int(total.argmin()) == (80 if name == "quantile" else 50)


@pytest.mark.untyped
def test_bad_losses():
    with pytest.raises(ValueError, match="loss must be one of"):
        make_loss("hinge")
    with pytest.raises(ValueError, match="quantile must be inside"):
        make_loss("quantile", quantile=1.0)
    assert len(LOSSES) == 6


def test_ordinal_probabilities_sum_to_one_and_move_up_with_the_output():
    loss = OrdinalLoss(torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64))
    nn.init.normal_(loss.theta, std=3.0, generator=torch.Generator().manual_seed(1))
    g = torch.linspace(-30, 30, 61, dtype=torch.float64)
    p = torch.stack([torch.exp(-loss(g, torch.full_like(g, k))) for k in range(4)], dim=1)
    assert torch.allclose(p.sum(1), torch.ones_like(g))
    assert bool((loss.thresholds.diff() > 0).all())
    assert bool((p.flip(1).cumsum(1).diff(dim=0) >= -1e-15).all())


def test_the_penalty_is_the_sum_of_squared_effective_weights():
    net = COMONet(["increasing", "free"], width=3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x, t, w = line()
    plain, punished = squared(net), squared(net, alpha=32.0)
    layers = [part for part in net.modules() if hasattr(part, "theta")]
    expected = sum(part.theta.exp().square().sum() + part.A.square().sum() for part in layers) / 2
    assert (punished(x, t, w) - plain(x, t, w)).item() == pytest.approx(expected.item())


def test_product_banks_are_penalised():
    shapes, domain = ["increasing", "convex"], [[-5.0, 5.0], [-5.0, 5.0]]
    net = COMONet(shapes, interactions="product", domain=domain, dtype=torch.float64)
    x, t, w = line()
    assert squared(net, alpha=1.0)(x, t, w).item() > squared(net)(x, t, w).item()


def test_lbfgs_solves_least_squares_exactly():
    net = Flat()
    log = fit_lbfgs(squared(net), line())
    assert log.converged
    assert log.n_iter < 20
    assert net.linear.weight.detach().numpy()[0] == pytest.approx([2.0, -1.0], abs=1e-5)
    assert log.loss == sorted(log.loss, reverse=True)


def test_lbfgs_keeps_what_fits_the_held_out_rows_best():
    x, t, w = line()
    held = x, -t, w
    net = Flat()
    log = fit_lbfgs(squared(net), (x, t, w), validation=held, patience=5, max_iter=100)
    # Every step towards t leads away from -t.
    assert not net.linear.weight.any()
    assert log.n_iter <= 20


def test_adam_comes_near_and_repeats_itself():
    nets = Flat().float(), Flat().float()
    rows = tuple(part.float() for part in line())
    logs = [fit_adam(squared(net), rows, max_iter=20, batch_size=16, learning_rate=0.2, seed=3) for net in nets]
    assert nets[0].linear.weight.detach().numpy()[0] == pytest.approx([2.0, -1.0], abs=0.02)
    assert torch.equal(nets[0].linear.weight, nets[1].linear.weight)
    assert isinstance(logs[0], FitLog)
    assert logs[0].n_iter == len(logs[0].loss) == 20


def test_adam_stops_when_held_out_rows_get_worse():
    x, t, w = (part.float() for part in line())
    log = fit_adam(squared(Flat().float()), (x, t, w), validation=(x, -t, w), max_iter=100, patience=3)
    assert log.converged
    assert log.n_iter < 10


class Cliff(Flat):
    """Its outputs are infinite once the first weight has left a small interval."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + torch.where(self.linear.weight[0, 0].abs() > 0.3, torch.inf, 0.0)


def test_a_line_search_that_meets_infinity_is_carried_on_by_adam_or_reported():
    with pytest.raises(RuntimeError, match="scale the data, or raise alpha"):
        fit_lbfgs(squared(Cliff()), line(), max_iter=200)
    net = Cliff()
    x, _, w = line()
    # The optimum is inside, but the first step of the line search is too long.
    log = fit_lbfgs(squared(net), (x, 100 * x[:, 1], w), max_iter=5)
    assert math.isfinite(log.loss[-1])
