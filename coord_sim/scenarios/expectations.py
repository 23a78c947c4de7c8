"""What a scenario expects of a run: plain values.

Expectations about processes hold for each of `processes` by itself, for every process if it is empty.
Those that count (`Blocks`, `Logs`, `Answers`) ask for at least one thing that fits if nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from checker.history.events import BLOCK_OUTCOMES

STATES: Final = ("left", "crashed", "running", "never started")
"""How a process may end: `running` includes one that waits."""

VERDICTS: Final = ("valid", "invalid", "unknown")

JUDGEMENTS: Final = tuple(
    f"{definition}-{failures}"
    for definition in ("round", "published", "service")
    for failures in ("suspicion", "crash-stop")
)
"""Definitions of the `live_processes` barrier with failure models, as the checker names them; `service`
is the round one and everything else in the history: blocks, keys, barriers."""

PENDING: Final = "pending"
"""In place of a code: the call was never answered."""

OUTCOMES: Final = (*BLOCK_OUTCOMES, "open")
"""How a `live_devices` block may end; `open`: it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """How processes end.

    Attributes:
      processes: Which; all if empty.
      state: One of `STATES`.
      cause: Words of what ended it (`crashed`).
      waits_for: Words of what it waits for (`running`).
      lifetime: Which start of it, from 0; the last if None.
      after_s, before_s: When it ended.
    """

    processes: tuple[int, ...] = ()
    state: str
    cause: str = ""
    waits_for: str = ""
    lifetime: int | None = None
    after_s: float = 0.0
    before_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """How many `live_devices` blocks of a process end so.

    Attributes:
      processes: Which; all if empty.
      outcome: One of `OUTCOMES`.
      failed: Whom the end of the block names as failed; any if None.
      live: The set that the block began with; any if None.
      at_least, at_most: How many. At least 1 if neither is given.
      after_s, before_s: When the block ended (began, for `open`).
    """

    processes: tuple[int, ...] = ()
    outcome: str
    failed: tuple[int, ...] | None = None
    live: tuple[int, ...] | None = None
    at_least: int | None = None
    at_most: int | None = None
    after_s: float = 0.0
    before_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """How many lines with these words a process logs.

    Attributes:
      processes: Which; all if empty.
      words: Part of a line.
      at_least, at_most: How many. At least 1 if neither is given.
      after_s, before_s: When.
    """

    processes: tuple[int, ...] = ()
    words: str
    at_least: int | None = None
    at_most: int | None = None
    after_s: float = 0.0
    before_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """How many calls of a process are answered so.

    Attributes:
      processes: Which; all if empty.
      operation: As histories name it: `barrier`, `key_value_set`, `live_processes`, ...
      code: A status code, `OK`, or `PENDING`.
      words: Part of the message.
      at_least, at_most: How many. At least 1 if neither is given.
      after_s, before_s: When it was answered (called, for `PENDING`).
    """

    processes: tuple[int, ...] = ()
    operation: str
    code: str
    words: str = ""
    at_least: int | None = None
    at_most: int | None = None
    after_s: float = 0.0
    before_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What must be true of a run; None: nothing is said.

    Attributes:
      verdicts: For some of `JUDGEMENTS`, the verdict.
      finished: Whether everybody came to an end before the limit.
      ends, blocks, logs, answers: About processes.
      reached: How often a condition that the program names is reached at least; 0: never.
    """

    verdicts: Mapping[str, str] | None = None
    finished: bool | None = None
    ends: tuple[Ends, ...] | None = None
    blocks: tuple[Blocks, ...] | None = None
    logs: tuple[Logs, ...] | None = None
    answers: tuple[Answers, ...] | None = None
    reached: Mapping[str, int] | None = None

    def with_changes(self, other: Expectations) -> Expectations:
        """These, with what `other` says in the place of what is said here about the same."""
        said = {
            field.name: value
            for field in fields(other)
            if (value := getattr(other, field.name)) is not None
        }
        return replace(self, **said)

    @property
    def are_none(self) -> bool:
        """Whether nothing is expected."""
        return all(
            not getattr(self, field.name) and getattr(self, field.name) is not False
            for field in fields(self)
        )
