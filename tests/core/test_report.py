from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

from paperworks.core import plotting
from paperworks.core.claims import Word
from paperworks.core.report import (
    Badge,
    Code,
    Columns,
    Details,
    Facts,
    Link,
    Notice,
    Number,
    Numbers,
    Picture,
    Section,
    Table,
    build,
    page,
)
from paperworks.core.report.page import format_value

EVIL = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"
VOID = {"meta", "link", "img", "br", "hr"}


class Outline(HTMLParser):
    """Collect the elements of a page and check that they nest."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data if "style" not in self.open else ""

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def cells(table: Table) -> list[list[str]]:
    return [[cell.text for cell in line] for line in table.body]


def harmless(html: str) -> None:
    outline = Outline(html)
    assert outline.all("script") == []
    assert not [name for _, attributes in outline.elements for name in attributes if name.startswith("on")]
    addresses = [a.get(key) for _, a in outline.elements for key in ("href", "src") if a.get(key)]
    assert not [address for address in addresses if re.match(r"\w+:", str(address)) and address[:5] != "data:"]
    assert "@import" not in html
    assert "url(" not in html


# --- the page builder ---


def test_page_is_a_whole_accessible_document() -> None:
    frame = pd.DataFrame({"agent": ["nlp"], "share": [0.25]})
    sections = [Section("Result", "Text.", Table(frame, caption="Shares")), Section("Why?"), Section("How")]
    html = page("Title", sections, subtitle="Sub", nav=[("Home", "index.html"), ("Here", "")])
    assert html.startswith('<!DOCTYPE html>\n<html lang="en">')
    outline = Outline(html)
    assert outline.all("title") == [{}]
    assert outline.all("a")[0] == {"class": "skip", "href": "#content"}
    assert outline.all("main")[0]["id"] == "content"
    assert [nav["aria-label"] for nav in outline.all("nav")] == ["Pages", "On this page"]
    assert {"aria-current": "page"} in outline.all("a")
    assert [th["scope"] for th in outline.all("th")] == ["col", "col"]
    assert [section["id"] for section in outline.all("section")] == ["result", "why", "how"]
    assert len(outline.all("h1")) == len(outline.all("footer")) == 1


def test_short_page_has_no_contents_and_no_navigation() -> None:
    assert Outline(page("Title", [Section("One"), Section("Two")])).all("nav") == []


def test_everything_that_comes_in_is_escaped() -> None:
    frame = pd.DataFrame({EVIL: [EVIL]}, index=[EVIL])
    two = frame.set_axis(pd.MultiIndex.from_tuples([(EVIL, EVIL)]), axis=1)
    figure, _ = plotting.figure(EVIL)
    parts = (
        EVIL,
        Table(frame, caption=EVIL),
        Table(two),
        Facts({EVIL: EVIL, "link": Link(EVIL, f"#{EVIL}")}),
        Code(EVIL),
        Notice(EVIL),
        Numbers(Number(EVIL, EVIL, unit=EVIL)),
        Badge(EVIL, "good", EVIL),
        Picture(figure, EVIL, caption=EVIL),
        Details(EVIL, EVIL),
        Columns(Section(EVIL, EVIL, anchor=EVIL, badge=Badge(EVIL))),
    )
    html = page(EVIL, [Section(EVIL, *parts)], subtitle=EVIL, nav=[(EVIL, f"{EVIL}.html")])
    harmless(html)
    assert Outline(html).text.count(EVIL) >= 20


def test_section_refuses_what_is_no_part_and_page_refuses_equal_anchors() -> None:
    with pytest.raises(ValueError, match="distinct anchors other than 'content', got 'a'"):
        page("Title", [Section("A"), Section("a")])
    with pytest.raises(ValueError, match="got 'content'"):
        page("Title", [Section("Content")])


@pytest.mark.untyped
@pytest.mark.parametrize("make", [Section, Details])
def test_a_part_that_cannot_be_shown_is_named(make: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="must be text or something with __html__, got DataFrame"):
        make("A", pd.DataFrame())


def test_picture_needs_words_and_an_svg() -> None:
    figure, _ = plotting.figure("A")
    with pytest.raises(ValueError, match="alt must say what the picture shows"):
        Picture(figure, " ")
    with pytest.raises(ValueError, match=r"image must be a figure or the text of an SVG, got 'a\.png'"):
        Picture("a.png", "alt")
    assert Picture(figure, "alt") == Picture(plotting.svg(figure), "alt")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.75012345, "0.7501"),
        (99999.6, "100000"),
        (9.99996, "10"),
        (-0.00123456, "-0.001235"),
        (1.5e7, "1.5e+07"),
        (float("inf"), "∞"),
        (float("-inf"), "-∞"),
        (float("nan"), "–"),
        (0.0, "0"),
        (np.float32(0.1), "0.1"),
        (np.int64(123456789), "123456789"),
        (np.True_, "yes"),
        (pd.NaT, "–"),
    ],
)
def test_values_have_four_significant_digits(value: object, text: str) -> None:
    assert format_value(value) == text


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        ([0.25, 0.5, 1.0], ["0.25", "0.50", "1.00"]),
        ([0.98765, 0.123456, np.nan], ["0.9877", "0.1235", "–"]),
        ([3.0, 12.0, np.inf], ["3", "12", "∞"]),
        ([1e-9, 0.5, 1234.5678], ["1e-09", "0.5", "1235"]),
        ([100.123, 0.012345], ["100.1", "0.01235"]),
        ([0.0, 0.0], ["0", "0"]),
        ([True, False], ["yes", "no"]),
        ([12, 345678], ["12", "345678"]),
        (["a", None], ["a", "–"]),
        ([], []),
    ],
)
def test_comparable_numbers_of_a_column_share_their_decimals(column: list[Any], shown: list[str]) -> None:
    assert [line[0] for line in cells(Table(pd.DataFrame({"x": column})))] == shown


def test_table_numbers_are_right_aligned_and_text_is_not() -> None:
    outline = Outline(page("T", [Section("S", Table(pd.DataFrame({"a": ["x"], "b": [1], "c": [True]})))]))
    assert outline.all("td") == [{}, {"class": "n"}, {}]


def test_table_index_becomes_row_headers() -> None:
    frame = pd.DataFrame({"share": [0.25, 0.75]}, index=pd.Index(["nlp", "vision"], name="agent"))
    table = Table(frame)
    assert ([cell.text for cell in table.head[-1]], cells(table)) == (
        ["agent", "share"],
        [["nlp", "0.25"], ["vision", "0.75"]],
    )
    rows = [th for th in Outline(page("T", [Section("S", table)])).all("th") if th["scope"] == "row"]
    assert len(rows) == 2
    assert list(frame.columns) == ["share"]
    many = Table(pd.DataFrame({"share": [1]}, index=pd.MultiIndex.from_tuples([("a", 0.5)], names=["x", "y"])))
    assert (many.head[-1][0].text, cells(many)) == ("x · y", [["a · 0.5", "1"]])


def test_table_with_two_levels_of_columns_has_spanning_headers() -> None:
    columns = pd.MultiIndex.from_tuples([("varied", "alpha"), ("varied", "n"), ("measured", "efficiency")])
    head = Table(pd.DataFrame([[0.5, 2, 0.9]], columns=columns)).head
    assert [(cell.text, cell.span) for cell in head[0]] == [("varied", 2), ("measured", 1)]
    assert [cell.text for cell in head[1]] == ["alpha", "n", "efficiency"]


def test_long_table_is_cut_and_says_so() -> None:
    html = page("T", [Section("S", Table(pd.DataFrame({"x": range(30)}), rows=10))])
    assert Outline(html).text.count("The first 10 of 30 rows.") == 1
    assert len(Outline(html).all("td")) == 10


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (None, None, "0.75 s"),
        (0.7, 0.8, "0.75 s (0.7 to 0.8)"),
        (0.7, None, "0.75 s (at least 0.7)"),
        (None, 0.8, "0.75 s (at most 0.8)"),
    ],
)
def test_number_says_its_interval(low: float | None, high: float | None, text: str) -> None:
    assert Number("time", 0.75, low, high, "s").text == text


# --- the ledger ---


def claim(**changes: Any) -> dict[str, Any]:
    return {
        "id": "efficiency",
        "says": "It is efficient.",
        "rule": "At least 0.75.",
        "source": "paper",
        "experiments": ["sweep"],
        "verdict": "holds",
        "headline": [{"name": "smallest efficiency", "value": 0.8123456, "low": 0.8, "high": None, "unit": "share"}],
        "sentence": "The smallest is 0.81.",
        "trials": {"done": 2, "error": 0, "total": 2},
        "plot": None,
        "command": "paperworks check probe --claim efficiency --scale quick",
        "seconds": 1.25,
        "versions": {"numpy": "2.4.6"},
    } | changes


def write(out: Path, *claims: dict[str, Any], slug: str = "probe", scale: str = "quick", **changes: Any) -> Path:
    path = out / "verdicts" / scale / f"{slug}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"title": "A paper", "name": "Does it.", "field": "design", "reference": "A. Author, 2026", "seconds": 2.5}
    document = {"schema": 1, "version": "0.1.0", "scale": scale, "slug": slug, **about, "claims": list(claims)}
    path.write_text(json.dumps(document | changes), encoding="utf-8")
    return path


def measure(out: Path, name: str = "sweep", scale: str = "quick", **changes: Any) -> None:
    columns = {
        "param.alpha": [0.5, 1.0],
        "value.efficiency": [0.9, 0.8],
        "run.trial": [0, 1],
        "run.status": "ok",
        "run.error": "",
        "run.threads": 1,
    }
    path = out / "results" / scale / "probe" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(columns | changes).to_parquet(path)


@pytest.fixture
def plots(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("paperworks.probe.plots")
    monkeypatch.setitem(sys.modules, "paperworks.probe", ModuleType("paperworks.probe"))
    monkeypatch.setitem(sys.modules, "paperworks.probe.plots", module)
    return module


def system_page(out: Path) -> str:
    assert build(out) == out / "report" / "index.html"
    return (out / "report" / "probe.html").read_text(encoding="utf-8")


def test_system_page_shows_the_claim_its_rule_numbers_and_how_to_reproduce(tmp_path: Path) -> None:
    write(tmp_path, claim())
    measure(tmp_path)
    outline = Outline(system_page(tmp_path))
    for text in ("It is efficient.", "At least 0.75.", "The smallest is 0.81.", "0.8123", "at least 0.8", "share"):
        assert text in outline.text
    for text in ("paperworks check probe --claim efficiency --scale quick", "numpy 2.4.6", "2 of 2 done", "A. Author"):
        assert text in outline.text
    assert "Measurements: sweep (2 rows)" in outline.text
    assert "trial" in outline.text
    assert "threads" not in outline.text  # the same in every row


def test_every_verdict_word_is_explained_shown_and_counted(tmp_path: Path) -> None:
    words = get_args(Word)
    write(tmp_path, *(claim(id=word.replace(" ", "-"), verdict=word) for word in words))
    measure(tmp_path)
    html = system_page(tmp_path)
    index = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    for word in words:
        badge = re.compile(rf'<span class="badge \w+"><span aria-hidden="true">\S</span> {word}</span>')
        assert len(badge.findall(html)) == 3  # the heading, the contents, the legend
        assert len(badge.findall(index)) == 1
        assert f'href="probe.html#claim-{word.replace(" ", "-")}"' in index


def test_index_counts_the_claims_of_the_paper_apart_from_ours(tmp_path: Path) -> None:
    ours = [claim(id=f"ours-{i}", source="ours", verdict="fails") for i in range(3)]
    write(tmp_path, *ours, claim())
    measure(tmp_path)
    build(tmp_path)
    index = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    rows = re.findall(r'<th scope="row">(.*?)</th>(.*?)</tr>', index)
    counts = {name: [int(n) for n in re.findall(r">(\d+)<", rest)] for name, rest in rows}
    assert counts == {"quick · the paper": [1, 0, 0, 0, 0, 0, 0, 1], "quick · our own": [0, 0, 3, 0, 0, 0, 0, 3]}
    assert index.index("#claim-efficiency") < index.index("#claim-ours-0")
    assert "smallest efficiency: 0.8123 share (at least 0.8)" in index


def test_scales_stand_side_by_side_and_say_where_they_differ(tmp_path: Path) -> None:
    write(tmp_path, claim())
    write(tmp_path, claim(verdict="fails", rule="At least 0.9.", sentence="It is 0.7."), scale="full")
    measure(tmp_path)
    measure(tmp_path, scale="full", **{"value.efficiency": [0.7654, 0.7]})
    outline = Outline(system_page(tmp_path))
    assert [s["id"] for s in outline.all("section")][1:4] == [
        "claim-efficiency",
        "claim-efficiency.quick",
        "claim-efficiency.full",
    ]
    quick, full = outline.text.split("Full scale")[-2:]
    assert "0.9" in quick
    assert "0.7654" in full
    assert "At least 0.9." in full
    assert outline.text.count("scales differ") == 2


def test_a_table_that_two_claims_read_is_shown_once_and_linked(tmp_path: Path) -> None:
    write(tmp_path, claim(), claim(id="revenue"))
    measure(tmp_path)
    html = system_page(tmp_path)
    assert html.count("<table>") == 1
    assert '<a href="#claim-efficiency.quick">shown with efficiency</a>' in html


def test_missing_empty_and_unreadable_tables_leave_a_notice(tmp_path: Path, plots: ModuleType) -> None:
    write(tmp_path, claim(plot="draw", experiments=["sweep", "gone", "empty", "torn"], headline=[]))
    measure(tmp_path)
    folder = tmp_path / "results" / "quick" / "probe"
    pd.DataFrame().to_parquet(folder / "empty.parquet")
    (folder / "torn.parquet").write_bytes(b"PAR1")
    outline = Outline(system_page(tmp_path))
    assert "results/quick/probe/gone.parquet is missing" in outline.text
    assert "results/quick/probe/torn.parquet cannot be read" in outline.text
    assert "Nothing was measured in empty." in outline.text
    assert "Measurements: sweep" in outline.text
    assert outline.all("img") == []


def test_picture_sees_the_measured_rows_of_each_table_in_order(tmp_path: Path, plots: ModuleType) -> None:
    seen: list[list[float]] = []

    def draw(first: pd.DataFrame, second: pd.DataFrame) -> Any:
        seen.extend([first["value.efficiency"].tolist(), second["value.efficiency"].tolist()])
        return plotting.figure("Efficiency")[0]

    plots.draw = draw  # type: ignore[attr-defined]
    write(tmp_path, claim(plot="draw", experiments=["sweep", "again"]))
    measure(tmp_path, **{"run.status": ["ok", "error"], "run.error": ["", "ValueError"]})
    measure(tmp_path, "again")
    images = Outline(system_page(tmp_path)).all("img")
    assert seen == [[0.9], [0.9, 0.8]]
    assert [image["alt"] for image in images] == ["Measurements behind the claim efficiency: It is efficient."]


def test_broken_plot_leaves_one_line_in_its_place(tmp_path: Path, plots: ModuleType) -> None:
    def draw(table: pd.DataFrame) -> Any:
        raise RuntimeError("no\ncolumn")

    plots.draw = draw  # type: ignore[attr-defined]
    plots.nothing = lambda table: None  # type: ignore[attr-defined]
    write(tmp_path, claim(plot="draw"), claim(id="b", plot="absent"), claim(id="c", plot="nothing"))
    measure(tmp_path)
    outline = Outline(system_page(tmp_path))
    assert "The picture could not be drawn. RuntimeError: no column" in outline.text
    assert outline.text.count("The picture could not be drawn.") == 3
    assert "Measurements: sweep" in outline.text


def test_picture_of_a_system_that_is_not_installed_leaves_a_line(tmp_path: Path) -> None:
    write(tmp_path, claim(plot="draw"))
    measure(tmp_path)
    assert "could not be drawn. ModuleNotFoundError" in system_page(tmp_path)


def test_tracebacks_are_shown_with_their_parameters_up_to_a_limit(tmp_path: Path) -> None:
    write(tmp_path, claim(verdict="error", trials={"done": 0, "error": 7, "total": 7}))
    errors = [f"Traceback\nValueError: <{i}>" for i in range(7)]
    columns = {"param.alpha": np.arange(7.0), "value.efficiency": np.nan, "run.trial": range(7)}
    measure(tmp_path, **columns, **{"run.status": "error", "run.error": errors})
    outline = Outline(system_page(tmp_path))
    assert "Errors: sweep (7 rows)" in outline.text
    assert "alpha = 4.0" in outline.text
    assert "ValueError: <4>" in outline.text
    assert "ValueError: <5>" not in outline.text
    assert "The first 5 of 7 are shown." in outline.text
    assert "0 of 7 done, 7 raised" in outline.text


def test_hostile_claims_and_tables_are_inert(tmp_path: Path) -> None:
    headline = [{"name": EVIL, "value": 1.0, "low": None, "high": None, "unit": EVIL}]
    texts = dict.fromkeys(("id", "says", "rule", "sentence", "command", "verdict"), EVIL)
    about = dict.fromkeys(("title", "name", "field", "reference", "version"), EVIL)
    write(tmp_path, claim(**texts, headline=headline, versions={EVIL: EVIL}), claim(says=EVIL), **about)
    status = {
        "run.status": ["ok", "error"],
        "run.error": ["", EVIL],
        "param.alpha": [EVIL, EVIL],
        f"value.{EVIL}": EVIL,
    }
    measure(tmp_path, **status)
    harmless(system_page(tmp_path))
    index = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    harmless(index)
    assert EVIL in Outline(index).text


def test_report_of_a_claim_without_headline_or_null_numbers(tmp_path: Path) -> None:
    null = [{"name": "efficiency", "value": None, "low": None, "high": None, "unit": ""}]
    write(tmp_path, claim(headline=[]), claim(id="b", headline=null))
    measure(tmp_path)
    assert Outline(system_page(tmp_path)).text.count("–") >= 1


def test_same_input_gives_the_same_bytes_and_leaves_no_other_file(tmp_path: Path) -> None:
    write(tmp_path, claim())
    measure(tmp_path)
    first = system_page(tmp_path)
    assert system_page(tmp_path) == first
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == ["index.html", "probe.html"]


def test_nothing_to_report_and_unreadable_verdicts_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no verdicts in .*: run `paperworks check"):
        build(tmp_path)
    path = write(tmp_path, claim(), schema=2)
    with pytest.raises(ValueError, match=r"probe\.json: schema must be 1, got 2"):
        build(tmp_path)
    path.write_text('{"schema": 1, "claims": [{"id": "a"}]}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"probe\.json lacks command, experiments, .*, title"):
        build(tmp_path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"probe\.json is not JSON"):
        build(tmp_path)
    assert not (tmp_path / "report").exists()
