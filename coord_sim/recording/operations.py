"""Requests and answers of the core as operations of a history.

Registrations, heartbeats and error polls are the protocol's own business, not operations that a
program calls: of those, only recorders of the service's side tell (`service_recorder.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from checker.history import LIVE_PROCESSES, SHUTDOWN, Fail, Info, Ok, value_fields
from coord_sim.core.identifiers import TaskId
from coord_sim.core.messages import (
    AliveTasks,
    Answer,
    Barrier,
    BarrierPassed,
    CancelBarrier,
    DeleteKeyValue,
    GetAliveTasks,
    GetKeyValue,
    GetKeyValueDir,
    IncrementKeyValue,
    InsertKeyValue,
    KeyValue,
    KeyValueDirectory,
    ReportErrorToService,
    Request,
    ShutdownTask,
    TasksWatched,
    TryGetKeyValue,
    WatchTasks,
)
from coord_sim.core.status import Status


def operation_of(request: Request, tasks: int | None) -> tuple[str, Mapping[str, object]] | None:
    """Name and arguments of the operation that a request performs, or None if it is none.

    Args:
      request: The request.
      tasks: How many the job has. A call about all of them does not list them, and ids that are none
        of them are left out. None if it is not known: every call lists its tasks.
    """
    match request:
        case GetAliveTasks():
            return LIVE_PROCESSES, _about(request.tasks, tasks)
        case InsertKeyValue():
            arguments: dict[str, object] = {
                "key": request.key,
                "value": value_fields(request.value),
                "allow_overwrite": request.allow_overwrite,
            }
            return "key_value_set", arguments
        case GetKeyValue():
            return "key_value_get", {"key": request.key}
        case TryGetKeyValue():
            return "key_value_try_get", {"key": request.key}
        case DeleteKeyValue():
            return "key_value_delete", {"key": request.key}
        case IncrementKeyValue():
            return "key_value_increment", {"key": request.key, "increment": request.increment}
        case GetKeyValueDir():
            return "key_value_dir_get", {"key": request.directory}
        case Barrier():
            return "barrier", {
                "barrier": request.barrier_id,
                "timeout_ms": request.timeout_ms,
                "processes": list(request.tasks) or None,
                "counter": request.counter,
            }
        case CancelBarrier():
            return "cancel_barrier", {"barrier": request.barrier_id, "counter": request.counter}
        case ReportErrorToService():
            return "report_error", {"code": request.code, "message": request.message}
        case WatchTasks():
            return "watch_tasks", {"version": request.version}
        case ShutdownTask():
            return SHUTDOWN, {}
        case _:
            return None


@functools.lru_cache(maxsize=64)  # The calls of a large job all have the same long list.
def _about(asked: tuple[TaskId, ...], tasks: int | None) -> Mapping[str, object]:
    """The arguments of a call of `live_processes`."""
    participants = {task for task in asked if task >= 0 and (tasks is None or task < tasks)}
    return {} if len(participants) == tasks else {"participants": tuple(sorted(participants))}


class AnswerTexts:
    """Turns answers into results; the callers of one round share one result object."""

    def __init__(self) -> None:
        self._latest: tuple[AliveTasks, dict[int, int | None]] | None = None

    def result_of(self, operation: str, answer: Answer) -> object:
        """The result of an operation that was answered without an error."""
        match answer:
            case AliveTasks():
                if self._latest is None or self._latest[0] is not answer:
                    live: dict[int, int | None] = dict(answer.alive)
                    self._latest = (answer, live)
                return self._latest[1]
            case KeyValue() if operation == "key_value_increment":
                return int(answer.value)
            case KeyValue():
                return value_fields(answer.value)
            case KeyValueDirectory():
                return [[key, value_fields(value)] for key, value in answer.entries]
            case BarrierPassed():
                return answer.counter
            case TasksWatched():
                states = {str(info.task): info.state.name.lower() for info in answer.tasks}
                return {"version": answer.version, "states": states}
            case _:
                return None


def response(
    answer: Answer,
    texts: AnswerTexts,
    *,
    time_ns: int,
    process: int,
    lifetime: int,
    operation: int,
    name: str,
) -> Ok | Fail | Info:
    """The event that ends an operation: an error's code says whether it surely had no effect."""
    if not isinstance(answer, Status):
        result = texts.result_of(name, answer)
        return Ok(time_ns=time_ns, process=process, lifetime=lifetime, id=operation, result=result)
    kind = Fail if answer.code.definite else Info
    return kind(
        time_ns=time_ns,
        process=process,
        lifetime=lifetime,
        id=operation,
        code=answer.code.name,
        message=answer.message.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
    )
