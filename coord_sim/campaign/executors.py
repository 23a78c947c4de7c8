"""Where batches run: in this process, or in others on this machine. Any other executor will do."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, ParamSpec, TypeVar

from coord_sim.errors import CoordSimError
from coord_sim.undisturbed import undisturbed

P = ParamSpec("P")
T = TypeVar("T")

CONNECT_S = 10.0
"""How long to try to reach a cluster and its first worker."""


class WorkersDied(CoordSimError):
    """Processes that ran batches have ended: killed, or out of memory."""


class SerialExecutor(Executor):
    """Runs what is submitted at once, in the thread that submits it."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Runs `fn`; the future is done when it is returned."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - whoever asks for the result sees it
            future.set_exception(error)
        return future


def process_pool(workers: int) -> ProcessPoolExecutor:
    """Processes of this machine, started afresh: nothing of this process is copied into them.

    They leave interrupts to this process, and end when it ends, however that happens.
    """
    resource_tracker.ensure_running()  # When it starts it unblocks what `_Worker` blocks.
    return ProcessPoolExecutor(workers, mp_context=_Context(), initializer=_begin_worker)


class _Worker(SpawnProcess):
    """A process that an interrupt does not reach while it starts, either."""

    def start(self) -> None:
        with undisturbed(signal.SIGINT):
            super().start()


class _Context(SpawnContext):
    Process = _Worker


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: Any) -> None:
    wait([sentinel])
    os._exit(1)


@contextmanager
def dask_cluster(address: str) -> Iterator[tuple[Executor, int]]:
    """The workers of a Dask cluster, and how many batches they run at a time.

    The workers need coordlab in the same version, and the module or file of a program of one's own.

    Args:
      address: Of the scheduler, e.g. `tcp://127.0.0.1:8786`.

    Raises:
      OSError: no scheduler answers there, or it has no workers.
      WorkersDied: a batch has killed its workers, again and again.
    """
    # It is optional, and has no types.
    distributed: Any = importlib.import_module("distributed")
    client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    try:
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
        except TimeoutError:
            raise OSError(f"the Dask cluster at {address} has no workers") from None
        with client.get_executor() as executor:
            yield executor, sum(client.nthreads().values())
    except distributed.KilledWorker as error:
        raise WorkersDied(str(error)) from None
    finally:
        client.close()
