from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from paperworks.comonet.shapes import Shape, resolve_shapes

SIGNS = (-1, 0, 1)


def test_the_nine_shapes_are_all_pairs_of_signs() -> None:
    pairs = list(itertools.product(SIGNS, SIGNS))
    assert {Shape.of(m, c) for m, c in pairs} == set(Shape)
    assert [(Shape.of(m, c).monotonicity, Shape.of(m, c).curvature) for m, c in pairs] == pairs


@pytest.mark.parametrize("shape", Shape)
def test_parse_reads_words_in_any_order_case_and_separator(shape: Shape) -> None:
    words = shape.value.split("_")
    short = {"increasing": "inc", "decreasing": "dec", "convex": "cvx", "concave": "ccv", "free": "none"}
    for order in itertools.permutations(words):
        for separator in (" ", "_", "-", "+", ",", ", "):
            assert Shape.parse(separator.join(order)) is shape
            assert Shape.parse(separator.join(short[word] for word in order).upper()) is shape
    assert Shape.parse(shape) is shape


def test_parse_reads_what_scikit_learn_writes() -> None:
    assert [Shape.parse(m) for m in (1, 0, np.int64(-1), None)] == ["increasing", "free", "decreasing", "free"]


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        ("increasing decreasing", ValueError, "contradictory"),
        ("convex-concave", ValueError, "contradictory"),
        ("free convex", ValueError, "contradictory"),
        ("growing convex", ValueError, "'growing' is unknown"),
        ("", ValueError, "must be one of free, increasing, .*, concave_decreasing"),
        ("monotone", ValueError, "must be one of free, increasing, .*, concave_decreasing.*'monotone'"),
        (2, ValueError, "-1, 0 or 1.*2"),
        (1.0, TypeError, r"1\.0"),
        (True, TypeError, "True"),
    ],
)
def test_parse_refuses(bad: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Shape.parse(bad)


@pytest.mark.untyped
def test_of_refuses_other_numbers() -> None:
    with pytest.raises(ValueError, match="curvature must be -1, 0 or 1, got 2"):
        Shape.of(0, 2)


def test_implies_is_the_order_of_the_pairs() -> None:
    for a, b in itertools.product(Shape, Shape):
        stronger = all(y in (0, x) for x, y in ((a.monotonicity, b.monotonicity), (a.curvature, b.curvature)))
        assert a.implies(b) == stronger
    assert Shape.CONVEX_INCREASING.implies(Shape.INCREASING)
    assert not Shape.INCREASING.implies(Shape.CONVEX_INCREASING)
    assert all(shape.implies(Shape.FREE) for shape in Shape)


def test_six_groups_remain_after_reflection() -> None:
    assert {shape.group for shape in Shape} == {shape for shape in Shape if shape.monotonicity >= 0}
    assert Shape.CONCAVE_DECREASING.group is Shape.CONCAVE_INCREASING
    assert Shape.CONVEX.group is Shape.CONVEX


def test_resolve_reads_every_form() -> None:
    names = ["a", "b", "c"]
    assert resolve_shapes(None, 3) == (Shape.FREE,) * 3
    assert resolve_shapes("convex", 2) == (Shape.CONVEX,) * 2
    assert resolve_shapes(["inc", None, -1], 3) == ("increasing", "free", "decreasing")
    assert resolve_shapes(np.array([1, 0, -1]), 3) == ("increasing", "free", "decreasing")
    assert resolve_shapes({"c": "inc", 0: "ccv"}, 3, names) == ("concave", "free", "increasing")
    assert resolve_shapes({np.int64(1): "inc"}, 2) == ("free", "increasing")
    assert resolve_shapes({}, 2) == ("free", "free")


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("shapes", "names", "error", "message"),
    [
        ({"z": "inc", 5: "inc"}, ["a", "b"], ValueError, "'z', 5; the columns are 'a', 'b'"),
        ({-1: "inc"}, None, ValueError, "-1; the columns are 0 to 1"),
        ({"a": "inc"}, None, ValueError, "'a'; the columns are 0 to 1, without names"),
        ({True: "inc"}, None, ValueError, "True"),
        ({"a": "inc", 0: "inc"}, ["a", "b"], ValueError, "given twice"),
        (["inc"], None, ValueError, "each of the 2 columns, got 1"),
        (["inc", "up"], None, ValueError, "'up' is unknown"),
        ({"a": "convex concave"}, ["a", "b"], ValueError, "contradictory"),
        ("sideways", None, ValueError, "'sideways'"),
        (3, None, TypeError, "mapping, got 3"),
        (None, ["a"], ValueError, "feature_names must have length 2, got 1"),
    ],
)
def test_resolve_refuses(shapes: object, names: list[str] | None, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        resolve_shapes(shapes, 2, names)


def test_a_series_is_read_by_its_index_and_a_set_is_refused():
    series = pd.Series({"c": "inc", "a": "dec"})
    assert resolve_shapes(series, 3, ["a", "b", "c"]) == (Shape.DECREASING, Shape.FREE, Shape.INCREASING)
    with pytest.raises(TypeError, match="set"):
        resolve_shapes({"inc", "dec"}, 2)
