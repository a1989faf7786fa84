"""The network: one stream of units a kind of shape, wired so that every column keeps its shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from paperworks.comonet.graph import Graph, GraphBuilder
from paperworks.comonet.products import ProductBank
from paperworks.comonet.shapes import Shape
from paperworks.comonet.units import (
    ROUTING,
    STANDARD,
    Moments,
    PositiveLinear,
    Units,
    convex_units,
    monotone_units,
    positive_map,
)
from paperworks.core.validation import check_choice, check_integer, check_vector

__all__ = ["INTERACTIONS", "COMONet"]

INTERACTIONS = ("additive", "product", "both")
"""What is added up: the streams, the product banks, or both."""

_GROUPS = tuple(shape for shape in Shape if shape.monotonicity >= 0)
# A stream exists only if one of these groups of columns does.
_STREAMS = {
    "r": (Shape.FREE,),
    "e": (Shape.INCREASING,),
    "z": (Shape.CONVEX, Shape.CONVEX_INCREASING),
    "k": (Shape.CONCAVE, Shape.CONCAVE_INCREASING),
}
# These columns enter the streams once, as the first layer's units; the curved ones enter every layer.
_START = (Shape.FREE, Shape.INCREASING)


class _Source(NamedTuple):
    """What feeds a layer: number of values, and their moments at initialisation."""

    size: int
    moments: Moments = STANDARD


class _Layer(nn.Module):
    """One stream's next units, or the output: one product with the concatenated sources that `ROUTING` admits."""

    def __init__(
        self, target: str, sources: dict[str, _Source], units: Units | None, positivity: str, **options: Any
    ) -> None:
        super().__init__()
        positive, signed = ([s for s in sources if ROUTING[s, target] == sign] for sign in ("+", "±"))
        self.sources, self.units = (*positive, *signed), units
        self.linear = PositiveLinear(
            [sources[s].size for s in positive],
            [sources[s].size for s in signed],
            1 if units is None else sum(units.sizes),
            positivity=positivity,
            moments=[sources[s].moments for s in self.sources],
            bias_std=0.0 if units is None else 0.5,
            **options,
        )

    def forward(self, state: dict[str, Tensor]) -> Tensor:
        if self.units is None:  # One row: adding up products is faster than putting the sources side by side.
            blocks = torch.split(self.linear.weight, [*self.linear.positive, *self.linear.signed], dim=1)
            a = self.linear.bias[:, None]
            for source, weight in zip(self.sources, blocks, strict=True):
                a = torch.addmm(a, weight, state[source])
            return a
        return self.units(self.linear.matrix @ torch.cat([state[source] for source in (*self.sources, "one")]), dim=-2)

    def to_graph(self, builder: GraphBuilder, state: dict[str, int]) -> int:
        """Append the layer; its node is returned."""
        blocks = torch.split(self.linear.weight, [*self.linear.positive, *self.linear.signed], dim=1)
        if self.units is None:
            return builder.affine([(state[s], w) for s, w in zip(self.sources, blocks, strict=True)], self.linear.bias)
        nodes, start = [], 0
        for part, size in zip(self.units.parts, self.units.sizes, strict=True):
            rows, start = slice(start, start + size), start + size
            if size:
                pairs = [(state[s], w[rows]) for s, w in zip(self.sources, blocks, strict=True)]
                a = builder.affine(pairs, self.linear.bias[rows])
                nodes.append(part.to_graph(builder, a, self.units.pieces))
        return nodes[0] if len(nodes) == 1 else builder.concat(nodes)


class COMONet(nn.Module):
    r"""A network with a guaranteed shape in every column, for all parameter values and all values of other columns.

    A column x is standardised and, if it is to decrease, reflected: u = ±(x - center)/scale. That leaves six groups:
    F free, M increasing, V convex, V↑ convex increasing, C concave, C↑ concave increasing. Four streams of units,
    r⁰ = u_F, e⁰ = u_M, z⁰ = k⁰ = ∅, are built layer by layer from the layer before,

    .. math::
        r' &= \mathrm{relu}(A_{rr} r + b) \\
        e' &= ψ(P_{ee} e + A_{er} r + b) \\
        z' &= χ(P_{zz} z + P_{z↑} u_{V↑} + P_{ze} e + A_{zV} u_V + A_{zr} r + b) \\
        k' &= \hat χ(P_{kk} k + P_{k↑} u_{C↑} + P_{ke} e + A_{kC} u_C + A_{kr} r + b) \\
        g  &= P_o [z, k, e, u_M, u_{V↑}, u_{C↑}] + A_o [r, u_F, u_V, u_C] + b_o

    with P = π(Θ) ≥ 0, A of any sign, χ convex and nondecreasing, χ̂(a) = -χ(-a) and ψ nondecreasing. By induction over
    the layers r depends on u_F only; e is nondecreasing in u_M; z is nondecreasing in u_M and u_V↑ and jointly convex in
    (u_V, u_V↑); k is the mirror of z; so g has the shape of every column, on all of R^d. A stream without columns is
    left out.

    Parameters
    ----------
    shapes : sequence of Shape or what `Shape.parse` reads
        Shape of every column.
    width, depth : int
        Units a stream and layer; layers.
    unit : {"maxout", "lse", "softplus", "relu"}
        χ. With ``"softplus"`` and ``"relu"`` two increasing columns can only be complements in the convex and
        substitutes in the concave stream.
    pieces : int
        Pre-activations a unit, for ``"maxout"``, ``"lse"`` and ``"minmax"``.
    mono_unit : {"minmax", "mixed", "relu_n"}
        ψ.
    positivity : {"exp", "softplus", "square", "abs"}
        π.
    interactions : {"additive", "product", "both"}
        The streams g; a `ProductBank` of the raw columns, whose shapes hold on its `guaranteed` box only; or
        the sum of the two.
    product_rank, product_knots : int
        Size of the bank; knots a column where `knots` is not given.
    domain : array_like, shape (columns, 2), optional
        Low and high of every column in raw units; the bank needs it.
    knots : sequence of array_like, optional
        Interior knots of every column in raw units; evenly spaced by default.
    center, scale : float or array_like, shape (columns,), optional
        μ and σ > 0 in raw units; 0 and 1 by default.
    generator : torch.Generator, optional
        Source of the initial parameters; torch's global one by default.
    dtype : torch.dtype, optional
        Of the parameters.

    Attributes
    ----------
    shapes : tuple of Shape
        Shape of every column.
    groups : dict of Shape to tuple of int
        The columns of every group that is not empty; decreasing columns are in the group of their reflection.

    Shapes
    ------
    x : (rows, columns), raw units → (rows,)

    Raises
    ------
    ValueError
        A parameter out of range or unknown, a scale that is not positive, or no domain where one is needed.

    Examples
    --------
    >>> net = COMONet(["convex decreasing", "increasing", "free"], generator=torch.Generator().manual_seed(0))
    >>> net(torch.zeros(5, 3)).shape
    torch.Size([5])
    >>> {str(group): columns for group, columns in net.groups.items()}
    {'free': (2,), 'increasing': (1,), 'convex_increasing': (0,)}
    """

    center: Tensor
    scale: Tensor
    sign: Tensor
    order: Tensor

    def __init__(
        self,
        shapes: Sequence[Any],
        *,
        width: int = 8,
        depth: int = 2,
        unit: str = "maxout",
        pieces: int = 4,
        mono_unit: str = "minmax",
        positivity: str = "exp",
        interactions: str = "additive",
        product_rank: int = 8,
        product_knots: int = 12,
        domain: Any = None,
        knots: Sequence[Any] | None = None,
        center: Any = None,
        scale: Any = None,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if isinstance(shapes, str) or not len(shapes):
            raise ValueError(f"shapes must have one entry a column, got {shapes!r}")
        self.shapes = tuple(map(Shape.parse, shapes))
        self.interactions = check_choice(interactions, "interactions", INTERACTIONS)
        self.width, self.depth = check_integer(width, "width", low=1), check_integer(depth, "depth", low=1)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        self._set_columns(center, scale, dtype)
        chi = convex_units(unit, width=width, pieces=pieces)
        psi = monotone_units(mono_unit, width=width, pieces=pieces)
        units = {"r": convex_units("relu", width=width), "e": psi, "z": chi, "k": chi.mirror()}
        self.layers = nn.ModuleList()
        self.output: _Layer | None = None
        self.bank: ProductBank | None = None
        if interactions != "product":
            self._add_streams(units, positivity=positivity, generator=generator, dtype=dtype)
        else:
            positive_map(positivity)
        if interactions != "additive":
            box = _box(domain, len(self.shapes), dtype)
            self.bank = _make_bank(self.shapes, box, knots, product_rank, product_knots, generator)

    def _set_columns(self, center: Any, scale: Any, dtype: torch.dtype) -> None:
        """Sort the columns into groups and keep what standardises them."""
        members = {g: tuple(j for j, s in enumerate(self.shapes) if s.group is g) for g in _GROUPS}
        self.groups: dict[Shape, tuple[int, ...]] = {g: columns for g, columns in members.items() if columns}
        center = _per_column(0.0 if center is None else center, "center", len(self.shapes), dtype)
        scale = _per_column(1.0 if scale is None else scale, "scale", len(self.shapes), dtype)
        if not bool((scale > 0).all()):
            raise ValueError(f"scale must be positive, got {float(scale.min())}")
        order = [j for columns in self.groups.values() for j in columns]
        self.register_buffer("center", center)
        self.register_buffer("scale", scale)
        signs = torch.tensor([-1.0 if s.monotonicity < 0 else 1.0 for s in self.shapes], dtype=dtype)
        self.register_buffer("sign", signs, persistent=False)
        self.register_buffer("order", torch.tensor(order), persistent=False)

    def _add_streams(self, units: dict[str, Units], **options: Any) -> None:
        inputs: dict[str, _Source] = {group: _Source(len(columns)) for group, columns in self.groups.items()}
        streams = [name for name, groups in _STREAMS.items() if any(group in self.groups for group in groups)]
        made = {name: _Source(self.width, units[name].moments()) for name in streams}
        sources = inputs
        for _ in range(self.depth):
            layer = {name: _Layer(name, sources, units[name], **options) for name in streams}
            self.layers.append(nn.ModuleDict(layer))
            sources = {group: source for group, source in inputs.items() if group not in _START} | made
        self.output = _Layer("output", inputs | sources, None, **options)

    @property
    def _streams(self) -> list[dict[str, _Layer]]:
        """Return the streams of each layer."""
        return [dict(cast(Any, layer).items()) for layer in self.layers]

    def forward(self, x: Float[Tensor, "rows columns"]) -> Float[Tensor, " rows"]:
        """Return the network's values at rows of raw columns."""
        if x.shape[-1] != len(self.shapes):
            raise ValueError(f"x must have {len(self.shapes)} columns, got {x.shape[-1]}")
        terms = [] if self.output is None else [self._additive(x)]
        if self.bank is not None:
            terms.append(self.bank(x))
        return sum(terms[1:], terms[0])

    def _additive(self, x: Tensor) -> Tensor:
        """Return g."""
        assert self.output is not None
        center, scale = torch.stack([self.center, self.sign * self.scale])[:, self.order, None]
        u = (x.T.index_select(0, self.order) - center) / scale
        blocks = torch.split(u, [len(columns) for columns in self.groups.values()])
        state: dict[str, Tensor] = dict(zip(self.groups, blocks, strict=True))
        state["one"] = torch.ones_like(u[:1])
        for streams in self._streams:
            state |= {name: layer(state) for name, layer in streams.items()}
        g: Tensor = self.output(state)
        return g[0]

    def to_graph(self) -> Graph:
        """Return the network as a graph of effective weights, for a certifier.

        Examples
        --------
        >>> net = COMONet(["convex", "free"], generator=torch.Generator().manual_seed(0)).double()
        >>> x = torch.zeros(1, 2, dtype=torch.float64)
        >>> bool(torch.isclose(net.to_graph().evaluate(x), net(x)))
        True
        """
        builder = GraphBuilder(len(self.shapes))
        terms = [] if self.output is None else [self._additive_to_graph(builder)]
        domain = None
        if self.bank is not None:
            terms.append(_bank_to_graph(builder, self.bank))
            domain = [(low, high) for low, high in self.bank.guaranteed.tolist()]
        return builder.build(terms[0] if len(terms) == 1 else builder.sum(terms), domain)

    def _additive_to_graph(self, builder: GraphBuilder) -> int:
        assert self.output is not None
        slope = self.sign / self.scale
        state: dict[str, int] = {}
        for group, columns in self.groups.items():
            index = list(columns)
            diagonal, shift = slope[index].diag(), -(slope * self.center)[index]
            state[group] = builder.affine([(builder.input(columns), diagonal)], shift)
        for streams in self._streams:
            state |= {name: layer.to_graph(builder, state) for name, layer in streams.items()}
        return self.output.to_graph(builder, state)

    def extra_repr(self) -> str:
        """Return the columns of each group and the routing, for ``repr``."""
        lines = [f"{group}: columns {', '.join(map(str, columns))}" for group, columns in self.groups.items()]
        routes = {} if self.output is None else {**self._streams[-1], "output": self.output}
        for target, layer in routes.items():
            lines.append(f"{target} ← " + " ".join(f"{ROUTING[source, target]}{source}" for source in layer.sources))
        return "\n".join(lines)


def _per_column(value: Any, name: str, length: int, dtype: torch.dtype) -> Tensor:
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    filled = np.full(length, array) if array.ndim == 0 else array
    return torch.from_numpy(check_vector(filled, name, length=length)).to(dtype)


def _box(domain: Any, columns: int, dtype: torch.dtype) -> Tensor:
    if domain is None:
        raise ValueError("domain must be given for interactions other than 'additive'")
    box = torch.as_tensor(domain, dtype=dtype)
    if box.shape != (columns, 2):
        raise ValueError(f"domain must have shape ({columns}, 2), got {tuple(box.shape)}")
    return box


def _make_bank(
    shapes: Sequence[Shape],
    box: Tensor,
    knots: Sequence[Any] | None,
    rank: int,
    n_knots: int,
    generator: torch.Generator | None,
) -> ProductBank:
    check_integer(rank, "product_rank", low=1)
    check_integer(n_knots, "product_knots", low=1)
    if knots is None:
        inner = torch.linspace(0, 1, n_knots + 2, dtype=box.dtype)[1:-1]
        knots = [torch.lerp(low, high, inner) for low, high in box]
    columns = [torch.as_tensor(column, dtype=box.dtype) for column in knots]
    return ProductBank(shapes, rank=rank, domain=box, knots=columns, generator=generator)


def _bank_to_graph(builder: GraphBuilder, bank: ProductBank) -> int:
    """Append c·∏ φ - c̃·∏ φ̃ and return its node."""
    blocks = []
    for sign, part in ((1, bank.positive), (-1, bank.negative)):
        factors = []
        for j, shape in part.shaped.items():
            low, high = bank.domain[j].tolist()
            weight = F.softplus(part.theta[str(j)])
            knots = part.get_buffer(f"knots_{j}")
            basis = builder.basis(builder.input([j]), shape, low, high, knots, size=weight.shape[1])
            factors.append(builder.affine([(basis, weight)]))
        if part.gamma is not None:
            low, high = bank.domain[part.free].T
            slope = math.sqrt(12) / (high - low)
            a = builder.affine([(builder.input(part.free), slope.diag())], -slope * (low + high) / 2)
            for layer in part.gamma:
                if isinstance(layer, nn.Linear):
                    a = builder.activation(builder.affine([(a, layer.weight)], layer.bias), "softplus")
            factors.append(a)
        blocks.append((builder.product(factors), sign * F.softplus(part.c)[None]))
    return builder.affine(blocks)
