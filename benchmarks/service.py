"""How fast our service is, beside the C++ service that jaxlib ships, in one run.

Run as `python benchmarks/service.py [PART ...] [--quick] [--server NAME=COMMAND]`. Each service is a
process of its own. Both are up during the whole run, and each measurement is repeated in turns, so that
what the machine does besides hits both alike; the table shows medians, and the ratio of them. Not
recorded, recoverable, in plain text on the loopback; everything shares the machine's cores.

Parts:
  small      32 clients in closed loops: live-set rounds, named barriers, `set`, `try_get`
  many       512 clients that connect at once and meet in rounds
  directory  100,000 keys, and a directory of 10,000 of them read by one client
  large      a value of 100 MB stored and read back by one client
  memory     what an idle client costs the server: its connection, its error poll and one blocking get

**Load.** Clients of `small`, `directory` and `large` are jaxlib's own, with compression as JAX sets
it, each in a process of its own with its own connection, like the processes of a job; they are
forked from one that has loaded jaxlib, which makes them cheap to start. On few cores the clients are
part of every time, which must make ratios of *times* kinder than ratios of costs. So the table has
both: the time of a call, and the CPU (user and system, from `/proc`) that the server's process spent
on it, in which clients have no part, and which other load on the machine hardly changes. The time is
the run's duration divided by the calls of one client: the time of a round, or the mean latency of a
call while all clients compete.

Hundreds of such processes would measure the scheduler. Clients of `many` and `memory` are
grpc.aio's in one process, with a connection each; what they cost is part of both sides' time, so
that its bound is on the safe side and its ratio says little.

**Memory.** Growth of the server's resident set by clients that connect, register and leave an error
poll and a blocking get open, after as many that fill pools. "empty grpc.aio" is a server with the
same calls pending that does nothing else: the floor for a server on that library.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

PARTS = ("small", "many", "directory", "large", "memory")
SERVICE = "/xla.coordination.CoordinationService/"
CLIENTS = 32
MANY = 512
PATIENCE_S = 120.0
HEARTBEAT_S = 600  # Long, so that heartbeats are no part of the load.
VALUE = b"v" * 64
RUN_S = 1.0
EMPTY = "empty grpc.aio"
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one call: time as the client sees it and CPU of the server, both in seconds."""

    wall_s: float
    cpu_s: float


class Unsupported(Exception):
    """A server does not implement what is to be measured."""


# --- servers ---------------------------------------------------------------------------------------


class Server:
    """A service as a child process.

    Args:
      name: For the table.
      command: Prints a line with `address=HOST:PORT`; `{processes}` is filled in.
      processes: Tasks of the job.
    """

    def __init__(self, name: str, command: str, processes: int) -> None:
        self.name = name
        self._process = subprocess.Popen(
            shlex.split(command.format(processes=processes)), stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "address" not in words:
            raise SystemExit(f"{name}: no address in the first line of {command!r}: {line!r}")
        self.address = words["address"]

    def cpu_s(self) -> float:
        """CPU spent so far, of the process and the children it has now."""
        return sum(_cpu_s(pid) for pid in _tree(self._process.pid))

    def resident_bytes(self) -> int:
        """Resident memory, of the process and its children."""
        return sum(_resident_bytes(pid) for pid in _tree(self._process.pid))

    def end(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()


def _tree(pid: int) -> list[int]:
    pids = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            pids += _tree(int(child))
    return pids


def _cpu_s(pid: int) -> float:
    # Nanoseconds on a core, thread by thread; threads of these servers do not end under load.
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def serving(contenders: dict[str, str], processes: int) -> Iterator[list[Server]]:
    """All contenders, up."""
    servers: list[Server] = []
    try:
        for name, command in contenders.items():
            servers.append(Server(name, command, processes))
        yield servers
    finally:
        for server in servers:
            server.end()


# --- clients ---------------------------------------------------------------------------------------


class Fleet:
    """Connected clients of one server, each in a process of its own.

    Args:
      server: Whose clients.
      size: How many; the job has as many tasks.
    """

    def __init__(self, server: Server, size: int) -> None:
        self.server = server
        self._size = size
        self._workers: list[multiprocessing.process.BaseProcess] = []
        self._pipes: list[Connection] = []
        for task in range(size):
            mine, theirs = _FORK.Pipe()
            worker = _FORK.Process(
                target=_work, args=(theirs, server.address, task, size), daemon=True
            )
            worker.start()
            theirs.close()
            self._workers.append(worker)
            self._pipes.append(mine)
        self._wait(range(size))

    def connect(self) -> float:
        """Connects all at once; seconds until the last is registered."""
        return self._run("connect", 1, range(self._size))[0]

    def cost(self, operation: str, calls: int, clients: Sequence[int] | None = None) -> Cost:
        """Each client makes `calls` calls, one after the other.

        Raises:
          Unsupported: the server does not know the call.
        """
        clients = range(self._size) if clients is None else clients
        cpu_s = self.server.cpu_s()
        duration_s, _ = self._run(operation, calls, clients)
        cpu_s = self.server.cpu_s() - cpu_s
        return Cost(duration_s / calls, cpu_s / (calls * len(clients)))

    def end(self) -> None:
        """Ends all clients: by force, for a client whose service is gone would complain."""
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.join()
        for pipe in self._pipes:
            pipe.close()

    def _run(self, operation: str, calls: int, clients: Sequence[int]) -> tuple[float, float]:
        for client in clients:
            self._pipes[client].send((operation, calls))
        times = self._wait(clients)
        began, ended = min(t[0] for t in times), max(t[1] for t in times)
        return ended - began, began

    def _wait(self, clients: Sequence[int]) -> list[tuple[float, float]]:
        results: list[tuple[float, float] | str] = []
        deadline = time.monotonic() + PATIENCE_S
        for client in clients:
            if not self._pipes[client].poll(max(0.0, deadline - time.monotonic())):
                raise SystemExit(f"{self.server.name}: client {client} did not answer in time")
            try:
                results.append(self._pipes[client].recv())
            except EOFError as error:
                raise SystemExit(f"{self.server.name}: client {client} has died") from error
        for result in results:  # Only now, so that no answer is left for the next question.
            if isinstance(result, str):
                if "UNIMPLEMENTED" in result:
                    raise Unsupported(self.server.name)
                raise SystemExit(f"{self.server.name}: {result}")
        return [result for result in results if not isinstance(result, str)]


def _work(pipe: Connection, address: str, task: int, size: int) -> None:
    """A client's process: performs what it is told, and answers with begin and end."""
    from jax_bridge import compat

    client = compat.new_client(
        address, task, heartbeat_timeout_s=HEARTBEAT_S, init_timeout_s=int(PATIENCE_S)
    )
    everybody = list(range(size))
    large = os.urandom(1024) * (1024 * 100)  # 100 MB
    key = f"small/{task}"
    made = 0

    def fill() -> None:
        nonlocal made
        number = made * size + task
        client.key_value_set_bytes(f"big/{number % 10}/{number}", VALUE, True)
        made += 1

    operations: dict[str, Callable[[], Any]] = {
        "connect": client.connect,
        "round": lambda: client.get_live_nodes(everybody),
        "barrier": lambda: client.wait_at_barrier("bench", int(PATIENCE_S * 1000)),
        "set": lambda: client.key_value_set_bytes(key, VALUE, True),
        "try_get": lambda: client.key_value_try_get_bytes(key),
        "fill": fill,
        "read directory": lambda: client.key_value_dir_get_bytes("big/3"),
        "set large": lambda: client.key_value_set_bytes("large", large, True),
        "get large": lambda: client.blocking_key_value_get_bytes("large", int(PATIENCE_S * 1000)),
    }
    pipe.send((0.0, 0.0))
    while True:
        name, calls = pipe.recv()
        operation = operations[name]
        try:
            began = time.monotonic()
            for _ in range(calls):
                operation()
            pipe.send((began, time.monotonic()))
        except Exception:  # noqa: BLE001  # Whatever it was, whoever asked is told.
            pipe.send(traceback.format_exc())


@contextlib.contextmanager
def fleets(servers: list[Server], size: int) -> Iterator[list[Fleet]]:
    """A fleet for each server, connected."""
    made: list[Fleet] = []
    try:
        for server in servers:
            fleet = Fleet(server, size)
            made.append(fleet)
            fleet.connect()
        yield made
    finally:
        for fleet in made:
            fleet.end()


# --- parts -----------------------------------------------------------------------------------------


def row(what: str, values: dict[str, float | None], unit: str, scale: float) -> None:
    """Prints a line: what, a column a server, and each one's ratio to the first."""
    shown = [
        "unimplemented".rjust(14) if value is None else f"{value * scale:>14.4g}"
        for value in values.values()
    ]
    first = next(iter(values.values()))
    ratios = [
        "-".rjust(8) if value is None or not first else f"{value / first:>8.2f}"
        for value in list(values.values())[1:]
    ]
    print(f"{what:<30}{unit:>8}{''.join(shown)} {''.join(ratios)}", flush=True)


def heading(names: Sequence[str]) -> None:
    """Prints the first line."""
    ratios = "".join(f"{'ratio':>8}" for _ in names[1:])
    print(f"{'what':<30}{'unit':>8}{''.join(f'{name:>14}' for name in names)} {ratios}")


def _calls_for(fleet: Fleet, operation: str, seconds: float) -> int:
    """How many calls a client makes in about so many seconds."""
    return max(10, round(seconds / fleet.cost(operation, 20).wall_s))


def compare(
    made: list[Fleet], operation: str, repeats: int, *, seconds: float, one: bool = False
) -> None:
    """Measures an operation on all servers in turns; prints time and CPU a call."""
    costs: dict[str, list[Cost]] = {fleet.server.name: [] for fleet in made}
    clients = [0] if one else None
    calls: dict[str, int] = {}
    for fleet in made:
        try:
            fleet.cost(operation, 1, clients)  # Warms up.
            calls[fleet.server.name] = 1 if one else _calls_for(fleet, operation, seconds)
        except Unsupported:
            calls[fleet.server.name] = 0
    for _ in range(repeats):
        for fleet in made:
            name = fleet.server.name
            if calls[name]:
                costs[name].append(fleet.cost(operation, calls[name], clients))

    def medians(part: Callable[[Cost], float]) -> dict[str, float | None]:
        return {
            name: statistics.median(map(part, seen)) if seen else None
            for name, seen in costs.items()
        }

    unit, scale = ("s", 1.0) if one else ("µs", 1e6)
    row(operation, medians(lambda cost: cost.wall_s), unit, scale)
    row("  server CPU a call", medians(lambda cost: cost.cpu_s), unit, scale)


def small(contenders: dict[str, str], options: argparse.Namespace) -> None:
    """Calls of many clients that compete."""
    print(f"\n{options.clients} clients")
    with serving(contenders, options.clients) as servers, fleets(servers, options.clients) as made:
        for operation in options.operations.split(","):
            compare(made, operation, options.repeats, seconds=options.seconds)


def many(contenders: dict[str, str], options: argparse.Namespace) -> None:
    """A crowd."""
    print(f"\n{MANY} clients")
    connecting: dict[str, list[float]] = {name: [] for name in contenders}
    rounds: dict[str, list[float]] = {name: [] for name in contenders}
    cpu: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(3):
        for name, command in contenders.items():  # In turns: two crowds crowd each other out.
            with serving({name: command}, MANY) as (server,), _driver(_crowd, server, MANY) as pipe:
                connecting[name].append(_received(pipe))
                for _ in range(options.repeats):
                    before = server.cpu_s()
                    pipe.send(None)
                    rounds[name].append(_received(pipe))
                    cpu[name].append(server.cpu_s() - before)
    row(
        "all connect and register", {n: statistics.median(t) for n, t in connecting.items()}, "s", 1
    )
    row("all in one round", {n: statistics.median(t) for n, t in rounds.items()}, "s", 1)
    row("  server CPU a round", {n: statistics.median(t) for n, t in cpu.items()}, "s", 1)
    row("  the slowest round", {n: max(t) for n, t in rounds.items()}, "s", 1)


async def _crowd(pipe: Connection, address: str, clients: int) -> None:
    from coord_sim.wire._generated import coordination_service_pb2 as pb

    channels = [_connection(address) for _ in range(clients)]
    began = time.monotonic()
    answers = await asyncio.gather(
        *(_register(pb, channels[task], task) for task in range(clients))
    )
    pipe.send(time.monotonic() - began)
    service = answers[0].service_incarnation
    polls = [_poll(pb, channels[task], task, service) for task in range(clients)]
    while True:
        requests = [
            pb.GetAliveTasksRequest(
                incarnations=_who(pb, task, service),
                requesting_task_id=task,
                task_ids=range(clients),
            )
            for task in range(clients)
        ]
        await asyncio.to_thread(pipe.recv)
        began = time.monotonic()
        living = await asyncio.gather(
            *(_call(pb, channels[task], "GetAliveTasks", requests[task]) for task in range(clients))
        )
        pipe.send(time.monotonic() - began)
        if any(len(answer.alive_task_ids) != clients for answer in living):
            raise SystemExit("somebody is missing in the answer")
        assert not any(poll.done() for poll in polls)


def directory(contenders: dict[str, str], options: argparse.Namespace) -> None:
    """Many keys."""
    each = (10_000 if options.quick else 100_000) // CLIENTS
    total = each * CLIENTS
    print(f"\n{total} keys in 10 directories of {total // 10}")
    with serving(contenders, CLIENTS) as servers, fleets(servers, CLIENTS) as made:
        filling: dict[str, float | None] = {}
        for fleet in made:
            filling[fleet.server.name] = fleet.cost("fill", each).wall_s * each
        row("all keys written", filling, "s", 1.0)
        compare(made, "read directory", options.repeats, seconds=0, one=True)


def large(contenders: dict[str, str], options: argparse.Namespace) -> None:
    """One large value."""
    print("\na value of 100 MB")
    with serving(contenders, 1) as servers, fleets(servers, 1) as made:
        compare(made, "set large", options.repeats, seconds=0, one=True)
        compare(made, "get large", options.repeats, seconds=0, one=True)


# --- memory ----------------------------------------------------------------------------------------


def memory(contenders: dict[str, str], options: argparse.Namespace) -> None:
    """What an idle client costs."""
    clients = 100 if options.quick else 400
    print(f"\nmemory of an idle client, over {clients} of them")
    empty = f"{sys.executable} {Path(__file__).resolve()} --serve-empty"
    grown: dict[str, float | None] = {}
    for name, command in {EMPTY: empty, **contenders}.items():
        with (
            serving({name: command}, 2 * clients) as (server,),
            _driver(_idle, server, clients) as pipe,
        ):
            _received(pipe)  # The first half of the clients is there: pools are warm.
            before = server.resident_bytes()
            pipe.send(None)
            _received(pipe)
            grown[name] = (server.resident_bytes() - before) / clients
    heading(list(grown))
    row("resident bytes a client", grown, "KB", 1e-3)


async def _idle(pipe: Connection, address: str, clients: int) -> None:
    from coord_sim.wire._generated import coordination_service_pb2 as pb

    # Nobody is registered before all are; after that a task may do so on a connection of its own.
    first = _connection(address)
    tasks = range(2 * clients)
    answers = await asyncio.gather(*(_register(pb, first, task) for task in tasks))
    service = answers[0].service_incarnation
    pending: list[Any] = []
    channels: list[Any] = []
    for half in (tasks[:clients], tasks[clients:]):
        for task in half:
            channels.append(channel := _connection(address))
            await _register(pb, channel, task)
            get = pb.GetKeyValueRequest(incarnations=_who(pb, task, service), key=f"never/{task}")
            pending += [
                _poll(pb, channel, task, service),
                _call(pb, channel, "GetKeyValue", get),
            ]
        # Requests of one connection are in order: an answered one proves that the others arrived.
        await asyncio.gather(*(_register(pb, channels[task], task) for task in half))
        if any(waiting.done() for waiting in pending):
            raise SystemExit("a call that should wait was answered")
        pipe.send(0.0)
        await asyncio.to_thread(pipe.recv)


# --- clients of grpc.aio ---------------------------------------------------------------------------


@contextlib.contextmanager
def _driver(
    behaviour: Callable[[Connection, str, int], Coroutine[Any, Any, None]],
    server: Server,
    clients: int,
) -> Iterator[Connection]:
    """Runs clients in a process of their own; yields the pipe to it."""
    mine, theirs = _FORK.Pipe()
    driver = _FORK.Process(
        target=lambda: asyncio.run(behaviour(theirs, server.address, clients)), daemon=True
    )
    driver.start()
    theirs.close()
    try:
        yield mine
    finally:
        driver.kill()
        driver.join()
        mine.close()


def _received(pipe: Connection) -> float:
    if not pipe.poll(PATIENCE_S):
        raise SystemExit("clients did not answer in time")
    return float(pipe.recv())


def _connection(address: str) -> Any:
    import grpc.aio

    return grpc.aio.insecure_channel(
        address,
        (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)),
    )


def _call(pb: Any, channel: Any, name: str, request: Any) -> Any:
    return channel.unary_unary(
        SERVICE + name,
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=getattr(pb, f"{name}Response").FromString,
    )(request)


def _who(pb: Any, task: int, service: int) -> Any:
    return pb.Incarnations(task_incarnation=task + 1, service_incarnation=service)


def _register(pb: Any, channel: Any, task: int) -> Any:
    request = pb.RegisterTaskRequest(source_task_id=task, incarnation=task + 1)
    return _call(pb, channel, "RegisterTask", request)


def _poll(pb: Any, channel: Any, task: int, service: int) -> Any:
    request = pb.PollForErrorRequest(incarnations=_who(pb, task, service), source_task_id=task)
    return _call(pb, channel, "PollForError", request)


async def _serve_empty() -> None:
    """A grpc.aio server whose calls wait for ever; registration is answered."""
    import grpc.aio

    async def wait(_request: bytes, _context: Any) -> bytes:
        await asyncio.get_running_loop().create_future()
        return b""

    async def register(_request: bytes, _context: Any) -> bytes:
        return b""

    server = grpc.aio.server()
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(register if name == "RegisterTask" else wait)
        for name in ("RegisterTask", "PollForError", "GetKeyValue")
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE.strip("/"), handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"ready address=127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


# --- the command -----------------------------------------------------------------------------------


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all"
    )
    parser.add_argument("--quick", action="store_true", help="shorter runs, fewer keys")
    parser.add_argument("--clients", type=int, default=CLIENTS, help="of the part `small`")
    parser.add_argument("--repeats", type=int, default=None, help="runs of each measurement")
    parser.add_argument("--seconds", type=float, default=None, help="of one run of a small call")
    parser.add_argument("--operations", default="round,barrier,set,try_get", help="of `small`")
    parser.add_argument(
        "--server",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="one more server to compare, such as another revision of ours: `{processes}` is filled in",
    )
    parser.add_argument("--serve-empty", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_empty:
        asyncio.run(_serve_empty())
        return
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    options.repeats = options.repeats or (3 if options.quick else 7)
    options.seconds = options.seconds or (0.3 if options.quick else RUN_S)
    python = sys.executable
    contenders = {
        "C++": f"{python} -m jax_bridge.real_service --processes {{processes}} "
        f"--heartbeat-timeout {HEARTBEAT_S} --recoverable",
        "ours": f"{python} -m coord_sim.cli.main serve --processes {{processes}} "
        f"--heartbeat-timeout {HEARTBEAT_S} --recoverable",
    }
    contenders.update(server.split("=", 1) for server in options.server)
    import grpc

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # The C++ service writes a line a barrier.
    from jaxlib import _jax  # noqa: F401  # Loaded before the clients are forked.

    print(
        f"CPython {platform.python_version()}, jaxlib {metadata.version('jaxlib')}, "
        f"grpcio {grpc.__version__}, {os.cpu_count()} cores, {platform.machine()}"
    )
    heading(list(contenders))
    measure = {
        "small": small,
        "many": many,
        "directory": directory,
        "large": large,
        "memory": memory,
    }
    for part in options.parts or PARTS:
        measure[part](contenders, options)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
