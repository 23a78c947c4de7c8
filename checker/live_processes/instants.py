"""Least instants: when each answer was true, and when each failure is taken to have happened.

*Problem.* Every answer (a round, or under the published reading each single answer) needs an instant
`t` in its window `[lo, hi]`; every lifetime has one instant of failure `x`, which may be shifted.
An answer that leaves out a process needs `t > x` of that process's lifetime, unless `t` is not after
its start; an answer that counts a lifetime in needs `t <= x` where `x` is not bound from below anyhow.

*Idea.* All rules say how far a `t` or an `x` must move up, given the others, and are monotone. Start
with the least values and move up until nothing moves: the least fixed point lies below every
solution, so if it breaks an upper bound, no solution exists (Knaster and Tarski). Each move has one
reason, and the chain of reasons is the explanation.

*Ties.* Equal times are concurrent, yet a chain "round 1, then failure, then round 2" inside one
instant must not bite its tail. So an instant is `time * scale + rank`; ranks count the links of such a
chain, and a rank beyond the number of links that exist means a cycle.

*Cost.* Near-linear: an answer looks only at the participants that it leaves out, and finds the one
lifetime of each that matters by bisection; an `x` rises at most once per answer that it belongs to.

Source: design note "Checking live_processes"; the JAX guide on fault tolerance, Formal Semantics.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from checker.history.events import Event
from checker.live_processes.lifetimes import Call, Lifetime, Lifetimes
from checker.live_processes.spec import FailureModel

INFINITY = float("inf")


class Cover:
    """What the published reading asks of the members of an answer: each is in a call at its instant.

    Callers that got the very same answer share one cover, so that members are looked up once for all:
    if the least instant from `sought` on at which all members are in a call is `from_`, and they stay
    so until `until`, then from any `t` in `[sought, until]` on it is `max(t, from_)`.
    """

    __slots__ = ("absent", "from_", "last_call", "members", "raised", "sought", "until")

    def __init__(self, members: Sequence[Lifetime], absent: Sequence[int]) -> None:
        self.members = members
        self.absent = absent
        self.sought = self.from_ = 0
        self.until = -INFINITY
        self.last_call: Call | None = None
        self.raised: float = -INFINITY
        """The latest instant that the members' failures were raised to by this cover."""


class Answer:
    """What needs an instant: a round, or one answer of the published reading.

    Attributes:
      number: Position among the answers, for people.
      calls: The calls that the instant must lie in. For a round, one of each member; else the caller's.
      processes: The processes of the answer.
      members: The lifetimes counted in: each is alive at the instant, so none fails before it.
      cover: Set if members need a call around the instant (published reading).
      absent: Participants that are left out.
      lo_ns, hi_ns: The window; `hi_ns` None is open to the right.
      lo_call: The call whose invocation is `lo_ns`.
      hi_call: The call whose answer is `hi_ns`, or None where `hi_lifetime`'s next start is.
    """

    __slots__ = (
        "absent",
        "calls",
        "cover",
        "hi_call",
        "hi_lifetime",
        "hi_ns",
        "instant",
        "lo_call",
        "lo_ns",
        "members",
        "number",
        "processes",
        "raised_by",
    )

    def __init__(self, number: int, calls: Sequence[Call], processes: Collection[int]) -> None:
        self.number = number
        self.calls = calls
        self.processes = processes
        self.members: Sequence[Lifetime] = ()
        self.cover: Cover | None = None
        self.absent: Sequence[int] = ()
        self.lo_ns = 0
        self.lo_call = calls[0]
        self.hi_ns: int | None = None
        self.hi_call: Call | None = None
        self.hi_lifetime: Lifetime | None = None
        self.instant = 0
        self.raised_by: Lifetime | Call | None = None


@dataclass(frozen=True, slots=True)
class TooLate:
    """An answer whose least instant passes the end of its window (or runs in circles)."""

    answer: Answer
    circular: bool = False


@dataclass(frozen=True, slots=True)
class NotCovered:
    """A member of an answer is in no call at any instant from `answer.instant` on."""

    answer: Answer
    lifetime: Lifetime


@dataclass(frozen=True, slots=True)
class OutlivesSuccessor:
    """A lifetime shows a sign of life after the next start of its process."""

    lifetime: Lifetime
    sign: Event


Contradiction = TooLate | NotCovered | OutlivesSuccessor


class LeastInstants:
    """Finds the least instants of answers and failures, or the contradiction that excludes them.

    Args:
      lifetimes: All lifetimes of the history.
      answers: What needs an instant; their `instant` is set.
      failures: The failure model.
      not_before_ns: By lifetime index, moments before which failures shall not be taken to be, besides
        what the model demands.

    Attributes:
      failure: By lifetime index, the least instant of its failure.
      failure_raised_by: By lifetime index, the answer that pushed it there; None: its last sign of
        life did.
    """

    def __init__(
        self,
        lifetimes: Lifetimes,
        answers: Sequence[Answer],
        failures: FailureModel,
        not_before_ns: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self.answers = answers
        self.scale = 2 * (len(answers) + len(lifetimes.all)) + 4
        self._lifetimes = lifetimes
        self._suspicion = failures == "suspicion"
        self._ends_of: dict[tuple[int, int], tuple[list[float], Call | None]] = {}
        self._starts_ns = {
            process: [lifetime.start_ns for lifetime in started]
            for process, started in lifetimes.by_process.items()
        }
        self.failure_raised_by: list[Answer | None] = [None] * len(lifetimes.all)
        self.watchers: list[list[Answer]] = [[] for _ in lifetimes.all]
        self.failure = [self._first_failure(lifetime) for lifetime in lifetimes.all]
        for index, time_ns in not_before_ns.items():
            self.failure[index] = max(self.failure[index], time_ns * self.scale)

    def sign_of_life(self, lifetime: Lifetime) -> Event | None:
        """The last event that the failure of a lifetime cannot precede, answers aside."""
        if not self._suspicion:
            return lifetime.last_event
        return lifetime.last_acknowledged or lifetime.start

    def origin(self, found: TooLate | NotCovered) -> Lifetime | None:
        """The lifetime whose failure, not pushed by any answer, made an instant come too late."""
        answer = found.answer
        seen: set[int] = set()
        while answer.number not in seen:
            seen.add(answer.number)
            reason = answer.raised_by
            if not isinstance(reason, Lifetime):
                return None
            source = self.failure_raised_by[reason.index]
            if source is None:
                return reason
            answer = source
        return None

    def _first_failure(self, lifetime: Lifetime) -> int:
        sign = self.sign_of_life(lifetime)
        return 0 if sign is None else (sign.time_ns - sign.uncertainty_ns) * self.scale

    def solve(self) -> Contradiction | None:
        """Moves everything to its least instant; returns what stands against it, if anything."""
        for lifetime in self._lifetimes.all:
            sign = self.sign_of_life(lifetime)
            until_ns = lifetime.next_start_ns
            if sign is not None and until_ns is not None:
                if sign.time_ns - sign.uncertainty_ns > until_ns:
                    return OutlivesSuccessor(lifetime, sign)
        for answer in self.answers:
            answer.instant = answer.lo_ns * self.scale
            answer.raised_by = None
        failure, raised_by, watchers = self.failure, self.failure_raised_by, self.watchers
        work = deque(sorted(self.answers, key=lambda answer: answer.lo_ns))
        queued = [True] * len(self.answers)
        while work:
            answer = work.popleft()
            queued[answer.number] = False
            contradiction = self._settle(answer)
            if contradiction is not None:
                return contradiction
            if answer.cover is not None:
                if answer.instant <= answer.cover.raised:
                    continue
                answer.cover.raised = answer.instant
            instant = answer.instant
            for lifetime in answer.members:
                index = lifetime.index
                if failure[index] < instant:
                    failure[index] = instant
                    raised_by[index] = answer
                    if watchers[index]:
                        self._requeue(watchers[index], instant, work, queued)
        return None

    @staticmethod
    def _requeue(
        watchers: list[Answer], failure: int, work: deque[Answer], queued: list[bool]
    ) -> None:
        """Looks again at the answers that leave out a lifetime which fails later than thought."""
        for watcher in watchers:
            if watcher.instant <= failure and not queued[watcher.number]:
                queued[watcher.number] = True
                work.append(watcher)

    def _settle(self, answer: Answer) -> Contradiction | None:
        """Moves one answer up until it leaves out only the dead and covers its members."""
        if not answer.absent and answer.cover is None:
            return None  # A round of everybody: its window is known not to be empty.
        scale = self.scale
        hi = None if answer.hi_ns is None else answer.hi_ns * scale + scale - 1
        while True:
            before = answer.instant
            for process in answer.absent:
                if not self._leave_out(answer, process):
                    return TooLate(answer, circular=True)
            if answer.cover is not None:
                lifetime = self._cover(answer, answer.cover)
                if lifetime is not None:
                    return NotCovered(answer, lifetime)
            if hi is not None and answer.instant > hi:
                return TooLate(answer)
            if answer.instant == before:
                return None

    def _leave_out(self, answer: Answer, process: int) -> bool:
        """Moves the answer past the failure of `process`; False if that goes round in circles."""
        instant = answer.instant
        started = bisect_left(self._starts_ns[process], instant // self.scale)
        if started == 0:
            return True
        lifetime = self._lifetimes.by_process[process][started - 1]
        watchers = self.watchers[lifetime.index]
        if not watchers or watchers[-1] is not answer:
            watchers.append(answer)
        failure = self.failure[lifetime.index]
        if instant <= failure:
            answer.instant = failure + 1
            answer.raised_by = lifetime
            return (failure + 1) % self.scale < self.scale - 2
        return True

    def _cover(self, answer: Answer, cover: Cover) -> Lifetime | None:
        """Moves the answer to where all members are in a call; returns a member for which none is."""
        if not cover.sought <= answer.instant <= cover.until:
            cover.sought = cover.from_ = answer.instant
            lifetime = self._seek(answer.calls[0].group, cover)
            if lifetime is not None:
                cover.until = -INFINITY
                return lifetime
        if answer.instant < cover.from_:
            answer.instant = cover.from_
            answer.raised_by = cover.last_call
        return None

    def _seek(self, group: int, cover: Cover) -> Lifetime | None:
        """Finds the least instant from `cover.from_` on at which all members are in a call."""
        scale = self.scale
        while True:
            cover.until = INFINITY
            before = cover.from_
            for lifetime in cover.members:
                call = self._covering(lifetime, group, cover.from_ // scale)
                if call is None:
                    return lifetime
                if cover.from_ < call.invoked_ns * scale:
                    cover.from_ = call.invoked_ns * scale
                    cover.last_call = call
                end_ns = INFINITY if call.answered_ns is None else call.answered_ns
                if lifetime.next is not None:
                    end_ns = min(end_ns, lifetime.next.start_ns)
                cover.until = min(cover.until, end_ns * scale + scale - 1)
            if cover.from_ == before:
                return None

    def _covering(self, lifetime: Lifetime, group: int, now_ns: int) -> Call | None:
        """The call of `lifetime` that covers the earliest moment from `now_ns` on."""
        calls = lifetime.calls.get(group)
        if not calls:
            return None
        until_ns = lifetime.next_start_ns
        if until_ns is not None and now_ns > until_ns:
            return None
        ends, stuck = self._ends(lifetime, group)
        index = bisect_left(ends, now_ns)
        while index < len(calls) and calls[index].skippable:
            index += 1
        call = calls[index] if index < len(calls) else None
        if call is None or (stuck is not None and stuck.invoked_ns <= max(call.invoked_ns, now_ns)):
            call = stuck
        if call is None or (until_ns is not None and call.invoked_ns > until_ns):
            return None
        return call

    def _ends(self, lifetime: Lifetime, group: int) -> tuple[list[float], Call | None]:
        """Ends of a lifetime's calls, ascending as bisection needs them, and its first stuck call.

        A call of unknown outcome is stuck: it may stay in the barrier until its process fails.
        """
        known = self._ends_of.get((lifetime.index, group))
        if known is None:
            calls = lifetime.calls[group]
            ends: list[float] = []
            latest: float = 0
            for call in calls:
                if not call.skippable:
                    latest = max(latest, INFINITY if call.answered_ns is None else call.answered_ns)
                ends.append(latest)
            stuck = next((call for call in calls if call.skippable), None)
            known = self._ends_of[lifetime.index, group] = (ends, stuck)
        return known
