"""What is measured, and how it is judged: Experiment, Trial, Claim, Verdict."""

from __future__ import annotations

import importlib
import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from paperworks.core.data import DataFile

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "WORDS",
    "Claim",
    "Experiment",
    "Headline",
    "Ledger",
    "Scale",
    "Trial",
    "Value",
    "Verdict",
    "judge",
    "ledger",
    "plain",
]

Scale = Literal["quick", "full"]
Value = float | int | bool | str | None
Row = Mapping[str, Value]
Word = Literal["holds", "partly", "fails", "reported", "out of reach", "unavailable", "error"]
WORDS: tuple[str, ...] = get_args(Word)


def plain(row: Mapping[str, Any], what: str) -> dict[str, Value]:
    """Return a row with numpy scalars made plain; raise, naming `what` and its name, for what no table holds.

    Examples
    --------
    >>> import numpy as np
    >>> plain({"n": np.int64(3), "name": None}, "parameter")
    {'n': 3, 'name': None}
    """
    values: dict[str, Value] = {}
    for name, value in row.items():
        item = value.item() if isinstance(value, np.generic) else value
        if not (item is None or isinstance(item, (bool, int, float, str))):
            raise TypeError(f"{what} {name!r} must be a number, bool, str or None, got {type(item).__name__}")
        if isinstance(item, int) and not -(2**63) <= item < 2**63:
            raise ValueError(f"{what} {name!r} must be an int of 64 bits or a float, got {item}")
        if isinstance(item, str) and item != item.encode(errors="replace").decode():
            raise ValueError(f"{what} {name!r} must be text that UTF-8 can hold, got {item!r}")
        values[name] = item
    return values


@dataclass(frozen=True)
class Trial:
    """One independent piece of work, described by plain parameters.

    Parameters
    ----------
    params : mapping of str to float, int, bool, str or None
        What distinguishes this trial: data set, method, size …
    seed : int
        The only source of randomness in `Experiment.measure`.
    threads : int
        BLAS and torch threads the trial runs with.
    cost : float
        Expected cost relative to the other trials; cheap ones run first.
    requires : tuple of str
        Distributions (PyPI names) of a peer that this trial measures. Where one is missing the trial is left out and
        the verdict's sentence says so.

    Examples
    --------
    >>> Trial({"alpha": 0.5}, seed=3)["alpha"]
    0.5
    """

    params: Mapping[str, Value] = field(default_factory=dict)
    seed: int = 0
    threads: int = 1
    cost: float = 1.0
    requires: tuple[str, ...] = ()
    artifact: Path | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Refuse parameters that no table holds."""
        object.__setattr__(self, "params", plain(self.params, "parameter"))

    def __getitem__(self, name: str) -> Any:
        """Return a parameter."""
        return self.params[name]


@dataclass(frozen=True)
class Experiment:
    """Trials and the pure function that measures one of them.

    Parameters
    ----------
    id : str
        Unique in the system.
    trials : callable
        ``trials(scale) -> list[Trial]``; scale is ``"quick"`` or ``"full"``.
    measure : callable
        ``measure(trial) -> row | list[rows]``; a row maps a name to a float, int, bool, str or None. None means "does
        not apply"; NaN means that the measurement broke, and no claim that reads it passes.
    prepare : callable, optional
        ``prepare(scale, folder)`` writes a costly input once; every trial finds it as ``trial.artifact``.
    requires : tuple of str
        Distributions without which nothing can be measured.
    data : tuple of DataFile
        Files that the full scale reads; the quick scale does without them and never downloads.
    hours : mapping of scale to float
        Expected CPU hours.
    exclusive : bool
        Timings: the trials run alone, one after the other.
    """

    id: str
    trials: Callable[[Scale], Sequence[Trial]]
    measure: Callable[[Trial], Row | Sequence[Row]]
    prepare: Callable[[Scale, Path], None] | None = None
    requires: tuple[str, ...] = ()
    data: tuple[DataFile, ...] = ()
    hours: Mapping[str, float] = field(default_factory=lambda: {"quick": 0.01, "full": 0.1})
    exclusive: bool = False


@dataclass(frozen=True)
class Headline:
    """One measured number with its interval and unit."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        """Refuse what is not a number."""
        numbers: tuple[Any, ...] = (self.value, self.low, self.high)
        for number in numbers:
            if not (number is None or isinstance(number, Real)):
                raise TypeError(f"headline {self.name!r} must hold numbers or None, got {number!r}")


@dataclass(frozen=True)
class Verdict:
    """The answer to a claim: a word, one sentence and the numbers behind it."""

    word: Word
    sentence: str
    headline: tuple[Headline, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a word outside the vocabulary."""
        if self.word not in WORDS:
            raise ValueError(f"verdict must be one of {', '.join(WORDS)}, got {self.word!r}")

    @classmethod
    def decide(cls, passed: Any, sentence: str, *headline: Headline, partly: Any = False) -> Verdict:
        """Return ``holds`` if `passed`, else ``partly`` if `partly`, else ``fails``.

        Examples
        --------
        >>> Verdict.decide(0.9 > 0.75, "Efficiency is 0.9.").word
        'holds'
        """
        word: Word = "holds" if bool(passed) else "partly" if bool(partly) else "fails"
        return cls(word, sentence, headline)


@dataclass(frozen=True)
class Claim:
    """A statement and the rule that decides it.

    Parameters
    ----------
    id : str
        Unique in the system.
    says : str
        The claim in our words.
    rule : str
        How it is decided, in words, with thresholds fixed before the run.
    experiments : tuple of str
        Ids of the experiments whose tables it reads; several claims may read one.
    judge : callable
        ``judge(*tables) -> Verdict``, a table an experiment, with columns ``param.*``, ``value.*``, ``run.*``. It sees
        only rows that were measured.
    source : {"paper", "ours"}
        Whose claim it is.
    plot : str, optional
        Name of a function of the system's ``plots`` module that draws the tables.
    """

    id: str
    says: str
    rule: str
    experiments: tuple[str, ...]
    judge: Callable[..., Verdict]
    source: Literal["paper", "ours"] = "paper"
    plot: str | None = None


@dataclass(frozen=True)
class Ledger:
    """The experiments and claims of one system."""

    experiments: Mapping[str, Experiment]
    claims: Mapping[str, Claim]


def ledger(slug: str) -> Ledger:
    """Import the ledger of a system (``EXPERIMENTS`` and ``CLAIMS`` of its ``claims`` module) and check its ids."""
    module = importlib.import_module(f"paperworks.{slug}.claims")
    experiments = {experiment.id: experiment for experiment in module.EXPERIMENTS}
    claims = {claim.id: claim for claim in module.CLAIMS}
    if len(experiments) < len(module.EXPERIMENTS) or len(claims) < len(module.CLAIMS):
        raise ValueError(f"{slug}: two experiments or two claims have the same id")
    for claim in claims.values():
        unknown = set(claim.experiments) - set(experiments)
        if unknown or not claim.experiments:
            raise ValueError(f"{slug}: claim {claim.id!r} reads unknown experiments {sorted(unknown)}")
    return Ledger(experiments, claims)


def judge(claim: Claim, tables: Sequence[pd.DataFrame], planned: int, repair: str = "") -> Verdict:
    """Judge a claim from what was measured, and keep the verdict honest.

    Parameters
    ----------
    claim : Claim
    tables : sequence of DataFrame
        Every row of each experiment, with ``run.status`` ``ok``, ``error`` or ``unavailable``.
    planned : int
        How many trials were planned; fewer were run when somebody stopped the check.
    repair : str
        The command that installs or fetches what was missing.

    Returns
    -------
    Verdict
        An error row makes ``error``, a missing input ``unavailable``, a stopped run ``out of reach``. What holds only
        with a NaN among its measurements or headlines ``fails``.
    """
    done = sum(table.groupby("run.trial").ngroups for table in tables if len(table))
    errors = [e for table in tables if len(table) for e in table.loc[table["run.status"] == "error", "run.error"]]
    absent = {m for table in tables if len(table) for m in table.loc[table["run.status"] == "unavailable", "run.error"]}
    if errors:
        return Verdict("error", f"{len(errors)} of {planned} trials raised: {errors[0].strip().splitlines()[-1]}")
    if done < planned:
        share = f"{done} of {planned} trials ({100 * done / planned:.0f} %) are done"
        return Verdict("out of reach", f"The check was stopped: {share}; run the same command again to go on.")
    if any(table.empty for table in tables):
        return Verdict("out of reach", "No trial is planned at this scale; another --scale measures it.")
    if any("ok" not in set(table["run.status"]) for table in tables):
        return Verdict("unavailable", f"Not measured: {'; '.join(sorted(absent))}. {repair}".strip())
    measured = [_measured(table) for table in tables]
    try:
        verdict = claim.judge(*measured)
        if not isinstance(verdict, Verdict):
            raise TypeError(f"judge must return a Verdict, got {type(verdict).__name__}")
    except Exception as error:
        # After this function's own frame comes the rule's.
        frames = traceback.extract_tb(error.__traceback__)[1:2]
        where = "".join(f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in frames)
        return Verdict("error", f"The rule could not be applied: {type(error).__name__}: {error}{where}")
    if verdict.word in ("holds", "partly"):
        broken = sorted({name for table in measured for name in _nan_columns(table)})
        broken += [h.name for h in verdict.headline if any(map(_is_nan, (h.value, h.low, h.high)))]
        if broken:
            verdict = replace(verdict, word="fails", sentence=f"{verdict.sentence} NaN in: {', '.join(broken)}.")
    if absent:
        verdict = replace(
            verdict, sentence=f"{verdict.sentence} Left out: {'; '.join(sorted(absent))}. {repair}".strip()
        )
    return verdict


def _is_nan(value: float | None) -> bool:
    return value is not None and math.isnan(value)


def _measured(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["run.status"] == "ok"].reset_index(drop=True) if len(table) else table


def _nan_columns(table: pd.DataFrame) -> list[str]:
    """Names of the columns in which a trial measured NaN (as opposed to not measuring at all)."""
    return sorted({name for names in table.get("run.nan", ()) if names for name in names.split(",")})
