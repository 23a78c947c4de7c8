"""What a call came to, in a form in which two services can be compared.

An outcome is compared by its text: code, payloads, answer and message, with random numbers replaced
by the names that a scenario gave them (`<a>`, `<SI>`) and lists of arbitrary order sorted.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from coord_sim.core.status import Code
from coord_sim.wire._generated import coordination_service_pb2 as pb

STATUS_PAYLOADS_KEY = "grpc-status-details-bin"
PAYLOAD_PREFIX = "type.googleapis.com/tensorflow."
AT_ONCE_S = 1.0
"""What comes sooner was not a time-out: those are at least a second long (section 4 of the note)."""

MESSAGE_SHOWN = 1000
"""Characters of a message that are kept; of a longer one both ends and a digest."""


class Timing(enum.Enum):
    """When a call was answered, seen from the step of the scenario before."""

    AT_ONCE = "at once"
    TIMED_OUT = "after the time-out"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class ServiceErrorPayload:
    """`CE`: an error of the service itself. Source 0 and no source look the same on the wire."""

    reported: bool = False
    source_task: int = 0

    def __str__(self) -> str:
        inner = ["reported"] if self.reported else []
        inner += [f"source {self.source_task}"] if self.source_task else []
        return f"CE{{{', '.join(inner)}}}" if inner else "CE"


@dataclass(frozen=True, slots=True)
class BarrierPayload:
    """`BE`: which barrier failed, and the service's counter."""

    barrier_id: str
    counter: int

    def __str__(self) -> str:
        return f"BE{{{self.barrier_id}, {self.counter}}}"


@dataclass(frozen=True, slots=True)
class TaskSeen:
    """An entry of WatchTasks."""

    incarnation: int
    state: str
    error: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a call.

    Attributes:
      code: OK, or why it failed.
      message: Of a failure.
      service_error: Payload `CE` of a failure.
      barrier_error: Payload `BE` of a failure.
      wrong_service: Payload `SE` of a failure: the service's incarnation.
      answer: Fields of an answer by name; ids of tasks map to what is said about them.
      strange_payloads: Keys of payloads that no client knows.
    """

    code: Code
    message: str = ""
    service_error: ServiceErrorPayload | None = None
    barrier_error: BarrierPayload | None = None
    wrong_service: int | None = None
    answer: Mapping[str, Any] = field(default_factory=dict)
    strange_payloads: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the call was answered."""
        return self.code is Code.OK

    def payloads(self) -> str:
        """The payloads in one line, e.g. `CE{source 1} BE{b, 0}`."""
        parts = [str(part) for part in (self.service_error, self.barrier_error) if part is not None]
        parts += [] if self.wrong_service is None else [f"SE{{{self.wrong_service}}}"]
        return " ".join([*parts, *self.strange_payloads])

    def text(self, names: Mapping[int, str]) -> str:
        """The comparable form.

        Args:
          names: Of the random numbers that may occur.
        """
        return renamed(self._text_with_numbers(), names)

    def _text_with_numbers(self) -> str:
        answer = ", ".join(f"{key}={_value(self.answer[key])}" for key in sorted(self.answer))
        parts = [self.code.name, self.payloads(), answer]
        parts += [f'"{_message(self.message)}"'] if self.message else []
        return " ".join(part for part in parts if part)


def answered(message: Any) -> Outcome:
    """The outcome of a call that returned."""
    answer: dict[str, Any]
    if isinstance(message, pb.WatchTasksResponse):
        answer = {
            "version": message.version_number,
            "tasks": {info.task_id: _task_seen(info) for info in message.task_state},
        }
    elif isinstance(message, pb.GetAliveTasksResponse):
        answer = {"alive": dict(zip(message.alive_task_ids, message.incarnations, strict=True))}
    elif isinstance(message, pb.GetKeyValueDirResponse):
        answer = {
            "directory_key": message.directory_key,
            "entries": [(entry.key, entry.value) for entry in message.kv],
        }
    elif hasattr(message, "kv"):
        answer = {"key": message.kv.key, "value": message.kv.value}
    else:
        answer = {each.name: getattr(message, each.name) for each in message.DESCRIPTOR.fields}
    return Outcome(code=Code.OK, answer=answer)


def failed(error: grpc.aio.AioRpcError) -> Outcome:
    """The outcome of a call that failed."""
    payloads: dict[str, bytes] = {}
    for key, value in error.trailing_metadata() or ():
        if key == STATUS_PAYLOADS_KEY:
            assert isinstance(value, bytes)
            payloads = dict(pb.StatusPayloads.FromString(value).payloads)
    service = payloads.pop(f"{PAYLOAD_PREFIX}CoordinationServiceError", None)
    barrier = payloads.pop(f"{PAYLOAD_PREFIX}BarrierError", None)
    wrong = payloads.pop(f"{PAYLOAD_PREFIX}ServiceMismatchError", None)
    return Outcome(
        code=Code(error.code().value[0]),
        message=error.details() or "",
        service_error=None if service is None else _service_error(service),
        barrier_error=None if barrier is None else _barrier_error(barrier),
        wrong_service=None
        if wrong is None
        else pb.ServiceMismatchError.FromString(wrong).service_incarnation,
        strange_payloads=tuple(sorted(payloads)),
    )


def renamed(text: str, names: Mapping[int, str]) -> str:
    """Replaces the random numbers in a text by `<name>`."""

    def name(found: re.Match[str]) -> str:
        known = names.get(int(found[0]))
        return found[0] if known is None else f"<{known}>"

    return re.sub(r"\d{12,}", name, text)


_QUOTED_PAYLOAD = re.compile(r"\[[\w./]+='[^']*'\]")
_QUOTED_PAYLOADS = re.compile(r"(?: \[[\w./]+='[^']*'\])+")
# A quoted payload shows the length of an id, which depends on the digits of a random number.
_LENGTH_OF_SHUTDOWN = re.compile(r"'\\n\\x[0-9a-f]{2}Shutdown")
_LINES_OF_TASKS = re.compile(r"(?<=\n)\d+(?:\n\d+)+(?=\n|$)")


def sorted_lists(message: str) -> str:
    """Sorts what comes in arbitrary order: payloads of a quoted status, and lines that name tasks."""
    message = _QUOTED_PAYLOADS.sub(
        lambda found: " " + " ".join(sorted(_QUOTED_PAYLOAD.findall(found[0]))), message
    )
    return _LINES_OF_TASKS.sub(
        lambda found: "\n".join(sorted(found[0].split("\n"), key=int)), message
    )


def _service_error(value: bytes) -> ServiceErrorPayload:
    message = pb.CoordinationServiceError.FromString(value)
    return ServiceErrorPayload(message.is_reported_error, message.source_task_id)


def _barrier_error(value: bytes) -> BarrierPayload:
    message = pb.BarrierError.FromString(value)
    return BarrierPayload(message.barrier_id, message.counter)


def _task_seen(info: pb.TaskInfo) -> TaskSeen:
    error = None
    if info.error_code or info.error_message or info.HasField("error_payload"):
        error = Outcome(
            code=Code(info.error_code),
            message=info.error_message,
            service_error=ServiceErrorPayload(
                info.error_payload.is_reported_error, info.error_payload.source_task_id
            )
            if info.HasField("error_payload")
            else None,
        )
    return TaskSeen(info.incarnation, pb.TaskState.Name(info.state), error)


def _message(message: str) -> str:
    message = _LENGTH_OF_SHUTDOWN.sub(r"'\\n(length)Shutdown", sorted_lists(message))
    message = message.replace("\n", r"\n")
    if len(message) <= MESSAGE_SHOWN:
        return message
    digest = hashlib.sha256(message.encode()).hexdigest()[:8]
    return f"{message[:60]} ({len(message)} characters, SHA-256 {digest}) {message[-60:]}"


def _value(value: Any) -> str:
    if isinstance(value, TaskSeen):
        # Names come later, for the whole text.
        error = "" if value.error is None else f" {value.error._text_with_numbers()}"
        return f"{value.state} {value.incarnation}{error}"
    if isinstance(value, bytes | str) and len(value) > 64:
        raw = value if isinstance(value, bytes) else value.encode()
        return f"({len(raw)} bytes, SHA-256 {hashlib.sha256(raw).hexdigest()[:8]})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_value(value[key])}' for key in sorted(value))}}}"
    if isinstance(value, list):
        return f"[{', '.join(_value(each) for each in value)}]"
    if isinstance(value, tuple):
        return f"({', '.join(_value(each) for each in value)})"
    return str(value) if isinstance(value, int) else repr(value)
