"""Images from projections: total-variation reconstruction, and least squares of non-negative unknowns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, svds

from paperworks.anchoring.drive import fixed_point
from paperworks.anchoring.games import METHODS
from paperworks.anchoring.operators import pdhg_map, pdhg_norm
from paperworks.core.validation import check_choice, check_integer, check_real, check_vector

__all__ = ["NNLSResult", "TVResult", "gradient_matrix", "nnls", "radon_matrix", "total_variation", "tv_reconstruct"]

Floats = NDArray[np.float64]

CHECK_EVERY = 20
MARGIN = 0.998
"""Steps, as a share of the largest with which the maps are firmly nonexpansive."""

ABOVE = 1.0005
"""By what singular values that are found from below are enlarged."""

PRIMAL_WEIGHT = 0.1


@dataclass(frozen=True)
class TVResult:
    """A reconstructed image.

    Attributes
    ----------
    image : ndarray
        Of the shape that was asked for, entries at least 0.
    objective : float
        ½‖A x − b‖² + α·TV(x).
    residual : float
        ‖z − T(z)‖ of the primal-dual map in its own norm, over what it was at the start.
    nit : int
        Iterations.
    success : bool
        Whether the residual is within the tolerance.
    """

    image: Floats
    objective: float
    residual: float
    nit: int
    success: bool


@dataclass(frozen=True)
class NNLSResult:
    """A non-negative least-squares solution.

    Attributes
    ----------
    x : ndarray, shape (n,)
    residual : float
        ‖A x − b‖.
    gradient : float
        Largest entry of L(x − P(x − ∇/L)), by which the optimality conditions are missed, over that of |Aᵀb|.
    nit : int
        Iterations.
    success : bool
        Whether `gradient` is within the tolerance.
    """

    x: Floats
    residual: float
    gradient: float
    nit: int
    success: bool


def radon_matrix(n: int, angles: int | ArrayLike, n_det: int | None = None) -> sparse.csr_array:
    """Return the line integrals of an image of n × n pixels, as a matrix for the image in rows from the top.

    The image is constant in every pixel, the rays are lines, and the lengths are exact; a ray along the edge between two
    pixels counts for one of them.

    Parameters
    ----------
    n : int
        Pixels on a side; the side of a pixel is 1.
    angles : array_like of float, or int
        Directions in degrees; or how many, equally spaced from 0 to 180. At 0 the rays are columns of the image from the
        left, at 90 rows from the bottom.
    n_det : int, optional
        Detectors, 1 apart and centred; n by default, which covers the inscribed disk.

    Returns
    -------
    csr_array, shape (len(angles)·n_det, n²)
        The detectors of an angle are consecutive.

    Examples
    --------
    >>> (radon_matrix(3, [0.0, 90.0]) @ np.arange(9.0)).reshape(2, 3)
    array([[ 9., 12., 15.],
           [21., 12.,  3.]])
    """
    n = check_integer(n, "n", low=1)
    n_det = n if n_det is None else check_integer(n_det, "n_det", low=1)
    if isinstance(angles, (int, np.integer)):
        count = check_integer(angles, "angles", low=1)
        angles = np.arange(count) * 180.0 / count
    theta = np.deg2rad(check_vector(angles, "angles"))
    if not theta.size:
        raise ValueError("angles must not be empty")
    return sparse.vstack([_projection(n, angle, n_det) for angle in theta], format="csr")


def _projection(n: int, angle: float, n_det: int) -> sparse.csr_array:
    """Return the rays t·(cos, sin) + u·(−sin, cos) of an angle, one for each offset t."""
    cos, sin = math.cos(angle), math.sin(angle)
    t = (np.arange(n_det) - (n_det - 1) / 2)[:, None]
    edges = np.arange(n + 1) - n / 2
    crossings = []
    if abs(sin) > 1e-12:
        crossings.append((t * cos - edges) / sin)
    if abs(cos) > 1e-12:
        crossings.append((edges - t * sin) / cos)
    u = np.sort(np.hstack(crossings), axis=1)
    length, middle = np.diff(u), (u[:, 1:] + u[:, :-1]) / 2
    column = np.floor(t * cos - middle * sin + n / 2).astype(int)
    row = np.floor(n / 2 - t * sin - middle * cos).astype(int)
    inside = (length > 1e-12) & (column >= 0) & (column < n) & (row >= 0) & (row < n)
    ray = np.nonzero(inside)[0]
    return sparse.csr_array((length[inside], (ray, (row * n + column)[inside])), shape=(n_det, n * n))


def gradient_matrix(shape: tuple[int, ...]) -> sparse.csr_array:
    """Return the differences of neighbours in an image, one axis after the other; past the edge they are 0.

    Its largest singular value is at most 2√d, with d axes.

    Parameters
    ----------
    shape : tuple of int
        Of the image.

    Returns
    -------
    csr_array, shape (d·N, N)
        N is the number of pixels.
    """
    blocks = []
    for axis, size in enumerate(shape):
        ahead = sparse.diags_array([np.append(-np.ones(size - 1), 0.0), np.ones(size - 1)], offsets=[0, 1])
        before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        blocks.append(sparse.kron(sparse.eye_array(before), sparse.kron(ahead, sparse.eye_array(after))))
    return sparse.csr_array(sparse.vstack(blocks, format="csr"))


def total_variation(image: Floats) -> float:
    """Return the sum over pixels of the length of the gradient, isotropic.

    Examples
    --------
    >>> total_variation(np.array([[1.0, 0.0], [0.0, 0.0]]))
    1.4142135623730951
    """
    differences = (gradient_matrix(image.shape) @ image.ravel()).reshape(image.ndim, -1)
    return float(np.linalg.norm(differences, axis=0).sum())


def tv_reconstruct(
    A: Any,
    b: ArrayLike,
    shape: tuple[int, ...],
    alpha: float,
    *,
    tol: float = 1e-5,
    maxiter: int = 10_000,
    method: str = "r2halpern",
    weight: float = PRIMAL_WEIGHT,
) -> TVResult:
    """Find the non-negative image that minimises ½‖A x − b‖² + α·TV(x), with the isotropic total variation.

    It iterates the primal-dual map of A and the gradient, the latter scaled to the size of A. Anchoring guarantees a rate of
    the residual; measured, it is no faster than the plain method.

    Parameters
    ----------
    A : array_like, sparse matrix or LinearOperator, shape (m, N)
        The measurement of the image in rows (`radon_matrix`).
    b : array_like, shape (m,)
        What was measured.
    shape : tuple of int
        Of the image, of any number of axes, with N pixels.
    alpha : float
        Weight of the variation, at least 0.
    tol : float
        Largest residual, as a share of the first; it is tested every 20 iterations.
    maxiter : int
        Most iterations.
    method : {"r2halpern", "halpern", "pdhg"}
        Reflected, anchored and restarted; without restarts; or the plain primal-dual hybrid gradient method.
    weight : float
        Primal over dual steps, the smaller the longer the primal ones; in units of ‖A‖, positive.

    Returns
    -------
    TVResult

    Raises
    ------
    TypeError
        Not numbers.
    ValueError
        Shapes that do not fit, numbers that are not finite, or an argument out of range.

    Examples
    --------
    >>> noisy = np.array([0.1, -0.1, 0.0, 1.1, 0.9, 1.0])  # the plateaus move towards each other by α over their length
    >>> tv_reconstruct(np.eye(6), noisy, (6,), alpha=0.3, tol=1e-9).image.round(4)
    array([0.1, 0.1, 0.1, 0.9, 0.9, 0.9])
    """
    A, b = _measurement(A, b)
    m, n = A.shape
    shape = tuple(check_integer(size, "shape", low=1) for size in shape)
    if math.prod(shape) != n or not shape:
        raise ValueError(f"shape {shape} must have as many pixels as A has columns, {n}")
    alpha = check_real(alpha, "alpha", low=0)
    tol, maxiter = check_real(tol, "tol", low=0), check_integer(maxiter, "maxiter", low=1)
    options = METHODS[check_choice(method, "method", METHODS)]
    weight = check_real(weight, "weight", low=0, open_low=True)

    size = _size(A) or 1.0
    scale = size / (2 * math.sqrt(len(shape)))
    gradient = scale * gradient_matrix(shape)
    if sparse.issparse(A):
        stack = sparse.vstack([A, gradient], format="csr")
    else:
        stack = LinearOperator(
            (m + gradient.shape[0], n),
            matvec=lambda x: np.concatenate([A @ x.ravel(), gradient @ x.ravel()]),
            rmatvec=lambda y: A.T @ y.ravel()[:m] + gradient.T @ y.ravel()[m:],
            dtype=np.float64,
        )
    step = MARGIN / _size(stack)
    tau, sigma = step / (weight * size), step * weight * size

    def positive(x: Floats, tau: float) -> Floats:
        return np.maximum(x, 0.0)

    def dual(v: Floats, sigma: float) -> Floats:
        fit = (v[:m] - sigma * b) / (1 + sigma)
        flow = v[m:].reshape(len(shape), -1)
        return np.concatenate([fit, (flow * (radius / np.maximum(np.linalg.norm(flow, axis=0), radius))).ravel()])

    # Where α = 0 the flow is 0: the smallest positive radius saves dividing by 0.
    radius = max(alpha / scale, np.finfo(float).tiny)
    norm = pdhg_norm(stack, tau, sigma)
    found = fixed_point(
        pdhg_map(positive, dual, stack, tau, sigma), np.zeros(sum(stack.shape)), tol=0.0, rtol=tol, maxiter=maxiter,
        norm=norm, check_every=CHECK_EVERY, **options,
    )  # fmt: skip
    image = np.maximum(found.x[:n], 0.0).reshape(shape)
    misfit = A @ image.ravel() - b
    first = found.history["residual"][0]
    return TVResult(
        image=image,
        objective=float(misfit @ misfit) / 2 + alpha * total_variation(image),
        residual=float(found.residual / first) if first > 0 else 0.0,
        nit=found.nit,
        success=found.success,
    )


def nnls(A: Any, b: ArrayLike, *, tol: float = 1e-8, maxiter: int = 100_000, method: str = "r2halpern") -> NNLSResult:
    """Find the non-negative x that minimises ‖A x − b‖, by projected gradients x ← P(x − ∇/L), anchored and restarted.

    For least squares this map is a proximal step in the norm (L‖x‖² − ‖A x‖²)^½, so it is firmly nonexpansive there, though
    not in the Euclidean norm. Measured, plain projected gradients need no more iterations.

    Parameters
    ----------
    A : array_like, sparse matrix or LinearOperator, shape (m, n)
        The matrix.
    b : array_like, shape (m,)
        Right-hand side.
    tol : float
        Largest `NNLSResult.gradient`; it is tested every 20 iterations.
    maxiter : int
        Most iterations.
    method : {"r2halpern", "halpern", "pdhg"}
        Reflected, anchored and restarted; without restarts; or plain projected gradients.

    Returns
    -------
    NNLSResult

    Raises
    ------
    TypeError
        Not numbers.
    ValueError
        Shapes that do not fit, numbers that are not finite, or an argument out of range.

    Examples
    --------
    >>> nnls([[1.0, 1.0], [0.0, 1.0]], [1.0, -1.0]).x.round(6)
    array([1., 0.])
    """
    A, b = _measurement(A, b)
    tol, maxiter = check_real(tol, "tol", low=0), check_integer(maxiter, "maxiter", low=1)
    options = METHODS[check_choice(method, "method", METHODS)]
    size = _size(A) or 1.0
    L = size**2 / MARGIN
    target = A.T @ b
    unit = float(np.abs(target).max()) or 1.0

    def T(x: Floats) -> Floats:
        return np.asarray(np.maximum(x - (A.T @ (A @ x) - target) / L, 0.0))

    def norm(x: Floats) -> float:
        image = A @ x
        return math.sqrt(max(L * float(x @ x) - float(image @ image), 0.0))

    x = np.zeros(A.shape[1])
    error = math.inf

    def gradient(x: Floats) -> float:
        return L * float(np.abs(x - T(x)).max()) / unit

    def stop_at_optimum(intermediate_result: Any) -> None:
        nonlocal x, error
        x = T(intermediate_result.x)
        error = gradient(x)
        if error <= tol:
            raise StopIteration

    found = fixed_point(
        T, x, tol=0.0, maxiter=maxiter, norm=norm, check_every=CHECK_EVERY, callback=stop_at_optimum, **options
    )
    if found.success:
        x = np.maximum(found.x, 0.0)
        error = gradient(x)
    return NNLSResult(x, float(np.linalg.norm(A @ x - b)), error, found.nit, error <= tol)


def _measurement(A: Any, b: ArrayLike) -> tuple[Any, Floats]:
    """Return a matrix and what was measured with it, checked."""
    if sparse.issparse(A):
        A = sparse.csr_array(A)
    elif not isinstance(A, LinearOperator):
        try:
            A = np.asarray(A)
        except ValueError:
            raise ValueError("the rows of A must have the same length") from None
    if len(A.shape) != 2 or not math.prod(A.shape):
        raise ValueError(f"A must be a matrix with at least one entry, got shape {A.shape}")
    if not isinstance(A, LinearOperator):
        if A.dtype.kind not in "biuf":
            raise TypeError(f"A must be real numbers, got dtype {A.dtype}")
        A = A.astype(np.float64)
        if not np.isfinite(A.data if sparse.issparse(A) else A).all():
            raise ValueError("A must be finite")
    return A, check_vector(b, "b", length=A.shape[0])


def _size(A: Any) -> float:
    """Return the largest singular value: exactly of an array, else very little too large."""
    if isinstance(A, np.ndarray):
        return float(np.linalg.norm(A, 2))
    start = np.random.default_rng(0).standard_normal(min(A.shape))
    image = A.T @ start if A.shape[0] < A.shape[1] else A @ start
    if start.size == 1 or not image.any():
        return float(np.linalg.norm(image)) / float(np.abs(start).max())
    return ABOVE * float(svds(A, k=1, tol=1e-4, v0=start, return_singular_vectors=False)[0])
