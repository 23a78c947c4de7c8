"""Tapes as files: a run's scenario and all its draws, which replay it after code has changed.

A seed reproduces a run as long as the code turns it into the same draws. A tape holds the draws
themselves, so that it goes on giving the same run where only drawing has changed; where more has, the
replay says where it left the tape.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from coord_sim.errors import CoordSimError
from coord_sim.scenarios.reading import parse_scenario
from coord_sim.scenarios.scenario import Scenario
from coord_sim.scenarios.writing import to_toml
from coord_sim.sim.entropy import Tape

VERSION: Final = 1
_MARK: Final = "coordlab_tape"


class TapeError(CoordSimError, ValueError):
    """A file that is no tape."""


def save_tape(path: str | Path, scenario: Scenario, tape: Tape) -> None:
    """Writes a tape as JSON."""
    content = {_MARK: VERSION, "scenario": to_toml(scenario), "draws": tape.draws}
    Path(path).write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")


def load_tape(path: str | Path) -> tuple[Scenario, Tape]:
    """Reads a tape.

    Raises:
      TapeError: it is none, or of another version.
      ScenarioError: its scenario is not valid any more.
      OSError: it cannot be read.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise TapeError(f"{path}: not a tape: {error}") from None
    if not isinstance(content, dict) or _MARK not in content:
        raise TapeError(f"{path}: not a tape: the field {_MARK!r} is missing")
    if content[_MARK] != VERSION:
        raise TapeError(f"{path}: tapes of version {VERSION} are read, found {content[_MARK]!r}")
    text, draws = content.get("scenario"), content.get("draws")
    if not isinstance(text, str) or not _are_draws(draws):
        raise TapeError(f"{path}: not a tape: it needs the text 'scenario' and the lists 'draws'")
    return parse_scenario(text, f"{path} (scenario)"), Tape(
        cast("Mapping[str, list[float]]", draws)
    )


def _are_draws(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(draws, list)
        and all(isinstance(draw, int | float) and not isinstance(draw, bool) for draw in draws)
        for draws in value.values()
    )
