from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest

from paperworks.core.plotting import PALETTE, figure, look, panel_grid, save, svg


def drawn(title: str | None = "Efficiency <against> alpha", **options: Any) -> Any:
    with look():
        made, ax = figure(title, **options)
        ax.plot([0, 1], [1, 0.75], label="bound")
        ax.legend()
    return made


def luminance(colour: str) -> float:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_one_panel_gives_axes_and_more_give_a_tuple_row_by_row() -> None:
    made, ax = figure("One", xlabel="alpha", yscale="log")
    assert (ax.figure, ax.get_xlabel(), ax.get_yscale()) == (made, "alpha", "log")
    assert not ax.spines["top"].get_visible()
    assert not ax.spines["right"].get_visible()
    made, axes = figure(nrows=2, ncols=3)
    assert list(axes) == made.axes
    assert len(axes) == 6


def test_look_is_independent_of_and_leaves_alone_the_global_settings() -> None:
    plain = svg(drawn())
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "svg.hashsalt": "other"}):
        assert svg(drawn()) == plain
        assert matplotlib.rcParams["font.size"] == 30
    code = "import sys; from paperworks.core import plotting; plotting.svg(plotting.figure('a')[0])"
    code += "; assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_svg_is_named_self_contained_and_the_same_each_time() -> None:
    made = drawn()
    text = svg(made)
    assert text == svg(made) == svg(drawn())
    root = ElementTree.fromstring(text)
    assert root.get("role") == "img"
    assert root[0].tag.endswith("title")
    assert root[0].text == "Efficiency <against> alpha"
    assert "dc:date" not in text
    assert not list(root.iter("{http://www.w3.org/2000/svg}text"))
    assert "@import" not in text


@pytest.mark.parametrize(("title", "panel", "name"), [(None, "Left", "Left"), (None, "", "Figure"), ("A", "Left", "A")])
def test_svg_takes_its_name_from_the_best_title_there_is(title: str | None, panel: str, name: str) -> None:
    made, ax = figure(title)
    ax.set_title(panel)
    assert f"<title>{name}</title>" in svg(made)


def test_long_title_is_broken_so_that_it_stays_inside() -> None:
    made = drawn("Efficiency of the equilibrium against alpha for every family of valuations, agent and seed")
    made.savefig(Path("/dev/null"), format="png")
    box = made.texts[0].get_window_extent()
    assert box.x1 < made.bbox.x1
    assert made.get_suptitle().count("\n") == 1


@pytest.mark.parametrize(("suffix", "magic"), [("svg", b"<svg "), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_save_writes_the_named_format_the_same_each_time(tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = tmp_path / "new" / f"a.{suffix}"
    save(drawn(), path)
    first = path.read_bytes()
    save(drawn(), path)
    assert first.startswith(magic)
    assert path.read_bytes() == first
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.untyped
def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"suffix of path must be one of '\.svg', '\.png', '\.pdf', got '\.bmp'"):
        save(drawn(), tmp_path / "a.bmp")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="width must be positive, got 0"):
        figure(width=0)
    with pytest.raises(ValueError, match="ncols must be at least 1, got 0"):
        figure(ncols=0)


def test_palette_is_distinct_and_visible_on_white() -> None:
    assert len(set(PALETTE)) == len(PALETTE) == 7
    assert all(1.05 / (luminance(colour) + 0.05) >= 2 for colour in PALETTE)


def test_a_grid_of_panels_has_none_to_spare():
    made, panels = panel_grid("Five", 5, across=3, width=6.0, height=2.0, xlabel="x")
    assert len(panels) == len(made.axes) == 5
    assert [panel.get_subplotspec().rowspan.start for panel in panels] == [0, 0, 0, 1, 1]
    assert made.get_figheight() == pytest.approx(4.9)
    _, alone = panel_grid("One", 1, across=3, height=2.0)
    assert len(alone) == 1
    with pytest.raises(ValueError, match="count must be at least 1"):
        panel_grid("None", 0, across=3, height=2.0)
