"""Conjunctivity and ridge of a learner, from how it answers on the pairs of a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import optimize
from scipy.special import expit, logit, xlog1py, xlogy

from paperworks.core.validation import check_choice, check_vector
from paperworks.transitive.tasks import TransitiveTask, check_pairs
from paperworks.transitive.theory import effective_conjunctivity, predict_margins

__all__ = ["TheoryFit", "fit_theory", "most_likely_scale", "read_answers"]

Floats = NDArray[np.float64]

_ALPHAS = (1e-3, 0.98)
_RIDGES = (1e-4, 20.0)
_STARTS = ((0.2, 0.14), (0.08, 0.02), (0.27, 1.0))
# The 95 % quantile of χ² with one degree of freedom.
_CONFIDENCE = 3.841459
# The win rates nearer to ½ say nothing of the sign.
_UNDECIDED = 0.05
_LARGEST_SCALE = 1e6


@dataclass(frozen=True, eq=False)
class TheoryFit:
    """What the answers on the pairs of a task say of the learner.

    Attributes
    ----------
    alpha, ridge : float
        Conjunctivity α and ridge λ, in the units of `paperworks.transitive.theory.solve_comparisons`.
    alpha_eff : float
        (α + λ)/(1 + λ), which the ranks depend on alone where all weights are equal.
    scale : float
        Of the margins, in the units of the answers, or of log odds with the logistic link.
    r2 : float
        Share of the answers' variance that is explained; negative where their mean says more.
    aic : float
        Akaike's criterion; compare it with that of the baselines.
    alpha_interval : tuple of float
        95 % interval of α by its profile likelihood, inside [0.001, 0.98].
    baselines : DataFrame
        ``ridge``, ``scale``, ``r2`` and ``aic`` of ``additive`` (α = λ = 0) and, where the ridge is fitted, of
        ``rank_only`` (α = 0).
    identified : bool
        Whether α can be told: not where answers to trained pairs are missing and the ridge is fitted, which leaves
        `alpha_eff` alone; nor where the answers hardly vary, so that their mean explains as much or every α fits.
    link : {"identity", "logistic"}
        From margins to answers.
    """

    alpha: float
    ridge: float
    alpha_eff: float
    scale: float
    r2: float
    aic: float
    alpha_interval: tuple[float, float]
    baselines: pd.DataFrame
    identified: bool
    link: str

    def predict(self, task: TransitiveTask) -> NDArray[np.float64]:
        """Return the answers expected on every pair of `task`, shape (n, n), in the units of those fitted.

        Examples
        --------
        >>> seen = TransitiveTask(9)
        >>> fit = fit_theory(predict_margins(seen, 0.2, 0.1).margins, seen)
        >>> answers = fit.predict(TransitiveTask(11, exception=(7, 3)))
        >>> answers[[0, 3], [10, 7]].round(3)
        array([ 1.451, -0.816])
        """
        margins = predict_margins(task, self.alpha, self.ridge).margins
        return np.asarray(_answers(margins, self.scale, self.link))

    def transfer_score(self, observed: ArrayLike | pd.DataFrame, task: TransitiveTask) -> pd.DataFrame:
        """Return how well this fit predicts the untrained pairs of another task, of which it has seen nothing.

        Parameters
        ----------
        observed : ndarray or DataFrame
            As in `fit_theory`. A column ``win_rate`` says which pairs are undecided, within 0.05 of ½.
        task : TransitiveTask
            What `observed` was trained on.

        Returns
        -------
        DataFrame
            ``scale`` (fitted to the answers, alone), ``r`` (correlation of margins and answers), ``r2`` and
            ``sign_agreement`` (share of the decided pairs) of ``theory``, and of ``additive``, α = λ = 0.

        Raises
        ------
        ValueError
            Fewer than four untrained pairs were observed, or they are all equal.

        Examples
        --------
        >>> seen, other = TransitiveTask(9), TransitiveTask(9, exception=(5, 3))
        >>> fit = fit_theory(predict_margins(seen, 0.2, 0.1).margins, seen)
        >>> fit.transfer_score(5 * predict_margins(other, 0.2, 0.1).margins, other).round(2)
                  scale     r    r2  sign_agreement
        theory     5.00  1.00  1.00            1.00
        additive   0.97  0.84  0.65            0.93
        """
        data = _select(read_answers(observed, task, self.link), task, "test")
        chance = 0.5 if self.link == "logistic" else 0.0
        lead = data["win_rate"] - 0.5 if "win_rate" in data else data["value"] - chance
        decided = np.abs(lead) > (_UNDECIDED if "win_rate" in data or self.link == "logistic" else 0.0)
        rows = {}
        for name, alpha, ridge in (("theory", self.alpha, self.ridge), ("additive", 0.0, 0.0)):
            scored = _Score.of(_at(predict_margins(task, alpha, ridge).margins, data), data, self.link)
            rows[name] = {
                "scale": scored.scale,
                "r": np.corrcoef(scored.margins, data["value"])[0, 1],
                "r2": scored.r2,
                "sign_agreement": (np.sign(scored.margins) == np.sign(lead))[decided].mean(),
            }
        return pd.DataFrame.from_dict(rows, orient="index")


def fit_theory(
    observed: ArrayLike | pd.DataFrame,
    task: TransitiveTask,
    link: str = "identity",
    fit_ridge: bool = True,
    pairs: str = "all",
) -> TheoryFit:
    """Fit conjunctivity, ridge and scale to the answers of a learner.

    Least squares of margins with the identity link, maximum likelihood of shares with the logistic one, over
    0.001 ≤ α ≤ 0.98 and 0.0001 ≤ λ ≤ 20.

    Parameters
    ----------
    observed : ndarray, shape (n, n), or DataFrame
        Answers on ordered pairs. Of a matrix, entry (i, j) is the margin of i over j, or the share in which i is chosen
        over j; NaN is missing and the diagonal is not read. Of a DataFrame, ``first``, ``second`` and ``value``, and
        optionally ``n``, the number of trials (default: 1). Several answers on a pair, in either order, are averaged.
    task : TransitiveTask
        What the learner was trained on.
    link : {"identity", "logistic"}
        ``"identity"`` for margins, such as logits; ``"logistic"`` for shares in [0, 1].
    fit_ridge : bool
        Otherwise λ = 0.
    pairs : {"all", "test"}
        ``"test"`` leaves trained pairs out. Then α and λ are only told apart where an exception has another weight.

    Returns
    -------
    TheoryFit

    Raises
    ------
    ValueError, TypeError
        Fewer than four pairs with an answer, all answers equal, or answers that are not of this task.

    Examples
    --------
    >>> from paperworks.transitive.data import load_jensen
    >>> fit = fit_theory(load_jensen("monkeys"), TransitiveTask(7), link="logistic")
    >>> round(fit.r2, 2), fit.baselines["r2"].round(2).to_dict()
    (0.88, {'additive': 0.73, 'rank_only': 0.87})
    """
    check_choice(link, "link", ("identity", "logistic"))
    check_choice(pairs, "pairs", ("all", "test"))
    data = _select(read_answers(observed, task, link), task, pairs)

    def score(alpha: float, ridge: float) -> _Score:
        return _Score.of(_at(predict_margins(task, alpha, ridge).margins, data), data, link)

    alpha, ridge = _best(score, fit_ridge)
    best = score(alpha, ridge)
    interval = _interval(score, alpha, ridge, fit_ridge)
    rivals = {"additive": (0.0, score(0.0, 0.0), 1)}
    if fit_ridge:
        shrunk = _best_ridge(score, 0.0)
        rivals["rank_only"] = (shrunk, score(0.0, shrunk), 2)
    separable = not fit_ridge or bool(data["trained"].any())
    return TheoryFit(
        alpha=alpha,
        ridge=ridge,
        alpha_eff=effective_conjunctivity(alpha, ridge),
        scale=best.scale,
        r2=best.r2,
        aic=best.misfit + 2 * (3 if fit_ridge else 2),
        alpha_interval=interval,
        baselines=pd.DataFrame.from_dict(
            {
                name: {"ridge": at, "scale": rival.scale, "r2": rival.r2, "aic": rival.misfit + 2 * count}
                for name, (at, rival, count) in rivals.items()
            },
            orient="index",
        ),
        identified=separable and best.r2 > 0 and interval != _ALPHAS,
        link=link,
    )


def most_likely_scale(margins: Floats, shares: Floats, weights: Floats) -> float:
    """Return the s ≥ 0 at which σ(s·margin) makes the shares most likely, at most 10⁶ over the largest margin.

    Parameters
    ----------
    margins, shares, weights : ndarray, shape (m,)
        Margins of the first over the second, shares in which the first won, and numbers of trials.

    Examples
    --------
    >>> round(most_likely_scale(np.array([1.0, 2.0]), expit(np.array([3.0, 6.0])), np.ones(2)), 6)
    3.0
    """

    def slope(scale: float) -> float:
        return float((weights * margins) @ (expit(scale * margins) - shares))

    spread = float(np.abs(margins).max())
    if spread == 0 or slope(0.0) >= 0:
        return 0.0
    high = 1 / spread
    while slope(high) < 0:
        if high * spread >= _LARGEST_SCALE:
            return high
        high *= 2
    return float(optimize.brentq(slope, 0.0, high, xtol=1e-14 * high))


@dataclass(frozen=True, eq=False)
class _Score:
    """Margins with their best scale, and how far the answers are from them.

    `residuals` are signed, and their squares add up to the squared error, or the deviance with the logistic link.
    `misfit` is minus twice the log-likelihood, up to a constant.
    """

    margins: Floats
    scale: float
    residuals: Floats
    misfit: float
    r2: float

    @classmethod
    def of(cls, margins: Floats, data: pd.DataFrame, link: str) -> _Score:
        value, n = data["value"].to_numpy(), data["n"].to_numpy()
        weights = n / n.mean()
        if link == "logistic":
            scale = most_likely_scale(margins, value, n)
            fitted = expit(scale * margins)
            lost = xlogy(value, value) + xlog1py(1 - value, -value) - _log_likelihood(value, scale * margins)
            residuals = np.sign(value - fitted) * np.sqrt(2 * n * np.maximum(lost, 0.0))
            misfit = -2 * float(n @ _log_likelihood(value, scale * margins))
        else:
            power = float(weights @ margins**2)
            scale = max(0.0, float(weights @ (margins * value)) / power) if power > 0 else 0.0
            fitted = scale * margins
            residuals = np.sqrt(weights) * (value - fitted)
            # Rounding alone keeps an exact fit from an infinite likelihood.
            noise = max(float(residuals @ residuals), 1e-28 * float(weights @ value**2))
            misfit = len(value) * float(np.log(noise / len(value)))
        spread = float(weights @ (value - np.average(value, weights=weights)) ** 2)
        return cls(margins, scale, residuals, misfit, 1 - float(weights @ (value - fitted) ** 2) / spread)


Scorer = Callable[[float, float], _Score]


def _log_likelihood(shares: Floats, logits: Floats) -> Floats:
    return np.asarray(-shares * np.logaddexp(0, -logits) - (1 - shares) * np.logaddexp(0, logits))


def _answers(margins: Floats, scale: float, link: str) -> Floats:
    return np.asarray(expit(scale * margins) if link == "logistic" else scale * margins)


def _at(margins: Floats, data: pd.DataFrame) -> Floats:
    return np.asarray(margins[data["first"], data["second"]])


def _best(score: Scorer, fit_ridge: bool) -> tuple[float, float]:
    """Return the conjunctivity and the ridge with the smallest residuals, of three starts."""
    bounds = np.array([logit(_ALPHAS), np.log(_RIDGES)])[: 2 if fit_ridge else 1]

    def parameters(x: Floats) -> tuple[float, float]:
        alpha = float(np.clip(expit(x[0]), *_ALPHAS))
        return alpha, float(np.exp(x[1])) if fit_ridge else 0.0

    found = []
    for alpha, ridge in _STARTS:
        start = np.array([logit(alpha), np.log(ridge)])[: len(bounds)]
        found.append(
            optimize.least_squares(
                lambda x: score(*parameters(x)).residuals, start, bounds=bounds.T, xtol=1e-10, ftol=1e-12, gtol=1e-12
            )
        )
    return parameters(min(found, key=lambda result: result.cost).x)


def _best_ridge(score: Scorer, alpha: float) -> float:
    """Return the ridge with the smallest residuals at this conjunctivity."""
    result = optimize.minimize_scalar(
        lambda x: score(alpha, float(np.exp(x))).misfit, bounds=np.log(_RIDGES), options={"xatol": 1e-3}
    )
    return float(np.exp(result.x))


def _interval(score: Scorer, alpha: float, ridge: float, fit_ridge: bool) -> tuple[float, float]:
    """Return where twice the profile log-likelihood of α is within the χ² quantile of its maximum."""
    least = score(alpha, ridge).misfit

    inside = float(logit(alpha))

    def excess(x: float) -> float:
        if x == inside:
            return -_CONFIDENCE
        at = float(expit(x))
        return score(at, _best_ridge(score, at) if fit_ridge else 0.0).misfit - least - _CONFIDENCE

    def end(bound: float) -> float:
        outside = float(logit(bound))
        if abs(inside - outside) < 1e-6 or excess(outside) <= 0:
            return bound
        return float(expit(optimize.brentq(excess, inside, outside, xtol=1e-3)))

    return end(_ALPHAS[0]), end(_ALPHAS[1])


def read_answers(observed: ArrayLike | pd.DataFrame, task: TransitiveTask, link: str) -> pd.DataFrame:
    """Return one answer a pair, as `fit_theory` reads them.

    Parameters
    ----------
    observed, task, link
        As of `fit_theory`.

    Returns
    -------
    DataFrame
        ``first`` < ``second``, mean ``value``, number of trials ``n``, ``trained``, and ``win_rate`` if it was given.

    Raises
    ------
    ValueError, TypeError
        Answers that are not of this task.

    Examples
    --------
    >>> answers = pd.DataFrame({"first": [0, 1], "second": [1, 0], "value": [2.0, -1.0]})
    >>> read_answers(answers, TransitiveTask(3), "identity")[["first", "second", "value"]].to_numpy().tolist()
    [[0.0, 1.0, 1.5]]
    """
    n_items = task.n_items
    if isinstance(observed, pd.DataFrame):
        absent = {"first", "second", "value"} - set(observed.columns)
        if absent:
            raise ValueError(f"observed must have columns first, second and value, got none named {sorted(absent)}")
        table = observed[[name for name in ("first", "second", "value", "n", "win_rate") if name in observed]]
    else:
        matrix = np.asarray(observed, dtype=np.float64)
        if matrix.shape != (n_items, n_items):
            raise ValueError(f"observed must have shape ({n_items}, {n_items}), got {matrix.shape}")
        first, second = np.nonzero(~np.eye(n_items, dtype=bool))
        table = pd.DataFrame({"first": first, "second": second, "value": matrix[first, second]})
    table = table[table["value"].notna()]
    if table.empty:
        raise ValueError("cannot identify conjunctivity: observed has no finite value")
    items = check_pairs(table[["first", "second"]].to_numpy(), n_items, "observed")
    trials = check_vector(table["n"], "n", low=0) if "n" in table else np.ones(len(table))
    flipped = items[:, 0] > items[:, 1]
    columns = {"first": items.min(axis=1), "second": items.max(axis=1), "n": trials}
    answered = [name for name in ("value", "win_rate") if name in table]
    for name in answered:
        answers = check_vector(table[name], name)
        is_share = name == "win_rate" or link == "logistic"
        if is_share and ((answers < 0) | (answers > 1)).any():
            raise ValueError(f"{name} must be shares in [0, 1], got {answers.min():g} to {answers.max():g}")
        columns[name] = trials * np.where(flipped, is_share - answers, answers)
    sums = pd.DataFrame(columns)[trials > 0].groupby(["first", "second"], as_index=False).sum()
    sums[answered] = sums[answered].div(sums["n"], axis=0)
    shown = np.sort(task.pairs, axis=1) @ (n_items, 1)
    return sums.assign(trained=np.isin(sums["first"] * n_items + sums["second"], shown))


def _select(data: pd.DataFrame, task: TransitiveTask, pairs: str) -> pd.DataFrame:
    """Return the pairs to fit, if there are enough."""
    chosen = data if pairs == "all" else data[~data["trained"]]
    if len(chosen) < 4 or chosen["value"].nunique() == 1:
        what = "answers" if pairs == "all" else "answers on untrained pairs"
        raise ValueError(f"cannot identify conjunctivity: needs 4 {what} that differ, got {len(chosen)} {what}")
    return chosen.reset_index(drop=True)
