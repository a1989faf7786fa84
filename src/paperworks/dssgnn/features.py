"""Node features, dense or sparse: the first layer of a network, and when sparse pays."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["FeatureLinear", "check_features", "check_finite", "compact", "drop_features", "linear"]

# Below this share of nonzero entries, and above this size, products with a sparse matrix are the faster ones.
_DENSITY, _SIZE = 0.1, 100_000


def compact(x: Float[Tensor, "nodes features"]) -> Float[Tensor, "nodes features"]:
    """Return node features in CSR layout where that makes training faster: large, and less than a tenth nonzero."""
    if x.layout != torch.strided:
        return _csr(x)
    if x.numel() < _SIZE or int(x.count_nonzero()) > _DENSITY * x.numel():
        return x
    return _csr(x)


def drop_features(x: Float[Tensor, "nodes features"], p: float, training: bool) -> Float[Tensor, "nodes features"]:
    """Return dropout of node features; of sparse ones only the stored entries are drawn, as the others stay 0."""
    if not training or p == 0:
        return x
    if x.layout == torch.strided:
        return functional.dropout(x, p, training)
    x = _csr(x)
    values = functional.dropout(x.values(), p, training)
    return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), values, x.shape, check_invariants=False)


def check_features(x: Any, width: int | None, name: str) -> None:
    """Raise unless `x` is a matrix of finite floating-point features, of as many as `name` expects."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(
            f"x must be a floating-point tensor, got {x.dtype if isinstance(x, Tensor) else type(x).__name__}"
        )
    if x.ndim != 2:
        raise ValueError(f"x must have shape (nodes, features), got {tuple(x.shape)}")
    if width is not None and x.shape[1] != width:
        raise ValueError(f"X has {x.shape[1]} features, but {name} is expecting {width} features as input")
    check_finite(x)


def check_finite(x: Tensor) -> None:
    """Raise unless every feature is finite."""
    if x.layout == torch.strided:
        bad = (~x.isfinite()).any(1)
        row = int(bad.nonzero()[0]) if bad.any() else None
    else:
        coo: Any = x.to_sparse_coo()  # type: ignore[no-untyped-call]
        bad = ~coo._values().isfinite()
        row = int(coo._indices()[0][bad].min()) if bad.any() else None
    if row is not None:
        raise ValueError(f"x contains NaN or infinity, first in row {row}")


class FeatureLinear(nn.Linear):
    """A linear layer that takes dense, CSR or COO node features; with Glorot's uniform weights and bias 0.

    Shapes
    ------
    x : (nodes, in_features) → (nodes, out_features)

    Examples
    --------
    >>> layer = FeatureLinear(3, 2)
    >>> x = torch.eye(3)
    >>> bool(torch.allclose(layer(x), layer(x.to_sparse_coo())))
    True
    """

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Float[Tensor, "nodes features"]) -> Float[Tensor, "nodes channels"]:
        """Return x Wᵀ + b."""
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x Wᵀ + b of dense or sparse `x`."""
    if x.layout == torch.strided:
        return functional.linear(x, weight, bias)
    product: Tensor = _csr(x) @ weight.t()
    return product if bias is None else product + bias


def _csr(x: Tensor) -> Tensor:
    if x.layout == torch.sparse_csr:
        return x
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        return x.to_sparse_csr()
