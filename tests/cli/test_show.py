"""`coordlab show`: the picture of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker import LiveProcesses, check
from checker.timeline import timeline
from coord_sim.cli.main import main
from tests.executions import load

HISTORIES = {execution.name: execution.history for execution in load()}
INVALID = HISTORIES["ghost-entry-of-a-restarted-caller"]
MOVED = HISTORIES["falsely-suspected-process-lives-on"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "run.jsonl")


def test_a_history_is_drawn_with_its_verdict(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    INVALID.save(path)
    assert main(["show", "--width", "80", path]) == 0
    expected = timeline(INVALID, check(INVALID), width=80)
    assert capsys.readouterr() == (expected + "\n", "")


def test_the_picture_follows_the_chosen_reading(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    MOVED.save(path)
    assert main(["show", "--width", "90", path]) == 0
    assert "crash taken here (recorded at 5)" in capsys.readouterr().out
    assert main(["show", "--width", "80", "--failures", "crash-stop", path]) == 0
    out = capsys.readouterr().out
    assert "crash taken here" not in out
    assert "\ninvalid\n" in out
    assert main(["show", "--width", "80", "--definition", "published", path]) == 0
    published = check(MOVED, LiveProcesses(definition="published"))
    assert capsys.readouterr().out == timeline(MOVED, published, width=80) + "\n"


def test_focus_and_ascii_are_passed_on(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    INVALID.save(path)
    assert main(["show", "--width", "70", "--focus", "--ascii", path]) == 0
    expected = timeline(INVALID, check(INVALID), width=70, focus=True, ascii_only=True)
    assert capsys.readouterr().out == expected + "\n"


def test_colours_are_for_terminals(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    INVALID.save(path)
    main(["show", path])
    assert "\x1b" not in capsys.readouterr().out


def test_a_torn_last_line_is_noted(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(path).write_text(INVALID.to_text()[:-9])
    assert main(["show", path]) == 0
    out, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert "is cut off (the recorder was killed?) and was skipped" in err
    assert "\nvalid\n" in out


@pytest.mark.parametrize("width", ["0", "-3", "wide"])
def test_a_width_is_a_positive_number(
    path: str, width: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["show", "--width", width, path])
    assert caught.value.code == 2
    assert "must be a whole number from 1 on" in capsys.readouterr().err


def test_any_width_is_drawn(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    INVALID.save(path)
    for width in ("1", "20", "1000"):
        assert main(["show", "--width", width, path]) == 0
        assert "process 0" in capsys.readouterr().out
