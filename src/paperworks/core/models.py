"""A saved model is a folder: arrays, a config with versions, an optional card; never a pickle."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import paperworks
from paperworks.core.atomic import atomic_folder
from paperworks.core.extras import require

__all__ = ["FORMAT", "Model", "check_folder", "load", "save"]

FORMAT = 1
"""Version of the folder's layout; `load` refuses every other."""

_TENSORS, _ARRAYS = "model.safetensors", "model.npz"


@dataclass(frozen=True, eq=False)
class Model:
    """What a saved model holds.

    Attributes
    ----------
    path : Path
        The folder it was read from.
    slug : str
        The system that wrote it.
    version : str
        The version of this package that wrote it.
    arrays : dict of str to ndarray or torch.Tensor
        All of one kind; tensors are on the CPU.
    config : dict
        The writer's own configuration.
    card : str or None
        The model card, Markdown.
    """

    path: Path
    slug: str
    version: str
    arrays: dict[str, Any]
    config: dict[str, Any]
    card: str | None


def check_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the folder as a path if `save` would write there; ask before a long fit, not after it.

    Raises
    ------
    FileExistsError
        It is a file, or holds something else than a saved model.
    """
    target = Path(folder)
    if target.exists() and not (target.is_dir() and (_is_model(target) or not any(target.iterdir()))):
        raise FileExistsError(f"folder must be new, empty or a saved model, got {str(target)!r}")
    return target


def save(
    folder: str | os.PathLike[str],
    arrays: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    slug: str,
    card: str | None = None,
) -> None:
    """Write a model folder in one piece; an earlier model in `folder` is replaced.

    Parameters
    ----------
    folder : path
        Where to write. An existing folder that is neither empty nor a saved model is refused.
    arrays : mapping of str to array_like or torch.Tensor
        For example a ``state_dict()``. If any value is a tensor all are stored as tensors (``model.safetensors``, any
        torch dtype), otherwise as NumPy arrays (``model.npz``: numbers, bools, strings, dates).
    config : mapping
        JSON values under string keys; tuples come back as lists.
    slug : str
        The system the model belongs to; `load` asks for the same.
    card : str, optional
        Model card in Markdown, stored as ``card.md``.

    Raises
    ------
    ValueError, TypeError
        An object array, a tensor that is not dense, a name that cannot be stored, or a config that is not JSON.
    FileExistsError
        `folder` holds something else.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "ranker"
    >>> save(folder, {"weight": [1.0, 2.0]}, {"degree": 1}, slug="ranking", card="# A ranker")
    >>> model = load(folder, slug="ranking")
    >>> model.arrays["weight"], model.config, model.card
    (array([1., 2.]), {'degree': 1}, '# A ranker')
    """
    target = check_folder(folder)
    _check_json(config, "config")
    names: list[Any] = list(arrays)
    for name in names:
        if not isinstance(name, str) or not name or "\0" in name or name == "__metadata__":
            raise ValueError(f"arrays must have names that can be stored, got {name!r}")
    tensors = any(_is_tensor(value) for value in arrays.values())
    with atomic_folder(target) as part:
        file = part / (_TENSORS if tensors else _ARRAYS)
        (_write_tensors if tensors else _write_arrays)(file, arrays)
        head = {"slug": slug, "format": FORMAT, "version": paperworks.__version__, "file": file.name}
        about = {**head, "sha256": _digest(file), "config": config}
        (part / "config.json").write_text(json.dumps(about, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        if card is not None:
            (part / "card.md").write_text(card, encoding="utf-8")


def load(folder: str | os.PathLike[str], *, slug: str) -> Model:
    """Read a model folder that `save` wrote.

    Parameters
    ----------
    folder : path
        The model folder.
    slug : str
        The system that must have written it.

    Returns
    -------
    Model
        Its arrays, config and card.

    Raises
    ------
    FileNotFoundError
        The folder, its ``config.json`` or its array file is missing.
    ValueError
        Another system's model, an unknown format version, or a damaged file.
    MissingExtra
        The model holds tensors and torch is not installed.
    """
    path = Path(folder)
    about = _read_about(path, slug)
    file = path / about["file"]
    if not file.is_file():
        raise FileNotFoundError(f"{str(path)!r} is not a whole model: {file.name} is missing")
    if _digest(file) != about["sha256"]:
        raise ValueError(f"{str(file)!r} is damaged: its sha256 is not the one in config.json")
    arrays = (_read_tensors if file.name == _TENSORS else _read_arrays)(file)
    card = path / "card.md"
    text = card.read_text(encoding="utf-8") if card.is_file() else None
    return Model(path, slug, about["version"], arrays, about["config"], text)


def _read_about(path: Path, slug: str) -> dict[str, Any]:
    """Return the checked content of ``config.json``."""
    file = path / "config.json"
    if not file.is_file():
        raise FileNotFoundError(f"{str(path)!r} is not a saved model: config.json is missing")
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{str(file)!r} is damaged: {error}") from error
    if not isinstance(about, dict) or "format" not in about:
        raise ValueError(f"{str(file)!r} is not the config of a saved model: it names no format")
    if about["format"] != FORMAT:
        raise ValueError(
            f"{str(file)!r} has format {about['format']!r}, but paperworks {paperworks.__version__} reads {FORMAT}"
            f" (it was written by paperworks {about.get('version', 'of unknown version')})"
        )
    expected = {"slug": str, "version": str, "file": str, "sha256": str, "config": dict}
    wrong = [name for name, kind in expected.items() if not isinstance(about.get(name), kind)]
    if wrong or about["file"] not in (_TENSORS, _ARRAYS):
        raise ValueError(f"{str(file)!r} is damaged: {', '.join(wrong) or 'file'} is missing or wrong")
    if about["slug"] != slug:
        raise ValueError(f"{str(path)!r} must be a model of {slug!r}, got a model of {about['slug']!r}")
    return about


def _is_model(path: Path) -> bool:
    return (path / "config.json").is_file() and ((path / _TENSORS).is_file() or (path / _ARRAYS).is_file())


def _is_tensor(value: Any) -> bool:
    # Where torch was never imported there are no tensors, and asking must not import it.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _write_tensors(file: Path, arrays: Mapping[str, Any]) -> None:
    torch, safetensors = require("torch", "torch"), require("safetensors.torch", "torch")
    tensors = {}
    for name, value in arrays.items():
        tensor = value.detach() if _is_tensor(value) else torch.from_numpy(_as_array(value, name))
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise ValueError(f"arrays must be dense tensors, got {tensor.layout} for {name!r}")
        # A copy each: tied weights share memory, which the format refuses.
        tensors[name] = tensor.to("cpu", copy=True).contiguous()
    safetensors.save_file(tensors, file)


def _write_arrays(file: Path, arrays: Mapping[str, Any]) -> None:
    # Not np.savez: there an array named "file" or "allow_pickle" is taken for an argument.
    with zipfile.ZipFile(file, "w") as archive:
        for name, value in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _as_array(value, name), allow_pickle=False)


def _as_array(value: Any, name: str) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype.kind not in "biufcUSmM":
        raise ValueError(f"arrays must hold numbers, bools, strings or dates, got dtype {array.dtype} for {name!r}")
    return array


def _read_tensors(file: Path) -> dict[str, Any]:
    safetensors, torch = require("safetensors", "torch"), require("safetensors.torch", "torch")
    try:
        return dict(torch.load_file(file))
    except safetensors.SafetensorError as error:
        raise ValueError(f"{str(file)!r} is damaged: {error}") from error


def _read_arrays(file: Path) -> dict[str, Any]:
    arrays = {}
    try:
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                with archive.open(name) as member:
                    arrays[name.removesuffix(".npy")] = np.lib.format.read_array(member, allow_pickle=False)
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError) as error:
        raise ValueError(f"{str(file)!r} is damaged: {error}") from error
    return arrays


def _check_json(value: Any, where: str) -> None:
    """Raise unless `value` comes back from JSON as it went in, but for tuples."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} must have string keys, got {key!r}")
            _check_json(item, f"{where}.{key}")
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            _check_json(item, f"{where}[{number}]")
    elif not (value is None or isinstance(value, (bool, int, float, str))):
        raise TypeError(f"{where} must be a JSON value, got {type(value).__name__}")
    elif isinstance(value, float) and not np.isfinite(value):
        raise ValueError(f"{where} must be finite, got {value!r}")


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
