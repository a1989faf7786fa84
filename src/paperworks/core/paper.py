"""What a system says about itself, and how the systems are found."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Paper", "system", "systems"]


@dataclass(frozen=True)
class Paper:
    """One system: the paper it comes from and what it does for its user.

    Parameters
    ----------
    slug : str
        Name of the system's folder and of its command.
    title : str
        Title of the paper.
    field : str
        The field whose conventions the system follows.
    does : str
        One sentence: what a user gets.
    reference : str
        Authors, year, title, arXiv id.
    extra : str
        The pip extra that installs what the system needs; by default the slug.
    """

    slug: str
    title: str
    field: str
    does: str
    reference: str
    extra: str = ""

    def __post_init__(self) -> None:
        """Take the slug as the extra unless another is named."""
        if not self.extra:
            object.__setattr__(self, "extra", self.slug)

    @property
    def module(self) -> str:
        """Import name of the system."""
        return f"paperworks.{self.slug}"


def systems() -> dict[str, Paper]:
    """Find every system: each folder of the package that holds a ``paper.py``, sorted by slug.

    Only the light ``paper`` modules are imported.

    Examples
    --------
    >>> "allocation" in systems()
    True
    """
    import paperworks

    found = []
    for info in pkgutil.iter_modules(paperworks.__path__):
        folder = Path(info.module_finder.path, info.name)  # type: ignore[union-attr]
        if info.ispkg and info.name != "core" and (folder / "paper.py").is_file():
            found.append(info.name)
    return {slug: importlib.import_module(f"paperworks.{slug}.paper").PAPER for slug in sorted(found)}


def system(name: str) -> Paper:
    """Return the system called `name`; ``-`` and ``_`` are the same.

    Raises
    ------
    ValueError
        There is no such system; the message lists those there are.
    """
    found = systems()
    slug = name.replace("-", "_")
    if slug not in found:
        raise ValueError(f"there is no system {name!r}; there are: {', '.join(found)}")
    return found[slug]
