"""`paperworks comonet`: fit, predict, certify, audit."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paperworks.core.commands import (
    JsonOption,
    OutOption,
    ReportOption,
    SeedOption,
    read_frame,
    write_frame,
    write_output,
    write_report,
)

if TYPE_CHECKING:
    import pandas as pd

    from paperworks.comonet.estimators import COMONetClassifier, COMONetRegressor

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Fit networks with a guaranteed shape per column, and prove or check the shapes.",
)

_EXAMPLES = {
    "auto-mpg": "load_auto_mpg",
    "black-scholes": "make_black_scholes",
    "cobb-douglas": "make_cobb_douglas",
    "diabetes": "load_diabetes",
    "eight-regimes": "make_eight_regimes",
    "heart": "load_heart",
    "saddle": "make_saddle",
}

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that fit wrote.")]
TableArgument = Annotated[Path | None, typer.Argument(metavar="DATA.csv", help="A table with a header; - is stdin.")]
ExampleOption = Annotated[
    str | None, typer.Option("--example", help=f"In place of a file: {', '.join(_EXAMPLES)}; its target is 'target'.")
]
DomainOption = Annotated[
    list[str] | None, typer.Option("--domain", metavar="COLUMN=LOW:HIGH", help="Repeat; an empty bound is no bound.")
]
JsonTextOption = Annotated[bool, typer.Option("--json", help="Write JSON instead of text.")]


@app.command()
def fit(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the model.")],
    data: TableArgument = None,
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=SHAPE", help="Repeat, e.g. strike=convex_decreasing; others are free."),
    ] = None,
    shapes: Annotated[Path | None, typer.Option(help="JSON object from columns to shapes.")] = None,
    columns: Annotated[str | None, typer.Option(help="Inputs, comma-separated; by default all but the target.")] = None,
    ignore: Annotated[str | None, typer.Option(help="Columns that are no inputs, comma-separated.")] = None,
    classify: Annotated[bool, typer.Option("--classify", help="Two classes; shapes hold for the score.")] = False,
    ordinal: Annotated[bool, typer.Option("--ordinal", help="Ordered classes, two or more.")] = False,
    classes: Annotated[str | None, typer.Option(help="Order of classes that are words, lowest,…,highest.")] = None,
    unit: Annotated[str | None, typer.Option(help="maxout (default), relu, softplus or lse.")] = None,
    width: Annotated[int | None, typer.Option(help="Units a stream and layer, 8.")] = None,
    depth: Annotated[int | None, typer.Option(help="Layers, 2.")] = None,
    interactions: Annotated[str | None, typer.Option(help="additive (default), product or both.")] = None,
    domain: DomainOption = None,
    loss: Annotated[
        str | None, typer.Option(help="squared_error (default), absolute_error, huber, quantile or poisson.")
    ] = None,
    quantile: Annotated[float | None, typer.Option(help="For --loss quantile, 0.5.")] = None,
    link: Annotated[str | None, typer.Option(help="identity (default), or log for positive predictions.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Penalty; 0.3, for classes 3.")] = None,
    members: Annotated[int | None, typer.Option(help="Networks to average, 1.")] = None,
    max_iter: Annotated[int | None, typer.Option(help="Iterations or epochs, 200.")] = None,
    seed: SeedOption = 0,
    example: ExampleOption = None,
    report: ReportOption = None,
) -> None:
    """Fit a model, prove its shapes and write it to a folder; certificate and training score go to standard error."""
    from paperworks.comonet.estimators import COMONetClassifier, COMONetRegressor
    from paperworks.core.models import check_folder

    check_folder(out)
    table, known = _table(data, example)
    name = target or ("target" if example else None)
    if name is None or name not in table:
        raise ValueError(f"--target must be a column of {data or example}, got {name!r}; {_listed(table)}")
    inputs = _inputs(table, name, columns, ignore)
    X = _numbers(table, inputs, data or example, "; leave it out with --ignore, or encode it first")
    asked = _shapes(shape, shapes) or {column: word for column, word in known.items() if column in inputs}
    network = {"unit": unit, "width": width, "depth": depth, "interactions": interactions, "alpha": alpha}
    effort = {"n_members": members, "max_iter": max_iter, "random_state": seed, "domain": _domain(domain)}
    only = {"loss": loss, "quantile": quantile, "link": link}
    given: dict[str, Any] = {key: value for key, value in (network | effort | only).items() if value is not None}
    model: COMONetClassifier | COMONetRegressor
    if classify or ordinal or classes or example == "heart":
        if given.keys() & only.keys():
            raise ValueError("--loss, --quantile and --link are for regression, got them with classes")
        model = COMONetClassifier(asked, ordinal=ordinal or classes is not None, **given)
        y = _labels(table[name], classes, data or example)
        model.fit(X, y)
    else:
        model = COMONetRegressor(asked, **given)
        y = _numbers(table, [name], data or example, "; classes need --classify or --ordinal")[name]
        model.fit(X, y)
    score = model.score(X, y)
    model.save(out)
    measure = "R²" if isinstance(model, COMONetRegressor) else "accuracy"
    print(model.certificate_, file=sys.stderr)
    print(f"training {measure} {score:.4f} on {len(X)} rows after {model.n_iter_} iterations", file=sys.stderr)
    if report is not None:
        from paperworks.comonet.plots import certificate_strip, profiles

        facts = {"rows": len(X), f"training {measure}": score, "iterations": model.n_iter_}
        pictures = [certificate_strip(model.certificate_), profiles(model, X)]
        write_report(report, "Fit", "comonet", facts, model.certificate_.to_frame(), pictures)


@app.command()
def predict(
    model: ModelArgument,
    data: TableArgument = None,
    example: ExampleOption = None,
    out: OutOption = None,
    json: JsonOption = False,
    report: ReportOption = None,
) -> None:
    """Write the table with a prediction, and of a classifier the probability of each class, beside each row."""
    fitted = _load(model)
    table, _ = _table(data, example)
    X = _rows(fitted, table, data or example)
    added = {"prediction": fitted.predict(X)}
    if hasattr(fitted, "predict_proba"):
        chances = fitted.predict_proba(X).T
        added |= {f"probability_{c}": chance for c, chance in zip(fitted.classes_, chances, strict=True)}
    twice = [name for name in added if name in table]
    if twice:
        raise ValueError(f"{data or example} must not have a column {twice[0]!r}, which is where a prediction goes")
    result = table.assign(**added)
    write_frame(result, out, as_json=json)
    if report is not None:
        from paperworks.comonet.plots import profiles

        write_report(report, "Prediction", "comonet", {"rows": len(result)}, result, [profiles(fitted, X)])


@app.command()
def certify(
    model: ModelArgument,
    domain: DomainOption = None,
    out: OutOption = None,
    json: JsonTextOption = False,
    report: ReportOption = None,
) -> None:
    """Prove the shapes of a model from its weights; exit code 0 if all are proved, 1 if not."""
    from paperworks.comonet.certificates import ShapeGuaranteeError

    try:
        fitted = _read(model)
    except ShapeGuaranteeError as error:
        write_output(f"NOT proved: {error}\n", out)
        raise typer.Exit(1) from None
    certificate = fitted.certify(domain=_domain(domain, fitted))
    as_json = json or (out is not None and out.suffix == ".json")
    write_output((certificate.to_json() if as_json else str(certificate)) + "\n", out)
    if report is not None:
        from paperworks.comonet.plots import certificate_strip

        facts = {"model": str(model), "proved": certificate.ok}
        pictures = [certificate_strip(certificate)]
        write_report(report, "Certificate", "comonet", facts, certificate.to_frame(), pictures)
    if not certificate.ok:
        raise typer.Exit(1)


@app.command()
def audit(
    model: ModelArgument,
    data: TableArgument = None,
    lines: Annotated[int, typer.Option(help="Lines a column, through rows of the table.")] = 200,
    points: Annotated[int, typer.Option(help="Points a line.")] = 41,
    seed: SeedOption = 0,
    example: ExampleOption = None,
    out: OutOption = None,
    json: JsonTextOption = False,
) -> None:
    """Look for broken shapes along lines through the table's rows; exit code 1 if one is found."""
    fitted = _load(model)
    table, _ = _table(data, example)
    X = _rows(fitted, table, data or example)
    found = fitted.audit(X, n_lines=lines, n_points=points, random_state=seed)
    if json or (out is not None and out.suffix in (".json", ".csv")):
        write_frame(found.to_frame(), out, as_json=json)
    else:
        write_output(f"{found}\n", out)
    if not found.ok:
        raise typer.Exit(1)


def _table(path: Path | None, example: str | None) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the table, and the shapes that an example comes with."""
    from paperworks.comonet import data
    from paperworks.core.validation import check_choice

    if (path is None) == (example is None):
        raise ValueError("give either a table or --example, got " + ("neither" if path is None else "both"))
    if path is not None:
        return read_frame(path), {}
    loaded = getattr(data, _EXAMPLES[check_choice(example, "--example", _EXAMPLES)])()
    return loaded.data.assign(target=loaded.target), loaded.shapes


def _inputs(table: pd.DataFrame, target: str, columns: str | None, ignore: str | None) -> list[str]:
    """Return the names of the inputs."""
    named = [*_words(columns), *_words(ignore)]
    for name in named:
        if name not in table:
            raise ValueError(f"--columns and --ignore must name columns, got {name!r}; {_listed(table)}")
        if _words(columns).count(name) > 1:
            raise ValueError(f"--columns must name a column once, got {name!r} twice")
    inputs = [name for name in _words(columns) or map(str, table) if name not in (target, *_words(ignore))]
    if not inputs:
        raise ValueError("no column is left as an input")
    return inputs


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in text.split(",")] if text else []


def _listed(table: pd.DataFrame) -> str:
    return f"the columns are {', '.join(map(repr, table))}"


def _rows(model: Any, table: pd.DataFrame, where: Any) -> Any:
    """Return what the model reads of the table: its columns, or all in their order if it knows no names."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        if table.shape[1] != model.n_features_in_:
            raise ValueError(f"{where} must have the model's {model.n_features_in_} columns, got {table.shape[1]}")
        return _numbers(table, list(map(str, table)), where).to_numpy()
    missing = [str(name) for name in names if name not in table]
    if missing:
        raise ValueError(f"{where} lacks the model's column {missing[0]!r}; {_listed(table)}")
    return _numbers(table, list(names), where)


def _numbers(table: pd.DataFrame, names: Sequence[str], where: Any, advice: str = "") -> pd.DataFrame:
    """Return these columns as numbers, or name the cell that is none."""
    import numpy as np
    import pandas as pd

    numbers: pd.DataFrame = table[list(names)].apply(pd.to_numeric, errors="coerce").astype(float)
    for name in names:
        bad = ~np.isfinite(numbers[name])
        if bad.any():
            row = int(bad.to_numpy().argmax())
            cell = table[name].iloc[row]
            got = "an empty cell" if pd.isna(cell) else str(cell) if isinstance(cell, float) else repr(cell)
            raise ValueError(f"{where}, row {row + 2}: column {name!r} must hold finite numbers, got {got}{advice}")
    return numbers


def _labels(column: pd.Series[Any], classes: str | None, where: Any) -> pd.Series[Any]:
    """Return the classes, ordered if their order is given."""
    import pandas as pd

    empty = column.isna().to_numpy()
    if empty.any():
        raise ValueError(f"{where}, row {int(empty.argmax()) + 2}: column {column.name!r} is empty")
    if classes is None:
        return column
    order = _words(classes)
    odd = column[~column.isin(order)]
    if len(odd):
        raise ValueError(f"--classes must name every class of {column.name!r}, got {classes!r} without {odd.iloc[0]!r}")
    return column.astype(pd.CategoricalDtype(order, ordered=True))


def _pairs(words: Sequence[str] | None, option: str, form: str) -> dict[str, str]:
    """Return COLUMN=VALUE options as a mapping."""
    pairs: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.rpartition("=")
        if not (name and equals and value):
            raise ValueError(f"{option} must be {form}, got {word!r}")
        if name in pairs:
            raise ValueError(f"{option} must give a column once, got {name!r} twice")
        pairs[name] = value
    return pairs


def _shapes(words: Sequence[str] | None, path: Path | None) -> dict[str, Any]:
    """Return the shapes by column, those of the file and those of the options."""
    given = _pairs(words, "--shape", "COLUMN=SHAPE")
    if path is None:
        return given
    try:
        read = jsonlib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise ValueError(f"{path} must hold a JSON object from columns to shapes, got {type(read).__name__}")
    twice = sorted(read.keys() & given.keys())
    if twice:
        raise ValueError(f"--shape must not repeat a column of {path}, got {twice[0]!r}")
    return read | given


def _domain(words: Sequence[str] | None, model: Any = None) -> dict[Any, tuple[float | None, float | None]] | None:
    """Return the bounds by column: by position if the model knows no names."""
    form = "COLUMN=LOW:HIGH"
    domain: dict[Any, tuple[float | None, float | None]] = {}
    for name, text in _pairs(words, "--domain", form).items():
        low, colon, high = text.partition(":")
        try:
            key = int(name) if model is not None and not hasattr(model, "feature_names_in_") else name
            bounds = tuple(float(bound) if bound else None for bound in (low, high))
        except ValueError:
            colon = ""
        if not colon:
            raise ValueError(f"--domain must be {form}, got {name + '=' + text!r}")
        domain[key] = (bounds[0], bounds[1])
    return domain or None


def _load(folder: Path) -> Any:
    """Read a model to use it."""
    from paperworks.comonet.certificates import ShapeGuaranteeError

    try:
        return _read(folder)
    except ShapeGuaranteeError as error:
        raise ValueError(f"{folder} has not the shapes it declares: {error}") from error


def _read(folder: Path) -> Any:
    """Read a model of the class that its folder names."""
    from paperworks.comonet.estimators import COMONetClassifier, COMONetRegressor
    from paperworks.core import models

    kind = models.load(folder, slug="comonet").config.get("class")
    return (COMONetClassifier if kind == "COMONetClassifier" else COMONetRegressor).load(folder)
