"""Sockets that listen."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

BACKLOG = 4096
"""Connections that may wait to be accepted: all tasks of a large job come at once."""


class PortUnavailable(OSError):
    """The address cannot be bound."""


def listen(host: str, port: int) -> list[socket.socket]:
    """Listens on every address that a name stands for, on one port.

    Args:
      host: Name or address; IPv6 with or without brackets.
      port: 0 picks a free one.

    Raises:
      PortUnavailable: the address is in use or not this host's.
    """
    bare = host.strip("[]")
    shown = f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"
    if not bare:
        raise PortUnavailable("cannot bind an empty host; 0.0.0.0 or :: is every interface")
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            sockets.append(_listen(family, (address[0], port, *address[2:])))
            port = sockets[0].getsockname()[1]
    except socket.gaierror as error:
        raise PortUnavailable(f"cannot bind {shown}: {error.strerror}") from error
    except (OSError, OverflowError) as error:
        for each in sockets:
            each.close()
        raise PortUnavailable(
            f"cannot bind {shown}: the port is in use, or the host is not this machine's; "
            "choose another, or port 0 for a free one"
        ) from error
    return sockets


def _listen(family: int, address: tuple[Any, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restarted server finds its port free; a port that is served is still refused.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            only_v6 = address[0] != "::"  # As with gRPC, `::` means IPv4 too.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(only_v6))
        listener.bind(address)
        listener.listen(BACKLOG)
    except BaseException:
        with contextlib.suppress(OSError):
            listener.close()
        raise
    listener.setblocking(False)
    return listener
