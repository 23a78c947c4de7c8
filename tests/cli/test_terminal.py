"""What is asked of the terminal, and what is only shown on one."""

from __future__ import annotations

import io
import sys

import pytest

from coord_sim.cli import terminal
from coord_sim.cli.terminal import Progress


class Screen(io.TextIOWrapper):
    """A terminal that remembers."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.bytes = io.BytesIO()
        super().__init__(self.bytes, encoding=encoding, write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        return self.bytes.getvalue().decode()


def watched(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Puts a terminal in the place of both outputs; pytest undoes what a fixture does to them."""
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return screen


def test_a_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    watched(monkeypatch)
    assert terminal.use_colour()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    watched(monkeypatch)
    monkeypatch.setenv(name, value)
    assert not terminal.use_colour()


def test_a_pipe_gets_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    assert not terminal.use_colour()


@pytest.mark.parametrize(
    ("encoding", "expected"), [("utf-8", False), ("ascii", True), ("latin-1", True)]
)
def test_box_drawing_needs_an_encoding_that_has_it(
    monkeypatch: pytest.MonkeyPatch, encoding: str, expected: bool
) -> None:
    monkeypatch.setattr(sys, "stdout", Screen(encoding))
    assert terminal.ascii_only() is expected


def test_progress_is_drawn_on_a_terminal_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watched(monkeypatch)
    with Progress("event") as progress:
        progress.step(65536)
        progress.say("checking")
    assert screen.text == "\revent 65,536\x1b[K\rchecking\x1b[K\r\x1b[K"


def test_progress_is_removed_before_an_error_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watched(monkeypatch)
    progress = Progress("seed", 500)

    def work() -> None:
        with progress:
            progress.step(3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert screen.text == "\rseed 3 of 500\x1b[K\r\x1b[K"


def test_progress_is_not_drawn_more_often_than_people_see(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watched(monkeypatch)
    with Progress("event") as progress:
        for count in range(1000):
            progress.step(count)
    assert 1 <= screen.text.count("event") < 100


def test_progress_is_silent_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("event") as progress:
        progress.step(1)
        progress.say("checking")
    assert capsys.readouterr() == ("", "")


def test_nothing_is_removed_where_nothing_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watched(monkeypatch)
    with Progress("event"):
        pass
    assert screen.text == ""
