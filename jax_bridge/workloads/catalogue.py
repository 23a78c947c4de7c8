"""Which workloads there are, where each is best disturbed, and what must come of that."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

Fault = Literal["none", "kill", "restart"]
"""Nothing; SIGKILL for one process in the middle; that, and the process is started again."""

FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)
FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A script, and how it is run to be checked.

    Attributes:
      name: Of the script, without `.py`.
      processes: How many it needs to show something.
      kill: Where the victim dies, as for `coordlab run --kill`.
      restart_s: How long after that it is started again.
      survives: Whether the others finish in spite of a kill. If not, they must fail, not be wrong.
      comes_back: Whether a process that was started again finishes with the right numbers, too.
      faults: What it can be run with: one does nothing without a kill.
      computes: Whether there are numbers that can be right or wrong.
      says: The beginning of the line by which a process says that a number was right.
    """

    name: str
    processes: int = 2
    kill: str = "1@in:key_value_set#3"
    restart_s: float = 0.5
    survives: bool = False
    comes_back: bool = False
    faults: tuple[Fault, ...] = FAULTS
    computes: bool = True
    says: str = "right: "

    @property
    def script(self) -> Path:
        """The file."""
        return FOLDER / f"{self.name}.py"

    @property
    def victim(self) -> int:
        """The process that is killed."""
        return int(self.kill.partition("@")[0])

    @property
    def explanation(self) -> str:
        """The script's docstring."""
        return ast.get_docstring(ast.parse(self.script.read_text(encoding="utf-8"))) or ""

    @property
    def title(self) -> str:
        """The first line of it."""
        return self.explanation.partition("\n")[0]

    def must_finish(self, process: int, start: int, fault: Fault) -> bool:
        """Whether this start of this process must end with the right numbers."""
        if fault == "none":
            return True
        if process == self.victim:
            return start > 0 and self.comes_back
        return self.survives

    def expectation(self, fault: Fault) -> str:
        """What must come of it, in words."""
        finish = "finish, with the right numbers" if self.computes else "finish"
        if fault == "none":
            return f"all {finish}"
        others = (
            f"the others {finish}"
            if self.survives
            else "the others fail: an exception in a collective, or jaxlib ends them"
        )
        if fault == "kill":
            return others
        if self.comes_back:
            return f"{others}; so does the one that came back"
        newcomer = "leaves" if self.survives else "fails too"
        return f"{others}; the one that came back {newcomer}"


WORKLOADS: Final = (
    Workload(name="psum"),
    Workload(name="linear_regression"),
    Workload(name="mlp"),
    Workload(name="fsdp"),
    Workload(name="mesh_2d"),
    Workload(name="transpose"),
    Workload(name="multihost"),
    Workload(name="preemption"),
    Workload(name="train_ignoring_the_dead", processes=3, kill="2@in:block#6", survives=True),
    Workload(
        name="train_with_recovery",
        processes=3,
        kill="2@in:block#6",
        survives=True,
        comes_back=True,
    ),
    Workload(
        name="live_sum",
        processes=3,
        kill="2@in:block#4",
        survives=True,
        comes_back=True,
        says="step ",
    ),
    Workload(
        name="ghost_entry",
        processes=3,
        kill="2@in:live_processes#1",
        restart_s=0.0,
        survives=True,
        faults=("restart",),
        computes=False,
        says="told ",
    ),
)


def named(name: str) -> Workload:
    """The workload of this name.

    Raises:
      ValueError: there is none; with the names that there are.
    """
    for workload in WORKLOADS:
        if workload.name == name:
            return workload
    names = ", ".join(workload.name for workload in WORKLOADS)
    raise ValueError(f"no workload is called {name!r}; there are {names}")
