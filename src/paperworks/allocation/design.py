"""Choose α: smaller is more efficient and earns more, but amplifies errors in the bids."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from paperworks.allocation.equilibrium import solve
from paperworks.allocation.guarantees import alpha_for_efficiency, efficiency_bound
from paperworks.allocation.optima import efficient
from paperworks.allocation.valuations import Valuations
from paperworks.core.validation import check_integer, check_real, check_vector

__all__ = ["AlphaChoice", "choose_alpha", "typical_agents"]

GRID = (0.01, 0.02, 0.05, 0.1, 0.15, 0.25, 0.35, 0.5, 0.7, 1.0)


@dataclass(frozen=True)
class AlphaChoice:
    """A recommended α and the trade-off behind it.

    Attributes
    ----------
    alpha : float
        The recommendation.
    curve : DataFrame
        By increasing ``alpha``: ``guarantee`` (worst equilibrium efficiency without noise) and ``sensitivity`` (1/α,
        how many percent the share of a small agent moves for an error of 1 % in its bid); where noise was simulated
        also ``mean`` and ``p05`` (mean and 5 % quantile of welfare over the optimum) and ``revenue`` (mean).
    note : str
        What the recommendation rests on, in one sentence.
    """

    alpha: float
    curve: pd.DataFrame
    note: str


def choose_alpha(
    valuations: Valuations | None = None,
    noise: float = 0.0,
    target_efficiency: float | None = None,
    n: int | None = None,
    alphas: ArrayLike | None = None,
    trials: int = 200,
    seed: int = 0,
    capacity: float = 1.0,
) -> AlphaChoice:
    r"""Recommend an α for bids that carry errors, for a required guarantee, or for both.

    Equilibrium bids are multiplied by :math:`\exp(\sigma z)`, z standard normal, the same draws for every α; the
    α with the best mean welfare on a grid is refined between its neighbours. The reason for a trade-off is
    :math:`\partial \log s_i / \partial \log \theta_i = (1 - s_i)/\alpha`.

    Parameters
    ----------
    valuations : Valuations, optional
        The agents; their budgets are left out of account. Without them, 20 sets of `typical_agents` stand in, and the
        note says so.
    noise : float
        σ, the standard deviation of the log of a bid around its equilibrium value (0.03 is about 3 %).
    target_efficiency : float, optional
        Equilibrium efficiency that must be guaranteed, in [0, 1]: a ceiling on α. With neither noise nor valuations
        the answer is this ceiling.
    n : int, optional
        Number of agents, where there are no valuations: for the guarantee and for the agents that stand in (8).
    alphas : array_like, optional
        The grid, in (0, 1].
    trials : int
        Noisy rounds simulated for each α.
    seed : int
        Of the noise and of the agents that stand in.
    capacity : float
        Amount of the resource.

    Raises
    ------
    ValueError
        Neither valuations, noise nor a target; valuations that do not compete for the capacity; a target that no α
        of the grid reaches.

    Examples
    --------
    >>> round(choose_alpha(target_efficiency=0.95).alpha, 6)
    0.082948
    >>> teams = Valuations.log([1.0, 2.0, 1.5], [0.1, 0.3, 0.2])
    >>> choose_alpha(teams, noise=0.01).alpha < choose_alpha(teams, noise=0.3).alpha
    True
    """
    noise = check_real(noise, "noise", low=0)
    trials, seed = check_integer(trials, "trials", low=1), check_integer(seed, "seed", low=0)
    grid = np.unique(check_vector(GRID if alphas is None else alphas, "alphas", low=0))
    if grid.size == 0 or grid[0] == 0 or grid[-1] > 1:
        raise ValueError(f"alphas must be in (0, 1], got {grid}")
    if valuations is not None and n is not None and n != len(valuations):
        raise ValueError(f"n must be the number of agents, {len(valuations)}, got {n}")
    agents = len(valuations) if valuations is not None else math.inf if n is None else check_integer(n, "n", low=2)
    ceiling = 1.0 if target_efficiency is None else alpha_for_efficiency(target_efficiency, agents)
    if valuations is None and noise == 0:
        if target_efficiency is None:
            raise ValueError("one of valuations, noise and target_efficiency must be given")
        return AlphaChoice(ceiling, _guarantees(grid, agents), _closed_form(target_efficiency, ceiling))
    return _simulated(valuations, noise, ceiling, agents, grid, trials, seed, capacity)


def typical_agents(n: int = 8, seed: int = 0) -> Valuations:
    """Return n agents with value a·log(1 + b·s) of a share s: a = 0.1 + Exp(1), b log-uniform from 0.1 to 30.

    Examples
    --------
    >>> len(typical_agents(8))
    8
    """
    rng = np.random.default_rng(check_integer(seed, "seed", low=0))
    n = check_integer(n, "n", low=1)
    return Valuations.log(rng.exponential(size=n) + 0.1, 10 ** -rng.uniform(-1, 1.5, size=n))


def _guarantees(alphas: NDArray[np.float64], agents: float) -> pd.DataFrame:
    bounds = [efficiency_bound(float(alpha), agents) for alpha in alphas]
    return pd.DataFrame({"alpha": alphas, "guarantee": bounds, "sensitivity": 1 / alphas})


def _closed_form(target: float, alpha: float) -> str:
    return (
        f"the largest α whose worst equilibrium is at least {target:g} of the optimum is {alpha:.6g}; {_slope(alpha)}"
    )


def _slope(alpha: float) -> str:
    moved = f"{1 / alpha:.3g} %" if alpha > 0 else "any amount"
    return f"an error of 1 % in a bid moves a small share by {moved}"


@dataclass(frozen=True)
class _Round:
    """A set of agents with what does not depend on α: its optimum and the noise of every trial."""

    valuations: Valuations
    optimum: float
    noise: NDArray[np.float64]

    def outcome(self, alpha: float, capacity: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return efficiency and revenue in every trial."""
        unlimited = np.full(len(self.valuations), np.inf)
        equilibrium = solve(self.valuations, alpha, capacity, unlimited)
        if equilibrium.status != "ok":
            raise ValueError(
                f"valuations must compete for the capacity, or every alpha does equally well: {equilibrium.status}"
            )
        with np.errstate(divide="ignore"):
            log_mass = np.log(equilibrium.shares) + self.noise / alpha
        total = logsumexp(log_mass, axis=1, keepdims=True)
        welfare = self.valuations.value(capacity * np.exp(log_mass - total)).sum(axis=-1)
        return welfare / self.optimum, equilibrium.price * np.exp(alpha * total[:, 0])


def _simulated(
    valuations: Valuations | None,
    noise: float,
    ceiling: float,
    agents: float,
    grid: NDArray[np.float64],
    trials: int,
    seed: int,
    capacity: float,
) -> AlphaChoice:
    allowed = grid[grid <= ceiling]
    if allowed.size == 0:
        raise ValueError(f"target_efficiency needs alpha <= {ceiling:.3g}, but the smallest of alphas is {grid[0]:g}")
    rounds = _rounds(valuations, noise, agents, trials, seed, capacity)
    rows: dict[float, dict[str, float]] = {}

    def mean_efficiency(alpha: float) -> float:
        outcomes = [each.outcome(alpha, capacity) for each in rounds]
        ratios, revenue = (np.concatenate(column) for column in zip(*outcomes, strict=True))
        rows[alpha] = {"mean": ratios.mean(), "p05": np.quantile(ratios, 0.05), "revenue": revenue.mean()}
        return float(rows[alpha]["mean"])

    best = int(np.argmax([mean_efficiency(float(alpha)) for alpha in allowed]))
    low, high = allowed[max(best - 1, 0)], allowed[min(best + 1, allowed.size - 1)]
    if low < high:
        minimize_scalar(
            lambda x: -mean_efficiency(math.exp(x)),
            bounds=(math.log(low), math.log(high)),
            method="bounded",
            options={"xatol": 0.02},
        )
    alpha = max(rows, key=lambda a: rows[a]["mean"])
    tried = sorted(rows)
    curve = _guarantees(np.array(tried), agents).join(pd.DataFrame([rows[a] for a in tried]))
    whose = (
        "the given agents"
        if valuations is not None
        else f"{len(rounds)} sets of {len(rounds[0].valuations)} typical agents, not yours"
    )
    note = (
        f"best mean welfare ({rows[alpha]['mean']:.4f} of the optimum) for bids with {100 * noise:g} % noise, simulated "
        f"on {whose}; {_slope(alpha)}"
    )
    return AlphaChoice(alpha, curve, note)


def _rounds(
    valuations: Valuations | None, noise: float, agents: float, trials: int, seed: int, capacity: float
) -> list[_Round]:
    """Return the given agents with all trials, or typical agents that divide the trials among them."""
    if valuations is not None:
        sets = [valuations]
    else:
        size = 8 if agents == math.inf else int(agents)
        sets = [typical_agents(size, seed=20 * seed + k) for k in range(20)]
    rng = np.random.default_rng(seed)
    draws = -(-trials // len(sets))
    return [
        _Round(agents, efficient(agents, capacity).welfare, noise * rng.standard_normal((draws, len(agents))))
        for agents in sets
    ]
