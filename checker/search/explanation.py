"""From a failed search to an anomaly: words, possible states, the core, and a cycle of reasons."""

from __future__ import annotations

from checker.anomaly import Anomaly
from checker.linearization import Contradiction, PossibleState
from checker.operations import Operations
from checker.search.budget import Budget, BudgetSpentError
from checker.search.minimize import minimize
from checker.search.object_search import NO_SOURCE, Decision, ObjectSearch
from checker.search.reasons import cycle_of

KIND = "not-linearizable"

POSSIBLE_SHOWN_MAX = 16
"""So many possible states are told; of the others, how many there are."""

CORE_SHOWN_MAX = 20
"""So many operations of a core are told in words, the latest."""

_EXPLAINING_S = 5.0


def anomaly_of(operations: Operations, search: ObjectSearch, decision: Decision) -> Anomaly:
    """Explains a decision that is negative.

    Args:
      operations: The history.
      search: The object's.
      decision: Its outcome.
    """
    problem, done = search.problem, decision.events_done
    failing = ~problem.events[done]
    possible: list[PossibleState] = []
    core: list[int] = [failing]
    context: list[int] = []
    if decision.algorithm != NO_SOURCE:
        possible = _possible(search, failing, done)
        core, context = minimize(
            problem, search.hints, done, search.is_contradiction, search.any_state()
        )
    numbers = problem.numbers
    evidence = Contradiction(
        operations=operations,
        spec=search.spec,
        key=problem.key,
        failing=numbers[failing],
        possible=tuple(possible[:POSSIBLE_SHOWN_MAX]),
        possible_count=len(possible),
        prefix=tuple((index,) for index in search.order(decision.explained)),
        core=tuple(numbers[operation] for operation in core),
        context=tuple(numbers[operation] for operation in context),
    )
    involved = sorted({*evidence.core, evidence.failing})
    return Anomaly(
        kind=KIND,
        summary=summary_of(evidence),
        details=tuple(_details(evidence, has_source=decision.algorithm != NO_SOURCE)),
        cycle=cycle_of(operations, search.spec, evidence.core, evidence.context),
        processes=tuple(sorted({operations.process[index] for index in involved})),
        operations=tuple(involved),
        from_ns=min(operations.invoked_ns[index] for index in involved),
        to_ns=max(operations.ended_ns[index] for index in involved),
        evidence=evidence,
    )


def _possible(search: ObjectSearch, failing: int, done: int) -> list[PossibleState]:
    problem = search.problem
    kind = problem.kind[failing]
    try:
        states = search.possible_after(done, Budget(timeout_s=_EXPLAINING_S))
    except BudgetSpentError:
        return []
    found: dict[str, PossibleState] = {}
    for state, used in sorted(states, key=lambda possible: len(possible[1])):
        words = search.describe_state(state)
        given = tuple(sorted(problem.numbers[operation] for operation in used))
        if words not in found:
            reason = ""
            if not search.steps.next(kind, state):
                reason = search.steps.why_illegal(kind, state)
            found[words] = PossibleState(state=words, given=given, reason=reason)
    return list(found.values())


def summary_of(evidence: Contradiction) -> str:
    """One sentence: which operation cannot have happened."""
    operations = evidence.operations
    who = f"process {operations.process[evidence.failing]}"
    said = f"{operations.at(evidence.failing)} of {who} cannot have happened"
    if operations.line[evidence.failing]:
        said += f" ({operations.place(evidence.failing)})"
    return said if evidence.key is None else f"Object {evidence.key!r:.80}: {said}"


def _details(evidence: Contradiction, *, has_source: bool) -> list[str]:
    lines = (
        [] if has_source else ["It needs a value that nothing before its response can have given."]
    )
    if evidence.possible:
        states = [_in_words(evidence, possible) for possible in evidence.possible]
        left = evidence.possible_count - len(states)
        more = f", or one of {left} more" if left else ""
        lines.append(f"Just before its response the state was {', or '.join(states)}{more}.")
    if evidence.core:
        count = len(evidence.core)
        lines.append(
            "No order has room for this operation, whether the others happened or not:"
            if count == 1
            else f"No order has room for these {count} operations, whether the others happened or not:"
        )
        shown = evidence.core if count <= CORE_SHOWN_MAX else evidence.core[-CORE_SHOWN_MAX:]
        if count > len(shown):
            lines.append(f"  ... {count - len(shown)} earlier ones")
        lines += [f"  {operation_in_words(evidence.operations, i)}" for i in shown]
    return lines


def _in_words(evidence: Contradiction, possible: PossibleState) -> str:
    if not possible.given:
        return possible.state
    operations = evidence.operations
    given = " and ".join(
        f"{operations.at(i)} of process {operations.process[i]}" for i in possible.given[:3]
    )
    more = f" and {len(possible.given) - 3} more" if len(possible.given) > 3 else ""
    return f"{possible.state} (if {given}{more} took effect)"


def operation_in_words(operations: Operations, index: int) -> str:
    """`process 2: write(3), line 7`."""
    words = f"process {operations.process[index]}: {operations.at(index)}"
    return f"{words}, line {operations.line[index]}" if operations.line[index] else words
