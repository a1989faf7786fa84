"""How conjunctive a representation is: kernels of pairs, infinitely wide networks, and features that were measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from sklearn.gaussian_process.kernels import GenericKernelMixin, Hyperparameter, Kernel

from paperworks.core.validation import check_choice, check_integer, check_real
from paperworks.transitive.tasks import TransitiveTask

__all__ = [
    "EmpiricalMargins",
    "Geometry",
    "OverlapKernel",
    "conjunctivity",
    "empirical_margins",
    "network_conjunctivity",
    "representation_geometry",
]

Floats = NDArray[np.float64]


def conjunctivity(
    same: float, overlap: float, distinct: float, flipped: float | None = None, crossed: float | None = None
) -> float:
    r"""Return the conjunctivity α of a kernel of ordered pairs that is the same for all items.

    .. math:: \alpha = 1 - 2\,\frac{\kappa_{overlap} - \kappa_{crossed}}{\kappa_{same} - \kappa_{flipped}}

    Everything such a kernel learns from comparisons depends on this number alone. A ridge of a regression with the
    kernel as it comes has to be divided by (same − flipped) to be the `ridge` of this package.

    Parameters
    ----------
    same : float
        Similarity of a pair to itself.
    overlap : float
        Of pairs that share one item in the same slot, as (A, B) and (A, C).
    distinct : float
        Of pairs without a common item.
    flipped : float, optional
        Of (A, B) and (B, A); as `distinct` unless given.
    crossed : float, optional
        Of pairs that share one item in different slots, as (A, B) and (C, A); as `distinct` unless given.

    Returns
    -------
    float
        0 where items add up, 1 where every pair is its own feature; outside [0, 1] for unusual kernels.

    Raises
    ------
    ValueError, TypeError
        A pair is no more similar to itself than to others.

    Examples
    --------
    >>> conjunctivity(same=1.0, overlap=0.5, distinct=0.0)
    0.0
    """
    values = {"same": same, "overlap": overlap, "distinct": distinct}
    values["flipped"] = distinct if flipped is None else flipped
    values["crossed"] = distinct if crossed is None else crossed
    values = {name: check_real(value, name) for name, value in values.items()}
    for other in ("flipped", "distinct"):
        if values["same"] <= values[other]:
            raise ValueError(
                f"degenerate representation: same-pair similarity must exceed that of {other} pairs, "
                f"got same={same!r} and {other}={values[other]!r}"
            )
    return 1 - 2 * (values["overlap"] - values["crossed"]) / (values["same"] - values["flipped"])


def network_conjunctivity(depth: int, kind: Literal["ntk", "nngp"] = "ntk", rho: float = 1.0) -> float:
    r"""Return the conjunctivity of an infinitely wide fully connected network on two one-hot items.

    With :math:`k(x) = x + \rho(\sqrt{1 - x^2} - x \arccos x)/\pi` and :math:`k'(x) = 1 - \rho \arccos(x)/\pi`, the
    similarities of pairs that share an item and of pairs that do not start at :math:`\Sigma_1 = (\tfrac12, 0)`;
    :math:`\Sigma_{j+1} = k(\Sigma_j)`, and
    :math:`\Theta_j = (\Sigma_j + (j - 1)\,\Theta_{j-1}\,k'(\Sigma_{j-1}))/j`.

    Parameters
    ----------
    depth : int
        Hidden layers.
    kind : {"ntk", "nngp"}
        Neural tangent kernel (all layers are trained), or Gaussian process (the last layer is).
    rho : float
        Nonlinearity of the activation in [0, 2]: 0 is linear, 1 is ReLU, 2 is the absolute value, and (1 − a)²/(1 + a²)
        a leaky ReLU of slope a below 0.

    Raises
    ------
    ValueError, TypeError
        An argument out of range.

    Examples
    --------
    >>> [round(network_conjunctivity(depth, "nngp"), 6) for depth in (1, 2, 3)]
    [0.147155, 0.248721, 0.325348]
    """
    depth = check_integer(depth, "depth", low=0)
    check_choice(kind, "kind", ("ntk", "nngp"))
    rho = check_real(rho, "rho", low=0, high=2)
    process = tangent = np.array([0.5, 0.0])
    for j in range(2, depth + 2):
        angle = np.arccos(process)
        slope = 1 - rho * angle / np.pi
        process = np.minimum(process + rho * (np.sin(angle) - process * angle) / np.pi, 1.0)
        tangent = (process + (j - 1) * tangent * slope) / j
    overlap, distinct = (process if kind == "nngp" else tangent).tolist()
    return conjunctivity(1.0, overlap, distinct)


class OverlapKernel(GenericKernelMixin, Kernel):  # type: ignore[misc]
    """A scikit-learn kernel of tables of categories: (1 − α)·(share of columns that agree) + α·(all agree).

    On two columns, this is the kernel of `solve_comparisons`. Categories are of any type, strings too. In a
    ``GaussianProcessRegressor`` the conjunctivity is fitted by marginal likelihood.

    Parameters
    ----------
    conjunctivity : float
        α in (0, 1].
    conjunctivity_bounds : (float, float) or "fixed"
        Where to look for it.

    Examples
    --------
    >>> OverlapKernel(0.2)([["A", "B"]], [["A", "B"], ["A", "C"], ["B", "A"]])
    array([[1. , 0.4, 0. ]])
    """

    def __init__(
        self, conjunctivity: float = 0.1, conjunctivity_bounds: tuple[float, float] | str = (1e-5, 0.999)
    ) -> None:
        self.conjunctivity = conjunctivity
        self.conjunctivity_bounds = conjunctivity_bounds

    @property
    def hyperparameter_conjunctivity(self) -> Hyperparameter:
        """The conjunctivity, which is fitted on a log scale."""
        return Hyperparameter("conjunctivity", "numeric", self.conjunctivity_bounds)

    def __call__(
        self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the kernel, and its gradient.

        Parameters
        ----------
        X : array_like, shape (m, d)
            Categories; d = 1 if one-dimensional.
        Y : array_like, shape (k, d), optional
            `X` unless given.
        eval_gradient : bool
            Return the gradient with respect to log α too; only without `Y`.

        Returns
        -------
        ndarray, shape (m, k)
            With `eval_gradient`, also one of shape (m, m, 1), or (m, m, 0) where α is fixed.

        Raises
        ------
        ValueError
            Different numbers of columns, or a gradient between two tables.
        """
        left = _columns(X)
        right = left if Y is None else _columns(Y)
        if left.shape[1] != right.shape[1]:
            raise ValueError(f"Y must have {left.shape[1]} columns as X does, got {right.shape[1]}")
        if eval_gradient and Y is not None:
            raise ValueError("eval_gradient needs Y=None: the gradient is that of one table's kernel")
        agreeing = np.zeros((len(left), len(right)))
        for here, there in zip(left.T, right.T, strict=True):
            agreeing += here[:, None] == there
        share = agreeing / left.shape[1]
        whole = agreeing == left.shape[1]
        kernel = np.asarray((1 - self.conjunctivity) * share + self.conjunctivity * whole)
        if not eval_gradient:
            return kernel
        if self.hyperparameter_conjunctivity.fixed:
            return kernel, np.empty((*kernel.shape, 0))
        return kernel, (self.conjunctivity * (whole - share))[..., None]

    def diag(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the similarity of each row to itself, which is 1, shape (m,)."""
        return np.ones(len(_columns(X)))

    def is_stationary(self) -> bool:
        """Return False: the kernel is no function of a difference."""
        return False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(conjunctivity={self.conjunctivity:.3g})"


def _columns(table: ArrayLike) -> NDArray[Any]:
    array = np.asarray(table)
    if array.ndim not in (1, 2) or 0 in array.shape[1:]:
        raise ValueError(f"X: expected shape (m, d) with d >= 1, got {array.shape}")
    return array.reshape(len(array), -1)


@dataclass(frozen=True, eq=False)
class Geometry:
    """How a representation of ordered pairs compares to one that is the same for all items.

    Attributes
    ----------
    alpha : float
        Its conjunctivity, after what does not change sign with the order of a pair is taken out.
    alpha_se : float
        Standard error, by a jackknife over items.
    orbits : dict
        Mean similarity of pairs, in units of that of a pair to itself: ``same`` 1, ``flipped`` −1, ``overlap`` (one item
        shared, in the same slot), ``crossed`` (in different slots) and ``distinct`` (none). The odd part of any features
        has crossed = −overlap and distinct = 0.
    residual : float
        Share of the kernel, in Frobenius norm, that these means leave unexplained.
    """

    alpha: float
    alpha_se: float
    orbits: dict[str, float]
    residual: float


def representation_geometry(features: ArrayLike, pairs: ArrayLike) -> Geometry:
    """Measure the conjunctivity of features of ordered pairs.

    Parameters
    ----------
    features : array_like, shape (n(n − 1), d)
        One row an ordered pair.
    pairs : array_like, shape (n(n − 1), 2)
        The two items of each row, by number or by name; each ordered pair of at least four items once, in any order.

    Returns
    -------
    Geometry

    Raises
    ------
    ValueError
        A pair is missing or there twice, features are not finite, or they do not depend on the order of a pair.

    Examples
    --------
    >>> pairs = [(i, j) for i in range(5) for j in range(5) if i != j]
    >>> additive = [np.eye(5)[i] + 2 * np.eye(5)[j] for i, j in pairs]
    >>> round(representation_geometry(additive, pairs).alpha, 12) + 0.0
    0.0
    """
    odd = _odd_part(features, pairs)
    n = len(odd)
    if n < 4:
        raise ValueError(f"pairs must be of at least 4 items, got {n}")
    size = np.einsum("ijd,ijd->ij", odd, odd)
    item = odd.sum(axis=1)
    # Pairs that share item i, both with i first: the sum of their products is |Σ_j A_ij|² − Σ_j |A_ij|².
    shared = np.einsum("id,id->i", item, item) - size.sum(axis=1)
    overlap = float(shared.sum() / (n * (n - 1) * (n - 2)))  # in units of the diagonal's mean, which is 1
    # The same without item j: A_ij leaves the sum of item i.
    across = np.einsum("id,ijd->ij", item, odd)
    left_shared = shared.sum() - shared + (2 * size - 2 * across).sum(axis=0)
    left_size = size.sum() - 2 * size.sum(axis=1)
    alphas = 1 - 2 * left_shared / ((n - 3) * left_size)
    first, second = np.triu_indices(n, 1)
    incidence = np.eye(n)[first] - np.eye(n)[second]
    kernel = odd[first, second] @ odd[first, second].T
    alpha = 1 - 2 * overlap
    orbit = alpha * np.eye(len(first)) + (1 - alpha) / 2 * incidence @ incidence.T
    return Geometry(
        alpha=alpha,
        alpha_se=float(np.sqrt((n - 1) * np.var(alphas))),
        orbits={"same": 1.0, "flipped": -1.0, "overlap": overlap, "crossed": -overlap, "distinct": 0.0},
        residual=float(linalg.norm(kernel - orbit) / linalg.norm(kernel)),
    )


def _odd_part(features: ArrayLike, pairs: ArrayLike) -> Floats:
    """Return the part of the features that changes sign with the order, shape (n, n, d), of mean square norm 1."""
    rows = np.asarray(features, dtype=np.float64)
    labels = np.asarray(pairs)
    if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all():
        raise ValueError(f"features must be a finite matrix of shape (n(n - 1), d), got shape {rows.shape}")
    rows = rows / (np.abs(rows).max() or 1.0)
    if labels.shape != (len(rows), 2):
        raise ValueError(f"pairs: expected shape ({len(rows)}, 2), one row a row of features, got {labels.shape}")
    names, index = np.unique(labels, return_inverse=True)
    first, second = index.reshape(labels.shape).T
    n = len(names)
    count = np.zeros((n, n), dtype=int)
    np.add.at(count, (first, second), 1)
    wrong = np.argwhere(count != 1 - np.eye(n, dtype=int))
    if len(wrong):
        i, j = wrong[0]
        raise ValueError(
            f"pairs must hold every ordered pair of two items once, got ({names[i]}, {names[j]}) {count[i, j]} times"
        )
    table = np.zeros((n, n, rows.shape[1]))
    table[first, second] = rows
    odd = table - table.swapaxes(0, 1)
    scale = np.sqrt((odd**2).sum() / (n * (n - 1)))
    if scale <= 1e-12:
        raise ValueError("degenerate representation: same-pair similarity must exceed that of flipped pairs")
    return np.asarray(odd / scale)


@dataclass(frozen=True, eq=False)
class EmpiricalMargins:
    """Margins learned from measured features, over many assignments of items to ranks.

    Attributes
    ----------
    mean : ndarray, shape (n, n)
        Antisymmetric; rows and columns are ranks.
    share_right : ndarray, shape (n, n)
        Share of the assignments in which the pair is right, a tie counted ½; NaN for pairs without a truth.
    stack : ndarray, shape (assignments, n, n), or None
        The margins of every assignment, if they were asked for.
    """

    mean: Floats
    share_right: Floats
    stack: Floats | None


def empirical_margins(
    features: ArrayLike,
    pairs: ArrayLike,
    task: TransitiveTask,
    ridge: float = 1e-6,
    n_assignments: int = 200,
    seed: int = 0,
    *,
    keep: bool = False,
) -> EmpiricalMargins:
    """Learn a task by kernel regression on measured features, with items given to ranks at random.

    One assignment shows what is peculiar to its items; the mean over many is what the theory speaks of.

    Parameters
    ----------
    features, pairs : array_like
        As in `representation_geometry`.
    task : TransitiveTask
        Of as many items.
    ridge : float
        Positive, in units of the mean similarity of a pair to itself.
    n_assignments : int
        Random assignments.
    seed : int
        Of the assignments.
    keep : bool
        Return the margins of every assignment.

    Returns
    -------
    EmpiricalMargins

    Raises
    ------
    ValueError, TypeError
        As `representation_geometry`, or another number of items than the task's.
    """
    odd = _odd_part(features, pairs)
    n = task.n_items
    if len(odd) != n:
        raise ValueError(f"pairs must be of the task's {n} items, got {len(odd)}")
    ridge = check_real(ridge, "ridge", low=0, open_low=True)
    n_assignments = check_integer(n_assignments, "n_assignments", low=1)
    rng = np.random.default_rng(check_integer(seed, "seed", low=0))
    table = task.pair_table()
    truth = np.full((n, n), np.nan)
    truth[table["first"], table["second"]] = table["truth"]
    truth[table["second"], table["first"]] = -table["truth"]
    winner, loser = task.pairs.T
    total, right = np.zeros((n, n)), np.zeros((n, n))
    stack = np.zeros((n_assignments if keep else 0, n, n))
    for k in range(n_assignments):
        item = rng.permutation(n)
        shown = odd[item[winner], item[loser]]
        dual = linalg.solve(shown @ shown.T + np.diag(ridge / task.weights), task.targets, assume_a="pos")
        margins = (odd @ (dual @ shown))[np.ix_(item, item)]
        total += margins
        right += (1 + np.sign(margins) * truth) / 2
        if keep:
            stack[k] = margins
    return EmpiricalMargins(total / n_assignments, right / n_assignments, stack if keep else None)
