"""Checks the calls of one named barrier in near-linear time: instances are forced.

The definition is `NamedBarrier`. Every call that returned is in one instance, with one call of every
other member; all of them are open at one moment.

*Without counters.* Take the calls that returned in the order of their returns. Whatever is left when
call `a` is the next returns later, so all calls in the instance of `a` are open just before `a`
returns, if they are open at any common moment: the instance may be there. Of every other member it
takes the call that returns first among those that are open there: where a solution gives this call `b`
to another instance and something else to that of `a`, the two can change places, as both instances may
be where `a` returns or later. Only if there is none does it take a call of unknown outcome, and which
one makes no difference: those that were invoked by now may be used ever after. A call of unknown
outcome that counted makes its process free to call again and be told that it has passed; whether a
call that could do so did is tried out both ways. Situations are not tried twice, and their number is
bounded.

*With counters.* The instance of each call is told. Instances follow each other by their counters, and
each is as early as can be, before the first of its calls returns, or of any later instance. A
process's first call with the counter is its arrival if it was invoked by then, else a call of unknown
outcome was; all others repeat it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import NamedTuple, TypeAlias

from checker.anomaly import Anomaly
from checker.linearization import Linearization, ObjectOrder
from checker.operations import Operations
from checker.service.barrier_calls import BarrierCalls
from checker.specs.named_barrier import NamedBarrier, counter_of, is_counter
from checker.verdict import Invalid, Unknown, Valid, Verdict

ALGORITHM = "forced instances"
TRIALS_MAX = 10_000
"""How many situations may be tried, besides one a call, before the verdict is `Unknown`."""


def check_barrier(
    operations: Operations, spec: NamedBarrier, *, name: Callable[[int], str] | None = None
) -> Verdict:
    """Checks operations that are all on one id.

    Args:
      operations: The calls.
      spec: Who takes part in the job.
      name: A call, by its number, as people know it; by default its place in `operations`.

    Complexity: O(n log n + instances x members) where no call can be a repetition.
    """
    calls = BarrierCalls(operations, spec, name or operations.place)
    found: list[list[int]] | Anomaly | None
    if calls.anomaly is not None:
        found = calls.anomaly
    elif not calls.tell_counters:
        found = _Trials(calls).run()
    elif all(is_counter(operations.at(call).result) for call in calls.returned):
        found = _Counted(calls).run()
    else:
        return Unknown("some calls tell their counter and others do not", algorithm=ALGORITHM)
    if found is None:
        reason = f"more than {TRIALS_MAX} ways tried of which calls repeat others"
        return Unknown(reason, algorithm=ALGORITHM)
    if isinstance(found, Anomaly):
        return Invalid(found, ALGORITHM)
    key = operations.at(0).key if len(operations) else None
    order = ObjectOrder(key, tuple(tuple(sorted(group)) for group in found))
    return Valid(Linearization(operations, spec, lambda: (order,)), ALGORITHM)


class _Situation(NamedTuple):
    """How far a trial has come.

    Attributes:
      position: Calls that returned before this one, in the order of returns, are done.
      done: Those of the others that are.
      used: How many calls of unknown outcome counted, by member in ascending order.
      untold: As in `BarrierState`.
    """

    position: int
    done: frozenset[int]
    used: tuple[int, ...]
    untold: frozenset[int]


_Way: TypeAlias = tuple[list[int], _Situation]
"""What is next: an instance or a repetition, and the situation then."""


class _Trials:
    """Instances without counters, in the order of their earliest returns."""

    def __init__(self, calls: BarrierCalls) -> None:
        self._calls = calls
        self._members = sorted(calls.members)
        self._ends = {process: [calls.end[call] for call in of] for process, of in calls.of.items()}
        self._anomaly: Anomaly | None = None

    def run(self) -> list[list[int]] | Anomaly | None:
        """The groups, why there are none, or None after too many trials."""
        calls = self._calls
        start = _Situation(0, frozenset(), (0,) * len(self._members), frozenset())
        stack: list[tuple[list[int], Iterator[_Way]]] = [([], self._ways(start))]
        seen = {start}
        while stack:
            found = next(stack[-1][1], None)
            if found is None:
                stack.pop()
                continue
            group, situation = found
            if situation in seen:
                continue
            seen.add(situation)
            if len(seen) > len(calls.returned) + TRIALS_MAX:
                return None
            stack.append((group, self._ways(situation)))
            if situation.position == len(calls.returned):
                return [group for group, _ in stack[1:]]
        return self._anomaly or []

    def _ways(self, at: _Situation) -> Iterator[_Way]:
        calls = self._calls
        if at.position == len(calls.returned):
            return
        call = calls.returned[at.position]
        until, own = calls.end[call], calls.process(call)
        open_: dict[int, int | None] = {}
        choices: list[list[int]] = []
        for number, member in enumerate(self._members):
            known = call if member == own else self._open_at(until, member, at.done)
            open_[member] = known
            chosen = [] if known is None else [known]
            unknown = calls.unknown.get(member, [])[at.used[number] :][:1]
            # A process that calls one after the other gains nothing from an unknown arrival here.
            if member != own and (known is None or member in calls.overlapping):
                chosen += [each for each in unknown if calls.start[each] < until]
            if not chosen and self._anomaly is None:
                self._anomaly = calls.told_apart(call, member)
            choices.append(chosen)
        for group in product(*choices):
            untold = frozenset(self._unknown_in(group))
            used = (
                used + (member in untold)
                for used, member in zip(at.used, self._members, strict=True)
            )
            yield list(group), self._after(at, list(group), tuple(used), untold)
        for member in at.untold:
            again = open_[member]
            if again is not None:
                yield [again], self._after(at, [again], at.used, at.untold - {member})

    def _unknown_in(self, group: Iterable[int]) -> Iterator[int]:
        calls = self._calls
        return (calls.process(call) for call in group if calls.operations.at(call).is_open)

    def _after(
        self, at: _Situation, group: list[int], used: tuple[int, ...], untold: frozenset[int]
    ) -> _Situation:
        calls, position = self._calls, at.position
        done = at.done.union(call for call in group if not calls.operations.at(call).is_open)
        while position < len(calls.returned) and calls.returned[position] in done:
            done -= {calls.returned[position]}
            position += 1
        return _Situation(position, done, used, untold)

    def _open_at(self, until: int, member: int, done: frozenset[int]) -> int | None:
        """The call of a member that returns first among those that are left and were invoked."""
        calls = self._calls.of.get(member, [])
        for index in range(bisect_right(self._ends.get(member, []), until), len(calls)):
            call = calls[index]
            if self._calls.start[call] < until:
                if call not in done:
                    return call
            elif member not in self._calls.overlapping:
                break
        return None


class _Counted:
    """Instances with counters, in the order of these."""

    def __init__(self, calls: BarrierCalls) -> None:
        self._calls = calls
        self._used: defaultdict[int, int] = defaultdict(int)
        self._groups: list[tuple[int, list[int]]] = []
        """With the position just after which each may be."""
        self._now = -1
        """The position just after which the latest instance was over."""
        self._repeated = -1
        """The position until which the latest instance is repeated, so that no other one may pass."""

    def run(self) -> list[list[int]] | Anomaly:
        """The groups, or why there are none."""
        calls = self._calls
        ended: dict[int, list[int]] = defaultdict(list)
        for call in calls.returned:
            ended[calls.counter(call)].append(call)
        for call in calls.cancels:
            counter = counter_of(calls.operations.at(call))
            if counter in ended:
                return calls.anomaly_of(
                    "barrier-ended-twice",
                    f"instance {counter} was cancelled, and was cancelled again or passed",
                    [call, ended[counter][0]],
                )
            ended[counter].append(call)
        # An instance is over before the first return of it or of any later one.
        latest = len(calls.operations.events)
        until: dict[int, int] = {}
        for counter in sorted(ended, reverse=True):
            latest = until[counter] = min(latest, calls.end[ended[counter][0]])
        for counter in sorted(ended):
            anomaly = self._end(ended[counter], until[counter])
            if anomaly is not None:
                return anomaly
        # A call may still be told of an instance when a later one has been cancelled.
        self._groups.sort(key=lambda group: group[0])
        return [group for _, group in self._groups]

    def _end(self, returned: list[int], until: int) -> Anomaly | None:
        calls, first = self._calls, returned[0]
        if first in calls.cancellations:
            self._now = max(self._now, calls.start[first])
            self._groups.append((self._now, [first]))
            return self._out_of_order(first) if self._now > until else None
        arrivals: dict[int, int] = {}
        repeats: list[int] = []
        for call in sorted(returned, key=calls.start.__getitem__):
            if calls.start[call] < until and calls.process(call) not in arrivals:
                arrivals[calls.process(call)] = call
            else:
                repeats.append(call)
        for member in calls.members - arrivals.keys():
            unknown = calls.unknown.get(member, [])
            used = self._used[member]
            if used == len(unknown) or calls.start[unknown[used]] > until:
                return calls.told_apart(first, member)
            arrivals[member] = unknown[used]
            self._used[member] += 1
        starts = (calls.start[call] for call in arrivals.values())
        self._now = max(self._now, self._repeated, *starts)
        if self._now > until:
            return self._out_of_order(first)
        self._groups.append((self._now, list(arrivals.values())))
        for call in repeats:
            self._repeated = max(self._repeated, calls.start[call])
            self._groups.append((max(self._now, calls.start[call]), [call]))
        return None

    def _out_of_order(self, call: int) -> Anomaly:
        calls = self._calls
        return calls.anomaly_of(
            "barrier-out-of-order",
            f"{calls.name(call)} had ended before an instance with a smaller counter can have been over",
            [call],
        )
