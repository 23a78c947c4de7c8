"""Equality of services: what of the core's objects makes a difference to anybody.

Two services are the same state if they will answer alike. The tables say of every field of every class
of the core whether it is kept, and what it holds: numbers of tasks, incarnations and calls are renamed
when processes are, times count from now, errors count by their code. Left out is what no answer in an
exploration shows: texts, counters (versions, rounds ended), and what is derived from other fields.

A test fails when a class of the core has a field that the tables do not classify.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeAlias

from coord_sim.core.barriers import Arrival, Barrier, Barriers
from coord_sim.core.error_polls import ErrorPolls
from coord_sim.core.identifiers import seconds
from coord_sim.core.key_value_store import KeyValueStore
from coord_sim.core.live_rounds import LiveRounds, _Entry, _Round
from coord_sim.core.membership import Membership, Task
from coord_sim.core.service import CoordinationService
from coord_sim.core.status import Status
from coord_sim.explore.names import renamed_call, renamed_incarnation
from coord_sim.explore.requests import renamed_key

Frozen: TypeAlias = Any
"""Nested tuples of numbers and texts; of one field, values of one shape."""


@dataclass(frozen=True, slots=True)
class View:
    """How to look at a service.

    Attributes:
      processes: The number to show for each process.
      now_ns: Times are shown relative to it.
    """

    processes: Sequence[int]
    now_ns: int


Leaf: TypeAlias = Callable[[Any, View], Frozen]


def plain(value: Any, view: View) -> Frozen:
    """A number or text that names nobody."""
    del view
    return value.value if isinstance(value, enum.Enum) else value


def task(value: Any, view: View) -> Frozen:
    """A number of a task."""
    return view.processes[value]


def incarnation(value: Any, view: View) -> Frozen:
    """An incarnation, or 0."""
    return renamed_incarnation(value, view.processes)


def call(value: Any, view: View) -> Frozen:
    """A call id."""
    return renamed_call(value, view.processes)


def time(value: Any, view: View) -> Frozen:
    """A time, in nanoseconds."""
    return value - view.now_ns


OVERDUE_NS = seconds(3.0)
"""Longer than the heartbeat time-out of what is explored: being silent for still longer is the same."""


def heartbeat(value: Any, view: View) -> Frozen:
    """When a task has beaten last."""
    return max(value - view.now_ns, -OVERDUE_NS)


def key(value: Any, view: View) -> Frozen:
    """A key of the store, which may name a process."""
    return renamed_key(value, view.processes)


def error(value: Any, view: View) -> Frozen:
    """A status: its code, and whether it is the service's own."""
    del view
    assert isinstance(value, Status)
    return int(value.code), value.service_error is not None


def maybe(leaf: Leaf) -> Leaf:
    """That, or None."""
    return lambda value, view: () if value is None else (leaf(value, view),)


def many(leaf: Leaf) -> Leaf:
    """A set, or a sequence whose order makes no difference."""
    return lambda values, view: tuple(sorted(leaf(value, view) for value in values))


def mapping(of_key: Leaf, of_value: Leaf) -> Leaf:
    """A mapping whose order makes no difference."""
    return lambda values, view: tuple(
        sorted((of_key(k, view), of_value(v, view)) for k, v in values.items())
    )


def pair(one: Leaf, other: Leaf) -> Leaf:
    """Two things."""
    return lambda values, view: (one(values[0], view), other(values[1], view))


def thing(value: Any, view: View) -> Frozen:
    """An object with a table."""
    table = _table_of(type(value))
    frozen = tuple(leaf(getattr(value, name), view) for name, leaf in table.items())
    return (*frozen, *_of_its_own(value))


def _task(value: Any, view: View) -> Frozen:
    """A task; when it beat last matters while it is connected."""
    frozen = thing(value, view)
    return frozen if value.is_connected else frozen[:-1]


IGNORED: Mapping[type, Mapping[str, str]] = {
    CoordinationService: {
        "config": "fixed",
        "incarnation": "fixed",
        "_beat_accepted": "fixed",
        "_shutdown_barrier": "fixed",
        "_now_ns": "set by every request",
        "_effects": "empty between requests",
        "_remembered": "records of durable services, which are not explored",
    },
    Membership: {
        "version": "a counter that only WatchTasks shows",
        "changes": "empty between requests",
        "changed": "records of durable services",
        "_by_incarnation": "derived from the incarnations of the tasks",
    },
    Task: {"left_ns": "a heartbeat in the time of grace; explored ones come after it"},
    LiveRounds: {
        "_membership": "kept as the service's",
        "_semantics": "fixed",
        "_latest_tasks": "derived from the latest request",
        "_round_of": "which calls could still be hung up; a hang-up takes no place away",
        "ended": "a counter that only metrics show",
        "news": "empty between requests",
    },
    KeyValueStore: {
        "bytes": "derived",
        "changed": "records of durable services",
        "_keys": "derived",
        "_key_of": "derived",
    },
    ErrorPolls: {},
    Barriers: {
        "_membership": "kept as the service's",
        "_semantics": "fixed",
        "_recoverable": "fixed",
        "_once_only": "fixed",
        "_open": "derived",
        "changed": "records of durable services",
    },
    Barrier: {
        "initiator": "shows only in a text",
        "timeout_ns": "shows only after a restart of the service",
    },
    Arrival: {"timeout_ns": "counts only when the arrival opens an instance"},
    _Entry: {},
    _Round: {"places": "derived from the entries"},
}
"""Fields that make no difference, and why."""


KEPT: Mapping[type, Mapping[str, Leaf]] = {
    CoordinationService: {
        "membership": thing,
        "_store": thing,
        "_polls": thing,
        "_rounds": thing,
        "_barriers": thing,
        "_watchers": many(call),
        "_next_tick_ns": time,
    },
    Membership: {"tasks": many(_task)},
    Task: {
        "id": task,
        "state": plain,
        "incarnation": incarnation,
        "error": maybe(error),
        "past": many(incarnation),
        "last_heartbeat_ns": heartbeat,
    },
    LiveRounds: {"_rounds": mapping(many(task), thing)},
    _Round: {
        "tasks": many(task),
        "entries": mapping(call, thing),
        "missing": many(task),
    },
    _Entry: {"call": call, "task": task, "incarnation": incarnation},
    KeyValueStore: {
        "_values": mapping(key, plain),
        "_waiting": mapping(key, mapping(call, key)),
    },
    ErrorPolls: {
        "propagated": maybe(error),
        "anybody_polled": plain,
        "_polls": mapping(task, pair(call, incarnation)),
    },
    Barriers: {"_barriers": mapping(plain, thing)},
    Barrier: {
        "key": plain,
        "id": plain,
        "counter": plain,
        "is_over": plain,
        "result": maybe(error),
        "deadline_ns": time,
        "arrived": mapping(task, plain),
        "waiting": mapping(task, thing),
        "passed_by": mapping(task, incarnation),
        "passed_counter": plain,
    },
    Arrival: {
        "call": call,
        "purpose": plain,
        "task": task,
        "incarnation": incarnation,
        "barrier_id": plain,
        "counter": plain,
        "participants": many(task),
    },
}
"""Fields that are part of the state, in order, and what they hold."""


def field_names(value: object) -> set[str]:
    """The names of an object's fields."""
    if is_dataclass(value):
        return {field.name for field in fields(value)}
    return set(vars(value))


def freeze(service: CoordinationService, view: View) -> Frozen:
    """What a service is, as a hashable value; equal for services that will answer alike."""
    return thing(service, view)


def is_symmetric(service: CoordinationService) -> bool:
    """Whether renaming processes is known to rename all that the service holds.

    A subclass, as known-wrong variants are, may have fields of its own, which are kept as they are.
    """
    parts = (service, service.membership, *_parts(service))
    return not any(_of_its_own(part) for part in parts)


def _parts(service: CoordinationService) -> list[object]:
    return [
        getattr(service, name)
        for name in KEPT[CoordinationService]
        if name not in ("_watchers", "_next_tick_ns")
    ]


def _table_of(kind: type) -> Mapping[str, Leaf]:
    return next(KEPT[base] for base in kind.__mro__ if base in KEPT)


def _of_its_own(value: object) -> tuple[Frozen, ...]:
    """The fields that a subclass of a class of the core adds, as they are."""
    kind = type(value)
    if kind in KEPT:
        return ()
    base = next(base for base in kind.__mro__ if base in KEPT)
    known = {*KEPT[base], *IGNORED[base]}
    return tuple(
        (name, _solid(getattr(value, name))) for name in sorted(field_names(value) - known)
    )


def _solid(value: object) -> Frozen:
    if isinstance(value, Mapping):
        return tuple((_solid(k), _solid(v)) for k, v in value.items())
    if isinstance(value, set | frozenset):
        return tuple(sorted(map(_solid, value)))
    if isinstance(value, list | tuple):
        return tuple(map(_solid, value))
    if value is None or isinstance(value, int | str | bytes | float):
        return value
    return repr(value)
