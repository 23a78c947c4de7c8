"""Which requests can change each other's answers, depending on which comes first."""

from __future__ import annotations

from typing import Final, TypeAlias

from coord_sim.core.key_value_store import normalise
from coord_sim.core.messages import (
    Barrier,
    CancelBarrier,
    DeleteKeyValue,
    GetAliveTasks,
    GetKeyValue,
    GetKeyValueDir,
    IncrementKeyValue,
    InsertKeyValue,
    RegisterTask,
    ReportErrorToService,
    Request,
    ShutdownTask,
    TryGetKeyValue,
    WatchTasks,
)
from coord_sim.replay.model import Model

Keys: TypeAlias = tuple[str, bool]
"""A normalised key of the store, and whether all keys under it are meant, too."""

_WRITES: Final = (InsertKeyValue, DeleteKeyValue, IncrementKeyValue)
_READS: Final = (GetKeyValue, TryGetKeyValue)
_BARRIERS: Final = (Barrier, CancelBarrier)
_MEMBERS: Final = (RegisterTask, ShutdownTask, ReportErrorToService)
_WAITS: Final = (GetAliveTasks, WatchTasks, *_BARRIERS, *_MEMBERS)


def keys_of(request: Request) -> Keys | None:
    """What a request of the store is about; None for other requests."""
    if isinstance(request, GetKeyValueDir):
        return normalise(request.directory), True
    if isinstance(request, _WRITES + _READS):
        return normalise(request.key), isinstance(request, DeleteKeyValue)
    return None


def overlap(one: Keys, other: Keys) -> bool:
    """Whether two requests of the store are about a common key."""
    if one[0] == other[0]:
        return True
    return (one[1] and other[0].startswith(f"{one[0]}/")) or (
        other[1] and one[0].startswith(f"{other[0]}/")
    )


def interfere(model: Model, one: Request, other: Request) -> bool:
    """Whether the order in which two requests arrive now can show in an answer."""
    keys, other_keys = keys_of(one), keys_of(other)
    if keys is not None and other_keys is not None:
        is_write = isinstance(one, _WRITES) or isinstance(other, _WRITES)
        return is_write and overlap(keys, other_keys)
    if isinstance(one, GetAliveTasks) and isinstance(other, GetAliveTasks):
        tasks = tuple(sorted(set(one.tasks)))
        if tasks != tuple(sorted(set(other.tasks))):
            return False
        # Only where one has a place already, its own or a ghost's, may one of them end the round alone.
        rounds = model.survey(0).rounds
        entered = {task for each in rounds if each.tasks == tasks for task in each.entered}
        return one.task in entered or other.task in entered
    if isinstance(one, _BARRIERS) and isinstance(other, _BARRIERS):
        return one.barrier_id == other.barrier_id
    return (isinstance(one, _MEMBERS) and isinstance(other, _WAITS)) or (
        isinstance(other, _MEMBERS) and isinstance(one, _WAITS)
    )
