"""What `coordlab tap` costs: calls on jaxlib's C++ service, through the tap and without, in one run.

Run as `python benchmarks/tap.py [--quick] [--clients N] [--soak SECONDS [--rest SECONDS]]`. Two C++
services, each a process of its own, are up during the whole run, and each has as many bare clients of
jaxlib's, each in a process of its own. Those of one go through a tap, which records. All is measured
several times in turns, so that what the machine does besides hits both alike; the table shows medians
and their ratio, and the CPU that the tap and its recorder spent on a call. All processes share the
machine's cores.

`--soak` makes live-set rounds through the tap for so long instead, and prints every few seconds the
calls so far, calls a second, and the resident memory of the relay and of the recorder. Their growth is
what counts: nothing of a call that has ended may stay. `--rest` leaves the machine to others in between.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from service import HEARTBEAT_S, Fleet, Server, fleets

CLIENTS = 8
OPERATIONS = ("round", "barrier", "set", "try_get")
SOAK_STEP_S = 5.0


class Tap:
    """A tap in front of a service; to a `Fleet` it is the service.

    Args:
      upstream: Address of the service.
      record: The history.
      processes: Size of the job.
    """

    def __init__(self, upstream: str, record: Path, processes: int) -> None:
        self.name = "through the tap"
        command = [sys.executable, "-m", "coord_sim.cli.main", "tap", "--listen", "0"]
        command += ["--upstream", upstream, "--record", str(record), "--processes", str(processes)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        self.address = next(word for word in words if word.startswith("address="))[8:]
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self._pids = (pid, *map(int, children))

    def cpu_s(self) -> float:
        """CPU spent so far, by the relay and the recorder."""
        threads = (task for pid in self._pids for task in Path(f"/proc/{pid}/task").iterdir())
        return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9

    def resident_bytes(self) -> list[int]:
        """Of the relay, and of the recorder."""
        page = os.sysconf("SC_PAGE_SIZE")
        return [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page for pid in self._pids]

    def end(self) -> None:
        """Ends it."""
        self._process.terminate()
        self._process.wait()


@contextlib.contextmanager
def services(clients: int, record: Path) -> Iterator[tuple[Server, Tap]]:
    """A service without a tap, and the tap of another one."""
    command = (
        f"{sys.executable} -m jax_bridge.real_service --processes {{processes}} "
        f"--heartbeat-timeout {HEARTBEAT_S} --recoverable"
    )
    with contextlib.ExitStack() as stack:
        plain = Server("without", command, clients)
        stack.callback(plain.end)
        behind = Server("behind the tap", command, clients)
        stack.callback(behind.end)
        tap = Tap(behind.address, record, clients)
        stack.callback(tap.end)
        yield plain, tap


def compare(
    plain: Fleet, tapped: Fleet, operation: str, *, clients: int, repeats: int, seconds: float
) -> None:
    """Measures an operation in turns; prints the times of a call, their ratio, and the tap's CPU."""
    calls = max(10, round(seconds / plain.cost(operation, 50).wall_s))
    tapped.cost(operation, 50)
    times: dict[Fleet, list[float]] = {plain: [], tapped: []}
    cpu_s = []
    for _ in range(repeats):
        for fleet in (plain, tapped):
            cost = fleet.cost(operation, calls)
            times[fleet].append(cost.wall_s)
            if fleet is tapped:
                cpu_s.append(cost.cpu_s)
    without, through = (statistics.median(times[fleet]) for fleet in (plain, tapped))
    print(
        f"{operation:<12}{without * 1e6:>12.0f}{through * 1e6:>12.0f}{through / without:>8.2f}"
        f"{clients / through:>12.0f}{statistics.median(cpu_s) * 1e6:>12.0f}",
        flush=True,
    )


def soak(fleet: Fleet, tap: Tap, clients: int, seconds: float, rest_s: float) -> None:
    """Makes rounds, and prints what they cost in memory."""
    calls = 0
    began_s = time.monotonic()
    each = max(10, round(SOAK_STEP_S / fleet.cost("round", 50).wall_s))
    print(f"{'s':>8}{'calls':>12}{'calls/s':>10}{'relay MB':>10}{'recorder MB':>12}")
    while True:
        relay, recorder = tap.resident_bytes()
        passed_s = time.monotonic() - began_s
        rate = calls / passed_s
        memory = f"{relay / 1e6:>10.1f}{recorder / 1e6:>12.1f}"
        print(f"{passed_s:>8.0f}{calls:>12}{rate:>10.0f}{memory}", flush=True)
        if passed_s >= seconds:
            return
        fleet.cost("round", each)
        calls += each * clients
        time.sleep(rest_s)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="rounds for so long")
    parser.add_argument("--rest", type=float, default=0.0, metavar="SECONDS", help="between them")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from jaxlib import _jax  # noqa: F401  # Loaded before the clients are forked.

    print(
        f"CPython {platform.python_version()}, jaxlib {metadata.version('jaxlib')}, "
        f"{os.cpu_count()} cores, {platform.machine()}, {options.clients} clients"
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        services(options.clients, Path(folder) / "run.jsonl") as (plain, tap),
        fleets([plain, tap], options.clients) as (without, through),
    ):
        if options.soak is not None:
            soak(through, tap, options.clients, options.soak, options.rest)
            return
        print(
            f"{'call':<12}{'without µs':>12}{'tap µs':>12}{'ratio':>8}"
            f"{'calls/s':>12}{'tap CPU µs':>12}"
        )
        repeats, seconds = (3, 0.3) if options.quick else (9, 1.0)
        for operation in OPERATIONS:
            compare(
                without,
                through,
                operation,
                clients=options.clients,
                repeats=repeats,
                seconds=seconds,
            )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
