"""Verifies the witness of a valid verdict against the definition, knowing nothing of how it was found.

Of the failures a witness shows only those that moved, so this asks whether instants of failure exist:
each lifetime's must come after everything that shows it alive and before everything that shows it
dead.
"""

from __future__ import annotations

from checker import Witness
from checker.history import LIVE_PROCESSES, Fail, History, Invoke, Ok, Start
from tests.oracles.live_processes import signs_of_life

Instant = tuple[int, int]
LifetimeKey = tuple[int, int]


def verify_rounds(history: History, witness: Witness, *, failures: str) -> None:
    """Asserts that the rounds of `witness` satisfy the round reading under a failure model."""
    everybody = history.header.participants
    calls = {
        event.id: event
        for event in history.events
        if isinstance(event, Invoke) and event.operation == LIVE_PROCESSES
    }
    answers = {event.id: event for event in history.events if isinstance(event, Ok)}
    refused = {event.id for event in history.events if isinstance(event, Fail)}
    incarnations = {
        (event.process, event.lifetime): event.incarnation
        for event in history.events
        if event.incarnation is not None
    }
    starts = {
        (event.process, event.lifetime): event.time_ns
        for event in history.events
        if isinstance(event, Start)
    }
    placed = [id_ for answer in witness.answers for id_ in answer.operations]
    assert len(placed) == len(set(placed)), "a call is in one round at most"
    assert {id_ for id_ in calls if id_ in answers} <= set(placed), "an answered call is in a round"
    assert not refused & set(placed), "a refused call is in no round"

    alive_until: dict[LifetimeKey, Instant] = {}
    for at in signs_of_life(history.events, failures=failures):
        event = history.events[at]
        alive_until[event.process, event.lifetime] = (event.time_ns, 0)
    for answer in witness.answers:
        members = [calls[id_] for id_ in answer.operations]
        assert sorted(call.process for call in members) == list(answer.live)
        (participants,) = {frozenset(c.arguments.get("participants", everybody)) for c in members}  # type: ignore[call-overload]
        assert set(answer.live) <= participants
        for call in members:
            key = (call.process, call.lifetime)
            assert call.time_ns <= answer.instant[0], "the instant is inside the call"
            assert all(
                answer.instant[0] <= start
                for other, start in starts.items()
                if other[0] == call.process and start > starts[key]
            ), "a member has not restarted"
            alive_until[key] = max(alive_until.get(key, (0, 0)), answer.instant)
            if call.id not in answers:
                continue
            assert answer.instant[0] <= answers[call.id].time_ns, "the instant is inside the call"
            told = answers[call.id].result
            assert isinstance(told, dict)
            assert set(told) == set(answer.live), "a round has one answer"
            for member in members:
                incarnation = told[member.process]
                assert incarnation in (None, incarnations.get((member.process, member.lifetime)))

    for answer in witness.answers:
        (participants,) = {
            frozenset(calls[id_].arguments.get("participants", everybody))  # type: ignore[call-overload]
            for id_ in answer.operations
        }
        for key, start in starts.items():
            if key[0] in participants - set(answer.live) and start < answer.instant[0]:
                until = alive_until.get(key, (start, 0))
                assert until < answer.instant, "whoever is left out is dead"
