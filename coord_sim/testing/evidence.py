"""What is kept of a failed test: files in a folder of its own."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

_NAME_MAX: Final = 80


class Evidence(Protocol):
    """Something that a test used and that has a story to tell."""

    @property
    def seed(self) -> int | None:
        """The seed that it ran with; None if it has none."""

    def keep(self, folder: Path) -> Iterable[str]:
        """Writes files into a folder that exists; returns lines that say what happened."""


def fresh_folder(above: Path, test: str) -> Path:
    """An empty folder for a test; what an earlier failure of the same test left there is gone.

    Args:
      above: In which folder; made if it is not there.
      test: The id of the test.
    """
    digest = hashlib.blake2b(test.encode(), digest_size=4).hexdigest()
    words = re.sub(r"[^\w.=]+", "-", test)[-_NAME_MAX:].strip("-.")
    folder = above / f"{words}-{digest}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
