"""What holds of every fit: mirrored and reordered columns, any parameters, what is saved, how rows are given."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from torch import nn

from paperworks.comonet import COMONet, COMONetClassifier, COMONetRegressor, Shape, audit, certify

TINY: dict[str, Any] = {"width": 2, "depth": 1, "pieces": 2, "max_iter": 5, "random_state": 0}
SEED = st.integers(0, 2**31 - 1)
GROUPS = [shape for shape in Shape if shape.monotonicity >= 0]


def rows(d: int, seed: int = 0, n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(rng.normal(0, 3, d), rng.uniform(0.1, 5, d), (n, d))
    return X, np.sin(X).sum(1) + X @ rng.normal(0, 1, d)


def randomise(module: nn.Module, seed: int, std: float = 2.0) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, std, generator=generator)


@settings(max_examples=20)
@given(
    shapes=st.lists(st.sampled_from(Shape), min_size=1, max_size=4),
    seed=SEED,
    unit=st.sampled_from(["maxout", "lse", "softplus", "relu"]),
    interactions=st.sampled_from(["additive", "product", "both"]),
)
def test_any_parameters_are_proved_and_pass_the_audit(shapes: list[Shape], seed: int, **options: str) -> None:
    rng = np.random.default_rng(seed)
    low = rng.normal(0, 3, len(shapes))
    high = low + rng.uniform(0.1, 5, len(shapes))
    sizes: dict[str, Any] = {"width": 3, "pieces": 2, "product_rank": 2, "product_knots": 3}
    place = {"center": (low + high) / 2, "scale": (high - low) / 3}
    net = COMONet(shapes, domain=np.stack([low, high], 1), dtype=torch.float64, **sizes, **place, **options)
    randomise(net, seed)
    certificate = certify(net)
    assert [column.required for column in certificate.columns] == shapes
    certificate.raise_for_status()

    @torch.no_grad()
    def predict(X: np.ndarray) -> np.ndarray:
        return net(torch.from_numpy(X)).numpy()

    X = rng.uniform(low, high, (10, len(shapes)))
    assert audit(predict, X, shapes, n_points=11).ok


@settings(max_examples=8)
@given(shapes=st.lists(st.sampled_from(Shape), min_size=1, max_size=5), seed=st.integers(0, 1000), data=st.data())
def test_a_column_and_its_shape_may_be_mirrored(shapes: list[Shape], seed: int, data: st.DataObject) -> None:
    X, y = rows(len(shapes), seed)
    signs = [data.draw(st.sampled_from([-1, 1])) if shape.monotonicity else 1 for shape in shapes]
    mirrored = [Shape.of(sign * shape.monotonicity, shape.curvature) for sign, shape in zip(signs, shapes, strict=True)]
    model = COMONetRegressor(shapes, **TINY).fit(X, y)
    other = COMONetRegressor(mirrored, **TINY).fit(X * signs, y)
    np.testing.assert_array_equal(other.predict(X * signs), model.predict(X))
    np.testing.assert_array_equal(other.derivatives(X * signs), model.derivatives(X) * signs)


@settings(max_examples=5)
@given(order=st.permutations(range(6)), signs=st.lists(st.sampled_from([-1, 1]), min_size=6, max_size=6))
def test_derivatives_follow_their_columns(order: Sequence[int], signs: list[int]) -> None:
    X, y = rows(6)
    shapes = [Shape.of(s * shape.monotonicity, shape.curvature) for s, shape in zip(signs, GROUPS, strict=True)]
    model = COMONetRegressor(shapes, **TINY).fit(X, y)
    other = COMONetRegressor([shapes[j] for j in order], **TINY).fit(X[:, order], y)
    expected = model.derivatives(X)
    assert (expected != 0).any(axis=0).all()
    np.testing.assert_allclose(other.derivatives(X[:, order]), expected[:, order], rtol=1e-9)


@pytest.mark.parametrize(("kind", "interactions"), [(COMONetRegressor, "both"), (COMONetClassifier, "additive")])
def test_the_mean_of_any_members_is_proved_and_passes_the_audit(kind: Any, interactions: str) -> None:
    X, y = rows(9)
    options = TINY | {"max_iter": 1, "n_members": 2, "product_rank": 2, "product_knots": 2}
    model = kind(list(Shape), interactions=interactions, **options).fit(X, y if kind is COMONetRegressor else y > 0)
    for member, seed in zip(model.members_, (1, 2), strict=True):
        randomise(member, seed)
    certificate = model.certify()
    certificate.raise_for_status()
    assert [column.required for column in certificate.columns] == list(Shape)
    assert model.audit(X, n_lines=8, n_points=11).ok
    assert np.ptp(model.derivatives(X)) > 0


@pytest.mark.parametrize("ordinal", [False, True])
def test_classifiers_come_back_bit_equal(tmp_path: Path, ordinal: bool) -> None:
    X, y = rows(3)
    labels = np.digitize(y, np.quantile(y, [0.3, 0.7])) if ordinal else np.where(y > 0, "good", "bad")
    model = COMONetClassifier([1, 0, -1], ordinal=ordinal, n_members=2, **TINY).fit(X, labels)
    model.save(tmp_path / "model")
    for twin in (COMONetClassifier.load(tmp_path / "model"), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(twin.decision_function(X), model.decision_function(X))
        np.testing.assert_array_equal(twin.predict_proba(X), model.predict_proba(X))
        np.testing.assert_array_equal(twin.predict(X), model.predict(X))
        assert twin.certificate_.ok


def test_minibatch_fits_come_back_bit_equal(tmp_path: Path) -> None:
    X, y = rows(3)
    model = COMONetRegressor([1, "convex", 0], solver="adam", **TINY).fit(X, y)
    model.save(tmp_path / "model")
    for twin in (COMONetRegressor.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(twin.predict(X), model.predict(X))
        np.testing.assert_array_equal(twin.derivatives(X), model.derivatives(X))


@pytest.mark.parametrize("d", [1, 3])
def test_how_rows_are_given_does_not_matter(d: int) -> None:
    X, y = rows(d)
    X = X.astype(np.float32)
    plain = COMONetRegressor("increasing", **TINY).fit(X.astype(np.float64), y)
    for same in (X, np.asfortranarray(X), X.tolist()):
        model = COMONetRegressor("increasing", **TINY).fit(same, y)
        np.testing.assert_array_equal(model.predict(same), plain.predict(X))
    assert plain.n_features_in_ == d
    assert plain.derivatives(X).shape == (30, d)
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(d)])
    named = COMONetRegressor({"c0": "increasing"}, **TINY).fit(frame, y)
    assert named.feature_names_in_.tolist() == list(frame)
    assert named.certificate_.columns[0].name == "c0"


def test_shapes_by_name_survive_an_encoder() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"town": rng.choice(["Bonn", "Ulm"], 40), "area": rng.uniform(20, 90, 40)})
    y = X["area"] + 10 * (X["town"] == "Ulm")
    encoder = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["town"]), remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform="pandas")
    pipe = make_pipeline(encoder, COMONetRegressor({"area": "concave increasing"}, **TINY)).fit(X, y)
    columns = pipe[-1].certificate_.columns
    assert [(column.name, column.required) for column in columns] == [
        ("town_Bonn", "free"),
        ("town_Ulm", "free"),
        ("area", "concave_increasing"),
    ]
    assert (np.diff(pipe.predict(pd.DataFrame({"town": "Ulm", "area": np.linspace(0, 200, 9)}))) >= 0).all()
