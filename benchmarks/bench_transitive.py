"""Speed of `paperworks.transitive`, beside choix and dense kernel regression on the same comparisons in the same run.

Run: python benchmarks/bench_transitive.py [--large]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from threadpoolctl import threadpool_limits

from paperworks.core.extras import MissingExtra, require
from paperworks.core.timing import best_of
from paperworks.transitive.ranker import TransitiveRanker
from paperworks.transitive.theory import chain_ranks, solve_comparisons

ALPHA, RIDGE = 0.1, 1.0


def games(n: int, m: int) -> np.ndarray:
    """Return m games of n players, each won as a Bradley–Terry model says."""
    rng = np.random.default_rng(0)
    strength = rng.normal(size=n)
    first = rng.integers(n, size=m)
    second = (first + rng.integers(1, n, size=m)) % n
    wins = rng.random(m) < 1 / (1 + np.exp(strength[second] - strength[first]))
    return np.where(wins[:, None], np.column_stack([first, second]), np.column_stack([second, first]))


def line(what: str, seconds: float, note: str = "") -> None:
    print(f"{what:<58} {seconds:10.4f} s   {note}".rstrip())


def verdict(met: bool, target: str) -> str:
    return f"target {target}: {'met' if met else 'MISSED'}"


def peers(n: int, pairs: np.ndarray) -> dict[str, tuple[Callable[[], np.ndarray], int]]:
    """Return what ranks the same games, and how often it is timed."""
    try:
        choix = require("choix", "peers")
    except MissingExtra as error:
        print(f"  choix: {error}")
        return {}
    data = pairs.tolist()
    return {
        "choix.ilsr_pairwise(alpha=0.01)": (lambda: choix.ilsr_pairwise(n, data, alpha=0.01), 3),
        "choix.opt_pairwise(alpha=0.1)": (lambda: choix.opt_pairwise(n, data, alpha=0.1), 1),
    }


def dense(n: int, pairs: np.ndarray) -> np.ndarray:
    """Return the ranks from scikit-learn's KernelRidge on both orders of each pair, with the kernel written out."""
    both, each = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0), np.tile([1.0, -1.0], (len(pairs), 1)).T
    equal = both[:, None, :] == both[None, :, :]
    kernel = (1 - ALPHA) / 2 * equal.sum(axis=2) + ALPHA * equal.all(axis=2)
    key, shown = both @ (n, 1), np.concatenate([pairs, pairs[:, ::-1]]) @ (n, 1)
    count = np.bincount(np.searchsorted(key, shown))
    target = np.bincount(np.searchsorted(key, shown), each.ravel()) / count
    model = KernelRidge(alpha=RIDGE, kernel="precomputed").fit(kernel, target, sample_weight=count)
    ranks = np.zeros(n)
    np.add.at(ranks, both[:, 0], (1 - ALPHA) / 2 * model.dual_coef_)
    return ranks - ranks.mean()


def against_peers() -> None:
    for n, m in ((300, 3_000), (1_000, 20_000)):
        pairs = games(n, m)
        call = partial(solve_comparisons, n, pairs, conjunctivity=ALPHA, ridge=RIDGE)
        ours, ranks = best_of(call, 10), call().ranks
        line(f"solve_comparisons, {n:,} items, {m:,} games", ours)
        ranker = TransitiveRanker(ALPHA, RIDGE)
        line("  TransitiveRanker.fit, with folds for the probabilities", best_of(partial(ranker.fit, pairs)))
        for name, (peer, repeats) in peers(n, pairs).items():
            theirs, found = best_of(peer, repeats), peer()
            agree = np.corrcoef(np.argsort(np.argsort(found)), np.argsort(np.argsort(ranks)))[0, 1]
            note = f"{theirs / ours:.0f} times ours, rank correlation {agree:.3f}"
            if n == 1_000 and "ilsr" in name:
                note += f", {verdict(theirs >= 20 * ours, '20')}"
            line(f"  {name}", theirs, note)
        if n == 300:
            theirs, found = best_of(partial(dense, n, pairs), 1), dense(n, pairs)
            line(
                "  KernelRidge on the pairs",
                theirs,
                f"{theirs / ours:.0f} times ours, ranks within {np.abs(found - ranks).max():.0e}",
            )


def growth(sizes: tuple[int, ...]) -> None:
    each = []
    for m in sizes:
        pairs = games(m // 10, m)
        seconds = best_of(partial(solve_comparisons, m // 10, pairs, conjunctivity=ALPHA, ridge=RIDGE), 2)
        each.append(seconds / m)
        note = verdict(seconds <= 30, "30 s") if m == 10_000_000 else ""
        line(f"solve_comparisons, {m // 10:,} items, {m:,} games", seconds, note)
    worst = each[-1] / each[0]
    print(f"  a game takes {worst:.1f} times as long at {sizes[-1]:,} as at {sizes[0]:,} games")
    solution = solve_comparisons(100_000, games(100_000, 1_000_000))
    asked = games(100_000, 1_000_000)
    line("margins of 1,000,000 pairs", best_of(partial(solution.margins, asked)))


def main() -> None:
    with threadpool_limits(1):
        against_peers()
        growth((100_000, 1_000_000, *((10_000_000,) if "--large" in sys.argv else ())))
        seconds = best_of(partial(chain_ranks, 1_000_000, 0.1, exception=(600_000, 400_000)))
        line("chain of 1,000,000 items with an exception, closed form", seconds, verdict(seconds <= 0.5, "0.5 s"))


if __name__ == "__main__":
    main()
