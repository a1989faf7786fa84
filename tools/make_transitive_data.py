"""Rebuild what `paperworks.transitive` embeds."""

from __future__ import annotations

from pathlib import Path

from paperworks.core.atomic import write_text
from paperworks.core.data import path
from paperworks.transitive import data

if __name__ == "__main__":
    for file in data.JENSEN.values():
        write_text(Path(data.__file__).with_name(file.name), path(file).read_text(encoding="utf-8"))
