"""`coordlab scenarios`: what can go wrong with a job, by name; and running one in the simulator."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from checker import History, LiveProcesses, check
from coord_sim.cli.errors import CommandError, complain
from coord_sim.cli.exit_codes import BAD_INPUT, INVALID, VALID
from coord_sim.cli.follow import service_verdict
from coord_sim.cli.terminal import plain
from coord_sim.errors import ProgramError
from coord_sim.moments import When
from coord_sim.scenarios import (
    Outcome,
    Scenario,
    ScenarioError,
    explained,
    names,
    run_scenario,
    scenario_named,
)
from coord_sim.sim import Run

EXAMPLES = """\
examples:
  coordlab scenarios                            the list
  coordlab scenarios single-reset               what happens and why, what must come of it
  coordlab scenarios --check mine.toml          is this file a scenario?
  coordlab simulate --scenario single-reset     run it, and see whether it came to that
  coordlab simulate --scenario mine.toml --seeds 20

Exit code: 0 fine, 2 bad input. The format of the files: docs/scenarios.md.
"""


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "scenarios",
        help="list and explain what can go wrong with a job",
        description="Lists the scenarios that are shipped, explains some, or validates files.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a scenario, or a file of one")
    parser.add_argument("--check", action="store_true", help="only say whether they are valid")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Lists, explains or validates."""
    if not options.names:
        if options.check:
            raise CommandError("--check needs the name of a file")
        return _list()
    code = VALID
    for number, name in enumerate(options.names):
        try:
            scenario = scenario_named(name)
        except ScenarioError as error:
            _complain(error)
            code = BAD_INPUT
            continue
        if options.check:
            print(f"{plain(name)}: fine")
            continue
        if number:
            print()
        command = shlex.join(["coordlab", "simulate", "--scenario", name])
        for line in explained(scenario, command=command):
            print(plain(line))
    return code


def _list() -> int:
    shipped = names()
    longest = max(len(name) for name in shipped)
    for name in shipped:
        print(plain(f"{name:{longest}}  {scenario_named(name).title}"))
    return VALID


def _complain(error: ScenarioError) -> None:
    for problem in error.problems:
        complain(str(problem))


# --- running one -------------------------------------------------------------------------------


def add_scenario_options(parser: argparse.ArgumentParser) -> None:
    """Adds the option that says which scenario to run."""
    parser.add_argument(
        "--scenario",
        metavar="NAME|FILE",
        help="run a scenario (see `coordlab scenarios`) and say which of its expectations hold",
    )


def simulate_scenario(
    name: str,
    *,
    seeds: Iterable[int] | None = None,
    semantics: str | None = None,
    out: str | None = None,
) -> int:
    """Runs a scenario and says, expectation by expectation, what holds.

    Stops at the first seed with which one does not.

    Args:
      name: Of a shipped scenario, or a file.
      seeds: In place of the scenario's own.
      semantics: Of the service, in place of the scenario's own.
      out: Where to write the (last) history.

    Returns:
      0 if all expectations hold, 1 if one does not, 2 if there is no such scenario.

    Raises:
      CommandError: its program does something that the simulator cannot follow.
      OSError: the file cannot be read.
    """
    scenario = named_scenario(name)
    if scenario is None:
        return BAD_INPUT
    tried = [scenario.schedule.seed] if seeds is None else list(seeds)
    try:
        for seed in tried:
            outcome = run_scenario(scenario, verdict_word, seed=seed, semantics=semantics)
            if not outcome.holds:
                break
    except ProgramError as error:
        raise CommandError(f"{name}: {error}") from None
    if out is not None:
        outcome.run.history.save(out)
        print(f"history: {plain(out)} ({len(outcome.run.history.events)} events)")
    seed_told = f"seed {outcome.run.schedule.seed}"
    report_outcome(
        scenario,
        outcome,
        f"with {f'each of {len(tried)} seeds' if outcome.holds and len(tried) > 1 else seed_told}",
    )
    for note in notes_on_missed(outcome.run):
        print(f"note: {plain(note)}")
    if outcome.holds:
        return VALID
    words = ["coordlab", "simulate", "--scenario", name, "--seed", str(seed)]
    words += ["--semantics", outcome.run.schedule.semantics]
    print(f"replay: {shlex.join(words)}")
    return INVALID


def named_scenario(name: str) -> Scenario | None:
    """A shipped scenario, or that of a file; None, and complaints, if there is none.

    Raises:
      OSError: the file cannot be read.
    """
    try:
        return scenario_named(name)
    except ScenarioError as error:
        _complain(error)
        return None


def verdict_word(history: History, definition: str, failures: str) -> str:
    """The judge of scenarios: `coord_sim.scenarios.Judge`."""
    if definition == "service":
        return service_verdict(history, LiveProcesses(failures=failures)).word  # type: ignore[arg-type]
    spec = LiveProcesses(definition=definition, failures=failures)  # type: ignore[arg-type]
    return check(history, spec).word


def notes_on_missed(run: Run) -> Iterator[str]:
    """Says of each fault that did not happen in the simulator why."""
    for fault in run.missed:
        why = (
            "its condition never held"
            if isinstance(fault.at_s, When)
            else "the run was over before"
        )
        yield f"{fault} did not happen: {why}"


def report_outcome(scenario: Scenario, outcome: Outcome, how: str) -> None:
    """Says, expectation by expectation, what holds.

    Args:
      scenario: What was run.
      outcome: What came of it.
      how: With which seed, or on which service.
    """
    print(plain(f"{scenario.name}: {scenario.title}"))
    for finding in outcome.findings:
        print(plain(f"  {'holds' if finding.holds else 'FAILS'}  {finding.expected}"))
        if not finding.holds:
            for line in finding.found.splitlines():
                print(plain(f"         {line}"))
    held = sum(finding.holds for finding in outcome.findings)
    print(
        f"{held} of {len(outcome.findings)} expectations hold {how} "
        f"({outcome.run.schedule.semantics} semantics)"
    )
