"""TLS for the connections that the server accepts.

asyncio's own TLS drops the alert that ends a failed handshake: a client would see a broken connection,
try again until its time is up, and never learn why it is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import Any

from coord_sim.tls import alert_of, is_trusted, uris_of

_log = logging.getLogger(__name__)

_HANDSHAKE_TIMEOUT_S = 10.0
_LINGER_S = 1.0
_CHUNK_BYTES = 1 << 18
_HANDSHAKE_RECORD = 22
"""The first byte of a peer that speaks TLS (RFC 8446, section 5.1)."""


class TlsAcceptor(asyncio.Protocol):
    """One accepted connection: shakes hands, judges the peer, then carries a protocol's bytes.

    Args:
      context: Demands the peer's certificate.
      uri_prefix: Empty, or what a URI of that certificate must begin with.
      admit: Makes the protocol for a peer that is trusted.
      on_open: Told of the connection when it is there, and `on_close` when it is gone.
      on_close: See `on_open`.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        uri_prefix: str,
        admit: Callable[[], asyncio.Protocol],
        *,
        on_open: Callable[[TlsAcceptor], None],
        on_close: Callable[[TlsAcceptor], None],
    ) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._uri_prefix = uri_prefix
        self._admit = admit
        self._on_open = on_open
        self._on_close = on_close
        self._transport: asyncio.Transport | None = None
        self._protocol: asyncio.Protocol | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_first = True
        self._is_refused = False

    def abort(self) -> None:
        """Ends the connection without a word."""
        if self._transport is not None:
            self._transport.abort()

    # --- the socket's side ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there; the peer is to begin the handshake."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        loop = asyncio.get_running_loop()
        late = f"it did not end the handshake within {_HANDSHAKE_TIMEOUT_S:g} s"
        self._timer = loop.call_later(_HANDSHAKE_TIMEOUT_S, self._refuse, late)
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if self._is_refused:
            return
        if self._is_first and data[0] != _HANDSHAKE_RECORD:
            self._refuse("it does not speak TLS")
            return
        self._is_first = False
        self._incoming.write(data)
        if self._protocol is None:
            self._shake_hands()
        if self._protocol is not None:
            self._deliver(self._protocol)

    def eof_received(self) -> None:
        """The peer has said all: the transport closes."""
        if self._protocol is None and not self._is_refused:
            self._refuse("it ended the handshake; perhaps it does not trust this server")

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if self._protocol is not None:
            self._protocol.connection_lost(exc)
        elif exc is not None and not self._is_refused:
            self._refuse(f"it broke the connection: {exc}")
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._on_close(self)

    def pause_writing(self) -> None:
        """The peer does not read."""
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """The peer reads again."""
        if self._protocol is not None:
            self._protocol.resume_writing()

    # --- the protocol's side -------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Sends, sealed."""
        rest = memoryview(data)
        while rest:  # OpenSSL takes one record at a time.
            rest = rest[self._tls.write(rest) :]
        self._flush()

    def say_goodbye(self) -> None:
        """Tells the peer that nothing follows."""
        with contextlib.suppress(ssl.SSLError):  # Its answer is not waited for.
            self._tls.unwrap()
        self._flush()

    # --- TLS -----------------------------------------------------------------------------------

    def _shake_hands(self) -> None:
        assert self._transport is not None
        assert self._timer is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()  # The alert.
            self._refuse(_reason(error))
            return
        self._flush()
        uris = uris_of(self._tls.getpeercert() or {})
        if self._uri_prefix and not is_trusted(uris, self._uri_prefix):
            self._refuse(
                f"no URI of its certificate begins with {self._uri_prefix}: "
                f"{', '.join(uris) or 'it has none'}"
            )
            return
        self._timer.cancel()
        self._protocol = self._admit()
        self._protocol.connection_made(_TlsTransport(self, self._transport))

    def _deliver(self, protocol: asyncio.Protocol) -> None:
        assert self._transport is not None
        try:
            while not self._transport.is_closing():
                data = self._tls.read(_CHUNK_BYTES)
                if not data:  # The peer has said goodbye.
                    self._transport.close()
                    return
                protocol.data_received(data)
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as error:
            _log.info("a connection from %s is closed: %s", self._peer(), _reason(error))
            self._flush()
            self._transport.close()

    def _flush(self) -> None:
        if self._transport is not None and self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def _refuse(self, reason: str) -> None:
        """Ends a connection that was not admitted, so that the peer can read what was sent to it.

        A socket that is closed while it has unread data resets the connection, which can overtake the
        alert. So what the peer still sends is read, until it closes or a time is over.
        """
        assert self._transport is not None
        assert self._timer is not None
        _log.warning("a connection from %s was refused: %s", self._peer(), reason)
        self._is_refused = True
        self._timer.cancel()
        if self._transport.is_closing():
            return
        self._transport.write_eof()
        self._timer = asyncio.get_running_loop().call_later(_LINGER_S, self._transport.abort)

    def _peer(self) -> str:
        assert self._transport is not None
        host, port = self._transport.get_extra_info("peername", ("?", 0))[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _TlsTransport(asyncio.Transport):
    """What a protocol above TLS writes to; flow control is the socket's."""

    def __init__(self, acceptor: TlsAcceptor, below: asyncio.Transport) -> None:
        super().__init__()
        self._acceptor = acceptor
        self._below = below

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._below.resume_reading()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._below.is_closing():
            self._acceptor.write(bytes(data))

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def close(self) -> None:
        if not self._below.is_closing():
            self._acceptor.say_goodbye()
            self._below.close()

    def abort(self) -> None:
        self._below.abort()


def _reason(error: ssl.SSLError) -> str:
    """Why OpenSSL ended the connection, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it showed no certificate"
    alert = alert_of(error)
    if alert:
        return f"it does not trust this server: {alert}"
    return error.reason or str(error)
