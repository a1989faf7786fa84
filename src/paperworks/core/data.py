"""Find a data file by its hash: in the user's folder, in the cache, or at its address."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from paperworks.core.atomic import atomic_file

__all__ = ["DataFile", "DataUnavailable", "DataCorrupt", "path", "available", "cache_folder"]


class DataUnavailable(LookupError):
    """A data file cannot be had here; the message says where it comes from and how to supply it."""

    exit_code = 3


class DataCorrupt(DataUnavailable):
    """A file was found or downloaded under the right name, but its content has another hash."""


@dataclass(frozen=True)
class DataFile:
    """A file that is known by its content and can be downloaded or rebuilt.

    Parameters
    ----------
    slug : str
        The system that uses it.
    name : str
        File name, which may hold subfolders: ``"pollux/placements-bert.csv"``.
    sha256 : str
        Hash of the content, 64 lower-case hexadecimal digits.
    licence : str
        Licence of the content, e.g. ``"CC-BY-4.0"``.
    url : str, optional
        Address to download it from. Exactly one of `url` and `build` is given.
    build : str, optional
        Shell command that rebuilds it, where there is nothing to download.
    size : int, optional
        Bytes, to tell the user before a download.

    Raises
    ------
    ValueError
        A field is malformed, or not exactly one of `url` and `build` is given.

    Examples
    --------
    >>> file = DataFile("sle", "mesh/bunny.obj", "0" * 64, "MIT", url="https://example.org/bunny.obj")
    >>> print(file)
    sle/mesh/bunny.obj
    """

    slug: str
    name: str
    sha256: str
    licence: str
    url: str | None = None
    build: str | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        if not self.slug.isidentifier():
            raise ValueError(f"slug must be an identifier, got {self.slug!r}")
        name = PurePosixPath(self.name)
        if name.is_absolute() or not name.name or ".." in name.parts or str(name) != self.name:
            raise ValueError(f"name must be a relative path without '.' and '..', got {self.name!r}")
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ValueError(f"sha256 must be 64 lower-case hexadecimal digits, got {self.sha256!r}")
        if not self.licence:
            raise ValueError("licence must not be empty")
        if bool(self.url) == bool(self.build):
            raise ValueError(f"exactly one of url and build must be given, got {self.url!r} and {self.build!r}")
        if self.size is not None and self.size < 0:
            raise ValueError(f"size must be non-negative, got {self.size!r}")

    def __str__(self) -> str:
        return f"{self.slug}/{self.name}"


def path(file: DataFile, *, download: bool = True) -> Path:
    """Return where `file` is on this machine, after checking its hash.

    The first that exists is taken: ``$PAPERWORKS_DATA/<slug>/<name>``, then ``<cache>/data/<slug>/<name>``, then
    its address, from which it is downloaded into the cache. A part of a file never takes the final name.

    Parameters
    ----------
    file : DataFile
        The file wanted.
    download : bool
        Whether the network may be used; it is not where ``PAPERWORKS_OFFLINE`` is set.

    Raises
    ------
    DataUnavailable
        Not on this machine and not to be downloaded: no network, only a build command, or a cache that cannot be
        written.
    DataCorrupt
        The file found or downloaded has another hash. Nothing is deleted, and a corrupt download is not stored.

    Examples
    --------
    >>> file = DataFile("sle", "absent.csv", "0" * 64, "MIT", build="make absent.csv")
    >>> path(file)
    Traceback (most recent call last):
    ...
    paperworks.core.data.DataUnavailable: sle/absent.csv is not on this machine: build it with `make absent.csv`...
    """
    for place in _places(file):
        if place.is_file():
            status = place.stat()
            found = _sha256(place, status.st_mtime_ns, status.st_size)
            if found != file.sha256:
                raise DataCorrupt(
                    f"{place} has sha256 {found}, expected {file.sha256}: delete it, or replace it by {file} "
                    f"({_source(file)})"
                )
            return place
    if file.url is None or not download or os.environ.get("PAPERWORKS_OFFLINE"):
        raise _unavailable(file, "")
    return _download(file, file.url)


def available(file: DataFile) -> bool:
    """Tell whether `file` is on this machine with the right hash; the network is not used.

    Examples
    --------
    >>> available(DataFile("sle", "absent.csv", "0" * 64, "MIT", url="https://example.org/absent.csv"))
    False
    """
    try:
        path(file, download=False)
    except DataUnavailable:
        return False
    return True


def cache_folder() -> Path:
    """Return the root of all that the package caches: ``$PAPERWORKS_CACHE``, else the user's cache folder.

    Examples
    --------
    >>> cache_folder().is_absolute()
    True
    """
    chosen = os.environ.get("PAPERWORKS_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    import pooch

    return Path(pooch.os_cache("paperworks"))


def _places(file: DataFile) -> Iterator[Path]:
    chosen = os.environ.get("PAPERWORKS_DATA")
    if chosen:
        yield Path(chosen).expanduser().absolute() / file.slug / file.name
    yield _cached(file)


def _cached(file: DataFile) -> Path:
    return cache_folder() / "data" / file.slug / file.name


@functools.lru_cache(maxsize=1024)
def _sha256(place: Path, mtime_ns: int, size: int) -> str:
    """Hash a file once a process, as long as its time and size stay (the key of the memo)."""
    with place.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _download(file: DataFile, url: str) -> Path:
    import pooch
    import requests

    target = _cached(file)
    # Without identity, a server may pack the file for transport, or unpack a .gz, and the hash would not match.
    fetch = pooch.HTTPDownloader(progressbar=False, chunk_size=2**16, headers={"Accept-Encoding": "identity"})
    try:
        with atomic_file(target) as part:
            fetch(url, str(part), None)
            status = part.stat()
            found = _sha256(part, status.st_mtime_ns, status.st_size)
            if found != file.sha256:
                raise DataCorrupt(
                    f"the download of {file} from {url} has sha256 {found}, expected {file.sha256}: it was not stored; "
                    f"try again, or {_supply(file)}"
                )
    except requests.RequestException as error:
        reason = type(error).__name__
        if error.response is not None:
            error.response.close()
            reason = f"HTTP {error.response.status_code}"
        raise _unavailable(file, f" and its download failed ({reason})") from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _unavailable(
            file, f" and cannot be stored in {target.parent} ({reason}; PAPERWORKS_CACHE moves the cache)"
        ) from error
    return target


def _unavailable(file: DataFile, why: str) -> DataUnavailable:
    return DataUnavailable(f"{file} is not on this machine{why}: {_source(file)}, then {_supply(file)}")


def _source(file: DataFile) -> str:
    return f"take it from {file.url}" if file.url else f"build it with `{file.build}`"


def _supply(file: DataFile) -> str:
    chosen = os.environ.get("PAPERWORKS_DATA")
    now = f" (now {chosen})" if chosen else ""
    return f"set PAPERWORKS_DATA{now} to the folder that holds {file}"
