"""Forks processes that have jaxlib imported already, to run programs of the simulator.

Importing jaxlib takes a second of a processor, forking ten milliseconds: so that a job of many processes
starts when it should, and a process that is to be back after 0.2 s is.

A process of its own. Standard input brings one JSON object a line, the fields of `ProgramStart`,
answered by `{"pid": N}`. The end of a child is told by `{"pid": N, "status": S}`, the status as in
`subprocess`. When standard input ends, so do this process and all children.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from typing import Final

from jax_bridge import compat
from jax_bridge.parent_death import end_with_parent
from jax_bridge.programs.main import ProgramStart, run_program

_ALL_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Forks on request until standard input ends."""
    compat.client_class()  # Imports jaxlib, and starts no thread.
    for number in _ALL_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # The launcher ends this process.
    wake_reader, wake_writer = socket.socketpair()
    for end in (wake_reader, wake_writer):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_writer.fileno())
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
    selector.register(wake_reader, selectors.EVENT_READ)
    print("ready", flush=True)
    pending = b""
    while True:
        for key, _ in selector.select():
            if key.fileobj is wake_reader:
                wake_reader.recv(4096)
                _reap()
                continue
            chunk = os.read(sys.stdin.fileno(), 65536)
            if not chunk:
                return  # The children's parent is gone: the kernel ends them.
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                start = ProgramStart(**json.loads(line))
                pid = os.fork()
                if pid == 0:
                    _child(start)
                _lead_a_group(pid)  # Before anybody is told whom to signal.
                print(json.dumps({"pid": pid}), flush=True)


def _lead_a_group(pid: int) -> None:
    """Makes a process the leader of a group of its own; parent and child both do, whoever is first."""
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)


def _reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        told = {"pid": pid, "status": os.waitstatus_to_exitcode(status)}
        print(json.dumps(told), flush=True)


def _child(start: ProgramStart) -> None:
    """Never returns; skips what the parent's interpreter would do at its end."""
    try:
        end_with_parent(signal.SIGKILL)
        _lead_a_group(0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, *_ALL_SIGNALS):
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        log = os.open(start.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        run_program(start)
    except BaseException:  # noqa: BLE001 - goes to the process's own log, not to the parent's loop
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
