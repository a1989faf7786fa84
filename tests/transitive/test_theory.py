"""Predictions of the theory: exact rationals, dense kernel regression, closed forms, symmetries and limits."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from paperworks.transitive import theory
from paperworks.transitive.tasks import TransitiveTask
from paperworks.transitive.theory import (
    chain_ranks,
    critical_conjunctivity,
    effective_conjunctivity,
    phase_diagram,
    predict_margins,
    solve_comparisons,
)

Floats = NDArray[np.float64]
BASE = TransitiveTask(9, (5, 3))
EXAMPLES = settings(max_examples=25)
ALPHAS = st.floats(0.0, 0.99)
RIDGES = st.floats(0.0, 10.0)


@st.composite
def chains(draw: st.DrawFn) -> tuple[int, tuple[int, int]]:
    """A number of items and an exception among them."""
    n = draw(st.integers(3, 14))
    loser = draw(st.integers(0, n - 3))
    return n, (draw(st.integers(loser + 2, n - 1)), loser)


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[int, Floats, Floats, Floats]:
    """Connected comparisons with repetitions in both orders, targets and weights."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n = draw(st.integers(3, 8))
    more = rng.integers(0, n, (draw(st.integers(0, 12)), 2))
    more = more[more[:, 0] != more[:, 1]]
    pairs = np.concatenate([np.column_stack([np.arange(n - 1), np.arange(1, n)]), more])
    return n, pairs, rng.normal(size=len(pairs)), rng.uniform(0.3, 3, len(pairs))


def pair_kernel(left: Any, right: Any, alpha: float) -> Floats:
    """Share of equal slots, and whether all are."""
    equal = np.asarray(left)[:, None] == np.asarray(right)[None]
    return np.asarray((1 - alpha) * equal.mean(axis=2) + alpha * equal.all(axis=2))


def dense_regression(n: int, pairs: Any, targets: Floats, weights: Floats, alpha: float, ridge: float) -> Floats:
    """Margins of all ordered pairs by kernel ridge regression on both orders of every row."""
    both = np.concatenate([pairs, np.asarray(pairs)[:, ::-1]])
    system = pair_kernel(both, both, alpha) + np.diag(ridge / np.tile(weights, 2))
    every = np.array([(i, j) for i in range(n) for j in range(n)])
    margins = pair_kernel(every, both, alpha) @ np.linalg.solve(system, np.concatenate([targets, -targets]))
    margins[:: n + 1] = 0.0
    return np.asarray(margins.reshape(n, n))


@pytest.mark.parametrize(
    ("n", "exception", "alpha", "ridge", "numerators", "denominator"),
    [
        (7, None, 1 / 5, 1 / 10, (420, 176, 64, 0, -64, -176, -420), 559),
        (9, (5, 3), 1 / 3, 0.0, (3, 1, 0, -1, 0, 1, 0, -1, -3), 5),
        (9, (5, 3), 0.0, 1 / 2, (3, 1, 0, -1, 0, 1, 0, -1, -3), 5),
        (9, (5, 3), 1 / 5, 0.0, (46, 20, 4, -10, 0, 10, -4, -20, -46), 49),
        (5, (3, 1), 1 / 2, 0.0, (5, -2, 0, 2, -5), 17),
        (8, (4, 1), 0.3, 0.0, (0.51185, -0.049421, 0.01915, 0.104134, 0.278376, 0.019024, -0.224023, -0.659089), 1),
        (11, (7, 3), 0.25, 0.05, (0.695678, 0.252221, 0.01054, -0.222708, -0.079539, 0.0), 1),
    ],
)
def test_known_ranks(
    n: int, exception: Any, alpha: float, ridge: float, numerators: tuple[float, ...], denominator: int
) -> None:
    prediction = predict_margins(TransitiveTask(n, exception), alpha, ridge)
    expected = np.array(numerators) / denominator
    tol = 1e-12 if denominator > 1 else 5.1e-7
    np.testing.assert_allclose(prediction.ranks[: len(expected)], expected, rtol=0, atol=tol)
    np.testing.assert_allclose(chain_ranks(n, alpha, ridge, exception)[: len(expected)], expected, rtol=0, atol=tol)


def test_known_margins() -> None:
    margins = predict_margins(BASE, 1 / 5).margins
    assert margins[2, 6] == pytest.approx(8 / 49)
    assert margins[2, 5] == pytest.approx(-6 / 49)
    assert margins[0, 2] == pytest.approx(6 / 7)
    np.testing.assert_allclose(margins[tuple(BASE.pairs.T)], 1, rtol=1e-12)
    assert predict_margins(TransitiveTask(11, (7, 3)), 0.25, 0.05).margins[7, 3] == pytest.approx(0.907569, abs=5e-7)


def test_known_course_of_training() -> None:
    early = predict_margins(TransitiveTask(7), 0.2, time=2.0)
    np.testing.assert_allclose(early.ranks[:4], [0.497346, 0.1296, 0.026318, 0], rtol=0, atol=5e-7)
    adjacent = early.margins[np.arange(6), np.arange(1, 7)]
    np.testing.assert_allclose(adjacent[:3], [0.616419, 0.416754, 0.35295], rtol=0, atol=5e-7)
    np.testing.assert_allclose(adjacent, adjacent[::-1], rtol=1e-9)
    stopped, ended = (predict_margins(BASE, 0.1472, time=t).margins[2, 6] for t in (1.0, None))
    assert (stopped, ended) == (pytest.approx(-0.063, abs=5e-4), pytest.approx(0.314, abs=5e-4))


@given(chain=chains(), alpha=st.floats(0.01, 0.99), ridge=st.floats(0.0, 1.0), weight=st.floats(0.2, 5))
@EXAMPLES
def test_training_ends_at_the_solution(chain: Any, alpha: float, ridge: float, weight: float) -> None:
    task = TransitiveTask(*chain, exception_weight=weight)
    late = predict_margins(task, alpha, ridge, time=1e5)
    np.testing.assert_allclose(late.margins, predict_margins(task, alpha, ridge).margins, rtol=0, atol=1e-8)


def test_training_without_conjunctivity_ends_at_least_squares() -> None:
    late = predict_margins(BASE, 0.0, time=1e4)
    np.testing.assert_allclose(late.margins, predict_margins(BASE, 0.0).margins, rtol=0, atol=1e-9)


def test_a_circle_has_equal_ranks_and_remembers_all() -> None:
    circle = solve_comparisons(3, [(0, 1), (1, 2), (2, 0)], conjunctivity=0.3)
    np.testing.assert_allclose(circle.ranks, 0, atol=1e-15)
    np.testing.assert_allclose(circle.memory, 1, rtol=1e-14)


def test_the_colley_rating() -> None:
    """Of 2 + games on the diagonal, − games off it, and 1 + (wins − losses)/2 on the right."""
    rng = np.random.default_rng(0)
    games = np.array([pair for pair in rng.integers(0, 6, (40, 2)) if pair[0] != pair[1]])
    counts = np.zeros((6, 6))
    np.add.at(counts, tuple(games.T), 1.0)
    matrix = np.diag(2 + (counts + counts.T).sum(axis=1)) - counts - counts.T
    colley = np.linalg.solve(matrix, 1 + (counts - counts.T).sum(axis=1) / 2)
    np.testing.assert_allclose(0.5 + solve_comparisons(6, games, conjunctivity=0.0, ridge=1.0).ranks / 2, colley)
    once = np.unique(np.sort(games, axis=1), axis=0)
    half = solve_comparisons(6, once, conjunctivity=0.5).ranks
    np.testing.assert_allclose(half, solve_comparisons(6, once, conjunctivity=0.0, ridge=1.0).ranks, atol=1e-14)


@given(game=comparisons(), alpha=st.one_of(st.just(0.0), st.floats(0.01, 1.0)), ridge=st.floats(0.05, 5))
@EXAMPLES
@pytest.mark.parametrize("solver", ["dense", "cg"])
def test_the_same_as_dense_kernel_regression(solver: str, game: Any, alpha: float, ridge: float) -> None:
    solution = solve_comparisons(*game, alpha, ridge, solver)
    expected = dense_regression(*game, alpha, ridge)
    np.testing.assert_allclose(solution.margins(), expected, rtol=0, atol=1e-10)
    n = game[0]
    every = np.array([(i, j) for i in range(n) for j in range(n)])
    np.testing.assert_allclose(solution.margins(every).reshape(n, n), expected, rtol=0, atol=1e-10)
    # The expansion in kernels gives the same margins.
    dual = np.concatenate([solution.dual, -solution.dual])
    both = np.concatenate([solution.pairs, solution.pairs[:, ::-1]])
    off = every[:, 0] != every[:, 1]
    np.testing.assert_allclose(
        pair_kernel(every, both, alpha)[off] @ dual, expected.ravel()[off], rtol=0, atol=1e-9 / ridge
    )


@given(chain=chains(), alpha=st.one_of(st.just(0.0), ALPHAS), ridge=RIDGES, weight=st.floats(0.1, 10))
@EXAMPLES
def test_closed_forms_are_the_graph_solution(chain: Any, alpha: float, ridge: float, weight: float) -> None:
    n, exception = chain
    for task, closed in (
        (TransitiveTask(n), chain_ranks(n, alpha, ridge)),
        (TransitiveTask(n, exception, exception_weight=weight), chain_ranks(n, alpha, ridge, exception, weight)),
    ):
        np.testing.assert_allclose(predict_margins(task, alpha, ridge).ranks, closed, rtol=0, atol=1e-10)


@given(game=comparisons(), alpha=ALPHAS, ridge=RIDGES)
@EXAMPLES
def test_repetitions_are_weight_and_labels_are_names(game: Any, alpha: float, ridge: float) -> None:
    n, pairs, targets, weights = game
    solution = solve_comparisons(n, pairs, targets, weights, alpha, ridge)
    margins = solution.margins()
    np.testing.assert_array_equal(margins, -margins.T)
    assert len({frozenset(pair) for pair in solution.pairs.tolist()}) == len(solution.pairs)
    assert ((solution.memory_weight >= 0) & (solution.memory_weight <= 1)).all()
    split = solve_comparisons(
        n, np.tile(pairs, (2, 1)), np.tile(targets, 2), np.concatenate([0.25 * weights, 0.75 * weights]), alpha, ridge
    )
    turned = solve_comparisons(n, pairs[:, ::-1], -targets, weights, alpha, ridge)
    others = np.roll(targets, 1)
    alone = solve_comparisons(n, pairs, others, weights, alpha, ridge).margins()
    mixed = solve_comparisons(n, pairs, 2 * targets - others, weights, alpha, ridge)
    for other, expected in ((split, margins), (turned, margins), (mixed, 2 * margins - alone)):
        np.testing.assert_allclose(other.margins(), expected, rtol=0, atol=1e-10)
    order = np.random.default_rng(0).permutation(n)
    renamed = solve_comparisons(n, order[pairs], targets, weights, alpha, ridge).margins()
    np.testing.assert_allclose(renamed[np.ix_(order, order)], margins, rtol=0, atol=1e-10)


@given(chain=chains(), alpha=ALPHAS, ridge=RIDGES, weight=st.floats(0.2, 5))
@EXAMPLES
def test_theorems_of_one_exception(chain: Any, alpha: float, ridge: float, weight: float) -> None:
    """Within a section and between the extremes nothing goes wrong; parts add up; the mirror image flips signs."""
    n, (winner, loser) = chain
    task = TransitiveTask(n, (winner, loser), exception_weight=weight)
    prediction = predict_margins(task, alpha, ridge)
    np.testing.assert_allclose(sum(prediction.decompose().values()), prediction.margins, rtol=0, atol=1e-13)
    mirror = predict_margins(task.reversed(), alpha, ridge).margins
    np.testing.assert_allclose(mirror[::-1, ::-1], -prediction.margins, rtol=0, atol=1e-10)
    ranks = chain_ranks(n, alpha, ridge, (winner, loser))
    assert (np.diff(ranks[:loser]) < 0).all()
    assert (np.diff(ranks[winner + 1 :]) < 0).all()
    if loser > 0 and winner < n - 1:
        assert ranks[0] > ranks[-1]


@given(chain=chains(), alpha=ALPHAS, ridge=RIDGES)
@EXAMPLES
def test_ridge_is_conjunctivity_for_ranks(chain: Any, alpha: float, ridge: float) -> None:
    n, exception = chain
    same = chain_ranks(n, effective_conjunctivity(alpha, ridge), 0.0, exception)
    ours = chain_ranks(n, alpha, ridge, exception)
    np.testing.assert_allclose(ours, same, rtol=0, atol=1e-10)


def test_effects_known_from_animals() -> None:
    margins = predict_margins(TransitiveTask(9), 0.2, 0.1).margins
    by_distance = [np.diagonal(margins, d).mean() for d in range(2, 9)]
    assert (np.diff(by_distance) > 0).all()
    second = np.diagonal(margins, 2)
    assert (np.diff(second)[:3] < 0).all()  # the ends are easier
    np.testing.assert_allclose(second, second[::-1])
    np.testing.assert_allclose(np.diagonal(predict_margins(TransitiveTask(9), 0.2).margins, 1), 1)
    assert predict_margins(TransitiveTask(9), 0.2).accuracy_by_class().eq(1.0).all()


def test_no_conjunctivity_is_least_squares_and_full_conjunctivity_is_memory() -> None:
    additive = predict_margins(BASE, 0.0)
    assert not additive.memory.any()
    assert abs(additive.margins[5, 3]) < 1e-12
    incidence = np.zeros((9, 9))
    incidence[np.arange(9), BASE.pairs[:, 0]] = 1
    incidence[np.arange(9), BASE.pairs[:, 1]] = -1
    np.testing.assert_allclose(additive.ranks, np.linalg.pinv(incidence) @ np.ones(9), rtol=0, atol=1e-12)
    whole = predict_margins(BASE, 1.0)
    assert not whole.ranks.any()
    assert whole.margins[5, 3] == 1
    assert whole.accuracy_by_class()["cross"] == 0.5
    assert np.abs(predict_margins(BASE, 0.2, 1e9).margins).max() < 1e-8
    weighted = solve_comparisons(3, [(0, 1), (1, 2), (2, 0)], weights=[4.0, 1.0, 1.0], conjunctivity=0.0)
    limit = solve_comparisons(3, [(0, 1), (1, 2), (2, 0)], weights=[4.0, 1.0, 1.0], conjunctivity=0.0, ridge=1e-10)
    np.testing.assert_allclose(weighted.ranks, limit.ranks, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("alpha", "ridge"), [(0.0, 0.0), (0.3, 0.2)])
@pytest.mark.parametrize("solver", ["dense", "cg"])
def test_components_are_solved_alone_and_reported(solver: str, alpha: float, ridge: float) -> None:
    with pytest.warns(UserWarning, match="3 components: ranks are not comparable across them"):
        both = solve_comparisons(
            8, [(0, 1), (1, 2), (3, 4), (4, 5), (5, 6)], conjunctivity=alpha, ridge=ridge, solver=solver
        )
    np.testing.assert_allclose(both.ranks[:3], chain_ranks(3, alpha, ridge), rtol=0, atol=1e-10)
    np.testing.assert_allclose(both.ranks[3:7], chain_ranks(4, alpha, ridge), rtol=0, atol=1e-10)
    assert both.ranks[7] == 0


def test_an_exception_may_be_all_that_connects() -> None:
    task = TransitiveTask(4, edges=[(0, 1), (2, 3), (3, 0)])
    parts = predict_margins(task, 0.3).decompose()
    assert parts["exception"][3, 0] > 0
    assert parts["rule"][0, 1] == pytest.approx(chain_ranks(2, 0.3)[0] * 2)
    only = predict_margins(TransitiveTask(2, edges=[(1, 0)]), 0.3)
    assert not only.rule_ranks().any()
    assert only.margins[1, 0] == pytest.approx(1)


def test_a_table_says_what_is_wrong_and_what_is_undecided() -> None:
    prediction = predict_margins(BASE, 1 / 3)  # on the line: the nearest pair across is a tie
    table = prediction.table().set_index(["first", "second"])
    assert table.loc[(2, 6), "correct"] == 0.5
    assert table.loc[(3, 5), "correct"] == 1  # the exception's truth is against the order
    assert prediction.accuracy_by_class()["cross"] == pytest.approx(8.5 / 9)
    assert set(prediction.wrong_pairs()["cls"]) == {"boundary"}
    over = predict_margins(BASE, 0.4).wrong_pairs().query("cls == 'cross'")
    assert over[["first", "second"]].to_numpy().tolist() == [[2, 6]]
    assert predict_margins(TransitiveTask(11, (7, 3)), 0.2).accuracy_by_class().index.tolist() == [
        "boundary", "cross", "cycle", "exception", "rule", "within",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("side", "span", "expected"),
    [
        (3, 2, 1 / 3),
        (4, 2, 3 - 2 * 2**0.5),
        (3, 4, 0.313241),
        (5, 2, 0.104278),
        (6, 2, 0.069985),
        (7, 2, 0.050185),
        (9, 2, 0.029395),
        (3, 3, 0.318669),
        (3, 6, 0.310255),
        (3, 10, 0.309700),
    ],
)
def test_critical_conjunctivity(side: int, span: int, expected: float) -> None:
    assert critical_conjunctivity(side, span) == pytest.approx(expected, abs=1e-12 if span == 2 and side < 5 else 5e-7)


@given(
    sides=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    span=st.integers(2, 5),
    ridge=st.sampled_from([0.0, 0.05, 0.3]),
    weight=st.sampled_from([1.0, 0.3, 4.0]),
)
@EXAMPLES
def test_the_nearest_pair_across_turns_at_the_critical_conjunctivity(
    sides: tuple[int, int], span: int, ridge: float, weight: float
) -> None:
    above, below = sides
    critical = critical_conjunctivity(sides, span, ridge, weight)

    def right(alpha: float) -> bool:
        ranks = chain_ranks(above + span + 1 + below, alpha, ridge, (above + span, above), weight)
        return bool(ranks[above - 1] >= ranks[above + span + 1])

    if critical is None:
        assert all(right(alpha) for alpha in np.linspace(0.001, 0.999, 40))
    elif critical == 0:
        assert not right(1e-9)
    else:
        assert all(right(alpha) for alpha in np.linspace(1e-9, critical - 1e-9, 20))
        assert not right(critical + 1e-6)


def test_two_items_a_side_never_fail_and_ridge_or_overtraining_can_make_all_fail() -> None:
    assert critical_conjunctivity(2, 2) is None
    assert critical_conjunctivity(1, 5) is None
    assert critical_conjunctivity(3, 2, ridge=0.5) == pytest.approx(0, abs=1e-12)
    assert critical_conjunctivity(3, 2, ridge=0.51) == 0.0
    assert critical_conjunctivity(3, 2, ridge=0.2) == pytest.approx(1 - 1.2 / 1.5)
    # Overtraining: two items a side go wrong, here at small and at large conjunctivity and not between.
    assert critical_conjunctivity(2, 6, 0.5367, 370.0) == 0.0
    assert critical_conjunctivity(2, 2, 0.1, 50.0) == pytest.approx(0.930243, abs=1e-6)


def test_phases_of_the_base_case() -> None:
    alphas, ridges = np.linspace(0.01, 0.6, 12), np.geomspace(1e-3, 3, 12)
    phases = phase_diagram(BASE, alphas, ridges)
    effective = np.array([[effective_conjunctivity(a, ridge) for ridge in ridges] for a in alphas])
    np.testing.assert_array_equal(phases["generalizes"], effective < 1 / 3)
    np.testing.assert_array_equal(phases["balanced"], phases["generalizes"] & (phases["min_train_margin"] > 0.5))
    assert phases["balanced"].any()
    assert (
        phases["min_train_margin"][3, 5]
        == predict_margins(BASE, alphas[3], ridges[5]).margins[tuple(BASE.pairs.T)].min()
    )
    assert phase_diagram(TransitiveTask(6), [0.1, 0.9], [0.0, 3.0])["generalizes"].all()
    assert not phase_diagram(TransitiveTask(6), [1.0], [0.0])["generalizes"].any()  # all ties


def test_long_chains_neither_overflow_nor_lose_the_limit() -> None:
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        steep = chain_ranks(2000, 0.99, 0.0, (1500, 3))
        flat = chain_ranks(10**5, 1e-12)
        none = chain_ranks(9, 0.0, 0.0, (5, 3))
        least = chain_ranks(9, 1e-300, 0.0, (5, 3))
        most = chain_ranks(9, 1 - 1e-15, 0.0, (5, 3))
    assert np.isfinite(steep).all()
    assert steep[1500] - steep[3] == pytest.approx(0.00990, abs=1e-4)
    # sinh((n − 1)θ/2)/(2 sinh(θ/2)·cosh(nθ/2)) with θ = √2e-6: 0.2 % below (n − 1)/2
    assert flat[0] == pytest.approx(49999.5 * (1 - (1e5 * 2**0.5 * 1e-6) ** 2 / 12), rel=1e-5)
    np.testing.assert_allclose(none, [3, 2, 1, 0, 0, 0, -1, -2, -3], rtol=0, atol=1e-14)
    np.testing.assert_allclose(least, none, rtol=0, atol=1e-12)
    assert np.isfinite(most).all()
    assert (chain_ranks(9, 1.0, 0.0, (5, 3)) == 0).all()


def test_large_comparisons_are_solved_in_near_linear_time(slowdown: float) -> None:
    rng = np.random.default_rng(0)
    n, m = 10_000, 100_000
    pairs = np.concatenate([np.column_stack([np.arange(n - 1), np.arange(1, n)]), rng.integers(0, n, (m, 2))])
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    start = time.process_time()
    solution = solve_comparisons(n, pairs, conjunctivity=0.1, ridge=0.5)
    assert time.process_time() - start < slowdown
    flow = solution.dual
    net = np.bincount(solution.pairs[:, 0], flow, n) - np.bincount(solution.pairs[:, 1], flow, n)
    np.testing.assert_allclose(solution.ranks, 0.45 * net, rtol=0, atol=1e-8)  # the representer theorem


def test_long_thin_graphs_are_solved_where_conjugate_gradients_stall() -> None:
    n = 3000
    chain = solve_comparisons(n, np.column_stack([np.arange(n - 1), np.arange(1, n)]), conjunctivity=1e-9)
    np.testing.assert_allclose(chain.ranks, chain_ranks(n, 1e-9), rtol=1e-7, atol=1e-6)


def test_an_unfinished_solution_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theory, "CG_ITERATIONS", 1)
    with pytest.warns(ConvergenceWarning, match="did not reach tol=1e-12"):
        solve_comparisons(9, BASE.pairs, conjunctivity=0.3, solver="cg", tol=1e-12)


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_items": 1}, ValueError, "n_items must be at least 2"),
        ({"n_items": 2.5}, TypeError, "n_items must be an integer"),
        ({"conjunctivity": 1.5}, ValueError, r"conjunctivity must be in \[0, 1\], got 1.5"),
        ({"conjunctivity": -0.1}, ValueError, r"conjunctivity must be in \[0, 1\]"),
        ({"conjunctivity": float("nan")}, ValueError, "conjunctivity must be .*, got nan"),
        ({"ridge": -1.0}, ValueError, "ridge must be non-negative"),
        ({"ridge": float("inf")}, ValueError, "ridge must be non-negative and finite"),
        ({"weights": [1.0, 0.0]}, ValueError, "weights must be positive, got 0.0 for entry 1"),
        ({"weights": [-1.0, 1.0]}, ValueError, "weights must be non-negative, got -1.0 for entry 0"),
        ({"weights": [1.0]}, ValueError, "weights must have length 2, got 1"),
        ({"weights": [1e-30, 1.0], "conjunctivity": 0.0}, ValueError, "weights differ too much .* are 1e-30 to 1"),
        ({"targets": [1.0, float("nan")]}, ValueError, "targets must be finite, got nan for entry 1"),
        ({"pairs": [(0, 1), (2, 2)]}, ValueError, r"pairs compares an item with itself in row 1: \(2, 2\)"),
        ({"pairs": [(0, 1), (1, 3)]}, ValueError, r"pairs must be items 0 to 2, got \(1, 3\) in row 1"),
        ({"pairs": [(0, 1, 2)]}, ValueError, r"pairs: expected shape \(m, 2\)"),
        ({"solver": "qr"}, ValueError, "solver must be one of 'auto', 'dense', 'cg'"),
        ({"tol": 0.0}, ValueError, "tol must be positive"),
    ],
)
def test_bad_comparisons(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        solve_comparisons(**{"n_items": 3, "pairs": [(0, 1), (1, 2)], **arguments})


@pytest.mark.untyped
def test_other_bad_arguments() -> None:
    with pytest.raises(ValueError, match="time must be non-negative"):
        predict_margins(BASE, 0.2, time=-1.0)
    with pytest.raises(ValueError, match=r"conjunctivity must be in \[0, 1\]"):
        predict_margins(BASE, 2.0)
    with pytest.raises(ValueError, match="span must be at least 2"):
        critical_conjunctivity(3, 1)
    with pytest.raises(ValueError, match="items_per_side must be at least 1"):
        critical_conjunctivity((3, 0), 2)
    with pytest.raises(ValueError, match=r"items_per_side must be a number or \(above, below\), got \(3,\)"):
        critical_conjunctivity((3,), 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"conjunctivity_grid must be in \[0, 1\], got 1.5"):
        phase_diagram(BASE, [0.1, 1.5], [0.0])
    with pytest.raises(ValueError, match="not an exception"):
        chain_ranks(9, 0.2, exception=(3, 5))
    with pytest.raises(ValueError, match="exception: expected shape"):
        chain_ranks(9, 0.2, exception=[(5, 3), (7, 5)])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"ridge_grid must be non-negative, got -1\.0 for entry 1"):
        phase_diagram(BASE, [0.1], [0.0, -1.0])
