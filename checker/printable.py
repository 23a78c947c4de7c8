"""Text from a history that may be printed: whatever it holds, it stays where it is put."""

from __future__ import annotations

import unicodedata


def printable(text: str, *, ascii_only: bool = False, one_column: bool = False) -> str:
    """The text with backslash escapes for what a terminal would obey or an encoder refuse.

    Names of operations, codes and causes come from programs, and file names from anybody: they may
    hold line breaks, terminal commands or halves of surrogate pairs.

    Args:
      text: One line.
      ascii_only: Whether to escape all that is not ASCII, too.
      one_column: Whether to escape characters that take two columns or none, too.
    """
    if text.isascii() and text.isprintable():
        return text
    if ascii_only:
        text = text.replace("…", "...")
    return "".join(
        char
        if char.isprintable()
        and (char.isascii() or not ascii_only)
        and (not one_column or _is_one_column(char))
        else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def _is_one_column(char: str) -> bool:
    is_mark = unicodedata.category(char).startswith("M")
    return not is_mark and unicodedata.east_asian_width(char) not in "WF"
