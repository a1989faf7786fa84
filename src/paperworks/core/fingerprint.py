"""What a stored measurement depends on: code, data and library versions, as one hash."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

from paperworks.core.claims import Experiment, Trial
from paperworks.core.extras import versions

__all__ = ["experiment_fingerprint", "key"]

FORMAT = 1
# What these modules do changes no measurement.
LEFT_OUT = frozenset({"plots.py", "cli.py", "paper.py"})


def key(*parts: Any) -> str:
    """Return a hash of plain values, independent of the order of mapping keys.

    Examples
    --------
    >>> key({"a": 1, "b": 2}) == key({"b": 2, "a": 1})
    True
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def experiment_fingerprint(slug: str, experiment: Experiment, trial: Trial) -> str:
    """Hash all that a trial's result depends on besides its own parameters.

    The source of the system's modules, without docstrings, comments and layout, and without ``plots.py``, ``cli.py``
    and ``paper.py``; the other files in its folder; the core modules they import, and those these import; the sha256 of
    the declared data; the versions of the declared libraries.
    """
    data = sorted((file.name, file.sha256) for file in experiment.data)
    libraries = versions(tuple(sorted({*experiment.requires, *trial.requires})))
    return key(FORMAT, _system_source(slug), data, libraries)


def _system_source(slug: str) -> str:
    spec = importlib.util.find_spec(f"paperworks.{slug}")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"there is no system {slug!r}")
    folder = Path(next(iter(spec.submodule_search_locations)))
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in LEFT_OUT and path.suffix != ".pyi" and path.parent.name != "__pycache__"
    ]
    core = _core_closure([path for path in files if path.suffix == ".py"])
    return key([(str(path.relative_to(folder)), _source_hash(path)) for path in files], sorted(core.items()))


def _core_closure(files: list[Path]) -> dict[str, str]:
    """Hash every core module that `files` import, directly or through another core module."""
    found: dict[str, str] = {}
    queue = [name for path in files for name in _core_imports(path)]
    while queue:
        name = queue.pop()
        if name in found:
            continue
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        found[name] = _source_hash(Path(spec.origin))
        queue.extend(_core_imports(Path(spec.origin)))
    return found


def _core_imports(path: Path) -> list[str]:
    """Names of the core modules that a file imports, at its top or inside a function."""
    return [name for name in _parsed(path, path.stat().st_mtime_ns)[1] if _is_module(name)]


@functools.lru_cache
def _is_module(name: str) -> bool:
    """Tell a module from a name that a module defines."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _source_hash(path: Path) -> str:
    if path.suffix != ".py":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return _parsed(path, path.stat().st_mtime_ns)[0]


@functools.lru_cache(maxsize=4096)
def _parsed(path: Path, changed: int) -> tuple[str, tuple[str, ...]]:
    """Hash a file without its docstrings, and name what it imports of the core; `changed` is its time of change."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    code = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
    return code, tuple(name for name in names if name.startswith("paperworks.core."))
