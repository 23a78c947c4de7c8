"""The state of a campaign on disk: whole at every moment, whatever ends the process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from coord_sim.campaign.statistics import Statistics
from coord_sim.errors import CoordSimError

FORMAT: Final = "coordlab campaign"
VERSION: Final = 1


class CheckpointError(CoordSimError):
    """A file that holds no campaign, or another one."""


def save(path: Path, identity: str, statistics: Statistics) -> None:
    """Writes what is known, in place of what the file held before.

    Args:
      path: The file.
      identity: What determines the campaign, but for how long it is.
      statistics: What is known.

    Raises:
      OSError: it cannot be written; the file is as it was then.
    """
    document = {
        "format": FORMAT,
        "version": VERSION,
        "identity": identity,
        "statistics": statistics.to_json(),
    }
    beside = path.with_name(f"{path.name}.new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(json.dumps(document))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def load(path: Path, identity: str) -> Statistics:
    """What is known of a campaign.

    Raises:
      CheckpointError: it is another campaign, or none.
      OSError: the file cannot be read.
    """
    try:
        document: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path}: is no campaign") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CheckpointError(f"{path}: is no campaign")
    if document.get("version") != VERSION:
        raise CheckpointError(f"{path}: was written by another version of coordlab")
    if document.get("identity") != identity:
        raise CheckpointError(
            f"{path}: is another campaign, {document.get('identity')}; this one is {identity}"
        )
    try:
        return Statistics.from_json(document["statistics"])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise CheckpointError(f"{path}: is damaged") from None
