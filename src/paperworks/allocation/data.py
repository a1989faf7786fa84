"""Agents to try the mechanisms on: a toy cluster, measured training speed-ups, and a real GPU cluster's demand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from paperworks.allocation.valuations import Valuations
from paperworks.core.data import DataFile, path
from paperworks.core.validation import check_vector

__all__ = ["FILES", "PHILLY", "POLLUX", "load_philly", "load_pollux", "speedups", "tiered_demand", "toy_cluster"]

_TRACES = "https://raw.githubusercontent.com/petuum/adaptdl/c793c7089bd307462686339d29707925c461f9a9/simulator/traces"
_LICENCE = "research use (no licence file with the traces; the repository's main branch is Apache-2.0)"

PHILLY = DataFile(
    "allocation",
    "philly.csv",
    "ebffb3dd1589bdf4e7bcd74496201c5ded1d557d498ee14f560463f37ec353da",
    _LICENCE,
    url=f"{_TRACES}/philly.csv",
    size=3_444_496,
)

POLLUX = {
    app: DataFile(
        "allocation",
        f"pollux/placements-{app}.csv",
        sha256,
        _LICENCE,
        url=f"{_TRACES}/{app}/placements.csv",
        size=size,
    )
    for app, sha256, size in [
        ("bert", "982811b611bc8447a078289939a2ccafc1f76c06e1e8ebcc4f4866a8e8fcdc0f", 24_089),
        ("cifar10", "e77d1d8781e2e48c3952580bdf705f3be4f27cbbdcd0a2087eb152224a271b6b", 56_641),
        ("deepspeech2", "0908c53bfc20123ad60ad6c4984cfcdf53a623773f4e44e9f01d58305e5379b7", 34_500),
        ("imagenet", "ac3d88937f40680c367ec83c7610eda088b8d60806e15cf3a4699fa1d15cb1e8", 40_702),
        ("ncf", "012f861bd2acc57f5f7d09c7878082905ba0150660b9f5aeae9291d025527874", 82_769),
        ("yolov3", "6ffceb8996e3fd57e47e550fdffc21eec7d7e34de1d806d8b3568734eaec0013", 24_146),
    ]
}

FILES = (PHILLY, *POLLUX.values())


def toy_cluster() -> Valuations:
    """Return six made-up teams that share a cluster of about 64 GPUs, with a budget each.

    Four teams value GPUs logarithmically and two saturate; amounts are GPUs, values and budgets are one currency.

    Examples
    --------
    >>> teams = toy_cluster()
    >>> teams.names
    ('pretraining', 'ranking', 'vision', 'speech', 'robotics', 'notebooks')
    >>> teams.value(np.full(6, 64 / 6)).round(1)
    array([68. , 77.9, 43.1, 24.2, 24.8, 17.7])
    """
    growing = Valuations.log(
        [120.0, 75.0, 40.0, 25.0],
        [14.0, 5.84, 5.5, 6.54],
        names=["pretraining", "ranking", "vision", "speech"],
        budgets=[50.0, 120.0, 60.0, 12.0],
    )
    bounded = Valuations.saturating([30.0, 18.0], [6.1, 2.6], names=["robotics", "notebooks"], budgets=[25.0, 8.0])
    return growing + bounded


def speedups() -> Valuations:
    """Return the measured speed-up of six training jobs as concave valuations of GPUs.

    The value of q GPUs is the throughput over that of one GPU, on the least concave majorant of the measurements,
    flat beyond its last point: bert, cifar10, deepspeech2, imagenet, ncf and yolov3 on up to 16 GPUs.

    Examples
    --------
    >>> speedups().value(np.full(6, 4.0)).round(3)
    array([3.851, 3.904, 3.639, 3.924, 1.203, 3.012])

    References
    ----------
    Qiao et al.: Pollux: Co-adaptive cluster scheduling for goodput-optimized deep learning, OSDI 2021.
    """
    hulls = json.loads(Path(__file__).with_name("speedups.json").read_text(encoding="utf-8"))
    return Valuations.piecewise([np.array(points) for points in hulls.values()], names=list(hulls))


def tiered_demand(
    demand: ArrayLike, worth: Sequence[float] = (3.0, 2.0, 1.0), budgets: ArrayLike | None = None
) -> Valuations:
    """Return agents whose demand falls into equal tiers, each worth less per unit than the one before.

    The worths are an assumption that stands in for valuations nobody recorded.

    Parameters
    ----------
    demand : array_like or Series, shape (n,)
        Amount beyond which an agent values nothing; 0 is an agent that wants nothing. A Series brings the names.
    worth : sequence of float
        Value per unit in each tier, decreasing.
    budgets : array_like, shape (n,), optional
        Money.

    Examples
    --------
    >>> tiered_demand(pd.Series({"nlp": 6.0, "vision": 0.0})).value(np.array([3.0, 3.0]))
    array([8., 0.])
    """
    amounts = check_vector(demand, "demand", low=0)
    heights = check_vector(worth, "worth", low=0)
    if not heights.size:
        raise ValueError("worth must not be empty")
    # A slope of 0 over one unit is how a concave curve says "wants nothing".
    widths = np.where(amounts > 0, amounts / heights.size, 1 / heights.size)
    slopes = np.where(amounts > 0, 1.0, 0.0)[:, None] * heights
    edges = widths[:, None] * np.arange(heights.size + 1)
    values = np.concatenate([np.zeros((amounts.size, 1)), np.cumsum(slopes * widths[:, None], axis=1)], axis=1)
    names = [str(name) for name in demand.index] if isinstance(demand, pd.Series) else None
    return Valuations.piecewise(list(np.stack([edges, values], axis=2)), names=names, budgets=budgets)


def load_philly(freq: str = "h") -> pd.DataFrame:
    """Return the GPUs in use by each team of a large cluster, by hour, September to December 2017.

    A job counts in every period that it overlaps, and at least in the one in which it starts. Teams with at most
    100 jobs are left out; the table ends at the 99.9 % quantile of the end times.

    Parameters
    ----------
    freq : str
        Length of a period as a fixed pandas frequency, e.g. ``"h"`` or ``"30min"``.

    Returns
    -------
    DataFrame, periods × teams
        Numbers of GPUs; the index is the start of the period.

    Raises
    ------
    DataUnavailable
        The trace is not on this machine and cannot be downloaded.

    References
    ----------
    Jeon et al.: Analysis of large-scale multi-tenant GPU clusters for DNN training workloads, USENIX ATC 2019,
    arXiv 1901.05758.
    """
    try:
        period = pd.Timedelta(pd.tseries.frequencies.to_offset(freq).nanos)
    except ValueError:
        raise ValueError(f"freq must be a fixed pandas frequency such as 'h', got {freq!r}") from None
    jobs = pd.read_csv(path(PHILLY), parse_dates=["timestamp"])
    origin = jobs["timestamp"].min().floor(freq)
    jobs = jobs[jobs.groupby("cluster")["cluster"].transform("size") > 100]
    begin = (jobs["timestamp"] - origin) / period
    end = begin + jobs["duration"] / period.total_seconds()
    first = np.floor(begin).to_numpy(np.int64)
    last = np.maximum(np.ceil(end).to_numpy(np.int64), first + 1)
    team, teams = pd.factorize(jobs["cluster"], sort=True)
    change = np.zeros((last.max() + 1, len(teams)), dtype=np.int64)
    np.add.at(change, (first, team), jobs["num_gpus"].to_numpy())
    np.subtract.at(change, (last, team), jobs["num_gpus"].to_numpy())
    use = change.cumsum(axis=0)[: int(np.ceil(np.quantile(last, 0.999)))]
    return pd.DataFrame(use, index=pd.date_range(origin, periods=len(use), freq=period, name="start"), columns=teams)


def load_pollux() -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return the measured speed-up of six training jobs: ``{job: (gpus, speedup)}``.

    The speed-up is the best throughput over all batch sizes and placements, over the best on one GPU. The
    measurements are not concave, see `speedups`.

    Raises
    ------
    DataUnavailable
        The measurements are not on this machine and cannot be downloaded.

    References
    ----------
    Qiao et al.: Pollux: Co-adaptive cluster scheduling for goodput-optimized deep learning, OSDI 2021.
    """
    return {app: _speedup(pd.read_csv(path(file), dtype={"placement": str})) for app, file in POLLUX.items()}


def _speedup(runs: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    gpus = runs["placement"].map(lambda digits: sum(map(int, digits)))
    best = (gpus * runs["local_bsz"] / runs["step_time"]).groupby(gpus).max()
    return best.index.to_numpy(np.float64), (best / best.loc[1]).to_numpy()
