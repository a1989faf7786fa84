"""The next author adds a system by adding one folder, and nothing else changes."""

from __future__ import annotations

from typing import Any


def test_a_folder_is_all_that_a_new_system_takes(room: Any) -> None:
    room.add("new_room", cli=room.CLI, plots="")
    assert "new_room" in room.run("list").stdout
    assert "What grows says." in room.run("show", "new-room").stdout
    assert room.run("new-room", "square", "12").stdout == "144\n"
    checked = room.run("check", "new-room", "--jobs", "1")
    assert "The largest square is 9." in checked.stdout
    assert room.lines() == [f"squares {n}" for n in range(4)]

    pages = list((room.out / "report").rglob("*.html"))
    for page in pages:
        page.unlink()
    room.run("report")
    report = {page.name: page.read_text(encoding="utf-8") for page in (room.out / "report").rglob("*.html")}
    assert set(report) == {page.name for page in pages}
    assert "new_room" in report["index.html"]
    for part in ("What grows says.", "The rule of grows.", "The largest square is 9."):
        assert any(part in page for page in report.values())
    assert room.lines() == []

    # All that came to be is in the cache and in the folder for results.
    assert sorted(path.name for path in room.root.iterdir()) == ["cache", "paperworks-out", "path"]
    assert sorted(path.name for path in room.out.iterdir()) == ["report", "results", "verdicts"]
