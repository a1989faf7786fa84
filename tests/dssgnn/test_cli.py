"""The command line, end to end in a folder of its own."""

from __future__ import annotations

import contextlib
import io
import json
import shutil

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch

from paperworks.cli import app
from paperworks.core.commands import run
from paperworks.dssgnn.data import graph_from_tables
from paperworks.dssgnn.estimator import DSSClassifier

pytestmark = pytest.mark.untyped

N = 36
QUICK = ("--epochs", "4", "--seed", "3")
TABLES = ("--nodes", "nodes.csv", "--edges", "edges.csv")
UNCERTAINTY = ["energy", "total", "aleatoric", "epistemic", "logit_sd"]


def write(tables, folder):
    for table, name in zip(tables, ("nodes.csv", "edges.csv"), strict=True):
        table.to_csv(folder / name, index=False)


@pytest.fixture(scope="module")
def tables():
    """Nodes of three kinds in a ring, of which four have no label, with features of very different scales."""
    rng = np.random.default_rng(0)
    kind = np.arange(N) // 12
    label = np.array(["007", "NA", "dog"], dtype=object)[kind]
    label[[0, 12, 24, 25]] = None
    nodes = pd.DataFrame(
        {
            "id": [f"0{i}" for i in range(N)],
            "income": 50_000 + 9000 * rng.standard_normal(N) + 8000 * kind,
            "depth": 0.001 * rng.standard_normal(N) + 0.001 * kind,
            "label": label,
            "member": np.arange(N) % 2,
            "flat": 7.5,
        }
    )
    after = np.roll(nodes["id"], -1)
    edges = pd.DataFrame({"source": nodes["id"], "target": after, "weight": rng.uniform(0.5, 1, N).round(3)})
    return nodes, edges


@pytest.fixture
def call(command_of, tables, tmp_path):
    """Run `paperworks dssgnn …` in a folder with nodes.csv and edges.csv; return code, stdout, stderr."""
    write(tables, tmp_path)
    return command_of("dssgnn")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, tables):
    """Folder of a run, and what was said in it."""
    folder = tmp_path_factory.mktemp("fitted")
    write(tables, folder)
    words = ["--nodes", str(folder / "nodes.csv"), "--edges", str(folder / "edges.csv"), "--test-fraction", "0.25"]
    with contextlib.redirect_stderr(io.StringIO()) as said, pytest.raises(SystemExit) as end:
        run(app, ["dssgnn", "fit", *words, *QUICK, "--out", str(folder / "run")])
    assert end.value.code == 0, said.getvalue()
    return folder / "run", said.getvalue()


def predictions(source):
    return pd.read_csv(source, dtype={"id": str, "pred": str}, keep_default_na=False)


def test_the_folder_of_a_run(fitted, tables):
    folder, said = fitted
    assert {path.name for path in folder.iterdir()} == {"model", "predictions.csv", "report.html"}
    table = predictions(folder / "predictions.csv")
    assert list(table) == ["id", "pred", "p_007", "p_NA", "p_dog", *UNCERTAINTY, "role"]
    assert table["id"].tolist() == tables[0]["id"].tolist()
    chances = table[["p_007", "p_NA", "p_dog"]].to_numpy()
    assert np.allclose(chances.sum(1), 1)
    assert table["pred"].tolist() == [("007", "NA", "dog")[i] for i in chances.argmax(1)]
    assert np.allclose(table["total"], table["aleatoric"] + table["epistemic"])
    # Of 11, 11 and 10 labelled nodes a quarter is 3, 3, 2, and 0.2 / 0.75 of what remains is 2, 2, 2.
    counts = table["role"].value_counts()
    assert counts.to_dict() == {"train": 18, "val": 6, "test": 8, "unlabelled": 4}
    assert table.index[table["role"] == "unlabelled"].tolist() == [0, 12, 24, 25]
    assert "18 nodes to learn from, 6 held out for validation, 8 for the test, 4 unlabelled" in said
    assert "36 nodes, 36 edges" in said
    assert "not used: flat\n" in said
    assert "'NA' is taken for a class" in said
    right = (table["pred"] == tables[0]["label"])[table["role"] == "test"].mean()
    assert f"8 test nodes: accuracy {right:.4f}" in said
    assert "warning" not in said


def test_the_report(fitted):
    folder, _ = fitted
    text = (folder / "report.html").read_text()
    assert text.count("data:image/svg") == 4
    for words in (
        "The most uncertain nodes",
        "Filters tried",
        "ppr-frozen",
        "energy that 95%",
        "Brier",
        "007, NA, dog",
    ):
        assert words in text
    table = predictions(folder / "predictions.csv")
    limit = table.loc[table["role"] == "val", "energy"].quantile(0.95)
    assert f"{limit:.4g}".replace("-", "") in text


def test_it_is_the_classifier_of_scaled_features(fitted, tables):
    """The model takes features as they are and gives what was learned from scaled ones, but for a constant."""
    nodes, edges = tables
    folder, _ = fitted
    table = predictions(folder / "predictions.csv")
    graph = graph_from_tables(nodes, edges, id="id", label="label").data
    x = graph.x.double()
    graph.x = torch.stack(
        [(x[:, 0] - x[:, 0].mean()) / x[:, 0].std(correction=0), (x[:, 1] - x[:, 1].mean()) / x[:, 1].std(correction=0),
         x[:, 2], 0 * x[:, 3]], 1
    ).float()  # fmt: skip
    masks = {f"{role}_mask": (table["role"] == role).to_numpy() for role in ("train", "val")}
    peer = DSSClassifier(epochs=4, random_state=3).fit(graph, **masks)
    assert np.allclose(table[["p_007", "p_NA", "p_dog"]], peer.predict_proba(graph), atol=1e-4)
    assert np.allclose(table["energy"], peer.ood_score(graph), atol=1e-3)
    model = DSSClassifier.load(folder / "model")
    assert model.filter_ == peer.filter_
    assert model.feature_names_in_.tolist() == ["income", "depth", "member", "flat"]
    assert model.classes_.tolist() == ["007", "NA", "dog"]


def test_score_matches_features_by_name(call, fitted, tables, tmp_path):
    folder, _ = fitted
    nodes, _ = tables
    order = np.random.default_rng(1).permutation(N)
    moved = nodes.iloc[order][["flat", "label", "member", "depth", "id", "income"]].assign(colour="red")
    moved.to_csv(tmp_path / "moved.csv", index=False)
    code, out, err = call("score", "--model", str(folder / "model"), "--nodes", "moved.csv", "--edges", "edges.csv")
    assert (code, err) == (0, "columns that the model does not use: label, colour\n")
    got, known = predictions(io.StringIO(out)), predictions(folder / "predictions.csv").iloc[order]
    assert list(got) == [name for name in known if name != "role"]
    assert got["id"].tolist() == known["id"].tolist()
    assert np.allclose(got[UNCERTAINTY], known[UNCERTAINTY], atol=1e-4)


def test_score_without_edges_and_as_json(call, fitted, tables, tmp_path):
    folder, _ = fitted
    tables[0].head(1).to_csv(tmp_path / "one.csv", index=False)
    words = ("score", "--model", str(folder / "model"), "--nodes", "one.csv", "-o", "s.json")
    assert call(*words)[:2] == (0, "")
    (row,) = json.loads((tmp_path / "s.json").read_text())
    assert row["id"] == "00"
    assert row["p_007"] + row["p_NA"] + row["p_dog"] == pytest.approx(1)


def test_no_validation_nodes_and_no_scaling(call, tables):
    words = ("--val-fraction", "0", "--filter", "ppr", "--no-scale", "--order", "9")
    code, _, err = call("fit", *TABLES[:2], *words, *QUICK, "--out", "run")
    assert code == 0
    assert "0 edges: 32 nodes to learn from, 0 held out for validation" in err
    assert "filter ppr; wrote" in err
    model = DSSClassifier.load("run/model")
    assert (model.order, model.q_train, model.filter) == (9, 10, "ppr")
    graph = graph_from_tables(tables[0], pd.DataFrame({"source": [], "target": []}), id="id", label="label").data
    peer = DSSClassifier(9, filter="ppr", epochs=4, validation_fraction=0, q_train=10, random_state=3).fit(graph)
    table = predictions("run/predictions.csv")
    assert np.allclose(table[["p_007", "p_NA", "p_dog"]], peer.predict_proba(graph))


@pytest.mark.filterwarnings("always")
def test_graphml(call, tables, tmp_path):
    graph = nx.Graph()
    for row in tables[0].itertuples():
        graph.add_node(row.id, income=row.income, depth=row.depth, remark="none")
        if row.label is not None:
            graph.nodes[row.id]["kind"] = 1 if row.label == "dog" else 5
    graph.add_edges_from(tables[1][["source", "target"]].to_numpy())
    nx.write_graphml(graph, tmp_path / "in.graphml")
    code, _, err = call("fit", "--graph", "in.graphml", "--label", "kind", *QUICK, "--out", "run")
    assert code == 0
    assert "4 unlabelled" in err
    assert "left out: remark" in err
    # Labels that some nodes lack are no feature of the model, and so not read.
    code, out, err = call("score", "--model", "run/model", "--graph", "in.graphml")
    assert (code, err) == (0, "")
    assert out.startswith("id,pred,p_1,p_5,energy")
    assert predictions(io.StringIO(out)).equals(predictions("run/predictions.csv").drop(columns="role"))


def archive(path, **change):
    rng = np.random.default_rng(0)
    masks = {f"{role}_masks": np.zeros((2, 12), bool) for role in ("train", "val", "test")}
    for i, role in enumerate(masks):
        masks[role][1, 3 * i : 3 * i + 3] = True
    content = {
        "node_features": rng.random((12, 3)),
        "node_labels": np.array([0, 3, 3] * 3 + [0, -1, -1]),
        "edges": np.stack([np.arange(11), np.arange(1, 12)], 1),
    }
    np.savez(path, **(content | masks | change))


def test_npz(call, tmp_path):
    """The masks are those of the file; classes are numbers, of which some may be absent."""
    archive(tmp_path / "in.npz")
    code, _, err = call("fit", "--graph", "in.npz", "--split", "1", *QUICK, "--out", "run")
    assert code == 0
    assert "3 nodes to learn from, 3 held out for validation, 3 for the test, 2 unlabelled" in err
    table = predictions("run/predictions.csv")
    assert table["role"].tolist() == ["train"] * 3 + ["val"] * 3 + ["test"] * 3 + ["unused"] + ["unlabelled"] * 2
    assert list(table)[:4] == ["id", "pred", "p_0", "p_3"]
    assert call("score", "--model", "run/model", "--graph", "in.npz", "--out", "s.csv")[0] == 0
    assert predictions("s.csv").equals(table.drop(columns="role"))
    archive(tmp_path / "wide.npz", node_features=np.zeros((12, 4)))
    code, out, err = call("score", "--model", "run/model", "--graph", "wide.npz")
    assert (code, out) == (2, "")
    assert "wide.npz must have the model's 3 features, got 4" in err


NODES = "id,a,b,label\nx,1,2,cat\ny,2,1,dog\nz,0,1,\n"
EDGES = "source,target\nx,y\n"
FIT = ("fit", *TABLES, "--out", "run")
BAD = {
    "no graph": (("fit", "--out", "run"), {}, "neither"),
    "two graphs": ((*FIT, "--graph", "in.npz"), {}, "both"),
    "edges of a file": (("fit", "--graph", "in.npz", "--edges", "edges.csv", "--out", "run"), {}, "--edges is for"),
    "id of a file": (("fit", "--graph", "in.npz", "--id", "id", "--out", "run"), {}, "--id is for --nodes"),
    "kind of file": (("fit", "--graph", "nodes.csv", "--out", "run"), {}, "suffix of --graph must be one of '.npz'"),
    "empty npz": (("fit", "--graph", "empty.npz", "--out", "run"), {"empty.npz": ""}, "empty.npz is not an npz file"),
    "part of an npz": (("fit", "--graph", "part.npz", "--out", "run"), {"part.npz": "PK\3\4"}, "not an npz file"),
    "label of npz": (("fit", "--graph", "in.npz", "--label", "l", "--out", "run"), {}, "--label is for tables"),
    "share of npz": (("fit", "--graph", "in.npz", "--val-fraction", ".5", "--out", "run"), {}, "has its own"),
    "split of npz": (("fit", "--graph", "in.npz", "--split", "2", "--out", "run"), {}, "split must be one of 0, 1"),
    "split of tables": ((*FIT, "--split", "0"), {}, "--split is for the masks of an .npz file"),
    "no such file": ((*FIT[:4], "absent.csv", *FIT[5:]), {}, "absent.csv: No such file"),
    "one stream": (("fit", "--nodes", "-", "--edges", "-", "--out", "run"), {}, "standard input"),
    "empty": (FIT, {"nodes.csv": "id,a,label\n"}, "nodes.csv has no rows"),
    "no id": ((*FIT, "--id", "name"), {}, "nodes must have a column 'name', got 'id', 'a', 'b', 'label'"),
    "no label": ((*FIT, "--label", "kind"), {}, "nodes must have a column 'kind'"),
    "no feature": (FIT, {"nodes.csv": "id,label\nx,cat\ny,dog\n"}, "column of features besides"),
    "repeated id": (FIT, {"nodes.csv": NODES + "x,1,1,cat\n"}, "nodes, row 5: column 'id' must name each node once"),
    "gap": (FIT, {"nodes.csv": NODES.replace("y,2", "y,")}, "nodes, row 3: column 'a' must hold finite numbers"),
    "word": (FIT, {"nodes.csv": NODES.replace("y,2", "y,red")}, "got red"),
    "unknown node": (FIT, {"edges.csv": EDGES + "y,w\n"}, "edges, row 3: column 'target' names w, which is no node"),
    "no target": (FIT, {"edges.csv": "source,to\nx,y\n"}, "edges must have a column 'target'"),
    "weight": (FIT, {"edges.csv": "source,target,weight\nx,y,-1\n"}, "edges, row 2: column 'weight'"),
    "unlabelled": (FIT, {"nodes.csv": "id,a,label\nx,1,\ny,2,\n"}, "at least two classes in 'label', got none"),
    "one class": (
        FIT,
        {"nodes.csv": "id,a,label\nx,1,cat\ny,2,cat\n"},
        "at least two classes in 'label', got only 'cat'",
    ),
    "few labels": (FIT, {}, "--val-fraction 0.2 of 2 labelled nodes leaves none of any class to hold out"),
    "share": ((*FIT, "--val-fraction", "1.5"), {}, "--val-fraction must be in [0, 1], got 1.5"),
    "shares": ((*FIT, "--test-fraction", "0.8"), {}, "must sum to less than 1, got 1"),
    "nothing to choose by": ((*FIT, "--val-fraction", "0"), {}, "--filter auto needs validation nodes"),
    "out is a file": ((*FIT[:-1], "nodes.csv"), {}, "--out must be a folder, got the file 'nodes.csv'"),
    "out is here": ((*FIT[:-1], "."), {}, "--out must name a folder"),
    "out holds other things": ((*FIT[:-1], "full"), {}, "got 'full', which holds 'notes.txt'"),
    "out holds no model": ((*FIT[:-1], "half"), {}, "got 'half', which holds 'report.html'"),
    "score: no model": (("score", "--model", "full", *TABLES), {}, "'full' is not a saved model"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_leaves_nothing(case, call, tmp_path):
    words, files, says = BAD[case]
    archive(tmp_path / "in.npz")
    for name, text in ({"nodes.csv": NODES, "edges.csv": EDGES} | files).items():
        (tmp_path / name).write_text(text)
    for name in ("full/notes.txt", "half/report.html"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("mine")
    before = {path.relative_to(tmp_path) for path in tmp_path.rglob("*")}
    code, out, err = call(*words)
    assert code == 2, err
    assert says in err
    assert err.count("\n") == 1
    assert out == ""
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*")} == before


def test_a_bad_setting_leaves_nothing(call, tmp_path):
    code, _, err = call("fit", *TABLES, "--filter", "gcn", "--out", "run")
    assert code == 2
    assert "filter must be one of 'auto', 'ppr'" in err.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_training_that_diverges(call, tables, tmp_path):
    nodes, _ = tables
    nodes.assign(income=nodes["income"] * 1e30).to_csv(tmp_path / "nodes.csv", index=False)
    code, _, err = call("fit", *TABLES, "--no-scale", *QUICK, "--out", "run")
    assert code == 2
    assert err.splitlines()[-1] == "paperworks: training diverged at epoch 1: leave out --no-scale"
    assert not (tmp_path / "run").exists()


def test_score_names_the_column_that_is_missing(call, fitted, tables, tmp_path):
    folder, _ = fitted
    tables[0].drop(columns="depth").to_csv(tmp_path / "less.csv", index=False)
    code, out, err = call("score", "--model", str(folder / "model"), "--nodes", "less.csv", "--out", "s.csv")
    assert (code, out) == (2, "")
    assert "less.csv lacks the model's column 'depth'; the columns are 'id', 'income', 'label'" in err
    assert not (tmp_path / "s.csv").exists()


def test_an_earlier_run_is_replaced(call, fitted, tmp_path):
    shutil.copytree(fitted[0], tmp_path / "deep" / "run")
    words = ("--val-fraction", "0", "--filter", "ppr", "--order", "0", "--epochs", "1", "--seed", "2")
    assert call("fit", *TABLES[:2], *words, "--out", "deep/run")[0] == 0
    assert DSSClassifier.load("deep/run/model").random_state == 2
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"run"}


def test_help_of_every_verb(call):
    for verb in ("fit", "score"):
        code, out, _ = call(verb, "--help")
        assert code == 0
        assert "Usage" in out
