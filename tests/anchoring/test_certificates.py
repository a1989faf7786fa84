"""What is promised before a run, what is attained at worst, and what a run's history refutes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.anchoring import bases, certificates, schedules
from paperworks.anchoring.certificates import apriori_bound, is_certified, recurrence_slack, spectral_worst_case
from paperworks.anchoring.data import lieder_map, random_monotone, rotation
from paperworks.anchoring.drive import fixed_point, solve_equation

FIELDS: dict[str, Any] = {
    "forward": bases.forward,
    "extragradient": bases.extragradient,
    "popov": bases.popov(),
    "popov-stored": bases.popov("stored"),
}
MUS = {"extragradient": (0.2, 0.95), "popov": (0.2, 0.49), "popov-stored": (0.2, 0.49)}
A = np.arange(1001) + 1.0


@st.composite
def weights(draw: st.DrawFn, name: str) -> schedules.Schedule:
    """Return a certified schedule."""
    a = draw(st.floats(1.05, 4))
    if name == "picard":
        return schedules.halpern(a, a + draw(st.floats(0.1, 5)))
    if name == "forward":
        return schedules.forward(a, a + draw(st.floats(0, 5)))
    mu = draw(st.floats(*MUS[name]))
    factory = schedules.extragradient if name == "extragradient" else schedules.popov
    return factory(a, a / mu * draw(st.floats(1.05, 5)), mu)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("extragradient", [0.859375, 0.739909, 0.553015, 0.323576, 0.162120, 0.028932, 0.002964]),
        ("forward", [1.154701, 1.085012, 0.769430, 0.455928, 0.415679, 0.144004, 0.045835]),
    ],
)
def test_known_spectral_worst_cases(method: str, expected: list[float]) -> None:
    found = spectral_worst_case(method, getattr(schedules, method)(), 1000)
    assert found[[1, 2, 4, 8, 16, 100, 1000]] == pytest.approx(expected, abs=1e-6)


def test_known_constants_of_the_worst_cases() -> None:
    """√k or k times the residual: at most 1.879, 2.971 and 5.164 (5.218 with the stored answer); slopes −½ and −1."""
    late = np.log(A[100:])
    for step, plan, power, constant in (
        (bases.forward, schedules.forward(), 0.5, 1.879),
        (bases.extragradient, schedules.extragradient(), 1, 2.971),
        (bases.popov(), schedules.popov(), 1, 5.164),
        (bases.popov("stored"), schedules.popov(), 1, 5.218),
        (bases.popov(), schedules.popov(mu=0.55), 1, 4.05),
    ):
        found = spectral_worst_case(step, plan, 1000)
        assert (found * A**power).max() == pytest.approx(constant, abs=0.006)
        assert np.polyfit(late, np.log(found[100:]), 1)[0] == pytest.approx(-power, abs=0.05)


def test_halpern_is_as_bad_as_promised_and_no_worse() -> None:
    found = spectral_worst_case("picard", schedules.halpern(), 200)
    promised = apriori_bound("picard", schedules.halpern(), 200)
    assert promised == pytest.approx(2 / (np.arange(201) + 1))
    assert (found <= promised + 1e-12).all()
    assert found[[1, 5, 10]] == pytest.approx(promised[[1, 5, 10]], rel=2e-2)


def test_spectral_worst_case_of_a_method_of_ones_own() -> None:
    """Without a constraint Tseng's method is the extragradient method."""
    expected = spectral_worst_case("extragradient", schedules.extragradient(), 30, 51)
    found = spectral_worst_case(bases.tseng_fbf(lambda x: x), schedules.extragradient(), 30, 51)
    assert found == pytest.approx(expected, rel=1e-12)
    assert spectral_worst_case("forward", schedules.forward(), 0) == pytest.approx([1.0])


@pytest.mark.parametrize(
    ("method", "plan", "power", "expected"),
    [
        ("extragradient", schedules.extragradient(), 1, 16.70),
        ("popov", schedules.popov(), 1, 40.42),
        ("picard", schedules.halpern(1.5, 2.5), 1, 9.48),
        ("forward", schedules.forward(), 0.5, 8.49),
    ],
)
def test_known_constants_of_the_bounds(method: str, plan: Any, power: float, expected: float) -> None:
    found = apriori_bound(method, plan, 3000)
    assert found.shape == (3001,)
    assert (found * np.arange(1, 3002) ** power).max() == pytest.approx(expected, abs=0.005)
    assert (spectral_worst_case(method, plan, 300, 200) <= found[:301] + 1e-12).all()


def test_bounds_by_hand() -> None:
    """Two steps of the forward recurrence: δ = 2/3, 1/2; λ = 2/√3, √(4/5); q₀ = 2/3; B = 3D."""
    pull = 2 / 3**0.5, 0.5 / (0.5 - 0.75 / 4) ** 0.5
    found = apriori_bound("forward", schedules.forward(), 1, distance=2.0, lipschitz=5.0)
    assert found == pytest.approx([10 + pull[0] * 30, 10 * 2 / 3 + (pull[0] - pull[1]) * 30 + pull[1] * 30], rel=1e-12)
    # Extragradient: μ = ¾, w = 7/16, t₀ = 2δ₀/w, B = 1 + √(1 + δ₀/w).
    d, e, w = 1.5 / 8, 0.75 - 1.5 / 8, 7 / 16
    pull = d / e, (1.5 / 9) / (0.75 - 1.5 / 9)
    B = 1 + (1 + d / w) ** 0.5
    shrunk = (1 - 2 * d * w / (w + 2 * d)) ** 0.5
    expected = [1 + pull[0] * B, shrunk + (pull[0] - pull[1]) * B + pull[1] * B]
    assert apriori_bound("extragradient", schedules.extragradient(), 1) == pytest.approx(expected, rel=1e-12)
    # Popov: w = 1 − 4·0.45², the same otherwise.
    e, w = 0.45 - d, 1 - 4 * 0.45**2
    pull = d / e, (1.5 / 9) / (0.45 - 1.5 / 9)
    B = 1 + (1 + d / w) ** 0.5
    shrunk = (1 - 2 * d * w / (w + 2 * d)) ** 0.5
    expected = [1 + pull[0] * B, shrunk + (pull[0] - pull[1]) * B + pull[1] * B]
    assert apriori_bound("popov", schedules.popov(), 1) == pytest.approx(expected, rel=1e-12)


@given(D=st.floats(0, 100), L=st.floats(0.01, 100))
def test_bounds_are_proportional(D: float, L: float) -> None:
    for method in ("forward", "extragradient", "popov"):
        plan = getattr(schedules, method)()
        assert apriori_bound(method, plan, 5, D, L) == pytest.approx(D * L * apriori_bound(method, plan, 5), rel=1e-9)
    plan = schedules.halpern(2)
    assert apriori_bound("picard", plan, 5, D, L) == pytest.approx(D * apriori_bound("picard", plan, 5), rel=1e-9)


def test_bounds_that_are_not_proved_are_not_given() -> None:
    for method, plan in (
        ("popov", schedules.popov(mu=0.5)),
        ("extragradient", schedules.plain()),
        ("extragradient", schedules.popov()),
        ("forward", schedules.custom(lambda k: 0.1, lambda k: 0.1)),
        ("popov-stored", schedules.popov()),
        ("tseng_fbf", schedules.extragradient()),
    ):
        assert not is_certified(method, plan)
        with pytest.raises(ValueError, match="no proved bound"):
            apriori_bound(method, plan, 5)
    with pytest.raises(ValueError, match="n must be"):
        apriori_bound("picard", schedules.halpern(), -1)
    with pytest.raises(ValueError, match="distance"):
        apriori_bound("picard", schedules.halpern(), 1, distance=-1.0)


@pytest.mark.parametrize("name", FIELDS)
@settings(max_examples=20)
@given(data=st.data(), kind=st.sampled_from(["linear", "nonlinear"]), n=st.integers(2, 11), seed=st.integers(0, 10**6))
def test_the_recurrence_and_the_bound_hold(name: str, data: st.DataObject, kind: str, n: int, seed: int) -> None:
    plan, problem = data.draw(weights(name)), random_monotone(kind, n, seed)
    found = solve_equation(
        problem.field,
        problem.x0,
        method=FIELDS[name],
        schedule=plan,
        lipschitz=problem.lipschitz,
        maxiter=60,
        tol=0,
        check_every=1,
        distance=float(np.linalg.norm(problem.x0)),
    )
    slack = recurrence_slack(found.history, name)
    assert len(slack) >= 58
    assert slack.max() <= 1 + 1e-9
    assert found.flags["slack"] == slack.max()
    assert not found.flags["recurrence_violated"]
    if name != "popov-stored":
        bounds = apriori_bound(name, plan, 60, float(np.linalg.norm(problem.x0)), problem.lipschitz)
        assert (found.history["residual"] <= bounds * (1 + 1e-9)).all()
        assert found.bound == bounds[-1] >= found.residual
    else:
        assert found.bound is None


def shrinking_map(n: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    if seed % 2:
        return lambda x: Q @ x
    return lambda x: Q @ np.where(np.abs(x) < 0.3, x, np.tanh(x - 0.3 * np.sign(x)) + 0.3 * np.sign(x))


@settings(max_examples=30)
@given(plan=weights("picard"), n=st.integers(1, 9), seed=st.integers(0, 10**6))
def test_the_recurrence_and_the_bound_hold_for_maps(plan: Any, n: int, seed: int) -> None:
    x0 = np.random.default_rng(seed).standard_normal(n)
    D = float(np.linalg.norm(x0))
    for schedule in (plan, schedules.halpern()):
        found = fixed_point(shrinking_map(n, seed), x0, schedule=schedule, maxiter=60, tol=0, distance=D)
        if found.nit > 1:  # else at a fixed point
            assert recurrence_slack(found.history, "picard").max() <= 1 + 1e-9
        bounds = apriori_bound("picard", schedule, found.nit, D)
        assert (found.history["residual"] <= bounds * (1 + 1e-9) + 1e-13).all()


@pytest.mark.parametrize("N", [1, 5, 10, 50, 200])
def test_halperns_bound_is_attained(N: int) -> None:
    found = fixed_point(lieder_map(N), np.ones(1), maxiter=N, tol=0, distance=1.0)
    assert found.residual == pytest.approx(2 / (N + 1), rel=1e-12)
    assert found.bound == pytest.approx(2 / (N + 1), rel=1e-15)
    assert found.x[0] == pytest.approx(1 - N / (N + 1), rel=1e-11)


def test_contractions_are_within_their_bounds() -> None:
    """The sharp bound for a γ-contraction, attained at iteration 50, is below that of the recurrence."""
    for gamma in (0.9, 0.99):
        sharp = (1 + gamma) / np.sum(gamma ** -np.arange(51.0))
        found = fixed_point(
            lambda x, gamma=gamma: -gamma * x,  # type: ignore[misc]
            np.ones(1),
            schedule=schedules.contraction(gamma),
            maxiter=50,
            tol=0,
            distance=1.0,
        )
        assert found.residual == pytest.approx(sharp, rel=1e-10)
        assert found.bound is not None
        assert found.bound >= sharp


@pytest.mark.parametrize("method", ["extragradient", "popov", "forward"])
def test_a_step_twice_too_large_is_found_out(method: str) -> None:
    """L of the rotation is 1, not ½."""
    found = solve_equation(
        rotation().field, np.ones(2), method=method, lipschitz=0.5, maxiter=300, tol=0, check_every=1
    )
    assert found.flags["recurrence_violated"]
    assert found.flags["slack"] > 1.01
    if method != "forward":
        assert found.status == 2


def test_a_field_that_is_not_monotone_is_found_out() -> None:
    found = solve_equation(lambda x: -x, np.ones(3), lipschitz=1.0, maxiter=300, anchor=np.zeros(3))
    assert found.status == 2
    assert found.flags["recurrence_violated"]
    expansive = fixed_point(lambda x: 1.5 * x[::-1], np.array([1.0, 2.0]), maxiter=60, tol=0)
    assert expansive.flags["recurrence_violated"]


@pytest.mark.parametrize("past", ["requery", "stored"])
def test_the_recurrence_of_popovs_method_by_hand(past: Any) -> None:
    """V = √(‖g‖² + ‖g − p‖²)/η with g = G(x), y = x − p; and what the change of the weights may add to it."""
    problem = random_monotone("nonlinear", 4, 3)
    F, x0, plan = problem.field, problem.x0, schedules.popov()
    found = solve_equation(
        F, x0, method=bases.popov(past), schedule=plan, lipschitz=1.0, maxiter=12, tol=0, check_every=1
    )
    name = "popov" if past == "requery" else "popov-stored"
    x = y = x0
    answer, V, allowed = None, [], [np.nan]
    for k in range(12):
        (delta, eta), (later, step) = plan.weights(k), plan.weights(k + 1)
        old = x0 if k == 0 else y
        g = eta * F(x) + delta * (x - x0)
        p = answer if past == "stored" and k else eta * F(old) + delta * (old - x0)
        V.append(np.hypot(np.linalg.norm(g), np.linalg.norm(g - p)) / eta)
        y = x - p
        answer = eta * F(y) + delta * (y - x0)
        x = x - answer
        w = 1 - 4 * 0.45**2
        change = abs(later / step - delta / eta)
        if past == "requery":
            drift = change * np.hypot(np.linalg.norm(x - x0), np.linalg.norm(x - y))
        else:
            drift = 2**0.5 * change * np.linalg.norm(x - x0) + abs(eta / step - 1) * np.linalg.norm(answer) / eta
        allowed.append((1 - 2 * delta * w / (w + 2 * delta)) ** 0.5 * V[-1] + drift)
    assert found.history["V"][:12] == pytest.approx(V, rel=1e-12)
    assert recurrence_slack(found.history, name) == pytest.approx(np.array(V[1:]) / np.array(allowed[1:12]), rel=1e-12)


def test_only_consecutive_checks_with_the_same_constant_are_compared() -> None:
    problem = random_monotone("linear", 4, 0)
    kwargs: dict[str, Any] = {"method": "forward", "maxiter": 30, "tol": 0}
    apart = solve_equation(problem.field, problem.x0, lipschitz=1.0, check_every=3, **kwargs)
    assert recurrence_slack(apart.history, "forward").size == 0
    assert apart.flags["slack"] is None
    assert not apart.flags["recurrence_violated"]
    restarted = solve_equation(problem.field, problem.x0, lipschitz=1.0, restart=10, **kwargs)
    assert recurrence_slack(restarted.history, "forward").size == 30
    assert restarted.bound is None
    assert recurrence_slack(apart.history, "tseng_fbf").size == 0


def test_shrinkage_is_what_the_proofs_say() -> None:
    d, s = np.array([0.2]), np.array([0.3])
    assert certificates.shrinkage("picard", d, s) == pytest.approx([0.8])
    assert certificates.shrinkage("forward", d, s) == pytest.approx([(0.64 + 0.09) ** 0.5])
    w = 1 - 0.25
    assert certificates.shrinkage("extragradient", d, s) == pytest.approx([(1 - 0.4 * w / (w + 0.4)) ** 0.5])
    assert certificates.shrinkage("popov", d, s)[0] == np.inf  # 2(δ + ηL) = 1
    w = 1 - 4 * 0.16
    assert certificates.shrinkage("popov", d, s / 1.5) == pytest.approx([(1 - 0.4 * w / (w + 0.4)) ** 0.5])


@pytest.mark.parametrize("method", ["forward", "picard"])
def test_rounding_is_no_evidence(method: str) -> None:
    """On a rotation no more is left than the recurrence allows, and no less: in single precision a little more."""
    turn, start = np.array([[0, 1], [-1, 0]], np.float32), np.array([10, 1], np.float32)
    kwargs: dict[str, Any] = {"maxiter": 2000, "tol": 0.0}
    if method == "picard":
        found = fixed_point(lambda x: turn @ x, start, **kwargs)
        wrong = fixed_point(lambda x: np.float32(1.02) * (turn @ x), start, **kwargs)
    else:
        found, wrong = (
            solve_equation(lambda x: turn @ x, start, method=method, lipschitz=L, **kwargs) for L in (1.0, 0.5)
        )
    assert found.flags["slack"] > 1 + 1e-9
    assert not found.flags["recurrence_violated"]
    assert wrong.flags["recurrence_violated"]


def test_rounding_is_allowed_where_it_is_told() -> None:
    found = fixed_point(lambda x: -x, np.ones(1), maxiter=3, tol=0)
    plain = recurrence_slack(found.history, "picard")
    allowed = found.history["V"][1:] / plain
    assert recurrence_slack(found.history, "picard", 0.5) == pytest.approx(found.history["V"][1:] / (allowed + 0.5))


@pytest.mark.parametrize("worst_case", [certificates.spectral_worst_case, certificates.pep_worst_case])
def test_worst_cases_need_a_base_method_of_the_schedules_kind(worst_case: Any) -> None:
    with pytest.raises(ValueError, match="step must be one of 'picard', 'forward'"):
        worst_case("halpern", schedules.halpern(), 2)
    with pytest.raises(TypeError, match="schedule 'halpern' is for a map, and the base method is for a field"):
        worst_case("extragradient", schedules.halpern(), 2)
    with pytest.raises(TypeError, match="schedule 'forward' is for a field, and the base method is for a map"):
        worst_case(bases.picard, schedules.forward(), 2)
