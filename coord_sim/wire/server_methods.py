"""The RPCs as a server sees them: requests are read, answers of the core are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from coord_sim.core.identifiers import Incarnation, TaskId
from coord_sim.core.messages import (
    AliveTasks,
    Barrier,
    BarrierPassed,
    Caller,
    CancelBarrier,
    DeleteKeyValue,
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
    TasksWatched,
    TryGetKeyValue,
    WatchTasks,
)
from coord_sim.core.status import ServiceError, Status
from coord_sim.wire._generated import coordination_service_pb2 as pb

SERVICE = "xla.coordination.CoordinationService"
STATUS_PAYLOADS_KEY = "grpc-status-details-bin"
MESSAGE_BYTES_MAX = 3072
"""The real service cuts error messages here (design note, section 1.2)."""

# The keys kept TensorFlow's package name when the messages moved; clients look for exactly these.
SERVICE_ERROR_KEY = "type.googleapis.com/tensorflow.CoordinationServiceError"
BARRIER_ERROR_KEY = "type.googleapis.com/tensorflow.BarrierError"
WRONG_SERVICE_KEY = "type.googleapis.com/tensorflow.ServiceMismatchError"


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC: how its request is read and its answer written."""

    name: str
    request_type: Any
    to_core: Callable[[Any], Request]
    to_wire: Callable[[Any], Any]


def _caller(message: Any) -> Caller:
    who = message.incarnations
    return Caller(Incarnation(who.task_incarnation), Incarnation(who.service_incarnation))


def _register(message: pb.RegisterTaskRequest) -> Request:
    return RegisterTask(
        task=TaskId(message.source_task_id), incarnation=Incarnation(message.incarnation)
    )


def _registered(answer: Registered) -> pb.RegisterTaskResponse:
    return pb.RegisterTaskResponse(service_incarnation=answer.service_incarnation)


def _heartbeat(message: pb.HeartbeatRequest) -> Request:
    return Heartbeat(
        caller=_caller(message),
        task=TaskId(message.source_task_id),
        incarnation=Incarnation(message.incarnation),
    )


def _beaten(answer: HeartbeatAccepted) -> pb.HeartbeatResponse:
    return pb.HeartbeatResponse(service_incarnation=answer.service_incarnation)


def _poll(message: pb.PollForErrorRequest) -> Request:
    return PollForError(caller=_caller(message), task=TaskId(message.source_task_id))


def _shutdown(message: pb.ShutdownTaskRequest) -> Request:
    return ShutdownTask(caller=_caller(message), task=TaskId(message.source_task_id))


def _watch(message: pb.WatchTasksRequest) -> Request:
    return WatchTasks(caller=_caller(message), version=message.version_number)


def _watched(answer: TasksWatched) -> pb.WatchTasksResponse:
    return pb.WatchTasksResponse(
        version_number=answer.version,
        task_state=[
            pb.TaskInfo(
                task_id=info.task,
                incarnation=info.incarnation,
                state=int(info.state),  # type: ignore[arg-type]  # the numbers are the wire's
                error_code=0 if info.error is None else int(info.error.code),
                error_message="" if info.error is None else info.error.message,
                error_payload=None
                if info.error is None or info.error.service_error is None
                else _service_error(info.error.service_error),
            )
            for info in answer.tasks
        ],
    )


def _report(message: pb.ReportErrorToServiceRequest) -> Request:
    return ReportErrorToService(
        caller=_caller(message),
        task=TaskId(message.source_task_id),
        code=message.error_code,
        message=message.error_message,
    )


def _insert(message: pb.InsertKeyValueRequest) -> Request:
    return InsertKeyValue(
        caller=_caller(message),
        key=message.kv.key,
        value=message.kv.value,
        allow_overwrite=message.allow_overwrite,
    )


def _get(message: pb.GetKeyValueRequest) -> Request:
    return GetKeyValue(caller=_caller(message), key=message.key)


def _entry(answer: KeyValue) -> pb.KeyValueEntry:
    return pb.KeyValueEntry(key=answer.key, value=answer.value)


def _got(answer: KeyValue) -> pb.GetKeyValueResponse:
    return pb.GetKeyValueResponse(kv=_entry(answer))


def _try_get(message: pb.TryGetKeyValueRequest) -> Request:
    return TryGetKeyValue(caller=_caller(message), key=message.key)


def _try_got(answer: KeyValue) -> pb.TryGetKeyValueResponse:
    return pb.TryGetKeyValueResponse(kv=_entry(answer))


def _delete(message: pb.DeleteKeyValueRequest) -> Request:
    return DeleteKeyValue(caller=_caller(message), key=message.key)


def _increment(message: pb.IncrementKeyValueRequest) -> Request:
    return IncrementKeyValue(caller=_caller(message), key=message.key, increment=message.increment)


def _incremented(answer: KeyValue) -> pb.IncrementKeyValueResponse:
    return pb.IncrementKeyValueResponse(kv=_entry(answer))


def _read_directory(message: pb.GetKeyValueDirRequest) -> Request:
    return GetKeyValueDir(caller=_caller(message), directory=message.directory_key)


def _directory(answer: KeyValueDirectory) -> pb.GetKeyValueDirResponse:
    # The real service leaves directory_key empty.
    return pb.GetKeyValueDirResponse(
        kv=[pb.KeyValueEntry(key=key, value=value) for key, value in answer.entries]
    )


def _barrier(message: pb.BarrierRequest) -> Request:
    return Barrier(
        caller=_caller(message),
        barrier_id=message.barrier_id,
        timeout_ms=message.barrier_timeout_in_ms,
        tasks=cast("tuple[TaskId, ...]", tuple(message.task_ids)),
        task=TaskId(message.source_task_id),
        counter=message.counter,
    )


def _barrier_passed(answer: BarrierPassed) -> pb.BarrierResponse:
    return pb.BarrierResponse(counter=answer.counter)


def _cancel_barrier(message: pb.CancelBarrierRequest) -> Request:
    return CancelBarrier(
        caller=_caller(message),
        barrier_id=message.barrier_id,
        counter=message.counter,
        task=TaskId(message.source_task_id),
    )


def _alive(message: pb.GetAliveTasksRequest) -> Request:
    return GetAliveTasks(
        caller=_caller(message),
        task=TaskId(message.requesting_task_id),
        # A cast, because a call for each of many ids is dear.
        tasks=cast("tuple[TaskId, ...]", tuple(message.task_ids)),
    )


def _alive_tasks(answer: AliveTasks) -> pb.GetAliveTasksResponse:
    return pb.GetAliveTasksResponse(
        alive_task_ids=[task for task, _ in answer.alive],
        incarnations=[incarnation for _, incarnation in answer.alive],
    )


METHODS = (
    Method("RegisterTask", pb.RegisterTaskRequest, _register, _registered),
    Method("Heartbeat", pb.HeartbeatRequest, _heartbeat, _beaten),
    Method("PollForError", pb.PollForErrorRequest, _poll, lambda _: pb.PollForErrorResponse()),
    Method("ShutdownTask", pb.ShutdownTaskRequest, _shutdown, lambda _: pb.ShutdownTaskResponse()),
    Method("WatchTasks", pb.WatchTasksRequest, _watch, _watched),
    Method(
        "InsertKeyValue", pb.InsertKeyValueRequest, _insert, lambda _: pb.InsertKeyValueResponse()
    ),
    Method("GetKeyValue", pb.GetKeyValueRequest, _get, _got),
    Method("TryGetKeyValue", pb.TryGetKeyValueRequest, _try_get, _try_got),
    Method(
        "DeleteKeyValue", pb.DeleteKeyValueRequest, _delete, lambda _: pb.DeleteKeyValueResponse()
    ),
    Method("IncrementKeyValue", pb.IncrementKeyValueRequest, _increment, _incremented),
    Method("GetKeyValueDir", pb.GetKeyValueDirRequest, _read_directory, _directory),
    Method("Barrier", pb.BarrierRequest, _barrier, _barrier_passed),
    Method(
        "CancelBarrier",
        pb.CancelBarrierRequest,
        _cancel_barrier,
        lambda _: pb.CancelBarrierResponse(),
    ),
    Method(
        "ReportErrorToService",
        pb.ReportErrorToServiceRequest,
        _report,
        lambda _: pb.ReportErrorToServiceResponse(),
    ),
    Method("GetAliveTasks", pb.GetAliveTasksRequest, _alive, _alive_tasks),
)


def _service_error(error: ServiceError) -> pb.CoordinationServiceError:
    return pb.CoordinationServiceError(
        is_reported_error=error.reported, source_task_id=error.source_task or 0
    )


def status_payloads(status: Status) -> bytes:
    """The bytes of the trailing metadatum that carries a status's payloads; may be empty."""
    payloads: dict[str, bytes] = {}
    if status.service_error is not None:
        error = status.service_error
        known = error.reported or error.source_task is not None
        payloads[SERVICE_ERROR_KEY] = _service_error(error).SerializeToString() if known else b""
    if status.barrier_error is not None:
        payloads[BARRIER_ERROR_KEY] = pb.BarrierError(
            barrier_id=status.barrier_error.barrier_id, counter=status.barrier_error.counter
        ).SerializeToString()
    if status.wrong_service is not None:
        payloads[WRONG_SERVICE_KEY] = pb.ServiceMismatchError(
            service_incarnation=status.wrong_service.service_incarnation
        ).SerializeToString()
    return pb.StatusPayloads(payloads=payloads).SerializeToString()


def status_message(status: Status) -> str:
    """A status's message, cut as the real service cuts it."""
    encoded = status.message.encode("utf-8", "surrogateescape")
    if len(encoded) <= MESSAGE_BYTES_MAX:
        return status.message
    cut = encoded[:MESSAGE_BYTES_MAX].decode("utf-8", "surrogateescape")
    return f"{cut} ... [truncated]"
