"""What may go wrong, as plain values.

A fault hits a *member*: a process, or `SERVICE`. It happens at a moment: seconds since the run began, or
a condition (`coord_sim.moments`). Those with a length last `for_s` seconds; then all is well again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from coord_sim.moments import Member, Moment


@dataclass(frozen=True, slots=True)
class Crash:
    """A member dies, wherever it is; nothing if it does not run."""

    process: Member
    at_s: Moment


@dataclass(frozen=True, slots=True)
class Restart:
    """A member starts again, with a new incarnation and nothing but what was durable.

    Ignored while it runs. A service has a new incarnation and knows nothing, unless the schedule makes
    it durable: then it goes on where it was.
    """

    process: Member
    at_s: Moment


@dataclass(frozen=True, slots=True)
class Pause:
    """A member stops, as by SIGSTOP, and goes on after `for_s`: a stall. What is sent to it waits."""

    process: Member
    at_s: Moment
    for_s: float


@dataclass(frozen=True, slots=True)
class Slow:
    """A member is slow for a while: each message waits `delay_s` more at its door.

    A process also takes `factor` times as long for what it sleeps.
    """

    process: Member
    at_s: Moment
    for_s: float
    delay_s: float = 0.0
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Skew:
    """A member's clock jumps by `offset_s`, and from then on gains `drift` seconds a second.

    What a program reads jumps; heartbeats and time-outs only feel the drift, as monotonic clocks do. A
    sleep that has begun keeps its length.
    """

    process: Member
    at_s: Moment
    offset_s: float = 0.0
    drift: float = 0.0


@dataclass(frozen=True, slots=True)
class Degrade:
    """The network between a process and the service is bad for a while.

    Packets travel as in TCP: one that is lost is sent again later, one that comes twice or out of order
    is put right by the receiver, so that a bad network shows as delay. With `raw` messages arrive as
    they come, as through a relay that does not care: lost, twice, in any order.

    Attributes:
      process: Whose link; every process's if None.
      delay_s: Added to each packet.
      jitter_s: Up to this is added to each packet, drawn evenly.
      loss, duplicate, reorder: Probabilities. A packet that is out of order comes up to 0.2 s late.
      bytes_per_s: So much passes in each direction of a connection; 0: no limit. For real processes
        only: the messages of the simulator have no size.
    """

    process: int | None
    at_s: Moment
    for_s: float
    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    raw: bool = False
    bytes_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Partition:
    """Nothing passes between two sides for a while; what is sent waits until it is over.

    Attributes:
      side: Members of the one side.
      other: Members of the other; everybody else if empty.
      one_way: Only what goes from `side` to `other` is held back.
    """

    side: tuple[Member, ...]
    at_s: Moment
    for_s: float
    other: tuple[Member, ...] = ()
    one_way: bool = False


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection between a process and the service breaks; a new one can be made at once.

    What is under way is lost; calls that wait fail with UNAVAILABLE. jaxlib's client does not survive
    it: its error poll is never sent again.
    """

    process: int
    at_s: Moment


@dataclass(frozen=True, slots=True)
class Refuse:
    """New connections of a process to the service are refused for a while; the one it has goes on.

    As with a port that nobody listens on: calls fail at once with UNAVAILABLE.
    """

    process: int
    at_s: Moment
    for_s: float


Fault: TypeAlias = Crash | Restart | Pause | Slow | Skew | Degrade | Partition | Reset | Refuse

Lasting: TypeAlias = Pause | Slow | Degrade | Partition | Refuse
"""Faults with a length."""
