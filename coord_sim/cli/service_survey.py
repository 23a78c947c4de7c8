"""Asks a running service, ours or jaxlib's, who has registered; it changes nothing there.

A first call with no service incarnation is refused with an error that tells the right one. With it, the
service says the state of every task at once; during registration a task that has asked has an
incarnation, and one that was never seen has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc

from coord_sim.core.identifiers import Incarnation
from coord_sim.core.messages import (
    Answer,
    Caller,
    GetKeyValueDir,
    KeyValueDirectory,
    Request,
    TaskState,
    TasksWatched,
    WatchTasks,
)
from coord_sim.core.status import Status
from coord_sim.wire.client_methods import client_method, read_status
from coord_sim.wire.server_methods import SERVICE, STATUS_PAYLOADS_KEY

_TOPOLOGY_DIRECTORIES = ("cpu:local_topology", "cuda:local_topology", "gpu:local_topology")
"""Where the processes put what devices they have; each back end has one of its own."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What a service says about its tasks.

    Attributes:
      connected: Registered.
      waiting: Have asked to register, and wait for the others.
      failed: Declared dead, or otherwise in error.
      absent: Never seen, or gone.
      published: Have published their devices, which all others wait for.
    """

    connected: tuple[int, ...]
    waiting: tuple[int, ...]
    failed: tuple[int, ...]
    absent: tuple[int, ...]
    published: tuple[int, ...]

    @property
    def total(self) -> int:
        """How many tasks the job has."""
        return len(self.connected) + len(self.waiting) + len(self.failed) + len(self.absent)


def survey_service(target: str, timeout_s: float) -> Survey | str:
    """Asks the service at `HOST:PORT`.

    Args:
      target: As gRPC takes it.
      timeout_s: For each call.

    Returns:
      What it says, or why it says nothing.
    """
    # The check is about the service, not about a proxy on the way to it.
    with grpc.insecure_channel(target, options=(("grpc.enable_http_proxy", 0),)) as channel:
        nobody = Caller(task_incarnation=Incarnation(0), service_incarnation=Incarnation(0))
        refused = _call(channel, WatchTasks(caller=nobody, version=-1), timeout_s)
        if not isinstance(refused, Status) or refused.wrong_service is None:
            return f"it is no coordination service that we know: {refused}"
        caller = Caller(
            task_incarnation=Incarnation(0),
            service_incarnation=refused.wrong_service.service_incarnation,
        )
        watched = _call(channel, WatchTasks(caller=caller, version=-1), timeout_s)
        if not isinstance(watched, TasksWatched):
            return f"it does not tell its tasks: {watched}"
        published: set[int] = set()
        for directory in _TOPOLOGY_DIRECTORIES:
            found = _call(channel, GetKeyValueDir(caller=caller, directory=directory), timeout_s)
            if isinstance(found, KeyValueDirectory):
                lasts = (key.rpartition("/")[2] for key, _ in found.entries)
                published.update(int(last) for last in lasts if last.isdigit())
    return _survey(watched, tuple(sorted(published)))


def _survey(watched: TasksWatched, published: tuple[int, ...]) -> Survey:
    groups: dict[str, list[int]] = {"connected": [], "waiting": [], "failed": [], "absent": []}
    for info in watched.tasks:
        if info.state is TaskState.CONNECTED:
            group = "connected"
        elif info.state is TaskState.ERROR:
            group = "failed"
        else:
            group = "waiting" if info.incarnation else "absent"
        groups[group].append(info.task)
    return Survey(
        tuple(groups["connected"]),
        tuple(groups["waiting"]),
        tuple(groups["failed"]),
        tuple(groups["absent"]),
        published,
    )


def _call(channel: grpc.Channel, request: Request, timeout_s: float) -> Answer | Status:
    method = client_method(request)
    stub: Any = channel.unary_unary(
        f"/{SERVICE}/{method.name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=method.response_type.FromString,
    )
    try:
        return method.to_core(stub(method.to_wire(request), timeout=timeout_s))
    except grpc.RpcError as error:
        trailers: Any = error.trailing_metadata() or ()
        payloads = next((value for key, value in trailers if key == STATUS_PAYLOADS_KEY), b"")
        return read_status(
            error.code().value[0],
            error.details() or "",
            payloads if isinstance(payloads, bytes) else payloads.encode(),
        )
