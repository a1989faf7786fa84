from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError
from torch import Tensor
from torch.nn import functional

with warnings.catch_warnings():
    # torch_geometric compiles with torch.jit, which torch warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from paperworks.dssgnn.posthoc import GATS, CaGCN, TemperatureScaling, graph_temperatures

SEED = st.integers(0, 2**31 - 1)


def rand(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sampled(logits: Tensor, seed: int = 0) -> Tensor:
    return torch.multinomial(logits.softmax(1), 1, generator=torch.Generator().manual_seed(seed))[:, 0]


def ring(n: int) -> Tensor:
    nodes = torch.arange(n)
    after = torch.stack([nodes, (nodes + 1) % n])
    return torch.cat([after, after.flip(0)], 1)


@pytest.mark.parametrize("c", [0.3, 4.0])
def test_temperature_undoes_a_factor_of_the_logits(c: float) -> None:
    counts = torch.tensor([[6, 3, 1], [1, 1, 8], [5, 5, 0], [2, 4, 4]]) + 1
    truth = counts.double().log().repeat_interleave(counts.sum(1), 0)
    y = torch.arange(3).repeat(4).repeat_interleave(counts.flatten())
    scaling = TemperatureScaling().fit(c * truth, y)
    assert scaling.temperature_ == pytest.approx(c, rel=1e-6)
    torch.testing.assert_close(scaling.transform(c * truth), c * truth / scaling.temperature_)
    assert scaling.nll_before_ == pytest.approx(functional.cross_entropy(c * truth, y).item(), rel=1e-12)
    assert scaling.nll_after_ == pytest.approx(functional.cross_entropy(truth, y).item(), rel=1e-12)


def test_temperature_of_two_classes_is_a_log_odds() -> None:
    logits = torch.tensor([[3.0, 0.0]] * 5)
    scaling = TemperatureScaling().fit(logits, torch.tensor([0, 0, 0, 0, 1]))
    assert scaling.temperature_ == pytest.approx(3 / math.log(4), rel=1e-6)
    np.testing.assert_allclose(scaling.predict_proba(logits), [[0.8, 0.2]] * 5, atol=1e-7)


@settings(max_examples=30)
@given(SEED, st.floats(0.2, 5))
@pytest.mark.filterwarnings("ignore:the temperature")
def test_temperature_never_makes_it_worse_and_changes_no_class(seed: int, scale: float) -> None:
    logits = scale * rand(seed, 12, 3)
    y = torch.randint(3, (12,), generator=torch.Generator().manual_seed(seed))
    scaling = TemperatureScaling().fit(logits, y)
    assert scaling.nll_after_ <= scaling.nll_before_
    assert math.exp(-4) - 1e-9 <= scaling.temperature_ <= math.exp(4) + 1e-9
    assert torch.equal(scaling.transform(logits).argmax(1), logits.argmax(1))
    grid = [functional.cross_entropy(logits / math.exp(t), y).item() for t in np.linspace(-4, 4, 81)]
    assert scaling.nll_after_ <= min(grid) + 1e-9


def test_a_temperature_that_does_not_move_is_no_secret() -> None:
    with pytest.warns(UserWarning, match="stayed at 1"):
        TemperatureScaling().fit(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))
    with pytest.warns(UserWarning, match="bound of its search, 0.01832"):
        TemperatureScaling().fit(2 * torch.eye(3), torch.tensor([0, 1, 2]))
    with pytest.warns(UserWarning, match="bound of its search, 54.6"):
        TemperatureScaling().fit(2 * torch.eye(3), torch.tensor([1, 2, 0]))


@pytest.mark.parametrize("seed", range(3))
def test_graph_temperatures_are_those_of_a_loop(seed: int) -> None:
    n, classes, heads = 7, 4, 3
    z, weight, a = 2 * rand(seed, n, classes), rand(seed + 50, classes, heads), rand(seed + 60, n).exp()
    z[2] = 1.5
    slope, bias = torch.tensor(0.7, dtype=torch.float64), torch.tensor(0.4, dtype=torch.float64)
    neighbours = {i: {i} for i in range(n)}
    for i, j in [(0, 1), (1, 2), (2, 3), (3, 0), (4, 1), (4, 5)]:
        neighbours[i].add(j)
        neighbours[j].add(i)
    edges = torch.tensor([(j, i) for i in neighbours for j in sorted(neighbours[i])]).T
    confidence = [max(math.exp(v) for v in row.log_softmax(0).tolist()) for row in z]

    def tau(i: int, head: int) -> float:
        row = sorted(z[i].tolist())
        span = row[-1] - row[0]
        return sum((v - row[0]) / span * weight[c, head].item() for c, v in enumerate(row)) if span else 0.0

    expected = []
    for i in range(n):
        inner = {j: float((z[j] / a[j]) @ (z[i] / a[i])) for j in neighbours[i]}
        inner = {j: math.exp(v if v > 0 else 0.2 * v) for j, v in inner.items()}
        total = sum(inner.values())
        excess = np.mean([confidence[i] - confidence[j] for j in neighbours[i]])
        parts = [
            sum(v / total * a[j].item() * tau(j, head) for j, v in inner.items()) + 0.7 * excess
            for head in range(heads)
        ]
        expected.append(np.mean([math.log1p(math.exp(part)) for part in parts]) + 0.4)
    np.testing.assert_allclose(graph_temperatures(z, edges, a, weight, slope, bias), expected, rtol=1e-10)


def problem(seed: int = 0, n: int = 240, factor: float = 3.0) -> dict[str, Any]:
    truth = 2 * rand(seed, n, 3)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    train, val = torch.zeros(2, n, dtype=torch.bool)
    train[order[: n // 3]], val[order[n // 3 : 2 * n // 3]] = True, True
    return {
        "logits": (factor * truth).float(),
        "y": sampled(truth, seed),
        "edge_index": ring(n),
        "val_mask": val,
        "train_mask": train,
    }


def transformed(model: CaGCN | GATS, given: dict[str, Any]) -> Tensor:
    masks = {"train_mask": given["train_mask"]} if isinstance(model, GATS) else {}
    return model.transform(given["logits"], given["edge_index"], **masks)


@pytest.mark.parametrize("kind", [CaGCN, GATS])
def test_graph_calibration_helps_on_fresh_nodes_and_changes_no_class(kind: type[CaGCN] | type[GATS]) -> None:
    given = problem()
    model = kind(epochs=80).fit(**given)
    calibrated = transformed(model, given)
    fresh = ~(given["train_mask"] | given["val_mask"])
    before, after = (functional.cross_entropy(z[fresh], given["y"][fresh]) for z in (given["logits"], calibrated))
    assert after < before - 0.2
    assert model.nll_after_ < model.nll_before_ - 0.2
    val = given["val_mask"]
    assert model.nll_after_ == pytest.approx(functional.cross_entropy(calibrated[val], given["y"][val]).item())
    assert torch.equal(calibrated.argmax(1), given["logits"].argmax(1))
    unread = given["y"].where(~fresh, -1)
    assert torch.equal(transformed(kind(epochs=80).fit(**{**given, "y": unread}), given), calibrated)


@pytest.mark.parametrize("kind", [CaGCN, GATS])
def test_graph_calibration_learns_from_validation_nodes_and_stops_by_training_nodes(
    kind: type[CaGCN] | type[GATS],
) -> None:
    given = problem(n=60)
    wrong = (given["y"] + 1) % 3
    one = transformed(kind(epochs=1).fit(**given), given)
    for mask, same in (("train_mask", True), ("val_mask", False)):
        y = torch.where(given[mask], wrong, given["y"])
        assert torch.equal(transformed(kind(epochs=1).fit(**{**given, "y": y}), given), one) == same
    # Probabilities that become less extreme fit these training labels no better, so that the fit ends early.
    right = torch.where(given["train_mask"], given["logits"].argmax(1), given["y"])
    stopped = kind(epochs=60, patience=3).fit(**{**given, "y": right})
    assert stopped.nll_after_ > kind(epochs=60).fit(**given).nll_after_


def test_cagcn_multiplies_each_node_by_the_softplus_of_two_convolutions() -> None:
    given = problem()
    model = CaGCN(5, epochs=3).fit(**given)
    n, module = len(given["y"]), model.module_
    shift = (torch.eye(n) + torch.zeros(n, n).index_put(tuple(given["edge_index"]), torch.ones(2 * n))) / 3
    hidden = (shift @ given["logits"] @ module.first.lin.weight.T + module.first.bias).relu()
    assert hidden.shape[1] == 5
    factor = functional.softplus(shift @ hidden @ module.second.lin.weight.T + module.second.bias)
    torch.testing.assert_close(transformed(model, given), (given["logits"] * factor).detach(), rtol=1e-4, atol=1e-5)


def test_margin_is_small_for_sure_right_and_unsure_wrong_nodes() -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0], [2.0, 0.0, -1.0]])
    p1, p2, _ = logits[0].softmax(0).tolist()
    y = torch.tensor([0, 1])
    extra = CaGCN(margin=0.5)._loss(logits, y) - CaGCN()._loss(logits, y)
    assert extra.item() == pytest.approx(0.5 * ((1 - p1 + p2) + (p1 - p2)) / 2, rel=1e-5)
    sure, wrong = (
        CaGCN(margin=0.5)._loss(logits[:1], y[k : k + 1]) - CaGCN()._loss(logits[:1], y[k : k + 1]) for k in (0, 1)
    )
    assert sure.item() == pytest.approx(0.5 * (1 - p1 + p2), rel=1e-5)
    assert wrong.item() == pytest.approx(0.5 * (p1 - p2), rel=1e-5)


def test_gats_starts_from_nearly_one_temperature_and_tells_training_nodes_and_their_neighbours() -> None:
    n = 6
    edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    train = torch.arange(n) == 0
    given = {"logits": rand(0, n, 3), "y": torch.zeros(n, dtype=torch.long), "edge_index": edges}
    model = GATS(epochs=1).fit(**given, train_mask=train, val_mask=torch.arange(n) == 4)
    _, place = model._inputs(given["logits"], edges, train)
    assert place.tolist() == [0, 1, 2, 2, 2, 2]
    names = {name: tuple(value.shape) for name, value in model.module_.named_parameters()}
    assert names == {"weight": (3, 8), "cluster": (2,), "slope": (), "bias": ()}
    with torch.no_grad():
        model.module_.bias.fill_(-5)
    floor = model.transform(given["logits"], edges, train)
    torch.testing.assert_close(floor, given["logits"] / 0.01)


def test_calibration_carries_over_to_another_graph() -> None:
    given, other = problem(), problem(seed=1)
    for model in (CaGCN(epochs=80), GATS(epochs=80)):
        calibrated = transformed(model.fit(**given), other)
        assert functional.cross_entropy(calibrated, other["y"]) < functional.cross_entropy(other["logits"], other["y"])


def test_constant_logits_stay_constant() -> None:
    given = problem(n=30)
    given["logits"][3] = 0.7
    for model in (CaGCN(epochs=20), GATS(epochs=20)):
        calibrated = transformed(model.fit(**given), given)
        assert calibrated.isfinite().all()
        assert calibrated[3].max() == calibrated[3].min()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": rand(0, 30, 3).softmax(1)}, "rows sum to 1: these look like probabilities"),
        ({"logits": rand(0, 30, 3).index_fill(0, torch.tensor([4]), math.inf)}, "must be finite, .* in row 4"),
        ({"y": torch.full((30,), 3)}, "y holds class 3 but logits have 3 columns"),
        ({"y": torch.full((30,), -1)}, "y holds class -1"),
        ({"val_mask": torch.zeros(30, dtype=torch.bool)}, "val_mask must hold at least one node"),
        ({"train_mask": torch.zeros(30, dtype=torch.bool)}, "train_mask must hold at least one node"),
        ({"val_mask": torch.ones(4, dtype=torch.bool)}, r"val_mask must have shape \(30,\), got \(4,\)"),
    ],
)
@pytest.mark.untyped
def test_bad_input_is_named(change: dict[str, Any], message: str) -> None:
    given = {**problem(n=30), **change}
    for model in (CaGCN(), GATS()):
        with pytest.raises(ValueError, match=message):
            model.fit(**given)
    if "mask" not in next(iter(change)):
        with pytest.raises(ValueError, match=message):
            TemperatureScaling().fit(given["logits"], given["y"])


@pytest.mark.untyped
def test_misuse_is_named() -> None:
    with pytest.raises(ValueError, match=r"y must have shape \(3,\), got \(2,\)"):
        TemperatureScaling().fit(torch.eye(3) * 2, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="at least one row"):
        TemperatureScaling().fit(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))
    with pytest.raises(ValueError, match=r"shape \(nodes, classes\), got \(3,\)"):
        TemperatureScaling().fit(torch.zeros(3), torch.zeros(3, dtype=torch.long))
    with pytest.raises(NotFittedError):
        TemperatureScaling().transform(torch.eye(3) * 2)
    with pytest.raises(NotFittedError):
        CaGCN().transform(torch.eye(3) * 2, ring(3))
    scaling = TemperatureScaling().fit(torch.tensor([[4.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1]))
    with pytest.raises(ValueError, match="look like probabilities"):
        scaling.transform(torch.tensor([[0.5, 0.5]]))
