"""Every search by itself: the same question to each, so that answers can be compared.

`check_operations` asks whichever search is best for a history. Here a search is asked even where it is
not, and without explaining its answer, which takes longest on small histories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from checker.operations import Operations
from checker.search.budget import Budget, BudgetSpentError
from checker.search.counting import CountingFrontier, Effort
from checker.search.frontier import Frontier, run
from checker.search.object_search import ObjectSearch
from checker.search.problem import LEFT_OUT, NEVER, Problem, classify, split
from checker.search.steps import StepTable
from checker.search.words import WordSteps, words_of
from checker.specification import Guarded, Hint, Specification

Answer: TypeAlias = bool | None
"""Whether the history is linearizable; None: not found out, or the search is not for this object."""

Algorithm: TypeAlias = Callable[[Operations, Specification, Budget], Answer]

EFFORTS = tuple(
    Effort(joins=joins, keep=keep, chains=chains, relaxed=relaxed, beam=beam)
    for joins, keep, chains, relaxed, beam in (
        (False, 1, "if needed", False, 2),
        (False, 1, "always", False, 16),
        (False, 2, "if needed", False, 1 << 60),
        (True, 1, "always", False, 1 << 60),
        (True, 2, "if needed", False, 1 << 60),
        (True, 1, "always", True, 1 << 60),
        (True, 2, "always", True, 1 << 60),
        (False, 1 << 60, "always", True, 1 << 60),
    )
)
"""Cheap and one-sided; histories of a few operations need them rarely."""


def plain(operations: Operations, spec: Specification, budget: Budget) -> Answer:
    """What plain Python does: counting on words, masks elsewhere."""
    return _all(
        ObjectSearch(problem, spec, operations.kinds, words).decide(budget).valid
        for problem, words in _objects(operations, spec)
    )


def masks(operations: Operations, spec: Specification, budget: Budget) -> Answer:
    """The frontier that asks `step`, whether or not there are words."""
    return _all(
        ObjectSearch(problem, spec, operations.kinds, None).decide(budget).valid
        for problem, _ in _objects(operations, spec)
    )


def without_hints(operations: Operations, spec: Specification, budget: Budget) -> Answer:
    """The frontier with the rules that hold for every specification alone."""
    nothing = [Hint.NOTHING] * len(operations.kinds)
    try:
        return _all(
            run(Frontier(StepTable(spec, operations.kinds), nothing, budget), problem)
            for problem, _ in _objects(operations, spec)
        )
    except BudgetSpentError:
        return None


def without_deadlines(operations: Operations, spec: Specification, budget: Budget) -> Answer:
    """A frontier that is not told when operations respond, as while a system runs."""
    answers: list[Answer] = []
    for problem, words in _objects(operations, spec):
        frontier: Frontier | CountingFrontier
        if words is None:
            hints = {kind: spec.hints(operations.kinds[kind]) for kind in set(problem.kind)}
            frontier = Frontier(StepTable(spec, operations.kinds), hints, budget)
        else:
            frontier = CountingFrontier(WordSteps(spec, operations.kinds, words), budget)
        responded = problem.responses()
        answer: Answer = True
        try:
            for event in problem.events:
                if event >= 0:
                    responds = NEVER if responded[event] == NEVER else None
                    frontier.invoke(event, problem.kind[event], responds)
                elif not frontier.respond(~event):
                    answer = False
                    break
        except BudgetSpentError:
            answer = None
        answers.append(answer)
    return _all(answers)


def depth_first(operations: Operations, spec: Specification, budget: Budget) -> Answer:
    """The search of `--paranoid`."""
    return _all(
        ObjectSearch(problem, spec, operations.kinds, None, paranoid=True).decide(budget).valid
        for problem, _ in _objects(operations, spec)
    )


def compiled(operations: Operations, spec: Specification, budget: Budget) -> Answer:
    """The compiled counting frontier, for objects that have words."""
    from checker.search.compiled.driver import Columns, CompiledCheck

    kinds = classify(operations, spec)
    words: dict[int, Guarded] = {}
    part = [LEFT_OUT] * len(kinds.part)
    for problem, its_words in _objects(operations, spec):
        if its_words is None:
            return None
        words.update(its_words)
        for kind in its_words:
            part[kind] = problem.part
    check = CompiledCheck(
        Columns(operations, part, len(kinds.keys), words, spec.init()),
        budget,
    )
    return _all(check.decision(number).valid for number in check.not_valid())


def compiled_table(operations: Operations, spec: Specification, budget: Budget) -> Answer:
    """The compiled frontier that asks a table of steps, whether or not there are words."""
    from checker.search.compiled.driver import TableObject

    return _all(
        TableObject(problem, spec, operations.kinds).decide(budget).valid
        for problem, _ in _objects(operations, spec)
    )


PLAIN: dict[str, Algorithm] = {
    "plain": plain,
    "masks": masks,
    "without hints": without_hints,
    "without deadlines": without_deadlines,
    "depth-first": depth_first,
}
ALGORITHMS: dict[str, Algorithm] = {
    **PLAIN,
    "compiled": compiled,
    "compiled table": compiled_table,
}


def with_effort(operations: Operations, spec: Specification, effort: Effort) -> Answer:
    """What a cheap, one-sided search is sure of."""
    answers: list[Answer] = []
    for problem, words in _objects(operations, spec):
        if words is None:
            return None
        steps = WordSteps(spec, operations.kinds, words)
        frontier = CountingFrontier(steps, Budget(), effort)
        answer: Answer = run(frontier, problem)
        if answer:
            is_sure = not effort.relaxed and not (effort.joins and frontier.dropped)
        else:
            is_sure = effort.joins or not frontier.dropped
        answers.append(answer if is_sure else None)
    return _all(answers)


def climbed(operations: Operations, spec: Specification) -> Answer:
    """What the compiled search says of objects with words that its first, quick attempt gave up."""
    from checker.search.compiled.driver import Columns, CompiledCheck

    kinds = classify(operations, spec)
    answers: list[Answer] = []
    for problem, words in _objects(operations, spec):
        if words is None:
            continue
        part = [0 if its == problem.part else LEFT_OUT for its in kinds.part]
        check = CompiledCheck(Columns(operations, part, 1, words, spec.init()), Budget())
        check.climb(0)
        answers.append(check.decision(0).valid)
    return _all(answers)


def _objects(
    operations: Operations, spec: Specification
) -> Iterator[tuple[Problem, dict[int, Guarded] | None]]:
    kinds = classify(operations, spec)
    for problem in split(operations, kinds):
        used = [kind for kind, part in enumerate(kinds.part) if part == problem.part]
        yield problem, words_of(spec, operations.kinds, used, kinds.counts)


def _all(answers: Iterator[Answer] | list[Answer]) -> Answer:
    together: Answer = True
    for answer in answers:
        if answer is False:
            return False
        if answer is None:
            together = None
    return together
