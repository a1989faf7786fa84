from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from joblib.externals import loky
from threadpoolctl import threadpool_info

from paperworks.core.engine import THREAD_VARIABLES, Call, Engine, cores, thread_limit


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pretend to have two cores, and leave no worker to the next test."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "2")
    yield
    loky.get_reusable_executor().shutdown(kill_workers=True)


def died(call: Call) -> tuple[Any, ...]:
    return ("died", *call.arguments)


def run(calls: list[Call], **engine: Any) -> list[Any]:
    return list(Engine(**engine).run(calls, died))


def busy(threads: list[int], exclusive: tuple[int, ...] = ()) -> list[Call]:
    """Calls that return when they ran; one each of `threads`."""

    # Inner functions travel to a worker by value: it cannot import this module.
    def work(number: int, threads: int) -> tuple[int, int, float, float]:
        start = time.monotonic()
        time.sleep(0.15)
        return number, threads, start, time.monotonic()

    return [Call(work, (n, threads), threads, n in exclusive) for n, threads in enumerate(threads)]


def most_threads(done: list[tuple[int, int, float, float]]) -> int:
    """The largest number of threads that calls had at one time."""
    return max(sum(threads for _, threads, begin, end in done if begin <= at < end) for _, _, at, _ in done)


def test_cores_follow_what_this_process_may_use() -> None:
    assert 1 <= cores() <= 2
    assert cores() == joblib.cpu_count()


def test_one_job_runs_here_in_the_order_of_the_calls() -> None:
    calls = [Call(lambda n: (n, os.getpid()), (n,)) for n in range(3)]
    assert run(calls) == [(n, os.getpid()) for n in range(3)]


def test_no_calls_give_nothing() -> None:
    assert run([], jobs=2) == []


def test_more_jobs_run_elsewhere_and_each_result_comes_once() -> None:
    done = run([Call(lambda n: (n, os.getpid()), (n,)) for n in range(5)], jobs=2)
    assert sorted(n for n, _ in done) == list(range(5))
    assert os.getpid() not in {process for _, process in done}


@pytest.mark.parametrize("jobs", [2, 8])
def test_jobs_times_threads_stay_within_the_cores(jobs: int) -> None:
    done = run(busy([1, 2, 1, 2, 1]), jobs=jobs)
    assert sorted(n for n, *_ in done) == list(range(5))
    assert most_threads(done) <= 2


def test_two_jobs_run_at_once(tmp_path: Path) -> None:
    if cores() < 2:
        pytest.skip("one core")

    def meet(n: int) -> bool:
        (tmp_path / str(n)).touch()
        until = time.monotonic() + 60
        while not (tmp_path / str(1 - n)).exists() and time.monotonic() < until:
            time.sleep(0.01)
        return (tmp_path / str(1 - n)).exists()

    assert run([Call(meet, (n,)) for n in range(2)], jobs=2) == [True, True]


def test_more_threads_than_cores_run_one_at_a_time() -> None:
    assert most_threads(run(busy([3, 3, 3]), jobs=2)) == 3


def test_exclusive_calls_run_alone_and_last() -> None:
    done = run(busy([1, 1, 1, 1], exclusive=(0, 2)), jobs=2)
    alone = {n: (begin, end) for n, _, begin, end in done if n in (0, 2)}
    for n, (begin, end) in alone.items():
        assert all(other == n or stop <= begin or start >= end for other, _, start, stop in done)
    assert [n for n, *_ in done][-2:] == [0, 2]


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_killed_worker_loses_its_own_call_alone(exclusive: bool, threads: int) -> None:
    def work(n: int, parent: int) -> tuple[str, int]:
        if n == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        assert os.getpid() != parent
        return "done", n

    done = run([Call(work, (n, os.getpid()), threads, exclusive) for n in range(4)], jobs=2)
    assert sorted(done) == [("died", 1, os.getpid()), ("done", 0), ("done", 2), ("done", 3)]


def test_what_a_call_raises_goes_on() -> None:
    with pytest.raises(ZeroDivisionError):
        run([Call(lambda: 1 // 0, ())], jobs=2)


def blas_threads() -> list[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.mark.parametrize("threads", [1, 2])
def test_thread_limit_binds_and_lets_go(threads: int) -> None:
    before, environment = blas_threads(), {name: os.environ.get(name) for name in THREAD_VARIABLES}
    with thread_limit(threads):
        inside = blas_threads()
        assert inside
        # A library that was built single-threaded cannot be given more.
        assert max(inside) <= threads
        assert threads in inside
        assert {os.environ[name] for name in THREAD_VARIABLES} == {str(threads)}
    assert blas_threads() == before
    assert {name: os.environ.get(name) for name in THREAD_VARIABLES} == environment


def test_thread_limit_binds_torch_too() -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    for threads in (1, 2):
        with contextlib.suppress(ZeroDivisionError), thread_limit(threads):
            assert torch.get_num_threads() == threads
            raise ZeroDivisionError
        assert torch.get_num_threads() == before


def test_a_library_imported_inside_is_bound_too() -> None:
    code = (
        "from paperworks.core.engine import thread_limit\nwith thread_limit(1):\n"
        "    import torch\n    print(torch.get_num_threads())"
    )
    pytest.importorskip("torch")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"


DASK = """
def trials(scale):
    return [Trial({"n": n, "threads": t}, seed=n, threads=t) for n in range(3) for t in (1, 2)] + [Trial({"n": -1})]


def measure(trial):
    if trial["n"] < 0 and os.environ.get("ROOM_ENGINE") == "kill":
        os._exit(9)
    log(os.getpid(), trial.seed)
    matrix = np.random.default_rng(trial.seed).normal(size=(300, 300))
    return {"sum": float((matrix @ matrix.T).sum()), "norm": float(np.linalg.norm(matrix, 2))}


EXPERIMENTS = [Experiment("squares", trials, measure)]
CLAIMS = [claim("it")]
"""


@pytest.fixture
def local(room: Any) -> Any:
    """A system measured in this process."""
    room.add(ledger=DASK)
    room.check()
    assert {line.split()[0] for line in room.lines()} == {str(os.getpid())}
    return room


def test_a_dask_cluster_measures_the_same_and_outlives_its_workers(local: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setenv("ROOM_ENGINE", "kill")
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")
    local.run("check", "toy_room", "--fresh", "--engine", "dask", "--jobs", "2", "--out", "dask")
    here, there = local.measured(), local.measured(out=local.root / "dask")
    assert list(there["run.status"]) == ["ok"] * 6 + ["error"]
    assert there[:6].equals(here[:6])
    assert str(os.getpid()) not in {line.split()[0] for line in local.lines()}
    assert local.verdicts(out=local.root / "dask")["it"]["verdict"] == "error"


@contextlib.contextmanager
def dask_process(module: str, *words: str, log: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", f"distributed.cli.{module}", *words, "--no-dashboard"]
    with log.open("w") as stream, subprocess.Popen(command, stderr=stream, stdout=stream, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_a_scheduler_given_by_address_measures_the_same(local: Any) -> None:
    pytest.importorskip("distributed")
    said = local.root / "scheduler.log"
    with dask_process("dask_scheduler", "--host", "127.0.0.1", "--port", "0", log=said):
        until = time.monotonic() + 30
        while not (found := re.search(r"Scheduler at:\s+(tcp://127\.0\.0\.1:\d+)", said.read_text())):
            assert time.monotonic() < until, said.read_text()
            time.sleep(0.1)
        address = found.group(1)
        words = (address, "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--death-timeout", "60")
        with dask_process("dask_worker", *words, log=local.root / "worker.log") as worker:
            words = ("--fresh", "--engine", "dask", "--scheduler", address, "--out", "dask")
            local.run("check", "toy_room", *words)
    assert local.measured(out=local.root / "dask").equals(local.measured())
    assert {line.split()[0] for line in local.lines()} == {str(worker.pid)}


def test_dask_workers_are_no_more_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")

    class Asked(Exception):
        pass

    def cluster(**options: Any) -> None:
        raise Asked(options["n_workers"], options["threads_per_worker"])

    monkeypatch.setattr(distributed, "LocalCluster", cluster)
    with pytest.raises(Asked) as caught:
        run([Call(print, ())], kind="dask", jobs=64)
    assert caught.value.args == (cores(), 1)


def test_a_scheduler_that_is_not_there_is_an_error_in_one_line(room: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "1s")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        room.add()
        done = room.run("check", "toy_room", "--engine", "dask", "--scheduler", address, "--json", code=2)
    assert address in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
