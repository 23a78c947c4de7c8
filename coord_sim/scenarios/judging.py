"""Whether a run is what its scenario expects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from checker.history import Crash, Enter, Event, Exit, Fail, History, Info, Invoke, Leave, Ok
from coord_sim.core.identifiers import NS_PER_S
from coord_sim.scenarios.expectations import (
    PENDING,
    Answers,
    Blocks,
    Ends,
    Expectations,
    Logs,
)
from coord_sim.scenarios.wording import (
    answers_in_words,
    blocks_in_words,
    each_in_words,
    ends_in_words,
    logs_in_words,
    reached_in_words,
)
from coord_sim.sim import Run

Judge: TypeAlias = Callable[[History, str, str], str]
"""Takes a history, a definition and a failure model (`JUDGEMENTS`); returns the verdict's word."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One expectation, held against a run.

    Attributes:
      expected: In words.
      holds: Whether it was met.
      found: What was found instead, in words; empty if it holds.
    """

    expected: str
    holds: bool
    found: str = ""


@dataclass(frozen=True, slots=True)
class _Look:
    """What one process shows."""

    holds: bool
    found: str


_SHOWN_MAX = 8
_PROCESSES_SHOWN_MAX = 5


def findings(expect: Expectations, run: Run, judge: Judge) -> Iterator[Finding]:
    """One finding for each expectation."""
    if expect.finished is not None:
        words = "everybody comes to an end" if expect.finished else "not everybody comes to an end"
        found = "all did" if run.finished else "somebody was left at the limit"
        yield _finding(words, run.finished == expect.finished, found)
    for judgement, verdict in (expect.verdicts or {}).items():
        definition, _, failures = judgement.partition("-")
        word = judge(run.history, definition, failures)
        yield _finding(f"{definition} under {failures}: {verdict}", word == verdict, word)
    for condition, count in (expect.reached or {}).items():
        times = run.reached.get(condition, 0)
        holds = times >= count if count else times == 0
        yield _finding(reached_in_words(condition, count), holds, f"{times} times")
    yield from _about_processes(expect, run)


def _about_processes(expect: Expectations, run: Run) -> Iterator[Finding]:
    everybody = tuple(range(run.schedule.processes))
    events = _by_process(run.history.events)
    for ends in expect.ends or ():
        looked = {p: _end(ends, p, run) for p in ends.processes or everybody}
        yield _merged(ends.processes, ends_in_words(ends), looked)
    for blocks in expect.blocks or ():
        looked = {p: _blocks(blocks, events.get(p, [])) for p in blocks.processes or everybody}
        yield _merged(blocks.processes, blocks_in_words(blocks), looked)
    for answers in expect.answers or ():
        looked = {p: _answers(answers, events.get(p, [])) for p in answers.processes or everybody}
        yield _merged(answers.processes, answers_in_words(answers), looked)
    for logs in expect.logs or ():
        looked = {p: _logs(logs, p, run) for p in logs.processes or everybody}
        yield _merged(logs.processes, logs_in_words(logs), looked)


def _finding(expected: str, holds: bool, found: str) -> Finding:
    return Finding(expected, holds, "" if holds else found)


def _merged(processes: tuple[int, ...], words: str, looked: Mapping[int, _Look]) -> Finding:
    """What was found in each process, as one finding."""
    wrong = [f"process {p}: {look.found}" for p, look in looked.items() if not look.holds]
    if len(wrong) > _PROCESSES_SHOWN_MAX:
        others = len(wrong) - _PROCESSES_SHOWN_MAX
        wrong[_PROCESSES_SHOWN_MAX:] = [f"and {others} processes more"]
    return _finding(f"{each_in_words(processes)} {words}", not wrong, "\n".join(wrong))


def _by_process(events: Iterable[Event]) -> dict[int, list[Event]]:
    sorted_out: dict[int, list[Event]] = {}
    for event in events:
        sorted_out.setdefault(event.process, []).append(event)
    return sorted_out


# --- ends --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _End:
    state: str
    words: str = ""
    """The cause, or what it waits for."""
    time_s: float | None = None

    def __str__(self) -> str:
        when = "" if self.time_s is None else f" at {self.time_s:.3f} s"
        about = {"crashed": f": {self.words}", "running": f", waits for {self.words}"}
        return f"{self.state}{when}" + (about.get(self.state, "") if self.words else "")


def _end(ends: Ends, process: int, run: Run) -> _Look:
    found = _end_of(process, ends.lifetime, run)
    holds = found.state == ends.state and (ends.cause or ends.waits_for) in found.words
    if found.time_s is not None:
        holds = holds and _is_between(found.time_s, ends.after_s, ends.before_s)
    return _Look(holds, str(found))


def _end_of(process: int, lifetime: int | None, run: Run) -> _End:
    last = run.ends[process]
    ends = [
        event
        for event in run.history.events
        if isinstance(event, Crash | Leave) and event.process == process
    ]
    is_running = last.state == "running"
    if lifetime is None:
        lifetime = len(ends) if is_running else len(ends) - 1
    event = next((event for event in ends if event.lifetime == lifetime), None)
    if event is None:
        waits = is_running and lifetime == len(ends)
        return _End("running", last.waits_for) if waits else _End("never started")
    time_s = event.time_ns / NS_PER_S
    if isinstance(event, Leave):
        return _End("left", "", time_s)
    return _End("crashed", event.cause or "", time_s)


# --- what is counted ---------------------------------------------------------------------------


def _blocks(blocks: Blocks, events: list[Event]) -> _Look:
    found: list[str] = []
    count = 0
    for enter, end in _pairs_of_blocks(events):
        outcome = end.outcome if end is not None else "open"
        time_s = (end or enter).time_ns / NS_PER_S
        found.append(_block_in_short(enter, end, time_s))
        count += (
            outcome == blocks.outcome
            and (blocks.failed is None or (end.failed if end else ()) == blocks.failed)
            and (blocks.live is None or tuple(sorted(enter.live)) == blocks.live)
            and _is_between(time_s, blocks.after_s, blocks.before_s)
        )
    return _Look(_is_enough(blocks, count), _listed(count, found))


def _pairs_of_blocks(events: list[Event]) -> Iterator[tuple[Enter, Exit | None]]:
    ends = {(event.lifetime, event.block): event for event in events if isinstance(event, Exit)}
    for event in events:
        if isinstance(event, Enter):
            yield event, ends.get((event.lifetime, event.block))


def _block_in_short(enter: Enter, end: Exit | None, time_s: float) -> str:
    outcome = "open" if end is None else end.outcome
    failed = f" without {list(end.failed)}" if end is not None and end.failed else ""
    return f"{sorted(enter.live)} {outcome}{failed} at {time_s:.3f} s"


def _answers(answers: Answers, events: list[Event]) -> _Look:
    ends = {event.id: event for event in events if isinstance(event, Ok | Fail | Info)}
    found = []
    count = 0
    for event in events:
        if not isinstance(event, Invoke) or event.operation != answers.operation:
            continue
        end = ends.get(event.id)
        code, message = PENDING, ""
        if isinstance(end, Ok):
            code = "OK"
        elif end is not None:
            code, message = end.code, end.message
        time_s = (end or event).time_ns / NS_PER_S
        found.append(f"{code} at {time_s:.3f} s {message}".rstrip())
        count += (
            code == answers.code
            and answers.words in message
            and _is_between(time_s, answers.after_s, answers.before_s)
        )
    return _Look(_is_enough(answers, count), _listed(count, found))


def _logs(logs: Logs, process: int, run: Run) -> _Look:
    lines = [line for line in run.log if line.process == process]
    count = sum(
        logs.words in line.text and _is_between(line.time_s, logs.after_s, logs.before_s)
        for line in lines
    )
    found = [f"{line.text!r} at {line.time_s:.3f} s" for line in lines]
    return _Look(_is_enough(logs, count), _listed(count, found))


def _is_enough(asked: Blocks | Answers | Logs, count: int) -> bool:
    least = asked.at_least
    if least is None:
        least = 1 if asked.at_most is None else 0
    return least <= count and (asked.at_most is None or count <= asked.at_most)


def _is_between(time_s: float, after_s: float, before_s: float | None) -> bool:
    return after_s <= time_s and (before_s is None or time_s <= before_s)


def _listed(count: int, found: list[str]) -> str:
    shown = found[-_SHOWN_MAX:]
    left_out = "" if len(shown) == len(found) else f"(the last {len(shown)} of {len(found)}) "
    return f"{count} fit; there were {left_out}{'; '.join(shown) if shown else 'none'}"
