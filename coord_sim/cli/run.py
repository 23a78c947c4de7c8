"""`coordlab run`: real JAX processes, killed and restarted, recorded and checked."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from checker import LiveProcesses, check
from coord_sim.cli.errors import CommandError
from coord_sim.cli.exit_codes import BAD_INPUT, INTERRUPTED, code_of
from coord_sim.cli.extras import require
from coord_sim.cli.interrupts import end_like_ctrl_c_on_sigterm
from coord_sim.cli.numbers import positive_int, positive_seconds
from coord_sim.cli.verdict_text import verdict_lines
from jax_bridge.client_recorder import OPERATIONS
from jax_bridge.conditions import BLOCK, Inside, parse_kill, parse_restart
from jax_bridge.errors import LaunchFailed
from jax_bridge.launcher import Job, model_service_command, real_service_command, run_job

T = TypeVar("T")


EXAMPLES = """\
examples:
  coordlab run --processes 3 --service model --kill 1@in:block#4 --restart 1@+5 --out run.jsonl \\
      -- jax_bridge/workloads/live_sum.py {process} {processes} {address}
      on our service; process 1 dies inside its 4th live_devices block and is back 5 s later
  coordlab run --processes 2 --service real --kill 1@8 --out run.jsonl -- train.py {address} {process}
      on jaxlib's C++ service; process 1 dies 8 s after the start

{process}, {processes} and {address} are filled in. The script stays as it is: jaxlib's client is
wrapped from outside. OPERATION is live_processes, key_value_get, ..., or block. Output of the
processes goes to a folder beside OUT: run.run/logs for run.jsonl. Several kills of one process are for
its starts, in the order given. Exit code: that of the check, or 2 if something was not as planned.
"""


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "run",
        help="run real JAX processes, kill some, record and check",
        description="Runs a script as a job of real processes, on our service or on the C++ one.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--processes", type=positive_int, required=True, metavar="N")
    parser.add_argument("--service", choices=("model", "real"), default="model")
    parser.add_argument("--semantics", choices=("shipped", "published"), default="shipped")
    parser.add_argument(
        "--recoverable",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether others live on when one dies; --no-recoverable is JAX's own default, by which "
        "all share its fate",
    )
    parser.add_argument("--heartbeat-timeout", type=positive_seconds, default=3.0, metavar="S")
    parser.add_argument(
        "--kill",
        action="append",
        default=[],
        type=_argument(parse_kill),
        metavar="P@SECONDS|P@in:OPERATION#K",
    )
    parser.add_argument(
        "--restart",
        action="append",
        default=[],
        type=_argument(parse_restart),
        metavar="P@+SECONDS",
        help="after the kill",
    )
    parser.add_argument("--timeout", type=positive_seconds, default=120.0, metavar="S")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("script", type=Path, metavar="SCRIPT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs the job and checks what it recorded."""
    require("jax", "jax", "run")
    if options.service == "model":
        require("grpc", "server", "run --service model")
    elif options.semantics != "shipped":
        raise CommandError("--semantics is a setting of our service; the real one is as shipped")
    elif not options.heartbeat_timeout.is_integer():
        raise CommandError("--heartbeat-timeout: the real service takes whole seconds only")
    _check_processes(options)
    job = Job(
        script=options.script,
        arguments=tuple(options.arguments),
        processes=options.processes,
        service_command=_service_command(options),
        service=f"model, {options.semantics}" if options.service == "model" else "real",
        out=options.out,
        kills=tuple(options.kill),
        restarts=tuple(options.restart),
        timeout_s=options.timeout,
    )
    end_like_ctrl_c_on_sigterm()
    try:
        result = run_job(job, lambda line: print(line, flush=True))
    except LaunchFailed as error:
        raise CommandError(str(error)) from None
    print(f"history: {job.out} ({len(result.history.events)} events)")
    verdict = check(result.history, LiveProcesses())
    for line in verdict_lines(str(job.out), result.history, verdict):
        print(line)
    for sentence in result.unplanned:
        print(f"not planned: {sentence}")
    if result.interrupted:
        return INTERRUPTED
    return BAD_INPUT if result.unplanned else code_of(verdict)


def _service_command(options: argparse.Namespace) -> tuple[str, ...]:
    timeout_s, recoverable = options.heartbeat_timeout, options.recoverable
    if options.service == "model":
        return model_service_command(
            options.processes,
            heartbeat_timeout_s=timeout_s,
            recoverable=recoverable,
            semantics=options.semantics,
        )
    return real_service_command(
        options.processes, heartbeat_timeout_s=int(timeout_s), recoverable=recoverable
    )


def _check_processes(options: argparse.Namespace) -> None:
    killed = [kill.process for kill in options.kill]
    for process in [*killed, *(restart.process for restart in options.restart)]:
        if process >= options.processes:
            raise CommandError(
                f"there is no process {process}: processes are 0 to {options.processes - 1}"
            )
    for kill in options.kill:
        if isinstance(kill.when, Inside) and kill.when.operation not in (*OPERATIONS, BLOCK):
            raise CommandError(
                f"--kill {kill}: no operation is called {kill.when.operation!r}; one of "
                f"{', '.join([*sorted(OPERATIONS), BLOCK])}"
            )
    for restart in options.restart:
        if restart.process not in killed:
            raise CommandError(
                f"--restart {restart.process}@+{restart.after_s:g} needs a --kill of that process"
            )


def _argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    def parse_argument(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse_argument
