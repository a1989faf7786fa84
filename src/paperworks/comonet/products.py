"""Products of univariate functions: interaction between convex and concave columns, guaranteed on a box."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from paperworks.comonet.shapes import Shape
from paperworks.core.validation import check_integer

__all__ = ["ProductBank", "merge_knots", "shape_basis"]


def shape_basis(
    x: Float[Tensor, " rows"], low: float | Tensor, high: float | Tensor, knots: Float[Tensor, " knots"], shape: Shape
) -> Float[Tensor, "rows basis"]:
    r"""Return functions of one column that all have `shape` and lie in [0, 1] on [low, high] = [l, u].

    With knots t_i between l and u, and e = (l, t_1, …, u), the basis is the constant 1 followed by

    - increasing: clip((x − e_i)/(e_{i+1} − e_i), 0, 1); decreasing: 1 minus that
    - convex increasing: (x − e_i)₊/(u − e_i), e_i < u; convex decreasing: (e_i − x)₊/(e_i − l), e_i > l; convex: both
    - concave increasing: (x − l)/(u − l) and min((x − l)/(t_i − l), 1)
    - concave decreasing: (u − x)/(u − l) and min((u − x)/(u − t_i), 1)
    - concave: (x − l)/(u − l), (u − x)/(u − l) and tents min((x − l)/(t_i − l), (u − x)/(u − t_i))

    Sums with nonnegative weights have the shape everywhere. They are dense in the nonnegative functions of that shape
    on [l, u]. Increasing, decreasing and convex ones are nonnegative everywhere; concave increasing ones from l on,
    concave decreasing ones up to u, concave ones on [l, u].

    Parameters
    ----------
    x : Tensor, shape (rows,)
        Values of the column.
    low, high : float
        The domain of the column, in its units.
    knots : Tensor, shape (knots,)
        Strictly increasing, between `low` and `high`: see `merge_knots`.
    shape : Shape
        Any but free.

    Raises
    ------
    ValueError
        The shape is free, which no finite basis spans.

    Examples
    --------
    >>> x = torch.tensor([0.0, 1.0, 2.0])
    >>> shape_basis(x, 0.0, 2.0, torch.tensor([1.0]), Shape.CONVEX_INCREASING)
    tensor([[1.0000, 0.0000, 0.0000],
            [1.0000, 0.5000, 0.0000],
            [1.0000, 1.0000, 1.0000]])
    """
    low, high, knots = (torch.as_tensor(value, dtype=x.dtype, device=x.device) for value in (low, high, knots))
    edges = torch.cat([low.reshape(1), knots, high.reshape(1)])
    x = x[:, None]
    match shape:
        case Shape.INCREASING:
            parts = [_ramps(x, edges)]
        case Shape.DECREASING:
            parts = [1 - _ramps(x, edges)]
        case Shape.CONVEX_INCREASING:
            parts = [_hinge(x, edges[:-1], high)]
        case Shape.CONVEX_DECREASING:
            parts = [_hinge(-x, -edges[1:], -low)]
        case Shape.CONVEX:
            parts = [_hinge(x, edges[:-1], high), _hinge(-x, -edges[1:], -low)]
        case Shape.CONCAVE_INCREASING:
            parts = [_rise(x, low, edges[-1:]), _rise(x, low, knots).clamp(max=1)]
        case Shape.CONCAVE_DECREASING:
            parts = [_rise(-x, -high, -edges[:1]), _rise(-x, -high, -knots).clamp(max=1)]
        case Shape.CONCAVE:
            tents = torch.minimum(_rise(x, low, knots), _rise(-x, -high, -knots))
            parts = [_rise(x, low, edges[-1:]), _rise(-x, -high, -edges[:1]), tents]
        case _:
            raise ValueError(f"shape must not be free, got {shape!r}")
    return torch.cat([torch.ones_like(x), *parts], dim=1)


def _ramps(x: Tensor, edges: Tensor) -> Tensor:
    """0 up to each edge, 1 from the next edge on, straight between."""
    return ((x - edges[:-1]) / _gap(edges[1:] - edges[:-1])).clamp(0, 1)


def _hinge(x: Tensor, start: Tensor, high: Tensor) -> Tensor:
    """0 up to `start`, then straight, 1 at `high`."""
    return (x - start).clamp(min=0) / _gap(high - start)


def _rise(x: Tensor, low: Tensor, end: Tensor) -> Tensor:
    """Straight, 0 at `low`, 1 at `end`."""
    return (x - low) / _gap(end - low)


def _gap(width: Tensor) -> Tensor:
    """Keep knots that a cast to fewer digits has merged from dividing zero by zero."""
    return width.clamp(min=torch.finfo(width.dtype).tiny)


def merge_knots(
    knots: Float[Tensor, " knots"], low: float, high: float, *, gap: float = 1e-6
) -> Float[Tensor, " merged"]:
    """Return the distinct knots strictly between `low` and `high`, in order.

    A knot closer than ``gap * (high - low)`` to the one before it or to an end is merged into that; so is one beyond
    an end.

    Examples
    --------
    >>> merge_knots(torch.tensor([3.0, 1.0, 1.0, 0.0]), 0.0, 4.0)
    tensor([1., 3.])
    """
    least = gap * (high - low)
    kept: list[float] = []
    for knot in torch.unique(knots).tolist():
        if knot - (kept[-1] if kept else low) > least and high - knot > least:
            kept.append(knot)
    return torch.tensor(kept, dtype=knots.dtype, device=knots.device)


class ProductBank(nn.Module):
    r"""A difference of two sums of products that has the shape of every column on a box.

    .. math::
        h(x) = \sum_{r \le R} c_r Γ_r(x_F) \prod_{j \notin F} φ_{rj}(x_j)
             - \sum_{s \le R} \tilde c_s \tilde Γ_s(x_F) \prod_{j \notin F} \tilde φ_{sj}(x_j)

    F are the free columns; c ≥ 0; Γ = softplus(MLP(x_F)) ≥ 0, and 1 where no column is free. Each φ ≥ 0 has the shape
    of its column and each φ̃ ≥ 0 the opposite one (increasing and decreasing, convex and concave swapped):
    φ = Σ_i softplus(θ_i) B_i with B from `shape_basis`. With all other columns fixed, a product is a nonnegative
    constant times one φ, so it has its shape. The first sum makes increasing columns complements, the second
    substitutes.

    **Where it holds.** A concave φ is nonnegative on the domain only, and the second sum has one for every convex
    column: shapes hold on `guaranteed`, which is the domain in convex and in concave columns, one of its bounds where they are
    monotone too, and unbounded in all others.

    Parameters
    ----------
    shapes : sequence of Shape, length columns
        Shape of every column.
    rank : int
        R, the number of products in each sum.
    domain : Tensor, shape (columns, 2)
        Low and high of every column, in its units; its dtype is the parameters'.
    knots : sequence of Tensor, each of shape (knots,)
        Of every column, quantiles of the training values at equal steps of probability, without the ends; they may
        repeat. Those of free columns are not used.
    width : int
        Hidden units of each MLP.
    generator : torch.Generator, optional
        Source of the initial parameters; without it they are the same each time.

    Shapes
    ------
    x : (rows, columns), raw units → (rows,)

    Raises
    ------
    ValueError
        Lengths differ, a domain is not finite with low < high, or rank or width is below 1.

    Examples
    --------
    >>> shapes = [Shape.CONVEX_INCREASING, Shape.CONCAVE]
    >>> domain = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    >>> bank = ProductBank(shapes, rank=4, domain=domain, knots=[torch.tensor([0.5])] * 2)
    >>> bank(torch.rand(5, 2)).shape
    torch.Size([5])
    >>> bank.guaranteed
    tensor([[-inf, 1.],
            [0., 1.]])
    """

    domain: Tensor

    def __init__(
        self,
        shapes: Sequence[Shape],
        *,
        rank: int = 8,
        domain: Float[Tensor, "columns 2"],
        knots: Sequence[Tensor],
        width: int = 8,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        rank, width = check_integer(rank, "rank", low=1), check_integer(width, "width", low=1)
        self.shapes = tuple(map(Shape, shapes))
        _check_domain(domain, len(self.shapes))
        if len(knots) != len(self.shapes):
            raise ValueError(f"knots must have one entry for each of the {len(self.shapes)} columns, got {len(knots)}")
        generator = torch.Generator() if generator is None else generator
        knots = [column.detach().cpu().to(domain.dtype) for column in knots]
        self.register_buffer("domain", domain.detach().clone())
        opposite = [Shape.of(-shape.monotonicity, -shape.curvature) for shape in self.shapes]
        box = domain.detach().cpu()
        self.positive = _Sum(self.shapes, rank, box, knots, width, generator).to(domain.device)
        self.negative = _Sum(opposite, rank, box, knots, width, generator).to(domain.device)

    def forward(self, x: Float[Tensor, "rows columns"]) -> Float[Tensor, " rows"]:
        """Return h, shape (rows,)."""
        difference: Tensor = self.positive(x, self.domain) - self.negative(x, self.domain)
        return difference

    @property
    def guaranteed(self) -> Float[Tensor, "columns 2"]:
        """The box on which every column has its shape: [low, high], infinite where nothing depends on the bound."""
        box = self.domain.clone()
        for j, shape in enumerate(self.shapes):
            m, c = shape.monotonicity, shape.curvature
            # Of φ and φ̃, one is concave; if it is monotone too, it stays nonnegative beyond the end where it is high.
            if c == 0 or m * c > 0:
                box[j, 0] = -math.inf
            if c == 0 or m * c < 0:
                box[j, 1] = math.inf
        return box

    def extra_repr(self) -> str:
        """Name the shapes."""
        return ", ".join(f"{j}: {shape}" for j, shape in enumerate(self.shapes))


class _Sum(nn.Module):
    """Σ_r c_r Γ_r(x_F) ∏_j φ_rj(x_j): (rows, columns), (columns, 2) → (rows,)."""

    def __init__(
        self,
        shapes: Sequence[Shape],
        rank: int,
        domain: Tensor,
        knots: Sequence[Tensor],
        width: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        dtype = domain.dtype
        self.shaped = {j: shape for j, shape in enumerate(shapes) if shape is not Shape.FREE}
        self.free = [j for j, shape in enumerate(shapes) if shape is Shape.FREE]
        self.theta = nn.ParameterDict()
        for j, shape in self.shaped.items():
            low, high = domain[j].tolist()
            self.register_buffer(f"knots_{j}", merge_knots(knots[j], low, high))
            mean = shape_basis(_quantiles(knots[j], low, high), low, high, self.get_buffer(f"knots_{j}"), shape).mean(0)
            self.theta[str(j)] = nn.Parameter(_initial_theta(mean, rank, generator))
        self.gamma = _mlp(len(self.free), width, rank, dtype, generator) if self.free else None
        self.c = nn.Parameter(_inverse_softplus(torch.full((rank,), 0.6 / rank, dtype=dtype)))

    def forward(self, x: Tensor, domain: Tensor) -> Tensor:
        terms = F.softplus(self.c).expand(len(x), -1)
        if self.gamma is not None:
            terms = terms * F.softplus(self.gamma(self.standardised(x, domain)))
        for j, shape in self.shaped.items():
            basis = shape_basis(x[:, j], domain[j, 0], domain[j, 1], self.get_buffer(f"knots_{j}"), shape)
            terms = terms * (basis @ F.softplus(self.theta[str(j)]).T)
        return terms.sum(1)

    def standardised(self, x: Tensor, domain: Tensor) -> Tensor:
        """The free columns with mean 0 and variance 1 if they are uniform on their domain."""
        low, high = domain[self.free].T
        u: Tensor = math.sqrt(12) * (x[:, self.free] - (low + high) / 2) / (high - low)
        return u


def _check_domain(domain: Tensor, columns: int) -> None:
    if domain.shape != (columns, 2):
        raise ValueError(f"domain must have shape ({columns}, 2), got {tuple(domain.shape)}")
    if not domain.is_floating_point():
        raise TypeError(f"domain must be floating point, got {domain.dtype}")
    bad = ~(domain.isfinite().all(1) & (domain[:, 0] < domain[:, 1]))
    if bad.any():
        j = int(bad.nonzero()[0])
        raise ValueError(f"domain must be finite with low < high, got {domain[j].tolist()} for column {j}")


def _quantiles(knots: Tensor, low: float, high: float, n: int = 512) -> Tensor:
    """Values spread as the training values are, to the extent that the knots tell."""
    edges = torch.cat([knots.new_tensor([low]), knots.sort().values.clamp(low, high), knots.new_tensor([high])])
    level = (torch.arange(n, dtype=knots.dtype) + 0.5) * ((len(edges) - 1) / n)
    left = level.long()
    return torch.lerp(edges[left], edges[left + 1], level - left)


def _initial_theta(mean: Tensor, rank: int, generator: torch.Generator) -> Tensor:
    """A random half of each φ's weights equal, the others 0.3 of that, so that its mean is 1.

    With much smaller ones L-BFGS is slow to bring the others in, as softplus is flat there.
    """
    order = torch.rand((rank, len(mean)), generator=generator, dtype=torch.float64).argsort(1)
    weight = torch.where(order < math.ceil(len(mean) / 2), 1.0, 0.3).to(mean.dtype)
    return _inverse_softplus(weight / (weight @ mean)[:, None])


def _mlp(n_in: int, width: int, n_out: int, dtype: torch.dtype, generator: torch.Generator) -> nn.Sequential:
    """One hidden layer whose softplus starts near 1."""
    # Built without values, because nn.Linear would draw its first weights from the global generator.
    first = nn.Linear(n_in, width, device="meta", dtype=dtype).to_empty(device="cpu")
    last = nn.Linear(width, n_out, device="meta", dtype=dtype).to_empty(device="cpu")
    with torch.no_grad():
        for layer in (first, last):
            layer.weight.normal_(0, 1 / math.sqrt(layer.in_features), generator=generator)
        first.bias.normal_(0, 0.5, generator=generator)
        # A softplus of a standard normal number averages about 0.8.
        last.bias.copy_(math.log(math.e - 1) - 0.8 * last.weight.sum(1))
    return nn.Sequential(first, nn.Softplus(), last)


def _inverse_softplus(y: Tensor) -> Tensor:
    return y + torch.log(-torch.expm1(-y))
