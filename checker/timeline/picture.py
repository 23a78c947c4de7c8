"""The lines of the picture: which lanes, how wide, and what stands in them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from checker.clock_text import ClockText
from checker.history.history import History
from checker.live_processes.witness import Witness
from checker.timeline.facts import Facts
from checker.timeline.lane import Lane
from checker.timeline.marks import Mark, marks_of
from checker.timeline.pen import ASCII, BOX, TONES, Pen, Tone
from checker.timeline.rows import Row, near, rows_of
from checker.timeline.words import Words
from checker.verdict import Invalid, Valid, Verdict

LANE_WIDTH_MIN = 14
"""Narrower lanes are not readable: rather than that, fewer processes are shown."""

_GAP = 2
_TEXT_WIDTH_MIN = 40
_NO_BREAK = "\N{NO-BREAK SPACE}"
_SECONDS = re.compile(r"(?<=\d) s\b")


def timeline(
    history: History,
    verdict: Verdict | None = None,
    *,
    width: int = 100,
    colour: bool = False,
    focus: bool = False,
    ascii_only: bool = False,
) -> str:
    """The picture of a history, as one string without a last newline.

    Args:
      history: What to draw.
      verdict: Its verdict. `Valid` adds the rounds, and the crashes that had to be moved, as rows
        of their own; `Invalid` marks the operations of the anomaly. The explanation follows.
      width: Columns to use. Lanes have a least width, so that one process needs about 30; if there
        is no room for all processes, those that matter to the verdict are shown.
      colour: Whether to add ANSI colours.
      focus: Whether to leave out what is far from the anomaly, in time or because the process has
        nothing to do with it. Without an anomaly everything is shown.
      ascii_only: Whether to do without box-drawing characters.
    """
    return "\n".join(
        timeline_lines(
            history, verdict, width=width, colour=colour, focus=focus, ascii_only=ascii_only
        )
    )


def timeline_lines(
    history: History,
    verdict: Verdict | None = None,
    *,
    width: int = 100,
    colour: bool = False,
    focus: bool = False,
    ascii_only: bool = False,
) -> Iterator[str]:
    """The same picture line by line, for histories that are long."""
    facts = Facts(history)
    words = Words(facts, ascii_only=ascii_only)
    clock = ClockText(history)
    marks = marks_of(history, verdict, facts, words, clock)
    anomaly = verdict.anomaly if focus and isinstance(verdict, Invalid) else None
    candidates = history.header.participants
    if anomaly is not None and anomaly.processes:
        candidates = anomaly.processes
    time_width = max(
        [len("time"), *(len(clock.at(mark.time_ns)) for mark in (*marks[:1], *marks[-1:]))]
    )
    lanes = _lanes(candidates, verdict, facts, room=width - time_width)
    rows = list(rows_of(marks, frozenset(lanes)))
    kept = range(len(rows)) if anomaly is None else near(rows, anomaly)
    layout = _Layout.fitting(lanes, [rows[position] for position in kept], time_width, width)
    pen = Pen(ASCII if ascii_only else BOX, colour=colour)
    left_out = len(history.header.participants) - len(lanes)
    if left_out:
        yield _about_lanes(left_out, len(lanes) < len(candidates))
    yield _header(layout, pen)
    yield from _body(rows, kept, layout, pen, clock)
    if verdict is not None:
        yield ""
        yield from _conclusion(verdict, words, width, pen)


# --- lanes -------------------------------------------------------------------------------------


def _lanes(
    candidates: Sequence[int], verdict: Verdict | None, facts: Facts, *, room: int
) -> tuple[int, ...]:
    """The processes to show, ascending; the ones that matter most if there is no room for all."""
    count = max(1, room // (_GAP + LANE_WIDTH_MIN))
    if len(candidates) <= count:
        return tuple(candidates)
    callers: set[int] = set()
    involved: set[int] = set()
    if isinstance(verdict, Invalid):
        callers = {facts.caller[id_] for id_ in verdict.anomaly.operations if id_ in facts.caller}
        involved = set(verdict.anomaly.processes)
    elif isinstance(verdict, Valid) and isinstance(verdict.witness, Witness):
        involved = {failure.process for failure in verdict.witness.failures}

    def importance(process: int) -> tuple[bool, bool, bool, int]:
        has_died = process in facts.restarted
        return (process not in callers, process not in involved, not has_died, process)

    return tuple(sorted(sorted(candidates, key=importance)[:count]))


def _about_lanes(left_out: int, lack_of_room: bool) -> str:
    are = "1 process is" if left_out == 1 else f"{left_out} processes are"
    why = "a larger width shows more" if lack_of_room else "not part of the anomaly"
    return f"({are} not shown: {why})"


# --- lines -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Layout:
    lanes: tuple[int, ...]
    time_width: int
    lane_width: int
    width: int

    @staticmethod
    def fitting(
        lanes: tuple[int, ...], rows: Sequence[Row], time_width: int, width: int
    ) -> _Layout:
        """Lanes as wide as the texts need, or as there is room for."""
        wanted = max(
            (
                len(mark.text_and_detail) + (4 if mark.is_accused else 2)
                for row in rows
                for process, mark in row.marks.items()
                if process is not None
            ),
            default=0,
        )
        room = (width - time_width) // len(lanes) - _GAP
        lane_width = max(LANE_WIDTH_MIN, min(room, max(wanted, len("process 99"))))
        return _Layout(lanes, time_width, lane_width, width)

    @property
    def lanes_width(self) -> int:
        return len(self.lanes) * (self.lane_width + _GAP) - _GAP


def _header(layout: _Layout, pen: Pen) -> str:
    line = "time".rjust(layout.time_width)
    for process in layout.lanes:
        line += " " * _GAP + f"process {process}".ljust(layout.lane_width)
    return pen.paint(line.rstrip(), Tone.FAINT)


def _body(
    rows: list[Row], kept: Sequence[int], layout: _Layout, pen: Pen, clock: ClockText
) -> Iterator[str]:
    lanes = {process: Lane() for process in layout.lanes}
    done = 0
    for position in kept:
        for row in rows[done:position]:
            _pass(row, lanes)
        yield from _gap(position - done, layout, pen)
        row = rows[position]
        yield _line(row, lanes, layout, pen, clock)
        _pass(row, lanes)
        yield from _detail_lines(row, lanes, layout, pen)
        done = position + 1
    yield from _gap(len(rows) - done, layout, pen)


def _pass(row: Row, lanes: Mapping[int, Lane]) -> None:
    for process, mark in row.marks.items():
        if process is not None:
            lanes[process].pass_(mark)


def _gap(count: int, layout: _Layout, pen: Pen) -> Iterator[str]:
    if count:
        text = f"{count} row{'' if count == 1 else 's'} left out"
        indent = " " * (layout.time_width + _GAP)
        yield pen.paint(f"{indent}{pen.symbols.gap} {text}", Tone.FAINT)


def _line(row: Row, lanes: Mapping[int, Lane], layout: _Layout, pen: Pen, clock: ClockText) -> str:
    time = pen.paint(clock.at(row.time_ns).rjust(layout.time_width), Tone.FAINT)
    if row.rule is not None:
        return f"{time}{' ' * _GAP}{_rule(row.rule, layout, pen)}"
    cells = []
    for process in layout.lanes:
        mark = row.marks.get(process)
        if mark is None:
            cells.append(_idle_cell(lanes[process], "", layout.lane_width, pen))
        else:
            cells.append(_cell(mark, layout.lane_width, pen))
    return _joined(time, cells)


def _detail_lines(row: Row, lanes: Mapping[int, Lane], layout: _Layout, pen: Pen) -> Iterator[str]:
    """A second line for what found no room beside a mark that stands alone."""
    for process, mark in row.marks.items():
        if process is not None and mark.detail and not _fits(mark, layout.lane_width):
            details = {process: mark.detail}
            cells = [
                _idle_cell(lanes[lane], details.get(lane, ""), layout.lane_width, pen)
                for lane in layout.lanes
            ]
            yield _joined(" " * layout.time_width, cells)


def _joined(time: str, cells: Sequence[str]) -> str:
    return (time + " " * _GAP + (" " * _GAP).join(cells)).rstrip()


def _fits(mark: Mark, width: int) -> bool:
    return len(mark.text_and_detail) + 2 <= width


def _idle_cell(lane: Lane, text: str, width: int, pen: Pen) -> str:
    line = pen.symbols.lines[lane.line]
    text = pen.cut(text, width - 2)
    padding = " " * (width - 2 - len(text))
    return pen.paint(line, Tone.FAINT) + " " + pen.paint(text, Tone.FAINT) + padding


def _cell(mark: Mark, width: int, pen: Pen) -> str:
    room = width - 2 - (2 if mark.is_accused else 0)
    text = mark.text_and_detail if _fits(mark, width) else mark.text
    text = pen.symbols.signs[mark.sign] + " " + pen.cut(text, room)
    if mark.is_accused:
        text += f" {pen.symbols.accused}"
    tone = Tone.ACCUSED if mark.is_accused else TONES.get(mark.sign, Tone.PLAIN)
    return pen.paint(text, tone) + " " * (width - len(text))


def _rule(mark: Mark, layout: _Layout, pen: Pen) -> str:
    rule = pen.symbols.rule
    width = max(layout.lanes_width, LANE_WIDTH_MIN)
    text = f"{rule * 2} {pen.cut(mark.text, width - 4)} "
    return pen.paint(text + rule * (width - len(text)), TONES[mark.sign])


def _conclusion(verdict: Verdict, words: Words, width: int, pen: Pen) -> Iterator[str]:
    yield pen.paint(verdict.word, Tone.ACCUSED if isinstance(verdict, Invalid) else Tone.PLAIN)
    for line in verdict.explain().splitlines():
        indent = "  " + line[: len(line) - len(line.lstrip())]
        wrapped = textwrap.wrap(
            _SECONDS.sub(f"{_NO_BREAK}s", words.clean(line.strip())),
            max(width, _TEXT_WIDTH_MIN),
            initial_indent=indent,
            subsequent_indent=indent + "  ",
            break_on_hyphens=False,
        )
        yield from (part.replace(_NO_BREAK, " ") for part in wrapped)
