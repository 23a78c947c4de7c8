"""`checker.clocks`: offsets from messages, and histories that allow for them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from checker import Invalid, LiveProcesses, check
from checker.clocks import (
    Clocks,
    InconsistentClocksError,
    Message,
    Offset,
    clock_report,
    estimate,
    join,
    messages_between,
    messages_of,
    with_uncertainty,
    within,
)
from checker.history import Event, Fail, Header, History, Invoke, Ok, Start, loads
from checker.history.parts import read_part
from checker.operations import OPEN_NS, Operation, Operations, from_intervals
from checker.search import check_operations
from checker.specs import Register, spec_named
from tests.checker.service.service_runs import ServiceRun
from tests.random_histories import random_history
from tests.random_operations import random_operations

MS = 1_000_000


def skewed(history: History, offsets: dict[int, int], *, scale: int = 1) -> History:
    """The same as hosts with these clocks record it, merged by what the clocks show."""

    def shown(event: Event) -> Event:
        by = offsets[event.process]
        event = replace(event, time_ns=event.time_ns * scale + by)
        since_ns = getattr(event, "since_ns", None)
        if isinstance(event, Start) and since_ns is not None:
            event = replace(event, since_ns=since_ns * scale + by)
        return event

    events = sorted(map(shown, history.events), key=lambda event: event.time_ns)
    return History(replace(history.header, clock="wall"), events)


def holds(clocks: Clocks, offsets: dict[int, int]) -> bool:
    """Whether the true offsets are among those that are thought possible."""
    for host, offset in clocks.offsets.items():
        apart = offsets[host] - offsets[clocks.reference]
        if offset.low_ns is not None and apart < offset.low_ns:
            return False
        if offset.high_ns is not None and apart > offset.high_ns:
            return False
    return True


def test_messages_in_both_directions_bound_an_offset() -> None:
    # Host 1 is 1000 ahead; messages take 20 and 30.
    clocks = estimate(
        [Message(0, 100, 1, 1_120, "ping"), Message(1, 1_130, 0, 160, "pong")], hosts=(0, 1)
    )
    assert clocks.offsets == {0: Offset(0, 0), 1: Offset(970, 1_020)}
    assert clocks.uncertainty_ns == 50


def test_bounds_travel_over_several_hosts_and_one_side_may_be_open() -> None:
    messages = [
        Message(0, 0, 1, 10, ""), Message(1, 0, 0, 10, ""),
        Message(1, 0, 2, 105, ""), Message(2, 100, 1, 5, ""),
        Message(3, 50, 0, 60, ""),
    ]  # fmt: skip
    clocks = estimate(messages, hosts=range(5))
    assert clocks.offsets[2] == Offset(85, 115)
    assert clocks.offsets[3] == Offset(-10, None)
    assert clocks.offsets[4] == Offset(None, None)
    assert clocks.uncertainty_ns is None
    limited = estimate(messages, hosts=range(5), largest_ns=500)
    assert limited.offsets[3] == Offset(-10, 500)
    assert limited.offsets[4] == Offset(-415, 500)  # By way of host 2.
    history = random_history(random.Random(1), processes=4)
    with pytest.raises(ValueError, match="no messages bound the offset of host 3"):
        with_uncertainty(history, clocks)
    with pytest.raises(ValueError, match="nothing is known of the clock of host 3"):
        with_uncertainty(history, within(range(3), 1))


def test_a_cycle_that_cannot_be_is_named() -> None:
    messages = [
        Message(7, 0, 0, 9_000_000, ""),
        Message(0, 100, 1, 90, "a"), Message(1, 100, 2, 105, "b"), Message(2, 200, 0, 150, "c"),
    ]  # fmt: skip
    with pytest.raises(InconsistentClocksError, match="miss one another by 55 ns") as caught:
        estimate(messages, hosts=(0, 1, 2))
    cycle = caught.value.cycle
    assert sorted(message.what for message in cycle) == ["a", "b", "c"]
    for one, other in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        assert one.receiver == other.sender


def test_offsets_of_random_systems_are_held_and_cannot_be_tighter() -> None:
    rng = random.Random(4)
    for _ in range(200):
        offsets = {host: rng.randrange(-1000, 1000) for host in range(rng.randint(2, 6))}
        messages = []
        for _ in range(rng.randint(1, 20)):
            one, other = rng.sample(list(offsets), 2)
            sent = rng.randrange(10_000)
            got = sent + rng.randrange(200)
            messages.append(Message(one, sent + offsets[one], other, got + offsets[other], ""))
        clocks = estimate(messages, offsets)
        assert holds(clocks, offsets)
        for host, offset in clocks.offsets.items():
            # A bound is tight: with it as a message, the offset is known; one less cannot be.
            if host != clocks.reference and offset.high_ns is not None:
                assert offset.high_ns >= (offset.low_ns or offset.high_ns)
                beyond = Message(host, offset.high_ns + 1, clocks.reference, 0, "beyond")
                with pytest.raises(InconsistentClocksError):
                    estimate([*messages, beyond], offsets)
                at = Message(host, offset.high_ns, clocks.reference, 0, "at")
                exact = estimate([*messages, at], offsets).offsets[host]
                assert exact == Offset(offset.high_ns, offset.high_ns)


@pytest.mark.parametrize("definition", ["round", "published"])
def test_skewed_live_sets_never_raise_a_false_alarm(definition: str) -> None:
    rng = random.Random(definition)
    spec = LiveProcesses(definition=definition)  # type: ignore[arg-type] # one of the two
    largest, alarms, narrowed, checked = 7, 0, 0, 0
    while checked < 300:
        history = random_history(rng)
        if isinstance(check(history, spec), Invalid):
            continue
        checked += 1
        hosts = history.header.participants
        offsets = {host: rng.randint(0, largest) for host in hosts}
        merged = skewed(history, offsets, scale=2)
        bounded = within(hosts, largest)
        alarms += isinstance(check(merged, spec), Invalid)
        allowed = with_uncertainty(merged, bounded)
        assert not isinstance(check(allowed, spec), Invalid)
        assert loads(allowed.to_text()).events == allowed.events
        if definition == "published":
            continue
        clocks = estimate(messages_of(merged), hosts, largest_ns=largest)
        assert holds(clocks, offsets)
        narrowed += clocks.offsets != bounded.offsets
        assert not isinstance(check(with_uncertainty(merged, clocks), spec), Invalid)
    assert alarms > 20
    assert definition == "published" or narrowed > 50


@pytest.mark.parametrize("name", ["register", "kv", "queue"])
def test_skewed_operations_never_raise_a_false_alarm(name: str) -> None:
    rng = random.Random(name)
    spec = spec_named(name)
    alarms = 0
    for _ in range(200):
        history = random_operations(rng, name, style="valid")
        offsets = {process: rng.randint(0, 6) for process in sorted({*history.process})}
        rows = [(history.process[i], history.at(i)) for i in range(len(history))]
        times: list[tuple[int, int | None]] = []
        for index, (process, _) in enumerate(rows):
            by, ended = offsets[process], history.ended_ns[index]
            end = None if ended == OPEN_NS else ended + by
            times.append((history.invoked_ns[index] + by, end))
        merged = from_intervals(rows, times, clock="wall")
        alarms += isinstance(check_operations(merged, spec), Invalid)
        allowed: Operations = with_uncertainty(merged, within(offsets, 6))
        assert not isinstance(check_operations(allowed, spec), Invalid)
        assert len(allowed) == len(merged)
    assert alarms > 3


def at_the_server(history: History, rng: random.Random) -> History:
    """What a service can have recorded of the calls: each arrives, and is replied to, in between."""
    moments: list[tuple[int, Event]] = []
    ends = {e.id: e for e in history.events if isinstance(e, Ok | Fail)}
    for event in history.events:
        if isinstance(event, Start):
            moments.append((event.time_ns, event))
        if isinstance(event, Invoke):
            end = ends.get(event.id)
            arrived = rng.randint(event.time_ns, event.time_ns + MS if end is None else end.time_ns)
            moments.append((arrived, replace(event, time_ns=arrived)))
            if end is not None:
                replied = rng.randint(arrived, end.time_ns)
                moments.append((replied, replace(end, time_ns=replied)))
    moments.sort(key=lambda moment: moment[0])
    number_of: dict[int, int] = {}
    events = []
    for _, event in moments:
        if isinstance(event, Invoke | Ok | Fail):
            event = replace(event, id=number_of.setdefault(event.id, len(number_of)))
        events.append(event)
    return History(replace(history.header, source="server"), events)


def test_values_and_barriers_and_both_ends_of_calls_are_messages() -> None:
    """Of real runs of our service, the true offsets are always among those thought possible."""
    rng = random.Random(11)
    kinds: set[str] = set()
    compared = 0
    for seed in range(12):
        callers = ServiceRun(seed).history()
        offsets = {host: rng.randrange(50 * MS) for host in callers.header.participants}
        merged = skewed(callers, offsets)
        messages = messages_of(merged)
        kinds.update(message.what.split()[2] for message in messages)
        assert holds(estimate(messages, offsets), offsets)
        there = dict.fromkeys(offsets, 20 * MS)
        both = messages_between(merged, skewed(at_the_server(callers, rng), there))
        clocks = estimate([*messages, *both], offsets)
        assert holds(clocks, {**offsets, -1: 20 * MS})
        compared += len(both)
    assert {"set", "came"} <= kinds
    assert compared > 40


def history_of(apart_ns: int, *, clock: str = "wall", uncertainty_ns: int = 0) -> History:
    """Two processes in two rounds; the clock of the second one is ahead."""
    sent = {0: [1 * MS, 20 * MS], 1: [2 * MS, 21 * MS]}
    events: list[Event] = [
        Start(time_ns=process * apart_ns, process=process, lifetime=0, incarnation=process)
        for process in (0, 1)
    ]
    number = 0
    for process, times in sent.items():
        for time_ns in times:
            common = {"process": process, "lifetime": 0, "uncertainty_ns": uncertainty_ns}
            at = time_ns + process * apart_ns
            call = Invoke(time_ns=at, id=number, operation="live_processes", arguments={}, **common)
            answer = Ok(time_ns=at + 3 * MS, id=number, result={0: 0, 1: 1}, **common)
            events += [call, answer]
            number += 1
    events.sort(key=lambda event: event.time_ns)
    return History(Header(source="manual", participants=(0, 1), clock=clock), events)


def test_the_report_says_how_far_clocks_are_apart() -> None:
    history = history_of(50 * MS)
    assert isinstance(check(history), Invalid)
    assert clock_report(history) == [
        "Clocks: by 4 messages, compared with the clock of process 0, that of",
        "  process 1 is between 48.000 ms ahead of it and 54.000 ms ahead of it",
        (
            "Times of the history are taken to be right within 0 ns, and clocks are 48.000 ms apart: a "
            "violation may be due to them (checker.clocks.with_uncertainty allows for it)."
        ),
    ]
    clocks = estimate(messages_of(history), (0, 1))
    assert check(with_uncertainty(history, clocks)).word == "valid"
    assert clock_report(history_of(50 * MS, clock="monotonic")) == []
    assert len(clock_report(history_of(1 * MS))) == 2
    alone = History(history.header, history.events[:1])
    assert clock_report(alone) == [
        "Clocks: several hosts, and no messages between them from which to compare clocks."
    ]


def test_the_report_says_when_no_offsets_fit() -> None:
    history = history_of(0)
    # The clock of process 1 is set forward by a second between the rounds.
    events = [
        replace(event, time_ns=event.time_ns + 1000 * MS)
        if event.process == 1 and event.time_ns > 15 * MS
        else event
        for event in history.events
    ]
    events.sort(key=lambda event: event.time_ns)
    [line] = clock_report(History(history.header, events))
    assert line.startswith("Clocks: no constant offsets of the clocks fit: host ")


def test_hosts_may_have_several_processes() -> None:
    history = history_of(50 * MS)
    messages = messages_of(history, host_of={0: 5, 1: 5})
    assert estimate(messages, (5,)).messages == 0
    moved = with_uncertainty(history, Clocks(5, {5: Offset(-2, 4)}), host_of={0: 5, 1: 5})
    assert {event.uncertainty_ns for event in moved.events} == {3}
    assert moved.events[0].time_ns == 0
    assert [e.time_ns for e in moved.events] == [
        e.time_ns - history.events[0].time_ns for e in history.events
    ]


def test_no_time_is_below_zero() -> None:
    register = from_intervals(
        [(0, Operation("write", argument=1, result=None)), (1, Operation("read", result=1))],
        [(0, 5), (3, 9)],
    )
    allowed = with_uncertainty(register, within((0, 1), 4))
    assert min(allowed.invoked_ns) == 0
    assert allowed.uncertainty_ns == 4
    assert check_operations(allowed, Register()).word == "valid"


def test_a_service_of_another_job_is_said_not_to_be_used(tmp_path: Path) -> None:
    """Beside the recordings of one host there is no clock to tell of then."""
    by = {"process": 0, "lifetime": 0}
    paths = []
    for number, source in enumerate(("processes", "server")):
        header = Header(source=source, participants=(0,), details={"host": "a"})
        start = Start(time_ns=5, incarnation=number, **by)
        paths.append(tmp_path / f"{source}.jsonl")
        History(header, [start]).save(paths[-1])
    part, server = map(read_part, paths)
    (sentence,) = join([part], servers=[server]).report
    assert sentence.startswith(f"{paths[1]} is not used: ")
