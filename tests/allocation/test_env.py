"""The bidding environment for reinforcement learning."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env

from paperworks.allocation.env import BiddingEnv
from paperworks.allocation.equilibrium import solve
from paperworks.allocation.valuations import Valuations

V = Valuations.log([1.0, 2.0, 1.5], [0.1, 1 / 3, 1.0])


def play(env: BiddingEnv, actions: NDArray[np.float64], seed: int) -> tuple[NDArray[np.float32], list[float]]:
    seen, rewards = [env.reset(seed=seed)[0]], []
    for action in actions:
        observation, reward, _, _, _ = env.step(np.array([action], dtype=np.float32))
        seen.append(observation)
        rewards.append(float(reward))
    return np.array(seen), rewards


@pytest.mark.untyped
@pytest.mark.parametrize("options", [{}, {"rivals": "fixed", "noise": 0.3, "budget": 2.0, "learner": 2}])
def test_conforms(options: dict[str, Any]) -> None:
    check_env(BiddingEnv(V, alpha=0.5, **options), skip_render_check=True)


@pytest.mark.parametrize("rivals", ["fixed", "best_response"])
def test_same_seed_same_episode(rivals: Literal["fixed", "best_response"]) -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, size=6)
    one, same, other = (play(BiddingEnv(V, alpha=0.5, rivals=rivals), actions, seed=k) for k in (7, 7, 8))
    np.testing.assert_array_equal(one[0], same[0])
    assert one[1] == same[1]
    assert one[1] != other[1]


def test_spaces() -> None:
    env = BiddingEnv(V, alpha=0.5, budget=1.0)
    assert env.action_space.shape == (1,)
    assert env.observation_space.shape == (5,)
    observations, _ = play(env, np.array([-1.0, 0.0, 1.0, 1.0]), seed=0)
    assert all(env.observation_space.contains(observation) for observation in observations)


@pytest.mark.parametrize("learner", [0, 1, 2])
def test_the_equilibrium_bid_is_the_best_against_fixed_rivals(learner: int) -> None:
    eq = solve(V, 0.5)
    env = BiddingEnv(V, alpha=0.5, learner=learner, rivals="fixed", noise=0.0)
    best = float(np.log(eq.bids[learner] / eq.price) / env.span)
    _, rewards = play(env, np.array([best, best - 0.1, best + 0.1, best - 0.02, best + 0.02]), seed=0)
    assert rewards[0] == pytest.approx(V.value(eq.amounts)[learner] - eq.payments[learner], rel=1e-5)
    assert max(rewards[1:]) < rewards[0]


def test_an_episode_is_truncated_after_its_rounds() -> None:
    env = BiddingEnv(V, alpha=0.5, rounds=3)
    env.reset(seed=0)
    ends = [env.step(np.zeros(1, dtype=np.float32))[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


def test_a_budget_is_never_overspent() -> None:
    env = BiddingEnv(V, alpha=0.5, budget=0.7, rounds=20, noise=0.0)
    start = solve(V, 0.5)
    left, rewards = play(env, np.ones(20), seed=0)
    assert np.all(np.diff(left[:, 2]) <= 0)
    assert np.all(left[:, 2] >= 0)
    assert start.price > 0.7
    # with the budget gone the learner neither gets nor pays anything
    assert rewards[-1] == pytest.approx(0.0, abs=1e-2)


@pytest.mark.untyped
class TestRefused:
    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"alpha": 1.5}, "alpha"),
            ({"learner": 3}, "learner"),
            ({"capacity": 0.0}, "capacity must be positive"),
            ({"rivals": "friendly"}, "rivals must be one of"),
            ({"noise": -0.1}, "noise must be non-negative"),
            ({"budget": 0.0}, "budget must be positive"),
            ({"rounds": 0}, "rounds"),
        ],
    )
    def test_arguments(self, options: dict[str, Any], says: str) -> None:
        with pytest.raises(ValueError, match=says):
            BiddingEnv(V, **{"alpha": 0.5, **options})

    def test_without_competition(self) -> None:
        with pytest.raises(ValueError, match="valuations must compete"):
            BiddingEnv(Valuations.linear([1.0]), alpha=0.5)
