"""The front page tells the truth."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from coord_sim.cli.main import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_python_example_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})


def commands() -> list[list[str]]:
    """The `coordlab` commands of the shell blocks."""
    found = []
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(re.sub(r"\s#.*", "", line))
            if words and words[0] == "coordlab":
                found.append(words[1:])
    return found


@pytest.mark.parametrize("words", commands(), ids=lambda words: words[0])
def test_each_command_has_the_options_that_the_page_uses(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """`--help` after the options is reached only if they are understood."""
    script = words.index("--") if "--" in words else len(words)
    with pytest.raises(SystemExit) as stopped:
        main([*words[:script], "--help"])
    assert stopped.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_the_page_names_each_make_target_that_it_promises() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in [*re.findall(r"^make (\w+)", README, re.MULTILINE), "bench", "layers"]:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
