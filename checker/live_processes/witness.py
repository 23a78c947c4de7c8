"""Why a history is valid: an instant for each answer and each failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from checker.clock_text import ClockText
from checker.history.events import Crash
from checker.live_processes.instants import Answer, LeastInstants, OutlivesSuccessor
from checker.live_processes.lifetimes import Lifetime, Lifetimes
from checker.live_processes.spec import FailureModel

MOVES_SOUGHT_MAX = 64
"""Up to so many failures that must move are told from those that need not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedAnswer:
    """A round (or one published answer) at its instant.

    Attributes:
      number: From 1, in the order in which rounds were formed.
      operations: The calls answered or counted in by it.
      live: The processes of the answer, ascending.
      instant: `(time_ns, rank)`: ranks order what happens in one nanosecond.
    """

    number: int
    operations: tuple[int, ...]
    live: tuple[int, ...]
    instant: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedFailure:
    """A failure that was moved, or that nobody recorded.

    Attributes:
      process, lifetime, incarnation: Whose it is.
      recorded_ns: When it was recorded, or None.
      taken_ns: The moment that the answers demand.
      before: Number of the answer that leaves it out already, or None.
      after: Number of the answer that still counts it in, or None.
    """

    process: int
    lifetime: int
    incarnation: int | None
    recorded_ns: int | None
    taken_ns: int
    before: int | None
    after: int | None


class Witness:
    """Instants that satisfy the definition, read off a solved system on demand.

    Of all solutions it takes one in which as many failures as can be found are where they were
    recorded, so that a move that it reports is one that the answers demand.
    """

    def __init__(
        self,
        lifetimes: Lifetimes,
        answers: Sequence[Answer],
        failures: FailureModel,
        clock: ClockText,
        *,
        noun: str,
    ) -> None:
        self.noun = noun
        self._lifetimes = lifetimes
        self._answers = answers
        self._model = failures
        self._clock = clock

    @cached_property
    def _placed(self) -> LeastInstants:
        not_before_ns = {
            lifetime.index: recorded[0]
            for lifetime in self._lifetimes.all
            if (recorded := _recorded(lifetime)) is not None
            and not (lifetime.next is not None and recorded[0] > lifetime.next.start_ns)
        }
        for _ in range(MOVES_SOUGHT_MAX):
            solver = LeastInstants(self._lifetimes, self._answers, self._model, not_before_ns)
            found = solver.solve()
            if found is None:
                return solver
            assert not isinstance(found, OutlivesSuccessor)
            moved = solver.origin(found)
            if moved is None or not_before_ns.pop(moved.index, None) is None:
                break
        # So many failures must move that the least instants, which always do, serve as well.
        solver = LeastInstants(self._lifetimes, self._answers, self._model)
        solver.solve()
        return solver

    @property
    def answers(self) -> tuple[PlacedAnswer, ...]:
        """Every round, or every answer, with its instant."""
        return tuple(_placed(answer, self._placed.scale) for answer in self._placed.answers)

    @property
    def failures(self) -> tuple[PlacedFailure, ...]:
        """The failures that were moved, or that nobody recorded."""
        solver = self._placed
        moved = (_moved(lifetime, solver) for lifetime in self._lifetimes.all)
        return tuple(failure for failure in moved if failure is not None)

    def explain(self) -> str:
        """One line on the answers, then one per shifted failure."""
        count = len(self._answers)
        lines = [f"{count} {self.noun}{'' if count == 1 else 's'} placed."]
        if count == 0:
            lines = ["Nothing was checked: no call of live_processes was answered."]
        lines += [self._sentence(failure) for failure in self.failures]
        return "\n".join(lines)

    def _sentence(self, failure: PlacedFailure) -> str:
        whose = f"process {failure.process}"
        if failure.lifetime:
            whose += f" (lifetime {failure.lifetime})"
        taken = self._clock.at(failure.taken_ns)
        if failure.recorded_ns is None:
            moved = f"{whose.capitalize()} counts as failed from {taken} on"
            moved += ", though no crash was recorded"
        else:
            recorded = self._clock.at(failure.recorded_ns)
            moved = f"The crash of {whose}, recorded at {recorded}, is taken to be at {taken}"
        if failure.after is not None and failure.before is None:
            return f"{moved}: {self.noun} {failure.after} still counts it in."
        return f"{moved}: {self.noun} {failure.before} already leaves it out."


def _placed(answer: Answer, scale: int) -> PlacedAnswer:
    return PlacedAnswer(
        number=answer.number + 1,
        operations=tuple(call.id for call in answer.calls),
        live=tuple(sorted(answer.processes)),
        instant=divmod(answer.instant, scale),
    )


def _recorded(lifetime: Lifetime) -> tuple[int, int] | None:
    """From when to when a lifetime was seen to end, or None if it was not."""
    crash = lifetime.crash
    if lifetime.left:
        assert lifetime.last_event is not None
        left_ns = lifetime.last_event.time_ns
        return left_ns, left_ns if crash is None else crash.time_ns
    if crash is None:
        return None
    since_ns = crash.since_ns if isinstance(crash, Crash) else None
    return crash.time_ns if since_ns is None else since_ns, crash.time_ns


def _moved(lifetime: Lifetime, solver: LeastInstants) -> PlacedFailure | None:
    """Where a failure is placed, if that is not where it was recorded."""
    watchers = solver.watchers[lifetime.index]
    without = min(watchers, key=lambda answer: answer.instant, default=None)
    within = solver.failure_raised_by[lifetime.index]
    earliest_ns = solver.failure[lifetime.index] // solver.scale
    recorded = _recorded(lifetime)
    too_early = recorded is not None and recorded[1] < earliest_ns
    latest_ns = None if without is None else without.instant // solver.scale
    too_late = latest_ns is not None and (recorded is None or recorded[0] > latest_ns)
    if not too_early and not too_late:
        return None
    return PlacedFailure(
        process=lifetime.process,
        lifetime=lifetime.number,
        incarnation=lifetime.incarnation,
        recorded_ns=None if recorded is None else recorded[1],
        taken_ns=earliest_ns if too_early or latest_ns is None else max(earliest_ns, latest_ns),
        before=without.number + 1 if too_late and without is not None else None,
        after=within.number + 1 if too_early and within is not None else None,
    )
