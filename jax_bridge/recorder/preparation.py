"""The folder by which programs are recorded.

    FOLDER/startup/sitecustomize.py   on PYTHONPATH: what every Python executes
    FOLDER/packages                   what that imports, if the folder is to work on other machines
    FOLDER/parts                      the recordings

The start-up file finds the rest beside itself, so that the folder may be called otherwise elsewhere.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_TEMPLATE = Path(__file__).parent / "startup" / "sitecustomize.py"
_NEEDED_FILES = ("__init__.py", "client_recorder.py", "compat.py", "import_hook.py")
"""Of our package, besides the folder of this file."""

_SETTING = 'PACKAGES = ""\n'


class InTheWay(Exception):
    """Something lies where the folder should be made."""


def prepare(folder: Path, *, for_other_machines: bool) -> None:
    """Makes the folder.

    Args:
      folder: Must not exist, or be empty.
      for_other_machines: Put a copy of our package into it, so that programs need nothing else.

    Raises:
      InTheWay: the folder holds something.
      OSError: it cannot be made.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InTheWay(f"{folder} is in the way; move it away, or name another folder")
    parts_of(folder).mkdir(parents=True)
    startup = startup_of(folder)
    startup.mkdir()
    program = _TEMPLATE.read_text(encoding="utf-8")
    if for_other_machines:
        copy = folder / "packages" / _PACKAGE.name
        copy.mkdir(parents=True)
        for name in _NEEDED_FILES:
            shutil.copyfile(_PACKAGE / name, copy / name)
        recorder = Path(__file__).parent
        shutil.copytree(
            recorder, copy / recorder.name, ignore=shutil.ignore_patterns("__pycache__")
        )
    else:
        assert program.count(_SETTING) == 1
        program = program.replace(_SETTING, f"PACKAGES = {str(_PACKAGE.parent)!r}\n")
    (startup / _TEMPLATE.name).write_text(program, encoding="utf-8")


def parts_of(folder: Path) -> Path:
    """Where the recordings are."""
    return folder / "parts"


def startup_of(folder: Path) -> Path:
    """What must be on the path of programs."""
    return folder / "startup"


def recording(base: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment of a command that is to be recorded.

    Args:
      base: What the command would get otherwise.
      folder: As prepared.
    """
    path = [str(startup_of(folder).absolute()), base.get("PYTHONPATH", "")]
    return {**base, "PYTHONPATH": os.pathsep.join(entry for entry in path if entry)}
