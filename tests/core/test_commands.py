from __future__ import annotations

import errno
import io
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import pytest
import typer

from paperworks.core.commands import read_frame, write_frame, write_output
from paperworks.core.data import DataUnavailable
from paperworks.core.extras import MissingExtra


def app_that(action: Any) -> typer.Typer:
    """A command line with one command, `go`."""
    app = typer.Typer()
    app.callback()(lambda: None)

    @app.command()
    def go(n: Annotated[int, typer.Option(min=1)] = 1) -> None:
        action()

    return app


def raises(error: BaseException) -> typer.Typer:
    def action() -> None:
        raise error

    return app_that(action)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("n must be odd,\n  got 2"), 2, "n must be odd, got 2"),
        (TypeError("n must be an integer"), 2, "n must be an integer"),
        (ValueError(), 2, "ValueError"),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "bids.csv"),
            2,
            "bids.csv: No such file or directory",
        ),
        (FileNotFoundError("no results in out"), 2, "no results in out"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 2, "x: Permission denied"),
        (MissingExtra("no torch: pip install 'paperworks[torch]'"), 3, "no torch: pip install 'paperworks[torch]'"),
        (DataUnavailable("sle/a.csv is not here"), 3, "sle/a.csv is not here"),
    ],
)
def test_an_error_is_one_line_and_a_code(room: Any, error: Exception, code: int, line: str) -> None:
    assert room.main("go", app=raises(error), code=code) == ("", f"paperworks: {line}\n")


def test_an_interruption_is_130(room: Any) -> None:
    assert room.main("go", app=raises(KeyboardInterrupt()), code=130) == ("", "interrupted\n")


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_command_chooses_its_code(room: Any, code: int) -> None:
    assert room.main("go", app=raises(typer.Exit(code)), code=code) == ("", "")


def test_a_defect_keeps_its_traceback(room: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        room.main("go", app=app_that(lambda: 1 // 0))


@pytest.mark.parametrize("words", [("--debug", "go"), ("go", "--debug")])
def test_debug_shows_the_traceback(room: Any, words: tuple[str, ...]) -> None:
    error = ValueError("n must be odd")
    with pytest.raises(ValueError, match="n must be odd") as caught:
        room.main(*words, app=raises(error))
    assert caught.value is error


@pytest.mark.parametrize(
    "words", [("stop",), ("go", "--m", "1"), ("go", "extra"), ("go", "--n", "x"), ("go", "--n", "0"), ("go", "--n")]
)
def test_wrong_usage_is_one_line(room: Any, words: tuple[str, ...]) -> None:
    out, err = room.main(*words, app=app_that(lambda: None), code=2)
    assert out == ""
    assert err.startswith("paperworks: ")
    assert err.count("\n") == 1


def test_a_warning_is_one_line_and_only_while_the_command_runs(room: Any) -> None:
    before = warnings.showwarning

    def action() -> None:
        with warnings.catch_warnings(action="always"):
            warnings.warn("few\n  bids", UserWarning, stacklevel=1)

    assert room.main("go", app=app_that(action)) == ("", "paperworks: warning: few bids\n")
    assert warnings.showwarning is before


HEAVY = "import heavy_module_that_is_not_there\n"


def test_systems_are_mounted_lazily(room: Any) -> None:
    room.add(cli=f"{HEAVY}{room.CLI}")
    out, _ = room.main("--help")
    assert "toy_room" in out
    assert "Squares numbers for you." in out
    with pytest.raises(ModuleNotFoundError, match="heavy_module"):
        room.main("toy_room", "square", "3")


def test_a_system_without_a_command_line_is_not_mounted(room: Any) -> None:
    room.add()
    assert "toy_room" not in room.main("--help")[0]
    assert room.main("toy_room", code=2) == ("", "paperworks: No such command 'toy_room'.\n")


@pytest.mark.parametrize("slug", ["toy_room", "toy-room"])
def test_a_system_runs_its_verbs(room: Any, slug: str) -> None:
    room.add(cli=room.CLI)
    assert room.main(slug, "square", "3") == ("9\n", "")
    out, _ = room.main(slug, "--help")
    assert f"paperworks {slug.replace('-', '_')} " in out
    assert "square" in out
    assert room.main(slug, "square", "x", code=2)[1].count("\n") == 1
    assert room.main(slug, "cube", code=2) == ("", "paperworks: No such command 'cube'.\n")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("raise ValueError('n must be odd')", 2),
        ("from paperworks.core.extras import require; require('no_such_module', 'peers')", 3),
        ("raise KeyboardInterrupt", 130),
    ],
)
def test_the_errors_of_a_system_are_codes_too(room: Any, line: str, code: int) -> None:
    room.add(cli=room.CLI.replace("    print(", f"    {line}\n    print("))
    out, err = room.main("toy_room", "square", "3", code=code)
    assert out == ""
    assert err.count("\n") == 1


def test_a_system_never_hides_a_command_of_the_front_door(room: Any) -> None:
    room.add("version", cli=room.CLI)
    out, _ = room.main("version")
    assert out[0].isdigit()


FRAME = pd.DataFrame({"team": ["a", "é"], "bid": [1 / 3, 2.0]})


@pytest.mark.parametrize("name", ["bids.csv", "bids.json"])
def test_write_frame(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_frame(FRAME, path)
    back = pd.read_csv(path) if name.endswith("csv") else pd.read_json(path)
    pd.testing.assert_frame_equal(back, FRAME)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("out", [None, Path("-")])
def test_standard_output_is_the_default(capsys: pytest.CaptureFixture[str], out: Path | None) -> None:
    write_frame(FRAME, out)
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(capsys.readouterr().out)), FRAME)
    write_frame(FRAME, out, as_json=True)
    pd.testing.assert_frame_equal(pd.read_json(io.StringIO(capsys.readouterr().out)), FRAME)
    write_output("text", out)
    assert capsys.readouterr().out == "text"


def test_output_files_are_written_atomically(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old")
    before = target.stat().st_ino
    write_output("new", target)
    assert target.read_text() == "new"
    assert target.stat().st_ino != before
    assert list(tmp_path.iterdir()) == [target]


def test_read_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bids.csv"
    path.write_text("\ufeffteam,bid\na,1\n", encoding="utf-8")
    expected = pd.DataFrame({"team": ["a"], "bid": [1]})
    pd.testing.assert_frame_equal(read_frame(path), expected)
    monkeypatch.setattr(sys, "stdin", io.StringIO("team,bid\na,1\n"))
    pd.testing.assert_frame_equal(read_frame(Path("-")), expected)
    pd.testing.assert_frame_equal(read_frame(path, usecols=["bid"]), expected[["bid"]])


@pytest.mark.untyped
@pytest.mark.parametrize("content", [b"", b'a,b\n1,2\n"', b"\xff\xfe\x00"])
def test_read_frame_names_a_file_that_is_no_table(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bids.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"bids\.csv is not a CSV table: "):
        read_frame(path)
