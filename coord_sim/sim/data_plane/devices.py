"""What a program sees of the data plane: arrays that are futures, and the collectives that make them.

Each process has one device. It does what was dispatched in order, one after the other; dispatching
returns at once. An array that is computed from one that failed fails too.

A process learns who is dead from the coordination service: from the answers of `get_live_nodes`, and by
watching the states of all tasks. It cancels its collectives with the dead, and refuses new ones.

Source: the JAX guide "Fault Tolerant Distributed JAX", sections Atomicity (arrays are futures) and
Cancelling Collectives.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from coord_sim.core.identifiers import seconds
from coord_sim.core.messages import TasksWatched
from coord_sim.errors import CollectiveError, ServiceError
from coord_sim.sim.data_plane.plane import DataPlane, Member, Part, Roster
from coord_sim.sim.data_plane.values import Operation, Value
from coord_sim.sim.live_devices import LiveSet
from coord_sim.sim.waiting import Wait

_NOW: Final = -1
"""The version that is answered at once."""

_NOBODY: Final = LiveSet({})


class DevicesHost(Protocol):
    """What the devices of a process need of it."""

    def start(self, coroutine: Coroutine[Any, Any, None]) -> object:
        """Runs a coroutine in the background until the process ends; nobody counts it as waiting."""

    def watch_tasks(self, version: int) -> Awaitable[TasksWatched]:
        """The states of all tasks, once they have another version than `version`.

        Raises:
          ServiceError: The service refuses, or cannot be reached.
        """


class Array:
    """A value that a device computes, or will have computed, or failed to: a future.

    Args:
      owner: The device.
      what: What computes it, in words, for whoever asks what a process waits for.
    """

    def __init__(self, owner: Devices, what: str) -> None:
        self.owner = owner
        self._wait: Wait[None] = Wait(what)
        self._value: Value = None
        self._error: Exception | None = None

    @property
    def is_settled(self) -> bool:
        """Whether its value or its error is here."""
        return self._wait.done

    @property
    def error(self) -> Exception | None:
        """Why it failed; None if it has not, or not yet."""
        return self._error

    async def block_until_ready(self) -> Value:
        """Waits for the value.

        Raises:
          CollectiveError: A collective that it comes from failed or was cancelled.
        """
        await self._wait
        if self._error is not None:
            raise self._error
        return self._value

    def settle(self, value: Value, error: Exception | None) -> None:
        """Its value or its error is here; whoever waits goes on."""
        self._value, self._error = value, error
        self._wait.happen(None)

    def settled_value(self) -> Value:
        """The value, which is here."""
        assert self.is_settled
        return self._value


class Devices:
    """The device of one process in one incarnation.

    Args:
      process: Its number.
      incarnation: Its incarnation.
      plane: What it shares with the others.
      host: The process.
      abort_collectives: Whether it cancels collectives with the dead. As JAX's variable
        `XLA_PYTHON_CLIENT_ABORT_COLLECTIVES_ON_FAILURE`.
      live: The last answer of `get_live_nodes`, if there was one.
    """

    def __init__(
        self,
        process: int,
        incarnation: int,
        plane: DataPlane,
        host: DevicesHost,
        *,
        abort_collectives: bool,
        live: LiveSet | None = None,
    ) -> None:
        self._process = process
        self._me: Member = (process, incarnation)
        self._plane = plane
        self._host = host
        self._aborts = abort_collectives
        self._live = live or _NOBODY
        self._is_watching = False
        self._news: dict[int, int] = {}  # Process -> incarnation, or `GONE`.
        self._work: deque[_Collective | _Computation] = deque()
        self._is_busy = self._is_going_on = False
        self._part: Part | None = None

    # --- what programs call ----------------------------------------------------------------------

    def psum(self, value: Value | Array, live: Iterable[int]) -> Array:
        """The sum over all members, in ascending order of processes; of tuples, element by element."""
        return self._collective(Operation("psum"), value, live)

    def all_gather(self, value: Value | Array, live: Iterable[int]) -> Array:
        """A tuple of the values of all members, in ascending order of processes."""
        return self._collective(Operation("all_gather"), value, live)

    def broadcast_one_to_all(
        self, value: Value | Array, live: Iterable[int], source: int | None = None
    ) -> Array:
        """The value of `source`, the first member if left out, on all members."""
        members = tuple(sorted(live))
        chosen = members[0] if source is None else source
        if chosen not in members:
            raise ValueError(f"the source {chosen} is not among the members {members}")
        return self._collective(Operation("broadcast_one_to_all", chosen), value, members)

    def sync(self, live: Iterable[int]) -> Array:
        """None, once all members have come here."""
        return self._collective(Operation("sync"), None, live)

    def compute(
        self, function: Callable[..., Value], *inputs: Value | Array, takes_s: float = 0.0
    ) -> Array:
        """`function(*inputs)`, computed by this device alone.

        Args:
          function: Gets the values of the inputs; what it raises is the array's error.
          inputs: Arrays of this process, or plain values.
          takes_s: How long the device works on it, in seconds.
        """
        array = Array(self, f"computation of {getattr(function, '__name__', 'a function')}")
        self._dispatch(_Computation(array, self._own(inputs), function, seconds(takes_s)))
        return array

    # --- what the process tells ------------------------------------------------------------------

    def note_live(self, live: LiveSet) -> None:
        """`get_live_nodes` was answered: these incarnations are in the communicators to come."""
        self._live = live
        if self._is_watching:
            self._learn(live.incarnation_by_process)

    # --- dispatch --------------------------------------------------------------------------------

    def _collective(self, operation: Operation, value: Value | Array, live: Iterable[int]) -> Array:
        processes = tuple(sorted(live))
        if self._process not in processes:
            raise ValueError(f"process {self._process} is not among the members {processes}")
        roster = self._plane.roster(self._live, processes)
        array = Array(self, f"collective {operation} over {roster.text}")
        self._dispatch(_Collective(array, self._own((value,)), operation, roster))
        if self._aborts and not self._is_watching:
            self._is_watching = True
            self._host.start(self._watch())
        return array

    def _own(self, inputs: Sequence[Value | Array]) -> tuple[Value | Array, ...]:
        for value in inputs:
            if isinstance(value, Array) and value.owner is not self:
                raise ValueError(
                    "an array of another process, or of an earlier lifetime, is not here"
                )
        # Arrays of JAX do not change once they are made.
        return tuple(
            value if isinstance(value, Array) else copy.deepcopy(value) for value in inputs
        )

    def _dispatch(self, work: _Collective | _Computation) -> None:
        self._work.append(work)
        self._go_on()

    def _go_on(self) -> None:
        """Begins what comes next, unless the device is at something."""
        if self._is_going_on:
            return  # A program that was just resumed dispatches more.
        self._is_going_on = True
        while self._work and not self._is_busy and not self._plane.is_over(self._me):
            self._is_busy = True
            work = self._work[0]
            failed = [v.error for v in work.inputs if isinstance(v, Array) and v.error is not None]
            if failed:
                self._end(None, failed[0])
            elif isinstance(work, _Computation):
                self._compute(work)
            else:
                self._join(work)
        self._is_going_on = False

    def _end(self, value: Value, error: Exception | None) -> None:
        """What the device was at has ended."""
        if self._plane.is_over(self._me):
            return
        work = self._work.popleft()
        self._part = None
        self._is_busy = False
        work.array.settle(value, error)  # The program goes on, and may dispatch more, or end.
        self._go_on()

    def _compute(self, work: _Computation) -> None:
        def finish() -> None:
            if self._plane.is_over(self._me):
                return
            try:
                value, error = work.function(*_values(work.inputs)), None
            except Exception as raised:  # noqa: BLE001 - it belongs to whoever waits for the array
                value, error = None, raised
            self._end(value, error)

        if work.takes_ns:
            timeline = self._plane.timeline
            timeline.at(timeline.now_ns + work.takes_ns, finish)
        else:
            finish()

    def _join(self, work: _Collective) -> None:
        refusal = self._refusal(work.roster)
        if refusal is not None:
            self._end(None, refusal)
            return
        (value,) = _values(work.inputs)
        self._part = self._plane.join(self._me, work.roster, work.operation, value, self._end)

    # --- who is dead -----------------------------------------------------------------------------

    def _refusal(self, roster: Roster) -> CollectiveError | None:
        """Why there is no collective with these members; None if nothing is known against it."""
        if roster.unknown:
            return CollectiveError(
                "FAILED_PRECONDITION: the latest live set of this process does not name "
                + ", ".join(map(str, roster.unknown)),
                roster.unknown,
            )
        members, news = roster.incarnations, self._news
        if members.items() <= news.items():
            return None
        gone = [p for p, incarnation in members.items() if news.get(p, incarnation) != incarnation]
        if not gone:
            return None
        return CollectiveError(
            f"FAILED_PRECONDITION: incarnation {members[gone[0]]} of process {gone[0]} is not connected",
            gone,
        )

    def _learn(self, news: Mapping[int, int]) -> None:
        """Takes news of tasks. The latest wins: what a service sends to a process arrives in order.

        (Not if `Degrade(raw=True)` puts it out of order: then the living may be taken for dead until
        the states of the tasks change again.)
        """
        if news.items() <= self._news.items():
            return
        self._news.update(news)
        if self._part is not None:
            work = self._work[0]
            assert isinstance(work, _Collective)
            refusal = self._refusal(work.roster)
            if refusal is not None:
                self._part.cancel()
                self._end(None, refusal)

    async def _watch(self) -> None:
        version = _NOW
        while True:
            try:
                watched = await self._host.watch_tasks(version)
            except ServiceError:
                return  # What refuses the watch ends the client, and with it the process.
            version = watched.version
            self._learn(self._plane.news(watched))


@dataclass(frozen=True, slots=True)
class _Computation:
    """Work for one device alone."""

    array: Array
    inputs: tuple[Value | Array, ...]
    function: Callable[..., Value]
    takes_ns: int


@dataclass(frozen=True, slots=True)
class _Collective:
    """Work for the devices of several processes."""

    array: Array
    inputs: tuple[Value | Array, ...]
    operation: Operation
    roster: Roster


def _values(inputs: tuple[Value | Array, ...]) -> list[Value]:
    return [value.settled_value() if isinstance(value, Array) else value for value in inputs]
