"""Embedded examples, and the real traces where they can be had."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from paperworks.allocation.benchmarks import max_min
from paperworks.allocation.data import load_philly, load_pollux, speedups, tiered_demand, toy_cluster
from paperworks.allocation.equilibrium import solve
from paperworks.allocation.optima import efficient
from paperworks.allocation.valuations import Valuations

HULLS = {
    "bert": [(0, 0), (2, 2.005), (4, 3.851), (13, 7.009), (15, 7.633), (16, 7.809)],
    "cifar10": [(0, 0), (1, 1), (13, 12.615), (15, 13.408)],
    "deepspeech2": [
        (0, 0),
        (1, 1),
        (3, 2.763),
        (4, 3.639),
        (7, 6.122),
        (11, 9.397),
        (12, 10.164),
        (14, 11.524),
        (16, 12.389),
    ],
    "imagenet": [(0, 0), (1, 1), (5, 4.898), (11, 10.319), (14, 12.935), (15, 13.695), (16, 14.235)],
    "ncf": [(0, 0), (1, 1), (4, 1.203)],
    "yolov3": [(0, 0), (1, 1), (2, 1.885), (3, 2.492), (4, 3.012), (14, 5.855), (16, 6.258)],
}
APPS = set(HULLS)


class TestEmbedded:
    def test_speed_ups_hold_the_known_optimum(self) -> None:
        v = speedups()
        assert set(v.names) == APPS
        assert efficient(v, capacity=24.0).welfare == pytest.approx(23.4419, abs=6e-5)

    def test_speed_ups_over_one_gpu(self) -> None:
        v = speedups()
        for name, points in HULLS.items():
            i = list(v.names).index(name)
            values = [v.value(np.full(6, float(gpus)))[i] for gpus, _ in points]
            np.testing.assert_allclose(values, [speedup for _, speedup in points], atol=6e-4)
            assert v.value(np.full(6, 40.0))[i] == pytest.approx(values[-1])

    def test_toy_cluster(self) -> None:
        v = toy_cluster()
        assert isinstance(v, Valuations)
        assert len(v) == 6
        assert solve(v, 0.25, capacity=10.0).converged


class TestTieredDemand:
    def test_tiers_are_worth_less_and_less(self) -> None:
        v = tiered_demand(pd.Series({"a": 6.0, "b": 0.0}))
        assert list(v.names) == ["a", "b"]
        for amount, value in ((2.0, 6.0), (4.0, 10.0), (6.0, 12.0), (9.0, 12.0)):
            np.testing.assert_allclose(v.value(np.array([amount, amount])), [value, 0.0])
        np.testing.assert_allclose(v.satiation(), [6.0, 0.0])

    def test_kelly_beats_the_static_rules(self) -> None:
        demand = np.array([300.0, 100.0, 40.0, 10.0])
        v, capacity = tiered_demand(demand), 200.0
        best = efficient(v, capacity=capacity).welfare
        fair = v.value(max_min(demand, capacity)).sum() / best
        quarter, kelly = (v.value(solve(v, a, capacity).amounts).sum() / best for a in (0.25, 1.0))
        assert v.value(np.full(4, 50.0)).sum() / best < fair < kelly <= quarter <= 1 + 1e-12


@pytest.mark.data("allocation/philly.csv")
class TestPhilly:
    def test_hours_and_teams(self) -> None:
        demand = load_philly()
        assert demand.shape == (2613, 11)
        total = demand.sum(axis=1)
        assert total.mean() == pytest.approx(414.7, abs=0.05)
        assert total.max() == 1504
        assert np.all(demand >= 0)
        window = total.iloc[336:1008]
        assert int((window > 414).sum()) == 499
        assert int((window <= 414).sum()) == 173


class TestPollux:
    pytestmark = pytest.mark.data("allocation/pollux/placements-ncf.csv")

    def test_speed_ups(self) -> None:
        apps = load_pollux()
        assert set(apps) == APPS
        for gpus, speedup in apps.values():
            assert np.all(np.diff(gpus) > 0)
            assert np.all(np.asarray(speedup) > 0)

    def test_not_concave_as_measured(self) -> None:
        gpus, speedup = load_pollux()["ncf"]
        assert gpus[int(np.argmax(speedup))] == 4
        assert np.max(speedup) == pytest.approx(1.203, abs=6e-4)
        assert speedup[-1] < np.max(speedup)

    @pytest.mark.filterwarnings("ignore:.*:UserWarning")
    def test_hulls_are_the_embedded_ones(self) -> None:
        apps = load_pollux()
        q = [np.append(0, gpus) for gpus, _ in apps.values()]
        v = [np.append(0, speedup) for _, speedup in apps.values()]
        hulls = Valuations.from_samples(q, v, names=list(apps))
        embedded = speedups()
        order = [list(embedded.names).index(name) for name in apps]
        for amount in (0.5, 1.0, 2.0, 3.0, 7.0, 13.0, 16.0):
            at = np.full(6, amount)
            np.testing.assert_allclose(hulls.value(at), embedded.value(at)[order], atol=6e-4)
