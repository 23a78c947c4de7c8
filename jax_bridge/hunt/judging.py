"""What the judge is shown, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

from checker.history import Event, History, Start
from coord_sim.schedule import Place
from coord_sim.sim import Run
from jax_bridge.hunt.drawing import BEAR_EVERYTHING

VALID: Final = "valid"
INVALID: Final = "invalid"
UNKNOWN: Final = "unknown"

_BY_NAMES: Final = ("never-started", "told-otherwise")
"""Kinds that stand and fall with the incarnations of those who started."""

NS_PER_S: Final = 1_000_000_000


class Judgement(Protocol):
    """What is to be said of a run: `coord_sim.campaign.Judgement` is one."""

    @property
    def word(self) -> str:
        """`valid`, `invalid` or `unknown`."""

    @property
    def kind(self) -> str:
        """Of the failure, in a few words; failures of two kinds have two causes. Empty if valid."""

    @property
    def explanation(self) -> str:
        """In sentences."""


Judge: TypeAlias = Callable[[Run], Judgement]
"""Judges a run. It can be pickled, and says the same of the same run everywhere."""


@dataclass(frozen=True, slots=True)
class Said:
    """A judgement of our own."""

    word: str
    kind: str = ""
    explanation: str = ""


def judged(run: Run, program: str, judge: Judge) -> Judgement:
    """The judgement on a run, simulated or real.

    Args:
      run: What came of a case.
      program: Its name: of some it cannot be asked that everybody gets on after the last fault.
      judge: Who knows right from wrong.
    """
    schedule = run.schedule
    if schedule.places:
        history = by_task(run.history, schedule.places)
        if history is None:
            return Said(
                UNKNOWN, "two starts of a task at once", "Nobody saw which of them was first."
            )
        run = replace(run, history=history)
    quiet_from_s = _last_fault_s(run.history) if program in BEAR_EVERYTHING else None
    shown = replace(run, schedule=replace(schedule, faults=(), quiet_from_s=quiet_from_s))
    try:
        found = judge(shown)
    except Exception as error:  # noqa: BLE001 - one history that cannot be judged ends no hunt
        kind = f"the judge raised {type(error).__name__}"
        return Said(INVALID, kind, f"{kind}: {error}")
    if any(kind in found.kind for kind in _BY_NAMES) and _is_nameless(run.history):
        return Said(UNKNOWN, "a start whose incarnation was not recorded", found.explanation)
    return found


def _is_nameless(history: History) -> bool:
    """Whether somebody started in an incarnation that the history does not tell.

    A process that is not the task of its number cannot ask for it, nor one that dies as it starts.
    """
    return any(isinstance(event, Start) and event.incarnation is None for event in history.events)


def by_task(history: History, places: tuple[Place, ...]) -> History | None:
    """A history in which processes are tasks: a duplicate is one more lifetime of the task that it is.

    Answers name tasks; only so can they be held against who started. Lifetimes of a task are in the
    order of their starts, and may overlap. None if two were starting at the same time.
    """
    task_of = {place.process: place.task for place in places}
    started = sorted((event for event in history.events if isinstance(event, Start)), key=_began_ns)
    latest: dict[int, Start] = {}
    for start in started:
        task = task_of.get(start.process, start.process)
        before = latest.get(task)
        if before is not None and before.time_ns >= _began_ns(start):
            return None
        latest[task] = start
    number_of: dict[tuple[int, int], int] = {}
    count: dict[int, int] = {}
    # Whoever never registered has events of its own, but no start: it comes last.
    for event in (*started, *history.events):
        key = (event.process, event.lifetime)
        if key not in number_of:
            task = task_of.get(event.process, event.process)
            number_of[key] = count.get(task, 0)
            count[task] = number_of[key] + 1

    def retold(event: Event) -> Event:
        task = task_of.get(event.process, event.process)
        number = number_of[event.process, event.lifetime]
        return replace(event, process=task, lifetime=number)

    participants = tuple(p for p in history.header.participants if p not in task_of)
    header = replace(history.header, participants=participants)
    return replace(history, header=header, events=[retold(event) for event in history.events])


def _began_ns(start: Start) -> int:
    return start.time_ns if start.since_ns is None else start.since_ns


def _last_fault_s(history: History) -> float:
    ends_ns = [fault.until_ns or fault.time_ns for fault in history.faults]
    return max(ends_ns, default=0) / NS_PER_S
