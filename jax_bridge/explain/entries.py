"""What a log says, entry by entry: a message of the C++ libraries, a traceback, or a line.

A message of absl (and of glog, its ancestor) begins with a severity, the date without its year, the
time, the thread and the place in the source; it goes on over lines that begin with none of these:

    E1130 05:26:57.472186    9349 coordination_service.cc:1518] [9045...] The following tasks ...
    2
    The tasks have crashed. ...

A traceback of Python ends with the line that names the exception; a chain of them is one entry, and each
exception that a group gathers is one. The threads of C++ may print messages while it is written: it goes
on behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from jax_bridge.explain.prefixes import HEADER, dated, seconds_of, unprefixed
from jax_bridge.explain.tracebacks import Traceback, is_bad_syntax, shows_source

TEXT_LINES_MAX = 60
"""Of a longer message, the rest is read as lines of their own."""

_SOURCE_LINES_MAX = 3
"""Of a file that is no Python: where, the line, and a mark under it."""


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
        self._message: Entry | None = None
        self._traceback: Traceback | None = None
        self._torn: Traceback | None = None  # One in whose middle something else was printed.
        self._source: list[tuple[int, str, float | None]] = []  # What may be said of bad syntax.

    def feed(self, number: int, text: str, time_s: float | None) -> Iterator[Entry]:
        """Takes a line; yields what it completes."""
        if self._source:
            if is_bad_syntax(text):
                yield from self._bad_syntax(number, text)
                return
            if text[:1].isspace() and len(self._source) < _SOURCE_LINES_MAX:
                self._source.append((number, text, time_s))
                return
            yield from self._source_off()
        is_inside = self._torn or (self._traceback and self._traceback.is_open)
        if not is_inside and shows_source(text):
            self._source.append((number, text, time_s))
        else:
            yield from self._feed(number, text, time_s)

    def finish(self) -> Iterator[Entry]:
        """Yields what is not complete yet."""
        yield from self._source_off()
        yield from self._finish()

    def _feed(self, number: int, text: str, time_s: float | None) -> Iterator[Entry]:
        if text[:1] in "IWEF" and (header := HEADER.match(text)):
            if self._traceback is not None and self._traceback.is_open:
                self._torn, self._traceback = self._traceback, None
            yield from self._finish_entry()
            self._message = Entry(
                "message",
                number,
                seconds_of(header.groups()[1:6], header[7]),
                header[1],
                header[9],
                [header[10]],
                label=self._label,
            )
            return
        if self._torn is not None and self._torn.goes_on_with(text):
            yield from self._finish_entry()
            self._traceback, self._torn = self._torn, None
        if self._traceback is not None:
            if self._traceback.feed(number, text):
                return
            yield from self._finish_entry()
        if Traceback.begins(text):
            yield from self._finish()
            self._traceback = Traceback(number, text, time_s)
        elif self._message is not None and len(self._message.texts) < TEXT_LINES_MAX:
            self._message.texts.append(text)
        else:
            yield from self._finish_entry()
            yield self._plain(number, text, time_s)

    def _finish(self) -> Iterator[Entry]:
        yield from self._finish_entry()
        self._traceback, self._torn = self._torn, None
        yield from self._finish_entry()

    def _finish_entry(self) -> Iterator[Entry]:
        message, self._message = self._message, None
        if message is not None:
            message.texts = _told(message.texts)
            yield message
        traceback, self._traceback = self._traceback, None
        if traceback is not None:
            for raised in traceback.raised():
                yield Entry(
                    "traceback",
                    raised.line,
                    traceback.time_s,
                    texts=_told(raised.texts),
                    exception=raised.exception,
                    exception_line=raised.exception_line,
                    frame=raised.frame,
                    label=self._label,
                )

    def _bad_syntax(self, number: int, text: str) -> Iterator[Entry]:
        yield from self._finish()
        (first, where, time_s), *others = self._source
        self._source = []
        self._traceback = Traceback(first, where, time_s)
        for other, told, _ in others:
            self._traceback.feed(other, told)
        self._traceback.feed(number, text)

    def _source_off(self) -> Iterator[Entry]:
        source, self._source = self._source, []
        for number, text, time_s in source:
            yield from self._feed(number, text, time_s)

    def _plain(self, number: int, text: str, time_s: float | None) -> Entry:
        if time_s is None and text[:1] in "[12":
            time_s = dated(text)
        return Entry("line", number, time_s, texts=[text], label=self._label)


def _told(texts: list[str]) -> list[str]:
    """Those with anything in them; at least one."""
    return [text for text in texts if text.strip()] or [""]
