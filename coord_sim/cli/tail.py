"""The lines of a file that another program is writing."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from checker import MalformedHistory
from checker.formats import recognition
from checker.formats.source import HEAD_BYTES, LINE_BYTES_MAX, Source
from checker.printable import printable
from coord_sim.cli.errors import CommandError

if TYPE_CHECKING:
    from types import FrameType

POLL_S: Final = 0.05

_CHUNK_BYTES: Final = 1 << 20
_PACKED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


class EndedError(Exception):
    """Ends the reading of a format that has no end of its own."""


class Ending:
    """Ctrl-C: the first one asks for the verdict so far, the second one ends at once."""

    def __init__(self) -> None:
        self.is_asked_for = False
        self._before = signal.signal(signal.SIGINT, self._ask)

    def restore(self) -> None:
        """Gives Ctrl-C back the meaning that it had."""
        signal.signal(signal.SIGINT, self._before)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.is_asked_for = True
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Tail:
    """The lines of a file that grows.

    Args:
      path: The file; it need not be there yet.
      ending: Says when to end.
      until_idle_s: Ends when no line has come for so long, if it is not None.

    Attributes:
      turn: Called after each line with 0, and while nothing comes with the seconds since the last one.
      is_cut: Whether the last line, without a line break, was left out.
    """

    def __init__(self, path: str, ending: Ending, until_idle_s: float | None) -> None:
        self.path = path
        self.turn: Callable[[float], None] = lambda _idle_s: None
        self.is_cut = False
        self._ending = ending
        self._until_idle_s = until_idle_s
        self._file: IO[bytes] | None = None
        self._position = 0
        self._rest = b""
        self._lines: list[bytes] = []
        self._came_s = time.monotonic()
        self._has_said = False

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()

    def head(self) -> str:
        """Waits until the format can be recognised; returns its name. The lines are still to be read."""
        while True:
            came = b"".join(self._lines)
            if came.startswith(_PACKED) or self._rest.startswith(_PACKED):
                raise CommandError(
                    f"{printable(self.path)}: a packed file cannot be followed; check it when whole"
                )
            if came:
                try:
                    source = Source(io.BytesIO(came), self.path)
                    return recognition.format_of(source)
                except MalformedHistory:
                    if len(came) >= HEAD_BYTES or not self._more():
                        raise
            elif not self._more():
                return ""

    def lines(self, *, has_end: bool) -> Iterator[str]:
        """The lines, as they come.

        Args:
          has_end: Whether the format may end anywhere, so that what is left is a line, cut or not. If
            not, the end is an `EndedError`.
        """
        number = 0
        while True:
            lines, self._lines = self._lines, []
            for line in lines:
                number += 1
                text = self._decoded(line, number)
                yield text.removeprefix("\ufeff") if number == 1 else text
                self.turn(0.0)
            if not self._lines and not self._more():
                break
        if not has_end:
            self.is_cut = bool(self._rest)
            raise EndedError
        if self._rest:
            yield self._rest.decode(errors="ignore")

    def _more(self) -> bool:
        """Waits for lines; False when it is time to end."""
        while not self._ending.is_asked_for:
            if self._read():
                self._came_s = time.monotonic()
                return True
            idle_s = time.monotonic() - self._came_s
            if self._until_idle_s is not None and idle_s >= self._until_idle_s:
                return False
            self.turn(idle_s)
            if idle_s > 1 and not self._has_said and not self._position:
                self._has_said = True
                what = "is empty" if self._file is not None else "is not there"
                print(
                    f"coordlab: {printable(self.path)} {what} yet; waiting for it",
                    file=sys.stderr,
                    flush=True,
                )
            time.sleep(POLL_S)
        return False

    def _read(self) -> bool:
        if self._file is None:
            try:
                self._file = open(self.path, "rb")  # noqa: SIM115 - closed by close()
            except FileNotFoundError:
                return False
        self._refuse_another_file(self._file)
        chunk = self._file.read(_CHUNK_BYTES)
        if not chunk:
            return False
        self._position += len(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self._lines += [line + b"\n" for line in lines]
        if len(self._rest) > LINE_BYTES_MAX:
            raise CommandError(
                f"{printable(self.path)}: a line has more than {LINE_BYTES_MAX} bytes; is it a history?"
            )
        return bool(lines)

    def _refuse_another_file(self, file: IO[bytes]) -> None:
        here = os.fstat(file.fileno())
        if here.st_size < self._position:
            raise CommandError(
                f"{printable(self.path)}: the file was cut to {here.st_size} bytes after "
                f"{self._position} had been read; start again with the new one"
            )
        try:
            there = Path(self.path).stat()
        except FileNotFoundError:
            return  # Unlinked; who writes it may go on.
        if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
            raise CommandError(
                f"{printable(self.path)}: the file was replaced while it was followed; start again with "
                "the new one"
            )

    def _decoded(self, line: bytes, number: int) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise MalformedHistory(
                f"not UTF-8 text ({error.reason})", path=self.path, line=number
            ) from None
