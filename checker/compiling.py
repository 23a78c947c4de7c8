"""Compiled code: whether it is there, and how it comes to be.

Importing numba and compiled code takes about a second; compiling takes up to half a minute, once per
installation and Python (`coordlab warmup` does it ahead). So a small check in a fresh process stays
in plain Python, and compiling happens in a process of its own, in the background. Nothing is
imported here.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from types import ModuleType

_POLL_S = 0.05


@cache
def is_installed() -> bool:
    """Whether the extra `coordlab[fast]` is there."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in ("numpy", "numba"))
    except (ImportError, ValueError):
        return False


class CompiledCode:
    """A module of compiled functions.

    Args:
      driver: The module that drives them, by its full name. Importing it compiles them if need be.
      functions: A function of each file beside it that numba compiles and stores, by the file's stem.
    """

    def __init__(self, driver: str, functions: dict[str, str]) -> None:
        self._driver = driver
        self._functions = functions
        self._background: subprocess.Popen[bytes] | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether this process has it."""
        return self._driver in sys.modules

    @property
    def is_compiled(self) -> bool:
        """Whether it is stored, newer than its sources."""
        package = self._driver.rpartition(".")[0]
        folder = Path(__file__).parent.parent.joinpath(*package.split("."))
        version = f"py{sys.version_info[0]}{sys.version_info[1]}"
        # numba stores beside the source, or where that cannot be written or the user wants it elsewhere.
        stores = [(folder / "__pycache__").glob, Path.home().joinpath(".cache", "numba").rglob]
        if os.environ.get("NUMBA_CACHE_DIR"):
            stores = [Path(os.environ["NUMBA_CACHE_DIR"]).rglob]
        for stem, function in self._functions.items():
            source_s = (folder / f"{stem}.py").stat().st_mtime
            pattern = f"{stem}.{function}-*.{version}.nbi"
            stored = (path for search in stores for path in search(pattern))
            if not any(path.stat().st_mtime >= source_s for path in stored):
                return False
        return True

    def load(self) -> ModuleType:
        """Loads it, and compiles it if need be.

        Raises:
          ImportError: numpy or numba are missing, or do not go with each other.
        """
        return importlib.import_module(self._driver)

    def load_if_possible(self) -> ModuleType | None:
        """The same; None if it cannot be loaded: plain Python does without it."""
        try:
            return self.load()
        except ImportError:
            return None

    def compile_in_background(self) -> None:
        """Starts to compile in a process of its own, unless that runs already. It outlives this one."""
        if self._background is not None and self._background.poll() is None:
            return
        command = [sys.executable, "-c", f"import os; os.nice(10); import {self._driver}"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self._background = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_until_compiled(self, timeout_s: float | None = None) -> bool:
        """Waits for the background; whether there is compiled code now."""
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.is_compiled:
            if self._background is None or self._background.poll() is not None:
                break
            if end_s is not None and time.monotonic() >= end_s:
                return False
            time.sleep(_POLL_S)
        return self.is_compiled
