"""Sampled audits: violations of known functions are found, conforming functions pass."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.comonet.auditing import audit
from paperworks.comonet.shapes import Shape

ROWS = np.random.default_rng(0).uniform(-1, 1, (300, 3))


def test_conforming_function_passes():
    def smooth(X):
        return np.exp(X[:, 0]) * 3 - X[:, 1] ** 2 + 1e3 * X[:, 2]

    shapes = ["convex increasing", "concave", "increasing"]
    report = audit(smooth, ROWS, shapes)
    assert report.ok
    assert [c.checked for c in report.columns] == [200 * (40 + 39), 200 * 39, 200 * 40]
    assert "not a proof" in str(report)


def test_violations_are_found_and_located():
    def broken(X):
        return np.abs(X[:, 0]) + np.where((X[:, 1] > 0.5) & (X[:, 2] > 0), -1.0, 0.0)

    report = audit(broken, ROWS, {0: "concave", 1: "increasing"}, n_points=21)
    kink, step = report.columns
    assert not report.ok
    assert kink.share == pytest.approx(2 / 19, abs=1e-12)  # the two triples around 0
    assert 0.0 < kink.worst <= 0.21
    assert kink.where[0] < 0 < kink.where[-1]
    assert step.worst == 1.0
    assert step.where[0] <= 0.5 < step.where[1]
    assert ROWS[step.row, 2] > 0
    assert "VIOLATED" in str(report)
    assert report.to_frame()["name"].tolist() == ["x0", "x1"]


@settings(max_examples=30, deadline=None)
@given(slope=st.floats(-5, 5), curvature=st.floats(-5, 5), shape=st.sampled_from(list(Shape)))
def test_a_parabola_is_judged_right(slope, curvature, shape):
    rows = np.linspace(-1, 1, 11)[:, None]
    report = audit(lambda X: slope * X[:, 0] + curvature * X[:, 0] ** 2 / 2, rows, shape)
    low, high = sorted([slope - curvature, slope + curvature])
    m, c = shape.monotonicity, shape.curvature
    margin = 0.2  # closer to the border the grid or the rounding decides
    if (m * low >= 0 and m * high >= 0) and c * curvature >= 0:
        assert report.ok
    elif min(m * low, m * high) < -margin or c * curvature < -margin:
        assert not report.ok


def test_frames_keep_their_columns():
    frame = pd.DataFrame({"age": [20, 40, 60], "kind": ["a", "b", "a"], "same": [1, 1, 1]})

    def predict(X):
        assert list(X.columns) == ["age", "kind", "same"]
        return X["age"] * np.where(X["kind"] == "a", 1.0, 2.0) - X["same"]

    report = audit(predict, frame, {"age": "increasing", "same": "decreasing"})
    assert report.ok
    assert [c.name for c in report.columns] == ["age", "same"]
    assert not audit(predict, frame, {"same": "increasing"}).ok
    assert frame["age"].tolist() == [20, 40, 60]
    assert audit(predict, frame, None).columns == ()
    assert audit(predict, frame, None).to_frame().empty


def test_seed_and_column_vector():
    def predict(X):
        return np.sin(3 * X[:, :1])

    first, second = (audit(predict, ROWS, "increasing", n_lines=5, random_state=1) for _ in range(2))
    assert first == second
    assert first.columns[1].worst == 0.0


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"predict": 3}, TypeError, "predict must be callable"),
        ({"predict": lambda X: X}, ValueError, "one number a row"),
        ({"predict": lambda X: X[:, 0] * np.nan}, ValueError, "finite numbers"),
        ({"X": ROWS[0]}, ValueError, "X must have shape"),
        ({"X": ROWS[:0]}, ValueError, "at least one row"),
        ({"X": ROWS.astype(str)}, TypeError, "X must be numeric"),
        ({"X": np.where(ROWS[0] == ROWS, np.nan, ROWS)}, ValueError, "must be finite"),
        ({"X": pd.DataFrame({"kind": ["a", "b"]})}, TypeError, "'kind' of X must be numeric"),
        ({"shapes": "wavy"}, ValueError, "wavy"),
        ({"shapes": {"age": "convex"}}, ValueError, "age"),
        ({"n_lines": 0}, ValueError, "n_lines must be at least 1"),
        ({"n_points": 2}, ValueError, "n_points must be at least 3"),
        ({"tol": -1.0}, ValueError, "tol must be"),
        ({"random_state": None}, TypeError, "random_state must be an integer"),
    ],
)
def test_bad_input(change, error, message):
    arguments = {"predict": lambda X: np.asarray(X)[:, 0], "X": ROWS, "shapes": "increasing"} | change
    with pytest.raises(error, match=message):
        audit(**arguments)
