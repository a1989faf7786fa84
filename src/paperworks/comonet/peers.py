"""What else one would fit to the same rows, each with its own defaults or tuned by the same inner cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from paperworks.comonet.estimators import COMONetClassifier, COMONetRegressor, ShapeDomainWarning
from paperworks.comonet.fitting import Objective, fit_lbfgs, make_loss
from paperworks.comonet.shapes import Shape
from paperworks.core.extras import require

__all__ = ["DISTRIBUTIONS", "METHODS", "PenaltyMLP", "fit_method"]

METHODS = ("comonet", "comonet-relu", "mlp", "hgb", "xgboost", "pygam")
"""What `fit_method` can fit. Only the first two and `pygam` know curvature; `hgb` and `xgboost` know monotonicity."""

DISTRIBUTIONS = {"xgboost": ("xgboost-cpu",), "pygam": ("pygam",)}
"""The packages (PyPI names) of methods that do not come with this one."""

INNER_FOLDS = 3

# Nine candidates a method, so that nobody gets more tries than another; "comonet-relu", a variant of ours, gets three.
# Classes are noisier than numbers: networks get larger penalties, splines fewer knots (and so converge).
_MLP = "transformedtargetregressor__regressor__"
_WIDTHS = [(8,), (16, 16), (64,)]
_ALPHAS = {False: [0.03, 0.3, 3.0], True: [0.3, 3.0, 30.0]}
_GRIDS: dict[str, list[dict[str, list[Any]]]] = {
    "comonet": [
        {"unit": ["maxout"], "mono_unit": ["minmax"]},
        {"unit": ["relu"], "mono_unit": ["mixed"]},
        {"interactions": ["product"]},
    ],
    "comonet-relu": [{}],
    "mlp": [{f"{_MLP}hidden_layer_sizes": _WIDTHS, f"{_MLP}alpha": [0.1, 1.0, 10.0]}],
    "hgb": [{"learning_rate": [0.02, 0.05, 0.1], "max_leaf_nodes": [4, 8, 31]}],
    "xgboost": [{"n_estimators": [100, 300, 1000], "max_depth": [2, 3, 5], "learning_rate": [0.05]}],
    "pygam": [{"lam": [0.6, 10.0, 100.0], "n_splines": [8, 12, 20]}],
}


def fit_method(
    method: str,
    X: ArrayLike,
    y: ArrayLike,
    shapes: Sequence[Shape],
    *,
    classify: bool = False,
    tune: bool = False,
    seed: int = 0,
) -> Any:
    """Fit a method under those of the declared shapes that it can keep.

    Parameters
    ----------
    method : str
        One of `METHODS`.
    X : array_like, shape (n, d)
        Rows.
    y : array_like, shape (n,)
        Targets, or two classes.
    shapes : sequence of Shape, length d
        One a column.
    classify : bool
        Whether `y` holds classes.
    tune : bool
        Whether to choose among nine candidates (``"comonet-relu"`` three) by 3-fold cross-validation inside these rows
        (squared error or log loss); otherwise the method has its own defaults.
    seed : int
        Of starts and folds.

    Returns
    -------
    estimator
        Fitted, with ``predict``; if tuned with ``best_params_``.

    Raises
    ------
    MissingExtra
        The method's package is not installed.
    """
    model = _make(method, shapes, classify, seed)
    if tune:
        split = StratifiedKFold if classify else KFold
        model = GridSearchCV(
            model,
            _grid(method, classify),
            scoring="neg_log_loss" if classify else "neg_mean_squared_error",
            cv=split(INNER_FOLDS, shuffle=True, random_state=seed),
            error_score="raise",
        )
    with warnings.catch_warnings():
        # A net that is not at its optimum after its iterations, held-out rows beyond the fitted ones: both are usual.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", ShapeDomainWarning)
        return model.fit(np.asarray(X, dtype=np.float64), np.asarray(y))


def _make(method: str, shapes: Sequence[Shape], classify: bool, seed: int) -> Any:
    """Return an estimator with its own defaults."""
    signs = [shape.monotonicity for shape in shapes]
    if method.startswith("comonet"):
        ours = COMONetClassifier if classify else COMONetRegressor
        plain: dict[str, Any] = {"unit": "relu", "mono_unit": "mixed"} if method.endswith("relu") else {}
        return ours(list(shapes), **plain, random_state=seed)
    if method == "mlp":
        if classify:
            return make_pipeline(
                StandardScaler(), MLPClassifier(hidden_layer_sizes=(16, 16), solver="lbfgs", random_state=seed)
            )
        net = MLPRegressor(hidden_layer_sizes=(16, 16), solver="lbfgs", random_state=seed)
        return make_pipeline(StandardScaler(), TransformedTargetRegressor(net, transformer=StandardScaler()))
    if method == "hgb":
        boosting = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
        return boosting(monotonic_cst=signs, random_state=seed)
    if method == "xgboost":
        xgboost = require("xgboost", "peers")
        boosting = xgboost.XGBClassifier if classify else xgboost.XGBRegressor
        return boosting(monotone_constraints=tuple(signs), n_jobs=1, random_state=seed)
    if method == "pygam":
        require("pygam", "peers")
        return _ClassifierGAM(list(shapes)) if classify else _RegressorGAM(list(shapes))
    raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")


def _grid(method: str, classify: bool) -> list[dict[str, list[Any]]]:
    """Return the candidates."""
    if method.startswith("comonet"):
        return [part | {"alpha": _ALPHAS[classify]} for part in _GRIDS[method]]
    if method == "mlp" and classify:
        return [{"mlpclassifier__hidden_layer_sizes": _WIDTHS, "mlpclassifier__alpha": _ALPHAS[True]}]
    if method == "pygam" and classify:
        return [{"lam": np.geomspace(1, 1000, 9).tolist(), "n_splines": [8]}]
    return _GRIDS[method]


class _GAM(BaseEstimator):  # type: ignore[misc]
    """A generalised additive model of pyGAM: one spline a column, constrained by large penalties."""

    _kind = "LinearGAM"

    def __init__(self, shapes: Any = None, lam: float = 0.6, n_splines: int = 20) -> None:
        self.shapes, self.lam, self.n_splines = shapes, lam, n_splines

    def fit(self, X: NDArray[np.float64], y: NDArray[Any]) -> _GAM:
        pygam = require("pygam", "peers")
        words = {(1, 0): "monotonic_inc", (-1, 0): "monotonic_dec", (0, 1): "convex", (0, -1): "concave"}
        terms = []
        for j, shape in enumerate(self.shapes):
            asked = [words[pair] for pair in ((shape.monotonicity, 0), (0, shape.curvature)) if any(pair)]
            terms.append(pygam.s(j, constraints=asked or None, n_splines=self.n_splines))
        self.classes_ = np.unique(y)
        self.gam_ = getattr(pygam, self._kind)(reduce(add, terms), lam=self.lam).fit(X, y)
        return self

    def predict(self, X: NDArray[np.float64]) -> NDArray[Any]:
        return np.asarray(self.gam_.predict(X))


class _RegressorGAM(RegressorMixin, _GAM):  # type: ignore[misc]
    pass


class _ClassifierGAM(_GAM):
    """Of the classes 0 and 1."""

    _kind = "LogisticGAM"
    _estimator_type = "classifier"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags

        tags = super().__sklearn_tags__()
        tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags(multi_class=False)
        return tags

    def predict(self, X: NDArray[np.float64]) -> NDArray[Any]:
        return super().predict(X).astype(int)

    def predict_proba(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        above = np.asarray(self.gam_.predict_proba(X))
        return np.column_stack([1 - above, above])


class PenaltyMLP:
    """A plain network with a penalty on broken shapes, as it is usually done: what it learns is not guaranteed.

    The loss is the mean squared error on standardised rows and targets, the same α·Σw²/n as `COMONetRegressor` has by
    default, and `strength` times the mean hinge of the wrong part of slopes and of second differences at 100 of the
    training rows.

    Parameters
    ----------
    shapes : sequence of Shape
        One a column.
    strength : float
        Weight λ of the penalty.
    seed : int
        Of the start.
    """

    def __init__(self, shapes: Sequence[Shape], strength: float, seed: int = 0) -> None:
        self.shapes, self.strength, self.seed = tuple(shapes), strength, seed

    def fit(self, X: ArrayLike, y: ArrayLike) -> PenaltyMLP:
        """Fit to rows (n, d) and targets (n,) by L-BFGS."""
        self.scalers_ = (StandardScaler().fit(np.asarray(X)), StandardScaler().fit(np.asarray(y)[:, None]))
        x = torch.from_numpy(self.scalers_[0].transform(np.asarray(X)))
        t = torch.from_numpy(self.scalers_[1].transform(np.asarray(y)[:, None])[:, 0])
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            layers = [nn.Linear(x.shape[1], 16), nn.Softplus(), nn.Linear(16, 16), nn.Softplus(), nn.Linear(16, 1)]
            self.net_ = nn.Sequential(*layers, nn.Flatten(0)).double()
        objective = _Penalised(self.net_, self.shapes, self.strength, rows=x)
        fit_lbfgs(objective, (x, t, torch.ones_like(t)), seed=self.seed)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the predictions, shape (n,)."""
        with torch.no_grad():
            outputs = self.net_(torch.from_numpy(self.scalers_[0].transform(np.asarray(X)))).numpy()
        return np.asarray(self.scalers_[1].inverse_transform(outputs[:, None])[:, 0])


class _Penalised(Objective):
    """The objective of `PenaltyMLP`."""

    STEP = 0.1  # of the finite differences, in standard deviations of a column
    ROWS = 100

    def __init__(self, net: nn.Module, shapes: Sequence[Shape], strength: float, rows: Tensor) -> None:
        super().__init__(net, make_loss("squared_error"), alpha=0.3, total_weight=len(rows))
        self.penalty = strength
        columns = [j for j, shape in enumerate(shapes) if shape is not Shape.FREE]
        rows = rows[: self.ROWS]
        step = self.STEP * torch.eye(rows.shape[1], dtype=rows.dtype)[columns][:, None]
        # The rows, and a step up and a step down in each constrained column.
        self.around = torch.cat([rows[None], rows + step, rows - step]).reshape(-1, rows.shape[1])
        self.signs = torch.tensor([[shapes[j].monotonicity, shapes[j].curvature] for j in columns], dtype=rows.dtype)

    def forward(self, x: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        values = self.net(self.around).reshape(2 * len(self.signs) + 1, -1)
        middle, (up, down) = values[:1], values[1:].chunk(2)
        slopes, second = (up - down) / (2 * self.STEP), (up - 2 * middle + down) / self.STEP**2
        wrong = [torch.relu(-self.signs[:, [k]] * part).mean() for k, part in enumerate((slopes, second))]
        fit: Tensor = super().forward(x, targets, weights)
        return fit + self.penalty * (wrong[0] + wrong[1])
