"""The recorder of one program: a recording for each process of a job that the program is."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jax_bridge import client_recorder, compat
from jax_bridge.recorder.complaints import complain
from jax_bridge.recorder.lines import header_line
from jax_bridge.recorder.origin import origin_details
from jax_bridge.recorder.process_recorder import ProcessRecorder, never_breaking
from jax_bridge.recorder.processes import as_file_name, host_name

FORMAT = "coordlab record"
"""In `details.recorder` of a part's header."""

END = "the program has come to its end"
"""The remark of a program that ends by itself; none of one that is killed or aborts."""

REPLACED = "the program gives its process to another one (exec)"
"""The remark of a program that ends so."""

NOT_REPLACED = "the program goes on: there is no such other one"
"""The remark that takes that back."""

SERVICE_MADE = "service_made_ns"
"""The detail of a header that says when the program began to make a service; it has no events."""

CANNOT_KNOW = (
    "what C++ asks of the service without Python, as XLA does when its back ends start",
    "heartbeats and error polls: they are the client's own business",
)


class ProgramRecorder:
    """Notes the services and clients that a program makes, and records each client.

    Most programs make one. Those that make several, one after the other or at once, have a file for
    each number of a process and address of a service.

    Args:
      parts: The folder of the recordings of all programs; must exist.
    """

    def __init__(self, parts: str) -> None:
        self._parts = Path(parts)
        self._recorders: dict[tuple[str, int], ProcessRecorder] = {}
        self._of_client: dict[int, ProcessRecorder] = {}
        self._forked_from: int | None = None
        self._began_ns = time.monotonic_ns()
        os.register_at_fork(after_in_child=self._forked)
        self._see_replacements()
        atexit.register(self._ends)

    def record_clients(self, runtime: Any) -> None:
        """Records whatever clients will be made.

        Args:
          runtime: jaxlib's module of C++ code, freshly loaded.
        """
        compat.replace_client_maker(runtime, self._made)
        compat.tell_of_services(runtime, self._service_made)
        client_recorder.record_clients(self._of_client.get)

    def record_blocks(self) -> None:
        """Records blocks of `live_devices`, whose module has just been imported."""
        client_recorder.record_blocks(compat.live_devices_class(), self._of_client.get)

    def _made(self, client: Any, address: str, process: int) -> None:
        self._of_client.pop(id(client), None)  # Of a client that is no more.
        try:
            recorder = self._recorders.get((address, process))
            if recorder is None:
                recorder = self._new_recorder(address, process)
                self._recorders[address, process] = recorder
        except Exception as error:  # noqa: BLE001 - whatever it is, the program goes on
            complain(f"process {process} is not recorded: {error}")
            return
        recorder.made(id(client))
        self._of_client[id(client)] = recorder

    def _service_made(self, address: str, processes: int, began_ns: int) -> None:
        """Notes in a file of its own that a service begins: what follows at its port is another job."""
        try:
            path = self._new_file(f"{as_file_name(host_name())}-{os.getpid()}-service")
            details = {
                "recorder": FORMAT,
                **origin_details(None),
                "processes": processes,
                "address": address,
                SERVICE_MADE: began_ns,
            }
            path.write_bytes(header_line([0], (), details))
        except Exception as error:  # noqa: BLE001 - whatever it is, the program goes on
            complain(f"the beginning of a service is not recorded: {error}")

    def _new_recorder(self, address: str, process: int) -> ProcessRecorder:
        if process < 0:
            raise ValueError(f"the number of the process is {process}")
        processes = compat.processes_of_job(address, process)
        details = {
            "recorder": FORMAT,
            **origin_details(process),
            "program_began_ns": self._began_ns,
            "parent_pid": os.getppid(),
            "forked_from_pid": self._forked_from,
            "processes": processes,
            "address": address,
            "python": platform.python_version(),
            "jaxlib": compat.jaxlib_version(),
        }
        return ProcessRecorder(
            self._new_file(f"{as_file_name(host_name())}-{os.getpid()}-process-{process}"),
            process=process,
            processes=processes,
            cannot_know=CANNOT_KNOW,
            details=details,
        )

    def _new_file(self, name: str) -> Path:
        """A file that nobody has: pids return, and are the same in two containers."""
        for number in itertools.count(1):
            path = self._parts / (f"{name}.jsonl" if number == 1 else f"{name}-{number}.jsonl")
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
                return path
        raise AssertionError("numbers do not end")

    def _forked(self) -> None:
        """In a fork: what its parent records is its parent's."""
        self._forked_from = os.getppid()
        self._recorders.clear()
        self._of_client.clear()

    def _see_replacements(self) -> None:
        """Has `os.exec` and its like remarked: nothing else of the program is done then."""
        for name in ("execv", "execve"):
            setattr(os, name, self._remarking(getattr(os, name)))

    def _remarking(self, replace: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(replace)
        def replace_program(*arguments: Any, **named: Any) -> Any:
            self._remark(REPLACED)
            try:
                return replace(*arguments, **named)
            except BaseException:
                self._remark(NOT_REPLACED)
                raise

        return replace_program

    def _remark(self, sentence: str) -> None:
        for recorder in self._recorders.values():
            with never_breaking(recorder):
                recorder.remark(sentence)

    def _ends(self) -> None:
        """The program ends by itself, after all that it had registered to be done then."""
        error = getattr(sys, "last_value", None)  # What Python printed, if it ends by an exception.
        by = "" if error is None else f", by {type(error).__name__}"
        for recorder in self._recorders.values():
            recorder.remark(f"{END}{by}")
