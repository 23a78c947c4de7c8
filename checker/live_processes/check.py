"""Checks a history against `live_processes`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import ModuleType

from checker.anomaly import Anomaly
from checker.clock_text import ClockText
from checker.collector import collector_paused
from checker.history.events import PROTOCOL_OPERATIONS, Fail, Info, Invoke, Ok
from checker.history.history import History
from checker.live_processes.columns import Columns, columns_of
from checker.live_processes.compiled import choice
from checker.live_processes.compiled.witness import DeferredWitness
from checker.live_processes.explanation import Explainer
from checker.live_processes.instants import Answer, LeastInstants
from checker.live_processes.lifetimes import Lifetimes
from checker.live_processes.published import meanings, ways_of_meaning
from checker.live_processes.rounds import Grouping, TooManyMatchings
from checker.live_processes.spec import LiveProcesses
from checker.live_processes.witness import Witness
from checker.verdict import Invalid, Unknown, Valid, Verdict


def check_live_processes(
    history: History, spec: LiveProcesses, *, compiled: bool | None = None
) -> Verdict:
    """Decides whether a history is valid under `spec`.

    Complexity: near-linear in events plus sizes of answers where answers tell incarnations;
    otherwise times the number of ways to read them, which `spec.matchings_max` bounds.

    Args:
      history: What the callers saw.
      spec: What they were promised.
      compiled: Whether to try the compiled check first; by default, where it pays.
    """
    history = _of_programs(history)
    driver = _driver(len(history.events), compiled)
    columns = None if driver is None else columns_of(history)
    if driver is not None and columns is not None:
        verdict = _compiled_verdict(driver, columns, spec, lambda: history)
        if verdict is not None:
            return verdict
    with collector_paused():
        return _check(history, spec)


def check_columns(
    columns: Columns, spec: LiveProcesses, *, compiled: bool | None = None
) -> Verdict:
    """As `check_live_processes`, of columns: events are made of them only to explain something."""
    if not PROTOCOL_OPERATIONS.isdisjoint(columns.names):
        return check_live_processes(columns.history(), spec, compiled=compiled)
    driver = _driver(len(columns), compiled)
    if driver is not None:
        verdict = _compiled_verdict(driver, columns, spec, columns.history)
        if verdict is not None:
            return verdict
    with collector_paused():
        return _check(columns.history(), spec)


def _of_programs(history: History) -> History:
    """A history without the protocol's own calls, which are no signs of life."""
    protocol = {
        event.id
        for event in history.events
        if isinstance(event, Invoke) and event.operation in PROTOCOL_OPERATIONS
    }
    if not protocol:
        return history
    events = [
        event
        for event in history.events
        if not (isinstance(event, Invoke | Ok | Fail | Info) and event.id in protocol)
    ]
    return replace(history, events=events)


def _driver(events: int, compiled: bool | None) -> ModuleType | None:
    if compiled is None:
        return choice.driver_for(events)
    return choice.CODE.load() if compiled else None


def _compiled_verdict(
    driver: ModuleType, columns: Columns, spec: LiveProcesses, history: Callable[[], History]
) -> Verdict | None:
    """`Valid`, or None where plain Python must look."""
    if not driver.is_surely_valid(columns, spec):
        return None

    def witness() -> Witness:
        with collector_paused():
            verdict = _check(history(), spec)
        assert isinstance(verdict, Valid)
        assert isinstance(verdict.witness, Witness)
        return verdict.witness

    noun = "round" if spec.definition == "round" else "answer"
    return Valid(DeferredWitness(witness, noun), algorithm="compiled rounds")


def _check(history: History, spec: LiveProcesses) -> Verdict:
    lifetimes = Lifetimes(history)
    clock = ClockText(history)
    if lifetimes.overlapping is not None:
        one, other = lifetimes.overlapping
        return Unknown(
            f"process {one.lifetime.process} has two calls of live_processes with the same "
            f"participants open at once (operations {one.id} and {other.id}); the definition does "
            "not say which round each belongs to"
        )
    of_rounds = spec.definition == "round"
    explainer = Explainer(lifetimes, clock, of_rounds=of_rounds)
    source = _RoundWays(lifetimes, spec) if of_rounds else _PublishedWays(lifetimes, spec)
    first: Anomaly | None = None
    try:
        for answers in source.ways(explainer):
            solver = LeastInstants(lifetimes, answers, spec.failures)
            found = solver.solve()
            if found is None:
                noun = "round" if of_rounds else "answer"
                return Valid(Witness(lifetimes, answers, spec.failures, clock, noun=noun))
            first = first or explainer.contradiction(found, solver)
    except TooManyMatchings as error:
        return Unknown(f"{error}; raise matchings_max, or record incarnations")
    first = first or source.dead_end
    assert first is not None
    return Invalid(first)


class _RoundWays:
    """The groupings into rounds, one after the other."""

    def __init__(self, lifetimes: Lifetimes, spec: LiveProcesses) -> None:
        self.dead_end: Anomaly | None = None
        self._grouping = Grouping(lifetimes)
        self._tries_max = spec.matchings_max

    def ways(self, explainer: Explainer) -> Iterator[Sequence[Answer]]:
        while self._grouping.next(self._tries_max):
            yield self._grouping.rounds
            if self._grouping.tried >= self._tries_max and self._grouping.may_go_on:
                raise TooManyMatchings(self._grouping.tried)
        if self._grouping.obstacle is not None:
            self.dead_end = explainer.obstacle(self._grouping.obstacle)


class _PublishedWays:
    """The ways to read answers that do not tell incarnations."""

    def __init__(self, lifetimes: Lifetimes, spec: LiveProcesses) -> None:
        self.dead_end: Anomaly | None = None
        self._lifetimes = lifetimes
        self._tries_max = spec.matchings_max

    def ways(self, explainer: Explainer) -> Iterator[Sequence[Answer]]:
        candidates = meanings(self._lifetimes)
        if not isinstance(candidates, list):
            self.dead_end = explainer.obstacle(candidates)
            return
        for tried, answers in enumerate(ways_of_meaning(self._lifetimes, candidates)):
            if tried >= self._tries_max:
                raise TooManyMatchings(tried)
            yield answers
