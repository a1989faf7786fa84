"""A graph convolutional network as an encoder to put a residual beside, and as a classifier of its own."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from operator import is_
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv

from paperworks.core.validation import check_integer
from paperworks.dssgnn.baselines import NetworkClassifier
from paperworks.dssgnn.features import compact, drop_features
from paperworks.dssgnn.filters import normalized_shift
from paperworks.dssgnn.graphs import Graph

__all__ = ["EncoderClassifier", "GCNEncoder"]


class GCNEncoder(nn.Module):
    """Graph convolutions with ReLU and dropout between them.

    Parameters
    ----------
    in_channels, hidden_channels, out_channels : int
        Widths.
    layers : int
        Number of convolutions, at least 1.
    dropout : float
        Share of hidden units dropped.
    input_dropout : float, optional
        Share of features dropped, by default as many.

    Shapes
    ------
    x : (nodes, in_channels), dense or CSR; edge_index : (2, edges) → logits (nodes, out_channels)
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        layers: int = 2,
        dropout: float = 0.5,
        input_dropout: float | None = None,
    ) -> None:
        super().__init__()
        layers = check_integer(layers, "layers", low=1)
        widths = [in_channels, *[hidden_channels] * (layers - 1), out_channels]
        self.convolutions = nn.ModuleList(GCNConv(*pair, normalize=False) for pair in pairwise(widths))
        self.dropout, self.input_dropout = dropout, dropout if input_dropout is None else input_dropout
        self._known: tuple[Any, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has: not the graph, which torch cannot copy."""
        return {**self.__dict__, "_known": ()}

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        for convolution in self.convolutions:
            convolution.reset_parameters()  # type: ignore[operator]

    def forward(
        self, x: Float[Tensor, "nodes features"], edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> Float[Tensor, "nodes classes"]:
        """Return the logits."""
        shift = self._shift(edge_index, edge_weight, x.shape[0], x.dtype)
        x = drop_features(x, self.input_dropout, self.training)
        for number, convolution in enumerate(self.convolutions):
            if number:
                x = functional.dropout(x.relu(), self.dropout, self.training)
            x = convolution(x, shift)
        return x

    def _shift(self, edge_index: Tensor, edge_weight: Tensor | None, nodes: int, dtype: torch.dtype) -> Tensor:
        """Normalise the edges, unless they are those of the last time."""
        tensors = (edge_index, edge_weight)
        if any(tensor is not None and tensor.is_inference() for tensor in tensors):  # those tell no change
            return normalized_shift(edge_index, edge_weight, nodes, dtype=dtype)
        versions = tuple(None if tensor is None else tensor._version for tensor in tensors)
        if self._known:
            before, *key, shift = self._known
            if key == [versions, nodes, dtype] and all(map(is_, before, tensors)):
                known: Tensor = shift
                return known
        shift = normalized_shift(edge_index, edge_weight, nodes, dtype=dtype)
        self._known = (tensors, versions, nodes, dtype, shift)
        return shift


@dataclass(kw_only=True, eq=False)
class EncoderClassifier(NetworkClassifier):
    """A `GCNEncoder` trained on its own, to be compared with the same one in a `DSSHybrid`.

    Parameters
    ----------
    hidden_channels, dropout, lr, weight_decays, epochs, patience, random_state, device
        See `NetworkClassifier`.
    layers, input_dropout
        See `GCNEncoder`.
    """

    layers: int = 2
    input_dropout: float | None = None

    def _network(self, in_channels: int, classes: int) -> nn.Module:
        return GCNEncoder(in_channels, self.hidden_channels, classes, self.layers, self.dropout, self.input_dropout)

    def _inputs(self, graph: Graph) -> tuple[Tensor, ...]:
        edges = [part for part in (graph.edge_index, graph.edge_weight) if part is not None]
        return compact(graph.x), *edges
