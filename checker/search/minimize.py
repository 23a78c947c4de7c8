"""The smallest sub-history that still has no legal order.

Only steps that make a history *easier* are taken, so that what is left explains the whole: everything
after the contradiction is cut off; a pure operation is dropped; an operation with an effect need
not have happened any more (it loses its response). What keeps its response in the end is the
*core*: results that cannot hold together, whatever the others returned. The order of steps is delta
debugging (Zeller and Hildebrandt, 2002).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence

from checker.search.problem import Hints, Problem
from checker.specification import Hint

CHECKS_MAX = 400
"""A minimisation ends after so many checks, with what it has; one of a long stretch counts for more."""

EVENTS_PER_CHECK = 64

SECONDS_MAX = 5.0
"""A minimisation ends after so long, too."""

WINDOW_MAX = 4096
"""A contradiction that needs more events than this is not made smaller."""


def minimize(
    problem: Problem,
    hints: Hints,
    events_done: int,
    is_contradiction: Callable[[Problem, Sequence[Hashable] | None], bool],
    any_state: Sequence[Hashable] | None,
) -> tuple[list[int], list[int]]:
    """Shrinks a contradiction.

    Args:
      problem: An object's history without a legal order.
      hints: Per kind.
      events_done: The event after these has no explanation.
      is_contradiction: Whether a smaller problem, from one of some states on (None: from the first
        one), surely has no legal order. "Not known" is no.
      any_state: All states, or None if they cannot be listed.

    Returns:
      Local numbers of the core, and of the operations that may have happened around it, both ascending.
      Both are empty if nothing small was found.
    """
    window = _window(problem, hints, events_done, is_contradiction, any_state)
    if window is None:
        return [], []
    start, states = window
    events = problem.events[start : events_done + 1]
    required, effectful = _stretch(problem, hints, start, events)
    checks = 0
    deadline_s = time.monotonic() + SECONDS_MAX

    def fails(kept: Sequence[int], optional: Sequence[int]) -> bool:
        nonlocal checks
        checks += 1 + len(events) // EVENTS_PER_CHECK
        if time.monotonic() >= deadline_s:
            checks = CHECKS_MAX
            return False
        return is_contradiction(reduced(problem, events, kept, optional), states)

    size = max(1, len(required) // 2)
    while checks < CHECKS_MAX:
        place, shrunk = 0, False
        while place < len(required) and checks < CHECKS_MAX:
            kept = required[:place] + required[place + size :]
            if kept and fails(kept, effectful):
                required, shrunk = kept, True
            else:
                place += size
        if size > 1:
            size //= 2
        elif not shrunk:
            break
    needed = set(required)
    return sorted(required), [e for e in effectful if e not in needed]


def _window(
    problem: Problem,
    hints: Hints,
    events_done: int,
    is_contradiction: Callable[[Problem, Sequence[Hashable] | None], bool],
    any_state: Sequence[Hashable] | None,
) -> tuple[int, Sequence[Hashable] | None] | None:
    """The shortest stretch before the contradiction that has it, whatever the state at its start."""
    length = 8
    deadline_s = time.monotonic() + SECONDS_MAX
    while (
        any_state is not None
        and time.monotonic() < deadline_s
        and length <= min(events_done, WINDOW_MAX)
    ):
        start = events_done + 1 - length
        events = problem.events[start : events_done + 1]
        kept, optional = _stretch(problem, hints, start, events)
        if ~problem.events[events_done] in kept and is_contradiction(
            reduced(problem, events, kept, optional), any_state
        ):
            return start, any_state
        length *= 2
    return (0, None) if events_done < WINDOW_MAX else None


def _stretch(
    problem: Problem, hints: Hints, start: int, events: Sequence[int]
) -> tuple[list[int], list[int]]:
    """What a stretch asks for, and what may happen in it.

    Returns:
      Operations that begin and respond in it; and all with an effect that begin in it or are open at its
      start.
    """
    open_before: dict[int, None] = {}
    for event in problem.events[:start]:
        if event >= 0:
            open_before[event] = None
        else:
            del open_before[~event]
    begun = [event for event in events if event >= 0]
    there = set(begun)
    required = [~event for event in events if event < 0 and ~event in there]
    may = [x for x in (*open_before, *begun) if not hints[problem.kind[x]] & Hint.PURE]
    return required, sorted(may)


def reduced(
    problem: Problem, events: Sequence[int], kept: Sequence[int], optional: Sequence[int]
) -> Problem:
    """The part of a problem with the responses of `kept` only; `optional` operations may have happened.

    Operations that began before the first event and are in neither are left out; those of `optional` may
    happen from the first event on.
    """
    required = frozenset(kept)
    there = required.union(optional)
    begun = {event for event in events if event >= 0}
    local: dict[int, int] = {}
    numbers: list[int] = []
    kind: list[int] = []
    left: list[int] = []
    earlier = [x for x in optional if x not in begun]
    for event in (*earlier, *events):
        operation = event if event >= 0 else ~event
        if operation not in there:
            continue
        if event >= 0:
            local[operation] = len(numbers)
            numbers.append(problem.numbers[operation])
            kind.append(problem.kind[operation])
            left.append(local[operation])
        elif operation in required:
            left.append(~local[operation])
    return Problem(problem.part, problem.key, numbers, left, kind)
