import json
import pickle
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from paperworks.comonet.data import make_eight_regimes
from paperworks.comonet.estimators import COMONetClassifier, COMONetRegressor, ShapeDomainWarning
from paperworks.comonet.shapes import Shape

SMALL = {"width": 3, "depth": 1, "max_iter": 25, "random_state": 0}
TINY = SMALL | {"width": 2, "max_iter": 5}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(0.1, 2, (120, 3)), columns=["spot", "strike", "vol"])
    return X, np.maximum(X["spot"] - X["strike"], 0) + X["vol"] * rng.uniform(0.9, 1.1, 120)


SHAPES = {"spot": "convex increasing", "strike": "convex decreasing", "vol": "increasing"}


@pytest.fixture(scope="module")
def model(table):
    return COMONetRegressor(SHAPES, width=4, max_iter=25, random_state=0).fit(*table)


@pytest.mark.untyped
@pytest.mark.parametrize("kind", [COMONetRegressor, COMONetClassifier])
def test_scikit_learn_conformance(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(kind(width=2, depth=1, pieces=2, max_iter=5), on_skip=None)


def test_shapes_by_name_are_proved_and_seen(table, model):
    X, y = table
    expected = (Shape.CONVEX_INCREASING, Shape.CONVEX_DECREASING, Shape.INCREASING)
    assert model.shapes_ == expected
    assert model.certificate_.ok
    assert "all of R^d" in str(model.certificate_)
    assert model.score(X, y) > 0.97
    slopes = model.derivatives(X)
    assert slopes.shape == (120, 3)
    assert (slopes[:, [0, 2]] >= 0).all()
    assert (slopes[:, 1] <= 0).all()
    assert model.audit(X, n_lines=20).ok


def test_integer_shapes_are_scikit_learns(table):
    X, y = table
    model = COMONetRegressor([1, -1, 0], **TINY).fit(X.to_numpy(), y)
    assert model.shapes_ == (Shape.INCREASING, Shape.DECREASING, Shape.FREE)


def test_eight_regimes_at_once_in_seconds():
    train, test = make_eight_regimes(400), make_eight_regimes(1000, noise=0.0, random_state=1)
    start = time.process_time()
    model = COMONetRegressor(train.shapes, random_state=0, width=4, max_iter=50).fit(train.data, train.target)
    assert time.process_time() - start < 10
    error = np.mean((model.predict(test.data) - test.target) ** 2) / np.var(test.target)
    assert error < 0.1
    assert model.certificate_.ok
    assert model.audit(test.data, n_lines=30, n_points=21).ok


def test_the_seed_decides(table):
    X, y = table
    first, again, other = (COMONetRegressor(SHAPES, **(TINY | {"random_state": s})).fit(X, y) for s in (0, 0, 1))
    assert (first.predict(X) == again.predict(X)).all()
    assert (first.predict(X) != other.predict(X)).any()


@pytest.mark.parametrize("options", [{}, {"interactions": "both", "n_members": 2}, {"link": "log"}])
def test_saved_and_pickled_models_are_bit_equal(table, tmp_path, options):
    X, y = table
    small = TINY | {"depth": 2, "product_rank": 2, "product_knots": 4, "domain": {"spot": (0, None)}}
    model = COMONetRegressor(SHAPES, **small, **options).fit(X, y)
    model.save(tmp_path / "model")
    loaded = COMONetRegressor.load(tmp_path / "model")
    assert (loaded.predict(X) == model.predict(X)).all()
    assert (pickle.loads(pickle.dumps(model)).predict(X) == model.predict(X)).all()
    assert loaded.certificate_.ok
    assert str(loaded.certificate_) == str(model.certificate_)
    assert clone(loaded).fit(X, y).predict(X) == pytest.approx(model.predict(X))
    with pytest.raises(ValueError, match="must hold a COMONetClassifier"):
        COMONetClassifier.load(tmp_path / "model")


def test_a_damaged_file_is_refused(table, model, tmp_path):
    model.save(tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match="damaged"):
        COMONetRegressor.load(tmp_path / "model")


@pytest.mark.parametrize("options", [{}, {"solver": "adam"}, {"interactions": "product"}])
def test_rows_of_weight_zero_are_rows_that_are_not_there(table, options):
    X, y = table
    weights, options = np.repeat([1.0, 0.0], 60), TINY | options
    weighted = COMONetRegressor(SHAPES, **options).fit(X, y, weights)
    dropped = COMONetRegressor(SHAPES, **options).fit(X[:60], y[:60])
    assert weighted.predict(X[:60]) == pytest.approx(dropped.predict(X[:60]))


def test_paper_is_the_plain_reading(table):
    model = COMONetRegressor.paper(SHAPES, max_iter=50, width=4, depth=1, random_state=0, learning_rate=0.03)
    assert (model.unit, model.mono_unit, model.solver) == ("relu", "relu_n", "adam")
    assert model.fit(*table).certificate_.ok
    assert model.score(*table) > 0.5


def test_members_are_averaged_and_proved_together(table):
    X, y = table
    model = COMONetRegressor(SHAPES, n_members=3, **TINY).fit(X, y)
    assert len(model.members_) == 3
    single = np.mean([model.offset_ + model.scale_ * m(_tensor(X)).numpy() for m in model.members_], axis=0)
    assert model.predict(X) == pytest.approx(single)
    assert model.certificate_.ok
    assert model.to_graph().evaluate(_tensor(X)).numpy() == pytest.approx(model.module_(_tensor(X)).numpy())


def _tensor(X):
    import torch

    return torch.from_numpy(np.ascontiguousarray(X, dtype=np.float64))


def test_derivatives_are_those_of_the_prediction(table):
    X, y = table
    model = COMONetRegressor(SHAPES, unit="lse", link="log", **SMALL).fit(X, y + 1)
    step = np.array([1e-4, 0, 0])
    up, down, here = (model.predict(X + shift) for shift in (step, -step, 0))
    assert model.derivatives(X, "spot")[:, 0] == pytest.approx((up - down) / 2e-4, rel=1e-5, abs=1e-7)
    second = model.derivatives(X, ["spot", 1], order=2)
    assert second[:, 0] == pytest.approx((up - 2 * here + down) / 1e-8, rel=1e-3, abs=1e-4)
    assert (second >= 0).all()
    assert model.certificate_.columns[0].scale == "log_prediction"


def test_profile_has_a_curve_for_every_row(table, model):
    X, _ = table
    frame = model.profile(X[:5], "strike", n_points=9)
    assert list(frame.columns) == ["row", "value", "prediction", "slope"]
    assert len(frame) == 45
    assert (frame["slope"] <= 0).all()
    moved = X[:1].assign(strike=frame["value"][3])
    assert frame["prediction"][3] == pytest.approx(model.predict(moved)[0])


def test_quantiles_and_early_stopping(table):
    X, y = table
    options = SMALL | {"width": 2, "max_iter": 40, "alpha": 0.0}
    high = COMONetRegressor(SHAPES, loss="quantile", quantile=0.9, **options).fit(X, y)
    assert np.mean(y <= high.predict(X)) == pytest.approx(0.9, abs=0.05)
    options |= {"width": 4, "max_iter": 400}
    early = COMONetRegressor(SHAPES, early_stopping=True, n_iter_no_change=5, **options).fit(X, y)
    assert early.n_iter_ < 400
    assert early.score(X, y) > 0.9


@pytest.mark.parametrize("loss", ["absolute_error", "huber", "poisson"])
def test_other_losses_fit_too(table, loss):
    X, y = table
    assert COMONetRegressor(SHAPES, loss=loss, **SMALL).fit(X, y).score(X, y) > 0.85


def test_binary_labels_may_be_words(table, tmp_path):
    X, y = table
    labels = np.where(y > np.median(y), "hit", "miss")
    model = COMONetClassifier(dict.fromkeys(X, "free") | {"vol": "decreasing"}, **SMALL).fit(X, labels)
    assert list(model.classes_) == ["hit", "miss"]
    assert model.score(X, labels) > 0.85
    odds = model.predict_proba(X)
    assert odds[:, 1] == pytest.approx(1 / (1 + np.exp(-model.decision_function(X))))
    assert (model.derivatives(X, "vol") <= 0).all()
    assert model.certificate_.columns[0].scale == "decision_function"
    model.save(tmp_path / "m")
    assert (COMONetClassifier.load(tmp_path / "m").predict(X) == model.predict(X)).all()


@pytest.mark.parametrize("categorical", [True, False])
def test_ordinal_classes_rise_with_increasing_columns(table, categorical, tmp_path):
    X, y = table
    grades = np.digitize(y, np.quantile(y, [0.25, 0.5, 0.75]))
    words = ["poor", "fair", "good", "best"]
    labels = pd.Series(pd.Categorical.from_codes(grades, words, ordered=True)) if categorical else grades
    model = COMONetClassifier(SHAPES, ordinal=True, n_members=2, **(SMALL | {"max_iter": 12})).fit(X, labels)
    assert list(model.classes_) == (words if categorical else [0, 1, 2, 3])
    assert model.score(X, labels) > 0.7
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1)
    above = 1 - model.predict_proba(X).cumsum(axis=1)
    assert (1 - model.predict_proba(X + np.array([0.1, 0, 0.1])).cumsum(axis=1) >= above - 1e-12).all()
    model.save(tmp_path / "m")
    assert (COMONetClassifier.load(tmp_path / "m").predict_proba(X) == model.predict_proba(X)).all()


def test_pipeline_grid_search_and_single_precision(table):
    X, y = table
    pipe = make_pipeline(
        StandardScaler(), COMONetRegressor(SHAPES, width=2, depth=1, max_iter=10, random_state=0)
    ).set_output(transform="pandas")
    search = GridSearchCV(pipe, {"comonetregressor__alpha": [0.01, 1000.0]}, cv=2).fit(X, y)
    assert search.best_params_["comonetregressor__alpha"] == 0.01
    single = COMONetRegressor([1], **SMALL).fit(X[["vol"]].to_numpy(np.float32), y)
    assert single.predict(X[["vol"]].to_numpy(np.float32)).dtype == np.float64


def test_concave_columns_of_products_keep_to_their_domain(table):
    X, y = table
    options = TINY | {"interactions": "product", "domain": {"spot": (0, 2)}}
    shapes = {"spot": "concave increasing"}
    model = COMONetRegressor(shapes, **options).fit(X, y)
    assert model.domain_[0].tolist() == [0, 2]
    outside = X.assign(spot=[-1.0] * 3 + [1.0] * 117)
    with pytest.warns(ShapeDomainWarning, match="got 3 rows outside"):
        model.predict(outside)
    with pytest.raises(ValueError, match="got 3 rows outside"):
        model.set_params(out_of_domain="raise").predict(outside)
    with pytest.raises(ValueError, match=r"'spot'.*rows outside"):
        COMONetRegressor(shapes, **(options | {"domain": {"spot": (1, 2)}})).fit(X, y)


def test_a_constant_column_with_a_shape_is_reported(table):
    X, y = table
    with pytest.warns(UserWarning, match="'vol' has a shape but is constant"):
        COMONetRegressor(SHAPES, **TINY).fit(X.assign(vol=1.0), y)


BAD_PARAMETERS = [
    ({"shapes": {"spot": "wavy"}}, "wavy"),
    ({"shapes": {"spot": "increasing decreasing"}}, "contradictory"),
    ({"shapes": {"sport": "increasing"}}, "'sport'.*'spot', 'strike', 'vol'"),
    ({"shapes": {"spot": 1, 0: 1}}, "given twice"),
    ({"shapes": [1, 1]}, "3 columns, got 2"),
    ({"link": "log", "shapes": "concave"}, "concave"),
    ({"loss": "poisson", "shapes": "concave"}, "concave"),
    ({"loss": "hinge"}, "loss must be one of"),
    ({"quantile": 0.0}, "quantile must be inside"),
    ({"unit": "selu"}, "not convex and nondecreasing"),
    ({"unit": "sine"}, "unit must be one of"),
    ({"mono_unit": "sine"}, "mono_unit must be one of"),
    ({"positivity": "cube"}, "positivity must be one of"),
    ({"interactions": "all"}, "interactions must be one of"),
    ({"solver": "sgd"}, "solver must be one of"),
    ({"width": 0}, "width must be at least 1"),
    ({"alpha": -1.0}, "alpha must be non-negative"),
    ({"validation_fraction": 1.0}, "validation_fraction must be inside"),
    ({"domain": {"spot": (2, 1)}}, "low < high"),
    ({"domain": {"sport": (1, 2)}}, "'sport'"),
    ({"device": "abacus"}, "device must be 'auto'"),
]


@pytest.mark.untyped
@pytest.mark.parametrize(("options", "message"), BAD_PARAMETERS)
def test_bad_parameters(table, options, message):
    with pytest.raises(ValueError, match=message):
        COMONetRegressor(**options).fit(*table)


@pytest.mark.untyped
def test_bad_types_and_data(table, model):
    X, y = table
    with pytest.raises(TypeError, match="width must be an integer"):
        COMONetRegressor(width=2.5).fit(X, y)
    with pytest.raises(TypeError, match="domain must be a mapping"):
        COMONetRegressor(domain=[(0, 1)]).fit(X, y)
    with pytest.raises(ValueError, match=r"column 'town'.*OneHotEncoder"):
        COMONetRegressor().fit(X.assign(town="Ulm"), y)
    with pytest.raises(ValueError, match="y must be non-negative"):
        COMONetRegressor(loss="poisson").fit(X, y - 10)
    with pytest.raises(ValueError, match="at least one non-zero"):
        COMONetRegressor().fit(X, y, np.zeros(120))
    with pytest.raises(ValueError, match="'vols'"):
        model.derivatives(X, "vols")
    with pytest.raises(ValueError, match="'softplus' or 'lse'"):
        model.derivatives(X, order=2)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X.rename(columns={"vol": "sigma"}))
    with pytest.raises(NotFittedError):
        COMONetRegressor().save("nowhere")
    with pytest.warns(UserWarning, match="gets stuck"):
        COMONetRegressor(positivity="abs", solver="lbfgs", **TINY).fit(X, y)


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("labels", "ordinal", "message"),
    [
        ([0, 1, 2], False, "Only binary classification is supported.*ordinal=True"),
        ([1, 1, 1], False, "1 class"),
        (["low", "mid", "top"], True, "ordered pandas Categorical"),
    ],
)
def test_bad_labels(table, labels, ordinal, message):
    with pytest.raises(ValueError, match=message):
        COMONetClassifier(ordinal=ordinal).fit(table[0], np.repeat(labels, 40))


def test_a_refit_that_fails_or_is_interrupted_leaves_the_model_as_it_was(table, monkeypatch):
    X, y = table
    model = COMONetRegressor(SHAPES, **SMALL | {"max_iter": 3}).fit(X, y)
    before = model.predict(X)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(COMONetRegressor, "_fit_member", stop)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, 1000 * y)
    assert np.array_equal(model.predict(X), before)


def test_parameters_set_after_the_fit_change_nothing_fitted(table):
    X, y = table
    model = COMONetRegressor(SHAPES, **SMALL | {"max_iter": 3}).fit(X, y)
    before = model.predict(X)
    model.set_params(link="log", unit="lse")
    assert np.array_equal(model.predict(X), before)
    with pytest.raises(ValueError, match="order must be 1"):
        model.derivatives(X, order=2)


@pytest.mark.parametrize("scale", [-1.0, 0.0, None])
def test_a_saved_model_whose_scale_was_edited_is_refused(table, tmp_path, scale):
    X, y = table
    COMONetRegressor(SHAPES, **SMALL | {"max_iter": 3}).fit(X, y).save(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    about = json.loads(config.read_text())
    about["config"]["fitted"]["scale"] = scale
    config.write_text(json.dumps(about))
    with pytest.raises(ValueError, match=r"scale|damaged"):
        COMONetRegressor.load(tmp_path / "model")


def test_targets_and_columns_of_any_scale_are_fitted(table):
    X, y = table
    options = SMALL | {"max_iter": 40}
    plain = COMONetRegressor(SHAPES, **options).fit(X, y).score(X, y)
    tiny = COMONetRegressor(SHAPES, **options).fit(X * 1e-13, y * 1e-13)
    assert tiny.score(X * 1e-13, y * 1e-13) == pytest.approx(plain, abs=0.05)
    assert COMONetRegressor(**options).fit([[0.0], [1.0]], [1e-9, 1e-9]).predict([[0.5]]) == pytest.approx(1e-9)


@pytest.mark.untyped
def test_labels_that_are_numbers_in_another_order_are_refused(table):
    X, y = table
    numbered = X.set_axis([2, 1, 0], axis=1)
    with pytest.raises(ValueError, match="named by strings"):
        COMONetRegressor({0: "increasing"}, **SMALL).fit(numbered, y)
    with pytest.raises(ValueError, match="given twice"):
        COMONetRegressor(domain={"vol": (-9, 9), 2: (-99, 99)}, **SMALL).fit(X, y)
    sized = COMONetRegressor(SHAPES, **SMALL | {"width": np.int64(2), "max_iter": 2}).fit(X, y)
    assert sized._network["width"] == 2
