"""Small random programs, as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from coord_sim.testing.scripts import (
    Barrier,
    Block,
    Delete,
    Increment,
    Read,
    Round,
    Script,
    Sleep,
    Step,
    WaitFor,
    Write,
)

KEYS: Final = ("a", "b")
BARRIERS: Final = ("x", "y")
COUNTER: Final = "counter"

_TENTHS_MAX: Final = 20


def steps(
    *, keys: Sequence[str] = KEYS, barriers: Sequence[str] = BARRIERS, live: bool = True
) -> SearchStrategy[Step]:
    """One thing that a process does.

    Args:
      keys: That are written, read and removed; no such steps if there are none.
      barriers: That are waited at.
      live: Whether there are rounds of `live_processes`, and blocks.
    """
    times_s = st.integers(1, _TENTHS_MAX).map(lambda tenths: tenths / 10)
    choices: list[SearchStrategy[Step]] = [st.builds(Sleep, times_s)]
    if live:
        choices += [st.just(Round()), st.builds(Block, times_s)]
    if keys:
        key = st.sampled_from(list(keys))
        choices += [
            st.builds(Write, key, st.integers(0, 3).map(str), st.booleans().map(lambda no: not no)),
            st.builds(Read, key),
            st.builds(WaitFor, key, st.sampled_from([500, 2000])),
            st.just(Increment(COUNTER)),
            st.builds(Delete, key),
        ]
    if barriers:
        timeouts_ms = st.sampled_from([1000, 5000])
        choices.append(st.builds(Barrier, st.sampled_from(list(barriers)), timeouts_ms))
    return st.one_of(choices)


def programs(
    *,
    steps_max: int = 6,
    each: SearchStrategy[Step] | None = None,
    lists_max: int = 3,
) -> SearchStrategy[Script]:
    """Programs whose processes do the same or different things, and leave.

    Waits have time-outs, and those who are done leave, so that a right service brings all to an end.

    Args:
      steps_max: Of each process.
      each: The steps; `steps()` if left out.
      lists_max: How many different lists of steps the processes may have.
    """
    one = st.lists(steps() if each is None else each, max_size=steps_max).map(tuple)
    return st.lists(one, min_size=1, max_size=lists_max).map(lambda lists: Script(tuple(lists)))
