"""Where the sample histories are, and how tests look at what was read."""

from __future__ import annotations

from pathlib import Path

from checker.operations import Operation, Operations

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "tests" / "data" / "formats"
PEERS = SAMPLES / "peers"
WRITTEN = SAMPLES / "written"
FILES = sorted(
    path for folder in (PEERS, WRITTEN) for path in folder.rglob("*.*") if path.is_file()
)


def calls(operations: Operations) -> list[tuple[int, Operation]]:
    """Process and operation of each, in order."""
    return [(operations.process[index], operations.at(index)) for index in range(len(operations))]


def texts(operations: Operations) -> list[str]:
    """Each operation in words, with its process."""
    return [f"{process} {operation}" for process, operation in calls(operations)]
