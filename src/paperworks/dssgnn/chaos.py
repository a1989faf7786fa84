"""Logits as a polynomial chaos: a short orthogonal series in one random coordinate that all nodes share."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy import special
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from paperworks.core.atomic import atomic_file
from paperworks.core.validation import check_choice, check_integer, check_real

__all__ = ["CHAOS_FAMILIES", "OOD_SCORES", "ChaosLogits", "Decomposition", "OrthogonalBasis", "propagate_scores"]

CHAOS_FAMILIES = ("hermite", "legendre", "laguerre", "jacobi")
"""Families of orthogonal polynomials, by the distribution of ξ: normal, uniform, gamma, beta."""

OOD_SCORES = ("energy", "msp", "entropy", "mi", "variance")
"""Scores that are larger for what is more out of distribution."""

# Elements of the largest temporary array: what is averaged at each node goes in blocks of this size.
_BLOCK = 2**25

_Values = TypeVar("_Values", Tensor, NDArray[np.float64])


@dataclass(frozen=True)
class OrthogonalBasis:
    r"""Orthonormal polynomials ψ_0, ψ_1, … of a random variable ξ.

    They obey ξ ψ_n = b_{n+1} ψ_{n+1} + a_n ψ_n + b_n ψ_{n-1} with ψ_0 = 1, and E ψ_m ψ_n = [m = n].

    ============  ================================  =========================================
    Family        Distribution of ξ                 Density is proportional to
    ============  ================================  =========================================
    hermite       standard normal                   exp(−ξ²/2)
    legendre      uniform on [−1, 1]                1
    laguerre      gamma with shape a + 1, scale 1   ξ^a exp(−ξ)
    jacobi        beta on [−1, 1]                   (1 − ξ)^a (1 + ξ)^b
    ============  ================================  =========================================

    Parameters
    ----------
    family : {"hermite", "legendre", "laguerre", "jacobi"}
        Which polynomials.
    a, b : float
        Exponents, above −1; 0 where the density has none.

    Raises
    ------
    ValueError
        An unknown family, an exponent that is not above −1, or one that the family does not have.

    Examples
    --------
    >>> basis = OrthogonalBasis()
    >>> basis.vander(torch.tensor([0.0, 2.0]), 2)
    tensor([[ 1.0000,  0.0000, -0.7071],
            [ 1.0000,  2.0000,  2.1213]])
    >>> nodes, weights = basis.gauss(3)
    >>> weights
    tensor([0.1667, 0.6667, 0.1667], dtype=torch.float64)
    """

    family: str = "hermite"
    a: float = 0.0
    b: float = 0.0

    def __post_init__(self) -> None:
        check_choice(self.family, "family", CHAOS_FAMILIES)
        used = {"laguerre": ("a",), "jacobi": ("a", "b")}.get(self.family, ())
        for name in ("a", "b"):
            value = check_real(getattr(self, name), name)
            if name in used and value <= -1:
                raise ValueError(f"{name} must be greater than -1, got {value}")
            if name not in used and value != 0:
                raise ValueError(f"{name} must be 0 for {self.family!r}, which has no such exponent, got {value}")
            object.__setattr__(self, name, value)

    def recurrence(self, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a_0 … a_{n-1} and b_1 … b_n: diagonal and off-diagonal of the Jacobi matrix.

        Examples
        --------
        >>> OrthogonalBasis("laguerre").recurrence(3)
        (array([1., 3., 5.]), array([1., 2., 3.]))
        """
        check_integer(n, "n", low=0)
        k = np.arange(n, dtype=np.float64)
        match self.family:
            case "hermite":
                return np.zeros(n), np.sqrt(k + 1)
            case "laguerre":
                return 2 * k + 1 + self.a, np.sqrt((k + 1) * (k + 1 + self.a))
            case _:
                return _jacobi_recurrence(n, self.a, self.b)

    def vander(self, xi: Float[Tensor, " points"], order: int) -> Float[Tensor, "points orders"]:
        """Return ψ_0(ξ) … ψ_order(ξ) in the precision of `xi`, shape (points, order + 1); it is differentiable.

        Raises
        ------
        ValueError
            `order` is negative.
        """
        order = check_integer(order, "order", low=0)
        return torch.stack(_polynomials(xi, torch.ones_like(xi), *self.recurrence(order)), dim=1)

    def gauss(self, q: int) -> tuple[Float[Tensor, " q"], Float[Tensor, " q"]]:
        """Return the nodes, ascending, and weights of the Gauss quadrature for the distribution of ξ, in float64.

        The weights sum to 1, and the mean of every polynomial of degree up to 2q − 1 is exact.

        Raises
        ------
        ValueError
            `q` is below 1.
        """
        nodes, weights = _gauss(self, check_integer(q, "q", low=1))
        return torch.from_numpy(nodes.copy()), torch.from_numpy(weights.copy())

    def triple(self, a: int, b: int, c: int) -> float:
        """Return E ψ_a ψ_b ψ_c.

        Raises
        ------
        ValueError
            An index is negative.

        Examples
        --------
        >>> round(OrthogonalBasis().triple(1, 1, 2), 6)
        1.414214
        """
        a, b, c = (check_integer(index, name, low=0) for index, name in ((a, "a"), (b, "b"), (c, "c")))
        if self.family == "hermite":
            s, odd = divmod(a + b + c, 2)
            if odd or s < max(a, b, c):
                return 0.0
            squared = math.prod(map(math.factorial, (a, b, c)))
            return math.sqrt(squared) / math.prod(math.factorial(s - index) for index in (a, b, c))
        nodes, weights = self.gauss((a + b + c) // 2 + 1)
        psi = self.vander(nodes, max(a, b, c))
        return float((weights * psi[:, a] * psi[:, b] * psi[:, c]).sum())

    def quantile(self, level: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
        """Return the quantiles of ξ in float64, shape (points,).

        Examples
        --------
        >>> OrthogonalBasis("legendre").quantile(torch.tensor([0.0, 0.25]))
        tensor([-1.0000, -0.5000], dtype=torch.float64)
        """
        u = level.detach().cpu().double().numpy()
        match self.family:
            case "hermite":
                xi = special.ndtri(u)
            case "legendre":
                xi = 2 * u - 1
            case "laguerre":
                xi = special.gammaincinv(self.a + 1, u)
            case _:
                xi = 2 * special.betaincinv(self.b + 1, self.a + 1, u) - 1
        return torch.as_tensor(xi, dtype=torch.float64)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Float[Tensor, " n"]:
        """Return n independent draws of ξ in float64.

        Parameters
        ----------
        n : int
            Number of draws.
        generator : torch.Generator, optional
            Source of randomness; by default torch's own.
        """
        n = check_integer(n, "n", low=0)
        if self.family == "hermite":
            return torch.randn(n, generator=generator, dtype=torch.float64)
        return self.quantile(torch.rand(n, generator=generator, dtype=torch.float64))


def _polynomials(xi: _Values, one: _Values, diagonal: NDArray[np.float64], off: NDArray[np.float64]) -> list[_Values]:
    """ψ_0(ξ), …, ψ_n(ξ) from the first n rows of the Jacobi matrix."""
    columns = [one]
    for n, (a, b) in enumerate(zip(diagonal.tolist(), off.tolist(), strict=True)):
        following = (xi - a) * columns[n]
        if n > 0:
            following = following - float(off[n - 1]) * columns[n - 1]
        columns.append(following / b)
    return columns


def _jacobi_recurrence(n: int, a: float, b: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    k = np.arange(1, n + 1, dtype=np.float64)
    total = 2 * k + a + b
    diagonal = np.empty(n)
    diagonal[:1] = (b - a) / (a + b + 2)
    diagonal[1:] = (b * b - a * a) / (total[:-1] * (total[:-1] + 2))
    squared = np.empty(n)
    squared[:1] = 4 * (1 + a) * (1 + b) / ((2 + a + b) ** 2 * (3 + a + b))
    k, total = k[1:], total[1:]
    squared[1:] = 4 * k * (k + a) * (k + b) * (k + a + b) / (total**2 * (total + 1) * (total - 1))
    return diagonal, np.sqrt(squared)


@lru_cache(maxsize=256)
def _gauss(basis: OrthogonalBasis, q: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    diagonal, off = basis.recurrence(q)
    nodes = eigh_tridiagonal(diagonal, off[:-1], eigvals_only=True)
    # The squared first components of the eigenvectors; this way the smallest have all their digits too.
    with np.errstate(over="ignore"):
        norms = np.square(_polynomials(nodes, np.ones(q), diagonal[:-1], off[:-1])).sum(0)
    weights = 1 / norms
    return nodes, weights / weights.sum()


class Decomposition(NamedTuple):
    """Entropies of each node in nats, shape (nodes,): total = aleatoric + epistemic."""

    total: Float[Tensor, " nodes"]
    aleatoric: Float[Tensor, " nodes"]
    epistemic: Float[Tensor, " nodes"]


class ChaosLogits:
    r"""Random logits of all nodes of a graph, as a series in one coordinate ξ that the nodes share.

    .. math:: z_{ic}(ξ) = \sum_{p=0}^{P} ψ_p(ξ)\, C_{pic}

    C_0 is the mean; the other coefficients say how the logits vary together, so that covariances between nodes and
    joint probabilities of their labels need no sampling. Probabilities are averages of softmax(z(ξ)) by Gauss
    quadrature with q nodes, never the softmax of an average.

    Parameters
    ----------
    coefs : Tensor, shape (P + 1, nodes, classes)
        C, floating point.
    basis : OrthogonalBasis, optional
        ψ and the distribution of ξ, by default Hermite and normal.

    Raises
    ------
    TypeError
        `coefs` is no tensor of floating-point numbers.
    ValueError
        `coefs` has another number of dimensions, no order 0 or no class.

    Examples
    --------
    >>> mean = torch.tensor([[1.0, 0.0]])
    >>> logits = ChaosLogits(torch.stack([mean, torch.tensor([[2.0, 0.0]])]))
    >>> logits.variance()
    tensor([[4., 0.]])
    >>> logits.predictive()
    tensor([[0.6477, 0.3523]])
    >>> mean.softmax(1)
    tensor([[0.7311, 0.2689]])
    """

    coefs: Tensor
    basis: OrthogonalBasis

    def __init__(self, coefs: Float[Tensor, "orders nodes classes"], basis: OrthogonalBasis | None = None) -> None:
        dtype = getattr(coefs, "dtype", None)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            kind = dtype if isinstance(dtype, torch.dtype) else type(coefs).__name__
            raise TypeError(f"coefs must be a floating-point tensor, got {kind}")
        if coefs.ndim != 3 or coefs.shape[0] == 0 or coefs.shape[2] == 0:
            raise ValueError(f"coefs must have shape (order + 1, nodes, classes), got {tuple(coefs.shape)}")
        self.coefs = coefs
        self.basis = OrthogonalBasis() if basis is None else basis

    def __repr__(self) -> str:
        nodes, classes = self.coefs.shape[1:]
        return f"ChaosLogits(order={self.order}, nodes={nodes}, classes={classes}, basis={self.basis})"

    @property
    def order(self) -> int:
        """P, the highest order of the series."""
        return len(self.coefs) - 1

    @property
    def mean(self) -> Float[Tensor, "nodes classes"]:
        """Mean logits C_0."""
        return self.coefs[0]

    def variance(self) -> Float[Tensor, "nodes classes"]:
        """Return the variance of every logit, exactly."""
        return self.coefs[1:].square().sum(0)

    def covariance(
        self, i: int | Int[Tensor, " pairs"], j: int | Int[Tensor, " pairs"]
    ) -> Float[Tensor, "*pairs classes classes"]:
        """Return Cov(z_ic, z_jd) of the nodes i and j, exactly.

        Parameters
        ----------
        i, j : int or Tensor of int, shape (pairs,)
            Nodes.

        Returns
        -------
        Tensor, shape (classes, classes) or (pairs, classes, classes)

        Examples
        --------
        >>> coefs = torch.tensor([[[0.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [3.0, 2.0]]])
        >>> ChaosLogits(coefs).covariance(0, 1)
        tensor([[3., 2.],
                [0., 0.]])
        """
        higher = self.coefs[1:]
        return torch.einsum("p...c,p...d->...cd", higher[:, i], higher[:, j])

    def order_share(self) -> Float[Tensor, "higher nodes classes"]:
        """Return the shares of the orders 1 … P in the variance of every logit, 0 where it does not vary."""
        squared = self.coefs[1:].square()
        total = squared.sum(0)
        return torch.where(total > 0, squared / torch.where(total > 0, total, 1), 0)

    def third_central_moment(self) -> Float[Tensor, "nodes classes"]:
        """Return E (z − C_0)³ of every logit, exactly."""
        orders = range(1, self.order + 1)
        products = [[[self.basis.triple(a, b, c) for c in orders] for b in orders] for a in orders]
        triple = self.coefs.new_tensor(products).reshape((self.order,) * 3)
        higher = self.coefs[1:]
        return torch.einsum("abc,aik,bik,cik->ik", triple, higher, higher, higher)

    def skewness(self) -> Float[Tensor, "nodes classes"]:
        """Return the third central moment over the cubed standard deviation, 0 where a logit does not vary."""
        variance = self.variance()
        scale = torch.where(variance > 0, variance, 1).pow(1.5)
        return torch.where(variance > 0, self.third_central_moment() / scale, 0)

    def logits(self, xi: Float[Tensor, " points"]) -> Float[Tensor, "points nodes classes"]:
        """Return z(ξ) at the given values of ξ."""
        psi = self.basis.vander(xi.to(self.coefs.device, self.coefs.dtype), self.order)
        return torch.einsum("qp,pic->qic", psi, self.coefs)

    def log_predictive(self, q: int = 32) -> Float[Tensor, "nodes classes"]:
        """Return log E softmax(z(ξ)), the logarithm of the class probabilities; it is differentiable.

        Parameters
        ----------
        q : int
            Number of quadrature nodes, more than P. Where the logits' standard deviation is 2 to 3, probabilities are
            off by up to 0.004 with 8 nodes and by 1e-5 with 32.

        Raises
        ------
        ValueError
            `q` is not above P.
        """
        nodes, weights = self._quadrature(q)
        log_weights = weights.log()[:, None, None]
        return self._by_node(q, lambda part: (log_weights + part.logits(nodes).log_softmax(-1)).logsumexp(0))

    def predictive(self, q: int = 32) -> Float[Tensor, "nodes classes"]:
        """Return E softmax(z(ξ)), the class probabilities: see `log_predictive`."""
        return self.log_predictive(q).exp()

    def decompose(self, q: int = 32) -> Decomposition:
        """Return the entropy of each node's predictive distribution and its two parts, in nats.

        Aleatoric is the mean entropy of softmax(z(ξ)), what stays uncertain if ξ is known; epistemic is the mutual
        information of label and ξ.

        Parameters
        ----------
        q : int
            Number of quadrature nodes, more than P.

        Raises
        ------
        ValueError
            `q` is not above P.
        ArithmeticError
            The mutual information is negative by more than rounding.

        Examples
        --------
        >>> sure = ChaosLogits(torch.tensor([[[0.0, 0.0]], [[0.0, 0.0]]])).decompose()
        >>> [round(float(part), 4) for part in sure]
        [0.6931, 0.6931, 0.0]
        """
        # Entropies differ in the last digits: as float32 their difference would be mostly rounding.
        wide = ChaosLogits(self.coefs.double(), self.basis)
        nodes, weights = wide._quadrature(q)

        def entropies(part: ChaosLogits) -> Tensor:
            log_p = part.logits(nodes).log_softmax(-1)
            log_mean = (weights.log()[:, None, None] + log_p).logsumexp(0)
            return torch.stack([_entropy(log_mean), weights @ _entropy(log_p)], dim=-1)

        total, aleatoric = wide._by_node(q, entropies).unbind(-1)
        epistemic = _nonnegative(total - aleatoric)
        return Decomposition(*(part.to(self.coefs.dtype) for part in (total, aleatoric, epistemic)))

    def energy(
        self,
        T: float = 1.0,
        *,
        edge_index: Int[Tensor, "2 edges"] | None = None,
        propagate: tuple[int, float] | None = None,
    ) -> Float[Tensor, " nodes"]:
        """Return −T log Σ_c exp(C_0c / T), larger for nodes with less evidence.

        Energies of two models cannot be compared, because each has its own scale of logits.

        Parameters
        ----------
        T : float
            Temperature, positive.
        edge_index : Tensor of int, shape (2, edges), optional
            The graph, only needed to propagate.
        propagate : (int, float), optional
            Steps and own weight for `propagate_scores`; by default the energies stay as they are.

        Raises
        ------
        ValueError
            `T` is not positive, or `propagate` is given without `edge_index`.
        """
        T = check_real(T, "T", low=0, open_low=True)
        energy = -T * (self.mean / T).logsumexp(-1)
        if propagate is None:
            return energy
        if edge_index is None:
            raise ValueError("propagate needs edge_index")
        steps, alpha = propagate
        return propagate_scores(energy, edge_index, steps=steps, alpha=alpha)

    def ood_score(self, method: str = "energy", q: int = 32) -> Float[Tensor, " nodes"]:
        """Return a score of each node that is larger for what is more out of distribution.

        Parameters
        ----------
        method : {"energy", "msp", "entropy", "mi", "variance"}
            Energy of the mean logits; minus the largest class probability; entropy of the class probabilities; mutual
            information of label and ξ; mean variance of the logits.
        q : int
            Number of quadrature nodes, more than P.

        Raises
        ------
        ValueError
            An unknown method, or `q` is not above P.
        """
        match check_choice(method, "method", OOD_SCORES):
            case "energy":
                return self.energy()
            case "msp":
                return -self.predictive(q).amax(-1)
            case "entropy":
                return self.decompose(q).total
            case "mi":
                return self.decompose(q).epistemic
            case _:
                return self.variance().mean(-1)

    def joint(self, pairs: Int[Tensor, "2 pairs"], q: int = 32) -> Float[Tensor, "pairs classes classes"]:
        """Return P(y_i = c, y_j = d) for pairs of nodes; rows and columns sum to the predictive distributions.

        A node paired with itself gives two independent labels of the same ξ.

        Parameters
        ----------
        pairs : Tensor of int, shape (2, pairs)
            Nodes i and j.
        q : int
            Number of quadrature nodes, more than P.

        Raises
        ------
        TypeError
            `pairs` is not of integers.
        ValueError
            `pairs` has another shape or names a node that is not there, or `q` is not above P.

        Examples
        --------
        >>> logits = ChaosLogits(torch.tensor([[[0.0, 0.0]] * 2, [[2.0, 0.0]] * 2]))
        >>> logits.joint(torch.tensor([[0], [1]]))
        tensor([[[0.3486, 0.1514],
                 [0.1514, 0.3486]]])
        """
        return self._by_pair(pairs, q, lambda p_i, p_j: p_i[:, :, None] * p_j[:, None, :])

    def agreement(self, pairs: Int[Tensor, "2 pairs"], q: int = 32) -> Float[Tensor, " pairs"]:
        """Return P(y_i = y_j) for pairs of nodes, the trace of `joint` in less memory."""
        return self._by_pair(pairs, q, lambda p_i, p_j: (p_i * p_j).sum(-1))

    def sample(self, n: int, generator: torch.Generator | None = None) -> Float[Tensor, "n nodes classes"]:
        """Return z at n draws of ξ; within a draw all nodes vary together.

        Parameters
        ----------
        n : int
            Number of draws.
        generator : torch.Generator, optional
            Source of randomness, on the CPU; by default torch's own.
        """
        return self.logits(self.basis.sample(n, generator))

    def quantile(self, level: float, points: int = 2048) -> Float[Tensor, "nodes classes"]:
        """Return a quantile of every logit.

        It is exact for P ≤ 1, where a logit is monotone in ξ. Otherwise it is that of z at `points` values of ξ in the
        middles of equally probable intervals: off by about 1/`points` in the level, and nothing lies beyond the first
        and the last.

        Parameters
        ----------
        level : float
            In [0, 1].
        points : int
            Number of values of ξ.

        Raises
        ------
        ValueError
            `level` is outside [0, 1], or 0 or 1 for P = 1 where ξ is unbounded, or `points` is below 1.

        Examples
        --------
        >>> logits = ChaosLogits(torch.tensor([[[1.0]], [[-2.0]]]))
        >>> round(float(logits.quantile(0.975)), 4)
        4.9199
        """
        level, points = check_real(level, "level", low=0, high=1), check_integer(points, "points", low=1)
        if self.order == 0:
            return self.mean
        if self.order == 1:
            ends = self.basis.quantile(torch.tensor([level, 1 - level], dtype=torch.float64))
            if not ends.isfinite().all():
                raise ValueError(f"level must be in (0, 1) where ξ is unbounded, got {level}")
            rising, falling = self.logits(ends)
            return torch.where(self.coefs[1] >= 0, rising, falling)
        xi = self.basis.quantile((torch.arange(points, dtype=torch.float64) + 0.5) / points)
        position = min(max(level * points - 0.5, 0.0), points - 1.0)
        below, above = math.floor(position), math.ceil(position)

        def interpolated(part: ChaosLogits) -> Tensor:
            z = part.logits(xi).movedim(0, -1).contiguous()
            return torch.lerp(z.kthvalue(below + 1).values, z.kthvalue(above + 1).values, position - below)

        return self._by_node(points, interpolated)

    def to(self, device: str | torch.device | torch.dtype) -> ChaosLogits:
        """Return the same logits on another device or in another precision."""
        return ChaosLogits(self.coefs.to(device), self.basis)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write coefficients and basis to an npz file, atomically."""
        basis = self.basis
        with atomic_file(path) as part, part.open("wb") as file:
            np.savez(
                file,
                coefs=self.coefs.detach().cpu().numpy(),
                family=np.array(basis.family),
                parameters=np.array([basis.a, basis.b]),
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ChaosLogits:
        """Read what `save` wrote.

        Raises
        ------
        ValueError
            The file holds something else.
        """
        with np.load(Path(path), allow_pickle=False) as file:
            missing = {"coefs", "family", "parameters"} - set(file)
            if missing:
                raise ValueError(
                    f"{os.fspath(path)} is not a file of ChaosLogits: it lacks {', '.join(sorted(missing))}"
                )
            a, b = file["parameters"].tolist()
            return cls(torch.from_numpy(file["coefs"]), OrthogonalBasis(str(file["family"]), a, b))

    def _quadrature(self, q: int) -> tuple[Tensor, Tensor]:
        q = check_integer(q, "q", low=1)
        if q < self.order + 1:
            raise ValueError(f"q={q} quadrature nodes cannot resolve order {self.order}; need q >= {self.order + 1}")
        nodes, weights = self.basis.gauss(q)
        return nodes.to(self.coefs.device, self.coefs.dtype), weights.to(self.coefs.device, self.coefs.dtype)

    def _by_node(self, points: int, function: Callable[[ChaosLogits], Tensor]) -> Tensor:
        """Apply `function`, which takes `points` numbers a logit, to blocks of nodes."""
        nodes, classes = self.coefs.shape[1:]
        parts = [function(ChaosLogits(self.coefs[:, block], self.basis)) for block in _blocks(nodes, points * classes)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _by_pair(self, pairs: Tensor, q: int, product: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Average a product of the class probabilities of the two ends, one quadrature node after the other."""
        nodes, weights = self._quadrature(q)
        _check_edges(pairs, "pairs", self.coefs.shape[1])
        first, second = pairs
        total = self.coefs.new_zeros(())
        for xi, weight in zip(nodes, weights, strict=True):
            p = self.logits(xi[None])[0].softmax(-1)
            total = total + weight * product(p.index_select(0, first), p.index_select(0, second))
        return total


def propagate_scores(
    scores: Float[Tensor, " nodes"], edge_index: Int[Tensor, "2 edges"], *, steps: int = 2, alpha: float = 0.5
) -> Float[Tensor, " nodes"]:
    """Replace each score by alpha times itself plus 1 − alpha times the mean over its neighbours, `steps` times.

    This is the belief propagation of GNNSafe, except that a node without neighbours keeps its score. It helps where
    neighbours tend to be alike and hurts where they do not.

    Parameters
    ----------
    scores : Tensor, shape (nodes,)
        For example energies.
    edge_index : Tensor of int, shape (2, edges)
        Neighbour and node of each edge; both directions of an undirected graph.
    steps : int
        How often.
    alpha : float
        Weight of the node itself, in [0, 1].

    Raises
    ------
    TypeError
        `edge_index` is not of integers.
    ValueError
        `edge_index` has another shape or names a node that is not there, or steps or alpha is out of range.

    Examples
    --------
    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> propagate_scores(torch.tensor([0.0, 4.0, 2.0]), path, steps=1)
    tensor([2.0000, 2.5000, 3.0000])
    """
    steps, alpha = check_integer(steps, "steps", low=0), check_real(alpha, "alpha", low=0, high=1)
    _check_edges(edge_index, "edge_index", len(scores))
    source, target = edge_index
    degree = torch.zeros_like(scores).index_add(0, target, torch.ones_like(scores[source]))
    for _ in range(steps):
        mean = torch.zeros_like(scores).index_add(0, target, scores[source]) / degree.clamp(min=1)
        scores = torch.where(degree > 0, alpha * scores + (1 - alpha) * mean, scores)
    return scores


def _check_edges(edges: Tensor, name: str, nodes: int) -> None:
    if edges.ndim != 2 or len(edges) != 2:
        raise ValueError(f"{name} must have shape (2, edges), got {tuple(edges.shape)}")
    if edges.is_floating_point() or edges.is_complex() or edges.dtype == torch.bool:
        raise TypeError(f"{name} must hold integers, got {edges.dtype}")
    outside = (edges < 0) | (edges >= nodes)
    if outside.any():
        raise ValueError(f"{name} refers to node {int(edges[outside][0])} but there are {nodes} nodes")


def _blocks(count: int, size: int) -> Iterator[slice]:
    """Cut range(count) so that a block of entries of `size` numbers stays below a limit."""
    length = max(1, _BLOCK // max(1, size))
    if count <= length:
        yield slice(None)
        return
    for start in range(0, count, length):
        yield slice(start, start + length)


def _entropy(log_p: Tensor) -> Tensor:
    return -(log_p.exp() * log_p).sum(-1)


def _nonnegative(information: Tensor) -> Tensor:
    if (information < -1e-6).any():
        raise ArithmeticError(f"mutual information must not be negative, got {float(information.min())}")
    return information.clamp(min=0)
