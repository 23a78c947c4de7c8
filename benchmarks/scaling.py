"""Where the service itself would stop scaling: messages, bytes and wake-ups, from the simulation.

    python benchmarks/scaling.py [--processes N ...]

For jobs of each size, in the simulator: what the service takes and gives for one round of
`live_processes`, for one death that everybody watches (as accelerator back ends do), and for a second of
heartbeats. Bytes are those of the messages on the wire, without HTTP/2. Only sums over all processes
count here: they are what one service has to do.
"""

from __future__ import annotations

import argparse
from collections import Counter

from coord_sim.core.effects import Effect, Reply
from coord_sim.core.identifiers import CallId
from coord_sim.core.messages import Answer, Request
from coord_sim.core.service import CoordinationService
from coord_sim.core.status import Status
from coord_sim.errors import ServiceError
from coord_sim.faults import Crash
from coord_sim.schedule import Schedule
from coord_sim.sim import Process, simulate
from coord_sim.wire.client_methods import client_method
from coord_sim.wire.server_methods import METHODS

TO_WIRE = {method.name: method.to_wire for method in METHODS}
ROUND, WATCH, BEAT = "GetAliveTasks", "WatchTasks", "Heartbeat"


class Meter:
    """Counts messages and bytes by RPC; equal messages of a round are measured once."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.bytes_in: Counter[str] = Counter()
        self.bytes_out: Counter[str] = Counter()
        self.most_replies = 0
        self._rpc: dict[CallId, str] = {}
        self._measured: tuple[Answer, int] | None = None

    def take(self, call: CallId, request: Request) -> None:
        """A request has come."""
        method = client_method(request)
        self._rpc[call] = method.name
        self.requests[method.name] += 1
        self.bytes_in[method.name] += method.to_wire(request).ByteSize()

    def give(self, effects: list[Effect]) -> None:
        """Replies go out together."""
        replies = [effect for effect in effects if isinstance(effect, Reply)]
        self.most_replies = max(self.most_replies, len(replies))
        for reply in replies:
            name = self._rpc.pop(reply.call)
            self.bytes_out[name] += self._size(name, reply.answer)

    def _size(self, name: str, answer: Answer) -> int:
        if self._measured is None or self._measured[0] is not answer:
            # An error travels in the trailers.
            size = 0 if isinstance(answer, Status) else TO_WIRE[name](answer).ByteSize()
            self._measured = (answer, size)
        return self._measured[1]


def metered(meter: Meter) -> type[CoordinationService]:
    """A service whose messages are counted."""

    class Metered(CoordinationService):
        def handle(self, call: CallId, request: Request, now_ns: int) -> list[Effect]:
            meter.take(call, request)
            effects = super().handle(call, request, now_ns)
            meter.give(effects)
            return effects

        def advance(self, now_ns: int) -> list[Effect]:
            effects = super().advance(now_ns)
            meter.give(effects)
            return effects

    return Metered


async def one_round_and_a_death(process: Process) -> None:
    """All watch the states of the tasks, meet in one round, and live on."""
    watched = process.start(watch(process))
    await process.client.get_live_nodes(process.participants)
    await watched
    await process.sleep(1e9)


async def watch(process: Process) -> None:
    """Asks for the states of the tasks, as accelerator back ends do, until somebody has died."""
    version = -1
    while True:
        try:
            picture = await process.client.watch_tasks(version)
        except ServiceError:
            return
        version = picture.version


def measure(processes: int) -> None:
    """Prints what one service has to do for a job of this size."""
    meter = Meter()
    schedule = Schedule(
        processes=processes,
        heartbeat_timeout_s=10.0,
        limit_s=30.0,
        faults=(Crash(processes - 1, 12.0),),
        semantics="shipped",
    )
    simulate(one_round_and_a_death, schedule, service=metered(meter))
    requests, bytes_in, bytes_out = meter.requests, meter.bytes_in, meter.bytes_out
    beats_s = requests[BEAT] / (schedule.limit_s - 5.0)
    megabytes = [count / 1e6 for count in (bytes_in[ROUND], bytes_out[ROUND], bytes_out[WATCH])]
    print(
        f"{processes:6d} {requests[ROUND]:8,d} {megabytes[0]:10,.2f} {megabytes[1]:10,.2f}"
        f" {meter.most_replies:9,d} {requests[WATCH]:9,d} {megabytes[2]:10,.2f} {beats_s:10,.0f}"
    )


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--processes", type=int, nargs="*", default=[10, 100, 300, 1000])
    options = parser.parse_args()
    print(
        "                a round                      at once    watching              heartbeats"
    )
    print("     N    calls      MB in     MB out   replies     calls     MB out   a second")
    for processes in options.processes:
        measure(processes)


if __name__ == "__main__":
    main()
