"""Whole histories of the service, object by object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from checker.errors import MalformedHistory
from checker.history import (
    LIVE_PROCESSES,
    Event,
    Fail,
    Header,
    History,
    Info,
    Invoke,
    Ok,
    Response,
    Start,
)
from checker.service import ObjectVerdict, check_service
from checker.verdict import Invalid, Unknown, Valid
from coord_sim.schedule import Schedule
from coord_sim.sim import draw_faults, simulate, training_loop
from tests.checker.service.service_runs import ServiceRun


@pytest.mark.parametrize("edge", ["processes", "server"])
@pytest.mark.parametrize("semantics", ["published", "shipped"])
def test_histories_of_our_service_are_valid(semantics: str, edge: str) -> None:
    """Of the shipped one that holds for the store and barriers: it breaks live sets (see the notes)."""
    rows: Counter[str] = Counter()
    for seed in range(25):
        run = ServiceRun(seed, processes=2 + seed % 3, semantics=semantics, edge=edge)
        for row in check_service(run.history()):
            if row.object.startswith("live set") and semantics == "shipped":
                continue
            assert isinstance(row.verdict, Valid), (seed, row.object, row.verdict)
            rows[row.object.split()[0]] += row.operations
    assert min(rows[kind] for kind in ("key", "keys", "barrier")) > 100


def test_simulated_training_is_valid_down_to_every_object() -> None:
    for seed in range(15):
        faults = draw_faults(seed, 3, until_s=5.0, heartbeat_timeout_s=3.0)
        schedule = Schedule(processes=3, seed=seed, faults=faults, semantics="published")
        rows = check_service(simulate(training_loop(), schedule).history)
        words = {row.object: row.word for row in rows}
        assert words.pop("shutdown") == "not checked"
        assert words.keys() >= {"live set", "blocks", "key 'step/0'"}
        assert set(words.values()) == {"valid"}, words


def _changed(
    history: History, change: Callable[[Event], Event | None], which: int
) -> History | None:
    """The history with the `which`-th event changed for which `change` has something else."""
    events = list(history.events)
    for index, event in enumerate(events):
        other = change(event)
        if other is not None:
            if which == 0:
                events[index] = other
                return replace(history, events=events)
            which -= 1
    return None


def _of(history: History, operation: str) -> frozenset[int]:
    return frozenset(
        event.id
        for event in history.events
        if isinstance(event, Invoke) and event.operation == operation
    )


@pytest.mark.parametrize(
    "operation",
    ["key_value_try_get", "key_value_get", "key_value_increment", "key_value_dir_get", "barrier"],
)
def test_a_service_that_gives_wrong_answers_is_found_out(operation: str) -> None:
    found: Counter[str] = Counter()
    for seed in range(12):
        history = ServiceRun(seed, calls=40).history()
        ids = _of(history, operation)

        def change(event: Event, ids: frozenset[int] = ids) -> Event | None:
            if not isinstance(event, Ok) or event.id not in ids:
                return None
            if operation == "barrier":
                # It was told that the barrier failed, and the others that they passed.
                return Fail(
                    time_ns=event.time_ns,
                    process=event.process,
                    lifetime=event.lifetime,
                    id=event.id,
                    code="INVALID_ARGUMENT",
                )
            wrong: object = {"text": "never stored"}
            if operation == "key_value_increment":
                wrong = 77
            elif operation == "key_value_dir_get":
                wrong = [["a/z", wrong]]
            return replace(event, result=wrong)

        for which in range(3):
            wrong = _changed(history, change, which)
            if wrong is not None:
                rows = [row for row in check_service(wrong) if row.word != "valid"]
                found[rows[0].word if rows else "valid"] += 1
    assert found["invalid"] > 10
    assert found["invalid"] == found.total() or operation == "barrier"


def test_every_operation_is_in_one_row() -> None:
    history = ServiceRun(3).history()
    rows = check_service(history)
    assert sum(row.operations for row in rows) == sum(
        isinstance(event, Invoke) for event in history.events
    )


# --- by hand -----------------------------------------------------------------------------------------


def history_of(
    *calls: tuple[str, dict[str, Any], Response | object],
    source: str = "manual",
    processes: int = 2,
) -> History:
    """Calls one after the other, with what came back: a result, or the class of an error."""
    events: list[Event] = [
        Start(time_ns=0, process=process, lifetime=0, incarnation=100 + process)
        for process in range(processes)
    ]
    for number, (operation, arguments, outcome) in enumerate(calls):
        at: dict[str, Any] = {"process": number % processes, "lifetime": 0, "id": 10 + number}
        begin_ns = 1 + 2 * number
        events.append(Invoke(time_ns=begin_ns, operation=operation, arguments=arguments, **at))
        if isinstance(outcome, Fail | Info):
            events.append(replace(outcome, time_ns=begin_ns + 1, **at))
        else:
            events.append(Ok(time_ns=begin_ns + 1, result=outcome, **at))
    header = Header(source=source, participants=tuple(range(processes)))
    return History(header, events)


def fail(code: str, message: str = "") -> Fail:
    return Fail(time_ns=0, process=0, lifetime=0, id=0, code=code, message=message)


def info(code: str) -> Info:
    return Info(time_ns=0, process=0, lifetime=0, id=0, code=code)


def words(rows: tuple[ObjectVerdict, ...]) -> dict[str, str]:
    return {row.object: row.word for row in rows}


def text(value: str) -> dict[str, str]:
    return {"text": value}


def test_errors_tell_what_they_tell() -> None:
    rows = check_service(
        history_of(
            ("key_value_try_get", {"key": "a"}, fail("NOT_FOUND")),
            ("key_value_set", {"key": "a", "value": text("x"), "allow_overwrite": False}, None),
            ("key_value_try_get", {"key": "a"}, fail("NOT_FOUND")),
            ("key_value_set", {"key": "b", "value": text("x")}, fail("ALREADY_EXISTS")),
            ("key_value_set", {"key": "c", "value": text("x")}, fail("INVALID_ARGUMENT")),
            ("key_value_try_get", {"key": "c"}, fail("NOT_FOUND")),
            ("key_value_set", {"key": "d", "value": text("x")}, info("UNAVAILABLE")),
            ("key_value_try_get", {"key": "d"}, fail("NOT_FOUND")),
            ("key_value_try_get", {"key": "//d/"}, text("x")),
            (
                "key_value_increment",
                {"key": "e", "increment": 1},
                fail("FAILED_PRECONDITION", "stale"),
            ),
            (
                "key_value_increment",
                {"key": "f", "increment": 1},
                fail("FAILED_PRECONDITION", 'Failed to parse value "" as an integer.'),
            ),
        )
    )
    assert words(rows) == {
        "key 'a'": "invalid",
        "key 'b'": "invalid",
        "key 'c'": "valid",
        "key 'd'": "valid",
        "key 'e'": "valid",
        "key 'f'": "invalid",
    }
    by_name = {row.object: row for row in rows}
    verdict = by_name["key 'a'"].verdict
    assert isinstance(verdict, Invalid)
    assert 12 in verdict.anomaly.operations  # The history's ids.


def test_directories_join_keys() -> None:
    entries = [["a/b", text("1")]]
    rows = check_service(
        history_of(
            ("key_value_set", {"key": "a/b", "value": text("1")}, None),
            ("key_value_set", {"key": "a", "value": text("2")}, None),
            ("key_value_set", {"key": "ab", "value": text("3")}, None),
            ("key_value_dir_get", {"key": "a"}, entries),
            ("key_value_dir_get", {"key": "/"}, []),
            ("key_value_set", {"key": "c", "value": text("3")}, None),
            ("key_value_delete", {"key": "c"}, None),
            ("key_value_dir_get", {"key": "x"}, info("UNAVAILABLE")),
            ("key_value_set", {"key": "x/y", "value": text("3")}, None),
        )
    )
    assert words(rows) == {
        "keys 'a/', 'a/b'": "valid",
        "directory '/'": "valid",
        "key 'a'": "valid",
        "key 'ab'": "valid",
        "key 'c'": "valid",
        "directory 'x/'": "valid",
        "key 'x/y'": "valid",
    }
    deleted = history_of(
        ("key_value_set", {"key": "a/b", "value": text("1")}, None),
        ("key_value_delete", {"key": "a"}, None),
        ("key_value_dir_get", {"key": "a"}, entries),
    )
    assert words(check_service(deleted)) == {"keys 'a', 'a/', 'a/b'": "invalid"}


def test_what_is_not_checked_is_said() -> None:
    rows = check_service(
        history_of(
            ("shutdown", {}, None),
            ("launch_rocket", {"key": "a"}, None),
            ("barrier", {"barrier": "Shutdown::1", "processes": None, "timeout_ms": 1}, None),
        )
    )
    assert [row.word for row in rows] == ["not checked"] * 3
    assert all(row.reason and row.verdict is None for row in rows)


def test_a_time_out_cannot_come_before_its_time() -> None:
    late = history_of(
        ("barrier", {"barrier": "b", "timeout_ms": 0}, info("DEADLINE_EXCEEDED")),
        ("barrier", {"barrier": "c", "timeout_ms": 60_000}, info("DEADLINE_EXCEEDED")),
    )
    rows = {row.object: row for row in check_service(late)}
    assert rows["barrier 'b'"].word == "valid"
    verdict = rows["barrier 'c'"].verdict
    assert isinstance(verdict, Invalid)
    assert verdict.anomaly.kind == "barrier-timed-out-early"
    assert verdict.anomaly.operations == (11,)


def test_a_recording_of_the_service_may_begin_with_a_full_store() -> None:
    calls = (
        ("key_value_increment", {"key": "n", "increment": 1}, 6),
        ("key_value_try_get", {"key": "a"}, text("x")),
    )
    seen = check_service(history_of(*calls, source="server"))
    assert words(seen) == {"key 'a'": "unknown", "key 'n'": "unknown"}
    assert isinstance(seen[0].verdict, Unknown)
    assert "'x'" in seen[0].verdict.reason
    assert words(check_service(history_of(*calls))) == {"key 'a'": "invalid", "key 'n'": "invalid"}


def test_live_sets_of_all_participants_are_one_object() -> None:
    live = {0: 100, 1: 101}
    events: list[Event] = [
        Start(time_ns=0, process=process, lifetime=0, incarnation=100 + process) for process in live
    ]
    for number, participants in enumerate(((0,), (1,))):
        at = {"process": number, "lifetime": 0, "id": number}
        arguments = {"participants": participants}
        events.append(Invoke(time_ns=1, operation=LIVE_PROCESSES, arguments=arguments, **at))
    for number, incarnation in live.items():
        answer = {number: incarnation}
        events.append(Ok(time_ns=2, process=number, lifetime=0, id=number, result=answer))
    [row] = check_service(History(Header(source="manual", participants=(0, 1)), events))
    assert (row.object, row.operations, row.word) == ("live sets", 2, "valid")


@pytest.mark.parametrize(
    ("operation", "arguments", "word"),
    [
        ("key_value_set", {"key": "a"}, "takes a value"),
        ("key_value_set", {"value": text("x")}, "key is a string"),
        ("key_value_increment", {"key": "a"}, "takes an integer"),
        ("barrier", {"barrier": "b", "processes": 7}, "members"),
        ("cancel_barrier", {"barrier": "b"}, "counter"),
    ],
)
def test_calls_that_cannot_be_are_refused(
    operation: str, arguments: dict[str, object], word: str
) -> None:
    with pytest.raises(MalformedHistory, match=rf"operation 10.*{word}"):
        check_service(history_of((operation, arguments, None)))


def test_time_that_is_over_is_said() -> None:
    history = ServiceRun(0).history()
    for row in check_service(history, timeout_s=0.0):
        if row.object.startswith("key"):
            assert isinstance(row.verdict, Unknown)
            assert "time" in row.verdict.reason


def test_an_empty_history_has_no_objects() -> None:
    assert check_service(History(Header(source="manual", participants=(0,)), ())) == ()
