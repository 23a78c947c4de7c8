"""A case on real processes, once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coord_sim.sim.case import Case
from jax_bridge.errors import LaunchFailed, ServiceDied
from jax_bridge.hunt.judging import INVALID, Judge, judged
from jax_bridge.scenario_runs import Setting, run_for_real

HISTORY: Final = "history.jsonl"
NOT_RUN: Final = "not run"
"""The word for a trial of which nothing came."""


def _say_nothing(_: str) -> None:
    """Hears what happens in a run, and keeps it to itself."""


@dataclass(frozen=True, slots=True)
class Where:
    """Where cases are tried.

    Attributes:
      service: `real` or `model`.
      judge: Says what is wrong.
      folder: For what the runs leave behind.
      say: Told what happens in a run; can be pickled, as the judge.
    """

    service: str
    judge: Judge
    folder: Path
    say: Callable[[str], None] = _say_nothing


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of a case.

    Attributes:
      case: What was run.
      word: `valid`, `invalid`, `unknown` or `not run`.
      kind, explanation: Of what is wrong.
      end_s: How long it took, in seconds.
      missed: How many of its faults did not happen.
      folder: Has its `history.jsonl`, and in `history.run/logs` the output of all.
    """

    case: Case
    word: str
    kind: str
    explanation: str
    end_s: float
    missed: int
    folder: Path

    @property
    def is_failure(self) -> bool:
        """Whether something is wrong."""
        return self.word == INVALID

    def clear(self) -> None:
        """Removes its files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def try_case(case: Case, name: str, where: Where) -> Trial:
    """Runs a case on real processes and judges it.

    Args:
      case: Of a program of `coord_sim.sim.programs`.
      name: Of the folder for what it leaves.
      where: Where.

    Raises:
      NotForProcesses: it cannot be run so.
      KeyboardInterrupt: its processes have ended; its files are there.
    """
    folder = where.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    setting = Setting(service=where.service, out=folder / HISTORY, say=where.say)
    try:
        run = run_for_real(case.program, dict(case.arguments), case.schedule, setting)
    except ServiceDied as death:
        return Trial(case, INVALID, "the service died", str(death), 0.0, 0, folder)
    except LaunchFailed as error:
        return Trial(case, NOT_RUN, "the run did not begin", str(error), 0.0, 0, folder)
    found = judged(run, case.program, where.judge)
    return Trial(
        case,
        found.word,
        found.kind,
        found.explanation,
        run.end_s,
        len(run.missed),
        folder,
    )
