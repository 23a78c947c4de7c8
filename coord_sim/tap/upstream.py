"""Where the real service is."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterable
from typing import Any

Address = tuple[socket.AddressFamily, Any]


class Upstream:
    """The addresses that a name stands for.

    Args:
      host: Name or address; IPv6 with or without brackets.
      port: Of the service.

    Raises:
      OSError: the name is not known.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host.strip("[]")
        self._port = port
        self._is_looking = False
        self.addresses: tuple[Address, ...] = self._look_up()

    def __str__(self) -> str:
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    def is_served_by(self, listeners: Iterable[socket.socket]) -> bool:
        """Whether it is where these sockets listen, so that a relay would connect to itself."""
        bound = {listener.getsockname()[:2] for listener in listeners}
        for family, address in self.addresses:
            if (address[0], self._port) in bound:
                return True
            if {("0.0.0.0", self._port), ("::", self._port)} & bound:  # noqa: S104 - not bound here
                with socket.socket(family, socket.SOCK_STREAM) as probe:
                    try:
                        probe.bind((address[0], 0))
                    except OSError:
                        continue  # Another machine's.
                    return True
        return False

    def look_again(self) -> None:
        """Looks the name up once more, in a thread: a service that moved has another address."""
        if self._is_looking or _is_address(self._host):
            return
        self._is_looking = True
        threading.Thread(target=self._refresh, name="resolver", daemon=True).start()

    def _refresh(self) -> None:
        try:
            self.addresses = self._look_up()
        except OSError:
            pass  # The old ones are as good as any.
        finally:
            self._is_looking = False

    def _look_up(self) -> tuple[Address, ...]:
        found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        return tuple(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
