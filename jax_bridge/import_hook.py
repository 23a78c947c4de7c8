"""Does something to a module as soon as a program has imported it.

Imported at the start of every Python under `coordlab wrap` and `coordlab record`, with jaxlib or
without: it must stay light. Both may be at work in one program, so there is one finder for all.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Step = Callable[[ModuleType], None]


class _Finder:
    """Finds some modules as the other finders would, and adds steps to their loading."""

    def __init__(self) -> None:
        self.steps: dict[str, list[Step]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.steps:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                self._add_steps(spec)
                return spec
        return None

    def _add_steps(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        if loader is None:
            return
        execute = loader.exec_module

        def execute_and_go_on(module: ModuleType) -> None:
            execute(module)
            del loader.exec_module  # From now on the class's own.
            for step in self.steps[spec.name]:
                step(module)

        loader.exec_module = execute_and_go_on  # type: ignore[method-assign]


_FINDER = _Finder()


def after_import(name: str, step: Step) -> None:
    """Has `step` called with a module when that has been executed, before its importer sees it.

    Args:
      name: The module, which must not have been imported yet.
      step: What it raises, the import raises.
    """
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _FINDER.steps.setdefault(name, []).append(step)
