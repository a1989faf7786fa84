"""Pictures hold the numbers they should, name them, and nothing in them runs into anything else."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from paperworks.core.plotting import PALETTE, svg
from paperworks.transitive import plots
from paperworks.transitive.data import DESIGNS, REAL_TEAMS, load_jensen
from paperworks.transitive.fit import fit_theory
from paperworks.transitive.kernels import network_conjunctivity
from paperworks.transitive.ranker import TransitiveRanker
from paperworks.transitive.tasks import TransitiveTask
from paperworks.transitive.theory import phase_diagram, predict_margins

BASE = TransitiveTask(9, exception=(5, 3))
AWKWARD = [*REAL_TEAMS[:12], "A name that is far too long for a table", "$_{x", "Ünïcode & <b>"]
RED, INK = "#c1121f", "#1c2330"


def texts(ax):
    return [text.get_text() for text in ax.texts]


def line(ax, label):
    """Return the data of the line with this label."""
    (found,) = (each for each in ax.get_lines() if each.get_label() == label)
    return np.asarray(found.get_xdata(), float), np.asarray(found.get_ydata(), float)


def keys(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def assert_legible(figure):
    """Nothing written leaves the picture or runs into something else written."""
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    width, height = canvas.get_width_height()
    hidden = set()
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not low - 1e-9 <= tick.get_loc() <= high + 1e-9:
                hidden |= {tick.label1, tick.label2}
    written = [
        text
        for text in figure.findobj(Text)
        if text.get_visible() and text not in hidden and not (text.get_text().isspace() or text.get_text() == "")
    ]
    boxes = {text: text.get_window_extent().extents for text in written}
    edges = np.array(list(boxes.values()))
    outside = (edges[:, :2] < -1).any(axis=1) | (edges[:, 2] > width + 1) | (edges[:, 3] > height + 1)
    assert not [text.get_text() for text, out in zip(boxes, outside, strict=True) if out]
    level = [text for text in boxes if text.get_rotation() in (0, 90)]  # the box of a slanted text is not its own
    a, b = (np.array([boxes[text] for text in level])[places] for places in np.triu_indices(len(level), 1))
    shared = np.minimum(a[:, 2:], b[:, 2:]) - np.maximum(a[:, :2], b[:, :2])
    touching = [
        pair for pair, gap in zip(itertools.combinations(level, 2), shared.min(axis=1), strict=True) if gap > 1.5
    ]
    assert not [(one.get_text(), other.get_text()) for one, other in touching]


def table(rows, *params):
    """Return a ledger's table of rows, with these columns as parameters."""
    frame = pd.DataFrame(rows)
    frame = frame.rename(columns=lambda name: f"param.{name}" if name in params else f"value.{name}")
    return frame.assign(**{"param.seed": 0})


def margin_rows(design, alpha, ridge=0.0, **more):
    found = predict_margins(TransitiveTask(*DESIGNS[design]), alpha, ridge).table().drop(columns="correct")
    return found.assign(design=design, **more)


# A user's own task, fit or ranking


class TestMarginMap:
    def test_numbers_colours_and_outlines(self):
        figure = plots.margin_map(predict_margins(BASE, 0.2))
        (ax,) = figure.axes
        at = {(round(text.get_position()[1]), round(text.get_position()[0])): text.get_text() for text in ax.texts}
        assert len(at) == 72
        assert (at[2, 6], at[6, 2], at[2, 5], at[0, 8], at[5, 3]) == (".16", "−.16", "−.12", "1.88", "1.00")
        colours = ax.collections[0].get_array()
        red, blue = colours[2, 5], colours[2, 6]
        assert red[0] > red[2]
        assert blue[2] > blue[0]
        np.testing.assert_array_equal(colours[5, 2], red)
        np.testing.assert_array_equal(colours[5, 3], colours[3, 5])  # the exception is right
        assert colours[3, 5][2] > colours[3, 5][0]
        diagonal = [to_hex(colours[i, i]).upper() for i in range(9)]
        assert diagonal == ["#FFFFFF"] * 3 + [PALETTE[4]] * 3 + ["#FFFFFF"] * 3
        assert sum(isinstance(patch, Rectangle) for patch in ax.patches) == 2 * len(BASE.pairs)
        within, cross = ax.collections[1:3]
        assert len(within.get_segments()) == 4 * 4  # of two pairs, in both triangles
        assert len(cross.get_segments()) == 2 * 12  # of 3 × 3 pairs
        assert figure.get_suptitle().replace("\n", " ").replace("\N{NO-BREAK SPACE}", " ") == (
            "Margin of the row over the column, α = 0.2: within 100 %, cross 100 %"
        )
        assert_legible(figure)

    def test_a_wrong_pair_across_and_settings_are_in_the_title(self):
        title = plots.margin_map(predict_margins(BASE, 0.4, time=100.0)).get_suptitle()
        assert "cross\N{NO-BREAK SPACE}88.9\N{NO-BREAK SPACE}%" in title
        assert "time\N{NO-BREAK SPACE}100" in title

    def test_ties_are_white_and_what_no_order_decides_is_grey(self):
        (ax,) = plots.margin_map(predict_margins(TransitiveTask(6, exception=(4, 1)), 1.0)).axes
        colours = ax.collections[0].get_array()
        np.testing.assert_array_equal(colours[0, 5], [1, 1, 1])
        assert to_hex(colours[1, 3]) == "#e3e6eb"
        assert texts(ax).count("0") == 2 * (15 - 6)

    def test_awkward_names_of_fifteen_items_with_two_exceptions(self):
        task = TransitiveTask(15, exception=[(5, 2), (11, 8)], items=AWKWARD)
        figure = plots.margin_map(predict_margins(task, 0.3, 0.1))
        assert_legible(figure)
        labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        assert labels[-3:] == ["A name that is fa…", "$_{x", "Ünïcode & <b>"]

    def test_nothing_but_a_circle(self):
        title = plots.margin_map(predict_margins(TransitiveTask(3, exception=(2, 0)), 0.3)).get_suptitle()
        assert title.endswith("column, α\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}0.3")

    @pytest.mark.parametrize("n_items", [2, 5, 32])
    def test_few_and_many_items(self, n_items):
        assert_legible(plots.margin_map(predict_margins(TransitiveTask(n_items), 0.2)))

    def test_no_numbers_where_they_cannot_be_read(self):
        figure = plots.margin_map(predict_margins(TransitiveTask(70), 0.2))
        (ax,) = figure.axes
        assert not ax.texts
        assert len(ax.get_xticks()) < 40
        assert_legible(figure)


class TestRankProfile:
    def test_rule_leak_and_reversed_pair(self):
        prediction = predict_margins(BASE, 0.4)
        figure = plots.rank_profile(prediction)
        (ax,) = figure.axes
        rule, ranks, ring = (each.get_ydata() for each in ax.get_lines()[1:])
        np.testing.assert_allclose(ranks, prediction.ranks)
        np.testing.assert_allclose(rule, predict_margins(TransitiveTask(9), 0.4).ranks)
        bars = [patch for patch in ax.patches if patch.get_width() == 0.5]
        np.testing.assert_allclose([bar.get_y() + bar.get_height() for bar in bars], ranks, atol=1e-12)
        assert ax.get_lines()[3].get_xdata().tolist() == [2, 6]
        assert ring[0] < ring[1]
        assert keys(figure) == ["rank", "rule alone", "leak of the exceptions", "cycle", "reversed pair"]
        assert_legible(figure)

    def test_nothing_is_reversed_below_the_critical_conjunctivity(self):
        figure = plots.rank_profile(predict_margins(BASE, 0.3))
        assert len(figure.axes[0].get_lines()[3].get_xdata()) == 0
        assert "reversed pair" not in keys(figure)

    def test_without_an_exception_and_with_awkward_names(self):
        assert keys(plots.rank_profile(predict_margins(TransitiveTask(5), 0.2))) == ["rank"]
        assert_legible(plots.rank_profile(predict_margins(TransitiveTask(15, (8, 5), items=AWKWARD), 0.3)))


class TestPhaseDiagram:
    ALPHAS, RIDGES = np.linspace(0.05, 0.55, 11), np.geomspace(1e-3, 1, 7)

    def test_colours_shares_and_learners(self):
        phases = phase_diagram(BASE, self.ALPHAS, self.RIDGES)
        figure = plots.phase_diagram(phases, self.ALPHAS, self.RIDGES, {"mine": (0.2, 0.1), "$_{": (0.3, 7.0)})
        (ax,) = figure.axes
        colours = ax.collections[0].get_array()
        assert len(np.unique(colours[phases["balanced"]], axis=0)) == 1
        share = 100 * phases["balanced"].mean()
        assert keys(figure)[0] == f"balanced ({share:.3g} % of the map)"
        assert len(keys(figure)) == len(np.unique(colours.reshape(-1, 3), axis=0)) + 2
        assert [axis.tolist() for axis in line(ax, "mine")] == [[0.1], [0.2]]
        assert keys(figure)[-1] == "$_{ (outside)"
        assert ax.get_xscale() == "log"
        assert_legible(figure)

    def test_a_grid_with_no_ridge_is_linear(self):
        ridges = [0.0, 0.5, 1.0]
        figure = plots.phase_diagram(phase_diagram(TransitiveTask(5), [0.1, 0.5], ridges), [0.1, 0.5], ridges)
        assert figure.axes[0].get_xscale() == "linear"
        assert figure.axes[0].get_ylim() == (0, 0.7)

    @pytest.mark.untyped
    def test_refuses_other_grids(self):
        phases = phase_diagram(BASE, [0.1, 0.2], [0.1, 1.0])
        with pytest.raises(ValueError, match="ridge_grid must have at least 2 values that increase"):
            plots.phase_diagram(phases, [0.1, 0.2], [1.0, 0.1])
        with pytest.raises(ValueError, match=r"of shape \(3, 2\), got \(2, 2\)"):
            plots.phase_diagram(phases, [0.1, 0.2, 0.3], [0.1, 1.0])


def answers(task, noise=0.3):
    upper = np.triu(np.random.default_rng(0).normal(scale=noise, size=(task.n_items,) * 2), 1)
    return 5 * predict_margins(task, 0.2, 0.1).margins + upper - upper.T


class TestFits:
    def test_theory_fit_by_class(self):
        observed = answers(BASE)
        observed[0, 1] = observed[1, 0] = np.nan
        fit = fit_theory(observed, BASE)
        figure = plots.theory_fit(observed, fit, BASE)
        (ax,) = figure.axes
        drawn = {each.get_color(): each for each in ax.get_lines() if each.get_marker() != "None"}
        assert len(ax.get_lines()[0].get_xdata()) == 5  # the rule's six pairs but one
        nearest = next(each for each in ax.get_lines() if each.get_marker() == "D")
        assert nearest.get_xydata().tolist() == [[fit.predict(BASE)[2, 6], pytest.approx(observed[2, 6])]]
        (exception,) = drawn[PALETTE[1]].get_xydata()
        assert exception.tolist() == pytest.approx([fit.predict(BASE)[3, 5], observed[3, 5]])
        assert keys(figure) == ["rule", "cycle", "exception", "within", "boundary", "cross", "nearest cross"]
        assert f"R² = {fit.r2:.3f}" in figure.get_suptitle()
        assert_legible(figure)

    def test_published_choices_by_distance(self):
        task, choices = TransitiveTask(7), load_jensen("monkeys")
        fit = fit_theory(choices, task, link="logistic")
        figure = plots.distance_curve(choices, fit, task)
        (ax,) = figure.axes
        single, means = (each.get_xydata() for each in ax.get_lines()[:2])
        assert means[:, 1].round(3).tolist() == [0.648, 0.739, 0.805, 0.856, 0.903, 0.931]
        assert len(single) == 21
        theory = [each for each in ax.get_lines() if each.get_color() == INK]
        assert len(theory) == 6
        np.testing.assert_allclose(theory[0].get_ydata(), np.diag(fit.predict(task), 1))
        additive = [each for each in ax.get_lines() if each.get_color() == PALETTE[6]]
        assert np.ptp(additive[1].get_ydata()) < 1e-12
        assert ax.get_ylabel() == "share of right choices"
        assert_legible(figure)
        assert_legible(plots.theory_fit(choices, fit, task))

    def test_exceptions_are_no_part_of_the_distances(self):
        task = TransitiveTask(15, exception=(8, 6))
        observed = answers(task)
        figure = plots.distance_curve(observed, fit_theory(observed, task), task)
        assert len(figure.axes[0].get_lines()[0].get_xdata()) == 15 * 14 / 2 - 1
        assert_legible(figure)


class TestExceptionBumps:
    def test_arrows_and_margins(self):
        games = [
            pair for pair in itertools.combinations(["Ann", "Bob", "Cy", "Dan", "Eve"], 2) if pair != ("Bob", "Dan")
        ]
        ranker = TransitiveRanker(conjunctivity=0.3).fit([*games, *games, ("Dan", "Bob")])
        figure = plots.exception_bumps(ranker)
        (ax,) = figure.axes
        arrow = next(text for text in ax.texts if text.get_text() == "")
        assert (arrow.xy, arrow.xyann) == ((1, 1), (1, 3))  # up, to the loser
        assert "".join(texts(ax)) == f"{ranker.predict([('Dan', 'Bob')])[0]:.2f}".replace("0.", ".")
        labels = [label.get_text() for label in ax.get_yticklabels()]
        assert labels[1].startswith("2. Bob  ")
        assert keys(figure) == ["remembered: the winner is still predicted"]
        assert_legible(figure)

    def test_of_many_items_only_those_in_question(self):
        rng = np.random.default_rng(0)
        pairs = np.sort(rng.permuted(np.tile(np.arange(60), (600, 1)), axis=1)[:, :2], axis=1)
        upset = rng.random(600) < 0.15
        pairs[upset] = pairs[upset, ::-1]
        ranker = TransitiveRanker(0.3, 0.5).fit(np.array([f"{AWKWARD[k % 15]} {k}" for k in range(60)])[pairs])
        figure = plots.exception_bumps(ranker, most=7)
        (ax,) = figure.axes
        assert len(ax.get_yticks()) <= 14
        assert sum(text.get_text() == "" for text in ax.texts) == 7
        assert figure.get_suptitle().startswith("The ranking, and 7 of ")
        assert keys(figure) == ["not remembered"]
        assert_legible(figure)

    def test_no_exceptions_and_a_circle(self):
        assert_legible(plots.exception_bumps(TransitiveRanker().fit([("a", "b"), ("b", "c")])))
        circle = plots.exception_bumps(TransitiveRanker().fit([("a", "b"), ("b", "c"), ("c", "a")]))
        assert "3 pairs" in circle.get_suptitle()
        assert_legible(circle)

    @pytest.mark.untyped
    def test_at_least_one(self):
        with pytest.raises(ValueError, match="most must be at least 1, got 0"):
            plots.exception_bumps(TransitiveRanker().fit([("a", "b")]), most=0)


class TestTrainingCurves:
    def test_the_nearest_pair_is_wrong_at_first(self):
        figure = plots.training_curves(BASE, 0.147155, times=[0.5, 1.0, 400.0])
        margins, accuracies = figure.axes
        time, nearest = line(margins, "nearest cross")
        assert time.tolist() == [0.5, 1, 400]
        assert nearest[1:].round(3).tolist() == [-0.063, 0.314]
        assert line(accuracies, "nearest cross")[1].tolist() == [0, 0, 1]
        assert line(margins, "exception")[1][-1] == pytest.approx(1)  # in the direction that was shown
        assert_legible(figure)

    def test_an_order_alone(self):
        assert keys(plots.training_curves(TransitiveTask(15), 0.3, 0.1, times=[1, 2])) == ["rule", "transitive"]

    @pytest.mark.untyped
    def test_times_increase(self):
        with pytest.raises(ValueError, match="times must have at least 2 values that increase"):
            plots.training_curves(BASE, 0.1, times=[1.0, 1.0])


# The ledger's tables


def test_margin_maps_of_the_base_case():
    rows = pd.concat(
        [margin_rows(d, a, conjunctivity=a) for d in ("ti_n9", "exc_mid_n9") for a in (0.0, 0.4)], ignore_index=True
    )
    figure = plots.margin_maps(table(rows, "design", "conjunctivity"))
    additive, wrong = figure.axes
    assert (
        additive.get_title("left")
        == "α = 0: within\N{NO-BREAK SPACE}100\N{NO-BREAK SPACE}%, cross\N{NO-BREAK SPACE}100\N{NO-BREAK SPACE}%"
    )
    assert "88.9" in wrong.get_title("left")
    assert texts(additive).count("0") == 6  # in the cycle nothing is learned
    assert_legible(figure)


@pytest.mark.parametrize("widths", [(1000,), (1000, 10_000)])
def test_wide_networks(widths):
    rows = pd.concat(
        [margin_rows("exc_mid_n9", 0.147, width=w).rename(columns={"margin": "theory"}) for w in widths],
        ignore_index=True,
    )
    rows = rows.assign(network=rows["theory"] + 100 / rows["width"] * (rows["second"] == 8))
    figure = plots.wide_networks(table(rows, "width"))
    assert len(figure.axes) == len(widths)
    assert figure.axes[0].get_title().endswith("off by ≤ 0.1")
    assert len(line(figure.axes[0], "trained")[0]) == 9
    assert_legible(figure)


@pytest.fixture(scope="module")
def lm():
    """Fits of two models on two designs, and pairs that they fit but for one."""
    runs = [
        (d, "fake", m, a, r) for d in ("ti_n9", "exc_mid_n9") for m, a, r in (("a-1b", 0.2, 0.1), ("b-2b", 0.1, 5.0))
    ]
    fits = pd.DataFrame(runs, columns=["design", "task", "model", "alpha", "ridge"])
    fits = fits.assign(scale=4.0, r2=[0.5, 0.9, 0.8, 0.96], identified=True)
    pairs = pd.concat(
        [margin_rows(d, a, r, task=t, model=m).assign(value=lambda f: 4 * f["margin"]) for d, t, m, a, r in runs],
        ignore_index=True,
    )
    pairs["win_rate"] = 1 / (1 + np.exp(-pairs["value"]))
    names = ("design", "task", "model")
    return table(fits, *names), table(pairs.drop(columns="margin"), *names)


def test_phases_with_networks_and_models(lm):
    alphas, ridges = np.linspace(0.01, 0.6, 8), np.geomspace(1e-3, 3, 9)
    found = phase_diagram(BASE, alphas, ridges)
    rows = [
        {"conjunctivity": a, "ridge": r, **{name: found[name][i, j] for name in found}}
        for i, a in enumerate(alphas)
        for j, r in enumerate(ridges)
    ]
    figure = plots.phases(table(rows), lm[0])
    (ax,) = figure.axes
    assert keys(figure)[-2:] == ["a-1b, finetuned", "b-2b, finetuned (1 outside)"]
    assert [axis.tolist() for axis in line(ax, "a-1b, finetuned")] == [[0.1], [0.2]]
    numbered = {round(text.get_position()[1], 6): text.get_text() for text in ax.texts}
    assert numbered[round(network_conjunctivity(2, "nngp"), 6)] == "2"
    assert len(numbered) == 6
    assert_legible(figure)


def test_critical_alphas_and_networks():
    values = (np.nan, np.nan, 1 / 3, 0.171573, 0.104278, 0.069985)
    critical = [{"items_per_side": k, "span": g, "critical": a} for g in (2, 4) for k, a in enumerate(values, 1)]
    networks = [
        {"kind": kind, "depth": depth, "design": design, "wrong_cross": share}
        for kind, depth, shares in (("additive", 0, (0.0, 0.0)), ("ntk", 2, (1 / 9, np.nan)))
        for design, share in zip(("exc_mid_n9", "exc_mid_n21"), shares, strict=True)
    ]
    figure = plots.critical_alphas(
        table(critical, "items_per_side", "span"), table(networks, "kind", "depth", "design"), pd.DataFrame()
    )
    left, right = figure.axes
    items, alphas = line(left, "exception of span 2")
    assert items.tolist() == [9, 11, 13, 15]  # with fewer none is critical
    assert alphas[0] == pytest.approx(1 / 3)
    assert texts(left) == ["NNGP 1", "NNGP 2", "NNGP 3", "NTK 1", "NTK 2"]
    assert texts(right) == ["0 %", "0 %", "11.1 %", "–"]
    assert [label.get_text() for label in right.get_xticklabels()] == ["9 items\n5 beats 3", "21 items\n11 beats 9"]
    assert_legible(figure)


def test_leak_by_setting():
    rows = []
    for alpha, ridge, weight in ((0.2, 0.0, 1.0), (0.4, 0.0, 1.0), (0.2, 0.1, 4.0)):
        found = predict_margins(TransitiveTask(9, (5, 3), exception_weight=weight), alpha, ridge)
        rule = found.rule_ranks()
        rows += [
            {"conjunctivity": alpha, "ridge": ridge, "exception_weight": weight, "item": i, "rule": rule[i],
             "exception": found.ranks[i] - rule[i], "rank": found.ranks[i]}
            for i in range(9)
        ]  # fmt: skip
    figure = plots.leak(table(rows, "conjunctivity", "ridge", "exception_weight"), pd.DataFrame())
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["α = 0.2", "α = 0.2, λ = 0.1, exception × 4", "α = 0.4"]
    assert [ax.get_lines()[3].get_xdata().tolist() for ax in figure.axes] == [[], [], [2, 6]]
    assert_legible(figure)


def test_early_stopping_and_its_end():
    rows = [
        {"conjunctivity": 0.15, "time": time, "cls": cls, "margin": sign * size, "accuracy": float(sign * size > 0)}
        for time, size in ((0.1, -0.1), (10.0, 0.5), (None, 1.0))
        for cls, sign in (("cross", 1), ("nearest", 1), ("exception", -1))
    ]
    figure = plots.early_stopping(table(rows, "conjunctivity"))
    margins, accuracies = figure.axes
    assert line(margins, "exception")[1].tolist() == [-0.1, 0.5]
    assert line(accuracies, "nearest cross")[1].tolist() == [0, 1]
    ends = [each.get_xydata().tolist() for each in margins.get_lines() if each.get_linestyle() == "None"]
    assert [end for end in ends if end] == [[[25, 1]]] * 3
    assert [label.get_text() for label in margins.get_xticklabels()] == ["0.1", "1", "10", "end"]
    assert_legible(figure)


def test_lm_accuracy_scores_exceptions_the_other_way(lm):
    figure = plots.lm_accuracy(lm[1])
    control, exception = figure.axes
    assert [label.get_text() for label in control.get_xticklabels()] == ["rule", "transitive"]
    labels = [label.get_text() for label in exception.get_xticklabels()]
    assert labels == ["rule", "cycle", "exception", "within", "boundary", "cross", "nearest cross"]
    dots = {each.get_color(): each.get_ydata() for each in exception.get_lines() if each.get_marker() == "X"}
    assert (dots[PALETTE[1]] > 0.5).all()
    nearest = next(each for each in exception.get_lines() if each.get_marker() == "D").get_ydata()
    assert nearest == pytest.approx(
        [1 / (1 + np.exp(-4 * predict_margins(BASE, a, r).margins[2, 6])) for a, r in ((0.2, 0.1), (0.1, 5.0))]
    )
    assert_legible(figure)


def test_theory_scatter_predicts_every_pair(lm):
    figure = plots.theory_scatter(*lm)
    assert [ax.get_title() for ax in figure.axes] == [
        "9 items, no exception: median R² of 2 runs 0.700",
        "9 items, 5 beats 3: median R² of 2 runs 0.880",
    ]
    points = np.concatenate([each.get_xydata() for each in figure.axes[1].get_lines() if each.get_marker() != "None"])
    assert len(points) == 2 * 36
    np.testing.assert_allclose(points[:, 0], points[:, 1], atol=1e-12)
    assert_legible(figure)


def test_transfer_is_a_row_a_run():
    rows = [
        {"design": d, "task": "real", "model": m, "r": 0.95, "additive_r": 0.7}
        for d in ("exc_far_n11", "exc_mid_n9")
        for m in ("b", "a")
    ]
    figure = plots.transfer(table(rows, "task", "model"))
    (ax,) = figure.axes
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[::3] == ["9 items, 5 beats 3 · real · a", "11 items, 7 beats 3 · real · b"]
    assert line(ax, "additive baseline")[0].tolist() == [0.7] * 4
    assert_legible(figure)


def test_sweep_of_a_model_and_of_the_theory():
    rows = pd.concat(
        [
            margin_rows("exc_mid_n9", 0.25, r, source=s, strength=r).rename(columns={"margin": "value"})
            for s, grid in (("model", (1e-4, 10.0)), ("theory", (0.0, 0.5)))
            for r in grid
        ],
        ignore_index=True,
    )
    rows["win_rate"] = np.where(rows["source"] == "model", (rows["value"] > 0).astype(float), np.nan)
    figure = plots.sweep(table(rows, "source", "strength"))
    model, theory = figure.axes
    assert line(theory, "nearest cross")[1].round(3).tolist() == [0.077, -0.043]
    assert line(theory, "exception")[1][0] == pytest.approx(1)
    assert line(model, "nearest cross")[1].tolist() == [1, 0]
    assert [label.get_text() for label in theory.get_xticklabels()] == ["0", "0.5"]
    assert_legible(figure)


def test_own_model_without_and_with_an_exception():
    rows = pd.concat(
        [
            margin_rows(d, 0.09, model="m", names=n, anchors=False).assign(
                theory=lambda f: f["margin"], mean=lambda f: 0.9 * f["margin"], alpha=0.08 + 0.01 * n,
                share_right=0.9 - 0.2 * (d != "ti_n9"),
            )
            for d in ("ti_n9", "exc_mid_n9")
            for n in (0, 1)
        ],
        ignore_index=True,
    )  # fmt: skip
    figure = plots.own_model(table(rows.drop(columns="margin"), "model", "names", "anchors", "design"))
    control, exception, shares = figure.axes
    assert control.get_title() == "9 items, no exception\nα 0.080–0.090, r 1.0000"
    assert sum(len(each.get_xdata()) for each in exception.get_lines() if each.get_marker() != "None") == 36
    drawn = [each.get_ydata().tolist() for each in shares.get_lines() if len(each.get_xdata())]
    assert drawn == [[0.9, pytest.approx(0.7)]] * 4
    assert_legible(figure)


def test_finetuned_is_paired_with_its_control():
    rows = pd.concat(
        [
            margin_rows("exc_mid_n9" if e else "ti_n9", 0.2, method="top", names=n, reversed=r, exception=e).assign(
                after=lambda f: f["margin"] * (1 + f["names"] * f["reversed"])
            )
            for n in (0, 1, 2)
            for r in (False, True)
            for e in (False, True)
        ],
        ignore_index=True,
    )
    figure = plots.finetuned(table(rows.drop(columns="margin"), "method", "names", "reversed", "exception"))
    (ax,) = figure.axes
    change = (predict_margins(BASE, 0.2).margins - predict_margins(TransitiveTask(9), 0.2).margins)[2, 6]
    nearest = next(each for each in ax.get_lines() if each.get_marker() == "D")
    np.testing.assert_allclose(nearest.get_ydata(), change * np.array([1, 1.5, 2]))  # an order and its reverse
    assert change < -0.1
    assert_legible(figure)


def test_distance_curves_of_two_species():
    monkeys = predict_margins(TransitiveTask(7), 0.2).table().assign(species="monkeys")
    monkeys = monkeys.assign(value=0.7, fitted=0.7 + monkeys["margin"] / 10, additive=0.8)
    humans = pd.DataFrame({"species": "humans", "distance": [1, 2, 3], "value": [0.8, 0.85, 0.9]})
    rows = pd.concat([monkeys[["species", "first", "second", "distance", "value", "fitted", "additive"]], humans])
    figure = plots.distance_curves(table(rows, "species"))
    left, right = figure.axes
    assert [len(ax.get_lines()) for ax in (left, right)] == [2 + 6 + 6, 1]
    assert right.get_lines()[0].get_ydata().tolist() == [0.8, 0.85, 0.9]
    assert keys(figure) == ["observed: mean (small: single pairs)", "theory", "additive baseline"]
    assert_legible(figure)


@pytest.mark.parametrize("peer", [True, False])
def test_dominance_is_paired_with_bradley_and_terry(peer):
    gains = {"0": -0.01, "0.1": 0.02, "0.9": 0.0, "cv": 0.01, "colley": -0.01} | ({"bt": 0.0} if peer else {})
    rows = [
        {"kind": kind, "method": method, "group": group, "accuracy": 0.8 + 0.05 * group + gain}
        for kind in ("upsets", "control")
        for method, gain in gains.items()
        for group in range(3)
    ]
    figure = plots.dominance(table(rows, "kind", "method"))
    ax = figure.axes[0]
    given = ax.get_lines()[0]
    np.testing.assert_allclose(given.get_ydata(), np.array([-1.0, 2.0, 0.0]) + 85 * (not peer))
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "0.1", "0.9", "chosen", "Colley"]
    assert ("Bradley–Terry: 85.0 %" in ax.get_title()) == peer
    assert ("minus" in ax.get_ylabel()) == peer
    assert_legible(figure)


def test_colours_mean_one_thing():
    assert to_rgb(plots._WRONG) == to_rgb(RED)
    colours = [colour for cls, (colour, _) in plots._CLASSES.items() if cls != "nearest"]
    assert len(set(colours)) == len(colours)


def test_pictures_are_svg():
    assert svg(plots.rank_profile(predict_margins(BASE, 0.2))).startswith("<svg role=")
