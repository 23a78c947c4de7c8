"""Checks XLA_FLAGS: what XLA would read of it, and whether the installed jaxlib takes that.

XLA ends the program at a flag that it does not know, or whose value it cannot read. What it knows is
asked of jaxlib, in a process of its own; what it would read is found out here (from openxla's
`xla/parse_flags_from_env.cc`): a value that does not begin with a dash is the name of a file of flags,
and all from the first word on that begins with none is ignored.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from jax_bridge.doctor.findings import Finding, Level

_VARIABLE = "XLA_FLAGS"
_SPACE = " \t\r\n"
_FLAG = re.compile(
    r"""-[-\w]*(?:='[^']*'?|="(?:\\.|[^"])*"?|[^ \t\r\n]*)[ \t\r\n]*""", re.ASCII | re.DOTALL
)
"""A word that XLA takes for a flag, and the space after it."""

_TRY = """
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
from jaxlib import xla_client
xla_client.CompileOptions()
"""
"""Makes jaxlib read its flags; it starts no back end."""
_TRY_S = 120.0

_UNKNOWN = re.compile(rf"Unknown flags? in {_VARIABLE}: (.*)")
_NO_VALUE = re.compile(r"Couldn't interpret value (.*) for flag (\S*)\.$", re.MULTILINE)


def check_flags(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Says what of XLA_FLAGS would end the program, and what would be ignored."""
    value = environment.get(_VARIABLE, "")
    if not value:
        return
    flags: str | Finding = value
    place = _VARIABLE
    if not value.lstrip(_SPACE).startswith("-"):
        flags = _read(value)
        place = f"the file {value!r}, which {_VARIABLE} names,"
    if isinstance(flags, Finding):
        yield flags
        return
    if ignored := _ignored(flags):
        yield Finding(
            Level.WARNING,
            "flags",
            f"{place} has {ignored.split()[0]!r}, which does not begin with --: XLA ignores it and all "
            "that follows",
            "write every flag as --name=value, without spaces around =",
        )
    yield from _tried(environment, place)


def _read(name: str) -> str | Finding:
    """The flags in a file; or why XLA does not get any."""
    path = Path(name)
    try:
        # A pipe would be empty for whoever comes next.
        if not path.exists() or path.is_file():
            return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        return Finding(
            Level.ERROR,
            "flags",
            f"{_VARIABLE} does not begin with --, so that XLA takes it for the name of a file of flags; "
            f"{name!r} cannot be read ({why}), which ends the program",
            "write every flag as --name=value, or give the name of a file that is there",
        )
    return Finding(
        Level.WARNING,
        "flags",
        f"{_VARIABLE} does not begin with --, so that XLA takes it for the name of a file of flags; "
        f"{name!r} is no regular file, and is not looked through",
        "write every flag as --name=value, or give the name of a regular file",
    )


def _ignored(flags: str) -> str:
    """What XLA does not read: all from the first word on that is no flag."""
    position = len(flags) - len(flags.lstrip(_SPACE))
    while found := _FLAG.match(flags, position):
        position = found.end()
    return flags[position:]


def _tried(environment: Mapping[str, str], place: str) -> Iterator[Finding]:
    # What is printed must not depend on how much the caller wants to see.
    told = {**environment, "TF_CPP_MIN_LOG_LEVEL": "0"}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _TRY],
            env=told,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_TRY_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding(
            Level.NOTE, "flags", f"whether jaxlib takes {_VARIABLE} is not known: {error}"
        )
        return
    said = done.stderr.decode(errors="replace")
    if found := _UNKNOWN.search(said):
        yield Finding(
            Level.ERROR,
            "flags",
            f"{place} has {found[1]}: the installed jaxlib does not know that, or it needs a value; "
            "this ends the program",
            "remove it, or write --name=value, without spaces",
        )
    elif found := _NO_VALUE.search(said):
        yield Finding(
            Level.ERROR,
            "flags",
            f"{place} has --{found[2]}={found[1]}, and the installed jaxlib cannot read that value, "
            "which ends the program",
            "give the flag a value of its type",
        )
    elif "parse_flags_from_env" in said:
        sentence = f"the installed jaxlib does not take {place.rstrip(',')}, which ends the program"
        yield Finding(Level.ERROR, "flags", sentence, "remove its flags one after the other")
    elif done.returncode:
        why = (said.splitlines() or [f"exit code {done.returncode}"])[-1]
        yield Finding(Level.NOTE, "flags", f"whether jaxlib takes {_VARIABLE} is not known: {why}")
