"""A verdict as lines of text, the same for every subcommand."""

from __future__ import annotations

from collections.abc import Iterator

from checker import History, LiveProcesses, Verdict
from coord_sim.cli.reading import published_verdict
from coord_sim.cli.terminal import plain


def verdict_lines(
    name: str,
    history: History,
    verdict: Verdict,
    *,
    spec: LiveProcesses | None = None,
    quiet: bool = False,
) -> Iterator[str]:
    """The verdict in one line, and what explains it, indented.

    Where the round reading does not hold, the line says whether the published one does; if it
    holds, so does the published one.

    Args:
      name: What was checked: a file, a seed.
      history: The history.
      verdict: Its verdict under `spec`.
      spec: The default one if left out.
      quiet: Whether to leave out the explanation.
    """
    line = f"{plain(name)}: {verdict.word}"
    published = published_verdict(history, verdict, spec or LiveProcesses())
    if published is not None and published is not verdict:
        line += f" (published: {published.word})"
    yield line
    if quiet:
        return
    for sentence in verdict.explain().splitlines():
        yield f"  {plain(sentence)}"
    for gap in history.header.cannot_know:
        yield f"  The recorder cannot know {plain(gap)}."
