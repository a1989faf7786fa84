"""The paper of this system and what the system does for its user."""

from paperworks.core.paper import Paper

PAPER = Paper(
    slug="anchoring",
    title="A Unifying View of Anchoring via Operator-Side Tikhonov Regularization",
    field="optimization",
    does=(
        "Make the last iterate of fixed-point and saddle-point methods converge, with a bound; "
        "solve linear programmes, games and decision processes so."
    ),
    reference=(
        "Z. Chen: A Unifying View of Anchoring via Operator-Side Tikhonov Regularization (2026). arXiv:2605.30905"
    ),
)
