"""The parts that keep shapes: which source may feed which unit with which sign, positive layers, units."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from paperworks.comonet.graph import GraphBuilder
from paperworks.core.validation import check_choice, check_integer

__all__ = [
    "CONVEX_UNITS",
    "MONOTONE_UNITS",
    "POSITIVE_MAPS",
    "ROUTING",
    "STANDARD",
    "LogNormal",
    "Moments",
    "PositiveLinear",
    "PositiveMap",
    "Units",
    "convex_units",
    "group_max",
    "group_min",
    "init_log_normal",
    "log_mean_exp",
    "monotone_units",
    "positive_map",
    "relu_n",
    "softplus",
]

Sign = Literal["+", "±"]

_TARGETS = ("r", "e", "z", "k", "output")
_ROWS: dict[tuple[str, ...], tuple[Sign | None, ...]] = {
    ("free", "r"): ("±", "±", "±", "±", "±"),
    ("increasing", "e"): (None, "+", "+", "+", "+"),
    ("convex",): (None, None, "±", None, "±"),
    ("convex_increasing",): (None, None, "+", None, "+"),
    ("z",): (None, None, "+", None, "+"),
    ("concave",): (None, None, None, "±", "±"),
    ("concave_increasing", "k"): (None, None, None, "+", "+"),
}

ROUTING: dict[tuple[str, str], Sign | None] = {
    (source, target): sign
    for sources, signs in _ROWS.items()
    for source in sources
    for target, sign in zip(_TARGETS, signs, strict=True)
}
"""The sign that weights from a source to a target may have: ``"+"``, ``"±"`` or None where there is no connection.

Sources are the six groups of columns and the four streams: `r` ordinary units of the free columns, `e` increasing,
`z` convex, `k` concave units. Targets are the streams and the output. Every other choice breaks a shape.
"""


class PositiveMap(NamedTuple):
    """A map π onto the nonnegative numbers, and a parameter that gives a wanted weight."""

    forward: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]


POSITIVE_MAPS: dict[str, PositiveMap] = {
    # exp(8) is far above any useful weight: the clamp keeps a line search from overflowing.
    "exp": PositiveMap(lambda theta: theta.clamp(max=8.0).exp(), torch.log),
    "softplus": PositiveMap(F.softplus, lambda weight: weight + torch.log(-torch.expm1(-weight))),
    "square": PositiveMap(torch.square, torch.sqrt),
    "abs": PositiveMap(torch.abs, torch.clone),
}


def positive_map(name: str) -> PositiveMap:
    """Return the map from parameters to nonnegative weights: ``"exp"``, ``"softplus"``, ``"square"`` or ``"abs"``.

    Examples
    --------
    >>> positive_map("square").forward(torch.tensor([-2.0, 0.5]))
    tensor([4.0000, 0.2500])
    """
    found: PositiveMap = POSITIVE_MAPS[check_choice(name, "positivity", POSITIVE_MAPS)]
    return found


class Moments(NamedTuple):
    """What the values that feed a layer have in common: mean, mean square, variance, and covariance of two of them."""

    mean: float
    square: float
    variance: float
    covariance: float


STANDARD = Moments(0.0, 1.0, 1.0, 0.0)
"""Of columns that are standardised and independent."""

_MEAN = 1 / math.sqrt(2 * math.pi)
_RELU = Moments(_MEAN, 1 / 2, 1 / 2 - _MEAN**2, (math.sqrt(3) / 2 + math.pi / 3) / (2 * math.pi) - _MEAN**2)
"""Of relu units of standard normals with correlation ½."""


class LogNormal(NamedTuple):
    """Initialisation of a nonnegative layer: weights exp(N(log_mean, log_std²)) of mean `mean`, and the bias."""

    mean: float
    log_mean: float
    log_std: float
    bias: float


def init_log_normal(n: int, moments: Moments = _RELU) -> LogNormal:
    r"""Return how to draw n nonnegative weights so that a layer passes on mean 0, variance 1 and correlation ½.

    With the mean m, mean square q, variance v and covariance c of the inputs, the weights' mean μ and variance σ² and
    the bias are

    .. math:: μ = 1 / \sqrt{2n (v + (n-1) c)}, \quad σ² = 1/(2nq), \quad b = -nμm

    so that half of the variance is shared by the layer's outputs and half is each one's own. Positive weights alone let
    correlation, and with it variance, grow from layer to layer unless μ makes up for it.

    Parameters
    ----------
    n : int
        Number of inputs.
    moments : Moments
        Of the inputs; by default those of ReLU units of standard normals with correlation ½.

    Examples
    --------
    >>> round(init_log_normal(8).bias, 4)
    -0.6846
    """
    check_integer(n, "n", low=1)
    mean = 1 / math.sqrt(2 * n * (moments.variance + (n - 1) * moments.covariance))
    log_variance = math.log1p(1 / (2 * n * moments.square * mean**2))
    return LogNormal(mean, math.log(mean) - log_variance / 2, math.sqrt(log_variance), -n * mean * moments.mean)


class PositiveLinear(nn.Module):
    r"""A linear layer with nonnegative weights on its first inputs and weights of any sign on the others.

    .. math:: y = [π(Θ) \mid A]\, x + b

    Parameters
    ----------
    positive, signed : sequence of int
        Sizes of the blocks of inputs with nonnegative weights (they come first) and with weights of any sign.
    out_features : int
        Number of outputs.
    positivity : {"exp", "softplus", "square", "abs"}
        The map π.
    moments : sequence of Moments, optional
        Of the inputs of each block, first the positive ones, at initialisation; by default each has mean 0 and
        variance 1 and they are independent.
    bias_std : float
        Standard deviation of the noise on the initial bias.
    generator : torch.Generator, optional
        Source of the initial values.
    dtype : torch.dtype, optional
        Of the parameters.

    Shapes
    ------
    Input (rows, Σ positive + Σ signed), output (rows, out_features).

    Examples
    --------
    >>> layer = PositiveLinear([2], [1], 3, generator=torch.Generator().manual_seed(0))
    >>> layer.weight.shape, bool((layer.weight[:, :2] >= 0).all())
    (torch.Size([3, 3]), True)
    """

    def __init__(
        self,
        positive: Sequence[int],
        signed: Sequence[int],
        out_features: int,
        *,
        positivity: str = "exp",
        moments: Sequence[Moments] | None = None,
        bias_std: float = 0.0,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.positive, self.signed = tuple(positive), tuple(signed)
        self.positivity = positivity
        positive_map(positivity)
        self.theta = nn.Parameter(torch.empty(out_features, sum(positive), dtype=dtype))
        self.A = nn.Parameter(torch.empty(out_features, sum(signed), dtype=dtype))
        self.bias = nn.Parameter(torch.empty(out_features, dtype=dtype))
        self.reset_parameters(moments, bias_std, generator)

    @torch.no_grad()
    def reset_parameters(
        self,
        moments: Sequence[Moments] | None = None,
        bias_std: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        """Draw log-normal positive and normal other weights for outputs of variance 1, the sum of q blocks over √q."""
        blocks = len(self.positive) + len(self.signed)
        shrink = 1 / math.sqrt(max(1, blocks))
        self.bias.normal_(0.0, bias_std, generator=generator)
        moments = [STANDARD] * blocks if moments is None else list(moments)
        above, signed = moments[: len(self.positive)], moments[len(self.positive) :]
        for block, n, fed in zip(
            torch.split(self.theta, list(self.positive), dim=1), self.positive, above, strict=True
        ):
            init = init_log_normal(n, fed)
            weight = block.normal_(init.log_mean, init.log_std, generator=generator).exp() * shrink
            block.copy_(POSITIVE_MAPS[self.positivity].inverse(weight))
            self.bias.add_(shrink * init.bias)
        for block, n, fed in zip(torch.split(self.A, list(self.signed), dim=1), self.signed, signed, strict=True):
            block.normal_(0.0, shrink / math.sqrt(n * fed.square), generator=generator)

    @property
    def P(self) -> Float[Tensor, "out positive"]:
        """The nonnegative weights π(Θ)."""
        return POSITIVE_MAPS[self.positivity].forward(self.theta)

    @property
    def matrix(self) -> Float[Tensor, "out inputs_and_one"]:
        """The effective weights and the bias, [π(Θ) | A | b], which act on the inputs and a constant 1."""
        return torch.cat([self.P, self.A, self.bias[:, None]], dim=1)

    @property
    def weight(self) -> Float[Tensor, "out inputs"]:
        """The effective weights [π(Θ) | A]."""
        return torch.cat([self.P, self.A], dim=1)

    def forward(self, x: Float[Tensor, "rows inputs"]) -> Float[Tensor, "rows out"]:
        """Return the layer's outputs."""
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes for ``repr``."""
        return (
            f"{list(self.positive)} ≥ 0, {list(self.signed)} ±, out={self.bias.numel()}, positivity={self.positivity}"
        )


class _Extremum(torch.autograd.Function):
    """The maximum or minimum over a dimension; its derivative is shared out among the entries that attain it.

    `torch.amax` does the same, but several times as slowly for many rows when it comes to the gradient.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, dim: int, largest: bool) -> Tensor:
        return a.amax(dim) if largest else a.amin(dim)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, bool], output: Tensor) -> None:
        ctx.dim = inputs[1]
        ctx.save_for_backward(inputs[0], output)
        ctx.save_for_forward(inputs[0], output)

    @staticmethod
    def _attained(ctx: Any) -> Tensor:
        a, extremum = ctx.saved_tensors
        hit: Tensor = (a == extremum.unsqueeze(ctx.dim)).to(a.dtype)
        return hit

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        hit = _Extremum._attained(ctx)
        return hit * (gradient / hit.sum(ctx.dim)).unsqueeze(ctx.dim), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        hit = _Extremum._attained(ctx)
        return (hit * tangent).sum(ctx.dim) / hit.sum(ctx.dim)


def _extremum(a: Tensor, dim: int, largest: bool) -> Tensor:
    if not torch.is_grad_enabled():
        return _Extremum.forward(a, dim, largest)
    found: Tensor = _Extremum.apply(a, dim, largest)  # type: ignore[no-untyped-call]
    return found


def _grouped(a: Tensor, pieces: int, dim: int) -> Tensor:
    """Split dimension `dim` < 0 so that each group of consecutive entries lies along `dim`."""
    split: Tensor = torch.unflatten(a, dim, (-1, pieces))
    return split


def group_max(a: Float[Tensor, "*any"], pieces: int, dim: int = -1) -> Float[Tensor, ...]:
    """Return the maximum of each `pieces` consecutive entries along `dim` < 0: convex and nondecreasing."""
    return _extremum(_grouped(a, pieces, dim), dim, True)


def group_min(a: Float[Tensor, "*any"], pieces: int, dim: int = -1) -> Float[Tensor, ...]:
    """Return the minimum of each `pieces` consecutive entries along `dim` < 0: concave and nondecreasing."""
    return _extremum(_grouped(a, pieces, dim), dim, False)


def log_mean_exp(a: Float[Tensor, "*any"], pieces: int, dim: int = -1) -> Float[Tensor, ...]:
    """Return log of the mean of exp of each `pieces` consecutive entries along `dim` < 0: a smooth maximum."""
    return _grouped(a, pieces, dim).logsumexp(dim) - math.log(pieces)


def relu_n(a: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Return 0.99·min(max(a, 0), 1) + 0.01·a: nondecreasing, neither convex nor concave."""
    return 0.99 * a.clamp(0.0, 1.0) + 0.01 * a


def softplus(a: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Return log(1 + exp(a)) without torch's switch to the identity, which is not convex to the last digits."""
    return torch.logaddexp(a, torch.zeros_like(a))


_ENTRYWISE: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "softplus": softplus, "relu_n": relu_n}
_GROUPED: dict[str, Callable[[Tensor, int, int], Tensor]] = {"max": group_max, "min": group_min, "lse": log_mean_exp}


_MIRROR = {"max": "min", "min": "max"}


class Part(NamedTuple):
    """A function χ of pre-activations, or its mirror -χ(-a)."""

    name: str
    mirrored: bool = False

    def __call__(self, a: Tensor, pieces: int, dim: int = -1) -> Tensor:
        if self == ("relu", True):
            return a.clamp(max=0.0)
        if self.mirrored:
            return -Part(self.name)(-a, pieces, dim)
        return _GROUPED[self.name](a, pieces, dim) if self.grouped else _ENTRYWISE[self.name](a)

    @property
    def grouped(self) -> bool:
        """Whether it takes several pre-activations a unit."""
        return self.name in _GROUPED

    def mirror(self) -> Part:
        """Return -χ(-a)."""
        return Part(_MIRROR[self.name]) if self.name in _MIRROR else Part(self.name, not self.mirrored)

    def to_graph(self, builder: GraphBuilder, a: int, pieces: int) -> int:
        """Append the function of node `a` and return its node."""
        if self.grouped:
            return builder.group(a, f"mirrored_{self.name}" if self.mirrored else self.name, pieces=pieces)
        return builder.activation(a, self.name, mirrored=self.mirrored)


CONVEX_UNITS = {
    "relu": (Part("relu"),),
    "softplus": (Part("softplus"),),
    "maxout": (Part("max"),),
    "lse": (Part("lse"),),
}
"""Convex nondecreasing units χ."""

MONOTONE_UNITS = {
    "relu_n": (Part("relu_n"),),
    "mixed": (Part("relu"), Part("relu", mirrored=True)),
    "minmax": (Part("max"), Part("min")),
}
"""Nondecreasing units ψ; where there are two parts each makes half of the units."""

# Well known activations that somebody might try; each breaks a shape.
_NOT_CONVEX = ("selu", "gelu", "silu", "swish", "mish", "tanh", "sigmoid", "relu6", "hardtanh", "hardswish", "celu")


@dataclass(frozen=True)
class Units:
    """`width` units of one kind: from pre-activations to outputs.

    Attributes
    ----------
    parts : tuple of Part
        The functions; each makes an equal share of the units, the first ones one more where that does not divide.
    width : int
        Number of outputs.
    pieces : int
        Pre-activations a unit, for functions of groups; the others take one.

    Examples
    --------
    >>> units = convex_units("maxout", width=1, pieces=2)
    >>> units(torch.tensor([[1.0, 3.0]])), units.mirror()(torch.tensor([[1.0, 3.0]]))
    (tensor([[3.]]), tensor([[1.]]))
    """

    parts: tuple[Part, ...]
    width: int
    pieces: int

    def mirror(self) -> Units:
        """Return the units -χ(-a): concave where these are convex."""
        return replace(self, parts=tuple(part.mirror() for part in self.parts))

    @property
    def sizes(self) -> list[int]:
        """Pre-activations of each part."""
        share, more = divmod(self.width, len(self.parts))
        return [(share + (i < more)) * (self.pieces if part.grouped else 1) for i, part in enumerate(self.parts)]

    def __call__(self, a: Float[Tensor, "*any"], dim: int = -1) -> Float[Tensor, ...]:
        """Return the units' outputs, from pre-activations to units along `dim` < 0."""
        if len(self.parts) == 1:
            return self.parts[0](a, self.pieces, dim)
        split = zip(self.parts, torch.split(a, self.sizes, dim), strict=True)
        return torch.cat([part(block, self.pieces, dim) for part, block in split if block.shape[dim]], dim)

    def moments(self) -> Moments:
        """Return those of the outputs for standard normal pre-activations of correlation ½, from 2·2048 fixed draws."""
        two = replace(self, width=2 * len(self.parts))
        generator = torch.Generator().manual_seed(0)
        shared, own = (torch.randn(2048, n, generator=generator) for n in (1, sum(two.sizes)))
        draws = (shared + own) / math.sqrt(2)
        outputs = two(torch.cat([draws, -draws])).double()
        covariance = torch.cov(outputs.T)
        own_part = covariance.diagonal().mean()
        pairs = (covariance.sum() - covariance.trace()) / (covariance.numel() - len(covariance))
        return Moments(*map(float, (outputs.mean(), outputs.square().mean(), own_part, pairs)))


def convex_units(name: str, *, width: int, pieces: int = 4) -> Units:
    """Return convex nondecreasing units χ; their mirror is concave.

    Parameters
    ----------
    name : {"relu", "softplus", "maxout", "lse"}
        ``"maxout"`` takes the maximum of `pieces` pre-activations and ``"lse"`` the log of their mean exponential. The
        others act on one each, which cannot represent convex increasing functions of substitutes such as max(x, y).
    width, pieces : int
        Number of units; pre-activations a unit.

    Raises
    ------
    ValueError
        A unit that is unknown or not convex and nondecreasing.
    """
    if str(name).lower() in _NOT_CONVEX:
        raise ValueError(f"unit {name!r} is not convex and nondecreasing; choose from {', '.join(CONVEX_UNITS)}")
    parts = CONVEX_UNITS[check_choice(name, "unit", CONVEX_UNITS)]
    return Units(parts, check_integer(width, "width", low=1), check_integer(pieces, "pieces", low=1))


def monotone_units(name: str, *, width: int, pieces: int = 4) -> Units:
    """Return nondecreasing units ψ.

    Parameters
    ----------
    name : {"minmax", "mixed", "relu_n"}
        Half maxima and half minima of `pieces` pre-activations; half relu(a) and half -relu(-a); or `relu_n`.
    width, pieces : int
        Number of units; pre-activations a unit.

    Raises
    ------
    ValueError
        An unknown unit.
    """
    parts = MONOTONE_UNITS[check_choice(name, "mono_unit", MONOTONE_UNITS)]
    return Units(parts, check_integer(width, "width", low=1), check_integer(pieces, "pieces", low=1))
