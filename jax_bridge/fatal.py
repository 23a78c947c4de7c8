"""Why jaxlib ended a process, as its output tells."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_TAIL_BYTES: Final = 65536
_WORDS_MAX: Final = 500
_TRACE: Final = "=== Source Location Trace"
"""Follows the message in newer versions."""

_MARKER: Final = "Terminating process because the JAX distributed service detected fatal errors"
_STATUS: Final = re.compile(r"absl::Status: (?P<status>.*)", re.DOTALL)
_NEXT_LINE: Final = re.compile(r"\n(?=[IWEF]\d{4} |\*\*\* |Fatal Python error)")
"""Where another message begins: a line of absl's log, its report of a signal, or Python's."""


def fatal_words(log: Path) -> str:
    """The status for which jaxlib ended a process, in one line; empty if its log has none."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    _, marker, after = text.partition(_MARKER)
    if not marker:
        return ""
    message = _NEXT_LINE.split(after, maxsplit=1)[0]
    status = _STATUS.search(message)
    words = status["status"] if status is not None else message
    return " ".join(words.partition(_TRACE)[0].split()).removesuffix(" ===")[:_WORDS_MAX]
