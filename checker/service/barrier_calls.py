"""The calls of one named barrier, as what looks for its instances needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from checker.anomaly import Anomaly
from checker.operations import Failed, Operations
from checker.specs.named_barrier import CANCEL, NamedBarrier, is_counter


class BarrierCalls:
    """The calls of one id: when each was invoked and returned, as positions among the events.

    Attributes:
      operations: The history they are from.
      start: By number of the call, the position of its invocation.
      end: The position of its return; behind all events if it has none.
      members: Of all instances.
      returned: Calls that returned, in the order of their returns.
      of: The same by process.
      overlapping: Processes of which some call was invoked before an earlier one returned.
      unknown: Calls of unknown outcome by process, in the order of their invocations.
      cancels: Cancellations that returned.
      anomaly: What is wrong with the calls already, if anything.
    """

    def __init__(
        self, operations: Operations, spec: NamedBarrier, name: Callable[[int], str]
    ) -> None:
        self.operations = operations
        self._name = name
        self.start = [0] * len(operations)
        self.end = [len(operations.events)] * len(operations)
        self.returned: list[int] = []
        self.of: dict[int, list[int]] = {}
        self.overlapping: set[int] = set()
        self.unknown: dict[int, list[int]] = {}
        self.cancels: list[int] = []
        self._read()
        self.members: frozenset[int] = frozenset()
        self.anomaly = self._agree_on_members(spec)
        self._read_unknown(spec)

    @cached_property
    def cancellations(self) -> frozenset[int]:
        """The cancellations that returned, to look up."""
        return frozenset(self.cancels)

    @property
    def tell_counters(self) -> bool:
        """Whether any call tells its instance."""
        results = (self.operations.at(call).result for call in self.returned)
        return bool(self.cancels) or any(map(is_counter, results))

    def process(self, call: int) -> int:
        """Who called."""
        return self.operations.process[call]

    def counter(self, call: int) -> int:
        """The instance that a call was told."""
        counter = self.operations.at(call).result
        assert isinstance(counter, int)
        return counter

    def name(self, call: int) -> str:
        """A call in words."""
        return f"process {self.process(call)} ({self._name(call)})"

    def told_apart(self, call: int, missing: int) -> Anomaly:
        """`call` passed, and no call of a member can have been its arrival by then."""
        later = next(
            (each for each in self.of.get(missing, ()) if self.start[each] > self.end[call]), None
        )
        return self.anomaly_of(
            "barrier-passed-without-member",
            f"{self.name(call)} passed the barrier, and no call of process {missing} can have been its "
            "arrival there",
            [call] if later is None else [call, later],
            () if later is None else (f"{self.name(later)} called only afterwards.".capitalize(),),
        )

    def anomaly_of(
        self, kind: str, summary: str, calls: Sequence[int], details: tuple[str, ...] = ()
    ) -> Anomaly:
        """A contradiction among calls."""
        operations = self.operations
        return Anomaly(
            kind=kind,
            summary=f"{summary[0].upper()}{summary[1:]}.",
            details=details,
            processes=tuple(sorted({self.process(call) for call in calls})),
            operations=tuple(sorted(calls)),
            from_ns=min(operations.invoked_ns[call] for call in calls),
            to_ns=max(operations.ended_ns[call] for call in calls),
        )

    def _read(self) -> None:
        operations = self.operations
        for position, event in enumerate(operations.events):
            if event >= 0:
                self.start[event] = position
                continue
            call = ~event
            self.end[call] = position
            operation = operations.at(call)
            if isinstance(operation.result, Failed):
                continue
            if operation.function == CANCEL:
                self.cancels.append(call)
            else:
                self.returned.append(call)
                earlier = self.of.setdefault(self.process(call), [])
                if earlier and self.start[call] < self.end[earlier[-1]]:
                    self.overlapping.add(self.process(call))
                earlier.append(call)

    def _agree_on_members(self, spec: NamedBarrier) -> Anomaly | None:
        for call in self.returned:
            members = spec.members_of(self.operations.at(call))
            assert members is not None
            self.members = self.members or members
            if members != self.members:
                first = self.returned[0]
                return self.anomaly_of(
                    "barrier-with-different-members",
                    f"{self.name(call)} passed with members {sorted(members)}, and "
                    f"{self.name(first)} with members {sorted(self.members)}",
                    [first, call],
                )
            if self.process(call) not in members:
                return self.anomaly_of(
                    "barrier-passed-by-stranger",
                    f"{self.name(call)} passed, and is none of the members {sorted(members)}",
                    [call],
                )
        return None

    def _read_unknown(self, spec: NamedBarrier) -> None:
        for call in range(len(self.operations)):
            operation = self.operations.at(call)
            if operation.function == CANCEL or not operation.is_open:
                continue
            if spec.members_of(operation) == self.members:
                self.unknown.setdefault(self.process(call), []).append(call)
