"""Stands between each process and its service, and is as bad a network as it is told.

A process of its own, which needs no root: a process of the job connects to a port of the loopback, and
what it sends and gets passes through here. Bytes pass unchanged and in order, as in TCP; a bad network
shows as delay.

The first line of standard input is a list of the upstreams, `["HOST:PORT", ...]`, and is answered by a
line with the ports to connect to. Each further line is an order, `{"link": N, "do": ..., ...}`:

- `set`: `bad`: all that makes the link bad now, each with `delay_s`, `jitter_s`, `loss` (a lost packet
  is sent again later), `bytes_per_s` (0: no limit). Delays add up, and of limits the lowest counts;
- `hold`: `up`, `down`: whether what goes to the service, or comes from it, is held back;
- `refuse`: `on`: whether connections are refused;
- `reset`: breaks all connections.

Every order is answered by `done`. When standard input ends, so does this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import struct
import sys
from dataclasses import dataclass, field
from typing import Any, Final

from coord_sim.held_port import hold_port

CHUNK: Final = 65536
CHUNKS_MAX: Final = 64
"""So many wait in one direction of a connection; then its sender has to wait too."""

RESEND_S: Final = 0.2
"""After this a lost packet is sent again, then after twice as long, and so on: TCP's least time-out."""

RESENDS_MAX: Final = 8

_ABORT: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class _Bad:
    """One thing that makes a link bad: fields of `coord_sim.faults.Degrade`."""

    delay_s: float
    jitter_s: float
    loss: float
    bytes_per_s: float

    def extra_s(self) -> float:
        """How much later a packet comes."""
        late_s = self.delay_s + random.uniform(0.0, self.jitter_s)  # noqa: S311 - a bad network
        for attempt in range(RESENDS_MAX):
            if random.random() >= self.loss:  # noqa: S311
                break
            late_s += RESEND_S * 2**attempt
        return late_s


@dataclass(slots=True)
class _Way:
    """One direction of a link.

    Attributes:
      is_open: Set unless what goes this way is held back.
      bad: What makes it bad.
    """

    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    bad: tuple[_Bad, ...] = ()

    def extra_s(self) -> float:
        """How much later a packet comes."""
        return sum(bad.extra_s() for bad in self.bad)

    @property
    def bytes_per_s(self) -> float:
        """So much passes; 0: no limit."""
        return min((bad.bytes_per_s for bad in self.bad if bad.bytes_per_s), default=0.0)


class Link:
    """All connections of one process to its service.

    Args:
      upstream: `HOST:PORT` of the service.
    """

    def __init__(self, upstream: str) -> None:
        host, _, port = upstream.rpartition(":")
        self._upstream = (host.strip("[]"), int(port))
        self._up = _Way()
        self._down = _Way()
        for way in (self._up, self._down):
            way.is_open.set()
        self._connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._port = 0
        self._held_port: socket.socket | None = None

    async def listen(self) -> int:
        """Listens on the port that it had, or on a free one; returns it."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self._port

    async def do(self, order: dict[str, Any]) -> None:
        """Carries out an order."""
        match order["do"]:
            case "set":
                for way in (self._up, self._down):
                    way.bad = tuple(_Bad(**bad) for bad in order["bad"])
            case "hold":
                for way, is_held in ((self._up, order["up"]), (self._down, order["down"])):
                    (way.is_open.clear if is_held else way.is_open.set)()
            case "refuse" if order["on"]:
                if self._server is not None:
                    self._server.close()
                    self._server = None
                    self._held_port = self._held_port or hold_port(self._port)
            case "refuse":
                if self._server is None:
                    await self.listen()
            case "reset":
                for connection in list(self._connections):
                    _abort(connection)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            there, back = await asyncio.open_connection(*self._upstream)
        except OSError:
            _abort(writer)  # As the service's own host would answer.
            return
        ends = {writer, back}
        self._connections |= ends
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pass_on(reader, back, self._up))
                both.create_task(_pass_on(there, writer, self._down))
        except* (OSError, asyncio.IncompleteReadError):
            pass  # One side broke: so does the other.
        finally:
            self._connections -= ends
            for end in ends:
                _abort(end)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: _Way) -> None:
    """Passes bytes on in order, each at its time; then the end."""
    clock = asyncio.get_running_loop().time
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_MAX)

    async def take() -> None:
        while True:
            data = await reader.read(CHUNK)
            await under_way.put((clock() + way.extra_s(), data))
            if not data:
                return

    async def give() -> None:
        while True:
            due_s, data = await under_way.get()
            if due_s > clock():
                await asyncio.sleep(due_s - clock())
            await way.is_open.wait()
            if not data:
                with contextlib.suppress(OSError):
                    writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
            if limit := way.bytes_per_s:
                await asyncio.sleep(len(data) / limit)

    async with asyncio.TaskGroup() as both:
        both.create_task(take())
        both.create_task(give())


def _abort(writer: asyncio.StreamWriter) -> None:
    """Breaks a connection, with a reset if there is anything to break."""
    connection = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
    writer.transport.abort()


async def serve() -> None:
    """Reads orders until there are no more."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    links = [Link(upstream) for upstream in json.loads(await reader.readline())]
    print(json.dumps([await link.listen() for link in links]), flush=True)
    while line := await reader.readline():
        order = json.loads(line)
        await links[order["link"]].do(order)
        print("done", flush=True)
    # Without a word on the connections that are open: whoever gave the orders is gone.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(serve())
