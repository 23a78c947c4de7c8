"""Why a history is valid: an instant for each answer and each failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from checker.clock_text import ClockText
from checker.live_processes.instants import Answer, LeastInstants
from checker.live_processes.lifetimes import Lifetime, Lifetimes


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
    """Instants that satisfy the definition: a solved system, read on demand."""

    def __init__(
        self, lifetimes: Lifetimes, solver: LeastInstants, clock: ClockText, *, noun: str
    ) -> None:
        self.noun = noun
        self._lifetimes = lifetimes
        self._solver = solver
        self._clock = clock

    @property
    def answers(self) -> tuple[PlacedAnswer, ...]:
        """Every round, or every answer, with its instant."""
        return tuple(_placed(answer, self._solver.scale) for answer in self._solver.answers)

    @property
    def failures(self) -> tuple[PlacedFailure, ...]:
        """The failures that were moved, or that nobody recorded."""
        return tuple(_moved_failures(self._lifetimes, self._solver))

    def failure_instant(self, process: int, lifetime: int) -> tuple[int, int] | None:
        """`(time_ns, rank)` before which the failure of a lifetime cannot be, or None if unknown."""
        for known in self._lifetimes.all:
            if (known.process, known.number) == (process, lifetime):
                return divmod(self._solver.failure[known.index], self._solver.scale)
        return None

    def explain(self) -> str:
        """One line on the answers, then one per shifted failure."""
        count = len(self._solver.answers)
        lines = [f"{count} {self.noun}{'' if count == 1 else 's'} placed."]
        lines += [self._sentence(failure) for failure in self.failures]
        return "\n".join(lines)

    def _sentence(self, failure: PlacedFailure) -> str:
        whose = f"process {failure.process} (lifetime {failure.lifetime})"
        taken = self._clock.at(failure.taken_ns)
        if failure.recorded_ns is None:
            moved = f"{whose} counts as failed from {taken} on, though no crash was recorded"
        else:
            recorded = self._clock.at(failure.recorded_ns)
            moved = f"the crash of {whose}, recorded at {recorded}, is taken to be at {taken}"
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


def _moved_failures(lifetimes: Lifetimes, solver: LeastInstants) -> Sequence[PlacedFailure]:
    moved = []
    for lifetime in lifetimes.all:
        watchers = solver.watchers[lifetime.index]
        first_without = min(watchers, key=lambda answer: answer.instant, default=None)
        source = solver.failure_raised_by[lifetime.index]
        placed = _moved(lifetime, solver, first_without, source)
        if placed is not None:
            moved.append(placed)
    return moved


def _moved(
    lifetime: Lifetime,
    solver: LeastInstants,
    first_without: Answer | None,
    source: Answer | None,
) -> PlacedFailure | None:
    scale = solver.scale
    crash = lifetime.crash
    earliest_ns = solver.failure[lifetime.index] // scale
    recorded_ns = None if crash is None else crash.time_ns
    since_ns = getattr(crash, "since_ns", None)
    died_from_ns = recorded_ns if since_ns is None else since_ns
    if crash is None and first_without is None:
        return None
    too_early = died_from_ns is not None and recorded_ns is not None and recorded_ns < earliest_ns
    too_late = first_without is not None and (
        died_from_ns is None or died_from_ns > first_without.instant // scale
    )
    if not too_early and not too_late:
        return None
    if too_late:
        assert first_without is not None
        taken_ns = max(earliest_ns, min(first_without.instant // scale, _until(lifetime)))
    else:
        taken_ns = earliest_ns
    return PlacedFailure(
        process=lifetime.process,
        lifetime=lifetime.number,
        incarnation=lifetime.incarnation,
        recorded_ns=recorded_ns,
        taken_ns=taken_ns,
        before=first_without.number + 1 if too_late and first_without is not None else None,
        after=source.number + 1 if too_early and source is not None else None,
    )


def _until(lifetime: Lifetime) -> int:
    until_ns = lifetime.next_start_ns
    return (1 << 80) if until_ns is None else until_ns
