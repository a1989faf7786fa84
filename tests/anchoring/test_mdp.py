from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from paperworks.anchoring.baselines import oc_halpern
from paperworks.anchoring.data import cycle_mdp, garnet
from paperworks.anchoring.mdp import anchored_bound, bellman_map, from_gymnasium, value_iteration

gymnasium = pytest.importorskip("gymnasium")

SETTLED = 100_000


def table_of(name: str) -> tuple[list[Any], np.ndarray]:
    return from_gymnasium(gymnasium.make(name))


def values_of(P: np.ndarray, R: np.ndarray, gamma: float, policy: np.ndarray) -> np.ndarray:
    states = np.arange(len(policy))
    return np.linalg.solve(np.eye(len(policy)) - gamma * P[policy, states], R[states, policy])


def extremes(P: np.ndarray, R: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the best and the worst values of every state, over all policies."""
    every = [values_of(P, R, gamma, np.array(policy)) for policy in itertools.product(range(len(P)), repeat=P.shape[1])]
    return np.max(every, axis=0), np.min(every, axis=0)


@pytest.mark.parametrize("method", ["anchored", "plain", "auto"])
@pytest.mark.parametrize(
    ("name", "gamma", "state", "value"),
    [
        ("FrozenLake-v1", 0.99, 0, 0.5420259320),
        ("Taxi-v4", 0.95, 0, 18.0),
        ("CliffWalking-v1", 0.95, 36, -9.7331583344),
    ],
)
def test_known_values(name: str, gamma: float, state: int, value: float, method: str) -> None:
    found = value_iteration(*table_of(name), gamma, method, tol=1e-12)
    assert found.success
    assert found.V[state] == pytest.approx(value, abs=2e-10)
    assert found.V[-1] == 0


def test_episodic_tasks_without_discount() -> None:
    P, R = table_of("CliffWalking-v1")
    for method in ("plain", "auto"):
        found = value_iteration(P, R, 1.0, method)
        assert found.success
        assert found.V[36] == pytest.approx(-13)
        assert found.value_bound is None
    anchored = value_iteration(P, R, 1.0, tol=0.1, distance=15.0)
    assert anchored.success
    assert anchored.bound == pytest.approx(2 * 15 / (anchored.nit + 1))
    assert anchored.bellman_error <= anchored.bound
    assert value_iteration(P, R, 1.0, tol=0.1).bound is None


def test_the_end_is_a_state_that_stays_and_earns_nothing() -> None:
    P, R = table_of("Taxi-v4")
    assert len(P) == 6
    assert P[0].shape == (501, 501)
    assert R.shape == (501, 6)
    assert not R[500].any()
    for a in range(6):
        assert P[a][500, 500] == 1
        np.testing.assert_allclose(np.asarray(P[a].sum(axis=1)).ravel(), 1)
    # The taxi is at its destination with the passenger in it: dropping off earns 20 and ends.
    assert P[5][16, 500] == 1
    assert R[16, 5] == 20


def test_anchored_sweeps_are_the_optimal_iteration_for_contractions() -> None:
    P, R = garnet(20, 3, 3, seed=1)
    _, T = bellman_map(P, R, 0.9)
    reference = next(itertools.islice(oc_halpern(T, np.zeros(20), 0.9), 30, None))
    found = value_iteration(P, R, 0.9, tol=0, maxiter=30)
    np.testing.assert_allclose(found.V, reference, rtol=1e-13)
    assert found.nit == 30
    assert not found.success


def test_values_policy_and_bounds_of_a_random_process() -> None:
    P, R = garnet(30, 4, 3, seed=2)
    for method in ("anchored", "plain", "auto"):
        found = value_iteration(P, R, 0.95, method, tol=1e-4)
        exact = values_of(P, R, 0.95, value_iteration(P, R, 0.95, "plain", tol=1e-11).policy)
        np.testing.assert_array_equal(found.policy, bellman_map(P, R, 0.95)[0](exact).argmax(axis=1))
        error = float(np.abs(found.V - exact).max())
        assert found.success
        assert found.bellman_error <= 1e-4
        assert found.value_bound == pytest.approx(found.bellman_error / 0.05)
        assert error <= found.bellman_error / 0.05
        assert found.bound is not None
        assert found.bellman_error <= found.bound


def test_the_bound_is_the_published_formula() -> None:
    for gamma, k in itertools.product((0.3, 0.9, 0.999), (0, 1, 7, 60)):
        published = (1 / gamma - gamma) * (1 + 2 * gamma - gamma ** (k + 1)) / (gamma ** -(k + 1) - gamma ** (k + 1))
        assert anchored_bound(gamma, k) == pytest.approx(published, rel=1e-9)
    np.testing.assert_allclose(anchored_bound(1 - 1e-9, np.arange(50)), 2 / np.arange(1, 51), rtol=1e-6)
    assert anchored_bound(1.0, 9) == 0.2
    assert anchored_bound(0.5, 5000) == 0


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 3), st.sampled_from([0.5, 0.9, 0.99]), st.integers(0, 10**6), st.integers(0, 40)
)
def test_no_process_exceeds_the_bound(S: int, A: int, gamma: float, seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    P = np.eye(S)[rng.integers(0, S, (A, S))] if seed % 2 else rng.dirichlet(np.ones(S), (A, S))
    R, V0 = rng.standard_normal((S, A)), rng.choice([0.0, 1.0, 10.0]) * rng.standard_normal(S)
    best, worst = extremes(P, R, gamma)
    distance = max(np.abs(V0 - best).max(), np.abs(V0 - worst).max())
    found = value_iteration(P, R, gamma, tol=0, maxiter=k + 1, V0=V0)
    assert found.bellman_error <= distance * anchored_bound(gamma, found.nit) * (1 + 1e-9) + 1e-12
    assert found.bound is not None
    assert distance * anchored_bound(gamma, found.nit) <= found.bound * (1 + 1e-9)
    assert value_iteration(P, R, gamma, tol=0, maxiter=k + 1, V0=V0, distance=distance).bound == pytest.approx(
        distance * anchored_bound(gamma, found.nit)
    )
    plain = value_iteration(P, R, gamma, "plain", tol=0, maxiter=k + 1, V0=V0)
    assert plain.bound is not None
    assert plain.bellman_error <= plain.bound * (1 + 1e-9) + 1e-12


def test_the_distance_to_the_best_values_alone_is_not_enough() -> None:
    P = np.eye(3)[np.array([[1, 0, 2], [0, 2, 0]])]
    R = np.array([[0.0, 2.0], [0.0, 0.0], [1.0, 0.0]])
    V0, best = np.array([19.0, 18.0, 19.0]), np.array([20.0, 18.0, 18.0])
    np.testing.assert_allclose(bellman_map(P, R, 0.9)[1](best), best)
    found = value_iteration(P, R, 0.9, tol=0, maxiter=2, V0=V0)
    assert found.bellman_error / anchored_bound(0.9, 2) == pytest.approx(1.177692, abs=1e-6)
    assert found.bound is not None
    assert found.bellman_error <= found.bound


def test_a_cycle_is_what_anchoring_is_for() -> None:
    for gamma, anchored_error, plain_error in ((0.999, 5.72e-4, 0.3604), (1.0, 9.79e-4, 0.98)):
        anchored = value_iteration(*cycle_mdp(), gamma, tol=0, maxiter=1000)
        plain = value_iteration(*cycle_mdp(), gamma, "plain", tol=0, maxiter=1000)
        assert anchored.bellman_error == pytest.approx(anchored_error, rel=2e-3)
        assert plain.bellman_error == pytest.approx(plain_error, rel=2e-3)


def test_plain_sweeps_are_fewer_where_episodes_end() -> None:
    P, R = from_gymnasium(gymnasium.make("FrozenLake-v1", map_name="8x8"))
    sweeps = [value_iteration(P, R, 0.99, method, tol=1e-6).nit for method in ("plain", "anchored")]
    assert sweeps == [369, 554]


def test_auto_is_plain_where_that_is_fast_and_never_twice_the_better_one() -> None:
    fast = value_iteration(*garnet(), 0.9, "auto")
    assert fast.switched is None
    assert fast.nit == value_iteration(*garnet(), 0.9, "plain").nit
    lake = from_gymnasium(gymnasium.make("FrozenLake-v1", map_name="8x8"))
    for (P, R), gamma, tol in ((cycle_mdp(), 0.999, 1e-3), (cycle_mdp(), 1.0, 1e-3), (lake, 0.999, 1e-5)):
        auto = value_iteration(P, R, gamma, "auto", tol=tol)
        better = min(value_iteration(P, R, gamma, m, tol=tol, maxiter=5000).nit for m in ("plain", "anchored"))
        assert auto.success
        assert auto.switched is not None
        assert auto.nit <= 2 * better + auto.switched + 1
        assert auto.bellman_error == pytest.approx(np.abs(bellman_map(P, R, gamma)[1](auto.V) - auto.V).max())
        assert auto.bellman_error <= tol
        if gamma < 1:
            assert auto.bound is not None
            assert auto.bellman_error <= auto.bound


@pytest.mark.parametrize("maxiter", [1, 50, 51, 52, 53, 60])
def test_auto_keeps_to_the_limit(maxiter: int) -> None:
    found = value_iteration(*cycle_mdp(), 1.0, "auto", tol=0, maxiter=maxiter)
    assert found.nit <= maxiter
    assert not found.success


def test_sparse_dense_and_lists_agree() -> None:
    P, R = garnet(12, 3, 2, seed=3)
    V = value_iteration(P, R, 0.9).V
    for other in ([sparse.csr_array(p) for p in P], [sparse.coo_matrix(p) for p in P], list(P), P.tolist()):
        np.testing.assert_allclose(value_iteration(other, R.tolist(), 0.9).V, V, rtol=1e-12)
    np.testing.assert_allclose(value_iteration(P, R, 0.9, V0=V).V, V)
    assert value_iteration(P, R, 0.9, V0=V, tol=1e-7).nit == 0


def broken(a: int, s: int, row: list[float]) -> np.ndarray:
    P = np.stack([np.eye(2)] * 3)
    P[a, s] = row
    return P


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("P", "error", "words"),
    [
        (broken(1, 0, [0.5, 0.4]), ValueError, r"sum 0\.9.* for action 1 in state 0"),
        (broken(2, 1, [-0.5, 1.5]), ValueError, r"least entry -0\.5 for action 2 in state 1"),
        (broken(0, 1, [np.nan, 1.0]), ValueError, "action 0 in state 1"),
        ([sparse.csr_array(p) for p in broken(1, 1, [1.0, 1e-7])], ValueError, "action 1 in state 1"),
        ([sparse.csr_array(p) for p in broken(1, 1, [-1.0, 2.0])], ValueError, "action 1 in state 1"),
        (np.eye(2), ValueError, r"shape \(3, 2, 2\)"),
        (np.stack([np.eye(2)] * 2), ValueError, r"got \(2, 2, 2\)"),
        ([sparse.eye_array(2)] * 2, ValueError, r"got \(2, 2, 2\)"),
        ([sparse.eye_array(2), sparse.eye_array(3), sparse.eye_array(2)], ValueError, r"got \(3, 3, 3\)"),
        ([[[1.0]], [[1.0, 2.0]]], ValueError, "different lengths"),
        ("none", TypeError, "real numbers"),
    ],
)
def test_bad_transitions(P: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        value_iteration(P, np.zeros((2, 3)), 0.9)


def test_rows_may_miss_one_by_rounding() -> None:
    assert value_iteration(broken(1, 0, [0.5, 0.5 + 5e-9]), np.zeros((2, 3)), 0.9).success


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        ({"gamma": 0.0}, ValueError, "gamma"),
        ({"gamma": 1.01}, ValueError, "gamma"),
        ({"gamma": np.nan}, ValueError, "gamma"),
        ({"R": [0.0, 0.0]}, ValueError, "R must have shape"),
        ({"R": [[0.0], [0.0, 1.0]]}, ValueError, "same length"),
        ({"R": [[np.inf], [0.0]]}, ValueError, "finite"),
        ({"R": [["a"], ["b"]]}, TypeError, "real numbers"),
        ({"method": "fast"}, ValueError, "method"),
        ({"tol": -1.0}, ValueError, "tol"),
        ({"maxiter": 0}, ValueError, "maxiter"),
        ({"V0": [0.0]}, ValueError, "V0"),
        ({"V0": [0.0, np.nan]}, ValueError, "V0"),
        ({"distance": -1.0}, ValueError, "distance"),
    ],
)
def test_bad_arguments(bad: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        value_iteration(**({"P": np.eye(2)[None], "R": np.zeros((2, 1)), "gamma": 0.9} | bad))


@pytest.mark.untyped
def test_an_environment_without_a_table() -> None:
    with pytest.raises(TypeError, match="table of transitions"):
        from_gymnasium(gymnasium.make("CartPole-v1"))
