"""The core, memoised: distinct services are few, so each input to each of them is computed once.

A service is kept as a pickled object and known by a small number. An input takes the object, hands it to
the very `CoordinationService` that servers and simulators drive, and freezes what comes out.

Time passes in one way only: by more than a heartbeat time-out at once. Every connected task that is not
to be silent beats at the end of it, then the service ticks. That is all that time does to a job whose
processes beat as they should: whoever is not declared dead has beaten lately, and nothing else of what
is explored has a deadline. Afterwards all times are moved back, so that "now" is always the same.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from coord_sim.core.effects import Effect, Reply
from coord_sim.core.identifiers import CallId, Incarnation, TaskId, seconds
from coord_sim.core.membership import Task
from coord_sim.core.messages import Answer, Caller, Heartbeat, TaskState
from coord_sim.core.service import TICK_NS, CoordinationService, ServiceConfig
from coord_sim.explore import names
from coord_sim.explore.freezing import Frozen, View, freeze, is_symmetric
from coord_sim.explore.requests import Message, Operation, Told, told

Factory: TypeAlias = Callable[[ServiceConfig, Incarnation, int], CoordinationService]
"""Makes the service to explore, as the constructor of `CoordinationService` does."""

HEARTBEAT_TIMEOUT_NS = seconds(2.0)
NOW_NS = seconds(1000.0)
_PASSING_NS = HEARTBEAT_TIMEOUT_NS + TICK_NS
_OF_NOBODY = CallId(0)


class Standing(NamedTuple):
    """A task as the service sees it."""

    state: TaskState
    lifetime: int
    """The start that the service knows, or -1."""
    past: frozenset[int]
    """Starts that were declared dead, left or were replaced."""

    @property
    def is_connected(self) -> bool:
        """Whether the task is in the job now."""
        return self.state is TaskState.CONNECTED


class Delivery(NamedTuple):
    """A reply on its way: to which call, and what it says."""

    process: int
    lifetime: int
    operation: Operation
    told: Told


class Reaction(NamedTuple):
    """What the service makes of an input."""

    service: int
    replies: tuple[Delivery, ...]


class Services:
    """All services that were met, by number.

    Args:
      factory: Makes the first one.
      config: What it is created with.
    """

    def __init__(self, factory: Factory, config: ServiceConfig) -> None:
        self._tasks = config.tasks
        self._pickles: list[bytes] = []
        self._keys: list[Frozen] = []
        self._number_of: dict[Frozen, int] = {}
        self._views: dict[tuple[int, Sequence[int]], int] = {}
        self._standings: list[tuple[Standing, ...]] = []
        self._received: dict[tuple[int, Message], Reaction] = {}
        self._timed_out: dict[tuple[int, tuple[int, ...]], Reaction] = {}
        self._beaten: dict[tuple[int, int, int], bool] = {}
        self._hung_up: dict[tuple[int, CallId], int] = {}
        self._same = tuple(range(config.tasks))
        self._objects: dict[Frozen, int] = {}
        service = factory(config, names.SERVICE, NOW_NS)
        self.is_symmetric = is_symmetric(service)
        for process in range(config.tasks):
            message = Message(Operation.REGISTER, process, 0)
            service.handle(message.id, message.request(config.tasks), NOW_NS)
        self.initial = self._keep(service)
        self.is_symmetric = self.is_symmetric and is_symmetric(service)

    def __len__(self) -> int:
        return len(self._pickles)

    def receives(self, service: int, message: Message) -> Reaction:
        """A request arrives."""
        found = self._received.get((service, message))
        if found is None:
            object_ = self._load(service)
            effects = object_.handle(message.id, message.request(self._tasks), NOW_NS)
            found = self._reaction(object_, effects)
            self._received[service, message] = found
        return found

    def times_out(self, service: int, silent: tuple[int, ...]) -> Reaction:
        """Time passes, and exactly these tasks are silent; they are found in this order."""
        found = self._timed_out.get((service, silent))
        if found is None:
            object_ = self._load(service)
            _others_beat(object_, silent)
            effects = object_.advance(NOW_NS + _PASSING_NS, silent)
            _move_back(object_)
            found = self._reaction(object_, effects)
            self._timed_out[service, silent] = found
        return found

    def refuses_heartbeat(self, service: int, process: int, lifetime: int) -> bool:
        """Whether a heartbeat of this start, a while from now, would end the process."""
        found = self._beaten.get((service, process, lifetime))
        if found is None:
            object_ = self._load(service)
            _others_beat(object_, ())
            effects = object_.handle(
                _OF_NOBODY, _heartbeat(process, lifetime), NOW_NS + _PASSING_NS
            )
            found = any(isinstance(e, Reply) and told(e.answer).code != "" for e in effects)
            self._beaten[service, process, lifetime] = found
        return found

    def hangs_up(self, service: int, call: CallId) -> int:
        """The connection of a call breaks."""
        found = self._hung_up.get((service, call))
        if found is None:
            object_ = self._load(service)
            object_.hang_up(call)
            found = self._keep(object_)
            self._hung_up[service, call] = found
        return found

    def standings(self, service: int) -> tuple[Standing, ...]:
        """The tasks, ascending."""
        return self._standings[service]

    def missing(self, service: int) -> frozenset[int]:
        """The connected tasks for which open rounds wait."""
        rounds = self._load(service).survey(NOW_NS).rounds
        return frozenset(task for round_ in rounds for task in round_.missing)

    def renamed(self, service: int, processes: tuple[int, ...]) -> int:
        """A number that services share which are equal but for the names of processes."""
        found = self._views.get((service, processes))
        if found is None:
            frozen = freeze(self._load(service), View(processes, NOW_NS))
            found = self._number_of.setdefault(frozen, len(self._number_of))
            self._views[service, processes] = found
        return found

    def _load(self, service: int) -> CoordinationService:
        loaded = pickle.loads(self._pickles[service])  # noqa: S301 - our own
        assert isinstance(loaded, CoordinationService)
        return loaded

    def _keep(self, service: CoordinationService) -> int:
        frozen = freeze(service, View(self._same, NOW_NS))
        known = self._objects.setdefault(frozen, len(self._pickles))
        if known == len(self._pickles):
            self._pickles.append(pickle.dumps(service))
            self._standings.append(tuple(map(_standing, service.membership.tasks)))
        return known

    def _reaction(self, service: CoordinationService, effects: Sequence[Effect]) -> Reaction:
        replies = [
            _delivery(effect.call, effect.answer)
            for effect in effects
            if isinstance(effect, Reply) and effect.call != _OF_NOBODY
        ]
        return Reaction(self._keep(service), tuple(replies))


def _delivery(call: CallId, answer: Answer) -> Delivery:
    process, lifetime, kind = names.called_by(call)
    return Delivery(process, lifetime, Operation(kind), told(answer))


def _standing(task: Task) -> Standing:
    number = names.started_as(task.incarnation)[1] if task.incarnation else -1
    past = frozenset(names.started_as(each)[1] for each in task.past if each)
    return Standing(task.state, number, past)


def _heartbeat(process: int, lifetime: int) -> Heartbeat:
    incarnation = names.incarnation(process, lifetime)
    caller = Caller(incarnation, names.SERVICE)
    return Heartbeat(caller=caller, task=TaskId(process), incarnation=incarnation)


def _others_beat(service: CoordinationService, silent: Sequence[int]) -> None:
    for task in service.membership.connected():
        if task.id not in silent:
            process, lifetime = names.started_as(task.incarnation)
            service.handle(_OF_NOBODY, _heartbeat(process, lifetime), NOW_NS + _PASSING_NS)


def _move_back(service: CoordinationService) -> None:
    service._next_tick_ns -= _PASSING_NS  # noqa: SLF001 - time has no other handle
    for task in service.membership.tasks:
        task.last_heartbeat_ns -= _PASSING_NS
    for barrier in service._barriers.open_barriers():  # noqa: SLF001
        barrier.deadline_ns -= _PASSING_NS
