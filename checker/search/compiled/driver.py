"""Drives the compiled searches: columns in, decisions and orders out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from checker.operations import Operation, Operations
from checker.search.budget import Budget
from checker.search.compiled import counting
from checker.search.compiled.counting import (
    CHAINS_ALWAYS,
    CHAINS_IF_NEEDED,
    JOIN,
    LEAN,
    NO,
    SLOTS,
    STOPPED,
    UNDECIDED,
    YES,
)
from checker.search.compiled.running import run_interruptibly
from checker.search.compiled.table_object import TABLE_SEARCH_NAME, TOO_MANY_OPEN, TableObject
from checker.search.object_search import Decision, ObjectSearch, Possible
from checker.search.problem import Problem
from checker.search.words import WordSteps
from checker.specification import Guarded, Specification

__all__ = [
    "SEARCH_NAME",
    "TABLE_SEARCH_NAME",
    "Columns",
    "CompiledCheck",
    "CompiledObject",
    "TableObject",
    "counting",
]

_T = TypeVar("_T")

ANY: Final = 1 << 30
EVERY: Final = 1 << 40

UNKNOWN_MAX: Final = 8
"""Objects with more operations of unknown outcome are first searched leanly."""

MADE_PER_EVENT: Final = 64
ENTRY_BYTES: Final = 3 * 8 * 8
GUARDS: Final = {"any": 0, "is": 1, "is not": 2}

DIRECT_EVENTS_MAX: Final = 400
"""Longer histories are searched in a thread of their own: an interrupt must not meet compiled code."""

PLAIN_EVENTS_MAX: Final = 2_000
"""Up to so many events, plain Python is as good for an explanation."""

EXPLAINING_ENTRIES_MAX: Final = 4_096
EXPLAINING_MADE_MAX: Final = 10_000_000
"""Limits of searches that only make an explanation better."""

LATE_STARTS: Final = (256, 1_024, 4_096, 16_384)
"""So many events before the death of a lean search, a join on the true words is tried."""

DEFINITE: Final = (YES, NO, STOPPED, SLOTS)

_BEGINNING: Final = np.zeros((1, counting.FIELDS), np.int64)
_NOTHING_USED: Final = np.zeros((0, 1), np.int16)

SEARCH_NAME: Final = "compiled frontier"


def packed(
    kinds: int, words: dict[int, Guarded], initial: Hashable
) -> tuple[NDArray[np.int64], int]:
    """Per kind, the word as an integer, with codes for values; and the number of codes.

    Bits: 0-1 guard, 2 whether it assigns, 3-32 the value tested, 33-62 the value assigned.
    """
    code: dict[Hashable, int] = {initial: 0}
    table = np.zeros(kinds, np.int64)
    for kind, (guard, value, assigns, new) in words.items():
        word = GUARDS[guard]
        if word:
            word |= code.setdefault(value, len(code)) << 3
        if assigns and not (word & 3 == 1 and value == new):
            word |= 4 | code.setdefault(new, len(code)) << 33
        table[kind] = word
    return table, len(code)


@dataclass(frozen=True, slots=True)
class _Step:
    """One search of the ladder."""

    words: NDArray[np.int64]
    mode: int
    keep: int
    beam: int = EVERY
    chains: int = CHAINS_ALWAYS
    restores: int = 0
    made_max: int = EVERY
    is_relaxed: bool = False
    """Whether its words admit more than the true ones: only its NO counts."""


def _first_step(events: NDArray[np.int32], words: NDArray[np.int64]) -> _Step:
    """What `decide_all` runs first."""
    if len(words) - int(np.count_nonzero(events < 0)) > UNKNOWN_MAX:
        return _Step(words, LEAN, 1, 16, CHAINS_IF_NEEDED, 1)
    return _Step(words, LEAN, ANY)


def _relaxed(words: NDArray[np.int64], unknown: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Operations of unknown outcome as writes of what they assign: every order stays one."""
    relaxed: NDArray[np.int64] = np.where(unknown, words & ~np.int64((1 << 33) - 1) | 4, words)
    return relaxed


def _both_sided(words: NDArray[np.int64], keep: int) -> Iterator[_Step]:
    """A search that may say no and one that may say yes, with limits that grow with `keep`."""
    made_max = keep * 40 * len(words)
    yield _Step(words, JOIN, keep, made_max=made_max)
    if keep == 1:
        yield _Step(words, LEAN, 1, 16, CHAINS_IF_NEEDED, 8, made_max=made_max)
    yield _Step(words, LEAN, keep, chains=CHAINS_IF_NEEDED, made_max=made_max)


def _wider(words: NDArray[np.int64], relaxed: NDArray[np.int64]) -> Iterator[_Step]:
    """One-sided searches that keep more and more, without limits but those of the budget."""
    yield _Step(words, LEAN, 1, 16, CHAINS_IF_NEEDED, 8)
    for keep in (1, 8, 64, 512):
        yield _Step(relaxed, JOIN, keep, is_relaxed=True)
        yield _Step(words, JOIN, keep)
        yield _Step(words, LEAN, keep, chains=CHAINS_IF_NEEDED)


def _named(
    path: list[int],
    events: NDArray[np.int32],
    words: NDArray[np.int64],
    class_words: NDArray[np.int64],
) -> list[int]:
    """Names the operations of unknown outcome: a class gives its uses to its earliest invocations."""
    if all(used >= 0 for used in path):
        return path
    responded = {int(~event) for event in events if event < 0}
    waiting: dict[int, list[int]] = {int(word): [] for word in class_words}
    for operation in range(len(words) - 1, -1, -1):
        if operation not in responded and int(words[operation]) in waiting:
            waiting[int(words[operation])].append(operation)
    return [used if used >= 0 else waiting[int(class_words[~used])].pop() for used in path]


class Columns:
    """A history ready for the compiled searches.

    Args:
      operations: The history.
      part: Per kind, the object, or -1.
      words: By kind, of all kinds that are in an object.
      initial: The first state of every object.
    """

    def __init__(
        self,
        operations: Operations,
        part: Sequence[int],
        parts: int,
        words: dict[int, Guarded],
        initial: Hashable,
    ) -> None:
        table, self.values = packed(len(operations.kinds), words, initial)
        kind = np.frombuffer(operations.kind, np.int32)
        self.events = np.frombuffer(operations.events, np.int32)
        self.words = table[kind]
        self.part = np.asarray(part, np.int32)[kind]
        self.parts = parts


class CompiledCheck:
    """The decisions on all objects of a history.

    Attributes:
      status: Per object.
      position: Per object: events that have an explanation.
      explained: Per object: events for which an order can be told; not more.
    """

    def __init__(self, columns: Columns, budget: Budget) -> None:
        self.stop = np.zeros(1, np.int64)
        self._budget = budget
        self._entries_max = max(1024, budget.memory_bytes_max // ENTRY_BYTES // 2)
        (
            self.status, self.position, self._events, self._first_event, self._words, self._first,
            self._codes,
        ) = self._run(
            lambda: counting.decide_all(
                columns.events, columns.part, columns.words, columns.parts, columns.values,
                UNKNOWN_MAX, MADE_PER_EVENT, self.stop,
            ),
            wait=len(columns.events) > DIRECT_EVENTS_MAX or budget.deadline is not None,
        )  # fmt: skip
        self.explained = self.position.copy()
        self._explained_by: dict[int, _Step] = {}
        """Per object, the search that explained so many events, if not the first one."""

    def not_valid(self) -> list[int]:
        """The objects that the first search did not find valid, in order."""
        parts: list[int] = np.flatnonzero(self.status != YES).tolist()
        return parts

    def is_decided(self, part: int) -> bool:
        """Whether the first search decided an object."""
        return int(self.status[part]) in (YES, NO)

    def explained_by(self, part: int) -> int:
        """Events of an object for which an order can be told so far."""
        return int(self.explained[part])

    def decision(self, part: int) -> Decision:
        """What is known of an object, after all that the budget allows."""
        if self.status[part] not in (YES, NO, SLOTS):
            self.climb(part)
        status, done = int(self.status[part]), int(self.position[part])
        explained = int(self.explained[part])
        if status in (YES, NO):
            return Decision(status == YES, SEARCH_NAME, done, explained)
        if status == SLOTS:
            reason = TOO_MANY_OPEN
        elif status == STOPPED:
            reason = f"the time limit of {self._budget.timeout_s:g} s is reached"
        else:
            reason = f"the memory limit of {self._budget.memory_bytes_max >> 20:,} MiB is reached"
        return Decision(None, SEARCH_NAME, done, explained, reason)

    def object_arrays(self, part: int) -> tuple[NDArray[np.int32], NDArray[np.int64], int]:
        """Events, words and number of codes of one object."""
        events = self._events[self._first_event[part] : self._first_event[part + 1]]
        words = self._words[self._first[part] : self._first[part + 1]]
        return events, words, int(self._codes[part])

    def climb(self, part: int) -> None:
        """Decides an object that the first search did not, if the budget allows.

        The order of steps is that of the design note, section 7: cheap and one-sided ones first.
        """
        words = self.object_arrays(part)[1]
        unknown = self._unknown(part)
        status, position = UNDECIDED, 0
        if unknown.any():
            relaxed = _relaxed(words, unknown)
            status, position = self._take(part, _Step(relaxed, JOIN, 1, is_relaxed=True))
            for keep in (1, 8):
                if status not in DEFINITE:
                    status, position = self._join_late(part, relaxed, keep)
                for step in _both_sided(words, keep):
                    if status not in DEFINITE:
                        status, position = self._take(part, step)
            for step in _wider(words, relaxed):
                if status not in DEFINITE:
                    status, position = self._take(part, step)
        if status not in DEFINITE:
            status, position = self._take(part, _Step(words, LEAN, ANY))
        self.status[part] = status
        if status == NO:
            self.position[part] = self._first_unexplained(part, position)
        else:
            self.position[part] = self.explained[part]

    def _unknown(self, part: int) -> NDArray[np.bool_]:
        """Per operation of an object, whether its outcome is unknown and it may have an effect."""
        events, words, _ = self.object_arrays(part)
        unknown = np.asarray(words & 4 != 0)
        unknown[~events[events < 0]] = False
        return unknown

    def _take(self, part: int, step: _Step) -> tuple[int, int]:
        """Runs one step of the ladder on an object; status and position."""
        events, _, values = self.object_arrays(part)
        status, position, _ = self._run(
            lambda: counting.decide(
                events, len(events), step.words, values, step.mode, step.keep, step.beam,
                step.chains, self._entries_max, step.made_max, step.restores, self.stop,
            ),
            wait=True,
        )  # fmt: skip
        if (step.mode == LEAN and position > self.explained[part]) or (
            status == YES and not step.is_relaxed
        ):
            self.explained[part] = position
            self._explained_by[part] = step
        if status == YES and step.is_relaxed:
            status = UNDECIDED
        return int(status), int(position)

    def _join_late(self, part: int, relaxed: NDArray[np.int64], keep: int) -> tuple[int, int]:
        """Joins on the true words, but only around the place where a lean search died.

        On relaxed words a join is fast. What it holds at some earlier event admits all that is possible
        there: that the true words used no class, but so many assignments of each value. A join on the
        true words that starts from there admits all that is possible, too, so its NO is definite.
        """
        events, words, values = self.object_arrays(part)
        died = int(self.explained[part])
        classes = len(np.unique(words[self._unknown(part)]))
        for back in LATE_STARTS:
            start = died - back
            if start <= 0:
                break
            found = self._join(part, relaxed, 1, (0, start), (_BEGINNING, _NOTHING_USED))
            status, position, _, conf, level, count, rows, _, _, relaxed_classes = found
            if status not in (YES, UNDECIDED):
                return int(status), int(position)
            entries = conf[level, :count].copy()
            counts = np.zeros((count, classes + values + 1), np.int16)
            counts[:, classes:] = rows[entries[:, counting.ROW], len(relaxed_classes) :]
            entries[:, counting.ROW] = np.arange(count)
            end = min(len(events), died + back)
            status, position, *_ = self._join(part, words, keep, (start, end), (entries, counts))
            if status in (NO, STOPPED):
                return int(status), int(position)
        return UNDECIDED, 0

    def _join(
        self,
        part: int,
        words: NDArray[np.int64],
        keep: int,
        stretch: tuple[int, int],
        possible: tuple[NDArray[np.int64], NDArray[np.int16]],
    ) -> tuple[Any, ...]:
        """Runs a join on a stretch of an object's events, from what is possible at its start."""
        events, _, values = self.object_arrays(part)
        start, end = stretch
        found: tuple[Any, ...] = self._run(
            lambda: counting.search(
                events, end, words, values, start, *possible, JOIN, keep, EVERY, CHAINS_ALWAYS,
                self._entries_max, EVERY, 0, False, self.stop,
            ),
            wait=True,
        )  # fmt: skip
        return found

    def _first_unexplained(self, part: int, last: int) -> int:
        """The position of the first event that surely has no explanation.

        A search that joins notices a contradiction late. Between what a search that drops could explain
        and where this one ended, each response is asked for by itself.
        """
        events, words, values = self.object_arrays(part)
        exact = _Step(words, LEAN, ANY)
        for position in range(int(self.explained[part]), last):
            if events[position] < 0:
                status, _, _ = counting.decide(
                    events, position + 1, words, values, exact.mode, exact.keep, exact.beam,
                    exact.chains, EXPLAINING_ENTRIES_MAX, EXPLAINING_MADE_MAX, 0, self.stop,
                )  # fmt: skip
                if status == NO:
                    return position
                if status != YES:
                    break
                self.explained[part] = position + 1
                self._explained_by[part] = exact
        return last

    def uses(self, part: int, events_max: int) -> list[int]:
        """The operations used visibly by an order of the first events.

        Args:
          part: The object.
          events_max: At most `explained`.

        Returns:
          Local numbers, in order.
        """
        events, words, values = self.object_arrays(part)
        step = self._explained_by.get(part) or _first_step(events, words)
        outcome = counting.search(
            events, events_max, words, values, 0, _BEGINNING, _NOTHING_USED, step.mode, step.keep,
            step.beam, step.chains, EVERY, EVERY, step.restores, True, self.stop,
        )  # fmt: skip
        status, _, _, conf, level, count, _, _, nodes, class_words = outcome
        assert status == YES
        assert count
        path: list[int] = []
        node = int(conf[level, 0, counting.NODE])
        while node:
            path.append(int(nodes[node, 1]))
            node = int(nodes[node, 0])
        path.reverse()
        return _named(path, events, words, class_words)

    def possible(self, part: int, events_max: int) -> tuple[list[int], list[tuple[int, ...]]]:
        """The codes of all possible states after some events, and what open operations were used.

        Both are empty if there are too many.
        """
        events, words, values = self.object_arrays(part)
        outcome = counting.search(
            events, events_max, words, values, 0, _BEGINNING, _NOTHING_USED, LEAN, ANY, EVERY,
            CHAINS_ALWAYS, EXPLAINING_ENTRIES_MAX, EXPLAINING_MADE_MAX, 0, False, self.stop,
        )  # fmt: skip
        status, _, _, conf, level, count, _, slots, _, _ = outcome
        states: list[int] = []
        uses: list[tuple[int, ...]] = []
        for entry in conf[level, : count if status == YES else 0]:
            states.append(int(entry[counting.STATE]))
            spent = int(entry[counting.SPENT])
            uses.append(tuple(int(slots[i, 0]) for i in range(64) if spent >> i & 1))
        return states, uses

    def codes(
        self, part: int, kind: Sequence[int], words: dict[int, Guarded]
    ) -> dict[int, Hashable]:
        """The values behind an object's own codes."""
        _, its_words, _ = self.object_arrays(part)
        _, examples = np.unique(its_words, return_index=True)
        code: dict[int, Hashable] = {}
        for operation in examples.tolist():
            packed_word, word = int(its_words[operation]), words[kind[operation]]
            if packed_word & 3:
                code[packed_word >> 3 & counting.VALUE_MASK] = word.value
            if packed_word & 4:
                code[packed_word >> 33 & counting.VALUE_MASK] = word.new
        return code

    def _run(self, function: Callable[[], _T], *, wait: bool) -> _T:
        return run_interruptibly(function, self.stop, self._budget, wait=wait)


class CompiledObject(ObjectSearch):
    """One object of a compiled check: the same questions, answered by the compiled search.

    Args:
      check: The check.
      problem: The object's history.
      spec: The specification.
      kinds: The history's kinds.
      words: The object's words.
    """

    def __init__(
        self,
        check: CompiledCheck,
        problem: Problem,
        spec: Specification,
        kinds: Sequence[Operation],
        words: dict[int, Guarded],
    ) -> None:
        super().__init__(problem, spec, kinds, words)
        self._check = check

    def order(self, events: int | None = None) -> tuple[int, ...]:
        """As `ObjectSearch.order`."""
        every = len(self.problem.events)
        uses = self._check.uses(self.problem.part, every if events is None else events)
        return self.placed([(used, 0) for used in uses], events)

    def possible_after(self, events: int, budget: Budget) -> list[Possible]:
        """As `ObjectSearch.possible_after`, by the compiled search where that pays."""
        if events <= PLAIN_EVENTS_MAX:
            return super().possible_after(events, budget)
        states, uses = self._check.possible(self.problem.part, events)
        assert isinstance(self.steps, WordSteps)
        code = self._check.codes(self.problem.part, self.problem.kind, self.steps.words)
        known = [(code[state], its) for state, its in zip(states, uses, strict=True)]
        return self.with_open_uses(known, events, budget, names_unknown=False)
