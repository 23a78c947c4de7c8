"""`coordlab wrap`: any program, with our service wherever it would start jaxlib's."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from coord_sim.cli.commands import exit_code_of_command, running, without_dashes
from coord_sim.cli.errors import CommandError
from coord_sim.cli.extras import require
from coord_sim.cli.recordings import warn_of_earlier_recordings
from coord_sim.cli.substitute_services import Services
from coord_sim.core.semantics import SHIPPED
from jax_bridge.substitute.environment import substituting

EXAMPLES = """\
examples:
  coordlab wrap -- python train.py
      whatever jax.distributed.initialize() starts as a service, here or in children, is ours
  coordlab wrap --semantics published --record run.jsonl -- bash launch_four_processes.sh
      keep the guide's semantics, and write what the server sees; a second service: run-2.jsonl

The command stays as it is and picks its own address. Our service runs in this process: a recoverable one
survives the death of process 0, which gets it again when it asks for the same address and options
(before it uses a device it has to delete its topology from the store: docs/outside-coordinator.md).
Others end with the process that started them, as jaxlib's do. Exit code: the command's, or 128 + the
number of the signal that ended it. Out of reach: `python -E`, `-I` or `-S`, and other machines.
"""

NEVER_USED = (
    "coordlab: warning: nobody asked for a coordination service, so ours was never used "
    "(a `python -E`, `-I` or `-S` is out of reach)"
)


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "wrap",
        help="run any program with our service in place of the C++ one",
        description="Runs a command; services that it would start in C++ are ours instead.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="coordlab wrap [-h] [--semantics NAME] [--record FILE] [--verbose] -- COMMAND ...",
    )
    parser.add_argument("--semantics", choices=("shipped", "published"), default=SHIPPED.name)
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="write the history as the server sees it"
    )
    parser.add_argument("--verbose", action="store_true", help="log to stderr what happens")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    parser.set_defaults(run=run, usage_error=parser.error)


def run(options: argparse.Namespace) -> int:
    """Runs the command to its end; its exit code."""
    words = without_dashes(options.command)
    if not words:
        options.usage_error("a command is needed, after `--`")
    require("google.protobuf", "server", "wrap")
    require("hpack", "server", "wrap")
    if options.record is not None and not options.record.absolute().parent.is_dir():
        raise CommandError(f"--record {options.record}: there is no such folder")
    if options.record is not None and options.record.is_dir():
        raise CommandError(f"--record {options.record} is a folder; name a file in it")
    if options.verbose:
        logging.basicConfig(level=logging.INFO, format="coordlab: %(asctime)s %(message)s")
    folder = Path(tempfile.mkdtemp(prefix="coordlab-"))
    try:
        socket_path = str(folder / "services")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(socket_path)
        listener.listen()  # Requests wait there until the thread takes them.
        with running(words, substituting(os.environ, socket_path)) as command:
            services = Services(options.semantics, options.record)
            thread = _ServiceThread(services, listener)
            thread.start()
            try:
                code = command.wait()
            finally:
                thread.end()
        if not services.asked:
            print(NEVER_USED, file=sys.stderr)
        if options.record is not None:
            warn_of_earlier_recordings(options.record, services.started)
        return exit_code_of_command(code)
    finally:
        shutil.rmtree(folder)


# --- its services ----------------------------------------------------------------------------------


class _ServiceThread(threading.Thread):
    """Runs the services' event loop, as the main thread waits for signals."""

    def __init__(self, services: Services, listener: socket.socket) -> None:
        super().__init__(name="services")
        self._services = services
        self._listener = listener
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()

    def run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    def end(self) -> None:
        """Stops all services; returns when they have stopped."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self.join()

    async def _serve(self) -> None:
        door = await asyncio.start_unix_server(self._services.attend, sock=self._listener)
        try:
            await self._ended.wait()
        finally:
            door.close()
            await self._services.stop()
