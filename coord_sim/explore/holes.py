"""Holes in the identity of processes: where the service takes one incarnation for another.

Source: design note "Semantics of the XLA/JAX coordination service", sections 1.1, 2, 7, 9 and 10. A hole
is what the service does; whether callers can see it is for the judge of the history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from coord_sim.core.messages import TaskState
from coord_sim.explore.requests import Message, Operation
from coord_sim.explore.services import Reaction, Standing

GHOST_ENTRY = "ghost-entry"
ZOMBIE_CALLS = "zombie-calls"
ZOMBIE_WRITES = "zombie-writes"
ZOMBIE_SHUTS_DOWN = "zombie-shuts-down-successor"
ONE_BY_ONE = "deaths-one-by-one"
COMES_BACK = "dead-come-back"

HOLES: Mapping[str, str] = MappingProxyType(
    {
        GHOST_ENTRY: "a round counts in an incarnation that never called",
        ZOMBIE_CALLS: "a request of an incarnation that is dead or replaced enters a round",
        ZOMBIE_WRITES: "a request of an incarnation that is dead or replaced writes a key",
        ZOMBIE_SHUTS_DOWN: "a request of a replaced incarnation disconnects its successor",
        ONE_BY_ONE: "of two deaths found at once, one is still alive in the answer to the other",
        COMES_BACK: "an incarnation that was declared dead is connected again",
    }
)
"""Name and meaning of each hole."""


def of_arrival(
    message: Message, before: Standing, reaction: Reaction, after: Standing
) -> tuple[str, ...]:
    """What the arrival of a request shows, given the sender's task before and after it."""
    is_refused = any(
        reply.told.code
        for reply in reaction.replies
        if (reply.operation, reply.process, reply.lifetime) == message
    )
    is_current = before.is_connected and before.lifetime == message.lifetime
    if is_refused or is_current:
        return ()
    match message.operation:
        case Operation.LIVE:
            return (ZOMBIE_CALLS,)
        case Operation.SET:
            return (ZOMBIE_WRITES,)
        case Operation.SHUTDOWN:
            is_successors = before.is_connected and not after.is_connected
            return (ZOMBIE_SHUTS_DOWN,) if is_successors else ()
        case Operation.REGISTER:
            was_dead = before.state is TaskState.ERROR and before.lifetime == message.lifetime
            return (COMES_BACK,) if was_dead and after.is_connected else ()


def of_answers(reaction: Reaction) -> tuple[str, ...]:
    """What the answers to a round show."""
    callers = {
        (reply.process, reply.lifetime)
        for reply in reaction.replies
        if reply.told.members is not None
    }
    members = {member for reply in reaction.replies for member in reply.told.members or ()}
    return (GHOST_ENTRY,) if members - callers else ()


def of_deaths(dead: Sequence[int], reaction: Reaction) -> tuple[str, ...]:
    """What the answers to a round that deaths have ended show."""
    if len(dead) < 2:
        return ()
    members = {process for reply in reaction.replies for process, _ in reply.told.members or ()}
    return (ONE_BY_ONE,) if members.intersection(dead) else ()
