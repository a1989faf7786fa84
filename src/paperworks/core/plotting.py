"""The one look of every picture."""

from __future__ import annotations

import io
import math
import os
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, overload
from xml.sax.saxutils import escape

import matplotlib.style
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperworks.core.atomic import atomic_file
from paperworks.core.validation import check_choice, check_integer, check_real

__all__ = ["PALETTE", "figure", "look", "panel_grid", "percent", "save", "shorten", "svg"]

PALETTE: tuple[str, ...] = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5C6370")
"""Colours that stay apart for colour-blind readers and in print (Okabe and Ito, 2008), the default line colours."""

_INK, _SOFT, _GRID = "#1c2330", "#4a5361", "#e3e6eb"

# Starting from matplotlib's own defaults makes a picture independent of the user's matplotlibrc.
_LOOK: list[Any] = [
    "default",
    {
        "axes.axisbelow": True,
        "axes.edgecolor": "#9aa2ae",
        "axes.grid": True,
        "axes.labelcolor": _SOFT,
        "axes.labelsize": 10,
        "axes.prop_cycle": cycler(color=PALETTE),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlecolor": _INK,
        "axes.titlesize": 10.5,
        "figure.titlesize": 12,
        "figure.titleweight": "bold",
        "font.family": ["DejaVu Sans"],
        "font.size": 10,
        "grid.color": _GRID,
        "grid.linewidth": 0.8,
        "legend.edgecolor": "white",
        "legend.framealpha": 0.85,
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
        "svg.fonttype": "path",
        "svg.hashsalt": "paperworks",
        "text.color": _INK,
        "xtick.color": "#9aa2ae",
        "xtick.labelcolor": _SOFT,
        "ytick.color": "#9aa2ae",
        "ytick.labelcolor": _SOFT,
    },
]
_LETTERS_PER_INCH = 10.5


def look() -> AbstractContextManager[None]:
    """Return a context in which everything drawn has the common look, whatever the user's own settings.

    `figure`, `svg` and `save` enter it themselves; what is added to a figure in between (a legend, a line) takes the
    settings of the place where it is added.

    Examples
    --------
    >>> with look():
    ...     made, ax = figure("Shares")
    ...     _ = ax.bar(["nlp", "vision"], [0.25, 0.75], label="share")
    ...     _ = ax.legend()
    """
    return matplotlib.style.context(_LOOK)


@overload
def figure(
    title: str | None = None,
    *,
    width: float = 6.4,
    height: float = 3.8,
    nrows: Literal[1] = 1,
    ncols: Literal[1] = 1,
    **axes: Any,
) -> tuple[Figure, Axes]: ...
@overload
def figure(
    title: str | None = None,
    *,
    width: float = 6.4,
    height: float = 3.8,
    nrows: int = 1,
    ncols: int = 1,
    **axes: Any,
) -> tuple[Figure, Any]: ...
def figure(
    title: str | None = None,
    *,
    width: float = 6.4,
    height: float = 3.8,
    nrows: int = 1,
    ncols: int = 1,
    **axes: Any,
) -> tuple[Figure, Any]:
    """Make a figure in the common look, outside pyplot, so that nothing has to be closed.

    Parameters
    ----------
    title : str, optional
        What the picture shows; long ones are broken into lines. It becomes the title of the SVG too.
    width, height : float
        Size of the whole figure in inches.
    nrows, ncols : int
        Panels, laid out in a grid.
    **axes
        Properties of every panel, e.g. ``xlabel``, ``ylabel``, ``xscale``, ``ylim``.

    Returns
    -------
    figure : matplotlib.figure.Figure
    axes : matplotlib.axes.Axes, or a tuple of them row by row if there is more than one panel

    Examples
    --------
    >>> figure_, ax = figure("Efficiency against alpha", xlabel="alpha", ylabel="efficiency")
    >>> _ = ax.plot([0.01, 1.0], [0.99, 0.75])
    >>> svg(figure_).startswith("<svg role=")
    True
    >>> _, (left, right) = figure(ncols=2)
    """
    size = check_real(width, "width", low=0, open_low=True), check_real(height, "height", low=0, open_low=True)
    rows, columns = check_integer(nrows, "nrows", low=1), check_integer(ncols, "ncols", low=1)
    with look():
        made = Figure(figsize=size, layout="constrained")
        panels = tuple(made.subplots(rows, columns, squeeze=False, subplot_kw=axes).flat)
        if title is not None:
            lines = textwrap.fill(title, max(10, int(width * _LETTERS_PER_INCH)))
            made.suptitle(lines, x=0.01, horizontalalignment="left", linespacing=1.3)
    return made, panels[0] if len(panels) == 1 else panels


def panel_grid(
    title: str, count: int, *, across: int, width: float = 9.0, height: float, frame: float = 0.9, **axes: Any
) -> tuple[Figure, Sequence[Axes]]:
    """Make a figure of `count` panels, at most `across` in a row; what is left over of the last row stays empty.

    Parameters
    ----------
    title : str
        What the picture shows.
    count : int
        Number of panels.
    across : int
        Most panels in a row.
    width : float
        Of the figure, in inches.
    height, frame : float
        Of a row of panels, and of what is around them, in inches.
    **axes
        As in `figure`.

    Examples
    --------
    >>> _, made = panel_grid("Five", 5, across=3, height=2.0)
    >>> len(made)
    5
    """
    count = check_integer(count, "count", low=1)
    ncols = min(check_integer(across, "across", low=1), count)
    nrows = -(-count // ncols)
    made, drawn = figure(title, width=width, height=frame + height * nrows, nrows=nrows, ncols=ncols, **axes)
    shown = drawn if isinstance(drawn, tuple) else (drawn,)
    for spare in shown[count:]:
        spare.remove()
    return made, shown[:count]


def percent(share: float) -> str:
    """Return a share in per cent, to three digits; NaN is a dash.

    Examples
    --------
    >>> percent(0.12345), percent(math.nan)
    ('12.3 %', '–')
    """
    return "–" if math.isnan(share) else f"{100 * share:.3g} %".replace("-", "−")


def shorten(text: Any, longest: int) -> str:
    """Return a text of at most `longest` letters, cut with an ellipsis if need be.

    Examples
    --------
    >>> shorten("Guardians", 6)
    'Guard…'
    """
    word = str(text)
    return word if len(word) <= longest else word[: longest - 1] + "…"


def svg(figure: Figure) -> str:
    """Return a figure as an SVG element: the same text for the same figure, with letters as paths, for any viewer.

    Parameters
    ----------
    figure : matplotlib.figure.Figure

    Returns
    -------
    str
        Starts with ``<svg``; named by the figure's title for screen readers.
    """
    buffer = io.StringIO()
    with look():
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    titles = [figure.get_suptitle(), *(ax.get_title() for ax in figure.axes), "Figure"]
    title = " ".join(next(filter(None, titles)).split())
    opening, content = text[text.index("<svg ") + len("<svg ") :].split(">", 1)
    return f'<svg role="img" {opening}>\n <title>{escape(title)}</title>{content}'


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure atomically, in the format that the suffix names: ``.svg``, ``.png`` or ``.pdf``.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    path : path

    Raises
    ------
    ValueError
        Another suffix.
    """
    kind = check_choice(Path(path).suffix.lower(), "suffix of path", (".svg", ".png", ".pdf"))
    with atomic_file(path) as part, look():
        if kind == ".svg":
            part.write_text(svg(figure) + "\n", encoding="utf-8")
        else:
            dated = {"CreationDate": None} if kind == ".pdf" else {}
            figure.savefig(part, format=kind[1:], dpi=200, metadata=dated)
