"""What a server lets one see: metrics, health, reflection, logs, the live table."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from checker import read
from coord_sim.client import DistributedRuntimeClient
from coord_sim.core.messages import TaskState
from coord_sim.core.status import Code, Status
from coord_sim.core.survey import OpenBarrier, OpenRound, Survey, TaskSurvey
from coord_sim.wire import server_methods as wire

SERVE = [sys.executable, "-m", "coord_sim.cli.main", "serve"]


@contextlib.contextmanager
def serve(
    *options: str, stderr: int = subprocess.PIPE, **more: Any
) -> Iterator[subprocess.Popen[str]]:
    """A server, which does not outlive a test that fails."""
    command = [*SERVE, *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=stderr, text=True, **more
    ) as server:
        try:
            yield server
        finally:
            server.kill()


def announced(server: subprocess.Popen[str]) -> dict[str, str]:
    """The fields of the first line."""
    assert server.stdout is not None
    return dict(field.split("=", 1) for field in server.stdout.readline().split()[1:])


def values(port: str, host: str = "127.0.0.1") -> dict[str, float]:
    """The metrics by name with labels."""
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def eventually(port: str, name: str, value: float) -> dict[str, float]:
    """The metrics once one of them has a value."""
    deadline_s = time.monotonic() + 30
    while (found := values(port)).get(name) != value:
        assert time.monotonic() < deadline_s, f"{name} is {found.get(name)}, not {value}"
        time.sleep(0.02)
    return found


def test_metrics_tell_who_is_missing_where() -> None:
    with serve("--processes", "2", "--recoverable", "--metrics", "0") as server:
        said = announced(server)
        a, b = (DistributedRuntimeClient(said["address"], task) for task in (0, 1))
        port = said["metrics"]
        at_start = values(port)
        assert at_start['coordlab_tasks{state="disconnected"}'] == 2
        with a, b:
            registering = asyncio.run_coroutine_threadsafe(a._client.connect(), a._loop)
            waits = 'coordlab_barrier_waits_for{barrier="[Init]Wait_for_all_tasks_to_register::0",'
            eventually(port, waits + 'task="1"}', 1)
            b.connect()
            registering.result(30)
            a.key_value_set_bytes("key", b"12345")
            with pytest.raises(Exception, match="NOT_FOUND"):
                a.key_value_try_get("none")
            calls: list[concurrent.futures.Future[Any]] = [
                asyncio.run_coroutine_threadsafe(a._client.wait_at_barrier("b", 60_000), a._loop),
                asyncio.run_coroutine_threadsafe(a._client.get_live_nodes([0, 1]), a._loop),
            ]
            eventually(port, 'coordlab_barrier_waits_for{barrier="b::0",task="1"}', 1)
            found = eventually(port, 'coordlab_round_waits_for{participants="0,1",task="1"}', 1)
            assert found['coordlab_tasks{state="connected"}'] == 2
            assert 0 <= found['coordlab_heartbeat_gap_seconds{task="0"}'] < 30
            assert (found["coordlab_keys"], found["coordlab_value_bytes"]) == (1, 8)
            assert (found["coordlab_barriers_open"], found["coordlab_rounds_open"]) == (1, 1)
            assert found['coordlab_calls_total{code="NOT_FOUND",method="TryGetKeyValue"}'] == 1
            assert found["coordlab_connections"] >= 1  # gRPC may share one.
            b.wait_at_barrier("b", 60_000)
            b.get_live_nodes([0, 1])
            for call in calls:
                call.result(30)
            assert values(port)["coordlab_rounds_ended_total"] == 1
        server.terminate()
        assert server.wait(timeout=30) == 0


def test_a_metrics_port_in_use_is_told_and_nothing_that_was_recorded_is_lost(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "kept.jsonl"
    kept.write_text("what was recorded before")
    with serve("--processes", "1", "--metrics", "0") as server:
        port = announced(server)["metrics"]
        with serve("--processes", "1", "--metrics", port, "--record", str(kept)) as other:
            _, problem = other.communicate(timeout=60)
        assert other.returncode == 2
        assert "in use" in problem
        assert kept.read_text() == "what was recorded before"
        server.terminate()


def test_health_and_reflection_are_what_grpc_tools_expect() -> None:
    async def ask(address: str) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for service in ("", wire.SERVICE):
                request = health_pb2.HealthCheckRequest(service=service)
                assert (await health.Check(request, timeout=30)).status == 1
            unknown = health_pb2.HealthCheckRequest(service="none")
            with pytest.raises(grpc.aio.AioRpcError) as missing:
                await health.Check(unknown, timeout=30)
            assert missing.value.code() is grpc.StatusCode.NOT_FOUND
            watched = health.Watch(unknown, timeout=30)
            assert (await watched.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
            watched.cancel()
            reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
            requests = [
                reflection_pb2.ServerReflectionRequest(list_services=""),
                reflection_pb2.ServerReflectionRequest(file_containing_symbol=wire.SERVICE),
                reflection_pb2.ServerReflectionRequest(file_by_filename="none.proto"),
            ]
            answers = [
                each async for each in reflection.ServerReflectionInfo(iter(requests), timeout=30)
            ]
            names = {service.name for service in answers[0].list_services_response.service}
            assert names >= {wire.SERVICE, "grpc.health.v1.Health"}
            (file,) = answers[1].file_descriptor_response.file_descriptor_proto
            assert b"RegisterTaskRequest" in file
            assert answers[2].error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]

    with serve("--processes", "1") as server:
        asyncio.run(ask(announced(server)["address"]))
        server.terminate()
        assert server.wait(timeout=30) == 0


def test_logs_can_be_read_by_programs_and_name_task_incarnation_and_round(tmp_path: Path) -> None:
    record = tmp_path / "server.jsonl"
    options = ("--processes", "1", "--recoverable", "--verbose", "--log-format", "json")
    with serve(*options, "--record", str(record)) as server:
        with DistributedRuntimeClient(announced(server)["address"], 0) as client:
            client.connect()
            client.get_live_nodes([0])
            client.wait_at_barrier("b", 1000)
            incarnation = client.incarnation
        server.terminate()
        _, log = server.communicate(timeout=30)
    lines = [json.loads(line) for line in log.splitlines()]
    states = [line for line in lines if line.get("event") == "state"]
    assert [(line["task"], line["incarnation"], line["state"]) for line in states] == [
        (0, incarnation, "CONNECTED"),
        (0, incarnation, "DISCONNECTED"),
    ]
    (round_,) = [line for line in lines if line.get("event") == "round"]
    assert (round_["round"], round_["live"]) == (1, {"0": incarnation})
    assert {"barrier": "b", "counter": 0}.items() <= lines[-2].items()
    operations = [getattr(event, "operation", None) for event in read(record).events]
    called = [name for name in operations if name not in (None, "heartbeat", "poll_for_error")]
    assert called == ["register", "live_processes", "barrier", "shutdown"]


def wait_for_screen(master: int, *texts: str) -> None:
    """Waits until a terminal was sent all these texts; a picture may come in pieces."""
    shown = ""
    deadline_s = time.monotonic() + 60
    while any(text not in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown) for text in texts):
        assert time.monotonic() < deadline_s, f"never showed {texts!r}: {shown[-2000:]!r}"
        if select.select([master], [], [], 0.1)[0]:
            shown += os.read(master, 65536).decode("utf-8", "replace")


def test_the_live_table_shows_tasks_and_who_is_waited_for() -> None:
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
    options = ("--processes", "2", "--recoverable", "--watch")
    with serve(*options, stderr=slave, env=environment) as server:
        os.close(slave)
        address = announced(server)["address"]
        wait_for_screen(master, "disconnected")
        with DistributedRuntimeClient(address, 0) as a, DistributedRuntimeClient(address, 1) as b:
            connecting = asyncio.run_coroutine_threadsafe(a._client.connect(), a._loop)
            wait_for_screen(master, "waits for tasks 1")
            b.connect()
            connecting.result(30)
            round_ = asyncio.run_coroutine_threadsafe(b._client.get_live_nodes([0, 1]), b._loop)
            awaited = "live_processes tasks 0, 1 waits for tasks 0"
            wait_for_screen(master, awaited, str(a.incarnation))
            a.get_live_nodes([0, 1])
            round_.result(30)
            wait_for_screen(master, "1 rounds")
        server.terminate()
        while select.select([master], [], [], 0.5)[0]:  # It must not block on its last picture.
            try:
                os.read(master, 65536)
            except OSError:
                break
        assert server.wait(timeout=30) == 0
    os.close(master)


def test_the_table_of_a_large_job_in_trouble_stays_readable() -> None:
    pytest.importorskip("rich")
    from rich.console import Console

    from coord_sim.cli.watch import picture

    many = tuple(range(40))
    error = Status(code=Code.UNAVAILABLE, message="Task 3 heartbeat timeout\nand more")
    survey = Survey(
        tasks=tuple(
            TaskSurvey(
                task=task,  # type: ignore[arg-type]
                state=TaskState.ERROR if task == 3 else TaskState.CONNECTED,
                incarnation=100 + task,  # type: ignore[arg-type]
                silent_ns=None if task == 3 else 1_500_000_000,
                error=error if task == 3 else None,
            )
            for task in many
        ),
        barriers=tuple(
            OpenBarrier(
                barrier_id=f"[red]{number}",
                counter=0,
                arrived=(),
                missing=many,  # type: ignore[arg-type]
                remaining_ns=-1,
            )
            for number in range(20)
        ),
        rounds=(OpenRound(tasks=many, entered=(), missing=many),),  # type: ignore[arg-type]
        rounds_ended=7,
        version=80,
        keys=1,
        value_bytes=2,
        waiting_gets=0,
        waiting_polls=0,
    )
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(picture(survey, {("Barrier", Code.INTERNAL): 2}, "title"))
    text = console.export_text()
    assert "UNAVAILABLE: Task 3 heartbeat timeout" in text
    assert "1.5 s ago" in text
    assert "barrier [red]0::0 waits for tasks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …" in text
    assert "and 8 more barriers and rounds" in text
    assert "errors: INTERNAL 2" in text
