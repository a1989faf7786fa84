"""The command line, end to end in a folder of its own."""

from __future__ import annotations

import io
import json
import pkgutil

import numpy as np
import pandas as pd
import pytest

from paperworks import comonet
from paperworks.cli import app
from paperworks.comonet import COMONetClassifier, COMONetRegressor, make_cobb_douglas, make_saddle
from paperworks.core import models
from paperworks.core.commands import run

pytestmark = pytest.mark.untyped

QUICK = ("--width", "2", "--depth", "1", "--max-iter", "8")
SHAPES = ("--shape", "capital=concave_increasing", "--shape", "labour=inc")


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Run `paperworks comonet …` in a folder; return code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def command(*words):
        with pytest.raises(SystemExit) as end:
            run(app, ["comonet", *words])
        streams = capsys.readouterr()
        return end.value.code, streams.out, streams.err

    return command


@pytest.fixture(scope="module")
def table():
    drawn = make_cobb_douglas(40)
    grade = np.where(drawn.target > np.median(drawn.target), "good", "bad")
    return drawn.data.assign(
        farm=[f"f{i}" for i in range(40)], output=drawn.target, grade=grade, size=drawn.target.astype(int)
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory, table):
    """Folders of a regressor with products and of a classifier."""
    folder = tmp_path_factory.mktemp("models")
    shapes = {"capital": "concave increasing", "labour": "increasing"}
    small = {"width": 2, "depth": 1, "max_iter": 8, "random_state": 0}
    X = table[["capital", "labour"]]
    COMONetRegressor(shapes, interactions="product", product_rank=2, **small).fit(X, table["output"]).save(folder / "r")
    COMONetClassifier(shapes, **small).fit(X, table["grade"]).save(folder / "c")
    return {"regressor": str(folder / "r"), "classifier": str(folder / "c")}


@pytest.fixture
def file(tmp_path, table):
    table.to_csv(tmp_path / "in.csv", index=False)
    return "in.csv"


def frame(text):
    return pd.read_csv(io.StringIO(text))


def test_fit_then_predict(call, file, table, tmp_path):
    words = ("--target", "output", *SHAPES, "--columns", "capital,labour", *QUICK, "--members", "2", "--seed", "3")
    code, out, err = call("fit", file, *words, "--out", "model", "--report", "fit.html")
    assert (code, out) == (0, "")
    assert "Certificate of the prediction: proved\n  capital: required concave increasing, proved" in err
    assert "training R² " in err
    assert (tmp_path / "fit.html").read_text().count("data:image/svg") == 2
    model = COMONetRegressor.load(tmp_path / "model")
    assert (model.width, model.n_members, model.random_state, len(model.members_)) == (2, 2, 3, 2)
    code, out, _ = call("predict", "model", file, "--report", "predict.html")
    assert code == 0
    assert list(frame(out)) == [*table, "prediction"]
    assert np.allclose(frame(out)["prediction"], model.predict(table[["capital", "labour"]]))
    assert "data:image/svg" in (tmp_path / "predict.html").read_text()


def test_fit_without_a_shape_takes_shapes_from_a_file(call, file, tmp_path):
    (tmp_path / "shapes.json").write_text('{"capital": "increasing"}')
    words = ("--target", "output", "--ignore", "farm,grade,size", "--link", "log", *QUICK, "-o", "m")
    code, _, err = call(
        "fit", file, *words, "--shapes", "shapes.json", "--shape", "labour=convex", "--domain", "labour=0:"
    )
    assert code == 0
    assert "Certificate of the log prediction: proved" in err
    model = COMONetRegressor.load(tmp_path / "m")
    assert list(model.shapes_) == ["increasing", "convex"]
    assert model.domain_[1, 0] == 0


def test_an_example_brings_its_shapes(call, tmp_path):
    assert call("fit", "--example", "heart", *QUICK, "--out", "m")[0] == 0
    model = COMONetClassifier.load(tmp_path / "m")
    assert sum(shape == "increasing" for shape in model.shapes_) == 2
    code, out, _ = call("audit", "m", "--example", "heart", "--lines", "5", "--points", "5")
    assert code == 0
    assert "trestbps: increasing, no violation in 20 sampled segments" in out


def test_classes(call, file, tmp_path):
    inputs = ("--columns", "capital,labour", *SHAPES, *QUICK)
    code, _, err = call("fit", file, "--target", "grade", "--classify", *inputs, "--out", "two")
    assert code == 0
    assert "Certificate of the decision function: proved" in err
    assert "training accuracy " in err
    assert call("fit", file, "--target", "size", "--ordinal", *inputs, "--out", "ordered")[0] == 0
    words = ("--target", "grade", "--classes", "bad,good", *inputs, "--out", "words")
    assert call("fit", file, *words)[0] == 0
    assert COMONetClassifier.load(tmp_path / "words").classes_.tolist() == ["bad", "good"]
    code, out, _ = call("predict", "ordered", file)
    chances = frame(out).filter(like="probability_")
    assert code == 0
    assert len(chances.columns) == frame(out)["size"].nunique() > 2
    assert np.allclose(chances.sum(axis=1), 1)
    code, out, _ = call("predict", "two", file, "--out", "-", "--json")
    row = json.loads(out)[0]
    assert row["prediction"] == max(("bad", "good"), key=lambda label: row[f"probability_{label}"])


def test_certify(call, saved, tmp_path):
    code, out, _ = call("certify", saved["regressor"], "--report", "c.html")
    assert code == 0
    assert "labour: required increasing, proved increasing on the domain" in out
    assert "data:image/svg" in (tmp_path / "c.html").read_text()
    code, out, _ = call("certify", saved["classifier"], "--json")
    assert code == 0
    assert [column["scale"] for column in json.loads(out)["columns"]] == ["decision_function"] * 2
    assert call("certify", saved["regressor"], "--domain", "capital=1:2", "--out", "c.json")[:2] == (0, "")
    assert json.loads((tmp_path / "c.json").read_text())["columns"][1]["domain"][0] == [1, 2]


def test_shapes_that_do_not_hold_on_a_wider_box_are_refuted(call, saved):
    """Below the domain a concave factor is negative, and with it the slope of the other one."""
    code, out, _ = call("certify", saved["regressor"], "--domain", "capital=-50:50")
    assert code == 1
    assert "NOT proved in 1 of 2 columns" in out
    assert "labour: required increasing, VIOLATED: not increasing" in out


def test_a_damaged_network_is_not_proved(call, saved, tmp_path):
    stored = models.load(saved["regressor"], slug="comonet")
    name = next(name for name in stored.arrays if name.endswith("bank.positive.c"))
    arrays = stored.arrays | {name: stored.arrays[name] * np.nan}
    models.save(tmp_path / "bad", arrays, stored.config, slug="comonet")
    code, out, _ = call("certify", "bad")
    assert code == 1
    assert "INVALID: weights are not finite" in out
    code, _, err = call("audit", "bad", "--example", "cobb-douglas")
    assert code == 2
    assert "INVALID" in err


@pytest.mark.filterwarnings("always")
def test_audit(call, saved, file, table, tmp_path):
    for kind in saved:
        code, out, _ = call("audit", saved[kind], file, "--lines", "10")
        assert code == 0
        assert "no violation found" in out
    assert call("audit", saved["classifier"], file, "-o", "a.csv")[:2] == (0, "")
    assert pd.read_csv(tmp_path / "a.csv")["share"].tolist() == [0, 0]
    # Beyond the domain the factors of a product may be negative, so that it decreases.
    far = table.assign(capital=np.linspace(-400, 4, 40), labour=np.linspace(-40, 4, 40))
    far.to_csv(tmp_path / "far.csv", index=False)
    code, out, err = call("audit", saved["regressor"], "far.csv")
    assert code == 1
    assert "VIOLATIONS found" in out
    assert "shapes are not guaranteed there" in err


def test_a_model_of_columns_without_names(call, tmp_path):
    drawn = make_saddle(30)
    COMONetRegressor("increasing", width=2, depth=1, max_iter=5).fit(drawn.data.to_numpy(), drawn.target).save("m")
    drawn.data.to_csv("in.csv", index=False)
    assert call("predict", "m", "in.csv")[0] == 0
    assert call("certify", "m", "--domain", "1=0:2")[0] == 0
    drawn.data.assign(z=1).to_csv("in.csv", index=False)
    code, _, err = call("predict", "m", "in.csv")
    assert code == 2
    assert "in.csv must have the model's 2 columns, got 3" in err


FIT = ("fit", "in.csv", "--target", "output", "--columns", "capital,labour")
BAD = {
    "no table": (("fit", "--target", "y"), "neither"),
    "both": (("fit", "in.csv", "--example", "saddle", "--target", "y"), "both"),
    "unknown example": (("fit", "--example", "moon"), "'moon'"),
    "no file": (("fit", "absent.csv", "--target", "y"), "absent.csv"),
    "no target": (("fit", "in.csv"), "--target must be a column of in.csv, got None; the columns are 'capital'"),
    "unknown target": (("fit", "in.csv", "--target", "price"), "'price'"),
    "text": (
        ("fit", "in.csv", "--target", "output"),
        "row 2: column 'farm' must hold finite numbers, got 'f0'; leave it out",
    ),
    "target of text": (
        ("fit", "in.csv", "--target", "farm", "--columns", "capital"),
        "column 'farm' must hold finite numbers, got 'f0'; classes need --classify or --ordinal",
    ),
    "unknown input": ((*FIT[:4], "--columns", "capitol"), "'capitol'"),
    "no input": ((*FIT, "--ignore", "capital,labour"), "no column is left"),
    "shape of no column": ((*FIT, "--shape", "land=convex"), "'land'"),
    "shape without a column": ((*FIT, "--shape", "convex"), "COLUMN=SHAPE, got 'convex'"),
    "shape twice": ((*FIT, "--shape", "labour=convex", "--shape", "labour=free"), "'labour' twice"),
    "unknown shape": ((*FIT, "--shape", "labour=wavy"), "'wavy'"),
    "contradiction": ((*FIT, "--shape", "labour=inc dec"), "contradictory"),
    "shapes of no JSON": ((*FIT, "--shapes", "in.csv"), "in.csv is not JSON"),
    "shapes of a list": ((*FIT, "--shapes", "list.json"), "object"),
    "shape in both": ((*FIT, "--shapes", "shapes.json", "--shape", "labour=inc"), "'labour'"),
    "domain": ((*FIT, "--domain", "labour=1"), "--domain must be COLUMN=LOW:HIGH, got 'labour=1'"),
    "domain of words": ((*FIT, "--domain", "labour=a:b"), "got 'labour=a:b'"),
    "empty domain": ((*FIT, "--domain", "labour=2:1"), "low < high"),
    "unit": ((*FIT, "--unit", "selu"), "selu"),
    "width": ((*FIT, "--width", "0"), "width must be at least 1"),
    "width of a word": ((*FIT, "--width", "wide"), "--width"),
    "log link of a concave column": ((*FIT, *SHAPES, "--link", "log"), "'capital'"),
    "loss of classes": ((*FIT, "--classify", "--loss", "huber"), "--loss"),
    "many classes": (("fit", "in.csv", "--target", "size", "--columns", "capital", "--classify"), "binary"),
    "order of other classes": (
        ("fit", "in.csv", "--target", "grade", "--columns", "capital", "--classes", "a,good"),
        "bad",
    ),
    "ordinal words": (("fit", "in.csv", "--target", "grade", "--columns", "capital", "--ordinal"), "order"),
    "predict: no model": (("predict", "absent", "in.csv"), "absent"),
    "predict: a column is missing": (("predict", "MODEL", "short.csv"), "short.csv lacks the model's column 'labour'"),
    "predict: a cell is empty": (
        ("predict", "MODEL", "holes.csv"),
        "row 3: column 'labour' must hold finite numbers, got an",
    ),
    "predict: its column is there": (("predict", "MODEL", "taken.csv"), "'prediction'"),
    "certify: unknown column": (("certify", "MODEL", "--domain", "land=0:1"), "'land'"),
    "certify: no folder of a model": (("certify", "."), "config.json is missing"),
    "audit: points": (("audit", "MODEL", "in.csv", "--points", "2"), "n_points"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_leaves_no_file(case, call, file, saved, table, tmp_path):
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "shapes.json").write_text('{"labour": "convex"}')
    table[["capital"]].to_csv("short.csv", index=False)
    table.assign(prediction=1).to_csv("taken.csv", index=False)
    (tmp_path / "holes.csv").write_text("capital,labour\n1,2\n1,\n")
    before = {path.name for path in tmp_path.iterdir()}
    words, says = BAD[case]
    words = [saved["regressor"] if word == "MODEL" else word for word in words]
    code, out, err = call(*words, "--out", "result")
    assert code == 2
    assert len(err.strip().splitlines()) == 1, err
    assert says in err
    assert out == ""
    assert {path.name for path in tmp_path.iterdir()} == before


def test_fit_needs_a_folder(call, file):
    code, _, err = call(*FIT)
    assert code == 2
    assert "--out" in err


def test_help_of_every_verb(call):
    for verb in ("fit", "predict", "certify", "audit"):
        code, out, _ = call(verb, "--help")
        assert code == 0
        assert "Usage" in out


def test_no_module_has_the_name_of_a_public_function():
    """Imported, it would take the function's place."""
    assert not {module.name for module in pkgutil.iter_modules(comonet.__path__)} & set(comonet.__all__)
    assert callable(comonet.certify)
    assert callable(comonet.audit)
