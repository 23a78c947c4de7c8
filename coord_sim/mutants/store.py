"""Wrong key-value stores."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from coord_sim.core.effects import Reply
from coord_sim.core.identifiers import CallId, Incarnation
from coord_sim.core.key_value_store import KeyValueStore, normalise
from coord_sim.core.messages import (
    DeleteKeyValue,
    GetKeyValueDir,
    IncrementKeyValue,
    InsertKeyValue,
    KeyValue,
    KeyValueDirectory,
    TryGetKeyValue,
)
from coord_sim.core.service import CoordinationService, ServiceConfig

_LOST_EVERY = 3


class _WithStore(CoordinationService):
    store: ClassVar[type[KeyValueStore]]

    def __init__(self, config: ServiceConfig, incarnation: Incarnation, now_ns: int) -> None:
        super().__init__(config, incarnation, now_ns)
        self._store = self.store()


class _Overwrites(KeyValueStore):
    def insert(self, call: CallId, request: InsertKeyValue) -> list[Reply]:
        return super().insert(call, replace(request, allow_overwrite=True))


class OverwritesSilently(_WithStore):
    """A value is replaced though its writer did not allow that."""

    store = _Overwrites


class _WakesOne(KeyValueStore):
    def _wake(self, key: str, value: bytes) -> list[Reply]:
        waiting = self._waiting.get(key)
        if waiting is None:
            return []
        call, sent = next(iter(waiting.items()))
        self.hang_up(call)
        return [Reply(call, KeyValue(key=sent, value=value))]


class MissesAWakeUp(_WithStore):
    """A value wakes only the call that has waited for it longest."""

    store = _WakesOne


class _Stale(KeyValueStore):
    def __init__(self) -> None:
        super().__init__()
        self._former: dict[str, bytes] = {}

    def try_get(self, call: CallId, request: TryGetKeyValue) -> list[Reply]:
        former = self._former.get(normalise(request.key))
        if former is None:
            return super().try_get(call, request)
        return [Reply(call, KeyValue(key=request.key, value=former))]

    def _put(self, key: str, value: bytes) -> None:
        former = self._values.get(key)
        if former is not None:
            self._former[key] = former
        super()._put(key, value)


class ReadsStale(_WithStore):
    """`key_value_try_get` reads what a key held before it was overwritten."""

    store = _Stale


class _Forgetful(KeyValueStore):
    def __init__(self) -> None:
        super().__init__()
        self._increments = 0

    def increment(self, call: CallId, request: IncrementKeyValue) -> list[Reply]:
        key = normalise(request.key)
        former = self._values.get(key)
        replies = super().increment(call, request)
        self._increments += 1
        if self._increments % _LOST_EVERY == 0 and former is not None:
            self._put(key, former)
        return replies


class LosesIncrements(_WithStore):
    """Every third increment is answered, and not stored."""

    store = _Forgetful


class _ShortDirectories(KeyValueStore):
    def read_directory(self, call: CallId, request: GetKeyValueDir) -> list[Reply]:
        (reply,) = super().read_directory(call, request)
        assert isinstance(reply.answer, KeyValueDirectory)
        return [Reply(call, KeyValueDirectory(entries=reply.answer.entries[:-1]))]


class DirectoryMissesAKey(_WithStore):
    """A directory is read without its last key."""

    store = _ShortDirectories


class _ShallowDeletes(KeyValueStore):
    def delete(self, call: CallId, request: DeleteKeyValue) -> list[Reply]:
        children = {key: self._values[key] for key in self._under(normalise(request.key))}
        replies = super().delete(call, request)
        for key, value in children.items():
            self._put(key, value)
        return replies


class DeleteLeavesChildren(_WithStore):
    """A key is removed, and what is under it stays."""

    store = _ShallowDeletes
