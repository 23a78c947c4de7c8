"""Links between each process and the service: latency, and loss that shows as delay."""

from __future__ import annotations

from coord_sim.core.identifiers import seconds
from coord_sim.schedule import Schedule
from coord_sim.sim.entropy import Stream
from coord_sim.sim.event_queue import Action, EventQueue

RETRANSMISSION_S = 0.2
"""First wait before a lost packet is sent again; it doubles (TCP's usual minimum)."""

_RETRANSMISSIONS_MAX = 8


class Network:
    """Two ordered links per process: to the service, and back.

    Like TCP connections from one host they deliver in order. A process that restarts uses the same
    links, so that what its former incarnation had sent arrives before what the new one sends.
    """

    def __init__(self, schedule: Schedule, queue: EventQueue, stream: Stream) -> None:
        self._schedule = schedule
        self._queue = queue
        self._stream = stream
        self._busy_until_ns: dict[tuple[int, str], int] = {}

    def to_service(self, process: int, deliver: Action) -> None:
        """Delivers a message of `process` to the service, in time."""
        self._send((process, "up"), deliver)

    def to_process(self, process: int, deliver: Action) -> None:
        """Delivers a message of the service to `process`, in time."""
        self._send((process, "down"), deliver)

    def _send(self, link: tuple[int, str], deliver: Action) -> None:
        arrival_ns = self._queue.now_ns + self._delay_ns()
        arrival_ns = max(arrival_ns, self._busy_until_ns.get(link, 0))
        self._busy_until_ns[link] = arrival_ns
        self._queue.at(arrival_ns, deliver)

    def _delay_ns(self) -> int:
        delay_s = self._stream.between(self._schedule.latency_min_s, self._schedule.latency_max_s)
        wait_s = RETRANSMISSION_S
        for _ in range(_RETRANSMISSIONS_MAX):
            if not self._stream.chance(self._schedule.loss):
                break
            delay_s += wait_s
            wait_s *= 2
        return seconds(delay_s)
