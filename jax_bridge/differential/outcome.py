"""What came of a run, without its times: facts, by which runs on different services are compared.

Two runs of one schedule never have the same times, incarnations or operation numbers. What is left is
what a program can notice: how each start of a process ended, the blocks it went through, what each
call was answered, what it said. In place of incarnations stand the process and the start that drew them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from checker.history import (
    LIVE_PROCESSES,
    Crash,
    Enter,
    Exit,
    Fail,
    History,
    Info,
    Invoke,
    Leave,
    Ok,
    Start,
)
from coord_sim.core.status import Code
from coord_sim.sim import KILLED, Run
from coord_sim.sim.run import RAISED

ENDS: Final = "ends"
BLOCKS: Final = "blocks"
ANSWERS: Final = "answers"
WORDS: Final = "words"
LEVELS: Final = (ENDS, BLOCKS, ANSWERS, WORDS)
"""What kinds of facts there are, the coarsest first."""

ENDED_BY_ITSELF: Final = "ended by itself"
ENDED_BY_CLIENT: Final = "ended by its client"
PENDING: Final = "no answer"
ABSENT: Final = "absent"
"""In place of what one of two outcomes has and the other has not."""

Incarnations: TypeAlias = Mapping[int, tuple[int, int]]

_CODES: Final = "|".join(code.name for code in Code)
_STATUS: Final = re.compile(rf"\b({_CODES}):")
_TRAILER: Final = re.compile(
    r"(\n\s*RPC: /\S+)?\s*\[type\.googleapis\.com/.*\Z|\n\s*RPC: /.*\Z", re.DOTALL
)
"""jaxlib's client adds which call it was, and the payloads of the answer."""

_TASKS: Final = re.compile(
    r"(?P<before>reached the barrier: (?P<reached>\d+)/(?P<members>\d+)\..*task names:\n)"
    r"(?P<names>\d+(?:\n\d+)*)",
    re.DOTALL,
)
"""The service names the missing, or the first of them, in the order of a hash table."""

_LEADING_CODE: Final = re.compile(rf"^(?:{_CODES}): ?")
_RAISED: Final = re.compile(rf"{RAISED}(\w+)(?:: ({_CODES})\b)?")
_NUMBERS: Final = re.compile(r"\d{15,}|\d+\.\d+")
"""Incarnations and times in texts."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a fact is.

    Attributes:
      process: Whose it is; -1: of the whole run.
      lifetime: Of which start of it.
      what: Of what: `its end`, `block`, `barrier sync`, ...
      count: The how manieth of its kind in this start, from 1; 0 where there is only one.
    """

    process: int
    lifetime: int
    what: str
    count: int = 0

    def __str__(self) -> str:
        which = self.what + (f" #{self.count}" if self.count else "")
        if self.process < 0:
            return which
        start = f", start {self.lifetime + 1}" if self.lifetime else ""
        return f"process {self.process}{start}: {which}"


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that a program could notice.

    Attributes:
      level: Of `LEVELS`.
      value: In words.
      at_s: When it was seen; it is not compared.
    """

    level: str
    value: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact that two outcomes do not share.

    Attributes:
      place: Where.
      level: Of `LEVELS`.
      found: What the one has, or `ABSENT`.
      expected: What the other has, or `ABSENT`.
      at_s: When the one saw it, or else the other.
    """

    place: Place
    level: str
    found: str
    expected: str
    at_s: float

    def __str__(self) -> str:
        return f"{self.place}: {self.found}; in the simulator: {self.expected}"


Outcome: TypeAlias = Mapping[Place, Fact]


def outcome_of(run: Run) -> Outcome:
    """The facts of a run."""
    facts: dict[Place, Fact] = {}
    for place, fact in (*_of_events(run.history), *_of_ends(run), *_of_words(run)):
        assert place not in facts, f"two facts in one place: {place}"
        facts[place] = fact
    return facts


def differences(found: Outcome, expected: Outcome) -> list[Difference]:
    """Where two outcomes differ, in the order of time."""
    told = []
    for place in found.keys() | expected.keys():
        mine, theirs = found.get(place), expected.get(place)
        if mine is None or theirs is None or mine.value != theirs.value:
            known = mine or theirs
            assert known is not None
            told.append(
                Difference(
                    place,
                    known.level,
                    ABSENT if mine is None else mine.value,
                    ABSENT if theirs is None else theirs.value,
                    known.at_s,
                )
            )
    return sorted(told, key=lambda each: (each.at_s, each.place))


def said(text: str) -> str:
    """A text without what differs from run to run, nor jaxlib's trailer; tasks are listed in order."""

    def in_order(match: re.Match[str]) -> str:
        names = sorted(match["names"].split(), key=int)
        are_all = len(names) == int(match["members"]) - int(match["reached"])
        return match["before"] + ("\n".join(names) if are_all else f"{len(names)} of them")

    text = _NUMBERS.sub("…", _TRAILER.sub("", text)).strip()
    return _TASKS.sub(in_order, text)


def _message(code: str, message: str) -> str:
    """Code and first line: recorders of real processes keep no more, and have the code in it."""
    line = said(_LEADING_CODE.sub("", message.partition("\n")[0]))
    return f"{code}: {line}"


# --- events ------------------------------------------------------------------------------------


def _of_events(history: History) -> Iterator[tuple[Place, Fact]]:
    known: Incarnations = {
        event.incarnation: (event.process, event.lifetime)
        for event in history.events
        if isinstance(event, Start) and event.incarnation is not None
    }
    counts: Counter[tuple[int, int, str]] = Counter()
    calls: dict[int, tuple[Place, str]] = {}
    blocks: dict[tuple[int, int, int], tuple[Place, str]] = {}
    open_facts: dict[Place, Fact] = {}

    def place(event: Invoke | Enter, what: str) -> Place:
        counts[event.process, event.lifetime, what] += 1
        count = counts[event.process, event.lifetime, what]
        return Place(event.process, event.lifetime, what, count)

    for event in history.events:
        at_s = event.time_ns / 1e9
        match event:
            case Start():
                yield (
                    Place(event.process, event.lifetime, "its registration"),
                    Fact(ENDS, "done", at_s),
                )
            case Crash():
                yield _end(event, _cause(event.cause or ""))
            case Leave():
                yield _end(event, ENDED_BY_ITSELF)
            case Invoke():
                call = place(event, _call(event))
                calls[event.id] = call, event.operation
                open_facts[call] = Fact(ANSWERS, PENDING, at_s)
            case Ok() | Fail() | Info():
                call, operation = calls[event.id]
                open_facts[call] = Fact(ANSWERS, _answer(event, operation, known), at_s)
                if not isinstance(event, Ok):
                    message = Place(
                        call.process, call.lifetime, f"message of {call.what}", call.count
                    )
                    yield message, Fact(WORDS, _message(event.code, event.message), at_s)
            case Enter():
                block = place(event, "block")
                live = f"with {_live(event.live, known)}"
                blocks[event.process, event.lifetime, event.block] = block, live
                open_facts[block] = Fact(BLOCKS, f"{live}, not left", at_s)
            case Exit():
                block, live = blocks[event.process, event.lifetime, event.block]
                failed = f", naming {list(event.failed)}" if event.failed else ""
                open_facts[block] = Fact(BLOCKS, f"{live}, {event.outcome}{failed}", at_s)
    yield from open_facts.items()


def _end(event: Crash | Leave, how: str) -> tuple[Place, Fact]:
    return Place(event.process, event.lifetime, "its end"), Fact(ENDS, how, event.time_ns / 1e9)


def _cause(cause: str) -> str:
    """How a process died; the words of a client that ended its process differ from its code."""
    if cause.startswith(KILLED):
        return "killed"
    raised = _RAISED.search(cause)
    if raised is not None:
        return f"raised {raised[1]}" + (f" {raised[2]}" if raised[2] else "")
    status = _STATUS.search(cause)
    return f"{ENDED_BY_CLIENT}: " + (status[1] if status is not None else said(cause))


def _call(event: Invoke) -> str:
    arguments = event.arguments
    subject = arguments.get("key", arguments.get("barrier"))
    words = [event.operation] if subject is None else [event.operation, str(subject)]
    members = arguments.get("participants") or arguments.get("processes")
    if members is not None:
        words.append(f"of {list(members)}")  # type: ignore[call-overload]
    return " ".join(words)


def _answer(event: Ok | Fail | Info, operation: str, known: Incarnations) -> str:
    if not isinstance(event, Ok):
        return event.code
    if operation == LIVE_PROCESSES and isinstance(event.result, Mapping):
        return _live(event.result, known)
    if operation == "barrier" or event.result is None:
        return "OK"  # The counters of barriers are their client's business.
    return json.dumps(event.result, default=dict, sort_keys=True)


def _live(live: Mapping[int, int | None], known: Incarnations) -> str:
    """A live set, with starts in place of incarnations: `{0, 1 (start 2)}`."""
    told = []
    for process, incarnation in sorted(live.items()):
        owner = None if incarnation is None else known.get(incarnation)
        if owner is None:
            told.append(f"{process} (not registered in the history)")
        elif owner[0] != process:
            told.append(f"{process} (process {owner[0]}, start {owner[1] + 1})")
        else:
            told.append(f"{process} (start {owner[1] + 1})" if owner[1] else str(process))
    return f"{{{', '.join(told)}}}"


# --- ends and words ----------------------------------------------------------------------------


def _of_ends(run: Run) -> Iterator[tuple[Place, Fact]]:
    for end in run.ends:
        at_s = run.end_s if end.at_s is None else end.at_s
        yield Place(end.process, 0, "at the end of the run"), Fact(ENDS, end.state, at_s)


def _of_words(run: Run) -> Iterator[tuple[Place, Fact]]:
    counts: Counter[tuple[int, int]] = Counter()
    for line in run.log:
        counts[line.process, line.lifetime] += 1
        count = counts[line.process, line.lifetime]
        place = Place(line.process, line.lifetime, "what it said", count)
        yield place, Fact(WORDS, said(line.text), line.time_s)
