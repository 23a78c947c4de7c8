"""`coordlab simulate`: the protocol in virtual time, recorded and checked."""

from __future__ import annotations

import argparse
import hashlib
import re
import shlex
from collections.abc import Iterator
from typing import Any

from checker import Invalid, LiveProcesses, Valid, Verdict, check
from checker.history import Crash as CrashEvent
from coord_sim.cli.cases import (
    add_case_options,
    case_words,
    named_faults,
    named_program,
    settings_of,
)
from coord_sim.cli.errors import CommandError
from coord_sim.cli.exit_codes import INVALID, code_of, worst
from coord_sim.cli.judges import raised
from coord_sim.cli.numbers import SECONDS_MAX, positive_int
from coord_sim.cli.scenarios import add_scenario_options, notes_on_missed, simulate_scenario
from coord_sim.cli.terminal import Progress, plain
from coord_sim.cli.verdict_text import verdict_lines
from coord_sim.core.identifiers import NS_PER_S
from coord_sim.core.semantics import SHIPPED
from coord_sim.errors import ProgramError, ScheduleError
from coord_sim.faults import Crash, Fault, Restart
from coord_sim.scenarios.one_line import fault_line, setting_lines
from coord_sim.schedule import Schedule
from coord_sim.sim import KILLED, Run, Tape, draw_faults, simulate
from coord_sim.sim.case import Case, CaseError
from coord_sim.sim.nemesis import draw_schedule
from coord_sim.sim.shrinking import Budget, shrink
from coord_sim.sim.tapes import TapeError, load_tape, save_tape

EXAMPLES = """\
examples:
  coordlab simulate --processes 3 --seed 7 --crash 1@2.5 --restart 1@3
      three processes; process 1 dies at 2.5 s and is back at 3 s (virtual time)
  coordlab simulate --processes 4 --seed 1 --semantics naive --out naive.jsonl
      the guide's strawman, which answers at once
  coordlab simulate --random-faults --seeds 500
      draw crashes and restarts from seeds 0 to 499, stop at the first invalid history
  coordlab simulate --swarm --semantics published --seeds 500
      every kind of fault, drawn anew for each seed, and progress demanded at the end
  coordlab simulate --scenario single-reset
      what is known to go wrong, by name: see coordlab scenarios
  coordlab simulate --seed 8 --random-faults --tape run.tape && coordlab simulate --replay run.tape
      keep all draws of a run, and replay it after the code has changed

Exit code: 0 valid, 1 invalid (or no progress, a program that raised, not deterministic), 2 bad input,
3 unknown.
"""

FAULTS_UNTIL_S = 5.0
"""Drawn crashes come before this moment."""

_SHRINKING_RUNS = 1000
_SHRINKING_S = 20.0


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "simulate",
        help="run the protocol in virtual time from a seed, and check it",
        description="Simulates a job that loops over live_devices blocks, and checks its history.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_case_options(parser)
    parser.add_argument("--seed", type=int, metavar="S", help="0 if left out")
    parser.add_argument(
        "--seeds", type=positive_int, default=1, metavar="N", help="try N seeds from --seed on"
    )
    faults = parser.add_argument_group("faults")
    faults.add_argument("--crash", action="append", default=[], type=_crash, metavar="P@S")
    faults.add_argument("--restart", action="append", default=[], type=_restart, metavar="P@S")
    faults.add_argument(
        "--random-faults", action="store_true", help="draw crashes and restarts from the seed"
    )
    faults.add_argument(
        "--swarm", action="store_true", help="draw faults of every kind from the seed"
    )
    faults.add_argument(
        "--no-stalls",
        action="store_true",
        help="with --swarm: nobody stands still for longer than the time-out",
    )
    faults.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="'KIND KEY=VALUE ...'",
        help="any fault, as in a scenario file: 'pause process=1 at=2.5 for_s=4'",
    )
    parser.add_argument("--failures", choices=["suspicion", "crash-stop"], default="suspicion")
    parser.add_argument(
        "--no-shrink", action="store_true", help="do not look for the shortest schedule that fails"
    )
    parser.add_argument("--out", metavar="FILE", help="write the (last) history")
    add_scenario_options(parser)
    again = parser.add_argument_group("again")
    again.add_argument("--tape", metavar="FILE", help="write the draws of the (last) run")
    again.add_argument("--replay", metavar="FILE", help="play a tape, in place of all the above")
    again.add_argument(
        "--twice", action="store_true", help="run each seed twice, and compare the histories"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Simulates, writes and checks."""
    if options.scenario is not None:
        _refuse_beside(options, "scenario", ("seed", "seeds", "semantics", "out"))
        seeds = None
        if options.seed is not None or options.seeds > 1:
            seeds = range(options.seed or 0, (options.seed or 0) + options.seeds)
        try:
            return simulate_scenario(
                options.scenario, seeds=seeds, semantics=options.semantics, out=options.out
            )
        except ScheduleError as error:
            raise CommandError(f"{options.scenario}: {error}") from None
    try:
        if options.replay is not None:
            _refuse_beside(options, "replay", ("failures", "out"))
            return _replay(options)
        return _simulate(options)
    except (CaseError, ScheduleError, ProgramError, TapeError) as error:
        raise CommandError(str(error)) from None


def _refuse_beside(options: argparse.Namespace, name: str, others: tuple[str, ...]) -> None:
    """Refuses options that would do nothing beside one that brings its own job and faults."""
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    usual = vars(parser.parse_args(["simulate"]))
    for other, value in vars(options).items():
        if other not in (name, *others) and value != usual.get(other, value):
            raise CommandError(
                f"--{name} brings its own job and faults; leave out --{other.replace('_', '-')}"
            )


def _simulate(options: argparse.Namespace) -> int:
    if options.random_faults or options.swarm:
        if options.crash or options.restart or options.fault:
            drawn = "--swarm" if options.swarm else "--random-faults"
            raise CommandError(f"{drawn} draws all faults; leave out --crash and --restart")
    if options.random_faults and options.swarm:
        raise CommandError("--swarm draws crashes too; leave out --random-faults")
    program = named_program(options)
    first, codes = options.seed or 0, []
    with Progress("seed", options.seeds) as progress:
        for seed in range(first, first + options.seeds):
            progress.step(seed - first)
            schedule = _schedule(options, seed)
            case = Case(options.program, schedule, dict(options.argument))
            tape = None if options.tape is None else Tape()
            outcome = simulate(program, schedule, tape=tape)
            verdict = check(outcome.history, LiveProcesses(failures=options.failures))
            codes.append(_code_of(outcome, verdict))
            if options.twice:
                difference = _difference(outcome, simulate(program, schedule))
                if difference is not None:
                    print(f"seed {seed}: not deterministic: {plain(difference)}")
                    return INVALID
            if codes[-1] == INVALID:
                break
    if tape is not None:
        save_tape(options.tape, case, tape)
        print(f"tape: {options.tape}")
    name = f"seed {seed}" if options.seeds == 1 else f"seed {seed} of {options.seeds} tried"
    _report(options, name, outcome, verdict)
    if options.twice:
        print("each seed gave the same history twice")
    if codes[-1] == INVALID:
        print(f"replay: {replay_command(options, seed)}")
        if (options.random_faults or options.swarm) and not options.no_shrink:
            _print_shortest(options, case, verdict)
    return worst(codes)


def _print_shortest(options: argparse.Namespace, case: Case, verdict: Verdict) -> None:
    """Says which shortest schedule fails in the same way, and how to run it."""
    spec = LiveProcesses(failures=options.failures)
    kind = verdict.anomaly.kind if isinstance(verdict, Invalid) else None

    def fails(candidate: Case) -> bool:
        run = candidate.run()
        found = check(run.history, spec)
        if kind is None:
            return isinstance(found, Valid) and not run.finished
        return isinstance(found, Invalid) and found.anomaly.kind == kind

    shrunk = shrink(case, fails, Budget(runs=_SHRINKING_RUNS, time_s=_SHRINKING_S))
    print(f"shrunk: {shrunk}")
    print(f"shortest: {command_of(shrunk.after, options.failures)}")


def _replay(options: argparse.Namespace) -> int:
    case, tape = load_tape(options.replay)
    outcome = simulate(case.make_program(), case.schedule, tape=tape)
    verdict = check(outcome.history, LiveProcesses(failures=options.failures))
    departure = tape.departure()
    if departure is not None:
        print(f"note: the code has changed, and the run is not the one of the tape: {departure}")
    _report(options, f"tape {options.replay}", outcome, verdict)
    return _code_of(outcome, verdict)


def _code_of(outcome: Run, verdict: Verdict) -> int:
    """The exit code: no progress and a program that raised are as bad as an invalid history."""
    is_failed = _is_stuck(outcome) or raised(outcome) is not None
    return INVALID if is_failed else code_of(verdict)


def _is_stuck(outcome: Run) -> bool:
    """Whether somebody did not get on although nothing was wrong any more."""
    return outcome.schedule.quiet_from_s is not None and not outcome.finished


def _report(options: argparse.Namespace, name: str, outcome: Run, verdict: Verdict) -> None:
    if options.out is not None:
        outcome.history.save(options.out)
        print(f"history: {options.out} ({len(outcome.history.events)} events)")
    for note in notes_on(outcome):
        print(f"note: {plain(note)}")
    for line in verdict_lines(name, outcome.history, verdict):
        print(line)
    failure = raised(outcome)
    if failure is not None:
        print(plain(f"failed: {failure.explanation}"))
    elif _is_stuck(outcome):
        print("failed: no progress, although nothing was wrong any more")


def notes_on(outcome: Run) -> Iterator[str]:
    """What a reader of the verdict should know: faults that did not happen, processes that gave up."""
    if not outcome.finished:
        waiting = ", ".join(
            f"process {end.process} waits for {end.waits_for}"
            for end in outcome.ends
            if end.waits_for
        )
        yield f"stopped at {outcome.end_s:g} s: somebody never finished ({waiting or 'nobody waits'})"
    yield from notes_on_missed(outcome)
    for event in outcome.history.events:
        if isinstance(event, CrashEvent) and event.cause not in (None, KILLED):
            yield f"process {event.process} ended at {event.time_ns / NS_PER_S:.3f} s: {event.cause}"
    for line in outcome.log:
        yield str(line)


def _schedule(options: argparse.Namespace, seed: int) -> Schedule:
    faults: tuple[Fault, ...] = (*options.crash, *options.restart, *named_faults(options))
    if options.random_faults:
        faults = draw_faults(
            seed,
            options.processes,
            until_s=FAULTS_UNTIL_S,
            heartbeat_timeout_s=options.heartbeat_timeout,
        )
    settings: dict[str, Any] = {
        "heartbeat_timeout_s": options.heartbeat_timeout,
        "loss": options.loss,
        **settings_of(options),
    }
    schedule = Schedule(
        processes=options.processes,
        seed=seed,
        faults=faults,
        semantics=options.semantics or SHIPPED.name,
        mutant=options.mutant,
        **settings,
    )
    if options.swarm:
        return draw_schedule(seed, schedule, stalls=not options.no_stalls)
    return schedule


def _difference(first: Run, second: Run) -> str | None:
    """Where two runs of one schedule differ; None if nowhere."""
    texts = [run.history.to_text().splitlines() for run in (first, second)]
    hashes = [hashlib.sha256("\n".join(text).encode()).digest() for text in texts]
    if hashes[0] == hashes[1]:
        return None
    for number, (one, another) in enumerate(zip(*texts, strict=False)):
        if one != another:
            return f"line {number + 1} of the history was {one}, and then {another}"
    return f"the history had {len(texts[0])} lines, and then {len(texts[1])}"


def replay_command(options: argparse.Namespace, seed: int) -> str:
    """The command that runs exactly this seed again."""
    words = ["coordlab", "simulate", "--seed", str(seed), *case_words(options)]
    flags = ("random_faults", "swarm", "no_stalls")
    words += [f"--{flag.replace('_', '-')}" for flag in flags if getattr(options, flag)]
    if options.failures != "suspicion":
        words += ["--failures", options.failures]
    for crash in options.crash:
        words += ["--crash", _process_at(crash)]
    for restart in options.restart:
        words += ["--restart", _process_at(restart)]
    for fault in options.fault:
        words += ["--fault", fault]
    return shlex.join(words)


def command_of(case: Case, failures: str) -> str:
    """The command that runs a case."""
    schedule = case.schedule
    words = ["coordlab", "simulate", "--seed", str(schedule.seed)]
    words += ["--processes", str(schedule.processes), "--program", case.program]
    for key, value in case.arguments.items():
        words += ["--argument", f"{key}={value}"]
    words += ["--semantics", schedule.semantics]
    if schedule.mutant:
        words += ["--mutant", schedule.mutant]
    for fault in schedule.faults:
        words += ["--fault", fault_line(fault)]
    for setting in setting_lines(schedule):
        words += ["--job", setting]
    if failures != "suspicion":
        words += ["--failures", failures]
    return shlex.join(words)


def _process_at(fault: Crash | Restart) -> str:
    """As `_process_and_time` reads it: without an exponent."""
    return f"{fault.process}@{fault.at_s:.12f}".rstrip("0").rstrip(".")


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
