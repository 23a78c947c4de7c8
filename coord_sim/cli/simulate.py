"""`coordlab simulate`: the protocol in virtual time, recorded and checked."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from typing import Any

from checker import Invalid, LiveProcesses, check
from checker.history import Crash as CrashEvent
from coord_sim.cli.errors import CommandError
from coord_sim.cli.exit_codes import code_of, worst
from coord_sim.cli.numbers import SECONDS_MAX, positive_int, positive_seconds
from coord_sim.cli.terminal import Progress
from coord_sim.cli.verdict_text import verdict_lines
from coord_sim.core.identifiers import NS_PER_S, seconds
from coord_sim.core.semantics import SEMANTICS, SHIPPED
from coord_sim.errors import ScheduleError
from coord_sim.faults import Crash, Fault, Restart
from coord_sim.schedule import Schedule
from coord_sim.sim import KILLED, Run, draw_faults, simulate, training_loop

EXAMPLES = """\
examples:
  coordlab simulate --processes 3 --seed 7 --crash 1@2.5 --restart 1@3
      three processes; process 1 dies at 2.5 s and is back at 3 s (virtual time)
  coordlab simulate --processes 4 --seed 1 --semantics naive --out naive.jsonl
      the guide's strawman, which answers at once
  coordlab simulate --processes 3 --random-faults --seeds 500
      draw crashes and restarts from seeds 0 to 499, stop at the first invalid history

Exit code: 0 valid, 1 invalid, 2 bad input, 3 unknown.
"""

FAULTS_UNTIL_S = 5.0
"""Drawn crashes come before this moment."""


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "simulate",
        help="run the protocol in virtual time from a seed, and check it",
        description="Simulates a job that loops over live_devices blocks, and checks its history.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--processes", type=positive_int, default=3, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument(
        "--seeds", type=positive_int, default=1, metavar="N", help="try N seeds from --seed on"
    )
    parser.add_argument("--semantics", choices=list(SEMANTICS), default=SHIPPED.name)
    parser.add_argument("--crash", action="append", default=[], type=_crash, metavar="P@S")
    parser.add_argument("--restart", action="append", default=[], type=_restart, metavar="P@S")
    parser.add_argument(
        "--random-faults", action="store_true", help="draw crashes and restarts from the seed"
    )
    parser.add_argument("--heartbeat-timeout", type=positive_seconds, default=3.0, metavar="S")
    parser.add_argument("--loss", type=float, default=0.0, metavar="P", help="packet loss, 0 to 1")
    parser.add_argument("--steps", type=positive_int, default=8, metavar="N", help="blocks each")
    parser.add_argument("--out", metavar="FILE", help="write the (last) history")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Simulates, writes and checks."""
    if options.random_faults and (options.crash or options.restart):
        raise CommandError("--random-faults draws all faults; leave out --crash and --restart")
    codes = []
    with Progress("seed", options.seeds) as progress:
        for seed in range(options.seed, options.seed + options.seeds):
            progress.step(seed - options.seed)
            outcome = run_seed(options, seed)
            verdict = check(outcome.history, LiveProcesses())
            codes.append(code_of(verdict))
            if isinstance(verdict, Invalid):
                break
    if options.out is not None:
        outcome.history.save(options.out)
        print(f"history: {options.out} ({len(outcome.history.events)} events)")
    for note in notes_on(outcome):
        print(f"note: {note}")
    name = f"seed {seed}" if options.seeds == 1 else f"seed {seed} of {options.seeds} tried"
    for line in verdict_lines(name, outcome.history, verdict):
        print(line)
    if isinstance(verdict, Invalid):
        print(f"replay: {replay_command(options, seed)}")
    return worst(codes)


def notes_on(outcome: Run) -> Iterator[str]:
    """What a reader of the verdict should know: faults that did not happen, processes that gave up."""
    if not outcome.finished:
        yield f"stopped at the limit of {outcome.schedule.limit_s:g} s: somebody never finished"
    events = outcome.history.events
    end_ns = events[-1].time_ns if events else 0
    for fault in outcome.schedule.faults:
        if seconds(fault.at_s) > end_ns:
            yield f"{fault} did not happen: the run was over before"
    for event in events:
        if isinstance(event, CrashEvent) and event.cause != KILLED:
            yield f"process {event.process} ended at {event.time_ns / NS_PER_S:.3f} s: {event.cause}"


def run_seed(options: argparse.Namespace, seed: int) -> Run:
    """One simulated run."""
    faults: tuple[Fault, ...] = (*options.crash, *options.restart)
    if options.random_faults:
        faults = draw_faults(
            seed,
            options.processes,
            until_s=FAULTS_UNTIL_S,
            heartbeat_timeout_s=options.heartbeat_timeout,
        )
    try:
        schedule = Schedule(
            processes=options.processes,
            seed=seed,
            faults=faults,
            semantics=options.semantics,
            heartbeat_timeout_s=options.heartbeat_timeout,
            loss=options.loss,
        )
    except ScheduleError as error:
        raise CommandError(str(error)) from None
    return simulate(training_loop(options.steps), schedule)


def replay_command(options: argparse.Namespace, seed: int) -> str:
    """The command that runs exactly this seed again."""
    words = ["coordlab", "simulate", "--processes", str(options.processes), "--seed", str(seed)]
    words += ["--semantics", options.semantics, "--steps", str(options.steps)]
    words += ["--heartbeat-timeout", repr(options.heartbeat_timeout)]
    if options.loss:
        words += ["--loss", repr(options.loss)]
    if options.random_faults:
        words.append("--random-faults")
    for crash in options.crash:
        words += ["--crash", f"{crash.process}@{crash.at_s!r}"]
    for restart in options.restart:
        words += ["--restart", f"{restart.process}@{restart.at_s!r}"]
    return shlex.join(words)


_FAULT = re.compile(r"(\d+)@(\d+(?:\.\d*)?)")


def _crash(text: str) -> Crash:
    return Crash(*_process_and_time(text))


def _restart(text: str) -> Restart:
    return Restart(*_process_and_time(text))


def _process_and_time(text: str) -> tuple[int, float]:
    match = _FAULT.fullmatch(text)
    if match is None or float(match[2]) > SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form PROCESS@SECONDS, e.g. 1@2.5")
    return int(match[1]), float(match[2])
