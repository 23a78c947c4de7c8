"""When the compiled check pays. Imports neither numpy nor numba.

Importing numba takes about a second, in which plain Python checks some 400,000 events. Compiling takes
ten seconds, once per installation and Python; it happens in the background, and nobody waits for it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

LOADED_MIN: Final = 2_000
"""Events from which it pays where it is loaded."""

NUMBA_MIN: Final = 200_000
"""Events from which it pays to load it where numba is loaded."""

COLD_MIN: Final = 1_000_000
"""Events from which it pays to load numba, too."""

_DRIVER = "checker.live_processes.compiled.driver"
_background: list[subprocess.Popen[bytes]] = []


def is_installed() -> bool:
    """Whether the extra `coordlab[fast]` is there."""
    return all(importlib.util.find_spec(name) is not None for name in ("numpy", "numba"))


def is_compiled() -> bool:
    """Whether compiled code is stored, newer than its source."""
    folder = Path(__file__).parent
    source = folder / "rounds.py"
    version = f"py{sys.version_info[0]}{sys.version_info[1]}"
    stored = (folder / "__pycache__").glob(f"rounds.settle-*.{version}.nbi")
    return any(path.stat().st_mtime >= source.stat().st_mtime for path in stored)


def load() -> ModuleType:
    """Loads the compiled check, and compiles it if need be."""
    return importlib.import_module(_DRIVER)


def compile_in_background() -> None:
    """Starts to compile in a process of its own, unless that runs already. It outlives this one."""
    if _background and _background[0].poll() is None:
        return
    command = [sys.executable, "-c", f"import os; os.nice(10); import {_DRIVER}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    _background[:] = [
        subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    ]


def driver_for(events: int) -> ModuleType | None:
    """The compiled check if it pays for a history of so many events, else None."""
    if _DRIVER in sys.modules:
        return load() if events >= LOADED_MIN else None
    if events < (NUMBA_MIN if "numba" in sys.modules else COLD_MIN) or not is_installed():
        return None
    if not is_compiled():
        compile_in_background()
        return None
    return load()
