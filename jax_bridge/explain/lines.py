"""The lines of a log, whatever the file holds: streamed, numbered, and never too long.

A log may be packed, have progress bars (many states in one line, separated by carriage returns),
colours, zero bytes of a disk that lost its power, or be no text at all. What was odd is counted and
named; everything that can be read is read.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

LINE_BYTES_MAX = 1 << 16
"""Of a longer line, the rest is left out."""

NOISE_SHARE = 0.5
"""A file with more lines than this share that hold bytes of no text is no log."""

_GZIP = b"\x1f\x8b"
_OTHER_PACKED = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
}
_WIDE = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_COLOURS = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_NOISE = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


@dataclass(slots=True)
class LogReader:
    """Reads one log.

    Attributes:
      path: The file.
      line: Number of the line that was read last, from 1.
      long_lines, noisy_lines: How many were cut, and how many held bytes that are no text.
      told_lines: How many hold anything but white space.
      problems: What ended the reading early, in words.
    """

    path: Path
    line: int = 0
    long_lines: int = 0
    noisy_lines: int = 0
    told_lines: int = 0
    problems: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[tuple[int, str]]:
        """The number and the text of each line, without its end.

        Raises:
          OSError: the file cannot be opened.
        """
        with open(self.path, "rb") as raw:
            beginning = raw.read(8)
            raw.seek(0)
            packed = next(
                (n for magic, n in _OTHER_PACKED.items() if beginning.startswith(magic)), ""
            )
            if packed:
                self.problems.append(f"is packed with {packed}: unpack it first")
                return
            file = self._opened(raw, beginning)
            try:
                yield from self._of(file)
            except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeError, OSError) as error:
                self.problems.append(f"cannot be read beyond line {self.line}: {error}")
            finally:
                if file is not raw:
                    file.close()

    def notes(self) -> list[str]:
        """What was odd about the file, each in words."""
        notes = list(self.problems)
        if self.long_lines:
            notes.append(f"{self.long_lines:,} lines longer than {LINE_BYTES_MAX:,} bytes were cut")
        if self.noisy_lines:
            notes.append(f"{self.noisy_lines:,} of {self.line:,} lines hold bytes that are no text")
        return notes

    def is_empty(self) -> bool:
        """Whether the file was read to its end, and nothing was in it."""
        return not self.told_lines and not self.problems

    def doubt(self) -> str:
        """Why the file may hide what matters, in words; empty if it was read as it is."""
        if self.problems:
            return self.problems[0]
        if self.noisy_lines > self.line * NOISE_SHARE:
            return f"{self.noisy_lines:,} of {self.line:,} lines hold bytes that are no text"
        return ""

    def _opened(self, raw: IO[bytes], beginning: bytes) -> IO[bytes]:
        if beginning.startswith(_GZIP):
            return cast("IO[bytes]", gzip.open(raw))
        wide = next((name for mark, name in _WIDE.items() if beginning.startswith(mark)), None)
        return raw if wide is None else _Recoded(raw, wide)

    def _of(self, file: IO[bytes]) -> Iterator[tuple[int, str]]:
        while line := file.readline(LINE_BYTES_MAX):
            self.line += 1
            if not line.endswith(b"\n") and len(line) >= LINE_BYTES_MAX:
                self.long_lines += 1
                _skip_line(file)
            if b"\x1b" in line:
                line = _COLOURS.sub(b"", line)
            if _NOISE.search(line):
                self.noisy_lines += 1
                line = _NOISE.sub(b"", line)
            line = line.rstrip(b"\r\n")
            if not line.isspace() and line:
                self.told_lines += 1
            text = line.decode("utf-8", errors="replace")
            if "\r" not in text:
                yield self.line, text
                continue
            for state in text.split("\r"):
                yield self.line, state


def _skip_line(file: IO[bytes]) -> None:
    while rest := file.readline(LINE_BYTES_MAX):
        if rest.endswith(b"\n"):
            return


class _Recoded(io.BytesIO):
    """Lines of a text in another encoding, as UTF-8; nothing else of a file is offered."""

    def __init__(self, raw: IO[bytes], encoding: str) -> None:
        super().__init__()
        self._text = io.TextIOWrapper(raw, encoding, errors="replace")

    def close(self) -> None:
        self._text.detach()
        super().close()

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._text.readline(-1 if size is None else size).encode("utf-8", errors="replace")
