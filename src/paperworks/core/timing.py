"""Seconds of a call."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["best_of"]


def best_of(call: Callable[[], object], repeats: int = 3) -> float:
    """Return the seconds of the fastest of some calls.

    Examples
    --------
    >>> best_of(lambda: sum(range(10))) < 1
    True
    """
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
