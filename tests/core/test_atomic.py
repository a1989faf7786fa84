from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperworks.core.atomic import atomic_file, atomic_folder, write_text


@pytest.fixture
def umask() -> Iterator[int]:
    before = os.umask(0o027)
    yield 0o027
    assert os.umask(before) == 0o027


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def fail_after_writing(place: Path, error: type[BaseException]) -> None:
    place.write_text("half")
    raise error("stop")


def test_a_reader_sees_the_old_file_until_the_end(tmp_path: Path) -> None:
    target = tmp_path / "new" / "table.csv"
    write_text(target, "old")
    with atomic_file(target) as part:
        part.write_text("new")
        assert target.read_text() == "old"
        assert part.parent == target.parent
        assert part.suffix == ".csv"
        assert part.name.startswith(".")
    assert target.read_text() == "new"
    assert names(target.parent) == ["table.csv"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_keeps_the_old_file_and_leaves_no_part(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "a.txt"
    write_text(target, "old")
    with pytest.raises(error), atomic_file(target) as part:
        fail_after_writing(part, error)
    assert target.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_file_never_replaces_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError), atomic_file(tmp_path / "a") as part:
        part.write_text("x")
    assert names(tmp_path) == ["a"]


def test_nested_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    with atomic_file(target) as outer:
        outer.write_text("outer")
        with atomic_file(target) as inner:
            inner.write_text("inner")
        assert target.read_text() == "inner"
    assert target.read_text() == "outer"
    assert names(tmp_path) == ["a.txt"]


def test_a_killed_writer_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    write_text(target, "old")
    code = (
        "import os, signal, sys; from paperworks.core.atomic import atomic_file\n"
        "with atomic_file(sys.argv[1]) as part:\n"
        "    part.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert target.read_text() == "old"


def test_modes_follow_the_umask(tmp_path: Path, umask: int) -> None:
    write_text(tmp_path / "a.txt", "x")
    with atomic_folder(tmp_path / "model") as part:
        (part / "weights").write_text("x")
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o666 & ~umask
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o777 & ~umask


def test_threads_do_not_disturb_the_umask(tmp_path: Path, umask: int) -> None:
    def work(i: int) -> None:
        for j in range(50):
            write_text(tmp_path / f"{i}-{j}", "x")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in tmp_path.iterdir()} == {0o666 & ~umask}
    assert len(names(tmp_path)) == 200


@given(text=st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"])))
def test_text_comes_back(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    target = tmp_path_factory.getbasetemp() / "text.txt"
    write_text(target, text)
    assert target.read_bytes() == text.encode()


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "new" / "model"
    for version in ("one", "two"):
        with atomic_folder(target) as part:
            (part / version).write_text(version)
    assert names(target) == ["two"]
    assert names(target.parent) == ["model"]


def test_an_error_keeps_the_old_folder(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with atomic_folder(target) as part:
        (part / "old").write_text("old")
    with pytest.raises(ValueError, match="stop"), atomic_folder(target) as part:
        fail_after_writing(part / "new", ValueError)
    assert names(target) == ["old"]
    assert names(tmp_path) == ["model"]


def test_a_folder_whose_swap_fails_comes_back(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with atomic_folder(target) as part:
        (part / "old").write_text("old")
    with pytest.raises(FileNotFoundError), atomic_folder(target) as part:
        part.rmdir()
    assert names(target) == ["old"]
    assert names(tmp_path) == ["model"]


def test_a_folder_that_can_neither_go_nor_come_back_is_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"
    with atomic_folder(target) as part:
        (part / "old").write_text("old")
    rename = os.rename

    def only_aside(source: Path, destination: Path) -> None:
        if destination == target:
            raise OSError("the disk went away")
        rename(source, destination)

    monkeypatch.setattr(os, "rename", only_aside)
    with pytest.raises(OSError, match="went away"), atomic_folder(target):
        pass
    assert [path.read_text() for path in tmp_path.rglob("old")] == ["old"]


def test_a_folder_never_replaces_a_file(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "mine")
    with pytest.raises(NotADirectoryError, match=r"/a'$"), atomic_folder(tmp_path / "a"):
        pytest.fail("the body must not run")
    assert (tmp_path / "a").read_text() == "mine"


def test_a_link_to_a_folder_is_replaced_and_its_target_kept(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "old").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with atomic_folder(tmp_path / "link") as part:
        (part / "new").write_text("new")
    assert names(tmp_path / "link") == ["new"]
    assert names(tmp_path / "real") == ["old"]
    assert names(tmp_path) == ["link", "real"]
