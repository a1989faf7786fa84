"""Existing methods, written out from their papers without anything of the rest: to compare with, and to test against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from paperworks.core.validation import check_real

__all__ = [
    "anchored_popov_update_side",
    "eag_c",
    "eag_v",
    "extragradient",
    "feg",
    "halpern_textbook",
    "krasnoselskii_mann",
    "oc_halpern",
    "past_extragradient",
    "simgd_a",
]

Function = Callable[[Any], Any]

# Each yields x₀, x₁, x₂, … without end.


def halpern_textbook(T: Function, x0: Any) -> Iterator[Any]:
    """Yield Halpern's iteration x_{k+1} = x₀/(k + 2) + (1 − 1/(k + 2))·T(x_k) (F. Lieder, Optim. Lett. 15, 2021)."""
    x, k = x0, 0
    while True:
        yield x
        x = x0 / (k + 2) + (k + 1) / (k + 2) * T(x)
        k += 1


def oc_halpern(T: Function, x0: Any, gamma: float) -> Iterator[Any]:
    """Yield the optimal iteration for a γ-contraction (J. Park and E. K. Ryu, ICML 2022)."""
    x, phi, power = x0, 1.0, 1.0
    while True:
        yield x
        power /= gamma**2
        phi += power
        x = (1 - 1 / phi) * T(x) + x0 / phi


def krasnoselskii_mann(T: Function, x0: Any, theta: float = 0.5) -> Iterator[Any]:
    """Yield the averaged iteration x_{k+1} = (1 − θ)·x_k + θ·T(x_k)."""
    x = x0
    while True:
        yield x
        x = (1 - theta) * x + theta * T(x)


def extragradient(F: Function, x0: Any, step: float) -> Iterator[Any]:
    """Yield the extragradient method (G. M. Korpelevich, 1976); two calls an iteration."""
    x = x0
    while True:
        yield x
        x = x - step * F(x - step * F(x))


def past_extragradient(F: Function, x0: Any, step: float) -> Iterator[Any]:
    """Yield the past extragradient method (L. D. Popov, 1980); one call an iteration."""
    x, past = x0, F(x0)
    while True:
        yield x
        past = F(x - step * past)
        x = x - step * past


def eag_c(F: Function, x0: Any, lipschitz: float, alpha: float = 1 / 8) -> Iterator[Any]:
    """Yield the extra anchored gradient method with a constant step α/L (T. Yoon and E. K. Ryu, arXiv 2102.07922)."""
    x, step, k = x0, alpha / lipschitz, 0
    while True:
        yield x
        pull = (x0 - x) / (k + 2)
        x = x + pull - step * F(x + pull - step * F(x))
        k += 1


def eag_v(F: Function, x0: Any, lipschitz: float, alpha: float = 0.618) -> Iterator[Any]:
    """Yield the extra anchored gradient method with varying steps that begin at α/L (arXiv 2102.07922)."""
    x, step, k = x0, alpha / lipschitz, 0
    while True:
        yield x
        pull = (x0 - x) / (k + 2)
        x = x + pull - step * F(x + pull - step * F(x))
        square = (step * lipschitz) ** 2
        step *= 1 - square / ((1 - square) * (k + 1) * (k + 3))
        k += 1


def feg(F: Function, x0: Any, lipschitz: float) -> Iterator[Any]:
    """Yield the fast extragradient method for monotone fields (S. Lee and D. Kim, arXiv 2106.02326)."""
    x, k = x0, 0
    while True:
        yield x
        beta = 1 / (k + 1)
        value = F(x)
        y = x + beta * (x0 - x) - (1 - beta) / lipschitz * value
        x = x + beta * (x0 - x) - F(y) / lipschitz
        k += 1


def simgd_a(F: Function, x0: Any, p: float = 0.6, gamma: float = 1.0) -> Iterator[Any]:
    """Yield the anchored forward step of E. K. Ryu, K. Yuan and W. Yin (arXiv 1905.10899), ½ < p < 1 and γ > 0."""
    check_real(p, "p", low=0.5, high=1, open_low=True)
    x, k = x0, 0
    while True:
        yield x
        x = x - (1 - p) / (k + 1) ** p * F(x) + (1 - p) * gamma / (k + 1) * (x0 - x)
        k += 1


def anchored_popov_update_side(F: Function, x0: Any, lipschitz: float, eta: float = 0.45) -> Iterator[Any]:
    """Yield Popov's method with the anchor in the updates, at x_k in both lines, in place of the operator."""
    x, past, step, k = x0, F(x0), eta / lipschitz, 0
    while True:
        yield x
        pull = (x0 - x) / (k + 2)
        past = F(x + pull - step * past)
        x = x + pull - step * past
        k += 1


def take(iterates: Iterator[Any], k: int) -> Any:
    """Return iterate k, counted from 0.

    Examples
    --------
    >>> take(halpern_textbook(lambda x: -x, 1.0), 3)
    0.0
    """
    for _ in range(k):
        next(iterates)
    return next(iterates)
