"""The examples of docs/specifications.md run, and its table is complete."""

from __future__ import annotations

import re
from pathlib import Path

from checker.specs import SPECS

PAGE = (Path(__file__).parents[3] / "docs" / "specifications.md").read_text(encoding="utf-8")


def test_the_examples_run() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert len(blocks) > 7
    exec(compile("\n".join(blocks), "docs/specifications.md", "exec"), {"__name__": "page"})


def test_all_names_are_listed() -> None:
    listed = re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE)
    assert set(listed) == set(SPECS)
