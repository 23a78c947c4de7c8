"""What processes ask of the service, and what they are told, in short."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from coord_sim.core.identifiers import CallId, TaskId
from coord_sim.core.messages import (
    AliveTasks,
    Answer,
    Caller,
    GetAliveTasks,
    InsertKeyValue,
    RegisterTask,
    Request,
    ShutdownTask,
)
from coord_sim.core.status import Status
from coord_sim.explore import names


class Operation(enum.IntEnum):
    """What a message asks for."""

    LIVE = 0
    SET = 1
    SHUTDOWN = 2
    REGISTER = 3

    @property
    def word(self) -> str:
        """As histories name it."""
        return ("live_processes", "key_value_set", "shutdown", "register")[self]


class Message(NamedTuple):
    """A request on its way, sent by the `lifetime`-th start of a process."""

    operation: Operation
    process: int
    lifetime: int

    @property
    def id(self) -> CallId:
        """As the service knows the call."""
        return names.call_id(self.process, self.lifetime, self.operation)

    def renamed(self, processes: Sequence[int]) -> Message:
        """The message of the same call under other numbers of processes."""
        return self._replace(process=processes[self.process])

    def request(self, processes: int) -> Request:
        """In full."""
        task, incarnation = TaskId(self.process), names.incarnation(self.process, self.lifetime)
        if self.operation is Operation.REGISTER:
            return RegisterTask(task=task, incarnation=incarnation)
        caller = Caller(incarnation, names.SERVICE)
        if self.operation is Operation.SET:
            value = str(self.lifetime).encode()
            return InsertKeyValue(
                caller=caller, key=key_of(self.process), value=value, allow_overwrite=True
            )
        if self.operation is Operation.SHUTDOWN:
            return ShutdownTask(caller=caller, task=task)
        tasks = tuple(TaskId(number) for number in range(processes))
        return GetAliveTasks(caller=caller, task=task, tasks=tasks)


Members: TypeAlias = tuple[tuple[int, int], ...]
"""A live set: process and start of each member, ascending by process."""


class Told(NamedTuple):
    """An answer. `members` only of `live_processes`; `code` and `message` only of errors."""

    members: Members | None = None
    code: str = ""
    is_definite: bool = False

    def renamed(self, processes: Sequence[int]) -> Told:
        """The same answer under other numbers of processes."""
        return (
            self
            if self.members is None
            else self._replace(members=renamed(self.members, processes))
        )


def told(answer: Answer) -> Told:
    """An answer in short."""
    if isinstance(answer, Status):
        return Told(code=answer.code.name, is_definite=answer.code.definite)
    if isinstance(answer, AliveTasks):
        return Told(members=tuple(names.started_as(number) for _, number in answer.alive))
    return Told()


def renamed(members: Members, processes: Sequence[int]) -> Members:
    """The same live set under other numbers of processes."""
    return tuple(sorted((processes[process], lifetime) for process, lifetime in members))


def key_of(process: int) -> str:
    """The key that a process writes."""
    return f"step/{process}"


_KEY = re.compile(r"step/(\d+)")


def renamed_key(key: str, processes: Sequence[int]) -> str:
    """The key that the renamed process writes; other keys stay."""
    match = _KEY.fullmatch(key)
    return key if match is None else key_of(processes[int(match[1])])
