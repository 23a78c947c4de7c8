"""Looks through a program for what goes wrong with JAX's distributed service.

Most of it is guessed from the text: calls in other files, or made by other names, are not seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from jax_bridge.doctor.findings import Finding, Level

_USES_BACK_END = (
    "jax.devices",
    "jax.local_devices",
    "jax.device_count",
    "jax.local_device_count",
    "jax.process_index",
    "jax.process_count",
    "jax.device_put",
    "jax.default_backend",
    "jax.random.PRNGKey",
    "jax.random.key",
)
_ARRAYS = "jax.numpy."
_ARRAY_TYPES = frozenset(
    {
        "float16",
        "float32",
        "float64",
        "bfloat16",
        "int8",
        "int32",
        "int64",
        "uint8",
        "ndarray",
        "dtype",
    }
)
_FORKS = (
    "os.fork",
    "multiprocessing.Process",
    "multiprocessing.Pool",
    "multiprocessing.get_context",
)
_LOADERS = ("DataLoader",)


class ScriptError(Exception):
    """A program that cannot be looked through; says the file, and the line if there is one."""


def check_script(path: str) -> Iterator[Finding]:
    """Checks one program.

    Raises:
      ScriptError: it is no Python, or too deep.
      OSError: it cannot be read.
    """
    source = Path(path).read_bytes()
    visitor = _Visitor()
    try:
        visitor.visit(ast.parse(source, filename=path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        place = f"{path}:{line}" if line else path
        raise ScriptError(f"{place}: not a Python program: {error}") from None
    except (MemoryError, RecursionError):  # Python's parser says either; it has limits of its own.
        raise ScriptError(f"{path}: cannot be looked through: it is nested too deeply") from None
    yield from _findings(path, visitor)


def _findings(path: str, seen: _Visitor) -> Iterator[Finding]:
    initialize = seen.first("jax.distributed.initialize")
    shutdown = seen.first("jax.distributed.shutdown")
    if initialize is None:
        yield Finding(
            Level.NOTE,
            "script",
            f"{path}: no call of jax.distributed.initialize is seen in it",
            "another file may call it",
        )
    else:
        if shutdown is None:
            yield Finding(
                Level.WARNING,
                "script",
                f"{path}:{initialize}: initialize() without jax.distributed.shutdown(): the program "
                "leaves when Python ends, and whoever ends first may take the others with it",
                "call shutdown() at the end, in every process",
            )
        early = [
            (line, name)
            for line, name in seen.at_import
            if line < initialize and _uses_back_end(name)
        ]
        for line, name in early[:1]:
            yield Finding(
                Level.ERROR,
                "script",
                f"{path}:{line}: {name}() before initialize() (line {initialize}): it sets up the back "
                "end, after which initialize() refuses",
                "call initialize() first",
            )
    if seen.count("jax.distributed.initialize") > 1:
        yield Finding(
            Level.WARNING,
            "script",
            f"{path}: initialize() is called in {seen.count('jax.distributed.initialize')} places; a "
            "second call raises",
            "guard it with jax.distributed.is_initialized()",
        )
    yield from _blocks(path, seen)
    for line, name in seen.calls:
        if name in _FORKS or name.rpartition(".")[2] in _LOADERS:
            if name in _FORKS or _has_workers(seen, line):
                yield Finding(
                    Level.WARNING,
                    "script",
                    f"{path}:{line}: {name} starts child processes; one that imports this file again "
                    "registers under the same number, which ends the job",
                    'keep initialize() under `if __name__ == "__main__":`',
                )
    if initialize is not None and not seen.is_guarded(initialize) and seen.has_workers:
        yield Finding(
            Level.ERROR,
            "script",
            f"{path}:{initialize}: initialize() runs whenever the file is imported, and the file starts "
            "child processes",
            'put it under `if __name__ == "__main__":`',
        )


def _blocks(path: str, seen: _Visitor) -> Iterator[Finding]:
    blocks = seen.blocks
    if len(blocks) > 1:
        lines = ", ".join(str(line) for line, _, _ in blocks)
        yield Finding(
            Level.WARNING,
            "script",
            f"{path}: {len(blocks)} live_devices blocks (lines {lines}): processes that are in "
            "different ones after a failure wait for each other for ever",
            "use one block, in one place",
        )
    for line, _, depth in blocks:
        if depth:
            yield Finding(
                Level.ERROR,
                "script",
                f"{path}:{line}: a live_devices block inside another: blocks share one state, and the "
                "inner one makes a call that the others do not",
                "use one block at a time",
            )
    arguments = {text for _, text, _ in blocks}
    if len(arguments) > 1:
        yield Finding(
            Level.ERROR,
            "script",
            f"{path}: live_devices blocks with different arguments ({', '.join(sorted(arguments))}): "
            "devices outside the new argument count as failed",
            "pass the same devices everywhere",
        )


def _uses_back_end(name: str) -> bool:
    if name in _USES_BACK_END:
        return True
    rest = name.removeprefix(_ARRAYS)
    return rest != name and rest not in _ARRAY_TYPES


def _has_workers(seen: _Visitor, line: int) -> bool:
    return line in seen.loader_lines


class _Visitor(ast.NodeVisitor):
    """Collects calls by their full names, as far as imports tell them."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, str]] = []
        self.at_import: list[tuple[int, str]] = []
        self.blocks: list[tuple[int, str, int]] = []
        self.loader_lines: set[int] = set()
        self._names: dict[str, str] = {}
        self._functions = 0
        self._guards = 0
        self._depth = 0
        self._guarded: set[int] = set()

    @property
    def has_workers(self) -> bool:
        """Whether child processes are started."""
        return bool(self.loader_lines) or any(name in _FORKS for _, name in self.calls)

    def first(self, name: str) -> int | None:
        """The line of the first call."""
        return min((line for line, called in self.calls if called == name), default=None)

    def count(self, name: str) -> int:
        """How many calls there are."""
        return sum(1 for _, called in self.calls if called == name)

    def is_guarded(self, line: int) -> bool:
        """Whether a call is in a function or under a test of `__name__`."""
        return line in self._guarded

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.asname:
                self._names[alias.asname] = alias.name
            else:
                root = alias.name.partition(".")[0]
                self._names[root] = root

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._names[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._functions += 1
        self.generic_visit(node)
        self._functions -= 1

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._functions += 1
        self.generic_visit(node)
        self._functions -= 1

    def visit_If(self, node: ast.If) -> None:
        is_main = "__name__" in {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
        self._guards += is_main
        self.generic_visit(node)
        self._guards -= is_main

    def visit_With(self, node: ast.With) -> None:
        is_block = False
        for item in node.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and self._name(call.func).endswith("live_devices"):
                text = ", ".join(ast.unparse(argument) for argument in call.args)
                self.blocks.append((call.lineno, text, self._depth))
                is_block = True
        self._depth += is_block
        self.generic_visit(node)
        self._depth -= is_block

    def visit_Call(self, node: ast.Call) -> None:
        name = self._name(node.func)
        self.calls.append((node.lineno, name))
        if not self._functions:
            self.at_import.append((node.lineno, name))
        if self._functions or self._guards:
            self._guarded.add(node.lineno)
        if name.rpartition(".")[2] in _LOADERS and _workers(node):
            self.loader_lines.add(node.lineno)
        self.generic_visit(node)

    def _name(self, node: ast.expr) -> str:
        if isinstance(node, ast.Attribute):
            return f"{self._name(node.value)}.{node.attr}"
        if isinstance(node, ast.Name):
            return self._names.get(node.id, node.id)
        return ""


def _workers(node: ast.Call) -> bool:
    for keyword in node.keywords:
        if keyword.arg in {"num_workers", "worker_count"}:
            return not (
                isinstance(keyword.value, ast.Constant) and keyword.value.value in {0, None}
            )
    return False
