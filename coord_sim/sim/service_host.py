"""A simulated service: the core with a clock, and what can be done to its process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from coord_sim.core.effects import Effect, Remember, Reply
from coord_sim.core.identifiers import CallId, Incarnation, seconds
from coord_sim.core.messages import RegisterTask, Request
from coord_sim.core.records import BarrierRecord, KeyRecord, Record, TaskRecord
from coord_sim.core.service import CoordinationService, ServiceConfig
from coord_sim.core.status import Code, Status
from coord_sim.sim.clock import Clock
from coord_sim.sim.entropy import Stream
from coord_sim.sim.event_queue import EventQueue
from coord_sim.sim.gate import Gate

if TYPE_CHECKING:
    from coord_sim.sim.lifetime import Lifetime

ServiceFactory: TypeAlias = Callable[[ServiceConfig, Incarnation, int], CoordinationService]
"""Makes a service: `CoordinationService`, or a known-wrong variant of it."""

REFUSED: Final = Status(
    code=Code.UNAVAILABLE, message="failed to connect to all addresses", service_error=None
)
"""What a client sees of a service that does not run."""

RECONNECTION_NS: Final = seconds(1.0)
"""So often a connection is tried again; gRPC begins with this pause, and lets it grow."""

_LATE_NS: Final = seconds(0.0005)
"""So much later than the messages that waited comes a tick that loses the race."""


class Observer(Protocol):
    """Looks at a service after each step, for coverage."""

    def saw(self, service: CoordinationService, input_name: str, effects: list[Effect]) -> None:
        """The service has taken an input: the name of a request's class, or `tick`."""


class Watcher(Protocol):
    """Is told what the effects of a service mean to a run."""

    def note(self, effect: Effect) -> None:
        """Takes an effect that is not a reply."""

    def lose_connections(self, host: ServiceHost) -> None:
        """The service is gone, and with it all connections to it."""


class ServiceHost:
    """Runs one service.

    Attributes:
      service: The core; None while the service does not run.
      clock: Its clock.
      gate: Its door.
      deaths: How often it has died; what was sent to it before is lost.
    """

    def __init__(
        self,
        config: ServiceConfig,
        factory: ServiceFactory,
        *,
        queue: EventQueue,
        stream: Stream,
        watcher: Watcher,
        observer: Observer | None,
        death_order: Sequence[int] = (),
    ) -> None:
        self.service: CoordinationService | None = None
        self.clock = Clock()
        self.gate = Gate(queue)
        self.deaths = 0
        self._config = config
        self._factory = factory
        self._queue = queue
        self._stream = stream
        self._watcher = watcher
        self._observer = observer
        self._death_order = death_order
        self._callers: dict[CallId, Lifetime] = {}
        self._records: dict[object, Record] = {}
        self._incarnation = Incarnation(0)
        self._generation = 0

    # --- its life ------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts, unless it runs."""
        if self.service is not None:
            return
        now_ns = self.clock.monotonic_ns(self._queue.now_ns)
        if self._config.durable and self._incarnation:
            kind = type(self._factory(self._config, self._incarnation, now_ns))
            records = list(self._records.values())
            self.service = kind.restore(self._config, self._incarnation, records, now_ns)
        else:
            self._incarnation = self._stream.incarnation()
            self.service = self._factory(self._config, self._incarnation, now_ns)
        self._arm()

    def crash(self) -> None:
        """Dies: what it knew is gone, but for durable records; all connections break."""
        if self.service is None:
            return
        self.service = None
        self._generation += 1
        self.deaths += 1
        self.gate.begin_anew()
        self._callers.clear()
        self._watcher.lose_connections(self)

    def skew(self, offset_ns: int, drift: float) -> None:
        """Changes its clock."""
        self.clock.skew(self._queue.now_ns, offset_ns, drift)
        self._generation += 1
        self._arm()

    # --- messages ------------------------------------------------------------------------------

    def arrive(
        self, lifetime: Lifetime, epoch: int, deaths: int, call: CallId, request: Request
    ) -> None:
        """A request has come over a connection.

        Args:
          lifetime: Who sent it.
          epoch: Of the connection when it was sent.
          deaths: Of this service when it was sent.
          call: Its id.
          request: What it asks for.
        """
        if epoch != lifetime.connection.epoch or deaths != self.deaths:
            return  # The connection broke on the way.
        link = lifetime.connection.link
        if link.cut_up:
            link.hold(self.arrive, lifetime, epoch, deaths, call, request, is_up=True)
        elif self.service is None or (link.refusals and not lifetime.connection.is_made):
            self._refuse(lifetime, epoch, call, request)
        elif self.gate.is_open:
            self._take(lifetime, epoch, deaths, call, request)
        else:
            self.gate.take(self._take, lifetime, epoch, deaths, call, request)

    def _refuse(self, lifetime: Lifetime, epoch: int, call: CallId, request: Request) -> None:
        """Nobody listens. Registration waits for a connection; gRPC tries again until it is made."""
        if isinstance(request, RegisterTask):
            again = (lifetime, epoch, self.deaths, call, request)
            if lifetime.is_alive:
                self._queue.after(RECONNECTION_NS, self.arrive, *again)
        else:
            lifetime.answer(call, REFUSED)

    def _take(
        self, lifetime: Lifetime, epoch: int, deaths: int, call: CallId, request: Request
    ) -> None:
        service = self.service
        if service is None or epoch != lifetime.connection.epoch or deaths != self.deaths:
            return
        self._callers[call] = lifetime
        lifetime.connection.is_made = True
        now_ns = self._queue.now_ns
        if not self.clock.is_true:
            now_ns = self.clock.monotonic_ns(now_ns)
        effects = service.handle(call, request, now_ns)
        if effects:
            self._carry_out(effects)
        if self._observer is not None:
            self._observer.saw(service, type(request).__name__, effects)
        lifetime.has_arrived(call)

    def hang_up(self, lifetime: Lifetime, calls: list[CallId]) -> None:
        """A connection with these calls, or each of them, has closed."""
        link = lifetime.connection.link
        if link.cut_up:
            link.hold(self.hang_up, lifetime, calls, is_up=True)
        else:
            self.gate.take(self._hang_up, calls)

    def _hang_up(self, calls: list[CallId]) -> None:
        for call in calls:
            self._callers.pop(call, None)
            if self.service is not None:
                self.service.hang_up(call)

    def _carry_out(self, effects: list[Effect]) -> None:
        callers = self._callers
        for effect in effects:
            if isinstance(effect, Reply):
                lifetime = callers.pop(effect.call, None)
                if lifetime is not None:
                    lifetime.answer(effect.call, effect.answer)
            elif isinstance(effect, Remember):
                self._remember(effect.record)
            else:
                self._watcher.note(effect)

    def _remember(self, record: Record) -> None:
        match record:
            case KeyRecord() if record.value is None:
                self._records.pop(("key", record.key), None)
            case KeyRecord():
                self._records["key", record.key] = record
            case TaskRecord():
                self._records["task", record.task] = record
            case BarrierRecord():
                self._records["barrier", record.key] = record
            case _:
                self._records["job"] = record

    # --- time ----------------------------------------------------------------------------------

    def _arm(self) -> None:
        if self.service is not None:
            due_ns = self.clock.true_ns(self.service.next_deadline_ns())
            self._queue.at(due_ns, self._tick, self._generation)

    def _tick(self, generation: int) -> None:
        if generation != self._generation or self.service is None:
            return
        if self.gate.is_paused:
            # On waking, the overdue tick races with the messages that wait (design note, section 4).
            if self._stream.chance(0.5):
                self.gate.defer(self._queue.after, _LATE_NS, self._tick, generation)
            else:
                self.gate.defer_first(self._tick, generation)
            return
        now_ns = self._queue.now_ns
        effects = self.service.advance(self.clock.monotonic_ns(now_ns), self._death_order)
        self._carry_out(effects)
        if self._observer is not None:
            self._observer.saw(self.service, "tick", effects)
        self._arm()
