"""Repeated rounds: clear each round's bids, charge token accounts, keep the ledger; and bidders to simulate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from paperworks.allocation.mechanism import AlphaProportional, Clearing
from paperworks.core.validation import check_choice, check_integer, check_real

__all__ = ["BestResponder", "Bidder", "PacedBidder", "PriceTaker", "StreamingAuctioneer", "simulate"]

Bids = Mapping[str, float] | pd.Series

COLUMNS = ["round", "agent", "bid", "share", "amount", "payment", "price", "balance", "capacity", "status"]


class StreamingAuctioneer:
    """Clear one round of bids after another and keep an account of tokens for every agent.

    A round first pays in: balance ← carry_over · balance + refill, for every known agent; an agent seen for the first
    time joins with a balance of refill. What an agent can spend is the smaller of balance and max_spend. A round that
    is refused (a bad bid) changes nothing.

    Parameters
    ----------
    alpha : float
        In (0, 1].
    capacity : float
        Amount divided in a round, unless `step` is given another.
    reserve : float
        Smallest price of the whole resource.
    refill : float or mapping of agent to float
        Tokens paid in every round. With 0 there are no accounts: nothing limits a payment but `max_spend`.
    carry_over : float
        Fraction of a balance kept from round to round, in [0, 1].
    max_spend : float, optional
        Most that an agent pays in a round.
    cap : {"harmonic", "hard"}
        How payments are kept within budgets, see `AlphaProportional.clear`.

    Examples
    --------
    >>> auctioneer = StreamingAuctioneer(alpha=0.5, capacity=100, refill=10)
    >>> auctioneer.step({"nlp": 4, "vision": 2}).amounts.round(1)
    array([75.8, 24.2])
    >>> auctioneer.ledger()[["round", "agent", "payment", "balance"]].round(3)
       round   agent  payment  balance
    0      0     nlp    2.754    7.246
    1      0  vision    0.879    9.121
    """

    def __init__(
        self,
        alpha: float,
        capacity: float = 1.0,
        reserve: float = 0.0,
        refill: float | Mapping[str, float] = 0.0,
        carry_over: float = 1.0,
        max_spend: float | None = None,
        cap: str = "harmonic",
    ) -> None:
        self.mechanism = AlphaProportional(alpha, capacity, reserve)
        self.carry_over = check_real(carry_over, "carry_over", low=0, high=1)
        self.max_spend = None if max_spend is None else check_real(max_spend, "max_spend", low=0)
        self.cap = check_choice(cap, "cap", ["harmonic", "hard"])
        if isinstance(refill, Mapping):
            self.refill: float | dict[str, float] = {
                str(name): check_real(tokens, f"refill of {name!r}", low=0) for name, tokens in refill.items()
            }
        else:
            self.refill = check_real(refill, "refill", low=0)
        self.balances: dict[str, float] = {}
        self.rounds = 0
        self._history: list[pd.DataFrame] = []

    def step(self, bids: Bids, capacity: float | None = None) -> Clearing:
        """Clear one round and charge for it.

        Parameters
        ----------
        bids : mapping or Series of agent to bid
            Tokens; agents that do not bid only receive their refill.
        capacity : float, optional
            Amount divided in this round.

        Raises
        ------
        ValueError, TypeError
            A bad bid or capacity, or an agent without a refill; the round did not happen.
        """
        entries = {str(name): bid for name, bid in bids.items()}
        balances = self._paid_in(entries)
        mechanism = self.mechanism
        if capacity is not None:
            mechanism = AlphaProportional(mechanism.alpha, capacity, mechanism.reserve)
        budgets = self._budgets([balances[name] for name in entries])
        clearing = mechanism.clear(entries, budgets=budgets, cap=None if budgets is None else self.cap)
        if self.refill != 0:
            # A payment can exceed its budget by rounding alone; an account must not turn negative for that.
            left = np.maximum([balances[name] for name in entries] - clearing.payments, 0.0)
            balances.update(zip(entries, left.tolist(), strict=True))
        self._history.append(self._entry(entries, clearing, mechanism.capacity, balances))
        self.balances, self.rounds = balances, self.rounds + 1
        return clearing

    def ledger(self) -> pd.DataFrame:
        """Return one row for each bid of the rounds that this object cleared.

        Columns: round, agent, bid, share, amount, payment, price (of the whole resource), balance (after the round),
        capacity and status.
        """
        return pd.concat(self._history, ignore_index=True) if self._history else pd.DataFrame(columns=COLUMNS)

    def replay(self, rounds: pd.DataFrame) -> pd.DataFrame:
        """Clear recorded rounds in order and return the ledger.

        Parameters
        ----------
        rounds : DataFrame
            Columns ``round``, ``agent`` and ``bid``, and optionally ``capacity`` (one value a round); a ledger will do.

        Examples
        --------
        >>> first = StreamingAuctioneer(alpha=0.5)
        >>> ledger = first.replay(pd.DataFrame({"round": [0, 0, 1], "agent": ["a", "b", "a"], "bid": [1.0, 2.0, 3.0]}))
        >>> ledger["share"].tolist()
        [0.2, 0.8, 1.0]
        >>> StreamingAuctioneer(alpha=0.5).replay(ledger).equals(ledger)
        True
        """
        absent = [column for column in ("round", "agent", "bid") if column not in rounds]
        if absent:
            raise ValueError(f"rounds must have the columns round, agent and bid, got no {absent[0]!r}")
        for number, group in rounds.groupby("round"):
            if group["agent"].duplicated().any():
                twice = group.loc[group["agent"].duplicated(), "agent"].iloc[0]
                raise ValueError(f"rounds must hold one bid of an agent in a round, got {twice!r} twice in {number}")
            capacity = float(group["capacity"].iloc[0]) if "capacity" in group else None
            self.step(group.set_index("agent")["bid"], capacity)
        return self.ledger()

    def state_dict(self) -> dict[str, Any]:
        """Return what a JSON file needs to go on later: the balances and the number of rounds, not the ledger."""
        return {"balances": dict(self.balances), "rounds": self.rounds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`; the ledger starts empty.

        Examples
        --------
        >>> auctioneer = StreamingAuctioneer(alpha=0.5, refill=10)
        >>> auctioneer.load_state_dict({"balances": {"nlp": 4.0}, "rounds": 7})
        >>> auctioneer.step({"nlp": 1.0}).sold, auctioneer.rounds
        (1.0, 8)
        """
        absent = [key for key in ("balances", "rounds") if key not in state]
        if absent:
            raise ValueError(f"state must have the keys 'balances' and 'rounds', got no {absent[0]!r}")
        balances = {
            str(name): check_real(tokens, f"balance of {name!r}", low=0) for name, tokens in state["balances"].items()
        }
        self.rounds = check_integer(state["rounds"], "rounds", low=0)
        self.balances, self._history = balances, []

    def _paid_in(self, bidders: Mapping[str, float]) -> dict[str, float]:
        """Return the balances after this round's refill, with the newcomers."""
        if isinstance(self.refill, dict):
            unknown = [name for name in bidders if name not in self.refill]
            if unknown:
                raise ValueError(f"refill must name every agent, got no {unknown[0]!r}")
            refill = self.refill
        else:
            refill = dict.fromkeys([*self.balances, *bidders], self.refill)
        return {name: self.carry_over * self.balances.get(name, 0.0) + tokens for name, tokens in refill.items()}

    def _budgets(self, balances: list[float]) -> NDArray[np.float64] | None:
        """Return what each bidder can spend, or None where nothing limits it."""
        if self.refill == 0:
            return None if self.max_spend is None else np.full(len(balances), self.max_spend)
        return np.minimum(balances, np.inf if self.max_spend is None else self.max_spend)

    def _entry(
        self, bids: Mapping[str, float], clearing: Clearing, capacity: float, balances: Mapping[str, float]
    ) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "round": self.rounds,
                "agent": list(bids),
                "bid": np.array(list(bids.values()), dtype=np.float64),
                "share": clearing.shares,
                "amount": clearing.amounts,
                "payment": clearing.payments,
                "price": clearing.price,
                "balance": [balances[name] for name in bids],
                "capacity": capacity,
                "status": clearing.status,
            }
        )


class Bidder(Protocol):
    """Whoever turns what it saw of the last round into its next bid."""

    def bid(self, share: float, price: float) -> float:
        """Return a bid, given its own share and the price of the whole resource (0 before the first round)."""
        ...
