"""Who is in which `live_devices` block, and how each block was left: atomicity, step by step.

The definition is that of `checker.specs.blocks`: two processes are in the same block if they entered it
with the same answer, as the same how-manieth such answer. No process may complete a block that another
one leaves as failed, and who leaves it as failed names the same processes, but for those named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from coord_sim.explore.requests import Members, renamed

Block: TypeAlias = tuple[Members, int]
"""The answer on entering, and the how-manieth such one."""


class Exit(NamedTuple):
    """How a process left a block; it completed it if nobody failed."""

    process: int
    failed: tuple[int, ...]


class Stays(NamedTuple):
    """The blocks of all processes.

    Attributes:
      inside: The block of each process, or None.
      answers: The answers that each process got in this start, with how often.
      exits: Of each block that somebody may still leave, who has left it.
    """

    inside: tuple[Block | None, ...]
    answers: tuple[tuple[tuple[Members, int], ...], ...]
    exits: tuple[tuple[Block, tuple[Exit, ...]], ...] = ()

    @classmethod
    def nobody(cls, processes: int) -> Stays:
        """All are outside."""
        return cls((None,) * processes, ((),) * processes)

    def renamed(self, processes: Sequence[int]) -> Stays:
        """The same under other numbers of processes."""
        back = sorted(range(len(processes)), key=processes.__getitem__)
        return Stays(
            tuple(_renamed(self.inside[old], processes) for old in back),
            tuple(
                tuple(sorted((renamed(members, processes), n) for members, n in self.answers[old]))
                for old in back
            ),
            tuple(
                sorted(
                    (
                        (renamed(block[0], processes), block[1]),
                        tuple(
                            sorted(
                                Exit(
                                    processes[each.process],
                                    tuple(sorted(processes[p] for p in each.failed)),
                                )
                                for each in exits
                            )
                        ),
                    )
                    for block, exits in self.exits
                )
            ),
        )

    def told(self, process: int, answer: Members) -> tuple[Stays, Exit | None, bool]:
        """A process gets an answer: it leaves its block, and enters the next one.

        Returns:
          What is now, how it left its block if it was in one, and whether that breaks atomicity.
        """
        counts = dict(self.answers[process])
        counts[answer] = counts.get(answer, 0) + 1
        block = self.inside[process]
        exits = dict(self.exits)
        left: Exit | None = None
        broken = False
        if block is not None:
            alive = dict(answer)
            failed = tuple(p for p, lifetime in block[0] if alive.get(p) != lifetime)
            left = Exit(process, failed)
            others = exits.get(block, ())
            broken = _breaks(left, others)
            exits[block] = tuple(sorted((*others, left)))
        inside = _with(self.inside, process, (answer, counts[answer]))
        answers = _with(self.answers, process, tuple(sorted(counts.items())))
        return Stays(inside, answers, tuple(sorted(exits.items()))), left, broken

    def over(self, process: int) -> Stays:
        """A process has ended: it is in no block, and a new start counts anew."""
        return self._replace(
            inside=_with(self.inside, process, None), answers=_with(self.answers, process, ())
        )

    def without_decided(self, on_their_way: Sequence[Members]) -> Stays:
        """Without the blocks that nobody is in or will enter."""
        kept = tuple(
            each for each in self.exits if each[0] in self.inside or each[0][0] in on_their_way
        )
        return self if len(kept) == len(self.exits) else self._replace(exits=kept)


def _breaks(one: Exit, others: Sequence[Exit]) -> bool:
    suspected = {process for each in (one, *others) for process in each.failed}
    for other in others:
        if bool(one.failed) != bool(other.failed):
            return True
        if one.failed != other.failed and not suspected.intersection((one.process, other.process)):
            return True
    return False


def _renamed(block: Block | None, processes: Sequence[int]) -> Block | None:
    return None if block is None else (renamed(block[0], processes), block[1])


def _with(values: tuple[object, ...], index: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:index], value, *values[index + 1 :])
