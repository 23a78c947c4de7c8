"""Why not here? What if an operation took effect at another instant of its interval?

An order o(1) ... o(m) has gaps 0 ... m, and a state in each. To move an operation to another gap, take
it out of the order, step it in the state of that gap, and step what follows until the states are those
of the original order again (then the rest is legal as before), or until something is illegal.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from sys import getsizeof
from typing import Any, Final, NamedTuple

from checker.operations import Operations
from checker.report.model import FAILED, NOWHERE, UNSEEN, Bars
from checker.report.points import Points
from checker.report.texts import Texts
from checker.specification import Illegal, OneOf, SetSpecification, Specification

GAPS_MAX = 40
"""So many gaps of one operation are judged: the ones around its place."""

STEPS_MAX = 400_000
"""So many steps are made for all answers together, remembered ones included."""

SECONDS_MAX = 5.0
"""Longer than that no answers are computed: a specification may be slow."""

STATES_BYTES_MAX = 64_000_000
"""About so many bytes of states are kept, and remembered."""

REPLAY_MAX = 40
"""So many operations after a gap are stepped."""

STATES_MAX = 16
"""Of more possible states (steps with several outcomes), these are followed."""

DESCRIBED_CHARS_MAX = 4_000_000
"""When descriptions of states are that long together, further ones are left out."""


class Answer(IntEnum):
    """What is to be said about a gap."""

    ILLEGAL = 0
    NEXT_BREAKS = 1
    LATER_BREAKS = 2
    STAYS_LEGAL = 3
    LEGAL_SO_FAR = 4
    ITS_PLACE = 5
    MISSED = 6


WORDS: Final[Mapping[str, str]] = {
    str(int(Answer.ILLEGAL)): "Not here: {reason}.",
    str(int(Answer.NEXT_BREAKS)): (
        "Legal here, but then {operation}, which comes next in this order, "
        "could no longer {outcome}: {reason}."
    ),
    str(int(Answer.LATER_BREAKS)): (
        "Legal here, but then {operation}, which comes later in this order, "
        "could no longer {outcome}: {reason}."
    ),
    str(int(Answer.STAYS_LEGAL)): "Legal here, and the rest of this order stays legal.",
    str(int(Answer.LEGAL_SO_FAR)): (
        f"Legal here, and the next {REPLAY_MAX} operations of this order stay legal."
    ),
    str(int(Answer.ITS_PLACE)): "Legal here: this is its place in this order.",
    str(int(Answer.MISSED)): (
        "Not here: then {operation}, which comes before in this order, could not {outcome}: {reason}."
    ),
    "state": "The state is {state}.",
    "no_state": "No state is possible here.",
    "no_reason": "the specification does not allow it in this state",
}


def sentence(
    words: Mapping[str, str], answer: int, *, operation: str, outcome: str, reason: str
) -> str:
    """An answer in words."""
    text = words[str(answer)]
    parts = {
        "{operation}": operation,
        "{outcome}": outcome,
        "{reason}": reason.rstrip(".") or words["no_reason"],
    }
    # One part after the other would replace placeholders that a history's own texts contain.
    pieces = []
    while text:
        found = min(
            ((text.index(part), part) for part in parts if part in text), default=(len(text), "")
        )
        pieces += [text[: found[0]], parts.get(found[1], "")]
        text = text[found[0] + len(found[1]) :]
    return "".join(pieces)


@dataclass(frozen=True, slots=True)
class _Several:
    """States of which any may be the true one; always more than one."""

    states: tuple[Hashable, ...]


_NEVER_ASKED: Final = object()


class Machine:
    """Steps a specification, remembers what came of it, and counts.

    A specification that raises is taken to say no, with the error as its reason: it is asked about
    states that never came to be.
    """

    def __init__(self, operations: Operations, spec: Specification | SetSpecification) -> None:
        self._operations = operations
        self._spec = spec
        self._known: dict[tuple[Hashable, Hashable], Any] = {}
        self._known_bytes = 0
        self._described: dict[Hashable, int] = {}
        self._chars = 0
        self.steps = 0

    def initial(self) -> Hashable:
        """The state before everything."""
        return self._spec.init()

    def step(self, state: Hashable, group: Sequence[int]) -> Hashable:
        """The state after a group, or `Illegal`."""
        if isinstance(state, _Several):
            return self._step_each(state, group)
        self.steps += 1
        kind = self._operations.kind
        name: Hashable = (
            kind[group[0]]
            if isinstance(self._spec, Specification)
            else tuple((self._operations.process[index], kind[index]) for index in group)
        )
        try:
            found: Hashable = self._known.get((state, name), _NEVER_ASKED)
        except TypeError:
            return Illegal("the state cannot be hashed")
        if found is _NEVER_ASKED:
            found = self._asked(state, group)
            self._known_bytes += getsizeof(found)
            if self._known_bytes > STATES_BYTES_MAX:
                self._known.clear()
                self._known_bytes = 0
            self._known[state, name] = found
        return found

    def _asked(self, state: Hashable, group: Sequence[int]) -> Hashable:
        at = self._operations.at
        try:
            if isinstance(self._spec, Specification):
                after = self._spec.step(state, at(group[0]))
            else:
                members = [(self._operations.process[index], at(index)) for index in group]
                after = self._spec.step(state, members)
            hash(after)
        except Exception as error:  # noqa: BLE001 - a user's code; see the class
            return Illegal(f"the specification raised {type(error).__name__}: {error}")
        if isinstance(after, OneOf):
            return _of(after.states) if after.states else Illegal("it leads to no state")
        return after

    def _step_each(self, state: _Several, group: Sequence[int]) -> Hashable:
        after: dict[Hashable, None] = {}
        illegal = Illegal()
        for one in state.states:
            found = self.step(one, group)
            if isinstance(found, Illegal):
                illegal = found
            else:
                after.update(
                    dict.fromkeys(found.states if isinstance(found, _Several) else [found])
                )
        return _of(tuple(after)[:STATES_MAX]) if after else illegal

    def describe(self, state: Hashable, texts: Texts) -> int:
        """The number of the text that describes a state."""
        try:
            number = self._described.get(state)
        except TypeError:
            return texts.add("(it cannot be hashed)")
        if number is None:
            number = self._described[state] = texts.add(self._description(state))
        return number

    def _description(self, state: Hashable) -> str:
        if self._chars > DESCRIBED_CHARS_MAX:
            return "(left out: descriptions of states are long)"
        states = state.states if isinstance(state, _Several) else (state,)
        try:
            text = " or ".join(self._spec.describe_state(one) for one in states)
        except Exception as error:  # noqa: BLE001 - a user's code
            text = f"(its description raised {type(error).__name__})"
        self._chars += len(text)
        return text


def _of(states: tuple[Hashable, ...]) -> Hashable:
    return states[0] if len(states) == 1 else _Several(states)


class _Judged(NamedTuple):
    state: Hashable
    answer: Answer
    about: int = NOWHERE
    reason: str = ""


class Replay:
    """One order with the states in its gaps.

    Args:
      groups: Operations in the order in which they took effect.
      points: Where they did.
      machine: What steps.
      keep_last: Whether the last states are kept, rather than the first, if all are too much.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[int]],
        points: Points,
        machine: Machine,
        *,
        keep_last: bool,
    ) -> None:
        self.groups = groups
        self._points = points.order
        self._machine = machine
        self._states: list[Hashable] = [machine.initial()]
        self._first = 0
        """States of gaps before this one were not kept."""
        size = 0
        for group in groups:
            after = machine.step(self._states[-1], group)
            if isinstance(after, Illegal):
                break  # The order is wrong, which its verifier says; here the rest has no states.
            size += getsizeof(after)
            self._states.append(after)
            if size > STATES_BYTES_MAX and not keep_last:
                break
            while size > STATES_BYTES_MAX and self._first < len(self._states) - 1:
                size -= getsizeof(self._states[self._first])
                self._states[self._first] = None
                self._first += 1

    def gaps(self, start: float, end: float, operation: int, rank: int) -> range:
        """Gaps of the order without an operation that are within its interval.

        If there are many, those around its place; if it has none, the last, where the contradiction
        shows.

        Args:
          start: Where the interval begins.
          end: Where it ends.
          operation: Its number.
          rank: Place of its group in the order; `NOWHERE` if it is in none.
        """
        known = len(self._states) - 1
        if rank >= known or (rank != NOWHERE and rank < self._first):
            return range(0)
        first = max(bisect_right(self._points, start), self._first)
        last = min(bisect_left(self._points, end), known)
        if rank != NOWHERE and not self._rest(operation, rank):
            last -= 1
        middle = rank if rank != NOWHERE else last
        first = max(first, min(middle - GAPS_MAX // 2, last - GAPS_MAX + 1))
        return range(first, min(last, first + GAPS_MAX - 1) + 1)

    def _rest(self, operation: int, rank: int) -> tuple[int, ...]:
        """The others that act as one with an operation."""
        return tuple(index for index in self.groups[rank] if index != operation)

    def judge(self, operation: int, gaps: range, rank: int) -> Iterator[_Judged]:
        """What is to be said about an operation in each of these gaps."""
        alone = (operation,)
        if rank == NOWHERE:
            for gap in gaps:
                yield self._insert(self._states[gap], alone, gap, NOWHERE)
            return
        rest = self._rest(operation, rank)
        for gap in range(gaps.start, min(gaps.stop, rank + 1 if rest else rank)):
            yield self._insert(self._states[gap], alone, gap, rank)
        # From here on, the groups between its place and the gap come before the operation.
        state = self._states[rank]
        between = [*([rest] if rest else []), *self.groups[rank + 1 : gaps.stop + 1]]
        missed: _Judged | None = None
        gap = rank
        if not rest:
            yield _Judged(state, Answer.ITS_PLACE)
        for group in between[: gaps.stop - 1 - rank]:
            gap += 1
            if missed is None:
                after = self._machine.step(state, group)
                if isinstance(after, Illegal):
                    missed = _Judged(state, Answer.MISSED, group[0], after.reason)
                else:
                    state = after
            following = gap if rest else gap + 1
            yield missed or self._insert(state, alone, following, NOWHERE)

    def _insert(
        self, state: Hashable, alone: tuple[int, ...], following: int, rank: int
    ) -> _Judged:
        """Steps an operation, then the groups from `following` on, without it in group `rank`."""
        step = self._machine.step
        after = step(state, alone)
        if isinstance(after, Illegal):
            return _Judged(state, Answer.ILLEGAL, NOWHERE, after.reason)
        states = self._states
        is_pure = rank != NOWHERE and states[rank] == states[rank + 1]
        end = min(len(states) - 1, following + REPLAY_MAX)
        for number in range(following, end):
            # Until `rank` the original order lacks the operation, afterwards it has it.
            if after == states[number] and (number > rank or is_pure):
                return _Judged(state, Answer.STAYS_LEGAL)
            group = self.groups[number]
            if number == rank:
                group = self._rest(alone[0], rank)
                if not group:
                    continue
            found = step(after, group)
            if isinstance(found, Illegal):
                code = Answer.NEXT_BREAKS if number == following else Answer.LATER_BREAKS
                return _Judged(state, code, group[0], found.reason)
            after = found
        if end == len(states) - 1:
            return _Judged(state, Answer.STAYS_LEGAL)
        return _Judged(state, Answer.LEGAL_SO_FAR)


def answer_all(
    bars: Bars,
    replays: Mapping[int, Replay],
    machine: Machine,
    texts: Texts,
    *,
    sequence: Sequence[int],
    end: float,
) -> tuple[list[int], int]:
    """Fills in the gaps of bars, and answers for them, until steps run out.

    Args:
      bars: Their columns for gaps are written.
      replays: By number of the order.
      machine: What steps.
      texts: Gets the texts.
      sequence: Bars, the most important one first.
      end: Where an operation ends that has no end.

    Returns:
      The answers as in `Page`, and how many operations have none because there are too many.
    """
    answers: list[int] = []
    left_out = 0
    no_reason = texts.add("")
    steps_max = machine.steps + STEPS_MAX
    deadline = time.monotonic() + SECONDS_MAX
    for bar in sequence:
        replay = replays.get(bars.order[bar])
        if replay is None or bars.outcome[bar] == FAILED:
            continue
        if machine.steps > steps_max or time.monotonic() > deadline:
            left_out += 1
            continue
        is_open = bars.outcome[bar] == UNSEEN or bars.end[bar] < 0
        bar_end = end if is_open else min(end, bars.end[bar])
        rank = bars.rank[bar]
        gaps = replay.gaps(bars.start[bar], bar_end, bar, rank)
        if not gaps:
            left_out += 1  # The states there were not kept.
            continue
        bars.gap_first[bar] = gaps.start
        bars.gap_count[bar] = len(gaps)
        bars.gap_at[bar] = len(answers) // 4
        for _, judged in zip(gaps, replay.judge(bar, gaps, rank), strict=True):
            reason = texts.add(judged.reason) if judged.reason else no_reason
            state = machine.describe(judged.state, texts)
            answers += (state, int(judged.answer), judged.about, reason)
    return answers, left_out
