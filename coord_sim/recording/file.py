"""The file of a recording. What befalls it ends the recording, never the one who records."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import tempfile
from pathlib import Path

_log = logging.getLogger(__name__)

_COPY_BYTES = 1 << 20


class RecordingFile:
    """A file that is written anew, whole lines at a time, each by one write of the system.

    What was written survives the death of this process. A disk that is full or gone, or a pipe that
    nobody reads, ends the recording with one warning; what was written before is kept. Nobody else who
    records can have the file meanwhile.

    Args:
      path: Of the file; a device or a pipe with a reader will do.

    Raises:
      OSError: it cannot be opened, or another process is recording to it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        # Without waiting: a pipe that is full, or that nobody has opened, must not stop who records.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o644)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                _lock(descriptor, self.path)
                _see_that_it_is_still(descriptor, self.path)
                os.ftruncate(descriptor, 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor: int | None = descriptor
        self._head_bytes = 0

    @property
    def is_open(self) -> bool:
        """Whether it still takes lines."""
        return self._descriptor is not None

    @property
    def is_regular(self) -> bool:
        """Whether its beginning can be written again: not that of a pipe or a device."""
        return self._descriptor is not None and stat.S_ISREG(os.fstat(self._descriptor).st_mode)

    def write(self, lines: bytes) -> None:
        """Appends whole lines; what is written first is the head."""
        if self._descriptor is None:
            return
        self._head_bytes = self._head_bytes or len(lines)
        try:
            written = os.write(self._descriptor, lines)
            problem = "" if written == len(lines) else "the disk is full"
        except OSError as error:
            problem = str(error)
        if problem:
            self._give_up(problem)

    def replace_head(self, lines: bytes) -> None:
        """Puts another head in place of the first: a reader finds the old file or the new one."""
        if self._descriptor is None:
            return
        try:
            self._replace_head(lines)
        except OSError as error:
            self._give_up(str(error))

    def close(self) -> None:
        """Ends the recording."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _replace_head(self, head: bytes) -> None:
        descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with open(self.path, "rb") as old, os.fdopen(os.dup(descriptor), "wb") as new:
                old.seek(self._head_bytes)
                new.write(head)
                while chunk := old.read(_COPY_BYTES):
                    new.write(chunk)
            _lock(descriptor, self.path)
            os.fchmod(descriptor, 0o644)
            Path(name).replace(self.path)
        except BaseException:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
        self.close()
        self._descriptor = descriptor
        self._head_bytes = len(head)

    def _give_up(self, problem: str) -> None:
        _log.warning(
            "recording to %s stopped: %s; what was written before is kept", self.path, problem
        )
        self.close()


def _lock(descriptor: int, path: Path) -> None:
    """Takes a file for as long as it is open; where files have no locks, it is taken as it is."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _taken(path) from None
    except OSError as error:
        _log.debug("%s cannot be locked: %s", path, error)


def _see_that_it_is_still(descriptor: int, path: Path) -> None:
    """Who records there may have replaced the head, and the file with it, before the lock was had."""
    if not os.path.samestat(os.fstat(descriptor), path.stat()):
        raise _taken(path)


def _taken(path: Path) -> OSError:
    return OSError(errno.EBUSY, "another process is recording to it", str(path))
