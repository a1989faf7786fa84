"""Speed of `paperworks.comonet`, beside a plain network of equal multiply-adds and xgboost on the same data in one run.

Run: python benchmarks/bench_comonet.py
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from paperworks.comonet.certificates import certify
from paperworks.comonet.data import make_eight_regimes
from paperworks.comonet.estimators import COMONetRegressor
from paperworks.comonet.network import COMONet
from paperworks.core.extras import MissingExtra, require
from paperworks.core.timing import best_of


def table(n: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, list[str]]:
    data = make_eight_regimes(n=n, random_state=0)
    x, y = (torch.tensor(np.asarray(part), dtype=dtype) for part in (data.data, data.target))
    return x, y, list(data.shapes.values())


def plain(columns: int, multiply_adds: int, dtype: torch.dtype) -> nn.Sequential:
    """Return a ReLU network of two hidden layers with as many multiply-adds a row."""
    width = round((math.sqrt((columns + 1) ** 2 + 4 * multiply_adds) - columns - 1) / 2)
    layers = (nn.Linear(columns, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    return nn.Sequential(*layers, nn.Flatten(0)).to(dtype)


def weights(net: nn.Module) -> int:
    """Return the number of weights without biases: multiply-adds a row."""
    return sum(parameter.numel() for name, parameter in net.named_parameters() if not name.endswith("bias"))


def side_by_side(first: Callable[[], object], second: Callable[[], object], rounds: int = 50) -> tuple[float, float]:
    """Return the CPU seconds of the fastest call of each, in turns, without what they wait for others."""
    best = [math.inf, math.inf]
    for _ in range(rounds):
        for k, call in enumerate((first, second)):
            start = time.thread_time()
            call()
            best[k] = min(best[k], time.thread_time() - start)
    return best[0], best[1]


def step(net: nn.Module, x: Tensor, y: Tensor) -> None:
    net.zero_grad()
    (net(x) - y).square().mean().backward()


def forward(net: nn.Module, x: Tensor, _: Tensor) -> None:
    net(x)


def predict(net: nn.Module, x: Tensor, _: Tensor) -> None:
    with torch.no_grad():
        net(x)


WORK = {"forward and backward": step, "forward": forward, "forward without gradients": predict}


def verdict(value: float, target: float) -> str:
    return f"target {target:g}: {'met' if value <= target else 'MISSED'}"


def line(what: str, seconds: float, note: str = "") -> None:
    print(f"{what:<58} {seconds:10.4f} s   {note}".rstrip())


def against_plain_networks() -> None:
    for unit in ("maxout", "relu"):
        for dtype in (torch.float32, torch.float64):
            x, y, shapes = table(10_000, dtype)
            ours = COMONet(shapes, unit=unit, generator=torch.Generator().manual_seed(0), dtype=dtype)
            theirs = plain(x.shape[1], weights(ours), dtype)
            print(f"{unit}, {str(dtype)[6:]}, 10,000 rows: {weights(ours)} and {weights(theirs)} multiply-adds a row")
            for what, work in WORK.items():
                a, b = side_by_side(partial(work, ours, x, y), partial(work, theirs, x, y))
                line(f"  {what}", a, f"plain {b:.4f} s, ratio {a / b:.2f}, {verdict(a / b, 3)}")


def growth() -> None:
    for n in (1_000, 10_000, 100_000):
        x, y, shapes = table(n, torch.float32)
        net = COMONet(shapes, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
        line(f"forward and backward, {n:,} rows", best_of(partial(step, net, x, y), 5))


def fits() -> None:
    data = make_eight_regimes(n=1000, random_state=0)
    model = COMONetRegressor(shapes=data.shapes, solver="lbfgs", max_iter=200, random_state=0)
    ours = best_of(lambda: model.fit(data.data, data.target), 2)
    line(f"fit of 1000 x 9, L-BFGS, {model.n_iter_} iterations, certified", ours, verdict(ours, 10))
    line("  structural certificate of it", best_of(lambda: certify(model)))
    try:
        xgboost = require("xgboost", "peers")
    except MissingExtra as error:
        print(f"  xgboost: {error}")
        return
    signs = tuple(shape.monotonicity for shape in model.shapes_)
    peer = xgboost.XGBRegressor(monotone_constraints=signs, n_jobs=1, random_state=0)
    theirs = best_of(lambda: peer.fit(data.data.to_numpy(), data.target))
    line("  xgboost, monotone constraints, its own defaults", theirs, f"ours takes {ours / theirs:.0f} times as long")


def layers(first: tuple[list[list[float]], list[float]], last: list[float], unit: nn.Module) -> nn.Sequential:
    """Return last · unit(W x + b) in float64."""
    weight, bias = (torch.tensor(part, dtype=torch.float64) for part in first)
    net = nn.Sequential(nn.Linear(weight.shape[1], len(bias)), unit, nn.Linear(len(bias), 1)).double()
    with torch.no_grad():
        net[0].weight.copy_(weight)
        net[0].bias.copy_(bias)
        net[2].weight.copy_(torch.tensor([last]))
        net[2].bias.zero_()
    return net


def closed_forms() -> None:
    """Certify functions whose shapes are known: softplus(2x) - softplus(x) rises from -0.8814, bends up to ±1.6629."""
    bend = layers(([[2.0], [1.0]], [0.0, 0.0]), [1.0, -1.0], nn.Softplus())
    ridge = layers(([[1.0, 1.0]], [0.0]), [1.0], nn.ReLU())
    cases = [
        ("softplus(2x) - softplus(x) increasing", bend, ["increasing"], [(-0.88, 3.0)], True),
        ("softplus(2x) - softplus(x) increasing", bend, ["increasing"], [(-0.9, 3.0)], False),
        ("softplus(2x) - softplus(x) convex", bend, ["convex"], [(-1.66, 1.66)], True),
        ("softplus(2x) - softplus(x) convex", bend, ["convex"], [(-1.7, 1.7)], False),
        ("relu(x + y) convex, concave", ridge, ["convex", "concave"], [(-1.0, 1.0)] * 2, False),
    ]
    for what, net, shapes, domain, true in cases:
        found = certify(net, shapes, domain=domain, method="interval")
        seconds = best_of(partial(certify, net, shapes, domain=domain, method="interval"))
        answer = ("proved" if found.ok else "not proved") + ("" if found.ok == true else ", WRONG")
        boxes = sum(column.boxes for column in found.columns)
        line(f"{what} on {domain[0]}", seconds, f"{answer}, {boxes} boxes")


def main() -> None:
    torch.set_num_threads(1)
    against_plain_networks()
    growth()
    fits()
    closed_forms()


if __name__ == "__main__":
    main()
