"""A scikit-learn classifier of the nodes of a graph: calibrated probabilities, uncertainty and OOD scores of one fit."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor, nn

from paperworks.core import models
from paperworks.core.validation import check_choice, check_real
from paperworks.dssgnn.chaos import OOD_SCORES, ChaosLogits, propagate_scores
from paperworks.dssgnn.features import check_features, check_finite, compact
from paperworks.dssgnn.filters import PRIORS, distinct_edges
from paperworks.dssgnn.fitting import pick_device, train
from paperworks.dssgnn.graphs import Graph, Labels, hold_out, is_data, judged, labels_of, make_graph
from paperworks.dssgnn.nn import (
    DSSGNN,
    DSSHybrid,
    check_encoder,
    expand_jointly,
    variance_divergence,
)

__all__ = ["FILTERS", "DSSClassifier", "fit_many"]

Floats = NDArray[np.float64]

FILTERS = ("ppr-frozen", "ppr", "identity")
"""What ``filter="auto"`` chooses from: the prior of the filters, and whether they are learned."""

_CHOICES = ("auto", *PRIORS, *(f"{prior}-frozen" for prior in PRIORS))
_SLUG = "dssgnn"
_COLLAPSED = 0.05


class DSSClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify the nodes of a graph with a `DSSGNN`, or with a `DSSHybrid` around an encoder.

    It learns from the nodes of the training mask and keeps the epoch, and the filter, with the least negative
    log-likelihood on the validation mask; the test mask is not used. `fit` and everything after it take a PyG ``Data``,
    or an array of features with ``adjacency=``: edges of shape (2, n), a sparse matrix, a networkx graph, or None for no
    edges. A fitted classifier predicts on other graphs with the same features too.

    Parameters
    ----------
    order : int
        P, the order of the chaos; with 0 the logits are not random.
    degree : int
        K, the degree of the filters.
    hidden_channels : int
        Width of the hidden layer.
    filter : {"auto"} or name of a prior, with "-frozen" if it is not to be learned
        "auto" tries those in `FILTERS` with the same seed.
    kl : float
        Weight of `variance_divergence`, which keeps the logits random.
    s0 : float, "relative" or array of shape (nodes,)
        The standard deviation that logits should have; see `variance_divergence`.
    epochs, patience : int
        Most epochs, and after how many without improvement to stop.
    lr, weight_decay, filter_decay : float
        Learning rate of Adam, and L2 penalties of weights and of what filters learned.
    dropout : float
        Share of features and of hidden units dropped.
    q_train, q_predict : int
        Quadrature nodes of the loss, and of everything else.
    encoder : nn.Module, optional
        ``encoder(x, edge_index)`` returns logits; a copy is trained, unless `freeze_encoder`.
    freeze_encoder : bool
        Keep the encoder as it is, and train the residual only.
    residual_decay : float
        With an encoder: weight of the mean square of what is added to its logits.
    validation_fraction : float
        Without a validation mask: share of the training nodes, by class, that is held out; with 0 all epochs are trained,
        which "auto" cannot choose by.
    basis, chaos, alpha, self_loops
        As in `DSSGNN`.
    random_state : int, RandomState or None
        Seed of weights, dropout and of what is held out.
    device : str
        "auto" is a GPU if there is one.
    verbose : int
        Show a progress bar if positive.

    Attributes
    ----------
    classes_ : ndarray
        Labels of the columns of every result.
    model_ : DSSGNN or DSSHybrid
        The network with the best validated weights.
    filter_ : str
        The filter chosen.
    selection_ : DataFrame
        One row a filter tried: its name, validation NLL, best epoch, and whether it was chosen.
    history_ : DataFrame
        Epoch, loss (of all filters together), and validation NLL of every filter.
    n_features_in_ : int
    feature_names_in_ : ndarray
        Names of the features, if they were given as a DataFrame.

    Examples
    --------
    >>> x = np.repeat(np.eye(2), 10, axis=0)
    >>> y = np.repeat(["cat", "dog"], 10)
    >>> cats_and_dogs = DSSClassifier(epochs=50, validation_fraction=0, filter="ppr", random_state=0).fit(x, y)
    >>> cats_and_dogs.predict(np.eye(2)).tolist()
    ['cat', 'dog']
    """

    def __init__(
        self,
        order: int = 2,
        degree: int = 10,
        hidden_channels: int = 64,
        filter: str = "auto",
        kl: float = 0.1,
        s0: Any = 1.0,
        epochs: int = 200,
        patience: int = 100,
        lr: float = 0.01,
        weight_decay: float = 5e-4,
        filter_decay: float = 0.01,
        dropout: float = 0.5,
        q_train: int = 8,
        q_predict: int = 32,
        encoder: nn.Module | None = None,
        freeze_encoder: bool = False,
        residual_decay: float = 0.0,
        validation_fraction: float = 0.2,
        basis: str = "chebyshev",
        chaos: str = "hermite",
        alpha: float = 0.1,
        self_loops: bool = True,
        random_state: Any = None,
        device: str = "auto",
        verbose: int = 0,
    ) -> None:
        self.order = order
        self.degree = degree
        self.hidden_channels = hidden_channels
        self.filter = filter
        self.kl = kl
        self.s0 = s0
        self.epochs = epochs
        self.patience = patience
        self.lr = lr
        self.weight_decay = weight_decay
        self.filter_decay = filter_decay
        self.dropout = dropout
        self.q_train = q_train
        self.q_predict = q_predict
        self.encoder = encoder
        self.freeze_encoder = freeze_encoder
        self.residual_decay = residual_decay
        self.validation_fraction = validation_fraction
        self.basis = basis
        self.chaos = chaos
        self.alpha = alpha
        self.self_loops = self_loops
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(
        self, X: Any, y: Any = None, *, adjacency: Any = None, train_mask: Any = None, val_mask: Any = None
    ) -> DSSClassifier:
        """Train, and choose the filter on the validation nodes.

        Parameters
        ----------
        X : Data, array or SciPy matrix of shape (nodes, features)
            A ``Data`` has features, edges, labels and masks, of which those given here take precedence.
        y : array of shape (nodes,)
            Labels. In a ``Data`` a negative one, NaN or None is none.
        adjacency : array of int (2, edges), sparse matrix (nodes, nodes), networkx graph, optional
            For an array of features.
        train_mask, val_mask : array of bool, shape (nodes,), optional
            By default those of the ``Data``, or else all nodes.

        Raises
        ------
        TypeError, ValueError
            See `make_graph`, `labels_of` and `DSSGNN`.

        Warns
        -----
        UserWarning
            There is no validation mask, so that training nodes are held out; a class has no training node; logits ended
            up not random with ``kl=0``.
        """
        graph, labels = self._learning_set(X, y, adjacency, train_mask, val_mask)
        _fit_all([self], graph, [labels])
        return self

    def _learning_set(self, X: Any, y: Any, adjacency: Any, train_mask: Any, val_mask: Any) -> tuple[Graph, Labels]:
        check_choice(self.filter, "filter", _CHOICES)
        if is_data(X):
            graph = make_graph(X, adjacency)
            check_features(graph.x, None, type(self).__name__)
        elif y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        else:
            X, y = self._validated(X, y)
            graph = make_graph(X, adjacency)
            check_finite(graph.x)
        return graph, labels_of(X, y, train_mask, val_mask)

    def _validated(self, X: Any, y: Any) -> tuple[Any, Any]:
        X = X.numpy(force=True) if isinstance(X, Tensor) and X.layout == torch.strided else X
        y = y.numpy(force=True) if isinstance(y, Tensor) else y
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float32, ensure_all_finite=False)
        check_classification_targets(y)
        return X, column_or_1d(y)

    def _members(self, seed: int, width: int, classes: int) -> list[DSSGNN | DSSHybrid]:
        """One network a filter to be tried, all from one seed."""
        members: list[DSSGNN | DSSHybrid] = []
        for name in _names(self.filter):
            settings: dict[str, Any] = {
                "hidden_channels": self.hidden_channels, "order": self.order, "degree": self.degree,
                "basis": self.basis, "chaos": self.chaos, "prior": name.removesuffix("-frozen"), "alpha": self.alpha,
                "filter_learning": not name.endswith("-frozen"), "dropout": self.dropout,
                "self_loops": self.self_loops, "q_train": self.q_train,
            }  # fmt: skip
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                if self.encoder is None:
                    members.append(DSSGNN(width, classes, **settings))
                else:
                    encoder = copy.deepcopy(self.encoder)
                    members.append(DSSHybrid(encoder, width, classes, freeze_encoder=self.freeze_encoder, **settings))
        return members

    def _take(self, members: Sequence[DSSGNN | DSSHybrid], labels: Labels, best: Any, history: pd.DataFrame) -> None:
        """Choose among the trained networks of this classifier."""
        names = _names(self.filter)
        losses, epochs = zip(*best, strict=True)
        chosen = int(np.argmin(losses)) if len(losses) > 1 else 0
        self.classes_ = labels.classes
        self.filter_ = names[chosen]
        self.model_ = members[chosen].eval()
        self.selection_ = pd.DataFrame(
            {
                "filter": names,
                "validation_nll": losses,
                "epoch": epochs,
                "chosen": [i == chosen for i in range(len(names))],
            }
        )
        self.history_ = history

    def coefficients(self, X: Any, *, adjacency: Any = None) -> ChaosLogits:
        """Return the random logits, of which every other result is a read-out.

        They are computed in double precision, where there is no encoder and the device has it.

        Raises
        ------
        NotFittedError
            Nothing is fitted yet.
        TypeError, ValueError
            See `make_graph` and `DSSGNN.coefficients`.
        """
        check_is_fitted(self, "model_")
        if not is_data(X):
            X = X.numpy(force=True) if isinstance(X, Tensor) and X.layout == torch.strided else X
            if not isinstance(X, Tensor):
                X = validate_data(self, X, accept_sparse="csr", dtype=np.float32, ensure_all_finite=False, reset=False)
        graph = make_graph(X, adjacency)
        check_features(graph.x, self.n_features_in_, type(self).__name__)
        device = next(self.model_.parameters()).device
        graph = graph.to(device)
        model, x, dtype = self.model_, graph.x, torch.float32
        if self.encoder is None:
            x = compact(x)
            if device.type != "mps":
                model, dtype = copy.deepcopy(model).double(), torch.float64
        with torch.no_grad():
            logits: ChaosLogits = model.coefficients(x.to(dtype), graph.edge_index, graph.edge_weight)
        return logits

    def predict_proba(self, X: Any, *, adjacency: Any = None) -> Floats:
        """Return class probabilities, averaged over ξ by quadrature, shape (nodes, classes)."""
        return _float64(self.coefficients(X, adjacency=adjacency).to(torch.float64).predictive(self.q_predict))

    def predict(self, X: Any, *, adjacency: Any = None) -> NDArray[Any]:
        """Return the most probable class of every node, shape (nodes,)."""
        proba = self.predict_proba(X, adjacency=adjacency)
        return np.asarray(self.classes_[proba.argmax(1)])

    def decision_function(self, X: Any, *, adjacency: Any = None) -> Floats:
        """Return the logarithms of the class probabilities, shape (nodes, classes); of two classes the log odds, (nodes,).

        The most probable class is the one with the largest, as it need not be for the mean logits: those are
        ``coefficients(X).mean``.
        """
        logits = self.coefficients(X, adjacency=adjacency).to(torch.float64)
        log_p = _float64(logits.log_predictive(self.q_predict))
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p

    def ood_score(
        self,
        X: Any,
        method: str = "energy",
        *,
        adjacency: Any = None,
        propagate: tuple[int, float] | None = None,
    ) -> Floats:
        """Return a score of every node that is larger for what is more out of distribution, shape (nodes,).

        Scores of two classifiers cannot be compared, nor can one threshold serve both.

        Parameters
        ----------
        X, adjacency
            As in `fit`.
        method : {"energy", "msp", "entropy", "mi", "variance"}
            See `ChaosLogits.ood_score`.
        propagate : (int, float), optional
            Steps and own weight for `propagate_scores`: average the score over neighbours. It helps where neighbours are
            alike, and hurts where they are not.
        """
        check_choice(method, "method", OOD_SCORES)
        scores = self.coefficients(X, adjacency=adjacency).ood_score(method, self.q_predict)
        if propagate is not None:
            steps, share = propagate
            edges = distinct_edges(make_graph(X, adjacency).edge_index, len(scores))
            scores = propagate_scores(scores, edges.to(scores.device), steps=steps, alpha=share)
        return _float64(scores)

    def uncertainty(self, X: Any, *, adjacency: Any = None) -> pd.DataFrame:
        """Return a table with one row a node.

        Returns
        -------
        DataFrame
            ``total`` entropy of the class probabilities in nats, of which ``aleatoric`` stays if ξ is known and
            ``epistemic`` is the mutual information of label and ξ; ``logit_sd``, root of the mean variance of the logits;
            ``energy``.
        """
        logits = self.coefficients(X, adjacency=adjacency)
        parts = logits.decompose(self.q_predict)._asdict()
        sd = logits.variance().mean(-1).sqrt()
        return pd.DataFrame(
            {name: _float64(part) for name, part in {**parts, "logit_sd": sd, "energy": logits.energy()}.items()}
        )

    def joint_proba(self, X: Any, pairs: ArrayLike | Tensor, *, adjacency: Any = None) -> Floats:
        """Return P(y_i = c, y_j = d) for pairs of nodes, shape (pairs, classes, classes).

        Parameters
        ----------
        X, adjacency
            As in `fit`.
        pairs : array of int, shape (2, pairs)
            Nodes i and j.
        """
        logits = self.coefficients(X, adjacency=adjacency).to(torch.float64)
        chosen = pairs if isinstance(pairs, Tensor) else torch.from_numpy(np.asarray(pairs))
        return _float64(logits.joint(chosen.to(logits.coefs.device), self.q_predict))

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, adjacency: Any = None, mask: Any = None
    ) -> float:
        """Return the accuracy: on `mask` of the nodes, by default those in the test mask of a ``Data``, or all.

        Nodes of a ``Data`` without a label do not count.

        Raises
        ------
        ValueError
            There are no labels, or none of these nodes has one, or shapes do not fit.
        """
        truth, chosen = judged(X, y, mask)
        right = self.predict(X, adjacency=adjacency) == truth
        weights = None if sample_weight is None else np.asarray(sample_weight)[chosen]
        return float(np.average(right[chosen], weights=weights))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted classifier to a folder: weights and JSON, no pickle.

        An encoder's weights are written and its code is not, so `load` needs one of the same kind.

        Raises
        ------
        NotFittedError
            Nothing is fitted yet.
        FileExistsError
            The folder holds something else.
        """
        check_is_fitted(self, "model_")
        parameters = self.get_params(deep=False) | {"device": str(self.device), "encoder": None}
        if not isinstance(self.random_state, Integral):
            parameters["random_state"] = None
        if not isinstance(self.s0, (str, Real)):
            parameters["s0"] = np.asarray(self.s0, float).tolist()
        config = {
            "parameters": {name: getattr(value, "item", lambda value=value: value)() for name, value in parameters.items()},
            "encoder": self.encoder is not None, "classes": self.classes_.tolist(), "dtype": self.classes_.dtype.str,
            "features": self.n_features_in_, "filter": self.filter_,
            "names": list(names) if (names := getattr(self, "feature_names_in_", None)) is not None else None,
            "selection": self.selection_.replace({np.nan: None}).to_dict("list"),
        }  # fmt: skip
        card = f"# {type(self).__name__}\n\n{len(self.classes_)} classes, filter {self.filter_}\n"
        models.save(folder, self.model_.state_dict(), config, slug=_SLUG, card=card)

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], *, encoder: nn.Module | None = None, device: str | None = None
    ) -> DSSClassifier:
        """Read a classifier that `save` wrote; it has no ``history_``.

        Parameters
        ----------
        folder : path
            What `save` wrote.
        encoder : nn.Module, optional
            Of the kind that it was fitted with, if it was; its weights are replaced.
        device : str, optional
            In place of the one that it was fitted with, which may not be on this machine.

        Raises
        ------
        FileNotFoundError
            No such model.
        ValueError
            A damaged file, another version's format, or an encoder too many or too few.
        """
        model = models.load(folder, slug=_SLUG)
        about = model.config
        if about.get("encoder", False) != (encoder is not None):
            need = "needs encoder=, which is not saved" if about["encoder"] else "has no encoder"
            raise ValueError(f"{os.fspath(folder)!r} {need}")
        if encoder is not None:
            check_encoder(encoder)
        try:
            self = cls(**about["parameters"] | {"encoder": encoder} | ({} if device is None else {"device": device}))
            self.classes_ = np.array(about["classes"], dtype=np.dtype(about["dtype"]))
            self.n_features_in_, self.filter_ = about["features"], about["filter"]
            if about["names"] is not None:
                self.feature_names_in_ = np.array(about["names"], dtype=object)
            self.selection_ = pd.DataFrame(about["selection"])
            (member,) = cls(**about["parameters"] | {"encoder": encoder, "filter": self.filter_})._members(
                0, self.n_features_in_, len(self.classes_)
            )
            member.load_state_dict(model.arrays)
        except KeyError as error:
            raise ValueError(f"{os.fspath(folder)!r} does not hold such a model: it lacks {error}") from None
        except (RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"{os.fspath(folder)!r} does not hold such a model: {error}") from None
        self.model_ = member.to(pick_device(self.device)).eval()
        return self


def fit_many(
    estimator: DSSClassifier,
    X: Any,
    y: Any = None,
    *,
    seeds: Iterable[int],
    adjacency: Any = None,
    train_mask: Any = None,
    val_mask: Any = None,
) -> list[DSSClassifier]:
    """Fit one classifier a seed, all at once: one propagation serves them all.

    Without dropout each is what a fit of its own gives, to rounding; with dropout all see the same dropped features.

    Parameters
    ----------
    estimator : DSSClassifier
        Settings; it stays as it is.
    X, y, adjacency, train_mask, val_mask
        As in `DSSClassifier.fit`.
    seeds : iterable of int
        ``random_state`` of each.

    Returns
    -------
    list of DSSClassifier

    Raises
    ------
    ValueError
        No seeds.
    """
    estimators = [clone(estimator).set_params(random_state=seed) for seed in seeds]
    if not estimators:
        raise ValueError("seeds must not be empty")
    sets = [each._learning_set(X, y, adjacency, train_mask, val_mask) for each in estimators]
    _fit_all(estimators, sets[0][0], [labels for _, labels in sets])
    return estimators


def _names(filter: str) -> tuple[str, ...]:
    return FILTERS if filter == "auto" else (filter,)


def _fit_all(estimators: Sequence[DSSClassifier], graph: Graph, sets: Sequence[Labels]) -> None:
    """Train the networks of all estimators, which differ in their seeds only, and let each choose among its own."""
    first = estimators[0]
    kl, decay = check_real(first.kl, "kl", low=0), check_real(first.residual_decay, "residual_decay", low=0)
    for name in ("lr", "weight_decay", "filter_decay"):
        check_real(getattr(first, name), name, low=0)
    device = pick_device(first.device)
    randoms = [check_random_state(each.random_state) for each in estimators]
    sets = [_with_validation(labels, each, rng) for labels, each, rng in zip(sets, estimators, randoms, strict=True)]
    seeds = [int(rng.randint(2**31 - 1)) for rng in randoms]
    graph = graph.to(device)
    x = graph.x.to(torch.float32)
    groups = [
        each._members(seed, x.shape[1], len(labels.classes))
        for each, seed, labels in zip(estimators, seeds, sets, strict=True)
    ]
    members = [member for group in groups for member in group]
    run = _Run(members, [labels for labels, group in zip(sets, groups, strict=True) for _ in group], graph, x, first)
    history = train(
        nn.ModuleList(members),
        lambda module: run.loss(kl, decay),
        [
            group
            for member in members
            for group in member.param_groups(first.lr, first.weight_decay, first.filter_decay)
        ],
        validate=None if sets[0].val is None else lambda module: run.validate(first.patience),
        epochs=first.epochs,
        patience=first.patience,
        evaluate_every=_EVALUATE_EVERY,
        seed=seeds[0],
        device=device,
        verbose=first.verbose,
    )
    run.restore(history.steps)
    table = history.frame()
    size = len(groups[0])
    for number, (each, group, labels) in enumerate(zip(estimators, groups, sets, strict=True)):
        own = range(number * size, (number + 1) * size)
        columns = {"step": "epoch", "loss": "loss"} | {
            f"validation_{i}": f"validation_nll_{name}" for i, name in zip(own, _names(each.filter), strict=True)
        }
        records = table[[name for name in columns if name in table]].rename(columns=columns)
        each.n_features_in_ = x.shape[1]
        each._take(group, labels, [run.best[i] for i in own], records)
        if kl == 0 and each.order > 0:
            _warn_collapsed(each, x if each.encoder is not None else run.features, graph)


_EVALUATE_EVERY = 4


def _with_validation(labels: Labels, estimator: DSSClassifier, rng: np.random.RandomState) -> Labels:
    fraction = check_real(estimator.validation_fraction, "validation_fraction", low=0, high=1)
    if labels.val is not None and labels.val.any():
        return labels
    if fraction == 0:
        if estimator.filter == "auto":
            raise ValueError("filter='auto' needs validation nodes: give val_mask=, or validation_fraction above 0")
        return Labels(labels.classes, labels.codes, labels.train, None)
    held = hold_out(labels, fraction, rng)
    assert held.val is not None
    warnings.warn(
        f"there is no validation mask: {int(held.val.sum())} of {int(labels.train.sum())} training nodes are held out",
        UserWarning,
        stacklevel=5,
    )
    return held


def _warn_collapsed(estimator: DSSClassifier, x: Tensor, graph: Graph) -> None:
    with torch.no_grad():
        sd = estimator.model_.coefficients(x, graph.edge_index, graph.edge_weight).variance().sqrt().mean()
    if float(sd) < _COLLAPSED:
        warnings.warn(
            f"chaos collapsed (mean standard deviation {float(sd):.2g}); the predictive equals softmax(mean): use kl > 0",
            UserWarning,
            stacklevel=5,
        )


class _Run:
    """Networks of equal sizes in training on one graph, and the best weights of each so far."""

    def __init__(
        self,
        members: Sequence[DSSGNN | DSSHybrid],
        sets: Sequence[Labels],
        graph: Graph,
        x: Tensor,
        settings: DSSClassifier,
    ) -> None:
        self.members, self.graph, self.x, self.settings = members, graph, x, settings
        self.features = compact(x)
        self.branches = [member.branch if isinstance(member, DSSHybrid) else member for member in members]
        self.shift = members[0].shift(graph.edge_index, graph.edge_weight, len(x), x.dtype)
        self.s0 = settings.s0
        if isinstance(self.s0, Real):
            self.s0 = float(self.s0)
        elif self.s0 is not None and not isinstance(self.s0, str):
            self.s0 = torch.as_tensor(self.s0).to(x)
        self.train = [_Nodes(labels.train, labels, x.device) for labels in sets]
        self.val = [_Nodes(labels.val, labels, x.device) for labels in sets if labels.val is not None]
        self.best: list[tuple[float, int]] = [(np.nan, 0)] * len(members)
        self.kept: list[dict[str, Tensor]] = [{} for _ in members]
        self.epoch = 0

    def expand(self) -> tuple[Tensor, Tensor]:
        """Chaos coefficients of all networks, shape (networks, orders, nodes, classes), and what encoders did not give."""
        coefs = expand_jointly(self.branches, self.features, self.shift)
        hybrids = [member for member in self.members if isinstance(member, DSSHybrid)]
        if not hybrids:
            return coefs, coefs
        residual = torch.stack([hybrid.beta for hybrid in hybrids])[:, None, None, None] * coefs
        encoded = [hybrid.encode(self.x, self.graph.edge_index, self.graph.edge_weight) for hybrid in hybrids]
        mean = residual[:, 0] + torch.stack(encoded)
        return torch.cat([mean[:, None], residual[:, 1:]], 1), residual

    def nll(self, coefs: Tensor, nodes: Sequence[_Nodes], q: int) -> Tensor:
        """Mean negative log-likelihood of each network on its nodes."""
        sizes = [len(each.index) for each in nodes]
        part = torch.cat([coef[:, each.index] for coef, each in zip(coefs, nodes, strict=True)], 1)
        log_p = ChaosLogits(part, self.branches[0].chaos).log_predictive(q)
        right = log_p.gather(1, torch.cat([each.codes for each in nodes])[:, None])[:, 0]
        return -torch.stack([each.mean() for each in torch.split(right, sizes)])

    def loss(self, kl: float, decay: float) -> Tensor:
        """Sum of the networks' losses: none has a weight in common with another."""
        self.epoch += 1
        coefs, residual = self.expand()
        loss = self.nll(coefs, self.train, self.settings.q_train)
        if kl > 0 and self.settings.order > 0:
            loss = loss + kl * variance_divergence(coefs, self.s0)
        if decay > 0 and residual is not coefs:
            loss = loss + decay * residual.square().mean((1, 2, 3))
        return loss.sum()

    def validate(self, patience: int) -> dict[str, float]:
        """Keep the weights of each network whose validation improved, unless it has run out of patience."""
        losses = self.nll(self.expand()[0], self.val, self.settings.q_predict).tolist()
        for i, loss in enumerate(losses):
            best, epoch = self.best[i]
            if not loss >= best and self.epoch - epoch <= patience:
                self.best[i] = (loss, self.epoch)
                self.kept[i] = {name: value.clone() for name, value in self.members[i].state_dict().items()}
        # It falls as long as any network improves, so that training ends when the last one stops to.
        total = float(np.sum([best for best, _ in self.best]))
        return {"loss": total} | {str(i): loss for i, loss in enumerate(losses)}

    def restore(self, epochs: int) -> None:
        """Give every network its best weights."""
        for i, (member, kept) in enumerate(zip(self.members, self.kept, strict=True)):
            if kept:
                member.load_state_dict(kept)
            else:
                self.best[i] = (np.nan, epochs)


class _Nodes:
    """Nodes to be judged by, and their classes."""

    def __init__(self, mask: Any, labels: Labels, device: torch.device) -> None:
        self.index = torch.from_numpy(np.flatnonzero(mask)).to(device)
        self.codes = torch.from_numpy(labels.codes[mask]).to(device)


def _float64(values: Tensor) -> Floats:
    return values.detach().cpu().numpy().astype(np.float64)
