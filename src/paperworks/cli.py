"""The front door: `paperworks list, show, check, report, data, version`, and each system's own commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from paperworks.core.commands import DebugOption, JobsOption, SystemsGroup, run, write_output
from paperworks.core.paper import Paper, system, systems

if TYPE_CHECKING:
    from paperworks.core.data import DataFile

__all__ = ["app", "main"]

app = typer.Typer(
    cls=SystemsGroup,
    no_args_is_help=True,
    add_completion=False,
    help="The systems of research papers, usable on your own data, each with a ledger of measured claims.",
    epilog="Exit codes: 0 done, 1 the answer is no, 2 bad input, 3 not available, 130 interrupted.",
)
data_app = typer.Typer(no_args_is_help=True, help="The data files that systems use: list, find, download.")
app.add_typer(data_app, name="data")


def main() -> NoReturn:
    """Entry point of the console script."""
    run(app)


@app.callback()
def _root(debug: DebugOption = False) -> None:
    """Options that every command accepts."""


@app.command("list")
def list_systems(json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False) -> None:
    """List the systems and what each does for you."""
    found = systems()
    if json:
        _write_json([_paper_facts(paper) for paper in found.values()])
        return
    width = max(map(len, found), default=0)
    for slug, paper in found.items():
        print(f"{slug:<{width}}  {paper.does}")


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="SYSTEM")],
    json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Show a system: its paper, how to install and import it, and its claims."""
    from paperworks.core.claims import ledger

    paper = system(name)
    claims = ledger(paper.slug).claims.values()
    if json:
        listed = [{"id": c.id, "source": c.source, "says": c.says, "rule": c.rule} for c in claims]
        _write_json({**_paper_facts(paper), "claims": listed})
        return
    print(f"{paper.slug}: {paper.does}\n")
    print(f"  paper    {paper.reference}\n  field    {paper.field}")
    print(f"  install  pip install 'paperworks[{paper.extra}]'\n  import   import {paper.module}\n")
    for claim in claims:
        print(f"  {claim.id}  [{claim.source}]\n      {claim.says}\n      rule: {claim.rule}")


def _paper_facts(paper: Paper) -> dict[str, str]:
    return {name: getattr(paper, name) for name in ("slug", "title", "field", "does", "reference", "extra")}


def _write_json(value: Any) -> None:
    import json

    write_output(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", None)


@app.command()
def check(
    names: Annotated[list[str] | None, typer.Argument(metavar="[SYSTEM]...", help="By default all.")] = None,
    claim: Annotated[list[str] | None, typer.Option(metavar="ID", help="Only this claim; may be repeated.")] = None,
    scale: Annotated[str, typer.Option(help="quick: a minute a system; full: what the paper did.")] = "quick",
    jobs: JobsOption = None,
    engine: Annotated[str, typer.Option(help="local or dask.")] = "local",
    scheduler: Annotated[str | None, typer.Option(metavar="ADDR", help="A running Dask scheduler.")] = None,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR")] = Path("paperworks-out"),
    fresh: Annotated[bool, typer.Option(help="Measure again what is stored.")] = False,
    max_hours: Annotated[float, typer.Option(help="Refuse a full check of more CPU hours.")] = 2.0,
    strict: Annotated[bool, typer.Option(help="Exit 1 unless every claim of the papers holds.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Write one JSON object to standard output.")] = False,
) -> None:
    """Measure the claims of the papers here, and judge them."""
    from paperworks.core.engine import Engine, cores
    from paperworks.core.progress import LiveProgress
    from paperworks.core.report.ledger import build
    from paperworks.core.runner import QUICK_CPU_SECONDS
    from paperworks.core.runner import check as run_check
    from paperworks.core.validation import check_choice

    check_choice(scale, "--scale", ("quick", "full"))
    check_choice(engine, "--engine", ("local", "dask"))
    if scheduler is not None and engine != "dask":
        raise ValueError(f"--scheduler needs --engine dask, got --engine {engine}")
    papers = [system(name) for name in dict.fromkeys(names)] if names else _having(claim or ())
    try:
        with LiveProgress() as progress:
            documents = run_check(
                papers,
                claims=claim or (),
                scale=scale,  # type: ignore[arg-type]
                engine=Engine(engine, jobs or cores(), scheduler),  # type: ignore[arg-type]
                out=out,
                fresh=fresh,
                max_hours=max_hours,
                progress=progress,
            )
    except KeyboardInterrupt:
        # What was measured until then is stored and judged: show it.
        build(out)
        raise
    page = build(out)
    if json:
        _write_json(_summary(documents, scale))
    else:
        _print_verdicts(documents)
    print(f"report: {page}", file=sys.stderr)
    slow = [d["slug"] for d in documents if scale == "quick" and d["seconds"] > QUICK_CPU_SECONDS]
    if slow:
        print(f"more than {QUICK_CPU_SECONDS:.0f} CPU s at quick: {', '.join(slow)}", file=sys.stderr)
    rows = [row for document in documents for row in document["claims"] if row["source"] == "paper"]
    unsound = slow or any(row["verdict"] != "holds" for row in rows)
    raise typer.Exit(1 if strict and unsound else 0)


def _having(claims: Sequence[str]) -> list[Paper]:
    """Return the systems that have all of these claims."""
    from paperworks.core.claims import ledger

    found = [paper for paper in systems().values() if not claims or set(claims) <= set(ledger(paper.slug).claims)]
    if not found:
        raise ValueError(f"no system has the claim {' and '.join(map(repr, claims))}")
    return found


def _summary(documents: list[dict[str, Any]], scale: str) -> dict[str, Any]:
    """Pick what `check.schema.json` describes."""
    from paperworks import __version__
    from paperworks.core.results import SCHEMA, finite

    kept = ("id", "source", "verdict", "headline", "sentence", "trials")
    rows = [
        {
            "slug": document["slug"],
            "seconds": document["seconds"],
            "claims": [{name: claim[name] for name in kept} for claim in document["claims"]],
        }
        for document in documents
    ]
    summary: dict[str, Any] = finite({"schema": SCHEMA, "version": __version__, "scale": scale, "systems": rows})
    return summary


def _print_verdicts(documents: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for document in documents:
        title = f"{document['slug']}  ({document['scale']}, {document['seconds']:.1f} CPU s)"
        table = Table(title=title, title_justify="left")
        for heading in ("claim", "source", "verdict", "what was measured"):
            table.add_column(heading, overflow="fold")
        for claim in document["claims"]:
            table.add_row(claim["id"], claim["source"], claim["verdict"], claim["sentence"])
        console.print(table, highlight=False, markup=False)


@app.command()
def report(out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR")] = Path("paperworks-out")) -> None:
    """Write the report again from the results that `check` left."""
    from paperworks.core.report.ledger import build

    if not (out / "verdicts").is_dir():
        raise FileNotFoundError(f"{out} holds no results: run `paperworks check --out {out}` first")
    print(build(out))


@app.command()
def version() -> None:
    """Print the version."""
    from paperworks import __version__

    print(__version__)


def _data_files(name: str | None) -> list[DataFile]:
    """Return the files of one system or of all."""
    import importlib

    papers = [system(name)] if name else list(systems().values())
    return [file for paper in papers for file in getattr(importlib.import_module(f"{paper.module}.data"), "FILES", ())]


@data_app.command("list")
def data_list(name: Annotated[str | None, typer.Argument(metavar="[SYSTEM]")] = None) -> None:
    """List the data files, whether each is on this machine, its licence and its source."""
    from paperworks.core.data import available

    for file in _data_files(name):
        print(f"{file}\t{'here' if available(file) else 'not here'}\t{file.licence}\t{file.url or file.build}")


def _chosen(wanted: str) -> list[DataFile]:
    """Return the files meant by ``<slug>`` or ``<slug>/<name>``."""
    slug, _, name = wanted.partition("/")
    files = [file for file in _data_files(slug) if not name or file.name == name]
    if not files:
        raise ValueError(f"there is no data file {wanted!r}; see `paperworks data list {slug}`")
    return files


@data_app.command("path")
def data_path(file: Annotated[str, typer.Argument(metavar="SYSTEM[/FILE]")]) -> None:
    """Print where a file is on this machine, without the network."""
    from paperworks.core.data import path

    for item in _chosen(file):
        print(path(item, download=False))


@data_app.command("fetch")
def data_fetch(file: Annotated[str, typer.Argument(metavar="SYSTEM[/FILE]")]) -> None:
    """Download a file, or all files of a system, into the cache and print where they are."""
    from paperworks.core.data import path

    for item in _chosen(file):
        print(path(item))
