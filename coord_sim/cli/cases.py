"""What a simulated job is, on the command line: its program and its settings."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from coord_sim.cli.errors import CommandError
from coord_sim.cli.numbers import positive_int, positive_seconds
from coord_sim.core.semantics import SEMANTICS, SHIPPED
from coord_sim.faults import Fault
from coord_sim.scenarios.arguments import argument_problems
from coord_sim.scenarios.one_line import parse_fault, parse_setting
from coord_sim.schedule import Schedule
from coord_sim.sim import Program
from coord_sim.sim.case import Case
from coord_sim.sim.programs import PROGRAMS


def add_case_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say what runs, but for its seed and its faults."""
    job = parser.add_argument_group("job")
    job.add_argument("--processes", type=positive_int, default=3, metavar="N")
    job.add_argument("--program", default="training_loop", metavar="NAME", help=_programs())
    job.add_argument(
        "--argument",
        action="append",
        default=[],
        type=_argument,
        metavar="KEY=VALUE",
        help="of the program, e.g. steps=3",
    )
    job.add_argument(
        "--steps", type=positive_int, metavar="N", help="the same as --argument steps=N"
    )
    job.add_argument("--semantics", choices=list(SEMANTICS), help=f"{SHIPPED.name} if left out")
    job.add_argument("--mutant", default="", metavar="NAME", help="a known-wrong variant")
    job.add_argument("--heartbeat-timeout", type=positive_seconds, default=3.0, metavar="S")
    job.add_argument("--loss", type=float, default=0.0, metavar="P", help="packet loss, 0 to 1")
    job.add_argument(
        "--job",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any other setting, as under [job] in a scenario file: durable=true",
    )


def named_program(options: argparse.Namespace) -> Program:
    """The program that the options name, with its arguments.

    Raises:
      CommandError, CaseError: there is none, or it takes other arguments.
    """
    if options.steps is not None:
        options.argument = [*options.argument, ("steps", options.steps)]
        options.steps = None
    arguments: Mapping[str, Any] = dict(options.argument)
    if ":" in options.program:
        return Case(options.program, Schedule(processes=1), arguments).make_program()
    for path, problem in argument_problems(options.program, arguments, options.processes):
        name = f"{path[1]}: " if len(path) > 1 and path[1] != "name" else ""
        raise CommandError(f"--program {options.program}: {name}{problem}")
    return PROGRAMS[options.program](**arguments)


def named_faults(options: argparse.Namespace) -> list[Fault]:
    """The faults that the options write out.

    Raises:
      CommandError: one is none.
    """
    try:
        return [parse_fault(text, options.processes) for text in options.fault]
    except ValueError as error:
        raise CommandError(f"--fault: {error}") from None


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """The other settings that the options write out.

    Raises:
      CommandError: there is no such setting, or it has other values.
    """
    try:
        return dict(parse_setting(text, options.processes) for text in options.job)
    except ValueError as error:
        raise CommandError(f"--job: {error}") from None


def case_words(options: argparse.Namespace) -> list[str]:
    """The options again, as words of a command."""
    words = ["--processes", str(options.processes), "--program", options.program]
    for key, value in options.argument:
        words += ["--argument", f"{key}={value}"]
    words += ["--semantics", options.semantics or SHIPPED.name]
    words += ["--heartbeat-timeout", repr(options.heartbeat_timeout)]
    if options.mutant:
        words += ["--mutant", options.mutant]
    if options.loss:
        words += ["--loss", repr(options.loss)]
    for setting in options.job:
        words += ["--job", setting]
    return words


def _programs() -> str:
    return f"one of {', '.join(PROGRAMS)}, FILE.py:FUNCTION or MODULE:FUNCTION (training_loop)"


def _argument(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    if not separator or not key.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE, e.g. steps=3")
    for kind in (int, float):
        try:
            return key, kind(value)
        except ValueError:
            continue
    words = {"true": True, "false": False}
    return key, words.get(value, value)
