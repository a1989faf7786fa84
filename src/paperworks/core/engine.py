"""Run calls in parallel, on this machine or on a Dask cluster, with a bound on threads."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import joblib
from joblib.externals.loky import process_executor
from joblib.externals.loky.process_executor import TerminatedWorkerError
from threadpoolctl import threadpool_limits

from paperworks.core.extras import require

__all__ = ["Call", "Engine", "cores", "thread_limit"]

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def cores() -> int:
    """Return how many cores this process may use."""
    return int(joblib.cpu_count())


@dataclass(frozen=True)
class Call:
    """A picklable function with arguments, and how it wants to run."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    threads: int = 1
    exclusive: bool = False


@dataclass(frozen=True)
class Engine:
    """Where calls run: ``local`` worker processes or a ``dask`` cluster.

    Parameters
    ----------
    kind : {"local", "dask"}
    jobs : int
        Worker processes.
    scheduler : str, optional
        Address of a running Dask scheduler; without one, ``dask`` starts a cluster on this machine.
    """

    kind: Literal["local", "dask"] = "local"
    jobs: int = 1
    scheduler: str | None = None

    def run(self, calls: Sequence[Call], died: Callable[[Call], Any]) -> Iterator[Any]:
        """Yield the result of each call as it is ready; `died(call)` stands in where a worker was killed.

        Calls keep their order of start within one number of threads; exclusive ones run alone, last.
        """
        shared = [call for call in calls if not call.exclusive]
        with self._backend() as slots:
            for threads in sorted({call.threads for call in shared}):
                group = [call for call in shared if call.threads == threads]
                yield from self._group(group, slots // threads, died)
            for call in calls:
                if call.exclusive:
                    yield from self._alone(call, died)

    def _group(self, calls: list[Call], workers: int, died: Callable[[Call], Any]) -> Iterator[Any]:
        """Run calls, at most `workers` at once."""
        workers = min(workers, self.jobs) if self.kind == "local" else workers
        # A Dask backend ignores n_jobs, so the bound is kept by handing over no more calls than may run at once.
        size = max(1, len(calls) if self.kind == "local" else workers)
        left = dict(enumerate(calls))
        try:
            for start in range(0, len(calls) if workers > 1 else 0, size):
                for number, result in _parallel(workers, list(enumerate(calls))[start : start + size]):
                    del left[number]
                    yield result
        except TerminatedWorkerError:
            # One call took its worker down, and nobody knows which: the rest run one at a time.
            pass
        for call in left.values():
            yield from self._alone(call, died)

    def _alone(self, call: Call, died: Callable[[Call], Any]) -> Iterator[Any]:
        """Run a call while no other runs; in a worker, which it may take down, unless `jobs` is 1."""
        try:
            for _, result in _parallel(min(2, self.jobs), [(0, call)]):
                yield result
        except TerminatedWorkerError:
            yield died(call)

    @contextlib.contextmanager
    def _backend(self) -> Iterator[int]:
        """Set up the joblib backend and yield how many threads it may use in all."""
        if self.kind == "local":
            with joblib.parallel_config(backend="loky", initializer=_prepare_worker):
                yield cores()
            return
        distributed = require("distributed", "distributed")
        from paperworks.core.cluster import DaskBackend

        with contextlib.ExitStack() as stack:
            address = self.scheduler
            if address is None:
                cluster = distributed.LocalCluster(
                    n_workers=min(self.jobs, cores()), threads_per_worker=1, processes=True, dashboard_address=None
                )
                address = stack.enter_context(cluster)
            client = stack.enter_context(distributed.Client(address))
            client.wait_for_workers(1, timeout=30)
            stack.enter_context(joblib.parallel_config(backend=DaskBackend(client=client)))
            yield sum(worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values())


def _prepare_worker() -> None:
    """Make this process a worker that stays until it is told to go."""
    # Ctrl-C, which every process of a terminal gets, is left to the parent: it stops the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Loky replaces a worker that has grown by 300 MB, with a warning; importing torch takes more than that.
    process_executor._MAX_MEMORY_LEAK_SIZE = sys.maxsize


def _parallel(workers: int, numbered: list[tuple[int, Call]]) -> Iterator[tuple[int, Any]]:
    run = joblib.Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=1)
    yield from run(joblib.delayed(_numbered)(number, call.function, call.arguments) for number, call in numbered)


def _numbered(number: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[int, Any]:
    return number, function(*arguments)


@contextlib.contextmanager
def thread_limit(threads: int) -> Iterator[None]:
    """Bound the BLAS, OpenMP and torch threads of this process, and of a library imported in the meantime."""
    saved = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else None
    if torch:
        torch.set_num_threads(threads)
    try:
        with threadpool_limits(limits=threads):
            yield
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if torch and before is not None:
            torch.set_num_threads(before)
