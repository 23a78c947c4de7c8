"""Which process a log is of, by the name of its file or by a label in front of its lines."""

from __future__ import annotations

import re
from pathlib import Path

_NUMBERED = re.compile(
    r"(?<![A-Za-z])(?:process|proc|rank|default|task|worker|node|host|pod|pe|p|r)[-_.]?(\d+)(?:[-_.](\d+))?(?![\d])",
    re.IGNORECASE,
)
_NUMBERED_POD = re.compile(r"(?:^|-)(\d+)(?:-[a-z0-9]{5})?$")
"""A pod of a set (`train-2`) or of an indexed job (`train-2-x7k2p`); or a number alone."""
_STREAM = re.compile(r"(?:^|[-_.])(?:std)?(?:err|out)(?=\.|$)")
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
        if (found := numbered(text)) is not None:
            return found
    if (found_last := _LAST_NUMBER.search(stem)) and int(found_last[1]) <= _NUMBER_MAX:
        return int(found_last[1]), 0
    return None, 0


def numbered(text: str) -> tuple[int, int] | None:
    """The process that a text names in words (`worker-3`), and which start of it; None if none."""
    found = list(_NUMBERED.finditer(text))
    if not found or int(found[-1][1]) > _NUMBER_MAX:
        return None
    return int(found[-1][1]), int(found[-1][2] or 0)


def process_in_label(label: str) -> int | None:
    """The process of a label; of several, the last that names one, as the others are around it.

    Understands `3`, `rank3`, `worker-3`, `pod/train-3/main`, `pod/train-3-x7k2p/main`.
    """
    for one in reversed(label.split()):
        name = one.split("/")[1] if one.startswith("pod/") else one
        if (found := numbered(name)) is not None:
            return found[0]
        if (pod := _NUMBERED_POD.search(name)) and int(pod[1]) <= _NUMBER_MAX:
            return int(pod[1])
    return None


def without_stream(name: str) -> str:
    """The name of a file without what tells standard error from standard output."""
    return _STREAM.sub("", name) or "std"


def is_service(path: Path) -> bool:
    """Whether it is the log of a service that is a process of its own."""
    return (
        re.match(r"(?:service|coordinator|coordlab)(?:[-_.]|$)", path.name, re.IGNORECASE)
        is not None
    )
