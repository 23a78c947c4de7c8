"""What the messages of a history say about its clocks, in words."""

from __future__ import annotations

from typing import Final

from checker.clocks.messages import messages_of
from checker.clocks.offsets import InconsistentClocksError, Offset, estimate, in_words
from checker.history.history import History

_HOSTS_TOLD_MAX: Final = 8


def clock_report(history: History) -> list[str]:
    """What the messages of a history say about its clocks, in sentences.

    Nothing if its times are of one clock (`Header.clock` is not `wall`), or if it has one process.
    """
    hosts = history.header.participants
    if history.header.clock != "wall" or len(hosts) < 2:
        return []
    try:
        clocks = estimate(messages_of(history), hosts)
    except InconsistentClocksError as error:
        return [f"Clocks: {error}."]
    if not clocks.messages:
        return ["Clocks: several hosts, and no messages between them from which to compare clocks."]
    lines = [
        (
            f"Clocks: by {clocks.messages:,} messages, compared with the clock of process "
            f"{clocks.reference}, that of"
        )
    ]
    told = [(host, offset) for host, offset in clocks.offsets.items() if host != clocks.reference]
    told.sort(key=lambda pair: -_largest(pair[1]))
    lines += [f"  process {host} {offset}" for host, offset in told[:_HOSTS_TOLD_MAX]]
    if len(told) > _HOSTS_TOLD_MAX:
        lines.append(f"  and {len(told) - _HOSTS_TOLD_MAX} others that are closer")
    allowed_ns = min((event.uncertainty_ns for event in history.events), default=0)
    skew_ns = max(_surely_apart(offset) for _, offset in told)
    if skew_ns > 2 * allowed_ns:
        lines.append(
            f"Times of the history are taken to be right within {in_words(allowed_ns)}, and clocks are "
            f"{in_words(skew_ns)} apart: a violation may be due to them "
            "(checker.clocks.with_uncertainty allows for it)."
        )
    return lines


def _largest(offset: Offset) -> int:
    return max(abs(offset.low_ns or 0), abs(offset.high_ns or 0))


def _surely_apart(offset: Offset) -> int:
    """The least distance from the reference that the bounds admit."""
    return max(0, offset.low_ns or 0, -(offset.high_ns or 0))
