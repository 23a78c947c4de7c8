"""Passes bytes between clients and a service, unchanged and both ways, and shows a copy to a recorder.

It knows nothing of what it passes on, so it can break nothing of it. One thread waits for all sockets;
what arrives is sent on at once by one system call, and only then copied. Who cannot be written to makes
its other end wait: it is not read from.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from coord_sim.tap import feed as feeding
from coord_sim.tap.feed import Feed
from coord_sim.tap.upstream import Upstream

_log = logging.getLogger(__name__)

_CHUNK: Final = 1 << 16
_RESET: Final = Struct("ii").pack(1, 0)
"""SO_LINGER: a socket that is closed resets its connection."""
_PAUSE_S: Final = 0.5
"""After running out of file descriptors, until connections are accepted again."""
_FEED_POLL_S: Final = 0.5
"""How often a recorder that takes nothing is looked at."""


class _End:
    """One of the two sockets of a pair.

    Attributes:
      other: The other end.
      unsent: What the socket would not take yet; while there is something, `other` is not read.
      has_ended: It will send nothing more.
      is_client: Else it is the service's.
    """

    __slots__ = ("events", "has_ended", "is_client", "other", "pair", "socket", "unsent")

    def __init__(self, pair: _Pair, socket_: socket.socket, *, is_client: bool) -> None:
        self.pair = pair
        self.socket = socket_
        self.is_client = is_client
        self.other = self
        self.unsent: bytes | memoryview = b""
        self.has_ended = False
        self.events = 0


class _Pair:
    """A client's connection and the one to the service that it was given."""

    __slots__ = ("addresses", "client", "closer", "is_connected", "number", "service")

    def __init__(self, number: int, client: socket.socket) -> None:
        self.number = number
        self.client = _End(self, client, is_client=True)
        self.service: _End | None = None
        self.is_connected = False
        self.addresses: list[tuple[socket.AddressFamily, object]] = []
        self.closer: _End | None = None
        """Who ended first."""


class Relay:
    """Relays until it is stopped.

    Args:
      listeners: Sockets that listen; they are closed in the end.
      upstream: Where the service is.
      feed: Shows the recorder what was passed on.
    """

    def __init__(self, listeners: Sequence[socket.socket], upstream: Upstream, feed: Feed) -> None:
        self._listeners = list(listeners)
        self._upstream = upstream
        self._feed = feed
        self._selector = selectors.DefaultSelector()
        self._pairs: set[_Pair] = set()
        self._count = 0
        self._accept_again_s: float | None = None
        self._waits_for_feed = False
        self._watched_pipe: socket.socket | None = None
        self._is_stopping = False
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._wake, selectors.EVENT_READ, self._woken)

    def stop(self) -> None:
        """Ends `run`; for signal handlers and other threads too."""
        self._is_stopping = True
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def run(self) -> None:
        """Relays; in the end closes all connections."""
        _raise_descriptor_limit()
        self._accept_from_now_on()
        while not self._is_stopping:
            for key, events in self._selector.select(self._patience_s()):
                if isinstance(key.data, _End):
                    self._ready(key.data, events)
                else:
                    key.data()
            self._feed.flush()
            self._heed_feed()
            if self._accept_again_s is not None and time.monotonic() >= self._accept_again_s:
                self._accept_from_now_on()
        for listener in self._listeners:
            listener.close()
        for pair in self._pairs:
            for end in _ends(pair):
                end.socket.close()
        self._selector.close()
        self._wake.close()
        self._waker.close()

    # --- connections ---------------------------------------------------------------------------

    def _accept_from_now_on(self) -> None:
        self._accept_again_s = None
        for listener in self._listeners:
            self._selector.register(listener, selectors.EVENT_READ, self._accepts(listener))

    def _accepts(self, listener: socket.socket) -> Callable[[], None]:
        return lambda: self._accept(listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self._pause(error)
            return  # Else it was gone before it was accepted.
        _prepare(client)
        pair = _Pair(self._count, client)
        self._count += 1
        pair.addresses = list(self._upstream.addresses)
        self._pairs.add(pair)
        self._connect(pair)

    def _pause(self, error: OSError) -> None:
        if self._accept_again_s is None:
            _log.warning("connections have to wait: %s", error.strerror)
            for listener in self._listeners:
                self._selector.unregister(listener)
        self._accept_again_s = time.monotonic() + _PAUSE_S

    def _connect(self, pair: _Pair) -> None:
        """Tries the next address of the service."""
        while pair.addresses:
            family, address = pair.addresses.pop(0)
            try:
                service = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                self._refuse(pair, error.errno)
                return
            _prepare(service)
            code = service.connect_ex(address)  # type: ignore[arg-type]  # getaddrinfo's
            if code in (0, errno.EINPROGRESS):
                pair.service = _End(pair, service, is_client=False)
                pair.service.other, pair.client.other = pair.client, pair.service
                self._watch(pair.service, selectors.EVENT_WRITE)
                return
            service.close()
            if not pair.addresses:
                self._refuse(pair, code)

    def _connected(self, end: _End) -> None:
        pair = end.pair
        code = end.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._watch(end, 0)
            end.socket.close()
            pair.service = None
            if pair.addresses:
                self._connect(pair)
            else:
                self._refuse(pair, code)
            return
        pair.is_connected = True
        self._update(end)
        self._update(pair.client)

    def _refuse(self, pair: _Pair, code: int | None) -> None:
        """Treats a client as the service would have: with a reset."""
        _log.info("%s: %s", self._upstream, os.strerror(code or errno.ECONNREFUSED))
        self._feed.put(feeding.UNREACHABLE, pair.number, time.monotonic_ns())
        self._upstream.look_again()
        pair.client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._close(pair)

    def _close(self, pair: _Pair) -> None:
        for end in _ends(pair):
            self._watch(end, 0)
            end.socket.close()
        self._pairs.discard(pair)
        if pair.is_connected:
            by_service = pair.closer is not None and not pair.closer.is_client
            kind = feeding.CLOSED_BY_SERVICE if by_service else feeding.CLOSED_BY_CLIENT
            self._feed.put(kind, pair.number, time.monotonic_ns())

    def _abort(self, end: _End) -> None:
        """An end was reset, or is out of reach: so is the other."""
        pair = end.pair
        pair.closer = pair.closer or end
        for each in _ends(pair):
            with contextlib.suppress(OSError):
                each.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._close(pair)

    # --- bytes ---------------------------------------------------------------------------------

    def _ready(self, end: _End, events: int) -> None:
        if end.socket.fileno() < 0:
            return  # Closed by what was ready before it in this turn.
        if not end.pair.is_connected:
            self._connected(end)
            return
        if events & selectors.EVENT_WRITE:
            self._send_rest(end)
        if events & selectors.EVENT_READ and end.events & selectors.EVENT_READ:
            self._pass_on(end)

    def _pass_on(self, end: _End) -> None:
        try:
            data = end.socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self._abort(end)
            return
        time_ns = time.monotonic_ns()
        other = end.other
        if not data:
            end.has_ended = True
            end.pair.closer = end.pair.closer or end
            self._pass_end_on(end)
            return
        try:
            sent = other.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._abort(other)
            return
        if sent < len(data):
            other.unsent = memoryview(data)[sent:]
            self._update(end)
            self._update(other)
        if end.is_client:
            self._feed.put(feeding.ASKED, end.pair.number, time_ns, data)
        else:
            self._feed.put(feeding.ANSWERED, end.pair.number, time.monotonic_ns(), data)

    def _send_rest(self, end: _End) -> None:
        try:
            sent = end.socket.send(end.unsent)
        except BlockingIOError:
            return
        except OSError:
            self._abort(end)
            return
        end.unsent = end.unsent[sent:]
        if not end.unsent:
            end.unsent = b""
            if end.other.has_ended:
                self._pass_end_on(end.other)
                return
            self._update(end.other)
        self._update(end)

    def _pass_end_on(self, end: _End) -> None:
        """One end says nothing more: the other is told once it has got all."""
        other = end.other
        if not other.unsent:
            if other.has_ended:
                if not end.unsent:
                    self._close(end.pair)
                    return
            else:
                with contextlib.suppress(OSError):
                    other.socket.shutdown(socket.SHUT_WR)
        self._update(end)
        self._update(other)

    # --- what is waited for --------------------------------------------------------------------

    def _update(self, end: _End) -> None:
        """Waits for what an end can do now."""
        events = 0
        if not end.has_ended and not end.other.unsent and not self._waits_for_feed:
            events |= selectors.EVENT_READ
        if end.unsent:
            events |= selectors.EVENT_WRITE
        self._watch(end, events)

    def _watch(self, end: _End, events: int) -> None:
        if events == end.events:
            return
        if not end.events:
            self._selector.register(end.socket, events, end)
        elif not events:
            self._selector.unregister(end.socket)
        else:
            self._selector.modify(end.socket, events, end)
        end.events = events

    def _heed_feed(self) -> None:
        """Waits for the recorder to take more, and lets the job wait too if it must."""
        pipe = self._feed.pipe if self._feed.is_waiting else None
        if pipe is not self._watched_pipe:
            if self._watched_pipe is not None:
                self._selector.unregister(self._watched_pipe)
            if pipe is not None:
                self._selector.register(pipe, selectors.EVENT_WRITE, _flush_later)
            self._watched_pipe = pipe
        if self._waits_for_feed != self._feed.is_full:
            self._waits_for_feed = self._feed.is_full
            for pair in self._pairs:
                if pair.is_connected:
                    for end in _ends(pair):
                        self._update(end)

    def _patience_s(self) -> float | None:
        if self._feed.is_waiting:
            return _FEED_POLL_S
        if self._accept_again_s is not None:
            return _PAUSE_S
        return None

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(64)


def _flush_later() -> None:
    """The recorder takes more: every turn of the loop ends with that."""


def _ends(pair: _Pair) -> tuple[_End, ...]:
    return (pair.client,) if pair.service is None else (pair.client, pair.service)


def _prepare(socket_: socket.socket) -> None:
    socket_.setblocking(False)
    socket_.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    socket_.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _raise_descriptor_limit() -> None:
    """Two sockets for each process of the job may be more than the usual limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
