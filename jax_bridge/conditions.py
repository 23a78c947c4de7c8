"""Kills and restarts as `coordlab run` takes them: `1@2.5`, `1@in:live_processes#3`, `1@+0.5`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coord_sim import moments
from coord_sim.faults import Crash, Restart
from coord_sim.moments import When

BLOCK = moments.BLOCK
"""Name for the body of a `live_devices` block in a condition."""


@dataclass(frozen=True, slots=True)
class Inside:
    """Inside the `count`-th call (from 1) of `operation`, or inside the `count`-th block."""

    operation: str
    count: int

    def __str__(self) -> str:
        return f"in:{self.operation}#{self.count}"


_INSIDE = re.compile(r"in:(?P<operation>\w+)#(?P<count>[1-9]\d*)")


def parse_kill(text: str) -> Crash:
    """Reads `P@SECONDS` (since the run began) or `P@in:OPERATION#K` (the K-th over all starts of P).

    Raises:
      ValueError: with the forms that are understood.
    """
    process, when = _split(text)
    inside = _INSIDE.fullmatch(when)
    if inside is not None:
        return Crash(process, When("inside", process, inside["operation"], int(inside["count"])))
    return Crash(process, _seconds(when, text, "P@SECONDS or P@in:OPERATION#K (e.g. 1@in:block#3)"))


def parse_restart(text: str) -> Restart:
    """Reads `P@+SECONDS`: so much after the first death of P.

    Raises:
      ValueError: with the form that is understood.
    """
    process, when = _split(text)
    if not when.startswith("+"):
        raise ValueError(f"{text!r} is not of the form P@+SECONDS (after the kill)")
    return _after_death(process, 1, _seconds(when[1:], text, "P@+SECONDS"))


def in_turn(restarts: Iterable[Restart]) -> Iterator[Restart]:
    """Restarts that `parse_restart` read: the second one of a process is after its second death, ..."""
    deaths: Counter[int | str] = Counter()
    for restart in restarts:
        deaths[restart.process] += 1
        assert isinstance(restart.at_s, When)
        yield _after_death(restart.at_s.process, deaths[restart.process], restart.at_s.plus_s)


def _after_death(process: int, number: int, plus_s: float) -> Restart:
    return Restart(process, When("crash", process, count=number, plus_s=plus_s))


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
