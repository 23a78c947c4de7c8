"""Many programs on many services: batches, confirmation of differences, and shrinking."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from tests.conformance.services import ForkServer, ModelService, RealService, Service
from tests.differential.execute import LONG, QUICK, Difference, Patience, Run, run
from tests.differential.programs import Program, Step, is_safe, programs

ACTIVE = {False: 16, True: 4}
"""Programs that keep the machine busy at the same time, without and with timed steps; those that let
time pass are not counted."""

AT_ONCE = {False: 24, True: 24}
"""Programs that have services at the same time, without and with timed steps."""

CONFIRMATIONS = 3
"""So often a program must differ when it is run again with more patience."""

INDEPENDENT = 10
"""Examples that hypothesis draws afresh; most of those after them are variants of what was drawn."""

ATTEMPTS_WHEN_LATE = 6
SHRINKING_WITHIN_S = 240.0

Pair = Callable[[], tuple[Service, Service]]
"""Makes fresh services to run a program on; the first is the standard."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A program on which the services differ for good.

    Attributes:
      program: As short as it got.
      difference: What is different.
    """

    program: Program
    difference: Difference

    def __str__(self) -> str:
        one, other = self.difference.texts
        lines = [
            str(self.program),
            f"at step {self.difference.step}, the first and the second say:",
        ]
        for what in sorted({*one, *other}):
            mine, theirs = one.get(what, "nothing"), other.get(what, "nothing")
            if mine != theirs:
                lines += [f"  {what}", f"    1: {mine}", f"    2: {theirs}"]
        lines += [
            "to replay it:",
            f"  python -m tests.differential.fuzz --replay '{quoted(self.program)}'",
        ]
        return "\n".join(lines)

    @property
    def kind(self) -> str:
        """The difference without its numbers: findings of one kind probably have one cause."""
        one, other = self.difference.texts
        differing = {
            re.sub(r"\d+", "#", f"{what}: {one.get(what)} / {other.get(what)}")
            for what in (*one, *other)
            if one.get(what) != other.get(what)
        }
        return "\n".join(sorted(differing))


def quoted(program: Program) -> str:
    """The program's JSON as it can stand between single quotes in a shell."""
    return program.to_json().replace("'", "\\u0027")


@dataclass(slots=True)
class Tally:
    """What a campaign has seen."""

    programs: int = 0
    steps: int = 0
    loose: int = 0
    late: int = 0
    transient: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, result: Run) -> None:
        """Counts a run."""
        self.programs += 1
        self.steps += result.steps
        self.loose += result.loose
        self.counts += result.counts

    def __str__(self) -> str:
        lines = [
            f"{self.programs} programs, {self.steps} steps",
            f"{self.loose} steps agreed but for what is arbitrary",
            f"{self.transient} programs differed once and not again",
            f"{self.late} programs were given up because the machine was late",
        ]
        by_op: dict[str, list[str]] = {}
        for (op, code), number in sorted(self.counts.items(), key=lambda each: -each[1]):
            by_op.setdefault(op, []).append(f"{code} {number}")
        lines += [f"  {op:15} {', '.join(codes)}" for op, codes in sorted(by_op.items())]
        return "\n".join(lines)


def drawn(number: int, seed: int, *, timed: bool, reports: bool) -> list[Program]:
    """Programs that depend on nothing but the arguments and the version of hypothesis."""
    found: dict[Program, None] = {}
    for turn in itertools.count():
        if len(found) >= number:
            break

        @seeded(f"{seed} {turn}")
        @settings(
            max_examples=INDEPENDENT,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(programs(timed=timed, reports=reports))
        def collect(program: Program) -> None:
            found[program] = None

        collect()
    return list(found)[:number]


@contextlib.asynccontextmanager
async def real_and_model() -> AsyncIterator[Pair]:
    """The services that the fuzzer is about."""
    async with ForkServer() as forks:
        yield lambda: (RealService(forks), ModelService())


class Campaign:
    """Runs programs on pairs of services.

    Args:
      pair: Makes the services.
      quick: How long a step of a program waits that is run for the first time.
      long: The same, where a difference must be confirmed.

    Attributes:
      tally: What was seen so far.
    """

    def __init__(self, pair: Pair, *, quick: Patience = QUICK, long: Patience = LONG) -> None:
        self.tally = Tally()
        self._pair = pair
        self._quick = quick
        self._long = long
        self._active = {timed: asyncio.Semaphore(number) for timed, number in ACTIVE.items()}

    async def batch(self, batch: Sequence[Program], *, until: float | None = None) -> list[Finding]:
        """Runs programs, some at the same time.

        Args:
          batch: What to run.
          until: No program is begun later (`time.monotonic`).

        Returns:
          Those that differ for good, not shrunk.
        """
        findings: list[Finding] = []
        places = {timed: asyncio.Semaphore(number) for timed, number in AT_ONCE.items()}

        async def one(program: Program) -> None:
            async with places[program.timed]:
                if until is None or time.monotonic() < until:
                    finding = await self._judge(program)
                    if finding is not None:
                        findings.append(finding)

        async with asyncio.TaskGroup() as group:
            for program in batch:
                group.create_task(one(program))
        return findings

    async def shrink(self, finding: Finding, *, within_s: float = SHRINKING_WITHIN_S) -> Finding:
        """Removes steps, and what else can be left out, while the services still differ."""
        end = time.monotonic() + within_s
        best = replace(finding, program=_cut(finding.program, finding.difference))
        improved = True
        while improved and time.monotonic() < end:
            improved = False
            for candidates in _batches(_simpler(best.program), 8):
                found = await asyncio.gather(
                    *(self._differs(each, self._quick) for each in candidates)
                )
                shorter = next((each for each in found if each is not None), None)
                if shorter is not None:
                    confirmed = await self._differs(shorter.program, self._long)
                    if confirmed is not None:
                        best = confirmed
                        improved = True
                        break
                if time.monotonic() > end:
                    break
        return best

    async def confirm(self, program: Program) -> Finding | None:
        """A finding if the services differ each time when given time."""
        finding = None
        for _ in range(CONFIRMATIONS):
            finding = await self._differs(program, self._long)
            if finding is None:
                return None
        return finding

    async def _judge(self, program: Program) -> Finding | None:
        result = await self._run(program, self._quick)
        if result is None:
            self.tally.late += 1
            return None
        self.tally.add(result)
        if result.difference is None:
            return None
        finding = await self.confirm(program)
        if finding is None:
            self.tally.transient += 1
        return finding

    async def _differs(self, program: Program, patience: Patience) -> Finding | None:
        result = await self._run(program, patience)
        if result is None or result.difference is None:
            return None
        return Finding(program, result.difference)

    async def _run(self, program: Program, patience: Patience) -> Run | None:
        """A run that is not late, or None."""
        for _ in range(ATTEMPTS_WHEN_LATE):
            result = await run(program, self._pair(), self._active[program.timed], patience)
            if not result.late:
                return result
        return None


def _cut(program: Program, difference: Difference) -> Program:
    """Nothing that follows the difference matters."""
    return replace(program, steps=program.steps[: difference.step + 1])


def _simpler(program: Program) -> Iterator[Program]:
    """Programs with a little less in them, the much shorter ones first."""
    steps = program.steps
    size = len(steps) // 2
    while size:
        for begin in range(0, len(steps), size):
            yield replace(program, steps=(*steps[:begin], *steps[begin + size :]))
        size //= 2
    variants = [replace(program, tasks=program.tasks - 1)] if program.tasks > 1 else []
    variants += [
        replace(program, steps=(*steps[:number], simpler, *steps[number + 1 :]))
        for number, step in enumerate(steps)
        for simpler in _simpler_steps(step)
    ]
    yield from (each for each in variants if is_safe(each))


def _simpler_steps(step: Step) -> Iterator[Step]:
    if step.back:
        yield replace(step, back=step.back - 1)
    for name, value in step.arguments:
        smaller: list[object] = []
        if isinstance(value, tuple):
            smaller = [value[:at] + value[at + 1 :] for at in range(len(value))]
        elif name == "key" and value != "a":
            smaller = ["a"]
        elif name == "value" and value:
            smaller = [""]
        elif name == "barrier_id" and value != "s":
            smaller = ["s"]
        elif name == "counter" and value not in (None, 0):
            smaller = [None, 0]
        for each in smaller:
            arguments = tuple((n, each if n == name else v) for n, v in step.arguments)
            yield replace(step, arguments=arguments)


def _batches(items: Iterable[Program], size: int) -> Iterator[list[Program]]:
    batch: list[Program] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
