"""What the installed JAX says about itself, read from its files: nothing of it is imported.

Importing JAX takes a second and freezes settings; its defaults stand in the signature of
`initialize`, and whether anything reads an environment variable is seen from whether its name occurs
in Python files or in the shared libraries.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import mmap
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import metadata
from pathlib import Path

from jax_bridge.doctor.findings import Finding, Level

SUPPORTED = ((0, 10, 2), (0, 13))
"""Versions of JAX with which this is tested: from, and up to but not."""

_OURS = re.compile(
    r"(?:JAX|JAXLIB|XLA|GRPC|TF_CPP|COORDINATION|DISTRIBUTED)_\w+|\w*(?:HEARTBEAT|COORDINATOR)\w*"
)
_NOT_JAX = ("MASTER_ADDR", "XLA_PYTHON_CLIENT", "JAX_PLATFORM_NAME")
_CONFIGURED = re.compile(r"\bjax_\w+")


class Installation:
    """The JAX that is installed.

    Args:
      jax, jaxlib: The folders of the packages; None where one is not installed.
    """

    def __init__(self, jax: Path | None, jaxlib: Path | None) -> None:
        self.jax = jax
        self.jaxlib = jaxlib

    @classmethod
    def found(cls) -> Installation:
        """The one that `import jax` would find."""
        return cls(_folder_of("jax"), _folder_of("jaxlib"))

    def defaults(self) -> dict[str, object]:
        """The parameters of `jax.distributed.initialize` that have a default which is a constant."""
        if self.jax is None:
            return {}
        try:
            tree = ast.parse((self.jax / "_src" / "distributed.py").read_text(encoding="utf-8"))
        except (OSError, SyntaxError):
            return {}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == "initialize":
                arguments = node.args
                names = [argument.arg for argument in arguments.args]
                values = arguments.defaults
                named = dict(zip(names[len(names) - len(values) :], values, strict=True))
                return {
                    name: value.value
                    for name, value in named.items()
                    if isinstance(value, ast.Constant)
                }
        return {}

    @cached_property
    def _python_words(self) -> frozenset[str]:
        words: set[str] = set()
        for folder in (self.jax, self.jaxlib):
            for path in sorted(folder.rglob("*.py")) if folder is not None else ():
                text = path.read_text(encoding="utf-8", errors="replace")
                words.update(_OURS.findall(text))
                words.update(word.upper() for word in _CONFIGURED.findall(text))
        return frozenset(words)

    def reads(self, variable: str) -> bool:
        """Whether the name of a variable, or of the setting that it makes, occurs anywhere."""
        wanted = variable.encode()
        return variable in self._python_words or any(
            _holds(path, wanted)
            for folder in (self.jaxlib, self.jax)
            if folder is not None
            for path in sorted(folder.rglob("*.so*"), key=lambda path: -path.stat().st_size)
        )


def _holds(path: Path, wanted: bytes) -> bool:
    with (
        contextlib.suppress(OSError, ValueError),
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory,
    ):
        return memory.find(wanted) >= 0
    return False


def _folder_of(package: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    places = None if spec is None else spec.submodule_search_locations
    return Path(next(iter(places))) if places else None


def check_versions() -> Iterator[Finding]:
    """Checks the versions of jax and jaxlib."""
    versions: dict[str, str] = {}
    for name in ("jax", "jaxlib"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Finding(Level.ERROR, "versions", f"{name} is not installed", f"install {name}")
    if len(versions) < 2:
        return
    jax, jaxlib = (_numbers(versions[name]) for name in ("jax", "jaxlib"))
    told = f"jax {versions['jax']}, jaxlib {versions['jaxlib']}"
    if jaxlib[:3] > jax[:3]:
        yield Finding(
            Level.WARNING,
            "versions",
            f"{told}: jaxlib must not be newer than jax",
            "install the two together",
        )
    low, high = SUPPORTED
    if not low <= jax[:3] < high:
        wanted = ".".join(map(str, low)), ".".join(map(str, high))
        yield Finding(
            Level.NOTE,
            "versions",
            f"{told}: coordlab is tested with {wanted[0]} up to, not including, {wanted[1]}",
        )
    else:
        yield Finding(Level.GOOD, "versions", told)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:4])


def check_timeouts(installation: Installation) -> Iterator[Finding]:
    """Says which time-outs are in force unless the program passes others."""
    defaults = installation.defaults()
    timeouts = {name: value for name, value in defaults.items() if "timeout" in name}
    if not timeouts:
        yield Finding(Level.NOTE, "time-outs", "the defaults of initialize() cannot be read")
        return
    told = ", ".join(f"{name}={value}" for name, value in timeouts.items())
    yield Finding(
        Level.NOTE,
        "time-outs",
        f"in force, unless initialize() is given others: {told} (seconds); the service waits for "
        "registration for an hour whatever these say",
    )


def check_settings(installation: Installation, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Looks for variables that nobody reads."""
    unread = [
        name
        for name in sorted(environment)
        if _OURS.fullmatch(name) and not name.startswith(_NOT_JAX) and not installation.reads(name)
    ]
    for name in unread:
        yield Finding(
            Level.WARNING,
            "settings",
            f"{name} is set, and nothing in the installed jax and jaxlib reads it",
            "pass the setting as an argument of jax.distributed.initialize()",
        )
