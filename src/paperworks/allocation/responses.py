"""What an agent does against the others' bids: best responses, regret, dynamics."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from paperworks.allocation.mechanism import AlphaProportional, Record, log_norm, log_rest, rest_of
from paperworks.allocation.public_budgets import public_regret
from paperworks.allocation.roots import decreasing_root
from paperworks.allocation.valuations import Valuations
from paperworks.core.validation import check_choice, check_integer, check_real, check_vector

__all__ = [
    "BudgetMode",
    "Game",
    "Trajectory",
    "best_response",
    "budgets_of",
    "dynamics",
    "gains",
    "log_level",
    "regret",
]

Floats = NDArray[np.float64]
Index = NDArray[np.intp]
BudgetMode = Literal["private", "public"]


def budgets_of(valuations: Valuations, budgets: ArrayLike | None) -> Floats | None:
    """Return checked budgets: those given, else those of the valuations, which may have none."""
    if budgets is None:
        return valuations.budgets
    labels = valuations.names if isinstance(valuations.names, tuple) else None
    return check_vector(budgets, "budgets", length=len(valuations), low=0, allow_inf=True, labels=labels)


@dataclass(frozen=True)
class Game:
    """What an agent plays against: `level` is α·log S, S the sum of the others' bids to the power 1/α."""

    level: Floats
    alpha: float
    capacity: float
    budgets: Floats
    reserve: float

    def log_price(self, log_odds: Floats) -> Floats:
        """Return the log price if the agent takes the share with these log-odds."""
        price = self.level + self.alpha * np.logaddexp(0, log_odds)
        return np.maximum(price, np.log(self.reserve)) if self.reserve > 0 else price

    def log_marginal_price(self, log_odds: Floats, index: Index | slice = slice(None)) -> Floats:
        """Return the log of what a little more costs, all or some of the agents."""
        free = self.level[index] + self.alpha * np.logaddexp(0, log_odds)
        marginal = free + np.log1p(self.alpha * np.exp(log_odds))
        return np.where(free < np.log(self.reserve), np.log(self.reserve), marginal) if self.reserve > 0 else marginal


def _reply(valuations: Valuations, game: Game, guess: Floats, step: float) -> Floats:
    """Return the log-odds of each agent's best share."""

    def surplus(x: Floats, index: Index) -> Floats:
        worth = np.log(game.capacity * valuations.marginal_of(index, game.capacity * expit(x)))
        return np.where(worth > -np.inf, worth - game.log_marginal_price(x, index), -np.inf)

    def affordable(x: Floats) -> Floats:
        return np.log(game.budgets) - game.log_price(x) + np.logaddexp(0, -x)

    best = decreasing_root(surplus, guess, step, indexed=True)
    if np.isfinite(game.budgets).any():
        best = np.minimum(best, decreasing_root(affordable, guess, step))
    return best


def gains(valuations: Valuations, shares: Floats, price: float, game: Game) -> Floats:
    """Return what the best reply gains over these shares."""
    capacity = game.capacity
    with np.errstate(divide="ignore", over="ignore"):
        now = np.log(shares) - np.log(rest_of(shares) + max(1 - shares.sum(), 0.0))
        best = _reply(valuations, game, now, 1e-8)
        wanted = np.where(best > -700, expit(best), 0.0)
        gain = valuations.value(capacity * wanted) - np.exp(game.log_price(best)) * wanted
        gain -= valuations.value(capacity * shares) - price * shares
        right, left = (capacity * valuations.marginal(capacity * shares, side) for side in ("right", "left"))
        slope = np.where(wanted > shares, right, left) - np.exp(game.log_marginal_price(np.clip(now, -700, 700)))
    # By concavity the gain is at most slope times distance, which does not cancel where values are large.
    with np.errstate(invalid="ignore"):
        bound = np.abs(slope) * np.abs(wanted - shares)
    return np.asarray(np.where(wanted == shares, 0.0, np.clip(gain, 0.0, bound)))


def log_level(log_bids: Floats, alpha: float) -> Floats:
    """Return α·log Σ_{j≠i} θ_j^(1/α), or the others' highest log bid for α = 0."""
    if alpha == 0:
        top = int(np.argmax(log_bids))
        others = np.delete(log_bids, top)
        return np.asarray(np.where(np.arange(log_bids.size) == top, others.max(initial=-np.inf), log_bids[top]))
    highest = log_bids.max()
    if highest == -np.inf:
        return log_bids
    return np.asarray(highest + alpha * log_rest((log_bids - highest) / alpha))


def _log(values: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def best_response(
    valuations: Valuations,
    bids: ArrayLike,
    alpha: float,
    capacity: float = 1.0,
    budgets: ArrayLike | None = None,
    reserve: float = 0.0,
) -> NDArray[np.float64]:
    """Return each agent's best bid against the bids of all others.

    Parameters
    ----------
    valuations : Valuations
        Of n agents.
    bids : array_like, shape (n,)
        Non-negative; an agent's own entry does not matter to it.
    alpha : float
        In (0, 1].
    capacity, budgets, reserve
        As in `solve`; budgets are private.

    Returns
    -------
    ndarray, shape (n,)
        Bids. Against nobody, without a reserve, every positive bid wins everything and the infimum 0 is returned.

    Examples
    --------
    >>> best_response(Valuations.linear([1, 0.5]), [2 / 9, 1 / 9], alpha=1.0).round(6)
    array([0.222222, 0.111111])
    """
    alpha = check_real(alpha, "alpha", low=0, high=1, open_low=True)
    game = _game(valuations, bids, alpha, capacity, budgets, reserve)
    with np.errstate(divide="ignore"):
        best = _reply(valuations, game, np.zeros(len(valuations)), 1.0)
        log_bids = game.log_price(best) - alpha * np.logaddexp(0, -best)
    return np.where(best > -700, np.exp(log_bids), 0.0)


def _game(
    valuations: Valuations,
    bids: ArrayLike,
    alpha: float,
    capacity: float,
    budgets: ArrayLike | None,
    reserve: float,
) -> Game:
    labels = valuations.names if isinstance(valuations.names, tuple) else None
    theta = check_vector(bids, "bids", length=len(valuations), low=0, labels=labels)
    limits = budgets_of(valuations, budgets)
    return Game(
        log_level(_log(theta), alpha),
        alpha,
        check_real(capacity, "capacity", low=0, open_low=True),
        np.full(theta.size, np.inf) if limits is None else limits,
        check_real(reserve, "reserve", low=0),
    )


def regret(
    valuations: Valuations,
    bids: ArrayLike,
    alpha: float,
    capacity: float = 1.0,
    budgets: ArrayLike | None = None,
    budget_mode: BudgetMode = "private",
    reserve: float = 0.0,
) -> NDArray[np.float64]:
    """Return how much each agent could gain by another bid, all others keeping theirs.

    Parameters
    ----------
    valuations : Valuations
        Of n agents.
    bids : array_like, shape (n,)
        Non-negative; ``inf`` is allowed with public budgets.
    alpha, capacity, budgets, budget_mode, reserve
        As in `solve`.

    Returns
    -------
    ndarray, shape (n,)
        In money, non-negative; all 0 at an equilibrium.

    Examples
    --------
    >>> regret(Valuations.linear([1, 0.5]), [0.5, 0.5], alpha=1.0).round(6)
    array([0.085786, 0.25    ])
    """
    alpha = check_real(alpha, "alpha", low=0, high=1)
    check_choice(budget_mode, "budget_mode", ("private", "public"))
    if budget_mode == "public":
        limits = budgets_of(valuations, budgets)
        out = AlphaProportional(alpha, capacity).clear(bids, budgets=limits, cap="harmonic")
        if limits is None or out.status == "no_bids":
            raise ValueError("bids must include a positive one in public mode, got none")
        return public_regret(valuations, out.bids, out.shares, out.price, alpha, out.capacity, limits)
    game = _game(valuations, bids, alpha, capacity, budgets, reserve)
    out = AlphaProportional(alpha, capacity, reserve).clear(bids)
    return gains(valuations, out.shares, out.price, game)


@dataclass(frozen=True, kw_only=True, eq=False)
class Trajectory(Record):
    """Rounds of bidding.

    Attributes
    ----------
    shares, log_bids : ndarray, shape (T, n)
        In each round.
    price, gap : ndarray, shape (T,)
        Price of the whole resource, and the largest distance of a share from the best reply.
    converged : bool
        The last gap is within the tolerance.
    """

    shares: NDArray[np.float64]
    log_bids: NDArray[np.float64]
    price: NDArray[np.float64]
    gap: NDArray[np.float64]
    converged: bool

    def table(self) -> pd.DataFrame:
        """Return one row a round: round, price, gap."""
        return pd.DataFrame({"round": np.arange(self.price.size), "price": self.price, "gap": self.gap})


# Log-odds at which best replies stop, so that an agent who gave up can come back.
_FLOOR = 60.0


def dynamics(
    valuations: Valuations,
    alpha: float,
    init: ArrayLike | None = None,
    order: Literal["simultaneous", "sequential"] = "simultaneous",
    damping: float = 0.5,
    max_iter: int = 500,
    tol: float = 1e-6,
    noise: float = 0.0,
    seed: int | None = None,
    *,
    capacity: float = 1.0,
    budgets: ArrayLike | None = None,
) -> Trajectory:
    """Let the agents reply to each other, round after round.

    Each round log θ moves to (1 − d)·log θ + d·log(best reply). Convergence is not guaranteed, and is reported.

    Parameters
    ----------
    valuations : Valuations
        Of n agents.
    alpha : float
        In (0, 1].
    init : array_like, shape (n,), optional
        First bids; left out, what price takers would bid at an equal split.
    order : {"simultaneous", "sequential"}
        Whether all agents of a round see the same bids, or each sees those before it.
    damping : float
        d, in (0, 1]; 1 jumps to the best reply.
    max_iter : int
        Rounds at most.
    tol : float
        Converged when no share is further than this from the best reply.
    noise : float
        Standard deviation of log-normal errors in every new bid.
    seed : int, optional
        Of the errors.
    capacity, budgets
        As in `solve`; budgets are private.

    Returns
    -------
    Trajectory

    Warns
    -----
    RuntimeWarning
        Not converged.

    Examples
    --------
    >>> path = dynamics(Valuations.log([1.0, 2.0], [0.1, 0.5]), alpha=1.0)
    >>> path.converged, path.shares[-1].round(4)
    (True, array([0.4728, 0.5272]))
    """
    alpha = check_real(alpha, "alpha", low=0, high=1, open_low=True)
    check_choice(order, "order", ("simultaneous", "sequential"))
    damping = check_real(damping, "damping", low=0, high=1, open_low=True)
    noise = check_real(noise, "noise", low=0)
    limit = check_integer(max_iter, "max_iter", low=1)
    n = len(valuations)
    if n < 2:
        raise ValueError("valuations must have at least two agents to reply to each other, got 1")
    bids = check_vector(capacity * valuations.marginal(capacity / n) if init is None else init, "init", length=n, low=0)
    if not bids.max() > 0:
        raise ValueError("init must include a positive bid, got only zeros")
    log_bids = np.maximum(_log(bids), np.log(bids.max()) - alpha * _FLOOR)
    game = _game(valuations, bids, alpha, capacity, budgets, 0.0)
    random = np.random.default_rng(seed)
    groups = [np.arange(n)] if order == "simultaneous" else [np.array([i]) for i in range(n)]
    parts = [valuations.subset(group) for group in groups]
    rounds: list[tuple[Floats, Floats, float, float]] = []
    target = np.zeros(n)
    for _ in range(limit):
        log_y = (log_bids - log_bids.max()) / alpha
        norm = log_norm(log_y)
        shares = np.exp(log_y - norm)
        target = _target(valuations, replace(game, level=log_level(log_bids, alpha)), target)
        gap = float(np.abs(expit(target) - shares).max())
        rounds.append((shares, log_bids, float(np.exp(log_bids.max() + alpha * norm)), gap))
        if gap <= tol:
            break
        log_bids = log_bids.copy()
        for group, part in zip(groups, parts, strict=True):
            level = log_level(log_bids, alpha)[group]
            if order == "simultaneous":
                reply = target
            else:
                reply = _target(part, replace(game, level=level, budgets=game.budgets[group]), target[group])
            moved = (1 - damping) * log_bids[group] + damping * (level + alpha * reply)
            log_bids[group] = moved + noise * random.standard_normal(group.size)
    converged = rounds[-1][3] <= tol
    if not converged:
        warnings.warn(f"the dynamics did not converge in {limit} rounds: gap {gap:.3g}", RuntimeWarning, stacklevel=2)
    s, b, p, g = (np.array(column) for column in zip(*rounds, strict=True))
    return Trajectory(shares=s, log_bids=b, price=p, gap=g, converged=converged)


def _target(valuations: Valuations, game: Game, guess: Floats) -> Floats:
    """Return the log-odds of each agent's best share, near `guess`, within what it can come back from."""
    with np.errstate(divide="ignore"):
        return np.clip(_reply(valuations, game, guess, 0.25), -_FLOOR, _FLOOR)
