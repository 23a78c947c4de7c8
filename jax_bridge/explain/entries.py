"""What a log says, entry by entry: a message of the C++ libraries, a traceback, or a line.

A message of absl (and of glog, its ancestor) begins with a severity, the date without its year, the
time, the thread and the place in the source; it goes on over lines that begin with none of these:

    E1130 05:26:57.472186    9349 coordination_service.cc:1518] [9045...] The following tasks ...
    2
    The tasks have crashed. ...

A traceback of Python ends with the line that names the exception; a chain of them is one entry. The
threads of C++ may print messages while it is written: it goes on behind them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from jax_bridge.explain.prefixes import HEADER, TRACEBACK, dated, seconds_of, unprefixed

TEXT_LINES_MAX = 60
"""Of a longer entry, the rest is read as lines of their own."""

_CHAINED = re.compile(
    r"During handling of the above exception|The above exception was the direct cause"
)
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?::|$)")
_GOES_ON = re.compile(
    r'\s+File ".*", line \d+|(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*(?::|$)'
    r"|\w*(?:Error|Exception|Exit|Interrupt|Warning)(?::|$)"
)
"""What stands in a traceback alone, and in no message."""
_FRAME = re.compile(r'\s+File "(.*)", line (\d+)')
_LIBRARY = re.compile(r"[/\\](?:site-packages|dist-packages|runpy\.py|jax_bridge)|<frozen ")


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
      label: Who printed it, if a launcher put that in front of the lines; else empty.
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
    label: str = ""

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.texts)


def entries(
    lines: Iterable[tuple[int, str]], note: Callable[[str], object] | None = None
) -> Iterator[Entry]:
    """Groups the lines of a log into entries, keeping no more than two per stream at a time.

    Args:
      lines: Their numbers and texts.
      note: Told what is odd.
    """
    assemblers: dict[tuple[str, str], _Assembler] = {}
    for line in unprefixed(lines, note or (lambda _: None)):
        key = line.label, line.stream
        assembler = assemblers.get(key)
        if assembler is None:
            assembler = assemblers[key] = _Assembler(line.label)
        yield from assembler.feed(line.number, line.text, line.time_s)
    for assembler in assemblers.values():
        yield from assembler.finish()


class _Assembler:
    def __init__(self, label: str) -> None:
        self._label = label
        self._entry: Entry | None = None
        self._torn: Entry | None = None  # A traceback in whose middle something else was printed.
        self._in_frames = False
        self._is_chained = False

    def feed(self, number: int, text: str, time_s: float | None) -> Iterator[Entry]:
        """Takes a line; yields what it completes."""
        if text[:1] in "IWEF" and (header := HEADER.match(text)):
            if self._in_frames:
                self._torn, self._entry = self._entry, None
            yield from self._finish_entry()
            self._entry = Entry(
                "message",
                number,
                seconds_of(header.groups()[1:6], header[7]),
                header[1],
                header[9],
                [header[10]],
                label=self._label,
            )
            return
        if text.startswith(TRACEBACK):
            if not (self._is_chained and self._entry is not None):
                yield from self.finish()
                self._entry = Entry("traceback", number, time_s, texts=[text], label=self._label)
            self._in_frames, self._is_chained = True, False
            return
        if self._torn is not None and _GOES_ON.match(text):
            yield from self._finish_entry()
            self._entry, self._torn, self._in_frames = self._torn, None, True
        entry = self._entry
        if entry is None:
            yield self._plain(number, text, time_s)
        elif entry.kind == "traceback":
            if self._trace(entry, number, text):
                yield from self._finish_entry()
                yield self._plain(number, text, time_s)
        elif len(entry.texts) < TEXT_LINES_MAX:
            entry.texts.append(text)
        else:
            yield from self._finish_entry()
            yield self._plain(number, text, time_s)

    def finish(self) -> Iterator[Entry]:
        """Yields what is not complete yet."""
        yield from self._finish_entry()
        self._entry, self._torn = self._torn, None
        yield from self._finish_entry()

    def _finish_entry(self) -> Iterator[Entry]:
        entry, self._entry = self._entry, None
        self._in_frames = self._is_chained = False
        if entry is not None:
            entry.texts = [text for text in entry.texts if text.strip()] or [""]
            yield entry

    def _plain(self, number: int, text: str, time_s: float | None) -> Entry:
        if time_s is None and text[:1] in "[12":
            time_s = dated(text)
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
