"""Pictures of runs, and of the ledger's tables: rates, certificates, orbits and where a method asks the operator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import OptimizeResult

from paperworks.anchoring.drive import AnchorResult
from paperworks.core.plotting import PALETTE, figure

__all__ = ["constants", "convergence", "kkt_curves", "phase_portrait", "query_pattern", "rates", "sandwich"]

Floats = NDArray[np.float64]

_INK, _GREY, _PALE = "#1c2330", "#9aa2ae", "#e3e6eb"
_PLAIN, _ANCHORED, _ANCHOR = _GREY, PALETTE[0], PALETTE[1]
_RATES = {"picard": 1.0, "forward": 0.5, "extragradient": 1.0, "popov": 1.0, "popov-stored": 1.0}
_METHODS = ("picard", "forward", "extragradient", "popov")
_NAMES = {
    "picard": "Picard",
    "forward": "forward step",
    "extragradient": "extragradient",
    "popov": "Popov",
    "popov-stored": "Popov, past as stored",
}


# A user's own runs


def convergence(results: Mapping[str, AnchorResult], guarantee: ArrayLike | None = None) -> Figure:
    """Draw the residual of runs against the iteration, with restarts and the slopes −1/2 and −1.

    Parameters
    ----------
    results : mapping of str to AnchorResult
        Runs, by what they are called; each with a residual a check, not one a problem.
    guarantee : array, shape (n + 1,), optional
        What the residual of iterates 0 to n cannot exceed in anchored runs that do not restart, as from `apriori_bound`:
        the space above it is shaded.

    Raises
    ------
    ValueError
        No run, or runs of many problems.

    Examples
    --------
    >>> from paperworks.anchoring.drive import fixed_point
    >>> runs = {"Halpern": fixed_point(lambda x: -x, np.ones(2), maxiter=50)}
    >>> len(convergence(runs).axes)
    1
    """
    if not results:
        raise ValueError("results must hold at least one run")
    if any(np.ndim(result.history["residual"]) != 1 for result in results.values()):
        raise ValueError("results must be of single problems, not of batch_dims=1")
    made, ax = figure(
        "Residual of the last iterate", width=6.8, height=4.4, xscale="log", yscale="log", xlabel="iteration k + 1",
        ylabel="residual",
    )  # fmt: skip
    keys: list[Any] = []
    top = 0.0
    for colour, (name, result) in zip(_colours(len(results)), results.items(), strict=True):
        k, residual = result.history["it"] + 1, np.asarray(result.history["residual"], float)
        keys += ax.plot(k, np.where(residual > 0, residual, np.nan), color=colour, label=name)
        restarted = np.flatnonzero(np.diff(result.history["epoch"])) + 1
        ax.plot(k[restarted], residual[restarted], "|", color=colour, markersize=10)
        top = max(top, float(np.nanmax(residual)))
        if len(restarted):
            keys.append(
                Line2D([], [], color=colour, marker="|", linestyle="", markersize=10, label=f"restarts of {name}")
            )
    if guarantee is not None:
        bound = np.asarray(guarantee, dtype=np.float64)
        keys.append(_shade(ax, np.arange(1, len(bound) + 1), bound, "excluded for anchored runs without restarts"))
    _guides(ax, max(float(result.history["it"][-1]) + 1 for result in results.values()), top)
    _legend(made, keys)
    return made


def kkt_curves(result: OptimizeResult, tol: float | None = None) -> Figure:
    """Draw the three relative errors of a linear programme's solve against the iteration, with a tick a restart.

    Parameters
    ----------
    result : OptimizeResult
        From `linprog` or `solve_mps`.
    tol : float, optional
        The tolerance, as a line.

    Raises
    ------
    ValueError
        No iteration was made, as where the limits leave no point.

    Examples
    --------
    >>> from paperworks.anchoring.lp import linprog
    >>> len(kkt_curves(linprog([1.0, 1.0], [[-1.0, -2.0]], [-2.0])).axes)
    1
    """
    history = result.get("history") or {}
    if not len(history.get("it", ())):
        raise ValueError("result must have a history of at least one check")
    made, ax = figure(
        "Relative errors of the linear programme", width=6.8, height=4.4, yscale="log", xlabel="iteration",
        ylabel="relative error",
    )  # fmt: skip
    labels = {"primal": "primal infeasibility", "dual": "dual infeasibility", "gap": "gap of the objectives"}
    keys: list[Any] = []
    for colour, (name, label) in zip(PALETTE, labels.items(), strict=False):
        error = np.asarray(history[name], float)
        keys += ax.plot(history["it"], np.where(error > 0, error, np.nan), color=colour, label=label)
    restarted = history["it"][np.flatnonzero(np.diff(history["epoch"])) + 1]
    if len(restarted):
        height = ax.get_xaxis_transform()
        keys += ax.plot(
            restarted, np.zeros(len(restarted)), "|", color=_INK, markersize=10, transform=height, label="restarts"
        )
    if tol is not None:
        keys.append(ax.axhline(tol, color=_GREY, linestyle=":", label="tolerance"))
    _legend(made, keys)
    return made


# The ledger's tables


def rates(spectral: pd.DataFrame) -> Figure:
    """Draw the worst residual over normal linear operators against the iteration, method by method, below what is proved."""
    rows = _bare(spectral)
    methods = [method for method in _METHODS if method in set(rows["method"])]
    made, panels = _panels("Worst last iterate of normal linear operators, anchored", methods, height=2.9)
    keys: dict[str, Any] = {}
    for method, ax in panels.items():
        found = rows[rows["method"] == method]
        settings = list(found.groupby(found[["a", "mu"]].apply(_setting, axis=1), sort=False))
        for colour, (named, part) in zip(_colours(len(settings)), settings, strict=True):
            k = part["k"].to_numpy() + 1
            ax.plot(k, part["residual"], color=colour, label=named or "default")
            if not named and part["bound"].notna().all():
                keys["proved"] = _shade(
                    ax, k, part["bound"].to_numpy(dtype=np.float64), "excluded by the proof, with the default"
                )
        last, first = float(found["k"].max()) + 1, float(found["residual"].max())
        _guide(ax, last, first * 2, _RATES[method])
        ax.set(xscale="log", yscale="log", xlabel="k + 1", ylabel="residual", ylim=(None, 30 * first))
        if len(settings) > 1:
            ax.legend(fontsize=8, loc="lower left")
    _legend(made, list(keys.values()))
    return made


def sandwich(pep: pd.DataFrame) -> Figure:
    """Draw three certificates of the same worst case, times its rate: from below, by a semidefinite programme, from above."""
    rows = _bare(pep)
    methods = [method for method in _METHODS if method in set(rows["method"])]
    made, panels = _panels("The worst residual, bounded from below and above", methods, height=2.9)
    keys: list[Any] = []
    for method, ax in panels.items():
        found = rows[rows["method"] == method].sort_values("n")
        n, scale = found["n"].to_numpy(), (found["n"].to_numpy() + 1.0) ** _RATES[method]
        inexact = (found["status"] != "optimal").to_numpy()
        middle = found["pep"].to_numpy() * scale
        ax.fill_between(n, found["spectral"] * scale, found["recurrence"] * scale, color=_PALE, linewidth=0)
        keys = [
            *ax.plot(n, found["recurrence"] * scale, color=PALETTE[1], label="proved: recurrence"),
            *ax.plot(n, middle, "o", color=_INK, label="performance estimation (upper bound)"),
            *ax.plot(n, found["spectral"] * scale, color=PALETTE[0], label="attained: normal linear operators"),
        ]
        ax.plot(n[inexact], middle[inexact], "o", color="white", markersize=2.5)
        power = "√(n + 1)" if _RATES[method] == 0.5 else "(n + 1)"
        ax.set(
            xlabel="iterations n",
            ylabel=f"{power} · residual",
            ylim=(0, 1.08 * float((found["recurrence"] * scale).max())),
        )
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if (rows["status"] != "optimal").any():
        keys.append(
            Line2D([], [], color=_INK, marker="o", linestyle="", markerfacecolor="white", label="solver: inaccurate")
        )
    _legend(made, keys)
    return made


def constants(spectral: pd.DataFrame, grid: pd.DataFrame) -> Figure:
    """Draw the largest (k + 1)·residual against the weights a and μ: darker is better; the cross is the default."""
    rows = _bare(grid)
    methods = [method for method in _METHODS if method in set(rows["method"])]
    made, panels = _panels("Largest (k + 1) · residual by weights, b = 8", methods, height=3.9)
    low, high = float(rows["constant"].min()), 20.0
    image = None
    for method, ax in panels.items():
        found = rows[rows["method"] == method].pivot(index="mu", columns="a", values="constant")
        a, mu = found.columns.to_numpy(dtype=np.float64), found.index.to_numpy(dtype=np.float64)
        image = ax.pcolormesh(
            a, mu, found.to_numpy(dtype=np.float64), norm=LogNorm(low, high), cmap="viridis", rasterized=True
        )
        if method == "popov":
            ax.axhline(0.5, color="white", linestyle="--", linewidth=1)
            ax.annotate(
                "proved below",
                (a[-1], 0.5),
                (-3, -10),
                textcoords="offset points",
                ha="right",
                color="white",
                fontsize=8,
            )
        ax.plot(1.5, {"extragradient": 0.75}.get(method, 0.45), "x", color="white", markersize=8, markeredgewidth=2)
        ax.grid(False)
        ax.set(xlabel="a", ylabel="μ")
    if image is not None:
        bar = made.colorbar(image, ax=list(panels.values()), extend="max", label="largest (k + 1) · residual")
        ticks = [tick for tick in (3, 4, 5, 7, 10, 15, 20) if low <= tick <= high]
        bar.set_ticks(ticks, labels=[str(tick) for tick in ticks], minor=False)
        bar.set_ticks([], minor=True)
    white = Patch(facecolor="white", edgecolor=_GREY, label="white: a/8 ≥ μ, no weights")
    default = Line2D([], [], color=_INK, marker="x", linestyle="", markersize=8, markeredgewidth=2, label="default")
    _legend(made, [white, default])
    return made


def phase_portrait(plain: pd.DataFrame, orbits: pd.DataFrame) -> Figure:
    """Draw the orbits of four methods on a rotation of the plane, plain and anchored; short lines pull to the anchor."""
    rows = _bare(orbits)
    methods = [method for method in _METHODS if method in set(rows["method"])]
    made, panels = _panels("A rotation of the plane: plain and anchored", methods, height=3.2, width=7.2)
    keys: list[Any] = []
    for method, ax in panels.items():
        found = rows[rows["method"] == method].sort_values(["k", "order"])
        start = _points(found, "anchored", "iterate")[0]
        for version, colour, marker in (("plain", _PLAIN, "."), ("anchored", _ANCHORED, "o")):
            points = _points(found, version, "iterate")
            inside = np.abs(points).max(axis=1) <= 2.5
            shown = points[: len(points) if inside.all() else int(inside.argmin()) + 1]
            ax.plot(*shown.T, color=colour, marker=marker, markersize=3, linewidth=1, label=f"{version} iterates")
        asked = _points(found, "anchored", "anchored")[:16]
        pulls = 0.25 * (start - asked)
        ax.quiver(
            *asked.T, *pulls.T, angles="xy", scale_units="xy", scale=1, width=0.005, color=_ANCHOR, zorder=3, alpha=0.8
        )
        ax.plot(*asked.T, "x", color=_ANCHOR, markersize=4, label="first points asked for, and the pull there")
        ax.plot(*start, "s", color=_INK, markersize=6, label="anchor")
        ax.plot(0, 0, "*", color=PALETTE[2], markersize=9, label="solution")
        ax.set(aspect="equal", adjustable="datalim", xlabel="x", ylabel="y")
        keys = ax.get_legend_handles_labels()[0]
    _legend(made, keys)
    return made


def query_pattern(orbits: pd.DataFrame, placement: pd.DataFrame) -> Figure:
    """Draw where each method asks the operator in its first iterations, and that the anchor pulls exactly there."""
    rows = _bare(orbits)
    rows = rows[(rows["version"] == "anchored") & (rows["k"] < 6 + (rows["role"] == "iterate"))]
    methods = [method for method in _METHODS if method in set(rows["method"])]
    made, panels = _panels("Where the operator is asked, and where the anchor pulls", methods, height=2.7, width=7.6)
    keys: list[Any] = []
    for method, ax in panels.items():
        found = rows[rows["method"] == method].sort_values(["k", "order"])
        iterates = found[found["role"] == "iterate"]
        size = {role: np.hypot(part["first"], part["second"]) for role, part in found.groupby("role")}
        highest = float(max(each.max() for each in size.values()))
        queried, anchored = (found[found["role"] == role] for role in ("queried", "anchored"))
        ax.step(iterates["k"], size["iterate"], where="post", color=_PALE, linewidth=6, label="iterate xₖ")
        spread = {
            role: part["k"] + (part["order"] + 0.5) / 2 for role, part in (("queried", queried), ("anchored", anchored))
        }
        ax.plot(
            spread["anchored"],
            size["anchored"],
            "s",
            color=_ANCHOR,
            markersize=9,
            fillstyle="none",
            label="anchor pulls at this point",
        )
        place = [_slot(point, anchored) for point in queried.itertuples()]
        ax.plot(place, size["queried"], "o", color=_ANCHORED, markersize=5, label="operator is called")
        ax.set(
            xlabel="iteration k",
            ylabel="‖point‖",
            xlim=(0, 6),
            ylim=(-0.08 * highest, 1.2 * highest),
        )
        ax.set_xticks(range(7))
        keys = ax.get_legend_handles_labels()[0]
    _legend(made, keys)
    return made


def _slot(point: Any, anchored: pd.DataFrame) -> float:
    """Return where a queried point is drawn: at the same point's place in its iteration."""
    same = anchored[
        (anchored["k"] == point.k)
        & np.isclose(anchored["first"], point.first)
        & np.isclose(anchored["second"], point.second)
    ]
    return float(point.k + (same["order"].iloc[0] + 0.5) / 2) if len(same) else float(point.k)


# What they share


def _setting(row: pd.Series[Any]) -> str:
    """Return what was not left at its default."""
    return ", ".join(f"{name} = {row[key]:g}" for key, name in (("a", "a"), ("mu", "μ")) if not pd.isna(row[key]))


def _bare(table: pd.DataFrame) -> pd.DataFrame:
    """Return a ledger's table with its parameters and values by their own names."""
    kept = [name for name in table.columns if str(name).startswith(("param.", "value."))]
    return table[kept].rename(columns=lambda name: str(name).split(".", 1)[1])


def _points(rows: pd.DataFrame, version: str, role: str) -> Floats:
    found = rows[(rows["version"] == version) & (rows["role"] == role)]
    return found[["first", "second"]].to_numpy(dtype=np.float64)


def _colours(count: int) -> list[str]:
    return [PALETTE[k % len(PALETTE)] for k in range(count)]


def _panels(title: str, methods: Sequence[str], *, height: float, width: float = 8.0) -> tuple[Figure, dict[str, Axes]]:
    """Return a panel a method, two in a row, named by it."""
    across = min(2, len(methods))
    down = math.ceil(len(methods) / across)
    made, panels = figure(
        title, width=width if across > 1 else 5.2, height=height * down + 0.9, nrows=down, ncols=across
    )
    axes = [panels] if isinstance(panels, Axes) else list(panels)
    for ax in axes[len(methods) :]:
        ax.remove()
    for method, ax in zip(methods, axes, strict=False):
        ax.set_title(_NAMES[method])
    return made, dict(zip(methods, axes, strict=False))


def _shade(ax: Axes, k: Any, bound: Floats, label: str) -> Patch:
    """Shade what is proved not to happen, and return its key."""
    ax.fill_between(k, bound, 1e3 * bound.max(), color=_PALE, linewidth=0, zorder=0)
    ax.plot(k, bound, color=_GREY, linewidth=1, linestyle="--")
    return Patch(color=_PALE, label=label)


def _guides(ax: Axes, last: float, top: float) -> None:
    low, high = ax.get_ylim()
    for rate in (0.5, 1.0):
        _guide(ax, last, 1.5 * top, rate)
    ax.set_ylim(min(low, top / last), min(high, 30 * top))


def _guide(ax: Axes, last: float, top: float, rate: float) -> None:
    """Draw a line of slope −rate from the left, named at its end."""
    k = np.array([1.0, last])
    ax.plot(k, top * k**-rate, color=_GREY, linestyle=":", linewidth=1.2)
    name = "1/√k" if rate == 0.5 else "1/k"
    ax.annotate(
        name, (k[1], top * k[1] ** -rate), (2, 0), textcoords="offset points", fontsize=8, color=_INK, va="center"
    )


def _legend(made: Figure, keys: Sequence[Any]) -> None:
    """Put a legend below the panels, in as many columns as fit."""
    if keys:
        longest = max(len(str(key.get_label())) for key in keys)
        columns = max(1, min(len(keys), int(made.get_figwidth() / (0.62 + 0.083 * longest))))
        made.legend(handles=list(keys), loc="outside lower center", ncols=columns, frameon=False)
