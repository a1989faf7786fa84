"""The few array operations that NumPy and torch spell differently."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = [
    "BLOCK",
    "all_finite",
    "as_point",
    "blocks",
    "choose_rows",
    "copied",
    "epsilon",
    "equal",
    "inner",
    "is_safe",
    "normal_like",
    "norms",
    "owner",
    "same_kind",
    "square",
    "unchanged",
]


BLOCK = 65_536
"""Entries of which the processor's cache holds several vectors."""


def _is_torch(x: Any) -> bool:
    if type(x) is np.ndarray:
        return False
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def as_point(x: Any, name: str = "x0") -> Any:
    """Return a new floating-point array of the same kind, shape, device and precision; integers become float64.

    Raises
    ------
    TypeError
        Not numbers.
    ValueError
        Empty, NaN or infinite.
    """
    if _is_torch(x):
        import torch

        point = x.detach().clone()
        if not (point.is_floating_point() or point.is_complex()):
            point = point.to(torch.float64)
    else:
        point = np.array(x)
        if point.dtype.kind in "biu":
            point = point.astype(np.float64)
        if point.dtype.kind not in "fc":
            raise TypeError(f"{name} must be numbers, got dtype {point.dtype}")
    if not int(np.prod(point.shape)):
        raise ValueError(f"{name} must not be empty, got shape {tuple(point.shape)}")
    if not all_finite(point):
        raise ValueError(f"{name} must be finite")
    return point


def same_kind(value: Any, like: Any, name: str) -> Any:
    """Return an operator's answer as an array like its argument, of its precision; what torch knows of its origin is dropped.

    Raises
    ------
    TypeError
        A torch tensor for a NumPy array or the reverse, or complex numbers for real ones.
    ValueError
        Another shape.
    """
    if type(value) is type(like) is np.ndarray and value.dtype == like.dtype and value.shape == like.shape:
        return value
    if _is_torch(like) != _is_torch(value):
        raise TypeError(f"{name} must return a torch tensor for one, and only then, got {type(value).__name__}")
    if not _is_torch(value):
        value = np.asarray(value)
    elif value.requires_grad:
        value = value.detach().clone()
    if tuple(value.shape) != tuple(like.shape):
        raise ValueError(f"{name} must return the shape of its argument, {tuple(like.shape)}, got {tuple(value.shape)}")
    if value.dtype == like.dtype:
        return value
    if _is_torch(like):
        import torch

        fits = torch.can_cast(value.dtype, like.dtype)
    else:
        fits = np.can_cast(value.dtype, like.dtype, "same_kind")
    if not fits:
        raise TypeError(f"{name} returned {value.dtype} for {like.dtype}: give an x0 of that kind")
    return value.to(like.dtype) if _is_torch(like) else value.astype(like.dtype)


def owner(x: Any) -> Any:
    """Return the array whose memory `x` is, or is part of."""
    base = x._base if _is_torch(x) else x.base
    return base if isinstance(base, np.ndarray) or _is_torch(base) else x


def copied(x: Any) -> Any:
    """Return a copy."""
    return x.clone() if _is_torch(x) else x.copy()


def all_finite(x: Any) -> bool:
    """Tell whether no entry is NaN or infinite."""
    if _is_torch(x):
        import torch

        return bool(torch.isfinite(x).all())
    return bool(np.isfinite(x).all())


def norms(x: Any, order: Any = 2, batch_dims: int = 0) -> Any:
    """Return the norm of an array, or of each of its rows: a float, or an array of shape (rows,).

    `order` is 2, ``"inf"`` or a function of one array.
    """
    if type(x) is np.ndarray and not batch_dims and order == 2:
        flat = x.reshape(-1)
        found: Any = np.vdot(flat, flat).real
        size = 1.0
        if not is_safe(found, found.dtype):
            flat = np.abs(flat).astype(np.float64)
            size = float(flat.max(initial=0.0))
            if not 0 < size < math.inf:
                return size
            flat /= size
            found = np.vdot(flat, flat)
        return size * math.sqrt(found)
    if callable(order):
        return order(x) if not batch_dims else np.array([float(order(row)) for row in x])
    flat = x.reshape(x.shape[0], -1) if batch_dims else x.reshape(-1)
    if _is_torch(x):
        import torch

        found = torch.linalg.vector_norm(flat, float("inf") if order == "inf" else 2, dim=-1)
        return found.double().cpu().numpy() if batch_dims else float(found)
    if order == "inf":
        found = np.abs(flat).max(axis=-1)
    else:
        found = np.sqrt((flat * flat.conj()).real.sum(axis=-1))
    return found if batch_dims else float(found)


def square(x: Any) -> float:
    """Return the squared Euclidean norm of a flat NumPy array, as it comes: see `is_safe`."""
    return float(np.vdot(x, x).real)


def is_safe(total: Any, dtype: Any) -> bool:
    """Tell whether a sum of squares kept its digits: it is neither 0, too small nor too large for its precision."""
    return float(np.finfo(dtype).tiny) * 1e16 < float(total) < math.inf


def blocks(work: Any, *arrays: Any) -> Iterator[tuple[Any, ...]]:
    """Yield as much of `work`, which is flat, as each part of NumPy arrays of one shape needs, and the parts.

    What is computed of parts that fit the processor's cache, one after the other, does not wait for memory.
    """
    flat = [x.reshape(-1) for x in arrays]
    for start in range(0, flat[0].size, work.size):
        parts = [x[start : start + work.size] for x in flat]
        yield work[: parts[0].size], *parts


def epsilon(x: Any) -> float:
    """Return the relative precision of an array's numbers."""
    if _is_torch(x):
        import torch

        return torch.finfo(x.dtype).eps
    return float(np.finfo(x.dtype).eps)


def inner(x: Any, y: Any) -> float:
    """Return Re⟨x, y⟩."""
    if _is_torch(x):
        import torch

        return float(torch.vdot(x.reshape(-1), y.reshape(-1)).real)
    return float(np.vdot(x, y).real)


def normal_like(x: Any, rng: np.random.Generator) -> Any:
    """Return an array like `x` of standard normal numbers."""
    drawn = rng.standard_normal(tuple(x.shape))
    if _is_torch(x):
        import torch

        return torch.from_numpy(np.asarray(drawn)).to(x)
    return np.asarray(drawn, dtype=x.dtype)


@contextlib.contextmanager
def unchanged(x: Any) -> Iterator[None]:
    """Refuse that the user's code changes an array in place: what is known of it would be wrong.

    It stays writeable meanwhile, as other libraries refuse arrays that are not, so a copy is compared: to do so the first
    few times is enough.

    Raises
    ------
    ValueError
        On leaving, if it was changed.
    """
    before = copied(x)
    yield
    if not bool(((x == before) | (before != before)).all()):
        raise ValueError("an operator or base method must not change its argument in place")


def equal(x: Any, y: Any) -> bool:
    """Tell whether two arrays of one shape are the same in every entry."""
    if type(x) is type(y) is np.ndarray and x.flat[0] != y.flat[0]:
        return False
    return bool((x == y).all())


def choose_rows(rows: Any, x: Any, y: Any) -> Any:
    """Return `y` with the rows in a mask taken from `x`."""
    chosen = copied(y)
    if _is_torch(y):
        import torch

        rows = torch.from_numpy(rows).to(y.device)
    chosen[rows] = x[rows]
    return chosen
