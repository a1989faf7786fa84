"""The command line, end to end in a folder of its own."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from paperworks import anchoring
from paperworks.anchoring import cycle_mdp
from paperworks.core.extras import MissingExtra

pytestmark = pytest.mark.untyped

FOLDER = Path(anchoring.__file__).parent
ROCK = ",rock,paper,scissors\nrock,0,-2,1\npaper,2,0,-1\nscissors,-1,1,0\n"


@pytest.fixture
def call(command_of):
    return command_of("anchoring")


@pytest.fixture
def highspy():
    return pytest.importorskip("highspy")


def refused(result, *words):
    code, out, err = result
    assert code == 2
    assert out == ""
    assert err.startswith("paperworks: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_lp_writes_solution_history_picture_and_report(call, tmp_path, highspy):
    words = ("--out", "sol.csv", "--history", "h.csv", "--plot", "lp.svg", "--report", "r.html")
    code, out, err = call("lp", str(FOLDER / "afiro.mps"), *words)
    assert (code, out) == (0, "")
    told = dict(line.split(": ", 1) for line in err.splitlines())
    assert float(told["objective"]) == pytest.approx(-464.753142857, rel=1e-5)
    table = pd.read_csv("sol.csv")
    assert table["kind"].value_counts().to_dict() == {"variable": 32, "row": 27}
    variables = table[table["kind"] == "variable"].set_index("name")
    assert variables.loc["X01", "value"] == pytest.approx(80, abs=1e-3)
    assert (variables["value"] >= variables["lower"]).all()
    errors = pd.read_csv("h.csv")
    assert errors["it"].tolist() == list(range(0, int(told["iterations"]) + 1, 50))
    assert errors.iloc[-1][["primal", "dual", "gap"]].max() <= 1e-6
    assert "<svg" in (tmp_path / "lp.svg").read_text()
    assert "Linear programme" in (tmp_path / "r.html").read_text()


def test_lp_marginals_are_the_change_of_the_optimum(call, highspy):
    # max 3x + 2y with x + y <= 4 and x <= 3: x = 3, y = 1, and one more of a limit earns 2 and 1.
    model = "Maximize\n obj: 3 x + 2 y\nSubject To\n both: x + y <= 4\n one: x <= 3\nEnd\n"
    code, out, _ = call("lp", "m.lp", "--json", text=model, name="m.lp")
    found = json.loads(out)
    assert code == 0
    assert found["objective"] == pytest.approx(11, abs=1e-4)
    rows = {row["name"]: row for row in found["rows"]}
    assert rows["both"]["marginal"] == pytest.approx(2, abs=1e-4)
    assert rows["one"]["marginal"] == pytest.approx(1, abs=1e-4)
    assert rows["x"]["value"] == pytest.approx(3, abs=1e-4)


def test_lp_without_an_optimum_ends_with_1_and_a_ray(call, highspy):
    code, _, err = call("lp", str(FOLDER / "galenet.mps"), "--out", "g.csv")
    assert code == 1
    assert "infeasible" in err
    assert "objective" not in err
    table = pd.read_csv("g.csv")
    assert table["ray"].notna().equals(table["kind"] == "row")
    text = "Minimize\n obj: - x\nSubject To\n r: y <= 1\nEnd\n"
    code, out, err = call("lp", "u.lp", text=text, name="u.lp")
    assert code == 1
    assert "unbounded" in err
    ray = pd.read_csv(io.StringIO(out)).set_index("name")["ray"]
    assert ray["x"] == pytest.approx(1)
    assert np.isnan(ray["r"])
    code, _, err = call("lp", str(FOLDER / "adlittle.mps"), "--maxiter", "50")
    assert code == 1
    assert "50 iterations were made" in err


def test_lp_refuses_what_it_cannot_solve(call, highspy):
    refused(call("lp", "none.mps"), "none.mps")
    refused(call("lp", "in.csv", text="1,2\n"), "in.csv", "MPS")
    whole = "Minimize\n obj: x\nSubject To\n r: x >= 0.5\nGeneral\n x\nEnd\n"
    refused(call("lp", "w.lp", text=whole, name="w.lp"), "integer variables")
    code, out, _ = call("lp", "w.lp", "--relax", "--json")
    assert code == 0
    assert json.loads(out)["objective"] == pytest.approx(0.5, abs=1e-5)
    refused(call("lp", "w.lp", "--relax", "--tol", "-1"), "tol")
    refused(call("lp", "w.lp", "--plot", "x.doc"), "--plot")


def test_game_with_names_and_without(call):
    code, out, err = call("game", "in.csv", text=ROCK)
    table = pd.read_csv(io.StringIO(out))
    assert code == 0
    assert table["strategy"].tolist() == ["rock", "paper", "scissors"] * 2
    # A symmetric game: the weights are the payoffs of the other two against each other.
    assert table["probability"].to_numpy() == pytest.approx([0.25, 0.25, 0.5] * 2, abs=1e-8)
    assert "value: " in err
    code, out, _ = call("game", "-", "--json", stdin="3,-1\n-2,1\n")
    found = json.loads(out)
    assert code == 0
    assert found["value"] == pytest.approx(1 / 7, abs=1e-9)
    assert [row["strategy"] for row in found["rows"]] == ["0", "1", "0", "1"]
    assert [row["probability"] for row in found["rows"]] == pytest.approx([3 / 7, 4 / 7, 2 / 7, 5 / 7], abs=1e-8)
    _, named, _ = call("game", "in.csv", text="left,right\n3,-1\n-2,1\n")
    assert pd.read_csv(io.StringIO(named))["strategy"].tolist() == ["0", "1", "left", "right"]
    _, lone, _ = call("game", "in.csv", "--json", text="2\n5\n")
    assert json.loads(lone)["value"] == pytest.approx(5)


def test_game_that_is_not_solved_ends_with_1(call):
    code, _, err = call("game", "in.csv", "--maxiter", "1", text=ROCK)
    assert code == 1
    assert "within tolerance: no" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("in.csv",)),
        ("1,2\n3\n", ("line 2", "''")),
        ("1,x\n3,2\n", ("line 1", "'x'")),
        ("1,2\ninf,3\n", ("in.csv", "line 2", "finite", "inf")),
        ("1,nan\n3,2\n", ("in.csv", "line 1", "finite", "nan")),
        ("a,b\n", ("line 1", "'b'")),
    ],
)
def test_game_refuses_what_is_no_matrix(call, text, words):
    refused(call("game", "in.csv", text=text), *words)


def test_mdp_finds_values_and_actions(call):
    stay, go = np.eye(2), np.array([[0.0, 1.0], [0.0, 1.0]])
    np.savez("m.npz", P=[stay, go], R=[[0.0, 0.0], [1.0, 1.0]])
    code, out, err = call("mdp", "m.npz", "--gamma", "0.5")
    table = pd.read_csv(io.StringIO(out))
    assert code == 0
    assert table["value"].to_numpy() == pytest.approx([1, 2], abs=1e-7)
    assert table["action"].tolist() == [1, 0]
    assert "within tolerance: yes" in err


def test_mdp_anchors_where_plain_sweeps_go_round(call):
    P, R = cycle_mdp(20)
    np.savez("c.npz", P=P, R=R)
    words = ("mdp", "c.npz", "--gamma", "1", "--tol", "1e-3", "--maxiter", "6000", "--json")
    code, out, _ = call(*words)
    assert code == 0
    assert json.loads(out)["anchored_from_sweep"] > 0
    code, out, _ = call(*words, "--method", "plain")
    assert code == 1
    assert json.loads(out)["bellman_error"] > 0.1


def test_mdp_refuses_other_files(call, tmp_path):
    refused(call("mdp", "no.npz", "--gamma", "0.5"), "no.npz")
    refused(call("mdp", "in.csv", "--gamma", "0.5", text="1,2\n"), "npz file")
    np.savez("q.npz", Q=np.eye(2))
    refused(call("mdp", "q.npz", "--gamma", "0.5"), "P and R", "Q")
    np.savez("o.npz", P=np.array([{}]), R=np.ones((1, 1)))
    refused(call("mdp", "o.npz", "--gamma", "0.5"), "o.npz", "allow_pickle")
    np.savez("g.npz", P=np.ones((1, 2, 2)), R=np.ones((2, 1)))
    refused(call("mdp", "g.npz", "--gamma", "0.5"), "probabilities", "state 0")
    whole = (tmp_path / "g.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    refused(call("mdp", "cut.npz", "--gamma", "0.5"), "cut.npz")
    np.savez("c.npz", P=np.eye(2)[None], R=np.ones((2, 1)))
    refused(call("mdp", "c.npz", "--gamma", "1.5"), "gamma")


def test_rates_of_the_default_weights(call, tmp_path):
    words = ("--method", "extragradient", "--a", "1.5", "--b", "8", "--mu", ".75", "--plot", "rates.svg")
    code, out, err = call("rates", *words, "--n", "200", "--pep", "0", "--report", "r.html")
    table = pd.read_csv(io.StringIO(out)).set_index("k")
    assert code == 0
    assert table["spectral"][[1, 2, 4, 8, 16, 100]].to_numpy() == pytest.approx(
        [0.859375, 0.739909, 0.553015, 0.323576, 0.162120, 0.028932], abs=1e-6
    )
    assert (table["recurrence"] > table["spectral"]).all()
    assert table["pep"].isna().all()
    assert "certified: yes" in err
    assert "<svg" in (tmp_path / "rates.svg").read_text()
    assert "extragradient" in (tmp_path / "r.html").read_text()


def test_rates_with_semidefinite_programmes(call):
    pytest.importorskip("PEPit")
    code, out, _ = call("rates", "--method", "picard", "--n", "5", "--pep", "2", "--json")
    rows = json.loads(out)["rows"]
    assert code == 0
    assert [rows[k]["pep"] for k in (1, 2)] == pytest.approx([1, 2 / 3], abs=1e-4)
    assert [row["pep"] for row in rows[3:]] == [None] * 3
    assert [row["recurrence"] for row in rows] == pytest.approx([2 / (k + 1) for k in range(6)])


def test_rates_without_pepit_are_the_other_two(call, monkeypatch):
    def absent(*_):
        raise MissingExtra("PEPit is not installed: pip install 'paperworks[peers]'")

    monkeypatch.setattr("paperworks.anchoring.certificates.require", absent)
    code, out, err = call("rates", "--n", "5")
    assert code == 0
    assert "paperworks[peers]" in err
    assert len(out.splitlines()) == 7


def test_rates_says_what_is_not_certified(call):
    code, out, err = call("rates", "--method", "popov", "--mu", "0.55", "--n", "20", "--pep", "0")
    assert code == 0
    assert "certified: no" in err
    assert pd.read_csv(io.StringIO(out))["recurrence"].isna().all()
    _, _, err = call("rates", "--method", "forward", "--a", "0.5", "--n", "20", "--pep", "0")
    assert "warning: a = 0.5 is below the proven range" in err


def test_rates_refuses_weights_out_of_range(call):
    refused(call("rates", "--mu", "1.5"), "mu")
    refused(call("rates", "--method", "forward", "--mu", "0.5"), "--mu", "forward")
    refused(call("rates", "--method", "newton"), "--method")
    refused(call("rates", "--a", "8", "--b", "8", "--mu", ".75"), "a / b")
    refused(call("rates", "--n", "0"), "--n")
