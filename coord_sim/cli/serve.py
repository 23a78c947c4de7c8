"""`coordlab serve`: the coordination service as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
from typing import Any

from coord_sim.cli.errors import CommandError
from coord_sim.cli.extras import require
from coord_sim.cli.numbers import positive_int, positive_seconds
from coord_sim.core.identifiers import seconds
from coord_sim.core.semantics import SEMANTICS, SHIPPED

EXAMPLES = """\
examples:
  coordlab serve --processes 4
      serve a fate-sharing job on a free port; the first line says which
  coordlab serve --processes 4 --port 8476 --recoverable --heartbeat-timeout 10
      processes may die and come back, process 0 too
  coordlab serve --processes 4 --recoverable --semantics published --record run.jsonl
      keep the guide's semantics, and write what the server sees

The first line is `ready address=HOST:PORT incarnation=N`. Point jax.distributed.initialize at that
address, and set JAX_COORDINATOR_BIND_ADDRESS to a spare port so that process 0's own service idles.
"""


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "serve",
        help="run the gRPC model of the coordination service",
        description="Serves JAX jobs with our model of the coordination service.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--processes", type=positive_int, required=True, metavar="N")
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (default: loopback)")
    parser.add_argument("--port", type=int, default=0, metavar="P", help="0: a free one (default)")
    parser.add_argument("--recoverable", action="store_true", help="tasks may die and come back")
    parser.add_argument(
        "--heartbeat-timeout",
        type=positive_seconds,
        default=100.0,
        metavar="S",
        help="default: 100",
    )
    parser.add_argument(
        "--shutdown-timeout", type=positive_seconds, default=300.0, metavar="S", help="default: 300"
    )
    parser.add_argument(
        "--semantics", choices=[name for name in SEMANTICS if name != "naive"], default=SHIPPED.name
    )
    parser.add_argument("--record", metavar="FILE", help="write the history as the server sees it")
    parser.add_argument("--verbose", action="store_true", help="log state changes to stderr")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serves until SIGTERM or Ctrl-C; 0."""
    require("grpc", "server", "serve")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # Its errors come to us, and in one line.
    if options.verbose:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    if not 0 <= options.port <= 65535:
        raise CommandError(f"--port {options.port}: a port is a number from 0 to 65535")
    asyncio.run(_serve(options))
    return 0


async def _serve(options: argparse.Namespace) -> None:
    from coord_sim.core.service import ServiceConfig
    from coord_sim.server.grpc_server import CoordinationServer
    from coord_sim.server.recorder import ServerRecorder

    config = ServiceConfig(
        tasks=options.processes,
        recoverable=options.recoverable,
        heartbeat_timeout_ns=seconds(options.heartbeat_timeout),
        shutdown_timeout_ns=seconds(options.shutdown_timeout),
        semantics=SEMANTICS[options.semantics],
    )
    server = CoordinationServer(config)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    bound = server.bind(options.host, options.port)
    recorder = None
    if options.record is not None:  # Not before the port is ours: the file is written anew.
        details: dict[str, object] = {
            "semantics": options.semantics,
            "recoverable": options.recoverable,
            "heartbeat_timeout_s": options.heartbeat_timeout,
        }
        recorder = ServerRecorder(options.record, options.processes, details)
    await server.start(recorder)
    host = options.host.strip("[]")
    shown = f"[{host}]" if ":" in host else host
    print(f"ready address={shown}:{bound} incarnation={server.incarnation}", flush=True)
    if host not in ("127.0.0.1", "localhost", "::1"):
        logging.getLogger(__name__).warning(
            "anyone who reaches %s:%d can join, stop or read this job", shown, bound
        )
    try:
        await stopped.wait()
    finally:
        await server.stop()
