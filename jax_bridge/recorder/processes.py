"""What Linux tells of a process, and of the host that it runs on."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import NamedTuple

_STATE, _EXIT_CODE, _STARTED = 0, 49, 19
"""Places in `/proc/PID/stat` behind the name of the program, which may hold anything (proc(5))."""


class ProcessState(NamedTuple):
    """What `/proc/PID/stat` says.

    Attributes:
      started: When it was started, in ticks since the boot: with the pid, this names a process for good.
      is_over: It has ended, and its parent has not asked for its exit code yet.
      wait_status: How it ended, as wait(2) tells it, if it is over.
    """

    started: int
    is_over: bool
    wait_status: int


def state_of(pid: int) -> ProcessState | None:
    """What is known of a process, or None if there is none of this pid."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    if len(fields) <= _EXIT_CODE:
        return None
    is_over = fields[_STATE] in {"Z", "X"}
    return ProcessState(int(fields[_STARTED]), is_over, int(fields[_EXIT_CODE]))


def host_name() -> str:
    """As other machines may know this one."""
    return socket.gethostname() or "unnamed"


def clock_id() -> str:
    """What has the same `CLOCK_MONOTONIC`: this boot of this machine, and the namespace of time in it.

    Containers of one machine share it, whatever they are called.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/time')}"  # noqa: PTH115 - no path
    except OSError:
        return host_name()


def as_file_name(text: str) -> str:
    """Text with nothing but letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip(".-") or "unnamed"
