"""Requests, and what the model knows, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from checker.history import Invoke
from coord_sim.core.identifiers import NS_PER_S, CallId, TaskId
from coord_sim.core.key_value_store import normalise
from coord_sim.core.messages import (
    Barrier,
    CancelBarrier,
    DeleteKeyValue,
    GetAliveTasks,
    GetKeyValue,
    IncrementKeyValue,
    InsertKeyValue,
    KeyValue,
    Request,
    TaskState,
    TryGetKeyValue,
)
from coord_sim.core.survey import TaskSurvey
from coord_sim.replay.model import Model

_ARGUMENTS_MAX: Final = 200
_ROWS_MAX: Final = 12


def time_in_words(time_ns: int, origin_ns: int) -> str:
    """A time, in seconds since the history's first event."""
    return f"{(time_ns - origin_ns) / NS_PER_S:.6f} s"


def asked_in_words(event: Invoke) -> str:
    """A call: who, and what."""
    arguments = {
        name: sorted(value) if isinstance(value, tuple | set | frozenset) else value
        for name, value in event.arguments.items()
    }
    told = json.dumps(arguments, ensure_ascii=False, default=str) if arguments else ""
    if len(told) > _ARGUMENTS_MAX:
        told = f"{told[:_ARGUMENTS_MAX]}…"
    who = f"process {event.process}, start {event.lifetime}"
    return f"{event.operation} of {who}{': ' + told if told else ''}"


def state_in_words(
    model: Model, request: Request | None, now_ns: int, *, heartbeats: bool
) -> tuple[str, ...]:
    """What the model knows that matters to a request."""
    lines = [*_members(model, request, now_ns, heartbeats=heartbeats)]
    survey = model.survey(now_ns)
    if isinstance(request, GetAliveTasks):
        wanted = tuple(sorted(set(request.tasks)))
        rounds = [round_ for round_ in survey.rounds if round_.tasks == wanted]
        lines += [
            f"the round over {_ids(round_.tasks)}: {_ids(round_.entered)} entered, "
            f"{_ids(round_.missing)} awaited"
            for round_ in rounds
        ] or [f"no round over {_ids(wanted)} is open"]
    elif isinstance(request, Barrier | CancelBarrier):
        lines += [
            f"barrier {open_.barrier_id}::{open_.counter}: {_ids(open_.arrived)} arrived, "
            f"{_ids(open_.missing)} missing, {open_.remaining_ns / NS_PER_S:.3f} s left"
            for open_ in survey.barriers
            if open_.barrier_id == request.barrier_id
        ] or [f"barrier {request.barrier_id} is not open"]
    elif isinstance(
        request,
        InsertKeyValue | GetKeyValue | TryGetKeyValue | DeleteKeyValue | IncrementKeyValue,
    ):
        lines.append(_stored(model, request.key, request, now_ns))
    return tuple(lines)


def _members(
    model: Model, request: Request | None, now_ns: int, *, heartbeats: bool
) -> Iterator[str]:
    survey = model.survey(now_ns)
    if isinstance(request, GetAliveTasks):
        concerned = set(request.tasks)
    elif isinstance(request, Barrier | CancelBarrier):
        concerned = set(getattr(request, "tasks", ())) or {task.task for task in survey.tasks}
    else:
        caller = getattr(request, "task", None)
        concerned = set() if caller is None else {caller}
    rows = [task for task in survey.tasks if task.task in concerned]
    for task in rows[:_ROWS_MAX]:
        yield _member(task, heartbeats=heartbeats)
    if len(rows) > _ROWS_MAX:
        yield f"and {len(rows) - _ROWS_MAX} more tasks"


def _member(task: TaskSurvey, *, heartbeats: bool) -> str:
    who = f"task {task.task} (incarnation {task.incarnation})"
    if task.state is TaskState.CONNECTED:
        silent_s = (task.silent_ns or 0) / NS_PER_S
        return f"{who}: connected" + (f", last heard of {silent_s:.3f} s ago" if heartbeats else "")
    if task.error is not None:
        return f"{who}: in error, {task.error.code.name}"
    return f"{who}: {'not registered' if task.incarnation == 0 else 'disconnected'}"


def _stored(model: Model, key: str, request: Request, now_ns: int) -> str:
    """What is under a key, asked of the model as its caller would: of a copy, which may be changed."""
    asked = TryGetKeyValue(caller=getattr(request, "caller"), key=key)  # noqa: B009 - of a union
    copy = Model.thawed(model.frozen())
    effects = copy.handle(CallId(-1), asked, now_ns)
    for effect in effects:
        answer = getattr(effect, "answer", None)
        if isinstance(answer, KeyValue):
            value = answer.value.decode("utf-8", "backslashreplace")
            return f"key {normalise(key)}: {value[:_ARGUMENTS_MAX]!r}"
    return f"key {normalise(key)}: no value"


def _ids(ids: tuple[int, ...] | tuple[TaskId, ...]) -> str:
    return "{" + ", ".join(map(str, ids)) + "}"
