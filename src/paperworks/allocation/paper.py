"""The paper of this system and what the system does for its user."""

from paperworks.core.paper import Paper

PAPER = Paper(
    slug="allocation",
    title="A Unified Framework for Uniform-Price Resource Allocation Mechanisms",
    field="mechanism design",
    does="Divide one resource among teams by bids: shares, one price, equilibria and guarantees.",
    reference="A Unified Framework for Uniform-Price Resource Allocation Mechanisms (2026). arXiv:2606.06151 [cs.GT]",
)
