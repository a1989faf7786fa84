from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import roots_jacobi
from torch import Tensor

from paperworks.dssgnn import chaos
from paperworks.dssgnn.chaos import OOD_SCORES, ChaosLogits, OrthogonalBasis, propagate_scores

HERMITE = OrthogonalBasis()
BASES = [
    HERMITE,
    OrthogonalBasis("legendre"),
    OrthogonalBasis("laguerre"),
    OrthogonalBasis("laguerre", a=1.5),
    OrthogonalBasis("jacobi", a=0.5, b=2.0),
    OrthogonalBasis("jacobi", a=-0.5, b=-0.5),
]
BASIS = pytest.mark.parametrize("basis", BASES, ids=str)
RANDOM = given(
    st.sampled_from(BASES), st.integers(0, 3), st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**32 - 1)
)


def random_logits(
    order: int, nodes: int, classes: int, seed: int, basis: OrthogonalBasis = HERMITE, scale: float = 1.0
) -> ChaosLogits:
    generator = torch.Generator().manual_seed(seed)
    coefs = torch.randn(order + 1, nodes, classes, generator=generator, dtype=torch.float64)
    return ChaosLogits(scale * coefs, basis)


def binary(mean: float, sd: float) -> ChaosLogits:
    return ChaosLogits(torch.tensor([[[mean, 0.0]], [[sd, 0.0]]], dtype=torch.float64))


class TestOrthogonalBasis:
    @pytest.mark.parametrize(
        ("q", "nodes", "weights"),
        [
            (1, [0], [1]),
            (3, [-1.7320508, 0, 1.7320508], [1 / 6, 2 / 3, 1 / 6]),
            (
                5,
                [-2.8569700, -1.3556262, 0, 1.3556262, 2.8569700],
                [0.0112574, 0.2220759, 0.5333333, 0.2220759, 0.0112574],
            ),
        ],
    )
    def test_gauss_hermite(self, q: int, nodes: list[float], weights: list[float]) -> None:
        x, w = HERMITE.gauss(q)
        assert x.dtype == w.dtype == torch.float64
        assert x.tolist() == pytest.approx(nodes, abs=5e-8)
        assert w.tolist() == pytest.approx(weights, abs=5e-8)

    @pytest.mark.parametrize(
        ("basis", "rule"),
        [
            (HERMITE, np.polynomial.hermite_e.hermegauss),
            (OrthogonalBasis("legendre"), np.polynomial.legendre.leggauss),
            (OrthogonalBasis("laguerre"), np.polynomial.laguerre.laggauss),
        ],
    )
    def test_gauss_is_numpys_to_the_smallest_weight(self, basis: OrthogonalBasis, rule: object) -> None:
        x, w = rule(32)  # type: ignore[operator]
        nodes, weights = basis.gauss(32)
        np.testing.assert_allclose(nodes, x, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(weights, w / w.sum(), rtol=1e-9)
        assert float(weights.sum()) == pytest.approx(1, abs=1e-14)

    @BASIS
    def test_polynomials_are_orthonormal(self, basis: OrthogonalBasis) -> None:
        nodes, weights = basis.gauss(13)
        psi = basis.vander(nodes, 12)
        np.testing.assert_allclose((psi.T * weights) @ psi, np.eye(13), atol=1e-10)

    @BASIS
    def test_quadrature_is_exact_to_degree_2q_minus_1(self, basis: OrthogonalBasis) -> None:
        nodes, weights = basis.gauss(4)
        fine, fine_weights = basis.gauss(12)
        powers = [(float(weights @ nodes**k), float(fine_weights @ fine**k)) for k in range(9)]
        for few, many in powers[:8]:
            assert few == pytest.approx(many, rel=1e-11, abs=1e-12)
        assert powers[8][0] != pytest.approx(powers[8][1], rel=1e-6)

    @pytest.mark.parametrize("basis", [HERMITE, OrthogonalBasis("laguerre", a=1.5)], ids=str)
    def test_moments_are_those_of_the_distribution(self, basis: OrthogonalBasis) -> None:
        nodes, weights = basis.gauss(6)
        shape = basis.a + 1
        expected = (
            [0, 1, 0, 3] if basis is HERMITE else [math.gamma(shape + k) / math.gamma(shape) for k in range(1, 5)]
        )
        assert [float(weights @ nodes**k) for k in range(1, 5)] == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize(("a", "b"), [(0.5, 2.0), (-0.5, -0.5), (0.3, -0.3), (-0.9, 1.0)])
    def test_gauss_jacobi_is_scipys_and_that_of_the_beta_distribution(self, a: float, b: float) -> None:
        nodes, weights = OrthogonalBasis("jacobi", a=a, b=b).gauss(9)
        x, w = roots_jacobi(9, a, b)
        np.testing.assert_allclose(nodes, x, atol=1e-12)
        np.testing.assert_allclose(weights, w / w.sum(), rtol=1e-10)
        assert float(weights @ ((nodes + 1) / 2)) == pytest.approx((b + 1) / (a + b + 2))

    def test_recurrences(self) -> None:
        n = np.arange(1, 6)
        diagonal, off = OrthogonalBasis("legendre").recurrence(5)
        np.testing.assert_allclose(diagonal, 0, atol=0)
        np.testing.assert_allclose(off, n / np.sqrt(4 * n**2 - 1))
        chebyshev = OrthogonalBasis("jacobi", a=-0.5, b=-0.5).recurrence(4)[1]
        np.testing.assert_allclose(chebyshev, [math.sqrt(0.5), 0.5, 0.5, 0.5])

    def test_first_hermite_polynomials(self) -> None:
        xi = torch.linspace(-3, 3, 7, dtype=torch.float64)
        expected = [torch.ones(7), xi, (xi**2 - 1) / math.sqrt(2), (xi**3 - 3 * xi) / math.sqrt(6)]
        np.testing.assert_allclose(HERMITE.vander(xi, 3), torch.stack(expected, 1), atol=1e-14)

    def test_vander_keeps_precision_and_has_a_gradient(self) -> None:
        xi = torch.tensor([0.5, -2.0], requires_grad=True)
        psi = HERMITE.vander(xi, 3)
        assert psi.dtype == torch.float32
        # ψ_n' = √n ψ_{n-1}
        (slope,) = torch.autograd.grad(psi[:, 3].sum(), xi)
        torch.testing.assert_close(slope, math.sqrt(3) * psi[:, 2])
        assert HERMITE.vander(torch.zeros(0), 2).shape == (0, 3)

    @pytest.mark.parametrize(
        ("indices", "value"),
        [
            ((1, 1, 2), 1.41421356),
            ((2, 2, 2), 2.82842712),
            ((1, 2, 3), 1.73205081),
            ((3, 3, 4), 7.34846923),
            ((0, 4, 4), 1),
            ((1, 1, 1), 0),
            ((1, 1, 4), 0),
        ],
    )
    def test_hermite_triples(self, indices: tuple[int, int, int], value: float) -> None:
        assert HERMITE.triple(*indices) == pytest.approx(value, abs=5e-9)

    @settings(max_examples=40)
    @given(st.sampled_from(BASES), st.tuples(*[st.integers(0, 6)] * 3))
    def test_triples_are_quadratures_and_symmetric(self, basis: OrthogonalBasis, indices: tuple[int, int, int]) -> None:
        nodes, weights = basis.gauss(16)
        psi = basis.vander(nodes, 6)
        expected = float((weights * psi[:, indices].prod(1)).sum())
        assert basis.triple(*indices) == pytest.approx(expected, rel=1e-8, abs=1e-8)
        assert basis.triple(*indices) == pytest.approx(basis.triple(*sorted(indices)), rel=1e-8, abs=1e-8)

    @BASIS
    def test_samples_have_the_moments_of_the_quadrature(self, basis: OrthogonalBasis) -> None:
        xi = basis.sample(40_000, torch.Generator().manual_seed(0))
        psi = basis.vander(xi, 2).numpy()
        np.testing.assert_allclose(psi.mean(0), [1, 0, 0], atol=0.04)
        assert np.square(psi[:, 1]).mean() == pytest.approx(1, abs=0.05)
        assert torch.equal(xi, basis.sample(40_000, torch.Generator().manual_seed(0)))

    @BASIS
    def test_quantiles_are_those_of_samples(self, basis: OrthogonalBasis) -> None:
        levels = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
        xi = basis.sample(40_000, torch.Generator().manual_seed(1))
        reached = (xi[:, None] <= basis.quantile(levels)).double().mean(0)
        np.testing.assert_allclose(reached, levels, atol=0.01)


class TestTruncation:
    @pytest.mark.parametrize(
        ("s", "order", "tail"),
        [
            (1.0, 0, 0.79506),
            (1.0, 2, 0.28338),
            (1.0, 4, 0.06050),
            (1.0, 6, 0.00912),
            (1.0, 8, 0.00106),
            (0.5, 2, 0.04649),
            (0.5, 4, 0.00257),
        ],
    )
    def test_exponential(self, s: float, order: int, tail: float) -> None:
        nodes, weights = HERMITE.gauss(64)
        f = (s * nodes).exp()
        c = (weights * f) @ HERMITE.vander(nodes, 8)
        expected = [math.exp(s**2 / 2) * s**p / math.sqrt(math.factorial(p)) for p in range(9)]
        assert c.tolist() == pytest.approx(expected, abs=1e-10)
        error = f - HERMITE.vander(nodes, order) @ c[: order + 1]
        assert float((weights @ error**2 / (weights @ f**2)).sqrt()) == pytest.approx(tail, abs=6e-6)

    @pytest.mark.parametrize(
        ("order", "tail"),
        [(1, 0.16558), (3, 0.07336), (7, 0.02193), (15, 0.00374), (31, 2.91e-4), (59, 1.13e-5)],
    )
    def test_tanh_decays_more_slowly(self, order: int, tail: float) -> None:
        nodes, weights = HERMITE.gauss(256)
        f = nodes.tanh()
        psi = HERMITE.vander(nodes, order)
        error = f - psi @ ((weights * f) @ psi)
        assert float((weights @ error**2).sqrt()) == pytest.approx(tail, rel=3e-3)

    @pytest.mark.parametrize(
        ("degree", "order", "error"),
        [
            (0, 0, 0.7155),
            (2, 2, 0.1678),
            (4, 4, 1.799e-2),
            (6, 6, 1.346e-3),
            (8, 8, 8.11e-5),
            (12, 12, 1.92e-7),
            (12, 2, 0.1017),
            (2, 12, 0.1434),
        ],
    )
    def test_larger_of_two_truncations_rules(self, degree: int, order: int, error: float) -> None:
        """Of exp(x − 1 + 0.8 ξ x), x uniform on [−1, 1]; the error is a root mean square relative to the function's."""
        xi, weights = HERMITE.gauss(40)
        grid, grid_weights = OrthogonalBasis("legendre").gauss(40)

        def function(x: Tensor) -> Tensor:
            return (x[:, None] * (1 + 0.8 * xi) - 1).exp()

        cheb = np.cos(np.pi * (np.arange(40) + 0.5) / 40)
        psi = HERMITE.vander(xi, order)
        c = ((function(torch.from_numpy(cheb)) * weights) @ psi).numpy()
        theta = np.polynomial.chebyshev.chebfit(cheb, c, 39)[: degree + 1]
        approximation = torch.from_numpy(np.polynomial.chebyshev.chebval(grid.numpy(), theta)).T @ psi.T
        target = function(grid)
        squared = (grid_weights @ (target - approximation) ** 2 @ weights) / (grid_weights @ target**2 @ weights)
        assert float(squared.sqrt()) == pytest.approx(error, rel=8e-3)


class TestPredictive:
    @pytest.mark.parametrize(
        ("mean", "sd", "value", "tolerance"),
        [
            (0, 1, 0.5, 1e-12),
            (1, 1, 0.69673467, 1e-8),
            (2, 1, 0.84453748, 1e-8),
            (1, 2, 0.64772644, 1e-6),
            (2, 3, 0.71742399, 1e-5),
        ],
    )
    def test_mean_sigmoid(self, mean: float, sd: float, value: float, tolerance: float) -> None:
        exact, _ = quad(lambda x: math.exp(-x * x / 2) / (1 + math.exp(-mean - sd * x)), -15, 15, epsabs=1e-13)
        assert exact / math.sqrt(2 * math.pi) == pytest.approx(value, abs=6e-9)
        assert float(binary(mean, sd).predictive()[0, 0]) == pytest.approx(value, abs=tolerance)

    @pytest.mark.parametrize(
        ("mean", "sd", "q", "value"), [(1, 2, 8, 0.64714677), (2, 3, 8, 0.71797236), (2, 3, 32, 0.71741484)]
    )
    def test_with_few_nodes(self, mean: float, sd: float, q: int, value: float) -> None:
        assert float(binary(mean, sd).predictive(q)[0, 0]) == pytest.approx(value, abs=6e-9)

    def test_order_0_is_softmax_of_the_mean(self) -> None:
        logits = random_logits(0, 6, 4, 0)
        torch.testing.assert_close(logits.log_predictive(1), logits.mean.log_softmax(1))
        total, aleatoric, epistemic = logits.decompose(1)
        torch.testing.assert_close(total, aleatoric)
        assert float(epistemic.max()) < 1e-12
        for what in (logits.variance(), logits.third_central_moment(), logits.skewness()):
            assert torch.equal(what, torch.zeros_like(logits.mean))
        assert logits.order_share().shape == (0, 6, 4)
        assert torch.equal(logits.quantile(0.3), logits.mean)

    @settings(max_examples=60)
    @RANDOM
    def test_distributions_and_information(
        self, basis: OrthogonalBasis, order: int, nodes: int, classes: int, seed: int
    ) -> None:
        logits = random_logits(order, nodes, classes, seed, basis)
        p = logits.predictive(16)
        assert bool((p > 0).all())
        torch.testing.assert_close(p.sum(1), torch.ones(nodes, dtype=p.dtype))
        total, aleatoric, epistemic = logits.decompose(16)
        assert bool((epistemic >= 0).all())
        torch.testing.assert_close(total, aleatoric + epistemic)
        torch.testing.assert_close(total, torch.special.entr(p).sum(1))
        assert float(total.max()) <= math.log(classes) + 1e-12

    @settings(max_examples=40)
    @RANDOM
    def test_joint_sums_to_the_predictive(
        self, basis: OrthogonalBasis, order: int, nodes: int, classes: int, seed: int
    ) -> None:
        logits = random_logits(order, nodes, classes, seed, basis)
        pairs = torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).T
        joint, p = logits.joint(pairs, 8), logits.predictive(8)
        np.testing.assert_allclose(joint.sum(2), p[pairs[0]], atol=1e-12)
        np.testing.assert_allclose(joint.sum(1), p[pairs[1]], atol=1e-12)
        np.testing.assert_allclose(joint.diagonal(dim1=1, dim2=2).sum(1), logits.agreement(pairs, 8), atol=1e-12)
        torch.testing.assert_close(joint, logits.joint(pairs.flip(0), 8).mT)

    def test_joint_is_more_than_the_product_of_marginals(self) -> None:
        alike = ChaosLogits(torch.tensor([[[0.0, 0.0]] * 2, [[2.0, 0.0], [2.0, 0.0]]], dtype=torch.float64))
        opposed = ChaosLogits(torch.tensor([[[0.0, 0.0]] * 2, [[2.0, 0.0], [-2.0, 0.0]]], dtype=torch.float64))
        pair = torch.tensor([[0], [1]])
        # E sigmoid(2ξ)² = 0.34857362
        assert float(alike.joint(pair, 64)[0, 0, 0]) == pytest.approx(0.34857362, abs=1e-6)
        assert float(alike.agreement(pair, 64)) == pytest.approx(2 * 0.34857362, abs=1e-6)
        assert float(opposed.agreement(pair, 64)) == pytest.approx(1 - 2 * 0.34857362, abs=1e-6)
        assert alike.joint(torch.zeros(2, 0, dtype=torch.long)).shape == (0, 2, 2)

    @settings(max_examples=25)
    @given(st.integers(0, 3), st.integers(0, 2**32 - 1), st.floats(-50, 50))
    def test_adding_a_constant_to_all_logits(self, order: int, seed: int, shift: float) -> None:
        logits = random_logits(order, 4, 3, seed)
        moved = logits.coefs.clone()
        moved[0] += shift
        shifted = ChaosLogits(moved)
        torch.testing.assert_close(shifted.predictive(8), logits.predictive(8), atol=1e-12, rtol=1e-10)
        torch.testing.assert_close(shifted.decompose(8).epistemic, logits.decompose(8).epistemic, atol=1e-12, rtol=0)
        torch.testing.assert_close(shifted.energy(2.0), logits.energy(2.0) - shift)

    @settings(max_examples=25)
    @given(st.integers(1, 4), st.integers(0, 2**32 - 1))
    def test_hermite_symmetry(self, order: int, seed: int) -> None:
        logits = random_logits(order, 4, 3, seed)
        mirrored = logits.coefs.clone()
        mirrored[1::2] *= -1
        torch.testing.assert_close(ChaosLogits(mirrored).predictive(), logits.predictive(), atol=1e-11, rtol=0)

    def test_gradient(self) -> None:
        coefs = random_logits(2, 3, 3, 0).coefs.requires_grad_()
        assert torch.autograd.gradcheck(lambda c: ChaosLogits(c).log_predictive(4), coefs)

    @pytest.mark.untyped
    def test_export(self) -> None:
        """Also where the quadrature was never computed before."""

        class Predictive(torch.nn.Module):
            def forward(self, coefs: Tensor) -> Tensor:
                return ChaosLogits(coefs).log_predictive(29)

        coefs = random_logits(2, 6, 3, 0).coefs
        exported = torch.export.export(
            Predictive(), (coefs,), dynamic_shapes={"coefs": {1: torch.export.Dim("nodes", max=10_000)}}, strict=False
        )
        more = random_logits(2, 11, 3, 1).coefs
        torch.testing.assert_close(exported.module()(more), ChaosLogits(more).log_predictive(29))

    def test_permutation_of_nodes(self) -> None:
        logits = random_logits(2, 7, 3, 1)
        order = torch.randperm(7, generator=torch.Generator().manual_seed(0))
        permuted = ChaosLogits(logits.coefs[:, order])
        torch.testing.assert_close(permuted.predictive(), logits.predictive()[order])
        for method in OOD_SCORES:
            torch.testing.assert_close(permuted.ood_score(method), logits.ood_score(method)[order])

    def test_large_logits_in_float32(self) -> None:
        logits = random_logits(2, 50, 5, 2, scale=300.0).to(torch.float32)
        assert bool(logits.log_predictive(8).isfinite().all())
        parts = logits.decompose(8)
        assert all(part.dtype == torch.float32 and bool((part >= 0).all()) for part in parts)

    def test_small_information_survives_float32(self) -> None:
        """To second order it is half the mean over classes, at p, of the variance of the centred logits."""
        logits = ChaosLogits(torch.tensor([[[0.0, 0.0]], [[1e-3, -1e-3]]]))
        assert float(logits.decompose().epistemic[0]) == pytest.approx(0.5e-6, rel=1e-3)

    def test_blocks_do_not_change_results(self, monkeypatch: pytest.MonkeyPatch) -> None:
        logits = random_logits(2, 23, 3, 3)
        pairs = torch.randint(23, (2, 31), generator=torch.Generator().manual_seed(0))

        def results() -> list[Tensor]:
            read = [logits.predictive(8), *logits.decompose(8), logits.quantile(0.3, points=64)]
            return [*read, logits.joint(pairs, 8), logits.agreement(pairs, 8)]

        whole = results()
        monkeypatch.setattr(chaos, "_BLOCK", 8 * 3 * 5)
        for one, other in zip(results(), whole, strict=True):
            torch.testing.assert_close(one, other, atol=1e-14, rtol=0)


class TestMoments:
    @settings(max_examples=40)
    @RANDOM
    def test_quadrature_has_the_closed_forms(
        self, basis: OrthogonalBasis, order: int, nodes: int, classes: int, seed: int
    ) -> None:
        logits = random_logits(order, nodes, classes, seed, basis)
        xi, weights = basis.gauss(order + 1)
        z = logits.logits(xi)
        centred = z - torch.einsum("q,qic->ic", weights, z)
        np.testing.assert_allclose(torch.einsum("q,qic->ic", weights, z), logits.mean, atol=1e-10)
        np.testing.assert_allclose(torch.einsum("q,qic->ic", weights, centred**2), logits.variance(), atol=1e-9)
        i, j = torch.zeros(nodes, dtype=torch.long), torch.arange(nodes)
        covariance = torch.einsum("q,qc,qjd->jcd", weights, centred[:, 0], centred)
        np.testing.assert_allclose(covariance, logits.covariance(i, j), atol=1e-9)
        torch.testing.assert_close(logits.covariance(0, nodes - 1), logits.covariance(i, j)[-1])
        xi, weights = basis.gauss(2 * order + 1)
        third = torch.einsum("q,qic->ic", weights, (logits.logits(xi) - logits.mean) ** 3)
        np.testing.assert_allclose(third, logits.third_central_moment(), atol=1e-7, rtol=1e-7)

    @pytest.mark.parametrize("order", [1, 2, 3])
    def test_samples_have_the_closed_forms(self, order: int) -> None:
        logits = random_logits(order, 5, 3, 4)
        # The higher the order, the heavier the tails and the more draws a variance takes.
        n = (20_000, 100_000, 400_000)[order - 1]
        z = logits.sample(n, torch.Generator().manual_seed(0))
        assert z.shape == (n, 5, 3)
        np.testing.assert_allclose(z.var(0), logits.variance(), rtol=0.05)
        assert torch.equal(z, logits.sample(n, torch.Generator().manual_seed(0)))

    def test_covariance_has_rank_of_the_order(self) -> None:
        logits = random_logits(2, 4, 3, 0)
        nodes = torch.cartesian_prod(torch.arange(4), torch.arange(4)).T
        whole = logits.covariance(*nodes).reshape(4, 4, 3, 3).permute(0, 2, 1, 3).reshape(12, 12)
        assert int(torch.linalg.matrix_rank(whole, hermitian=True)) == 2
        torch.testing.assert_close(whole.diagonal(), logits.variance().flatten())

    def test_skewness_of_a_square(self) -> None:
        """ψ_2 is (ξ² − 1)/√2: chi-square with one degree of freedom has skewness √8."""
        logits = ChaosLogits(torch.tensor([[[5.0, 1.0]], [[0.0, 0.0]], [[-3.0, 0.0]]]))
        assert logits.skewness()[0].tolist() == pytest.approx([-math.sqrt(8), 0])

    def test_shares_of_orders(self) -> None:
        logits = ChaosLogits(torch.tensor([[[9.0, 9.0]], [[3.0, 0.0]], [[-4.0, 0.0]]]))
        assert logits.order_share()[:, 0].tolist() == [pytest.approx([0.36, 0]), pytest.approx([0.64, 0])]

    @pytest.mark.parametrize("basis", [HERMITE, OrthogonalBasis("laguerre"), OrthogonalBasis("jacobi", 0.5, 2.0)])
    def test_quantiles_of_first_order(self, basis: OrthogonalBasis) -> None:
        logits = random_logits(1, 6, 3, 5, basis)
        z = logits.sample(40_000, torch.Generator().manual_seed(0))
        for level in (0.05, 0.5, 0.8):
            np.testing.assert_allclose((z <= logits.quantile(level)).double().mean(0), level, atol=0.01)

    def test_quantiles_of_a_square(self) -> None:
        """Quartiles of chi-square with one degree of freedom are 0.10153104 and 1.32330370."""
        logits = ChaosLogits(torch.tensor([[[1.0]], [[0.0]], [[math.sqrt(2)]]], dtype=torch.float64))
        assert float(logits.quantile(0.25)) == pytest.approx(0.10153104, abs=2e-3)
        assert float(logits.quantile(0.75)) == pytest.approx(1.32330370, abs=4e-3)
        assert float(logits.quantile(0.0)) <= float(logits.quantile(0.25)) <= float(logits.quantile(1.0))


class TestScores:
    def test_energy(self) -> None:
        logits = ChaosLogits(torch.tensor([[[0.0, 0.0], [4.0, 0.0]]]))
        expected = [-math.log(2), -math.log(math.exp(4) + 1)]
        assert logits.energy().tolist() == pytest.approx(expected)
        assert logits.energy(2.0).tolist() == pytest.approx([-2 * math.log(2), -2 * math.log(math.exp(2) + 1)])
        pair = torch.tensor([[0, 1], [1, 0]])
        assert logits.energy(edge_index=pair, propagate=(1, 0.75)).tolist() == pytest.approx(
            [0.75 * expected[0] + 0.25 * expected[1], 0.75 * expected[1] + 0.25 * expected[0]]
        )

    def test_scores_are_larger_for_the_uncertain_node(self) -> None:
        """Node 0 has evidence and hardly varies; node 1 has none and does."""
        logits = ChaosLogits(torch.tensor([[[6.0, 0.0], [0.2, 0.0]], [[0.1, 0.0], [2.0, -2.0]]]))
        for method in OOD_SCORES:
            sure, unsure = logits.ood_score(method).tolist()
            assert sure < unsure, method
        assert logits.ood_score("msp")[0] == -logits.predictive()[0, 0]
        assert logits.ood_score("variance").tolist() == pytest.approx([0.005, 4.0])

    def test_propagation_by_hand(self) -> None:
        star = torch.tensor([[0, 1, 0, 2], [1, 0, 2, 0]])
        scores = torch.tensor([1.0, 3.0, 5.0, 7.0], dtype=torch.float64)
        assert propagate_scores(scores, star, steps=1).tolist() == [2.5, 2.0, 3.0, 7.0]
        assert propagate_scores(scores, star).tolist() == [2.5, 2.25, 2.75, 7.0]
        assert torch.equal(propagate_scores(scores, star, steps=0), scores)
        torch.testing.assert_close(propagate_scores(scores, star, steps=3, alpha=1.0), scores)

    @settings(max_examples=25)
    @given(st.integers(1, 8), st.integers(0, 20), st.integers(0, 2**32 - 1))
    def test_propagation_averages(self, nodes: int, edges: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        edge_index = torch.randint(nodes, (2, edges), generator=generator)
        scores = torch.randn(nodes, generator=generator, dtype=torch.float64)
        moved = propagate_scores(scores, edge_index, steps=3, alpha=0.3)
        assert float(moved.max()) <= float(scores.max()) + 1e-12
        assert float(moved.min()) >= float(scores.min()) - 1e-12
        torch.testing.assert_close(propagate_scores(torch.ones_like(scores), edge_index), torch.ones_like(scores))


class TestFiles:
    @BASIS
    def test_round_trip(self, basis: OrthogonalBasis, tmp_path: Path) -> None:
        logits = random_logits(2, 4, 3, 0, basis).to(torch.float32)
        logits.save(tmp_path / "logits.npz")
        again = ChaosLogits.load(tmp_path / "logits.npz")
        assert again.basis == basis
        assert again.coefs.dtype == torch.float32
        assert torch.equal(again.coefs, logits.coefs)

    @pytest.mark.untyped
    def test_another_file_is_refused(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "other.npz", coefs=np.zeros((1, 2, 3)))
        with pytest.raises(ValueError, match=r"other\.npz is not a file of ChaosLogits: it lacks family, parameters"):
            ChaosLogits.load(tmp_path / "other.npz")

    def test_repr(self) -> None:
        assert repr(random_logits(2, 4, 3, 0)).startswith("ChaosLogits(order=2, nodes=4, classes=3, basis=Orth")


@pytest.mark.untyped
class TestBadInput:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("fourier",), "family must be one of 'hermite', 'legendre', 'laguerre', 'jacobi', got 'fourier'"),
            (("laguerre", -1.0), r"a must be greater than -1, got -1\.0"),
            (("jacobi", 0.0, -2.0), r"b must be greater than -1, got -2\.0"),
            (("jacobi", math.nan), "a must be a finite number, got nan"),
            (("hermite", 1.0), "a must be 0 for 'hermite', which has no such exponent"),
            (("laguerre", 0.0, 1.0), "b must be 0 for 'laguerre'"),
        ],
    )
    def test_basis(self, arguments: tuple[str, float, float], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            OrthogonalBasis(*arguments)

    def test_orders_and_counts(self) -> None:
        with pytest.raises(ValueError, match="order must be at least 0, got -1"):
            HERMITE.vander(torch.zeros(2), -1)
        with pytest.raises(ValueError, match="q must be at least 1, got 0"):
            HERMITE.gauss(0)
        with pytest.raises(TypeError, match=r"q must be an integer, got 3\.0"):
            HERMITE.gauss(3.0)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="b must be at least 0, got -2"):
            HERMITE.triple(1, -2, 1)
        with pytest.raises(ValueError, match="n must be at least 0, got -3"):
            HERMITE.sample(-3)

    @pytest.mark.parametrize("method", ["log_predictive", "predictive", "decompose"])
    def test_too_few_nodes(self, method: str) -> None:
        with pytest.raises(ValueError, match="q=2 quadrature nodes cannot resolve order 2; need q >= 3"):
            getattr(random_logits(2, 3, 2, 0), method)(q=2)

    @pytest.mark.parametrize(
        ("coefs", "error", "message"),
        [
            (torch.zeros(2, 3), ValueError, r"shape \(order \+ 1, nodes, classes\), got \(2, 3\)"),
            (torch.zeros(0, 2, 3), ValueError, r"got \(0, 2, 3\)"),
            (torch.zeros(1, 2, 0), ValueError, r"got \(1, 2, 0\)"),
            (torch.zeros(1, 2, 3, dtype=torch.long), TypeError, r"floating-point tensor, got torch\.int64"),
            (np.zeros((1, 2, 3)), TypeError, "floating-point tensor, got ndarray"),
        ],
    )
    def test_coefficients(self, coefs: Tensor, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            ChaosLogits(coefs)

    @pytest.mark.parametrize(
        ("pairs", "error", "message"),
        [
            (torch.tensor([[0], [12]]), ValueError, "pairs refers to node 12 but there are 10 nodes"),
            (torch.tensor([[-1], [2]]), ValueError, "pairs refers to node -1"),
            (torch.zeros(3, 2, dtype=torch.long), ValueError, r"pairs must have shape \(2, edges\), got \(3, 2\)"),
            (torch.zeros(2, 2), TypeError, r"pairs must hold integers, got torch\.float32"),
        ],
    )
    def test_pairs(self, pairs: Tensor, error: type[Exception], message: str) -> None:
        logits = random_logits(1, 10, 2, 0)
        for read in (logits.joint, logits.agreement):
            with pytest.raises(error, match=message):
                read(pairs)
        with pytest.raises(error, match=message.replace("pairs", "edge_index")):
            propagate_scores(logits.energy(), pairs)

    def test_scores(self) -> None:
        logits = random_logits(1, 4, 2, 0)
        with pytest.raises(ValueError, match="method must be one of 'energy', 'msp', 'entropy', 'mi', 'variance'"):
            logits.ood_score("margin")
        with pytest.raises(ValueError, match="T must be positive, got 0"):
            logits.energy(0)
        with pytest.raises(ValueError, match="propagate needs edge_index"):
            logits.energy(propagate=(2, 0.5))
        with pytest.raises(ValueError, match="alpha must be in"):
            propagate_scores(logits.energy(), torch.zeros(2, 0, dtype=torch.long), alpha=1.5)

    def test_quantiles(self) -> None:
        with pytest.raises(ValueError, match="level must be in"):
            random_logits(2, 4, 2, 0).quantile(1.5)
        with pytest.raises(ValueError, match=r"level must be in .* where ξ is unbounded, got 1"):
            random_logits(1, 4, 2, 0).quantile(1.0)

    def test_negative_information_is_an_error(self) -> None:
        assert chaos._nonnegative(torch.tensor([-1e-9, 0.5])).tolist() == [0.0, 0.5]
        with pytest.raises(ArithmeticError, match="mutual information must not be negative"):
            chaos._nonnegative(torch.tensor([0.5, -1e-3]))
