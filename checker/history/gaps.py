"""Recordings that stopped before their processes did: what these may have called from then on.

A recorder ends its recording when the disk is full, and a copy of a recording may be cut. The process
goes on: others are told that it is alive, pass barriers with it, and read what it set. Each of these
is explained by a call of unknown outcome that the process may have made, so that no checker takes for
broken what was only not recorded. What others were told is still judged among themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, TypeAlias, cast

from checker.history.events import (
    LIVE_PROCESSES,
    Crash,
    Event,
    Fail,
    Fault,
    Info,
    Invoke,
    Leave,
    LiveSet,
    Ok,
    Start,
)
from checker.history.history import History
from checker.history.keys import is_under, normalised

ROUNDS_MAX: Final = 300
"""With more unrecorded rounds of the same participants, their live sets are not judged."""

RECORDING_STOPPED: Final = "its recording stopped"

NOT_RECORDED: Final = "calls that were not recorded"
"""How an entry of `Header.cannot_know` begins that tells of a gap."""

_CODE: Final = "UNKNOWN"
_BARRIER: Final = "barrier"
_SET, _DELETE, _INCREMENT = "key_value_set", "key_value_delete", "key_value_increment"
_GET, _TRY_GET, _DIR_GET = "key_value_get", "key_value_try_get", "key_value_dir_get"

_NO_NUMBER: Final = "Failed to parse value"
"""In the message of an increment that found no number."""

_Value: TypeAlias = object
"""A value of the store as histories write it; None where there is none."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A recording that stopped too early.

    Attributes:
      process: Whose it is.
      lifetime: The last one that it tells, or None if it tells none.
    """

    process: int
    lifetime: int | None


def with_gaps(history: History, gaps: Iterable[Gap], lane: str) -> History:
    """A history with calls that were not recorded, of unknown outcome, where recordings stopped.

    Args:
      history: Of all recordings.
      gaps: Where some of them stopped.
      lane: Of the faults that tell where.
    """
    for gap in gaps:
        history = _Filling(history, gap).filled(lane)
    return history


@dataclass(slots=True)
class _Round:
    """Calls of `live_processes` that were answered together, as far as they were recorded.

    Attributes:
      participants: Of the calls.
      answer: What they were told.
      callers: Whose calls are recorded.
      until_ns: When the first of them was answered.
      latest: The last of them to begin.
    """

    participants: frozenset[int]
    answer: LiveSet
    callers: set[int]
    until_ns: int
    latest: Invoke


class _Filling:
    """One gap, and what fills it."""

    def __init__(self, history: History, gap: Gap) -> None:
        self._history = history
        self._process = gap.process
        self._everybody = frozenset(history.header.participants)
        self._calls = {e.id: e for e in history.events if isinstance(e, Invoke)}
        self._next_id = 1 + max(self._calls, default=-1)
        self._mine = [event for event in history.events if event.process == gap.process]
        self._next_lifetime = 1 + max((event.lifetime for event in self._mine), default=-1)
        self._lifetime = gap.lifetime
        self._since: Event | None = None
        ends_ns = []
        for event in self._mine:
            if event.lifetime == gap.lifetime:
                if isinstance(event, Crash | Leave):
                    ends_ns.append(_latest_ns(event))
                else:
                    self._since = event
            elif gap.lifetime is not None and event.lifetime > gap.lifetime:
                if isinstance(event, Start):
                    ends_ns.append(_latest_ns(event))
        self._until_ns = min(ends_ns, default=None)
        self._added: list[Event] = []

    @property
    def _from_ns(self) -> int:
        """From when on nothing is known."""
        if self._since is not None:
            return self._since.time_ns
        return min((event.time_ns for event in self._history.events), default=0)

    def _is_over_before(self, call: Invoke) -> bool:
        """Whether the process had ended when a call of another one began."""
        return self._until_ns is not None and _earliest_ns(call) > self._until_ns

    def filled(self, lane: str) -> History:
        """The history with it."""
        self._live_sets()
        self._barriers()
        self._store()
        history = self._history
        added = {id(event) for event in self._added}
        # What is added comes behind what was recorded at that time, and before the end.
        events = sorted(
            [*history.events, *self._added],
            key=lambda event: (
                event.time_ns,
                2 if isinstance(event, Crash | Leave) else int(id(event) in added),
            ),
        )
        who = f"process {self._process}"
        fault = Fault(
            time_ns=self._from_ns,
            until_ns=self._until_ns,
            name=f"{who}: {RECORDING_STOPPED}; what it called from then on is not known",
            lane=lane,
        )
        unknown = (
            f"{NOT_RECORDED}: {who} went on after {RECORDING_STOPPED}; calls of unknown outcome stand "
            "for them, as others need them"
        )
        header = history.header
        told = tuple(dict.fromkeys((*header.cannot_know, unknown)))
        return History(
            replace(header, cannot_know=told),
            events,
            history.notes,
            tuple(sorted((*history.faults, fault), key=lambda each: each.time_ns)),
        )

    def _call(
        self, operation: str, arguments: Mapping[str, object], lifetime: int, at: Event | None
    ) -> Invoke:
        """A call that may have been made, at the time of an event, or when the recording stopped."""
        if at is None or at.time_ns < self._from_ns:
            at = self._since
        time_ns = self._from_ns if at is None else at.time_ns
        call = Invoke(
            time_ns=time_ns if self._until_ns is None else min(time_ns, self._until_ns),
            process=self._process,
            lifetime=lifetime,
            id=self._next_id,
            operation=operation,
            arguments=arguments,
            uncertainty_ns=0 if at is None else at.uncertainty_ns,
        )
        self._next_id += 1
        self._added.append(call)
        return call

    @cached_property
    def _apart(self) -> int:
        """A lifetime without a start: its calls are no signs of life, as they may not have been made."""
        self._next_lifetime += 1
        return self._next_lifetime - 1

    # --- live sets ---------------------------------------------------------------------------------

    def _live_sets(self) -> None:
        for call in self._open_calls():
            # It need not be in the next round any more, as its process went on.
            self._added.append(_info(call, self._from_ns))
        missing: defaultdict[tuple[frozenset[int], int | None], list[_Round]] = defaultdict(list)
        for found in self._rounds():
            if found.until_ns > self._from_ns and self._process not in found.callers:
                missing[found.participants, found.answer[self._process]].append(found)
        started = self._incarnations()
        for (_, incarnation), rounds in missing.items():
            if incarnation not in started:
                if None in started:
                    incarnation = None
                elif self._is_over_before(rounds[0].latest):
                    continue
                else:
                    started[incarnation] = self._start(incarnation, rounds[0].latest)
            start = started[incarnation]
            if start is None:
                continue
            arguments = rounds[0].latest.arguments
            in_time = sum(not self._is_over_before(each.latest) for each in rounds)
            # It is not defined in which round each is of two that are open at once.
            count = in_time if in_time <= ROUNDS_MAX else ROUNDS_MAX + 2
            for index in range(count):
                call = self._call(LIVE_PROCESSES, arguments, start.lifetime, start)
                if index < ROUNDS_MAX:
                    self._added.append(_info(call, call.time_ns))
            if in_time < len(rounds) and in_time <= ROUNDS_MAX:
                # It may have ended inside one call, which the next round then has; no later one has it.
                self._call(LIVE_PROCESSES, arguments, start.lifetime, start)

    def _open_calls(self) -> list[Invoke]:
        calls: dict[int, Invoke] = {}
        for event in self._mine:
            if event.lifetime == self._lifetime:
                if isinstance(event, Invoke) and event.operation == LIVE_PROCESSES:
                    calls[event.id] = event
                elif isinstance(event, Ok | Fail | Info):
                    calls.pop(event.id, None)
        return list(calls.values())

    def _incarnations(self) -> dict[int | None, Start | None]:
        """Those of the process that are recorded; with a start, that whose recording stopped."""
        found: dict[int | None, Start | None] = {}
        told: dict[int, int | None] = {}
        for event in self._mine:
            if isinstance(event, Ok) and self._calls[event.id].operation == LIVE_PROCESSES:
                answer = cast("LiveSet", event.result)
                told.setdefault(event.lifetime, answer.get(self._process))
        for event in self._mine:
            if isinstance(event, Start):
                incarnation = event.incarnation or told.get(event.lifetime)
                found[incarnation] = event if event.lifetime == self._lifetime else None
        return found

    def _start(self, incarnation: int | None, by: Invoke) -> Start:
        """Of an incarnation that only others tell, as late as it can have been."""
        start = Start(
            time_ns=max(by.time_ns, self._from_ns),
            process=self._process,
            lifetime=self._next_lifetime,
            incarnation=incarnation,
            since_ns=self._from_ns,
            uncertainty_ns=by.uncertainty_ns,
        )
        self._next_lifetime += 1
        self._added.append(start)
        return start

    def _rounds(self) -> Iterator[_Round]:
        """The rounds of which the process was told to be a member."""
        open_rounds: dict[object, _Round] = {}
        known: dict[int, frozenset[tuple[int, int | None]]] = {}  # Answers are shared.
        for event in self._history.events:
            if not isinstance(event, Ok):
                continue
            call = self._calls[event.id]
            if call.operation != LIVE_PROCESSES:
                continue
            answer = cast("LiveSet", event.result)
            if self._process not in answer:
                continue
            listed = cast("Sequence[int] | None", call.arguments.get("participants"))
            participants = self._everybody if listed is None else frozenset(listed)
            items = known.get(id(answer))
            if items is None:
                items = known[id(answer)] = frozenset(answer.items())
            key = participants, items
            found = open_rounds.get(key)
            if (
                found is None
                or call.process in found.callers
                or _earliest_ns(call) > found.until_ns
            ):
                if found is not None:
                    yield found
                until_ns = _latest_ns(event)
                found = _Round(participants, answer, set(), until_ns, call)
                open_rounds[key] = found
            found.callers.add(call.process)
            found.until_ns = min(found.until_ns, _latest_ns(event))
            if _earliest_ns(call) > _earliest_ns(found.latest):
                found.latest = call
        yield from open_rounds.values()

    # --- barriers ----------------------------------------------------------------------------------

    def _barriers(self) -> None:
        passed: defaultdict[object, defaultdict[int, list[Invoke]]]
        passed = defaultdict(lambda: defaultdict(list))
        for event in self._history.events:
            call = self._calls[event.id] if isinstance(event, Ok) else None
            if call is None or call.operation != _BARRIER or call.process == self._process:
                continue
            members = cast("Sequence[int] | None", call.arguments.get("processes"))
            if event.time_ns > self._from_ns and self._process in (members or self._everybody):
                passed[call.arguments.get("barrier")][call.process].append(call)
        for of_barrier in passed.values():
            for call in max(map(self._possible, of_barrier.values()), key=len):
                arguments = {k: v for k, v in call.arguments.items() if k != "counter"}
                self._call(_BARRIER, arguments, self._apart, None)

    def _possible(self, calls: Sequence[Invoke]) -> list[Invoke]:
        """Calls of another at a barrier that the process can have met: one of them after its end."""
        late = [call for call in calls if self._is_over_before(call)]
        return [call for call in calls if call not in late[1:]]

    # --- the store ---------------------------------------------------------------------------------

    def _store(self) -> None:
        """Whoever found another value than the one that was seen last was not the one who set it."""
        store = _Store()
        found_late: set[object] = set()
        for event in self._history.events:
            if not isinstance(event, Ok | Fail):
                continue
            call = self._calls[event.id]
            for operation, arguments in store.changes(call, event):
                if event.time_ns <= self._from_ns:
                    continue
                if self._is_over_before(call):
                    # What was done last to a key may be found at any time; it does not change again.
                    if arguments["key"] in found_late:
                        continue
                    found_late.add(arguments["key"])
                # No earlier than needed: a call that may come at any time is dear to a search.
                self._call(operation, arguments, self._apart, call)


@dataclass(slots=True)
class _Store:
    """What the store holds as far as it was seen, in the order in which calls ended."""

    values: dict[str, _Value] = field(default_factory=dict)

    def changes(self, call: Invoke, end: Ok | Fail) -> Iterator[tuple[str, Mapping[str, object]]]:
        """The calls, of others, that must have come before this one."""
        key = call.arguments.get("key")
        if not isinstance(key, str):
            return
        name = normalised(key)
        for changed, value in self._found(call, end, name):
            if self.values.get(changed) != value:
                yield _change(changed, value)
                if value is None:
                    self._delete(changed)
                self.values[changed] = value
        if isinstance(end, Fail):
            return
        if call.operation == _SET:
            self.values[name] = call.arguments.get("value")
        elif call.operation == _INCREMENT:
            self.values[name] = _as_text(end.result)
        elif call.operation == _DELETE:
            self._delete(name)

    def _found(self, call: Invoke, end: Ok | Fail, name: str) -> Iterator[tuple[str, _Value]]:
        """What the store held before the call, by key."""
        now = self.values.get(name)
        if isinstance(end, Fail):
            if call.operation == _TRY_GET and end.code == "NOT_FOUND":
                yield name, None
            elif call.operation == _SET and end.code == "ALREADY_EXISTS":
                yield name, now or _as_text("")
            elif call.operation == _INCREMENT and _NO_NUMBER in end.message:
                yield name, _as_text("no number")
        elif call.operation in (_GET, _TRY_GET):
            yield name, end.result
        elif call.operation == _SET and call.arguments.get("allow_overwrite") is not True:
            yield name, None
        elif call.operation == _INCREMENT:
            before = _before(end.result, call.arguments.get("increment"))
            yield name, None if before == "0" and now is None else _as_text(before)
        elif call.operation == _DIR_GET and isinstance(end.result, list | tuple):
            entries = {normalised(each[0]): each[1] for each in end.result}
            yield from entries.items()
            yield from ((each, None) for each in self._under(name) if each not in entries)

    def _delete(self, name: str) -> None:
        """A key, and what is under it."""
        for each in [name, *self._under(name)]:
            self.values[each] = None

    def _under(self, directory: str) -> list[str]:
        return [each for each in self.values if is_under(each, directory)]


def _change(key: str, value: _Value) -> tuple[str, Mapping[str, object]]:
    if value is None:
        return _DELETE, {"key": key}
    return _SET, {"key": key, "value": value, "allow_overwrite": True}


def _as_text(value: object) -> _Value:
    return {"text": str(value)}


def _before(result: object, increment: object) -> str:
    """The number before an increment: sums wrap in 64 bits."""
    if not isinstance(result, int) or not isinstance(increment, int):
        return "0"
    return str((result - increment + 2**63) % 2**64 - 2**63)


def _info(call: Invoke, time_ns: int) -> Info:
    return Info(
        time_ns=time_ns,
        process=call.process,
        lifetime=call.lifetime,
        id=call.id,
        code=_CODE,
        message=RECORDING_STOPPED,
        uncertainty_ns=call.uncertainty_ns,
    )


def _latest_ns(event: Event) -> int:
    return event.time_ns + event.uncertainty_ns


def _earliest_ns(event: Event) -> int:
    return event.time_ns - event.uncertainty_ns
