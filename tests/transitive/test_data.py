"""Embedded choices and names, and files against their known counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from paperworks.core.data import DataUnavailable, path
from paperworks.transitive import data
from paperworks.transitive.data import (
    DESIGNS,
    FILES,
    INVENTED_TEAMS,
    REAL_TEAMS,
    fetch_lm_runs,
    load_dominance,
    load_dominance_groups,
    load_jensen,
    load_lm_pairs,
)
from paperworks.transitive.tasks import TransitiveTask


class TestJensen:
    def test_monkeys(self) -> None:
        table = load_jensen("monkeys")
        assert table.columns.tolist() == ["session", "first", "second", "value"]
        assert table.groupby("session").size().tolist() == [21] * 57
        assert (table["first"] < table["second"]).all()
        assert (table["first"].min(), table["second"].max()) == (0, 6)
        by_distance = table.groupby(table["second"] - table["first"])["value"].mean()
        assert by_distance.tolist() == pytest.approx([0.648, 0.739, 0.805, 0.856, 0.903, 0.931], abs=6e-4)

    def test_humans(self) -> None:
        table = load_jensen("humans")
        assert table.columns.tolist() == ["subject", "distance", "value"]
        by_distance = table.groupby("distance")["value"].agg(["size", "mean"])
        assert by_distance["size"].tolist() == [19] * 6
        assert by_distance["mean"].iloc[[0, -1]].tolist() == pytest.approx([0.816, 0.987], abs=6e-4)

    @pytest.mark.untyped
    def test_no_other_species(self) -> None:
        with pytest.raises(ValueError, match="species must be one of 'monkeys', 'humans', got 'crows'"):
            load_jensen("crows")

    @pytest.mark.data("transitive/jensen2015_monkeys.csv")
    @pytest.mark.data("transitive/jensen2015_humans.csv")
    def test_the_embedded_files_are_those_described(self) -> None:
        for file in data.JENSEN.values():
            assert Path(data.__file__).with_name(file.name).read_bytes() == path(file).read_bytes()


class TestNames:
    def test_teams(self) -> None:
        assert (len(INVENTED_TEAMS), len(REAL_TEAMS)) == (30, 28)
        assert len({*INVENTED_TEAMS, *REAL_TEAMS}) == 58
        assert all(name.replace(" ", "").isalpha() and name.endswith("s") for name in INVENTED_TEAMS + REAL_TEAMS)


@pytest.fixture
def without_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave only what is embedded."""
    monkeypatch.setenv("PAPERWORKS_OFFLINE", "1")
    monkeypatch.delenv("PAPERWORKS_DATA", raising=False)


class TestLanguageModels:
    @pytest.mark.data("transitive/lm_pairs.csv.gz")
    @pytest.mark.parametrize("hierarchy", DESIGNS)
    def test_the_rows_are_those_of_the_task(self, hierarchy: str) -> None:
        task = TransitiveTask(*DESIGNS[hierarchy])
        table, pairs = load_lm_pairs(hierarchy, "real", "full", "qwen35-2b", "pre"), task.pair_table()
        assert table.columns.tolist() == ["first", "second", "value", "win_rate", "n", "trained", "exception"]
        pd.testing.assert_frame_equal(table[["first", "second"]], pairs[["first", "second"]], check_dtype=False)
        assert table["trained"].tolist() == pairs["trained"].tolist()
        assert table["exception"].tolist() == (pairs["cls"] == "exception").tolist()
        assert (table["n"] == 200).all()

    @pytest.mark.usefixtures("without_files")
    def test_finetuned_models_miss_the_pair_around_the_exception(self) -> None:
        classes = TransitiveTask(9, (5, 3)).pair_table()["cls"]
        runs = [load_lm_pairs("exc_mid_n9", "fake", "full", model) for model in ("llama32-1b", "qwen35-2b")]
        rates = sum(run["win_rate"] for run in runs) / 2
        by_class = rates.groupby(classes).mean()
        assert [by_class["within"], by_class["cross"]] == pytest.approx([0.932, 0.854], abs=6e-4)
        nearest = rates[(runs[0]["first"] == 2) & (runs[0]["second"] == 6)]
        assert nearest.item() == pytest.approx(0.503, abs=6e-4)

    @pytest.mark.usefixtures("without_files")
    def test_hyperparameters_choose_the_run(self) -> None:
        def rate(l2: float, pair: tuple[int, int]) -> float:
            table = load_lm_pairs("exc_mid_n9", "fake", "probe", "qwen35-4b", probe_l2=l2)
            return float(table.set_index(["first", "second"])["win_rate"].loc[pair])

        assert [rate(l2, (2, 6)) for l2 in (1e-4, 10)] == pytest.approx([0.55, 0.375], abs=6e-3)
        assert [rate(l2, (0, 2)) for l2 in (1e-4, 10)] == pytest.approx([0.94, 0.735], abs=6e-3)

    @pytest.mark.data("transitive/lm_pairs.csv.gz")
    def test_runs_that_are_not_embedded(self) -> None:
        assert len(load_lm_pairs("ti_n9", "poker", "lora", "llama32-3b", lora_r=64)) == 36
        assert len(load_lm_pairs("exc_far_n11", "fake", "probe", "qwen35-4b", probe_l2=50)) == 55

    @pytest.mark.usefixtures("without_files")
    @pytest.mark.parametrize(
        "run",
        [
            ("exc_mid_n9", "fake", "full", "qwen35-2b", "pre"),
            ("exc_mid_n9", "real", "probe", "qwen35-4b", "post", 10.0),
        ],
    )
    def test_runs_that_are_not_embedded_need_the_file(self, run: tuple[str, ...]) -> None:
        with pytest.raises(DataUnavailable, match=r"lm_pairs\.csv\.gz"):
            load_lm_pairs(*run[:5], probe_l2=run[5] if len(run) > 5 else None)

    @pytest.mark.data("transitive/lm_pairs.csv.gz")
    def test_what_is_embedded_is_what_the_file_says(self) -> None:
        runs = [
            (hierarchy, task, "full", model, None)
            for hierarchy, (n, _) in DESIGNS.items()
            for task in ("fake", "real", "poker")
            for model in ("llama32-1b", "qwen35-2b")
            if n == 9 or task != "poker"
        ]
        runs += [("exc_mid_n9", "fake", "probe", "qwen35-4b", l2) for l2 in (1e-4, 0.1, 1.0, 10.0, 20.0, 50.0)]
        embedded = [load_lm_pairs(*run, probe_l2=l2) for *run, l2 in runs]
        names = ["hier", "task", "setting", "model"]
        columns = ["rank_higher", "rank_lower", "logit_mean", "win_rate", "n", "is_train", "is_exception"]
        whole = pd.read_csv(path(data.LM_PAIRS))
        whole = whole[whole["phase"] == "post"]
        for (*run, l2), table in zip(runs, embedded, strict=True):
            found = whole[(whole[names] == run).all(axis=1)]
            found = found if l2 is None else found[found["probe_l2"] == l2]
            assert (table.to_numpy() == found[columns].to_numpy()).all()
        assert sum(map(len, embedded)) == len(pd.read_csv(data.EMBEDDED_LM_PAIRS)) == 1088
        assert data.EMBEDDED_LM_PAIRS.stat().st_size < 60_000

    @pytest.mark.data("transitive/lm_pairs.csv.gz")
    @pytest.mark.parametrize(
        ("arguments", "hyper", "message"),
        [
            (("exc_far_n11", "poker", "full", "qwen35-2b"), {}, "task must be one of 'fake', 'real', got 'poker'"),
            (("ti_n9", "fake", "full", "qwen35-4b"), {}, "model must be one of 'llama32-1b', 'qwen35-2b', got"),
            (("ti_n9", "fake", "lora", "qwen35-4b"), {"lora_r": 3}, "lora_r must be one of 4.0, 8.0, .*, got 3"),
        ],
    )
    def test_no_such_run(self, arguments: tuple[str, ...], hyper: dict[str, int], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            load_lm_pairs(*arguments, **hyper)

    @pytest.mark.parametrize(
        ("setting", "hyper", "message"),
        [
            ("lora", {}, "lora_r must be given for setting='lora', got None"),
            ("full", {"lora_r": 4}, "lora_r must not be given for setting='full', got 4"),
            ("lora", {"lora_r": 4, "probe_l2": 1.0}, "probe_l2 must not be given"),
        ],
    )
    def test_hyperparameters_of_the_setting_only(self, setting: str, hyper: dict[str, float], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            load_lm_pairs("ti_n9", "fake", setting, "qwen35-2b", **hyper)

    @pytest.mark.usefixtures("without_files")
    def test_single_runs_come_from_their_authors(self) -> None:
        with pytest.raises(DataUnavailable, match=r"take it from https://.*/data/exception/exc_far_n11__fake\.parquet"):
            fetch_lm_runs("exc_far_n11", "fake")
        with pytest.raises(ValueError, match="task must be one of 'fake', 'real', got 'poker'"):
            fetch_lm_runs("exc_far_n11", "poker")


class TestDominance:
    @pytest.mark.data("transitive/domarchive_edges.csv.gz")
    @pytest.mark.data("transitive/domarchive_meta.csv.gz")
    def test_groups(self) -> None:
        edges = load_dominance()
        assert (len(edges), edges["fileid"].nunique(), edges["count"].sum()) == (35_782, 436, 243_335)
        assert not edges.isna().to_numpy().any()
        assert (edges["winner"] != edges["loser"]).all()
        assert load_dominance_groups().index.tolist() == sorted(edges["fileid"].unique())

    @pytest.mark.data("transitive/domarchive_edges.csv.gz")
    def test_one_group(self) -> None:
        dogs = load_dominance("Cafazzo_2010a")
        assert dogs.columns.tolist() == ["winner", "loser", "count"]
        assert dogs["winner"].eq("nan").sum() == 13
        with pytest.raises(ValueError, match=r"fileid must be one of .* got 'nobody'"):
            load_dominance("nobody")


def test_every_file_is_described() -> None:
    assert len({str(file) for file in FILES}) == len(FILES) == 15
    assert all(file.slug == "transitive" and (file.size or file.url) for file in FILES)


def test_importing_the_data_is_light() -> None:
    code = "import sys, paperworks.transitive.data; assert not {'sklearn', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
