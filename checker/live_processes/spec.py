"""What `live_processes` promises, in the readings that can be checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Definition: TypeAlias = Literal["round", "published"]
FailureModel: TypeAlias = Literal["suspicion", "crash-stop"]

DEFINITIONS: tuple[Definition, ...] = get_args(Definition)
FAILURE_MODELS: tuple[FailureModel, ...] = get_args(FailureModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveProcesses:
    """The specification of the `live_processes` barrier.

    Attributes:
      definition: `round` (calls are grouped into rounds; all members of a round are in the barrier at
        one instant and get the same answer, everybody else is dead then) or `published` (the JAX
        guide's Formal Semantics: every answer has such an instant of its own).
      failures: `suspicion` (an incarnation may count as dead from any moment after its last
        acknowledged operation took effect, as heartbeat time-outs demand) or `crash-stop` (a failure
        comes after every event of the lifetime).
      matchings_max: How many ways of grouping calls may be tried when answers do not tell
        incarnations, or calls ended with an unknown outcome, before the verdict is `Unknown`.
    """

    definition: Definition = "round"
    failures: FailureModel = "suspicion"
    matchings_max: int = 10_000

    def __post_init__(self) -> None:
        if self.definition not in DEFINITIONS:
            raise ValueError(f"definition must be one of {DEFINITIONS}, found {self.definition!r}")
        if self.failures not in FAILURE_MODELS:
            raise ValueError(f"failures must be one of {FAILURE_MODELS}, found {self.failures!r}")
        if self.matchings_max < 1:
            raise ValueError(f"matchings_max must be at least 1, found {self.matchings_max}")
