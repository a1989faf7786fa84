"""The paper of this system and what the system does for its user."""

from paperworks.core.paper import Paper

PAPER = Paper(
    slug="dssgnn",
    title="Doubly-spectral stochastic graph networks",
    field="graph machine learning",
    does="Classify the nodes of a graph with probabilities to trust, and say which nodes are unlike those learned from.",
    reference="DSS-GNN and DSS-Hybrid. Only the abstract could be read; everything beyond it is derived here",
)
