"""Says in a few words what an event is. One character is one column, whatever the file holds."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from checker.history.events import Enter, Exit, Invoke, LiveSet, Ok
from checker.live_processes.lifetimes import short
from checker.printable import printable
from checker.timeline.facts import Facts

_VALUE_CHARS_MAX = 40
_ENTRIES_MAX = 4
_DEPTH_MAX = 2
_SET_MAX = 6
"""Larger live sets are written as ranges: `{0-41, 43-63}`."""


class Words:
    """The texts of one history."""

    def __init__(self, facts: Facts, *, ascii_only: bool) -> None:
        self._facts = facts
        self._ascii_only = ascii_only
        self._cut = "~" if ascii_only else "…"
        self._latest: tuple[LiveSet, str] | None = None

    def clean(self, text: str) -> str:
        """The text with everything escaped that would move the cursor or take no single column."""
        return printable(text, ascii_only=self._ascii_only, one_column=True)

    def incarnation(self, number: int) -> str:
        """Enough digits to tell it apart."""
        return short(number).replace("…", self._cut)

    def live_set(self, live: LiveSet) -> str:
        """`{0, 1:…10002}`: incarnations only of processes that restart, where they matter."""
        # Callers of one round share one answer object, and large ones are costly to write.
        if self._latest is not None and self._latest[0] is live:
            return self._latest[1]
        restarted = self._facts.restarted & live.keys()
        if restarted or len(live) <= _SET_MAX:
            text = _in_braces([self._member(process, live, restarted) for process in sorted(live)])
        else:
            text = process_set(live)
        self._latest = (live, text)
        return text

    def _member(self, process: int, live: LiveSet, restarted: Collection[int]) -> str:
        incarnation = live[process] if process in restarted else None
        return str(process) if incarnation is None else f"{process}:{self.incarnation(incarnation)}"

    def invocation(self, event: Invoke) -> str:
        """`#4 live_processes`, with what tells calls of one operation apart."""
        text = f"#{event.id} {self.clean(event.operation)}"
        participants = event.arguments.get("participants")
        if isinstance(participants, tuple):
            text += f" of {process_set(participants)}"
        key = event.arguments.get("key")
        if isinstance(key, str):
            text += f" {self.clean(key)}"
        return text

    def result(self, event: Ok) -> str:
        """`#4 {0, 1}`."""
        if isinstance(event.result, dict) and _is_live_set(event.result):
            return f"#{event.id} {self.live_set(event.result)}"
        value = "ok" if event.result is None else self._value(event.result, _DEPTH_MAX)
        if len(value) > _VALUE_CHARS_MAX:
            value = value[: _VALUE_CHARS_MAX - 1] + self._cut
        return f"#{event.id} {value}"

    def entry(self, event: Enter) -> str:
        """`block 0 {0, 1}`."""
        return f"block {event.block} {self.live_set(event.live)}"

    def exit(self, event: Exit) -> str:
        """`block 0 failed {1}`."""
        text = f"block {event.block} {self.clean(event.outcome)}"
        return f"{text} {process_set(event.failed)}" if event.failed else text

    def _value(self, value: object, depth: int) -> str:
        """A JSON value, shortened in every direction."""
        if isinstance(value, Mapping):
            if value.keys() == {"text"}:  # How values of the key-value store are recorded.
                return self._value(value["text"], depth)
            entries = list(value.items())[:_ENTRIES_MAX] if depth else []
            parts = [f"{self.clean(str(k))}: {self._value(v, depth - 1)}" for k, v in entries]
            return self._shortened(parts, len(value), "{}")
        if isinstance(value, list | tuple):
            parts = [self._value(v, depth - 1) for v in value[:_ENTRIES_MAX]] if depth else []
            return self._shortened(parts, len(value), "[]")
        if isinstance(value, str):
            cut = value[: _VALUE_CHARS_MAX + 1]
            return '"' + self.clean(cut.replace("\\", "\\\\").replace('"', '\\"')) + '"'
        return json.dumps(value) if value is None or isinstance(value, bool) else str(value)

    def _shortened(self, parts: list[str], length: int, brackets: str) -> str:
        if len(parts) < length:
            parts = [*parts, self._cut]
        return brackets[0] + ", ".join(parts) + brackets[1]


def process_set(processes: Collection[int]) -> str:
    """`{0, 1, 2}`, or with ranges if it is large."""
    numbers = sorted(processes)
    if len(numbers) <= _SET_MAX:
        return _in_braces([str(number) for number in numbers])
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return _in_braces([_run(first, last) for first, last in runs])


def _run(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first}, {last}" if last == first + 1 else f"{first}-{last}"


def _in_braces(members: list[str]) -> str:
    return "{" + ", ".join(members) + "}"


def _is_live_set(result: Mapping[object, object]) -> bool:
    return bool(result) and isinstance(next(iter(result)), int)
