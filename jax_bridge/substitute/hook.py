"""Waits for a program to import jaxlib, and replaces what starts its C++ service.

Imported at the start of every Python under `coordlab wrap`, with jaxlib or without: it must stay light.
"""

from __future__ import annotations

import sys

from jax_bridge import compat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class _Finder:
    """Finds the one module as the other finders would, and adds a step to its loading."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != compat.RUNTIME_MODULE:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                self._add_step(spec)
                return spec
        return None

    def _add_step(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        if loader is None:
            return
        execute = loader.exec_module

        def execute_and_replace(module: ModuleType) -> None:
            execute(module)
            del loader.exec_module  # From now on the class's own.
            from jax_bridge.substitute.service import starter

            compat.replace_service(module, starter(module, self._socket_path))

        loader.exec_module = execute_and_replace  # type: ignore[method-assign]


def install(socket_path: str) -> None:
    """Turns the services of this process into requests to whoever listens on `socket_path`."""
    sys.meta_path.insert(0, _Finder(socket_path))
