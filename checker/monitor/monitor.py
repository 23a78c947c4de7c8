"""An incremental checker with the methods of a `Recorder`."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, TypeAlias

from checker.errors import MalformedHistory
from checker.monitor.explanation import anomaly_of
from checker.monitor.kinds import LiveKinds
from checker.monitor.object_monitor import Failure, Means, ObjectMonitor
from checker.monitor.situations import PatientBudget
from checker.monitor.window import Call
from checker.operations import Failed, Fault, Operation, Recorder, frozen
from checker.specification import SetSpecification, Specification
from checker.verdict import Invalid, Unknown

INTERVAL_S: Final = 0.5
BUFFER_MAX: Final = 4096
STEPS_PER_RESPONSE_MAX: Final = 20_000
MEMORY_BYTES_MAX: Final = 256 << 20

OBJECTS_AWAKE_MAX: Final = 4096
"""With more objects, those of which only the state need be known are reduced to it."""

_FAULTS_KEPT = 3
_LOOK_S: Final = 0.5
_NOTES_MAX = 100


@dataclass(frozen=True, slots=True)
class ValidSoFar:
    """All that happened up to the latest look can be explained.

    Attributes:
      operations: How many were called.
      open: How many had no response.
      objects: On how many objects.
    """

    operations: int
    open: int
    objects: int
    word = "valid so far"

    def explain(self) -> str:
        """A sentence that counts."""
        return (
            f"{self.operations:,} operation{'' if self.operations == 1 else 's'} on {self.objects:,} "
            f"object{'' if self.objects == 1 else 's'} can be explained so far, {self.open:,} of them "
            "open."
        )


MonitorVerdict: TypeAlias = ValidSoFar | Invalid | Unknown


class Monitor:
    """Checks operations against a specification while they happen, in bounded memory.

    A test calls `invoke` when it calls, and `ok`, `fail` or `info` when it knows the outcome, in the
    order of real time; any thread may. Now and then such a call also looks at what has come, which
    takes longer.

    What a verdict means: `Invalid` is certain, and stays. `ValidSoFar` is about everything up to the
    latest look. `Unknown` tells of which object it is not known any more; violations are searched for
    nevertheless, where that is possible.

    Memory: some kilobytes for each object in use, up to `buffer_max` events where an operation stays
    open, 100 bytes for each object that rests (it has no open operation, and is in one state), and 300
    bytes for each operation with an effect and of unknown outcome, because it may have its effect at
    any later time.

    Args:
      spec: What each object promises; its operations take effect one by one.
      on_violation: Called once with the verdict, by the thread whose call found it, which it may stop by
        an exception.
      interval_s: After so many seconds, a call looks; None: only `check` does (and a call decides about
        earlier events that are complete, as always).
      buffer_max: So many events of an object wait for the outcome of an operation. With more, it
        counts as of unknown outcome, so that violations that only its result shows are not found; see
        `notes`.
      steps_max: Situations that may be made for one response. With more, situations are joined where the
        specification has guarded assignments (then `Invalid` is certain and all else `Unknown`); else
        the object is not checked any more.
      memory_bytes_max: Memory for the situations of one object, with the same consequence.
      recorder: Gets all events, too; it must be new. It keeps the whole history, whatever its length.
      source: A word for where the history comes from, for messages.
      now_s: A clock, in seconds.

    Attributes:
      notes: What was not checked, in sentences.

    Raises:
      TypeError: a `SetSpecification`.
      SpecificationError: the specification broke its own rules; from later calls, too.
    """

    def __init__(
        self,
        spec: Specification,
        *,
        on_violation: Callable[[Invalid], object] | None = None,
        interval_s: float | None = INTERVAL_S,
        buffer_max: int = BUFFER_MAX,
        steps_max: int = STEPS_PER_RESPONSE_MAX,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        recorder: Recorder | None = None,
        source: str = "",
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        if isinstance(spec, SetSpecification):
            raise TypeError(
                f"specification '{spec.name}' lets several operations act as one; a Monitor follows "
                "objects whose operations take effect one by one: check the whole history instead"
            )
        if buffer_max < 1:
            raise ValueError(f"buffer_max must be at least 1, found {buffer_max}")
        self.notes: list[str] = []
        self._spec = spec
        self._on_violation = on_violation
        self._interval_s = interval_s
        self._recorder = recorder
        self._source = source
        self._now_s = now_s
        self._looked_s = now_s()
        self._lock = threading.RLock()
        budget = PatientBudget(steps_max=steps_max, memory_bytes_max=memory_bytes_max)
        self._means = Means(spec, LiveKinds(spec), budget, buffer_max)
        self._initial = self._means.kinds.table.init()
        self._functions = frozenset(spec.functions)
        self._count = 0
        self._open: dict[int, tuple[Call, ObjectMonitor]] = {}
        self._objects: dict[Hashable, ObjectMonitor] = {}
        self._resting: dict[Hashable, Hashable] = {}
        self._changed: dict[Hashable, ObjectMonitor] = {}
        self._uncertain: dict[Hashable, ObjectMonitor] = {}
        self._faults: deque[Fault] = deque(maxlen=_FAULTS_KEPT)
        self._verdict: MonitorVerdict = ValidSoFar(0, 0, 0)

    def __len__(self) -> int:
        return self._count

    @property
    def verdict(self) -> MonitorVerdict:
        """The verdict of the latest look."""
        return self._verdict

    def check(self) -> MonitorVerdict:
        """Looks now."""
        with self._lock:
            if not isinstance(self._verdict, Invalid):
                self._look()
            return self._verdict

    # --- the methods of a recorder ----------------------------------------------------------------

    def invoke(
        self,
        process: int,
        function: str,
        argument: object = None,
        *,
        key: object = None,
        time_ns: int | None = None,
        line: int = 0,
    ) -> int:
        """Records a call; returns the operation's number.

        Raises:
          MalformedHistory: the specification does not know it, or its argument cannot be.
        """
        with self._lock:
            operation = Operation(function, frozen(key), frozen(argument))
            self._refuse_malformed(operation, line)
            number = self._count
            if self._recorder is not None:
                self._recorder.invoke(
                    process, function, argument, key=key, time_ns=time_ns, line=line
                )
            self._count += 1
            if not isinstance(self._verdict, Invalid):
                invoked_ns = -1 if time_ns is None else time_ns
                call = Call(number, process, operation, invoked_ns, line)
                part = self._object(operation, line)
                part.invoke(call)
                self._open[number] = (call, part)
                self._has_changed(part)
            return number

    def ok(self, index: int, result: object = None, *, time_ns: int | None = None) -> None:
        """Records that a call returned.

        Raises:
          MalformedHistory: its result cannot be.
        """
        with self._lock:
            self._respond(index, frozen(result), time_ns)
            if self._recorder is not None:
                self._recorder.ok(index, result, time_ns=time_ns)

    def fail(self, index: int, error: object = None, *, time_ns: int | None = None) -> None:
        """Records that a call ended with a definite error: it surely had no effect."""
        with self._lock:
            self._respond(index, Failed(frozen(error)), time_ns)
            if self._recorder is not None:
                self._recorder.fail(index, error, time_ns=time_ns)

    def info(self, index: int, error: object = None, *, time_ns: int | None = None) -> None:
        """Records that the outcome of a call will not be known."""
        with self._lock:
            found = self._close(index)
            if found is not None:
                call, part = found
                call.ended_ns = -1 if time_ns is None else time_ns
                part.lose(call)
                self._has_changed(part)
            if self._recorder is not None:
                self._recorder.info(index, error, time_ns=time_ns)

    def fault(self, lane: str, name: str, *, time_ns: int | None = None) -> None:
        """Records what was done to the system; explanations tell the latest."""
        with self._lock:
            self._faults.append(Fault(lane, name, -1 if time_ns is None else time_ns))
            if self._recorder is not None:
                self._recorder.fault(lane, name, time_ns=time_ns)

    # --- looking ----------------------------------------------------------------------------------

    def _respond(self, index: int, result: Hashable, time_ns: int | None) -> None:
        opened = self._open.get(index)
        if opened is None:
            self._close(index)
            return
        call, part = opened
        operation = call.operation._replace(result=result)
        self._refuse_malformed(operation, call.line)
        del self._open[index]
        call.operation = operation
        call.ended_ns = -1 if time_ns is None else time_ns
        if not part.respond(call):
            self._note(f"{self._named(part.key)}{part.doubt}.")
        self._has_changed(part)

    def _close(self, index: int) -> tuple[Call, ObjectMonitor] | None:
        found = self._open.pop(index, None)
        if found is None and not isinstance(self._verdict, Invalid):
            if 0 <= index < self._count:
                raise ValueError(f"operation {index} has ended already; a call ends once")
            raise ValueError(f"operation {index} was never invoked")
        return found

    def _object(self, operation: Operation, line: int) -> ObjectMonitor:
        key = self._spec.partition(operation)
        part = self._objects.get(key)
        if part is None:
            known = self._objects or self._resting
            if known and (key is None or None in known):
                raise MalformedHistory(
                    f"{operation!s:.200} names {'no' if key is None else 'an'} object, while others do "
                    f"{'' if key is None else 'not'}; a specification must partition all operations or "
                    "none",
                    path=self._source or None,
                    line=line or None,
                )
            state = self._resting.pop(key) if key in self._resting else self._initial
            part = self._objects[key] = ObjectMonitor(key, self._means, state)
        return part

    def _has_changed(self, part: ObjectMonitor) -> None:
        self._changed[part.key] = part
        if self._interval_s is not None and self._now_s() - self._looked_s >= self._interval_s:
            self._look()
        elif part.is_due:
            failure = self._settle(part)
            if failure is not None:
                self._violated(failure, part)

    def _look(self) -> None:
        budget = self._means.budget
        for part in list(self._changed.values()):
            failure = self._settle(part)
            if failure is None and not part.gave_up:
                budget.limit(_LOOK_S)
                failure = part.look_ahead()
                budget.limit(None)
            if failure is not None:
                self._violated(failure, part)
                return
            if part.uncertainty:
                self._uncertain[part.key] = part
            else:
                self._uncertain.pop(part.key, None)
        self._changed.clear()
        if len(self._objects) > OBJECTS_AWAKE_MAX:
            self._let_rest()
        self._looked_s = self._now_s()
        objects = len(self._objects) + len(self._resting)
        if self._uncertain:
            part = next(iter(self._uncertain.values()))
            more = len(self._uncertain) - 1
            also = (
                f"; the same holds for {more} other object{'s' if more > 1 else ''}" if more else ""
            )
            self._verdict = Unknown(f"{self._named(part.key)}{part.uncertainty}{also}")
        else:
            self._verdict = ValidSoFar(self._count, len(self._open), objects)

    def _settle(self, part: ObjectMonitor) -> Failure | None:
        had_given_up = part.gave_up
        failure, committed = part.settle()
        for call in committed:
            self._note(
                f"{self._named(part.key)}{call.operation} of process {call.process} was open for more "
                f"than {self._means.buffer_max:,} events; it counts as of unknown outcome"
            )
        if part.gave_up and not had_given_up:
            self._note(f"{self._named(part.key)}{part.doubt}")
        return failure

    def _violated(self, failure: Failure, part: ObjectMonitor) -> None:
        anomaly = anomaly_of(failure, part.key, self._spec, self._source, tuple(self._faults))
        verdict = Invalid(anomaly, "monitor")
        self._verdict = verdict
        # Nothing can change the verdict any more, so nothing is kept.
        for table in (self._open, self._objects, self._resting, self._changed, self._uncertain):
            table.clear()
        if self._on_violation is not None:
            self._on_violation(verdict)

    def _let_rest(self) -> None:
        for key, part in list(self._objects.items()):
            state = part.rested()
            if state is not None:
                del self._objects[key]
                self._resting[key] = state[0]

    def _refuse_malformed(self, operation: Operation, line: int) -> None:
        spec = self._spec
        problem = spec.malformed(operation)
        if self._functions and operation.function not in self._functions:
            problem = (
                f"specification '{spec.name}' knows no operation {operation.function!r:.80}; it knows "
                f"{', '.join(spec.functions)}"
            )
        elif problem is not None:
            problem = f"{operation!s:.200}: {problem}"
        if problem is not None:
            raise MalformedHistory(problem, path=self._source or None, line=line or None)

    def _named(self, key: Hashable) -> str:
        return "" if key is None else f"object {key!r:.80}: "

    def _note(self, note: str) -> None:
        if len(self.notes) < _NOTES_MAX:
            self.notes.append(note)
        elif len(self.notes) == _NOTES_MAX:
            self.notes.append("There are more such notes.")
