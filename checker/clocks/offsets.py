"""How far apart clocks can be, from what is known to have happened in which order.

A clock of a host shows `true time + offset`, and offsets are taken to be constant while a history was
recorded. What happened on two hosts in a known order (a *message*: a call arrives after it was sent, a
value is read after it was written) bounds the difference of their offsets from one side: if `a` on
host A came before `b` on host B, then `offset B - offset A <= b - a`. Messages in both directions give
an interval. All of them together are a system of difference constraints, which shortest paths solve
(Bellman and Ford): the bounds are the tightest that the messages admit, and a cycle of negative length
says that no offsets fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from checker.errors import CheckerError

GIVEN_LIMIT: Final = "the given limit"
"""What a bound is called that is no message."""


class Message(NamedTuple):
    """Something on one host that came before something on another one.

    Attributes:
      sender: The host of the earlier event.
      sent_ns: Its earliest moment, by the clock of its host.
      receiver: The host of the later event.
      received_ns: Its latest moment, by the clock of its host.
      what: What it was, in words.
    """

    sender: int
    sent_ns: int
    receiver: int
    received_ns: int
    what: str


class InconsistentClocksError(CheckerError):
    """No constant offsets fit the messages.

    Attributes:
      cycle: Messages, each sent by the host that received the one before, and received before they were
        sent if all are added up.
      excess_ns: By how much.
    """

    def __init__(self, cycle: Sequence[Message]) -> None:
        self.cycle = tuple(cycle)
        self.excess_ns = sum(message.sent_ns - message.received_ns for message in cycle)
        steps = "; ".join(
            f"host {m.sender} at {m.sent_ns}, before host {m.receiver} at {m.received_ns} ({m.what})"
            for m in cycle
        )
        super().__init__(
            f"no constant offsets of the clocks fit: {steps}; these miss one another by "
            f"{in_words(self.excess_ns)}: a clock was set, or drifts, or the order is not as assumed"
        )


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a host's clock may be ahead of the reference's.

    Attributes:
      low_ns: At least so much (negative: behind); None if no message says.
      high_ns: At most so much; None if no message says.
    """

    low_ns: int | None
    high_ns: int | None

    @property
    def width_ns(self) -> int | None:
        """What remains uncertain; None if it is not bounded."""
        if self.low_ns is None or self.high_ns is None:
            return None
        return self.high_ns - self.low_ns

    def __str__(self) -> str:
        if self.low_ns is None and self.high_ns is None:
            return "is not compared with it by any message"
        if self.low_ns is None or self.high_ns is None:
            side, bound = ("least", self.low_ns) if self.high_ns is None else ("most", self.high_ns)
            assert bound is not None
            return f"is at {side} {_ahead(bound)}"
        if self.low_ns == self.high_ns:
            return f"is {_ahead(self.low_ns)}"
        return f"is between {_ahead(self.low_ns)} and {_ahead(self.high_ns)}"


@dataclass(frozen=True, slots=True)
class Clocks:
    """The offsets of all hosts.

    Attributes:
      reference: The host whose clock the others are compared with; its own offset is 0.
      offsets: By host.
      messages: How many messages said so.
    """

    reference: int
    offsets: Mapping[int, Offset]
    messages: int = 0

    @property
    def uncertainty_ns(self) -> int | None:
        """The largest width of an offset; None if one is not bounded."""
        widths = [offset.width_ns for offset in self.offsets.values()]
        bounded = [width for width in widths if width is not None]
        return max(bounded, default=0) if len(bounded) == len(widths) else None


def within(hosts: Iterable[int], largest_ns: int) -> Clocks:
    """Clocks of which no two are further apart than `largest_ns`, as a time service promises."""
    first, *others = sorted(set(hosts))
    apart = Offset(-largest_ns, largest_ns)
    return Clocks(first, {first: Offset(0, 0), **dict.fromkeys(others, apart)})


def estimate(
    messages: Iterable[Message], hosts: Iterable[int], *, largest_ns: int | None = None
) -> Clocks:
    """The tightest offsets that messages admit, relative to the lowest host.

    Args:
      messages: In any order; those within a host are ignored.
      hosts: All hosts.
      largest_ns: What is known beforehand: no two clocks are further apart. None: nothing.

    Raises:
      InconsistentClocksError: no offsets fit.

    Complexity: linear in the messages, cubic in the hosts.
    """
    between = [message for message in messages if message.sender != message.receiver]
    bounds = tightest(between)
    names = sorted(set(hosts))
    if largest_ns is not None:
        for one in names:
            for other in names:
                if one != other:
                    limit = Message(one, 0, other, largest_ns, GIVEN_LIMIT)
                    known = bounds.get((one, other), limit)
                    bounds[one, other] = min(known, limit, key=_delay)
    for pair in bounds:
        names = sorted({*names, *pair})
    edges = list(bounds.values())
    reference = names[0]
    ahead = _shortest(edges, names, reference)
    back = _shortest([_reversed(edge) for edge in edges], names, reference)
    offsets = {}
    for host in names:
        below = back.get(host)
        offsets[host] = Offset(None if below is None else -below, ahead.get(host))
    return Clocks(reference, offsets, len(between))


DRIFT_STEPS_MAX: Final = 1000
"""Each step resolves a contradiction; clocks that still contradict one another did more than drift."""


def estimate_drifting(
    messages: Iterable[Message], hosts: Iterable[int], *, largest_ns: int | None = None
) -> tuple[Clocks, int]:
    """Offsets of clocks that drift a little meanwhile, as all do in a long run.

    If no constant offsets fit, each clock may move by the same slack to either side, as little as makes
    them fit. That may still be less than the clocks moved, so that twice as much is allowed.

    Args:
      messages: As of `estimate`, as are the others.
      hosts: All hosts.
      largest_ns: What is known beforehand.

    Returns:
      The offsets, and how far each may be outside of its interval at a time.

    Raises:
      InconsistentClocksError: a slack does not help.
    """
    between = [message for message in messages if message.sender != message.receiver]
    bounds = list(tightest(between).values())

    def with_slack(slack_ns: int) -> Clocks:
        eased = [m._replace(received_ns=m.received_ns + 2 * slack_ns) for m in bounds]
        return replace(estimate(eased, hosts, largest_ns=largest_ns), messages=len(between))

    slack_ns = 0
    for _ in range(DRIFT_STEPS_MAX):
        try:
            clocks = with_slack(slack_ns)
        except InconsistentClocksError as error:
            last = error
        else:
            return (with_slack(2 * slack_ns) if slack_ns else clocks), 2 * slack_ns
        # The limit that was given is not eased: it is no message.
        steps = [message for message in last.cycle if message.what != GIVEN_LIMIT]
        if not steps:
            break
        slack_ns += -(-last.excess_ns // (2 * len(steps)))
    raise last


def tightest(messages: Iterable[Message]) -> dict[tuple[int, int], Message]:
    """Of all messages from one host to another one, the one that bounds their offset best."""
    found: dict[tuple[int, int], Message] = {}
    for message in messages:
        if message.sender != message.receiver:
            pair = (message.sender, message.receiver)
            known = found.get(pair)
            if known is None or _delay(message) < _delay(known):
                found[pair] = message
    return found


def _delay(message: Message) -> int:
    return message.received_ns - message.sent_ns


def _reversed(message: Message) -> Message:
    return message._replace(sender=message.receiver, receiver=message.sender)


def _shortest(edges: Sequence[Message], hosts: Sequence[int], source: int) -> dict[int, int]:
    """Lengths of shortest paths from a host; those that cannot be reached are left out."""
    _refuse_negative_cycle(edges, hosts)
    found = {source: 0}
    for _ in hosts:
        changed = False
        for edge in edges:
            if edge.sender in found:
                length = found[edge.sender] + _delay(edge)
                if length < found.get(edge.receiver, length + 1):
                    found[edge.receiver] = length
                    changed = True
        if not changed:
            break
    return found


def _refuse_negative_cycle(edges: Sequence[Message], hosts: Sequence[int]) -> None:
    length = dict.fromkeys(hosts, 0)
    came_by: dict[int, Message] = {}
    last: int | None = None
    for _ in hosts:
        last = None
        for edge in edges:
            if length[edge.sender] + _delay(edge) < length[edge.receiver]:
                length[edge.receiver] = length[edge.sender] + _delay(edge)
                came_by[edge.receiver] = edge
                last = edge.receiver
        if last is None:
            return
    assert last is not None
    for _ in hosts:  # Whoever changed in the last round is on a cycle, or behind one.
        last = came_by[last].sender
    cycle = [came_by[last]]
    while cycle[-1].sender != last:
        cycle.append(came_by[cycle[-1].sender])
    raise InconsistentClocksError(cycle[::-1])


def _ahead(ns: int) -> str:
    if ns == 0:
        return "level with it"
    return f"{in_words(abs(ns))} {'ahead of' if ns > 0 else 'behind'} it"


def in_words(ns: int) -> str:
    """A length of time: `1.250 ms`."""
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if abs(ns) >= size:
            return f"{ns / size:.3f} {unit}"
    return f"{ns} ns"
