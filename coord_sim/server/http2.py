"""The server's half of HTTP/2 on one connection: frames, streams, flow control and limits (RFC 9113).

Why not a library: with `grpc.aio` a call costs 4 to 5 times what it costs the C++ service, whatever the
handler does, and with `h2` 3 to 4 times (docs/performance.md). Header compression is `hpack`'s.

What a peer can make this side hold is bounded: by `QUEUED_BYTES_MAX` for what it does not read, by the
limits of a header block, and by the subclass for requests that are not whole or not answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from struct import Struct
from typing import Any

import hpack
import hpack.table

_log = logging.getLogger(__name__)

QUEUED_BYTES_MAX = 1 << 30
"""Answers that one connection may leave unread before it is closed."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

(
    DATA,
    HEADERS,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    PUSH_PROMISE,
    PING,
    GOAWAY,
    WINDOW_UPDATE,
    CONTINUATION,
) = range(10)
ACK = END_STREAM = 0x1
END_HEADERS = 0x4
PADDED = 0x8
WITH_PRIORITY = 0x20

NO_ERROR = 0x0
PROTOCOL_ERROR = 0x1
FLOW_CONTROL_ERROR = 0x3
FRAME_SIZE_ERROR = 0x6
COMPRESSION_ERROR = 0x9
ENHANCE_YOUR_CALM = 0xB

_SETTINGS_INITIAL_WINDOW = 0x4
_SETTINGS_MAX_FRAME = 0x5
_SETTINGS_TABLE_SIZE = 0x1
_SETTINGS_HEADER_LIST = 0x6

_FRAME_HEAD = Struct(">HBBBI")
_UINT32 = Struct(">I")
_SETTING = Struct(">HI")
_HEAD_BYTES = _FRAME_HEAD.size

WINDOW_MAX = (1 << 31) - 1
_WINDOW_DEFAULT = 65_535
_FRAME_DEFAULT = 16_384
_FRAME_MAX = (1 << 24) - 1
_TABLE_DEFAULT = 4096

_OUR_FRAME = 1 << 19
_OUR_STREAM_WINDOW = 8 << 20
_OUR_WINDOW = 64 << 20
_HEADER_LIST_MAX = 16_384
_HEADER_BLOCK_MAX = 65_536
_TABLE_RESIZES_MAX = 16
_HEADS_MAX = 256
_HEAD_BLOCK_MAX = 1024
_WINDOWS_SET_MAX = 100_000
_WRITE_CHUNK = 1 << 20
_PREFACE_TIMEOUT_S = 20.0
_CLOSE_TIMEOUT_S = 5.0

Headers = dict[bytes, bytes]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    size = len(payload)
    return _FRAME_HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


_OUR_SETTINGS = frame(
    SETTINGS,
    0,
    0,
    b"".join(
        _SETTING.pack(name, value)
        for name, value in (
            (_SETTINGS_INITIAL_WINDOW, _OUR_STREAM_WINDOW),
            (_SETTINGS_MAX_FRAME, _OUR_FRAME),
            (_SETTINGS_HEADER_LIST, _HEADER_LIST_MAX),
        )
    ),
) + frame(WINDOW_UPDATE, 0, 0, _UINT32.pack(_OUR_WINDOW - _WINDOW_DEFAULT))


class Stream:
    """One exchange: a request that is being received, and what is to be sent in answer to it.

    Attributes:
      half_closed: The peer has said all.
      window: How many bytes of data the peer takes on this stream now.
      unsent: Data that waits for windows; None once the answer is complete and all of it is sent.
      is_begun: The answer's headers are sent.
      trailers: The header block that ends the answer, once it is known.
      request: The connection's subclass's own.
      call: The server's own.
    """

    __slots__ = (
        "call",
        "connection",
        "half_closed",
        "id",
        "is_begun",
        "request",
        "trailers",
        "unacknowledged",
        "unsent",
        "window",
    )

    def __init__(self, connection: Connection, id_: int, window: int) -> None:
        self.connection = connection
        self.id = id_
        self.window = window
        self.half_closed = False
        self.is_begun = False
        self.unacknowledged = 0
        self.unsent: deque[memoryview] | None = None
        self.trailers: bytes | None = None
        self.request: Any = None
        self.call: Any = None


class ConnectionFault(Exception):
    """The peer broke the protocol; the connection ends with this error code."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


class _Table(hpack.table.HeaderTable):
    """A header table that counts its changes: a block may be looked up as long as there are none."""

    def __init__(self) -> None:
        self.changes = 0
        self.resizes = 0
        super().__init__()

    def add(self, name: bytes, value: bytes) -> None:
        self.changes += 1
        super().add(name, value)

    @property
    def maxsize(self) -> int:
        return int(hpack.table.HeaderTable.maxsize.fget(self))  # type: ignore[attr-defined]

    @maxsize.setter
    def maxsize(self, newmax: int) -> None:
        self.changes += 1
        self.resizes += 1
        if (
            self.resizes > _TABLE_RESIZES_MAX
        ):  # Two are enough (RFC 7541, 4.2), and each costs time.
            raise hpack.HPACKDecodingError("the table is resized again and again")
        hpack.table.HeaderTable.maxsize.fset(self, newmax)  # type: ignore[attr-defined]


class Connection(asyncio.Protocol):
    """One connection. A subclass says what requests mean: `opened`, `received` and `cancelled`."""

    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._is_started = False
        self._is_closing = False
        self._last_stream = 0
        self._decoder = hpack.Decoder(max_header_list_size=_HEADER_LIST_MAX)
        self._table = _Table()
        self._decoder.header_table = self._table
        self._heads: dict[bytes, Any] = {}
        self._block: tuple[int, int, bytes] | None = None
        self._window = _WINDOW_DEFAULT
        self._initial_window = _WINDOW_DEFAULT
        self._frame_max = _FRAME_DEFAULT
        self._unacknowledged = 0
        self._out: list[bytes | memoryview] = []
        self._queued = 0
        # Streams with data to send and, unless it shut since, a window to send it in.
        self._ready: dict[int, Stream] = {}
        self._is_paused = False
        self._is_reading = False
        self._table_update = b""
        self._windows_set = 0
        self._timer: asyncio.TimerHandle | None = None

    # --- for the subclass ----------------------------------------------------------------------

    def head_of(self, headers: Headers) -> Any:
        """What a request's headers mean. Kept for equal header blocks, so it must be a value."""
        raise NotImplementedError

    def opened(self, stream: Stream, head: Any) -> None:
        """A request has begun."""
        raise NotImplementedError

    def received(self, stream: Stream, data: bytes, *, ended: bool) -> None:
        """A piece of a request's body; `ended` if it is the last."""
        raise NotImplementedError

    def cancelled(self, stream: Stream) -> None:
        """The peer gave up a request that is not yet answered, or the connection is lost."""
        raise NotImplementedError

    def send(self, stream: Stream, headers: bytes, data: bytes, trailers: bytes | None) -> None:
        """Sends a header block (may be empty), data, and what ends the answer, if it is known."""
        size = len(data)
        id_ = stream.id
        out = self._out
        if headers:
            out.append(self._headers_frame(headers, END_HEADERS, id_))
            stream.is_begun = True
        at_most = min(self._frame_max, self._window, stream.window)
        if stream.unsent or size > at_most or self._is_paused:
            if self.transport is None:
                return
            if stream.unsent is None:
                stream.unsent = deque()
            stream.unsent.append(memoryview(data))
            stream.trailers = trailers
            self._queued += size
            self._ready[id_] = stream
            self._pump()
            if self._queued > QUEUED_BYTES_MAX:
                self._abandon()
                return
        else:
            if size:
                self._window -= size
                stream.window -= size
                out.append(_FRAME_HEAD.pack(size >> 8, size & 0xFF, DATA, 0, id_) + data)
            if trailers is not None:
                self._end(stream, trailers)
        if not self._is_reading or size >= _FRAME_DEFAULT:
            self.flush()

    def end_at_once(self, stream: Stream, headers: bytes) -> None:
        """Answers with a header block alone, or ends an answer with it."""
        if stream.unsent:
            stream.trailers = headers
            return
        self._end(stream, headers)
        if not self._is_reading:
            self.flush()

    def flush(self) -> None:
        """Hands what is to be sent to the transport, unless the peer does not read."""
        if not self._out or self.transport is None:
            return
        if self._is_paused:
            return
        out = self._out
        self._out = []
        self.transport.write(b"".join(out) if len(out) > 1 else out[0])

    def go_away(self, code: int = NO_ERROR, message: str = "") -> None:
        """Says that no new request is served, and closes once what is written is sent."""
        if self.transport is None or self._is_closing:
            return
        self._is_closing = True
        payload = _UINT32.pack(self._last_stream) + _UINT32.pack(code) + message.encode()[:256]
        self._out.append(frame(GOAWAY, 0, 0, payload))
        if self._is_paused:
            self.transport.abort()
            return
        self.flush()
        self.transport.close()
        if self._timer is not None:
            self._timer.cancel()
        # A peer that does not read would never let it close.
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_CLOSE_TIMEOUT_S, self.transport.abort)

    # --- asyncio's callbacks -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=_WRITE_CHUNK)
        transport.write(_OUR_SETTINGS)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_PREFACE_TIMEOUT_S, self._never_started)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """The connection is gone, and with it every call on it."""
        self.transport = None
        if self._timer is not None:
            self._timer.cancel()
        streams = list(self.streams.values())
        self.streams.clear()
        self._ready.clear()
        for stream in streams:
            self.cancelled(stream)

    def pause_writing(self) -> None:
        """The peer does not read: what it asks meanwhile is not read either."""
        self._is_paused = True
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._is_paused = False
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
        self._pump()
        self.flush()
        if self._buffer and not self._is_paused:
            self.data_received(b"")  # What had arrived when it stopped reading.

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if self._is_closing:
            return
        self._is_reading = True
        self._windows_set = 0
        try:
            if self._buffer:
                self._buffer += data
                used = self._read(self._buffer)
                del self._buffer[:used]
            else:
                used = self._read(data)
                if used < len(data):
                    self._buffer += data[used:]
            if self._unacknowledged > _OUR_WINDOW // 2:
                self._out.append(frame(WINDOW_UPDATE, 0, 0, _UINT32.pack(self._unacknowledged)))
                self._unacknowledged = 0
            if self._ready:
                self._pump()
        except ConnectionFault as fault:
            _log.info("a connection is closed: %s", fault)
            self.go_away(fault.code, str(fault))
        finally:
            self._is_reading = False
        self.flush()

    # --- frames --------------------------------------------------------------------------------

    def _read(self, data: bytes | bytearray) -> int:
        """Handles whole frames as long as the peer reads; returns how many bytes they were."""
        at = 0
        end = len(data)
        if not self._is_started:
            if data[: len(PREFACE)] != PREFACE[:end]:
                raise ConnectionFault(PROTOCOL_ERROR, "the peer does not speak HTTP/2")
            if end < len(PREFACE):
                return 0
            at = len(PREFACE)
            self._is_started = True
            assert self._timer is not None
            self._timer.cancel()
        unpack = _FRAME_HEAD.unpack_from
        while end - at >= _HEAD_BYTES:
            high, low, kind, flags, id_ = unpack(data, at)
            size = high << 8 | low
            if size > _OUR_FRAME:
                raise ConnectionFault(FRAME_SIZE_ERROR, f"a frame of {size} bytes is too large")
            begin = at + _HEAD_BYTES
            if begin + size > end:
                break
            at = begin + size
            self._handle(kind, flags, id_ & WINDOW_MAX, bytes(data[begin:at]))
            if self._is_closing:
                return end
            if self._is_paused:
                break
        return at

    def _handle(self, kind: int, flags: int, id_: int, payload: bytes) -> None:
        if self._block is not None and kind != CONTINUATION:
            raise ConnectionFault(PROTOCOL_ERROR, "a header block is interrupted")
        if kind == DATA:
            self._data(id_, flags, payload)
        elif kind == HEADERS:
            self._headers(id_, flags, payload)
        elif kind == WINDOW_UPDATE:
            self._window_update(id_, payload)
        elif kind == RST_STREAM:
            _check(len(payload) == 4, FRAME_SIZE_ERROR, "RST_STREAM")
            _check(0 < id_ <= self._last_stream, PROTOCOL_ERROR, "RST_STREAM of no stream")
            self._drop(id_)
        elif kind == PING:
            _check(len(payload) == 8 and id_ == 0, FRAME_SIZE_ERROR, "PING")
            if not flags & ACK:
                self._out.append(frame(PING, ACK, 0, payload))
        elif kind == SETTINGS:
            self._settings(id_, flags, payload)
        elif kind == CONTINUATION:
            self._continuation(id_, flags, payload)
        elif kind == PUSH_PROMISE:
            raise ConnectionFault(PROTOCOL_ERROR, "clients do not push")
        # PRIORITY, GOAWAY and unknown kinds need nothing.

    def _data(self, id_: int, flags: int, payload: bytes) -> None:
        self._unacknowledged += len(payload)
        stream = self.streams.get(id_)
        if stream is None or stream.half_closed:
            _check(0 < id_ <= self._last_stream, PROTOCOL_ERROR, "data of no stream")
            return  # It was reset, or answered before it was read to its end.
        if flags & PADDED:
            _check(bool(payload) and payload[0] < len(payload), PROTOCOL_ERROR, "padding")
            data = payload[1 : len(payload) - payload[0]]
        else:
            data = payload
        ended = bool(flags & END_STREAM)
        if ended:
            stream.half_closed = True
        else:
            stream.unacknowledged += len(payload)
            if stream.unacknowledged > _OUR_STREAM_WINDOW // 2:
                increment = _UINT32.pack(stream.unacknowledged)
                self._out.append(frame(WINDOW_UPDATE, 0, id_, increment))
                stream.unacknowledged = 0
        self.received(stream, data, ended=ended)

    def _headers(self, id_: int, flags: int, payload: bytes) -> None:
        begin, end = 0, len(payload)
        if flags & PADDED:
            _check(bool(payload), PROTOCOL_ERROR, "padding")
            begin, end = 1, end - payload[0]
        if flags & WITH_PRIORITY:
            begin += 5
        _check(begin <= end, PROTOCOL_ERROR, "padding")
        block = payload[begin:end]
        if flags & END_HEADERS:
            self._header_block(id_, flags, block)
        else:
            self._block = (id_, flags, block)

    def _continuation(self, id_: int, flags: int, payload: bytes) -> None:
        _check(
            self._block is not None and self._block[0] == id_,
            PROTOCOL_ERROR,
            "CONTINUATION of nothing",
        )
        assert self._block is not None
        _, first_flags, block = self._block
        # An empty CONTINUATION would let a peer go on for ever.
        is_bounded = len(block) + len(payload) <= _HEADER_BLOCK_MAX and bool(payload)
        _check(is_bounded or bool(flags & END_HEADERS), ENHANCE_YOUR_CALM, "endless headers")
        if flags & END_HEADERS:
            self._block = None
            self._header_block(id_, first_flags, block + payload)
        else:
            self._block = (id_, first_flags, block + payload)

    def _header_block(self, id_: int, flags: int, block: bytes) -> None:
        if not id_ & 1:
            raise ConnectionFault(PROTOCOL_ERROR, "clients open odd streams")
        head = self._heads.get(block)
        if head is None:
            head = self._decode(block)
        stream = self.streams.get(id_)
        if stream is not None:  # Trailers of a request: they say nothing but that it ends.
            _check(
                bool(flags & END_STREAM) and not stream.half_closed,
                PROTOCOL_ERROR,
                "second headers",
            )
            stream.half_closed = True
            self.received(stream, b"", ended=True)
            return
        if id_ <= self._last_stream:
            return  # Trailers of a request that was reset or answered early.
        self._last_stream = id_
        stream = Stream(self, id_, self._initial_window)
        self.streams[id_] = stream
        stream.half_closed = bool(flags & END_STREAM)
        self.opened(stream, head)
        if stream.half_closed and id_ in self.streams:
            self.received(stream, b"", ended=True)

    def _decode(self, block: bytes) -> Any:
        _check(len(block) <= _HEADER_BLOCK_MAX, ENHANCE_YOUR_CALM, "a large header block")
        before = self._table.changes
        self._table.resizes = 0
        try:
            headers: Headers = dict(self._decoder.decode(block, raw=True))
        except hpack.OversizedHeaderListError as error:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "too many headers") from error
        except hpack.HPACKError as error:
            raise ConnectionFault(COMPRESSION_ERROR, f"header block: {error}") from error
        head = self.head_of(headers)
        if self._table.changes != before:
            self._heads.clear()  # Indices of the blocks that were known mean something else now.
        elif len(block) <= _HEAD_BLOCK_MAX:
            if len(self._heads) >= _HEADS_MAX:
                self._heads.clear()  # What is in use comes back at once.
            self._heads[block] = head
        return head

    def _window_update(self, id_: int, payload: bytes) -> None:
        _check(len(payload) == 4, FRAME_SIZE_ERROR, "WINDOW_UPDATE")
        increment = _UINT32.unpack(payload)[0] & WINDOW_MAX
        _check(increment > 0, PROTOCOL_ERROR, "WINDOW_UPDATE by nothing")
        if id_ == 0:
            self._window += increment
            _check(self._window <= WINDOW_MAX, FLOW_CONTROL_ERROR, "window")
        else:
            stream = self.streams.get(id_)
            if stream is None:
                _check(id_ <= self._last_stream, PROTOCOL_ERROR, "WINDOW_UPDATE of no stream")
                return
            stream.window += increment
            _check(stream.window <= WINDOW_MAX, FLOW_CONTROL_ERROR, "window")
            if stream.unsent:
                self._ready[id_] = stream

    def _settings(self, id_: int, flags: int, payload: bytes) -> None:
        _check(id_ == 0, PROTOCOL_ERROR, "SETTINGS of a stream")
        _check(len(payload) % 6 == 0, FRAME_SIZE_ERROR, "SETTINGS")
        if flags & ACK:
            _check(not payload, FRAME_SIZE_ERROR, "SETTINGS")
            return
        for name, value in _SETTING.iter_unpack(payload):
            if name == _SETTINGS_INITIAL_WINDOW:
                _check(value <= WINDOW_MAX, FLOW_CONTROL_ERROR, "initial window")
                self._windows_set += len(self.streams)
                is_calm = self._windows_set <= _WINDOWS_SET_MAX
                _check(is_calm, ENHANCE_YOUR_CALM, "windows are set again and again")
                for stream in self.streams.values():
                    stream.window += value - self._initial_window
                    _check(stream.window <= WINDOW_MAX, FLOW_CONTROL_ERROR, "window")
                    if stream.unsent:
                        self._ready[stream.id] = stream
                self._initial_window = value
            elif name == _SETTINGS_MAX_FRAME:
                _check(_FRAME_DEFAULT <= value <= _FRAME_MAX, PROTOCOL_ERROR, "frame size")
                self._frame_max = min(value, _WRITE_CHUNK)
            elif name == _SETTINGS_TABLE_SIZE and value < _TABLE_DEFAULT:
                # We use no table; but a smaller one must be agreed to in the next block (RFC 7541, 4.2).
                self._table_update = b"\x20"
        self._out.append(frame(SETTINGS, ACK, 0))

    # --- sending -------------------------------------------------------------------------------

    def _headers_frame(self, block: bytes, flags: int, id_: int) -> bytes:
        if self._table_update:
            block = self._table_update + block
            self._table_update = b""
        size = len(block)
        if size > self._frame_max:
            return self._long_block(block, flags, id_)
        return _FRAME_HEAD.pack(size >> 8, size & 0xFF, HEADERS, flags, id_) + block

    def _long_block(self, block: bytes, flags: int, id_: int) -> bytes:
        """A header block in several frames, such as a long barrier id in an error makes it."""
        pieces = [block[at : at + self._frame_max] for at in range(0, len(block), self._frame_max)]
        frames = [frame(HEADERS, flags & ~END_HEADERS, id_, pieces[0])]
        frames += [frame(CONTINUATION, 0, id_, piece) for piece in pieces[1:-1]]
        return b"".join((*frames, frame(CONTINUATION, END_HEADERS, id_, pieces[-1])))

    def _end(self, stream: Stream, trailers: bytes) -> None:
        self._out.append(self._headers_frame(trailers, END_HEADERS | END_STREAM, stream.id))
        if not stream.half_closed:
            # Nothing more is wanted of this request (RFC 9113, 8.1).
            self._out.append(frame(RST_STREAM, 0, stream.id, _UINT32.pack(NO_ERROR)))
        self.streams.pop(stream.id, None)

    def _pump(self) -> None:
        """Sends queued data as far as the peer's windows allow."""
        done = []
        for id_, stream in self._ready.items():
            if self._window <= 0 or self._is_paused:
                break
            self._pump_stream(stream)
            if not stream.unsent or stream.window <= 0:
                done.append(id_)
        for id_ in done:
            del self._ready[id_]

    def _pump_stream(self, stream: Stream) -> None:
        unsent = stream.unsent
        assert unsent is not None
        while unsent and not self._is_paused:
            rest = unsent[0]
            size = min(len(rest), self._frame_max, self._window, stream.window)
            if size <= 0 and len(rest):
                return
            self._out.append(_FRAME_HEAD.pack(size >> 8, size & 0xFF, DATA, 0, stream.id))
            self._out.append(rest[:size])
            self._window -= size
            stream.window -= size
            self._queued -= size
            if size < len(rest):
                unsent[0] = rest[size:]
            else:
                unsent.popleft()
            if size >= _FRAME_DEFAULT:
                self.flush()
        if not unsent:
            stream.unsent = None
            if stream.trailers is not None:
                self._end(stream, stream.trailers)

    def _abandon(self) -> None:
        """The peer does not read, or does not let this side send: it gets nothing more."""
        _log.warning("a client does not read its answers; its connection is closed")
        self._is_closing = True
        streams = list(self.streams.values())
        self.streams.clear()
        self._ready.clear()
        self._out.clear()
        self._queued = 0
        for stream in streams:
            stream.unsent = None
        transport, self.transport = self.transport, None
        if transport is not None:
            transport.abort()
        for stream in streams:
            self.cancelled(stream)

    def _drop(self, id_: int) -> None:
        stream = self.streams.pop(id_, None)
        if stream is None:
            return
        if stream.unsent:
            self._ready.pop(id_, None)
            self._queued -= sum(map(len, stream.unsent))
            if stream.trailers is not None:
                return  # It was answered.
        self.cancelled(stream)

    def _never_started(self) -> None:
        if not self._is_started and self.transport is not None:
            self.transport.abort()


def _check(is_right: bool, code: int, what: str) -> None:
    if not is_right:
        raise ConnectionFault(code, what)


def literal(name: str, value: str) -> bytes:
    """A header field as itself, without the table: such blocks can be written in advance.

    Raises:
      ValueError: a name longer than 126 bytes; values may have any length.
    """
    name_bytes, value_bytes = name.encode("ascii"), value.encode("ascii")
    if len(name_bytes) >= 0x7F:
        raise ValueError(f"header name too long: {name}")
    return b"\0" + bytes([len(name_bytes)]) + name_bytes + _length(len(value_bytes)) + value_bytes


def _length(size: int) -> bytes:
    """An integer with a prefix of 7 bits (RFC 7541, 5.1)."""
    if size < 0x7F:
        return bytes([size])
    out = [0x7F]
    size -= 0x7F
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out)
