"""Everything that a run can be blamed for, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from checker import Invalid, LiveProcesses
from checker.history import Event, Header, History, Invoke, Ok, Start
from checker.live_processes.spec import FailureModel
from checker.service import check_service
from coord_sim.mutants.catalogue import (
    BARRIERS,
    BLOCKS,
    LIVE_SETS,
    PROGRESS,
    REFUSALS,
    REGISTRATION,
    STORE,
)
from coord_sim.sim import Run
from coord_sim.sim.programs.mixed import REFUSED

_CHECKS = {"live": LIVE_SETS, "bloc": BLOCKS, "barr": BARRIERS, "key ": STORE, "keys": STORE}
"""By how the rows of `check_service` begin."""


def complaints(run: Run, failures: FailureModel = "suspicion") -> Iterator[tuple[str, str]]:
    """What is wrong with a run: which check says so, and its words."""
    for row in check_service(run.history, live=LiveProcesses(failures=failures)):
        if isinstance(row.verdict, Invalid):
            yield _CHECKS[row.object[:4]], f"{row.object}: {row.verdict.explain()}"
    members = run.schedule.task_count
    for row in check_service(registrations(run.history, members)):
        if isinstance(row.verdict, Invalid):
            yield REGISTRATION, row.verdict.explain()
    if failures == "crash-stop" and run.reached.get(REFUSED):
        told = next(line.text for line in run.log if line.text.startswith("refused"))
        yield REFUSALS, f"nobody stood still, and yet a process was {told}"
    if not run.finished:
        waiting = "; ".join(f"process {e.process}: {e.waits_for}" for e in run.ends if e.waits_for)
        yield PROGRESS, f"at {run.end_s:g} s there still wait {waiting}"


def registrations(history: History, members: int) -> History:
    """The first starts of the first `members` processes as what they are: a barrier of the whole job."""
    events: list[Event] = []
    for start in history.events:
        if isinstance(start, Start) and start.lifetime == 0 and start.process < members:
            events.append(
                Invoke(
                    time_ns=start.since_ns or 0,
                    process=start.process,
                    lifetime=0,
                    id=start.process,
                    operation="barrier",
                    arguments={"barrier": "registration"},
                )
            )
            events.append(
                Ok(
                    time_ns=start.time_ns,
                    process=start.process,
                    lifetime=0,
                    id=start.process,
                    result=None,
                )
            )
    events.sort(key=lambda event: event.time_ns)
    header = Header(source="simulator", clock="virtual", participants=tuple(range(members)))
    return History(header, events)
