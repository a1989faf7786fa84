"""Repeated rounds: clear each round's bids, charge token accounts, keep the ledger; and bidders to simulate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from paperworks.allocation.mechanism import AlphaProportional, Clearing
from paperworks.allocation.responses import best_response
from paperworks.allocation.valuations import Valuations
from paperworks.core.validation import check_choice, check_integer, check_names, check_real

__all__ = ["BestResponder", "Bidder", "PacedBidder", "PriceTaker", "StreamingAuctioneer", "simulate"]

Bids = Mapping[str, Any] | pd.Series

COLUMNS = ["round", "agent", "bid", "share", "amount", "payment", "price", "balance", "capacity", "status"]


class StreamingAuctioneer:
    """Clear one round of bids after another and keep an account of tokens for every agent.

    A round first pays in: balance ← carry_over · balance + refill, for every known agent; an agent seen for the first
    time joins with a balance of refill. What an agent can spend is the smaller of balance and max_spend. A round that
    is refused (a bad bid) changes nothing.

    Parameters
    ----------
    alpha : float
        In [0, 1]; 0 only where nothing limits payments.
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
    array([73., 27.])
    >>> auctioneer.ledger()[["round", "agent", "payment", "balance"]].round(3)
       round   agent  payment  balance
    0      0     nlp    2.547    7.453
    1      0  vision    0.941    9.059
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
        self._history: list[dict[str, Any]] = []

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
        values = bids.tolist() if isinstance(bids, pd.Series) else list(bids.values())
        entries = dict(zip(check_names(bids.keys(), "bids"), values, strict=True))
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
        if not self._history:
            return pd.DataFrame(columns=COLUMNS)
        return pd.concat([pd.DataFrame(entry) for entry in self._history], ignore_index=True)

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
        if not isinstance(state["balances"], Mapping):
            raise ValueError(f"balances must map agents to tokens, got {state['balances']!r}")
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
    ) -> dict[str, Any]:
        """Return the columns of this round's part of the ledger."""
        return {
            "round": self.rounds,
            "agent": list(bids),
            "bid": clearing.bids,
            "share": clearing.shares,
            "amount": clearing.amounts,
            "payment": clearing.payments,
            "price": clearing.price,
            "balance": [balances[name] for name in bids],
            "capacity": capacity,
            "status": clearing.status,
        }


@runtime_checkable
class Bidder(Protocol):
    """Whoever turns what it saw of the last round into its next bid."""

    def bid(self, share: float, price: float) -> float:
        """Return a bid.

        Parameters
        ----------
        share : float
            Own share of the last round; a guess before the first.
        price : float
            Price of the whole resource in the last round, 0 before the first.
        """
        ...


@dataclass(frozen=True)
class PriceTaker:
    """Bids its marginal value at the share that it has, as if it could not move the price: w'(s)·s^α.

    Parameters
    ----------
    valuation : Valuations
        One agent.
    alpha : float
        That of the mechanism, in (0, 1].
    capacity : float
        Amount of the resource.

    Examples
    --------
    >>> PriceTaker(Valuations.linear([2.0]), alpha=0.5).bid(share=0.25, price=1.0)
    1.0
    """

    valuation: Valuations
    alpha: float
    capacity: float = 1.0

    def __post_init__(self) -> None:
        _check_bidder(self.valuation, self.alpha, self.capacity)

    def bid(self, share: float, price: float) -> float:
        """Return the marginal value of the whole resource at `share`, times share^α; `price` does not matter."""
        worth = self.capacity * self.valuation.marginal(self.capacity * share)[0]
        return float(worth * share**self.alpha) if share > 0 else 0.0


@dataclass(frozen=True)
class BestResponder:
    """Bids the best response to what the others bid in the last round, as its own share and the price reveal it.

    It takes it that all of the resource was sold and that nobody else was at a budget. An agent for whom nothing is
    worth the price keeps bidding for a billionth of the resource.

    Parameters
    ----------
    valuation : Valuations
        One agent.
    alpha : float
        That of the mechanism, in (0, 1].
    capacity : float
        Amount of the resource.
    damping : float
        How far the log of the bid moves towards the best response, in (0, 1]; jumping all the way may cycle.

    Examples
    --------
    >>> BestResponder(Valuations.linear([1.0]), alpha=1.0, damping=1.0).bid(share=0.5, price=0.5)
    0.25
    """

    valuation: Valuations
    alpha: float
    capacity: float = 1.0
    damping: float = 0.5

    def __post_init__(self) -> None:
        _check_bidder(self.valuation, self.alpha, self.capacity)
        check_real(self.damping, "damping", low=0, high=1, open_low=True)

    def bid(self, share: float, price: float) -> float:
        """Return the damped best response, or a price taker's bid before the first round."""
        if price == 0:
            return PriceTaker(self.valuation, self.alpha, self.capacity).bid(share, price)
        # All others together weigh as much as one agent with this bid.
        rest = price * (1 - share) ** self.alpha
        own = price * share**self.alpha
        both = self.valuation + Valuations.linear([0.0], names=["all others"])
        best = float(best_response(both, bids=[own, rest], alpha=self.alpha, capacity=self.capacity)[0])
        # A bid of 0 would have no logarithm to come back from; this much buys a billionth of the resource.
        foothold = price * 1e-9**self.alpha
        return float(max(own, foothold) ** (1 - self.damping) * max(best, foothold) ** self.damping)


class PacedBidder:
    """Spends a target: raises its bid after paying less, lowers it after paying more; it needs no valuation.

    Parameters
    ----------
    target_spend : float
        Payment aimed at in every round, positive; also the first bid.
    eta : float
        How strongly a relative miss moves the log of the bid, positive.

    Examples
    --------
    >>> bidder = PacedBidder(target_spend=2.0, eta=0.5)
    >>> bidder.bid(share=0.5, price=0.0), bidder.bid(share=0.5, price=4.0)
    (2.0, 2.0)

    References
    ----------
    Balseiro, Gur: Learning in repeated auctions with budgets, 2019.
    """

    def __init__(self, target_spend: float, eta: float = 0.1) -> None:
        self.target_spend = check_real(target_spend, "target_spend", low=0, open_low=True)
        self.eta = check_real(eta, "eta", low=0, open_low=True)
        self._bid = self.target_spend

    def bid(self, share: float, price: float) -> float:
        """Return the bid, moved by how far the payment ``price · share`` missed the target."""
        if price > 0:
            self._bid *= math.exp(self.eta * (1 - price * share / self.target_spend))
        return self._bid


def simulate(auctioneer: StreamingAuctioneer, bidders: Mapping[str, Bidder], rounds: int) -> pd.DataFrame:
    """Let bidders play rounds against each other and return the auctioneer's ledger.

    Parameters
    ----------
    auctioneer : StreamingAuctioneer
        Clears and charges; it goes on from the state that it is in.
    bidders : mapping of agent to bidder
        They all see the last round before they bid; before the first each supposes an equal share.
    rounds : int
        How many.

    Examples
    --------
    >>> slopes = {"nlp": 1.0, "vision": 0.5}
    >>> bidders = {name: BestResponder(Valuations.linear([a]), alpha=0.5) for name, a in slopes.items()}
    >>> ledger = simulate(StreamingAuctioneer(alpha=0.5), bidders, rounds=40)
    >>> ledger.groupby("agent")["share"].last().round(4).to_dict()
    {'nlp': 0.7321, 'vision': 0.2679}
    """
    if not bidders:
        raise ValueError("bidders must not be empty")
    shares, price = dict.fromkeys(bidders, 1 / len(bidders)), 0.0
    for _ in range(check_integer(rounds, "rounds", low=1)):
        clearing = auctioneer.step({name: bidder.bid(shares[name], price) for name, bidder in bidders.items()})
        shares = dict(zip(bidders, clearing.shares.tolist(), strict=True))
        price = clearing.price
    return auctioneer.ledger()


def _check_bidder(valuation: Valuations, alpha: float, capacity: float) -> None:
    if len(valuation) != 1:
        raise ValueError(f"valuation must be that of one agent, got {len(valuation)}")
    check_real(alpha, "alpha", low=0, high=1, open_low=True)
    check_real(capacity, "capacity", low=0, open_low=True)
