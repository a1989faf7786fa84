from .auditing import Audit, audit
from .benchmarks import SanghaviHajek, VCGKelly, compare, equal_split, kelly, max_min, proportional
from .data import load_philly, load_pollux, speedups, tiered_demand, toy_cluster
from .design import AlphaChoice, choose_alpha, typical_agents
from .env import BiddingEnv
from .equilibrium import Equilibrium, solve
from .guarantees import (
    alpha_for_efficiency,
    efficiency_bound,
    efficiency_certificate,
    liquid_bound,
    liquid_certificate,
    revenue_bound,
    revenue_certificate,
)
from .mechanism import AlphaProportional, Clearing, GeneralProxy
from .optima import Optimum, Outcome, efficient, liquid_optimum, vcg
from .responses import Trajectory, best_response, dynamics, regret
from .stream import BestResponder, PacedBidder, PriceTaker, StreamingAuctioneer, simulate
from .valuations import Valuations, from_table
from .worst_cases import WorstCase, search_worst_case, worst_case_instance

__all__ = [
    "AlphaChoice",
    "AlphaProportional",
    "Audit",
    "BestResponder",
    "BiddingEnv",
    "Clearing",
    "Equilibrium",
    "GeneralProxy",
    "Optimum",
    "Outcome",
    "PacedBidder",
    "PriceTaker",
    "SanghaviHajek",
    "StreamingAuctioneer",
    "Trajectory",
    "VCGKelly",
    "Valuations",
    "WorstCase",
    "alpha_for_efficiency",
    "audit",
    "best_response",
    "choose_alpha",
    "compare",
    "dynamics",
    "efficiency_bound",
    "efficiency_certificate",
    "efficient",
    "equal_split",
    "from_table",
    "kelly",
    "liquid_bound",
    "liquid_certificate",
    "liquid_optimum",
    "load_philly",
    "load_pollux",
    "max_min",
    "proportional",
    "regret",
    "revenue_bound",
    "revenue_certificate",
    "search_worst_case",
    "simulate",
    "solve",
    "speedups",
    "tiered_demand",
    "toy_cluster",
    "typical_agents",
    "vcg",
    "worst_case_instance",
]
