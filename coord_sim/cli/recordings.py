"""Files of commands that may write several recordings."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from checker.printable import printable


def recording_path(path: Path, number: int) -> Path:
    """The file of the `number`-th recording, from 1 on: `run.jsonl`, `run-2.jsonl`, ..."""
    return path if number == 1 else path.with_stem(f"{path.stem}-{number}")


def earlier_recordings(path: Path, written: int) -> list[Path]:
    """The files that follow those of a run, and so must be of an earlier one.

    Args:
      path: Of the first recording.
      written: How many recordings the run has written.
    """
    following = (recording_path(path, number) for number in itertools.count(written + 1))
    return list(itertools.takewhile(Path.exists, following))


def warn_of_earlier_recordings(path: Path, written: int) -> None:
    """Names those files when a run has ended: a reader would take them for its own."""
    for earlier in earlier_recordings(path, written):
        print(
            f"coordlab: warning: {printable(str(earlier))} is of an earlier run; "
            "this one is not in it",
            file=sys.stderr,
        )
