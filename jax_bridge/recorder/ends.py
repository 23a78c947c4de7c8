"""How recorded processes end, seen from outside: a process that is killed cannot write it.

`Ends` watches the folder of the recordings. Each names its process, whose end the kernel tells at once
(pidfd_open(2)), whoever its parent is. How a process ended is known if the watcher has asked before the
parent did; else the recording may tell that the program came to its end by itself. A process that
replaces its program (execve(2)) goes on, and is in the job once more: that ends what it was before.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jax_bridge.recorder.process_recorder import STOPPED
from jax_bridge.recorder.processes import ProcessState, state_of
from jax_bridge.recorder.program import END, REPLACED

_SHUTDOWN = "shutdown"
"""The operation by which a client leaves, as histories call it."""

_SCAN_S = 0.05
_HEADER_BYTES_MAX = 1 << 24
_TAIL_BYTES = 1 << 16


@dataclass(slots=True)
class _Watched:
    """A recorded process.

    Attributes:
      path: Its recording.
      pid: Its number.
      process: Its number in the job.
      started: When the process was started, in ticks since the boot; with the pid, this names it.
      began_ns: When its program began, or None if the recording does not say so.
      seen_alive_ns: The latest time at which it surely lived.
      ended_ns: When its end was seen, or None.
      wait_status: How it ended, as wait(2) tells it, or None if that is not known.
      is_replaced: It ended as its process took another program.
    """

    path: Path
    pid: int
    process: int
    started: int | None
    began_ns: int | None
    seen_alive_ns: int
    ended_ns: int | None = None
    wait_status: int | None = None
    is_replaced: bool = False


@dataclass(slots=True)
class _Header:
    pid: int
    started: int | None
    began_ns: int | None
    process: int | None


@dataclass(slots=True)
class Report:
    """What came of the processes.

    Attributes:
      running: Sentences about processes whose end was not seen.
      problems: Sentences about ends that could not be written.
    """

    running: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Ends(threading.Thread):
    """Sees how the processes of this machine end that are recorded in a folder.

    Args:
      parts: The folder.
    """

    def __init__(self, parts: Path) -> None:
        super().__init__(name="ends", daemon=True)
        self._parts = parts
        self._known: set[str] = set()
        self._watched: dict[int, _Watched] = {}
        self._over: list[_Watched] = []
        self._poll = select.poll()
        self._command: tuple[int, int] | None = None
        self._is_finishing = threading.Event()

    def run(self) -> None:
        """Watches until `finish` is called."""
        while not self._is_finishing.is_set():
            self._look(_SCAN_S)

    def finish(self, pid: int, wait_status: int, patience_s: float) -> Report:
        """Waits for those that still run, and writes the ends into the recordings.

        Args:
          pid: The command's.
          wait_status: How it ended, as wait(2) tells it.
          patience_s: So long at most: what a command leaves behind may go on for ever.
        """
        self._is_finishing.set()
        self.join()
        deadline = time.monotonic() + patience_s
        self._look(0)
        while self._watched and time.monotonic() < deadline:
            self._look(_SCAN_S)
        report = Report()
        _tell_replaced([*self._over, *self._watched.values()])
        for watched in self._watched.values():
            if watched.is_replaced:
                self._over.append(watched)
                continue
            report.running.append(
                f"process {watched.process} (pid {watched.pid}) still runs; "
                f"what it does from now on is recorded in {watched.path} alone"
            )
        for descriptor in list(self._watched):
            os.close(descriptor)
        for watched in self._over:
            if watched.pid == pid and not watched.is_replaced:
                watched.wait_status = wait_status
            try:
                _write_end(watched)
            except OSError as error:
                report.problems.append(f"{watched.path}: its end is not recorded: {error.strerror}")
        return report

    def _look(self, timeout_s: float) -> None:
        self._scan()
        before_ns = time.monotonic_ns()
        ready = self._poll.poll(timeout_s * 1000)
        now_ns = time.monotonic_ns()
        for descriptor, _ in ready:
            watched = self._watched.pop(descriptor)
            state = state_of(watched.pid)
            self._poll.unregister(descriptor)
            os.close(descriptor)
            self._ended(watched, now_ns, state)
        for watched in self._watched.values():
            watched.seen_alive_ns = before_ns

    def _scan(self) -> None:
        """Finds recordings that are new."""
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._parts):
                if entry.name.endswith(".jsonl") and entry.name not in self._known:
                    header = _header_of(Path(entry.path))
                    if header is None:
                        continue
                    self._known.add(entry.name)
                    if header.process is not None:  # Else it notes a service.
                        self._watch(Path(entry.path), header, header.process)

    def _watch(self, path: Path, header: _Header, process: int) -> None:
        # Of its making; the recording's last line may be later.
        seen_alive_ns = time.monotonic_ns()
        watched = _Watched(path, header.pid, process, header.started, header.began_ns, 0)
        try:
            descriptor = os.pidfd_open(header.pid)
        except OSError:
            self._ended(watched, time.monotonic_ns(), None)
            return
        state = state_of(header.pid)
        if state is None or state.started != header.started:  # The pid is another's by now.
            os.close(descriptor)
            self._ended(watched, time.monotonic_ns(), None)
            return
        if not state.is_over:
            watched.seen_alive_ns = seen_alive_ns
        self._watched[descriptor] = watched
        self._poll.register(descriptor, select.POLLIN)

    def _ended(self, watched: _Watched, now_ns: int, state: ProcessState | None) -> None:
        watched.ended_ns = now_ns
        if state is not None and state.is_over:
            watched.wait_status = state.wait_status
        self._over.append(watched)


def _header_of(path: Path) -> _Header | None:
    """Who is recorded; None as long as the first line is not whole, or for a file that is not ours."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        with open(path, "rb") as file:
            line = file.readline(_HEADER_BYTES_MAX)
        if line.endswith(b"\n"):
            details = json.loads(line)["details"]
            started, began_ns = details.get("pid_started"), details.get("program_began_ns")
            return _Header(int(details["pid"]), started, began_ns, details.get("process"))
    return None


def _tell_replaced(watched: Sequence[_Watched]) -> None:
    """Ends those programs whose process has taken another one since, when that began."""
    begun: defaultdict[tuple[int, int | None], set[int]] = defaultdict(set)
    for each in watched:
        if each.began_ns is not None:
            begun[each.pid, each.started].add(each.began_ns)
    for each in watched:
        if each.began_ns is None:
            continue
        later = [ns for ns in begun[each.pid, each.started] if ns > each.began_ns]
        if later:
            each.is_replaced = True
            each.ended_ns = min(later)
            each.seen_alive_ns = (
                0  # The process lived on: only the recording tells until when this did.
            )
            each.wait_status = None


def _write_end(watched: _Watched) -> None:
    """Adds the end to the recording, whose process writes no more.

    A last line that is cut is cut off: nothing could be read behind it.
    """
    assert watched.ended_ns is not None
    with open(watched.path, "r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        tail = file.read()
        whole, _, torn = tail.rpartition(b"\n")
        if torn:
            if not whole:
                return  # A line that long is not one of events; let the reader judge.
            file.truncate(size - len(torn))
        last = _last_of(whole.split(b"\n"))
        if last.lifetime is None:
            return  # It never connected, and so never was in the job.
        is_stopped = watched.path.with_name(watched.path.name + STOPPED).exists()
        if is_stopped and watched.wait_status is None:
            return  # What it said at its end was not recorded, so that this may have been a good one.
        file.seek(0, os.SEEK_END)
        if last.is_replaced and not watched.is_replaced:
            watched.is_replaced = True
            watched.ended_ns, watched.seen_alive_ns = last.time_ns, 0
        event = _end_event(watched, last.lifetime, last)
        file.write(json.dumps(event, separators=(",", ":")).encode() + b"\n")


@dataclass(slots=True)
class _Last:
    """What the last lines of a recording say.

    Attributes:
      lifetime: The last one, or None if there is no event.
      time_ns: Of the last line.
      remark: How the program came to its end by itself, or None if it did not say so.
      has_left: Whether the last call is a `shutdown` that has returned.
      is_replaced: Whether the last line says that another program takes the process.
    """

    lifetime: int | None = None
    time_ns: int = 0
    remark: str | None = None
    has_left: bool = False
    is_replaced: bool = False

    @property
    def ended_well(self) -> bool:
        """Whether it says so, or had left before it ended without a word, as by os._exit."""
        return self.has_left if self.remark is None else self.remark == ""


def _last_of(lines: list[bytes]) -> _Last:
    last = _Last()
    answered: object = None
    for line in reversed(lines):
        try:
            fields = json.loads(line)
        except ValueError:
            continue  # The first may be cut here, in the middle of the file.
        if not isinstance(fields, dict) or "time_ns" not in fields:
            continue
        if answered is not None:
            is_its_call = fields.get("type") == "invoke" and fields.get("id") == answered
            last.has_left = is_its_call and fields.get("operation") == _SHUTDOWN
            break
        if not last.time_ns:
            last.is_replaced = str(fields.get("name", "")).endswith(REPLACED)
        last.time_ns = max(last.time_ns, fields["time_ns"])
        _, is_end, how = str(fields.get("name", "")).partition(END)
        if is_end:
            last.remark = how.removeprefix(", ")
        if "lifetime" in fields:
            last.lifetime = fields["lifetime"]
            if fields.get("type") != "ok":
                break
            answered = fields.get("id")
    return last


def _end_event(watched: _Watched, lifetime: int, last: _Last) -> dict[str, Any]:
    assert watched.ended_ns is not None
    time_ns = max(watched.ended_ns, last.time_ns)
    event = {"type": "leave", "time_ns": time_ns, "process": watched.process, "lifetime": lifetime}
    status = watched.wait_status
    if watched.is_replaced:
        if last.has_left:
            return event
    elif status == 0 or (status is None and last.ended_well):
        return event
    event["type"] = "crash"
    event["since_ns"] = max(watched.seen_alive_ns, last.time_ns)
    if watched.is_replaced:
        event["cause"] = "its process replaced the program by another one (exec)"
    else:
        event["cause"] = (status is None and last.remark) or _cause(status)
    return event


def _cause(status: int | None) -> str:
    if status is None:
        return "ended before its program came to its end: by a signal, an abort or os._exit"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(number).name}"
        return f"signal {number}"
    return f"exit code {os.WEXITSTATUS(status)}"
