"""What stands in the place of jaxlib's service, in the process that started it."""

from __future__ import annotations

import contextlib
import operator
import os
import socket
import weakref
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from jax_bridge import compat
from jax_bridge.substitute.request import SHUTDOWN, ServiceRequest, error_in, is_of_a_new_service


class SubstituteService:
    """A service that runs elsewhere; like jaxlib's, it ends with `shutdown()` or with this object.

    Args:
      connection: To the owner of the services, who has just said yes.
      is_new: Whether it was started for this object; else it was found again.
    """

    def __init__(self, connection: socket.socket, *, is_new: bool) -> None:
        self.is_new = is_new
        self._end = weakref.finalize(self, _end, connection, os.getpid())
        # At the end of the process it would come before the client's own shutdown.
        self._end.atexit = False

    def shutdown(self) -> None:
        """Ends the service; a second call does nothing."""
        self._end()


def starter(runtime: Any, socket_path: str) -> Callable[..., SubstituteService]:
    """A function to replace the one in jaxlib that starts a service, with its parameters.

    Args:
      runtime: The module of jaxlib, freshly loaded.
      socket_path: Where the owner of the services listens.
    """
    types = compat.service_parameters(runtime)
    signature = Signature(
        [
            Parameter(
                name,
                Parameter.POSITIONAL_OR_KEYWORD,
                default=Parameter.empty if name in compat.SERVICE_REQUIRED else None,
            )
            for name in types
        ]
    )

    def start(*arguments: Any, **named: Any) -> SubstituteService:
        given = signature.bind(*arguments, **named).arguments
        values = {
            name: _converted(name, types[name], value)
            for name, value in given.items()
            if value is not None or name in compat.SERVICE_REQUIRED
        }
        address, processes = (values.pop(name) for name in compat.SERVICE_REQUIRED)
        return _start(socket_path, ServiceRequest(address, processes, values))

    return start


def _converted(name: str, type_name: str, value: Any) -> Any:
    """The value as JSON has it, or the `TypeError` that jaxlib would raise."""
    if type_name == "int":
        return operator.index(value)
    expected = {"str": str, "bool": bool}[type_name]
    if not isinstance(value, expected):
        raise TypeError(f"{name} must be a {type_name}, found {value!r}")
    # Who reads the file may have another working directory.
    if isinstance(value, str) and value and name.endswith("_file"):
        return os.path.abspath(value)  # noqa: PTH100 - pathlib is slow to import, and every wrapped Python has this file
    return value


def _start(socket_path: str, request: ServiceRequest) -> SubstituteService:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(socket_path)
        connection.sendall(request.line())
        line = _read_line(connection)
        error = error_in(line) if line else "UNAVAILABLE: coordlab wrap has ended"
    except OSError as problem:
        error = f"UNAVAILABLE: cannot reach coordlab wrap: {problem}"
    if error:
        connection.close()
        raise compat.runtime_error(error)
    return SubstituteService(connection, is_new=is_of_a_new_service(line))


def _end(connection: socket.socket, process_id: int) -> None:
    with connection:
        if os.getpid() != process_id:
            return  # A fork's copy: the service is its parent's.
        with contextlib.suppress(OSError):  # Who served has ended, and so has the service.
            connection.sendall(SHUTDOWN)
            _read_line(connection)


def _read_line(connection: socket.socket) -> bytes:
    """A line, or less if the other side has gone."""
    line = b""
    while not line.endswith(b"\n"):
        chunk = connection.recv(4096)
        if not chunk:
            return b""
        line += chunk
    return line
