from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from paperworks.core.results import finite, read_table, read_verdicts, table, write_table, write_verdicts


def record(n: Any, *rows: dict[str, Any], **run: Any) -> dict[str, Any]:
    return {"params": {"n": n}, "rows": list(rows), "run": {"status": "ok", **run}}


def test_a_line_a_row_and_one_for_a_trial_without() -> None:
    frame = table([record(1, {"x": 1.0}, {"x": 2.0}), record(2, status="error")])
    assert list(frame["param.n"]) == [1, 1, 2]
    assert list(frame["value.x"].fillna(-1)) == [1.0, 2.0, -1.0]
    assert list(frame["run.status"]) == ["ok", "ok", "error"]


def test_the_columns_stand_in_the_order_parameters_values_run() -> None:
    frame = table([record(1, status="error"), record(2, {"x": 1, "a": 2})])
    assert list(frame.columns) == ["param.n", "value.x", "value.a", "run.status", "run.nan"]


def test_nan_is_told_from_what_was_not_measured() -> None:
    frame = table([record(1, {"x": math.nan, "y": 1.0, "z": math.nan}), record(2, {"x": None, "y": 1.0}), record(3)])
    assert list(frame["run.nan"]) == ["x,z", "", ""]


def test_no_records_give_an_empty_table() -> None:
    assert table([]).empty


@pytest.mark.parametrize(
    "values",
    [
        [1, 2],
        [1.5, None],
        [True, False],
        ["a", None],
        [None, None],
        [math.nan, 1.0],
        [math.inf, -math.inf],
    ],
)
def test_a_table_comes_back_as_it_was(tmp_path: Path, values: list[Any]) -> None:
    frame = table([record(n, {"x": value}) for n, value in enumerate(values)])
    path = write_table(tmp_path, "quick", "toy", "squares", frame)
    assert path == tmp_path / "results/quick/toy/squares.parquet"
    pd.testing.assert_frame_equal(read_table(tmp_path, "quick", "toy", "squares"), frame)


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        (["greedy", 1.5, None], ["greedy", "1.5", None]),
        ([1, 1.5, None], [1.0, 1.5, None]),
        ([True, "a"], ["True", "a"]),
    ],
)
def test_a_column_of_mixed_types_is_storable(tmp_path: Path, values: list[Any], stored: list[Any]) -> None:
    write_table(tmp_path, "quick", "toy", "x", table([record(value) for value in values]))
    back = read_table(tmp_path, "quick", "toy", "x")["param.n"]
    assert [None if pd.isna(value) else value for value in back] == stored


def test_an_empty_table_is_storable(tmp_path: Path) -> None:
    write_table(tmp_path, "quick", "toy", "x", table([]))
    assert read_table(tmp_path, "quick", "toy", "x").empty


def document(*claims: str, order: str = "abc", word: str = "holds") -> dict[str, Any]:
    return {
        "schema": 1,
        "slug": "toy",
        "claims": [{"id": name, "verdict": word} for name in claims],
        "order": list(order),
    }


def test_verdicts_of_other_claims_are_kept_in_the_order_of_the_ledger(tmp_path: Path) -> None:
    write_verdicts(tmp_path, "quick", "toy", document("a", "b", "c"))
    write_verdicts(tmp_path, "quick", "toy", document("b", word="fails"))
    found = read_verdicts(tmp_path, "quick", "toy")
    assert [(claim["id"], claim["verdict"]) for claim in found["claims"]] == [
        ("a", "holds"),
        ("b", "fails"),
        ("c", "holds"),
    ]
    assert "order" not in found


def test_verdicts_of_claims_that_are_gone_are_dropped(tmp_path: Path) -> None:
    write_verdicts(tmp_path, "quick", "toy", document("a", "b", "c"))
    write_verdicts(tmp_path, "quick", "toy", document("a", order="ac"))
    assert [claim["id"] for claim in read_verdicts(tmp_path, "quick", "toy")["claims"]] == ["a", "c"]


def test_scales_are_never_mixed(tmp_path: Path) -> None:
    write_verdicts(tmp_path, "quick", "toy", document("a"))
    write_verdicts(tmp_path, "full", "toy", document("b"))
    assert [claim["id"] for claim in read_verdicts(tmp_path, "full", "toy")["claims"]] == ["b"]


def test_verdicts_are_strict_json(tmp_path: Path) -> None:
    numbers = {"id": "a", "value": np.float64("nan"), "n": np.int64(3), "yes": np.bool_(True), "é": (math.inf, 1)}
    path = write_verdicts(tmp_path, "quick", "toy", {"claims": [numbers], "order": ["a"]})
    text = path.read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail)["claims"] == [
        {"id": "a", "value": None, "n": 3, "yes": True, "é": [None, 1]}
    ]


def test_finite_keeps_what_is_finite() -> None:
    value = {"a": [1, 2.5, None, "nan", True], "b": {"c": -0.0}}
    assert finite(value) == value
    assert finite(np.float32("inf")) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("\xff", "is not JSON"),
        ("[]", "schema must be 1, got None"),
        ('{"schema": 2}', "schema must be 1, got 2"),
        ('{"schema": 1}', "lists no claims"),
        ('{"schema": 1, "claims": [1]}', "lists no claims"),
    ],
)
def test_a_damaged_verdict_file_is_named_and_kept(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "verdicts" / "quick" / "toy.json"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="latin-1")
    for act in (
        lambda: read_verdicts(tmp_path, "quick", "toy"),
        lambda: write_verdicts(tmp_path, "quick", "toy", document("a")),
    ):
        with pytest.raises(ValueError, match=rf"toy\.json:? {said}.*delete it and check again"):
            act()
    assert path.read_text(encoding="latin-1") == text
