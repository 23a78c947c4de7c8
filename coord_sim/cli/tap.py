"""`coordlab tap`: a relay between a job and its real service, which records every call."""

from __future__ import annotations

import argparse
import logging
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coord_sim.cli.errors import CommandError
from coord_sim.cli.extras import require
from coord_sim.cli.logs import logging_to
from coord_sim.cli.numbers import host_and_port, is_loopback, task_count
from coord_sim.cli.recordings import earlier_recordings, recording_path
from coord_sim.tap.upstream import Upstream

if TYPE_CHECKING:
    from coord_sim.recording.file import RecordingFile

EXAMPLES = """\
examples:
  coordlab tap --listen 8476 --upstream 127.0.0.1:8477 --record run.jsonl
      the job connects to port 8476; its service listens on 8477
  coordlab tap --listen 0.0.0.0:8476 --upstream host0:8477 --record run.jsonl --processes 16
      for other machines too; the size of the job is told, so that `check --follow` can start at once
  coordlab tap --listen [::1]:0 --upstream [::1]:8477 --record run.jsonl
      a free port; the first line says which

The first line is `ready address=HOST:PORT upstream=HOST:PORT`. For an unmodified JAX program set
coordinator_address to that address, and for process 0 JAX_COORDINATOR_BIND_ADDRESS to the upstream's
(docs/tap.md). The history is written anew; `coordlab check run.jsonl` judges it. A service that is
started again has its history in run-2.jsonl; one that lies there from an earlier run is named at the
start.
"""
_log = logging.getLogger(__name__)


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "tap",
        help="relay between a job and its real service, and record every call",
        description="Passes all bytes on unchanged, and records the calls that it sees in them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--listen",
        type=host_and_port,
        required=True,
        metavar="[HOST:]P",
        help="where the job connects to, on the loopback unless told otherwise; 0: a free port",
    )
    parser.add_argument(
        "--upstream",
        type=host_and_port,
        required=True,
        metavar="HOST:P",
        help="where the service listens; it need not be there yet",
    )
    parser.add_argument("--record", required=True, metavar="FILE", help="the history")
    parser.add_argument(
        "--processes",
        type=task_count,
        metavar="N",
        help="size of the job; else who is seen is added to the header, and the file replaced",
    )
    parser.add_argument("--verbose", action="store_true", help="log refused connections to stderr")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Relays until SIGTERM or Ctrl-C; 0."""
    require("google.protobuf", "server", "tap")
    require("hpack", "server", "tap")
    from coord_sim.recording.file import RecordingFile
    from coord_sim.server.listening import listen
    from coord_sim.tap.recorder_process import RecorderProcess, follow
    from coord_sim.tap.recording import TapRecording
    from coord_sim.tap.relay import Relay

    upstream = _upstream(options)
    # Before the file is touched: the port may be taken.
    listeners = listen(*options.listen)
    if upstream.is_served_by(listeners):
        raise CommandError(
            f"--listen takes the port of --upstream, {upstream}; the tap needs a port of its own"
        )
    file = RecordingFile(options.record)
    _refuse_what_cannot_grow(file, options)
    level = logging.INFO if options.verbose else logging.WARNING

    def record(pipe: socket.socket) -> None:
        with logging_to(logging.StreamHandler(), level=level, as_json=False):
            path = Path(options.record)
            recording = TapRecording(
                file, lambda number: recording_path(path, number), options.processes
            )
            follow(pipe, recording)

    recorder = RecorderProcess(record, listeners)
    file.close()
    with logging_to(logging.StreamHandler(), level=level, as_json=False):
        relay = Relay(listeners, upstream, recorder.feed)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: relay.stop())
        host = options.listen[0]
        port = listeners[0].getsockname()[1]
        address = f"{f'[{host}]' if ':' in host else host}:{port}"
        print(f"ready address={address} upstream={upstream}", flush=True)
        for path in earlier_recordings(Path(options.record), 1):
            _log.warning("%s is of an earlier run, until the service is started again", path)
        if not is_loopback(host):
            _log.warning("whoever reaches %s from another machine reaches %s", address, upstream)
        relay.run()
        recorder.finish()
    return 0


def _upstream(options: argparse.Namespace) -> Upstream:
    """The service's place."""
    host, port = options.upstream
    if port == 0:
        raise CommandError("--upstream needs the service's port, found 0")
    try:
        return Upstream(host, port)
    except OSError as error:
        raise CommandError(f"--upstream {host}:{port}: {error.strerror or error}") from error


def _refuse_what_cannot_grow(file: RecordingFile, options: argparse.Namespace) -> None:
    if options.processes is None and not file.is_regular:
        raise CommandError(
            f"--record {options.record} is no regular file, so that its header must be right from the "
            "start; say --processes N"
        )
