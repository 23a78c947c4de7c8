"""A report in all its forms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from checker.report.model import Page

FORMATS: Final = ("html", "svg", "json", "txt")
"""Forms that a report is written in; `json` is a trace for Perfetto and Chrome."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a history and its verdict look like.

    Attributes:
      page: The plain data that all forms are made of.
    """

    page: Page

    def html(self) -> str:
        """One page that needs nothing else, and no network."""
        from checker.report.html import html_of

        return html_of(self.page)

    def svg(self) -> str:
        """A picture; of a long history, the stretch around the anomaly."""
        from checker.report.svg import svg_of

        return svg_of(self.page)

    def text(self, width: int = 100, *, colour: bool = False, ascii_only: bool = False) -> str:
        """For terminals: the words, and a picture of what cannot hold together.

        Args:
          width: Columns to use.
          colour: Whether to add ANSI colours.
          ascii_only: Whether to do without line-drawing characters.
        """
        from checker.report.text import text_of

        return text_of(self.page, width, colour=colour, ascii_only=ascii_only)

    def perfetto(self) -> str:
        """A trace in Chrome's JSON format, which ui.perfetto.dev and chrome://tracing show."""
        from checker.report.perfetto import trace_of

        return trace_of(self.page)

    def save(self, path: str | Path, format: str | None = None) -> None:  # noqa: A002 - the word for it
        """Writes one form to a file.

        Args:
          path: Where to.
          format: One of `FORMATS`; by the suffix of `path` if left out.

        Raises:
          ValueError: there is no such form.
          OSError: the file cannot be written.
        """
        chosen = format or Path(path).suffix.removeprefix(".").lower()
        forms = {"html": self.html, "svg": self.svg, "json": self.perfetto, "txt": self.text}
        if chosen not in forms:
            raise ValueError(
                f"a report is written as {', '.join(FORMATS)}; {chosen or 'no suffix'!r} is none of them"
            )
        text = forms[chosen]()
        Path(path).write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")

    def _repr_html_(self) -> str:
        """For notebooks: the picture and the words, without scripts."""
        from checker.report.svg import notebook_html_of

        return notebook_html_of(self.page)
