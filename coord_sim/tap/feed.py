"""The line from the relay to its recorder: a copy of all that was passed on, in order, with times."""

from __future__ import annotations

import logging
import select
import socket
import time
from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import Final

_log = logging.getLogger(__name__)

ASKED: Final = 0
"""Bytes came from a client."""
ANSWERED: Final = 1
"""Bytes came from the service, and were passed on."""
CLOSED_BY_CLIENT: Final = 2
CLOSED_BY_SERVICE: Final = 3
UNREACHABLE: Final = 4
"""The service did not take a connection."""

QUEUE_BYTES_MAX: Final = 64 << 20
"""What may wait for the recorder; then the job waits for it too, for `PATIENCE_S`."""
PATIENCE_S: Final = 5.0
"""A recorder that takes nothing for so long while the queue is full is given up."""

_HEAD: Final = Struct("<BxxxIQQ")
_CHUNK: Final = 1 << 18
_SEND_MAX: Final = 256


class Feed:
    """The relay's end. Nothing here waits, but for `finish`.

    Args:
      pipe: To the recorder.
    """

    def __init__(self, pipe: socket.socket) -> None:
        pipe.setblocking(False)
        self._pipe: socket.socket | None = pipe
        self._queue: deque[bytes | memoryview] = deque()
        self._queued = 0
        self._taken_s = time.monotonic()

    @property
    def pipe(self) -> socket.socket | None:
        """To wait at until it takes more; None once there is nobody at its other end."""
        return self._pipe

    @property
    def is_waiting(self) -> bool:
        """Whether something is queued."""
        return bool(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether the job must wait for the recorder."""
        return self._queued > QUEUE_BYTES_MAX

    def put(self, kind: int, connection: int, time_ns: int, data: bytes = b"") -> None:
        """Queues what happened on a connection; `flush` sends it."""
        if self._pipe is None:
            return
        head = _HEAD.pack(kind, connection, time_ns, len(data))
        self._queue.append(head + data)
        self._queued += len(head) + len(data)

    def flush(self) -> None:
        """Sends what the recorder takes now."""
        queue = self._queue
        while queue and self._pipe is not None:
            some = [queue[number] for number in range(min(len(queue), _SEND_MAX))]
            try:
                sent = self._pipe.sendmsg(some)
            except BlockingIOError:
                self._check_patience()
                return
            except OSError:
                self._give_up("its process has ended")
                return
            self._taken_s = time.monotonic()
            self._queued -= sent
            while queue and sent >= len(queue[0]):
                sent -= len(queue.popleft())
            if sent:
                queue[0] = memoryview(queue[0])[sent:]

    def finish(self, patience_s: float) -> None:
        """Sends the rest, and says that it was all."""
        deadline_s = time.monotonic() + patience_s
        self.flush()
        while self._queue and self._pipe is not None and time.monotonic() < deadline_s:
            select.select([], [self._pipe], [], deadline_s - time.monotonic())
            self.flush()
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _check_patience(self) -> None:
        if self.is_full and time.monotonic() - self._taken_s > PATIENCE_S:
            self._give_up(f"it has taken nothing for {PATIENCE_S:g} s")

    def _give_up(self, why: str) -> None:
        _log.warning("nothing more is recorded: %s; the relay goes on", why)
        assert self._pipe is not None
        self._pipe.close()
        self._pipe = None
        self._queue.clear()
        self._queued = 0


def read(pipe: socket.socket) -> Iterator[tuple[int, int, int, bytes]]:
    """The recorder's end: kind, connection, time and data of each thing, until the relay is gone.

    A thing that was cut, as its sender was killed, is not told.
    """
    # `recv` would allocate a chunk each time and give back most of it, of which the C library's heap
    # grows by megabytes an hour.
    chunk = memoryview(bytearray(_CHUNK))
    buffer = bytearray()
    while received := pipe.recv_into(chunk):
        buffer += chunk[:received]
        at = 0
        while len(buffer) - at >= _HEAD.size:
            kind, connection, time_ns, size = _HEAD.unpack_from(buffer, at)
            begin = at + _HEAD.size
            if begin + size > len(buffer):
                break
            at = begin + size
            yield kind, connection, time_ns, bytes(buffer[begin:at])
        del buffer[:at]
