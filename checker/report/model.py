"""What a report shows, as plain data: numbers and strings that any renderer can draw.

Places of things are given on two axes: the *order* axis, on which the n-th event of the history is at n
(what lies between two events has a fraction), and the *time* axis, in nanoseconds since the first event.
Histories with an abstract clock have the order axis only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Final

OK: Final = 0
FAILED: Final = 1
UNSEEN: Final = 2
OUTCOMES: Final = ("ok", "failed", "unknown")
"""Outcomes of operations, by number: returned, surely had no effect, nobody saw."""

NOWHERE: Final = -1
"""The place of what has none, and the number of what does not exist."""


@dataclass(slots=True)
class Lane:
    """A horizontal strip.

    Attributes:
      name: For people.
      kind: `operations`, or for thin ones `faults`, `lifetimes`, `blocks` or `rounds`.
      rows: Rows that it needs so that its bars do not overlap.
      is_inner: Whether it belongs to the lane above it.
    """

    name: str
    kind: str
    rows: int = 1
    is_inner: bool = False


@dataclass(slots=True)
class Bars:
    """The operations as columns, in the order of their invocations.

    Attributes:
      lane, row: Where each is drawn.
      process: Who called.
      start, end: On the order axis; `end` is `NOWHERE` if nobody saw it end. An operation of unknown
        outcome may have an end: where its caller gave up.
      start_ns, end_ns: The same on the time axis; empty if there is none.
      label, call, outcome_text: Numbers of texts: `read() -> 4`, `read()`, `return 4`.
      outcome: An index in `OUTCOMES`.
      key: Which object, an index in `Page.keys`, or `NOWHERE`.
      line: Where it stands in the file, from 1; 0 if that is not known.
      order: Which of `Page.orders` has it, or would; `NOWHERE`.
      rank: Its group in that order, from 0; `NOWHERE` if it is in none.
      point, point_ns: Where it took effect in that order.
      gap_first: The first gap of the order within its interval: gap n is before group n of the order
        without this operation.
      gap_count: How many answers there are, for that gap and the ones after it.
      gap_at: Where they begin in `Page.answers`, in answers.
    """

    lane: list[int] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    process: list[int] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    label: list[int] = field(default_factory=list)
    call: list[int] = field(default_factory=list)
    outcome_text: list[int] = field(default_factory=list)
    outcome: list[int] = field(default_factory=list)
    key: list[int] = field(default_factory=list)
    line: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    point: list[float] = field(default_factory=list)
    point_ns: list[float] = field(default_factory=list)
    gap_first: list[int] = field(default_factory=list)
    gap_count: list[int] = field(default_factory=list)
    gap_at: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lane)


@dataclass(slots=True)
class Mark:
    """Something in a lane that is no operation: a fault, a lifetime, a round.

    Attributes:
      kind: `fault`, `crash`, `start`, `leave`, `taken`, `lifetime`, `block` or `round`. A `round` is
        drawn across all lanes.
      at, at_ns: Where it is or begins, on both axes.
      until, until_ns: Where it ends, if it has a length; `NOWHERE` for a point.
      text: What it says.
    """

    lane: int
    kind: str
    at: float
    at_ns: int
    text: str
    until: float = NOWHERE
    until_ns: int = NOWHERE


@dataclass(slots=True)
class Order:
    """A legal order of the operations on one object, or of a prefix of them.

    Attributes:
      key: Index in `Page.keys`, or `NOWHERE`.
      groups: Bars in the order in which they took effect; more than one where several act as one.
    """

    key: int
    groups: list[list[int]]


@dataclass(slots=True)
class State:
    """A state that was still possible just before the contradiction."""

    text: str
    reason: str
    given: list[int]


@dataclass(slots=True)
class Page:
    """All that a report says.

    Attributes:
      title: The history's name.
      word: `valid`, `invalid` or `unknown`.
      headline: The verdict in a few words.
      facts: Counts, in a few words each.
      explanation: Lines; indented ones belong to the one before.
      notes: What was left out or guessed, in sentences.
      clock: As in a history.
      length, length_ns: Ends of the two axes; both begin at 0.
      texts: Strings that columns refer to by number.
      keys: Names of objects.
      is_prefix: Whether `orders` hold a legal prefix of an invalid history.
      failing: The bar at whose response no order was left; `NOWHERE`.
      core: Bars that cannot hold together.
      context: Bars that may have had an effect, and do not help.
      unplaced: Bars that ended before the failing one and are not in the prefix.
      states: What was possible just before the failing response.
      state_count: How many states that were; `states` may be a part of them.
      answers: For each gap of each bar four numbers: text of the state there, an `Answer` code, the bar
        that the answer is about (or `NOWHERE`), text of the specification's reason.
      words: Sentences for the codes, with `{placeholders}`.
    """

    title: str
    word: str
    headline: str
    clock: str
    facts: list[str] = field(default_factory=list)
    explanation: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    length: float = 0
    length_ns: int = 0
    texts: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)
    bars: Bars = field(default_factory=Bars)
    marks: list[Mark] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    is_prefix: bool = False
    failing: int = NOWHERE
    core: list[int] = field(default_factory=list)
    context: list[int] = field(default_factory=list)
    unplaced: list[int] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    state_count: int = 0
    answers: list[int] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)

    @property
    def has_times(self) -> bool:
        """Whether there is a time axis."""
        return self.clock != "abstract"

    def label(self, bar: int) -> str:
        """What a bar says."""
        return self.texts[self.bars.label[bar]]

    def as_json(self) -> dict[str, object]:
        """Dictionaries, lists, numbers and strings."""
        plain = _fields(self)
        plain["bars"] = _fields(self.bars)
        for name in ("lanes", "marks", "orders", "states"):
            plain[name] = [_fields(item) for item in getattr(self, name)]
        return plain


def _fields(value: Page | Bars | Lane | Mark | Order | State) -> dict[str, object]:
    # dataclasses.asdict copies every number of every column one by one.
    return {each.name: getattr(value, each.name) for each in fields(value)}
