"""The exact prediction of kernel ridge regression for every pair of items, from comparisons of some."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, optimize, sparse
from scipy.sparse.linalg import LinearOperator, cg, splu
from sklearn.exceptions import ConvergenceWarning

from paperworks.core.validation import check_choice, check_integer, check_real, check_vector
from paperworks.transitive.tasks import TransitiveTask, check_exceptions, check_pairs

__all__ = [
    "Prediction",
    "Solution",
    "chain_ranks",
    "critical_conjunctivity",
    "effective_conjunctivity",
    "phase_diagram",
    "predict_margins",
    "solve_comparisons",
]

Floats = NDArray[np.float64]
Index = NDArray[np.intp]

DENSE_LIMIT = 400
CG_ITERATIONS = 1000


@dataclass(frozen=True, eq=False)
class Solution:
    """What ridge regression on comparisons learned: a rank an item, and a memory of each pair it was shown.

    The margin of items i and j is ``ranks[i] - ranks[j]``, plus the memory of that pair if it was shown.

    Attributes
    ----------
    ranks : ndarray, shape (n,)
        Larger is better; they sum to 0 in every connected component.
    pairs : ndarray of int, shape (k, 2)
        The distinct pairs, each as it was first listed.
    targets, weights : ndarray, shape (k,)
        Weighted mean target of each pair, and the sum of its weights.
    conjunctivity, ridge : float
    """

    ranks: Floats
    pairs: Index
    targets: Floats
    weights: Floats
    conjunctivity: float
    ridge: float

    @property
    def surprise(self) -> Floats:
        """Target of each pair minus the difference of its ranks, shape (k,)."""
        return np.asarray(self.targets - (self.ranks[self.pairs[:, 0]] - self.ranks[self.pairs[:, 1]]))

    @property
    def memory_weight(self) -> Floats:
        """Share in [0, 1] of the surprise that is remembered, α/(α + λ/ω), shape (k,)."""
        if self.conjunctivity == 0:
            return np.zeros(len(self.pairs))
        return np.asarray(self.conjunctivity / (self.conjunctivity + self.ridge / self.weights))

    @property
    def dual(self) -> Floats:
        """Coefficient of each pair in the kernel expansion, shape (k,).

        Without conjunctivity and ridge none is finite; it is the limit of ridge times the coefficient then.
        """
        resistance = self.conjunctivity + self.ridge / self.weights
        return np.asarray(self.surprise / resistance if resistance.all() else self.surprise * self.weights)

    @property
    def memory(self) -> Floats:
        """What is added to the difference of the ranks of each pair, shape (k,)."""
        return np.asarray(self.memory_weight * self.surprise)

    def margins(self, pairs: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return the margins of the given pairs, or of all.

        Parameters
        ----------
        pairs : array_like of int, shape (m, 2), optional
            Ordered pairs. An item's margin over itself is 0.

        Returns
        -------
        ndarray, shape (m,), or (n, n) without `pairs`
            The matrix is antisymmetric; entry (i, j) is positive where i is better.

        Examples
        --------
        >>> solution = solve_comparisons(3, [(0, 1), (1, 2)], conjunctivity=0.0)
        >>> solution.margins([(0, 2), (2, 1)])
        array([ 2., -1.])
        """
        n = len(self.ranks)
        first, second = self.pairs.T
        if pairs is None:
            table = np.subtract.outer(self.ranks, self.ranks)
            table[first, second] += self.memory
            table[second, first] -= self.memory
            return table
        asked = check_pairs(pairs, n, "pairs", distinct=False)
        known = np.concatenate([first * n + second, second * n + first])
        order = np.argsort(known)
        keys = asked[:, 0] * n + asked[:, 1]
        place = order[np.searchsorted(known, keys, sorter=order).clip(max=len(known) - 1)]
        remembered = np.concatenate([self.memory, -self.memory])[place]
        return np.asarray(
            self.ranks[asked[:, 0]] - self.ranks[asked[:, 1]] + np.where(known[place] == keys, remembered, 0.0)
        )


def solve_comparisons(
    n_items: int,
    pairs: ArrayLike,
    targets: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    conjunctivity: float = 0.1,
    ridge: float = 0.0,
    solver: str = "auto",
    tol: float = 1e-10,
) -> Solution:
    r"""Solve kernel ridge regression on comparisons of items, on any graph.

    With :math:`c_e = 1/(\alpha + \lambda/\omega_e)` and the graph Laplacian :math:`L = B\,\mathrm{diag}(c)\,B^\top`,

    .. math:: r = (L + \tfrac{2}{1-\alpha} I)^{-1} B\,\mathrm{diag}(c)\,y, \qquad
              f(i, j) = r_i - r_j + \alpha c_e (y_e - (r_w - r_l))\,[(i, j) = \pm e].

    This is the regression on both orders of every pair, with targets :math:`\pm y`, of any kernel that is the same
    for all items. The kernel has to be divided by (same pair − flipped pair), and the ridge is in those units too: for
    a kernel as it comes, give the raw ridge divided by that difference.

    Parameters
    ----------
    n_items : int
        Number of items, at least 2.
    pairs : array_like of int, shape (m, 2)
        Compared items, (winner, loser). A pair may be repeated, in either order.
    targets : array_like, shape (m,), optional
        Margin of the first over the second, 1 unless given.
    weights : array_like, shape (m,), optional
        Number of presentations ω > 0 of each row, 1 unless given.
    conjunctivity : float
        α in [0, 1]: 0 is a ranking, 1 remembers pairs and ranks nothing.
    ridge : float
        λ ≥ 0. With neither conjunctivity nor ridge, the ranks are the limit of a vanishing ridge: the weighted least
        squares (Massey, HodgeRank) of least norm.
    solver : {"auto", "dense", "cg"}
        ``dense`` is a Cholesky factor; ``cg`` is conjugate gradients, with a sparse factor where they do not converge.
        ``auto`` is dense up to 400 items.
    tol : float
        Relative residual at which ``cg`` stops.

    Returns
    -------
    Solution

    Raises
    ------
    ValueError, TypeError
        A pair that is no comparison of two of the items, a weight that is not positive, an argument out of range, or
        weights of which the smallest vanish beside the largest.

    Warns
    -----
    UserWarning
        The comparisons do not connect all items.
    ConvergenceWarning
        Conjugate gradients did not reach `tol`.

    Examples
    --------
    Three items that beat each other in a circle have equal ranks; who beats whom is remembered:

    >>> circle = solve_comparisons(3, [(0, 1), (1, 2), (2, 0)], conjunctivity=0.1)
    >>> circle.ranks.round(12) + 0.0, circle.memory
    (array([0., 0., 0.]), array([1., 1., 1.]))
    """
    n_items = check_integer(n_items, "n_items", low=2)
    alpha, ridge = _check_parameters(conjunctivity, ridge)
    check_choice(solver, "solver", ("auto", "dense", "cg"))
    check_real(tol, "tol", low=0, open_low=True)
    edges, y, omega = _distinct(n_items, pairs, targets, weights)
    # Conductances and the shrinkage are multiplied by the least resistance, which keeps them finite down to α = λ = 0.
    least = alpha + ridge / omega.max()
    conductance = least / (alpha + ridge / omega) if least > 0 else omega / omega.max()
    _, component = sparse.csgraph.connected_components(
        sparse.coo_array((np.ones(len(edges)), edges.T), shape=(n_items, n_items)), directed=False
    )
    if component.any():
        warnings.warn(
            f"{component.max() + 1} components: ranks are not comparable across them", UserWarning, stacklevel=2
        )
    ranks = np.zeros(n_items)
    if alpha < 1:
        flow = conductance * y
        net = _sums(edges[:, 0], flow, n_items) - _sums(edges[:, 1], flow, n_items)
        system = (edges, conductance, 2 * least / (1 - alpha), net, component)
        dense = solver == "dense" or (solver == "auto" and n_items <= DENSE_LIMIT)
        ranks = _solve_dense(*system) if dense else _solve_sparse(*system, tol)
        ranks -= (_sums(component, ranks) / np.bincount(component))[component]
    return Solution(ranks, edges, y, omega, alpha, ridge)


def _sums(group: NDArray[np.integer[Any]], values: Floats, groups: int = 0) -> Floats:
    return np.asarray(np.bincount(group, values, groups), dtype=np.float64)


def _check_parameters(conjunctivity: float, ridge: float) -> tuple[float, float]:
    return check_real(conjunctivity, "conjunctivity", low=0, high=1), check_real(ridge, "ridge", low=0)


def _distinct(
    n_items: int, pairs: ArrayLike, targets: ArrayLike | None, weights: ArrayLike | None
) -> tuple[Index, Floats, Floats]:
    """Return each pair once, with its weighted mean target and its weight, which leaves the regression the same."""
    edges = check_pairs(pairs, n_items, "pairs")
    m = len(edges)
    y = np.ones(m) if targets is None else check_vector(targets, "targets", length=m)
    omega = np.ones(m) if weights is None else check_vector(weights, "weights", length=m, low=0)
    if not omega.all():
        i = int(np.argmin(omega))
        raise ValueError(f"weights must be positive, got {omega[i]} for entry {i}")
    keys = edges.min(axis=1) * n_items + edges.max(axis=1)
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) == m:
        return edges, y, omega
    place = np.argsort(np.argsort(first))[which]  # in the order in which they were first listed
    kept = edges[np.sort(first)]
    signed = np.where(edges[:, 0] == kept[place, 0], y, -y)
    total = _sums(place, omega)
    return kept, _sums(place, omega * signed) / total, total


def _solve_dense(
    edges: Index, conductance: Floats, shrinkage: float, net: Floats, component: NDArray[np.int32]
) -> Floats:
    """Return (L + shrinkage·I)⁻¹ net, of least norm where that is singular."""
    n = len(net)
    matrix = np.zeros((n, n))
    matrix[edges[:, 0], edges[:, 1]] = matrix[edges[:, 1], edges[:, 0]] = -conductance
    matrix[np.diag_indices(n)] = shrinkage - matrix.sum(axis=1)
    # Ranks sum to 0 in each component: a penalty on the sum changes nothing and keeps the factor well conditioned.
    matrix += (component[:, None] == component) / n
    try:
        factor = linalg.cho_factor(matrix, overwrite_a=True)
    except linalg.LinAlgError:
        raise ValueError(
            "weights differ too much to be solved exactly with so little conjunctivity and ridge: "
            f"relative conductances are {conductance.min():.2g} to 1"
        ) from None
    return np.asarray(linalg.cho_solve(factor, net))


def _solve_sparse(
    edges: Index, conductance: Floats, shrinkage: float, net: Floats, component: NDArray[np.int32], tol: float
) -> Floats:
    """Return (L + shrinkage·I)⁻¹ net, up to a constant in each component where that is singular."""
    n = len(net)
    links = sparse.coo_array((conductance, edges.T), shape=(n, n)).tocsr()
    links = links + links.T
    diagonal = links.sum(axis=1) + shrinkage
    matrix = (sparse.diags_array(diagonal) - links).tocsr()
    jacobi = sparse.diags_array(1 / np.where(diagonal > 0, diagonal, 1.0))
    ranks, failed = cg(matrix, net, rtol=tol, maxiter=CG_ITERATIONS, M=jacobi)
    if failed:
        # Slow where the graph is long and thin, which is where a factor has little fill. One item a component is held.
        held = np.zeros(n)
        held[np.unique(component, return_index=True)[1]] = 1.0
        factor = splu((matrix + sparse.diags_array(held)).tocsc(), "MMD_AT_PLUS_A", diag_pivot_thresh=0.0)
        ranks, failed = cg(matrix, net, rtol=tol, maxiter=CG_ITERATIONS, M=LinearOperator((n, n), factor.solve))
        if failed:
            warnings.warn(f"conjugate gradients did not reach tol={tol:g}", ConvergenceWarning, stacklevel=3)
    return np.asarray(ranks)


def effective_conjunctivity(conjunctivity: float, ridge: float = 0.0) -> float:
    """Return (α + λ)/(1 + λ): the conjunctivity that gives the same ranks without ridge.

    It holds where every comparison has the same weight. Ridge is for generalisation what conjunctivity is, and only
    hurts the memory of what was shown.

    Examples
    --------
    >>> round(effective_conjunctivity(0.0, 0.5), 6)
    0.333333
    """
    alpha, ridge = _check_parameters(conjunctivity, ridge)
    return (alpha + ridge) / (1 + ridge)


def chain_ranks(
    n_items: int,
    conjunctivity: float,
    ridge: float = 0.0,
    exception: tuple[int, int] | None = None,
    exception_weight: float = 1.0,
) -> NDArray[np.float64]:
    r"""Return the ranks learned from a chain in which every item beats the next, in closed form.

    Without an exception, with :math:`\cosh\theta = (1+\lambda)/(1-\alpha)` and :math:`i = 1 \dots n`,

    .. math:: r^0_i = \frac{\sinh(((n+1)/2 - i)\theta)}{2 \sinh(\theta/2) \cosh(n\theta/2)}.

    An exception in which q beats p adds how far a correction of that pair leaks, times what the rule got wrong there,

    .. math:: r_i = r^0_i + h_i \frac{\kappa (1 - r^0_q + r^0_p)}{1 + \kappa (h_q - h_p)}, \qquad
              \kappa = \frac{\alpha + \lambda}{\alpha + \lambda/\omega},

    where h is the response of all ranks to a unit of flow from q to p.

    Parameters
    ----------
    n_items : int
        Number of items, at least 2; item 0 is the best.
    conjunctivity, ridge : float
        As in `solve_comparisons`.
    exception : (winner, loser), optional
        The winner is at least two below the loser.
    exception_weight : float
        Presentations of the exception for one of any other comparison.

    Returns
    -------
    ndarray, shape (n,)

    Examples
    --------
    >>> (5 * chain_ranks(9, 1 / 3, exception=(5, 3))).round(6) + 0.0
    array([ 3.,  1.,  0., -1.,  0.,  1.,  0., -1., -3.])
    """
    alpha, ridge = _check_parameters(conjunctivity, ridge)
    n = check_integer(n_items, "n_items", low=2)
    omega = check_real(exception_weight, "exception_weight", low=0, open_low=True)
    if exception is not None:
        q, p = (check_exceptions([exception], n)[0] + 1).tolist()
    if alpha == 1:
        return np.zeros(n)
    theta = float(2 * np.arcsinh(np.sqrt((alpha + ridge) / (1 - alpha) / 2)))
    item = np.arange(1.0, n + 1)
    x = np.abs((n + 1) / 2 - item)
    size = np.exp((x - (n + 1) / 2) * theta) * _growth(2 * x, 1.0, theta) / (1 + np.exp(-n * theta))
    rule = np.asarray(np.sign((n + 1) / 2 - item) * size)
    if exception is None:
        return rule
    kappa = (alpha + ridge) / (alpha + ridge / omega) if theta > 0 else omega
    leak = _leak(item, n, q, p, theta)
    reach = kappa * (leak[q - 1] - leak[p - 1])
    return np.asarray(rule + leak * kappa * (1 - rule[q - 1] + rule[p - 1]) / (1 + reach))


def _growth(a: Floats | float, b: float, theta: float) -> Floats:
    """Return (1 − exp(−aθ))/(1 − exp(−bθ)), which is a/b at θ = 0."""
    return np.asarray(a / b if theta == 0 else np.expm1(-np.asarray(a) * theta) / np.expm1(-b * theta))


def _leak(item: Floats, n: int, q: int, p: int, theta: float) -> Floats:
    """Return the Green's function of the chain at q minus that at p, its differences taken before they cancel."""
    middle, half = (p + q) / 2, (q - p) / 2

    def product(a: Floats | float, b: Floats | float) -> Floats:
        """Return sinh(aθ)·sinh(bθ)/(sinh θ · sinh nθ), whose size is exp((|a| + |b| − n − 1)θ)."""
        size = np.exp((np.abs(a) + np.abs(b) - n - 1) * theta) * np.sign(a) * np.sign(b)
        return np.asarray(size * _growth(2 * np.abs(a), 2.0, theta) * _growth(2 * np.abs(b), 2.0 * n, theta))

    def outside(a: Floats, b: float) -> Floats:
        """Return 2·cosh(aθ)·sinh(bθ)·sinh(half·θ)/(sinh θ · sinh nθ)."""
        size = np.exp((a + b + half - n - 1) * theta) * (1 + np.exp(-2 * a * theta))
        return np.asarray(size * _growth(2 * b, 2.0, theta) * _growth(2 * half, 2.0 * n, theta))

    before, after = item[:p], item[q - 1 :]
    between = item[p : q - 1]
    inner = product(n - half, between - middle) - product(n + 1 - between - middle, half)
    return np.concatenate([-outside(before - 0.5, n - middle + 0.5), inner, outside(n - after + 0.5, middle - 0.5)])


def critical_conjunctivity(
    items_per_side: int | tuple[int, int], span: int, ridge: float = 0.0, exception_weight: float = 1.0
) -> float | None:
    """Return the least conjunctivity at which a chain with one exception generalises wrongly across it.

    The first pair to turn wrong is the nearest to the cycle, one item on either side; it is reversed, not undecided.

    Parameters
    ----------
    items_per_side : int or (int, int)
        Items above and below the cycle.
    span : int
        Distance of the exception's winner and loser, at least 2.
    ridge, exception_weight : float
        As in `chain_ranks`.

    Returns
    -------
    float or None
        In [0, 1): 0 if it goes wrong at every small conjunctivity with this ridge, None if at none.

    Raises
    ------
    ValueError, TypeError
        A side without items, a span below 2, or an argument out of range.

    Examples
    --------
    >>> round(critical_conjunctivity(items_per_side=3, span=2), 12)
    0.333333333333
    >>> critical_conjunctivity(items_per_side=2, span=2) is None
    True
    """
    sides = items_per_side if isinstance(items_per_side, tuple) else (items_per_side, items_per_side)
    if len(sides) != 2:
        raise ValueError(f"items_per_side must be a number or (above, below), got {items_per_side!r}")
    above, below = (check_integer(side, "items_per_side", low=1) for side in sides)
    span = check_integer(span, "span", low=2)
    ridge = check_real(ridge, "ridge", low=0)
    omega = check_real(exception_weight, "exception_weight", low=0, open_low=True)

    def wrong(alpha: float) -> float:
        """Return a number that is positive where the nearest pair across is reversed."""
        if above == below:
            return _excess(above, span, alpha, ridge, omega)
        ranks = chain_ranks(above + span + 1 + below, alpha, ridge, (above + span, above), omega)
        return float(ranks[above + span + 1] - ranks[above - 1])

    if ridge > 0 and wrong(0.0) > 0:
        return 0.0
    # An over-trained exception can be wrong, right and wrong again as α grows, so the first change is looked for.
    start = float(np.arccosh(1 + ridge))
    thetas = np.geomspace(max(start, 1e-2 / max(above, below)), 30.0 + start, 300)
    grid = (2 * np.sinh(thetas / 2) ** 2 - ridge) / np.cosh(thetas)
    low = 0.0
    for high in grid[grid > 0]:
        if wrong(high) > 0:
            return float(optimize.brentq(wrong, low, high, xtol=1e-15, rtol=1e-14))
        low = high
    return None


def _excess(side: int, span: int, alpha: float, ridge: float, omega: float) -> float:
    """Return the log of the ratio whose excess over 1 reverses the nearest pair across a symmetric exception."""
    theta = float(2 * np.arcsinh(np.sqrt((alpha + ridge) / (1 - alpha) / 2)))
    kappa = (alpha + ridge) / (alpha + ridge / omega) if theta > 0 else omega
    rho = np.exp(-theta) * _growth(span - 2, span, theta)

    def log_cosh(a: float) -> float:
        return a * theta + float(np.log1p(np.exp(-2 * a * theta)))

    reference = log_cosh(1.5)
    relief = (2 * kappa + 1 - rho) * np.exp(log_cosh(0.5) - reference)
    return float(np.log(kappa) + log_cosh(side - 0.5) - reference - np.log1p(relief))


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a learner of a transitive task answers for every pair of items.

    Attributes
    ----------
    task : TransitiveTask
    conjunctivity, ridge : float
    time : float or None
        How long gradient flow has run; None for the end of it.
    margins : ndarray, shape (n, n)
        Antisymmetric; positive where the row's item wins.
    ranks : ndarray, shape (n,)
    memory : ndarray, shape (n, n)
        What is remembered of the pairs that were shown; the margins are differences of ranks plus this.
    """

    task: TransitiveTask
    conjunctivity: float
    ridge: float
    time: float | None
    margins: Floats
    ranks: Floats
    memory: Floats

    def table(self) -> pd.DataFrame:
        """Return the task's `pair_table` with each pair's margin, and whether it is right.

        Returns
        -------
        DataFrame
            More columns: margin, of the first over the second; correct, which is 1, 0, ½ for a tie (a margin below
            1e-9 of the largest) or NaN where nothing is true.
        """
        table = self.task.pair_table()
        margin = self.margins[table["first"], table["second"]]
        decided = np.where(np.abs(margin) <= 1e-9 * np.abs(margin).max(), 0.0, margin)
        return table.assign(margin=margin, correct=(1 + np.sign(decided) * table["truth"]) / 2)

    def accuracy_by_class(self) -> pd.Series[float]:
        """Return the share of pairs that are right in each class that has a truth; ties count as ½."""
        return self.table().dropna(subset="truth").groupby("cls")["correct"].mean().rename("accuracy")

    def wrong_pairs(self) -> pd.DataFrame:
        """Return the rows of `table` whose margin has the wrong sign, the most wrong first.

        Examples
        --------
        >>> wrong = predict_margins(TransitiveTask(9, exception=(5, 3)), conjunctivity=0.4).wrong_pairs()
        >>> wrong.query("cls == 'cross'")[["first", "second"]].to_numpy()
        array([[2, 6]])
        """
        table = self.table()
        return table[table["correct"] == 0].sort_values("margin", key=np.abs, ascending=False, kind="stable")

    def rule_ranks(self) -> NDArray[np.float64]:
        """Return the ranks that would be learned without the exceptions, shape (n,)."""
        kept = ~self.task.is_exception
        if not kept.any():
            return np.zeros(self.task.n_items)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an exception may be all that joins two components
            return _learn(self.task, kept, self.conjunctivity, self.ridge, self.time)[0]

    def decompose(self) -> dict[str, NDArray[np.float64]]:
        """Return three matrices that add up to the margins, each of shape (n, n).

        Returns
        -------
        dict
            ``rule``, what is learned without the exceptions; ``exception``, what they change in the ranks and so leak to
            other pairs; ``memory``.
        """
        rule = self.rule_ranks()
        leak = self.ranks - rule
        return {
            "rule": np.subtract.outer(rule, rule),
            "exception": np.subtract.outer(leak, leak),
            "memory": self.memory,
        }


def predict_margins(
    task: TransitiveTask, conjunctivity: float, ridge: float = 0.0, time: float | None = None
) -> Prediction:
    """Return the exact margins that kernel ridge regression learns from a task.

    Parameters
    ----------
    task : TransitiveTask
    conjunctivity, ridge : float
        As in `solve_comparisons`.
    time : float, optional
        Stop gradient flow from 0 at this time, at unit learning rate with the kernel in the units of
        `solve_comparisons`.

    Returns
    -------
    Prediction

    Raises
    ------
    ValueError, TypeError
        An argument out of range.

    Examples
    --------
    >>> prediction = predict_margins(TransitiveTask(9, exception=(5, 3)), conjunctivity=0.2)
    >>> (49 * prediction.margins[2, 5:7]).round(9)
    array([-6.,  8.])
    """
    alpha, ridge = _check_parameters(conjunctivity, ridge)
    time = None if time is None else check_real(time, "time", low=0)
    ranks, remembered = _learn(task, np.ones(len(task.pairs), dtype=bool), alpha, ridge, time)
    memory = np.zeros((task.n_items, task.n_items))
    winner, loser = task.pairs.T
    memory[winner, loser] = remembered
    memory[loser, winner] = -remembered
    margins = np.subtract.outer(ranks, ranks) + memory
    return Prediction(task, alpha, ridge, time, margins, ranks, memory)


def _learn(
    task: TransitiveTask, kept: NDArray[np.bool_], alpha: float, ridge: float, time: float | None
) -> tuple[Floats, Floats]:
    """Return the ranks, and the memory of each of the comparisons that are kept."""
    pairs, targets, weights = task.pairs[kept], task.targets[kept], task.weights[kept]
    if time is None:
        solution = solve_comparisons(task.n_items, pairs, targets, weights, alpha, ridge)
        return solution.ranks, solution.memory
    incidence = np.zeros((task.n_items, len(pairs)))
    incidence[pairs[:, 0], np.arange(len(pairs))] = 1.0
    incidence[pairs[:, 1], np.arange(len(pairs))] = -1.0
    kernel = alpha * np.eye(len(pairs)) + (1 - alpha) / 2 * incidence.T @ incidence
    root = np.sqrt(weights)
    values, vectors = linalg.eigh(root[:, None] * kernel * root)
    rates = np.maximum(values, 0.0) + ridge
    progress = np.divide(-np.expm1(-rates * time), rates, out=np.full(len(rates), time), where=rates > 0)
    dual = root * (vectors @ (progress * (vectors.T @ (root * targets))))
    return (1 - alpha) / 2 * incidence @ dual, alpha * dual


def phase_diagram(
    task: TransitiveTask, conjunctivity_grid: ArrayLike, ridge_grid: ArrayLike
) -> dict[str, NDArray[np.float64] | NDArray[np.bool_]]:
    """Return where a learner generalises, where it remembers, and where it does both.

    Parameters
    ----------
    task : TransitiveTask
    conjunctivity_grid : array_like, shape (a,)
    ridge_grid : array_like, shape (l,)

    Returns
    -------
    dict
        Arrays of shape (a, l): ``generalizes``, whether every within, cross and transitive pair is right;
        ``min_train_margin``, the least margin of what was shown, in the direction that was shown; ``balanced``, whether
        it generalises and every margin shown is above ½.

    Raises
    ------
    ValueError, TypeError
        A grid that is no vector, or a value out of range.

    Examples
    --------
    >>> phases = phase_diagram(TransitiveTask(9, exception=(5, 3)), [0.01, 0.2, 0.5], [0.0, 1.0])
    >>> phases["balanced"]
    array([[ True, False], [ True, False], [False, False]])
    """
    alphas = check_vector(conjunctivity_grid, "conjunctivity_grid", low=0)
    if (alphas > 1).any():
        raise ValueError(f"conjunctivity_grid must be in [0, 1], got {alphas.max():g}")
    ridges = check_vector(ridge_grid, "ridge_grid", low=0)
    pairs = task.pair_table()
    first, second = pairs.loc[pairs["cls"].isin(["within", "cross", "transitive"]), ["first", "second"]].to_numpy().T
    shape = (len(alphas), len(ridges))
    generalizes, least = np.zeros(shape, dtype=bool), np.zeros(shape)
    for a, alpha in enumerate(alphas):
        for i, ridge in enumerate(ridges):
            margins = predict_margins(task, alpha, ridge).margins
            tie = 1e-9 * np.abs(margins).max()
            generalizes[a, i] = (margins[first, second] > tie).all()
            least[a, i] = margins[task.pairs[:, 0], task.pairs[:, 1]].min()
    return {"generalizes": generalizes, "min_train_margin": least, "balanced": generalizes & (least > 0.5)}
