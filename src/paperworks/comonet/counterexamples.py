"""Sampled search for a counterexample: points that differ in one column and whose exact values contradict a shape.

It reads every graph, also those that the interval method does not, and all of R^d. It can refute, never prove.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import torch
from jaxtyping import Float
from torch import Tensor

from paperworks.comonet.graph import Activation, Affine, Basis, Concat, Graph, Group, Input, Node, Product, Sum

__all__ = ["counterexample"]

LINES, POINTS, ZOOMS = 128, 17, (1.0, 4.0, 16.0)
# Far above the rounding of any sum of fewer than a million terms, relative to the size of the terms.
ROUNDING = 1e-9


def counterexample(
    graph: Graph, box: Sequence[tuple[float, float]] | None, column: int, *, order: int, sign: int, seed: int = 0
) -> tuple[Float[Tensor, "points columns"], tuple[float, ...]] | None:
    """Look for points along one column that contradict sign·∂^order f/∂x_column^order ≥ 0.

    Parameters
    ----------
    graph : Graph
        With finite weights.
    box : sequence of (low, high), optional
        Where to look; a bound may be infinite. Without bounds the search is around the points where the units that read
        a column are zero.
    column : int
        The column.
    order : {1, 2}
        1 for monotone, 2 for curvature.
    sign : {-1, 1}
        1 for increasing or convex.
    seed : int
        Seed of the points.

    Returns
    -------
    (points, values) or None
        Two points for `order` 1, three for 2. Their values contradict the shape by more than rounding can explain.

    Examples
    --------
    >>> from paperworks.comonet.graph import GraphBuilder
    >>> b = GraphBuilder(n_columns=2)
    >>> graph = b.build(b.group(b.input([0, 1]), "max", pieces=2))
    >>> counterexample(graph, None, 0, order=2, sign=1) is None
    True
    >>> counterexample(graph, None, 0, order=2, sign=-1)[0].shape
    torch.Size([3, 2])
    """
    generator = torch.Generator().manual_seed(seed)
    low, high = _regions(graph, box, generator)
    rows = torch.lerp(low, high, torch.rand(low.shape, generator=generator, dtype=low.dtype))
    share = torch.rand((LINES, POINTS), generator=generator, dtype=low.dtype).sort(dim=1).values
    lines = rows[:, None].repeat(1, POINTS, 1)
    lines[:, :, column] = torch.lerp(low[:, [column]], high[:, [column]], share)
    flat = lines.reshape(-1, graph.n_columns)
    entries = graph.values(flat)
    values = sign * entries[-1].reshape(LINES, POINTS)
    slack = ROUNDING * _sizes(graph, entries)[-1].reshape(LINES, POINTS).unfold(1, order + 1, 1).sum(-1)
    if order == 1:
        excess = values[:, :-1] - values[:, 1:]
    else:
        t = lines[:, :, column]
        left = (t[:, 2:] - t[:, 1:-1]) / (t[:, 2:] - t[:, :-2])
        excess = values[:, 1:-1] - (left * values[:, :-2] + (1 - left) * values[:, 2:])
    # An overflow, or two points in one place, is not a statement.
    excess = torch.where(excess > slack, excess, -math.inf)
    line, start = divmod(int(excess.argmax()), excess.shape[1])
    if not math.isfinite(excess[line, start]):
        return None
    found = slice(start, start + order + 1)
    return lines[line, found], tuple((sign * values[line, found]).tolist())


def _regions(
    graph: Graph, box: Sequence[tuple[float, float]] | None, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return low and high of the region of each line, (lines, columns): the box, or around what the network reads."""
    zoom = torch.tensor(ZOOMS, dtype=torch.float64)[torch.randint(len(ZOOMS), (LINES,), generator=generator)]
    bounds = box if box is not None else [(-math.inf, math.inf)] * graph.n_columns
    lows, highs = [], []
    for j, (low, high) in enumerate(bounds):
        centre, spread = _focus(graph, j)
        # A half line is searched from its end to beyond the centre.
        lows.append(torch.full_like(zoom, low) if math.isfinite(low) else min(centre, high) - spread * zoom)
        highs.append(torch.full_like(zoom, high) if math.isfinite(high) else max(centre, low) + spread * zoom)
    return torch.stack(lows, dim=1), torch.stack(highs, dim=1)


def _focus(graph: Graph, column: int) -> tuple[float, float]:
    """Return the medians of where units that read a column are zero, and of how far from there they are ±1."""
    places, widths = list[float](), list[float]()
    for node in graph.nodes:
        match node:
            case Affine(sources=sources, weights=weights, bias=bias):
                for source, weight in zip(sources, weights, strict=True):
                    read = graph.nodes[source]
                    if isinstance(read, Input) and column in read.columns:
                        slopes = weight[:, read.columns.index(column)]
                        used = slopes != 0
                        places += (-bias[used] / slopes[used]).tolist()
                        widths += (1 / slopes[used].abs()).tolist()
            case Basis(source=source, low=low, high=high):
                read = graph.nodes[source]
                if isinstance(read, Input) and column in read.columns:
                    places.append((low + high) / 2)
                    widths.append((high - low) / 2)
    return (median(places), median(widths)) if places else (0.0, 1.0)


def _sizes(graph: Graph, values: Sequence[Tensor]) -> list[Tensor]:
    """Return the size of the terms behind the entries of each node, of which rounding errors are a small multiple."""
    sizes: list[Tensor] = []
    for node, value in zip(graph.nodes, values, strict=True):
        sizes.append(_size(node, graph, sizes, value.abs()))
    return sizes


def _size(node: Node, graph: Graph, sizes: Sequence[Tensor], value: Tensor) -> Tensor:
    match node:
        case Input():
            return value
        case Affine(sources=sources, weights=weights, bias=bias):
            parts = [sizes[s] @ w.abs().T for s, w in zip(sources, weights, strict=True)]
            return torch.stack(parts).sum(0) + bias.abs()
        case Activation(source=source):  # no slope exceeds 1
            return sizes[source] + value
        case Group(source=source, size=size, pieces=pieces):
            return sizes[source].reshape(len(value), size, pieces).amax(-1) + value + 1
        case Basis(source=source, low=low, high=high, knots=knots):
            if isinstance(graph.nodes[source], Input):  # without rounding
                return 1 + value
            edges = torch.tensor([low, *knots.tolist(), high], dtype=value.dtype)
            return 1 + value + sizes[source] / edges.diff().min()
        case Product(sources=sources):
            return torch.stack([sizes[s] for s in sources]).prod(0)
        case Sum(sources=sources):
            return torch.stack([sizes[s] for s in sources]).sum(0)
        case Concat(sources=sources):
            return torch.cat([sizes[s] for s in sources], dim=-1)
