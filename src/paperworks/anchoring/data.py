"""Problems to try the methods on, made from formulas; Kuhn poker and other games; linear programmes of Netlib."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paperworks.anchoring.lp import LPModel, read_mps
from paperworks.core.data import DataFile, path
from paperworks.core.validation import check_choice, check_integer

__all__ = [
    "FieldProblem",
    "cycle_mdp",
    "garnet",
    "kuhn_poker",
    "lieder_map",
    "morra",
    "netlib",
    "netlib_path",
    "ouyang_xu",
    "phantom",
    "random_monotone",
    "rotation",
]

Floats = NDArray[np.float64]

_INSTANCES = (
    "https://raw.githubusercontent.com/ERGO-Code/HiGHS/73cac48c5340d775a477087198611862559be250/check/instances/{}.mps"
)

NETLIB = {
    name: DataFile("anchoring", f"{name}.mps", sha256, "MIT", url=_INSTANCES.format(name), size=size)
    for name, size, sha256 in [
        ("afiro", 3_271, "9cd304f02717cbd6f85068cb777b69d28539b22a4868ae0f0fb425f514f0eea5"),
        ("adlittle", 16_525, "ed99da009e35279828219ff7f04a2cd4f170692bedf58f704b622338e4adc1f9"),
        ("israel", 80_486, "09ff7b847b40ac47e23ab8925846806d76e31b65b76b98a31437d08d74e339eb"),
        ("standata", 107_300, "2db2f29138578b2ffa76cc8446b5444fc5daff44022599b83efee0f70a1b9382"),
        ("shell", 178_817, "56beff764cbc65d4aed6b490189371adfb3296e022100c1ad5d222586ed3701c"),
        ("stair", 129_384, "6276b3a0692a12bf975b75001505c975a7eeb8cfe7431647bfaa7265358aeea2"),
        ("etamacro", 94_794, "a6a747c2be34c316ad8444e8f333ae6395c089f27b92826b89fe380f40632037"),
        ("25fv47", 366_946, "e4ee6ed9e3fecb368bdc6fca6f9def3abc31f7937ec627b0eb4afa7c0b528b96"),
        ("woodinfe", 8_576, "26cb8633b4d9bb9dcbd60b04534ef7b9b0709a67b0ba62c0a95481a8ea71181f"),
        ("klein1", 22_320, "7028fd263edc30c25e8c8f713b1b1695f8d9981c9959c1d9b8d2416bf56458e1"),
        ("galenet", 1_102, "c0c0b157f690cafc57719a922d50065881a9e464543fd55b1e5a0fb00f77aee4"),
    ]
}
"""Files of `netlib`."""

OPTIMA = {
    "afiro": -464.75314285714285,
    "adlittle": 225494.9631623804,
    "israel": -896644.8218630457,
    "standata": 1257.6995,
    "shell": 1208825346.0,
    "stair": -251.26695119296335,
    "etamacro": -755.7152333005279,
    "25fv47": 5501.84588828675,
}
"""Optima of the feasible ones, as HiGHS 1.16.0 finds them."""

EMBEDDED = ("afiro", "adlittle", "israel", "woodinfe", "galenet")

FILES = tuple(NETLIB.values())


@dataclass(frozen=True, eq=False)
class FieldProblem:
    """A monotone field with what is known of it.

    Attributes
    ----------
    field : callable
        F, from arrays of shape (n,) to such arrays.
    x0 : ndarray, shape (n,)
        A start.
    lipschitz : float
        L.
    matrix : ndarray, shape (n, n), or None
        A and b with F(x) = A x − b, where F is linear.
    b : ndarray, shape (n,), or None
    """

    field: Callable[[Floats], Floats]
    x0: Floats
    lipschitz: float
    matrix: Floats | None = None
    b: Floats | None = None


def rotation(n: int = 2) -> FieldProblem:
    """Return the field of the game min over x, max over y of x·y: F(x, y) = (y, −x), for n even.

    Examples
    --------
    >>> rotation().field(np.array([1.0, 0.0]))
    array([ 0., -1.])
    """
    n = check_integer(n, "n", low=2)
    if n % 2:
        raise ValueError(f"n must be even, got {n}")
    half = np.eye(n // 2)
    matrix = np.block([[0 * half, half], [-half, 0 * half]])
    return _linear(matrix, np.zeros(n), np.eye(n)[0])


def ouyang_xu(n: int = 100) -> FieldProblem:
    """Return the hard bilinear saddle problem of Y. Ouyang and Y. Xu (Math. Program. 185, 2021), ½xᵀHx − hᵀx − ⟨Ax − b, y⟩.

    A is bidiagonal from the lower left with entries ¼, and H = 2AᵀA; x and y have n entries each.

    Parameters
    ----------
    n : int
        Half the number of variables, at least 2.
    """
    n = check_integer(n, "n", low=2)
    A = (np.fliplr(np.eye(n)) - np.fliplr(np.eye(n, k=1))) / 4
    H = 2 * A.T @ A
    b, h = np.full(n, 0.25), np.eye(n)[-1] / 4
    matrix = np.block([[H, -A.T], [A, np.zeros((n, n))]])
    return _linear(matrix, np.concatenate([h, b]), np.zeros(2 * n))


def _linear(matrix: Floats, b: Floats, x0: Floats) -> FieldProblem:
    return FieldProblem(lambda x: matrix @ x - b, x0, float(np.linalg.norm(matrix, 2)), matrix, b)


def lieder_map(N: int) -> Callable[[Floats], Floats]:
    """Return the nonexpansive map of one variable on which Halpern's bound is attained at iteration N, from x₀ = 1.

    Examples
    --------
    >>> lieder_map(3)(np.array([1.0, 0.1]))
    array([ 0.5, -0.1])
    """
    s = 1 / (check_integer(N, "N", low=1) + 1)
    return lambda x: np.where(np.abs(x) <= s, -x, x - 2 * s * np.sign(x))


def random_monotone(kind: str, n: int, seed: int = 0) -> FieldProblem:
    """Return a random monotone field with L = 1 and a zero at the origin.

    Parameters
    ----------
    kind : {"linear", "nonlinear"}
        A matrix that is not normal, with a skew and a positive semidefinite part; or c·S + (1 − c)·Wᵀtanh(3W·)/3 with S
        skew and the norms of S and W equal to 1.
    n : int
        Variables, at least 2.
    seed : int
        Of everything, `x0` among it.
    """
    check_choice(kind, "kind", ("linear", "nonlinear"))
    n = check_integer(n, "n", low=2)
    rng = np.random.default_rng(check_integer(seed, "seed", low=0))
    skew = rng.standard_normal((n, n))
    skew -= skew.T
    x0 = rng.standard_normal(n)
    if kind == "linear":
        root = rng.standard_normal((n, n))
        matrix = skew + rng.uniform(0, 1) * root @ root.T
        return _linear(matrix / np.linalg.norm(matrix, 2), np.zeros(n), x0)
    skew /= np.linalg.norm(skew, 2)
    W = rng.standard_normal((n, n))
    W /= np.linalg.norm(W, 2)
    c = rng.uniform(0, 1)
    return FieldProblem(lambda x: c * (skew @ x) + (1 - c) * W.T @ np.tanh(3 * (W @ x)) / 3, x0, 1.0)


def kuhn_poker() -> Floats:
    """Return Kuhn's poker as a matrix game, shape (27, 64): what the first player wins on average, who maximises.

    A strategy of the first player says for each card whether to check and fold, check and call, or bet; one of the second
    for each card what to do after a check (2) and after a bet (2). The value is −1/18 (H. W. Kuhn, 1950).

    Examples
    --------
    >>> kuhn_poker().shape
    (27, 64)
    """
    deals = list(permutations(range(3), 2))
    first = list(product(range(3), repeat=3))  # 0: check, fold; 1: check, call; 2: bet
    second = list(product(product((0, 1), repeat=2), repeat=3))  # bet after a check, call after a bet
    payoff = np.zeros((len(first), len(second)))
    for i, mine in enumerate(first):
        for j, theirs in enumerate(second):
            payoff[i, j] = np.mean([_kuhn_hand(mine[a], theirs[b], 1 if a > b else -1) for a, b in deals])
    return payoff


def _kuhn_hand(mine: int, theirs: tuple[int, ...], better: int) -> int:
    bets_after_check, calls_bet = theirs
    if mine == 2:
        return 2 * better if calls_bet else 1
    if not bets_after_check:
        return better
    return 2 * better if mine == 1 else -1


def morra(fingers: int = 3) -> Floats:
    """Return the game of Morra, shape (f², f²): both show fingers and guess the sum; who alone is right wins it.

    Skew-symmetric, so its value is 0.
    """
    fingers = check_integer(fingers, "fingers", low=1)
    moves = list(product(range(1, fingers + 1), repeat=2))  # shown, and guessed of the other
    payoff = np.zeros((len(moves), len(moves)))
    for i, (shown, guess) in enumerate(moves):
        for j, (other, their_guess) in enumerate(moves):
            payoff[i, j] = (shown + other) * ((guess == other) - (their_guess == shown))
    return payoff


def garnet(states: int = 50, actions: int = 4, branches: int = 3, seed: int = 0) -> tuple[Floats, Floats]:
    """Return transitions and rewards of a random Markov decision process.

    Parameters
    ----------
    states, actions : int
        Sizes.
    branches : int
        States that can follow a state and an action.
    seed : int
        Of both.

    Returns
    -------
    P : ndarray, shape (A, S, S)
    R : ndarray, shape (S, A)
        Standard normal.
    """
    states, actions = check_integer(states, "states", low=1), check_integer(actions, "actions", low=1)
    branches = check_integer(branches, "branches", low=1)
    if branches > states:
        raise ValueError(f"branches must be at most the number of states, {states}, got {branches}")
    rng = np.random.default_rng(check_integer(seed, "seed", low=0))
    P = np.zeros((actions, states, states))
    for a, s in product(range(actions), range(states)):
        P[a, s, rng.choice(states, branches, replace=False)] = rng.dirichlet(np.ones(branches))
    return P, rng.standard_normal((states, actions))


def cycle_mdp(states: int = 50) -> tuple[Floats, Floats]:
    """Return a cycle without choice, with a reward of 1 in state 0, less the mean: there are values for γ = 1 too.

    Value iteration goes round with its error about 1/(1 − γ) times, for γ = 1 for ever.

    Returns
    -------
    P : ndarray, shape (1, S, S)
    R : ndarray, shape (S, 1)
    """
    states = check_integer(states, "states", low=1)
    return np.roll(np.eye(states), 1, axis=1)[None], np.eye(states)[:, :1] - 1 / states


_ELLIPSES = (
    # value, half axes, centre, angle in degrees (modified Shepp and Logan)
    (1.0, 0.69, 0.92, 0.0, 0.0, 0.0),
    (-0.8, 0.6624, 0.874, 0.0, -0.0184, 0.0),
    (-0.2, 0.11, 0.31, 0.22, 0.0, -18.0),
    (-0.2, 0.16, 0.41, -0.22, 0.0, 18.0),
    (0.1, 0.21, 0.25, 0.0, 0.35, 0.0),
    (0.1, 0.046, 0.046, 0.0, 0.1, 0.0),
    (0.1, 0.046, 0.046, 0.0, -0.1, 0.0),
    (0.1, 0.046, 0.023, -0.08, -0.605, 0.0),
    (0.1, 0.023, 0.023, 0.0, -0.606, 0.0),
    (0.1, 0.023, 0.046, 0.06, -0.605, 0.0),
)


def phantom(n: int = 64) -> Floats:
    """Return the modified Shepp–Logan phantom, shape (n, n), values from 0 to 1."""
    n = check_integer(n, "n", low=2)
    axis = (np.arange(n) + 0.5) / n * 2 - 1
    x, y = axis[None], -axis[:, None]
    image = np.zeros((n, n))
    for value, a, b, x0, y0, degrees in _ELLIPSES:
        angle = np.deg2rad(degrees)
        u = (x - x0) * np.cos(angle) + (y - y0) * np.sin(angle)
        v = (y - y0) * np.cos(angle) - (x - x0) * np.sin(angle)
        image[(u / a) ** 2 + (v / b) ** 2 <= 1] += value
    return np.clip(image, 0.0, 1.0)


def netlib(name: str) -> LPModel:
    """Return a linear programme of the Netlib collection; the small ones are embedded.

    Parameters
    ----------
    name : str
        A key of `NETLIB`. ``woodinfe``, ``klein1`` and ``galenet`` are infeasible; optima of the others are in `OPTIMA`.

    Raises
    ------
    ValueError
        No such programme.
    DataUnavailable
        It is not embedded, and the file is neither on this machine nor to be downloaded.
    MissingExtra
        Without highspy, which reads the file.

    Examples
    --------
    >>> netlib("afiro").A.shape
    (27, 32)

    References
    ----------
    D. M. Gay: Electronic mail distribution of linear programming test problems, COAL Newsletter 13 (1985).
    """
    return read_mps(netlib_path(name))


def netlib_path(name: str) -> Path:
    """Return the MPS file of a linear programme of the Netlib collection; the arguments and errors are `netlib`'s.

    Examples
    --------
    >>> netlib_path("afiro").name
    'afiro.mps'
    """
    check_choice(name, "name", NETLIB)
    return Path(__file__).with_name(f"{name}.mps") if name in EMBEDDED else path(NETLIB[name])
