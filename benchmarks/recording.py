"""What the recorder inside a program costs, beside the same program without it, in one run.

    python benchmarks/recording.py [--processes N] [--repetitions N] [--quick] [--soak SECONDS]

**Rounds.** N bare clients of jaxlib, each in a process of its own, meet in rounds of `live_processes`
on jaxlib's C++ service: one job whose clients are recorded, and one whose clients are not. Both jobs
are up during the whole run and take turns, in an order that changes, so that what the machine does
besides hits both alike. The table shows medians, and the median of the ratios of neighbours.

The CPU of all clients and the service together is shown as well: other load on the machine hardly
changes it.

**Lines.** Events a second of one recorder, called and answered in a loop: the price of a call is two.

**Memory.** Growth of the resident set while a million events are recorded, after some that fill pools.
`--soak` records for so long instead, two thousand events a second at most, and prints it every minute.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from jax_bridge import compat
from jax_bridge.recorder.process_recorder import ProcessRecorder
from jax_bridge.recorder.program import ProgramRecorder

HEARTBEAT_S = 600  # Long, so that heartbeats are no part of the load.
PATIENCE_S = 120.0
EVENTS = 1_000_000
EVERYBODY = 8
SOAK_EVENTS, SOAK_RATE = 1_000, 2_000
_SPAWN = multiprocessing.get_context("spawn")


def client(
    number: int, processes: int, address: str, parts: str | None, orders: Connection
) -> None:
    """One process of a job: meets the others as often as it is told to, and says how long it took."""
    if parts is not None:
        from jaxlib import _jax

        ProgramRecorder(parts).record_clients(_jax)
    mine = compat.new_client(
        address, number, heartbeat_timeout_s=HEARTBEAT_S, init_timeout_s=int(PATIENCE_S)
    )
    mine.connect()
    everybody = list(range(processes))
    orders.send(0.0)
    while rounds := orders.recv():
        mine.get_live_nodes(everybody)
        began = time.perf_counter()
        for _ in range(rounds):
            mine.get_live_nodes(everybody)
        orders.send((time.perf_counter() - began) / rounds)
    mine.shutdown()


class Cost(NamedTuple):
    """Of a round: as clients see it, and what all of them and the service spend on it, in seconds."""

    wall_s: float
    cpu_s: float


class Job:
    """A service and its clients.

    Args:
      processes: How many clients.
      parts: Where they are recorded, if they are.
    """

    def __init__(self, processes: int, parts: str | None) -> None:
        command = [sys.executable, "-m", "jax_bridge.real_service", "--processes", str(processes)]
        command += ["--heartbeat-timeout", str(HEARTBEAT_S), "--recoverable"]
        self._service = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._service.stdout is not None
        address = self._service.stdout.readline().split("address=")[1].split()[0]
        self._clients = []
        for number in range(processes):
            ours, theirs = _SPAWN.Pipe()
            arguments = (number, processes, address, parts, theirs)
            process = _SPAWN.Process(target=client, args=arguments, daemon=True)
            process.start()
            self._clients.append((process, ours))
        self._answers()

    def round(self, rounds: int) -> Cost:
        """What one round costs, of so many in a row."""
        before = self._cpu_s()
        for _, orders in self._clients:
            orders.send(rounds)
        wall_s = statistics.median(self._answers())
        return Cost(wall_s, (self._cpu_s() - before) / (rounds + 1))

    def _cpu_s(self) -> float:
        pids = [self._service.pid, *(process.pid for process, _ in self._clients)]
        return sum(_cpu_s(pid) for pid in pids if pid is not None)

    def end(self) -> None:
        """Ends everything."""
        for _, orders in self._clients:
            orders.send(0)
        for process, _ in self._clients:
            process.join(PATIENCE_S)
            process.kill()
        self._service.kill()
        self._service.wait()

    def _answers(self) -> list[float]:
        answers = []
        for _, orders in self._clients:
            if not orders.poll(PATIENCE_S):
                raise SystemExit("a client does not answer")
            answers.append(float(orders.recv()))
        return answers


def compare_rounds(processes: int, repetitions: int, rounds: int) -> None:
    """Prints the time of a round without and with the recorder."""
    with tempfile.TemporaryDirectory() as parts:
        jobs = {"without": Job(processes, None), "with": Job(processes, parts)}
        costs: dict[str, list[Cost]] = {name: [] for name in jobs}
        try:
            for repetition in range(repetitions):
                order = list(jobs) if repetition % 2 else list(jobs)[::-1]
                for name in order:
                    costs[name].append(jobs[name].round(rounds))
        finally:
            for job in jobs.values():
                job.end()
        written = sum(path.stat().st_size for path in Path(parts).iterdir())
    print(f"a round of {processes} clients, {repetitions} times {rounds} of each, in turns")
    print(f"                       time          CPU of all    ({written / 1e6:.1f} MB written)")
    for name, found in costs.items():
        wall_us, cpu_us = (statistics.median(values) * 1e6 for values in zip(*found, strict=True))
        print(f"  {name:7} recorder  {wall_us:8.0f} us   {cpu_us:8.0f} us")
    pairs = list(zip(costs["without"], costs["with"], strict=True))
    wall = statistics.median(b.wall_s / a.wall_s for a, b in pairs)
    cpu = statistics.median(b.cpu_s / a.cpu_s for a, b in pairs)
    print(f"  ratio             {wall:8.3f}      {cpu:8.3f}       (to be at most 1.1)")


class Recording:
    """What one recorder is given to write.

    Args:
      folder: Of the file.
    """

    def __init__(self, folder: str) -> None:
        self._live = {process: 2**63 + process for process in range(EVERYBODY)}
        path = Path(folder) / "part.jsonl"
        self._recorder = ProcessRecorder(path, process=0, processes=EVERYBODY)
        self._recorder.start(1, 0, self._live[0])

    def record(self, events: int) -> None:
        """Calls and answers, of rounds and of keys."""
        recorder, live = self._recorder, self._live
        for number in range(events // 4):
            recorder.ok(1, recorder.invoke(1, "live_processes", {}), dict(live))
            arguments = {"key": f"step/{number}", "value": {"text": "x"}}
            recorder.ok(1, recorder.invoke(1, "key_value_set", arguments), None)


def measure_lines(events: int) -> None:
    """Prints how fast one recorder is, and what it holds on to."""
    with tempfile.TemporaryDirectory() as folder:
        record = Recording(folder).record
        record(events // 20)
        before = _resident_bytes()
        began, cpu_began = time.perf_counter(), time.process_time()
        record(events)
        rate = events / (time.perf_counter() - began)
        cpu_rate = events / (time.process_time() - cpu_began)
        grown = _resident_bytes() - before
    print(f"{events:,} events of one recorder")
    print(f"  events a second      {rate:10,.0f}    (to be at least 50,000)")
    print(f"  a second of its CPU  {cpu_rate:10,.0f}")
    print(f"  memory grew by       {grown / 1024:10,.0f} KiB")


def soak(seconds: float) -> None:
    """Prints what one recorder holds on to, minute by minute."""
    with tempfile.TemporaryDirectory() as folder:
        recording, events = Recording(folder), 0
        began_s = told_s = time.monotonic()
        print(f"{'s':>8}{'events':>14}{'recorder MB':>14}")
        while (now_s := time.monotonic()) - began_s < seconds or not events:
            if not events or now_s - told_s >= 60:
                told_s = now_s
                memory = f"{_resident_bytes() / 1e6:>14.1f}"
                print(f"{now_s - began_s:>8.0f}{events:>14}{memory}", flush=True)
            recording.record(SOAK_EVENTS)
            events += SOAK_EVENTS
            time.sleep(SOAK_EVENTS / SOAK_RATE)


def _cpu_s(pid: int) -> float:
    # Nanoseconds on a core, thread by thread; threads that are there now do not end under load.
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--repetitions", type=int, default=21)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="memory over so long")
    options = parser.parse_args()
    if options.soak is not None:
        soak(options.soak)
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # C++ would write lines of its own.
    share = 10 if options.quick else 1
    measure_lines(EVENTS // share)
    compare_rounds(options.processes, max(3, options.repetitions // share), 500 // share)


if __name__ == "__main__":
    main()
