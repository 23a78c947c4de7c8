"""HTTP/2 as a bystander sees it: the frames of one direction, and what header blocks say (RFC 9113).

Nothing is answered and nothing is refused that both ends may agree on; what cannot be read ends the
reading of the connection, not the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

import hpack
import hpack.table

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first."""

DATA: Final = 0
HEADERS: Final = 1
RST_STREAM: Final = 3
CONTINUATION: Final = 9
END_STREAM: Final = 0x1
_END_HEADERS: Final = 0x4
_PADDED: Final = 0x8
_WITH_PRIORITY: Final = 0x20

_TOLD: Final = frozenset({DATA, HEADERS, RST_STREAM, CONTINUATION})
_PLAIN_BITS: Final = {
    DATA: _PADDED,
    HEADERS: _END_HEADERS | _PADDED | _WITH_PRIORITY,
    RST_STREAM: 0,
}
_PLAIN: Final = {DATA: 0, HEADERS: _END_HEADERS, RST_STREAM: 0}
"""Frames whose flags are these, of those bits, are told as they are."""

_HEAD: Final = Struct(">HBBBI")
_HEAD_BYTES: Final = _HEAD.size
_STREAM_MASK: Final = (1 << 31) - 1
_BLOCK_BYTES_MAX: Final = 1 << 20
_TABLE_BYTES_MAX: Final = 1 << 20
_KNOWN_BLOCKS_MAX: Final = 256
_KNOWN_BLOCK_BYTES_MAX: Final = 1024

Fields = dict[bytes, bytes]


class Undecodable(Exception):
    """What is said on a connection cannot be read; the text says why."""


class _Table(hpack.table.HeaderTable):
    """A header table that counts its changes: a block may be looked up as long as there are none."""

    def __init__(self) -> None:
        self.changes = 0
        super().__init__()

    def add(self, name: bytes, value: bytes) -> None:
        self.changes += 1
        super().add(name, value)

    @property
    def maxsize(self) -> int:
        return int(hpack.table.HeaderTable.maxsize.fget(self))  # type: ignore[attr-defined]

    @maxsize.setter
    def maxsize(self, newmax: int) -> None:
        self.changes += 1
        hpack.table.HeaderTable.maxsize.fset(self, newmax)  # type: ignore[attr-defined]


class Headers:
    """Reads the header blocks of one direction, in order.

    Args:
      meaning_of: What the fields of a block mean. Kept for equal blocks, so it must be a value.
    """

    def __init__(self, meaning_of: Callable[[Fields], Any]) -> None:
        self._meaning_of = meaning_of
        self._decoder = hpack.Decoder(max_header_list_size=_BLOCK_BYTES_MAX)
        # The ends agree on the size of the table; whatever they agreed on is announced in a block.
        self._decoder.max_allowed_table_size = _TABLE_BYTES_MAX
        self._table = _Table()
        self._decoder.header_table = self._table
        self._known: dict[bytes, Any] = {}

    def read(self, block: bytes) -> Any:
        """What a block means.

        Raises:
          Undecodable: it is none, or an earlier one was missed.
        """
        known = self._known.get(block)
        if known is not None:
            return known
        before = self._table.changes
        try:
            fields: Fields = dict(self._decoder.decode(block, raw=True))
        except hpack.HPACKError as error:
            raise Undecodable(f"a header block: {error}") from error
        meaning = self._meaning_of(fields)
        if self._table.changes != before:
            self._known.clear()  # Indices of the blocks that were known mean something else now.
        elif len(block) <= _KNOWN_BLOCK_BYTES_MAX:
            if len(self._known) >= _KNOWN_BLOCKS_MAX:
                self._known.clear()  # What is in use comes back at once.
            self._known[block] = meaning
        return meaning


class Frames:
    """Cuts the bytes of one direction into frames: header blocks whole, data without padding."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._block: tuple[int, int, bytes] | None = None

    def take(self, data: bytes) -> list[tuple[int, int, int, bytes]]:
        """The frames that these bytes complete, as kind, flags, stream and payload.

        Only HEADERS (with what continues them), DATA and RST_STREAM are told.

        Raises:
          Undecodable: these bytes are no frames.
        """
        frames: list[tuple[int, int, int, bytes]] = []
        buffer = self._buffer
        source: bytes | bytearray = data
        if buffer:
            buffer += data
            source = buffer
        unpack = _HEAD.unpack_from
        at, end = 0, len(source)
        while end - at >= _HEAD_BYTES:
            high, low, kind, flags, stream = unpack(source, at)
            begin = at + _HEAD_BYTES
            stop = begin + (high << 8 | low)
            if stop > end:
                break
            at = stop
            if self._block is None and flags & _PLAIN_BITS.get(kind, 0) == _PLAIN.get(kind):
                frames.append((kind, flags, stream & _STREAM_MASK, bytes(source[begin:stop])))
            elif kind in _TOLD or self._block is not None:
                told = self._frame(kind, flags, stream & _STREAM_MASK, bytes(source[begin:stop]))
                if told is not None:
                    frames.append(told)
        if source is buffer:
            del buffer[:at]
        elif at < end:
            buffer += data[at:]
        return frames

    def _frame(
        self, kind: int, flags: int, stream: int, payload: bytes
    ) -> tuple[int, int, int, bytes] | None:
        """A frame that is not whole by itself, or has more in it than it tells."""
        if (kind == CONTINUATION) != (self._block is not None):
            raise Undecodable("a header block is interrupted, or goes on without a beginning")
        if kind == CONTINUATION:
            assert self._block is not None
            first, first_flags, block = self._block
            block += payload
            if stream != first or len(block) > _BLOCK_BYTES_MAX:
                raise Undecodable("a header block goes on in another stream, or without end")
            self._block = None
            if flags & _END_HEADERS:
                return HEADERS, first_flags, first, block
            self._block = (first, first_flags, block)
            return None
        if flags & _PADDED or (kind == HEADERS and flags & _WITH_PRIORITY):
            payload = _bare(kind, flags, payload)
        if kind == HEADERS and not flags & _END_HEADERS:
            self._block = (stream, flags, payload)
            return None
        return kind, flags, stream, payload


def _bare(kind: int, flags: int, payload: bytes) -> bytes:
    """A payload without padding and priority."""
    begin, end = 0, len(payload)
    if flags & _PADDED:
        if not payload:
            raise Undecodable("padding without its length")
        begin, end = 1, end - payload[0]
    if kind == HEADERS and flags & _WITH_PRIORITY:
        begin += 5
    if begin > end:
        raise Undecodable("more padding than payload")
    return payload[begin:end]
