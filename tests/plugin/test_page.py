"""All python of `docs/testing.md` runs, as files of a user's test suite."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coord_sim.testing.serving import _SETTINGS as SERVER_SETTINGS
from coord_sim.testing.simulating import SimulatedRun

pytest_plugins = ("pytester",)

FEW_EXAMPLES = """
from hypothesis import settings

settings.register_profile("few", max_examples=15, deadline=None, derandomize=True)
settings.load_profile("few")
"""

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")


def test_every_file_on_the_page_passes(pytester: pytest.Pytester) -> None:
    files = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names = ("ten", "simulation", "server", "hypothesis", "machine")
    for name, text in zip(names, files, strict=True):
        (pytester.path / f"test_{name}.py").write_text(text, encoding="utf-8")
    pytester.makeconftest(FEW_EXAMPLES)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=20 + 1 + 5 + 1 + 3 + 1)


def test_the_ten_lines_are_ten() -> None:
    text = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    assert len([line for line in text.splitlines() if line.strip()]) <= 10


def test_the_page_names_what_there_is() -> None:
    told = set(re.findall(r"`(\w+)", PAGE))
    demands = {name for name in vars(SimulatedRun) if name.startswith(("require_", "succ"))}
    assert told >= demands
    assert {"durable", "processes"} <= set(SERVER_SETTINGS)
    assert set(re.findall(r"`(--coord-\w+)", PAGE)) == {
        "--coord-seed",
        "--coord-seeds",
        "--coord-out",
        "--coord-tape",
    }
