"""`coordlab merge`: recordings of one job's processes as one history, whatever hosts they ran on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from checker import MalformedHistory
from checker.clocks import DifferentJobs, Job, Joined, UnknownClocks, jobs_of
from checker.clocks.jobs import port_of
from checker.history.parts import (
    STAND_IN,
    STOPPED,
    EmptyRecording,
    Part,
    is_merged,
    process_in_name,
    read_part,
)
from checker.printable import printable
from coord_sim.cli.errors import CommandError, complain, problem_of
from coord_sim.cli.exit_codes import BAD_INPUT
from coord_sim.cli.joining import histories_of
from coord_sim.cli.numbers import positive_seconds
from coord_sim.cli.recordings import (
    earlier_recordings,
    recording_path,
    warn_of_earlier_recordings,
)
from coord_sim.cli.terminal import Progress, plain
from jax_bridge.recorder.preparation import parts_of
from jax_bridge.recorder.processes import clock_id, state_of

NS_PER_S = 1_000_000_000

EXAMPLES = """\
examples:
  coordlab merge recording --out run.jsonl
      what the processes of a job wrote into a folder of `coordlab record --prepare recording`
  coordlab merge host-a/*.jsonl host-b/*.jsonl --out run.jsonl --largest-clock-error 0.05
      of several hosts, whose clocks are known to be less than 50 ms apart
  coordlab merge recording server.jsonl --out run.jsonl
      with what `coordlab serve --record` or `coordlab tap` saw: it bounds the clocks further

Recordings of one host have one clock. Those of others are compared by messages between processes: a key
is read after it was set, nobody passes a barrier before all have come. Each event of the result says how
wrong its time may be, and checks allow for that. Of a service's recording only times are used: its calls
are those of the processes. A second service's job is written to run-2.jsonl, but with --force to the
same. Exit code: 2 if a file could not be used at all, else 0.
"""


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "merge",
        help="merge recordings of one job's processes, of one host or of many",
        description="Merges recordings into one history, with the errors of the hosts' clocks.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="recordings, or folders of them"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--largest-clock-error",
        type=positive_seconds,
        metavar="SECONDS",
        help="the wall clocks of no two hosts are further apart, as their time service promises",
    )
    parser.add_argument(
        "--host-of",
        action="append",
        default=[],
        metavar="PATTERN=HOST",
        help="files whose names match are by the clock of this host, whatever they say themselves; "
        "needed where they do not say it",
    )
    parser.add_argument(
        "--force", action="store_true", help="merge recordings that look like different runs"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads, merges, writes and says what came of it."""
    check_out(options.out)
    paths = recordings_in(options.files, options.out)
    reading = Reading()
    for path in paths:
        reading.read(path)
    reading.say()
    hosts = [_host_of(text) for text in options.host_of]
    parts = [with_host(part, hosts) for part in reading.parts]
    servers = [part for part in parts if part.is_of_server]
    noted = [part for part in parts if part.service_made_ns is not None]
    clients = [part for part in parts if not part.is_of_server and part not in noted]
    if not clients:
        raise CommandError(
            "no recording of a process is among the files; those of services are complete as they are"
            if servers
            else "none of the files can be used"
        )
    _check_hosts(clients)
    largest_ns = None
    if options.largest_clock_error is not None:
        largest_ns = round(options.largest_clock_error * NS_PER_S)
    try:
        # Those of several ports are refused, as one job.
        is_whole = options.force or len(set(map(port_of, clients))) > 1
        jobs = [Job(clients, is_noted=True)] if is_whole else jobs_of([*clients, *noted])
        histories = histories_of(
            jobs,
            servers=servers,
            largest_ns=largest_ns,
            is_one_job=options.force,
            lost=reading.lost,
        )
    except DifferentJobs as error:
        raise CommandError(
            f"these are not recordings of one run: {error} (--force merges them all the same)"
        ) from None
    except UnknownClocks as error:
        raise CommandError(str(error)) from None
    outs = [recording_path(options.out, number) for number in range(1, 1 + len(histories))]
    for out in outs:
        for path in [path for path in paths if _is_same(path, out)]:
            raise _replaces_input(path, out)
    for out, (joined, recordings) in zip(outs, histories, strict=True):
        save(joined, out)
        for line in lines_about(out, joined, recordings):
            print(plain(line))
    warn_of_earlier_recordings(options.out, len(histories))
    return BAD_INPUT if reading.refused else 0


@dataclass(slots=True)
class Reading:
    """Recordings that were read, and what is to be said of those that could not be.

    Attributes:
      parts: Those that can be used.
      notes: Sentences on what of them cannot, and on empty ones.
      refused: Sentences on files of which nothing can be used.
      lost: Processes whose recordings stopped at once: they may have done what others tell.
    """

    parts: list[Part] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)

    def read(self, path: Path) -> None:
        """Reads one file."""
        with Progress(f"reading {printable(str(path))}") as progress:
            progress.say(f"reading {printable(str(path))}")
            try:
                part = read_part(path)
            except EmptyRecording as error:
                self.notes.append(f"{path}: {error.problem}")
                process = process_in_name(path)
                if process is not None and path.with_name(path.name + STOPPED).exists():
                    self.lost.append(process)
                return
            except (MalformedHistory, OSError) as error:
                self.refused.append(problem_of(error))
                return
        if part.history.header.source not in {"processes", "server"}:
            self.refused.append(
                f"{path}: a history of source {part.history.header.source!r}; what is merged are "
                "recordings of processes, and of services beside them"
            )
            return
        if part.history.header.clock != "monotonic":
            self.refused.append(
                f"{path}: its times are of the clock {part.history.header.clock!r}; what is merged are "
                "recordings of single processes, and this looks like the result of a merge"
            )
            return
        if not part.is_ended and not part.is_stopped and _is_running(part):
            running = (
                f"process {part.gap.process} runs still; what it calls from here on is not known, and "
                f"{STAND_IN}"
            )
            part = replace(part, is_stopped=True, notes=(*part.notes, running))
        self.notes += [f"{path}: {note}" for note in part.notes]
        is_silent = not part.history.events and not part.is_stopped
        if is_silent and part.service_made_ns is None:
            name = part.number("process")
            who = "its process" if name is None else f"process {name}"
            self.notes.append(f"{path}: {who} made a client and never connected")
        self.parts.append(part)

    def say(self) -> None:
        """Prints what there is to say to standard error."""
        for sentence in self.refused:
            complain(sentence)
        for sentence in self.notes:
            print(f"coordlab: {printable(sentence)}", file=sys.stderr)


def _is_running(part: Part) -> bool:
    """Whether the process that is recorded is there, on this machine."""
    pid = part.number("pid")
    if pid is None or part.text("clock_id") != clock_id() or part.is_of_server:
        return False
    state = state_of(pid)
    started = part.history.header.details.get("pid_started")
    return state is not None and not state.is_over and state.started == started


def save(joined: Joined, out: Path) -> None:
    """Writes the result.

    Raises:
      CommandError: it cannot be written.
    """
    try:
        joined.history.save(out)
    except OSError as error:
        # The file that the error names, if any, is one beside it that was to take its place.
        raise CommandError(f"{out} could not be written: {error.strerror or error}") from None


def check_out(out: Path) -> None:
    """Refuses a place for the result that cannot be one."""
    if out.is_dir():
        raise CommandError(f"--out {out} is a folder; name a file in it")
    if not out.absolute().parent.is_dir():
        raise CommandError(f"--out {out}: there is no such folder")


def recordings_in(paths: Sequence[Path], out: Path) -> list[Path]:
    """Files, and those in folders: in `parts` of a folder that was prepared.

    The result of an earlier merge may lie in a folder, and is replaced. Nothing else is: what programs
    wrote cannot be had again.

    Raises:
      CommandError: a path is not there, a folder has no recording, or the result would replace one.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise CommandError(f"{path}: there is no such file or folder")
        if not path.is_dir():
            if _is_same(path, out):
                raise _replaces_input(path, out)
            found[path] = None
            continue
        folder = parts_of(path) if parts_of(path).is_dir() else path
        inside = sorted(folder.glob("*.jsonl"))
        earlier = earlier_recordings(out, 0)
        for file in [file for file in inside if any(_is_same(file, one) for one in earlier)]:
            if not is_merged(file):
                if not _is_same(file, out):
                    continue
                raise _replaces_input(file, out)
            inside.remove(file)
        if not inside:
            raise CommandError(
                f"{folder}: no recording is in it; did the programs run with it on PYTHONPATH, and "
                "call jax.distributed.initialize()?"
            )
        found.update(dict.fromkeys(inside))
    return list(found)


def lines_about(out: Path, joined: Joined, recordings: int) -> list[str]:
    """What a history that was merged is of."""
    hosts = f"{len(joined.hosts)} hosts" if len(joined.hosts) > 1 else "one host"
    everybody = len(joined.history.header.participants)
    summary = (
        f"history: {out} ({len(joined.history.events):,} events; {joined.processes} of {everybody} "
        f"processes, {joined.starts} starts, {recordings} recordings of {hosts})"
    )
    return [
        summary,
        *joined.report,
        *(f"note: {note}" for note in joined.notes),
    ]


def _is_same(file: Path, out: Path) -> bool:
    return file.exists() and out.exists() and file.samefile(out)


def _replaces_input(file: Path, out: Path) -> CommandError:
    return CommandError(
        f"--out {out} would replace {file}, which is one of the recordings; name another file"
    )


def _host_of(text: str) -> tuple[str, str]:
    pattern, _, host = text.rpartition("=")
    if not pattern or not host:
        raise CommandError(f"--host-of {text}: must be PATTERN=HOST, like 'a-*.jsonl=a'")
    return pattern, host


def with_host(part: Part, hosts: Sequence[tuple[str, str]]) -> Part:
    """The part, with the host that the command line gives it."""
    for pattern, host in hosts:
        if fnmatch(part.path.name, pattern) or fnmatch(str(part.path), pattern):
            header = part.history.header
            details = {**header.details, "host": host, "clock_id": host}
            history = replace(part.history, header=replace(header, details=details))
            return replace(part, history=history)
    return part


def _check_hosts(parts: Sequence[Part]) -> None:
    unknown = [part for part in parts if part.text("host") is None]
    if unknown and len(parts) > 1:
        raise CommandError(
            f"{unknown[0].path} does not say by which host's clock it is; say it: --host-of "
            f"'{unknown[0].path.name}=HOST'"
        )
