"""Files as lines of text: unpacked, decoded and bounded, whatever they hold."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn, Protocol

from checker.errors import MalformedHistory

if TYPE_CHECKING:
    from types import ModuleType

    from _typeshed import WriteableBuffer

HEAD_BYTES: Final = 1 << 16
"""A format is recognised by so much of a file, or the file is refused."""

LINE_BYTES_MAX: Final = 1 << 26
"""Longer lines, and longer values over several lines, are refused before they fill the memory."""

NESTING_MAX: Final = 200
"""Deeper values are refused: whoever handles values may do it recursively."""

_GZIP = b"\x1f\x8b"
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
_ZSTANDARD_PIECE_BYTES = 1024
"""A piece unpacks to at most 32 MiB: a block of 4 bytes may be 128 KiB of the same letter."""

_LAYERS_MAX = 3
_CHUNK_BYTES = 1 << 16

_OTHERS = {
    b"JEPSEN": "a binary file of Jepsen; export the history as EDN (Jepsen stores it as history.edn "
    "beside this file)",
    b"PK\x03\x04": "a ZIP archive; unpack it first",
    b"\xfd7zXZ\x00": "packed with xz; unpack it first (only gzip and zstd are unpacked here)",
    b"BZh": "packed with bzip2; unpack it first (only gzip and zstd are unpacked here)",
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
}
"""How files begin that people may take for a history."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Source:
    """An open history file, of which nothing but its head has been read.

    Attributes:
      path: The file, for messages.
      head: The first bytes after unpacking.
    """

    def __init__(self, file: IO[bytes], path: str) -> None:
        self.path = path
        stream: _Readable = file
        self.head = _read_fully(stream, HEAD_BYTES)
        for layer in range(_LAYERS_MAX + 1):
            unpack = _unpacker(self.head, path)
            if unpack is None:
                break
            if layer == _LAYERS_MAX:
                self.fail(f"packed more than {_LAYERS_MAX} times; unpack it first")
            stream = unpack(_buffered(self.head, stream))
            try:
                self.head = _read_fully(stream, HEAD_BYTES)
            except _unpacking_errors() as error:
                self._fail_unpacking(error)
        self._stream = _buffered(self.head, stream)
        self._refuse_binary()

    def fail(self, problem: str, *, line: int | None = None, field: str | None = None) -> NoReturn:
        """Raises a `MalformedHistory` that names the file."""
        raise MalformedHistory(problem, path=self.path, line=line, field=field) from None

    def lines(self) -> Iterator[str]:
        """The lines, with their line breaks. To be called once."""
        readline = self._stream.readline
        number = 0
        while True:
            number += 1
            try:
                line = readline(LINE_BYTES_MAX + 1)
            except _unpacking_errors() as error:
                self._fail_unpacking(error)
            if not line:
                return
            if len(line) > LINE_BYTES_MAX:
                self.fail(
                    f"the line is longer than {LINE_BYTES_MAX} bytes; is this a history?",
                    line=number,
                )
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                if line.endswith(b"\n") or error.reason != "unexpected end of data":
                    self.fail(f"not UTF-8 text ({error.reason}); is this a history?", line=number)
                text = line.decode(errors="ignore")  # The last line, cut inside a character.
            if number == 1:
                # Editors of some systems put a byte order mark before the first line.
                text = text.removeprefix("\ufeff")
            yield text

    def _fail_unpacking(self, error: Exception) -> NoReturn:
        self.fail(f"the packed file is damaged or cut ({error}); pack or copy it again")

    def _refuse_binary(self) -> None:
        for beginning, what in _OTHERS.items():
            if self.head.startswith(beginning):
                self.fail(f"this is {what}")
        if b"\x00" in self.head:
            self.fail("this is a binary file, not a history in a text format")


class _Replay(io.RawIOBase):
    """A stream whose first bytes have been read already."""

    def __init__(self, head: bytes, rest: _Readable) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        target = memoryview(buffer)
        part = self._head[: len(target)] or self._rest.read(len(target))
        if self._head:
            self._head = self._head[len(part) :]
        target[: len(part)] = part
        return len(part)


class _ZstandardFrames:
    """Unpacks zstd frames one after the other; a cut one is an error, unlike in the package's reader."""

    def __init__(self, stream: _Readable, new_frame: Callable[[], Any]) -> None:
        self._stream = stream
        self._new_frame = new_frame
        self._frame: Any = None
        self._unpacked = b""

    def read(self, size: int) -> bytes:
        while not self._unpacked:
            packed = self._stream.read(_ZSTANDARD_PIECE_BYTES)
            if not packed:
                if self._frame is not None:
                    raise EOFError("its last frame is not whole")
                return b""
            while packed:
                if self._frame is None:
                    self._frame = self._new_frame()
                self._unpacked += self._frame.decompress(packed)
                packed = b""
                if self._frame.eof:
                    packed, self._frame = self._frame.unused_data, None
        part, self._unpacked = self._unpacked[:size], self._unpacked[size:]
        return part


def _buffered(head: bytes, rest: _Readable) -> io.BufferedReader:
    return io.BufferedReader(_Replay(head, rest), _CHUNK_BYTES)


def _read_fully(stream: _Readable, size: int) -> bytes:
    """Reads `size` bytes or up to the end; a pipe gives them in parts."""
    parts: list[bytes] = []
    while size > 0 and (part := stream.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _unpacker(head: bytes, path: str) -> Any:
    if head.startswith(_GZIP):
        import gzip

        return lambda stream: gzip.GzipFile(fileobj=stream)
    if head.startswith(_ZSTANDARD):
        zstandard = _zstandard()
        if zstandard is None:
            raise MalformedHistory(
                "packed with zstd, and the package zstandard is not installed; "
                "pip install 'coordlab[zstd]', or unpack it first",
                path=path,
            )
        return lambda stream: _ZstandardFrames(stream, zstandard.ZstdDecompressor().decompressobj)
    return None


def _zstandard() -> ModuleType | None:
    try:
        import zstandard
    except ImportError:
        return None
    return zstandard


def _unpacking_errors() -> tuple[type[Exception], ...]:
    errors: tuple[type[Exception], ...] = (EOFError, zlib.error)
    import sys

    # Neither has been imported unless something was unpacked.
    if "gzip" in sys.modules:
        errors += (sys.modules["gzip"].BadGzipFile,)
    if "zstandard" in sys.modules:
        errors += (sys.modules["zstandard"].ZstdError,)
    return errors
