"""The services of a wrapped command: started, found again and ended as its processes ask."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coord_sim.cli.errors import complain
from coord_sim.cli.recordings import recording_path
from coord_sim.core.identifiers import seconds
from coord_sim.core.semantics import SEMANTICS
from coord_sim.recording.file import RecordingFile
from jax_bridge.substitute.request import SHUTDOWN, ServiceRequest, answer

if TYPE_CHECKING:
    from coord_sim.server.grpc_server import CoordinationServer

_CONFIG_OF = {
    "heartbeat_timeout": "heartbeat_timeout_ns",
    "cluster_register_timeout": "register_timeout_ns",
    "shutdown_timeout": "shutdown_timeout_ns",
}
"""jaxlib's names of the times, in seconds -> ours."""

_TLS = ("mtls_cert_file", "mtls_key_file", "mtls_ca_file", "mtls_peer_uri_prefix")

_log = logging.getLogger(__name__)


class _Refused(Exception):
    """A service that cannot be; the text is what jaxlib's exception shall say."""


@dataclass(slots=True, eq=False)
class _Running:
    """A service of the command.

    Attributes:
      request: As it was asked for.
      server: Ours.
      owners: The processes that started it and live, by their connections; empty if all died.
    """

    request: ServiceRequest
    server: CoordinationServer
    owners: set[asyncio.StreamWriter]

    @property
    def outlives_its_owner(self) -> bool:
        """Whether processes of the job may come back to it; a fate-sharing job dies as a whole."""
        return bool(self.request.options.get("recoverable", False))


class Services:
    """All services that the command asked for.

    Args:
      semantics: The name of their face.
      record: Where the first is recorded, if it is; others have a number in the file's name.

    Attributes:
      asked: Whether anybody asked for one.
      started: How many there were.
    """

    def __init__(self, semantics: str, record: Path | None) -> None:
        self.asked = False
        self._semantics = semantics
        self._record = record
        self.started = 0
        self._running: list[_Running] = []
        self._changing = asyncio.Lock()

    async def attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves a process for as long as it owns a service (`request` has the protocol)."""
        try:
            line = await reader.readline()
            if not line:
                return
            self.asked = True
            try:
                running, is_new = await self._serve(ServiceRequest.from_line(line), writer)
            except _Refused as refusal:
                writer.write(answer(str(refusal)))
                return
            writer.write(answer(is_new=is_new))
            asked_to_end = await self._end_of_ownership(reader) == SHUTDOWN
            running.owners.discard(writer)
            if asked_to_end or not running.outlives_its_owner:
                await self._end(running)
            else:
                _log.info("%s: its process died; the service goes on", running.request.address)
            writer.write(answer())
        finally:
            writer.close()

    async def stop(self) -> None:
        """Stops all."""
        async with self._changing:
            for running in list(self._running):
                await self._stop(running)

    @staticmethod
    async def _end_of_ownership(reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.readline()
        except ConnectionError:
            return b""

    async def _serve(
        self, request: ServiceRequest, owner: asyncio.StreamWriter
    ) -> tuple[_Running, bool]:
        """The service, and whether it was started for this."""
        async with self._changing:
            running = self._found(request.address)
            if running is not None and (running.owners or running.outlives_its_owner):
                if running.request == request:
                    _log.info("%s: served already, by the same service", request.address)
                    running.owners.add(owner)
                    return running, False
            if running is not None and not running.owners:
                await self._stop(running)  # Of a job that is over: this is another one.
            running = _Running(request, await self._start(request), {owner})
            self._running.append(running)
            return running, True

    def _found(self, address: str) -> _Running | None:
        """Who serves there; port 0 is another port each time."""
        here = (running for running in self._running if running.request.address == address)
        return None if address.endswith(":0") else next(here, None)

    async def _start(self, request: ServiceRequest) -> CoordinationServer:
        from coord_sim.core.service import ServiceConfig
        from coord_sim.server.grpc_server import CoordinationServer
        from coord_sim.server.listening import PortUnavailable
        from coord_sim.tls import PeerFiles, TlsError

        options = dict(request.options)
        recoverable = bool(options.pop("recoverable", False))
        times: dict[str, Any] = {
            field: seconds(float(options.pop(name)))
            for name, field in _CONFIG_OF.items()
            if name in options
        }
        paths = [str(options.pop(name, "")) for name in _TLS]
        if options.pop("verify_secure_credentials", False) and not any(paths):
            raise _Refused("INVALID_ARGUMENT: verify_secure_credentials needs the mtls_* files")
        if options:
            raise _Refused(f"UNIMPLEMENTED: coordlab wrap does not know {', '.join(options)}")
        semantics = SEMANTICS[self._semantics]
        try:
            config = ServiceConfig(
                tasks=request.processes, recoverable=recoverable, semantics=semantics, **times
            )
            tls = PeerFiles.given(*paths)
        except (ValueError, TlsError) as error:
            raise _Refused(f"INVALID_ARGUMENT: {error}") from None
        server = CoordinationServer(config, tls=tls)
        host, _, port = request.address.rpartition(":")
        try:
            server.bind(host, int(port))
        except TlsError as error:
            raise _Refused(f"INVALID_ARGUMENT: {error}") from None
        except (PortUnavailable, ValueError) as error:
            complain(str(error))
            raise _Refused("UNKNOWN: Failed to start RPC server") from None
        recording = None
        if self._record is not None:
            path = recording_path(self._record, self.started + 1)
            try:
                recording = RecordingFile(path)
            except OSError as error:
                await server.stop()  # It holds the port.
                raise _Refused(f"INTERNAL: cannot record to {path}: {error.strerror}") from None
        await server.start(recording)
        self.started += 1
        _log.info(
            "%s: serving %d processes%s",
            request.address,
            request.processes,
            ", recoverable" if recoverable else "",
        )
        return server

    async def _end(self, running: _Running) -> None:
        async with self._changing:
            # Somebody may have come, or ended it, meanwhile.
            if running in self._running and not running.owners:
                await self._stop(running)

    async def _stop(self, running: _Running) -> None:
        self._running.remove(running)
        await running.server.stop()
        _log.info("%s: service ended", running.request.address)
