"""Clients that are broken or mean harm: an error to them, nothing to others, and nothing is left.

Every test ends with `serving`'s look at the server: another client is served at once, no connection and
no waiting call is left, and nothing was logged as an error.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import time
import tracemalloc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import hpack
import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from coord_sim.core.identifiers import seconds
from coord_sim.core.service import ServiceConfig
from coord_sim.core.status import Code
from coord_sim.server import grpc_connection, http2
from coord_sim.server.grpc_server import CoordinationServer
from coord_sim.wire import server_methods as wire
from coord_sim.wire._generated import coordination_service_pb2 as pb
from tests.server.http2_peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW,
    PING,
    PREFACE,
    Peer,
    caller,
    data,
    frame,
    get,
    insert,
    is_well,
    poll,
    prefixed,
    request_fields,
    reset,
    serving,
    settings,
    try_get,
    window_update,
)

ENHANCE_YOUR_CALM = 11
MIB = 1 << 20
RESPONSE_DEADLINE_S = 20.0
_fuzz = hypothesis_settings(deadline=None, derandomize=True, max_examples=100)


@pytest.fixture(autouse=True)
def _nothing_is_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> object:
    yield
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR or r.exc_info]


class Target:
    """A server that many examples attack, one after the other."""

    def __init__(self, *, tasks: int, recoverable: bool) -> None:
        self._runner = asyncio.Runner()
        self._problems: list[dict[str, Any]] = []
        self._loop = self._runner.get_loop()
        self._loop.set_exception_handler(lambda _, what: self._problems.append(what))
        config = ServiceConfig(
            tasks=tasks, recoverable=recoverable, heartbeat_timeout_ns=seconds(600)
        )
        self.server = CoordinationServer(config)
        self.port = self.server.bind("127.0.0.1", 0)
        self._runner.run(self.server.start())

    def attack(self, body: Callable[[Peer], Coroutine[Any, Any, None]], start: bytes) -> None:
        async def run() -> None:
            async with await Peer.connect(self.port, start) as peer:
                await body(peer)
            await is_well(self.server, self.port)

        self._runner.run(run())
        assert not self._problems

    def stop(self) -> None:
        self._runner.run(self.server.stop())
        self._runner.close()
        assert not self._problems


# --- malformed frames ------------------------------------------------------------------------------

_interesting = st.sampled_from([0, 1, 2, 3, 5, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
_payload = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([bytes(4), bytes(8), b"\xff" * 4, b"\xff" * 5, b"\x7f" + b"\xff" * 7]),
)
_any_frame = st.builds(frame, st.integers(0, 12), st.integers(0, 255), _interesting, _payload)
_block = hpack.Encoder().encode(request_fields("GetKeyValue"))
_valid_frame = st.sampled_from(
    [
        frame(HEADERS, END_HEADERS, 1, _block),
        frame(HEADERS, END_HEADERS, 3, _block),
        frame(DATA, 0, 1, prefixed(b"")),
        frame(DATA, END_STREAM, 1, prefixed(b"")),
        frame(DATA, END_STREAM, 3),
        window_update(1, 1),
        window_update(0, 1 << 30),
        settings((INITIAL_WINDOW, (1 << 31) - 1)),
        settings((INITIAL_WINDOW, 0)),
        reset(1),
    ]
)
_attack = st.one_of(
    st.binary(max_size=200),
    st.lists(st.one_of(_any_frame, _valid_frame), max_size=12).map(b"".join),
    st.lists(_valid_frame, max_size=12).map(b"".join),
)


def test_malformed_frames_harm_nobody_else() -> None:
    target = Target(tasks=1, recoverable=True)

    @_fuzz
    @given(_attack, st.sampled_from([PREFACE + settings(), PREFACE, b""]))
    def attack(content: bytes, start: bytes) -> None:
        async def body(peer: Peer) -> None:
            peer.send(content)
            peer.writer.write_eof()
            await peer.until(lambda: False)

        target.attack(body, start)

    attack()
    target.stop()


# --- malformed messages ----------------------------------------------------------------------------

_MESSAGES = {method.name: method.request_type for method in wire.METHODS}
_int64 = st.sampled_from([0, 1, -1, 2, 1000, (1 << 31) - 1, (1 << 63) - 1, -(1 << 63)])
_int32 = st.sampled_from([0, 1, -1, 2, 7, (1 << 31) - 1, -(1 << 31)])
_text = st.sampled_from(["", "k", "/", "//a///", "a/b", "\0", "k\0x", "é\U0001f600", "k" * MIB])
_BROKEN_TEXT = "@@@@"
_VALUES: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_INT32: _int32,
    FieldDescriptor.TYPE_INT64: _int64,
    FieldDescriptor.TYPE_FIXED64: st.sampled_from([0, 1, 100, (1 << 64) - 1]),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_STRING: st.one_of(_text, st.just(_BROKEN_TEXT)),
    FieldDescriptor.TYPE_BYTES: st.one_of(st.binary(max_size=20), st.just(bytes(MIB))),
}


def _messages(type_: Any) -> st.SearchStrategy[Any]:
    """Messages of a type with fields that are far off, and some that are right."""

    def strategy(field: FieldDescriptor) -> st.SearchStrategy[Any]:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            assert field.message_type is not None
            return _messages(getattr(pb, field.message_type.name))
        value = _VALUES[field.type]
        return st.lists(value, max_size=5) if field.is_repeated else value

    fields = {field.name: strategy(field) for field in type_.DESCRIPTOR.fields}
    return st.fixed_dictionaries({}, optional=fields).map(lambda values: type_(**values))


_any_message = st.one_of([_messages(type_) for type_ in _MESSAGES.values()])


@st.composite
def _calls(draw: st.DrawFn) -> tuple[str, Any, str]:
    """A method, a message, and what is to be done to its bytes."""
    method = draw(st.sampled_from(sorted(_MESSAGES)))
    right = _messages(_MESSAGES[method])
    message = draw(st.one_of(right, right, _any_message))
    return method, message, draw(st.sampled_from(["", "", "", "cut", "flip", "rubbish"]))


def _bytes_of(server: CoordinationServer, message: Any, harm: str) -> bytes:
    if hasattr(message, "incarnations") and message.incarnations.service_incarnation != 1:
        message.incarnations.service_incarnation = server.incarnation
    content: bytes = message.SerializeToString()
    content = content.replace(_BROKEN_TEXT.encode(), b"\xff\xc0\x80\xed")
    if harm == "cut":
        return content[: len(content) * 2 // 3]
    if harm == "flip":
        return bytes(byte ^ (0x81 if at % 7 == 3 else 0) for at, byte in enumerate(content[:500]))
    return b"\xff\x0a\x80" * 20 if harm == "rubbish" else content


@pytest.mark.parametrize("recoverable", [True, False])
def test_malformed_messages_are_answered_each_for_itself(recoverable: bool) -> None:
    target = Target(tasks=2, recoverable=recoverable)

    @_fuzz
    @given(st.lists(_calls(), min_size=1, max_size=6))
    def attack(calls: list[tuple[str, Any, str]]) -> None:
        async def body(peer: Peer) -> None:
            for at, (method, message, harm) in enumerate(calls):
                peer.send(peer.call(2 * at + 1, method, _bytes_of(target.server, message, harm)))
            await peer.has_handled_all()
            waiting = len(target.server._waiting)
            peer.send(window_update(0, 1 << 30), settings((INITIAL_WINDOW, 1 << 30)))
            await peer.until(
                lambda: sum(e.is_ended for e in peer.exchanges.values()) + waiting == len(calls)
            )
            answered = [e for e in peer.exchanges.values() if e.is_ended]
            assert len(answered) + waiting == len(calls)
            assert all(0 <= e.status <= 16 for e in answered)
            assert peer.goaway is None

        target.attack(body, PREFACE + settings())

    attack()
    target.stop()


EXTREME: dict[str, list[Any]] = {
    "Barrier": [
        pb.BarrierRequest(barrier_id="b", barrier_timeout_in_ms=timeout, counter=counter)
        for timeout in (-(1 << 63), -1, 0, (1 << 63) - 1)
        for counter in (-(1 << 63), -1, 0, 1, (1 << 63) - 1)
    ],
    "CancelBarrier": [
        pb.CancelBarrierRequest(barrier_id="b", counter=counter, source_task_id=task)
        for counter in (-(1 << 63), (1 << 63) - 1)
        for task in (-(1 << 31), (1 << 31) - 1)
    ],
    "IncrementKeyValue": [
        pb.IncrementKeyValueRequest(key="n", increment=increment)
        for increment in ((1 << 31) - 2, 1, -(1 << 63), (1 << 63) - 1)
    ],
    "WatchTasks": [pb.WatchTasksRequest(version_number=n) for n in (-(1 << 63), (1 << 63) - 1)],
    "GetAliveTasks": [
        pb.GetAliveTasksRequest(requesting_task_id=task, task_ids=[task] * 100_000)
        for task in (-(1 << 31), -1, (1 << 31) - 1)
    ],
    "ReportErrorToService": [
        pb.ReportErrorToServiceRequest(source_task_id=0, error_code=code, error_message="é" * MIB)
        for code in (-(1 << 31), 0, 17, (1 << 31) - 1)
    ],
    "RegisterTask": [
        pb.RegisterTaskRequest(incarnation=incarnation, source_task_id=task)
        for incarnation in (0, (1 << 64) - 1)
        for task in (-(1 << 31), -1, 1, (1 << 31) - 1, 0)
    ],
    "Heartbeat": [pb.HeartbeatRequest(source_task_id=n) for n in (-(1 << 31), (1 << 31) - 1)],
    "ShutdownTask": [pb.ShutdownTaskRequest(source_task_id=n) for n in (-1, (1 << 31) - 1, 0)],
}


def test_extreme_numbers_and_keys_are_answered() -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        start = PREFACE + settings((INITIAL_WINDOW, 1 << 30)) + window_update(0, 1 << 30)
        async with await Peer.connect(port, start) as peer:
            stream = -1
            for method, messages in EXTREME.items():
                for message in messages:
                    if hasattr(message, "incarnations"):
                        message.incarnations.CopyFrom(caller(server))
                    stream += 2
                    peer.send(peer.call(stream, method, message))
            for key in ("", "/" * MIB, "a/" * (MIB // 2), "k" * MIB):
                stream += 2
                stored = await peer.ask(stream, "InsertKeyValue", insert(server, key, b""))
                assert stored.status == 0
                stream += 2
                assert (await peer.ask(stream, "TryGetKeyValue", try_get(server, key))).status == 0
            await peer.has_handled_all()
            assert peer.goaway is None

    serving(body)


# --- too much of everything ------------------------------------------------------------------------


def test_blocked_gets_beyond_the_limit_are_refused_and_all_are_forgotten_with_their_client() -> (
    None
):
    async def body(server: CoordinationServer, port: int) -> None:
        calls, limit = 10_000, grpc_connection.CALLS_MAX
        async with await Peer.connect(port) as greedy, await Peer.connect(port) as other:
            for stream in range(1, 2 * calls, 2):
                greedy.send(greedy.call(stream, "GetKeyValue", get(server, f"never/{stream}")))
            await greedy.has_handled_all()
            assert len(server._waiting) == limit
            refused = [e for e in greedy.exchanges.values() if e.is_ended]
            assert len(refused) == calls - limit
            assert {e.status for e in refused} == {Code.RESOURCE_EXHAUSTED}
            async with asyncio.timeout(RESPONSE_DEADLINE_S):
                assert (await other.ask(1, "TryGetKeyValue", try_get(server, "k"))).status == 5
            other.send(other.call(3, "GetKeyValue", get(server, "k")))
            await other.has_handled_all()
            assert len(server._waiting) == limit + 1
            # What is answered makes room.
            stored = await other.ask(5, "InsertKeyValue", insert(server, "never/1", b"after all"))
            assert stored.status == 0
            assert (await greedy.answer(1)).status == 0
            greedy.send(greedy.call(2 * calls + 1, "GetKeyValue", get(server, "never/x")))
            await greedy.has_handled_all()
            assert len(server._waiting) == limit + 1
            of_greedy = next(c for c in server._connections if len(c.streams) > 1)
            connection = weakref.ref(of_greedy)
            del of_greedy
            greedy.writer.transport.abort()
            await poll(lambda: len(server._waiting) == 1)
            assert (await other.ask(7, "InsertKeyValue", insert(server, "k", b""))).status == 0
            assert (await other.answer(3)).status == 0
        gc.collect()
        assert connection() is None

    serving(body)


async def _deaf(server: CoordinationServer, port: int, start: bytes) -> Peer:
    """A peer, and a path to it, that hold little of what it does not read."""
    before = set(server._connections)
    receiver = socket.socket()
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    receiver.setblocking(False)
    await asyncio.get_running_loop().sock_connect(receiver, ("127.0.0.1", port))
    peer = Peer(*await asyncio.open_connection(sock=receiver, limit=4096))
    await poll(lambda: len(server._connections - before) == 1)
    (connection,) = server._connections - before
    assert connection.transport is not None
    sender: socket.socket = connection.transport.get_extra_info("socket")
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    peer.send(start)
    return peer


async def _others_are_served(server: CoordinationServer, port: int) -> None:
    async with asyncio.timeout(RESPONSE_DEADLINE_S), await Peer.connect(port) as other:
        assert (await other.ask(1, "TryGetKeyValue", try_get(server, "none"))).status == 5


def test_a_client_that_reads_nothing_is_no_longer_read_itself() -> None:
    """Its windows are open, so that answers go to the socket until that takes no more."""

    async def body(server: CoordinationServer, port: int) -> None:
        huge = (1 << 31) - 1
        start = PREFACE + settings((INITIAL_WINDOW, huge)) + window_update(0, huge - 65_535)
        async with await _deaf(server, port, start) as deaf:
            await deaf.ask(1, "InsertKeyValue", insert(server, "k", bytes(MIB)))
            (connection,) = server._connections
            tracemalloc.start()
            try:
                requests = [
                    deaf.call(stream, "TryGetKeyValue", try_get(server, "k"))
                    for stream in range(3, 4003, 2)
                ]
                deaf.send(*requests)
                await poll(lambda: connection._is_paused)
                await _others_are_served(server, port)
                assert server.answers["TryGetKeyValue", Code.OK] < 10
                assert tracemalloc.get_traced_memory()[1] < 20 * MIB
            finally:
                tracemalloc.stop()
            # Once it reads, it gets everything.
            for stream in range(3, 23, 2):
                assert len((await deaf.answer(stream)).message) > MIB
                del deaf.exchanges[stream]
            deaf.writer.transport.abort()

    serving(body)


def test_answers_that_a_client_lets_nobody_send_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its windows are shut, so that answers wait in the server."""
    limit = 16 * MIB
    monkeypatch.setattr(http2, "QUEUED_BYTES_MAX", limit)

    async def body(server: CoordinationServer, port: int) -> None:
        start = PREFACE + settings((INITIAL_WINDOW, 0))
        async with (
            await Peer.connect(port, start) as asking,
            await Peer.connect(port, start) as waiting,
            await Peer.connect(port) as writer,
        ):
            for stream in range(1, 400, 2):
                waiting.send(waiting.call(stream, "GetKeyValue", get(server, "k")))
            await waiting.has_handled_all()
            tracemalloc.start()
            try:
                # All of these are answered at once, before the loop turns.
                stored = await writer.ask(1, "InsertKeyValue", insert(server, "k", bytes(MIB)))
                assert stored.status == 0
                await waiting.until(lambda: False)
                assert waiting.is_closed
                for stream in range(1, 400, 2):
                    asking.send(asking.call(stream, "TryGetKeyValue", try_get(server, "k")))
                await asking.until(lambda: False)
                assert asking.is_closed
                assert tracemalloc.get_traced_memory()[1] < 3 * limit
            finally:
                tracemalloc.stop()
            assert not server._waiting
            await _others_are_served(server, port)

    serving(body)


def test_requests_that_never_end_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_connection, "_UNFINISHED_MAX", 8 * MIB)

    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port) as peer:
            whole = prefixed(bytes(MIB // 4))
            for stream, content in enumerate([whole] * 50 + [whole[:-1]] * 50):
                block = peer.block(request_fields("InsertKeyValue"))
                peer.send(
                    frame(HEADERS, END_HEADERS, 2 * stream + 1, block),
                    frame(DATA, 0, 2 * stream + 1, content),
                )
            await peer.has_handled_all()
            refused = [e for e in peer.exchanges.values() if e.is_ended]
            assert {e.status for e in refused} == {Code.RESOURCE_EXHAUSTED}
            assert len(refused) >= 60
            (connection,) = server._connections
            assert connection._unfinished <= 8 * MIB
            peer.send(*(reset(2 * stream + 1) for stream in range(100)))
            await peer.has_handled_all()
            assert connection._unfinished == 0
            assert (await peer.ask(201, "InsertKeyValue", insert(server, "k", b"v"))).status == 0

    serving(body)


def test_connections_that_say_nothing_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """When their time is up is up to the test: how long they take to come is up to the machine."""

    async def body(server: CoordinationServer, port: int) -> None:
        starts = [b"", PREFACE[:10]] * 100
        silent = await asyncio.gather(*(Peer.connect(port, start) for start in starts))
        working = await Peer.connect(port, PREFACE)
        await poll(lambda: server.connections == 201)
        await working.has_handled_all()
        await _others_are_served(server, port)
        assert not any(peer.is_closed for peer in silent)
        later_s = http2._PREFACE_TIMEOUT_S + 1
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: time.monotonic() + later_s)
        await asyncio.gather(*(peer.until(lambda: False) for peer in silent))
        assert all(peer.is_closed for peer in silent)
        assert (await working.ask(1, "TryGetKeyValue", try_get(server, "none"))).status == 5
        for peer in (*silent, working):
            peer.writer.transport.abort()

    serving(body)


def test_a_client_that_breaks_the_protocol_and_does_not_read_is_closed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http2, "_CLOSE_TIMEOUT_S", 0.3)

    async def body(server: CoordinationServer, port: int) -> None:
        huge = (1 << 31) - 1
        start = PREFACE + settings((INITIAL_WINDOW, huge)) + window_update(0, huge - 65_535)
        async with await _deaf(server, port, start) as deaf:
            await deaf.ask(1, "InsertKeyValue", insert(server, "k", bytes(MIB // 2)))
            (connection,) = server._connections
            assert connection.transport is not None
            stream = 1
            while connection.transport.get_write_buffer_size() == 0:
                stream += 2
                deaf.send(deaf.call(stream, "TryGetKeyValue", try_get(server, "k")))
                answers = (stream - 1) // 2
                await poll(
                    lambda answers=answers: server.answers["TryGetKeyValue", Code.OK] == answers  # type: ignore[misc]
                )
            assert not connection._is_paused
            deaf.send(frame(PING, 0, 0, bytes(7)))
            await poll(lambda: server.connections == 0)

    serving(body)


@pytest.mark.parametrize("ended", [True, False], ids=["whole", "unfinished"])
def test_rapid_resets_leave_nothing(ended: bool) -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port) as peer:
            content = prefixed(get(server, "never").SerializeToString())
            for stream in range(1, 20_000, 2):
                block = peer.block(request_fields("GetKeyValue"))
                peer.send(
                    frame(HEADERS, END_HEADERS, stream, block)
                    + (data(stream, content) if ended else frame(DATA, 0, stream, content[:-1]))
                    + reset(stream)
                )
            await peer.has_handled_all()
            assert not server._waiting
            (connection,) = server._connections
            assert not connection.streams
            assert connection._unfinished == 0
            assert not peer.exchanges
            assert (await peer.ask(20_001, "TryGetKeyValue", try_get(server, "k"))).status == 5

    serving(body)


@pytest.mark.parametrize(
    "flood", [frame(PING, 0, 0, b"12345678"), settings()], ids=["pings", "settings"]
)
def test_floods_of_what_must_be_answered_stop_at_a_client_that_does_not_read(flood: bytes) -> None:
    async def body(server: CoordinationServer, port: int) -> None:
        async with await _deaf(server, port, PREFACE + settings()) as deaf:
            await deaf.has_handled_all()
            (connection,) = server._connections
            async with asyncio.timeout(RESPONSE_DEADLINE_S):
                while not connection._is_paused:
                    deaf.send(flood * 5_000)
                    await asyncio.sleep(0.001)
            await _others_are_served(server, port)
            assert connection.transport is not None
            assert connection.transport.get_write_buffer_size() < 4 * MIB
            assert sum(map(len, connection._out)) < 4 * MIB

    serving(body)


def test_windows_that_change_again_and_again_end_the_connection() -> None:
    """Each change touches each stream: a small frame would cost much."""

    async def body(server: CoordinationServer, port: int) -> None:
        async with await Peer.connect(port) as peer:
            for stream in range(1, 4000, 2):
                peer.send(peer.call(stream, "GetKeyValue", get(server, "never")))
            await peer.has_handled_all()
            changes = [(INITIAL_WINDOW, 1000), (INITIAL_WINDOW, 2000)]
            peer.send(settings(*changes * 4))
            await peer.has_handled_all()
            peer.send(settings(*changes * 10_000))
            assert await peer.farewell() == ENHANCE_YOUR_CALM

    serving(body)
