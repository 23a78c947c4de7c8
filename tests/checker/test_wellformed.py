"""Each rule that events obey among each other, on events that never were in a file."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings

from checker import MalformedHistory
from checker.history import (
    LIVE_PROCESSES,
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
    WellFormed,
)
from tests.random_histories import histories

NOBODY: dict[int, int | None] = {}
HEADER = Header(source="manual", participants=(0, 1), clock="abstract")


def accept(events: Sequence[Event], header: Header = HEADER) -> None:
    rules = WellFormed(header)
    for event in events:
        rules.accept(event)


def start(time_ns: int, process: int = 0, lifetime: int = 0, **more: int) -> Start:
    return Start(time_ns=time_ns, process=process, lifetime=lifetime, **more)


def invoke(
    time_ns: int,
    number: int = 0,
    process: int = 0,
    lifetime: int = 0,
    *,
    operation: str = LIVE_PROCESSES,
    **arguments: object,
) -> Invoke:
    return Invoke(
        time_ns=time_ns,
        process=process,
        lifetime=lifetime,
        id=number,
        operation=operation,
        arguments=arguments,
    )


def ok(time_ns: int, number: int = 0, result: object = NOBODY) -> Ok:
    return Ok(time_ns=time_ns, process=0, lifetime=0, id=number, result=result)


def enter(time_ns: int, block: int = 0) -> Enter:
    return Enter(time_ns=time_ns, process=0, lifetime=0, block=block, live={0: None})


def exit_(time_ns: int, block: int = 0, outcome: str = "completed") -> Exit:
    return Exit(time_ns=time_ns, process=0, lifetime=0, block=block, outcome=outcome)


CRASH = Crash(time_ns=2, process=0, lifetime=0)
LEAVE = Leave(time_ns=2, process=0, lifetime=0)


@settings(deadline=None)
@given(histories())
def test_random_histories_are_well_formed(history: History) -> None:
    accept(history.events, history.header)


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([start(1), start(1, 1)], id="equal times are concurrent"),
        pytest.param(
            [invoke(0, operation="key_value_get")], id="only live_processes needs a start"
        ),
        pytest.param([CRASH], id="a process may crash before it has connected"),
        pytest.param([start(0), CRASH, start(2, lifetime=1)], id="a restart at the crash's moment"),
        pytest.param(
            [start(0), start(1, lifetime=1), invoke(2), ok(3, result={0: None})],
            id="an old lifetime may act on while the next has started",
        ),
        pytest.param(
            [start(0, incarnation=7), start(0, 1, incarnation=7)],
            id="two processes may draw the same incarnation",
        ),
        pytest.param([enter(0), exit_(1), enter(1, 1)], id="blocks one after the other"),
        pytest.param(
            [start(0), invoke(1, participants=(0,)), ok(2, result={0: None})],
            id="a subset of the participants",
        ),
        pytest.param([invoke(0, operation="get"), ok(1, result=[1])], id="any JSON result"),
    ],
)
def test_allowed(events: list[Event]) -> None:
    accept(events)


@pytest.mark.parametrize(
    ("events", "field", "problem"),
    [
        ([start(2), start(1, 1)], "time_ns", "out of order"),
        ([start(0, 2)], "process", "not among the header's participants"),
        ([start(0), start(1)], "lifetime", "starts its lifetime 0 a second time"),
        ([CRASH, start(3)], "lifetime", "starts its lifetime 0 after that has ended"),
        ([CRASH, CRASH], "type", "ends its lifetime 0 a second time"),
        ([LEAVE, CRASH], "type", "ends its lifetime 0 a second time"),
        ([start(0), LEAVE, invoke(3)], "lifetime", "acts after its lifetime 0 has ended"),
        ([start(0), invoke(1), CRASH, ok(3)], "lifetime", "acts after its lifetime 0 has ended"),
        ([invoke(0)], "lifetime", "no start event before it"),
        ([start(0), invoke(1, lifetime=1)], "lifetime", "no start event before it"),
        ([start(0), invoke(1), invoke(2)], "id", "used a second time"),
        ([start(0), invoke(1), ok(1), invoke(2)], "id", "used a second time"),
        ([ok(0)], "id", "never invoked"),
        ([start(0), invoke(1), ok(2), ok(3)], "id", "has ended already"),
        ([start(0, 1), invoke(1, 0, 1), ok(2)], "process", "invoked by process 1"),
        (
            [start(0), start(0, 0, 1), invoke(1, 0, 0, 1), ok(2)],
            "process",
            "in lifetime 1, but is answered to process 0 in lifetime 0",
        ),
        ([start(0), invoke(1), ok(2, result=None)], "result", "must map processes"),
        ([start(0), invoke(1), ok(2, result={3: None})], "result", "names process 3"),
        ([start(0), invoke(1, participants=(3,))], "arguments.participants", "process 3 is not"),
        ([start(0), invoke(1, participants=[0])], "arguments.participants", "must be a list"),
        ([start(0), invoke(1, participants=None)], "arguments.participants", "must be a list"),
        ([start(0), invoke(1, participants=(True,))], "arguments.participants", "must be a list"),
        ([start(0, incarnation=1), start(1, 0, 1, incarnation=1)], "incarnation", "a new one"),
        ([start(3, since_ns=4)], "since_ns", "4 is after 3"),
        ([Crash(time_ns=3, process=0, lifetime=0, since_ns=4)], "since_ns", "4 is after 3"),
        ([exit_(0)], "block", "has not entered"),
        ([enter(0), exit_(1), exit_(2)], "block", "has not entered"),
        ([enter(0), enter(1)], "block", "a second time"),
        ([enter(0), exit_(1, outcome="lost")], "outcome", "unknown outcome 'lost'"),
    ],
)
def test_refused(events: list[Event], field: str, problem: str) -> None:
    accept(events[:-1])
    with pytest.raises(MalformedHistory) as caught:
        accept(events)
    assert caught.value.field == field
    assert problem in caught.value.problem


@pytest.mark.parametrize("kind", [Fail, Info])
def test_an_error_ends_a_call(kind: type[Fail | Info]) -> None:
    error = kind(time_ns=2, process=0, lifetime=0, id=0, code="ABORTED")
    events: list[Event] = [start(0), invoke(1), error]
    accept(events)
    with pytest.raises(MalformedHistory, match="has ended already"):
        accept([*events, ok(3)])


def test_the_field_is_named_where_the_place_is_unknown() -> None:
    with pytest.raises(MalformedHistory) as caught:
        accept([start(0, 2)])
    assert str(caught.value) == (
        "field 'process': process 2 is not among the header's participants; "
        "add it there or remove the event"
    )
