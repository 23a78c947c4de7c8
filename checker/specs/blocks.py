"""Atomic blocks: what `with live_devices` promises about how its processes leave it.

JAX's text: "It is impossible for some processes to enter A and others to enter B", where A is the
branch for a failure and B the one for success (`multihost_utils._LiveDevices`, section Atomicity). A
block belongs to a round of `live_processes`: every member of the round's answer enters the block with
that answer, and the round in which it calls next, on leaving, decides whether a member failed
meanwhile.

Three things are checked.

* *Branches.* No process completes a block that another one leaves as failed.
* *Incarnations.* A process completes a block only if the answer that it got on leaving has every
  member of the block in the same incarnation; if not, it leaves it as failed, and names those that are
  missing or new.
* *Names.* Processes that leave a block as failed name the same members.

What is *not* a contradiction: a process that died in the block, or is still inside, has no branch; one
that others name as failed (it may live on, and has been taken for dead) need not name the same. A
block that `raised` is taken for either branch: its body raised and nobody had died, which is the
program's own doing (JAX lets the others complete, against its own text), or leaving it failed for the
process alone, as for one that was declared dead. `raised_is_failed` demands the text to the letter.

Which stays of two processes are in one and the same block: those that were entered with the same
answer, in incarnations, for the same participants, for the same number of times, and left by a call
with the same participants. Members of a round get its answer, so the k-th such answer of one member
belongs to the same round as the k-th of another. That is no longer known once a call with these
participants ended with an unknown outcome in a lifetime: its later stays are not compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from checker.anomaly import Anomaly
from checker.clock_text import ClockText
from checker.history.events import LIVE_PROCESSES, Enter, Exit, Info, Invoke, LiveSet, Ok
from checker.history.history import History
from checker.verdict import Invalid, Valid

COMPLETED, FAILED, RAISED = "completed", "failed", "raised"

_Answer: TypeAlias = tuple[frozenset[int], frozenset[tuple[int, int | None]]]
"""Participants of a call, and what it was answered."""

_Block: TypeAlias = tuple[_Answer, int]
"""The answer on entering, and the how-manieth such one."""


@dataclass(frozen=True, slots=True)
class AtomicBlocks:
    """The specification.

    Attributes:
      raised_is_failed: Whether `raised` is the failure branch, as in JAX's text, so that nobody else may
        complete the block. If not, it is taken for either branch.
    """

    raised_is_failed: bool = False


@dataclass(frozen=True, slots=True)
class BlocksWitness:
    """Why blocks are valid: how each of them ended.

    Attributes:
      completed: Blocks that somebody completed, and nobody left as failed.
      failed: Blocks that somebody left as failed, and nobody completed.
      undecided: Blocks that nobody has left in a way that tells.
      left_out: Stays in a block that could not be told apart from others, and were not compared.
    """

    completed: int
    failed: int
    undecided: int
    left_out: int

    def explain(self) -> str:
        """A sentence that counts."""
        noun = "block" if self.completed == 1 else "blocks"
        text = (
            f"{self.completed} {noun} completed, {self.failed} failed, {self.undecided} undecided"
        )
        if not self.left_out:
            return f"{text}."
        return f"{text}; {self.left_out} stay{'' if self.left_out == 1 else 's'} not compared."


@dataclass(slots=True)
class _Stay:
    """A process in a block."""

    enter: Enter
    block: _Block | None
    exit: Exit | None = None
    answer_on_exit: LiveSet | None = None
    participants_on_exit: frozenset[int] | None = None


@dataclass(slots=True)
class _Lifetime:
    """What is known of a lifetime so far."""

    answer: LiveSet | None = None
    participants: frozenset[int] = frozenset()
    told: dict[_Answer, int] = field(default_factory=dict)
    lost_count: set[frozenset[int]] = field(default_factory=set)
    inside: dict[int, _Stay] = field(default_factory=dict)


def check_blocks(history: History, spec: AtomicBlocks | None = None) -> Valid | Invalid:
    """Checks all blocks of a history.

    Complexity: linear in events plus the sizes of live sets.
    """
    blocks = _Blocks(history, spec or AtomicBlocks())
    anomaly = blocks.check()
    if anomaly is not None:
        return Invalid(anomaly, _ALGORITHM)
    # A block has neither instants nor an order: its witness is a count.
    return Valid(blocks.witness(), _ALGORITHM)  # type: ignore[arg-type]


_ALGORITHM = "comparison"


class _Blocks:
    def __init__(self, history: History, spec: AtomicBlocks) -> None:
        self._history = history
        self._spec = spec
        self._everybody = frozenset(history.header.participants)
        self._clock = ClockText(history)
        self._stays: list[_Stay] = []
        self._read()

    def check(self) -> Anomaly | None:
        for stay in self._stays:
            anomaly = self._against_its_answer(stay)
            if anomaly is not None:
                return anomaly
        for stays in self._same():
            anomaly = self._against_each_other(stays)
            if anomaly is not None:
                return anomaly
        return None

    def witness(self) -> BlocksWitness:
        counts = {COMPLETED: 0, FAILED: 0, "": 0}
        for stays in self._same():
            branches = {self._branch(stay) for stay in stays} - {""}
            counts[min(branches, default="")] += 1
        left_out = sum(stay.block is None for stay in self._stays)
        return BlocksWitness(counts[COMPLETED], counts[FAILED], counts[""], left_out)

    # --- reading -------------------------------------------------------------------------------

    def _read(self) -> None:
        lifetimes: dict[tuple[int, int], _Lifetime] = {}
        calls: dict[int, frozenset[int]] = {}
        for event in self._history.events:
            lifetime = lifetimes.setdefault((event.process, event.lifetime), _Lifetime())
            if isinstance(event, Invoke) and event.operation == LIVE_PROCESSES:
                listed = event.arguments.get("participants")
                is_all = listed is None
                calls[event.id] = (
                    self._everybody if is_all else frozenset(cast("Sequence[int]", listed))
                )
            elif isinstance(event, Ok) and event.id in calls:
                lifetime.answer = cast("LiveSet", event.result)
                lifetime.participants = calls.pop(event.id)
                key = (lifetime.participants, frozenset(lifetime.answer.items()))
                lifetime.told[key] = lifetime.told.get(key, 0) + 1
                for stay in lifetime.inside.values():
                    stay.answer_on_exit = lifetime.answer
                    stay.participants_on_exit = lifetime.participants
            elif isinstance(event, Info) and event.id in calls:
                lifetime.lost_count.add(calls.pop(event.id))
            elif isinstance(event, Enter):
                stay = _Stay(event, _block(event, lifetime))
                for other in lifetime.inside.values():
                    other.block = stay.block = None  # Nested blocks share their answers.
                lifetime.inside[event.block] = stay
                self._stays.append(stay)
            elif isinstance(event, Exit) and event.block in lifetime.inside:
                lifetime.inside.pop(event.block).exit = event

    def _same(self) -> Collection[list[_Stay]]:
        """The stays in each block."""
        blocks: dict[_Block, list[_Stay]] = {}
        for stay in self._stays:
            if stay.block is not None:
                blocks.setdefault(stay.block, []).append(stay)
        return blocks.values()

    # --- checking ------------------------------------------------------------------------------

    def _branch(self, stay: _Stay) -> str:
        """The branch in which a process left a block, or nothing if that is not told."""
        if stay.exit is None:
            return ""
        if stay.exit.outcome == RAISED:
            return FAILED if self._spec.raised_is_failed else ""
        return stay.exit.outcome

    def _against_its_answer(self, stay: _Stay) -> Anomaly | None:
        """Incarnations before and after."""
        if stay.block is None or stay.exit is None or stay.exit.outcome == RAISED:
            return None
        after = stay.answer_on_exit
        if after is None:
            return None  # How it knew is not recorded.
        gone = {
            member: incarnation
            for member, incarnation in stay.enter.live.items()
            if member not in after or _differ(incarnation, after[member])
        }
        who = _name(stay)
        if stay.exit.outcome == COMPLETED and gone:
            member = min(gone)
            what = "is not alive" if member not in after else "is another incarnation"
            return self._anomaly(
                "block-completed-despite-failure",
                f"{who} completed the block, although process {member} {what} in the answer that it got "
                "on leaving",
                [stay],
            )
        if stay.exit.outcome == FAILED and set(stay.exit.failed) != set(gone):
            return self._anomaly(
                "block-failed-for-others",
                f"{who} left the block because of {_processes(stay.exit.failed)}, but the answer that "
                f"it got on leaving tells of {_processes(gone)}",
                [stay],
            )
        return None

    def _against_each_other(self, stays: Sequence[_Stay]) -> Anomaly | None:
        for participants in {stay.participants_on_exit: None for stay in stays}:
            left = [stay for stay in stays if stay.participants_on_exit == participants]
            anomaly = self._branches(left, stays)
            if anomaly is not None:
                return anomaly
        return None

    def _branches(self, left: Sequence[_Stay], stays: Sequence[_Stay]) -> Anomaly | None:
        """What is wrong with `left`, who left by calls with the same participants."""
        completed = [stay for stay in left if self._branch(stay) == COMPLETED]
        failed = [stay for stay in left if self._branch(stay) == FAILED]
        if completed and failed:
            how = "left as failed"
            if failed[0].exit is not None and failed[0].exit.outcome == RAISED:
                how = "raised in it"
            return self._anomaly(
                "block-ended-in-both-branches",
                f"{_name(completed[0])} completed the block that {_name(failed[0])} {how}",
                [completed[0], failed[0]],
                self._how_it_was_entered(stays),
            )
        suspected = {
            process for stay in failed if stay.exit is not None for process in stay.exit.failed
        }
        named = [
            stay
            for stay in failed
            if stay.exit is not None
            and stay.exit.outcome == FAILED
            and stay.enter.process not in suspected
        ]
        for stay in named:
            assert stay.exit is not None
            assert named[0].exit is not None
            if set(stay.exit.failed) != set(named[0].exit.failed):
                return self._anomaly(
                    "block-failed-for-different-processes",
                    f"{_name(named[0])} left the block because of "
                    f"{_processes(named[0].exit.failed)}, and {_name(stay)} because of "
                    f"{_processes(stay.exit.failed)}",
                    [named[0], stay],
                    self._how_it_was_entered(stays),
                )
        return None

    def _how_it_was_entered(self, stays: Sequence[_Stay]) -> tuple[str, ...]:
        live = _processes(stays[0].enter.live)
        sentences = [f"Both entered it with {live} alive."]
        inside = [stay.enter.process for stay in stays if stay.exit is None]
        if inside:
            sentences.append(f"No end of it is recorded of {_processes(inside)}.")
        return tuple(sentences)

    def _anomaly(
        self, kind: str, summary: str, stays: Sequence[_Stay], details: tuple[str, ...] = ()
    ) -> Anomaly:
        ends = [stay.exit for stay in stays if stay.exit is not None]
        times = [
            f"{_name(stay)}: entered at {self._clock.at(stay.enter.time_ns)}, "
            f"left at {self._clock.at(stay.exit.time_ns)}."
            for stay in stays
            if stay.exit is not None
        ]
        return Anomaly(
            kind=kind,
            summary=f"{summary[0].upper()}{summary[1:]}.",
            details=(*details, *(f"{time[0].upper()}{time[1:]}" for time in times)),
            processes=tuple(sorted({stay.enter.process for stay in stays})),
            from_ns=min(stay.enter.time_ns for stay in stays),
            to_ns=max(exit_.time_ns for exit_ in ends),
        )


def _block(event: Enter, lifetime: _Lifetime) -> _Block | None:
    """Which block a process enters, or None if that cannot be told."""
    if lifetime.answer is None or dict(lifetime.answer) != dict(event.live):
        return None
    if lifetime.participants in lifetime.lost_count or None in event.live.values():
        return None
    answer = frozenset(event.live.items())
    told = (lifetime.participants, answer)
    return told, lifetime.told[told]


def _differ(one: int | None, other: int | None) -> bool:
    return None not in (one, other) and one != other


def _name(stay: _Stay) -> str:
    return f"process {stay.enter.process} (block {stay.enter.block})"


def _processes(numbers: Iterable[int]) -> str:
    listed = sorted(numbers)
    if not listed:
        return "nobody"
    return f"process{'es' if len(listed) > 1 else ''} {', '.join(map(str, listed))}"
