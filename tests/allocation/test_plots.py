from __future__ import annotations

import pytest

from paperworks.allocation import (
    AlphaProportional,
    StreamingAuctioneer,
    VCGKelly,
    choose_alpha,
    dynamics,
    plots,
    speedups,
    toy_cluster,
)
from paperworks.core.plotting import svg


@pytest.fixture(scope="module")
def teams():
    return toy_cluster()


def test_outcomes_by_alpha(teams):
    left, _, right = plots.outcomes_by_alpha(teams, 64, alphas=[0.05, 0.5, 1.0]).axes
    assert len(left.collections) == len(teams)
    assert right.get_lines()[0].get_ydata()[-1] == pytest.approx(0.772256, abs=1e-6)


def test_market_marks_the_price(teams):
    figure = plots.market(teams, 0.25, 64)
    assert "price" in figure.axes[0].texts[0].get_text()
    assert "<svg" in svg(figure)


def test_a_market_of_piecewise_agents():
    assert "<svg" in svg(plots.market(speedups(), 0.5, 24))


def test_design_marks_the_recommended_alpha(teams):
    choice = choose_alpha(teams, noise=0.05, trials=20, capacity=64)
    figure = plots.design({0.05: choice})
    assert any(list(line.get_xdata()) == [choice.alpha] for line in figure.axes[0].get_lines())


def test_traces(teams):
    figure = plots.traces(dynamics(teams, 0.5, capacity=64), teams.names)
    assert len(figure.axes[0].get_lines()) == len(teams)


def test_stream():
    auctioneer = StreamingAuctioneer(0.5, capacity=10, refill=3)
    for bids in ({"a": 1, "b": 2}, {"a": 3, "c": 1}, {"b": 1, "c": 1}):
        auctioneer.step(bids)
    figure = plots.stream(auctioneer.ledger())
    assert len(figure.axes) == 3
    assert len(figure.axes[0].collections) == 3


def test_payments_per_unit_are_flat_here_and_not_under_vcg_kelly():
    ours, theirs = AlphaProportional(0.5).clear([4, 2, 1]), VCGKelly(0.5).clear([4, 2, 1])
    figure = plots.payments_per_unit(
        {"ours": (ours.shares, ours.payments), "VCG-Kelly": (theirs.shares, theirs.payments)}
    )
    flat, sloping = (line.get_ydata() for line in figure.axes[0].get_lines())
    assert flat.max() / flat.min() == pytest.approx(1)
    assert sloping.max() / sloping.min() == pytest.approx(1.506, abs=1e-3)
