"""Tapes as files: a run's case and all its draws, which replay it after code has changed.

A seed reproduces a run as long as the code turns it into the same draws. A tape holds the draws
themselves, so that it goes on giving the same run where only drawing has changed; where more has, the
replay says where it left the tape.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from coord_sim.core.identifiers import INCARNATION_BITS
from coord_sim.errors import CoordSimError
from coord_sim.sim.case import Case, CaseError, parse_case
from coord_sim.sim.entropy import INCARNATIONS, Tape

VERSION: Final = 1
_MARK: Final = "coordlab_tape"


class TapeError(CoordSimError, ValueError):
    """A file that is no tape."""


def save_tape(path: str | Path, case: Case, tape: Tape) -> None:
    """Writes a tape as JSON."""
    content = {_MARK: VERSION, "case": json.loads(case.to_text()), "draws": tape.draws}
    Path(path).write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")


def load_tape(path: str | Path) -> tuple[Case, Tape]:
    """Reads a tape.

    Raises:
      TapeError: it is none, of another version, or of a case that is not valid any more.
      OSError: it cannot be read.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise TapeError(f"{path}: not a tape: {error}") from None
    if not isinstance(content, dict) or _MARK not in content:
        raise TapeError(f"{path}: not a tape: the field {_MARK!r} is missing")
    if content[_MARK] != VERSION:
        raise TapeError(f"{path}: tapes of version {VERSION} are read, found {content[_MARK]!r}")
    try:
        case = parse_case(json.dumps(content.get("case")))
    except CaseError as error:
        raise TapeError(f"{path}: its case {error}") from None
    draws = content.get("draws")
    if not isinstance(draws, dict):
        raise TapeError(f"{path}: not a tape: it needs the table 'draws'")
    for stream, drawn in draws.items():
        is_drawn = _is_incarnation if stream.endswith(INCARNATIONS) else _is_fraction
        if not isinstance(drawn, list) or not all(map(is_drawn, drawn)):
            raise TapeError(f"{path}: the draws of stream {stream!r} are not what is drawn there")
    return case, Tape(draws)


def _is_fraction(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1


def _is_incarnation(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << INCARNATION_BITS
