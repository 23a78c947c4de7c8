"""`coordlab doctor`: checks a planned job, and says at which stage one hangs that is starting."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from coord_sim.cli.errors import CommandError
from coord_sim.cli.numbers import positive_int, positive_seconds, task_count
from coord_sim.cli.terminal import plain

if TYPE_CHECKING:
    from jax_bridge.doctor import Finding
    from jax_bridge.doctor.addresses import Address

FAULTY = 1
"""Exit code: an error was found, or the job hangs."""

UNSEEN = "service"
"""The check that a service answers, and tells how its job stands."""

_PATIENCE_S = 20.0

_ONLY_BEFORE = ("address", "bind", "processes", "process", "hosts", "script")
"""Options of the checks of a planned job."""

EXAMPLES = """\
examples:
  coordlab doctor --address train-0.jobs:8476 --processes 8 --hosts 8 --process 0 --script train.py
      on the machine of process 0, before the job starts: can the service listen there?
  coordlab doctor --address train-0.jobs:8476 --processes 8 --process 3
      on another machine: is the service to be reached from here?
  coordlab doctor --attach train-0.jobs:8476
      while the job hangs: name, TCP, HTTP/2, registration (who is missing), topology
  coordlab doctor --watch -- python train.py
      runs the program, and says which stage of its start it is in when it stays there too long

Exit code: 0 nothing is wrong (warnings do not count), 1 an error, or the job hangs; 2 bad input.
With --watch, that of the program if it ends by itself. SIGTERM and its like are passed on to it.
"""


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "doctor",
        help="check a planned job, or find where a starting one hangs",
        description="Checks what a job of JAX processes needs to start.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="coordinator_address (default: JAX_COORDINATOR_ADDRESS)",
    )
    parser.add_argument(
        "--bind", metavar="HOST:PORT", help="coordinator_bind_address, if it is set"
    )
    parser.add_argument("--processes", type=task_count, metavar="N", help="num_processes")
    parser.add_argument(
        "--process", type=_process, metavar="I", help="process_id of the process that runs here"
    )
    parser.add_argument("--hosts", type=positive_int, metavar="N", help="on how many machines")
    parser.add_argument(
        "--script", action="append", default=[], metavar="FILE", help="look through a program, too"
    )
    parser.add_argument("--json", action="store_true", help="print a list for programs")
    starting = parser.add_argument_group("while a job starts")
    starting.add_argument(
        "--attach", metavar="HOST:PORT", help="say how far a process comes with this service"
    )
    starting.add_argument(
        "--watch", action="store_true", help="run COMMAND, and watch the stages of its start"
    )
    starting.add_argument(
        "--patience",
        type=positive_seconds,
        metavar="SECONDS",
        help=f"with --watch: a stage that takes longer is a hang (default: {_PATIENCE_S:g})",
    )
    starting.add_argument(
        "--give-up", action="store_true", help="with --watch: end the program when it hangs"
    )
    starting.add_argument(
        "--timeout",
        type=positive_seconds,
        default=5.0,
        metavar="SECONDS",
        help="how long to wait for each answer of a service (default: %(default)g)",
    )
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="after --, with --watch")
    parser.set_defaults(run=run)


def _process(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 on, found {text!r}")
    return value


def run(options: argparse.Namespace) -> int:
    """Checks; 0, or 1 if something is wrong."""
    _refuse_what_would_be_ignored(options)
    if options.watch:
        if not options.command:
            raise CommandError(
                "--watch needs a program: coordlab doctor --watch -- python train.py"
            )
        from coord_sim.cli.doctor_watch import watch

        return watch(
            options.command,
            patience_s=_PATIENCE_S if options.patience is None else options.patience,
            timeout_s=options.timeout,
            give_up=options.give_up,
        )
    findings = list(_attach(options) if options.attach else _checks(options))
    if options.json:
        print(json.dumps([_json(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            print(f"{finding.level.name.lower():7}  {plain(finding.sentence)}")
            if finding.remedy:
                print(f"{'':7}  -> {plain(finding.remedy)}")
    return exit_code(findings)


def _refuse_what_would_be_ignored(options: argparse.Namespace) -> None:
    if options.command and not options.watch:
        raise CommandError(
            f"what is {' '.join(options.command)!r} for? a program is run with --watch -- COMMAND"
        )
    if options.give_up and not options.watch:
        raise CommandError("--give-up ends a program that is run with --watch -- COMMAND")
    if options.patience is not None and not options.watch:
        raise CommandError("--patience is for a program that is run with --watch -- COMMAND")
    doing = "--watch" if options.watch else "--attach" if options.attach else None
    if doing is None:
        return
    if options.watch and options.attach:
        raise CommandError(
            "--watch finds the service of its program by itself; look at another one with --attach "
            "alone"
        )
    ignored = [
        f"--{name}"
        for name in _ONLY_BEFORE
        if getattr(options, name) is not None and getattr(options, name) != []
    ]
    if options.watch and options.json:
        ignored.append("--json")
    if ignored:
        raise CommandError(
            f"{', '.join(ignored)}: not looked at with {doing}; leave it out, or run the checks of a "
            "planned job first, by themselves"
        )


def exit_code(findings: Iterable[Finding]) -> int:
    """1 if one of them is an error."""
    from jax_bridge.doctor import Level

    return FAULTY if any(finding.level is Level.ERROR for finding in findings) else 0


def _json(finding: Finding) -> dict[str, str]:
    return {
        "level": finding.level.name.lower(),
        "check": finding.check,
        "sentence": finding.sentence,
        "remedy": finding.remedy,
    }


def _checks(options: argparse.Namespace) -> Iterator[Finding]:
    from jax_bridge.doctor import Finding, Level
    from jax_bridge.doctor.environment import (
        check_accelerator_flags,
        check_detection,
        check_proxies,
    )
    from jax_bridge.doctor.flags import check_flags
    from jax_bridge.doctor.installation import (
        Installation,
        check_settings,
        check_timeouts,
        check_versions,
    )
    from jax_bridge.doctor.scripts import ScriptError, check_script

    environment = os.environ
    if (
        options.process is not None
        and options.processes is not None
        and options.process >= options.processes
    ):
        raise CommandError(
            f"--process {options.process} with --processes {options.processes}: processes count from 0"
        )
    yield from check_versions()
    text = options.address or environment.get("JAX_COORDINATOR_ADDRESS")
    address = None
    if text:
        findings, address = _address(text, options)
        yield from findings
    yield from check_proxies(environment, address)
    installation = Installation.found()
    yield from check_timeouts(installation)
    yield from check_settings(installation, environment)
    yield from check_flags(environment)
    yield from check_accelerator_flags(environment)
    all_told = None not in {text, options.processes, options.process}
    yield from check_detection(environment, all_told=all_told)
    for script in options.script:
        try:
            yield from check_script(script)
        except ScriptError as error:
            yield Finding(Level.ERROR, "script", str(error), "is it the right file?")
        except OSError as error:
            problem = f"{script}: cannot be read: {error.strerror}"
            yield Finding(Level.ERROR, "script", problem, "is it the right file?")


def _address(text: str, options: argparse.Namespace) -> tuple[list[Finding], Address | None]:
    from jax_bridge.doctor import Finding, Level
    from jax_bridge.doctor.addresses import check_host, check_port, is_elsewhere, parse_address
    from jax_bridge.doctor.probe import Stage, probe

    address = parse_address(text)
    if isinstance(address, Finding):
        return [address], None
    findings = list(check_host(address, options.processes, options.hosts))
    bind = options.bind or os.environ.get("JAX_COORDINATOR_BIND_ADDRESS")
    if options.process == 0:
        findings += check_port(address, bind)
    reaches = options.process is not None and (options.process > 0 or is_elsewhere(bind))
    if reaches and not any(f.level is Level.ERROR for f in findings):
        probed = probe(address, options.timeout)
        # Before the job starts nobody listens; that is no error, but silence is.
        refused = probed.stage is Stage.TCP and "does not reply" not in probed.sentence
        level = Level.ERROR
        if probed.stage is Stage.SERVICE:
            level = Level.GOOD
        elif refused:
            level = Level.NOTE
        findings.append(Finding(level, "reachable", probed.sentence, probed.remedy))
    return findings, address


def _attach(options: argparse.Namespace) -> Iterator[Finding]:
    from jax_bridge.doctor import Finding
    from jax_bridge.doctor.addresses import parse_address

    address = parse_address(options.attach)
    if isinstance(address, Finding):
        raise CommandError(f"--attach: {address.sentence}; {address.remedy}")
    yield from attach(address, options.timeout)


def attach(address: Address, timeout_s: float) -> Iterator[Finding]:
    """How far a process comes with the service at an address, stage by stage.

    Args:
      address: Of the service.
      timeout_s: For each answer.
    """
    from coord_sim.cli.extras import require
    from jax_bridge.doctor import Finding, Level
    from jax_bridge.doctor.probe import Stage, probe

    probed = probe(address, timeout_s)
    if probed.stage is not Stage.SERVICE:
        yield Finding(Level.ERROR, probed.stage.value, probed.sentence, probed.remedy)
        return
    yield Finding(Level.GOOD, "http2", probed.sentence)
    require("grpc", "server", "doctor --attach")
    from coord_sim.cli.service_survey import survey_service

    survey = survey_service(address.text, timeout_s)
    if isinstance(survey, str):
        yield Finding(
            Level.ERROR,
            UNSEEN,
            f"{address.text}: {survey}",
            "is it the right address, and does the service answer who is not of its job?",
        )
        return
    yield from _surveyed(survey)


def _surveyed(survey: Any) -> Iterator[Finding]:
    from jax_bridge.doctor import Finding, Level
    from jax_bridge.explain.causes import agreeing, named

    if survey.failed:
        yield Finding(
            Level.ERROR,
            "failed",
            f"the service counts {named(survey.failed)} as failed",
            "look at their logs: coordlab explain",
        )
    if survey.connected:
        gone = f"; {agreeing(survey.absent, 'is', 'are')} gone" if survey.absent else ""
        yield Finding(
            Level.GOOD,
            "registration",
            f"registration is over: {len(survey.connected)} of {survey.total} are connected{gone}",
        )
        missing = tuple(sorted(set(survey.connected) - set(survey.published)))
        if missing and survey.published:
            yield Finding(
                Level.ERROR,
                "topology",
                f"the exchange of topologies waits for {named(missing)}; "
                f"{agreeing(survey.published, 'has', 'have')} published what devices there are",
                f"see what {named(missing)} did after initialize(): the exchange begins with the first "
                "use of a device",
            )
        elif not missing:
            yield Finding(Level.GOOD, "topology", "all have published their devices")
        return
    asked = f"{len(survey.waiting)} of {survey.total} have asked to register"
    if survey.absent:
        yield Finding(
            Level.ERROR,
            "registration",
            f"registration waits: {asked}; {agreeing(survey.absent, 'was', 'were')} never seen",
            "see whether they were started, and run this command on their machines",
        )
