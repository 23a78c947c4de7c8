"""What happened, as the callers saw it: the events of a history.

A *lifetime* is one start of one process, numbered from 0 per process by whoever records; the
*incarnation* is the 64-bit number that the process drew at that start, and may be learned later
than the start (jaxlib's client does not tell its own). Times are integer nanoseconds of the
history's clock; `uncertainty_ns` is the largest error of that reading, so that the event lies in
the closed interval `time_ns ± uncertainty_ns`. Equal times are concurrent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from checker.history.frozen import made_quickly

LIVE_PROCESSES = "live_processes"
"""Name of the operation whose answer is a live set."""

SHUTDOWN = "shutdown"
"""Name of the operation by which a process leaves; its invocation may end the lifetime."""

PROTOCOL_OPERATIONS = frozenset({"register", "heartbeat", "poll_for_error"})
"""The protocol's own calls: no program makes them; recorders of the service's side write them.

They are no signs of life: the service ends the error poll of a process that is dead, and a heartbeat
of a predecessor may arrive after a process has come back.
"""

NEMESIS = "nemesis"
"""The lane of a fault that does not say whose it is: Jepsen's name for what breaks things."""

LiveSet: TypeAlias = Mapping[int, int | None]
"""An answer of `live_processes`: process -> incarnation (None where the answer did not tell it)."""


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A process joined: its connect was invoked at `since_ns` and returned at `time_ns`."""

    time_ns: int
    process: int
    lifetime: int
    incarnation: int | None = None
    since_ns: int | None = None
    uncertainty_ns: int = 0


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """A process died.

    The signal was sent, or it was last seen, at `since_ns`; it was reaped at `time_ns`.
    """

    time_ns: int
    process: int
    lifetime: int
    incarnation: int | None = None
    since_ns: int | None = None
    cause: str | None = None
    uncertainty_ns: int = 0


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """A process ended by itself and without an error."""

    time_ns: int
    process: int
    lifetime: int
    incarnation: int | None = None
    uncertainty_ns: int = 0


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Invoke:
    """A process called an operation; `id` is unique and pairs the call with its end."""

    time_ns: int
    process: int
    lifetime: int
    id: int
    operation: str
    arguments: Mapping[str, object]
    incarnation: int | None = None
    uncertainty_ns: int = 0


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Ok:
    """A call returned. `result` is a `LiveSet` for `live_processes`, else a JSON value.

    Calls that got the same answer may share one `result` object.
    """

    time_ns: int
    process: int
    lifetime: int
    id: int
    result: object
    incarnation: int | None = None
    uncertainty_ns: int = 0


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """A call ended with a definite error: it surely had no effect."""

    time_ns: int
    process: int
    lifetime: int
    id: int
    code: str
    message: str = ""
    incarnation: int | None = None
    uncertainty_ns: int = 0


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """A call ended with an indefinite error: whether it had an effect is unknown."""

    time_ns: int
    process: int
    lifetime: int
    id: int
    code: str
    message: str = ""
    incarnation: int | None = None
    uncertainty_ns: int = 0


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Enter:
    """A process entered the body of a `with live_devices` block, believing `live` to be alive."""

    time_ns: int
    process: int
    lifetime: int
    block: int
    live: LiveSet
    incarnation: int | None = None
    uncertainty_ns: int = 0


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """A process left a block.

    `outcome` is `completed`, `failed` (some process of the block's live set died: `failed` names
    them) or `raised` (the body raised and nobody died).
    """

    time_ns: int
    process: int
    lifetime: int
    block: int
    outcome: str
    failed: tuple[int, ...] = ()
    message: str = ""
    incarnation: int | None = None
    uncertainty_ns: int = 0


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something was done to the system, or befell it: a partition, a pause, a full disk.

    It is no event of a process, so it stands beside the events. It began at `time_ns` and ended at
    `until_ns`, if it has a length and its end is known. `lane` says who did it; faults of one lane
    belong together.
    """

    time_ns: int
    name: str
    until_ns: int | None = None
    lane: str = NEMESIS


Event: TypeAlias = Start | Crash | Leave | Invoke | Ok | Fail | Info | Enter | Exit
Response: TypeAlias = Ok | Fail | Info

BLOCK_OUTCOMES = ("completed", "failed", "raised")
