"""Linear programmes against HiGHS, rays against their definition, and the iteration against the general map."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse

from paperworks.anchoring import data, lp
from paperworks.anchoring.data import NETLIB, OPTIMA, netlib
from paperworks.anchoring.drive import fixed_point
from paperworks.anchoring.lp import LPModel, Ray, dual_ray, kkt_errors, linprog, primal_ray, read_mps, solve_mps
from paperworks.anchoring.operators import pdhg_map, pdhg_norm
from paperworks.core.data import path
from paperworks.core.extras import MissingExtra

INF = np.inf
METHODS = ["r2halpern", "rhalpern", "halpern", "pdhg"]


def kkt_by_hand(model: LPModel, x: Any, y: Any) -> tuple[float, float, float]:
    """Return primal, dual and gap error of a minimum, entry by entry on the dense model."""
    A = model.A.toarray()
    outside, limits, wrong, wrong_rows, dual = 0.0, 0.0, 0.0, 0.0, 0.0

    def side(multiplier: float, low: float, high: float) -> tuple[float, float]:
        """Return multiplier times limit, and what of the multiplier is not allowed."""
        limit = low if multiplier > 0 else high
        return (0.0, multiplier) if np.isinf(limit) else (multiplier * limit, 0.0)

    for i, (low, high) in enumerate(zip(model.row_lower, model.row_upper, strict=True)):
        activity = sum(A[i, j] * x[j] for j in np.flatnonzero(A[i]))
        outside += max(low - activity, activity - high, 0.0) ** 2
        limits += sum(limit**2 for limit in {low, high} if np.isfinite(limit))
        value, disallowed = side(y[i], low, high)
        dual, wrong_rows = dual + value, wrong_rows + disallowed**2
    for j, (low, high) in enumerate(zip(model.lb, model.ub, strict=True)):
        outside += max(low - x[j], x[j] - high, 0.0) ** 2
        value, disallowed = side(model.c[j] - A[:, j] @ y, low, high)
        dual, wrong = dual + value, wrong + disallowed**2
    primal = float(model.c @ x)
    return (
        outside**0.5 / (1 + limits**0.5),
        (wrong**0.5 + wrong_rows**0.5) / (1 + float(np.sum(model.c**2)) ** 0.5),
        abs(primal - dual) / (1 + abs(primal) + abs(dual)),
    )


def proves_infeasible(model: LPModel, ray: Ray) -> float:
    """Return the least norm of a feasible point, by Farkas' lemma; 0 if the ray proves nothing."""
    y, A = ray.direction, model.A.toarray()
    assert ((y <= 0) | np.isfinite(model.row_lower)).all()
    assert ((y >= 0) | np.isfinite(model.row_upper)).all()
    # Every feasible x has Σ yᵢ·limitᵢ ≤ (Aᵀy)ᵀx ≤ Σ over bounded variables + ‖rest‖·‖x‖.
    gain = sum(v * (low if v > 0 else high) for v, low, high in zip(y, model.row_lower, model.row_upper) if v)  # noqa: B905
    rest = []
    for slope, low, high in zip(A.T @ y, model.lb, model.ub, strict=True):
        most = high if slope > 0 else low
        if np.isfinite(most):
            gain -= slope * most
        elif slope:
            rest.append(slope)
    left = float(np.linalg.norm(rest))
    return 0.0 if gain <= 0 else gain / left if left else INF


def random_lp(seed: int, scale: float = 1.0) -> tuple[dict[str, Any], float]:
    """Return arguments of linprog with a solution of the size of `scale`, and the optimum."""
    rng = np.random.default_rng(seed)
    n, m, k = rng.integers(2, 15), rng.integers(1, 12), rng.integers(0, 2)
    A, E = rng.standard_normal((m, n)) * (rng.random((m, n)) < 0.7), rng.standard_normal((k, n))
    x = scale * rng.random(n) * (rng.random(n) < 0.6)
    tight = rng.random(m) < 0.5
    b = A @ x + np.where(tight, 0.0, scale * rng.random(m))
    c = A.T @ (-rng.random(m) * tight) + E.T @ rng.standard_normal(k) + rng.random(n) * (x == 0)
    return {"c": c, "A_ub": A, "b_ub": b, "A_eq": E, "b_eq": E @ x}, float(c @ x)


class TestNetlib:
    @pytest.mark.parametrize(("name", "most"), [("afiro", 400), ("adlittle", 12_000), ("israel", 4_000)])
    def test_solutions(self, name: str, most: int) -> None:
        model = netlib(name)
        found = solve_mps(model, maxiter=60_000)
        assert (found.status, found.success) == (0, True)
        assert found.fun == pytest.approx(OPTIMA[name], rel=1e-5)
        by_hand = kkt_by_hand(model, found.x, found.rows.marginals)
        assert max(by_hand) <= 1e-6
        assert by_hand == pytest.approx((found.kkt.primal, found.kkt.dual, found.kkt.gap), rel=1e-6, abs=1e-12)
        assert found.nit <= most

    def test_restarts_and_reflection_are_what_solves_it(self) -> None:
        model = netlib("israel")
        nit = {name: solve_mps(model, method=name, maxiter=9_000).nit for name in METHODS}
        assert nit["r2halpern"] < 0.6 * nit["rhalpern"] < 0.6 * 9_000
        assert nit["pdhg"] == nit["halpern"] == 9_000

    def test_history(self) -> None:
        found = solve_mps(netlib("afiro"))
        history = found.history
        assert set(history) == {"it", "k", "epoch", "primal", "dual", "gap", "residual", "weight"}
        assert history["it"].tolist() == list(range(0, found.nit + 1, 50))
        assert history["epoch"][-1] == found.restarts > 1
        assert found.restarts == np.sum(np.diff(history["weight"]) != 0)
        # The tolerance is tested before a restart, so the last check is not the first of an epoch.
        assert history["k"][-1] >= 50
        worst = np.max([history[name] for name in ("primal", "dual", "gap")], axis=0)
        assert (worst[:-1] > 1e-6).all()
        assert worst[-1] <= 1e-6

    def test_no_other_programme(self) -> None:
        with pytest.raises(ValueError, match=r"name must be one of 'afiro', .*, got 'pilot'"):
            netlib("pilot")

    def test_embedded_files_are_those_described(self) -> None:
        import hashlib

        for name in data.EMBEDDED:
            content = Path(data.__file__).with_name(f"{name}.mps").read_bytes()
            assert hashlib.sha256(content).hexdigest() == NETLIB[name].sha256
            assert len(content) == NETLIB[name].size

    @pytest.mark.data("anchoring/israel.mps")
    def test_the_tool_rebuilds_what_is_embedded(self) -> None:
        here = Path(data.__file__)
        before = {name: here.with_name(f"{name}.mps").read_bytes() for name in data.EMBEDDED}
        tool = Path(__file__).parents[2] / "tools" / "make_anchoring_data.py"
        subprocess.run([sys.executable, tool], check=True)
        assert before == {name: path(NETLIB[name]).read_bytes() for name in data.EMBEDDED}

    @pytest.mark.data("anchoring/standata.mps")
    def test_a_file_that_is_not_embedded(self) -> None:
        found = solve_mps(netlib("standata"), tol=1e-4)
        assert found.fun == pytest.approx(OPTIMA["standata"], rel=1e-3)
        assert found.nit <= 1500


class TestLinprog:
    def test_fifty_programmes_as_highs(self) -> None:
        for seed in range(50):
            arguments, optimum = random_lp(seed)
            ours, theirs = linprog(**arguments), optimize.linprog(**arguments)
            assert ours.status == theirs.status == 0, seed
            assert theirs.fun == pytest.approx(optimum, abs=1e-9)
            assert abs(ours.fun - theirs.fun) <= 1e-5 * (1 + abs(theirs.fun)), seed

    @settings(max_examples=40)
    @given(seed=st.integers(0, 10_000), power=st.integers(-4, 8))
    def test_any_size_of_solution(self, seed: int, power: int) -> None:
        arguments, optimum = random_lp(seed, 10.0**power)
        found = linprog(**arguments, maxiter=20_000)
        assert found.status in (0, 1)
        if found.status == 0:
            size = float(np.abs(arguments["c"]) @ found.x)
            assert abs(found.fun - optimum) <= 1e-5 * (1 + size)

    def test_fields_are_scipys(self) -> None:
        # Not degenerate, so that the marginals are unique: x = (2, 1, 0, 5), limited by a row, an equality and two bounds.
        arguments: dict[str, Any] = {
            "c": [-3.0, -2.0, 1.0, -1.0], "A_ub": [[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0]], "b_ub": [3.0, 9.0],
            "A_eq": [[1.0, -1.0, 1.0, 0.0]], "b_eq": [1.0], "bounds": [(0, None), (None, None), (0, 4), (None, 5)],
        }  # fmt: skip
        ours, theirs = linprog(**arguments, tol=1e-9), optimize.linprog(**arguments)
        assert ours.x == pytest.approx([2, 1, 0, 5], abs=1e-6)
        assert ours["fun"] == ours.fun == pytest.approx(-13)
        assert ours.slack == pytest.approx(theirs.slack, abs=1e-6)
        assert ours.con == pytest.approx(theirs.con, abs=1e-6)
        for name in ("ineqlin", "eqlin", "lower", "upper"):
            assert ours[name].marginals == pytest.approx(theirs[name].marginals, abs=1e-6), name
            assert ours[name].residual == pytest.approx(theirs[name].residual, abs=1e-6), name
        assert np.any(ours.upper.marginals < -0.5)
        assert np.any(ours.ineqlin.marginals < -0.5)

    @pytest.mark.parametrize(
        "bounds",
        [(-1, 2), [(-1, 2)], [[-1, 2], [-1, 2]], np.array([[-1, 2.0], [-1, 2.0]]), optimize.Bounds(-1, 2)],
        ids=["pair", "one", "each", "array", "Bounds"],
    )
    def test_bounds(self, bounds: Any) -> None:
        found = linprog([1.0, -1.0], bounds=bounds)
        assert found.x == pytest.approx([-1, 2], abs=1e-5)
        assert found.fun == pytest.approx(-3, abs=1e-5)

    def test_no_bounds_given_are_non_negative(self) -> None:
        for bounds in ((0, None), None):
            assert linprog([1.0], bounds=bounds).x == pytest.approx([0.0])

    def test_sparse_and_dense_are_the_same(self) -> None:
        arguments, _ = random_lp(3)
        dense = linprog(**arguments)
        arguments["A_ub"] = sparse.csc_matrix(arguments["A_ub"])
        assert linprog(**arguments).x.tolist() == dense.x.tolist()

    def test_limits_and_callback(self) -> None:
        model, seen = netlib("afiro"), []

        def callback(state: Any) -> None:
            seen.append((state.nit, state.kkt.worst, state.x.shape))
            if state.nit >= 100:
                raise StopIteration

        found = solve_mps(model, callback=callback)
        assert (found.status, found.nit, len(seen)) == (1, 100, 3)
        assert found.message == "the callback raised StopIteration"
        short = solve_mps(model, maxiter=7)
        assert (short.status, short.nit, short.success) == (1, 7, False)
        assert short.history["it"].tolist() == [0, 7]

    def test_torch_does_the_same(self) -> None:
        pytest.importorskip("torch")
        for name in ("afiro", "galenet"):
            ours, theirs = solve_mps(netlib(name)), solve_mps(netlib(name), device="cpu")
            assert (ours.status, ours.nit, ours.restarts) == (theirs.status, theirs.nit, theirs.restarts)
            assert theirs.x == pytest.approx(ours.x, rel=1e-6, abs=1e-6)
            assert theirs.history["residual"] == pytest.approx(ours.history["residual"], rel=1e-5)


class TestNoSolution:
    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("name", ["woodinfe", "galenet"])
    def test_infeasible(self, name: str, method: str) -> None:
        model = netlib(name)
        found = solve_mps(model, method=method, maxiter=20_000)
        assert (found.status, found.success) == (2, False)
        assert found.ray.violation <= 1e-6
        assert proves_infeasible(model, found.ray) >= 1e6 * (1 - 1e-6)
        again = dual_ray(model, 3 * found.ray.direction)
        assert again.direction == pytest.approx(found.ray.direction)
        assert again.value == pytest.approx(found.ray.value)

    def test_reflected_and_restarted_finds_rays_soon(self) -> None:
        assert solve_mps(netlib("woodinfe")).nit <= 1000
        assert solve_mps(netlib("galenet")).nit <= 200

    @pytest.mark.data("anchoring/klein1.mps")
    def test_a_hard_one_is_never_called_solved(self) -> None:
        found = solve_mps(netlib("klein1"), maxiter=10_000)
        assert found.status in (1, 2)
        assert found.kkt.worst > 1e-3

    @pytest.mark.parametrize("method", ["r2halpern", "rhalpern", "pdhg"])
    def test_unbounded(self, method: str) -> None:
        # x - y <= 1, x + y >= 2: along (1, 1) for ever.
        model = LPModel([-1.0, 0.5], [[1.0, -1.0], [1.0, 1.0]], [-INF, 2.0], [1.0, INF], [0, 0], [INF, INF])
        found = solve_mps(model, method=method)
        assert (found.status, found.success) == (3, False)
        d = found.ray.direction
        assert float(model.c @ d) == pytest.approx(-found.ray.value)
        assert found.ray.value > 0
        assert (d >= 0).all()
        assert model.A @ d == pytest.approx([min((model.A @ d)[0], 0), max((model.A @ d)[1], 0)], abs=1e-6)
        assert max(kkt_by_hand(replace(model, c=0 * model.c), found.x, np.zeros(2))[:1]) <= 1e-6
        assert "unbounded" in found.message

    def test_the_largest_is_unbounded_too(self) -> None:
        found = solve_mps(LPModel([1.0], np.zeros((0, 1)), [], [], [0.0], [INF], sense="max"))
        assert (found.status, found.ray.direction.tolist()) == (3, [1.0])

    def test_neither_feasible_nor_bounded(self) -> None:
        # x >= 2 and x <= 1, and y without limit.
        model = LPModel([0.0, -1.0], [[1.0, 0.0], [1.0, 0.0]], [2.0, -INF], [INF, 1.0], [0, 0], [INF, INF])
        found = solve_mps(model)
        assert found.status == 2
        assert proves_infeasible(model, found.ray) == INF

    def test_a_distant_solution_is_no_ray(self) -> None:
        # Only points with x >= 1e7 are feasible: multipliers with a relative violation of 1e-7 exist.
        model = LPModel([1.0, 1.0], [[1.0, -1e-7]], [1.0], [INF], [0.0, -INF], [0.5, INF])
        found = solve_mps(model, maxiter=3000)
        assert found.status != 2

    @pytest.mark.parametrize(("cost", "limit"), [(1e200, 1.0), (1.0, 1e200)])
    def test_numbers_whose_squares_overflow(self, cost: float, limit: float) -> None:
        found = linprog([-cost], [[1.0]], [limit])
        assert found.status == 0
        assert found.x == pytest.approx([limit])

    def test_crossed_limits(self) -> None:
        crossed = linprog([1.0, 1.0], bounds=[(0, 1), (3, 2)])
        assert (crossed.status, crossed.nit) == (2, 0)
        assert crossed.message == "infeasible: variable 1 has lower limit 3 above upper limit 2"
        rows = solve_mps(LPModel([1.0], [[1.0]], [2.0], [1.0], [0.0], [1.0]))
        assert (rows.status, rows.success) == (2, False)
        assert "row 0 has lower limit 2" in rows.message

    def test_rays_of_nothing(self) -> None:
        model = netlib("afiro")
        assert dual_ray(model, np.zeros(27)).violation == INF
        assert primal_ray(model, np.zeros(32)).violation == INF
        assert primal_ray(netlib("galenet"), np.ones(8)).violation == INF


class TestIteration:
    @pytest.fixture
    def run(self) -> Any:
        model = netlib("afiro")
        return lp._Run(model, lp.METHODS["r2halpern"], 1e-6, 10**6, None, None)

    @staticmethod
    def general_map(run: Any) -> Callable[[Any], Any]:
        """Return the map of `run` as `pdhg_map` makes it, on the scaled model with unit steps."""
        model, scaling = run._model, lp._Scaling.of(run._model)
        x, w = run._units
        lb, ub = (side * scaling.bound / scaling.column / x for side in (model.lb, model.ub))
        low, high = (side * scaling.bound * scaling.row * w for side in (model.row_lower, model.row_upper))
        cost = model.c * scaling.column * scaling.cost * x
        return pdhg_map(
            lambda v, tau: np.clip(v - tau * cost, lb, ub),
            lambda v, sigma: v - sigma * np.clip(v / sigma, low, high),
            scaling.A * run._step,
            1.0,
            1.0,
        )

    def test_one_iteration_is_the_general_map(self, run: Any) -> None:
        rng = np.random.default_rng(0)
        T = self.general_map(run)
        for _ in range(3):
            run._map.z[:] = rng.standard_normal(run._map.z.size)
            run._map.apply()
            expected = T(run._map.z)
            assert run._map.image == pytest.approx(expected, abs=1e-13)
            assert run._map.ahead == pytest.approx(2 * expected - run._map.z, abs=1e-13)
            norm = pdhg_norm(run._map.A, 1.0, 1.0)
            assert run._map.residual() == pytest.approx(norm(run._map.z - expected), rel=1e-9)

    def test_anchored_iterates_are_those_of_the_driver(self, run: Any) -> None:
        z = run._map.z.copy()
        run._map.anchor[:] = z
        run._map.apply()
        for k in range(0, 120, 40):
            run._map.run(k, 40)
        found = fixed_point(self.general_map(run), z, reflect=True, tol=0.0, maxiter=120, check_every=120)
        assert run._map.image == pytest.approx(found.x, abs=1e-11)
        assert np.linalg.norm(run._map.image - z) > 0.1

    def test_firmly_nonexpansive_in_its_norm(self, run: Any) -> None:
        T, rng = self.general_map(run), np.random.default_rng(1)
        norm = pdhg_norm(run._map.A, 1.0, 1.0)
        for _ in range(50):
            u, v = rng.standard_normal((2, run._map.z.size))
            assert norm(2 * (T(u) - T(v)) - (u - v)) <= norm(u - v) * (1 + 1e-12)

    def test_the_norm_is_that_of_the_steps(self, run: Any) -> None:
        run._weight = 3.0
        run._set_limits()
        scaling, eta = lp._Scaling.of(run._model), run._step
        rng = np.random.default_rng(2)
        run._map.z[:] = rng.standard_normal(run._map.z.size)
        run._map.apply()
        x, w = (part * unit for part, unit in zip(run._map.parts(run._map.z - run._map.image), run._units, strict=True))
        square = 3 * x @ x + w @ w / 3 - 2 * eta * w @ (scaling.A @ x)
        assert run._map.residual() == pytest.approx((square / eta) ** 0.5)

    def test_two_products_an_iteration(self, run: Any) -> None:
        class Counted:
            def __init__(self, matrix: Any) -> None:
                self.matrix, self.shape, self.products = matrix, matrix.shape, 0

            def __matmul__(self, v: Any) -> Any:
                self.products += 1
                return self.matrix @ v

        run._map.A, run._map.transposed = Counted(run._map.A), Counted(run._map.transposed)
        run._map.run(0, 50)
        assert (run._map.A.products, run._map.transposed.products) == (50, 50)

    def test_scaling(self) -> None:
        model = netlib("israel")
        scaling = lp._Scaling.of(model)
        expected = scaling.row[:, None] * model.A.toarray() * scaling.column
        assert scaling.A.toarray() == pytest.approx(expected, rel=1e-12)
        ratio = [np.ptp(np.log10(np.abs(A.data))) for A in (model.A, scaling.A)]
        assert ratio[1] < ratio[0] - 1
        assert abs(scaling.A).max() < 3

    def test_weight_follows_the_distances_and_goes_back_where_it_runs_away(self, run: Any) -> None:
        def restart(primal: float, dual: float) -> float:
            run.history.append({"primal": primal, "dual": dual})
            run._map.run(0, 20)
            before, moved = run._weight, run._map.image - run._map.anchor
            x, w = (part * unit for part, unit in zip(run._map.parts(moved), run._units, strict=True))
            run._restart()
            error = np.log(np.linalg.norm(w) / np.linalg.norm(x) / before)
            sums.append(0.3 * sums[-1] + error)
            return float(before * np.exp(0.99 * error + 0.01 * sums[-1]))

        sums = [0.0]
        run._map.apply()
        weights = [1.0]
        for errors in ((1e-1, 1e-2), (1e-2, 1e-2), (1e-1, 1e-5)):
            weights.append(restart(*errors))
            assert run._weight == pytest.approx(weights[-1])
        assert len({round(weight, 6) for weight in weights}) == 4
        restart(1e-1, 1e-8)
        assert run._weight == pytest.approx(weights[1])  # with which the errors were equal
        restart(1e-1, 0.0)
        assert run._weight == pytest.approx(weights[1])


class TestFiles:
    MPS = """NAME test
ROWS
 N obj
 L r1
 G r2
COLUMNS
{marker}    x obj 1 r1 1
    x r2 1
    y obj 2 r1 1
{end}RHS
    RHS r1 10 r2 1
    RHS obj -5
BOUNDS
 UP BND x 4
{tail}ENDATA
"""
    INTEGERS = ("    MARKER 'MARKER' 'INTORG'\n", "    MARKER 'MARKER' 'INTEND'\n")

    def write(self, folder: Path, marker: str = "", end: str = "", tail: str = "", name: str = "a.mps") -> Path:
        file = folder / name
        file.write_text(self.MPS.format(marker=marker, end=end, tail=tail))
        return file

    def test_offset_and_names(self, tmp_path: Path) -> None:
        file = self.write(tmp_path)
        model = read_mps(file)
        assert (model.offset, model.sense, model.columns, model.rows) == (5.0, "min", ("x", "y"), ("r1", "r2"))
        assert model.ub.tolist() == [4, INF]
        found = solve_mps(file)
        assert found.fun == pytest.approx(6.0, abs=1e-5)
        assert found.rows.activity == pytest.approx([1, 1], abs=1e-5)

    def test_largest(self, tmp_path: Path) -> None:
        file = tmp_path / "a.mps"
        file.write_text(self.MPS.format(marker="", end="", tail="").replace("ROWS", "OBJSENSE\n    MAX\nROWS", 1))
        model = read_mps(file)
        found = solve_mps(model, tol=1e-9)
        assert model.sense == "max"
        assert found.x == pytest.approx([1, 9], abs=1e-5)
        assert found.fun == pytest.approx(24)
        # Of one more unit of r1 the objective grows by 2; r2 keeps x up, at a loss of 1.
        assert found.rows.marginals == pytest.approx([2, -1], abs=1e-6)
        negated = solve_mps(replace(model, c=-model.c, sense="min"), tol=1e-9)
        assert negated.fun - 5 == pytest.approx(-(found.fun - 5))
        assert negated.rows.marginals == pytest.approx(-found.rows.marginals)
        assert kkt_errors(model, found.x, found.rows.marginals).worst <= 1e-9

    def test_marginals_of_bounds_of_a_maximum(self) -> None:
        model = LPModel([1.0, -1.0], np.zeros((0, 2)), [], [], [0, 0], [1.0, 1.0], sense="max")
        found = solve_mps(model)
        assert found.x == pytest.approx([1, 0], abs=1e-6)
        assert found.upper.marginals == pytest.approx([1, 0])
        assert found.lower.marginals == pytest.approx([0, -1])

    def test_gzip(self, tmp_path: Path) -> None:
        packed = tmp_path / "a.mps.gz"
        packed.write_bytes(gzip.compress(self.write(tmp_path).read_bytes()))
        assert read_mps(packed).c.tolist() == [1, 2]

    def test_integer_variables(self, tmp_path: Path) -> None:
        file = self.write(tmp_path, *self.INTEGERS)
        with pytest.raises(ValueError, match="has integer variables: relax=True"):
            solve_mps(file)
        assert solve_mps(file, relax=True).fun == pytest.approx(6.0, abs=1e-5)

    def test_semicontinuous_variables(self, tmp_path: Path) -> None:
        file = self.write(tmp_path, tail=" SC BND y 4\n")
        with pytest.raises(ValueError, match="semicontinuous"):
            read_mps(file, relax=True)

    def test_quadratic(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="quadratic"):
            read_mps(self.write(tmp_path, tail="QUADOBJ\n    x x 2\n"))

    def test_no_such_file_and_no_such_format(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"absent\.mps"):
            solve_mps(tmp_path / "absent.mps")
        broken = tmp_path / "broken.mps"
        broken.write_text("no programme\n")
        with pytest.raises(ValueError, match="is not an MPS or LP file"):
            read_mps(broken)

    def test_nothing_is_printed(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        solve_mps(self.write(tmp_path))
        assert capfd.readouterr() == ("", "")

    def test_without_highspy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "highspy", None)
        with pytest.raises(MissingExtra, match=r"pip install 'paperworks\[anchoring\]'"):
            netlib("afiro")
        assert linprog([1.0]).status == 0


@pytest.mark.untyped
class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "error", "text"),
        [
            ({"c": [1.0, np.nan]}, ValueError, "c must be finite"),
            ({"c": ["a", "b"]}, TypeError, "c must be numeric"),
            ({"c": []}, ValueError, "c must not be empty"),
            ({"A_ub": [[1.0, INF]]}, ValueError, "A_ub must be finite"),
            ({"A_ub": [["a", "b"]]}, TypeError, "A_ub must be numeric"),
            ({"A_ub": [[1.0, 2.0, 3.0]]}, ValueError, r"a column for each of 2 variables, got shape \(1, 3\)"),
            ({"A_ub": [[1.0], [2.0, 3.0]]}, ValueError, "rows of different lengths"),
            ({"b_ub": [INF]}, ValueError, "b_ub must be finite"),
            ({"b_ub": [1.0, 2.0]}, ValueError, "b_ub must have length 1"),
            ({"b_ub": None}, ValueError, "A_ub and b_ub must be given together"),
            ({"bounds": [(0, 1)] * 3}, ValueError, "a pair for each of 2 variables"),
            ({"bounds": [(0, 1), (0,)]}, ValueError, "a pair for each of 2 variables"),
            ({"bounds": (0, "one")}, TypeError, "ub must be numeric"),
            ({"bounds": (0, np.nan)}, ValueError, "ub must be finite or inf, got nan"),
            ({"bounds": (INF, None)}, ValueError, "lb must be finite or -inf, got inf for entry 0"),
            ({"method": "simplex"}, ValueError, "method must be one of"),
            ({"tol": -1.0}, ValueError, "tol must be non-negative"),
            ({"maxiter": 0}, ValueError, "maxiter must be at least 1"),
            ({"callback": 3}, TypeError, "callback must be callable"),
        ],
        ids=str,
    )
    def test_arguments(self, change: dict[str, Any], error: type[Exception], text: str) -> None:
        arguments: dict[str, Any] = {"c": [1.0, 1.0], "A_ub": [[1.0, 1.0]], "b_ub": [1.0], **change}
        with pytest.raises(error, match=text):
            linprog(**arguments)

    def test_models(self) -> None:
        arguments: dict[str, Any] = {
            "c": [1.0],
            "A": [[1.0]],
            "row_lower": [0.0],
            "row_upper": [1.0],
            "lb": [0.0],
            "ub": [1.0],
        }
        for change, text in (
            ({"row_lower": [0.0, 1.0]}, "row_lower must have length 1, got 2"),
            ({"row_upper": [-INF]}, "row_upper must be finite or inf, got -inf"),
            ({"offset": INF}, "offset must be a finite number"),
            ({"sense": "least"}, "sense must be one of 'min', 'max'"),
        ):
            with pytest.raises(ValueError, match=text):
                LPModel(**(arguments | change))
        model = LPModel(**arguments)
        with pytest.raises(ValueError, match="x must have length 1"):
            kkt_errors(model, [1.0, 2.0], [0.0])
