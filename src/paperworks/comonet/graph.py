"""The graph a certifier reads: a network as a short list of operations whose effect on shapes is known.

A module describes itself in a few lines and the certifier never looks at its code, only at the effective
weights it hands over::

    def to_graph(self) -> Graph:
        b = GraphBuilder(n_columns=3)
        free = b.affine([(b.input([0]), scale[[0]].diag())], shift[[0]])        # u = s (x - mu) / sigma
        mono = b.affine([(b.input([1, 2]), scale[1:].diag())], shift[1:])
        relu = b.activation(b.affine([(free, self.A_r)], self.b_r), "relu")
        pre = b.affine([(mono, self.P_e), (relu, self.A_er)], self.b_e)         # sum of blocks, then the bias
        half = b.group(pre, "max", pieces=4)                                    # consecutive entries form a group
        out = b.affine([(half, self.P_o), (free, self.A_o)], self.b_o)          # one output
        return b.build(out)

A product bank adds ``b.basis(b.input([j]), shape, low, high, knots)``, ``b.affine`` with nonnegative weights on it,
``b.product([...])`` over the columns and a ``domain`` in ``build``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, fx, nn

from paperworks.comonet.shapes import Shape

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "Affine",
    "Basis",
    "Concat",
    "Graph",
    "GraphBuilder",
    "Group",
    "Input",
    "Node",
    "Product",
    "Sum",
    "graph_of",
]


class Kind(NamedTuple):
    """What is known of a scalar nondecreasing function: value, curvature and sign."""

    function: Callable[[Tensor, float], Tensor]
    convex: bool
    concave: bool
    nonnegative: bool


def _relu_n(a: Tensor, _: float) -> Tensor:
    return 0.99 * a.clamp(0.0, 1.0) + 0.01 * a


def _softplus(a: Tensor, beta: float) -> Tensor:
    return torch.logaddexp(torch.zeros_like(a), beta * a) / beta


#: Every activation is nondecreasing for an admitted parameter (slope, beta or alpha).
ACTIVATIONS: dict[str, Kind] = {
    "identity": Kind(lambda a, _: a, True, True, False),
    "relu": Kind(lambda a, _: a.clamp(min=0.0), True, False, True),
    "leaky_relu": Kind(lambda a, s: torch.where(a > 0, a, s * a), True, False, False),  # slope in [0, 1]
    "softplus": Kind(_softplus, True, False, True),  # beta > 0
    "elu": Kind(lambda a, s: torch.where(a > 0, a, s * torch.expm1(a.clamp(max=0.0))), True, False, False),  # [0, 1]
    "tanh": Kind(lambda a, _: torch.tanh(a), False, False, False),
    "sigmoid": Kind(lambda a, _: torch.sigmoid(a), False, False, True),
    "relu_n": Kind(_relu_n, False, False, False),
}


@dataclass(frozen=True, eq=False)
class Input:
    """The raw columns `columns` of a row."""

    columns: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of entries."""
        return len(self.columns)


@dataclass(frozen=True, eq=False)
class Affine:
    """Σ W_i·source_i + bias; `weights[i]` is (size, size of source i)."""

    sources: tuple[int, ...]
    weights: tuple[Float[Tensor, "out _"], ...]
    bias: Float[Tensor, " out"]

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.bias.shape[0]


@dataclass(frozen=True, eq=False)
class Activation:
    """σ of every entry, or its mirror −σ(−a), which swaps convex and concave; see `ACTIVATIONS`."""

    source: int
    name: str
    size: int
    parameter: float = 1.0
    mirrored: bool = False


@dataclass(frozen=True, eq=False)
class Group:
    """Maximum, minimum, or ±τ·logsumexp(±a/τ) ∓ τ·log(pieces) of each `pieces` consecutive entries."""

    source: int
    kind: str  # "max", "min", "lse" (convex) or "mirrored_lse" (concave)
    pieces: int
    size: int
    temperature: float = 1.0


@dataclass(frozen=True, eq=False)
class Basis:
    """The fixed univariate functions of ``products.shape_basis``: all of one shape and in [0, 1] on [low, high]."""

    source: int
    shape: Shape
    low: float
    high: float
    knots: Float[Tensor, " knots"]
    size: int


@dataclass(frozen=True, eq=False)
class Product:
    """Entry-wise product of sources of one size."""

    sources: tuple[int, ...]
    size: int


@dataclass(frozen=True, eq=False)
class Sum:
    """Entry-wise sum of sources of one size."""

    sources: tuple[int, ...]
    size: int


@dataclass(frozen=True, eq=False)
class Concat:
    """Sources side by side."""

    sources: tuple[int, ...]
    size: int


Node: TypeAlias = Input | Affine | Activation | Group | Basis | Product | Sum | Concat


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in topological order; a source is an index of an earlier node, the last node is the one-entry output.

    Attributes
    ----------
    nodes : tuple of Node
        Tensors are detached float64 on the CPU.
    n_columns : int
        Columns of a row.
    domain : tuple of (low, high) or None
        The box on which a product's guarantee holds, one pair a column, infinite where there is no limit.
    """

    nodes: tuple[Node, ...]
    n_columns: int
    domain: tuple[tuple[float, float], ...] | None = None

    def evaluate(self, x: Float[Tensor, "rows columns"]) -> Float[Tensor, " rows"]:
        """Return the output in float64, to compare with the network the graph stands for.

        Examples
        --------
        >>> b = GraphBuilder(n_columns=2)
        >>> graph = b.build(b.group(b.input([0, 1]), "max", pieces=2))
        >>> graph.evaluate(torch.tensor([[1.0, 3.0]]))
        tensor([3.], dtype=torch.float64)
        """
        return self.values(x)[-1][:, 0]

    def values(self, x: Float[Tensor, "rows columns"]) -> list[Float[Tensor, "rows entries"]]:
        """Return the entries of every node in float64."""
        values: list[Tensor] = []
        for node in self.nodes:
            values.append(_value(node, values, x.detach().to("cpu", torch.float64)))
        return values

    def is_finite(self) -> bool:
        """Whether all weights, biases, knots and parameters are finite."""
        for node in self.nodes:
            if isinstance(node, Affine) and not all(bool(t.isfinite().all()) for t in (*node.weights, node.bias)):
                return False
            if isinstance(node, Basis):
                edges = torch.tensor([node.low, *node.knots.tolist(), node.high], dtype=torch.float64)
                if not bool(edges.isfinite().all() and (edges.diff() > 0).all()):
                    return False
        return True


def _value(node: Node, values: Sequence[Tensor], x: Tensor) -> Tensor:
    match node:
        case Input():
            return x[:, list(node.columns)]
        case Affine():
            parts = [values[s] @ w.T for s, w in zip(node.sources, node.weights, strict=True)]
            return torch.stack(parts).sum(0) + node.bias
        case Activation():
            sign = -1.0 if node.mirrored else 1.0
            return sign * ACTIVATIONS[node.name].function(sign * values[node.source], node.parameter)
        case Group():
            groups = values[node.source].reshape(len(x), node.size, node.pieces)
            if node.kind in ("max", "min"):
                return groups.amax(-1) if node.kind == "max" else groups.amin(-1)
            scale = node.temperature * (1.0 if node.kind == "lse" else -1.0)
            soft: Tensor = scale * (torch.logsumexp(groups / scale, -1) - math.log(node.pieces))
            return soft
        case Basis():
            from paperworks.comonet.products import shape_basis

            return shape_basis(values[node.source][:, 0], node.low, node.high, node.knots, node.shape)
        case Product():
            return torch.stack([values[s] for s in node.sources]).prod(0)
        case Sum():
            return torch.stack([values[s] for s in node.sources]).sum(0)
        case Concat():
            return torch.cat([values[s] for s in node.sources], dim=-1)


@dataclass
class GraphBuilder:
    """Builds a `Graph`; every method appends a node and returns its index.

    Parameters
    ----------
    n_columns : int
        Columns of a row.

    Examples
    --------
    The function x0 + relu(-x1):

    >>> b = GraphBuilder(n_columns=2)
    >>> relu = b.activation(b.affine([(b.input([1]), -torch.eye(1))]), "relu")
    >>> graph = b.build(b.affine([(b.input([0]), torch.eye(1)), (relu, torch.eye(1))]))
    >>> graph.evaluate(torch.tensor([[1.0, -2.0], [1.0, 2.0]]))
    tensor([3., 1.], dtype=torch.float64)
    """

    n_columns: int
    nodes: list[Node] = field(default_factory=list)

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def size(self, node: int) -> int:
        """Return the number of entries of a node."""
        return self.nodes[node].size

    def input(self, columns: Sequence[int]) -> int:
        """Raw columns, by position."""
        if not all(0 <= c < self.n_columns for c in columns):
            raise ValueError(f"columns must be in [0, {self.n_columns}), got {list(columns)}")
        return self._add(Input(tuple(int(c) for c in columns)))

    def affine(self, blocks: Sequence[tuple[int, Tensor]], bias: Tensor | None = None) -> int:
        """Σ W·source + bias over (source, W) pairs, W of shape (out, size of source)."""
        sources = tuple(source for source, _ in blocks)
        weights = tuple(_frozen(w) for _, w in blocks)
        rows = weights[0].shape[0]
        for source, w in zip(sources, weights, strict=True):
            if w.shape != (rows, self.size(source)):
                raise ValueError(f"weight must have shape {(rows, self.size(source))}, got {tuple(w.shape)}")
        return self._add(
            Affine(sources, weights, torch.zeros(rows, dtype=torch.float64) if bias is None else _frozen(bias))
        )

    def activation(self, source: int, name: str, *, parameter: float = 1.0, mirrored: bool = False) -> int:
        """σ(a), or −σ(−a) if `mirrored`; `parameter` is leaky_relu's slope, softplus' beta or elu's alpha."""
        if name not in ACTIVATIONS:
            raise TypeError(f"activation {name!r} is not supported; known are {', '.join(ACTIVATIONS)}")
        in_range = parameter > 0 if name == "softplus" else 0 <= parameter <= 1
        if name in ("softplus", "leaky_relu", "elu") and not (in_range and math.isfinite(parameter)):
            raise TypeError(f"activation {name!r} with parameter {parameter!r} is not convex and nondecreasing")
        return self._add(Activation(source, name, self.size(source), float(parameter), mirrored))

    def group(self, source: int, kind: str, *, pieces: int, temperature: float = 1.0) -> int:
        """Group maximum (kind "max"), "min", "lse" or "mirrored_lse" over ``a.unflatten(-1, (-1, pieces))``."""
        if kind not in ("max", "min", "lse", "mirrored_lse"):
            raise ValueError(f"kind must be one of 'max', 'min', 'lse', 'mirrored_lse', got {kind!r}")
        groups, rest = divmod(self.size(source), pieces)
        if rest:
            raise ValueError(f"pieces must divide {self.size(source)}, got {pieces}")
        return self._add(Group(source, kind, pieces, groups, float(temperature)))

    def basis(self, source: int, shape: Shape, low: float, high: float, knots: Tensor, *, size: int) -> int:
        """`size` functions of `shape` of a one-entry source, nonnegative on [low, high] (see `Basis`)."""
        if self.size(source) != 1:
            raise ValueError(f"source of a basis must have one entry, got {self.size(source)}")
        return self._add(Basis(source, Shape(shape), float(low), float(high), _frozen(knots), size))

    def product(self, sources: Sequence[int]) -> int:
        """Entry-wise product."""
        return self._add(Product(tuple(sources), self._common_size(sources)))

    def sum(self, sources: Sequence[int]) -> int:
        """Entry-wise sum."""
        return self._add(Sum(tuple(sources), self._common_size(sources)))

    def concat(self, sources: Sequence[int]) -> int:
        """Sources side by side."""
        return self._add(Concat(tuple(sources), sum(self.size(s) for s in sources)))

    def _common_size(self, sources: Sequence[int]) -> int:
        sizes = {self.size(s) for s in sources}
        if len(sizes) != 1:
            raise ValueError(f"sources must have one size, got {sorted(sizes)}")
        return sizes.pop()

    def build(self, output: int, domain: Sequence[tuple[float, float]] | None = None) -> Graph:
        """Return the graph up to `output`, which has one entry."""
        if self.size(output) != 1:
            raise ValueError(f"output must have one entry, got {self.size(output)}")
        box = None if domain is None else tuple((float(low), float(high)) for low, high in domain)
        if box is not None and len(box) != self.n_columns:
            raise ValueError(f"domain must have length {self.n_columns}, got {len(box)}")
        return Graph(tuple(self.nodes[: output + 1]), self.n_columns, box)


def _frozen(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", torch.float64).clone()


_MODULES: dict[type[nn.Module], tuple[str, str | None]] = {
    nn.Identity: ("identity", None),
    nn.ReLU: ("relu", None),
    nn.LeakyReLU: ("leaky_relu", "negative_slope"),
    nn.Softplus: ("softplus", "beta"),
    nn.ELU: ("elu", "alpha"),
    nn.Tanh: ("tanh", None),
    nn.Sigmoid: ("sigmoid", None),
}
_FUNCTIONS: dict[Any, str] = {
    torch.relu: "relu",
    F.relu: "relu",
    torch.tanh: "tanh",
    F.tanh: "tanh",
    torch.sigmoid: "sigmoid",
    F.sigmoid: "sigmoid",
}


def graph_of(module: nn.Module) -> Graph:
    """Return the graph of a module that has ``to_graph()`` or consists of linear layers and known activations.

    Parameters
    ----------
    module : nn.Module
        Any module that ``torch.fx`` traces into Linear, ReLU, LeakyReLU, Softplus, Tanh, Sigmoid, ELU (alpha ≤ 1),
        Identity, sums and a final squeeze, from one tensor (rows, columns) to one number a row. Softplus is taken as
        the exact function (torch replaces it by the identity from ``threshold`` on, 2e-9 away at the default).

    Raises
    ------
    TypeError
        A layer outside the list, which is named, or a forward that cannot be traced.
    ValueError
        More than one output.

    Examples
    --------
    >>> graph_of(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))).n_columns
    2
    >>> graph_of(nn.Sequential(nn.Linear(2, 1), nn.GELU()))
    Traceback (most recent call last):
    ...
    TypeError: layer '1' (GELU) is not supported...
    """
    for path, part in module.named_modules():
        where = f"layer {path!r} ({type(part).__name__})" if path else type(part).__name__
        if part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part):
            raise TypeError(f"{where} has forward hooks or a forward of its own instance, which are not supported")
    own = getattr(module, "to_graph", None)
    if own is not None:
        stated: Graph = own()
        return stated
    graph = _traced_graph(module)
    if graph.is_finite():
        _compare(module, graph)
    return graph


def _compare(module: nn.Module, graph: Graph) -> None:
    """Raise if the module computes something else than its layers say, as with activations in place of another's input."""
    like = next(module.parameters())
    if not like.is_floating_point() or like.is_meta:
        raise TypeError(f"parameters must be real numbers, got {like.dtype} on {like.device}")
    generator = torch.Generator().manual_seed(0)
    rows = 2 * torch.randn((16, graph.n_columns), generator=generator, dtype=torch.float64).to(like.dtype)
    with torch.no_grad():
        outputs = module(rows.to(like.device)).reshape(-1).to("cpu", torch.float64)
    entries = graph.values(rows)
    size = max(float(entry.abs().max()) for entry in entries)
    gap = float((outputs - entries[-1][:, 0]).abs().max())
    if gap > math.sqrt(torch.finfo(like.dtype).eps) * size:
        raise TypeError(
            f"{type(module).__name__} computes something else than its layers say, by {gap:.3g}: does an activation work "
            "in place on what another layer reads, or is there a hook for all modules?"
        )


def _traced_graph(module: nn.Module) -> Graph:
    try:
        traced = fx.symbolic_trace(module if _is_container(module) else nn.Sequential(module))
    except Exception as error:  # fx raises whatever the traced code does with a proxy
        raise TypeError(f"{type(module).__name__} cannot be traced into layers: {error}") from error
    first = next((m for m in module.modules() if isinstance(m, nn.Linear)), None)
    if first is None:
        raise TypeError(f"{type(module).__name__} has no linear layer")
    builder, index = GraphBuilder(first.in_features), dict[fx.Node, int]()
    for node in traced.graph.nodes:
        if node.op == "output":
            return builder.build(_index(index, node.args[0]))
        index[node] = _append(builder, index, traced, node)
    raise TypeError(f"{type(module).__name__} has no output")  # pragma: no cover


def _is_container(module: nn.Module) -> bool:
    return not type(module).__module__.startswith("torch.nn") or isinstance(module, nn.Sequential)


def _index(index: dict[fx.Node, int], argument: Any) -> int:
    if not isinstance(argument, fx.Node):
        raise TypeError(f"argument {argument!r} of a layer is not supported: only results of other layers are")
    return index[argument]


def _append(builder: GraphBuilder, index: dict[fx.Node, int], traced: fx.GraphModule, node: fx.Node) -> int:
    source = next(iter((*node.args, *node.kwargs.values())), None)
    if node.op == "placeholder":
        if index:
            raise TypeError(f"input {node.target!r} is not supported: the module must take one tensor")
        return builder.input(range(builder.n_columns))
    if node.op == "call_module":
        return _append_module(builder, _index(index, source), str(node.target), traced)
    if node.op == "call_function" and node.target in _FUNCTIONS:
        return builder.activation(_index(index, source), _FUNCTIONS[node.target])
    if node.target in (operator.add, torch.add) and not node.kwargs:
        return builder.sum([_index(index, a) for a in node.args])
    rest = (*node.args[1:], *node.kwargs.values())
    squeezed = node.target in ("squeeze", torch.squeeze) and rest in ((), (-1,), (1,))
    first = node.target is operator.getitem and rest in (((slice(None), 0),), ((..., 0),))
    if (squeezed or first) and builder.size(_index(index, source)) == 1:
        return _index(index, source)
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", node.target)
    raise TypeError(f"operation {name!r} is not supported by the certifier")


def _append_module(builder: GraphBuilder, source: int, path: str, traced: fx.GraphModule) -> int:
    layer = traced.get_submodule(path)
    if isinstance(layer, nn.Linear):
        return builder.affine([(source, layer.weight)], layer.bias)
    for kind, (name, parameter) in _MODULES.items():
        if type(layer) is kind:
            try:
                return builder.activation(source, name, parameter=getattr(layer, parameter) if parameter else 1.0)
            except TypeError as error:
                raise TypeError(f"layer {path!r} ({type(layer).__name__}) is not supported: {error}") from None
    raise TypeError(
        f"layer {path!r} ({type(layer).__name__}) is not supported by the certifier; it reads Linear, "
        f"{', '.join(kind.__name__ for kind in _MODULES)} and modules with to_graph()"
    )
