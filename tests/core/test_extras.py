from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paperworks.core.extras import MissingExtra, install_command, missing, require, versions


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_require_returns_the_module() -> None:
    assert require("numpy", "allocation") is np
    assert require("numpy.linalg", "allocation") is np.linalg


@pytest.mark.parametrize("module", ["no_such_module", "no_such_module.part", "numpy.no_such_part"])
def test_a_missing_module_says_how_to_install_it(module: str) -> None:
    with pytest.raises(MissingExtra) as caught:
        require(module, "allocation")
    assert str(caught.value) == f"{module} is not installed: pip install 'paperworks[allocation]'"
    assert caught.value.name == module
    assert caught.value.exit_code == 3
    assert isinstance(caught.value, ImportError)


@pytest.mark.parametrize("broken", ["import no_such_dependency", "import broken_package.no_such_part"])
def test_an_installed_package_that_fails_keeps_its_own_error(folder: Path, broken: str) -> None:
    (folder / "broken_package").mkdir()
    (folder / "broken_package" / "__init__.py").write_text(broken)
    with pytest.raises(ModuleNotFoundError, match="no_such") as caught:
        require("broken_package", "allocation")
    assert not isinstance(caught.value, MissingExtra)


def test_missing_keeps_the_order_and_the_spelling() -> None:
    assert missing(("z-none", "numpy", "Scikit_Learn", "a-none")) == ("z-none", "a-none")
    assert missing(()) == ()


def test_versions_leaves_out_what_is_missing() -> None:
    assert versions(("numpy", "a-none")) == {"numpy": np.__version__}


@pytest.mark.parametrize(
    ("distributions", "slug", "arguments"),
    [
        (("gymnasium",), "allocation", "'paperworks[allocation]'"),
        (("cvxpy",), "allocation", "'paperworks[peers]'"),
        (("dask",), "allocation", "'paperworks[distributed]'"),
        (("gymnasium", "cvxpy", "clarabel"), "allocation", "'paperworks[allocation]' 'paperworks[peers]'"),
        (("a-none",), "allocation", "a-none"),
        (("gymnasium",), "no_such_slug", "gymnasium"),
    ],
)
def test_the_command_names_the_extra_that_declares_the_package(
    distributions: tuple[str, ...], slug: str, arguments: str
) -> None:
    assert install_command(distributions, slug) == f"pip install {arguments}"


DECLARED = """\
Metadata-Version: 2.4
Name: paperworks
Version: 0
Requires-Dist: numpy>=2
Requires-Dist: paperworks[Graph_Family,lr-transfer]; extra == 'lr-transfer'
Requires-Dist: Torch.Geometric[full]<3,>=2 ; python_version < '3.13' and extra == "graph-family"
Requires-Dist: ml-tool; extra == 'lr-transfer'
"""


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("torch-geometric", "'paperworks[lr_transfer]'"),
        ("ML_Tool", "'paperworks[lr_transfer]'"),
        ("torch", "torch"),
        ("ml", "ml"),
        ("numpy", "numpy"),
    ],
)
def test_extras_that_hold_extras_and_other_spellings(folder: Path, name: str, argument: str) -> None:
    (folder / "paperworks-0.dist-info").mkdir()
    (folder / "paperworks-0.dist-info" / "METADATA").write_text(DECLARED)
    assert install_command((name,), "lr_transfer") == f"pip install {argument}"
