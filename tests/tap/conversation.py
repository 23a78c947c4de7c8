"""Both ends of a connection as bytes, and somebody who notes what `Calls` makes of them."""

from __future__ import annotations

import base64
import itertools
import struct
from typing import Any

import hpack

from coord_sim.core.identifiers import CallId
from coord_sim.core.messages import Answer, Request
from coord_sim.tap.calls import Calls, Messages
from coord_sim.tap.frames import PREFACE
from tests.server.http2_peer import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RST_STREAM,
    frame,
    prefixed,
    request_fields,
)


class Noted:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, object]] = []
        self.gaps: list[tuple[str, str]] = []

    def request(self, call: CallId, request: Request, now_ns: int) -> None:  # noqa: ARG002 - nobody asks when
        self.told.append(("request", call, request))

    def reply(self, call: CallId, answer: Answer, now_ns: int) -> None:  # noqa: ARG002 - nobody asks when
        self.told.append(("reply", call, answer))

    def hang_up(self, call: CallId, now_ns: int) -> None:  # noqa: ARG002 - nobody asks when
        self.told.append(("hang up", call, None))

    def gap(self, kind: str, why: str, now_ns: int) -> None:  # noqa: ARG002 - nobody asks when
        self.gaps.append((kind, why))


class Conversation:
    """One connection.

    Args:
      step: So many bytes at a time come to the eyes of `Calls`; 0: all at once.
    """

    def __init__(self, step: int = 0, *, preface: bytes = PREFACE) -> None:
        self.noted = Noted()
        self.calls = Calls(self.noted, Messages(), itertools.count())
        self._step = step
        self._client = hpack.Encoder()
        self._service = hpack.Encoder()
        self.asks(preface)
        self.asks(frame(4, 0, 0), frame(8, 0, 0, struct.pack(">I", 1000)))
        self.answers(frame(4, 0, 0), frame(4, 1, 0), frame(6, 0, 0, b"12345678"))

    def asks(self, *frames: bytes) -> None:
        for piece in self._pieces(b"".join(frames)):
            self.calls.asked(piece, 1)

    def answers(self, *frames: bytes) -> None:
        for piece in self._pieces(b"".join(frames)):
            self.calls.answered(piece, 2)

    def _pieces(self, data: bytes) -> list[bytes]:
        step = self._step or len(data) or 1
        return [data[at : at + step] for at in range(0, len(data), step)]

    def head(self, method: str, *extra: tuple[str, str]) -> bytes:
        return bytes(self._client.encode(request_fields(method, *extra)))

    def call(self, stream: int, method: str, message: Any) -> None:
        self.asks(
            frame(HEADERS, END_HEADERS, stream, self.head(method)),
            frame(DATA, END_STREAM, stream, prefixed(message.SerializeToString())),
        )

    def begin(self, stream: int, *extra: tuple[str, str]) -> bytes:
        fields = [(":status", "200"), ("content-type", "application/grpc"), *extra]
        return frame(HEADERS, END_HEADERS, stream, self._service.encode(fields))

    def end(self, stream: int, *fields: tuple[str, str]) -> bytes:
        block = self._service.encode(fields)
        return frame(HEADERS, END_HEADERS | END_STREAM, stream, block)

    def reply(self, stream: int, message: Any) -> None:
        body = frame(DATA, 0, stream, prefixed(message.SerializeToString()))
        self.answers(self.begin(stream), body, self.end(stream, ("grpc-status", "0")))

    def trailers_only(self, stream: int, *fields: tuple[str, str]) -> bytes:
        head = ((":status", "200"), ("content-type", "application/grpc"))
        return self.end(stream, *head, *fields)

    @staticmethod
    def reset(stream: int, code: int = 8) -> bytes:
        return frame(RST_STREAM, 0, stream, struct.pack(">I", code))

    @staticmethod
    def in_pieces(stream: int, block: bytes, size: int, flags: int = 0) -> bytes:
        """A header block in a HEADERS frame and continuations."""
        pieces = [block[at : at + size] for at in range(0, len(block), size)]
        kinds = [HEADERS] + [CONTINUATION] * (len(pieces) - 1)
        last = len(pieces) - 1
        return b"".join(
            frame(
                kind,
                (flags if not number else 0) | (END_HEADERS if number == last else 0),
                stream,
                piece,
            )
            for number, (kind, piece) in enumerate(zip(kinds, pieces, strict=True))
        )


def details(payloads: bytes) -> tuple[str, str]:
    return "grpc-status-details-bin", base64.b64encode(payloads).decode().rstrip("=")
