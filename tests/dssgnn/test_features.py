from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from paperworks.dssgnn.features import FeatureLinear, compact, drop_features, linear

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CS", "ignore:Sparse invariant checks")

LAYOUTS = {"dense": lambda x: x, "csr": lambda x: x.to_sparse_csr(), "coo": lambda x: x.to_sparse_coo()}


def sparse(rows: int, columns: int, nonzero: int, seed: int = 0) -> Tensor:
    """Features of which exactly so many are not zero."""
    source = torch.Generator().manual_seed(seed)
    x = torch.zeros(rows * columns)
    x[torch.randperm(rows * columns, generator=source)[:nonzero]] = 1 + torch.rand(nonzero, generator=source)
    return x.view(rows, columns)


class TestCompact:
    @pytest.mark.parametrize(
        ("rows", "nonzero", "layout"),
        [
            (1000, 10_000, torch.sparse_csr),
            (1000, 10_001, torch.strided),
            (999, 50, torch.strided),
            (1000, 0, torch.sparse_csr),
        ],
    )
    def test_large_and_a_tenth_nonzero_at_most(self, rows: int, nonzero: int, layout: Any) -> None:
        x = sparse(rows, 100, nonzero)
        y = compact(x)
        assert y.layout == layout
        assert (y is x) == (layout == torch.strided)
        assert torch.equal(y.to_dense(), x)

    def test_what_is_sparse_stays_so(self) -> None:
        x = torch.eye(3)
        csr = x.to_sparse_csr()
        assert compact(csr) is csr
        for other in (x.to_sparse_coo(), x.to_sparse_csc()):
            assert compact(other).layout == torch.sparse_csr
            assert torch.equal(compact(other).to_dense(), x)


class TestDropFeatures:
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_not_outside_training_and_not_with_probability_0(self, layout: str) -> None:
        x = LAYOUTS[layout](torch.eye(4))
        assert drop_features(x, 0.5, training=False) is x
        assert drop_features(x, 0.0, training=True) is x

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("p", [0.2, 0.5])
    def test_keeps_the_mean_and_touches_nonzero_entries_alone(self, layout: str, p: float) -> None:
        x = sparse(100, 200, 4000)
        torch.manual_seed(0)
        dropped = drop_features(LAYOUTS[layout](x), p, training=True).to_dense()
        assert torch.equal(dropped[x == 0], torch.zeros(16_000))
        kept = dropped != 0
        torch.testing.assert_close(dropped[kept], x[kept] / (1 - p))
        # Five standard deviations.
        assert float(kept.sum()) / 4000 == pytest.approx(1 - p, abs=5 * math.sqrt(p * (1 - p) / 4000))
        assert float(dropped.sum() / x.sum()) == pytest.approx(1, abs=0.1)

    def test_only_stored_entries_are_drawn(self) -> None:
        x = sparse(20, 30, 60).to_sparse_csr()
        before = x.values().clone()
        torch.manual_seed(1)
        dropped = drop_features(x, 0.5, training=True)
        torch.manual_seed(1)
        assert torch.equal(dropped.values(), functional.dropout(before, 0.5))
        assert torch.equal(dropped.col_indices(), x.col_indices())
        assert torch.equal(dropped.crow_indices(), x.crow_indices())
        assert dropped.shape == x.shape
        assert torch.equal(x.values(), before)

    def test_all_dropped(self) -> None:
        for make in LAYOUTS.values():
            assert not drop_features(make(torch.eye(3)), 1.0, training=True).to_dense().any()


class TestFeatureLinear:
    @given(
        n=st.integers(1, 6), width=st.integers(1, 5), out=st.integers(1, 4), bias=st.booleans(), seed=st.integers(0, 99)
    )
    @settings(max_examples=15)
    def test_layouts_have_equal_values_and_gradients(self, n: int, width: int, out: int, bias: bool, seed: int) -> None:
        x = sparse(n, width, (n * width + 1) // 2, seed)
        torch.manual_seed(seed)
        layer = FeatureLinear(width, out, bias=bias)
        if bias:
            torch.nn.init.normal_(layer.bias)
        upstream = torch.randn(n, out)
        expected = x @ layer.weight.T + (layer.bias if bias else 0)
        for make in LAYOUTS.values():
            layer.zero_grad()
            output = layer(make(x))
            torch.testing.assert_close(output, expected)
            (output * upstream).sum().backward()
            torch.testing.assert_close(layer.weight.grad, upstream.T @ x)
            if bias:
                torch.testing.assert_close(layer.bias.grad, upstream.sum(0))

    def test_starts_as_documented(self) -> None:
        torch.manual_seed(0)
        layer = FeatureLinear(40, 60)
        bound = math.sqrt(6 / 100)
        assert not layer.bias.any()
        assert 0.98 * bound < float(layer.weight.detach().abs().max()) <= bound
        torch.manual_seed(0)
        layer.reset_parameters()
        first = layer.weight.detach().clone()
        layer.reset_parameters()
        assert not torch.equal(layer.weight, first)

    def test_without_a_bias(self) -> None:
        weight = torch.tensor([[1.0, 2.0]])
        for make in LAYOUTS.values():
            assert linear(make(torch.eye(2)), weight, None).tolist() == [[1], [2]]
            assert linear(make(torch.eye(2)), weight, torch.tensor([10.0])).tolist() == [[11], [12]]
        assert FeatureLinear(2, 1, bias=False)(torch.eye(2).to_sparse_csr()).shape == (2, 1)
