"""Conditions that runs may reach: proof that a campaign came to the interesting situations."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Final

OF_THE_SIMULATOR: Final = (
    "declared dead",
    "declared dead while alive",
    "killed in barrier",
    "killed in live_processes",
    "round that counts the dead",
    "round with all",
    "round without some",
)
"""What the simulator notes by itself."""

_NOTES: Final = "sometimes"


def declared_conditions(program: Callable[..., Any]) -> tuple[str, ...]:
    """The conditions that a program notes with `process.sometimes("...")`, in order.

    They are read from the source of the function and of those of its module that it names; a condition
    whose text is computed is not seen.
    """
    return tuple(sorted(set(_declared(program, {}))))


def _declared(function: Any, seen: dict[str, None]) -> Iterator[str]:
    if not isinstance(function, FunctionType) or function.__qualname__ in seen:
        return
    seen[function.__qualname__] = None
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):  # It has no source, as what was typed in has none.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            named = function.__globals__.get(node.id)
            if getattr(named, "__module__", None) == function.__module__:
                yield from _declared(named, seen)
        elif isinstance(node, ast.Call) and node.args:
            is_note = isinstance(node.func, ast.Attribute) and node.func.attr == _NOTES
            told = node.args[0]
            if isinstance(told, ast.Name):
                text = function.__globals__.get(told.id)
            else:
                text = getattr(told, "value", None)
            if is_note and isinstance(text, str):
                yield text
