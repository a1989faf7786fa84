from __future__ import annotations

import io
import json

import pandas as pd
import pytest

pytestmark = pytest.mark.untyped

BIDS = "agent,bid,budget\nnlp,4,1\nvision,2,1\nspeech,1,9\n"
AGENTS = "agent,family,a,b,p,points,budget\nlin,linear,3,,,,1\nlog,log,2,0.5,,,2\npw,piecewise,,,,0:0;1:2;4:3.5,5\n"
ROUNDS = "round,agent,bid\n0,a,3\n0,b,2\n1,a,4\n1,b,50\n"
STREAM = '{"a": 3, "b": 2}\n{"bids": {"a": 1, "c": 5}, "capacity": 7}\n'


@pytest.fixture
def call(command_of):
    return command_of("allocation")


def frame(text):
    return pd.read_csv(io.StringIO(text))


def test_clear(call):
    code, out, _ = call("clear", "in.csv", "--alpha", "0.5", text=BIDS)
    assert code == 0
    assert frame(out)["share"].tolist() == pytest.approx([16 / 21, 4 / 21, 1 / 21])
    assert frame(out)["payment"].tolist() == pytest.approx([3.491486, 0.872872, 0.218218], abs=1e-6)


def test_clear_within_budgets_in_whole_units(call):
    code, out, _ = call(
        "clear", "in.csv", "--alpha", "0.5", "--cap", "harmonic", "--capacity", "10", "--integer", text=BIDS
    )
    assert code == 0
    table = frame(out)
    assert (table["payment"] <= [1, 1, 9]).all()
    assert table["units"].sum() == 10


def test_solve_the_embedded_speedups(call):
    code, out, err = call("solve", "--example", "speedups", "--alpha", "0.25", "--capacity", "24")
    assert code == 0
    assert frame(out)["amount"].sum() == pytest.approx(24)
    assert "efficiency 0.986511" in err


def test_solve_as_json_to_a_file(call, tmp_path):
    code, out, _ = call("solve", "in.csv", "--budgets", "private", "-o", "eq.json", "--report", "eq.html", text=AGENTS)
    assert (code, out) == (0, "")
    found = json.loads((tmp_path / "eq.json").read_text())
    assert {row["agent"] for row in found["rows"]} == {"lin", "log", "pw"}
    assert 0 < found["efficiency"] <= 1
    assert "<svg" in (tmp_path / "eq.html").read_text() or "data:image/svg" in (tmp_path / "eq.html").read_text()


def test_agents_from_standard_input(call):
    code, out, _ = call("solve", "-", "--alpha", "1", stdin="agent,family,a\nx,linear,1\ny,linear,0.5\n")
    assert code == 0
    assert frame(out)["share"].tolist() == pytest.approx([2 / 3, 1 / 3])


def test_audit(call):
    code, out, _ = call("audit", "in.csv", "--alpha", "0.5", "--json", text=ROUNDS)
    found = json.loads(out)
    assert code == 0
    assert found["rounds"] == 2
    assert found["rows"][0]["efficiency_certificate"] == pytest.approx(0.869281, abs=1e-6)
    assert found["jumps"] == 2


def test_design(call):
    code, out, err = call("design", "--target-efficiency", "0.95")
    assert code == 0
    assert "alpha 0.0829481" in err
    assert "guarantee" in frame(out)


def test_stream_keeps_its_state(call, tmp_path):
    words = ("stream", "in.csv", "--alpha", "0.5", "--refill", "3", "--state", "state.json")
    code, out, _ = call(*words, text=STREAM)
    first = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["round"] for row in first] == [0, 1]
    assert sum(first[1]["amounts"].values()) == pytest.approx(7)
    _, out, _ = call(*words)
    assert [json.loads(line)["round"] for line in out.splitlines()] == [2, 3]


def test_a_stream_that_breaks_off_keeps_what_it_told(call, tmp_path):
    words = ("stream", "in.csv", "--refill", "3", "--state", "state.json")
    code, out, _ = call(*words, text='{"a": 3, "b": 2}\nnot json\n')
    assert code == 2
    assert len(out.splitlines()) == 1
    assert json.loads((tmp_path / "state.json").read_text())["rounds"] == 1
    code, out, _ = call(*words, "-o", "out.jsonl", text='{"a": 3, "b": 2}\nnot json\n')
    assert code == 2
    assert not (tmp_path / "out.jsonl").exists()
    assert json.loads((tmp_path / "state.json").read_text())["rounds"] == 1


def test_compare(call):
    words = ("compare", "--example", "toy", "--capacity", "64", "--alphas", "1,0.25", "--no-budgets")
    code, out, _ = call(*words, "--report", "c.html")
    table = frame(out).set_index("mechanism")
    assert code == 0
    assert table["efficiency"].max() == pytest.approx(1)
    assert table["efficiency"].iloc[1] > table["efficiency"].iloc[0]


BAD = {
    "clear: negative bid": (["clear", "in.csv", "--alpha", "1"], "agent,bid\na,-1\n", "a"),
    "clear: no bid column": (["clear", "in.csv", "--alpha", "1"], "agent,offer\na,1\n", "'bid'"),
    "clear: empty cell": (["clear", "in.csv", "--alpha", "1"], "agent,bid\na,1\nb,\n", "row 3"),
    "clear: word for a bid": (["clear", "in.csv", "--alpha", "1"], "agent,bid\na,much\n", "bid"),
    "clear: same agent twice": (["clear", "in.csv", "--alpha", "1"], "agent,bid\na,1\na,2\n", "'a'"),
    "clear: alpha": (["clear", "in.csv", "--alpha", "1.5"], BIDS, "alpha must be in [0, 1]"),
    "clear: capacity": (["clear", "in.csv", "--alpha", "1", "--capacity", "0"], BIDS, "capacity must be positive"),
    "clear: reserve": (["clear", "in.csv", "--alpha", "1", "--reserve", "-1"], BIDS, "reserve must be non-negative"),
    "clear: cap without budgets": (
        ["clear", "in.csv", "--alpha", "1", "--cap", "harmonic"],
        "agent,bid\na,1\n",
        "budget",
    ),
    "clear: empty file": (["clear", "in.csv", "--alpha", "1"], "", "in.csv"),
    "clear: no file": (["clear", "absent.csv", "--alpha", "1"], None, "absent.csv"),
    "solve: unknown family": (["solve", "in.csv"], "agent,family,a\nx,cubic,1\n", "row 2"),
    "solve: missing parameter": (["solve", "in.csv"], "agent,family,a\nx,linear,\n", "row 2"),
    "solve: not concave": (["solve", "in.csv"], "agent,family,points\nx,piecewise,0:0;1:1;2:3\n", "concave"),
    "solve: no agents": (["solve"], None, "--example"),
    "solve: both": (["solve", "in.csv", "--example", "toy"], AGENTS, "both"),
    "solve: unknown example": (["solve", "--example", "moon"], None, "moon"),
    "solve: budgets without a column": (
        ["solve", "in.csv", "--budgets", "private"],
        "agent,family,a\nx,linear,1\n",
        "budget",
    ),
    "solve: unknown mode": (["solve", "in.csv", "--budgets", "secret"], AGENTS, "secret"),
    "solve: reserve with public budgets": (
        ["solve", "in.csv", "--budgets", "public", "--reserve", "1"],
        AGENTS,
        "reserve",
    ),
    "audit: no column": (["audit", "in.csv", "--alpha", "1"], "round,agent\n0,a\n", "'bid'"),
    "audit: twice": (["audit", "in.csv", "--alpha", "1"], "round,agent,bid\n0,a,1\n0,a,2\n", "twice"),
    "audit: missing bid": (["audit", "in.csv", "--alpha", "1"], "round,agent,bid\n0,a,\n", "a in round 0"),
    "audit: alpha 0": (["audit", "in.csv", "--alpha", "0"], ROUNDS, "alpha"),
    "design: nothing asked": (["design"], None, "target_efficiency"),
    "design: noise": (["design", "--example", "toy", "--noise", "-1"], None, "noise"),
    "design: target": (["design", "--target-efficiency", "2"], None, "target"),
    "stream: not JSON": (["stream", "in.csv"], '{"a": 1}\nnot json\n', "line 2"),
    "stream: not an object": (["stream", "in.csv"], "[1, 2]\n", "line 1"),
    "stream: bad bid": (["stream", "in.csv"], '{"a": 1}\n{"a": -1}\n', "line 2"),
    "compare: alphas": (["compare", "--example", "toy", "--alphas", "1,x"], None, "--alphas"),
    "compare: alpha": (["compare", "--example", "toy", "--alphas", "7"], None, "alpha"),
    "unknown verb": (["conquer"], None, "conquer"),
    "unknown option": (["clear", "in.csv", "--alpha", "1", "--fast"], BIDS, "--fast"),
    "alpha is a word": (["clear", "in.csv", "--alpha", "half"], BIDS, "--alpha"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_leaves_no_file(case, call, tmp_path):
    words, text, says = BAD[case]
    writes = words[0] in ("clear", "solve", "audit", "design", "stream", "compare")
    code, out, err = call(*words, *(["-o", "result.csv", "--report", "r.html"] if writes else []), text=text)
    assert code == 2
    assert len(err.strip().splitlines()) == 1, err
    assert says in err
    assert "Traceback" not in err
    assert out == ""
    assert {path.name for path in tmp_path.iterdir()} <= {"in.csv"}


def test_help_of_every_verb(call):
    for verb in ("clear", "solve", "audit", "design", "stream", "compare"):
        code, out, _ = call(verb, "--help")
        assert code == 0
        assert "Usage" in out


class TestHostileInput:
    def test_one_agent(self, call):
        code, out, _ = call("solve", "in.csv", "--report", "r.html", text="agent,family,a,b\nx,log,1,2\n")
        assert code == 0
        assert frame(out)["share"].tolist() == [1.0]
        assert call("compare", "in.csv", "--report", "c.html")[0] == 0

    @pytest.mark.parametrize("verb", ["clear", "audit"])
    def test_cells_beyond_the_header(self, call, verb):
        code, out, err = call(verb, "in.csv", "--alpha", "0.5", text="agent,bid,round\na,1,2,3\nb,2,3,3\n")
        assert (code, out) == (2, "")
        assert "more cells in row 2" in err

    def test_agents_called_na(self, call):
        assert frame(call("clear", "in.csv", "--alpha", "1", text="agent,bid\nNA,1\nnull,3\n")[1]).share.sum() == 1
        assert call("solve", "in.csv", text="agent,family,a\nNA,linear,1\nb,linear,2\n")[0] == 0
        code, out, _ = call("audit", "in.csv", "--alpha", "1", text="round,agent,bid\n0,NA,1\n0,b,3\n")
        assert code == 0
        assert frame(out)["agents"].tolist() == [2]

    def test_a_bid_that_is_no_number(self, call):
        code, _, err = call("clear", "in.csv", "--alpha", "1", text="agent,bid\na,1\nb,x\n")
        assert code == 2
        assert "row 3: column 'bid' must be a number, got 'x'" in err

    def test_one_agent_twice_in_a_line(self, call):
        code, out, err = call("stream", stdin='{"a": 1, "a": 5}\n')
        assert (code, out) == (2, "")
        assert "line 1: bids must be distinct, got 'a' twice" in err

    @pytest.mark.parametrize("text", ['{"balances": [1], "rounds": 1}', "7", "x"])
    def test_bad_state(self, call, text):
        code, _, err = call("stream", "--state", "s.json", text=text, name="s.json", stdin='{"a": 1}\n')
        assert code == 2
        assert err.startswith("paperworks: s.json is not a state: ")

    def test_without_budgets_the_guarantee_is_about_efficiency(self, call):
        with_budgets = frame(call("compare", "in.csv", text=AGENTS)[1])
        without = frame(call("compare", "in.csv", "--no-budgets")[1])
        assert with_budgets["guarantee"].iloc[0] == 0.5
        assert without["guarantee"].iloc[0] > 0.75
        assert "liquid_welfare" in with_budgets
        assert "liquid_welfare" not in without
