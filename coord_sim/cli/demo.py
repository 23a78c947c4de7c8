"""`coordlab demo`: the main job, end to end, on real processes and in the simulator."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checker import History, Invalid, LiveProcesses, Verdict, check
from checker.history import Crash, Start
from checker.timeline import timeline
from coord_sim.cli.errors import CommandError
from coord_sim.cli.extras import require
from coord_sim.cli.interrupts import end_like_ctrl_c_on_sigterm
from coord_sim.cli.terminal import ascii_only, use_colour, width
from coord_sim.faults import Crash as CrashFault
from coord_sim.faults import Restart as RestartFault
from coord_sim.schedule import Schedule
from coord_sim.sim import draw_faults, simulate, training_loop
from jax_bridge import workloads
from jax_bridge.conditions import parse_kill, parse_restart
from jax_bridge.errors import LaunchFailed
from jax_bridge.job import Job
from jax_bridge.launcher import run_folder, run_job
from jax_bridge.services import model_service_command, real_service_command

PROCESSES = 3
HEARTBEAT_TIMEOUT_S = 3
REAL_HEARTBEAT_TIMEOUT_S = 6
"""On a busy machine a real process may be late."""
SEEDS_MAX = 500

EXAMPLES = """\
examples:
  coordlab demo
      run everything, leave the histories in demo-out
  coordlab demo --out somewhere --only ghost-real --only sim-naive
      some of the runs
"""


@dataclass(frozen=True, slots=True)
class Part:
    """One run of the demo: what is done, and the verdict it must get."""

    name: str
    what: str
    expected: str
    run: Callable[[Path, Callable[[str], None]], History]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a part."""

    part: Part
    path: Path
    history: History
    verdict: Verdict
    seconds: float

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the expected one."""
        return self.verdict.word == self.part.expected


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "demo",
        help="run, kill, record, check and explain, on real processes and simulated ones",
        description="Runs the main job end to end; exit code 0 if every verdict is as expected.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("demo-out"), metavar="FOLDER")
    parser.add_argument(
        "--only",
        action="append",
        choices=[part.name for part in PARTS],
        help="run only this part; may be given more than once",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs the parts, prints table and timelines."""
    require("jax", "jax", "demo")
    require("grpc", "server", "demo")
    chosen = [part for part in PARTS if not options.only or part.name in options.only]
    options.out.mkdir(parents=True, exist_ok=True)
    end_like_ctrl_c_on_sigterm()
    began = time.monotonic()
    outcomes = []
    for number, part in enumerate(chosen, start=1):
        print(f"\n[{number}/{len(chosen)}] {part.name}: {part.what}", flush=True)
        outcomes.append(_run_part(part, options.out))
    _print_anomalies(outcomes)
    _print_table(outcomes)
    print(f"\nAll of it took {time.monotonic() - began:.0f} s. Look again with:")
    print(f"  coordlab check {options.out}/*.jsonl")
    print(f"  coordlab show --focus {outcomes[-1].path}")
    return 0 if all(outcome.as_expected for outcome in outcomes) else 1


def _run_part(part: Part, folder: Path) -> Outcome:
    path = folder / f"{part.name}.jsonl"
    began = time.monotonic()
    try:
        history = part.run(path, lambda line: print(f"  {line}", flush=True))
    except LaunchFailed as error:
        raise CommandError(str(error)) from None
    verdict = check(history, LiveProcesses())
    seconds = time.monotonic() - began
    mark = "as expected" if verdict.word == part.expected else f"EXPECTED {part.expected}"
    print(f"  verdict: {verdict.word} ({mark})", flush=True)
    return Outcome(part, path, history, verdict, seconds)


# --- the parts -------------------------------------------------------------------------------------


def _real_job(
    service: str, script: str, *arguments: str, kill: str, restart: str
) -> Callable[..., History]:
    def run_part(path: Path, say: Callable[[str], None]) -> History:
        settings: dict[str, Any] = {
            "heartbeat_timeout_s": REAL_HEARTBEAT_TIMEOUT_S,
            "recoverable": True,
        }
        if service == "model":
            command = model_service_command(PROCESSES, semantics="shipped", **settings)
        else:
            command = real_service_command(PROCESSES, **settings)
        job = Job(
            script=Path(workloads.__file__).with_name(script),
            arguments=("{process}", "{processes}", "{address}", *arguments),
            processes=PROCESSES,
            service_command=command,
            service=service,
            out=path,
            faults=(parse_kill(kill), parse_restart(restart)),
            timeout_s=100.0,
        )
        result = run_job(job, say)
        if result.interrupted:
            raise KeyboardInterrupt
        if result.unplanned:
            raise CommandError(f"{'; '.join(result.unplanned)} (recorded so far: {path})")
        _tell_the_story(result.history, path, say)
        return result.history

    return run_part


def _tell_the_story(history: History, path: Path, say: Callable[[str], None]) -> None:
    """Says what the survivors and the newcomer saw."""
    for crash in (event for event in history.events if isinstance(event, Crash)):
        back = next(
            (
                event
                for event in history.events
                if isinstance(event, Start)
                and event.process == crash.process
                and event.lifetime == crash.lifetime + 1
            ),
            None,
        )
        if back is not None:
            say(
                f"process {crash.process} was killed and came back as incarnation "
                f"{back.incarnation}"
            )
    log = run_folder(path) / "logs" / "process-0-0.log"
    told = [
        line
        for line in log.read_text(errors="replace").splitlines()
        if line.startswith(("step", "told"))
    ]
    shown: list[str] = []
    for line in told:
        what = line.partition(": ")[2]
        if not shown or shown[-1].partition(": ")[2] != what:
            shown.append(line)
    for line in shown:
        say(f"process 0 says: {line}")


def _simulated(semantics: str) -> Callable[..., History]:
    schedule = Schedule(
        processes=PROCESSES,
        seed=7,
        faults=(CrashFault(1, 2.0), RestartFault(1, 2.5)),
        semantics=semantics,
    )

    def run_part(path: Path, say: Callable[[str], None]) -> History:
        say(f"seed {schedule.seed}, faults {list(schedule.faults)}")
        history = simulate(training_loop(), schedule).history
        history.save(path)
        return history

    return run_part


def _searched(semantics: str) -> Callable[..., History]:
    def run_part(path: Path, say: Callable[[str], None]) -> History:
        for seed in range(SEEDS_MAX):
            faults = draw_faults(
                seed, PROCESSES, until_s=5.0, heartbeat_timeout_s=HEARTBEAT_TIMEOUT_S
            )
            schedule = Schedule(
                processes=PROCESSES,
                seed=seed,
                faults=faults,
                semantics=semantics,
                heartbeat_timeout_s=HEARTBEAT_TIMEOUT_S,
            )
            history = simulate(training_loop(), schedule).history
            if isinstance(check(history, LiveProcesses()), Invalid):
                say(f"found at seed {seed}, {seed + 1} tried; faults {list(faults)}")
                say(
                    f"replay: coordlab simulate --processes {PROCESSES} --seed {seed} "
                    f"--semantics {semantics} --random-faults"
                )
                break
        else:
            say(f"nothing found in {SEEDS_MAX} seeds")
        history.save(path)
        return history

    return run_part


LIVE_SUM = ("live_sum.py", "200", str(REAL_HEARTBEAT_TIMEOUT_S))
"""More steps than it needs: it ends soon after 1 is back, who was declared dead within 7 s."""
GHOST_PATIENCE_S = "60"
"""Never used up: the others are answered at once."""

PARTS = (
    Part(
        "model",
        "three JAX processes on our gRPC service; 1 is killed inside a block, and restarted",
        "valid",
        _real_job("model", *LIVE_SUM, kill="1@in:block#4", restart="1@+9"),
    ),
    Part(
        "real",
        "the same on the C++ service of jaxlib",
        "valid",
        _real_job("real", *LIVE_SUM, kill="1@in:block#4", restart="1@+9"),
    ),
    Part(
        "ghost-real",
        "the C++ service; 2 is killed inside the barrier, back at once, not calling again yet",
        "invalid",
        _real_job(
            "real", "ghost_entry.py", GHOST_PATIENCE_S, kill="2@in:live_processes#1", restart="2@+0"
        ),
    ),
    Part(
        "sim-published",
        "simulator, service as published; 1 crashes and restarts",
        "valid",
        _simulated("published"),
    ),
    Part(
        "sim-naive",
        "simulator, the guide's naive live_processes: answers at once",
        "invalid",
        _simulated("naive"),
    ),
    Part(
        "sim-shipped",
        "simulator, service as shipped; faults drawn from seeds until a history is invalid",
        "invalid",
        _searched("shipped"),
    ),
)


# --- the report ------------------------------------------------------------------------------------


def _print_anomalies(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        if not isinstance(outcome.verdict, Invalid):
            continue
        print(f"\n=== {outcome.part.name}: {outcome.part.what}\n")
        picture = timeline(
            outcome.history,
            outcome.verdict,
            width=width(),
            colour=use_colour(),
            ascii_only=ascii_only(),
            focus=True,
        )
        print(picture, flush=True)


def _print_table(outcomes: list[Outcome]) -> None:
    print()
    name_width = max(len(outcome.part.name) for outcome in outcomes)
    what_width = max(len(outcome.part.what) for outcome in outcomes)
    print(f"{'run':<{name_width}}  {'what was done':<{what_width}}  verdict  as expected    s")
    for outcome in outcomes:
        print(
            f"{outcome.part.name:<{name_width}}  {outcome.part.what:<{what_width}}  "
            f"{outcome.verdict.word:<7}  {'yes' if outcome.as_expected else 'NO':<11}  "
            f"{outcome.seconds:3.0f}"
        )
