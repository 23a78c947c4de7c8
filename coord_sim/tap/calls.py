"""The calls on one connection, read from copies of its bytes: gRPC, as in PROTOCOL-HTTP2.md."""

from __future__ import annotations

import base64
import binascii
import urllib.parse
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final, Protocol, cast

import google.protobuf.message

from coord_sim.core.identifiers import CallId
from coord_sim.core.messages import Answer, Request
from coord_sim.core.status import Code, Status
from coord_sim.tap.frames import (
    DATA,
    END_STREAM,
    HEADERS,
    PREFACE,
    RST_STREAM,
    Fields,
    Frames,
    Headers,
    Undecodable,
)
from coord_sim.wire.client_methods import client_method, read_status
from coord_sim.wire.server_methods import METHODS, SERVICE, STATUS_PAYLOADS_KEY, Method

MESSAGE_BYTES_MAX: Final = 8 << 20
"""Larger messages are passed on, and left out of the recording: a line of a history has its limit, and
JSON may need six bytes for one."""

TOO_LARGE: Final = "calls with large messages"
UNREADABLE: Final = "calls that are not the service's messages"
TLS: Final = "TLS connections"
NOT_HTTP2: Final = "connections that are not HTTP/2"
BROKEN: Final = "connections that could not be followed"

_KNOWN_MAX: Final = 1024
_KNOWN_BYTES_MAX: Final = 1024
_PREFIX: Final = Struct(">BI")
_METHODS: Final = {f"/{SERVICE}/{method.name}".encode(): method for method in METHODS}
_TLS_HANDSHAKE: Final = b"\x16\x03"
_WINDOW_BITS: Final = {b"gzip": 31, b"deflate": 15}
_CODE_OF_RESET: Final = {7: Code.UNAVAILABLE, 8: Code.CANCELLED, 11: Code.RESOURCE_EXHAUSTED}
"""HTTP/2 error codes -> what a client of gRPC makes of them; all others are INTERNAL."""

SERVICE_GONE: Final = Status(
    code=Code.UNAVAILABLE, message="the connection to the service was lost", service_error=None
)


class Listener(Protocol):
    """Who is told of calls; times are nanoseconds of CLOCK_MONOTONIC."""

    def request(self, call: CallId, request: Request, now_ns: int) -> None:
        """A request is whole."""

    def reply(self, call: CallId, answer: Answer, now_ns: int) -> None:
        """Its answer is whole."""

    def hang_up(self, call: CallId, now_ns: int) -> None:
        """The client gave it up."""

    def gap(self, kind: str, why: str, now_ns: int) -> None:
        """Something cannot be recorded."""


@dataclass(frozen=True, slots=True)
class _Ask:
    """What the head of a request says; `method` is None if it is none of the service's."""

    method: Method | None
    encoding: bytes


@dataclass(frozen=True, slots=True)
class _Told:
    """What a header block of an answer says; `code` is None if it is no end."""

    code: int | None
    message: str
    payloads: bytes
    encoding: bytes


class _Body:
    """The message of one direction of a call, as far as it has come."""

    __slots__ = ("encoding", "pieces", "size")

    def __init__(self, encoding: bytes) -> None:
        self.encoding = encoding
        self.pieces: list[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        if self.size > MESSAGE_BYTES_MAX:
            self.pieces.clear()
        else:
            self.pieces.append(data)

    def take(self) -> bytes:
        """All of it, which is then no longer kept here.

        Raises:
          _TooLarge: it was more than what is kept.
        """
        if self.size > MESSAGE_BYTES_MAX:
            raise _TooLarge
        pieces, self.pieces = self.pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def message(self, data: bytes) -> bytes:
        """The one message in all of the data.

        Raises:
          ValueError: it is not that.
        """
        if len(data) < _PREFIX.size:
            raise ValueError("it has no message")
        flag, size = _PREFIX.unpack_from(data)
        if len(data) != _PREFIX.size + size:
            raise ValueError("it is not one message")
        message = data[_PREFIX.size :]
        return message if not flag else self._inflated(message)

    def _inflated(self, message: bytes) -> bytes:
        bits = _WINDOW_BITS.get(self.encoding)
        if bits is None:
            raise ValueError(f"it is compressed with {self.encoding!r}")
        inflater = zlib.decompressobj(bits)
        try:
            plain = inflater.decompress(message, MESSAGE_BYTES_MAX + 1)
        except zlib.error as error:
            raise ValueError(f"it cannot be decompressed: {error}") from error
        if len(plain) > MESSAGE_BYTES_MAX:
            raise _TooLarge
        if not inflater.eof:
            raise ValueError("its compressed data are cut")
        return plain


class _TooLarge(Exception):
    """A message is larger than what can be recorded."""


class Messages:
    """Reads messages; equal ones that come again and again are read once, whoever sends them.

    Members of a round get one answer, and each asks for the next one in the same words.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes], Request | Answer] = {}

    def request(self, method: Method, body: bytes, message: Callable[[], bytes]) -> Request:
        """A request, by the bytes that stand for it, compressed or not."""
        key = (method.name, body)
        known = self._known.get(key)
        if known is None:
            known = method.to_core(method.request_type.FromString(message()))
            self._keep(key, known)
        return cast("Request", known)

    def answer(self, request: Request, body: bytes, message: Callable[[], bytes]) -> Answer:
        """The answer to a request."""
        method = client_method(request)
        key = (f"answer of {method.name}", body)
        known = self._known.get(key)
        if known is None:
            known = method.to_core(method.response_type.FromString(message()))
            self._keep(key, known)
        return cast("Answer", known)

    def _keep(self, key: tuple[str, bytes], message: Request | Answer) -> None:
        if len(key[1]) > _KNOWN_BYTES_MAX:
            return
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()  # What is in use comes back at once.
        self._known[key] = message


class _Call:
    """A call: `id` and `request` once it is whole and told."""

    __slots__ = ("answer", "body", "id", "method", "request")

    def __init__(self, method: Method, encoding: bytes) -> None:
        self.method = method
        self.body = _Body(encoding)
        self.answer = _Body(b"identity")
        self.id: CallId | None = None
        self.request: Request | None = None


class Calls:
    """Follows one connection.

    Args:
      listener: Is told of its calls.
      messages: Reads them, for all connections.
      ids: Gives each call a number of its own.
    """

    def __init__(self, listener: Listener, messages: Messages, ids: Iterator[int]) -> None:
        self._listener = listener
        self._messages = messages
        self._ids = ids
        self._is_followed = True
        self._preface = b""
        self._asking = Frames()
        self._answering = Frames()
        self._asks = Headers(_ask)
        self._tells = Headers(_told)
        self._calls: dict[int, _Call | None] = {}

    def asked(self, data: bytes, now_ns: int) -> None:
        """Bytes came from the client."""
        if not self._is_followed:
            return
        if len(self._preface) < len(PREFACE):
            data = self._after_preface(data, now_ns)
        try:
            for kind, flags, stream, payload in self._asking.take(data):
                if kind == DATA:
                    call = self._calls.get(stream)
                    if call is not None:
                        call.body.add(payload)
                elif kind == HEADERS:
                    self._open(stream, self._asks.read(payload))
                else:
                    self._given_up(stream, now_ns)
                if kind != RST_STREAM and flags & END_STREAM:
                    self._whole(stream, now_ns)
        except Undecodable as error:
            self._lose(BROKEN, str(error), now_ns)

    def answered(self, data: bytes, now_ns: int) -> None:
        """Bytes came from the service."""
        if not self._is_followed:
            return
        try:
            for kind, flags, stream, payload in self._answering.take(data):
                call = self._calls.get(stream)
                if kind == DATA:
                    if call is not None:
                        call.answer.add(payload)
                    if flags & END_STREAM:
                        self._end(stream, None, now_ns)
                elif kind == HEADERS:
                    told: _Told = self._tells.read(payload)
                    if flags & END_STREAM:
                        self._end(stream, told, now_ns)
                    elif call is not None:
                        call.answer.encoding = told.encoding
                elif stream in self._calls:
                    self._reset(stream, payload, now_ns)
        except Undecodable as error:
            self._lose(BROKEN, str(error), now_ns)

    def closed(self, now_ns: int, *, by_client: bool) -> None:
        """The connection is gone, and with it every call on it."""
        calls, self._calls = self._calls, {}
        self._is_followed = False
        for call in calls.values():
            if call is None or call.id is None:
                continue
            if by_client:
                self._listener.hang_up(call.id, now_ns)
            else:
                self._listener.reply(call.id, SERVICE_GONE, now_ns)

    # --- requests ------------------------------------------------------------------------------

    def _after_preface(self, data: bytes, now_ns: int) -> bytes:
        missing = len(PREFACE) - len(self._preface)
        self._preface += data[:missing]
        if self._preface.startswith(_TLS_HANDSHAKE[: len(self._preface)]):
            if len(self._preface) >= len(_TLS_HANDSHAKE):
                self._lose(TLS, "they are encrypted, and passed on unread", now_ns)
                return b""
        elif not PREFACE.startswith(self._preface):
            self._lose(NOT_HTTP2, "they are passed on unread", now_ns)
            return b""
        return data[missing:]

    def _open(self, stream: int, ask: _Ask) -> None:
        if stream in self._calls:
            return  # Trailers of a request: they say nothing but that it ends.
        self._calls[stream] = None if ask.method is None else _Call(ask.method, ask.encoding)

    def _whole(self, stream: int, now_ns: int) -> None:
        call = self._calls.get(stream)
        if call is None:
            return
        body = call.body
        try:
            data = body.take()
            call.request = self._messages.request(call.method, data, lambda: body.message(data))
        except _TooLarge:
            self._leave_out(stream, TOO_LARGE, f"a request of {call.method.name}", now_ns)
            return
        except (google.protobuf.message.DecodeError, ValueError) as error:
            self._leave_out(stream, UNREADABLE, f"a request of {call.method.name}: {error}", now_ns)
            return
        call.id = CallId(next(self._ids))
        self._listener.request(call.id, call.request, now_ns)

    def _given_up(self, stream: int, now_ns: int) -> None:
        call = self._calls.pop(stream, None)
        if call is not None and call.id is not None:
            self._listener.hang_up(call.id, now_ns)

    # --- answers -------------------------------------------------------------------------------

    def _end(self, stream: int, told: _Told | None, now_ns: int) -> None:
        call = self._calls.pop(stream, None)
        if call is None or call.id is None or call.request is None:
            return
        if told is None or told.code is None:
            answer: Answer | None = Status(
                code=Code.UNKNOWN, message="the answer has no status", service_error=None
            )
        elif told.code != Code.OK:
            answer = read_status(told.code, told.message, told.payloads)
        else:
            answer = self._message(call, now_ns)
        if answer is not None:
            self._listener.reply(call.id, answer, now_ns)

    def _message(self, call: _Call, now_ns: int) -> Answer | None:
        """The answer, or None if it cannot be told: then the call stays open in the recording."""
        assert call.request is not None, "only whole requests are answered here"
        body = call.answer
        try:
            data = body.take()
            return self._messages.answer(call.request, data, lambda: body.message(data))
        except _TooLarge:
            self._listener.gap(TOO_LARGE, f"an answer of {call.method.name}", now_ns)
        except (google.protobuf.message.DecodeError, ValueError) as error:
            why = f"an answer of {call.method.name}: {error}"
            self._listener.gap(UNREADABLE, why, now_ns)
        return None

    def _reset(self, stream: int, payload: bytes, now_ns: int) -> None:
        call = self._calls.pop(stream)
        if call is None or call.id is None:
            return
        number = int.from_bytes(payload[:4], "big")
        status = Status(
            code=_CODE_OF_RESET.get(number, Code.INTERNAL),
            message=f"the service reset the call, with HTTP/2's error {number}",
            service_error=None,
        )
        self._listener.reply(call.id, status, now_ns)

    # --- what is not recorded ------------------------------------------------------------------

    def _leave_out(self, stream: int, kind: str, why: str, now_ns: int) -> None:
        self._calls[stream] = None
        self._listener.gap(kind, why, now_ns)

    def _lose(self, kind: str, why: str, now_ns: int) -> None:
        self._is_followed = False
        self._calls.clear()  # How they end is not seen: in the recording they stay open.
        self._listener.gap(kind, why, now_ns)


def _ask(fields: Fields) -> _Ask:
    return _Ask(_METHODS.get(fields.get(b":path", b"")), fields.get(b"grpc-encoding", b"identity"))


def _told(fields: Fields) -> _Told:
    status = fields.get(b"grpc-status")
    message = urllib.parse.unquote_to_bytes(fields.get(b"grpc-message", b""))
    details = fields.get(STATUS_PAYLOADS_KEY.encode(), b"")
    try:
        payloads = base64.b64decode(details + b"=" * (-len(details) % 4))
    except binascii.Error:
        payloads = b""  # Then the error counts as one of the transport.
    return _Told(
        None
        if status is None
        else int(status)
        if len(status) < 4 and status.isdigit()
        else int(Code.UNKNOWN),
        message.decode("utf-8", "surrogateescape"),
        payloads,
        fields.get(b"grpc-encoding", b"identity"),
    )
