"""When the compiled searches are worth their start."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from checker.compiling import CompiledCode, is_installed

CODE: Final = CompiledCode(
    "checker.search.compiled.driver", {"counting": "decide_all", "table": "run_table"}
)

COMPILED_MIN: Final = 20_000
"""Operations from which they are loaded if they are compiled: below, plain Python is sooner done."""

WAIT_MIN: Final = 200_000
"""Operations from which it is worth waiting until they are compiled."""


def driver_for(
    operations: int, *, insist: bool = False, wait_s: float | None = None
) -> ModuleType | None:
    """The compiled searches if they pay for a history of so many operations, else None.

    Args:
      operations: How many there are.
      insist: Whether the check is known to be hard: then it pays to load them, and to wait until they
        are compiled, whatever the size.
      wait_s: For how long to wait at most.
    """
    if CODE.is_loaded:
        return CODE.load()
    if not is_installed() or not (insist or operations >= COMPILED_MIN):
        return None
    if not CODE.is_compiled:
        CODE.compile_in_background()
        if not (insist or operations >= WAIT_MIN) or not CODE.wait_until_compiled(wait_s):
            return None
    return CODE.load_if_possible()
