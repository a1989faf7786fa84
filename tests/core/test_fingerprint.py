from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paperworks.core.fingerprint import key

ALL = [f"squares {n}" for n in range(4)]
KERNEL = """
from paperworks.core.deep import one


def kernel():
    return one
"""
METHOD = """
from paperworks.core.validation import check_integer


def square(n: int) -> int:
    from paperworks.core import kernel

    return check_integer(n, "n") ** 2 + 0 * kernel.kernel()
"""
LEDGER = """
from paperworks.SLUG.data import FILE
from paperworks.SLUG.method import square


def trials(scale):
    return [Trial({"n": n}, seed=n, requires=("fakepeer",)) for n in range(4)]


def measure(trial):
    log("squares", trial["n"])
    return {"square": square(trial["n"])}


EXPERIMENTS = [Experiment("squares", trials, measure, requires=("fakelib",), data=(FILE,))]
CLAIMS = [claim("it")]
"""
DATA = """
from paperworks.core.data import DataFile

FILE = DataFile("SLUG", "a.csv", "0" * 64, "MIT", url="http://127.0.0.1:1/a.csv")
FILES = (FILE,)
"""


def library(room: Any, name: str, version: str) -> None:
    for old in room.root.glob(f"{name}-*.dist-info/METADATA"):
        old.unlink()
        old.parent.rmdir()
    folder = room.root / f"{name}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.fixture
def toy(room: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A system that uses a core module that uses another, a library, a peer and a data file, checked once."""
    monkeypatch.syspath_prepend(str(room.root))
    library(room, "fakelib", "1.0")
    library(room, "fakepeer", "1.0")
    room.write("core/deep.py", "one = 1")
    room.write("core/kernel.py", KERNEL)
    room.write("core/unused.py", "two = 2")
    room.add("other_room")
    # The hash of the declared data stands in data.py, which counts as source; a sha256 from elsewhere does not.
    room.add(ledger=LEDGER, method=METHOD, data=DATA, plots="def draw(axes): ...", cli=room.CLI)
    room.write("toy_room/table.csv", "1,2")
    room.check()
    assert room.lines() == ALL
    room.check()
    assert room.lines() == []
    return room


def edit(place: str, old: str, new: str) -> Callable[[Any], Path]:
    def change(room: Any) -> Path:
        text = (room.package / place).read_text()
        assert old in text
        return room.write(place, text.replace(old, new))  # type: ignore[no-any-return]

    return change


COUNTS = {
    "the method": edit("toy_room/method.py", "** 2", "** 3"),
    "the measuring function": edit("toy_room/claims.py", '{"square":', '{"cube": 0.0, "square":'),
    "the package file": edit("toy_room/__init__.py", "", "import math"),
    "a new module": lambda room: room.write("toy_room/more.py", "x = 1"),
    "a data file in the folder": lambda room: room.write("toy_room/table.csv", "1,3"),
    "a core module": edit("core/kernel.py", "return one", "return one + 1"),
    "a core module of a core module": edit("core/deep.py", "1", "5"),
    "the declared data": edit("toy_room/data.py", '"0" * 64', '"1" * 64'),
    "a declared library": lambda room: library(room, "fakelib", "1.1"),
    "a declared peer": lambda room: library(room, "fakepeer", "1.1"),
}
COUNTS_NOT = {
    "plots.py": edit("toy_room/plots.py", "...", "axes.grid()"),
    "cli.py": edit("toy_room/cli.py", "Squares.", "Cubes."),
    "paper.py": edit("toy_room/paper.py", "2020", "2021"),
    "a docstring": edit("toy_room/method.py", "-> int:\n", '-> int:\n    """Square, or so."""\n'),
    "a module's docstring": lambda room: room.write("toy_room/method.py", f'"""Squares."""\n{METHOD}'),
    "a comment": edit("toy_room/method.py", "\n    return", "\n    # Zero times something.\n    return"),
    "the layout": edit("toy_room/method.py", '(n, "n") ** 2', "(\n        n,\n        'n',\n    )**2"),
    "a comment in a core module": edit("core/kernel.py", "return one", "return one  # and only"),
    "a core module that is not used": edit("core/unused.py", "2", "3"),
    "another system": edit("other_room/method.py", "** 2", "** 3"),
    "bytecode": lambda room: room.write("toy_room/__pycache__/method.cpython-311.pyc.1234", ""),
    "a stub": lambda room: room.write("toy_room/__init__.pyi", "x: int"),
}


@pytest.mark.parametrize("what", COUNTS)
def test_a_change_measures_again(toy: Any, what: str) -> None:
    COUNTS[what](toy)
    toy.forget()
    toy.check()
    assert toy.lines() == ALL


@pytest.mark.parametrize("what", COUNTS_NOT)
def test_a_change_keeps_what_is_measured(toy: Any, what: str) -> None:
    COUNTS_NOT[what](toy)
    toy.forget()
    toy.check()
    assert toy.lines() == []


def test_declared_data_counts_by_its_hash_alone(room: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash may come from outside the sources of the system."""
    monkeypatch.setenv("ROOM_SHA", "0" * 64)
    monkeypatch.syspath_prepend(str(room.root))
    library(room, "fakelib", "1.0")
    library(room, "fakepeer", "1.0")
    data = "import os\n" + DATA.replace('"0" * 64', 'os.environ["ROOM_SHA"]').replace(
        '"a.csv"', 'os.environ["ROOM_FILE"]'
    )
    monkeypatch.setenv("ROOM_FILE", "a.csv")
    room.add(ledger=LEDGER, data=data)
    found = []
    for sha, name in [("0", "a.csv"), ("1", "a.csv"), ("1", "b.csv"), ("0", "a.csv")]:
        monkeypatch.setenv("ROOM_SHA", sha * 64)
        monkeypatch.setenv("ROOM_FILE", name)
        room.forget()
        room.check()
        found.append(room.lines())
    assert found == [ALL, ALL, ALL, []]


def test_parameters_seed_threads_and_experiment_tell_trials_apart(room: Any) -> None:
    ledger = """
    def trials(scale):
        return [Trial({"n": 1}), Trial({"n": 2}), Trial({"n": 1}, seed=1), Trial({"n": 1}, threads=2), Trial({"m": 1})]


    def measure(trial):
        log(dict(trial.params), trial.seed, trial.threads)
        return {}

    EXPERIMENTS = [Experiment("one", trials, measure), Experiment("two", trials, measure)]
    CLAIMS = [claim("it", experiments=("one", "two"))]
    """
    room.add(ledger=ledger)
    room.check()
    assert len(room.lines()) == 10
    assert len(set(room.root.glob("cache/trials/toy_room/*/*.json"))) == 10


def test_key_does_not_depend_on_the_order_of_a_mapping() -> None:
    assert key({"a": 1, "b": [1, None, "é"]}) == key({"b": [1, None, "é"], "a": 1})
    assert len({key(1), key("1"), key(1.0), key(True), key(None), key(1, 1), key([1, 1]), key()}) == 8


def test_a_stored_record_that_is_broken_is_measured_again(toy: Any) -> None:
    stored = sorted(toy.root.glob("cache/trials/toy_room/squares/*.json"))
    assert len(stored) == 4
    stored[0].write_text("{")
    stored[1].write_text('{"format": 1}')
    stored[2].write_text("[]")
    os.remove(stored[3])
    toy.check()
    assert sorted(toy.lines()) == ALL
