"""Graph-Fourier polynomial filters: the shift of a graph, five bases of one series, priors, and propagation."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from scipy.special import comb, eval_chebyt, eval_jacobi, ive
from torch import Tensor, nn

from paperworks.core.validation import check_choice, check_integer, check_real

__all__ = [
    "BASES",
    "PRIORS",
    "ChebProp",
    "GraphPolynomialFilter",
    "filter_signals",
    "from_chebyshev",
    "normalized_shift",
    "prior_coefficients",
    "response",
    "to_chebyshev",
]

BASES = ("chebyshev", "monomial", "bernstein", "jacobi", "legendre")
"""Names of the bases in which a filter may be written."""

PRIORS = ("ppr", "identity", "mix", "heat", "highpass")
"""Names of the filters from which learning starts."""


@functools.cache
def _chebyshev_matrix(basis: str, degree: int, a: float, b: float) -> NDArray[np.float64]:
    """The matrix M of `to_chebyshev`, shape (degree + 1, degree + 1), indexed by Chebyshev then basis polynomial."""
    k = np.arange(degree + 1)
    if basis == "chebyshev":
        return np.eye(degree + 1)
    x = np.cos(np.pi * (k + 0.5) / (degree + 1))[:, None]
    match basis:
        case "monomial":
            values = x**k
        case "bernstein":
            values = comb(degree, k) * ((1 - x) / 2) ** k * ((1 + x) / 2) ** (degree - k)
        case "jacobi":
            values = eval_jacobi(k, a, b, x)
        case _:
            values = eval_jacobi(k, 0.0, 0.0, x)
    # A product of two polynomials of this degree is integrated exactly by as many Chebyshev nodes as there are rows.
    matrix: NDArray[np.float64] = np.where(k == 0, 1, 2)[:, None] / (degree + 1) * (eval_chebyt(k, x).T @ values)
    return matrix


def _basis_matrix(basis: str, degree: int, a: float, b: float) -> NDArray[np.float64]:
    check_choice(basis, "basis", BASES)
    for value, name in ((a, "a"), (b, "b")):
        if basis == "jacobi" and not check_real(value, name) > -1:
            raise ValueError(f"{name} must be greater than -1, got {value!r}")
    return _chebyshev_matrix(basis, degree, float(a), float(b))


def _degree(theta: Tensor) -> int:
    if theta.ndim == 0 or theta.shape[-1] == 0:
        raise ValueError(f"theta must have at least one coefficient, got shape {tuple(theta.shape)}")
    return theta.shape[-1] - 1


def to_chebyshev(
    theta: Float[Tensor, "*filters coefficients"], basis: str, *, a: float = 1.0, b: float = 1.0
) -> Float[Tensor, "*filters coefficients"]:
    r"""Return the Chebyshev coefficients of Σ_j θ_j b_j(x), x = 1 − λ: M θ with

    .. math:: M_{kj} = \frac{2 - [k=0]}{K+1} \sum_{m=0}^K b_j(x_m) T_k(x_m), \quad x_m = \cos\frac{π(m + ½)}{K+1}

    which is exact, and computed in float64.

    Parameters
    ----------
    theta : Tensor, shape (..., K+1)
        Coefficients; the result is differentiable in them and has their dtype.
    basis : {"chebyshev", "monomial", "bernstein", "jacobi", "legendre"}
        What b_j is: T_j; x^j; C(K,j) (λ/2)^j (1 − λ/2)^(K−j), so that θ_j is about the response at λ = 2j/K; the Jacobi
        polynomial of parameters `a`, `b`; the Legendre polynomial.
    a, b : float
        Of the Jacobi polynomials only; above -1.

    Raises
    ------
    ValueError
        An unknown basis, a parameter not above -1, or no coefficient.

    Examples
    --------
    >>> to_chebyshev(torch.tensor([1.0, 1.0, 1.0]), "monomial")
    tensor([1.5000, 1.0000, 0.5000])
    """
    matrix = torch.from_numpy(_basis_matrix(basis, _degree(theta), a, b)).to(theta.device)
    return (theta.double() @ matrix.T).to(theta.dtype)


def from_chebyshev(
    theta: Float[Tensor, "*filters coefficients"], basis: str, *, a: float = 1.0, b: float = 1.0
) -> Float[Tensor, "*filters coefficients"]:
    """Return the coefficients in `basis` of a filter given in Chebyshev polynomials: the inverse of `to_chebyshev`.

    Monomial and Bernstein coefficients lose about 0.4 K decimal digits.

    Examples
    --------
    >>> from_chebyshev(torch.tensor([2.0, 1.0]), "bernstein")
    tensor([3., 1.])
    """
    matrix = torch.from_numpy(_basis_matrix(basis, _degree(theta), a, b)).to(theta.device)
    solved: Tensor = torch.linalg.solve(matrix, theta.double()[..., None])[..., 0]
    return solved.to(theta.dtype)


def prior_coefficients(prior: str, K: int, alpha: float = 0.1, t: float = 3.0) -> Float[Tensor, " coefficients"]:
    r"""Return the Chebyshev coefficients of the filter from which learning starts, shape (K+1,), float64.

    With x = 1 − λ the responses are

    - "ppr", personalised PageRank: α(1 − r^K)/(1 − r) + r^K, r = (1 − α)x, which is 1 at x = 1
    - "identity": 1; "mix": half of each of these two
    - "heat": exp(−tλ), of which the series e^{−t}(I_0(t) + 2 Σ_k I_k(t) T_k(x)) is cut after degree K
    - "highpass": (1 − x)/2

    Parameters
    ----------
    prior : {"ppr", "identity", "mix", "heat", "highpass"}
        Which filter.
    K : int
        Degree.
    alpha : float
        Probability of a restart, in [0, 1]; of "ppr" and "mix".
    t : float
        Time, nonnegative; of "heat".

    Raises
    ------
    ValueError
        An unknown prior, a negative degree, degree 0 for "highpass", or `alpha` or `t` out of range.

    Examples
    --------
    >>> prior_coefficients("heat", 3, t=2.0)
    tensor([0.3085, 0.4305, 0.1865, 0.0576], dtype=torch.float64)
    """
    check_choice(prior, "prior", PRIORS)
    K = check_integer(K, "K", low=1 if prior == "highpass" else 0)
    alpha, t = check_real(alpha, "alpha", low=0, high=1), check_real(t, "t", low=0)
    powers = torch.arange(K + 1, dtype=torch.float64)
    identity = (powers == 0).double()
    match prior:
        case "heat":
            return torch.from_numpy(ive(powers.numpy(), t)) * (2 - identity)
        case "highpass":
            return identity / 2 - (powers == 1).double() / 2
        case "identity":
            return identity
    walks = (1 - alpha) ** powers
    walks[:K] *= alpha
    pagerank = to_chebyshev(walks, "monomial")
    return pagerank if prior == "ppr" else (pagerank + identity) / 2


def response(theta: Float[Tensor, "*filters coefficients"], x: Float[Tensor, "*points"]) -> Float[Tensor, ...]:
    """Return Σ_k θ_k T_k(x), by Clenshaw's recurrence.

    Parameters
    ----------
    theta : Tensor, shape (..., K+1)
        Chebyshev coefficients.
    x : Tensor, any shape
        Frequencies 1 − λ, in [-1, 1] for a normalised shift: 1 is smooth, -1 alternates.

    Returns
    -------
    Tensor, shape (..., \\*x.shape)

    Examples
    --------
    >>> response(torch.tensor([0.5, -0.5]), torch.tensor([1.0, 0.0, -1.0]))
    tensor([0.0000, 0.5000, 1.0000])
    """
    _degree(theta)
    coefficients = theta.reshape(*theta.shape, *(1 for _ in x.shape)).movedim(theta.ndim - 1, 0)
    later = after = torch.zeros((), dtype=theta.dtype, device=theta.device)
    for coefficient in reversed(coefficients[1:].unbind()):
        later, after = coefficient + 2 * x * later - after, later
    return coefficients[0] + x * later - after


def normalized_shift(
    edge_index: Shaped[Tensor, "rows columns"],
    edge_weight: Shaped[Tensor, "*shape"] | None = None,
    num_nodes: int | None = None,
    self_loops: bool = True,
    *,
    assume_undirected: bool = False,
    dtype: torch.dtype | None = None,
) -> Float[Tensor, "nodes nodes"]:
    r"""Return the symmetric shift S = D^{−½} A D^{−½} of a graph, whose eigenvalues lie in [−1, 1], in CSR layout.

    A repeated edge counts once, with the largest of its weights; self loops in the input are dropped; a pair of nodes
    joined in one direction only, or with two weights, is joined in both directions with the larger weight. A node
    without edges has an empty row. No gradient flows to the weights.

    Parameters
    ----------
    edge_index : Tensor, shape (2, edges), or sparse, shape (nodes, nodes)
        Integer pairs of nodes, each edge in both directions; or a sparse adjacency matrix, whose values are weights.
    edge_weight : Tensor, shape (edges,), optional
        Nonnegative; 1 by default.
    num_nodes : int, optional
        By default one more than the largest node in `edge_index`.
    self_loops : bool
        Whether to add to each node a self loop of weight 1 before A is normalised.
    assume_undirected : bool
        Whether an edge stands for both directions, so that there is nothing to warn of where one is missing.
    dtype : torch.dtype, optional
        Of the result; by default that of the weights, or else torch's default.

    Raises
    ------
    TypeError
        `edge_index` is no tensor or not of integers.
    ValueError
        A wrong shape, a node out of range, or a weight that is negative or not finite.

    Warns
    -----
    UserWarning
        Repeated edges or self loops were given; or edges without their reverse.

    Examples
    --------
    >>> normalized_shift(torch.tensor([[0, 1], [1, 0]])).to_dense()
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    edge_index, edge_weight, n = _edges(edge_index, edge_weight, num_nodes)
    row, column = edge_index
    if edge_weight is None:
        edge_weight = torch.ones(len(row), device=row.device)
    if dtype is None:
        dtype = edge_weight.dtype if edge_weight.is_floating_point() else torch.get_default_dtype()
    weight = edge_weight.double()
    proper = row != column
    base = max(n, 1)
    key, weight = _largest((row * base + column)[proper], weight[proper])
    repeats, loops = int(proper.sum()) - len(key), int((~proper).sum())
    if repeats or loops:
        warnings.warn(
            f"edge_index has {repeats} repeated edges, which count once, with their largest weight, "
            f"and {loops} self loops, which are dropped",
            stacklevel=2,
        )
    reverse, order = (key % base * base + key // base).sort()
    if not (torch.equal(reverse, key) and torch.equal(weight[order], weight)):
        if not assume_undirected:
            warnings.warn(
                "edge_index is directed: each edge is taken in both directions, with the larger weight", stacklevel=2
            )
        key, weight = _largest(torch.cat([key, reverse]), torch.cat([weight, weight[order]]))
    if self_loops:
        nodes = torch.arange(n, device=key.device)
        key, order = torch.cat([key, nodes * base + nodes]).sort()
        weight = torch.cat([weight, weight.new_ones(n)])[order]
    row, column = key // base, key % base
    degree = weight.new_zeros(n).index_add_(0, row, weight)
    scale = torch.where(degree > 0, degree.rsqrt(), 0)
    root = weight.sqrt()
    offsets = torch.cat([row.new_zeros(1), torch.bincount(row, minlength=n).cumsum(0)])
    value = (root * scale[row]) * (root * scale[column])
    # Products with 32-bit indices are up to a third faster.
    index = torch.int32 if max(n, len(key)) < 2**31 else torch.int64
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        return torch.sparse_csr_tensor(
            offsets.to(index), column.to(index), value.to(dtype), (n, n), check_invariants=False
        )


def neighbourhoods(shift: Float[Tensor, "nodes nodes"]) -> Int[Tensor, "2 edges"]:
    """Return where a sparse matrix has entries, as edges from column to row."""
    rows, columns = shift.to_sparse_coo().indices()  # type: ignore[no-untyped-call]
    return torch.stack([columns, rows]).long()


def distinct_edges(edge_index: Shaped[Tensor, "rows columns"], num_nodes: int) -> Int[Tensor, "2 edges"]:
    """Return the edges that `normalized_shift` takes, without its warnings: in both directions, once, no self loops."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "edge_index (has|is directed)", UserWarning)
        return neighbourhoods(normalized_shift(edge_index, None, num_nodes, self_loops=False))


def _edges(edge_index: Any, edge_weight: Tensor | None, num_nodes: int | None) -> tuple[Tensor, Tensor | None, int]:
    """Check the edges and the number of nodes; return the edges as int64 pairs, detached weights, and the number."""
    if not isinstance(edge_index, Tensor):
        raise TypeError(f"edge_index must be a tensor, got {type(edge_index).__name__}")
    if edge_index.layout != torch.strided:
        if edge_weight is not None:
            raise ValueError("edge_weight must be None for a sparse edge_index, whose values are the weights")
        if edge_index.ndim != 2 or edge_index.shape[0] != edge_index.shape[1]:
            raise ValueError(f"a sparse edge_index must be square, got shape {tuple(edge_index.shape)}")
        if num_nodes is not None and num_nodes != len(edge_index):
            raise ValueError(
                f"a sparse edge_index of {len(edge_index)} nodes does not fit x, which has {num_nodes} rows"
            )
        num_nodes = len(edge_index)
        matrix = edge_index.detach().to_sparse_coo()  # type: ignore[no-untyped-call]
        # The entries as they are stored: repeated ones are merged below, where coalescing would add them up.
        edge_index, edge_weight = matrix._indices(), matrix._values()
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise ValueError(f"edge_index must have shape (2, edges), got {tuple(edge_index.shape)}")
    if edge_index.is_floating_point() or edge_index.is_complex() or edge_index.dtype == torch.bool:
        raise TypeError(f"edge_index must be of integers, got {edge_index.dtype}")
    edge_index = edge_index.long()
    low, high = (int(edge_index.min()), int(edge_index.max())) if edge_index.numel() else (0, -1)
    n = high + 1 if num_nodes is None else check_integer(num_nodes, "num_nodes", low=0)
    if low < 0 or high >= n:
        raise ValueError(f"edge_index refers to node {low if low < 0 else high} but x has {n} rows")
    if edge_weight is not None:
        edge_weight = edge_weight.detach()
        if edge_weight.shape != edge_index.shape[1:]:
            raise ValueError(f"edge_weight must have shape ({edge_index.shape[1]},), got {tuple(edge_weight.shape)}")
        bad = ~(edge_weight.isfinite() & (edge_weight >= 0))
        if bad.any():
            i = int(bad.nonzero()[0])
            raise ValueError(f"edge_weight must be non-negative and finite, got {edge_weight[i].item()} for edge {i}")
    return edge_index, edge_weight, n


def _largest(key: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct keys in order, and the largest weight of each."""
    distinct, place = torch.unique(key, return_inverse=True)
    return distinct, weight.new_zeros(len(distinct)).scatter_reduce_(0, place, weight, "amax")


def _terms(shift: Tensor, u: Tensor, degree: int) -> Iterator[Tensor]:
    """Yield T_k(S) u of a matrix u for k = 0, …, degree; each but the first is overwritten by the next but one."""
    yield u
    if degree == 0:
        return
    older, newer = u, shift @ u
    yield newer
    for k in range(2, degree + 1):
        if k == 2:
            older = torch.addmm(older, shift, newer, beta=-1, alpha=2)
        else:
            older.addmm_(shift, newer, beta=-1, alpha=2)
        older, newer = newer, older
        yield newer


class ChebProp(torch.autograd.Function):
    r"""The filtered signals Σ_k θ_{pk} T_k(S) u_p of every order p; memory does not grow with the degree K.

    As S is symmetric, one sweep over V_k = T_k(S) G with the upstream gradient G gives both derivatives, Σ_k θ_k V_k
    and ⟨u_p, V_{k,p}⟩: only the input is kept. It cannot be differentiated twice, and
    refuses ``create_graph=True``.

    ``ChebProp.apply(u, theta, shift)`` takes

    - u : Tensor, shape (nodes, orders, channels)
    - theta : Tensor, shape (orders, K+1), Chebyshev coefficients
    - shift : sparse CSR or dense Tensor, shape (nodes, nodes), symmetric, without a gradient

    all of one dtype, and returns a Tensor of the shape of `u`.

    Examples
    --------
    >>> shift = normalized_shift(torch.tensor([[0, 1], [1, 0]]), self_loops=False)
    >>> ChebProp.apply(torch.tensor([[[3.0]], [[5.0]]]), torch.tensor([[1.0, 10.0]]), shift).flatten()
    tensor([53., 35.])
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, theta: Tensor, shift: Tensor) -> Tensor:
        """Sum the series."""
        ctx.save_for_backward(u if ctx.needs_input_grad[1] else None, theta, shift)
        total = u.new_zeros(len(u), u.shape[1] * u.shape[2])
        weights = _columns(theta, u)
        for weight, term in zip(weights, _terms(shift, u.flatten(1), len(weights) - 1), strict=True):
            total.addcmul_(term, weight)
        return total.view(u.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Sum the series of the upstream gradient."""
        if torch.is_grad_enabled():
            raise RuntimeError("ChebProp cannot be differentiated twice: call it without create_graph=True")
        u, theta, shift = ctx.saved_tensors
        matrix = gradient.flatten(1)
        du = torch.zeros_like(matrix, memory_format=torch.contiguous_format) if ctx.needs_input_grad[0] else None
        dtheta = torch.empty_like(theta) if ctx.needs_input_grad[1] else None
        signals: Any = None if dtheta is None else u.flatten(1)
        weights = _columns(theta, gradient)
        for k, term in enumerate(_terms(shift, matrix, len(weights) - 1)):
            if du is not None:
                du.addcmul_(term, weights[k])
            if dtheta is not None:
                dtheta[:, k] = (signals * term).sum(0).view(gradient.shape[1:]).sum(1)
        return None if du is None else du.view(gradient.shape), dtheta, None


def _columns(theta: Tensor, u: Tensor) -> Tensor:
    """The coefficients for the columns of a flattened `u`, one row a power: much faster than to broadcast each order."""
    return theta.t().repeat_interleave(u.shape[2], 1)


def filter_signals(
    u: Float[Tensor, "nodes orders channels"],
    theta: Float[Tensor, "orders coefficients"],
    shift: Float[Tensor, "nodes nodes"],
) -> Float[Tensor, "nodes orders channels"]:
    """Return the signals of every order, filtered with its Chebyshev coefficients, in the dtype of `shift`.

    Raises
    ------
    TypeError
        `shift` has a smaller dtype than `u`.
    ValueError
        The shape of `shift` does not fit.
    """
    if shift.shape != (len(u), len(u)):
        raise ValueError(f"shift must have shape ({len(u)}, {len(u)}), got {tuple(shift.shape)}")
    dtype = shift.dtype
    if torch.promote_types(u.dtype, dtype) != dtype:
        raise TypeError(f"shift must be {u.dtype} as u is, got {dtype}")
    # There are no sparse products in half precision.
    with torch.autocast(u.device.type, enabled=False):
        filtered: Tensor = ChebProp.apply(u.to(dtype), theta.to(dtype), shift)  # type: ignore[no-untyped-call]
    return filtered


class GraphPolynomialFilter(nn.Module):
    r"""One polynomial filter an order, each a prior and a learned difference from it: θ_{pk} = θ⁰_k + δ_{pk}.

    Parameters
    ----------
    orders : int
        Number of filters: one more than the order of the chaos.
    K : int
        Degree of the filters.
    basis : {"chebyshev", "monomial", "bernstein", "jacobi", "legendre"}
        Basis in which δ is learned; see `to_chebyshev`.
    prior : {"ppr", "identity", "mix", "heat", "highpass"}
        The filter θ⁰; see `prior_coefficients`.
    learn : bool
        Whether δ is learned; it starts at 0.
    nonnegative : bool
        Whether negative coefficients are set to 0, so that every response is nonnegative; for the Bernstein basis. If
        the prior has negative ones there, learning starts from the prior without them.
    alpha, t : float
        Of the prior.
    a, b : float
        Of the Jacobi basis.

    Attributes
    ----------
    delta : Parameter, shape (orders, K+1)
        δ, in `basis`.

    Raises
    ------
    ValueError
        An unknown basis or prior, no order, a negative degree, or `nonnegative` in another basis.

    Shapes
    ------
    u : (nodes, orders, channels), shift : (nodes, nodes) → (nodes, orders, channels)

    Examples
    --------
    >>> filters = GraphPolynomialFilter(3, 10)
    >>> filters(torch.ones(2, 3, 5), normalized_shift(torch.tensor([[0, 1], [1, 0]]))).shape
    torch.Size([2, 3, 5])
    >>> bool(torch.allclose(filters.response(torch.ones(1)), torch.ones(3, 1)))
    True
    """

    start: Tensor
    matrix: Tensor

    def __init__(
        self,
        orders: int,
        K: int,
        basis: str = "chebyshev",
        prior: str = "ppr",
        learn: bool = True,
        *,
        nonnegative: bool = False,
        alpha: float = 0.1,
        t: float = 3.0,
        a: float = 1.0,
        b: float = 1.0,
    ) -> None:
        super().__init__()
        self.orders, self.K = check_integer(orders, "orders", low=1), check_integer(K, "K", low=0)
        self.basis, self.prior, self.nonnegative = basis, prior, nonnegative
        matrix = torch.from_numpy(_basis_matrix(basis, self.K, a, b)).clone()
        start = from_chebyshev(prior_coefficients(prior, self.K, alpha, t), basis, a=a, b=b)
        if nonnegative and basis != "bernstein":
            raise ValueError(f"nonnegative filters need basis='bernstein', got {basis!r}")
        self.register_buffer("matrix", matrix)
        self.register_buffer("start", start.clamp(min=0) if nonnegative else start)
        self.delta = nn.Parameter(torch.empty(self.orders, self.K + 1), requires_grad=learn)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Return to the prior."""
        nn.init.zeros_(self.delta)

    @property
    def theta(self) -> Float[Tensor, "orders coefficients"]:
        """The Chebyshev coefficients of every filter, shape (orders, K+1)."""
        coefficients = self.start + self.delta.to(self.start.dtype)
        if self.nonnegative:
            # Unlike relu, clamp passes a gradient on at 0, where coefficients may start.
            coefficients = coefficients.clamp(min=0)
        return (coefficients @ self.matrix.T).to(self.delta.dtype)

    def response(self, x: Float[Tensor, " points"]) -> Float[Tensor, "orders points"]:
        """Return every filter's response at the frequencies x = 1 − λ, shape (orders, points)."""
        return response(self.theta, x)

    def forward(
        self, u: Float[Tensor, "nodes orders channels"], shift: Float[Tensor, "nodes nodes"]
    ) -> Float[Tensor, "nodes orders channels"]:
        """Return the filtered signals, shape (nodes, orders, channels), in the dtype of `shift`.

        Raises
        ------
        TypeError
            `shift` has a smaller dtype than `u`.
        ValueError
            The shapes do not fit.
        """
        if u.ndim != 3 or u.shape[1] != self.orders:
            raise ValueError(f"u must have shape (nodes, {self.orders}, channels), got {tuple(u.shape)}")
        return filter_signals(u, self.theta, shift)

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        learned = "" if self.delta.requires_grad else ", learn=False"
        return f"{self.orders}, {self.K}, basis={self.basis!r}, prior={self.prior!r}{learned}"
