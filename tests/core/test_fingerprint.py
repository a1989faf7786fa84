from __future__ import annotations

import os
from typing import Any

import pytest

from paperworks.core.fingerprint import key

ALL = [f"squares {n}" for n in range(4)]
KERNEL = """
from paperworks.core.deep import one


def kernel():
    return one
"""


@pytest.fixture
def toy(room: Any) -> Any:
    """A system whose method uses a core module that uses another, checked once."""
    from tests_core_texts import METHOD

    room.write("core/deep.py", "one = 1")
    room.write("core/kernel.py", KERNEL)
    room.write("core/unused.py", "two = 2")
    room.add(method=f"{METHOD}\n\ndef shifted(n):\n    from paperworks.core.kernel import kernel\n    return n + kernel()\n")
    room.add("other_room")
    room.check()
    assert room.lines() == ALL
    room.check()
    assert room.lines() == []
    return room
