from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score

from paperworks.dssgnn.metrics import brier, ece, edgewise_ece, nll, ood_metrics, threshold_at

PREDICTIONS = given(st.integers(1, 40), st.integers(2, 5), st.integers(0, 2**32 - 1))


def predictions(nodes: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(classes, 0.5), nodes), rng.integers(classes, size=nodes)


class TestProbabilities:
    @settings(max_examples=50)
    @PREDICTIONS
    def test_equal_to_scikit_learn(self, nodes: int, classes: int, seed: int) -> None:
        p, y = predictions(nodes, classes, seed)
        labels = range(classes)
        assert brier(p, y) == pytest.approx(brier_score_loss(y, p, labels=labels, scale_by_half=False))
        assert nll(p, y) == pytest.approx(log_loss(y, p, labels=labels))
        assert 0 <= brier(p, y) <= 2

    def test_multiclass_default_of_scikit_learn(self) -> None:
        p, y = predictions(30, 4, 0)
        assert brier(p, y) == pytest.approx(brier_score_loss(y, p, labels=range(4)))

    @settings(max_examples=30)
    @PREDICTIONS
    def test_ece_of_the_definition(self, nodes: int, classes: int, seed: int) -> None:
        p, y = predictions(nodes, classes, seed)
        confidence, right = p.max(1), p.argmax(1) == y
        expected = 0.0
        for b in range(15):
            inside = (b / 15 <= confidence) & (confidence < (b + 1) / 15)
            if inside.any():
                expected += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
        assert ece(p, y) == pytest.approx(expected)

    def test_ece_equal_to_torchmetrics(self) -> None:
        calibration = pytest.importorskip("torchmetrics.functional.classification")
        for dtype, n_bins in itertools.product([torch.float32, torch.float64], [1, 10, 15]):
            p, y = map(torch.from_numpy, predictions(200, 4, n_bins))
            p = p.to(dtype)
            p[:20] = torch.nn.functional.one_hot(y[:20].flip(0), 4).to(dtype)
            expected = calibration.multiclass_calibration_error(p, y, num_classes=4, n_bins=n_bins, norm="l1")
            assert ece(p, y, n_bins) == pytest.approx(float(expected), abs=1e-6)

    def test_known_answers(self) -> None:
        certain = [[1.0, 0.0], [1.0, 0.0]]
        assert brier(certain, [0, 0]) == nll(certain, [0, 0]) == ece(certain, [0, 0]) == 0
        assert brier(certain, [1, 1]) == 2
        assert ece(certain, [1, 1]) == 1
        assert ece(certain, [0, 1]) == 0.5
        assert brier([[1 / 4] * 4], [2]) == pytest.approx(3 / 4)
        assert nll([[1 / 4] * 4], [2]) == pytest.approx(math.log(4))

    def test_certainty_has_a_bin_of_its_own(self) -> None:
        """Together, 0.95 that is wrong and 1 that is right would nearly cancel."""
        assert ece([[0.95, 0.05], [1.0, 0.0]], [1, 0]) == pytest.approx(0.475)
        assert ece([[0.95, 0.05], [0.99, 0.01]], [1, 0]) == pytest.approx(0.47)

    def test_edges_of_bins_belong_to_the_upper_bin(self) -> None:
        assert ece([[0.5, 0.5], [0.625, 0.375]], [1, 0], n_bins=2) == pytest.approx(abs(0.5 - 0.5625))
        assert ece([[0.5, 0.25, 0.25], [0.4375, 0.28125, 0.28125]], [1, 0], n_bins=2) == pytest.approx(
            (0.5 + 0.5625) / 2
        )

    def test_impossible_labels_cost_the_machine_epsilon(self) -> None:
        for dtype in (torch.float32, torch.float64):
            p = torch.tensor([[1.0, 0.0]], dtype=dtype)
            assert nll(p, torch.tensor([1])) == pytest.approx(-math.log(torch.finfo(dtype).eps))

    def test_tensors_with_gradients_and_integers_are_taken(self) -> None:
        p = torch.tensor([[0.25, 0.75]], requires_grad=True)
        assert brier(p, torch.tensor([1], dtype=torch.int32)) == pytest.approx(0.125)
        assert brier([[0, 1]], [1]) == 0
        assert brier(p.half(), [1]) == pytest.approx(0.125, abs=1e-3)

    @settings(max_examples=25)
    @PREDICTIONS
    def test_order_of_nodes_does_not_matter(self, nodes: int, classes: int, seed: int) -> None:
        p, y = predictions(nodes, classes, seed)
        for metric in (brier, nll, ece):
            assert metric(p[::-1], y[::-1]) == pytest.approx(metric(p, y), abs=1e-12)


class TestEdges:
    def test_known_answers(self) -> None:
        edges = [[0, 1, 2], [1, 2, 3]]
        assert edgewise_ece([1.0, 1.0, 0.0], edges, [0, 0, 0, 1]) == 0
        assert edgewise_ece([0.0, 0.0, 1.0], edges, [0, 0, 0, 1]) == 1
        # Bins: 0.9 twice with one hit, 0.2 without one.
        assert edgewise_ece([0.9, 0.9, 0.2], edges, [0, 0, 1, 2]) == pytest.approx((2 * 0.4 + 0.2) / 3)

    @settings(max_examples=25)
    @given(st.integers(2, 10), st.integers(1, 40), st.integers(0, 2**32 - 1))
    def test_is_ece_of_a_binary_event(self, nodes: int, edges: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        edge_index, y = rng.integers(nodes, size=(2, edges)), rng.integers(3, size=nodes)
        agreement = rng.uniform(0.5, 1, edges)
        same = (y[edge_index[0]] == y[edge_index[1]]).astype(int)
        expected = ece(np.stack([1 - agreement, agreement], 1), same)
        assert edgewise_ece(agreement, edge_index, y) == pytest.approx(expected)
        both = np.concatenate([edge_index, edge_index[::-1]], axis=1)
        assert edgewise_ece(np.tile(agreement, 2), both, y) == pytest.approx(expected)

    def test_rounding_above_1_is_taken(self) -> None:
        agreement = torch.tensor([1.0000001])
        assert edgewise_ece(agreement, torch.tensor([[0], [1]]), torch.tensor([2, 2])) == pytest.approx(0)


class TestOutOfDistribution:
    @settings(max_examples=40)
    @given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32 - 1))
    def test_definitions_with_ties(self, n: int, m: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        inside, outside = rng.integers(0, 12, n) / 4, rng.integers(2, 14, m) / 4
        auroc, aupr, fpr95 = ood_metrics(inside, outside)
        wins = (outside[:, None] > inside).mean() + (outside[:, None] == inside).mean() / 2
        assert auroc == pytest.approx(wins)
        truth, score = np.repeat([0, 1], [n, m]), np.concatenate([inside, outside])
        assert auroc == pytest.approx(roc_auc_score(truth, score))
        assert aupr == pytest.approx(average_precision_score(truth, score))
        threshold = min(t for t in inside if (inside <= t).mean() >= 0.95)
        assert fpr95 == pytest.approx((outside <= threshold).mean())

    def test_known_answers(self) -> None:
        assert ood_metrics([1, 2, 3], [4, 5]) == (1, 1, 0)
        assert ood_metrics(torch.zeros(4), torch.zeros(4)) == (0.5, 0.5, 1)
        # 19 of 20 are kept by the threshold 18, which also accepts 10 and 18 of the others.
        assert ood_metrics(np.arange(20), [10, 18, 18.5, 30]).fpr95 == 0.5

    @settings(max_examples=25)
    @given(st.integers(0, 2**32 - 1))
    def test_only_ranks_count(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        inside, outside = rng.normal(size=15), rng.normal(1, 1, 9)
        assert ood_metrics(np.exp(inside), np.exp(outside)) == pytest.approx(ood_metrics(inside, outside))


@pytest.mark.untyped
class TestBadInput:
    @pytest.mark.parametrize("metric", [brier, nll, ece])
    @pytest.mark.parametrize(
        ("proba", "y", "error", "message"),
        [
            ([[2.0, -1.0]], [0], ValueError, r"rows of probabilities that sum to 1, got \[2\.0, -1\.0\] in row 0"),
            ([[0.5, 0.5], [3.0, 1.0]], [0, 1], ValueError, "in row 1"),
            ([[math.nan, 1.0]], [0], ValueError, "in row 0"),
            ([0.5, 0.5], [0, 1], ValueError, r"proba must have shape \(nodes, classes\), got \(2,\)"),
            (np.zeros((0, 2)), [], ValueError, r"proba must have shape \(nodes, classes\), got \(0, 2\)"),
            ([[0.5, 0.5]], [0, 1], ValueError, "as many rows, got 1 and 2"),
            ([[0.5, 0.5]], [2], ValueError, "y holds class 2 but proba has 2 columns"),
            ([[0.5, 0.5]], [-1], ValueError, "y holds class -1"),
            ([[0.5, 0.5]], [0.0], TypeError, "y must hold integers, got dtype float64"),
            ([[0.5, 0.5]], [[0]], ValueError, r"y must have 1 dimension, got shape \(1, 1\)"),
        ],
    )
    def test_predictions(self, metric: object, proba: object, y: object, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            metric(proba, y)  # type: ignore[operator]

    def test_bins(self) -> None:
        with pytest.raises(ValueError, match="n_bins must be at least 1, got 0"):
            ece([[0.5, 0.5]], [0], n_bins=0)

    @pytest.mark.parametrize(
        ("agreement", "edges", "error", "message"),
        [
            ([0.5], [[0], [12]], ValueError, "edge_index refers to node 12 but y has 3 entries"),
            ([0.5], [[0], [-1]], ValueError, "edge_index refers to node -1"),
            ([1.5], [[0], [1]], ValueError, r"agreement must be in \[0, 1\], got 1\.5 for edge 0"),
            ([0.5, math.nan], [[0, 1], [1, 2]], ValueError, "got nan for edge 1"),
            ([0.5, 0.5], [[0], [1]], ValueError, r"one entry for each of the 1 edges, got shape \(2,\)"),
            ([0.5], [[0], [1], [2]], ValueError, r"edge_index must have shape \(2, edges\), got \(3, 1\)"),
            ([0.5], [[0.0], [1.0]], TypeError, "edge_index must hold integers, got dtype float64"),
            ([0.5], [0, 1], ValueError, r"edge_index must have 2 dimensions, got shape \(2,\)"),
            ([], [[], []], ValueError, "edge_index must have at least one edge"),
        ],
    )
    def test_edges(self, agreement: list[float], edges: object, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            edgewise_ece(agreement, edges, [0, 1, 1])  # type: ignore[arg-type]

    def test_scores(self) -> None:
        with pytest.raises(ValueError, match="scores_in must not be empty"):
            ood_metrics([], [1.0])
        with pytest.raises(ValueError, match="scores_out must be finite, got nan for entry 1"):
            ood_metrics([1.0], [1.0, math.nan])
        with pytest.raises(ValueError, match="scores_in must be one-dimensional"):
            ood_metrics([[1.0]], [1.0])


class TestThreshold:
    @given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.floats(0, 1))
    def test_it_is_the_smallest_score_that_refuses_no_more_than_asked(self, scores: list[int], fpr: float) -> None:
        limit = threshold_at(scores, fpr)
        assert limit in scores
        assert np.mean(np.array(scores) > limit) <= fpr + 1e-9
        below = [score for score in scores if score < limit]
        assert not below or np.mean(np.array(scores) > max(below)) > fpr - 1e-9

    def test_it_is_the_one_of_fpr95(self) -> None:
        rng = np.random.default_rng(0)
        inside, outside = rng.normal(size=200), rng.normal(1, 1, size=300)
        accepted = (outside <= threshold_at(inside)).mean()
        assert accepted == pytest.approx(ood_metrics(inside, outside).fpr95)

    def test_bad_input(self) -> None:
        with pytest.raises(ValueError, match="scores must not be empty"):
            threshold_at([])
        with pytest.raises(ValueError, match=r"fpr must be in \[0, 1\]"):
            threshold_at([1.0], 1.5)
