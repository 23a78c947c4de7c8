"""`coordlab workloads`: small real JAX programs that are worth breaking, and whether they are right."""

from __future__ import annotations

import argparse
import shlex
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from coord_sim.cli.errors import CommandError, complain
from coord_sim.cli.exit_codes import BAD_INPUT, INVALID, VALID
from coord_sim.cli.extras import require
from coord_sim.cli.interrupts import end_like_ctrl_c_on_sigterm
from coord_sim.cli.terminal import plain
from jax_bridge.workloads.catalogue import FAULTS, WORKLOADS, Fault, Workload, named
from jax_bridge.workloads.checking import Outcome, run_workload

EXAMPLES = """\
examples:
  coordlab workloads                            the list
  coordlab workloads fsdp                       what it computes, and what must come of a kill
  coordlab workloads --check                    run all, undisturbed: are the numbers right?
  coordlab workloads --check --fault kill --service real psum
      one process gets SIGKILL in the middle: do the others fail as they must?
  coordlab workloads --check --fault restart train_with_recovery --keep runs

Each is an ordinary script, which `coordlab run` starts as often as there are processes. --check compares
with NumPy in float64 and says how each process ended. Exit code: 0 all as it must be, 1 not, 2 bad
input. What was measured: docs/workloads.md.
"""


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "workloads",
        help="list, explain and check small real JAX programs",
        description="Lists the programs that are shipped, explains some, or runs and checks them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="by default all")
    parser.add_argument("--check", action="store_true", help="run them, and judge how they end")
    parser.add_argument(
        "--service", choices=("model", "real"), default="model", help="our service, or jaxlib's"
    )
    parser.add_argument(
        "--fault",
        choices=FAULTS,
        default="none",
        help="kill: SIGKILL for one process in the middle; restart: and it is started again",
    )
    parser.add_argument(
        "--recoverable",
        action="store_true",
        help="whether the others outlive a process that dies; those that train on always do",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep histories and output of the processes"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Lists, explains or checks."""
    try:
        chosen = [named(name) for name in options.names] or list(WORKLOADS)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if options.check:
        return _check(chosen, options)
    for name in ("service", "fault", "recoverable", "keep"):
        if getattr(options, name) not in (False, None, "model", "none"):
            raise CommandError(f"--{name} goes with --check")
    if options.names:
        _explain(chosen)
    else:
        _list(chosen)
    return VALID


def _list(workloads: Iterable[Workload]) -> None:
    longest = max(len(workload.name) for workload in WORKLOADS)
    for workload in workloads:
        print(plain(f"{workload.name:{longest}}  {workload.title}"))


def _explain(workloads: Iterable[Workload]) -> None:
    for number, workload in enumerate(workloads):
        if number:
            print()
        print(plain(f"{workload.name}: {workload.title}"))
        for line in workload.explanation.splitlines()[1:]:
            print(plain(line))
        print()
        for fault in workload.faults:
            print(plain(f"{_in_words(workload, fault)}: {workload.expectation(fault)}"))
        print()
        words = ["coordlab", "run", "--processes", str(workload.processes), "--kill", workload.kill]
        words += ["--restart", f"{workload.victim}@+{workload.restart_s:g}"]
        words += ["--out", f"{workload.name}.jsonl", "--", str(workload.script)]
        print(plain(f"{shlex.join(words)} {{process}} {{processes}} {{address}}"))


def _in_words(workload: Workload, fault: Fault) -> str:
    killed = f"process {workload.victim} killed ({workload.kill.partition('@')[2]})"
    return {"none": "undisturbed", "kill": killed, "restart": f"{killed} and restarted"}[fault]


def _check(workloads: Iterable[Workload], options: argparse.Namespace) -> int:
    require("jax", "jax", "workloads --check")
    require("numpy", "jax", "workloads --check")
    if options.service == "model":
        require("google.protobuf", "server", "workloads --check --service model")
    if options.keep is not None and options.keep.exists() and not options.keep.is_dir():
        raise CommandError(f"--keep {options.keep}: it is there, and no folder")
    end_like_ctrl_c_on_sigterm()
    failed = ran = 0
    with ExitStack() as stack:
        folder = options.keep
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coordlab-")))
        folder.mkdir(parents=True, exist_ok=True)
        for workload in workloads:
            if options.fault not in workload.faults:
                print(
                    plain(
                        f"{workload.name}: not run: it shows nothing with --fault {options.fault}"
                    )
                )
                continue
            outcome = run_workload(
                workload,
                folder,
                service=options.service,
                fault=options.fault,
                recoverable=options.recoverable,
            )
            _report(workload, options.fault, outcome)
            ran += 1
            failed += bool(outcome.problems)
    if not ran:
        complain("nothing was run")
        return BAD_INPUT
    print(f"{ran - failed} of {ran} as they must be, on the {options.service} service")
    return INVALID if failed else VALID


def _report(workload: Workload, fault: Fault, outcome: Outcome) -> None:
    word = "NOT as it must be" if outcome.problems else "as it must be"
    print(plain(f"{workload.name}: {word} ({outcome.wall_s:.1f} s)"), flush=True)
    for life in outcome.lives:
        print(plain(f"  {life}"))
    for problem in outcome.problems:
        print(plain(f"  PROBLEM: {problem}"))
    if outcome.problems:
        print(plain(f"  must be: {workload.expectation(fault)}"))
