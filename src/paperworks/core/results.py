"""Tables and verdicts on disk."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from paperworks.core.atomic import atomic_file, write_text

__all__ = ["SCHEMA", "finite", "read_table", "read_verdicts", "table", "write_table", "write_verdicts"]

SCHEMA = 1
"""Version of the verdict files and of `check --json`."""


def table(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Join trial records into one table with columns ``param.*``, ``value.*`` and ``run.*``.

    A record is ``{"params": …, "rows": […], "run": …}``; a trial without rows (an error) still gives one line.
    """
    lines = []
    for record in records:
        params = {f"param.{key}": value for key, value in record["params"].items()}
        run = {f"run.{key}": value for key, value in record["run"].items()}
        for row in record["rows"] or [{}]:
            values = {f"value.{key}": value for key, value in row.items()}
            broken = ",".join(key for key, value in row.items() if isinstance(value, float) and math.isnan(value))
            lines.append({**params, **values, **run, "run.nan": broken})
    frame = pd.DataFrame(lines)
    order = {"param": 0, "value": 1, "run": 2}
    return frame[sorted(frame.columns, key=lambda name: order[str(name).split(".")[0]])] if len(frame) else frame


def write_table(out: Path, scale: str, slug: str, experiment: str, frame: pd.DataFrame) -> Path:
    """Write an experiment's table to ``out/results/<scale>/<slug>/<experiment>.parquet``."""
    path = out / "results" / scale / slug / f"{experiment}.parquet"
    with atomic_file(path) as part:
        _plain(frame).to_parquet(part, index=False)
    return path


def read_table(out: Path, scale: str, slug: str, experiment: str) -> pd.DataFrame:
    """Read the table that `write_table` wrote."""
    return pd.read_parquet(out / "results" / scale / slug / f"{experiment}.parquet")


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Make columns that mix types (a number in one trial, a word in another) storable: as text."""
    mixed = [
        name
        for name in frame.columns
        if frame[name].dtype == object and len({type(value) for value in frame[name].dropna()}) > 1
    ]
    numeric = {name: pd.to_numeric(frame[name], errors="coerce") for name in mixed}
    whole = {name: numbers for name, numbers in numeric.items() if numbers.notna().equals(frame[name].notna())}
    text = {name: frame[name].map(str, na_action="ignore") for name in mixed if name not in whole}
    return frame.assign(**whole, **text)


def write_verdicts(out: Path, scale: str, slug: str, document: Mapping[str, Any]) -> Path:
    """Write a system's verdicts, keeping those of claims that this run did not judge.

    Claims are matched by id; a claim that the system no longer has is dropped.
    """
    path = out / "verdicts" / scale / f"{slug}.json"
    fresh = {claim["id"]: claim for claim in document["claims"]}
    if path.exists():
        for claim in read_verdicts(out, scale, slug)["claims"]:
            fresh.setdefault(claim["id"], claim)
    merged = {key: value for key, value in document.items() if key != "order"}
    merged["claims"] = [fresh[name] for name in document["order"] if name in fresh]
    write_text(path, json.dumps(finite(merged), indent=1, ensure_ascii=False) + "\n")
    return path


def read_verdicts(out: Path, scale: str, slug: str) -> dict[str, Any]:
    """Read the verdicts of a system.

    Raises
    ------
    ValueError
        The file is damaged or of another version; the message names it.
    """
    path = out / "verdicts" / scale / f"{slug}.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}; delete it and check again") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"{path}: schema must be {SCHEMA}, got {schema!r}; delete it and check again")
    claims = document.get("claims")
    if not (isinstance(claims, list) and all(isinstance(claim, dict) and "id" in claim for claim in claims)):
        raise ValueError(f"{path} lists no claims; delete it and check again")
    return dict(document)


def finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, by None, and numpy scalars by plain ones.

    Examples
    --------
    >>> finite({"a": [1.0, float("nan")]})
    {'a': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
