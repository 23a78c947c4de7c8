"""The RPCs as a client sees them: requests of the core are written, answers are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import google.protobuf.message

from coord_sim.core.identifiers import Incarnation, TaskId
from coord_sim.core.messages import (
    AliveTasks,
    Answer,
    Barrier,
    BarrierPassed,
    Caller,
    CancelBarrier,
    DeleteKeyValue,
    Done,
    GetAliveTasks,
    GetKeyValue,
    GetKeyValueDir,
    Heartbeat,
    HeartbeatAccepted,
    IncrementKeyValue,
    InsertKeyValue,
    KeyValue,
    KeyValueDirectory,
    PollForError,
    Registered,
    RegisterTask,
    ReportErrorToService,
    Request,
    ShutdownTask,
    TaskInfo,
    TaskState,
    TasksWatched,
    TryGetKeyValue,
    WatchTasks,
)
from coord_sim.core.status import BarrierError, Code, ServiceError, Status, WrongService
from coord_sim.wire._generated import coordination_service_pb2 as pb
from coord_sim.wire.server_methods import BARRIER_ERROR_KEY, SERVICE_ERROR_KEY, WRONG_SERVICE_KEY


@dataclass(frozen=True, slots=True)
class ClientMethod:
    """One RPC: how its request is written and its answer read."""

    name: str
    to_wire: Callable[[Any], Any]
    response_type: Any
    to_core: Callable[[Any], Answer]


def _who(caller: Caller) -> pb.Incarnations:
    return pb.Incarnations(
        task_incarnation=caller.task_incarnation, service_incarnation=caller.service_incarnation
    )


def _register(request: RegisterTask) -> pb.RegisterTaskRequest:
    return pb.RegisterTaskRequest(incarnation=request.incarnation, source_task_id=request.task)


def _registered(message: pb.RegisterTaskResponse) -> Answer:
    return Registered(service_incarnation=Incarnation(message.service_incarnation))


def _heartbeat(request: Heartbeat) -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(
        incarnations=_who(request.caller),
        incarnation=request.incarnation,
        source_task_id=request.task,
    )


def _beaten(message: pb.HeartbeatResponse) -> Answer:
    return HeartbeatAccepted(service_incarnation=Incarnation(message.service_incarnation))


def _poll(request: PollForError) -> pb.PollForErrorRequest:
    return pb.PollForErrorRequest(incarnations=_who(request.caller), source_task_id=request.task)


def _shutdown(request: ShutdownTask) -> pb.ShutdownTaskRequest:
    return pb.ShutdownTaskRequest(incarnations=_who(request.caller), source_task_id=request.task)


def _watch(request: WatchTasks) -> pb.WatchTasksRequest:
    return pb.WatchTasksRequest(incarnations=_who(request.caller), version_number=request.version)


def _watched(message: pb.WatchTasksResponse) -> Answer:
    tasks = tuple(
        TaskInfo(
            task=TaskId(info.task_id),
            incarnation=Incarnation(info.incarnation),
            state=TaskState(info.state),
            error=Status(
                code=Code.of(info.error_code),
                message=info.error_message,
                service_error=_service_error(info.error_payload),
            )
            if info.error_code
            else None,
        )
        for info in message.task_state
    )
    ascending = tuple(sorted(tasks, key=lambda info: info.task))
    return TasksWatched(tasks=ascending, version=message.version_number)


def _report(request: ReportErrorToService) -> pb.ReportErrorToServiceRequest:
    return pb.ReportErrorToServiceRequest(
        incarnations=_who(request.caller),
        source_task_id=request.task,
        error_code=request.code,
        error_message=request.message,
    )


def _insert(request: InsertKeyValue) -> pb.InsertKeyValueRequest:
    return pb.InsertKeyValueRequest(
        incarnations=_who(request.caller),
        kv=pb.KeyValueEntry(key=request.key, value=request.value),
        allow_overwrite=request.allow_overwrite,
    )


def _get(request: GetKeyValue) -> pb.GetKeyValueRequest:
    return pb.GetKeyValueRequest(incarnations=_who(request.caller), key=request.key)


def _try_get(request: TryGetKeyValue) -> pb.TryGetKeyValueRequest:
    return pb.TryGetKeyValueRequest(incarnations=_who(request.caller), key=request.key)


def _increment(request: IncrementKeyValue) -> pb.IncrementKeyValueRequest:
    return pb.IncrementKeyValueRequest(
        incarnations=_who(request.caller), key=request.key, increment=request.increment
    )


def _read_directory(request: GetKeyValueDir) -> pb.GetKeyValueDirRequest:
    return pb.GetKeyValueDirRequest(
        incarnations=_who(request.caller), directory_key=request.directory
    )


def _delete(request: DeleteKeyValue) -> pb.DeleteKeyValueRequest:
    return pb.DeleteKeyValueRequest(
        incarnations=_who(request.caller), key=request.key, is_directory=True
    )


def _value(message: Any) -> Answer:
    return KeyValue(key=message.kv.key, value=message.kv.value)


def _directory(message: pb.GetKeyValueDirResponse) -> Answer:
    return KeyValueDirectory(entries=tuple((entry.key, entry.value) for entry in message.kv))


def _barrier(request: Barrier) -> pb.BarrierRequest:
    return pb.BarrierRequest(
        incarnations=_who(request.caller),
        barrier_id=request.barrier_id,
        barrier_timeout_in_ms=request.timeout_ms,
        task_ids=request.tasks,
        source_task_id=request.task,
        counter=request.counter,
    )


def _barrier_passed(message: pb.BarrierResponse) -> Answer:
    return BarrierPassed(counter=message.counter)


def _cancel_barrier(request: CancelBarrier) -> pb.CancelBarrierRequest:
    return pb.CancelBarrierRequest(
        incarnations=_who(request.caller),
        barrier_id=request.barrier_id,
        counter=request.counter,
        source_task_id=request.task,
    )


def _alive(request: GetAliveTasks) -> pb.GetAliveTasksRequest:
    return pb.GetAliveTasksRequest(
        incarnations=_who(request.caller),
        requesting_task_id=request.task,
        task_ids=request.tasks,
    )


def _alive_tasks(message: pb.GetAliveTasksResponse) -> Answer:
    pairs = zip(message.alive_task_ids, message.incarnations, strict=True)
    return AliveTasks(
        alive=tuple(sorted((TaskId(task), Incarnation(incarnation)) for task, incarnation in pairs))
    )


def _done(_: Any) -> Answer:
    return Done()


def _table() -> dict[type, ClientMethod]:
    rows: tuple[tuple[type, Callable[[Any], Any], Callable[[Any], Answer]], ...] = (
        (RegisterTask, _register, _registered),
        (Heartbeat, _heartbeat, _beaten),
        (PollForError, _poll, _done),
        (ShutdownTask, _shutdown, _done),
        (WatchTasks, _watch, _watched),
        (ReportErrorToService, _report, _done),
        (InsertKeyValue, _insert, _done),
        (GetKeyValue, _get, _value),
        (TryGetKeyValue, _try_get, _value),
        (IncrementKeyValue, _increment, _value),
        (GetKeyValueDir, _read_directory, _directory),
        (DeleteKeyValue, _delete, _done),
        (Barrier, _barrier, _barrier_passed),
        (CancelBarrier, _cancel_barrier, _done),
        (GetAliveTasks, _alive, _alive_tasks),
    )
    return {
        request: ClientMethod(
            request.__name__, to_wire, getattr(pb, f"{request.__name__}Response"), to_core
        )
        for request, to_wire, to_core in rows
    }


_METHODS = _table()


def client_method(request: Request) -> ClientMethod:
    """The RPC of a request."""
    return _METHODS[type(request)]


def read_status(code: int, message: str, payloads: bytes) -> Status:
    """A failed call's status.

    Args:
      code: gRPC's number.
      message: The text of the error.
      payloads: Value of the trailing metadatum `grpc-status-details-bin`; empty if there was none.
        Bytes that are no payloads count as none: the error is then one of the transport.
    """
    try:
        found = dict(pb.StatusPayloads.FromString(payloads).payloads)
        service = found.get(SERVICE_ERROR_KEY)
        barrier = found.get(BARRIER_ERROR_KEY)
        wrong = found.get(WRONG_SERVICE_KEY)
        return Status(
            code=Code.of(code),
            message=message,
            service_error=None
            if service is None
            else _service_error(
                pb.CoordinationServiceError.FromString(service), known=bool(service)
            ),
            barrier_error=None
            if barrier is None
            else _barrier_error(pb.BarrierError.FromString(barrier)),
            wrong_service=None
            if wrong is None
            else WrongService(
                Incarnation(pb.ServiceMismatchError.FromString(wrong).service_incarnation)
            ),
        )
    except google.protobuf.message.DecodeError:
        return Status(code=Code.of(code), message=message, service_error=None)


def _service_error(error: pb.CoordinationServiceError, *, known: bool = True) -> ServiceError:
    source = TaskId(error.source_task_id) if known else None
    return ServiceError(reported=error.is_reported_error, source_task=source)


def _barrier_error(error: pb.BarrierError) -> BarrierError:
    return BarrierError(error.barrier_id, error.counter)
