"""What a traceback of Python tells, line by line: a plain one, a chain of them, a group of exceptions.

A group is drawn with a margin, and deeper ones inside it:

      + Exception Group Traceback (most recent call last):
      |   File "/job/train.py", line 10, in <module>
      | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)
      +-+---------------- 1 ----------------
        | Traceback (most recent call last):
        |   File "/job/train.py", line 3, in load
        | ValueError: bad learning rate
        +---------------- 2 ----------------
        | KeyError: 'w'
        +------------------------------------

It tells its leaves: what was raised, not that somebody gathered it. A group whose leaves are not there
tells itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from jax_bridge.explain.prefixes import GROUP, TRACEBACK

LINES_MAX = 60
"""So many lines of a traceback are kept, without frames; what follows a longer one is not its own."""

_CHAINED = re.compile(
    r"During handling of the above exception|The above exception was the direct cause"
)
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?::|$)")
_GOES_ON = re.compile(
    r'\s+File ".*", line \d+|(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*(?::|$)'
    r"|\w*(?:Error|Exception|Exit|Interrupt|Warning)(?::|$)"
)
"""What stands in a traceback alone, and in no message."""
_FRAME = re.compile(r'\s+File "(.*)", line (\d+)')
_LIBRARY = re.compile(r"[/\\](?:site-packages|dist-packages|runpy\.py|jax_bridge)|<frozen ")

_DRAWN = re.compile(
    r"(?P<indent>\s*)(?:\+(?P<deeper>-\+)?-{4,}(?P<number> (?:\d+|\.\.\.) -+)?$|\| ?(?P<text>.*))"
)
"""A line of a group: a rule with the number of what comes, the rule at the end, or what is told."""
_BEGINS_DRAWN = re.compile(
    rf"\s+(?:\+ {re.escape(GROUP)}$|\| [A-Za-z_][\w.]*: .*\(\d+ sub-exceptions?\)$)"
)
"""The first line of a group; one that `except*` has raised again has no header."""


@dataclass(slots=True)
class Raised:
    """One exception of a traceback, or one that is gathered in a group.

    Attributes:
      line: Where it begins.
      texts: Its lines without frames and margins; those of the groups around it come first.
      exception: `Type: text`, the last of a chain; may span lines.
      exception_line: Where that stands.
      frame: The innermost place in the program's own files, `FILE:LINE`.
      indent: Where its margin stands.
      is_headed: Whether a header came, so that it is an exception although its text is cut off.
      in_frames: Whether its text is still to come.
      is_chained: Whether the next exception of the chain is still to come.
      leaves: What was gathered in it.
    """

    line: int
    texts: list[str] = field(default_factory=list)
    exception: str = ""
    exception_line: int = 0
    frame: str = ""
    indent: int = 0
    is_headed: bool = False
    in_frames: bool = True
    is_chained: bool = False
    leaves: list[Raised] = field(default_factory=list)

    def head(self, text: str) -> None:
        """Takes the header of its traceback, or of the next one in the chain."""
        if not self.is_headed:
            self.texts.append(text)
        self.is_headed = self.in_frames = True
        self.is_chained = False

    def take(self, number: int, text: str) -> bool:
        """Takes another line; whether it is kept."""
        if self.in_frames:
            if frame := _FRAME.match(text):
                if not _LIBRARY.search(frame[1]):
                    self.frame = f"{frame[1]}:{frame[2]}"
            elif not text[:1].isspace() and _EXCEPTION.match(text):
                self.exception, self.exception_line = text, number
                self.texts += [one for leaf in self.leaves for one in leaf.texts]
                self.texts.append(text)
                self.leaves, self.in_frames = [], False
                return True
            return False
        self.goes_into_chain(text)
        self.texts.append(text)
        if text.strip() and not self.is_chained:
            self.exception += "\n" + text
        return True

    def goes_into_chain(self, text: str) -> bool:
        """Whether the next exception of a chain is to come, as this line says or one before."""
        self.is_chained = self.is_chained or _CHAINED.match(text) is not None
        return self.is_chained

    def gather(self, inner: Raised) -> None:
        """Takes an exception that is complete into this group."""
        if inner.leaves:
            found = inner.leaves
        elif inner.is_headed or inner.exception:
            found = [inner]
        else:
            return  # A remark: that there are more of them, or deeper ones.
        for leaf in found:
            leaf.frame = leaf.frame or self.frame
            leaf.texts = [*self.texts, *leaf.texts]
        self.leaves += found


class Traceback:
    """A traceback while it is read.

    Args:
      number, text: Its first line.
      time_s: When that was printed, if a prefix tells.
    """

    def __init__(self, number: int, text: str, time_s: float | None) -> None:
        self.time_s = time_s
        self._open = [Raised(number)]
        self._is_drawn = False
        self._may_end = False  # A rule ends all groups that have nothing more to tell.
        self._kept = 0
        if text.startswith(TRACEBACK):
            self._open[0].head(text)
        elif _BEGINS_DRAWN.match(text):
            self._begin_drawn(number, text)
        else:
            self._open[0].texts.append(text)
            self._open[0].take(number, text)

    @classmethod
    def begins(cls, text: str) -> bool:
        """Whether this is the first line of one."""
        return text.startswith(TRACEBACK) or _BEGINS_DRAWN.match(text) is not None

    @property
    def is_open(self) -> bool:
        """Whether the end of it must still come."""
        return self._open[0].in_frames or (self._is_drawn and not self._may_end)

    def goes_on_with(self, text: str) -> bool:
        """Whether this can stand behind a message that has torn it."""
        drawn = self._is_drawn and _DRAWN.match(text) is not None
        return drawn or _GOES_ON.match(text) is not None

    def feed(self, number: int, text: str) -> bool:
        """Takes a line; whether it belongs to this traceback."""
        if self._is_drawn:
            if drawn := _DRAWN.match(text):
                self._take_drawn(number, drawn)
                return True
            if self._may_end:
                self._close_all()
        outermost = self._open[0]
        if self.begins(text):
            if not outermost.is_chained:
                return False
            if text.startswith(TRACEBACK):
                outermost.head(text)
            else:
                self._begin_drawn(number, text)
            return True
        if outermost.leaves and not (self._is_drawn or outermost.is_chained or outermost.in_frames):
            # The rule at the end leaves no doubt where a group ends: only a chain may go on.
            return not text.strip() or outermost.goes_into_chain(text)
        return self._take(number, text)

    def raised(self) -> list[Raised]:
        """What it tells, when it is complete."""
        self._close_all()
        return self._open[0].leaves or self._open

    def _begin_drawn(self, number: int, text: str) -> None:
        self._is_drawn, self._may_end = True, False
        outermost, told = self._open[0], text.lstrip(" +|")
        outermost.indent = len(text) - len(text.lstrip())
        if told == GROUP:
            outermost.head(told)
        else:
            outermost.in_frames, outermost.is_chained = True, False
            outermost.take(number, told)

    def _take_drawn(self, number: int, drawn: re.Match[str]) -> None:
        indent, text = len(drawn["indent"]), drawn["text"]
        is_first = drawn["deeper"] is not None
        self._may_end = False
        # A rule stands at the margin of what it ends; the first one, and a text, at their own group's.
        kept = indent if text is not None or is_first else indent - 1
        while len(self._open) > 1 and self._open[-1].indent > kept:
            self._close()
        if text is not None:
            self._take_told(number, text)
        elif is_first or drawn["number"]:
            self._open.append(
                Raised(
                    number,
                    indent=indent + 2 * is_first,
                    in_frames=self._kept < LINES_MAX,  # Else nothing of it is kept.
                )
            )
        else:
            self._may_end = True
            self._is_drawn = len(self._open) > 1

    def _take_told(self, number: int, text: str) -> None:
        top = self._open[-1]
        may_begin = top.is_chained or not (top.is_headed or top.exception)
        if text in {TRACEBACK, GROUP} and may_begin and self._kept < LINES_MAX:
            top.head(text)
        else:
            self._take(number, text)

    def _take(self, number: int, text: str) -> bool:
        top = self._open[-1]
        if self._kept >= LINES_MAX and not top.in_frames:
            return False
        self._kept += top.take(number, text)
        return True

    def _close(self) -> None:
        inner = self._open.pop()
        self._open[-1].gather(inner)

    def _close_all(self) -> None:
        while len(self._open) > 1:
            self._close()
        self._is_drawn = False


def shows_source(text: str) -> bool:
    """Whether this may be the first line of what is said of a file that is no Python.

    There is no header:

          File "/job/train.py", line 2
            def f(:
                  ^
        SyntaxError: invalid syntax
    """
    found = _FRAME.match(text)
    return found is not None and found.end() == len(text)


def is_bad_syntax(text: str) -> bool:
    """Whether this is the last line of what is said of a file that is no Python."""
    return re.match(r"(?:Syntax|Indentation|Tab)Error: ", text) is not None
