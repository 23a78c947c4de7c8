"""Shrinking: the simplest case that still fails.

Simplifications are tried one after the other, the large ones first, and each is kept if the case still
fails with it. All that is kept is simpler by one measure (`_weight`), so that the search ends, and gives
the same for the same case, unless its time runs out.
"""

from __future__ import annotations

import inspect
import time
import typing
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Final, TypeAlias

from coord_sim.errors import ScheduleError
from coord_sim.faults import (
    Crash,
    Degrade,
    Fault,
    Partition,
    Pause,
    Refuse,
    Reset,
    Restart,
    Skew,
    Slow,
)
from coord_sim.moments import SERVICE, When
from coord_sim.schedule import Schedule, members_of
from coord_sim.sim.case import Case, function_of
from coord_sim.sim.programs import PROCESS

Fails: TypeAlias = Callable[[Case], bool]
"""Runs a case and says whether it fails as the one that is shrunk does."""

SEEDS_TRIED: Final = 8
"""Where a simplification makes the failure disappear, one of the first seeds may bring it back."""

_SIMPLEST_FIRST: Final = (Crash, Restart, Reset, Refuse, Pause, Partition, Slow, Skew, Degrade)
_UNDER_TEST: Final = ("processes", "seed", "faults", "semantics", "mutant", "limit_s")
"""Fields of a schedule that are not set to their defaults: they have rules of their own."""

_LIMITS_S: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
_DECIMALS: Final = (0, 1, 2)
_EARLIER: Final = (0.0, 0.1, 0.25, 0.5, 0.75)
_GAPS_S: Final = (0.0, 0.1, 0.5)


@dataclass(frozen=True, slots=True)
class Budget:
    """How long shrinking may take.

    Attributes:
      runs: Simulated runs.
      time_s: Seconds.
      is_stopped: Asked before each run; True ends the search.
    """

    runs: int = 3000
    time_s: float = 60.0
    is_stopped: Callable[[], bool] = bool


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What came of shrinking.

    Attributes:
      before: The case that was given.
      after: The simplest one that was found; it fails too.
      runs: How many were run.
      is_minimal: Whether all simplifications of it were tried, and made the failure disappear; else the
        budget was used up.
    """

    before: Case
    after: Case
    runs: int
    is_minimal: bool

    def __str__(self) -> str:
        why = "" if self.is_minimal else "; the budget was used up"
        return f"{size_of(self.before)} -> {size_of(self.after)} ({self.runs:,} runs{why})"


def shrink(case: Case, fails: Fails, budget: Budget | None = None) -> Shrunk:
    """The simplest case that still fails.

    Args:
      case: One that fails.
      fails: Whether a case fails, and in the same way.
      budget: How long it may take.

    Raises:
      ValueError: the case does not fail.
    """
    search = _Search(case, fails, budget or Budget())
    if not fails(case):
        raise ValueError("a case that does not fail cannot be shrunk")
    is_minimal = search.run()
    return Shrunk(case, search.case, search.runs, is_minimal)


def size_of(case: Case) -> str:
    """How large a case is, in words."""
    schedule = case.schedule
    told = [_counted(schedule.processes, "process", "processes")]
    told.append(_counted(len(schedule.faults), "fault", "faults"))
    told += [f"{name} {value}" for name, value in _whole_numbers(case).items() if value]
    return ", ".join(told)


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


class _Search:
    def __init__(self, case: Case, fails: Fails, budget: Budget) -> None:
        self.case = case
        self.runs = 1
        self._weight = _weight(case)
        self._fails = fails
        self._budget = budget
        self._until_s = time.monotonic() + budget.time_s
        self._tried: set[str] = {_text(case)}
        self._is_used_up = False

    def run(self) -> bool:
        """Simplifies until nothing is left to try; False if the budget ended it."""
        before = None
        while before != self.case and not self._is_used_up:
            before = self.case
            for simpler, seeds in _SIMPLIFICATIONS:
                while self._simplify(simpler, seeds):
                    pass
        return not self._is_used_up

    def _simplify(self, simpler: Callable[[Case], Iterator[Case]], seeds: int) -> bool:
        for candidate in simpler(self.case):
            if self._keep(candidate):
                return True
            for seed in range(seeds):
                schedule = replace(candidate.schedule, seed=seed)
                if self._keep(replace(candidate, schedule=schedule)):
                    return True
            if self._is_used_up:
                return False
        return False

    def _keep(self, candidate: Case) -> bool:
        if self._is_used_up or _weight(candidate) >= self._weight:
            return False
        text = _text(candidate)
        if text in self._tried:
            return False
        budget = self._budget
        if self.runs >= budget.runs or time.monotonic() > self._until_s or budget.is_stopped():
            self._is_used_up = True
            return False
        self._tried.add(text)
        self.runs += 1
        if not self._fails(candidate):
            return False
        self.case = candidate
        self._weight = _weight(candidate)
        return True


def _text(case: Case) -> str:
    return repr((sorted(case.arguments.items()), case.schedule))


# --- what is simpler ---------------------------------------------------------------------------


def _weight(case: Case) -> tuple[float, ...]:
    """Smaller is simpler; the first number that differs decides."""
    schedule = case.schedule
    times = list(_times(schedule))
    return (
        schedule.processes,
        len(schedule.faults),
        sum(_whole_numbers(case).values()),
        sum(_fault_weight(fault) for fault in schedule.faults),
        sum(1 for name in _defaults() if getattr(schedule, name) != _defaults()[name]),
        len(case.arguments),
        schedule.limit_s,
        sum(len(f"{each:g}") for each in times),
        sum(times),
        abs(schedule.seed),
    )


def _fault_weight(fault: Fault) -> int:
    told = sum(1 for each in fields(fault) if getattr(fault, each.name) != each.default)
    return 10 * _SIMPLEST_FIRST.index(type(fault)) + told + len(list(members_of(fault)))


def _times(schedule: Schedule) -> Iterator[float]:
    for fault in schedule.faults:
        yield fault.at_s.plus_s + fault.at_s.count if isinstance(fault.at_s, When) else fault.at_s
        for each in fields(fault):
            value = getattr(fault, each.name)
            if each.name != "at_s" and isinstance(value, float | int) and each.name != "process":
                yield abs(value)
    yield from (start_s for start_s in schedule.starts_s if start_s is not None)
    if schedule.quiet_from_s is not None:
        yield schedule.quiet_from_s


def _defaults() -> dict[str, Any]:
    return {
        each.name: each.default
        for each in fields(Schedule)
        if each.default is not MISSING and each.name not in _UNDER_TEST
    }


def _whole_numbers(case: Case) -> dict[str, int]:
    """The arguments of the program that count something: steps, rounds, calls."""
    found = {}
    for name, parameter in _parameters(case).items():
        value = case.arguments.get(name, parameter.default)
        if isinstance(value, int) and not isinstance(value, bool):
            if not _names_process(_hints(case).get(name)):
                found[name] = value
    return found


def _parameters(case: Case) -> dict[str, inspect.Parameter]:
    function = function_of(case.program)
    if inspect.iscoroutinefunction(function):
        return {}
    return dict(inspect.signature(function).parameters)


def _hints(case: Case) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function_of(case.program), include_extras=True)
    except (NameError, TypeError):
        return {}


def _names_process(hint: Any) -> bool:
    if PROCESS in getattr(hint, "__metadata__", ()):
        return True
    return any(_names_process(part) for part in typing.get_args(hint))


# --- simplifications: each gives candidates, the simplest first ----------------------------------


def _fewer_faults(case: Case) -> Iterator[Case]:
    """Without stretches of the faults, the long ones first (delta debugging)."""
    faults = case.schedule.faults
    size = len(faults)
    while size:
        for start in range(0, len(faults), size):
            yield from _changed(case, faults=faults[:start] + faults[start + size :])
        size //= 2
    for number, fault in enumerate(faults):
        if isinstance(fault, Crash):
            # A crash can only go with the restart that it makes possible.
            rest = [*faults[:number], *faults[number + 1 :]]
            for other in rest[number:]:
                if isinstance(other, Restart) and other.process == fault.process:
                    rest.remove(other)
                    yield from _changed(case, faults=tuple(rest))
                    break


def _fewer_processes(case: Case) -> Iterator[Case]:
    for process in reversed(range(case.schedule.processes)):
        if case.schedule.processes > 1:
            yield from _without(case, process)


def _without(case: Case, process: int) -> Iterator[Case]:
    """The case without a process; those above it move down by one."""
    schedule = case.schedule
    if schedule.service_in == process or schedule.places:
        return

    def moved(member: Any) -> Any:
        return member - 1 if isinstance(member, int) and member > process else member

    faults: list[Fault] = []
    for fault in schedule.faults:
        at_s = fault.at_s
        if isinstance(at_s, When):
            if at_s.process == process:
                continue
            at_s = replace(at_s, process=moved(at_s.process))
        if isinstance(fault, Partition):
            side = tuple(moved(member) for member in fault.side if member != process)
            other = tuple(moved(member) for member in fault.other if member != process)
            if side and (other or not fault.other):
                faults.append(replace(fault, at_s=at_s, side=side, other=other))
        elif fault.process != process:
            faults.append(replace(fault, at_s=at_s, process=moved(fault.process)))
    arguments = dict(case.arguments)
    hints = _hints(case)
    for name, value in case.arguments.items():
        if _names_process(hints.get(name)):
            if value == process or (isinstance(value, tuple | list) and process in value):
                return
            several = isinstance(value, tuple | list)
            arguments[name] = tuple(map(moved, value)) if several else moved(value)
    hosts = tuple(
        host
        for each in schedule.hosts
        if (host := tuple(moved(member) for member in each if member != process))
    )
    yield from _changed(
        replace(case, arguments=arguments),
        processes=schedule.processes - 1,
        faults=tuple(faults),
        service_in=moved(schedule.service_in),
        starts_s=tuple(s for number, s in enumerate(schedule.starts_s) if number != process),
        hosts=hosts,
        death_order=tuple(moved(task) for task in schedule.death_order if task != process),
        tasks=None if schedule.tasks is None else max(1, schedule.tasks - 1),
    )


def _fewer_steps(case: Case) -> Iterator[Case]:
    """Smaller numbers for the program, and faults that come as much earlier."""
    for name, value in _whole_numbers(case).items():
        fewer = sorted({1, 2, value // 2, value - 1, 0})
        for number in fewer:
            if 0 <= number < value:
                shorter = replace(case, arguments={**case.arguments, name: number})
                yield shorter
                for part in _EARLIER:
                    yield from _earlier(shorter, part)


def _fewer_faults_earlier(case: Case) -> Iterator[Case]:
    """Without one fault, and the others earlier: a local minimum is left by changing both at once."""
    for fewer in _fewer_faults(case):
        if len(fewer.schedule.faults) + 2 >= len(case.schedule.faults):
            for part in _EARLIER:
                yield from _earlier(fewer, part)


def _sooner_restarts(case: Case) -> Iterator[Case]:
    """Restarts that follow their crashes at once."""
    faults = case.schedule.faults
    for number, fault in enumerate(faults):
        if isinstance(fault, Restart) and not isinstance(fault.at_s, When):
            died_s = [
                other.at_s
                for other in faults
                if isinstance(other, Crash)
                and other.process == fault.process
                and not isinstance(other.at_s, When)
                and other.at_s <= fault.at_s
            ]
            for gap_s in _GAPS_S if died_s else ():
                back_s = round(max(died_s) + gap_s, 3)
                if back_s < fault.at_s:
                    yield from _with_fault(case, number, replace(fault, at_s=back_s))


def _earlier_faults(case: Case) -> Iterator[Case]:
    for part in _EARLIER:
        yield from _earlier(case, part)


def _earlier(case: Case, part: float) -> Iterator[Case]:
    """The case with all faults moved, so that the first comes at a part of its time."""
    faults = case.schedule.faults
    times = [fault.at_s for fault in faults if not isinstance(fault.at_s, When)]
    if not times or min(times) == 0.0:
        return
    shift_s = min(times) * (1 - part)
    moved = tuple(
        fault
        if isinstance(fault.at_s, When)
        else replace(fault, at_s=round(fault.at_s - shift_s, 3))
        for fault in faults
    )
    quiet_s = case.schedule.quiet_from_s
    if quiet_s is not None:
        quiet_s = round(max(quiet_s - shift_s, 0.0), 3)
    yield from _changed(case, faults=moved, quiet_from_s=quiet_s)


def _default_settings(case: Case) -> Iterator[Case]:
    """One setting as it is by default: a simpler network, no hosts, no quiet phase, ..."""
    kills_service = any(SERVICE in members_of(fault) for fault in case.schedule.faults)
    for name, default in _defaults().items():
        if name == "durable" and kills_service:
            continue  # A service that forgets is another failure.
        if getattr(case.schedule, name) != default:
            if name.startswith("latency"):
                lowest, highest = _defaults()["latency_min_s"], _defaults()["latency_max_s"]
                yield from _changed(case, latency_min_s=lowest, latency_max_s=highest)
            yield from _changed(case, **{name: default})
    for name in case.arguments:
        rest = {key: value for key, value in case.arguments.items() if key != name}
        if _parameters(case)[name].default is not inspect.Parameter.empty:
            yield replace(case, arguments=rest)


def _simpler_faults(case: Case) -> Iterator[Case]:
    """Single faults with less to them."""
    for number, fault in enumerate(case.schedule.faults):
        for simpler in _simpler(fault):
            yield from _with_fault(case, number, simpler)


def _simpler(fault: Fault) -> Iterator[Fault]:
    for each in fields(fault):
        if each.default is not MISSING and getattr(fault, each.name) != each.default:
            yield replace(fault, **{each.name: each.default})
    match fault:
        case Partition(side=side, other=other):
            for member in side if len(side) > 1 else ():
                yield replace(fault, side=tuple(each for each in side if each != member))
            for member in other if len(other) > 1 else ():
                yield replace(fault, other=tuple(each for each in other if each != member))
        case Pause() | Slow() | Degrade() | Crash() | Restart() | Skew() | Reset() | Refuse():
            pass
    for name in ("for_s", "delay_s", "jitter_s", "offset_s", "factor"):
        value = getattr(fault, name, 0.0)
        for shorter in (1.0, 2.0, 5.0, value / 2):
            if 0 < shorter < value:
                yield replace(fault, **{name: shorter})  # type: ignore[arg-type]
    if isinstance(fault.at_s, When):
        if fault.at_s.plus_s:
            yield replace(fault, at_s=replace(fault.at_s, plus_s=0.0))
        for count in (1, fault.at_s.count // 2, fault.at_s.count - 1):
            if 0 < count < fault.at_s.count:
                yield replace(fault, at_s=replace(fault.at_s, count=count))


def _rounder_times(case: Case) -> Iterator[Case]:
    faults = case.schedule.faults
    for decimals in _DECIMALS:
        quiet_s = case.schedule.quiet_from_s
        yield from _changed(
            case,
            faults=tuple(_rounded(fault, decimals) for fault in faults),
            quiet_from_s=None if quiet_s is None else float(-(-quiet_s // 1)),
        )
    for number, fault in enumerate(faults):
        for decimals in _DECIMALS:
            yield from _with_fault(case, number, _rounded(fault, decimals))


def _rounded(fault: Fault, decimals: int) -> Fault:
    changes: dict[str, Any] = {}
    for each in fields(fault):
        value = getattr(fault, each.name)
        if isinstance(value, float):
            changes[each.name] = round(value, decimals)
    return replace(fault, **changes)


def _shorter_limit(case: Case) -> Iterator[Case]:
    quiet_s = case.schedule.quiet_from_s
    if quiet_s is not None:
        over_s = max((_over_s(fault) for fault in case.schedule.faults), default=0.0)
        if over_s < quiet_s:
            yield from _changed(case, quiet_from_s=over_s)
    for limit_s in _LIMITS_S:
        if limit_s < case.schedule.limit_s:
            yield from _changed(case, limit_s=limit_s)


def _over_s(fault: Fault) -> float:
    at_s = 0.0 if isinstance(fault.at_s, When) else fault.at_s
    return at_s + getattr(fault, "for_s", 0.0)


def _first_seeds(case: Case) -> Iterator[Case]:
    for seed in range(min(SEEDS_TRIED, abs(case.schedule.seed))):
        yield from _changed(case, seed=seed)


def _with_fault(case: Case, number: int, fault: Fault) -> Iterator[Case]:
    faults = case.schedule.faults
    yield from _changed(case, faults=(*faults[:number], fault, *faults[number + 1 :]))


def _changed(case: Case, **changes: Any) -> Iterator[Case]:
    """The case with a changed schedule, if there can be such a schedule."""
    try:
        yield replace(case, schedule=replace(case.schedule, **changes))
    except ScheduleError:
        return


_SIMPLIFICATIONS: Final[tuple[tuple[Callable[[Case], Iterator[Case]], int], ...]] = (
    (_fewer_faults, 0),
    (_fewer_processes, SEEDS_TRIED),
    (_fewer_steps, SEEDS_TRIED),
    (_sooner_restarts, 0),
    (_fewer_faults, SEEDS_TRIED),
    (_fewer_faults_earlier, SEEDS_TRIED),
    (_default_settings, 0),
    (_simpler_faults, 0),
    (_shorter_limit, 0),
    (_earlier_faults, 0),
    (_rounder_times, SEEDS_TRIED),
    (_first_seeds, 0),
)
"""With how many other seeds each candidate is tried."""
