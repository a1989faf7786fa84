"""What is true of every system."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from filelock import FileLock

from paperworks.core.claims import ledger
from paperworks.core.engine import Engine, cores
from paperworks.core.paper import systems
from paperworks.core.runner import QUICK_CPU_SECONDS, check

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "paperworks"
SLUGS = sorted(systems())
RESERVED = {"list", "show", "check", "report", "data", "version", "claims", "demo"}
SHARED_ROOMS = {"data", "plots", "claims", "cli", "paper", "__init__"}
MEGABYTE = 2**20

every_system = pytest.mark.parametrize("slug", SLUGS)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Run every quick ledger once, without the network, whichever of pytest's workers asks first."""
    root = tmp_path_factory.getbasetemp()
    out = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "ledgers"
    with FileLock(f"{out}.lock"):
        if not out.exists():
            check(list(systems().values()), out=out, engine=Engine("local", cores()))
    read = {slug: (out / "verdicts" / "quick" / f"{slug}.json").read_text(encoding="utf-8") for slug in SLUGS}
    return {slug: json.loads(text) for slug, text in read.items()}, out


@every_system
def test_the_quick_ledger_runs_within_its_budget(slug, quick, slowdown):
    document = quick[0][slug]
    broken = {c["id"]: c["sentence"] for c in document["claims"] if c["verdict"] in ("error", "unavailable")}
    assert not broken
    assert document["claims"]
    assert document["seconds"] <= QUICK_CPU_SECONDS * slowdown


@every_system
def test_every_claim_that_names_a_picture_draws_it(slug, quick):
    from paperworks.core import plotting
    from paperworks.core.results import read_table

    _, out = quick
    plots = importlib.import_module(f"paperworks.{slug}.plots")
    claims = [claim for claim in ledger(slug).claims.values() if claim.plot]
    assert claims
    for claim in claims:
        figure = getattr(plots, claim.plot)(*(read_table(out, "quick", slug, name) for name in claim.experiments))
        assert "<svg" in plotting.svg(figure)


@every_system
def test_the_rooms_are_there(slug):
    folder = SOURCE / slug
    for room in ("__init__.py", "__init__.pyi", "paper.py", "data.py", "claims.py", "plots.py"):
        assert (folder / room).is_file(), room
    assert slug not in RESERVED
    assert any((ROOT / "tests" / slug).glob("test_*.py"))
    for file in (f"benchmarks/bench_{slug}.py", f"examples/{slug}.py", f"docs/systems/{slug}.md"):
        assert (ROOT / file).is_file(), file
    assert f"systems/{slug}.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


@every_system
def test_module_names_are_not_those_of_the_core(slug):
    core = {path.stem for path in (SOURCE / "core").iterdir()}
    own = {path.stem for path in (SOURCE / slug).glob("*.py")}
    assert not (own - SHARED_ROOMS) & core


@every_system
def test_a_system_imports_the_core_and_no_other_system(slug):
    for path in (SOURCE / slug).rglob("*.py"):
        for name in _imports(path):
            parts = name.split(".")
            if parts[0] == "paperworks":
                assert parts[1:2] in ([], ["core"], [slug]), f"{path.name} imports {name}"


def test_the_core_imports_no_system():
    for path in (SOURCE / "core").rglob("*.py"):
        for name in _imports(path):
            assert name.split(".")[:1] != ["paperworks"] or name.split(".")[1:2] in ([], ["core"]), f"{path}: {name}"


def _imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.append(node.module)
            if node.module == "paperworks":
                names += [f"paperworks.{alias.name}" for alias in node.names if alias.name != "__version__"]
    return names


def test_paper_modules_are_light():
    code = (
        "import sys; from paperworks.core.paper import systems; assert systems();"
        "heavy = {'numpy', 'scipy', 'pandas', 'matplotlib', 'torch'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def _canonical(requirement: str) -> str:
    return re.sub("[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


@pytest.fixture(scope="module")
def optional_modules():
    """Import names of what is installed here and does not come with the package alone."""
    base, queue = {"paperworks"}, ["paperworks"]
    while queue:
        needed = [line for line in metadata.requires(queue.pop()) or () if "extra ==" not in line]
        new = {_canonical(line) for line in needed} - base
        base |= new
        queue += [name for name in new if list(metadata.distributions(name=name))]
    homes = metadata.packages_distributions()
    found = sorted(module for module, names in homes.items() if base.isdisjoint(map(_canonical, names)))
    assert {"torch", "pytest"} <= set(found)
    return found


@every_system
def test_the_ledger_loads_without_the_extra(slug, optional_modules):
    """Otherwise `show`, `check` and `data` of all systems would stop at the first that is not installed."""
    code = """
import importlib, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[2:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
for room in ("claims", "data", "plots"):
    importlib.import_module(f"paperworks.{sys.argv[1]}.{room}")
"""
    subprocess.run([sys.executable, "-c", code, slug, *optional_modules], check=True)


@every_system
def test_public_names_exist_and_are_documented(slug):
    module = importlib.import_module(f"paperworks.{slug}")
    assert module.__doc__
    stub = (SOURCE / slug / "__init__.pyi").read_text(encoding="utf-8")
    listed = next(
        ast.literal_eval(node.value)
        for node in ast.parse(stub).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    )
    assert sorted(set(listed)) == sorted(listed)
    assert set(listed) == set(module.__all__)
    for name in listed:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), name
            public = [m for n, m in vars(value).items() if not n.startswith("_") and inspect.isfunction(m)]
            assert all(inspect.getdoc(member) for member in public if inspect.isclass(value)), name


@every_system
def test_the_ledger_is_complete(slug):
    book = ledger(slug)
    plots = importlib.import_module(f"paperworks.{slug}.plots")
    assert any(claim.source == "paper" for claim in book.claims.values())
    used = {name for claim in book.claims.values() for name in claim.experiments}
    assert used == set(book.experiments), "an experiment that no claim reads"
    for claim in book.claims.values():
        assert claim.says
        assert claim.rule
        assert claim.plot is None or callable(getattr(plots, claim.plot))
    for experiment in book.experiments.values():
        assert set(experiment.hours) == {"quick", "full"}
        for scale in ("quick", "full"):
            trials = experiment.trials(scale)
            assert len({(str(sorted(t.params.items(), key=str)), t.seed) for t in trials}) == len(trials)


@every_system
def test_the_docs_page_names_every_claim(slug):
    page = (ROOT / "docs" / "systems" / f"{slug}.md").read_text(encoding="utf-8")
    for claim in ledger(slug).claims:
        assert f"`{claim}`" in page, claim


@every_system
def test_the_example_runs(slug, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / f"{slug}.py"), run_name="__main__")
    assert capsys.readouterr().out


@every_system
def test_embedded_data_are_small_and_listed(slug):
    files = [p for p in (SOURCE / slug).rglob("*") if p.is_file() and p.suffix not in (".py", ".pyi", ".pyc")]
    assert sum(path.stat().st_size for path in files) <= 2 * MEGABYTE
    third_party = (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8")
    for path in files:
        assert str(path.relative_to(ROOT)) in third_party, path


def test_the_package_is_small():
    files = [path for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) <= 12 * MEGABYTE


@every_system
def test_the_extra_exists(slug):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert slug in extras
    assert any(slug in re.split(r"[\[\],]", line) for line in extras["all"])


def test_the_readme_lists_every_system():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| \[`(\w+)`\]\(docs/systems/\w+\.md\) \| (.+?) \|", readme, flags=re.MULTILINE))
    assert rows == {slug: paper.does for slug, paper in systems().items()}


@every_system
def test_importing_a_system_changes_nothing_global(slug):
    """The second import is looked at: what other packages do when they are first imported is theirs."""
    code = """
import importlib, os, random, sys, warnings
import numpy

def load():
    module = importlib.import_module(f"paperworks.{sys.argv[1]}")
    for name in module.__all__:
        getattr(module, name)
    importlib.import_module(module.__name__ + ".claims")

def state():
    return numpy.random.get_state()[1].tolist(), random.getstate(), list(warnings.filters), dict(os.environ)

load()
for name in [name for name in sys.modules if name.partition(".")[0] == "paperworks"]:
    del sys.modules[name]
before = state()
load()
assert before == state()
"""
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    subprocess.run([sys.executable, "-c", code, slug], check=True, env=environment)
