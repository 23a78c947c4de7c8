"""The examples of docs/campaigns.md."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from coord_sim.cli.campaign import CHECKPOINT
from coord_sim.cli.campaign_report import CASE, DRAWN, EXPLANATION, HISTORY, SCENARIO, TAPE
from coord_sim.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "campaigns.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_commands_end_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    codes = [main(shlex.split(command)[1:]) for command in commands.splitlines()]
    assert codes == [0, 1, 1, 1]
    printed = capsys.readouterr().out
    (shown,) = re.findall(r"```text\nseed 3.*?```", PAGE, re.DOTALL)
    for line in shown.splitlines()[1:-1]:
        assert line.strip() in ("...", *map(str.strip, printed.splitlines()))
    kept = {path.name for path in (tmp_path / "found" / "seed-3").iterdir()}
    assert kept == {CASE, DRAWN, EXPLANATION, HISTORY, SCENARIO, TAPE}
    assert (tmp_path / "found" / CHECKPOINT).exists()
    for name in (*kept, CHECKPOINT):
        assert f"`{name}`" in PAGE or f"DIR/{name}" in PAGE


def test_the_program_of_the_page_runs() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(program, "campaigns.md", "exec"), {})


def test_every_option_is_in_the_help_and_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["campaign", "--help"])
    known = set(re.findall(r"--[a-z]+(?:-[a-z]+)*(?![a-z-])", capsys.readouterr().out))
    told = set(re.findall(r"--[a-z][a-z-]+", PAGE)) - {"--nworkers", "--nthreads", "--scenario"}
    assert told <= known
    assert known - told == {"--help", "--definition", "--steps"}
