from __future__ import annotations

import copy
import io
import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.polynomial.chebyshev import chebval
from torch import Tensor, nn

from paperworks.dssgnn.chaos import CHAOS_FAMILIES, ChaosLogits
from paperworks.dssgnn.filters import BASES, PRIORS, prior_coefficients, to_chebyshev
from paperworks.dssgnn.nn import DSSGNN, DSSHybrid

with warnings.catch_warnings():
    # It compiles with torch.jit, which torch warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import APPNP, GCN
    from torch_geometric.testing import assert_module
    from torch_geometric.utils import to_torch_coo_tensor, to_torch_csr_tensor, to_undirected

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CS", "ignore:Sparse invariant checks")

SEED = st.integers(0, 2**31 - 1)
F, H, C = 5, 8, 3


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(seed: int, n: int) -> Tensor:
    """About half of the entries are zero."""
    x = torch.randn(n, F, generator=generator(seed))
    return x * (torch.rand(n, F, generator=generator(seed + 1)) < 0.5)


def edges_of(seed: int, n: int, p: float = 0.4) -> Tensor:
    upper = torch.rand(n, n, generator=generator(seed)).triu(1)
    return to_undirected(((upper > 0) & (upper < p)).nonzero().T, num_nodes=n)


def weights_of(seed: int, edge_index: Tensor) -> Tensor:
    """Positive and alike in both directions."""
    n = int(edge_index.max()) + 1
    table = torch.rand(n, n, generator=generator(seed)) + 0.1
    return (table + table.T)[edge_index[0], edge_index[1]]


def stir(module: nn.Module, seed: int, size: float = 0.3) -> None:
    """Move every parameter, so that nothing is hidden by an initial 0."""
    source = generator(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += size * torch.randn(parameter.shape, generator=source)


def network(seed: int = 0, **options: Any) -> DSSGNN:
    """A network in eval mode, all of whose parameters are random."""
    torch.manual_seed(seed)
    module = DSSGNN(F, C, **({"hidden_channels": H} | options))
    stir(module, seed)
    return module.eval()


def spectrum(n: int, edge_index: Tensor, weight: Tensor | None, self_loops: bool) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of the shift, from its dense matrix in float64."""
    adjacency = torch.eye(n, dtype=torch.float64) * self_loops
    adjacency[edge_index[0], edge_index[1]] = 1.0 if weight is None else weight.double()
    degree = adjacency.sum(1)
    root = torch.where(degree > 0, degree**-0.5, 0)
    values, vectors = torch.linalg.eigh(root[:, None] * adjacency * root)
    return values, vectors


def by_eigenvectors(
    module: DSSGNN, x: Tensor, edge_index: Tensor, weight: Tensor | None, prior: str, basis: str, self_loops: bool
) -> Tensor:
    """C_p = exp(γ_p) F_p(S) (relu(x W + b) V_p + c_p), from the definition, in float64."""
    frequencies, modes = spectrum(len(x), edge_index, weight, self_loops)
    hidden = (x.double() @ module.lin1.weight.double().T + module.lin1.bias.double()).relu()
    delta = module.filters.delta.detach().double()
    theta = prior_coefficients(prior, delta.shape[1] - 1) + to_chebyshev(delta, basis)
    orders = []
    for p, coefficients in enumerate(theta):
        response = torch.from_numpy(np.asarray(chebval(frequencies.numpy(), coefficients.numpy())))
        u = hidden @ module.weight2[p].double() + module.bias2[p].double()
        orders.append(module.gamma[p].double().exp() * modes @ (response[:, None] * (modes.T @ u)))
    return torch.stack(orders).detach()


@settings(max_examples=40)
@given(
    SEED,
    st.integers(1, 9),
    st.integers(0, 3),
    st.integers(1, 6),
    st.sampled_from(BASES),
    st.sampled_from(PRIORS),
    st.booleans(),
    st.booleans(),
)
def test_is_its_definition(
    seed: int, n: int, order: int, degree: int, basis: str, prior: str, loops: bool, weighted: bool
) -> None:
    x, edge_index = features(seed, n), edges_of(seed, n)
    assume(not weighted or edge_index.numel())
    weight = weights_of(seed, edge_index) if weighted else None
    module = network(seed, order=order, degree=degree, basis=basis, prior=prior, self_loops=loops)
    logits = module.coefficients(x, edge_index, weight)
    assert logits.coefs.shape == (order + 1, n, C)
    expected = by_eigenvectors(module, x, edge_index, weight, prior, basis, loops)
    torch.testing.assert_close(logits.coefs.double(), expected, atol=2e-4, rtol=2e-4)
    with torch.no_grad():
        log_p = module(x, edge_index, weight)
    torch.testing.assert_close(log_p, logits.log_predictive(8).detach())
    torch.testing.assert_close(log_p.exp().sum(1), torch.ones(n))
    assert (log_p < 0).all()


@settings(max_examples=25)
@given(SEED, st.integers(1, 10))
def test_is_permutation_equivariant(seed: int, n: int) -> None:
    x, edge_index = features(seed, n), edges_of(seed, n)
    module = network(seed)
    order = torch.randperm(n, generator=generator(seed))
    place = torch.empty_like(order)
    place[order] = torch.arange(n)
    coefs = module.coefficients(x, edge_index).coefs
    permuted = module.coefficients(x[order], place[edge_index]).coefs
    torch.testing.assert_close(permuted, coefs[:, order], atol=1e-5, rtol=1e-4)


@settings(max_examples=25)
@given(SEED, st.integers(2, 9))
def test_neither_the_order_of_the_edges_nor_their_layout_matters(seed: int, n: int) -> None:
    x, edge_index = features(seed, n), edges_of(seed, n)
    assume(edge_index.numel())
    weight = weights_of(seed, edge_index)
    module = network(seed)
    expected = module(x, edge_index, weight)
    order = torch.randperm(edge_index.shape[1], generator=generator(seed))
    assert torch.equal(module(x, edge_index[:, order], weight[order]), expected)
    for matrix in (to_torch_csr_tensor, to_torch_coo_tensor):
        assert torch.equal(module(x, matrix(edge_index, weight, size=(n, n))), expected)


@settings(max_examples=20)
@given(SEED, st.integers(1, 6), st.integers(1, 6))
def test_two_disjoint_graphs_are_as_if_apart(seed: int, m: int, n: int) -> None:
    first, second = (features(seed, m), edges_of(seed, m)), (features(seed + 2, n), edges_of(seed + 2, n))
    module = network(seed)
    together = module.coefficients(torch.cat([first[0], second[0]]), torch.cat([first[1], second[1] + m], 1)).coefs
    apart = torch.cat([module.coefficients(*first).coefs, module.coefficients(*second).coefs], 1)
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("weighted", [False, True])
def test_without_chaos_and_with_everything_frozen_it_is_appnp(weighted: bool) -> None:
    x, edge_index = features(0, 12), edges_of(0, 12)
    weight = weights_of(0, edge_index) if weighted else None
    torch.manual_seed(0)
    module = DSSGNN(F, C, hidden_channels=H, order=0, degree=10, filter_learning=False, gain=False, dropout=0.0)
    nn.init.normal_(module.bias2)
    first, second, peer = nn.Linear(F, H), nn.Linear(H, C), APPNP(10, 0.1)
    with torch.no_grad():
        first.weight.copy_(module.lin1.weight)
        first.bias.copy_(module.lin1.bias)
        second.weight.copy_(module.weight2[0].T)
        second.bias.copy_(module.bias2[0])
    expected = peer(second(first(x).relu()), edge_index, weight)
    torch.testing.assert_close(module.coefficients(x, edge_index, weight).mean, expected, atol=1e-5, rtol=1e-5)
    log_p = module(x, edge_index, weight)
    torch.testing.assert_close(log_p, expected.log_softmax(1), atol=1e-5, rtol=1e-5)
    target = torch.arange(12) % C
    nn.functional.nll_loss(log_p, target).backward()
    nn.functional.cross_entropy(expected, target).backward()
    assert first.weight.grad is not None
    assert second.weight.grad is not None
    assert first.weight.grad.abs().max() > 1e-3
    torch.testing.assert_close(module.lin1.weight.grad, first.weight.grad, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(module.weight2.grad[0], second.weight.grad.T, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(module.bias2.grad[0], second.bias.grad, atol=1e-5, rtol=1e-4)
    assert module.filters.delta.grad is None
    assert module.gamma.grad is None


@settings(max_examples=20)
@given(SEED)
def test_the_sign_of_odd_orders_is_free(seed: int) -> None:
    """The normal distribution is symmetric."""
    x, edge_index = features(seed, 6), edges_of(seed, 6)
    module = network(seed, order=3)
    expected = module(x, edge_index)
    with torch.no_grad():
        module.weight2[1::2] *= -1
        module.bias2[1::2] *= -1
    torch.testing.assert_close(module(x, edge_index), expected, atol=1e-5, rtol=1e-5)


def test_starts_as_documented() -> None:
    module = DSSGNN(F, C, hidden_channels=H, order=3)
    expected = torch.tensor([1.0, 0.3, 0.3 / math.sqrt(2), 0.3 / math.sqrt(6)])
    torch.testing.assert_close(module.gamma.exp().detach(), expected)
    assert module.lin1.weight.shape == (H, F)
    assert module.weight2.shape == (4, H, C)
    assert module.bias2.shape == (4, C)
    assert module.filters.delta.shape == (4, 11)
    for zero in (module.lin1.bias, module.bias2, module.filters.delta):
        assert not zero.any()
    # Glorot's uniform distribution: the bound and, from many draws, the variance.
    wide = DSSGNN(300, 200, hidden_channels=250, order=1)
    for weight, bound in ((wide.lin1.weight, math.sqrt(6 / 550)), (wide.weight2[0], math.sqrt(6 / 450))):
        assert bound * 0.99 < weight.abs().max() <= bound
        assert weight.var().item() == pytest.approx(bound**2 / 3, rel=0.03)
    assert not torch.equal(wide.weight2[0], wide.weight2[1])


def test_a_frozen_gain_stays_where_it_starts() -> None:
    module = DSSGNN(F, C, hidden_channels=H, order=2, gain=False)
    assert not module.gamma.requires_grad
    torch.testing.assert_close(module.gamma.exp().detach(), torch.tensor([1.0, 0.3, 0.3 / math.sqrt(2)]))


def test_parameters_start_anew() -> None:
    module = network(3)
    torch.manual_seed(7)
    module.reset_parameters()
    fresh = DSSGNN(F, C, hidden_channels=H)
    torch.manual_seed(7)
    fresh.reset_parameters()
    for name, value in fresh.state_dict().items():
        assert torch.equal(module.state_dict()[name], value), name


def test_every_parameter_is_reached_by_the_loss() -> None:
    x, edge_index = features(1, 9), edges_of(1, 9)
    module = network(1)
    log_p = module(x, edge_index)
    nn.functional.nll_loss(log_p, torch.arange(9) % C).backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        for order in parameter.grad if name in ("weight2", "bias2", "gamma") else [parameter.grad]:
            assert order.abs().max() > 0, name
    assert (module.filters.delta.grad.abs().amax(1) > 0).all()


def test_expand_is_coefficients_with_the_shift_built_before() -> None:
    x, edge_index = features(2, 9), edges_of(2, 9)
    weight = weights_of(2, edge_index)
    module = network(2)
    shift = module.shift(edge_index, weight, 9, torch.float32)
    assert torch.equal(module.expand(x, shift).coefs, module.coefficients(x, edge_index, weight).coefs)


@pytest.mark.parametrize("family", CHAOS_FAMILIES)
def test_every_chaos_is_the_one_of_its_logits(family: str) -> None:
    x, edge_index = features(3, 7), edges_of(3, 7)
    exponents = {"laguerre": {"chaos_a": 0.5}, "jacobi": {"chaos_a": 0.5, "chaos_b": -0.5}}.get(family, {})
    module = network(3, chaos=family, **exponents)
    logits = module.coefficients(x, edge_index)
    assert logits.basis.family == family
    assert (logits.basis.a, logits.basis.b) == (exponents.get("chaos_a", 0.0), exponents.get("chaos_b", 0.0))
    torch.testing.assert_close(module(x, edge_index), logits.log_predictive(8))


def test_the_number_of_quadrature_nodes_is_the_one_asked_for() -> None:
    x, edge_index = features(4, 7), edges_of(4, 7)
    module = network(4, q_train=3)
    with torch.no_grad():
        module.gamma += 1.5
    logits = module.coefficients(x, edge_index)
    assert torch.equal(module(x, edge_index), logits.log_predictive(3))
    assert (module(x, edge_index) - logits.log_predictive(8)).abs().max() > 1e-4


def test_sparse_features_are_dense_features() -> None:
    x, edge_index = features(5, 9), edges_of(5, 9)
    module = network(5, dropout=0.0).train()
    gradients, outputs = [], []
    for layout in (x, x.to_sparse_csr(), x.to_sparse_coo()):
        module.zero_grad()
        log_p = module(layout, edge_index)
        nn.functional.nll_loss(log_p, torch.arange(9) % C).backward()
        outputs.append(log_p.detach())
        gradients.append(module.lin1.weight.grad.clone())
    for output, gradient in zip(outputs[1:], gradients[1:], strict=True):
        torch.testing.assert_close(output, outputs[0], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(gradient, gradients[0], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
def test_dropout_of_features_keeps_their_mean(sparse: bool) -> None:
    """One feature a node: dropped or doubled at probability .5, and never touched in eval mode."""
    n = 4000
    module = DSSGNN(n, C, hidden_channels=2, dropout=0.5)
    nn.init.ones_(module.lin1.weight)
    x = torch.eye(n)
    seen: list[Tensor] = []
    module.lin1.register_forward_hook(lambda _module, _inputs, output: seen.append(output.detach()))
    nodes = torch.arange(n)
    edge_index = torch.stack([torch.cat([nodes[:-1], nodes[1:]]), torch.cat([nodes[1:], nodes[:-1]])])
    with torch.no_grad():
        torch.manual_seed(0)
        module.train()(x.to_sparse_csr() if sparse else x, edge_index)
        module.eval()(x.to_sparse_csr() if sparse else x, edge_index)
    trained, evaluated = (values[:, 0] for values in seen)
    assert set(trained.tolist()) == {0.0, 2.0}
    assert trained.mean().item() == pytest.approx(1, abs=0.06)
    assert (evaluated == 1).all()


def test_dropout_is_only_for_training() -> None:
    x, edge_index = features(6, 9), edges_of(6, 9)
    module = network(6)
    assert torch.equal(module(x, edge_index), module(x, edge_index))
    module.train()
    assert not torch.equal(module(x, edge_index), module(x, edge_index))
    torch.manual_seed(0)
    first = module(x, edge_index)
    torch.manual_seed(0)
    assert torch.equal(module(x, edge_index), first)
    still = network(6, dropout=0.0)
    assert torch.equal(still.train()(x, edge_index), still.eval()(x, edge_index))


class TestRegularization:
    def penalty(self, *variances: float, **options: Any) -> float:
        """The penalty of one node with logits of these variances, half of them in the order 2."""
        deviation = torch.tensor([variances]).div(2).sqrt()
        logits = ChaosLogits(torch.stack([torch.ones_like(deviation), deviation, deviation]))
        return network().regularization(logits, **options).item()

    @pytest.mark.parametrize(("variance", "expected"), [(1.0, 0.0), (4.0, 0.80685), (0.25, 0.31815)])
    def test_known_answers(self, variance: float, expected: float) -> None:
        assert self.penalty(variance) == pytest.approx(expected, abs=3e-4)
        assert self.penalty(variance) == pytest.approx((variance - math.log(variance + 1e-4) - 1) / 2, abs=1e-6)

    def test_is_the_mean_over_nodes_and_classes(self) -> None:
        assert self.penalty(4.0, 0.25, 1.0) == pytest.approx((0.80685 + 0.31815) / 3, abs=3e-4)

    def test_no_variance_is_finite_with_a_finite_gradient(self) -> None:
        assert self.penalty(0.0) == pytest.approx((-math.log(1e-4) - 1) / 2, abs=1e-5)
        coefs = torch.zeros(3, 2, C, requires_grad=True)
        network().regularization(ChaosLogits(coefs)).backward()
        assert coefs.grad is not None
        assert coefs.grad.isfinite().all()

    def test_the_anchor_is_a_standard_deviation(self) -> None:
        assert self.penalty(4.0, s0=2.0) == pytest.approx(self.penalty(1.0), abs=1e-6)
        assert self.penalty(2.25, s0=3.0) == pytest.approx(0.31815, abs=3e-4)

    def test_an_anchor_for_each_node(self) -> None:
        higher = torch.tensor([[[1.0, -1.0], [2.0, 2.0], [0.5, 0.5]]])
        logits = ChaosLogits(torch.cat([torch.zeros_like(higher), higher]))
        penalty = network().regularization
        assert penalty(logits, torch.tensor([1.0, 2.0, 0.5])).item() == pytest.approx(0, abs=1e-4)
        assert penalty(logits, torch.tensor([1.0, 1.0, 1.0])).item() == pytest.approx((0.80685 + 0.31815) / 3, abs=3e-4)

    def test_an_anchor_relative_to_the_spread_of_the_mean(self) -> None:
        coefs = torch.randn(3, 4, C, generator=generator(0)).requires_grad_()
        penalty = network().regularization
        value = penalty(ChaosLogits(coefs), "relative")
        assert penalty(ChaosLogits(3 * coefs), "relative").item() == pytest.approx(value.item(), abs=1e-4)
        mean = coefs[0].detach()
        per_node = [penalty(ChaosLogits(coefs), mean.std(1, correction=k)).item() for k in (0, 1)]
        assert min(abs(value.item() - other) for other in per_node) < 1e-4
        value.backward()
        assert coefs.grad is not None
        assert not coefs.grad[0].any()
        assert coefs.grad[1:].abs().max() > 0

    def test_a_relative_anchor_where_the_mean_has_no_spread(self) -> None:
        coefs = torch.ones(3, 2, C, requires_grad=True)
        value = network().regularization(ChaosLogits(coefs), "relative")
        value.backward()
        assert value.isfinite()
        assert coefs.grad is not None
        assert coefs.grad.isfinite().all()

    def test_a_single_class(self) -> None:
        value = network().regularization(ChaosLogits(torch.ones(2, 3, 1)))
        assert value.item() == pytest.approx(0, abs=1e-4)

    def test_no_chaos(self) -> None:
        assert network().regularization(ChaosLogits(torch.ones(1, 3, C))).isfinite()

    @pytest.mark.untyped
    @pytest.mark.parametrize("s0", [0.0, -1.0, math.nan, "absolute"])
    def test_bad_anchors(self, s0: Any) -> None:
        with pytest.raises(ValueError, match="s0"):
            network().regularization(ChaosLogits(torch.ones(2, 3, C)), s0)


class TestParameterGroups:
    def settings_of(self, module: nn.Module, groups: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """The group of each parameter by name; each is in one only."""
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        found: dict[str, dict[str, Any]] = {}
        for group in groups:
            for parameter in group["params"]:
                assert names[id(parameter)] not in found
                found[names[id(parameter)]] = group
        return found

    def test_decay(self) -> None:
        module = network()
        found = self.settings_of(module, module.param_groups(0.02, 5e-4, 0.03))
        assert set(found) == {name for name, parameter in module.named_parameters() if parameter.requires_grad}
        decay = {name: group.get("weight_decay", 0) for name, group in found.items()}
        assert decay["gamma"] == 0
        assert decay["filters.delta"] == 0.03
        assert decay["lin1.weight"] == decay["weight2"] == 5e-4
        assert {group["lr"] for group in found.values()} == {0.02}
        torch.optim.Adam(module.param_groups(0.02, 5e-4, 0.03))

    def test_what_is_frozen_stays(self) -> None:
        x, edge_index = features(7, 9), edges_of(7, 9)
        module = network(7, filter_learning=False, gain=False)
        before = copy.deepcopy(module.state_dict())
        optimizer = torch.optim.Adam(module.param_groups(0.1, 0.1, 0.1))
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.nll_loss(module(x, edge_index), torch.arange(9) % C).backward()
            optimizer.step()
        after = module.state_dict()
        for name in ("gamma", "filters.delta"):
            assert torch.equal(after[name], before[name])
        assert not torch.equal(after["weight2"], before["weight2"])

    def test_of_a_hybrid(self) -> None:
        module = hybrid(0)
        found = self.settings_of(module, module.param_groups(0.02, 5e-4, 0.03))
        assert set(found) == {name for name, parameter in module.named_parameters() if parameter.requires_grad}
        decay = {name: group.get("weight_decay", 0) for name, group in found.items()}
        assert decay["beta"] == 0
        assert [value for name, value in decay.items() if name.endswith("gamma")] == [0]
        assert [value for name, value in decay.items() if name.endswith("delta")] == [0.03]
        assert {value for name, value in decay.items() if "encoder" in name and name.endswith("weight")} == {5e-4}


class Export(nn.Module):
    """A network on a graph that stays: the shift of a graph needs as many numbers as it happens to have edges."""

    def __init__(self, module: DSSGNN, edge_index: Tensor) -> None:
        super().__init__()
        self.module = module
        self.register_buffer("fixed", module.shift(edge_index).to_dense())

    def forward(self, x: Tensor) -> Tensor:
        return self.module.expand(x, self.fixed).log_predictive(8)


class TestPyTorch:
    def test_conforms_to_torch_geometric(self) -> None:
        x, edge_index = features(8, 9), edges_of(8, 9)
        assert_module(network(8), x, edge_index, expected_size=(9, C))
        assert_module(network(8, self_loops=False), x, edge_index, expected_size=(9, C))
        assert_module(hybrid(8).eval(), x, edge_index, expected_size=(9, C))

    def test_the_state_is_restored_to_the_bit(self) -> None:
        x, edge_index = features(9, 9), edges_of(9, 9)
        module, other = network(9), network(10)
        assert not torch.equal(other(x, edge_index), module(x, edge_index))
        buffer = io.BytesIO()
        torch.save(module.state_dict(), buffer)
        buffer.seek(0)
        other.load_state_dict(torch.load(buffer, weights_only=True))
        assert torch.equal(other(x, edge_index), module(x, edge_index))
        for name, value in module.state_dict().items():
            assert torch.equal(other.state_dict()[name], value), name

    @pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
    def test_copies(self, copied: Any) -> None:
        x, edge_index = features(10, 9), edges_of(10, 9)
        for module in (network(10), hybrid(10).eval()):
            twin = copied(module)
            assert torch.equal(twin(x, edge_index), module(x, edge_index))
            stir(twin, 0)
            assert not torch.equal(twin(x, edge_index), module(x, edge_index))

    @pytest.mark.untyped
    def test_exports(self) -> None:
        x, edge_index = features(11, 9), edges_of(11, 9)
        module = network(11)
        program = torch.export.export(Export(module, edge_index), (x,), strict=False)
        torch.testing.assert_close(program.module()(x), module(x, edge_index))
        torch.testing.assert_close(program.module()(2 * x), module(2 * x, edge_index))

    def test_double_precision(self) -> None:
        x, edge_index = features(12, 9), edges_of(12, 9)
        module = network(12)
        single = module(x, edge_index)
        double = module.double()(x.double(), edge_index)
        assert double.dtype == torch.float64
        torch.testing.assert_close(double.float(), single, atol=1e-5, rtol=1e-5)

    def test_repr_names_the_settings(self) -> None:
        assert "DSSGNN" in repr(network())


class TestSmallGraphs:
    @pytest.mark.parametrize("n", [1, 4])
    @pytest.mark.parametrize(("self_loops", "response"), [(True, 1.0), (False, 0.1)])
    def test_no_edges(self, n: int, self_loops: bool, response: float) -> None:
        """Personalised PageRank is 1 at S = 1, where each node is its own neighbour, and .1 at S = 0."""
        torch.manual_seed(0)
        module = DSSGNN(F, C, hidden_channels=H, self_loops=self_loops).eval()
        x = features(13, n)
        logits = module.coefficients(x, torch.empty(2, 0, dtype=torch.long))
        hidden = module.lin1(x).relu()
        u = torch.einsum("nh,phc->pnc", hidden, module.weight2) * module.gamma.exp()[:, None, None]
        torch.testing.assert_close(logits.coefs, response * u, atol=1e-6, rtol=1e-5)
        assert module(x, torch.empty(2, 0, dtype=torch.long)).isfinite().all()

    def test_an_isolated_node_is_alone(self) -> None:
        x = features(14, 4)
        edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        module = network(14)
        coefs = module.coefficients(x, edge_index).coefs
        alone = module.coefficients(x[3:], torch.empty(2, 0, dtype=torch.long)).coefs
        torch.testing.assert_close(coefs[:, 3:], alone, atol=1e-6, rtol=1e-5)

    def test_degree_0_does_not_look_at_the_graph(self) -> None:
        x = features(15, 6)
        module = network(15, degree=0)
        assert torch.equal(module(x, edges_of(15, 6)), module(x, torch.empty(2, 0, dtype=torch.long)))


@pytest.mark.untyped
class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"order": -1}, "order must be at least 0, got -1"),
            ({"degree": -1}, "-1"),
            ({"basis": "fourier"}, "chebyshev.*monomial.*bernstein.*jacobi.*legendre.*fourier"),
            ({"chaos": "fourier"}, "hermite.*legendre.*laguerre.*jacobi.*fourier"),
            ({"prior": "fourier"}, "ppr.*identity.*fourier"),
            ({"chaos": "laguerre", "chaos_a": -1.0}, "greater than -1, got -1"),
            ({"chaos": "jacobi", "chaos_b": -1.5}, "greater than -1, got -1.5"),
            ({"q_train": 2}, r"q(_train)?=2 quadrature nodes cannot resolve order 2; need q(_train)? >= 3"),
            ({"dropout": 1.5}, "dropout"),
            ({"dropout": -0.5}, "dropout"),
            ({"hidden_channels": 0}, "hidden_channels"),
        ],
    )
    def test_settings(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            DSSGNN(F, C, **options)

    @pytest.mark.parametrize(("channels", "name"), [((0, C), "in_channels"), ((F, 0), "out_channels")])
    def test_channels(self, channels: tuple[int, int], name: str) -> None:
        with pytest.raises(ValueError, match=name):
            DSSGNN(*channels)

    @pytest.mark.parametrize(
        ("kind", "edge_index", "message"),
        [
            (ValueError, torch.tensor([[0, 12], [12, 0]]), "edge_index refers to node 12 but x has 10 rows"),
            (ValueError, torch.tensor([[0, -1], [-1, 0]]), "edge_index refers to node -1 but x has 10 rows"),
            (ValueError, torch.zeros(3, 4, dtype=torch.long), r"\(3, 4\)"),
            (TypeError, torch.zeros(2, 4), "float32"),
        ],
    )
    def test_edges(self, kind: type[Exception], edge_index: Tensor, message: str) -> None:
        with pytest.raises(kind, match=message):
            network()(features(0, 10), edge_index)

    @pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
    def test_weights(self, weight: float) -> None:
        edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        with pytest.raises(ValueError, match=r"edge_weight.*edge 2"):
            network()(features(0, 3), edge_index, torch.tensor([1.0, 1.0, weight, weight]))

    @pytest.mark.parametrize("value", [math.nan, -math.inf])
    def test_features_that_are_not_finite(self, value: float) -> None:
        x, edge_index = features(0, 4), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        x[2:, 1] = value
        for module in (network(), hybrid(0)):
            for layout in (x, x.to_sparse_csr()):
                with pytest.raises(ValueError, match=r"x contains NaN or infinity.*row 2"):
                    module(layout, edge_index)

    def test_number_of_features(self) -> None:
        with pytest.raises(ValueError, match=rf"{F + 1}.*{F}|{F}.*{F + 1}"):
            network()(torch.zeros(4, F + 1), torch.empty(2, 0, dtype=torch.long))

    def test_what_is_repeated_counts_once_and_is_told_once(self) -> None:
        x, edge_index = features(1, 4), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        untidy = torch.cat([edge_index, edge_index[:, :2], torch.tensor([[3], [3]])], 1)
        module = network(1)
        with pytest.warns(UserWarning, match=r"2 repeated edges.*1 self loop") as caught:
            log_p = module(x, untidy)
        assert len(caught) == 1
        assert torch.equal(log_p, module(x, edge_index))

    def test_one_direction_only(self) -> None:
        x, edge_index = features(2, 4), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        module = network(2)
        with pytest.warns(UserWarning, match="directed"):
            log_p = module(x, edge_index[:, ::2])
        assert torch.equal(log_p, module(x, edge_index))


class Ignorant(nn.Module):
    """An encoder that looks at one feature only."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.scale * x[:, :1].expand(-1, self.width)


def hybrid(seed: int, encoder: nn.Module | None = None, **options: Any) -> DSSHybrid:
    torch.manual_seed(seed)
    peer = GCN(F, H, 2, C) if encoder is None else encoder
    module = DSSHybrid(peer, F, C, hidden_channels=H, **options)
    beta = module.beta.detach().clone()
    stir(module, seed)
    with torch.no_grad():
        module.beta.copy_(beta)
    return module


class TestHybrid:
    def test_beta_of_0_is_the_encoder_to_the_bit(self) -> None:
        x, edge_index = features(20, 9), edges_of(20, 9)
        encoder = GCN(F, H, 2, C)
        module = hybrid(20, encoder, beta=0.0).eval()
        logits = module.coefficients(x, edge_index)
        assert torch.equal(logits.mean, encoder(x, edge_index))
        assert not logits.coefs[1:].any()
        torch.testing.assert_close(module(x, edge_index), encoder(x, edge_index).log_softmax(1), atol=1e-6, rtol=1e-5)

    def test_the_branch_is_added_beta_times(self) -> None:
        x, edge_index = features(21, 9), edges_of(21, 9)
        module = hybrid(21).eval()
        assert module.beta.item() == pytest.approx(0.3)
        assert isinstance(module.beta, nn.Parameter)
        mean = module.encoder(x, edge_index)
        first = module.coefficients(x, edge_index).coefs
        with torch.no_grad():
            module.beta.fill_(-1.2)
        second = module.coefficients(x, edge_index).coefs
        torch.testing.assert_close(second[0] - mean, -4 * (first[0] - mean), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(second[1:], -4 * first[1:], atol=1e-5, rtol=1e-4)
        assert (first[0] - mean).abs().max() > 0.01
        assert first.shape == (3, 9, C)

    def test_the_branch_is_a_dssgnn(self) -> None:
        """With an encoder that says 0 and beta 1 nothing else is left."""
        x, edge_index = features(22, 9), edges_of(22, 9)
        module = hybrid(22, Ignorant(C), beta=1.0, degree=4, prior="heat").eval()
        with torch.no_grad():
            module.encoder.scale.zero_()
        alone = DSSGNN(F, C, hidden_channels=H, degree=4, prior="heat").eval()
        (branch,) = (part for part in module.modules() if isinstance(part, DSSGNN) and part is not module)
        alone.load_state_dict(branch.state_dict())
        expected = alone.coefficients(x, edge_index).coefs
        torch.testing.assert_close(module.coefficients(x, edge_index).coefs, expected, atol=1e-6, rtol=1e-6)

    def test_both_branches_are_trained(self) -> None:
        x, edge_index = features(23, 9), edges_of(23, 9)
        module = hybrid(23)
        nn.functional.nll_loss(module(x, edge_index), torch.arange(9) % C).backward()
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0, name

    def test_a_frozen_encoder_stays(self) -> None:
        """Its weights, what it has learned of batches, and its lack of dropout."""
        x, edge_index = features(24, 9), edges_of(24, 9)
        encoder = GCN(F, H, 2, C, dropout=0.5, norm="batch_norm")
        module = hybrid(24, encoder, freeze_encoder=True, dropout=0.0)
        before = copy.deepcopy(encoder.state_dict())
        module.train()
        optimizer = torch.optim.Adam(module.param_groups(0.1, 0.1, 0.1))
        for _ in range(2):
            optimizer.zero_grad()
            nn.functional.nll_loss(module(x, edge_index), torch.arange(9) % C).backward()
            optimizer.step()
        for name, value in encoder.state_dict().items():
            assert torch.equal(value, before[name]), name
        assert torch.equal(module(x, edge_index), module(x, edge_index))
        assert module.beta.grad is not None

    def test_the_residual_is_what_is_added_to_the_encoder(self) -> None:
        x, edge_index = features(25, 9), edges_of(25, 9)
        module = hybrid(25).eval()
        coefs = module.coefficients(x, edge_index).coefs
        residual = module.residual(x, module.shift(edge_index, None, 9, torch.float32))
        torch.testing.assert_close(module.encoder(x, edge_index) + residual[0], coefs[0])
        torch.testing.assert_close(residual[1:], coefs[1:])

    def test_regularizes_the_variance_of_the_whole(self) -> None:
        x, edge_index = features(26, 9), edges_of(26, 9)
        module = hybrid(26).eval()
        logits = module.coefficients(x, edge_index)
        variance = logits.coefs[1:].square().sum(0)
        expected = (variance - (variance + 1e-4).log() - 1).mean() / 2
        torch.testing.assert_close(module.regularization(logits), expected)

    def test_edge_weights_do_not_need_an_encoder_that_takes_them(self) -> None:
        x, edge_index = features(27, 9), edges_of(27, 9)
        weight = weights_of(27, edge_index)
        module = hybrid(27, Ignorant(C)).eval()
        assert not torch.equal(module(x, edge_index, weight), module(x, edge_index))
        # One that takes them gets them.
        taking = hybrid(27, beta=0.0).eval()
        expected = taking.encoder(x, edge_index, weight)
        assert torch.equal(taking.coefficients(x, edge_index, weight).mean, expected)

    def test_parameters_start_anew(self) -> None:
        module = hybrid(28)
        with torch.no_grad():
            module.beta.fill_(2.0)
        module.reset_parameters()
        assert module.beta.item() == pytest.approx(0.3)

    @pytest.mark.untyped
    def test_an_encoder_of_another_width(self) -> None:
        module = hybrid(29, Ignorant(C + 1))
        with pytest.raises(ValueError, match=rf"{C}.*{C + 1}|{C + 1}.*{C}"):
            module(features(29, 9), edges_of(29, 9))

    @pytest.mark.untyped
    @pytest.mark.parametrize("encoder", [nn.Linear(F, C), 3, "gcn"])
    def test_an_encoder_without_a_graph(self, encoder: Any) -> None:
        with pytest.raises(TypeError, match=r"edge_index|encoder"):
            DSSHybrid(encoder, F, C)(features(30, 9), edges_of(30, 9))
