"""Writes the events of one process to a file of its own.

Every event is one `write`: SIGKILL loses nothing that was written. Linux may cut the write that is under
way, at a page of the file: then the call was not made yet, or its answer not handed on. Whatever goes
wrong with the recording ends the recording, never the program.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_bridge.recorder.complaints import complain
from jax_bridge.recorder.descriptors import high_descriptor
from jax_bridge.recorder.lines import EventLines, header_line, remark_line

if TYPE_CHECKING:
    from jax_bridge.conditions import Inside

LIVE_PROCESSES = "live_processes"

REMARKS = "recorder"
"""The lane of what a recorder remarks."""

STOPPED = ".stopped"
"""Behind the name of a recording that stopped before its process did: an empty file says so.

It needs no block of a disk that is full, and no descriptor of those that a program has closed.
"""

DEFINITE_CODES = frozenset(
    {
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "UNAUTHENTICATED",
    }
)
"""The service decides these before it changes anything; after others an effect is possible."""

_CODE = re.compile(r"([A-Z_]{2,}):")
_MESSAGE_MAX = 500

_DISK_FULL = "the disk is full"
_append = os.write
_now_ns = time.monotonic_ns


class KnownRound:
    """A call of `live_processes` that was made before, and what is written when it is made again.

    Attributes:
      client: The `id` of the client.
      processes: Whom it names; not the program's own list, which may change.
      call: The line before, but for the time and the number of the call.
      live: The latest answer.
      answer: The line after, if it is the same; but for the same.
    """

    __slots__ = ("answer", "call", "client", "live", "processes")

    def __init__(self, client: int, processes: list[int], call: bytes) -> None:
        self.client = client
        self.processes = processes
        self.call = call
        self.live: Mapping[int, int] | None = None
        self.answer = b""


class ProcessRecorder:
    """Writes the events of one start of one process.

    A program may connect more than once, with one client after the other: each is an incarnation of
    its own, hence a lifetime of its own, numbered from 0 in this start. Clients are told apart by their
    `id`; a reference would keep them from being destroyed, by which a client leaves the job.

    Args:
      path: The file of this start. If it exists, it is continued.
      process: Who this is.
      processes: How many the job has, or None if that is not known. Then the header names this
        process alone, and who reads the file must know the others (`checker.history.read_part`).
      hold: Where to stop and wait for SIGKILL, if anywhere.
      held_path: Created when the process stands there.
      task: Which task it says it is, if not that of its number.
      cannot_know, details: For the header.

    Raises:
      OSError: the file cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        *,
        process: int,
        processes: int | None,
        hold: Inside | None = None,
        held_path: Path | None = None,
        task: int | None = None,
        cannot_know: Sequence[str] = (),
        details: Mapping[str, object] | None = None,
    ) -> None:
        self.process = process
        self.task = process if task is None else task
        self.everybody = frozenset(() if processes is None else range(processes))
        self.known_round: KnownRound | None = None
        self.hold = None if hold is None else (hold.operation, hold.count)
        self._held_path = held_path
        self._counts: dict[str, int] = {}
        self._operations = 0
        self._blocks = 0
        self._lifetimes = 0
        self._lifetime_of: dict[int, int] = {}
        self._incarnation_of: dict[int, int | None] = {}
        self._lock = threading.RLock()
        self._path = Path(path).absolute()  # The program may change its folder.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._file: int | None = high_descriptor(descriptor)
        self._lines = EventLines(process)
        participants = (process,) if processes is None else tuple(range(processes))
        self._write(header_line(participants, cannot_know, details or {}))
        _abandon_in_forks(self)

    def made(self, client: int) -> None:
        """A client was made; an earlier one of the same `id` is no more."""
        with self._lock:
            self.known_round = None
            self._lifetime_of.pop(client, None)

    def start(self, client: int, since_ns: int, incarnation: int | None) -> None:
        """A client has connected; once more in the same incarnation is nothing new."""
        with self._lock:
            self.known_round = None
            lifetime = self._lifetime(client)
            if lifetime in self._incarnation_of:
                if self._incarnation_of[lifetime] == incarnation:
                    return
                del self._lifetime_of[client]
                lifetime = self._lifetime(client)
            self._incarnation_of[lifetime] = incarnation
            self._write(self._lines.start(_now_ns(), lifetime, incarnation, since_ns))

    def invoke(self, client: int, operation: str, arguments: Mapping[str, object]) -> int:
        """A call begins; returns its id."""
        with self._lock:
            number = self._operations
            self._operations += 1
            lifetime = self._lifetime(client)
            self._write(self._lines.invoke(_now_ns(), lifetime, number, operation, arguments))
        return number

    def ok(self, client: int, number: int, result: object) -> None:
        """A call has returned; a live set is a dictionary from process to incarnation."""
        with self._lock:
            self._write(self._lines.ok(_now_ns(), self._lifetime(client), number, result))

    def know_round(
        self, client: int, processes: list[int], arguments: Mapping[str, object]
    ) -> None:
        """A call of `live_processes` has been recorded; the next one may be the same."""
        with self._lock:
            lifetime = self._lifetime(client)
            call = self._lines.invoke("%d", lifetime, "%d", LIVE_PROCESSES, arguments)
            self.known_round = KnownRound(client, list(processes), call)

    def call_round(
        self, known: KnownRound, method: Callable[..., Any], client: Any, processes: list[int]
    ) -> Any:
        """Makes a call that is known, and records it as `invoke`, `ok` and `error` would.

        All members of a round wait for the last, with caches that have gone cold meanwhile: each
        function more, called from here, costs microseconds (docs/performance.md, "Recording").
        """
        with self._lock:
            number = self._operations
            self._operations = number + 1
            file = self._file
            if file is not None:
                line = known.call % (_now_ns(), number)
                try:
                    if _append(file, line) != len(line):
                        self.stop(_DISK_FULL)
                except OSError as error:
                    self._write_again(line, error)
        try:
            live = method(client, processes)
        except Exception as error:
            with never_breaking(self):
                self.error(known.client, number, error)
            raise
        try:
            with self._lock:
                file = self._file
                if file is not None:
                    before = b""
                    if live != known.live:
                        lifetime = self._lifetime(known.client)
                        before, known.answer = self._lines.answer("%d", lifetime, "%d", live)
                        known.live = dict(live)
                    line = before + known.answer % (_now_ns(), number)
                    try:
                        if _append(file, line) != len(line):
                            self.stop(_DISK_FULL)
                    except OSError as error:
                        self._write_again(line, error)
        except Exception as error:  # noqa: BLE001 - as `never_breaking`
            self.stop(str(error))
        return live

    def error(self, client: int, number: int, error: BaseException) -> None:
        """A call has raised."""
        text = str(error)
        code = _CODE.match(text)
        name = code[1] if code else type(error).__name__
        if isinstance(error, TypeError):
            name = "INVALID_ARGUMENT"  # Of types that this jaxlib does not take: there was no call.
        with self._lock:
            line = self._lines.error(
                _now_ns(),
                self._lifetime(client),
                number,
                kind="fail" if name in DEFINITE_CODES else "info",
                code=name,
                message=first_line(text),
            )
            self._write(line)

    def enter(self, live: Mapping[int, int]) -> int:
        """A block begins; returns its number."""
        with self._lock:
            block = self._blocks
            self._blocks += 1
            lifetime = self._latest_lifetime()
            self._write(self._lines.enter(_now_ns(), lifetime, block, live))
        return block

    def exit(
        self, block: int, outcome: str, failed: tuple[int, ...] = (), message: str = ""
    ) -> None:
        """A block has ended."""
        with self._lock:
            line = self._lines.exit(
                _now_ns(),
                self._latest_lifetime(),
                block,
                outcome=outcome,
                failed=failed,
                message=message[:_MESSAGE_MAX],
            )
            self._write(line)

    def remark(self, sentence: str) -> None:
        """Something about this process that is no event, for people."""
        with self._lock:
            remark = f"process {self.process}: {first_line(sentence)}"
            self._write(remark_line(_now_ns(), remark, REMARKS))

    def abandon(self) -> None:
        """Writes nothing from now on: in a fork, the file is the parent's."""
        self._lock = threading.RLock()  # Another thread of the parent may have held the old one.
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # The program may have closed it.
                os.close(file)

    def stop(self, problem: str) -> None:
        """Ends the recording, leaves a mark beside it, and says why, if standard error is there."""
        if self._file is not None and self._path.is_file():
            with contextlib.suppress(OSError):
                self._path.with_name(self._path.name + STOPPED).touch()
        self._file = None
        complain(f"recording stopped: {problem}")

    def is_held(self, operation: str) -> bool:
        """Counts a call of `operation`, and says whether it is the one to be killed in."""
        if self.hold is None:
            return False
        count = self._counts[operation] = self._counts.get(operation, 0) + 1
        return self.hold == (operation, count)

    def wait_to_be_killed(self) -> None:
        """Tells the launcher that the process stands where it asked for, and stays there."""
        assert self._held_path is not None
        self._held_path.touch()
        threading.Event().wait()

    def _lifetime(self, client: int) -> int:
        lifetime = self._lifetime_of.get(client)
        if lifetime is None:
            lifetime = self._lifetime_of[client] = self._lifetimes
            self._lifetimes += 1
        return lifetime

    def _latest_lifetime(self) -> int:
        return max(self._incarnation_of, default=0)

    def _write(self, lines: bytes) -> None:
        """One write per event. A disk that is full ends the recording, never the program."""
        if self._file is None:
            return
        try:
            if _append(self._file, lines) != len(lines):
                self.stop(_DISK_FULL)
        except OSError as error:
            self._write_again(lines, error)

    def _write_again(self, lines: bytes, error: OSError) -> None:
        """If the program has closed the descriptor, as daemons do, the file is opened once more."""
        try:
            if error.errno != errno.EBADF:
                raise error
            self._file = high_descriptor(os.open(self._path, os.O_WRONLY | os.O_APPEND))
            if _append(self._file, lines) != len(lines):
                self.stop(_DISK_FULL)
        except OSError as last:
            self.stop(str(last))


def _abandon_in_forks(recorder: ProcessRecorder) -> None:
    alive = weakref.ref(recorder)

    def abandon() -> None:
        found = alive()
        if found is not None:
            found.abandon()

    os.register_at_fork(after_in_child=abandon)


@contextlib.contextmanager
def never_breaking(recorder: ProcessRecorder) -> Iterator[None]:
    """A mistake of the recorder, or memory that is full, costs the recording."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is, the program goes on
        recorder.stop(f"{type(error).__name__}: {error}")


def first_line(text: str) -> str:
    """Of a message, and not too long."""
    return text.split("\n", maxsplit=1)[0][:_MESSAGE_MAX]
