"""What a process says to the owner of the services, and what it hears: lines of JSON.

A connection is one service that a process started: the first line asks for it, the answer says whether
it is served, a further line ends it, and is answered when it has ended. A connection that breaks without
that line means that the process died.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

SHUTDOWN = b"shutdown\n"


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A service as the program asked for it.

    Attributes:
      address: To bind, as gRPC reads addresses.
      processes: Of the job.
      options: jaxlib's other arguments by their names, in its units (seconds); without those that are
        None, which stands for jaxlib's default.
    """

    address: str
    processes: int
    options: dict[str, int | bool | str] = field(default_factory=dict)

    def line(self) -> bytes:
        """As it is sent."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> ServiceRequest:
        """Reads what `line()` wrote."""
        return cls(**json.loads(line))


def answer(error: str = "", *, is_new: bool = True) -> bytes:
    """The line that says whether the service is served.

    Args:
      error: What jaxlib's exception would say.
      is_new: Whether it was started for this request; else it was there.
    """
    return json.dumps({"error": error, "is_new": is_new}).encode() + b"\n"


def error_in(line: bytes) -> str:
    """The error in an answer, or "" if there is none."""
    return str(json.loads(line)["error"])


def is_of_a_new_service(line: bytes) -> bool:
    """Whether an answer without an error says that the service was started for it."""
    return bool(json.loads(line)["is_new"])
