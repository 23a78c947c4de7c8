"""The frontier: all situations that a history leaves possible, kept up event by event.

*Configuration*: `(state, satisfied, spent)`. Of the open operations, as bits of two masks, `satisfied`
are those that may count as done, `spent` those whose effect was used. An operation is *owed* (not
satisfied), *optional* (satisfied, not spent: it counts as done, and may still be used) or spent. One of
unknown outcome is optional from its invocation on and never responds. Bits are freed at responses, so a
configuration does not grow with the history.

*Just in time* (Lowe, "Testing for Linearizability"): nothing is used before a response demands it. When
`i` responds, configurations in which it is satisfied go on; from the others, operations are used one
after the other until it is.

*Rules*, each with the argument why it loses nothing. R is any way to complete a configuration.

1. Free satisfaction. If an open operation is legal now and leaves the state as it is, place it
   here. If R has it later with an effect, it stays usable (optional). A pure one is simply done.
2. Hiding. Before a blind operation, every open total one can be placed where nothing sees it: optional.
3. Dominance. Of two configurations with one state, the one with more satisfied and fewer spent admits
   every R of the other.
4. Earliest deadline. Of open operations of one kind, use the one that responds first (swap the two
   in R), unless that one is optional and the other owed.
5. No idle step. After an optional or total use that satisfied nothing, a blind one need not follow:
   without the first, it would have hidden that one, which dominates.

Rules 2, 4 and 5 rest on hints; without hints they do nothing.

Complexity: O(events x configurations x open operations); memory O(configurations). The problem is
NP-complete in general (Gibbons and Korach, 1997).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Protocol, TypeAlias

from checker.search.budget import Budget
from checker.search.problem import NEVER, Hints, Problem
from checker.search.words import Steps
from checker.specification import Hint

Path: TypeAlias = "tuple[Path, int, int] | None"
"""Operations used visibly, latest first: `(earlier, operation, which of its successors)`.

States are not kept: some grow with the history, and then paths would grow with its square.
"""

Use: TypeAlias = tuple[int, int]
"""An operation, and which of the successors of its step was taken."""

Configuration: TypeAlias = tuple[Hashable, int, int, Path]


class Frontier:
    """The configurations after some events.

    Args:
      steps: The specification.
      hints: Per kind; `Hint.NOTHING` everywhere turns the rules off that need them.
      budget: Every configuration made is counted there.

    Attributes:
      configurations: What is possible now.
      events_done: How many events of a problem were fed.
    """

    def __init__(self, steps: Steps, hints: Hints, budget: Budget) -> None:
        self.configurations: list[Configuration] = [(steps.init(), 0, 0, None)]
        self.events_done = 0
        self._steps = steps
        self._hints = hints
        self._budget = budget
        self._open: dict[int, tuple[int, int]] = {}
        """By bit: operation and its kind."""
        self._bit_of: dict[int, int] = {}
        self._deadline: dict[int, int] = {}
        self._earlier: dict[int, int] = {}
        """By bit: bits of operations of the same kind with an earlier deadline."""
        self._free: list[int] = []
        self._bits = 0
        self._unknown = 0
        self._pure = 0
        self._total = 0
        self._blind = 0

    def copy(self) -> Frontier:
        """An independent copy, to look ahead from."""
        other = Frontier(self._steps, self._hints, self._budget)
        other.__dict__.update(
            {
                name: value.copy() if isinstance(value, dict | list) else value
                for name, value in self.__dict__.items()
                if name not in ("_steps", "_hints", "_budget")
            }
        )
        return other

    def invoke(self, operation: int, kind: int, responds: int | None) -> None:
        """An operation begins.

        Args:
          operation: Its number.
          kind: Its kind, result included.
          responds: When its response comes (in any ascending unit), `NEVER` if its outcome is unknown;
            None if that is not known yet: then rule 4 leaves it alone.
        """
        if self._free:
            bit = self._free.pop()
        else:
            bit = 1 << self._bits
            self._bits += 1
        earlier = 0
        deadline = -1 if responds is None else responds
        for other, (number, other_kind) in self._open.items():
            if other_kind != kind or responds is None or self._deadline[number] < 0:
                continue
            if self._deadline[number] <= deadline:
                earlier |= other
            else:
                self._earlier[other] |= bit
        self._open[bit] = (operation, kind)
        self._bit_of[operation] = bit
        self._deadline[operation] = deadline
        self._earlier[bit] = earlier
        hint = self._hints[kind]
        if responds == NEVER:
            self._unknown |= bit
        if hint & Hint.PURE:
            self._pure |= bit
        if hint & Hint.TOTAL:
            self._total |= bit
        if hint & Hint.BLIND:
            self._blind |= bit

    def respond(self, operation: int) -> bool:
        """An operation returns with the result of its kind.

        Returns:
          Whether that can be explained. If not, `configurations` are those of just before.

        Raises:
          BudgetSpentError: see `Budget`.
        """
        bit = self._bit_of[operation]
        reached = self._use_until(bit)
        if not reached:
            return False
        self.configurations = reached
        self._forget(operation, bit)
        return True

    def start_from(self, states: Sequence[Hashable]) -> None:
        """Lets the first state be any of some."""
        self.configurations = [(state, 0, 0, None) for state in states]

    def uses(self) -> list[Use]:
        """The uses that lead to one of the configurations, in order."""
        return uses_of(self.configurations[0][3])

    def possible(self) -> Iterator[tuple[Hashable, tuple[int, ...]]]:
        """The possible states, and for each the operations that were used since they opened."""
        for state, _, spent, _ in self.configurations:
            yield state, tuple(op for bit, (op, _) in self._open.items() if spent & bit)

    def _forget(self, operation: int, bit: int) -> None:
        del self._open[bit], self._bit_of[operation], self._deadline[operation], self._earlier[bit]
        for other in self._earlier:
            self._earlier[other] &= ~bit
        self._free.append(bit)
        for name in ("_pure", "_total", "_blind"):
            setattr(self, name, getattr(self, name) & ~bit)

    def _satisfied_in(self, state: Hashable, settled: int) -> int:
        """Rule 1: open operations, not yet settled, that are legal and change nothing."""
        found = 0
        unchanged = (state,)
        rows = self._steps.rows
        for bit, (_, kind) in self._open.items():
            if settled & bit:
                continue
            successors = rows[kind].get(state)
            if successors is None:
                successors = self._steps.ask(kind, state)
            if successors == unchanged or (successors and state in successors):
                found |= bit
        return found

    def _use_until(self, target: int) -> list[Configuration]:
        """All configurations in which the operation of bit `target` is satisfied; without that bit."""
        keep = ~target
        target_is_pure = target & self._pure
        reached = _Antichain()
        waiting = _Antichain()
        for state, satisfied, spent, path in self.configurations:
            satisfied |= self._unknown
            satisfied |= self._satisfied_in(state, satisfied | spent)
            if satisfied & target:
                reached.add(state, satisfied & keep, spent & keep, False, path)
            if not (satisfied if target_is_pure else spent) & target:
                waiting.add(state, satisfied, spent, False, path)
        for state, satisfied, spent, idle, path in waiting:
            held = len(waiting) + len(reached)
            for bit, (operation, kind) in self._open.items():
                if (spent | self._pure) & bit or (idle and self._blind & bit):
                    continue
                before = self._earlier[bit] & ~spent
                if before and (satisfied & bit or before & ~satisfied):
                    continue  # Rule 4.
                for choice, following in enumerate(self._steps.next(kind, state)):
                    self._budget.spend(held)
                    made = self._use(bit, state, following, satisfied, spent, target)
                    if made is None:
                        continue
                    now, used, is_idle = made
                    path_here = (path, operation, choice)
                    if bit == target or (target_is_pure and now & target):
                        reached.add(following, now & keep, used & keep, False, path_here)
                    else:
                        waiting.add(following, now, used, is_idle, path_here)
        return [entry[:3] + entry[4:] for entry in reached.alive()]

    def _use(  # noqa: PLR0917 - called for each use: keywords cost time
        self,
        bit: int,
        state: Hashable,
        following: Hashable,
        satisfied: int,
        spent: int,
        target: int,
    ) -> tuple[int, int, bool] | None:
        """Masks after using an operation, and whether that was idle; None if it is pointless."""
        used, now = spent | bit, satisfied | bit
        hidden = self._total & ~used if self._blind & bit else 0
        if following == state and bit != target and not hidden & ~now:
            return None
        now |= hidden
        free = self._satisfied_in(following, now | used)
        is_optional = bool((self._total | satisfied) & bit)
        return now | free, used, is_optional and not free & ~self._total


class _Antichain:
    """Configurations of which none dominates another (rule 3); iteration sees those added meanwhile."""

    __slots__ = ("_by_state", "_entries")

    def __init__(self) -> None:
        self._by_state: dict[Hashable, list[int]] = {}
        self._entries: list[tuple[Hashable, int, int, bool, Path] | None] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[Hashable, int, int, bool, Path]]:
        position = 0
        while position < len(self._entries):
            entry = self._entries[position]
            position += 1
            if entry is not None:
                yield entry

    def alive(self) -> list[tuple[Hashable, int, int, bool, Path]]:
        return [entry for entry in self._entries if entry is not None]

    def add(self, state: Hashable, satisfied: int, spent: int, idle: bool, path: Path) -> None:
        entries = self._entries
        numbers = self._by_state.setdefault(state, [])
        dominated = False
        for number in numbers:
            entry = entries[number]
            assert entry is not None
            _, other_satisfied, other_spent, other_idle, _ = entry
            if (
                other_satisfied & satisfied == satisfied
                and other_spent & spent == other_spent
                and other_idle <= idle
            ):
                return
            if (
                other_satisfied & satisfied == other_satisfied
                and other_spent & spent == spent
                and idle <= other_idle
            ):
                entries[number] = None
                dominated = True
        if dominated:
            numbers[:] = [number for number in numbers if entries[number] is not None]
        numbers.append(len(entries))
        entries.append((state, satisfied, spent, idle, path))


def uses_of(path: Path) -> list[Use]:
    """The uses along a path, in order."""
    uses = []
    while path is not None:
        path, operation, choice = path
        uses.append((operation, choice))
    uses.reverse()
    return uses


class Situation(Protocol):
    """What `run` drives: a frontier of either kind."""

    events_done: int

    def invoke(self, operation: int, kind: int, responds: int | None) -> None:
        """See `Frontier.invoke`."""

    def respond(self, operation: int) -> bool:
        """See `Frontier.respond`."""


def run(frontier: Situation, problem: Problem, events_max: int | None = None) -> bool:
    """Feeds a problem, or its first events, to a new frontier.

    Returns:
      Whether all have an explanation. If not, `frontier.events_done` is the number of events before the
      first that has none.

    Raises:
      BudgetSpentError: `frontier.events_done` tells how far it came.
    """
    responded = problem.responses()
    events = problem.events if events_max is None else problem.events[:events_max]
    for position, event in enumerate(events):
        frontier.events_done = position
        if event >= 0:
            frontier.invoke(event, problem.kind[event], responded[event])
        elif not frontier.respond(~event):
            return False
    frontier.events_done = len(events)
    return True
