"""Checks everything in a history of the coordination service, object by object.

What is an object of its own: each key of the store, or the keys that an operation on a directory
joins; each named barrier; all live sets; all blocks. Linearizability is local (Herlihy and Wing,
1990): objects that share no state are checked one by one, and the history is linearizable if each of
them is.

What objects share:

* *Failures.* A failure has one moment for all live sets, of whatever participants: they are one object
  and solved as one system. An acknowledged operation on any other object is a sign of life there, so
  that its process cannot have failed before.
* *Rounds.* Blocks are told apart by the answers of the live sets, and judged by them.
* Nothing else: when a process failed says nothing of its calls to the store and to barriers, because
  the service may carry out a request after its sender is dead. A call that is pending, or ended with
  an indefinite error, may have its effect at any later time, or never.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from checker.errors import MalformedHistory
from checker.formats.from_history import operations_of
from checker.history.events import LIVE_PROCESSES, SHUTDOWN, Enter, Fail, Invoke
from checker.history.history import History
from checker.live_processes.check import check_live_processes
from checker.live_processes.spec import LiveProcesses
from checker.operations import Failed, Operation, Operations
from checker.search import check_operations
from checker.search.budget import MEMORY_BYTES_MAX
from checker.service.barrier import check_barrier
from checker.service.barrier_timeouts import TOO_EARLY, BarrierTimeouts
from checker.service.split import Part, split
from checker.service.store_objects import StoreObjects, node_of
from checker.specification import SetSpecification, Specification
from checker.specs.blocks import AtomicBlocks, check_blocks
from checker.specs.named_barrier import NamedBarrier
from checker.specs.service_store import (
    GET,
    INCREMENT,
    NO_NUMBER,
    TRY_GET,
    ServiceKey,
    ServiceStore,
)
from checker.specs.store_values import show_value, value_bytes
from checker.verdict import Invalid, Unknown, Verdict

NOT_CHECKED = "not checked"

_REASONS = {
    SHUTDOWN: "it promises nothing that a caller could see; its call is the last sign of life",
    "register": "it is the protocol's own; the start of a lifetime tells it",
    "heartbeat": "it is the protocol's own",
    "poll_for_error": "it is the protocol's own",
    "report_error": "it promises nothing that a caller could see",
    "watch_tasks": "the states of tasks are the service's own opinion",
}
_NO_SPECIFICATION = "no specification knows this operation"
_RESERVED = "the service uses this barrier itself, for calls that are no calls of barriers"
_RESERVED_BARRIERS = ("Shutdown::", "[Init]Wait_for_all_tasks_to_register")
_NAMES_MAX = 4


_LIVE_SET = "live set"


@dataclass(frozen=True, slots=True)
class ObjectVerdict:
    """What became of one object.

    Attributes:
      object: In words.
      operations: How many operations are on it; for blocks, how often one was entered.
      verdict: None if it was not checked.
      algorithm: How it was checked, in a word or two.
      seconds: How long that took.
      reason: Why it was not checked.
    """

    object: str
    operations: int
    verdict: Verdict | None
    algorithm: str = ""
    seconds: float = 0.0
    reason: str = ""

    @property
    def is_live_sets(self) -> bool:
        """Whether this is the row of the `live_processes` barrier."""
        return self.object.startswith(_LIVE_SET)

    @property
    def word(self) -> str:
        """`valid`, `invalid`, `unknown` or `not checked`."""
        return NOT_CHECKED if self.verdict is None else self.verdict.word


def check_service(
    history: History,
    *,
    live: LiveProcesses | None = None,
    blocks: AtomicBlocks | None = None,
    timeout_s: float | None = None,
    memory_bytes_max: int = MEMORY_BYTES_MAX,
    paranoid: bool = False,
) -> tuple[ObjectVerdict, ...]:
    """Checks all objects of a history.

    Args:
      history: Of the callers or of the service. The service's tells less of a call than its caller's
        (not whether the reply arrived), and may begin with a store that holds something already.
      live: What the live sets must satisfy.
      blocks: What the blocks must satisfy.
      timeout_s: Seconds for all objects together, after which the verdict of the rest is `Unknown`.
      memory_bytes_max: As in `check_operations`, for each object.
      paranoid: As there.

    Returns:
      A row for each object: live sets, blocks, keys, barriers; then one for each function whose
      operations were not checked. Every operation of the history is counted in one row.

    Raises:
      MalformedHistory: an operation on a known object whose arguments or result cannot be.
    """
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    return tuple(
        _ServiceCheck(history, deadline_s, memory_bytes_max, paranoid=paranoid).rows(live, blocks)
    )


@dataclass(frozen=True, slots=True)
class _Object:
    name: str
    spec: Specification | SetSpecification | None
    reason: str = ""


class _ServiceCheck:
    def __init__(
        self,
        history: History,
        deadline_s: float | None,
        memory_bytes_max: int,
        *,
        paranoid: bool,
    ) -> None:
        self._history = history
        self._deadline_s = deadline_s
        self._memory_bytes_max = memory_bytes_max
        self._paranoid = paranoid
        self._ids = _ids(history)
        self._operations = _with_reasons(operations_of(history), history, self._ids)
        self._barrier = NamedBarrier(history.header.participants)
        self._timeouts = BarrierTimeouts(history)

    def rows(
        self, live: LiveProcesses | None, blocks: AtomicBlocks | None
    ) -> Iterator[ObjectVerdict]:
        history = self._history
        calls = sum(
            isinstance(event, Invoke) and event.operation == LIVE_PROCESSES
            for event in history.events
        )
        if calls:
            spec = live or LiveProcesses()
            sets = {
                event.arguments.get("participants")
                for event in history.events
                if isinstance(event, Invoke) and event.operation == LIVE_PROCESSES
            }
            yield _timed(
                f"{_LIVE_SET}s" if len(sets) > 1 else _LIVE_SET,
                calls,
                lambda: check_live_processes(history, spec),
                "rounds" if spec.definition == "round" else "least instants",
            )
        entered = sum(isinstance(event, Enter) for event in history.events)
        if entered:
            yield _timed("blocks", entered, lambda: check_blocks(history, blocks))
        objects, object_of = self._objects()
        for each, part in zip(
            objects, split(self._operations, object_of, len(objects)), strict=True
        ):
            if each.spec is None:
                yield ObjectVerdict(each.name, len(part.numbers), None, reason=each.reason)
            else:
                yield self._checked(each.name, each.spec, part)

    def _objects(self) -> tuple[list[_Object], list[int]]:
        """The objects other than live sets and blocks, and which of them each operation is on."""
        kinds = self._operations.kinds
        key, store = ServiceKey(), ServiceStore()
        on_store = [kind for kind in kinds if kind.function in store.functions]
        for number, kind in enumerate(kinds):
            if kind.function in store.functions:
                self._refuse(number, store.malformed(kind))
            elif kind.function in self._barrier.functions:
                self._refuse(number, self._barrier.malformed(kind))
        joined = StoreObjects(on_store)
        members = joined.members()
        objects: dict[tuple[int, str], _Object] = {}
        names: list[tuple[int, str] | None] = []
        for kind in kinds:
            name: tuple[int, str] | None = None
            if kind.function in store.functions:
                root = joined.object_of(node_of(kind))
                nodes = members[root]
                name = (0, nodes[0])
                is_alone = len(nodes) == 1 and not nodes[0].endswith("/")
                objects[name] = _Object(_keys(nodes), key if is_alone else store)
            elif kind.function in self._barrier.functions:
                name = (1, str(kind.key))
                reserved = str(kind.key).startswith(_RESERVED_BARRIERS)
                objects[name] = _Object(
                    f"barrier {kind.key!r:.80}",
                    None if reserved else self._barrier,
                    _RESERVED if reserved else "",
                )
            elif kind.function != LIVE_PROCESSES:
                name = (2, kind.function)
                reason = _REASONS.get(kind.function, _NO_SPECIFICATION)
                objects[name] = _Object(f"{kind.function:.80}", None, reason)
            names.append(name)
        order = {name: number for number, name in enumerate(sorted(objects))}
        of_kind = [-1 if name is None else order[name] for name in names]
        return [objects[name] for name in order], [of_kind[code] for code in self._operations.kind]

    def _refuse(self, kind: int, problem: str | None) -> None:
        if problem is not None and kind in self._operations.kind:
            index = self._operations.kind.index(kind)
            which = f"operation {self._ids[index]}, {self._operations.kinds[kind]!s:.200}"
            raise MalformedHistory(f"{which}: {problem}")

    def _checked(
        self, name: str, spec: Specification | SetSpecification, part: Part
    ) -> ObjectVerdict:
        def verdict() -> Verdict:
            if isinstance(spec, NamedBarrier):
                found = check_barrier(part.operations, spec, name=self._name_in(part))
                early = self._timeouts.of(part.operations.at(0).key)
                return found if early is None or isinstance(found, Invalid) else Invalid(early)
            found = self._search(part.operations, spec)
            if isinstance(found, Invalid) and isinstance(spec, ServiceKey):
                return self._from_another_start(part.operations, found)
            return found

        row = _timed(name, len(part.numbers), verdict)
        if not isinstance(row.verdict, Invalid) or row.verdict.anomaly.kind == TOO_EARLY:
            return row
        anomaly = row.verdict.anomaly
        ids = tuple(sorted(self._ids[part.numbers[each]] for each in anomaly.operations))
        return replace(row, verdict=replace(row.verdict, anomaly=replace(anomaly, operations=ids)))

    def _search(self, operations: Operations, spec: Specification | SetSpecification) -> Verdict:
        left_s = None if self._deadline_s is None else self._deadline_s - time.monotonic()
        if left_s is not None and left_s <= 0:
            return Unknown("the time for all objects was over before this one was reached")
        return check_operations(
            operations,
            spec,
            timeout_s=left_s,
            memory_bytes_max=self._memory_bytes_max,
            paranoid=self._paranoid,
        )

    def _from_another_start(self, operations: Operations, found: Invalid) -> Verdict:
        """A service's own recording may begin when the store holds something already."""
        if self._history.header.source != "server":
            return found
        for value in _possible_starts(operations.kinds):
            if self._search(operations, ServiceKey(initial=value)).word == "valid":
                return Unknown(
                    f"valid only if the key was {show_value(value)} when the service's recording began"
                )
        return found

    def _name_in(self, part: Part) -> Callable[[int], str]:
        return lambda call: f"operation {self._ids[part.numbers[call]]}"


def _possible_starts(kinds: Sequence[Operation]) -> list[bytes]:
    """Values that were read, or that must have been there before an increment."""
    values: dict[bytes, None] = {}
    for kind in kinds:
        if kind.function in (GET, TRY_GET):
            value = value_bytes(kind.result)
            if value is not None:
                values[value] = None
        elif kind.function == INCREMENT and isinstance(kind.result, int):
            increment = kind.argument
            by = increment.get("increment") if hasattr(increment, "get") else increment
            if isinstance(by, int):
                values[str(kind.result - by).encode()] = None
    return list(values)[:_STARTS_MAX]


_STARTS_MAX = 8


def _ids(history: History) -> list[int]:
    """The ids of the operations, by their numbers in the columns."""
    invokes = [event for event in history.events if isinstance(event, Invoke)]
    invokes.sort(key=lambda event: event.time_ns - event.uncertainty_ns)
    return [event.id for event in invokes]


def _with_reasons(operations: Operations, history: History, ids: Sequence[int]) -> Operations:
    """The columns, where increments that found no number are told from those refused otherwise."""
    found = {
        event.id
        for event in history.events
        if isinstance(event, Fail)
        and f"{event.code}: {event.message.removeprefix(f'{event.code}: ')}".startswith(NO_NUMBER)
    }
    kind, kinds = operations.kind[:], list(operations.kinds)
    codes: dict[Operation, int] = {}
    for index, number in enumerate(ids):
        if number not in found or operations.at(index).function != INCREMENT:
            continue
        telling = operations.at(index)._replace(result=Failed(NO_NUMBER))
        if telling not in codes:
            codes[telling] = len(kinds)
            kinds.append(telling)
        kind[index] = codes[telling]
    return replace(operations, kind=kind, kinds=tuple(kinds))


def _keys(nodes: Sequence[str]) -> str:
    named = ", ".join(f"{node!r:.80}" for node in nodes[:_NAMES_MAX])
    if len(nodes) == 1:
        return f"directory {named}" if nodes[0].endswith("/") else f"key {named}"
    return f"keys {named}" + (
        f" and {len(nodes) - _NAMES_MAX} more" if len(nodes) > _NAMES_MAX else ""
    )


def _timed(
    name: str, operations: int, check: Callable[[], Verdict], algorithm: str = ""
) -> ObjectVerdict:
    since_s = time.perf_counter()
    verdict = check()
    seconds = time.perf_counter() - since_s
    return ObjectVerdict(name, operations, verdict, verdict.algorithm or algorithm, seconds)
