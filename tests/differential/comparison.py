"""When two services have said the same, up to what concurrency and wording leave open.

Codes, payloads, answers and messages are compared as they are, but for the order of lists (see
`tests.conformance.outcome`).

An answer has a second, looser form for what the real service leaves to chance when several tasks die in
one tick or leave together: which of them a message names, and whether a live set that the first of these
completed still names the others (section 10 of the note). Of messages only their *shape* counts then:
the numbers, codes and names of instances, not the words between, nor the payloads of quoted statuses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from coord_sim.core.status import Code
from tests.conformance.outcome import Outcome, TaskSeen, sorted_lists

_TOKENS = re.compile(
    r"\b(?:" + "|".join(code.name for code in Code) + r")\b"
    r"|\[Init\]\S+::\d+"
    r"|[\w{}]*(?:::\w+)?::-?\d+"  # An instance of a barrier.
    r"|\d+/\d+"
    r"|-?\d+"
)
_QUOTED_PAYLOAD = re.compile(r" \[[\w./]+='[^']*'\]")
_ARBITRARY = (
    # An error inside an error: the first of several is quoted in the next ones.
    (re.compile(r"(?:[eE]rror: |because: |Barrier result: ).*", re.DOTALL), ""),
    # Who of several in error was found first.
    (re.compile(r"Task \(\d+\) is already in error before.*", re.DOTALL), ""),
    # Which two of more that are missing, which three of more that died.
    (re.compile(r"(Some timed out task names:)(?:\s\d+)+"), r"\1"),
    (re.compile(r"unhealthy(.*?):(?:\n\d+)+", re.DOTALL), r"unhealthy"),
)
_MISSING = re.compile(r"(\d+)/(\d+)(\..*?Some timed out task names:)((?:\\n\d+)+)")
"""Of more than two missing tasks a message names two, whichever come first."""

_STORE = frozenset({"insert", "get", "try_get", "increment", "directory", "delete"})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call was answered.

    Attributes:
      code: Of the outcome.
      text: Comparable form.
      loose: The same without what may be arbitrary.
    """

    code: Code
    text: str
    loose: str


@dataclass(frozen=True, slots=True)
class Observation:
    """What one service had said by the end of a step.

    Attributes:
      answers: Of the calls that were answered in this step, by the number of the step that made them.
      version: Of the states of the tasks.
      states: Of the tasks: their incarnations, by state (`CONNECTED`, ...).
      picture: The states with their errors, in comparable form.
    """

    answers: Mapping[int, Answer]
    version: int
    states: Mapping[int, str]
    picture: Answer

    @property
    def in_error(self) -> int:
        """How many tasks are in error."""
        return sum(state.startswith("ERROR") for state in self.states.values())

    @property
    def connected(self) -> frozenset[int]:
        """The tasks in the job."""
        return frozenset(
            task for task, state in self.states.items() if state.startswith("CONNECTED")
        )


def same(one: Observation, other: Observation, *, loose: bool) -> bool:
    """Whether two services have said the same.

    Args:
      one: Of one service.
      other: Of the other.
      loose: Whether arbitrary parts are left out.
    """
    if (one.answers.keys(), one.version, one.states) != (
        other.answers.keys(),
        other.version,
        other.states,
    ):
        return False
    pairs = [(one.picture, other.picture)]
    pairs += [(answer, other.answers[call]) for call, answer in one.answers.items()]
    if loose:
        return all(mine.loose == theirs.loose for mine, theirs in pairs)
    return all(mine.text == theirs.text for mine, theirs in pairs)


def answer(
    op: str,
    outcome: Outcome,
    names: Mapping[int, str],
    *,
    states: Mapping[int, str],
    arbitrary: bool = False,
) -> Answer:
    """The comparable forms of an outcome.

    Args:
      op: What was called.
      outcome: What it came to.
      names: Of the random numbers.
      states: Of the tasks at the end of the step; live sets are loosely the connected ones in them.
      arbitrary: Whether nothing but the code may be compared: a picture taken in the middle of several
        changes.
    """
    text = _MISSING.sub(_named_missing, outcome.text(names))
    if op in _STORE:
        return Answer(outcome.code, text, text)
    if arbitrary:
        return Answer(outcome.code, outcome.code.name, outcome.code.name)
    loose = _loosened(outcome)
    alive = outcome.answer.get("alive")
    if alive is not None:
        left = {task: each for task, each in alive.items() if states[task].startswith("CONNECTED")}
        loose = replace(loose, answer={"alive": left})
    return Answer(outcome.code, text, loose.text(names))


def _named_missing(found: re.Match[str]) -> str:
    if int(found[2]) - int(found[1]) <= 2:
        return found[0]
    return f"{found[1]}/{found[2]}{found[3]} (two of them)"


def _loosened(outcome: Outcome) -> Outcome:
    answer = {key: _without_reasons(value) for key, value in outcome.answer.items()}
    return replace(outcome, message=_shape(outcome.message), answer=answer)


def _without_reasons(value: Any) -> Any:
    """States of tasks without the messages of their errors."""
    if isinstance(value, TaskSeen) and value.error is not None:
        return replace(value, error=replace(value.error, message=""))
    if isinstance(value, Mapping):
        return {key: _without_reasons(each) for key, each in value.items()}
    return value


def _shape(message: str) -> str:
    message = _QUOTED_PAYLOAD.sub("", sorted_lists(message))
    for pattern, replacement in _ARBITRARY:
        message = pattern.sub(replacement, message)
    return " ".join(_TOKENS.findall(message))
