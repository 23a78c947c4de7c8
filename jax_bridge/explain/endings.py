"""How a process ended, as the cause of a crash in a history says it.

The words are those of who saw the end. `coordlab run`: "killed: SIGKILL at 5 s", "signal SIGABRT: "
and jaxlib's words, "the program raised " and the exception, "exit code 1". `coordlab record`: "signal
SIGKILL", "exit code 1". The simulator: "killed", "client ended the process: " and why, "the program
raised ...".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from jax_bridge.explain.causes import quoted
from jax_bridge.explain.messages import Role, find_known

_KILLED = re.compile(r"killed(?:: (?P<words>.*))?$", re.DOTALL)
_SIGNAL = re.compile(r"(?:signal )?(?P<name>SIG[A-Z0-9]+)\b(?:: (?P<words>.*))?", re.DOTALL)
_BY_CLIENT = re.compile(r"client ended the process(?:: (?P<words>.*))?", re.DOTALL)
_RAISED = re.compile(r"the program raised (?P<words>.*)", re.DOTALL)
_EXIT_CODE = re.compile(r"exit code \d+")


class Way(Enum):
    """In which way a process ended."""

    KILLED = "killed"
    """By a signal that it did not send itself."""
    TOLD_TO_END = "told to end"
    """By SIGTERM."""
    INTERRUPTED = "interrupted"
    """By Ctrl-C or SIGINT, which Python makes an exception of."""
    ENDED_ITSELF = "ended itself"
    """jaxlib's client ended it."""
    RAISED = "raised"
    """By an exception whose text is known."""
    FAILED = "failed"
    """With an exit code."""
    UNTOLD = "untold"


_BY_SIGNAL = {"SIGTERM": Way.TOLD_TO_END, "SIGINT": Way.INTERRUPTED}


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended.

    Attributes:
      way: Of what kind.
      words: The rest: the signal and when it was sent, jaxlib's status, the exception; may be empty.
    """

    way: Way
    words: str

    @classmethod
    def of(cls, cause: str) -> Ending:
        """What the cause of a crash says; one that is not known is quoted as it is."""
        if found := _RAISED.match(cause):
            interrupted = found["words"].startswith("KeyboardInterrupt")
            return cls(Way.INTERRUPTED if interrupted else Way.RAISED, found["words"])
        if found := _BY_CLIENT.match(cause):
            return cls(Way.ENDED_ITSELF, found["words"] or "")
        if found := _KILLED.match(cause):
            return cls(Way.KILLED, found["words"] or "")
        if _EXIT_CODE.match(cause):
            return cls(Way.FAILED, cause)
        if found := _SIGNAL.match(cause):
            if found["name"] == "SIGABRT":
                return cls(Way.ENDED_ITSELF, found["words"] or "")
            return cls(_BY_SIGNAL.get(found["name"], Way.KILLED), cause)
        return cls(Way.UNTOLD, cause or "cause unknown")

    @property
    def is_echo(self) -> bool:
        """Whether it ended because of something else, as far as this tells.

        A client ends its process for what others did; an exception that is nothing but a known message
        of that kind (a collective that lost a member, a barrier that others did not reach) is no more.
        """
        if self.way is Way.RAISED:
            roles = {found.message.role for found in find_known(self.words)}
            return bool(roles) and Role.ORIGIN not in roles
        return self.way is Way.ENDED_ITSELF

    def in_words(self) -> str:
        """What goes between `process 1` and a time."""
        if self.way is Way.RAISED:
            return f"raised {quoted(self.words)}"
        verb = {
            Way.TOLD_TO_END: "was told to end",
            Way.INTERRUPTED: "was interrupted",
            Way.FAILED: "ended with an error",
            Way.ENDED_ITSELF: "ended itself",
        }.get(self.way, "was killed")
        return f"{verb} ({quoted(self.words)})" if self.words else verb
