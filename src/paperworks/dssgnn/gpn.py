"""Graph posterior network: class densities in a latent space, as evidence that is propagated along the edges."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.distributions import Dirichlet
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import APPNP

from paperworks.core.validation import check_integer
from paperworks.dssgnn.baselines import NetworkClassifier
from paperworks.dssgnn.features import FeatureLinear
from paperworks.dssgnn.fitting import train

__all__ = ["GPN", "RadialFlows", "posterior_loss"]


class RadialFlows(nn.Module):
    r"""Chains of radial flows, one for each of several densities, from a space to standard normal variables.

    .. math:: f(z) = z + \frac{β}{α + r}(z - z_0), \quad r = |z - z_0|, \quad α = \text{softplus}(a), \quad
              β = \text{softplus}(b) - α

    Parameters
    ----------
    flows : int
        Number of chains.
    dim : int
        Dimension of the space.
    depth : int
        Length of each chain.

    Attributes
    ----------
    center : Parameter, shape (depth, flows, dim)
        z_0.
    a, b : Parameter, shape (depth, flows)
        What α and β are made of.

    Shapes
    ------
    z : (points, dim) → f(z) of the whole chain (points, flows, dim), log |det ∂f/∂z| (points, flows)

    References
    ----------
    Rezende and Mohamed, "Variational inference with normalizing flows", ICML 2015.
    """

    def __init__(self, flows: int, dim: int, depth: int = 10) -> None:
        super().__init__()
        for value, name in ((flows, "flows"), (dim, "dim"), (depth, "depth")):
            check_integer(value, name, low=1)
        self.center = nn.Parameter(torch.empty(depth, flows, dim))
        self.a, self.b = nn.Parameter(torch.empty(depth, flows)), nn.Parameter(torch.empty(depth, flows))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters from the uniform distribution on ±1/√dim."""
        bound = 1 / math.sqrt(self.center.shape[2])
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self, z: Float[Tensor, "points dim"]
    ) -> tuple[Float[Tensor, "points flows dim"], Float[Tensor, "points flows"]]:
        """Return f(z), and log |det ∂f/∂z|."""
        dim = self.center.shape[2]
        image, log_det = z[:, None], z.new_zeros(1)
        for center, a, b in zip(self.center, self.a, self.b, strict=True):
            alpha = functional.softplus(a)
            beta = functional.softplus(b) - alpha
            offset = image - center
            r = (offset.square().sum(-1) + 1e-12).sqrt()
            h = 1 / (alpha + r)
            bh = beta * h
            image = image + bh[..., None] * offset
            log_det = log_det + (dim - 1) * bh.log1p() + (bh - bh * h * r).log1p()
        return image, log_det

    def log_prob(self, z: Float[Tensor, "points dim"]) -> Float[Tensor, "points flows"]:
        """Return the logarithm of each density at the points."""
        image, log_det = self(z)
        log_prob: Tensor = log_det - image.square().sum(-1) / 2 - image.shape[2] / 2 * math.log(2 * math.pi)
        return log_prob


def posterior_loss(
    alpha: Float[Tensor, "nodes classes"], y: Int[Tensor, " nodes"], entropy_weight: float = 1e-4
) -> Float[Tensor, ""]:
    """Return Σ_i ψ(Σ_c α_ic) − ψ(α_i,y_i), the expected cross-entropy, minus a weight times Dirichlet entropies.

    Parameters
    ----------
    alpha : Tensor, shape (nodes, classes)
        Parameters of the Dirichlet distributions.
    y : Tensor of int, shape (nodes,)
        Class indices.
    entropy_weight : float
        Of the entropies, summed over nodes.

    Examples
    --------
    >>> round(float(posterior_loss(torch.tensor([[2.0, 1.0]]), torch.tensor([0]), 0.0)), 6)
    0.5
    """
    # Large parameters would leave nothing but rounding of the entropy in float32.
    alpha = alpha.double()
    chosen = alpha.gather(1, y[:, None])[:, 0]
    expected = torch.digamma(alpha.sum(1)) - torch.digamma(chosen)
    entropy: Tensor = Dirichlet(alpha, validate_args=False).entropy()  # type: ignore[no-untyped-call]
    return (expected - entropy_weight * entropy).sum()


@dataclass(kw_only=True, eq=False)
class GPN(NetworkClassifier):
    """Graph posterior network: Dirichlet distributions of the class probabilities, by densities in a latent space.

    Each class has a normalising flow as density of the latent codes of its nodes. Densities times class frequencies
    are pseudo-counts, which personalised PageRank spreads over the graph; 1 is added to each.

    Parameters
    ----------
    hidden_channels, dropout, lr, weight_decays, epochs, patience, random_state, device
        See `NetworkClassifier`; dropout is of hidden units only, and flows have no weight decay.
    latent_channels : int
        Dimension of the latent space.
    depth : int
        Radial flows of each class.
    K, alpha
        Steps of the propagation, and probability of a restart.
    warm_up : int
        Epochs before the others in which only the flows are trained.

    References
    ----------
    Stadler et al., "Graph posterior network: Bayesian predictive uncertainty for node classification", NeurIPS 2021.
    """

    scores: ClassVar[tuple[str, ...]] = ("evidence", "msp", "entropy")

    latent_channels: int = 16
    depth: int = 10
    K: int = 10
    alpha: float = 0.1
    warm_up: int = 5

    def concentration(self, data: Data) -> Float[Tensor, "nodes classes"]:
        """Return the parameters of each node's Dirichlet distribution, in float64 on the CPU."""
        return self.logits(data).double().exp()

    def _network(self, in_channels: int, classes: int) -> nn.Module:
        encoder = nn.Sequential(
            FeatureLinear(in_channels, self.hidden_channels),
            nn.ReLU(),
            nn.Dropout(self.dropout),
            nn.Linear(self.hidden_channels, self.latent_channels),
        )
        return _GPN(
            encoder, RadialFlows(classes, self.latent_channels, self.depth), APPNP(self.K, self.alpha, normalize=False)
        )

    def _start(self, network: nn.Module, inputs: tuple[Tensor, ...], y: Tensor, training: Tensor) -> None:
        assert isinstance(network, _GPN)
        counts = torch.bincount(y[training], minlength=len(network.log_prior))
        network.log_prior.copy_((counts / counts.sum()).log())
        if check_integer(self.warm_up, "warm_up", low=0):
            train(
                network,
                lambda net: self._loss(net(*inputs)[training], y[training]),
                network.flows.parameters(),
                lr=self.lr,
                epochs=self.warm_up,
                seed=self.seed_,
                device=y.device,
            )

    def _groups(self, network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
        assert isinstance(network, _GPN)
        return [
            {"params": list(network.encoder.parameters()), "weight_decay": weight_decay},
            {"params": list(network.flows.parameters())},
        ]

    def _loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return posterior_loss(logits.double().exp(), y)

    def _score(self, data: Data, method: str) -> Tensor:
        return -self.concentration(data).sum(1) if method == "evidence" else super()._score(data, method)


class _GPN(nn.Module):
    """Logarithms of the Dirichlet distributions' parameters, whose softmax are the mean class probabilities."""

    log_prior: Tensor

    def __init__(self, encoder: nn.Module, flows: RadialFlows, propagation: nn.Module) -> None:
        super().__init__()
        self.encoder, self.flows, self.propagation = encoder, flows, propagation
        self.register_buffer("log_prior", torch.zeros(flows.center.shape[1]))

    def forward(self, x: Tensor, shift: Tensor) -> Tensor:
        z = self.encoder(x)
        scale = z.shape[1] / 2 * math.log(4 * math.pi)
        counts = (self.flows.log_prob(z) + self.log_prior + scale).clamp(-30, 30).exp()
        logits: Tensor = self.propagation(counts, shift).log1p()
        return logits
