"""Events of a file that grows, as calls of a `Monitor`."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from checker.errors import MalformedHistory
from checker.formats.calls import Calls
from checker.formats.from_history import operations_of
from checker.history.events import Crash, Event, Fail, Info, Invoke, Leave, Ok, Response
from checker.history.header import Header
from checker.history.history import History
from checker.monitor.monitor import Monitor

UNDECIDED_MAX: Final = 1000
"""So many events are kept back until it shows whether Jepsen's values are pairs of key and value."""


class UncertainTimesError(Exception):
    """Times have errors, so that what comes later in the file may have happened earlier."""


class HistoryFeed:
    """Feeds events of our own histories.

    Events of equal times are concurrent, whatever their order in the file, so responses are kept back
    until there is an event with a later time.

    Args:
      monitor: Gets the events.
      header: Of the history.
    """

    def __init__(self, monitor: Monitor, header: Header) -> None:
        self._monitor = monitor
        self._header = header
        self._open: dict[tuple[int, int], dict[int, int]] = {}
        """By process and lifetime: its open calls, by id, with their numbers."""
        self._latest_ns = -1
        self._held: list[tuple[int, Response]] = []

    def add(self, event: Event, line: int) -> None:
        """Takes the next event.

        Raises:
          UncertainTimesError: it has an error of the clock.
        """
        if event.uncertainty_ns:
            raise UncertainTimesError
        if event.time_ns > self._latest_ns:
            self.release()
            self._latest_ns = event.time_ns
        if isinstance(event, Invoke):
            called = operations_of(History(self._header, [event])).at(0)
            calls = self._open.setdefault((event.process, event.lifetime), {})
            calls[event.id] = self._monitor.invoke(
                event.process,
                called.function,
                called.argument,
                key=called.key,
                time_ns=event.time_ns,
                line=line,
            )
        elif isinstance(event, Ok | Fail | Info):
            number = self._open[event.process, event.lifetime].pop(event.id)
            self._held.append((number, event))
        elif isinstance(event, Crash | Leave):
            # Nobody will ever know how its open calls ended.
            for number in self._open.pop((event.process, event.lifetime), {}).values():
                self._monitor.info(number, time_ns=event.time_ns)

    def release(self) -> None:
        """Feeds what is kept back: there will be no more events of its time."""
        held, self._held = self._held, []
        for number, event in held:
            if isinstance(event, Ok):
                self._monitor.ok(number, event.result, time_ns=event.time_ns)
            elif isinstance(event, Fail):
                self._monitor.fail(number, event.code or None, time_ns=event.time_ns)
            else:
                self._monitor.info(number, event.code, time_ns=event.time_ns)


class CallsFeed(Calls):
    """Feeds events of Jepsen's histories, with the methods that its readers call.

    Args:
      monitor: Gets the events.
      independent: Whether values are pairs of key and value. None: find out from the first events: if a
        call has such a pair without a value, as calls that read have, they are.
    """

    def __init__(self, monitor: Monitor, *, independent: bool | None) -> None:
        super().__init__()
        self._monitor = monitor
        self._independent = independent
        self._calling: dict[int, tuple[int, str, Hashable, int]] = {}
        """By process: operation, function, key of a pair, line."""
        self._gone: set[int] = set()
        self._undecided: list[
            tuple[int, str, str, Hashable, Hashable, int, int | None, Hashable]
        ] = []

    def event(  # noqa: PLR0917 - as in `Calls`
        self,
        process: int,
        type_: str,
        function: str,
        value: Hashable,
        key: Hashable,
        line: int,
        time_ns: int | None = None,
        error: Hashable = None,
    ) -> None:
        """An event of a caller."""
        event = (process, type_, function, value, key, line, time_ns, error)
        if self._independent is not None:
            self._feed(*event)
            return
        self._undecided.append(event)
        if type_ == "invoke":
            if key is not None or not isinstance(value, tuple) or len(value) != 2:
                self.decide(independent=False)
            elif value[1] is None or len(self._undecided) > UNDECIDED_MAX:
                self.decide(independent=value[1] is None)

    def decide(self, *, independent: bool = False) -> None:
        """Feeds what is kept back, unless that was decided before."""
        if self._independent is None:
            self._independent = independent
            events, self._undecided = self._undecided, []
            for event in events:
                self._feed(*event)

    def fault(self, lane: str, name: str, value: Hashable, time_ns: int | None = None) -> None:
        """Something befalls the system."""
        del value
        self._monitor.fault(lane, name, time_ns=time_ns)

    def _feed(  # noqa: PLR0917 - as in `Calls`
        self,
        process: int,
        type_: str,
        function: str,
        value: Hashable,
        key: Hashable,
        line: int,
        time_ns: int | None,
        error: Hashable,
    ) -> None:
        if type_ == "invoke":
            self._invoke(process, function, value, key, line, time_ns)
            return
        waiting = self._calling.pop(process, None)
        if waiting is None or waiting[1] != function:
            raise MalformedHistory(
                f"process {process} has no open call of {function} that this could be the end of; every "
                "response needs an invocation before it",
                line=line,
                field="process",
            )
        number, _, pair_key, _ = waiting
        if type_ == "ok":
            if self._independent and isinstance(value, tuple) and value[:1] == (pair_key,):
                value = value[1] if len(value) == 2 else value
            self._monitor.ok(number, value, time_ns=time_ns)
        elif type_ == "fail":
            self._monitor.fail(number, error, time_ns=time_ns)
        else:
            self._gone.add(process)
            self._monitor.info(number, time_ns=time_ns)

    def _invoke(  # noqa: PLR0917 - as in `Calls`
        self,
        process: int,
        function: str,
        value: Hashable,
        key: Hashable,
        line: int,
        time_ns: int | None,
    ) -> None:
        if process in self._calling or process in self._gone:
            state = "is open" if process in self._calling else "has an unknown outcome"
            raise MalformedHistory(
                f"process {process} calls {function} although a call of it {state}; a process has one "
                "call at a time, and one of unknown outcome goes on under a new number",
                line=line,
                field="process",
            )
        if self._independent:
            if not isinstance(value, tuple) or len(value) != 2:
                raise MalformedHistory(
                    f"{function} has a value that is no pair of key and value; the objects of this "
                    "history are not independent (--no-independent)",
                    line=line,
                    field="value",
                )
            key, value = value
        number = self._monitor.invoke(process, function, value, key=key, time_ns=time_ns, line=line)
        self._calling[process] = (number, function, key, line)
