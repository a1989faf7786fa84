"""What estimators refuse, and the words with which they do."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from paperworks.comonet import COMONetClassifier, COMONetRegressor, ShapeDomainWarning

pytestmark = pytest.mark.untyped

TINY: dict[str, Any] = {"width": 2, "depth": 1, "pieces": 2, "max_iter": 3, "random_state": 0}
NAMES = ["spot", "strike", "vol"]
X = pd.DataFrame(np.random.default_rng(0).uniform(0, 1, (40, 3)), columns=NAMES)
Y = X.sum(axis=1).to_numpy()
ROWS = X.to_numpy()
KINDS = [COMONetRegressor, COMONetClassifier]


def with_entry(values: np.ndarray, entry: float) -> np.ndarray:
    values = values.copy()
    values.flat[7] = entry
    return values


def target(kind: type) -> np.ndarray:
    return Y if kind is COMONetRegressor else Y > 1.5


@pytest.fixture(scope="module")
def fitted() -> dict[type, Any]:
    return {kind: kind({"spot": "increasing"}, **TINY).fit(X, target(kind)) for kind in KINDS}


@pytest.mark.parametrize(
    ("rows", "y", "error", "message"),
    [
        (with_entry(ROWS, np.nan), Y, ValueError, "Input X contains NaN"),
        (with_entry(ROWS, -np.inf), Y, ValueError, "Input X contains infinity"),
        (ROWS, with_entry(Y, np.nan), ValueError, "Input y contains NaN"),
        (ROWS, with_entry(Y, np.inf), ValueError, "Input y contains infinity"),
        (csr_array(ROWS), Y, TypeError, "Sparse data was passed"),
        (ROWS[:, 0], Y, ValueError, "Expected 2D array, got 1D array"),
        (ROWS[:-1], Y, ValueError, "inconsistent numbers of samples: .39, 40."),
        (ROWS[:0], Y[:0], ValueError, "0 sample"),
        (ROWS + 1j, Y, ValueError, "Complex data not supported"),
    ],
)
def test_rows_and_targets_that_cannot_be_fitted(rows: Any, y: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        COMONetRegressor(**TINY).fit(rows, y)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (X.assign(vol=np.nan), "Input X contains NaN"),
        (X.assign(vol=np.inf), "Input X contains infinity"),
        (X[["spot", "strike"]], "feature names"),
        (X[NAMES[::-1]], "same order"),
        (X.iloc[:0], "0 sample"),
    ],
)
def test_rows_that_cannot_be_predicted(fitted: Any, kind: type, rows: pd.DataFrame, message: str) -> None:
    model = fitted[kind]
    calls = [model.predict, model.derivatives, model.audit, lambda rows: model.profile(rows, "spot")]
    if kind is COMONetClassifier:
        calls += [model.predict_proba, model.decision_function]
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_columns_is_that_of_the_fit(kind: type) -> None:
    model = kind(**TINY).fit(ROWS, target(kind))
    with pytest.raises(ValueError, match=f"X has 2 features, but {kind.__name__} is expecting 3 features"):
        model.predict(ROWS[:, :2])
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        model.predict(ROWS[0])
    with pytest.raises(TypeError, match="Sparse data was passed"):
        model.predict(csr_array(ROWS))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "low", "wrong"),
    [
        ("width", 0, "8"),
        ("depth", 0, 1.5),
        ("pieces", 0, None),
        ("product_rank", 0, "8"),
        ("product_knots", -1, 2.5),
        ("alpha", -0.1, "small"),
        ("max_iter", 0, 1e3),
        ("batch_size", 0, 0.5),
        ("learning_rate", 0.0, [0.1]),
        ("validation_fraction", 0.0, "tenth"),
        ("n_iter_no_change", 0, 1.5),
        ("tol", -1e-9, "tight"),
        ("n_members", 0, 2.5),
    ],
)
def test_numbers_out_of_range_and_of_another_type(kind: type, name: str, low: Any, wrong: Any) -> None:
    options = TINY | {"interactions": "both", "solver": "adam"}
    with pytest.raises(ValueError, match=f"^{name} must be "):
        kind(**(options | {name: low})).fit(X, target(kind))
    with pytest.raises(TypeError, match=f"^{name} must be "):
        kind(**(options | {name: wrong})).fit(X, target(kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("unit", "unit must be one of 'relu', .*'maxout'.*'sine'"),
        ("mono_unit", "mono_unit must be one of 'relu_n', .*'minmax'.*'sine'"),
        ("positivity", "positivity must be one of 'exp', .*'abs'.*'sine'"),
        ("interactions", "interactions must be one of 'additive', 'product', 'both', got 'sine'"),
        ("solver", "solver must be one of 'auto', 'lbfgs', 'adam', got 'sine'"),
        ("out_of_domain", "out_of_domain must be one of 'warn', 'raise', got 'sine'"),
    ],
)
def test_words_that_are_unknown(kind: type, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**(TINY | {name: "sine"})).fit(X, target(kind))


@pytest.mark.parametrize("unit", ["selu", "gelu", "silu", "mish"])
def test_units_without_the_shape_are_refused_by_classifiers_too(unit: str) -> None:
    with pytest.raises(ValueError, match=f"unit '{unit}' is not convex and nondecreasing"):
        COMONetClassifier(unit=unit).fit(X, Y > 1.5)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({3: "increasing"}, "3; the columns are 0 to 2"),
        ({"spot": "increasing"}, "'spot'; the columns are 0 to 2, without names"),
    ],
)
def test_columns_that_an_array_does_not_have(shapes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        COMONetRegressor(shapes, **TINY).fit(ROWS, Y)


@pytest.mark.parametrize("shape", ["concave", "concave increasing", "concave decreasing"])
@pytest.mark.parametrize("options", [{"link": "log"}, {"loss": "poisson"}])
def test_no_concave_column_under_the_exponential(shape: str, options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"concave.*'vol'|'vol'.*concave"):
        COMONetRegressor({"vol": shape}, **options).fit(X, Y)


@pytest.mark.parametrize("quantile", [-0.1, 1.0, 1.5])
def test_quantiles_outside_of_0_and_1(quantile: float) -> None:
    with pytest.raises(ValueError, match=f"quantile must be inside .*{quantile}"):
        COMONetRegressor(loss="quantile", quantile=quantile).fit(X, Y)


def test_training_rows_outside_the_domain_are_counted() -> None:
    outside = int((X["vol"] < 0.25).sum())
    assert 0 < outside < 40
    options = TINY | {"interactions": "product", "domain": {"vol": (0.25, 2)}}
    with pytest.raises(ValueError, match=rf"'vol'.*\b{outside} rows outside"):
        COMONetRegressor({"vol": "concave"}, **options).fit(X, Y)


def test_rows_outside_the_domain_of_a_classifier_are_counted() -> None:
    options = TINY | {"interactions": "product", "domain": {"vol": (0, 1)}}
    model = COMONetClassifier({"vol": "concave"}, **options).fit(X, Y > 1.5)
    outside = X.assign(vol=[1.5] * 4 + [0.5] * 36)
    for call in (model.predict, model.predict_proba, model.decision_function):
        with pytest.warns(ShapeDomainWarning, match="got 4 rows outside"):
            call(outside)
        model.out_of_domain = "raise"
        with pytest.raises(ValueError, match="got 4 rows outside"):
            call(outside)
        model.out_of_domain = "warn"


def test_a_constant_column_keeps_its_shape_at_scale_1() -> None:
    constant = X.assign(vol=5.0)
    with pytest.warns(UserWarning, match="'vol' has a shape but is constant"):
        model = COMONetRegressor({"vol": "increasing"}, **TINY).fit(constant, Y)
    assert model.members_[0].scale[2] == 1
    assert model.members_[0].center[2] == 5
    assert model.certificate_.ok
    assert (model.predict(constant.assign(vol=6.0)) >= model.predict(constant)).all()


@pytest.mark.parametrize("order", [0, 3])
def test_other_orders_of_derivatives(fitted: Any, order: int) -> None:
    with pytest.raises(ValueError, match=f"order must be .*{order}"):
        fitted[COMONetRegressor].derivatives(X, order=order)


def test_columns_of_profiles_and_derivatives_are_looked_up(fitted: Any) -> None:
    model = fitted[COMONetRegressor]
    for call in (lambda column: model.profile(X, column), lambda column: model.derivatives(X, column)):
        for column in ("sport", 3):
            with pytest.raises(ValueError, match=f"{column!r}"):
                call(column)
    with pytest.raises(ValueError, match="n_points must be at least 2"):
        model.profile(X, "spot", n_points=1)


def test_a_file_of_another_format_is_refused(fitted: Any, tmp_path: Path) -> None:
    fitted[COMONetRegressor].save(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"format": 99}))
    with pytest.raises(ValueError, match="format 99"):
        COMONetRegressor.load(tmp_path / "model")


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("a pickle was opened",)


def test_a_pickle_in_place_of_the_weights_is_not_opened(fitted: Any, tmp_path: Path) -> None:
    fitted[COMONetRegressor].save(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ValueError, match="damaged"):
        COMONetRegressor.load(tmp_path / "model")


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_a_loss_that_stays_infinite_is_reported_with_advice(solver: str) -> None:
    with pytest.raises(RuntimeError, match=r"loss is inf.*scale the data.*alpha"):
        COMONetRegressor(alpha=1.7e308, solver=solver, max_iter=2, random_state=0).fit(X[:10], Y[:10])
