"""The searches on one object: which is asked, with how much, and what follows."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from checker.operations import Operation
from checker.search.budget import Budget, BudgetSpentError
from checker.search.counting import EXACT, CountingFrontier, Effort
from checker.search.frontier import Frontier, Use, run
from checker.search.placement import Placement
from checker.search.problem import NEVER, Hints, Problem
from checker.search.steps import StepTable
from checker.search.wing_gong import search_depth_first
from checker.search.words import Steps, WordSteps
from checker.specification import Guarded, Hint, Specification

FRONTIER = "frontier"
COUNTING = "counting frontier"
DEPTH_FIRST = "depth-first"
NO_SOURCE = "values without a source"

WIDE_MIN = 12
"""Above so many open operations, a contradiction that needs no search is looked for first."""

UNKNOWN_MAX = 8
"""With more operations of unknown outcome, cheap and one-sided efforts come first."""

PART_TIMEOUT_S = 1.0
_NO_LIMIT = 1 << 62
"""An order is made again only for what was decided within limits."""

STEPS_PER_PART_MAX = 20_000
"""A part of a contradiction that is harder to decide than this is not worth the wait."""

MINIMIZING_S = 5.0
"""Seconds after which a contradiction is not made smaller."""

PLACING_S = 2.0
"""Seconds after which it is not asked whether a contradiction is earlier than where it was noticed."""

SITUATIONS_MAX = 4_096
"""So many situations before a contradiction are looked at, to tell the possible states."""

Possible: TypeAlias = tuple[Hashable, tuple[int, ...]]
"""A possible state, and the open operations that had their effect for it, by local number."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a search found out about one object.

    Attributes:
      valid: Whether there is a legal order; None if that was not found out.
      algorithm: Which search said so.
      events_done: Events before the first that has no explanation, as far as is known.
      explained: Events for which `ObjectSearch.order` can tell an order.
      reason: Why it is not known.
    """

    valid: bool | None
    algorithm: str
    events_done: int
    explained: int
    reason: str = ""


class ObjectSearch:
    """The plain Python searches on one object.

    Args:
      problem: Its history.
      spec: The specification.
      kinds: The kinds of the history.
      words: The object's kinds as guarded assignments, or None.
      paranoid: Whether to search without pruning rules.
    """

    def __init__(
        self,
        problem: Problem,
        spec: Specification,
        kinds: Sequence[Operation],
        words: dict[int, Guarded] | None,
        *,
        paranoid: bool = False,
    ) -> None:
        self.problem = problem
        self.spec = spec
        self.steps: Steps
        if paranoid:
            self.steps = StepTable(spec, kinds)
        elif words is None:
            used = dict.fromkeys(problem.kind)
            self.steps = StepTable(spec.abstracted([kinds[kind] for kind in used]), kinds)
        else:
            self.steps = WordSteps(spec, kinds, words)
        self._kinds = kinds
        self._effort = EXACT
        self._paranoid = paranoid
        self._minimizing: Budget | None = None

    @cached_property
    def hints(self) -> Hints:
        """By kind: what is known of its operations, as far as it may be relied on."""
        used = dict.fromkeys(self.problem.kind)
        if self._paranoid:
            return dict.fromkeys(used, Hint.NOTHING)
        if isinstance(self.steps, WordSteps):
            return self.steps.hints
        return {kind: self.steps.spec.hints(self._kinds[kind]) for kind in used}

    def decide(self, budget: Budget) -> Decision:
        """Decides, or gives up when the budget is spent."""
        if self._paranoid:
            return self._decide_depth_first(budget)
        if isinstance(self.steps, WordSteps):
            return self._decide_words(self.steps, budget)
        frontier = Frontier(self.steps, self.hints, budget)
        try:
            valid = run(frontier, self.problem)
        except BudgetSpentError as error:
            return Decision(None, FRONTIER, frontier.events_done, frontier.events_done, str(error))
        return Decision(valid, FRONTIER, frontier.events_done, frontier.events_done)

    def _decide_depth_first(self, budget: Budget) -> Decision:
        try:
            order, done = search_depth_first(self.problem, self.steps, budget)
        except BudgetSpentError as error:
            return Decision(None, DEPTH_FIRST, 0, 0, str(error))
        return Decision(order is not None, DEPTH_FIRST, done, done)

    def _decide_words(self, steps: WordSteps, budget: Budget) -> Decision:
        """Climbs from cheap and one-sided efforts to exact ones."""
        explained = 0
        reason = ""
        for number, (effort, share) in enumerate(self._efforts()):
            if number == 1 or (number == 0 and steps.lacks_source and self._is_wide()):
                refuted = self.refute(explained)
                if refuted is not None:
                    return refuted
            part = budget if share is None else budget.slice(share)
            frontier = CountingFrontier(steps, part, effort)
            try:
                valid = run(frontier, self.problem)
            except BudgetSpentError as error:
                reason = str(error)
                budget.steps += 0 if share is None else part.steps
                if not effort.joins and frontier.events_done > explained:
                    explained, self._effort = frontier.events_done, effort
                if share is None or budget.is_spent:
                    break
                continue
            if not effort.joins and frontier.events_done > explained:
                explained, self._effort = frontier.events_done, effort
            if valid and not effort.relaxed and not (effort.joins and frontier.dropped):
                self._effort = effort
                return Decision(True, COUNTING, frontier.events_done, frontier.events_done)
            if not valid and (effort.joins or not frontier.dropped):
                position = self._first_unexplained(explained, frontier.events_done, budget)
                return Decision(False, COUNTING, position, explained)
        return Decision(None, COUNTING, explained, explained, reason)

    def _is_wide(self) -> bool:
        """Whether so much is open at once that even a small effort may take long."""
        opened = widest = 0
        for event in self.problem.events:
            opened += 1 if event >= 0 else -1
            widest = max(widest, opened)
        return widest > WIDE_MIN

    def refute(self, explained: int = 0) -> Decision | None:
        """A contradiction that needs no search: a response that needs a value that nobody gave by then.

        For what a search could not decide with a first, small effort. It may be later than the
        first event without an explanation.

        Args:
          explained: Events for which an order is known.
        """
        assert isinstance(self.steps, WordSteps)
        words, kind = self.steps.words, self.problem.kind
        given = {self.steps.init()}
        for position, event in enumerate(self.problem.events):
            if event >= 0:
                word = words[kind[event]]
                if word.assigns:
                    given.add(word.new)
            else:
                word = words[kind[~event]]
                if word.guard == "is" and word.value not in given:
                    return Decision(False, NO_SOURCE, position, explained)
        return None

    def _efforts(self) -> Iterator[tuple[Effort, int | None]]:
        """Efforts in order, each with the configurations that it may make."""
        size = 20 * len(self.problem.events) + 1_000
        responded = sum(1 for event in self.problem.events if event < 0)
        if len(self.problem.numbers) - responded > UNKNOWN_MAX:
            yield Effort(keep=1, beam=16, chains="if needed"), size
            yield Effort(joins=True, keep=1, relaxed=True), size
            for keep in (1, 8, 64):
                yield Effort(joins=True, keep=keep, relaxed=True), size * keep
                yield Effort(joins=True, keep=keep), size * keep
                yield Effort(keep=keep, chains="if needed"), size * keep
        else:
            yield EXACT, size
        yield EXACT, None

    def _first_unexplained(self, explained: int, last: int, budget: Budget) -> int:
        """The number of events before the first that surely has no explanation.

        A search that joins notices a contradiction late. An exact one is asked where, if it is not too
        hard.
        """
        assert isinstance(self.steps, WordSteps)
        if explained == last:
            return last
        looking = Budget(steps_max=STEPS_PER_PART_MAX, timeout_s=PLACING_S)
        exact = CountingFrontier(self.steps, looking.until(budget.deadline))
        try:
            run(exact, self.problem, last + 1)
        except BudgetSpentError:
            return last
        return exact.events_done

    def _frontier(self, budget: Budget, effort: Effort = EXACT) -> Frontier | CountingFrontier:
        if isinstance(self.steps, WordSteps):
            return CountingFrontier(self.steps, budget, effort)
        return Frontier(self.steps, self.hints, budget)

    def order(self, events: int | None = None) -> tuple[int, ...]:
        """A legal order of the first events, in numbers of the history.

        Args:
          events: At most `Decision.explained`; None for all.
        """
        if self._paranoid and events is None:
            order, _ = search_depth_first(
                self.problem, self.steps, Budget(memory_bytes_max=_NO_LIMIT)
            )
            assert order is not None
            return tuple(self.problem.numbers[operation] for operation in order)
        frontier = self._frontier(Budget(memory_bytes_max=_NO_LIMIT), self._effort)
        run(frontier, self.problem, events)
        return self.placed(frontier.uses(), events)

    def placed(self, uses: Sequence[Use], events: int | None = None) -> tuple[int, ...]:
        """The order that follows from visible uses, in numbers of the history."""
        placement = Placement(self.problem, self.steps, self.hints, uses)
        is_placed = placement.run(events)
        assert is_placed, "the uses that a search found give every operation its place"
        return tuple(self.problem.numbers[operation] for operation in placement.order)

    def possible_after(self, events: int, budget: Budget) -> list[Possible]:
        """The possible states after the first events, which must have an explanation."""
        frontier = self._frontier(budget)
        run(frontier, self.problem, events)
        return self.with_open_uses(frontier.possible(), events, budget)

    def with_open_uses(
        self,
        situations: Iterable[Possible],
        events: int,
        budget: Budget,
        *,
        names_unknown: bool = True,
    ) -> list[Possible]:
        """The situations of a frontier, and those that open operations lead to from there.

        A frontier uses nothing before a response demands it. Of two situations with one state, the one
        with fewer uses leads to all that the other one leads to. After `SITUATIONS_MAX`, no more are
        looked for.

        Args:
          situations: Those of the frontier.
          events: After so many events.
          budget: Every step is counted there.
          names_unknown: Whether the situations name the operations of unknown outcome that they used. If
            not, no more of those are used here.
        """
        begun = [event for event in self.problem.events[:events] if event >= 0]
        over = {~event for event in self.problem.events[:events] if event < 0}
        responded = self.problem.responses()
        still_open = [
            operation
            for operation in begun
            if operation not in over
            and not self.hints[self.problem.kind[operation]] & Hint.PURE
            and (names_unknown or responded[operation] != NEVER)
        ]
        waiting = sorted(situations, key=lambda situation: len(situation[1]))
        if len(waiting) >= SITUATIONS_MAX:
            return waiting
        least: dict[Hashable, list[frozenset[int]]] = {}
        found: list[Possible] = []
        for state, used in waiting:
            spent = frozenset(used)
            if any(fewer <= spent for fewer in least.get(state, ())):
                continue
            least.setdefault(state, []).append(spent)
            found.append((state, used))
            if len(waiting) >= SITUATIONS_MAX:
                continue
            for operation in still_open:
                if operation in spent:
                    continue
                for following in self.steps.next(self.problem.kind[operation], state):
                    budget.spend(len(waiting))
                    if following != state:
                        waiting.append((following, (*used, operation)))
        return found

    def is_contradiction(self, problem: Problem, states: Sequence[Hashable] | None) -> bool:
        """Whether a part of the problem surely has no legal order.

        Args:
          problem: The part.
          states: What the state may be at its beginning: `any_state`; None: what it is at the history's.
        """
        if self._minimizing is None:
            self._minimizing = Budget(timeout_s=MINIMIZING_S)
        frontier = self._frontier(self._minimizing.slice(STEPS_PER_PART_MAX))
        if states is not None:
            assert isinstance(self.steps, WordSteps)
            frontier.start_from(self.steps.told_apart_by(problem.kind))
        try:
            return not run(frontier, problem)
        except BudgetSpentError:
            return False

    def any_state(self) -> Sequence[Hashable] | None:
        """All states that operations can tell apart, or None if they cannot be listed."""
        return self.steps.states() if isinstance(self.steps, WordSteps) else None

    def describe_state(self, state: Hashable) -> str:
        """A state in words."""
        return self.steps.describe(state)
