"""What a coordinator must not forget, in a file: keys, tasks, counters and its own incarnation.

SQLite in write-ahead mode: each batch of records is one transaction, on disk before the replies that
depend on it are sent. A killed process, and a killed machine, lose nothing that was acknowledged.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from coord_sim.core.identifiers import Incarnation, TaskId
from coord_sim.core.messages import TaskState
from coord_sim.core.records import BarrierRecord, JobRecord, KeyRecord, Record, TaskRecord
from coord_sim.core.service import ServiceConfig
from coord_sim.core.status import BarrierError, Code, ServiceError, Status

FORMAT = 1
_APPLICATION_ID = 0x434C4142  # "CLAB": SQLite's mark of whose file this is.
_TABLES = """
CREATE TABLE service (incarnation TEXT NOT NULL, tasks INTEGER NOT NULL, recoverable INTEGER NOT NULL,
                      semantics TEXT NOT NULL);
CREATE TABLE keys (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE records (kind TEXT NOT NULL, name TEXT NOT NULL, fields TEXT NOT NULL,
                      PRIMARY KEY (kind, name)) WITHOUT ROWID;
"""


class UnusableState(Exception):
    """A state file that cannot be taken up; the message says why and what to do."""


class StateFile:
    """The state of one service.

    Args:
      path: Created if it does not exist.
      config: Of the service; a file of a job of another kind is refused.

    Raises:
      UnusableState: no state file, one of another job, one in use, or one that cannot be written.
    """

    def __init__(self, path: str | Path, config: ServiceConfig) -> None:
        if not str(path):
            raise UnusableState("a state file needs a name")
        path = Path(path).absolute()  # SQLite has names that mean no file.
        if not path.parent.is_dir():
            raise UnusableState(f"{path}: there is no such folder")
        self._path = path
        self.is_new = not path.exists()
        try:
            self._database = sqlite3.connect(path, isolation_level=None)
            # No other process may write, or even read: two coordinators of one job would split it.
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.execute("BEGIN EXCLUSIVE")
            try:
                self.incarnation = self._open(config)
            except BaseException:
                self._database.execute("ROLLBACK")
                self._database.close()
                raise
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            if hasattr(self, "_database"):
                self._database.close()
            raise UnusableState(_problem(path, error)) from error

    def load(self) -> list[Record]:
        """The latest record of each thing.

        Raises:
          UnusableState: a record cannot be read.
        """
        try:
            records: list[Record] = [
                KeyRecord(key, value)
                for key, value in self._database.execute("SELECT key, value FROM keys")
            ]
            rows = self._database.execute("SELECT kind, fields FROM records").fetchall()
            records += [_RECORDS[kind](json.loads(fields)) for kind, fields in rows]
        except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
            raise UnusableState(_problem(self._path, error)) from error
        return records

    def write(self, records: Iterable[Record]) -> None:
        """Stores records, all or none.

        Raises:
          OSError: the disk does not take them.
        """
        try:
            self._database.execute("BEGIN")
            for record in records:
                self._put(record)
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise OSError(f"{self._path}: {error}") from error

    def close(self) -> None:
        """Releases the file."""
        self._database.close()

    def _open(self, config: ServiceConfig) -> Incarnation:
        (mark,) = self._database.execute("PRAGMA application_id").fetchone()
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        (tables,) = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables == 0 and mark == 0:
            return self._create(config)
        if mark != _APPLICATION_ID:
            raise UnusableState(f"{self._path} is not a state file of coordlab; name another file")
        if version != FORMAT:
            raise UnusableState(
                f"{self._path} has format {version}, this version reads {FORMAT}; start with a new file"
            )
        row = self._database.execute(
            "SELECT incarnation, tasks, recoverable, semantics FROM service"
        ).fetchone()
        if row is None:
            raise UnusableState(f"{self._path} says of no job; start with a new file")
        incarnation, *found = row
        wanted = [config.tasks, int(config.recoverable), config.semantics.name]
        for name, is_, was in zip(
            ("processes", "recoverable", "semantics"), wanted, found, strict=True
        ):
            if is_ != was:
                raise UnusableState(
                    f"{self._path} is of a job with {name} {was}, not {is_}: "
                    "use the same options, or a new file for a new job"
                )
        return Incarnation(int(incarnation))

    def _create(self, config: ServiceConfig) -> Incarnation:
        incarnation = int.from_bytes(os.urandom(8), "little")
        for statement in _TABLES.split(";"):
            self._database.execute(statement)
        self._database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        self._database.execute(f"PRAGMA user_version = {FORMAT}")
        self._database.execute(
            "INSERT INTO service VALUES (?, ?, ?, ?)",
            (str(incarnation), config.tasks, int(config.recoverable), config.semantics.name),
        )
        return Incarnation(incarnation)

    def _put(self, record: Record) -> None:
        match record:
            case KeyRecord(key, None):
                self._database.execute("DELETE FROM keys WHERE key = ?", (key,))
            case KeyRecord(key, value):
                self._database.execute("INSERT OR REPLACE INTO keys VALUES (?, ?)", (key, value))
            case TaskRecord():
                self._put_fields("task", str(record.task), _task_fields(record))
            case BarrierRecord():
                self._put_fields("barrier", record.key, _barrier_fields(record))
            case JobRecord():
                self._put_fields("job", "", _job_fields(record))

    def _put_fields(self, kind: str, name: str, fields: dict[str, Any]) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (kind, name, json.dumps(fields))
        )


def _problem(path: str | Path, error: Exception) -> str:
    text = str(error)
    if "locked" in text:
        return f"{path} is in use by another coordinator; stop that one first"
    if "not a database" in text:
        return f"{path} is not a state file of coordlab; name another file"
    return f"{path}: {text}"


def _task_fields(record: TaskRecord) -> dict[str, Any]:
    return {
        "task": record.task,
        "state": record.state.name,
        "incarnation": record.incarnation,
        "error": _status_fields(record.error),
        "has_left": record.has_left,
        "past": list(record.past),
    }


def _task(fields: dict[str, Any]) -> TaskRecord:
    return TaskRecord(
        task=TaskId(fields["task"]),
        state=TaskState[fields["state"]],
        incarnation=Incarnation(fields["incarnation"]),
        error=_status(fields["error"]),
        has_left=fields["has_left"],
        past=tuple(map(Incarnation, fields["past"])),
    )


def _barrier_fields(record: BarrierRecord) -> dict[str, Any]:
    return {
        "key": record.key,
        "id": record.id,
        "counter": record.counter,
        "is_over": record.is_over,
        "result": _status_fields(record.result),
        "initiator": record.initiator,
        "timeout_ns": record.timeout_ns,
        "participants": list(record.participants),
        "passed_by": [list(pair) for pair in record.passed_by],
        "passed_counter": record.passed_counter,
    }


def _barrier(fields: dict[str, Any]) -> BarrierRecord:
    initiator = fields["initiator"]
    return BarrierRecord(
        key=fields["key"],
        id=fields["id"],
        counter=fields["counter"],
        is_over=fields["is_over"],
        result=_status(fields["result"]),
        initiator=None if initiator is None else TaskId(initiator),
        timeout_ns=fields["timeout_ns"],
        participants=tuple(map(TaskId, fields["participants"])),
        passed_by=tuple((TaskId(task), Incarnation(inc)) for task, inc in fields["passed_by"]),
        passed_counter=fields["passed_counter"],
    )


def _job_fields(record: JobRecord) -> dict[str, Any]:
    return {
        "version": record.version,
        "anybody_polled": record.anybody_polled,
        "propagated": _status_fields(record.propagated),
        "rounds": record.rounds,
    }


def _job(fields: dict[str, Any]) -> JobRecord:
    return JobRecord(
        version=fields["version"],
        anybody_polled=fields["anybody_polled"],
        propagated=_status(fields["propagated"]),
        rounds=fields["rounds"],
    )


def _status_fields(status: Status | None) -> dict[str, Any] | None:
    if status is None:
        return None
    service, barrier = status.service_error, status.barrier_error
    return {
        "code": status.code.name,
        "message": status.message,
        "service_error": None if service is None else [service.reported, service.source_task],
        "barrier_error": None if barrier is None else [barrier.barrier_id, barrier.counter],
    }


def _status(fields: dict[str, Any] | None) -> Status | None:
    if fields is None:
        return None
    service, barrier = fields["service_error"], fields["barrier_error"]
    return Status(
        code=Code[fields["code"]],
        message=fields["message"],
        service_error=None if service is None else ServiceError(*service),
        barrier_error=None if barrier is None else BarrierError(*barrier),
    )


_RECORDS: dict[str, Callable[[dict[str, Any]], Record]] = {
    "task": _task,
    "barrier": _barrier,
    "job": _job,
}
