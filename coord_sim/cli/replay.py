"""`coordlab replay`: a recorded run held against the model, and its heartbeats under other time-outs."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from checker import History, MalformedHistory
from checker.printable import printable
from coord_sim.cli.errors import CommandError
from coord_sim.cli.exit_codes import INVALID, UNKNOWN, VALID
from coord_sim.cli.numbers import SECONDS_MAX, positive_int, positive_seconds
from coord_sim.cli.reading import read_history
from coord_sim.cli.terminal import Progress, plain
from coord_sim.core.identifiers import NS_PER_S
from coord_sim.core.semantics import SEMANTICS
from coord_sim.replay import (
    COULD,
    COULD_NOT,
    SUSPICIONS,
    Finding,
    Replayed,
    Settings,
    SettingsError,
    replay,
    settings_of,
)
from coord_sim.replay.lines import line_of_event
from coord_sim.replay.silences import Alarm, Row, Silences, silences_of

EXAMPLES = """\
examples:
  coordlab replay run.jsonl
      could the service as shipped have given these answers, at these times?
  coordlab replay run.jsonl --semantics published
      could the service as the JAX guide defines it?
  coordlab replay run.jsonl --heartbeat-timeout
      a table: what other heartbeat time-outs would have done to this very run
  coordlab replay run.jsonl --heartbeat-timeout 5 --heartbeat-timeout 10..60..10
      who would have been declared dead, when, and whether it lived

A recording of the service's side (coordlab serve --record, coordlab wrap --record, coordlab tap) is
replayed request by request; one of the callers' side is searched for an order of arrivals.
Exit code: 0 the model could, 1 it could not, 2 bad input or usage, 3 unknown.
"""

TIMEOUTS_MAX = 1000
_ALARMS_SHOWN_MAX = 20
_SEARCH_S = 60.0


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "replay",
        help="hold a recorded run against the model; try other time-outs on it",
        description="Holds a recorded run against the model of the service: the first answer that it "
        "could not have given is told, with what it would have answered. Or replays the recorded "
        "heartbeats under other time-outs.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument(
        "--semantics",
        choices=tuple(SEMANTICS),
        help="the face of the model (default: what the file says, else shipped)",
    )
    parser.add_argument(
        "--recoverable",
        action=argparse.BooleanOptionalAction,
        help="whether the service is recoverable (default: what the file says or shows)",
    )
    parser.add_argument(
        "--service-timeout",
        type=positive_seconds,
        metavar="S",
        help="the service's heartbeat time-out, if the file does not say it",
    )
    parser.add_argument(
        "--late",
        type=positive_seconds,
        metavar="S",
        help="how much later than it should the service may look at its clock (default: 0.5)",
    )
    callers = parser.add_argument_group(
        "where heartbeats are not recorded, and timing is searched for"
    )
    callers.add_argument(
        "--suspicions",
        choices=SUSPICIONS,
        help="when a process that lives may have been declared dead: never, from the first recorded "
        "fault on, or at any time (default: faults; any where times mean nothing, or the recorder "
        "sees no stalls, as coordlab record does not)",
    )
    callers.add_argument(
        "--repeats",
        action=argparse.BooleanOptionalAction,
        help="whether any request may arrive twice (default: if a fault says so)",
    )
    callers.add_argument(
        "--timeout",
        type=positive_seconds,
        default=_SEARCH_S,
        metavar="SECONDS",
        help="give up the search after so long (default: %(default)g)",
    )
    callers.add_argument(
        "--steps-max", type=positive_int, metavar="N", help="give up the search after so many steps"
    )
    parser.add_argument(
        "--heartbeat-timeout",
        action="append",
        nargs="?",
        const="",
        metavar="S",
        help="replay the recorded heartbeats under this time-out: seconds, a list 5,10 or a range "
        "10..60..10; may be repeated; without a value, a table over sensible ones",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Replays one file."""
    timeouts = _timeouts(options.heartbeat_timeout)  # Bad usage shows before a long file is read.
    history = read_history(options.file)
    try:
        settings = settings_of(
            history,
            semantics=options.semantics,
            recoverable=options.recoverable,
            heartbeat_timeout_s=options.service_timeout,
            late_s=options.late,
            suspicions=options.suspicions,
            repeats=options.repeats,
        )
    except SettingsError as error:
        raise CommandError(f"{options.file}: {error}") from None
    if timeouts is not None:
        return _try_timeouts(options, history, settings, timeouts)
    return _hold(options, history, settings)


# --- held against the model ---------------------------------------------------------------------------


def _hold(options: argparse.Namespace, history: History, settings: Settings) -> int:
    with Progress(f"replaying {printable(options.file)}") as progress:
        progress.say(f"replaying {printable(options.file)} ({len(history.events):,} events)")
        began_s = time.perf_counter()
        try:
            replayed = replay(
                history, settings, steps_max=options.steps_max, seconds_max=options.timeout
            )
        except MalformedHistory as error:
            raise MalformedHistory(error.problem, path=options.file, field=error.field) from None
        seconds = time.perf_counter() - began_s
    if options.json:
        print(json.dumps(_fields(options.file, history, settings, replayed, seconds)))
    else:
        for line in _lines(options.file, settings, replayed, seconds):
            print(plain(line))
    if replayed.verdict == COULD:
        return VALID
    return INVALID if replayed.verdict == COULD_NOT else UNKNOWN


def _lines(path: str, settings: Settings, replayed: Replayed, seconds: float) -> Iterator[str]:
    model = f"the service as {settings.semantics.name}"
    words = {
        "could": f"{model} could have given these answers",
        "could not": f"{model} could not have given these answers",
        "unknown": f"unknown whether {model} could have given these answers",
    }
    yield f"{path}: {words[replayed.verdict]}"
    if replayed.finding is not None:
        yield from _finding_lines(path, replayed)
    for note in replayed.notes:
        yield f"  note: {note}"
    rate = replayed.events / max(seconds, 1e-9)
    yield (
        f"  {replayed.events:,} events, {replayed.operations:,} requests, {replayed.steps:,} steps, "
        f"{seconds:.2f} s ({rate:,.0f} events/s)"
    )


def _finding_lines(path: str, replayed: Replayed) -> Iterator[str]:
    finding = replayed.finding
    assert finding is not None
    request, answer = _places(path, finding)
    if replayed.verdict != COULD_NOT:
        yield "  the search came as far as this answer:"
    yield f"  request:  {request}{finding.asked}"
    for state in finding.state:
        yield f"  state:    {state}"
    yield f"  model:    {finding.allowed}"
    yield f"  recorded: {answer}{finding.answered}"


def _places(path: str, finding: Finding) -> tuple[str, str]:
    """Where the request and its answer stand in the file."""
    request = "" if finding.request is None else f"line {line_of_event(path, finding.request)}: "
    return request, f"line {line_of_event(path, finding.event)}: "


def _fields(
    path: str, history: History, settings: Settings, replayed: Replayed, seconds: float
) -> dict[str, object]:
    found: dict[str, object] = {
        "file": path,
        "verdict": replayed.verdict,
        "side": replayed.side,
        "semantics": settings.semantics.name,
        "events": replayed.events,
        "requests": replayed.operations,
        "steps": replayed.steps,
        "seconds": round(seconds, 6),
        "notes": [*replayed.notes, *history.notes],
    }
    finding = replayed.finding
    if finding is not None:
        found["finding"] = {
            "request_line": None
            if finding.request is None
            else line_of_event(path, finding.request),
            "answer_line": line_of_event(path, finding.event),
            "request": finding.asked,
            "state": list(finding.state),
            "model": finding.allowed,
            "recorded": finding.answered,
        }
    return found


# --- other time-outs -----------------------------------------------------------------------------------


def _timeouts(given: Sequence[str] | None) -> list[float] | None:
    """The time-outs that are asked for; empty: choose; None: none."""
    if given is None:
        return None
    found: set[float] = set()
    for text in given:
        for part in filter(None, text.split(",")):
            found.update(_range(part.strip()))
    if len(found) > TIMEOUTS_MAX:
        raise CommandError(
            f"--heartbeat-timeout: at most {TIMEOUTS_MAX} values, found {len(found)}"
        )
    return sorted(found)


def _range(text: str) -> list[float]:
    """`FIRST`, `FIRST..LAST` or `FIRST..LAST..STEP`, in seconds."""
    try:
        numbers = [float(part) for part in text.split("..")]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 3 or not all(0 < number <= SECONDS_MAX for number in numbers):
        raise _no_timeout(text)
    first, last = numbers[0], numbers[min(1, len(numbers) - 1)]
    step = numbers[2] if len(numbers) == 3 else 1.0
    if last < first:
        raise _no_timeout(text)
    count = int((last - first) / step + 1e-9) + 1
    if count > TIMEOUTS_MAX:
        raise CommandError(
            f"--heartbeat-timeout: {text} are {count} values; at most {TIMEOUTS_MAX}"
        )
    return [round(first + i * step, 9) for i in range(count)]


def _no_timeout(text: str) -> CommandError:
    return CommandError(
        f"--heartbeat-timeout: {text!r:.80} is no time-out; give seconds above 0 (5), a list (5,10) or "
        "a range (10..60..10); the file comes before the option"
    )


def _try_timeouts(
    options: argparse.Namespace, history: History, settings: Settings, timeouts: Sequence[float]
) -> int:
    silences = silences_of(history)
    if silences.is_empty:
        raise CommandError(
            f"{options.file}: has no heartbeats, which recordings of the service's side have: record "
            "the run with coordlab serve --record, coordlab wrap --record or coordlab tap"
        )
    current_ns = settings.heartbeat_timeout_ns
    current_s = None if current_ns is None else current_ns / NS_PER_S
    chosen = list(timeouts) or silences.sensible(current_s)
    rows = [silences.row(timeout_s) for timeout_s in chosen]
    if options.json:
        print(json.dumps(_rows_fields(options.file, silences, settings, rows)))
        return VALID
    for line in _rows_lines(options.file, silences, settings, rows, named=bool(timeouts)):
        print(plain(line))
    return VALID


def _rows_lines(
    path: str, silences: Silences, settings: Settings, rows: Sequence[Row], *, named: bool
) -> Iterator[str]:
    beats = sum(life.beats for life in silences.lives)
    deaths = sum(map(silences.died, silences.lives))
    span_s = (silences.end_ns - silences.origin_ns) / NS_PER_S
    yield (
        f"{path}: {beats:,} heartbeats of {len(silences.lives)} starts in {span_s:.1f} s; "
        f"{deaths} ended without leaving"
    )
    current_ns = settings.heartbeat_timeout_ns
    if current_ns is not None:
        yield f"  the recorded service had a time-out of {current_ns / NS_PER_S:g} s"
    yield "  longest silence of a start that was heard of again, and how much longer than usual:"
    longest = [(*life.silences[-1], life) for life in silences.lives if life.silences]
    longest.sort(key=lambda row: -row[0])
    for length_ns, began_ns, life in longest[:_ALARMS_SHOWN_MAX]:
        yield (
            f"    process {life.process}, start {life.lifetime}: "
            f"{length_ns / NS_PER_S:.3f} s from {_at(silences, began_ns)} on, "
            f"+{silences.excess_ns(life) / NS_PER_S:.3f} s"
        )
    yield "  time-out   declared dead, though alive   if clients beat   deaths noticed  noticed after"
    yield "             (sure + by the tick's phase)  every half of it  (likewise)      their last beat"
    for row in rows:
        noticed = f"{_sum(row.noticed)} of {deaths}"
        after_s = _noticed_after_s(row)
        after = "" if after_s is None else f"{round(after_s[0], 2):g} to {round(after_s[1], 2):g} s"
        yield (
            f"  {row.timeout_s:>7g} s  {_sum(row.false):<28}  {_sum(row.adapted):<16}  "
            f"{noticed:<14}  {after}".rstrip()
        )
    if named:
        for row in rows:
            yield from _alarm_lines(silences, settings, row)
    yield from _advice(silences)


def _sum(counts: tuple[int, int]) -> str:
    """Sure ones and possible ones."""
    return f"{counts[0]:>3} + {counts[1]}"


def _noticed_after_s(row: Row) -> tuple[float, float] | None:
    after_ns = row.noticed_after_ns
    return None if after_ns is None else (after_ns[0] / NS_PER_S, after_ns[1] / NS_PER_S)


def _alarm_lines(silences: Silences, settings: Settings, row: Row) -> Iterator[str]:
    alarms = [*silences.false_alarms(row.timeout_s), *row.deaths]
    alarms.sort(key=lambda alarm: alarm.earliest_ns)
    yield f"  with {row.timeout_s:g} s:" + ("" if alarms else " nobody is declared dead")
    # If not all can be told, deaths and what is sure come first.
    told = sorted(alarms, key=lambda alarm: (alarm.lived_ns is not None, not alarm.is_sure))
    told = sorted(told[:_ALARMS_SHOWN_MAX], key=lambda alarm: alarm.earliest_ns)
    for alarm in told:
        when = f"{_at(silences, alarm.earliest_ns)} to {_at(silences, alarm.latest_ns)}"
        may = "is" if alarm.is_sure else "may be"
        fate = (
            "it was dead"
            if alarm.lived_ns is None
            else f"it lived: it was heard of at {_at(silences, alarm.lived_ns)}"
        )
        yield (
            f"    process {alarm.process}, start {alarm.lifetime}, silent from "
            f"{_at(silences, alarm.last_heard_ns)} on, {may} declared dead at {when}; {fate}"
        )
    if len(alarms) > _ALARMS_SHOWN_MAX:
        yield f"    and {len(alarms) - _ALARMS_SHOWN_MAX} more, which --json lists"
    if alarms and not settings.recoverable:
        first = _at(silences, alarms[0].earliest_ns)
        yield f"    not recoverable: the first of these, at {first} or later, ends the job"


def _advice(silences: Silences) -> Iterator[str]:
    excess_s = max(map(silences.excess_ns, silences.lives), default=0) / NS_PER_S
    advised_s = silences.recommended_s()
    yield (
        f"  advice: the worst delay of a heartbeat was {excess_s:.3f} s. A time-out of {advised_s:g} s, "
        "of which clients beat every half, bears one that is half as long again; a death is then "
        f"noticed {advised_s / 2:g} to {advised_s + 1:g} s after it."
    )


def _at(silences: Silences, time_ns: int) -> str:
    return f"{(time_ns - silences.origin_ns) / NS_PER_S:.3f} s"


def _rows_fields(
    path: str, silences: Silences, settings: Settings, rows: Sequence[Row]
) -> dict[str, object]:
    current_ns = settings.heartbeat_timeout_ns
    return {
        "file": path,
        "recorded_timeout_s": None if current_ns is None else current_ns / NS_PER_S,
        "recommended_timeout_s": silences.recommended_s(),
        "starts": [
            {
                "process": life.process,
                "start": life.lifetime,
                "heartbeats": life.beats,
                "longest_silence_s": life.silences[-1][0] / NS_PER_S if life.silences else None,
                "usual_silence_s": life.usual_ns / NS_PER_S or None,
                "died": silences.died(life),
            }
            for life in silences.lives
        ],
        "timeouts": [
            {
                "timeout_s": row.timeout_s,
                "false_alarms_sure": row.false[0],
                "false_alarms_possible": row.false[1],
                "deaths_noticed": {"sure": row.noticed[0], "possible": row.noticed[1]},
                "noticed_after_s": _noticed_after_s(row),
                "false_alarms_if_clients_follow": {
                    "sure": row.adapted[0],
                    "possible": row.adapted[1],
                },
                "alarms": [
                    _alarm_fields(silences, alarm)
                    for alarm in (*silences.false_alarms(row.timeout_s), *row.deaths)
                ],
            }
            for row in rows
        ],
    }


def _alarm_fields(silences: Silences, alarm: Alarm) -> dict[str, object]:
    def at_s(time_ns: int | None) -> float | None:
        return None if time_ns is None else (time_ns - silences.origin_ns) / NS_PER_S

    return {
        "process": alarm.process,
        "start": alarm.lifetime,
        "last_heard_s": at_s(alarm.last_heard_ns),
        "declared_earliest_s": at_s(alarm.earliest_ns),
        "declared_latest_s": at_s(alarm.latest_ns),
        "sure": alarm.is_sure,
        "lived_s": at_s(alarm.lived_ns),
    }
