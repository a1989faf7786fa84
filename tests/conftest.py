"""Hypothesis profiles, an isolated cache, real data on demand, and a CPU budget a system."""

from __future__ import annotations

import functools
import importlib
import io
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# Linear algebra and tensors as small as here gain nothing from threads, which burn time waiting for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# In CPU seconds of a machine on which `_calibrate` takes REFERENCE seconds.
SYSTEM_BUDGET = 40.0
REFERENCE = 0.12
# The core's own tests start processes, a cluster and a browser.
BUDGETS = {"core": 300.0}
# The tests of every system run each one's quick ledger and example, and import it again and again.
EACH_SYSTEM = 90.0
TESTS = Path(__file__).parent


@functools.cache
def slowdown() -> float:
    """Return how much slower than the reference this machine is, at least 1: a busy one takes more CPU time too."""
    return max(1.0, statistics.median(_calibrate() for _ in range(5)) / REFERENCE)


def _calibrate() -> float:
    values = np.arange(100.0)
    start = time.process_time()
    for _ in range(200_000):
        values + 1.0
    return time.process_time() - start


@pytest.fixture(scope="session", name="slowdown")
def _slowdown() -> float:
    return slowdown()


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep every test away from the user's cache."""
    before = os.environ.get("PAPERWORKS_CACHE")
    os.environ["PAPERWORKS_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["PAPERWORKS_CACHE"]
    else:
        os.environ["PAPERWORKS_CACHE"] = before


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Keep linear algebra on small arrays from burning time in threads that wait for each other."""
    with threadpool_limits(1):
        yield


@pytest.fixture
def command_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], Callable[..., tuple[Any, str, str]]]:
    """Return, for a system, what runs its command line in a folder that may hold an input: return code, stdout, stderr."""
    from paperworks.cli import app
    from paperworks.core.commands import run

    monkeypatch.chdir(tmp_path)

    def of(slug: str) -> Callable[..., tuple[Any, str, str]]:
        def command(
            *words: str, text: str | None = None, name: str = "in.csv", stdin: str | None = None
        ) -> tuple[Any, str, str]:
            if text is not None:
                (tmp_path / name).write_text(text)
            if stdin is not None:
                monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
            with pytest.raises(SystemExit) as end:
                run(app, [slug, *words])
            streams = capsys.readouterr()
            return end.value.code, streams.out, streams.err

        return command

    return of


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose real data file cannot be had here, and say which."""
    from paperworks.core.data import available

    for marker in item.iter_markers("data"):
        slug, _, name = marker.args[0].partition("/")
        files = {file.name: file for file in importlib.import_module(f"paperworks.{slug}.data").FILES}
        if not available(files[name]):
            pytest.skip(
                f"{marker.args[0]} is not here: set PAPERWORKS_DATA, or `paperworks data fetch {marker.args[0]}`"
            )


class CpuBudget:
    """Add up the CPU seconds of each room of tests and fail the run when one is over its budget."""

    def __init__(self, config: pytest.Config) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self.slowdown = 1.0
        # Checking every call against its annotations is no measure of a system's speed.
        self.enforced = not config.getoption("jaxtyping_packages", None)
        self._start = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            report.user_properties += [("cpu", _cpu() - self._start), ("slowdown", slowdown())]
        return report

    def pytest_runtest_logstart(self) -> None:
        self._start = _cpu()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            told = dict(report.user_properties)
            self.spent[_room(report.nodeid)] += told.get("cpu", 0.0)
            # Of the workers, which measured it when they began and all were at work.
            self.slowdown = max(self.slowdown, told.get("slowdown", 1.0))

    def budget(self, room: str) -> float:
        from paperworks.core.paper import systems

        return (BUDGETS.get(room, SYSTEM_BUDGET) if room else EACH_SYSTEM * len(systems())) * self.slowdown

    def over(self) -> dict[str, float]:
        return {room: cpu for room, cpu in self.spent.items() if cpu > self.budget(room)}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.enforced and self.over() and not hasattr(session.config, "workerinput"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"CPU seconds, on a machine {self.slowdown:.1f} times slower than the reference")
        for room, cpu in sorted(self.spent.items()):
            budget = self.budget(room)
            note = " OVER BUDGET" if self.enforced and cpu > budget else ""
            terminalreporter.line(f"{room or 'every system'}: {cpu:.1f} of {budget:.0f}{note}")


def _room(nodeid: str) -> str:
    """Return the system or ``core`` whose test this is; doctests count for the room of their module."""
    parts = Path(nodeid.split("::")[0]).parts
    if parts[:1] == ("tests",):
        return parts[1] if len(parts) > 2 else ""
    return parts[2] if len(parts) > 3 else ""


def _cpu() -> float:
    """CPU seconds of this process and of the children it has waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def pytest_configure(config: pytest.Config) -> None:
    """Install the budget."""
    config.pluginmanager.register(CpuBudget(config), "cpu-budget")
