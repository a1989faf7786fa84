"""Comparisons to try the theory and the ranker on: of language models, monkeys, people and animal groups; and names."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pandas as pd

from paperworks.core.data import DataFile, path
from paperworks.core.validation import check_choice

__all__ = [
    "DESIGNS",
    "FILES",
    "INVENTED_TEAMS",
    "REAL_TEAMS",
    "fetch_lm_runs",
    "load_dominance",
    "load_dominance_groups",
    "load_jensen",
    "load_lm_pairs",
]

DESIGNS: dict[str, tuple[int, tuple[int, int] | None]] = {
    "ti_n9": (9, None),
    "exc_mid_n9": (9, (5, 3)),
    "exc_mid_n11": (11, (6, 4)),
    "exc_far_n11": (11, (7, 3)),
}
"""Number of items and exception (winner, loser) of each design that language models were finetuned on; 0 is the best."""

INVENTED_TEAMS = (
    "Quorvans", "Zelmids", "Tarnoks", "Vossics", "Plimets", "Dravels", "Korlints", "Wexands", "Jubrins", "Ombracs",
    "Fenzols", "Gralders", "Hestavs", "Ildrems", "Yarvics", "Lomprets", "Mirzals", "Nandrics", "Prutans", "Rovelds",
    "Skarmets", "Thuvins", "Ulmaxes", "Brezzids", "Clovants", "Embrils", "Durnicks", "Arvodels", "Snelvars", "Xandrils",
)  # fmt: skip
"""Thirty made-up names of teams, of which a language model knows nothing."""

REAL_TEAMS = (
    "Angels", "Astros", "Athletics", "Blue Jays", "Braves", "Brewers", "Cardinals", "Cubs", "Diamondbacks", "Dodgers",
    "Giants", "Guardians", "Mariners", "Marlins", "Mets", "Nationals", "Orioles", "Padres", "Phillies", "Pirates",
    "Rangers", "Rays", "Reds", "Rockies", "Royals", "Tigers", "Twins", "Yankees",
)  # fmt: skip
"""Twenty-eight teams of Major League Baseball: all but the two Sox, which are left for the examples of a prompt."""

_LM_LICENCE = "no licence stated (aggregates of the public runs of arXiv 2605.22972, which is CC-BY-4.0)"
_RUNS_LICENCE = "no licence stated; the paper, arXiv 2605.22972, is CC-BY-4.0"
_DOMINANCE_LICENCE = "no licence stated (public research archive)"
_LM_RUNS = (
    "https://raw.githubusercontent.com/sflippl/ti-with-exceptions/"
    "a3ef1112732304ded4a49a0b39a6b83605f3fd8c/data/{}.parquet"
)
_JENSEN = (
    "https://raw.githubusercontent.com/sflippl/relational-generalization-in-ti/"
    "98516ce3e8bef05f72b27b32d286d165400b6b16/data/jensen_data_{}.rda"
)
_DOMARCHIVE = "https://raw.githubusercontent.com/DomArchive/DomArchive/9a5f84c74bca0568d31b28780d596b9a53c3dfd5/"

LM_RUNS = {
    (hierarchy, task): DataFile(
        "transitive",
        f"lm_runs/{hierarchy}__{task}.parquet",
        sha256,
        _RUNS_LICENCE,
        url=_LM_RUNS.format(f"{'ti' if hierarchy == 'ti_n9' else 'exception'}/{hierarchy}__{task}"),
    )
    for hierarchy, task, sha256 in [
        ("ti_n9", "fake", "522cc28f76acae65d4ab739181f191e5e89714969e1f6a78680c64259d5eb45b"),
        ("ti_n9", "poker", "5ebd5c851b0f8be510ef1f02396b2c214b380248a90bd81a6806d8836078ec18"),
        ("ti_n9", "real", "b3d8a9bb35c20cfa5a79791ca67805b83851039cb22f954f79e050d05edff661"),
        ("exc_mid_n9", "fake", "a70a0a84463e59a0465bb0f39c0e58430869d2b32b94b22a61f96e6353beb61b"),
        ("exc_mid_n9", "poker", "348ec427c904232b8ae49f754dabcecfb9611105d77cc56b436896cc3ece0933"),
        ("exc_mid_n9", "real", "567986c3703640d712973a46cf77381a33000a4b4bff63d7c0e6e01cbc06b4a8"),
        ("exc_mid_n11", "fake", "4727fcf90caae627e3e6c09817ad413122ee25f543abbc98972a8e4e287a78d9"),
        ("exc_mid_n11", "real", "95583ad66955f6bb38af80225b7682cf858f914fddc8c7e74d795ef02ef651a1"),
        ("exc_far_n11", "fake", "14cbd06f600745bbcb222ed37d3ec8b9ed63ab6d60f9ef4e67803a1b53a45ede"),
        ("exc_far_n11", "real", "dab438beb34990cf32a132a67291b7c47dde510993c9ff38f9d8e563481cfed6"),
    ]
}

LM_PAIRS = DataFile(
    "transitive",
    "lm_pairs.csv.gz",
    "cb2b2ce6873d7016257656034aafdd965c6dfa470d8772323611482eb3d53b33",
    _LM_LICENCE,
    build="means of transitive/lm_runs/*.parquet over seeds, directions of the hierarchy and orders of the prompt",
    size=297_726,
)
JENSEN = {
    species: DataFile(
        "transitive",
        f"jensen2015_{species}.csv",
        sha256,
        "CC-BY-4.0",
        build=f"rdata.read_rda of {_JENSEN.format(species)}, written as CSV",
        size=size,
    )
    for species, sha256, size in [
        ("monkeys", "0fb8742d020658b7b30548bff07fc2182f2424b2c9c8d8202b2f3a9f4efe3a52", 15_033),
        ("humans", "f09f97dccf0ac4a74a85e09f7027c99aa0fd4deb75e91b64de7062262dcca90b", 1_208),
    ]
}
DOMINANCE = DataFile(
    "transitive",
    "domarchive_edges.csv.gz",
    "7906ddb8edfd568725493d0cd491f9aee6d5f87a8dfcd8b1ff943952c67bef6f",
    _DOMINANCE_LICENCE,
    build=f"a table of winner, loser and count (positive, off the diagonal) of {_DOMARCHIVE}data/dom.data.RData",
    size=135_536,
)
DOMINANCE_GROUPS = DataFile(
    "transitive",
    "domarchive_meta.csv.gz",
    "ae89e7035082a6c5309fced7ba2e8ac2f145b6f6aacd1135aad152862c180a71",
    _DOMINANCE_LICENCE,
    build=f"nine columns of {_DOMARCHIVE}dom.metadata.csv",
    size=22_727,
)

EMBEDDED_LM_PAIRS = Path(__file__).with_name("lm_full.csv")

FILES = (LM_PAIRS, *JENSEN.values(), DOMINANCE, DOMINANCE_GROUPS, *LM_RUNS.values())


def load_lm_pairs(
    hierarchy: str,
    task: str,
    setting: str,
    model: str,
    phase: str = "post",
    *,
    lora_r: int | None = None,
    probe_l2: float | None = None,
) -> pd.DataFrame:
    """Return what finetuned language models answer to "Will the X win against the Y?", averaged over runs.

    Every pair of items is averaged over 50 seeds, both directions of the hierarchy and both orders of the prompt.
    Embedded are the runs with all weights finetuned, after it, and those of the readout of ``qwen35-4b`` on invented
    teams in ``exc_mid_n9``; the others are read from a data file.

    Parameters
    ----------
    hierarchy : str
        One of `DESIGNS`.
    task : {"fake", "real", "poker"}
        Invented teams, real teams or poker hands; poker has 9 items only.
    setting : {"full", "lora", "probe"}
        What was finetuned: all weights, low-rank adapters, or the readout.
    model : {"llama32-1b", "llama32-3b", "qwen35-2b", "qwen35-4b"}
        ``full`` has the first and the third only.
    phase : {"pre", "post"}
        Before or after finetuning.
    lora_r : {4, 8, 16, 32, 64}, optional
        Rank of the adapters, for ``lora``.
    probe_l2 : {1e-4, 0.1, 1, 10, 20, 50}, optional
        Penalty on the readout's change, for ``probe``.

    Returns
    -------
    DataFrame
        A row a pair, n(n-1)/2: ``first`` and ``second`` (0 is the best, first < second), ``value`` (mean logit of Yes
        minus No, positive if the first wins), ``win_rate`` (share of prompts with that answer), ``n`` (prompts),
        ``trained`` and ``exception`` (where it was trained that the second wins).

    Raises
    ------
    ValueError
        No such run.
    DataUnavailable
        The run is not embedded, and the file is not on this machine.

    Examples
    --------
    >>> answers = load_lm_pairs("exc_mid_n9", "fake", "full", "llama32-1b")
    >>> answers.query("first == 2 and second == 6")[["win_rate", "trained"]]
        win_rate  trained
    18    0.455    False

    References
    ----------
    Cheng and Lippl: A mathematical theory of balancing relational generalization and memorization, arXiv 2605.22972.
    """
    check_choice(hierarchy, "hierarchy", DESIGNS)
    check_choice(phase, "phase", ("pre", "post"))
    for name, value, needed in (("lora_r", lora_r, "lora"), ("probe_l2", probe_l2, "probe")):
        if (value is not None) != (setting == needed):
            verb = "must be given" if setting == needed else "must not be given"
            raise ValueError(f"{name} {verb} for setting={setting!r}, got {value!r}")
    hyper = {"lora_r": lora_r} if setting == "lora" else {"probe_l2": probe_l2} if setting == "probe" else {}
    run = {"hier": hierarchy, "task": task, "setting": setting, "model": model, **hyper}
    table = _read(EMBEDDED_LM_PAIRS)
    known = (table.reindex(columns=list(run)) == list(run.values())).all(axis=1)
    if phase == "pre" or (setting != "full" and not known.any()):
        table = _read(path(LM_PAIRS))
        table = table[table["phase"] == phase]
    for name, wanted in run.items():
        check_choice(wanted, name, np.unique(table[name].dropna()).tolist())
        table = table[table[name] == wanted]
    columns = {"rank_higher": "first", "rank_lower": "second", "logit_mean": "value", "win_rate": "win_rate", "n": "n"}
    pairs = table[list(columns)].rename(columns=columns).sort_values(["first", "second"], ignore_index=True)
    winner, loser = DESIGNS[hierarchy][1] or (-1, -1)
    exception = (pairs["first"] == loser) & (pairs["second"] == winner)
    return pairs.assign(trained=exception | (pairs["second"] - pairs["first"] == 1), exception=exception)


def fetch_lm_runs(hierarchy: str, task: str) -> pd.DataFrame:
    """Return single finetuning runs, from which `load_lm_pairs` has its means; downloaded once, some 2.5 MB each.

    Parameters
    ----------
    hierarchy : str
        One of `DESIGNS`.
    task : {"fake", "real", "poker"}
        Poker has 9 items only.

    Returns
    -------
    DataFrame
        As its authors published it.

    Raises
    ------
    ValueError
        No such runs.
    DataUnavailable
        The file is neither on this machine nor to be downloaded.
    """
    check_choice(hierarchy, "hierarchy", DESIGNS)
    check_choice(task, "task", [name for design, name in LM_RUNS if design == hierarchy])
    return pd.read_parquet(path(LM_RUNS[hierarchy, task]))


def load_jensen(species: str = "monkeys") -> pd.DataFrame:
    """Return how often subjects choose the better of two items, after they were trained on the pairs of neighbours.

    Embedded. The order has seven items; 0 is the best.

    Parameters
    ----------
    species : {"monkeys", "humans"}
        Whose choices.

    Returns
    -------
    DataFrame
        Of monkeys, a row for each of 57 sessions and 21 pairs: ``session``, ``first``, ``second`` and ``value``, the
        share of trials in which the first, which is the better, was chosen. Of humans, a row for each of 19 subjects
        and 6 distances: ``subject``, ``distance`` (of the ranks) and ``value``.

    Examples
    --------
    >>> load_jensen().groupby(["first", "second"])["value"].mean().loc[0].round(3).tolist()
    [0.725, 0.819, 0.863, 0.885, 0.906, 0.931]

    References
    ----------
    Jensen, Muñoz, Alkan, Ferrera and Terrace: Implicit value updating explains transitive inference performance: the
    betasort model, PLoS Computational Biology 11 (2015), doi 10.1371/journal.pcbi.1004523, CC BY.
    """
    check_choice(species, "species", JENSEN)
    table = pd.read_csv(Path(__file__).with_name(JENSEN[species].name))
    if species == "humans":
        return table[["subject", "symbolic_distance", "acc"]].set_axis(["subject", "distance", "value"], axis=1)
    table[["target", "distractor"]] -= 1
    return table.set_axis(["session", "first", "second", "value"], axis=1)


def load_dominance(fileid: str | None = None) -> pd.DataFrame:
    """Return who won how many contests against whom in 436 groups of animals, or in one.

    Parameters
    ----------
    fileid : str, optional
        A group, as `load_dominance_groups` names it.

    Returns
    -------
    DataFrame
        ``winner``, ``loser`` and ``count`` (at least 1); of all groups, ``fileid`` before them.

    Raises
    ------
    ValueError
        No such group.
    DataUnavailable
        The file is not on this machine.

    References
    ----------
    Strauss et al.: DomArchive: a century of published dominance data, Philosophical Transactions of the Royal Society
    B 377 (2022), and the study of each group.
    """
    # One dog is called nan.
    edges = _read(path(DOMINANCE), text=("fileid", "winner", "loser"))
    if fileid is None:
        return edges.copy()
    group = edges[edges["fileid"] == fileid]
    if group.empty:
        raise ValueError(f"fileid must be one of the index of load_dominance_groups(), got {fileid!r}")
    return group.drop(columns="fileid").reset_index(drop=True)


def load_dominance_groups() -> pd.DataFrame:
    """Return the groups of `load_dominance`: species, captivity, sizes, triangle transitivity and study, by fileid.

    Raises
    ------
    DataUnavailable
        The file is not on this machine.
    """
    return _read(path(DOMINANCE_GROUPS)).set_index("fileid").sort_index()


@functools.cache
def _read(file: Path, text: tuple[str, ...] = ()) -> pd.DataFrame:
    """Return a table, read once; columns in `text` are as they are."""
    return pd.read_csv(file, converters=dict.fromkeys(text, str))
