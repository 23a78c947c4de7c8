"""The relay between a process and its service, as bad as it is told to be: real sockets, no JAX."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from coord_sim.faults import Degrade, Fault, Partition, Refuse, Reset
from coord_sim.moments import SERVICE
from jax_bridge.network import Network

PATIENCE_S = 60.0
QUIET_S = 0.3
"""So long nothing must come where nothing may."""


class Echo:
    """A service that sends back what it gets, and knows what it got."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.got = b""
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # Wakes who accepts: until then it would go on.
            self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, *self._connections):
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        try:
            while data := connection.recv(65536):
                self.got += data
                connection.sendall(data)
        except OSError:
            return


@dataclass
class Bench:
    """An echo service, and the relays of two processes before it."""

    echo: Echo
    network: Network
    open: list[socket.socket]

    def connect(self, process: int) -> socket.socket:
        host, _, port = self.network.addresses[process].rpartition(":")
        connection = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self.open.append(connection)
        return connection

    def end_of(self, fault: Fault) -> Callable[[], None]:
        end = self.network.begin(fault)
        assert end is not None
        return end


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Ends with the relay having complained of nothing; what it says when it is ended does not count."""
    echo = Echo()
    with (tmp_path / "relay.log").open("wb") as errors:
        network = Network([echo.address, echo.address], errors=errors.fileno())
    opened: list[socket.socket] = []
    yield Bench(echo, network, opened)
    complaints = (tmp_path / "relay.log").read_text()
    for each in opened:
        each.close()
    network.stop()
    echo.close()
    assert complaints == ""


def there_and_back(connection: socket.socket, data: bytes) -> float:
    """How long an echo takes, in seconds."""
    began_s = time.monotonic()
    connection.sendall(data)
    got = b""
    while len(got) < len(data):
        chunk = connection.recv(65536)
        assert chunk, "the connection ended"
        got += chunk
    assert got == data
    return time.monotonic() - began_s


def is_quicker(connection: socket.socket, than_s: float) -> bool:
    """Whether an echo can be so quick; a busy machine may keep some of them waiting."""
    return any(there_and_back(connection, b"quick") < than_s for _ in range(20))


def is_quiet(connection: socket.socket) -> bool:
    connection.settimeout(QUIET_S)
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(PATIENCE_S)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_bytes_pass_unchanged_both_ways(bench: Bench) -> None:
    connection = bench.connect(0)
    there_and_back(connection, bytes(range(256)) * 4000)
    assert bench.echo.got == bytes(range(256)) * 4000


def test_a_delay_counts_in_both_directions(bench: Bench) -> None:
    connection = bench.connect(0)
    end = bench.end_of(Degrade(0, 0.0, 1.0, delay_s=0.2))
    assert there_and_back(connection, b"slow") >= 0.4
    assert is_quicker(bench.connect(1), 0.4)
    end()
    assert is_quicker(connection, 0.4)


def test_bad_networks_that_overlap_add_up(bench: Bench) -> None:
    connection = bench.connect(0)
    first = bench.end_of(Degrade(0, 0.0, 1.0, delay_s=0.2, bytes_per_s=100_000))
    second = bench.end_of(Degrade(0, 0.0, 1.0, delay_s=0.1, bytes_per_s=10_000_000))
    third = bench.end_of(Degrade(None, 0.0, 1.0, jitter_s=0.01))
    assert there_and_back(connection, b"slow") >= 0.6
    assert there_and_back(connection, b"x" * 150_000) > 0.6 + 0.7
    first()
    assert there_and_back(connection, b"less slow") >= 0.2
    assert is_quicker(connection, 0.6)
    second()
    third()
    assert is_quicker(connection, 0.2)


def test_lost_packets_show_as_delay_and_nothing_is_lost(bench: Bench) -> None:
    connection = bench.connect(0)
    bench.end_of(Degrade(None, 0.0, 1.0, loss=0.1))  # What is lost seven times comes after 25 s.
    assert any(there_and_back(connection, b"again") > 0.2 for _ in range(200))


def test_what_passes_in_a_second_is_limited(bench: Bench) -> None:
    connection = bench.connect(0)
    bench.end_of(Degrade(0, 0.0, 1.0, bytes_per_s=100_000))
    assert there_and_back(connection, b"x" * 150_000) > 0.7


def test_a_partition_holds_what_is_sent_until_it_is_over(bench: Bench) -> None:
    connection = bench.connect(0)
    there_and_back(connection, b"made")
    end = bench.end_of(Partition((0,), 0.0, 1.0, (SERVICE,)))
    connection.sendall(b"held")
    assert is_quiet(connection)
    assert b"held" not in bench.echo.got
    there_and_back(bench.connect(1), b"the other process")
    end()
    assert connection.recv(100) == b"held"


def test_one_way_partitions_hold_one_direction(bench: Bench) -> None:
    connection = bench.connect(0)
    there_and_back(connection, b"made")
    end = bench.end_of(Partition((SERVICE,), 0.0, 1.0, (0,), one_way=True))
    connection.sendall(b"deaf")
    wait_until(lambda: b"deaf" in bench.echo.got)
    assert is_quiet(connection)
    end()
    assert connection.recv(100) == b"deaf"


def test_a_partition_that_overlaps_another_ends_with_the_later_one(bench: Bench) -> None:
    connection = bench.connect(0)
    there_and_back(connection, b"made")
    first = bench.end_of(Partition((0,), 0.0, 1.0))
    second = bench.end_of(Partition((SERVICE,), 0.0, 1.0, (0,)))
    connection.sendall(b"held")
    first()
    assert is_quiet(connection)
    second()
    assert connection.recv(100) == b"held"


def test_a_reset_breaks_connections_and_a_new_one_can_be_made_at_once(bench: Bench) -> None:
    connection = bench.connect(0)
    there_and_back(connection, b"made")
    assert bench.network.begin(Reset(0, 0.0)) is None
    with pytest.raises(ConnectionResetError):
        connection.recv(1)
    there_and_back(bench.connect(0), b"again")


def test_refusing_hits_new_connections_alone(bench: Bench) -> None:
    connection = bench.connect(0)
    there_and_back(connection, b"made")
    end = bench.end_of(Refuse(0, 0.0, 1.0))
    with pytest.raises(ConnectionRefusedError):
        bench.connect(0)
    there_and_back(connection, b"goes on")
    end()
    there_and_back(bench.connect(0), b"again")


def test_a_service_that_is_gone_resets_who_connects(bench: Bench) -> None:
    bench.echo.close()
    with pytest.raises(ConnectionError):  # It may come before or after the connection is made.
        there_and_back(bench.connect(0), b"anybody there?")


def test_the_relay_ends_with_its_standard_input() -> None:
    echo = Echo()
    relay = subprocess.Popen(
        [sys.executable, "-m", "jax_bridge.relay"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with relay:
        assert relay.stdin is not None
        assert relay.stdout is not None
        assert relay.stderr is not None
        relay.stdin.write(f'["{echo.address}"]\n')
        relay.stdin.flush()
        assert relay.stdout.readline().startswith("[")
        relay.stdin.close()
        assert relay.stderr.read() == ""
        assert relay.wait(timeout=PATIENCE_S) == 0
    echo.close()
