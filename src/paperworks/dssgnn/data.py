"""Graphs to classify the nodes of: published ones, one with known probabilities, and the user's own tables and files."""

from __future__ import annotations

import os
import pickle
import shutil
import warnings
import zipfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from paperworks.core.data import DataFile, DataUnavailable, cache_folder, path
from paperworks.core.validation import check_choice, check_integer, check_names, check_real

if TYPE_CHECKING:
    import torch_geometric.data

__all__ = [
    "DATASETS",
    "FILES",
    "TWITCH_LANGUAGES",
    "TableGraph",
    "contextual_sbm",
    "graph_from_tables",
    "load_dataset",
    "load_twitch",
    "read_graphml",
    "read_npz",
    "stochastic_ring",
]

_PLANETOID = "https://raw.githubusercontent.com/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data"
_YANDEX = (
    "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/"
    "a431395582e929d88271309716bea4fe24ce6318/data"
)
_TWITCH = (
    "https://raw.githubusercontent.com/CUAI/Non-Homophily-Large-Scale/"
    "82f8f05c5c3ec16bd5b505cc7ad62ab5e09051e6/data/twitch"
)
_LINQS = "MIT (2016 Zhilin Yang); the collections: LINQS, research use"
_WEBKB = "MIT (2023 Yandex Research); the originals: research use"
_MUSAE = "no licence stated; data of MUSAE (arXiv 1909.13021), research use with citation"

_FILES = {
    name: DataFile("dssgnn", name, sha256, licence, url=f"{folder}/{name}", size=size)
    for folder, licence, files in [
        (
            _PLANETOID,
            _LINQS,
            [
                ("ind.citeseer.allx", "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668", 595_021),
                ("ind.citeseer.ally", "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95", 55_623),
                ("ind.citeseer.graph", "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7", 61_987),
                ("ind.citeseer.test.index", "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4", 5_000),
                ("ind.citeseer.tx", "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21", 260_321),
                ("ind.citeseer.ty", "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce", 24_135),
                ("ind.citeseer.x", "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6", 31_087),
                ("ind.citeseer.y", "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924", 3_014),
                ("ind.cora.allx", "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543", 257_305),
                ("ind.cora.ally", "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71", 47_959),
                ("ind.cora.graph", "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d", 59_847),
                ("ind.cora.test.index", "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875", 5_000),
                ("ind.cora.tx", "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a", 148_025),
                ("ind.cora.ty", "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad", 28_135),
                ("ind.cora.x", "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab", 22_119),
                ("ind.cora.y", "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1", 4_054),
            ],
        ),
        (
            _YANDEX,
            _WEBKB,
            [
                ("texas.npz", "b164b99e6c3d43e4ab07488ec59bd8c815f90cbc1bd4cf425ce587d2b534d844", 28_586),
                ("wisconsin.npz", "2543c89838cfc75f737f7c4664cc1d097f8268602c20b2d1bd4f21407df9c074", 41_672),
                ("cornell.npz", "684c54ba3daa13b0ba1f04a3d6dd1b1175c1ae9bdeb982851fd4ff96d3aac298", 30_515),
                ("actor.npz", "c350eef06b2c2a9bf8218be2b57cac6d4003d0922eb597a039e9123f75817816", 252_956),
                ("chameleon_filtered.npz", "bf46f07e1fb5249280447e5fe3100f3e82fc4b93ad1e13ffcfdec924b6ac0bb5", 58_924),
                ("squirrel_filtered.npz", "f06370ffb3116c5de8b7a600005400b2293c025e0ce2f6916d8201a825505ac7", 208_215),
                ("minesweeper.npz", "e664c8dacf1e8ac466c2c09ed4b237bd2c5541f47a6eae9c6092cb87f16412b3", 135_045),
                ("tolokers.npz", "dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667", 1_329_769),
            ],
        ),
        (
            f"{_TWITCH}/DE",
            _MUSAE,
            [
                ("musae_DE_edges.csv", "54feaf3e3e70a485fe07f8611e4d2677841b97f77b8358204bcf4a48cc884d86", 1_499_865),
                (
                    "musae_DE_features.json",
                    "7b39c42570f05cd46017c765df8d8a1bc03f19787c3eb0f9684f50a52476ae3a",
                    1_167_905,
                ),
                ("musae_DE_target.csv", "2188f58a093bb9db363d3eaf7c3a52c2adc8ff6b23cbcb4f53875f87061c0321", 338_721),
            ],
        ),
        (
            f"{_TWITCH}/ES",
            _MUSAE,
            [
                ("musae_ES_edges.csv", "17801d2cc45fc4909a431ce7a190c0565d4af87b0548ca7705cf2bef7da4c884", 563_757),
                ("musae_ES_features.json", "598a610ef7e0469c5ad800c11f7ad89797e6a27d7d66b670782a5516cc344725", 545_028),
                ("musae_ES_target.csv", "f843427bae58289100e78c6c211fa4a1ae0d5fbf2c665841df9e390b00dcffb5", 165_932),
            ],
        ),
        (
            f"{_TWITCH}/RU",
            _MUSAE,
            [
                ("musae_RU_edges.csv", "fd307587a550289f746056ea12a7336171ab2053c9e08c42dba77499126ca5b2", 351_398),
                ("musae_RU_features.json", "c5357468471545a6169de463ef706f321446dc667d9d62d49e68c0b3feef9675", 545_944),
                ("musae_RU_target.csv", "db7617528355be994352e491e7b25d060fed466d0d81c09cadd90fa10f15c071", 158_570),
            ],
        ),
    ]
    for name, sha256, size in files
}
FILES = tuple(_FILES.values())

TWITCH_LANGUAGES = ("DE", "ES", "RU")
"""Languages of the graphs of `load_twitch`."""

# Name of each, and whether its features are counts or indicators, whose rows are divided by their sums.
_CITATION = {"cora": True, "citeseer": True}
_HETEROPHILOUS = {
    "texas": True,
    "wisconsin": True,
    "cornell": True,
    "actor": True,
    "chameleon_filtered": True,
    "squirrel_filtered": True,
    "minesweeper": False,
    "tolokers": False,
}
_DOWNLOADED = {
    "pubmed": True,
    "photo": True,
    "computers": True,
    "cs": True,
    "physics": True,
    "roman-empire": False,
    "amazon-ratings": False,
    "questions": False,
}

DATASETS = (*_CITATION, *_HETEROPHILOUS, *(f"twitch-{language.lower()}" for language in TWITCH_LANGUAGES), *_DOWNLOADED)
"""Names that `load_dataset` takes; the last eight are downloaded by PyTorch Geometric."""


def load_dataset(name: str, split: int = 0) -> torch_geometric.data.Data:
    """Return a published graph, undirected, with its split into training, validation and test nodes.

    ==========================================  ==============================================================
    Graph                                       Splits
    ==========================================  ==============================================================
    cora, citeseer, pubmed                      the public one, 20 training nodes of each class
    texas, wisconsin, cornell, actor,           the ten published ones
    chameleon_filtered, squirrel_filtered,
    minesweeper, tolokers, roman-empire,
    amazon-ratings, questions
    twitch-de, twitch-es, twitch-ru             ten random ones, 50 / 25 / 25 %: see `load_twitch`
    photo, computers, cs, physics               ten random ones, 60 / 20 / 20 %
    ==========================================  ==============================================================

    Rows of features are divided by their sums, which is what is usual for words and other indicators; minesweeper,
    tolokers, roman-empire, amazon-ratings and questions keep theirs. Directed edges are made undirected, repeated ones
    merged, self loops dropped. 15 nodes of CiteSeer are known from the edges alone: they have no features and no label.

    Parameters
    ----------
    name : str
        One of `DATASETS`.
    split : int
        Number of the split, from 0.

    Returns
    -------
    Data
        `x` float32, shape (nodes, features); `edge_index` int64, shape (2, edges), both directions; `y` int64, shape
        (nodes,), -1 without a label; `train_mask`, `val_mask`, `test_mask` bool, shape (nodes,); `name`.

    Raises
    ------
    ValueError
        An unknown name, or no such split.
    DataUnavailable
        The files are not on this machine and cannot be downloaded.
    """
    import torch

    check_choice(name, "name", DATASETS)
    if name.startswith("twitch-"):
        return load_twitch(name.removeprefix("twitch-").upper(), split)
    check_choice(split, "split", range(1 if name in ("cora", "citeseer", "pubmed") else 10))
    if name in _CITATION:
        return _planetoid(name)
    if name in _DOWNLOADED:
        data = _from_pyg(name, split)
        words = _DOWNLOADED[name]
    else:
        data = read_npz(path(_FILES[f"{name}.npz"]), split)
        words = _HETEROPHILOUS[name]
    if words:
        data.x = torch.from_numpy(_shares(data.x.numpy()))
    data.name = name
    return data


def load_twitch(language: str, split: int = 0) -> torch_geometric.data.Data:
    """Return a graph of Twitch users who stream in one language: who follows whom, and whether a channel is for adults.

    The features are the same 3170 for each language: games played and other indicators, row-normalised. The split,
    50 / 25 / 25 %, is random, as no split was published; its seed is `split`.

    Parameters
    ----------
    language : {"DE", "ES", "RU"}
        German, Spanish or Russian.
    split : int
        From 0 to 9.

    Returns
    -------
    Data
        As of `load_dataset`.

    Raises
    ------
    ValueError
        Another language, or no such split.
    DataUnavailable
        The files are not on this machine and cannot be downloaded.
    """
    import json

    check_choice(language, "language", TWITCH_LANGUAGES)
    check_choice(split, "split", range(10))
    edges, features, target = (
        path(_FILES[f"musae_{language}_{part}"]) for part in ("edges.csv", "features.json", "target.csv")
    )
    labels = pd.read_csv(target).set_index("new_id")["mature"].sort_index()
    n = len(labels)
    active = json.loads(features.read_text(encoding="utf-8"))
    nodes = np.repeat(np.array([int(node) for node in active]), [len(ids) for ids in active.values()])
    x = np.zeros((n, 3170), dtype=np.float32)
    x[nodes, [i for ids in active.values() for i in ids]] = 1
    masks = _random_masks(np.arange(n), n, (0.5, 0.25), np.random.default_rng(split))
    pairs = pd.read_csv(edges).to_numpy().T
    return _graph(_shares(x), pairs, labels.to_numpy(np.int64), masks, f"twitch-{language.lower()}")


def stochastic_ring(
    n: int, sigma: float, seed: int, *, t: float = 1.0, s: float = 0.8, order: int = 8, classes: int = 3
) -> torch_geometric.data.Data:
    r"""Generate a ring whose labels come from random logits with known coefficients, so that calibration has a truth.

    The features are white noise U of standard deviation `sigma`, one column a class. With the shift S of the ring with
    self loops, and a standard normal ξ, the logits are

    .. math:: z(ξ) = \sum_{p=0}^{P} ψ_p(ξ)\, c_p(S)\, U, \qquad
       c_p(x) = e^{-t(1 - x)}\, e^{s^2 x^2 / 2}\, \frac{(s x)^p}{\sqrt{p!}}

    the first terms of :math:`e^{-t(1 - S)} e^{s ξ S} U`. Each label is drawn on its own from the node's class
    probabilities E softmax(z(ξ)), not all at one ξ: they are the probabilities that a calibrated model gives.

    Parameters
    ----------
    n : int
        Nodes, at least 3.
    sigma : float
        Standard deviation of the features: how much the labels can be predicted; not negative.
    seed : int
        Of features, labels and masks.
    t, s : float
        Smoothness of the logits and how much they vary; not negative.
    order : int
        P, the highest order of the series.
    classes : int
        At least 2.

    Returns
    -------
    Data
        As of `load_dataset`, 60 / 20 / 20 % of the nodes in the masks, and `coefs` float32, shape (order + 1, nodes,
        classes), and `proba` float32, shape (nodes, classes), the class probabilities.

    Raises
    ------
    TypeError, ValueError
        An argument of another type or outside its range.

    Examples
    --------
    >>> data = stochastic_ring(100, 3.0, seed=0)
    >>> data.coefs.shape, data.proba.shape
    (torch.Size([9, 100, 3]), torch.Size([100, 3]))
    """
    import torch
    from scipy.special import factorial

    from paperworks.dssgnn.chaos import ChaosLogits

    n, order = check_integer(n, "n", low=3), check_integer(order, "order", low=0)
    classes = check_integer(classes, "classes", low=2)
    sigma, t, s = check_real(sigma, "sigma", low=0), check_real(t, "t", low=0), check_real(s, "s", low=0)
    rng = np.random.default_rng(check_integer(seed, "seed", low=0))
    u = sigma * rng.standard_normal((n, classes))
    frequency = (1 + 2 * np.cos(2 * np.pi * np.arange(n // 2 + 1) / n)) / 3
    p = np.arange(order + 1)[:, None]
    response = np.exp(-t * (1 - frequency) + (s * frequency) ** 2 / 2) * (s * frequency) ** p / np.sqrt(factorial(p))
    coefs = np.fft.irfft(response[:, :, None] * np.fft.rfft(u, axis=0), n, axis=1)
    proba = ChaosLogits(torch.from_numpy(coefs)).predictive(q=max(64, order + 1))
    # The first class whose cumulated probability exceeds a uniform number.
    y = (proba.numpy().cumsum(1)[:, :-1] <= rng.random((n, 1))).sum(1)
    node = np.arange(n)
    masks = _random_masks(node, n, (0.6, 0.2), rng)
    data = _graph(u.astype(np.float32), np.stack([node, (node + 1) % n]), y, masks, "stochastic-ring")
    data.coefs, data.proba = torch.from_numpy(coefs).float(), proba.float()
    return data


def contextual_sbm(
    nodes: int = 400,
    classes: int = 4,
    features: int = 16,
    *,
    homophily: float = 0.8,
    degree: float = 5.0,
    signal: float = 1.5,
    shares: tuple[float, float] = (0.2, 0.2),
    seed: int,
) -> torch_geometric.data.Data:
    """Generate a contextual stochastic block model: classes of equal size that edges and features both tell of.

    Features are standard normal around a mean of the class, which is a random direction times `signal`. An edge joins two
    nodes of one class with probability `homophily`.

    Parameters
    ----------
    nodes, classes, features : int
        How many; at least 2 classes, and as many nodes as classes.
    homophily : float
        Expected share of the edges within a class, in [0, 1].
    degree : float
        Expected number of neighbours.
    signal : float
        Distance of the means from 0, not negative.
    shares : tuple of float
        Shares of the nodes to train on and to validate by; the rest are to test.
    seed : int
        Of all of it.

    Raises
    ------
    TypeError, ValueError
        An argument of another type or outside its range, or more neighbours of a kind than nodes.

    References
    ----------
    Deshpande, Montanari, Mossel and Sen, "Contextual stochastic block models", NeurIPS 2018.

    Examples
    --------
    >>> contextual_sbm(100, seed=0).x.shape
    torch.Size([100, 16])
    """
    classes = check_integer(classes, "classes", low=2)
    nodes, features = check_integer(nodes, "nodes", low=classes), check_integer(features, "features", low=1)
    homophily = check_real(homophily, "homophily", low=0, high=1)
    degree, signal = check_real(degree, "degree", low=0), check_real(signal, "signal", low=0)
    rng = np.random.default_rng(check_integer(seed, "seed", low=0))
    y = rng.permutation(np.arange(nodes) % classes)
    means = rng.standard_normal((classes, features))
    means *= signal / np.linalg.norm(means, axis=1, keepdims=True)
    x = means[y] + rng.standard_normal((nodes, features))
    first, second = np.triu_indices(nodes, 1)
    same = y[first] == y[second]
    wanted = nodes * degree / 2 * np.array([1 - homophily, homophily])
    probability = wanted / np.maximum([(~same).sum(), same.sum()], 1)
    if probability.max() > 1:
        raise ValueError(f"degree={degree:g} is more than {nodes} nodes in {classes} classes can have")
    joined = rng.random(len(first)) < probability[same.astype(int)]
    masks = _random_masks(np.arange(nodes), nodes, shares, rng)
    edges = np.stack([first[joined], second[joined]])
    return _graph(x.astype(np.float32), edges, y, masks, "contextual-sbm")


class TableGraph(NamedTuple):
    """A graph read from the user's tables, with what its rows and columns stand for."""

    data: torch_geometric.data.Data
    """The graph; see `graph_from_tables`."""
    ids: pd.Index[Any]
    """Name of each node."""
    classes: tuple[Any, ...]
    """Label of each class, sorted."""
    features: tuple[str, ...]
    """Name of each feature."""


def graph_from_tables(
    nodes: pd.DataFrame, edges: pd.DataFrame, *, id: str, label: str | None = None, first_row: int = 0
) -> TableGraph:
    """Make a graph of a table of nodes and one of edges.

    Parameters
    ----------
    nodes : DataFrame
        A row a node. All columns but `id` and `label` are features, and hold numbers.
    edges : DataFrame
        A row an edge: `source`, `target` and, where edges have one, `weight`; other columns are not read. An edge
        stands for both directions; where it comes several times, the largest weight counts.
    id : str
        Column of `nodes` that names each node, by what `edges` calls it.
    label : str, optional
        Column of `nodes` with the class; an empty cell is a node without a label.
    first_row : int
        What a message calls the first row of a table: 2 for that of a CSV file.

    Returns
    -------
    TableGraph
        `data` holds `x`, `edge_index` and `y` as of `load_dataset`, and `edge_weight` float32, shape (edges,), where
        `edges` has weights; `train_mask` marks the nodes that have a label, and no others are kept for validation or
        test.

    Raises
    ------
    ValueError
        A missing column, an id that is empty or comes twice, an edge to an unknown node, a feature that is no finite
        number, or a weight that is negative or no finite number. The message names the row.

    Warns
    -----
    UserWarning
        An edge comes several times, or joins a node to itself, which is dropped.

    Examples
    --------
    >>> nodes = pd.DataFrame({"id": ["a", "b", "c"], "age": [31, 7, 50], "kind": ["x", None, "y"]})
    >>> edges = pd.DataFrame({"source": ["a", "a"], "target": ["b", "c"]})
    >>> graph = graph_from_tables(nodes, edges, id="id", label="kind")
    >>> graph.data.y, graph.classes, graph.features
    (tensor([ 0, -1,  1]), ('x', 'y'), ('age',))
    """
    import torch

    _need(nodes, "nodes", [id] if label is None else [id, label])
    _need(edges, "edges", ["source", "target"])
    ids = pd.Index(nodes[id])
    _refuse(ids.isna(), "nodes", first_row, f"column {id!r} is empty")
    twice = ids.duplicated()
    if twice.any():
        _refuse(twice, "nodes", first_row, f"column {id!r} must name each node once, got {ids[twice][0]!r} again")
    features = tuple(name for name in nodes.columns if name not in (id, label))
    if not features:
        raise ValueError(f"nodes must have a column of features besides {id if label is None else (id, label)!r}")
    x = np.stack([_numbers(nodes[name], "nodes", first_row) for name in features], axis=1)
    y, classes = np.full(len(nodes), -1), ()
    if label is not None:
        y, classes = _encode(nodes[label])
    ends = np.stack([_places(edges[side], ids, first_row) for side in ("source", "target")])
    weight = None
    if "weight" in edges.columns:
        weight = _numbers(edges["weight"], "edges", first_row, low=0)
    data = _graph(x, ends, y.astype(np.int64), None, None, weight=weight, announce=True)
    data.train_mask = torch.from_numpy(y >= 0)
    return TableGraph(data, ids, classes, features)


def read_graphml(
    file: str | os.PathLike[str], label: str | None = None, *, features: Sequence[str] | None = None
) -> TableGraph:
    """Read a graph from a GraphML file; its numeric node attributes are the features.

    Parameters
    ----------
    file : path
        A GraphML file. Its edges stand for both directions; their attribute `weight` is read, if all have it.
    label : str, optional
        Node attribute with the class.
    features : sequence of str, optional
        Node attributes that are the features, in this order; others are not read.

    Returns
    -------
    TableGraph
        As of `graph_from_tables`.

    Raises
    ------
    ValueError
        Not GraphML, no node with the attribute `label` or one of `features`, or what `graph_from_tables` refuses.

    Warns
    -----
    UserWarning
        A node attribute is not numeric and left out; or see `graph_from_tables`.
    """
    import xml.etree.ElementTree as ElementTree

    import networkx as nx

    try:
        graph = nx.read_graphml(os.fspath(file))
    except (ElementTree.ParseError, nx.NetworkXError) as error:
        raise ValueError(f"{os.fspath(file)} is not a GraphML file: {error}") from None
    if not graph:
        raise ValueError(f"{os.fspath(file)} has no node")
    nodes = pd.DataFrame.from_records(
        [{**attributes, "id of the node": node} for node, attributes in graph.nodes(data=True)]
    )
    named = [*([] if label is None else [label]), *(features or [])]
    absent = [name for name in named if name not in nodes.columns]
    if absent:
        raise ValueError(f"no node of {os.fspath(file)} has the attribute {absent[0]!r}")
    if features is not None:
        nodes = nodes[["id of the node", *named]]
    words = [
        name
        for name in nodes.columns.drop("id of the node", errors="ignore")
        if name != label and not pd.api.types.is_numeric_dtype(nodes[name].infer_objects())
    ]
    if words:
        warnings.warn(f"node attributes that are not numeric are left out: {', '.join(words)}", stacklevel=2)
    edges = nx.to_pandas_edgelist(graph)
    if edges.empty:
        edges = pd.DataFrame({"source": [], "target": []}, dtype=object)
    elif "weight" in edges.columns and edges["weight"].isna().any():
        edges = edges.drop(columns="weight")
    return graph_from_tables(nodes.drop(columns=words), edges, id="id of the node", label=label)


def read_npz(file: str | os.PathLike[str], split: int = 0) -> torch_geometric.data.Data:
    """Read a graph from an npz file in the layout of the heterophilous graphs of Yandex Research.

    Parameters
    ----------
    file : path
        With the arrays `node_features`, shape (nodes, features); `node_labels` of int, shape (nodes,), -1 without a
        label; `edges` of int, shape (edges, 2), each in one direction or both; and `train_masks`, `val_masks`,
        `test_masks` of bool, shape (splits, nodes).
    split : int
        Row of the masks.

    Returns
    -------
    Data
        As of `load_dataset`; the features are as they are in the file.

    Raises
    ------
    ValueError
        A missing array, one of another shape or dtype, a feature that is not finite, an edge to a node that is not
        there, or no such split.

    Warns
    -----
    UserWarning
        An edge comes several times, or joins a node to itself, which is dropped.
    """
    where = os.fspath(file)
    keys = ("node_features", "node_labels", "edges", "train_masks", "val_masks", "test_masks")
    with open(where, "rb") as stream:
        if not zipfile.is_zipfile(stream):
            raise ValueError(f"{where} is not an npz file")
    with np.load(where, allow_pickle=False) as archive:
        absent = [key for key in keys if key not in archive.files]
        if absent:
            raise ValueError(f"{where} must hold the arrays {', '.join(keys)}; {', '.join(absent)} is missing")
        arrays = {key: archive[key] for key in keys}
    n = len(arrays["node_labels"])
    shapes: dict[str, tuple[str, tuple[int | None, ...]]] = {
        "node_features": ("iufb", (n, None)),
        "node_labels": ("iu", (n,)),
        "edges": ("iu", (None, 2)),
        **dict.fromkeys(keys[3:], ("b", (len(arrays["train_masks"]), n))),
    }
    for key, (kinds, shape) in shapes.items():
        array = arrays[key]
        fits = array.ndim == len(shape) and all(b in (a, None) for a, b in zip(array.shape, shape, strict=True))
        if not fits or array.dtype.kind not in kinds:
            raise ValueError(f"{where}: {key} does not fit, got {array.dtype} of shape {array.shape}")
    check_choice(split, "split", range(len(arrays["train_masks"])))
    with np.errstate(over="ignore"):
        x = arrays["node_features"].astype(np.float32)
    bad = ~np.isfinite(x)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(f"{where}: node_features must be finite, got {x[row, column]} in row {row}, column {column}")
    edges, y = arrays["edges"].astype(np.int64), arrays["node_labels"].astype(np.int64)
    outside = (edges < 0) | (edges >= n)
    if outside.any():
        raise ValueError(f"{where}: edges refers to node {edges[outside][0]} but node_features has {n} rows")
    if (y < -1).any():
        raise ValueError(f"{where}: node_labels must be at least -1, got {y.min()}")
    masks = tuple(arrays[key][split] for key in keys[3:])
    return _graph(x, edges.T, y, masks, Path(where).stem, announce=True)


def _graph(
    x: NDArray[np.float32],
    pairs: NDArray[np.integer[Any]],
    y: NDArray[np.int64],
    masks: tuple[NDArray[np.bool_], ...] | None,
    name: str | None,
    *,
    weight: NDArray[np.float32] | None = None,
    announce: bool = False,
) -> torch_geometric.data.Data:
    """The graph with the given edges, shape (2, edges), in both directions, once, without self loops."""
    import torch
    from torch_geometric.data import Data
    from torch_geometric.utils import coalesce, to_undirected

    proper = pairs[0] != pairs[1]
    edge_index = torch.from_numpy(np.ascontiguousarray(pairs[:, proper], dtype=np.int64))
    edge_weight = None if weight is None else torch.from_numpy(weight[proper])
    if announce:
        repeats = edge_index.shape[1] - coalesce(edge_index, num_nodes=len(x)).shape[1]
        loops = int((~proper).sum())
        if repeats or loops:
            warnings.warn(
                f"there are {repeats} repeated edges, which count once, with their largest weight, "
                f"and {loops} self loops, which are dropped",
                stacklevel=3,
            )
    edge_index, edge_weight = to_undirected(edge_index, edge_weight, num_nodes=len(x), reduce="max")
    data = Data(torch.from_numpy(x), edge_index, y=torch.from_numpy(y))
    if edge_weight is not None:
        data.edge_weight = edge_weight
    if masks is not None:
        data.train_mask, data.val_mask, data.test_mask = map(torch.from_numpy, masks)
    if name is not None:
        data.name = name
    return data


def _random_masks(
    nodes: NDArray[np.intp], n: int, shares: tuple[float, float], rng: np.random.Generator
) -> tuple[NDArray[np.bool_], ...]:
    """Masks of `nodes` at random: the shares for training and validation, the rest for the test."""
    ends = np.cumsum([round(share * len(nodes)) for share in shares])
    masks = np.zeros((3, n), dtype=bool)
    for mask, part in zip(masks, np.split(rng.permutation(nodes), ends), strict=True):
        mask[part] = True
    return tuple(masks)


def _shares(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each row divided by its sum; a row of zeros stays."""
    total = x.sum(1, keepdims=True)
    total[total == 0] = 1
    shares: NDArray[np.float32] = x / total
    return shares


class _Unpickler(pickle.Unpickler):
    """Reads arrays, sparse matrices and dictionaries of lists; what else a pickle names is refused, not imported."""

    allowed: ClassVar = {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        ("scipy.sparse.csr", "csr_matrix"): sparse.csr_matrix,
        ("collections", "defaultdict"): defaultdict,
        ("__builtin__", "list"): list,
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.allowed[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a data file") from None


def _unpickle(file: Path) -> Any:
    with file.open("rb") as stream:
        return _Unpickler(stream, encoding="latin1").load()


def _planetoid(name: str) -> torch_geometric.data.Data:
    x, tx, allx, ty, ally, graph = (
        _unpickle(path(_FILES[f"ind.{name}.{part}"])) for part in ("x", "tx", "allx", "ty", "ally", "graph")
    )
    test = np.loadtxt(path(_FILES[f"ind.{name}.test.index"]), dtype=np.int64)
    n, known, train = len(graph), allx.shape[0], x.shape[0]
    features = np.zeros((n, allx.shape[1]), dtype=np.float32)
    features[:known], features[test] = allx.toarray(), tx.toarray()
    labels = np.full(n, -1)
    labels[:known], labels[test] = ally.argmax(1), ty.argmax(1)
    masks = np.zeros((3, n), dtype=bool)
    masks[0, :train] = masks[1, train : train + 500] = masks[2, test] = True
    source = np.repeat(np.fromiter(graph, np.int64, n), [len(neighbours) for neighbours in graph.values()])
    target = np.array([node for neighbours in graph.values() for node in neighbours])
    return _graph(_shares(features), np.stack([source, target]), labels, tuple(masks), name)


def _from_pyg(name: str, split: int) -> torch_geometric.data.Data:
    """A graph of PyTorch Geometric's own collection, in the cache; what it downloads is not checked by a hash."""
    from torch_geometric import datasets

    root = cache_folder() / "data" / "dssgnn" / name
    ready = any(root.rglob("processed/*data.pt"))
    if not ready and os.environ.get("PAPERWORKS_OFFLINE"):
        raise DataUnavailable(
            f"{name} is not on this machine, and PAPERWORKS_OFFLINE forbids to download it into {root}"
        )
    sources: dict[str, Callable[[], Any]] = {
        "pubmed": lambda: datasets.Planetoid(str(root), "PubMed"),
        "photo": lambda: datasets.Amazon(str(root), "Photo"),
        "computers": lambda: datasets.Amazon(str(root), "Computers"),
        "cs": lambda: datasets.Coauthor(str(root), "CS"),
        "physics": lambda: datasets.Coauthor(str(root), "Physics"),
    }
    open_dataset = sources.get(name, lambda: datasets.HeterophilousGraphDataset(str(root), name.capitalize()))
    try:
        source = open_dataset()[0]
    except BaseException as error:
        if not ready:  # part of a file would be taken for the whole the next time
            shutil.rmtree(root, ignore_errors=True)
        if isinstance(error, OSError):
            raise DataUnavailable(
                f"{name} is not on this machine and cannot be downloaded by PyTorch Geometric into {root} ({error})"
            ) from error
        raise
    n, y = source.num_nodes, source.y.numpy()
    if "train_mask" not in source:
        masks = _random_masks(np.arange(n), n, (0.6, 0.2), np.random.default_rng(split))
    else:
        published = [source[key].reshape(n, -1).numpy() for key in ("train_mask", "val_mask", "test_mask")]
        masks = tuple(np.ascontiguousarray(mask[:, split]) for mask in published)
    return _graph(source.x.float().numpy(), source.edge_index.numpy(), y, masks, name)


def _need(table: pd.DataFrame, name: str, columns: list[str]) -> None:
    check_names(table.columns, f"columns of {name}")
    for column in columns:
        if column not in table.columns:
            found = ", ".join(map(repr, table.columns))
            raise ValueError(f"{name} must have a column {column!r}, got {found}")


def _refuse(bad: NDArray[np.bool_], name: str, first_row: int, what: str) -> None:
    if bad.any():
        raise ValueError(f"{name}, row {int(bad.argmax()) + first_row}: {what}")


def _numbers(column: pd.Series[Any], name: str, first_row: int, low: float = -np.inf) -> NDArray[np.float32]:
    if column.dtype.kind in "mM":
        raise ValueError(f"{name}: column {column.name!r} must hold numbers, got {column.dtype}")
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    with np.errstate(over="ignore"):
        values = numbers.astype(np.float32)
    bad = ~np.isfinite(values) | (values < low)
    if bad.any():
        kind = "finite numbers" if low < 0 else "finite numbers that are not negative"
        cell = column.iloc[int(bad.argmax())]
        got = "an empty cell" if pd.isna(cell) else cell if isinstance(cell, str) else f"{cell}"
        _refuse(bad, name, first_row, f"column {column.name!r} must hold {kind}, got {got}")
    return values


def _encode(labels: pd.Series[Any]) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """Class index of each label, -1 where it is empty, and the classes."""
    labels = labels.mask(labels.map(lambda cell: isinstance(cell, str) and not cell.strip()).astype(bool))
    if labels.dtype.kind == "f" and (labels.dropna() % 1 == 0).all():
        labels = labels.astype("Int64")  # whole numbers that an empty cell made floats
    codes, classes = pd.factorize(labels, sort=True)
    return codes.astype(np.int64), tuple(classes.tolist())


def _places(ends: pd.Series[Any], ids: pd.Index[Any], first_row: int) -> NDArray[np.intp]:
    """Row of `nodes` of each end of an edge."""
    _refuse(ends.isna().to_numpy(), "edges", first_row, f"column {ends.name!r} is empty")
    called = pd.Index(ends)
    if called.inferred_type != ids.inferred_type:  # such as 1 in one table and '1' in the other
        called, ids = called.astype(str), ids.astype(str)
    places = ids.get_indexer(called)
    if (places < 0).any():
        unknown = ends.iloc[int((places < 0).argmax())]
        _refuse(places < 0, "edges", first_row, f"column {ends.name!r} names {unknown}, which is no node")
    return places
