from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paperworks.dssgnn.approximation import (
    ellipse_maximum,
    exponential_tail,
    joint_truncation_error,
    joint_truncation_errors,
    log_linear_fit,
    reach,
    tanh_tail,
    truncation_bound,
)
from paperworks.dssgnn.chaos import OrthogonalBasis
from paperworks.dssgnn.filters import BASES, ChebProp, normalized_shift, to_chebyshev

GRID = np.linspace(-1, 1, 2001)


def shift_of(edges: list[tuple[int, int]]) -> Tensor:
    pairs = torch.tensor(edges).T
    return normalized_shift(torch.cat([pairs, pairs.flip(0)], 1), self_loops=False, dtype=torch.float64)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


PATH = shift_of([(i, i + 1) for i in range(7)])
STAR = shift_of([(0, 1), (0, 2), (0, 3)])


class TestJointTruncation:
    @pytest.mark.parametrize(
        ("K", "P", "error"),
        [
            (0, 0, 0.7155),
            (2, 2, 0.1678),
            (4, 4, 1.799e-2),
            (6, 6, 1.346e-3),
            (8, 8, 8.11e-5),
            (12, 12, 1.918e-7),
            (12, 2, 0.1017),
            (2, 12, 0.1434),
        ],
    )
    def test_known_errors_on_a_grid(self, K: int, P: int, error: float) -> None:
        assert joint_truncation_error(K, P, frequencies=GRID) == pytest.approx(error, rel=5e-4)

    def test_table_is_that_of_the_single_errors(self) -> None:
        table = joint_truncation_errors(5, 3, t=2.0, s=1.1)
        assert table.shape == (6, 4)
        for K, P in [(0, 3), (5, 0), (4, 2)]:
            assert table[K, P] == pytest.approx(joint_truncation_error(K, P, t=2.0, s=1.1), rel=1e-12)
        assert (np.diff(table[5]) < 0).all()

    @pytest.mark.parametrize(("t", "s", "x"), [(1.0, 0.8, 0.3), (0.5, 1.5, -1.0), (3.0, 0.4, 1.0)])
    def test_equal_to_quadrature_at_one_frequency(self, t: float, s: float, x: float) -> None:
        xi, weights = np.polynomial.hermite_e.hermegauss(80)
        weights = weights / weights.sum()
        psi = OrthogonalBasis().vander(torch.from_numpy(xi), 3).numpy()

        def coefficients(at: np.ndarray) -> np.ndarray:
            return (np.exp(t * (at[:, None] - 1) + s * xi * at[:, None]) * weights) @ psi

        f = np.exp(t * (x - 1) + s * xi * x)
        nodes = np.cos(np.pi * (np.arange(60) + 0.5) / 60)
        theta = np.polynomial.chebyshev.chebfit(nodes, coefficients(nodes), 59)[:5]
        approximation = psi @ np.polynomial.chebyshev.chebval(x, theta)
        expected = math.sqrt(weights @ (f - approximation) ** 2 / (weights @ f**2))
        found = joint_truncation_error(4, 3, t=t, s=s, frequencies=[x])
        assert found == pytest.approx(expected, rel=1e-6)

    def test_no_variation_leaves_the_degree_alone(self) -> None:
        assert joint_truncation_errors(20, 2, s=0.0)[20] == pytest.approx([0, 0, 0], abs=1e-14)
        assert joint_truncation_error(0, 0, t=0.0, s=0.0) == pytest.approx(0, abs=1e-14)

    def test_decay_is_exponential(self) -> None:
        fit = log_linear_fit(range(2, 13), joint_truncation_errors(12, 12).diagonal()[2:])
        assert fit.slope == pytest.approx(-1.380, abs=1e-3)
        assert fit.r2 == pytest.approx(0.9973, abs=1e-4)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"K": -1}, "K must be at least 0"),
            ({"P": -1}, "P must be at least 0"),
            ({"t": -1.0}, "t must be non-negative"),
            ({"s": -1.0}, "s must be non-negative"),
            ({"frequencies": [0.0, 1.5]}, r"in \[-1, 1\], got 1.5"),
            ({"frequencies": [-1.5]}, "at least -1, got -1.5"),
            ({"frequencies": []}, "at least one"),
        ],
    )
    def test_bad_input(self, options: dict[str, object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            joint_truncation_errors(**{"K": 2, "P": 2, **options})  # type: ignore[arg-type]


def _chebyshev_error(K: int) -> float:
    series = np.polynomial.chebyshev.chebinterpolate(lambda x: 1 / (1.25 - x), 60)[: K + 1]
    return float(4 - series.sum())


class TestBound:
    def test_known_value(self) -> None:
        assert truncation_bound(3, 2, 2.0, 0.6, 4.0) == pytest.approx((2 * 4 / 8 + 4 * 0.6**3) / 0.8)

    @settings(max_examples=30)
    @given(
        st.integers(0, 12), st.integers(0, 12), st.floats(1.1, 6), st.floats(0.2, 0.95), st.floats(0, 3),
        st.floats(0, 1.5),
    )  # fmt: skip
    def test_holds_at_every_frequency(self, K: int, P: int, rho: float, r: float, t: float, s: float) -> None:
        bound = truncation_bound(K, P, rho, r, ellipse_maximum(rho, r, t=t, s=s))
        for x in (-1.0, -0.4, 0.0, 0.7, 1.0):
            size = math.exp(t * (x - 1) + (s * x) ** 2)
            assert joint_truncation_error(K, P, t=t, s=s, frequencies=[x]) * size <= bound + 1e-12

    def test_reached_by_constant_coefficients(self) -> None:
        """Of c_p = M r^p the degree cuts nothing, and the orders above P are a geometric series."""
        r, M = 0.7, 3.0
        left_out = math.sqrt(sum((M * r**p) ** 2 for p in range(6, 200)))
        assert truncation_bound(60, 5, 10.0, r, M) == pytest.approx(left_out, rel=1e-12)

    @pytest.mark.parametrize("inner", [1.2, 1.6, 1.9])
    @pytest.mark.parametrize("K", [1, 6, 20])
    def test_holds_where_the_degree_decides(self, K: int, inner: float) -> None:
        """Of c_p(x) = r^p / (a − x), with a pole at the end of the ellipse of ρ = 2: the worst is at x = 1."""
        r, theta = 0.5, 2 / 0.75 * 2.0 ** -np.arange(K + 1, 60)
        error = theta.sum() / math.sqrt(1 - r**2)
        assert error == pytest.approx(abs(_chebyshev_error(K)) / math.sqrt(1 - r**2), rel=1e-9)
        M = 1 / (1.25 - (inner + 1 / inner) / 2)
        assert error <= truncation_bound(K, 200, inner, r, M) <= 100 * error * (2 / inner) ** K

    @pytest.mark.parametrize(("rho", "r"), [(1.5, 0.3), (2.0, 0.9), (3.0, 0.6)])
    def test_ellipse_maximum_is_reached_and_not_passed(self, rho: float, r: float) -> None:
        z = rho * np.exp(1j * np.linspace(0, 2 * np.pi, 361))
        x = (z + 1 / z) / 2
        p = np.arange(80)[:, None]
        factorial = np.array([math.factorial(k) for k in range(80)], dtype=float)[:, None]
        c = np.exp(x - 1 + (0.8 * x) ** 2 / 2) * (0.8 * x / r) ** p / np.sqrt(factorial)
        assert ellipse_maximum(rho, r) == pytest.approx(np.abs(c).max(), rel=1e-12)

    def test_bad_input(self) -> None:
        for rho, r, M, message in [
            (1.0, 0.5, 1.0, "rho"),
            (2.0, 0.0, 1.0, "r must"),
            (2.0, 1.0, 1.0, "r must be less than 1"),
            (2.0, 0.5, -1.0, "M must be non-negative"),
        ]:
            with pytest.raises(ValueError, match=message):
                truncation_bound(2, 2, rho, r, M)
        with pytest.raises(ValueError, match="K must be at least 0"):
            truncation_bound(-1, 2, 2.0, 0.5, 1.0)


class TestTails:
    def test_exponential(self) -> None:
        known = [0.79506, 0.28338, 0.06050, 0.00912, 0.00106]
        assert [exponential_tail(P) for P in (0, 2, 4, 6, 8)] == pytest.approx(known, abs=6e-6)
        assert [exponential_tail(P, 0.5) for P in (2, 4)] == pytest.approx([0.04649, 0.00257], abs=6e-6)
        assert exponential_tail(3, -2.0) == exponential_tail(3, 2.0)

    def test_tanh(self) -> None:
        tails = tanh_tail([1, 3, 7, 15, 31, 59])
        assert tails[:4] == pytest.approx([0.16558, 0.07336, 0.02193, 0.00374], abs=6e-6)
        assert tails[4:] == pytest.approx([2.91e-4, 1.13e-5], rel=3e-3)
        assert float(tanh_tail(7)) == pytest.approx(tails[2], rel=1e-12)

    def test_tanh_decays_like_the_exponential_of_a_root(self) -> None:
        orders = np.arange(1, 100, 2)
        tails = tanh_tail(orders)
        assert log_linear_fit(np.sqrt(orders + 1), tails).r2 > 0.9998
        assert log_linear_fit(orders, tails).r2 < 0.97
        assert tanh_tail(500) < 1e-13

    def test_bad_input(self) -> None:
        with pytest.raises(ValueError, match="P must be at least 0"):
            tanh_tail([3, -1])
        with pytest.raises(ValueError, match="at most 500"):
            tanh_tail(501)
        with pytest.raises(TypeError, match="P must be an integer"):
            tanh_tail(1.5)


class TestLogLinearFit:
    @given(st.floats(-3, 3), st.floats(-2, 2))
    def test_recovers_an_exponential(self, slope: float, intercept: float) -> None:
        n = np.array([0.0, 1, 3, 4])
        fit = log_linear_fit(n, np.exp(intercept + slope * n))
        assert fit[:2] == pytest.approx((slope, intercept), abs=1e-9)

    def test_known_fit(self) -> None:
        fit = log_linear_fit([0, 1, 2], np.exp([0.0, 1.0, 0.0]))
        assert fit == pytest.approx((0, 1 / 3, 0), abs=1e-12)

    def test_bad_input(self) -> None:
        with pytest.raises(ValueError, match=r"positive, got 0\.0 for entry 1"):
            log_linear_fit([1, 2], [1.0, 0.0])
        with pytest.raises(ValueError, match="2 different"):
            log_linear_fit([1, 1], [1.0, 2.0])
        with pytest.raises(ValueError, match="length 2"):
            log_linear_fit([1, 2], [1.0])


class TestReach:
    def test_a_path_reaches_everything(self) -> None:
        found = reach(PATH, torch.from_numpy(np.random.default_rng(0).standard_normal(8)), normal(1, 5, 8))
        assert found.residual < 1e-12
        assert (found.condition, found.rank) == (pytest.approx(5.9938, abs=1e-3), 8)

    @pytest.mark.parametrize("basis", BASES)
    def test_coefficients_are_those_of_filters(self, basis: str) -> None:
        x, targets = normal(0, 8), normal(2, 2, 8)
        found = reach(PATH.to_dense(), x, targets, basis=basis)
        theta = to_chebyshev(found.theta, basis)
        filtered: Tensor = ChebProp.apply(x[:, None, None].expand(-1, 2, 1), theta, PATH)  # type: ignore[no-untyped-call]
        torch.testing.assert_close(filtered[..., 0].T, targets, rtol=0, atol=1e-11)

    def test_monomials_are_conditioned_worse(self) -> None:
        x = torch.from_numpy(np.random.default_rng(0).standard_normal(8))
        assert reach(PATH, x, normal(1, 1, 8), basis="monomial").condition == pytest.approx(479.71, abs=0.1)

    @pytest.mark.parametrize("K", [None, 12])
    def test_a_star_does_not(self, K: int | None) -> None:
        """Its eigenvalue 0 is double: what a filter cannot reach is the part of the target across x in its space."""
        x, target = normal(3, 4), normal(4, 4)
        found = reach(STAR, x, target[None], K)
        _, vectors = torch.linalg.eigh(STAR.to_dense())
        kernel = vectors[:, 1:3]
        seen, wanted = kernel.T @ x, kernel.T @ target
        missed = wanted - seen * (seen @ wanted) / (seen @ seen)
        assert found.residual == pytest.approx(float(missed.norm() / target.norm()), rel=1e-9)
        assert found.residual > 1e-3
        assert found.rank == 3
        assert found.condition > 1e15

    def test_a_missing_frequency_is_never_reached(self) -> None:
        vector = torch.linalg.eigh(PATH.to_dense())[1][:, 2]
        x, target = normal(0, 8), normal(1, 8)
        found = reach(PATH, x - vector * (vector @ x), target[None])
        assert found.residual == pytest.approx(float((vector @ target).abs() / target.norm()), rel=1e-9)
        assert found.rank == 7

    def test_low_degree_is_projection(self) -> None:
        found = reach(PATH, normal(0, 8), normal(1, 1, 8), K=0)
        x, target = normal(0, 8), normal(1, 8)
        assert float(found.theta) == pytest.approx(float(x @ target / (x @ x)))

    def test_zeros(self) -> None:
        assert reach(PATH, torch.zeros(8), torch.zeros(1, 8)).residual == 0
        assert reach(PATH, torch.zeros(8), normal(1, 1, 8)).residual == 1

    @pytest.mark.parametrize(
        ("shift", "x", "targets", "options", "message"),
        [
            (PATH, torch.ones(8, 1), torch.ones(1, 8), {}, "x must have shape"),
            (STAR, torch.ones(8), torch.ones(1, 8), {}, r"shift must have shape \(8, 8\)"),
            (PATH, torch.ones(8), torch.ones(1, 7), {}, r"targets must have shape \(targets, 8\)"),
            (PATH, torch.ones(8), torch.ones(0, 8), {}, "targets must have shape"),
            (PATH, torch.ones(8), torch.ones(1, 8), {"K": -1}, "K must be at least 0"),
            (PATH, torch.ones(8), torch.ones(1, 8), {"basis": "fourier"}, "basis must be one of"),
        ],
    )
    @pytest.mark.untyped
    def test_bad_input(
        self, shift: Tensor, x: Tensor, targets: Tensor, options: dict[str, object], message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            reach(shift, x, targets, **options)  # type: ignore[arg-type]
