"""Certificates: closed forms, foreign networks, corrupted weights, budgets and bad input."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from paperworks.comonet.certificates import ShapeGuaranteeError, certify, node_facts, structural
from paperworks.comonet.counterexamples import counterexample
from paperworks.comonet.graph import Affine, Graph, GraphBuilder, graph_of
from paperworks.comonet.intervals import Interval, _Pass, _tanh_second, decide
from paperworks.comonet.network import COMONet
from paperworks.comonet.shapes import Shape

ACTIVATIONS = [nn.ReLU, nn.Softplus, nn.Tanh, nn.Sigmoid, nn.ELU, lambda: nn.ELU(0.5), nn.LeakyReLU, nn.Identity]


def dense(weights: list, biases: list, activation: nn.Module) -> nn.Sequential:
    """Linear, activation, Linear, ... with the given numbers, in float64."""
    layers: list[nn.Module] = []
    for w, b in zip(weights, biases, strict=True):
        w = torch.tensor(w, dtype=torch.float64)
        layer = nn.Linear(w.shape[1], w.shape[0], dtype=torch.float64)
        layer.weight.data, layer.bias.data = w, torch.tensor(b, dtype=torch.float64)
        layers += [layer, activation]
    return nn.Sequential(*layers[:-1])


def softplus_difference() -> nn.Sequential:
    return dense([[[2.0], [1.0]], [[1.0, -1.0]]], [[0.0, 0.0], [0.0]], nn.Softplus())


def random_net(seed: int, activation: nn.Module, d: int = 2, width: int = 5) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [nn.Linear(d, width), activation, nn.Linear(width, width), activation, nn.Linear(width, 1)]
    return nn.Sequential(*layers).double()


@pytest.mark.parametrize("rigorous", [False, True])
@pytest.mark.parametrize(
    ("shape", "domain", "status"),
    [
        ("increasing", (-0.88, 3), "proved"),  # exactly for x >= -asinh(1) = -0.881374
        ("increasing", (-0.9, 3), "violated"),
        ("convex", (-1.66, 1.66), "proved"),  # exactly for |x| <= arccosh(1 + sqrt 3) = 1.66288
        ("convex", (-1.7, 1.7), "violated"),
    ],
)
def test_closed_form_thresholds(shape, domain, status, rigorous):
    column = certify(softplus_difference(), shape, domain=[domain], rigorous=rigorous).columns[0]
    assert column.status == status
    assert column.method == "interval"
    assert 1 <= column.boxes < 200
    assert (column.proved == Shape(shape)) == (status == "proved")


def test_structure_alone_says_nothing_of_a_difference():
    column = certify(softplus_difference(), method="structural").columns[0]
    assert (column.proved, column.status, column.domain) == (Shape.FREE, "proved", None)


def test_witness_contradicts_the_shape():
    net = softplus_difference().requires_grad_(False)
    column = certify(net, "convex", domain=[(-1.7, 1.7)]).columns[0]
    (a,), (b,), (c,) = column.witness.points
    fa, fb, fc = (float(net(torch.tensor([[x]], dtype=torch.float64))) for x in (a, b, c))
    assert column.witness.broken == "convex"
    assert a < b < c
    assert (fa, fb, fc) == pytest.approx(column.witness.values, abs=1e-12)
    assert fb > (fa * (c - b) + fc * (b - a)) / (c - a)


def test_structural_known_answers():
    symmetric = dense([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]], nn.Softplus())
    column = certify(symmetric).columns[0]
    assert (column.proved, column.domain) == (Shape.CONVEX, None)
    # |x1| + x2, the latter as relu(x2) - relu(-x2)
    first = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    net = dense([first, [[1.0, 1.0, 1.0, -1.0]]], [[0.0] * 4, [0.0]], nn.ReLU())
    assert [c.proved for c in certify(net).columns] == [Shape.CONVEX, Shape.INCREASING]
    b = GraphBuilder(2)
    x = b.input([0, 1])
    hidden = b.activation(b.affine([(x, torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))]), "relu")
    out = b.affine([(hidden, torch.ones(1, 2)), (x, torch.tensor([[0.0, 1.0]]))])
    assert structural(b.build(out)) == [(False, False, True, False), (True, False, True, True)]


def test_convex_and_concave_cannot_share_a_relu():
    net = dense([[[1.0, 1.0]], [[1.0]]], [[0.0], [0.0]], nn.ReLU())
    first, second = certify(net, ["convex", "concave"], domain=[(-1, 1), (-1, 1)]).columns
    assert (first.status, first.method, first.domain) == ("proved", "structural", None)
    assert (second.status, second.witness.broken) == ("violated", "concave")
    assert second.witness.points[0][0] == second.witness.points[2][0]


def test_product_rule():
    def product(low: float, shared: bool = False) -> list[Shape]:
        b = GraphBuilder(2)
        factors = [b.activation(b.input([0]), "relu"), b.input([0 if shared else 1])]
        return [p.shape() for p in structural(b.build(b.product(factors)), [(low, 4.0), (low, 4.0)])]

    assert product(0.0) == [Shape.CONVEX_INCREASING, Shape.INCREASING]  # in the second column straight
    assert product(-1.0) == [Shape.FREE, Shape.INCREASING]
    assert product(0.0, shared=True)[0] == Shape.CONVEX_INCREASING
    b = GraphBuilder(1)
    line = b.input([0])  # x·x is not concave although x is
    assert structural(b.build(b.product([line, line])), [(0, 1)]) == [(True, False, True, False)]


def test_concave_basis_holds_on_its_domain_only():
    def bank(shape: Shape) -> list[bool]:
        b = GraphBuilder(2)
        knots = torch.tensor([0.5])
        factors = []
        for j in (0, 1):
            basis = b.basis(b.input([j]), shape, 0.0, 1.0, knots, size=3)
            factors.append(b.affine([(basis, torch.ones(1, 3))]))
        graph = b.build(b.product(factors))
        boxes = [None, [(0.0, math.inf)] * 2, [(0.0, 1.0)] * 2, [(-0.1, 1.0)] * 2]
        return [all(p.satisfies(shape) for p in structural(graph, box)) for box in boxes]

    assert bank(Shape.CONVEX_DECREASING) == [True, True, True, True]
    assert bank(Shape.CONCAVE_INCREASING) == [False, True, True, False]
    assert bank(Shape.CONCAVE) == [False, False, True, False]


def test_saturating_unit_keeps_only_monotone():
    b = GraphBuilder(1)
    assert structural(b.build(b.activation(b.input([0]), "relu_n"))) == [(True, False, False, False)]
    groups = {"max": (True, False), "min": (False, True), "lse": (True, False), "mirrored_lse": (False, True)}
    for kind, curved in groups.items():
        b = GraphBuilder(1)
        pre = b.affine([(b.input([0]), torch.tensor([[1.0], [2.0]]))])
        assert structural(b.build(b.group(pre, kind, pieces=2))) == [(True, False, *curved)]


def test_group_values_and_dependence():
    b = GraphBuilder(4)
    pairs = b.group(b.input([0, 1, 2, 3]), "max", pieces=2)
    graph = b.build(b.affine([(pairs, torch.tensor([[1.0, 10.0]]))]))
    assert graph.evaluate(torch.tensor([[1.0, 2.0, 3.0, 4.0]])).tolist() == [42.0]
    assert node_facts(graph)[1].depends.tolist() == [[True, True, False, False], [False, False, True, True]]
    for kind, sign in (("lse", 1.0), ("mirrored_lse", -1.0)):
        b = GraphBuilder(2)
        soft = b.build(b.group(b.input([0, 1]), kind, pieces=2, temperature=0.5))
        want = sign * 0.5 * np.log(np.mean(np.exp(np.array([1.0, 2.0]) * sign / 0.5)))
        assert soft.evaluate(torch.tensor([[1.0, 2.0]])).item() == pytest.approx(want)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), which=st.integers(0, len(ACTIVATIONS) - 1), mirrored=st.booleans())
def test_interval_bounds_contain_values_slopes_and_agree_with_autograd(seed, which, mirrored):
    net = random_net(seed, ACTIVATIONS[which]())
    graph = graph_of(net)
    if mirrored:
        object.__setattr__(
            graph,
            "nodes",
            tuple(
                type(n)(n.source, n.name, n.size, n.parameter, True) if hasattr(n, "mirrored") else n
                for n in graph.nodes
            ),
        )
    rng = torch.Generator().manual_seed(seed)
    low = torch.rand(4, 2, generator=rng, dtype=torch.float64) * 4 - 3
    high = low + torch.rand(4, 2, generator=rng, dtype=torch.float64)
    bounds = _Pass(graph, low, high, rigorous=True)
    x = low + (high - low) * torch.rand(50, 4, 2, generator=rng, dtype=torch.float64)
    value = graph.evaluate(x.reshape(-1, 2)).reshape(50, 4)
    assert bool(((value >= bounds.values[-1].low[:, 0]) & (value <= bounds.values[-1].high[:, 0])).all())
    step = torch.tensor([1e-6, 0.0], dtype=torch.float64)
    ahead, behind = (graph.evaluate((x + s * step).reshape(-1, 2)).reshape(50, 4) for s in (1, -1))
    slope, tangent, pulled = (ahead - behind) / 2e-6, bounds.tangents(0)[-1], bounds.adjoints()[0]
    for interval in (tangent, pulled):
        assert bool(((slope >= interval.low[:, 0] - 1e-5) & (slope <= interval.high[:, 0] + 1e-5)).all())


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    which=st.integers(0, len(ACTIVATIONS) - 1),
    order=st.sampled_from([1, 2]),
    sign=st.sampled_from([-1, 1]),
    rigorous=st.booleans(),
)
def test_a_proof_is_never_contradicted_by_samples(seed, which, order, sign, rigorous):
    net = random_net(seed, ACTIVATIONS[which]())
    graph = graph_of(net)
    found = decide(graph, [(-0.5, 0.5)] * 2, 0, order=order, sign=sign, max_boxes=150, rigorous=rigorous)
    rng = torch.Generator().manual_seed(seed)
    x = torch.rand(200, 41, 2, generator=rng, dtype=torch.float64)[:, :1].expand(-1, 41, 2).clone() - 0.5
    x[:, :, 0] = torch.linspace(-0.5, 0.5, 41, dtype=torch.float64)
    change = sign * graph.evaluate(x.reshape(-1, 2)).reshape(200, 41).diff(n=order)
    if found.status == "proved":
        assert float(change.min()) >= -1e-13
    if found.status == "violated":
        values = graph.evaluate(found.points)
        assert values.tolist() == pytest.approx(found.values, abs=1e-12)
    if float(change.min()) < -1e-6:
        assert found.status != "proved"


def test_foreign_networks_are_decided():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 6), nn.Softplus(), nn.Linear(6, 6), nn.Softplus(), nn.Linear(6, 1)).double()
    x = torch.rand(200, 2, dtype=torch.float64) * 2 - 1
    y = torch.exp(x[:, 0]) + 2 * x[:, 0] + 2 * x[:, 1] ** 2
    optimiser = torch.optim.LBFGS(net.parameters(), max_iter=80, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = ((net(x)[:, 0] - y) ** 2).mean()
        loss.backward()
        return loss

    optimiser.step(closure)
    box = [(-1, 1), (-1, 1)]
    assert [c.status for c in certify(net, ["increasing", "convex"], domain=box).columns] == ["proved"] * 2
    assert [c.status for c in certify(net, ["decreasing", "concave"], domain=box).columns] == ["violated"] * 2
    assert certify(net, ["increasing", "convex"], domain=box, rigorous=True).ok


def test_relu_kinks():
    hinge = dense([[[1.0], [1.0]], [[1.0, -2.0]]], [[0.0, -1.0], [0.0]], nn.ReLU())  # up at 0, bends down at 1
    for domain, status in [((-1, 1), "proved"), ((-1, 1.5), "violated"), ((0, 3), "violated"), ((1, 3), "proved")]:
        assert certify(hinge, "convex", domain=[domain], method="interval").columns[0].status == status
    assert certify(hinge, "concave", domain=[(0, 3)]).ok
    assert certify(hinge, "increasing", domain=[(-1, 1)]).ok
    assert certify(hinge, "increasing", domain=[(-1, 1.1)]).columns[0].status == "violated"


def test_mirrored_kink_bends_down():
    b = GraphBuilder(1)
    up = b.activation(b.affine([(b.input([0]), torch.ones(1, 1))]), "relu", mirrored=True)  # min(x, 0)
    graph = b.build(up)
    assert decide(graph, [(-1, 1.5)], 0, order=2, sign=-1)[:2] == ("proved", 1)
    assert decide(graph, [(-1, 1.5)], 0, order=2, sign=1, max_boxes=50).status == "violated"


def test_second_derivative_bounds_hold_and_are_reached():
    low = torch.tensor([[-3.0, -0.2, -1.0, 0.1, -2.0]], dtype=torch.float64)
    high = torch.tensor([[3.0, 0.3, 0.0, 2.0, -1.5]], dtype=torch.float64)
    grid = torch.lerp(low, high, torch.linspace(0, 1, 20001, dtype=torch.float64)[:, None])
    t = torch.tanh(grid)
    exact = -2 * t * (1 - t**2)
    bounds = _tanh_second(Interval(low, high))
    assert bounds.low[0].tolist() == pytest.approx(exact.amin(0).tolist(), abs=1e-7)
    assert bounds.high[0].tolist() == pytest.approx(exact.amax(0).tolist(), abs=1e-7)


def test_a_used_up_budget_is_unknown():
    column = certify(softplus_difference(), "increasing", domain=[(-0.88, 3)], max_boxes=3).columns[0]
    assert (column.status, column.boxes, column.witness) == ("unknown", 3, None)
    edge = [(-math.asinh(1), 3)]  # slope zero at the border, within rounding
    exact = certify(softplus_difference(), "increasing", domain=edge, max_boxes=300, rigorous=True).columns[0]
    assert exact.status == "unknown"


def test_both_parts_of_a_shape_are_needed():
    net = softplus_difference()
    both = certify(net, "convex increasing", domain=[(-0.88, 1.66)]).columns[0]
    assert (both.status, both.proved) == ("proved", Shape.CONVEX_INCREASING)
    half = certify(net, "convex increasing", domain=[(-0.88, 1.7)]).columns[0]
    assert (half.status, half.proved, half.witness.broken) == ("violated", Shape.INCREASING, "convex")


def test_a_corrupted_weight_is_caught():
    net = dense([[[1.0], [2.0]], [[1.0, 3.0]]], [[0.0, 1.0], [0.0]], nn.ReLU())
    assert certify(net, "convex increasing").ok
    net[2].weight.data[0, 1] = -1e-3
    certificate = certify(net, "convex increasing")
    assert [(c.status, c.method, c.domain) for c in certificate.columns] == [("violated", "sampled", None)]
    assert [c.status for c in certify(net, "convex increasing", method="structural").columns] == ["unknown"]
    with pytest.raises(ShapeGuaranteeError, match="x0"):
        certificate.raise_for_status()
    assert certify(net, "convex increasing", domain=[(-1, 1)]).columns[0].status == "violated"


@pytest.mark.parametrize("unit", ["relu", "softplus", "maxout", "lse"])
@pytest.mark.parametrize("interactions", ["additive", "product"])
def test_own_networks_are_proved_for_any_parameters_and_not_when_corrupted(unit, interactions):
    torch.manual_seed(0)
    net = COMONet(tuple(Shape), width=4, unit=unit, interactions=interactions, domain=[(-2.0, 2.0)] * 9).double()
    for parameter in net.parameters():
        parameter.data = 2 * torch.randn_like(parameter)
    certificate, graph = certify(net), net.to_graph()
    certificate.raise_for_status()
    assert all(c.domain is None for c in certificate.columns) == (interactions == "additive")
    x = torch.rand(20, 9, dtype=torch.float64) * 4 - 2
    assert torch.allclose(graph.evaluate(x), net(x).detach(), rtol=1e-9)
    signs = [(i, node) for i, node in enumerate(graph.nodes) if isinstance(node, Affine) and node.size > 1]
    i, node = next((i, n) for i, n in signs if n.weights[0].min() > 0)  # a block of nonnegative weights
    weight = node.weights[0].clone()
    weight[0] = -1e-3
    broken = Affine(node.sources, (weight, *node.weights[1:]), node.bias)
    corrupted = Graph((*graph.nodes[:i], broken, *graph.nodes[i + 1 :]), graph.n_columns, graph.domain)
    proved = structural(corrupted, graph.domain)
    assert not all(p.satisfies(shape) for p, shape in zip(proved, Shape, strict=True))


def overwritten(weight: float, interactions: str) -> COMONet:
    """A maxout network whose graph has the weights of column 0 in the first convex units overwritten."""
    domain = [(-2.0, 5.0)] * 2
    net = COMONet(["convex increasing", "concave"], width=4, interactions=interactions, domain=domain).double()
    graph = net.to_graph()
    i, node = next((i, n) for i, n in enumerate(graph.nodes) if n.size == 16)
    broken = Affine(node.sources, (torch.full_like(node.weights[0], weight), *node.weights[1:]), node.bias)
    graph = Graph((*graph.nodes[:i], broken, *graph.nodes[i + 1 :]), 2, graph.domain)
    net.to_graph = lambda: graph
    return net


@pytest.mark.parametrize("domain", [None, [(-1, 2), (0, 1)], [(0, 2), (None, 1)]])
@pytest.mark.parametrize("interactions", ["additive", "both"])
def test_a_corrupted_unit_that_intervals_cannot_read_is_refuted_by_sampling(interactions, domain):
    assert not certify(overwritten(-1e-3, interactions), domain=domain).ok
    net = overwritten(-30.0, interactions)
    certificate = certify(net, domain=domain)
    column = certificate.columns[0]
    assert (column.status, column.method, column.witness.broken) == ("violated", "sampled", "increasing")
    points = torch.tensor(column.witness.points, dtype=torch.float64)
    first, last = net.to_graph().evaluate(points).tolist()
    assert column.witness.values == pytest.approx((first, last), rel=1e-12)
    assert first > last + 1e-6
    assert ((points[1] - points[0]) > 0).tolist() == [True, False]
    for j, pair in enumerate(column.domain or ()):
        assert pair[0] <= points[:, j].min() <= points[:, j].max() <= pair[1]
    assert "x0: required convex increasing, VIOLATED: not increasing" in str(certificate)


@settings(max_examples=12, deadline=None)
@given(
    shapes=st.lists(st.sampled_from([s for s in Shape if s is not Shape.FREE]), min_size=2, max_size=3),
    unit=st.sampled_from(["relu", "maxout", "lse"]),
    interactions=st.sampled_from(["additive", "product", "both"]),
    spread=st.sampled_from([0.5, 2.0, 4.0]),
    seed=st.integers(0, 2**20),
)
def test_sampling_refutes_nothing_of_an_intact_network(shapes, unit, interactions, spread, seed):
    generator = torch.Generator().manual_seed(seed)
    box = [(-2.0, 3.0)] * len(shapes)
    net = COMONet(shapes, width=3, unit=unit, interactions=interactions, domain=box, generator=generator).double()
    for parameter in net.parameters():
        parameter.data = spread * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    graph = net.to_graph()
    for j, shape in enumerate(shapes):
        for order, sign in ((1, shape.monotonicity), (2, shape.curvature)):
            if sign:
                assert counterexample(graph, graph.domain, j, order=order, sign=sign, seed=seed) is None


def test_sampling_does_not_take_rounding_for_a_violation():
    """Differences of large numbers are wrong by far more than 1e-9 of what is left of them."""
    b = GraphBuilder(1)
    line = b.affine(
        [(b.input([0]), torch.full((2, 1), 1e12).double())],
        torch.tensor([1e12 / 3, 1e12 / 3 + 1e-3], dtype=torch.float64),
    )
    maximum = b.group(line, "max", pieces=2)
    graph = b.build(b.affine([(maximum, torch.ones(1, 1)), (b.input([0]), torch.tensor([[-1e12]]))]))
    values = graph.evaluate(torch.linspace(0, 1, 1000, dtype=torch.float64)[:, None])
    assert float(values.diff().min()) < -1e-5  # constant, were it not for rounding
    assert counterexample(graph, [(0.0, 1.0)], 0, order=1, sign=1) is None
    assert counterexample(graph, [(0.0, 1.0)], 0, order=2, sign=1) is None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_invalid(bad):
    net = softplus_difference()
    net[0].bias.data[0] = bad
    certificate = certify(net, domain=[(0, 1)])
    assert [c.status for c in certificate.columns] == ["invalid"]
    assert not certificate.ok
    assert "INVALID" in str(certificate)


def test_rigorous_bounds_are_wider():
    graph = graph_of(random_net(3, nn.Tanh()))
    low, high = torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64)
    plain, wide = (_Pass(graph, low, high, rigorous=r) for r in (False, True))
    for a, b in (
        (plain.values, wide.values),
        (plain.tangents(0), wide.tangents(0)),
        (plain.adjoints(), wide.adjoints()),
    ):
        assert bool((b[2].low < a[2].low).all() and (b[2].high > a[2].high).all())


def test_certificate_reads_and_writes():
    net = softplus_difference()
    certificate = certify(net, {"age": "convex"}, domain={"age": (-1.7, 1.7)}, feature_names=["age"])
    frame = certificate.to_frame()
    assert frame[["name", "required", "status", "domain"]].values.tolist() == [
        ["age", "convex", "violated", ((-1.7, 1.7),)]
    ]
    record = json.loads(certificate.to_json())
    assert (record["ok"], record["columns"][0]["required"]) == (False, "convex")
    assert len(record["columns"][0]["witness"]["points"]) == 3
    assert "age: required convex, VIOLATED" in str(certificate)
    b = GraphBuilder(1)
    graph = b.build(b.input([0]), domain=[(0, math.inf)])

    class Model:
        shapes = (Shape.INCREASING,)

        def to_graph(self):
            return graph

    own = certify(Model(), scale="decision_function")
    assert own.ok
    assert str(own).startswith("Certificate of the decision function: proved\n")
    half = json.loads(certify(Model(), "increasing", domain={0: (0, None)}).to_json())
    assert half["ok"]


def test_modules_that_can_be_traced():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 1)

        def forward(self, x):
            return self.last(torch.relu(self.first(x)) + x).squeeze(-1)

    class First(Residual):
        def forward(self, x):
            return self.last(input=torch.tanh(input=self.first(x)))[:, 0]

    torch.manual_seed(0)
    x = torch.randn(20, 2)
    for net in (
        Residual(),
        First(),
        nn.utils.parametrizations.weight_norm(nn.Linear(2, 1)),
        random_net(0, nn.Tanh()).float(),
    ):
        assert torch.allclose(graph_of(net).evaluate(x), net(x).double().reshape(-1), atol=1e-6)


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("layers", "name"),
    [
        ([nn.Linear(1, 1), nn.GELU()], "GELU"),
        ([nn.Linear(1, 1), nn.SELU()], "SELU"),
        ([nn.Linear(1, 1), nn.BatchNorm1d(1)], "BatchNorm1d"),
        ([nn.Linear(1, 1), nn.ELU(1.5)], "ELU"),
        ([nn.Linear(1, 1), nn.LeakyReLU(-0.1)], "LeakyReLU"),
    ],
)
def test_unsupported_layers_are_named(layers, name):
    with pytest.raises(TypeError, match=name):
        certify(nn.Sequential(*layers))


@pytest.mark.untyped
def test_modules_that_cannot_be_read():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(1, 1)

        def forward(self, x):
            return self.line(x) if x.sum() > 0 else x

    class Multiplying(Branching):
        def forward(self, x):
            return self.line(x) * x

    with pytest.raises(TypeError, match="Branching cannot be traced"):
        certify(Branching())
    with pytest.raises(TypeError, match="'mul' is not supported"):
        certify(Multiplying())
    with pytest.raises(TypeError, match="model must be a torch module"):
        certify(np.zeros(3))
    with pytest.raises(ValueError, match="output must have one entry"):
        certify(nn.Linear(2, 2))
    hooked = nn.Linear(1, 1)
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(TypeError, match="forward hooks"):
        certify(hooked)
    b = GraphBuilder(2)
    graph = b.build(b.group(b.input([0, 1]), "max", pieces=2))

    class Grouped:
        def to_graph(self):
            return graph

    with pytest.raises(TypeError, match="layer Group is not supported by method='interval'"):
        certify(Grouped(), domain=[(0, 1)] * 2, method="interval")
    found = certify(Grouped(), "concave", domain=[(0, 1)] * 2).columns[0]
    assert (found.status, found.method) == ("violated", "sampled")


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "interval"}, "domain must have finite bounds"),
        ({"method": "interval", "domain": [(0, None)]}, "domain must have finite bounds"),
        ({"domain": [(0, 1), (0, 1)]}, r"domain must have length 1, .* got \[\(0, 1\), \(0, 1\)\]"),
        ({"domain": 5}, "domain of column 0 must be two numbers"),
        ({"domain": [("low", 1)]}, "domain of column 0 must be two numbers"),
        ({"domain": [(0, 1, 2)]}, "domain of column 0 must be two numbers"),
        ({"domain": [(1, 1)]}, "domain of column 0 must have low < high"),
        ({"domain": [(math.nan, 1)]}, "domain of column 0 must have low < high"),
        ({"domain": {"age": (0, 1)}}, "unknown column 'age'"),
        ({"domain": {3: (0, 1)}}, "unknown column 3"),
        ({"method": "sampled"}, "method must be one of"),
        ({"max_boxes": 0}, "max_boxes must be at least 1"),
        ({"shapes": "wavy"}, "wavy"),
        ({"shapes": ["convex", "concave"]}, "2"),
        ({"shapes": {"age": "convex"}}, "age"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        certify(softplus_difference(), **arguments)


class Shared(nn.Module):
    """An activation in place of what another layer reads too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act = nn.Linear(1, 1), nn.ReLU(inplace=True)
        self.one, self.two = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, x):
        a = self.first(x)
        c = self.act(a)
        return self.one(c) + self.two(a)


@pytest.mark.parametrize("root", [False, True])
def test_a_module_that_does_not_compute_what_its_layers_say_is_refused(root):
    with pytest.raises(TypeError, match="in place"):
        certify(Shared())
    net = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1))
    part = net if root else net[0]
    part.forward = lambda x: -x
    with pytest.raises(TypeError, match="forward of its own instance"):
        certify(net)


def test_hooks_on_the_root_are_refused():
    net = COMONet(["increasing"])
    net.register_forward_hook(lambda module, inputs, output: -output)
    with pytest.raises(TypeError, match="COMONet has forward hooks"):
        certify(net)
