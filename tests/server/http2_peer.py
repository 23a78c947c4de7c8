"""A peer of the server that writes its frames itself, so that it can also write wrong ones."""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import hpack

from coord_sim.core.identifiers import seconds
from coord_sim.core.service import ServiceConfig
from coord_sim.server.grpc_server import CoordinationServer
from coord_sim.wire import server_methods as wire
from coord_sim.wire._generated import coordination_service_pb2 as pb

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY = range(8)
WINDOW_UPDATE, CONTINUATION = 8, 9
ACK = END_STREAM = 0x1
END_HEADERS, PADDED, WITH_PRIORITY = 0x4, 0x8, 0x20
TABLE_SIZE, INITIAL_WINDOW, MAX_FRAME = 1, 4, 5
DEADLINE_S = 30.0

Fields = list[tuple[str, str]]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + struct.pack(">BBI", kind, flags, stream) + payload


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


def reset(stream: int) -> bytes:
    return frame(RST_STREAM, 0, stream, struct.pack(">I", 8))


def prefixed(message: bytes, flag: int = 0) -> bytes:
    """A message as gRPC frames it."""
    return struct.pack(">BI", flag, len(message)) + message


def data(stream: int, content: bytes, step: int = 1 << 18) -> bytes:
    """The frames of a request's body, the last of which ends it."""
    return b"".join(
        frame(DATA, END_STREAM if at + step >= len(content) else 0, stream, content[at : at + step])
        for at in range(0, max(len(content), 1), step)
    )


def path(method: str) -> str:
    return f"/{wire.SERVICE}/{method}"


def request_fields(method: str, *extra: tuple[str, str]) -> Fields:
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path(method)),
        (":authority", "server"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *extra,
    ]


@dataclass
class Exchange:
    """What came on one stream."""

    headers: list[Fields] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    is_ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int:
        """The gRPC status; fails if there is none."""
        return int(dict(self.headers[-1])["grpc-status"])

    @property
    def message(self) -> bytes:
        """The one message of the answer."""
        size = int.from_bytes(self.data[1:5])
        assert len(self.data) == 5 + size
        return bytes(self.data[5:])


class Peer:
    """One connection to a server. What it receives is sorted by stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()
        self.exchanges: defaultdict[int, Exchange] = defaultdict(Exchange)
        self.blocks: list[bytes] = []
        self.acknowledged = 0
        self.pongs: list[bytes] = []
        self.goaway: tuple[int, int] | None = None
        self.is_closed = False
        self.on_data: Callable[[int, int], None] | None = None

    @classmethod
    async def connect(cls, port: int, start: bytes = PREFACE + settings()) -> Self:
        peer = cls(*await asyncio.open_connection("127.0.0.1", port))
        peer.send(start)
        return peer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.writer.transport.abort()

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    def block(self, fields: Iterable[tuple[str, str]]) -> bytes:
        return self.encoder.encode(list(fields))

    def call(self, stream: int, method: str, message: Any = b"", *extra: tuple[str, str]) -> bytes:
        """The frames of a whole request."""
        content = message if isinstance(message, bytes) else message.SerializeToString()
        block = self.block(request_fields(method, *extra))
        return frame(HEADERS, END_HEADERS, stream, block) + data(stream, prefixed(content))

    async def answer(self, stream: int) -> Exchange:
        """The whole answer on one stream."""
        exchange = self.exchanges[stream]
        await self.until(lambda: exchange.is_ended)
        assert exchange.is_ended, (self.goaway, exchange)
        return exchange

    async def ask(self, stream: int, method: str, message: Any = b"") -> Exchange:
        self.send(self.call(stream, method, message))
        return await self.answer(stream)

    async def has_handled_all(self) -> None:
        """Waits until the server has seen everything that was sent, and its answers are here."""
        for _ in range(2):  # What waited for windows follows the first answer.
            payload = b"%08d" % len(self.pongs)
            self.send(frame(PING, 0, 0, payload))
            await self.until(lambda payload=payload: payload in self.pongs)  # type: ignore[misc]
            assert payload in self.pongs, self.goaway

    async def farewell(self) -> int:
        """The code that the server ends the connection with."""
        await self.until(lambda: False)
        assert self.goaway is not None
        return self.goaway[1]

    async def until(self, is_enough: Callable[[], bool]) -> None:
        """Reads frames until that holds or the server closes."""
        async with asyncio.timeout(DEADLINE_S):
            while not is_enough() and not self.is_closed:
                try:
                    head = await self._reader.readexactly(9)
                    payload = await self._reader.readexactly(int.from_bytes(head[:3]))
                except (asyncio.IncompleteReadError, ConnectionError):
                    self.is_closed = True
                    return
                kind, flags, stream = struct.unpack(">BBI", head[3:])
                self._take(kind, flags, stream, payload)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == DATA:
            exchange = self.exchanges[stream]
            assert exchange.headers, "data before headers"
            assert not exchange.is_ended, "data after the end"
            exchange.data += payload
            if self.on_data is not None:
                self.on_data(stream, len(payload))
        elif kind == HEADERS:
            assert flags & END_HEADERS
            exchange = self.exchanges[stream]
            assert not exchange.is_ended, "headers after the end"
            self.blocks.append(payload)
            exchange.headers.append([(f[0], f[1]) for f in self.decoder.decode(payload)])  # type: ignore[misc]
            exchange.is_ended = bool(flags & END_STREAM)
        elif kind == RST_STREAM:
            self.exchanges[stream].reset = int.from_bytes(payload)
        elif kind == SETTINGS:
            self.acknowledged += flags & ACK
        elif kind == PING:
            assert flags & ACK
            self.pongs.append(payload)
        elif kind == GOAWAY:
            last, code = struct.unpack_from(">II", payload)
            self.goaway = last, code
        else:
            assert kind == WINDOW_UPDATE, f"a frame of kind {kind}"


async def poll(is_so: Callable[[], bool]) -> None:
    """Waits for what the server has no event for."""
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)


def caller(server: CoordinationServer) -> pb.Incarnations:
    return pb.Incarnations(task_incarnation=100, service_incarnation=server.incarnation)


def insert(server: CoordinationServer, key: str, value: bytes) -> pb.InsertKeyValueRequest:
    return pb.InsertKeyValueRequest(
        incarnations=caller(server),
        kv=pb.KeyValueEntry(key=key, value=value),
        allow_overwrite=True,
    )


def try_get(server: CoordinationServer, key: str) -> pb.TryGetKeyValueRequest:
    return pb.TryGetKeyValueRequest(incarnations=caller(server), key=key)


def get(server: CoordinationServer, key: str) -> pb.GetKeyValueRequest:
    return pb.GetKeyValueRequest(incarnations=caller(server), key=key)


async def is_well(server: CoordinationServer, port: int) -> None:
    """Fails unless another client is served at once and nothing is left of those that went."""
    async with asyncio.timeout(20), await Peer.connect(port) as healthy:
        stored = await healthy.ask(1, "InsertKeyValue", insert(server, "healthy", b"yes"))
        assert stored.status == 0
        got = await healthy.ask(3, "TryGetKeyValue", try_get(server, "healthy"))
        assert pb.TryGetKeyValueResponse.FromString(got.message).kv.value == b"yes"
    await poll(lambda: server.connections == 0)
    assert not server._waiting
    core = server._core
    assert not core._store.waiting_calls()
    assert not core._polls.waiting_calls()
    assert not core._watchers


def serving(
    body: Callable[[CoordinationServer, int], Coroutine[Any, Any, None]], *, tasks: int = 1
) -> None:
    """Runs `body` with a server and its port; the server must be well afterwards."""

    async def run() -> None:
        problems: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: problems.append(what))
        config = ServiceConfig(tasks=tasks, recoverable=True, heartbeat_timeout_ns=seconds(600))
        server = CoordinationServer(config)
        port = server.bind("127.0.0.1", 0)
        await server.start()
        try:
            await body(server, port)
            if not server._is_stopping:
                await is_well(server, port)
        finally:
            await server.stop()
        assert not problems

    asyncio.run(run())
