"""Scikit-learn estimators that learn a rule and remember exceptions: of categories, and of comparisons."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from itertools import chain
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import KFold, check_cv
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from paperworks.core.validation import check_choice, check_real, check_vector
from paperworks.transitive.fit import most_likely_scale
from paperworks.transitive.theory import Solution, solve_comparisons

__all__ = ["ConjunctiveRidge", "TransitiveRanker", "TransitiveRankerCV"]

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]
R = TypeVar("R", bound="_Ranker")

# Comparisons below which the scale of the probabilities is not fitted, and the folds in which it is.
_ENOUGH, _FOLDS = 20, 5
_TIE = 1e-9
_NEGLIGIBLE = 1e-9


class ConjunctiveRidge(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Ridge regression on categorical columns that adds up effects of single columns and remembers whole rows.

    The kernel of two rows is (1 - α)·(share of the columns in which they agree) + α·(1 if they agree in all). So

    .. math:: f(x) = \sum_k r_k(x_k) + \text{memory}(x),

    where a value that was not seen in a column adds nothing, and neither does a row that was not seen.

    Parameters
    ----------
    conjunctivity : float
        α in [0, 1]: 0 adds columns, 1 remembers rows.
    ridge : float
        λ ≥ 0, in units of the kernel of a row with itself; positive where `conjunctivity` is 0.

    Attributes
    ----------
    levels_ : list of Index
        The values seen in each column.
    effects_ : list of ndarray
        r of each column, aligned with `levels_`.
    memory_ : ndarray, shape (k,)
        Of each distinct row.

    Examples
    --------
    The last row is not what its parts would give, and is remembered; the parts are what a new row is made of:

    >>> X = [["a", "x"], ["a", "y"], ["b", "x"], ["b", "y"]]
    >>> model = ConjunctiveRidge(conjunctivity=0.1).fit(X, [2.0, 0.0, 0.0, 2.0])
    >>> model.predict([["b", "y"], ["b", "z"]]).round(3)
    array([2.   , 0.474])
    """

    def __init__(self, conjunctivity: float = 0.1, ridge: float = 1e-8) -> None:
        self.conjunctivity = conjunctivity
        self.ridge = ridge

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> ConjunctiveRidge:
        """Fit to rows of categories.

        Parameters
        ----------
        X : array_like, shape (m, d)
            Categories: numbers or strings.
        y : array_like, shape (m,)
            Targets.
        sample_weight : array_like, shape (m,), optional
            Number of presentations of each row, not negative.
        """
        alpha = check_real(self.conjunctivity, "conjunctivity", low=0, high=1)
        ridge = check_real(self.ridge, "ridge", low=0, open_low=alpha == 0)
        rows, shown = validate_data(self, X, y, dtype=None, y_numeric=True)
        weights = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        rows, shown, weights = rows[weights > 0], shown[weights > 0], weights[weights > 0]
        self.levels_ = [pd.Index(pd.unique(column)) for column in rows.T]
        codes = self._codes(rows)
        which = pd.DataFrame(codes).groupby(list(range(codes.shape[1])), sort=False).ngroup().to_numpy()
        first = np.unique(which, return_index=True)[1]
        omega = np.bincount(which, weights)
        targets = np.bincount(which, weights * shown) / omega
        self._rows = pd.MultiIndex.from_arrays(list(codes[first].T))
        slots = self._slots(codes[first])
        # Of the two forms of the same solution, the one with the smaller matrix.
        share = (1 - alpha) / codes.shape[1]
        resistance = alpha + ridge / omega
        if slots.shape[1] < slots.shape[0] and share > 0:
            leads = slots.T.multiply(1 / resistance).tocsr()
            matrix = (leads @ slots).toarray() + np.eye(slots.shape[1]) / share
            effects = linalg.solve(matrix, leads @ targets, assume_a="pos")
            self.memory_ = alpha / resistance * (targets - slots @ effects)
        else:
            matrix = share * (slots @ slots.T).toarray() + np.diag(resistance)
            dual = linalg.solve(matrix, targets, assume_a="pos")
            effects = share * (slots.T @ dual)
            self.memory_ = alpha * dual
        self.effects_ = np.split(effects, np.cumsum([len(levels) for levels in self.levels_])[:-1])
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the prediction of each row, shape (m,); what was not seen adds 0."""
        check_is_fitted(self)
        codes = self._codes(validate_data(self, X, dtype=None, reset=False))
        seen = self._rows.get_indexer(pd.MultiIndex.from_arrays(list(codes.T)))
        memory = np.append(self.memory_, 0.0)[seen]
        return np.asarray(self._slots(codes) @ np.concatenate(self.effects_) + memory)

    def _codes(self, X: NDArray[Any]) -> Codes:
        """Return the position of each value among the levels of its column, -1 where it is none."""
        return np.column_stack([levels.get_indexer(column) for levels, column in zip(self.levels_, X.T, strict=True)])

    def _slots(self, codes: Codes) -> sparse.csr_array:
        """Return the indicator (m, p) of the levels of all columns."""
        sizes = [len(levels) for levels in self.levels_]
        row, column = np.nonzero(codes >= 0)
        place = codes[row, column] + (np.cumsum(sizes) - sizes)[column]
        return sparse.csr_array((np.ones(len(row)), (row, place)), shape=(len(codes), sum(sizes)))


class _Ranker(BaseEstimator):  # type: ignore[misc]
    """What a ranker with given conjunctivity and ridge and one that chooses them have in common."""

    solver: str
    tol: float
    unknown: str
    classes_: NDArray[Any]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags

    def _choose(self, codes: Codes, y: Floats, weights: Floats) -> tuple[float, float]:
        """Return the conjunctivity and the ridge to fit with."""
        raise NotImplementedError

    def fit(self: R, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> R:
        """Learn ranks, and the memory of pairs.

        Parameters
        ----------
        X : array_like or DataFrame, shape (m, 2)
            Compared items, of any hashable labels: (winner, loser) where `y` is not given.
        y : array_like, shape (m,), optional
            Margin of the first over the second; negative where the second won, 0 for a draw. Default: 1.
        sample_weight : array_like, shape (m,), optional
            Number of times that each row happened, not negative. The fit is that of as many rows; but `scale_`, and
            folds, hold rows out, so repeat rows where it matters how well a pair is remembered.

        Raises
        ------
        ValueError, TypeError
            Not two columns, no rows, missing labels, an item compared with itself, or bad numbers.

        Warns
        -----
        UserWarning
            The comparisons do not connect all items.
        """
        check_real(self.tol, "tol", low=0, open_low=True)
        check_choice(self.unknown, "unknown", ("raise", "zero"))
        table = _table(X)
        validate_data(self, table, skip_check_array=True)
        m = len(table)
        targets = np.ones(m) if y is None else check_vector(y, "y", length=m)
        weights = np.ones(m) if sample_weight is None else check_vector(sample_weight, "sample_weight", length=m, low=0)
        kept = np.flatnonzero(weights)
        if not len(kept):
            raise ValueError("sample_weight must be positive in some row, got only zeros")
        targets, weights = targets[kept], weights[kept]
        self._labels, codes = _encode(table, kept)
        self.classes_ = self._labels.to_numpy()
        self.conjunctivity_, self.ridge_ = self._choose(codes, targets, weights)
        self.solution_ = self._solve(codes, targets, weights, self.conjunctivity_, self.ridge_)
        self.ranks_ = self.solution_.ranks
        self.ranking_ = self.classes_[np.argsort(-self.ranks_, kind="stable")]
        self.exceptions_ = self._exceptions()
        self.cyclic_share_ = self._cyclic_share()
        self.scale_ = self._fit_scale(codes, targets, weights)
        return self

    def _solve(self, codes: Codes, y: Floats, weights: Floats, conjunctivity: float, ridge: float) -> Solution:
        return solve_comparisons(len(self._labels), codes, y, weights, conjunctivity, ridge, self.solver, self.tol)

    def _held_out(
        self, codes: Codes, y: Floats, weights: Floats, conjunctivity: float, ridge: float, cv: Any
    ) -> Iterator[tuple[Codes, Floats]]:
        """Yield the rows that each fold holds out and their margins after a fit to the others."""
        for kept, held in cv.split(codes):
            with _unconnected():
                solution = self._solve(codes[kept], y[kept], weights[kept], conjunctivity, ridge)
            yield held, solution.margins(codes[held])

    def _exceptions(self) -> pd.DataFrame:
        """Return the pairs whose winner is not ranked above their loser."""
        solution = self.solution_
        sign = np.where(solution.targets < 0, -1.0, 1.0)
        winner, loser = np.where(sign[:, None] > 0, solution.pairs, solution.pairs[:, ::-1]).T
        by_rank = self.ranks_[winner] - self.ranks_[loser]
        tie = _TIE * np.abs(solution.targets).max()
        upset = (by_rank <= tie) & (np.abs(solution.targets) > tie)
        columns = {
            "winner": self.classes_[winner],
            "loser": self.classes_[loser],
            "margin_by_rank": by_rank,
            "memory": sign * solution.memory,
            "surprise": sign * solution.surprise,
        }
        table: pd.DataFrame = pd.DataFrame(columns)[upset]
        return table.sort_values("surprise", ascending=False, kind="stable", ignore_index=True)

    def _cyclic_share(self) -> float:
        """Return the share of the targets' energy that no ranks at all explain."""
        pairs = self.solution_.pairs
        # Neither units nor weights that are next to nothing, as of games long past, may keep it from being computed.
        targets, weights = (v / (np.abs(v).max() or 1.0) for v in (self.solution_.targets, self.solution_.weights))
        with _unconnected():
            best = self._solve(pairs, targets, np.maximum(weights, _NEGLIGIBLE), 0.0, 0.0)
        energy = weights @ targets**2
        return float(weights @ best.surprise**2 / energy) if energy > 0 else 0.0

    def _fit_scale(self, codes: Codes, y: Floats, weights: Floats) -> float:
        """Return the scale that makes a logistic function of held-out margins most likely."""
        if len(codes) < _ENOUGH:
            return 1.0
        margins = np.zeros(len(codes))
        folds = KFold(_FOLDS, shuffle=True, random_state=0)
        for held, found in self._held_out(codes, y, weights, self.conjunctivity_, self.ridge_, folds):
            margins[held] = found
        if not margins.any():
            return 1.0
        # Of those who won, but for a pseudo-observation on either side, as in Platt's calibration: it keeps the scale
        # finite where every margin is right.
        shares = np.full(len(margins), 1 - 1 / (weights.sum() + 2))
        return most_likely_scale(margins * np.sign(y), shares, weights)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the margin of the first item of each pair over the second, shape (m,).

        Raises
        ------
        ValueError
            Not two columns, or labels that were not fitted where ``unknown="raise"``.

        Warns
        -----
        UserWarning
            Labels that were not fitted where ``unknown="zero"``.
        """
        check_is_fitted(self)
        table = _table(X)
        validate_data(self, table, skip_check_array=True, reset=False)
        first, second = _columns(table)
        codes = np.column_stack(
            [self._labels.get_indexer(pd.Index(column, tupleize_cols=False)) for column in (first, second)]
        )
        known = (codes >= 0).all(axis=1)
        if not known.all():
            labels = pd.concat([first[codes[:, 0] < 0], second[codes[:, 1] < 0]]).sort_index(kind="stable")
            strange = pd.unique(labels).tolist()
            shown = ", ".join(map(repr, strange[:5])) + (", …" if len(strange) > 5 else "")
            if self.unknown == "raise":
                raise ValueError(f"X must hold labels that were fitted, or set unknown='zero', got {shown}")
            warnings.warn(f"labels that were not fitted have rank 0: {shown}", UserWarning, stacklevel=2)
        ranks = np.append(self.ranks_, 0.0)
        margins: Floats = ranks[codes[:, 0]] - ranks[codes[:, 1]]
        if known.any():
            margins[known] = self.solution_.margins(codes[known])
        return margins

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities that the first and that the second item of each pair wins, shape (m, 2)."""
        check_is_fitted(self)
        first = expit(self.scale_ * self.predict(X))
        return np.column_stack([first, 1 - first])

    def score(self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of pairs whose margin has the sign of `y` (default: the first won); 0 counts half."""
        margins = self.predict(X)
        m = len(margins)
        targets = np.ones(m) if y is None else check_vector(y, "y", length=m)
        weights = np.ones(m) if sample_weight is None else check_vector(sample_weight, "sample_weight", length=m, low=0)
        return _accuracy(margins, targets, weights)


class TransitiveRanker(_Ranker):
    r"""Rank items from comparisons, and remember the pairs that contradict the ranks.

    The margin of a pair is :math:`f(i, j) = r_i - r_j + \text{memory}(i, j)`: see
    `paperworks.transitive.theory.solve_comparisons`. Any graph of comparisons has one finite solution, cycles and
    undefeated items included. With ``conjunctivity=0`` and ``ridge=1``, ½ + r/2 are Colley's ratings.

    Parameters
    ----------
    conjunctivity : float
        α in [0, 1]: 0 ranks only, 1 remembers only. `TransitiveRankerCV` chooses it.
    ridge : float
        λ ≥ 0, against noise.
    solver, tol
        Of `paperworks.transitive.theory.solve_comparisons`.
    unknown : {"raise", "zero"}
        What happens to labels at prediction that were not fitted; ``"zero"`` gives them rank 0, and warns.

    Attributes
    ----------
    classes_ : ndarray, shape (n,)
        The items: sorted, or where they do not compare, as they appeared.
    ranks_ : ndarray, shape (n,)
        r, aligned with `classes_`; larger is better, and 0 is the mean of each connected component.
    ranking_ : ndarray, shape (n,)
        The items, best first.
    exceptions_ : DataFrame
        Pairs whose winner is not ranked above their loser, most surprising first: ``winner``, ``loser``,
        ``margin_by_rank`` (r of the winner minus r of the loser), ``memory`` (what is added to it) and ``surprise``
        (the mean target minus the margin by rank).
    cyclic_share_ : float
        Share in [0, 1] of the squared targets that no ranks explain, whatever they are.
    scale_ : float
        Of the logistic function that turns margins into probabilities: most likely on 5 folds held out, or 1 with
        fewer than 20 rows.
    solution_ : Solution
        Ranks and memory by position in `classes_`.
    conjunctivity_, ridge_ : float
        α and λ used.

    Examples
    --------
    >>> from itertools import combinations
    >>> games = [pair for pair in combinations(["Ann", "Bob", "Cy", "Dan", "Eve"], 2) if pair != ("Bob", "Dan")]
    >>> ranker = TransitiveRanker(conjunctivity=0.3).fit([*games, *games, ("Dan", "Bob")])
    >>> ranker.ranking_.tolist()
    ['Ann', 'Bob', 'Cy', 'Dan', 'Eve']
    >>> ranker.exceptions_.round(2)
      winner loser  margin_by_rank  memory  surprise
    0    Dan   Bob           -0.12    0.26      1.12

    References
    ----------
    Colley: Colley's bias free college football ranking method (2002). Jiang, Lim, Yao and Ye: Statistical ranking and
    combinatorial Hodge theory, Mathematical Programming 127 (2011).
    """

    def __init__(
        self,
        conjunctivity: float = 0.1,
        ridge: float = 1.0,
        *,
        solver: str = "auto",
        tol: float = 1e-10,
        unknown: str = "raise",
    ) -> None:
        self.conjunctivity = conjunctivity
        self.ridge = ridge
        self.solver = solver
        self.tol = tol
        self.unknown = unknown

    def _choose(self, codes: Codes, y: Floats, weights: Floats) -> tuple[float, float]:
        return check_real(self.conjunctivity, "conjunctivity", low=0, high=1), check_real(self.ridge, "ridge", low=0)


class TransitiveRankerCV(_Ranker):
    """A `TransitiveRanker` that chooses conjunctivity and ridge by the accuracy on rows held out.

    The conjunctivity chosen says how exceptional a relation is: how much there is to remember beside an order.

    Parameters
    ----------
    conjunctivities, ridges : sequence of float
        What is tried, in all combinations; of equally good ones the first.
    cv : int or splitter
        A number of folds, whose rows are drawn in the same way every time, or a scikit-learn splitter. An item that is
        only in rows held out has rank 0 there.
    solver, tol, unknown
        As for `TransitiveRanker`.

    Attributes
    ----------
    conjunctivity_, ridge_ : float
        What was chosen.
    cv_results_ : DataFrame
        ``conjunctivity``, ``ridge``, ``accuracy`` (mean over folds, ties count half) and ``se`` (its standard error).
    classes_, ranks_, ranking_, exceptions_, cyclic_share_, scale_, solution_
        As for `TransitiveRanker`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> pairs = rng.permuted(np.tile(np.arange(12), (300, 1)), axis=1)[:, :2]
    >>> ranker = TransitiveRankerCV().fit(pairs, np.sign(pairs[:, 1] - pairs[:, 0]))
    >>> ranker.ranking_.tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    >>> ranker.cv_results_.nlargest(1, "accuracy")[["conjunctivity", "ridge", "accuracy"]]
       conjunctivity  ridge  accuracy
    3           0.02    0.3       1.0
    """

    def __init__(
        self,
        conjunctivities: Iterable[float] = (0.0, 0.02, 0.1, 0.3, 0.6),
        ridges: Iterable[float] = (0.3, 1.0, 3.0),
        *,
        cv: Any = 5,
        solver: str = "auto",
        tol: float = 1e-10,
        unknown: str = "raise",
    ) -> None:
        self.conjunctivities = conjunctivities
        self.ridges = ridges
        self.cv = cv
        self.solver = solver
        self.tol = tol
        self.unknown = unknown

    def _choose(self, codes: Codes, y: Floats, weights: Floats) -> tuple[float, float]:
        alphas = [check_real(alpha, "conjunctivities", low=0, high=1) for alpha in self.conjunctivities]
        ridges = [check_real(ridge, "ridges", low=0) for ridge in self.ridges]
        if not alphas or not ridges:
            raise ValueError("conjunctivities and ridges must not be empty")
        folds = KFold(self.cv, shuffle=True, random_state=0) if isinstance(self.cv, Integral) else check_cv(self.cv)
        rows = []
        for alpha in alphas:
            for ridge in ridges:
                scores = [
                    _accuracy(margins, y[held], weights[held])
                    for held, margins in self._held_out(codes, y, weights, alpha, ridge, folds)
                ]
                error = np.std(scores, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else np.nan
                rows.append((alpha, ridge, float(np.mean(scores)), float(error)))
        self.cv_results_ = pd.DataFrame(rows, columns=["conjunctivity", "ridge", "accuracy", "se"])
        best = int(self.cv_results_["accuracy"].to_numpy().argmax())
        return rows[best][0], rows[best][1]


def _table(X: Any) -> NDArray[Any] | pd.DataFrame:
    """Return pairs of labels with two columns, without changing the labels."""
    if sparse.issparse(X):
        raise TypeError("X must be pairs of labels, got a sparse matrix")
    if hasattr(X, "__array__") and not isinstance(X, pd.DataFrame):
        X = np.asarray(X)
    if not isinstance(X, (np.ndarray, pd.DataFrame)):
        if not isinstance(X, Iterable):
            raise TypeError(f"X must be pairs of labels, got {X!r}")
        rows = list(X)
        kinds = set(map(type, rows))
        if any(not issubclass(kind, Collection) or issubclass(kind, (str, bytes, Set, Mapping)) for kind in kinds):
            raise ValueError("X: expected shape (m, 2), got rows that are not pairs")
        lengths = set(map(len, rows))
        if lengths != {2}:
            raise ValueError(f"X: expected shape (m, 2), got {len(rows)} rows of length {sorted(lengths)}")
        X = np.fromiter(chain.from_iterable(rows), dtype=object, count=2 * len(rows)).reshape(-1, 2)
    table: NDArray[Any] | pd.DataFrame = X
    if table.ndim != 2 or table.shape[1] != 2 or not len(table):
        raise ValueError(f"X: expected shape (m, 2) with m >= 1, got {table.shape}")
    return table


def _columns(table: NDArray[Any] | pd.DataFrame) -> list[pd.Series[Any]]:
    """Return both columns, with consecutive numbers as index."""
    columns = [table.iloc[:, j] for j in (0, 1)] if isinstance(table, pd.DataFrame) else table.T
    return [pd.Series(np.asarray(column)) for column in columns]


def _encode(table: NDArray[Any] | pd.DataFrame, kept: Codes) -> tuple[pd.Index[Any], Codes]:
    """Return the distinct labels of the rows kept, and the pairs by position among them."""
    found, labels = pd.factorize(pd.concat([column.iloc[kept] for column in _columns(table)]).to_numpy())
    if (found < 0).any():
        row = int(kept[int(np.argmin(found)) % len(kept)])
        raise ValueError(f"X must not hold missing labels, got one in row {row}")
    try:
        order = np.argsort(labels)
    except TypeError:  # labels of different kinds
        order = np.arange(len(labels))
    codes = np.argsort(order)[found].reshape(2, -1).T
    same = codes[:, 0] == codes[:, 1]
    if same.any():
        row = int(np.argmax(same))
        (label,) = labels[found[row : row + 1]].tolist()
        raise ValueError(f"X compares an item with itself in row {kept[row]}: {label!r}")
    return pd.Index(labels, tupleize_cols=False).infer_objects()[order], codes


def _unconnected() -> warnings.catch_warnings[None]:
    """Return a context without the warning of comparisons that do not connect all items."""
    return warnings.catch_warnings(action="ignore", category=UserWarning)


def _accuracy(margins: Floats, targets: Floats, weights: Floats) -> float:
    """Return the weighted share of margins with the sign of their target; ties count half."""
    agreement = np.where(np.abs(margins) < _TIE * np.abs(margins).max(), 0.0, np.sign(margins * targets))
    return float(np.average((1 + agreement) / 2, weights=weights))
