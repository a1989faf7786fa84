"""Rebuild what `paperworks.anchoring` embeds."""

from __future__ import annotations

from pathlib import Path

from paperworks.anchoring import data
from paperworks.core.atomic import write_text
from paperworks.core.data import path

if __name__ == "__main__":
    for name in data.EMBEDDED:
        file = data.NETLIB[name]
        write_text(Path(data.__file__).with_name(file.name), path(file).read_text(encoding="ascii"))
