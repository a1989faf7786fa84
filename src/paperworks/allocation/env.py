"""One bidder of repeated rounds as a reinforcement-learning environment."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from paperworks.allocation.equilibrium import solve
from paperworks.allocation.mechanism import AlphaProportional, Clearing
from paperworks.allocation.responses import best_response
from paperworks.allocation.valuations import Valuations
from paperworks.core.extras import require
from paperworks.core.validation import check_choice, check_integer, check_real

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec
else:
    gymnasium = require("gymnasium", "allocation")
    EnvSpec = gymnasium.envs.registration.EnvSpec

__all__ = ["BiddingEnv"]

Observation = NDArray[np.float32]


class BiddingEnv(gymnasium.Env[Observation, NDArray[np.float32]]):
    r"""Learn to bid against rivals in the α-proportional mechanism.

    - Action, Box(1) in [−1, 1]: the bid is :math:`\lambda^* \exp(\text{span} \cdot a)`, with λ* the equilibrium price.
    - Observation, Box(5) in [0, 1]: own share, price, fraction of the budget left, mean and greatest rival bid of the
      last round; money x appears as x/(x + λ*).
    - Reward: value of the amount minus the payment.

    An episode has a fixed number of rounds and is then truncated. A budget caps the payments harmonically.

    Parameters
    ----------
    valuations : Valuations
        All agents, the learner among them; they must compete for the capacity.
    alpha : float
        In (0, 1].
    learner : int
        Position of the learner.
    capacity : float
        Amount of the resource in a round.
    rivals : {"best_response", "fixed"}
        Move halfway (in logs) to their best response to the last round, or stay around their equilibrium bids.
    noise : float
        Standard deviation of the log of a rival's bid.
    budget : float, optional
        Money of the learner for one episode.
    rounds : int
        Length of an episode.
    span : float
        Greatest |log(bid/λ*)|.

    Raises
    ------
    MissingExtra
        gymnasium is not installed (when this module is imported).

    Examples
    --------
    >>> env = BiddingEnv(Valuations.log([1.0, 2.0, 1.5], [0.1, 0.3, 0.2]), alpha=0.5)
    >>> observation, info = env.reset(seed=0)
    >>> observation, reward, terminated, truncated, info = env.step(np.zeros(1, dtype=np.float32))
    >>> observation.shape, info["bid"] == env.scale
    ((5,), True)
    """

    def __init__(
        self,
        valuations: Valuations,
        alpha: float,
        learner: int = 0,
        capacity: float = 1.0,
        rivals: Literal["best_response", "fixed"] = "best_response",
        noise: float = 0.05,
        budget: float | None = None,
        rounds: int = 50,
        span: float = 3.0,
    ) -> None:
        equilibrium = solve(valuations, check_real(alpha, "alpha", low=0, high=1, open_low=True), capacity)
        if equilibrium.status != "ok":
            raise ValueError(
                f"valuations must compete for the capacity, got an equilibrium that is {equilibrium.status}"
            )
        self.valuations = valuations
        self.learner = check_integer(learner, "learner", low=0)
        if self.learner >= len(valuations):
            raise ValueError(f"learner must be below {len(valuations)}, got {learner}")
        self.rivals = check_choice(rivals, "rivals", ["best_response", "fixed"])
        self.noise = check_real(noise, "noise", low=0)
        self.budget = None if budget is None else check_real(budget, "budget", low=0, open_low=True)
        self.rounds = check_integer(rounds, "rounds", low=1)
        self.span = check_real(span, "span", low=0, open_low=True)
        self.mechanism = AlphaProportional(alpha, capacity)
        self.scale = equilibrium.price
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (5,), np.float32)
        # Lets gymnasium rebuild the environment without a global registration.
        self.spec = EnvSpec(
            "paperworks/Bidding-v0",
            entry_point="paperworks.allocation.env:BiddingEnv",
            kwargs={
                "valuations": valuations,
                "alpha": alpha,
                "learner": learner,
                "capacity": capacity,
                "rivals": rivals,
                "noise": noise,
                "budget": budget,
                "rounds": rounds,
                "span": span,
            },
        )
        self._equilibrium_bids = equilibrium.bids
        self._bids, self._balance, self._round = equilibrium.bids, math.inf, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode: the rivals bid around the equilibrium, the learner its equilibrium bid."""
        super().reset(seed=seed)
        self._round, self._balance = 0, math.inf if self.budget is None else self.budget
        self._bids = self._equilibrium_bids
        self._perturb()
        clearing = self._clear()
        return self._observe(clearing), self._info(clearing)

    def step(self, action: NDArray[np.float32]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Bid once: the rivals move first, by what they saw in the last round."""
        level = float(np.asarray(action).reshape(1)[0])
        if self.rivals == "best_response":
            best = best_response(
                self.valuations, bids=self._bids, alpha=self.mechanism.alpha, capacity=self.mechanism.capacity
            )
            # A bid of 0 would have no logarithm to come back from; this much buys a billionth of the resource.
            foothold = self.scale * 1e-9**self.mechanism.alpha
            self._bids = np.sqrt(np.maximum(self._bids, foothold) * np.maximum(best, foothold))
        else:
            self._bids = self._equilibrium_bids
        self._perturb()
        self._bids[self.learner] = self.scale * math.exp(self.span * check_real(level, "action"))
        clearing = self._clear()
        info = self._info(clearing)
        self._balance -= info["payment"]
        self._round += 1
        return self._observe(clearing), info["value"] - info["payment"], False, self._round >= self.rounds, info

    def _perturb(self) -> None:
        bids = self._bids * np.exp(self.noise * self.np_random.standard_normal(len(self.valuations)))
        bids[self.learner] = self._bids[self.learner]
        self._bids = bids

    def _clear(self) -> Clearing:
        if self.budget is None:
            return self.mechanism.clear(self._bids)
        budgets = np.full(len(self.valuations), np.inf)
        budgets[self.learner] = max(self._balance, 0.0)
        return self.mechanism.clear(self._bids, budgets=budgets, cap="harmonic")

    def _observe(self, clearing: Clearing) -> Observation:
        rivals = np.delete(self._bids, self.learner)
        money = np.array([clearing.price, rivals.mean(), rivals.max()])
        price, mean, greatest = money / (money + self.scale)
        left = 1.0 if self.budget is None else max(self._balance, 0.0) / self.budget
        return np.array([clearing.shares[self.learner], price, left, mean, greatest], dtype=np.float32)

    def _info(self, clearing: Clearing) -> dict[str, Any]:
        own = self.learner
        return {
            "bid": float(self._bids[own]),
            "amount": float(clearing.amounts[own]),
            "payment": float(clearing.payments[own]),
            "value": float(self.valuations.value(clearing.amounts)[own]),
        }
