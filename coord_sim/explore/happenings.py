"""What a step of an exploration adds to the history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from checker.history import (
    LIVE_PROCESSES,
    SHUTDOWN,
    Crash,
    Enter,
    Event,
    Exit,
    Fail,
    Header,
    History,
    Info,
    Invoke,
    Leave,
    Ok,
    Start,
    value_fields,
)
from coord_sim.explore import names
from coord_sim.explore.requests import Members, Operation, Told, key_of, renamed


class Happening(NamedTuple):
    """An event without its time. Which fields count depends on `kind`, a type of events."""

    kind: type[Event]
    process: int
    lifetime: int
    operation: Operation | None = None
    """Of invocations and responses."""
    told: Told = Told()
    cause: str = ""
    block: int = -1
    members: Members = ()
    outcome: str = ""
    failed: tuple[int, ...] = ()

    def renamed(self, processes: Sequence[int]) -> Happening:
        """The same under other numbers of processes."""
        return self._replace(
            process=processes[self.process],
            told=self.told.renamed(processes),
            members=renamed(self.members, processes),
            failed=tuple(sorted(processes[process] for process in self.failed)),
        )

    def event(self, time_ns: int, operation: int) -> Event:
        """The event at a time; `operation` is the id of the call."""
        process, lifetime = self.process, self.lifetime
        if self.kind is Start:
            incarnation = names.incarnation(process, lifetime)
            return Start(
                time_ns=time_ns, process=process, lifetime=lifetime, incarnation=incarnation
            )
        if self.kind is Crash:
            return Crash(time_ns=time_ns, process=process, lifetime=lifetime, cause=self.cause)
        if self.kind is Leave:
            return Leave(time_ns=time_ns, process=process, lifetime=lifetime)
        if self.kind is Enter:
            return Enter(
                time_ns=time_ns,
                process=process,
                lifetime=lifetime,
                block=self.block,
                live=_live(self.members),
            )
        if self.kind is Exit:
            return Exit(
                time_ns=time_ns,
                process=process,
                lifetime=lifetime,
                block=self.block,
                outcome=self.outcome,
                failed=self.failed,
            )
        if self.kind is Invoke:
            name, arguments = _described(self)
            return Invoke(
                time_ns=time_ns,
                process=process,
                lifetime=lifetime,
                id=operation,
                operation=name,
                arguments=arguments,
            )
        if self.kind is Ok:
            members = self.told.members
            return Ok(
                time_ns=time_ns,
                process=process,
                lifetime=lifetime,
                id=operation,
                result=None if members is None else _live(members),
            )
        kind = Fail if self.kind is Fail else Info
        return kind(
            time_ns=time_ns,
            process=process,
            lifetime=lifetime,
            id=operation,
            code=self.told.code,
        )


def events_of(happenings: Iterable[Happening]) -> tuple[Event, ...]:
    """Events without times, for a judge; a call's id says whose it is."""
    return tuple(
        each.event(
            0,
            -1
            if each.operation is None
            else names.call_id(each.process, each.lifetime, each.operation),
        )
        for each in happenings
    )


STEP_NS = 1_000_000
"""Events of a written history are this far apart: only their order means something."""


def history_of(
    happenings: Iterable[Happening], participants: int, details: Mapping[str, object]
) -> History:
    """A history to write; operations are numbered in the order of their invocations."""
    open_calls: dict[int, int] = {}
    invoked = 0
    events: list[Event] = []
    for place, each in enumerate(happenings):
        if each.kind is Invoke:
            open_calls[each.process] = invoked
            invoked += 1
        number = -1 if each.operation is None else open_calls[each.process]
        events.append(each.event((place + 1) * STEP_NS, number))
    header = Header(
        source="simulator",
        clock="abstract",
        participants=tuple(range(participants)),
        details=details,
    )
    return History(header, events)


def _live(members: Members) -> dict[int, int]:
    return {process: names.incarnation(process, lifetime) for process, lifetime in members}


def _described(happening: Happening) -> tuple[str, dict[str, object]]:
    if happening.operation is Operation.LIVE:
        return LIVE_PROCESSES, {}
    if happening.operation is Operation.SHUTDOWN:
        return SHUTDOWN, {}
    return "key_value_set", {
        "key": key_of(happening.process),
        "value": value_fields(str(happening.lifetime).encode()),
        "allow_overwrite": True,
    }
