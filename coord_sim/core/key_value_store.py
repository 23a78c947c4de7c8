"""The key-value store of the job: one flat map of normalised keys (design note, section 7).

Values outlive their writers. A key ends before its first NUL character (measured). It is
split at `/`, empty parts dropped, and joined again, so that `//a///b//` is `a/b` and `/` is the empty
key, which is valid; answers echo the key as sent.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort

from coord_sim.core.effects import Reply
from coord_sim.core.identifiers import CallId
from coord_sim.core.messages import (
    DeleteKeyValue,
    Done,
    GetKeyValue,
    GetKeyValueDir,
    IncrementKeyValue,
    InsertKeyValue,
    KeyValue,
    KeyValueDirectory,
    TryGetKeyValue,
)
from coord_sim.core.records import KeyRecord
from coord_sim.core.status import Code, Status

_INTEGER = re.compile(rb"[ \t\n\v\f\r]*([+-]?)0*([0-9]{1,10})[ \t\n\v\f\r]*")
_STORED_BITS = 32
_SUM_BITS = 64


def normalise(key: str) -> str:
    """The key as the store knows it."""
    return "/".join(part for part in key.partition("\0")[0].split("/") if part)


class KeyValueStore:
    """Values by key, and the calls that wait for one."""

    def __init__(self) -> None:
        self.bytes = 0
        """Size of all keys (in characters) and values."""
        self.changed: set[str] = set()
        """Keys whose record is not what it was."""
        self._values: dict[str, bytes] = {}
        # Ascending. Order by code points is order by UTF-8 bytes, which is the real service's.
        self._keys: list[str] = []
        self._waiting: dict[str, dict[CallId, str]] = {}
        self._key_of: dict[CallId, str] = {}

    def __len__(self) -> int:
        return len(self._values)

    def insert(self, call: CallId, request: InsertKeyValue) -> list[Reply]:
        """Stores a value and wakes who waits for it."""
        key = normalise(request.key)
        if key in self._values and not request.allow_overwrite:
            # The real service sends no payload here, unlike with all its other errors.
            message = f"key {key} already exists."
            status = Status(code=Code.ALREADY_EXISTS, message=message, service_error=None)
            return [Reply(call, status)]
        self._put(key, request.value)
        return [Reply(call, Done()), *self._wake(key, request.value)]

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

    def increment(self, call: CallId, request: IncrementKeyValue) -> list[Reply]:
        """Adds to a number that is stored as text.

        The text is parsed in 32 bits and the sum stored in 64, so that a counter which leaves 32 bits
        can never be incremented again.
        """
        key = normalise(request.key)
        stored = self._values.get(key, b"0")
        number = _parse(stored)
        if number is None:
            text = stored.decode("utf-8", "surrogateescape")  # Quoted byte for byte.
            message = f'Failed to parse value "{text}" as an integer.'
            return [Reply(call, Status(code=Code.FAILED_PRECONDITION, message=message))]
        value = str(_wrap(number + request.increment)).encode()
        self._put(key, value)
        return [
            Reply(call, KeyValue(key=request.key, value=value)),
            *self._wake(key, value),
        ]

    def read_directory(self, call: CallId, request: GetKeyValueDir) -> list[Reply]:
        """All values under a directory. The root has none: its prefix would be `/`."""
        under = self._under(normalise(request.directory))
        entries = tuple((key, self._values[key]) for key in under)
        return [Reply(call, KeyValueDirectory(entries=entries))]

    def delete(self, call: CallId, request: DeleteKeyValue) -> list[Reply]:
        """Removes a key and all keys under it. Who waits for one of them goes on waiting.

        The wire's `is_directory` makes no difference, and deleting the root removes only the empty key.
        """
        key = normalise(request.key)
        under = self._under(key)
        if under:
            first = bisect_left(self._keys, under[0])
            del self._keys[first : first + len(under)]
        if key in self._values:
            del self._keys[bisect_left(self._keys, key)]
            under.append(key)
        for each in under:
            self.bytes -= len(each) + len(self._values.pop(each))
        self.changed.update(under)
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

    def record(self, key: str) -> KeyRecord:
        """What must outlive the service."""
        return KeyRecord(key, self._values.get(key))

    def restore(self, record: KeyRecord) -> None:
        """Takes up a key where it was."""
        if record.value is not None:
            self._put(record.key, record.value)

    def _put(self, key: str, value: bytes) -> None:
        former = self._values.get(key)
        if former is None:
            insort(self._keys, key)
            self.bytes += len(key)
        else:
            self.bytes -= len(former)
        self.bytes += len(value)
        self._values[key] = value
        self.changed.add(key)

    def _wake(self, key: str, value: bytes) -> list[Reply]:
        waiting = self._waiting.pop(key, None)
        if waiting is None:
            return []
        for call in waiting:
            del self._key_of[call]
        return [Reply(call, KeyValue(key=sent, value=value)) for call, sent in waiting.items()]

    def _under(self, directory: str) -> list[str]:
        first = bisect_left(self._keys, f"{directory}/")
        # "0" is the character after "/".
        return self._keys[first : bisect_left(self._keys, f"{directory}0", first)]


def _parse(text: bytes) -> int | None:
    """The number that the real service sees in a stored value, or None."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    number = int(match[1] + match[2])
    limit = 1 << (_STORED_BITS - 1)
    return number if -limit <= number < limit else None


def _wrap(number: int) -> int:
    """A sum as a signed 64-bit machine has it."""
    half = 1 << (_SUM_BITS - 1)
    return (number + half) % (2 * half) - half
