"""Reads the log of a process into what matters of it; the memory does not grow with the file."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jax_bridge.explain.causes import QUOTE_MAX, Evidence, quoted
from jax_bridge.explain.entries import Entry, entries
from jax_bridge.explain.lines import LogReader
from jax_bridge.explain.messages import Found, KnownMessage, Role, find_known
from jax_bridge.explain.naming import is_service, process_in_label, process_of, without_stream

_KEPT = 3
"""First sightings of a kind that are kept; of later ones, the last."""

FINISHED = re.compile(
    r"\b(?:finish(?:ed)?|done|complete(?:d)?|end(?:ed)? of training|success(?:ful)?(?:ly)?)\b",
    re.IGNORECASE,
)

_WENT_ON_LINES = 5
"""A program that prints more lines after an exception has not ended with it."""

_NOT_DONE = re.compile(
    r"\b(?:not|never|cannot|un\w+|fail\w*|errors?|before|until|if)\b|n't", re.IGNORECASE
)
_OF_LOGGER = re.compile(
    r"\[?\d{4}-\d\d-\d\d[T ]|\[?\d\d:\d\d:\d\d|\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b"
)
"""How a line of a program's own log begins; no text of an exception does."""

_LOOKED_BACK_LINES = 40
_NUMBER = re.compile(r"[-+]?\d[\w.,:+%/-]*")

_SERVICE_BEGINS = "Initializing CoordinationService"

_SHOWN_BEFORE = 60
"""Characters of a line before a known message that are quoted."""

_LINES_PER_REPORT = 65_536


@dataclass(frozen=True, slots=True)
class Sighting:
    """A known message in a log.

    Attributes:
      message, fields: Which, and what it tells.
      evidence: Where.
      process: Whose log it is in.
      time_s: Seconds since a year's beginning by the host's clock, if known.
      is_fatal: The message with which the process ended itself.
    """

    message: KnownMessage
    fields: dict[str, str]
    evidence: Evidence
    process: int | None
    time_s: float | None
    is_fatal: bool


@dataclass(slots=True)
class Raised:
    """An exception that a log shows.

    Attributes:
      text: Its first line, `Type: text`; empty where the log is cut or torn before it.
      evidence: Where it stands.
      process: Whose log it is in.
      frame: The innermost place in the program's own files, `FILE:LINE`, or empty.
      known: The known messages in it.
      lines_after: Lines that the program printed afterwards.
      is_done_after: Whether the last of them says that the work is done.
    """

    text: str
    evidence: Evidence
    process: int | None
    frame: str
    known: tuple[KnownMessage, ...]
    lines_after: int = 0
    is_done_after: bool = False

    @property
    def is_origin(self) -> bool:
        """Whether it is an exception of the program's own; without its text that is not known."""
        return bool(self.text) and not self.known

    @property
    def went_on(self) -> bool:
        """Whether what the program printed afterwards shows that it has not ended with this."""
        return self.lines_after > _WENT_ON_LINES or self.is_done_after


@dataclass(slots=True)
class ProcessLog:
    """What matters of one log (or of one rank's lines in a log of many).

    Attributes:
      path: The file.
      process, start: Whose it is, if the name or the lines tell, and which start of it.
      is_service: Whether it is of a service that is a process of its own.
      sightings, raised: What it shows, the first few of each kind and the last.
      counts: How often each known message occurs.
      errors: Messages of severity E and F that are not known, the first few.
      lines: How many there are.
      first_s, last_s: The first and the last time that it tells.
      last: The last line that is no message of the C++ libraries.
      last_message: The last that is one: its line, and its text.
      services: How many services of jaxlib began in it, one after the other.
      lately: The last lines of the program, which show the form of what it prints.
    """

    path: Path
    process: int | None
    start: int = 0
    is_service: bool = False
    sightings: list[Sighting] = field(default_factory=list)
    raised: list[Raised] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    errors: list[Evidence] = field(default_factory=list)
    lines: int = 0
    first_s: float | None = None
    last_s: float | None = None
    last: Evidence | None = None
    last_message: tuple[int, str] | None = None
    services: int = 0
    lately: deque[str] = field(default_factory=lambda: deque(maxlen=_LOOKED_BACK_LINES))

    @property
    def fatal(self) -> tuple[Sighting, ...]:
        """What the message says with which the process ended itself."""
        return tuple(sighting for sighting in self.sightings if sighting.is_fatal)

    @property
    def verdict(self) -> Evidence:
        """Of the fatal message, the line that says most."""
        telling = [s for s in self.fatal if s.message.name != "process-terminated"]
        return (telling or self.fatal)[0].evidence

    @property
    def fatal_s(self) -> float | None:
        """When it ended itself."""
        return next((s.time_s for s in self.fatal if s.time_s is not None), None)

    def of(self, *names: str) -> list[Sighting]:
        """The sightings of these messages."""
        return [sighting for sighting in self.sightings if sighting.message.name in names]

    def has(self, *names: str) -> bool:
        """Whether the log has one of these messages."""
        return any(name in self.counts for name in names)

    def has_fatal(self, *names: str) -> bool:
        """Whether the process ended itself for one of these."""
        return any(sighting.message.name in names for sighting in self.fatal)

    def has_origin(self) -> bool:
        """Whether something began here: a known origin, or an exception that is no echo.

        One whose text is cut off is none where the process ended itself, as both are mostly one thing.
        """
        return any(s.message.role is Role.ORIGIN for s in self.sightings) or any(
            raised.is_origin or not (raised.text or self.fatal) for raised in self.raised
        )

    @property
    def ended_by(self) -> Raised | None:
        """The last exception, if the program did not go on after it."""
        return self.raised[-1] if self.raised and not self.raised[-1].went_on else None

    def lost_service(self) -> Evidence | None:
        """What shows that the process lost the service: it ended itself for that, or a call failed."""
        if self.has_fatal("service-lost"):
            return self.verdict
        return next(
            (
                raised.evidence
                for raised in self.raised
                if not raised.went_on and any(m.name == "call-lost-service" for m in raised.known)
            ),
            None,
        )

    def end(self) -> Evidence:
        """How the log ends, to be quoted."""
        said = (
            f"{self.lines} lines, none of them the program's" if self.lines else "nothing is in it"
        )
        return self.last or Evidence(str(self.path), 0, said)

    def end_of_messages(self) -> Evidence:
        """The last message of the C++ libraries, to be quoted; without one, how the log ends."""
        if self.last_message is None:
            return self.end()
        line, text = self.last_message
        return Evidence(str(self.path), line, quoted(text))


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file that was read as a log.

    Attributes:
      path: The file.
      logs: One for each process whose lines it holds.
      lines: How many it has.
      notes: What was odd about it.
      is_empty: Whether nothing is in it.
      doubt: Why it may hide what matters: it is no text, or it could not be read to its end.
    """

    path: Path
    logs: tuple[ProcessLog, ...]
    lines: int
    notes: tuple[str, ...]
    is_empty: bool
    doubt: str


def read_log(path: Path, report: Callable[[int], object] | None = None) -> LogFile:
    """Reads a file as a log.

    Args:
      path: Any file; what cannot be read of it is named in the notes.
      report: Called every 65,536 lines with the number of lines so far.

    Raises:
      OSError: the file cannot be opened.
    """
    process, start = process_of(path)
    reader = LogReader(path)
    notes: list[str] = []
    logs: dict[str, ProcessLog] = {}
    for entry in entries(_reported(reader, report), notes.append):
        log = logs.get(entry.label)
        if log is None:
            labelled = process_in_label(entry.label)
            number = process if labelled is None else labelled
            log = logs[entry.label] = ProcessLog(path, number, start, is_service(path))
        _take(log, entry)
    if len(logs) > 1 and "" in logs and not logs[""].sightings:
        del logs[""]  # Lines of the launcher itself, before the first rank's.
    if not logs:
        logs[""] = ProcessLog(path, process, start, is_service(path))
    return LogFile(
        path,
        tuple(logs.values()),
        reader.line,
        (*reader.notes(), *notes),
        reader.is_empty(),
        reader.doubt(),
    )


def with_streams_joined(logs: Iterable[ProcessLog]) -> list[ProcessLog]:
    """Joins what a process wrote to its standard error and to its standard output, a file each."""
    joined: dict[tuple[Path, int | None, int], ProcessLog] = {}
    kept = []
    for log in logs:
        key = log.path.with_name(without_stream(log.path.name)), log.process, log.start
        other = joined.setdefault(key, log)
        if other is log or other.path == log.path:
            kept.append(log)
        else:
            _join(other, log)
    return kept


def _join(log: ProcessLog, other: ProcessLog) -> None:
    """Adds another stream to a log; the last line is that of the standard output, if it has one."""
    log.sightings += other.sightings
    log.raised += other.raised
    log.errors += other.errors
    for name, count in other.counts.items():
        log.counts[name] = log.counts.get(name, 0) + count
    log.lines += other.lines
    log.services += other.services
    log.first_s = min((s for s in (log.first_s, other.first_s) if s is not None), default=None)
    log.last_s = max((s for s in (log.last_s, other.last_s) if s is not None), default=None)
    is_output = "out" in other.path.name
    log.last = (other.last or log.last) if is_output else (log.last or other.last)
    log.last_message = log.last_message or other.last_message


def _reported(
    reader: LogReader, report: Callable[[int], object] | None
) -> Iterator[tuple[int, str]]:
    for number, text in reader.lines():
        if report is not None and number % _LINES_PER_REPORT == 0:
            report(number)
        yield number, text


def _take(log: ProcessLog, entry: Entry) -> None:
    log.lines += len(entry.texts)
    if entry.time_s is not None:
        log.first_s = entry.time_s if log.first_s is None else log.first_s
        log.last_s = entry.time_s
    text = entry.text
    found = tuple(find_known(text))
    for one in found:
        _keep(log, entry, text, one)
    if entry.kind == "traceback":
        _keep_raised(log, entry)
        _went_on_with(log, entry.exception.split("\n")[1:])
    elif entry.kind == "message":
        log.last_message = (entry.line, entry.texts[0][:QUOTE_MAX])
        log.services += _SERVICE_BEGINS in entry.texts[0]
        if not found and entry.severity in "EF" and len(log.errors) < _KEPT:
            log.errors.append(_evidence(log, entry.line, entry.texts[0]))
        _went_on_with(log, entry.texts[1:])
    elif text.strip():
        log.last = _evidence(log, entry.line, text)
        log.lately.append(text)
        _printed_after(log, 1, text)


def _went_on_with(log: ProcessLog, texts: list[str]) -> None:
    """Counts lines of the program among those that stand behind a message or an exception.

    They look like more of its text; but what has the form of a line of the program's log, or of what it
    printed before, is none, nor are the lines behind that one.
    """
    if not (log.raised and texts):
        return
    forms = {_form(line) for line in log.lately} - {None}
    own = [bool(_OF_LOGGER.match(line)) or _form(line) in forms for line in texts]
    if any(own):
        _printed_after(log, len(own) - own.index(True), texts[-1])
    elif _says_done(texts[-1]):
        _printed_after(log, 1, texts[-1])


def _printed_after(log: ProcessLog, lines: int, last: str) -> None:
    for raised in log.raised:
        raised.lines_after += lines
        raised.is_done_after = _says_done(last)


def _says_done(text: str) -> bool:
    return FINISHED.search(text) is not None and _NOT_DONE.search(text) is None


def _form(text: str) -> str | None:
    """A line without its numbers; None if it is nothing else."""
    form = _NUMBER.sub("#", text)
    return form if any(character.isalpha() for character in form) else None


def _keep(log: ProcessLog, entry: Entry, text: str, found: Found) -> None:
    name = found.message.name
    log.counts[name] = log.counts.get(name, 0) + 1
    line, quote = entry.line, text[found.offset : found.offset + QUOTE_MAX]
    if entry.kind == "traceback" and entry.exception_line:
        line, quote = entry.exception_line, entry.exception.partition("\n")[0]
    elif found.offset:
        beginning = text[: found.offset].rpartition("\n")[2]
        quote = (beginning if len(beginning) <= _SHOWN_BEFORE else "…") + quote
    sighting = Sighting(
        found.message,
        found.fields,
        _evidence(log, line, quote),
        log.process,
        entry.time_s,
        entry.severity == "F",
    )
    same = [
        i
        for i, kept in enumerate(log.sightings)
        if kept.message.name == name and kept.is_fatal == sighting.is_fatal
    ]
    if len(same) > _KEPT:
        log.sightings[same[-1]] = sighting
    else:
        log.sightings.append(sighting)


def _keep_raised(log: ProcessLog, entry: Entry) -> None:
    known = tuple(found.message for found in find_known(entry.text))
    exception = entry.exception.partition("\n")[0]
    evidence = _evidence(log, entry.exception_line or entry.line, exception or entry.texts[-1])
    raised = Raised(exception, evidence, log.process, entry.frame, known)
    if len(log.raised) > _KEPT:
        log.raised[-1] = raised
    else:
        log.raised.append(raised)


def _evidence(log: ProcessLog, line: int, text: str) -> Evidence:
    return Evidence(str(log.path), line, quoted(text))
