from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from paperworks.core.paper import Paper, system, systems

HEAVY = ("numpy", "scipy", "pandas", "matplotlib", "torch")


def test_the_extra_is_the_slug_unless_named() -> None:
    words = {"title": "t", "field": "f", "does": "d", "reference": "r"}
    assert Paper("sle", **words).extra == "sle"
    assert Paper("sle", **words, extra="topology").extra == "topology"
    assert Paper("sle", **words).module == "paperworks.sle"


def test_every_folder_with_a_paper_is_a_system(room: Any) -> None:
    before = list(systems())
    room.add("zz_room")
    room.add("aa_room")
    room.write("no_paper/__init__.py", "")
    (room.package / "no_package").mkdir()
    (room.package / "no_package" / "paper.txt").touch()
    assert list(systems()) == sorted([*before, "aa_room", "zz_room"])
    assert "core" not in systems()
    assert systems()["aa_room"].does == "Squares numbers for you."


def test_dash_and_underscore_are_the_same(room: Any) -> None:
    room.add("toy_room")
    assert system("toy-room") == system("toy_room") == systems()["toy_room"]


@pytest.mark.untyped
def test_an_unknown_system_lists_those_there_are(room: Any) -> None:
    room.add("toy_room")
    with pytest.raises(ValueError, match=r"there is no system 'tyo'; there are: .*toy_room"):
        system("tyo")


def test_the_papers_load_nothing_heavy(room: Any) -> None:
    room.add("toy_room")
    code = (
        "import json, sys; from paperworks.core.paper import systems; found = list(systems());"
        f"print(json.dumps([found, [name for name in {HEAVY} if name in sys.modules]]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found, heavy = json.loads(done.stdout)
    assert "toy_room" in found
    assert found == list(systems())
    assert heavy == []
