from __future__ import annotations

import functools
import json
import os
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from paperworks.core.claims import Trial
from paperworks.core.engine import Engine
from paperworks.core.extras import install_command
from paperworks.core.paper import system
from paperworks.core.runner import TooLong, check, forget, measure_trial, plan

SLOW = """
from threadpoolctl import threadpool_info


def trials(scale):
    return [Trial({"n": n, "threads": n % 2 + 1}, seed=n, threads=n % 2 + 1) for n in range(8)]


def measure(trial):
    log("start", trial["n"])
    time.sleep(float(os.environ.get("ROOM_SLEEP", "0")) * (trial["n"] > 1))
    matrix = np.random.default_rng(trial.seed).normal(size=(300, 300))
    log("stop", trial["n"])
    # Sums reveal a change of threads, which reorders them.
    threads = max(pool["num_threads"] for pool in threadpool_info())
    return {"sum": float((matrix @ matrix.T).sum()), "seed": trial.seed, "threads": threads}


EXPERIMENTS = [Experiment("squares", trials, measure)]
CLAIMS = [claim("it")]
"""

SHORT = """
def trials(scale):
    return [Trial({"n": n}) for n in range(3)]


def measure(trial):
    log("squares", trial["n"])
    MEASURE


EXPERIMENTS = [Experiment("squares", trials, measure)]
CLAIMS = [claim("it")]
"""


def short(measure: str) -> str:
    return SHORT.replace("MEASURE", measure)


def wait_for(done: Any, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until
        time.sleep(0.01)


def starts(lines: list[str]) -> list[int]:
    return sorted(int(line.split()[1]) for line in lines if line.startswith("start"))


def stored(room: Any) -> list[Path]:
    return sorted(room.root.glob("cache/trials/toy_room/squares/*.json"))


@pytest.fixture
def whole(room: Any) -> Any:
    """A system measured without a break, in this process, and forgotten."""
    room.add(ledger=SLOW)
    room.check(out=room.root / "whole")
    assert starts(room.lines()) == list(range(8))
    forget("toy_room")
    return room


def begin(room: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Start a check whose trials block but for the first two, and wait until those are stored."""
    monkeypatch.setenv("ROOM_SLEEP", "600")
    process = room.start("check", "toy_room", "--jobs", "2")
    monkeypatch.setenv("ROOM_SLEEP", "0")
    # Both workers are at work: one that is still starting cannot yet leave an interrupt to its parent.
    wait_for(lambda: len(stored(room)) >= 1 and {2, 4} <= set(starts(room.log.read_text().splitlines())))
    return process


def test_a_killed_run_goes_on_where_it_was(whole: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    process = begin(whole, monkeypatch)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (whole.out / "verdicts").exists()
    done = {json.loads(path.read_text())["params"]["n"] for path in stored(whole)}
    assert done
    whole.lines()

    assert whole.check()["claims"]["it"]["verdict"] == "holds"
    assert starts(whole.lines()) == sorted(set(range(8)) - done)
    assert whole.measured().equals(whole.measured(out=whole.root / "whole"))
    # Nothing half-written stays behind beside what is stored.
    assert len(stored(whole)) == len(list((whole.root / "cache/trials/toy_room/squares").iterdir())) == 8


def test_an_interrupted_run_says_how_far_it_came(whole: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    process = begin(whole, monkeypatch)
    # To the whole group, as a terminal does.
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in err
    done = len(stored(whole))
    claim = whole.verdicts()["it"]
    assert claim["verdict"] == "out of reach"
    assert f"{done} of 8 trials ({100 * done / 8:.0f} %) are done" in claim["sentence"]
    assert claim["trials"] == {"done": done, "error": 0, "total": 8}
    assert len(whole.measured()) == done
    assert "out of reach" in (whole.out / "report" / "toy_room.html").read_text()
    whole.lines()

    assert whole.check()["claims"]["it"]["verdict"] == "holds"
    assert len(starts(whole.lines())) == 8 - done
    assert whole.measured().equals(whole.measured(out=whole.root / "whole"))


def test_tables_and_threads_do_not_depend_on_jobs(whole: Any) -> None:
    whole.run("check", "toy_room", "--jobs", "2", "--out", "two")
    assert len(whole.lines()) == 16
    table = whole.measured(out=whole.root / "two")
    assert table.equals(whole.measured(out=whole.root / "whole"))
    assert list(table["value.threads"]) == list(table["param.threads"]) == [1, 2] * 4


def test_a_raising_trial_is_an_error_row_and_the_others_go_on(room: Any) -> None:
    room.add(ledger=short("return {'inverse': 1 / (trial['n'] - 1)}"))
    word, sentence = room.word()
    assert (word, sentence) == ("error", "1 of 3 trials raised: ZeroDivisionError: division by zero")
    table = room.table()
    assert list(table["run.status"]) == ["ok", "error", "ok"]
    assert list(table["value.inverse"].fillna(0)) == [-1.0, 0.0, 1.0]
    assert "Traceback" in table["run.error"][1]
    assert "claims.py" in table["run.error"][1]
    assert room.verdicts()["it"]["trials"] == {"done": 2, "error": 1, "total": 3}
    # An error is no result: the next run tries again.
    room.lines()
    room.check()
    assert room.lines() == ["squares 1"]


@pytest.mark.parametrize(
    ("measure", "error"),
    [
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("assert trial['n'] < 0", "AssertionError"),
        ("return {'x': [1]}", "TypeError: measured value 'x' must be a number, bool, str or None, got list"),
        ("return {'x': np.ones(2)}", "TypeError: measured value 'x' must be a number"),
        ("return {'x': 2**63}", "ValueError: measured value 'x' must be an int of 64 bits or a float"),
        ("return {'x': chr(0xDCFF)}", "ValueError: measured value 'x' must be text that UTF-8 can hold"),
        ("return None", "TypeError"),
        ("return trial['m']", "KeyError: 'm'"),
    ],
)
def test_whatever_goes_wrong_in_a_trial_is_an_error(room: Any, measure: str, error: str) -> None:
    room.add(ledger=short(measure))
    word, sentence = room.word()
    assert word == "error"
    assert sentence.startswith(f"3 of 3 trials raised: {error}")


def test_a_worker_that_dies_is_an_error_row_and_the_others_finish(room: Any) -> None:
    room.add(ledger=short("if trial['n'] == 1: os.kill(os.getpid(), 9)\n    return {}"))
    room.run("check", "toy_room", "--jobs", "2")
    table = room.table()
    assert list(table["run.status"]) == ["ok", "error", "ok"]
    assert "worker process was killed" in table["run.error"][1]
    assert room.verdicts()["it"]["verdict"] == "error"


def test_two_claims_of_one_experiment_run_its_trials_once(room: Any) -> None:
    room.add()
    found = room.check()["claims"]
    assert room.lines() == [f"squares {n}" for n in range(4)]
    assert {name: claim["trials"]["total"] for name, claim in found.items()} == {"grows": 4, "ours": 4}


def test_a_claim_runs_its_own_experiments_alone(room: Any) -> None:
    room.add(
        ledger=room.LEDGER
        + """
def other(trial):
    log("other", trial["n"])
    return {}


EXPERIMENTS.append(Experiment("other", trials, other))
CLAIMS.append(claim("other", experiments=("other",)))
"""
    )
    assert list(room.check(claims=["other"])["claims"]) == ["other"]
    assert room.lines() == [f"other {n}" for n in range(4)]
    room.check(claims=["grows"])
    assert room.lines() == [f"squares {n}" for n in range(4)]
    # The verdict of the first run is still there.
    assert list(room.verdicts()) == ["grows", "other"]


@pytest.mark.untyped
def test_an_unknown_claim_lists_those_there_are(room: Any) -> None:
    room.add()
    with pytest.raises(ValueError, match="toy_room has no claim 'x'; it has: grows, ours"):
        plan(system("toy_room"), "quick", ["x"])


def test_fresh_measures_again(room: Any) -> None:
    room.add()
    room.check()
    room.lines()
    room.check(fresh=True)
    assert len(room.lines()) == 4


def test_cheap_trials_run_first(room: Any) -> None:
    room.add(ledger=short("pass; return {}").replace('Trial({"n": n})', 'Trial({"n": n}, cost=-float(n))'))
    room.check()
    assert room.lines() == ["squares 2", "squares 1", "squares 0"]
    assert list(room.table()["param.n"]) == [0, 1, 2]


def test_a_row_says_how_it_was_measured(room: Any) -> None:
    room.add(ledger=short("return [{'x': np.float32(1)}, {'x': np.int64(2)}]"))
    room.check()
    table = room.table()
    assert list(table["value.x"]) == [1.0, 2.0] * 3
    assert list(table["run.trial"]) == [0, 0, 1, 1, 2, 2]
    assert (table["run.seconds"] >= 0).all()
    assert (table["run.memory_mb"] > 1).all()
    assert {"python", "paperworks", "numpy"} <= set(json.loads(table["run.versions"][0]))
    assert list(table["param.seed"]) == [0] * 6


def test_memory_is_sampled_while_a_trial_runs(room: Any) -> None:
    room.add(ledger=short("block = np.ones(25_000_000 * trial['n']); time.sleep(0.2); del block; return {}"))
    room.check()
    peak = room.table()["run.memory_mb"]
    assert peak[2] > peak[0] + 300


@pytest.mark.parametrize(
    ("judge", "word"),
    [
        ("Verdict.decide(True, 'Yes.')", "holds"),
        ("Verdict.decide(False, 'Half.', partly=True)", "partly"),
        ("Verdict.decide(False, 'No.')", "fails"),
        ("Verdict('reported', 'Two.', (Headline('n', 2.0),))", "reported"),
        ("Verdict('out of reach', 'A cluster could decide it.')", "out of reach"),
        ("1 / 0", "error"),
    ],
)
def test_the_words_of_a_rule(room: Any, judge: str, word: str) -> None:
    room.add(ledger=short("return {'x': 1.0}") + f"\nCLAIMS = [claim('it', lambda table: {judge})]\n")
    assert room.word()[0] == word
    assert room.verdicts()["it"]["verdict"] == word


@pytest.mark.parametrize("number", ["float('nan')", "np.float64('nan')", "np.float32('nan')"])
def test_nan_never_passes(room: Any, number: str) -> None:
    room.add(ledger=short(f"return {{'x': {number} if trial['n'] == 1 else 1.0, 'y': None}}"))
    assert room.word() == ("fails", "It holds. NaN in: x.")
    # Nor when it comes from the store.
    room.lines()
    assert room.word() == ("fails", "It holds. NaN in: x.")
    assert room.lines() == []


@pytest.mark.untyped
def test_nan_in_a_headline_never_passes(room: Any) -> None:
    judge = (
        "claim('it', lambda table: Verdict('holds', 'Yes.', (Headline('ratio', np.float64('nan'), 0.0, np.int64(2)),)))"
    )
    room.add(ledger=short("return {'x': 1.0}") + f"\nCLAIMS = [{judge}]\n")
    assert room.word() == ("fails", "Yes. NaN in: ratio.")
    assert room.verdicts()["it"]["headline"] == [{"name": "ratio", "value": None, "low": 0.0, "high": 2, "unit": ""}]


REQUIRES = 'Experiment("squares", trials, measure, requires=("no-such-library", "cvxpy", "no-other"))'


def test_a_missing_library_is_unavailable_with_the_command(room: Any) -> None:
    room.add(ledger=short("return {}") + f"\nEXPERIMENTS = [{REQUIRES}]\n")
    word, sentence = room.word()
    command = install_command(("no-such-library", "no-other"), "toy_room")
    assert command == "pip install no-such-library no-other"
    assert (word, sentence) == ("unavailable", f"Not measured: no-such-library, no-other is missing. {command}")
    assert room.lines() == []
    assert room.verdicts()["it"]["trials"] == {"done": 0, "error": 0, "total": 3}


def test_a_missing_peer_drops_its_rows_alone(room: Any) -> None:
    ledger = short("return {'x': 1.0}").replace(
        'Trial({"n": n})', 'Trial({"n": n}, requires=((), ("no-peer",), ("no-other",))[n])'
    )
    judge = "claim('it', lambda table: Verdict('reported', f'{len(table)} rows.'))"
    room.add(ledger=ledger + f"\nCLAIMS = [{judge}]\n")
    expected = "1 rows. Left out: no-other is missing; no-peer is missing. pip install no-peer no-other"
    assert room.word() == ("reported", expected)
    assert list(room.table()["run.status"]) == ["ok", "unavailable", "unavailable"]


def test_what_a_trial_itself_misses_is_unavailable(room: Any) -> None:
    room.add(ledger=short("from paperworks.core.extras import require; require('no_such_module', 'peers')"))
    assert room.word() == (
        "unavailable",
        "Not measured: no_such_module is not installed: pip install 'paperworks[peers]'.",
    )


DATA = """
from paperworks.core.data import DataFile, path

FILE = DataFile("SLUG", "a.csv", "0" * 64, "MIT", url="http://127.0.0.1:1/a.csv")


def trials(scale):
    return [Trial({"n": n}) for n in range(3)]


def measure(trial):
    log("squares", trial["n"])
    MEASURE
    return {}


EXPERIMENTS = [Experiment("squares", trials, measure, data=(FILE,))]
CLAIMS = [claim("it")]
"""


def test_missing_data_is_unavailable_at_full_and_not_needed_at_quick(room: Any) -> None:
    room.add(ledger=DATA.replace("MEASURE", ""))
    assert room.word() == ("holds", "It holds.")
    assert len(room.lines()) == 3
    forget("toy_room")
    word, sentence = room.word(scale="full")
    assert word == "unavailable"
    for part in ("toy_room/a.csv", "http://127.0.0.1:1/a.csv", "PAPERWORKS_DATA"):
        assert part in sentence
    assert room.lines() == []


def test_quick_never_downloads(room: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from paperworks.core import data

    monkeypatch.setattr(data, "_download", lambda *_: pytest.fail("a download"))
    room.add(ledger=DATA.replace("MEASURE", "path(FILE)"))
    word, sentence = room.word()
    assert word == "unavailable"
    assert "http://127.0.0.1:1/a.csv" in sentence
    assert "PAPERWORKS_OFFLINE" not in os.environ


HOURS = 'Experiment("squares", trials, measure, hours={"quick": 100.0, "full": 3.5})'


def test_a_long_check_is_refused_before_anything_happens(room: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from paperworks.core import data

    monkeypatch.setattr(data, "path", lambda *_: pytest.fail("a download"))
    room.add(ledger=DATA.replace("MEASURE", "").replace("data=(FILE,)", 'data=(FILE,), hours={"full": 3.5}'))
    with pytest.raises(TooLong, match=r"about 3\.5 CPU hours; allow them with --max-hours 4"):
        room.check(scale="full")
    assert not room.out.exists()
    assert room.lines() == []


def test_the_hours_are_those_of_what_is_left(room: Any) -> None:
    room.add(ledger=room.LEDGER + f"\nEXPERIMENTS = [{HOURS}]\n")
    room.check()
    assert plan(system("toy_room"), "full").hours == pytest.approx(3.5 * 2 / 6)
    assert plan(system("toy_room"), "full", fresh=True).hours == pytest.approx(3.5)
    with pytest.raises(TooLong):
        room.check(scale="full", max_hours=1.1)
    assert room.check(scale="full", max_hours=1.2)["claims"]["grows"]["verdict"] == "holds"
    assert room.lines() == [f"squares {n}" for n in range(6)]


def test_scales_are_never_mixed(room: Any) -> None:
    room.add()
    assert room.check(scale="full")["claims"]["grows"]["trials"]["total"] == 6
    assert not (room.out / "results/quick").exists()
    room.check()
    assert len(room.table()) == 4
    assert len(room.table(scale="full")) == 6


def test_a_scale_without_trials_is_out_of_reach(room: Any) -> None:
    room.add(ledger=short("return {}").replace("range(3)", "range(3 * (scale == 'full'))"))
    assert room.word()[0] == "out of reach"
    assert room.word(scale="full")[0] == "holds"


PREPARE = """
def prepare(scale, folder):
    log("prepare", scale)
    print("said while preparing")
    PREPARE
    (folder / "input").write_text(scale)


def trials(scale):
    return [Trial({"n": n}, requires=("numpy",) * (n % 2)) for n in range(4)]


def measure(trial):
    return {"input": (trial.artifact / "input").read_text()}


EXPERIMENTS = [Experiment("squares", trials, measure, prepare)]
CLAIMS = [claim("it")]
"""


def test_an_input_is_prepared_once_a_scale(room: Any) -> None:
    room.add(ledger=PREPARE.replace("PREPARE", ""))
    assert room.word() == ("holds", "It holds.")
    assert list(room.table()["value.input"]) == ["quick"] * 4
    assert room.word(fresh=True)[0] == "holds"
    assert room.lines() == ["prepare quick"]
    assert room.word(scale="full")[0] == "holds"
    assert room.lines() == ["prepare full"]
    assert list(room.table(scale="full")["value.input"]) == ["full"] * 4


def test_an_input_that_another_check_has_prepared_meanwhile_is_kept(room: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile = "there = Path(os.environ['THERE']); there.mkdir(parents=True); (there / 'input').write_text('theirs')"
    room.add(ledger=f"from pathlib import Path\n{PREPARE.replace('PREPARE', meanwhile)}")
    artifact = plan(system("toy_room"), "quick").jobs["squares"][0].trial.artifact
    assert artifact is not None
    monkeypatch.setenv("THERE", str(artifact))
    assert room.word() == ("holds", "It holds.")
    assert list(room.table()["value.input"]) == ["theirs"] * 4
    assert list(artifact.parent.iterdir()) == [artifact]


def test_an_input_that_cannot_be_prepared_is_an_error_row(room: Any) -> None:
    room.add(ledger=PREPARE.replace("PREPARE", "(folder / 'input').write_text('half'); 1 / 0"))
    assert room.word() == ("error", "4 of 4 trials raised: ZeroDivisionError: division by zero")
    # It is tried once, not once a trial; and half an input is none.
    assert room.lines() == ["prepare quick"]
    assert room.word()[0] == "error"
    assert room.lines() == ["prepare quick"]


def test_an_input_that_misses_something_is_unavailable(room: Any) -> None:
    room.add(
        ledger=PREPARE.replace("PREPARE", "from paperworks.core.extras import require; require('no_such', 'peers')")
    )
    word, sentence = room.word()
    assert word == "unavailable"
    assert "pip install 'paperworks[peers]'" in sentence


def test_what_trials_print_stays_off_standard_output(room: Any, capsys: pytest.CaptureFixture[str]) -> None:
    room.add(ledger=PREPARE.replace("PREPARE", "").replace("    return {", "    print('said')\n    return {"))
    room.check()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["said while preparing"] + ["said"] * 4


def test_a_trial_leaves_no_folder_and_no_warning_filter_behind(room: Any) -> None:
    room.add(ledger=short("import warnings; warnings.simplefilter('error'); os.chdir('/')\n    return {}"))
    before = warnings.filters[:]
    room.check(out="here")
    assert Path.cwd() == room.root
    assert warnings.filters == before
    assert (room.root / "here" / "verdicts").is_dir()


def test_measure_trial_returns_a_record(room: Any) -> None:
    room.add()
    record = measure_trial("toy_room", "squares", Trial({"n": 3}, seed=7))
    assert record["params"] == {"n": 3, "seed": 7}
    assert [row["square"] for row in record["rows"]] == [9]
    assert record["run"]["status"] == "ok"


class Watch:
    """Records what a progress display is told."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def start(self, plans: Any) -> None:
        self.said.append(sum(len(plan.left) for plan in plans))

    def advance(self, plan: Any, job: Any) -> None:
        self.said.append((plan.paper.slug, job.number, job.record["run"]["status"]))

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize("broken", [False, True])
def test_progress_hears_of_every_trial_that_was_left(room: Any, broken: bool) -> None:
    room.add(ledger=PREPARE.replace("PREPARE", "1 / 0" if broken else ""))
    watch = Watch()
    room.check(progress=watch)
    assert watch.said == [4, *(("toy_room", n, "error" if broken else "ok") for n in range(4))]
    watch = Watch()
    room.check(progress=watch, scale="full", max_hours=1e9)
    assert watch.said[0] == "full scale: about 0.1 CPU hours are left to measure"


def test_several_systems_run_in_one_go(room: Any) -> None:
    room.add("aa_room")
    room.add("bb_room")
    papers = [system("aa_room"), system("bb_room")]
    documents = check(papers, engine=Engine(), out=room.out)
    assert [document["slug"] for document in documents] == ["aa_room", "bb_room"]
    assert len(room.lines()) == 8
    for slug in ("aa_room", "bb_room"):
        assert room.verdicts(slug)["grows"]["verdict"] == "holds"


def test_forget_drops_one_system(room: Any) -> None:
    room.add("aa_room")
    room.add("bb_room")
    measure = functools.partial(check, [system("aa_room"), system("bb_room")], engine=Engine(), out=room.out)
    measure()
    room.lines()
    forget("aa_room")
    measure()
    assert len(room.lines()) == 4
