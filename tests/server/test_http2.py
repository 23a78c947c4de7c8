"""The server's own HTTP/2 and gRPC: what the RFCs demand of it, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import logging
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import h2.connection
import h2.events
import hpack
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from coord_sim.core.status import Code
from coord_sim.server import grpc_connection, http2
from coord_sim.server.grpc_connection import GrpcConnection, Rpc
from coord_sim.server.grpc_server import CoordinationServer
from coord_sim.wire import server_methods as wire
from coord_sim.wire._generated import coordination_service_pb2 as pb
from tests.server.http2_peer import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW,
    MAX_FRAME,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    TABLE_SIZE,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    Exchange,
    Peer,
    caller,
    frame,
    get,
    insert,
    path,
    poll,
    prefixed,
    request_fields,
    reset,
    serving,
    settings,
    try_get,
    window_update,
)

NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR = 0, 1, 3, 6
COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 9, 11
WINDOW_MAX = (1 << 31) - 1
BLOCK = hpack.Encoder().encode(request_fields("GetKeyValue"))
OPEN = frame(HEADERS, END_HEADERS, 1, BLOCK)


@pytest.fixture(autouse=True)
def _nothing_is_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> object:
    yield
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR or r.exc_info]


# --- the beginning of a connection -----------------------------------------------------------------


@pytest.mark.parametrize(
    "start",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", PREFACE[:-1] + b"x", b"\0"],
    ids=["http1", "tls", "nearly", "nul"],
)
def test_what_is_not_http2_is_turned_away(start: bytes) -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port, start) as peer:
            assert await peer.farewell() == PROTOCOL_ERROR

    serving(body)


def test_frames_may_arrive_in_any_pieces() -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        scout = hpack.Encoder().encode(request_fields("TryGetKeyValue"))
        message = prefixed(try_get(server, "none").SerializeToString())
        whole = b"".join(
            (
                PREFACE,
                settings((INITIAL_WINDOW, 1 << 20)),
                frame(HEADERS, END_HEADERS, 1, scout),
                frame(DATA, END_STREAM, 1, message),
                frame(PING, 0, 0, b"12345678"),
            )
        )
        splits = [[whole[:at], whole[at:]] for at in range(1, len(whole))]
        splits.append([whole[at : at + 1] for at in range(len(whole))])
        for pieces in splits:
            before = set(server._connections)
            async with await Peer.connect(port, b"") as peer:
                await poll(lambda before=before: len(server._connections - before) == 1)  # type: ignore[misc]
                (connection,) = server._connections - before
                for piece in pieces:
                    connection.data_received(piece)  # The network would merge pieces.
                answer = await peer.answer(1)
                assert answer.status == Code.NOT_FOUND
                await peer.until(lambda peer=peer: bool(peer.pongs))  # type: ignore[misc]
                assert peer.acknowledged == 1

    serving(body)


# --- frames that end the connection ----------------------------------------------------------------

WRONG = {
    "a frame beyond the limit": (frame(DATA, 0, 1, bytes((1 << 19) + 1))[:9], FRAME_SIZE_ERROR),
    "settings of 5 bytes": (frame(SETTINGS, 0, 0, bytes(5)), FRAME_SIZE_ERROR),
    "settings acknowledged with a payload": (frame(SETTINGS, ACK, 0, bytes(6)), FRAME_SIZE_ERROR),
    "settings of a stream": (frame(SETTINGS, 0, 1), PROTOCOL_ERROR),
    "initial window beyond 2^31": (settings((INITIAL_WINDOW, 1 << 31)), FLOW_CONTROL_ERROR),
    "a small frame limit": (settings((MAX_FRAME, 16_383)), PROTOCOL_ERROR),
    "a large frame limit": (settings((MAX_FRAME, 1 << 24)), PROTOCOL_ERROR),
    "ping of 7 bytes": (frame(PING, 0, 0, bytes(7)), FRAME_SIZE_ERROR),
    "window update of 3 bytes": (frame(WINDOW_UPDATE, 0, 0, bytes(3)), FRAME_SIZE_ERROR),
    "window update by nothing": (window_update(0, 0), PROTOCOL_ERROR),
    "window update of an idle stream": (window_update(1, 1), PROTOCOL_ERROR),
    "window of the connection": (window_update(0, WINDOW_MAX), FLOW_CONTROL_ERROR),
    "window of a stream": (OPEN + window_update(1, WINDOW_MAX), FLOW_CONTROL_ERROR),
    "window of a stream by settings": (
        OPEN + window_update(1, WINDOW_MAX - 65_535) + settings((INITIAL_WINDOW, 65_536)),
        FLOW_CONTROL_ERROR,
    ),
    "reset of an idle stream": (reset(1), PROTOCOL_ERROR),
    "reset of the connection": (reset(0), PROTOCOL_ERROR),
    "reset of 3 bytes": (OPEN + frame(RST_STREAM, 0, 1, bytes(3)), FRAME_SIZE_ERROR),
    "data of an idle stream": (frame(DATA, 0, 1, b"x"), PROTOCOL_ERROR),
    "data of the connection": (OPEN + frame(DATA, 0, 0, b"x"), PROTOCOL_ERROR),
    "headers of the connection": (frame(HEADERS, END_HEADERS, 0, BLOCK), PROTOCOL_ERROR),
    "headers of an even stream": (frame(HEADERS, END_HEADERS, 2, BLOCK), PROTOCOL_ERROR),
    "headers of an old even stream": (
        frame(HEADERS, END_HEADERS, 5, BLOCK) + frame(HEADERS, END_HEADERS, 4, BLOCK),
        PROTOCOL_ERROR,
    ),
    "second headers": (OPEN + OPEN, PROTOCOL_ERROR),
    "a push": (frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4)), PROTOCOL_ERROR),
    "continuation of nothing": (frame(CONTINUATION, END_HEADERS, 1, b""), PROTOCOL_ERROR),
    "an interrupted header block": (
        frame(HEADERS, 0, 1, BLOCK) + frame(PING, 0, 0, bytes(8)),
        PROTOCOL_ERROR,
    ),
    "continuation of another stream": (
        frame(HEADERS, 0, 1, BLOCK[:9]) + frame(CONTINUATION, END_HEADERS, 3, BLOCK[9:]),
        PROTOCOL_ERROR,
    ),
    "an empty continuation": (
        frame(HEADERS, 0, 1, BLOCK) + frame(CONTINUATION, 0, 1),
        ENHANCE_YOUR_CALM,
    ),
    "endless continuations": (
        frame(HEADERS, 0, 1, BLOCK) + 5 * frame(CONTINUATION, 0, 1, bytes(16_384)),
        ENHANCE_YOUR_CALM,
    ),
    "a large header block": (
        frame(HEADERS, END_HEADERS, 1, b"\x20" * 65_537),
        ENHANCE_YOUR_CALM,
    ),
    "a large header list": (
        frame(HEADERS, END_HEADERS, 1, BLOCK + hpack.Encoder().encode([("a", "x" * 20_000)])),
        ENHANCE_YOUR_CALM,
    ),
    "a header list that the table makes large": (
        frame(
            HEADERS,
            END_HEADERS,
            1,
            hpack.Encoder().encode([("a", "~" * 3000)], huffman=False) + b"\xbe" * 1000,
        ),
        ENHANCE_YOUR_CALM,
    ),
    "endless changes of the table": (
        frame(HEADERS, END_HEADERS, 1, b"\x20" * 30 + BLOCK),
        COMPRESSION_ERROR,
    ),
    "a table beyond the limit": (
        frame(HEADERS, END_HEADERS, 1, b"\x3f\xe2\x1f" + BLOCK),
        COMPRESSION_ERROR,
    ),
    "a change of the table amid fields": (
        frame(HEADERS, END_HEADERS, 1, BLOCK + b"\x20"),
        COMPRESSION_ERROR,
    ),
    "an index of nothing": (frame(HEADERS, END_HEADERS, 1, b"\xff\x7f"), COMPRESSION_ERROR),
    "index 0": (frame(HEADERS, END_HEADERS, 1, b"\x80"), COMPRESSION_ERROR),
    "a cut header block": (frame(HEADERS, END_HEADERS, 1, BLOCK[:-1]), COMPRESSION_ERROR),
    "data that is nothing but padding": (
        OPEN + frame(DATA, PADDED, 1, b"\x05" + bytes(4)),
        PROTOCOL_ERROR,
    ),
    "padding without a length": (OPEN + frame(DATA, PADDED, 1), PROTOCOL_ERROR),
    "headers that are nothing but padding": (
        frame(HEADERS, END_HEADERS | PADDED, 1, b"\x05" + bytes(4)),
        PROTOCOL_ERROR,
    ),
    "headers too short for a priority": (
        frame(HEADERS, END_HEADERS | WITH_PRIORITY, 1, bytes(4)),
        PROTOCOL_ERROR,
    ),
}


@pytest.mark.parametrize(("frames", "code"), WRONG.values(), ids=WRONG)
def test_a_breach_of_the_protocol_ends_the_connection(frames: bytes, code: int) -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port) as peer:
            await peer.has_handled_all()
            peer.send(frames)
            assert await peer.farewell() == code
        # The fault of one is nobody else's: `serving` looks at that.

    serving(body)


def test_headers_after_the_end_of_a_request_end_the_connection() -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port) as peer:
            peer.send(peer.call(1, "GetKeyValue", get(server, "never")))
            await poll(lambda: len(server._waiting) == 1)
            peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, BLOCK))
            assert await peer.farewell() == PROTOCOL_ERROR
        await poll(lambda: not server._waiting)

    serving(body)


# --- frames that change nothing --------------------------------------------------------------------

HARMLESS = {
    "an unknown kind": frame(0xFA, 0xFF, 1, b"whatever"),
    "an unknown kind of the connection": frame(0x0C, 0, 0, bytes(100)),
    "priority": frame(PRIORITY, 0, 1, bytes(5)),
    "priority of an idle stream": frame(PRIORITY, 0, 99, bytes(5)),
    "goaway": frame(GOAWAY, 0, 0, bytes(8)),
    "an unknown setting": settings((0x99, 5)),
    "a setting twice": settings((INITIAL_WINDOW, 1), (INITIAL_WINDOW, 70_000)),
    "the acknowledgement of a ping": frame(PING, ACK, 0, bytes(8)),
    "the acknowledgement of settings": frame(SETTINGS, ACK, 0),
    "reset of a finished stream": reset(1),
    "window update of a finished stream": window_update(1, 5),
    "data of a finished stream": frame(DATA, END_STREAM, 1, bytes(100)),
    "trailers of a finished stream": frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x10\x01a\x01b"),
}


@pytest.mark.parametrize("frames", HARMLESS.values(), ids=HARMLESS)
def test_a_frame_that_needs_nothing_changes_nothing(frames: bytes) -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port) as peer:
            assert (await peer.ask(1, "TryGetKeyValue", try_get(server, "k"))).status == 5
            peer.send(frames)
            assert (await peer.ask(3, "TryGetKeyValue", try_get(server, "k"))).status == 5
            await peer.has_handled_all()

    serving(body)


def test_headers_may_be_padded_have_a_priority_and_be_continued_at_any_byte() -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        block = hpack.Encoder()
        block.header_table_size = 0  # The block is the same each time, and changes nothing.
        fields = block.encode(request_fields("TryGetKeyValue"))
        content = frame(DATA, END_STREAM, 0, prefixed(try_get(server, "k").SerializeToString()))
        async with await Peer.connect(port) as peer:
            stream = -1
            for at in range(len(fields) + 1):
                for begin, flags in (
                    (fields[:at], 0),
                    (bytes(5) + fields[:at], WITH_PRIORITY),
                    (b"\x07" + fields[:at] + bytes(7), PADDED),
                    (b"\x02" + bytes(5) + fields[:at] + bytes(2), PADDED | WITH_PRIORITY),
                ):
                    stream += 2
                    rest = fields[at:]
                    peer.send(
                        frame(HEADERS, flags, stream, begin),
                        *([frame(CONTINUATION, 0, stream, rest[:1])] if rest else []),
                        frame(CONTINUATION, END_HEADERS, stream, rest[1:]),
                        content[:5] + struct.pack(">I", stream) + content[9:],
                    )
            for each in range(1, stream + 1, 2):
                assert (await peer.answer(each)).status == Code.NOT_FOUND

    serving(body)


def test_requests_may_be_padded_cut_into_many_frames_and_end_with_trailers() -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port) as peer:
            content = prefixed(insert(server, "k", bytes(range(256))).SerializeToString())
            peer.send(frame(HEADERS, END_HEADERS, 1, peer.block(request_fields("InsertKeyValue"))))
            for at in range(len(content)):
                peer.send(frame(DATA, 0, 1, b""))
                peer.send(frame(DATA, PADDED, 1, b"\x03" + content[at : at + 1] + bytes(3)))
            trailers = peer.block([("checked", "yes")])
            peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, trailers))
            assert (await peer.answer(1)).status == 0
            got = await peer.ask(3, "TryGetKeyValue", try_get(server, "k"))
            response = pb.TryGetKeyValueResponse.FromString(got.message)
            assert response.kv.value == bytes(range(256))

    serving(body)


def test_settings_and_pings_are_acknowledged() -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port) as peer:
            peer.send(settings((MAX_FRAME, 20_000)), frame(PING, 0, 0, b"abcdefgh"))
            await peer.until(lambda: bool(peer.pongs))
            assert peer.pongs == [b"abcdefgh"]
            assert peer.acknowledged == 2

    serving(body)


def test_a_smaller_table_is_agreed_to_in_the_next_block() -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port, PREFACE + settings((TABLE_SIZE, 0))) as peer:
            peer.decoder.max_allowed_table_size = 0  # Raises, unless the first block shrinks it.
            answer = await peer.ask(1, "InsertKeyValue", insert(server, "k", b"v"))
            assert answer.status == 0
            assert peer.blocks[0][:1] == b"\x20"
            assert all(block[:1] != b"\x20" for block in peer.blocks[1:])
            peer.send(settings((TABLE_SIZE, 100)))
            await peer.ask(3, "TryGetKeyValue", try_get(server, "none"))
            assert peer.blocks[-1][:1] == b"\x20"

    serving(body)


# --- flow control ----------------------------------------------------------------------------------


def test_a_large_answer_comes_as_the_peer_opens_its_windows_and_in_order() -> None:
    value = struct.pack(">250000I", *range(250_000))

    async def body(server: CoordinationServer, port: int) -> None:
        start = PREFACE + settings((INITIAL_WINDOW, 1000))
        async with await Peer.connect(port, start) as peer:
            assert (await peer.ask(1, "InsertKeyValue", insert(server, "k", value))).status == 0
            await peer.has_handled_all()
            windows = {0: 65_535 - len(peer.exchanges[1].data), 3: 1000, 5: 1000}

            def taken(stream: int, size: int) -> None:
                assert size <= 16_384
                for each in (0, stream):
                    windows[each] -= size
                    assert windows[each] >= 0, f"more than window {each} allows"

            peer.on_data = taken
            for stream in (3, 5):
                peer.send(peer.call(stream, "TryGetKeyValue", try_get(server, "k")))
            await peer.has_handled_all()
            assert (windows[3], windows[5]) == (0, 0)
            increments = (1, 2, 16_384, 40_000, 7, 99_999)
            for turn in range(10_000):
                if all(peer.exchanges[stream].is_ended for stream in (3, 5)):
                    break
                increment = increments[turn % len(increments)]
                for each in (0, 3, 5):
                    # Only one of the two windows is what holds it back.
                    if each != 0 or windows[0] < 1 << 20:
                        windows[each] += increment
                        peer.send(window_update(each, increment))
                await peer.has_handled_all()
            for stream in (3, 5):
                got = pb.TryGetKeyValueResponse.FromString((await peer.answer(stream)).message)
                assert got.kv.value == value
            assert sum(c._queued for c in server._connections) == 0

    serving(body)


def test_the_initial_window_may_change_while_an_answer_waits() -> None:
    value = bytes(40_000)

    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port, PREFACE + settings((INITIAL_WINDOW, 10_000))) as peer:
            await peer.ask(1, "InsertKeyValue", insert(server, "k", value))
            peer.send(peer.call(3, "TryGetKeyValue", try_get(server, "k")))
            received = peer.exchanges[3].data
            await peer.has_handled_all()
            assert len(received) == 10_000
            peer.send(settings((INITIAL_WINDOW, 0)))  # The window is -10,000 now.
            peer.send(window_update(3, 10_000))
            await peer.has_handled_all()
            assert len(received) == 10_000
            peer.send(settings((INITIAL_WINDOW, 5_000)))
            await peer.has_handled_all()
            assert len(received) == 15_000
            peer.send(window_update(3, 1_000), settings((INITIAL_WINDOW, 60_000)))
            got = pb.TryGetKeyValueResponse.FromString((await peer.answer(3)).message)
            assert got.kv.value == value

    serving(body)


def test_frames_are_as_large_as_the_peer_takes_them() -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        start = PREFACE + settings((MAX_FRAME, 100_000), (INITIAL_WINDOW, 1 << 24))
        async with await Peer.connect(port, start + window_update(0, 1 << 24)) as peer:
            sizes: list[int] = []
            await peer.ask(1, "InsertKeyValue", insert(server, "k", bytes(250_000)))
            peer.on_data = lambda _, size: sizes.append(size)
            await peer.ask(3, "TryGetKeyValue", try_get(server, "k"))
            assert sizes[:2] == [100_000, 100_000]

    serving(body)


def test_a_large_request_is_acknowledged_as_it_is_read() -> None:
    """Without window updates of ours it would stop at the 64 MiB that we grant at first."""

    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port) as peer:
            content = prefixed(insert(server, "k", bytes(70 << 20)).SerializeToString())
            peer.send(frame(HEADERS, END_HEADERS, 1, peer.block(request_fields("InsertKeyValue"))))
            granted: Counter[int] = Counter()
            take = peer._take

            def watch(kind: int, flags: int, stream: int, payload: bytes) -> None:
                if kind == WINDOW_UPDATE:
                    granted[stream] += int.from_bytes(payload)
                take(kind, flags, stream, payload)

            peer._take = watch  # type: ignore[method-assign]
            step = 1 << 18
            for at in range(0, len(content), step):
                last = END_STREAM if at + step >= len(content) else 0
                peer.send(frame(DATA, last, 1, content[at : at + step]))
                await peer.writer.drain()
            assert (await peer.answer(1)).status == 0
            await peer.has_handled_all()
            assert granted[1] >= len(content) - (8 << 20)
            assert granted[0] >= len(content) - (32 << 20)

    serving(body)


def test_a_stream_of_answers_ends_after_what_waits_for_windows() -> None:
    def serve(stream: http2.Stream, message: bytes) -> None:
        connection = stream.connection
        assert isinstance(connection, GrpcConnection)
        connection.send_message(stream, message * 100, is_first=stream.call is None)
        stream.call = serve

    def end(stream: http2.Stream) -> None:
        connection = stream.connection
        assert isinstance(connection, GrpcConnection)
        connection.finish(stream, is_first=stream.call is None)

    async def body(server: CoordinationServer, port: int) -> None:
        server.add_rpcs({b"/test/Echo": Rpc(serve, is_unary=False, on_end=end)})
        async with await Peer.connect(port, PREFACE + settings((INITIAL_WINDOW, 50))) as peer:
            fields = [(n, "/test/Echo" if n == ":path" else v) for n, v in request_fields("")]
            block = peer.block(fields)
            peer.send(
                frame(HEADERS, END_HEADERS, 1, block),
                frame(DATA, END_STREAM, 1, prefixed(b"a") + prefixed(b"b")),
            )
            await peer.has_handled_all()
            assert len(peer.exchanges[1].data) == 50
            assert not peer.exchanges[1].is_ended
            peer.send(window_update(1, 1000))
            answer = await peer.answer(1)
            assert bytes(answer.data) == prefixed(b"a" * 100) + prefixed(b"b" * 100)
            assert answer.status == 0
            # An error after the first answer is in trailers, where pseudo-headers are forbidden.
            peer.send(
                frame(HEADERS, END_HEADERS, 3, peer.block(fields)),
                frame(DATA, END_STREAM, 3, prefixed(b"a") + prefixed(b"b", flag=9)),
                window_update(3, 1000),
            )
            answer = await peer.answer(3)
            assert answer.status == Code.INTERNAL
            assert [name for name, _ in answer.headers[1] if name.startswith(":")] == []
            assert answer.headers[0][0] == (":status", "200")

    serving(body)


# --- the life of calls and connections -------------------------------------------------------------


def test_a_reset_hangs_the_call_up() -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port) as peer:
            for stream in (1, 3):
                peer.send(peer.call(stream, "GetKeyValue", get(server, "k")))
            await peer.has_handled_all()
            assert len(server._waiting) == 2
            peer.send(reset(1))
            await peer.has_handled_all()
            assert len(server._waiting) == 1
            assert len(server._core._store.waiting_calls()) == 1
            await peer.ask(5, "InsertKeyValue", insert(server, "k", b"v"))
            assert (await peer.answer(3)).status == 0
            await peer.has_handled_all()
            assert not peer.exchanges[1].headers

    serving(body)


def test_a_reset_of_an_answer_that_waits_for_windows_forgets_it() -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port) as peer:
            await peer.ask(1, "InsertKeyValue", insert(server, "k", bytes(1 << 20)))
            for stream in range(3, 23, 2):
                peer.send(peer.call(stream, "TryGetKeyValue", try_get(server, "k")))
            await peer.has_handled_all()
            (connection,) = server._connections
            assert connection._queued > 9 << 20
            peer.send(*(reset(stream) for stream in range(3, 23, 2)))
            await peer.has_handled_all()
            assert connection._queued == 0
            assert not connection.streams

    serving(body)


def test_stopping_answers_all_and_says_goodbye() -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port) as peer:
            peer.send(peer.call(7, "GetKeyValue", get(server, "never")))
            await peer.has_handled_all()
            stop = asyncio.ensure_future(server.stop())
            assert (await peer.answer(7)).status == Code.UNAVAILABLE
            assert await peer.farewell() == NO_ERROR
            assert peer.goaway == (7, NO_ERROR)
            await stop

    serving(body)


# --- header compression ----------------------------------------------------------------------------

METHODS = ("TryGetKeyValue", "Heartbeat", "GetKeyValueDir", "Barrier")
_extra = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "grpc-timeout", "user-agent"]),
        st.sampled_from(["", "1", "2", "é", "x" * 900, "y" * 1800, "z" * 4100]),
        st.booleans(),
    ),
    max_size=4,
)
# A request that is sent again is all indices, which mean something else once the table has changed.
_times = st.integers(1, 3)
_bare = st.tuples(st.sampled_from(METHODS), st.builds(list[Any]), st.booleans(), _times)
_request = st.tuples(st.sampled_from(METHODS), _extra, st.booleans(), _times)
_sizes = st.sampled_from([(0, 4096), (0,), (100, 4096), (700,), (2000,), (4096,)])


@hypothesis_settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(st.one_of(_bare, _request, _sizes), min_size=4, max_size=30))
def test_a_header_block_always_means_what_its_table_says(
    steps: list[tuple[str, list[tuple[str, str, bool]], bool, int] | tuple[int, ...]],
) -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port) as peer:
            expected: Counter[str] = Counter()
            stream = -1
            for step in steps:
                if not isinstance(step[0], str):
                    for size in step:
                        if size != peer.encoder.header_table_size:
                            peer.encoder.header_table_size = size
                    continue
                method, extra, huffman, times = step
                for _ in range(times):
                    stream += 2
                    fields = [*((n, v, False) for n, v in request_fields(method)), *extra]
                    block = peer.encoder.encode(fields, huffman=huffman)
                    peer.send(
                        frame(HEADERS, END_HEADERS, stream, block),
                        frame(DATA, END_STREAM, stream, prefixed(b"")),
                    )
                    expected[method] += 1
            await peer.has_handled_all()
            found: Counter[str] = Counter()
            for (name, _), count in server.answers.items():
                found[name] += count
            assert found == expected
            assert len(peer.exchanges) == expected.total()

    serving(body)


def test_equal_blocks_are_read_anew_once_the_table_has_changed() -> None:
    """The blocks of both requests are the same bytes: the newest entry of the table as the path."""

    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port) as peer:
            common = (
                b"\x83\x86" + b"\x0f\x10" + b"\x10application/grpc"
            )  # content-type, not indexed
            indexed = common + b"\xbe"
            for stream, method in ((1, "Heartbeat"), (7, "TryGetKeyValue")):
                name = path(method).encode()
                added = b"\x44" + bytes([len(name)]) + name
                for at, block in enumerate((common + added, indexed, indexed)):
                    peer.send(
                        frame(HEADERS, END_HEADERS, stream + 2 * at, block),
                        frame(DATA, END_STREAM, stream + 2 * at, prefixed(b"")),
                    )
            await peer.has_handled_all()
            wrong_service = Code.INTERNAL
            assert server.answers["Heartbeat", wrong_service] == 3
            assert server.answers["TryGetKeyValue", wrong_service] == 3

    serving(body)


def test_more_header_blocks_than_are_kept_do_no_harm() -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port) as peer:
            peer.send(peer.call(1, "Heartbeat"))
            for stream in range(3, 2021, 2):
                length = 1 if stream < 2000 else 400
                # Not to be indexed, as timeouts are: the table stays as it is.
                extra = ("grpc-timeout", f"{stream}" * length, True)
                block = peer.encoder.encode([*request_fields("Heartbeat"), extra])
                peer.send(
                    frame(HEADERS, END_HEADERS, stream, block),
                    frame(DATA, END_STREAM, stream, prefixed(b"")),
                )
            await peer.has_handled_all()
            assert server.answers["Heartbeat", Code.INTERNAL] == 1010
            (connection,) = server._connections
            assert 0 < len(connection._heads) <= 256
            assert max(map(len, connection._heads)) <= 1024

    serving(body)


# --- gRPC ------------------------------------------------------------------------------------------


async def _raw(peer: Peer, fields: list[tuple[str, str]], *bodies: bytes) -> Exchange:
    stream = max(peer.exchanges, default=-1) + 2
    end = 0 if bodies else END_STREAM
    peer.send(frame(HEADERS, END_HEADERS | end, stream, peer.block(fields)))
    for at, content in enumerate(bodies):
        peer.send(frame(DATA, END_STREAM if at == len(bodies) - 1 else 0, stream, content))
    return await peer.answer(stream)


def test_requests_may_be_compressed() -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port) as peer:
            compressors: dict[str, Callable[[bytes], bytes]] = {
                "gzip": gzip.compress,
                "deflate": zlib.compress,
            }
            for encoding, compress in compressors.items():
                fields = request_fields("InsertKeyValue", ("grpc-encoding", encoding))
                message = insert(server, encoding, encoding.encode() * 1000).SerializeToString()
                small = prefixed(compress(message), flag=1)
                assert (await _raw(peer, fields, small)).status == 0
                assert (await _raw(peer, fields, small[:9], small[9:])).status == 0
                assert (await _raw(peer, fields, prefixed(message))).status == 0, "flag 0"
                stream = max(peer.exchanges) + 2
                got = await peer.ask(stream, "TryGetKeyValue", try_get(server, encoding))
                response = pb.TryGetKeyValueResponse.FromString(got.message)
                assert response.kv.value == encoding.encode() * 1000
                for broken in (b"", b"rubbish", small[5:-4], bytes(100)):
                    answer = await _raw(peer, fields, prefixed(broken, flag=1))
                    assert answer.status == Code.INTERNAL
            unnamed = await _raw(peer, request_fields("Heartbeat"), prefixed(small, flag=1))
            assert unnamed.status == Code.INTERNAL

    serving(body)


def test_what_inflates_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_connection, "MESSAGE_BYTES_MAX", 1 << 20)

    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port) as peer:
            fields = request_fields("InsertKeyValue", ("grpc-encoding", "gzip"))
            bomb = gzip.compress(insert(server, "k", bytes(64 << 20)).SerializeToString())
            assert (await _raw(peer, fields, prefixed(bomb, flag=1))).status != 0
            large = prefixed(bytes(2 << 20))
            step = 1 << 18
            pieces = [large[at : at + step] for at in range(0, len(large), step)]
            refused = await _raw(peer, request_fields("InsertKeyValue"), *pieces)
            assert refused.status == Code.RESOURCE_EXHAUSTED
            (connection,) = server._connections
            assert connection._unfinished == 0

    serving(body)


def test_malformed_calls_get_the_status_that_grpc_gives_them() -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        fields = request_fields("TryGetKeyValue")
        good = prefixed(try_get(server, "none").SerializeToString())

        def but(**changes: str) -> list[tuple[str, str]]:
            return [(name, changes.get(name.strip(":").replace("-", "_"), v)) for name, v in fields]

        async with await Peer.connect(port) as peer:
            assert (await _raw(peer, fields, good)).status == Code.NOT_FOUND
            assert (await _raw(peer, fields, good, b"")).status == Code.NOT_FOUND
            for bodies, code in (
                ((), Code.UNIMPLEMENTED),
                ((b"",), Code.UNIMPLEMENTED),
                ((good + good,), Code.UNIMPLEMENTED),
                ((good, good), Code.UNIMPLEMENTED),
                ((good, good[:7]), Code.INTERNAL),
                ((good[:-1],), Code.INTERNAL),
                ((good[:3],), Code.INTERNAL),
                ((b"\x02" + good[1:],), Code.INTERNAL),
                ((b"\x00\xff\xff\xff\xff",), Code.RESOURCE_EXHAUSTED),
                ((prefixed(b"\xff\xff"),), Code.INTERNAL),
            ):
                assert (await _raw(peer, fields, *bodies)).status == code, bodies
            unknown = await _raw(peer, but(path="/a%b/\u00e9"), good)
            assert unknown.status == Code.UNIMPLEMENTED
            message = dict(unknown.headers[0])["grpc-message"]
            assert message == "this server has no method /a%25b/%C3%A9"
            strange = await _raw(peer, [*fields, ("grpc-encoding", "snappy")], good)
            assert strange.status == Code.UNIMPLEMENTED
            for wrong in (but(content_type="text/html"), but(method="GET"), fields[1:]):
                refused = await _raw(peer, wrong, good)
                assert dict(refused.headers[0])[":status"] == "415"
                assert refused.reset is None or refused.reset == NO_ERROR
            empty = await _raw(peer, but(content_type="text/html"))
            await peer.has_handled_all()
            assert empty.reset is None, "both sides had ended: nothing is left to reset"
            (connection,) = server._connections
            assert connection._unfinished == 0
            assert not connection.streams

    serving(body)


# --- other implementations -------------------------------------------------------------------------


def test_h2_finds_nothing_wrong_with_the_server() -> None:
    """An implementation that checks states, windows, frames and header blocks of its peer."""
    value = bytes(range(256)) * 2000

    async def body(server: CoordinationServer, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        peer = h2.connection.H2Connection()
        peer.initiate_connection()
        answers: dict[int, bytearray] = {}
        statuses: dict[int, int] = {}

        def ask(method: str, message: bytes) -> int:
            stream = peer.get_next_available_stream_id()
            answers[stream] = bytearray()
            peer.send_headers(stream, request_fields(method))
            content = prefixed(message)
            step = min(peer.max_outbound_frame_size, 100_000)
            for at in range(0, len(content), step):
                peer.send_data(stream, content[at : at + step])
            peer.end_stream(stream)
            return stream

        async def exchange(count: int) -> None:
            async with asyncio.timeout(30):
                while len(statuses) < count:
                    writer.write(peer.data_to_send())
                    for event in peer.receive_data(await reader.read(65_536)):
                        if isinstance(event, h2.events.DataReceived):
                            answers[event.stream_id] += event.data
                            peer.acknowledge_received_data(
                                event.flow_controlled_length, event.stream_id
                            )
                        elif isinstance(
                            event, h2.events.TrailersReceived | h2.events.ResponseReceived
                        ):
                            told = dict(event.headers)
                            if b"grpc-status" in told:
                                statuses[event.stream_id] = int(told[b"grpc-status"])
                        assert not isinstance(
                            event, h2.events.ConnectionTerminated | h2.events.StreamReset
                        )

        # The server's settings come first; before them h2 would send frames of 16 KiB.
        while not any(
            isinstance(e, h2.events.RemoteSettingsChanged)
            for e in peer.receive_data(await reader.read(65_536))
        ):
            pass
        ask("InsertKeyValue", insert(server, "k", value).SerializeToString())
        await exchange(1)
        gets = [ask("TryGetKeyValue", try_get(server, "k").SerializeToString()) for _ in range(5)]
        missing = ask("TryGetKeyValue", try_get(server, "none").SerializeToString())
        peer.ping(b"12345678")
        peer.update_settings({h2.settings.SettingCodes.HEADER_TABLE_SIZE: 0})
        await exchange(7)
        for stream in gets:
            got = pb.TryGetKeyValueResponse.FromString(bytes(answers[stream][5:]))
            assert got.kv.value == value
        assert statuses == dict.fromkeys((1, *gets), 0) | {missing: Code.NOT_FOUND}
        peer.close_connection()
        writer.write(peer.data_to_send())
        writer.close()

    serving(body)


def _grpc(port: int) -> grpc.aio.Channel:
    options = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)


async def _grpc_ask(channel: grpc.aio.Channel, method: str, message: bytes) -> bytes:
    call: Any = channel.unary_unary(path(method))
    answer: bytes = await call(message, timeout=60)
    return answer


def test_grpcio_stores_100_mb_and_reads_them_back() -> None:
    value = bytes(100_000_000)

    async def body(server: CoordinationServer, port: int) -> None:
        async with _grpc(port) as channel:
            stored = insert(server, "big", value).SerializeToString()
            await _grpc_ask(channel, "InsertKeyValue", stored)
            del stored
            wanted = try_get(server, "big").SerializeToString()
            got = await _grpc_ask(channel, "TryGetKeyValue", wanted)
            assert pb.TryGetKeyValueResponse.FromString(got).kv.value == value
            await _grpc_ask(
                channel,
                "DeleteKeyValue",
                pb.DeleteKeyValueRequest(
                    incarnations=caller(server), key="big"
                ).SerializeToString(),
            )

    serving(body)


def test_512_channels_of_grpcio_wait_at_once_and_all_are_answered() -> None:
    clients = 512

    async def body(server: CoordinationServer, port: int) -> None:
        channels = [_grpc(port) for _ in range(clients)]
        wanted = get(server, "k").SerializeToString()
        calls = [
            asyncio.ensure_future(_grpc_ask(channel, "GetKeyValue", wanted)) for channel in channels
        ]
        await poll(lambda: len(server._waiting) == clients)
        assert server.connections == clients
        stored = insert(server, "k", b"v").SerializeToString()
        await _grpc_ask(channels[0], "InsertKeyValue", stored)
        answers = set(await asyncio.gather(*calls))
        expected = pb.GetKeyValueResponse(kv=pb.KeyValueEntry(key="k", value=b"v"))
        assert answers == {expected.SerializeToString()}
        await asyncio.gather(*(channel.close() for channel in channels))

    serving(body)


def test_the_methods_are_served_by_their_names() -> None:
    assert {path(method.name) for method in wire.METHODS} >= {path(name) for name in METHODS}
