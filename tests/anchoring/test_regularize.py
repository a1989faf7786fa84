"""The construction alone, without a driver: what a base method sees, and that the base methods stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperworks.anchoring import baselines, bases, schedules
from paperworks.anchoring.data import ouyang_xu, random_monotone
from paperworks.anchoring.operators import as_field, as_map
from paperworks.anchoring.regularize import Query, anchored, regularize

J = np.array([[0.0, 1.0], [-1.0, 0.0]])
SEEDS = st.integers(0, 2**31)


def orbit(step: Any, plan: Any, operator: Any, x0: Any, n: int, lipschitz: float = 1.0) -> Any:
    """Return iterate n, by the construction alone."""
    ahead, x, state = anchored(step, plan, lipschitz=lipschitz), x0, None
    for k in range(n):
        x, state = ahead(operator, x, k, state, x0)
    return x


@pytest.mark.parametrize(
    ("step", "plan", "n", "expected"),
    [
        (bases.extragradient, schedules.extragradient(), 1, (0.68359375, 0.45703125)),
        (bases.extragradient, schedules.extragradient(), 2, (0.3171929253, 0.6011013455)),
        (bases.extragradient, schedules.extragradient(), 10, (0.0253836348, 0.1484172806)),
        (bases.popov(), schedules.popov(), 1, (0.93109375, 0.21328125)),
        (bases.popov(), schedules.popov(), 2, (0.8266623264, 0.3805407986)),
        (bases.popov(), schedules.popov(), 10, (-0.0867112277, 0.3920744629)),
        (bases.popov("stored"), schedules.popov(), 2, (0.833203125, 0.3864739583)),
        (bases.popov("stored"), schedules.popov(), 10, (-0.1060595174, 0.3991219111)),
        (bases.forward, schedules.forward(), 1, (1.0, 3**-0.5)),
        (bases.forward, schedules.forward(), 10, (0.1626212505, 0.2691773277)),
    ],
)
def test_known_iterates_of_a_rotation(step: Any, plan: Any, n: int, expected: tuple[float, float]) -> None:
    assert orbit(step, plan, lambda z: J @ z, np.array([1.0, 0.0]), n) == pytest.approx(expected, abs=1e-10)


@given(seed=SEEDS, k=st.integers(0, 50), L=st.floats(0.1, 10))
def test_what_is_seen_of_a_field_and_a_map(seed: int, k: int, L: float) -> None:
    """G_k = η_k·F + δ_k(· − x₀), H_k = G_k/η_k, T_k = (1 − δ_k)·T + δ_k·x₀."""
    rng = np.random.default_rng(seed)
    A, x0, z = rng.standard_normal((3, 3)), rng.standard_normal(3), rng.standard_normal(3)
    plan = schedules.popov()
    delta, eta = plan.weights(k, L)
    unit = regularize(A, x0, plan, lipschitz=L)
    field = regularize(A, x0, plan, lipschitz=L, scale="field")
    expected = eta * A @ z + delta * (z - x0)
    assert unit.kind == field.kind == "field"
    assert unit.at(k)(z) == pytest.approx(expected, rel=1e-12, abs=1e-13)
    assert field.at(k)(z) == pytest.approx(expected / eta, rel=1e-12, abs=1e-12)
    assert field.step(k) == unit.step(k) == eta
    seen = regularize(lambda x: A @ x, x0, schedules.halpern())
    assert seen.kind == "map"
    assert seen.at(k)(z) == pytest.approx((1 - 1 / (k + 2)) * A @ z + x0 / (k + 2), rel=1e-12, abs=1e-13)


def test_picard_on_the_anchored_map_is_halpern_and_a_forward_step_on_the_residual_field() -> None:
    """On Q·tanh in 30 dimensions, 2000 iterations."""
    rng = np.random.default_rng(0)
    Q, x0 = np.linalg.qr(rng.standard_normal((30, 30)))[0], rng.standard_normal(30)

    def T(x: Any) -> Any:
        return Q @ np.tanh(x)

    plan = schedules.halpern()
    as_field_plan = schedules.custom(plan.delta, lambda k: 1 - plan.delta(k))
    textbook = baselines.halpern_textbook(T, x0)
    x = y = x0
    for k in range(2000):
        assert np.abs(x - next(textbook)).max() <= 1e-13
        assert np.abs(x - y).max() <= 1e-13
        x, _ = bases.picard(regularize(T, x0, plan).at(k), x, None)
        y, _ = bases.forward(regularize(lambda z: z - T(z), x0, as_field_plan).at(k), y, None)


@given(seed=SEEDS, k=st.integers(0, 50))
def test_the_anchor_is_where_the_method_asks(seed: int, k: int) -> None:
    """The second line of the extragradient method is anchored at y; anchored at x it would be off by δ‖y − x‖."""
    rng = np.random.default_rng(seed)
    F = random_monotone("linear", 4, seed).field
    x0, x = rng.standard_normal(4), rng.standard_normal(4)
    delta, eta = schedules.extragradient().weights(k)
    query = regularize(F, x0, schedules.extragradient()).at(k)
    found, _ = bases.extragradient(query, x, None)
    assert len(query.points) == 2
    assert query.points[0] is x
    y = query.points[1]
    assert y == pytest.approx(x - eta * F(x) - delta * (x - x0), abs=1e-13)
    at_x = x - eta * F(y) - delta * (x - x0)
    assert np.linalg.norm(found - at_x) == pytest.approx(delta * np.linalg.norm(y - x), abs=1e-14)


PLAIN: dict[str, tuple[Any, Callable[..., Any]]] = {
    "extragradient": (bases.extragradient, lambda F, x, s: baselines.extragradient(F, x, s)),
    "popov": (bases.popov(), lambda F, x, s: baselines.past_extragradient(F, x, s)),
    "popov-stored": (bases.popov("stored"), lambda F, x, s: baselines.past_extragradient(F, x, s)),
}


@pytest.mark.parametrize("name", PLAIN)
@given(seed=SEEDS, step=st.floats(0.01, 0.5))
def test_without_anchor_it_is_the_plain_method_bitwise(name: str, seed: int, step: float) -> None:
    base, textbook = PLAIN[name]
    problem = random_monotone("nonlinear", 5, seed)
    reference = textbook(problem.field, problem.x0, step)
    x, state = problem.x0, None
    for k in range(6):
        assert np.array_equal(x, next(reference))
        x, state = anchored(base, schedules.plain(step))(problem.field, x, k, state, problem.x0 + 1)


@given(seed=SEEDS, step=st.floats(0.01, 0.5))
def test_without_anchor_the_forward_step_and_picard_are_plain_bitwise(seed: int, step: float) -> None:
    problem = random_monotone("nonlinear", 5, seed)
    x = y = problem.x0
    for k in range(6):
        x = orbit(bases.forward, schedules.plain(step), problem.field, x, 1)
        y = y - step * problem.field(y)
        assert np.array_equal(x, y)
        picard, _ = anchored(bases.picard, schedules.plain(kind="map"))(problem.field, x, k, None, x + 1)
        assert np.array_equal(picard, problem.field(x))


def test_without_weight_the_anchor_is_not_touched() -> None:
    """From where it is here, the way to it would be infinite."""
    far, z = np.full(1, 1.7e308), np.full(1, -1.7e308)
    assert regularize(lambda x: x / 2, far, schedules.plain()).at(0)(z) == -0.85e308
    assert regularize(lambda x: x / 2, far, schedules.plain(kind="map")).at(0)(z) == -0.85e308


def box(x: Any) -> Any:
    return np.clip(x, -30, 30)


def test_methods_with_a_projection_are_those_of_their_papers_when_plain() -> None:
    """Tseng, projected extragradient, and forward-reflected-backward, on a box, with a step of 0.4/L."""
    problem, s = ouyang_xu(5), 0.4 / ouyang_xu(5).lipschitz
    F, x0 = problem.field, np.arange(10.0)

    def tseng(x: Any, _: Any) -> Any:
        y = box(x - s * F(x))
        return y - s * F(y) + s * F(x)

    for base, formula in (
        (bases.tseng_fbf(box), tseng),
        (bases.projected_extragradient(box), lambda x, _: box(x - s * F(box(x - s * F(x))))),
        (bases.forward_reflected_backward(box), lambda x, past: box(x - 2 * s * F(x) + s * F(past))),
    ):
        x, past, state, y = x0, x0, None, x0
        step = anchored(base, schedules.plain(0.4), lipschitz=problem.lipschitz)
        for k in range(20):
            x, state = step(F, x, k, state, x0)
            y, past = formula(y, past), y
            assert x == pytest.approx(y, abs=1e-12)
        assert not np.allclose(x, x0)


@pytest.mark.parametrize("base", [bases.tseng_fbf, bases.projected_extragradient, bases.forward_reflected_backward])
def test_methods_with_a_projection_stay_in_reach_of_the_solution_when_anchored(base: Any) -> None:
    """Constraint that binds: F = x − 2 on [0, 1] has the solution 1 of its variational inequality."""
    x = orbit(base(lambda z: np.clip(z, 0, 1)), schedules.popov(), lambda z: z - 2, np.zeros(3), 400)
    assert x == pytest.approx(np.ones(3), abs=1e-2)


def test_remixing_and_known_answers_cost_no_call() -> None:
    operator = as_field(lambda z: J @ z)
    query = Query(operator, np.zeros(2), 0.25, 0.5)
    z = np.array([1.0, 2.0])
    value = query.raw(z)
    assert operator.calls == 1
    assert value.tolist() == [2.0, -1.0]
    assert query.remix(z, value).tolist() == [1.25, 0.0]
    assert query(z).tolist() == [1.25, 0.0]
    assert operator.calls == 1
    query(z.copy())
    assert operator.calls == 2
    assert [point.tolist() for point in query.points] == [[1.0, 2.0], [1.0, 2.0]]


def test_popov_asks_once_an_iteration() -> None:
    for past in ("requery", "stored"):
        operator, x, state = as_field(lambda z: J @ z), np.ones(2), None
        for k in range(10):
            query = regularize(operator, np.ones(2), schedules.popov()).at(k)
            x, state = bases.popov(past)(query, x, state)  # type: ignore[arg-type]
        assert operator.calls == 11


@pytest.mark.untyped
def test_bases_say_what_they_are_for() -> None:
    kinds = {name: step.kind for name, step in bases.BASES.items()}  # type: ignore[attr-defined]
    assert kinds == {"picard": "map", "forward": "field", "extragradient": "field", "popov": "field"}
    with pytest.raises(ValueError, match="'requery', 'stored'"):
        bases.popov("twice")  # type: ignore[arg-type]


@pytest.mark.untyped
def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(TypeError, match=r"map.*field"):
        regularize(as_field(lambda z: z), np.ones(2), schedules.halpern())
    with pytest.raises(TypeError, match=r"field.*map"):
        regularize(as_map(lambda z: z), np.ones(2), schedules.extragradient())
    with pytest.raises(TypeError, match=r"for a map.*for a field"):
        anchored(bases.forward, schedules.halpern())
    with pytest.raises(TypeError, match=r"for a field.*for a map"):
        anchored(bases.picard, schedules.forward())
    with pytest.raises(TypeError, match=r"for a map.*for a field"):
        anchored(lambda query, x, state: (query(x), state), schedules.halpern())
    with pytest.raises(ValueError, match="anchor must be finite"):
        regularize(lambda z: z, np.array([1.0, np.nan]), schedules.halpern())
    with pytest.raises(ValueError, match="lipschitz must be positive"):
        regularize(lambda z: z, np.ones(2), schedules.forward(), lipschitz=0)
    with pytest.raises(ValueError, match="scale must be one of"):
        regularize(lambda z: z, np.ones(2), schedules.forward(), scale="other")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no step"):
        regularize(lambda z: z, np.ones(2), schedules.halpern(), scale="field")
    with pytest.raises(ValueError, match="k must be at least 0"):
        regularize(lambda z: z, np.ones(2), schedules.halpern()).at(-1)
