"""The paper of this system and what the system does for its user."""

from paperworks.core.paper import Paper

PAPER = Paper(
    slug="comonet",
    title="COMONet",
    field="machine learning",
    does="Fit networks that are increasing, convex, concave, … in the columns you say, and prove it of any network.",
    reference="COMONet. Earlier version: ICLR 2026 submission 17391, OpenReview Nd0dt1B5Ec",
)
