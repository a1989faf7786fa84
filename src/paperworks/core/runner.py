"""Run the trials of a ledger: plan, cache, resume, progress, verdicts."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import paperworks
from paperworks.core import data, results
from paperworks.core.atomic import write_text
from paperworks.core.claims import Claim, Experiment, Ledger, Scale, Trial, Verdict, judge, ledger, plain
from paperworks.core.data import DataUnavailable, cache_folder
from paperworks.core.engine import Call, Engine, thread_limit
from paperworks.core.extras import MissingExtra, install_command, missing, versions
from paperworks.core.fingerprint import FORMAT, experiment_fingerprint, key
from paperworks.core.paper import Paper

__all__ = ["QUICK_CPU_SECONDS", "Job", "Plan", "TooLong", "check", "forget", "measure_trial", "plan"]

QUICK_CPU_SECONDS = 60.0


class TooLong(ValueError):
    """The trials that are left would take longer than the caller allows."""


@dataclass
class Job:
    """One trial of a plan: where its record is kept, and the record once it is there."""

    experiment: Experiment
    trial: Trial
    number: int
    store: Path
    record: dict[str, Any] | None = None


@dataclass
class Plan:
    """The trials that the chosen claims of one system need at one scale."""

    paper: Paper
    scale: Scale
    ledger: Ledger
    claims: list[Claim]
    jobs: dict[str, list[Job]] = field(default_factory=dict)
    repair: dict[str, str] = field(default_factory=dict)

    @property
    def left(self) -> list[Job]:
        """Jobs without a record."""
        return [job for jobs in self.jobs.values() for job in jobs if job.record is None]

    @property
    def hours(self) -> float:
        """Expected CPU hours of what is left."""
        return math.fsum(
            self.ledger.experiments[name].hours.get(self.scale, 0.0)
            * sum(job.record is None for job in jobs)
            / max(1, len(jobs))
            for name, jobs in self.jobs.items()
        )


def plan(paper: Paper, scale: Scale, claim_ids: Sequence[str] = (), *, fresh: bool = False) -> Plan:
    """List the trials of a system's claims and pick up those already measured.

    Parameters
    ----------
    paper : Paper
    scale : {"quick", "full"}
    claim_ids : sequence of str
        Only these claims; by default all.
    fresh : bool
        Measure again what is already stored.

    Raises
    ------
    ValueError
        A claim that the system does not have.
    """
    book = ledger(paper.slug)
    unknown = [name for name in claim_ids if name not in book.claims]
    if unknown:
        raise ValueError(f"{paper.slug} has no claim {unknown[0]!r}; it has: {', '.join(book.claims)}")
    claims = [claim for claim in book.claims.values() if not claim_ids or claim.id in claim_ids]
    result = Plan(paper, scale, book, claims)
    for name in dict.fromkeys(name for claim in claims for name in claim.experiments):
        _plan_experiment(result, book.experiments[name], fresh)
    return result


def _plan_experiment(result: Plan, experiment: Experiment, fresh: bool) -> None:
    slug, scale = result.paper.slug, result.scale
    absent = missing(experiment.requires)
    wanted = list(absent)
    # A peer that only some trials measure is no part of what is prepared for all.
    artifact = cache_folder() / "artifacts" / slug / experiment.id
    artifact /= key(scale, experiment_fingerprint(slug, experiment, Trial()))
    jobs = []
    fingerprints: dict[tuple[str, ...], str] = {}
    for number, trial in enumerate(experiment.trials(scale)):
        if trial.requires not in fingerprints:
            fingerprints[trial.requires] = experiment_fingerprint(slug, experiment, trial)
        fingerprint = fingerprints[trial.requires]
        if experiment.prepare is not None:
            trial = replace(trial, artifact=artifact)
        name = key(FORMAT, slug, experiment.id, dict(trial.params), trial.seed, trial.threads, fingerprint)
        if experiment.prepare is not None:
            name = key(name, scale)
        job = Job(experiment, trial, number, cache_folder() / "trials" / slug / experiment.id / f"{name}.json")
        peers = missing(trial.requires)
        if absent or peers:
            job.record = _lacking(trial, f"{', '.join(absent or peers)} is missing")
            wanted += () if absent else peers
        elif not fresh:
            job.record = _stored(job.store)
        jobs.append(job)
    result.jobs[experiment.id] = jobs
    result.repair[experiment.id] = install_command(tuple(wanted), result.paper.extra) if wanted else ""


def _fetch(item: Plan) -> None:
    """Get the data files that what is left at full scale reads; an experiment that lacks one is not measured."""
    for name, jobs in item.jobs.items():
        try:
            if any(job.record is None for job in jobs):
                for file in item.ledger.experiments[name].data:
                    data.path(file)
        except DataUnavailable as error:
            for job in jobs:
                job.record = _lacking(job.trial, str(error))


def _stored(path: Path) -> dict[str, Any] | None:
    """Read a stored record; one that cannot be read is measured again."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    whole = isinstance(record, dict) and record.get("format") == FORMAT and record.keys() >= {"params", "rows", "run"}
    return record if whole else None


def _record(trial: Trial, rows: list[dict[str, Any]], run: Mapping[str, Any]) -> dict[str, Any]:
    return {"format": FORMAT, "params": {**trial.params, "seed": trial.seed}, "rows": rows, "run": dict(run)}


def _lacking(trial: Trial, what: str) -> dict[str, Any]:
    return _record(trial, [], {"status": "unavailable", "error": what})


def measure_trial(slug: str, experiment_id: str, trial: Trial, download: bool = False) -> dict[str, Any]:
    """Measure one trial in this process and return its record; what it raises becomes an error row.

    Parameters
    ----------
    slug, experiment_id : str
        Where to find the measuring function.
    trial : Trial
    download : bool
        Whether data files may be fetched.
    """
    experiment = ledger(slug).experiments[experiment_id]
    rows: list[dict[str, Any]] = []

    def measure() -> None:
        measured = experiment.measure(trial)
        rows.extend(
            [plain(row, "measured value") for row in ([measured] if isinstance(measured, Mapping) else measured)]
        )

    with _room(trial.threads, download), _Memory() as memory:
        start, cpu = time.perf_counter(), _cpu_seconds()
        run = _outcome(measure)
    run["seconds"] = time.perf_counter() - start
    run["cpu"] = _cpu_seconds() - cpu
    run["memory_mb"] = memory.peak_mb
    run["threads"] = trial.threads
    libraries = versions(("numpy", "scipy", *experiment.requires, *trial.requires))
    run["versions"] = json.dumps(
        {"python": platform.python_version(), "paperworks": paperworks.__version__, **libraries}
    )
    run["time"] = datetime.now(UTC).isoformat(timespec="seconds")
    return _record(trial, rows, run)


def _outcome(work: Callable[[], object]) -> dict[str, Any]:
    """Do some work and say how it ended; of its errors only an interruption goes on."""
    try:
        work()
    except (MissingExtra, DataUnavailable) as error:
        return {"status": "unavailable", "error": str(error)}
    except (Exception, SystemExit):
        return {"status": "error", "error": traceback.format_exc()}
    return {"status": "ok", "error": ""}


def _cpu_seconds() -> float:
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


class _Memory(contextlib.AbstractContextManager["_Memory"]):
    """Sample the resident memory of this process; NaN where the system does not tell."""

    peak_mb = math.nan

    def __enter__(self) -> _Memory:
        self._stop = threading.Event()
        self._sample()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self._sample()

    def _sample(self) -> None:
        try:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        except OSError:
            return
        self.peak_mb = float(np.fmax(self.peak_mb, pages * os.sysconf("SC_PAGE_SIZE") / 2**20))

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()


# What `_room` sets belongs to the process, and a Dask worker may have several threads.
_ROOM = threading.Lock()


@contextlib.contextmanager
def _room(threads: int, download: bool) -> Iterator[None]:
    """Bound the threads, fetch no data file unless `download`, keep standard output clean, and tidy up afterwards."""
    with (
        _ROOM,
        _output_to_error(),
        contextlib.chdir(os.getcwd()),
        warnings.catch_warnings(),
        thread_limit(threads),
        _network(download),
    ):
        yield


@contextlib.contextmanager
def _output_to_error() -> Iterator[None]:
    """Send what is printed to standard error, also what native code and child processes write."""
    flush = ctypes.CDLL(None).fflush
    sys.stdout.flush()
    flush(None)
    before = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        flush(None)
        os.dup2(before, 1)
        os.close(before)


@contextlib.contextmanager
def _network(allowed: bool) -> Iterator[None]:
    before = os.environ.get("PAPERWORKS_OFFLINE")
    if not allowed:
        os.environ["PAPERWORKS_OFFLINE"] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("PAPERWORKS_OFFLINE", None)
        else:
            os.environ["PAPERWORKS_OFFLINE"] = before


Outcome = tuple[str, int, dict[str, Any]]


def _execute(slug: str, experiment_id: str, trial: Trial, download: bool, number: int) -> Outcome:
    return f"{slug}/{experiment_id}", number, measure_trial(slug, experiment_id, trial, download)


def _died(call: Call) -> Outcome:
    slug, experiment_id, trial, _, number = call.arguments
    lost = {"status": "error", "error": "the worker process was killed (out of memory, or a crash in native code)"}
    return f"{slug}/{experiment_id}", number, _record(trial, [], lost)


def _prepare(job: Job, scale: Scale) -> dict[str, Any]:
    """Make an experiment's common input unless it is there, and say how that ended."""
    artifact = job.trial.artifact

    def prepare() -> None:
        if job.experiment.prepare is None or artifact is None or artifact.is_dir():
            return
        artifact.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=artifact.parent) as part:
            folder = Path(part, artifact.name)
            folder.mkdir()
            job.experiment.prepare(scale, folder)
            try:
                os.rename(folder, artifact)
            except OSError:
                # Another check may have been faster, and its trials may be reading: then its input stays.
                if not artifact.is_dir():
                    raise

    with _room(job.trial.threads, scale == "full"):
        return _outcome(prepare)


def check(
    papers: Sequence[Paper],
    *,
    claims: Sequence[str] = (),
    scale: Scale = "quick",
    engine: Engine | None = None,
    out: str | os.PathLike[str] = "paperworks-out",
    fresh: bool = False,
    max_hours: float = 2.0,
    progress: Any = None,
) -> list[dict[str, Any]]:
    """Measure and judge the claims of some systems; write tables and verdicts under `out`.

    Parameters
    ----------
    papers : sequence of Paper
    claims : sequence of str
        Ids; by default every claim.
    scale : {"quick", "full"}
    engine : Engine, optional
        Where trials run; by default one worker process a core.
    out : path
        Receives ``results/<scale>/<slug>/<experiment>.parquet`` and ``verdicts/<scale>/<slug>.json``.
    fresh : bool
        Measure again what is stored.
    max_hours : float
        Refuse a full check that is expected to take more CPU hours.
    progress : object, optional
        Has ``start(plans)``, ``advance(plan, job)`` and ``say(text)``.

    Returns
    -------
    list of dict
        A verdict document a system. When the run is interrupted, what was not measured is ``out of reach``, the
        documents are written all the same, and ``KeyboardInterrupt`` goes on to the caller.

    Raises
    ------
    TooLong
        The expected hours exceed `max_hours`.
    """
    folder = Path(out)
    plans = [plan(paper, scale, claims, fresh=fresh) for paper in papers]
    hours = sum(item.hours for item in plans)
    if scale == "full":
        if progress is not None:
            progress.say(f"full scale: about {hours:.2g} CPU hours are left to measure")
        if hours > max_hours:
            raise TooLong(
                f"a full check needs about {hours:.2g} CPU hours; allow them with --max-hours {math.ceil(hours)}"
            )
        for item in plans:
            _fetch(item)
    # What cannot be written shows now and not after hours.
    (folder / "results" / scale).mkdir(parents=True, exist_ok=True)
    try:
        _run(plans, engine or Engine(), progress)
    finally:
        documents = [_conclude(item, folder) for item in plans]
    return documents


def _run(plans: list[Plan], engine: Engine, progress: Any) -> None:
    """Run what is left, cheap trials first, storing each record as it arrives."""
    todo: dict[tuple[str, int], tuple[Plan, Job]] = {}
    calls = []
    prepared: dict[str, dict[str, Any]] = {}
    if progress is not None:
        progress.start(plans)
    for item, job in sorted(((p, j) for p in plans for j in p.left), key=lambda pair: pair[1].trial.cost):
        slug, name = item.paper.slug, job.experiment.id
        place = f"{slug}/{name}"
        if place not in prepared:
            prepared[place] = _prepare(job, item.scale)
        if prepared[place]["status"] != "ok":
            job.record = _record(job.trial, [], prepared[place])
            if progress is not None:
                progress.advance(item, job)
            continue
        arguments = (slug, name, job.trial, item.scale == "full", job.number)
        todo[place, job.number] = (item, job)
        calls.append(Call(_execute, arguments, job.trial.threads, job.experiment.exclusive))
    for name, number, record in engine.run(calls, _died):
        item, job = todo[name, number]
        job.record = record
        if record["run"]["status"] == "ok":
            write_text(job.store, json.dumps(record))
        if progress is not None:
            progress.advance(item, job)


def _conclude(item: Plan, out: Path) -> dict[str, Any]:
    """Write the tables and judge the claims."""
    tables = {}
    for name, jobs in item.jobs.items():
        done = [(job.number, job.record) for job in jobs if job.record is not None]
        tables[name] = results.table([{**record, "run": {"trial": n, **record["run"]}} for n, record in done])
        results.write_table(out, item.scale, item.paper.slug, name, tables[name])
    claims = [_claim_document(item, claim, tables) for claim in item.claims]
    document = {
        "schema": results.SCHEMA,
        "version": paperworks.__version__,
        "scale": item.scale,
        "slug": item.paper.slug,
        "title": item.paper.title,
        "name": item.paper.does,
        "field": item.paper.field,
        "reference": item.paper.reference,
        "seconds": _spent(item.jobs.values()),
        "claims": claims,
    }
    results.write_verdicts(out, item.scale, item.paper.slug, {**document, "order": list(item.ledger.claims)})
    return document


def _claim_document(item: Plan, claim: Claim, tables: Mapping[str, Any]) -> dict[str, Any]:
    jobs = [job for name in claim.experiments for job in item.jobs[name]]
    runs = [job.record["run"] for job in jobs if job.record is not None]
    repair = "; ".join(dict.fromkeys(filter(None, (item.repair[name] for name in claim.experiments))))
    verdict: Verdict = judge(claim, [tables[name] for name in claim.experiments], len(jobs), repair)
    return {
        "id": claim.id,
        "says": claim.says,
        "rule": claim.rule,
        "source": claim.source,
        "experiments": list(claim.experiments),
        "verdict": verdict.word,
        "headline": [vars(number) for number in verdict.headline],
        "sentence": verdict.sentence,
        "trials": {
            "done": sum(run["status"] == "ok" for run in runs),
            "error": sum(run["status"] == "error" for run in runs),
            "total": len(jobs),
        },
        "plot": claim.plot,
        "command": f"paperworks check {item.paper.slug} --claim {claim.id} --scale {item.scale}",
        "seconds": _spent([jobs]),
        "versions": json.loads(next((run["versions"] for run in runs if "versions" in run), "{}")),
    }


def _spent(groups: Any) -> float:
    """CPU seconds of the trials, when they were measured."""
    spent = (job.record["run"].get("cpu", 0.0) for jobs in groups for job in jobs if job.record)
    return round(math.fsum(spent), 3)


def forget(slug: str) -> None:
    """Delete the stored measurements and prepared inputs of a system."""
    for kind in ("trials", "artifacts"):
        shutil.rmtree(cache_folder() / kind / slug, ignore_errors=True)
