"""What users give as a graph: PyG data, or features with labels and an adjacency of one of several kinds."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from paperworks.core.extras import require
from paperworks.core.validation import check_real

__all__ = ["Graph", "Labels", "hold_out", "is_data", "judged", "labels_of", "make_graph"]

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Graph:
    """Features and edges.

    Attributes
    ----------
    x : Tensor, shape (nodes, features), dense or sparse
    edge_index : Tensor, shape (2, edges), or sparse, shape (nodes, nodes)
    edge_weight : Tensor, shape (edges,), or None
    """

    x: Tensor
    edge_index: Tensor
    edge_weight: Tensor | None = None

    def to(self, device: torch.device) -> Graph:
        """Return the same graph on a device."""
        weight = None if self.edge_weight is None else self.edge_weight.to(device)
        return Graph(self.x.to(device), self.edge_index.to(device), weight)


@dataclass(frozen=True)
class Labels:
    """Labels and who learns from them.

    Attributes
    ----------
    classes : ndarray
        The distinct labels, sorted.
    codes : ndarray of int, shape (nodes,)
        Position of each node's label in `classes`, -1 without one.
    train, val : ndarray of bool, shape (nodes,)
    """

    classes: NDArray[Any]
    codes: NDArray[np.int64]
    train: Bools
    val: Bools | None


def is_data(X: Any) -> bool:
    """Tell whether `X` is a PyG ``Data`` rather than an array."""
    return hasattr(X, "edge_index") and hasattr(X, "x")


def make_graph(X: Any, adjacency: Any = None) -> Graph:
    """Return the graph that a user means.

    Parameters
    ----------
    X : Data, Tensor, array or SciPy matrix
        With features ``x``, and ``edge_index`` or ``adj_t``, and ``edge_weight`` if edges have weights; or the features.
    adjacency : array of int (2, edges), sparse matrix or tensor (nodes, nodes), networkx graph or None
        The edges, for features; None for none. A networkx graph whose nodes are 0 … n − 1 is taken by these numbers, else
        in its own order.

    Raises
    ------
    TypeError
        Features or an adjacency of another kind.
    ValueError
        Data without features or edges, an adjacency beside `Data`, or shapes that do not fit.
    """
    if is_data(X):
        if adjacency is not None:
            raise ValueError("adjacency must be None for a Data, which has edges of its own")
        if X.x is None:
            raise ValueError("data has no x: set data.x to the features, shape (nodes, features)")
        edges = X.edge_index if X.edge_index is not None else getattr(X, "adj_t", None)
        if edges is None:
            raise ValueError("data has no edge_index: set it, or pass data.x with adjacency=None for no edges")
        x, weight = X.x, getattr(X, "edge_weight", None)
        for part, name in ((x, "x"), (edges, "edge_index"), (weight, "edge_weight")):
            if not isinstance(part, Tensor | None):
                raise TypeError(f"{name} must be a tensor, got {type(part).__name__}")
        return Graph(_tensor(x), edges, weight)
    x = _tensor(X)
    return Graph(x, *_edges(adjacency, len(x)))


def _tensor(X: Any) -> Tensor:
    if isinstance(X, Tensor):
        return X if X.is_floating_point() or X.is_complex() else X.to(torch.get_default_dtype())
    if scipy.sparse.issparse(X):
        matrix = scipy.sparse.csr_array(X).astype(np.float32)
        offsets, columns = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
            return torch.sparse_csr_tensor(offsets, columns, torch.from_numpy(matrix.data), matrix.shape)
    return torch.from_numpy(np.array(X, dtype=np.float32))


def _edges(adjacency: Any, nodes: int) -> tuple[Tensor, Tensor | None]:
    if adjacency is None:
        return torch.empty(2, 0, dtype=torch.int64), None
    if isinstance(adjacency, Tensor):
        return adjacency, None
    if hasattr(adjacency, "adjacency") and hasattr(adjacency, "nodes"):
        nx = require("networkx", "dssgnn")
        numbers = range(len(adjacency))
        listed = list(numbers) if all(node in adjacency for node in numbers) else list(adjacency)
        adjacency = nx.to_scipy_sparse_array(adjacency, listed, format="coo") if listed else np.empty((2, 0), np.int64)
    if scipy.sparse.issparse(adjacency):
        if adjacency.shape != (nodes, nodes):
            raise ValueError(f"adjacency must have shape ({nodes}, {nodes}), got {adjacency.shape}")
        matrix = scipy.sparse.coo_array(adjacency)
        pairs = np.stack([matrix.row, matrix.col]).astype(np.int64)
        return torch.from_numpy(pairs), torch.from_numpy(matrix.data.astype(np.float32))
    try:
        array = np.asarray(adjacency)
    except ValueError:
        array = np.empty(0, object)
    if array.dtype.kind not in "iuf":
        kind = type(adjacency).__name__
        raise TypeError(f"adjacency must be edges (2, n), a sparse matrix, a networkx graph or None, got {kind}")
    if array.ndim != 2 or len(array) != 2:
        raise ValueError(f"adjacency must have shape (2, edges), or be a sparse matrix, got {array.shape}")
    # What is not of integers is refused with the graph's other errors.
    return torch.from_numpy(array.astype(np.int64) if array.dtype.kind in "iu" else array.copy()), None


def labels_of(X: Any, y: Any, train_mask: Any, val_mask: Any) -> Labels:
    """Return labels and masks, from the arguments or else from a PyG ``Data``.

    A node has no label where y is negative, NaN or None; only in a ``Data``, as arrays may hold such labels. Without masks
    every labelled node of an array is learned from.

    Raises
    ------
    ValueError
        Data without ``y`` or ``train_mask``, masks of another shape, that overlap or are empty, nodes without a label in
        them, or fewer than two classes to learn.

    Warns
    -----
    UserWarning
        A class has no node to learn from.
    """
    data = is_data(X)
    y, missing = _truth(X, y)
    nodes = len(y)
    classes, codes = np.unique(y[~missing], return_inverse=True)
    coded = np.full(nodes, -1, np.int64)
    coded[~missing] = codes
    train, val, test = (
        _mask(given, X if data else None, name, nodes)
        for given, name in ((train_mask, "train_mask"), (val_mask, "val_mask"), (None, "test_mask"))
    )
    if train is None:
        if data:
            raise ValueError("data has no train_mask: set data.train_mask, or give train_mask=")
        train = np.ones(nodes, bool) if val is None else ~val
    for other, name in ((val, "val_mask"), (test, "test_mask")):
        if other is not None and (both := int((train & other).sum())):
            raise ValueError(f"train_mask and {name} overlap in {both} nodes")
    for mask, name in ((train, "train_mask"), (val, "val_mask")):
        if mask is not None and (blank := int((mask & missing).sum())):
            raise ValueError(f"{name} has {blank} nodes without a label")
    if not train.any():
        raise ValueError("train_mask is empty: there must be nodes of at least two classes")
    known = np.unique(coded[train])
    if len(known) < 2:
        raise ValueError(f"train_mask must have nodes of at least two classes, got one class: {classes[known[0]]}")
    if len(known) < len(classes):
        unseen = ", ".join(str(classes[code]) for code in np.setdiff1d(np.arange(len(classes)), known))
        warnings.warn(f"y has classes of which no node is in train_mask: {unseen}", UserWarning, stacklevel=3)
    return Labels(classes, coded, train, val)


def judged(X: Any, y: Any, mask: Any) -> tuple[NDArray[Any], Bools]:
    """Return labels, and which nodes have one among those of `mask`, by default a ``Data``'s test mask, or else all.

    Raises
    ------
    ValueError
        There are no labels or no such nodes, or shapes do not fit.
    """
    y, missing = _truth(X, y)
    chosen = _mask(mask, X if is_data(X) else None, "test_mask", len(y))
    chosen = ~missing if chosen is None else chosen & ~missing
    if not chosen.any():
        raise ValueError("there is no node to judge by: all are without a label, or not in the mask")
    return y, chosen


def _truth(X: Any, y: Any) -> tuple[NDArray[Any], Bools]:
    """The labels, one a node, and where there is none: only in a ``Data``."""
    data = is_data(X)
    y = X.y if data and y is None else y
    if y is None:
        raise ValueError("data has no y: set data.y, or give y=" if data else "y must be given")
    y = _numpy(y)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    nodes = len(X.x) if data else len(y)
    if y.ndim != 1 or len(y) != nodes:
        raise ValueError(f"y must have shape ({nodes},), got {y.shape}")
    if not data:
        return y, np.zeros(nodes, bool)
    missing = y < 0 if y.dtype.kind in "if" else np.zeros(nodes, bool)
    return y, missing | np.array([label is None or label != label for label in y.tolist()], bool)


def _numpy(values: Any) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _mask(given: Any, data: Any, name: str, nodes: int) -> Bools | None:
    value = getattr(data, name, None) if given is None else given
    if value is None:
        return None
    mask = _numpy(value)
    if mask.ndim == 2:
        raise ValueError(f"{name} must hold one split, got {mask.shape[1]}: choose a column")
    if mask.dtype != np.bool_ or mask.shape != (nodes,):
        raise ValueError(f"{name} must be boolean with shape ({nodes},), got {mask.dtype} with shape {mask.shape}")
    return mask


def hold_out(labels: Labels, fraction: float, rng: np.random.RandomState) -> Labels:
    """Return the labels with a share of every class's training nodes held out for validation, at least one node kept.

    Raises
    ------
    ValueError
        Too few nodes to hold one out.
    """
    fraction = check_real(fraction, "validation_fraction", low=0, high=1)
    val = np.zeros_like(labels.train)
    for code in np.unique(labels.codes[labels.train]):
        members = np.flatnonzero(labels.train & (labels.codes == code))
        count = min(round(fraction * len(members)), len(members) - 1)
        val[rng.permutation(members)[:count]] = True
    if not val.any():
        raise ValueError(
            f"validation_fraction={fraction:g} of {int(labels.train.sum())} training nodes leaves none of any class to "
            "hold out: give val_mask= or a larger fraction"
        )
    return Labels(labels.classes, labels.codes, labels.train & ~val, val)
