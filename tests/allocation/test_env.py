"""The bidding environment for reinforcement learning."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env

from paperworks.allocation.env import BiddingEnv
from paperworks.allocation.valuations import Valuations

V = Valuations.log([1.0, 2.0, 1.5], [0.1, 1 / 3, 1.0])


def play(env: BiddingEnv, actions: np.ndarray, seed: int) -> tuple[np.ndarray, list[float]]:
    seen, rewards = [env.reset(seed=seed)[0]], []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action.astype(np.float32))
        seen.append(observation)
        rewards.append(float(reward))
        if terminated or truncated:
            break
    return np.array(seen), rewards


@pytest.mark.untyped
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_conforms() -> None:
    check_env(BiddingEnv(V, alpha=0.5), skip_render_check=True)


def test_same_seed_same_episode() -> None:
    actions = np.random.default_rng(0).normal(size=(6, 1))
    one, other = (play(BiddingEnv(V, alpha=0.5), actions, seed=7) for _ in range(2))
    np.testing.assert_array_equal(one[0], other[0])
    assert one[1] == other[1]


def test_action_is_one_log_bid() -> None:
    env = BiddingEnv(V, alpha=0.5)
    assert env.action_space.shape == (1,)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert np.all(np.isfinite(observation))
