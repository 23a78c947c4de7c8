"""Explains what a monitor found, from the part of the history that it still has."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Final

from checker.anomaly import Anomaly
from checker.linearization import Contradiction, PossibleState
from checker.monitor.object_monitor import Failure
from checker.monitor.window import Happened
from checker.operations import Failed, Fault, Operation, Operations, Recorder
from checker.search.explanation import KIND, POSSIBLE_SHOWN_MAX, operation_in_words, summary_of
from checker.search.steps import reason_illegal
from checker.specification import Guarded, Hint, Illegal, OneOf, Specification
from checker.verdict import Invalid

RECENT_SHOWN_MAX: Final = 12
"""So many operations are told where no smaller set that contradicts itself is known."""

UNKNOWN_MAX: Final = 16
"""With more operations without a response, looking for that set could take longer than anybody waits."""

_STEPS_MAX: Final = 5_000


def anomaly_of(
    failure: Failure, key: Hashable, spec: Specification, source: str, faults: Sequence[Fault]
) -> Anomaly:
    """The anomaly of a response that cannot be explained.

    Its operations are those of the monitor; those of its evidence are numbered anew, because it holds
    the recent part of the history only.

    Args:
      failure: What was found.
      key: The object.
      spec: What it violates.
      source: Where the history comes from.
      faults: The latest that befell the system.
    """
    operations, numbers, failing = _recent(failure, source)
    anomaly = None
    responded = sum(event.is_response for event in failure.events)
    if failure.is_whole and len(operations) - responded <= UNKNOWN_MAX:
        anomaly = _searched(operations, failure.state, spec)
    if anomaly is None:
        anomaly = _told(failure, key, spec, operations, failing)
    details = list(anomaly.details)
    if failure.is_whole and failure.state != spec.init():
        state = spec.describe_state(failure.state)
        details.append(
            f"At the beginning of the part of the history that was kept, it was {state}."
        )
    if faults:
        details.append(f"The latest faults: {', '.join(f'{f.lane}: {f.name}' for f in faults)}.")
    return replace(
        anomaly,
        details=tuple(details),
        operations=tuple(sorted(numbers[index] for index in anomaly.operations)),
    )


def _recent(failure: Failure, source: str) -> tuple[Operations, list[int], int]:
    """The part as a history; by its numbers, those of the monitor; the number of the failing one."""
    has_times = failure.call.invoked_ns >= 0
    recorder = Recorder(clock="monotonic" if has_times else "abstract", source=source)
    numbers: list[int] = []
    index_of: dict[int, int] = {}
    begun = {event.call.number for event in failure.events if not event.is_response}
    earlier = [Happened(e.call, is_response=False) for e in failure.events if e.is_response]
    earlier = [event for event in earlier if event.call.number not in begun]
    for call, is_response in (*earlier, *failure.events):
        if not is_response:
            index_of[call.number] = len(numbers)
            numbers.append(call.number)
            operation = call.operation
            recorder.invoke(
                call.process,
                operation.function,
                operation.argument,
                key=operation.key,
                time_ns=call.invoked_ns if has_times else None,
                line=call.line,
            )
            continue
        index, result = index_of[call.number], call.operation.result
        ended_ns = call.ended_ns if has_times else None
        if isinstance(result, Failed):
            recorder.fail(index, result.error, time_ns=ended_ns)
        else:
            recorder.ok(index, result, time_ns=ended_ns)
    return recorder.operations(), numbers, index_of[failure.call.number]


def _searched(operations: Operations, state: Hashable, spec: Specification) -> Anomaly | None:
    """The anomaly that the search for whole histories finds in the part."""
    from checker.search.check import check_operations

    begun = spec if state == spec.init() else _Begun(spec, state)
    verdict = check_operations(operations, begun, steps_max=_STEPS_MAX)
    return verdict.anomaly if isinstance(verdict, Invalid) else None


def _told(
    failure: Failure, key: Hashable, spec: Specification, operations: Operations, failing: int
) -> Anomaly:
    """What is known without a search: the possible states, and what happened of late."""
    states: dict[str, PossibleState] = {}
    operation = failure.call.operation
    for state, _ in failure.possible:
        reason = ""
        if isinstance(spec.step(state, operation), Illegal):
            reason = reason_illegal(spec, operation, state)
        words = spec.describe_state(state)
        states.setdefault(words, PossibleState(state=words, reason=reason))
    shown = tuple(states.values())[:POSSIBLE_SHOWN_MAX]
    recent = range(max(0, len(operations) - RECENT_SHOWN_MAX), len(operations))
    evidence = Contradiction(
        operations=operations,
        spec=spec,
        key=key,
        failing=failing,
        possible=shown,
        possible_count=len(states),
    )
    details = []
    if shown:
        left = len(states) - len(shown)
        more = f", or one of {left} more" if left else ""
        told = " or ".join(possible.state for possible in shown)
        details.append(f"Just before its response the state was {told}{more}.")
    details.append("The latest operations on it:")
    details += [f"  {operation_in_words(operations, index)}" for index in recent]
    return Anomaly(
        kind=KIND,
        summary=summary_of(evidence),
        details=tuple(details),
        processes=(failure.call.process,),
        operations=(failing,),
        from_ns=operations.invoked_ns[failing],
        to_ns=operations.ended_ns[failing],
        evidence=evidence,
    )


class _Begun(Specification):
    """An object that is in some state already. What depends on the whole history is left to defaults."""

    def __init__(self, spec: Specification, state: Hashable) -> None:
        self._spec = spec
        self._state = state
        self.name = spec.name
        self.functions = spec.functions

    def init(self) -> Hashable:
        return self._state

    def step(self, state: Any, operation: Operation) -> Hashable | Illegal | OneOf:
        return self._spec.step(state, operation)

    def partition(self, operation: Operation) -> Hashable | None:
        return self._spec.partition(operation)

    def observes_failure(self, operation: Operation) -> bool:
        return self._spec.observes_failure(operation)

    def hints(self, operation: Operation) -> Hint:
        return self._spec.hints(operation)

    def guarded(self, operation: Operation) -> Guarded | None:
        return self._spec.guarded(operation)

    def malformed(self, operation: Operation) -> str | None:
        return self._spec.malformed(operation)

    def describe_state(self, state: Any) -> str:
        return self._spec.describe_state(state)
