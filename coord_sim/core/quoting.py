"""How a status is quoted inside the message of another one (design note, section 1.2).

`CODE: text [key='bytes'] ...`: the payloads are shown as they are on the wire, so this file knows the
encoding of the three messages (proto/coordination_service.proto), and nothing else of protobuf.
"""

from __future__ import annotations

import struct

from coord_sim.core.status import Status

_KEY_PREFIX = "type.googleapis.com/tensorflow."
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}
_HEX_DIGITS = "0123456789abcdefABCDEF"


def quoted(status: Status) -> str:
    """The text of a status and its payloads."""
    parts = [f"{status.code.name}: {status.message}"]
    if status.barrier_error is not None:
        name = status.barrier_error.barrier_id.encode()
        fields = (_field(0x0A, len(name)) + name) if name else b""
        fields += _field(0x10, status.barrier_error.counter)
        parts.append(_shown("BarrierError", fields))
    if status.service_error is not None:
        error = status.service_error
        fields = _field(0x18, int(error.reported)) + _field(0x20, error.source_task or 0)
        parts.append(_shown("CoordinationServiceError", fields))
    if status.wrong_service is not None:
        fields = b"\x09" + struct.pack("<Q", status.wrong_service.service_incarnation)
        parts.append(_shown("ServiceMismatchError", fields))
    return " ".join(parts)


def _shown(name: str, payload: bytes) -> str:
    return f"[{_KEY_PREFIX}{name}='{_escaped(payload)}']"


def _field(tag: int, number: int) -> bytes:
    """A tag and a varint; a field that is 0 is not on the wire."""
    if number == 0:
        return b""
    number %= 1 << 64
    out = [tag]
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _escaped(payload: bytes) -> str:
    """As absl::CHexEscape: a hex digit after a hex escape is escaped too, not to be read as its part."""
    out = []
    after_hex = False
    for byte in payload:
        character = chr(byte)
        is_hex = False
        if character in _ESCAPES:
            out.append(_ESCAPES[character])
        elif 0x20 <= byte < 0x7F and not (after_hex and character in _HEX_DIGITS):
            out.append(character)
        else:
            out.append(f"\\x{byte:02x}")
            is_hex = True
        after_hex = is_hex
    return "".join(out)
