"""Speed and memory of `paperworks.dssgnn`, beside networks of PyG on the same graph in one run, on one thread.

Run: python benchmarks/bench_dssgnn.py

Cora and Tolokers are used where they are at hand or can be downloaded, or else random graphs of their sizes.
"""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GCNConv

from paperworks.core.data import DataUnavailable
from paperworks.dssgnn import (
    DSSGNN,
    ChaosLogits,
    DeepEnsemble,
    DSSClassifier,
    FeatureLinear,
    GCNClassifier,
    filter_signals,
    fit_many,
    load_dataset,
    normalized_shift,
    prior_coefficients,
)
from paperworks.dssgnn.features import compact, drop_features

HIDDEN, ORDER, DEGREE = 64, 2, 10
EPOCHS = 60
MEMBERS = 5
SEEDS = 10
NODES = 100_000


def verdict(value: float, target: float, least: bool = False) -> str:
    met = value >= target if least else value <= target
    return f"target {'≥' if least else '≤'} {target:g}: {'met' if met else 'MISSED'}"


def side_by_side(*calls: Callable[[], object], rounds: int) -> list[float]:
    """Return the CPU seconds of the fastest call of each, in turns, without what they wait for others."""
    best = [math.inf] * len(calls)
    for _ in range(rounds):
        for k, call in enumerate(calls):
            start = time.thread_time()
            call()
            best[k] = min(best[k], time.thread_time() - start)
    return best


def pairs(nodes: int, edges: int, seed: int = 0) -> Tensor:
    """Return random undirected edges, each in both directions."""
    rng = np.random.default_rng(seed)
    key = rng.choice(nodes * (nodes - 1) // 2, edges, replace=False)
    # Pair j < i has number i (i - 1) / 2 + j.
    i = ((1 + np.sqrt(1 + 8.0 * key)) / 2).astype(np.int64)
    i -= i * (i - 1) // 2 > key
    edge_index = torch.from_numpy(np.stack([i, key - i * (i - 1) // 2]))
    return torch.cat([edge_index, edge_index.flip(0)], 1)


def graph(name: str, nodes: int, edges: int, classes: int, features: int, density: float) -> Data:
    """Return a published graph, or a random one of its size."""
    try:
        return load_dataset(name)
    except DataUnavailable:
        rng = np.random.default_rng(0)
    x = torch.from_numpy((rng.random((nodes, features)) < density).astype(np.float32))
    y = torch.from_numpy(rng.integers(classes, size=nodes))
    data = Data(
        x=x / x.sum(1, keepdim=True).clamp(min=1), edge_index=pairs(nodes, edges), y=y, name=f"as large as {name}"
    )
    place = torch.from_numpy(rng.permutation(nodes))
    data.train_mask, data.val_mask, data.test_mask = place < 140, (place >= 140) & (place < 640), place >= 640
    return data


class Propagated(nn.Module):
    """Two layers and PyG's APPNP."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = FeatureLinear(features, HIDDEN), nn.Linear(HIDDEN, classes)
        self.propagation = APPNP(DEGREE, 0.1, cached=True)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        hidden = self.first(drop_features(x, 0.5, self.training)).relu()
        logits: Tensor = self.propagation(self.second(functional.dropout(hidden, 0.5, self.training)), edges)
        return logits.log_softmax(1)


class Convolutions(nn.Module):
    """Two of PyG's GCNConv."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = GCNConv(features, HIDDEN, cached=True), GCNConv(HIDDEN, classes, cached=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.first(functional.dropout(x, 0.5, self.training), edge_index).relu()
        logits: Tensor = self.second(functional.dropout(hidden, 0.5, self.training), edge_index)
        return logits.log_softmax(1)


def _step(optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> None:
    optimizer.zero_grad()
    loss().backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _adam(groups: Iterable[object], lr: float = 0.01) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, lr=lr, weight_decay=5e-4, fused=True)  # type: ignore[arg-type]


def epochs(data: Data) -> None:
    """Compare an epoch of training with one of APPNP."""
    features, classes, train, y = data.x.shape[1], int(data.y.max()) + 1, data.train_mask, data.y[data.train_mask]
    shift = normalized_shift(data.edge_index, num_nodes=len(data.x))
    for layout, x in (("dense", data.x), ("CSR", compact(data.x))):
        ours = DSSGNN(features, classes, HIDDEN, ORDER, DEGREE).train()
        adam = _adam(ours.param_groups())

        def own(model: DSSGNN = ours, x: Tensor = x) -> Tensor:
            logits = model.expand(x, shift)
            log_p = ChaosLogits(logits.coefs[:, train], logits.basis).log_predictive(8)
            return functional.nll_loss(log_p, y) + 0.1 * model.regularization(logits)

        def theirs(model: nn.Module, edges: Tensor, x: Tensor = x) -> Tensor:
            return functional.nll_loss(model(x, edges)[train], y)

        calls = [partial(_step, adam, own)]
        for edges in (data.edge_index, shift):
            peer = Propagated(features, classes).train()
            if edges is shift:
                peer.propagation.normalize = False
            calls.append(partial(_step, _adam(peer.parameters()), partial(theirs, peer, edges)))
        seconds, listed, sparse = side_by_side(*calls, rounds=40 if layout == "CSR" else 15)
        print(
            f"epoch of order {ORDER}, degree {DEGREE}, {layout} features: {1e3 * seconds:.2f} ms; APPNP of PyG with a list "
            f"of edges {1e3 * listed:.2f} ms, ratio {seconds / listed:.2f}, {verdict(seconds / listed, 2)}; with a CSR "
            f"matrix {1e3 * sparse:.2f} ms, ratio {seconds / sparse:.2f}"
        )


def train_member(data: Data, seed: int) -> Tensor:
    """Train two convolutions as the examples of PyG do, dense, and return the class probabilities of the best epoch."""
    torch.manual_seed(seed)
    model = Convolutions(data.x.shape[1], int(data.y.max()) + 1)
    adam, best = _adam(model.parameters()), math.inf
    for epoch in range(1, EPOCHS + 1):
        model.train()
        _step(
            adam,
            lambda: functional.nll_loss(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask]),
        )
        if epoch % 4 == 0:
            model.eval()
            with torch.no_grad():
                loss = float(functional.nll_loss(model(data.x, data.edge_index)[data.val_mask], data.y[data.val_mask]))
            if loss < best:
                best, kept = loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    model.eval()
    with torch.no_grad():
        proba: Tensor = model(data.x, data.edge_index).exp()
    return proba


def ensembles(data: Data) -> None:
    """Compare fit and prediction with ensembles of two-layer GCNs of one weight decay, trained one at a time."""
    base = GCNClassifier(epochs=EPOCHS, patience=EPOCHS, weight_decays=(5e-4,), device="cpu")

    def own(filter: str) -> None:
        settings = {"filter": filter, "epochs": EPOCHS, "patience": EPOCHS, "device": "cpu", "random_state": 0}
        DSSClassifier(**settings).fit(data).predict_proba(data)  # type: ignore[arg-type]

    def csr() -> None:
        DeepEnsemble(base, MEMBERS, random_state=0).fit(data).predict_proba(data)

    one, auto, sparse = side_by_side(partial(own, "ppr-frozen"), partial(own, "auto"), csr, rounds=2)
    listed = MEMBERS * side_by_side(partial(train_member, data, 0), rounds=1)[0]
    for what, ours in (("the filter 'ppr-frozen'", one), ("'auto', which trains three", auto)):
        print(f"fit and predict with {what}, {EPOCHS} epochs: {ours:.2f} s")
        for peer, theirs in (
            (f"as in PyG's examples, dense, {MEMBERS} times one of them", listed),
            ("GCNClassifier, CSR", sparse),
        ):
            ratio = theirs / ours
            print(f"  {MEMBERS} GCNs, {peer}: {theirs:.2f} s, ratio {ratio:.1f}, {verdict(ratio, 3, least=True)}")


def seeds(data: Data) -> None:
    """Compare the fits of several seeds at once with as many one after the other."""
    model = DSSClassifier(filter="ppr-frozen", epochs=EPOCHS, patience=EPOCHS, device="cpu")

    def each() -> None:
        for seed in range(SEEDS):
            model.set_params(random_state=seed).fit(data)

    apart, together = side_by_side(each, partial(fit_many, model, data, seeds=range(SEEDS)), rounds=1)
    print(f"fits of {SEEDS} seeds: at once {together:.2f} s, one by one {apart:.2f} s, ratio {apart / together:.2f}")


def propagation(data: Data) -> None:
    """Compare the bytes that the filters must move with those that a copy moves in the same time."""
    source = torch.ones(16_000_000)
    target = torch.empty_like(source)
    shift = normalized_shift(data.edge_index, num_nodes=len(data.x))
    nodes, entries, orders = len(shift), len(shift.values()), ORDER + 1
    theta = prior_coefficients("ppr", DEGREE).float().expand(orders, -1).contiguous()
    print(f"propagation on {data.name}, {nodes:,} nodes, {data.edge_index.shape[1]:,} directed edges, degree {DEGREE}")
    classes = int(data.y.max()) + 1
    for channels in (classes, 7):
        u = torch.randn(nodes, orders, channels)
        copied, seconds = side_by_side(
            partial(target.copy_, source), partial(filter_signals, u, theta, shift), rounds=10
        )
        bandwidth = 2 * source.nbytes / copied / 1e9
        achieved = DEGREE * (12 * entries + 8 * nodes * orders * channels) / seconds / 1e9
        share = achieved / bandwidth
        # Wider signals are bound by the arithmetic and by reading neighbours from the cache, which the bytes leave out.
        note = verdict(share, 0.25, least=True) if channels == classes else "no target"
        print(
            f"  {channels} classes: {1e3 * seconds:.1f} ms, {achieved:.1f} GB/s of {bandwidth:.1f} GB/s of a copy, share "
            f"{share:.2f}, {note}"
        )


def by_autograd(u: Tensor, theta: Tensor, shift: Tensor) -> Tensor:
    """Sum the Chebyshev series with torch's operations, as one would write it."""
    older, newer = u, (shift @ u.flatten(1)).view(u.shape)
    total = theta[:, 0, None] * older + theta[:, 1, None] * newer
    for k in range(2, theta.shape[1]):
        older, newer = newer, 2 * (shift @ newer.flatten(1)).view(u.shape) - older
        total = total + theta[:, k, None] * newer
    return total


def _resident(name: str) -> int:
    """Return a number of bytes from this process' status."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise ValueError(name)


def measure(what: str, degree: int, edges: int) -> None:
    """Print the largest resident memory, beyond what was there before, of forward and backward, or of all with the shift."""
    torch.set_num_threads(1)
    edge_index = pairs(NODES, edges)
    u = torch.randn(NODES, ORDER + 1, 7, requires_grad=True)
    theta = torch.randn(ORDER + 1, degree + 1, requires_grad=True)
    # So that libraries are loaded and workspaces are there.
    small = torch.ones(10, 1, 1, requires_grad=True)
    filter_signals(small, torch.ones(1, 3), normalized_shift(pairs(10, 20))).sum().backward()  # type: ignore[no-untyped-call]
    shift = normalized_shift(edge_index, num_nodes=NODES) if what != "all" else None
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    start = time.thread_time()
    if shift is None:
        shift = normalized_shift(edge_index, num_nodes=NODES)
    total = (by_autograd if what == "autograd" else filter_signals)(u, theta, shift)
    total.backward(torch.ones_like(total))  # type: ignore[no-untyped-call]
    print(_resident("VmHWM") - before, time.thread_time() - start)


def _measured(what: str, degree: int, edges: int) -> tuple[float, float]:
    """Return megabytes and seconds of `measure` in a process of its own, whose arrays are given back when freed."""
    call = [sys.executable, __file__, "measure", what, str(degree), str(edges)]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    run = subprocess.run(call, capture_output=True, text=True, check=True, env=environment)
    size, seconds = map(float, run.stdout.split())
    return size / 1e6, seconds


def memory() -> None:
    """Show that the memory of a filter does not grow with its degree, and grows in proportion to the edges."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        print("memory: there is no /proc/self/clear_refs to reset the largest resident size")
        return
    edges, degrees = 1_000_000, (5, 10, 20, 40)
    found = {
        what: [_measured(what, degree, edges) for degree in tried]
        for what, tried in (("ours", degrees), ("autograd", degrees[:3]))
    }
    print(f"forward and backward, {edges:,} undirected edges, {NODES:,} nodes, width {7 * (ORDER + 1)}")
    for what, name in (("ours", "ChebProp"), ("autograd", "the same by torch's operations")):
        sizes, seconds = zip(*found[what], strict=True)
        listed = ", ".join(
            f"degree {degree} {size:.0f} MB {time:.2f} s"
            for degree, size, time in zip(degrees, sizes, seconds, strict=False)
        )
        spread = max(sizes) / min(sizes)
        print(f"  {name}: {listed}; largest over smallest {spread:.3f}", end="")
        print(f", {verdict(spread, 1.05)}" if what == "ours" else "")
    counts = (250_000, 500_000, 1_000_000)
    grown = [_measured("all", DEGREE, count) for count in counts]
    listed = ", ".join(
        f"{count:,}: {size:.0f} MB {seconds:.2f} s" for count, (size, seconds) in zip(counts, grown, strict=True)
    )
    growth = (grown[2][0] - grown[1][0]) / (grown[1][0] - grown[0][0])
    print(f"  with the shift, by edges: {listed}; the second step takes {growth:.2f} times the first, linear is 2")


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"one thread; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    cora = graph("cora", 2708, 5278, 7, 1433, 0.0127)
    print(
        f"{cora.name}: {len(cora.x):,} nodes, {cora.edge_index.shape[1]:,} directed edges, {cora.x.shape[1]:,} features"
    )
    epochs(cora)
    ensembles(cora)
    seeds(cora)
    propagation(graph("tolokers", 11_758, 519_000, 2, 10, 0.5))
    memory()


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
