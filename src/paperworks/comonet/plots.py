"""Pictures of certificates and fitted models, and of the ledger's tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.textpath import text_to_path
from matplotlib.ticker import LogLocator, NullFormatter
from numpy.typing import NDArray

from paperworks.core.plotting import PALETTE, figure, panel_grid, percent, shorten
from paperworks.core.validation import check_integer

if TYPE_CHECKING:
    import paperworks.comonet.certificates
    import paperworks.comonet.estimators

__all__ = [
    "blind_spot",
    "certificate_strip",
    "certifier_boxes",
    "noise_curves",
    "option_smile",
    "penalties",
    "product_scores",
    "profiles",
    "real_scores",
    "shape_curves",
    "witness",
    "witness_points",
]

Floats = NDArray[np.float64]

_GOOD, _BAD, _GREY, _DARK = PALETTE[2], PALETTE[1], "#9aa2ae", "#1c2330"
_STATUS = {"proved": _GOOD, "violated": _BAD, "unknown": _GREY, "invalid": _DARK}
_LABELS = {
    "black_scholes": "Black–Scholes",
    "cobb_douglas": "Cobb–Douglas",
    "comonet": "COMONet",
    "comonet-relu": "COMONet, relu",
    "hgb": "HistGB",
    "mlp": "MLP",
    "pygam": "pyGAM",
    "xgboost": "XGBoost",
}
# Of methods, and of the units and parts of a network, in the order in which they are drawn.
_COLOURS = {
    "truth": "black",
    "comonet": PALETTE[0],
    "comonet-relu": PALETTE[5],
    "maxout": PALETTE[0],
    "lse": PALETTE[3],
    "relu": PALETTE[5],
    "additive": PALETTE[0],
    "product": PALETTE[2],
    "both": PALETTE[3],
    "mlp": PALETTE[1],
    "xgboost": PALETTE[4],
    "pygam": PALETTE[2],
}
_LONGEST = 36  # letters of a column's name that fit beside the rest


# A user's own model


def certificate_strip(certificate: paperworks.comonet.certificates.Certificate) -> Figure:
    """Draw one row per column: the shape required, what is proved of it, where and how.

    Green is proved, red violated, grey unknown, black invalid (weights that are not finite).

    Parameters
    ----------
    certificate : Certificate
        Of `certify` or of a fitted estimator.
    """
    columns = certificate.columns
    rows = [("column", "required", "", "proved", "where", "method"), *map(_cells, columns)]
    lefts = np.cumsum([0.1, *(max(map(_inches, texts)) + 0.3 for texts in zip(*rows, strict=True))])
    width, status = max(7.0, float(lefts[-1])), 2
    made, ax = figure(str(certificate).splitlines()[0], width=width, height=0.8 + 0.3 * len(rows))
    ax.set(xlim=(0, width), ylim=(len(rows) - 0.5, -0.5))
    ax.set_axis_off()
    middle, chip = float(lefts[status : status + 2].mean()), float(np.diff(lefts)[status])
    for i, texts in enumerate(rows):
        for k, (left, text) in enumerate(zip(lefts, texts, strict=False)):
            if k != status:
                ax.text(left, i, text, va="center", color=_DARK if i else _GREY, parse_math=False)
        if i:
            state = columns[i - 1].status
            ax.add_patch(Rectangle((middle - chip / 2 - 0.15, i - 0.38), chip, 0.76, color=_STATUS[state]))
            ax.text(middle - 0.15, i, state, ha="center", va="center", color="white", weight="bold")
    return made


def _cells(column: paperworks.comonet.certificates.ColumnCertificate) -> tuple[str, ...]:
    """Return the texts of one column's row."""
    proved = f"not {column.witness.broken}" if column.witness else _words(column.proved).replace("free", "–")
    where = "all of R^d"
    if column.domain is not None:
        low, high = column.domain[column.index]
        where = f"box, here {low:.4g} to {high:.4g}"
    boxes = f" ({column.boxes} box{'es' * (column.boxes != 1)})" if column.boxes else ""
    shown = ("–", "–") if column.status == "invalid" else (proved, where)
    method = column.method.replace("none", "–") + boxes
    return shorten(column.name, _LONGEST), _words(column.required), column.status, *shown, method


def profiles(
    model: paperworks.comonet.estimators.COMONetRegressor | paperworks.comonet.estimators.COMONetClassifier,
    X: Any,
    columns: Any = None,
    rows: int = 30,
) -> Figure:
    """Draw how single predictions change with one column, all others held fixed, and the mean of these curves.

    Every curve has the column's shape, as it holds for all values of the others.

    Parameters
    ----------
    model : COMONetRegressor or COMONetClassifier
        Fitted; of a classifier it is the decision function that is drawn.
    X : array_like, shape (n, d)
        Rows like those of the fit.
    columns : name, index or sequence of them, optional
        Default: all.
    rows : int
        Curves a panel, at least 2, through rows evenly spread over the column's values.

    Raises
    ------
    ValueError
        An unknown column, none, or fewer than 2 rows asked for.
    """
    rows = check_integer(rows, "rows", low=2)
    values = model._inputs(X)
    table = X if isinstance(X, pd.DataFrame) else pd.DataFrame(values)
    known = model.certificate_.columns
    keys = [columns] if isinstance(columns, (str, Integral)) else range(len(known)) if columns is None else columns
    chosen = [model._column(key, "columns") for key in keys]
    if not chosen:
        raise ValueError(f"columns must name at least one column, got {columns!r}")
    made, panels = panel_grid(
        f"Predictions of {min(rows, len(table))} rows along single columns, and their mean",
        len(chosen),
        across=3,
        height=2.1,
    )
    for ax, j in zip(panels, chosen, strict=True):
        order = np.argsort(values[:, j], kind="stable")
        picked = np.unique(np.linspace(0, len(order) - 1, rows).round().astype(int))
        curves = model.profile(table.iloc[order[picked]], j)
        lines = curves["prediction"].to_numpy().reshape(len(picked), -1)
        x = curves["value"].to_numpy()[: lines.shape[1]]
        ax.plot(x, lines.T, color=_GREY, linewidth=0.7, alpha=0.6)
        ax.plot(x, lines.mean(axis=0), color=PALETTE[0], linewidth=2.4)
        name, shape = shorten(known[j].name, _LONGEST), _words(known[j].required)
        ax.set_title(name if name.replace("_", " ") == shape else f"{name}: {shape}", parse_math=False)
    made.supylabel("decision function" if hasattr(model, "classes_") else "prediction", fontsize=10, color="#4a5361")
    return made


def witness_points(
    column: paperworks.comonet.certificates.ColumnCertificate, predict: Callable[[Any], Any], points: int = 101
) -> Figure:
    """Draw a model along the line through the points that contradict a declared shape.

    Parameters
    ----------
    column : ColumnCertificate
        One that is violated: with a witness.
    predict : callable
        Of the model: from rows (n, d), an array, to one number a row.
    points : int
        Rows at which the line is evaluated, at least 2.

    Raises
    ------
    ValueError
        A column without a witness.
    """
    points = check_integer(points, "points", low=2)
    if column.witness is None:
        raise ValueError(f"column must have a witness, got {column.name!r}, which is {column.status}")
    at = np.array(column.witness.points, dtype=np.float64)
    x, j = at[:, column.index], column.index
    low, high = (-math.inf, math.inf) if column.domain is None else column.domain[j]
    reach = 0.5 * np.ptp(x)
    grid = np.union1d(np.linspace(max(low, x.min() - reach), min(high, x.max() + reach), points), x)
    line = np.tile(at[0], (len(grid), 1))
    line[:, j] = grid
    made, ax = figure(f"Not {column.witness.broken}, though declared {_words(column.required)}")
    ax.set_xlabel(shorten(column.name, _LONGEST), parse_math=False)
    ax.set_ylabel(column.scale.replace("_", " "))
    values = np.asarray(predict(line), dtype=np.float64).reshape(len(grid))
    _draw_witness(ax, grid, values, x, np.array(column.witness.values))
    ax.legend(frameon=False)
    return made


# The ledger's tables


def shape_curves(regimes: pd.DataFrame, curves: pd.DataFrame) -> Figure:
    """Draw the truth and what each method learned of it along every column of `eight_regimes`."""
    shares = _smallest(regimes).groupby("param.method")["value.violated"].mean()
    names = list(curves["value.column"].unique())
    made, panels = panel_grid(
        "Eight shapes and a free column, learned from the same noisy rows", len(names), across=3, height=2.1
    )
    for ax, name in zip(panels, names, strict=True):
        for method, rows in _by(curves[curves["value.column"] == name], "param.method"):
            broken = f": {percent(shares[method])} of the checks violated" if method in shares else ""
            look = _line(method)
            ax.plot(*_xy(rows, "value.x", "value.prediction"), **look | {"label": look["label"] + broken})
        ax.set_title(_words(name))
    made.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return made


def noise_curves(regimes: pd.DataFrame) -> Figure:
    """Draw the error and the share of violated checks of every method against the noise of the target."""
    made, (left, right) = figure(
        "More noise, and what becomes of the shapes",
        width=9, ncols=2, xscale="log", xlabel="noise, over the standard deviation of the target",
    )  # fmt: skip
    for method, rows in _by(_smallest(regimes), "param.method"):
        for ax, column in ((left, "value.nmse"), (right, "value.violated")):
            seeds = rows.groupby("param.noise")[column]
            mean = seeds.mean()
            ax.plot(mean.index, mean, marker="o", **_line(method) | {"linewidth": 1.8})
            ax.fill_between(mean.index, seeds.min(), seeds.max(), color=_colour(method), alpha=0.12, linewidth=0)
    levels = sorted(regimes["param.noise"].unique())
    for ax in (left, right):
        ax.set_xticks(levels, [f"{level:g}" for level in levels])
        ax.set_xticks([], minor=True)
    left.set(ylabel="squared error over the variance", yscale="log")
    _plain_log(left.yaxis)
    _mark_shares(right)
    made.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return made


def blind_spot(targets: pd.DataFrame, maps: pd.DataFrame) -> Figure:
    """Draw a Cobb–Douglas function and what two kinds of unit make of it, and their errors on all targets."""
    drawn = [method for method in ("truth", "relu", "maxout") if (maps["param.method"] == method).any()]
    made, panels = panel_grid(
        "What plain units cannot learn, and maxout units can", len(drawn) + 1, across=2, height=3.2
    )
    grids = {
        method: maps[maps["param.method"] == method].pivot_table(
            index="value.y", columns="value.x", values="value.prediction"
        )
        for method in drawn
    }
    low, high = (float(bound) for bound in np.quantile(maps["value.prediction"], [0, 1]))
    levels = np.linspace(low, high, 9)[1:-1]
    for ax, (method, grid) in zip(panels, grids.items(), strict=False):
        x, y, z = grid.columns.to_numpy(), grid.index.to_numpy(), grid.to_numpy()
        image = ax.pcolormesh(x, y, z, vmin=low, vmax=high, cmap="viridis", shading="nearest", rasterized=True)
        ax.contour(x, y, z, levels, colors="white", linewidths=1.2)
        if method != "truth" and "truth" in grids:
            ax.contour(x, y, grids["truth"].to_numpy(), levels, colors="black", linewidths=0.8, linestyles=":")
        ax.set(title=_label(method), xlabel="capital", ylabel="labour")
        ax.grid(False)
        made.colorbar(image, ax=ax)
    panels[-1].set_title("error on each target")
    _dots(panels[-1], targets, "param.target", "param.unit")
    return made


def option_smile(smile: pd.DataFrame) -> Figure:
    """Draw one option's price against the strike, and the density that the prices imply, red where negative."""
    smile = smile[smile["param.seed"] == smile["param.seed"].min()]
    methods = _by(smile, "param.method")
    densities = [
        (method, rows) for method, rows in methods if method != "truth" and rows["value.density"].notna().any()
    ]
    made, panels = panel_grid(
        "Prices, and the density of the future price that they imply",
        1 + len(densities), across=2, height=2.8, xlabel="strike",
    )  # fmt: skip
    for method, rows in methods:
        panels[0].plot(*_xy(rows, "value.strike", "value.price"), **_line(method))
    panels[0].set(title="price of the option", ylabel="price")
    panels[0].legend(frameon=False)
    truth = smile[smile["param.method"] == "truth"]
    known = truth if len(truth) else smile
    top = max(float(known["value.density"].max()), 1e-9)
    for ax, (method, rows) in zip(panels[1:], densities, strict=True):
        strike, density = _xy(rows, "value.strike", "value.density")
        if len(truth):
            ax.plot(*_xy(truth, "value.strike", "value.density"), **_line("truth"))
        ax.plot(strike, density, color=_colour(method))
        ax.fill_between(
            strike, density, 0, where=density < 0, interpolate=True, color="#c1121f", alpha=0.35, linewidth=0
        )
        # Steps have no density: their spikes would flatten all the rest.
        ax.set(
            title=f"{_label(method)}: negative at {percent(float(np.mean(density < -1e-9)))} of the strikes",
            ylabel="density",
        )
        ax.set_ylim(
            max(-1.5 * top, min(1.1 * float(density.min()), -0.1 * top)),
            min(2.2 * top, 1.1 * max(top, float(density.max()))),
        )
    return made


def penalties(penalty: pd.DataFrame, regimes: pd.DataFrame) -> Figure:
    """Draw the error and the share of violated checks of networks with penalties, and of one with guarantees."""
    made, ax = figure("A penalty is not a guarantee", xscale="log", xlabel="squared error over the variance")
    ours = _smallest(regimes[(regimes["param.method"] == "comonet") & (regimes["param.noise"] == 0.5)])
    groups = [(f"penalty, weight {strength:g}", rows) for strength, rows in penalty.groupby("param.strength")]
    colours = itertools.cycle((PALETTE[0], PALETTE[4], PALETTE[1], PALETTE[3], PALETTE[6]))
    for (label, rows), colour in zip([("COMONet", ours), *groups], colours, strict=False):
        if len(rows):
            ax.plot(rows["value.nmse"], rows["value.violated"], "o", color=colour, alpha=0.35, markeredgewidth=0)
            ax.plot(
                rows["value.nmse"].mean(), rows["value.violated"].mean(), "D", color=colour, markersize=8, label=label
            )
    _plain_log(ax.xaxis)
    ax.margins(x=0.1)
    _mark_shares(ax)
    made.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return made


def witness(regimes: pd.DataFrame, subset: pd.DataFrame) -> Figure:
    """Draw the violated checks of every method, and three points that refute a network with a convex trunk."""
    made, (left, right) = figure("Constraints that do not hold", width=9, ncols=2)
    shares = _smallest(regimes).groupby("param.method", sort=False)["value.violated"].mean().sort_values()
    bars = left.barh([_label(m) for m in shares.index], shares, color=[_colour(m) for m in shares.index], height=0.62)
    left.bar_label(bars, [percent(share) for share in shares], padding=4)
    left.set(title="checks that violate the shape", xlim=(0, 1.2 * max(float(shares.max()), 0.01)))
    left.xaxis.set_major_formatter(lambda value, _: percent(value))
    kinds = {kind: _xy(rows, "value.x", "value.prediction") for kind, rows in subset.groupby("value.kind")}
    right.set(title="relu(x₁ + x₂), declared concave in x₂", xlabel="x₂", ylabel="prediction")
    if "witness" in kinds:
        _draw_witness(right, *kinds["line"], *kinds["witness"])
        right.legend(frameon=False)
    return made


def real_scores(real: pd.DataFrame) -> Figure:
    """Draw the scores of every method on real data, against the best peer's mean; left is better for errors."""
    names = list(real["param.data"].unique())
    made, panels = panel_grid(
        "Real data, against the best peer: every fold, and the mean", len(names), across=2, height=2.5
    )
    for ax, name in zip(panels, names, strict=True):
        rows = real[real["param.data"] == name]
        means = rows.groupby("param.method")["value.score"].mean()
        peers = means[[not method.startswith("comonet") for method in means.index]]
        errors = rows["value.metric"].iloc[0] == "mse"
        compared = means if peers.empty else peers
        best = float(compared.min() if errors else compared.max())
        order = means.sort_values(ascending=errors).index
        for k, method in enumerate(order):
            scores = rows.loc[rows["param.method"] == method, "value.score"]
            colour = PALETTE[0] if method.startswith("comonet") else PALETTE[6]
            for at, marker, alpha in ((scores, ".", 0.3), (means[[method]], "D", 1.0)):
                x = at / best if errors else at - best
                ax.plot(x, np.full(len(x), k), marker, color=colour, alpha=alpha, markeredgewidth=0)
        ax.set_yticks(range(len(order)), [_label(method) for method in order])
        ax.invert_yaxis()
        ax.axvline(1.0 if errors else 0.0, color="black", linewidth=1)
        ax.axvline(1.10 if errors else -0.03, color="black", linewidth=1, linestyle=":")
        ax.locator_params(axis="x", nbins=6)
        if errors:
            ax.set_xlabel("squared error over the best peer's (dotted: 1.1)")
        else:
            ax.xaxis.set_major_formatter(lambda value, _: percent(value))
            ax.set_xlabel("accuracy minus the best peer's (dotted: −3 %)")
        ax.set_title(_words(name))
    return made


def product_scores(products: pd.DataFrame) -> Figure:
    """Draw the error of sums, of product banks and of both on targets that are products."""
    made, ax = figure("Products of shapes, learned with and without product banks", height=3.2)
    _dots(ax, products, "param.target", "param.method")
    return made


def certifier_boxes(certifier: pd.DataFrame) -> Figure:
    """Draw the boxes that each proof or counterexample took, and mark wrong answers."""
    made, ax = figure(
        "Boxes to a proof or a counterexample",
        width=9, height=1.4 + 0.28 * len(certifier), xscale="log", xlabel="boxes",
    )  # fmt: skip
    columns = ("value.status", "value.expected", "value.boxes")
    for k, (status, expected, boxes) in enumerate(zip(*(certifier[name] for name in columns), strict=True)):
        ax.barh(k, boxes, color=_STATUS[status], height=0.62)
        wrong = f", EXPECTED {expected}" if status != expected else ""
        text = f"{boxes:g}, {status}{wrong}" if wrong or not boxes else f"{boxes:g}"
        ax.annotate(text, (max(boxes, 1), k), xytext=(5, 0), textcoords="offset points", va="center", fontsize="small")
    seen = [status for status in _STATUS if (certifier["value.status"] == status).any()]
    ax.legend([Rectangle((0, 0), 1, 1, color=_STATUS[status]) for status in seen], seen, frameon=False)
    ax.set_yticks(range(len(certifier)), certifier["value.case"])
    # Room for the text beside the longest bar.
    ax.set_xlim(0.5, 0.5 * (2 * max(10.0, float(certifier["value.boxes"].max()))) ** 1.8)
    ax.invert_yaxis()
    return made


def _draw_witness(ax: Axes, x: Floats, line: Floats, at: Floats, values: Floats) -> None:
    """Draw a line, the points on it that contradict a shape, and what connects the outer ones."""
    ax.plot(x, line, color=PALETTE[0], label="model")
    ax.plot(at[[0, -1]], values[[0, -1]], "--", color=_DARK, linewidth=1.2, label="chord" if len(at) > 2 else None)
    if len(at) > 2:
        chord = float(np.interp(at[1], at[[0, -1]], values[[0, -1]]))
        ax.plot([at[1]] * 2, [values[1], chord], color=_BAD, linewidth=2.4)
    ax.plot(at, values, "o", color=_BAD, markersize=7, label="witness")


def _dots(ax: Axes, table: pd.DataFrame, across: str, by: str) -> None:
    """Draw errors on a log axis: a line for each value of `across`, a colour for each of `by`."""
    names = list(table[across].unique())
    groups = _by(table, by)
    for k, (method, rows) in enumerate(groups):
        shift = 0.5 * (k / max(1, len(groups) - 1) - 0.5)
        at = rows[across].map(names.index) + shift
        ax.plot(rows["value.nmse"], at, "o", color=_colour(method), alpha=0.8, label=_label(method))
    ax.set_yticks(range(len(names)), [_label(name) for name in names])
    ax.set(xscale="log", xlabel="squared error over the variance", ylim=(len(names) - 0.5, -0.5))
    made = ax.get_figure(root=True)
    assert made is not None
    made.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)


def _smallest(regimes: pd.DataFrame) -> pd.DataFrame:
    """Return what was fitted to the fewest rows, which every scale of the ledger has."""
    few: pd.DataFrame = regimes[regimes["param.rows"] == regimes["param.rows"].min()]
    return few


def _by(table: pd.DataFrame, column: str) -> list[tuple[str, pd.DataFrame]]:
    """Split a table by method, in the order of `_COLOURS`, others last."""
    order = list(_COLOURS)
    groups = [(str(name), rows) for name, rows in table.groupby(column, sort=False)]
    return sorted(groups, key=lambda group: order.index(group[0]) if group[0] in order else len(order))


def _xy(rows: pd.DataFrame, x: str, y: str) -> tuple[Floats, Floats]:
    ordered = rows[[x, y]].dropna().sort_values(x, kind="stable")
    return ordered[x].to_numpy(dtype=np.float64), ordered[y].to_numpy(dtype=np.float64)


def _line(method: str) -> dict[str, Any]:
    """Return how a method's line looks: thin if it is jagged, broken if it hides another."""
    style = {"truth": "--", "comonet-relu": "--"}.get(method, "-")
    width = {"truth": 1.4, "xgboost": 1.1}.get(method, 1.8)
    return {"color": _colour(method), "linestyle": style, "linewidth": width, "label": _label(method)}


def _plain_log(axis: Axis) -> None:
    """Label 1, 2 and 5 of every decade of an axis that spans few of them."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def _mark_shares(ax: Axes) -> None:
    """Put shares of violated checks on a log axis that has a place for none at all."""
    ax.set_yscale("symlog", linthresh=1e-3, linscale=0.5)
    ax.set(ylabel="checks that violate the shape", ylim=(-2e-4, 1))
    shares = [0, 1e-3, 1e-2, 1e-1, 1]
    ax.set_yticks(shares, [percent(share) for share in shares])


def _label(method: str) -> str:
    return _LABELS.get(method, _words(method))


def _colour(method: str) -> str:
    return _COLOURS.get(method, PALETTE[6])


def _words(name: str) -> str:
    return str(name).replace("_", " ")


def _inches(text: str) -> float:
    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=10), ismath=False)
    return float(width) / 72
