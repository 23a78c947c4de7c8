"""Waits for a program to import jaxlib, and has its clients recorded.

Imported at the start of every Python that is recorded, with jaxlib or without: it must stay light.
"""

from __future__ import annotations

from jax_bridge import compat
from jax_bridge.import_hook import after_import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def install(parts: str) -> None:
    """Has the clients of this process recorded, in files of the folder `parts`."""

    def record(module: ModuleType) -> None:
        try:
            from jax_bridge.recorder.program import ProgramRecorder

            recorder = ProgramRecorder(parts)
            recorder.record_clients(module)
            after_import(compat.BLOCKS_MODULE, lambda _: recorder.record_blocks())
        except Exception as error:  # noqa: BLE001 - whatever it is, the program goes on
            from jax_bridge.recorder.complaints import complain

            complain(f"not recorded: {error}")

    after_import(compat.RUNTIME_MODULE, record)
