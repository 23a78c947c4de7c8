"""The published reading: every answer has an instant of its own.

Answers that tell incarnations say which lifetimes they mean. Where one does not and the process
restarted, every lifetime of it must be tried: `ways_of_meaning` yields the combinations, the likely
one (the latest lifetime that started before the answer) first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from checker.live_processes.instants import Answer, Cover
from checker.live_processes.lifetimes import Call, Lifetime, Lifetimes
from checker.live_processes.rounds import (
    NoCall,
    NoSuchLifetime,
    NotInOwnAnswer,
    Obstacle,
    answers_itself,
    set_window,
)


def meanings(lifetimes: Lifetimes) -> list[list[list[Lifetime]]] | Obstacle:
    """For each answered call and each process in its answer, the lifetimes that may be meant."""
    found = []
    told: dict[tuple[int, int], list[list[Lifetime]]] = {}
    for call in lifetimes.completed:
        if not answers_itself(lifetimes, call):
            return NotInOwnAnswer(call)
        assert call.answer is not None
        meant = (id(call.answer), call.group)
        if meant in told:
            found.append(told[meant])
            continue
        candidates = []
        for process, incarnation in call.answer.items():
            if process == call.lifetime.process:
                candidates.append([call.lifetime])
                continue
            named = lifetimes.named(process, incarnation)
            if not named:
                return NoSuchLifetime(call, process, incarnation)
            if len(named) > 1:
                last = named[-1]
                named = [lifetime for lifetime in reversed(named) if _may_cover(lifetime, call)]
                if not named:
                    return NoCall(call, last)
            candidates.append(named)
        found.append(candidates)
        if None not in call.answer.values():
            told[meant] = candidates  # The same for everybody who got this very answer.
    return found


def ways_of_meaning(
    lifetimes: Lifetimes, candidates: Sequence[Sequence[Sequence[Lifetime]]]
) -> Iterator[list[Answer]]:
    """Every way to choose one lifetime for each process of each answer."""
    for chosen in _product(candidates):
        answers = []
        covers: dict[int, Cover] = {}
        for number, (call, members) in enumerate(zip(lifetimes.completed, chosen, strict=True)):
            assert call.answer is not None
            answer = Answer(number, (call,), call.answer)
            cover = covers.get(id(members))
            if cover is None:
                absent = sorted(lifetimes.groups[call.group] - call.answer.keys())
                cover = covers[id(members)] = Cover(members, absent)
            answer.cover, answer.members, answer.absent = cover, cover.members, cover.absent
            set_window(answer, answer.calls)
            answers.append(answer)
        yield answers


def _product(
    candidates: Sequence[Sequence[Sequence[Lifetime]]],
) -> Iterator[Sequence[Sequence[Lifetime]]]:
    ways: dict[int, list[Sequence[Lifetime]]] = {}
    for per_answer in candidates:
        if id(per_answer) not in ways:
            ways[id(per_answer)] = list(product(*per_answer))
    return product(*(ways[id(per_answer)] for per_answer in candidates))


def _may_cover(lifetime: Lifetime, call: Call) -> bool:
    """Whether some call of `lifetime` is open at some moment of `call`."""
    assert call.answered_ns is not None
    until_ns = lifetime.next_start_ns
    if until_ns is not None and until_ns < call.invoked_ns:
        return False
    return any(
        other.invoked_ns <= call.answered_ns
        and (other.skippable or other.answered_ns is None or other.answered_ns >= call.invoked_ns)
        for other in lifetime.calls.get(call.group, ())
    )
