"""Lines of a history (docs/history-format.md), as `checker.history.HistoryWriter` writes them.

The recorder inside a program does not use that writer: it would bring the checker into every recorded
program, and make each event twice, as a value and as a line, within the time of the program's calls.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

VERSION = 0
"""Of the format."""

INLINE_LIVE_SET_MAX = 8
"""Live sets of up to this many processes stand in each line; larger ones are written once."""

Number: TypeAlias = int | str
"""A number, or the place of one: `%d`."""

_REMEMBERED_ANSWERS_MAX = 64
_text_of = json.JSONEncoder(separators=(",", ":")).encode


def header_line(
    participants: Sequence[int], cannot_know: Sequence[str], details: Mapping[str, object]
) -> bytes:
    """The first line of what one process of a job saw, by its host's monotonic clock."""
    fields: dict[str, object] = {
        "coordlab_history": VERSION,
        "source": "processes",
        "clock": "monotonic",
        "participants": participants,
    }
    if cannot_know:
        fields["cannot_know"] = cannot_know
    if details:
        fields["details"] = details
    return _line(_text_of(fields))


def value_fields(value: str | bytes) -> dict[str, str]:
    """A value of the key-value store: as text if it is UTF-8, else as base64.

    Raises:
      TypeError: it is neither text nor bytes.
    """
    data = value.encode() if isinstance(value, str) else value
    if not isinstance(data, bytes):  # `bytes` of a number would be that many zeros.
        raise TypeError(f"a value is text or bytes, found {type(value).__name__}")
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


class EventLines:
    """Events of one process as lines; those with a large live set may be two, for one write.

    Times are in nanoseconds, and incarnations numbers of 64 bits, as in the format.
    """

    def __init__(self, process: int) -> None:
        self._by = f',"process":{process},"lifetime":'
        self._latest: tuple[Mapping[int, int], str, str] = ({}, "live", '"live":{}')
        self._answers: dict[frozenset[tuple[int, int]], int] = {}
        self._answers_written = 0

    def start(self, time_ns: int, lifetime: int, incarnation: int | None, since_ns: int) -> bytes:
        """A client has connected."""
        told = "" if incarnation is None else f'"incarnation":"{incarnation}",'
        return self._event("start", time_ns, lifetime, f'{told}"since_ns":{since_ns}')

    def invoke(
        self,
        time_ns: Number,
        lifetime: int,
        number: Number,
        operation: str,
        arguments: Mapping[str, object],
    ) -> bytes:
        """A call begins."""
        rest = f'"id":{number},"operation":"{operation}","arguments":{_text_of(arguments)}'
        return self._event("invoke", time_ns, lifetime, rest)

    def ok(self, time_ns: Number, lifetime: int, number: Number, result: object) -> bytes:
        """A call has returned; a dictionary by numbers is a live set."""
        before, line = self.answer(time_ns, lifetime, number, result)
        return before + line

    def answer(
        self, time_ns: Number, lifetime: int, number: Number, result: object
    ) -> tuple[bytes, bytes]:
        """The same; what must be written before it is by itself, as it is written once."""
        if isinstance(result, dict) and isinstance(next(iter(result), None), int):
            before, text = self._live("result", result)
        else:
            before, text = b"", f'"result":{_text_of(result)}'
        return before, self._event("ok", time_ns, lifetime, f'"id":{number},{text}')

    def error(
        self, time_ns: int, lifetime: int, number: int, *, kind: str, code: str, message: str
    ) -> bytes:
        """A call has raised; `kind` is `fail` or `info`."""
        rest = f'"id":{number},"code":{_text_of(code)},"message":{_text_of(message)}'
        return self._event(kind, time_ns, lifetime, rest)

    def enter(self, time_ns: int, lifetime: int, block: int, live: Mapping[int, int]) -> bytes:
        """A block of `live_devices` begins."""
        before, text = self._live("live", live)
        return before + self._event("enter", time_ns, lifetime, f'"block":{block},{text}')

    def exit(
        self,
        time_ns: int,
        lifetime: int,
        block: int,
        *,
        outcome: str,
        failed: Sequence[int],
        message: str,
    ) -> bytes:
        """A block has ended."""
        rest = f'"block":{block},"outcome":"{outcome}"'
        if failed:
            rest += f',"failed":{_text_of(list(failed))}'
        if message:
            rest += f',"message":{_text_of(message)}'
        return self._event("exit", time_ns, lifetime, rest)

    def _event(self, kind: str, time_ns: Number, lifetime: int, rest: str) -> bytes:
        return f'{{"type":"{kind}","time_ns":{time_ns}{self._by}{lifetime},{rest}}}\n'.encode()

    def _live(self, name: str, live: Mapping[int, int]) -> tuple[bytes, str]:
        """What must be written before, and the field."""
        if len(live) > INLINE_LIVE_SET_MAX:
            return self._reference(live)
        known, known_name, text = self._latest
        if known_name != name or known != live:
            text = f'"{name}":{_live_text(live)}'
            self._latest = (dict(live), name, text)
        return b"", text

    def _reference(self, live: Mapping[int, int]) -> tuple[bytes, str]:
        known, _, text = self._latest
        if known == live:
            return b"", text
        before = b""
        key = frozenset(live.items())
        number = self._answers.get(key)
        if number is None:
            number = self._answers_written
            self._answers_written += 1
            if len(self._answers) >= _REMEMBERED_ANSWERS_MAX:
                del self._answers[next(iter(self._answers))]
            self._answers[key] = number
            before = _line(f'{{"type":"answer","answer":{number},"live":{_live_text(live)}}}')
        text = f'"answer":{number}'
        self._latest = (dict(live), "answer", text)
        return before, text


def remark_line(time_ns: int, remark: str, lane: str) -> bytes:
    """What befell a process or its recording, for people: a line of type `fault`."""
    fields = {"type": "fault", "time_ns": time_ns, "name": remark, "lane": lane}
    return _line(_text_of(fields))


def _live_text(live: Mapping[int, int]) -> str:
    return "{" + ",".join(f'"{process}":"{live[process]}"' for process in sorted(live)) + "}"


def _line(text: str) -> bytes:
    return text.encode() + b"\n"
