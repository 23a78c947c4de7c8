"""A history of `live_processes` as columns: 21 bytes an event instead of an object for each.

A recorder or a reader appends to them directly; `columns_of` makes them from a history. What is said
again and again stands in a table once: lifetimes, answers, sets of participants, names of operations.

>>> columns = Columns(Header(source="manual", participants=(0, 1), clock="abstract"))
>>> first, second = columns.lifetime_index(0, 0), columns.lifetime_index(1, 0)
>>> columns.incarnations[:] = [11, 22]
>>> columns.append(START, first, 1)
>>> columns.append(START, second, 2)
>>> columns.append(CALL, first, 3, operation=0, detail=columns.group_index((0, 1)))
>>> columns.append(CALL, second, 4, operation=1, detail=columns.group_index((0, 1)))
>>> both = columns.answer_index({0: 11, 1: 22})
>>> columns.append(OK, first, 5, operation=0, detail=both)
>>> columns.append(OK, second, 6, operation=1, detail=both)
>>> len(columns), len(columns.history().events)
(6, 6)
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Final, TypedDict, cast

from checker.collector import collector_paused
from checker.errors import MalformedHistory
from checker.history.events import (
    LIVE_PROCESSES,
    SHUTDOWN,
    Crash,
    Enter,
    Event,
    Fail,
    Info,
    Invoke,
    Leave,
    LiveSet,
    Ok,
    Start,
)
from checker.history.header import Header
from checker.history.history import History

# Kinds. Ends of lifetimes, invocations and responses are ranges of their own.
START: Final = 0
CRASH: Final = 1
LEAVE: Final = 2
CALL: Final = 3
"""An invocation of `live_processes`; its detail is an index of `groups`."""
INVOKE: Final = 4
"""An invocation of another operation but a shutdown; its detail is an index of `names`."""
INVOKE_SHUTDOWN: Final = 5
OK: Final = 6
"""A response; to a `CALL`, its detail is an index of `answers`."""
FAIL: Final = 7
INFO: Final = 8
SIGN: Final = 9
"""Anything else that shows the process alive: a block entered or left."""

NONE: Final = -1
"""An operation or a detail that an event does not have."""


class Columns:
    """A history as columns. Events are in order of time, as in `History`.

    Args:
      header: The first line of the history.

    Attributes:
      kind: int8 per event: `START`, `CRASH`, `CALL`, ...
      lifetime: int32 per event: index of its lifetime in the three tables below.
      time_ns: int64 per event.
      operation: int32 per event: the operation that is invoked or that ended, else `NONE`. Operations
        are numbered from 0 in order of their invocations.
      detail: int32 per event: what its kind says, else `NONE`.
      uncertainty_ns: int64 per event, or empty: then all clocks are exact.
      operations: How many there are.
      processes, numbers, incarnations: Per lifetime, in order of first events: its process, its number
        among the process's lifetimes, and its incarnation if that is known from anything but answers to
        others.
      answers: The distinct answers.
      groups: The distinct sets of participants.
      names: The names of other operations.
      since_ns: By event, where the moment of a start or a crash is not known exactly: since when.
    """

    def __init__(self, header: Header) -> None:
        self.header = header
        self.kind = array("b")
        self.lifetime = array("i")
        self.time_ns = array("q")
        self.operation = array("i")
        self.detail = array("i")
        self.uncertainty_ns = array("q")
        self.operations = 0
        self.processes: list[int] = []
        self.numbers: list[int] = []
        self.incarnations: list[int | None] = []
        self.answers: list[LiveSet] = []
        self.groups: list[frozenset[int]] = []
        self.names: list[str] = []
        self.since_ns: dict[int, int] = {}
        self._lifetime_of: dict[tuple[int, int], int] = {}
        self._answer_of: dict[frozenset[tuple[int, int | None]], int] = {}
        self._group_of: dict[frozenset[int], int] = {}
        self._name_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def nbytes(self) -> int:
        """Bytes that the events take, tables aside."""
        columns = (
            self.kind,
            self.lifetime,
            self.time_ns,
            self.operation,
            self.detail,
            self.uncertainty_ns,
        )
        return sum(len(column) * column.itemsize for column in columns)

    def append(
        self, kind: int, lifetime: int, time_ns: int, operation: int = NONE, detail: int = NONE
    ) -> None:
        """Adds an event of a history with exact clocks."""
        self.kind.append(kind)
        self.lifetime.append(lifetime)
        self.time_ns.append(time_ns)
        self.operation.append(operation)
        self.detail.append(detail)
        if CALL <= kind <= INVOKE_SHUTDOWN:
            self.operations += 1

    def lifetime_index(self, process: int, number: int) -> int:
        """The index of a lifetime, which is entered in the tables if it is new."""
        key = (process, number)
        index = self._lifetime_of.get(key)
        if index is None:
            index = self._lifetime_of[key] = len(self.processes)
            self.processes.append(process)
            self.numbers.append(number)
            self.incarnations.append(None)
        return index

    def answer_index(self, live: LiveSet) -> int:
        """The index of an answer, which is entered in the table if it is new."""
        key = frozenset(live.items())
        index = self._answer_of.get(key)
        if index is None:
            index = self._answer_of[key] = len(self.answers)
            self.answers.append(live)
        return index

    def group_index(self, participants: Sequence[int]) -> int:
        """The index of a set of participants, which is entered in the table if it is new."""
        key = frozenset(participants)
        index = self._group_of.get(key)
        if index is None:
            index = self._group_of[key] = len(self.groups)
            self.groups.append(key)
        return index

    def name_index(self, operation: str) -> int:
        """The index of an operation's name, which is entered in the table if it is new."""
        index = self._name_of.get(operation)
        if index is None:
            index = self._name_of[operation] = len(self.names)
            self.names.append(operation)
        return index

    def history(self) -> History:
        """The same as a history of events, whose operations have their numbers as ids.

        Raises:
          MalformedHistory: an event refers to something that is not in the tables.
        """
        events: list[Event] = []
        with collector_paused():
            try:
                events.extend(self._events())
            except IndexError:
                raise MalformedHistory(
                    f"event {len(events)} of the columns refers to an entry that no table has"
                ) from None
        return History(self.header, events)

    def _events(self) -> Iterator[Event]:
        arguments: list[dict[str, object]] = [
            {} if group == frozenset(self.header.participants) else {"participants": participants}
            for group, participants in ((group, tuple(sorted(group))) for group in self.groups)
        ]
        for at, (kind, lifetime, time_ns, operation, detail) in enumerate(
            zip(self.kind, self.lifetime, self.time_ns, self.operation, self.detail, strict=True)
        ):
            if lifetime < 0 or detail < NONE or (kind == CALL and detail == NONE):
                raise IndexError
            common = _Common(
                time_ns=time_ns,
                process=self.processes[lifetime],
                lifetime=self.numbers[lifetime],
                incarnation=self.incarnations[lifetime],
                uncertainty_ns=self.uncertainty_ns[at] if self.uncertainty_ns else 0,
            )
            if kind == CALL:
                yield Invoke(
                    **common, id=operation, operation=LIVE_PROCESSES, arguments=arguments[detail]
                )
            elif kind == OK:
                result = None if detail == NONE else self.answers[detail]
                yield Ok(**common, id=operation, result=result)
            elif kind in (INVOKE, INVOKE_SHUTDOWN):
                name = SHUTDOWN if kind == INVOKE_SHUTDOWN else self.names[detail]
                yield Invoke(**common, id=operation, operation=name, arguments={})
            elif kind in (FAIL, INFO):
                yield (Fail if kind == FAIL else Info)(**common, id=operation, code="")
            elif kind == START:
                yield Start(**common, since_ns=self.since_ns.get(at))
            elif kind == CRASH:
                yield Crash(**common, since_ns=self.since_ns.get(at))
            elif kind == LEAVE:
                yield Leave(**common)
            else:
                yield Enter(**common, block=at, live={})


class _Common(TypedDict):
    """What all events have."""

    time_ns: int
    process: int
    lifetime: int
    incarnation: int | None
    uncertainty_ns: int


def columns_of(history: History) -> Columns | None:
    """A history as columns; None if it is none (a response to nothing, an id used twice at once)."""
    with collector_paused():
        return _columns_of(history)


def _columns_of(history: History) -> Columns | None:  # noqa: PLR0915 - one loop, for speed
    columns = Columns(history.header)
    kinds, details = columns.kind, columns.detail
    add_kind, add_lifetime, add_time = kinds.append, columns.lifetime.append, columns.time_ns.append
    add_operation, add_detail = columns.operation.append, details.append
    incarnations = columns.incarnations
    current: dict[int, tuple[int, int]] = {}
    open_calls: dict[int, int] = {}
    open_others: dict[int, int] = {}
    everybody = NONE
    answer, answer_index = None, NONE
    uncertain: dict[int, int] = {}
    operation = 0
    none = (NONE, NONE)
    for event in history.events:
        number, lifetime = current.get(event.process, none)
        if number != event.lifetime or lifetime < 0:
            lifetime = columns.lifetime_index(event.process, event.lifetime)
            current[event.process] = event.lifetime, lifetime
        if event.incarnation is not None:
            incarnations[lifetime] = event.incarnation
        if event.uncertainty_ns:
            uncertain[len(kinds)] = event.uncertainty_ns
        add_lifetime(lifetime)
        add_time(event.time_ns)
        kind = type(event)
        if kind is Invoke:
            event = cast("Invoke", event)
            if event.id in open_calls or event.id in open_others:
                return None
            add_operation(operation)
            if event.operation == LIVE_PROCESSES:
                open_calls[event.id] = operation
                add_kind(CALL)
                if event.arguments or everybody < 0:
                    participants = event.arguments.get("participants", history.header.participants)
                    group = columns.group_index(cast("tuple[int, ...]", participants))
                    if not event.arguments:
                        everybody = group
                    add_detail(group)
                else:
                    add_detail(everybody)
            else:
                open_others[event.id] = operation
                is_shutdown = event.operation == SHUTDOWN
                add_kind(INVOKE_SHUTDOWN if is_shutdown else INVOKE)
                add_detail(columns.name_index(event.operation))
            operation += 1
        elif kind is Ok:
            event = cast("Ok", event)
            called = open_calls.pop(event.id, None)
            add_kind(OK)
            if called is None:
                called = open_others.pop(event.id, None)
                if called is None:
                    return None
                add_operation(called)
                add_detail(NONE)
                continue
            if event.result is not answer:
                answer = event.result
                answer_index = columns.answer_index(cast("LiveSet", answer))
            add_operation(called)
            add_detail(answer_index)
            if incarnations[lifetime] is None:
                incarnations[lifetime] = cast("LiveSet", answer).get(event.process)
        elif kind is Fail or kind is Info:
            ended = cast("Fail | Info", event)
            called = open_calls.pop(ended.id, None)
            if called is None:
                called = open_others.pop(ended.id, None)
            if called is None:
                return None
            add_kind(FAIL if kind is Fail else INFO)
            add_operation(called)
            add_detail(NONE)
        else:
            if kind is Start:
                add_kind(START)
            elif kind is Crash:
                add_kind(CRASH)
            else:
                add_kind(LEAVE if kind is Leave else SIGN)
            if isinstance(event, Start | Crash) and event.since_ns is not None:
                columns.since_ns[len(kinds) - 1] = event.since_ns
            add_operation(NONE)
            add_detail(NONE)
    columns.operations = operation
    if uncertain:
        columns.uncertainty_ns = array("q", bytes(8 * len(kinds)))
        for at, uncertainty_ns in uncertain.items():
            columns.uncertainty_ns[at] = uncertainty_ns
    return columns
