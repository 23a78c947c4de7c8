"""Files of commands that may write several recordings."""

from __future__ import annotations

from pathlib import Path


def recording_path(path: Path, number: int) -> Path:
    """The file of the `number`-th recording, from 1 on: `run.jsonl`, `run-2.jsonl`, ..."""
    return path if number == 1 else path.with_stem(f"{path.stem}-{number}")
