"""Values of the coordination service's store, and numbers that it keeps as text.

Source: service-semantics.md, section 7, measured at jaxlib 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Hashable
from functools import lru_cache

from checker.operations import Failed, FrozenMap

_INTEGER = re.compile(rb"[ \t\n\v\f\r]*([+-]?)0*([0-9]{1,10})[ \t\n\v\f\r]*")
_STORED_MAX = 1 << 31
_SUM_MAX = 1 << 63
_CACHED_MAX = 4096


@lru_cache(_CACHED_MAX)
def value_bytes(value: Hashable) -> bytes | None:
    """A value as bytes, from `{"text": ...}`, `{"base64": ...}`, a string or bytes; else None."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if not isinstance(value, FrozenMap) or len(value.items) != 1:
        return None
    text, encoded = value.get("text"), value.get("base64")
    if isinstance(text, str):
        return text.encode("utf-8", "surrogatepass")
    if isinstance(encoded, str):
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            return None
    return None


def number_in(text: bytes) -> int | None:
    """The number that the service reads in a value, or None: it is parsed in 32 bits."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    number = int(match[1] + match[2])
    return number if -_STORED_MAX <= number < _STORED_MAX else None


def wrapped(number: int) -> int:
    """A sum as a signed 64-bit machine has it."""
    return (number + _SUM_MAX) % (2 * _SUM_MAX) - _SUM_MAX


def show_value(value: bytes | None) -> str:
    """A value, or its absence, for people."""
    if value is None:
        return "absent"
    try:
        return repr(value.decode())
    except UnicodeDecodeError:
        return repr(value)


def argument_named(argument: Hashable, name: str) -> Hashable:
    """One of an operation's arguments besides its key: a lone `value` stands for itself."""
    if isinstance(argument, FrozenMap) and name in (each for each, _ in argument.items):
        return argument.get(name)
    if isinstance(argument, FrozenMap) and not _is_value(argument):
        return None
    return argument if name in ("value", "increment") else None


def _is_value(argument: FrozenMap) -> bool:
    return value_bytes(argument) is not None


def failed_with(result: Hashable, beginning: str) -> bool:
    """Whether an operation failed with an error whose text begins so."""
    if not isinstance(result, Failed):
        return False
    return isinstance(result.error, str) and result.error.startswith(beginning)
