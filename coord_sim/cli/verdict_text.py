"""A verdict as lines of text, the same for every subcommand."""

from __future__ import annotations

from collections.abc import Iterator

from checker import History, LiveProcesses, Valid, Verdict, check
from checker.live_processes import FailureModel


def verdict_lines(
    name: str,
    history: History,
    verdict: Verdict,
    *,
    definition: str = "round",
    failures: FailureModel = "suspicion",
    quiet: bool = False,
) -> Iterator[str]:
    """The verdict in one line, and what explains it, indented.

    Where the round reading does not hold, the line says whether the published one does; if it holds,
    so does the published one.
    """
    line = f"{name}: {verdict.word}"
    if definition == "round" and not isinstance(verdict, Valid):
        published = check(history, LiveProcesses(definition="published", failures=failures))
        line += f" (published: {published.word})"
    yield line
    if quiet:
        return
    for sentence in verdict.explain().split("\n"):
        yield f"  {sentence}"
    for gap in history.header.cannot_know:
        yield f"  The recorder cannot know {gap}."
