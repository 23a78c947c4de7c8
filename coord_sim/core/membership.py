"""Who is in the job: tasks, their states and incarnations.

Only this file changes a task's state. The transitions (design note, section 2):

    DISCONNECTED, ERROR --connect--> CONNECTED
    DISCONNECTED, CONNECTED --put_in_error--> ERROR
    CONNECTED, ERROR --disconnect--> DISCONNECTED
"""

from __future__ import annotations

from dataclasses import dataclass, field

from coord_sim.core.effects import StateChanged
from coord_sim.core.identifiers import Incarnation, TaskId
from coord_sim.core.messages import TaskInfo, TaskState
from coord_sim.core.records import TaskRecord
from coord_sim.core.status import ServiceError, Status

NEVER = Incarnation(0)


@dataclass(slots=True)
class Task:
    """What the service knows of one task."""

    id: TaskId
    state: TaskState = TaskState.DISCONNECTED
    incarnation: Incarnation = NEVER
    error: Status | None = None
    last_heartbeat_ns: int = 0
    left_ns: int | None = None
    """When it disconnected; None if it never did."""
    past: set[Incarnation] = field(default_factory=set)
    """Incarnations that were declared dead, left, or were replaced."""

    @property
    def is_connected(self) -> bool:
        """Whether the task is in the job now."""
        return self.state is TaskState.CONNECTED


class Membership:
    """The fixed set of tasks, and the version of their states that the service counts."""

    def __init__(self, tasks: int) -> None:
        self.tasks = [Task(TaskId(number)) for number in range(tasks)]
        self.version = 0
        self.changes: list[StateChanged] = []
        """State changes since the driver last took them."""
        self.changed: set[TaskId] = set()
        """Tasks whose record is not what it was."""
        self._by_incarnation: dict[Incarnation, Task] = {}

    def task(self, id_: TaskId) -> Task:
        """The task; the id must be known."""
        return self.tasks[id_]

    def find(self, task: TaskId) -> Task | None:
        """The task, or None for an unknown id."""
        return self.tasks[task] if 0 <= task < len(self.tasks) else None

    def find_incarnation(self, incarnation: Incarnation) -> Task | None:
        """The task whose latest registered incarnation this is, or None."""
        return self._by_incarnation.get(incarnation)

    def connected(self) -> list[Task]:
        """The tasks in the job now, ascending."""
        return [task for task in self.tasks if task.is_connected]

    def announce(self, task: Task, incarnation: Incarnation) -> None:
        """A registration has begun: its incarnation is the task's latest from now on."""
        if task.incarnation == incarnation:
            return
        if task.incarnation != NEVER:
            task.past.add(task.incarnation)
        self._by_incarnation.pop(task.incarnation, None)
        self._by_incarnation[incarnation] = task
        task.incarnation = incarnation
        self.changed.add(task.id)

    def connect(self, task: Task, now_ns: int) -> None:
        """A registration succeeded."""
        task.state = TaskState.CONNECTED
        task.error = None
        task.last_heartbeat_ns = now_ns
        self._changed(task, None)

    def put_in_error(self, task: Task, reason: Status) -> bool:
        """A task is in error from now on; False if it was already, for the first error sticks."""
        if task.state is TaskState.ERROR:
            return False
        task.state = TaskState.ERROR
        task.error = reason
        task.past.add(task.incarnation)
        self._changed(task, reason)
        return True

    def disconnect(self, task: Task, now_ns: int) -> None:
        """A task left; an error is forgotten."""
        task.state = TaskState.DISCONNECTED
        task.error = None
        task.left_ns = now_ns
        task.past.add(task.incarnation)
        self._changed(task, None)

    def record(self, id_: TaskId) -> TaskRecord:
        """What must outlive the service."""
        task = self.tasks[id_]
        return TaskRecord(
            task=id_,
            state=task.state,
            incarnation=task.incarnation,
            error=task.error,
            has_left=task.left_ns is not None,
            past=tuple(sorted(task.past)),
        )

    def restore(self, record: TaskRecord, now_ns: int) -> None:
        """Takes up a task where it was; its time-outs count from now."""
        task = self.tasks[record.task]
        task.state = record.state
        task.incarnation = record.incarnation
        task.error = record.error
        task.last_heartbeat_ns = now_ns
        task.left_ns = now_ns if record.has_left else None
        task.past = set(record.past)
        if record.incarnation != NEVER:
            self._by_incarnation[record.incarnation] = task

    def picture(self) -> tuple[TaskInfo, ...]:
        """All tasks as WatchTasks tells them. Its error payload is rebuilt (section 6)."""
        return tuple(
            TaskInfo(task.id, task.incarnation, task.state, _rebuilt(task)) for task in self.tasks
        )

    def _changed(self, task: Task, reason: Status | None) -> None:
        self.changed.add(task.id)
        self.changes.append(StateChanged(task.id, task.incarnation, task.state, reason))


def _rebuilt(task: Task) -> Status | None:
    if task.error is None:
        return None
    return Status(
        code=task.error.code,
        message=task.error.message,
        service_error=ServiceError(source_task=task.id),
    )
