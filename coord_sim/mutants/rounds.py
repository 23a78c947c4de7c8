"""Wrong rounds of `live_processes`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from coord_sim.core.effects import Reply
from coord_sim.core.identifiers import CallId, Incarnation, TaskId
from coord_sim.core.live_rounds import LiveRounds, _Round
from coord_sim.core.membership import Membership
from coord_sim.core.messages import AliveTasks, GetAliveTasks
from coord_sim.core.semantics import Semantics
from coord_sim.core.service import CoordinationService, ServiceConfig


class _WithRounds(CoordinationService):
    rounds: ClassVar[type[LiveRounds]]

    def __init__(self, config: ServiceConfig, incarnation: Incarnation, now_ns: int) -> None:
        super().__init__(config, incarnation, now_ns)
        self._rounds = self.rounds(self.membership, config.semantics)


class _AtOnce(LiveRounds):
    def __init__(self, membership: Membership, semantics: Semantics) -> None:
        super().__init__(membership, replace(semantics, waits_for_live_processes=False))


class AnswersAtOnce(_WithRounds):
    """`live_processes` is no barrier: the guide's strawman."""

    rounds = _AtOnce


class _ForTheDead(LiveRounds):
    def _awaited(self, round_: _Round) -> Iterator[TaskId]:
        return (task for task in round_.missing if self._membership.find(task) is not None)


class WaitsForTheDead(_WithRounds):
    """A round waits for all of its tasks, the dead included."""

    rounds = _ForTheDead


class _FirstIncarnations(LiveRounds):
    def __init__(self, membership: Membership, semantics: Semantics) -> None:
        super().__init__(membership, semantics)
        self._first: dict[TaskId, Incarnation] = {}

    def _answer(self, tasks: frozenset[TaskId]) -> AliveTasks:
        alive = super()._answer(tasks).alive
        return AliveTasks(
            alive=tuple((task, self._first.setdefault(task, number)) for task, number in alive)
        )


class CountsTheRestartedAsTheOld(_WithRounds):
    """Answers name a task's first incarnation for ever."""

    rounds = _FirstIncarnations


class _Different(LiveRounds):
    def _try_to_finish(self, round_: _Round) -> list[Reply]:
        replies = super()._try_to_finish(round_)
        if not replies:
            return replies
        *others, last = replies
        caller, answer = round_.entries[last.call].task, last.answer
        assert isinstance(answer, AliveTasks)
        left_out = next((task for task, _ in answer.alive if task != caller), None)
        alive = tuple(member for member in answer.alive if member[0] != left_out)
        return [*others, Reply(last.call, AliveTasks(alive=alive))]


class AnswersDiffer(_WithRounds):
    """The caller that entered a round last is not told of its first other member."""

    rounds = _Different


class _OneAtATime(LiveRounds):
    def enter(self, call: CallId, request: GetAliveTasks) -> list[Reply]:
        is_open = (tasks for tasks in self._rounds if request.task in tasks)
        tasks = next(is_open, None)
        if tasks is None:
            return super().enter(call, request)
        return super().enter(call, replace(request, tasks=tuple(sorted(tasks))))


class MergesRounds(_WithRounds):
    """One round at a time: a call enters the one that is open, whatever set it asked for."""

    rounds = _OneAtATime


class _LastCountsTwice(LiveRounds):
    def _try_to_finish(self, round_: _Round) -> list[Reply]:
        replies = super()._try_to_finish(round_)
        if replies:
            last = round_.entries[replies[-1].call].task
            self._rounds[round_.tasks] = _Round(round_.tasks, missing={*round_.tasks} - {last})
        return replies


class CountsTheLastTwice(_WithRounds):
    """Whoever entered a round last is in the next one already."""

    rounds = _LastCountsTwice
