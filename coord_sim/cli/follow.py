"""`coordlab check --follow`: checks a history while it is written.

With `--spec`, events go to a `checker.monitor.Monitor` as their lines come; of what is past, little
more than the ids of operations is kept. Without, and where times have errors, what has come is checked
as a whole again and again: all events are kept in memory.

A verdict on a beginning is one on the whole if it is invalid, with one exception: lines to come may
tell of events as early as the latest ones (equal times, errors of clocks). So such a violation counts
when later lines have come, or when nothing has come for a while.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final, cast

from checker import (
    History,
    Invalid,
    LiveProcesses,
    MalformedHistory,
    Unknown,
    Valid,
    Verdict,
    check,
)
from checker.formats import recognition
from checker.formats.source import Source
from checker.history.events import Event
from checker.history.jsonl_reader import HistoryReader
from checker.monitor import Monitor, MonitorVerdict, ValidSoFar
from checker.monitor.feeding import CallsFeed, HistoryFeed, UncertainTimesError
from checker.printable import printable
from checker.service import check_service
from checker.specification import SetSpecification, Specification
from coord_sim.cli.errors import CommandError
from coord_sim.cli.exit_codes import INVALID, UNKNOWN, VALID
from coord_sim.cli.numbers import positive_seconds
from coord_sim.cli.reading import spec_of
from coord_sim.cli.specs import named_spec
from coord_sim.cli.tail import EndedError, Ending, Tail
from coord_sim.cli.terminal import plain

LOOK_S: Final = 0.25
"""Between looks; a look that takes longer is followed by as long a pause."""

QUIET_S: Final = 0.3
"""After so long without a line, no more events of the latest time are to come."""


def add_follow_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--follow` and `--until-idle`."""
    group = parser.add_argument_group("following")
    group.add_argument(
        "--follow",
        action="store_true",
        help="check one file while it is written, and end at the first violation; Ctrl-C ends with the "
        "verdict so far. With --spec, little is kept of what is past; without, all events are kept and "
        "checked anew: within a second while a check takes less than half of one",
    )
    group.add_argument(
        "--until-idle",
        type=positive_seconds,
        metavar="SECONDS",
        help="with --follow: end when no line has come for so long",
    )


def run(options: argparse.Namespace) -> int:
    """Follows the one file of `options.files`.

    Returns:
      1 at the first violation; at the end 0 if all can be explained so far, 3 if that is not known.

    Raises:
      CommandError: more than one file, one that cannot be followed, was cut or replaced.
      MalformedHistory: the file breaks its format.
      OSError: it cannot be read.
    """
    if len(options.files) != 1:
        raise CommandError("--follow takes one file; start one command for each")
    [path] = options.files
    spec = None if options.spec is None else named_spec(options.spec)
    ending = Ending()
    try:
        verdict, notes = _follow(path, spec, options, ending)
    finally:
        ending.restore()
    _report(options, path, verdict, notes)
    if isinstance(verdict, Invalid):
        return INVALID
    return UNKNOWN if isinstance(verdict, Unknown) else VALID


class _ViolationError(Exception):
    """Ends the reading: a violation was found."""

    def __init__(self, verdict: Invalid) -> None:
        super().__init__(verdict.word)
        self.verdict = verdict


def _follow(
    path: str,
    spec: Specification | SetSpecification | None,
    options: argparse.Namespace,
    ending: Ending,
) -> tuple[Verdict | MonitorVerdict, list[str]]:
    """Follows until a violation or the end; the verdict, and notes."""
    if isinstance(spec, Specification):
        tail = Tail(path, ending, options.until_idle)
        try:
            return _follow_monitored(tail, spec, options)
        except UncertainTimesError:
            pass
        finally:
            tail.close()
    tail = Tail(path, ending, options.until_idle)
    try:
        return _follow_whole(tail, spec, options)
    finally:
        tail.close()


def _cannot_follow(tail: Tail, kind: str) -> CommandError:
    if not kind:
        return CommandError(f"{printable(tail.path)}: nothing came that is a history")
    return CommandError(
        f"{printable(tail.path)}: {kind} cannot be followed, only coordlab's JSON lines and, with the "
        "--spec of an object whose operations take effect one by one, Jepsen's EDN and log; check it "
        "when it is whole"
    )


# --- with a specification: a monitor -----------------------------------------------------------------


class _Monitored:
    """Lets a monitor look when nothing comes."""

    def __init__(self, monitor: Monitor, release: Callable[[], None]) -> None:
        self._monitor = monitor
        self._release = release
        self._looked_at = -1
        self._is_quiet = False

    def turn(self, idle_s: float) -> None:
        if idle_s < QUIET_S:
            self._is_quiet = False
        elif not self._is_quiet:
            self._is_quiet = True
            self._release()
            self._monitor.check()


def _stop(verdict: Invalid) -> None:
    raise _ViolationError(verdict)


def _follow_monitored(
    tail: Tail, spec: Specification, options: argparse.Namespace
) -> tuple[MonitorVerdict, list[str]]:
    monitor = Monitor(spec, on_violation=_stop, interval_s=LOOK_S, source=tail.path)
    notes: list[str] = []
    try:
        kind = tail.head()
        if kind == recognition.JSON_LINES:
            reader = HistoryReader(tail.lines(has_end=True), path=tail.path)
            feed = HistoryFeed(monitor, reader.header)
            tail.turn = _Monitored(monitor, feed.release).turn
            for event in reader:
                feed.add(event, reader.line)
            feed.release()
            notes = reader.notes
        elif kind in (recognition.JEPSEN_EDN, recognition.JEPSEN_LOG):
            _follow_jepsen(tail, kind, monitor, options)
            if tail.is_cut:
                notes = ["the last line is cut off and was skipped"]
        else:
            raise _cannot_follow(tail, kind)
        verdict = monitor.check()
    except _ViolationError as found:
        verdict = found.verdict
    except MalformedHistory as error:
        raise MalformedHistory(
            error.problem, path=tail.path, line=error.line, field=error.field
        ) from None
    return verdict, [*notes, *monitor.notes]


def _follow_jepsen(tail: Tail, kind: str, monitor: Monitor, options: argparse.Namespace) -> None:
    from checker.formats.jepsen import read_edn, read_log

    class Growing:
        """What the readers need of a `Source`."""

        path = tail.path

        def lines(self) -> Iterator[str]:
            return tail.lines(has_end=False)

    feed = CallsFeed(monitor, independent=options.independent)
    tail.turn = _Monitored(monitor, lambda: None).turn
    source = cast("Source", Growing())
    try:
        if kind == recognition.JEPSEN_EDN:
            read_edn(source, feed)
        else:
            read_log(source, feed)
    except EndedError:
        feed.decide()


# --- without: all of it, again and again -------------------------------------------------------------


class _Whole:
    """Checks what has come.

    Args:
      judge: Checks a history.
      reader: Reads it.
    """

    def __init__(self, judge: Callable[[History], Verdict], reader: HistoryReader) -> None:
        self._judge = judge
        self._reader = reader
        self._events: list[Event] = []
        self._uncertainty_ns = 0
        self._checked = 0
        self._alarm: Invalid | None = None
        self._next_s = 0.0

    def add(self, event: Event) -> None:
        """Takes the next event."""
        self._events.append(event)
        self._uncertainty_ns = max(self._uncertainty_ns, event.uncertainty_ns)

    def turn(self, idle_s: float) -> None:
        """Checks, if something has come and the latest check was long enough ago."""
        began_s = time.monotonic()
        if len(self._events) > self._checked and began_s >= self._next_s:
            verdict = self.check()
            ended_s = time.monotonic()
            self._next_s = ended_s + max(LOOK_S, ended_s - began_s)
            self._alarm = verdict if isinstance(verdict, Invalid) else None
            if self._alarm is not None and self._is_settled(self._alarm):
                raise _ViolationError(self._alarm)
        elif self._alarm is not None and len(self._events) == self._checked:
            if idle_s >= max(QUIET_S, 2e-9 * self._uncertainty_ns):
                raise _ViolationError(self._alarm)

    def check(self) -> Verdict:
        """Checks all that has come."""
        reader = self._reader
        self._checked = len(self._events)
        history = History(reader.header, self._events, tuple(reader.notes), tuple(reader.faults))
        return self._judge(history)

    def _is_settled(self, alarm: Invalid) -> bool:
        """Whether all events that may have been as early as those of a violation have come."""
        return alarm.anomaly.to_ns + 2 * self._uncertainty_ns < self._events[-1].time_ns


def _follow_whole(
    tail: Tail, spec: Specification | SetSpecification | None, options: argparse.Namespace
) -> tuple[Verdict, list[str]]:
    live = spec_of(options)

    def judge(history: History) -> Verdict:
        return service_verdict(history, live) if spec is None else check(history, spec)

    kind = tail.head()
    if kind != recognition.JSON_LINES:
        raise _cannot_follow(tail, kind)
    reader = HistoryReader(tail.lines(has_end=True), path=tail.path)
    whole = _Whole(judge, reader)
    tail.turn = whole.turn
    try:
        for event in reader:
            whole.add(event)
        return whole.check(), reader.notes
    except _ViolationError as found:
        return found.verdict, reader.notes
    except MalformedHistory as error:
        raise MalformedHistory(
            error.problem, path=tail.path, line=error.line, field=error.field
        ) from None


def service_verdict(history: History, live: LiveProcesses) -> Verdict:
    """The verdict on all objects of a history: the worst of them."""
    verdicts = [row.verdict for row in check_service(history, live=live) if row.verdict is not None]
    for kind in (Invalid, Unknown):
        for verdict in verdicts:
            if isinstance(verdict, kind):
                return verdict
    return verdicts[0] if verdicts else check(history, live)


# --- telling ------------------------------------------------------------------------------------------


def _report(
    options: argparse.Namespace, path: str, verdict: Verdict | MonitorVerdict, notes: list[str]
) -> None:
    word = ValidSoFar.word if isinstance(verdict, Valid) else verdict.word
    for note in notes:
        print(f"coordlab: {printable(path)}: {printable(note)}", file=sys.stderr)
    if options.json:
        fields = {"file": path, "verdict": word, "explanation": verdict.explain(), "notes": notes}
        print(json.dumps(fields))
        return
    print(f"{plain(path)}: {word}")
    if not options.quiet:
        for sentence in verdict.explain().splitlines():
            print(f"  {plain(sentence)}")
