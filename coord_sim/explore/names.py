"""Numbers that say whose they are: incarnations and calls of an exploration.

An incarnation or call id is random in reality and says nothing. Here it is made of the process and the
start, so that the same thing has the same number in all interleavings, and permuting processes is
arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

from coord_sim.core.identifiers import CallId, Incarnation

STARTS_MAX = 1000
"""More starts of one process than any exploration ends with."""
KINDS_MAX = 10

SERVICE = Incarnation(1)
"""The incarnation of the service."""


def incarnation(process: int, lifetime: int) -> Incarnation:
    """Of the `lifetime`-th start of a process, both from 0."""
    return Incarnation(STARTS_MAX * (process + 1) + lifetime)


def started_as(number: int) -> tuple[int, int]:
    """Process and start of an incarnation."""
    process, lifetime = divmod(number, STARTS_MAX)
    return process - 1, lifetime


def renamed_incarnation(number: int, processes: Sequence[int]) -> int:
    """The incarnation of the same start under other numbers of processes; 0, nobody's, stays."""
    if number < STARTS_MAX:
        return number
    process, lifetime = started_as(number)
    return incarnation(processes[process], lifetime)


def call_id(process: int, lifetime: int, kind: int) -> CallId:
    """Of a call of a start of a process.

    A start waits for each answer before it calls again, so it needs no more than one number per `kind`.
    """
    return CallId(incarnation(process, lifetime) * KINDS_MAX + kind)


def called_by(number: int) -> tuple[int, int, int]:
    """Process, start and kind of a call id."""
    starter, kind = divmod(number, KINDS_MAX)
    return *started_as(starter), kind


def renamed_call(number: int, processes: Sequence[int]) -> int:
    """The id of the same call under other numbers of processes."""
    starter, kind = divmod(number, KINDS_MAX)
    return renamed_incarnation(starter, processes) * KINDS_MAX + kind
