"""`paperworks transitive`: predict, critical, rank, fit, lm."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from paperworks.core.commands import (
    JsonOption,
    OutOption,
    ReportOption,
    SeedOption,
    read_frame,
    write_frame,
    write_json,
    write_report,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from paperworks.transitive.lm import PairPrompt
    from paperworks.transitive.ranker import TransitiveRanker, TransitiveRankerCV
    from paperworks.transitive.tasks import TransitiveTask

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Rules and exceptions: which comparisons a learner gets wrong, and rankings that remember upsets.",
)

ItemCountOption = Annotated[int | None, typer.Option("--n", help="Number of items; 0 is the best.")]
ExceptionOption = Annotated[
    list[str] | None,
    typer.Option("--exception", metavar="WINNER,LOSER", help="A lower item that beats a higher one; repeat."),
]
WeightOption = Annotated[float, typer.Option("--weight", help="Presentations of an exception for one of others.")]
ItemsOption = Annotated[Path | None, typer.Option("--items", metavar="FILE", help="Names, one a line, best first.")]
EdgesOption = Annotated[
    Path | None,
    typer.Option("--edges", metavar="FILE.csv", help="Comparisons shown, columns winner, loser; else all neighbours."),
]
RidgeOption = Annotated[float, typer.Option("--ridge", help="λ, in units of the kernel: same pair minus flipped pair.")]
PlotOption = Annotated[Path | None, typer.Option("--plot", metavar="FILE.png", help="Also draw (.png, .svg, .pdf).")]

_MOST_GAMES = 10_000_000
_MOST_ITEMS = 500
_FOLDS = 5
_SHOWN = 8


class _Output(NamedTuple):
    """Where results go, and in which form."""

    out: Path | None
    json: bool
    plot: Path | None
    report: Path | None

    def check(self) -> _Output:
        """Refuse a picture of an unknown form before anything is computed."""
        from paperworks.core.validation import check_choice

        if self.plot is not None:
            check_choice(self.plot.suffix.lower(), "suffix of --plot", (".png", ".svg", ".pdf"))
        return self


@app.command()
def predict(
    alpha: Annotated[float, typer.Option(help="Conjunctivity of the representation: 0 adds items, 1 keeps pairs.")],
    n: ItemCountOption = None,
    exception: ExceptionOption = None,
    ridge: RidgeOption = 0.0,
    time: Annotated[float | None, typer.Option(help="Stop gradient flow at this time, with unit rate.")] = None,
    weight: WeightOption = 1.0,
    items: ItemsOption = None,
    edges: EdgesOption = None,
    out: OutOption = None,
    json: JsonOption = False,
    plot: PlotOption = None,
    report: ReportOption = None,
) -> None:
    """Predict the margin of every pair exactly, and say which are wrong."""
    from paperworks.transitive.theory import effective_conjunctivity, predict_margins

    output = _Output(out, json, plot, report).check()
    task = _task(n, exception, weight, items, edges)
    prediction = predict_margins(task, alpha, ridge, time)
    facts = {
        "conjunctivity": alpha,
        "ridge": ridge,
        "effective_conjunctivity": effective_conjunctivity(alpha, ridge),
        **({} if time is None else {"time": time}),
        "accuracy": prediction.accuracy_by_class().to_dict(),
        "wrong_pairs": _named(prediction.wrong_pairs()),
    }
    _deliver(
        "Prediction",
        prediction.table(),
        facts,
        output,
        lambda plots: [plots.margin_map(prediction), plots.rank_profile(prediction)],
    )


@app.command()
def critical(
    side: Annotated[
        list[str], typer.Option(metavar="K[,BELOW]", help="Items on either side of the cycle, or above, below; repeat.")
    ],
    span: Annotated[
        list[int] | None, typer.Option(help="Ranks from the exception's loser to its winner, 2; repeat.")
    ] = None,
    ridge: RidgeOption = 0.0,
    weight: WeightOption = 1.0,
    out: OutOption = None,
    json: JsonOption = False,
    plot: PlotOption = None,
    report: ReportOption = None,
) -> None:
    """Compute the conjunctivity from which on pairs across an exception are reversed; empty where none is."""
    import numpy as np
    import pandas as pd

    from paperworks.transitive.kernels import network_conjunctivity
    from paperworks.transitive.tasks import TransitiveTask
    from paperworks.transitive.theory import critical_conjunctivity, phase_diagram

    output = _Output(out, json, plot, report).check()
    rows = []
    for sides in [_sides(text) for text in side]:
        for distance in span or [2]:
            found = critical_conjunctivity(sides, distance, ridge, weight)
            n = sum(sides) + distance + 1
            rows.append((n, *sides, distance, ridge, weight, np.nan if found is None else found))
    columns = ["n_items", "above", "below", "span", "ridge", "weight", "critical"]
    table = pd.DataFrame(rows, columns=columns)
    facts = {}
    if len(table) == 1:
        alone = float(table["critical"].iloc[0])
        known = {} if np.isnan(alone) else {"infinitely_wide_ReLU_networks_above_it": _networks_from(alone)}
        facts = {"critical": None if np.isnan(alone) else alone, **known}

    def draw(plots: Any) -> list[Figure]:
        alphas, ridges = np.linspace(0.01, 0.6, 30), np.geomspace(1e-3, 3, 30)
        wide = {f"wide ReLU network, depth {d}": (network_conjunctivity(d), ridges[0]) for d in (1, 2, 3)}
        drawn = []
        for items, above, distance in table[["n_items", "above", "span"]].to_numpy().tolist():
            task = TransitiveTask(items, exception=(above + distance, above), exception_weight=weight)
            title = f"Of {items} items, {above + distance} beats {above}: what a learner does"
            drawn.append(plots.phase_diagram(phase_diagram(task, alphas, ridges), alphas, ridges, wide, title))
        return drawn

    _deliver("Critical conjunctivity", table, facts, output, draw)


@app.command()
def rank(
    games: Annotated[
        Path,
        typer.Argument(
            metavar="GAMES.csv",
            help="Columns winner, loser, or first, second, value; and, if wanted, count; - is stdin.",
        ),
    ],
    alpha: Annotated[float | None, typer.Option(help="Conjunctivity: how much of an upset is remembered, 0.1.")] = None,
    ridge: Annotated[float | None, typer.Option(help="Against noise, 1; larger shrinks the ratings.")] = None,
    cv: Annotated[bool, typer.Option("--cv", help="Choose what is not given by accuracy on games held out.")] = False,
    pairs: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Give the chances in these pairs instead, columns first, second."),
    ] = None,
    exceptions: Annotated[Path | None, typer.Option(metavar="FILE.csv", help="Also write the upsets.")] = None,
    out: OutOption = None,
    json: JsonOption = False,
    plot: PlotOption = None,
    report: ReportOption = None,
) -> None:
    """Rank items from comparisons, and list the upsets that contradict the ranking."""
    from paperworks.transitive.ranker import TransitiveRanker, TransitiveRankerCV

    output = _Output(out, json, plot, report).check()
    if exceptions is not None and (str(exceptions) == "-" or exceptions == output.out):
        raise ValueError(f"--exceptions must be a file of its own, got {exceptions}")
    if str(games) == str(pairs) == "-":
        raise ValueError("games and --pairs cannot both be read from standard input")
    asked = None if pairs is None else _labelled(_table(pairs), ("first", "second"), pairs)
    table = _comparisons(games)
    if asked is not None:
        met = set(table.loc[table["count"] > 0, ["first", "second"]].to_numpy().flat)
        strange = [item for item in dict.fromkeys(asked.to_numpy().flat) if item not in met]
        if strange:
            listed = ", ".join(map(repr, strange[:5])) + (", …" if len(strange) > 5 else "")
            raise ValueError(f"{pairs} has items without a game in {games}: {listed}")
    # Folds have to hold out single games, not all games of a pair.
    rows = _single(table, games) if cv or asked is not None else table
    ranker: TransitiveRanker | TransitiveRankerCV
    if cv:
        if len(rows) < _FOLDS:
            raise ValueError(f"{games} has {len(rows)} games, of which --cv needs at least {_FOLDS}")
        print(f"cross-validating on {len(rows):,} comparisons …", file=sys.stderr)
        given = {"conjunctivities": alpha, "ridges": ridge}
        only: dict[str, Any] = {name: (value,) for name, value in given.items() if value is not None}
        ranker = TransitiveRankerCV(**only, cv=_FOLDS)
    else:
        ranker = TransitiveRanker(0.1 if alpha is None else alpha, 1.0 if ridge is None else ridge)
    ranker.fit(_labels(rows), rows["value"], sample_weight=rows["count"])
    upsets = ranker.exceptions_
    facts: dict[str, Any] = {
        "items": len(ranker.classes_),
        "comparisons": float(table["count"].sum()),
        "conjunctivity": ranker.conjunctivity_,
        "ridge": ranker.ridge_,
        "cyclic_share": ranker.cyclic_share_,
        "exceptions": len(upsets),
    }
    more = {"exceptions": upsets}
    if isinstance(ranker, TransitiveRankerCV):
        facts["accuracy_held_out"] = float(ranker.cv_results_["accuracy"].max())
        more["cross_validation"] = ranker.cv_results_
    for row in upsets.head(5).itertuples():
        print(f"exception: {row.winner} beat {row.loser}, surprise {row.surprise:.3g}", file=sys.stderr)
    if asked is None:
        result = _ratings(ranker, table)
    else:
        chances = ranker.predict_proba(_labels(asked))[:, 0]
        result = asked.assign(margin=ranker.predict(_labels(asked)), probability=chances)
    if exceptions is not None:
        write_frame(upsets, exceptions)
    _deliver("Ranking", result, facts, output, lambda plots: [plots.exception_bumps(ranker)], more)


@app.command()
def fit(
    choices: Annotated[
        Path | None,
        typer.Argument(metavar="CHOICES.csv", help="Columns first, second, value and, if wanted, n; - is stdin."),
    ] = None,
    n: ItemCountOption = None,
    exception: ExceptionOption = None,
    link: Annotated[
        str | None, typer.Option(help="identity for margins, logistic for shares (default: where all are in [0, 1]).")
    ] = None,
    pairs: Annotated[str, typer.Option(help="all, or test: only pairs that were not shown.")] = "all",
    no_ridge: Annotated[bool, typer.Option("--no-ridge", help="Fit the conjunctivity alone.")] = False,
    weight: WeightOption = 1.0,
    items: ItemsOption = None,
    edges: EdgesOption = None,
    example: Annotated[str | None, typer.Option("--example", help="In place of a file: monkeys (7 items).")] = None,
    out: OutOption = None,
    json: JsonOption = False,
    plot: PlotOption = None,
    report: ReportOption = None,
) -> None:
    """Fit conjunctivity, ridge and scale to how a learner answers on the pairs of a task."""
    from paperworks.core.validation import check_choice
    from paperworks.transitive.data import load_jensen
    from paperworks.transitive.fit import fit_theory, read_answers

    output = _Output(out, json, plot, report).check()
    if (choices is None) == (example is None):
        raise ValueError("give either a table or --example, got " + ("neither" if choices is None else "both"))
    if choices is None:
        check_choice(example, "--example", ("monkeys",))
        if n not in (None, 7):
            raise ValueError(f"--n must be 7, the number of items of --example monkeys, got {n}")
        n = 7
    task = _task(n, exception, weight, items, edges)
    observed = load_jensen("monkeys") if choices is None else _answers(choices, task)
    link = link or ("logistic" if observed["value"].dropna().between(0, 1).all() else "identity")
    found = fit_theory(observed, task, link, fit_ridge=not no_ridge, pairs=pairs)
    facts = {
        "link": link,
        "conjunctivity": found.alpha,
        "conjunctivity_interval": list(found.alpha_interval),
        "ridge": found.ridge,
        "effective_conjunctivity": found.alpha_eff,
        "scale": found.scale,
        "r2": found.r2,
        "aic": found.aic,
        "baseline_r2": found.baselines["r2"].to_dict(),
        "baseline_aic": found.baselines["aic"].to_dict(),
        "identified": found.identified,
        **_verdict(task, found.alpha, found.ridge),
    }
    table = task.pair_table()
    means = read_answers(observed, task, link).rename(columns={"value": "observed"})[["first", "second", "observed"]]
    table = table.merge(means, on=["first", "second"], how="left")
    table["fitted"] = found.predict(task)[table["first"], table["second"]]
    _deliver("Fit", table, facts, output, lambda plots: [plots.theory_fit(observed, found, task)])


@app.command()
def lm(
    model: Annotated[
        str, typer.Option(metavar="MODEL", help="bundled (SmolLM2-135M), a folder, a GGUF file or a hub id.")
    ] = "bundled",
    items: ItemsOption = None,
    example: Annotated[str | None, typer.Option("--example", help="In place of names: real or invented teams.")] = None,
    n: ItemCountOption = None,
    exception: ExceptionOption = None,
    method: Annotated[str, typer.Option(help="probe (readout), top (last blocks), lora or full.")] = "probe",
    epochs: Annotated[int | None, typer.Option(help="Passes over the comparisons, the method's own.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate, the method's own.")] = None,
    l2: Annotated[float, typer.Option(help="Penalty on the change of the readout, for probe.")] = 0.01,
    lora_rank: Annotated[int, typer.Option(help="Rank of the adapters, for lora.")] = 8,
    layers: Annotated[int, typer.Option(help="Blocks trained, for top.")] = 4,
    one_order: Annotated[bool, typer.Option("--one-order", help="Do not also learn the reversed order.")] = False,
    anchors: Annotated[
        str | None, typer.Option(metavar="WINNER,LOSER", help="Other names, asked and answered first in every prompt.")
    ] = None,
    template: Annotated[str | None, typer.Option(help="Question, with {a} and {b}.")] = None,
    answers: Annotated[str, typer.Option(metavar="YES,NO", help="Answers, a token each.")] = "Yes,No",
    seed: SeedOption = 0,
    device: Annotated[str, typer.Option(help="Where the model runs: cpu, cuda, mps.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="Of the weights: float32, bfloat16, auto.")] = "float32",
    out: OutOption = None,
    json: JsonOption = False,
    plot: PlotOption = None,
    report: ReportOption = None,
) -> None:
    """Finetune a language model on an order with an exception, and set its answers on all pairs beside the theory."""
    import numpy as np

    from paperworks.core.language import language_model
    from paperworks.core.validation import check_choice
    from paperworks.transitive.fit import fit_theory
    from paperworks.transitive.kernels import representation_geometry
    from paperworks.transitive.lm import finetune, pair_features

    output = _Output(out, json, plot, report).check()
    check_choice(method, "--method", ("probe", "top", "lora", "full"))
    names = _names(items, example, n)
    if len(names) < 4:
        raise ValueError(f"a language model must be asked about at least 4 items, got {len(names)}")
    task = _task(len(names), exception, 1.0, None, None).relabel(names)
    prompt = _prompt(template, answers, anchors)
    _check_device(device)
    print(f"reading the language model {model} …", file=sys.stderr)
    network, tokenizer = language_model(None if model == "bundled" else model, dtype=dtype)
    network.to(device)
    settings: dict[str, Any] = {"method": method, "epochs": epochs, "lr": lr, "l2": l2, "seed": seed}
    settings |= {"lora_r": lora_rank, "top_layers": layers, "progress": True}
    print("measuring the representation …", file=sys.stderr)
    features, pairs = pair_features(network, tokenizer, names, prompt)
    geometry = representation_geometry(features, pairs)
    runs = {}
    # Of the reversed order ranks count from the other end, and so do all ordered pairs.
    for order, step in {"given": 1, "reversed": -1}.items():
        if order == "given" or not one_order:
            print(f"finetuning ({method}) on the {order} order …", file=sys.stderr)
            known = features[::step] if method == "probe" else None
            runs[order] = finetune(network, tokenizer, names[::step], task, prompt, features=known, **settings)
    before, after = (np.stack([getattr(run, when) for run in runs.values()]) for when in ("before", "after"))
    found = fit_theory(after.mean(axis=0), task)
    table = task.pair_table()
    first, second = table["first"], table["second"]
    table = table.assign(before=before.mean(axis=0)[first, second], after=after.mean(axis=0)[first, second])
    table = table.assign(**{f"after_{order}": run.after[first, second] for order, run in runs.items()})
    table["theory"] = found.predict(task)[first, second]
    across = table[table["cls"] == "cross"]
    nearest = across[across["distance"] == across["distance"].min()]
    facts = {
        "model": model,
        "frozen_conjunctivity": geometry.alpha,
        "frozen_conjunctivity_se": geometry.alpha_se,
        "frozen_residual": geometry.residual,
        "train_accuracy": float(np.mean([run.train_accuracy for run in runs.values()])),
        "accuracy_before": _accuracy(before, table),
        "accuracy_after": _accuracy(after, table),
        "nearest_cross": _named(nearest),
        "nearest_cross_margin_before": float(nearest["before"].mean()),
        "nearest_cross_margin_after": float(nearest["after"].mean()),
        "fitted_conjunctivity": found.alpha,
        "fitted_ridge": found.ridge,
        "fitted_r2": found.r2,
        "additive_r2": float(found.baselines["r2"]["additive"]),
        "identified": found.identified,
        **_verdict(task, found.alpha, found.ridge),
        "frozen_reversed_from_n_items": _verdict(task, geometry.alpha, 0.0)["reversed_from_n_items"],
        "runs": {order: run.record for order, run in runs.items()},
    }
    if nearest.empty:
        facts = {name: value for name, value in facts.items() if not name.startswith("nearest_cross")}
    _deliver("Language model", table, facts, output, lambda plots: [plots.theory_fit(after.mean(axis=0), found, task)])


def _task(
    n: int | None, exceptions: Sequence[str] | None, weight: float, items: Path | None, edges: Path | None
) -> TransitiveTask:
    from paperworks.transitive.tasks import TransitiveTask

    names = None if items is None else _lines(items)
    if names is None and n is None:
        raise ValueError("give the number of items, --n, or their names, --items")
    if names is not None and n not in (None, len(names)):
        raise ValueError(f"--n must be the number of names in {items}, which is {len(names)}, got {n}")
    n = n if names is None else len(names)
    assert n is not None
    upsets = [_two(text, "--exception", "WINNER,LOSER") for text in exceptions or ()]
    pairs = [[_item(word, names, "--exception") for word in pair] for pair in upsets]
    shown: Any = "adjacent"
    if edges is not None:
        listed = _labelled(_table(edges), ("winner", "loser"), edges)
        shown = [[_item(word, names, str(edges)) for word in pair] for pair in listed.to_numpy().tolist()]
    return TransitiveTask(n, pairs or None, items=names, exception_weight=weight, edges=shown)


def _lines(path: Path) -> list[str]:
    """Return the names in a text file, one a line."""
    text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8-sig")
    names = [line.strip() for line in text.splitlines() if line.strip()]
    if not names:
        raise ValueError(f"{path} must hold names, one a line, got none")
    return names


def _names(items: Path | None, example: str | None, n: int | None) -> list[str]:
    """Return the names of the items that a language model is asked about."""
    from paperworks.core.validation import check_choice, check_integer
    from paperworks.transitive.data import INVENTED_TEAMS, REAL_TEAMS

    if (items is None) == (example is None):
        raise ValueError("give either --items or --example, got " + ("neither" if items is None else "both"))
    if items is not None:
        names = _lines(items)
        if n not in (None, len(names)):
            raise ValueError(f"--n must be the number of names in {items}, which is {len(names)}, got {n}")
        return names
    teams = {"real": REAL_TEAMS, "invented": INVENTED_TEAMS}[check_choice(example, "--example", ("real", "invented"))]
    if check_integer(9 if n is None else n, "--n", low=2) > len(teams):
        raise ValueError(f"--n must be at most {len(teams)}, the number of {example} teams, got {n}")
    return list(teams[: 9 if n is None else n])


def _two(text: str, option: str, form: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if len(words) != 2 or not all(words):
        raise ValueError(f"{option} must be {form}, got {text!r}")
    return words


def _item(word: str, names: Sequence[str] | None, where: str) -> int:
    """Return an item's position from its name, or from its number."""
    if names is not None and word in names:
        return list(names).index(word)
    try:
        return int(word)
    except ValueError:
        known = "a number from 0" if names is None else "a number from 0 or one of the names"
        raise ValueError(f"{where} must name an item, {known}, got {word!r}") from None


def _prompt(template: str | None, answers: str, anchors: str | None) -> PairPrompt:
    from paperworks.transitive.lm import PairPrompt

    yes, no = _two(answers, "--answers", "YES,NO")
    more: dict[str, Any] = {} if template is None else {"template": template}
    if anchors is not None:
        winner, loser = _two(anchors, "--anchors", "WINNER,LOSER")
        more["anchors"] = (winner, loser)
    return PairPrompt(yes=f" {yes}", no=f" {no}", **more)


def _check_device(device: str) -> None:
    from paperworks.core.extras import require

    torch = require("torch", "transitive")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter where torch is built without it
        raise ValueError(f"--device must be one that torch can use here, got {device!r}: {error}") from None


def _sides(text: str) -> tuple[int, int]:
    """Return the numbers of items above and below a cycle."""
    words = text.split(",")
    try:
        above, below = (int(word) for word in (words * 2)[:2])
    except ValueError:
        words = []
    if len(words) not in (1, 2):
        raise ValueError(f"--side must be K or ABOVE,BELOW, got {text!r}")
    return above, below


def _networks_from(alpha: float) -> str:
    """Return the depths from which on infinitely wide ReLU networks are at least so conjunctive, in words."""
    from paperworks.transitive.kernels import network_conjunctivity

    words = []
    for kind, name in (("nngp", "readout"), ("ntk", "all layers")):
        depth = next((d for d in range(1, 31) if network_conjunctivity(d, kind) >= alpha), None)  # type: ignore[arg-type]
        words.append(f"{name} trained: " + ("none up to depth 30" if depth is None else f"depth {depth} and more"))
    return "; ".join(words)


def _table(path: Path) -> pd.DataFrame:
    """Read a table whose labels are text as it stands: an item may be called nan, or 007."""
    labels = dict.fromkeys(("winner", "loser", "first", "second"), str)
    table = read_frame(path, dtype=labels, keep_default_na=False, na_values=[""])
    if table.empty:
        raise ValueError(f"{path} has no rows")
    return table


def _has(table: pd.DataFrame, columns: Sequence[str], path: Path) -> None:
    for name in columns:
        if name not in table:
            raise ValueError(f"{path} lacks the column {name!r}; it has {', '.join(map(repr, table.columns))}")


def _labelled(table: pd.DataFrame, labels: Sequence[str], path: Path) -> pd.DataFrame:
    """Return two columns of labels, none of which may be empty."""
    _has(table, labels, path)
    for name in labels:
        empty = table[name].isna().to_numpy()
        if empty.any():
            raise ValueError(f"{path}, row {int(empty.argmax()) + 2}: column {name!r} is empty")
    return table[list(labels)]


def _numbers(
    table: pd.DataFrame, name: str, path: Path, *, low: float = -math.inf, gaps: bool = False
) -> pd.Series[Any]:
    """Return a column of numbers, or 1 where there is none; name the cell that is no number of at least `low`."""
    import numpy as np
    import pandas as pd

    if name not in table:
        return pd.Series(1.0, index=table.index)
    numbers = pd.to_numeric(table[name], errors="coerce").astype(float)
    bad = ~np.isfinite(numbers.to_numpy()) | (numbers.to_numpy() < low)
    if gaps:
        bad &= table[name].notna().to_numpy()
    if bad.any():
        row = int(bad.argmax())
        cell = table[name].iloc[row]
        kind = "finite numbers" if low == -math.inf else f"finite numbers >= {low:g}"
        got = "an empty cell" if pd.isna(cell) else str(cell)
        raise ValueError(f"{path}, row {row + 2}: column {name!r} must hold {kind}, got {got}")
    return numbers


def _comparisons(path: Path) -> pd.DataFrame:
    """Return games as first, second, value (the margin of the first) and count."""
    table = _table(path)
    signed = "first" in table
    labels = _labelled(table, ("first", "second") if signed else ("winner", "loser"), path)
    _has(table, ("value",) if signed else (), path)
    games = labels.set_axis(["first", "second"], axis=1)
    alone = (games["first"] == games["second"]).to_numpy()
    if alone.any():
        row = int(alone.argmax())
        raise ValueError(f"{path}, row {row + 2}: compares an item with itself: {games['first'].iloc[row]!r}")
    value = _numbers(table, "value", path) if signed else 1.0
    count = _numbers(table, "count", path, low=0)
    if not count.any():
        raise ValueError(f"{path} has no games: every count is 0")
    return games.assign(value=value, count=count)


def _single(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return a row a game."""
    import numpy as np

    count = table["count"]
    part = (count % 1 != 0).to_numpy()
    if part.any():
        row = int(part.argmax())
        raise ValueError(
            f"{path}, row {row + 2}: column 'count' must hold whole numbers where games are held out, got {count[row]:g}"
        )
    if count.sum() > _MOST_GAMES:
        raise ValueError(f"{path} has {count.sum():,.0f} games; at most {_MOST_GAMES:,} can be held out one by one")
    return table.loc[np.repeat(table.index, count.astype(int))].assign(count=1.0).reset_index(drop=True)


def _labels(table: pd.DataFrame) -> NDArray[np.object_]:
    return table[["first", "second"]].to_numpy(dtype=object)


def _ratings(ranker: TransitiveRanker | TransitiveRankerCV, games: pd.DataFrame) -> pd.DataFrame:
    """Return the items, best first, with place, rating, and how often they won and lost."""
    import numpy as np
    import pandas as pd

    won = np.where(games["value"] > 0, games["first"], games["second"])
    lost = np.where(games["value"] > 0, games["second"], games["first"])
    count = games["count"].where(games["value"] != 0, 0.0)
    if (count % 1 == 0).all():
        count = count.astype(int)
    wins, losses = (count.groupby(items).sum().reindex(ranker.classes_, fill_value=0) for items in (won, lost))
    rating = pd.Series(ranker.ranks_, ranker.classes_)
    place = (-rating.round(12)).rank(method="min").astype(int)
    columns = {"place": place, "item": ranker.classes_, "rating": rating, "wins": wins, "losses": losses}
    table: pd.DataFrame = pd.DataFrame(columns).loc[ranker.ranking_].reset_index(drop=True)
    return table


def _answers(path: Path, task: TransitiveTask) -> pd.DataFrame:
    """Return answers on pairs by position: first, second, value and n, 1 where the table does not say."""
    import pandas as pd

    table = _table(path)
    labels = _labelled(table, ("first", "second"), path)
    _has(table, ("value",), path)
    first, second = (
        [_item(word, task.items, f"{path}, column {name!r},") for word in labels[name]] for name in ("first", "second")
    )
    value, trials = _numbers(table, "value", path, gaps=True), _numbers(table, "n", path, low=0)
    return pd.DataFrame({"first": first, "second": second, "value": value, "n": trials})


def _accuracy(runs: NDArray[np.float64], table: pd.DataFrame) -> dict[str, float]:
    """Return the share of right pairs by class, over runs; ties count as ½."""
    import numpy as np

    right = (1 + np.sign(runs[:, table["first"], table["second"]]) * table["truth"].to_numpy()) / 2
    judged = table.assign(right=right.mean(axis=0)).dropna(subset="truth")
    return {str(cls): float(share) for cls, share in judged.groupby("cls")["right"].mean().items()}


def _verdict(task: TransitiveTask, alpha: float, ridge: float) -> dict[str, Any]:
    """Return the untrained pairs that the theory says are wrong, and the least number of items at which one would be."""
    from paperworks.transitive.theory import chain_ranks, predict_margins

    wrong = predict_margins(task, alpha, ridge).wrong_pairs()
    upsets = task.pairs[task.is_exception]
    span = int((upsets[:, 0] - upsets[:, 1]).min()) if len(upsets) else 2
    least = None
    for side in range(1, (_MOST_ITEMS - span) // 2):
        ranks = chain_ranks(2 * side + span + 1, alpha, ridge, (side + span, side), task.exception_weight)
        if ranks[side + span + 1] > ranks[side - 1]:
            least = 2 * side + span + 1
            break
    return {"predicted_wrong": _named(wrong[~wrong["trained"]]), "reversed_from_n_items": least}


def _named(pairs: pd.DataFrame) -> list[list[Any]]:
    """Return pairs by name, or by number where items have none."""
    columns = ["first_item", "second_item"] if "first_item" in pairs else ["first", "second"]
    listed: list[list[Any]] = pairs[columns].to_numpy(dtype=object).tolist()
    return listed


def _deliver(
    title: str,
    table: pd.DataFrame,
    facts: dict[str, Any],
    output: _Output,
    draw: Callable[[Any], list[Figure]],
    more: Mapping[str, pd.DataFrame] | None = None,
) -> None:
    """Write the table, or all tables and facts as JSON; the picture and the report if they are asked for."""
    told = {name.replace("_", " "): _words(value) for name, value in facts.items() if name != "runs"}
    if output.json or (output.out is not None and output.out.suffix == ".json"):
        write_json({**facts, "rows": table, **(more or {})}, output.out)
    else:
        write_frame(table, output.out)
        for name, words in told.items():
            print(f"{name}: {words}", file=sys.stderr)
    if output.plot is None and output.report is None:
        return
    from paperworks.core.plotting import save
    from paperworks.transitive import plots

    pictures = draw(plots)
    if output.plot is not None:
        save(pictures[0], output.plot)
    if output.report is not None:
        from paperworks.core.report.page import Section, Table

        sections = [Section(name.replace("_", " ").capitalize(), Table(part)) for name, part in (more or {}).items()]
        write_report(output.report, title, "transitive", told, table, pictures, sections)


def _words(value: Any) -> str:
    """Return a value as a reader wants it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(part)}" for name, part in value.items())
    if isinstance(value, list):
        if value and isinstance(value[0], list):
            listed = ", ".join("–".join(map(str, pair)) for pair in value[:_SHOWN])
            return listed + (f" and {len(value) - _SHOWN} more" if len(value) > _SHOWN else "")
        return " to ".join(map(_words, value)) or "none"
    return str(value)
