"""Pictures of predictions, fits and rankings, and of the ledger's tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from numpy.typing import ArrayLike, NDArray

from paperworks.core.plotting import PALETTE, figure, panel_grid, percent, shorten
from paperworks.core.validation import check_integer, check_real, check_vector
from paperworks.transitive.data import DESIGNS
from paperworks.transitive.fit import TheoryFit, read_answers
from paperworks.transitive.kernels import network_conjunctivity
from paperworks.transitive.ranker import TransitiveRanker, TransitiveRankerCV
from paperworks.transitive.tasks import TransitiveTask
from paperworks.transitive.theory import Prediction, predict_margins

__all__ = [
    "critical_alphas",
    "distance_curve",
    "distance_curves",
    "dominance",
    "early_stopping",
    "exception_bumps",
    "finetuned",
    "leak",
    "lm_accuracy",
    "margin_map",
    "margin_maps",
    "own_model",
    "phase_diagram",
    "phases",
    "rank_profile",
    "sweep",
    "theory_fit",
    "theory_scatter",
    "training_curves",
    "transfer",
    "wide_networks",
]

Floats = NDArray[np.float64]

_INK, _GREY, _PALE = "#1c2330", "#9aa2ae", "#e3e6eb"
_RIGHT, _WRONG, _CYCLE, _EXCEPTION = PALETTE[0], "#c1121f", PALETTE[4], PALETTE[1]
_THEORY, _DATA, _ADDITIVE = _INK, PALETTE[0], PALETTE[6]

# Of each class of pairs, in the order in which they are drawn; "nearest" is the pair across that is next to the cycle.
_CLASSES = {
    "rule": (PALETTE[6], "o"),
    "cycle": (_CYCLE, "o"),
    "exception": (_EXCEPTION, "X"),
    "transitive": (PALETTE[0], "o"),
    "within": (PALETTE[2], "o"),
    "boundary": (PALETTE[5], "o"),
    "intra": (_GREY, "o"),
    "cross": (PALETTE[3], "o"),
    "nearest": (PALETTE[3], "D"),
}
_PHASES = {
    "balanced": PALETTE[2],
    "generalises only": PALETTE[5],
    "memorises only": PALETTE[4],
    "neither": PALETTE[6],
}
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_TIE = 1e-9
_LONGEST = 18  # letters of an item's name
_SMALLEST = 5.2  # points: smaller numbers are left out
_MANY = 40  # items beyond which only those in question have a row


# A user's own task, fit or ranking


def margin_map(prediction: Prediction) -> Figure:
    """Draw the margin of every item over every other as a table: blue is right, red wrong, grey undecided by the order.

    Pairs shown in training are boxed; pairs within a section and across the cycle are outlined.

    Parameters
    ----------
    prediction : Prediction
        From `predict_margins`.

    Examples
    --------
    >>> prediction = predict_margins(TransitiveTask(9, exception=(5, 3)), conjunctivity=0.2)
    >>> ax = margin_map(prediction).axes[0]
    >>> [text.get_text() for text in ax.texts[:3]]
    ['1.00', '.86', '1.14']
    """
    names = _names(prediction.task)
    n = len(names)
    side = min(8.0, max(2.6, 0.46 * n))
    text = 0.085 * min(_LONGEST, max(map(len, names)))
    pairs = prediction.table()
    parts = (f"Margin of the row over the column, {_settings(prediction)}", _accuracies(pairs))
    made, ax = figure(": ".join(filter(None, parts)), width=max(4.8, side + text + 0.4), height=side + text + 1.7)
    _draw_map(ax, pairs, names, side / n)
    _legend(made, _map_keys(pairs), width=made.get_figwidth())
    return made


def rank_profile(prediction: Prediction) -> Figure:
    """Draw the rank of every item, and what it owes to the rule and to the leak of the exceptions.

    Items whose order to one across the cycle is reversed have a red ring.

    Parameters
    ----------
    prediction : Prediction
        From `predict_margins`.
    """
    task = prediction.task
    names = _names(task)
    made, ax = figure(
        f"What the exceptions do to the ranks, {_settings(prediction)}",
        width=max(5.2, min(9.0, 2 + 0.42 * len(names))), xlabel="item, best first",
        height=3.7 + 0.085 * min(_LONGEST, max(map(len, names))),
    )  # fmt: skip
    pairs = prediction.table()
    wrong = pairs[(pairs["correct"] == 0) & pairs["cls"].isin(["within", "cross", "transitive"])]
    _draw_profile(ax, prediction.rule_ranks(), prediction.ranks, task.cycle_items, wrong[["first", "second"]])
    _name_items(ax, names)
    ax.set_ylabel("rank r")
    _legend(made, _profile_keys(bool(task.is_exception.any()), bool(len(wrong))), width=made.get_figwidth())
    return made


def phase_diagram(
    phases: Mapping[str, ArrayLike],
    conjunctivity_grid: ArrayLike,
    ridge_grid: ArrayLike,
    learners: Mapping[str, tuple[float, float]] | None = None,
    title: str = "What a learner does with a rule and its exceptions",
) -> Figure:
    """Draw which learners generalise, which remember, and which do both.

    Parameters
    ----------
    phases : dict
        From `paperworks.transitive.theory.phase_diagram`.
    conjunctivity_grid : array_like, shape (a,)
        At least 2 values, increasing.
    ridge_grid : array_like, shape (l,)
        At least 2 values, increasing; on a log axis if all are positive.
    learners : dict of str to (float, float), optional
        Conjunctivity and ridge of what to mark, for instance of a `TheoryFit`; what lies outside the grids is only named.
    title : str
        Above the picture.

    Raises
    ------
    ValueError
        A grid that does not increase or is not that of the phases.
    """
    alphas = _check_grid(conjunctivity_grid, "conjunctivity_grid")
    ridges = _check_grid(ridge_grid, "ridge_grid")
    generalizes = np.asarray(phases["generalizes"], dtype=bool)
    remembers = np.asarray(phases["min_train_margin"], dtype=np.float64) > 0.5
    if generalizes.shape != (len(alphas), len(ridges)):
        raise ValueError(
            f"phases must be those of the grids, of shape {(len(alphas), len(ridges))}, got {generalizes.shape}"
        )
    made, ax = figure(title, width=6.4, height=4.6 + 0.2 * len(learners or {}))
    keys = _draw_phases(ax, alphas, ridges, generalizes, remembers)
    for k, (name, (alpha, ridge)) in enumerate((learners or {}).items()):
        marker = _MARKERS[k % len(_MARKERS)]
        inside = bool(alphas[0] <= alpha <= alphas[-1] and ridges[0] <= ridge <= ridges[-1])
        label = shorten(name, 30) + ("" if inside else " (outside)")
        keys.append(_mark_learners(ax, [alpha] * inside, [ridge] * inside, marker, label))
    _legend(made, keys, width=6.4)
    return made


def theory_fit(observed: ArrayLike | pd.DataFrame, fit: TheoryFit, task: TransitiveTask) -> Figure:
    """Draw the answer on every pair against the theory's, coloured by class.

    Parameters
    ----------
    observed : ndarray, shape (n, n), or DataFrame
        What was fitted, as in `fit_theory`, or answers after another training.
    fit : TheoryFit
    task : TransitiveTask
        What the answers were trained on.
    """
    pairs = _compared(observed, fit, task)
    known = "" if fit.identified else ", α not identified"
    made, ax = figure(
        f"Theory against answers: α = {fit.alpha:.3g}, λ = {fit.ridge:.3g}, R² = {_share(fit.r2)}{known}",
        width=6.0, height=5.2, xlabel=f"theory: {_unit(fit)}", ylabel=f"observed: {_unit(fit)}",
    )  # fmt: skip
    keys = _draw_scatter(ax, pairs, "fitted", "value")
    chance = 0.5 if fit.link == "logistic" else 0.0
    _cross_hairs(ax, chance)
    _legend(made, keys, width=6.0)
    return made


def distance_curve(observed: ArrayLike | pd.DataFrame, fit: TheoryFit, task: TransitiveTask) -> Figure:
    """Draw answers against the distance of the two items in the order, with the theory and its additive baseline.

    Large dots are means over the pairs at a distance, small ones single pairs, from the best to the worst. Exceptions,
    and pairs on which the order decides nothing, are left out.

    Parameters
    ----------
    observed : ndarray, shape (n, n), or DataFrame
        As in `fit_theory`.
    fit : TheoryFit
    task : TransitiveTask
        What the answers were trained on.
    """
    pairs = _compared(observed, fit, task)
    made, ax = figure(
        "Answers by distance in the order", width=max(6.4, min(9.0, 1.5 + 0.6 * task.n_items)), height=4.2,
        xlabel="distance of the items (within a distance: from the best pair to the worst)",
        ylabel=f"{'share of right choices' if fit.link == 'logistic' else _unit(fit)}",
    )  # fmt: skip
    keys = _draw_distances(ax, pairs[pairs["truth"] == 1])
    _legend(made, keys, width=made.get_figwidth())
    return made


def exception_bumps(ranker: TransitiveRanker | TransitiveRankerCV, most: int = 12) -> Figure:
    """Draw the ranking, and the pairs that contradict it: an arrow from the winner up to the loser.

    Above each arrow is the predicted margin of its winner: positive where the pair is remembered.

    Parameters
    ----------
    ranker : TransitiveRanker or TransitiveRankerCV
        Fitted.
    most : int
        Exceptions drawn at most, the most surprising ones. Of more than 40 items, only those in them are shown.

    Raises
    ------
    ValueError
        `most` below 1.
    """
    most = check_integer(most, "most", low=1)
    chosen = ranker.exceptions_.head(most)
    labels = ranker.ranking_.tolist()
    place = {label: k for k, label in enumerate(labels)}
    ends = [(place[winner], place[loser]) for winner, loser in zip(chosen["winner"], chosen["loser"], strict=True)]
    shown = sorted({k for pair in ends for k in pair}) if len(labels) > _MANY else list(range(len(labels)))
    row = {k: y for y, k in enumerate(shown)}
    ranks = np.sort(ranker.ranks_)[::-1]
    count = len(ranker.exceptions_)
    title = f"The ranking, and {_counted(min(count, most), count)} that it does not explain"
    width = min(9.0, 3.4 + 0.09 * max((len(str(label)) for label in labels), default=0) + 0.42 * len(chosen))
    made, ax = figure(title, width=max(5.4, width), height=1.7 + 0.24 * max(len(shown), 3))
    lanes = sorted(range(len(ends)), key=lambda k: abs(ends[k][0] - ends[k][1]))
    margins = (chosen["margin_by_rank"] + chosen["memory"]).to_numpy()
    for x, k in enumerate(lanes, 1):
        winner, loser = (row[end] for end in ends[k])
        colour = _EXCEPTION if margins[k] > 0 else _GREY
        arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 2, "shrinkA": 0, "shrinkB": 0}
        ax.hlines([winner, loser], 0, x, color=_PALE, linewidth=0.8, zorder=1)
        ax.annotate("", (x, loser), (x, winner), arrowprops=arrow)
        ax.plot([x], [winner], "o", color=colour)
        ax.annotate(
            _number(float(margins[k])), (x, min(winner, loser)), (0, 7), textcoords="offset points", ha="center",
            fontsize=8, color=_INK,
        )  # fmt: skip
    ax.set_yticks(
        range(len(shown)),
        [f"{k + 1}. {shorten(labels[k], _LONGEST)}  {_number(float(ranks[k]))}" for k in shown],
        parse_math=False,
    )
    ax.set(xlim=(0, len(ends) + 0.8), ylim=(len(shown) - 0.4, -1.1), xticks=[])
    ax.grid(False)
    ax.spines["bottom"].set_visible(False)
    ax.set_ylabel("place, item and rank r")
    keys = [
        Line2D([], [], color=colour, marker="o", label=label)
        for colour, label, any_ in (
            (_EXCEPTION, "remembered: the winner is still predicted", (margins > 0).any()),
            (_GREY, "not remembered", (margins <= 0).any()),
        )
        if any_
    ]
    _legend(made, keys, width=made.get_figwidth(), title="above an arrow: predicted margin of its winner")
    return made


def training_curves(
    task: TransitiveTask, conjunctivity: float, ridge: float = 0.0, times: ArrayLike | None = None
) -> Figure:
    """Draw the margin of every class of pairs, and the share that is right, during training.

    Parameters
    ----------
    task : TransitiveTask
    conjunctivity, ridge : float
        As in `predict_margins`.
    times : array_like, optional
        Positive and increasing, at least 2; by default 60 until little changes.
    """
    check_real(conjunctivity, "conjunctivity", low=0, high=1)
    default = np.geomspace(0.1, 30 / max(conjunctivity, ridge, 0.01), 60)
    grid = default if times is None else _check_grid(times, "times")
    frames = []
    for time in grid.tolist():
        table = predict_margins(task, conjunctivity, ridge, time=time).table()
        frames.append(table.assign(time=time, margin=table["margin"] * _sign(table)))
    rows = pd.concat(frames)
    rows = pd.concat([rows, rows[_nearest(rows)].assign(cls="nearest")])
    curves = rows.groupby(["cls", "time"], as_index=False).agg(margin=("margin", "mean"), accuracy=("correct", "mean"))
    made, panels = figure(
        f"Training by gradient flow, α = {conjunctivity:g}" + (f", λ = {ridge:g}" if ridge else ""), width=9,
        height=4.2, ncols=2, xscale="log", xlabel="time",
    )  # fmt: skip
    keys = _draw_curves(panels, curves)
    _legend(made, keys, width=9)
    return made


# The ledger's tables


def margin_maps(margins: pd.DataFrame) -> Figure:
    """Draw the margins of the base case at every conjunctivity."""
    rows = _bare(margins)
    rows = rows[rows["design"] == "exc_mid_n9"]
    alphas = sorted(rows["conjunctivity"].unique())
    made, panels = _panels(
        "Margin of the row over the column where 5 beats 3 of 9 items", len(alphas), across=2, height=4.4, foot=0.9
    )
    for ax, alpha in zip(panels, alphas, strict=True):
        pairs = rows[rows["conjunctivity"] == alpha].reset_index(drop=True)
        n = int(pairs["second"].max()) + 1
        _draw_map(ax, pairs, [str(k) for k in range(n)], 3.7 / n)
        ax.set_title(f"α = {alpha:g}: {_accuracies(pairs)}", loc="left")
    _legend(made, _map_keys(rows), width=9)
    return made


def wide_networks(wide: pd.DataFrame) -> Figure:
    """Draw the margins of networks with random features against the theory, for every width."""
    rows = _bare(wide)
    widths = sorted(rows["width"].unique())
    made, panels = _panels("Wide networks learn what the theory says", len(widths), across=3, height=3.4)
    for ax, width in zip(panels, widths, strict=True):
        pairs = rows[rows["width"] == width]
        for trained, colour, label in ((True, PALETTE[6], "trained"), (False, PALETTE[0], "not trained")):
            kept = pairs[pairs["trained"] == trained]
            ax.plot(kept["theory"], kept["network"], "o", color=colour, alpha=0.8, label=label)
        _diagonal(ax)
        off = float((pairs["network"] - pairs["theory"]).abs().max())
        ax.set(
            title=f"width {int(width):,}: r = {_correlation(pairs['theory'], pairs['network'])}, off by ≤ {off:.2g}",
            xlabel="margin, theory", ylabel="margin, network",
        )  # fmt: skip
    _legend(made, panels[0].get_legend_handles_labels()[0], width=made.get_figwidth())
    return made


def phases(phases: pd.DataFrame, lm_fits: pd.DataFrame) -> Figure:
    """Draw the phase diagram of the base case, with wide networks and language models finetuned on it."""
    rows = _bare(phases)
    grids = {
        name: rows.pivot_table(index="conjunctivity", columns="ridge", values=name, aggfunc="first")
        for name in ("generalizes", "min_train_margin")
    }
    table = grids["generalizes"]
    made, ax = figure("What a learner does with a rule and an exception (9 items, 5 beats 3)", width=8.4, height=5.6)
    alphas, ridges = table.index.to_numpy(dtype=np.float64), table.columns.to_numpy(dtype=np.float64)
    keys = _draw_phases(
        ax, alphas, ridges, table.to_numpy(dtype=bool), grids["min_train_margin"].to_numpy(dtype=np.float64) > 0.5
    )
    keys += _mark_networks(ax)
    fits = _bare(lm_fits)
    fits = fits[(fits["design"] == "exc_mid_n9") & fits["identified"].astype(bool)]
    for marker, (model, found) in zip(_MARKERS, fits.groupby("model"), strict=False):
        inside = (found["alpha"] <= alphas[-1]) & found["ridge"].between(ridges[0], ridges[-1])
        missing = f" ({(~inside).sum()} outside)" if (~inside).any() else ""
        keys.append(
            _mark_learners(ax, found["alpha"][inside], found["ridge"][inside], marker, f"{model}, finetuned{missing}")
        )
    _legend(made, keys, width=8.4)
    return made


def critical_alphas(critical: pd.DataFrame, networks: pd.DataFrame, chains: pd.DataFrame) -> Figure:
    """Draw the critical conjunctivity against the number of items, and the errors of wide networks."""
    rows = _bare(critical).dropna(subset="critical")
    made, (left, right) = figure("The more items, the less conjunctivity generalises", width=9, height=4.6, ncols=2)
    rows = rows.assign(n_items=2 * rows["items_per_side"] + rows["span"] + 1)
    top = float(rows["n_items"].max())
    for kind, depth, lift in (("nngp", 1, 0), ("nngp", 2, -5), ("nngp", 3, 0), ("ntk", 1, 5), ("ntk", 2, 0)):
        alpha = network_conjunctivity(depth, kind)  # type: ignore[arg-type]
        left.hlines(alpha, 0, top + 0.7, color=_GREY, linewidth=0.9, linestyle=":")
        left.annotate(
            f"{kind.upper()} {depth}", (top + 0.7, alpha), (3, lift), textcoords="offset points", va="center",
            fontsize=8,
        )  # fmt: skip
    colours = (PALETTE[2], PALETTE[3], PALETTE[4], PALETTE[5], PALETTE[6])
    for colour, marker, (span, found) in zip(itertools.cycle(colours), _MARKERS, rows.groupby("span"), strict=False):
        found = found.sort_values("n_items")
        left.plot(found["n_items"], found["critical"], marker=marker, color=colour, label=f"exception of span {span}")
    left.set(
        xlabel="number of items", ylabel="critical conjunctivity α*", yscale="log", ylim=(None, 0.6),
        xlim=(float(rows["n_items"].min()) - 1, top + 5), title="least α that reverses the nearest pair",
    )  # fmt: skip
    ticks = [0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5]
    left.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    left.set_yticks([], minor=True)
    _legend(made, left.get_legend_handles_labels()[0], width=9)
    _draw_shares(right, _bare(networks))
    right.set_title("wrong cross pairs of wide ReLU networks")
    return made


def leak(leak: pd.DataFrame, cases: pd.DataFrame) -> Figure:
    """Draw the ranks of the base case, split into the rule and the leak of the exception."""
    rows = _bare(leak)
    settings = [name for name in ("conjunctivity", "ridge", "exception_weight") if name in rows]
    groups = list(rows.groupby(settings, dropna=False)) if settings else [((), rows)]
    made, panels = _panels(
        "The exception pushes its winner up and its loser down, and the push leaks", len(groups), across=3, height=2.7, foot=0.5,
    )  # fmt: skip
    winner, loser = 5, 3
    ringed = False
    for ax, (values, found) in zip(panels, groups, strict=True):
        found = found.sort_values("item")
        ranks = found["rank"].to_numpy(dtype=np.float64)
        before, after = np.arange(loser), np.arange(winner + 1, len(ranks))
        first, second = (side.ravel() for side in np.meshgrid(before, after))
        reversed_ = ranks[first] < ranks[second] - _TIE
        wrong = pd.DataFrame({"first": first[reversed_], "second": second[reversed_]})
        ringed |= bool(len(wrong))
        _draw_profile(ax, found["rule"].to_numpy(dtype=np.float64), ranks, np.arange(loser, winner + 1), wrong)
        _name_items(ax, [str(k) for k in range(len(ranks))])
        ax.set(xlabel="item, best first", ylabel="rank r")
        ax.set_title(_described(dict(zip(settings, values, strict=True))))
    _legend(made, _profile_keys(True, ringed), width=made.get_figwidth())
    return made


def early_stopping(times: pd.DataFrame) -> Figure:
    """Draw margins and accuracy by class during training and at its end, a row of panels for every conjunctivity."""
    rows = _bare(times)
    rows = rows.assign(margin=rows["margin"] * _sign(rows))
    last = float(rows["time"].max())
    rows = rows.assign(time=rows["time"].fillna(2.5 * last))
    alphas = sorted(rows["conjunctivity"].unique())
    made, panels = _panels(
        "Training by gradient flow, and its end", 2 * len(alphas), across=2, height=2.7, foot=0.6, xscale="log",
        xlabel="time",
    )  # fmt: skip
    keys: dict[str, Line2D] = {}
    decades = [10.0**k for k in range(-1, math.floor(math.log10(last)) + 1)]
    for k, alpha in enumerate(alphas):
        found = rows[rows["conjunctivity"] == alpha]
        during, pair = found[found["time"] <= last], panels[2 * k : 2 * k + 2]
        keys |= {str(key.get_label()): key for key in _draw_curves(pair, during)}
        for ax, value in zip(pair, ("margin", "accuracy"), strict=True):
            for cls, (colour, marker) in _CLASSES.items():
                end = found[(found["time"] > last) & (found["cls"] == cls)]
                ax.plot(end["time"], end[value], marker, color=colour)
            ax.set_title(f"α = {alpha:.3g}")
            ax.set_xticks([*decades, 2.5 * last], [*(f"{tick:g}" for tick in decades), "end"])
            ax.set_xticks([], minor=True)
    _legend(made, [keys[name] for name in _ordered(keys)], width=9)
    return made


def lm_accuracy(lm_pairs: pd.DataFrame) -> Figure:
    """Draw the share of right answers of finetuned language models by class of pair; a dot is a model on a task."""
    rows = _bare(lm_pairs)
    rows = rows[rows["cls"] != "intra"]
    rows = rows.assign(right=0.5 + _sign(rows) * (rows["win_rate"] - 0.5))
    marked = rows[_nearest(rows, ["design", "task", "model"])].assign(cls="nearest")
    rows = pd.concat([rows, marked])
    designs = [name for name in DESIGNS if (rows["design"] == name).any()]
    made, panels = _panels(
        "Finetuned language models, by class of pair: a dot is a model on a task, a bar the mean ± SE", len(designs),
        across=2, height=2.9, ylabel="right answers",
    )  # fmt: skip
    for ax, design in zip(panels, designs, strict=True):
        found = rows[rows["design"] == design]
        runs = found.groupby(["cls", "task", "model"])[["right"]].mean().reset_index()
        _draw_classes(ax, runs, "right")
        ax.axhline(0.5, color=_INK, linewidth=1, linestyle=":")
        ax.set(title=_design(design), ylim=(0, 1.12))
        ax.yaxis.set_major_formatter(lambda value, _: percent(value))
        ax.set_yticks([0, 0.25, 0.5, 0.75, 1])
    return made


def theory_scatter(lm_fits: pd.DataFrame, lm_pairs: pd.DataFrame) -> Figure:
    """Draw the mean logit of every pair against the theory's, fitted with three numbers a model and task."""
    run = ["design", "task", "model"]
    fits = _bare(lm_fits).dropna(subset="alpha")
    pairs, parts = _bare(lm_pairs), []
    for fit in fits.to_dict("records"):
        found = pairs[(pairs[run] == [fit[name] for name in run]).all(axis=1)]
        margins = predict_margins(TransitiveTask(*DESIGNS[fit["design"]]), fit["alpha"], fit["ridge"]).margins
        parts.append(found.assign(fitted=fit["scale"] * margins[found["first"], found["second"]]))
    rows = pd.concat(parts)
    designs = [name for name in DESIGNS if (rows["design"] == name).any()]
    made, panels = _panels(
        "Three numbers a model, against the mean logits of all pairs", len(designs), across=2, height=3.7, foot=0.6,
        xlabel="logit, theory", ylabel="logit, observed",
    )  # fmt: skip
    legend: dict[str, Line2D] = {}
    for ax, design in zip(panels, designs, strict=True):
        found = rows[rows["design"] == design].reset_index(drop=True)
        legend |= {str(key.get_label()): key for key in _draw_scatter(ax, found, "fitted", "value", run)}
        _cross_hairs(ax, 0.0)
        quality = fits.loc[fits["design"] == design, "r2"]
        ax.set_title(f"{_design(design)}: median R² of {len(quality)} runs {_share(float(quality.median()))}")
    _legend(made, [legend[name] for name in _ordered(legend)], width=9)
    return made


def transfer(lm_transfer: pd.DataFrame) -> Figure:
    """Draw the correlation of observed and predicted logits where the theory was fitted to runs without exception."""
    rows = _bare(lm_transfer)
    designs = [name for name in DESIGNS if (rows["design"] == name).any()]
    rows = rows.assign(order=rows["design"].map(designs.index)).sort_values(["order", "task", "model"])
    made, ax = figure(
        "Fitted without an exception, and then predicting untrained pairs with one", width=9,
        height=1.6 + 0.25 * len(rows), xlabel="correlation of predicted and observed logits",
    )  # fmt: skip
    labels, at = [], []
    y = 0.0
    for _, found in rows.groupby("order"):
        for run in found.itertuples():
            at.append(y)
            labels.append(f"{_design(str(run.design))} · {run.task} · {run.model}")
            y += 1
        y += 0.5
    ax.hlines(at, rows["additive_r"], rows["r"], color=_PALE, linewidth=3)
    ax.plot(rows["additive_r"], at, "o", color=_ADDITIVE, label="additive baseline")
    ax.plot(rows["r"], at, "D", color=_THEORY, label="theory, α and λ of the runs without exception")
    ax.axvline(0.9, color=_INK, linewidth=1, linestyle=":")
    ax.set_yticks(at, labels, parse_math=False)
    ax.set_ylim(y - 0.5, -1)
    _legend(made, ax.get_legend_handles_labels()[0], width=9)
    return made


def sweep(sweep: pd.DataFrame) -> Figure:
    """Draw what stronger regularisation does to memory and to generalisation: of a language model, and in theory."""
    rows = _bare(sweep)
    rows = pd.concat([rows, rows[_nearest(rows, ["source", "strength"])].assign(cls="nearest")])
    rows = rows[rows["cls"].isin(["rule", "cycle", "exception", "within", "cross", "nearest"])]
    rows = rows.assign(margin=_sign(rows) * rows["value"], right=0.5 + _sign(rows) * (rows["win_rate"] - 0.5))
    made, panels = figure("Regularisation costs memory, and reverses pairs across", width=9, height=4.2, ncols=2)
    keys: dict[str, Line2D] = {}
    wanted = (
        ("model", "right", "penalty on the change of a language model’s readout", "right answers", 0.5),
        ("theory", "margin", "ridge λ of the theory", "mean margin (right: > 0)", 0.0),
    )
    for ax, (source, value, x, y, chance) in zip(panels, wanted, strict=True):
        found = rows[rows["source"] == source]
        strengths = sorted(found["strength"].unique())
        found = found.assign(place=found["strength"].map(strengths.index))
        means = found.groupby(["cls", "place"])[[value]].mean().reset_index()
        keys |= {str(key.get_label()): key for key in _draw_lines(ax, means, "place", value, marker=True)}
        ax.axhline(chance, color=_INK, linewidth=1, linestyle=":")
        ax.set(xlabel=x, ylabel=y)
        ax.set_xticks(range(len(strengths)), [f"{strength:g}" for strength in strengths])
    panels[0].yaxis.set_major_formatter(lambda value, _: percent(value))
    _legend(made, [keys[name] for name in _ordered(keys)], width=9)
    return made


def own_model(geometry: pd.DataFrame) -> Figure:
    """Draw the margins of regressions on a language model's features against the theory, which has no fitted number."""
    rows = _bare(geometry)
    designs = [name for name in DESIGNS if (rows["design"] == name).any()]
    made, panels = _panels(
        "Regression on a language model's features, and the theory with the measured α", len(designs) + 1, across=3,
        height=3.6, foot=0.6,
    )  # fmt: skip
    keys: dict[str, Line2D] = {}
    for ax, design in zip(panels, designs, strict=False):
        found = rows[rows["design"] == design].reset_index(drop=True)
        pairs = found.groupby(["first", "second", "cls", "trained"], as_index=False)[["theory", "mean"]].mean()
        keys |= {str(key.get_label()): key for key in _draw_scatter(ax, pairs, "theory", "mean")}
        _cross_hairs(ax, 0.0)
        untrained = pairs[~pairs["trained"].astype(bool)]
        ax.set(
            title=f"{_design(design)}\nα {_interval(found['alpha'])}, r {_correlation(untrained['theory'], untrained['mean'])}",
            xlabel="margin, theory", ylabel="margin, regression",
        )  # fmt: skip
    _draw_shifts(panels[-1], rows)
    _legend(made, [keys[name] for name in _ordered(keys)], width=made.get_figwidth())
    return made


def finetuned(finetuned: pd.DataFrame) -> Figure:
    """Draw what an exception changes in the margins of a finetuned language model, by class of pair."""
    rows = _bare(finetuned)
    run = ["method", "names", "reversed"]
    pair = ["first", "second"]
    shown = rows[rows["exception"].astype(bool)]
    control = rows.loc[~rows["exception"].astype(bool), [*run, *pair, "after"]]
    both = shown.merge(control, on=[*run, *pair], suffixes=("", "_control"))
    both = pd.concat([both, both[_nearest(both, run)].assign(cls="nearest")])
    both = both.assign(change=both["after"] - both["after_control"])
    methods = sorted(both["method"].unique())
    made, panels = _panels(
        "What an exception changes in a finetuned model",
        max(len(methods), 1), across=2, height=3.6,
    )  # fmt: skip
    for ax, method in zip(panels, methods, strict=False):
        found = both[both["method"] == method]
        # An order and its reverse are no two samples: they are averaged.
        _draw_classes(ax, found.groupby(["cls", "names"])[["change"]].mean().reset_index(), "change")
        ax.axhline(0, color=_INK, linewidth=1)
        ax.set(
            title=f"{method}: a dot is an order of names and its reverse\n(bar: mean ± SE)",
            ylabel="margin with it − without it",
        )
    return made


def distance_curves(subjects: pd.DataFrame) -> Figure:
    """Draw the share of right choices of living subjects by distance in the order, and the theory's."""
    rows = _bare(subjects)
    species = list(rows["species"].unique())
    made, panels = _panels(
        "Choices of living subjects by distance in the order", len(species), across=2, height=3.4, foot=0.4,
        xlabel="distance of the items", ylabel="right choices",
    )  # fmt: skip
    keys: dict[str, Line2D] = {}
    for ax, name in zip(panels, species, strict=True):
        found = rows[rows["species"] == name].dropna(axis="columns", how="all")
        keys |= {str(key.get_label()): key for key in _draw_distances(ax, found)}
        ax.yaxis.set_major_formatter(lambda value, _: percent(value))
        ax.set_title(str(name))
    _legend(made, list(keys.values()), width=made.get_figwidth())
    return made


def dominance(dominance: pd.DataFrame) -> Figure:
    """Draw the accuracy on contests held out, against that of Bradley and Terry's model of the same group."""
    rows = _bare(dominance).astype({"method": str})
    kinds = list(rows["kind"].unique())
    titles = {
        "animals": "groups of animals", "upsets": "generated, with lasting upsets", "control": "generated, no upsets"
    }  # fmt: skip
    others = {"cv": "chosen", "colley": "Colley"}
    paired = bool((rows["method"] == "bt").any())
    made, panels = _panels(
        "Contests held out, predicted by a ranking with memory: mean ± SE of groups", len(kinds), across=2, height=3.6,
        xlabel="conjunctivity α", ylabel="accuracy minus Bradley–Terry’s (points)" if paired else "accuracy (%)",
    )  # fmt: skip
    for ax, kind in zip(panels, kinds, strict=True):
        wide = 100 * rows[rows["kind"] == kind].pivot_table(index="group", columns="method", values="accuracy")
        base = f", Bradley–Terry: {wide['bt'].mean():.1f} %" if "bt" in wide else ""
        ax.set_title(f"{titles.get(kind, kind)}\n{len(wide)} groups{base}")
        compared = wide.sub(wide["bt"], axis=0) if "bt" in wide else wide
        given = sorted((name for name in wide if name not in ("bt", *others)), key=float)
        shown = [*given, *(name for name in others if name in wide)]
        means, errors = compared[shown].mean().to_numpy(), compared[shown].sem().to_numpy()
        places = np.arange(len(shown))
        kept = places < len(given)
        ax.errorbar(places[kept], means[kept], errors[kept], marker="o", color=_DATA, capsize=3)
        ax.errorbar(places[~kept], means[~kept], errors[~kept], marker="D", color=_ADDITIVE, capsize=3, linestyle="")
        if "bt" in wide:
            ax.axhline(0, color=_INK, linewidth=1, linestyle=":")
        ax.set_xticks(places, [others.get(name, name) for name in shown])
        ax.set_xlim(-0.5, len(shown) - 0.5)
    return made


# Panels


def _draw_map(ax: Axes, pairs: pd.DataFrame, names: Sequence[str], cell: float) -> None:
    """Draw a table of margins; `pairs` has first, second, cls, trained, truth and margin, `cell` is in inches."""
    n = len(names)
    first, second = pairs["first"].to_numpy(dtype=int), pairs["second"].to_numpy(dtype=int)
    margin = pairs["margin"].to_numpy(dtype=np.float64)
    margin = _decided(margin)
    rightness = margin * pairs["truth"].to_numpy(dtype=np.float64)
    colours = np.ones((n, n, 3))
    colours[first, second] = colours[second, first] = _shade(rightness)
    inside = _in_cycles(pairs)
    colours[inside, inside] = to_rgb(_CYCLE)
    edges = np.arange(n + 1) - 0.5
    ax.pcolormesh(edges, edges, colours)
    trained = pairs["trained"].to_numpy(dtype=bool)
    for i, j in zip(first[trained], second[trained], strict=True):
        for x, y in ((j, i), (i, j)):
            ax.add_patch(Rectangle((x - 0.43, y - 0.43), 0.86, 0.86, fill=False, edgecolor=_INK, linewidth=1.1))
    for cls in ("within", "cross"):
        mask = np.zeros((n, n), dtype=bool)
        chosen = pairs["cls"].to_numpy() == cls
        mask[first[chosen], second[chosen]] = mask[second[chosen], first[chosen]] = True
        ax.add_collection(LineCollection(_outline(mask), colors=_CLASSES[cls][0], linewidths=2.4))
    size = min(8.5, 0.275 * 72 * cell)
    if size >= _SMALLEST:
        for i, j, value in (*zip(first, second, margin, strict=True), *zip(second, first, -margin, strict=True)):
            dark = colours[i, j] @ (0.299, 0.587, 0.114) < 0.58
            ax.text(
                j, i, _number(value), ha="center", va="center", fontsize=size, color="white" if dark else _INK,
                in_layout=False,
            )  # fmt: skip
    step = math.ceil(0.14 / cell)
    ticks, labels = np.arange(0, n, step), [shorten(name, _LONGEST) for name in names[::step]]
    turned = max(map(len, labels)) * 0.085 > cell * step
    ax.set_xticks(ticks, labels, parse_math=False, rotation=90 if turned else 0)
    ax.set_yticks(ticks, labels, parse_math=False)
    ax.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    ax.set(aspect="equal", xlim=(-0.55, n - 0.45), ylim=(n - 0.45, -0.55))
    ax.grid(False)
    ax.spines[:].set_visible(False)


def _in_cycles(pairs: pd.DataFrame) -> list[int]:
    """Return the items between the ends of an exception."""
    ends = pairs.loc[pairs["cls"] == "exception", ["first", "second"]].to_numpy(dtype=int)
    return sorted({item for low, high in ends.tolist() for item in range(low, high + 1)})


def _shade(rightness: Floats) -> Floats:
    """Return colours: blue where positive and red where negative, deepest from 1 on; white at 0, and grey for NaN."""
    strength = np.where(rightness == 0, 0.0, 0.2 + 0.7 * np.minimum(np.abs(rightness), 1.0))[:, None]
    full = np.where((rightness > 0)[:, None], to_rgb(_RIGHT), to_rgb(_WRONG))
    return np.asarray(np.where(np.isnan(rightness)[:, None], to_rgb(_PALE), 1 - strength * (1 - full)))


def _outline(mask: NDArray[np.bool_]) -> list[list[tuple[float, float]]]:
    """Return the sides of cells at which a mask begins or ends."""
    padded = np.pad(mask, 1)
    rows, columns = np.nonzero(padded[1:] != padded[:-1])
    across = [[(x - 1.5, y - 0.5), (x - 0.5, y - 0.5)] for y, x in zip(rows.tolist(), columns.tolist(), strict=True)]
    rows, columns = np.nonzero(padded[:, 1:] != padded[:, :-1])
    down = [[(x - 0.5, y - 1.5), (x - 0.5, y - 0.5)] for y, x in zip(rows.tolist(), columns.tolist(), strict=True)]
    return across + down


def _map_keys(pairs: pd.DataFrame) -> list[Any]:
    """Return the legend of tables of margins."""
    classes = set(pairs["cls"])
    keys: list[Any] = [
        Patch(color=_RIGHT, label="right"),
        Patch(color=_WRONG, label="wrong"),
        Patch(facecolor="none", edgecolor=_INK, label="shown in training"),
    ]
    if "exception" in classes:
        keys.append(Patch(color=_CYCLE, label="item in the cycle"))
    for cls, label in (("within", "within a section"), ("cross", "across the cycle")):
        if cls in classes:
            keys.append(Patch(facecolor="none", edgecolor=_CLASSES[cls][0], linewidth=2.4, label=label))
    if "intra" in classes:
        keys.append(Patch(color=_PALE, label="no order decides"))
    return keys


def _accuracies(pairs: pd.DataFrame) -> str:
    """Return the shares of untrained pairs that are right."""
    sign = np.sign(_decided(pairs["margin"].to_numpy(dtype=np.float64)))
    right = pairs.assign(right=(1 + sign * pairs["truth"]) / 2).groupby("cls")["right"].mean()
    shares = [f"{cls} {percent(right[cls])}" for cls in ("transitive", "within", "cross") if cls in right]
    return ", ".join(map(_unbroken, shares))


def _decided(margin: Floats) -> Floats:
    """Return margins with exact zeros where they are ties up to rounding."""
    return np.asarray(np.where(np.abs(margin) <= _TIE * np.nanmax(np.abs(margin)), 0.0, margin))


def _draw_profile(ax: Axes, rule: Floats, ranks: Floats, cycle: NDArray[np.intp], wrong: pd.DataFrame) -> None:
    """Draw ranks as the rule's and the leak added to it; items of the pairs in `wrong` have a ring."""
    items = np.arange(len(ranks))
    ax.use_sticky_edges = False  # bars would end at the frame
    for start, stop in _runs(cycle):
        ax.axvspan(start - 0.5, stop + 0.5, color=_CYCLE, alpha=0.16, linewidth=0)
    ax.axhline(0, color=_GREY, linewidth=1)
    ax.bar(items, ranks - rule, bottom=rule, width=0.5, color=_EXCEPTION, alpha=0.45)
    ax.plot(items, rule, "--", marker="_", color=_ADDITIVE, linewidth=1.2)
    ax.plot(items, ranks, "-o", color=_THEORY, clip_on=False)
    ringed = np.unique(wrong.to_numpy(dtype=int))
    ax.plot(ringed, ranks[ringed], "o", markersize=12, fillstyle="none", color=_WRONG, markeredgewidth=1.8)


def _profile_keys(exceptions: bool, wrong: bool) -> list[Any]:
    keys: list[Any] = [Line2D([], [], color=_THEORY, marker="o", label="rank")]
    if exceptions:
        keys += [
            Line2D([], [], color=_ADDITIVE, linestyle="--", linewidth=1.2, label="rule alone"),
            Patch(color=_EXCEPTION, alpha=0.45, label="leak of the exceptions"),
            Patch(color=_CYCLE, alpha=0.16, label="cycle"),
        ]
    if wrong:
        keys.append(
            Line2D(
                [], [], linestyle="", marker="o", markersize=10, fillstyle="none", color=_WRONG, label="reversed pair"
            )
        )
    return keys


def _draw_phases(
    ax: Axes, alphas: Floats, ridges: Floats, generalizes: NDArray[np.bool_], remembers: NDArray[np.bool_]
) -> list[Any]:
    """Draw the phases as a map with shares of its cells, and return its legend."""
    code = np.select([generalizes & remembers, generalizes, remembers], [0, 1, 2], 3)
    palette = np.array([1 - 0.5 * (1 - np.array(to_rgb(colour))) for colour in _PHASES.values()])
    log = bool((ridges > 0).all())
    x, y = (_edges(np.log10(ridges)) if log else _edges(ridges)), _edges(alphas)
    ax.pcolormesh(10**x if log else x, y, palette[code], rasterized=True)
    ax.set(xscale="log" if log else "linear", xlabel="ridge λ", ylabel="conjunctivity α")
    ax.set(xlim=(10 ** x[0], 10 ** x[-1]) if log else (x[0], x[-1]), ylim=(max(0.0, y[0]), min(1.0, y[-1])))
    ax.grid(False)
    return [
        Patch(color=palette[k], label=f"{name} ({percent(float((code == k).mean()))} of the map)")
        for k, name in enumerate(_PHASES)
        if (code == k).any()
    ]


def _edges(grid: Floats) -> Floats:
    """Return the borders of cells around the points of a grid."""
    middle = (grid[1:] + grid[:-1]) / 2
    return np.concatenate([[2 * grid[0] - middle[0]], middle, [2 * grid[-1] - middle[-1]]])


def _mark_learners(ax: Axes, alphas: Any, ridges: Any, marker: str, label: str) -> Line2D:
    (line,) = ax.plot(
        ridges,
        alphas,
        marker,
        markersize=7.5,
        color="white",
        markeredgecolor=_INK,
        markeredgewidth=1.4,
        label=label,
        clip_on=False,
        zorder=3,
    )
    return line


def _mark_networks(ax: Axes) -> list[Line2D]:
    """Mark infinitely wide ReLU networks at the edge of vanishing ridge, numbered by depth."""
    keys = []
    for x, kind, colour in ((0.025, "nngp", _INK), (0.075, "ntk", PALETTE[6])):
        for depth in (1, 2, 3):
            alpha = network_conjunctivity(depth, kind)  # type: ignore[arg-type]
            ax.plot([x], [alpha], "o", markersize=11, color=colour, transform=ax.get_yaxis_transform())
            ax.text(
                x, alpha, str(depth), ha="center", va="center_baseline", fontsize=7.5, color="white",
                transform=ax.get_yaxis_transform(),
            )  # fmt: skip
        name = f"{kind.upper()} of 1 to 3 hidden layers, λ → 0"
        keys.append(Line2D([], [], linestyle="", marker="o", markersize=9, color=colour, label=name))
    return keys


def _draw_scatter(ax: Axes, pairs: pd.DataFrame, x: str, y: str, groups: Sequence[str] | None = None) -> list[Line2D]:
    """Draw one column of pairs against another by class, with the diagonal, and return the legend."""
    near = _nearest(pairs, groups)
    keys = []
    for cls, (colour, marker) in _CLASSES.items():
        kept = pairs[near if cls == "nearest" else (pairs["cls"] == cls) & ~near]
        if len(kept):
            edge = _INK if cls == "nearest" else "white"
            size = 8 if cls in ("nearest", "exception") else 6
            ax.plot(kept[x], kept[y], marker, color=colour, markersize=size, markeredgewidth=0.8, markeredgecolor=edge)
            label = _class(cls)
            keys.append(
                Line2D(
                    [],
                    [],
                    linestyle="",
                    marker=marker,
                    color=colour,
                    markersize=size,
                    label=label,
                    markeredgecolor=edge,
                )
            )
    _diagonal(ax)
    return keys


def _diagonal(ax: Axes) -> None:
    low, high = min(ax.get_xlim()[0], ax.get_ylim()[0]), max(ax.get_xlim()[1], ax.get_ylim()[1])
    ax.plot([low, high], [low, high], color=_INK, linewidth=1, zorder=1)
    ax.set(xlim=(low, high), ylim=(low, high), aspect="equal")


def _cross_hairs(ax: Axes, at: float) -> None:
    ax.axhline(at, color=_GREY, linewidth=0.9, linestyle=":")
    ax.axvline(at, color=_GREY, linewidth=0.9, linestyle=":")


def _draw_distances(ax: Axes, pairs: pd.DataFrame) -> list[Line2D]:
    """Draw answers by distance; `pairs` has distance and value, and may have first, fitted and additive."""
    series: list[tuple[str, Any, str, str]] = [
        ("value", "o", _DATA, "observed: mean (small: single pairs)"),
        ("fitted", "-", _THEORY, "theory"),
        ("additive", "--", _ADDITIVE, "additive baseline"),
    ]
    keys = []
    single = "first" in pairs and pairs["first"].notna().all()
    if single:
        pairs = pairs.groupby(["first", "second", "distance"], as_index=False)[
            [name for name, *_ in series if name in pairs]
        ].mean()
        n = int(pairs["second"].max()) + 1
        spread = 0.62 * ((pairs["first"] + pairs["second"]) / 2 - (n - 1) / 2) / max(n - 2, 1)
        pairs = pairs.assign(at=pairs["distance"] + spread)
    else:
        pairs = pairs.assign(at=pairs["distance"])
    for name, style, colour, label in series:
        if name not in pairs or pairs[name].isna().all():
            continue
        if name == "value":
            means = pairs.groupby("distance")["value"].mean()
            if single:
                ax.plot(pairs["at"], pairs["value"], ".", color=colour, alpha=0.5, markeredgewidth=0)
            ax.plot(means.index, means, "o", color=colour, markersize=8)
            keys.append(Line2D([], [], linestyle="", marker="o", color=colour, markersize=8, label=label))
            continue
        for _, rows in pairs.groupby("distance"):
            rows = rows.sort_values("at")
            ends: dict[str, Any] = {"marker": "_", "markersize": 14, "markeredgewidth": 1.8} if len(rows) == 1 else {}
            ax.plot(rows["at"], rows[name], style, color=colour, linewidth=1.5, **ends)
        keys.append(Line2D([], [], color=colour, linestyle=style, linewidth=1.5, label=label))
    ax.set_xticks(sorted(pairs["distance"].unique()))
    return keys


def _draw_curves(panels: Sequence[Axes], curves: pd.DataFrame) -> list[Line2D]:
    """Draw margin and accuracy by class against time, and return the legend."""
    margins, accuracies = panels
    keys = _draw_lines(margins, curves, "time", "margin")
    _draw_lines(accuracies, curves, "time", "accuracy")
    margins.axhline(0, color=_INK, linewidth=1, linestyle=":")
    margins.set_ylabel("mean margin (right: > 0)")
    accuracies.set(ylabel="right pairs", ylim=(-0.04, 1.04))
    accuracies.yaxis.set_major_formatter(lambda value, _: percent(value))
    return keys


def _draw_lines(ax: Axes, table: pd.DataFrame, x: str, y: str, *, marker: bool = False) -> list[Line2D]:
    """Draw a line for each class, and return the legend."""
    keys = []
    for cls, (colour, shape) in _CLASSES.items():
        rows = table[table["cls"] == cls].dropna(subset=y).sort_values(x)
        if len(rows):
            (line,) = ax.plot(
                rows[x], rows[y], color=colour, linestyle="--" if cls == "nearest" else "-",
                marker=shape if marker else "", label=_class(cls),
            )  # fmt: skip
            keys.append(line)
    return keys


def _draw_classes(ax: Axes, runs: pd.DataFrame, value: str) -> None:
    """Draw the value of each run by class, with the mean ± its standard error."""
    classes = [cls for cls in _CLASSES if (runs["cls"] == cls).any()]
    for k, cls in enumerate(classes):
        colour, marker = _CLASSES[cls]
        found = runs.loc[runs["cls"] == cls, value].dropna().to_numpy()
        shift = 0.26 * (np.arange(len(found)) - (len(found) - 1) / 2) / max(len(found), 1)
        ax.plot(k + shift, found, marker, color=colour, alpha=0.55, markeredgewidth=0)
        if len(found):
            mean = float(found.mean())
            error = float(found.std(ddof=1) / math.sqrt(len(found))) if len(found) > 1 else 0.0
            ax.errorbar([k], [mean], [error], color=_INK, linewidth=1.2)
            ax.hlines(mean, k - 0.3, k + 0.3, color=_INK, linewidth=2.2)
    slanted: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if len(classes) > 4 else {}
    ax.set_xticks(range(len(classes)), [_class(cls) for cls in classes], **slanted)
    ax.set_xlim(-0.6, len(classes) - 0.4)
    ax.grid(axis="x", visible=False)


def _draw_shares(ax: Axes, networks: pd.DataFrame) -> None:
    """Draw the share of wrong pairs of each network and design as a table with numbers."""
    rows = networks.assign(
        network=[f"{kind.upper()} {int(depth)}" if depth else str(kind) for kind, depth in
                 zip(networks["kind"], networks["depth"].fillna(0), strict=True)]
    )  # fmt: skip
    order = list(dict.fromkeys(rows["network"]))
    designs = sorted(rows["design"].unique(), key=lambda name: (int(name.rpartition("n")[2]), name))
    shares = rows.pivot_table(index="network", columns="design", values="wrong_cross").reindex(order, columns=designs)
    values = shares.to_numpy(dtype=np.float64)
    colours = _shade(-values.ravel()).reshape(*values.shape, 3)
    ax.pcolormesh(np.arange(len(designs) + 1) - 0.5, np.arange(len(order) + 1) - 0.5, colours)
    for i, j in np.ndindex(values.shape):
        ax.text(j, i, percent(float(values[i, j])), ha="center", va="center", fontsize=9)
    ax.set_xticks(range(len(designs)), [_design(name).replace(", ", "\n") for name in designs])
    ax.set_yticks(range(len(order)), order)
    ax.tick_params(length=0)
    ax.set_ylim(len(order) - 0.5, -0.5)
    ax.grid(False)


def _draw_shifts(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw the share of assignments that are right, without and with the exception."""
    base = rows[rows["design"] == "exc_mid_n9"]
    labels = {"within": "within", "nearest": "nearest cross"}
    marked = pd.concat([base, base[_nearest(base, ["model", "names", "anchors"])].assign(cls="nearest")])
    run = ["model", "names", "anchors"]
    control = rows.loc[rows["design"] == "ti_n9", [*run, "first", "second", "share_right"]]
    both = marked.merge(control, on=[*run, "first", "second"], suffixes=("", "_control"))
    for cls, label in labels.items():
        colour, marker = _CLASSES[cls]
        found = both[both["cls"] == cls].groupby(run)[["share_right_control", "share_right"]].mean()
        ax.plot([0, 1], found.to_numpy().T, marker=marker, color=colour, alpha=0.75)
        ax.plot([], [], marker=marker, color=colour, label=label)
    ax.set_xticks([0, 1], ["no exception", "5 beats 3"])
    ax.set(xlim=(-0.3, 1.3), title="orders of the names\nin which a pair is right")
    ax.yaxis.set_major_formatter(lambda value, _: percent(value))


# Texts and parts of tables


def _bare(table: pd.DataFrame) -> pd.DataFrame:
    """Return parameters and values of a ledger's table under their own names."""
    columns = [name for name in map(str, table) if name.startswith(("param.", "value."))]
    return table[columns].rename(columns=lambda name: name.partition(".")[2])


def _compared(observed: ArrayLike | pd.DataFrame, fit: TheoryFit, task: TransitiveTask) -> pd.DataFrame:
    """Return the task's pairs that were answered, with the answers, the theory's, and the additive baseline's."""
    answers = read_answers(observed, task, fit.link)
    pairs = task.pair_table().merge(answers[["first", "second", "value"]], on=["first", "second"])
    i, j = pairs["first"].to_numpy(), pairs["second"].to_numpy()
    scale = fit.baselines["scale"].to_dict()["additive"]
    margins = scale * predict_margins(task, 0.0).margins[i, j]
    additive = 1 / (1 + np.exp(-margins)) if fit.link == "logistic" else margins
    return pairs.assign(fitted=fit.predict(task)[i, j], additive=additive)


def _nearest(pairs: pd.DataFrame, groups: Sequence[str] | None = None) -> pd.Series[bool]:
    """Return which rows are the pair across that is next to the cycle: of each group, the least distant."""
    distance = (pairs["second"] - pairs["first"]).where(pairs["cls"] == "cross")
    least = distance.groupby([pairs[name] for name in groups]).transform("min") if groups else distance.min()
    return distance == least


def _sign(pairs: pd.DataFrame) -> Floats:
    """Return −1 for exceptions, of which the second is right, and 1 for all others."""
    return np.where(pairs["cls"] == "exception", -1.0, 1.0)


def _ordered(labels: Iterable[str]) -> list[str]:
    order = [_class(cls) for cls in _CLASSES]
    return sorted(labels, key=order.index)


def _runs(items: NDArray[np.intp]) -> list[tuple[int, int]]:
    """Return first and last of each run of consecutive items."""
    parts = np.split(items, np.flatnonzero(np.diff(items) > 1) + 1) if len(items) else []
    return [(int(part[0]), int(part[-1])) for part in parts]


def _check_grid(grid: ArrayLike, name: str) -> Floats:
    values = check_vector(grid, name, low=0)
    if len(values) < 2 or (np.diff(values) <= 0).any():
        raise ValueError(f"{name} must have at least 2 values that increase, got {values.tolist()[:5]}")
    return values


def _panels(
    title: str, count: int, *, across: int, height: float, foot: float = 0.0, **axes: Any
) -> tuple[Figure, Sequence[Axes]]:
    width = 9.0 if min(across, count) > 1 else 6.0
    return panel_grid(title, count, across=across, width=width, height=height, frame=0.7 + foot, **axes)


def _legend(made: Figure, keys: Sequence[Any], *, width: float, title: str | None = None) -> None:
    """Put a legend below the panels, in as many columns as fit."""
    if keys:
        longest = max(len(str(key.get_label())) for key in keys)
        columns = max(1, min(len(keys), int(width / (0.62 + 0.083 * longest))))
        if sum(0.62 + 0.083 * len(str(key.get_label())) for key in keys) <= width:
            columns = len(keys)
        made.legend(handles=list(keys), loc="outside lower center", ncols=columns, frameon=False, title=title)


def _name_items(ax: Axes, names: Sequence[str]) -> None:
    labels = [shorten(name, _LONGEST) for name in names]
    turned = max(map(len, labels)) > 3 or len(labels) > 30
    step = math.ceil(len(labels) / 45)
    ax.set_xticks(range(0, len(labels), step), labels[::step], parse_math=False, rotation=90 if turned else 0)


def _names(task: TransitiveTask) -> list[str]:
    return [str(item) for item in (range(task.n_items) if task.items is None else task.items)]


def _settings(prediction: Prediction) -> str:
    ridge = [f"λ = {prediction.ridge:g}"] if prediction.ridge else []
    time = [] if prediction.time is None else [f"time {prediction.time:g}"]
    return ", ".join(map(_unbroken, [f"α = {prediction.conjunctivity:g}", *ridge, *time]))


def _unbroken(text: str) -> str:
    """Return a text that a title keeps on one line."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _described(values: Mapping[str, Any]) -> str:
    """Return the settings of a panel in symbols, without those that change nothing."""
    symbols = {"conjunctivity": "α =", "ridge": "λ =", "exception_weight": "exception ×"}
    trivial = {"ridge": 0, "exception_weight": 1}
    return ", ".join(f"{symbols[k]} {v:.3g}" for k, v in values.items() if trivial.get(k) != v)


def _design(name: str) -> str:
    """Return what happens in a design."""
    n_items = int(name.rpartition("n")[2])
    middle = (n_items // 2 + 1, n_items // 2 - 1) if name.startswith("exc_mid") else None
    _, exception = DESIGNS.get(name, (n_items, middle))
    if exception is None:
        return f"{n_items} items, no exception"
    return f"{n_items} items, {exception[0]} beats {exception[1]}"


def _class(cls: str) -> str:
    return "nearest cross" if cls == "nearest" else cls


def _unit(fit: TheoryFit) -> str:
    return "share in which the better is chosen" if fit.link == "logistic" else "margin of the better"


def _correlation(x: pd.Series[float], y: pd.Series[float]) -> str:
    return _share(float(np.corrcoef(x, y)[0, 1]) if len(x) > 1 else math.nan, 4)


def _interval(values: pd.Series[float]) -> str:
    low, high = f"{values.min():.3f}", f"{values.max():.3f}"
    return low if low == high else f"{low}–{high}"


def _counted(shown: int, count: int) -> str:
    if count == 0:
        return "no pairs"
    return ("the one pair" if count == 1 else f"the {count} pairs") if shown == count else f"{shown} of {count} pairs"


def _number(value: float) -> str:
    """Return a margin with three digits at most, without a leading 0."""
    if math.isnan(value):
        return "–"
    text = f"{value:.2f}" if abs(value) < 9.995 else f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"
    return ("0" if value == 0 else text.replace("0.", ".", 1) if abs(value) < 0.995 else text).replace("-", "−")


def _share(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}".replace("-", "−")
