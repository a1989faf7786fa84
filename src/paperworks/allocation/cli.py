"""`paperworks allocation`: clear, solve, audit, design, stream, compare."""

from __future__ import annotations

import contextlib
import json as jsonlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from paperworks.core.commands import (
    JsonOption,
    OutOption,
    ReportOption,
    SeedOption,
    read_frame,
    write_frame,
    write_json,
    write_output,
    write_report,
)

if TYPE_CHECKING:
    import pandas as pd

    from paperworks.allocation.valuations import Valuations

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Divide one resource among teams by bids: shares, one price, equilibria and guarantees.",
)

AlphaOption = Annotated[float, typer.Option("--alpha", help="0 first price … 1 Kelly; smaller is more efficient.")]
CapacityOption = Annotated[float, typer.Option("--capacity", help="Amount of the resource.")]
ReserveOption = Annotated[float, typer.Option("--reserve", help="Smallest price of the whole resource.")]
AgentsArgument = Annotated[
    Path | None,
    typer.Argument(metavar="[AGENTS.csv]", help="Columns agent, family, a, b, p, points, budget; - is stdin."),
]
BudgetsOption = Annotated[
    str | None,
    typer.Option(help="private: agents heed them (default where given); public: the rule does; none: ignore them."),
]
ExampleOption = Annotated[str | None, typer.Option("--example", help="toy or speedups, in place of a file.")]


def _agents(path: Path | None, example: str | None) -> Valuations:
    from paperworks.allocation.data import speedups, toy_cluster
    from paperworks.allocation.valuations import from_table
    from paperworks.core.validation import check_choice

    if (path is None) == (example is None):
        raise ValueError("give either a file of agents or --example, got " + ("neither" if path is None else "both"))
    if path is not None:
        return from_table(_table(path))
    return {"toy": toy_cluster, "speedups": speedups}[check_choice(example, "--example", ("toy", "speedups"))]()


def _table(path: Path) -> pd.DataFrame:
    """Read a table in which only an empty cell is empty: an agent may be called NA."""
    return read_frame(path, dtype={"agent": str, "points": str}, keep_default_na=False, na_values=[""])


def _bids(path: Path) -> pd.DataFrame:
    """Read a table of bids and check its columns, by the row of the file."""
    import pandas as pd

    frame = _table(path)
    for name in ("agent", "bid"):
        if name not in frame:
            raise ValueError(f"{path} lacks the column {name!r}; it has {', '.join(map(str, frame.columns))}")
    for name in ("agent", "bid", *(["budget"] if "budget" in frame else [])):
        empty = frame[name].isna()
        if empty.any():
            raise ValueError(f"{path}, row {int(empty.idxmax()) + 2}: column {name!r} is empty")
        if name != "agent":
            odd = pd.to_numeric(frame[name], errors="coerce").isna()
            if odd.any():
                cell = frame[name][odd.idxmax()]
                raise ValueError(f"{path}, row {int(odd.idxmax()) + 2}: column {name!r} must be a number, got {cell!r}")
            frame[name] = pd.to_numeric(frame[name])
    return frame


@app.command()
def clear(
    bids: Annotated[Path, typer.Argument(metavar="BIDS.csv", help="Columns agent, bid and, if wanted, budget.")],
    alpha: AlphaOption,
    capacity: CapacityOption = 1.0,
    reserve: ReserveOption = 0.0,
    cap: Annotated[str | None, typer.Option(help="Keep payments within budgets: harmonic or hard.")] = None,
    integer: Annotated[bool, typer.Option(help="Whole units, by largest remainder.")] = False,
    out: OutOption = None,
    json: JsonOption = False,
    report: ReportOption = None,
) -> None:
    """Divide the resource by these bids: shares, one price, payments."""
    from paperworks.allocation.mechanism import AlphaProportional
    from paperworks.core.validation import check_choice

    frame = _bids(bids)
    budgets = frame["budget"].to_numpy() if "budget" in frame and cap is not None else None
    if cap is not None:
        check_choice(cap, "--cap", ("harmonic", "hard"))
        if budgets is None:
            raise ValueError(f"--cap needs a column 'budget' in {bids}")
    series = frame.set_index("agent")["bid"]
    clearing = AlphaProportional(alpha, capacity, reserve).clear(series, budgets=budgets, cap=cap)  # type: ignore[arg-type]
    table = clearing.table()
    if integer:
        table["units"] = clearing.integer_amounts()
    facts = {
        "price": clearing.price,
        "unit price": clearing.unit_price,
        "revenue": clearing.revenue,
        "sold": clearing.sold,
    }
    _deliver(table, facts, "Clearing", out, json, report)


@app.command()
def solve(
    agents: AgentsArgument = None,
    alpha: AlphaOption = 0.25,
    capacity: CapacityOption = 1.0,
    reserve: ReserveOption = 0.0,
    budgets: BudgetsOption = None,
    example: ExampleOption = None,
    out: OutOption = None,
    json: JsonOption = False,
    report: ReportOption = None,
) -> None:
    """Compute the Nash equilibrium of agents with known valuations, with a regret certificate."""
    import numpy as np

    from paperworks.allocation import plots
    from paperworks.allocation.equilibrium import solve as solve_equilibrium
    from paperworks.core.validation import check_choice

    valuations = _agents(agents, example)
    mode = check_choice(budgets or "private", "--budgets", ("private", "public", "none"))
    if budgets in ("private", "public") and valuations.budgets is None:
        raise ValueError(f"--budgets {budgets} needs a column 'budget'")
    money = np.full(len(valuations), np.inf) if mode == "none" else valuations.budgets
    kind: Literal["private", "public"] = "public" if mode == "public" else "private"
    found = solve_equilibrium(valuations, alpha, capacity, budgets=money, budget_mode=kind, reserve=reserve)
    facts = found.summary()
    pictures = []
    if report and alpha > 0 and found.price > 0 and kind == "private" and reserve == 0:
        pictures = [
            plots.market(valuations, alpha, capacity, money),
            plots.outcomes_by_alpha(valuations, capacity, money),
        ]
    _deliver(found.table(), facts, "Equilibrium", out, json, report, pictures)


@app.command()
def audit(
    rounds: Annotated[
        Path, typer.Argument(metavar="ROUNDS.csv", help="Columns round, agent, and bid or share (price).")
    ],
    alpha: AlphaOption,
    capacity: CapacityOption = 1.0,
    threshold: Annotated[float, typer.Option(help="Count rounds certified below this.")] = 0.9,
    slack: Annotated[float, typer.Option(help="Relative violation of the equilibrium conditions to allow for.")] = 0.0,
    out: OutOption = None,
    json: JsonOption = False,
    report: ReportOption = None,
) -> None:
    """Check past rounds without valuations: certified efficiency, implied marginal values, bids that jump."""
    from paperworks.allocation.auditing import audit as audit_rounds
    from paperworks.core.report.page import Section, Table

    found = audit_rounds(_table(rounds), alpha, capacity, threshold, slack)
    more = [Section("Agents", Table(found.agents))]
    _deliver(found.rounds, found.summary, "Audit", out, json, report, more=more)


@app.command()
def design(
    agents: AgentsArgument = None,
    target_efficiency: Annotated[float | None, typer.Option(help="Guarantee this share of the optimum.")] = None,
    noise: Annotated[float, typer.Option(help="Standard deviation of the log of a bid, e.g. 0.03.")] = 0.0,
    capacity: CapacityOption = 1.0,
    trials: Annotated[int, typer.Option(help="Noisy rounds for each α.")] = 200,
    seed: SeedOption = 0,
    example: ExampleOption = None,
    out: OutOption = None,
    json: JsonOption = False,
    report: ReportOption = None,
) -> None:
    """Choose α: from a guarantee, or from how noisy the bids are."""
    from paperworks.allocation import plots
    from paperworks.allocation.design import choose_alpha

    valuations = _agents(agents, example) if agents is not None or example is not None else None
    choice = choose_alpha(
        valuations, noise=noise, target_efficiency=target_efficiency, trials=trials, seed=seed, capacity=capacity
    )
    pictures = [plots.design({noise: choice})] if report and "mean" in choice.curve else []
    print(f"alpha {choice.alpha:.6g}: {choice.note}", file=sys.stderr)
    _deliver(choice.curve, {"alpha": choice.alpha, "note": choice.note}, "Choice of α", out, json, report, pictures)


@app.command()
def stream(
    rounds: Annotated[Path, typer.Argument(metavar="[BIDS.jsonl]", help="- is stdin.")] = Path("-"),
    alpha: AlphaOption = 0.25,
    capacity: CapacityOption = 1.0,
    reserve: ReserveOption = 0.0,
    refill: Annotated[float, typer.Option(help="Tokens paid to every agent each round; 0: no accounts.")] = 0.0,
    carry_over: Annotated[float, typer.Option(help="Fraction of a balance kept.")] = 1.0,
    max_spend: Annotated[float | None, typer.Option(help="Most an agent pays in a round.")] = None,
    state: Annotated[Path | None, typer.Option(help="Go on from this file, and write it back.")] = None,
    out: OutOption = None,
    report: ReportOption = None,
) -> None:
    """Clear round after round: a JSON object of bids a line in, a JSON object of the outcome a line out.

    A line is {"agent": bid, …} or {"bids": {…}, "capacity": 12}.
    """
    from paperworks.allocation import plots
    from paperworks.allocation.stream import StreamingAuctioneer

    auctioneer = StreamingAuctioneer(alpha, capacity, reserve, refill, carry_over, max_spend)
    if state is not None and state.exists():
        try:
            auctioneer.load_state_dict(jsonlib.loads(state.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{state} is not a state: {error}") from error
    live = out is None or str(out) == "-"
    lines = []
    told = False
    try:
        for number, text in _lines(rounds):
            try:
                line = jsonlib.dumps(_round(auctioneer, text), ensure_ascii=False)
            except (ValueError, TypeError) as error:
                raise ValueError(f"{rounds}, line {number}: {error}") from error
            lines.append(line)
            if live:
                print(line, flush=True)
        if not live:
            write_output("".join(f"{line}\n" for line in lines), out)
        told = True
    finally:
        # A round that was told has been charged, also where a later line is bad or Ctrl-C ends the stream.
        if state is not None and (live or told):
            write_output(jsonlib.dumps(auctioneer.state_dict(), indent=1) + "\n", state)
    if report is not None:
        ledger = auctioneer.ledger()
        _write_report(ledger, {"rounds": len(lines)}, "Stream", report, [plots.stream(ledger)] if len(ledger) else [])


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with contextlib.ExitStack() as stack:
        source: IO[str] = sys.stdin if str(path) == "-" else stack.enter_context(open(path, encoding="utf-8-sig"))
        for number, text in enumerate(source, start=1):
            if text.strip():
                yield number, text


def _round(auctioneer: Any, text: str) -> dict[str, Any]:
    """Clear one line of bids."""
    entry = jsonlib.loads(text, object_pairs_hook=_distinct)
    if not isinstance(entry, dict):
        raise ValueError(f"a line must be a JSON object, got {text.strip()[:60]}")
    bids, amount = (entry["bids"], entry.get("capacity")) if isinstance(entry.get("bids"), dict) else (entry, None)
    outcome = auctioneer.step(bids, amount)
    shares, paid = outcome.shares.tolist(), outcome.payments.tolist()
    return {
        "round": auctioneer.rounds - 1,
        "price": outcome.price,
        "status": outcome.status,
        "shares": dict(zip(outcome.names, shares, strict=True)),
        "amounts": dict(zip(outcome.names, outcome.amounts.tolist(), strict=True)),
        "payments": dict(zip(outcome.names, paid, strict=True)),
        "balances": {name: auctioneer.balances[name] for name in outcome.names if name in auctioneer.balances},
    }


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object of its members; by default the last of two with one name would win silently."""
    from paperworks.core.validation import check_names

    check_names([name for name, _ in pairs], "bids")
    return dict(pairs)


@app.command()
def compare(
    agents: AgentsArgument = None,
    alphas: Annotated[str, typer.Option(help="Comma-separated.")] = "1,0.5,0.25,0.1",
    capacity: CapacityOption = 1.0,
    budgets: Annotated[bool, typer.Option(help="Heed the budgets, where there are any.")] = True,
    example: ExampleOption = None,
    out: OutOption = None,
    json: JsonOption = False,
    report: ReportOption = None,
) -> None:
    """Compare α-proportional equilibria with VCG, max-min and an equal split on the same agents."""
    import numpy as np

    from paperworks.allocation import plots
    from paperworks.allocation.benchmarks import compare as compare_mechanisms

    valuations = _agents(agents, example)
    try:
        grid = [float(word) for word in alphas.split(",")]
    except ValueError:
        raise ValueError(f"--alphas must be numbers separated by commas, got {alphas!r}") from None
    money = valuations.budgets if budgets else np.full(len(valuations), np.inf)
    table = compare_mechanisms(valuations, grid, capacity=capacity, budgets=money)
    pictures = [plots.outcomes_by_alpha(valuations, capacity, money)] if report else []
    _deliver(
        table, {"agents": len(valuations), "capacity": capacity}, "Mechanisms compared", out, json, report, pictures
    )


def _deliver(
    table: pd.DataFrame,
    facts: dict[str, Any],
    title: str,
    out: Path | None,
    json: bool,
    report: Path | None,
    pictures: list[Any] | None = None,
    more: list[Any] | None = None,
) -> None:
    """Write the table, or table and facts as JSON, and the report if one is asked for."""
    if json or (out is not None and out.suffix == ".json"):
        write_json({"rows": table, **facts}, out)
    else:
        write_frame(table, out)
        numbers = [f"{name} {value:.6g}" for name, value in facts.items() if isinstance(value, (int, float))]
        print("; ".join(numbers), file=sys.stderr)
    if report is not None:
        _write_report(table, facts, title, report, pictures or [], more or [])


def _words(value: Any) -> Any:
    """Make a pair of numbers, or a mapping of names to numbers, readable."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:.6g}" for name, number in value.items())
    return " to ".join(f"{number:.6g}" for number in value) if isinstance(value, tuple) else value


def _write_report(
    table: pd.DataFrame,
    facts: dict[str, Any],
    title: str,
    path: Path,
    pictures: list[Any],
    more: list[Any] | None = None,
) -> None:
    told = {name.replace("_", " "): _words(value) for name, value in facts.items() if value is not None}
    write_report(path, title, "allocation", told, table, pictures, more or [])
