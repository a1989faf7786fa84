"""The paper of this system and what the system does for its user."""

from paperworks.core.paper import Paper

PAPER = Paper(
    slug="transitive",
    title="A mathematical theory of balancing relational generalization and memorization",
    field="machine learning and cognitive science",
    does="Say which comparisons a learner of rules and exceptions gets wrong, and rank items with their upsets remembered.",
    reference=(
        "L. Cheng and S. Lippl: A mathematical theory of balancing relational generalization and memorization (2026). "
        "arXiv:2605.22972"
    ),
)
