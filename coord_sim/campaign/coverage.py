"""Which abstract states of the service runs come to, and by which steps.

A state is abstract: it says what tasks, rounds and barriers are like, and not which task, key or
incarnation it is, nor when. Two states that differ by the numbers of processes are one.
"""

from __future__ import annotations

import hashlib
from typing import Final

from coord_sim.core.barriers import REGISTRATION_BARRIER
from coord_sim.core.effects import Effect, Reply
from coord_sim.core.identifiers import Incarnation, TaskId
from coord_sim.core.messages import TaskState
from coord_sim.core.service import CoordinationService
from coord_sim.core.status import Status
from coord_sim.core.survey import Survey

_QUIET: Final = frozenset(
    (
        "Heartbeat",
        "tick",
        "TryGetKeyValue",
        "GetKeyValueDir",
        "InsertKeyValue",
        "IncrementKeyValue",
        "DeleteKeyValue",
    )
)
"""Steps after which the state is what it was, if they have no other effect than a reply."""

_LETTERS: Final = {TaskState.DISCONNECTED: "d", TaskState.CONNECTED: "c", TaskState.ERROR: "e"}
_SHOWN_MAX: Final = 3
_WAITING_MAX: Final = 2
_DIGEST_BYTES: Final = 8


class Coverage:
    """Observes the services of runs.

    Attributes:
      states: Those of the current run.
      transitions: Those of the current run: digests of a state, a step and the next state.
    """

    def __init__(self) -> None:
        self.states: dict[str, None] = {}
        self.transitions: dict[str, None] = {}
        self._services: dict[Incarnation, _Watched] = {}
        self._digests: dict[tuple[str, str, str], str] = {}

    def begin(self) -> None:
        """A new run."""
        self.states = {}
        self.transitions = {}
        self._services = {}

    def saw(self, service: CoordinationService, input_name: str, effects: list[Effect]) -> None:
        """The service has taken an input."""
        watched = self._services.get(service.incarnation)
        if watched is None:
            watched = self._services[service.incarnation] = _Watched()
        before = watched.state
        if input_name not in _QUIET or len(effects) > 1:
            watched.state = watched.outline(service)
        elif not before:
            return
        step = (before, f"{input_name} {_outcome(effects)}", watched.state)
        digest = self._digests.get(step)
        if digest is None:
            told = "\n".join(step).encode()
            digest = hashlib.blake2b(told, digest_size=_DIGEST_BYTES).hexdigest()
            self._digests[step] = digest
        self.states[watched.state] = None
        self.transitions[digest] = None


class _Watched:
    """One life of a service."""

    def __init__(self) -> None:
        self.state = ""
        self._entered: dict[tuple[TaskId, ...], dict[TaskId, Incarnation]] = {}

    def outline(self, service: CoordinationService) -> str:
        survey = service.survey(0)
        incarnations = [task.incarnation for task in survey.tasks]
        entered: dict[tuple[TaskId, ...], dict[TaskId, Incarnation]] = {}
        for round_ in survey.rounds:
            before = self._entered.get(round_.tasks, {})
            entered[round_.tasks] = {
                task: before.get(task, incarnations[task])
                for task in round_.entered
                if task < len(incarnations)
            }
        self._entered = entered
        replaced = [bool(task.past) for task in service.membership.tasks]
        return outline(survey, replaced, entered)


def outline(
    survey: Survey,
    replaced: list[bool],
    entered: dict[tuple[TaskId, ...], dict[TaskId, Incarnation]],
) -> str:
    """An abstract state, in text.

    A word for each task, in the order of the alphabet: its state (`d`isconnected, `c`onnected, `e`rror,
    a capital if it had an incarnation before); for each open round whether it is in (`x`), in as
    somebody whom it no longer is (`g`, a ghost), awaited or dead (`.`) or no participant (`-`); then the
    same for each open barrier. After a bar, what the barriers are for (`R`egistration, `S`hutdown,
    another), and how many gets wait (at most 2).

    Args:
      survey: What the service looks like.
      replaced: Whether each task had an incarnation before.
      entered: As whom the tasks entered each open round.
    """
    words = []
    rounds = survey.rounds[:_SHOWN_MAX]
    barriers = sorted(survey.barriers, key=lambda barrier: _purpose(barrier.barrier_id))[
        :_SHOWN_MAX
    ]
    for task in survey.tasks:
        letter = _LETTERS[task.state]
        word = letter.upper() if replaced[task.task] else letter
        for round_ in rounds:
            if task.task not in round_.tasks:
                word += "-"
            elif task.task not in round_.entered:
                word += "."
            else:
                is_same = entered[round_.tasks].get(task.task) == task.incarnation
                word += "x" if is_same else "g"
        for barrier in barriers:
            is_in = task.task in barrier.arrived
            word += "x" if is_in else "." if task.task in barrier.missing else "-"
        words.append(word)
    purposes = "".join(_purpose(barrier.barrier_id) for barrier in barriers)
    gets = min(survey.waiting_gets, _WAITING_MAX)
    return f"{' '.join(sorted(words))} | {purposes} {gets}"


def _purpose(barrier_id: str) -> str:
    if barrier_id == REGISTRATION_BARRIER:
        return "R"
    return "S" if barrier_id.startswith("Shutdown::") else "B"


def _outcome(effects: list[Effect]) -> str:
    """How many calls were answered (at most 2), and whether one of them with an error."""
    replies = [effect for effect in effects if isinstance(effect, Reply)]
    failed = any(isinstance(reply.answer, Status) for reply in replies)
    return f"{min(len(replies), 2)}{'!' if failed else ''}"
