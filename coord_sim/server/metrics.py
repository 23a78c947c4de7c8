"""What a server looks like, for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from wsgiref.simple_server import WSGIServer

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from coord_sim.core.identifiers import NS_PER_S
from coord_sim.core.messages import TaskState
from coord_sim.core.status import Code
from coord_sim.core.survey import Survey
from coord_sim.server.grpc_server import CoordinationServer

NAMED_MAX = 100
"""Open barriers and rounds that are named one by one; of the others only the number is told."""
_TIMEOUT_S = 5.0


class MetricsEndpoint:
    """Serves the metrics over HTTP, from a thread of its own.

    Args:
      server: Whose metrics; it runs on the loop that creates this.
      host: Address to bind.
      port: 0 picks a free one.

    Raises:
      OSError: the address cannot be bound.
    """

    def __init__(self, server: CoordinationServer, host: str, port: int) -> None:
        registry = CollectorRegistry()
        registry.register(_ServerCollector(server, asyncio.get_running_loop()))
        http: WSGIServer
        http, self._thread = prometheus_client.start_http_server(port, host, registry)
        self._http = http
        self.port = int(http.server_address[1])

    def close(self) -> None:
        """Ends the endpoint."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _ServerCollector(Collector):
    """Asks the server, on its own thread, each time somebody scrapes."""

    def __init__(self, server: CoordinationServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        survey, answers, connections = asyncio.run_coroutine_threadsafe(
            self._look(), self._loop
        ).result(_TIMEOUT_S)
        yield from _metrics(survey, answers, connections)

    def describe(self) -> Iterator[Metric]:
        """Nothing in advance: the loop that would be asked is waiting for this."""
        return iter(())

    async def _look(self) -> tuple[Survey, dict[tuple[str, Code], int], int]:
        return self._server.survey(), dict(self._server.answers), self._server.connections


def _metrics(
    survey: Survey, answers: dict[tuple[str, Code], int], connections: int
) -> Iterator[Metric]:
    tasks = GaugeMetricFamily("coordlab_tasks", "Tasks by state.", labels=["state"])
    for state in TaskState:
        count = sum(task.state is state for task in survey.tasks)
        tasks.add_metric([state.name.lower()], count)
    yield tasks
    gaps = GaugeMetricFamily(
        "coordlab_heartbeat_gap_seconds",
        "Time since the last heartbeat of each connected task.",
        labels=["task"],
    )
    for task in survey.tasks:
        if task.silent_ns is not None:
            gaps.add_metric([str(task.task)], task.silent_ns / NS_PER_S)
    yield gaps
    yield GaugeMetricFamily("coordlab_connections", "Open connections.", connections)
    yield GaugeMetricFamily("coordlab_barriers_open", "Open barriers.", len(survey.barriers))
    waiting = GaugeMetricFamily(
        "coordlab_barrier_waits_for",
        "1 for each task that an open barrier waits for.",
        labels=["barrier", "task"],
    )
    for barrier in survey.barriers[:NAMED_MAX]:
        for id_ in barrier.missing:
            waiting.add_metric([f"{barrier.barrier_id}::{barrier.counter}", str(id_)], 1)
    yield waiting
    yield GaugeMetricFamily(
        "coordlab_rounds_open", "Open live_processes rounds.", len(survey.rounds)
    )
    awaited = GaugeMetricFamily(
        "coordlab_round_waits_for",
        "1 for each task that an open live_processes round waits for.",
        labels=["participants", "task"],
    )
    for round_ in survey.rounds[:NAMED_MAX]:
        for id_ in round_.missing:
            awaited.add_metric([",".join(map(str, round_.tasks)), str(id_)], 1)
    yield awaited
    yield CounterMetricFamily(
        "coordlab_rounds_ended", "live_processes rounds that were answered.", survey.rounds_ended
    )
    yield GaugeMetricFamily("coordlab_keys", "Keys of the key-value store.", survey.keys)
    yield GaugeMetricFamily(
        "coordlab_value_bytes", "Size of all keys and values.", survey.value_bytes
    )
    yield GaugeMetricFamily(
        "coordlab_waiting_gets", "Calls that wait for a key.", survey.waiting_gets
    )
    yield GaugeMetricFamily(
        "coordlab_waiting_polls", "Error polls that wait.", survey.waiting_polls
    )
    calls = CounterMetricFamily(
        "coordlab_calls", "Calls answered, by method and code.", labels=["method", "code"]
    )
    for (method, code), count in sorted(answers.items()):
        calls.add_metric([method, code.name], count)
    yield calls
