"""`coordlab run`: real JAX processes, broken as planned, recorded and checked."""

from __future__ import annotations

import argparse
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from checker import LiveProcesses, Valid, Verdict
from checker.history import Start
from coord_sim.cli.check import judge_service, service_lines
from coord_sim.cli.errors import CommandError
from coord_sim.cli.exit_codes import BAD_INPUT, INTERRUPTED, INVALID, VALID, code_of, worst
from coord_sim.cli.extras import require
from coord_sim.cli.interrupts import end_like_ctrl_c_on_sigterm
from coord_sim.cli.numbers import positive_int, positive_seconds
from coord_sim.cli.scenarios import named_scenario, report_outcome, verdict_word
from coord_sim.cli.terminal import plain
from coord_sim.errors import ScheduleError
from coord_sim.faults import Fault, Restart
from coord_sim.moments import OPERATIONS, When
from coord_sim.scenarios.for_processes import not_for_processes
from coord_sim.scenarios.one_line import parse_fault
from coord_sim.schedule import Schedule, members_of
from coord_sim.sim.run import NEVER_STARTED
from jax_bridge.compat import HEARTBEAT_TIMEOUT_S
from jax_bridge.conditions import in_turn, parse_kill, parse_restart
from jax_bridge.errors import LaunchFailed
from jax_bridge.job import Job, JobResult
from jax_bridge.launcher import fault_in_words, never_reached, run_job
from jax_bridge.platforms import PLATFORMS, count_gpus, environment_for
from jax_bridge.scenario_runs import RealOutcome, Setting, run_scenario_for_real
from jax_bridge.services import model_service_command, real_service_command

T = TypeVar("T")

PROCESSES_MAX = 1000
"""More real processes than any one machine bears."""

_WORKLOADS_TIMEOUT_S = 3.0
_LADDER_TIMEOUTS_S = {"ladder/alive.py": 10.0, "ladder/collective.py": 30.0, "ladder/live.py": 10.0}
"""The heartbeat time-outs that shipped workloads give, by themselves; all others give the first."""

_OF_SCRIPTS = (
    "processes",
    "recoverable",
    "heartbeat_timeout",
    "kill",
    "restart",
    "fault",
    "start",
    "platform",
    "devices",
    "script",
)
"""Options that say nothing beside a scenario."""

EXAMPLES = """\
examples:
  coordlab run --processes 3 --service model --kill 1@in:block#4 --restart 1@+5 --out run.jsonl \\
      -- jax_bridge/workloads/live_sum.py {process} {processes} {address}
      on our service; process 1 dies inside its 4th live_devices block and is back 5 s later
  coordlab run --processes 2 --service real --heartbeat-timeout 10 --kill 1@8 --out run.jsonl \\
      -- train.py {address} {process}
      on jaxlib's C++ service; process 1 dies 8 s after the start, and is declared dead 10 s after that:
      train.py gives heartbeat_timeout_seconds=10 (without both it is 100)
  coordlab run --processes 4 --fault 'partition side=[2] other=["service"] at=5 for_s=4' --start 3@10 \\
      --out run.jsonl -- train.py {address} {process}
      process 2 is cut off for 4 s, process 3 starts late (--start 3@never: not at all)
  coordlab run --scenario single-reset --service real
      a scenario (see `coordlab scenarios`) on real processes: which of its expectations hold?

{process}, {processes} and {address} are filled in. The script stays as it is: jaxlib's client is
wrapped from outside. OPERATION is live_processes, key_value_get, ..., or block. Output of the
processes goes to a folder beside OUT: run.run/logs for run.jsonl. Operations are counted over all
starts of a process; the second --restart of a process is for its second death. Faults of the network go
through a relay before each process.

Exit code: 0 valid, 1 invalid, 3 unknown, as of `coordlab check OUT`; 2 bad input, or something was not
as planned: a process died by itself, a fault never came, the time was over; 130 after Ctrl-C.
Of a scenario: 0 if all expectations hold, 1 if one does not; a history that is not valid counts as for a
script, unless [expect] asks for such a verdict. There processes may die and time may be over; 2 if the
condition of a fault never held. A fault at a time when all had ended already is only noted.
"""


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "run",
        help="run real JAX processes, break some, record and check",
        description="Runs a script as a job of real processes, on our service or on the C++ one.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--processes", type=_process_count, metavar="N")
    parser.add_argument("--service", choices=("model", "real"), default="model")
    parser.add_argument("--semantics", choices=("shipped", "published"))
    parser.add_argument(
        "--recoverable",
        action=argparse.BooleanOptionalAction,
        help="whether others live on when one dies (they do); --no-recoverable is JAX's own default, "
        "by which all share its fate",
    )
    parser.add_argument(
        "--heartbeat-timeout",
        type=positive_seconds,
        metavar="S",
        help="of the service: what the script gives as heartbeat_timeout_seconds (default: "
        f"{HEARTBEAT_TIMEOUT_S}, as jax.distributed has it; of shipped workloads what they give)",
    )
    faults = parser.add_argument_group("faults")
    faults.add_argument(
        "--kill",
        action="append",
        default=[],
        type=_argument(parse_kill),
        metavar="P@SECONDS|P@in:OPERATION#K",
    )
    faults.add_argument(
        "--restart",
        action="append",
        default=[],
        type=_argument(parse_restart),
        metavar="P@+SECONDS",
        help="after the kill",
    )
    faults.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="'KIND KEY=VALUE ...'",
        help="any fault, as in a scenario file: 'pause process=1 at=2.5 for_s=4'",
    )
    faults.add_argument(
        "--start",
        action="append",
        default=[],
        type=_argument(_parse_start),
        metavar="P@SECONDS|P@never",
        help="when a process starts, if not at once",
    )
    scenario = parser.add_argument_group("scenarios")
    scenario.add_argument(
        "--scenario", metavar="NAME|FILE", help="run a scenario, in place of a script"
    )
    scenario.add_argument("--seed", type=int, metavar="S", help="instead of the scenario's")
    parser.add_argument(
        "--platform",
        choices=PLATFORMS,
        help="gpu: set what JAX's guide asks for, and share the GPUs out (docs/gpu.md)",
    )
    parser.add_argument(
        "--devices",
        type=positive_int,
        metavar="N",
        help="with --platform gpu: how many GPUs this machine has, if not as many as are seen",
    )
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        metavar="S",
        help="who still runs then is killed (default: 120, or the scenario's)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("script", type=Path, nargs="?", metavar="SCRIPT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs the job and checks what it recorded."""
    require("jax", "jax", "run")
    if options.service == "model":
        require("google.protobuf", "server", "run --service model")
        require("hpack", "server", "run --service model")
    elif options.semantics not in (None, "shipped"):
        raise CommandError("--semantics is a setting of our service; the real one is as shipped")
    end_like_ctrl_c_on_sigterm()
    try:
        if options.scenario is not None:
            return _run_scenario(options)
        return _run_script(options)
    except LaunchFailed as error:
        raise CommandError(str(error)) from None


class _OnTheWay:
    """Prints what happens while a job runs; standard output that takes no more does not end the job.

    Attributes:
      lost: Why it took no more, or None.
    """

    def __init__(self) -> None:
        self.lost: OSError | None = None

    def say(self, line: str) -> None:
        """Prints a line, if that is possible still."""
        if self.lost is None:
            try:
                print(plain(line), flush=True)
            except OSError as error:
                self.lost = error

    def check(self, saved: Path | None) -> None:
        """Raises why there is nobody to tell a verdict to; the history may be saved nevertheless."""
        if isinstance(self.lost, BrokenPipeError):
            raise self.lost
        if self.lost is not None:
            problem = self.lost.strerror or self.lost
            kept = ""
            if saved is not None:
                kept = f"; the history is kept: coordlab check {shlex.quote(str(saved))}"
            raise CommandError(f"standard output: {problem}{kept}")


# --- a scenario ------------------------------------------------------------------------------------


def _run_scenario(options: argparse.Namespace) -> int:
    for name in _OF_SCRIPTS:
        if getattr(options, name) not in (None, []):
            told = "the script" if name == "script" else f"--{name.replace('_', '-')}"
            raise CommandError(f"--scenario brings its own job and faults; leave out {told}")
    scenario = named_scenario(options.scenario)
    if scenario is None:
        return BAD_INPUT
    on_the_way = _OnTheWay()
    with tempfile.TemporaryDirectory(prefix="coordlab-") as folder:
        out = options.out or Path(folder) / f"{scenario.name}.jsonl"
        setting = Setting(
            service=options.service,
            out=out,
            limit_s=options.timeout,
            say=on_the_way.say,
        )
        try:
            outcome = run_scenario_for_real(
                scenario, verdict_word, setting, seed=options.seed, semantics=options.semantics
            )
        except ScheduleError as error:
            raise CommandError(f"{options.scenario}: {error}") from None
    is_saved = any(end.state != NEVER_STARTED for end in outcome.run.ends)
    on_the_way.check(options.out if is_saved else None)
    history = outcome.run.history
    name = scenario.name
    if not is_saved:
        print(plain(_nothing_started(options.out)))
    elif options.out is not None:
        name = str(out)
        print(f"history: {plain(name)} ({len(history.events)} events)")
    judged = judge_service(history, name, LiveProcesses())
    for line in service_lines(name, judged, quiet=isinstance(judged.worst, Valid)):
        print(line)
    report_outcome(scenario, outcome, f"on the {options.service} service")
    for line in _missed_lines(outcome):
        print(plain(line))
    code = worst(
        (
            BAD_INPUT if outcome.unmet else VALID,
            VALID if outcome.holds else INVALID,
            VALID if _asks_for(outcome, judged.worst) else code_of(judged.worst),
        )
    )
    if code == VALID:
        return VALID
    words = ["coordlab", "run", "--scenario", options.scenario, "--service", options.service]
    for name in ("seed", "semantics", "timeout"):
        if getattr(options, name) is not None:
            words += [f"--{name}", f"{getattr(options, name)}"]
    print(plain(f"again: {shlex.join(words)}"))
    return code


def _missed_lines(outcome: RealOutcome) -> Iterator[str]:
    for fault in outcome.run.missed:
        if fault in outcome.unmet:
            yield f"not planned: {never_reached(fault)}"
        else:
            yield f"note: {fault_in_words(fault)} did not happen: the run was over before"


def _asks_for(outcome: RealOutcome, verdict: Verdict) -> bool:
    """Whether the scenario expects that a history may be judged so, where failures are suspected."""
    expected = outcome.scenario.expectations(outcome.run.schedule.semantics).verdicts or {}
    return any(
        judgement.endswith("-suspicion") and word == verdict.word
        for judgement, word in expected.items()
    )


# --- a script --------------------------------------------------------------------------------------


def _run_script(options: argparse.Namespace) -> int:
    for name in ("processes", "script", "out"):
        if getattr(options, name) is None:
            what = name.upper() if name == "script" else f"--{name}"
            raise CommandError(f"{what} is needed (or --scenario); see coordlab run --help")
    is_timeout_given = options.heartbeat_timeout is not None
    if not is_timeout_given:
        options.heartbeat_timeout = heartbeat_timeout_for(options.script)
    options.recoverable = options.recoverable is not False
    if options.service == "real" and not options.heartbeat_timeout.is_integer():
        raise CommandError("--heartbeat-timeout: the real service takes whole seconds only")
    if options.seed is not None:
        raise CommandError("--seed goes with --scenario")
    timeout_s = 120.0 if options.timeout is None else options.timeout
    semantics = options.semantics or "shipped"
    if options.devices is not None and options.platform != "gpu":
        raise CommandError("--devices goes with --platform gpu")
    devices = options.devices or count_gpus()
    if options.platform == "gpu" and not devices:
        raise CommandError("--platform gpu: no GPU of NVIDIA is seen here; --devices N if there is")

    faults = _faults(options, timeout_s)

    def environment(process: int) -> Mapping[str, str]:
        if options.platform is None:
            return {}
        return environment_for(
            options.platform,
            process=process,
            processes=options.processes,
            devices=devices,
            inherited=os.environ,
        )

    job = Job(
        script=options.script,
        arguments=tuple(options.arguments),
        processes=options.processes,
        service_command=_service_command(options, semantics),
        service=f"model, {semantics}" if options.service == "model" else "real",
        out=options.out,
        faults=faults,
        starts_s=_starts_s(options, timeout_s),
        environment=environment,
        timeout_s=timeout_s,
        settings={
            "heartbeat_timeout_s": options.heartbeat_timeout,
            "recoverable": options.recoverable,
        },
    )
    on_the_way = _OnTheWay()
    result = run_job(job, on_the_way.say)
    on_the_way.check(job.out if result.is_saved else None)
    if not result.is_saved:
        print(plain(_nothing_started(job.out)))
        for sentence in result.unplanned:
            print(plain(f"not planned: {sentence}"))
        return INTERRUPTED if result.interrupted else BAD_INPUT
    print(f"history: {plain(str(job.out))} ({len(result.history.events)} events)")
    judged = judge_service(result.history, str(job.out), LiveProcesses())
    for line in service_lines(str(job.out), judged):
        print(line)
    unplanned = [*result.unplanned, *_too_seldom(result, options.heartbeat_timeout)]
    for note in result.history.notes:
        print(plain(f"note: {note}"))
    for sentence in unplanned:
        print(plain(f"not planned: {sentence}"))
    if faults and not is_timeout_given:
        for sentence in _told_late(result, options.heartbeat_timeout):
            print(f"note: {sentence}")
    if result.interrupted:
        return INTERRUPTED
    if not any(isinstance(event, Start) for event in result.history.events):
        hint = _why_nobody_connected(options)
        print(plain(f"not planned: no process connected to the service at {{address}}{hint}"))
        return BAD_INPUT
    return BAD_INPUT if unplanned else code_of(judged.worst)


def _nothing_started(out: Path | None) -> str:
    """That there is no history; one that lies where it should have been is not taken for it."""
    earlier = f"; {out} is of an earlier run" if out is not None and out.exists() else ""
    return f"nothing was started; no history was written{earlier}"


def heartbeat_timeout_for(script: Path) -> float:
    """The heartbeat time-out of a service that suits a script's clients, as far as can be known."""
    _, is_shipped, name = script.resolve().as_posix().rpartition("/jax_bridge/workloads/")
    if not is_shipped:
        return float(HEARTBEAT_TIMEOUT_S)
    return _LADDER_TIMEOUTS_S.get(name, _WORKLOADS_TIMEOUT_S)


def _too_seldom(result: JobResult, timeout_s: float) -> Iterator[str]:
    """Says whose clients beat too seldom for the service; each beats every half of its time-out."""
    for client_s, whose in _clients_by_timeout(result):
        if client_s / 2 >= timeout_s:
            there = (
                f", or heartbeat_timeout_seconds={timeout_s:.0f} there" if timeout_s >= 1 else ""
            )
            yield (
                f"{whose} every {client_s / 2:g} s, and the service of this run declares who is silent "
                f"for {timeout_s:g} s dead: give --heartbeat-timeout {client_s} here{there}"
            )


def _told_late(result: JobResult, timeout_s: float) -> Iterator[str]:
    for client_s, whose in _clients_by_timeout(result):
        if client_s < timeout_s:
            yield (
                f"{whose} every {client_s / 2:g} s, but the service of this run declares nobody dead "
                f"before {timeout_s:g} s of silence; the script says {client_s}: "
                f"--heartbeat-timeout {client_s}"
            )


def _clients_by_timeout(result: JobResult) -> Iterator[tuple[int, str]]:
    """Heartbeat time-outs of clients, and whose clients beat so, in words."""
    for client_s in sorted(set(result.client_timeouts_s.values())):
        whose = sorted(p for p, own_s in result.client_timeouts_s.items() if own_s == client_s)
        if len(whose) == 1:
            yield client_s, f"process {whose[0]}'s client beats"
        else:
            first = ", ".join(map(str, whose[:-1]))
            yield client_s, f"the clients of processes {first} and {whose[-1]} beat"


def _why_nobody_connected(options: argparse.Namespace) -> str:
    words = " ".join(options.arguments)
    missing = [name for name in ("{process}", "{address}") if name not in words]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        return f"; {' and '.join(missing)} {verb} not among the arguments of the script"
    return "; does the script call jax.distributed.initialize?"


def _service_command(options: argparse.Namespace, semantics: str) -> tuple[str, ...]:
    timeout_s, recoverable = options.heartbeat_timeout, options.recoverable
    if options.service == "model":
        return model_service_command(
            options.processes,
            heartbeat_timeout_s=timeout_s,
            recoverable=recoverable,
            semantics=semantics,
        )
    return real_service_command(
        options.processes, heartbeat_timeout_s=int(timeout_s), recoverable=recoverable
    )


def _faults(options: argparse.Namespace, timeout_s: float) -> tuple[Fault, ...]:
    killed = [kill.process for kill in options.kill]
    for restart in options.restart:
        if restart.process not in killed:
            assert isinstance(restart.at_s, When)
            raise CommandError(
                f"--restart {restart.process}@+{restart.at_s.plus_s:g} needs a --kill of that process"
            )
    others = []
    for text in options.fault:
        try:
            others.append(parse_fault(text, options.processes))
        except ValueError as error:
            raise CommandError(f"--fault: {error}") from None
        reason = not_for_processes(others[-1], options.processes)
        if reason is not None:
            raise CommandError(f"--fault {text}: {reason}")
    for kill in options.kill:
        when = kill.at_s
        if isinstance(when, When) and when.operation not in OPERATIONS:
            raise CommandError(
                f"--kill {when.process}@in:{when.operation}#{when.count}: no operation is called "
                f"{when.operation!r}; one of {', '.join(sorted(OPERATIONS))}"
            )
    faults = (*options.kill, *in_turn(options.restart), *others)
    for fault in faults:
        for member in members_of(fault):
            if isinstance(member, int) and member >= options.processes:
                raise CommandError(
                    f"there is no process {member}: processes are 0 to {options.processes - 1}"
                )
    try:
        Schedule(
            processes=options.processes,
            faults=tuple(fault for fault in faults if not isinstance(fault, Restart)),
            limit_s=timeout_s,
        )
    except ScheduleError as error:
        raise CommandError(str(error)) from None
    return faults


def _starts_s(options: argparse.Namespace, timeout_s: float) -> tuple[float | None, ...]:
    starts_s: list[float | None] = [0.0] * options.processes
    for process, start_s in options.start:
        if process >= options.processes:
            raise CommandError(
                f"there is no process {process}: processes are 0 to {options.processes - 1}"
            )
        if start_s is not None and start_s >= timeout_s:
            raise CommandError(
                f"--start {process}@{start_s:g} is after the end of the run, at {timeout_s:g} s; "
                f"--timeout makes it longer, {process}@never says what you mean"
            )
        starts_s[process] = start_s
    return tuple(starts_s)


def _process_count(text: str) -> int:
    count = positive_int(text)
    if count > PROCESSES_MAX:
        raise argparse.ArgumentTypeError(f"at most {PROCESSES_MAX} real processes, found {text}")
    return count


def _parse_start(text: str) -> tuple[int, float | None]:
    process, at, when = text.partition("@")
    form = f"{text!r} is not of the form P@SECONDS or P@never"
    if not at or not process.isdecimal():
        raise ValueError(form)
    if when == "never":
        return int(process), None
    try:
        start_s = float(when)
    except ValueError:
        raise ValueError(form) from None
    if not 0 <= start_s < float("inf"):
        raise ValueError(form)
    return int(process), start_s


def _argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    def parse_argument(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse_argument
