"""What else one would fit to the same graph, each tuned over as many candidates and chosen by validation likelihood."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GATConv, GCNConv

from paperworks.core.validation import check_choice, check_integer, check_real
from paperworks.dssgnn.chaos import propagate_scores
from paperworks.dssgnn.features import FeatureLinear, check_features, compact, drop_features
from paperworks.dssgnn.filters import distinct_edges, neighbourhoods, normalized_shift
from paperworks.dssgnn.fitting import pick_device, train
from paperworks.dssgnn.graphs import Graph, Labels, labels_of, make_graph

__all__ = [
    "APPNPClassifier",
    "DeepEnsemble",
    "GATClassifier",
    "GCNClassifier",
    "GNNSafe",
    "MCDropout",
    "MLPClassifier",
    "NodeClassifier",
]

_Classifier = TypeVar("_Classifier", bound="NodeClassifier")
_Network = TypeVar("_Network", bound="NetworkClassifier")


class NodeClassifier(ABC):
    """What every baseline can do, from the class probabilities of one or more members.

    `data` is a ``torch_geometric.data.Data`` with dense or sparse CSR `x` (nodes, features) and `edge_index` (2, edges),
    both directions of each edge; `fit` also reads `y` (−1 where there is no label), `train_mask` and `val_mask`. There
    are as many classes as the largest label says. Other graphs with the same features can be predicted too.

    Attributes
    ----------
    scores : tuple of str
        Methods of `ood_score`, the default first.
    """

    scores: ClassVar[tuple[str, ...]] = ("entropy", "msp", "mi")

    @abstractmethod
    def fit(self: _Classifier, data: Data) -> _Classifier:
        """Train on the graph.

        Raises
        ------
        ValueError
            Labels or masks are missing or do not fit.
        """

    @abstractmethod
    def member_proba(self, data: Data) -> Float[Tensor, "members nodes classes"]:
        """Return the class probabilities of every member, in float64."""

    def predict_proba(self, data: Data) -> Float[np.ndarray, "nodes classes"]:
        """Return class probabilities, shape (nodes, classes): the mean over the members, rows sum to 1.

        Raises
        ------
        ValueError
            `data` has another number of features than what was fitted.
        """
        proba: NDArray[np.float64] = self.member_proba(data).mean(0).numpy()
        return proba

    def predict(self, data: Data) -> Int[np.ndarray, " nodes"]:
        """Return the most probable class of each node."""
        labels: NDArray[np.intp] = self.predict_proba(data).argmax(1)
        return labels

    def ood_score(
        self, data: Data, method: str | None = None, *, propagate: tuple[int, float] | None = None
    ) -> Float[np.ndarray, " nodes"]:
        """Return a score of each node that is larger for what is more out of distribution.

        Parameters
        ----------
        data : Data
            The graph.
        method : str, optional
            One of `scores`, by default the first: "msp", minus the largest class probability; "entropy" of the class
            probabilities; "mi", mutual information of label and member; "energy", −log Σ exp of the logits;
            "evidence", minus the total of a Dirichlet distribution.
        propagate : (int, float), optional
            Steps and own weight for `propagate_scores`; by default scores stay as they are.

        Raises
        ------
        ValueError
            A method that is not among `scores`.
        """
        score = self._score(data, check_choice(self.scores[0] if method is None else method, "method", self.scores))
        if propagate is not None:
            steps, alpha = propagate
            edges = distinct_edges(make_graph(data).edge_index.cpu(), len(score))
            score = propagate_scores(score, edges, steps=steps, alpha=alpha)
        values: NDArray[np.float64] = score.numpy()
        return values

    def agreement(self, data: Data, pairs: Int[Tensor, "2 pairs"]) -> Float[np.ndarray, " pairs"]:
        """Return the probability that two nodes have the same label: the members' mean of Σ_c p_ic p_jc.

        Parameters
        ----------
        data : Data
            The graph.
        pairs : Tensor of int, shape (2, pairs)
            Nodes i and j.
        """
        first, second = pairs.cpu()
        agree = torch.zeros(len(first), dtype=torch.float64)
        members = self.member_proba(data)
        for proba in members:
            agree += (proba[first] * proba[second]).sum(1) / len(members)
        values: NDArray[np.float64] = agree.numpy()
        return values

    def _score(self, data: Data, method: str) -> Tensor:
        members = self.member_proba(data)
        mean = members.mean(0)
        if method == "msp":
            return -mean.amax(1)
        entropy: Tensor = torch.special.entr(mean).sum(1)
        return entropy if method == "entropy" else (entropy - torch.special.entr(members).sum(2).mean(0)).clamp(min=0)


@dataclass(kw_only=True, eq=False)
class NetworkClassifier(NodeClassifier):
    """A network trained once a weight decay; the one with the lowest validation NLL is kept.

    Parameters
    ----------
    hidden_channels : int
        Width of the hidden layer.
    dropout : float
        Probability, of features and hidden units.
    lr : float
        Learning rate of Adam.
    weight_decays : sequence of float
        The candidates.
    epochs, patience : int
        Most epochs, and how many without improvement of the validation NLL, which is computed every 4, end the training.
    random_state : int, optional
        Seed of weights and dropout, the same for all candidates; by default a new one for each fit.
    device : str or torch.device
        Where to train; "auto" is a GPU if there is one.

    Attributes
    ----------
    network_ : nn.Module
        The network that was kept, in eval mode.
    selection_ : DataFrame
        One row a candidate: weight_decay, validation_nll, epoch (of the weights kept), selected.
    weight_decay_ : float
        Of the network that was kept.
    n_classes_, n_features_in_, seed_ : int
        What was fitted, and its seed.
    """

    scores: ClassVar[tuple[str, ...]] = ("energy", "msp", "entropy")

    hidden_channels: int = 64
    dropout: float = 0.5
    lr: float = 0.01
    weight_decays: Sequence[float] = (5e-4, 5e-3, 0.0)
    epochs: int = 200
    patience: int = 100
    random_state: int | None = None
    device: str | torch.device = "auto"

    def fit(self: _Network, data: Data) -> _Network:
        """Train on the graph.

        Raises
        ------
        ValueError
            Labels or masks are missing or do not fit, or there is no candidate.
        """
        labels, width, classes = _check_split(data), data.x.shape[1], int(data.y.max()) + 1
        self.seed_ = _seed(self.random_state)
        check_integer(self.hidden_channels, "hidden_channels", low=1)
        if len(self.weight_decays) == 0:
            raise ValueError("weight_decays must have at least one candidate")
        for weight_decay in self.weight_decays:
            check_real(weight_decay, "weight_decays", low=0)
        device = pick_device(self.device)
        inputs, y = self._inputs(self._graph(data, None)), data.y.to(device)
        training, validation = (torch.as_tensor(mask, device=device) for mask in (labels.train, labels.val))
        rows: list[dict[str, float]] = []
        for weight_decay in self.weight_decays:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(self.seed_)
                network = self._network(width, classes).to(device)
            self._start(network, inputs, y, training)
            history = train(
                network,
                lambda net: self._loss(net(*inputs)[training], y[training]),
                self._groups(network, weight_decay),
                validate=lambda net: functional.cross_entropy(net(*inputs)[validation], y[validation]),
                lr=self.lr,
                epochs=self.epochs,
                patience=self.patience,
                seed=self.seed_,
                device=device,
            )
            assert history.best is not None
            nll = history.best["validation_loss"]
            if not rows or nll < min(row["validation_nll"] for row in rows):
                best = network.eval(), weight_decay
            rows.append({"weight_decay": weight_decay, "validation_nll": nll, "epoch": int(history.best["step"])})
        self.network_, self.weight_decay_ = best
        self.n_classes_, self.n_features_in_ = classes, width
        self.selection_ = pd.DataFrame(rows)
        self.selection_["selected"] = np.arange(len(rows)) == self.selection_["validation_nll"].argmin()
        return self

    def logits(self, data: Data) -> Float[Tensor, "nodes classes"]:
        """Return the logits, whose softmax are the class probabilities, on the CPU.

        Raises
        ------
        ValueError
            `data` has another number of features than what was fitted.
        """
        inputs = self._checked_inputs(data)
        with torch.no_grad():
            logits: Tensor = self.network_(*inputs).cpu()
        return logits

    def member_proba(self, data: Data) -> Float[Tensor, "1 nodes classes"]:
        """Return the class probabilities in float64, as those of the only member."""
        return self.logits(data).double().softmax(1)[None]

    def sample_proba(self, data: Data, passes: int, seed: int) -> Float[Tensor, "passes nodes classes"]:
        """Return the class probabilities of passes with dropout, in float64.

        Parameters
        ----------
        data : Data
            The graph.
        passes : int
            How many.
        seed : int
            Of the dropout.
        """
        passes = check_integer(passes, "passes", low=1)
        inputs = self._checked_inputs(data)
        cuda = [inputs[0].device] if inputs[0].is_cuda else []
        for part in self.network_.modules():
            part.training = not isinstance(part, nn.BatchNorm1d)
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=cuda):
                torch.manual_seed(seed)
                members = [self.network_(*inputs).double().softmax(1).cpu() for _ in range(passes)]
        finally:
            self.network_.eval()
        return torch.stack(members)

    @abstractmethod
    def _network(self, in_channels: int, classes: int) -> nn.Module: ...

    def _inputs(self, graph: Graph) -> tuple[Tensor, ...]:
        """What the network takes: features and shift."""
        return compact(graph.x), normalized_shift(
            graph.edge_index, graph.edge_weight, len(graph.x), dtype=graph.x.dtype
        )

    def _graph(self, data: Data, width: int | None) -> Graph:
        """The checked graph, with features of the network's dtype, on its device."""
        graph = make_graph(data)
        check_features(graph.x, width, type(self).__name__)
        return replace(graph, x=graph.x.to(torch.float32)).to(pick_device(self.device))

    def _checked_inputs(self, data: Data) -> tuple[Tensor, ...]:
        check_fitted(self, "network_")
        return self._inputs(self._graph(data, self.n_features_in_))

    def _start(self, network: nn.Module, inputs: tuple[Tensor, ...], y: Tensor, training: Tensor) -> None:
        """What comes before the training."""

    def _groups(self, network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
        return [{"params": list(network.parameters()), "weight_decay": weight_decay}]

    def _loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(logits, y)

    def _score(self, data: Data, method: str) -> Tensor:
        return -self.logits(data).double().logsumexp(1) if method == "energy" else super()._score(data, method)


@dataclass(kw_only=True, eq=False)
class GCNClassifier(NetworkClassifier):
    """Two graph convolutions.

    Parameters
    ----------
    hidden_channels, dropout, lr, weight_decays, epochs, patience, random_state, device
        See `NetworkClassifier`.
    batch_norm : bool
        Whether hidden units are normalised over the nodes.

    References
    ----------
    Kipf and Welling, "Semi-supervised classification with graph convolutional networks", ICLR 2017.

    Examples
    --------
    >>> edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    >>> mask = torch.tensor([True, False, True, False])
    >>> data = Data(x=torch.eye(2)[[0, 0, 1, 1]], edge_index=edges, y=torch.tensor([0, 0, 1, 1]))
    >>> data.train_mask, data.val_mask = mask, ~mask
    >>> GCNClassifier(hidden_channels=8, epochs=20, random_state=0).fit(data).predict(data)
    array([0, 0, 1, 1])
    """

    batch_norm: bool = False

    def _network(self, in_channels: int, classes: int) -> nn.Module:
        return _GCN(in_channels, self.hidden_channels, classes, self.dropout, self.batch_norm)


@dataclass(kw_only=True, eq=False)
class GATClassifier(NetworkClassifier):
    """Two graph attention layers, the first with several heads; edge weights are not used.

    Parameters
    ----------
    hidden_channels, dropout, lr, weight_decays, epochs, patience, random_state, device
        See `NetworkClassifier`; dropout is also that of the attention.
    heads : int
        Number of heads, of hidden_channels / heads units each.

    Raises
    ------
    ValueError
        In `fit`: `heads` does not divide `hidden_channels`.

    References
    ----------
    Veličković et al., "Graph attention networks", ICLR 2018.
    """

    heads: int = 8

    def _network(self, in_channels: int, classes: int) -> nn.Module:
        heads = check_integer(self.heads, "heads", low=1)
        if self.hidden_channels % heads:
            raise ValueError(f"hidden_channels must be a multiple of heads, got {self.hidden_channels} and {heads}")
        return _GAT(in_channels, self.hidden_channels // heads, classes, heads, self.dropout)

    def _inputs(self, graph: Graph) -> tuple[Tensor, ...]:
        x, shift = super()._inputs(graph)
        return x, neighbourhoods(shift)


@dataclass(kw_only=True, eq=False)
class APPNPClassifier(NetworkClassifier):
    """A network of two layers whose logits are propagated by personalised PageRank.

    Parameters
    ----------
    hidden_channels, dropout, lr, weight_decays, epochs, patience, random_state, device
        See `NetworkClassifier`.
    K : int
        Steps of propagation.
    alpha : float
        Probability of a restart.

    References
    ----------
    Gasteiger, Bojchevski and Günnemann, "Predict then propagate", ICLR 2019.
    """

    K: int = 10
    alpha: float = 0.1

    def _network(self, in_channels: int, classes: int) -> nn.Module:
        propagation = APPNP(self.K, self.alpha, normalize=False)
        return _MLP(in_channels, self.hidden_channels, classes, self.dropout, propagation)


class MLPClassifier(NetworkClassifier):
    """A network of two layers that sees no edges.

    Parameters
    ----------
    hidden_channels, dropout, lr, weight_decays, epochs, patience, random_state, device
        See `NetworkClassifier`.
    """

    def _network(self, in_channels: int, classes: int) -> nn.Module:
        return _MLP(in_channels, self.hidden_channels, classes, self.dropout)

    def _inputs(self, graph: Graph) -> tuple[Tensor, ...]:
        return (compact(graph.x),)


@dataclass(eq=False)
class MCDropout(NodeClassifier):
    """The mean class probabilities of passes with dropout through one trained network.

    Parameters
    ----------
    base : NetworkClassifier, optional
        What to train, by default a `GCNClassifier`.
    passes : int
        Number of passes.
    random_state : int, optional
        Seed of training and passes; every prediction uses the same passes.
    prefit : bool
        Whether `base` is already fitted and taken as it is.

    Attributes
    ----------
    base_ : NetworkClassifier
        What was trained.

    References
    ----------
    Gal and Ghahramani, "Dropout as a Bayesian approximation", ICML 2016.
    """

    base: NetworkClassifier | None = None
    passes: int = 20
    _: KW_ONLY
    random_state: int | None = None
    prefit: bool = False

    def fit(self, data: Data) -> MCDropout:
        """Train the network on the graph."""
        check_integer(self.passes, "passes", low=1)
        self.seed_ = _seed(self.random_state)
        self.base_ = _fitted(self.base, data, self.seed_, self.prefit)
        return self

    def member_proba(self, data: Data) -> Float[Tensor, "passes nodes classes"]:
        """Return the class probabilities of every pass, in float64."""
        check_fitted(self, "base_")
        return self.base_.sample_proba(data, self.passes, self.seed_)


@dataclass(eq=False)
class DeepEnsemble(NodeClassifier):
    """The mean class probabilities of networks that were trained from different seeds.

    The weight decay is chosen with the first member, which is what `base` alone is with the same seed.

    Parameters
    ----------
    base : NetworkClassifier, optional
        What to train, by default a `GCNClassifier`.
    members : int
        Number of networks.
    random_state : int, optional
        Seed of the first member, from which the other seeds come.

    Attributes
    ----------
    members_ : list of NetworkClassifier
        The networks.

    References
    ----------
    Lakshminarayanan, Pritzel and Blundell, "Simple and scalable predictive uncertainty estimation using deep
    ensembles", NeurIPS 2017.
    """

    base: NetworkClassifier | None = None
    members: int = 5
    _: KW_ONLY
    random_state: int | None = None

    def fit(self, data: Data) -> DeepEnsemble:
        """Train all members on the graph."""
        more = check_integer(self.members, "members", low=1) - 1
        seed = _seed(self.random_state)
        first = _fitted(self.base, data, seed, False)
        rest = replace(first, weight_decays=(first.weight_decay_,))
        seeds = np.random.SeedSequence(seed).generate_state(more).tolist()
        self.members_ = [first, *(_fitted(rest, data, other, False) for other in seeds)]
        return self

    def member_proba(self, data: Data) -> Float[Tensor, "members nodes classes"]:
        """Return the class probabilities of every member, in float64."""
        check_fitted(self, "members_")
        return torch.cat([member.member_proba(data) for member in self.members_])


@dataclass(eq=False)
class GNNSafe(NodeClassifier):
    """Energies of a classifier, propagated along the edges.

    The published encoder is ``GCNClassifier(batch_norm=True, dropout=0.0, weight_decays=(0.01,))``.

    Parameters
    ----------
    base : NetworkClassifier, optional
        What to train, by default a `GCNClassifier`.
    steps : int
        Steps of propagation.
    alpha : float
        Weight of a node's own score in each, in [0, 1].
    random_state : int, optional
        Seed of the training.
    prefit : bool
        Whether `base` is already fitted and taken as it is.

    Attributes
    ----------
    base_ : NetworkClassifier
        What was trained.

    References
    ----------
    Wu et al., "Energy-based out-of-distribution detection for graph neural networks", ICLR 2023.
    """

    scores: ClassVar[tuple[str, ...]] = ("energy", "msp", "entropy")

    base: NetworkClassifier | None = None
    _: KW_ONLY
    steps: int = 2
    alpha: float = 0.5
    random_state: int | None = None
    prefit: bool = False

    def fit(self, data: Data) -> GNNSafe:
        """Train the classifier on the graph."""
        self.base_ = _fitted(self.base, data, _seed(self.random_state), self.prefit)
        return self

    def member_proba(self, data: Data) -> Float[Tensor, "1 nodes classes"]:
        """Return the class probabilities in float64, as those of the only member."""
        check_fitted(self, "base_")
        return self.base_.member_proba(data)

    def ood_score(
        self, data: Data, method: str | None = None, *, propagate: tuple[int, float] | None = None
    ) -> Float[np.ndarray, " nodes"]:
        """Return a score of each node that is larger for what is more out of distribution.

        Parameters
        ----------
        data : Data
            The graph.
        method : {"energy", "msp", "entropy"}, optional
            By default "energy".
        propagate : (int, float), optional
            Steps and own weight, by default those of the constructor.
        """
        check_fitted(self, "base_")
        return super().ood_score(data, method, propagate=propagate or (self.steps, self.alpha))

    def _score(self, data: Data, method: str) -> Tensor:
        return torch.from_numpy(self.base_.ood_score(data, method))


class _MLP(nn.Module):
    """Two layers, then a propagation where there is one."""

    def __init__(
        self, in_channels: int, hidden: int, classes: int, dropout: float, propagation: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.first, self.second = FeatureLinear(in_channels, hidden), FeatureLinear(hidden, classes)
        self.propagation, self.dropout = propagation, dropout

    def forward(self, x: Tensor, shift: Tensor | None = None) -> Tensor:
        hidden = self.first(drop_features(x, self.dropout, self.training)).relu()
        logits: Tensor = self.second(functional.dropout(hidden, self.dropout, self.training))
        return logits if self.propagation is None else self.propagation(logits, shift)


class _GCN(nn.Module):
    def __init__(self, in_channels: int, hidden: int, classes: int, dropout: float, batch_norm: bool) -> None:
        super().__init__()
        self.first = GCNConv(in_channels, hidden, normalize=False)
        self.second = GCNConv(hidden, classes, normalize=False)
        self.norm = nn.BatchNorm1d(hidden) if batch_norm else nn.Identity()
        self.dropout = dropout

    def forward(self, x: Tensor, shift: Tensor) -> Tensor:
        hidden = self.norm(self.first(drop_features(x, self.dropout, self.training), shift)).relu()
        logits: Tensor = self.second(functional.dropout(hidden, self.dropout, self.training), shift)
        return logits


class _GAT(nn.Module):
    def __init__(self, in_channels: int, hidden: int, classes: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.first = GATConv(in_channels, hidden, heads, dropout=dropout, add_self_loops=False)
        self.second = GATConv(heads * hidden, classes, dropout=dropout, add_self_loops=False)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = functional.elu(self.first(drop_features(x, self.dropout, self.training), edge_index))
        logits: Tensor = self.second(functional.dropout(hidden, self.dropout, self.training), edge_index)
        return logits


def _seed(random_state: int | None) -> int:
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    return check_integer(random_state, "random_state", low=0)


def _fitted(base: NetworkClassifier | None, data: Data, seed: int, prefit: bool) -> NetworkClassifier:
    if prefit:
        check_fitted(base, "network_")
        assert base is not None
        return base
    return replace(GCNClassifier() if base is None else base, random_state=seed).fit(data)


def check_fitted(model: object, attribute: str) -> None:
    """Raise scikit-learn's NotFittedError if `model` lacks what fitting sets."""
    if not hasattr(model, attribute):
        raise NotFittedError(f"{type(model).__name__} must be fitted first")


def _check_split(data: Data) -> Labels:
    """Check the labels, which must be class indices, and both masks."""
    for name in ("x", "y", "train_mask", "val_mask"):
        if getattr(data, name, None) is None:
            raise ValueError(f"data must have {name}")
    if not isinstance(data.y, Tensor) or data.y.dtype != torch.int64 or data.y.ndim != 1:
        raise ValueError("y must be an int64 tensor of shape (nodes,) with class indices, or -1 for no label")
    labels = labels_of(data, None, None, None)
    if not (labels.val is not None and labels.val.any()):
        raise ValueError("val_mask must hold at least one node")
    return labels
