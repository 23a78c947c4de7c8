"""What a log says, entry by entry: a message of the C++ libraries, a traceback, or a line.

A message of absl (and of glog, its ancestor) begins with a severity, the date without its year, the
time, the thread and the place in the source; it goes on over lines that begin with none of these:

    E1130 05:26:57.472186    9349 coordination_service.cc:1518] [9045...] The following tasks ...
    2
    The tasks have crashed. ...

A traceback of Python ends with the line that names the exception; a chain of them is one entry.
Launchers put the rank in front of each line (`srun --label`, `mpirun --tag-output`, torchrun), and
container logs a time; both are taken off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

TEXT_LINES_MAX = 60
"""Of a longer entry, the rest is read as lines of their own."""

_HEADER = re.compile(
    r"([IWEF])(?:\d{4})?(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,9})\s+(\d+) ([^\s:]+:\d+)\] ?(.*)",
    re.DOTALL,
)
_DATED = re.compile(r"\[?\d{4}-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_LABEL = re.compile(
    r"(?:\s*(\d+): |\[(?:\w+[,.])?(\d+)\](?:<\w+>)?:? ?|\[(?:rank|default)(\d+)\]:? ?)"
)
_CONTAINER = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(?:Z|[+-]\d\d:\d\d)) (?:std(?:out|err) [FP] )?"
)
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = re.compile(
    r"During handling of the above exception|The above exception was the direct cause"
)
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?::|$)")
_FRAME = re.compile(r'\s+File "(.*)", line (\d+)')
_LIBRARY = re.compile(r"[/\\](?:site-packages|dist-packages|runpy\.py|jax_bridge)|<frozen ")
_LABELLED_AT_LEAST = 0.9
_LABELS_LOOKED_AT = 40

ANY_YEAR = 2000
"""Messages do not tell the year; a leap year knows all days."""


@dataclass(slots=True)
class Entry:
    """One thing that a log says.

    Attributes:
      kind: `message` (of the C++ libraries), `traceback` or `line`.
      line: Where it begins.
      time_s: Seconds since a year's beginning by the host's clock, or None where it does not say.
      severity: One of `IWEF` for a message, else empty.
      texts: Its lines, without what stands in front of a message.
      exception: Of a traceback, the last exception of the chain, `Type: text`; may span lines.
      exception_line: Where that stands.
      frame: Of a traceback, the innermost place in the program's own files, `FILE:LINE`.
      label: The rank in front of the lines, if a launcher put it there.
    """

    kind: str
    line: int
    time_s: float | None = None
    severity: str = ""
    source: str = ""
    texts: list[str] = field(default_factory=list)
    exception: str = ""
    exception_line: int = 0
    frame: str = ""
    label: int | None = None

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.texts)


def entries(lines: Iterable[tuple[int, str]]) -> Iterator[Entry]:
    """Groups the lines of a log into entries, keeping no more than one per label at a time."""
    assemblers: dict[int | None, _Assembler] = {}
    for label, container_time, number, text in _unlabelled(lines):
        assembler = assemblers.get(label)
        if assembler is None:
            assembler = assemblers[label] = _Assembler(label)
        yield from assembler.feed(number, text, container_time)
    for assembler in assemblers.values():
        yield from assembler.finish()


def _unlabelled(
    lines: Iterable[tuple[int, str]],
) -> Iterator[tuple[int | None, float | None, int, str]]:
    iterator = iter(lines)
    first: list[tuple[int, str]] = []
    for line in iterator:
        first.append(line)
        if len(first) == _LABELS_LOOKED_AT:
            break
    told = [text for _, text in first if text.strip()]
    is_container = _mostly(_CONTAINER, told)
    if is_container:
        told = [_CONTAINER.sub("", text, count=1) for text in told]
    is_labelled = _mostly(_LABEL, told)
    label: int | None = None
    for source in (first, iterator):
        for number, text in source:
            time_s = None
            if is_container and (found := _CONTAINER.match(text)):
                time_s = _dated(found[1])
                text = text[found.end() :]
            if is_labelled and (found := _LABEL.match(text)):
                label = int(found[1] or found[2] or found[3])
                text = text[found.end() :]
            yield label, time_s, number, text


def _mostly(pattern: re.Pattern[str], texts: list[str]) -> bool:
    return len(texts) > 1 and (
        sum(1 for text in texts if pattern.match(text)) >= _LABELLED_AT_LEAST * len(texts)
    )


class _Assembler:
    def __init__(self, label: int | None) -> None:
        self._label = label
        self._entry: Entry | None = None
        self._in_frames = False
        self._is_chained = False

    def feed(self, number: int, text: str, time_s: float | None) -> Iterator[Entry]:
        """Takes a line; yields what it completes."""
        if text[:1] in "IWEF" and (header := _HEADER.match(text)):
            yield from self.finish()
            self._entry = Entry(
                "message",
                number,
                _seconds(header.groups()[1:6], header[7]),
                header[1],
                header[9],
                [header[10]],
                label=self._label,
            )
            return
        if text.startswith(_TRACEBACK):
            if not (self._is_chained and self._entry is not None):
                yield from self.finish()
                self._entry = Entry("traceback", number, time_s, texts=[text], label=self._label)
            self._in_frames, self._is_chained = True, False
            return
        entry = self._entry
        if entry is None:
            yield self._plain(number, text, time_s)
        elif entry.kind == "traceback":
            if self._trace(entry, number, text):
                yield from self.finish()
                yield self._plain(number, text, time_s)
        elif len(entry.texts) < TEXT_LINES_MAX:
            entry.texts.append(text)
        else:
            yield from self.finish()
            yield self._plain(number, text, time_s)

    def finish(self) -> Iterator[Entry]:
        """Yields what is not complete yet."""
        entry, self._entry = self._entry, None
        self._in_frames = self._is_chained = False
        if entry is not None:
            entry.texts = [text for text in entry.texts if text.strip()] or [""]
            yield entry

    def _plain(self, number: int, text: str, time_s: float | None) -> Entry:
        if time_s is None and text[:1] in "[12":
            time_s = _dated(text)
        return Entry("line", number, time_s, texts=[text], label=self._label)

    def _trace(self, entry: Entry, number: int, text: str) -> bool:
        """Adds a line to a traceback; whether it belongs to something else."""
        if self._in_frames:
            if frame := _FRAME.match(text):
                if not _LIBRARY.search(frame[1]):
                    entry.frame = f"{frame[1]}:{frame[2]}"
            elif not text[:1].isspace() and _EXCEPTION.match(text):
                entry.exception, entry.exception_line = text, number
                entry.texts.append(text)
                self._in_frames = False
            return False
        if _CHAINED.match(text):
            self._is_chained = True
        if len(entry.texts) >= TEXT_LINES_MAX:
            return True
        entry.texts.append(text)
        if text.strip() and not self._is_chained:
            entry.exception += "\n" + text
        return False


def _dated(text: str) -> float | None:
    found = _DATED.match(text)
    return None if found is None else _seconds(found.groups()[:5], found[6] or "0")


def _seconds(numbers: Sequence[str | Any], fraction: str) -> float | None:
    """Of a month, a day, an hour, a minute and a second."""
    month, day, hour, minute, second = map(int, numbers)
    try:
        moment = datetime(ANY_YEAR, month, day, hour, minute, second)  # noqa: DTZ001 - the host's
    except ValueError:
        return None
    since_s: float = (moment - datetime(ANY_YEAR, 1, 1)).total_seconds()  # noqa: DTZ001
    return since_s + float(f"0.{fraction}")
