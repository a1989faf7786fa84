"""Transitive tasks: classes and truth of every pair, general comparisons, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.transitive.tasks import TransitiveTask


@pytest.mark.parametrize(
    ("n", "exception", "counts"),
    [
        (9, None, {"rule": 8, "transitive": 28}),
        (9, (5, 3), {"rule": 6, "cycle": 2, "exception": 1, "boundary": 16, "within": 2, "cross": 9}),
        (11, (6, 4), {"rule": 8, "cycle": 2, "exception": 1, "boundary": 22, "within": 6, "cross": 16}),
        (11, (7, 3), {"rule": 6, "cycle": 4, "exception": 1, "intra": 5, "boundary": 28, "within": 2, "cross": 9}),
    ],
)
def test_classes_of_the_published_designs(n: int, exception: tuple[int, int] | None, counts: dict[str, int]) -> None:
    table = TransitiveTask(n, exception).pair_table()
    assert table["cls"].value_counts().to_dict() == counts
    assert len(table) == n * (n - 1) // 2


def test_truth_follows_the_order_except_where_an_exception_or_nothing_decides() -> None:
    task = TransitiveTask(11, (7, 3), exception_weight=2.5)
    table = task.pair_table().set_index(["first", "second"])
    assert table.loc[(3, 7), "truth"] == -1.0
    assert table.loc[(3, 5), "cls"] == "intra"
    assert np.isnan(table.loc[(3, 5), "truth"])
    assert (table.drop((3, 7)).query("cls != 'intra'")["truth"] == 1).all()
    assert table.query("trained").index.tolist() == [(i, i + 1) for i in range(3)] + [(3, 4), (3, 7)] + [
        (i, i + 1) for i in range(4, 10)
    ]
    assert task.cycle_items.tolist() == [3, 4, 5, 6, 7]
    assert task.weights.tolist() == [1.0] * 10 + [2.5]


def test_cycles_that_share_an_item_are_one_and_a_cycle_separates_sections() -> None:
    task = TransitiveTask(13, [(3, 1), (5, 3), (9, 7)])
    classes = task.pair_table().set_index(["first", "second"])["cls"]
    assert task.cycle_items.tolist() == [1, 2, 3, 4, 5, 7, 8, 9]
    assert classes[(1, 5)] == "intra"  # of one cycle, through item 3
    assert classes[(2, 8)] == "boundary"  # of two cycles
    assert classes[(5, 6)] == "rule"
    assert classes[(0, 6)] == classes[(6, 11)] == classes[(0, 12)] == "cross"
    assert classes[(10, 12)] == "within"


def test_neighbouring_cycles_stay_apart() -> None:
    classes = TransitiveTask(6, [(2, 0), (5, 3)]).pair_table().set_index(["first", "second"])["cls"]
    assert classes[(2, 3)] == "rule"
    assert classes[(0, 5)] == "boundary"


def test_comparisons_may_be_listed_and_those_against_the_order_are_exceptions() -> None:
    task = TransitiveTask(6, edges=[(0, 1), (2, 0), (4, 5)], exception_weight=3.0)
    assert task.is_exception.tolist() == [False, True, False]
    assert task.weights.tolist() == [1.0, 3.0, 1.0]
    classes = task.pair_table().set_index(["first", "second"])["cls"]
    assert classes[(0, 1)] == "cycle"
    assert classes[(1, 2)] == "intra"  # missing from the list
    assert classes[(3, 5)] == "within"


@given(
    n=st.integers(3, 12),
    weight=st.floats(0.1, 10),
    cut=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    named=st.booleans(),
)
@settings(max_examples=25)
def test_reversing_turns_every_comparison_round(n: int, weight: float, cut: tuple[float, float], named: bool) -> None:
    loser = int(cut[0] * (n - 3))
    winner = loser + 2 + int(cut[1] * (n - 3 - loser))
    items = [f"team {i}" for i in range(n)] if named else None
    task = TransitiveTask(n, (winner, loser), items=items, exception_weight=weight)
    back = task.reversed()
    names = np.array(items if items else range(n))
    turned = names if back.items is None else np.array(back.items)
    if items is None:
        turned = names[::-1]
    won = {(names[w], names[v], o) for (w, v), o in zip(task.pairs, task.weights, strict=True)}
    assert {(turned[v], turned[w], o) for (w, v), o in zip(back.pairs, back.weights, strict=True)} == won
    again = back.reversed()
    assert again.pairs.tolist() == task.pairs.tolist()
    assert again.items == task.items


def test_names_are_in_the_table_and_can_be_changed() -> None:
    task = TransitiveTask(4, (3, 1), items=["a", "b", "c", "d"])
    other = task.relabel(["w", "x", "y", "z"])
    row = other.pair_table().iloc[0]
    assert (row["first_item"], row["second_item"]) == ("w", "x")
    assert other.pairs.tolist() == task.pairs.tolist()
    assert "first_item" not in TransitiveTask(4).pair_table()


def test_the_graph_has_the_exception_close_a_cycle() -> None:
    networkx = pytest.importorskip("networkx")
    graph = TransitiveTask(9, (5, 3), items=list("abcdefghi"), exception_weight=2.0).to_networkx()
    assert sorted(networkx.find_cycle(graph)) == [(3, 4), (4, 5), (5, 3)]
    assert graph.edges[5, 3] == {"target": 1.0, "weight": 2.0, "exception": True}
    assert graph.nodes[4] == {"item": "e"}
    assert TransitiveTask(2).to_networkx().nodes[0] == {}


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_items": 1}, ValueError, "n_items must be at least 2, got 1"),
        ({"n_items": 9.0}, TypeError, "n_items must be an integer, got 9.0"),
        ({"exception": (4, 3)}, ValueError, "winner 4 and loser 3, which are adjacent or in order: not an exception"),
        ({"exception": (3, 5)}, ValueError, "winner 3 and loser 5, which are adjacent or in order: not an exception"),
        ({"exception": (9, 3)}, ValueError, r"exception must be items 0 to 8, got \(9, 3\) in row 0"),
        ({"exception": (5.0, 3.0)}, TypeError, "exception must be integers"),
        ({"exception": [(5, 3), (7, 5), (5, 3)]}, ValueError, "must list a pair once, got items 3 and 5 again"),
        ({"exception": [(5, 3), (7,)]}, ValueError, "exception: expected shape .* different lengths"),
        ({"edges": [(0, 1), (1, 0)]}, ValueError, "must list a pair once, got items 0 and 1 again"),
        ({"edges": [(0, 1), (2, 2)]}, ValueError, r"edges compares an item with itself in row 1: \(2, 2\)"),
        ({"edges": []}, ValueError, r"edges: expected shape \(m, 2\)"),
        ({"edges": [(0, 1), (2,)]}, ValueError, "edges: expected shape .* different lengths"),
        ({"edges": "all"}, ValueError, "edges must be one of 'adjacent', got 'all'"),
        ({"exception_weight": 0.0}, ValueError, "exception_weight must be positive"),
        ({"items": ["a"] * 9}, ValueError, "items must be distinct, got 'a' twice"),
        ({"items": ["a", "b"]}, ValueError, "items must have length 9, got 2"),
    ],
)
def test_bad_tasks(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TransitiveTask(**{"n_items": 9, **arguments})
