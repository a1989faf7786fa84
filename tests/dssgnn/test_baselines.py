from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import digamma
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from paperworks.dssgnn.chaos import propagate_scores
from paperworks.dssgnn.filters import normalized_shift, prior_coefficients, response
from paperworks.dssgnn.graphs import make_graph

with warnings.catch_warnings():
    # torch_geometric compiles with torch.jit, which torch warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.data import Data
    from torch_geometric.nn import APPNP

    from paperworks.dssgnn.baselines import (
        APPNPClassifier,
        DeepEnsemble,
        GATClassifier,
        GCNClassifier,
        GNNSafe,
        MCDropout,
        MLPClassifier,
        NetworkClassifier,
        NodeClassifier,
    )
    from paperworks.dssgnn.gpn import GPN, RadialFlows, posterior_loss

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CS")

QUICK: dict[str, Any] = {"hidden_channels": 8, "epochs": 12, "random_state": 0, "device": "cpu"}
NETWORKS = [GCNClassifier, GATClassifier, APPNPClassifier, MLPClassifier, GPN]
SEED = st.integers(0, 2**31 - 1)


def blocks(n: int = 60, classes: int = 3, features: int = 6, seed: int = 0) -> Data:
    """Return a graph of communities, one a class, with features that tell them apart; nodes 40 … have no label."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    near = torch.rand(n, n, generator=generator).triu(1)
    share = torch.where(y[:, None] == y, 0.3, 0.02).triu(1)
    upper = ((near > 0) & (near < share)).nonzero().T
    x = torch.randn(n, features, generator=generator)
    x[torch.arange(n), y] += 1.5
    data = Data(x=x, edge_index=torch.cat([upper, upper.flip(0)], 1), y=y.where(torch.arange(n) < 40, -1))
    data.train_mask, data.val_mask = torch.arange(n) < 20, (torch.arange(n) >= 20) & (torch.arange(n) < 40)
    data.test_mask, data.truth = torch.arange(n) >= 40, y
    return data


DATA = blocks()


def fitted(kind: type[NetworkClassifier], **options: Any) -> Any:
    return kind(**{**QUICK, "weight_decays": (5e-4,), **options}).fit(DATA)


@pytest.fixture(scope="module")
def gcn() -> GCNClassifier:
    return GCNClassifier(**QUICK).fit(DATA)


@pytest.mark.parametrize("kind", NETWORKS)
def test_every_network_learns_and_keeps_the_protocol(kind: type[NetworkClassifier]) -> None:
    model = kind(hidden_channels=16, epochs=60, weight_decays=(5e-4,), random_state=0, device="cpu").fit(DATA)
    proba = model.predict_proba(DATA)
    assert proba.shape == (60, 3)
    np.testing.assert_allclose(proba.sum(1), 1, atol=1e-12)
    assert (model.predict(DATA) == DATA.truth.numpy())[DATA.test_mask].mean() > 0.6
    np.testing.assert_allclose(model.logits(DATA).double().softmax(1), proba, atol=1e-12)
    for method in model.scores:
        score = model.ood_score(DATA, method)
        assert score.shape == (60,)
        assert np.isfinite(score).all()
    np.testing.assert_array_equal(model.ood_score(DATA), model.ood_score(DATA, model.scores[0]))
    np.testing.assert_array_equal(model.ood_score(DATA, "msp"), -proba.max(1))
    np.testing.assert_allclose(model.ood_score(DATA, "entropy"), stats.entropy(proba, axis=1), atol=1e-12)


@pytest.mark.parametrize("kind", NETWORKS)
def test_sparse_features_without_dropout_train_as_dense_ones(kind: type[NetworkClassifier]) -> None:
    sparse = DATA.clone()
    sparse.x = DATA.x.to_sparse_csr()
    options = {**QUICK, "weight_decays": (5e-4,), "dropout": 0.0, "epochs": 5}
    dense, other = kind(**options).fit(DATA), kind(**options).fit(sparse)
    np.testing.assert_allclose(other.predict_proba(sparse), dense.predict_proba(DATA), atol=1e-4)


def test_candidates_are_compared_by_validation_likelihood(gcn: GCNClassifier) -> None:
    table = gcn.selection_
    assert table["weight_decay"].tolist() == [5e-4, 5e-3, 0.0]
    assert table["selected"].sum() == 1
    assert table.loc[table["selected"], "validation_nll"].item() == table["validation_nll"].min()
    assert gcn.weight_decay_ == table.loc[table["selected"], "weight_decay"].item()
    mask = DATA.val_mask
    chosen = gcn.predict_proba(DATA)[mask, DATA.y[mask]]
    assert -np.log(chosen).mean() == pytest.approx(table["validation_nll"].min(), abs=1e-6)
    alone = GCNClassifier(**QUICK, weight_decays=(gcn.weight_decay_,)).fit(DATA)
    np.testing.assert_array_equal(alone.predict_proba(DATA), gcn.predict_proba(DATA))


def test_labels_of_test_nodes_are_not_read(gcn: GCNClassifier) -> None:
    labelled = DATA.clone()
    labelled.y = DATA.truth
    np.testing.assert_array_equal(GCNClassifier(**QUICK).fit(labelled).predict_proba(DATA), gcn.predict_proba(DATA))


def test_a_seed_is_drawn_where_none_is_given() -> None:
    first, second = (fitted(MLPClassifier, random_state=None, epochs=1) for _ in range(2))
    assert first.seed_ != second.seed_
    again = fitted(MLPClassifier, random_state=first.seed_, epochs=1)
    np.testing.assert_array_equal(again.predict_proba(DATA), first.predict_proba(DATA))


def test_gcn_is_two_products_with_the_shift(gcn: GCNClassifier) -> None:
    network: Any = gcn.network_
    shift = normalized_shift(DATA.edge_index, num_nodes=60).to_dense()
    hidden = (shift @ DATA.x @ network.first.lin.weight.T + network.first.bias).relu()
    expected = shift @ hidden @ network.second.lin.weight.T + network.second.bias
    torch.testing.assert_close(gcn.logits(DATA), expected)


def test_appnp_filters_the_network_by_personalised_pagerank() -> None:
    model = fitted(APPNPClassifier, K=7, alpha=0.2)
    eigenvalues, vectors = torch.linalg.eigh(normalized_shift(DATA.edge_index, num_nodes=60).to_dense().double())
    gains = response(prior_coefficients("ppr", 7, alpha=0.2), eigenvalues)
    network: Any = model.network_
    with torch.no_grad():
        local = network.second(network.first(DATA.x).relu()).double()
    expected = vectors @ (gains[:, None] * (vectors.T @ local))
    torch.testing.assert_close(model.logits(DATA).double(), expected, atol=1e-5, rtol=1e-5)


def test_mlp_sees_no_edges_and_gat_no_weights() -> None:
    other = DATA.clone()
    other.edge_index = DATA.edge_index[:, :0]
    mlp = fitted(MLPClassifier)
    np.testing.assert_array_equal(mlp.predict_proba(other), mlp.predict_proba(DATA))
    other.edge_index, other.edge_weight = DATA.edge_index, torch.full((DATA.num_edges,), 3.0)
    gat, gcn = fitted(GATClassifier), fitted(GCNClassifier)
    np.testing.assert_array_equal(gat.predict_proba(other), gat.predict_proba(DATA))
    assert np.abs(gcn.predict_proba(other) - gcn.predict_proba(DATA)).max() > 1e-3


def test_gat_attends_to_each_neighbour_once_and_to_itself() -> None:
    gat = fitted(GATClassifier)
    network: Any = gat.network_
    with torch.no_grad():
        hidden = nn.functional.elu(network.first(DATA.x, _loops(DATA.edge_index, 60)))
        source, target = _loops(DATA.edge_index, 60)
        z = hidden @ network.second.lin.weight.T
        score = nn.functional.leaky_relu(
            (z[source] * network.second.att_src[0]).sum(1) + (z[target] * network.second.att_dst[0]).sum(1), 0.2
        ).exp()
        total = torch.zeros(60).index_add(0, target, score)
        mean = torch.zeros(60, 3).index_add(0, target, score[:, None] * z[source]) / total[:, None]
    torch.testing.assert_close(gat.logits(DATA), mean + network.second.bias)
    assert network.first.heads == 8
    assert network.first.out_channels == 1


def _loops(edges: Tensor, n: int) -> Tensor:
    return torch.cat([edges, torch.arange(n).expand(2, n)], 1)


@pytest.mark.parametrize("kind", [GCNClassifier, GATClassifier, GPN])
def test_relabelled_nodes_get_the_same_predictions(kind: type[NetworkClassifier]) -> None:
    model = fitted(kind)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(1))
    moved = Data(x=DATA.x[order], edge_index=order.argsort()[DATA.edge_index].flip(1))
    np.testing.assert_allclose(model.predict_proba(moved), model.predict_proba(DATA)[order], atol=1e-5)


def test_batch_norm_is_over_the_nodes() -> None:
    model = fitted(GCNClassifier, batch_norm=True)
    before = model.predict_proba(DATA)
    assert any(isinstance(part, nn.BatchNorm1d) for part in model.network_.modules())
    MCDropout(model, 3, random_state=0, prefit=True).fit(DATA).predict_proba(DATA)
    np.testing.assert_array_equal(model.predict_proba(DATA), before)


def test_mc_dropout_averages_probabilities_of_passes(gcn: GCNClassifier) -> None:
    model = MCDropout(gcn, random_state=3, prefit=True).fit(DATA)
    members = model.member_proba(DATA)
    assert members.shape == (20, 60, 3)
    np.testing.assert_allclose(model.predict_proba(DATA), members.mean(0), atol=1e-12)
    np.testing.assert_array_equal(model.predict_proba(DATA), model.predict_proba(DATA))
    assert members.std(0).max() > 0.01
    assert not gcn.network_.training
    np.testing.assert_allclose(
        MCDropout(fitted(GCNClassifier, dropout=0.0), 2, prefit=True).fit(DATA).member_proba(DATA).std(0), 0
    )


def test_members_give_entropy_and_mutual_information(gcn: GCNClassifier) -> None:
    model = MCDropout(gcn, 5, random_state=0, prefit=True).fit(DATA)
    members = model.member_proba(DATA).numpy()
    total = stats.entropy(members.mean(0), axis=1)
    np.testing.assert_allclose(model.ood_score(DATA), total, atol=1e-12)
    expected = total - stats.entropy(members, axis=2).mean(0)
    np.testing.assert_allclose(model.ood_score(DATA, "mi"), expected, atol=1e-12)
    pairs = DATA.edge_index[:, :9]
    joint = np.einsum("mec,mec->e", members[:, pairs[0]], members[:, pairs[1]]) / 5
    np.testing.assert_allclose(model.agreement(DATA, pairs), joint, atol=1e-12)


def test_agreement_of_one_model_is_the_product_of_marginals(gcn: GCNClassifier) -> None:
    proba, pairs = gcn.predict_proba(DATA), DATA.edge_index[:, :9]
    np.testing.assert_allclose(gcn.agreement(DATA, pairs), (proba[pairs[0]] * proba[pairs[1]]).sum(1), atol=1e-12)


def test_ensemble_chooses_the_weight_decay_once(gcn: GCNClassifier) -> None:
    base = GCNClassifier(**QUICK)
    model = DeepEnsemble(base, 3, random_state=0).fit(DATA)
    first, *others = model.members_
    np.testing.assert_array_equal(first.predict_proba(DATA), gcn.predict_proba(DATA))
    assert [len(member.selection_) for member in model.members_] == [3, 1, 1]
    assert {member.weight_decay_ for member in others} == {first.weight_decay_}
    assert len({member.seed_ for member in model.members_}) == 3
    np.testing.assert_allclose(
        model.predict_proba(DATA), np.mean([member.predict_proba(DATA) for member in model.members_], axis=0)
    )
    assert base.random_state == 0
    assert not hasattr(base, "network_")
    np.testing.assert_array_equal(
        DeepEnsemble(base, 3, random_state=0).fit(DATA).predict_proba(DATA), model.predict_proba(DATA)
    )


def test_energy_is_minus_the_log_evidence_of_the_logits(gcn: GCNClassifier) -> None:
    expected = -np.logaddexp.reduce(gcn.logits(DATA).double().numpy(), axis=1)
    np.testing.assert_allclose(gcn.ood_score(DATA), expected, atol=1e-12)
    spread = propagate_scores(torch.from_numpy(expected), DATA.edge_index, steps=3, alpha=0.2)
    np.testing.assert_allclose(gcn.ood_score(DATA, propagate=(3, 0.2)), spread, atol=1e-12)
    safe = GNNSafe(gcn, prefit=True).fit(DATA)
    np.testing.assert_array_equal(safe.ood_score(DATA), gcn.ood_score(DATA, propagate=(2, 0.5)))
    np.testing.assert_array_equal(safe.ood_score(DATA, propagate=(0, 0.5)), gcn.ood_score(DATA))
    np.testing.assert_array_equal(safe.predict_proba(DATA), gcn.predict_proba(DATA))
    trained = GNNSafe(GCNClassifier(**QUICK), random_state=0).fit(DATA)
    np.testing.assert_array_equal(trained.ood_score(DATA), safe.ood_score(DATA))


@settings(max_examples=10)
@given(SEED)
def test_log_determinant_of_the_flows_is_that_of_the_jacobian(seed: int) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        flows = RadialFlows(2, 4, 3).double()
        for parameter in flows.parameters():
            nn.init.normal_(parameter)
        z = torch.randn(1, 4, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda point: flows(point[None])[0][0], z[0])
    torch.testing.assert_close(flows(z)[1][0], torch.linalg.slogdet(jacobian).logabsdet, rtol=1e-9, atol=1e-9)


def test_flows_are_densities() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        flows = RadialFlows(2, 1, 4).double()
        nn.init.normal_(flows.b, std=2)
    line = torch.linspace(-30, 30, 20_001, dtype=torch.float64)[:, None]
    mass = torch.trapezoid(flows.log_prob(line).exp(), line, dim=0)
    torch.testing.assert_close(mass, torch.ones(2, dtype=torch.float64), atol=1e-4, rtol=0)


def test_a_flow_without_strength_is_the_identity_and_its_centre_is_safe() -> None:
    flows = RadialFlows(1, 2, 1)
    with torch.no_grad():
        flows.b.copy_(flows.a)
    z = torch.cat([flows.center[0].detach(), torch.tensor([[3.0, -1.0]])]).requires_grad_()
    image, log_det = flows(z)
    torch.testing.assert_close(image[:, 0], z)
    torch.testing.assert_close(log_det, torch.zeros(2, 1))
    expected = torch.distributions.Normal(0, 1).log_prob(z).sum(1, keepdim=True)
    torch.testing.assert_close(flows.log_prob(z), expected)
    flows.log_prob(z).sum().backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_posterior_loss_is_the_expected_cross_entropy_less_entropy() -> None:
    alpha = np.array([[1.5, 4.0, 1.0], [20.0, 1.0, 2.0]])
    y = np.array([1, 2])
    expected = (digamma(alpha.sum(1)) - digamma(alpha[[0, 1], y])).sum()
    entropy = sum(stats.dirichlet(row).entropy() for row in alpha)
    loss = posterior_loss(torch.from_numpy(alpha), torch.from_numpy(y), 0.1)
    assert loss.item() == pytest.approx(expected - 0.1 * entropy, rel=1e-12)
    draws = stats.dirichlet(alpha[0]).rvs(20_000, random_state=0)
    one = posterior_loss(torch.from_numpy(alpha[:1]), torch.tensor([1]), 0.0)
    assert -np.log(draws[:, 1]).mean() == pytest.approx(one.item(), abs=0.02)


def test_gpn_adds_propagated_densities_to_a_flat_prior() -> None:
    model = fitted(GPN)
    network = model.network_
    counts = np.bincount(DATA.y[DATA.train_mask])
    np.testing.assert_allclose(network.log_prior, np.log(counts / counts.sum()), atol=1e-6)
    with torch.no_grad():
        z = network.encoder(DATA.x)
        log_q = network.flows.log_prob(z) + torch.from_numpy(np.log(counts / counts.sum())).float()
        evidence = (log_q + 8 * np.log(4 * np.pi)).clamp(-30, 30).exp()
        propagation = APPNP(10, 0.1)
        expected = 1 + propagation(evidence, DATA.edge_index)
    alpha = model.concentration(DATA)
    assert alpha.min() >= 1
    torch.testing.assert_close(alpha.float(), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(DATA), alpha / alpha.sum(1, keepdim=True), atol=1e-12)
    np.testing.assert_allclose(model.ood_score(DATA), -alpha.sum(1), rtol=1e-12)


def test_gpn_trains_only_flows_at_first_and_never_decays_them() -> None:
    def start(warm_up: int) -> dict[str, Tensor]:
        model = GPN(**{**QUICK, "epochs": 1}, weight_decays=(0.0,), lr=1e-9, warm_up=warm_up)
        model.n_classes_, model.n_features_in_, model.seed_ = 3, 6, 0
        with torch.random.fork_rng():
            torch.manual_seed(0)
            network = model._network(6, 3)
        model.lr = 0.01
        model._start(network, model._inputs(make_graph(DATA)), DATA.y, DATA.train_mask)
        return dict(network.state_dict())

    cold, warm = start(0), start(5)
    for name, value in cold.items():
        assert torch.equal(value, warm[name]) == (not name.startswith("flows."))
    decays = [group.get("weight_decay", 0) for group in GPN()._groups(fitted(GPN, epochs=1).network_, 0.5)]
    assert decays == [0.5, 0]


def test_gpn_far_away_features_have_little_evidence() -> None:
    model = GPN(hidden_channels=16, epochs=30, weight_decays=(5e-4,), random_state=0, device="cpu").fit(DATA)
    far = Data(x=100 * torch.ones_like(DATA.x), edge_index=DATA.edge_index)
    assert model.ood_score(far).mean() > model.ood_score(DATA).max()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": None}, "data must have y"),
        ({"val_mask": None}, "data must have val_mask"),
        ({"train_mask": torch.zeros(60, dtype=torch.bool)}, "train_mask is empty"),
        ({"train_mask": torch.arange(60) < 1}, "at least two classes"),
        ({"train_mask": torch.arange(60) < 23}, "train_mask and val_mask overlap in 3 nodes"),
        ({"val_mask": torch.arange(60) > 50}, "val_mask has [0-9]+ nodes without a label"),
        ({"val_mask": torch.ones(3, dtype=torch.bool)}, r"val_mask must be boolean with shape \(60,\)"),
    ],
)
def test_bad_splits_are_named(change: dict[str, Any], message: str) -> None:
    data = DATA.clone()
    for name, value in change.items():
        setattr(data, name, value)
    with pytest.raises(ValueError, match=message):
        fitted_on(data)


def fitted_on(data: Data) -> GCNClassifier:
    return GCNClassifier(**{**QUICK, "epochs": 1}).fit(data)


def test_a_class_without_training_node_is_warned_of() -> None:
    data = DATA.clone()
    data.y = torch.where(data.val_mask & (data.y == 2), 3, data.y)
    with pytest.warns(UserWarning, match="no node is in train_mask: 3"):
        model = fitted_on(data)
    assert model.predict_proba(data).shape == (60, 4)
    with pytest.warns(UserWarning, match="train_mask: 3"):
        gpn = GPN(**{**QUICK, "epochs": 4}, weight_decays=(0.0,)).fit(data)
    assert np.isfinite(gpn.predict_proba(data)).all()


@pytest.mark.untyped
def test_misuse_is_named(gcn: GCNClassifier) -> None:
    narrow = Data(x=DATA.x[:, :5], edge_index=DATA.edge_index)
    with pytest.raises(ValueError, match="X has 5 features, but GCNClassifier is expecting 6 features as input"):
        gcn.predict(narrow)
    with pytest.raises(ValueError, match="method must be one of 'energy', 'msp', 'entropy', got 'variance'"):
        gcn.ood_score(DATA, "variance")
    with pytest.raises(ValueError, match="at least one candidate"):
        GCNClassifier(weight_decays=()).fit(DATA)
    with pytest.raises(ValueError, match="multiple of heads, got 8 and 3"):
        GATClassifier(**QUICK, heads=3).fit(DATA)
    unfitted: list[NodeClassifier] = [GCNClassifier(), MCDropout(), DeepEnsemble(), GNNSafe(), GPN()]
    for model in unfitted:
        with pytest.raises(NotFittedError, match="must be fitted first"):
            model.predict_proba(DATA)
    with pytest.raises(NotFittedError):
        MCDropout(GCNClassifier(), prefit=True).fit(DATA)
    with pytest.raises(ValueError, match="passes must be at least 1, got 0"):
        MCDropout(gcn, 0, prefit=True).fit(DATA)
    with pytest.raises(ValueError, match="members must be at least 1, got 0"):
        DeepEnsemble(gcn, 0).fit(DATA)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"train_mask": DATA.train_mask.long()}, ValueError, "train_mask must be boolean"),
        ({"test_mask": DATA.train_mask}, ValueError, "train_mask and test_mask overlap"),
        ({"y": DATA.y.float()}, ValueError, "y must be an int64 tensor"),
        ({"y": DATA.y[:, None]}, ValueError, "y must be an int64 tensor"),
        ({"x": DATA.x.index_fill(0, torch.tensor([3]), torch.nan)}, ValueError, "first in row 3"),
        ({"x": DATA.x.numpy()}, TypeError, "x must be a tensor, got ndarray"),
        ({"edge_index": DATA.edge_index.tolist()}, TypeError, "edge_index must be a tensor, got list"),
    ],
)
def test_bad_data_are_named(change: dict[str, Any], error: type[Exception], message: str) -> None:
    data = DATA.clone()
    for name, value in change.items():
        setattr(data, name, value)
    with pytest.raises(error, match=message):
        fitted_on(data)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"weight_decays": (-1.0,)}, "weight_decays must be"),
        ({"hidden_channels": 0}, "hidden_channels must be at least 1"),
    ],
)
def test_bad_settings_are_named(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GCNClassifier(**{**QUICK, **setting}).fit(DATA)


def test_features_of_any_real_dtype() -> None:
    whole = DATA.clone()
    whole.x = DATA.x.round()
    expected = fitted_on(whole).predict_proba(whole)
    for dtype in (torch.float64, torch.int64):
        same = whole.clone()
        same.x = whole.x.to(dtype)
        np.testing.assert_array_equal(fitted_on(same).predict_proba(same), expected)


def test_scores_spread_over_the_edges_that_the_network_uses() -> None:
    model = fitted_on(DATA)
    repeated = DATA.clone()
    repeated.edge_index = torch.cat([DATA.edge_index, DATA.edge_index[:, :5], torch.arange(60).repeat(2, 1)], 1)
    with pytest.warns(UserWarning, match="5 repeated edges"):
        scores = model.ood_score(repeated, propagate=(2, 0.5))
    np.testing.assert_allclose(scores, model.ood_score(DATA, propagate=(2, 0.5)), rtol=1e-5)


def test_an_interrupted_fit_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    model, started = GCNClassifier(**QUICK), []

    def interrupted(*args: Any) -> None:
        started.append(args)
        if len(started) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(model, "_start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(DATA)
    with pytest.raises(NotFittedError):
        model.predict(DATA)
