from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import Tensor, nn
from torch.nn import functional

from paperworks.dssgnn import encoders
from paperworks.dssgnn.data import contextual_sbm
from paperworks.dssgnn.encoders import EncoderClassifier, GCNEncoder
from paperworks.dssgnn.estimator import DSSClassifier
from paperworks.dssgnn.fitting import train
from paperworks.dssgnn.nn import DSSHybrid

with warnings.catch_warnings():
    # It compiles with torch.jit, which torch warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.data import Data
    from torch_geometric.nn import GCNConv

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CS", "ignore:Sparse invariant checks")

F, H, C = 5, 8, 3
COPIES = pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
RING = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
EDGES = torch.cat([RING, RING.flip(0)], 1)
CHORD = torch.tensor([[0, 3], [3, 0]])


def features(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(6, F, generator=torch.Generator().manual_seed(0)).to(dtype)


def network(seed: int = 0, **options: Any) -> GCNEncoder:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GCNEncoder(F, H, C, **options).eval()


def fresh(encoder: GCNEncoder) -> GCNEncoder:
    """Another one with the same weights, which has seen no graph."""
    other = network(9, layers=len(encoder.convolutions)).to(next(encoder.parameters()).dtype)
    other.load_state_dict(encoder.state_dict())
    return other


@pytest.fixture
def normalised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of edges of every graph that was normalised."""
    seen: list[int] = []
    shift = encoders.normalized_shift

    def counted(edge_index: Tensor, *others: Any, **named: Any) -> Tensor:
        seen.append(edge_index.shape[1])
        return shift(edge_index, *others, **named)

    monkeypatch.setattr(encoders, "normalized_shift", counted)
    return seen


class TestNetwork:
    @pytest.mark.parametrize("layers", [1, 2, 3])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_is_a_stack_of_convolutions(self, layers: int, weighted: bool) -> None:
        encoder = network(layers=layers)
        weight = torch.cat([torch.arange(1.0, 7)] * 2) if weighted else None
        x = features()
        expected = x
        for number, convolution in enumerate(encoder.convolutions):
            plain = GCNConv(convolution.in_channels, convolution.out_channels, normalize=True)
            plain.load_state_dict(convolution.state_dict())
            expected = plain(expected.relu() if number else expected, EDGES, weight)
        torch.testing.assert_close(encoder(x, EDGES, weight), expected, atol=1e-5, rtol=0)
        assert expected.shape == (6, C)

    def test_sparse_features_are_dense_features(self) -> None:
        encoder, x = network(), features().relu()
        torch.testing.assert_close(encoder(x.to_sparse_csr(), EDGES), encoder(x, EDGES), atol=1e-6, rtol=0)

    def test_widths(self) -> None:
        shapes = [tuple(c.lin.weight.shape) for c in network(layers=3).convolutions]
        assert shapes == [(H, F), (H, H), (C, H)]

    def test_dropout_of_features_is_that_of_hidden_units_unless_given(self) -> None:
        x = features()
        assert (network(dropout=0.25).input_dropout, network(input_dropout=0.0).input_dropout) == (0.25, 0.0)
        single = network(layers=1, dropout=0.5, input_dropout=0.0).train()
        torch.testing.assert_close(single(x, EDGES), single.eval()(x, EDGES))
        for encoder in (network(layers=1, dropout=0.5).train(), network(input_dropout=0.0).train()):
            torch.manual_seed(0)
            first = encoder(x, EDGES)
            assert not torch.equal(encoder(x, EDGES), first)
            torch.manual_seed(0)
            assert torch.equal(encoder(x, EDGES), first)

    def test_weights_start_anew(self) -> None:
        encoder = network(0)
        torch.manual_seed(3)
        encoder.reset_parameters()
        first = copy.deepcopy(encoder.state_dict())
        assert not torch.equal(first["convolutions.1.lin.weight"], network(0).state_dict()["convolutions.1.lin.weight"])
        torch.manual_seed(3)
        encoder.reset_parameters()
        assert all(torch.equal(value, first[name]) for name, value in encoder.state_dict().items())

    @pytest.mark.untyped
    @pytest.mark.parametrize("layers", [0, -1, 1.5])
    def test_number_of_layers(self, layers: Any) -> None:
        with pytest.raises((ValueError, TypeError), match="layers"):
            GCNEncoder(F, H, C, layers)


class TestKnownEdges:
    """Edges are normalised once, and again as soon as anything about them is another."""

    def test_the_same_edges_are_normalised_once(self, normalised: list[int]) -> None:
        encoder, x = network(), features()
        first = encoder(x, EDGES)
        assert torch.equal(encoder(x + 0, EDGES), first)
        encoder.train()(x, EDGES)
        assert len(normalised) == 1

    def test_other_edges(self) -> None:
        encoder, x = network(), features()
        longer = torch.cat([EDGES, CHORD], 1)
        outputs = [encoder(x, edges) for edges in (EDGES, longer, EDGES)]
        assert torch.equal(outputs[1], fresh(encoder)(x, longer))
        assert torch.equal(outputs[2], outputs[0])
        assert not torch.allclose(outputs[1], outputs[0], atol=1e-3)

    def test_edges_changed_in_place(self) -> None:
        encoder, x, edges = network(), features(), torch.cat([EDGES, CHORD], 1)
        before = encoder(x, edges)
        edges[:, -2:] = torch.tensor([[1, 4], [4, 1]])
        after = encoder(x, edges)
        assert torch.equal(after, fresh(encoder)(x, edges))
        assert not torch.allclose(after, before, atol=1e-3)

    def test_weights_given_changed_in_place_and_left_out(self) -> None:
        encoder, x = network(), features()
        plain, weight = encoder(x, EDGES), torch.ones(12)
        torch.testing.assert_close(encoder(x, EDGES, weight), plain)
        weight[0] = weight[6] = 4
        heavy = encoder(x, EDGES, weight)
        assert torch.equal(heavy, fresh(encoder)(x, EDGES, weight))
        assert not torch.allclose(heavy, plain, atol=1e-3)
        assert torch.equal(encoder(x, EDGES), plain)

    def test_another_number_of_nodes(self) -> None:
        encoder, x = network(), features()
        encoder(x, EDGES)
        more = torch.cat([x, x[:2]])
        assert torch.equal(encoder(more, EDGES), fresh(encoder)(more, EDGES))

    def test_another_dtype(self) -> None:
        encoder, x = network(), features()
        single = encoder(x, EDGES)
        double = encoder.double()(x.double(), EDGES)
        assert double.dtype == torch.float64
        assert torch.equal(double, fresh(encoder)(x.double(), EDGES))
        torch.testing.assert_close(double.float(), single, atol=1e-5, rtol=0)
        torch.testing.assert_close(encoder.float()(x, EDGES), single)

    @COPIES
    def test_copies(self, copied: Any) -> None:
        encoder, x, edges = network(), features(), EDGES.clone()
        expected = encoder(x, edges)
        twin = copied(encoder)
        assert torch.equal(twin(x, edges), expected)
        edges[:, [0, 6]] = CHORD
        assert torch.equal(twin(x, edges), fresh(encoder)(x, edges))
        assert not torch.allclose(twin(x, edges), expected, atol=1e-3)
        with torch.no_grad():
            twin.convolutions[0].bias += 1
        assert torch.equal(encoder(x, EDGES), expected)

    def test_no_state_of_the_module(self) -> None:
        encoder = network()
        names = set(encoder.state_dict())
        encoder(features(), EDGES)
        assert set(encoder.state_dict()) == names
        assert names == {f"convolutions.{i}.{name}" for i in (0, 1) for name in ("bias", "lin.weight")}

    def test_gradients_of_one_pass_after_another(self) -> None:
        encoder, x = network(), features()
        gradients = []
        for _ in range(2):
            encoder.zero_grad()
            encoder(x, EDGES).square().sum().backward()
            gradients.append([parameter.grad.clone() for parameter in encoder.parameters()])  # type: ignore[union-attr]
        for before, after in zip(*gradients, strict=True):
            assert torch.equal(before, after)
            assert before.any()

    def test_in_a_hybrid(self, normalised: list[int]) -> None:
        encoder, x = network(), features()
        torch.manual_seed(0)
        hybrid = DSSHybrid(encoder, F, C, hidden_channels=H).eval()
        first = hybrid(x, EDGES)
        assert torch.equal(hybrid(x, EDGES), first)
        assert len(normalised) == 1
        longer = torch.cat([EDGES, CHORD], 1)
        hybrid.encoder = fresh(encoder)
        expected = hybrid(x, longer)
        hybrid.encoder = encoder
        assert torch.equal(hybrid(x, longer), expected)

    @COPIES
    def test_copies_of_a_hybrid(self, copied: Any) -> None:
        hybrid, x = DSSHybrid(network(), F, C, hidden_channels=H).eval(), features()
        expected = hybrid(x, EDGES)
        assert torch.equal(copied(hybrid)(x, EDGES), expected)

    def test_copies_carry_no_graph(self) -> None:
        encoder = network()
        before = len(pickle.dumps(encoder))
        encoder(features(), EDGES)
        assert len(pickle.dumps(encoder)) == before

    def test_one_that_was_trained_before_is_given_to_a_hybrid(self, data: Data) -> None:
        encoder = (
            EncoderClassifier(hidden_channels=H, epochs=4, weight_decays=(0.0,), random_state=0).fit(data).network_
        )
        model = DSSClassifier(
            encoder=encoder, freeze_encoder=True, hidden_channels=H, epochs=4, filter="ppr", random_state=0
        )
        fitted = clone(model).fit(data)
        with torch.no_grad():
            assert torch.equal(fitted.model_.encoder(data.x, data.edge_index), encoder(data.x, data.edge_index))


@pytest.fixture(scope="module", name="data")
def _data() -> Data:
    return contextual_sbm(90, homophily=0.8, seed=0)


class TestClassifier:
    @pytest.mark.parametrize("options", [{}, {"layers": 3, "input_dropout": 0.0}])
    def test_trains_the_network_that_a_hybrid_is_given(self, data: Data, options: dict[str, Any]) -> None:
        settings = {"hidden_channels": H, "epochs": 8, "random_state": 3}
        fitted = EncoderClassifier(weight_decays=(5e-3,), **settings, **options).fit(data)
        classes = int(data.y.max()) + 1
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            encoder = GCNEncoder(data.x.shape[1], H, classes, **options)
        assert isinstance(fitted.network_, GCNEncoder)
        assert len(fitted.network_.convolutions) == options.get("layers", 2)

        def loss(module: nn.Module, mask: str) -> Tensor:
            return functional.cross_entropy(module(data.x, data.edge_index)[data[mask]], data.y[data[mask]])

        train(
            encoder,
            lambda module: loss(module, "train_mask"),
            [{"params": list(encoder.parameters()), "weight_decay": 5e-3}],
            validate=lambda module: loss(module, "val_mask"),
            epochs=8,
            seed=3,
        )
        with torch.no_grad():
            expected = encoder.eval()(data.x, data.edge_index)
        torch.testing.assert_close(fitted.logits(data), expected, atol=1e-6, rtol=0)
        np.testing.assert_allclose(fitted.predict_proba(data), expected.double().softmax(1), atol=1e-6)

    def test_learns(self, data: Data) -> None:
        fitted = EncoderClassifier(hidden_channels=16, epochs=40, weight_decays=(5e-4,), random_state=0).fit(data)
        right = fitted.predict(data) == data.y.numpy()
        assert right[data.test_mask.numpy()].mean() > 0.7
        score = fitted.ood_score(data, "energy")
        np.testing.assert_allclose(score, -fitted.logits(data).double().logsumexp(1), rtol=1e-6)


def test_an_encoder_takes_tensors_of_inference_mode() -> None:
    data = contextual_sbm(20, seed=0)
    encoder = GCNEncoder(data.num_features, 8, 4).eval()
    with torch.inference_mode():
        edges = data.edge_index.clone()
        first = encoder(data.x, edges)
        edges.zero_()
        edges[1] = 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert not torch.equal(encoder(data.x, edges), first)


def test_a_lone_encoder_sees_edge_weights() -> None:
    data = contextual_sbm(20, seed=0, shares=(0.5, 0.3))
    model = EncoderClassifier(hidden_channels=8, epochs=2, weight_decays=(0.0,), random_state=0).fit(data)
    before = model.predict_proba(data)
    data.edge_weight = torch.full((data.num_edges,), 5.0)
    assert abs(model.predict_proba(data) - before).max() > 1e-4
