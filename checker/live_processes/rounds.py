"""Groups calls of `live_processes` into rounds.

Rounds are forced. Take a completed call with answer L: for each `(p, i)` in L its round contains the
first call of that lifetime that is in no round yet, for rounds that share a member come in that
member's program order. That call must be pending or carry the same answer, and all windows must share
an instant.

A choice arises only where the history leaves something open: an answer without incarnations of a
process that restarted, or a call that ended with an unknown outcome while its process went on (it may
be in a round, or in none). Then `Grouping` tries one way after the other, depth first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product

from checker.history.events import LiveSet
from checker.live_processes.instants import Answer
from checker.live_processes.lifetimes import Call, Lifetime, Lifetimes


@dataclass(frozen=True, slots=True)
class NotInOwnAnswer:
    """A caller was told a live set that does not contain it."""

    call: Call


@dataclass(frozen=True, slots=True)
class NoSuchLifetime:
    """An answer names an incarnation that never started."""

    call: Call
    process: int
    incarnation: int | None


@dataclass(frozen=True, slots=True)
class NoCall:
    """An answer counts in a lifetime that has no call left for it."""

    call: Call
    lifetime: Lifetime


@dataclass(frozen=True, slots=True)
class ToldOtherwise:
    """Two calls must be in one round, and got different answers."""

    call: Call
    other: Call


@dataclass(frozen=True, slots=True)
class NoCommonInstant:
    """One member called only after another was answered, or had restarted before."""

    call: Call
    first: Call
    late: Call
    restarted: Lifetime | None


Obstacle = NotInOwnAnswer | NoSuchLifetime | NoCall | ToldOtherwise | NoCommonInstant


class Grouping:
    """All ways of grouping the calls of a history into rounds, one at a time.

    Attributes:
      rounds: The grouping found by the last successful `next()`.
      obstacle: Why the first dead end was one.
      tried: How many dead ends and groupings there were.
    """

    def __init__(self, lifetimes: Lifetimes) -> None:
        self.rounds: list[Answer] = []
        self.obstacle: Obstacle | None = None
        self.tried = 0
        self._lifetimes = lifetimes
        self._cursor = 0
        self._heads: dict[int, int] = {}
        self._choices: list[tuple[int, int, Iterator[Sequence[Call]]]] = []
        self._started = False
        self._excludable = {
            group: tuple(sorted(members)) for group, members in enumerate(lifetimes.groups)
        }

    def next(self, tries_max: int) -> bool:
        """Finds the first grouping, or the next; False when there is none left.

        Raises:
          TooManyMatchings: after `tries_max` dead ends and groupings.
        """
        if self._started and not self._retreat():
            return False
        self._started = True
        while True:
            if self._extend():
                self.tried += 1
                return True
            self.tried += 1
            if self.tried >= tries_max and self._choices:
                raise TooManyMatchings(self.tried)
            if not self._retreat():
                return False

    @property
    def may_go_on(self) -> bool:
        """Whether a choice is left that was not tried."""
        return bool(self._choices)

    def _extend(self) -> bool:
        """Forms rounds until all answered calls are in one; False at a dead end."""
        completed = self._lifetimes.completed
        while True:
            while self._cursor < len(completed) and completed[self._cursor].matched:
                self._cursor += 1
            if self._cursor == len(completed):
                return True
            if self._form_forced(completed[self._cursor]):
                continue
            options = self._first_options()
            if options is None:
                return False
            first = next(options, None)
            if first is None:
                return False
            self._choices_push(options)
            self._form(first)

    def _form_forced(self, call: Call) -> bool:
        """Forms the round of `call` if nothing about it is open or wrong: the usual case, quickly."""
        answer, group = call.answer, call.group
        assert answer is not None
        known, heads, groups = self._lifetimes.by_incarnation, self._heads, len(self._excludable)
        calls: list[Call] = []
        used: list[tuple[int, int]] = []
        members: list[Lifetime] = []
        lo_call = hi_call = call
        lo_ns, hi_ns = call.invoked_ns, call.answered_ns
        assert hi_ns is not None
        for meant in answer.items():
            lifetime = known.get(meant)
            if lifetime is None or lifetime.start is None:
                return False
            queue = lifetime.calls.get(group)
            if queue is None:
                return False
            key = lifetime.index * groups + group
            head = heads.get(key, 0)
            while head < len(queue) and queue[head].matched:
                head += 1
            if head == len(queue):
                return False
            candidate = queue[head]
            if candidate.skippable:
                return False
            theirs = candidate.answer
            ends_ns = candidate.answered_ns
            if theirs is not answer and theirs is not None and theirs != answer:
                return False
            if lifetime.next is not None and (ends_ns is None or lifetime.next.start_ns < ends_ns):
                return False
            if candidate.invoked_ns > lo_ns:
                lo_ns, lo_call = candidate.invoked_ns, candidate
            if ends_ns is not None and ends_ns < hi_ns:
                hi_ns, hi_call = ends_ns, candidate
            calls.append(candidate)
            members.append(lifetime)
            used.append((key, head + 1))
        if lo_ns > hi_ns or call not in calls:
            return False
        heads.update(used)
        for member in calls:
            member.matched = True
        formed = Answer(len(self.rounds), calls, answer)
        formed.members = members
        formed.lo_ns, formed.lo_call, formed.hi_ns, formed.hi_call = lo_ns, lo_call, hi_ns, hi_call
        self._leave_out(formed)
        self.rounds.append(formed)
        return True

    def _leave_out(self, formed: Answer) -> None:
        participants = self._excludable[formed.calls[0].group]
        if len(participants) != len(formed.processes):
            formed.absent = [p for p in participants if p not in formed.processes]

    def _choices_push(self, options: Iterator[Sequence[Call]]) -> None:
        another = next(options, None)
        if another is not None:
            remaining = chain([another], options)
            self._choices.append((len(self.rounds), self._cursor, remaining))

    def _retreat(self) -> bool:
        """Goes back to the latest choice and takes its next option."""
        while self._choices:
            count, cursor, options = self._choices[-1]
            while len(self.rounds) > count:
                for call in self.rounds.pop().calls:
                    call.matched = False
            self._heads.clear()
            self._cursor = cursor
            option = next(options, None)
            if option is None:
                self._choices.pop()
                continue
            self._form(option)
            return True
        return False

    def _first_options(self) -> Iterator[Sequence[Call]] | None:
        """Ways to form the round of the next answered call.

        With exact clocks that is the first one without a round. With clock errors the order of
        answers may be wrong, so a call that is blocked by another round waits for its turn.
        """
        completed = self._lifetimes.completed
        for index in range(self._cursor, len(completed)):
            if completed[index].matched:
                continue
            found = self._candidates(completed[index])
            if isinstance(found, list):
                ways = self._ways(completed[index], found)
                first = next(ways, None)
                if first is not None:
                    return chain([first], ways)
            else:
                self.obstacle = self.obstacle or found
            if self._lifetimes.exact:
                break
        return None

    def _candidates(self, call: Call) -> list[list[Call]] | Obstacle:
        """For each process in the answer, the calls that could be its part of the round."""
        answer = call.answer
        assert answer is not None
        own = call.lifetime
        if not answers_itself(self._lifetimes, call):
            return NotInOwnAnswer(call)
        candidates = []
        for process, incarnation in answer.items():
            if process == own.process:
                candidates.append([call])
                continue
            named = self._lifetimes.named(process, incarnation)
            if not named:
                return NoSuchLifetime(call, process, incarnation)
            found: list[Call] = []
            obstacle: Obstacle | None = None
            for lifetime in named:
                obstacle = self._first_calls(lifetime, call, answer, found) or obstacle
            if not found:
                assert obstacle is not None
                return obstacle
            candidates.append(found)
        return candidates

    def _first_calls(
        self, lifetime: Lifetime, call: Call, answer: LiveSet, found: list[Call]
    ) -> Obstacle | None:
        """Adds the calls of `lifetime` that may be in the round of `call`; says why if none may."""
        calls = lifetime.calls.get(call.group, ())
        key = lifetime.index * len(self._excludable) + call.group
        head = self._heads.get(key, 0)
        while head < len(calls) and calls[head].matched:
            head += 1
        self._heads[key] = head
        obstacle: Obstacle | None = NoCall(call, lifetime)
        for index in range(head, len(calls)):
            candidate = calls[index]
            if candidate.matched:
                continue
            if candidate.answer is answer or _agree(candidate.answer, answer):
                found.append(candidate)
                obstacle = None
            elif not found:
                obstacle = ToldOtherwise(call, candidate)
            if not candidate.skippable:
                break
        return obstacle

    def _ways(self, call: Call, candidates: list[list[Call]]) -> Iterator[Sequence[Call]]:
        for way in product(*candidates):
            obstacle = self._misnaming(call, way) or _without_common_instant(call, way)
            if obstacle is None:
                yield way
            else:
                self.obstacle = self.obstacle or obstacle

    def _misnaming(self, told: Call, calls: Sequence[Call]) -> Obstacle | None:
        """A member whose answer names other incarnations than those in the round.

        Answers agree pairwise where both tell an incarnation; that does not suffice where one does not.
        """
        for call in calls:
            if call.answer is None:
                continue
            if not answers_itself(self._lifetimes, call):
                return NotInOwnAnswer(call)
            for member in calls:
                incarnation = call.answer[member.lifetime.process]
                if incarnation in (None, member.lifetime.incarnation):
                    continue
                if member.lifetime not in self._lifetimes.named(
                    member.lifetime.process, incarnation
                ):
                    return NotInOwnAnswer(call) if member is call else ToldOtherwise(told, call)
        return None

    def _form(self, calls: Sequence[Call]) -> None:
        answer = next(call.answer for call in calls if call.answer is not None)
        formed = Answer(len(self.rounds), calls, answer)
        formed.members = [call.lifetime for call in calls]
        self._leave_out(formed)
        set_window(formed, calls)
        for call in calls:
            call.matched = True
        self.rounds.append(formed)


def answers_itself(lifetimes: Lifetimes, call: Call) -> bool:
    """Whether the caller is, in its own incarnation, in the answer that it got."""
    answer, own = call.answer, call.lifetime
    if answer is None or own.process not in answer:
        return False
    if own.process not in lifetimes.groups[call.group]:
        return False
    incarnation = answer[own.process]
    return incarnation == own.incarnation or own in lifetimes.named(own.process, incarnation)


class TooManyMatchings(Exception):
    """The budget of groupings is used up."""

    def __init__(self, tried: int) -> None:
        super().__init__(f"{tried} ways of grouping calls into rounds tried, and more are left")


def set_window(answer: Answer, calls: Sequence[Call]) -> None:
    """Sets the window in which all `calls` are open."""
    lo_call = calls[0]
    for call in calls:
        if call.invoked_ns > lo_call.invoked_ns:
            lo_call = call
        ended_ns = call.answered_ns
        if ended_ns is not None and (answer.hi_ns is None or ended_ns < answer.hi_ns):
            answer.hi_ns, answer.hi_call, answer.hi_lifetime = ended_ns, call, None
        if call.lifetime.next is not None:
            until_ns = call.lifetime.next.start_ns
            if answer.hi_ns is None or until_ns < answer.hi_ns:
                answer.hi_ns, answer.hi_call, answer.hi_lifetime = until_ns, None, call.lifetime
    answer.lo_ns, answer.lo_call = lo_call.invoked_ns, lo_call


def _without_common_instant(told: Call, calls: Sequence[Call]) -> NoCommonInstant | None:
    late = calls[0]
    for call in calls:
        if call.invoked_ns > late.invoked_ns:
            late = call
    for call in calls:
        if call.answered_ns is not None and call.answered_ns < late.invoked_ns:
            return NoCommonInstant(told, call, late, None)
        until_ns = call.lifetime.next_start_ns
        if until_ns is not None and until_ns < late.invoked_ns:
            return NoCommonInstant(told, call, late, call.lifetime)
    return None


def _agree(one: LiveSet | None, other: LiveSet) -> bool:
    """Whether two answers can be one; a pending call agrees with every answer."""
    if one is None or one == other:
        return True
    if one.keys() != other.keys():
        return False
    return all(
        incarnation is None or other[process] is None or incarnation == other[process]
        for process, incarnation in one.items()
    )
