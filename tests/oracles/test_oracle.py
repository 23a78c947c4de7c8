"""The judge is judged: by the pictures of the guide, by tiny cases for each rule, by its own laws.

The tiny cases are written in a small language: the process, what it did, and the name of the call.
A prime is a restart (`1'` is lifetime 1 of process 1). An answer lists lifetimes; a question mark
leaves the incarnation out (`1?`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings

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
    LiveSet,
    Ok,
    Start,
    WellFormed,
)
from tests.executions import Execution, Reading, load
from tests.oracles.live_processes import is_valid
from tests.random_histories import histories, random_history

ROUND_SUSPICION: Reading = ("round", "suspicion")
ROUND_CRASH_STOP: Reading = ("round", "crash-stop")
PUBLISHED_SUSPICION: Reading = ("published", "suspicion")
PUBLISHED_CRASH_STOP: Reading = ("published", "crash-stop")

NOWHERE: frozenset[Reading] = frozenset()
SUSPICION_ONLY = frozenset({ROUND_SUSPICION, PUBLISHED_SUSPICION})
PUBLISHED_ONLY = frozenset({PUBLISHED_SUSPICION, PUBLISHED_CRASH_STOP})
EVERYWHERE = SUSPICION_ONLY | {ROUND_CRASH_STOP, PUBLISHED_CRASH_STOP}


def valid_under(history: History) -> frozenset[Reading]:
    return frozenset(
        (definition, failures)
        for definition, failures in EVERYWHERE
        if is_valid(history, definition=definition, failures=failures)
    )


def parse(text: str, *, processes: int = 2) -> History:
    """Reads the small language of this file."""
    header = Header(source="manual", participants=tuple(range(processes)), clock="abstract")
    events = [_event(at, words.split()) for at, words in enumerate(text.split(";"))]
    rules = WellFormed(header)
    for event in events:
        rules.accept(event)
    return History(header, events)


def _lifetime(word: str) -> tuple[int, int]:
    process = word.rstrip("'")
    return int(process), len(word) - len(process)


def _incarnation(word: str) -> int:
    process, lifetime = _lifetime(word)
    return 100 * (process + 1) + lifetime


def _event(at: int, words: list[str]) -> Event:
    who, verb, *rest = words
    process, lifetime = _lifetime(who)
    event: Event
    match verb:
        case "start":
            event = Start(time_ns=at, process=process, lifetime=lifetime)
        case "crash":
            event = Crash(time_ns=at, process=process, lifetime=lifetime)
        case "leave":
            event = Leave(time_ns=at, process=process, lifetime=lifetime)
        case "enter":
            block, live = ord(rest[0]), _live_set(rest[1:])
            event = Enter(time_ns=at, process=process, lifetime=lifetime, block=block, live=live)
        case "exit":
            block = ord(rest[0])
            event = Exit(
                time_ns=at, process=process, lifetime=lifetime, block=block, outcome="completed"
            )
        case _:
            event = _call_event(at, who, verb, call=ord(rest[0]), rest=rest[1:])
    return replace(event, incarnation=_incarnation(who))


def _call_event(at: int, who: str, verb: str, *, call: int, rest: list[str]) -> Event:
    process, lifetime = _lifetime(who)
    match verb:
        case "call" | "set" | "shutdown":
            participants = tuple(int(word) for word in rest)
            return Invoke(
                time_ns=at,
                process=process,
                lifetime=lifetime,
                id=call,
                operation={"call": LIVE_PROCESSES, "set": "key_value_set"}.get(verb, SHUTDOWN),
                arguments={"participants": participants} if participants else {},
            )
        case "ok":
            result = _live_set(rest) or None
            return Ok(time_ns=at, process=process, lifetime=lifetime, id=call, result=result)
        case "fail":
            return Fail(time_ns=at, process=process, lifetime=lifetime, id=call, code="ABORTED")
        case "info":
            return Info(time_ns=at, process=process, lifetime=lifetime, id=call, code="UNKNOWN")
        case _:
            raise ValueError(f"unknown verb {verb!r}")


def _live_set(words: list[str]) -> LiveSet:
    return {
        _lifetime(word.removesuffix("?"))[0]: None if "?" in word else _incarnation(word)
        for word in words
    }


# --- known executions -----------------------------------------------------------------------------


@pytest.mark.parametrize("execution", load(), ids=lambda execution: execution.name)
def test_the_executions_have_their_known_verdicts(execution: Execution) -> None:
    found = {
        (definition, failures): is_valid(
            execution.history, definition=definition, failures=failures
        )
        for definition, failures in execution.expect
    }
    assert found == dict(execution.expect)


# --- one rule each --------------------------------------------------------------------------------

CASES: Mapping[str, tuple[str, frozenset[Reading]]] = {
    "members of a round agree": (
        "0 start; 1 start; 0 call a; 1 call b; 0 ok a 0 1; 1 ok b 0 1",
        EVERYWHERE,
    ),
    "members of a round may not disagree (process 1 may die between the instants)": (
        "0 start; 1 start; 0 call a; 1 call b; 1 ok b 0 1; 0 ok a 0",
        PUBLISHED_ONLY,
    ),
    "a member must have called": (
        "0 start; 1 start; 0 call a; 0 ok a 0 1; 1 call b",
        NOWHERE,
    ),
    "the caller is in its answer": (
        "0 start; 1 start; 0 call a; 1 call b; 0 ok a 1",
        NOWHERE,
    ),
    "the caller is in its answer with its own incarnation": (
        "0 start; 0' start; 0' call a; 0' ok a 0",
        NOWHERE,
    ),
    "a pending call is counted after the recorded crash": (
        "1 start; 1 call b; 1 crash; 0 start; 0 call a; 0 ok a 0 1",
        EVERYWHERE,
    ),
    "a pending call is counted in one round only": (
        "0 start; 1 start; 1 call b; 0 call a; 0 ok a 0 1; 0 call c; 0 ok c 0 1",
        PUBLISHED_ONLY,
    ),
    "a failure that was not recorded may have happened": (
        "0 start; 1 start; 1 call b; 0 call a; 0 ok a 0",
        EVERYWHERE,
    ),
    "a clean leave is no more than a crash": (
        "0 start; 1 start; 1 call b; 1 leave; 0 call a; 0 ok a 0 1",
        EVERYWHERE,
    ),
    # Responses of kind info.
    "an info call is counted in a later round": (
        "0 start; 1 start; 1 call b; 1 info b; 0 call a; 0 ok a 0 1",
        EVERYWHERE,
    ),
    "an info call is counted although the caller goes on to call again": (
        (
            "0 start; 1 start; 1 call b; 1 info b; 1 call d; 0 call a; 0 ok a 0 1; 0 call c; "
            "1 ok d 0 1; 0 ok c 0 1"
        ),
        EVERYWHERE,
    ),
    "an info call need not be counted": (
        "0 start; 1 start; 1 call b; 1 info b; 1 call d; 0 call a; 0 ok a 0 1; 1 ok d 0 1",
        EVERYWHERE,
    ),
    "two info calls of one lifetime serve two rounds": (
        (
            "0 start; 1 start; 1 call b; 1 info b; 1 call d; 1 info d; 0 call a; 0 ok a 0 1; "
            "0 call c; 0 ok c 0 1"
        ),
        EVERYWHERE,
    ),
    "an info response counts as an event of its lifetime": (
        "0 start; 1 start; 1 call b; 0 call a; 0 ok a 0; 1 info b",
        SUSPICION_ONLY,
    ),
    # Responses of kind fail.
    "a fail call is not counted in a later round": (
        "0 start; 1 start; 1 call b; 1 fail b; 0 call a; 0 ok a 0 1",
        NOWHERE,
    ),
    "a fail call is not counted while it lasts": (
        "0 start; 1 start; 1 call b; 0 call a; 0 ok a 0 1; 1 fail b",
        NOWHERE,
    ),
    "a fail call leaves only the next call to be counted": (
        (
            "0 start; 1 start; 1 call b; 1 fail b; 1 call d; 0 call a; 0 ok a 0 1; 0 call c; "
            "1 ok d 0 1; 0 ok c 0 1"
        ),
        PUBLISHED_ONLY,
    ),
    "a definite error is no sign of life under suspicion": (
        "0 start; 1 start; 1 call b; 0 call a; 0 ok a 0; 1 fail b",
        SUSPICION_ONLY,
    ),
    # Suspicion.
    "what was excluded never comes back": (
        "0 start; 1 start; 0 call a; 0 ok a 0; 0 call c; 1 call b; 0 ok c 0 1",
        NOWHERE,
    ),
    "an answer may arrive after its caller was excluded": (
        "0 start; 1 start; 0 call a; 1 call b; 0 ok a 0 1; 0 call c; 0 ok c 0; 1 ok b 0 1",
        SUSPICION_ONLY,
    ),
    "an excluded process may call in vain": (
        "0 start; 1 start; 0 call a; 0 ok a 0; 1 call b",
        SUSPICION_ONLY,
    ),
    "an excluded process may enter and leave blocks": (
        (
            "0 start; 1 start; 0 call a; 1 call b; 0 ok a 0 1; 1 ok b 0 1; 0 call c; 0 ok c 0; "
            "1 enter x 0 1; 1 exit x"
        ),
        SUSPICION_ONLY,
    ),
    "another operation holds back if it was acknowledged": (
        "0 start; 1 start; 0 call a; 0 ok a 0; 1 set k; 1 ok k",
        NOWHERE,
    ),
    "another operation does not hold back if it was not acknowledged": (
        "0 start; 1 start; 0 call a; 0 ok a 0; 1 set k; 1 info k",
        SUSPICION_ONLY,
    ),
    "another operation holds back from its invocation only": (
        "0 start; 1 start; 1 set k; 0 call a; 0 ok a 0; 1 ok k",
        SUSPICION_ONLY,
    ),
    # Shutdown.
    "a lifetime may fail from the invocation of a shutdown": (
        "0 start; 1 start; 1 shutdown s; 0 call a; 0 ok a 0; 1 ok s",
        EVERYWHERE,
    ),
    "a shutdown of unknown outcome may have happened": (
        "0 start; 1 start; 1 shutdown s; 0 call a; 0 ok a 0; 1 info s",
        EVERYWHERE,
    ),
    "a shutdown that surely failed is an operation like others": (
        "0 start; 1 start; 1 shutdown s; 0 call a; 0 ok a 0; 1 fail s",
        SUSPICION_ONLY,
    ),
    "a lifetime has not left before it invoked shutdown": (
        "0 start; 1 start; 0 call a; 0 ok a 0; 1 shutdown s; 1 ok s",
        SUSPICION_ONLY,
    ),
    "a lifetime may take part until its shutdown takes effect": (
        "0 start; 1 start; 1 call b; 1 shutdown s; 0 call a; 0 ok a 0 1; 1 ok s; 1 ok b 0 1",
        EVERYWHERE,
    ),
    "what a lifetime does after its shutdown does not count": (
        "0 start; 1 start; 1 shutdown s; 0 call a; 0 ok a 0; 1 set k; 1 ok k; 1 ok s; 1 leave",
        EVERYWHERE,
    ),
    "what a lifetime does after its shutdown and restart does not count": (
        "1 start; 1 shutdown s; 1 ok s; 1' start; 1 set k; 1 ok k",
        EVERYWHERE,
    ),
    # Restarts and zombies.
    "a restarted process is not in the barrier by its old call": (
        "0 start; 1 start; 1 call b; 1' start; 0 call a; 0 ok a 0 1'",
        NOWHERE,
    ),
    "a failure cannot pass the restart": (
        "0 start; 1 start; 1 call b; 1' start; 0 call a; 0 ok a 0 1",
        NOWHERE,
    ),
    "a zombie acknowledged after the restart": (
        "1 start; 1' start; 1 set k; 1 ok k",
        NOWHERE,
    ),
    "a zombie acknowledged after the restart for what it did before": (
        "1 start; 1 set k; 1' start; 1 ok k",
        SUSPICION_ONLY,
    ),
    "a zombie that calls in vain": (
        "1 start; 1' start; 1 call b; 1 fail b",
        SUSPICION_ONLY,
    ),
    "a zombie answered for a round before the restart": (
        "0 start; 1 start; 0 call a; 1 call b; 1' start; 1 ok b 0 1",
        SUSPICION_ONLY,
    ),
    "a zombie answered for a call after the restart": (
        "1 start; 1' start; 1 call b; 1 ok b 1",
        NOWHERE,
    ),
    # Answers without incarnations.
    "an answer without incarnations means the old lifetime if only that fits": (
        "0 start; 1 start; 0 call a; 1 call b; 1' start; 0 ok a 0? 1?",
        EVERYWHERE,
    ),
    "an answer without incarnations means the new lifetime if only that fits": (
        "0 start; 1 start; 0 call a; 1' start; 1' call b; 0 ok a 0? 1?",
        EVERYWHERE,
    ),
    "an answer without incarnations means no lifetime if none fits": (
        "0 start; 1 start; 0 call a; 1' start; 0 ok a 0? 1?",
        NOWHERE,
    ),
    "an answer without incarnations agrees with another of its round": (
        (
            "0 start; 1 start; 2 start; 0 call a; 2 call c; 1 call b; 1' start; 1' call d; "
            "0 ok a 0 1? 2; 2 ok c 0 1' 2"
        ),
        EVERYWHERE,
    ),
    "two answers that mean different lifetimes are of two rounds": (
        (
            "0 start; 1 start; 2 start; 0 call a; 2 call c; 1 call b; 1' start; 1' call d; "
            "0 ok a 0 1 2; 2 ok c 0 1' 2"
        ),
        PUBLISHED_ONLY,
    ),
    # Participant sets.
    "who is not a participant may live on": (
        "0 start; 1 start; 2 start; 0 call a 0 1; 1 call b 0 1; 0 ok a 0 1; 1 ok b 0 1; 2 call c",
        EVERYWHERE,
    ),
    "calls with different participants do not meet": (
        "0 start; 1 start; 0 call a 0 1; 1 call b 0 1 2; 0 ok a 0 1",
        NOWHERE,
    ),
    "all participants by name are all participants": (
        "0 start; 1 start; 0 call a; 1 call b 2 1 0; 0 ok a 0 1",
        EVERYWHERE,
    ),
    "an answer names participants only": (
        "0 start; 2 start; 0 call a 0 1; 2 call c 0 1; 0 ok a 0 2",
        NOWHERE,
    ),
    "calls of one lifetime with different participants may overlap": (
        (
            "0 start; 1 start; 2 start; 0 call a; 0 call b 0 1; 1 call c 0 1; 0 ok b 0 1; "
            "1 ok c 0 1; 1 call d; 2 call e; 0 ok a 0 1 2"
        ),
        EVERYWHERE,
    ),
    "who is dead for some participants is dead for all": (
        "0 start; 1 start; 0 call a 0 1; 0 ok a 0; 0 call b; 1 call c; 0 ok b 0 1",
        NOWHERE,
    ),
    "who is alive for some participants may be dead for the next": (
        "0 start; 1 start; 1 call c; 0 call b; 0 ok b 0 1; 0 call a 0 1; 0 ok a 0",
        EVERYWHERE,
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_rule(text: str, expected: frozenset[Reading]) -> None:
    assert valid_under(parse(text, processes=3)) == expected


def _without_incarnation(event: Event) -> Event:
    return replace(event, incarnation=None)


def test_an_incarnation_may_be_learned_from_any_event_of_the_lifetime() -> None:
    history = parse("0 start; 0 call a; 0 ok a 0; 0 set k")
    *before, last = history.events
    learned_late = History(history.header, [*map(_without_incarnation, before), last])
    assert valid_under(learned_late) == EVERYWHERE


def test_an_incarnation_that_no_lifetime_has_is_in_no_barrier() -> None:
    history = parse("0 start; 0 call a; 0 ok a 0")
    never_learned = History(history.header, [*map(_without_incarnation, history.events)])
    assert valid_under(never_learned) == NOWHERE


def test_an_unknown_reading_is_refused() -> None:
    history = parse("0 start")
    with pytest.raises(ValueError, match="unknown definition 'sharp'"):
        is_valid(history, definition="sharp", failures="suspicion")
    with pytest.raises(ValueError, match="unknown failure model 'byzantine'"):
        is_valid(history, definition="round", failures="byzantine")


# --- laws -----------------------------------------------------------------------------------------


@settings(deadline=None)
@given(histories())
def test_random_histories_are_well_formed(history: History) -> None:
    rules = WellFormed(history.header)
    for event in history.events:
        rules.accept(event)
    assert _are_strictly_increasing(event.time_ns for event in history.events)


def _are_strictly_increasing(times: Iterable[int]) -> bool:
    ordered = list(times)
    return ordered == sorted(set(ordered))


@settings(deadline=None)
@given(histories())
def test_round_implies_published(history: History) -> None:
    valid = valid_under(history)
    assert ROUND_SUSPICION not in valid or PUBLISHED_SUSPICION in valid
    assert ROUND_CRASH_STOP not in valid or PUBLISHED_CRASH_STOP in valid


@settings(deadline=None)
@given(histories())
def test_valid_under_crash_stop_implies_valid_under_suspicion(history: History) -> None:
    valid = valid_under(history)
    assert ROUND_CRASH_STOP not in valid or ROUND_SUSPICION in valid
    assert PUBLISHED_CRASH_STOP not in valid or PUBLISHED_SUSPICION in valid


@settings(deadline=None)
@given(histories())
def test_each_prefix_of_a_valid_history_is_valid(history: History) -> None:
    """A checker that reads a running recording must not reject what more events would excuse."""
    known = {(e.process, e.lifetime): e.incarnation for e in history.events if e.incarnation}
    events = [
        replace(event, incarnation=known.get((event.process, event.lifetime)))
        for event in history.events
    ]
    still_valid = EVERYWHERE
    for length in range(len(events) + 1):
        valid = valid_under(History(history.header, events[:length]))
        assert valid <= still_valid
        still_valid = valid


def test_random_histories_get_both_verdicts_often_under_each_reading() -> None:
    """A generator whose histories are nearly all valid, or all invalid, tests nothing."""
    count = 400
    valid = Counter(
        reading
        for seed in range(count)
        for reading in valid_under(random_history(random.Random(seed)))
    )
    for reading in EVERYWHERE:
        assert 0.1 * count <= valid[reading] <= 0.9 * count, (reading, valid[reading])


def test_a_seed_determines_the_history() -> None:
    assert random_history(random.Random(7)) == random_history(random.Random(7))
