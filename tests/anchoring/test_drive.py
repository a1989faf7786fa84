"""The drivers: known runs, symmetries, what is counted and returned, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import OptimizeResult
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from paperworks.anchoring import baselines, bases, schedules
from paperworks.anchoring.data import ouyang_xu, random_monotone, rotation
from paperworks.anchoring.drive import AnchorResult, fixed_point, solve_equation
from paperworks.anchoring.operators import as_field, as_map, estimate_lipschitz

J = np.array([[0.0, 1.0], [-1.0, 0.0]])
METHODS = ["forward", "extragradient", "popov"]
SEEDS = st.integers(0, 2**31)
SOME = settings(max_examples=20)


def turn(x: Any) -> Any:
    return J @ x


def run(F: Any, x0: Any, method: Any, **kwargs: Any) -> AnchorResult:
    """Make 30 iterations."""
    return solve_equation(F, x0, **{"method": method, "lipschitz": 1.0, "maxiter": 30, "tol": 0, **kwargs})


# Known runs


@pytest.mark.parametrize(
    ("method", "n", "expected"),
    [
        ("extragradient", 2, (0.3171929253, 0.6011013455)),
        ("extragradient", 10, (0.0253836348, 0.1484172806)),
        ("popov", 2, (0.8266623264, 0.3805407986)),
        ("popov", 10, (-0.0867112277, 0.3920744629)),
        (bases.popov("stored"), 10, (-0.1060595174, 0.3991219111)),
        ("forward", 1, (1.0, 3**-0.5)),
        ("forward", 10, (0.1626212505, 0.2691773277)),
    ],
)
@pytest.mark.parametrize("check_every", [None, 1, 3])
def test_known_iterates_of_a_rotation(method: Any, n: int, expected: tuple[float, float], check_every: Any) -> None:
    """Whether and where the residual is checked does not change them."""
    found = run(turn, np.array([1.0, 0.0]), method, maxiter=n, check_every=check_every)
    assert found.x == pytest.approx(expected, abs=1e-10)
    assert found.residual == pytest.approx(np.linalg.norm(expected), abs=1e-9)
    assert found.fun == pytest.approx(J @ expected, abs=1e-9)


def test_a_map_without_fixed_point_keeps_its_residual() -> None:
    """T(x) = x + v: x_k = x₀ + (k/2)v."""
    x0, v = np.array([1.0, -2.0]), np.array([3.0, 4.0])
    found = fixed_point(lambda x: x + v, x0, maxiter=40)
    assert found.x == pytest.approx(x0 + 20 * v)
    assert found.history["residual"] == pytest.approx(np.full(41, 5.0))
    assert (found.status, found.success, found.nit) == (1, False, 40)


@pytest.mark.parametrize(("gamma", "expected"), [(0.9, 9.837804e-4), (0.99, 3.00206983e-2)])
def test_the_optimal_weights_for_a_contraction(gamma: float, expected: float) -> None:
    found = fixed_point(lambda x: -gamma * x, np.ones(1), schedule=schedules.contraction(gamma), maxiter=50, tol=0)
    assert found.residual == pytest.approx(expected, rel=1e-6)
    assert found.x[0] == pytest.approx(baselines.take(baselines.oc_halpern(lambda x: -gamma * x, 1.0, gamma), 50))


def test_the_iterates_are_halperns() -> None:
    x0, textbook = np.array([1.0, 2.0, -1.0]), None
    found = fixed_point(lambda x: np.tanh(x[::-1]), x0, maxiter=200, tol=0)
    textbook = baselines.take(baselines.halpern_textbook(lambda x: np.tanh(x[::-1]), x0), 200)
    assert found.x == pytest.approx(textbook, abs=1e-13)


def test_the_limit_is_the_solution_nearest_to_the_anchor() -> None:
    """A skew field of rank 6 in 9 dimensions."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((9, 9)))[0]
    skew = np.zeros((9, 9))
    skew[:6, :6] = np.kron(np.diag([1.0, 0.8, 0.5]), J)
    matrix, x0 = basis @ skew @ basis.T, rng.standard_normal(9)
    nearest = basis[:, 6:] @ (basis[:, 6:].T @ x0)
    for method, limit in (("extragradient", 3e-3), ("popov", 5e-3)):
        assert np.linalg.norm(run(matrix, x0, method, maxiter=3000).x - nearest) <= limit
    far = run(matrix, x0, "extragradient", maxiter=3000, anchor=x0 + 5 * basis[:, 6])
    assert far.x == pytest.approx(nearest + 5 * basis[:, 6], abs=2e-2)


def test_the_plain_forward_step_diverges_and_the_anchored_one_converges() -> None:
    plain = run(turn, np.ones(2), "forward", schedule="plain", maxiter=1000)
    assert plain.status == 2
    assert plain.nit == 55  # √2^(nit + 1) > 10⁸·(√2 + 1)
    assert "at iteration 55" in plain.message
    assert run(turn, np.ones(2), "forward", maxiter=1000).residual < 0.1


# Symmetries


@SOME
@pytest.mark.parametrize("method", METHODS)
@given(seed=SEEDS, kind=st.sampled_from(["linear", "nonlinear"]))
def test_translation(method: str, seed: int, kind: str) -> None:
    problem = random_monotone(kind, 4, seed)
    c = np.random.default_rng(seed).standard_normal(4)
    there = run(problem.field, problem.x0, method)
    moved = run(lambda x: problem.field(x - c), problem.x0 + c, method)
    assert moved.x == pytest.approx(there.x + c, abs=1e-10)


@SOME
@pytest.mark.parametrize("method", METHODS)
@given(seed=SEEDS, s=st.floats(1e-3, 1e3), exponent=st.integers(-20, 20))
def test_scaling(method: str, seed: int, s: float, exponent: int) -> None:
    """F → sF with L → sL; to the last bit for powers of two."""
    problem = random_monotone("nonlinear", 4, seed)
    there = run(problem.field, problem.x0, method)
    scaled = run(lambda x: s * problem.field(x), problem.x0, method, lipschitz=s)
    assert scaled.x == pytest.approx(there.x, abs=1e-10)
    assert scaled.residual == pytest.approx(s * there.residual, rel=1e-8, abs=1e-12 * s)
    power = 2.0**exponent
    assert np.array_equal(run(lambda x: power * problem.field(x), problem.x0, method, lipschitz=power).x, there.x)


@SOME
@pytest.mark.parametrize("method", METHODS)
@given(seed=SEEDS)
def test_orthogonal_equivariance(method: str, seed: int) -> None:
    problem = random_monotone("nonlinear", 4, seed)
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((4, 4)))[0]
    there = run(problem.field, problem.x0, method)
    turned = run(lambda x: Q.T @ problem.field(Q @ x), Q.T @ problem.x0, method)
    assert turned.x == pytest.approx(Q.T @ there.x, abs=1e-10)


@SOME
@given(seed=SEEDS)
def test_symmetries_of_maps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    Q, U = (np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in range(2))
    x0, c = rng.standard_normal(4), rng.standard_normal(4)

    def T(x: Any) -> Any:
        return Q @ np.tanh(x)

    there = fixed_point(T, x0, maxiter=30, tol=0).x
    assert fixed_point(lambda x: T(x - c) + c, x0 + c, maxiter=30, tol=0).x == pytest.approx(there + c, abs=1e-11)
    assert fixed_point(lambda x: U.T @ T(U @ x), U.T @ x0, maxiter=30, tol=0).x == pytest.approx(U.T @ there, abs=1e-11)


@SOME
@given(seed=SEEDS, step=st.floats(0.01, 0.5))
def test_without_anchor_the_run_is_the_plain_method_bitwise(seed: int, step: float) -> None:
    problem = random_monotone("nonlinear", 5, seed)
    for method, textbook in (("extragradient", baselines.extragradient), ("popov", baselines.past_extragradient)):
        found = run(problem.field, problem.x0, method, schedule=schedules.plain(step))
        assert np.array_equal(found.x, baselines.take(textbook(problem.field, problem.x0, step), 30))
    off = schedules.custom(lambda k: 0.0, lambda k: step)
    x = y = problem.x0
    for _ in range(30):
        x, y = x - step * problem.field(x), problem.field(y)
    assert np.array_equal(run(problem.field, problem.x0, "forward", schedule=off).x, x)
    assert np.array_equal(fixed_point(problem.field, problem.x0, schedule="plain", maxiter=30, tol=0).x, y)


# Other arrays


@SOME
@given(seed=SEEDS)
def test_torch_is_numpy(seed: int) -> None:
    problem = random_monotone("linear", 5, seed)
    assert problem.matrix is not None
    matrix, x0 = torch.from_numpy(problem.matrix), torch.from_numpy(problem.x0)
    for method in METHODS:
        for lipschitz in (1.0, None):
            there = run(lambda x: problem.matrix @ x, problem.x0, method, lipschitz=lipschitz)
            found = run(lambda x: matrix @ x, x0, method, lipschitz=lipschitz)
            assert isinstance(found.x, torch.Tensor)
            assert isinstance(found.residual, float)
            assert found.x.numpy() == pytest.approx(there.x, abs=1e-12)
            assert found.nfev == there.nfev
    there = fixed_point(np.sin, problem.x0, maxiter=30, tol=0, restart="adaptive", norm="inf")
    tensor = fixed_point(torch.sin, x0, maxiter=30, tol=0, restart="adaptive", norm="inf")
    assert tensor.x.numpy() == pytest.approx(there.x, abs=1e-12)
    assert tensor.history["residual"] == pytest.approx(there.history["residual"], abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_kind_shape_and_precision_are_kept(dtype: Any, kind: str) -> None:
    x0 = np.ones((2, 3, 2), dtype) * (1j if np.issubdtype(dtype, np.complexfloating) else 1)
    start = torch.from_numpy(x0) if kind == "torch" else x0
    before = x0.copy()
    for method in METHODS:
        for schedule in (None, "plain"):
            found = run(lambda z: z / 2, start, method, schedule=schedule)
            assert type(found.x) is type(start)
            assert found.x.dtype == start.dtype
            assert found.x.shape == start.shape
            assert found.fun.dtype == start.dtype
            assert abs(found.x).max() < 0.7
    found = fixed_point(lambda z: z / 2, start, maxiter=30)
    assert found.x.dtype == start.dtype
    assert found.x.shape == start.shape
    assert np.array_equal(x0, before)


def test_an_operator_in_double_precision_does_not_raise_that_of_the_iterates() -> None:
    x0 = np.ones(2, np.float32)
    for found in (
        fixed_point(lambda x: 0.5 * np.float64(1) * x.astype(float), x0, maxiter=3),
        fixed_point(lambda x: 0.5 * x.astype(float), x0, maxiter=3, schedule="plain"),
        run(J, x0, "extragradient", maxiter=3, schedule="plain"),
        run(turn, x0, lambda query, x, state: (x.astype(float) - query(x), state), maxiter=3),
    ):
        assert found.x.dtype == np.float32


def test_complex_numbers_turn() -> None:
    """F(z) = −iz is J on the real plane."""
    for method in METHODS:
        found = run(lambda z: -1j * z, np.array([1.0 + 0j]), method)
        there = run(turn, np.array([1.0, 0.0]), method)
        assert [found.x[0].real, found.x[0].imag] == pytest.approx(there.x.tolist(), abs=1e-13)
        assert found.residual == pytest.approx(there.residual)


def test_numbers_are_points_too() -> None:
    found = fixed_point(np.cos, 1.0, schedule="plain")
    assert found.success
    assert float(found.x) == pytest.approx(0.7390851332, abs=1e-7)
    found = fixed_point(lambda x, c: np.sqrt(c / x), 4, args=(10.0,), schedule=schedules.contraction(0.6), tol=1e-10)
    assert float(found.x) == pytest.approx(10 ** (1 / 3), abs=1e-9)
    for method in METHODS:
        assert float(run(lambda x: x - 3, 0, method, maxiter=300, check_every=7).x) == pytest.approx(3, abs=0.4)


def test_integers_become_floats() -> None:
    for start in ([1, 1], np.array([1, 1], np.int8), [True, True], torch.tensor([1, 1])):
        found = fixed_point(lambda x: -x, start, maxiter=1, tol=0)
        assert str(found.x.dtype).endswith("float64")
        assert float(found.x[0]) == 0


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.csc_matrix, aslinearoperator])
def test_matrices_are_fields(form: Callable[[Any], Any]) -> None:
    problem = ouyang_xu(10)
    there = solve_equation(problem.field, problem.x0, lipschitz=problem.lipschitz, maxiter=300, tol=0)
    found = solve_equation(
        form(problem.matrix), problem.x0, b=problem.b, lipschitz=problem.lipschitz, maxiter=300, tol=0
    )
    assert found.x == pytest.approx(there.x, abs=1e-12)
    assert problem.matrix is not None
    assert found.fun == pytest.approx(problem.matrix @ found.x - problem.b, abs=1e-12)


def test_a_linear_operator_may_be_a_map() -> None:
    found = fixed_point(LinearOperator((2, 2), matvec=turn, dtype=float), np.ones(2), tol=1e-2)
    assert found.success
    assert found.nfev == found.nit + 1


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("method", ["picard", *METHODS])
def test_a_batch_is_a_loop(method: str, kind: str) -> None:
    """Rows of one array are problems of their own, which stop when they are done."""
    start = np.random.default_rng(0).standard_normal((6, 2)) * np.array([[1e-6], [0.1], [0.3], [0.6], [1], [2]])

    def spin(x: Any) -> Any:
        lib = torch if isinstance(x, torch.Tensor) else np
        return lib.stack([x[..., 1], -x[..., 0]], -1)  # type: ignore[attr-defined]

    def solve(x0: Any, dims: int) -> AnchorResult:
        x0 = torch.from_numpy(x0) if kind == "torch" else x0
        kwargs: dict[str, Any] = {"tol": 0.2 if method == "forward" else 0.01, "maxiter": 900, "batch_dims": dims}
        if method == "picard":
            return fixed_point(spin, x0, **kwargs)
        return solve_equation(spin, x0, method=method, lipschitz=1.0, **kwargs)

    whole, alone = solve(start, 1), [solve(row, 0) for row in start]
    assert whole.residual.shape == (6,)
    assert np.asarray(whole.x) == pytest.approx(np.stack([np.asarray(found.x) for found in alone]), abs=1e-12)
    assert whole.residual == pytest.approx([found.residual for found in alone], abs=1e-12)
    iterations = [found.nit for found in alone]
    assert whole.nit == max(iterations) < 900
    assert len(set(iterations)) >= 3 or method == "picard"
    assert whole.history["residual"].shape == (len(whole.history["it"]), 6)
    assert whole.success == all(found.success for found in alone)


def test_each_problem_of_a_batch_has_its_relative_tolerance() -> None:
    start = np.array([[1e-3, 0], [1e3, 0]])
    found = solve_equation(lambda x: x, start, lipschitz=1.0, rtol=0.1, tol=0, batch_dims=1)
    assert found.success
    assert found.residual == pytest.approx(found.history["residual"][0] * found.residual[0] / 1e-3)
    assert (found.residual <= 0.1 * np.array([1e-3, 1e3])).all()


# What is counted, checked and returned


@SOME
@given(K=st.integers(1, 40), check_every=st.integers(1, 12))
def test_calls_are_counted(K: int, check_every: int) -> None:
    """A check is free where the method asks at its iterate; for Popov's method it is one call, but at the start."""
    checks = -(-K // check_every)  # and one at the start
    for method, expected in (("extragradient", 2 * K + 1), ("forward", K + 1), ("popov", K + 1 + checks)):
        calls: list[int] = []

        def half(x: Any, calls: list[int] = calls) -> Any:
            calls.append(1)
            return x / 2

        found = run(half, np.ones(2), method, maxiter=K, check_every=check_every)
        assert found.nit == K
        assert found.nfev == len(calls) == expected
        assert found.history["it"].tolist() == sorted({*range(0, K, check_every), K})
    found = fixed_point(turn, np.ones(2), maxiter=K, tol=0, check_every=check_every)
    assert found.nfev == found.nit + 1


def test_calls_are_counted_when_the_constant_is_sought() -> None:
    """Four to begin with; the extragradient method then needs no more than with it."""
    calls = []

    def counted(x: Any) -> Any:
        calls.append(1)
        return turn(x)

    found = run(counted, np.ones(2), "extragradient", lipschitz=None, maxiter=50)
    assert found.nfev == len(calls) == 4 + 2 * 50 + 1  # the first guess is right for a rotation


def test_the_result_is_scipys() -> None:
    found = solve_equation(turn, np.ones(2), lipschitz=1.0, tol=1e-2, distance=2.0)
    assert isinstance(found, OptimizeResult)
    assert found["x"] is found.x
    assert found.success is True
    assert found.status == 0
    for name in ("fun", "residual", "message", "nit", "nfev", "restarts", "lipschitz", "bound", "flags", "trace"):
        assert found[name] is getattr(found, name)
    assert set(found.history) >= {"k", "residual", "R", "lambda_", "delta", "eta", "distance", "epoch"}
    assert "success: True" in repr(found)
    with pytest.raises(AttributeError):
        _ = found.other


def test_the_history_is_what_its_names_say() -> None:
    x0, points = np.array([2.0, -1.0]), []
    found = run(turn, x0, "extragradient", callback=lambda intermediate_result: points.append(intermediate_result))
    history = found.history
    k = np.arange(31)
    assert history["k"].tolist() == k.tolist()
    assert not history["epoch"].any()
    assert history["delta"] == pytest.approx(1.5 / (k + 8))
    assert history["eta"] == pytest.approx(0.75 - 1.5 / (k + 8))
    assert history["lambda_"] == pytest.approx(history["delta"] / history["eta"])
    x = np.array([shown.x for shown in points])
    assert history["residual"] == pytest.approx(np.linalg.norm(x, axis=1))
    assert history["distance"] == pytest.approx(np.linalg.norm(x - x0, axis=1))
    H = x @ J.T + history["lambda_"][:, None] * (x - x0)
    assert history["R"] == pytest.approx(np.linalg.norm(H, axis=1))


def test_the_residual_is_of_the_field_and_in_the_norm_that_was_asked_for() -> None:
    def manhattan(x: Any) -> float:
        return float(np.abs(x).sum())

    two, inf, one = (run(turn, np.array([3.0, 4.0]), "extragradient", norm=norm) for norm in (2, "inf", manhattan))
    assert two.residual == pytest.approx(np.linalg.norm(J @ two.x))
    assert inf.residual == pytest.approx(np.abs(J @ two.x).max())
    assert one.residual == pytest.approx(np.abs(J @ two.x).sum())
    assert np.array_equal(inf.x, two.x)
    assert np.array_equal(one.x, two.x)
    assert fixed_point(turn, np.array([3.0, 4.0]), norm="inf", tol=7.0).nit == 0


def test_a_run_stops_at_the_larger_tolerance() -> None:
    for kwargs, limit in (({"tol": 0.3}, 0.3), ({"tol": 0.1, "rtol": 0.05}, 0.25), ({"rtol": 0.05}, 0.25)):
        found = fixed_point(turn, np.array([3.0, 4.0]) / 2**0.5, **{"tol": 0.0, **kwargs})  # ‖x − Tx‖ = 5 at first
        assert found.residual <= limit < found.history["residual"][-2]
        assert (found.status, found.success) == (0, True)
    assert fixed_point(turn, np.zeros(2), tol=0).nit == 0


def test_the_callback_is_shown_every_check_and_may_stop_the_run() -> None:
    seen = []

    def callback(*, intermediate_result: OptimizeResult) -> None:
        seen.append(intermediate_result)
        intermediate_result.x[:] = np.nan  # it is a copy
        if intermediate_result.nit == 6:
            raise StopIteration

    found = fixed_point(turn, np.ones(2), callback=callback, check_every=2)
    assert (found.status, found.success, found.nit) == (3, False, 6)
    assert "callback" in found.message
    assert [shown.nit for shown in seen] == [0, 2, 4, 6]
    assert seen[1].nfev == 3
    assert seen[-1].residual == found.residual
    assert found.x == pytest.approx(fixed_point(turn, np.ones(2), maxiter=6, tol=0).x)


def test_a_run_that_diverges_says_where_and_returns_its_best() -> None:
    found = solve_equation(lambda z: np.where(z > 0.5, z, np.nan), np.ones(2), lipschitz=1.0)
    assert found.status == 2
    assert "at iteration 1" in found.message
    assert found.x.tolist() == [1.0, 1.0]
    assert found.residual == pytest.approx(2**0.5)
    grown = fixed_point(lambda x: 10 * x, np.ones(1), schedule="plain")
    assert grown.status == 2
    assert grown.nit == 9
    assert grown.x.tolist() == [1.0]
    assert grown.residual == 9.0
    assert grown.fun.tolist() == [-9.0]
    for lipschitz in (1.0, None):
        assert run(lambda x: x * np.nan, np.ones(1), "extragradient", lipschitz=lipschitz).status == 2


def test_a_run_that_stands_still_says_so() -> None:
    """A step of 1e-17 is lost against 1."""
    far = run(lambda x: np.full_like(x, 1e-17), np.ones(2), "forward", schedule="plain", maxiter=100)
    assert (far.status, far.success) == (4, False)
    assert far.nit < 10
    assert "does not move" in far.message


def test_what_stays_by_chance_or_comes_back_does_not_stand_still() -> None:
    """With T(x) = 1 − x/2 from 0, x₁ = x₂ = ½ and x₃ = 9/16; −x comes back at every second check."""
    found = fixed_point(lambda x: 1 - x / 2, np.zeros(1), maxiter=400, tol=0.005)
    assert found.success
    assert found.x[0] == pytest.approx(2 / 3, abs=0.01)
    found = fixed_point(lambda x: -x, np.ones(1), schedule="plain", check_every=2, maxiter=30)
    assert found.status == 1


def test_the_best_iterate_is_returned_if_asked_for() -> None:
    kwargs: dict[str, Any] = {"schedule": "plain", "maxiter": 5, "tol": 0}
    last = fixed_point(lambda x: 1.5 * x, np.ones(1), **kwargs)
    best = fixed_point(lambda x: 1.5 * x, np.ones(1), return_best=True, **kwargs)
    assert last.x[0] == 1.5**5
    assert last.residual == pytest.approx(0.5 * 1.5**5)
    assert best.x[0] == 1
    assert best.residual == 0.5
    assert best.fun[0] == -0.5


def test_the_trace_holds_the_points_that_were_asked_for() -> None:
    found = run(turn, np.array([1.0, 0.0]), "extragradient", trace=True, maxiter=3)
    assert found.trace is not None
    assert [len(points) for points in found.trace] == [2, 2, 2]
    assert found.trace[0][0].tolist() == [1.0, 0.0]
    assert found.trace[0][1] == pytest.approx([1.0, 0.75 - 0.1875])  # x₀ − η₀·F(x₀)
    assert found.trace[1][0] == pytest.approx([0.68359375, 0.45703125])
    forward = run(turn, np.array([1.0, 0.0]), "forward", trace=True, maxiter=3)
    assert forward.trace is not None
    assert [len(points) for points in forward.trace] == [1, 1, 1]
    assert run(turn, np.ones(2), "forward").trace is None


# Guarantees


@SOME
@given(seed=SEEDS, restart=st.sampled_from([None, "adaptive", 7]), reflect=st.booleans())
def test_anchoring_anew_never_leads_away_from_a_fixed_point_of_a_map(seed: int, restart: Any, reflect: bool) -> None:
    """The distance of each new anchor is at most that of the last, and that of no iterate is more than its anchor's."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    normal = rng.standard_normal(5)

    def T(x: Any) -> Any:
        if reflect:  # the projection on a halfspace with 0 on its border
            return x - max(normal @ x, 0.0) / (normal @ normal) * normal
        return Q @ np.where(np.abs(x) < 0.5, x, 0.5 * np.sign(x))

    shown: list[Any] = []
    start = 3 * rng.standard_normal(5)
    found = fixed_point(
        T,
        start,
        restart=restart,
        reflect=reflect,
        maxiter=150,
        tol=0,
        callback=lambda intermediate_result: shown.append(intermediate_result),
    )
    anchor = np.linalg.norm(start)
    for before, now in zip([None, *shown], shown, strict=False):
        size = np.linalg.norm(now.x)
        if before is not None and now.epoch > before.epoch:
            assert now.k == 0
            assert size <= anchor * (1 + 1e-12)
            anchor = size
        assert size <= anchor * (1 + 1e-12)
    assert restart is None or found.restarts > 0 or found.success
    assert np.linalg.norm(found.x) <= anchor * (1 + 1e-12)


def test_anchoring_anew_is_fast_where_the_problem_is_sharp() -> None:
    """Rotations by 17° to 115°: Halpern's residual is of order 1/k, and linear with restarts."""
    angles = np.exp(1j * np.array([0.3, 1, 2]))
    plain, often = (
        fixed_point(lambda x: angles * x, np.ones(3, complex), restart=restart, maxiter=300, tol=1e-12)
        for restart in (None, "adaptive")
    )
    assert plain.residual > 1e-4
    assert often.success
    assert often.restarts > 5
    assert often.bound is None
    assert often.history["epoch"].max() == often.restarts
    assert (np.diff(often.history["k"])[np.diff(often.history["epoch"]) > 0] < 0).all()
    for method in ("extragradient", "popov"):
        assert run(turn, np.ones(2), method, maxiter=400, tol=1e-8, restart="adaptive").success


def test_anchoring_anew_after_so_many_iterations() -> None:
    """By hand: two of Halpern's iterations, then once more T, and two from there."""

    def T(x: Any) -> Any:
        return 1 - x / 2

    found = fixed_point(T, np.zeros(1), restart=2, maxiter=4, tol=0)
    # ½, ½; the anchor ¾, and ½·⅝ + ½·¾ = 11/16
    assert found.x[0] == pytest.approx(2 / 3 * T(11 / 16) + 1 / 3 * 3 / 4)
    assert found.restarts == 1
    assert found.history["k"].tolist() == [0, 1, 2, 0, 1, 2]
    field = run(turn, np.ones(2), "extragradient", restart=3, maxiter=6, tol=0)
    again = run(turn, run(turn, np.ones(2), "extragradient", maxiter=3).x, "extragradient", maxiter=3)
    assert field.x == pytest.approx(again.x, abs=1e-15)
    assert field.restarts == 1


def test_the_tolerance_is_tested_before_a_restart() -> None:
    """The first check that is due for both ends the run."""
    found = fixed_point(lambda x: -x, np.ones(1), restart=1, maxiter=10)
    assert found.success
    assert (found.nit, found.restarts) == (1, 0)


def test_reflection_halves_the_bound_and_returns_the_image() -> None:
    """The projection on a line, from the point at distance 1: T(x₀) is the solution."""
    line = np.array([[0.5, 0.5], [0.5, 0.5]])
    x0 = np.array([1.0, -1.0]) / 2**0.5
    found = fixed_point(lambda x: line @ x, x0, reflect=True, distance=1.0, maxiter=9, tol=0)
    straight = fixed_point(lambda x: line @ x, x0, distance=1.0, maxiter=9, tol=0)
    assert straight.bound == pytest.approx(0.2)
    assert found.bound is not None
    assert found.bound == pytest.approx(2 / (found.nit + 1) / 2)
    assert found.x == pytest.approx([0, 0], abs=1e-15)
    assert found.residual <= found.bound + 1e-15
    assert found.history["residual"][0] == pytest.approx(1.0)
    assert not found.flags["not_firmly_nonexpansive"]


def test_a_reflected_run_returns_the_image_of_its_last_iterate() -> None:
    def T(x: Any) -> Any:
        return np.clip(x, 1, 2) * [1, 0] + x * [0, 0.5]

    shown: list[Any] = []
    found = fixed_point(
        T,
        np.array([5.0, 3.0]),
        reflect=True,
        maxiter=4,
        callback=lambda intermediate_result: shown.append(intermediate_result.x),
    )
    last = shown[-1]
    assert found.x == pytest.approx(T(last))
    assert found.fun == pytest.approx(last - T(last))
    assert found.residual == pytest.approx(np.linalg.norm(last - T(last)))
    assert np.abs(found.x - last).max() > 0.1


def test_reflecting_a_map_that_is_not_firmly_nonexpansive_warns() -> None:
    with pytest.warns(RuntimeWarning, match="firmly nonexpansive"):
        found = fixed_point(lambda x: -x, np.array([1.0, 2.0]), reflect=True, maxiter=5)
    assert found.flags["not_firmly_nonexpansive"]


def test_no_bound_where_none_is_proved() -> None:
    x0 = np.array([1e-3, 0.0])
    assert run(turn, x0, "extragradient", distance=1e-3).bound is not None
    assert run(turn, x0, "extragradient").bound is None
    assert run(turn, x0, "extragradient", distance=1e-3, lipschitz=None).bound is None
    assert run(turn, x0, "extragradient", distance=1e-3, restart=5).bound is None
    assert run(turn, x0, "extragradient", distance=1e-3, schedule="plain").bound is None
    assert run(turn, x0, "popov", distance=1e-3, schedule=schedules.popov(mu=0.55)).bound is None
    assert run(turn, x0, bases.tseng_fbf(lambda x: x), distance=1e-3).bound is None
    # Away from the anchor and in other norms the bound by the distance from the start does not hold.
    far = fixed_point(lambda x: -x, x0, anchor=np.full(2, 5.0), distance=1e-3, maxiter=1, tol=0)
    assert far.bound is None
    assert far.residual > 1
    assert fixed_point(turn, x0, distance=1e-3, norm="inf", maxiter=3).bound is None
    assert fixed_point(turn, x0, distance=1e-3, anchor=x0.copy(), maxiter=3).bound == pytest.approx(2e-3 / 4)


# Without the constant


@SOME
@pytest.mark.parametrize("method", METHODS)
@given(seed=SEEDS, kind=st.sampled_from(["linear", "nonlinear"]))
def test_the_constant_that_is_found_is_at_most_a_tenth_too_large(method: str, seed: int, kind: str) -> None:
    problem = random_monotone(kind, 5, seed)
    found = run(problem.field, problem.x0, method, lipschitz=None, maxiter=100, check_every=1)
    assert 0 < found.lipschitz <= 1.1 * problem.lipschitz * (1 + 1e-9)
    assert found.flags["lipschitz_estimated"]
    assert not found.flags["recurrence_violated"]
    assert (np.diff(found.history["lipschitz"]) >= 0).all()
    assert found.residual <= np.linalg.norm(problem.field(problem.x0)) * 1.5


def test_a_constant_that_is_far_too_small_at_first_grows() -> None:
    """Of a field that is flat near the start, where the probes are, and steep further on."""

    def F(x: Any) -> Any:
        return np.where(np.abs(x) < 50, 1e-3 * x, 1e-3 * x + 10 * (x - 50 * np.sign(x))) - 1

    found = solve_equation(F, np.zeros(1), maxiter=3000)
    assert found.x[0] == pytest.approx(50 + 0.95 / 10.001, abs=0.05)
    assert estimate_lipschitz(F, np.zeros(1)) == pytest.approx(1e-3)
    assert 5 < found.lipschitz <= 11.01
    assert not found.flags["recurrence_violated"]


def test_a_step_that_is_redone_is_recorded_with_the_weights_it_was_made_with() -> None:
    """And so no pair of checks with two constants refutes a field that is monotone."""
    for seed in range(40):
        problem = random_monotone("nonlinear", 5, 200 + seed)
        for method in METHODS:
            found = run(problem.field, problem.x0, method, lipschitz=None, check_every=1)
            assert not found.flags["recurrence_violated"]
            history = found.history
            mu = history["eta"] * history["lipschitz"] + history["delta"]
            if method != "forward":
                assert mu == pytest.approx(np.full(31, 0.75 if method == "extragradient" else 0.45))


def test_the_constant_along_the_run_may_be_far_below_the_global_one() -> None:
    """On Ouyang and Xu's field the run with it is ahead at equal calls."""
    problem = ouyang_xu(100)
    known = solve_equation(problem.field, problem.x0, lipschitz=problem.lipschitz, maxiter=1000, tol=0)
    found = solve_equation(problem.field, problem.x0, maxiter=1000, tol=0)
    assert found.lipschitz < 0.9 * problem.lipschitz
    assert found.residual < known.residual
    assert abs(found.nfev - known.nfev) < 20


def test_a_zero_field_has_no_constant() -> None:
    assert solve_equation(lambda x: 0 * x, np.ones(2)).success


# The user's own methods


def test_a_method_of_ones_own_has_the_kind_shape_and_precision_of_the_start() -> None:
    def step(query: Any, x: Any, state: Any) -> Any:
        y = x - query(x)
        return x - query(y), (state or 0) + 1

    for x0 in (np.ones((3, 2), np.float32), torch.ones(3, 2), np.ones((2, 2), complex)):
        found = run(lambda z: z / 2, x0, step, schedule=schedules.extragradient())
        there = run(lambda z: z / 2, x0, "extragradient")
        assert found.x.dtype == x0.dtype
        assert tuple(found.x.shape) == tuple(x0.shape)
        assert np.array_equal(np.asarray(found.x), np.asarray(there.x))
        assert found.nfev == there.nfev


def test_the_state_of_a_method_of_ones_own_is_handed_on_and_dropped_at_restarts() -> None:
    states = []

    def step(query: Any, x: Any, state: Any) -> Any:
        states.append(state)
        return x - query(x), (state or 0) + 1

    run(turn, np.ones(2), step, schedule=schedules.forward(), maxiter=5, restart=3)
    assert states == [None, 1, 2, None, 1]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("at", [0, 1])
def test_a_method_that_changes_its_iterate_in_place_is_refused(kind: str, at: int) -> None:
    def step(query: Any, x: Any, state: Any) -> Any:
        if (state or 0) == at:
            x -= query(x)
            return x, None
        return x - query(x), 1

    x0 = np.ones(2)
    start = torch.from_numpy(x0) if kind == "torch" else x0
    with pytest.raises(ValueError, match="must not change its argument in place"):
        run(lambda z: z / 2, start, step)
    assert x0.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        (lambda query, x, state: (x[:1], state), ValueError, r"base method must return the shape .*\(3,\), got \(1,\)"),
        (lambda query, x, state: (x[None], state), ValueError, r"got \(1, 3\)"),
        (lambda query, x, state: x - query(x), ValueError, "unpack"),
        (lambda query, x, state: (1j * x, state), TypeError, "complex"),
        (lambda query, x, state: (torch.ones(3), state), TypeError, "torch"),
    ],
)
def test_a_method_that_returns_something_else_is_refused(step: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run(lambda z: z / 2, np.ones(3), step)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("lipschitz", [1.0, None])
def test_an_operator_may_fill_the_same_array_every_time(method: str, lipschitz: float | None) -> None:
    buffer = np.empty(2)

    def fill(z: Any) -> Any:
        np.matmul(J, z, out=buffer)
        return buffer

    found, there = (run(F, np.ones(2), method, lipschitz=lipschitz, check_every=3) for F in (fill, turn))
    assert np.array_equal(found.x, there.x)
    assert np.array_equal(found.fun, there.fun)


def test_an_operator_that_changes_its_argument_is_refused() -> None:
    with pytest.raises(ValueError, match="in place"):
        fixed_point(lambda x: x.__imul__(-1), np.ones(2))


# What is refused


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: fixed_point(3, np.ones(2)), TypeError, "callable or a LinearOperator"),
        (lambda: solve_equation("F", np.ones(2)), TypeError, "callable or a LinearOperator"),
        (lambda: solve_equation(np.ones((2, 3)), np.ones(3)), ValueError, "square"),
        (lambda: fixed_point(as_field(turn), np.ones(2)), TypeError, "use solve_equation"),
        (lambda: solve_equation(as_map(turn), np.ones(2)), TypeError, "use fixed_point"),
        (lambda: fixed_point(lambda x: x[:1], np.ones(2)), ValueError, r"\(2,\), got \(1,\)"),
        (lambda: solve_equation(J, np.ones(2), b=[np.nan, 0]), ValueError, "b must be finite"),
        (lambda: fixed_point(turn, [1.0, np.nan]), ValueError, "x0 must be finite"),
        (lambda: fixed_point(turn, torch.tensor([1.0, np.inf])), ValueError, "x0 must be finite"),
        (lambda: fixed_point(turn, np.ones(2), anchor=[np.inf, 0]), ValueError, "anchor must be finite"),
        (lambda: fixed_point(turn, np.ones(2), anchor=np.ones(3)), ValueError, r"\(2,\), got \(3,\)"),
        (
            lambda: fixed_point(turn, np.array([1, "a"], dtype=object)),
            TypeError,
            "x0 must be numbers, got dtype object",
        ),
        (lambda: fixed_point(turn, ["a", "b"]), TypeError, "x0 must be numbers"),
        (lambda: fixed_point(turn, []), ValueError, "x0 must not be empty"),
        (lambda: solve_equation(turn, np.ones(2), lipschitz=0), ValueError, "lipschitz must be positive"),
        (lambda: solve_equation(turn, np.ones(2), lipschitz=-1.0), ValueError, "lipschitz must be positive"),
        (lambda: solve_equation(turn, np.ones(2), lipschitz=np.inf), ValueError, "lipschitz must be positive"),
        (lambda: solve_equation(turn, np.ones(2), lipschitz=np.nan), ValueError, "lipschitz must be positive"),
        (lambda: fixed_point(turn, np.ones(2), schedule=schedules.forward()), TypeError, "for a field.* is a map"),
        (lambda: solve_equation(turn, np.ones(2), schedule=schedules.halpern()), TypeError, "for a map.* is a field"),
        (lambda: fixed_point(turn, np.ones(2), schedule="forward"), ValueError, "schedule must be one of"),
        (lambda: fixed_point(turn, np.ones(2), schedule=3), TypeError, "schedule must be"),  # type: ignore[arg-type]
        (lambda: solve_equation(turn, np.ones(2), method="picard"), ValueError, "method must be one of"),
        (lambda: solve_equation(turn, np.ones(2), method=bases.picard), TypeError, "for maps"),
        (lambda: solve_equation(turn, np.ones(2), method=3), TypeError, "method must be"),  # type: ignore[arg-type]
        (lambda: fixed_point(turn, np.ones(2), maxiter=0), ValueError, "maxiter must be at least 1"),
        (lambda: fixed_point(turn, np.ones(2), maxiter=1.5), TypeError, "maxiter"),  # type: ignore[arg-type]
        (lambda: fixed_point(turn, np.ones(2), tol=-1.0), ValueError, "tol must be non-negative"),
        (lambda: fixed_point(turn, np.ones(2), rtol=np.nan), ValueError, "rtol must be non-negative"),
        (lambda: fixed_point(turn, np.ones(2), check_every=0), ValueError, "check_every must be at least 1"),
        (lambda: fixed_point(turn, np.ones(2), restart=0), ValueError, "restart must be at least 1"),
        (lambda: fixed_point(turn, np.ones(2), restart="often"), TypeError, "restart"),
        (lambda: fixed_point(turn, np.ones(2), norm=3), ValueError, "norm must be one of"),
        (lambda: fixed_point(turn, np.ones(2), distance=-1.0), ValueError, "distance must be non-negative"),
        (lambda: fixed_point(turn, np.ones(2), callback=3), TypeError, "callback"),  # type: ignore[arg-type]
        (lambda: fixed_point(turn, np.ones(2), batch_dims=2), ValueError, "batch_dims must be one of"),
        (lambda: fixed_point(turn, np.ones((2, 2)), batch_dims=1, restart=3), ValueError, "no restart"),
        (lambda: fixed_point(np.cos, 1.0, batch_dims=1), ValueError, "at least one dimension"),
    ],
)
@pytest.mark.untyped
def test_bad_input(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_a_schedule_of_ones_own_is_checked_where_it_is_used() -> None:
    plan = schedules.custom(lambda k: 0.1 if k < 2 else -1.0, lambda k: 0.5)
    with pytest.raises(ValueError, match=r"delta must be in \[0, 1\), got -1.0 at k = 2"):
        run(turn, np.ones(2), "forward", schedule=plan)
    assert run(turn, np.ones(2), "forward", schedule=plan, maxiter=1).nit == 1


def test_the_start_is_not_changed() -> None:
    x0, anchor = np.ones(2), np.zeros(2)
    for start in (x0, torch.from_numpy(x0)):
        fixed_point(lambda x: -x, start, anchor=anchor if start is x0 else torch.zeros(2), maxiter=5)
    assert x0.tolist() == [1.0, 1.0]
    assert not anchor.any()


def test_a_tensor_that_asks_for_gradients_is_only_a_start() -> None:
    x0 = torch.ones(2, requires_grad=True)
    found = run(lambda z: z / 2, x0, "extragradient")
    assert not found.x.requires_grad
    with torch.inference_mode():
        assert torch.equal(run(lambda z: z / 2, torch.ones(2), "extragradient").x, found.x)


def test_a_rotation_of_many_variables() -> None:
    problem = rotation(10)
    found = solve_equation(problem.field, problem.x0, lipschitz=1.0, tol=1e-3, distance=1.0)
    assert found.success
    assert found.bound is not None
    assert found.residual <= found.bound


def test_fields_with_parameters_of_torch_keep_no_graph() -> None:
    weights = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], requires_grad=True)
    for found in (
        solve_equation(lambda x: weights @ x, torch.ones(2), tol=0.1),
        fixed_point(lambda x: weights @ x, torch.ones(2), tol=0.1),
    ):
        assert found.success
        assert not found.x.requires_grad
        assert not found.fun.requires_grad


def test_a_problem_that_fails_leaves_every_residual_of_the_batch() -> None:
    calls = 0

    def field(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return x * np.array([[1.0], [np.nan if calls == 20 else 2.0]])

    found = solve_equation(field, np.ones((2, 1)), lipschitz=2.0, tol=0, batch_dims=1)
    assert found.status == 2
    assert found.residual == pytest.approx(np.abs(field(found.x)).ravel())
