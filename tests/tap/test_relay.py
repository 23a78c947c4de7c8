"""The relay over real sockets: bytes unchanged, ends passed on, and nothing that it may not break."""

from __future__ import annotations

import contextlib
import hashlib
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from coord_sim.server.listening import listen
from coord_sim.tap import feed as feeding
from coord_sim.tap.feed import Feed
from coord_sim.tap.relay import Relay
from coord_sim.tap.upstream import Upstream
from tests.ports import reserved_port

DEADLINE_S = 60.0


class Bench:
    """A relay in a thread, a service that listens, and what the recorder is shown."""

    def __init__(self, upstream_port: int | None = None, *, reads_feed: bool = True) -> None:
        self.service = socket.create_server(("127.0.0.1", upstream_port or 0))
        self.service.settimeout(DEADLINE_S)
        listeners = listen("127.0.0.1", 0)
        self.port = listeners[0].getsockname()[1]
        mine, self.pipe = socket.socketpair()
        self.feed = Feed(mine)
        self.shown: list[tuple[int, int, int, bytes]] = []
        self.relay = Relay(
            listeners, Upstream("127.0.0.1", self.service.getsockname()[1]), self.feed
        )
        self._threads = [threading.Thread(target=self.relay.run)]
        if reads_feed:
            self._threads.append(threading.Thread(target=self._read))
        for thread in self._threads:
            thread.start()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), DEADLINE_S)

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """Both ends of one relayed connection."""
        client = self.connect()
        service, _ = self.service.accept()
        service.settimeout(DEADLINE_S)
        return client, service

    def _read(self) -> None:
        self.shown += feeding.read(self.pipe)

    def end(self) -> None:
        self.relay.stop()
        self._threads[0].join(DEADLINE_S)
        self.feed.finish(DEADLINE_S)
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
        self.service.close()
        self.pipe.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    try:
        yield made
    finally:
        made.end()


def until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def everything(end: socket.socket) -> bytes:
    pieces = []
    while piece := end.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def test_bytes_pass_unchanged_both_ways_at_once_and_are_shown(bench: Bench) -> None:
    draw = random.Random(4)
    sent = {name: draw.randbytes(3_000_000) for name in ("client", "service")}
    got: dict[str, bytes] = {}
    client, service = bench.pair()

    def talk(name: str, end: socket.socket) -> None:
        def write() -> None:
            at = 0
            while at < len(sent[name]):
                size = draw.randrange(1, 200_000)
                end.sendall(sent[name][at : at + size])
                at += size
            end.shutdown(socket.SHUT_WR)

        writer = threading.Thread(target=write)
        writer.start()
        got[name] = everything(end)
        writer.join(DEADLINE_S)
        end.close()

    talkers = [
        threading.Thread(target=talk, args=each)
        for each in (("client", client), ("service", service))
    ]
    for each in talkers:
        each.start()
    for each in talkers:
        each.join(DEADLINE_S)
    assert got == {"client": sent["service"], "service": sent["client"]}
    until(lambda: bool(bench.shown) and bench.shown[-1][0] >= feeding.CLOSED_BY_CLIENT)
    for kind, name in ((feeding.ASKED, "client"), (feeding.ANSWERED, "service")):
        shown = b"".join(data for each, _, _, data in bench.shown if each == kind)
        assert hashlib.sha256(shown).digest() == hashlib.sha256(sent[name]).digest()
    times = [time_ns for _, _, time_ns, _ in bench.shown]
    assert times == sorted(times)
    assert not bench.relay._pairs


def test_who_is_not_read_makes_its_peer_wait_and_nobody_else(bench: Bench) -> None:
    client, service = bench.pair()
    service.setblocking(False)
    sent = 0
    idle_since_s = time.monotonic()
    while time.monotonic() < idle_since_s + 0.5:
        try:
            sent += service.send(b"x" * 65536)
            idle_since_s = time.monotonic()
        except BlockingIOError:
            time.sleep(0.01)
    (pair,) = bench.relay._pairs
    assert len(pair.client.unsent) <= 65536, "no more than one piece waits in the relay"
    other_client, other_service = bench.pair()
    other_client.sendall(b"go on")
    assert other_service.recv(100) == b"go on"
    service.close()
    assert len(everything(client)) == sent
    for each in (client, other_client, other_service):
        each.close()


def test_an_end_that_says_no_more_can_still_be_told(bench: Bench) -> None:
    client, service = bench.pair()
    client.sendall(b"last words")
    client.shutdown(socket.SHUT_WR)
    assert everything(service) == b"last words"
    service.sendall(b"answer")
    service.close()
    assert everything(client) == b"answer"
    client.close()
    until(lambda: bool(bench.shown) and bench.shown[-1][0] == feeding.CLOSED_BY_CLIENT)


@pytest.mark.parametrize("is_client", [True, False])
def test_a_reset_is_a_reset_at_the_other_end(bench: Bench, *, is_client: bool) -> None:
    client, service = bench.pair()
    client.sendall(b"x")
    assert service.recv(1) == b"x"
    resetting, other = (client, service) if is_client else (service, client)
    resetting.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    resetting.close()
    with pytest.raises(ConnectionResetError):
        other.recv(1)
    other.close()
    kind = feeding.CLOSED_BY_CLIENT if is_client else feeding.CLOSED_BY_SERVICE
    until(lambda: bool(bench.shown) and bench.shown[-1][0] == kind)


def test_a_service_that_is_not_there_refuses_and_then_comes() -> None:
    with reserved_port() as port:
        bench = Bench(port)
        try:
            bench.service.close()
            for _ in range(3):
                with (
                    pytest.raises(ConnectionResetError),
                    contextlib.closing(bench.connect()) as client,
                ):
                    client.recv(1)
            bench.service = socket.create_server(("127.0.0.1", port))
            bench.service.settimeout(DEADLINE_S)
            client, service = bench.pair()
            client.sendall(b"x")
            assert service.recv(1) == b"x"
            client.close()
            service.close()
            until(lambda: [kind for kind, _, _, _ in bench.shown].count(feeding.UNREACHABLE) == 3)
        finally:
            bench.end()


def test_a_recorder_that_is_gone_is_gone_and_the_relay_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(reads_feed=False)
    try:
        bench.pipe.close()
        client, service = bench.pair()
        for _ in range(3):
            client.sendall(b"x" * 1000)
            assert service.recv(1000)
        client.close()
        service.close()
        until(lambda: bench.feed.pipe is None)
    finally:
        bench.end()
    assert caplog.text.count("nothing more is recorded: its process has ended") == 1


def test_a_recorder_that_hangs_is_waited_for_and_then_given_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "QUEUE_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(feeding, "PATIENCE_S", 1.0)
    bench = Bench(reads_feed=False)
    queued: list[int] = []
    try:
        client, service = bench.pair()
        reader = threading.Thread(target=everything, args=(service,))
        reader.start()
        for _ in range(100):
            client.sendall(b"x" * 100_000)
            queued.append(bench.feed._queued)
        client.close()
        reader.join(DEADLINE_S)
        assert not reader.is_alive()
        service.close()
    finally:
        bench.end()
    assert max(queued) < 2 << 20, "the job waited meanwhile"
    assert "it has taken nothing for 1 s; the relay goes on" in caplog.text


def test_what_a_killed_relay_cut_is_not_told() -> None:
    mine, theirs = socket.socketpair()
    feed = Feed(mine)
    feed.put(feeding.ASKED, 1, 5, b"whole")
    feed.put(feeding.ASKED, 1, 6, b"cut")
    feed._queue[-1] = bytes(feed._queue[-1])[:-1]
    feed.finish(DEADLINE_S)
    assert list(feeding.read(theirs)) == [(feeding.ASKED, 1, 5, b"whole")]
    theirs.close()
