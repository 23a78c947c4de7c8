"""When something happens in a run: at a time, or on a condition that the run decides.

As text: `2.5` (seconds since the run began), `inside 1 live_processes#3`, `after 0 block#2 +0.5`,
`crash 1#1 +5`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

SERVICE: Final = "service"
"""The coordination service, as a member of a partition or the victim of a fault."""

Member: TypeAlias = int | str
"""A process number, or `SERVICE`."""

BLOCK: Final = "block"
"""Name for the body of a `live_devices` block, where an operation is asked for."""

KINDS: Final = ("inside", "after", "crash")

OPERATIONS: Final = (
    "live_processes",
    BLOCK,
    "barrier",
    "cancel_barrier",
    "key_value_set",
    "key_value_get",
    "key_value_try_get",
    "key_value_dir_get",
    "key_value_delete",
    "key_value_increment",
    "report_error",
    "watch_tasks",
    "shutdown",
)
"""What a condition may name: operations as histories name them, and blocks."""


@dataclass(frozen=True, slots=True)
class When:
    """A moment that the run decides.

    Attributes:
      kind: `inside`: the service has the request of the operation and its answer was not seen yet (of a
        block: its body has begun). `after`: the operation has returned (a block was left). `crash`: the
        process died.
      process: Whose. Operations are counted over all its lifetimes.
      operation: A name of a history (`live_processes`, `key_value_set`, `barrier`, ...) or `block`.
        Empty for `crash`.
      count: The how manieth, from 1.
      plus_s: So much later.
    """

    kind: str
    process: int
    operation: str = ""
    count: int = 1
    plus_s: float = 0.0

    def __str__(self) -> str:
        what = f" {self.operation}" if self.operation else ""
        later = f" +{self.plus_s:.9f}".rstrip("0").rstrip(".") if self.plus_s else ""
        return f"{self.kind} {self.process}{what}#{self.count}{later}"


Moment: TypeAlias = float | When
"""Seconds since the run began, or a condition."""

FORMS: Final = (
    "seconds (2.5), 'inside P OPERATION#K', 'after P OPERATION#K' or 'crash P#K', "
    "each with an optional ' +SECONDS'"
)

_WHEN = re.compile(
    r"(?P<kind>inside|after|crash) (?P<process>\d+)(?: (?P<operation>\w+))?"
    r"(?:#(?P<count>[1-9]\d*))?(?: ?\+ ?(?P<plus>\d+(?:\.\d*)?))?"
)


def parse_moment(text: str) -> Moment:
    """Reads a moment.

    Raises:
      ValueError: with the forms that are understood.
    """
    try:
        return float(text)
    except ValueError:
        pass
    match = _WHEN.fullmatch(text.strip())
    if match is None or (match["kind"] == "crash") != (match["operation"] is None):
        raise ValueError(f"{text!r} is no moment; write {FORMS}")
    return When(
        match["kind"],
        int(match["process"]),
        match["operation"] or "",
        int(match["count"] or 1),
        float(match["plus"] or 0.0),
    )
