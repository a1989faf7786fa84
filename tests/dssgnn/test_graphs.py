"""What users may give as a graph; what the classifier makes of it is in its own tests."""

from __future__ import annotations

import warnings
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.dssgnn.graphs import Graph, Labels, hold_out, is_data, labels_of, make_graph

with warnings.catch_warnings():
    # It compiles with torch.jit, which torch warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.data import Data
    from torch_geometric.utils import to_torch_csr_tensor

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CS", "ignore:Sparse invariant checks")

PAIRS = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
X = np.arange(6.0).reshape(3, 2)


def pairs_of(graph: Graph) -> list[tuple[int, ...]]:
    return sorted(map(tuple, graph.edge_index.T.tolist()))


def data(**attributes: Any) -> Data:
    return Data(x=torch.from_numpy(X).float(), edge_index=PAIRS, **attributes)


class TestData:
    def test_is_told_from_arrays(self) -> None:
        assert is_data(data())
        assert not any(map(is_data, (X, sp.csr_array(X), torch.ones(2, 2), [[1.0]])))

    def test_is_taken_as_it_is(self) -> None:
        given_, weight = data(edge_weight=torch.ones(4)), torch.ones(4)
        graph = make_graph(given_)
        assert graph.x is given_.x
        assert graph.edge_index is given_.edge_index
        assert torch.equal(graph.edge_weight, weight)
        assert make_graph(data()).edge_weight is None

    def test_features_of_integers_are_made_floats(self) -> None:
        assert make_graph(Data(x=torch.tensor([[1], [2]]), edge_index=PAIRS[:, :2])).x.tolist() == [[1.0], [2.0]]
        double = Data(x=torch.ones(2, 1, dtype=torch.float64), edge_index=PAIRS[:, :2])
        assert make_graph(double).x.dtype == torch.float64

    def test_a_transposed_sparse_adjacency_stands_for_edges(self) -> None:
        adj_t = to_torch_csr_tensor(PAIRS)
        assert make_graph(Data(x=torch.ones(3, 1), adj_t=adj_t)).edge_index is adj_t

    @pytest.mark.parametrize(
        ("X", "adjacency", "message"),
        [
            (data(), PAIRS, "adjacency must be None for a Data"),
            (Data(edge_index=PAIRS), None, "data has no x: set data.x"),
            (Data(x=torch.ones(3, 1)), None, "data has no edge_index: set it, or pass data.x"),
        ],
    )
    def test_refused(self, X: Data, adjacency: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            make_graph(X, adjacency)

    def test_moves(self) -> None:
        graph = make_graph(data(edge_weight=torch.ones(4))).to(torch.device("meta"))
        assert {part.device.type for part in (graph.x, graph.edge_index, graph.edge_weight)} == {"meta"}
        assert make_graph(data()).to(torch.device("cpu")).edge_weight is None


class TestFeatures:
    @pytest.mark.parametrize("make", [np.asarray, sp.csr_array, sp.csc_matrix, sp.coo_array, torch.tensor, list])
    def test_kinds(self, make: Any) -> None:
        x = make_graph(make(X)).x
        assert x.is_floating_point()
        np.testing.assert_array_equal(x.to_dense().numpy(), X)
        assert (x.layout == torch.sparse_csr) == sp.issparse(make(X))

    def test_are_a_copy_in_single_precision(self) -> None:
        array = X.astype(np.float32)
        graph = make_graph(array)
        array[:] = -1
        assert graph.x.dtype == torch.float32
        np.testing.assert_array_equal(graph.x, X)
        assert make_graph(torch.tensor([[1, 2]])).x.dtype == torch.float32

    def test_repeated_entries_of_a_sparse_matrix_add_up(self) -> None:
        matrix = sp.coo_array(([1.0, 2.0, 4.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
        assert make_graph(matrix).x.to_dense().tolist() == [[0, 3], [4, 0]]


class TestAdjacency:
    def test_none_is_no_edges(self) -> None:
        graph = make_graph(X)
        assert (graph.edge_index.shape, graph.edge_index.dtype, graph.edge_weight) == ((2, 0), torch.int64, None)

    @pytest.mark.parametrize("make", [np.asarray, torch.as_tensor, np.ndarray.tolist, lambda a: a.astype(np.uint8)])
    def test_pairs(self, make: Any) -> None:
        graph = make_graph(X, make(PAIRS.numpy()))
        assert pairs_of(graph) == [(0, 1), (1, 0), (1, 2), (2, 1)]
        assert graph.edge_index.dtype == torch.int64
        assert graph.edge_weight is None

    @pytest.mark.parametrize("make", [sp.csr_array, sp.coo_matrix, sp.csc_array])
    def test_a_sparse_matrix_has_weights(self, make: Any) -> None:
        graph = make_graph(X, make(np.array([[0, 2.0, 0], [2, 0, 0.5], [0, 0.5, 0]])))
        assert dict(zip(pairs_of(graph), [2, 2, 0.5, 0.5], strict=True)) == dict(
            zip(map(tuple, graph.edge_index.T.tolist()), graph.edge_weight.tolist(), strict=True)
        )
        assert graph.edge_weight.dtype == torch.float32

    def test_nodes_of_a_networkx_graph_are_taken_by_number(self) -> None:
        graph = nx.Graph()
        graph.add_nodes_from([2, 1, 0])
        graph.add_edge(0, 1, weight=3.0)
        made = make_graph(X, graph)
        assert pairs_of(made) == [(0, 1), (1, 0)]
        assert made.edge_weight.tolist() == [3, 3]

    def test_other_nodes_of_a_networkx_graph_are_taken_in_their_order(self) -> None:
        graph = nx.Graph([("b", "a")])
        graph.add_node("c")
        graph.add_edge("c", "a")
        assert pairs_of(make_graph(X, graph)) == [(0, 1), (1, 0), (1, 2), (2, 1)]
        shifted = nx.Graph([(3, 2), (2, 1)])
        assert pairs_of(make_graph(X, shifted)) == [(0, 1), (1, 0), (1, 2), (2, 1)]
        assert pairs_of(make_graph(X, nx.DiGraph([("b", "a"), ("a", "c")]))) == [(0, 1), (1, 2)]

    def test_a_networkx_graph_without_nodes(self) -> None:
        assert make_graph(np.empty((0, 2)), nx.Graph()).edge_index.shape == (2, 0)

    @pytest.mark.parametrize(
        ("adjacency", "kind", "message"),
        [
            ("edges.csv", TypeError, "sparse matrix, a networkx graph or None, got str"),
            ({0: [1]}, TypeError, "got dict"),
            (np.eye(3, dtype=bool), TypeError, "got ndarray"),
            ([[0, 1], [1]], TypeError, "got list"),
            (np.zeros(3, int), ValueError, r"shape \(2, edges\).*got \(3,\)"),
            (np.eye(3), ValueError, r"got \(3, 3\)"),
            (sp.eye_array(4), ValueError, r"shape \(3, 3\), got \(4, 4\)"),
            (nx.path_graph(4), ValueError, r"shape \(3, 3\), got \(4, 4\)"),
        ],
    )
    def test_refused(self, adjacency: Any, kind: type[Exception], message: str) -> None:
        with pytest.raises(kind, match=message):
            make_graph(X, adjacency)

    def test_pairs_that_are_not_integers_are_left_for_the_graphs_own_checks(self) -> None:
        assert make_graph(X, [[0.0, 1.5], [1.0, 0.0]]).edge_index.tolist() == [[0, 1.5], [1, 0]]


MASK = torch.tensor([True, True, False])


class TestLabels:
    def test_of_an_array_all_are_learned_from(self) -> None:
        labels = labels_of(X, np.array(["b", "a", "b"]), None, None)
        assert labels.classes.tolist() == ["a", "b"]
        assert labels.codes.tolist() == [1, 0, 1]
        assert labels.train.tolist() == [True] * 3
        assert labels.val is None

    def test_of_an_array_all_but_the_validation_nodes(self) -> None:
        labels = labels_of(X, np.array([5, 3, 5]), None, ~MASK.numpy())
        assert labels.train.tolist() == [True, True, False]
        assert labels.val is not None
        assert labels.val.tolist() == [False, False, True]

    @pytest.mark.parametrize(
        "y", [torch.tensor([[4], [2], [-1]]), np.array([4.0, 2.0, np.nan]), np.array(["4", "2", None], object)]
    )
    def test_nodes_without_a_label(self, y: Any) -> None:
        labels = labels_of(data(train_mask=MASK), y, None, None)
        assert labels.codes.tolist() == [1, 0, -1]
        assert [float(name) for name in labels.classes] == [2, 4]
        message = "train_mask has 1 nodes without a label"
        with pytest.raises(ValueError, match=message):
            labels_of(data(train_mask=torch.ones(3, dtype=torch.bool)), y, None, None)
        with pytest.raises(ValueError, match="val_mask has 1 nodes without a label"):
            labels_of(data(train_mask=MASK, val_mask=~MASK), y, None, None)

    def test_the_masks_of_a_graph_are_used_unless_others_are_given(self) -> None:
        held = data(y=torch.tensor([0, 1, 0]), train_mask=MASK, val_mask=~MASK)
        labels = labels_of(held, None, None, None)
        assert labels.val is not None
        assert (labels.train.tolist(), labels.val.tolist()) == ([True, True, False], [False, False, True])
        other = labels_of(held, None, [False, True, True], [True, False, False])
        assert other.val is not None
        assert (other.train.tolist(), other.val.tolist()) == ([False, True, True], [True, False, False])

    @pytest.mark.parametrize(
        ("masks", "message"),
        [
            ({}, "data has no train_mask: set data.train_mask, or give train_mask="),
            ({"train_mask": MASK, "val_mask": MASK}, "train_mask and val_mask overlap in 2 nodes"),
            ({"train_mask": MASK, "test_mask": torch.ones(3, dtype=torch.bool)}, "test_mask overlap in 2 nodes"),
            ({"train_mask": MASK[:, None].repeat(1, 10)}, "train_mask must hold one split, got 10: choose a column"),
            ({"train_mask": MASK.long()}, r"boolean with shape \(3,\), got int64"),
            ({"train_mask": ~MASK & MASK}, "train_mask is empty"),
            ({"train_mask": ~MASK}, "at least two classes, got one class: .*0"),
        ],
    )
    def test_refused(self, masks: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            labels_of(data(y=torch.tensor([0, 1, 0]), **masks), None, None, None)

    def test_a_class_that_nothing_is_learned_of_is_told(self) -> None:
        with pytest.warns(UserWarning, match=r"no node is in train_mask: pear, plum$"):
            labels_of(
                np.ones((5, 1)), np.array(["fig", "kiwi", "plum", "pear", "fig"]), [True, True, *[False] * 3], None
            )


class TestHoldOut:
    @staticmethod
    def labels(*counts: int) -> Labels:
        codes = np.repeat(np.arange(len(counts)), counts)
        return Labels(np.arange(len(counts)), codes, np.ones(len(codes), bool), None)

    @given(
        counts=st.lists(st.integers(1, 12), min_size=1, max_size=4),
        fraction=st.floats(0, 1),
        seed=st.integers(0, 2**31 - 1),
    )
    @settings(max_examples=40)
    def test_splits_every_class(self, counts: list[int], fraction: float, seed: int) -> None:
        expected = [min(round(fraction * count), count - 1) for count in counts]
        labels, rng = self.labels(*counts), np.random.RandomState(seed)
        if not any(expected):
            with pytest.raises(ValueError, match="leaves none of any class to hold out: give val_mask="):
                hold_out(labels, fraction, rng)
            return
        held = hold_out(labels, fraction, rng)
        assert held.val is not None
        assert np.bincount(labels.codes[held.val], minlength=len(counts)).tolist() == expected
        assert np.bincount(held.codes[held.train]).min() > 0
        np.testing.assert_array_equal(held.train ^ held.val, labels.train)
        assert labels.train.all()

    def test_is_of_training_nodes_alone(self) -> None:
        labels = self.labels(10, 10)
        labels.train[[0, 1, 2, 3, 4, 15]] = False
        held = hold_out(labels, 0.2, np.random.RandomState(0))
        assert held.val is not None
        assert held.val.sum() == 1 + 2
        assert not (held.val & ~labels.train).any()

    def test_the_generator_decides(self) -> None:
        labels = self.labels(30, 30)
        masks = [hold_out(labels, 0.3, np.random.RandomState(seed)).val for seed in (0, 0, 1)]
        np.testing.assert_array_equal(masks[0], masks[1])
        assert (masks[0] != masks[2]).any()

    @pytest.mark.parametrize("fraction", [-0.1, 1.5])
    def test_bad_fractions(self, fraction: float) -> None:
        with pytest.raises(ValueError, match=f"validation_fraction.*{fraction}"):
            hold_out(self.labels(5, 5), fraction, np.random.RandomState(0))
