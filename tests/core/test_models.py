from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from paperworks.core import models
from paperworks.core.models import load, save

torch = pytest.importorskip("torch")

ARRAYS = {
    "weight": np.linspace(0, 1, 6).reshape(2, 3),
    "file": np.array([1, 2], dtype=np.int8),
    "allow_pickle": np.array([True]),
    "layer/0.bias": np.float32(2.5),
    "names": np.array(["nlp", "vidéo"]),
}


@pytest.fixture
def folder(tmp_path):
    save(tmp_path / "model", ARRAYS, {"degree": 2, "knots": (0.1, 0.2)}, slug="ranking", card="# Card\n")
    return tmp_path / "model"


def edit(folder, **changes):
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**about, **changes}))


def test_arrays_config_and_card_come_back(folder):
    model = load(folder, slug="ranking")
    assert set(model.arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(model.arrays[name], array)
        assert model.arrays[name].dtype == array.dtype
    assert model.config == {"degree": 2, "knots": [0.1, 0.2]}
    assert (model.card, model.slug, model.path) == ("# Card\n", "ranking", folder)
    assert sorted(file.name for file in folder.iterdir()) == ["card.md", "config.json", "model.npz"]


def test_config_file_names_the_versions(folder):
    about = json.loads((folder / "config.json").read_text())
    assert (about["slug"], about["format"]) == ("ranking", models.FORMAT)
    assert about["version"] == load(folder, slug="ranking").version


@given(
    hnp.arrays(st.sampled_from(["f8", "f4", "i8", "u1", "?", "c16", "U3", "M8[s]"]), hnp.array_shapes(min_dims=0)),
    st.text(min_size=1, max_size=5, alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
)
@settings(max_examples=25, deadline=None)
def test_any_array_under_any_name_comes_back(tmp_path_factory, array, name):
    place = tmp_path_factory.mktemp("any") / "model"
    save(place, {name: array}, {}, slug="s")
    back = load(place, slug="s").arrays[name]
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64", "int64", "uint8", "bool", "complex64"])
def test_tensors_keep_their_dtype(tmp_path, dtype):
    tensor = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    save(tmp_path / "m", {"a": tensor.T, "plain": np.arange(2)}, {}, slug="s")
    arrays = load(tmp_path / "m", slug="s").arrays
    assert (tmp_path / "m" / "model.safetensors").is_file()
    assert arrays["a"].dtype == tensor.dtype
    assert torch.equal(arrays["a"], tensor.T)
    assert torch.equal(arrays["plain"], torch.arange(2))


def test_a_module_with_tied_weights_round_trips(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3))
    module[2].weight = module[0].weight
    save(tmp_path / "m", module.state_dict(), {}, slug="s")
    state = load(tmp_path / "m", slug="s").arrays
    assert all(torch.equal(state[name], value) for name, value in module.state_dict().items())
    module.load_state_dict(state)


def test_saving_again_replaces_the_model(folder):
    save(folder, {"only": torch.ones(1)}, {}, slug="ranking")
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert list(load(folder, slug="ranking").arrays) == ["only"]


def test_a_failed_save_leaves_the_old_model(folder):
    with pytest.raises(ValueError, match="dtype object for 'bad'"):
        save(folder, {"good": np.ones(2), "bad": np.array([None])}, {}, slug="ranking")
    assert set(load(folder, slug="ranking").arrays) == set(ARRAYS)
    assert [file.name for file in folder.parent.iterdir()] == ["model"]


def test_importing_and_saving_numpy_needs_no_torch(tmp_path):
    code = (
        "import sys; from paperworks.core.models import load, save\n"
        f"save({str(tmp_path / 'm')!r}, {{'a': [1.0]}}, {{}}, slug='s'); load({str(tmp_path / 'm')!r}, slug='s')\n"
        "assert 'torch' not in sys.modules and 'safetensors' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("file", ["config.json", "model.npz"])
def test_a_missing_file_is_named(folder, file):
    (folder / file).unlink()
    with pytest.raises(FileNotFoundError, match=f"{file} is missing"):
        load(folder, slug="ranking")


def test_another_systems_model_is_refused(folder):
    with pytest.raises(ValueError, match="must be a model of 'gaze', got a model of 'ranking'"):
        load(folder, slug="gaze")


@pytest.mark.parametrize("version", [models.FORMAT + 1, 0, "1", None])
def test_unknown_format_versions_are_refused(folder, version):
    edit(folder, format=version)
    with pytest.raises(ValueError, match=r"has format .* reads 1"):
        load(folder, slug="ranking")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "slug": "ranking", "file": "/etc/passwd"}']
)
def test_a_damaged_config_is_refused(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config.json' is (damaged|not the config)"):
        load(folder, slug="ranking")


def test_only_the_models_own_files_are_read(folder):
    edit(folder, file="../model/model.npz")
    with pytest.raises(ValueError, match="damaged: file is missing or wrong"):
        load(folder, slug="ranking")


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
@pytest.mark.parametrize(
    ("harm", "hash_too"), [("flip", False), ("cut", False), ("cut", True), ("empty", False), ("empty", True)]
)
def test_a_damaged_array_file_is_refused(tmp_path, kind, harm, hash_too):
    value = np.arange(50.0) if kind == "npz" else torch.arange(50.0)
    save(tmp_path / "m", {"a": value}, {}, slug="s")
    file = tmp_path / "m" / f"model.{kind}"
    data = bytearray(file.read_bytes())
    if harm == "flip":
        data[len(data) // 2] ^= 1
    file.write_bytes({"flip": data, "cut": data[: len(data) // 2], "empty": b""}[harm])
    if hash_too:
        edit(tmp_path / "m", sha256=models._digest(file))
    with pytest.raises(ValueError, match=f"model.{kind}' is damaged"):
        load(tmp_path / "m", slug="s")


def test_a_pickle_inside_is_never_opened(folder):
    np.savez(folder / "model.npz", bad=np.array([{"a": 1}], dtype=object))
    edit(folder, sha256=models._digest(folder / "model.npz"))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load(folder, slug="ranking")


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"a": {1: 2}}, TypeError, "config.a must have string keys, got 1"),
        ({"a": [0.5, float("nan")]}, ValueError, r"config.a\[1\] must be finite, got nan"),
        ({"a": {1, 2}}, TypeError, "config.a must be a JSON value, got set"),
        ({"a": np.int64(1)}, TypeError, "config.a must be a JSON value, got int64"),
    ],
)
def test_config_must_be_json(tmp_path, config, error, message):
    with pytest.raises(error, match=message):
        save(tmp_path / "m", {}, config, slug="s")
    assert not (tmp_path / "m").exists()


@pytest.mark.untyped
@pytest.mark.parametrize("name", ["", 3, "a\0b", "__metadata__"])
def test_names_that_cannot_be_stored_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match="names that can be stored"):
        save(tmp_path / "m", {name: torch.ones(1)}, {}, slug="s")


def test_sparse_tensors_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"sparse_coo for 'a'"):
        save(tmp_path / "m", {"a": torch.eye(2).to_sparse()}, {}, slug="s")


def test_a_folder_that_is_no_model_is_never_replaced(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="new, empty or a saved model"):
        save(tmp_path, {}, {}, slug="s")
    with pytest.raises(FileExistsError):
        save(tmp_path / "thesis.txt", {}, {}, slug="s")
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    (tmp_path / "empty").mkdir()
    save(tmp_path / "empty", {}, {}, slug="s")
    assert load(tmp_path / "empty", slug="s").arrays == {}
