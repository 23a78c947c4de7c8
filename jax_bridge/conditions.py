"""When to kill and when to restart: `1@2.5`, `1@in:live_processes#3`, `1@+0.5`."""

from __future__ import annotations

import re
from dataclasses import dataclass

BLOCK = "block"
"""Name for the body of a `live_devices` block in a condition."""


@dataclass(frozen=True, slots=True)
class Inside:
    """Inside the `count`-th call (from 1) of `operation`, or inside the `count`-th block."""

    operation: str
    count: int

    def __str__(self) -> str:
        return f"in:{self.operation}#{self.count}"


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL for a process: so many seconds after the run began, or inside a call."""

    process: int
    when: float | Inside

    def __str__(self) -> str:
        when = self.when if isinstance(self.when, Inside) else f"{self.when:g}"
        return f"{self.process}@{when}"


@dataclass(frozen=True, slots=True)
class Restart:
    """A new start of a process, `after_s` after it was killed."""

    process: int
    after_s: float


_INSIDE = re.compile(r"in:(?P<operation>\w+)#(?P<count>[1-9]\d*)")


def parse_kill(text: str) -> Kill:
    """Reads `P@SECONDS` or `P@in:OPERATION#K`.

    Raises:
      ValueError: with the forms that are understood.
    """
    process, when = _split(text)
    inside = _INSIDE.fullmatch(when)
    if inside is not None:
        return Kill(process, Inside(inside["operation"], int(inside["count"])))
    return Kill(process, _seconds(when, text, "P@SECONDS or P@in:OPERATION#K (e.g. 1@in:block#3)"))


def parse_restart(text: str) -> Restart:
    """Reads `P@+SECONDS`.

    Raises:
      ValueError: with the form that is understood.
    """
    process, when = _split(text)
    if not when.startswith("+"):
        raise ValueError(f"{text!r} is not of the form P@+SECONDS (after the kill)")
    return Restart(process, _seconds(when[1:], text, "P@+SECONDS"))


def _split(text: str) -> tuple[int, str]:
    process, at, when = text.partition("@")
    if not at or not process.isdecimal():
        raise ValueError(f"{text!r} does not begin with a process number and '@'")
    return int(process), when


def _seconds(text: str, whole: str, form: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError(f"{whole!r} is not of the form {form}")
    return value
