"""Messages between hosts that a history tells.

A value of the key-value store that one process alone has set was set
before it was read; nobody passes a barrier before all have come; and a round of `live_processes` is
answered after all its members called. The latter two hold of a service that keeps its promise. Where it
does not, the clocks are blamed first: with unknown clocks, nobody could tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from checker.clocks.offsets import Message
from checker.history.events import Event, Fail, Invoke, Ok
from checker.history.history import History
from checker.live_processes.lifetimes import Call, Lifetime, Lifetimes

MESSAGES_MAX: Final = 1_000_000
"""So many messages of a history are used, the earliest; a large job has more than anybody needs."""

_SETS: Final = ("key_value_set",)
_GETS: Final = ("key_value_get", "key_value_try_get")


def messages_of(history: History, *, host_of: Mapping[int, int] | None = None) -> list[Message]:
    """The messages that a history tells, up to a number.

    Args:
      history: Each process recorded by the clock of its host.
      host_of: By process, its host; each is one of its own if left out.
    """
    found: list[Message] = []
    for messages in (_values_read, _barriers_passed, _rounds_answered):
        for message in messages(history):
            if len(found) >= MESSAGES_MAX:
                return found
            if host_of is not None:
                message = message._replace(
                    sender=host_of.get(message.sender, message.sender),
                    receiver=host_of.get(message.receiver, message.receiver),
                )
            found.append(message)
    return found


def messages_between(client: History, server: History, *, server_host: int = -1) -> list[Message]:
    """The messages of calls that both ends recorded.

    Each call arrives after it was sent, and is answered before its caller has the answer.

    Calls have no common number, so the calls of an incarnation are paired in order, as long as
    both ends tell the same. A call that never arrived ends that, as do two that are open at once.

    Args:
      client: Of the callers.
      server: Of the service that they called.
      server_host: A number for the service's host.
    """
    found = []
    ours, theirs = _calls_of(client), _calls_of(server)
    for caller, calls in ours.items():
        free_ns: int | None = 0
        for (sent, got), (arrived, replied) in zip(calls, theirs.get(caller, ()), strict=False):
            is_other = (sent.operation, _key(sent)) != (arrived.operation, _key(arrived))
            if is_other or free_ns is None or sent.time_ns < free_ns:
                break
            free_ns = None if got is None else got.time_ns
            what = f"{sent.operation} of process {sent.process}"
            found.append(
                Message(sent.process, _earliest(sent), server_host, _latest(arrived), what)
            )
            if got is not None and replied is not None:
                back = Message(
                    server_host, _earliest(replied), got.process, _latest(got), f"reply to {what}"
                )
                found.append(back)
    return found


def _calls_of(history: History) -> dict[tuple[int, int], list[tuple[Invoke, Ok | Fail | None]]]:
    """By process and incarnation, its calls and their answers, in order."""
    incarnation: dict[tuple[int, int], int | None] = {}
    for event in history.events:
        if event.incarnation is not None:
            incarnation[event.process, event.lifetime] = event.incarnation
    answers = {event.id: event for event in history.events if isinstance(event, Ok | Fail)}
    found: dict[tuple[int, int], list[tuple[Invoke, Ok | Fail | None]]] = {}
    for event in history.events:
        if isinstance(event, Invoke):
            number = incarnation.get((event.process, event.lifetime))
            if number is not None:
                calls = found.setdefault((event.process, number), [])
                calls.append((event, answers.get(event.id)))
    return found


def _key(call: Invoke) -> object:
    return call.arguments.get("key", call.arguments.get("barrier"))


def _values_read(history: History) -> Iterable[Message]:
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
                yield Message(put.process, _earliest(put), get.process, _latest(event), what)


def _barriers_passed(history: History) -> Iterable[Message]:
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
                yield Message(member, _earliest(came[member]), event.process, _latest(event), what)


def _rounds_answered(history: History) -> Iterable[Message]:
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
            yield Message(sender, member.invoked_ns, receiver, call.answered_ns, what)


def _earliest(event: Event) -> int:
    return event.time_ns - event.uncertainty_ns


def _latest(event: Event) -> int:
    return event.time_ns + event.uncertainty_ns
