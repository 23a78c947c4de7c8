"""The rules that events of a history obey among each other.

`WellFormed` is fed one event after the other, so that a reader of any length needs memory only for
what is open. It raises `MalformedHistory` without a place; who knows the line adds it.
"""

from __future__ import annotations

from checker.errors import MalformedHistory
from checker.history.events import (
    BLOCK_OUTCOMES,
    LIVE_PROCESSES,
    Crash,
    Enter,
    Event,
    Exit,
    Fail,
    Fault,
    Info,
    Invoke,
    Leave,
    Ok,
    Start,
)
from checker.history.header import Header


class WellFormed:
    """Checks events in order; `accept` raises on the first that breaks a rule."""

    def __init__(self, header: Header) -> None:
        self._participants = frozenset(header.participants)
        self._latest_ns: int | None = None
        self._open: dict[int, tuple[int, int, str]] = {}
        self._used_ids: set[int] = set()
        self._started: set[tuple[int, int]] = set()
        self._ended: set[tuple[int, int]] = set()
        self._blocks: set[tuple[int, int, int]] = set()
        self._incarnation_of: dict[tuple[int, int], int] = {}
        self._lifetime_of: dict[tuple[int, int], int] = {}
        self._checked_answer: object = self
        """The latest good answer, which the next event often shares. No answer is `self`."""

    def accept(self, event: Event) -> None:
        """Checks one event.

        Raises:
          MalformedHistory: naming the rule broken, the field and the remedy.
        """
        self._advance(event.time_ns)
        if event.process not in self._participants:
            raise MalformedHistory(
                f"process {event.process} is not among the header's participants; "
                "add it there or remove the event",
                field="process",
            )
        lifetime = (event.process, event.lifetime)
        if event.incarnation is not None:
            self._bind(lifetime, event.incarnation)
        if isinstance(event, Start):
            _check_interval(event)
            self._start(lifetime)
        elif isinstance(event, Crash | Leave):
            _check_interval(event)
            self._end(lifetime)
        else:
            if lifetime in self._ended:
                raise MalformedHistory(
                    f"process {event.process} acts after its lifetime {event.lifetime} has ended; "
                    "a restart needs a start event with the next lifetime",
                    field="lifetime",
                )
            if isinstance(event, Invoke):
                self._invoke(event, lifetime)
            elif isinstance(event, Ok | Fail | Info):
                self._response(event, lifetime)
            else:
                self._block(event)

    def accept_fault(self, fault: Fault) -> None:
        """Checks a fault.

        Raises:
          MalformedHistory: as `accept`.
        """
        self._advance(fault.time_ns)
        if fault.until_ns is not None and fault.until_ns < fault.time_ns:
            raise MalformedHistory(
                f"the fault ends before it begins: {fault.until_ns} is before {fault.time_ns}",
                field="until_ns",
            )

    def _advance(self, time_ns: int) -> None:
        if self._latest_ns is not None and time_ns < self._latest_ns:
            raise MalformedHistory(
                f"events are out of order: {time_ns} comes after {self._latest_ns}; "
                "sort the lines by time",
                field="time_ns",
            )
        self._latest_ns = time_ns

    def _bind(self, lifetime: tuple[int, int], incarnation: int) -> None:
        known = self._incarnation_of.setdefault(lifetime, incarnation)
        if known != incarnation:
            raise MalformedHistory(
                f"lifetime {lifetime[1]} of process {lifetime[0]} has incarnation {known} and here "
                f"{incarnation}; a lifetime has one incarnation",
                field="incarnation",
            )
        holder = self._lifetime_of.setdefault((lifetime[0], incarnation), lifetime[1])
        if holder != lifetime[1]:
            raise MalformedHistory(
                f"incarnation {incarnation} of process {lifetime[0]} belongs to lifetime {holder}; "
                "every start draws a new one",
                field="incarnation",
            )

    def _start(self, lifetime: tuple[int, int]) -> None:
        if lifetime in self._started:
            raise MalformedHistory(
                f"process {lifetime[0]} starts its lifetime {lifetime[1]} a second time; "
                "number the starts of a process 0, 1, 2, …",
                field="lifetime",
            )
        if lifetime in self._ended:
            raise MalformedHistory(
                f"process {lifetime[0]} starts its lifetime {lifetime[1]} after that has ended",
                field="lifetime",
            )
        self._started.add(lifetime)

    def _end(self, lifetime: tuple[int, int]) -> None:
        if lifetime in self._ended:
            raise MalformedHistory(
                f"process {lifetime[0]} ends its lifetime {lifetime[1]} a second time; "
                "a restart needs a start event with the next lifetime",
                field="type",
            )
        self._ended.add(lifetime)

    def _invoke(self, event: Invoke, lifetime: tuple[int, int]) -> None:
        if event.id in self._used_ids:
            raise MalformedHistory(
                f"operation id {event.id} is used a second time; every call needs its own",
                field="id",
            )
        self._used_ids.add(event.id)
        self._open[event.id] = (event.process, event.lifetime, event.operation)
        if event.operation != LIVE_PROCESSES:
            return
        if lifetime not in self._started:
            raise MalformedHistory(
                f"process {event.process} calls live_processes in lifetime {event.lifetime}, which "
                "has no start event before it",
                field="lifetime",
            )
        if "participants" not in event.arguments:
            return
        participants = event.arguments["participants"]
        if not isinstance(participants, tuple) or not all(type(p) is int for p in participants):
            raise MalformedHistory(
                "must be a list of process numbers; leave it out to mean all participants",
                field="arguments.participants",
            )
        unknown = [p for p in participants if p not in self._participants]
        if unknown:
            raise MalformedHistory(
                f"process {unknown[0]} is not among the header's participants; add it there",
                field="arguments.participants",
            )

    def _response(self, event: Ok | Fail | Info, lifetime: tuple[int, int]) -> None:
        call = self._open.pop(event.id, None)
        if call is None:
            if event.id in self._used_ids:
                raise MalformedHistory(
                    f"operation {event.id} has ended already; a call ends once", field="id"
                )
            raise MalformedHistory(
                f"response to operation {event.id}, which was never invoked; "
                "the invoke event must come first",
                field="id",
            )
        if call[:2] != lifetime:
            raise MalformedHistory(
                f"operation {event.id} was invoked by process {call[0]} in lifetime {call[1]}, but "
                f"is answered to process {lifetime[0]} in lifetime {lifetime[1]}",
                field="process",
            )
        if isinstance(event, Ok) and call[2] == LIVE_PROCESSES:
            self._answer(event.result, "result")

    def _answer(self, answer: object, field: str) -> None:
        if answer is self._checked_answer:
            return
        if not isinstance(answer, dict):
            raise MalformedHistory(
                "the answer of live_processes must map processes to incarnations", field=field
            )
        for process in answer:
            if process not in self._participants:
                raise MalformedHistory(
                    f"the answer names process {process}, which is not among the header's "
                    "participants; add it there",
                    field=field,
                )
        self._checked_answer = answer

    def _block(self, event: Enter | Exit) -> None:
        block = (event.process, event.lifetime, event.block)
        if isinstance(event, Enter):
            self._answer(event.live, "live")
            if block in self._blocks:
                raise MalformedHistory(
                    f"process {event.process} enters block {event.block} a second time; "
                    "every block of a lifetime needs its own number",
                    field="block",
                )
            self._blocks.add(block)
            return
        if block not in self._blocks:
            raise MalformedHistory(
                f"process {event.process} leaves block {event.block}, which it has not entered",
                field="block",
            )
        if event.outcome not in BLOCK_OUTCOMES:
            raise MalformedHistory(
                f"unknown outcome {event.outcome!r}; one of {', '.join(BLOCK_OUTCOMES)}",
                field="outcome",
            )
        self._blocks.discard(block)


def _check_interval(event: Start | Crash | Leave) -> None:
    since_ns = None if isinstance(event, Leave) else event.since_ns
    if since_ns is not None and since_ns > event.time_ns:
        raise MalformedHistory(
            f"the event lies between since_ns and time_ns, but {since_ns} is after {event.time_ns}",
            field="since_ns",
        )
