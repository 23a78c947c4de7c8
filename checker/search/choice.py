"""When the compiled searches are worth their start, and how they come to be compiled.

Importing numba and the compiled code takes about a second; compiling takes half a minute, once per
installation and Python (`coordlab warmup` does it ahead). So a small check in a fresh process stays in
plain Python, and compiling happens in a process of its own, in the background.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

COMPILED_MIN: Final = 20_000
"""Operations from which they are loaded if they are compiled: below, plain Python is sooner done."""

WAIT_MIN: Final = 200_000
"""Operations from which it is worth waiting until they are compiled."""

_DRIVER = "checker.search.compiled.driver"
_background: list[subprocess.Popen[bytes]] = []


@cache
def is_installed() -> bool:
    """Whether the extra `coordlab[fast]` is there."""
    return all(importlib.util.find_spec(name) is not None for name in ("numpy", "numba"))


def is_loaded() -> bool:
    """Whether this process has the compiled searches."""
    return _DRIVER in sys.modules


def is_compiled() -> bool:
    """Whether compiled code is stored, newer than its source. Imports nothing."""
    folder = Path(__file__).parent / "compiled"
    source = folder / "counting.py"
    version = f"py{sys.version_info[0]}{sys.version_info[1]}"
    stored = list((folder / "__pycache__").glob(f"counting.decide_all-*.{version}.nbi"))
    return any(path.stat().st_mtime >= source.stat().st_mtime for path in stored)


def load() -> ModuleType:
    """Loads the compiled searches, and compiles them if need be."""
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


def wait_until_compiled(timeout_s: float | None = None) -> bool:
    """Waits for the background; whether there is compiled code now."""
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while not is_compiled():
        if not _background or _background[0].poll() is not None:
            break
        if end is not None and time.monotonic() >= end:
            return False
        time.sleep(0.05)
    return is_compiled()


def driver_for(operations: int, *, insist: bool = False) -> ModuleType | None:
    """The compiled searches if they pay for a history of so many operations, else None.

    Args:
      operations: How many there are.
      insist: Whether the check is known to be hard: then it pays to load them, and to wait until they
        are compiled, whatever the size.
    """
    if is_loaded():
        return load()
    if not is_installed() or not (insist or operations >= COMPILED_MIN):
        return None
    if not is_compiled():
        compile_in_background()
        if not (insist or operations >= WAIT_MIN) or not wait_until_compiled():
            return None
    return load()
