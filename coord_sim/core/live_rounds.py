"""GetAliveTasks: the rounds of the `live_processes` barrier (design note, section 10).

A round is identified by its set of ids and by nothing else. It is complete when every task of the set
that is connected now has entered, and then all its calls get the same answer: the connected tasks of
the set with their incarnations as they are now.

As shipped, a place in a round belongs to the task; as published, to its incarnation, and ends with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from coord_sim.core.effects import Reply, RoundEnded
from coord_sim.core.identifiers import CallId, Incarnation, TaskId
from coord_sim.core.membership import Membership
from coord_sim.core.messages import AliveTasks, GetAliveTasks
from coord_sim.core.semantics import Semantics
from coord_sim.core.status import Code, ServiceError, Status
from coord_sim.core.survey import OpenRound


@dataclass(slots=True)
class _Entry:
    call: CallId
    task: TaskId
    incarnation: Incarnation


@dataclass(slots=True)
class _Round:
    tasks: frozenset[TaskId]
    entries: dict[CallId, _Entry] = field(default_factory=dict)
    missing: set[TaskId] = field(default_factory=set)
    """The tasks that have not entered, whether they are connected or not."""
    places: Counter[tuple[TaskId, Incarnation]] = field(default_factory=Counter)
    """How many entries hold the place of each incarnation."""


class LiveRounds:
    """The open rounds, one per set of ids."""

    def __init__(self, membership: Membership, semantics: Semantics) -> None:
        self._membership = membership
        self._semantics = semantics
        self._rounds: dict[frozenset[TaskId], _Round] = {}
        self._round_of: dict[CallId, _Round] = {}
        self._latest_tasks: tuple[tuple[TaskId, ...], frozenset[TaskId]] = ((), frozenset())
        self.ended = 0
        """Rounds that were answered."""
        self.news: list[RoundEnded] = []
        """Rounds that have ended since the driver last took them."""

    def enter(self, call: CallId, request: GetAliveTasks) -> list[Reply]:
        """Enters a call into the round of its set of ids, which may complete it."""
        if request.tasks is not self._latest_tasks[0]:  # Large jobs share one list.
            self._latest_tasks = (request.tasks, frozenset(request.tasks))
        tasks = self._latest_tasks[1]
        if request.task not in tasks:
            message = (
                f"Requesting task {request.task} is not one of the tasks specified in a "
                "GetAliveTasks request."
            )
            # The real service sends no payload with this error.
            status = Status(code=Code.INVALID_ARGUMENT, message=message, service_error=None)
            return [Reply(call, status)]
        if not self._semantics.waits_for_live_processes:
            return [Reply(call, self._answer(tasks))]
        round_ = self._rounds.get(tasks)
        if round_ is None:
            round_ = self._rounds[tasks] = _Round(tasks, missing=set(tasks))
        entry = _Entry(call, request.task, request.caller.task_incarnation)
        round_.entries[call] = entry
        round_.missing.discard(entry.task)
        round_.places[entry.task, entry.incarnation] += 1
        self._round_of[call] = round_
        return self._try_to_finish(round_)

    def task_changed(self, task: TaskId, incarnation: Incarnation) -> list[Reply]:
        """Drops what `task` entered in other incarnations than `incarnation`, if that is the rule.

        Pass an incarnation that nobody has for a task that is gone.
        """
        if self._semantics.keeps_ghost_entries:
            return []
        replies = []
        for round_ in self._rounds.values():
            if task not in round_.tasks or task in round_.missing:
                continue
            lost = [
                entry
                for entry in round_.entries.values()
                if entry.task == task and entry.incarnation != incarnation
            ]
            for entry in lost:
                del round_.entries[entry.call]
                round_.places[task, entry.incarnation] -= 1
                self._round_of.pop(entry.call, None)
                message = (
                    f"Task {task} (incarnation {entry.incarnation}) lost its place in the "
                    "live_processes barrier, because this incarnation has ended."
                )
                status = Status(
                    code=Code.ABORTED, message=message, service_error=ServiceError(source_task=task)
                )
                replies.append(Reply(entry.call, status))
            if not any(entry.task == task for entry in round_.entries.values()):
                round_.missing.add(task)
        self._forget_empty_rounds()
        return replies

    def hang_up(self, call: CallId) -> None:
        """A client has gone. Its place stays, but one call is enough to hold it."""
        round_ = self._round_of.pop(call, None)
        if round_ is None:
            return
        entry = round_.entries[call]
        if round_.places[entry.task, entry.incarnation] > 1:
            del round_.entries[call]
            round_.places[entry.task, entry.incarnation] -= 1

    def reexamine(self) -> list[Reply]:
        """Completes the rounds that wait for nobody any more."""
        return [
            reply for round_ in list(self._rounds.values()) for reply in self._try_to_finish(round_)
        ]

    def open_rounds(self) -> list[OpenRound]:
        """The rounds that wait for somebody, oldest first."""
        return [
            OpenRound(
                tasks=tuple(sorted(round_.tasks)),
                entered=tuple(sorted(round_.tasks - round_.missing)),
                missing=tuple(sorted(self._awaited(round_))),
            )
            for round_ in self._rounds.values()
        ]

    def waiting_calls(self) -> list[CallId]:
        """The calls that wait in rounds."""
        return list(self._round_of)

    def _try_to_finish(self, round_: _Round) -> list[Reply]:
        if any(True for _ in self._awaited(round_)):
            return []
        del self._rounds[round_.tasks]
        for call in round_.entries:
            self._round_of.pop(call, None)
        answer = self._answer(round_.tasks)
        self.ended += 1
        self.news.append(RoundEnded(self.ended, round_.tasks, answer))
        return [Reply(call, answer) for call in round_.entries]

    def _awaited(self, round_: _Round) -> Iterator[TaskId]:
        for id_ in round_.missing:
            task = self._membership.find(id_)
            if task is not None and task.is_connected:
                yield id_

    def _answer(self, tasks: frozenset[TaskId]) -> AliveTasks:
        alive = []
        for id_ in sorted(tasks):
            task = self._membership.find(id_)
            if task is not None and task.is_connected:
                alive.append((id_, task.incarnation))
        return AliveTasks(alive=tuple(alive))

    def _forget_empty_rounds(self) -> None:
        self._rounds = {tasks: round_ for tasks, round_ in self._rounds.items() if round_.entries}
