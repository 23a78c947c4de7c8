"""`coordlab serve`: the coordination service as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checker.printable import printable
from coord_sim.cli.ending import exit_code_of
from coord_sim.cli.errors import CommandError
from coord_sim.cli.extras import require
from coord_sim.cli.logs import logging_to
from coord_sim.cli.numbers import (
    host_and_port,
    is_loopback,
    port_number,
    positive_seconds,
    task_count,
)
from coord_sim.cli.recordings import earlier_recordings, recording_path
from coord_sim.cli.supervise import Supervisor
from coord_sim.core.identifiers import seconds
from coord_sim.core.semantics import SEMANTICS, SHIPPED
from coord_sim.core.service import ServiceConfig
from coord_sim.recording.file import RecordingFile

if TYPE_CHECKING:
    from rich.console import Console

    from coord_sim.server.grpc_server import CoordinationServer

EXAMPLES = """\
examples:
  coordlab serve --processes 4
      serve a fate-sharing job on a free port; the first line says which
  coordlab serve --processes 4 --port 8476 --recoverable --heartbeat-timeout 10
      processes may die and come back, process 0 too
  coordlab serve --processes 4 --recoverable --semantics published --record run.jsonl
      keep the guide's semantics, and write what the server sees
  coordlab serve --processes 4 --port 8476 --recoverable --state job.state --supervise
      the coordinator itself may be killed: it starts again, and goes on where it was
  coordlab serve --processes 4 --watch --metrics 9090
      a live table here, and the same for Prometheus

The first line is `ready address=HOST:PORT incarnation=N`. Point jax.distributed.initialize at that
address, and set JAX_COORDINATOR_BIND_ADDRESS to a spare port so that process 0's own service idles.
docs/outside-coordinator.md has the recipe, and what it promises.
"""
_log = logging.getLogger(__name__)

_DIALECTS = ("0.10", "0.12")


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "serve",
        help="run the gRPC model of the coordination service",
        description="Serves JAX jobs with our model of the coordination service.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--processes", type=task_count, required=True, metavar="N")
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (default: loopback)")
    parser.add_argument(
        "--port", type=port_number, default=0, metavar="P", help="0: a free one (default)"
    )
    parser.add_argument("--recoverable", action="store_true", help="tasks may die and come back")
    times = (
        ("heartbeat", 100.0, "silence after which a task is declared dead"),
        ("register", 3600.0, "how long the first task to register waits for the last"),
        ("shutdown", 300.0, "the same for leaving"),
    )
    for name, default, meaning in times:
        parser.add_argument(
            f"--{name}-timeout",
            type=positive_seconds,
            default=default,
            metavar="S",
            help=f"{meaning} (default: {default:g})",
        )
    parser.add_argument(
        "--semantics",
        choices=[name for name in SEMANTICS if name != "naive"],
        default=SHIPPED.name,
        help="shipped: as jaxlib, with its deviations (default); published: as the JAX guide says",
    )
    parser.add_argument(
        "--dialect",
        choices=_DIALECTS,
        default=_DIALECTS[-1],
        help="jaxlib 0.10 has no ReportErrorToService (default: 0.12)",
    )
    parser.add_argument("--record", metavar="FILE", help="write the history as the server sees it")
    parser.add_argument(
        "--state",
        metavar="FILE",
        help="keep keys, incarnations and counters in FILE, and go on from what it has; with "
        "--recoverable error polls are answered at once, so that jaxlib's clients survive a restart",
    )
    parser.add_argument(
        "--supervise",
        action="store_true",
        help="with --state: hold the port while the coordinator is down, and start it again at once",
    )
    seeing = parser.add_argument_group("seeing inside")
    seeing.add_argument("--verbose", action="store_true", help="log what happens to stderr")
    seeing.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="json: one object a line"
    )
    seeing.add_argument(
        "--metrics",
        type=host_and_port,
        metavar="[HOST:]P",
        help="serve Prometheus metrics, on the loopback unless told otherwise; 0: a free port",
    )
    seeing.add_argument("--watch", action="store_true", help="show a live table on the terminal")
    tls = parser.add_argument_group("mutual TLS", "as jaxlib's parameters of the same names")
    tls.add_argument("--mtls-cert-file", default="", metavar="PEM")
    tls.add_argument("--mtls-key-file", default="", metavar="PEM")
    tls.add_argument("--mtls-ca-file", default="", metavar="PEM")
    tls.add_argument("--mtls-peer-uri-prefix", default="", metavar="URI", help="ends in /")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serves until SIGTERM or Ctrl-C; 0."""
    require("google.protobuf", "server", "serve")
    require("hpack", "server", "serve")
    if options.watch and not sys.stderr.isatty():
        raise CommandError(
            "--watch needs a terminal on standard error; for programs, use --metrics"
        )
    if options.supervise and options.state is None:
        raise CommandError("--supervise needs --state: else there is nothing to go on from")
    if options.metrics is not None:
        require("prometheus_client", "server", "serve --metrics")
    if options.watch:
        require("rich", "server", "serve --watch")
    _refuse_one_file_twice(options)
    # Imported before a supervisor forks, so that a child starts at once.
    from coord_sim.server import grpc_server  # noqa: F401 - for the child
    from coord_sim.server.listening import listen

    # Before any file is touched: the port may be taken.
    sockets = listen(options.host, options.port)

    lives = 0 if options.record is None else _recorded_lives(options)

    def serve(attempt: int) -> int:
        if options.record is not None:
            options.record = str(recording_path(Path(options.record), lives + attempt))
        return exit_code_of(lambda: _logged(options, sockets, attempt))

    try:
        return Supervisor(serve).run() if options.supervise else serve(1)
    finally:
        for each in sockets:
            each.close()


def _logged(options: argparse.Namespace, sockets: Sequence[socket.socket], attempt: int) -> int:
    """One life of the coordinator, with its logs."""
    console = None
    handler: logging.Handler = logging.StreamHandler()
    if options.watch:
        from rich.console import Console
        from rich.logging import RichHandler

        console = Console(stderr=True)
        handler = RichHandler(console=console, show_path=False, show_level=False, show_time=False)
    level = logging.INFO if options.verbose else logging.WARNING
    with logging_to(handler, level=level, as_json=options.log_format == "json"):
        return asyncio.run(_serve(options, sockets, attempt, console))


async def _serve(
    options: argparse.Namespace,
    sockets: Sequence[socket.socket],
    attempt: int,
    console: Console | None,
) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    server = _server(options, sockets)
    host = options.host.strip("[]")
    bound = sockets[0].getsockname()[1]
    address = f"{f'[{host}]' if ':' in host else host}:{bound}"
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        places = await stack.enter_async_context(_seeing_inside(server, options, console, address))
        await server.start(None if options.record is None else RecordingFile(options.record))
        if attempt == 1:
            ready = f"ready address={address} incarnation={server.incarnation}"
            print(" ".join((ready, *places)), flush=True)
        if not is_loopback(host):
            _log.warning(
                "reachable from other machines: %s can join, stop or read the job at %s",
                "whoever has a certificate of the CA" if options.mtls_ca_file else "anyone",
                address,
            )
        ends = [asyncio.ensure_future(event.wait()) for event in (stopped, server.failed)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
    if server.failed.is_set():
        raise CommandError(f"{options.state}: the state could not be written; what it has is kept")
    return 0


def _config(options: argparse.Namespace) -> ServiceConfig:
    """The service that the options describe."""
    return ServiceConfig(
        tasks=options.processes,
        recoverable=options.recoverable,
        heartbeat_timeout_ns=seconds(options.heartbeat_timeout),
        register_timeout_ns=seconds(options.register_timeout),
        shutdown_timeout_ns=seconds(options.shutdown_timeout),
        semantics=SEMANTICS[options.semantics],
        durable=options.state is not None,
        dismisses_polls=options.state is not None and options.recoverable,
    )


def _server(options: argparse.Namespace, sockets: Sequence[socket.socket]) -> CoordinationServer:
    """The server that the options describe, on sockets that listen."""
    from coord_sim.server.grpc_server import CoordinationServer
    from coord_sim.server.state_file import StateFile, UnusableState
    from coord_sim.tls import PeerFiles, TlsError

    config = _config(options)
    try:
        files = PeerFiles.given(
            options.mtls_cert_file,
            options.mtls_key_file,
            options.mtls_ca_file,
            options.mtls_peer_uri_prefix,
        )
        state = None if options.state is None else StateFile(options.state, config)
        if state is not None and not state.is_new:
            _log.info("goes on from %s", options.state)
        server = CoordinationServer(
            config, state=state, tls=files, with_reports=options.dialect != "0.10"
        )
        server.adopt(sockets)
    except (TlsError, UnusableState) as error:
        raise CommandError(str(error)) from error
    with contextlib.suppress(ModuleNotFoundError):  # Where their packages are installed.
        from coord_sim.server import standard_services

        server.add_rpcs(standard_services.rpcs())
    return server


@contextlib.asynccontextmanager
async def _seeing_inside(
    server: CoordinationServer,
    options: argparse.Namespace,
    console: Console | None,
    address: str,
) -> AsyncIterator[list[str]]:
    """Metrics and the live table, as asked for; yields what the first line says of them."""
    places = []
    endpoint = table = None
    if options.metrics is not None:
        from coord_sim.server.metrics import MetricsEndpoint

        host, port = options.metrics
        try:
            endpoint = MetricsEndpoint(server, host, port)
        except OSError as error:
            raise CommandError(f"--metrics {host}:{port}: {error.strerror or error}") from error
        if not is_loopback(host):
            _log.warning("anyone who reaches %s:%d can read the metrics", host, endpoint.port)
        places.append(f"metrics={endpoint.port}")
    if console is not None:
        from coord_sim.cli.watch import Watcher

        table = Watcher(server, console, f"coordlab serve {address}")
    try:
        yield places
    finally:
        if table is not None:
            await asyncio.to_thread(table.stop)
        if endpoint is not None:
            await asyncio.to_thread(endpoint.close)


def _recorded_lives(options: argparse.Namespace) -> int:
    """How many recordings a job has of its coordinator, when it is gone on with and they are kept."""
    record = Path(options.record)
    if options.state is None or not Path(options.state).exists() or not record.is_file():
        return 0
    found = 1 + len(earlier_recordings(record, 1))
    print(
        f"coordlab: the job of {printable(options.state)} goes on; what is seen from now on is in "
        f"{printable(str(recording_path(record, found + 1)))}",
        file=sys.stderr,
    )
    return found


def _refuse_one_file_twice(options: argparse.Namespace) -> None:
    """A recording is written anew: it must not be the state."""
    if options.record is None or options.state is None:
        return
    record = Path(options.record).resolve()
    state = Path(options.state).resolve()
    if record in {state, *(state.with_name(f"{state.name}-{part}") for part in ("wal", "shm"))}:
        raise CommandError(
            f"--record {options.record} would overwrite the state; name another file"
        )
