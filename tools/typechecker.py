"""The run-time type checker of `make test-types`: beartype, with what static checkers allow and it does not."""

from collections.abc import Sequence
from typing import get_args, get_origin

from beartype import BeartypeConf, FrozenDict, beartype
from numpy._typing._nested_sequence import _NestedSequence
from numpy.typing import ArrayLike

# At run time a tuple lacks the __reversed__ that numpy's protocol for nested sequences asks for.
SEQUENCES = {hint: Sequence for hint in get_args(ArrayLike) if get_origin(hint) is _NestedSequence}

check = beartype(
    conf=BeartypeConf(
        is_pep484_tower=True,  # an int where float is annotated
        hint_overrides=FrozenDict(SEQUENCES),
    )
)
