"""The command line, end to end in a folder of its own."""

from __future__ import annotations

import io
import json
import pkgutil

import numpy as np
import pandas as pd
import pytest

from paperworks import transitive
from paperworks.transitive import (
    TransitiveRanker,
    TransitiveRankerCV,
    TransitiveTask,
    load_jensen,
    predict_margins,
)

pytestmark = pytest.mark.untyped

# An animal called nan, one called 007 and one called 7.
GAMES = "winner,loser,count\nnan,007,5\n007,7,4\nnan,7,3\n7,Rex,6\nRex,nan,2\n007,Rex,0\n"
NAMES = ["Angels", "Braves", "Cubs", "Mets", "Reds", "Twins", "Royals"]


@pytest.fixture
def call(command_of):
    return command_of("transitive")


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """Return a folder of a small random language model that knows whole words."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[unk]", "Q", ":", "Will", "the", "win", "against", "?", "A", "Yes", "No", "maybe", "so", *NAMES]
    tokens = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[unk]"))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    folder = tmp_path_factory.mktemp("model")
    with torch.random.fork_rng():
        transformers.LlamaForCausalLM(config).eval().save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokens, unk_token="[unk]").save_pretrained(folder)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield str(folder)
    torch.set_num_threads(threads)


def frame(text, **options):
    return pd.read_csv(io.StringIO(text), **options)


def told(err):
    """Return the facts on standard error by name."""
    return dict(line.split(": ", 1) for line in err.splitlines() if ": " in line)


def test_predict(call, tmp_path):
    words = ("--n", "9", "--exception", "5,3", "--alpha", "0.4")
    code, out, err = call("predict", *words, "--plot", "p.png", "--report", "p.html")
    assert code == 0
    expected = predict_margins(TransitiveTask(9, exception=(5, 3)), 0.4).table()
    pd.testing.assert_frame_equal(frame(out), expected, check_dtype=False)
    assert told(err)["accuracy"] == "boundary 0.625, cross 0.888889, cycle 1, exception 1, rule 1, within 1"
    assert "2–6" in told(err)["wrong pairs"]
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "p.html").read_text().count("data:image/svg") == 2


def test_predict_of_named_items_and_listed_comparisons(call, tmp_path):
    (tmp_path / "names.txt").write_text("\n".join(NAMES) + "\n\n")
    edges = "winner,loser\nAngels,Braves\nBraves,Cubs\n2,3\nMets,Reds\nReds,Twins\nTwins,Royals\n"
    words = ("--items", "names.txt", "--edges", "in.csv", "--exception", "Reds,Cubs", "--weight", "3", "--ridge", "0.1")
    code, out, _ = call("predict", *words, "--alpha", "0.2", "--time", "5", "--json", text=edges)
    assert code == 0
    found = json.loads(out)
    task = TransitiveTask(7, exception=(4, 2), items=NAMES, exception_weight=3)
    margins = predict_margins(task, 0.2, 0.1, time=5).margins
    row = next(row for row in found["rows"] if (row["first_item"], row["second_item"]) == ("Angels", "Royals"))
    assert row["margin"] == pytest.approx(margins[0, 6], rel=1e-12)
    assert found["time"] == 5
    assert all(set(pair) <= set(NAMES) for pair in found["wrong_pairs"])


def test_critical(call, tmp_path):
    code, out, err = call("critical", "--side", "3", "--span", "2")
    assert code == 0
    assert frame(out)["critical"].tolist() == pytest.approx([1 / 3])
    assert told(err)["infinitely wide ReLU networks above it"] == (
        "readout trained: depth 4 and more; all layers trained: depth 2 and more"
    )
    code, out, _ = call("critical", "--side", "4", "--side", "3", "--side", "3,4", "--side", "2", "--json")
    values = [row["critical"] for row in json.loads(out)["rows"]]
    assert values[0] == pytest.approx(3 - 2 * np.sqrt(2))
    assert values[1] > values[2] > values[0]
    assert values[3] is None
    code, out, err = call("critical", "--side", "2", "--plot", "c.svg", "--report", "c.html")
    assert code == 0
    assert told(err)["critical"] == "none"
    assert "Of 7 items, 4 beats 2" in (tmp_path / "c.svg").read_text()


def test_rank(call, tmp_path):
    words = ("--plot", "r.png", "--report", "r.html", "--exceptions", "upsets.csv")
    code, out, err = call("rank", "in.csv", *words, text=GAMES)
    assert code == 0
    table = frame(out, dtype={"item": str}, keep_default_na=False)
    games = [("nan", "007"), ("007", "7"), ("nan", "7"), ("7", "Rex"), ("Rex", "nan")]
    ranker = TransitiveRanker().fit(games, sample_weight=[5, 4, 3, 6, 2])
    assert table["item"].tolist() == ranker.ranking_.tolist() == ["nan", "007", "7", "Rex"]
    assert table["place"].tolist() == [1, 2, 3, 4]
    assert np.allclose(table["rating"], np.sort(ranker.ranks_)[::-1])
    assert table[["wins", "losses"]].to_numpy().tolist() == [[8, 2], [4, 5], [6, 7], [2, 6]]
    assert "Rex beat nan, surprise" in told(err)["exception"]
    assert (told(err)["comparisons"], told(err)["exceptions"]) == ("20", "1")
    upsets = pd.read_csv(tmp_path / "upsets.csv", keep_default_na=False)
    assert upsets[["winner", "loser"]].to_numpy().tolist() == [["Rex", "nan"]]
    assert "data:image/svg" in (tmp_path / "r.html").read_text()


def test_rank_chooses_by_games_held_out(call):
    code, out, err = call("rank", "-", "--cv", "--json", stdin=GAMES)
    assert code == 0
    found = json.loads(out)
    rows = [("nan", "007")] * 5 + [("007", "7")] * 4 + [("nan", "7")] * 3 + [("7", "Rex")] * 6 + [("Rex", "nan")] * 2
    ranker = TransitiveRankerCV().fit(rows)
    assert (found["conjunctivity"], found["ridge"]) == (ranker.conjunctivity_, ranker.ridge_)
    assert found["accuracy_held_out"] == pytest.approx(ranker.cv_results_["accuracy"].max())
    assert len(found["cross_validation"]) == 15
    assert [row["winner"] for row in found["exceptions"]] == ["Rex"]
    assert "cross-validating on 20 comparisons" in err
    _, out, _ = call("rank", "-", "--cv", "--alpha", "0.5", "--json", stdin=GAMES)
    assert {row["conjunctivity"] for row in json.loads(out)["cross_validation"]} == {0.5}


def test_rank_gives_the_chances_of_pairs(call, tmp_path):
    (tmp_path / "next.csv").write_text("first,second\nRex,nan\nnan,7\n")
    code, out, _ = call("rank", "in.csv", "--pairs", "next.csv", "--alpha", "0.6", "--ridge", "0.2", text=GAMES)
    assert code == 0
    table = frame(out, keep_default_na=False)
    assert table["first"].tolist() == ["Rex", "nan"]
    rows = [("nan", "007")] * 5 + [("007", "7")] * 4 + [("nan", "7")] * 3 + [("7", "Rex")] * 6 + [("Rex", "nan")] * 2
    ranker = TransitiveRanker(0.6, 0.2).fit(rows)
    assert np.allclose(table["probability"], ranker.predict_proba([("Rex", "nan"), ("nan", "7")])[:, 0])
    assert (table["margin"] > 0).all()


def test_rank_signed_values(call):
    code, out, _ = call("rank", "in.csv", text="first,second,value\na,b,-2\nb,c,0.5\nc,a,0\n")
    assert code == 0
    assert frame(out)["item"].tolist() == ["b", "c", "a"]
    assert frame(out)["wins"].tolist() == [2, 0, 0]


def test_fit(call, tmp_path):
    words = ("fit", "--example", "monkeys", "--plot", "f.pdf", "--report", "f.html")
    code, out, err = call(*words)
    assert code == 0
    observed = load_jensen().groupby(["first", "second"])["value"].mean()
    assert np.allclose(frame(out).set_index(["first", "second"])["observed"], observed)
    facts = told(err)
    assert (facts["link"], facts["identified"], facts["r2"][:4]) == ("logistic", "yes", "0.87")
    assert (tmp_path / "f.pdf").read_bytes().startswith(b"%PDF")


def test_fit_finds_what_made_the_answers(call, tmp_path):
    task = TransitiveTask(9, exception=(5, 3))
    made = predict_margins(task, 0.4, 0.05).table()[["first", "second", "margin"]]
    made = made.assign(value=3 * made["margin"], n=2).drop(columns="margin").astype({"value": object})
    made.loc[0, "value"] = ""
    made.to_csv(tmp_path / "in.csv", index=False)
    code, out, _ = call("fit", "in.csv", "--n", "9", "--exception", "5,3", "--json")
    assert code == 0
    found = json.loads(out)
    assert [found[name] for name in ("link", "identified")] == ["identity", True]
    assert [found[name] for name in ("conjunctivity", "ridge", "scale")] == pytest.approx([0.4, 0.05, 3], rel=1e-3)
    assert [2, 6] in found["predicted_wrong"]
    assert found["reversed_from_n_items"] == 9
    assert found["rows"][0]["observed"] is None
    _, out, _ = call("fit", "in.csv", "--n", "9", "--exception", "5,3", "--no-ridge", "--pairs", "test", "--json")
    assert json.loads(out)["ridge"] == 0


def test_reversals_begin_where_the_closed_form_says(call, tmp_path):
    """At α = 0.2 without ridge: above the critical 0.1716 of 11 items, below the third of 9."""
    made = predict_margins(TransitiveTask(7), 0.2).table()[["first", "second", "margin"]]
    made.rename(columns={"margin": "value"}).to_csv(tmp_path / "in.csv", index=False)
    code, out, _ = call("fit", "in.csv", "--n", "7", "--no-ridge", "--json", "--link", "identity")
    assert code == 0
    assert json.loads(out)["conjunctivity"] == pytest.approx(0.2, abs=1e-4)
    assert json.loads(out)["reversed_from_n_items"] == 11


def test_reversals_begin_earlier_with_an_exception_that_is_shown_often(call, tmp_path):
    """At α = 0.02 and λ = 0.08: with 13 items, though with 15 if it were shown as often as the rest."""
    task = TransitiveTask(9, (5, 3), exception_weight=20.0)
    made = predict_margins(task, 0.02, 0.08).table()[["first", "second", "margin"]]
    made.rename(columns={"margin": "value"}).to_csv(tmp_path / "in.csv", index=False)
    code, out, _ = call("fit", "in.csv", "--n", "9", "--exception", "5,3", "--weight", "20", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["conjunctivity"], found["ridge"]) == (pytest.approx(0.02, abs=1e-4), pytest.approx(0.08, abs=1e-4))
    assert found["reversed_from_n_items"] == 13
    wide = predict_margins(TransitiveTask(13, (7, 5), exception_weight=20.0), 0.02, 0.08)
    assert wide.wrong_pairs().query("cls == 'cross'")[["first", "second"]].to_numpy().tolist() == [[4, 8]]


def test_lm(call, model_folder, tmp_path):
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    words = ("lm", "--model", model_folder, "--items", "names.txt", "--exception", "4,2", "--l2", "1e-3")
    code, out, err = call(*words, "--plot", "lm.png", "--report", "lm.html")
    assert code == 0
    table = frame(out)
    assert table[["first_item", "second_item"]].iloc[0].tolist() == ["Angels", "Braves"]
    assert np.allclose(table["after"], table[["after_given", "after_reversed"]].mean(axis=1))
    mirrored = table.assign(first=6 - table["second"], second=6 - table["first"])
    both = table.merge(mirrored, on=["first", "second"], suffixes=("", "_mirrored"))
    assert np.allclose(both["before"], -both["before_mirrored"], atol=1e-5)  # both orders are asked of one model
    facts = told(err)
    assert facts["train accuracy"] == "1"
    assert 0 < float(facts["frozen conjunctivity"]) < 1
    assert facts["nearest cross"] == "Braves–Twins"
    assert float(facts["nearest cross margin after"]) == pytest.approx(
        table.query("first == 1 and second == 5")["after"].item(), abs=1e-5
    )
    shown = table.query("trained")
    assert (shown["after"] * shown["truth"] > 0).all()
    assert "data:image/svg" in (tmp_path / "lm.html").read_text()


def test_lm_of_one_order_keeps_a_record(call, model_folder, tmp_path):
    (tmp_path / "names.txt").write_text("\n".join(NAMES[:5]))
    words = ("--items", "names.txt", "--one-order", "--answers", "maybe,so", "--anchors", "Twins,Royals")
    more = ("--method", "top", "--layers", "1", "--epochs", "3", "--lr", "0.01", "--seed", "4")
    code, out, err = call("lm", "--model", model_folder, *words, *more, "-o", "lm.json")
    assert (code, out) == (0, "")
    found = json.loads((tmp_path / "lm.json").read_text())
    assert list(found["runs"]) == ["given"]
    record = found["runs"]["given"]
    assert (record["seed"], record["method"], record["epochs"]) == (4, "top", 3)
    assert record["prompt"]["anchors"] == ["Twins", "Royals"]
    assert record["items"] == NAMES[:5]
    assert "nearest_cross" not in found
    assert "reading the language model" in err


CHOICES = "first,second,value\n0,1,0.9\n0,2,0.8\n1,2,0.7\n0,3,0.9\n"
BAD = {
    "predict: no items": (("predict", "--alpha", "0.1"), None, "--n"),
    "predict: alpha": (("predict", "--n", "5", "--alpha", "1.5"), None, "conjunctivity must be in [0, 1]"),
    "predict: one item": (("predict", "--n", "1", "--alpha", "0"), None, "n_items"),
    "predict: no exception": (
        ("predict", "--n", "5", "--alpha", "0", "--exception", "1,0"),
        None,
        "adjacent or in order: not an exception",
    ),
    "predict: exception of one": (("predict", "--n", "5", "--alpha", "0", "--exception", "4"), None, "WINNER,LOSER"),
    "predict: exception of words": (("predict", "--n", "5", "--alpha", "0", "--exception", "a,b"), None, "got 'a'"),
    "predict: number of names": (
        ("predict", "--n", "3", "--alpha", "0", "--items", "in.csv"),
        "a\nb\n",
        "number of names in in.csv, which is 2, got 3",
    ),
    "predict: no names": (("predict", "--alpha", "0", "--items", "in.csv"), "\n", "got none"),
    "predict: edges": (("predict", "--n", "3", "--alpha", "0", "--edges", "in.csv"), "winner\n1\n", "'loser'"),
    "predict: edge out of range": (
        ("predict", "--n", "3", "--alpha", "0", "--edges", "in.csv"),
        "winner,loser\n0,3\n",
        "row 0",
    ),
    "predict: picture": (("predict", "--n", "3", "--alpha", "0", "--plot", "a.gif"), None, "--plot"),
    "critical: side": (("critical", "--side", "three"), None, "--side must be K or ABOVE,BELOW, got 'three'"),
    "critical: three sides": (("critical", "--side", "1,2,3"), None, "got '1,2,3'"),
    "critical: no side": (("critical", "--side", "0"), None, "items_per_side"),
    "critical: span": (("critical", "--side", "3", "--span", "1"), None, "span must be at least 2"),
    "critical: ridge": (("critical", "--side", "3", "--ridge", "-1"), None, "ridge"),
    "rank: no file": (("rank", "absent.csv"), None, "absent.csv"),
    "rank: empty": (("rank", "in.csv"), "winner,loser\n", "in.csv has no rows"),
    "rank: column": (("rank", "in.csv"), "winner,beaten\na,b\n", "lacks the column 'loser'; it has 'winner', 'beaten'"),
    "rank: empty cell": (("rank", "in.csv"), "winner,loser\na,b\n,c\n", "in.csv, row 3: column 'winner' is empty"),
    "rank: itself": (
        ("rank", "in.csv", "--cv"),
        "winner,loser,count\na,b,9\nc,c,9\n",
        "in.csv, row 3: compares an item with itself: 'c'",
    ),
    "rank: two tables in one place": (
        ("rank", "in.csv", "--exceptions", "result.csv"),
        "winner,loser\na,b\n",
        "--exceptions must be a file of its own, got result.csv",
    ),
    "rank: one stream for two tables": (("rank", "-", "--pairs", "-"), None, "cannot both be read from standard input"),
    "fit: items of the example": (("fit", "--example", "monkeys", "--n", "9"), None, "--n must be 7"),
    "rank: no games": (("rank", "in.csv"), "winner,loser,count\na,b,0\n", "in.csv has no games: every count is 0"),
    "rank: blanks": (("rank", "in.csv"), "winner, loser\na,b\n", "lacks the column 'loser'; it has 'winner', ' loser'"),
    "rank: count of words": (
        ("rank", "in.csv"),
        "winner,loser,count\na,b,some\n",
        "row 2: column 'count' must hold finite numbers >= 0, got some",
    ),
    "rank: negative count": (("rank", "in.csv"), "winner,loser,count\na,b,1\na,b,-1\n", "row 3"),
    "rank: part of a game": (
        ("rank", "in.csv", "--cv"),
        "winner,loser,count\na,b,1\na,b,0.5\n",
        "row 3: column 'count' must hold whole numbers where games are held out, got 0.5",
    ),
    "rank: many games": (("rank", "in.csv", "--cv"), "winner,loser,count\na,b,1e12\n", "at most 10,000,000"),
    "rank: few games": (("rank", "in.csv", "--cv"), "winner,loser\na,b\nb,c\n", "in.csv has 2 games, of which --cv"),
    "rank: no value": (("rank", "in.csv"), "first,second\na,b\n", "lacks the column 'value'"),
    "rank: unknown item": (
        ("rank", "in.csv", "--pairs", "choices.csv"),
        "winner,loser,count\n0,1,4\n1,0,5\n0,1,1\n2,1,0\n",
        "choices.csv has items without a game in in.csv: '2', '3'",
    ),
    "fit: no table": (("fit", "--n", "7"), None, "neither"),
    "fit: both": (("fit", "in.csv", "--n", "7", "--example", "monkeys"), CHOICES, "both"),
    "fit: unknown example": (("fit", "--example", "moon"), None, "'moon'"),
    "fit: no items": (("fit", "in.csv"), CHOICES, "--n"),
    "fit: an item out of range": (("fit", "in.csv", "--n", "3"), CHOICES, "observed must be items 0 to 2, got (0, 3)"),
    "fit: an item of no name": (("fit", "in.csv", "--n", "3"), "first,second,value\na,1,1\n", "got 'a'"),
    "fit: value": (("fit", "in.csv", "--n", "4"), CHOICES + "1,3,much\n", "row 6: column 'value' must hold finite"),
    "fit: few answers": (("fit", "in.csv", "--n", "4", "--pairs", "test"), CHOICES, "cannot identify conjunctivity"),
    "fit: shares": (
        ("fit", "in.csv", "--n", "4", "--link", "logistic"),
        CHOICES + "1,3,7\n",
        "value must be shares in [0, 1]",
    ),
    "fit: link": (("fit", "in.csv", "--n", "4", "--link", "probit"), CHOICES, "link"),
    "lm: no names": (("lm",), None, "neither"),
    "lm: many names": (("lm", "--example", "real", "--n", "90"), None, "--n must be at most 28"),
    "lm: few names": (("lm", "--example", "real", "--n", "3"), None, "at least 4 items, got 3"),
    "lm: method": (("lm", "--example", "real", "--method", "prompt"), None, "--method"),
    "lm: template": (("lm", "--example", "real", "--template", "Is {a} good?"), None, "template"),
    "lm: answers": (("lm", "--example", "real", "--answers", "Yes"), None, "--answers"),
    "lm: exception": (("lm", "--example", "real", "--exception", "9,3"), None, "items 0 to 8"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_leaves_no_file(case, call, tmp_path):
    words, text, says = BAD[case]
    (tmp_path / "choices.csv").write_text(CHOICES)
    code, out, err = call(*words, "--out", "result.csv", text=text)
    assert code == 2
    lines = [line for line in err.strip().splitlines() if "…" not in line]
    assert len(lines) == 1, err
    assert says in err
    assert out == ""
    assert {path.name for path in tmp_path.iterdir()} <= {"choices.csv", "in.csv"}


@pytest.mark.filterwarnings("always")
def test_components_are_warned_of(call):
    code, _, err = call("rank", "in.csv", text="winner,loser\na,b\nc,d\n")
    assert code == 0
    assert "warning: 2 components: ranks are not comparable across them" in err


def test_answers_of_more_than_one_token(call, model_folder):
    words = ("lm", "--model", model_folder, "--example", "real", "--answers", "Yes:,No")
    code, out, err = call(*words)
    assert code == 2
    assert "Yes:" in err.splitlines()[-1]
    assert out == ""


def test_a_device_that_is_not_here(call):
    pytest.importorskip("torch")
    code, out, err = call("lm", "--example", "real", "--device", "abacus")
    assert (code, out) == (2, "")
    assert err.startswith("paperworks: --device must be one that torch can use here, got 'abacus': ")
    assert err.count("\n") == 1


def test_help_of_every_verb(call):
    for verb in ("predict", "critical", "rank", "fit", "lm"):
        code, out, _ = call(verb, "--help")
        assert code == 0
        assert "Usage" in out


def test_no_module_has_the_name_of_a_public_function():
    """Imported, it would take the function's place."""
    assert not {module.name for module in pkgutil.iter_modules(transitive.__path__)} & set(transitive.__all__)
    assert callable(transitive.finetune)
    assert callable(transitive.conjunctivity)
