"""Pictures of predictions, of what varies in them, and of filters, and of the ledger's tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from paperworks.core.extras import require
from paperworks.core.plotting import PALETTE, figure, look, panel_grid, percent, shorten
from paperworks.core.validation import check_integer, check_names, check_real, check_vector
from paperworks.dssgnn.claims import COMPARED, CONFIRMATION

if TYPE_CHECKING:
    from torch import Tensor

    from paperworks.dssgnn.chaos import ChaosLogits, OrthogonalBasis
    from paperworks.dssgnn.filters import GraphPolynomialFilter

__all__ = [
    "ablations",
    "brier",
    "concept_shift",
    "cross_graph",
    "detection",
    "fan_chart",
    "joint_edges",
    "joint_matrices",
    "known_truth",
    "ood_histogram",
    "posthoc",
    "quadrature",
    "reached",
    "readouts",
    "rejection_curves",
    "reliability_diagram",
    "spectral_responses",
    "truncation",
    "truncation_map",
    "uncertainty_map",
]

Floats = NDArray[np.float64]

_INK, _SOFT, _GREY, _PALE = "#1c2330", "#4a5361", "#9aa2ae", "#e3e6eb"
_IN, _OUT = PALETTE[0], PALETTE[1]
_MLP = PALETTE[4]
_RIM = LinearSegmentedColormap.from_list("rim", ["#d5dae1", "#0b0f16"])
_LONGEST = 20  # letters of a class's name
_NODES = 1500  # beyond which a drawing is a blot and its layout takes minutes
_NUMBERED = 8  # rows up to which a matrix has its numbers written in


def reliability_diagram(
    predictions: Mapping[str, tuple[ArrayLike | Tensor, ArrayLike | Tensor]], n_bins: int = 15
) -> Figure:
    """Draw the accuracy of every method against its confidence, and how many nodes each bin holds.

    A dot is at the mean confidence of its bin; its bar is the 95 % interval (Wilson) of the accuracy that so few nodes
    allow. On the line, a method is calibrated; above it, under-confident.

    Parameters
    ----------
    predictions : mapping of str to (proba, y)
        For each method class probabilities (nodes, classes) and class indices (nodes,).
    n_bins : int
        Bins of equal width.

    Raises
    ------
    TypeError
        Labels are not integers.
    ValueError
        No method, no bin, or something that is no probabilities of labels.
    """
    from paperworks.dssgnn.metrics import _predictions, brier, ece

    names = check_names(predictions, "predictions")
    n_bins = check_integer(n_bins, "n_bins", low=1)
    across = min(4, len(names))
    rows = -(-len(names) // across)
    made, panels = figure(
        "Accuracy against confidence", width=max(4.4, 0.6 + 2.6 * across),
        height=0.7 + 3.4 * rows, nrows=2 * rows, ncols=across, xlim=(0, 1),
    )  # fmt: skip
    panels[0].get_gridspec().set_height_ratios([2.6, 1] * rows)
    grid = np.array(panels, dtype=object).reshape(rows, 2, across).swapaxes(1, 2).reshape(-1, 2)
    for spare in grid[len(names) :].flat:
        spare.remove()
    most = 0
    for (upper, lower), name in zip(grid, names, strict=False):
        p, y = _predictions(*predictions[name])
        confidence, right = p.max(1).astype(np.float64), p.argmax(1) == y
        edges = np.linspace(0, 1, n_bins + 1)
        index = np.clip(np.searchsorted(edges, confidence, side="right") - 1, 0, n_bins - 1)
        count = np.bincount(index, minlength=n_bins)
        used = count > 0
        x = np.bincount(index, confidence, n_bins)[used] / count[used]
        accuracy = np.bincount(index, right, n_bins)[used] / count[used]
        low, high = _wilson(accuracy, count[used])
        upper.plot([0, 1], [0, 1], color=_GREY, linewidth=1, linestyle="--")
        upper.vlines(x, low, high, color=PALETTE[0], alpha=0.45, linewidth=2)
        upper.plot(x, accuracy, "o-", color=PALETTE[0], linewidth=1.2, clip_on=False, zorder=3)
        lower.bar(edges[:-1], count, 1 / n_bins, align="edge", color=PALETTE[0], edgecolor="white", linewidth=0.5)
        upper.set(ylim=(0, 1.02), xticklabels=[])
        upper.set_title(
            f"{shorten(name, _LONGEST)}\nECE {percent(ece(p, y, n_bins))}, Brier {brier(p, y):.3f}",
            loc="left", parse_math=False,
        )  # fmt: skip
        lower.set_xlabel("confidence: largest probability", fontsize=9)
        lower.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        most = max(most, int(count.max()))
    for k, (upper, lower) in enumerate(grid[: len(names)]):
        lower.set_ylim(0, 1.08 * most)
        if k % across == 0:
            upper.set_ylabel("accuracy")
            lower.set_ylabel("nodes")
    return made


def _wilson(share: Floats, count: NDArray[np.intp]) -> tuple[Floats, Floats]:
    z = 1.96
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return middle - half, middle + half


def spectral_responses(
    filters: ArrayLike | Tensor | GraphPolynomialFilter,
    prior: ArrayLike | Tensor | None = None,
    eigenvalues: ArrayLike | Tensor | None = None,
) -> Figure:
    """Draw the response of every order's filter to the frequencies of a graph, and the prior from which it was learned.

    Parameters
    ----------
    filters : array_like, Tensor or module with ``theta``, shape (orders, K + 1)
        Chebyshev coefficients.
    prior : array_like or Tensor, shape (K + 1,), optional
        Chebyshev coefficients, for instance from `prior_coefficients`; dashed.
    eigenvalues : array_like or Tensor, shape (nodes,), optional
        λ of the graph's normalised Laplacian, in [0, 2]; a histogram of them is drawn behind.

    Raises
    ------
    ValueError
        Shapes do not fit, or a number is not finite or out of range.
    """
    theta = _matrix(getattr(filters, "theta", filters), "filters", ("orders", "coefficients"))
    lam = np.linspace(0, 2, 401)
    made, ax = figure(
        "Which frequencies the filters let through", xlabel="frequency λ of the graph: smooth to alternating",
        ylabel="response", xlim=(0, 2), height=4.2,
    )  # fmt: skip
    ax.axhline(0, color=_GREY, linewidth=0.8)
    if eigenvalues is not None:
        values = check_vector(_array(eigenvalues), "eigenvalues")
        outside = (values < -1e-6) | (values > 2 + 1e-6)
        if values.size == 0 or outside.any():
            raise ValueError(f"eigenvalues must be in [0, 2], got {values[outside][0] if values.size else 'none'}")
        with look():
            behind = ax.twinx()
        behind.hist(values.clip(0, 2), bins=np.linspace(0, 2, 41).tolist(), color=_PALE)
        behind.set_ylabel("eigenvalues of the graph", color=_GREY)
        behind.spines["right"].set_visible(False)
        behind.tick_params(length=0, labelcolor=_GREY)
        behind.grid(False)
        behind.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        ax.set_zorder(behind.get_zorder() + 1)
        ax.patch.set_visible(False)
    if prior is not None:
        start = check_vector(_array(prior), "prior")
        if start.size == 0:
            raise ValueError("prior must have at least one coefficient")
        ax.plot(lam, chebyshev.chebval(1 - lam, start), color=_INK, linestyle="--", linewidth=1.4, label="prior")
    for order, coefficients in enumerate(theta):
        label = f"order {order}" if order else "mean (order 0)"
        style = "-" if order < len(PALETTE) else ":"
        colour = PALETTE[order % len(PALETTE)]
        ax.plot(lam, chebyshev.chebval(1 - lam, coefficients), style, color=colour, label=label)
    made.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return made


def fan_chart(logits: ChaosLogits, node: int, classes: Sequence[Any] | None = None) -> Figure:
    """Draw how the class probabilities of one node change with ξ, and how likely each ξ is.

    Of more than 6 classes, the most probable ones are drawn, and the sum of the others. At the right are the
    predictive probabilities, the averages over ξ.

    Parameters
    ----------
    logits : ChaosLogits
        Of all nodes.
    node : int
        Which node.
    classes : sequence, optional
        Names of the classes; by default their indices.

    Raises
    ------
    ValueError
        There is no such node, or names do not fit the classes.
    """
    import torch

    nodes, count = logits.coefs.shape[1:]
    node = check_integer(node, "node", low=0)
    if node >= nodes:
        raise ValueError(f"node must be below {nodes}, the number of nodes, got {node}")
    names = _class_names(classes, count)
    one = type(logits)(logits.coefs[:, node : node + 1].detach().cpu().double(), logits.basis)
    low, high = map(float, one.basis.quantile(torch.tensor([0.001, 0.999], dtype=torch.float64)))
    xi = np.linspace(low, high, 301)
    p = one.logits(torch.from_numpy(xi))[:, 0].softmax(-1).numpy()
    mean = one.predictive(max(32, one.order + 1))[0].numpy()
    made, (upper, lower) = figure(
        f"Class probabilities of node {node} as ξ varies", width=6.8, height=4.8, nrows=2, xlim=(low, high)
    )
    upper.get_gridspec().set_height_ratios([3.2, 1])
    ranked = np.argsort(-mean, kind="stable")
    chosen = ranked if count <= 6 else ranked[:5]
    lines = [(names[c], PALETTE[k], p[:, c], mean[c]) for k, c in enumerate(chosen)]
    if count > 6:
        rest = ranked[5:]
        lines.append((f"{len(rest)} other classes", _GREY, p[:, rest].sum(1), mean[rest].sum()))
    for name, colour, curve, average in lines:
        upper.plot(xi, curve, color=colour, label=f"{_plain(name)}  {percent(float(average))}")
        upper.plot([1.012], [average], "<", color=colour, transform=upper.get_yaxis_transform(), clip_on=False)
    upper.set(ylim=(-0.02, 1.02), ylabel="probability", xticklabels=[])
    density = _density(one.basis, xi)
    lower.fill_between(xi, density, color=_GREY, alpha=0.5, linewidth=0)
    lower.set(xlabel="ξ, the coordinate that all nodes share", ylabel="density of ξ")
    # A density may be infinite at an end.
    lower.set_ylim(0, 1.05 * min(float(density.max()), 8 * float(np.median(density))))
    lower.yaxis.set_major_locator(MaxNLocator(2))
    made.legend(
        handles=upper.get_legend_handles_labels()[0], loc="outside right center", frameon=False,
        title="class, and predictive\nprobability (arrow)",
    )  # fmt: skip
    return made


def _density(basis: OrthogonalBasis, xi: Floats) -> Floats:
    match basis.family:
        case "hermite":
            distribution = stats.norm()
        case "legendre":
            distribution = stats.uniform(-1, 2)
        case "laguerre":
            distribution = stats.gamma(basis.a + 1)
        case _:
            distribution = stats.beta(basis.b + 1, basis.a + 1, loc=-1, scale=2)
    density: Floats = distribution.pdf(xi)
    return density


def uncertainty_map(
    edge_index: ArrayLike | Tensor,
    proba: ArrayLike | Tensor,
    mi: ArrayLike | Tensor,
    energy: ArrayLike | Tensor,
    classes: Sequence[Any] | None = None,
    *,
    pos: ArrayLike | None = None,
    random_state: int = 0,
) -> Figure:
    """Draw a network: colour is the predicted class, size the mutual information, the rim how high the energy is.

    Of more than 7 predicted classes, the 6 most frequent have a colour.

    Parameters
    ----------
    edge_index : array_like or Tensor of int, shape (2, edges)
        Edges, in one direction or both.
    proba : array_like or Tensor, shape (nodes, classes)
        Class probabilities.
    mi : array_like or Tensor, shape (nodes,)
        Epistemic uncertainty in nats.
    energy : array_like or Tensor, shape (nodes,)
        Energy score; it is drawn as a rank among the nodes, because only ranks can be compared.
    classes : sequence, optional
        Names of the classes; by default their indices.
    pos : array_like, shape (nodes, 2), optional
        Where the nodes are; by default a spring layout, for at most 1500 nodes.
    random_state : int
        Seed of the layout.

    Raises
    ------
    TypeError
        Ends of edges are not integers.
    ValueError
        Shapes do not fit, an edge refers to a node that is not there, a number is not finite, or too many nodes.
    """
    from paperworks.dssgnn.metrics import _integers, _predictions

    p, _ = _predictions(proba, np.zeros(len(_array(proba)), dtype=np.intp))
    n = len(p)
    names = _class_names(classes, p.shape[1])
    information = check_vector(_array(mi), "mi", length=n, low=-1e-6).clip(0)
    ranked = (stats.rankdata(check_vector(_array(energy), "energy", length=n)) - 0.5) / n
    edges = _integers(edge_index, "edge_index", 2)
    if len(edges) != 2:
        raise ValueError(f"edge_index must have shape (2, edges), got {edges.shape}")
    outside = (edges < 0) | (edges >= n)
    if outside.any():
        raise ValueError(f"edge_index refers to node {edges[outside][0]} but proba has {n} rows")
    if pos is None and n > _NODES:
        raise ValueError(f"pos must be given for more than {_NODES} nodes, got {n}; or draw a part of the graph")
    where = _layout(edges, n, random_state) if pos is None else _matrix(pos, "pos", ("nodes", "2"))
    if where.shape != (n, 2):
        raise ValueError(f"pos must have shape ({n}, 2), got {where.shape}")

    predicted = p.argmax(1)
    frequency = np.bincount(predicted, minlength=p.shape[1])
    common = np.argsort(-frequency, kind="stable")[: len(np.flatnonzero(frequency))]
    coloured = np.sort(common[: 7 if len(common) <= 7 else 6])
    colour = np.tile(to_rgb(_GREY), (n, 1))
    keys = []
    for k, c in enumerate(coloured):
        colour[predicted == c] = to_rgb(PALETTE[k])
        keys.append(_dot(PALETTE[k], f"{_plain(names[c])} ({frequency[c]})"))
    if len(common) > len(coloured):
        others = common[len(coloured) :]
        keys.append(_dot(_GREY, f"{len(others)} other classes ({frequency[others].sum()})"))

    made, ax = figure("Predicted classes, and how uncertain they are", width=8.6, height=6.4)
    base = float(np.clip(6000 / n, 14, 130))
    most = float(information.max())
    size = base * (0.5 + 3.5 * (information / most if most > 0 else np.zeros(n)))
    lines = LineCollection(
        list(where[np.unique(np.sort(edges, axis=0), axis=1).T]), colors=_GREY, linewidths=0.6, alpha=0.5, zorder=1
    )
    ax.add_collection(lines)
    order = np.argsort(-size, kind="stable")
    ax.scatter(
        where[order, 0], where[order, 1], s=size[order], c=colour[order], edgecolors=_RIM(ranked[order]),
        linewidths=min(2.2, 0.18 * math.sqrt(base)) + 0.2, zorder=2,
    )  # fmt: skip
    ax.margins(0.06)
    ax.set_axis_off()
    ax.set_aspect("equal", adjustable="datalim")
    made.legend(handles=keys, loc="outside right upper", frameon=False, title="predicted class (nodes)")
    sizes = [most, most / 2, 0.0] if most > 0 else [0.0]
    made.legend(
        handles=[
            _dot("white", f"{value:.2g}", area=base * (0.5 + 3.5 * (value / most if most > 0 else 0)), rim=_SOFT)
            for value in sizes
        ],
        loc="outside right center", frameon=False, title="uncertainty: mutual\ninformation in nats", labelspacing=0.9,
    )  # fmt: skip
    bar = made.colorbar(
        ScalarMappable(Normalize(0, 1), _RIM), ax=ax, orientation="horizontal", shrink=0.4, aspect=30, pad=0.02,
        label="rim: quantile of the energy among the nodes (dark: little evidence)",
    )  # fmt: skip
    bar.outline.set_visible(False)
    return made


def _layout(edges: NDArray[np.intp], n: int, random_state: int) -> Floats:
    nx = require("networkx", "dssgnn")

    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(edges.T.tolist())
    parts = sorted(nx.connected_components(graph), key=lambda part: (-len(part), min(part)))
    where = np.zeros((n, 2))
    # Each component has its own layout, of an area as its nodes need, and they are set in rows beside each other.
    left = top = row = 0.0
    across = 1.1 * math.sqrt(n)
    for part in parts:
        members = sorted(part)
        side = math.sqrt(len(members))
        if left > 0 and left + side > max(across, math.sqrt(len(parts[0]))):
            left, top, row = 0.0, top - row - 0.6, 0.0
        placed = nx.spring_layout(graph.subgraph(members), seed=random_state, scale=None, iterations=50)
        spots = np.array([placed[node] for node in members])
        spots = spots - spots.mean(0)
        # Hubs are crowded in the middle: give it more room.
        radius = np.linalg.norm(spots, axis=1, keepdims=True)
        spots = spots / np.where(radius > 0, radius, 1) ** 0.4
        spots = spots - spots.min(0)
        spots = spots / max(float(spots.max()), 1e-12) * (side - 1)
        height = float(spots[:, 1].max())
        where[members] = spots + np.array([left, top - height])
        left, row = left + float(spots[:, 0].max()) + 1.2, max(row, height + 1)
    return where


def _dot(colour: str, label: str, area: float = 49.0, rim: str = "none") -> Line2D:
    return Line2D(
        [], [], color=colour, marker="o", linestyle="none", markersize=math.sqrt(area), markeredgecolor=rim, label=label
    )


def ood_histogram(
    scores_in: ArrayLike | Tensor,
    scores_out: ArrayLike | Tensor,
    auroc: float | None = None,
    *,
    score: str = "energy",
) -> Figure:
    """Draw the scores of nodes in and out of distribution, and the threshold that accepts 95 % of those in.

    Parameters
    ----------
    scores_in, scores_out : array_like or Tensor, shapes (n,) and (m,)
        Larger is more out of distribution.
    auroc : float, optional
        In [0, 1]; by default that of the scores.
    score : str
        Its name, for the axis.

    Raises
    ------
    ValueError
        Scores are empty or not finite, or `auroc` is outside [0, 1].
    """
    from paperworks.dssgnn.metrics import ood_metrics

    found = ood_metrics(scores_in, scores_out)
    inside, outside = _array(scores_in).astype(np.float64), _array(scores_out).astype(np.float64)
    shown = found.auroc if auroc is None else check_real(auroc, "auroc", low=0, high=1)
    both = np.concatenate([inside, outside])
    low, high = np.quantile(both, [0.005, 0.995])
    room = max(high - low, 1e-9 * max(1.0, abs(low)))
    # What is far beyond nearly all scores is counted in the outermost bins, or it would squeeze the others together.
    ends = max(both.min(), low - 0.5 * room), min(both.max(), high + 0.5 * room)
    if ends[0] == ends[1]:
        ends = ends[0] - 0.5, ends[1] + 0.5
    bins = np.linspace(*ends, int(np.clip(2 * math.sqrt(min(len(inside), len(outside))), 8, 40)) + 1)
    made, ax = figure(
        f"Out-of-distribution score: AUROC {percent(shown)}", xlabel=f"{score} (larger: more out of distribution)",
        ylabel="share of the nodes",
    )  # fmt: skip
    for values, colour, label in ((inside, _IN, "in distribution"), (outside, _OUT, "out of distribution")):
        share = np.histogram(values.clip(*ends), bins)[0] / len(values)
        ax.stairs(share, bins, color=colour, fill=True, alpha=0.35)
        ax.stairs(share, bins, color=colour, linewidth=1.6, label=f"{label} ({len(values)})")
    threshold = float(np.quantile(inside, 0.95, method="inverted_cdf"))
    ax.axvline(threshold, color=_INK, linewidth=1.2, linestyle="--",
               label=f"accepts 95 % of those in, and {percent(found.fpr95)} of those out")  # fmt: skip
    ax.yaxis.set_major_formatter(lambda value, _: percent(value))
    beyond = int(((both < ends[0]) | (both > ends[1])).sum())
    if beyond:
        ax.set_xlabel(f"{ax.get_xlabel()}\n{beyond} beyond the axis, counted in the outermost bins")
    made.legend(handles=ax.get_legend_handles_labels()[0], loc="outside lower center", ncols=2, frameon=False)
    return made


def truncation_map(errors: pd.DataFrame | ArrayLike) -> Figure:
    """Draw the logarithm of the error against degree and order.

    Parameters
    ----------
    errors : DataFrame or array_like, shape (degrees, orders)
        Nonnegative; of an array, row K and column P hold degree K and order P, as `joint_truncation_errors` returns
        them; of a table, index and columns name them.

    Raises
    ------
    ValueError
        No two dimensions, nothing in it, or an error that is negative or not finite.
    """
    table = errors if isinstance(errors, pd.DataFrame) else pd.DataFrame(_matrix(errors, "errors", ("K", "P")))
    values = _matrix(table.to_numpy(dtype=np.float64), "errors", ("K", "P"))
    if (values < 0).any():
        raise ValueError(f"errors must be non-negative, got {values.min()}")
    rows, columns = table.shape
    made, ax = figure(
        "Error of a truncated series", width=max(5.0, min(9.0, 2.4 + 0.5 * columns)),
        height=max(3.2, min(9.0, 1.6 + 0.42 * rows)),
    )  # fmt: skip
    _draw_truncation(made, ax, table)
    return made


def _draw_truncation(made: Figure, ax: Axes, table: pd.DataFrame) -> None:
    values = table.to_numpy(dtype=np.float64)
    floor = values[values > 0].min() if (values > 0).any() else 1.0
    logs = np.log10(np.maximum(values, floor))
    rows, columns = logs.shape
    image = ax.pcolormesh(np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5, logs, cmap="cividis")
    if rows * columns <= 200:
        middle = (logs.min() + logs.max()) / 2
        for i, j in np.ndindex(logs.shape):
            text = f"{logs[i, j]:.1f}".replace("-", "−") if values[i, j] > 0 else "−∞"
            colour = "white" if logs[i, j] <= middle else _INK
            ax.text(j, i, text, ha="center", va="center", fontsize=7.5, color=colour)
    for axis, labels in ((ax.xaxis, table.columns), (ax.yaxis, table.index)):
        step = -(-len(labels) // 16)
        axis.set_ticks(range(0, len(labels), step), [str(label) for label in labels[::step]])
    ax.tick_params(length=0)
    ax.grid(False)
    bar = made.colorbar(image, ax=ax, label="log₁₀ of the relative error")
    bar.outline.set_visible(False)
    ax.set(xlabel="highest order P in ξ", ylabel="degree K in frequency")


def rejection_curves(correct: ArrayLike | Tensor, scores: Mapping[str, ArrayLike | Tensor]) -> Figure:
    """Draw the accuracy of what is kept when the most uncertain nodes are set aside for review.

    Among nodes of equal scores, those kept are taken to be a random choice. Of each score the label gives the mean
    accuracy over all shares kept, from one node to all.

    Parameters
    ----------
    correct : array_like or Tensor of bool, shape (nodes,)
        Whether the predicted class is right.
    scores : mapping of str to array_like or Tensor, shape (nodes,)
        Larger is more uncertain.

    Raises
    ------
    TypeError
        `correct` is not boolean.
    ValueError
        No node, no score, a wrong length, or a score that is not finite.
    """
    right = _array(correct)
    if right.dtype != np.bool_:
        raise TypeError(f"correct must be boolean, got dtype {right.dtype}")
    if right.ndim != 1 or right.size == 0:
        raise ValueError(f"correct must have shape (nodes,) with at least one node, got {right.shape}")
    names = check_names(scores, "scores")
    n = len(right)
    share, accuracy = np.arange(1, n + 1) / n, float(right.mean())
    made, ax = figure(
        "Accuracy if the most uncertain nodes are set aside", xlabel="share of the nodes kept",
        ylabel="accuracy of those kept", xlim=(0, 1), height=4.4,
    )  # fmt: skip
    best = _kept(right, ~right)
    marker = "o" if n == 1 else ""
    ax.plot(share, best, color=_INK, linewidth=1.1, linestyle="--", label=f"best possible  {percent(best.mean())}")
    lowest = accuracy
    for k, name in enumerate(names):
        curve = _kept(right, check_vector(_array(scores[name]), f"scores[{name!r}]", length=n))
        style = ("-", "-.", ":")[k // len(PALETTE) % 3]
        ax.plot(
            share, curve, style, marker=marker, color=PALETTE[k % len(PALETTE)],
            label=f"{_plain(shorten(name, _LONGEST))}  {percent(float(curve.mean()))}",
        )  # fmt: skip
        lowest = min(lowest, float(curve[share >= 0.1].min()))
    ax.axhline(accuracy, color=_GREY, linewidth=1.1, label=f"any at random  {percent(accuracy)}")
    ax.xaxis.set_major_formatter(lambda value, _: percent(value))
    ax.yaxis.set_major_formatter(lambda value, _: percent(value) if value <= 1 + 1e-9 else "")
    room = max(0.02, 0.06 * (1 - lowest))
    ax.set_ylim(max(-0.02, lowest - room), 1 + room / 2)
    made.legend(
        handles=ax.get_legend_handles_labels()[0], loc="outside right center", frameon=False,
        title="score, and mean accuracy",
    )  # fmt: skip
    return made


def _kept(right: NDArray[np.bool_], score: NDArray[Any]) -> Floats:
    """Return the accuracy of the 1, 2, …, n nodes of the lowest scores."""
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    ends = np.concatenate([[0], np.cumsum(count)])
    hits = np.concatenate([[0.0], np.cumsum(np.bincount(place, right))])
    kept = np.arange(1, len(right) + 1)
    accuracy: Floats = np.interp(kept, ends, hits) / kept
    return accuracy


def joint_matrices(
    joint: ArrayLike | Tensor, product: ArrayLike | Tensor | None = None, classes: Sequence[Any] | None = None
) -> Figure:
    """Draw the joint probabilities of the labels of two nodes, the product of their marginals, and the difference.

    Parameters
    ----------
    joint : array_like or Tensor, shape (classes, classes)
        P(y_i = c, y_j = d): one entry of `ChaosLogits.joint`.
    product : array_like or Tensor, shape (classes, classes), optional
        By default that of the marginals of `joint`.
    classes : sequence, optional
        Names of the classes; by default their indices.

    Raises
    ------
    ValueError
        Shapes do not fit, or a matrix holds no probabilities that sum to 1.
    """
    p = _probabilities(joint, "joint")
    q = np.outer(p.sum(1), p.sum(0)) if product is None else _probabilities(product, "product")
    if p.shape != q.shape:
        raise ValueError(f"joint and product must have the same shape, got {p.shape} and {q.shape}")
    count = len(p)
    names = [shorten(name, 14) for name in _class_names(classes, count, "")]
    made, panels = figure(
        "Labels of two nodes: joint probability, and as if they were independent (numbers in %)", width=10.5,
        height=4.7 + 0.05 * max(map(len, names)), ncols=3,
    )  # fmt: skip
    top, gap = float(max(p.max(), q.max())), float(np.abs(p - q).max())
    for ax, values, title in (
        (panels[0], p, f"joint: same label {percent(np.trace(p))}"),
        (panels[1], q, f"product: same label {percent(np.trace(q))}"),
        (panels[2], p - q, "joint − product"),
    ):
        difference = ax is panels[2]
        # Differences that are rounding stay pale.
        limits = (-max(gap, 1e-4), max(gap, 1e-4)) if difference else (0.0, top)
        image = ax.pcolormesh(
            np.arange(count + 1) - 0.5, np.arange(count + 1) - 0.5, values, cmap="PuOr_r" if difference else "Blues",
            vmin=limits[0], vmax=limits[1],
        )  # fmt: skip
        if count <= _NUMBERED:
            _number_cells(ax, values, limits, signed=difference)
        step = -(-count // 12)
        ax.set_xticks(
            range(0, count, step), names[::step], parse_math=False, rotation=_turn(names[::step]), fontsize=8.5
        )
        ax.set_yticks(range(0, count, step), names[::step] if ax is panels[0] else [], parse_math=False, fontsize=8.5)
        ax.set(ylim=(count - 0.5, -0.5), xlabel="second node", aspect="equal")
        ax.set_title(title, loc="left")
        ax.tick_params(length=0)
        ax.grid(False)
        bar = made.colorbar(image, ax=ax, orientation="horizontal", shrink=0.8, aspect=25)
        bar.outline.set_visible(False)
        bar.ax.xaxis.set_major_locator(MaxNLocator(3))
        bar.ax.xaxis.set_major_formatter(lambda value, _: percent(value))
    made.get_layout_engine().set(w_pad=0.12, h_pad=0.1)  # type: ignore[call-arg, union-attr]
    panels[0].set_ylabel("first node")
    return made


def _number_cells(ax: Axes, values: Floats, limits: tuple[float, float], *, signed: bool) -> None:
    for i, j in np.ndindex(values.shape):
        value = float(values[i, j])
        text = f"{100 * value:{'+' if signed else ''}.1f}"
        text = "0" if not text.strip("+-0.") else text
        dark = abs(value) > 0.6 * limits[1]
        ax.text(
            j, i, text.replace("-", "−"), ha="center", va="center", fontsize=8 if len(values) <= 5 else 6.5,
            color="white" if dark else _INK,
        )  # fmt: skip


def _turn(names: Sequence[str]) -> int:
    return 90 if (max(map(len, names)) + 1) * len(names) > 34 else 0


def _array(values: Any) -> NDArray[Any]:
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _matrix(values: Any, name: str, axes: tuple[str, str]) -> Floats:
    array = _array(values)
    if array.ndim != 2 or array.size == 0:
        raise ValueError(f"{name} must have shape ({axes[0]}, {axes[1]}), got {array.shape}")
    matrix = array.astype(np.float64)
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be finite, got {matrix[~np.isfinite(matrix)][0]}")
    return matrix


def _probabilities(values: Any, name: str) -> Floats:
    p = _matrix(values, name, ("classes", "classes"))
    if p.shape[0] != p.shape[1]:
        raise ValueError(f"{name} must have shape (classes, classes), got {p.shape}")
    if (p < 0).any() or abs(p.sum() - 1) > 1e-4:
        raise ValueError(f"{name} must hold probabilities that sum to 1, got a sum of {p.sum():.6g} from {p.min():.3g}")
    return p


def _class_names(classes: Sequence[Any] | None, count: int, prefix: str = "class ") -> list[str]:
    if classes is None:
        return [f"{prefix}{c}" for c in range(count)]
    return [shorten(name, _LONGEST) for name in check_names(classes, "classes", length=count)]


def _plain(name: str) -> str:
    """Return a name that a legend shows as it is: neither mathematics nor, after an underscore, hidden."""
    escaped = name.replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{escaped}" if escaped.startswith("_") else escaped


# The ledger's tables


def brier(calibration: pd.DataFrame) -> Figure:
    """Draw the Brier score of the methods that give uncertainty on every set, lowest on top, and of an MLP beside them."""
    keys = [("DSS", _colour("DSS"), None), ("compared", _colour("GCN"), None), ("MLP, not compared", _MLP, "white")]
    return _ranking(calibration, ("DSS", *COMPARED, "MLP"), [_diamond(*key) for key in keys])


def posthoc(calibration: pd.DataFrame) -> Figure:
    """Draw the Brier score on every set beside that of methods calibrated after the fit, lowest on top."""
    ours, theirs = _colour("DSS"), _colour("GCN")
    keys = [
        _diamond("DSS, uncalibrated", ours), _diamond("its mean logits, calibrated", ours, "white"),
        _diamond("baseline, calibrated", theirs),
    ]  # fmt: skip
    methods = ("DSS", "DSS + TS", "GCN + TS", "APPNP + TS", "GCN + CaGCN", "GCN + GATS")
    return _ranking(calibration, methods, keys)


def ablations(calibration: pd.DataFrame) -> Figure:
    """Draw what is left of DSS without chaos, anchor or learned filters, and what the anchor does to the logits."""
    score = _runs(calibration, "brier")
    sd = _runs(calibration, "sd").reindex(score.index)
    rows = score.index.unique(0)
    made, (left, middle, right) = figure(
        "Parts of the method left out: mean of the runs ± its standard error", width=11,
        height=1.7 + 0.55 * len(rows), ncols=3,
    )  # fmt: skip
    shapes = {"DSS": "D", "DSS, order 0": "o", "DSS, no anchor": "s", "APPNP with gain": "^", "APPNP": "v"}
    colours = dict(zip(shapes, (_colour("DSS"), PALETTE[1], PALETTE[2], PALETTE[4], PALETTE[6]), strict=True))
    parts = {name: (colours[name], shape) for name, shape in shapes.items()}
    changed = {name: parts[name] for name in ("DSS, order 0", "DSS, no anchor")}
    anchors = {name: parts[name] for name in ("DSS", "DSS, no anchor")}
    _by_set(left, score, parts)
    _by_set(middle, score.sub(score["DSS"], axis=0), changed)
    _by_set(right, sd, anchors, log=True)
    middle.axvline(0, color=parts["DSS"][0], linewidth=1.4)
    for at in (0.1, 0.3):
        right.axvline(at, color=_INK, linewidth=1, linestyle=":")
    left.set(xlabel="Brier score, times 100")
    middle.set(xlabel="Brier score minus that of DSS\n(same runs; to the right: worse)", yticklabels=[])
    right.set(xlabel="standard deviation of the logits\n(dotted: 0.1 and 0.3)", yticklabels=[])
    _key(made, left.get_legend_handles_labels()[0])
    return made


def quadrature(calibration: pd.DataFrame) -> Figure:
    """Draw the likelihood of averages over ξ against that of softmax of the mean logits, a point for every run."""
    plain = "DSS, softmax of the mean"
    nll, sd = _runs(calibration, "nll"), _runs(calibration, "sd")["DSS"]
    nll = nll[["DSS", plain]].dropna()
    made, (left, right) = figure("Averages over ξ, and the mean logits alone: a point is a run", width=9, ncols=2)
    for k, name in enumerate(nll.index.unique(0)):
        found = nll.loc[name]
        style: dict[str, Any] = {"color": PALETTE[k % len(PALETTE)], "markeredgecolor": "white", "markersize": 6}
        marker = "osD^"[k // len(PALETTE) % 4]
        left.plot(found[plain], found["DSS"], marker, label=_set(name), **style)
        right.plot(sd.loc[name].reindex(found.index), found["DSS"] - found[plain], marker, **style)
    low, high = float(nll.min().min()), float(nll.max().max())
    room = 0.05 * (high - low) or 1.0
    left.plot([low - room, high + room], [low - room, high + room], color=_INK, linewidth=1, zorder=1)
    left.set(
        xlabel="NLL, softmax of the mean logits (times 100)", ylabel="NLL, average over ξ (times 100)",
        title="below the line: averaging is better", aspect="equal", xlim=(low - room, high + room),
        ylim=(low - room, high + room),
    )  # fmt: skip
    right.axhline(0, color=_INK, linewidth=1)
    right.axvline(0.3, color=_INK, linewidth=1, linestyle=":")
    right.set(
        xlabel="standard deviation of the logits (dotted: 0.3)", ylabel="difference of the two",
        title="below 0: averaging is better",
    )  # fmt: skip
    right.set_xlim(left=0)
    _key(made, left.get_legend_handles_labels()[0])
    return made


def joint_edges(calibration: pd.DataFrame) -> Figure:
    """Draw how likely joint probabilities make the event that the ends of edges have the same label."""
    product, ensemble = "DSS, product of marginals", "GCN ensemble, joint"
    nll = _runs(calibration, "edge_nll")
    rows = nll.index.unique(0)
    made, (left, right) = figure(
        "Do the ends of an edge have the same label? Mean of the runs ± its standard error", width=9,
        height=1.7 + 0.45 * len(rows), ncols=2,
    )  # fmt: skip
    styles = {"DSS": (_colour("DSS"), "D"), product: (PALETTE[1], "o"), ensemble: (PALETTE[6], "s")}
    _by_set(left, nll, styles, names={"DSS": "DSS, joint"})
    _by_set(right, nll.sub(nll[product], axis=0), {"DSS": styles["DSS"]})
    right.axvline(0, color=styles[product][0], linewidth=1.4)
    right.axvline(0.005, color=_INK, linewidth=1, linestyle=":")
    left.set(xlabel="NLL of the event")
    right.set(xlabel="joint minus product of marginals\n(dotted: 0.005 worse)", yticklabels=[])
    _key(made, left.get_legend_handles_labels()[0])
    return made


def detection(ood: pd.DataFrame) -> Figure:
    """Draw the AUROC of every score for every shift, without and with propagation."""
    suffix = ", propagated"
    wide = ood.pivot_table(
        values="value.auroc", index=["param.set", "value.shift", "param.repeat"], columns="value.method", sort=False
    )
    plain = wide[[name for name in wide if not str(name).endswith(suffix)]]
    means = plain.groupby(level=[0, 1], sort=False).mean()
    order = list(means.mean().sort_values(ascending=False).index)
    across = len(means.index.unique(1))
    made, panels = panel_grid(
        "AUROC (times 100) of nodes out of distribution; scores sorted by their mean over all panels", len(means),
        across=across, width=10, height=0.55 + 0.22 * len(order), frame=1.0,
    )  # fmt: skip
    low = math.floor(float(wide.min().min()) / 10) * 10
    for k, (ax, (name, shift)) in enumerate(zip(panels, means.index, strict=True)):
        best = means.loc[(name, shift)].idxmax()
        for at, method in enumerate(order):
            found = wide.loc[(name, shift), method]
            colour = _colour(method)
            if method + suffix in wide:
                other = float(wide.loc[(name, shift), method + suffix].mean())
                ax.plot([found.mean(), other], [at, at], color=colour, linewidth=1, alpha=0.5)
                ax.plot([other], [at], "o", markersize=6.5, color=colour, markerfacecolor="white")
            ax.plot(found, np.full(len(found), at), ".", color=colour, alpha=0.4, markeredgewidth=0)
            marker, size = ("*", 13.0) if method == best else ("D", 5.5)
            ax.plot([found.mean()], [at], marker, markersize=size, color=colour, zorder=3)
        ax.axvline(50, color=_INK, linewidth=1, linestyle=":")
        ax.set(xlim=(low - 2, 102), title=f"{_set(name)}, {shift}")
        _name_rows(ax, order if k % across == 0 else [""] * len(order))
    keys = [
        _diamond("mean", _SOFT),
        Line2D([], [], color=_SOFT, marker="*", markersize=12, linestyle="", label="best of the panel"),
        Line2D([], [], color=_SOFT, marker=".", alpha=0.4, markeredgewidth=0, linestyle="", label="a repeat"),
        Line2D([], [], color=_SOFT, marker="o", markersize=6.5, markerfacecolor="white", label="mean, propagated"),
    ]
    _key(made, keys)
    return made


def readouts(ood: pd.DataFrame) -> Figure:
    """Draw the AUROC of energy, mutual information and variance, with the anchor 1 and with a relative one."""
    scores = ("energy", "MI", "variance")
    aurocs = ood.pivot_table(
        values="value.auroc", index=["param.set", "value.shift"], columns="value.method", sort=False
    )
    names = aurocs.index.unique(0)
    made, panels = panel_grid(
        "Read-outs of DSS as scores of nodes out of distribution", len(names), across=2,
        width=9.0 if len(names) > 1 else 6.4, height=3.0, ylabel="AUROC, times 100",
    )  # fmt: skip
    models = {"DSS": ("anchor 1", _colour("DSS"), -0.08),
              "DSS, relative s0": ("relative anchor", PALETTE[1], 0.08)}  # fmt: skip
    shapes = dict(zip(aurocs.index.unique(1), "osv", strict=False))
    for ax, name in zip(panels, names, strict=True):
        for model, (label, colour, shift) in models.items():
            found = aurocs.loc[name, [f"{model} {score}" for score in scores]]
            at = np.arange(len(scores)) + shift
            for kind, values in found.iterrows():
                ax.plot(at, values, shapes[str(kind)], color=colour, alpha=0.45, markeredgewidth=0, markersize=6)
            ax.plot(at, found.mean(), "-D", color=colour, label=f"{label}, mean", markersize=6.5)
        ax.axhline(50, color=_INK, linewidth=1, linestyle=":")
        ax.set_xticks(range(len(scores)), ["energy", "mutual\ninformation", "variance"])
        ax.set(xlim=(-0.4, len(scores) - 0.6), title=_set(name))
        ax.grid(axis="x", visible=False)
    keys = panels[0].get_legend_handles_labels()[0]
    keys += [Line2D([], [], color=_GREY, marker=shape, linestyle="", label=str(kind)) for kind, shape in shapes.items()]
    _key(made, keys, ncols=5 if len(names) > 1 else 3)
    return made


def cross_graph(cross: pd.DataFrame) -> Figure:
    """Draw the AUROC of nodes of other graphs, and what the same models are worth on their own."""
    methods = ("DSS", "DSS, propagated", "GCN", "GCN, propagated")
    targets = list(cross["value.target"].unique())
    made, panels = panel_grid(
        "Energy as a score of nodes of another graph: a dot is a repeat, a diamond the mean", len(targets) + 1, across=3,
        width=10, height=2.2,
    )  # fmt: skip
    for ax, target in zip(panels, targets, strict=False):
        wide = cross[cross["value.target"] == target].pivot(
            index="param.repeat", columns="value.method", values="value.auroc"
        )
        _strips(ax, wide, methods)
        bound = float(wide[["GCN", "GCN, propagated"]].mean().max()) - 2
        ax.axvline(bound, color=_INK, linewidth=1, linestyle=":")
        ax.set(title=f"against {target}", xlabel="AUROC, times 100\n(dotted: 2 below the better GCN)")
    own = cross[cross["value.target"] == targets[0]]
    rows = {"accuracy": "accuracy", "roc_auc": "ROC-AUC", "brier": "Brier\n(low: good)"}
    home = panels[-1]
    for shift, method in ((-0.14, "DSS"), (0.14, "GCN")):
        for at, value in enumerate(rows):
            found = own.loc[own["value.method"] == method, f"value.{value}"]
            _strip(home, found, at + shift, _colour(method), label=method if at == 0 else None)
    home.set(title="on the graph itself", xlabel="times 100")
    _name_rows(home, list(rows.values()))
    _key(made, home.get_legend_handles_labels()[0])
    return made


def concept_shift(concept: pd.DataFrame) -> Figure:
    """Draw the accuracy out of distribution against that in distribution, and what the residual does to encoders."""
    labels = {
        "encoder": "GCN", "hybrid": "Hybrid", "hybrid, order 0": "Hybrid, order 0", "appnp": "APPNP", "mlp": "MLP",
        "dss": "DSS alone", "deep encoder": "GCN, 3 layers", "deep hybrid": "Hybrid, 3 layers",
    }  # fmt: skip
    looks = dict(
        zip(labels, [(PALETTE[6], "o"), (PALETTE[2], "o"), (PALETTE[4], "P"), (PALETTE[5], "v"), (PALETTE[3], "^"),
                     (PALETTE[0], "D"), (PALETTE[6], "s"), (PALETTE[2], "s")], strict=True)
    )  # fmt: skip
    names = list(concept["param.set"].unique())
    made, panels = panel_grid(
        "Accuracy under shifts of concept: from an encoder to its Hybrid", len(names), across=2,
        width=9.0 if len(names) > 1 else 6.4, height=3.7, frame=1.2,
        xlabel="accuracy in distribution (%)", ylabel="accuracy out of distribution (%)",
    )  # fmt: skip
    values = ["value.id_accuracy", "value.ood_accuracy"]
    keys: dict[str, Line2D] = {}
    for ax, name in zip(panels, names, strict=True):
        rows = concept[concept["param.set"] == name].set_index(["param.graph", "param.repeat"])
        runs = {arm: rows.loc[rows["value.method"] == arm, values] for arm in labels}
        for start, end in (("encoder", "hybrid"), ("deep encoder", "deep hybrid")):
            both = runs[start].join(runs[end], lsuffix="_start", how="inner")
            if len(both):
                segments = both.to_numpy(dtype=np.float64).reshape(-1, 2, 2)
                ax.add_collection(LineCollection(list(segments), colors=_GREY, linewidths=0.8, alpha=0.45))
                (first, last), style = segments.mean(0), "-" if start == "encoder" else "--"
                arrow = {"arrowstyle": "->", "color": _INK, "linewidth": 1.8, "linestyle": style, "shrinkB": 6}
                ax.annotate("", last, first, arrowprops=arrow)
        for arm, found in runs.items():
            if len(found):
                colour, marker = looks[arm]
                x, y = found.to_numpy(dtype=np.float64).T
                ax.plot(x, y, marker, color=colour, alpha=0.3, markersize=4, markeredgewidth=0)
                label = f"{labels[arm]} ({len(found)})"
                (keys[arm],) = ax.plot(
                    [x.mean()], [y.mean()], marker, color=colour, markersize=9, markeredgecolor=_INK, zorder=4, label=label
                )  # fmt: skip
        ax.set_title({"cbas": "CBAS", "webkb": "WebKB"}.get(name, name))
    shown = [keys[arm] for arm in labels if arm in keys]
    _key(made, shown, ncols=4 if len(names) > 1 else 3, title="mean (of how many runs a set); pale: single runs")
    return made


def reached(reach: pd.DataFrame) -> Figure:
    """Draw how far from random coefficients the closest that filters reach is."""
    made, ax = figure(
        "Coefficients that filters of one random signal reach", height=1.4 + 0.32 * len(reach), xscale="log",
        xlabel="relative residual of the closest (dotted: 10⁻¹⁰ and 10⁻³)",
    )  # fmt: skip
    low = 1e-17
    repeated = ~reach["value.graph"].str.startswith("path")
    for at, (residual, bad) in enumerate(zip(reach["value.residual"].clip(lower=low), repeated, strict=True)):
        colour = _OUT if bad else _IN
        ax.plot([low, residual], [at, at], color=colour, linewidth=1.2, alpha=0.5)
        ax.plot([residual], [at], "D", color=colour, markersize=7)
    for bound in (1e-10, 1e-3):
        ax.axvline(bound, color=_INK, linewidth=1, linestyle=":")
    _name_rows(
        ax, [f"{name}: rank {rank}" for name, rank in zip(reach["value.graph"], reach["value.rank"], strict=True)]
    )
    ax.set_xlim(low, 10)
    _key(made, [_diamond("distinct eigenvalues", _IN), _diamond("repeated eigenvalues", _OUT)])
    return made


def truncation(errors: pd.DataFrame, tanh: pd.DataFrame) -> Figure:
    """Draw the error of a truncated series by degree and order, and along the diagonal beside that of tanh ξ."""
    made, (left, right) = figure("Error of a truncated series", width=11, height=5.2, ncols=2)
    left.get_gridspec().set_width_ratios([1.15, 1])
    groups = list(errors.groupby("value.signal", sort=False))
    shown, rows = groups[0]
    _draw_truncation(made, left, rows.pivot_table(index="value.degree", columns="value.order", values="value.error"))
    left.set_title(f"exp(−λ + 0.8 ξ(1 − λ)), frequencies: {shown}")
    for k, (signal, found) in enumerate(groups):
        diagonal = found[found["value.degree"] == found["value.order"]].sort_values("value.order")
        style: dict[str, Any] = {"marker": "os"[k % 2], "color": PALETTE[k % len(PALETTE)]}
        right.plot(diagonal["value.order"], diagonal["value.error"], label=f"K = P = n, {signal}", **style)
    tails = tanh.sort_values("value.order")
    right.plot(tails["value.order"], tails["value.error"], ".-", color=_SOFT, label="tanh ξ, order n")
    start = float(rows.loc[(rows["value.degree"] == 2) & (rows["value.order"] == 2), "value.error"].iloc[0])
    right.plot([2, 12], [start, start * math.exp(-8)], color=_INK, linewidth=1.2, linestyle="--",
               label="slope −0.8 per order")  # fmt: skip
    right.set(yscale="log", xlabel="n", ylabel="relative error", title="exponential, and the limit of the claim")
    right.legend(frameon=False)
    return made


def known_truth(truth: pd.DataFrame) -> Figure:
    """Draw the divergence of predicted from true class probabilities, smallest on top."""
    wide = truth.pivot_table(values="value.divergence", index="param.repeat", columns="value.method")
    order = list(wide.mean().sort_values().index)
    made, ax = figure(
        "Class probabilities where the truth is known", height=1.3 + 0.35 * len(order),
        xlabel="divergence from the true probabilities in nats\n(a dot is a graph, a diamond the mean)",
    )  # fmt: skip
    _strips(ax, wide, order)
    ax.set_xlim(left=0)
    return made


def _ranking(table: pd.DataFrame, methods: Sequence[str], keys: Sequence[Line2D]) -> Figure:
    """Draw the Brier scores of methods on every set, a panel each, lowest on top; † marks sets never seen before."""
    wide = _runs(table, "brier")
    sets = wide.index.unique(0)
    shown = [name for name in methods if name in wide]
    across = 2 if len(sets) < 5 else 3
    made, panels = panel_grid(
        "Brier score (times 100), lowest on top: a dot is a run, a diamond the mean", len(sets), across=across,
        width=9.0 if across == 2 else 11.5, height=0.6 + 0.19 * len(shown), frame=1.0,
    )  # fmt: skip
    for ax, name in zip(panels, sets, strict=True):
        found = wide.loc[name, shown].dropna(axis="columns", how="all")
        _strips(ax, found, list(found.mean().sort_values().index), hollow=("MLP", "DSS + TS"))
        mark = " †" if name in CONFIRMATION else ""
        ax.set_title(f"{_set(name)}{mark} ({len(found)} run{'s' * (len(found) != 1)})")
        ax.xaxis.set_major_locator(MaxNLocator(5))
    unseen = set(sets) & set(CONFIRMATION)
    _key(made, keys, title="† no setting of DSS was chosen on this set" if unseen else None)
    return made


def _runs(table: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return a value, sets and splits by methods, in the order in which they were measured."""
    return table.pivot_table(
        values=f"value.{value}", index=["param.set", "param.split"], columns="value.method", sort=False
    )


def _strips(ax: Axes, wide: pd.DataFrame, order: Sequence[str], hollow: Sequence[str] = ()) -> None:
    """Draw the values of every method in a row, and their mean."""
    for at, method in enumerate(order):
        _strip(ax, wide[method].dropna(), at, _colour(method), face="white" if method in hollow else None)
    _name_rows(ax, order)


def _strip(
    ax: Axes, values: pd.Series[float], at: float, colour: str, *, face: str | None = None, label: str | None = None
) -> None:
    ax.plot(values, np.full(len(values), at), ".", color=colour, alpha=0.4, markersize=7, markeredgewidth=0)
    ax.plot(
        [values.mean()], [at], "D", color=colour, markerfacecolor=face or colour, zorder=3, label=label, markersize=6
    )


def _by_set(
    ax: Axes,
    wide: pd.DataFrame,
    styles: Mapping[str, tuple[str, str]],
    *,
    names: Mapping[str, str] | None = None,
    log: bool = False,
) -> None:
    """Draw mean and standard error of methods, sets in rows and methods below each other."""
    sets = list(wide.index.unique(0))
    for k, (method, (colour, marker)) in enumerate(styles.items()):
        if method in wide:
            groups = wide[method].groupby(level=0, sort=False)
            at = np.arange(len(sets)) + 0.7 * ((k + 0.5) / len(styles) - 0.5)
            ax.errorbar(
                groups.mean(), at, xerr=groups.sem().fillna(0), fmt=marker, color=colour, elinewidth=1.2,
                label=(names or {}).get(method, method),
            )  # fmt: skip
    for row in range(1, len(sets), 2):
        ax.axhspan(row - 0.5, row + 0.5, color=_PALE, alpha=0.4, linewidth=0, zorder=0)
    if log:
        ax.set_xscale("log")
        low, high = ax.get_xlim()
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 3)) if high < 100 * low else LogLocator(numticks=5))
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.xaxis.set_minor_formatter(NullFormatter())
    else:
        ax.xaxis.set_major_locator(MaxNLocator(5))
    _name_rows(ax, [_set(name) for name in sets])
    ax.grid(axis="y", visible=False)


def _name_rows(ax: Axes, names: Sequence[str]) -> None:
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)


def _colour(method: str) -> str:
    if method.startswith(("DSS", "Hybrid")):
        return PALETTE[0] if method.startswith("DSS") else PALETTE[2]
    return _MLP if method == "MLP" else PALETTE[6]


def _diamond(label: str, colour: str, face: str | None = None) -> Line2D:
    return Line2D([], [], color=colour, marker="D", linestyle="", markerfacecolor=face or colour, label=label)


def _key(made: Figure, handles: Sequence[Any], *, ncols: int = 5, title: str | None = None) -> None:
    made.legend(handles=list(handles), loc="outside lower center", ncols=ncols, frameon=False, title=title)


def _set(name: str) -> str:
    return str(name).replace("_", ", ")
