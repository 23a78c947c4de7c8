"""The operations that etcd's robustness tests save for each client.

A file is `operations.json` of one client; the history of a run is the files of all clients together.

Source: https://github.com/etcd-io/etcd, tests/robustness/report/client.go and model/{types,history}.go.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Final

from checker.errors import MalformedHistory
from checker.formats.json_values import Object, frozen_json, json_objects
from checker.formats.porcupine import interval_of
from checker.formats.source import Source
from checker.history.fields import shown
from checker.operations import UNKNOWN, Failed, Operation, Operations, from_intervals

_BODIES: Final = {
    "range": "Range",
    "txn": "Txn",
    "leaseGrant": "LeaseGrant",
    "leaseRevoke": "LeaseRevoke",
    "defragment": "Defragment",
    "compact": "Compact",
}
_PUT, _DELETE = "put-operation", "delete-operation"


def read_etcd(source: Source) -> Operations:
    """Reads objects with `ClientId`, `Input`, `Call`, `Output` and `Return`.

    A linearizable read of one key is `get` (result: the value, None if there is none), a transaction
    that only puts or deletes one key is `put` or `delete` (result: how many were deleted). All others
    keep etcd's names, and their requests and responses as they are.
    """
    report = _Report()
    report.add(source)
    return report.operations(source.path)


def read_etcd_report(folder: Path) -> Operations:
    """Reads the `client-N/operations.json` of a report.

    Raises:
      MalformedHistory: there are none, or one is malformed.
    """
    report = _Report()
    files = sorted(folder.glob("client-*/operations.json"))
    if not files:
        raise MalformedHistory(
            "a folder without client-*/operations.json; name the file of a history",
            path=str(folder),
        )
    for path in files:
        with open(path, "rb") as file:
            source = Source(file, str(path))
            try:
                report.add(source)
            except MalformedHistory as error:
                source.fail(error.problem, line=error.line, field=error.field)
    report.lines.clear()  # They are of several files.
    return report.operations(str(folder))


class _Report:
    """Operations of one client or of several; they are kept as intervals."""

    def __init__(self) -> None:
        self.lines: list[int] = []
        self._rows: list[tuple[int, Operation]] = []
        self._intervals: list[tuple[int, int | None]] = []

    def add(self, source: Source) -> None:
        for line, raw in json_objects(source):
            fields = {name.lower(): value for name, value in raw.items()}
            process, invoked_ns, ended_ns = interval_of(fields, line)
            request = _object(fields.get("input"), line, "Input")
            response = _object(fields.get("output"), line, "Output")
            operation = _operation(request, response, line)
            if ended_ns is None:
                operation = operation._replace(result=UNKNOWN)
            self._rows.append((process, operation))
            self._intervals.append((invoked_ns, ended_ns))
            self.lines.append(line)

    def operations(self, source: str) -> Operations:
        return from_intervals(self._rows, self._intervals, lines=self.lines or None, source=source)


def _operation(request: Object, response: Object, line: int) -> Operation:
    type_ = request.get("Type")
    if not isinstance(type_, str) or type_ not in _BODIES:
        raise MalformedHistory(
            f"must be one of {', '.join(_BODIES)}; found {shown(type_)}", line=line, field="Type"
        )
    name = _BODIES[type_]
    body = _object(request.get(name), line, name)
    outcome = _outcome(response)
    answer = response.get(name)
    simple = _simple(type_, body, line)
    if simple is None:
        function, key, argument = type_, None, frozen_json(body, line, name)
        result = frozen_json({name: answer, "Revision": response.get("Revision")}, line, name)
    else:
        function, key, argument = simple
        result = _simple_result(function, answer, line)
    return Operation(function, key, argument, result if outcome is None else outcome)


def _outcome(response: Object) -> Hashable:
    """`UNKNOWN` or `Failed` if there was no answer, else None."""
    if response.get("Error") or response.get("Err") is not None or response.get("Persisted"):
        return UNKNOWN  # etcd's tests cannot tell which errors are definite, so all are not.
    error = response.get("ClientError")
    return Failed(str(error)) if error else None


def _simple(type_: str, body: Object, line: int) -> tuple[str, Hashable, Hashable] | None:
    if type_ == "range":
        options = body
        if options.get("End") or options.get("Revision") or options.get("KeysOnly"):
            return None  # Several keys, the past, or no values.
        return "get", _key(options.get("Start"), line, "Start"), None
    if type_ != "txn" or body.get("Conditions") or body.get("OperationsOnFailure"):
        return None
    operations = body.get("OperationsOnSuccess")
    if not isinstance(operations, list) or len(operations) != 1:
        return None
    operation = _object(operations[0], line, "OperationsOnSuccess")
    if operation.get("Type") == _PUT:
        put = _object(operation.get("Put"), line, "Put")
        if put.get("LeaseID"):
            return None  # The lease's end deletes the key.
        return "put", _key(put.get("Key"), line, "Key"), _value(put.get("Value"), line)
    if operation.get("Type") == _DELETE:
        delete = _object(operation.get("Delete"), line, "Delete")
        return "delete", _key(delete.get("Key"), line, "Key"), None
    return None


def _simple_result(function: str, answer: object, line: int) -> Hashable:
    body = _object(answer, line, "Output")
    if function == "get":
        found = body.get("KVs")
        if not isinstance(found, list) or not found:
            return None
        return _value(_object(found[0], line, "KVs").get("Value"), line)
    if function == "delete":
        results = body.get("Results")
        if isinstance(results, list) and results:
            return frozen_json(_object(results[0], line, "Results").get("Deleted"), line, "Deleted")
    return None


def _value(raw: object, line: int) -> Hashable:
    """A text, or the hash that stands for a long one on both sides."""
    if isinstance(raw, dict):
        if raw.get("Hash"):
            return frozen_json({"Hash": raw["Hash"]}, line, "Value")
        return frozen_json(raw.get("Value", ""), line, "Value")
    return frozen_json(raw, line, "Value")


def _key(raw: object, line: int, field: str) -> str:
    if not isinstance(raw, str):
        raise MalformedHistory(f"must be a key, found {shown(raw)}", line=line, field=field)
    return raw


def _object(raw: object, line: int, field: str) -> Object:
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise MalformedHistory(f"must be an object, found {shown(raw)}", line=line, field=field)
    return raw
