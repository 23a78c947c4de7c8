"""What the fixture `simulation` gives: runs that can be asked for what a test demands."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Self, cast

from checker import (
    Inconclusive,
    LiveProcesses,
    Specification,
    Unknown,
    Verdict,
    Violation,
    check,
    check_service,
)
from checker.live_processes.spec import Definition, FailureModel
from checker.timeline import timeline, timeline_lines
from coord_sim.errors import CoordSimError
from coord_sim.faults import Fault
from coord_sim.scenarios.problems import nearest
from coord_sim.schedule import Schedule
from coord_sim.sim import Program, Run, Simulation, Tape
from coord_sim.sim.nemesis import draw_schedule

ANY: Final = "any"
"""In place of kinds of faults: every kind."""

PROCESSES: Final = 3
"""How many processes there are if a test does not say."""

_RUNS_KEPT: Final = 4
_TAPE: Final = "coordlab test tape"
_DRAWN_EVENTS_MAX: Final = 20_000
"""Longer histories are kept without a picture."""

_SETTINGS: Final = (*(field.name for field in fields(Schedule)), "stalls", "until_s")


@dataclass(frozen=True, slots=True)
class SimulatedRun(Run):
    """A run, and what a test may demand of it. The demands return the run, to ask for more."""

    @property
    def succeeded(self) -> bool:
        """Whether every process left by itself."""
        return all(end.state == "left" for end in self.ends)

    def verdict(self, spec: LiveProcesses | Specification | None = None) -> Verdict:
        """What the checker says; about the `live_processes` barrier if no specification is given."""
        return check(self.history, spec)

    def timeline(self, *, width: int = 100) -> str:
        """The history as a picture of text."""
        return timeline(self.history, width=width)

    def require_valid(
        self, *, definition: Definition = "round", failures: FailureModel = "suspicion"
    ) -> Self:
        """Demands that live sets, blocks, keys and barriers were what they promise to be.

        Args:
          definition: Of the live sets.
          failures: Whether a process may be declared dead while it lives.

        Raises:
          Violation: something was not; with the explanation.
          Inconclusive: the checker cannot tell.
        """
        __tracebackhide__ = True
        spec = LiveProcesses(definition=definition, failures=failures)
        for row in check_service(self.history, live=spec):
            if row.verdict is None or row.word == "valid":
                continue
            kind = Inconclusive if isinstance(row.verdict, Unknown) else Violation
            raise kind(f"{row.object}: {row.verdict.explain()}")
        return self

    def require_progress(self) -> Self:
        """Demands that every process came to an end: it left, or it died of a fault and stayed dead.

        Raises:
          Violation: somebody still ran at the limit (says what it waits for), or a program raised what
            is no consequence of a fault.
        """
        __tracebackhide__ = True
        failure = self.unexpected_error()
        if failure is not None:
            process, _, story = failure
            raise Violation(f"process {process}: {story}")
        if not self.finished:
            waiting = [
                f"process {end.process} waits for {end.waits_for or 'nothing'}"
                for end in self.ends
                if end.state == "running"
            ]
            raise Violation(f"no progress by {self.end_s:g} s: {'; '.join(waiting)}")
        return self

    def require_reached(self, condition: str) -> Self:
        """Demands that a condition was reached (`Process.sometimes`), so that the test means something.

        Raises:
          Violation: it was not.
        """
        __tracebackhide__ = True
        if not self.reached.get(condition):
            raise Violation(f"{condition!r} was not reached{nearest(condition, self.reached)}")
        return self


def simulated(program: Program, schedule: Schedule) -> SimulatedRun:
    """What the fixture `simulation` does, for tests that cannot use it: Hypothesis's.

    Raises:
      ProgramError: the program does something that the simulator cannot follow.
    """
    return _simulated(Simulation(program, schedule).run())


def _simulated(run: Run) -> SimulatedRun:
    return SimulatedRun(**{field.name: getattr(run, field.name) for field in fields(Run)})


@dataclass(frozen=True, slots=True)
class _Made:
    """One run that was made: enough to make it again."""

    number: int
    program: Program
    run: Run


class SimulationFactory:
    """The fixture `simulation`: call it to simulate.

    Args:
      seed: Of what it draws.
      settings: What a test does not say itself.
      tape: To play, in place of the seed, for the run that it is of.

    Attributes:
      seed: The same.
    """

    def __init__(
        self, seed: int, settings: Mapping[str, Any], *, tape: tuple[int, Tape] | None = None
    ) -> None:
        self.seed: int | None = seed
        self._settings = dict(settings)
        self._tape = tape
        self._count = 0
        self._made: deque[_Made] = deque(maxlen=_RUNS_KEPT)

    def __call__(
        self, program: Program, schedule: Schedule | None = None, /, **settings: Any
    ) -> SimulatedRun:
        """Simulates a program.

        Args:
          program: What every process runs.
          schedule: What is run, with its own seed. Made of the settings, the marker's and the test's
            seed if left out.
          settings: Fields of `Schedule`. `faults` may name kinds of faults, which are drawn from the
            seed: see `schedule`.

        Raises:
          ScheduleError: settings that cannot be.
          TypeError: there is no such setting.
          ProgramError: the program does something that the simulator cannot follow.
        """
        if schedule is None:
            schedule = self.schedule(**settings)
        elif settings:
            schedule = replace(schedule, **settings)
        self._count += 1
        tape = None
        if self._tape is not None and self._tape[0] == self._count:
            tape = self._tape[1]
        simulation = Simulation(program, schedule, tape=tape)
        try:
            run = simulation.run()
        except BaseException:
            self._made.append(_Made(self._count, program, simulation.result()))
            raise
        self._made.append(_Made(self._count, program, run))
        if tape is not None and (departure := tape.departure()) is not None:
            print(f"the code has changed, and the run is not the one of the tape: {departure}")
        return _simulated(run)

    def schedule(self, **settings: Any) -> Schedule:
        """What would be run with these settings.

        Beside the fields of `Schedule` there are `until_s` (drawn faults begin before) and `stalls`
        (whether drawn ones may last longer than the heartbeat time-out). `faults` are values of
        `coord_sim.faults`, and names of kinds (`coord_sim.sim.nemesis.KINDS`, or `any`) to draw from the
        seed; then a quiet phase follows.
        """
        settings = {"processes": PROCESSES, "seed": self.seed, **self._settings, **settings}
        for name in settings:
            if name not in _SETTINGS:
                raise TypeError(f"simulation has no setting {name!r}{nearest(name, _SETTINGS)}")
        drawing = {name: settings.pop(name) for name in ("stalls", "until_s") if name in settings}
        fixed, kinds = _sorted_out(settings.pop("faults", ()))
        base = Schedule(faults=fixed, **settings)
        if not kinds:
            return base
        some = None if ANY in kinds else kinds
        return draw_schedule(base.seed, base, kinds=some, **drawing)

    def keep(self, folder: Path) -> Iterator[str]:
        """Writes the latest runs; the draws of each, too, if it runs the same way again."""
        for made in self._made:
            place = folder if self._count == 1 else folder / f"run{made.number}"
            place.mkdir(exist_ok=True)
            yield f"run {made.number} of {self._count}: {made.run.schedule!r}"
            yield from _ends(made.run)
            note = _write(made, place)
            if note is not None:
                yield note


def _sorted_out(
    faults: str | Sequence[str | Fault],
) -> tuple[tuple[Fault, ...], tuple[str, ...]]:
    told = (faults,) if isinstance(faults, str) else tuple(faults)
    kinds = tuple(each for each in told if isinstance(each, str))
    return tuple(each for each in told if not isinstance(each, str)), kinds


# --- evidence ----------------------------------------------------------------------------------


def _ends(run: Run) -> Iterator[str]:
    for end in run.ends:
        about = end.cause.partition("\n")[0] or (end.waits_for and f"waits for {end.waits_for}")
        yield f"  process {end.process}: {end.state}{f': {about}' if about else ''}"


def _write(made: _Made, place: Path) -> str | None:
    """Writes the files of a run; returns a note on what is odd about it."""
    run = made.run
    run.history.save(place / "history.jsonl")
    (place / "schedule.txt").write_text(f"{run.schedule!r}\n", encoding="utf-8")
    log = [*_ends(run), "", *(str(line) for line in run.log)]
    (place / "log.txt").write_text("\n".join(log) + "\n", encoding="utf-8")
    if len(run.history.events) <= _DRAWN_EVENTS_MAX:
        picture = timeline_lines(run.history, check(run.history), width=120)
        (place / "timeline.txt").write_text("\n".join(picture) + "\n", encoding="utf-8")
    tape = Tape()
    simulation = Simulation(made.program, run.schedule, tape=tape)
    try:
        again = simulation.run()
    except CoordSimError:
        again = simulation.result()
    content = {_TAPE: 1, "run": made.number, "schedule": repr(run.schedule), "draws": tape.draws}
    (place / "tape.json").write_text(json.dumps(content) + "\n", encoding="utf-8")
    if again.history.events != run.history.events:
        return (
            "  note: run again, it gave another history: the program depends on something else than its "
            "process (a global, a set's order, the time?)"
        )
    return None


def read_tape(path: Path) -> tuple[int, Tape]:
    """The number of the run in its test, and its draws.

    Raises:
      ValueError: the file is no tape of a test.
      OSError: it cannot be read.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or content.get(_TAPE) != 1:
        raise ValueError(f"{path} is no tape of a test")
    return int(content["run"]), Tape(cast("Mapping[str, list[float]]", content["draws"]))


__all__ = ["ANY", "SimulatedRun", "SimulationFactory", "read_tape", "simulated"]
