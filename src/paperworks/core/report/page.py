"""The one page builder: sections of text, numbers, tables and pictures as one self-contained HTML file."""

from __future__ import annotations

import base64
import functools
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import jinja2
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

import paperworks
from paperworks.core.plotting import svg

__all__ = [
    "Badge",
    "Code",
    "Columns",
    "Details",
    "Facts",
    "Link",
    "Notice",
    "Number",
    "Numbers",
    "Part",
    "Picture",
    "Section",
    "Table",
    "Tone",
    "format_value",
    "page",
    "render",
]

Tone = Literal["good", "warn", "bad", "info", "mute", "alarm"]
_LARGE, _SMALL = 1e7, 1e-4


@runtime_checkable
class SupportsHtml(Protocol):
    """Anything that renders itself as trusted HTML."""

    def __html__(self) -> str: ...


Part: TypeAlias = str | SupportsHtml
"""What a section is made of: text (a paragraph, escaped), or anything with ``__html__``."""


class _Part:
    """Renders itself with the macro of ``parts.html`` that has its name."""

    def __html__(self) -> str:
        return render("parts.html", type(self).__name__.lower(), self)


@dataclass(frozen=True)
class Badge(_Part):
    """A word with a colour and, so that colour never stands alone, a symbol."""

    word: str
    tone: Tone = "mute"
    symbol: str = ""


@dataclass(frozen=True)
class Link(_Part):
    """Text that leads to another place of the report."""

    text: str
    href: str


@dataclass(frozen=True)
class Code(_Part):
    """Text to be copied or read as it is: a command, a traceback."""

    text: str


@dataclass(frozen=True)
class Notice(_Part):
    """One line that stands where something is missing or deserves attention."""

    text: str


@dataclass(frozen=True)
class Facts(_Part):
    """Labels with their values, e.g. ``Facts({"capacity": 414, "status": "ok"})``."""

    items: Mapping[str, Any]


@dataclass(frozen=True)
class Number(_Part):
    """One measured number with its interval and unit."""

    name: str
    value: float | int | bool | str | None
    low: float | None = None
    high: float | None = None
    unit: str = ""

    @property
    def interval(self) -> str:
        """The interval in words, empty if there is none."""
        if self.low is None and self.high is None:
            return ""
        if self.high is None:
            return f"at least {format_value(self.low)}"
        if self.low is None:
            return f"at most {format_value(self.high)}"
        return f"{format_value(self.low)} to {format_value(self.high)}"

    @property
    def text(self) -> str:
        """Value, unit and interval on one line."""
        value = " ".join(filter(None, (format_value(self.value), self.unit)))
        return f"{value} ({self.interval})" if self.interval else value


@dataclass(frozen=True, init=False)
class Numbers(_Part):
    """The numbers that a reader looks for first, large."""

    numbers: tuple[Number, ...]

    def __init__(self, *numbers: Number) -> None:
        object.__setattr__(self, "numbers", numbers)


@dataclass(frozen=True)
class Picture(_Part):
    """A picture with what it shows in words.

    Parameters
    ----------
    image : matplotlib.figure.Figure or str
        A figure, or the text of an SVG.
    alt : str
        Read out in place of the picture.
    caption : str, optional

    Raises
    ------
    ValueError
        An empty `alt`, or text that is no SVG.
    """

    image: Figure | str
    alt: str
    caption: str | None = None

    def __post_init__(self) -> None:
        """Draw the figure now, so that what is wrong with it shows here."""
        if not self.alt.strip():
            raise ValueError("alt must say what the picture shows, got ''")
        text = self.image if isinstance(self.image, str) else svg(self.image)
        if "<svg" not in text:
            raise ValueError(f"image must be a figure or the text of an SVG, got {text[:40]!r}")
        object.__setattr__(self, "image", text)

    @property
    def source(self) -> str:
        """The picture as a data URL."""
        return "data:image/svg+xml;base64," + base64.b64encode(str(self.image).encode()).decode()


class _Cell(NamedTuple):
    text: str
    number: bool
    span: int = 1


@dataclass(frozen=True)
class Table(_Part):
    """A data frame: numbers with four significant digits, aligned right; scrolls in its own frame.

    Parameters
    ----------
    frame : pandas.DataFrame
        Two levels of columns give a second row of headers. An index that is not just 0, 1, 2 … becomes row headers.
    caption : str, optional
    rows : int
        Longer tables are cut, and say so.
    """

    frame: pd.DataFrame
    caption: str | None = None
    rows: int = 200

    @property
    def cut(self) -> bool:
        """Whether rows are left out."""
        return len(self.frame) > self.rows

    @property
    def headed(self) -> bool:
        """Whether the first cell of a row is its header."""
        return not isinstance(self.frame.index, pd.RangeIndex)

    @functools.cached_property
    def _shown(self) -> pd.DataFrame:
        shown = self.frame.head(self.rows)
        if not self.headed:
            return shown
        index = shown.index.map(lambda key: " · ".join(map(format_value, key)) if isinstance(key, tuple) else key)
        names = [str(name) for name in self.frame.index.names if name is not None]
        label: Hashable = " · ".join(names)
        if self.frame.columns.nlevels > 1:
            label = ("",) * (self.frame.columns.nlevels - 1) + (label,)
        shown = shown.set_axis(index)
        shown.insert(0, label, shown.index, allow_duplicates=True)
        return shown

    @property
    def head(self) -> list[list[_Cell]]:
        """Rows of column headers."""
        shown = self._shown
        numeric = [_is_number(shown.dtypes.iloc[i]) for i in range(shown.shape[1])]
        lines = []
        for level in range(shown.columns.nlevels - 1):
            groups = groupby(str(name) for name in shown.columns.get_level_values(level))
            lines.append([_Cell(name, False, len(list(members))) for name, members in groups])
        last = shown.columns.get_level_values(-1)
        lines.append([_Cell(str(name), number) for name, number in zip(last, numeric, strict=True)])
        return lines

    @property
    def body(self) -> list[tuple[_Cell, ...]]:
        """Rows of cells."""
        shown = self._shown
        columns = [_cells(shown.iloc[:, i]) for i in range(shown.shape[1])]
        return list(zip(*columns, strict=True))


@dataclass(frozen=True, init=False)
class Details(_Part):
    """Parts that are folded away behind one line."""

    summary: str
    parts: tuple[Part, ...]

    def __init__(self, summary: str, *parts: Part) -> None:
        object.__setattr__(self, "summary", summary)
        object.__setattr__(self, "parts", _checked(parts))


@dataclass(frozen=True, init=False)
class Section:
    """A headed part of a page.

    Parameters
    ----------
    heading : str
    *parts : str or part
        Text becomes a paragraph; everything else renders itself.
    anchor : str, optional
        The fragment that links to it; by default made from the heading.
    badge : Badge, optional
        Stands beside the heading and in the table of contents.

    Examples
    --------
    >>> Section("How it was measured", "On one core.").anchor
    'how-it-was-measured'
    """

    heading: str
    parts: tuple[Part, ...]
    anchor: str
    badge: Badge | None

    def __init__(self, heading: str, *parts: Part, anchor: str | None = None, badge: Badge | None = None) -> None:
        made = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or "section"
        object.__setattr__(self, "heading", heading)
        object.__setattr__(self, "parts", _checked(parts))
        object.__setattr__(self, "anchor", anchor or made)
        object.__setattr__(self, "badge", badge)


@dataclass(frozen=True, init=False)
class Columns(_Part):
    """Sections side by side where there is room, one below the other where there is not."""

    sections: tuple[Section, ...]

    def __init__(self, *sections: Section) -> None:
        object.__setattr__(self, "sections", sections)


def page(
    title: str, sections: Sequence[Section], *, subtitle: str | None = None, nav: Sequence[tuple[str, str]] = ()
) -> str:
    """Build one self-contained page: no script, no network; dark and light; from 400 px wide.

    Parameters
    ----------
    title : str
    sections : sequence of Section
        From three on, the page has a table of contents.
    subtitle : str, optional
        One sentence below the title.
    nav : sequence of (label, href)
        Links to the other pages; an empty href marks this page.

    Returns
    -------
    str
        HTML; everything that came in as text is escaped.

    Raises
    ------
    ValueError
        Two sections have the same anchor.

    Examples
    --------
    >>> html = page("Who gets what", [Section("Result", "Three <teams>.", Facts({"price": 7.0}))])
    >>> "Three &lt;teams&gt;." in html, "<script" in html
    (True, False)
    """
    anchors = [section.anchor for section in sections]
    twice = sorted({anchor for anchor in anchors if anchors.count(anchor) > 1 or anchor == "content"})
    if twice:
        raise ValueError(f"sections must have distinct anchors other than 'content', got {twice[0]!r}")
    template = _environment().get_template("page.html")
    return template.render(title=title, sections=sections, subtitle=subtitle, nav=nav, version=paperworks.__version__)


def render(template: str, macro: str, *arguments: Any) -> str:
    """Return the HTML that a macro of a template makes of its arguments, which it escapes."""
    return str(getattr(_environment().get_template(template).module, macro)(*arguments))


def format_value(value: object) -> str:
    """Show a value in a cell: four significant digits, a dash for what is missing.

    Examples
    --------
    >>> [format_value(value) for value in (0.123456, 1234567.8, 2.5e-9, 3.0, 12, True, None, "text")]
    ['0.1235', '1234568', '2.5e-09', '3', '12', 'yes', '–', 'text']
    """
    if value is None or value is pd.NaT or value is pd.NA:
        return "–"
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, Integral) or not isinstance(value, Real):
        return str(value)
    number = float(value)
    if not math.isfinite(number):
        return "–" if math.isnan(number) else "∞" if number > 0 else "-∞"
    if number and not _SMALL <= abs(number) < _LARGE:
        mantissa, exponent = f"{number:.3e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{exponent}"
    decimals = 3 if number == 0 else max(0, 3 - math.floor(math.log10(abs(number))))
    text = f"{number:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _cells(column: pd.Series[Any]) -> list[_Cell]:
    """Show a column; comparable numbers get the same number of decimals, so that their points stand in one line."""
    number = _is_number(column.dtype)
    if number and not pd.api.types.is_integer_dtype(column.dtype):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        decimals = _decimals(values)
        if decimals is not None:
            shown = (f"{v:.{decimals}f}" if math.isfinite(v) else format_value(v) for v in values)
            return [_Cell(text, True) for text in shown]
    return [_Cell(format_value(value), number) for value in column]


def _decimals(values: NDArray[np.float64]) -> int | None:
    """Decimals that give the largest value four digits and the smallest at least three; None if there are none such."""
    finite = values[np.isfinite(values)]
    sizes = np.abs(finite[finite != 0])
    if not sizes.size or sizes.max() >= _LARGE or sizes.max() < _SMALL:
        return None
    decimals = max(0, 3 - math.floor(math.log10(sizes.max())))
    while decimals and np.array_equal(np.round(finite, decimals - 1), finite):
        decimals -= 1
    exact = np.array_equal(np.round(finite, decimals), finite)
    return decimals if exact or sizes.min() >= 10.0 ** (2 - decimals) else None


def _is_number(dtype: Any) -> bool:
    return pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype)


def _checked(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    for part in parts:
        if not isinstance(part, (str, SupportsHtml)):
            raise TypeError(f"a part must be text or something with __html__, got {type(part).__name__}")
    return parts


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("paperworks.core.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["value"] = format_value
    return environment
