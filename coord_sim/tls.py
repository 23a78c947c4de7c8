"""Mutual TLS: certificates from files, as jaxlib 0.12's `mtls_*` parameters have them.

Each side shows a certificate and demands one that the CA signed. The client checks the server's host
name; with a peer URI prefix both sides check instead that a URI of the other's certificate (a SPIFFE id,
say) begins with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)

_HANDSHAKE_TIMEOUT_S = 5.0
_CHUNK_BYTES = 1 << 18
_UNHEARD_MAX = 3
"""Connections in a row that a server may end after the handshake without a byte: some refuse us so."""


class TlsError(Exception):
    """Certificates that cannot be used, or a peer that is not trusted; says which and why."""


@dataclass(frozen=True, slots=True)
class PeerFiles:
    """Paths of PEM files, read anew for each use so that they can be renewed.

    Attributes:
      uri_prefix: Empty, or what a URI of the peer's certificate must begin with.
    """

    cert: str
    key: str
    ca: str
    uri_prefix: str = ""

    @classmethod
    def given(cls, cert: str, key: str, ca: str, uri_prefix: str) -> PeerFiles | None:
        """The files, or None if none is named: plain text.

        Raises:
          TlsError: only some are named, or the prefix is not one.
        """
        named = {"certificate": cert, "key": key, "CA": ca}
        if not any(named.values()):
            if uri_prefix:
                raise TlsError("a peer URI prefix needs certificate, key and CA files")
            return None
        missing = [name for name, path in named.items() if not path]
        if missing:
            raise TlsError(
                f"TLS needs certificate, key and CA files; missing: {', '.join(missing)}"
            )
        if uri_prefix and not uri_prefix.endswith("/"):
            raise TlsError(f"the peer URI prefix must end in '/', found {uri_prefix!r}")
        return cls(cert, key, ca, uri_prefix)

    def context(self, protocol: int) -> ssl.SSLContext:
        """What TLS needs, from the files as they are now; it demands a certificate of the peer.

        Args:
          protocol: `ssl.PROTOCOL_TLS_SERVER`, or `ssl.PROTOCOL_TLS_CLIENT`, which checks the host name
            unless there is a prefix.

        Raises:
          TlsError: a file cannot be read, is not PEM, or key and certificate do not belong together.
        """
        context = ssl.SSLContext(protocol)
        is_client = protocol == ssl.PROTOCOL_TLS_CLIENT
        context.check_hostname = is_client and not self.uri_prefix
        for path in (self.cert, self.key, self.ca):
            try:
                open(path, "rb").close()
            except OSError as error:
                raise TlsError(f"cannot read {path}: {error.strerror or error}") from error
        try:
            # With a password, a key that is encrypted is an error and no question at the terminal.
            context.load_cert_chain(self.cert, self.key, password="")
        except (ssl.SSLError, OSError) as error:
            raise TlsError(
                f"certificate {self.cert} and key {self.key} are not a PEM pair: {error}"
            ) from error
        try:
            context.load_verify_locations(self.ca)
        except (ssl.SSLError, OSError) as error:
            raise TlsError(f"the CA file {self.ca} has no PEM certificate: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols(["h2"])
        return context


class CurrentContext:
    """The TLS context of files that may be renewed while they are used.

    Args:
      files: As they are now; if they cannot be used later, the former ones stay.
      protocol: As `PeerFiles.context` has it.

    Raises:
      TlsError: the files cannot be used.
    """

    def __init__(self, files: PeerFiles, protocol: int) -> None:
        self._files = files
        self._protocol = protocol
        self._stamp = self._stamp_now()
        self._context = files.context(protocol)

    def __call__(self) -> ssl.SSLContext:
        """The context for a new connection."""
        stamp = self._stamp_now()  # Before they are read: a change meanwhile is seen the next time.
        if stamp != self._stamp:
            try:
                self._context = self._files.context(self._protocol)
            except TlsError as error:
                _log.warning("certificates were not renewed: %s", error)
            else:
                self._stamp = stamp
                _log.info("certificates were renewed from %s", self._files.cert)
        return self._context

    def _stamp_now(self) -> tuple[tuple[int, ...], ...]:
        found: list[tuple[int, ...]] = []
        for path in (self._files.cert, self._files.key, self._files.ca):
            try:
                stat = Path(path).stat()
            except OSError:
                found.append(())
            else:
                found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return tuple(found)


def uris_of(certificate: Mapping[str, Any]) -> list[str]:
    """The URIs among the subject alternative names of `getpeercert()`."""
    return [name for kind, name in certificate.get("subjectAltName", ()) if kind == "URI"]


def is_trusted(uris: Iterable[str], uri_prefix: str) -> bool:
    """Whether a peer with these URIs is one that the prefix means."""
    return any(uri.startswith(uri_prefix) for uri in uris)


def alert_of(error: ssl.SSLError) -> str:
    """What the peer said when it ended the connection, such as `unknown ca`; empty if nothing."""
    return (error.reason or "").partition("_ALERT_")[2].replace("_", " ").lower()


class TlsRelay:
    """Carries the plain connections of one client, over TLS, to its server.

    gRPC's own TLS for Python cannot judge a server by a URI of its certificate, nor say why it refused
    one, nor take renewed files for a new connection. The relay listens on a socket that only this user
    can reach.

    Args:
      address: `host:port` of the server.
      files: Of the client.
      on_refusal: Told when one side refuses the other; the relay then makes no connection any more.

    Raises:
      TlsError: the files cannot be used, or the address is none.
    """

    def __init__(
        self, address: str, files: PeerFiles, on_refusal: Callable[[TlsError], None]
    ) -> None:
        self._address = address
        self._host, self._port = _host_and_port(address)
        self._uri_prefix = files.uri_prefix
        self._context = CurrentContext(files, ssl.PROTOCOL_TLS_CLIENT)
        self._on_refusal = on_refusal
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._listener: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()
        self._unheard = 0

    async def start(self) -> str:
        """Listens; returns the target for gRPC."""
        self._folder = tempfile.TemporaryDirectory(prefix="coordlab-tls-")
        path = f"{self._folder.name}/relay"
        self._listener = await asyncio.start_unix_server(self._accept, path)
        return f"unix:{path}"

    async def stop(self) -> None:
        """Ends the listener and all connections."""
        if self._listener is not None:
            self._listener.close()
        relays = list(self._relays)
        for task in relays:
            task.cancel()
        await asyncio.gather(*relays, return_exceptions=True)
        if self._folder is not None:
            self._folder.cleanup()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._listener is None or not self._listener.is_serving():
            writer.close()  # It came while the listener closed.
            return
        task = asyncio.ensure_future(self._relay(reader, writer))
        self._relays.add(task)
        task.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await self._connect()
            await self._carry(reader, writer, far_reader, far_writer)
        except TlsError as error:
            if self._listener is not None:
                self._listener.close()
            self._on_refusal(error)
        except OSError:
            self._unheard = 0  # Not there (yet): gRPC tries again.
        finally:
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            reader, writer = await asyncio.open_connection(
                self._host,
                self._port,
                ssl=self._context(),
                server_hostname=self._host,
                ssl_handshake_timeout=_HANDSHAKE_TIMEOUT_S,
            )
        except ssl.SSLCertVerificationError as error:
            raise TlsError(
                f"the certificate of the server at {self._address} is not trusted: "
                f"{error.verify_message}"
            ) from error
        except ssl.SSLError as error:
            if alert_of(error):
                raise self._refusal(error) from error
            reason = error.reason or str(error)
            raise TlsError(f"the server at {self._address} does not speak TLS: {reason}") from error
        uris = uris_of(writer.get_extra_info("peercert") or {})
        if self._uri_prefix and not is_trusted(uris, self._uri_prefix):
            writer.transport.abort()
            raise TlsError(
                f"the certificate of the server at {self._address} has no URI that begins with "
                f"{self._uri_prefix}: found {', '.join(uris) or 'none'}"
            )
        return reader, writer

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        outward = asyncio.ensure_future(_copy(reader, far_writer))
        try:
            is_heard = await _copy(far_reader, writer)
            has_left = reader.at_eof()
        except ssl.SSLError as error:
            if not alert_of(error):
                raise
            # With TLS 1.3 a server judges our certificate after our side of the handshake is done.
            raise self._refusal(error) from error
        finally:
            outward.cancel()
            await asyncio.gather(outward, return_exceptions=True)
            far_writer.transport.abort()
        if is_heard or has_left:
            self._unheard = 0
            return
        self._unheard += 1
        if self._unheard == _UNHEARD_MAX:
            raise TlsError(
                f"the server at {self._address} ends every connection after the handshake, without a "
                "word: it seems to refuse this client's certificate, or its URIs"
            )

    def _refusal(self, error: ssl.SSLError) -> TlsError:
        return TlsError(
            f"the server at {self._address} refuses this client's certificate: {alert_of(error)}"
        )


async def speaks_tls(address: str, timeout_s: float = _HANDSHAKE_TIMEOUT_S) -> bool:
    """Whether a server that does not answer plain text wants TLS: it presents a certificate.

    Args:
      address: `HOST:PORT` of something that takes connections.
      timeout_s: For the handshake.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        host, port = _host_and_port(address)
        _, writer = await asyncio.open_connection(
            host, port, ssl=context, ssl_handshake_timeout=timeout_s
        )
    except (OSError, ValueError, TlsError):
        return False
    writer.transport.abort()
    return True


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise TlsError(f"an address is HOST:PORT, found {address!r}")
    return host.strip("[]"), int(port)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Carries one direction until its end; whether there was anything."""
    is_heard = False
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK_BYTES):
            is_heard = True
            writer.write(data)
            await writer.drain()
    writer.close()
    return is_heard
