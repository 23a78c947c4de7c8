"""What a program sees of its process: the simulator's `Process`, on real time and a real disk."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import time
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from coord_sim.errors import ProgramError
from coord_sim.sim.disk import Disk
from coord_sim.sim.live_devices import LiveSet
from jax_bridge.conditions import BLOCK
from jax_bridge.recorder.process_recorder import ProcessRecorder

T = TypeVar("T")

NS_PER_S = 1_000_000_000


class Said:
    """What a program says, a line of JSON each: `{"time_ns", "log"}`, `{"reached"}`, `{"raised"}`.

    Args:
      path: The file of this start.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def say(self, **fields: object) -> None:
        """One line, in one write: a killed process loses none that was written."""
        told = {"time_ns": time.monotonic_ns(), **fields}
        os.write(self._file, json.dumps(told).encode() + b"\n")


class Host:
    """What `coord_sim.sim.process.Process` needs of whoever runs it.

    Args:
      recorder: Of this start.
      said: Takes what the program says.
      began_ns: When the run began, by the monotonic clock.
      end: Ends the process because of an exception.
    """

    def __init__(
        self,
        recorder: ProcessRecorder,
        said: Said,
        *,
        began_ns: int,
        end: Callable[[BaseException], NoReturn],
    ) -> None:
        self._recorder = recorder
        self._said = said
        self._began_ns = began_ns
        self._end = end
        self._blocks: dict[int, int] = {}

    def sleep(self, delay_ns: int) -> Coroutine[Any, Any, None]:
        """Lets time pass."""
        return asyncio.sleep(delay_ns / NS_PER_S)

    def clock_ns(self) -> int:
        """Time since the run began."""
        return time.monotonic_ns() - self._began_ns

    def log(self, text: str) -> None:
        """Keeps a line."""
        self._said.say(log=text)
        print(text, flush=True)

    def reach(self, condition: str) -> None:
        """Counts a condition that was reached."""
        self._said.say(reached=condition)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Beside[T]:
        """Runs a coroutine beside the program."""
        return Beside(coroutine, self._end)

    def devices(self) -> NoReturn:
        """There is no data plane here."""
        raise ProgramError(
            "this program computes on the simulator's data plane; real processes do that in "
            "workloads (coordlab workloads)"
        )

    def enter_block(self, block: int, live: LiveSet) -> None:
        """A block was entered."""
        self._blocks[block] = self._recorder.enter(dict(live))
        if self._recorder.is_held(BLOCK):
            self._recorder.wait_to_be_killed()

    def exit_block(self, block: int, outcome: str, failed: tuple[int, ...], message: str) -> None:
        """A block was left."""
        self._recorder.exit(self._blocks.pop(block), outcome, failed, message)


class Beside(Generic[T]):
    """A coroutine that runs beside the program; its exception ends the process if nobody awaits it."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, T], end: Callable[[BaseException], NoReturn]
    ) -> None:
        self._is_awaited = False
        self._end = end
        self._task = asyncio.ensure_future(coroutine)
        self._task.add_done_callback(self._done)

    def __await__(self) -> Generator[Any, None, T]:
        self._is_awaited = True
        return self._task.__await__()

    def _done(self, task: asyncio.Task[T]) -> None:
        if self._is_awaited or task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._end(error)


class FileDisk(Disk):
    """A disk that is a file: what was synced is there in the next start.

    Args:
      path: The file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.sync_takes = self.save
        if path.exists():
            for key, value in pickle.loads(path.read_bytes()).items():  # noqa: S301 - our own file
                self[key] = value

    async def save(self) -> None:
        """Writes everything, then puts it in the place of what was there."""
        new = self._path.with_suffix(".new")
        with new.open("wb") as file:
            pickle.dump(dict(self), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
