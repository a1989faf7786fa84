"""The Dask backend of joblib, with its gaps mended; apart, since it takes half a second to import."""

from __future__ import annotations

from typing import Any

from distributed import KilledWorker
from joblib._dask import DaskDistributedBackend
from joblib.externals.loky.process_executor import TerminatedWorkerError

__all__ = ["DaskBackend"]


class DaskBackend(DaskDistributedBackend):  # type: ignore[misc]
    """The Dask backend of joblib; that one waits for ever for a task that Dask gives up, and shuns a lone worker."""

    def effective_n_jobs(self, n_jobs: int = 1) -> int:
        """Never one, for which joblib runs the calls in this process instead of on the cluster."""
        return max(2, int(super().effective_n_jobs(n_jobs)))

    def submit(self, func: Any, callback: Any = None) -> Any:
        """Call back also where a task has failed outside of its own code."""
        future = super().submit(func, callback)
        future.add_done_callback(lambda done: done.exception() is not None and callback(done.exception()))
        return future

    def retrieve_result_callback(self, out: Any) -> Any:
        """Raise what `submit` called back with; a task that outlived no worker counts as on this machine."""
        if isinstance(out, BaseException):
            raise TerminatedWorkerError(str(out)) if isinstance(out, KilledWorker) else out
        return super().retrieve_result_callback(out)
