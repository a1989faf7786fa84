from __future__ import annotations

import hashlib
import http.server
import json
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from paperworks import __version__
from paperworks.core.paper import systems

CONTENT = b"team,bid\na,1\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
DATA = f"""
import os

from paperworks.core.data import DataFile

FILES = (
    DataFile("SLUG", "bids.csv", "{SHA256}", "CC-BY-4.0", url=os.environ["ROOM_URL"]),
    DataFile("SLUG", "built.csv", "{SHA256}", "MIT", build="make built.csv"),
)
"""


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT at any address."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("ROOM_URL", f"http://127.0.0.1:{server.server_port}/bids.csv")
        yield f"http://127.0.0.1:{server.server_port}/bids.csv"
        server.shutdown()
        thread.join()


@pytest.fixture
def toy(room: Any) -> Any:
    room.add(cli=room.CLI)
    return room


def only_one_line(found: tuple[str, str]) -> str:
    """Check that there is one line on standard error, and nothing on standard output."""
    out, err = found
    assert out == ""
    assert err.startswith("paperworks: ")
    assert err.count("\n") == 1
    return err


def test_version(room: Any) -> None:
    assert room.main("version") == (f"{__version__}\n", "")


def test_list(toy: Any) -> None:
    out, _ = toy.main("list")
    assert {line.split()[0] for line in out.splitlines()} == set(systems())
    assert "Squares numbers for you." in out
    facts = json.loads(toy.main("list", "--json")[0])
    assert [paper["slug"] for paper in facts] == list(systems())
    assert {"slug", "title", "field", "does", "reference", "extra"} == set(facts[0])


@pytest.mark.parametrize("slug", ["toy_room", "toy-room"])
def test_show(toy: Any, slug: str) -> None:
    out, _ = toy.main("show", slug)
    for part in (
        "toy_room: Squares numbers for you.",
        "A. Author, 2020, Squares",
        "pip install 'paperworks[toy_room]'",
        "import paperworks.toy_room",
        "grows  [paper]",
        "What grows says.",
        "The rule of grows.",
        "ours  [ours]",
    ):
        assert part in out
    claims = json.loads(toy.main("show", slug, "--json")[0])["claims"]
    assert [(claim["id"], claim["source"]) for claim in claims] == [("grows", "paper"), ("ours", "ours")]


@pytest.mark.parametrize("slug", ["toy_room", "toy-room"])
def test_check_measures_judges_and_reports(toy: Any, slug: str) -> None:
    out, err = toy.main("check", slug, "--jobs", "1")
    assert "grows" in out
    assert "The largest square is 9." in out
    assert toy.table()["value.square"].tolist() == [0, 1, 4, 9]
    assert toy.verdicts()["grows"]["verdict"] == "holds"
    page = toy.out / "report" / "index.html"
    assert page.is_file()
    assert err.splitlines()[-1] == f"report: {page.relative_to(toy.root)}"


def test_report_writes_the_page_again(toy: Any) -> None:
    toy.main("check", "toy_room", "--jobs", "1", "--out", "elsewhere")
    page = toy.root / "elsewhere" / "report" / "index.html"
    page.unlink()
    assert toy.main("report", "-o", "elsewhere") == ("elsewhere/report/index.html\n", "")
    assert page.is_file()
    assert "paperworks check" in only_one_line(toy.main("report", code=2))


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_json_follows_its_schema_and_is_alone_on_standard_output(room: Any, jobs: str) -> None:
    speak = "print('said'); os.system('echo said'); import ctypes; ctypes.CDLL(None).puts(b'said'); log("
    ledger = room.LEDGER.replace("log(", speak).replace(
        "CLAIMS = [",
        """CLAIMS = [
        claim("nan", lambda table: Verdict("reported", "No number.", (Headline("n", float("nan"), 1.0, None, "m"),))),
        claim("bare", lambda table: Verdict("reported", "No number.")),""",
    )
    room.add(ledger=ledger)
    done = room.run("check", "toy-room", "--json", "--jobs", jobs)
    found = json.loads(done.stdout, parse_constant=pytest.fail)
    schema = json.loads(resources.files("paperworks.core").joinpath("check.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(found, schema)
    assert (found["schema"], found["version"], found["scale"]) == (1, __version__, "quick")
    (document,) = found["systems"]
    claims = {claim["id"]: claim for claim in document["claims"]}
    assert claims["grows"] == {
        "id": "grows",
        "source": "paper",
        "verdict": "holds",
        "headline": [{"name": "largest", "value": 9, "low": None, "high": None, "unit": ""}],
        "sentence": "The largest square is 9.",
        "trials": {"done": 4, "error": 0, "total": 4},
    }
    assert claims["nan"]["headline"] == [{"name": "n", "value": None, "low": 1, "high": None, "unit": "m"}]
    assert document["seconds"] > 0
    assert "toy_room: 4 trials done" in done.stderr
    assert done.stderr.count("said") == 12


def test_a_claim_without_a_system_is_looked_for(toy: Any) -> None:
    toy.main("check", "--claim", "grows", "--jobs", "1")
    assert set(toy.verdicts()) == {"grows"}


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("chekc",), "No such command 'chekc'"),
        (("show", "toy"), "there is no system 'toy'; there are: "),
        (("show",), "Missing argument 'SYSTEM'"),
        (("check", "toy"), "there is no system 'toy'; there are: "),
        (("check", "toy_room", "--claim", "x"), "toy_room has no claim 'x'; it has: grows, ours"),
        (("check", "--claim", "nonsense"), "no system has the claim 'nonsense'"),
        (("check", "toy_room", "--scale", "huge"), "--scale must be one of"),
        (("check", "toy_room", "--engine", "spark"), "--engine must be one of"),
        (("check", "toy_room", "--scheduler", "tcp://x:1"), "--scheduler needs --engine dask"),
        (("check", "toy_room", "--jobs", "0"), "--jobs"),
        (("check", "--nonsense"), "--nonsense"),
        (("data", "list", "toy"), "there is no system 'toy'"),
        (
            ("data", "path", "toy_room/x.csv"),
            "there is no data file 'toy_room/x.csv'; see `paperworks data list toy_room`",
        ),
        (("report",), "paperworks-out holds no results"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(toy: Any, words: tuple[str, ...], part: str) -> None:
    assert part in only_one_line(toy.main(*words, code=2))
    assert not toy.out.exists()
    assert toy.lines() == []


def test_no_command_shows_the_help(room: Any) -> None:
    out, err = room.main(code=2)
    assert "check" in out + err


def test_a_long_check_is_refused(room: Any) -> None:
    room.add(ledger=room.LEDGER + '\nEXPERIMENTS = [Experiment("squares", trials, measure, hours={"full": 2.5})]\n')
    out, err = room.main("check", "toy_room", "--scale", "full", "--jobs", "1", code=2)
    assert out == ""
    assert "about 2.5 CPU hours" in err
    assert err.splitlines()[-1].startswith("paperworks: ")
    assert "--max-hours 3" in err.splitlines()[-1]
    assert not room.out.exists()
    assert room.lines() == []
    room.main("check", "toy_room", "--scale", "full", "--jobs", "1", "--max-hours", "3")
    assert len(room.lines()) == 6
    assert room.verdicts(scale="full")["grows"]["verdict"] == "holds"


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ("claim('a')", 0),
        ("claim('a'), claim('b', lambda t: Verdict('fails', ''), source='ours')", 0),
        ("claim('a'), claim('b', lambda t: Verdict('fails', ''))", 1),
        ("claim('a', lambda t: Verdict('partly', ''))", 1),
        ("claim('a', lambda t: Verdict('reported', ''))", 1),
        ("claim('a', lambda t: 1 / 0)", 1),
    ],
)
def test_strict_asks_every_claim_of_the_paper_to_hold(room: Any, claims: str, code: int) -> None:
    room.add(ledger=f"{room.LEDGER}\nCLAIMS = [{claims}]\n")
    room.main("check", "toy_room", "--jobs", "1", "--strict", code=code)
    room.main("check", "toy_room", "--jobs", "1")


def test_strict_asks_quick_to_be_quick(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from paperworks.core import runner

    monkeypatch.setattr(runner, "QUICK_CPU_SECONDS", -1.0)
    assert "at quick: toy_room" in toy.main("check", "toy_room", "--jobs", "1", "--strict", code=1)[1]


def test_data(room: Any, address: str) -> None:
    room.add(data=DATA)
    bids = room.root / "cache" / "data" / "toy_room" / "bids.csv"
    assert room.main("data", "list", "toy_room")[0].splitlines() == [
        f"toy_room/bids.csv\tnot here\tCC-BY-4.0\t{address}",
        "toy_room/built.csv\tnot here\tMIT\tmake built.csv",
    ]
    assert address in only_one_line(room.main("data", "path", "toy-room/bids.csv", code=3))
    assert room.main("data", "fetch", "toy-room/bids.csv") == (f"{bids}\n", "")
    assert bids.read_bytes() == CONTENT
    assert room.main("data", "path", "toy_room/bids.csv") == (f"{bids}\n", "")
    assert "toy_room/bids.csv\there" in room.main("data", "list", "toy-room")[0]
    assert "make built.csv" in only_one_line(room.main("data", "fetch", "toy_room/built.csv", code=3))
    assert "toy_room/built.csv" in room.main("data", "list")[0]


@pytest.mark.parametrize("words", [("--help",), ("list",)])
def test_the_front_door_opens_fast(toy: Any, words: tuple[str, ...]) -> None:
    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    times = []
    for _ in range(3):
        before = spent()
        assert "toy_room" in toy.run(*words).stdout
        times.append(spent() - before)
    assert min(times) < 0.5, times


def test_the_front_door_loads_nothing_heavy(toy: Any) -> None:
    code = (
        "import sys; from paperworks.cli import main\n"
        "try: main()\n"
        "finally: print([m for m in ('numpy', 'scipy', 'pandas', 'matplotlib', 'torch', 'joblib', 'paperworks.toy_room.cli')"
        " if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    assert "toy_room" in done.stdout
    assert done.stderr == "[]\n"


def test_a_closed_pipe_is_quiet(toy: Any) -> None:
    for n in range(300):
        toy.write(f"a_{n:03}/__init__.py", "")
        toy.write(f"a_{n:03}/paper.py", toy.PAPER.replace("for you", "for you " * 50))
    with toy.start("list") as process:
        assert process.stdout.readline().startswith("a_000 ")
        process.stdout.close()
        err = process.stderr.read()
    assert err == ""
    assert process.returncode == 1


def test_debug_shows_the_traceback(toy: Any) -> None:
    done = toy.run("show", "toy", "--debug", code=1)
    assert "Traceback" in done.stderr
    assert "there is no system 'toy'" in done.stderr


def test_the_console_script_is_the_same(room: Any) -> None:
    script = Path(sys.executable).with_name("paperworks")
    if not script.exists():
        pytest.skip("the package is not installed with its script")
    done = subprocess.run([script, "version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{__version__}\n"
