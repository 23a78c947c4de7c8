"""What somebody says of a run. A campaign does not know right from wrong: it is given a judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from coord_sim.errors import ProgramError
from coord_sim.sim.case import Case
from coord_sim.sim.run import Run
from coord_sim.sim.service_host import Observer

VALID: Final = "valid"
INVALID: Final = "invalid"
UNKNOWN: Final = "unknown"

EXPLANATION_MAX: Final = 20_000
"""Longer explanations are cut; the history tells all."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is to be said of a run.

    Attributes:
      word: `valid`, `invalid` or `unknown`.
      kind: Of the failure, in a few words; failures of two kinds have two causes. Empty if valid.
      explanation: In sentences.
    """

    word: str
    kind: str = ""
    explanation: str = ""

    @property
    def is_failure(self) -> bool:
        """Whether something is wrong."""
        return self.word == INVALID


Judge: TypeAlias = Callable[[Run], Judgement]
"""Judges a run. It can be pickled, and says the same of the same run everywhere."""


def judged(
    case: Case, judge: Judge, observer: Observer | None = None
) -> tuple[Run | None, Judgement]:
    """Runs a case and judges it; no run if the program does what the simulator cannot follow.

    Raises:
      CaseError: there is no such program.
    """
    try:
        run = case.run(observer)
    except ProgramError as error:
        return None, Judgement(INVALID, "program error", str(error))
    try:
        found = judge(run)
    except Exception as error:  # noqa: BLE001 - one history that cannot be judged ends no campaign
        kind = f"the judge raised {type(error).__name__}"
        return run, Judgement(INVALID, kind, f"{kind}: {error}")
    if len(found.explanation) > EXPLANATION_MAX:
        cut = f"{found.explanation[:EXPLANATION_MAX]}\n..."
        return run, Judgement(found.word, found.kind, cut)
    return run, found
