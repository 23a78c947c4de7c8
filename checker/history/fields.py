"""Reads the fields of one JSON object, and says what is wrong with them.

Functions that take the object *take the field out of it*: what is left in the end is unknown. All
of them raise `MalformedHistory` with the name of the field and without a place; who knows the line
adds it.
"""

from __future__ import annotations

import json
import reprlib
from typing import NoReturn, TypeAlias

from checker.errors import MalformedHistory
from checker.history.events import LiveSet

Object: TypeAlias = dict[str, object]

INTEGER_MAX = 2**63 - 1
"""Times, ids and numbers of processes go from 0 to this, so that any language can hold them."""

INCARNATION_MAX = 2**64 - 1

_PROCESS_DIGITS_MAX = 19
_INCARNATION_DIGITS_MAX = 20
_JSON_NAMES = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a truth value",
    type(None): "null",
}

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlong = 40
_SHORT.maxlevel = 2


def shown(value: object) -> str:
    """A value in an error message: on one line and not long, whatever the file holds."""
    return _SHORT.repr(value)


def parse_object(line: str) -> Object:
    """Parses one line.

    Raises:
      ValueError: saying why the line is not a JSON object.
    """
    try:
        value, end = _DECODER.raw_decode(line)  # Skips no white space, for which there is none.
        if type(value) is dict and line[end:] in _LINE_ENDS:
            return value
    except (ValueError, RecursionError):
        pass  # Said below.
    try:
        value = _DECODER.decode(line)
    except json.JSONDecodeError as error:
        column = min(error.pos, len(line.rstrip())) + 1
        raise ValueError(f"{error.msg} at column {column}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except _NotJsonError as error:
        raise ValueError(str(error)) from None
    except ValueError:  # Python refuses to convert integers of more than 4300 digits.
        raise ValueError("a number has too many digits") from None
    if not isinstance(value, dict):
        raise ValueError(f"it is {_JSON_NAMES[type(value)]}")  # noqa: TRY004 - a line like others
    return value


class _NotJsonError(ValueError):
    pass


def _refuse_constant(name: str) -> NoReturn:
    raise _NotJsonError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
"""Made once: that takes a third off the time of reading a history."""

_LINE_ENDS = ("\n", "")


def integer(fields: Object, name: str) -> int:
    """Takes an integer that must be there."""
    value = fields.pop(name, None)
    if type(value) is int and 0 <= value <= INTEGER_MAX:
        return value
    if value is None:
        raise MalformedHistory("is missing", field=name)
    if type(value) is int:
        raise MalformedHistory(f"must be from 0 to {INTEGER_MAX}, found {shown(value)}", field=name)
    raise MalformedHistory(f"must be an integer, found {shown(value)}", field=name)


def optional_integer(fields: Object, name: str) -> int | None:
    """Takes an integer that may be left out."""
    return integer(fields, name) if name in fields else None


def process_numbers(value: object, name: str, *, may_be_empty: bool) -> tuple[int, ...]:
    """A list of different process numbers, as written."""
    if isinstance(value, list) and (value or may_be_empty):
        numbers = tuple(p for p in value if type(p) is int and 0 <= p <= INTEGER_MAX)
        if len(numbers) == len(value) == len(set(numbers)):
            return numbers
    kind = "a list of different process numbers" + ("" if may_be_empty else ", not empty")
    raise MalformedHistory(f"must be {kind}; found {shown(value)}", field=name)


def string(fields: Object, name: str) -> str:
    """Takes a string that must be there."""
    value = optional_string(fields, name)
    if value is None:
        raise MalformedHistory("is missing", field=name)
    return value


def optional_string(fields: Object, name: str) -> str | None:
    """Takes a string that may be left out."""
    if name not in fields:
        return None
    value = fields.pop(name)
    if not isinstance(value, str):
        raise MalformedHistory(f"must be a string, found {shown(value)}", field=name)
    return value


def choice(fields: Object, name: str, choices: tuple[str, ...]) -> str:
    """Takes one of a few words."""
    if name not in fields:
        raise MalformedHistory(f"is missing; one of {', '.join(choices)}", field=name)
    value = fields.pop(name)
    if not isinstance(value, str) or value not in choices:
        raise MalformedHistory(
            f"must be one of {', '.join(choices)}; found {shown(value)}", field=name
        )
    return value


def mapping(fields: Object, name: str) -> Object:
    """Takes an object; empty if left out."""
    value = fields.pop(name, {})
    if not isinstance(value, dict):
        raise MalformedHistory(f"must be an object, found {shown(value)}", field=name)
    return value


def incarnation(value: object, name: str) -> int | None:
    """Incarnations are decimal strings in files: they have 64 bits, and JSON numbers often 53."""
    if value is None:
        return None
    if isinstance(value, str) and _is_decimal(value, _INCARNATION_DIGITS_MAX):
        number = int(value)
        if number <= INCARNATION_MAX:
            return number
    raise MalformedHistory(
        f"an incarnation is a decimal string of a 64-bit number, or null; found {shown(value)}",
        field=name,
    )


def live_set(fields: Object, name: str) -> LiveSet:
    """Takes a live set."""
    if name not in fields:
        raise MalformedHistory("is missing", field=name)
    value = fields.pop(name)
    if not isinstance(value, dict):
        raise MalformedHistory(
            f"must map processes to incarnations, found {shown(value)}", field=name
        )
    live: dict[int, int | None] = {}
    for process, told in value.items():
        if not _is_decimal(process, _PROCESS_DIGITS_MAX):
            raise MalformedHistory(f"{shown(process)} is not a process number", field=name)
        live[int(process)] = incarnation(told, name)
    return live


def refuse_others(fields: Object, kind: str) -> None:
    """Raises if a field is left that a line of this type does not have."""
    if fields:
        raise MalformedHistory(
            f"lines of type '{kind}' have no such field; is it misspelt?", field=next(iter(fields))
        )


def _is_decimal(text: str, digits_max: int) -> bool:
    """Whether `text` is a whole number in its one usual spelling."""
    return (
        text.isdigit()
        and text.isascii()
        and len(text) <= digits_max
        and (text[0] != "0" or len(text) == 1)
    )
