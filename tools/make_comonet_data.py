"""Rebuild what `paperworks.comonet` embeds, or the table of recidivism: make_comonet_data.py [compas TARGET]."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pandas as pd

from paperworks.comonet import data
from paperworks.core.atomic import write_text
from paperworks.core.data import DataFile, path

COMPAS_RAW = DataFile(
    "comonet",
    "compas_scores_two_years.csv",
    "d180e410066da845eceb452417fbf8b119633f05526bcb29ef2c5b546d8946c5",
    data.COMPAS.licence,
    url="https://raw.githubusercontent.com/AntonioLujanoLuna/MonotonicNeuralNetworks/"
    "0a02616450ae9a0303963ee66d8838f5738188cf/datasets/compas_scores_two_years.csv",
    size=2_539_274,
)


def auto_mpg() -> str:
    """The cars of known horsepower, without their names."""
    return pd.read_csv(path(data.AUTO_MPG)).drop(columns="car name").dropna().to_csv(index=False)


def heart() -> str:
    """All patients, with a column that marks the test rows of the split."""
    table = pd.read_csv(path(data.HEART))
    test = pd.read_csv(path(data.HEART_TEST), index_col=0)
    if not table.loc[test.index].equals(test):
        raise ValueError("the test rows differ from those of the whole table")
    table["test"] = table.index.isin(test.index).astype(int)
    return table.to_csv(index=False)


def compas() -> str:
    """The people that ProPublica's analysis keeps, without names and dates."""
    raw = pd.read_csv(path(COMPAS_RAW))
    kept = raw[
        raw["days_b_screening_arrest"].between(-30, 30)
        & (raw["is_recid"] != -1)
        & (raw["c_charge_degree"] != "O")
        & raw["score_text"].notna()
    ]
    counts = ["priors_count", "juv_fel_count", "juv_misd_count", "juv_other_count"]
    columns = [*counts, "age", "race", "sex", "two_year_recid"]
    text = kept[columns].to_csv(index=False)
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != data.COMPAS.sha256:
        raise ValueError(f"the table built has sha256 {found}, expected {data.COMPAS.sha256}")
    return text


if __name__ == "__main__":
    if sys.argv[1:2] == ["compas"]:
        write_text(Path(sys.argv[2]), compas())
    else:
        folder = Path(data.__file__).parent
        write_text(folder / "auto_mpg.csv", auto_mpg())
        write_text(folder / "heart.csv", heart())
