"""The ledger: what the paper claims, what we claim, and the measurements that decide."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from paperworks.comonet.data import (
    COMPAS,
    ELECTRICITY,
    RICE_FARMS,
    eight_regimes,
    load_auto_mpg,
    load_compas,
    load_electricity,
    load_heart,
    load_rice_farms,
    make_black_scholes,
    make_cobb_douglas,
    make_eight_regimes,
    make_saddle,
)
from paperworks.comonet.shapes import Shape, resolve_shapes
from paperworks.core.claims import Claim, Experiment, Headline, Row, Scale, Trial, Verdict

if TYPE_CHECKING:
    from torch import Tensor, nn

    from paperworks.comonet.network import COMONet

__all__ = ["CLAIMS", "EXPERIMENTS"]

Floats = NDArray[np.float64]

# Torch and the peers are imported where they are used, so that the ledger can be read without them.


def _requires(method: str) -> tuple[str, ...]:
    """Return the packages of a method; written out here because `peers` imports torch."""
    return {"xgboost": ("xgboost-cpu",), "pygam": ("pygam",)}.get(method, ())


def _nmse(predicted: Any, truth: Floats) -> float:
    """Return the mean squared error to the noise-free truth over its variance."""
    return float(np.mean((np.asarray(predicted) - truth) ** 2) / truth.var())


def _broken(predict: Callable[[Any], Any], rows: Any, shapes: Sequence[Shape], lines: int) -> tuple[float, float, int]:
    """Return the share of sampled segments that break a declared shape, the worst column's share, and their number."""
    from paperworks.comonet.auditing import audit

    table = audit(predict, np.asarray(rows, dtype=np.float64), list(shapes), n_lines=lines).to_frame()
    total = int(table["checked"].sum())
    return float((table["share"] * table["checked"]).sum() / total), float(table["share"].max()), total


def _mean(table: pd.DataFrame, method: str, name: str = "value.nmse") -> float:
    return float(table.loc[table["param.method"] == method, name].mean())


def _means(table: pd.DataFrame, keys: list[str], name: str = "value.nmse") -> dict[tuple[Any, ...], float]:
    """Return the mean of a column for every combination of two or more others."""
    found: dict[tuple[Any, ...], float] = table.groupby(keys)[name].mean().to_dict()  # type: ignore[assignment]
    return found


# All eight shapes in one target, at three levels of noise


REGIME_METHODS = ("comonet", "comonet-relu", "mlp", "xgboost", "pygam")
_COSTS = {"comonet": 10.0, "comonet-relu": 3.0, "pygam": 5.0}


def _regime_trials(scale: Scale) -> list[Trial]:
    cases = [(600, 0.1), (600, 0.5), (600, 1.0)]
    tune = scale == "full"
    if tune:
        cases.append((2400, 0.1))
    return [
        Trial(
            {"method": method, "rows": rows, "noise": noise, "tune": tune},
            seed=seed,
            cost=_COSTS.get(method, 1.0) * rows / 600,
            requires=_requires(method),
        )
        for rows, noise in cases
        for method in REGIME_METHODS
        if tune or method != "comonet-relu"
        for seed in range(5 if tune else 1)
    ]


def _measure_regimes(trial: Trial) -> Row:
    from paperworks.comonet.peers import fit_method

    train = make_eight_regimes(trial["rows"], trial["noise"], random_state=trial.seed)
    test = make_eight_regimes(4000, 0.0, random_state=10_000 + trial.seed)
    shapes = list(train.shapes.values())
    start = time.process_time()
    model = fit_method(trial["method"], train.data, train.target, shapes, tune=trial["tune"], seed=trial.seed)
    seconds = time.process_time() - start
    share, worst, checked = _broken(model.predict, train.data, shapes, 100)
    best = getattr(model, "best_estimator_", model)
    return {
        "nmse": _nmse(model.predict(test.data.to_numpy()), test.truth),
        "violated": share,
        "worst_column": worst,
        "checked": checked,
        "certified": best.certificate_.ok if trial["method"].startswith("comonet") else None,
        "chosen": str(getattr(model, "best_params_", "")),
        "seconds": seconds,
    }


def _judge_eight(regimes: pd.DataFrame, curves: pd.DataFrame) -> Verdict:
    ours = regimes[regimes["param.method"].isin(["comonet", "comonet-relu"])]
    broken, checked = ours["value.violated"].max(), int(ours["value.checked"].sum())
    return Verdict.decide(
        bool(ours["value.certified"].astype(bool).all()) and broken == 0,
        f"All {len(ours)} fitted networks are proved to have all eight shapes at once, and none of {checked:,} sampled "
        f"segments breaks one; the error to the truth is {_mean(ours, 'comonet'):.3f} of its variance on average.",
        Headline("largest share of broken segments", float(broken)),
        Headline("segments sampled", checked),
    )


def _judge_synth(regimes: pd.DataFrame) -> Verdict:
    table = regimes[regimes["param.noise"] == 0.1]
    sizes = sorted(set(table["param.rows"]))
    parts, passed = [], True
    for rows in sizes:
        part = table[table["param.rows"] == rows]
        means = {method: _mean(part, method) for method in REGIME_METHODS if method in set(part["param.method"])}
        rivals = [means[method] for method in ("mlp", "xgboost") if method in means]
        passed = passed and means["comonet"] <= min(rivals)
        parts.append(f"{rows} rows: " + ", ".join(f"{method} {value:.4f}" for method, value in means.items()))
    small = table[table["param.rows"] == sizes[0]]
    gam, ours = _mean(small, "pygam"), _mean(small, "comonet")
    note = " pyGAM is better on this target, which is nearly additive." if gam < ours else ""
    return Verdict.decide(
        passed,
        f"Error to the truth over its variance — {'; '.join(parts)}.{note}",
        Headline("COMONet", ours),
        *(Headline(name, _mean(small, name)) for name in ("mlp", "xgboost") if name in set(small["param.method"])),
        *([Headline("pygam", gam)] if gam == gam else []),
    )


def _judge_noise(regimes: pd.DataFrame) -> Verdict:
    table = regimes[regimes["param.rows"] == 600]
    means = {
        method: [_mean(table[table["param.noise"] == noise], method) for noise in (0.1, 0.5, 1.0)]
        for method in REGIME_METHODS
        if method in set(table["param.method"])
    }
    ratios = [ours / mlp for ours, mlp in zip(means["comonet"], means["mlp"], strict=True)][1:]
    broken = float(table.loc[table["param.method"] == "comonet", "value.violated"].max())
    half = sum(ratio <= 0.5 for ratio in ratios)
    told = "; ".join(f"{method} " + "/".join(f"{value:.3f}" for value in values) for method, values in means.items())
    return Verdict.decide(
        half == 2 and broken == 0,
        f"Noise of 0.1/0.5/1 standard deviations: {told}. COMONet's error is {ratios[0]:.2f} and {ratios[1]:.2f} of the "
        f"plain network's at the two higher levels; no shape is broken at any.",
        Headline("COMONet over MLP, noise 0.5", ratios[0]),
        Headline("COMONet over MLP, noise 1", ratios[1]),
        partly=broken == 0 and half,
    )


def _curve_trials(scale: Scale) -> list[Trial]:
    return [Trial({"method": method}, requires=_requires(method)) for method in ("truth", "comonet", "xgboost")]


def _measure_curves(trial: Trial) -> list[Row]:
    """Predict along every axis through the centre."""
    train = make_eight_regimes(600, 0.5, random_state=0)
    if trial["method"] == "truth":
        predict: Callable[[Floats], Any] = eight_regimes
    else:
        from paperworks.comonet.peers import fit_method

        predict = fit_method(trial["method"], train.data, train.target, list(train.shapes.values())).predict
    grid = np.linspace(-1, 1, 41)
    rows: list[Row] = []
    for j, name in enumerate(train.data):
        points = np.zeros((len(grid), train.data.shape[1]))
        points[:, j] = grid
        values = np.asarray(predict(points), dtype=float)
        rows += [{"column": name, "x": float(x), "prediction": float(y)} for x, y in zip(grid, values, strict=True)]
    return rows


# Penalties, and peers that know a part of the shapes


def _penalty_trials(scale: Scale) -> list[Trial]:
    seeds = range(1 if scale == "quick" else 3)
    return [Trial({"strength": strength}, seed=seed) for strength in (1e-4, 1e-2, 1.0) for seed in seeds]


def _measure_penalty(trial: Trial) -> Row:
    from paperworks.comonet.peers import PenaltyMLP

    train = make_eight_regimes(600, 0.5, random_state=trial.seed)
    test = make_eight_regimes(4000, 0.0, random_state=10_000 + trial.seed)
    shapes = list(train.shapes.values())
    model = PenaltyMLP(shapes, trial["strength"], seed=trial.seed).fit(train.data, train.target)
    share, worst, _ = _broken(model.predict, train.data, shapes, 100)
    return {"nmse": _nmse(model.predict(test.data), test.truth), "violated": share, "worst_column": worst}


def _judge_penalty(penalty: pd.DataFrame, regimes: pd.DataFrame) -> Verdict:
    ours = regimes[(regimes["param.method"] == "comonet") & (regimes["param.noise"] == 0.5)]
    parts = [
        (strength, float(rows["value.violated"].mean()), float(rows["value.nmse"].mean()))
        for strength in (1e-4, 1e-2, 1.0)
        for rows in [penalty[penalty["param.strength"] == strength]]
    ]
    told = "; ".join(f"λ = {s:g}: {100 * share:.1f} % broken, error {nmse:.3f}" for s, share, nmse in parts)
    broken = float(ours["value.violated"].max())
    return Verdict.decide(
        bool((penalty["value.violated"] > 0).all()) and broken == 0,
        f"Penalised network — {told}. COMONet on the same rows: {100 * broken:g} % broken, error "
        f"{ours['value.nmse'].mean():.3f}.",
        *(Headline(f"share broken, λ = {s:g}", share) for s, share, _ in parts),
        Headline("share broken, COMONet", broken),
    )


def _subset_trials(scale: Scale) -> list[Trial]:
    return [Trial()]


def _measure_subset(trial: Trial) -> list[Row]:
    """Show that the convex trunk that MonoDense builds, relu(x1 + x2), is not concave in x2."""
    from paperworks.comonet.certificates import certify

    net = _sequential([[1.0, 1.0]], [0.0], [[1.0]], "relu")
    column = certify(net, ["convex", "concave"], domain=[(-1, 1), (-1, 1)]).columns[1]
    if column.witness is None:
        return [{"kind": "none", "x": 0.0, "prediction": 0.0, "violated": False}]
    points = np.array(column.witness.points)
    line = np.linspace(-1, 1, 81)
    shown = [("line", x, max(points[0, 0] + x, 0.0)) for x in line]
    shown += [("witness", x, y) for x, y in zip(points[:, 1], column.witness.values, strict=True)]
    shown += [("chord", points[k, 1], column.witness.values[k]) for k in (0, -1)]
    return [{"kind": kind, "x": float(x), "prediction": float(y), "violated": True} for kind, x, y in shown]


def _judge_subset(regimes: pd.DataFrame, subset: pd.DataFrame) -> Verdict:
    refuted = bool(subset["value.violated"].astype(bool).all())
    boosted = regimes[regimes["param.method"] == "xgboost"]
    told, passed = "XGBoost is not installed.", refuted
    if len(boosted):
        least, most = boosted["value.violated"].min(), boosted["value.violated"].max()
        passed = passed and bool(least > 0)
        told = (
            f"XGBoost with monotone constraints breaks {100 * least:.0f} to {100 * most:.0f} % of the sampled segments, "
            f"{100 * boosted['value.worst_column'].max():.0f} % in its worst column: it knows no curvature."
        )
    return Verdict.decide(
        passed,
        f"{told} A convex trunk, relu(x1 + x2), with column 2 declared concave is "
        f"{'refuted by three points' if refuted else 'not refuted'}.",
        *([Headline("least share broken, XGBoost", float(boosted["value.violated"].min()))] if len(boosted) else []),
    )


# By construction: random parameters, routing, the last bit


def _random_trials(scale: Scale) -> list[Trial]:
    count = 4 if scale == "quick" else 70
    return [Trial({"interactions": kind, "networks": count}) for kind in ("additive", "product", "both")]


def _measure_random(trial: Trial) -> list[Row]:
    import torch

    from paperworks.comonet.certificates import certify
    from paperworks.comonet.network import COMONet

    rng = np.random.default_rng([trial.seed, len(trial["interactions"])])
    generator = torch.Generator().manual_seed(trial.seed)
    rows: list[Row] = []
    for k in range(trial["networks"]):
        shapes = [list(Shape)[i] for i in rng.integers(0, 9, 6)]
        net = COMONet(
            shapes,
            unit=("maxout", "relu", "lse", "softplus")[k % 4],
            mono_unit=("minmax", "mixed", "relu_n")[k % 3],
            interactions=trial["interactions"],
            domain=[(-1, 1)] * 6,
            dtype=torch.float64,
        ).eval()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.normal_(0, 2, generator=generator)
        worst, checked = _worst_difference(net, shapes, rng)
        rows.append({"proved": certify(net).ok, "worst": worst, "checked": checked})
    return rows


def _worst_difference(net: COMONet, shapes: Sequence[Shape], rng: np.random.Generator) -> tuple[float, int]:
    """Return the most negative first or second difference in a declared direction over the largest value, and how many."""
    import torch

    lines, grid = 50, np.linspace(-1, 1, 21)
    worst, checked = 0.0, 0
    for j, shape in enumerate(shapes):
        points = np.repeat(rng.uniform(-1, 1, (lines, 1, len(shapes))), len(grid), axis=1)
        points[:, :, j] = grid
        with torch.no_grad():
            values = net(torch.from_numpy(points.reshape(-1, len(shapes)))).numpy().reshape(lines, -1)
        for order, sign in ((1, shape.monotonicity), (2, shape.curvature)):
            if sign:
                differences = sign * np.diff(values, order, axis=1)
                worst = min(worst, float((differences / np.abs(values).max()).min()))
                checked += differences.size
    return worst, checked


def _judge_random(table: pd.DataFrame) -> Verdict:
    proved, worst = int(table["value.proved"].sum()), float(table["value.worst"].min())
    return Verdict.decide(
        proved == len(table) and worst >= -1e-12,
        f"{proved} of {len(table)} networks with parameters drawn from N(0, 2²) are proved to have their shapes; the worst "
        f"of {int(table['value.checked'].sum()):,} sampled differences is {worst:.1e} of the largest value.",
        Headline("networks proved", proved),
        Headline("worst difference over the largest value", worst),
    )


_GROUPS = tuple(shape for shape in Shape if shape.monotonicity >= 0)


def _routing_trials(scale: Scale) -> list[Trial]:
    return [Trial({"groups": count}) for count in range(1, len(_GROUPS) + 1)]


def _measure_routing(trial: Trial) -> list[Row]:
    """Compare what every unit can depend on, and what it reacts to, with what follows from the routing table."""
    rows: list[Row] = []
    for subset in combinations(_GROUPS, trial["groups"]):
        wrong = units = 0
        for linked, reacts, expected in _reach(subset):
            units += len(linked)
            wrong += int((linked != expected).any(axis=1).sum()) + int((reacts & ~expected).any(axis=1).sum())
        rows.append({"subset": ", ".join(subset), "units": units, "wrong": wrong})
    return rows


Flags = NDArray[np.bool_]


def _reach(subset: Sequence[Shape]) -> Iterator[tuple[Flags, Flags, Flags]]:
    """Yield three tables of groups, (units, groups), for every stream of every layer.

    From which groups paths of weights that are not zero lead to each unit; to which it reacts when a group's columns
    move, which can be fewer; and which groups ROUTING admits.
    """
    import torch

    from paperworks.comonet.network import COMONet
    from paperworks.comonet.units import ROUTING

    generator = torch.Generator().manual_seed(0)
    net = COMONet([group for group in subset for _ in range(2)], generator=generator, dtype=torch.float64)
    base = torch.randn(50, 2 * len(subset), generator=generator, dtype=torch.float64)
    moved = [base.clone() for _ in subset]
    for k, inputs in enumerate(moved):
        inputs[:, 2 * k : 2 * k + 2] += torch.randn(50, 2, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        before, *after = [_unit_values(net, inputs) for inputs in (base, *moved)]
    # The first layer's ordinary and increasing units are the free and the increasing columns.
    columns = {str(group): np.tile(np.array(subset) == group, (2, 1)) for group in subset}
    linked = columns | {
        name: columns[group] for name, group in (("r", "free"), ("e", "increasing")) if group in columns
    }
    admitted = {source: flags[0] for source, flags in linked.items()}
    for k, layer in enumerate(net.layers):
        streams = dict(layer.named_children())
        sources = {name: [s for s in linked if ROUTING[s, name]] for name in streams}
        admitted |= {name: np.any([admitted[s] for s in found], axis=0) for name, found in sources.items()}
        linked |= {name: _linked(part, linked) for name, part in streams.items()}
        for name, values in before[k].items():
            reacts = np.stack([(values != other[k][name]).any(0).numpy() for other in after], axis=1)
            yield linked[name], reacts, np.tile(admitted[name], (len(reacts), 1))


def _linked(layer: Any, linked: Mapping[str, Flags]) -> Flags:
    """Return from which groups a path of weights that are not zero leads to each unit of a layer."""
    sizes = [*layer.linear.positive, *layer.linear.signed]
    blocks = np.split(layer.linear.weight.detach().numpy() != 0, np.cumsum(sizes)[:-1], axis=1)
    found = np.any([block @ linked[source] for source, block in zip(layer.sources, blocks, strict=True)], axis=0)
    units = []
    for part, rows in zip(layer.units.parts, np.split(found, np.cumsum(layer.units.sizes)[:-1]), strict=True):
        units.append(rows.reshape(-1, layer.units.pieces if part.grouped else 1, found.shape[1]).any(axis=1))
    return np.concatenate(units)


def _unit_values(net: COMONet, x: Tensor) -> list[dict[str, Tensor]]:
    """Return the values of every layer's streams, (rows, units) each."""
    seen: list[dict[str, Tensor]] = []
    handles = []
    for layer in net.layers:
        values: dict[str, Tensor] = {}
        seen.append(values)
        for name, part in layer.named_children():
            handles.append(part.register_forward_hook(lambda _, __, out, at=values, key=name: at.update({key: out.T})))
    net(x)
    for handle in handles:
        handle.remove()
    return seen


def _judge_routing(table: pd.DataFrame) -> Verdict:
    wrong, units = int(table["value.wrong"].sum()), int(table["value.units"].sum())
    return Verdict.decide(
        wrong == 0 and len(table) == 63,
        f"In all {len(table)} combinations of the six groups of columns {units - wrong} of {units} units are connected "
        "with exactly the groups that the routing table admits, and react to no other.",
        Headline("units connected otherwise", wrong),
    )


def _ulp_trials(scale: Scale) -> list[Trial]:
    steps = 1500 if scale == "quick" else 25_000
    return [
        Trial({"unit": unit, "mono_unit": mono, "steps": steps}, seed=seed)
        for unit, mono in (("maxout", "minmax"), ("relu", "relu_n"))
        for seed in range(2)
    ]


def _measure_ulp(trial: Trial) -> Row:
    """Step one unit in the last place along every monotone column."""
    import torch

    from paperworks.comonet.network import COMONet

    shapes = list(make_eight_regimes(1).shapes.values())
    generator = torch.Generator().manual_seed(trial.seed)
    net = COMONet(
        shapes, unit=trial["unit"], mono_unit=trial["mono_unit"], generator=generator, dtype=torch.float64
    ).eval()
    columns = [j for j, shape in enumerate(shapes) if shape.monotonicity]
    rows = -(-trial["steps"] // len(columns))
    x = torch.rand(rows, len(shapes), generator=generator, dtype=torch.float64) * 2 - 1
    wrong = moved = 0
    with torch.no_grad():
        before = net(x)
        for j in columns:
            up = x.clone()
            up[:, j] = torch.nextafter(x[:, j], torch.full_like(x[:, j], torch.inf))
            step = shapes[j].monotonicity * (net(up) - before)
            wrong, moved = wrong + int((step < 0).sum()), moved + int((step > 0).sum())
    return {"steps": rows * len(columns), "wrong": wrong, "moved": moved}


def _judge_ulp(table: pd.DataFrame) -> Verdict:
    steps, wrong, moved = (int(table[f"value.{name}"].sum()) for name in ("steps", "wrong", "moved"))
    return Verdict.decide(
        wrong == 0 and moved > 0,
        f"Of {steps:,} steps to the next floating-point number along monotone columns {wrong} change the output the wrong "
        f"way; {moved:,} change it the right way.",
        Headline("steps the wrong way", wrong),
    )


# What units can and cannot represent


EXACT = 0.03
"""The penalty for targets without noise."""

BOUNDS = {"cobb_douglas": 0.518985, "max": 0.25, "min": 0.25}
"""Sup errors that no separable network can beat on these targets."""


def _target(name: str, seed: int, rows: int = 1000, noise: float = 0.0) -> Any:
    """Draw rows of a target: data, target, truth, shapes."""
    if name == "black_scholes":
        return make_black_scholes(rows, noise, random_state=seed)
    if name == "cobb_douglas":
        return make_cobb_douglas(rows, 0.3, 0.6, noise=noise, random_state=seed)
    if name == "x^0.7·y^0.8":
        return make_cobb_douglas(rows, 0.7, 0.8, noise=noise, random_state=seed)
    drawn = make_saddle(rows, noise, random_state=seed)
    if name in ("max", "min"):
        drawn.target = drawn.truth = (
            drawn.data.to_numpy().max(axis=1) if name == "max" else drawn.data.to_numpy().min(1)
        )
        drawn.shapes = dict.fromkeys(drawn.data, Shape.parse("convex inc" if name == "max" else "concave inc"))
    return drawn


def _corners(name: str) -> tuple[Floats, Floats]:
    """Return a fine grid of the whole domain of a target of two columns, and the truth there."""
    low, high = (0.1, 4.0) if name == "cobb_douglas" else (0.0, 1.0)
    x, y = (part.ravel() for part in np.meshgrid(*[np.linspace(low, high, 41)] * 2))
    truth = {"cobb_douglas": x**0.3 * y**0.6, "max": np.maximum(x, y), "min": np.minimum(x, y)}
    return np.column_stack([x, y]), truth[name]


def _target_trials(scale: Scale) -> list[Trial]:
    seeds = range(1 if scale == "quick" else 3)
    return [
        Trial({"target": target, "unit": unit}, seed=seed)
        for target in (*BOUNDS, *(["black_scholes"] if scale == "full" else []))
        for unit in ("relu", "maxout", *(["lse"] if scale == "full" else []), "mlp")
        for seed in seeds
    ]


def _measure_target(trial: Trial) -> Row:
    from paperworks.comonet.estimators import COMONetRegressor
    from paperworks.comonet.peers import fit_method

    name, seed = trial["target"], trial.seed
    train, test = _target(name, seed), _target(name, 10_000 + seed)
    if trial["unit"] == "mlp":
        model = fit_method("mlp", train.data, train.target, list(train.shapes.values()), seed=seed)
    else:
        model = COMONetRegressor(list(train.shapes.values()), unit=trial["unit"], alpha=EXACT, random_state=seed)
        model.fit(train.data.to_numpy(), train.target)
    sup = None
    if name in BOUNDS:
        points, truth = _corners(name)
        sup = float(np.abs(model.predict(points) - truth).max())
    return {"nmse": _nmse(model.predict(test.data.to_numpy()), test.truth), "sup": sup, "bound": BOUNDS.get(name)}


def _map_trials(scale: Scale) -> list[Trial]:
    return [Trial({"method": method}) for method in ("truth", "relu", "maxout")]


def _measure_maps(trial: Trial) -> list[Row]:
    x, y = (part.ravel() for part in np.meshgrid(*[np.linspace(0.1, 4, 30)] * 2))
    values = x**0.3 * y**0.6
    if trial["method"] != "truth":
        from paperworks.comonet.estimators import COMONetRegressor

        train = _target("cobb_douglas", 0)
        model = COMONetRegressor(list(train.shapes.values()), unit=trial["method"], alpha=EXACT, random_state=0)
        values = model.fit(train.data.to_numpy(), train.target).predict(np.column_stack([x, y]))
    return [
        {"x": float(a), "y": float(b), "prediction": float(value)} for a, b, value in zip(x, y, values, strict=True)
    ]


def _judge_targets(targets: pd.DataFrame, maps: pd.DataFrame) -> Verdict:
    means = _means(targets, ["param.target", "param.unit"])
    ratios = {name: means[name, "relu"] / means[name, "maxout"] for name in BOUNDS}
    relu = targets[(targets["param.unit"] == "relu") & targets["value.bound"].notna()]
    margin = float((relu["value.sup"] / relu["value.bound"]).min())
    told = "; ".join(
        f"{name}: " + ", ".join(f"{unit} {value:.1e}" for (target, unit), value in means.items() if target == name)
        for name in dict.fromkeys(target for target, _ in means)
    )
    respected = margin >= 1 - 1e-9
    return Verdict.decide(
        min(ratios.values()) >= 50 and respected,
        f"Error over variance — {told}. On the first three separable units err at least {min(ratios.values()):.0f} times "
        f"as much; their largest error is never below {margin:.2f} of the bound that no such network can beat.",
        *(Headline(f"relu over maxout, {name}", ratio) for name, ratio in ratios.items()),
        Headline("smallest sup error over its bound", margin),
        partly=respected and max(ratios.values()) >= 50,
    )


PRODUCTS = ("x^0.7·y^0.8", "saddle")


def _product_trials(scale: Scale) -> list[Trial]:
    seeds = range(1 if scale == "quick" else 3)
    return [
        Trial({"target": target, "method": method}, seed=seed)
        for target in PRODUCTS
        for method in ("additive", "product", *(["both", "relu"] if scale == "full" else []))
        for seed in seeds
    ]


def _measure_product(trial: Trial) -> Row:
    from paperworks.comonet.estimators import COMONetRegressor

    train, test = (_target(trial["target"], seed) for seed in (trial.seed, 10_000 + trial.seed))
    relu = trial["method"] == "relu"
    low, high = (0.1, 4.0) if trial["target"] != "saddle" else (0.0, 1.0)
    model = COMONetRegressor(
        list(train.shapes.values()),
        unit="relu" if relu else "maxout",
        interactions="additive" if relu else trial["method"],
        domain=dict.fromkeys(range(2), (low, high)),
        alpha=EXACT,
        random_state=trial.seed,
    ).fit(train.data.to_numpy(), train.target)
    return {"nmse": _nmse(model.predict(test.data.to_numpy()), test.truth)}


def _judge_products(table: pd.DataFrame) -> Verdict:
    means = _means(table, ["param.target", "param.method"])
    ratios = {name: means[name, "product"] / means[name, "additive"] for name in PRODUCTS}
    told = "; ".join(
        f"{name}: " + ", ".join(f"{kind} {value:.1e}" for (target, kind), value in means.items() if target == name)
        for name in PRODUCTS
    )
    return Verdict.decide(
        max(ratios.values()) <= 0.1,
        f"Error over variance — {told}.",
        *(Headline(f"product over additive, {name}", ratio) for name, ratio in ratios.items()),
    )


# Option prices from noisy quotes


def _smile_trials(scale: Scale) -> list[Trial]:
    seeds = range(1 if scale == "quick" else 3)
    return [
        Trial({"method": method, "rows": 400 if scale == "quick" else 1000}, seed=seed, requires=_requires(method))
        for method in ("truth", "comonet", "mlp", "xgboost")
        for seed in seeds
    ]


def _measure_smile(trial: Trial) -> list[Row]:
    """Predict prices along the strikes of 100 options; the rows are those of the first."""
    from paperworks.comonet.data import black_scholes

    train = make_black_scholes(trial["rows"], 0.05, random_state=trial.seed)
    options = make_black_scholes(100, 0.0, random_state=10_000 + trial.seed)
    strikes = np.linspace(50, 150, 41)
    lines = np.repeat(options.data.to_numpy(), len(strikes), axis=0)
    lines[: len(strikes)] = [100, 0, 0.5, 0.25, 0.03]
    lines[:, 1] = np.tile(strikes, len(options.data))
    truth = black_scholes(*lines.T)
    prices = truth if trial["method"] == "truth" else np.asarray(_price(trial, train)(lines), dtype=float)
    curves = prices.reshape(-1, len(strikes))
    density = np.diff(curves, 2, axis=1) / (strikes[1] - strikes[0]) ** 2
    common = {
        "nmse": _nmse(prices, truth),
        "negative": float((density < -1e-9).mean()),
        "rising": float((np.diff(curves, axis=1) > 1e-9).mean()),
    }
    return [
        {"strike": float(k), "price": float(price), "density": float(mass), **common}
        for k, price, mass in zip(strikes[1:-1], curves[0, 1:-1], density[0], strict=True)
    ]


def _price(trial: Trial, train: Any) -> Callable[[Floats], Any]:
    from paperworks.comonet.estimators import COMONetRegressor
    from paperworks.comonet.peers import fit_method

    shapes = list(train.shapes.values())
    if trial["method"] != "comonet":
        found: Callable[[Floats], Any] = fit_method(
            trial["method"], train.data, train.target, shapes, seed=trial.seed
        ).predict
        return found
    model = COMONetRegressor(shapes, unit="lse", alpha=EXACT, random_state=trial.seed)
    predict: Callable[[Floats], Any] = model.fit(train.data.to_numpy(), train.target).predict
    return predict


def _judge_smile(smile: pd.DataFrame) -> Verdict:
    scores = smile.drop_duplicates(["param.method", "param.seed"])
    nmse, negative, rising = (
        {method: _mean(scores, method, f"value.{name}") for method in set(scores["param.method"])}
        for name in ("nmse", "negative", "rising")
    )
    peers = [name for name in ("mlp", "xgboost") if name in nmse]
    told = "; ".join(
        f"{name} {100 * negative[name]:.0f} % of densities negative, {100 * rising[name]:.0f} % of steps rise, "
        f"error {nmse[name]:.4f}"
        for name in peers
    )
    broken = negative["comonet"] + rising["comonet"]
    return Verdict.decide(
        broken == 0 and all(negative[name] > 0 for name in peers),
        f"Prices from quotes with noise of 5 % fall with the strike and have no negative implied density: "
        f"{100 * broken:g} % broken, error {nmse['comonet']:.4f}. {told}.",
        Headline("COMONet, share broken", broken),
        *(Headline(f"{name}, negative densities", negative[name]) for name in peers),
    )


# Real tables


_LOADERS: dict[str, Callable[[], Any]] = {
    "auto-mpg": load_auto_mpg,
    "electricity": load_electricity,
    "rice": load_rice_farms,
    "heart": load_heart,
    "compas": load_compas,
}
_CLASSES = ("heart", "compas")
REAL_METHODS = ("comonet", "comonet-relu", "mlp", "hgb", "xgboost", "pygam")
_SIZES = {"auto-mpg": 1.0, "electricity": 0.5, "rice": 3.0, "heart": 1.0, "compas": 15.0}


def _real_trials(scale: Scale) -> list[Trial]:
    full = scale == "full"
    return [
        Trial(
            {"data": data, "method": method, "folds": 5 if full else 3, "fold": fold, "tune": full},
            seed=seed,
            cost=_COSTS.get(method, 1.0) * _SIZES[data],
            requires=_requires(method),
        )
        for data in (tuple(_LOADERS) if full else ("auto-mpg", "heart"))
        for method in REAL_METHODS
        if full or method != "comonet-relu"
        for seed in range(3 if full and data != "compas" else 1)
        for fold in range(5 if full else 3 if data == "auto-mpg" else 1)
    ]


def _measure_real(trial: Trial) -> Row:
    from sklearn.model_selection import KFold

    from paperworks.comonet.peers import fit_method

    table = _LOADERS[trial["data"]]()
    x, y = table.data.to_numpy(dtype=np.float64), table.target
    shapes = resolve_shapes(table.shapes, x.shape[1], list(table.data))
    classify = trial["data"] in _CLASSES
    train, test = list(KFold(trial["folds"], shuffle=True, random_state=trial.seed).split(x))[trial["fold"]]
    start = time.process_time()
    model = fit_method(
        trial["method"], x[train], y[train], shapes, classify=classify, tune=trial["tune"], seed=trial.seed
    )
    seconds = time.process_time() - start
    predicted = _predict(model, x[test])
    score = np.mean(predicted == y[test]) if classify else np.mean((predicted - y[test]) ** 2)
    return {
        "metric": "accuracy" if classify else "mse",
        "score": float(score),
        "chosen": str(getattr(model, "best_params_", "")),
        "seconds": seconds,
    }


def _predict(model: Any, rows: Floats) -> Any:
    """Predict held-out rows, some of which may lie beyond the fitted ones."""
    import warnings

    from paperworks.comonet.estimators import ShapeDomainWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShapeDomainWarning)
        return model.predict(rows)


def _judge_real(real: pd.DataFrame) -> Verdict:
    means = _means(real, ["value.metric", "param.data", "param.method"], "value.score")
    ratios: dict[str, float] = {}
    gaps: dict[str, float] = {}
    told = []
    for metric, data in dict.fromkeys(key[:2] for key in means):
        scores = {key[2]: value for key, value in means.items() if key[1] == data}
        rivals = [value for name, value in scores.items() if not name.startswith("comonet")]
        if metric == "mse":
            ratios[data] = scores["comonet"] / min(rivals)
        else:
            gaps[data] = scores["comonet"] - max(rivals)
        order = sorted(scores.items(), key=lambda item: item[1], reverse=metric != "mse")
        told.append(f"{data} ({metric}): " + ", ".join(f"{name} {value:.4g}" for name, value in order))
    near = sum(ratio <= 1.10 for ratio in ratios.values())
    classes = all(gap >= -0.03 for gap in gaps.values())
    return Verdict.decide(
        near >= min(2, len(ratios)) and classes,
        f"{'; '.join(told)}. Squared error is within 1.10 of the best peer's on {near} of {len(ratios)} tables.",
        *(Headline(f"MSE over the best peer's, {name}", ratio) for name, ratio in ratios.items()),
        *(Headline(f"accuracy minus the best peer's, {name}", gap) for name, gap in gaps.items()),
        partly=classes or near,
    )


def _judge_large(real: pd.DataFrame) -> Verdict:
    return Verdict(
        "out of reach",
        "Blog Feedback and Loan Defaulter, the two large tables that papers on monotone networks use, are not "
        "distributed in a form that could be had.",
    )


# The certifier against closed forms


def _sequential(first: Any, bias: Any, last: Any, activation: str) -> nn.Sequential:
    """Return a network with one hidden layer and these weights."""
    import torch
    from torch import nn

    weights, shift, out = (torch.tensor(part, dtype=torch.float64) for part in (first, bias, last))
    units, columns = weights.shape
    chosen = nn.Softplus() if activation == "softplus" else nn.ReLU()
    net = nn.Sequential(nn.Linear(columns, units), chosen, nn.Linear(units, 1)).double()
    state = {"0.weight": weights, "0.bias": shift, "2.weight": out, "2.bias": torch.zeros(1)}
    net.load_state_dict(state)
    return net


def _fitted_mlp() -> nn.Sequential:
    """Return a network of 8 softplus units, fitted to exp(x0) + 2·x0 + 2·x1²."""
    import torch
    from torch import nn

    from paperworks.comonet.fitting import Objective, fit_lbfgs, make_loss

    generator = torch.Generator().manual_seed(0)
    x = torch.rand(400, 2, generator=generator, dtype=torch.float64) * 2 - 1
    y: Tensor = x[:, 0].exp() + 2 * x[:, 0] + 2 * x[:, 1] ** 2
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, 8), nn.Softplus(), nn.Linear(8, 1)).double()
    objective = Objective(nn.Sequential(net, nn.Flatten(0)), make_loss("squared_error"), alpha=0.03, total_weight=400.0)
    fit_lbfgs(objective, (x, y, torch.ones_like(y)))
    return net


def _cases() -> Iterator[tuple[str, Any, Any, Any, int, str]]:
    """Yield name, network, shapes, domain, column and the answer that mathematics gives."""
    double = _sequential([[2.0], [1.0]], [0.0, 0.0], [[1.0, -1.0]], "softplus")
    name = "softplus(2x) - softplus(x)"
    yield f"{name} increasing from -0.88", double, "increasing", [(-0.88, 3)], 0, "proved"
    yield f"{name} increasing from -0.90", double, "increasing", [(-0.9, 3)], 0, "violated"
    yield f"{name} convex to 1.66", double, "convex", [(-1.66, 1.66)], 0, "proved"
    yield f"{name} convex to 1.70", double, "convex", [(-1.7, 1.7)], 0, "violated"
    yield f"{name} increasing on R", double, "increasing", None, 0, "unknown"
    even = _sequential([[1.0], [-1.0]], [0.0, 0.0], [[1.0, 1.0]], "softplus")
    yield "softplus(x) + softplus(-x) convex on R", even, "convex", None, 0, "proved"
    yield "softplus(x) + softplus(-x) increasing", even, "increasing", [(-1, 1)], 0, "violated"
    absolute = _sequential([[1.0, 0], [-1, 0], [0, 1], [0, -1]], [0.0] * 4, [[1.0, 1, 1, -1]], "relu")
    for column, shape in ((0, "convex"), (1, "increasing")):
        shapes = ["convex", "increasing"]
        yield f"|x1| + x2 {shape} in x{column + 1} on R", absolute, shapes, None, column, "proved"
    trunk = _sequential([[1.0, 1.0]], [0.0], [[1.0]], "relu")
    yield "relu(x1 + x2) concave in x2", trunk, ["convex", "concave"], [(-1, 1)] * 2, 1, "violated"
    fitted, box = _fitted_mlp(), [(-1.0, 1.0)] * 2
    for column in (0, 1):
        shapes = ["convex" if j == column else "free" for j in range(2)]
        yield f"fitted net convex in x{column + 1}", fitted, shapes, box, column, "proved"
    for column, shape in ((0, "decreasing"), (1, "increasing"), (0, "concave"), (1, "concave")):
        shapes = [shape if j == column else "free" for j in range(2)]
        yield f"fitted net {shape} in x{column + 1}", fitted, shapes, box, column, "violated"


def _certifier_trials(scale: Scale) -> list[Trial]:
    return [Trial()]


def _measure_certifier(trial: Trial) -> list[Row]:
    from paperworks.comonet.certificates import certify

    rows: list[Row] = []
    for name, net, shapes, domain, column, expected in _cases():
        start = time.process_time()
        found = certify(net, shapes, domain=domain, method="structural" if domain is None else "auto").columns[column]
        rows.append(
            {
                "case": name,
                "expected": expected,
                "status": found.status,
                "boxes": found.boxes,
                "seconds": time.process_time() - start,
            }
        )
    return rows


def _judge_certifier(table: pd.DataFrame) -> Verdict:
    right = int((table["value.expected"] == table["value.status"]).sum())
    wrong = table.loc[table["value.expected"] != table["value.status"], "value.case"].tolist()
    return Verdict.decide(
        right == len(table),
        f"{right} of {len(table)} answers are those of mathematics, with at most {table['value.boxes'].max()} boxes and "
        f"{table['value.seconds'].max():.2f} s." + (f" Not: {', '.join(wrong)}." if wrong else ""),
        Headline("answers that are right", right),
        Headline("most boxes", int(table["value.boxes"].max())),
    )


EXPERIMENTS = [
    Experiment("regimes", _regime_trials, _measure_regimes, hours={"quick": 0.006, "full": 0.5}),
    Experiment("curves", _curve_trials, _measure_curves, hours={"quick": 0.001, "full": 0.001}),
    Experiment("penalty", _penalty_trials, _measure_penalty, hours={"quick": 0.002, "full": 0.01}),
    Experiment("subset", _subset_trials, _measure_subset, hours={"quick": 0.0005, "full": 0.0005}),
    Experiment("random-networks", _random_trials, _measure_random, hours={"quick": 0.001, "full": 0.01}),
    Experiment("routing", _routing_trials, _measure_routing, hours={"quick": 0.001, "full": 0.001}),
    Experiment("ulp", _ulp_trials, _measure_ulp, hours={"quick": 0.0005, "full": 0.001}),
    Experiment("targets", _target_trials, _measure_target, hours={"quick": 0.004, "full": 0.02}),
    Experiment("maps", _map_trials, _measure_maps, hours={"quick": 0.001, "full": 0.001}),
    Experiment("products", _product_trials, _measure_product, hours={"quick": 0.003, "full": 0.02}),
    Experiment("smile", _smile_trials, _measure_smile, hours={"quick": 0.002, "full": 0.01}),
    Experiment(
        "real",
        _real_trials,
        _measure_real,
        data=(ELECTRICITY, RICE_FARMS, COMPAS),
        hours={"quick": 0.006, "full": 2.0},
    ),
    Experiment("certifier", _certifier_trials, _measure_certifier, hours={"quick": 0.001, "full": 0.001}),
]

TUNED = "Full: every method chooses among nine candidates by the same inner cross-validation; quick: own defaults."

CLAIMS = [
    Claim(
        "eight_regimes",
        "One network carries all eight shapes at once, one in each column.",
        "A target of nine columns, one of each shape and a free one, at three levels of noise: every fitted network is "
        "proved to have its shapes on all of R^d, or on its domain with products, and no sampled segment breaks one.",
        ("regimes", "curves"),
        _judge_eight,
        plot="shape_curves",
    ),
    Claim(
        "by_construction",
        "The shapes hold for every value of the parameters, by construction.",
        "Networks with random shapes and parameters from N(0, 2²), with and without products (quick 12, full 210): all "
        "proved; no first or second difference in a declared direction below -1e-12 of the largest value.",
        ("random-networks",),
        _judge_random,
    ),
    Claim(
        "penalty_not_enough",
        "Penalties on broken shapes, the usual way, guarantee nothing.",
        "A network with a hinge penalty on slopes and second differences of strength 1e-4, 1e-2, 1 breaks shapes with "
        "each; COMONet on the same rows breaks none.",
        ("penalty", "regimes"),
        _judge_penalty,
        plot="penalties",
    ),
    Claim(
        "subset_only",
        "Other methods cover only a part of the eight shapes.",
        "XGBoost with monotone constraints breaks declared curvature in every run; the convex trunk that MonoDense builds "
        "for a convex and a concave column is refuted by a witness.",
        ("regimes", "subset"),
        _judge_subset,
        plot="witness",
    ),
    Claim(
        "partial_routing",
        "A partially connected architecture routes each column to the units that keep its shape.",
        "For all 63 sets of groups of columns: paths of weights lead to every unit of every layer from exactly the groups "
        "that follow from the routing table, and it reacts to no other when they move.",
        ("routing",),
        _judge_routing,
    ),
    Claim(
        "competitive_synth",
        "On synthetic data the constrained network is as good as others or better.",
        f"The target of eight shapes, noise 0.1: mean error to the truth at most that of a plain network and of monotone "
        f"XGBoost, for every number of rows; pyGAM with the same constraints is reported. {TUNED}",
        ("regimes",),
        _judge_synth,
    ),
    Claim(
        "competitive_real",
        "On real data the constrained network is as good as others.",
        f"Cross-validated squared error at most 1.10 times the best peer's on 2 of 3 tables, accuracy at least the best "
        f"peer's minus 0.03 on the others. {TUNED} Quick: auto-mpg, and a third of heart.",
        ("real",),
        _judge_real,
        plot="real_scores",
    ),
    Claim(
        "large_real",
        "The same on the two large tables of the literature on monotone networks, Blog Feedback and Loan Defaulter.",
        "The data cannot be had, so nothing is measured.",
        ("real",),
        _judge_large,
    ),
    Claim(
        "noise_robust",
        "The network is robust to noise and keeps its guarantees under it.",
        f"600 rows: mean error to the truth at most half a plain network's at noise 0.5 and 1, no broken segment at any "
        f"level. {TUNED}",
        ("regimes",),
        _judge_noise,
        plot="noise_curves",
    ),
    Claim(
        "blind_spot",
        "Units that see one pre-activation each cannot represent substitutes among convex increasing columns or "
        "complements among concave ones; maxout units can.",
        "Cobb–Douglas, max and min without noise, α = 0.03: relu's error at least 50 times maxout's, and relu's largest error "
        "never below the bound |Δ|/4 of the theorem; Black–Scholes is reported (full).",
        ("targets", "maps"),
        _judge_targets,
        source="ours",
        plot="blind_spot",
    ),
    Claim(
        "products",
        "Product banks represent interactions of convex with concave columns, and concavity that is not joint.",
        "x^0.7·y^0.8 on [0.1, 4]² and 4x²√y on [0, 1]² without noise, α = 0.03: error at most a tenth of the "
        "additive network's on each.",
        ("products",),
        _judge_products,
        source="ours",
        plot="product_scores",
    ),
    Claim(
        "no_arbitrage",
        "Option prices fitted to noisy quotes are free of static arbitrage in the strike.",
        "100 options, 41 strikes, smooth units: no price rises with the strike, no second difference is below -1e-9; a "
        "plain network and monotone XGBoost have negative implied densities.",
        ("smile",),
        _judge_smile,
        source="ours",
        plot="option_smile",
    ),
    Claim(
        "certify_any",
        "The certifier proves or refutes the shapes of networks that were trained elsewhere.",
        "Networks whose shapes are known in closed form, and a fitted one: every answer is right.",
        ("certifier",),
        _judge_certifier,
        source="ours",
        plot="certifier_boxes",
    ),
    Claim(
        "ulp_exact",
        "With piecewise linear units computed predictions are monotone to the last bit.",
        "Steps to the next floating-point number along six monotone columns (quick 6,000, full 100,000): none changes the "
        "output the wrong way.",
        ("ulp",),
        _judge_ulp,
        source="ours",
    ),
]
