"""Which abstract states of the service runs come to, and by which steps.

A state is abstract: it says what tasks, rounds and barriers are like, and not which task, key or
incarnation it is, nor when. Two states that differ by the numbers of processes are one.
"""

from __future__ import annotations

import hashlib
from typing import Final

from coord_sim.core.barriers import REGISTRATION_BARRIER
from coord_sim.core.effects import Effect, Reply
from coord_sim.core.identifiers import Incarnation
from coord_sim.core.messages import TaskState
from coord_sim.core.service import CoordinationService
from coord_sim.core.status import Status

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
        self._latest: dict[Incarnation, str] = {}
        self._digests: dict[tuple[str, str, str, str], str] = {}

    def begin(self) -> None:
        """A new run."""
        self.states = {}
        self.transitions = {}
        self._latest = {}

    def saw(self, service: CoordinationService, input_name: str, effects: list[Effect]) -> None:
        """The service has taken an input."""
        before = self._latest.get(service.incarnation, "")
        is_quiet = not effects or (len(effects) == 1 and isinstance(effects[0], Reply))
        if is_quiet and input_name in _QUIET and before:
            after = before
        else:
            after = self._latest[service.incarnation] = outline(service)
        step = (before, input_name, _outcome(effects), after)
        digest = self._digests.get(step)
        if digest is None:
            told = "\n".join(step).encode()
            digest = hashlib.blake2b(told, digest_size=_DIGEST_BYTES).hexdigest()
            self._digests[step] = digest
        self.states[after] = None
        self.transitions[digest] = None


def outline(service: CoordinationService) -> str:
    """An abstract state, in text.

    A word for each task, in the order of the alphabet: its state (`d`isconnected, `c`onnected, `e`rror,
    a capital if it had an incarnation before); for each open round whether it is in (`x`), in as
    somebody whom it no longer is (`g`, a ghost), awaited or dead (`.`) or no participant (`-`); then the
    same for each open barrier. After a bar, what the barriers are for (`R`egistration, `S`hutdown,
    another), and how many gets wait (at most 2).
    """
    # Looking inside: a survey costs several times as much, for each step of each run.
    open_rounds = service._rounds._rounds.values()  # noqa: SLF001
    open_barriers = service._barriers.open_barriers()  # noqa: SLF001
    gets = len(service._store.waiting_calls())  # noqa: SLF001
    rounds = [
        (round_.tasks, {entry.task: entry.incarnation for entry in round_.entries.values()})
        for round_ in list(open_rounds)[:_SHOWN_MAX]
    ]
    barriers = [(_purpose(barrier.id), barrier.arrived) for barrier in open_barriers]
    if len(barriers) > 1:
        barriers = sorted(barriers, key=lambda barrier: barrier[0])[:_SHOWN_MAX]
    words = []
    for task in service.membership.tasks:
        word = _LETTERS[task.state]
        if task.past:
            word = word.upper()
        for tasks, entered in rounds:
            if task.id not in tasks:
                word += "-"
            elif task.id not in entered:
                word += "."
            else:
                word += "x" if entered[task.id] == task.incarnation else "g"
        for _, arrived in barriers:
            is_in = arrived.get(task.id)
            word += "-" if is_in is None else "x" if is_in else "."
        words.append(word)
    words.sort()
    purposes = "".join([purpose for purpose, _ in barriers])
    return f"{' '.join(words)} | {purposes} {min(gets, _WAITING_MAX)}"


def _purpose(barrier_id: str) -> str:
    if barrier_id == REGISTRATION_BARRIER:
        return "R"
    return "S" if barrier_id.startswith("Shutdown::") else "B"


def _outcome(effects: list[Effect]) -> str:
    """How many calls were answered (at most 2), and whether one of them with an error."""
    count, failed = 0, ""
    for effect in effects:
        if isinstance(effect, Reply):
            count += 1
            if isinstance(effect.answer, Status):
                failed = "!"
    return f"{min(count, 2)}{failed}"
