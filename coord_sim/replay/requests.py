"""Operations of a history as requests of the core: the way back from `coord_sim.recording`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Final

from checker.errors import MalformedHistory
from checker.history import LIVE_PROCESSES, SHUTDOWN, Invoke
from coord_sim.core.identifiers import Incarnation, TaskId
from coord_sim.core.messages import (
    Barrier,
    Caller,
    CancelBarrier,
    DeleteKeyValue,
    GetAliveTasks,
    GetKeyValue,
    GetKeyValueDir,
    Heartbeat,
    IncrementKeyValue,
    InsertKeyValue,
    PollForError,
    RegisterTask,
    ReportErrorToService,
    Request,
    ShutdownTask,
    TryGetKeyValue,
    WatchTasks,
)
from coord_sim.recording.service_recorder import HEARTBEAT, POLL_FOR_ERROR, REGISTER


class Requests:
    """Makes requests of operations.

    Args:
      tasks: How many the job has.
    """

    def __init__(self, tasks: int) -> None:
        self._everybody = tuple(TaskId(number) for number in range(tasks))
        self._callers: dict[tuple[Incarnation, Incarnation], Caller] = {}

    def request_of(
        self, event: Invoke, incarnation: Incarnation, service: Incarnation, counter: int = 0
    ) -> Request | None:
        """The request, or None for an operation that is none of the service's.

        Args:
          event: The call.
          incarnation: Of its lifetime.
          service: Of the service that is replayed.
          counter: Of a barrier whose recorder does not tell one.

        Raises:
          MalformedHistory: an argument is missing or has the wrong kind.
        """
        arguments = event.arguments
        if "service_incarnation" in arguments:
            service = _incarnation(event, "service_incarnation")
        caller = self._callers.get((incarnation, service))
        if caller is None:
            caller = self._callers[incarnation, service] = Caller(incarnation, service)
        name = event.operation
        task = TaskId(event.process)
        if name == LIVE_PROCESSES:
            participants = arguments.get("participants")
            everybody = participants is None
            tasks = self._everybody if everybody else _tasks(event, "participants")
            return GetAliveTasks(caller=caller, task=task, tasks=tasks)
        if name == "barrier":
            listed = arguments.get("processes")
            return Barrier(
                caller=caller,
                barrier_id=_string(event, "barrier"),
                timeout_ms=_integer(event, "timeout_ms"),
                tasks=() if listed is None else _tasks(event, "processes"),
                task=task,
                counter=_integer(event, "counter") if "counter" in arguments else counter,
            )
        build = _OTHERS.get(name)
        return None if build is None else build(event, caller, task)


def _set(event: Invoke, caller: Caller, task: TaskId) -> Request:
    del task
    return InsertKeyValue(
        caller=caller,
        key=_string(event, "key"),
        value=value_of(event, event.arguments.get("value")),
        allow_overwrite=event.arguments.get("allow_overwrite") is True,
    )


def _get(event: Invoke, caller: Caller, task: TaskId) -> Request:
    del task
    return GetKeyValue(caller=caller, key=_string(event, "key"))


def _try_get(event: Invoke, caller: Caller, task: TaskId) -> Request:
    del task
    return TryGetKeyValue(caller=caller, key=_string(event, "key"))


def _delete(event: Invoke, caller: Caller, task: TaskId) -> Request:
    del task
    return DeleteKeyValue(caller=caller, key=_string(event, "key"))


def _increment(event: Invoke, caller: Caller, task: TaskId) -> Request:
    del task
    return IncrementKeyValue(
        caller=caller, key=_string(event, "key"), increment=_integer(event, "increment")
    )


def _directory(event: Invoke, caller: Caller, task: TaskId) -> Request:
    del task
    return GetKeyValueDir(caller=caller, directory=_string(event, "key"))


def _cancel(event: Invoke, caller: Caller, task: TaskId) -> Request:
    return CancelBarrier(
        caller=caller,
        barrier_id=_string(event, "barrier"),
        counter=_integer(event, "counter"),
        task=task,
    )


def _report(event: Invoke, caller: Caller, task: TaskId) -> Request:
    return ReportErrorToService(
        caller=caller,
        task=task,
        code=_integer(event, "code"),
        message=_string(event, "message"),
    )


def _watch(event: Invoke, caller: Caller, task: TaskId) -> Request:
    del task
    return WatchTasks(caller=caller, version=_integer(event, "version"))


def _heartbeat(event: Invoke, caller: Caller, task: TaskId) -> Request:
    differs = "incarnation" in event.arguments
    incarnation = _incarnation(event, "incarnation") if differs else caller.task_incarnation
    return Heartbeat(caller=caller, task=task, incarnation=incarnation)


def _register(event: Invoke, caller: Caller, task: TaskId) -> Request:
    given = "incarnation" in event.arguments
    incarnation = _incarnation(event, "incarnation") if given else caller.task_incarnation
    return RegisterTask(task=task, incarnation=incarnation)


def _poll(event: Invoke, caller: Caller, task: TaskId) -> Request:
    del event
    return PollForError(caller=caller, task=task)


def _shutdown(event: Invoke, caller: Caller, task: TaskId) -> Request:
    del event
    return ShutdownTask(caller=caller, task=task)


_OTHERS: Final[Mapping[str, Callable[[Invoke, Caller, TaskId], Request]]] = {
    "key_value_set": _set,
    "key_value_get": _get,
    "key_value_try_get": _try_get,
    "key_value_delete": _delete,
    "key_value_increment": _increment,
    "key_value_dir_get": _directory,
    "cancel_barrier": _cancel,
    "report_error": _report,
    "watch_tasks": _watch,
    HEARTBEAT: _heartbeat,
    REGISTER: _register,
    POLL_FOR_ERROR: _poll,
    SHUTDOWN: _shutdown,
}

OPERATIONS: Final = frozenset({LIVE_PROCESSES, "barrier", *_OTHERS})
"""The operations that are requests of the service."""


def _string(event: Invoke, name: str) -> str:
    value = event.arguments.get(name)
    if isinstance(value, str):
        return value
    raise _wrong(event, name, value, "a string")


def _integer(event: Invoke, name: str) -> int:
    value = event.arguments.get(name)
    if type(value) is int:
        return value
    raise _wrong(event, name, value, "an integer")


def _incarnation(event: Invoke, name: str) -> Incarnation:
    value = event.arguments.get(name)
    if isinstance(value, str) and value.isascii() and value.isdigit() and int(value) < 1 << 64:
        return Incarnation(int(value))
    raise _wrong(event, name, value, "an incarnation: a decimal string")


def _tasks(event: Invoke, name: str) -> tuple[TaskId, ...]:
    value = event.arguments.get(name)
    if isinstance(value, list | tuple | frozenset | set):
        if all(type(number) is int for number in value):
            return tuple(value)
    raise _wrong(event, name, value, "a list of process numbers")


def value_of(event: Invoke, fields: object) -> bytes:
    """The bytes of a value of the store, as histories write it."""
    if isinstance(fields, Mapping):
        text, packed = fields.get("text"), fields.get("base64")
        if isinstance(text, str):
            return text.encode("utf-8", "surrogatepass")
        if isinstance(packed, str):
            try:
                return base64.b64decode(packed, validate=True)
            except (binascii.Error, ValueError):
                pass
    raise _wrong(event, "value", fields, 'a value: {"text": …} or {"base64": …}')


def _wrong(event: Invoke, name: str, value: object, expected: str) -> MalformedHistory:
    return MalformedHistory(
        f"operation {event.id} ({event.operation}) of process {event.process}: must be {expected}, "
        f"found {value!r:.80}",
        field=f"arguments.{name}",
    )
