"""Markov decision processes: anchored value iteration, whose error has a bound even where future rewards count fully."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from paperworks.anchoring import schedules
from paperworks.anchoring.drive import STOPPED, AnchorResult, fixed_point
from paperworks.core.validation import check_choice, check_integer, check_real, check_vector

__all__ = ["MDPResult", "anchored_bound", "bellman_map", "from_gymnasium", "value_iteration"]

Floats = NDArray[np.float64]
Actions = Callable[[Floats], Floats]

ROW_SUM = 1e-8

# Plain sweeps are no longer trusted alone when so many of them do not bring the Bellman error down to this share.
PATIENCE, SHRINKS = 50, 0.5


@dataclass(frozen=True)
class MDPResult:
    """Values of a Markov decision process.

    Attributes
    ----------
    V : ndarray, shape (S,)
        Values of the states.
    policy : ndarray of int, shape (S,)
        Best actions if the states have these values; of equal ones the first.
    bellman_error : float
        Largest difference between `V` and what one more sweep makes of it.
    nit : int
        Sweeps, of both kinds.
    success : bool
        Whether the Bellman error is within the tolerance.
    bound : float or None
        What the Bellman error cannot exceed after these sweeps, whatever the process; None where nothing is known.
    value_bound : float or None
        What `V` is wrong by at most, ``bellman_error / (1 − gamma)``; None for gamma = 1.
    switched : int or None
        Sweep from which on ``method="auto"`` made both kinds.
    """

    V: Floats
    policy: NDArray[np.intp]
    bellman_error: float
    nit: int
    success: bool
    bound: float | None
    value_bound: float | None
    switched: int | None = None


def anchored_bound(gamma: float, k: int | NDArray[np.int_]) -> Any:
    r"""Return the largest Bellman error of anchored value iteration after k sweeps, per unit of distance at the start.

    It is :math:`(γ^{-1} − γ)(1 + 2γ − γ^{k+1}) / (γ^{-(k+1)} − γ^{k+1})`, and 2/(k + 1) for γ = 1. For a fixed policy the
    distance is ‖V₀ − V*‖∞. With a choice of actions it is the larger of that and the distance to the values of the worst
    choices, of which V̂ = min over a of R + γP_a V̂ holds: the distance to V* alone is not enough.

    Parameters
    ----------
    gamma : float
        Discount factor in (0, 1].
    k : int or ndarray of int
        Sweeps, at least 0.

    Returns
    -------
    float or ndarray

    References
    ----------
    J. Lee and E. K. Ryu, Accelerating value iteration with anchoring, arXiv 2305.16569.

    Examples
    --------
    >>> float(anchored_bound(1.0, 3))
    0.5
    """
    gamma = check_real(gamma, "gamma", low=0, high=1, open_low=True)
    steps = np.asarray(k) + 1
    if gamma == 1:
        return 2 / steps
    log = np.log(gamma)
    power = np.exp(log * steps)
    return np.expm1(2 * log) / np.expm1(2 * log * steps) * power / gamma * (1 + 2 * gamma - power)


def bellman_map(P: Any, R: ArrayLike, gamma: float) -> tuple[Actions, Callable[[Floats], Floats]]:
    """Return the values of all actions, (S,) → (S, A), and Bellman's operator, their largest, (S,) → (S,).

    Parameters
    ----------
    P, R, gamma
        As in `value_iteration`.
    """
    gamma = check_real(gamma, "gamma", low=0, high=1, open_low=True)
    rewards = _rewards(R)
    transitions = _transitions(P, rewards.shape)
    n_actions = rewards.shape[1]

    def actions(V: Floats) -> Floats:
        return np.asarray(rewards + gamma * (transitions @ V).reshape(n_actions, -1).T)

    return actions, lambda V: np.asarray(actions(V).max(axis=1))


def value_iteration(
    P: Any,
    R: ArrayLike,
    gamma: float,
    method: str = "anchored",
    tol: float = 1e-8,
    *,
    maxiter: int = 100_000,
    V0: ArrayLike | None = None,
    distance: float | None = None,
) -> MDPResult:
    """Find the best values of a Markov decision process: V(s) = max over a of R(s, a) + γ Σ P(s′ | s, a) V(s′).

    Plain value iteration needs fewer sweeps on most processes, those in which paths mix or end soon; the anchored one is
    for γ near 1, where the plain one can go round for about 1/(1 − γ) sweeps, and for γ = 1, where it may never settle.

    Parameters
    ----------
    P : array_like of shape (A, S, S), or sequence of A sparse matrices of shape (S, S)
        Probabilities of the next state: rows are states, and sum to 1. An end is a state of its own, in which every action
        stays and earns 0.
    R : array_like, shape (S, A)
        Expected rewards.
    gamma : float
        Discount factor in (0, 1].
    method : {"anchored", "plain", "auto"}
        Which sweeps. ``"auto"`` begins with plain ones; when 50 of them did not halve the Bellman error, it makes anchored
        ones from there beside them, in turns, and takes what ends first.
    tol : float
        Largest Bellman error.
    maxiter : int
        Most sweeps.
    V0 : array_like, shape (S,), optional
        Start, zeros by default.
    distance : float, optional
        Upper bound of the distance of `V0` from the best and from the worst values in any state, for the bound of the
        anchored method. It is found for γ < 1.

    Returns
    -------
    MDPResult

    Raises
    ------
    TypeError
        Not numbers.
    ValueError
        γ outside (0, 1], probabilities that are negative or do not sum to 1 (the action and state are named), shapes that
        do not fit, or an argument out of range.

    Examples
    --------
    >>> stay, go = np.eye(2), np.array([[0.0, 1.0], [0.0, 1.0]])
    >>> found = value_iteration([stay, go], [[0.0, 0.0], [1.0, 1.0]], gamma=0.5)
    >>> found.V.round(6), found.policy
    (array([1., 2.]), array([1, 0]))
    """
    check_choice(method, "method", ("anchored", "plain", "auto"))
    tol, maxiter = check_real(tol, "tol", low=0), check_integer(maxiter, "maxiter", low=1)
    actions, T = bellman_map(P, R, gamma)
    n_states = _rewards(R).shape[0]
    start = np.zeros(n_states) if V0 is None else check_vector(V0, "V0", length=n_states)
    if distance is not None:
        distance = check_real(distance, "distance", low=0)

    def bound_of(V: Floats, k: int) -> float | None:
        if distance is None and gamma == 1:
            return None
        far = float(np.abs(actions(V) - V[:, None]).max()) / (1 - gamma) if distance is None else distance
        return far * float(anchored_bound(gamma, k))

    def run(V: Floats, schedule: Any, most: int, callback: Any = None) -> AnchorResult:
        return fixed_point(T, V, schedule=schedule, norm="inf", tol=tol, maxiter=most, callback=callback)

    anchored, switched = schedules.contraction(gamma), None
    if method == "anchored":
        found = run(start, anchored, maxiter)
        nit, bound = found.nit, bound_of(start, found.nit)
    else:
        found = run(start, "plain", maxiter, _stop_if_slow() if method == "auto" else None)
        nit, first = found.nit, float(found.history["residual"][0])
        bound = gamma**nit * first
        if found.status == STOPPED and nit + 1 < maxiter:
            switched, start, distance = nit, found.x, None
            beside = _PlainSweeps(T, start, tol)
            found = run(start, anchored, (maxiter - nit) // 2, beside)
            nit += found.nit + beside.made
            bound = bound_of(start, found.nit)
            if not found.success and beside.error < found.residual:
                found.update(x=beside.V, residual=beside.error, success=beside.error <= tol)
                bound = gamma ** (switched + beside.made) * first
    error = float(found.residual)
    return MDPResult(
        V=found.x,
        policy=actions(found.x).argmax(axis=1),
        bellman_error=error,
        nit=nit,
        success=bool(found.success),
        bound=bound,
        value_bound=error / (1 - gamma) if gamma < 1 else None,
        switched=switched,
    )


def _stop_if_slow() -> Callable[..., None]:
    """Return a callback that ends a run in which the residual does not halve."""
    errors: list[float] = []

    def callback(intermediate_result: Any) -> None:
        errors.append(intermediate_result.residual)
        if len(errors) > PATIENCE and errors[-1] > SHRINKS * errors[-1 - PATIENCE]:
            raise StopIteration

    return callback


class _PlainSweeps:
    """A callback that makes a plain sweep for every one of a run, and ends the run when these come to an end."""

    def __init__(self, T: Callable[[Floats], Floats], V: Floats, tol: float) -> None:
        self._T, self._next, self._tol = T, V, tol
        self.V, self.error, self.made = V, np.inf, -1

    def __call__(self, intermediate_result: Any) -> None:
        self.V, self.made = self._next, self.made + 1
        self._next = self._T(self.V)
        self.error = float(np.abs(self._next - self.V).max())
        if self.error <= self._tol:
            raise StopIteration


def _rewards(R: ArrayLike) -> Floats:
    try:
        rewards = np.asarray(R)
    except ValueError:
        raise ValueError("the rows of R must have the same length") from None
    if rewards.ndim != 2 or not rewards.size:
        raise ValueError(f"R must have shape (states, actions), got {rewards.shape}")
    if rewards.dtype.kind not in "biuf":
        raise TypeError(f"R must be real numbers, got dtype {rewards.dtype}")
    if not np.isfinite(rewards).all():
        raise ValueError("R must be finite")
    return rewards.astype(np.float64)


def _transitions(P: Any, shape: tuple[int, int]) -> Any:
    """Return the probabilities of all actions below each other, shape (A·S, S), checked."""
    n_states, n_actions = shape
    expected = (n_actions, n_states, n_states)
    if isinstance(P, Sequence) and P and all(sparse.issparse(matrix) for matrix in P):
        found = (len(P), *next((m.shape for m in P if m.shape != (n_states, n_states)), P[0].shape))
        stacked = sparse.vstack(P, format="csr", dtype=np.float64) if found == expected else None
    else:
        try:
            array = np.asarray(P)
        except ValueError:
            raise ValueError(f"P must have shape {expected}, got rows of different lengths") from None
        if array.dtype.kind not in "biuf":
            raise TypeError(f"P must be real numbers or sparse matrices, got dtype {array.dtype}")
        found = array.shape
        stacked = array.astype(np.float64).reshape(-1, n_states) if found == expected else None
    if stacked is None:
        raise ValueError(f"P must have shape {expected} to fit R of shape {shape}, got {found}")
    sums = np.asarray(stacked.sum(axis=1)).ravel()
    least = stacked.min(axis=1)
    least = np.asarray(least.todense() if sparse.issparse(least) else least).ravel()
    good = (least >= 0) & (np.abs(sums - 1) <= ROW_SUM)
    if not good.all():
        a, s = divmod(int(np.argmin(good)), n_states)
        problem = (
            f"least entry {least[a * n_states + s]}" if least[a * n_states + s] < 0 else f"sum {sums[a * n_states + s]}"
        )
        raise ValueError(f"rows of P must be probabilities, got {problem} for action {a} in state {s}")
    return stacked


def from_gymnasium(env: Any) -> tuple[list[sparse.csr_array], Floats]:
    """Return transitions and rewards of a gymnasium environment that has a table of them, as the toy-text ones do.

    Parameters
    ----------
    env : gymnasium.Env
        ``env.unwrapped.P[s][a]`` is a list of (probability, next state, reward, terminated).

    Returns
    -------
    P : list of A sparse arrays, shape (S + 1, S + 1)
        The last state is the end: every transition that terminates leads there, and it has value 0.
    R : ndarray, shape (S + 1, A)
        Expected rewards.

    Raises
    ------
    TypeError
        An environment without such a table.

    Examples
    --------
    >>> import gymnasium
    >>> P, R = from_gymnasium(gymnasium.make("FrozenLake-v1"))
    >>> round(float(value_iteration(P, R, gamma=0.99).V[0]), 6)
    0.542026
    """
    table = getattr(getattr(env, "unwrapped", env), "P", None)
    if not table:
        raise TypeError(f"env must have a table of transitions, env.unwrapped.P, got {env!r}")
    states = range(len(table))
    n_states, n_actions = len(table), len(table[0])
    rows = np.array(
        [
            (a, s, n_states if terminated else after, probability, reward)
            for s in states
            for a in range(n_actions)
            for probability, after, reward, terminated in table[s][a]
        ],
        dtype=np.float64,
    )
    a, s, after = rows[:, :3].astype(int).T
    probability, reward = rows[:, 3:].T
    R = np.zeros((n_states + 1, n_actions))
    np.add.at(R, (s, a), probability * reward)
    end = n_states
    P = []
    for action in range(n_actions):
        chosen = a == action
        entries = np.append(probability[chosen], 1.0)
        at = np.append(s[chosen], end), np.append(after[chosen], end)
        P.append(sparse.csr_array((entries, at), shape=(end + 1, end + 1)))
    return P, R
