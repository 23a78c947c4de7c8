"""`coordlab record`: any program's clients of the coordination service, recorded from inside."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from checker.clocks import Joined, UnknownClocks, jobs_of
from checker.printable import printable
from coord_sim.cli.commands import exit_code_of_command, running, without_dashes
from coord_sim.cli.errors import CommandError, complain
from coord_sim.cli.joining import histories_of
from coord_sim.cli.merge import Reading, check_out, lines_about, save
from coord_sim.cli.recordings import recording_path, warn_of_earlier_recordings
from coord_sim.undisturbed import undisturbed
from jax_bridge.recorder.ends import Ends
from jax_bridge.recorder.preparation import InTheWay, parts_of, prepare, recording, startup_of

EXAMPLES = """\
examples:
  coordlab record -- python train.py --steps 100
      whatever connects to a coordination service, here or in children, is recorded to run.jsonl
  coordlab record --out four.jsonl -- bash launch_four_processes.sh
  coordlab wrap -- coordlab record -- python train.py
      on our service; the other way round does as well
  coordlab record --prepare recording
      for processes that a scheduler starts on many hosts: makes a folder, and prints the variable
      that they need; then: coordlab merge recording --out run.jsonl

The command stays as it is: jaxlib's client class is wrapped from outside, and every event is one write
to a file of the process's own. A second service's job is written to run-2.jsonl. Exit code: the
command's, or 128 + the number of the signal that ended it. If coordlab itself is killed, the command
goes on, and so do its recordings, in run.parts: coordlab merge run.parts --out run.jsonl. Out of reach:
`python -E`, `-I` or `-S`, programs that set PYTHONPATH for their children, and other machines without
--prepare.
"""

NOTHING = (
    "coordlab: warning: no program made a client of a coordination service, so there is nothing to "
    "record (does it call jax.distributed.initialize()? A `python -E`, `-I` or `-S` is out of reach)"
)

NOTHING_YET = "coordlab: no program has made a client of a coordination service yet"

PATIENCE_S = 2.0
"""So long processes that outlive the command may take to end."""

_SCAN_S = 0.05


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "record",
        help="record what any program asks of its coordination service",
        description="Runs a command and records its clients of the coordination service.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="coordlab record [-h] [--out FILE] [--keep-parts] -- COMMAND ...\n"
        "       coordlab record --prepare FOLDER",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the history (default: run.jsonl)")
    parser.add_argument(
        "--keep-parts",
        action="store_true",
        help="keep what each process wrote, in the folder OUT without .jsonl and with .parts",
    )
    parser.add_argument(
        "--prepare",
        type=Path,
        metavar="FOLDER",
        help="run nothing: make a folder by which processes started elsewhere are recorded",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    parser.set_defaults(run=run, usage_error=parser.error)


def run(options: argparse.Namespace) -> int:
    """Prepares a folder, or runs the command to its end; its exit code."""
    words = without_dashes(options.command)
    if options.prepare is not None:
        if words or options.out is not None or options.keep_parts:
            options.usage_error("--prepare runs nothing: give no command and no other option")
        return _prepare(options.prepare)
    if not words:
        options.usage_error("a command is needed, after `--`; or --prepare FOLDER")
    out = Path("run.jsonl") if options.out is None else options.out
    check_out(out)
    folder = out.with_name(out.name.removesuffix(".jsonl") + ".parts")
    _make(folder, for_other_machines=False)
    with _kept_if_interrupted(folder, out):
        try:
            with running(words, recording(os.environ, folder), ends_with_us=False) as command:
                ends = Ends(parts_of(folder))
                ends.start()
                code = command.wait()
                deadline_s = time.monotonic() + PATIENCE_S
                left = _left_behind(folder, deadline_s)
                patience_s = max(0.0, deadline_s - time.monotonic())
                report = ends.finish(command.pid, _wait_status(code), patience_s)
        except CommandError:
            shutil.rmtree(folder)
            raise
        for sentence in (*report.running, *report.problems):
            print(f"coordlab: {printable(sentence)}", file=sys.stderr)
        is_merged = _merge(folder, out, is_over=not left)
    if left:
        print(
            f"coordlab: the command has left processes behind (pid {', '.join(map(str, left))}), whose "
            f"clients are recorded in {printable(str(folder))}, which is kept; when they have ended: "
            f"{printable(_merge_command(folder, out))}",
            file=sys.stderr,
        )
    elif is_merged and not options.keep_parts and not report.running:
        with undisturbed(signal.SIGINT):  # Half of the recordings would look like all of them.
            shutil.rmtree(folder)
    return exit_code_of_command(code)


@contextlib.contextmanager
def _kept_if_interrupted(folder: Path, out: Path) -> Iterator[None]:
    """Says what makes a history of the recordings if Ctrl-C ends us before they are merged.

    A folder in which nobody has recorded anything, or will, is removed.
    """
    try:
        yield
    except KeyboardInterrupt:
        if any(parts_of(folder).iterdir()) or _recorded_processes(folder):
            print(
                f"coordlab: the recordings are kept in {printable(str(parts_of(folder)))}; when all "
                f"processes have ended: {printable(_merge_command(folder, out))}",
                file=sys.stderr,
            )
        else:
            shutil.rmtree(folder)
        raise


def _left_behind(folder: Path, deadline_s: float) -> list[int]:
    """The processes that would be recorded in the folder and have not ended by the deadline."""
    while True:
        left = _recorded_processes(folder)
        if not left or time.monotonic() > deadline_s:
            return left
        time.sleep(_SCAN_S)


def _recorded_processes(folder: Path) -> list[int]:
    """The processes with the folder's start-up path in their environment; they inherit it."""
    startup = os.fsencode(startup_of(folder).absolute())
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # It has ended, or is another user's.
            for variable in (process / "environ").read_bytes().split(b"\0"):
                name, _, value = variable.partition(b"=")
                if name == b"PYTHONPATH" and startup in value.split(os.fsencode(os.pathsep)):
                    found.append(int(process.name))
    return sorted(found)


def _prepare(folder: Path) -> int:
    _make(folder, for_other_machines=True)
    startup = shlex.quote(str(startup_of(folder).absolute()))
    print(f"export PYTHONPATH={startup}${{PYTHONPATH:+:$PYTHONPATH}}")
    print(
        "coordlab: set this for every process of the job; the folder, or a copy of it, must be there "
        f"and be writable. Then: {printable(_merge_command(folder, 'run.jsonl'))}",
        file=sys.stderr,
    )
    return 0


def _make(folder: Path, *, for_other_machines: bool) -> None:
    startup = startup_of(folder).absolute()
    if os.pathsep in str(startup):
        raise CommandError(
            f"{startup}: programs are recorded by a folder on PYTHONPATH, which ends a path at each "
            f"{os.pathsep!r}; name a folder without one"
        )
    try:
        prepare(folder, for_other_machines=for_other_machines)
    except InTheWay as error:
        raise CommandError(
            f"{error}; if it holds recordings that were not merged: {_merge_command(folder, '...')}"
        ) from None


def _merge_command(folder: Path, out: Path | str) -> str:
    """What makes a history of the recordings in a folder."""
    return f"coordlab merge {shlex.quote(str(folder))} --out {shlex.quote(str(out))}"


def _merge(folder: Path, out: Path, *, is_over: bool) -> bool:
    """Merges what the processes wrote; whether that is now in the history, all of it.

    Args:
      folder: As prepared.
      out: The history.
      is_over: Whether nobody is left who could write more.
    """
    reading = Reading()
    for path in sorted(parts_of(folder).glob("*.jsonl")):
        reading.read(path)
    reading.say()
    is_merged = not reading.refused
    if not any(part.service_made_ns is None for part in reading.parts) and is_merged:
        print(NOTHING if is_over else NOTHING_YET, file=sys.stderr)
    histories: list[tuple[Joined, int]] = []
    for job in jobs_of(reading.parts):
        try:
            histories += histories_of([job], is_one_job=True, lost=reading.lost)
        except UnknownClocks as error:
            complain(str(error))
            is_merged = False
    for number, (joined, parts) in enumerate(histories, start=1):
        path = recording_path(out, number)
        try:
            save(joined, path)
        except CommandError as error:
            complain(str(error))
            is_merged = False
            continue
        for line in lines_about(path, joined, parts):
            print(f"coordlab: {printable(line)}", file=sys.stderr)
    if not is_merged:
        complain(f"what the processes wrote is kept in {parts_of(folder)}")
    warn_of_earlier_recordings(out, len(histories))
    return is_merged


def _wait_status(code: int) -> int:
    """A return code of `Popen` as wait(2) tells it."""
    return -code if code < 0 else code << 8
