"""The ledger's pages: from the verdicts and tables of a check to an index and a page a system."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

import pandas as pd
from markupsafe import Markup

from paperworks.core.atomic import write_text
from paperworks.core.claims import Scale
from paperworks.core.plotting import look
from paperworks.core.report.page import (
    Badge,
    Code,
    Columns,
    Details,
    Facts,
    Link,
    Notice,
    Number,
    Numbers,
    Part,
    Picture,
    Section,
    Table,
    Tone,
    format_value,
    page,
    render,
)
from paperworks.core.results import read_table, read_verdicts

__all__ = ["build"]

_VERDICTS: dict[str, tuple[Tone, str, str]] = {
    "holds": ("good", "✓", "The measurements pass the rule, which was fixed before the run."),
    "partly": ("warn", "◐", "They pass the part of the rule that the rule itself names as enough for this word."),
    "fails": ("bad", "✗", "They do not pass, or a measurement was not a number. This is a result, not a defect."),
    "reported": ("info", "●", "The claim sets no threshold: the numbers are given without a judgement."),
    "out of reach": ("mute", "…", "It could not be decided here; the sentence says what could decide it."),
    "unavailable": ("mute", "○", "A package or a data file is missing; the sentence has the command that repairs it."),
    "error": ("alarm", "!", "A trial raised an error, so nothing is judged; the traceback is on the page."),
}
_SOURCES = {"paper": "the paper", "ours": "our own"}
_GROUPS = {"param": "varied", "value": "measured", "run": "run"}
_TRACEBACKS = 5
# What is read of a verdict document and of a claim in it.
_DOCUMENT = frozenset(["title", "name", "field", "reference", "seconds", "version"])
_CLAIM = frozenset(["id", "says", "rule", "source", "experiments", "verdict", "headline", "sentence"])
_CLAIM |= frozenset(["trials", "plot", "command", "seconds", "versions"])


@dataclass(frozen=True)
class _System:
    """The verdict documents of one system, by scale, and the tables that its page already shows."""

    slug: str
    documents: dict[str, dict[str, Any]]
    shown: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def about(self) -> dict[str, Any]:
        return next(reversed(self.documents.values()))

    @property
    def claims(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Id to scale to claim, the paper's claims first."""
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for source in _SOURCES:
            for scale, document in self.documents.items():
                for claim in document["claims"]:
                    if claim["source"] == source:
                        found.setdefault(claim["id"], {})[scale] = claim
        return found


def build(out: str | os.PathLike[str]) -> Path:
    """Write the report of everything that was checked into a folder.

    Parameters
    ----------
    out : path
        The folder of `paperworks check`: holds ``verdicts/<scale>/<slug>.json`` and
        ``results/<scale>/<slug>/<experiment>.parquet``. Receives ``report/index.html`` and ``report/<slug>.html``.

    Returns
    -------
    pathlib.Path
        The index. A table that is missing or a picture that cannot be drawn leaves a notice in its place.

    Raises
    ------
    FileNotFoundError
        There are no verdicts.
    ValueError
        A verdict file cannot be read; the message names it.
    """
    folder = Path(out)
    systems = _read(folder)
    if not systems:
        raise FileNotFoundError(f"no verdicts in {folder}: run `paperworks check --out {folder}` first")
    for system in systems:
        write_text(folder / "report" / f"{system.slug}.html", _system_page(folder, system))
    index = folder / "report" / "index.html"
    write_text(index, _index(systems))
    return index


def _read(folder: Path) -> list[_System]:
    found: dict[str, _System] = {}
    for scale in get_args(Scale):
        for path in sorted((folder / "verdicts" / scale).glob("*.json")):
            document = read_verdicts(folder, scale, path.stem)
            absent = _DOCUMENT - document.keys()
            absent = absent.union(*(_CLAIM - claim.keys() for claim in document["claims"]))
            if absent:
                raise ValueError(f"{path} lacks {', '.join(sorted(absent))}; delete it and check again")
            found.setdefault(path.stem, _System(path.stem, {})).documents[scale] = document
    return [found[slug] for slug in sorted(found)]


def _badge(word: str) -> Badge:
    tone, symbol, _ = _VERDICTS.get(word, ("mute", "?", ""))
    return Badge(word, tone, symbol)


def _legend() -> Section:
    meanings = [(_badge(word), meaning) for word, (_, _, meaning) in _VERDICTS.items()]
    return Section(
        "How to read a verdict",
        "A verdict is computed from the measurements alone, by the rule printed beside it. Claims of the paper are "
        "counted apart from ours; a claim that we reworded is ours. The quick and the full scale are never mixed.",
        Markup(render("ledger.html", "legend", meanings)),
    )


def _index(systems: Sequence[_System]) -> str:
    sections = [
        Section("Verdicts", _counts(systems)),
        Section("Systems", Markup(render("ledger.html", "overview", systems, _badge, _SOURCES))),
        Section("Every claim with its numbers", _numbers(systems)),
        _legend(),
    ]
    subtitle = "What each paper claims, what was measured, and the verdict that follows by a rule fixed beforehand."
    return page("Ledger of claims", sections, subtitle=subtitle, nav=[("All systems", "")])


def _scales(systems: Sequence[_System]) -> list[str]:
    return [scale for scale in get_args(Scale) if any(scale in system.documents for system in systems)]


def _counts(systems: Sequence[_System]) -> Table:
    rows = {}
    for scale in _scales(systems):
        for source, whose in _SOURCES.items():
            words = [
                claim["verdict"]
                for system in systems
                for claim in system.documents.get(scale, {"claims": ()})["claims"]
                if claim["source"] == source
            ]
            counts = {word: words.count(word) for word in dict.fromkeys([*_VERDICTS, *words])}
            rows[scale, whose] = {**counts, "all": len(words)}
    frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis(index=["scale", "source"])
    return Table(frame, caption=f"Verdicts on the claims of {len(systems)} system{'s' * (len(systems) != 1)}")


def _numbers(systems: Sequence[_System]) -> Table:
    rows = []
    for system in systems:
        for name, claims in system.claims.items():
            source = next(iter(claims.values()))["source"]
            row = {("", "system"): system.slug, ("", "claim"): name, ("", "source"): _SOURCES[source]}
            for scale in _scales([system]):
                claim = claims.get(scale, {"verdict": "–", "headline": ()})
                measured = [f"{number.name}: {number.text}" for number in _headline(claim)]
                row |= {(scale, "verdict"): claim["verdict"], (scale, "measured"): "; ".join(measured) or "–"}
            rows.append(row)
    frame = pd.DataFrame(rows, columns=pd.MultiIndex.from_tuples(dict.fromkeys(name for row in rows for name in row)))
    return Table(frame.fillna("–"), rows=len(rows))


def _headline(claim: Mapping[str, Any]) -> list[Number]:
    return [Number(**number) for number in claim["headline"]]


def _system_page(folder: Path, system: _System) -> str:
    about = system.about
    checked = {
        f"{scale.capitalize()} scale": f"{format_value(document['seconds'])} CPU s, paperworks {document['version']}"
        for scale, document in system.documents.items()
    }
    paper = Facts({"Reference": about["reference"], "Field": about["field"], "System": system.slug, **checked})
    sections = [
        Section("The paper", paper),
        *(_claim(folder, system, name, claims) for name, claims in system.claims.items()),
        _legend(),
    ]
    nav = [("All systems", "index.html"), (system.slug, "")]
    return page(about["title"], sections, subtitle=about["name"], nav=nav)


def _claim(folder: Path, system: _System, name: str, claims: Mapping[str, dict[str, Any]]) -> Section:
    words = {claim["verdict"] for claim in claims.values()}
    badge = _badge(words.pop()) if len(words) == 1 else Badge("scales differ", "warn", "≠")
    first = next(iter(claims.values()))
    panels = []
    for scale, claim in claims.items():
        parts = _run(folder, system, scale, claim)
        # A claim may have been reworded between the two runs: then each scale shows what it was judged by.
        if (claim["says"], claim["rule"]) != (first["says"], first["rule"]):
            parts = [Facts({"Claim": claim["says"], "Rule": claim["rule"]}), *parts]
        heading = f"{scale.capitalize()} scale"
        panels.append(
            Section(
                heading,
                *parts,
                anchor=f"claim-{name}.{scale}",
                badge=_badge(claim["verdict"]) if len(claims) > 1 else None,
            )
        )
    facts = Facts({"Source": _SOURCES[first["source"]], "Rule": first["rule"]})
    return Section(name, first["says"], facts, Columns(*panels), anchor=f"claim-{name}", badge=badge)


def _run(folder: Path, system: _System, scale: str, claim: Mapping[str, Any]) -> list[Part]:
    """What one run has to say about a claim."""
    parts: list[Part] = [claim["sentence"]]
    if claim["headline"]:
        parts.append(Numbers(*_headline(claim)))
    tables: dict[str, pd.DataFrame] = {}
    for name in claim["experiments"]:
        try:
            tables[name] = read_table(folder, scale, system.slug, name)
        except (OSError, ValueError) as error:
            reason = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
            parts.append(Notice(f"The table results/{scale}/{system.slug}/{name}.parquet {reason}"))
    if claim["plot"] and len(tables) == len(claim["experiments"]):
        parts.append(_picture(system.slug, claim, list(tables.values())))
    for name, table in tables.items():
        parts += _measurements(system, scale, claim["id"], name, table)
    trials = claim["trials"]
    counts = f"{trials['done']} of {trials['total']} done" + f", {trials['error']} raised" * bool(trials["error"])
    versions = ", ".join(f"{name} {version}" for name, version in claim["versions"].items())
    facts = {"Trials": counts, "CPU time": f"{format_value(claim['seconds'])} s", "Versions": versions or "–"}
    return [*parts, Code(claim["command"]), Facts(facts)]


def _picture(slug: str, claim: Mapping[str, Any], tables: Sequence[pd.DataFrame]) -> Part:
    """Draw what was measured; a picture that cannot be drawn must not cost the report."""
    measured = [table[table["run.status"] == "ok"] if "run.status" in table else table for table in tables]
    if not all(map(len, measured)):
        return Notice("No picture: nothing was measured.")
    try:
        draw = getattr(importlib.import_module(f"paperworks.{slug}.plots"), claim["plot"])
        with look():
            figure = draw(*(table.reset_index(drop=True) for table in measured))
        return Picture(figure, f"Measurements behind the claim {claim['id']}: {claim['says']}")
    except Exception as error:
        message = " ".join(str(error).split())
        return Notice(f"The picture could not be drawn. {type(error).__name__}: {message}")


def _measurements(system: _System, scale: str, claim: str, name: str, table: pd.DataFrame) -> list[Part]:
    """Show a table once a page, with the tracebacks of trials that raised."""
    owner = system.shown.setdefault((scale, name), claim)
    if owner != claim:
        return [Facts({f"Table {name}": Link(f"shown with {owner}", f"#claim-{quote(owner)}.{scale}")})]
    if table.empty:
        return [Notice(f"Nothing was measured in {name}.")]
    parts: list[Part] = []
    failed = table[table["run.status"] == "error"] if "run.status" in table else table.head(0)
    if len(failed):
        parts.append(Details(f"Errors: {name} ({_rows(failed)})", *_tracebacks(failed)))
    return [*parts, Details(f"Measurements: {name} ({_rows(table)})", Table(_readable(table)))]


def _rows(table: pd.DataFrame) -> str:
    return f"{len(table)} row{'s' * (len(table) != 1)}"


def _tracebacks(failed: pd.DataFrame) -> list[Part]:
    parts: list[Part] = []
    params = [column for column in failed.columns if column.startswith("param.")]
    for _, row in failed.head(_TRACEBACKS).iterrows():
        what = ", ".join(f"{column.removeprefix('param.')} = {row[column]}" for column in params)
        parts += [what or "One trial", Code(str(row.get("run.error", "")).strip())]
    if len(failed) > _TRACEBACKS:
        parts.append(f"The first {_TRACEBACKS} of {len(failed)} are shown.")
    return parts


def _readable(table: pd.DataFrame) -> pd.DataFrame:
    """Group the columns, and leave out what says the same in every row of a run."""
    runs = [name for name in table.columns if name.startswith("run.")]
    dull = [name for name in runs if name in ("run.error", "run.time") or table[name].nunique(dropna=False) < 2]
    shown = table.drop(columns=dull)
    pairs = [name.replace("run.nan", "run.not a number").split(".", 1) for name in shown.columns]
    return shown.set_axis(pd.MultiIndex.from_tuples([(_GROUPS.get(kind, kind), name) for kind, name in pairs]), axis=1)
