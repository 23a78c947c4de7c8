"""The model that histories are held against: the core itself, with its ticks in the replay's hands."""

from __future__ import annotations

import enum
import pickle
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

from coord_sim.core.effects import Effect
from coord_sim.core.identifiers import Incarnation, TaskId
from coord_sim.core.messages import TaskState
from coord_sim.core.service import CoordinationService

UNKNOWN_SERVICE: Final = Incarnation((1 << 64) - 1)
"""Stands for the incarnation of a service that does not tell it."""

NEVER_NS: Final = 1 << 62


class Model(CoordinationService):
    """The service, ticking when it is told to."""

    def tick(self, now_ns: int, death_order: Sequence[TaskId] = ()) -> list[Effect]:
        """Looks at heartbeats and barriers now; the arguments are those of `advance`."""
        self._now_ns = now_ns
        self._tick(death_order)
        return self._take_effects()

    def declare_dead(self, tasks: Sequence[TaskId], now_ns: int) -> list[Effect]:
        """Declares tasks dead whose heartbeats nobody has recorded; those not connected are left out."""
        self._now_ns = now_ns
        found = [self.membership.task(task) for task in tasks]
        connected = [task for task in found if task.is_connected]
        if connected:
            self._declare_dead(connected)
        return self._take_effects()

    def expire(self, now_ns: int) -> list[Effect]:
        """Ends the barriers whose time is up, and nothing else."""
        self._now_ns = now_ns
        self._settle(self._barriers.expire(now_ns))
        return self._take_effects()

    def stale_at(self, now_ns: int) -> list[TaskId]:
        """Who would be declared dead by a tick at this time."""
        oldest_ns = now_ns - self.config.heartbeat_timeout_ns
        return [
            task.id
            for task in self.membership.tasks
            if task.state is TaskState.CONNECTED and task.last_heartbeat_ns < oldest_ns
        ]

    def due_times(self) -> list[int]:
        """The times after which a tick would find something to do; ascending, without repetitions."""
        timeout_ns = self.config.heartbeat_timeout_ns
        due = {
            task.last_heartbeat_ns + timeout_ns
            for task in self.membership.tasks
            if task.state is TaskState.CONNECTED
        }
        due.update(barrier.deadline_ns for barrier in self._barriers.open_barriers())
        return sorted(due)

    def has_open_rounds(self) -> bool:
        """Whether some round waits: only then the order of deaths shows in an answer."""
        return bool(self._rounds.open_rounds())

    def last_heartbeat_ns(self, task: TaskId) -> int:
        """When a task was heard of last."""
        return self.membership.task(task).last_heartbeat_ns

    def frozen(self) -> bytes:
        """All of it, to go back to."""
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def thawed(frozen: bytes) -> Model:
        """The service that was frozen."""
        model = pickle.loads(frozen)  # noqa: S301 - our own bytes, of this process
        assert isinstance(model, Model)
        return model


_DOES_NOT_SHOW: Final = frozenset(
    {
        "config",
        "_beat_accepted",
        "_shutdown_barrier",
        "_now_ns",
        "_next_tick_ns",
        "_effects",
        "_remembered",
        "_membership",
        "_semantics",
        "_recoverable",
        "_once_only",
        "_latest_tasks",
        "_round_of",
        "_by_incarnation",
        "_keys",
        "_key_of",
        "_open",
        "bytes",
        "changed",
        "changes",
        "news",
        "ended",
        "last_heartbeat_ns",
        "left_ns",
        "places",
    }
)
"""Fields of the core that are fixed, derived, empty between requests, or about heartbeats."""


_NAMES: dict[type, tuple[str, ...]] = {}


def essence(value: Any) -> Hashable:
    """What two models have in common that will answer alike, where heartbeats are not recorded."""
    kind = type(value)
    if value is None or kind is int or kind is str or kind is bytes or kind is bool:
        return value  # type: ignore[no-any-return]  # as asked
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Mapping):
        if not value:
            return ()
        return frozenset((essence(k), essence(v)) for k, v in value.items())
    if isinstance(value, set | frozenset):
        return frozenset(map(essence, value))
    if isinstance(value, list | tuple):
        return tuple(map(essence, value))
    names = _NAMES.get(kind)
    if names is None:
        every = [each.name for each in fields(value)] if is_dataclass(value) else vars(value)
        names = _NAMES[kind] = tuple(name for name in every if name not in _DOES_NOT_SHOW)
    return (kind.__name__, *(essence(getattr(value, name)) for name in names))
