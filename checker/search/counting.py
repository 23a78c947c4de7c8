"""The counting frontier on guarded assignments, in plain Python.

The rules are those of `checker/search/frontier.py`. On words, what is legal, free or hidden in a
state is found by masks; and operations of unknown outcome are counted by word instead of having a
bit each, so that many of them cost little (rules 6 to 9, with their arguments, are in
`compiled/counting.py`, which is the same search compiled).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from checker.search.budget import Budget
from checker.search.frontier import Path, Use, uses_of
from checker.search.problem import NEVER
from checker.search.words import WordSteps
from checker.specification import Guarded

Counts: TypeAlias = Mapping[int, int]
"""By class, how many of it were used. A class is all operations of unknown outcome with one word."""

NO_COUNTS: Final[Counts] = {}

EVERY: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of the frontier is kept.

    Attributes:
      joins: Whether what is too much is joined (only NO is definite then) or dropped (only YES is).
      keep: Configurations kept per situation.
      beam: Configurations kept in all.
      chains: Whether operations of unknown outcome that lead only to one another are tried: `always`, or
        only `if needed` to go on.
      relaxed: Whether operations of unknown outcome count as writes of what they assign, which admits
        more: only NO is definite then.
    """

    joins: bool = False
    keep: int = EVERY
    beam: int = EVERY
    chains: str = "always"
    relaxed: bool = False


EXACT: Final = Effort()


class _Entry:
    """A configuration. `idle`: rule 5 applies to it."""

    __slots__ = ("alive", "counts", "idle", "path", "satisfied", "spent", "state", "total")

    def __init__(  # noqa: PLR0917 - made by the thousand: keywords cost time
        self,
        state: Hashable,
        satisfied: int,
        spent: int,
        counts: Counts,
        total: int,
        path: Path,
        idle: bool = False,
    ) -> None:
        self.state = state
        self.satisfied = satisfied
        self.spent = spent
        self.counts = counts
        self.total = total
        self.path = path
        self.idle = idle
        self.alive = True

    def copy(self) -> _Entry:
        return _Entry(
            self.state, self.satisfied, self.spent, self.counts, self.total, self.path, self.idle
        )


class CountingFrontier:
    """The configurations after some events.

    Args:
      steps: The object's words.
      budget: Every configuration made is counted there.
      effort: How much is kept.

    Attributes:
      entries: What is possible now.
      dropped: Whether something was dropped or joined: then only one answer is definite.
      events_done: How many events of a problem were fed.
    """

    def __init__(self, steps: WordSteps, budget: Budget, effort: Effort = EXACT) -> None:
        self.entries = [_Entry(steps.init(), 0, 0, NO_COUNTS, 0, None)]
        self.dropped = False
        self.events_done = 0
        self._steps = steps
        self._words = steps.words
        self._budget = budget
        self._effort = effort
        # Masks of the open operations that respond, by the value they test or assign.
        self._is_pure: dict[Hashable, int] = {}
        self._not_pure: dict[Hashable, int] = {}
        self._is_effect: dict[Hashable, int] = {}
        self._not_effect: dict[Hashable, int] = {}
        self._writes: dict[Hashable, int] = {}
        self._unequal_pure = 0
        self._unequal_effect = 0
        self._blind = 0
        self._pure = 0
        self._open: dict[int, tuple[int, Guarded]] = {}
        self._bit_of: dict[int, int] = {}
        self._deadline: dict[int, int] = {}
        self._earlier: dict[int, int] = {}
        self._free: list[int] = []
        self._bits = 0
        # Operations of unknown outcome by class, and the classes by what they need and do.
        self._class_of: dict[Guarded, int] = {}
        self._class_words: list[Guarded] = []
        self._called: list[list[int]] = []
        self._chained: dict[Hashable, list[int]] = {}
        self._blind_classes: dict[Hashable, int] = {}
        self._unequal_classes: list[int] = []

    def start_from(self, states: Sequence[Hashable]) -> None:
        """Lets the first state be any of some."""
        self.entries = [_Entry(state, 0, 0, NO_COUNTS, 0, None) for state in states]

    def copy(self) -> CountingFrontier:
        """An independent copy, to look ahead from."""
        other = CountingFrontier(self._steps, self._budget, self._effort)
        other.__dict__.update(
            {
                name: value.copy() if isinstance(value, dict | list) else value
                for name, value in self.__dict__.items()
                if name not in ("_steps", "_words", "_budget", "_effort")
            }
        )
        other.entries = [entry.copy() for entry in self.entries]
        other._called = [list(called) for called in self._called]
        other._chained = {value: list(kinds) for value, kinds in self._chained.items()}
        return other

    def invoke(self, operation: int, kind: int, responds: int | None) -> None:
        """An operation begins; the arguments are those of `Frontier.invoke`."""
        word = self._words[kind]
        if responds == NEVER:
            if word.assigns:
                self._invoke_unknown(operation, word)
            return
        if self._free:
            bit = self._free.pop()
        else:
            bit = 1 << self._bits
            self._bits += 1
        deadline = -1 if responds is None else responds
        earlier = 0
        for other, (number, other_word) in self._open.items():
            if other_word != word or responds is None or self._deadline[number] < 0:
                continue
            if self._deadline[number] <= deadline:
                earlier |= other
            else:
                self._earlier[other] |= bit
        self._earlier[bit] = earlier
        self._open[bit] = (operation, word)
        self._bit_of[operation] = bit
        self._deadline[operation] = deadline
        self._toggle(bit, word)

    def respond(self, operation: int) -> bool:
        """An operation returns; as `Frontier.respond`."""
        bit = self._bit_of[operation]
        keep = ~bit
        word = self._open[bit][1]
        settled = True
        for entry in self.entries:
            entry.satisfied |= self._free_in(entry.state, entry.spent)
            if not entry.satisfied & bit or (word.assigns and not entry.spent & bit):
                settled = False
        if settled:
            for entry in self.entries:
                entry.satisfied &= keep
                entry.spent &= keep
        else:
            reached = self._use_until(bit, word, chained=self._effort.chains == "always")
            if not reached and self._effort.chains != "always":
                reached = self._use_until(bit, word, chained=True)
            if not reached:
                return False
            if len(reached) > self._effort.beam:
                self.dropped = True
                reached.sort(key=lambda entry: entry.total)
                del reached[self._effort.beam :]
            self.entries = reached
        self._toggle(bit, word)
        del self._open[bit], self._bit_of[operation], self._deadline[operation], self._earlier[bit]
        for other in self._earlier:
            self._earlier[other] &= keep
        self._free.append(bit)
        return True

    def possible(self) -> Iterator[tuple[Hashable, tuple[int, ...]]]:
        """The possible states, and for each the operations that were used since they opened."""
        for entry in self.entries:
            used = [op for bit, (op, _) in self._open.items() if entry.spent & bit]
            for klass, count in entry.counts.items():
                used += self._called[klass][:count]
            yield entry.state, tuple(used)

    def uses(self) -> list[Use]:
        """The uses that lead to one of the configurations, in order.

        A class gives its uses to its earliest invocations.
        """
        uses: list[Use] = []
        taken = [0] * len(self._called)
        for operation, choice in uses_of(self.entries[0].path):
            if operation < 0:
                klass = ~operation
                operation = self._called[klass][taken[klass]]
                taken[klass] += 1
            uses.append((operation, choice))
        return uses

    def _invoke_unknown(self, operation: int, word: Guarded) -> None:
        if self._effort.relaxed:
            word = Guarded("any", assigns=True, new=word.new)
        klass = self._class_of.get(word)
        if klass is not None:
            self._called[klass].append(operation)
            return
        klass = self._class_of[word] = len(self._class_words)
        self._class_words.append(word)
        self._called.append([operation])
        if word.guard == "any":
            self._blind_classes[word.new] = klass
        elif word.guard == "is":
            self._chained.setdefault(word.value, []).append(klass)
        else:
            self._unequal_classes.append(klass)

    def _toggle(self, bit: int, word: Guarded) -> None:
        """Sets the bits of an operation that opens, clears those of one that closes."""
        guard, value, assigns, new = word
        if not assigns:
            self._pure ^= bit
            if guard == "is":
                self._is_pure[value] = self._is_pure.get(value, 0) ^ bit
                return
            self._unequal_pure ^= bit
            if guard != "any":
                self._not_pure[value] = self._not_pure.get(value, 0) ^ bit
        elif guard == "any":
            self._writes[new] = self._writes.get(new, 0) ^ bit
            self._blind ^= bit
        elif guard == "is":
            self._is_effect[value] = self._is_effect.get(value, 0) ^ bit
        else:
            self._not_effect[value] = self._not_effect.get(value, 0) ^ bit
            self._unequal_effect ^= bit

    def _free_in(self, state: Hashable, spent: int) -> int:
        """Rule 1."""
        return (
            self._is_pure.get(state, 0)
            | (self._unequal_pure & ~self._not_pure.get(state, 0))
            | (self._writes.get(state, 0) & ~spent)
        )

    def _use_until(self, target: int, word: Guarded, *, chained: bool) -> list[_Entry]:
        keep = ~target
        reached = _Kept(self)
        waiting = _Kept(self)
        for entry in self.entries:
            state, satisfied, spent = entry.state, entry.satisfied, entry.spent
            counts, total, path = entry.counts, entry.total, entry.path
            if satisfied & target:
                reached.add(state, satisfied & keep, spent & keep, counts, total, path, False)
            if not (spent if word.assigns else satisfied) & target:
                waiting.add(state, satisfied, spent, counts, total, path, False)
        for entry in waiting.entries:
            if not entry.alive:
                continue
            held = len(waiting.entries) + len(reached.entries)
            self._budget.spend(held)
            passed = self._use_each(entry, target, word, reached, waiting)
            if self._called:
                passed += self._use_unknown(entry, target, word, reached, waiting, chained=chained)
            self._budget.tick(held, passed)
        return [entry for entry in reached.entries if entry.alive]

    def _use_each(
        self, entry: _Entry, target: int, word: Guarded, reached: _Kept, waiting: _Kept
    ) -> int:
        """Adds what is one use of an open operation away; returns how many there were."""
        state, satisfied, spent = entry.state, entry.satisfied, entry.spent
        counts, total, earlier_path = entry.counts, entry.total, entry.path
        candidates = self._is_effect.get(state, 0)
        candidates |= self._unequal_effect & ~self._not_effect.get(state, 0)
        if not entry.idle:
            candidates |= self._blind
        candidates &= ~spent
        is_pure = not word.assigns
        tried = 0
        while candidates:
            bit = candidates & -candidates
            candidates ^= bit
            tried += 1
            before = self._earlier[bit] & ~spent
            if before and (satisfied & bit or before & ~satisfied):
                continue
            operation, its = self._open[bit]
            new = its.new
            used = spent | bit
            is_blind = its.guard == "any"
            if is_blind and new == state and bit != target and not self._blind & ~used & ~satisfied:
                continue
            now = (
                satisfied
                | bit
                | self._is_pure.get(new, 0)
                | (self._unequal_pure & ~self._not_pure.get(new, 0))
                | (self._writes.get(new, 0) & ~used)
            )
            is_idle = bool(is_blind or satisfied & bit) and not now & self._pure & ~satisfied
            if is_blind:
                now |= self._blind & ~used
            path = (earlier_path, operation, 0)
            if bit == target or (is_pure and now & target):
                reached.add(new, now & ~target, used & ~target, counts, total, path, False)
            else:
                waiting.add(new, now, used, counts, total, path, is_idle)
        return tried

    def _use_unknown(
        self,
        entry: _Entry,
        target: int,
        word: Guarded,
        reached: _Kept,
        waiting: _Kept,
        *,
        chained: bool,
    ) -> int:
        """Adds what is one use of an operation of unknown outcome away; returns how many there were."""
        state, satisfied, spent = entry.state, entry.satisfied, entry.spent
        away = self._not_pure.get(state, 0) & ~satisfied or self._not_effect.get(state, 0) & ~spent
        hides = self._blind & ~spent & ~satisfied
        unequal = self._unequal_effect & ~spent or self._unequal_classes
        candidates = list(self._chained.get(state, ()))
        if not entry.idle:
            candidates += self._blind_classes.values()
        candidates += [c for c in self._unequal_classes if self._class_words[c].value != state]
        for klass in candidates:
            if entry.counts.get(klass, 0) >= len(self._called[klass]):
                continue
            its = self._class_words[klass]
            new, is_blind = its.new, its.guard == "any"
            is_needed = (
                self._is_pure.get(new, 0) & ~satisfied
                or self._is_effect.get(new, 0) & ~spent
                or (away and new != state)
                or (is_blind and hides and unequal)
            )
            if not is_needed:  # Rule 8.
                if not (new in self._chained or self._unequal_classes):
                    continue
                if not chained:
                    self.dropped = True
                    continue
            if self._has_identical(its, spent) or (is_blind and new == state and not hides):
                continue
            now = satisfied | self._free_in(new, spent)
            gained = now & self._pure & ~satisfied
            if is_blind:
                now |= self._blind & ~spent
            counts = dict(entry.counts)
            counts[klass] = counts.get(klass, 0) + 1
            path = (entry.path, ~klass, 0)
            if not word.assigns and now & target:
                reached.add(
                    new, now & ~target, spent & ~target, counts, entry.total + 1, path, False
                )
            else:
                waiting.add(new, now, spent, counts, entry.total + 1, path, not gained)
        return len(candidates)

    def _has_identical(self, word: Guarded, spent: int) -> bool:
        """Rule 7: whether an open operation that responds does the same, and is unspent."""
        if word.guard == "any":
            return bool(self._writes.get(word.new, 0) & ~spent)
        group = self._is_effect if word.guard == "is" else self._not_effect
        like = group.get(word.value, 0) & ~spent
        while like:
            bit = like & -like
            like ^= bit
            if self._open[bit][1] == word:
                return True
        return False


class _Kept:
    """Configurations of one event, of which none dominates another."""

    __slots__ = ("_by_state", "_frontier", "_joins", "_keep", "entries")

    def __init__(self, frontier: CountingFrontier) -> None:
        self.entries: list[_Entry] = []
        self._by_state: dict[Hashable, list[_Entry]] = {}
        self._frontier = frontier
        self._joins = frontier._effort.joins  # noqa: SLF001 - a part of it
        self._keep = frontier._effort.keep  # noqa: SLF001

    def add(  # noqa: PLR0917 - called for each use: an object per call would cost as much again
        self,
        state: Hashable,
        satisfied: int,
        spent: int,
        counts: Counts,
        total: int,
        path: Path,
        idle: bool,
    ) -> None:
        near = self._by_state.get(state)
        if near is None:
            near = self._by_state[state] = []
        similar = 0
        like: _Entry | None = None
        lost = False
        for entry in near:
            its_satisfied, its_spent = entry.satisfied, entry.spent
            if (
                its_satisfied & satisfied == satisfied
                and its_spent & spent == its_spent
                and entry.idle <= idle
                and entry.total <= total
            ):
                if entry.counts is counts or _at_most(entry.counts, counts):
                    return
                if not self._joins:
                    similar += 1
                    if similar >= self._keep:
                        self._frontier.dropped = True
                        return
            if (
                its_satisfied & satisfied == its_satisfied
                and its_spent & spent == spent
                and idle <= entry.idle
                and total <= entry.total
            ):
                is_beaten = counts is entry.counts or _at_most(counts, entry.counts)
                if is_beaten or (not self._joins and self._keep == 1):
                    self._frontier.dropped |= not is_beaten
                    entry.alive = False
                    lost = True
                    continue
            if (
                self._joins
                and its_satisfied == satisfied
                and its_spent == spent
                and entry.idle == idle
            ):
                similar += 1
                like = entry
        if like is not None and similar >= self._keep:
            self._frontier.dropped = True
            like.alive = False
            lost = True
            its_counts = like.counts
            counts = {
                kind: min(count, its_counts[kind])
                for kind, count in counts.items()
                if kind in its_counts
            }
            total = min(total, like.total)
        if lost:
            near[:] = [entry for entry in near if entry.alive]
        made = _Entry(state, satisfied, spent, counts, total, path, idle)
        near.append(made)
        self.entries.append(made)


def _at_most(one: Counts, other: Counts) -> bool:
    """Whether all counts are at most those of the other."""
    if one is other:
        return True
    return all(count <= other.get(kind, 0) for kind, count in one.items())
