from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from paperworks.core.claims import WORDS, Claim, Experiment, Headline, Trial, Verdict, judge, ledger

NAN = math.nan
HOLDS = Verdict("holds", "It holds.", (Headline("x", 1.0),))


def table(*statuses: str, **columns: Any) -> pd.DataFrame:
    """A table with one row a trial."""
    errors = {"ok": "", "error": "Traceback\nValueError: boom\n", "unavailable": "gurobi is missing"}
    rows = [
        {"param.n": n, "run.trial": n, "run.status": status, "run.error": errors[status], "run.nan": ""}
        for n, status in enumerate(statuses)
    ]
    return pd.DataFrame(rows).assign(**columns)


def judged(verdict: Verdict, *tables: pd.DataFrame, planned: int | None = None, repair: str = "") -> Verdict:
    claim = Claim("it", "says", "rule", ("a",), lambda *_: verdict)
    return judge(claim, tables, sum(map(len, tables)) if planned is None else planned, repair)


def test_the_words() -> None:
    assert WORDS == ("holds", "partly", "fails", "reported", "out of reach", "unavailable", "error")
    for word in WORDS:
        assert Verdict(word, "").word == word  # type: ignore[arg-type]


@pytest.mark.untyped
def test_another_word_is_refused() -> None:
    with pytest.raises(ValueError, match=r"verdict must be one of holds, .*, got 'works'"):
        Verdict("works", "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("passed", "partly", "word"),
    [
        (True, False, "holds"),
        (True, True, "holds"),
        (False, True, "partly"),
        (False, False, "fails"),
        (np.bool_(True), False, "holds"),
        (np.float64(NAN) > 0, np.float64(NAN) < 0, "fails"),
    ],
)
def test_decide(passed: Any, partly: Any, word: str) -> None:
    number = Headline("x", 1.0, 0.5, 1.5, "m")
    assert Verdict.decide(passed, "s", number, partly=partly) == Verdict(word, "s", (number,))  # type: ignore[arg-type]


@pytest.mark.parametrize("word", ["holds", "partly", "fails", "reported", "out of reach"])
def test_a_sound_verdict_stays_as_the_rule_gave_it(word: Any) -> None:
    verdict = Verdict(word, "s", (Headline("x", None),))
    assert judged(verdict, table("ok", "ok")) == verdict


@pytest.mark.parametrize("word", ["holds", "partly"])
@pytest.mark.parametrize("place", ["row", "value", "low", "high"])
def test_nan_never_passes(word: Any, place: str) -> None:
    numbers = {"value": 1.0, "low": 0.0, "high": 2.0}
    if place in numbers:
        numbers[place] = NAN
    verdict = Verdict(word, "s", (Headline("speed", **numbers),))
    found = judged(verdict, table("ok", "ok", **{"run.nan": ["", "speed" if place == "row" else ""]}))
    assert (found.word, found.sentence) == ("fails", "s NaN in: speed.")


def test_none_is_not_nan() -> None:
    assert judged(HOLDS, table("ok", "ok", **{"value.x": [1.0, None]})) == HOLDS


@pytest.mark.parametrize("word", ["holds", "fails", "reported", "out of reach"])
@pytest.mark.parametrize("statuses", [("ok", "error"), ("error", "error"), ("error", "unavailable")])
def test_an_error_row_makes_error(word: Any, statuses: tuple[str, ...]) -> None:
    found = judged(Verdict(word, "s"), table("ok"), table(*statuses))
    assert found.word == "error"
    assert found.sentence == f"{statuses.count('error')} of 3 trials raised: ValueError: boom"


def test_a_rule_that_raises_makes_error() -> None:
    def rule(table: pd.DataFrame) -> Any:
        return table["value.absent"]

    found = judge(Claim("it", "says", "rule", ("a",), rule), [table("ok")], 1)
    line = rule.__code__.co_firstlineno + 1
    said = f"The rule could not be applied: KeyError: 'value.absent' (test_claims.py, line {line})"
    assert found == Verdict("error", said)


@pytest.mark.untyped
def test_a_rule_that_gives_no_verdict_makes_error() -> None:
    found = judged(True, table("ok"))  # type: ignore[arg-type]
    assert found == Verdict("error", "The rule could not be applied: TypeError: judge must return a Verdict, got bool")


@pytest.mark.untyped
def test_a_headline_holds_numbers() -> None:
    assert Headline("x", np.float32(1), np.int64(0), None).value == 1
    with pytest.raises(TypeError, match="headline 'x' must hold numbers or None, got 'fast'"):
        Headline("x", "fast")  # type: ignore[arg-type]


def test_a_stopped_run_is_out_of_reach() -> None:
    found = judged(HOLDS, table("ok", "ok"), pd.DataFrame(), planned=8)
    assert found.word == "out of reach"
    assert "2 of 8 trials (25 %) are done" in found.sentence


def test_the_share_done_counts_trials_and_not_rows() -> None:
    rows = table("ok", "ok", "ok", **{"run.trial": [0, 0, 1]})
    assert "2 of 4 trials (50 %)" in judged(HOLDS, rows, planned=4).sentence


def test_an_error_counts_more_than_a_stop() -> None:
    assert judged(HOLDS, table("error"), planned=8).word == "error"


def test_a_scale_without_trials_is_out_of_reach() -> None:
    found = judged(HOLDS, table("ok"), pd.DataFrame())
    assert found.word == "out of reach"
    assert "--scale" in found.sentence


def test_what_is_missing_as_a_whole_is_unavailable() -> None:
    found = judged(HOLDS, table("ok"), table("unavailable"), repair="pip install gurobi")
    assert found == Verdict("unavailable", "Not measured: gurobi is missing. pip install gurobi")


def test_a_missing_peer_drops_its_rows_alone() -> None:
    seen = []
    claim = Claim("it", "says", "rule", ("a",), lambda table: (seen.append(list(table["param.n"])), HOLDS)[1])
    found = judge(claim, [table("ok", "unavailable", "ok")], 3, "pip install gurobi")
    assert seen == [[0, 2]]
    assert found == dataclasses.replace(HOLDS, sentence="It holds. Left out: gurobi is missing. pip install gurobi")


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("value", "said"),
    [([1], "must be a number, bool, str or None, got list"), (2**63, "64 bits"), ("\udcff", "UTF-8")],
)
def test_a_parameter_is_what_a_table_holds(value: Any, said: str) -> None:
    assert type(Trial({"n": np.int64(3)})["n"]) is int
    with pytest.raises((TypeError, ValueError), match=f"parameter 'n' .*{said}"):
        Trial({"n": value})


def test_trial_reads_like_a_mapping() -> None:
    trial = Trial({"alpha": 0.5}, seed=3)
    assert trial["alpha"] == 0.5
    assert trial == Trial({"alpha": 0.5}, seed=3, artifact=Path("x"))
    with pytest.raises(KeyError, match="beta"):
        trial["beta"]


def test_ledger(room: Any) -> None:
    room.add()
    book = ledger("toy_room")
    assert list(book.experiments) == ["squares"]
    assert isinstance(book.experiments["squares"], Experiment)
    assert [(claim.id, claim.source) for claim in book.claims.values()] == [("grows", "paper"), ("ours", "ours")]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("CLAIMS = [claim('it'), claim('it')]", "same id"),
        ("EXPERIMENTS *= 2", "same id"),
        ("CLAIMS = [claim('it', experiments=('cubes',))]", r"claim 'it' reads unknown experiments \['cubes'\]"),
        ("CLAIMS = [claim('it', experiments=())]", "claim 'it' reads unknown experiments"),
    ],
)
def test_a_ledger_with_wrong_ids_is_refused(room: Any, lines: str, message: str) -> None:
    room.add(ledger=f"{room.LEDGER}\n{lines}\n")
    with pytest.raises(ValueError, match=f"toy_room.*{message}"):
        ledger("toy_room")
