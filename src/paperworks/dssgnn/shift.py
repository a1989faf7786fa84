"""Graphs unlike those a model was trained on: nodes out of distribution, and features that no longer tell the class."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Bool
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from paperworks.core.validation import check_choice, check_integer
from paperworks.dssgnn.data import load_dataset

__all__ = ["feature_interpolation", "good_cbas", "good_webkb", "leave_out_classes", "sbm_shift"]


def sbm_shift(data: Data, seed: int) -> Data:
    """Replace the edges by those of a stochastic block model: another structure, the same features.

    As many blocks as there are classes, of equal size, the last with the remainder, in the order of the nodes, which
    says nothing of their classes. Two nodes are joined with 1.5 times the density of the graph within a block and with
    0.5 times the density otherwise, as in GNNSafe (Wu et al. 2023).

    Parameters
    ----------
    data : Data
        Graph with `x`, `y` and undirected `edge_index`.
    seed : int
        Of the edges.

    Returns
    -------
    Data
        `x` of `data`; new `edge_index`; `y` all -1, `ood_mask` all True and the other masks all False.

    Raises
    ------
    ValueError
        Fewer than two nodes, or no label.
    """
    rng = _generator(seed)
    n, blocks = data.num_nodes, _classes(data)
    if n < 2:
        raise ValueError(f"data must have at least 2 nodes, got {n}")
    density = data.num_edges / (n * (n - 1))
    sizes = np.full(blocks, n // blocks)
    sizes[-1] += n % blocks
    starts = np.concatenate([[0], sizes.cumsum()])
    found = []
    for a in range(blocks):
        size = int(sizes[a])
        # Pair r of a block: r % size, and the node r // size + 1 places further round.
        r = _chosen(rng, size * (size - 1) // 2, 1.5 * density)
        first = r % max(size, 1)
        found.append(starts[a] + np.stack([first, (first + r // max(size, 1) + 1) % max(size, 1)]))
        # All later blocks at once.
        later = int(n - starts[a + 1])
        r = _chosen(rng, size * later, 0.5 * density)
        found.append(np.stack([starts[a] + r // max(later, 1), starts[a + 1] + r % max(later, 1)]))
    edge_index = torch.from_numpy(np.concatenate(found, axis=1))
    return _all_ood(data.x, to_undirected(edge_index, num_nodes=n))


def feature_interpolation(data: Data, seed: int) -> Data:
    """Replace the features of each node by a mixture of two random nodes' features; the edges stay.

    The mixture is w x_i + (1 - w) x_j with i and j drawn anew for each node, and w uniform on (0, 1), as in GNNSafe
    (Wu et al. 2023).

    Parameters
    ----------
    data : Data
        Graph with `x` and `edge_index`.
    seed : int
        Of the nodes and weights.

    Returns
    -------
    Data
        New `x`, dense; `edge_index` and any `edge_weight` of `data`; `y` all -1, `ood_mask` all True and the other
        masks all False.
    """
    rng = _generator(seed)
    n = data.num_nodes
    x = data.x if data.x.layout == torch.strided else data.x.to_dense()
    i, j = torch.from_numpy(rng.integers(max(n, 1), size=(2, n)))
    weight = torch.from_numpy(rng.random((n, 1))).to(x.dtype)
    shifted = _all_ood(weight * x[i] + (1 - weight) * x[j], data.edge_index)
    if "edge_weight" in data:
        shifted.edge_weight = data.edge_weight
    return shifted


def leave_out_classes(data: Data, classes: int | Iterable[int]) -> Data:
    """Hide some classes: their nodes stay in the graph, without a label, and are what is out of distribution.

    Parameters
    ----------
    data : Data
        Graph with `y` and masks.
    classes : int or iterable of int
        The classes to leave out, not all.

    Returns
    -------
    Data
        A copy with the kept classes numbered 0, 1, … in the same order, the left-out nodes with `y` -1, in none of
        the masks of `data` but in `ood_mask`. A node that had no label is in none of them.

    Raises
    ------
    TypeError
        A class is no integer.
    ValueError
        A class is not there, or none is left.

    Examples
    --------
    >>> mask = torch.ones(4, dtype=torch.bool)
    >>> data = Data(torch.zeros(4, 1), torch.zeros(2, 0, dtype=torch.long), y=torch.tensor([0, 1, 2, 0]), train_mask=mask)
    >>> left = leave_out_classes(data, [0])
    >>> left.y, left.train_mask, left.ood_mask
    (tensor([-1,  0,  1, -1]), tensor([False,  True,  True, False]), tensor([ True, False, False,  True]))
    """
    count = _classes(data)
    chosen = list(classes) if isinstance(classes, Iterable) else [classes]
    out = {check_integer(c, "classes", low=0) for c in chosen}
    if not out or max(out) >= count:
        raise ValueError(f"classes must be some of 0 to {count - 1}, got {chosen}")
    kept = [c for c in range(count) if c not in out]
    if not kept:
        raise ValueError(f"classes must leave one out of {count}, got all of them")
    number = torch.full((count + 1,), -1, dtype=torch.long)  # the last place is that of -1
    number[kept] = torch.arange(len(kept))
    result = data.clone()
    result.y = number[data.y]
    result.ood_mask = (data.y >= 0) & (result.y < 0)
    for mask in ("train_mask", "val_mask", "test_mask"):
        if mask in data:
            result[mask] = data[mask] & ~result.ood_mask
    return result


def good_cbas(seed: int, shift: str = "concept") -> Data:
    """Generate the graph CBAS of the benchmark GOOD (Gui et al. 2022): houses on a random graph, coloured by class.

    300 nodes of a Barabási–Albert graph (class 0) carry 80 houses of 5 nodes: 160 in the middle (1), 160 at the bottom
    (2) and 80 at the top (3). Each node's only features tell one of four colours. It is the node's class with a
    probability that falls from environment to environment, and else is drawn from all four, so that a model that
    trusts colour instead of structure fails where colour says nothing.

    Nodes are shuffled. The first 60 % are environments 0 to 4 of equal size, with probabilities 0.95, 0.9, 0.85, 0.8
    and 0.75; 140 of their nodes each are held out for validation and test. The next 20 % are environment 5,
    probability 0.3, for validation under shift; the last 20 % environment 6, probability 0, for test under shift.

    Parameters
    ----------
    seed : int
        Of the graph, the colours and the masks, which thus are regenerated and not those of the published file.
    shift : {"concept", "none"}
        "none" gives the environments 5 and 6 the probability 0.85, the mean of the others.

    Returns
    -------
    Data
        700 nodes: `x`, shape (700, 4); `edge_index`; `y`; `train_mask`, `val_mask`, `test_mask`, `ood_val_mask` and
        `ood_test_mask` of 140 nodes each; `domain`, the colour, and `environment`, int64, shape (700,).

    Raises
    ------
    ValueError
        Another shift.
    """
    check_choice(shift, "shift", ("concept", "none"))
    rng = _generator(seed)
    graph = _house_graph(rng)
    n, y = graph.num_nodes, graph.y.numpy()
    shuffled = rng.permutation(n)
    known, ood_val, ood_test = np.split(shuffled, [int(0.6 * n), int(0.8 * n)])
    agreement = np.array([0.95, 0.9, 0.85, 0.8, 0.75, *((0.3, 0.0) if shift == "concept" else (0.85, 0.85))])
    environment = np.empty(n, dtype=np.int64)
    for number, part in enumerate([*np.array_split(known, 5), ood_val, ood_test]):
        environment[part] = number
    colour = np.where(rng.random(n) < agreement[environment], y, rng.integers(4, size=n))
    features = torch.tensor([[1, 0, 0, 0.5], [0, 1, 0, 0.7], [0, 0, 1, 0.3], [1, 1, 0, 0.2]])
    domain = torch.from_numpy(colour)
    data = Data(features[domain], graph.edge_index, y=graph.y, name="good-cbas")
    val, test, train = np.split(rng.permutation(known), [n // 5, 2 * (n // 5)])
    return _with_environments(data, (train, val, test, ood_val, ood_test), domain, environment)


def good_webkb(seed: int, shift: str = "concept") -> Data:
    """Generate the graph WebKB of the benchmark GOOD (Gui et al. 2022): pages of three universities, picked by class.

    Its nodes are those of Wisconsin, Cornell and Texas, 617 in all, not joined to each other. Five passes pick nodes
    into environments 0 to 4. In the training environments 0, 2 and 3, class index and university go together: nodes
    whose class index is above the mean are preferred in the first universities by the alphabet, until half of all
    nodes are covered, and those below the mean in the rest. In environment 1, the test under shift, it is the
    reverse; environment 4 takes what remains, for validation under shift. 15 % of the training nodes are held out for
    validation, 15 % for test.

    Class and mean are compared as numbers, which for classes without an order is arbitrary, but is how this graph is
    made. Directed edges are made undirected, and the masks are regenerated, not those of the published file.

    Parameters
    ----------
    seed : int
        Of the environments and masks.
    shift : {"concept"}
        The only one there is.

    Returns
    -------
    Data
        617 nodes: `x`, row-normalised; `edge_index`; `y`; `train_mask`, `val_mask`, `test_mask`, `ood_val_mask`,
        `ood_test_mask`; `domain`, the university by the alphabet, and `environment`, int64, shape (617,).

    Raises
    ------
    ValueError
        Another shift.
    DataUnavailable
        A university's file is not on this machine and cannot be downloaded.
    """
    check_choice(shift, "shift", ("concept",))
    rng = _generator(seed)
    universities = {name: load_dataset(name) for name in ("wisconsin", "cornell", "texas")}
    sizes = [graph.num_nodes for graph in universities.values()]
    starts = np.cumsum([0, *sizes]).tolist()
    edge_index = torch.cat([g.edge_index + s for g, s in zip(universities.values(), starts, strict=False)], dim=1)
    x, y = (torch.cat([graph[key] for graph in universities.values()]) for key in ("x", "y"))
    rank = {name: number for number, name in enumerate(sorted(universities))}
    domain = np.repeat([rank[name] for name in universities], sizes)
    centred = y.numpy() - y.float().mean().item()

    n = len(domain)
    before = np.concatenate([[0], np.bincount(domain).cumsum()[:-1]])
    sign = np.where(before < n / 2, 1, -1)[domain]
    environment = np.full(n, -1, dtype=np.int64)
    passes = ((0.85, 0.4, True), (0.75, 0.6, False), (0.85, 0.5, True), (0.8, 1.0, True))
    for number, (bias, ratio, training) in enumerate(passes):
        preferred = (sign if training else -sign) * centred > 0
        left = environment < 0
        taken = left & (rng.random(n) < np.where(preferred, bias, 1 - bias) * ratio)
        for university in range(len(universities)):
            for side in (centred > 0, centred <= 0):
                candidates = left & (domain == university) & side
                if candidates.any() and not taken[candidates].any():
                    taken[rng.choice(np.flatnonzero(candidates))] = True
        environment[taken] = number
    environment[environment < 0] = len(passes)

    known = rng.permutation(np.flatnonzero(np.isin(environment, (0, 2, 3))))
    held = int(0.15 * len(known))
    val, test, train = np.split(known, [held, 2 * held])
    parts = (train, val, test, np.flatnonzero(environment == 4), np.flatnonzero(environment == 1))
    data = Data(x, edge_index, y=y, name="good-webkb")
    return _with_environments(data, parts, torch.from_numpy(domain), environment)


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(check_integer(seed, "seed", low=0))


def _classes(data: Data) -> int:
    count = int(data.y.max()) + 1 if data.y is not None and len(data.y) else 0
    if count < 1:
        raise ValueError("data must have labels, got none")
    return count


def _chosen(rng: np.random.Generator, n: int, probability: float) -> NDArray[np.int64]:
    """Which of n pairs are joined, each with the given probability; without looking at those that are not."""
    count = rng.binomial(n, min(probability, 1.0))
    chosen: NDArray[np.int64] = rng.choice(n, count, replace=False, shuffle=False) if n else np.empty(0, np.int64)
    return chosen


def _all_ood(x: Tensor, edge_index: Tensor) -> Data:
    none = torch.zeros(len(x), dtype=torch.bool)
    return Data(
        x,
        edge_index,
        y=torch.full((len(x),), -1),
        train_mask=none,
        val_mask=none.clone(),
        test_mask=none.clone(),
        ood_mask=~none,
    )


def _house_graph(rng: np.random.Generator) -> Data:
    """PyTorch Geometric's BA-Shapes, which draws from the random states of torch and numpy: both stay as they are."""
    from torch_geometric.datasets import BAShapes

    state = np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "'BAShapes' is deprecated")
            torch.default_generator.manual_seed(int(rng.integers(2**32)))
            np.random.seed(int(rng.integers(2**32)))  # noqa: NPY002
            return BAShapes()[0]
    finally:
        np.random.set_state(state)  # noqa: NPY002


def _with_environments(
    data: Data, parts: tuple[NDArray[np.int64], ...], domain: Tensor, environment: NDArray[np.int64]
) -> Data:
    names = ("train_mask", "val_mask", "test_mask", "ood_val_mask", "ood_test_mask")
    for name, part in zip(names, parts, strict=True):
        data[name] = _mask(part, data.num_nodes)
    data.domain, data.environment = domain, torch.from_numpy(environment)
    return data


def _mask(nodes: NDArray[np.int64], n: int) -> Bool[Tensor, " nodes"]:
    mask = torch.zeros(n, dtype=torch.bool)
    mask[torch.from_numpy(nodes)] = True
    return mask
