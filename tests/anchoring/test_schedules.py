"""Weights: the identities that the proofs use, closed forms against sums, and what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperworks.anchoring import schedules
from paperworks.anchoring.schedules import Schedule

POSITIVE = st.floats(1.01, 10)
FACTORIES = [schedules.halpern, schedules.forward, schedules.extragradient, schedules.popov]


def test_known_weights() -> None:
    """δ and η of iteration 0 by hand, η with L = 2."""
    assert schedules.halpern().weights(0) == (0.5, 0.5)
    assert schedules.halpern(1.5).weights(0) == pytest.approx((0.6, 0.4))
    assert schedules.forward().weights(0, 2) == pytest.approx((2 / 3, 3**-0.5 / 2))
    assert schedules.extragradient().weights(0, 2) == (0.1875, 0.28125)
    assert schedules.popov().weights(0, 2) == pytest.approx((0.1875, 0.13125))
    assert schedules.plain(0.3).weights(5, 2) == (0.0, 0.15)
    assert schedules.plain(kind="map").weights(5) == (0.0, 1.0)
    assert schedules.extragradient().weights(7) == (0.1, 0.65)


@given(a=POSITIVE, extra=st.floats(0, 20), k=st.integers(0, 10**6), L=st.floats(1e-3, 1e3))
def test_the_forward_step_shrinks_by_one_minus_half_delta(a: float, extra: float, k: int, L: float) -> None:
    delta, eta = schedules.forward(a, a + extra).weights(k, L)
    assert (1 - delta) ** 2 + eta**2 * L**2 == pytest.approx((1 - delta / 2) ** 2, abs=1e-12)


@given(a=POSITIVE, mu=st.floats(0.1, 0.57), k=st.integers(0, 10**6), L=st.floats(1e-3, 1e3))
def test_the_modulus_is_constant(a: float, mu: float, k: int, L: float) -> None:
    """η_k·L + δ_k = μ."""
    for factory in (schedules.extragradient, schedules.popov):
        delta, eta = factory(a, 1.1 * a / mu, mu).weights(k, L)
        assert eta > 0
        assert eta * L + delta == pytest.approx(mu, rel=1e-12)


@given(a=POSITIVE, mu=st.floats(0.1, 0.9), extra=st.floats(0.1, 9), k=st.integers(0, 1000), L=st.floats(0.1, 10))
def test_the_pull_over_the_step_is_a_hyperbola(a: float, mu: float, extra: float, k: int, L: float) -> None:
    """λ_k = (a/μ)·L/(k + b − a/μ), and its decrease has a closed form."""
    b = a / mu + extra
    plan = schedules.extragradient(a, b, mu)
    now, then = (delta / eta for delta, eta in (plan.weights(k, L), plan.weights(k + 1, L)))
    s = b - a / mu
    assert now == pytest.approx(a / mu * L / (k + s), rel=1e-9)
    assert now - then == pytest.approx(a / mu * L / ((k + s) * (k + s + 1)), rel=1e-6)


@given(gamma=st.floats(0.5, 1), k=st.integers(0, 100))
def test_weights_for_contractions_are_one_over_the_sum_of_powers(gamma: float, k: int) -> None:
    delta, eta = schedules.contraction(gamma).weights(k)
    assert delta == pytest.approx(1 / np.sum(gamma ** (-2.0 * np.arange(k + 2))), rel=1e-10)
    assert eta == 1 - delta


def test_weights_for_contractions_at_the_ends() -> None:
    """Towards γ = 1 they are Halpern's, without cancellation; for tiny γ nothing is left of the anchor."""
    one = schedules.contraction(1.0)
    for k in (0, 1, 10, 10**6):
        assert one.weights(k) == pytest.approx(schedules.halpern().weights(k), rel=1e-15)
        assert schedules.contraction(1 - 1e-13).weights(k)[0] == pytest.approx(1 / (k + 2), rel=1e-5)
    assert schedules.contraction(1e-200).weights(3) == (0.0, 1.0)
    assert schedules.contraction(1e-3).weights(10**6) == (0.0, 1.0)


@given(k=st.integers(0, 10**5))
def test_weights_of_an_array_are_those_of_its_entries(k: int) -> None:
    for factory in (*FACTORIES, lambda: schedules.contraction(0.9), schedules.plain):
        plan = factory()
        index = np.array([k, k + 1])
        assert np.broadcast_to(plan.delta(index), 2)[1] == pytest.approx(plan.weights(k + 1)[0], rel=1e-14)
        assert np.broadcast_to(plan.eta(index), 2)[1] == pytest.approx(plan.weights(k + 1)[1], rel=1e-14)


@given(a=st.floats(1, 10), k=st.integers(0, 10**6))
def test_weights_for_maps_sum_to_one(a: float, k: int) -> None:
    delta, eta = schedules.halpern(a).weights(k, lipschitz=7.0)
    assert delta == pytest.approx(a / (k + a + 1))
    assert delta + eta == pytest.approx(1)


def test_the_anchor_may_hold_everything_in_iteration_0_of_the_forward_step() -> None:
    """With b = a, δ₀ = 1 and η₀ = ½."""
    assert schedules.forward(2, 2).weights(0) == (1.0, 0.5)


def test_what_is_certified() -> None:
    for factory in FACTORIES:
        assert factory().certified
    assert schedules.contraction(0.9).certified
    assert schedules.popov(mu=0.49).certified
    assert not schedules.popov(mu=0.5).certified
    assert not schedules.popov(mu=0.577).certified
    assert not schedules.plain().certified
    assert not schedules.custom(lambda k: 0.1, lambda k: 0.1).certified
    with pytest.warns(UserWarning, match="log factor"):
        assert not schedules.extragradient(a=1.0).certified


@pytest.mark.parametrize("factory", FACTORIES)
def test_a_below_the_proven_range_warns(factory: Callable[..., Schedule]) -> None:
    with pytest.warns(UserWarning, match="below the proven range"):
        plan = factory(a=0.9)
    assert not plan.certified


def test_a_of_one_has_a_log_factor_except_for_maps() -> None:
    for factory in FACTORIES[1:]:
        with pytest.warns(UserWarning, match="log factor"):
            factory(a=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert schedules.halpern(1.0).certified


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: schedules.halpern(a=0), "a must be positive"),
        (lambda: schedules.halpern(a=-1), "a must be positive"),
        (lambda: schedules.halpern(a=float("nan")), "a must be"),
        (lambda: schedules.halpern(a=2, b=1), "b must be at least a"),
        (lambda: schedules.forward(a=2, b=1.9), "b must be at least a"),
        (lambda: schedules.extragradient(a=2, b=2, mu=0.9), "a / b must be below mu"),
        (lambda: schedules.extragradient(a=1.5, b=2), "a / b must be below mu"),
        (lambda: schedules.extragradient(a=1.5, b=8, mu=1.5 / 8), "a / b must be below mu"),
        (lambda: schedules.extragradient(mu=1.0), "mu must be below 1 "),
        (lambda: schedules.extragradient(mu=0.0), "mu must be positive"),
        (lambda: schedules.popov(mu=0.5774), "mu must be below 0.5774"),
        (lambda: schedules.popov(b=3), "a / b must be below mu"),
        (lambda: schedules.contraction(0.0), "gamma must be in"),
        (lambda: schedules.contraction(1.1), "gamma must be in"),
        (lambda: schedules.contraction(float("nan")), "gamma must be in"),
        (lambda: schedules.plain(step=0), "step must be positive"),
        (lambda: schedules.plain(kind="both"), "kind must be one of"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.untyped
def test_bad_parameters(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_functions_of_ones_own_are_checked_where_they_are_used() -> None:
    plan = schedules.custom(lambda k: 0.5 if k < 3 else 1.0, lambda k: 1 / (k + 1) if k < 5 else float("inf"))
    assert plan.weights(2, 2.0) == (0.5, 1 / 6)
    with pytest.raises(ValueError, match=r"delta must be in \[0, 1\), got 1.0 at k = 3"):
        plan.weights(3)
    for bad in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="delta"):
            schedules.custom(lambda k, bad=bad: bad, lambda k: 1.0).weights(0)  # type: ignore[misc]
    for bad in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="eta must be positive and finite"):
            schedules.custom(lambda k: 0.1, lambda k, bad=bad: bad).weights(0)  # type: ignore[misc]
    assert schedules.custom(lambda k: 0.25, kind="map").weights(0) == (0.25, 0.75)
    assert Schedule.from_callable(lambda k: 0.1, lambda k: 2.0).weights(0) == (0.1, 2.0)


@pytest.mark.untyped
def test_functions_of_ones_own_must_be_callable_and_of_the_kind() -> None:
    with pytest.raises(TypeError, match="delta and eta"):
        schedules.custom(0.1, lambda k: 1.0)
    with pytest.raises(TypeError, match="delta and eta"):
        schedules.custom(lambda k: 0.1)
    with pytest.raises(TypeError, match="delta alone"):
        schedules.custom(lambda k: 0.1, lambda k: 1.0, kind="map")


def test_schedules_are_immutable_and_say_what_they_were_made_from() -> None:
    plan = schedules.extragradient()
    assert (plan.name, plan.kind, dict(plan.params)) == ("extragradient", "field", {"a": 1.5, "b": 8.0, "mu": 0.75})
    with pytest.raises(FrozenInstanceError):
        plan.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        plan.params["a"] = 2.0  # type: ignore[index]
