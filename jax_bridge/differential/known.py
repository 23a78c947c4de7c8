"""Differences between simulator and real processes that are known, each with its reason.

A pattern is as narrow as its reason. `docs/diff.md` lists them; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from coord_sim.core.status import Code
from coord_sim.sim import KILLED
from jax_bridge.differential.outcome import (
    ABSENT,
    ENDED_BY_CLIENT,
    ENDED_BY_ITSELF,
    PENDING,
    Difference,
    Outcome,
    Place,
)
from jax_bridge.differential.variations import TICK_S

Condition: TypeAlias = Callable[[Difference, Outcome, Outcome], bool]
"""Of a difference and the outcomes of the real and of the simulated run."""

DYING_S: Final = 2.0
"""So long a real process may take to die once its client has decided to end it."""


def _always(_difference: Difference, _found: Outcome, _expected: Outcome) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDifference:
    """A difference that has a reason.

    Attributes:
      name: Short.
      what, found, expected: Patterns that the whole of a difference's parts must match: what it is
        about, what the real run has and what the simulated one has.
      given: What else must hold.
      why: The reason.
    """

    name: str
    what: str
    found: str
    expected: str
    given: Condition = _always
    why: str

    def fits(self, difference: Difference, found: Outcome, expected: Outcome) -> bool:
        """Whether a difference is this one."""
        parts = (
            (self.what, difference.place.what),
            (self.found, difference.found),
            (self.expected, difference.expected),
        )
        matches = all(re.fullmatch(pattern, text, re.DOTALL) for pattern, text in parts)
        return matches and self.given(difference, found, expected)


def explanation_of(
    difference: Difference, found: Outcome, expected: Outcome
) -> KnownDifference | None:
    """The known difference that this one is; None if it has no explanation.

    Args:
      difference: Of the two outcomes.
      found: Of the real run.
      expected: Of the simulated run.
    """
    return next((each for each in KNOWN if each.fits(difference, found, expected)), None)


def _ended_by_client(difference: Difference, found: Outcome, expected: Outcome) -> bool:
    """Whether this start was ended by its client, for the same reason in both runs."""
    mine, theirs = (outcome.get(_end_of(difference)) for outcome in (found, expected))
    if mine is None or theirs is None:
        return False
    return mine.value.startswith(ENDED_BY_CLIENT) and mine.value == theirs.value


def _is_dying(difference: Difference, found: Outcome, expected: Outcome) -> bool:
    """Whether that came just after the difference, in the run that has what the other has not."""
    if not _ended_by_client(difference, found, expected):
        return False
    outcome = expected if difference.found == ABSENT else found
    return outcome[_end_of(difference)].at_s - difference.at_s <= DYING_S


def _had_left(difference: Difference, found: Outcome, expected: Outcome) -> bool:
    """Whether a process was killed just after it had left the job in both runs."""
    process = difference.place.process
    lifetimes = [place.lifetime for place in found if place.process == process]
    lifetime = difference.place.lifetime
    if difference.place.what != "its end":  # How the last start ended.
        lifetime = max(lifetimes)
    left = Place(process, lifetime, "shutdown", 1)
    end = found.get(Place(process, lifetime, "its end"))
    mine, theirs = found.get(left), expected.get(left)
    if end is None or mine is None or theirs is None:
        return False
    return mine.value == theirs.value == "OK" and end.at_s - mine.at_s <= DYING_S


def _connection_broke(difference: Difference, found: Outcome, expected: Outcome) -> bool:
    """Whether both runs ended this start because its connection broke, just after the difference."""
    seen = []
    for outcome, ends in ((found, (*_BROKEN, KILLED)), (expected, _BROKEN)):
        end = outcome.get(_end_of(difference))
        if end is None or end.value not in ends:
            return False
        fact = outcome.get(difference.place)
        if fact is not None:
            seen.append((fact, end))
    # A call that was not answered may have been made long before.
    answered = [(fact, end) for fact, end in seen if fact.value != PENDING]
    return all(end.at_s - fact.at_s <= DYING_S for fact, end in answered or seen)


def _killed_while_dying(difference: Difference, found: Outcome, expected: Outcome) -> bool:
    """Whether the real process was killed not long after the simulated one died."""
    later_s = found[difference.place].at_s - expected[difference.place].at_s
    return -TICK_S <= later_s <= DYING_S  # Simulated times are later by a phase of the tick.


def _end_of(difference: Difference) -> Place:
    return Place(difference.place.process, difference.place.lifetime, "its end")


_BROKEN: Final = (f"{ENDED_BY_CLIENT}: UNAVAILABLE", "raised ServiceError UNAVAILABLE")
_LOST: Final = f"{PENDING}|{ABSENT}|UNAVAILABLE(: .*)?"
_TRANSPORT: Final = (
    "Connection reset by peer|Socket closed|Stream removed.*|recvmsg:.*|GOAWAY.*|Broken pipe"
    "|failed to connect to all addresses.*|Failed to send RPC.*|.*Connection refused.*"
)
_AN_ERROR: Final = "|".join(code.name for code in Code if code is not Code.OK)
_TIMED_OUT: Final = r"GetKeyValue\(\) timed out with key: .* and duration: .*"

KNOWN: Final = (
    KnownDifference(
        name="a refused shutdown does not return",
        what="(message of )?shutdown",
        found=f"{PENDING}|{ABSENT}",
        expected=f"({_AN_ERROR})(: .*)?",
        given=_ended_by_client,
        why="jaxlib's client ends its process inside `shutdown()` when that is refused, so that nobody "
        "sees the answer. The simulator records the answer, and ends the process then.",
    ),
    KnownDifference(
        name="a process takes time to die",
        what="(?!its |at the end).*",
        found=f"(?!{ABSENT}$).*",
        expected=f"{ABSENT}|{PENDING}|with .*, not left",
        given=_is_dying,
        why="A client that ends its process logs why and aborts, which takes some tenths of a second; "
        "the program runs on meanwhile, makes calls and is answered. In the simulator it dies at once.",
    ),
    KnownDifference(
        name="a process takes time to leave",
        what="its end|at the end of the run",
        found="killed|crashed",
        expected=f"{ENDED_BY_ITSELF}|left",
        given=_had_left,
        why="A process that has left the job takes some hundredths of a second to exit, and may be "
        "killed until then. In the simulator it is gone at once.",
    ),
    KnownDifference(
        name="a process dies at once in the simulator",
        what="(?!block|its |at the end|message of ).*",
        found=ABSENT,
        expected=PENDING,
        given=_is_dying,
        why="The other side of the same: a simulated process may have made a call that the real one, "
        "which computed a little longer, did not come to.",
    ),
    KnownDifference(
        name="a broken connection fails all calls at once",
        what="(?!block|at the end|its |what it said).*",
        found=_LOST,
        expected=_LOST,
        given=_connection_broke,
        why="The program's call and the client's error poll fail together. If the program is first, it "
        "is told UNAVAILABLE; if the client is, it ends the process. In the simulator the program is "
        "first.",
    ),
    KnownDifference(
        name="a broken connection ends a process by its client or by its program",
        what="its end",
        found="|".join(_BROKEN),
        expected="|".join(_BROKEN),
        given=_connection_broke,
        why="The same race, as it shows in how the process ended.",
    ),
    KnownDifference(
        name="a process is killed while it dies",
        what="its end",
        found=KILLED,
        expected=f"{ENDED_BY_CLIENT}: .*|{'|'.join(_BROKEN)}",
        given=_killed_while_dying,
        why="It takes some tenths of a second to die, in which the schedule kills it. In the simulator "
        "it is dead by then.",
    ),
    KnownDifference(
        name="what is said of a broken connection",
        what="what it said",
        found=f"{ABSENT}|.*UNAVAILABLE: .*",
        expected=f"{ABSENT}|.*UNAVAILABLE: .*",
        given=_connection_broke,
        why="The same race, as it shows in the log of a program that writes down what it is told.",
    ),
    KnownDifference(
        name="the words of a broken connection",
        what="message of .*|what it said",
        found=f".*UNAVAILABLE: ({_TRANSPORT})",
        expected=f".*UNAVAILABLE: ({_TRANSPORT})",
        why="gRPC words a lost connection by what its socket was told first, and by its version. The "
        "code is compared.",
    ),
    KnownDifference(
        name="the words of a read that times out",
        what="message of key_value_get .*|what it said",
        found=f".*DEADLINE_EXCEEDED: {_TIMED_OUT}",
        expected=".*DEADLINE_EXCEEDED: the call timed out on the client",
        why="jaxlib's client gives up a read by itself and words that itself; the simulator's client "
        "has one text for all calls that time out. The code is compared.",
    ),
)
