"""Statuses of the service: gRPC codes, and the payloads that the C++ client looks for.

Source: design note "Semantics of the XLA/JAX coordination service", section 1.2, measured on jaxlib
0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from coord_sim.core.identifiers import Incarnation, TaskId


class Code(enum.IntEnum):
    """gRPC status codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @classmethod
    def of(cls, number: int) -> Code:
        """The code of a number from outside; a number that is none is UNKNOWN, as in gRPC."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN

    @property
    def definite(self) -> bool:
        """Whether a call that ended so surely had no effect.

        The service decides these before it changes anything. The others can come from a broken
        connection, from a time-out, or after a part of the work was done.
        """
        return self in _DEFINITE


_DEFINITE = frozenset(
    {
        Code.INVALID_ARGUMENT,
        Code.NOT_FOUND,
        Code.ALREADY_EXISTS,
        Code.PERMISSION_DENIED,
        Code.FAILED_PRECONDITION,
        Code.ABORTED,
        Code.OUT_OF_RANGE,
        Code.UNIMPLEMENTED,
        Code.UNAUTHENTICATED,
    }
)


@dataclass(frozen=True, slots=True)
class ServiceError:
    """The payload that marks an error as the service's own, not the transport's."""

    reported: bool = False
    source_task: TaskId | None = None


@dataclass(frozen=True, slots=True)
class BarrierError:
    """The payload that tells a client the counter of the barrier that failed."""

    barrier_id: str
    counter: int


@dataclass(frozen=True, slots=True)
class WrongService:
    """The payload that tells a client which service incarnation it reached. Fatal to it."""

    service_incarnation: Incarnation


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Why a call failed. Bytes of a stored value that are no text stand in `message` as surrogates."""

    code: Code
    message: str
    service_error: ServiceError | None = ServiceError()
    barrier_error: BarrierError | None = None
    wrong_service: WrongService | None = None

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"
