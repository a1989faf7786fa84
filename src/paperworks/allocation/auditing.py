"""Check rounds that have already happened: what they certify without any valuation, and bids that look mistaken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import logsumexp

from paperworks.allocation.guarantees import efficiency_certificate, revenue_certificate
from paperworks.core.validation import check_real, check_vector

__all__ = ["Audit", "audit"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Audit:
    """What observed rounds say.

    Attributes
    ----------
    rounds : DataFrame
        One row a round: round, agents, price (where bids or prices are known), efficiency_certificate and
        revenue_certificate (lower bounds, valid if the bids are an equilibrium).
    agents : DataFrame
        One row an agent and round with a positive share: round, agent, share, markup and, where a price is known,
        payment, marginal_value (implied, per unit of the resource) and jump (factor to the agent's round before).
    summary : dict
        Rounds, share of rounds whose certificate is below the threshold, mean and lowest certificate, the agents that
        paid most, and how many bids jumped by more than a factor of five.
    """

    rounds: pd.DataFrame
    agents: pd.DataFrame
    summary: dict[str, object]


def audit(
    rounds: pd.DataFrame, alpha: float, capacity: float = 1.0, threshold: float = 0.9, slack: float = 0.0
) -> Audit:
    r"""Audit observed rounds of an α-proportional mechanism; no valuations are needed.

    At an equilibrium an active agent's marginal value of a unit is :math:`\lambda \mu_i / C`, with the markup
    :math:`\mu_i = 1 + \alpha s_i/(1 - s_i)`.

    Parameters
    ----------
    rounds : DataFrame
        Columns ``round``, ``agent`` and either ``bid`` or ``share``; with ``share`` optionally ``price`` (of the whole
        resource).
    alpha : float
        In (0, 1].
    capacity : float
        Amount divided in each round.
    threshold : float
        Certificates below this are counted.
    slack : float
        By how much, relatively, the equilibrium conditions may be violated.

    Raises
    ------
    ValueError
        A missing column, round or agent, an agent twice in a round, a negative or missing bid, shares above 1, a round
        with several prices.

    Examples
    --------
    >>> seen = pd.DataFrame({"round": [0, 0, 1, 1], "agent": ["a", "b"] * 2, "bid": [4.0, 2.0, 4.0, 40.0]})
    >>> result = audit(seen, alpha=0.5)
    >>> result.rounds["efficiency_certificate"].round(3).tolist()
    [0.875, 0.99]
    >>> result.summary["jumps"]
    1
    """
    alpha = check_real(alpha, "alpha", low=0, high=1, open_low=True)
    capacity = check_real(capacity, "capacity", low=0, open_low=True)
    threshold = check_real(threshold, "threshold", low=0, high=1)
    shares, price = _observed(rounds, alpha)
    values = shares.to_numpy()
    table = pd.DataFrame({"round": shares.index, "agents": (values > 0).sum(axis=1)})
    if price is not None:
        table["price"] = price
    table["efficiency_certificate"] = efficiency_certificate(values, alpha, slack)
    table["revenue_certificate"] = revenue_certificate(values, alpha)
    agents = _agents(shares, price, alpha, capacity)
    return Audit(table, agents, _summary(table, agents, threshold))


def _observed(rounds: pd.DataFrame, alpha: float) -> tuple[pd.DataFrame, Floats | None]:
    """Return shares (rounds × agents) and, where known, the price of every round."""
    missing = [name for name in ("round", "agent") if name not in rounds]
    if missing:
        raise ValueError(f"rounds must have the column {missing[0]!r}, it has {', '.join(map(str, rounds.columns))}")
    column = next((name for name in ("bid", "share") if name in rounds), None)
    if column is None:
        raise ValueError("rounds must have a column 'bid' or 'share'")
    if rounds.empty:
        raise ValueError("rounds must not be empty")
    for name in ("round", "agent"):
        absent = rounds[name].isna().to_numpy()
        if absent.any():
            raise ValueError(f"rounds must name the {name} in every row, entry {int(absent.argmax())} has none")
    twice = rounds.duplicated(["round", "agent"])
    if twice.any():
        first = rounds[twice].iloc[0]
        raise ValueError(
            f"rounds must name an agent once a round, got {first['agent']!r} twice in round {first['round']}"
        )
    where = [f"{agent} in round {number}" for number, agent in zip(rounds["round"], rounds["agent"], strict=True)]
    checked = rounds.assign(**{column: check_vector(rounds[column], column, low=0, labels=where)})
    wide = checked.pivot_table(index="round", columns="agent", values=column, fill_value=0.0, sort=False).sort_index()
    if column == "share":
        if "price" not in rounds:
            return wide, None
        prices = rounds.assign(price=check_vector(rounds["price"], "price", low=0, labels=where)).groupby("round")[
            "price"
        ]
        several = prices.nunique() > 1
        if several.any():
            raise ValueError(f"rounds must have one price each, round {several.idxmax()} has several")
        return wide, prices.first().to_numpy()
    idle = wide.index[(wide == 0).all(axis=1)]
    if len(idle):
        raise ValueError(f"rounds must have a positive bid each, round {idle[0]} has none")
    with np.errstate(divide="ignore"):
        log_mass = np.log(wide.to_numpy()) / alpha
    total = logsumexp(log_mass, axis=1, keepdims=True)
    shares = pd.DataFrame(np.exp(log_mass - total), index=wide.index, columns=wide.columns)
    return shares, np.exp(alpha * total[:, 0])


def _agents(shares: pd.DataFrame, price: Floats | None, alpha: float, capacity: float) -> pd.DataFrame:
    """Return one row for every agent and round with a positive share."""
    s = shares.to_numpy()
    rest = s.sum(axis=1, keepdims=True) - s
    with np.errstate(divide="ignore"):
        markup = 1 + alpha * s / np.where(rest > 0, rest, 0.0)
    row, column = np.nonzero((s > 0) & np.isfinite(markup))
    table = pd.DataFrame(
        {
            "round": shares.index.to_numpy()[row],
            "agent": shares.columns.to_numpy()[column],
            "share": s[row, column],
            "markup": markup[row, column],
        }
    )
    if price is not None:
        table["payment"] = price[row] * table["share"]
        table["marginal_value"] = price[row] * table["markup"] / capacity
        before = table.groupby("agent")["marginal_value"].shift()
        table["jump"] = table["marginal_value"] / before
    return table


def _summary(rounds: pd.DataFrame, agents: pd.DataFrame, threshold: float) -> dict[str, object]:
    certificate = rounds["efficiency_certificate"]
    summary: dict[str, object] = {
        "rounds": len(rounds),
        "mean_certificate": float(certificate.mean()),
        "lowest_certificate": float(certificate.min()),
        "share_below_threshold": float((certificate < threshold).mean()),
    }
    if "payment" in agents:
        paid = agents.groupby("agent")["payment"].sum().nlargest(5)
        summary["top_spenders"] = {str(name): float(total) for name, total in paid.items()}
        summary["jumps"] = int(((agents["jump"] > 5) | (agents["jump"] < 0.2)).sum())
    return summary
