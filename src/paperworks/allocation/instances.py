"""Random agents and made-up demand, on which the ledger measures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from paperworks.allocation.valuations import Valuations

__all__ = ["CLUSTER_GPUS", "generated_demand", "random_mix", "random_piecewise"]

CLUSTER_GPUS = 414
"""GPUs of the cluster in the ledger: the mean demand of the Philly trace."""


def random_piecewise(rng: np.random.Generator, budgets: bool = False) -> Valuations:
    """Draw 2–6 agents on a unit of resource, each with the same number (1–4) of linear pieces.

    Slopes are Exp(1) to a random power between 0.2 and 4, widths Dirichlet; budgets are Exp(1) times 10^U(−2, 1).
    """
    n, pieces = int(rng.integers(2, 7)), int(rng.integers(1, 5))
    slopes = -np.sort(-(rng.exponential(size=(n, pieces)) ** rng.uniform(0.2, 4) + 1e-5), axis=1)
    widths = rng.dirichlet(np.full(pieces, rng.uniform(0.2, 2)), size=n)
    edges = np.concatenate([np.zeros((n, 1)), np.cumsum(widths, axis=1)], axis=1)
    values = np.concatenate([np.zeros((n, 1)), np.cumsum(slopes * widths, axis=1)], axis=1)
    money = rng.exponential(size=n) * 10 ** rng.uniform(-2, 1, size=n) + 1e-4 if budgets else None
    points = [np.stack(pair, axis=1)[np.r_[True, np.diff(pair[0]) > 0]] for pair in zip(edges, values, strict=True)]
    return Valuations.piecewise(points, budgets=money)


def random_mix(rng: np.random.Generator, n: int) -> Valuations:
    """Draw n agents from all families of valuations."""
    families: list[Callable[[int], Valuations]] = [
        lambda k: Valuations.linear(rng.exponential(size=k) + 0.1),
        lambda k: Valuations.log(rng.exponential(size=k) + 0.1, 10 ** rng.uniform(-1.5, 1, size=k)),
        lambda k: Valuations.power(rng.exponential(size=k) + 0.1, rng.uniform(0.2, 0.9, size=k)),
        lambda k: Valuations.saturating(rng.exponential(size=k) + 0.1, 10 ** rng.uniform(-1, 1, size=k)),
        lambda k: Valuations.quadratic(rng.exponential(size=k) + 0.1, rng.uniform(0.5, 3, size=k)),
    ]
    sizes = rng.multinomial(n, np.full(len(families), 1 / len(families)))
    chosen = [family(int(size)) for family, size in zip(families, sizes, strict=True) if size]
    mixed = chosen[0]
    for more in chosen[1:]:
        mixed = mixed + more
    return mixed


def generated_demand(seed: int) -> pd.Series:
    """Draw one contested hour of eleven teams: log-normal demand that adds up to more than the cluster has."""
    rng = np.random.default_rng(seed)
    demand = rng.lognormal(3.2, 1.2, size=11)
    demand *= CLUSTER_GPUS * rng.uniform(1.05, 2.5) / demand.sum()
    return pd.Series(np.ceil(demand), index=[f"team {k}" for k in range(11)])
