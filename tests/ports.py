"""Ports that are known before somebody listens there."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port of the loopback at which services may listen, ours and jaxlib's, one after the other.

    Nobody else gets it: another test would be found there while no service is, or a connection would
    have it at its client's end.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # As our servers.
        held.bind(("127.0.0.1", 0))
        held.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEPORT, 1
        )  # As gRPC; before, ports are shared.
        yield held.getsockname()[1]
