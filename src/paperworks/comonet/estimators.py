"""Scikit-learn estimators: regression, binary and ordinal classification with a guaranteed shape per column."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, Literal, TypeVar, cast

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data
from torch import Tensor, nn

from paperworks.comonet.auditing import AuditReport, audit
from paperworks.comonet.certificates import Certificate, certify
from paperworks.comonet.fitting import FitLog, Loss, Objective, OrdinalLoss, Rows, fit_adam, fit_lbfgs, make_loss
from paperworks.comonet.graph import Graph, GraphBuilder
from paperworks.comonet.network import INTERACTIONS, COMONet
from paperworks.comonet.shapes import Shape, resolve_shapes
from paperworks.comonet.units import convex_units, monotone_units, positive_map
from paperworks.core import models
from paperworks.core.validation import check_choice, check_integer, check_real

__all__ = ["COMONetClassifier", "COMONetRegressor", "ShapeDomainWarning"]

Floats = NDArray[np.float64]
E = TypeVar("E", bound="_COMONetBase")

_SLUG = "comonet"
_NETWORK = ("width", "depth", "unit", "pieces", "mono_unit", "positivity", "interactions", "product_rank")
# Up to these sizes a full-batch second-order method is both faster and better than minibatches.
_SMALL_ROWS, _SMALL_NET = 5000, 20_000
_SMOOTH = ("softplus", "lse")
_BATCH = 65_536


class ShapeDomainWarning(UserWarning):
    """Rows lie outside the domain on which the shapes of their columns are guaranteed."""


class _COMONetBase(BaseEstimator):  # type: ignore[misc]
    """What regression and classification share: checks, the fit of the members, and what is asked of them."""

    shapes: Any
    domain: Any
    random_state: Any
    members_: list[COMONet]
    module_: COMONet | Mean

    def _keep(self, parameters: dict[str, Any]) -> None:
        """Store the constructor's arguments, unchecked, as scikit-learn wants it."""
        for name, value in parameters.items():
            if name not in ("self", "__class__"):
                setattr(self, name, value)

    # What is fitted, and how.

    def _check_parameters(self) -> None:
        for name in ("width", "depth", "pieces", "product_rank", "product_knots"):
            check_integer(getattr(self, name), name, low=1)
        for name in ("max_iter", "batch_size", "n_iter_no_change", "n_members"):
            check_integer(getattr(self, name), name, low=1)
        for name in ("alpha", "tol"):
            check_real(getattr(self, name), name, low=0)
        if not 0 < check_real(self.validation_fraction, "validation_fraction") < 1:
            raise ValueError(f"validation_fraction must be inside (0, 1), got {self.validation_fraction!r}")
        convex_units(self.unit, width=1)
        monotone_units(self.mono_unit, width=1)
        positive_map(self.positivity)
        check_choice(self.interactions, "interactions", INTERACTIONS)
        check_choice(self.solver, "solver", ("auto", "lbfgs", "adam"))
        check_choice(self.out_of_domain, "out_of_domain", ("warn", "raise"))
        check_choice(self.early_stopping, "early_stopping", ("auto", True, False))
        if self.learning_rate != "auto":
            check_real(self.learning_rate, "learning_rate", low=0, open_low=True)
        if self.solver == "lbfgs" and self.positivity == "abs":
            warnings.warn("positivity='abs' gets stuck with solver='lbfgs': take 'exp', or solver='adam'", stacklevel=4)

    def _fit(self: E, X: Any, y: Any, sample_weight: Any) -> E:
        before = self.__dict__.copy()
        try:
            return self._fit_anew(X, y, sample_weight)
        except BaseException:
            # A refit that fails or is interrupted leaves the model as it was, not half of each.
            self.__dict__ = before
            raise

    def _fit_anew(self: E, X: Any, y: Any, sample_weight: Any) -> E:
        self._check_parameters()
        _refuse_text(X)
        _refuse_labels(X, self.shapes)
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=isinstance(self, RegressorMixin))
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        # Rows of weight zero are rows that are not there, also for scales, knots, classes and held-out rows.
        X, y, weights = X[weights > 0], y[weights > 0], weights[weights > 0]
        names = getattr(self, "feature_names_in_", None)
        self.shapes_ = resolve_shapes(self.shapes, X.shape[1], None if names is None else list(names))
        targets = self._targets(y, weights)
        self._set_domain(X)
        self._warn_constant(X)
        self._network = self._describe(X, weights)
        self._box = self._guaranteed()
        self._check_domain(X, "X")
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=self.n_members)
        # In this process, unless a joblib backend is set up around.
        fitted = Parallel()(delayed(self._fit_member)(X, targets, weights, int(seed)) for seed in seeds)
        objectives, logs = zip(*fitted, strict=True)
        self.n_iter_ = max(log.n_iter for log in logs)
        self.loss_curve_ = logs[0].loss
        self._adopt([cast(COMONet, objective.net) for objective in objectives])
        self._after(objectives)
        self._prove()
        return self

    def _fit_member(self, X: Floats, targets: Floats, weights: Floats, seed: int) -> tuple[Objective, FitLog]:
        """Build one network from `seed` and fit it."""
        net = self._build(torch.Generator().manual_seed(seed))
        small = len(X) <= _SMALL_ROWS and sum(p.numel() for p in net.parameters()) <= _SMALL_NET
        solver = ("lbfgs" if small else "adam") if self.solver == "auto" else self.solver
        dtype = torch.float64 if solver == "lbfgs" else torch.float32
        device = _device(self.device, solver)
        exact = {name: buffer.clone() for name, buffer in net.named_buffers()}
        loss = self._loss(targets, weights)
        objective = Objective(net, loss, alpha=self.alpha, total_weight=float(weights.sum())).to(device, dtype)
        kept, held = self._split(len(X), solver, seed)
        rows = _rows(X[kept], targets[kept], weights[kept], device, dtype)
        validation = _rows(X[held], targets[held], weights[held], device, dtype) if len(held) else None
        limits = {"max_iter": self.max_iter, "patience": self.n_iter_no_change, "seed": seed}
        with _one_thread(small):
            if solver == "lbfgs":
                log = fit_lbfgs(objective, rows, validation=validation, tol=self.tol, **limits)
            else:
                rate = 1e-2 if self.learning_rate == "auto" else float(self.learning_rate)
                steps = {"batch_size": self.batch_size, "learning_rate": rate, "progress": bool(self.verbose)}
                log = fit_adam(objective, rows, validation=validation, **steps, **limits)
        objective = objective.double().eval().requires_grad_(False)
        for name, buffer in net.named_buffers():
            # Scales and domain as they were before single precision.
            buffer.copy_(exact[name])
        return objective, log

    def _split(self, n: int, solver: str, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the rows to fit and the rows held out."""
        hold = (solver == "adam" and n >= 10) if self.early_stopping == "auto" else self.early_stopping
        held = int(np.ceil(self.validation_fraction * n)) if hold else 0
        if held >= n:
            raise ValueError(f"early_stopping must leave rows to fit, got {n} rows of which {held} are held out")
        order = np.random.RandomState(seed).permutation(n) if hold else np.arange(n)
        return order[held:], order[:held]

    def _targets(self, y: NDArray[Any], weights: Floats) -> Floats:
        """Return what the network is fitted to, and set what leads back."""
        raise NotImplementedError

    def _loss(self, targets: Floats, weights: Floats) -> Loss:
        """Return the loss of one member."""
        raise NotImplementedError

    def _after(self, objectives: Sequence[Objective]) -> None:
        """Keep what was fitted beside the networks."""

    # The network.

    def _describe(self, X: Floats, weights: Floats) -> dict[str, Any]:
        """Return the arguments of `COMONet`, as JSON values."""
        center = np.average(X, axis=0, weights=weights)
        scale = np.sqrt(np.average((X - center) ** 2, axis=0, weights=weights))
        scale[scale <= 1e-12 * np.abs(center)] = 1
        levels = np.arange(1, self.product_knots + 1) / (self.product_knots + 1)
        knots = np.quantile(X, levels, axis=0, weights=weights, method="inverted_cdf").T
        return {name: _plain(getattr(self, name)) for name in _NETWORK} | {
            "shapes": [str(shape) for shape in self.shapes_],
            "domain": self.domain_.tolist(), "knots": knots.tolist(),
            "center": center.tolist(), "scale": scale.tolist(),
        }  # fmt: skip

    def _build(self, generator: torch.Generator | None = None) -> COMONet:
        """Return a network as `_network` describes it, with parameters from `generator`."""
        return COMONet(**self._network, generator=generator or torch.Generator(), dtype=torch.float64)

    def _adopt(self, members: Sequence[COMONet]) -> None:
        self.members_ = list(members)
        self.module_ = self.members_[0] if len(self.members_) == 1 else Mean(self.members_)

    # The domain.

    def _set_domain(self, X: Floats) -> None:
        """Set `domain_` to the training rows' range, a little wider, where the user gives no bound."""
        low, high = X.min(axis=0), X.max(axis=0)
        margin = np.where(high > low, 1e-4 * (high - low), np.maximum(1, np.abs(low)))
        self.domain_ = np.column_stack([low - margin, high + margin])
        given = set[int]()
        for key, bounds in ({} if self.domain is None else _mapping(self.domain)).items():
            column = self._column(key, "domain")
            if column in given:
                raise ValueError(f"domain has column {column} given twice, the second time as {key!r}")
            given.add(column)
            try:
                below, above = bounds
            except (TypeError, ValueError):
                raise ValueError(f"domain must give a pair (low, high), got {bounds!r} for column {key!r}") from None
            for side, bound in enumerate((below, above)):
                if bound is not None:
                    self.domain_[column, side] = check_real(bound, f"domain[{key!r}]")
            if not self.domain_[column, 0] < self.domain_[column, 1]:
                raise ValueError(f"domain must have low < high, got {self.domain_[column].tolist()} for column {key!r}")

    def _guaranteed(self) -> Floats:
        """Return the box on which all shapes hold, shape (d, 2)."""
        bank = self._build().bank
        if bank is None:
            return np.tile([-np.inf, np.inf], (len(self.domain_), 1))
        return np.asarray(bank.guaranteed.numpy(), dtype=np.float64)

    def _check_domain(self, X: Floats, what: str) -> None:
        """Raise for rows outside the box on which the shapes hold."""
        outside = ((self._box[:, 0] > X) | (self._box[:, 1] < X)).sum(axis=0)
        if outside.any():
            j = int(outside.argmax())
            raise ValueError(
                f"{what} must lie in the domain {self.domain_[j].tolist()} of column {self._name(j)!r}, which is "
                f"{self.shapes_[j]}, got {outside[j]} rows outside"
            )

    def _warn_constant(self, X: Floats) -> None:
        for j in np.flatnonzero(np.ptp(X, axis=0) == 0).tolist():
            if self.shapes_[j] is not Shape.FREE and len(X) > 1:
                warnings.warn(f"column {self._name(j)!r} has a shape but is constant in X", stacklevel=5)

    # What is asked of a fitted model.

    def _inputs(self, X: Any) -> Floats:
        """Return checked rows, after a word on those outside the domain."""
        check_is_fitted(self)
        _refuse_text(X)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        try:
            self._check_domain(X, "X")
        except ValueError as error:
            if self.out_of_domain == "raise":
                raise
            warnings.warn(f"shapes are not guaranteed there: {error}", ShapeDomainWarning, stacklevel=4)
        return np.asarray(X)

    def _outputs(self, X: Any) -> Floats:
        """Return the output of the network, or the mean of the members', of each row."""
        rows = torch.from_numpy(self._inputs(X))
        device = next(self.module_.parameters()).device
        with torch.no_grad():
            parts = [self.module_(part.to(device)).cpu() for part in torch.split(rows, _BATCH)]
        return np.asarray(torch.cat(parts).numpy())

    def _response(self, outputs: Tensor) -> Tensor:
        """Return what derivatives and profiles are of, from the outputs of the network."""
        raise NotImplementedError

    def derivatives(self, X: ArrayLike, columns: Any = None, order: Literal[1, 2] = 1) -> NDArray[np.float64]:
        """Return derivatives of the prediction, or of the decision function of a classifier, by single columns.

        Piecewise linear units have kinks, where this is the slope to one side. Second derivatives therefore need the
        smooth ones, ``unit="softplus"`` or ``"lse"`` without products; free and monotone columns keep their kinks, so
        take theirs for what they are between the kinks.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Rows.
        columns : name, index or sequence of them, optional
            Default: all.
        order : {1, 2}
            First or second derivative.

        Returns
        -------
        ndarray, shape (n, k)
            In units of the prediction per unit of the column (squared, for `order` 2).

        Raises
        ------
        ValueError
            An unknown column, or `order` 2 with piecewise linear units.
        """
        check_choice(order, "order", (1, 2))
        inputs = torch.from_numpy(self._inputs(X))
        rows = inputs.to(next(self.module_.parameters()).device).requires_grad_()
        single = columns is not None and (isinstance(columns, (str, Integral)))
        keys = range(rows.shape[1]) if columns is None else [columns] if single else list(columns)
        chosen = [self._column(key, "columns") for key in keys]
        # As fitted: the parameters may have been set anew since.
        unit, interactions = self._network["unit"], self._network["interactions"]
        if order == 2 and (unit not in _SMOOTH or interactions != "additive"):
            raise ValueError(
                "order must be 1 unless unit is 'softplus' or 'lse' and interactions is 'additive': second derivatives "
                f"of piecewise linear functions are 0 or do not exist, got unit={unit!r}, interactions={interactions!r}"
            )
        slopes: Tensor
        (slopes,) = torch.autograd.grad(self._response(self.module_(rows)).sum(), rows, create_graph=order == 2)
        if order == 2:
            # A model without curvature in its rows has slopes that do not depend on them.
            second = [
                torch.autograd.grad(slopes[:, j].sum(), rows, retain_graph=True, materialize_grads=True)[0][:, j]
                for j in chosen
            ]
            return np.asarray(torch.stack(second, dim=1).cpu().numpy())
        return np.asarray(slopes[:, chosen].cpu().numpy())

    def profile(self, X: ArrayLike, column: Any, n_points: int = 100) -> pd.DataFrame:
        """Return how the prediction of each row changes with one column, all others held fixed.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Rows.
        column : name or index
            The column; it runs from its smallest to its largest value in `X`.
        n_points : int
            Values of it, at least 2.

        Returns
        -------
        DataFrame
            ``row``, ``value``, ``prediction`` (or decision function) and ``slope``: the individual curves. Their mean,
            ``groupby("value")[["prediction", "slope"]].mean()``, is the partial dependence.
        """
        n_points = check_integer(n_points, "n_points", low=2)
        rows, j = self._inputs(X), self._column(column, "column")
        values = np.linspace(rows[:, j].min(), rows[:, j].max(), n_points)
        grid = np.repeat(rows, n_points, axis=0)
        grid[:, j] = np.tile(values, len(rows))
        inputs = torch.from_numpy(grid).to(next(self.module_.parameters()).device).requires_grad_()
        response = self._response(self.module_(inputs))
        (slopes,) = torch.autograd.grad(response.sum(), inputs)
        return pd.DataFrame(
            {
                "row": np.repeat(np.arange(len(rows)), n_points),
                "value": grid[:, j],
                "prediction": response.detach().cpu().numpy(),
                "slope": slopes[:, j].cpu().numpy(),
            }
        )

    def certify(self, domain: Any = None, method: str = "auto") -> Certificate:
        """Prove the shapes of this model from its weights: see `paperworks.comonet.certify`."""
        check_is_fitted(self, "module_")
        return certify(self, domain=domain, method=method, scale=self._scale)

    def to_graph(self) -> Graph:
        """Return the network as a graph of effective weights, for a certifier."""
        check_is_fitted(self, "module_")
        graph: Graph = self.module_.to_graph()
        return graph

    def audit(self, X: ArrayLike, **options: Any) -> AuditReport:
        """Look for broken shapes along lines through rows of `X`: see `paperworks.comonet.audit`."""
        rows = self._inputs(X)
        names = getattr(self, "feature_names_in_", None)
        options = {"feature_names": None if names is None else list(names)} | options

        def response(points: Floats) -> Floats:
            with torch.no_grad():
                inputs = torch.from_numpy(np.ascontiguousarray(points, dtype=np.float64))
                device = next(self.module_.parameters()).device
                return np.asarray(self._response(self.module_(inputs.to(device))).cpu().numpy())

        return audit(response, rows, list(self.shapes_), **options)

    def _prove(self) -> None:
        self.certificate_ = self.certify()
        self.certificate_.raise_for_status()

    def _name(self, column: int) -> Any:
        names = getattr(self, "feature_names_in_", None)
        return int(column) if names is None else str(names[column])

    def _column(self, key: Any, argument: str) -> int:
        """Return the index of a column given by name or index."""
        names = list(getattr(self, "feature_names_in_", ()))
        if isinstance(key, str) and key in names:
            return names.index(key)
        if isinstance(key, (int, np.integer)) and not isinstance(key, bool) and 0 <= int(key) < self.n_features_in_:
            return int(key)
        known = ", ".join(map(repr, names)) if names else f"0 to {self.n_features_in_ - 1}, without names"
        raise ValueError(f"{argument} must name columns of X, got {key!r}; the columns are {known}")

    # Files.

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted model to a folder: weights and JSON, no pickle.

        A ``random_state`` that is a generator is not written; the loaded model has None.

        Raises
        ------
        NotFittedError
            Nothing is fitted yet.
        """
        check_is_fitted(self)
        parameters = self.get_params(deep=False)
        if not isinstance(self.random_state, Integral):
            parameters["random_state"] = None
        parameters["device"] = str(self.device)
        # By column, as `fit` understood them: keys of a mapping need not be strings.
        parameters["shapes"] = [str(shape) for shape in self.shapes_]
        if self.domain is not None:
            parameters["domain"] = [[self._column(key, "domain"), *pair] for key, pair in self.domain.items()]
        names = getattr(self, "feature_names_in_", None)
        config = {
            "class": type(self).__name__, "parameters": _plain(parameters), "network": self._network,
            "columns": self.n_features_in_, "names": None if names is None else [str(name) for name in names],
            "domain": self.domain_.tolist(), "n_iter": self.n_iter_, "loss_curve": self.loss_curve_,
            "n_members": len(self.members_), "fitted": _plain(self._fitted()),
        }  # fmt: skip
        arrays = {f"{i}.{k}": v for i, member in enumerate(self.members_) for k, v in member.state_dict().items()}
        models.save(folder, arrays, config, slug=_SLUG, card=f"# {type(self).__name__}\n\n{self.certificate_}\n")

    @classmethod
    def load(cls: type[E], folder: str | os.PathLike[str]) -> E:
        """Read a model that `save` wrote; its shapes are proved again.

        Raises
        ------
        FileNotFoundError
            No such model.
        ValueError
            A damaged file, another version's format, or a model of another class.
        """
        model = models.load(folder, slug=_SLUG)
        about = model.config
        if about.get("class") != cls.__name__:
            raise ValueError(f"{str(folder)!r} must hold a {cls.__name__}, got {about.get('class')!r}")
        try:
            parameters = about["parameters"]
            if parameters["domain"] is not None:
                parameters["domain"] = {column: tuple(pair) for column, *pair in parameters["domain"]}
            loaded = cls(**parameters)
            loaded._restore(about, model.arrays)
        except (KeyError, TypeError, RuntimeError) as error:
            raise ValueError(f"{str(folder)!r} is damaged: {error}") from error
        loaded._prove()
        return loaded

    def _restore(self, about: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> None:
        self._network, self.n_features_in_ = about["network"], about["columns"]
        if about["names"] is not None:
            self.feature_names_in_ = np.array(about["names"], dtype=object)
        self.shapes_ = tuple(Shape(shape) for shape in about["network"]["shapes"])
        self.domain_ = np.array(about["domain"], dtype=np.float64)
        self.n_iter_, self.loss_curve_ = about["n_iter"], about["loss_curve"]
        members = []
        for i in range(about["n_members"]):
            prefix = f"{i}."
            member = self._build()
            member.load_state_dict({k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)})
            members.append(member.eval().requires_grad_(False))
        self._box = self._guaranteed()
        self._adopt(members)
        self._set_fitted(about["fitted"])

    def _fitted(self) -> dict[str, Any]:
        """Return what was fitted beside the networks."""
        raise NotImplementedError

    def _set_fitted(self, fitted: Mapping[str, Any]) -> None:
        raise NotImplementedError

    @classmethod
    def paper(cls: type[E], shapes: Any = None, **parameters: Any) -> E:
        """Return an estimator as the paper's abstract describes it: plain units, exponentiated weights, minibatches.

        It has ``unit="relu"``, ``mono_unit="relu_n"``, ``positivity="exp"``, no products and ``solver="adam"``;
        `parameters` come on top.
        """
        plain = {"unit": "relu", "mono_unit": "relu_n", "positivity": "exp", "interactions": "additive"}
        return cls(shapes, **(plain | {"solver": "adam"} | parameters))


class Mean(nn.Module):
    """The mean of several networks, which has every shape that all of them have.

    Parameters
    ----------
    members : sequence of COMONet
        Each from (rows, columns) to (rows,).
    """

    def __init__(self, members: Sequence[COMONet]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean output of each row."""
        return torch.stack([member(x) for member in self.members]).mean(0)

    def to_graph(self) -> Graph:
        """Return the members' graphs side by side, and their mean."""
        graphs: list[Graph] = [member.to_graph() for member in self.members]  # type: ignore[operator]
        builder = GraphBuilder(graphs[0].n_columns)
        share = torch.full((1, 1), 1 / len(graphs), dtype=torch.float64)
        ends = []
        for graph in graphs:
            start = len(builder.nodes)
            builder.nodes.extend(_moved(node, start) for node in graph.nodes)
            ends.append((len(builder.nodes) - 1, share))
        return builder.build(builder.affine(ends), graphs[0].domain)


def _moved(node: Any, start: int) -> Any:
    """Return a graph's node with its sources `start` places later."""
    if hasattr(node, "sources"):
        return replace(node, sources=tuple(source + start for source in node.sources))
    return replace(node, source=node.source + start) if hasattr(node, "source") else node


def _rows(X: Floats, targets: Floats, weights: Floats, device: torch.device, dtype: torch.dtype) -> Rows:
    """Return the rows as tensors, their weights divided by the mean."""
    x, t, w = (torch.from_numpy(part).to(device, dtype) for part in (X, targets, weights / weights.mean()))
    return x, t, w


@contextlib.contextmanager
def _one_thread(wanted: bool) -> Iterator[None]:
    """Keep torch to one thread: on small arrays threads wait for each other, the longer the busier the machine."""
    before = torch.get_num_threads()
    if wanted:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _device(name: Any, solver: str) -> torch.device:
    if name == "auto":
        # Full-batch fits of small data wait for the launches of a GPU.
        return torch.device("cuda" if solver == "adam" and torch.cuda.is_available() else "cpu")
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ValueError(f"device must be 'auto' or a torch device that is here, got {name!r}: {error}") from error
    if device.type == "meta":
        raise ValueError(f"device must hold numbers, got {name!r}")
    return device


def _refuse_text(X: Any) -> None:
    """Raise for a column of a table that does not hold numbers, and name it."""
    if not isinstance(X, pd.DataFrame):
        return
    for name in X.columns:
        try:
            X[name].astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"X must hold numbers, got {X[name].dtype} in column {name!r}: encode it first, for example with "
                "sklearn.preprocessing.OneHotEncoder"
            ) from None


def _refuse_labels(X: Any, shapes: Any) -> None:
    """Raise where a key of `shapes` could be meant as a label of a column or as its position."""
    if not isinstance(X, pd.DataFrame) or not isinstance(shapes, (Mapping, pd.Series)):
        return
    labels: list[Any] = list(X.columns)
    if not all(isinstance(label, str) for label in labels) and labels != list(range(len(labels))):
        raise ValueError(f"X must have columns named by strings where shapes are given by column, got {labels[:5]}")


def _mapping(domain: Any) -> Mapping[Any, Any]:
    if not isinstance(domain, Mapping):
        raise TypeError(f"domain must be a mapping from columns to (low, high), got {domain!r}")
    return domain


def _plain(value: Any) -> Any:
    """Return `value` with NumPy's numbers as Python's."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


class COMONetRegressor(RegressorMixin, _COMONetBase):  # type: ignore[misc]
    """Regression with a guaranteed shape per column.

    The prediction is offset + scale · g(x), or scale · exp(g(x)) with a log link, for a network g that has its shapes
    for every parameter value (see `paperworks.comonet.network.COMONet`), so the fit only chooses among functions of
    these shapes.

    Parameters
    ----------
    shapes : None, str, sequence or mapping
        Shape of each column, by name or index: see `paperworks.comonet.shapes.resolve_shapes`. Default: all free.
    width, depth, unit, pieces, mono_unit, positivity, interactions, product_rank
        Of the network: see `paperworks.comonet.network.COMONet`.
    product_knots : int
        Knots of each column's basis functions in products.
    domain : mapping, optional
        From columns to ``(low, high)``, None for unknown. With products, shapes of curved columns hold there. Default:
        the range of the training rows.
    out_of_domain : {"warn", "raise"}
        What happens on rows where a shape is not guaranteed.
    loss : {"squared_error", "absolute_error", "huber", "quantile", "poisson"}
        On targets of mean 0 and standard deviation 1 (with a log link, of mean absolute value 1); ``"huber"`` turns
        linear there at 1. ``"poisson"`` has the log link.
    quantile : float
        For ``loss="quantile"``.
    link : {"identity", "log"}
        With ``"log"`` predictions are positive; no column may then be concave, because exp keeps only monotone and
        convex shapes.
    alpha : float
        Weight of the sum of all squared effective weights, beside the sum of the losses. Less than the default, say
        0.03, suits targets almost without noise.
    solver : {"auto", "lbfgs", "adam"}
        ``"auto"`` takes L-BFGS up to 5000 rows and 20 000 parameters.
    max_iter : int
        Most iterations (L-BFGS) or epochs (Adam).
    learning_rate : float or "auto"
        Largest rate of Adam; 0.01 by default.
    batch_size : int
        Rows a step of Adam.
    early_stopping : bool or "auto"
        Whether to hold rows out and keep the weights that fit those best; ``"auto"``: with Adam.
    validation_fraction : float
        Share of rows held out.
    n_iter_no_change : int
        Iterations or epochs without improvement after which to stop.
    tol : float
        Largest gradient entry at which L-BFGS has converged.
    n_members : int
        Networks, from different starts; the prediction is their mean (of g with a log link).
    device : str
        A torch device; ``"auto"`` is a GPU, where there is one, for Adam.
    random_state : int, RandomState or None
        Source of starts, held-out rows and batches.
    verbose : bool
        Whether Adam shows a progress bar.

    Attributes
    ----------
    shapes_ : tuple of Shape
        One a column.
    module_ : Module
        From raw rows to g; the mean of the members.
    members_ : list of COMONet
        The networks.
    domain_ : ndarray, shape (d, 2)
        Low and high of each column.
    certificate_ : Certificate
        Proof of the shapes.
    n_iter_ : int
        Iterations or epochs, the most of all members.
    loss_curve_ : list of float
        Of the first member.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"dose": rng.uniform(0, 2, 80), "age": rng.uniform(20, 80, 80)})
    >>> y = np.sqrt(X["dose"]) + 0.1 * rng.normal(size=80)
    >>> model = COMONetRegressor({"dose": "concave increasing"}, width=4, max_iter=30, random_state=0).fit(X, y)
    >>> model.certificate_.ok
    True
    >>> bool((model.derivatives(X, "dose") >= 0).all())
    True
    """

    def __init__(
        self,
        shapes: Any = None,
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
        out_of_domain: str = "warn",
        loss: str = "squared_error",
        quantile: float = 0.5,
        link: str = "identity",
        alpha: float = 0.3,
        solver: str = "auto",
        max_iter: int = 200,
        learning_rate: float | str = "auto",
        batch_size: int = 256,
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 20,
        tol: float = 1e-7,
        n_members: int = 1,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self._keep(locals())

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> COMONetRegressor:
        """Fit to rows `X` (n, d) and targets `y` (n,), and prove the shapes.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Numbers; the columns of a DataFrame have names.
        y : array_like, shape (n,)
            Targets.
        sample_weight : array_like, shape (n,), optional
            Not negative.

        Raises
        ------
        ValueError, TypeError
            Bad parameters or data.
        RuntimeError
            The loss is not finite.
        """
        return self._fit(X, y, sample_weight)

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the prediction of each row, shape (n,)."""
        return np.asarray(self._response(torch.from_numpy(self._outputs(X))).numpy())

    @property
    def _scale(self) -> str:
        return "log_prediction" if self._log_link else "prediction"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self.loss, "loss", ("squared_error", "absolute_error", "huber", "quantile", "poisson"))
        check_choice(self.link, "link", ("identity", "log"))
        make_loss(self.loss, quantile=self.quantile)

    def _targets(self, y: NDArray[Any], weights: Floats) -> Floats:
        y = y.astype(np.float64)
        self._log_link = bool(self.link == "log" or self.loss == "poisson")
        concave = [self._name(j) for j, shape in enumerate(self.shapes_) if shape.curvature < 0]
        if self._log_link and concave:
            raise ValueError(
                f"link must be 'identity' where a column is concave, which exp does not keep: got the log link of "
                f"loss={self.loss!r}, link={self.link!r} with {', '.join(map(repr, concave))}"
            )
        if self.loss == "poisson" and (y < 0).any():
            raise ValueError(f"y must be non-negative with loss='poisson', got {y.min()}")
        if self._log_link:
            self.offset_, scale = 0.0, float(np.average(np.abs(y), weights=weights))
        else:
            self.offset_ = float(np.average(y, weights=weights))
            scale = float(np.sqrt(np.average((y - self.offset_) ** 2, weights=weights)))
        if not np.isfinite([self.offset_, scale]).all():
            raise ValueError("y must have a finite mean and standard deviation, its numbers are too large")
        self.scale_ = scale if scale > 1e-12 * abs(self.offset_) else abs(self.offset_) or 1.0
        return (y - self.offset_) / self.scale_

    def _loss(self, targets: Floats, weights: Floats) -> Loss:
        return make_loss(self.loss, quantile=self.quantile, log_link=self.link == "log")

    def _response(self, outputs: Tensor) -> Tensor:
        return self.scale_ * torch.exp(outputs) if self._log_link else self.offset_ + self.scale_ * outputs

    def _fitted(self) -> dict[str, Any]:
        return {"offset": self.offset_, "scale": self.scale_, "log_link": self._log_link}

    def _set_fitted(self, fitted: Mapping[str, Any]) -> None:
        self.offset_, self.scale_ = float(fitted["offset"]), float(fitted["scale"])
        self._log_link = bool(fitted["log_link"])
        if not (np.isfinite([self.offset_, self.scale_]).all() and self.scale_ > 0):
            raise ValueError(f"the model's scale must be positive and finite, got {fitted}")


class COMONetClassifier(ClassifierMixin, _COMONetBase):  # type: ignore[misc]
    """Binary or ordinal classification with a guaranteed shape per column.

    Shapes are those of the decision function g. Of two classes, P(y = second) = σ(g): monotone as g is, but neither
    convex nor concave. Of more, ordered classes, P(y ≤ k) = σ(θ_k - g) with θ_1 < θ_2 < …: the probability to be above
    k is monotone as g is, for every k.

    Parameters
    ----------
    ordinal : bool
        Whether the classes are ordered, as numbers or as an ordered categorical; then there may be more than two.
    shapes, width, depth, unit, pieces, mono_unit, positivity, interactions, product_rank, product_knots, domain
        As for `COMONetRegressor`; so are all others, but `alpha` is larger, because classes tell less than numbers.

    Attributes
    ----------
    classes_ : ndarray
        The classes, in order.
    thresholds_ : ndarray, shape (n_classes - 1,)
        θ; 0 of two classes.
    shapes_, module_, members_, domain_, certificate_, n_iter_, loss_curve_
        As for `COMONetRegressor`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(80, 2))
    >>> y = np.where(X[:, 0] + X[:, 1] ** 2 > 1, "yes", "no")
    >>> model = COMONetClassifier(["increasing", "convex"], width=4, max_iter=30, random_state=0).fit(X, y)
    >>> model.predict([[-2.0, 0.0], [2.0, 2.0]])
    array(['no', 'yes'], dtype='<U3')
    """

    def __init__(
        self,
        shapes: Any = None,
        *,
        ordinal: bool = False,
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
        out_of_domain: str = "warn",
        alpha: float = 3.0,
        solver: str = "auto",
        max_iter: int = 200,
        learning_rate: float | str = "auto",
        batch_size: int = 256,
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 20,
        tol: float = 1e-7,
        n_members: int = 1,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self._keep(locals())

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> COMONetClassifier:
        """Fit to rows `X` (n, d) and labels `y` (n,), and prove the shapes.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Numbers; the columns of a DataFrame have names.
        y : array_like, shape (n,)
            Labels; with ``ordinal=True`` numbers or an ordered categorical.
        sample_weight : array_like, shape (n,), optional
            Not negative.

        Raises
        ------
        ValueError, TypeError
            Bad parameters or data.
        RuntimeError
            The loss is not finite.
        """
        kind = getattr(y, "dtype", None)
        self._order = np.asarray(kind.categories) if isinstance(kind, pd.CategoricalDtype) and kind.ordered else None
        return self._fit(X, y, sample_weight)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return g of each row, shape (n,)."""
        return self._outputs(X)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each class, shape (n, n_classes)."""
        outputs = self._outputs(X)
        above = expit(outputs[:, None] - self.thresholds_)
        return np.asarray(-np.diff(above, axis=1, prepend=1, append=0))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of each row, shape (n,)."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    _scale = "decision_function"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = bool(self.ordinal)
        return tags

    def _targets(self, y: NDArray[Any], weights: Floats) -> Floats:
        check_classification_targets(y)
        y = column_or_1d(y)
        classes = np.unique(y)
        if self.ordinal and self._order is None and classes.dtype.kind not in "biuf":
            raise ValueError(
                "y must be numbers or an ordered pandas Categorical with ordinal=True, so that the order of the "
                f"classes is known, got {classes.tolist()}"
            )
        if self._order is not None:
            classes = np.array([label for label in self._order if label in classes], dtype=classes.dtype)
        if len(classes) > 2 and not self.ordinal:
            raise ValueError(
                f"Only binary classification is supported. The type of the target is multiclass, with {len(classes)} "
                "classes; if they are ordered, take ordinal=True"
            )
        if len(classes) < 2:
            raise ValueError(f"y must have at least 2 classes, got 1 class: {classes.tolist()}")
        self.classes_ = classes
        rank = np.argsort(classes, kind="stable")
        return rank[np.searchsorted(classes, y, sorter=rank)].astype(np.float64)

    def _loss(self, targets: Floats, weights: Floats) -> Loss:
        if len(self.classes_) == 2:
            return make_loss("logistic")
        shares = np.bincount(targets.astype(int), weights=weights) / weights.sum()
        return OrdinalLoss(torch.from_numpy(shares))

    def _after(self, objectives: Sequence[Objective]) -> None:
        losses = [objective.loss for objective in objectives]
        cuts = [loss.thresholds.cpu().numpy() for loss in losses if isinstance(loss, OrdinalLoss)]
        self.thresholds_ = np.mean(cuts, axis=0) if cuts else np.zeros(1)

    def _response(self, outputs: Tensor) -> Tensor:
        return outputs

    def _fitted(self) -> dict[str, Any]:
        return {
            "classes": self.classes_.tolist(),
            "dtype": str(self.classes_.dtype),
            "thresholds": self.thresholds_.tolist(),
        }

    def _set_fitted(self, fitted: Mapping[str, Any]) -> None:
        self.classes_ = np.array(fitted["classes"], dtype=fitted["dtype"])
        self.thresholds_ = np.array(fitted["thresholds"], dtype=np.float64)
        cuts = self.thresholds_
        if cuts.shape != (len(self.classes_) - 1,) or not (np.isfinite(cuts).all() and (np.diff(cuts) > 0).all()):
            raise ValueError(f"the model's thresholds must increase, one fewer than its classes, got {cuts.tolist()}")
