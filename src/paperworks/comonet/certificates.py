"""Certificates: a proof or a counterexample of the declared shape of every column of a network.

Structural: five facts per unit and column (increasing, decreasing, convex, concave, depends) and one per unit
(nonnegative) are carried through the graph by rules that hold for all inputs:

    affine      W > 0 keeps a fact, W < 0 swaps increasing/decreasing and convex/concave, W = 0 has all of them
    activation  nondecreasing convex ∘ convex = convex, nondecreasing concave ∘ concave = concave
    group max   keeps increasing, decreasing, convex;  group min: increasing, decreasing, concave
    product     nonnegative factors: a column in one factor keeps its facts; shared, it stays increasing if increasing
                in all, convex if convex and increasing in all, nothing else

Interval: see `paperworks.comonet.intervals`. Sampled: see `paperworks.comonet.counterexamples`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import pandas as pd
import torch
from jaxtyping import Bool
from torch import Tensor, nn

from paperworks.comonet.counterexamples import counterexample
from paperworks.comonet.graph import (
    ACTIVATIONS,
    Activation,
    Affine,
    Basis,
    Concat,
    Graph,
    Group,
    Input,
    Node,
    Product,
    Sum,
    graph_of,
)
from paperworks.comonet.intervals import Decision, check_supported, decide
from paperworks.comonet.shapes import Shape, resolve_shapes
from paperworks.core.validation import check_choice, check_integer

__all__ = [
    "Certificate",
    "ColumnCertificate",
    "Facts",
    "Proved",
    "ShapeGuaranteeError",
    "Witness",
    "certify",
    "node_facts",
    "structural",
]

Domain = tuple[tuple[float, float], ...]


class ShapeGuaranteeError(RuntimeError):
    """A declared shape is not proved."""


class Facts(NamedTuple):
    """What is known of a node's entries, for all inputs in the domain."""

    increasing: Bool[Tensor, "entries columns"]
    decreasing: Bool[Tensor, "entries columns"]
    convex: Bool[Tensor, "entries columns"]
    concave: Bool[Tensor, "entries columns"]
    depends: Bool[Tensor, "entries columns"]
    nonnegative: Bool[Tensor, " entries"]


class Proved(NamedTuple):
    """What is proved of the output in one column; a column that does not matter has all four properties.

    Examples
    --------
    >>> Proved(True, False, True, True).shape()
    <Shape.INCREASING: 'increasing'>
    >>> Proved(True, False, True, True).satisfies(Shape.CONCAVE_INCREASING)
    True
    """

    increasing: bool
    decreasing: bool
    convex: bool
    concave: bool

    def satisfies(self, shape: Shape) -> bool:
        """Whether all that `shape` asks for is proved."""
        monotone = {1: self.increasing, -1: self.decreasing, 0: True}
        curved = {1: self.convex, -1: self.concave, 0: True}
        return monotone[shape.monotonicity] and curved[shape.curvature]

    def shape(self, required: Shape = Shape.FREE) -> Shape:
        """Return the strongest shape proved; where both directions are (straight, constant), the required one."""
        m = required.monotonicity if self.increasing and self.decreasing else self.increasing - self.decreasing
        c = required.curvature if self.convex and self.concave else self.convex - self.concave
        return Shape.of(m, c)


@dataclass(frozen=True)
class Witness:
    """Points that differ in one column only and contradict a shape.

    Attributes
    ----------
    broken : str
        "increasing", "decreasing", "convex" or "concave".
    points : tuple of rows
        Two points for a monotone shape; three, the second between the others, for a curved one.
    values : tuple of float
        The network's values there.
    """

    broken: str
    points: tuple[tuple[float, ...], ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class ColumnCertificate:
    """What is proved of one column.

    Attributes
    ----------
    index, name
        The column; without names the name is ``x0``, ``x1``, ...
    required, proved : Shape
        What was declared, and the strongest shape proved.
    status : str
        "proved", "violated" (see `witness`), "unknown" or "invalid" (weights that are not finite).
    method : str
        What decided it: "structural", "interval", "sampled" (a counterexample) or "none".
    domain : tuple of (low, high) or None
        Where it holds; None is all of R^d.
    witness : Witness or None
        The counterexample.
    boxes : int
        Boxes bounded by the interval method.
    scale : str
        The function it is about: "prediction", "log_prediction" or "decision_function".
    """

    index: int
    name: str
    required: Shape
    proved: Shape
    status: str
    method: str
    domain: Domain | None = None
    witness: Witness | None = None
    boxes: int = 0
    scale: str = "prediction"

    def __str__(self) -> str:
        text = f"{self.name}: required {_words(self.required)}, "
        if self.status == "invalid":
            return text + "INVALID: weights are not finite"
        where = "all of R^d" if self.domain is None else f"the domain ({_bounds(self.domain[self.index])} here)"
        if self.status == "proved":
            return f"{text}proved {_words(self.proved)} on {where} ({self.method})"
        if self.witness is not None:
            pairs = zip(self.witness.points, self.witness.values, strict=True)
            values = ", ".join(f"{point[self.index]:.6g} -> {value:.6g}" for point, value in pairs)
            return f"{text}VIOLATED: not {self.witness.broken}, {values}"
        return f"{text}UNKNOWN: proved only {_words(self.proved)} on {where}"


@dataclass(frozen=True)
class Certificate:
    """One `ColumnCertificate` a column; prints as a readable list.

    Examples
    --------
    >>> line = nn.Linear(1, 1)
    >>> _ = nn.init.constant_(line.weight, 2.0)
    >>> print(certify(line, "increasing"))
    Certificate of the prediction: proved
      x0: required increasing, proved increasing on all of R^d (structural)
    """

    columns: tuple[ColumnCertificate, ...]

    @property
    def ok(self) -> bool:
        """Whether every column's declared shape is proved."""
        return all(column.status == "proved" for column in self.columns)

    def raise_for_status(self) -> None:
        """Raise `ShapeGuaranteeError`, saying which columns, unless all is proved."""
        if not self.ok:
            raise ShapeGuaranteeError("; ".join(str(c) for c in self.columns if c.status != "proved"))

    def to_frame(self) -> pd.DataFrame:
        """Return one row a column: the fields of `ColumnCertificate` except `witness`."""
        rows = [{k: v for k, v in vars(column).items() if k != "witness"} for column in self.columns]
        return pd.DataFrame(rows).astype({"required": str, "proved": str})

    def to_json(self) -> str:
        """Return JSON; an infinite bound is null, as JSON has no infinity."""
        columns = []
        for column in self.columns:
            record = asdict(column)
            if column.domain is not None:
                record["domain"] = [[b if math.isfinite(b) else None for b in pair] for pair in column.domain]
            columns.append(record)
        return json.dumps({"ok": self.ok, "columns": columns}, allow_nan=False)

    def __str__(self) -> str:
        what = " and ".join(sorted({column.scale.replace("_", " ") for column in self.columns}))
        bad = sum(column.status != "proved" for column in self.columns)
        head = "proved" if self.ok else f"NOT proved in {bad} of {len(self.columns)} columns"
        return "\n".join([f"Certificate of the {what}: {head}", *(f"  {column}" for column in self.columns)])


def certify(
    model: Any,
    shapes: Any = None,
    *,
    domain: Any = None,
    method: str = "auto",
    max_boxes: int = 50_000,
    rigorous: bool = False,
    feature_names: Sequence[str] | None = None,
    scale: str = "prediction",
) -> Certificate:
    """Prove or refute the shape of every column of a network.

    Parameters
    ----------
    model : nn.Module or object with ``to_graph()``
        See `paperworks.comonet.graph.graph_of` for the modules that can be read. The weights of this instance are
        what is certified.
    shapes : None, str, sequence or mapping
        As in `resolve_shapes`; None takes ``model.shapes_`` or ``model.shapes``, and if there are none only reports
        what is proved.
    domain : sequence of (low, high) or mapping from column to (low, high), optional
        The box of interest; None in a pair is no limit. The default is the domain of a product model, else R^d.
    method : {"auto", "structural", "interval"}
        "auto" is structural, then interval for what is left if the domain is finite and the layers allow it, then a
        sampled search for a counterexample to what is still left.
    max_boxes : int
        Budget of the interval method, a column; when it is used up the column is "unknown".
    rigorous : bool
        Widen interval bounds by their rounding errors.
    feature_names : sequence of str, optional
        The columns' names; the default is ``model.feature_names_in_``, if there.
    scale : str
        What the model's output is, for the certificate's text.

    Returns
    -------
    Certificate

    Raises
    ------
    TypeError
        An unsupported layer, which is named.
    ValueError
        ``method="interval"`` without a finite domain, a wrong length, low not below high, a bad shape or argument.

    Notes
    -----
    The function certified is the network in exact arithmetic with the weights it has; what a float32 forward pass
    computes differs from it by rounding. Without `rigorous` the interval bounds are themselves rounded, so a slope that
    is wrong by less than about 1e-15 may pass; structural proofs and counterexamples have no such gap.

    Examples
    --------
    >>> net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> net.load_state_dict({"0.weight": torch.tensor([[1.0], [-1.0]]), "0.bias": torch.zeros(2),
    ...                      "2.weight": torch.ones(1, 2), "2.bias": torch.zeros(1)})
    <All keys matched successfully>
    >>> certify(net).columns[0].proved                       # |x|
    <Shape.CONVEX: 'convex'>
    >>> certify(net, "increasing", domain=[(-1, 2)]).columns[0].status
    'violated'
    >>> certify(net, "increasing", domain=[(0, 2)]).columns[0].status
    'proved'
    """
    check_choice(method, "method", ["auto", "structural", "interval"])
    max_boxes = check_integer(max_boxes, "max_boxes", low=1)
    graph = _graph(model)
    names = feature_names if feature_names is not None else getattr(model, "feature_names_in_", None)
    names = None if names is None else [str(name) for name in names]
    wanted = shapes if shapes is not None else getattr(model, "shapes_", getattr(model, "shapes", None))
    required = resolve_shapes(wanted, graph.n_columns, names)
    box = _domain(domain, graph.n_columns, names)
    labels = names or [f"x{j}" for j in range(graph.n_columns)]
    if method == "interval":
        check_supported(graph)
        if box is None or not _finite(box):
            raise ValueError(f"domain must have finite bounds for every column with method='interval', got {domain!r}")
    if not graph.is_finite():
        return Certificate(
            tuple(
                ColumnCertificate(j, labels[j], required[j], Shape.FREE, "invalid", "none", scale=scale)
                for j in range(graph.n_columns)
            )
        )
    everywhere, inside = _structural_facts(graph, box, method)
    limit = box if box is not None else graph.domain
    search = method != "structural" and box is not None and _finite(box) and _readable(graph)
    columns = []
    for j, shape in enumerate(required):
        column = _structural_column(j, labels[j], shape, everywhere[j], inside[j], limit, scale)
        if column.status == "unknown" and search:
            assert box is not None
            column = _searched(column, graph, box, inside[j], max_boxes, rigorous)
        if column.status == "unknown" and method == "auto":
            column = _sampled(column, graph, limit, inside[j])
        columns.append(column)
    return Certificate(tuple(columns))


def _graph(model: Any) -> Graph:
    if isinstance(model, nn.Module):
        return graph_of(model)
    if not hasattr(model, "to_graph"):
        raise TypeError(f"model must be a torch module or have to_graph(), got {type(model).__name__}")
    graph = model.to_graph()
    if not isinstance(graph, Graph):
        raise TypeError(f"model.to_graph() must return a Graph, got {type(graph).__name__}")
    return graph


def _domain(domain: Any, n: int, names: Sequence[str] | None) -> Domain | None:
    """Return one (low, high) a column, infinite where there is no limit."""
    if domain is None:
        return None
    pairs: list[Any] = [(None, None)] * n
    if isinstance(domain, Mapping):
        for key, pair in domain.items():
            known = names is not None and key in names
            if not known and (isinstance(key, str) or not 0 <= key < n):
                raise ValueError(f"domain has an unknown column {key!r}; known are {list(names or range(n))}")
            pairs[names.index(key) if names is not None and known else key] = pair
    else:
        pairs = list(domain) if isinstance(domain, Iterable) else [domain]
        if len(pairs) != n:
            raise ValueError(f"domain must have length {n}, one (low, high) a column, got {domain!r}")
    box = []
    for j, pair in enumerate(pairs):
        column = f"domain of column {names[j] if names else j}"
        try:
            low, high = (None, None) if pair is None else pair
            low, high = -math.inf if low is None else float(low), math.inf if high is None else float(high)
        except (TypeError, ValueError):
            raise ValueError(f"{column} must be two numbers (low, high), got {pair!r}") from None
        if not low < high:
            raise ValueError(f"{column} must have low < high, got ({low}, {high})")
        box.append((low, high))
    return tuple(box)


def _finite(box: Domain) -> bool:
    return all(math.isfinite(bound) for pair in box for bound in pair)


def _readable(graph: Graph) -> bool:
    try:
        check_supported(graph)
    except TypeError:
        return False
    return True


def _structural_facts(graph: Graph, box: Domain | None, method: str) -> tuple[list[Proved], list[Proved]]:
    """Return what is proved on R^d and on the box; nothing if only intervals are wanted."""
    if method == "interval":
        nothing = [Proved(False, False, False, False)] * graph.n_columns
        return nothing, nothing
    limit = box if box is not None else graph.domain
    everywhere = structural(graph)
    return everywhere, everywhere if limit is None else structural(graph, limit)


def _structural_column(
    j: int,
    name: str,
    required: Shape,
    everywhere: Proved,
    inside: Proved,
    limit: Domain | None,
    scale: str,
) -> ColumnCertificate:
    is_global = everywhere.satisfies(required) and (required != Shape.FREE or everywhere == inside)
    facts, domain = (everywhere, None) if is_global else (inside, limit)
    status = "proved" if facts.satisfies(required) else "unknown"
    used = "structural" if status == "proved" else "none"
    return ColumnCertificate(j, name, required, facts.shape(required), status, used, domain, scale=scale)


def _searched(
    column: ColumnCertificate, graph: Graph, box: Domain, known: Proved, max_boxes: int, rigorous: bool
) -> ColumnCertificate:
    """Decide by branch and bound whatever part of the required shape is not known yet."""
    proved, boxes, unknown = known, 0, False
    for order, sign, field in _open(column.required, known):
        budget = max_boxes - boxes
        found = Decision("unknown", 0)
        if budget > 0:
            found = decide(graph, box, column.index, order=order, sign=sign, max_boxes=budget, rigorous=rigorous)
        boxes += found.boxes
        if found.points is not None:
            points = tuple(tuple(row) for row in found.points.tolist())
            witness = Witness(field, points, found.values)
            return _with(column, proved, "violated", box, boxes, witness)
        if found.status == "proved":
            proved = proved._replace(**{field: True})
        unknown |= found.status == "unknown"
    return _with(column, proved, "unknown" if unknown else "proved", box, boxes, None)


def _sampled(column: ColumnCertificate, graph: Graph, limit: Domain | None, known: Proved) -> ColumnCertificate:
    """Look for a counterexample to whatever part of the required shape the structure leaves open."""
    for order, sign, field in _open(column.required, known):
        found = counterexample(graph, limit, column.index, order=order, sign=sign)
        if found is not None:
            witness = Witness(field, tuple(tuple(row) for row in found[0].tolist()), found[1])
            return replace(column, status="violated", method="sampled", domain=limit, witness=witness)
    return column


def _open(required: Shape, known: Proved) -> list[tuple[int, int, str]]:
    """Return what `required` asks for and is not known: order of the derivative, its sign, the property's name."""
    parts = [(1, required.monotonicity, Shape.of(required.monotonicity, 0))]
    parts.append((2, required.curvature, Shape.of(0, required.curvature)))
    return [(order, sign, shape.value) for order, sign, shape in parts if not known.satisfies(shape)]


def _with(
    column: ColumnCertificate, proved: Proved, status: str, box: Domain, boxes: int, witness: Witness | None
) -> ColumnCertificate:
    shape = proved.shape(column.required)
    return ColumnCertificate(
        column.index, column.name, column.required, shape, status, "interval", box, witness, boxes, column.scale
    )


def structural(graph: Graph, domain: Sequence[tuple[float, float]] | None = None) -> list[Proved]:
    """Return what the signs of the weights prove of the output, one entry a column.

    Parameters
    ----------
    graph : Graph
        With finite weights.
    domain : sequence of (low, high), optional
        Where the inputs lie; only products need it. The default is R^d.

    Examples
    --------
    >>> structural(graph_of(nn.Linear(1, 1)))[0].convex
    True
    """
    facts = node_facts(graph, domain)[-1]
    return [Proved(*(bool(flag[0, j]) for flag in facts[:4])) for j in range(graph.n_columns)]


def node_facts(graph: Graph, domain: Sequence[tuple[float, float]] | None = None) -> list[Facts]:
    """Return the facts of every node, in the order of the graph; the arguments are those of `structural`.

    Examples
    --------
    >>> [facts.depends.tolist() for facts in node_facts(graph_of(nn.Linear(2, 1)))]
    [[[True, False], [False, True]], [[True, True]]]
    """
    box = [(-math.inf, math.inf)] * graph.n_columns if domain is None else list(domain)
    facts: list[Facts] = []
    bounds: dict[int, tuple[float, float]] = {}
    for i, node in enumerate(graph.nodes):
        if isinstance(node, Input) and node.size == 1:
            bounds[i] = box[node.columns[0]]
        elif isinstance(node, Affine) and node.size == 1 and set(node.sources) <= bounds.keys():
            bounds[i] = _affine_bounds(node, [bounds[s] for s in node.sources])
        found = _rule(node, facts, box, bounds)
        free = ~found.depends
        inc, dec, cvx, ccv = (flag | free for flag in found[:4])
        facts.append(Facts(inc, dec, cvx, ccv, found.depends, found.nonnegative))
    return facts


def _affine_bounds(node: Affine, bounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    low = high = float(node.bias[0])
    for weight, pair in zip(node.weights, bounds, strict=True):
        w = float(weight[0, 0])
        ends = sorted(w * end for end in pair) if w else [0.0, 0.0]
        low, high = low + ends[0], high + ends[1]
    return low, high


def _rule(
    node: Node, facts: Sequence[Facts], box: Sequence[tuple[float, float]], bounds: Mapping[int, tuple[float, float]]
) -> Facts:
    match node:
        case Input(columns=columns):
            depends = torch.zeros(node.size, len(box), dtype=torch.bool)
            depends[range(node.size), list(columns)] = True
            nonnegative = torch.tensor([box[j][0] >= 0 for j in columns])
            true = torch.ones_like(depends)
            return Facts(true, ~depends, true, true, depends, nonnegative)
        case Affine():
            return _affine_rule(node, [facts[s] for s in node.sources])
        case Activation():
            return _activation_rule(node, facts[node.source])
        case Group():
            return _group_rule(node, facts[node.source])
        case Basis():
            return _basis_rule(node, facts[node.source], bounds.get(node.source, (-math.inf, math.inf)))
        case Product():
            return _product_rule([facts[s] for s in node.sources])
        case Sum():
            sources = [facts[s] for s in node.sources]
            every = Facts._make(torch.stack(flags).all(0) for flags in zip(*sources, strict=True))
            return every._replace(depends=torch.stack([f.depends for f in sources]).any(0))
        case Concat():
            return Facts._make(torch.cat(flags) for flags in zip(*(facts[s] for s in node.sources), strict=True))


def _affine_rule(node: Affine, sources: Sequence[Facts]) -> Facts:
    weight = torch.cat(node.weights, dim=1)
    up, down = (weight > 0).double(), (weight < 0).double()
    stacked = Facts._make(torch.cat(flags) for flags in zip(*sources, strict=True))

    def kept(same: Tensor, swapped: Tensor) -> Tensor:
        broken: Tensor = up @ (~same).double() + down @ (~swapped).double()
        return broken == 0

    increasing = kept(stacked.increasing, stacked.decreasing)
    decreasing = kept(stacked.decreasing, stacked.increasing)
    convex, concave = kept(stacked.convex, stacked.concave), kept(stacked.concave, stacked.convex)
    depends = ((up + down) @ stacked.depends.double()) > 0
    nonnegative = (node.bias >= 0) & (down.sum(1) == 0) & (up @ (~stacked.nonnegative).double() == 0)
    return Facts(increasing, decreasing, convex, concave, depends, nonnegative)


def _activation_rule(node: Activation, source: Facts) -> Facts:
    kind = ACTIVATIONS[node.name]
    convex, concave = (kind.concave, kind.convex) if node.mirrored else (kind.convex, kind.concave)
    nonnegative = torch.zeros_like(source.nonnegative)
    if not node.mirrored:
        nonnegative = source.nonnegative | kind.nonnegative  # the others are zero at zero, and nondecreasing
    return Facts(
        source.increasing,
        source.decreasing,
        source.convex & convex,
        source.concave & concave,
        source.depends,
        nonnegative,
    )


def _group_rule(node: Group, source: Facts) -> Facts:
    def grouped(flag: Tensor, reduction: Callable[[Tensor, int], Tensor]) -> Tensor:
        return reduction(flag.reshape(node.size, node.pieces, *flag.shape[1:]), 1)

    increasing, decreasing, convex, concave = (grouped(flag, torch.all) for flag in source[:4])
    if node.pieces > 1:
        is_convex = node.kind in ("max", "lse")
        convex, concave = convex & is_convex, concave & (not is_convex)
    nonnegative = grouped(source.nonnegative, torch.any if node.kind == "max" else torch.all)
    return Facts(increasing, decreasing, convex, concave, grouped(source.depends, torch.any), nonnegative)


def _basis_rule(node: Basis, source: Facts, bounds: tuple[float, float]) -> Facts:
    m, c = node.shape.monotonicity, node.shape.curvature
    # Every function is within [0, 1] on [low, high]. Outside, only a concave one falls below 0. The slack admits bounds
    # that went through a rescaling.
    slack = 1e-12 * (node.high - node.low)
    above, below = bounds[0] >= node.low - slack, bounds[1] <= node.high + slack
    positive = {0: above and below, 1: above, -1: below}[m] if c < 0 else True
    same, swapped = source.increasing, source.decreasing
    straight = source.convex & source.concave
    rising = (same if m >= 0 else swapped, swapped if m >= 0 else same)
    nothing = torch.zeros_like(same)
    convex = (straight | (source.convex if m > 0 else source.concave if m < 0 else straight)) if c > 0 else nothing
    concave = (straight | (source.concave if m > 0 else source.convex if m < 0 else straight)) if c < 0 else nothing
    flags = (*(rising if m else (nothing, nothing)), convex, concave, source.depends)
    inc, dec, cvx, ccv, depends = (flag.expand(node.size, -1) for flag in flags)
    return Facts(inc, dec, cvx, ccv, depends, torch.full((node.size,), positive))


def _product_rule(factors: Sequence[Facts]) -> Facts:
    depends = torch.stack([f.depends for f in factors])
    nonnegative = torch.stack([f.nonnegative for f in factors]).unsqueeze(-1)
    shared = depends.sum(0) > 1
    # Alone, a factor keeps its facts if the factors that scale it are nonnegative; shared, all must be.
    scaled = (nonnegative | (depends & ~shared)).all(0)
    increasing, decreasing, convex, concave = (torch.stack([f[k] for f in factors]) for k in range(4))
    together = (convex & increasing).all(0) | (convex & decreasing).all(0)
    return Facts(
        increasing.all(0) & scaled,
        decreasing.all(0) & scaled,
        torch.where(shared, together, convex.all(0)) & scaled,
        concave.all(0) & ~shared & scaled,
        depends.any(0),
        nonnegative[..., 0].all(0),
    )


def _words(shape: Shape) -> str:
    return shape.value.replace("_", " ")


def _bounds(pair: tuple[float, float]) -> str:
    return f"[{pair[0]:.6g}, {pair[1]:.6g}]"
