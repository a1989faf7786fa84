"""Published graphs against their known sizes, the ring against dense linear algebra, tables and files against messages."""

from __future__ import annotations

import json
import math
import pickle
import urllib.error
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.core.data import DataUnavailable, path
from paperworks.dssgnn import data as graphs
from paperworks.dssgnn.chaos import ChaosLogits
from paperworks.dssgnn.data import (
    DATASETS,
    FILES,
    graph_from_tables,
    load_dataset,
    load_twitch,
    read_graphml,
    read_npz,
    stochastic_ring,
)
from paperworks.dssgnn.filters import normalized_shift

with warnings.catch_warnings():
    # It compiles with torch.jit, which torch warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric import datasets
    from torch_geometric.data import Data
    from torch_geometric.io import read_planetoid_data

FILE = {file.name: file for file in FILES}
CORA, CITESEER = ([f for f in FILE if f.startswith(f"ind.{name}.")] for name in ("cora", "citeseer"))
TWITCH = {code: [f for f in FILE if f.startswith(f"musae_{code}_")] for code in ("DE", "ES", "RU")}


def published(name: str, files: list[str], *expected: Any) -> Any:
    return pytest.param(name, *expected, id=name, marks=[pytest.mark.data(f"dssgnn/{file}") for file in files])


class TestPublished:
    @pytest.mark.parametrize(
        ("name", "shape", "edges", "counts", "masks", "zero_rows"),
        [
            published("cora", CORA, (2708, 1433), 5278, [351, 217, 418, 818, 426, 298, 180], (140, 500, 1000), 0),
            published("citeseer", CITESEER, (3327, 3703), 4552, [249, 590, 668, 701, 596, 508], (120, 500, 1000), 15),
            published("texas", ["texas.npz"], (183, 1703), 279, [33, 1, 18, 101, 30], (87, 59, 37), 0),
            published("wisconsin", ["wisconsin.npz"], (251, 1703), 450, [10, 70, 118, 32, 21], (120, 80, 51), 0),
            published("cornell", ["cornell.npz"], (183, 1703), 277, [38, 16, 30, 82, 17], (87, 59, 37), 0),
            published("actor", ["actor.npz"], (7600, 932), 26659, [853, 1337, 1630, 1815, 1965], (3648, 2432, 1520), 0),
            published(
                "chameleon_filtered",
                ["chameleon_filtered.npz"],
                (890, 2325),
                8854,
                [242, 134, 209, 164, 141],
                (409, 287, 194),
                94,
            ),
            published(
                "squirrel_filtered",
                ["squirrel_filtered.npz"],
                (2223, 2089),
                46998,
                [756, 516, 397, 321, 233],
                (1053, 718, 452),
                113,
            ),
            published("minesweeper", ["minesweeper.npz"], (10000, 7), 39402, [8000, 2000], (5000, 2500, 2500), None),
            published("tolokers", ["tolokers.npz"], (11758, 10), 519000, [9192, 2566], (5879, 2939, 2940), None),
            published("twitch-de", TWITCH["DE"], (9498, 3170), 153138, [3756, 5742], (4749, 2374, 2375), 0),
            published("twitch-es", TWITCH["ES"], (4648, 3170), 59382, [3288, 1360], (2324, 1162, 1162), 0),
            published("twitch-ru", TWITCH["RU"], (4385, 3170), 37304, [3310, 1075], (2192, 1096, 1097), 0),
        ],
    )
    def test_sizes(
        self,
        name: str,
        shape: tuple[int, int],
        edges: int,
        counts: list[int],
        masks: tuple[int, int, int],
        zero_rows: int | None,
    ) -> None:
        data = load_dataset(name)
        assert data.name == name
        assert (data.x.shape, data.x.dtype, data.y.dtype) == (shape, torch.float32, torch.int64)
        assert data.edge_index.shape == (2, 2 * edges)
        assert data.is_undirected()
        assert not data.has_self_loops()
        assert data.y[data.y >= 0].bincount().tolist() == counts
        assert (int(data.train_mask.sum()), int(data.val_mask.sum()), int(data.test_mask.sum())) == masks
        assert not (data.train_mask & data.val_mask | (data.train_mask | data.val_mask) & data.test_mask).any()
        if zero_rows is not None:
            total = data.x.sum(1)
            torch.testing.assert_close(total[total > 0], torch.ones(shape[0] - zero_rows))

    @pytest.mark.parametrize(
        ("name", "unknown", "isolated"), [published("cora", CORA, 0, 0), published("citeseer", CITESEER, 15, 48)]
    )
    def test_planetoid_equals_the_reader_of_torch_geometric(self, name: str, unknown: int, isolated: int) -> None:
        folder = path(FILE[f"ind.{name}.x"]).parent
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = read_planetoid_data(str(folder), name)
        ours = load_dataset(name)
        known = ours.y >= 0
        assert int((~known).sum()) == unknown
        assert int((ours.edge_index[0].bincount(minlength=len(known)) == 0).sum()) == isolated
        assert not ours.x[~known].any()
        assert torch.equal(ours.y[known], theirs.y[known])
        assert torch.equal(ours.x > 0, theirs.x > 0)
        assert torch.equal(ours.edge_index, theirs.edge_index.flip(0))
        for mask in ("train_mask", "val_mask", "test_mask"):
            assert torch.equal(ours[mask], theirs[mask])

    @pytest.mark.data("dssgnn/texas.npz")
    def test_splits(self) -> None:
        first, last = load_dataset("texas"), load_dataset("texas", 9)
        assert torch.equal(first.x, last.x)
        assert not torch.equal(first.train_mask, last.train_mask)
        with np.load(path(FILE["texas.npz"])) as archive:
            np.testing.assert_array_equal(last.val_mask, archive["val_masks"][9])
        with pytest.raises(ValueError, match=r"split must be one of 0, .*, 9, got 10"):
            load_dataset("texas", 10)

    @pytest.mark.data("dssgnn/tolokers.npz")
    def test_features_that_are_no_words_stay_as_they_are(self) -> None:
        with np.load(path(FILE["tolokers.npz"])) as archive:
            np.testing.assert_array_equal(load_dataset("tolokers").x, archive["node_features"])

    @pytest.mark.data("dssgnn/musae_RU_target.csv")
    def test_twitch(self) -> None:
        data = load_twitch("RU", 3)
        target = pd.read_csv(path(FILE["musae_RU_target.csv"]))
        np.testing.assert_array_equal(data.y[target["new_id"].to_numpy()], target["mature"])
        active = json.loads(path(FILE["musae_RU_features.json"]).read_text())
        for node in (0, 17, 4384):
            assert data.x[node].nonzero().flatten().tolist() == sorted(set(active[str(node)]))
        assert torch.equal(data.train_mask, load_twitch("RU", 3).train_mask)
        assert not torch.equal(data.train_mask, load_twitch("RU", 4).train_mask)

    def test_errors_list_the_choices(self) -> None:
        with pytest.raises(ValueError, match=r"name must be one of 'cora', .*'questions', got 'zachary'"):
            load_dataset("zachary")
        with pytest.raises(ValueError, match="language must be one of 'DE', 'ES', 'RU', got 'FR'"):
            load_twitch("FR")
        with pytest.raises(ValueError, match="split must be one of 0, got 1"):
            load_dataset("cora", 1)

    def test_files(self) -> None:
        assert len(FILE) == len(FILES) == 33
        assert len(set(DATASETS)) == len(DATASETS) == 21
        assert all(file.slug == "dssgnn" and file.size for file in FILES)


class Malicious:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("was-here"),))


class TestUnpickler:
    @pytest.mark.parametrize("harm", [Malicious(), {"x": [Malicious()]}, np.random.default_rng, eval])
    def test_refuses_what_is_no_data(self, harm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        file = tmp_path / "ind.cora.graph"
        file.write_bytes(pickle.dumps(harm, protocol=2))
        with pytest.raises(pickle.UnpicklingError, match=r"\w+\.\w+ is not allowed in a data file"):
            graphs._unpickle(file)
        assert not Path("was-here").exists()

    def test_reads_the_dictionary_of_a_graph(self, tmp_path: Path) -> None:
        file = tmp_path / "ind.cora.graph"
        graph = defaultdict(list, {0: [1, 2], 1: [0]})
        file.write_bytes(pickle.dumps(graph, protocol=2))
        assert graphs._unpickle(file) == graph


class TestDownloaded:
    @pytest.fixture(autouse=True)
    def _own_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PAPERWORKS_CACHE", str(tmp_path))
        monkeypatch.delenv("PAPERWORKS_OFFLINE", raising=False)

    @pytest.mark.parametrize("name", DATASETS[-8:])
    def test_not_where_the_network_is_forbidden(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PAPERWORKS_OFFLINE", "1")
        with pytest.raises(DataUnavailable, match=f"{name} is not on this machine, and PAPERWORKS_OFFLINE"):
            load_dataset(name)

    def test_a_failed_download_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(root: str, name: str) -> Any:
            (Path(root) / "raw").mkdir(parents=True)
            (Path(root) / "raw" / name).write_text("a part")
            raise urllib.error.URLError("no route")

        monkeypatch.setattr(datasets, "Amazon", broken)
        with pytest.raises(DataUnavailable, match=r"photo is not on this machine and cannot be downloaded .*no route"):
            load_dataset("photo")
        assert not list(tmp_path.rglob("*Photo"))

    def test_masks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = []

        def source(root: str, name: str) -> list[Data]:
            calls.append(name)
            data = Data(torch.full((10, 4), 2.0), torch.tensor([[0, 1, 2], [1, 0, 2]]), y=torch.arange(10) % 2)
            if name == "Roman-empire":
                masks = torch.eye(10, dtype=torch.bool)
                data.train_mask, data.val_mask, data.test_mask = masks, masks.roll(1, 0), masks.roll(2, 0)
            return [data]

        for name in ("Coauthor", "HeterophilousGraphDataset"):
            monkeypatch.setattr(datasets, name, source)
        physics, roman = load_dataset("physics", 4), load_dataset("roman-empire", 4)
        assert calls == ["Physics", "Roman-empire"]
        assert physics.edge_index.tolist() == [[0, 1], [1, 0]]
        assert [int(physics[mask].sum()) for mask in ("train_mask", "val_mask", "test_mask")] == [6, 2, 2]
        assert (physics.x == 0.25).all()
        assert (roman.x == 2).all()
        places = [roman[mask].nonzero().item() for mask in ("train_mask", "val_mask", "test_mask")]
        assert places == [4, 5, 6]


class TestRing:
    def test_coefficients_by_dense_linear_algebra(self) -> None:
        t, s, order = 1.3, 0.7, 20
        data = stochastic_ring(11, 2.0, 5, t=t, s=s, order=order)
        shift = normalized_shift(data.edge_index, dtype=torch.float64).to_dense()
        u = data.x.double()
        for p in (0, 1, 4):
            power = torch.linalg.matrix_power(s * shift, p) / math.sqrt(math.factorial(p))
            filtered = torch.matrix_exp(t * (shift - torch.eye(11)) + s * s / 2 * shift @ shift) @ power
            torch.testing.assert_close(data.coefs[p].double(), filtered @ u, atol=1e-6, rtol=1e-5)
        xi = 0.9
        limit = torch.matrix_exp(t * (shift - torch.eye(11)) + s * xi * shift) @ u
        logits = ChaosLogits(data.coefs.double()).logits(torch.tensor([xi]))[0]
        torch.testing.assert_close(logits, limit, atol=1e-5, rtol=1e-5)

    def test_labels_follow_the_probabilities(self) -> None:
        data = stochastic_ring(15_000, 4.0, 1, classes=4)
        p = data.proba.double()
        assert (p.sum(1) - 1).abs().max() < 1e-6
        torch.testing.assert_close(data.proba, ChaosLogits(data.coefs).predictive(64), atol=1e-5, rtol=1e-4)
        assert p.max(1).values.quantile(0.9) > 0.8
        hit = torch.nn.functional.one_hot(data.y, 4)
        for low, high in ((0, 0.1), (0.1, 0.4), (0.4, 0.7), (0.7, 1)):
            chosen = (p >= low) & (p < high)
            z = (hit - p)[chosen].sum() / (p * (1 - p))[chosen].sum().sqrt()
            assert abs(z) < 4
        # Neighbours' labels are drawn on their own: what one deviates by says nothing of the other.
        deviation = (hit - p) / (p * (1 - p)).sqrt()
        assert abs((deviation * deviation.roll(1, 0)).mean()) < 0.02

    def test_structure_masks_and_seed(self) -> None:
        data = stochastic_ring(50, 1.0, 7)
        assert data.edge_index.shape == (2, 100)
        assert (data.edge_index[0].bincount() == 2).all()
        assert data.is_undirected()
        assert [int(data[mask].sum()) for mask in ("train_mask", "val_mask", "test_mask")] == [30, 10, 10]
        again, other = stochastic_ring(50, 1.0, 7), stochastic_ring(50, 1.0, 8)
        assert all(torch.equal(data[key], again[key]) for key in ("x", "y", "coefs", "proba", "train_mask"))
        assert not torch.equal(data.x, other.x)

    def test_without_signal_the_classes_are_equally_likely(self) -> None:
        torch.testing.assert_close(stochastic_ring(6, 0, 0).proba, torch.full((6, 3), 1 / 3))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"n": 2}, "n must be at least 3, got 2"),
            ({"sigma": -1.0}, "sigma must be non-negative, got -1.0"),
            ({"t": math.nan}, "t must be non-negative, got nan"),
            ({"order": -1}, "order must be at least 0, got -1"),
            ({"classes": 1}, "classes must be at least 2, got 1"),
            ({"seed": -1}, "seed must be at least 0, got -1"),
        ],
    )
    def test_bad_input(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            stochastic_ring(**{"n": 5, "sigma": 1.0, "seed": 0, **arguments})


NODES = pd.DataFrame(
    {"id": ["a", "b", "c"], "age": [1.0, 2.0, 3.0], "member": [True, False, True], "kind": ["x", "", "w"]}
)
EDGES = pd.DataFrame({"source": ["a", "b"], "target": ["b", "c"]})


class TestTables:
    def test_a_small_graph(self) -> None:
        data, ids, classes, features = graph_from_tables(NODES, EDGES, id="id", label="kind")
        assert data.x.tolist() == [[1, 1], [2, 0], [3, 1]]
        assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
        assert data.y.tolist() == [1, -1, 0]
        assert data.train_mask.tolist() == [True, False, True]
        assert (data.x.dtype, data.edge_index.dtype, data.y.dtype) == (torch.float32, torch.int64, torch.int64)
        assert (ids.tolist(), classes, features) == (["a", "b", "c"], ("w", "x"), ("age", "member"))
        assert "edge_weight" not in data

    def test_without_label(self) -> None:
        data, _, classes, features = graph_from_tables(NODES.drop(columns="kind"), EDGES, id="id")
        assert (classes, features, data.y.tolist()) == ((), ("age", "member"), [-1, -1, -1])
        assert not data.train_mask.any()

    def test_whole_numbers_stay_whole(self) -> None:
        nodes = pd.DataFrame({"id": [10, 20, 30], "f": [0, 1, 2], "grade": [5, None, 2]})
        graph = graph_from_tables(nodes, pd.DataFrame({"source": ["10"], "target": ["30"]}), id="id", label="grade")
        assert graph.classes == (2, 5)
        assert all(isinstance(grade, int) for grade in graph.classes)
        assert graph.data.edge_index.tolist() == [[0, 2], [2, 0]]

    def test_no_edges(self) -> None:
        graph = graph_from_tables(NODES, EDGES.iloc[:0], id="id", label="kind")
        assert graph.data.edge_index.shape == (2, 0)

    def test_weights_repeats_and_loops(self) -> None:
        edges = pd.DataFrame({"source": list("aabcc"), "target": list("bbacc"), "weight": [1, 3, 2, 5, 0.5]})
        with pytest.warns(UserWarning, match="there are 1 repeated edges, .* and 2 self loops, which are dropped"):
            data = graph_from_tables(NODES, edges, id="id", label="kind").data
        assert data.edge_index.tolist() == [[0, 1], [1, 0]]
        assert data.edge_weight.tolist() == [3, 3]

    @settings(max_examples=25)
    @given(st.integers(1, 12), st.integers(0, 30), st.integers(0, 2**32 - 1))
    def test_order_and_direction_of_edges_do_not_matter(self, n: int, m: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        names = rng.permutation(100)[:n]
        nodes = pd.DataFrame({"id": names, "f": rng.random(n)})
        ends = rng.integers(n, size=(m, 2))
        ends = np.unique(ends[ends[:, 0] < ends[:, 1]], axis=0)
        weight = rng.random(len(ends))

        def graph(ends: np.ndarray, weight: np.ndarray) -> Any:
            table = pd.DataFrame({"source": names[ends[:, 0]], "target": names[ends[:, 1]], "weight": weight})
            return graph_from_tables(nodes, table, id="id").data

        order, turned = rng.permutation(len(ends)), ends.copy()
        flip = rng.random(len(ends)) < 0.5
        turned[flip] = turned[flip, ::-1]
        one, other = graph(ends, weight), graph(turned[order], weight[order])
        assert torch.equal(one.edge_index, other.edge_index)
        assert torch.equal(one.edge_weight, other.edge_weight)
        dense = np.zeros((n, n), dtype=np.float32)
        dense[ends[:, 0], ends[:, 1]] = dense[ends[:, 1], ends[:, 0]] = weight
        made = np.zeros((n, n), dtype=np.float32)
        made[tuple(one.edge_index.numpy())] = one.edge_weight
        np.testing.assert_array_equal(made, dense)

    @pytest.mark.parametrize(
        ("nodes", "edges", "message"),
        [
            (NODES.drop(columns="id"), EDGES, "nodes must have a column 'id', got 'age', 'member', 'kind'"),
            (NODES.drop(columns="kind"), EDGES, "nodes must have a column 'kind'"),
            (NODES, EDGES.drop(columns="target"), "edges must have a column 'target', got 'source'"),
            (NODES[["id", "kind"]], EDGES, "nodes must have a column of features"),
            (NODES.assign(id=["a", "b", "a"]), EDGES, "nodes, row 4: column 'id' must name each node once, got 'a'"),
            (NODES.assign(id=["a", None, "c"]), EDGES, "nodes, row 3: column 'id' is empty"),
            (NODES, EDGES.assign(target=["b", "z"]), "edges, row 3: column 'target' names z, which is no node"),
            (NODES, EDGES.assign(source=["a", None]), "edges, row 3: column 'source' is empty"),
            (NODES.assign(age=[1, "old", 3]), EDGES, "nodes, row 3: column 'age' must hold finite numbers, got old"),
            (NODES.assign(age=[1, 2, np.nan]), EDGES, "nodes, row 4: column 'age' .* got an empty cell"),
            (NODES.assign(age=[np.inf, 2, 3]), EDGES, "nodes, row 2: column 'age' must hold finite numbers, got inf"),
            (NODES.assign(age=pd.Timestamp(0)), EDGES, "column 'age' must hold numbers, got datetime64"),
            (NODES, EDGES.assign(weight=[1, -2]), "edges, row 3: column 'weight' .* not negative, got -2"),
            (NODES, EDGES.assign(weight=[1, np.nan]), "edges, row 3: column 'weight' .* got an empty cell"),
        ],
    )
    def test_bad_input(self, nodes: pd.DataFrame, edges: pd.DataFrame, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            graph_from_tables(nodes, edges, id="id", label="kind", first_row=2)


class TestGraphml:
    @staticmethod
    def write(graph: Any, folder: Path) -> Path:
        file = folder / "graph.graphml"
        nx.write_graphml(graph, file)
        return file

    def test_attributes(self, tmp_path: Path) -> None:
        graph = nx.DiGraph()
        graph.add_node("u", age=3, kind="x")
        graph.add_node("v", age=4.5, kind="y")
        graph.add_node("w", age=0)
        graph.add_edge("u", "v", weight=2.0)
        graph.add_edge("v", "u", weight=1.0)
        read = read_graphml(self.write(graph, tmp_path), label="kind")
        assert (read.ids.tolist(), read.classes, read.features) == (["u", "v", "w"], ("x", "y"), ("age",))
        assert read.data.x.flatten().tolist() == [3, 4.5, 0]
        assert read.data.y.tolist() == [0, 1, -1]
        assert (read.data.edge_index.tolist(), read.data.edge_weight.tolist()) == ([[0, 1], [1, 0]], [2, 2])

    def test_words_are_no_features(self, tmp_path: Path) -> None:
        graph = nx.path_graph(3)
        nx.set_node_attributes(graph, {i: {"age": i, "town": "Bern"} for i in range(3)})
        with pytest.warns(UserWarning, match="not numeric are left out: town"):
            read = read_graphml(str(self.write(graph, tmp_path)))
        assert read.features == ("age",)
        assert "edge_weight" not in read.data

    def test_bad_input(self, tmp_path: Path) -> None:
        file = tmp_path / "no.graphml"
        file.write_text("<graph")
        with pytest.raises(ValueError, match=r"no\.graphml is not a GraphML file"):
            read_graphml(file)
        graph = nx.empty_graph(2)
        nx.set_node_attributes(graph, {0: {"age": 1}, 1: {}})
        with pytest.raises(ValueError, match="row 1: column 'age' must hold finite numbers, got an empty cell"):
            read_graphml(self.write(graph, tmp_path))
        with pytest.raises(ValueError, match=r"no node of .* has the attribute 'kind'"):
            read_graphml(self.write(graph, tmp_path), label="kind")
        with pytest.raises(ValueError, match="has no node"):
            read_graphml(self.write(nx.Graph(), tmp_path))


ARRAYS: dict[str, Any] = {
    "node_features": np.arange(8, dtype=np.float32).reshape(4, 2),
    "node_labels": np.array([0, 1, -1, 1]),
    "edges": np.array([[0, 1], [2, 1]]),
    "train_masks": np.eye(2, 4, dtype=bool),
    "val_masks": np.eye(2, 4, 1, dtype=bool),
    "test_masks": np.eye(2, 4, 2, dtype=bool),
}


class TestNpz:
    @staticmethod
    def write(folder: Path, **changed: Any) -> Path:
        file = folder / "mine.npz"
        np.savez(file, **{key: value for key, value in {**ARRAYS, **changed}.items() if value is not None})
        return file

    def test_a_small_graph(self, tmp_path: Path) -> None:
        data = read_npz(self.write(tmp_path), 1)
        assert data.name == "mine"
        assert data.x.tolist() == ARRAYS["node_features"].tolist()
        assert data.y.tolist() == [0, 1, -1, 1]
        assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
        masks = [data[mask].nonzero().item() for mask in ("train_mask", "val_mask", "test_mask")]
        assert masks == [1, 2, 3]

    def test_repeats_are_told(self, tmp_path: Path) -> None:
        file = self.write(tmp_path, edges=np.array([[0, 1], [0, 1], [3, 3]]))
        with pytest.warns(UserWarning, match="1 repeated edges, .* 1 self loops"):
            assert read_npz(file).edge_index.tolist() == [[0, 1], [1, 0]]

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"node_labels": None, "edges": None}, "node_labels, edges is missing"),
            ({"edges": np.array([[0, 12]])}, "edges refers to node 12 but node_features has 4 rows"),
            ({"edges": np.array([[0, -1]])}, "edges refers to node -1 but"),
            ({"edges": np.array([[0.0, 1.0]])}, r"edges does not fit, got float64 of shape \(1, 2\)"),
            ({"edges": np.zeros((3, 3), int)}, r"edges does not fit, got int64 of shape \(3, 3\)"),
            ({"node_features": np.zeros((3, 2))}, "node_features does not fit"),
            ({"node_features": np.full((4, 2), np.nan)}, "must be finite, got nan in row 0, column 0"),
            ({"node_labels": np.array([0, 1, -2, 1])}, "node_labels must be at least -1, got -2"),
            ({"val_masks": np.zeros((1, 4), bool)}, "val_masks does not fit"),
            ({"node_features": np.array([[{}], [{}], [{}], [{}]])}, "allow_pickle=False"),
        ],
    )
    def test_bad_input(self, changed: dict[str, Any], message: str, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=message):
            read_npz(self.write(tmp_path, **changed))

    def test_no_such_split(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="split must be one of 0, 1, got 2"):
            read_npz(self.write(tmp_path), 2)

    @pytest.mark.parametrize("content", [b"nothing of the sort", pickle.dumps(Malicious())])
    def test_not_npz(self, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        file = tmp_path / "mine.npz"
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"mine\.npz is not an npz file"):
            read_npz(file)
        np.save(tmp_path / "one.npy", np.zeros(3))
        with pytest.raises(ValueError, match=r"one\.npy is not an npz file"):
            read_npz(tmp_path / "one.npy")
        assert not Path("was-here").exists()
