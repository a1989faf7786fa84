"""Embedded examples, and the real traces where they can be had."""

from __future__ import annotations

import numpy as np
import pytest

from paperworks.allocation.benchmarks import efficient
from paperworks.allocation.data import load_philly, load_pollux, speedups, toy_cluster
from paperworks.allocation.equilibrium import solve
from paperworks.allocation.valuations import Valuations

APPS = {"bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"}


class TestEmbedded:
    def test_speed_ups_hold_the_known_optimum(self) -> None:
        v = speedups()
        assert set(v.names) == APPS
        assert efficient(v, capacity=24.0).welfare == pytest.approx(23.4419, abs=6e-5)

    def test_speed_ups_over_one_gpu(self) -> None:
        v = speedups()
        value = dict(zip(v.names, v.value(np.full(6, 4.0)), strict=True))
        assert value["bert"] == pytest.approx(3.851, abs=6e-4)
        assert value["deepspeech2"] == pytest.approx(3.639, abs=6e-4)
        assert value["ncf"] == pytest.approx(1.203, abs=6e-4)
        np.testing.assert_allclose(v.value(np.full(6, 16.0)), v.value(np.full(6, 40.0)))

    def test_toy_cluster(self) -> None:
        v = toy_cluster()
        assert isinstance(v, Valuations)
        assert len(v) == 6
        assert solve(v, 0.25, capacity=10.0).converged


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
