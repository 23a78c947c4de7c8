"""A barrier over all tasks of the job: registration and shutdown are each one.

The named barriers of programs have counters, subsets and re-use on top; these two have not.
"""

from __future__ import annotations

from coord_sim.core.identifiers import CallId, Incarnation, TaskId


class Gathering:
    """Who has arrived, and until when the others may.

    Attributes:
      passed: All arrived.
      failed: It timed out, or somebody died.
    """

    def __init__(self, tasks: int, timeout_ns: int) -> None:
        self.passed = False
        self.failed = False
        self._tasks = tasks
        self._timeout_ns = timeout_ns
        self._deadline_ns: int | None = None
        self.arrived: dict[TaskId, tuple[CallId, Incarnation]] = {}

    @property
    def is_over(self) -> bool:
        """Passed or failed."""
        return self.passed or self.failed

    @property
    def is_complete(self) -> bool:
        """Whether nobody is missing."""
        return len(self.arrived) == self._tasks

    def arrive(
        self, task: TaskId, call: CallId, incarnation: Incarnation, now_ns: int
    ) -> CallId | None:
        """Lets a task arrive; returns its older call, which this one replaces."""
        if self._deadline_ns is None:
            self._deadline_ns = now_ns + self._timeout_ns
        older = self.arrived.get(task)
        self.arrived[task] = (call, incarnation)
        return None if older is None else older[0]

    def is_overdue(self, now_ns: int) -> bool:
        """Whether its time is up; noticed at ticks only."""
        return not self.is_over and self._deadline_ns is not None and now_ns >= self._deadline_ns

    def missing(self) -> list[TaskId]:
        """Who has not arrived, ascending."""
        return [TaskId(task) for task in range(self._tasks) if TaskId(task) not in self.arrived]
