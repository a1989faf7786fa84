"""Speed of `paperworks.allocation`, beside cone solvers on the same data in the same run.

Run: python benchmarks/bench_allocation.py
"""

from __future__ import annotations

import numpy as np

import paperworks.allocation as pa
from paperworks.allocation.peers import cone_optimum
from paperworks.core.timing import best_of


def log_agents(n: int) -> tuple[np.ndarray, np.ndarray, pa.Valuations]:
    rng = np.random.default_rng(4)
    a, b = rng.exponential(size=n) + 0.1, 10 ** rng.uniform(0, 3, size=n)
    return a, b, pa.Valuations.log(a, 1 / b)


def line(what: str, seconds: float, target: float | None = None) -> None:
    note = "" if target is None else f"   target {target:g} s: {'met' if seconds <= target else 'MISSED'}"
    print(f"{what:<58} {seconds:10.4f} s{note}")


def against_cone_solvers() -> None:
    for n in (100, 1000):
        a, b, agents = log_agents(n)
        ours, best = best_of(lambda agents=agents: pa.efficient(agents)), pa.efficient(agents).welfare
        line(f"efficient optimum, {n} log agents", ours)
        for solver in ("CLARABEL", "SCS"):
            seconds, welfare = cone_optimum(a, b, solver)
            if welfare is None:
                print(f"  cvxpy + {solver}: fails after {seconds:.2f} s")
            else:
                ahead = (best - welfare) / best
                print(
                    f"  cvxpy + {solver}: {seconds:.3f} s, ratio {seconds / ours:.0f}, ours ahead by {ahead:.1e} of the optimum"
                )


def main() -> None:
    against_cone_solvers()
    for n, target in ((1_000, None), (10_000, None), (100_000, 0.5), (1_000_000, None)):
        agents = log_agents(n)[2]
        line(f"equilibrium, {n:,} log agents", best_of(lambda agents=agents: pa.solve(agents, 0.25), 2), target)
    a, b, _ = log_agents(100_000)
    curves = pa.Valuations.from_callable(
        [lambda q, k=k: a[k] * np.log1p(b[k] * q) for k in range(100_000)],
        [lambda q, k=k: a[k] * b[k] / (1 + b[k] * q) for k in range(100_000)],
        check=False,
    )
    line("equilibrium, 100,000 callables, one Python function each", best_of(lambda: pa.solve(curves, 0.25), 1), 10)
    general = pa.Valuations.saturating(a, 1 / b)
    line("equilibrium, 100,000 saturating agents", best_of(lambda: pa.solve(general, 0.25), 1))
    bids = np.random.default_rng(0).exponential(size=1_000_000)
    line("clearing 1,000,000 bids", best_of(lambda: pa.AlphaProportional(0.25).clear(bids)), 0.1)
    agents = log_agents(2000)[2]
    line("VCG payments, 2,000 agents", best_of(lambda: pa.vcg(agents), 1), 10)
    agents, budgets = log_agents(100)[2], np.random.default_rng(0).exponential(size=100) * 0.05
    line(
        "equilibrium with public budgets, 100 agents",
        best_of(lambda: pa.solve(agents, 0.25, budgets=budgets, budget_mode="public"), 1),
        1,
    )
    auctioneer = pa.StreamingAuctioneer(0.25, capacity=100, refill=10)
    entry = {f"team {k}": float(k + 1) for k in range(100)}
    line("one round of a stream, 100 agents", best_of(lambda: auctioneer.step(entry), 20), 0.002)


if __name__ == "__main__":
    main()
