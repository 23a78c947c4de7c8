"""Schedules and expectations in words."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import fields

from coord_sim.faults import (
    Crash,
    Degrade,
    Fault,
    Partition,
    Pause,
    Refuse,
    Reset,
    Restart,
    Skew,
    Slow,
)
from coord_sim.moments import BLOCK, SERVICE, Member, Moment, When
from coord_sim.scenarios.expectations import Answers, Blocks, Ends, Expectations, Logs
from coord_sim.scenarios.scenario import Scenario
from coord_sim.schedule import Schedule

_WIDTH = 100

_TOLD_APART = ("processes", "faults", "starts_s", "hosts", "places", "seed", "limit_s")
"""Fields of a schedule that have sentences of their own, or need none."""


def explained(scenario: Scenario, *, command: str) -> Iterator[str]:
    """A scenario for a reader: lines of text.

    Args:
      scenario: What to explain.
      command: How to run it.
    """
    yield f"{scenario.name}: {scenario.title}"
    yield ""
    yield from _filled(scenario.what)
    yield ""
    yield from _filled(scenario.why)
    if scenario.sources:
        yield from _filled(f"Reported in {', '.join(scenario.sources)}.")
    yield ""
    yield "schedule"
    for sentence in (*schedule_in_words(scenario.schedule), _program_in_words(scenario)):
        yield from _item(sentence)
    yield ""
    yield "expected"
    for sentence in expectations_in_words(scenario.expect):
        yield from _item(sentence)
    for semantics, changes in scenario.expect_of.items():
        yield f"expected of a service with {semantics} semantics instead"
        for sentence in expectations_in_words(changes):
            yield from _item(sentence)
    yield ""
    yield f"runs on {' and '.join(scenario.runs_on)}"
    yield f"run it: {command}"


def _filled(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), _WIDTH, break_on_hyphens=False)


def _item(sentence: str) -> list[str]:
    return textwrap.wrap(
        sentence,
        _WIDTH,
        initial_indent="  - ",
        subsequent_indent="    ",
        break_on_hyphens=False,
    )


def _program_in_words(scenario: Scenario) -> str:
    given = ", ".join(f"{name} = {value!r}" for name, value in scenario.arguments.items())
    return f"everybody runs {scenario.program}({given})"


# --- schedules ---------------------------------------------------------------------------------


def schedule_in_words(schedule: Schedule) -> Iterator[str]:
    """What a schedule does, as sentences; settings that are left at their defaults are left out."""
    kind = "may die and come back" if schedule.recoverable else "share their fate"
    where = (
        "" if schedule.service_in is None else f"; process {schedule.service_in} runs the service"
    )
    yield f"{schedule.processes} processes that {kind}{where}"
    settings = [
        f"{field.name} = {getattr(schedule, field.name)!r}"
        for field in fields(schedule)
        if field.name not in (*_TOLD_APART, "recoverable", "service_in")
        and getattr(schedule, field.name) != field.default
    ]
    if settings:
        yield ", ".join(settings)
    yield from _starts(schedule.starts_s)
    for place in schedule.places:
        yield f"process {place.process} calls service {place.service} as task {place.task}"
    for host in schedule.hosts:
        yield f"{_processes(host)} share a host"
    for fault in schedule.faults:
        yield f"{moment_in_words(fault.at_s)}: {fault_in_words(fault)}"


def _starts(starts_s: tuple[float | None, ...]) -> Iterator[str]:
    for process, start_s in enumerate(starts_s):
        if start_s is None:
            yield f"process {process} is never started"
        elif start_s:
            yield f"process {process} starts at {start_s:g} s"


def moment_in_words(moment: Moment) -> str:
    """When something happens."""
    if not isinstance(moment, When):
        return f"at {moment:g} s"
    after = f"{moment.plus_s:g} s after " if moment.plus_s else "when "
    if moment.kind == "crash":
        return f"{after}process {moment.process} dies the {_ordinal(moment.count)} time"
    what = "live_devices block" if moment.operation == BLOCK else moment.operation
    whose = f"process {moment.process}"
    if moment.kind == "inside":
        return f"{after}{whose} is inside its {_ordinal(moment.count)} {what}"
    return f"{after}{whose} has left its {_ordinal(moment.count)} {what}"


def fault_in_words(fault: Fault) -> str:
    """What goes wrong."""
    match fault:
        case Crash():
            return f"{_member(fault.process)} dies"
        case Restart():
            return f"{_member(fault.process)} starts again"
        case Pause():
            return f"{_member(fault.process)} stops for {fault.for_s:g} s"
        case Slow():
            return f"{_member(fault.process)} is slow for {fault.for_s:g} s ({_numbers(fault)})"
        case Skew():
            return f"the clock of {_member(fault.process)} is skewed ({_numbers(fault)})"
        case Degrade():
            link = "every process" if fault.process is None else _member(fault.process)
            return (
                f"the network between {link} and the service is bad for {fault.for_s:g} s "
                f"({_numbers(fault)})"
            )
        case Partition():
            rest = _members(fault.other) if fault.other else "everybody else"
            way = "passes from" if fault.one_way else "passes between"
            to = "to" if fault.one_way else "and"
            return f"nothing {way} {_members(fault.side)} {to} {rest} for {fault.for_s:g} s"
        case Reset():
            return f"the connection between process {fault.process} and the service breaks"
        case Refuse():
            return f"connections of process {fault.process} are refused for {fault.for_s:g} s"
        case _:
            return str(fault)


def _numbers(fault: Fault) -> str:
    told = [
        f"{field.name} = {value!r}"
        for field in fields(fault)
        if field.name not in ("process", "at_s", "for_s")
        and (value := getattr(fault, field.name)) != field.default
    ]
    return ", ".join(told)


def _member(member: Member) -> str:
    return f"the {SERVICE}" if member == SERVICE else f"process {member}"


def _members(members: Iterable[Member]) -> str:
    return " and ".join(_member(member) for member in members)


def _processes(processes: tuple[int, ...]) -> str:
    if not processes:
        return "every process"
    if len(processes) == 1:
        return f"process {processes[0]}"
    numbers = [str(process) for process in processes]
    return f"processes {', '.join(numbers[:-1])} and {numbers[-1]}"


def _ordinal(count: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{'th' if count % 100 in (11, 12, 13) else ending}"


# --- expectations ------------------------------------------------------------------------------


def expectations_in_words(expect: Expectations) -> Iterator[str]:
    """What is expected, as sentences."""
    if expect.finished is not None:
        yield "everybody comes to an end" if expect.finished else "not everybody comes to an end"
    for judgement, verdict in (expect.verdicts or {}).items():
        definition, _, failures = judgement.partition("-")
        if definition == "service":
            yield f"everything in the history is {verdict} ({failures})"
        else:
            yield f"the live sets are {verdict} ({definition}, {failures})"
    for ends in expect.ends or ():
        yield f"{each_in_words(ends.processes)} {ends_in_words(ends)}"
    for blocks in expect.blocks or ():
        yield f"{each_in_words(blocks.processes)} {blocks_in_words(blocks)}"
    for answers in expect.answers or ():
        yield f"{each_in_words(answers.processes)} {answers_in_words(answers)}"
    for logs in expect.logs or ():
        yield f"{each_in_words(logs.processes)} {logs_in_words(logs)}"
    for condition, count in (expect.reached or {}).items():
        yield reached_in_words(condition, count)


def reached_in_words(condition: str, count: int) -> str:
    """How often a condition is reached."""
    if count == 0:
        return f"{condition!r} is never reached"
    return f"{condition!r} is reached at least {count} time{'' if count == 1 else 's'}"


def each_in_words(processes: tuple[int, ...]) -> str:
    """Whom an expectation is about."""
    return f"each of {_processes(processes)}" if len(processes) > 1 else _processes(processes)


def ends_in_words(ends: Ends) -> str:
    """How a process ends."""
    start = "" if ends.lifetime is None else f"in its {_ordinal(ends.lifetime + 1)} start"
    match ends.state:
        case "crashed":
            words = "dies" + (f" of {ends.cause!r}" if ends.cause else "")
        case "running":
            words = f"waits for {ends.waits_for!r}" if ends.waits_for else "runs at the limit"
        case "left":
            words = "leaves"
        case _:
            words = "never starts"
    return f"{start} {words}".strip() + _interval(ends.after_s, ends.before_s)


def blocks_in_words(blocks: Blocks) -> str:
    """How blocks end."""
    counted = _counted(blocks.at_least, blocks.at_most, "block")
    live = "" if blocks.live is None else f" of {list(blocks.live)}"
    end = "left open" if blocks.outcome == "open" else f"that ended {blocks.outcome}"
    failed = "" if blocks.failed is None else f", naming {list(blocks.failed)}"
    return f"has {counted}{live} {end}{failed}{_interval(blocks.after_s, blocks.before_s)}"


def answers_in_words(answers: Answers) -> str:
    """How calls are answered."""
    counted = _counted(answers.at_least, answers.at_most, f"{answers.operation} call")
    said = f" {answers.words!r}" if answers.words else ""
    return f"has {counted} that ended {answers.code}{said}{_interval(answers.after_s, answers.before_s)}"


def logs_in_words(logs: Logs) -> str:
    """What is logged."""
    counted = _counted(logs.at_least, logs.at_most, "line")
    return f"logs {counted} with {logs.words!r}{_interval(logs.after_s, logs.before_s)}"


def _counted(least: int | None, most: int | None, noun: str) -> str:
    if most is None:
        least = 1 if least is None else least
        return f"at least {least} {noun}{'' if least == 1 else 's'}"
    if most == 0:
        return f"no {noun}"
    plural = "" if most == 1 else "s"
    return (
        f"exactly {most} {noun}{plural}"
        if least == most
        else f"{least or 0} to {most} {noun}{plural}"
    )


def _interval(after_s: float, before_s: float | None) -> str:
    if before_s is None:
        return f" after {after_s:g} s" if after_s else ""
    return f" between {after_s:g} and {before_s:g} s" if after_s else f" before {before_s:g} s"
