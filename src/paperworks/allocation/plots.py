"""Pictures of a market, of a stream of rounds, of design choices, and of the ledger's tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from paperworks.allocation.design import AlphaChoice
from paperworks.allocation.equilibrium import solve
from paperworks.allocation.guarantees import efficiency_bound, revenue_bound
from paperworks.allocation.responses import Trajectory
from paperworks.allocation.valuations import Valuations
from paperworks.core.plotting import PALETTE, figure

__all__ = [
    "certificates",
    "cluster_welfare",
    "design",
    "efficiency_by_alpha",
    "liquid_ratios",
    "market",
    "noise_curves",
    "outcomes_by_alpha",
    "payments_per_unit",
    "revenue_ratios",
    "stream",
    "traces",
    "unit_prices",
    "worst_cases",
]

MANY = 12  # Beyond this many agents a legend says nothing.


# A user's own market


def outcomes_by_alpha(
    valuations: Valuations,
    capacity: float = 1.0,
    budgets: ArrayLike | None = None,
    alphas: ArrayLike | None = None,
) -> Figure:
    """Draw shares, price and the guarantees against α for one set of agents.

    Parameters
    ----------
    valuations : Valuations
    capacity : float
        Amount of the resource.
    budgets : array_like, shape (n,), optional
        Private budgets; those of the valuations if left out.
    alphas : array_like, optional
        In (0, 1]; by default 25 from 0.01 to 1.
    """
    grid = np.geomspace(0.01, 1, 25) if alphas is None else np.asarray(alphas, dtype=float)
    found = [solve(valuations, float(alpha), capacity, budgets) for alpha in grid]
    made, (left, middle, right) = figure("Equilibrium against α", width=10, ncols=3, xscale="log", xlabel="α")
    left.stackplot(grid, np.transpose([each.shares for each in found]), colors=_colours(len(valuations)))
    left.set(ylabel="share of the resource", ylim=(0, 1))
    _label_agents(made, left, tuple(map(str, found[0].names)))
    middle.plot(grid, [each.price for each in found])
    middle.set(ylabel="price of the whole resource", ylim=(0, None))
    right.plot(grid, [efficiency_bound(float(a), max(len(valuations), 2)) for a in grid], label="efficiency at least")
    right.plot(grid, [revenue_bound(float(a)) for a in grid], "--", label="revenue over VCG at least")
    right.set(ylabel="guarantee where no budget binds", ylim=(0.45, 1.02))
    right.legend(frameon=False)
    return made


def market(valuations: Valuations, alpha: float, capacity: float = 1.0, budgets: ArrayLike | None = None) -> Figure:
    """Draw the stacked anticipated demands against the price; the market clears where they add up to the capacity.

    Parameters
    ----------
    valuations : Valuations
    alpha : float
        In (0, 1].
    capacity : float
        Amount of the resource.
    budgets : array_like, shape (n,), optional
        Private budgets; those of the valuations if left out.
    """
    found = solve(valuations, alpha, capacity, budgets)
    if found.price == 0:
        raise ValueError(f"valuations must compete for the capacity, got an equilibrium that is {found.status}")
    prices = found.price * np.geomspace(0.4, 2.5, 400)
    demand = np.atleast_2d(valuations.demand(prices[:, None], alpha, capacity))
    if found.budgets is not None:
        demand = np.minimum(demand, found.budgets / prices[:, None])
    made, ax = figure(f"Demand that anticipates the price, α = {alpha:g}", xlabel="price of the whole resource")
    ax.stackplot(prices, demand.T, colors=_colours(len(valuations)))
    _label_agents(made, ax, tuple(map(str, found.names)))
    ax.axhline(1, color="black", linewidth=1)
    ax.axvline(found.price, color="black", linewidth=1, linestyle=":")
    ax.annotate(f"price {found.price:.4g}", (found.price, 1), xytext=(6, 6), textcoords="offset points")
    wanted = demand.sum(axis=1)
    last = prices[wanted > 1e-3].max()
    ax.set(ylabel="shares demanded", ylim=(0, min(2.0, float(wanted.max()) * 1.02)), xlim=(prices[0], 1.05 * last))
    return made


def design(choices: dict[float, AlphaChoice]) -> Figure:
    """Draw efficiency against α for several levels of bid noise, each with its recommended α.

    Parameters
    ----------
    choices : dict of float to AlphaChoice
        From the noise σ to what `choose_alpha` returned for it.
    """
    made, ax = figure(
        "Efficiency under noisy bids, and the recommended α", xscale="log", xlabel="α", ylabel="mean efficiency"
    )
    for colour, (sigma, choice) in zip(_colours(len(choices)), choices.items(), strict=True):
        curve = choice.curve
        ax.plot(curve["alpha"], curve["mean"], color=colour, label=f"σ = {sigma:g}: α = {choice.alpha:.3g}")
        ax.fill_between(curve["alpha"], curve["p05"], curve["mean"], color=colour, alpha=0.12, linewidth=0)
        ax.plot([choice.alpha], [curve["mean"].max()], "o", color=colour)
    curve = next(iter(choices.values())).curve
    ax.plot(curve["alpha"], curve["guarantee"], color="black", linewidth=1, linestyle=":", label="guarantee, no noise")
    ax.legend(frameon=False, title="bands reach down to the 5 % quantile")
    return made


def traces(trajectory: Trajectory, names: tuple[str, ...] | None = None) -> Figure:
    """Draw the log bids of best-response dynamics, step by step, and the distance to a fixed point.

    Parameters
    ----------
    trajectory : Trajectory
        From `dynamics`.
    names : tuple of str, optional
        Of the agents.
    """
    end = "converged" if trajectory.converged else "not converged"
    bids = np.asarray(trajectory.log_bids)
    made, (left, right) = figure(f"Best responses, step by step ({end})", width=9, ncols=2, xlabel="step")
    for k, colour in enumerate(_colours(bids.shape[1])):
        left.plot(bids[:, k], color=colour, label=names[k] if names else str(k))
    left.set(ylabel="log bid")
    if bids.shape[1] <= MANY:
        left.legend(frameon=False, fontsize="small")
    gap = np.atleast_1d(np.asarray(trajectory.gap, dtype=float))
    right.plot(np.where(gap > 0, gap, np.nan))
    right.set(ylabel="distance to the best response", yscale="log")
    return made


def stream(ledger: pd.DataFrame) -> Figure:
    """Draw the rounds of a streaming auction: stacked shares, the price, the balances.

    Parameters
    ----------
    ledger : DataFrame
        From `StreamingAuctioneer.ledger`: columns round, agent, share, price, balance.
    """
    made, (top, middle, bottom) = figure("Rounds of the auction", height=7, nrows=3, xlabel="round")
    shares = ledger.pivot_table(index="round", columns="agent", values="share", sort=False).fillna(0.0)
    colours = _colours(shares.shape[1])
    top.stackplot(shares.index, shares.to_numpy().T, colors=colours, step="mid")
    top.set(ylabel="share", ylim=(0, 1))
    _label_agents(made, top, tuple(shares.columns))
    middle.step(shares.index, ledger.groupby("round", sort=False)["price"].first(), where="mid")
    middle.set(ylabel="price", ylim=(0, None))
    balances = ledger.pivot_table(index="round", columns="agent", values="balance", sort=False)
    for colour, name in zip(colours, balances, strict=False):
        bottom.plot(balances.index, balances[name], color=colour)
    bottom.set(ylabel="balance", ylim=(0, None))
    return made


def payments_per_unit(payments: dict[str, tuple[ArrayLike, ArrayLike]]) -> Figure:
    """Draw what each agent pays per unit against its share, for several mechanisms.

    Parameters
    ----------
    payments : dict of str to (array_like, array_like)
        From the mechanism's name to shares and payments.
    """
    made, ax = figure("What a unit costs", xlabel="share", ylabel="payment per unit of share")
    for colour, (name, (shares, paid)) in zip(_colours(len(payments)), payments.items(), strict=True):
        x, y = np.asarray(shares, dtype=float), np.asarray(paid, dtype=float)
        order = np.argsort(x)
        order = order[x[order] > 0]
        ax.plot(x[order], y[order] / x[order], "o-", color=colour, label=name)
    ax.set(ylim=(0, None))
    ax.legend(frameon=False)
    return made


# The ledger's tables


def worst_cases(random: pd.DataFrame, extreme: pd.DataFrame, search: pd.DataFrame) -> Figure:
    """Draw random instances, the constructed worst cases and what the search found, against ρ_n(α)."""
    made, ax = figure(
        "No instance falls below the guarantee", xlabel="guarantee ρ_n(α)", ylabel="equilibrium efficiency"
    )
    ax.scatter(random["value.bound"], random["value.efficiency"], s=4, color=PALETTE[0], alpha=0.35, label="random")
    ax.scatter(
        extreme["value.bound"], extreme["value.efficiency"], s=22, color=PALETTE[1], marker="x", label="constructed"
    )
    found = search[search["param.objective"] == "efficiency"]
    ax.scatter(found["value.guarantee"], found["value.ratio"], s=26, color=PALETTE[2], marker="D", label="searched")
    ends = np.array([extreme["value.bound"].min(), 1.0])
    ax.plot(ends, ends, color="black", linewidth=1)
    ax.legend(frameon=False, loc="lower right")
    return made


def certificates(random: pd.DataFrame, liquid: pd.DataFrame) -> Figure:
    """Draw true efficiency against the certificate: every point lies on or above the diagonal."""
    made, panels = figure("What the shares certify, and what is true", width=9, ncols=2, xlabel="certificate")
    pairs = [(random, "value.efficiency", "efficiency"), (liquid, "value.ratio", "liquid welfare over its optimum")]
    for ax, (table, column, label) in zip(panels, pairs, strict=True):
        ax.scatter(table["value.certificate"], table[column], s=4, color=PALETTE[0], alpha=0.35)
        low = float(table["value.certificate"].min())
        ax.plot([low, 1], [low, 1], color="black", linewidth=1)
        ax.set(ylabel=label)
    return made


def revenue_ratios(random: pd.DataFrame, extreme: pd.DataFrame, search: pd.DataFrame) -> Figure:
    """Draw revenue over VCG revenue by α, with the bound 1/(1+α)."""
    made, ax = figure("Revenue against VCG", xlabel="α", ylabel="revenue over VCG revenue", yscale="log")
    grid = np.linspace(0.01, 1, 50)
    jitter = np.linspace(-0.012, 0.012, len(random))
    ax.scatter(
        random["param.alpha"] + jitter, random["value.revenue_ratio"], s=4, color=PALETTE[0], alpha=0.35, label="random"
    )
    found = search[search["param.objective"] == "revenue"]
    ax.scatter(found["param.alpha"], found["value.ratio"], s=26, color=PALETTE[2], marker="D", label="searched")
    tight = extreme.drop_duplicates("param.alpha")
    ax.scatter(
        tight["param.alpha"], tight["value.revenue_ratio"], s=22, color=PALETTE[1], marker="x", label="two equal agents"
    )
    ax.plot(grid, 1 / (1 + grid), color="black", linewidth=1, label="1/(1+α)")
    ax.legend(frameon=False)
    return made


def efficiency_by_alpha(table: pd.DataFrame) -> Figure:
    """Draw mean efficiency and revenue against α on each set of agents."""
    made, (left, right) = figure("Smaller α, more efficient equilibria", width=9, ncols=2, xscale="log", xlabel="α")
    for colour, (name, rows) in zip(PALETTE, table.groupby("param.data"), strict=False):
        rows = rows.sort_values("param.alpha")
        left.plot(rows["param.alpha"], rows["value.mean"], "o-", color=colour, label=name)
        right.plot(rows["param.alpha"], rows["value.revenue_ratio"], "o-", color=colour, label=name)
    grid = np.geomspace(0.01, 1, 60)
    left.plot(grid, [efficiency_bound(float(a)) for a in grid], color="black", linewidth=1, label="guarantee")
    right.plot(grid, 1 / (1 + grid), color="black", linewidth=1, label="1/(1+α)")
    left.set(ylabel="efficiency")
    right.set(ylabel="revenue over VCG revenue")
    left.legend(frameon=False)
    return made


def liquid_ratios(table: pd.DataFrame) -> Figure:
    """Draw the distribution of liquid welfare over its optimum by α."""
    made, ax = figure(
        "Liquid welfare under private budgets", xlabel="liquid welfare over its optimum", ylabel="instances"
    )
    for colour, (alpha, rows) in zip(PALETTE, table.groupby("param.alpha"), strict=False):
        counts, edges = np.histogram(rows["value.ratio"], bins=np.linspace(0.48, 1, 27))
        ax.stairs(counts, edges, color=colour, linewidth=1.6, label=f"α = {alpha:g}")
    ax.axvline(0.5, color="black", linewidth=1, linestyle=":")
    ax.set(yscale="log")
    ax.legend(frameon=False, loc="upper left")
    return made


def unit_prices(table: pd.DataFrame) -> Figure:
    """Draw payments per unit of each mechanism for the bids 4, 2 and 1."""
    return payments_per_unit(
        {
            str(name): (rows["value.share"], rows["value.share"] * rows["value.unit_price"])
            for name, rows in table.groupby("param.mechanism", sort=False)
        }
    )


def noise_curves(table: pd.DataFrame) -> Figure:
    """Draw efficiency against α for each level of bid noise."""
    made, ax = figure("Efficiency under noisy bids", xscale="log", xlabel="α", ylabel="mean efficiency")
    for colour, (sigma, rows) in zip(PALETTE, table.groupby("param.sigma"), strict=False):
        rows = rows.sort_values("param.alpha")
        best = rows.loc[rows["value.efficiency"].idxmax()]
        ax.plot(rows["param.alpha"], rows["value.efficiency"], color=colour, label=f"σ = {sigma:g}")
        ax.plot([best["param.alpha"]], [best["value.efficiency"]], "o", color=colour)
    ax.legend(frameon=False, title="dots: best α")
    return made


def cluster_welfare(table: pd.DataFrame) -> Figure:
    """Draw the share of the optimum that each rule reaches on a cluster's contested hours."""
    made, ax = figure("Welfare on contested hours", height=3.0, xlabel="of the optimum", xlim=(0, 1.12))
    bars = ax.barh(table["param.rule"], table["value.of_optimum"], color=PALETTE[0], height=0.62)
    ax.bar_label(bars, fmt="%.4f", padding=4)
    ax.invert_yaxis()
    return made


def _colours(n: int) -> list[str]:
    """Return n colours, the palette over and over."""
    return [PALETTE[k % len(PALETTE)] for k in range(n)]


def _label_agents(made: Figure, ax: Axes, names: tuple[str, ...]) -> None:
    """Name the layers of a stacked picture below it, unless there are too many."""
    if len(names) <= MANY:
        layers = list(ax.collections)[: len(names)]
        columns = int(10 * made.get_figwidth() / (6 + max(map(len, names))))
        made.legend(layers, list(names), loc="outside lower center", ncols=max(1, columns), frameon=False)
