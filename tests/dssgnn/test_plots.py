from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PathCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from matplotlib.text import Annotation, Text
from numpy.typing import NDArray

from paperworks.core.plotting import PALETTE, svg
from paperworks.dssgnn import plots
from paperworks.dssgnn.chaos import CHAOS_FAMILIES, ChaosLogits, OrthogonalBasis
from paperworks.dssgnn.claims import CLAIMS, COMPARED, SPLITS
from paperworks.dssgnn.filters import GraphPolynomialFilter, prior_coefficients
from paperworks.dssgnn.metrics import ece

GREY = "#9aa2ae"
NO_EDGES = np.zeros((2, 0), dtype=np.int64)


def legend(made: Figure, which: int = 0) -> list[str]:
    return [text.get_text() for text in made.legends[which].get_texts()]


def line(ax: Axes, label: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the data of the line whose label starts so."""
    (found,) = (each for each in ax.get_lines() if str(each.get_label()).startswith(label))
    return np.asarray(found.get_xdata(), float), np.asarray(found.get_ydata(), float)


def mesh(ax: Axes) -> NDArray[np.float64]:
    (found,) = (each for each in ax.collections if isinstance(each, QuadMesh))
    values = found.get_array()
    assert values is not None
    return np.asarray(values, float)


def dots(made: Figure) -> PathCollection:
    (found,) = (each for each in made.axes[0].collections if isinstance(each, PathCollection))
    return found


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def random_logits(order: int, nodes: int, classes: int) -> ChaosLogits:
    return ChaosLogits(torch.from_numpy(np.random.default_rng(0).standard_normal((order + 1, nodes, classes)) * 2))


class TestReliabilityDiagram:
    def test_dots_bars_and_counts(self) -> None:
        p = np.array([[0.9, 0.1], [0.92, 0.08], [0.45, 0.55], [0.5, 0.5], [1.0, 0.0]])
        y = np.array([0, 1, 1, 0, 0])
        made = plots.reliability_diagram({"a $_x": (p, y)}, n_bins=10)
        upper, lower = made.axes
        x, accuracy = (np.asarray(each, float) for each in upper.get_lines()[1].get_data())
        assert x.tolist() == pytest.approx([0.525, (0.9 + 0.92 + 1) / 3])
        assert accuracy.tolist() == pytest.approx([1, 2 / 3])
        assert [bar.get_height() for bar in lower.patches] == [0, 0, 0, 0, 0, 2, 0, 0, 0, 3]
        (bars,) = upper.collections
        assert isinstance(bars, LineCollection)
        ends = np.array(bars.get_segments())[:, :, 1]
        # Wilson's intervals of 2 of 2 and of 2 of 3.
        np.testing.assert_allclose(ends, [[0.34238, 1], [0.20765, 0.93851]], atol=5e-5)
        assert upper.get_title("left") == f"a $_x\nECE {100 * ece(p, y, 10):.3g} %, Brier 0.524"

    def test_methods_share_the_scale_of_counts(self) -> None:
        few, many = np.full((3, 2), 0.5), np.tile([0.8, 0.2], (50, 1))
        labels = np.zeros(50, dtype=int)
        pairs = {f"m{k}": (few, labels[:3]) for k in range(4)} | {
            "m4": (torch.from_numpy(many), torch.from_numpy(labels))
        }
        made = plots.reliability_diagram(pairs)
        assert len(made.axes) == 10
        counts = [ax for ax in made.axes if ax.patches]
        assert len({ax.get_ylim() for ax in counts}) == 1
        assert [sum(bar.get_height() for bar in ax.patches) for ax in counts] == [3, 3, 3, 3, 50]

    @settings(max_examples=12)
    @given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 20), st.integers(0, 2**32 - 1))
    def test_ece_is_the_weighted_gap_of_the_dots(self, nodes: int, classes: int, n_bins: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        p, y = rng.dirichlet(np.full(classes, 0.5), nodes), rng.integers(classes, size=nodes)
        upper, lower = plots.reliability_diagram({"m": (p, y)}, n_bins).axes
        count = np.array([bar.get_height() for bar in lower.patches])
        x, accuracy = (np.asarray(each, float) for each in upper.get_lines()[1].get_data())
        drawn = np.abs(x - accuracy) @ count[count > 0] / nodes
        if p.max() < 1:
            assert drawn == pytest.approx(ece(p, y, n_bins), abs=1e-12)
        assert count.sum() == nodes

    def test_bad_input(self) -> None:
        with pytest.raises(ValueError, match="must not be empty"):
            plots.reliability_diagram({})
        with pytest.raises(ValueError, match="sum to 1"):
            plots.reliability_diagram({"logits": ([[3.0, 1.0]], [0])})
        with pytest.raises(ValueError, match="n_bins must be at least 1"):
            plots.reliability_diagram({"m": ([[0.5, 0.5]], [0])}, 0)


class TestSpectralResponses:
    def test_responses_prior_and_eigenvalues(self) -> None:
        made = plots.spectral_responses(
            [[1.0, 0.0], [0.5, -0.5]], torch.tensor([0.5, 0.5]), eigenvalues=[0.0, 1.01, 1.02, 2.0]
        )
        ax, behind = made.axes
        lam, mean = line(ax, "mean (order 0)")
        assert (lam[0], lam[-1]) == (0, 2)
        assert (mean == 1).all()
        np.testing.assert_allclose(line(ax, "order 1")[1], lam / 2, atol=1e-12)
        np.testing.assert_allclose(line(ax, "prior")[1], 1 - lam / 2, atol=1e-12)
        heights = np.array([bar.get_height() for bar in behind.patches])
        assert (len(heights), heights[0], heights[20], heights[-1], heights.sum()) == (40, 1, 2, 1, 4)
        assert ax.get_zorder() > behind.get_zorder()

    def test_a_module(self) -> None:
        filters, prior = GraphPolynomialFilter(2, 10), prior_coefficients("ppr", 10)
        made = plots.spectral_responses(filters, prior)
        (ax,) = made.axes
        for label in ("mean", "order 1"):
            np.testing.assert_allclose(line(ax, label)[1], line(ax, "prior")[1], atol=1e-6)
        known = [1, 0.18209678, 0.1, 0.06928254, 0.38295852]
        assert line(ax, "prior")[1][::100].tolist() == pytest.approx(known, abs=1e-8)
        assert legend(made) == ["prior", "mean (order 0)", "order 1"]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (([1.0, 2.0],), r"filters must have shape \(orders, coefficients\), got \(2,\)"),
            (([[np.nan]],), "filters must be finite, got nan"),
            (([[1.0]], []), "prior must have at least one"),
            (([[1.0]], None, [-0.5, 1.0]), r"eigenvalues must be in \[0, 2\], got -0.5"),
            (([[1.0]], None, []), "got none"),
        ],
    )
    def test_bad_input(self, arguments: tuple[Any, ...], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            plots.spectral_responses(*arguments)


class TestFanChart:
    def test_probabilities_arrows_and_density(self) -> None:
        logits = ChaosLogits(torch.tensor([[[0.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [2.0, 0.0]]]))
        made = plots.fan_chart(logits, 1, ["fraud", "_$honest"])
        upper, lower = made.axes
        xi, p = line(upper, "fraud")
        np.testing.assert_allclose(p, 1 / (1 + np.exp(-1 - 2 * xi)), atol=1e-12)
        assert (xi[0], xi[-1]) == pytest.approx((-3.0902, 3.0902), abs=1e-4)
        assert legend(made) == ["fraud  64.8 %", "\u200b_\\$honest  35.2 %"]
        arrows = [each.get_ydata() for each in upper.get_lines() if each.get_marker() == "<"]
        assert np.ravel(arrows).tolist() == pytest.approx([0.647726, 0.352274], abs=1e-5)
        top = lower.collections[0].get_paths()[0].vertices[:, 1].max()
        assert top == pytest.approx(0.39894, abs=1e-4)

    def test_many_classes_are_summed(self) -> None:
        logits = random_logits(2, 2, 30)
        made = plots.fan_chart(logits, 0)
        mean = np.sort(logits.predictive()[0].numpy())[::-1]
        assert len(legend(made)) == 6
        assert legend(made)[-1] == f"25 other classes  {100 * mean[5:].sum():.3g} %"
        curves = [each.get_ydata() for each in made.axes[0].get_lines() if len(each.get_ydata()) > 1]
        np.testing.assert_allclose(np.sum(curves, axis=0), 1)

    @pytest.mark.parametrize("family", CHAOS_FAMILIES)
    def test_density_is_that_of_the_basis(self, family: str) -> None:
        basis = OrthogonalBasis(family, *{"laguerre": (0.5,), "jacobi": (0.5, 1.0)}.get(family, ()))
        made = plots.fan_chart(ChaosLogits(torch.ones(2, 1, 2), basis), 0)
        xi = made.axes[0].get_lines()[0].get_xdata()
        vertices = made.axes[1].collections[0].get_paths()[0].vertices
        density = dict(vertices[vertices[:, 1] > 0].tolist())
        x = np.array(sorted(density))
        mass = np.trapezoid([density[each] for each in x.tolist()], x)
        assert (x[0], x[-1]) == (xi[0], xi[-1])
        assert mass == pytest.approx(0.998, abs=6e-3)
        mean = np.trapezoid([density[each] * each for each in x.tolist()], x)
        nodes, weights = basis.gauss(4)
        assert mean == pytest.approx(float(weights @ nodes), abs=0.02)

    def test_bad_input(self) -> None:
        logits = random_logits(1, 3, 2)
        with pytest.raises(ValueError, match="node must be below 3"):
            plots.fan_chart(logits, 3)
        with pytest.raises(ValueError, match="classes must have length 2, got 1"):
            plots.fan_chart(logits, 0, ["one"])


class TestUncertaintyMap:
    def test_colour_size_and_rim(self) -> None:
        p = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.7, 0.3]])
        place = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
        made = plots.uncertainty_map(
            [[0, 2, 1], [1, 1, 0]], p, [0.0, 0.2, 0.4, 0.1], [-3.0, -1.0, -2.0, -1.0], ["honest", "fraud"], pos=place
        )
        found = dots(made)
        # The largest are drawn first, so that they hide none.
        order = [2, 1, 3, 0]
        np.testing.assert_array_equal(found.get_offsets(), place[order])
        assert found.get_sizes() / found.get_sizes()[3] == pytest.approx([8, 4.5, 2.75, 1])
        assert [to_hex(each).upper() for each in found.get_facecolors()] == [PALETTE[k] for k in (1, 1, 0, 0)]
        dark = 1 - found.get_edgecolors()[:, 0]
        assert dark[1] == dark[2] > dark[0] > dark[3]
        (edges,) = (each for each in made.axes[0].collections if isinstance(each, LineCollection))
        np.testing.assert_array_equal(edges.get_segments(), place[[[0, 1], [1, 2]]])
        assert legend(made) == ["honest (2)", "fraud (2)"]
        assert legend(made, 1) == ["0.4", "0.2", "0"]

    def test_of_many_classes_the_most_frequent_are_coloured(self) -> None:
        labels = np.repeat(np.arange(30), [1] * 20 + [3] * 6 + [1] * 4)
        n = len(labels)
        made = plots.uncertainty_map(NO_EDGES, np.eye(30)[labels], np.ones(n), np.zeros(n))
        assert legend(made) == [f"class {c} (3)" for c in range(20, 26)] + ["24 other classes (24)"]
        colours = [to_hex(each) for each in dots(made).get_facecolors()]
        assert colours.count(GREY) == 24
        assert len(set(colours)) == 7
        seven = plots.uncertainty_map(NO_EDGES, np.eye(7), np.ones(7), np.zeros(7))
        assert {to_hex(each).upper() for each in dots(seven).get_facecolors()} == set(PALETTE)

    def test_layout_is_seeded_and_no_two_nodes_coincide(self) -> None:
        edges = np.array([[0, 1, 2, 5, 0], [1, 2, 0, 6, 0]])
        p, zero = np.full((9, 2), 0.5), np.zeros(9)
        first, again, other = (
            np.asarray(dots(plots.uncertainty_map(edges, p, zero, zero, random_state=seed)).get_offsets())
            for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)
        apart = np.linalg.norm(first[:, None] - first, axis=2) + 9 * np.eye(9)
        assert apart.min() > 0.3

    def test_one_node(self) -> None:
        made = plots.uncertainty_map(NO_EDGES, [[1.0, 0.0]], [0.0], [5.0])
        assert len(dots(made).get_offsets()) == 1
        assert (legend(made), legend(made, 1)) == (["class 0 (1)"], ["0"])

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"edge_index": [[0], [3]]}, "edge_index refers to node 3 but proba has 2 rows"),
            ({"edge_index": [[0, 1]]}, r"edge_index must have shape \(2, edges\)"),
            ({"proba": [[2.0, 1.0]] * 2}, "sum to 1"),
            ({"mi": [0.1]}, "mi must have length 2"),
            ({"mi": [0.1, -0.1]}, "mi must be at least -1e-06"),
            ({"energy": [0.1, np.nan]}, "energy must be finite"),
            ({"pos": [[0.0, 1.0]]}, r"pos must have shape \(2, 2\), got \(1, 2\)"),
            ({"classes": ["a", "a"]}, "classes must be distinct"),
        ],
    )
    def test_bad_input(self, change: dict[str, Any], message: str) -> None:
        good = {"edge_index": [[0], [1]], "proba": [[0.5, 0.5]] * 2, "mi": [0.1, 0.2], "energy": [0.0, 1.0]}
        with pytest.raises(ValueError, match=message):
            plots.uncertainty_map(**{**good, **change})

    def test_too_many_nodes_need_places(self) -> None:
        n = 1501
        arguments = (NO_EDGES, np.ones((n, 1)), np.zeros(n), np.zeros(n))
        with pytest.raises(ValueError, match="pos must be given for more than 1500 nodes, got 1501"):
            plots.uncertainty_map(*arguments)
        assert len(dots(plots.uncertainty_map(*arguments, pos=np.zeros((n, 2)))).get_offsets()) == n


class TestOODHistogram:
    def test_shares_threshold_and_title(self) -> None:
        inside, outside = np.arange(100.0), np.arange(80.0, 130.0)
        made = plots.ood_histogram(inside, torch.from_numpy(outside))
        (ax,) = made.axes
        drawn = [each for each in ax.patches if isinstance(each, StepPatch)]
        for patch, values in zip(drawn, (inside, inside, outside, outside), strict=True):
            share, edges, _ = patch.get_data()
            assert share.sum() == pytest.approx(1)
            assert share[0] == pytest.approx(np.mean(values < edges[1]))
        assert legend(made) == [
            "in distribution (100)",
            "out of distribution (50)",
            "accepts 95 % of those in, and 30 % of those out",
        ]
        assert ax.get_lines()[0].get_xdata()[0] == 94
        assert made.get_suptitle() == "Out-of-distribution score: AUROC 96 %"

    def test_given_auroc_is_shown(self) -> None:
        made = plots.ood_histogram([1.0, 2.0], [3.0], auroc=0.625, score="entropy")
        assert made.get_suptitle().endswith("AUROC 62.5 %")
        assert made.axes[0].get_xlabel().startswith("entropy (larger")

    def test_outliers_do_not_squeeze_the_rest(self) -> None:
        inside, outside = np.linspace(0, 1, 500), np.append(np.linspace(1, 2, 500), 1e6)
        ax = plots.ood_histogram(inside, outside).axes[0]
        assert ax.get_xlim()[1] < 4
        assert "1 beyond the axis" in ax.get_xlabel()
        share, _, _ = ax.patches[-1].get_data()
        assert share.sum() == pytest.approx(1)

    def test_equal_scores(self) -> None:
        made = plots.ood_histogram([1e9, 1e9], [1e9])
        assert made.get_suptitle().endswith("AUROC 50 %")
        assert max(made.axes[0].patches[0].get_data()[0]) == 1

    def test_bad_input(self) -> None:
        with pytest.raises(ValueError, match="scores_out must not be empty"):
            plots.ood_histogram([1.0], [])
        with pytest.raises(ValueError, match="scores_in must be finite"):
            plots.ood_histogram([np.inf], [1.0])
        with pytest.raises(ValueError, match="auroc"):
            plots.ood_histogram([1.0], [1.0], auroc=97.0)


class TestTruncationMap:
    def test_logarithms(self) -> None:
        made = plots.truncation_map([[1.0, 0.1, 0.1], [1.0, 1e-3, 0.0]])
        ax = made.axes[0]
        np.testing.assert_allclose(mesh(ax), [[0, -1, -1], [0, -3, -3]], atol=1e-12)
        assert texts(ax) == ["0.0", "−1.0", "−1.0", "0.0", "−3.0", "−∞"]
        assert (ax.get_xlim(), ax.get_ylim()) == ((-0.5, 2.5), (-0.5, 1.5))

    def test_a_table_names_its_axes_and_a_large_one_has_no_numbers(self) -> None:
        ax = plots.truncation_map(pd.DataFrame([[0.1, 0.2]], index=[8], columns=[1, 5])).axes[0]
        assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "5"]
        assert [label.get_text() for label in ax.get_yticklabels()] == ["8"]
        large = plots.truncation_map(np.full((40, 30), 0.1)).axes[0]
        assert texts(large) == []
        assert [label.get_text() for label in large.get_yticklabels()][:3] == ["0", "3", "6"]

    def test_bad_input(self) -> None:
        for errors, message in [
            ([0.1], "shape"),
            ([[-0.1]], "non-negative, got -0.1"),
            ([[np.nan]], "finite, got nan"),
        ]:
            with pytest.raises(ValueError, match=message):
                plots.truncation_map(errors)


class TestRejectionCurves:
    def test_known_curves(self) -> None:
        right = np.array([True, False, True, False])
        made = plots.rejection_curves(right, {"good": [0.1, 0.8, 0.2, 0.9], "bad": torch.tensor([4.0, 1.0, 3.0, 2.0])})
        (ax,) = made.axes
        share, best = line(ax, "best possible")
        assert share.tolist() == [0.25, 0.5, 0.75, 1]
        assert best.tolist() == pytest.approx([1, 1, 2 / 3, 0.5])
        assert line(ax, "good")[1].tolist() == pytest.approx(best.tolist())
        assert line(ax, "bad")[1].tolist() == pytest.approx([0, 0, 1 / 3, 0.5])
        assert legend(made) == ["best possible  79.2 %", "good  79.2 %", "bad  20.8 %", "any at random  50 %"]

    @settings(max_examples=10)
    @given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=1, max_size=12))
    def test_ties_are_averaged(self, nodes: list[tuple[bool, int]]) -> None:
        right, score = np.array([each for each, _ in nodes]), np.array([float(each) for _, each in nodes])
        curve = line(plots.rejection_curves(right, {"s": score}).axes[0], "s  ")[1]
        rng = np.random.default_rng(0)
        kept = np.arange(1, len(right) + 1)
        shuffled = [rng.permutation(len(right)) for _ in range(400)]
        drawn = [np.cumsum(right[order][np.argsort(score[order], kind="stable")]) / kept for order in shuffled]
        np.testing.assert_allclose(curve, np.mean(drawn, axis=0), atol=0.15)
        assert curve[-1] == pytest.approx(right.mean())

    def test_extremes(self) -> None:
        one = plots.rejection_curves(np.array([True]), {"e": [1.0]}).axes[0]
        assert [each.get_marker() for each in one.get_lines()][1] == "o"
        low, high = plots.rejection_curves(np.zeros(5, dtype=bool), {"e": np.arange(5)}).axes[0].get_ylim()
        assert low < 0 < 1 < high

    def test_bad_input(self) -> None:
        with pytest.raises(TypeError, match="correct must be boolean, got dtype int64"):
            plots.rejection_curves(np.array([0, 1]), {"e": [1.0, 2.0]})
        with pytest.raises(ValueError, match="at least one node"):
            plots.rejection_curves(np.zeros(0, dtype=bool), {"e": []})
        with pytest.raises(ValueError, match=r"scores\['e'\] must have length 2, got 1"):
            plots.rejection_curves(np.array([True, False]), {"e": [1.0]})
        with pytest.raises(ValueError, match="scores must not be empty"):
            plots.rejection_curves(np.array([True]), {})


class TestJointMatrices:
    def test_three_matrices_on_common_scales(self) -> None:
        joint = np.array([[0.4, 0.1], [0.1, 0.4]])
        made = plots.joint_matrices(torch.from_numpy(joint), classes=["fraud", "$honest"])
        first, second, third = made.axes[:3]
        np.testing.assert_allclose(mesh(first), joint)
        np.testing.assert_allclose(mesh(second), 0.25)
        np.testing.assert_allclose(mesh(third), joint - 0.25)
        assert texts(first) == ["40.0", "10.0", "10.0", "40.0"]
        assert texts(third) == ["+15.0", "−15.0", "−15.0", "+15.0"]
        assert [ax.get_title("left") for ax in made.axes[:2]] == ["joint: same label 80 %", "product: same label 50 %"]
        limits = [each.get_clim() for ax in made.axes[:3] for each in ax.collections]
        assert np.ravel(limits).tolist() == pytest.approx([0, 0.4, 0, 0.4, -0.15, 0.15])
        assert [label.get_text() for label in first.get_yticklabels()] == ["fraud", "$honest"]
        assert first.get_ylim() == (1.5, -0.5)

    def test_independent_labels_have_a_pale_difference(self) -> None:
        made = plots.joint_matrices(np.outer([0.2, 0.8], [0.3, 0.7]))
        assert texts(made.axes[2]) == ["0"] * 4
        assert made.axes[2].collections[0].get_clim() == (-1e-4, 1e-4)

    def test_given_product_and_many_classes(self) -> None:
        made = plots.joint_matrices(np.full((30, 30), 1 / 900), np.eye(30) / 30)
        assert np.trace(mesh(made.axes[1])) == pytest.approx(1)
        assert texts(made.axes[0]) == []
        assert [label.get_text() for label in made.axes[0].get_xticklabels()][:3] == ["0", "3", "6"]

    def test_bad_input(self) -> None:
        for arguments, message in [
            (([[0.5, 0.5]],), r"joint must have shape \(classes, classes\), got \(1, 2\)"),
            (([[0.5, 0.2], [0.2, 0.2]],), "sum to 1, got a sum of 1.1"),
            (([[1.2, -0.2], [0.0, 0.0]],), r"from -0\.2"),
            (([[1.0]], [[0.5, 0.0], [0.0, 0.5]]), "same shape"),
            (([[1.0]], None, ["a", "b"]), "classes must have length 1"),
        ]:
            with pytest.raises(ValueError, match=message):
                plots.joint_matrices(*arguments)


# The ledger's tables

Table = pd.DataFrame


def calibration(sets: dict[str, int]) -> Table:
    """Scores that differ by 1 from method to method, and by 2 from run to run."""
    methods = ["DSS", *COMPARED, "MLP", "DSS + TS", "GCN + TS", "APPNP + TS", "GCN + CaGCN", "GCN + GATS"]
    methods += ["DSS, order 0", "DSS, no anchor", "APPNP with gain", "DSS, softmax of the mean"]
    methods += ["DSS, product of marginals", "GCN ensemble, joint"]
    edges = {"DSS": 0.4, "DSS, product of marginals": 0.41, "GCN ensemble, joint": 0.5}
    sd = {"DSS": 0.9, "DSS, no anchor": 0.02}
    return Table(
        {
            "param.set": name, "param.split": split, "value.method": method, "value.brier": 20.0 + k + 2 * split,
            "value.nll": 30.0 + k + 2 * split, "value.sd": sd.get(method, np.nan),
            "value.edge_nll": edges.get(method, np.nan) + 0.1 * split,
        }
        for name, splits in sets.items() for split in range(splits) for k, method in enumerate(methods)
    )  # fmt: skip


def ood(sets: Sequence[str] = ("cora",), repeats: int = 2) -> Table:
    scores = {
        "GCN energy": 80,
        "Hybrid energy": 84,
        "GPN evidence": 40,
        "DSS energy": 90,
        "DSS MI": 80,
        "DSS variance": 50,
    }
    scores |= {f"{name}, propagated": 95 for name in ("GCN energy", "Hybrid energy", "DSS energy")}
    scores |= {f"DSS, relative s0 {name}": 60 for name in ("energy", "MI", "variance")}
    shifts = {"structure": 0, "feature": 3, "label": -3}
    return Table(
        {
            "param.set": name, "param.repeat": repeat, "value.shift": shift, "value.method": method,
            "value.auroc": float(score + more + 2 * repeat - 1),
        }
        for name in sets for repeat in range(repeats) for shift, more in shifts.items() for method, score in scores.items()
    )  # fmt: skip


def concept(sets: Sequence[str] = ("cbas",)) -> Table:
    accuracy = {
        "encoder": (60, 40), "hybrid": (80, 70), "hybrid, order 0": (81, 69), "appnp": (59, 41), "mlp": (70, 20),
        "dss": (75, 60), "deep encoder": (65, 50), "deep hybrid": (85, 75),
    }  # fmt: skip
    return Table(
        {
            "param.set": name, "param.graph": graph, "param.repeat": 0, "value.method": arm,
            "value.id_accuracy": inside + 2.0 * graph, "value.ood_accuracy": outside - 2.0 * graph,
        }
        for name in sets for graph in range(3) for arm, (inside, outside) in accuracy.items()
        if graph == 0 or "encoder" in arm or arm.endswith("hybrid")
    )  # fmt: skip


def cross() -> Table:
    aurocs = {"DSS": 70.0, "DSS, propagated": 75.0, "GCN": 60.0, "GCN, propagated": 79.0}
    return Table(
        {
            "param.repeat": repeat, "value.target": target, "value.method": method, "value.auroc": auroc + 2 * repeat,
            "value.accuracy": 90.0 + repeat, "value.roc_auc": 80.0, "value.brier": 12.0,
        }
        for target in ("ES", "RU") for repeat in range(2) for method, auroc in aurocs.items()
    )  # fmt: skip


def truncated() -> tuple[Table, Table]:
    errors = Table(
        {"value.signal": signal, "value.degree": K, "value.order": P, "value.error": scale * 10.0 ** -min(K, P)}
        for signal, scale in (("uniform", 1.0), ("ring", 2.0)) for K in range(4) for P in range(5)
    )  # fmt: skip
    return errors, Table({"value.order": [3, 1, 5], "value.error": [0.07, 0.17, 0.04]})


def truth() -> Table:
    divergences = {"GCN": 0.2, "DSS": 0.1, "MLP": 0.15}
    return Table(
        {"param.repeat": repeat, "value.method": method, "value.divergence": value + 0.02 * repeat}
        for repeat in range(3) for method, value in divergences.items()
    )  # fmt: skip


def means(ax: Axes) -> dict[str, float]:
    """Return where the diamond of each row is, in the order of the rows."""
    rows = [label.get_text() for label in ax.get_yticklabels()]
    drawn = [each for each in ax.get_lines() if each.get_marker() == "D"]
    found = {int(np.ravel(each.get_ydata())[0]): float(np.ravel(each.get_xdata())[0]) for each in drawn}
    return {name: found[k] for k, name in enumerate(rows)}


def bars(ax: Axes) -> dict[str, NDArray[np.float64]]:
    """Return the means and standard errors by label, shape (sets, 2)."""
    found = {}
    for container in ax.containers:
        assert isinstance(container, ErrorbarContainer)
        (segments,) = container.lines[2]
        values = np.asarray(container.lines[0].get_xdata(), float)
        ends = [np.ptp(each[:, 0]) if len(each) else np.nan for each in segments.get_segments()]
        found[str(container.get_label())] = np.column_stack([values, np.array(ends) / 2])
    return found


class TestLedger:
    def test_every_picture_of_a_claim_is_drawn_from_its_tables(self) -> None:
        counts = {claim.plot: len(claim.experiments) for claim in CLAIMS if claim.plot}
        assert set(counts) <= set(plots.__all__)
        assert {name: len(inspect.signature(getattr(plots, name)).parameters) for name in counts} == counts

    def test_brier_is_sorted_and_marks_unseen_sets(self) -> None:
        table = calibration({"texas": 3, "cornell": 1})
        table.loc[table["value.method"] == "MLP", "value.brier"] = 1.0
        table = table[(table["value.method"] != "GAT") | (table["param.set"] == "texas")]
        made = plots.brier(table)
        first, second = made.axes
        assert (first.get_title(), second.get_title()) == ("texas (3 runs)", "cornell † (1 run)")
        expected = {"MLP": 1.0, "DSS": 22.0, **{name: 23.0 + k for k, name in enumerate(COMPARED)}}
        assert means(first) == expected
        assert list(means(first)) == list(expected)
        assert list(means(second)) == [name for name in expected if name != "GAT"]
        dots = [each for each in first.get_lines() if each.get_marker() == "."][1]
        assert dots.get_xdata().tolist() == [20, 22, 24]
        assert legend(made) == ["DSS", "compared", "MLP, not compared"]
        assert made.legends[0].get_title().get_text().startswith("†")
        assert plots.brier(table[table["param.set"] == "texas"]).legends[0].get_title().get_text() == ""

    def test_posthoc(self) -> None:
        (ax,) = plots.posthoc(calibration({"cora": 2})).axes
        assert list(means(ax)) == ["DSS", "DSS + TS", "GCN + TS", "APPNP + TS", "GCN + CaGCN", "GCN + GATS"]
        faces = [each.get_markerfacecolor() for each in ax.get_lines() if each.get_marker() == "D"]
        assert faces == [PALETTE[0], "white", *[PALETTE[6]] * 4]

    def test_ablations(self) -> None:
        table = calibration({"cora": 2, "texas": 3})
        table = table[(table["value.method"] != "APPNP with gain") | (table["param.set"] == "cora")]
        made = plots.ablations(table)
        left, middle, right = made.axes
        assert legend(made) == ["DSS", "DSS, order 0", "DSS, no anchor", "APPNP with gain", "APPNP"]
        # The standard error of 20, 22 and 24 is 2 / √3.
        np.testing.assert_allclose(bars(left)["DSS"], [[21, 1], [22, 1.154701]], rtol=1e-6)
        assert bars(left)["APPNP with gain"][0, 0] == 21 + 16
        assert {name: values[:, 0].tolist() for name, values in bars(middle).items()} == {
            "DSS, order 0": [14, 14], "DSS, no anchor": [15, 15],
        }  # fmt: skip
        np.testing.assert_allclose(bars(right)["DSS, no anchor"], [[0.02, 0], [0.02, 0]], atol=1e-12)
        assert [label.get_text() for label in left.get_yticklabels()] == ["cora", "texas"]

    def test_a_set_without_our_runs_does_not_shift_the_others(self) -> None:
        table = calibration({"cora": 2, "texas": 2})
        table = table[(table["param.set"] == "texas") | ~table["value.method"].str.startswith("DSS")]
        right = plots.ablations(table).axes[2]
        sets = bars(right)["DSS"][:, 0]
        assert np.isnan(sets[0])
        assert sets[1] == pytest.approx(0.9)

    def test_deviations_over_many_decades_are_labelled_apart(self) -> None:
        table = calibration({"cora": 2, "texas": 2})
        table.loc[(table["value.method"] == "DSS, no anchor") & (table["param.set"] == "cora"), "value.sd"] = 3e-5
        made = plots.ablations(table)
        made.canvas.draw()
        low, high = made.axes[2].get_xlim()
        ticks = made.axes[2].get_xticklabels()
        boxes = [tick.get_window_extent() for tick in ticks if low <= tick.get_position()[0] <= high]
        assert len(boxes) > 2
        assert all(first.x1 < second.x0 for first, second in itertools.pairwise(boxes))

    def test_quadrature(self) -> None:
        made = plots.quadrature(calibration({"cora": 2, "texas": 1, "chameleon_filtered": 1}))
        left, right = made.axes
        assert legend(made) == ["cora", "texas", "chameleon, filtered"]
        x, y = line(left, "cora")
        assert (x.tolist(), y.tolist()) == ([47, 49], [30, 32])
        points = [each.get_data() for each in right.get_lines()[:3]]
        assert [np.asarray(y, float).tolist() for _, y in points] == [[-17, -17], [-17], [-17]]
        assert np.asarray(points[0][0], float).tolist() == [0.9, 0.9]

    def test_joint_edges(self) -> None:
        made = plots.joint_edges(calibration({"cora": 2, "texas": 1}))
        left, right = made.axes
        assert legend(made) == ["DSS, joint", "DSS, product of marginals", "GCN ensemble, joint"]
        np.testing.assert_allclose(bars(left)["DSS, joint"], [[0.45, 0.05], [0.4, 0]], atol=1e-12)
        np.testing.assert_allclose(bars(right)["DSS"], [[-0.01, 0], [-0.01, 0]], atol=1e-12)

    def test_detection(self) -> None:
        made = plots.detection(ood(("cora", "citeseer")))
        assert [ax.get_title() for ax in made.axes[::3]] == ["cora, structure", "citeseer, structure"]
        first, second = made.axes[:2]
        rows = [label.get_text() for label in first.get_yticklabels()]
        assert rows[:2] == ["DSS energy", "Hybrid energy"]
        assert rows[-1] == "GPN evidence"
        assert len(rows) == 9
        assert {label.get_text() for label in second.get_yticklabels()} == {""}
        drawn = {marker: [each for each in second.get_lines() if each.get_marker() == marker] for marker in "*Do"}
        assert [(each.get_xdata()[0], each.get_ydata()[0]) for each in drawn["*"]] == [(93, 0)]
        assert [each.get_xdata()[0] for each in drawn["o"]] == [98] * 3
        assert len(drawn["D"]) == 8

    def test_readouts(self) -> None:
        made = plots.readouts(ood())
        (ax,) = made.axes
        assert legend(made) == ["anchor 1, mean", "relative anchor, mean", "structure", "feature", "label"]
        assert line(ax, "anchor 1")[1].tolist() == [90, 80, 50]
        shifts = {str(each.get_marker()): each.get_ydata().tolist() for each in ax.get_lines()[:3]}
        assert shifts == {"o": [90, 80, 50], "s": [93, 83, 53], "v": [87, 77, 47]}
        assert len(plots.readouts(ood(("cora", "citeseer"))).axes) == 2

    def test_cross_graph(self) -> None:
        made = plots.cross_graph(cross())
        assert [ax.get_title() for ax in made.axes] == ["against ES", "against RU", "on the graph itself"]
        assert means(made.axes[0]) == {"DSS": 71, "DSS, propagated": 76, "GCN": 61, "GCN, propagated": 80}
        assert made.axes[0].get_lines()[-1].get_xdata()[0] == 78
        home = [each.get_xdata()[0] for each in made.axes[2].get_lines() if each.get_marker() == "D"]
        assert home == [90.5, 80, 12] * 2

    def test_concept_shift(self) -> None:
        made = plots.concept_shift(concept(("cbas", "webkb")))
        assert [ax.get_title() for ax in made.axes] == ["CBAS", "WebKB"]
        ax = made.axes[0]
        shallow, deep = (each for each in ax.collections if isinstance(each, LineCollection))
        assert np.array(shallow.get_segments()).tolist() == [[[60 + k, 40 - k], [80 + k, 70 - k]] for k in (0, 2, 4)]
        assert len(deep.get_segments()) == 3
        arrows = [(text.xyann, text.xy) for text in ax.texts if isinstance(text, Annotation)]
        assert np.array(arrows).tolist() == [[[62, 38], [82, 68]], [[67, 48], [87, 73]]]
        assert np.ravel(line(ax, "MLP (1)")).tolist() == [70, 20]
        assert legend(made)[:3] == ["GCN (3)", "Hybrid (3)", "Hybrid, order 0 (1)"]
        few = concept().query("`value.method` in ['encoder', 'hybrid']")
        assert legend(plots.concept_shift(few)) == ["GCN (3)", "Hybrid (3)"]

    def test_reached(self) -> None:
        table = Table({"value.graph": ["path 4", "star 4"], "value.residual": [0.0, 0.9], "value.rank": [4, 3]})
        (ax,) = plots.reached(table).axes
        assert means(ax) == {"path 4: rank 4": 1e-17, "star 4: rank 3": 0.9}
        colours = [each.get_color() for each in ax.get_lines() if each.get_marker() == "D"]
        assert colours == [PALETTE[0], PALETTE[1]]
        assert ax.get_xscale() == "log"

    def test_truncation(self) -> None:
        left, right, _ = plots.truncation(*truncated()).axes
        assert mesh(left)[2].tolist() == pytest.approx([0, -1, -2, -2, -2])
        assert left.get_xlabel() == "highest order P in ξ"
        n, error = line(right, "K = P = n, ring")
        assert (n.tolist(), error.tolist()) == ([0, 1, 2, 3], pytest.approx([2, 0.2, 0.02, 0.002]))
        assert line(right, "tanh")[1].tolist() == [0.17, 0.07, 0.04]
        n, guide = line(right, "slope")
        assert np.diff(np.log(guide)) / np.diff(n) == pytest.approx([-0.8])
        assert guide[0] == pytest.approx(0.01)

    def test_known_truth(self) -> None:
        (ax,) = plots.known_truth(truth()).axes
        assert list(means(ax)) == ["DSS", "MLP", "GCN"]
        assert list(means(ax).values()) == pytest.approx([0.12, 0.17, 0.22])
        assert ax.get_xlim()[0] == 0


def check_inside(made: Figure) -> None:
    canvas = FigureCanvasAgg(made)
    canvas.draw()
    width, height = canvas.get_width_height()
    for artist in [*made.legends, *made.axes, *made.texts]:
        box = artist.get_tightbbox() if not isinstance(artist, Axes) else artist.get_tightbbox(canvas.get_renderer())
        assert box is not None
        assert box.x0 > -2
        assert box.y0 > -2
        assert box.x1 < width + 2
        assert box.y1 < height + 2


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.reliability_diagram({"a name far too long for its panel": ([[0.5, 0.5]], [0])}),
        lambda: plots.spectral_responses(np.ones((9, 3)), [1.0], [0.5]),
        lambda: plots.fan_chart(random_logits(1, 1, 9), 0, [f"$ {k} " + "W" * 60 for k in range(9)]),
        lambda: plots.uncertainty_map(
            NO_EDGES, np.eye(8), np.ones(8), np.ones(8), [f"{k} " + "W" * 60 for k in range(8)]
        ),
        lambda: plots.ood_histogram([0.0, 1.0], [0.5]),
        lambda: plots.truncation_map([[1.0]]),
        lambda: plots.rejection_curves(np.array([True, False]), {"_$ " + "W" * 60: [0.0, 1.0]}),
    ],
)
def test_nothing_leaves_the_picture(draw: Callable[[], Figure]) -> None:
    made = draw()
    check_inside(made)
    if any("$" in text.get_text() for text in made.findobj(Text)):
        assert svg(made).startswith("<svg role=")


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.brier(calibration(dict.fromkeys([*SPLITS][5:], 1))),
        lambda: plots.quadrature(calibration(SPLITS)),
        lambda: plots.readouts(ood()),
        lambda: plots.concept_shift(concept()),
    ],
)
def test_legends_of_the_ledger_fit(draw: Callable[[], Figure]) -> None:
    check_inside(draw())
