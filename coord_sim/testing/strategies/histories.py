"""Histories: valid ones, invalid ones, and those that are valid but for one thing, perhaps.

Uniformly random events are almost always invalid, and for dull reasons. So histories of live sets are
those of simulated runs, and those of a register come from one that is asked in some order. To the
others, one thing is done that a wrong service or a wrong recorder might do.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, get_args

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from checker import Operations, Recorder
from checker.history import LIVE_PROCESSES, Event, History, Invoke, Ok
from coord_sim.schedule import Schedule
from coord_sim.sim import simulate
from coord_sim.testing.scripts import Round, Script, Step
from coord_sim.testing.strategies.faults import schedules
from coord_sim.testing.strategies.programs import programs, steps

Kind: TypeAlias = Literal["valid", "nearly valid", "invalid"]
"""`valid` and `invalid` are sure; `nearly valid` is what one small change makes of a valid one."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_VALUES: Final = 3
_STRANGER: Final = 7
"""An incarnation that nobody has, and a value that nobody writes."""


def histories(
    kind: Kind | SearchStrategy[Kind] = st.sampled_from(KINDS),  # noqa: B008 - strategies are values
    *,
    processes: int | SearchStrategy[int] = st.integers(1, 3),  # noqa: B008
    steps_max: int = 4,
) -> SearchStrategy[History]:
    """Histories of `live_processes` (and a little of other operations), under the suspicion model.

    Args:
      kind: Which.
      processes: How many participants.
      steps_max: Of each process.
    """
    each: SearchStrategy[Step] = steps(keys=("a",), barriers=())
    return _histories(
        st.just(kind) if isinstance(kind, str) else kind,
        programs(steps_max=steps_max, each=each),
        schedules(processes, kinds=("crash", "pause"), incidents_max=2, semantics="published"),
    )


@st.composite
def _histories(
    draw: st.DrawFn,
    kinds: SearchStrategy[Kind],
    scripts: SearchStrategy[Script],
    jobs: SearchStrategy[Schedule],
) -> History:
    kind = draw(kinds)
    script = Script(tuple((*listed, Round()) for listed in draw(scripts).lists))
    history = simulate(script, draw(jobs)).history
    if kind == "valid":
        return history
    events = list(history.events)
    answers = _live_sets(events)
    assume(answers)
    at = draw(st.sampled_from(answers))
    answer = events[at]
    assert isinstance(answer, Ok)
    live = dict(answer.result)  # type: ignore[call-overload]
    if kind == "invalid":
        del live[answer.process]  # Everybody who is answered is in the barrier.
        events[at] = replace(answer, result=live)
    else:
        events = draw(_nearly(events, at, live))
    return History(history.header, events)


def _live_sets(events: list[Event]) -> list[int]:
    """Where the answers of `live_processes` are."""
    rounds = {
        event.id
        for event in events
        if isinstance(event, Invoke) and event.operation == LIVE_PROCESSES
    }
    return [at for at, event in enumerate(events) if isinstance(event, Ok) and event.id in rounds]


@st.composite
def _nearly(draw: st.DrawFn, events: list[Event], at: int, live: dict[int, int]) -> list[Event]:
    """The events with one answer that is late, lost, or tells something else."""
    answer = events[at]
    assert isinstance(answer, Ok)
    change = draw(st.sampled_from(("later", "lost", "without one", "another incarnation")))
    if change == "lost":
        return events[:at] + events[at + 1 :]
    if change == "later":
        last_ns = max(event.time_ns for event in events)
        own = [
            event.time_ns
            for event in events[at + 1 :]
            if (event.process, event.lifetime) == (answer.process, answer.lifetime)
        ]
        late_ns = min(own, default=last_ns)
        rest = events[:at] + events[at + 1 :]
        place = next((n for n, event in enumerate(rest) if event.time_ns >= late_ns), len(rest))
        return [*rest[:place], replace(answer, time_ns=late_ns), *rest[place:]]
    one = draw(st.sampled_from(sorted(live)))
    if change == "without one":
        live.pop(one)
    else:
        live[one] = _STRANGER
    events = list(events)
    events[at] = replace(answer, result=live)
    return events


# --- a register --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Call:
    index: int
    function: str
    argument: int | None
    result: Hashable = None
    has_acted: bool = False


@st.composite
def operations(
    draw: st.DrawFn,
    kind: Kind | SearchStrategy[Kind] = st.sampled_from(KINDS),  # noqa: B008 - strategies are values
    *,
    processes: int | SearchStrategy[int] = st.integers(1, 3),  # noqa: B008
    operations_max: int = 8,
) -> Operations:
    """Histories of a register (`checker.specs.Register`): reads and writes, some without an outcome.

    Args:
      draw: Given by Hypothesis.
      kind: Which.
      processes: How many call at the same time.
      operations_max: How many operations, and at least one.
    """
    chosen: Kind = kind if isinstance(kind, str) else draw(kind)
    count = processes if isinstance(processes, int) else draw(processes)
    recorder = Recorder()
    state: int | None = None
    calls: dict[int, _Call] = {}
    lanes = list(range(count))  # Who does not know an outcome is replaced by another.
    ended = 0
    to_come = draw(st.integers(1, operations_max))
    wrong = draw(st.integers(0, operations_max)) if chosen == "nearly valid" else -1
    while to_come or calls:
        process = draw(st.integers(0, count - 1))
        call = calls.get(process)
        if call is None:
            if not to_come:
                calls.pop(min(calls))  # It never ends: a history may stop anywhere.
                continue
            to_come -= 1
            calls[process] = _invoke(draw, recorder, lanes[process])
            continue
        if not call.has_acted:
            call.has_acted = True
            if call.function == "write":
                state = call.argument
            else:
                call.result = state
            continue
        del calls[process]
        result = call.result
        if ended == wrong and call.function == "read":
            result = draw(st.one_of(st.none(), st.integers(0, _VALUES - 1)))
        ended += 1
        if call.function == "read" or draw(st.integers(0, 4)) < 4:
            recorder.ok(call.index, result)
        else:
            recorder.info(call.index, "timeout")
            lanes[process] = max(lanes) + 1
    if chosen == "invalid":
        recorder.ok(recorder.invoke(max(lanes) + 1, "read"), _STRANGER)
    return recorder.operations()


def _invoke(draw: st.DrawFn, recorder: Recorder, process: int) -> _Call:
    function = draw(st.sampled_from(("read", "write")))
    argument = draw(st.integers(0, _VALUES - 1)) if function == "write" else None
    return _Call(recorder.invoke(process, function, argument), function, argument)
