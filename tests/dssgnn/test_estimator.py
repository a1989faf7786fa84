from __future__ import annotations

import copy
import json
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import Tensor, nn

from paperworks.dssgnn.chaos import OOD_SCORES, propagate_scores
from paperworks.dssgnn.estimator import DSSClassifier, fit_many
from paperworks.dssgnn.metrics import nll
from paperworks.dssgnn.nn import DSSGNN, DSSHybrid

with warnings.catch_warnings():
    # It compiles with torch.jit, which torch warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.data import Data
    from torch_geometric.datasets import KarateClub
    from torch_geometric.nn import GCN
    from torch_geometric.utils import to_scipy_sparse_matrix, to_undirected

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CS", "ignore:Sparse invariant checks")

SMALL: dict[str, Any] = {"hidden_channels": 8, "epochs": 24, "lr": 0.05, "filter": "ppr", "random_state": 0}
N, F, C = 60, 6, 3


def blocks(seed: int = 0, n: int = N) -> Data:
    """Three equal groups, dense within and sparse between; a third of the nodes each to train, validate and test."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % C
    upper = np.triu(rng.random((n, n)) < np.where(y[:, None] == y, 0.3, 0.03), 1)
    edge_index = to_undirected(torch.from_numpy(np.argwhere(upper).T), num_nodes=n)
    x = rng.normal(size=(n, F)) * (rng.random((n, F)) < 0.7)
    x[np.arange(n), y] += 1
    part = np.arange(n) // C % 3
    masks = {name: torch.from_numpy(part == k) for k, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    return Data(x=torch.from_numpy(x).float(), edge_index=edge_index, y=torch.from_numpy(y), **masks)


def changed(data: Data, **attributes: Any) -> Data:
    other = copy.copy(data)
    for name, value in attributes.items():
        other[name] = value
    return other


def without(data: Data, *names: str) -> Data:
    other = copy.copy(data)
    for name in names:
        del other[name]
    return other


@pytest.fixture(scope="module")
def data() -> Data:
    return blocks()


@pytest.fixture(scope="module")
def model(data: Data) -> DSSClassifier:
    return DSSClassifier(**SMALL).fit(data)


# Few passes of a small network; none of the checks is about graphs.
BRIEF: dict[str, Any] = {"hidden_channels": 16, "lr": 0.1, "degree": 1, "filter": "identity"}


@pytest.mark.untyped
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([DSSClassifier(epochs=5, **BRIEF)])
def test_scikit_learn_protocol(estimator: DSSClassifier, check: Any) -> None:
    check(estimator)


def test_learns_the_karate_club() -> None:
    data = KarateClub()[0]
    rng = np.random.default_rng(0)
    part = rng.permutation(len(data.y)) % 2
    train = torch.from_numpy(part == 0) | data.train_mask
    data = changed(data, train_mask=train, val_mask=~train)
    model = DSSClassifier(epochs=60, hidden_channels=16, random_state=0).fit(data)
    right = model.predict(data)[~train] == data.y[~train].numpy()
    assert right.mean() > 0.75
    assert model.predict_proba(data).shape == (34, 4)


class TestFit:
    def test_knows_what_it_saw(self, data: Data, model: DSSClassifier) -> None:
        np.testing.assert_array_equal(model.classes_, [0, 1, 2])
        assert model.n_features_in_ == F
        assert isinstance(model.model_, DSSGNN)
        assert not model.model_.training
        test = data.test_mask.numpy()
        assert (model.predict(data) == data.y.numpy())[test].mean() > 0.85
        assert model.history_["epoch"].max() == 24
        assert model.history_.filter(like="validation_nll").notna().sum().item() == 6
        assert model.filter_ == "ppr"

    def test_the_seed_alone_decides(self, data: Data, model: DSSClassifier) -> None:
        torch.manual_seed(123)
        before = torch.random.get_rng_state()
        again = DSSClassifier(**SMALL).fit(data)
        assert torch.equal(torch.random.get_rng_state(), before)
        np.testing.assert_array_equal(again.predict_proba(data), model.predict_proba(data))
        other = DSSClassifier(**(SMALL | {"random_state": 1})).fit(data)
        assert not np.array_equal(other.predict_proba(data), model.predict_proba(data))

    def test_labels_outside_the_two_masks_are_not_looked_at(self, data: Data) -> None:
        hidden = ~(data.train_mask | data.val_mask)
        y = torch.where(hidden, (data.y + 1) % C, data.y)
        options = SMALL | {"filter": "auto", "epochs": 8}
        expected = DSSClassifier(**options).fit(data)
        blind = DSSClassifier(**options).fit(changed(data, y=y))
        np.testing.assert_array_equal(blind.predict_proba(data), expected.predict_proba(data))
        unlabelled = DSSClassifier(**options).fit(changed(data, y=torch.where(hidden, -1, data.y)))
        np.testing.assert_array_equal(unlabelled.predict_proba(data), expected.predict_proba(data))
        np.testing.assert_array_equal(unlabelled.classes_, [0, 1, 2])

    def test_arrays_are_the_same_as_a_graph_object(self, data: Data, model: DSSClassifier) -> None:
        x, y = data.x.numpy(), data.y.numpy()
        masks = {"train_mask": data.train_mask.numpy(), "val_mask": data.val_mask.numpy()}
        expected = model.predict_proba(data)
        adjacency = to_scipy_sparse_matrix(data.edge_index, num_nodes=N)
        graph = nx.Graph()
        graph.add_nodes_from(range(N))
        graph.add_edges_from(data.edge_index.T.tolist())
        for kind in (data.edge_index, data.edge_index.numpy(), adjacency.tocsr(), adjacency.tocoo(), graph):
            fitted = DSSClassifier(**SMALL).fit(x, y, adjacency=kind, **masks)
            np.testing.assert_allclose(fitted.predict_proba(x, adjacency=kind), expected, atol=1e-5)
            np.testing.assert_array_equal(fitted.predict(x, adjacency=kind), model.predict(data))

    def test_arguments_replace_what_the_graph_object_holds(self, data: Data, model: DSSClassifier) -> None:
        bare = without(data, "y", "train_mask", "val_mask", "test_mask")
        masks = {"train_mask": data.train_mask, "val_mask": data.val_mask}
        fitted = DSSClassifier(**SMALL).fit(bare, data.y, **masks)
        np.testing.assert_array_equal(fitted.predict_proba(bare), model.predict_proba(data))
        misled = changed(data, y=torch.zeros_like(data.y), train_mask=data.test_mask)
        fitted = DSSClassifier(**SMALL).fit(misled, data.y, train_mask=data.train_mask, val_mask=data.val_mask)
        np.testing.assert_array_equal(fitted.predict_proba(data), model.predict_proba(data))

    def test_without_a_graph_each_node_is_alone(self, data: Data) -> None:
        x, y = data.x.numpy(), data.y.numpy()
        masks = {"train_mask": data.train_mask.numpy(), "val_mask": data.val_mask.numpy()}
        fitted = DSSClassifier(**SMALL).fit(x, y, **masks)
        together = fitted.predict_proba(x)
        np.testing.assert_allclose(
            np.vstack([fitted.predict_proba(row[None]) for row in x[:5]]), together[:5], atol=1e-6
        )
        no_edges = fitted.predict_proba(x, adjacency=np.empty((2, 0), dtype=np.int64))
        np.testing.assert_array_equal(no_edges, together)

    @pytest.mark.parametrize("layout", ["scipy", "torch"])
    def test_sparse_features_are_dense_features(self, data: Data, layout: str) -> None:
        options = SMALL | {"dropout": 0.0}
        expected = DSSClassifier(**options).fit(data).predict_proba(data)
        if layout == "torch":
            sparse = changed(data, x=data.x.to_sparse_csr())
            fitted = DSSClassifier(**options).fit(sparse)
            proba = fitted.predict_proba(sparse)
        else:
            x, y = sp.csr_matrix(data.x.numpy()), data.y.numpy()
            masks = {"train_mask": data.train_mask.numpy(), "val_mask": data.val_mask.numpy()}
            fitted = DSSClassifier(**options).fit(x, y, adjacency=data.edge_index, **masks)
            proba = fitted.predict_proba(x, adjacency=data.edge_index)
        np.testing.assert_allclose(proba, expected, atol=1e-3)
        np.testing.assert_allclose(fitted.predict_proba(data), proba, atol=1e-5)

    def test_edge_weights_count(self, data: Data) -> None:
        same = changed(data, edge_weight=torch.ones(data.num_edges))
        row, column = data.edge_index
        alike = (data.y[row] == data.y[column]).float()
        # What a learned filter makes of one group alone is not what it makes of a graph of three that hang together.
        fitted = DSSClassifier(**(SMALL | {"filter": "ppr-frozen"})).fit(data)
        np.testing.assert_array_equal(fitted.predict_proba(same), fitted.predict_proba(data))
        within = changed(data, edge_weight=alike)
        assert nll(fitted.predict_proba(within), data.y) < nll(fitted.predict_proba(data), data.y) - 0.01
        matrix = sp.csr_matrix((alike.numpy(), data.edge_index.numpy()), shape=(N, N))
        by_matrix = fitted.predict_proba(data.x.numpy(), adjacency=matrix)
        np.testing.assert_allclose(by_matrix, fitted.predict_proba(within), atol=1e-6)

    def test_names_of_classes(self, data: Data, model: DSSClassifier) -> None:
        names = np.array(["kiwi", "lime", "plum"])
        masks = {"train_mask": data.train_mask.numpy(), "val_mask": data.val_mask.numpy()}
        x, y = data.x.numpy(), names[data.y.numpy()]
        fitted = DSSClassifier(**SMALL).fit(x, y, adjacency=data.edge_index, **masks)
        np.testing.assert_array_equal(fitted.classes_, names)
        np.testing.assert_array_equal(fitted.predict(data), names[model.predict(data)])

    def test_every_label_of_an_array_is_a_class(self, data: Data) -> None:
        x, y = data.x.numpy(), np.where(data.y.numpy() == 0, -1, 1)
        masks = {"train_mask": data.train_mask.numpy(), "val_mask": data.val_mask.numpy()}
        fitted = DSSClassifier(**SMALL).fit(x, y, **masks)
        np.testing.assert_array_equal(fitted.classes_, [-1, 1])
        assert fitted.predict_proba(x).shape == (N, 2)

    def test_classes_of_a_graph_object_are_the_labels_that_occur(self, data: Data, model: DSSClassifier) -> None:
        fitted = DSSClassifier(**SMALL).fit(changed(data, y=data.y * 3 + 2))
        np.testing.assert_array_equal(fitted.classes_, [2, 5, 8])
        np.testing.assert_array_equal(fitted.predict(data), 3 * model.predict(data) + 2)

    @pytest.mark.parametrize("mask", ["val_mask", "test_mask"])
    def test_a_class_that_no_training_node_has(self, data: Data, mask: str) -> None:
        y = data.y.clone()
        y[data[mask].nonzero()[:2, 0]] = 7
        with pytest.warns(UserWarning, match=r"\b7\b"):
            fitted = DSSClassifier(**SMALL).fit(changed(data, y=y))
        np.testing.assert_array_equal(fitted.classes_, [0, 1, 2, 7])
        proba = fitted.predict_proba(data)
        assert proba.shape == (N, 4)
        assert np.isfinite(proba).all()
        assert proba[:, 3].mean() < 0.25

    def test_without_validation_nodes_a_fifth_is_held_out(self, data: Data) -> None:
        with pytest.warns(UserWarning, match=r"(?i)validation|held out"):
            fitted = DSSClassifier(**SMALL).fit(without(data, "val_mask"))
        assert fitted.history_.filter(like="validation_nll").notna().any().item()
        with pytest.warns(UserWarning, match=r"(?i)validation|held out"):
            arrays = DSSClassifier(**SMALL).fit(data.x.numpy(), data.y.numpy(), adjacency=data.edge_index)
        assert (arrays.predict(data) == data.y.numpy()).mean() > 0.9

    def test_nothing_is_held_out_if_so_asked(self, data: Data) -> None:
        bare = without(data, "val_mask")
        options = SMALL | {"validation_fraction": 0.0, "patience": 1}
        fitted = DSSClassifier(**options).fit(bare)
        assert fitted.history_["epoch"].max() == 24
        with pytest.raises(ValueError, match=r"auto|validation"):
            DSSClassifier(**(options | {"filter": "auto"})).fit(bare)

    def test_a_class_of_one_node_is_trained_on(self, data: Data) -> None:
        """It cannot be in both parts."""
        y = data.y.clone()
        y[data.train_mask.nonzero()[0, 0]] = 9
        for seed in range(3):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                fitted = DSSClassifier(**(SMALL | {"epochs": 4, "random_state": seed})).fit(
                    changed(without(data, "val_mask"), y=y)
                )
            np.testing.assert_array_equal(fitted.classes_, [0, 1, 2, 9])
            assert not [warning for warning in caught if "9" in str(warning.message).split()]

    def test_early_stopping_keeps_the_best(self, data: Data) -> None:
        fitted = DSSClassifier(**(SMALL | {"epochs": 60, "lr": 0.3, "patience": 8, "dropout": 0.0})).fit(data)
        val = data.val_mask.numpy()
        losses = fitted.history_.filter(like="validation_nll").squeeze()
        achieved = nll(fitted.predict_proba(data)[val], data.y[data.val_mask])
        assert achieved == pytest.approx(losses.min(), rel=0.02)
        assert losses.iloc[-1] > losses.min()
        assert fitted.history_["epoch"].max() < 60

    def test_the_filter_is_chosen_by_the_validation_likelihood(self, data: Data) -> None:
        options = SMALL | {"dropout": 0.0}
        fitted = DSSClassifier(**(options | {"filter": "auto"})).fit(data)
        table = fitted.selection_.set_index("filter")
        assert list(table.index) == ["ppr-frozen", "ppr", "identity"]
        assert table["chosen"].sum() == 1
        assert fitted.filter_ == table["chosen"].idxmax() == table["validation_nll"].idxmin()
        val = data.val_mask.numpy()
        achieved = nll(fitted.predict_proba(data)[val], data.y[data.val_mask])
        assert achieved == pytest.approx(table["validation_nll"].min(), rel=0.02)
        for name, value in table["validation_nll"].items():
            alone = DSSClassifier(**(options | {"filter": name})).fit(data)
            assert nll(alone.predict_proba(data)[val], data.y[data.val_mask]) == pytest.approx(value, rel=0.02), name
            if name == fitted.filter_:
                np.testing.assert_allclose(alone.predict_proba(data), fitted.predict_proba(data), atol=1e-4)

    @pytest.mark.parametrize(("filter", "learned"), [("ppr-frozen", False), ("ppr", True), ("identity", True)])
    def test_filters(self, data: Data, filter: str, learned: bool) -> None:
        fitted = DSSClassifier(**(SMALL | {"filter": filter})).fit(data)
        filters = fitted.model_.filters
        assert filters.prior == filter.removesuffix("-frozen")
        assert bool(filters.delta.any()) is learned

    def test_chaos_that_has_collapsed_is_told(self, data: Data) -> None:
        """Without features all logits are those of the classes, and the likelihood gains nothing from chaos."""
        blank = changed(data, x=torch.zeros(N, F))
        with pytest.warns(UserWarning, match=r"chaos collapsed.*; the predictive equals softmax\(mean\)"):
            fitted = DSSClassifier(**SMALL, kl=0.0).fit(blank)
        assert fitted.uncertainty(blank)["logit_sd"].max() < 0.05

    def test_the_anchor_keeps_the_chaos(self, data: Data, model: DSSClassifier) -> None:
        loose = DSSClassifier(**(SMALL | {"order": 1}), kl=5.0, s0=2.0).fit(data)
        tight = DSSClassifier(**(SMALL | {"order": 1}), kl=5.0, s0=0.25).fit(data)
        sd = [fitted.uncertainty(data)["logit_sd"].mean() for fitted in (tight, model, loose)]
        assert sd[0] < sd[2] / 2
        assert sd[0] == pytest.approx(0.25, rel=0.6)
        assert sd[1] > 0.05
        for s0 in ("relative", np.linspace(0.1, 2, N)):
            other = DSSClassifier(**SMALL, s0=s0).fit(data)
            assert not np.array_equal(other.predict_proba(data), model.predict_proba(data))
        assert np.corrcoef(other.uncertainty(data)["logit_sd"], s0)[0, 1] > 0

    def test_order_0_has_no_chaos(self, data: Data) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = DSSClassifier(**SMALL, order=0).fit(data)
        table = fitted.uncertainty(data)
        assert (table["logit_sd"] == 0).all()
        np.testing.assert_allclose(table["epistemic"], 0, atol=1e-7)


class TestPredict:
    def test_probabilities(self, data: Data, model: DSSClassifier) -> None:
        proba = model.predict_proba(data)
        assert proba.shape == (N, C)
        assert np.issubdtype(proba.dtype, np.floating)
        np.testing.assert_allclose(proba.sum(1), 1, atol=1e-6)
        assert (proba > 0).all()
        np.testing.assert_array_equal(model.predict(data), model.classes_[proba.argmax(1)])
        expected = model.model_.coefficients(data.x, data.edge_index).predictive(32)
        np.testing.assert_allclose(proba, expected.detach().numpy(), atol=1e-6)

    def test_the_quadrature_is_the_one_asked_for(self, data: Data, model: DSSClassifier) -> None:
        coarse = copy.deepcopy(model).set_params(q_predict=3)
        expected = model.model_.coefficients(data.x, data.edge_index).predictive(3)
        np.testing.assert_allclose(coarse.predict_proba(data), expected.detach().numpy(), atol=1e-6)

    def test_decisions_are_log_probabilities(self, data: Data, model: DSSClassifier) -> None:
        np.testing.assert_allclose(model.decision_function(data), np.log(model.predict_proba(data)), atol=1e-9)

    def test_another_graph(self, data: Data, model: DSSClassifier) -> None:
        other = blocks(seed=1, n=36)
        assert (model.predict(other) == other.y.numpy()).mean() > 0.65
        arrays = model.predict_proba(other.x.numpy(), adjacency=other.edge_index)
        np.testing.assert_allclose(arrays, model.predict_proba(other), atol=1e-6)
        only_x = Data(x=other.x, edge_index=other.edge_index)
        np.testing.assert_array_equal(model.predict_proba(only_x), model.predict_proba(other))

    def test_two_disjoint_graphs_are_as_if_apart(self, data: Data, model: DSSClassifier) -> None:
        other = blocks(seed=1, n=36)
        x = torch.cat([data.x, other.x])
        edge_index = torch.cat([data.edge_index, other.edge_index + N], 1)
        together = model.predict_proba(Data(x=x, edge_index=edge_index))
        apart = np.vstack([model.predict_proba(data), model.predict_proba(other)])
        np.testing.assert_allclose(together, apart, atol=1e-5)

    def test_one_node_without_edges(self, data: Data, model: DSSClassifier) -> None:
        one = Data(x=data.x[:1], edge_index=torch.empty(2, 0, dtype=torch.long))
        assert model.predict_proba(one).shape == (1, C)
        assert model.ood_score(one).shape == (1,)
        np.testing.assert_array_equal(model.predict_proba(data.x[:1].numpy()), model.predict_proba(one))

    def test_score_is_the_accuracy_on_the_test_nodes(self, data: Data, model: DSSClassifier) -> None:
        right = model.predict(data) == data.y.numpy()
        assert model.score(data) == pytest.approx(right[data.test_mask.numpy()].mean())
        assert model.score(data, mask=data.val_mask) == pytest.approx(right[data.val_mask.numpy()].mean())
        by_array = model.score(data.x.numpy(), data.y.numpy(), adjacency=data.edge_index)
        assert by_array == pytest.approx(right.mean())
        weights = np.arange(N) + 1.0
        expected = np.average(right, weights=weights)
        by_array = model.score(data.x.numpy(), data.y.numpy(), weights, adjacency=data.edge_index)
        assert by_array == pytest.approx(expected)

    def test_nothing_changes_the_graph_object(self, data: Data) -> None:
        before = {name: value.clone() for name, value in data.to_dict().items()}
        fitted = DSSClassifier(**(SMALL | {"epochs": 4})).fit(data)
        fitted.ood_score(data, "energy", propagate=(2, 0.5))
        assert set(data.to_dict()) == set(before)
        assert all(torch.equal(data[name], value) for name, value in before.items())


class TestReadOuts:
    def test_uncertainty(self, data: Data, model: DSSClassifier) -> None:
        table = model.uncertainty(data)
        assert list(table.columns) == ["total", "aleatoric", "epistemic", "logit_sd", "energy"]
        assert len(table) == N
        proba = model.predict_proba(data).astype(np.float64)
        np.testing.assert_allclose(table["total"], -(proba * np.log(proba)).sum(1), atol=1e-5)
        np.testing.assert_allclose(table["aleatoric"] + table["epistemic"], table["total"], atol=1e-6)
        assert (table["epistemic"] >= 0).all()
        logits = model.coefficients(data).mean.numpy()
        np.testing.assert_allclose(table["energy"], -np.log(np.exp(logits).sum(1)), atol=1e-5)
        variance = model.model_.coefficients(data.x, data.edge_index).variance().detach()
        assert (
            min(
                np.abs(table["logit_sd"] - other.numpy()).max()
                for other in (variance.mean(1).sqrt(), variance.sqrt().mean(1))
            )
            < 1e-5
        )
        arrays = model.uncertainty(data.x.numpy(), adjacency=data.edge_index)
        pd.testing.assert_frame_equal(arrays, table, atol=1e-5)

    def test_scores_are_larger_for_what_is_farther_out(self, data: Data, model: DSSClassifier) -> None:
        table, proba = model.uncertainty(data), model.predict_proba(data)
        scores = {method: model.ood_score(data, method=method) for method in OOD_SCORES}
        assert all(score.shape == (N,) and isinstance(score, np.ndarray) for score in scores.values())
        np.testing.assert_array_equal(model.ood_score(data), scores["energy"])
        np.testing.assert_allclose(scores["energy"], table["energy"], atol=1e-6)
        np.testing.assert_allclose(scores["msp"], -proba.max(1), atol=1e-6)
        np.testing.assert_allclose(scores["entropy"], table["total"], atol=1e-6)
        np.testing.assert_allclose(scores["mi"], table["epistemic"], atol=1e-6)
        variance = model.model_.coefficients(data.x, data.edge_index).variance().mean(1).detach()
        np.testing.assert_allclose(scores["variance"], variance, rtol=1e-4)

    @pytest.mark.parametrize("method", ["energy", "msp"])
    def test_propagated_scores(self, data: Data, model: DSSClassifier, method: str) -> None:
        score = torch.from_numpy(np.array(model.ood_score(data, method)))
        expected = propagate_scores(score, data.edge_index, steps=2, alpha=0.5).numpy()
        np.testing.assert_allclose(model.ood_score(data, method, propagate=(2, 0.5)), expected, atol=1e-5)
        by_array = model.ood_score(data.x.numpy(), method, adjacency=data.edge_index, propagate=(2, 0.5))
        np.testing.assert_allclose(by_array, expected, atol=1e-5)

    def test_joint_probabilities(self, data: Data, model: DSSClassifier) -> None:
        joint, proba = model.joint_proba(data, data.edge_index), model.predict_proba(data)
        assert joint.shape == (data.num_edges, C, C)
        row, column = data.edge_index.numpy()
        np.testing.assert_allclose(joint.sum(2), proba[row], atol=1e-5)
        np.testing.assert_allclose(joint.sum(1), proba[column], atol=1e-5)
        assert np.abs(joint - proba[row][:, :, None] * proba[column][:, None, :]).max() > 1e-4
        expected = model.model_.coefficients(data.x, data.edge_index).joint(data.edge_index, 32)
        np.testing.assert_allclose(joint, expected.detach().numpy(), atol=1e-6)
        arrays = model.joint_proba(data.x.numpy(), data.edge_index.numpy(), adjacency=data.edge_index)
        np.testing.assert_allclose(arrays, joint, atol=1e-6)


class TestManySeeds:
    def test_a_batch_is_its_members_apart(self, data: Data) -> None:
        options = SMALL | {"dropout": 0.0, "filter": "ppr"}
        many = fit_many(DSSClassifier(**options), data, seeds=[0, 3, 5])
        assert [member.random_state for member in many] == [0, 3, 5]
        for member, seed in zip(many, (0, 3, 5), strict=True):
            alone = DSSClassifier(**(options | {"random_state": seed})).fit(data)
            np.testing.assert_allclose(member.predict_proba(data), alone.predict_proba(data), atol=1e-4)
            np.testing.assert_array_equal(member.classes_, alone.classes_)
            assert member.n_features_in_ == F
        assert not np.allclose(many[0].predict_proba(data), many[1].predict_proba(data), atol=1e-3)

    def test_the_filter_is_chosen_for_each(self, data: Data) -> None:
        options = SMALL | {"dropout": 0.0, "filter": "auto"}
        many = fit_many(DSSClassifier(**options), data, seeds=[0, 1])
        for member, seed in zip(many, (0, 1), strict=True):
            alone = DSSClassifier(**(options | {"random_state": seed})).fit(data)
            np.testing.assert_allclose(member.predict_proba(data), alone.predict_proba(data), atol=1e-3)
            assert len(member.selection_) == 3

    def test_with_dropout_they_learn_and_repeat(self, data: Data) -> None:
        estimator = DSSClassifier(**SMALL)
        first, again = (fit_many(estimator, data, seeds=[0, 1]) for _ in range(2))
        for member, twin in zip(first, again, strict=True):
            np.testing.assert_array_equal(member.predict_proba(data), twin.predict_proba(data))
            assert (member.predict(data) == data.y.numpy()).mean() > 0.85
        with pytest.raises(NotFittedError):
            estimator.predict(data)


class Narrow(nn.Module):
    """An encoder that ignores the graph."""

    def __init__(self, width: int = C) -> None:
        super().__init__()
        self.linear = nn.Linear(F, width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.linear(x)


class TestHybrid:
    def test_an_encoder_makes_it_a_hybrid(self, data: Data) -> None:
        torch.manual_seed(0)
        encoder = GCN(F, 8, 2, C)
        before = copy.deepcopy(encoder.state_dict())
        fitted = DSSClassifier(**SMALL, encoder=encoder).fit(data)
        assert isinstance(fitted.model_, DSSHybrid)
        assert (fitted.predict(data) == data.y.numpy())[data.test_mask.numpy()].mean() > 0.8
        for name, value in encoder.state_dict().items():
            assert torch.equal(value, before[name]), "fit changed the encoder that it was given"
        assert fitted.ood_score(data).shape == (N,)
        again = clone(fitted).fit(data)
        np.testing.assert_array_equal(again.predict_proba(data), fitted.predict_proba(data))

    def test_an_encoder_of_the_users_own(self, data: Data) -> None:
        torch.manual_seed(0)
        expected = DSSClassifier(**SMALL, encoder=Narrow()).fit(data).predict_proba(data)
        assert expected.shape == (N, C)
        adjacency = to_scipy_sparse_matrix(data.edge_index, num_nodes=N)
        masks = {"train_mask": data.train_mask.numpy(), "val_mask": data.val_mask.numpy()}
        torch.manual_seed(0)
        fitted = DSSClassifier(**SMALL, encoder=Narrow()).fit(
            data.x.numpy(), data.y.numpy(), adjacency=adjacency, **masks
        )
        np.testing.assert_allclose(fitted.predict_proba(data), expected, atol=1e-4)

    def test_a_frozen_encoder_stays(self, data: Data) -> None:
        torch.manual_seed(0)
        encoder = GCN(F, 8, 2, C)
        fitted = DSSClassifier(**SMALL, encoder=encoder, freeze_encoder=True).fit(data)
        for name, value in fitted.model_.encoder.state_dict().items():
            assert torch.equal(value, encoder.state_dict()[name]), name
        assert fitted.model_.beta.item() != pytest.approx(0.3, abs=1e-3)

    def test_the_penalty_keeps_the_residual_small(self, data: Data) -> None:
        torch.manual_seed(0)
        encoder = GCN(F, 8, 2, C)
        with torch.no_grad():
            logits = encoder(data.x, data.edge_index).numpy()
        sizes = []
        for decay in (0.0, 10.0):
            fitted = DSSClassifier(**SMALL, kl=0.01, encoder=encoder, freeze_encoder=True, residual_decay=decay).fit(
                data
            )
            sizes.append(np.square(fitted.coefficients(data).mean.numpy() - logits).mean())
        assert sizes[1] < sizes[0] / 4

    @pytest.mark.untyped
    def test_bad_encoders(self, data: Data) -> None:
        with pytest.raises(ValueError, match=r"5.*3|3.*5"):
            DSSClassifier(**SMALL, encoder=Narrow(5)).fit(data)
        with pytest.raises(TypeError, match=r"encoder|edge_index"):
            DSSClassifier(**SMALL, encoder=nn.Linear(F, C)).fit(data)
        with pytest.raises(TypeError, match=r"encoder"):
            DSSClassifier(**SMALL, encoder="gcn").fit(data)


class TestStorage:
    def test_clone_and_pickle(self, data: Data, model: DSSClassifier) -> None:
        twin = clone(model)
        assert twin.get_params() == model.get_params()
        with pytest.raises(NotFittedError):
            twin.predict(data)
        restored = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(restored.predict_proba(data), model.predict_proba(data))

    @pytest.mark.parametrize("names", [["kiwi", "lime", "plum"], [2, 5, 8], [0.5, 1.0, 2.0]])
    def test_a_saved_model_is_the_same(self, data: Data, tmp_path: Path, names: list[Any]) -> None:
        masks = {"train_mask": data.train_mask.numpy(), "val_mask": data.val_mask.numpy()}
        x, y = data.x.numpy(), np.array(names)[data.y.numpy()]
        model = DSSClassifier(**(SMALL | {"epochs": 8, "filter": "auto"}))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn: floats as labels
            model.fit(x, y.astype(str) if isinstance(names[0], float) else y, adjacency=data.edge_index, **masks)
        model.save(tmp_path / "model")
        loaded = DSSClassifier.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict_proba(data), model.predict_proba(data))
        np.testing.assert_array_equal(loaded.predict(data), model.predict(data))
        assert loaded.classes_.dtype == model.classes_.dtype
        assert loaded.get_params() == model.get_params()
        assert loaded.n_features_in_ == F
        pd.testing.assert_frame_equal(pd.DataFrame(loaded.selection_), pd.DataFrame(model.selection_))
        pd.testing.assert_frame_equal(loaded.uncertainty(data), model.uncertainty(data))
        files = {path.name for path in (tmp_path / "model").iterdir()}
        assert {"model.safetensors", "config.json"} <= files
        assert not [name for name in files if name.endswith((".pt", ".pkl", ".pickle"))]

    def test_names_of_columns_are_kept(self, data: Data, tmp_path: Path) -> None:
        table = pd.DataFrame(data.x.numpy(), columns=list("abcdef"))
        masks = {"train_mask": data.train_mask.numpy(), "val_mask": data.val_mask.numpy()}
        model = DSSClassifier(**(SMALL | {"epochs": 4})).fit(table, data.y.numpy(), **masks)
        assert list(model.feature_names_in_) == list("abcdef")
        model.save(tmp_path / "model")
        loaded = DSSClassifier.load(tmp_path / "model")
        assert list(loaded.feature_names_in_) == list("abcdef")
        np.testing.assert_array_equal(loaded.predict_proba(table), model.predict_proba(table))

    def test_a_hybrid_needs_its_encoder_again(self, data: Data, tmp_path: Path) -> None:
        torch.manual_seed(0)
        model = DSSClassifier(**(SMALL | {"epochs": 4}), encoder=GCN(F, 8, 2, C)).fit(data)
        model.save(tmp_path / "model")
        with pytest.raises(ValueError, match="encoder"):
            DSSClassifier.load(tmp_path / "model")
        loaded = DSSClassifier.load(tmp_path / "model", encoder=GCN(F, 8, 2, C))
        np.testing.assert_array_equal(loaded.predict_proba(data), model.predict_proba(data))

    def test_not_fitted_is_not_saved(self, tmp_path: Path) -> None:
        with pytest.raises(NotFittedError):
            DSSClassifier().save(tmp_path / "model")
        assert not (tmp_path / "model").exists()

    def test_another_systems_model_is_refused(self, data: Data, model: DSSClassifier, tmp_path: Path) -> None:
        model.save(tmp_path / "model")
        file = tmp_path / "model" / "config.json"
        about = json.loads(file.read_text())
        assert about["slug"] == "dssgnn"
        file.write_text(json.dumps(about | {"slug": "comonet"}))
        with pytest.raises(ValueError, match="comonet"):
            DSSClassifier.load(tmp_path / "model")


@pytest.mark.untyped
class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"order": -1}, "order"),
            ({"degree": -1}, "degree|-1"),
            ({"hidden_channels": 0}, "hidden_channels"),
            ({"filter": "fourier"}, "auto.*ppr-frozen.*fourier"),
            ({"kl": -0.1}, "kl"),
            ({"s0": 0.0}, "s0"),
            ({"s0": "absolute"}, "s0"),
            ({"epochs": 0}, "epochs"),
            ({"patience": 0}, "patience"),
            ({"lr": -1.0}, "lr"),
            ({"weight_decay": -1.0}, "weight_decay"),
            ({"filter_decay": -1.0}, "filter_decay"),
            ({"dropout": 1.5}, "dropout"),
            ({"q_train": 2}, r"q\w*=2 quadrature nodes cannot resolve order 2; need q\w* >= 3"),
            ({"q_predict": 2}, r"q\w*=2 quadrature nodes cannot resolve order 2; need q\w* >= 3"),
            ({"validation_fraction": -0.1}, "validation_fraction"),
            ({"validation_fraction": 1.5}, "validation_fraction"),
        ],
    )
    def test_settings(self, data: Data, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            DSSClassifier(**(SMALL | options)).fit(data)

    @pytest.mark.parametrize(
        ("edge_index", "kind", "message"),
        [
            (torch.tensor([[0, 99], [99, 0]]), ValueError, f"edge_index refers to node 99 but x has {N} rows"),
            (torch.tensor([[0, -1], [-1, 0]]), ValueError, f"edge_index refers to node -1 but x has {N} rows"),
            (torch.zeros(3, 4, dtype=torch.long), ValueError, r"\(3, 4\)"),
            (torch.zeros(2, 4), TypeError, "float32"),
        ],
    )
    def test_edges(
        self, data: Data, model: DSSClassifier, edge_index: Tensor, kind: type[Exception], message: str
    ) -> None:
        bad = changed(data, edge_index=edge_index)
        for call in (DSSClassifier(**SMALL).fit, model.predict):
            with pytest.raises(kind, match=message):
                call(bad)

    @pytest.mark.parametrize("adjacency", [sp.eye(N + 1).tocsr(), nx.path_graph(N + 1), np.eye(N - 1)])
    def test_a_graph_of_another_size(self, data: Data, model: DSSClassifier, adjacency: Any) -> None:
        with pytest.raises(ValueError, match=rf"{N}|{N + 1}|{N - 1}|shape"):
            model.predict(data.x.numpy(), adjacency=adjacency)

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_features_that_are_not_finite(self, data: Data, model: DSSClassifier, value: float) -> None:
        x = data.x.clone()
        x[17:, 2] = value
        for bad in (changed(data, x=x), changed(data, x=x.to_sparse_csr())):
            for call in (DSSClassifier(**SMALL).fit, model.predict):
                with pytest.raises(ValueError, match=r"(NaN|infinity).*row 17\b"):
                    call(bad)

    @pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
    def test_bad_edge_weights(self, data: Data, value: float) -> None:
        weight = torch.ones(data.num_edges)
        weight[5:] = value
        with pytest.raises(ValueError, match=r"edge_weight.*edge 5\b"):
            DSSClassifier(**SMALL).fit(changed(data, edge_weight=weight))

    def test_untidy_edges_are_told_once(self, data: Data, model: DSSClassifier) -> None:
        untidy = torch.cat([data.edge_index, data.edge_index[:, :4], torch.tensor([[3, 4], [3, 4]])], 1)
        bad = changed(data, edge_index=untidy)
        with pytest.warns(UserWarning, match=r"4 repeated edges.*2 self loops") as caught:
            fitted = DSSClassifier(**(SMALL | {"filter": "auto", "epochs": 4})).fit(bad)
        assert len(caught) == 1
        with pytest.warns(UserWarning, match=r"4 repeated edges.*2 self loops"):
            proba = fitted.predict_proba(bad)
        np.testing.assert_array_equal(proba, fitted.predict_proba(data))

    def test_directed_edges_are_told(self, data: Data, model: DSSClassifier) -> None:
        row, column = data.edge_index
        bad = changed(data, edge_index=data.edge_index[:, row < column])
        with pytest.warns(UserWarning, match="directed"):
            proba = model.predict_proba(bad)
        np.testing.assert_allclose(proba, model.predict_proba(data), atol=1e-6)
        graph = nx.DiGraph()
        graph.add_nodes_from(range(N))
        graph.add_edges_from(bad.edge_index.T.tolist())
        with pytest.warns(UserWarning, match="directed"):
            proba = model.predict_proba(data.x.numpy(), adjacency=graph)
        np.testing.assert_allclose(proba, model.predict_proba(data), atol=1e-6)

    @pytest.mark.parametrize("mask", ["train_mask", "val_mask"])
    def test_masked_nodes_without_a_label(self, data: Data, mask: str) -> None:
        y = data.y.clone()
        y[data[mask].nonzero()[:3, 0]] = -1
        with pytest.raises(ValueError, match=rf"{mask} has 3 nodes without a label"):
            DSSClassifier(**SMALL).fit(changed(data, y=y))

    def test_no_training_nodes(self, data: Data) -> None:
        with pytest.raises(ValueError, match=r"at least two classes|train_mask"):
            DSSClassifier(**SMALL).fit(changed(data, train_mask=torch.zeros(N, dtype=torch.bool)))

    def test_one_class_only(self, data: Data) -> None:
        one = data.train_mask & (data.y == 1)
        with pytest.raises(ValueError, match="at least two classes"):
            DSSClassifier(**SMALL).fit(changed(data, train_mask=one))
        with pytest.raises(ValueError, match=r"at least two classes|one class|1 class"):
            DSSClassifier(**SMALL).fit(data.x.numpy(), np.ones(N, dtype=int))

    @pytest.mark.parametrize("mask", ["val_mask", "test_mask"])
    def test_masks_that_overlap(self, data: Data, mask: str) -> None:
        both = data[mask].clone()
        both[data.train_mask.nonzero()[:4, 0]] = True
        with pytest.raises(ValueError, match=rf"train_mask.*{mask}.*\b4\b|\b4\b.*train_mask.*{mask}"):
            DSSClassifier(**SMALL).fit(changed(data, **{mask: both}))

    @pytest.mark.parametrize("name", ["train_mask", "val_mask"])
    def test_masks_of_another_length(self, data: Data, name: str) -> None:
        with pytest.raises(ValueError, match=name):
            DSSClassifier(**SMALL).fit(changed(data, **{name: torch.ones(N + 1, dtype=torch.bool)}))
        columns = data[name][:, None].repeat(1, 10)
        with pytest.raises(ValueError, match=name):
            DSSClassifier(**SMALL).fit(changed(data, **{name: columns}))

    @pytest.mark.parametrize(("missing", "argument"), [("y", r"\by\b"), ("train_mask", "train_mask"), ("x", r"\bx\b")])
    def test_what_the_graph_object_lacks(self, data: Data, missing: str, argument: str) -> None:
        with pytest.raises(ValueError, match=argument):
            DSSClassifier(**SMALL).fit(without(data, missing))

    def test_labels_are_needed(self, data: Data) -> None:
        with pytest.raises(ValueError, match=r"\by\b"):
            DSSClassifier(**SMALL).fit(data.x.numpy())

    def test_labels_of_another_length(self, data: Data) -> None:
        with pytest.raises(ValueError, match=rf"{N}|\by\b"):
            DSSClassifier(**SMALL).fit(changed(data, y=data.y[:-1]))

    def test_another_number_of_features(self, data: Data, model: DSSClassifier) -> None:
        message = f"X has {F - 1} features, but DSSClassifier is expecting {F} features as input"
        for X in (changed(data, x=data.x[:, 1:]), data.x[:, 1:].numpy(), sp.csr_matrix(data.x[:, 1:].numpy())):
            with pytest.raises(ValueError, match=message):
                model.predict(X)

    def test_unknown_score(self, data: Data, model: DSSClassifier) -> None:
        with pytest.raises(ValueError, match=r"energy.*msp.*entropy.*mi.*variance.*guess"):
            model.ood_score(data, method="guess")

    def test_pairs(self, data: Data, model: DSSClassifier) -> None:
        with pytest.raises(ValueError, match=r"\(3, 2\)|shape"):
            model.joint_proba(data, np.zeros((3, 2), dtype=np.int64))
        with pytest.raises(ValueError, match="99"):
            model.joint_proba(data, np.array([[0], [99]]))

    def test_not_fitted(self, data: Data) -> None:
        for call in (DSSClassifier().predict, DSSClassifier().ood_score, DSSClassifier().uncertainty):
            with pytest.raises(NotFittedError):
                call(data)


class TestAtTheEdges:
    def test_no_nodes(self, data: Data, model: DSSClassifier) -> None:
        none = Data(x=data.x[:0], edge_index=torch.empty(2, 0, dtype=torch.int64))
        assert model.predict_proba(none).shape == (0, len(model.classes_))
        assert len(model.uncertainty(none)) == 0

    def test_score_counts_labelled_nodes_only(self, data: Data, model: DSSClassifier) -> None:
        expected = model.score(data)
        hidden = changed(data, y=torch.where(data.test_mask, data.y, -1), test_mask=None)
        assert model.score(hidden) == expected
        assert model.score(changed(data, y=data.y[:, None])) == expected

    def test_score_needs_labels_and_masks(self, data: Data, model: DSSClassifier) -> None:
        for change, message in [
            ({"y": None}, "data has no y"),
            ({"test_mask": data.test_mask.long()}, "test_mask must be boolean"),
            ({"test_mask": torch.zeros_like(data.test_mask)}, "there is no node to judge by"),
        ]:
            with pytest.raises(ValueError, match=message):
                model.score(changed(data, **change))

    def test_scores_spread_over_the_edges_that_the_network_uses(self, data: Data, model: DSSClassifier) -> None:
        expected = model.ood_score(data, propagate=(2, 0.5))
        once = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
        with pytest.warns(UserWarning, match="directed") as warned:
            scores = model.ood_score(changed(data, edge_index=once), propagate=(2, 0.5))
        assert len(warned) == 1
        np.testing.assert_allclose(scores, expected, rtol=1e-9)

    def test_a_failed_fit_is_none(self, data: Data) -> None:
        failed = DSSClassifier(epochs=2)
        with pytest.raises(ValueError, match="overlap"):
            failed.fit(changed(data, val_mask=data.train_mask))
        with pytest.raises(NotFittedError):
            failed.predict(data)

    def test_data_of_lists_and_complex_features(self, data: Data) -> None:
        for change, message in [
            ({"edge_index": data.edge_index.tolist()}, "edge_index must be a tensor, got list"),
            ({"x": data.x.to(torch.complex64)}, "x must be a floating-point tensor"),
        ]:
            with pytest.raises(TypeError, match=message):
                DSSClassifier(epochs=2).fit(changed(data, **change))

    def test_numbers_of_numpy_are_deviations(self, data: Data) -> None:
        first, second = (
            DSSClassifier(epochs=2, filter="ppr", random_state=0, s0=s0).fit(data).predict_proba(data)
            for s0 in (2, np.float32(2))
        )
        np.testing.assert_array_equal(first, second)

    def test_a_tampered_model(self, model: DSSClassifier, tmp_path: Path) -> None:
        model.save(tmp_path / "model")
        file = tmp_path / "model" / "config.json"
        about = json.loads(file.read_text())
        for change in ({"classes": None}, {"parameters": {"colour": 1}}, {"dtype": "colour"}, {"selection": 3}):
            file.write_text(json.dumps({**about, "config": {**about["config"], **change}}))
            with pytest.raises(ValueError, match="does not hold such a model"):
                DSSClassifier.load(tmp_path / "model")
        del about["config"]["classes"]
        file.write_text(json.dumps(about))
        with pytest.raises(ValueError, match="does not hold such a model: it lacks 'classes'"):
            DSSClassifier.load(tmp_path / "model")

    def test_a_model_of_a_device_that_is_not_here(self, data: Data, model: DSSClassifier, tmp_path: Path) -> None:
        copy.deepcopy(model).set_params(device="cuda:99").save(tmp_path / "model")
        with pytest.raises(ValueError, match="on this machine, got 'cuda:99'"):
            DSSClassifier.load(tmp_path / "model")
        loaded = DSSClassifier.load(tmp_path / "model", device="cpu")
        np.testing.assert_array_equal(loaded.predict_proba(data), model.predict_proba(data))
