"""Existing methods against what their papers say of them, on normal linear fields with L = 1 and ‖x₀ − x*‖ = 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from paperworks.anchoring import baselines, certificates, schedules

N = 800
K = np.arange(N + 1)


def worst(method: Callable[..., Iterator[Any]], *args: float) -> Any:
    """Return the largest residual of each iterate over scalars on the boundary of the right half disk."""
    axis = np.union1d(np.linspace(0, 1, 301), np.geomspace(1e-6, 1, 300))
    z = np.concatenate([1j * axis, np.exp(1j * np.linspace(0, np.pi / 2, 200))])
    iterates = method(lambda x: z * x, np.ones(len(z), complex), *args)
    return np.array([np.abs(z * next(iterates)).max() for _ in range(N + 1)])


def slope(residuals: Any) -> float:
    return float(np.polyfit(np.log(K[100:]), np.log(residuals[100:]), 1)[0])


def test_anchored_extragradient_with_a_constant_step() -> None:
    """‖F(x_k)‖² ≤ 260/(k + 1)², nearly attained: √255.15 = 15.97."""
    scaled = (K + 1) * worst(baselines.eag_c, 1.0)
    assert scaled.max() == pytest.approx(15.97, abs=0.02)
    assert scaled.max() ** 2 <= 260


def test_anchored_extragradient_with_varying_steps() -> None:
    """‖F(x_k)‖² ≤ 27/((k + 1)(k + 2))."""
    found = worst(baselines.eag_v, 1.0)
    assert ((K + 1) * (K + 2) * found**2).max() <= 27
    assert ((K + 1) * found).max() == pytest.approx(4.57, abs=0.01)


def test_fast_extragradient() -> None:
    """‖F(x_k)‖ ≤ 2/k, attained on rotations at k = 2, 6, 10."""
    found = worst(baselines.feg, 1.0)
    assert (K * found).max() <= 2 + 1e-12
    assert found[[2, 6, 10]] == pytest.approx([1, 1 / 3, 1 / 5], abs=1e-12)


def test_popov_with_the_anchor_in_the_updates() -> None:
    assert ((K + 1) * worst(baselines.anchored_popov_update_side, 1.0)).max() == pytest.approx(4.44, abs=0.01)


def test_plain_methods_fall_like_one_over_the_root_and_the_forward_step_diverges() -> None:
    assert slope(worst(baselines.extragradient, 0.5**0.5)) == pytest.approx(-0.5, abs=0.05)
    assert slope(worst(baselines.past_extragradient, 0.45)) == pytest.approx(-0.5, abs=0.05)
    anchored = certificates.spectral_worst_case("extragradient", schedules.extragradient(), N, 300)
    assert slope(anchored) == pytest.approx(-1, abs=0.05)
    x = np.array([1.0, 0.0])
    for _ in range(2000):
        x = x - 0.1 * np.array([x[1], -x[0]])
    assert np.linalg.norm(x) == pytest.approx(1.01**1000)


def test_the_anchored_operator_beats_the_anchored_updates_but_not_the_fast_method() -> None:
    found = {
        "regularized": (
            (K + 1) * certificates.spectral_worst_case("extragradient", schedules.extragradient(), N)
        ).max(),
        "constant": ((K + 1) * worst(baselines.eag_c, 1.0)).max(),
        "varying": ((K + 1) * worst(baselines.eag_v, 1.0)).max(),
    }
    assert found["regularized"] == pytest.approx(2.97, abs=0.01)
    assert found["regularized"] < found["varying"] < found["constant"]
    late = slice(100, None)
    regularized = certificates.spectral_worst_case("extragradient", schedules.extragradient(), N)
    assert (worst(baselines.feg, 1.0)[late] < regularized[late]).all()


def test_the_anchored_forward_step_of_ryu_yuan_and_yin() -> None:
    """Its exponents are 1 − p > 1/3 and less than a half; on the real line it converges to 0."""
    assert baselines.take(baselines.simgd_a(lambda x: x, 1.0), 2000) == pytest.approx(0, abs=0.05)
    first = baselines.take(baselines.simgd_a(lambda x: 2 * x, 1.0, 0.75, 3.0), 2)
    x = 1 - 0.25 * 2.0
    assert first == pytest.approx(x - 0.25 / 2**0.75 * 2 * x + 0.25 * 3 / 2 * (1 - x))
    with pytest.raises(ValueError, match="p must be in"):
        next(baselines.simgd_a(lambda x: x, 1.0, 0.5))


def test_halpern_and_the_optimal_method_for_contractions() -> None:
    assert baselines.take(baselines.halpern_textbook(lambda x: -x, 1.0), 2) == pytest.approx(1 / 3)
    for gamma, expected in ((0.9, 9.837804e-4), (0.99, 3.00206983e-2)):
        x = baselines.take(baselines.oc_halpern(lambda x, gamma=gamma: -gamma * x, 1.0, gamma), 50)
        assert abs(x + gamma * x) == pytest.approx(expected, rel=1e-6)
        assert abs(x + gamma * x) == pytest.approx((1 + gamma) / np.sum(gamma ** -np.arange(51.0)), rel=1e-12)


def test_averaging_and_the_first_iterates_of_the_plain_methods() -> None:
    assert baselines.take(baselines.krasnoselskii_mann(lambda x: -x, 1.0, 0.25), 3) == 0.125
    assert baselines.take(baselines.extragradient(lambda x: x, 1.0, 0.5), 2) == 0.75**2
    # y₀ = ½, x₁ = 1 − ½·½ = ¾; y₁ = ¾ − ½·½ = ½, x₂ = ¾ − ½·½ = ½
    assert baselines.take(baselines.past_extragradient(lambda x: x, 1.0, 0.5), 2) == 0.5
