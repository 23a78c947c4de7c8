"""gRPC over HTTP/2: messages with their lengths, statuses in trailers, compression of requests.

As https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md has it. Deadlines are left to the
client, which resets a call that is late.
"""

from __future__ import annotations

import base64
import logging
import urllib.parse
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any

from coord_sim.core.status import Code
from coord_sim.server import http2
from coord_sim.server.http2 import Connection, Stream, literal

_log = logging.getLogger(__name__)

MESSAGE_BYTES_MAX = 900 << 20
"""The largest request, compressed or not, and the most that a connection may have in unfinished ones."""
CALLS_MAX = 4096
"""Calls of one connection that may be unanswered; more fail with RESOURCE_EXHAUSTED."""

_UNFINISHED_MAX = MESSAGE_BYTES_MAX + (64 << 20)
_PREFIX = Struct(">BI")
_STATUS_200 = b"\x88"
_CONTENT_TYPE = literal("content-type", "application/grpc")
_RESPONSE_HEAD = (
    _STATUS_200 + _CONTENT_TYPE + literal("grpc-accept-encoding", "identity,deflate,gzip")
)
_ERROR_HEAD = _STATUS_200 + _CONTENT_TYPE
_OK_TRAILERS = literal("grpc-status", "0")
_NOT_GRPC = literal(":status", "415") + literal("content-type", "text/plain")
_WINDOW_BITS = {b"gzip": 31, b"deflate": 15}
_PLAIN_MESSAGE = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"


@dataclass(frozen=True, slots=True)
class Rpc:
    """One method: what to do with its messages.

    Attributes:
      is_unary: `on_message` gets the one message, when the request has ended.
      on_end: Of a stream of messages: the client has said all.
    """

    on_message: Callable[[Stream, bytes], None]
    is_unary: bool = True
    on_end: Callable[[Stream], None] | None = None


@dataclass(frozen=True, slots=True)
class _Head:
    """What the headers of a request say."""

    rpc: Rpc | None
    encoding: bytes
    refusal: bytes
    """The header block that answers a request which cannot be served; else empty."""


class _Request:
    """The part of a request's body that is not yet handed on."""

    __slots__ = ("buffer", "encoding", "message", "rpc")

    def __init__(self, rpc: Rpc, encoding: bytes) -> None:
        self.rpc = rpc
        self.encoding = encoding
        self.buffer = bytearray()
        self.message: bytes | None = None


class GrpcConnection(Connection):
    """One client's connection.

    Args:
      rpcs: The methods, by path.
      on_cancel: Told when a call that was handed on is given up by the client.
      on_open: Told of the connection when it is there, and `on_close` when it is gone.
      on_close: See `on_open`.
    """

    def __init__(
        self,
        rpcs: Mapping[bytes, Rpc],
        *,
        on_cancel: Callable[[Stream], None],
        on_open: Callable[[GrpcConnection], None],
        on_close: Callable[[GrpcConnection], None],
    ) -> None:
        super().__init__()
        self._rpcs = rpcs
        self._on_cancel = on_cancel
        self._on_open = on_open
        self._on_close = on_close
        self._unfinished = 0

    # --- answers -------------------------------------------------------------------------------

    def reply(self, stream: Stream, message: bytes) -> None:
        """Ends a call with a message."""
        data = _PREFIX.pack(0, len(message)) + message
        self.send(stream, _RESPONSE_HEAD, data, _OK_TRAILERS)

    def send_message(self, stream: Stream, message: bytes, *, is_first: bool) -> None:
        """Sends one message of a stream of answers."""
        data = _PREFIX.pack(0, len(message)) + message
        self.send(stream, _RESPONSE_HEAD if is_first else b"", data, None)

    def finish(self, stream: Stream, *, is_first: bool) -> None:
        """Ends a stream of answers."""
        self.end_at_once(stream, (_RESPONSE_HEAD if is_first else b"") + _OK_TRAILERS)

    def fail(self, stream: Stream, code: int, message: str, details: bytes = b"") -> None:
        """Ends a call with an error; `details` is the value of `grpc-status-details-bin`."""
        if stream.request is not None:
            self._forget(stream.request)
            stream.request = None  # What else comes of it is not looked at.
        block = _error_fields(code, message, details)
        self.end_at_once(stream, block if stream.is_begun else _ERROR_HEAD + block)

    # --- requests ------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """The connection is there."""
        super().connection_made(transport)
        self._on_open(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, and with it every call on it."""
        super().connection_lost(exc)
        self._on_close(self)

    def head_of(self, headers: http2.Headers) -> _Head:
        """Which method is meant, or why none."""
        is_grpc = headers.get(b"content-type", b"").startswith(b"application/grpc")
        if headers.get(b":method") != b"POST" or not is_grpc:
            return _Head(None, b"", _NOT_GRPC)
        path = headers.get(b":path", b"")
        rpc = self._rpcs.get(path)
        if rpc is None:
            shown = path.decode("utf-8", "replace")[:200]
            message = f"this server has no method {shown}"
            return _Head(None, b"", _ERROR_HEAD + _error_fields(Code.UNIMPLEMENTED, message))
        encoding = headers.get(b"grpc-encoding", b"identity")
        if encoding != b"identity" and encoding not in _WINDOW_BITS:
            message = "requests may be compressed with gzip or deflate only"
            return _Head(None, b"", _ERROR_HEAD + _error_fields(Code.UNIMPLEMENTED, message))
        return _Head(rpc, encoding, b"")

    def opened(self, stream: Stream, head: Any) -> None:
        """A request has begun."""
        if head.refusal:
            self.end_at_once(stream, head.refusal)
        elif len(self.streams) > CALLS_MAX:
            message = f"this connection has {CALLS_MAX} calls that are not answered"
            self.fail(stream, Code.RESOURCE_EXHAUSTED, message)
        else:
            stream.request = _Request(head.rpc, head.encoding)

    def received(self, stream: Stream, data: bytes, *, ended: bool) -> None:
        """A piece of a request's body has arrived."""
        request: _Request | None = stream.request
        if request is None:
            return
        buffer = request.buffer
        if not buffer and len(data) >= 5 and _PREFIX.unpack_from(data)[1] == len(data) - 5:
            if ended and not data[0] and request.message is None and request.rpc.is_unary:
                request.rpc.on_message(stream, data[5:])  # One message in one frame: the rule.
                return
            self._whole(stream, request, data[0], data[5:])
        elif data:
            buffer += data
            self._unfinished += len(data)
            self._take_messages(stream, request)
        if ended and stream.request is request:
            self._ended(stream, request)

    def _take_messages(self, stream: Stream, request: _Request) -> None:
        buffer = request.buffer
        while len(buffer) >= 5 and stream.request is request:
            flag, size = _PREFIX.unpack_from(buffer)
            if size > MESSAGE_BYTES_MAX or self._unfinished > _UNFINISHED_MAX:
                self._refuse_size(stream)
                return
            if len(buffer) < 5 + size:
                return
            body = bytes(memoryview(buffer)[5 : 5 + size])
            del buffer[: 5 + size]
            self._unfinished -= 5 + size
            self._whole(stream, request, flag, body)

    def _whole(self, stream: Stream, request: _Request, flag: int, body: bytes) -> None:
        """A message is whole."""
        if flag:
            inflated = _inflate(body, request.encoding) if flag == 1 else None
            if inflated is None:
                self.fail(stream, Code.INTERNAL, "a compressed message cannot be read")
                return
            body = inflated
        if not request.rpc.is_unary:
            request.rpc.on_message(stream, body)
        elif request.message is None:
            request.message = body
            self._unfinished += len(body)
            if self._unfinished > _UNFINISHED_MAX:
                self._refuse_size(stream)
        else:
            self.fail(stream, Code.UNIMPLEMENTED, "this method takes one message")

    def _ended(self, stream: Stream, request: _Request) -> None:
        if request.buffer:
            self.fail(stream, Code.INTERNAL, "the request ends within a message")
        elif not request.rpc.is_unary:
            if request.rpc.on_end is not None:
                request.rpc.on_end(stream)
        elif request.message is None:
            self.fail(stream, Code.UNIMPLEMENTED, "the request has no message")
        else:
            message, request.message = request.message, None
            self._unfinished -= len(message)
            request.rpc.on_message(stream, message)

    def cancelled(self, stream: Stream) -> None:
        """The client gave up a call, or is gone."""
        if stream.request is not None:
            self._forget(stream.request)
            self._on_cancel(stream)

    def _refuse_size(self, stream: Stream) -> None:
        message = f"a request may have {MESSAGE_BYTES_MAX} bytes"
        self.fail(stream, Code.RESOURCE_EXHAUSTED, message)

    def _forget(self, request: _Request) -> None:
        self._unfinished -= len(request.buffer) + len(request.message or b"")
        request.buffer = bytearray()
        request.message = None


def connection_of(stream: Stream) -> GrpcConnection:
    """The connection that a call came on."""
    connection = stream.connection
    assert isinstance(connection, GrpcConnection), "its calls are handed on by this class alone"
    return connection


def _inflate(body: bytes, encoding: bytes) -> bytes | None:
    """A message as it was before compression; None if it is not that, or too large."""
    if encoding not in _WINDOW_BITS:
        return None
    inflater = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        message = inflater.decompress(body, MESSAGE_BYTES_MAX)
    except zlib.error:
        return None
    return message if inflater.eof else None


def _error_fields(code: int, message: str, details: bytes = b"") -> bytes:
    """The fields that say of an answer that it is an error."""
    block = literal("grpc-status", str(int(code)))
    if message:
        quoted = urllib.parse.quote(message, safe=_PLAIN_MESSAGE, errors="surrogateescape")
        block += literal("grpc-message", quoted)
    if details:
        text = base64.b64encode(details).decode().rstrip("=")
        block += literal("grpc-status-details-bin", text)
    return block
