"""Waits for a program to import jaxlib, and replaces what starts its C++ service.

Imported at the start of every Python under `coordlab wrap`, with jaxlib or without: it must stay light.
"""

from __future__ import annotations

from jax_bridge import compat
from jax_bridge.import_hook import after_import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def install(socket_path: str) -> None:
    """Turns the services of this process into requests to whoever listens on `socket_path`."""

    def replace(module: ModuleType) -> None:
        from jax_bridge.substitute.service import starter

        compat.replace_service(module, starter(module, socket_path))

    after_import(compat.RUNTIME_MODULE, replace)
