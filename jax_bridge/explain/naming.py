"""Which process a log is of, by the name of its file."""

from __future__ import annotations

import re
from pathlib import Path

_NUMBERED = re.compile(
    r"(?<![A-Za-z])(?:process|proc|rank|task|worker|node|host|pod|pe|p|r)[-_.]?(\d+)(?:[-_.](\d+))?(?![\d])",
    re.IGNORECASE,
)
_LAST_NUMBER = re.compile(r"(\d+)\D*$")
_NUMBER_MAX = 10**5
"""Larger numbers are dates, process ids or numbers of jobs."""


def process_of(path: Path) -> tuple[int | None, int]:
    """The process and which start of it.

    Understands `process-3-0.log` (as `coordlab run` names them), `rank-3.err`, `worker_3.1.log`,
    `3.log`, `slurm-881234_3.out`, `host3/stderr`.
    """
    stem = path.name.split(".log")[0].split(".txt")[0].split(".err")[0].split(".out")[0]
    if is_service(path):
        return None, 0
    for text in (stem, path.parent.name):
        if found := list(_NUMBERED.finditer(text)):
            number, start = found[-1][1], found[-1][2]
            if int(number) <= _NUMBER_MAX:
                return int(number), int(start or 0)
    if (found_last := _LAST_NUMBER.search(stem)) and int(found_last[1]) <= _NUMBER_MAX:
        return int(found_last[1]), 0
    return None, 0


def is_service(path: Path) -> bool:
    """Whether it is the log of a service that is a process of its own."""
    return (
        re.match(r"(?:service|coordinator|coordlab)(?:[-_.]|$)", path.name, re.IGNORECASE)
        is not None
    )
