"""Whether a recorded answer is the one that the model gives.

Codes are compared exactly, and texts word for word, but for what the real service itself leaves open:
which ids it names of several, and in which order (they come out of a hash table).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from checker.history import LIVE_PROCESSES, Ok, Response
from coord_sim.core.messages import (
    AliveTasks,
    Answer,
    BarrierPassed,
    Done,
    HeartbeatAccepted,
    Registered,
)
from coord_sim.core.status import Status
from coord_sim.recording import AnswerTexts

_NOTHING_TO_TELL: Final = frozenset({Done, HeartbeatAccepted, Registered})
_SHOWN_MAX: Final = 400

_LISTS: Final = (
    # At most three of the dead, and at most two of those that a barrier misses, are named.
    (re.compile(r"(stopped sending heartbeats\):\n)((?:-?\d+\n)+)"), 3),
    (re.compile(r"(Some timed out task names:\n)((?:-?\d+\n)+)"), 2),
)
_IN_ERROR: Final = re.compile(
    r"^Task \(-?\d+\)( is already in error before the barrier was called\..*)"
)
_OF_ONE_TASK: Final = re.compile(r" Task error: .*", re.DOTALL)
_SERVICE: Final = re.compile(r"currently \d+|Shutdown::\d+")


def canonical(message: str, *, service_is_known: bool = True) -> str:
    """A message without what the real service leaves open.

    Lists of ids that are shorter than they may be are complete, and are sorted; of full ones, which may
    have left out others, only the number of ids is kept.
    """
    for pattern, most in _LISTS:
        message = pattern.sub(lambda found, most=most: _listed(found, most), message)  # type: ignore[misc]
    in_error = _IN_ERROR.match(message)
    if in_error is not None:
        # Which of several tasks in error is named first is the order of a hash table, too.
        message = "Task (?)" + _OF_ONE_TASK.sub("", in_error[1])
    if not service_is_known:
        message = _SERVICE.sub("(the service)", message)
    return message


def _listed(found: re.Match[str], most: int) -> str:
    ids = sorted(int(id_) for id_ in found[2].split())
    return f"{found[1]}{ids if len(ids) < most else f'{len(ids)} ids'}\n"


class Comparison:
    """Compares answers.

    Args:
      words: Whether the recorder wrote the service's own messages.
      counters: Whether it wrote the counters of barriers.
      service_is_known: Whether the service's incarnation is known, which some messages quote.
    """

    def __init__(self, *, words: bool, counters: bool, service_is_known: bool) -> None:
        self._words = words
        self._counters = counters
        self._service_is_known = service_is_known
        self._texts = AnswerTexts()
        self._same: tuple[object, object] = (None, None)

    def agrees(self, name: str, recorded: Response, answer: Answer) -> bool:
        """Whether this is the recorded end of a call of an operation."""
        if type(answer) in _NOTHING_TO_TELL:
            return isinstance(recorded, Ok) and recorded.result is None
        if isinstance(answer, Status):
            if isinstance(recorded, Ok) or recorded.code != answer.code.name:
                return False
            return not self._words or self._same_words(recorded.message, answer.message)
        if not isinstance(recorded, Ok):
            return False
        result = recorded.result
        if isinstance(answer, AliveTasks):
            return self._same_live_set(result, answer)
        expected = self._texts.result_of(name, answer)
        if result == expected:
            return True
        if isinstance(answer, BarrierPassed) and result is None and not self._counters:
            return True
        return _plain(result) == _plain(expected)

    def _same_live_set(self, result: object, answer: AliveTasks) -> bool:
        if self._same[0] is result and self._same[1] is answer:
            return True  # All callers of a round share both.
        if not isinstance(result, Mapping) or len(result) != len(answer.alive):
            return False
        for task, incarnation in answer.alive:
            told = result.get(task, -1)
            if told is not None and told != incarnation:
                return False  # None: the recorder did not see the incarnation.
        self._same = (result, answer)
        return True

    def _same_words(self, recorded: str, message: str) -> bool:
        message = message.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        if recorded == message:
            return True
        return canonical(recorded, service_is_known=self._service_is_known) == canonical(
            message, service_is_known=self._service_is_known
        )


def _plain(value: object) -> object:
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return value


def answer_in_words(name: str, answer: Answer) -> str:
    """An answer of the model."""
    if isinstance(answer, Status):
        return _cut(f"{answer.code.name}: {answer.message}")
    if isinstance(answer, AliveTasks):
        return live_in_words(dict(answer.alive))
    return _result_in_words(AnswerTexts().result_of(name, answer))


def response_in_words(name: str, response: Response) -> str:
    """A recorded answer."""
    if not isinstance(response, Ok):
        return _cut(f"{response.code}: {response.message}")
    if name == LIVE_PROCESSES and isinstance(response.result, Mapping):
        return live_in_words(response.result)
    return _result_in_words(response.result)


def live_in_words(live: Mapping[int, int | None]) -> str:
    """A live set."""
    if not live:
        return "nobody is alive"
    members = (
        f"{process}" if incarnation is None else f"{process} (incarnation {incarnation})"
        for process, incarnation in sorted(live.items())
    )
    return _cut("alive: " + ", ".join(members))


def _result_in_words(result: object) -> str:
    return "OK" if result is None else _cut(f"OK, {json.dumps(_plain(result), ensure_ascii=False)}")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}… ({len(text)} characters)"
