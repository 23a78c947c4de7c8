"""Drives the compiled search on a table of transitions: one object, any deterministic specification."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from checker.operations import Operation
from checker.search.budget import Budget, BudgetSpentError
from checker.search.compiled import counting, table
from checker.search.compiled.counting import FIELDS, NO, NODE, NODES, SLOTS, STOPPED, YES
from checker.search.compiled.running import run_interruptibly
from checker.search.frontier import Use
from checker.search.object_search import Decision, ObjectSearch
from checker.search.problem import Hints, Problem
from checker.search.words import Steps
from checker.specification import Illegal, Specification

TABLE_SEARCH_NAME: Final = "compiled table frontier"

TOO_MANY_OPEN: Final = "more than 64 operations are open at once, too many for a compiled search"

_EVERY = 1 << 60


class NotDeterministicError(Exception):
    """A step has several successors: the table has no room for them."""


class TableSearch:
    """The compiled search on one object.

    Args:
      problem: Its history.
      steps: The specification.
      hints: Per kind.
    """

    def __init__(self, problem: Problem, steps: Steps, hints: Hints) -> None:
        self._problem = problem
        self._steps = steps
        used = list(dict.fromkeys(problem.kind))
        self._kinds = used
        row_of = {kind: row for row, kind in enumerate(used)}
        self._kind = np.array([row_of[kind] for kind in problem.kind], np.int32)
        self._events = np.array(problem.events, np.int32)
        self._flags = np.array([int(hints[kind]) for kind in used], np.uint8)
        self._states: list[Hashable] = [steps.init()]
        self._number: dict[Hashable, int] = {self._states[0]: 0}
        self._table = np.full((len(used), 16), table.UNASKED, np.int32)
        self._fill()
        self._position = 0
        self.stop = np.zeros(1, np.int64)

    def _fill(self) -> None:
        """Writes the rows that the specification can tell at once, for all states that they name."""
        rest: list[int] = []
        cells: list[tuple[int, int, int]] = []
        number_of = self._state_number
        transitions, kinds = self._steps.spec.transitions, self._steps.kinds
        for row, kind in enumerate(self._kinds):
            told = transitions(kinds[kind])
            if told is None:
                return
            for state, after in told.given.items():
                cells.append((row, number_of(state), number_of(after)))
            otherwise = told.otherwise
            rest.append(table.ILLEGAL if isinstance(otherwise, Illegal) else number_of(otherwise))
        width = 16
        while width < len(self._states):
            width *= 2
        self._table = np.empty((len(self._kinds), width), np.int32)
        self._table[:] = np.array(rest, np.int32)[:, None]
        if cells:
            columns = np.array(cells, np.int32)
            self._table[columns[:, 0], columns[:, 1]] = columns[:, 2]

    def _state_number(self, state: Hashable) -> int:
        number = self._number.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number

    def decide(self, budget: Budget) -> Decision:
        """Decides, or gives up.

        Raises:
          NotDeterministicError: the plain search has to do it.
        """
        try:
            run = self._run(len(self._events), budget, record=False)
        except BudgetSpentError as error:
            done = self._position
            return Decision(None, TABLE_SEARCH_NAME, done, done, str(error))
        if run.status in (YES, NO):
            return Decision(run.status == YES, TABLE_SEARCH_NAME, run.position, run.position)
        if run.status == SLOTS:
            reason = TOO_MANY_OPEN
        elif run.status == STOPPED:
            reason = f"the time limit of {budget.timeout_s:g} s is reached"
        else:
            reason = f"the memory limit of {budget.memory_bytes_max >> 20:,} MiB is reached"
        return Decision(None, TABLE_SEARCH_NAME, run.position, run.position, reason)

    def uses(self, events: int | None = None) -> list[Use]:
        """The uses of an order of the first events."""
        length = len(self._events) if events is None else events
        run = self._run(length, Budget(memory_bytes_max=1 << 62), record=True)
        assert run.status == YES
        uses: list[Use] = []
        node = int(run.conf[int(run.reg[table.BEFORE]), 0, NODE])
        while node:
            uses.append((int(run.nodes[node, 1]), 0))
            node = int(run.nodes[node, 0])
        uses.reverse()
        return uses

    def _run(self, events: int, budget: Budget, *, record: bool) -> _TableRun:
        run = _TableRun(self._events, events, len(self._kind), record=record)
        run.widen(self._table.shape[1])
        entries_max = max(1024, budget.memory_bytes_max // (3 * 8 * FIELDS) // 2)
        while True:
            status = run_interruptibly(
                lambda: table.run_table(
                    run.events, self._kind, run.responded, self._table, self._flags, run.conf,
                    run.chains, run.slots, run.reg, run.slot_of, run.nodes, run.misses,
                    entries_max, _EVERY, record, self.stop,
                ),
                self.stop, budget, wait=budget.deadline is not None or events > 50_000,
            )  # fmt: skip
            if status == table.MISSES:
                self._position = run.position
                budget.tick(len(self._states))
                self._ask(run)
            elif status == table.GROW:
                run.grow()
            else:
                run.status = int(status)
                return run

    def _ask(self, run: _TableRun) -> None:
        for row, number in run.misses[: run.reg[table.MISSED]].tolist():
            if self._table[row, number] != table.UNASKED:
                continue
            successors = self._steps.next(self._kinds[row], self._states[number])
            if len(successors) > 1:
                raise NotDeterministicError
            following = table.ILLEGAL
            if successors:
                following = self._state_number(successors[0])
            if following >= self._table.shape[1]:
                wider = np.full(
                    (self._table.shape[0], 2 * self._table.shape[1]), table.UNASKED, np.int32
                )
                wider[:, : self._table.shape[1]] = self._table
                self._table = wider
            self._table[row, number] = following
        run.widen(self._table.shape[1])


class TableObject(ObjectSearch):
    """One object of any specification: the same questions, answered by the table search if it can.

    Args:
      problem: The object's history.
      spec: The specification.
      kinds: The history's kinds.
    """

    def __init__(
        self,
        problem: Problem,
        spec: Specification,
        kinds: Sequence[Operation],
    ) -> None:
        super().__init__(problem, spec, kinds, None)
        self._table: TableSearch | None = TableSearch(problem, self.steps, self.hints)

    def decide(self, budget: Budget) -> Decision:
        """As `ObjectSearch.decide`."""
        if self._table is not None:
            try:
                decision = self._table.decide(budget)
            except NotDeterministicError:
                self._table = None
            else:
                if decision.valid is not None or decision.reason != TOO_MANY_OPEN:
                    return decision
                self._table = None
        return super().decide(budget)

    def order(self, events: int | None = None) -> tuple[int, ...]:
        """As `ObjectSearch.order`."""
        if self._table is None:
            return super().order(events)
        return self.placed(self._table.uses(events), events)


class _TableRun:
    """The state of one run, which outlives a call of the kernel."""

    def __init__(
        self, events: NDArray[np.int32], length: int, operations: int, *, record: bool
    ) -> None:
        self.status = -1
        self.events = events[:length]
        self.responded = np.full(operations, counting.NEVER, np.int64)
        positions = np.flatnonzero(events < 0)
        self.responded[~events[positions]] = positions
        self.conf: NDArray[np.int64] = np.zeros((3, 256, FIELDS), np.int64)
        self.chains: NDArray[np.int64] = np.zeros((3, 16, 2), np.int64)
        self.slots = np.zeros((64, 4), np.int64)
        self.reg = np.zeros(table.REGISTERS, np.int64)
        self.reg[table.COUNT] = self.reg[NODES] = 1
        self.slot_of = np.zeros(operations, np.int8)
        self.nodes: NDArray[np.int32] = np.zeros((1024 if record else 1, 3), np.int32)
        self.misses = np.zeros((256, 2), np.int32)

    @property
    def position(self) -> int:
        return int(self.reg[table.POSITION])

    def grow(self) -> None:
        self.conf = _longer(self.conf, 1)
        if len(self.nodes) > 1:
            self.nodes = _longer(self.nodes, 0)

    def widen(self, states: int) -> None:
        while self.chains.shape[1] < states:
            self.chains = _longer(self.chains, 1)


def _longer(array: NDArray[Any], axis: int) -> NDArray[Any]:
    bigger = np.concatenate([array, np.zeros_like(array)], axis)
    return np.ascontiguousarray(bigger)
