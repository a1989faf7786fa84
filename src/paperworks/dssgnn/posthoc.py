"""Calibration of a trained classifier's logits on validation nodes: one temperature, or one for each node."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv
from torch_geometric.utils import scatter, softmax

from paperworks.core.validation import check_integer, check_real
from paperworks.dssgnn.baselines import check_fitted
from paperworks.dssgnn.filters import neighbourhoods, normalized_shift
from paperworks.dssgnn.fitting import train

__all__ = ["GATS", "CaGCN", "TemperatureScaling", "graph_temperatures"]

_Calibration = TypeVar("_Calibration", bound="_GraphCalibration")


class TemperatureScaling:
    """One temperature T > 0 for all nodes: logits / T, with T of the lowest NLL.

    Attributes
    ----------
    temperature_ : float
        T; above 1 makes probabilities less extreme.
    nll_before_, nll_after_ : float
        Mean negative log-likelihood of the nodes that it was fitted to.

    References
    ----------
    Guo et al., "On calibration of modern neural networks", ICML 2017.

    Examples
    --------
    >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [4.0, 0.0]])
    >>> scaling = TemperatureScaling().fit(logits, torch.tensor([0, 0, 0, 1]))
    >>> scaling.predict_proba(logits)[0].round(4)
    array([0.75, 0.25])
    """

    temperature_: float
    nll_before_: float
    nll_after_: float

    def fit(self, logits: Float[Tensor, "nodes classes"], y: Int[Tensor, " nodes"]) -> TemperatureScaling:
        """Find the temperature.

        Parameters
        ----------
        logits : Tensor, shape (nodes, classes)
            Of nodes that the classifier was not trained on.
        y : Tensor of int, shape (nodes,)
            Their classes.

        Raises
        ------
        ValueError
            `logits` are probabilities or not finite, there are none, or `y` does not fit.

        Warns
        -----
        UserWarning
            The temperature stayed at 1, or ended at a bound of the search, exp(±4).
        """
        z, y = _check_logits(logits).double(), _check_labels(y, logits)
        if len(z) == 0:
            raise ValueError("logits must have at least one row")

        def loss(log_t: float) -> float:
            return functional.cross_entropy(z / np.exp(log_t), y).item()

        found = minimize_scalar(loss, bounds=(-4, 4), method="bounded", options={"xatol": 1e-8})
        # The search never tries the bounds themselves, where the minimum of separable nodes is.
        log_t = min((0.0, float(found.x), -4.0, 4.0), key=loss)
        self.temperature_ = float(np.exp(log_t))
        self.nll_before_, self.nll_after_ = loss(0.0), loss(log_t)
        if abs(log_t) > 4 - 1e-3:
            warnings.warn(
                f"the temperature ended at a bound of its search, {self.temperature_:.4g}: the NLL has no minimum inside",
                stacklevel=2,
            )
        elif abs(log_t) < 1e-3:
            warnings.warn(
                f"the temperature stayed at 1: no other lowers the NLL of {self.nll_before_:.4g}", stacklevel=2
            )
        return self

    def transform(self, logits: Float[Tensor, "nodes classes"]) -> Float[Tensor, "nodes classes"]:
        """Return the calibrated logits.

        Raises
        ------
        ValueError
            `logits` are probabilities or not finite.
        """
        check_fitted(self, "temperature_")
        return _check_logits(logits) / self.temperature_

    def predict_proba(self, logits: Float[Tensor, "nodes classes"]) -> Float[np.ndarray, "nodes classes"]:
        """Return the calibrated probabilities, in float64."""
        return _proba(self.transform(logits))


@dataclass(eq=False)
class _GraphCalibration(ABC):
    """A factor for each node from its own logits and its neighbours', learned on the validation nodes."""

    _: KW_ONLY
    lr: float = 0.01
    weight_decay: float = 0.0
    epochs: int = 2000
    patience: int = 100
    random_state: int = 0

    def fit(
        self: _Calibration,
        logits: Float[Tensor, "nodes classes"],
        y: Int[Tensor, " nodes"],
        edge_index: Int[Tensor, "2 edges"],
        val_mask: Bool[Tensor, " nodes"],
        train_mask: Bool[Tensor, " nodes"],
    ) -> _Calibration:
        """Learn from the validation nodes, until the NLL of the training nodes no longer improves.

        Parameters
        ----------
        logits : Tensor, shape (nodes, classes)
            Of all nodes.
        y : Tensor of int, shape (nodes,)
            Classes; only those of validation and training nodes are read.
        edge_index : Tensor of int, shape (2, edges)
            The graph, both directions of each edge.
        val_mask, train_mask : Tensor of bool, shape (nodes,)
            Which nodes are which.

        Raises
        ------
        ValueError
            `logits` are probabilities or not finite, labels or masks do not fit, or a mask is empty.
        """
        z = _check_logits(logits).detach()
        for mask, name in ((val_mask, "val_mask"), (train_mask, "train_mask")):
            if mask.shape != z.shape[:1]:
                raise ValueError(f"{name} must have shape ({len(z)},), got {tuple(mask.shape)}")
            if not mask.any():
                raise ValueError(f"{name} must hold at least one node")
        of_validation, of_training = (_check_labels(y[mask], z[mask]) for mask in (val_mask, train_mask))
        inputs = self._inputs(z, edge_index, train_mask)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(check_integer(self.random_state, "random_state", low=0))
            module = self._module(z.shape[1]).to(z.device, z.dtype)
        train(
            module,
            lambda net: self._loss(net(z, *inputs)[val_mask], of_validation),
            [{"params": list(module.parameters()), "weight_decay": self.weight_decay}],
            validate=lambda net: functional.cross_entropy(net(z, *inputs)[train_mask], of_training),
            lr=self.lr,
            epochs=self.epochs,
            patience=self.patience,
            evaluate_every=1,
            seed=self.random_state,
            device=z.device,
        )
        self.module_ = module.eval()
        with torch.no_grad():
            after = module(z, *inputs)[val_mask]
        self.nll_before_ = functional.cross_entropy(z[val_mask], of_validation).item()
        self.nll_after_ = functional.cross_entropy(after, of_validation).item()
        return self

    def _calibrated(self, logits: Tensor, edge_index: Tensor, train_mask: Tensor | None = None) -> Tensor:
        check_fitted(self, "module_")
        z = _check_logits(logits)
        with torch.no_grad():
            calibrated: Tensor = self.module_(z, *self._inputs(z, edge_index, train_mask))
        return calibrated

    @abstractmethod
    def _module(self, classes: int) -> nn.Module: ...

    @abstractmethod
    def _inputs(self, z: Tensor, edge_index: Tensor, train_mask: Tensor | None) -> tuple[Tensor, ...]: ...

    def _loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(logits, y)


@dataclass(eq=False)
class CaGCN(_GraphCalibration):
    """A positive factor for each node, the softplus of two graph convolutions of the logits, times its logits.

    Parameters
    ----------
    hidden_channels : int
        Width between the convolutions.
    margin : float
        Weight of a second term in the loss: the mean of 1 − p1 + p2 over nodes that are classified rightly, and of
        p1 − p2 over the others, p1 and p2 being the two largest probabilities.
    lr, weight_decay : float
        Of Adam.
    epochs, patience : int
        Most epochs, and how many without improvement on the training nodes end the fit.
    random_state : int
        Seed.

    Attributes
    ----------
    module_ : nn.Module
        What was learned.
    nll_before_, nll_after_ : float
        Mean negative log-likelihood of the validation nodes.

    References
    ----------
    Wang et al., "Be confident! Towards trustworthy graph neural networks via confidence calibration", NeurIPS 2021.
    """

    hidden_channels: int = 16
    _: KW_ONLY
    margin: float = 0.0

    def transform(
        self, logits: Float[Tensor, "nodes classes"], edge_index: Int[Tensor, "2 edges"]
    ) -> Float[Tensor, "nodes classes"]:
        """Return the calibrated logits of all nodes of a graph.

        Raises
        ------
        ValueError
            `logits` are probabilities or not finite.
        """
        return self._calibrated(logits, edge_index)

    def predict_proba(
        self, logits: Float[Tensor, "nodes classes"], edge_index: Int[Tensor, "2 edges"]
    ) -> Float[np.ndarray, "nodes classes"]:
        """Return the calibrated probabilities, in float64."""
        return _proba(self.transform(logits, edge_index))

    def _module(self, classes: int) -> nn.Module:
        check_real(self.margin, "margin", low=0)
        return _CaGCN(classes, check_integer(self.hidden_channels, "hidden_channels", low=1))

    def _inputs(self, z: Tensor, edge_index: Tensor, train_mask: Tensor | None) -> tuple[Tensor, ...]:
        return (normalized_shift(edge_index, num_nodes=len(z), dtype=z.dtype),)

    def _loss(self, logits: Tensor, y: Tensor) -> Tensor:
        loss = super()._loss(logits, y)
        if self.margin == 0 or logits.shape[1] < 2:
            return loss
        largest, second = logits.softmax(1).topk(2, dim=1).values.unbind(1)
        gap = largest - second
        return loss + self.margin * torch.where(logits.argmax(1) == y, 1 - gap, gap).mean()


@dataclass(eq=False)
class GATS(_GraphCalibration):
    """A temperature for each node by attention to its neighbours: see `graph_temperatures`.

    Parameters
    ----------
    heads : int
        Number of heads.
    lr, weight_decay : float
        Of Adam.
    epochs, patience : int
        Most epochs, and how many without improvement on the training nodes end the fit.
    random_state : int
        Seed.

    Attributes
    ----------
    module_ : nn.Module
        What was learned.
    nll_before_, nll_after_ : float
        Mean negative log-likelihood of the validation nodes.

    References
    ----------
    Hsu et al., "What makes graph neural networks miscalibrated?", NeurIPS 2022.
    """

    heads: int = 8

    def transform(
        self,
        logits: Float[Tensor, "nodes classes"],
        edge_index: Int[Tensor, "2 edges"],
        train_mask: Bool[Tensor, " nodes"],
    ) -> Float[Tensor, "nodes classes"]:
        """Return the calibrated logits of all nodes of a graph, of which `train_mask` were trained on.

        Raises
        ------
        ValueError
            `logits` are probabilities or not finite.
        """
        return self._calibrated(logits, edge_index, train_mask)

    def predict_proba(
        self,
        logits: Float[Tensor, "nodes classes"],
        edge_index: Int[Tensor, "2 edges"],
        train_mask: Bool[Tensor, " nodes"],
    ) -> Float[np.ndarray, "nodes classes"]:
        """Return the calibrated probabilities, in float64."""
        return _proba(self.transform(logits, edge_index, train_mask))

    def _module(self, classes: int) -> nn.Module:
        return _GATS(classes, check_integer(self.heads, "heads", low=1))

    def _inputs(self, z: Tensor, edge_index: Tensor, train_mask: Tensor | None) -> tuple[Tensor, ...]:
        assert train_mask is not None
        edges = neighbourhoods(normalized_shift(edge_index, num_nodes=len(z)))
        source, target = edges
        near = torch.zeros_like(train_mask)
        near[target[train_mask[source]]] = True
        # 0: a training node; 1: next to one; 2: neither.
        place = torch.where(train_mask, 0, torch.where(near, 1, 2))
        return edges, place


def graph_temperatures(
    logits: Float[Tensor, "nodes classes"],
    edges: Int[Tensor, "2 edges"],
    cluster: Float[Tensor, " nodes"],
    weight: Float[Tensor, "classes heads"],
    slope: Float[Tensor, ""],
    bias: Float[Tensor, ""],
) -> Float[Tensor, " nodes"]:
    r"""Return the temperature of each node,

    .. math:: T_i = b + \text{mean}_h\, \text{softplus}\Big(\sum_j α_{ij} a_j τ_{jh}
              + w\, \text{mean}_j (c_i - c_j)\Big)

    Here j runs over the neighbours of i and i itself, α_i: is the softmax of LeakyReLU(⟨z_j/a_j, z_i/a_i⟩) over them,
    τ_j the row s_j W of the logits z_j, scaled to [0, 1] (constant ones to 0) and sorted, and c the confidence.

    Parameters
    ----------
    logits : Tensor, shape (nodes, classes)
        z.
    edges : Tensor of int, shape (2, edges)
        j and i, with a self loop at each node.
    cluster : Tensor, shape (nodes,)
        a.
    weight : Tensor, shape (classes, heads)
        W.
    slope, bias : Tensor, scalars
        w and b.
    """
    source, target = edges
    nodes = len(logits)
    low, high = logits.amin(1, keepdim=True), logits.amax(1, keepdim=True)
    span = high - low
    scaled = (logits - low) / torch.where(span > 0, span, 1)
    tau = scaled.sort(dim=1).values @ weight
    scores = logits / cluster[:, None]
    attention = softmax(functional.leaky_relu((scores[source] * scores[target]).sum(1), 0.2), target, num_nodes=nodes)
    mixed = scatter((attention * cluster[source])[:, None] * tau[source], target, 0, nodes, reduce="sum")
    confidence = logits.softmax(1).amax(1)
    excess = confidence - scatter(confidence[source], target, 0, nodes, reduce="mean")
    temperatures: Tensor = functional.softplus(mixed + slope * excess[:, None]).mean(1) + bias
    return temperatures


class _CaGCN(nn.Module):
    def __init__(self, classes: int, hidden: int) -> None:
        super().__init__()
        self.first, self.second = GCNConv(classes, hidden, normalize=False), GCNConv(hidden, 1, normalize=False)

    def forward(self, z: Tensor, shift: Tensor) -> Tensor:
        return z * functional.softplus(self.second(self.first(z, shift).relu(), shift))


class _GATS(nn.Module):
    # A temperature that learning drives below this would turn the order of the classes around.
    FLOOR = 0.01

    def __init__(self, classes: int, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(classes, heads)))
        self.cluster = nn.Parameter(torch.ones(2))
        self.slope, self.bias = nn.Parameter(torch.zeros(())), nn.Parameter(torch.ones(()))

    def forward(self, z: Tensor, edges: Tensor, place: Tensor) -> Tensor:
        cluster = torch.cat([self.cluster, self.cluster.new_ones(1)])[place]
        temperature = graph_temperatures(z, edges, cluster, self.weight, self.slope, self.bias)
        return z / temperature.clamp(min=self.FLOOR)[:, None]


def _check_logits(logits: Tensor) -> Tensor:
    if logits.ndim != 2 or logits.shape[1] == 0:
        raise ValueError(f"logits must have shape (nodes, classes), got {tuple(logits.shape)}")
    if not logits.isfinite().all():
        row = int((~logits.isfinite().all(1)).nonzero()[0])
        raise ValueError(f"logits must be finite, got {logits[row].tolist()} in row {row}")
    if len(logits) and bool((logits >= 0).all()) and bool(((logits.sum(1) - 1).abs() < 1e-4).all()):
        raise ValueError("rows sum to 1: these look like probabilities")
    return logits


def _check_labels(y: Tensor, logits: Tensor) -> Tensor:
    if y.shape != logits.shape[:1]:
        raise ValueError(f"y must have shape ({len(logits)},), got {tuple(y.shape)}")
    wrong = (y < 0) | (y >= logits.shape[1])
    if wrong.any():
        raise ValueError(f"y holds class {int(y[wrong][0])} but logits have {logits.shape[1]} columns")
    return y


def _proba(logits: Tensor) -> NDArray[np.float64]:
    proba: NDArray[np.float64] = logits.detach().double().softmax(1).cpu().numpy()
    return proba
