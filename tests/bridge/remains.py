"""What a run left behind on this machine: processes, sockets that listen, open files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

MARKER = "COORDLAB_RUN_MARK"
"""In the environment of all that a run starts, as they inherit it."""


def marked(mark: str) -> list[int]:
    """The processes that have this mark in their environment, zombies left out."""
    wanted = f"{MARKER}={mark}".encode()
    return [
        pid for pid in _processes() if wanted in _read(Path(f"/proc/{pid}/environ")).split(b"\0")
    ]


def listening() -> dict[int, str]:
    """The TCP ports of this machine that are listened on, each with its socket's inode."""
    ports = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in _read(Path(table)).decode().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                ports[int(fields[1].rpartition(":")[2], 16)] = fields[9]
    return ports


def sockets_of(pid: int | str) -> set[str]:
    """The inodes of the sockets that a process has open."""
    found = set()
    for link in _descriptors(pid):
        if link.startswith("socket:["):
            found.add(link.removeprefix("socket:[").removesuffix("]"))
    return found


def open_files() -> int:
    """How many descriptors this process has open."""
    return len(list(_descriptors("self")))


def is_open(path: Path) -> bool:
    """Whether some process has a file open."""
    return any(link == str(path) for pid in _processes() for link in _descriptors(pid))


def held_sockets() -> set[str]:
    """The inodes of the sockets that any process has open."""
    return {inode for pid in _processes() for inode in sockets_of(pid)}


def _processes() -> Iterator[int]:
    yield from (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())


def _descriptors(pid: int | str) -> Iterator[str]:
    try:
        links = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return  # It has ended meanwhile.
    for link in links:
        with contextlib.suppress(OSError):  # It was the descriptor of this very listing.
            yield str(link.readlink())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # It has ended meanwhile.
