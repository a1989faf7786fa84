"""Write a file or a folder so that a reader sees the old content or the new, never a part."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

__all__ = ["atomic_file", "atomic_folder", "write_text"]


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on a clean exit it replaces `path`, on an error it is removed.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with atomic_file(folder / "a.txt") as part:
    ...     _ = part.write_text("whole")
    >>> (folder / "a.txt").read_text(), len(list(folder.iterdir()))
    ('whole', 1)
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = _beside(target)
    part.touch(exist_ok=False)
    try:
        yield part
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; on a clean exit it replaces `path`, on an error it is removed.

    Raises
    ------
    NotADirectoryError
        `path` is a file.

    Examples
    --------
    >>> import tempfile
    >>> model = Path(tempfile.mkdtemp()) / "model"
    >>> for version in ("1", "2"):
    ...     with atomic_folder(model) as part:
    ...         _ = (part / version).write_text("whole")
    >>> [entry.name for entry in model.iterdir()], len(list(model.parent.iterdir()))
    (['2'], 1)
    """
    target = Path(path)
    if target.is_file():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    part = _beside(target)
    part.mkdir()
    try:
        yield part
        if target.exists():
            # A folder cannot be replaced in one call: the old one steps aside first, and comes back if that fails.
            old = _beside(target)
            os.rename(target, old)
            try:
                os.rename(part, target)
            except BaseException:
                os.rename(old, target)
                raise
            if old.is_symlink():
                old.unlink()
            else:
                shutil.rmtree(old, ignore_errors=True)
        else:
            os.rename(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to `path` as UTF-8, atomically."""
    with atomic_file(path) as part:
        part.write_text(text, encoding="utf-8")


def _beside(target: Path) -> Path:
    """Name a path in the same folder; created with the usual mode, unlike a file or folder of `tempfile`."""
    return target.with_name(f".{target.name}.{os.urandom(4).hex()}{target.suffix}")
