"""Forks processes that have jaxlib imported already: C++ services and C++ clients, one a process.

Importing jaxlib takes half a second, forking ten milliseconds. A process of its own for each service
and client is what the catalogue needs: they can be stopped, killed, and abort without company.

Standard input brings one JSON object a line, `{"id", "role", "socket", "stderr", "options"}`. The child
connects to the Unix socket, says `{"id", "pid"}` and serves its role there, until the connection ends.
Standard output tells the ends of children: `{"id", "status"}`, the status as in `subprocess`. When
standard input ends, so do the children and this process.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, TextIO

from tests.conformance.client_role import preload as preload_clients
from tests.conformance.client_role import serve as serve_client
from tests.conformance.service_role import preload as preload_services
from tests.conformance.service_role import serve as serve_service

ROLES: dict[str, Callable[[dict[str, Any], TextIO, TextIO], None]] = {
    "service": serve_service,
    "client": serve_client,
}


def main() -> None:
    """Forks on request until standard input ends."""
    for preload in (preload_services, preload_clients):
        preload()
    children: dict[int, int] = {}
    wake_reader, wake_writer = socket.socketpair()
    wake_writer.setblocking(False)
    wake_reader.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_writer.fileno())
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
    selector.register(wake_reader, selectors.EVENT_READ)
    pending = b""
    while True:
        for key, _ in selector.select():
            if key.fileobj is wake_reader:
                wake_reader.recv(4096)
                _reap(children)
                continue
            chunk = os.read(sys.stdin.fileno(), 65536)
            if not chunk:
                for pid in children:
                    os.kill(pid, signal.SIGKILL)
                return
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                request = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    _child(request)
                children[pid] = request["id"]


def _reap(children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        told = {"id": children.pop(pid), "status": os.waitstatus_to_exitcode(status)}
        print(json.dumps(told), flush=True)


def _child(request: dict[str, Any]) -> None:
    """Never returns; skips what the parent's interpreter would do at its end."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        errors = os.open(request["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for source, target in ((null, 0), (null, 1), (errors, 2)):
            os.dup2(source, target)
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(request["socket"])
            with link.makefile("r") as orders, link.makefile("w") as reports:
                hello = {"id": request["id"], "pid": os.getpid()}
                reports.write(json.dumps(hello) + "\n")
                reports.flush()
                ROLES[request["role"]](request["options"], orders, reports)
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
