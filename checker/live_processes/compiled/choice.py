"""When the compiled check of `live_processes` pays.

Importing numba takes about a second, in which plain Python checks some 400,000 events. Compiling takes
ten seconds; it happens in the background, and nobody waits for it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Final

from checker.compiling import CompiledCode, is_installed

CODE: Final = CompiledCode("checker.live_processes.compiled.driver", {"rounds": "settle"})

LOADED_MIN: Final = 2_000
"""Events from which it pays where it is loaded."""

NUMBA_MIN: Final = 200_000
"""Events from which it pays to load it where numba is loaded."""

COLD_MIN: Final = 2_000_000
"""Events from which it pays to load numba, too: making columns of events costs half a check as well."""


def driver_for(events: int) -> ModuleType | None:
    """The compiled check if it pays for a history of so many events, else None."""
    if CODE.is_loaded:
        return CODE.load() if events >= LOADED_MIN else None
    if events < (NUMBA_MIN if "numba" in sys.modules else COLD_MIN) or not is_installed():
        return None
    if not CODE.is_compiled:
        CODE.compile_in_background()
        return None
    return CODE.load_if_possible()
