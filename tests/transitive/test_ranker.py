"""The estimators against dense kernel regression, Colley's ratings and scikit-learn's protocol."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.utils.estimator_checks import check_estimator

from paperworks.transitive.ranker import ConjunctiveRidge, TransitiveRanker, TransitiveRankerCV
from paperworks.transitive.theory import solve_comparisons

TWO_COLUMNS = dict.fromkeys(
    [
        "check_all_zero_sample_weights_error",
        "check_complex_data",
        "check_dict_unchanged",
        "check_dont_overwrite_parameters",
        "check_dtype_object",
        "check_estimators_dtypes",
        "check_estimators_empty_data_messages",
        "check_estimators_nan_inf",
        "check_estimators_pickle",
        "check_f_contiguous_array_estimator",
        "check_fit2d_1feature",
        "check_fit2d_1sample",
        "check_fit2d_predict1d",
        "check_fit_score_takes_y",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_n_features_in_after_fitting",
        "check_pipeline_consistency",
        "check_positive_only_tag_during_fit",
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weights_list",
    ],
    "comparisons have exactly two columns",
)
OTHER_ITEMS = dict.fromkeys(
    [
        "check_sample_weights_not_an_array",
        "check_sample_weights_not_overwritten",
        "check_sample_weights_pandas_series",
        "check_sample_weights_shape",
    ],
    "an item is not compared with itself",
)


def kernel(X: np.ndarray, Z: np.ndarray, alpha: float) -> np.ndarray:
    equal = X[:, None] == Z[None]
    return (1 - alpha) * equal.mean(axis=2) + alpha * equal.all(axis=2)


def random_games(seed: int, n: int = 6, m: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs with repetitions in both orders, signed targets and weights."""
    rng = np.random.default_rng(seed)
    pairs = rng.permuted(np.tile(np.arange(n), (m, 1)), axis=1)[:, :2]
    return pairs, rng.normal(size=m).round(1), rng.integers(1, 4, m).astype(float)


class TestConjunctiveRidge:
    @pytest.mark.untyped
    def test_scikit_learn_protocol(self) -> None:
        check_estimator(ConjunctiveRidge(), on_skip=None)

    @settings(max_examples=20)
    @given(st.integers(0, 999), st.integers(1, 4), st.sampled_from([4, 60]), st.sampled_from([0.0, 0.2, 1.0]))
    def test_is_kernel_ridge_of_the_kernel(self, seed: int, d: int, m: int, alpha: float) -> None:
        """With few rows and with few levels, which are solved in different forms."""
        rng = np.random.default_rng(seed)
        X, new = rng.integers(0, 3, (m, d)), rng.integers(0, 4, (20, d))
        y, weights = rng.normal(size=m), rng.uniform(0.5, 2, m)
        dense = KernelRidge(alpha=0.3, kernel="precomputed").fit(kernel(X, X, alpha), y, sample_weight=weights)
        model = ConjunctiveRidge(alpha, ridge=0.3).fit(X, y, sample_weight=weights)
        np.testing.assert_allclose(model.predict(new), dense.predict(kernel(new, X, alpha)), atol=1e-10)

    def test_both_orders_of_pairs_give_the_solution_of_comparisons(self) -> None:
        pairs = np.array([(0, 1), (1, 2), (2, 3), (3, 4), (3, 1)])
        X, y = np.vstack([pairs, pairs[:, ::-1]]), np.repeat([1.0, -1.0], 5)
        model = ConjunctiveRidge(0.2, ridge=0.1).fit(X, y)
        every = np.argwhere(~np.eye(5, dtype=bool))
        margins = solve_comparisons(5, pairs, conjunctivity=0.2, ridge=0.1).margins(every)
        np.testing.assert_allclose(model.predict(every), margins, atol=1e-12)

    @pytest.mark.untyped
    def test_bad_numbers(self) -> None:
        X, y = [["a"], ["b"]], [1.0, 2.0]
        with pytest.raises(ValueError, match=r"conjunctivity must be in \[0, 1\], got 1.5"):
            ConjunctiveRidge(1.5).fit(X, y)
        with pytest.raises(ValueError, match="ridge must be non-negative, got -1"):
            ConjunctiveRidge(ridge=-1).fit(X, y)
        with pytest.raises(ValueError, match="ridge must be positive, got 0"):
            ConjunctiveRidge(0.0, ridge=0).fit(X, y)


class TestTransitiveRanker:
    @pytest.mark.untyped
    @pytest.mark.filterwarnings("ignore:.* components", "ignore:labels that were not fitted")
    def test_scikit_learn_protocol(self) -> None:
        expected = TWO_COLUMNS | OTHER_ITEMS
        results = check_estimator(
            TransitiveRanker(unknown="zero"), expected_failed_checks=expected, on_fail=None, on_skip=None
        )
        failed = {result["check_name"] for result in results if result["status"] == "xfail"}
        assert failed == set(expected)
        assert not [result for result in results if result["status"] == "failed"]

    @settings(max_examples=20)
    @given(st.integers(0, 999), st.sampled_from([0.0, 0.3, 0.9]), st.sampled_from([0.1, 2.0]))
    def test_is_the_regression_on_every_single_row(self, seed: int, alpha: float, ridge: float) -> None:
        pairs, y, weights = random_games(seed)
        X = np.vstack([pairs, pairs[:, ::-1]])
        dense = KernelRidge(alpha=ridge, kernel="precomputed").fit(
            kernel(X, X, alpha), np.r_[y, -y], sample_weight=np.r_[weights, weights]
        )
        every = np.argwhere(~np.eye(6, dtype=bool))
        names = np.array(["f", "a", "c", "b", "e", "d"])
        ranker = TransitiveRanker(alpha, ridge).fit(names[pairs], y, sample_weight=weights)
        np.testing.assert_allclose(ranker.predict(names[every]), dense.predict(kernel(every, X, alpha)), atol=1e-9)

    def test_colley(self) -> None:
        pairs, _, counts = random_games(3)
        ranker = TransitiveRanker(0.0, 1.0).fit(pairs, sample_weight=counts)
        matrix, wins = 2 * np.eye(6), np.ones(6)
        for (winner, loser), count in zip(pairs, counts, strict=True):
            matrix[[winner, loser], [winner, loser]] += count
            matrix[[winner, loser], [loser, winner]] -= count
            wins[[winner, loser]] += np.array([0.5, -0.5]) * count
        np.testing.assert_allclose(0.5 + ranker.ranks_ / 2, np.linalg.solve(matrix, wins), atol=1e-12)

    def test_counts_are_repeated_rows(self) -> None:
        pairs, y, counts = random_games(4)
        counts[:3] = 0
        repeated = np.repeat(np.arange(len(pairs)), counts.astype(int))
        a = TransitiveRanker().fit(pairs, y, sample_weight=counts)
        b = TransitiveRanker().fit(pairs[repeated], y[repeated])
        np.testing.assert_allclose(a.ranks_, b.ranks_, atol=1e-12)
        pd.testing.assert_frame_equal(a.exceptions_, b.exceptions_)
        assert a.cyclic_share_ == pytest.approx(b.cyclic_share_)

    def test_a_row_says_the_same_in_either_order(self) -> None:
        pairs, y, _ = random_games(5)
        a, b = TransitiveRanker().fit(pairs, y), TransitiveRanker().fit(pairs[:, ::-1], -y)
        np.testing.assert_allclose(a.ranks_, b.ranks_, atol=1e-12)
        assert a.score(pairs, y) == b.score(pairs[:, ::-1], -y)
        table = a.exceptions_
        pd.testing.assert_frame_equal(table, b.exceptions_)
        assert len(table) > 2
        margins = a.predict(table[["winner", "loser"]].to_numpy())
        np.testing.assert_allclose(table["margin_by_rank"] + table["memory"], margins)

    def test_a_circle_is_all_exception(self) -> None:
        ranker = TransitiveRanker(conjunctivity=0.1, ridge=0.0).fit([("Ann", "Bob"), ("Bob", "Cy"), ("Cy", "Ann")])
        np.testing.assert_allclose(ranker.ranks_, 0, atol=1e-12)
        assert ranker.cyclic_share_ == pytest.approx(1)
        assert len(ranker.exceptions_) == 3
        np.testing.assert_allclose(ranker.exceptions_[["memory", "surprise"]], 1)

    def test_exceptions_are_told_apart_and_add_up(self) -> None:
        """Rational ranks (3, 1, 0, -1, 0, 1, 0, -1, -3)/5 of nine items of which 5 beats 3."""
        games = [(i, i + 1) for i in range(8)] + [(5, 3)]
        ranker = TransitiveRanker(conjunctivity=1 / 3, ridge=0.0).fit(games)
        np.testing.assert_allclose(5 * ranker.ranks_, [3, 1, 0, -1, 0, 1, 0, -1, -3], atol=1e-9)
        table = ranker.exceptions_
        assert sorted(table[["winner", "loser"]].to_numpy().tolist()) == [[3, 4], [4, 5]]
        np.testing.assert_allclose(table["margin_by_rank"] + table["memory"], 1)
        np.testing.assert_allclose(table["margin_by_rank"] + table["surprise"], 1)

    @given(st.integers(0, 999))
    @settings(max_examples=15)
    def test_cyclic_share_is_what_no_ranks_explain(self, seed: int) -> None:
        pairs, y, weights = random_games(seed, m=12)
        keep = np.unique(np.sort(pairs, axis=1), axis=0, return_index=True)[1]
        pairs, y, weights = pairs[keep], y[keep] + 0.05, weights[keep]
        design = np.sqrt(weights)[:, None] * (np.eye(6)[pairs[:, 0]] - np.eye(6)[pairs[:, 1]])
        target = np.sqrt(weights) * y
        residual = target - design @ np.linalg.lstsq(design, target)[0]
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # they need not be connected
            ranker = TransitiveRanker().fit(pairs, y, sample_weight=weights)
        assert ranker.cyclic_share_ == pytest.approx(residual @ residual / (target @ target), abs=1e-10)

    def test_an_order_has_no_cyclic_share(self) -> None:
        assert TransitiveRanker().fit([("a", "b"), ("b", "c")]).cyclic_share_ == pytest.approx(0, abs=1e-12)
        assert TransitiveRanker().fit([("a", "b"), ("b", "a")]).cyclic_share_ == 0

    def test_neither_units_nor_games_long_past_change_the_cyclic_share(self) -> None:
        games = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e")]
        ranker = TransitiveRanker().fit(games, sample_weight=[1.0, 1.0, 1.0, 2.0**-80, 2.0**-160])
        assert ranker.cyclic_share_ == pytest.approx(1)
        assert TransitiveRanker().fit(games, np.full(5, 1e200)).cyclic_share_ == pytest.approx(3 / 5)
        assert TransitiveRanker().fit(games, sample_weight=np.full(5, 1e305)).cyclic_share_ == pytest.approx(3 / 5)

    def test_probabilities(self) -> None:
        pairs, y, weights = random_games(6, m=80)
        y += pairs[:, 1] - pairs[:, 0]
        ranker = TransitiveRanker().fit(pairs, y, sample_weight=weights)
        held = np.zeros(80)
        for kept, out in KFold(5, shuffle=True, random_state=0).split(pairs):
            held[out] = TransitiveRanker().fit(pairs[kept], y[kept], sample_weight=weights[kept]).predict(pairs[out])
        won, lost = held * np.sign(y), 1 / (weights.sum() + 2)

        def loss(scale: float) -> float:
            return float(weights @ (np.logaddexp(0, -scale * won) + lost * scale * won))

        best = minimize_scalar(loss, bounds=(0, 100), options={"xatol": 1e-10})
        assert ranker.scale_ == pytest.approx(best.x, rel=1e-5)
        proba = ranker.predict_proba(pairs)
        np.testing.assert_allclose(proba.sum(axis=1), 1)
        np.testing.assert_allclose(proba[:, 0], 1 / (1 + np.exp(-ranker.scale_ * ranker.predict(pairs))))
        assert TransitiveRanker().fit(pairs[:19]).scale_ == 1

    def test_scale_is_finite_where_every_margin_is_right_and_zero_where_most_are_wrong(self) -> None:
        order = np.array([(i, j) for i in range(8) for j in range(i + 1, 8)])
        assert 1 < TransitiveRanker().fit(order).scale_ < 1e3
        contrary = np.vstack([order, order[:, ::-1]])
        assert TransitiveRanker().fit(contrary).scale_ == 0

    def test_score_counts_ties_half(self) -> None:
        ranker = TransitiveRanker().fit([("a", "b"), ("b", "c"), ("c", "a"), ("a", "d")])
        assert ranker.score([("a", "d"), ("d", "a")]) == 0.5
        assert ranker.score([("b", "b")]) == 0.5
        assert ranker.score([("a", "d"), ("d", "a")], [1.0, -1.0]) == 1
        assert ranker.score([("a", "d"), ("d", "a")], sample_weight=[3.0, 1.0]) == 0.75

    def test_unknown_labels(self) -> None:
        games = [("a", "b"), ("b", "c")]
        with pytest.raises(ValueError, match="'q', 'r', 's', 't', 'u', …"):
            TransitiveRanker().fit(games).predict([("q", "a"), ("r", "s"), ("t", "u"), ("v", "q")])
        lenient = TransitiveRanker(unknown="zero").fit(games)
        with pytest.warns(UserWarning, match="labels that were not fitted have rank 0: 'z'"):
            margins = lenient.predict([("a", "z"), ("z", "z"), ("a", "b")])
        np.testing.assert_allclose(margins, [lenient.ranks_[0], 0, lenient.predict([("a", "b")])[0]])

    def test_components_are_named(self) -> None:
        with pytest.warns(UserWarning, match="2 components: ranks are not comparable across them"):
            ranker = TransitiveRanker().fit([("a", "b"), ("c", "d")])
        assert ranker.ranks_[:2].sum() == pytest.approx(0)

    @pytest.mark.parametrize(
        ("X", "classes"),
        [
            ([(3, 1), (1, 2)], [1, 2, 3]),
            ([("x", 1), (1, "a")], ["x", 1, "a"]),
            ([((0, 1), (2, 3)), ((2, 3), (4, 5))], [(0, 1), (2, 3), (4, 5)]),
            (pd.DataFrame({"winner": pd.Categorical(["b", "a"]), "loser": ["a", "c"]}), ["a", "b", "c"]),
            (pd.DataFrame({"winner": [1, 2], "loser": ["1", "2"]}), [1, 2, "1", "2"]),
        ],
    )
    @pytest.mark.filterwarnings("ignore:2 components")
    def test_labels_are_what_they_were(self, X: Any, classes: list[Any]) -> None:
        ranker = TransitiveRanker().fit(X)
        assert ranker.classes_.tolist() == classes
        assert (ranker.predict(X) > 0).all()

    @pytest.mark.untyped
    @pytest.mark.parametrize(
        ("X", "message"),
        [
            ([], r"expected shape \(m, 2\), got 0 rows"),
            (np.zeros((0, 2)), r"expected shape \(m, 2\) with m >= 1, got \(0, 2\)"),
            (np.zeros((4, 3)), r"expected shape \(m, 2\) with m >= 1, got \(4, 3\)"),
            ([("a", "b"), ("a", "b", "c")], r"expected shape \(m, 2\), got 2 rows of length \[2, 3\]"),
            (["ab", "cd"], r"expected shape \(m, 2\), got rows that are not pairs"),
            ([{"a", "b"}], r"expected shape \(m, 2\), got rows that are not pairs"),
            ([iter("ab")], r"expected shape \(m, 2\), got rows that are not pairs"),
            ([("a", "b"), ("c", "c")], "X compares an item with itself in row 1: 'c'"),
            ([("a", "b"), ("a", None)], "X must not hold missing labels, got one in row 1"),
            (np.array([[0.0, 1.0], [np.nan, 1.0]]), "X must not hold missing labels, got one in row 1"),
        ],
    )
    def test_bad_pairs(self, X: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            TransitiveRanker().fit(X)

    @pytest.mark.untyped
    def test_no_pairs(self) -> None:
        with pytest.raises(TypeError, match="X must be pairs of labels, got None"):
            TransitiveRanker().fit(None)

    @pytest.mark.untyped
    @pytest.mark.parametrize(
        ("parameters", "arguments", "message"),
        [
            ({"conjunctivity": 1.1}, {}, r"conjunctivity must be in \[0, 1\], got 1.1"),
            ({"ridge": -1}, {}, "ridge must be non-negative, got -1"),
            ({"tol": 0}, {}, "tol must be positive"),
            ({"solver": "lu"}, {}, "solver must be one of"),
            ({"unknown": "guess"}, {}, "unknown must be one of 'raise', 'zero', got 'guess'"),
            ({}, {"y": [1.0, np.nan]}, "y must be finite, got nan for entry 1"),
            ({}, {"y": [1.0]}, "y must have length 2, got 1"),
            ({}, {"sample_weight": [1, -1]}, "sample_weight must be non-negative, got -1.0 for entry 1"),
            ({}, {"sample_weight": [0, 0]}, "sample_weight must be positive in some row"),
        ],
    )
    def test_bad_numbers(self, parameters: dict[str, Any], arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            TransitiveRanker(**parameters).fit([("a", "b"), ("b", "c")], **arguments)

    def test_fitting_many_comparisons_is_fast(self, slowdown: float) -> None:
        rng = np.random.default_rng(0)
        i = rng.integers(0, 5000, 100_000)
        pairs = np.column_stack([i, (i + rng.integers(1, 5000, 100_000)) % 5000]).tolist()
        games = [(f"team {a}", f"team {b}") for a, b in pairs]
        start = time.process_time()
        ranker = TransitiveRanker().fit(games)
        # Reading them takes some 0.05 s, and each of the seven solutions as much or a little more.
        assert time.process_time() - start < 3 * slowdown
        assert len(ranker.classes_) == 5000


class TestTransitiveRankerCV:
    def test_is_a_grid_search(self) -> None:
        pairs, y, _ = random_games(7, m=60)
        y += pairs[:, 1] - pairs[:, 0]
        grid = {"conjunctivity": [0.0, 0.5], "ridge": [0.3, 3.0]}
        folds = KFold(4, shuffle=True, random_state=0)
        search = GridSearchCV(TransitiveRanker(unknown="zero"), grid, cv=folds).fit(pairs, y)
        ranker = TransitiveRankerCV((0.0, 0.5), (0.3, 3.0), cv=4).fit(pairs, y)
        np.testing.assert_allclose(ranker.cv_results_["accuracy"], search.cv_results_["mean_test_score"])
        chosen = {"conjunctivity": ranker.conjunctivity_, "ridge": ranker.ridge_}
        assert chosen == search.best_params_
        np.testing.assert_allclose(ranker.ranks_, search.best_estimator_.ranks_)
        same = TransitiveRankerCV((0.0, 0.5), (0.3, 3.0), cv=folds).fit(pairs, y)
        pd.testing.assert_frame_equal(ranker.cv_results_, same.cv_results_)

    def test_an_exceptional_relation_wants_conjunctivity(self) -> None:
        """Repeated games among items whose winner is drawn for each pair, and among items in an order."""
        rng = np.random.default_rng(0)
        pairs = np.array([(i, j) for i in range(10) for j in range(i + 1, 10)])
        drawn = np.where(rng.random(45)[:, None] < 0.5, pairs, pairs[:, ::-1])
        alphas = (0.0, 0.1, 0.6)
        assert TransitiveRankerCV(alphas).fit(np.tile(drawn, (4, 1))).conjunctivity_ > 0
        ranker = TransitiveRankerCV(alphas).fit(np.tile(pairs, (4, 1)))
        assert ranker.conjunctivity_ == 0
        assert ranker.ranking_.tolist() == list(range(10))

    @pytest.mark.untyped
    def test_bad_grid(self) -> None:
        with pytest.raises(ValueError, match=r"conjunctivities must be in \[0, 1\], got 2"):
            TransitiveRankerCV((0.1, 2)).fit([("a", "b"), ("b", "c")])
        with pytest.raises(ValueError, match="conjunctivities and ridges must not be empty"):
            TransitiveRankerCV(ridges=()).fit([("a", "b"), ("b", "c")])
