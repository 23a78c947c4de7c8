"""Barriers: the named ones of programs, and the two that register all tasks and let them leave.

Source: design note, section 8. An id is reusable; each use is an instance with a counter 0, 1, 2, ...
Only the latest instance of an id is kept, with its result once it is over. Registration and shutdown are
instances of the same kind under reserved ids, which are not protected: a program that names one takes
part in it. What follows from the end of one of those is the service's business.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from coord_sim.core.identifiers import CallId, Incarnation, TaskId
from coord_sim.core.membership import Membership
from coord_sim.core.messages import TaskState
from coord_sim.core.quoting import quoted
from coord_sim.core.records import BarrierRecord
from coord_sim.core.semantics import Semantics
from coord_sim.core.status import BarrierError, Code, Status

REGISTRATION_BARRIER = "[Init]Wait_for_all_tasks_to_register"
"""Reserved id of the barrier that all first registrations wait at (section 3)."""

_NAMED_MISSING_MAX = 2


def shutdown_barrier(service: Incarnation) -> str:
    """Reserved id of the barrier that all tasks leave by (section 9)."""
    return f"Shutdown::{service}"


class Purpose(enum.Enum):
    """Which RPC waits at a barrier: the answer depends on it."""

    BARRIER = enum.auto()
    REGISTRATION = enum.auto()
    SHUTDOWN = enum.auto()


@dataclass(frozen=True, slots=True)
class Arrival:
    """A task arrives at a barrier.

    Attributes:
      incarnation: As the caller says it.
      timeout_ns: Counts only if this arrival opens an instance.
      participants: As the caller lists them; empty means all tasks.
    """

    call: CallId
    purpose: Purpose
    task: TaskId
    incarnation: Incarnation
    barrier_id: str
    counter: int
    timeout_ns: int
    participants: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """An arrival is told how its barrier ended; `result` is None if it passed.

    `repeated` if the instance was over before the arrival.
    """

    arrival: Arrival
    result: Status | None
    counter: int
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """An instance is over; `result` is None if it passed."""

    barrier_id: str
    counter: int
    result: Status | None


BarrierOutcome: TypeAlias = Told | Ended


@dataclass(slots=True)
class Barrier:
    """The latest instance of one id.

    Attributes:
      key: What callers name it by.
      id: What it says it is: empty until the first instance is opened in order (section 8, "First use
        of an id with c >= 1").
      arrived: Every participant, and whether it has arrived.
      result: How it ended, if it is over; None means that all arrived.
      initiator: The first task to arrive.
      waiting: The call of each task that is to be told.
      passed_by: As whom the participants arrived at the instance that passed last.
      passed_counter: Which one that was.
    """

    key: str
    id: str = ""
    counter: int = 0
    is_over: bool = False
    result: Status | None = None
    initiator: TaskId | None = None
    timeout_ns: int = 0
    deadline_ns: int = 0
    arrived: dict[TaskId, bool] = field(default_factory=dict)
    waiting: dict[TaskId, Arrival] = field(default_factory=dict)
    passed_by: dict[TaskId, Incarnation] = field(default_factory=dict)
    passed_counter: int = -1

    @property
    def name(self) -> str:
        """As messages name the instance."""
        return f"{self.id}::{self.counter}"

    @property
    def missing(self) -> list[TaskId]:
        """The participants that have not arrived."""
        return [task for task, arrived in self.arrived.items() if not arrived]


class Barriers:
    """The latest instance of every id.

    Args:
      membership: Who is in the job.
      semantics: The face of the service.
      recoverable: Whether tasks may come back, which changes half of the rules.
      once_only: The reserved ids, which are never used again by a restarted task.
    """

    def __init__(
        self,
        membership: Membership,
        semantics: Semantics,
        *,
        recoverable: bool,
        once_only: Iterable[str],
    ) -> None:
        self._membership = membership
        self._semantics = semantics
        self._recoverable = recoverable
        self._once_only = frozenset(once_only)
        self._barriers: dict[str, Barrier] = {}
        self._open: dict[str, Barrier] = {}
        self.changed: set[str] = set()
        """Ids whose record is not what it was."""

    def open_barriers(self) -> list[Barrier]:
        """The instances that wait for somebody."""
        return list(self._open.values())

    def waiting_calls(self) -> list[CallId]:
        """The calls that wait at barriers."""
        return [arrival.call for b in self._barriers.values() for arrival in b.waiting.values()]

    # --- what happens to barriers --------------------------------------------------------------

    def arrive(self, arrival: Arrival, now_ns: int) -> list[BarrierOutcome]:
        """A task arrives. The order of these checks is the real service's, and can be seen."""
        if not arrival.participants and self._membership.find(arrival.task) is None:
            # The real service crashes when such a barrier times out.
            message = (
                f"Unexpected task ({arrival.task}) that is not in the cluster called the barrier"
            )
            status = Status(
                code=Code.INVALID_ARGUMENT,
                message=message,
                barrier_error=BarrierError(arrival.barrier_id, arrival.counter),
            )
            return [Told(arrival, status, arrival.counter)]
        barrier = self._barriers.setdefault(arrival.barrier_id, Barrier(arrival.barrier_id))
        if self._has_passed(barrier, arrival):
            return [Told(arrival, None, arrival.counter)]
        counter = arrival.counter
        is_open = barrier.key in self._open
        unused = not barrier.id and not is_open and not barrier.is_over
        opens = (unused and counter == 0) or (barrier.is_over and counter == barrier.counter + 1)
        if self._is_of_a_restarted_task(barrier, arrival):
            opens = True
            counter = barrier.counter + 1
        if opens:
            refused = self._open_instance(barrier, counter, arrival, now_ns)
            if refused is not None:
                return [Ended(barrier.id, counter, refused), Told(arrival, refused, counter)]
        outcomes: list[BarrierOutcome] = []
        older = barrier.waiting.get(arrival.task)
        if older is not None:
            message = (
                f"Cancelled because there's a more recent barrier call for {barrier.name} "
                "from the same task."
            )
            status = Status(code=Code.CANCELLED, message=message, service_error=None)
            outcomes.append(Told(older, status, barrier.counter))
        barrier.waiting[arrival.task] = arrival
        problem: Status | None
        may_differ = self._recoverable and counter == 0
        if not opens and counter != barrier.counter and not may_differ:
            problem = _wrong_counter(barrier, counter)
        else:
            problem = self._wrong_participants(barrier, arrival)
        if problem is not None:
            return [*outcomes, *self._end(barrier, problem)]
        if barrier.is_over and counter == barrier.counter:
            del barrier.waiting[arrival.task]
            return [*outcomes, Told(arrival, barrier.result, barrier.counter, repeated=True)]
        if barrier.arrived.get(arrival.task):
            return outcomes
        barrier.arrived[arrival.task] = True
        if False not in barrier.arrived.values():
            barrier.passed_by = {task: call.incarnation for task, call in barrier.waiting.items()}
            barrier.passed_counter = barrier.counter
            outcomes += self._end(barrier, None)
        return outcomes

    def cancel(self, barrier_id: str, counter: int, task: TaskId) -> Status | list[BarrierOutcome]:
        """Ends an open instance for all, or says why not."""
        name = f"{barrier_id}::{counter}"
        barrier = self._barriers.setdefault(barrier_id, Barrier(barrier_id))
        if barrier.counter != counter or barrier.is_over:
            message = (
                f"Barrier ({name}) is cancelled by task, but the service thinks it is the "
                f"{barrier.counter}-th instance. This is likely due to a restart in the task or service."
                if barrier.counter != counter
                else f"Barrier ({name}) has already been passed with status code: "
                f"{Code.OK if barrier.result is None else barrier.result.code}"
            )
            return Status(
                code=Code.FAILED_PRECONDITION,
                message=message,
                barrier_error=BarrierError(barrier_id, barrier.counter),
            )
        cancelled = Status(
            code=Code.CANCELLED,
            message=f"Barrier ({name}) is cancelled by task: {task}",
            barrier_error=BarrierError(barrier.id, barrier.counter),
        )
        return self._end(barrier, cancelled)

    def leave(self, task: TaskId, reason: str) -> list[BarrierOutcome]:
        """A task has died, left or registered again: it is at no barrier any more.

        With recoverability it is un-arrived and the others wait on; else they are told.
        """
        outcomes: list[BarrierOutcome] = []
        for barrier in [open_ for open_ in self._open.values() if task in open_.arrived]:
            if not self._recoverable:
                message = (
                    f"Barrier failed because: {reason}. Barrier Id: {barrier.name}, Task: {task}"
                )
                outcomes += self._end(barrier, _barrier_status(barrier, Code.INTERNAL, message))
                continue
            barrier.arrived[task] = False
            stale = barrier.waiting.pop(task, None)
            if stale is not None:
                message = (
                    f"Stale barrier invocation is cancelled because:  {reason}. "
                    f"Barrier: {barrier.name} Task {task}"
                )
                status = _barrier_status(barrier, Code.CANCELLED, message)
                outcomes.append(Told(stale, status, barrier.counter))
        return outcomes

    def expire(self, now_ns: int) -> list[BarrierOutcome]:
        """Ends the instances whose time is up; noticed at ticks only."""
        outcomes: list[BarrierOutcome] = []
        for barrier in [b for b in self._open.values() if now_ns > b.deadline_ns]:
            missing = barrier.missing
            names = "".join(f"{task}\n" for task in missing[:_NAMED_MISSING_MAX])
            total = len(barrier.arrived)
            message = (
                f"Barrier timed out. Id: {barrier.name}. This usually happens because a task triggered "
                "the barrier too early or too slowly. Please look at the task logs (both timed out and "
                "first task) to debug further.\n"
                f"# of tasks that reached the barrier: {total - len(missing)}/{total}.\n"
                f"The first task at the barrier: {barrier.initiator}. "
                f"Some timed out task names:\n{names}"
            )
            outcomes += self._end(
                barrier, _barrier_status(barrier, Code.DEADLINE_EXCEEDED, message)
            )
        return outcomes

    # --- what a restarted service knows --------------------------------------------------------

    def record(self, barrier_id: str) -> BarrierRecord:
        """What must outlive the service: not who waits, for those calls are lost with it."""
        barrier = self._barriers[barrier_id]
        return BarrierRecord(
            key=barrier.key,
            id=barrier.id,
            counter=barrier.counter,
            is_over=barrier.is_over,
            result=barrier.result,
            initiator=barrier.initiator,
            timeout_ns=barrier.timeout_ns,
            participants=tuple(barrier.arrived),
            passed_by=tuple(barrier.passed_by.items()),
            passed_counter=barrier.passed_counter,
        )

    def restore(self, record: BarrierRecord, now_ns: int) -> None:
        """Takes up an id where it was; an open instance waits for all arrivals anew."""
        barrier = Barrier(
            key=record.key,
            id=record.id,
            counter=record.counter,
            is_over=record.is_over,
            result=record.result,
            initiator=record.initiator,
            timeout_ns=record.timeout_ns,
            deadline_ns=now_ns + record.timeout_ns,
            arrived=dict.fromkeys(record.participants, False),
            passed_by=dict(record.passed_by),
            passed_counter=record.passed_counter,
        )
        self._barriers[record.key] = barrier
        if not barrier.is_over:
            self._open[record.key] = barrier

    # --- rules ---------------------------------------------------------------------------------

    def _is_of_a_restarted_task(self, barrier: Barrier, arrival: Arrival) -> bool:
        """Whether this is instance 0 of a client that knows nothing of the instances before."""
        if not (barrier.is_over and self._recoverable and arrival.counter == 0):
            return False
        return arrival.barrier_id not in self._once_only

    def _has_passed(self, barrier: Barrier, arrival: Arrival) -> bool:
        """Whether this call only repeats one whose answer was lost."""
        if self._semantics.forgets_who_passed or arrival.barrier_id in self._once_only:
            return False
        is_same = barrier.passed_by.get(arrival.task) == arrival.incarnation
        return is_same and arrival.counter == barrier.passed_counter

    def _open_instance(
        self, barrier: Barrier, counter: int, arrival: Arrival, now_ns: int
    ) -> Status | None:
        """Opens a new instance; a reason if it is over at once."""
        self.changed.add(barrier.key)
        barrier.id = arrival.barrier_id
        barrier.counter = counter
        barrier.initiator = arrival.task
        barrier.waiting.clear()
        refused = self._name_participants(barrier, arrival.participants)
        in_error = next(
            (
                task
                for task in map(self._membership.task, barrier.arrived)
                if task.state is TaskState.ERROR
            ),
            None,
        )
        if refused is None and in_error is not None and not self._recoverable:
            assert in_error.error is not None
            message = (
                f"Task ({in_error.id}) is already in error before the barrier was called. "
                f"Barrier Id: {barrier.name} Task error: {quoted(in_error.error)}"
            )
            refused = _barrier_status(barrier, Code.INTERNAL, message)
        barrier.is_over = refused is not None
        barrier.result = refused
        if refused is None:
            barrier.timeout_ns = arrival.timeout_ns
            barrier.deadline_ns = now_ns + arrival.timeout_ns
            self._open[barrier.key] = barrier
        return refused

    def _name_participants(self, barrier: Barrier, participants: Sequence[TaskId]) -> Status | None:
        """Fixes who takes part: once per id, not per instance (section 8, step 2)."""
        if barrier.arrived:
            barrier.arrived = dict.fromkeys(barrier.arrived, False)
            return None
        for id_ in participants or [task.id for task in self._membership.tasks]:
            if self._membership.find(id_) is None:
                # The list stays as far as it was read, and spoils the id, as in the real service.
                message = (
                    f"Unexpected task ({id_}) that is not in the cluster called the barrier. "
                    f"Barrier Id: {barrier.name}"
                )
                return _barrier_status(barrier, Code.INVALID_ARGUMENT, message)
            barrier.arrived[id_] = False
        return None

    def _wrong_participants(self, barrier: Barrier, arrival: Arrival) -> Status | None:
        listed = arrival.participants
        if not listed:
            if len(barrier.arrived) == len(self._membership.tasks):
                return None
            message = (
                f"{barrier.name}: No tasks were specified by the client, which implies that the "
                "entire cluster is participating in the barrier. However, the service disagrees. "
                "Check that the callers are invoking the barrier with the same arguments."
            )
        elif len(listed) != len(barrier.arrived) or any(
            id_ not in barrier.arrived for id_ in listed
        ):
            message = (
                "Conflicting tasks specified by different processes for the same barrier: "
                f"{barrier.name}. Check that the callers are invoking the barrier with the same "
                "arguments."
            )
        elif arrival.task not in barrier.arrived:
            message = (
                f"A non-participating task ({arrival.task}) called the barrier: {barrier.name}"
            )
        else:
            return None
        return _barrier_status(barrier, Code.INVALID_ARGUMENT, message)

    def _end(self, barrier: Barrier, result: Status | None) -> list[BarrierOutcome]:
        """Ends an instance, or overwrites the result of one that is over (section 8, step 6)."""
        barrier.is_over = True
        barrier.result = result
        self._open.pop(barrier.key, None)
        self.changed.add(barrier.key)
        told = [Told(arrival, result, barrier.counter) for arrival in barrier.waiting.values()]
        barrier.waiting = {}
        return [*told, Ended(barrier.id, barrier.counter, result)]


def _wrong_counter(barrier: Barrier, counter: int) -> Status:
    message = (
        f"Barrier ({barrier.id}::{counter}) is invoked by the task, but the service thinks it is the "
        f"{barrier.counter}-th instance. "
    )
    if counter == 0 or barrier.counter == 0:
        message += (
            "The service or task probably restarted, check the earlier logs to debug further. Usually, "
            "a restart on the stale tasks will resolve the issue."
        )
    else:
        message += (
            "One task is probably way too quick / slow in its execution. For example, one task started "
            "a barrier early, which timed out, and started a second barrier before the late task even "
            "joined once."
        )
    return _barrier_status(barrier, Code.INTERNAL, message)


def _barrier_status(barrier: Barrier, code: Code, message: str) -> Status:
    return Status(
        code=code, message=message, barrier_error=BarrierError(barrier.id, barrier.counter)
    )
