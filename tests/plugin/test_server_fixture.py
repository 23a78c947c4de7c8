"""The fixture `coordination_server`, used here as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from checker.history import Invoke
from checker.history.events import PROTOCOL_OPERATIONS
from coord_sim.client.blocking import DistributedRuntimeClient
from coord_sim.core.status import Code
from coord_sim.errors import ServiceError
from coord_sim.testing.serving import RunningServer, ServerError, ServerFactory

pytest_plugins = ("pytester",)

DEADLINE_S = 60.0


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def connected(stack: ExitStack, server: RunningServer) -> list[DistributedRuntimeClient]:
    """A client for each process of the job; registering waits for all."""
    clients = [
        DistributedRuntimeClient(server.address, node, on_fatal=lambda _: None)
        for node in range(server.processes)
    ]
    for client in clients:
        stack.callback(client.close)
    with ThreadPoolExecutor(len(clients)) as pool:
        for registration in [pool.submit(client.connect) for client in clients]:
            registration.result()
    return clients


@pytest.mark.coord(processes=2, semantics="published", faults="any")
def test_a_server_serves_and_tells_what_it_saw(coordination_server: ServerFactory) -> None:
    server = coordination_server()
    with ExitStack() as stack:
        first, second = connected(stack, server)
        first.key_value_set("k", "v")
        assert second.blocking_key_value_get("k", 60_000) == "v"
        server.kill()
        assert not server.is_running
        with pytest.raises(ServiceError) as failed:
            first.key_value_try_get("k")
        assert failed.value.status.code is Code.UNAVAILABLE
    history = server.history()
    assert history.header.details["semantics"] == "published"
    calls = [
        event.operation
        for event in history.events
        if isinstance(event, Invoke) and event.operation not in PROTOCOL_OPERATIONS
    ]
    assert calls == ["key_value_set", "key_value_get"]


def test_a_durable_server_goes_on_and_another_one_begins_anew(
    coordination_server: ServerFactory,
) -> None:
    servers = [
        coordination_server(processes=1, durable=durable, heartbeat_timeout_s=20)
        for durable in (True, False)
    ]
    assert servers[0].address != servers[1].address
    for server, is_kept in zip(servers, (True, False), strict=True):
        incarnation = server.incarnation
        with ExitStack() as stack:
            (client,) = connected(stack, server)
            client.key_value_set("k", "v")
            with pytest.raises(ServerError, match="the server runs"):
                server.restart()
            server.kill()
        address = server.address
        server.restart()
        assert server.address == address
        assert (server.incarnation == incarnation) == is_kept
        with ExitStack() as stack:
            (client,) = connected(stack, server)
            if is_kept:
                assert client.key_value_try_get("k") == "v"
            else:
                with pytest.raises(ServiceError):
                    client.key_value_try_get("k")


def test_a_server_that_stands_still_answers_when_it_goes_on(
    coordination_server: ServerFactory,
) -> None:
    server = coordination_server(processes=1)
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        (client,) = connected(stack, server)
        server.pause()
        written = pool.submit(client.key_value_set, "k", "v")
        with pytest.raises(TimeoutError):
            written.result(0.2)
        server.resume()
        written.result(DEADLINE_S)
        server.pause()
        server.stop()  # Also when it stands still.
        assert not server.is_running


def test_wrong_settings_are_told(coordination_server: ServerFactory) -> None:
    with pytest.raises(TypeError, match="no setting 'process'; did you mean 'processes'"):
        coordination_server(process=1)
    with pytest.raises(ServerError, match="heartbeat-timeout"):
        coordination_server(heartbeat_timeout_s=-1)


INNER = """
import os, sys, time
from pathlib import Path

def test_one(coordination_server):
    server = coordination_server(processes=1)
    Path(os.environ["FOLDER"], "one").write_text(f"{server.address} {server._process.pid}")
    assert False

def test_two(coordination_server):
    server = coordination_server(processes=1)
    Path(os.environ["FOLDER"], "two").write_text(f"{server.address} {server._process.pid}")
    if os.environ.get("HANGS"):
        time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_workers_have_servers_of_their_own_which_end_with_the_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDER", str(pytester.path))
    pytester.makepyfile(test_inner=INNER)
    result = pytester.runpytest_subprocess("-n", "2")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["server 127.0.0.1:* runs: server0/history1.jsonl"])
    (history,) = pytester.path.glob(".pytest_cache/d/coordlab/*/server0/history1.jsonl")
    assert history.read_text(encoding="utf-8").startswith('{"coordlab_history"')
    told = [(pytester.path / name).read_text(encoding="utf-8").split() for name in ("one", "two")]
    assert told[0][0] != told[1][0]
    assert not any(is_alive(int(pid)) for _, pid in told)


def test_no_server_outlives_a_test_run_that_was_killed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDER", str(pytester.path))
    monkeypatch.setenv("HANGS", "1")
    path = pytester.makepyfile(test_inner=INNER)
    command = [sys.executable, "-m", "pytest", f"{path}::test_two"]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        told = pytester.path / "two"
        until(lambda: told.exists() and len(told.read_text(encoding="utf-8").split()) == 2)
        pid = int(told.read_text(encoding="utf-8").split()[1])
        assert is_alive(pid)
    finally:
        run.kill()
        run.wait()
    until(lambda: not is_alive(pid))
