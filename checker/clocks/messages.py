"""Messages between hosts that a history tells.

A value of the key-value store that one process alone has set was set
before it was read; nobody passes a barrier before all have come; and a round of `live_processes` is
answered after all its members called. The latter two hold of a service that keeps its promise. Where it
does not, the clocks are blamed first: with unknown clocks, nobody could tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from checker.clocks.offsets import Message
from checker.history.events import LIVE_PROCESSES, Event, Fail, Invoke, Ok
from checker.history.history import History
from checker.live_processes.lifetimes import Call, Lifetime, Lifetimes

MESSAGES_MAX: Final = 1_000_000
"""So many messages of a history are used, the earliest; a large job has more than anybody needs."""

_SETS: Final = ("key_value_set",)
_GETS: Final = ("key_value_get", "key_value_try_get")


HostOf: TypeAlias = Mapping[int, int] | Callable[[int, int], int]
"""By process, its host; or by process and lifetime, as a process may come back elsewhere."""


class _Sight(NamedTuple):
    """A message between lifetimes, each named by its process and number."""

    sender: tuple[int, int]
    sent_ns: int
    receiver: tuple[int, int]
    received_ns: int
    what: str


def host_function(host_of: HostOf | None) -> Callable[[int, int], int]:
    """The host of a process and lifetime; each process is a host of its own if nothing is known."""
    if callable(host_of):
        return host_of
    known: Mapping[int, int] = {} if host_of is None else host_of
    return lambda process, _: known.get(process, process)


def messages_of(history: History, *, host_of: HostOf | None = None) -> list[Message]:
    """The messages that a history tells, up to a number.

    Args:
      history: Each process recorded by the clock of its host.
      host_of: Each process has a host of its own if left out.
    """
    host = host_function(host_of)
    found: list[Message] = []
    for sights in (_values_read, _barriers_passed, _rounds_answered):
        for sight in sights(history):
            if len(found) >= MESSAGES_MAX:
                return found
            sender, receiver = host(*sight.sender), host(*sight.receiver)
            found.append(Message(sender, sight.sent_ns, receiver, sight.received_ns, sight.what))
    return found


_PROTOCOL: Final = frozenset({"register", "heartbeat", "poll_for_error", "watch_tasks"})
"""Calls that a service's side may record, and callers never do."""


def messages_between(
    client: History,
    server: History,
    *,
    server_host: int = -1,
    host_of: HostOf | None = None,
) -> list[Message]:
    """The messages of calls that both ends recorded.

    Each call arrives after it was sent, and is answered before its caller has the answer.

    Calls have no common number. Those of an incarnation that ask for the same (the same operation, key
    and processes) are paired in order. Two that are open at once end that; and where the service saw
    more calls than the callers, as of code that is not recorded, none are paired.

    Args:
      client: Of the callers.
      server: Of the service that they called.
      server_host: A number for the service's host.
      host_of: Of the callers; each has a host of its own if left out.
    """
    host = host_function(host_of)
    found = []
    ours, theirs = _calls_of(client), _calls_of(server)
    for caller, calls in ours.items():
        arrivals = theirs.get(caller, [])
        if len(arrivals) > len(calls):
            continue
        free_ns: int | None = 0
        for (sent, got), (arrived, replied) in zip(calls, arrivals, strict=False):
            if free_ns is None or sent.time_ns < free_ns:
                break
            free_ns = None if got is None else got.time_ns
            what = f"{sent.operation} of process {sent.process}"
            here = host(sent.process, sent.lifetime)
            found.append(Message(here, _earliest(sent), server_host, _latest(arrived), what))
            if got is not None and replied is not None:
                back = f"reply to {what}"
                found.append(Message(server_host, _earliest(replied), here, _latest(got), back))
    return found


_Caller: TypeAlias = tuple[int, int, str, str]
"""Process, incarnation, operation, and what it was about."""


def _calls_of(history: History) -> dict[_Caller, list[tuple[Invoke, Ok | Fail | None]]]:
    """The calls of each incarnation and kind and their answers, in order."""
    incarnation: dict[tuple[int, int], int | None] = {}
    for event in history.events:
        if event.incarnation is not None:
            incarnation[event.process, event.lifetime] = event.incarnation
    answers = {event.id: event for event in history.events if isinstance(event, Ok | Fail)}
    found: dict[_Caller, list[tuple[Invoke, Ok | Fail | None]]] = {}
    everybody = frozenset(history.header.participants)
    for event in history.events:
        if isinstance(event, Invoke) and event.operation not in _PROTOCOL:
            number = incarnation.get((event.process, event.lifetime))
            if number is not None:
                caller = (event.process, number, event.operation, _about(event, everybody))
                found.setdefault(caller, []).append((event, answers.get(event.id)))
    return found


def _about(call: Invoke, everybody: frozenset[int]) -> str:
    """Key or barrier, and the processes, however they are told."""
    arguments = call.arguments
    if call.operation == LIVE_PROCESSES:
        participants = arguments.get("participants", everybody)
        assert isinstance(participants, Iterable)
        return repr(sorted(participants))
    return repr(arguments.get("key", arguments.get("barrier")))


def _values_read(history: History) -> Iterable[_Sight]:
    """A value that only one call has set, under a key that nothing else changes but deletions."""
    if history.header.source == "server":
        return  # Its store may have held something at the beginning.
    setters: Counter[tuple[str, str]] = Counter()
    set_by: dict[tuple[str, str], Invoke] = {}
    others: set[str] = set()
    called: dict[int, Invoke] = {}
    for event in history.events:
        if isinstance(event, Invoke):
            called[event.id] = event
            if event.operation in _SETS:
                name = (repr(event.arguments.get("key")), repr(event.arguments.get("value")))
                setters[name] += 1
                set_by[name] = event
            elif event.operation == "key_value_increment":
                others.add(repr(event.arguments.get("key")))
    for event in history.events:
        if not isinstance(event, Ok) or event.id not in called:
            continue
        get = called[event.id]
        if get.operation in _GETS:
            name = (repr(get.arguments.get("key")), repr(event.result))
            if setters[name] == 1 and name[0] not in others:
                put = set_by[name]
                what = f"process {put.process} set key {name[0]}, process {get.process} read it"
                yield _Sight(_who(put), _earliest(put), _who(get), _latest(event), what)


def _barriers_passed(history: History) -> Iterable[_Sight]:
    """A barrier that every process called once; nobody passes it before all have come.

    Members that started twice are left out: others may have passed without them meanwhile.
    """
    restarted = {event.process for event in history.events if event.lifetime > 0}
    calls: dict[str, dict[int, Invoke]] = {}
    twice: set[str] = set()
    called: dict[int, Invoke] = {}
    everybody = history.header.participants
    for event in history.events:
        if isinstance(event, Invoke) and event.operation == "barrier":
            name = repr(event.arguments.get("barrier"))
            if event.process in calls.setdefault(name, {}):
                twice.add(name)
            calls[name][event.process] = event
            called[event.id] = event
    for event in history.events:
        if isinstance(event, Ok) and event.id in called:
            name = repr(called[event.id].arguments.get("barrier"))
            members = called[event.id].arguments.get("processes") or everybody
            came = calls[name]
            assert isinstance(members, Iterable)
            if name in twice or any(m not in came or m in restarted for m in members):
                continue
            for member in members:
                what = f"process {member} came to barrier {name}, process {event.process} passed it"
                call = came[member]
                yield _Sight(_who(call), _earliest(call), _who(event), _latest(event), what)


def _rounds_answered(history: History) -> Iterable[_Sight]:
    """Rounds that two lifetimes share come in the program order of both, so the n-th is the n-th."""
    lifetimes = Lifetimes(history)
    if lifetimes.overlapping is not None:
        return
    shared: dict[tuple[int, int, int], list[Call]] = {}
    pairs: dict[tuple[int, int, int], tuple[Lifetime, Lifetime]] = {}
    vague: set[tuple[int, int, int]] = set()
    """Lifetimes that were told of a process without its incarnation, by group."""
    for lifetime in lifetimes.all:
        for group, calls in lifetime.calls.items():
            for call in calls:
                for meant in (call.answer or {}).items():
                    if meant[1] is None:
                        vague.add((lifetime.index, meant[0], group))
                    other = lifetimes.by_incarnation.get(meant)
                    if other is not None and other is not lifetime:
                        pair = (lifetime.index, other.index, group)
                        shared.setdefault(pair, []).append(call)
                        pairs[pair] = (lifetime, other)
    for (one, two, group), (lifetime, their_lifetime) in pairs.items():
        theirs = their_lifetime.calls.get(group, [])
        if any(call.skippable for call in (*lifetime.calls[group], *theirs)):
            continue
        names = (one, their_lifetime.process, group), (two, lifetime.process, group)
        if not vague.isdisjoint(names):
            continue
        told = shared.get((two, one, group), [])
        if theirs and theirs[-1].answered_ns is None:
            told = [*told, theirs[-1]]
        for call, member in zip(shared[one, two, group], told, strict=False):
            if member.answer is not None and member.answer != call.answer:
                break
            assert call.answered_ns is not None
            sender, receiver = their_lifetime.process, lifetime.process
            what = f"process {sender} called live_processes, process {receiver} had the answer"
            yield _Sight(
                (sender, their_lifetime.number),
                member.invoked_ns,
                (receiver, lifetime.number),
                call.answered_ns,
                what,
            )


def _who(event: Event) -> tuple[int, int]:
    return event.process, event.lifetime


def _earliest(event: Event) -> int:
    return event.time_ns - event.uncertainty_ns


def _latest(event: Event) -> int:
    return event.time_ns + event.uncertainty_ns
