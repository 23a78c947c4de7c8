"""The key-value store of the job: one flat map of normalised keys (design note, section 7).

Values outlive their writers. Keys are split at `/`, empty parts dropped, and joined again, so that
`//a///b//` is `a/b` and `/` is the empty key, which is valid; answers echo the key as sent.
"""

from __future__ import annotations

from coord_sim.core.effects import Reply
from coord_sim.core.identifiers import CallId
from coord_sim.core.messages import (
    DeleteKeyValue,
    Done,
    GetKeyValue,
    InsertKeyValue,
    KeyValue,
    TryGetKeyValue,
)
from coord_sim.core.status import Code, Status


def normalise(key: str) -> str:
    """The key as the store knows it."""
    return "/".join(part for part in key.split("/") if part)


class KeyValueStore:
    """Values by key, and the calls that wait for one."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._waiting: dict[str, dict[CallId, str]] = {}
        self._key_of: dict[CallId, str] = {}

    def insert(self, call: CallId, request: InsertKeyValue) -> list[Reply]:
        """Stores a value and wakes who waits for it."""
        key = normalise(request.key)
        if key in self._values and not request.allow_overwrite:
            # The real service sends no payload here, unlike with all its other errors.
            message = f"key {key} already exists."
            status = Status(code=Code.ALREADY_EXISTS, message=message, service_error=None)
            return [Reply(call, status)]
        self._values[key] = request.value
        replies = [Reply(call, Done())]
        for waiting, as_sent in self._waiting.pop(key, {}).items():
            del self._key_of[waiting]
            replies.append(Reply(waiting, KeyValue(key=as_sent, value=request.value)))
        return replies

    def get(self, call: CallId, request: GetKeyValue) -> list[Reply]:
        """Answers with the value, now or when it comes."""
        key = normalise(request.key)
        value = self._values.get(key)
        if value is not None:
            return [Reply(call, KeyValue(key=request.key, value=value))]
        self._waiting.setdefault(key, {})[call] = request.key
        self._key_of[call] = key
        return []

    def try_get(self, call: CallId, request: TryGetKeyValue) -> list[Reply]:
        """Answers with the value or NOT_FOUND."""
        value = self._values.get(normalise(request.key))
        if value is None:
            message = f"Config key {request.key} not found."
            return [Reply(call, Status(code=Code.NOT_FOUND, message=message))]
        return [Reply(call, KeyValue(key=request.key, value=value))]

    def delete(self, call: CallId, request: DeleteKeyValue) -> list[Reply]:
        """Removes a key and all keys under it. Who waits for one of them goes on waiting.

        The wire's `is_directory` makes no difference, and deleting the root removes only the empty key.
        """
        key = normalise(request.key)
        self._values.pop(key, None)
        if key:
            prefix = f"{key}/"
            for other in [other for other in self._values if other.startswith(prefix)]:
                del self._values[other]
        return [Reply(call, Done())]

    def hang_up(self, call: CallId) -> None:
        """Forgets a waiting call whose client has gone."""
        key = self._key_of.pop(call, None)
        if key is not None:
            waiting = self._waiting[key]
            del waiting[call]
            if not waiting:
                del self._waiting[key]

    def waiting_calls(self) -> list[CallId]:
        """The calls that wait for a value, in order of arrival."""
        return list(self._key_of)
