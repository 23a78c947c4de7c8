"""How arguments of programs say that they name a process."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

PROCESS: Final = "process"
"""Marks an argument that is the number of a process."""

ProcessNumber: TypeAlias = Annotated[int, PROCESS]
"""The number of a process of the job."""
