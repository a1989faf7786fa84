"""Shifted graphs against the counts and probabilities of their recipes."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

with warnings.catch_warnings():
    # It compiles with torch.jit, which torch warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.data import Data

    from paperworks.dssgnn.shift import feature_interpolation, good_cbas, good_webkb, leave_out_classes, sbm_shift

MASKS = ("train_mask", "val_mask", "test_mask", "ood_val_mask", "ood_test_mask")
UNIVERSITIES = ("dssgnn/wisconsin.npz", "dssgnn/cornell.npz", "dssgnn/texas.npz")


def graph(n: int, classes: int, edges: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    ends = rng.integers(n, size=(2, edges))
    ends = np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1)
    edge_index = torch.from_numpy(np.concatenate([ends, ends[::-1]], axis=1))
    y = torch.from_numpy(np.concatenate([np.arange(classes), rng.integers(classes, size=n - classes)]))
    third = torch.arange(n) % 3
    masks = dict(zip(MASKS, (third == 0, third == 1, third == 2), strict=False))
    return Data(torch.from_numpy(rng.random((n, 4))).float(), edge_index, y=y, **masks)


def is_all_ood(shifted: Data, n: int) -> bool:
    masked = shifted.train_mask | shifted.val_mask | shifted.test_mask
    return bool((shifted.y == -1).all() and shifted.ood_mask.all() and len(shifted.ood_mask) == n and not masked.any())


def within(hits: int, n: int, p: float) -> bool:
    """Whether a count is within five standard deviations of a binomial distribution."""
    return abs(hits - n * p) <= 5 * math.sqrt(n * p * (1 - p))


class TestBlockModel:
    def test_densities(self) -> None:
        n, blocks = 1003, 4
        data = graph(n, blocks, 60_000, 0)
        shifted = sbm_shift(data, 1)
        assert is_all_ood(shifted, n)
        assert torch.equal(shifted.x, data.x)
        block = torch.arange(n).div(n // blocks, rounding_mode="floor").clamp(max=blocks - 1)
        sizes = block.bincount()
        assert sizes.tolist() == [250, 250, 250, 253]
        density = data.num_edges / (n * (n - 1))
        a, b = block[shifted.edge_index]
        for i in range(blocks):
            for j in range(i, blocks):
                pairs = math.comb(int(sizes[i]), 2) if i == j else int(sizes[i] * sizes[j])
                found = int(((a == i) & (b == j)).sum()) // (2 if i == j else 1)
                assert within(found, pairs, (1.5 if i == j else 0.5) * density)
        inside = int((a == b).sum()) // 2
        assert within(inside, sum(math.comb(size, 2) for size in sizes.tolist()), 1.5 * density)

    def test_every_pair_is_as_likely(self) -> None:
        # Two blocks of 5 and 6 nodes, of odd and even size.
        data = graph(11, 2, 20, 3)
        density = data.num_edges / 110
        draws = 600
        total = torch.zeros(11, 11)
        for seed in range(draws):
            total[tuple(sbm_shift(data, seed).edge_index)] += 1
        inside = (torch.arange(11)[:, None] < 5) == (torch.arange(11) < 5)
        for i in range(11):
            assert total[i, i] == 0
            for j in range(i):
                assert within(int(total[i, j]), draws, (1.5 if inside[i, j] else 0.5) * density)

    @settings(max_examples=40)
    @given(st.integers(2, 20), st.integers(1, 5), st.integers(0, 200), st.integers(0, 2**32 - 1))
    def test_undirected_and_simple(self, n: int, classes: int, edges: int, seed: int) -> None:
        shifted = sbm_shift(graph(n, min(classes, n), edges, seed), seed)
        assert shifted.is_undirected()
        assert not shifted.has_self_loops()
        assert shifted.is_coalesced()
        assert shifted.num_nodes == n

    def test_seed(self) -> None:
        data = graph(40, 3, 100, 0)
        assert torch.equal(sbm_shift(data, 5).edge_index, sbm_shift(data, 5).edge_index)
        assert not torch.equal(sbm_shift(data, 5).edge_index, sbm_shift(data, 6).edge_index)

    def test_bad_input(self) -> None:
        with pytest.raises(ValueError, match="data must have at least 2 nodes, got 1"):
            sbm_shift(graph(1, 1, 0, 0), 0)
        data = graph(5, 2, 5, 0)
        data.y[:] = -1
        with pytest.raises(ValueError, match="data must have labels, got none"):
            sbm_shift(data, 0)
        with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
            feature_interpolation(data, -1)


class TestInterpolation:
    def test_mixtures_of_two_nodes(self) -> None:
        n = 400
        data = graph(n, 3, 500, 0)
        data.x, data.edge_weight = torch.eye(n), torch.rand(data.num_edges)
        shifted = feature_interpolation(data, 1)
        assert is_all_ood(shifted, n)
        assert torch.equal(shifted.edge_index, data.edge_index)
        assert torch.equal(shifted.edge_weight, data.edge_weight)
        torch.testing.assert_close(shifted.x.sum(1), torch.ones(n))
        parts = (shifted.x > 0).sum(1)
        assert parts.max() == 2
        assert (parts == 1).sum() < 10  # a node mixed with itself
        largest = shifted.x[parts == 2].max(1).values
        # The larger of two uniform weights is uniform on (1/2, 1).
        assert abs(float(largest.mean()) - 0.75) < 5 * 0.25 / math.sqrt(3 * n)
        assert largest.min() < 0.52 < 0.98 < largest.max()

    def test_sparse_features(self) -> None:
        data = graph(30, 2, 50, 0)
        dense = feature_interpolation(data, 3).x
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            data.x = data.x.to_sparse_csr()
        assert torch.equal(feature_interpolation(data, 3).x, dense)
        assert not torch.equal(feature_interpolation(data, 4).x, dense)


class TestLeaveOut:
    def test_the_kept_are_renumbered(self) -> None:
        data = graph(60, 4, 100, 0)
        data.y[-1] = -1
        left = leave_out_classes(data, (2, 0))
        out = (data.y == 0) | (data.y == 2)
        assert torch.equal(left.ood_mask, out)
        assert (left.y[out] == -1).all()
        assert left.y[-1] == -1
        assert (left.y[data.y == 1] == 0).all()
        assert (left.y[data.y == 3] == 1).all()
        for mask in MASKS[:3]:
            assert torch.equal(left[mask], data[mask] & ~out)
        assert torch.equal(left.edge_index, data.edge_index)
        assert data.y.max() == 3
        assert "ood_mask" not in data

    def test_one_class(self) -> None:
        data = graph(20, 2, 30, 0)
        assert torch.equal(leave_out_classes(data, 1).ood_mask, data.y == 1)

    @pytest.mark.parametrize(
        ("classes", "message"),
        [
            ([3], r"classes must be some of 0 to 2, got \[3\]"),
            ([], r"classes must be some of 0 to 2, got \[\]"),
            (-1, "classes must be at least 0, got -1"),
            (range(3), "classes must leave one out of 3, got all of them"),
        ],
    )
    def test_bad_input(self, classes: int | list[int], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            leave_out_classes(graph(20, 3, 30, 0), classes)


class TestCbas:
    @pytest.mark.parametrize(
        ("shift", "agreement"),
        [("concept", [0.95, 0.9, 0.85, 0.8, 0.75, 0.3, 0]), ("none", [0.95, 0.9, 0.85, 0.8, 0.75, 0.85, 0.85])],
    )
    def test_recipe(self, shift: str, agreement: list[float]) -> None:
        hits, sizes = np.zeros(7, int), np.zeros(7, int)
        for seed in range(10):
            data = good_cbas(seed, shift)
            assert (data.num_nodes, data.x.shape, data.x.dtype) == (700, (700, 4), torch.float32)
            assert data.y.bincount().tolist() == [300, 160, 160, 80]
            assert data.is_undirected()
            assert not data.has_self_loops()
            colours = torch.tensor([[1, 0, 0, 0.5], [0, 1, 0, 0.7], [0, 0, 1, 0.3], [1, 1, 0, 0.2]])
            assert torch.equal(data.x, colours[data.domain])
            assert data.environment.bincount().tolist() == [84] * 5 + [140] * 2
            masks = torch.stack([data[mask] for mask in MASKS])
            assert masks.sum(1).tolist() == [140] * 5
            assert (masks.sum(0) == 1).all()
            assert torch.equal(data.ood_val_mask, data.environment == 5)
            assert torch.equal(data.ood_test_mask, data.environment == 6)
            agrees = data.environment[data.domain == data.y]
            hits, sizes = hits + agrees.bincount(minlength=7).numpy(), sizes + data.environment.bincount().numpy()
        for environment, p in enumerate(agreement):
            assert within(hits[environment], sizes[environment], p + (1 - p) / 4)

    def test_houses(self) -> None:
        data = good_cbas(3)
        shape = data.subgraph(data.y > 0)
        degree = data.edge_index[0].bincount(minlength=700)
        # A house has 6 edges among its own, and one to the random graph.
        assert shape.num_edges == 80 * 12
        assert data.num_edges - data.subgraph(data.y == 0).num_edges - shape.num_edges == 80 * 2
        assert (degree[data.y == 3] == 2).all()
        assert (degree[data.y == 2] == 2).all()
        assert 1200 < data.subgraph(data.y == 0).num_edges / 2 < 1480

    def test_seed(self) -> None:
        one, same, other = good_cbas(4), good_cbas(4), good_cbas(5)
        for key in ("x", "edge_index", "environment", *MASKS):
            assert torch.equal(one[key], same[key])
        assert one.edge_index.shape != other.edge_index.shape or not torch.equal(one.edge_index, other.edge_index)
        assert not torch.equal(one.train_mask, other.train_mask)

    def test_colours_beyond_the_class_are_uniform(self) -> None:
        made = [good_cbas(seed) for seed in range(5)]
        colours = torch.cat([data.domain[data.ood_test_mask] for data in made])
        for count in colours.bincount(minlength=4).tolist():
            assert within(count, 700, 0.25)

    def test_unknown_shift(self) -> None:
        with pytest.raises(ValueError, match="shift must be one of 'concept', 'none', got 'covariate'"):
            good_cbas(0, "covariate")


class TestWebkb:
    @pytest.mark.data(UNIVERSITIES[0])
    @pytest.mark.data(UNIVERSITIES[1])
    @pytest.mark.data(UNIVERSITIES[2])
    def test_recipe(self) -> None:
        picked: dict[tuple[int, bool], list[int]] = {}
        for seed in range(12):
            data = good_webkb(seed)
            assert (data.num_nodes, data.num_features, data.num_edges) == (617, 1703, 2 * (450 + 277 + 279))
            # Cornell and Texas have 183 pages each, and come after Wisconsin.
            assert data.domain.tolist() == [2] * 251 + [0] * 183 + [1] * 183
            assert (data.domain[data.edge_index[0]] == data.domain[data.edge_index[1]]).all()
            masks = torch.stack([data[mask] for mask in MASKS])
            assert (masks.sum(0) == 1).all()
            train, val, test = masks.sum(1).tolist()[:3]
            assert val == test == int(0.15 * (train + val + test))
            assert torch.equal(data.ood_test_mask, data.environment == 1)
            assert torch.equal(data.ood_val_mask, data.environment == 4)
            above = data.y > data.y.float().mean()
            first = data.domain < 2
            for number in range(4):
                left = data.environment >= number
                preferred = above == (first if number != 1 else ~first)
                for side in (True, False):
                    chosen = left & (preferred == side)
                    hits, total = picked.get((number, side), [0, 0])
                    taken = int((chosen & (data.environment == number)).sum())
                    picked[number, side] = [hits + taken, total + int(chosen.sum())]
        for number, (bias, ratio) in enumerate([(0.85, 0.4), (0.75, 0.6), (0.85, 0.5), (0.8, 1.0)]):
            assert within(*picked[number, True], bias * ratio)
            # A side of which a university has none gets one page, so slightly more than the share.
            hits, total = picked[number, False]
            expected = (1 - bias) * ratio * total
            assert -5 * math.sqrt(expected) <= hits - expected <= 5 * math.sqrt(expected) + 12

    @pytest.mark.data(UNIVERSITIES[0])
    @pytest.mark.data(UNIVERSITIES[1])
    @pytest.mark.data(UNIVERSITIES[2])
    def test_class_and_university(self) -> None:
        data = good_webkb(0)
        above = (data.y > data.y.float().mean()).float()
        share = {
            (mask, university): float(above[data[mask] & (data.domain == university)].mean())
            for mask in ("train_mask", "ood_test_mask")
            for university in range(3)
        }
        # What goes together in training is reversed under shift.
        assert min(share["train_mask", 0], share["train_mask", 1]) > 0.7 > 0.2 > share["train_mask", 2]
        assert share["ood_test_mask", 0] < share["ood_test_mask", 2]
        assert torch.equal(good_webkb(0).environment, data.environment)
        assert not torch.equal(good_webkb(1).environment, data.environment)

    def test_unknown_shift(self) -> None:
        with pytest.raises(ValueError, match="shift must be one of 'concept', got 'none'"):
            good_webkb(0, "none")


@pytest.mark.untyped  # The type checker draws from Python's random state.
@pytest.mark.parametrize(
    "make",
    [
        good_cbas,
        lambda seed: sbm_shift(graph(30, 3, 60, 0), seed),
        lambda seed: feature_interpolation(graph(30, 3, 60, 0), seed),
        pytest.param(good_webkb, marks=[pytest.mark.data(file) for file in UNIVERSITIES]),
    ],
)
def test_global_random_states_stay(make: Callable[[int], Data]) -> None:
    def states() -> tuple[object, ...]:
        return torch.get_rng_state().tolist(), np.random.get_state()[1:3], random.getstate()  # noqa: NPY002

    before = states()
    one = make(0)
    np.testing.assert_equal(states(), before)
    torch.rand(3)
    np.random.rand(3)  # noqa: NPY002
    two = make(0)
    assert torch.equal(one.x, two.x)
    assert torch.equal(one.edge_index, two.edge_index)
