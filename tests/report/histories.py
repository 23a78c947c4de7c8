"""Histories of a register with their verdicts, made by hand: what reports are made of."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from checker import Anomaly, Invalid, Valid
from checker.linearization import Contradiction, Linearization, ObjectOrder, PossibleState
from checker.operations import UNKNOWN, Operations, Recorder
from checker.report import Report, report_of
from checker.specification import Illegal, SetSpecification, Specification
from checker.verdict import Verdict


class Register(Specification):
    """Several registers, by key; all are 0 at first."""

    name = "register"

    def init(self) -> Hashable:
        return 0

    def step(self, state: Any, operation: Any) -> Hashable | Illegal:
        if operation.function == "write":
            return operation.argument  # type: ignore[no-any-return]
        if operation.result in (UNKNOWN, state):
            return state  # type: ignore[no-any-return]
        return Illegal(f"the register is {state}")


def valid(
    operations: Operations, orders: Sequence[ObjectOrder], spec: Specification | SetSpecification
) -> Verdict:
    return Valid(Linearization(operations, spec, lambda: tuple(orders)))


def invalid(evidence: Contradiction, summary: str = "", details: Sequence[str] = ()) -> Verdict:
    failing = evidence.operations.at(evidence.failing)
    return Invalid(
        Anomaly(
            kind="not-linearizable",
            summary=summary or f"{failing} has no place in any order.",
            details=tuple(details),
            operations=evidence.core,
            evidence=evidence,
        )
    )


@dataclass
class Run:
    """Processes that call registers, each call taking effect at a moment of its own.

    Attributes:
      values: How many values are written.
      order: By key, the operations in the order in which they took effect.
    """

    seed: int = 0
    processes: int = 5
    keys: Sequence[str | None] = (None,)
    clock: str = "abstract"
    crashes: float = 0.0
    failures: float = 0.0
    values: int = 97
    order: dict[str | None, list[int]] = field(default_factory=dict)
    states: dict[str | None, int] = field(default_factory=dict)

    def record(self, length: int) -> Recorder:
        draw = random.Random(self.seed)
        recorder = Recorder(clock=self.clock, source="register.edn")
        names = list(range(self.processes))
        time_ns = 1_000_000_000
        running: list[tuple[int, int, str, str | None, int, object] | None] = [None] * len(names)
        while len(recorder) < length or any(running):
            worker = draw.randrange(len(names))
            call = running[worker]
            time_ns += draw.choice([3_000, 40_000, 250_000, 900_000])
            at = None if self.clock == "abstract" else time_ns
            if call is None:
                if len(recorder) >= length:
                    continue
                key, function = draw.choice(self.keys), draw.choice(["write", "read"])
                argument = len(recorder) % self.values if function == "write" else None
                index = recorder.invoke(
                    names[worker],
                    function,
                    argument,
                    key=key,
                    time_ns=at,
                    line=len(recorder) * 2 + 1,
                )
                running[worker] = (index, 0, function, key, argument or 0, None)
                continue
            index, stage, function, key, argument, result = call
            fate = draw.random()
            if stage == 0 and fate < self.failures:
                recorder.fail(index, "conflict", time_ns=at)
                running[worker] = None
            elif stage == 0:
                self.order.setdefault(key, []).append(index)
                if function == "write":
                    self.states[key] = argument
                else:
                    result = self.states.get(key, 0)
                running[worker] = (index, 1, function, key, argument, result)
            else:
                if fate < self.crashes:
                    recorder.info(index, "timeout", time_ns=at)
                    names[worker] += len(names)
                else:
                    recorder.ok(index, result, time_ns=at)
                running[worker] = None
        return recorder


def valid_run(length: int, **options: Any) -> tuple[Operations, Verdict]:
    run = Run(**options)
    operations = run.record(length).operations()
    orders = [
        ObjectOrder(key, tuple((index,) for index in order)) for key, order in run.order.items()
    ]
    return operations, valid(operations, orders, Register())


def invalid_run(length: int, **options: Any) -> tuple[Operations, Verdict]:
    """A run at whose end somebody reads what was never written."""
    run = Run(**options)
    recorder = run.record(length)
    key = run.keys[0]
    recorded = recorder.operations()
    last = max(index for index in run.order[key] if recorded.at(index).function == "write")
    times = {"time_ns": None} if run.clock == "abstract" else {"time_ns": 10**12}
    read = recorder.invoke(1, "read", key=key, line=4711, **times)
    recorder.ok(read, -1, **times)
    operations = recorder.operations()
    state = run.states[key]
    evidence = Contradiction(
        operations=operations,
        spec=Register(),
        key=key,
        failing=read,
        possible=(PossibleState(state=str(state), reason=f"the register is {state}"),),
        possible_count=1,
        prefix=tuple((index,) for index in run.order[key]),
        core=(last, read),
    )
    details = (f"Just before it returned, the register could only be {state}.",)
    return operations, invalid(evidence, details=details)


def small_contradiction() -> tuple[Operations, Verdict]:
    """A read of a value that was overwritten before it began.

    process 0  [write 1]       [write 2]
    process 1       [ read -> 1      ]    [read -> 1]
    process 2    [cas 1 3, unknown ...
    """
    recorder = Recorder(source="small.edn")
    write_1 = recorder.invoke(0, "write", 1, line=1)
    maybe = recorder.invoke(2, "write", 3, line=2)
    read = recorder.invoke(1, "read", line=3)
    recorder.ok(write_1)
    write_2 = recorder.invoke(0, "write", 2, line=5)
    recorder.ok(read, 1)
    lost = recorder.invoke(3, "write", 9, line=7)
    recorder.fail(lost, "conflict")
    recorder.ok(write_2)
    recorder.info(maybe, "timeout")
    stale = recorder.invoke(1, "read", line=9)
    recorder.fault("nemesis", "partition of {0, 1} | {2, 3}")
    after = recorder.invoke(0, "write", 4, line=10)
    recorder.ok(stale, 1)
    recorder.ok(after)
    operations = recorder.operations()
    evidence = Contradiction(
        operations=operations,
        spec=Register(),
        key=None,
        failing=stale,
        possible=(
            PossibleState(state="2", reason="the register is 2"),
            PossibleState(state="3", given=(maybe,), reason="the register is 3"),
            PossibleState(state="4", given=(), reason="the register is 4"),
        ),
        possible_count=3,
        prefix=((write_1,), (read,), (write_2,)),
        core=(write_1, write_2, stale),
        context=(maybe,),
    )
    return operations, invalid(
        evidence,
        "read() -> 1 of process 1 has no place: no order of what precedes it is legal.",
        [
            "It began after write(2) had returned, so it comes after it; and 1 is written only before.",
            "write(3), whose outcome is unknown, may have had its effect and does not help.",
        ],
    )


def small_report() -> Report:
    operations, verdict = small_contradiction()
    return report_of(operations, verdict, Register())


class Meeting(SetSpecification):
    """Two processes meet: both calls take effect as one, and return both numbers."""

    name = "meeting"

    def init(self) -> Hashable:
        return 0

    def step(self, state: Any, group: Sequence[tuple[int, Any]]) -> Hashable | Illegal:
        members = tuple(sorted(process for process, _ in group))
        if len(members) != 2:
            return Illegal("a meeting takes two")
        if any(operation.result not in (UNKNOWN, members) for _, operation in group):
            return Illegal("somebody was told of others")
        return int(state) + 1
