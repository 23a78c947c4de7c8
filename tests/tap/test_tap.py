"""The command: our service behind it, clients in front of it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checker import Valid, check, read
from checker.history import Fail, History, Info, Invoke, Ok
from checker.service.check import check_service
from coord_sim.client import DistributedRuntimeClient
from coord_sim.errors import ServiceError
from tests.bridge.remains import is_open
from tests.ports import reserved_port
from tests.tap.tapping import Tap

DEADLINE_S = 60.0


def test_a_history_of_an_earlier_run_is_named(tmp_path: Path) -> None:
    """It would be taken for that of a service that was started again."""
    (tmp_path / "run-2.jsonl").touch()
    with Tap(tmp_path / "run.jsonl", "127.0.0.1:9") as tap:
        assert tap.end() == 0
    assert f"{tmp_path}/run-2.jsonl is of an earlier run" in tap.errors


@contextlib.contextmanager
def serve(*options: str, host: str = "127.0.0.1") -> Iterator[str]:
    """Our service; yields its address."""
    command = [sys.executable, "-m", "coord_sim.cli.main", "serve", "--recoverable"]
    command += ["--host", host, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            words = process.stdout.readline().split()
            yield next(word for word in words if word.startswith("address="))[8:]
        finally:
            process.terminate()


def until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def job(
    address: str, processes: int, body: Callable[[DistributedRuntimeClient, int], None]
) -> None:
    """Runs a body in each process (here: thread) of a job."""
    problems: list[BaseException] = []

    def work(task: int) -> None:
        try:
            with DistributedRuntimeClient(address, task) as client:
                client.connect()
                body(client, task)
        except BaseException as error:  # noqa: BLE001 - told below
            problems.append(error)

    threads = [threading.Thread(target=work, args=(task,)) for task in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert not problems


def everything(client: DistributedRuntimeClient, task: int) -> None:
    """Every operation, with errors."""
    client.get_live_nodes([0, 1, 2])
    client.key_value_set(f"k/{task}", "é" * 3000)
    with pytest.raises(ServiceError):
        client.key_value_set(f"k/{task}", "again")
    client.key_value_set_bytes("bytes", bytes(range(256)), True)
    client.key_value_increment("n", 5)
    client.wait_at_barrier("b", 60_000)
    client.key_value_dir_get("k/")
    client.blocking_key_value_get("n", 60_000)
    with pytest.raises(ServiceError):
        client.blocking_key_value_get("never", 200)
    with pytest.raises(ServiceError):
        client.key_value_try_get("none")
    client.watch_tasks()
    client.wait_at_barrier("c", 60_000)
    client.key_value_delete("k/")


def told(history: History) -> dict[tuple[int, int], list[object]]:
    """What each lifetime asked and was told, in its own order."""
    calls: dict[int, list[object]] = {}
    lifetimes: dict[tuple[int, int], list[object]] = {}
    for event in history.events:
        if isinstance(event, Invoke):
            calls[event.id] = [event.operation, dict(event.arguments), "open"]
            lifetimes.setdefault((event.process, event.lifetime), []).append(calls[event.id])
        elif isinstance(event, Ok):
            calls[event.id][2:] = ["ok", event.result]
        elif isinstance(event, Fail | Info):
            calls[event.id][2:] = [event.code, event.message]
    return lifetimes


def test_the_tap_sees_what_the_server_sees(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "tap.jsonl", tmp_path / "server.jsonl"
    with (
        serve("--processes", "3", "--record", str(theirs)) as service,
        Tap(ours, service, "--processes", "3") as tap,
    ):
        assert tap.first_line == f"ready address={tap.address} upstream={service}\n"
        job(tap.address, 3, everything)
        assert tap.end() == 0
        assert tap.errors == ""
    mine, server = read(ours), read(theirs)
    assert told(mine) == told(server)
    assert sum(map(len, told(mine).values())) > 40
    assert isinstance(check(mine), Valid)
    assert not mine.faults


def test_killed_it_has_written_what_it_passed_on(tmp_path: Path) -> None:
    record = tmp_path / "run.jsonl"
    answered = 0
    enough = threading.Event()
    with serve("--processes", "1") as service, Tap(record, service) as tap:

        def kill() -> None:
            enough.wait(DEADLINE_S)
            tap.process.kill()

        client = DistributedRuntimeClient(tap.address, 0)
        client.connect()
        killer = threading.Thread(target=kill)
        killer.start()
        with contextlib.suppress(ServiceError):
            while True:
                client.key_value_increment("n", 1)
                answered += 1
                if answered == 100:
                    enough.set()
        killer.join()
        assert tap.process.wait(DEADLINE_S) == -signal.SIGKILL
        until(lambda: not is_open(record))
        client.close()
    history = read(record)
    results = [event.result for event in history.events if isinstance(event, Ok)]
    counted = max(result for result in results if isinstance(result, int))
    assert answered >= 100
    assert answered - counted <= 1, "at most the last line is lost"
    assert not history.notes


def test_a_disk_that_is_full_ends_the_recording_and_not_the_job() -> None:
    with (
        serve("--processes", "1") as service,
        Tap("/dev/full", service, "--processes", "1") as tap,
    ):
        job(tap.address, 1, lambda client, _: client.key_value_set("k", "v"))
        assert tap.end(signal.SIGINT) == 0
    assert "recording to /dev/full stopped: [Errno 28] No space left on device" in tap.errors


def test_the_recorder_lets_the_job_and_the_relay_go_first(tmp_path: Path) -> None:
    with Tap(tmp_path / "run.jsonl", "127.0.0.1:9") as tap:
        until(lambda: os.getpriority(os.PRIO_PROCESS, tap.recorder()) > os.getpriority(0, 0))
        assert tap.end() == 0


def test_a_recorder_that_is_killed_ends_the_recording_and_not_the_job(tmp_path: Path) -> None:
    record = tmp_path / "run.jsonl"
    with serve("--processes", "1") as service, Tap(record, service) as tap:
        with DistributedRuntimeClient(tap.address, 0) as client:
            client.connect()
            client.key_value_set("k", "v")
            until(lambda: b"key_value_set" in record.read_bytes())
            recorder = tap.recorder()
            os.kill(recorder, signal.SIGKILL)
            until(lambda: ") Z " in Path(f"/proc/{recorder}/stat").read_text())
            for _ in range(5):
                client.key_value_try_get("k")
        assert tap.end() == 0
    assert "nothing more is recorded: its process has ended; the relay goes on" in tap.errors
    assert "the recorder was ended by SIGKILL: what it had not written is lost" in tap.errors
    assert read(record).events


def test_a_service_that_is_started_again_goes_on_in_a_second_file(tmp_path: Path) -> None:
    record = tmp_path / "run.jsonl"

    def meet(client: DistributedRuntimeClient, task: int) -> None:
        client.get_live_nodes([0, 1])
        client.key_value_set(f"k/{task}", "v")

    with reserved_port() as port, Tap(record, f"127.0.0.1:{port}") as tap:
        for _ in range(2):
            with serve("--processes", "2", "--port", str(port)):
                job(tap.address, 2, meet)
            with (
                pytest.raises(ConnectionResetError),
                socket.create_connection(("127.0.0.1", tap.port), DEADLINE_S) as probe,
            ):
                probe.recv(1)
        assert tap.end() == 0
    first, second = read(record), read(tmp_path / "run-2.jsonl")
    assert told(first).keys() == told(second).keys() == {(0, 0), (1, 0)}
    for history in (first, second):
        assert history.header.participants == (0, 1)
        assert isinstance(check(history), Valid)
        assert {row.word for row in check_service(history)} == {"valid", "not checked"}
    services = {each.header.details["service_incarnation"] for each in (first, second)}
    assert len(services) == 2


def test_ipv6_both_ways(tmp_path: Path) -> None:
    with (
        serve("--processes", "1", host="::1") as service,
        Tap(tmp_path / "run.jsonl", service, listen="[::1]:0") as tap,
    ):
        assert (tap.address[:6], tap.upstream) == ("[::1]:", service)
        job(tap.address, 1, lambda client, _: client.key_value_set("k", "v"))
        assert tap.end() == 0
    assert len(read(tmp_path / "run.jsonl").events) > 4


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--listen", "{taken}", "--upstream", "h:1", "--record", "{kept}"), "upstream h:1: "),
        (
            ("--listen", "{taken}", "--upstream", "127.0.0.1:1", "--record", "{kept}"),
            "the port is in use",
        ),
        (("--listen", "0", "--upstream", "127.0.0.1:0", "--record", "{kept}"), "service's port"),
        (("--listen", "{free}", "--upstream", "{free}", "--record", "{kept}"), "of its own"),
        (
            ("--listen", "0.0.0.0:{free}", "--upstream", "localhost:{free}", "--record", "{kept}"),
            "of its own",
        ),
        (("--listen", "0", "--upstream", "127.0.0.1:1", "--record", "no/such"), "no/such: No such"),
        (("--listen", "0", "--upstream", "127.0.0.1:1", "--record", "/dev/null"), "--processes N"),
        (
            ("--listen", "x", "--upstream", "127.0.0.1:1", "--record", "{kept}"),
            "a port is a number",
        ),
    ],
)
def test_bad_input_is_told_and_leaves_an_old_recording_alone(
    tmp_path: Path, options: tuple[str, ...], text: str
) -> None:
    kept = tmp_path / "kept.jsonl"
    kept.write_text("what was recorded before")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            free = str(probe.getsockname()[1])
        words = {"taken": str(taken.getsockname()[1]), "kept": str(kept), "free": free}
        filled = [option.format(**words) for option in options]
        command = [sys.executable, "-m", "coord_sim.cli.main", "tap", *filled]
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
    assert ended.returncode == 2
    assert text in ended.stderr
    assert "Traceback" not in ended.stderr
    assert kept.read_text() == "what was recorded before"
