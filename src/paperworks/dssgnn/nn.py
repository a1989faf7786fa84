"""The networks: random logits as filtered polynomial chaos, alone or as a residual beside an encoder."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from paperworks.core.validation import check_integer, check_real
from paperworks.dssgnn.chaos import ChaosLogits, OrthogonalBasis
from paperworks.dssgnn.features import FeatureLinear, check_features, drop_features, linear
from paperworks.dssgnn.filters import GraphPolynomialFilter, filter_signals, normalized_shift

__all__ = ["DSSGNN", "DSSHybrid", "expand_jointly", "variance_divergence"]

_FIRST = 0.3
"""Scale of the orders above 0 at the start."""

_FLOOR = 1e-4
"""Added to a variance before its logarithm, so that the gradient at 0 is bounded."""


class DSSGNN(nn.Module):
    r"""A node classifier whose logits are random: a polynomial chaos of graph-filtered signals.

    .. math:: z(ξ) = \sum_{p=0}^P ψ_p(ξ)\, C_p, \quad C_p = e^{γ_p} F_p (h V_p + c_p), \quad h = relu(x W_1 + b_1)

    with one polynomial filter F_p of the normalised adjacency an order, and dropout before both layers. Every order has
    a gain e^{γ_p} of its own, which weight decay does not reach: otherwise decay of the weights pins the scale of the
    logits, and the network is under-confident.

    Parameters
    ----------
    in_channels, out_channels : int
        Features and classes.
    hidden_channels : int
        Width of h.
    order : int
        P; with 0 the logits are not random.
    degree : int
        K, the degree of the filters: how many steps along edges they see.
    basis : {"chebyshev", "monomial", "bernstein", "jacobi", "legendre"}
        Basis in which the filters are learned.
    chaos : {"hermite", "legendre", "laguerre", "jacobi"}
        Family of ψ, and so the distribution of ξ; see `OrthogonalBasis`, whose exponents are `chaos_a` and `chaos_b`.
    prior : {"ppr", "identity", "mix", "heat", "highpass"}
        Filter from which learning starts; see `prior_coefficients`, whose arguments are `alpha` and `t`.
    alpha, t : float
        Of the prior.
    filter_learning : bool
        Whether filters are learned.
    gain : bool
        Whether gains are learned.
    dropout : float
        Share of features and of hidden units dropped, in [0, 1).
    self_loops : bool
        Whether a node is its own neighbour.
    q_train : int
        Quadrature nodes of `forward`, more than P.
    chaos_a, chaos_b : float
        Exponents of "laguerre" and "jacobi".

    Raises
    ------
    ValueError
        A number out of range, or an unknown name.

    Shapes
    ------
    x : (nodes, in_channels), dense, CSR or COO; edge_index : (2, edges) or sparse (nodes, nodes); edge_weight : (edges,)
    → log probabilities (nodes, out_channels)

    Notes
    -----
    With order 0, gains and filters frozen and the prior "ppr" this is APPNP. `forward` cannot be exported by
    ``torch.export``, because how many distinct edges there are depends on the data; `expand` with a dense shift can.

    Examples
    --------
    >>> model = DSSGNN(16, 3)
    >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> model(x, edge_index).shape
    torch.Size([4, 3])
    >>> logits = model.coefficients(x, edge_index)
    >>> logits
    ChaosLogits(order=2, nodes=4, classes=3, basis=OrthogonalBasis(family='hermite', a=0.0, b=0.0))
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 64,
        order: int = 2,
        degree: int = 10,
        basis: str = "chebyshev",
        chaos: str = "hermite",
        prior: str = "ppr",
        alpha: float = 0.1,
        t: float = 3.0,
        filter_learning: bool = True,
        gain: bool = True,
        dropout: float = 0.5,
        self_loops: bool = True,
        q_train: int = 8,
        chaos_a: float = 0.0,
        chaos_b: float = 0.0,
    ) -> None:
        super().__init__()
        self.in_channels = check_integer(in_channels, "in_channels", low=1)
        self.out_channels = check_integer(out_channels, "out_channels", low=1)
        self.hidden_channels = check_integer(hidden_channels, "hidden_channels", low=1)
        self.order = check_integer(order, "order", low=0)
        self.degree = check_integer(degree, "degree", low=0)
        self.dropout = check_real(dropout, "dropout", low=0, high=1)
        if self.dropout == 1:
            raise ValueError("dropout must be less than 1")
        self.self_loops = self_loops
        self.q_train = check_integer(q_train, "q_train", low=1)
        if self.q_train < self.order + 1:
            raise ValueError(
                f"q={self.q_train} quadrature nodes cannot resolve order {self.order}; need q >= {self.order + 1}"
            )
        self.chaos = OrthogonalBasis(chaos, chaos_a, chaos_b)
        orders = self.order + 1
        self.lin1 = FeatureLinear(self.in_channels, self.hidden_channels)
        self.weight2 = nn.Parameter(torch.empty(orders, self.hidden_channels, self.out_channels))
        self.bias2 = nn.Parameter(torch.empty(orders, self.out_channels))
        self.gamma = nn.Parameter(torch.empty(orders), requires_grad=gain)
        self.filters = GraphPolynomialFilter(orders, self.degree, basis, prior, filter_learning, alpha=alpha, t=t)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew; filters return to the prior."""
        self.lin1.reset_parameters()
        for weight in self.weight2:
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.bias2)
        first = [1.0] + [_FIRST / math.sqrt(math.factorial(p)) for p in range(1, self.order + 1)]
        with torch.no_grad():
            self.gamma.copy_(torch.tensor(first).log())
        self.filters.reset_parameters()

    def param_groups(
        self, lr: float = 0.01, weight_decay: float = 5e-4, filter_decay: float = 0.01
    ) -> list[dict[str, Any]]:
        """Return the parameter groups of an optimizer: weights, filters and gains, of which the last do not decay."""
        groups = [
            {"params": [*self.lin1.parameters(), self.weight2, self.bias2], "lr": lr, "weight_decay": weight_decay},
            {"params": [self.filters.delta], "lr": lr, "weight_decay": filter_decay},
            {"params": [self.gamma], "lr": lr, "weight_decay": 0.0},
        ]
        return list(_learned(groups))

    def shift(
        self,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        num_nodes: int | None = None,
        dtype: torch.dtype | None = None,
    ) -> Float[Tensor, "nodes nodes"]:
        """Return the matrix that the filters are polynomials of; see `normalized_shift`."""
        return normalized_shift(edge_index, edge_weight, num_nodes, self.self_loops, dtype=dtype)

    def expand(self, x: Float[Tensor, "nodes features"], shift: Float[Tensor, "nodes nodes"]) -> ChaosLogits:
        """Return the random logits, where the shift is known: nothing is checked."""
        return ChaosLogits(expand_jointly([self], x, shift)[0], self.chaos)

    def coefficients(
        self, x: Float[Tensor, "nodes features"], edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> ChaosLogits:
        """Return the random logits, of which all read-outs are made.

        Raises
        ------
        TypeError
            `x` or `edge_index` is not a tensor, or not of real numbers and integers.
        ValueError
            `x` has another number of features or a value that is not finite; an edge refers to a node that is not
            there; shapes do not fit; a weight is negative or not finite.
        """
        check_features(x, self.in_channels, type(self).__name__)
        return self.expand(x, self.shift(edge_index, edge_weight, len(x), x.dtype))

    def forward(
        self, x: Float[Tensor, "nodes features"], edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> Float[Tensor, "nodes classes"]:
        """Return the logarithms of the class probabilities, as ``nll_loss`` wants them; see `coefficients`."""
        return self.coefficients(x, edge_index, edge_weight).log_predictive(self.q_train)

    def regularization(self, logits: ChaosLogits, s0: float | str | Tensor = 1.0) -> Float[Tensor, ""]:
        """Return the mean of `variance_divergence` over nodes and classes: 0 where logits are not random.

        Parameters
        ----------
        logits : ChaosLogits
            What `coefficients` returned.
        s0 : float, "relative" or Tensor of shape (nodes,)
            Standard deviation that logits should have; relative is that of the node's mean logits over the classes.
        """
        return variance_divergence(logits.coefs[None], s0)[0]


class DSSHybrid(nn.Module):
    r"""Any encoder's logits and, beside them, a `DSSGNN` as a residual: C_0 = f(x, G) + β G_0, C_p = β G_p.

    Both are trained together. With β = 0 the mean logits are the encoder's own.

    Parameters
    ----------
    encoder : nn.Module
        ``encoder(x, edge_index)`` returns logits of shape (nodes, out_channels); weights of edges are passed to one whose
        ``forward`` has an argument ``edge_weight``.
    in_channels, out_channels : int
        Features and classes.
    beta : float
        β at the start; it is learned, and does not decay.
    freeze_encoder : bool
        Keep the encoder as it is, in eval mode, and train the residual only.
    **dss
        Of the `DSSGNN`.

    Raises
    ------
    TypeError
        `encoder` is no module that can be called so.
    ValueError
        As `DSSGNN`; at the first call, logits of another shape.

    Examples
    --------
    >>> class Plain(nn.Linear):
    ...     def forward(self, x, edge_index):
    ...         return super().forward(x)
    >>> model = DSSHybrid(Plain(16, 3), 16, 3, hidden_channels=8)
    >>> model(torch.randn(2, 16), torch.tensor([[0, 1], [1, 0]])).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        encoder: nn.Module,
        in_channels: int,
        out_channels: int,
        beta: float = 0.3,
        freeze_encoder: bool = False,
        **dss: Any,
    ) -> None:
        super().__init__()
        self.weighted = check_encoder(encoder)
        self.branch = DSSGNN(in_channels, out_channels, **dss)
        self.encoder = encoder
        self.start = check_real(beta, "beta")
        self.beta = nn.Parameter(torch.tensor(self.start))
        self.freeze_encoder = freeze_encoder
        if freeze_encoder:
            encoder.requires_grad_(False).eval()

    @property
    def chaos(self) -> OrthogonalBasis:
        """The orthogonal polynomials."""
        return self.branch.chaos

    @property
    def q_train(self) -> int:
        """Quadrature nodes of `forward`."""
        return self.branch.q_train

    def train(self, mode: bool = True) -> DSSHybrid:
        """Set train or eval mode; a frozen encoder stays in eval mode."""
        super().train(mode)
        if self.freeze_encoder:
            self.encoder.eval()
        return self

    def reset_parameters(self) -> None:
        """Draw the residual's weights anew, and the encoder's if it can and is not frozen."""
        self.branch.reset_parameters()
        with torch.no_grad():
            self.beta.fill_(self.start)
        reset = getattr(self.encoder, "reset_parameters", None)
        if reset is not None and not self.freeze_encoder:
            reset()

    def param_groups(
        self, lr: float = 0.01, weight_decay: float = 5e-4, filter_decay: float = 0.01
    ) -> list[dict[str, Any]]:
        """Return the parameter groups of an optimizer: the encoder decays as the branch's weights do, β does not."""
        groups = [
            *self.branch.param_groups(lr, weight_decay, filter_decay),
            {"params": list(self.encoder.parameters()), "lr": lr, "weight_decay": weight_decay},
            {"params": [self.beta], "lr": lr, "weight_decay": 0.0},
        ]
        return list(_learned(groups))

    def shift(
        self,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        num_nodes: int | None = None,
        dtype: torch.dtype | None = None,
    ) -> Float[Tensor, "nodes nodes"]:
        """Return the matrix that the filters are polynomials of; see `normalized_shift`."""
        return self.branch.shift(edge_index, edge_weight, num_nodes, dtype)

    def encode(
        self, x: Float[Tensor, "nodes features"], edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> Float[Tensor, "nodes classes"]:
        """Return the encoder's logits.

        Raises
        ------
        ValueError
            They have another shape.
        """
        weights = {} if edge_weight is None or not self.weighted else {"edge_weight": edge_weight}
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.freeze_encoder):
            logits: Any = self.encoder(x, edge_index, **weights)
        expected = (len(x), self.branch.out_channels)
        if not isinstance(logits, Tensor) or logits.shape != expected:
            got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ValueError(f"encoder must return logits of shape {expected}, got {got}")
        return logits

    def residual(
        self, x: Float[Tensor, "nodes features"], shift: Float[Tensor, "nodes nodes"]
    ) -> Float[Tensor, "orders nodes classes"]:
        """Return β G, what is added to the encoder's logits, where the shift is known."""
        scaled: Tensor = self.beta * expand_jointly([self.branch], x, shift)[0]
        return scaled

    def expand(
        self,
        x: Float[Tensor, "nodes features"],
        shift: Float[Tensor, "nodes nodes"],
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
    ) -> ChaosLogits:
        """Return the random logits, where the shift is known: features and edges are not checked."""
        residual = self.residual(x, shift)
        mean = self.encode(x, edge_index, edge_weight) + residual[0]
        return ChaosLogits(torch.cat([mean[None], residual[1:]]), self.chaos)

    def coefficients(
        self, x: Float[Tensor, "nodes features"], edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> ChaosLogits:
        """Return the random logits, of which all read-outs are made; see `DSSGNN.coefficients`."""
        check_features(x, self.branch.in_channels, type(self).__name__)
        return self.expand(x, self.shift(edge_index, edge_weight, len(x), x.dtype), edge_index, edge_weight)

    def forward(
        self, x: Float[Tensor, "nodes features"], edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> Float[Tensor, "nodes classes"]:
        """Return the logarithms of the class probabilities, as ``nll_loss`` wants them; see `coefficients`."""
        return self.coefficients(x, edge_index, edge_weight).log_predictive(self.q_train)

    def regularization(self, logits: ChaosLogits, s0: float | str | Tensor = 1.0) -> Float[Tensor, ""]:
        """Return the mean of `variance_divergence` over nodes and classes: 0 where logits are not random."""
        return self.branch.regularization(logits, s0)


def expand_jointly(
    models: Sequence[DSSGNN], x: Float[Tensor, "nodes features"], shift: Float[Tensor, "nodes nodes"]
) -> Float[Tensor, "models orders nodes classes"]:
    """Return the chaos coefficients of several networks of equal sizes: one product with x, one propagation for all.

    All see the same dropped features; hidden units are dropped independently.
    """
    first = models[0]
    x = drop_features(x, first.dropout, first.training)
    if len(models) == 1:
        hidden = first.lin1(x)[:, None]
    else:
        weight, bias = (torch.cat([getattr(model.lin1, name) for model in models]) for name in ("weight", "bias"))
        hidden = linear(x, weight, bias).view(len(x), len(models), first.hidden_channels)
    hidden = nn.functional.dropout(hidden.relu(), first.dropout, first.training)
    weight2 = torch.stack([model.weight2 for model in models])
    signals = torch.einsum("nmh,mphc->nmpc", hidden, weight2) + torch.stack([model.bias2 for model in models])
    theta = torch.cat([model.gamma.exp()[:, None] * model.filters.theta for model in models])
    filtered = filter_signals(signals.flatten(1, 2), theta, shift)
    return filtered.view(len(x), len(models), first.order + 1, first.out_channels).permute(1, 2, 0, 3)


def variance_divergence(
    coefs: Float[Tensor, "models orders nodes classes"], s0: float | str | Tensor = 1.0
) -> Float[Tensor, " models"]:
    r"""Return, for each model, the mean over nodes and classes of ½(r − log(r + 10⁻⁴) − 1), r = Var z / s0².

    For order 1 this is the divergence KL(N(m, v) ‖ N(m, s0²)), but for the floor, which bounds the gradient at 0. It keeps
    the logits random: the likelihood of the labels alone drives their variance to 0.

    Parameters
    ----------
    coefs : Tensor, shape (models, orders, nodes, classes)
        Chaos coefficients.
    s0 : float, "relative" or Tensor of shape (nodes,)
        Standard deviation that logits should have; relative is that of the node's mean logits over the classes.

    Returns
    -------
    Tensor, shape (models,)
        0 where there is no order above 0.

    Raises
    ------
    ValueError
        `s0` is not positive, or something else.

    Examples
    --------
    >>> coefs = torch.tensor([0.0, 2.0]).view(1, 2, 1, 1)
    >>> variance_divergence(coefs)
    tensor([0.8068])
    """
    if coefs.shape[1] == 1:
        return coefs.new_zeros(len(coefs))
    variance = coefs[:, 1:].square().sum(1)
    if isinstance(s0, Tensor):
        if s0.shape != coefs.shape[2:3] or not bool((s0 > 0).all()):
            raise ValueError(f"s0 must hold {coefs.shape[2]} positive numbers, got shape {tuple(s0.shape)}")
        scale: Any = s0.to(coefs)[:, None]
    elif s0 == "relative":
        scale = coefs[:, 0].detach().std(-1, correction=0, keepdim=True).clamp(min=1e-3)
    elif isinstance(s0, str):
        raise ValueError(f"s0 must be a number, 'relative' or a tensor, got {s0!r}")
    else:
        scale = check_real(s0, "s0", low=0, open_low=True)
    ratio = variance / scale**2
    divergence: Tensor = (ratio - (ratio + _FLOOR).log() - 1).mean((1, 2)) / 2
    return divergence


def check_encoder(encoder: Any) -> bool:
    """Raise unless `encoder` is a module whose forward takes x and edge_index; tell whether it takes edge_weight too."""
    if not isinstance(encoder, nn.Module):
        raise TypeError(f"encoder must be a torch module, got {type(encoder).__name__}")
    signature = inspect.signature(encoder.forward)
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise TypeError(f"encoder must have forward(x, edge_index), got {type(encoder).__name__}: {error}") from None
    return "edge_weight" in signature.parameters


def _learned(groups: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The groups without frozen parameters, where something is left."""
    for group in groups:
        params = [param for param in group["params"] if param.requires_grad]
        if params:
            yield group | {"params": params}
