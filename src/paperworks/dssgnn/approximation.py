"""How well a short series in frequency and ξ approximates a random signal, and which signals a filter reaches."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainc, gammaln
from scipy.stats import linregress
from torch import Tensor

from paperworks.core.validation import check_choice, check_integer, check_real, check_vector
from paperworks.dssgnn.chaos import OrthogonalBasis
from paperworks.dssgnn.filters import BASES, ChebProp, to_chebyshev

__all__ = [
    "LogLinearFit",
    "Reach",
    "ellipse_maximum",
    "exponential_tail",
    "joint_truncation_error",
    "joint_truncation_errors",
    "log_linear_fit",
    "reach",
    "tanh_tail",
    "truncation_bound",
]

Floats = NDArray[np.float64]

# Chebyshev nodes beyond the degree with which the target's coefficients are interpolated, and Gauss nodes over x.
_EXTRA, _FREQUENCIES = 100, 100
# The step and the reach, beyond the oscillating part of ψ_P, of the trapezoidal rule over ξ: both far beyond what
# double precision needs, because tanh is analytic and the normal density small.
_STEP, _BEYOND = 0.05, 12.0
_HIGHEST = 500


def joint_truncation_errors(
    K: int, P: int, *, t: float = 1.0, s: float = 0.8, frequencies: ArrayLike | None = None
) -> Floats:
    r"""Return the errors of all truncations, up to degree K and order P, of a graph signal whose chaos is known.

    The signal is f(x, ξ) = exp(−t(1 − x) + s ξ x) of a frequency x = 1 − λ and a standard normal ξ. Its coefficients
    are

    .. math:: c_p(x) = e^{-t(1-x) + s^2x^2/2} \frac{(sx)^p}{\sqrt{p!}}

    Orders above P are left out, and each c_p is cut after the Chebyshev polynomial of degree K. The error is the root
    mean square over x and ξ, relative to that of f: the larger of the two truncations rules.

    Parameters
    ----------
    K, P : int
        Largest degree and largest order.
    t, s : float
        Decay and variation, nonnegative.
    frequencies : array_like, shape (n,), optional
        In [−1, 1], over which to average, for instance one minus the eigenvalues of a graph's Laplacian; by default x
        is uniform on [−1, 1].

    Returns
    -------
    ndarray, shape (K + 1, P + 1)
        Accurate to about 1e-15.

    Raises
    ------
    ValueError
        A negative number, no frequency, or one outside [−1, 1].

    Examples
    --------
    >>> joint_truncation_errors(12, 12)[[0, 2, 2, 12], [0, 2, 12, 2]].round(4)
    array([0.7152, 0.1677, 0.1434, 0.1015])
    """
    K, P = check_integer(K, "K", low=0), check_integer(P, "P", low=0)
    t, s = check_real(t, "t", low=0), check_real(s, "s", low=0)
    if frequencies is None:
        x, weights = np.polynomial.legendre.leggauss(_FREQUENCIES)
    else:
        x = check_vector(frequencies, "frequencies", low=-1)
        if x.size == 0 or x.max() > 1:
            raise ValueError(f"frequencies must be at least one and in [-1, 1], got {x.max() if x.size else 'none'}")
        weights = np.ones(len(x))
    exact = _coefficients(x, P, t, s)
    nodes = chebyshev.chebpts1(K + _EXTRA)
    theta = _coefficients(nodes, P, t, s) @ chebyshev.chebvander(nodes, K) * (2 / len(nodes))
    theta[:, 0] /= 2
    partial = np.cumsum(theta[:, :, None] * chebyshev.chebvander(x, K).T, axis=1)
    cut = np.cumsum(np.square(exact[:, None] - partial) @ weights, axis=0)
    power = np.exp(2 * t * (x - 1) + 2 * (s * x) ** 2)
    tail = (power * gammainc(np.arange(1, P + 2)[:, None], (s * x) ** 2)) @ weights
    errors: Floats = np.sqrt((cut.T + tail) / (power @ weights))
    return errors


def joint_truncation_error(
    K: int, P: int, *, t: float = 1.0, s: float = 0.8, frequencies: ArrayLike | None = None
) -> float:
    """Return the relative error of one truncation: the last entry of `joint_truncation_errors`.

    Examples
    --------
    >>> f"{joint_truncation_error(12, 12):.2e}"
    '1.91e-07'
    """
    return float(joint_truncation_errors(K, P, t=t, s=s, frequencies=frequencies)[-1, -1])


def _coefficients(x: Floats, P: int, t: float, s: float) -> Floats:
    """c_0 … c_P of the signal of `joint_truncation_errors` at x, shape (P + 1, len(x))."""
    p = np.arange(P + 1)[:, None]
    values: Floats = np.exp(t * (x - 1) + (s * x) ** 2 / 2 - gammaln(p + 1) / 2) * (s * x) ** p
    return values


def ellipse_maximum(rho: float, r: float, *, t: float = 1.0, s: float = 0.8) -> float:
    r"""Return the least M with \|c_p\| ≤ M r^p on the Bernstein ellipse, for `joint_truncation_errors`' signal.

    All of the c_p are largest at the right end of the ellipse, (ρ + 1/ρ)/2.

    Parameters
    ----------
    rho : float
        Sum of the half axes, above 1.
    r : float
        Rate, in (0, 1).
    t, s : float
        Decay and variation, nonnegative.

    Raises
    ------
    ValueError
        A number out of range.
    OverflowError
        M is beyond 1e308.

    Examples
    --------
    >>> round(ellipse_maximum(2.0, 0.9), 4)
    2.3522
    """
    rho, r = _check_class(rho, r)
    t, s = check_real(t, "t", low=0), check_real(s, "s", low=0)
    a = (rho + 1 / rho) / 2
    u = s * a / r
    p = math.floor(u**2)
    growth = p * math.log(u) - math.lgamma(p + 1) / 2 if p else 0.0
    return math.exp(t * (a - 1) + (s * a) ** 2 / 2 + growth)


def truncation_bound(K: int, P: int, rho: float, r: float, M: float) -> float:
    r"""Return a bound of the error of a series cut after degree K and order P, in L2 of ξ, the worst over x ∈ [−1, 1].

    .. math:: \frac{2Mρ^{-K}}{(ρ-1)\sqrt{1-r^2}} + \frac{Mr^{P+1}}{\sqrt{1-r^2}}

    It holds for f(x, ξ) = Σ_p c_p(x) ψ_p(ξ) if every c_p is analytic in the Bernstein ellipse of half axes ½(ρ ± 1/ρ)
    and at most M r^p there.

    Parameters
    ----------
    K, P : int
        Degree and order, nonnegative.
    rho : float
        Sum of the half axes, above 1.
    r : float
        Rate, in (0, 1).
    M : float
        Nonnegative.

    Raises
    ------
    ValueError
        A number out of range.

    Examples
    --------
    >>> truncation_bound(2, 1, 2.0, 0.6, 1.0)
    1.075
    """
    K, P = check_integer(K, "K", low=0), check_integer(P, "P", low=0)
    rho, r = _check_class(rho, r)
    M = check_real(M, "M", low=0)
    return M * (2 * rho**-K / (rho - 1) + r ** (P + 1)) / math.sqrt(1 - r**2)


def _check_class(rho: float, r: float) -> tuple[float, float]:
    rho, r = check_real(rho, "rho", low=1, open_low=True), check_real(r, "r", low=0, high=1, open_low=True)
    if r == 1:
        raise ValueError(f"r must be less than 1, got {r}")
    return rho, r


def exponential_tail(P: int, s: float = 1.0) -> float:
    """Return the error of exp(s ξ) cut after order P, ξ standard normal: root mean square, relative to the function.

    Examples
    --------
    >>> round(exponential_tail(4), 5)
    0.0605
    """
    P, s = check_integer(P, "P", low=0), check_real(s, "s")
    return math.sqrt(gammainc(P + 1, s**2))


def tanh_tail(P: ArrayLike) -> Floats:
    r"""Return the errors of tanh(ξ) cut after order P, ξ standard normal: root mean squares, absolute.

    As tanh has poles at ±iπ/2, they fall like exp(−c √P) only: probabilities, unlike logits in the class of
    `truncation_bound`, have no series of exponential decay.

    Parameters
    ----------
    P : int or array_like of int
        Orders, at most 500.

    Returns
    -------
    ndarray, shape of `P`
        Accurate to about 1e-13.

    Raises
    ------
    ValueError
        An order below 0 or above 500.

    Examples
    --------
    >>> tanh_tail([1, 3, 7]).round(5)
    array([0.16558, 0.07336, 0.02193])
    """
    orders = [check_integer(p, "P", low=0) for p in np.asarray(P).flat]
    if not orders or max(orders) > _HIGHEST:
        raise ValueError(f"P must be at least one order and at most {_HIGHEST}, got {P!r}")
    end = 2 * math.sqrt(max(orders) + 1) + _BEYOND
    xi = np.arange(-end, end, _STEP)
    root = np.exp(-(xi**2) / 4) * math.sqrt(_STEP / math.sqrt(2 * math.pi))
    functions = OrthogonalBasis().vander(torch.from_numpy(xi), max(orders)).numpy() * root[:, None]
    f = np.tanh(xi) * root
    partial = np.cumsum(functions * (f @ functions), axis=1)
    tails: Floats = np.sqrt(np.square(f[:, None] - partial).sum(0))[orders].reshape(np.shape(P))
    return tails


class LogLinearFit(NamedTuple):
    """log(error) ≈ intercept + slope · n, and the share R² of the logarithm's variance that it explains."""

    slope: float
    intercept: float
    r2: float


def log_linear_fit(n: ArrayLike, errors: ArrayLike) -> LogLinearFit:
    """Fit a straight line to the natural logarithms of errors, by least squares.

    Parameters
    ----------
    n : array_like, shape (points,)
        At least 2 different values.
    errors : array_like, shape (points,)
        Positive.

    Raises
    ------
    ValueError
        Shapes do not fit, an error is not positive, or `n` has fewer than 2 different values.

    Examples
    --------
    >>> fit = log_linear_fit([0, 1, 2], [1.0, 0.5, 0.25])
    >>> round(fit.slope, 4), round(fit.r2, 4)
    (-0.6931, 1.0)
    """
    x = check_vector(n, "n")
    y = check_vector(errors, "errors", length=len(x), low=0)
    if not (y > 0).all():
        raise ValueError(f"errors must be positive, got {y.min()} for entry {int(y.argmin())}")
    if len(np.unique(x)) < 2:
        raise ValueError(f"n must have at least 2 different values, got {x.tolist()}")
    line: Any = linregress(x, np.log(y))
    return LogLinearFit(float(line.slope), float(line.intercept), float(line.rvalue) ** 2)


class Reach(NamedTuple):
    """How close filters of one signal come to given signals.

    `residual` is the largest over the targets of the distance to the closest filtered signal, relative to the target;
    `condition` and `rank` are those of the matrix with columns b_0(S) x … b_K(S) x, of columns of length 1 where x is
    of length 1; `theta`, shape (targets, K + 1), holds the filters' coefficients.
    """

    residual: float
    condition: float
    rank: int
    theta: Float[Tensor, "targets coefficients"]


def reach(
    shift: Float[Tensor, "nodes nodes"],
    x: Float[Tensor, " nodes"],
    targets: Float[Tensor, "targets nodes"],
    K: int | None = None,
    *,
    basis: str = "chebyshev",
    rtol: float = 1e-10,
) -> Reach:
    """Return how well filters of degree K turn one signal into the given ones: the coefficients of a random signal.

    If the eigenvalues of S are distinct and x has a part of every frequency, K = nodes − 1 reaches every signal. If an
    eigenvalue is repeated, or a part is zero, a generic one is out of reach at any K.

    Parameters
    ----------
    shift : Tensor, shape (nodes, nodes)
        S, symmetric: sparse CSR, from `normalized_shift`, or dense.
    x : Tensor, shape (nodes,)
        What is filtered.
    targets : Tensor, shape (targets, nodes)
        What is to be reached.
    K : int, optional
        Degree; by default nodes − 1.
    basis : {"chebyshev", "monomial", "bernstein", "jacobi", "legendre"}
        In which the coefficients and the condition number are; the residual does not depend on it but by rounding.
    rtol : float
        Singular values below this share of the largest count as zero.

    Raises
    ------
    ValueError
        Shapes do not fit, there is no target, an unknown basis, or a negative degree or `rtol`.

    Examples
    --------
    >>> shift = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> target = torch.tensor([[1.0, 2.0]])
    >>> reach(shift, torch.tensor([1.0, 0.0]), target).theta
    tensor([[1., 2.]], dtype=torch.float64)
    >>> round(reach(shift, torch.tensor([1.0, 1.0]), target).residual, 4)
    0.3162
    """
    n = len(x)
    if x.ndim != 1 or n == 0:
        raise ValueError(f"x must have shape (nodes,), got {tuple(x.shape)}")
    if shift.shape != (n, n):
        raise ValueError(f"shift must have shape ({n}, {n}), got {tuple(shift.shape)}")
    if targets.ndim != 2 or targets.shape[1] != n or len(targets) == 0:
        raise ValueError(f"targets must have shape (targets, {n}), got {tuple(targets.shape)}")
    K = n - 1 if K is None else check_integer(K, "K", low=0)
    check_choice(basis, "basis", BASES)
    rtol = check_real(rtol, "rtol", low=0)
    eye = torch.eye(K + 1, dtype=torch.float64)
    signal = x.detach().double()[:, None, None].expand(-1, K + 1, 1)
    terms: Tensor = ChebProp.apply(signal, eye, shift.detach().double())  # type: ignore[no-untyped-call]
    columns = terms[..., 0] @ to_chebyshev(eye, basis).T
    wanted = targets.detach().double()
    solved = torch.linalg.lstsq(columns, wanted.T, rcond=rtol, driver="gelsd")
    length = torch.where(wanted.any(1), wanted.norm(dim=1), 1)
    residual = (columns @ solved.solution - wanted.T).norm(dim=0) / length
    return Reach(
        float(residual.max()), float(torch.linalg.cond(columns)), int(solved.rank), solved.solution.T.contiguous()
    )
