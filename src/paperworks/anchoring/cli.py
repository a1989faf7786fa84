"""`paperworks anchoring`: lp, game, mdp, rates."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paperworks.core.commands import (
    JsonOption,
    OutOption,
    ReportOption,
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
    from scipy.optimize import OptimizeResult

    from paperworks.anchoring.schedules import Schedule

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Anchored methods: linear programmes, matrix games, decision processes, and worst cases of your own weights.",
)

MaxiterOption = Annotated[int, typer.Option(help="Most iterations.")]
PlotOption = Annotated[Path | None, typer.Option("--plot", metavar="FILE.svg", help="Also draw (.png, .svg, .pdf).")]


@app.command()
def lp(
    file: Annotated[Path, typer.Argument(metavar="FILE.mps", help="In MPS or LP format, gzipped or not.")],
    tol: Annotated[float, typer.Option(help="Largest relative error: primal, dual and gap.")] = 1e-6,
    maxiter: MaxiterOption = 200_000,
    method: Annotated[str, typer.Option(help="r2halpern, rhalpern, halpern or pdhg.")] = "r2halpern",
    relax: Annotated[bool, typer.Option("--relax", help="Take integer variables as real ones.")] = False,
    history: Annotated[Path | None, typer.Option(metavar="FILE.csv", help="Also write the errors on the way.")] = None,
    out: OutOption = None,
    json: JsonOption = False,
    plot: PlotOption = None,
    report: ReportOption = None,
) -> None:
    """Solve a linear programme: values and marginals of variables and rows; exit code 1 if there is no optimum."""
    import pandas as pd

    from paperworks.anchoring.lp import solve_mps

    _check_picture(plot)
    found = solve_mps(file, tol=tol, maxiter=maxiter, method=method, relax=relax)
    facts: dict[str, Any] = {
        "status": found.status,
        "message": found.message,
        **({"objective": found.fun} if found.status in (0, 1) else {}),
        "iterations": found.nit,
        "restarts": found.restarts,
        "primal_error": found.kkt.primal,
        "dual_error": found.kkt.dual,
        "gap": found.kkt.gap,
        **({} if found.ray is None else {"ray_violation": found.ray.violation}),
    }
    path = pd.DataFrame(found.history)
    if history is not None:
        write_frame(path, history)

    def draw() -> Figure:
        from paperworks.anchoring.plots import kkt_curves

        return kkt_curves(found, tol)

    _deliver("Linear programme", _solution(found), facts, out, json, report, plot, draw if len(path) else None)
    if not found.success:
        raise typer.Exit(1)


@app.command()
def game(
    payoff: Annotated[
        Path,
        typer.Argument(
            metavar="PAYOFF.csv",
            help="What the row player gets, a row a strategy; names in the first row and column or none; - is stdin.",
        ),
    ],
    tol: Annotated[float, typer.Option(help="Largest gap, in the unit of the payoffs.")] = 1e-9,
    maxiter: MaxiterOption = 100_000,
    out: OutOption = None,
    json: JsonOption = False,
    report: ReportOption = None,
) -> None:
    """Find an equilibrium of a matrix game: the probability of every strategy, and the value."""
    import pandas as pd

    from paperworks.anchoring.games import solve_matrix_game

    table = _payoffs(payoff)
    found = solve_matrix_game(table.to_numpy(), tol, maxiter=maxiter)
    rows = [("row", name, p) for name, p in zip(table.index, found.x.tolist(), strict=True)]
    rows += [("column", name, p) for name, p in zip(table.columns, found.y.tolist(), strict=True)]
    facts = {"value": found.value, "gap": found.gap, "iterations": found.nit, "within_tolerance": found.success}
    result = pd.DataFrame(rows, columns=["player", "strategy", "probability"])
    _deliver("Matrix game", result, facts, out, json, report)
    if not found.success:
        raise typer.Exit(1)


@app.command()
def mdp(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL.npz", help="Arrays P of shape (actions, states, states) and R of shape (states, actions)."
        ),
    ],
    gamma: Annotated[float, typer.Option(help="Discount factor, above 0 and at most 1.")],
    method: Annotated[str, typer.Option(help="auto, anchored or plain.")] = "auto",
    tol: Annotated[float, typer.Option(help="Largest Bellman error.")] = 1e-8,
    maxiter: Annotated[int, typer.Option(help="Most sweeps.")] = 100_000,
    out: OutOption = None,
    json: JsonOption = False,
    report: ReportOption = None,
) -> None:
    """Find the values and best actions of a Markov decision process."""
    import pandas as pd

    from paperworks.anchoring.mdp import value_iteration

    P, R = _arrays(model, ("P", "R"))
    found = value_iteration(P, R, gamma, method, tol, maxiter=maxiter)
    facts = {
        "gamma": gamma,
        "sweeps": found.nit,
        "bellman_error": found.bellman_error,
        "values_wrong_by_at_most": found.value_bound,
        "within_tolerance": found.success,
        **({} if found.switched is None else {"anchored_from_sweep": found.switched}),
    }
    table = pd.DataFrame({"state": range(len(found.V)), "value": found.V, "action": found.policy})
    _deliver("Decision process", table, facts, out, json, report)
    if not found.success:
        raise typer.Exit(1)


@app.command()
def rates(
    method: Annotated[str, typer.Option(help="picard, forward, extragradient or popov.")] = "extragradient",
    a: Annotated[float | None, typer.Option(help="Of δ = a/(k + b); the default is the method's.")] = None,
    b: Annotated[float | None, typer.Option(help="Of δ = a/(k + b).")] = None,
    mu: Annotated[float | None, typer.Option(help="ηL + δ, of extragradient and popov.")] = None,
    n: Annotated[int, typer.Option("--n", help="Iterations.")] = 1000,
    pep: Annotated[
        int, typer.Option("--pep", help="Solve semidefinite programmes up to this iteration; 0 is none.")
    ] = 4,
    out: OutOption = None,
    json: JsonOption = False,
    plot: PlotOption = None,
    report: ReportOption = None,
) -> None:
    """Bound the worst residual with weights of your own, L = 1 and ‖x₀ − x*‖ = 1, from below and above."""
    import numpy as np
    import pandas as pd

    from paperworks.anchoring.certificates import apriori_bound, is_certified, pep_worst_case, spectral_worst_case
    from paperworks.core.extras import MissingExtra
    from paperworks.core.validation import check_integer

    _check_picture(plot)
    n, pep = check_integer(n, "--n", low=1), check_integer(pep, "--pep", low=0)
    schedule = _weights(method, {"a": a, "b": b, "mu": mu})
    k = np.arange(n + 1)
    power = 0.5 if method == "forward" else 1.0
    spectral = spectral_worst_case(method, schedule, n)
    certified = is_certified(method, schedule)
    table = pd.DataFrame({"k": k, "spectral": spectral, "pep": np.nan, "recurrence": np.nan})
    scale = (k + 1) ** power
    facts: dict[str, Any] = {
        "method": method,
        **dict(schedule.params),
        "certified": certified,
        "scaled_by": "sqrt(k + 1)" if method == "forward" else "k + 1",
        "largest_scaled_spectral": float((scale * spectral).max()),
    }
    if n >= 100:
        late = slice(n // 10, None)
        facts["slope_of_last_decade"] = float(np.polyfit(np.log(k[late] + 1), np.log(spectral[late]), 1)[0])
    if certified:
        table["recurrence"] = apriori_bound(method, schedule, n)
        facts["largest_scaled_recurrence"] = float((scale * table["recurrence"]).max())
    inexact = []
    for at in [at for at in (1, 2, 4, 8, 16, 32, pep) if 0 < at <= min(n, pep)]:
        try:
            bound = pep_worst_case(method, schedule, at)
        except MissingExtra as error:
            print(f"paperworks: warning: no semidefinite programmes: {error}", file=sys.stderr)
            break
        table.loc[at, "pep"] = bound.value
        inexact += [at] if bound.status != "optimal" else []
    if inexact:
        facts["pep_inaccurate_at"] = inexact
    title = f"Worst residual of {method}, {', '.join(f'{name} = {value:g}' for name, value in schedule.params.items())}"
    _deliver("Rates", table, facts, out, json, report, plot, lambda: _rates_picture(title, table))


def _weights(method: str, given: dict[str, float | None]) -> Schedule:
    """Return the method's schedule, with what was given in place of its defaults."""
    import warnings

    from paperworks.anchoring import schedules
    from paperworks.anchoring.bases import BASES
    from paperworks.core.validation import check_choice

    check_choice(method, "--method", BASES)
    chosen = {name: value for name, value in given.items() if value is not None}
    if "mu" in chosen and method in ("picard", "forward"):
        raise ValueError(f"--mu is for extragradient and popov, got it with {method}")
    make = schedules.halpern if method == "picard" else getattr(schedules, method)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        schedule: Schedule = make(**chosen)
    for warning in told:
        print(f"paperworks: warning: {warning.message}", file=sys.stderr)
    return schedule


def _solution(found: OptimizeResult) -> pd.DataFrame:
    """Return variables and rows of a programme, and of a proof that there is no optimum its ray."""
    import numpy as np
    import pandas as pd

    model = found.model
    n, m = model.c.size, model.A.shape[0]
    table = pd.DataFrame(
        {
            "kind": ["variable"] * n + ["row"] * m,
            "name": [*(model.columns or map(str, range(n))), *(model.rows or map(str, range(m)))],
            "value": np.concatenate([found.x, found.rows.activity]),
            "lower": np.concatenate([model.lb, model.row_lower]),
            "upper": np.concatenate([model.ub, model.row_upper]),
            "marginal": np.concatenate([found.lower.marginals + found.upper.marginals, found.rows.marginals]),
        }
    )
    if found.ray is not None:
        ray = np.full(n + m, np.nan)
        ray[slice(n, None) if len(found.ray.direction) == m and found.status == 2 else slice(n)] = found.ray.direction
        table["ray"] = ray
    return table


def _payoffs(path: Path) -> pd.DataFrame:
    """Return payoffs with the names of the strategies, or their numbers."""
    import numpy as np
    import pandas as pd

    cells = read_frame(path, header=None, dtype=str, keep_default_na=False, skip_blank_lines=True)
    numeric = cells.map(_is_number)
    named_columns = len(cells) > 1 and not numeric.iloc[0].any()
    body = cells.iloc[1:] if named_columns else cells
    named_rows = cells.shape[1] > 1 and not numeric.loc[body.index, 0].any()
    rows = body[0].tolist() if named_rows else list(map(str, range(len(body))))
    values = body.iloc[:, 1:] if named_rows else body
    names = (
        cells.iloc[0].tolist()[1 if named_rows else 0 :] if named_columns else list(map(str, range(values.shape[1])))
    )
    wrong = ~numeric.loc[values.index, values.columns]
    if wrong.to_numpy().any():
        i, j = next((i, j) for i, j in zip(*wrong.to_numpy().nonzero(), strict=True))
        raise ValueError(f"{path}, line {values.index[i] + 1}: payoffs must be numbers, got {values.iloc[i, j]!r}")
    payoffs = values.to_numpy(dtype=float)
    if not np.isfinite(payoffs).all():
        i, j = np.argwhere(~np.isfinite(payoffs))[0]
        raise ValueError(f"{path}, line {values.index[i] + 1}: payoffs must be finite, got {values.iloc[i, j]}")
    return pd.DataFrame(payoffs, index=rows, columns=names)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _arrays(path: Path, names: tuple[str, ...]) -> list[NDArray[np.generic]]:
    """Return arrays of an npz file; it is not unpickled."""
    import zipfile
    import zlib

    import numpy as np

    with open(path, "rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError(f"{path} is not an npz file, as numpy.savez writes it")
        file.seek(0)
        try:
            with np.load(file, allow_pickle=False) as archive:
                there = archive.files
                found = [archive[name] for name in names if name in there]
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path} is not an npz file of numbers: {error}") from None
    if len(found) != len(names):
        raise ValueError(f"{path} must have the arrays {' and '.join(names)}, it has {', '.join(there) or 'none'}")
    return found


def _rates_picture(title: str, table: pd.DataFrame) -> Figure:
    """Draw the worst residual from below and above against the iteration."""
    from paperworks.core.plotting import figure

    made, ax = figure(title, xscale="log", yscale="log", xlabel="k + 1", ylabel="residual")
    at = table["k"] + 1
    if table["recurrence"].notna().any():
        ax.plot(at, table["recurrence"], color="#D55E00", label="proved: recurrence")
    if table["pep"].notna().any():
        ax.plot(at, table["pep"], "o", color="#1c2330", label="performance estimation (upper bound)")
    ax.plot(at, table["spectral"], color="#0072B2", label="attained: normal linear operators")
    ax.legend()
    return made


def _check_picture(plot: Path | None) -> None:
    """Refuse a picture of an unknown form before anything is computed."""
    from paperworks.core.validation import check_choice

    if plot is not None:
        check_choice(plot.suffix.lower(), "suffix of --plot", (".png", ".svg", ".pdf"))


def _deliver(
    title: str,
    table: pd.DataFrame,
    facts: dict[str, Any],
    out: Path | None,
    json: bool,
    report: Path | None,
    plot: Path | None = None,
    draw: Any = None,
) -> None:
    """Write the table, or table and facts as JSON; the picture and the report if they are asked for."""
    told = {name.replace("_", " "): _words(value) for name, value in facts.items()}
    if json or (out is not None and out.suffix == ".json"):
        write_json({**facts, "rows": table}, out)
    else:
        write_frame(table, out)
        for name, words in told.items():
            print(f"{name}: {words}", file=sys.stderr)
    pictures = [] if draw is None or (plot is None and report is None) else [draw()]
    if plot is not None and pictures:
        from paperworks.core.plotting import save

        save(pictures[0], plot)
    if report is not None:
        write_report(report, title, "anchoring", told, table, pictures)


def _words(value: Any) -> str:
    """Return a value as a reader wants it."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.9g}"
    return ", ".join(map(_words, value)) if isinstance(value, list) else str(value)
