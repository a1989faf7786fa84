"""Proof or counterexample on a box: interval bounds of slopes and curvatures of a network, with bisection.

With pre-activations a_n, β_n = ∂f/∂σ(a_n) and δ_n = ∂a_n/∂x_j, bounded over a box by interval arithmetic,

    ∂f/∂x_j = δ_out        and        ∂²f/∂x_j² = Σ_n β_n σ''(a_n) δ_n²    (sum over all hidden units).

σ'' of a kinked unit is a nonnegative measure at the kink: a unit whose kink may lie inside the box and that depends on
x_j needs β_n ≥ 0. Undecided boxes are halved; a box's centre line is searched for a counterexample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from paperworks.comonet.graph import ACTIVATIONS, Activation, Affine, Concat, Graph, Input, Sum

__all__ = ["Decision", "Interval", "check_supported", "decide"]

UNIT = 2.0**-53
CHUNK = 512
_SUPPORTED = ("identity", "relu", "leaky_relu", "softplus", "elu", "tanh", "sigmoid")
_TANH_INFLECTION = math.atanh(1 / math.sqrt(3))  # where tanh'' is extreme
_TANH_SECOND = 4 / (3 * math.sqrt(3))


class Interval(NamedTuple):
    """Bounds of one quantity per box and entry."""

    low: Float[Tensor, "boxes entries"]
    high: Float[Tensor, "boxes entries"]

    def padded(self, amount: Tensor | float) -> Interval:
        """Return the interval widened by `amount` on both sides."""
        return Interval(self.low - amount, self.high + amount)

    def magnitude(self) -> Tensor:
        """Return the largest absolute value."""
        return torch.maximum(self.low.abs(), self.high.abs())

    def __matmul__(self, weight: Tensor) -> Interval:
        centre, radius = (self.low + self.high) / 2, (self.high - self.low) / 2
        middle, spread = centre @ weight, radius @ weight.abs()
        return Interval(middle - spread, middle + spread)

    def plus(self, other: Interval) -> Interval:
        """Return the sum."""
        return Interval(self.low + other.low, self.high + other.high)

    def times(self, other: Interval) -> Interval:
        """Return the product."""
        ends = torch.stack([a * b for a in self for b in other])
        return Interval(ends.amin(0), ends.amax(0))

    def square(self) -> Interval:
        """Return the square."""
        low = torch.where((self.low <= 0) & (self.high >= 0), 0.0, torch.minimum(self.low**2, self.high**2))
        return Interval(low, self.magnitude() ** 2)


class Decision(NamedTuple):
    """Outcome of the search: "proved", "violated" (with points, along one column) or "unknown"."""

    status: str
    boxes: int
    points: Float[Tensor, "points columns"] | None = None
    values: tuple[float, ...] = ()


class _Unit(NamedTuple):
    """An activation on a box: value, σ', σ'' apart from kinks, and whether a kink may lie inside."""

    value: Interval
    slope: Interval
    second: Interval
    kink: Tensor


def check_supported(graph: Graph) -> None:
    """Raise TypeError, naming the layer, if a node has no interval rule.

    Examples
    --------
    >>> from torch import nn
    >>> from paperworks.comonet.graph import graph_of
    >>> check_supported(graph_of(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))))
    """
    for node in graph.nodes:
        known = isinstance(node, Input | Affine | Sum | Concat)
        if not known and not (isinstance(node, Activation) and node.name in _SUPPORTED):
            name = node.name if isinstance(node, Activation) else type(node).__name__
            raise TypeError(f"layer {name} is not supported by method='interval'; use method='structural' or audit")


def _peaked(a: Interval) -> tuple[Tensor, Tensor]:
    """Smallest and largest |a|: where an even function that falls in |a| is largest and smallest."""
    near = torch.where((a.low <= 0) & (a.high >= 0), 0.0, torch.minimum(a.low.abs(), a.high.abs()))
    return near, a.magnitude()


def _tanh_second(a: Interval) -> Interval:
    """Bounds of tanh'' = −2 tanh (1 − tanh²): endpoints and the two inflection points of tanh'."""
    ends = torch.stack([-2 * torch.tanh(end) / torch.cosh(end.clamp(-350, 350)) ** 2 for end in a])
    low = torch.where((a.low <= _TANH_INFLECTION) & (a.high >= _TANH_INFLECTION), -_TANH_SECOND, ends.amin(0))
    high = torch.where((a.low <= -_TANH_INFLECTION) & (a.high >= -_TANH_INFLECTION), _TANH_SECOND, ends.amax(0))
    return Interval(low, high)


def _unit(node: Activation, a: Interval, rigorous: bool) -> _Unit:
    """Evaluate an activation on boxes; a mirror −σ(−a) negates the argument, the value and σ''."""
    if node.mirrored:
        unit = _plain_unit(node.name, node.parameter, Interval(-a.high, -a.low))
        value, second = (Interval(-i.high, -i.low) for i in (unit.value, unit.second))
        unit = _Unit(value, unit.slope, second, unit.kink)
    else:
        unit = _plain_unit(node.name, node.parameter, a)
    if not rigorous or node.name in ("identity", "relu"):
        return unit
    # βa is itself rounded, and an exponential turns that into a relative error of |βa| units.
    relative = (16 + 2 * (node.parameter * a.magnitude()).clamp(max=1e4)) * UNIT
    value, slope, second = (i.padded(relative * i.magnitude()) for i in (unit.value, unit.slope, unit.second))
    # A slope is never negative, and a convex unit's σ'' keeps its sign: rounding must not take that away.
    slope = Interval(slope.low.clamp(min=0.0), slope.high)
    if ACTIVATIONS[node.name].convex:
        low, high = second
        second = Interval(low, high.clamp(max=0.0)) if node.mirrored else Interval(low.clamp(min=0.0), high)
    return _Unit(value, slope, second, unit.kink)


def _plain_unit(name: str, parameter: float, a: Interval) -> _Unit:
    function = ACTIVATIONS[name].function
    value = Interval(function(a.low, parameter), function(a.high, parameter))
    zero = torch.zeros_like(a.low)
    flat, inside = Interval(zero, zero), (a.low < 0) & (a.high > 0)
    if name in ("identity", "relu", "leaky_relu"):
        left = {"identity": 1.0, "relu": 0.0, "leaky_relu": parameter}[name]
        slope = Interval(torch.where(a.low >= 0, 1.0, left).to(zero), torch.where(a.high > 0, 1.0, left).to(zero))
        return _Unit(value, slope, flat, inside if left != 1.0 else torch.zeros_like(inside))
    if name == "elu":
        below = [parameter * torch.exp(end.clamp(max=0.0)) for end in a]
        slope = Interval(torch.where(a.low >= 0, 1.0, below[0]), torch.where(a.high > 0, 1.0, below[1]))
        second = Interval(torch.where(a.high > 0, 0.0, below[0]), torch.where(a.low >= 0, 0.0, below[1]))
        return _Unit(value, slope, second, inside if parameter < 1.0 else torch.zeros_like(inside))
    near, far = _peaked(a)
    none = torch.zeros_like(inside)
    if name == "softplus":
        slope = Interval(torch.sigmoid(parameter * a.low), torch.sigmoid(parameter * a.high))
        small, large = (parameter * torch.sigmoid(parameter * t) * torch.sigmoid(-parameter * t) for t in (far, near))
        return _Unit(value, slope, Interval(small, large), none)
    inner = 1.0 if name == "tanh" else 0.5  # sigmoid(a) = (1 + tanh(a/2)) / 2
    outer = 1.0 if name == "tanh" else 0.5
    small, large = (outer * inner / torch.cosh((inner * t).clamp(max=350)) ** 2 for t in (far, near))
    low, high = _tanh_second(Interval(inner * a.low, inner * a.high))
    factor = outer * inner**2
    return _Unit(value, Interval(small, large), Interval(factor * low, factor * high), none)


def _affine(blocks: Sequence[tuple[Interval, Tensor]], bias: Tensor | None, rigorous: bool) -> Interval:
    """Σ W·x + b over boxes; `rigorous` adds γ_n (|W||x| + |b|), a bound of every rounding error in it."""
    parts = [interval @ weight for interval, weight in blocks]
    low, high = (torch.stack([p[end] for p in parts]).sum(0) for end in (0, 1))
    total = Interval(low, high) if bias is None else Interval(low + bias, high + bias)
    if not rigorous:
        return total
    n = 2 * (sum(weight.shape[0] for _, weight in blocks) + len(blocks) + 4)  # two products, their sum, the halves
    size = torch.stack([interval.magnitude() @ weight.abs() for interval, weight in blocks]).sum(0)
    if bias is not None:
        size = size + bias.abs()
    return total.padded(n * UNIT / (1 - n * UNIT) * size * (1 + n * UNIT))


class _Pass:
    """One interval evaluation of a graph on a batch of boxes."""

    def __init__(self, graph: Graph, low: Tensor, high: Tensor, rigorous: bool) -> None:
        self.graph, self.rigorous = graph, rigorous
        self.box = Interval(low, high)
        self.values: list[Interval] = []
        self.units: dict[int, _Unit] = {}
        for i, node in enumerate(graph.nodes):
            if isinstance(node, Activation):
                self.units[i] = _unit(node, self.values[node.source], rigorous)
                self.values.append(self.units[i].value)
            else:
                self.values.append(self._linear(i, self.values, self.box, with_bias=True))

    def _linear(self, i: int, values: Sequence[Interval], box: Interval, *, with_bias: bool) -> Interval:
        match self.graph.nodes[i]:
            case Input(columns=columns):
                return Interval(box.low[:, list(columns)], box.high[:, list(columns)])
            case Affine(sources=sources, weights=weights, bias=bias):
                blocks = [(values[s], w.T) for s, w in zip(sources, weights, strict=True)]
                return _affine(blocks, bias if with_bias else None, self.rigorous)
            case Sum(sources=sources, size=size):
                return _affine([(values[s], torch.eye(size).to(box.low)) for s in sources], None, self.rigorous)
            case Concat(sources=sources):
                return Interval(*(torch.cat([values[s][end] for s in sources], dim=-1) for end in (0, 1)))
        raise TypeError(f"layer {type(self.graph.nodes[i]).__name__} is not supported by method='interval'")

    def _times(self, a: Interval, b: Interval) -> Interval:
        product = a.times(b)
        return product.padded(2 * UNIT * product.magnitude()) if self.rigorous else product

    def tangents(self, column: int) -> list[Interval]:
        """Bounds of ∂(node)/∂x_column."""
        one_hot = torch.zeros_like(self.box.low)
        one_hot[:, column] = 1.0
        seed, tangents = Interval(one_hot, one_hot), list[Interval]()
        for i, node in enumerate(self.graph.nodes):
            if isinstance(node, Activation):
                tangents.append(self._times(tangents[node.source], self.units[i].slope))
            else:
                tangents.append(self._linear(i, tangents, seed, with_bias=False))
        return tangents

    def adjoints(self) -> list[Interval]:
        """Bounds of ∂f/∂(node)."""
        nodes = self.graph.nodes
        zeros = [torch.zeros_like(value.low) for value in self.values]
        adjoints = [Interval(zero, zero) for zero in zeros]
        adjoints[-1] = Interval(zeros[-1] + 1.0, zeros[-1] + 1.0)
        for i in range(len(nodes) - 1, -1, -1):
            for source, part in self._pulled_back(i, adjoints[i]):
                total = adjoints[source].plus(part)
                adjoints[source] = total.padded(2 * UNIT * total.magnitude()) if self.rigorous else total
        return adjoints

    def _pulled_back(self, i: int, adjoint: Interval) -> list[tuple[int, Interval]]:
        match self.graph.nodes[i]:
            case Affine(sources=sources, weights=weights):
                return [
                    (s, _affine([(adjoint, w)], None, self.rigorous)) for s, w in zip(sources, weights, strict=True)
                ]
            case Activation(source=source):
                return [(source, self._times(adjoint, self.units[i].slope))]
            case Sum(sources=sources):
                return [(s, adjoint) for s in sources]
            case Concat(sources=sources):
                sizes = [self.graph.nodes[s].size for s in sources]
                lows, highs = torch.split(adjoint.low, sizes, -1), torch.split(adjoint.high, sizes, -1)
                return [(s, Interval(lo, hi)) for s, lo, hi in zip(sources, lows, highs, strict=True)]
        return []

    def monotone(self, column: int, sign: int) -> Tensor:
        """Which boxes have sign·∂f/∂x_column ≥ 0 throughout; forward and backward bounds both hold."""
        ends = [self.tangents(column)[-1]]
        pulled = self.adjoints()
        inputs = [
            Interval(pulled[i].low[:, [node.columns.index(column)]], pulled[i].high[:, [node.columns.index(column)]])
            for i, node in enumerate(self.graph.nodes)
            if isinstance(node, Input) and column in node.columns
        ]
        if len(inputs) == 1:
            ends.append(inputs[0])
        return torch.stack([(e.low >= 0) if sign > 0 else (e.high <= 0) for e in ends]).any(0)[:, 0]

    def curved(self, column: int, sign: int) -> Tensor:
        """Which boxes have sign·∂²f/∂x_column² ≥ 0 throughout, kinks included."""
        tangents, adjoints = self.tangents(column), self.adjoints()
        total = torch.zeros_like(self.box.low[:, 0])
        size, terms = torch.zeros_like(total), 0
        right = torch.ones_like(total, dtype=torch.bool)
        for i, unit in self.units.items():
            node = self.graph.nodes[i]
            assert isinstance(node, Activation)
            tangent, adjoint = tangents[node.source], adjoints[i]
            square = tangent.square()
            square = square.padded(2 * UNIT * square.high) if self.rigorous else square
            square = Interval(square.low.clamp(min=0.0), square.high)
            term = self._times(self._times(adjoint, unit.second), square)
            total += term.low.sum(-1) if sign > 0 else -term.high.sum(-1)
            size, terms = size + term.magnitude().sum(-1), terms + node.size
            wanted = -sign if node.mirrored else sign
            signed = adjoint.low >= 0 if wanted > 0 else adjoint.high <= 0
            right &= (~unit.kink | signed | (tangent.magnitude() == 0)).all(-1)
        if self.rigorous:
            total -= 2 * (terms + 1) * UNIT * size
        return right & (total >= 0)


def _point_values(graph: Graph, points: Tensor) -> Interval:
    """Return bounds of the exact value at each point, rounding included."""
    value = _Pass(graph, points, points, rigorous=True).values[-1]
    return Interval(value.low[:, 0], value.high[:, 0])


def _counterexample(
    graph: Graph, low: Tensor, high: Tensor, column: int, sign: int, order: int
) -> tuple[Tensor, tuple[float, ...]] | None:
    """Find points on a box's centre line whose exact values contradict the shape."""
    centre = (low + high) / 2
    lines = [centre.clone() for _ in range(3)]
    lines[0][:, column], lines[2][:, column] = low[:, column], high[:, column]
    values = [_point_values(graph, line) for line in lines]
    if order == 1:
        drop = values[0].low - values[2].high if sign > 0 else values[2].low - values[0].high
    else:
        first, mid, last = (line[:, column] for line in lines)
        weight = (last - mid) / (last - first)
        a, b, c = values if sign > 0 else [Interval(-v.high, -v.low) for v in values]
        rounding = 16 * UNIT * sum((v.magnitude() for v in values), torch.zeros_like(weight))
        drop = b.low - (weight * a.high + (1 - weight) * c.high) - rounding
    drop = torch.where(drop.isnan(), -math.inf, drop)  # overflow: no statement
    worst = int(drop.argmax())
    if not drop[worst] > 0:
        return None
    kept = (0, 2) if order == 1 else (0, 1, 2)
    points = torch.stack([lines[k][worst] for k in kept])
    return points, tuple(float((values[k].low + values[k].high)[worst] / 2) for k in kept)


def decide(
    graph: Graph,
    domain: Sequence[tuple[float, float]],
    column: int,
    *,
    order: int,
    sign: int,
    max_boxes: int = 50_000,
    rigorous: bool = False,
) -> Decision:
    """Decide whether sign·∂^order f/∂x_column^order ≥ 0 on a box, by branch and bound.

    Parameters
    ----------
    graph : Graph
        Only linear layers and the activations of `check_supported`.
    domain : sequence of (low, high)
        Finite, one pair a column.
    column : int
        The column.
    order : {1, 2}
        1 for monotone, 2 for curvature.
    sign : {-1, 1}
        1 for increasing or convex.
    max_boxes : int
        Boxes to bound before giving up.
    rigorous : bool
        Widen all bounds by their rounding errors. Counterexamples are always checked that way.

    Returns
    -------
    Decision
        "proved", "violated" with two or three points along the column, or "unknown".

    Examples
    --------
    >>> from torch import nn
    >>> from paperworks.comonet.graph import graph_of
    >>> line = nn.Linear(1, 1)
    >>> _ = nn.init.constant_(line.weight, -2.0)
    >>> decide(graph_of(line), [(0, 1)], 0, order=1, sign=1).status
    'violated'
    """
    lows, highs = (torch.tensor([[pair[end] for pair in domain]], dtype=torch.float64) for end in (0, 1))
    widths, boxes = (highs - lows)[0], 0
    while len(lows):
        take = min(len(lows), CHUNK, max_boxes - boxes)
        if take <= 0:
            return Decision("unknown", boxes)
        low, high, lows, highs = lows[:take], highs[:take], lows[take:], highs[take:]
        boxes += take
        found = _counterexample(graph, low, high, column, sign, order)
        if found is not None:
            return Decision("violated", boxes, *found)
        bounds = _Pass(graph, low, high, rigorous)
        fine = bounds.monotone(column, sign) if order == 1 else bounds.curved(column, sign)
        low, high = low[~fine], high[~fine]
        rows = torch.arange(len(low))
        edge = ((high - low) / widths).argmax(-1)
        middle = (low[rows, edge] + high[rows, edge]) / 2
        if bool(((middle <= low[rows, edge]) | (middle >= high[rows, edge])).any()):
            return Decision("unknown", boxes)  # a box of two neighbouring numbers cannot be halved
        left, right = high.clone(), low.clone()
        left[rows, edge], right[rows, edge] = middle, middle
        lows, highs = torch.cat([lows, low, right]), torch.cat([highs, left, high])
    return Decision("proved", boxes)
