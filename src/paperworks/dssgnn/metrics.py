"""Scores of probabilities, of joint predictions over edges, and of out-of-distribution detection."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from torch import Tensor

from paperworks.core.validation import check_integer, check_real, check_vector

__all__ = ["OODMetrics", "brier", "ece", "edgewise_ece", "nll", "ood_metrics", "threshold_at"]


def brier(proba: ArrayLike | Tensor, y: ArrayLike | Tensor) -> float:
    """Return the mean squared distance of probabilities and one-hot labels, summed over classes: in [0, 2].

    Parameters
    ----------
    proba : array_like or Tensor, shape (nodes, classes)
        Class probabilities.
    y : array_like or Tensor of int, shape (nodes,)
        Class indices.

    Raises
    ------
    TypeError
        Labels are not integers.
    ValueError
        Shapes do not fit, rows of `proba` are no distributions, or a label has no column.

    Examples
    --------
    >>> round(brier([[0.8, 0.2], [0.4, 0.6]], [0, 0]), 6)
    0.4
    """
    p, labels = _predictions(proba, y)
    error = p.astype(np.float64)
    error[np.arange(len(labels)), labels] -= 1
    return float(np.square(error).sum(1).mean())


def nll(proba: ArrayLike | Tensor, y: ArrayLike | Tensor) -> float:
    """Return the mean negative log-likelihood in nats.

    A probability of 0 counts as the machine epsilon of `proba`, as in scikit-learn's ``log_loss``.

    Parameters
    ----------
    proba : array_like or Tensor, shape (nodes, classes)
        Class probabilities.
    y : array_like or Tensor of int, shape (nodes,)
        Class indices.

    Raises
    ------
    TypeError
        Labels are not integers.
    ValueError
        Shapes do not fit, rows of `proba` are no distributions, or a label has no column.

    Examples
    --------
    >>> round(nll([[0.5, 0.5], [0.25, 0.75]], [0, 0]), 4)
    1.0397
    """
    p, labels = _predictions(proba, y)
    chosen = p[np.arange(len(labels)), labels].astype(np.float64)
    return float(-np.log(np.maximum(chosen, np.finfo(p.dtype).eps)).mean())


def ece(proba: ArrayLike | Tensor, y: ArrayLike | Tensor, n_bins: int = 15) -> float:
    r"""Return the expected calibration error of the predicted classes.

    .. math:: \sum_b \frac{n_b}{n} \left| \text{accuracy}_b - \text{confidence}_b \right|

    over bins [(b − 1)/n_bins, b/n_bins) of the largest probability. As in torchmetrics, a probability of exactly 1 has
    a bin of its own. With few nodes it is mostly noise: `brier` and `nll` are not.

    Parameters
    ----------
    proba : array_like or Tensor, shape (nodes, classes)
        Class probabilities.
    y : array_like or Tensor of int, shape (nodes,)
        Class indices.
    n_bins : int
        Number of bins.

    Raises
    ------
    TypeError
        Labels are not integers.
    ValueError
        Shapes do not fit, rows of `proba` are no distributions, or a label has no column.

    Examples
    --------
    >>> round(ece([[0.9, 0.1], [0.9, 0.1], [0.3, 0.7]], [0, 1, 1]), 4)
    0.3667
    """
    p, labels = _predictions(proba, y)
    return _binned_error(p.max(1), p.argmax(1) == labels, check_integer(n_bins, "n_bins", low=1))


def edgewise_ece(
    agreement: ArrayLike | Tensor, edge_index: ArrayLike | Tensor, y: ArrayLike | Tensor, n_bins: int = 15
) -> float:
    """Return the expected calibration error of the probability that the two ends of an edge have the same label.

    Parameters
    ----------
    agreement : array_like or Tensor, shape (edges,)
        Predicted probability of the same label: ``ChaosLogits.agreement``, or Σ_c p_ic p_jc of marginals.
    edge_index : array_like or Tensor of int, shape (2, edges)
        The ends.
    y : array_like or Tensor of int, shape (nodes,)
        Class indices.
    n_bins : int
        Number of bins.

    Raises
    ------
    TypeError
        Labels or ends are not integers.
    ValueError
        Shapes do not fit, a probability is outside [0, 1], or an edge refers to a node without a label.

    Examples
    --------
    >>> round(edgewise_ece([0.9, 0.9, 0.2], [[0, 1, 2], [1, 2, 3]], [0, 0, 0, 1]), 4)
    0.1333
    """
    p = _array(agreement)
    labels, edges = _integers(y, "y", 1), _integers(edge_index, "edge_index", 2)
    if len(edges) != 2:
        raise ValueError(f"edge_index must have shape (2, edges), got {edges.shape}")
    if p.shape != edges.shape[1:]:
        raise ValueError(f"agreement must have one entry for each of the {edges.shape[1]} edges, got shape {p.shape}")
    outside = (edges < 0) | (edges >= len(labels))
    if outside.any():
        raise ValueError(f"edge_index refers to node {edges[outside][0]} but y has {len(labels)} entries")
    wrong = ~((p >= 0) & (p <= 1 + 1e-5))
    if wrong.any():
        raise ValueError(f"agreement must be in [0, 1], got {p[wrong][0]} for edge {np.argmax(wrong)}")
    if p.size == 0:
        raise ValueError("edge_index must have at least one edge")
    same = labels[edges[0]] == labels[edges[1]]
    return _binned_error(np.minimum(p, 1), same, check_integer(n_bins, "n_bins", low=1))


class OODMetrics(NamedTuple):
    """How well a score tells out-of-distribution nodes, the positives, from in-distribution ones; all in [0, 1].

    `fpr95` is the share of out-of-distribution nodes that are accepted by the threshold that accepts 95 % of the
    in-distribution ones.
    """

    auroc: float
    aupr: float
    fpr95: float


def ood_metrics(scores_in: ArrayLike | Tensor, scores_out: ArrayLike | Tensor) -> OODMetrics:
    """Return AUROC, AUPR and FPR95 of a score that is larger for what is more out of distribution.

    Parameters
    ----------
    scores_in, scores_out : array_like or Tensor, shapes (n,) and (m,)
        Scores of in-distribution and of out-of-distribution nodes.

    Raises
    ------
    ValueError
        Scores are empty, not one-dimensional or not finite.

    Examples
    --------
    >>> ood_metrics([1, 2, 3, 4], [3.5, 5, 6, 7]).auroc
    0.9375
    """
    inside, outside = (
        check_vector(_array(scores), name) for scores, name in ((scores_in, "scores_in"), (scores_out, "scores_out"))
    )
    for scores, name in ((inside, "scores_in"), (outside, "scores_out")):
        if scores.size == 0:
            raise ValueError(f"{name} must not be empty")
    score = np.concatenate([inside, outside])
    is_out = np.repeat([0, 1], [len(inside), len(outside)])
    wrongly, rightly, _ = roc_curve(1 - is_out, -score, drop_intermediate=False)
    return OODMetrics(
        float(roc_auc_score(is_out, score)),
        float(average_precision_score(is_out, score)),
        float(wrongly[np.argmax(rightly >= 0.95)]),
    )


def threshold_at(scores: ArrayLike | Tensor, fpr: float = 0.05) -> float:
    """Return the smallest of the scores that at most a share `fpr` of them exceeds.

    Of in-distribution nodes, such as those of the validation mask, what is above it is called out of distribution. It
    holds for one fitted model only, as energies of two have no common scale.

    Parameters
    ----------
    scores : array_like or Tensor, shape (n,)
        Scores of in-distribution nodes, larger for what is more out of distribution.
    fpr : float
        Share of them that may be refused, in [0, 1].

    Raises
    ------
    ValueError
        Scores are empty, not one-dimensional or not finite, or `fpr` is outside [0, 1].

    Examples
    --------
    >>> threshold_at([5, 1, 4, 2, 3], fpr=0.2)
    4.0
    """
    inside, fpr = check_vector(_array(scores), "scores"), check_real(fpr, "fpr", low=0, high=1)
    if inside.size == 0:
        raise ValueError("scores must not be empty")
    refused = int(np.floor(fpr * inside.size + 1e-9))
    return float(np.sort(inside)[max(inside.size - refused - 1, 0)])


def _array(values: ArrayLike | Tensor) -> NDArray[np.float32] | NDArray[np.float64]:
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _integers(values: ArrayLike | Tensor, name: str, dimensions: int) -> NDArray[np.intp]:
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    if array.ndim != dimensions:
        raise ValueError(f"{name} must have {dimensions} dimension{'s'[: dimensions - 1]}, got shape {array.shape}")
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{name} must hold integers, got dtype {array.dtype}")
    return array.astype(np.intp)


def _predictions(
    proba: ArrayLike | Tensor, y: ArrayLike | Tensor
) -> tuple[NDArray[np.float32] | NDArray[np.float64], NDArray[np.intp]]:
    p, labels = _array(proba), _integers(y, "y", 1)
    if p.ndim != 2 or p.size == 0:
        raise ValueError(f"proba must have shape (nodes, classes), got {p.shape}")
    if len(p) != len(labels):
        raise ValueError(f"proba and y must have as many rows, got {len(p)} and {len(labels)}")
    total = p.sum(1, dtype=np.float64)
    wrong = ~((p >= 0).all(1) & (np.abs(total - 1) <= 1e-4))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(f"proba must have rows of probabilities that sum to 1, got {p[i].tolist()} in row {i}")
    outside = (labels < 0) | (labels >= p.shape[1])
    if outside.any():
        raise ValueError(f"y holds class {labels[outside][0]} but proba has {p.shape[1]} columns")
    return p, labels


def _binned_error(
    confidence: NDArray[np.float32] | NDArray[np.float64], right: NDArray[np.bool_], n_bins: int
) -> float:
    edges = np.linspace(0, 1, n_bins + 1, dtype=confidence.dtype)
    index = np.searchsorted(edges, confidence, side="right") - 1
    gap = np.bincount(index, weights=right - confidence.astype(np.float64), minlength=n_bins + 1)
    return float(np.abs(gap).sum() / len(confidence))
