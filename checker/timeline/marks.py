"""Marks: what there is to show, each with its moment and its lane, in the order of the picture."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from checker.clock_text import ClockText
from checker.history.events import (
    Crash,
    Enter,
    Event,
    Exit,
    Fail,
    Info,
    Invoke,
    Leave,
    Ok,
    Start,
)
from checker.history.history import History
from checker.live_processes.witness import PlacedAnswer, PlacedFailure, Witness
from checker.timeline.facts import Facts
from checker.timeline.words import Words, process_set
from checker.verdict import Invalid, Valid, Verdict


class Sign(enum.Enum):
    """What a mark says about its lane; each has a symbol."""

    CONNECTING = enum.auto()
    START = enum.auto()
    DYING = enum.auto()
    CRASH = enum.auto()
    LEAVE = enum.auto()
    INVOKE = enum.auto()
    RESPONSE = enum.auto()
    ENTER = enum.auto()
    EXIT = enum.auto()
    TAKEN = enum.auto()
    ROUND = enum.auto()


@dataclass(frozen=True, slots=True)
class Mark:
    """One thing to show.

    Attributes:
      process: Its lane; None for a rule across all lanes.
      operation: For the two ends of an operation, which one it is.
      detail: Follows the text, on a line of its own if there is no room.
      is_accused: The anomaly names this operation.
    """

    sign: Sign
    time_ns: int
    text: str
    process: int | None = None
    lifetime: int = 0
    operation: int | None = None
    detail: str = ""
    is_accused: bool = False

    @property
    def text_and_detail(self) -> str:
        """All that there is to say."""
        return f"{self.text} {self.detail}" if self.detail else self.text


_Key: TypeAlias = tuple[int, int, int, int, int]
"""Time, position among events, 1 for what the witness adds, rank of its instant, order there."""


def marks_of(
    history: History, verdict: Verdict | None, facts: Facts, words: Words, clock: ClockText
) -> list[Mark]:
    """All marks of a history and its verdict, in the order in which they are drawn."""
    keyed = list(_event_marks(history, facts, words, _accused(verdict)))
    if isinstance(verdict, Valid) and isinstance(verdict.witness, Witness):
        keyed += _witness_marks(verdict.witness, facts, clock)
    keyed.sort(key=lambda pair: pair[0])
    return [mark for _, mark in keyed]


def _accused(verdict: Verdict | None) -> frozenset[int]:
    return frozenset(verdict.anomaly.operations) if isinstance(verdict, Invalid) else frozenset()


# --- events ------------------------------------------------------------------------------------


def _event_marks(
    history: History, facts: Facts, words: Words, accused: frozenset[int]
) -> Iterator[tuple[_Key, Mark]]:
    after_all = len(history.events)
    for position, event in enumerate(history.events):
        sign, text, operation = _said(event, facts, words)
        if facts.is_outlived(event.process, event.lifetime, event.time_ns):
            text += f" (lifetime {event.lifetime})"
        mark = Mark(
            sign,
            event.time_ns,
            text,
            event.process,
            event.lifetime,
            operation,
            is_accused=operation in accused,
        )
        yield (event.time_ns, position, 0, 0, 0), mark
        began = _beginning(event)
        if began is not None:
            # After whatever the process still did at that very moment.
            yield (began.time_ns, after_all, 0, 0, 0), began


def _beginning(event: Event) -> Mark | None:
    """The earlier end of an event that is known to lie in an interval."""
    if not isinstance(event, Start | Crash):
        return None
    if event.since_ns is None or event.since_ns == event.time_ns:
        return None
    sign, text = (
        (Sign.CONNECTING, "connecting")
        if isinstance(event, Start)
        else (Sign.DYING, "crash from here on")
    )
    return Mark(sign, event.since_ns, text, event.process, event.lifetime)


def _said(event: Event, facts: Facts, words: Words) -> tuple[Sign, str, int | None]:
    match event:
        case Start():
            text = "start" if event.lifetime == 0 else "restart"
            incarnation = facts.incarnation.get((event.process, event.lifetime))
            if incarnation is not None:
                text += f" {words.incarnation(incarnation)}"
            return Sign.START, text, None
        case Crash():
            is_point = event.since_ns is None or event.since_ns == event.time_ns
            text = "crash" if is_point else "crash by here"
            if event.cause is not None:
                text += f" ({words.clean(event.cause)})"
            return Sign.CRASH, text, None
        case Leave():
            return Sign.LEAVE, "leave", None
        case Invoke():
            return Sign.INVOKE, words.invocation(event), event.id
        case Ok():
            return Sign.RESPONSE, words.result(event), event.id
        case Fail() | Info():
            kind = "fail" if isinstance(event, Fail) else "info"
            return Sign.RESPONSE, f"#{event.id} {kind} {words.clean(event.code)}", event.id
        case Enter():
            return Sign.ENTER, words.entry(event), None
        case Exit():
            return Sign.EXIT, words.exit(event), None
        case _:
            assert_never(event)


# --- what the witness adds ---------------------------------------------------------------------


def _witness_marks(witness: Witness, facts: Facts, clock: ClockText) -> Iterator[tuple[_Key, Mark]]:
    answers = witness.answers
    keys = _answer_keys(answers, facts)
    if witness.noun == "round":
        for answer in answers:
            text = f"round {answer.number}: {process_set(answer.live)}"
            yield keys[answer.number], Mark(Sign.ROUND, answer.instant[0], text)
    for failure in witness.failures:
        yield _failure_key(failure, keys, facts), _failure_mark(failure, facts, clock)


def _answer_keys(answers: tuple[PlacedAnswer, ...], facts: Facts) -> dict[int, _Key]:
    """Where answers are drawn: their instants in order, each after its calls, before its ends."""
    keys: dict[int, _Key] = {}
    time_ns, position = 0, -1
    for answer in sorted(answers, key=lambda answer: answer.instant):
        wanted = _position(answer, facts)
        position = max(wanted, position) if answer.instant[0] == time_ns else wanted
        time_ns = answer.instant[0]
        keys[answer.number] = (time_ns, position, 1, answer.instant[1], 1)
    return keys


def _position(answer: PlacedAnswer, facts: Facts) -> int:
    time_ns = answer.instant[0]
    position = facts.last_position(time_ns)
    ended = [facts.ended_at[id_] for id_ in answer.operations if id_ in facts.ended_at]
    first_end = min(ended, default=position + 1)
    if facts.times[first_end : first_end + 1] == [time_ns]:
        position = min(position, first_end - 1)
    return max(position, *(facts.invoked_at[id_] for id_ in answer.operations))


def _failure_key(failure: PlacedFailure, keys: dict[int, _Key], facts: Facts) -> _Key:
    """Directly before the answer that leaves the process out, or after one that counts it in."""
    number, order = (failure.before, 0) if failure.before is not None else (failure.after, 2)
    time_ns = failure.taken_ns
    if number is not None and keys[number][0] == time_ns:
        return (*keys[number][:4], order)
    restart = facts.start_position(failure.process, time_ns)
    position = facts.last_position(time_ns) if restart is None else restart - 1
    return (time_ns, position, 1, 0, order)


def _failure_mark(failure: PlacedFailure, facts: Facts, clock: ClockText) -> Mark:
    if failure.recorded_ns is None:
        detail = "(none recorded)"
    else:
        end = facts.last.get((failure.process, failure.lifetime))
        word = "recorded" if isinstance(end, Crash) else "left"
        detail = f"({word} at {clock.at(failure.recorded_ns)})"
    text = "crash taken here"
    if facts.is_outlived(failure.process, failure.lifetime, failure.taken_ns):
        text += f" (lifetime {failure.lifetime})"
    return Mark(
        Sign.TAKEN, failure.taken_ns, text, failure.process, failure.lifetime, detail=detail
    )
