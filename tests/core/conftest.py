"""Throw-away systems: folders of a package path that only one test knows."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import paperworks
import paperworks.cli
import paperworks.core
from paperworks.core import fingerprint
from paperworks.core.commands import run
from paperworks.core.engine import Engine
from paperworks.core.paper import system
from paperworks.core.runner import check

# Before this, a source file written twice within a second would be read from its old bytecode.
SECONDS = itertools.count(1_700_000_000)

CLAIMS = """
import os
import time

import numpy as np

from paperworks.core.claims import Claim, Experiment, Headline, Trial, Verdict


def log(*words):
    with open(os.environ["ROOM_LOG"], "a") as stream:
        stream.write(" ".join(map(str, words)) + "\\n")


def holds(*tables):
    return Verdict.decide(True, "It holds.")


def claim(id, judge=holds, experiments=("squares",), **options):
    return Claim(id, f"What {id} says.", f"The rule of {id}.", experiments, judge, **options)
"""

LEDGER = """
from paperworks.SLUG.method import square


def trials(scale):
    return [Trial({"n": n}, seed=n) for n in range(4 if scale == "quick" else 6)]


def measure(trial):
    log("squares", trial["n"])
    return {"square": square(trial["n"]), "draw": float(np.random.default_rng(trial.seed).normal())}


def grows(table):
    largest = int(table["value.square"].max())
    return Verdict.decide(largest > 3, f"The largest square is {largest}.", Headline("largest", float(largest)))


EXPERIMENTS = [Experiment("squares", trials, measure)]
CLAIMS = [claim("grows", grows), claim("ours", source="ours")]
"""

PAPER = """
from paperworks.core.paper import Paper

PAPER = Paper("SLUG", "Squares", "arithmetic", "Squares numbers for you.", "A. Author, 2020, Squares")
"""

METHOD = '''
"""Squares."""

from paperworks.core.validation import check_integer


def square(n: int) -> int:
    """Return the square of `n`."""
    return check_integer(n, "n") ** 2
'''

CLI = """
import typer

app = typer.Typer(help="Squares.")


@app.callback()
def root() -> None:
    '''Squares.'''


@app.command()
def square(n: int) -> None:
    from paperworks.SLUG.method import square

    print(square(n))
"""


class Room:
    """A package path of its own with throw-away systems, a cache, a log and a folder to work in."""

    LEDGER, PAPER, METHOD, CLI = LEDGER, PAPER, METHOD, CLI

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self.root, self.capture = root, capture
        self.package = root / "path" / "paperworks"
        self.package.mkdir(parents=True)
        (self.package / "core").mkdir()
        self.log = root / "log"
        self.out = root / "paperworks-out"
        monkeypatch.setattr(paperworks, "__path__", [*paperworks.__path__, str(self.package)])
        monkeypatch.setattr(paperworks.core, "__path__", [*paperworks.core.__path__, str(self.package / "core")])
        monkeypatch.setenv("PAPERWORKS_CACHE", str(root / "cache"))
        monkeypatch.setenv("ROOM_LOG", str(self.log))
        monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "2")
        monkeypatch.setenv("PYTHONPATH", str(root / "path"))
        monkeypatch.delenv("PAPERWORKS_DATA", raising=False)
        monkeypatch.chdir(root)

    def write(self, place: str, text: str) -> Path:
        """Write a file of a system, ``"<slug>/<name>"``, and forget what was imported of it."""
        path = self.package / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text).replace("SLUG", path.parent.name), encoding="utf-8")
        os.utime(path, (when := next(SECONDS), when))
        self.forget()
        return path

    def add(self, slug: str = "toy_room", ledger: str = LEDGER, **modules: str) -> str:
        """Add a system; `ledger` follows what CLAIMS defines."""
        modules = {"paper": PAPER, "method": METHOD, "data": "FILES = ()", "__init__": "", **modules}
        for name, text in {**modules, "claims": CLAIMS + textwrap.dedent(ledger)}.items():
            self.write(f"{slug}/{name}.py", text)
        return slug

    def forget(self) -> None:
        """Drop the imported modules of the throw-away systems, and of the core modules beside them."""
        inside = [m for m in sys.modules.values() if str(getattr(m, "__file__", "")).startswith(str(self.package))]
        for module in inside:
            parent, _, name = module.__name__.rpartition(".")
            del sys.modules[module.__name__]
            if parent in sys.modules:
                vars(sys.modules[parent]).pop(name, None)
        importlib.invalidate_caches()
        fingerprint._is_module.cache_clear()

    def check(self, slug: str = "toy_room", jobs: int = 1, **options: Any) -> dict[str, Any]:
        """Check one system in this process; return its verdict document with the claims by id."""
        options = {"out": self.out, "engine": Engine(jobs=jobs), **options}
        (document,) = check([system(slug)], **options)
        return {**document, "claims": {claim["id"]: claim for claim in document["claims"]}}

    def word(self, claim: str = "it", **options: Any) -> tuple[str, str]:
        """Return verdict and sentence of a claim after a check."""
        found = self.check(**options)["claims"][claim]
        return found["verdict"], found["sentence"]

    def lines(self) -> list[str]:
        """Return, and clear, what trials wrote to the log."""
        found = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return found

    def table(self, experiment: str = "squares", slug: str = "toy_room", **where: Any) -> pd.DataFrame:
        """Read a table that a check wrote."""
        out = where.get("out", self.out)
        return pd.read_parquet(out / "results" / where.get("scale", "quick") / slug / f"{experiment}.parquet")

    def measured(self, *args: Any, **where: Any) -> pd.DataFrame:
        """Read a table without what belongs to the run."""
        table = self.table(*args, **where)
        return table[[name for name in table if not name.startswith("run.") or name in ("run.trial", "run.status")]]

    def verdicts(self, slug: str = "toy_room", scale: str = "quick", out: Path | None = None) -> dict[str, Any]:
        """Read the verdicts that a check wrote, by claim."""
        document = json.loads(((out or self.out) / "verdicts" / scale / f"{slug}.json").read_text())
        return {claim["id"]: claim for claim in document["claims"]}

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start `paperworks WORDS` in a process group of its own."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        return subprocess.Popen([sys.executable, "-m", "paperworks", *words], start_new_session=True, **options)

    def run(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run `paperworks WORDS` and expect an exit code."""
        with self.start(*words) as process:
            out, err = process.communicate(timeout=120)
        assert process.returncode == code, (words, process.returncode, out, err)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def main(self, *words: str, code: int = 0, app: Any = None) -> tuple[str, str]:
        """Run `paperworks WORDS`, or another app, in this process; return standard output and error."""
        self.capture.readouterr()
        with pytest.raises(SystemExit) as ended:
            run(paperworks.cli.app if app is None else app, words)
        out, err = self.capture.readouterr()
        assert ended.value.code == code, (words, out, err)
        return out, err


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Room]:
    room = Room(tmp_path, monkeypatch, capsys)
    yield room
    room.forget()
