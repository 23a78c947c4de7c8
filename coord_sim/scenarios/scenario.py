"""A scenario: a schedule, a program, and what must come of them, with the reason why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from coord_sim.core.semantics import SEMANTICS
from coord_sim.core.status import Code
from coord_sim.scenarios.arguments import argument_problems
from coord_sim.scenarios.expectations import (
    JUDGEMENTS,
    OUTCOMES,
    PENDING,
    STATES,
    VERDICTS,
    Answers,
    Blocks,
    Ends,
    Expectations,
    Logs,
)
from coord_sim.scenarios.for_processes import not_for_processes
from coord_sim.scenarios.lines import Path
from coord_sim.scenarios.problems import Problem, ScenarioError, nearest
from coord_sim.schedule import Schedule
from coord_sim.sim.process import Program
from coord_sim.sim.programs import PROGRAMS

SIMULATOR: Final = "simulator"
PROCESSES: Final = "processes"
PLACES: Final = (SIMULATOR, PROCESSES)
"""Where a scenario can run: in virtual time, and on real processes."""

_LEAVE_OUT: Final = f"leave {PROCESSES!r} out of runs_on"

CODES: Final = (*(code.name for code in Code), PENDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What happens to a job, and what must come of it. The same as a file of `library`.

    Attributes:
      name: Lower case, with hyphens.
      title: One line.
      what: What happens.
      why: The cause in the real service, and where it was reported.
      sources: Reports, as `owner/repository#number`.
      runs_on: Some of `PLACES`.
      schedule: The job and its faults.
      program: A name of `coord_sim.sim.programs.PROGRAMS`.
      arguments: Of the program.
      expect: What must be true of every run.
      expect_of: What must be true instead under some semantics, by their names.
    """

    name: str
    title: str
    what: str
    why: str
    schedule: Schedule
    program: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    runs_on: tuple[str, ...] = (SIMULATOR,)
    expect: Expectations
    expect_of: Mapping[str, Expectations] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = [
            Problem(f"scenario {self.name}", 0, path, text) for path, text in self._problems()
        ]
        if problems:
            raise ScenarioError(problems)

    def make_program(self) -> Program:
        """The program with its arguments."""
        return PROGRAMS[self.program](**self.arguments)

    def under(self, *, seed: int | None = None, semantics: str | None = None) -> Schedule:
        """The schedule with another seed or other semantics.

        Raises:
          ScheduleError: there are no such semantics.
        """
        changes: dict[str, object] = {}
        if seed is not None:
            changes["seed"] = seed
        if semantics is not None:
            changes["semantics"] = semantics
        return replace(self.schedule, **changes)  # type: ignore[arg-type]

    def expectations(self, semantics: str) -> Expectations:
        """What is expected under these semantics."""
        changes = self.expect_of.get(semantics)
        return self.expect if changes is None else self.expect.with_changes(changes)

    # --- validation ----------------------------------------------------------------------------

    def _problems(self) -> Iterator[tuple[Path, str]]:
        yield from argument_problems(self.program, self.arguments, self.schedule.processes)
        if not self.runs_on:
            yield ("runs_on",), "names no place to run"
        for place in self.runs_on:
            if place not in PLACES:
                yield ("runs_on",), f"unknown place {place!r}{nearest(place, PLACES)}"
        if PROCESSES in self.runs_on:
            yield from self._unreal()
        if SIMULATOR in self.runs_on:
            for number, fault in enumerate(self.schedule.faults):
                if getattr(fault, "bytes_per_s", 0):
                    text = f"messages of the simulator have no size; leave {SIMULATOR!r} out of runs_on"
                    yield ("faults", number, "bytes_per_s"), text
        yield from _expectation_problems(("expect",), self.expect, self.schedule.processes)
        if self.expect.are_none:
            yield ("expect",), "expects nothing"
        for semantics, changes in self.expect_of.items():
            path = ("expect", semantics)
            if semantics not in SEMANTICS:
                yield path, f"unknown semantics {semantics!r}{nearest(semantics, SEMANTICS)}"
            yield from _expectation_problems(path, changes, self.schedule.processes)

    def _unreal(self) -> Iterator[tuple[Path, str]]:
        for number, fault in enumerate(self.schedule.faults):
            reason = not_for_processes(fault, self.schedule.processes)
            if reason is not None:
                yield ("faults", number), f"{reason}; {_LEAVE_OUT}"
        if self.schedule.mutant:
            yield ("job", "mutant"), f"real processes have no mutants; {_LEAVE_OUT}"
        if self.schedule.loss:
            yield ("job", "loss"), f"no packets are lost between real processes; {_LEAVE_OUT}"


def _expectation_problems(
    path: Path, expect: Expectations, processes: int
) -> Iterator[tuple[Path, str]]:
    for judgement, verdict in (expect.verdicts or {}).items():
        where = (*path, "verdicts", judgement)
        if judgement not in JUDGEMENTS:
            yield where, f"unknown judgement {judgement!r}{nearest(judgement, JUDGEMENTS)}"
        yield from _one_of(where, "verdict", verdict, VERDICTS)
    for condition, count in (expect.reached or {}).items():
        if count < 0:
            yield (*path, "reached", condition), f"a count is at least 0, found {count}"
    for name in ("ends", "blocks", "logs", "answers"):
        for number, expectation in enumerate(getattr(expect, name) or ()):
            where = (*path, name, number)
            yield from _process_problems(where, expectation, processes)
            yield from _interval_problems(where, expectation)
            yield from _word_problems(where, expectation)


def _process_problems(
    path: Path, expectation: Ends | Blocks | Logs | Answers, processes: int
) -> Iterator[tuple[Path, str]]:
    named = {"processes": expectation.processes}
    if isinstance(expectation, Blocks):
        named |= {"failed": expectation.failed or (), "live": expectation.live or ()}
    for key, numbers in named.items():
        for process in numbers:
            if not 0 <= process < processes:
                yield (*path, key), f"process {process} is not one of 0 to {processes - 1}"


def _interval_problems(
    path: Path, expectation: Ends | Blocks | Logs | Answers
) -> Iterator[tuple[Path, str]]:
    if expectation.before_s is not None and not expectation.after_s < expectation.before_s:
        yield (
            (*path, "before_s"),
            f"nothing is after {expectation.after_s:g} s and before {expectation.before_s:g} s",
        )
    if isinstance(expectation, Ends):
        return
    least, most = expectation.at_least, expectation.at_most
    if least == 0 and most is None:
        yield (*path, "at_least"), "at least 0 always holds"
    if most is not None and most < (least or 0):
        yield (*path, "at_most"), f"nothing is at least {least} and at most {most}"


def _word_problems(
    path: Path, expectation: Ends | Blocks | Logs | Answers
) -> Iterator[tuple[Path, str]]:
    match expectation:
        case Ends():
            yield from _one_of((*path, "state"), "state", expectation.state, STATES)
            for key, state in (("cause", "crashed"), ("waits_for", "running")):
                if getattr(expectation, key) and expectation.state != state:
                    yield (*path, key), f"goes with the state {state!r} only"
        case Blocks():
            yield from _one_of((*path, "outcome"), "outcome", expectation.outcome, OUTCOMES)
        case Answers():
            yield from _one_of((*path, "code"), "code", expectation.code, CODES)
        case Logs():
            if not expectation.words:
                yield (*path, "words"), "every line has no words in it; say which"


def _one_of(
    path: Path, what: str, value: str, values: tuple[str, ...]
) -> Iterator[tuple[Path, str]]:
    if value not in values:
        yield path, f"unknown {what} {value!r}{nearest(value, values)}"
