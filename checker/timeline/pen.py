"""What lines are drawn with: characters and colours."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from checker.timeline.marks import Sign


@dataclass(frozen=True, slots=True)
class Symbols:
    """The characters of one alphabet, each one column wide."""

    signs: Mapping[Sign, str]
    lines: Mapping[str, str]
    rule: str
    gap: str
    accused: str
    cut: str


BOX = Symbols(
    signs={
        Sign.CONNECTING: "╷",
        Sign.START: "●",
        Sign.DYING: "×",
        Sign.CRASH: "×",
        Sign.LEAVE: "○",
        Sign.INVOKE: "╥",
        Sign.RESPONSE: "╨",
        Sign.ENTER: "▷",
        Sign.EXIT: "◁",
        Sign.TAKEN: "×",
    },
    lines={"alive": "│", "open": "║", "between": "╎", "dead": " "},
    rule="─",
    gap="⋮",
    accused="◄",
    cut="…",
)
ASCII = Symbols(
    signs={
        Sign.CONNECTING: ".",
        Sign.START: "*",
        Sign.DYING: "x",
        Sign.CRASH: "x",
        Sign.LEAVE: "o",
        Sign.INVOKE: "[",
        Sign.RESPONSE: "]",
        Sign.ENTER: ">",
        Sign.EXIT: "<",
        Sign.TAKEN: "x",
    },
    lines={"alive": "|", "open": ":", "between": ".", "dead": " "},
    rule="-",
    gap=":",
    accused="!",
    cut="~",
)


class Tone(enum.Enum):
    """Codes of ANSI's "select graphic rendition"."""

    PLAIN = ""
    FAINT = "2"
    BORN = "32"
    DEAD = "31"
    MOVED = "35"
    ROUND = "36"
    ACCUSED = "1;31"


TONES: Mapping[Sign, Tone] = {
    Sign.START: Tone.BORN,
    Sign.DYING: Tone.DEAD,
    Sign.CRASH: Tone.DEAD,
    Sign.TAKEN: Tone.MOVED,
    Sign.ROUND: Tone.ROUND,
}


CHARACTERS = "".join([*BOX.signs.values(), *BOX.lines.values(), *"─⋮◄…"])
"""What an output must be able to show, or be drawn on in ASCII."""


class Pen:
    """Writes symbols, and colours if wanted."""

    def __init__(self, symbols: Symbols, *, colour: bool) -> None:
        self.symbols = symbols
        self._colour = colour

    def cut(self, text: str, width: int) -> str:
        """The text, shortened to `width` columns."""
        return text if len(text) <= width else text[: width - 1] + self.symbols.cut

    def paint(self, text: str, tone: Tone) -> str:
        """The text in a colour."""
        if not self._colour or tone is Tone.PLAIN or not text.strip():
            return text
        return f"\x1b[{tone.value}m{text}\x1b[0m"
