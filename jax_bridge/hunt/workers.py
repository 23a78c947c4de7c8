"""Processes that work on tasks, several at a time.

A launcher forks, watches and takes signals: it needs a process whose main thread is its own. Workers die
with whoever started them, even by SIGKILL, and with each of them all that it has started.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from jax_bridge.parent_death import end_with_parent

T = TypeVar("T")
R = TypeVar("R")

END_TIMEOUT_S: Final = 30.0
"""A worker that is told to end has processes to end and a history to save."""


class WorkerLost(Exception):
    """A worker ended by itself; its task may be to blame.

    Attributes:
      task: What it worked on.
    """

    def __init__(self, task: object) -> None:
        self.task = task
        super().__init__("a worker process died")


class Workers(Generic[T, R]):
    """Some processes, each with at most one task.

    Ctrl-C does not reach them: `close` ends them in order, with what they run.

    Args:
      count: How many.
      work: What they do with a task; can be pickled. An exception of it ends the worker.
    """

    def __init__(self, count: int, work: Callable[[T], R]) -> None:
        self._work = work
        self._context = multiprocessing.get_context("spawn")
        self._idle: list[tuple[BaseProcess, Connection]] = []
        self._busy: dict[Connection, tuple[BaseProcess, T]] = {}
        self.count = count
        for _ in range(count):
            self._idle.append(self._new())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def idle(self) -> int:
        """How many have nothing to do."""
        return len(self._idle)

    @property
    def tasks(self) -> list[T]:
        """What is being worked on."""
        return [task for _, task in self._busy.values()]

    def give(self, task: T) -> None:
        """Gives a task to one that has nothing to do."""
        process, connection = self._idle.pop()
        self._busy[connection] = (process, task)
        with contextlib.suppress(OSError):  # It has died: who waits for its answer is told.
            connection.send(task)

    def wait(self, timeout_s: float) -> list[tuple[T, R | WorkerLost]]:
        """What has been done; empty after the time-out. In place of a worker that died comes another."""
        done: list[tuple[T, R | WorkerLost]] = []
        for ready in wait(list(self._busy), timeout_s):
            assert isinstance(ready, Connection)
            process, task = self._busy.pop(ready)
            try:
                result: R | WorkerLost = ready.recv()
                self._idle.append((process, ready))
            except (EOFError, OSError):
                result = WorkerLost(task)
                ready.close()
                process.join()
                self._idle.append(self._new())
            done.append((task, result))
        return done

    def close(self) -> None:
        """Ends all, and what they run."""
        for process, _ in self._busy.values():
            process.terminate()
        everybody = [*self._idle, *((process, c) for c, (process, _) in self._busy.items())]
        for _, connection in everybody:
            connection.close()  # Who has nothing to do ends for this.
        for process, _ in everybody:
            process.join(END_TIMEOUT_S)
            process.kill()
            process.join()
        self._idle.clear()
        self._busy.clear()

    def _new(self) -> tuple[BaseProcess, Connection]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._work, os.getpid()))
        process.start()
        theirs.close()
        return process, ours


def _serve(connection: Connection, work: Callable[[Any], Any], parent: int) -> None:
    """The main thread of a worker."""
    end_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        return  # It died before we asked to die with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            try:
                task = connection.recv()
            except (EOFError, OSError):
                break  # There is nothing more to do.
            connection.send(work(task))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # It ends already.
