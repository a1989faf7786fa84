"""Rebuild what `paperworks.transitive` embeds."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from paperworks.core.atomic import write_text
from paperworks.core.data import path
from paperworks.transitive import data

COLUMNS = ["hier", "task", "setting", "model", "probe_l2", "rank_higher", "rank_lower", "logit_mean", "win_rate", "n"]


def lm_pairs() -> str:
    """Return the finetuned runs of all weights, and one sweep of the readout's penalty, as CSV."""
    table = pd.read_csv(path(data.LM_PAIRS))
    sweep = (table[["hier", "task", "setting", "model"]] == ["exc_mid_n9", "fake", "probe", "qwen35-4b"]).all(axis=1)
    kept = (table["phase"] == "post") & ((table["setting"] == "full") | sweep)
    return table.loc[kept, COLUMNS].to_csv(index=False)


if __name__ == "__main__":
    for file in data.JENSEN.values():
        write_text(Path(data.__file__).with_name(file.name), path(file).read_text(encoding="utf-8"))
    write_text(data.EMBEDDED_LM_PAIRS, lm_pairs())
