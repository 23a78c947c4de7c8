"""A report as text for terminals: the words, and a picture of what cannot hold together."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from checker.printable import printable
from checker.report.excerpt import Layout, excerpt
from checker.report.model import FAILED, NOWHERE, UNSEEN, Page
from checker.report.texts import count
from checker.report.words import about_left_out, gaps_of, summary

BARS_MAX = 24
"""So many operations are drawn."""

LINES_MAX = 12
"""So many lines of an order, of states and of answers are written."""

EXPLANATION_MAX = 30
"""So many lines of the explanation are written."""

WIDTH_MIN = 40

_LABEL_MAX = 32
_RED, _FAINT, _GREEN, _YELLOW, _BOLD = "1;31", "2", "32", "33", "1"
_TONES = {"valid": _GREEN, "invalid": _RED, "unknown": _YELLOW}


def text_of(page: Page, width: int, *, colour: bool, ascii_only: bool) -> str:
    """The report in lines of at most `width` columns, of which there are at least 40."""
    return "\n".join(_Writer(page, max(width, WIDTH_MIN), colour, ascii_only).lines())


class _Writer:
    def __init__(self, page: Page, width: int, colour: bool, ascii_only: bool) -> None:
        self._page = page
        self._width = width
        self._colour = colour
        self._ascii_only = ascii_only

    def lines(self) -> Iterator[str]:
        page = self._page
        yield from self._paragraph(summary(page), tone=_TONES[page.word])
        for line in page.explanation[:EXPLANATION_MAX]:
            indent = "  " + line[: len(line) - len(line.lstrip())]
            yield from self._paragraph(line.strip(), indent)
        more = len(page.explanation) - EXPLANATION_MAX
        if more > 0:
            yield from self._paragraph(f"({count(more, 'further line')})", "  ", tone=_FAINT)
        for note in page.notes:
            yield from self._paragraph(f"({note})", "  ", tone=_FAINT)
        yield from self._picture()
        yield from self._states()
        yield from self._order()
        yield from self._gaps()

    # --- words ----------------------------------------------------------------------------------

    def _clean(self, text: str) -> str:
        return printable(text, ascii_only=self._ascii_only, one_column=True)

    def _paint(self, text: str, tone: str) -> str:
        return f"\x1b[{tone}m{text}\x1b[0m" if self._colour and tone and text.strip() else text

    def _paragraph(self, text: str, indent: str = "", *, tone: str = "") -> Iterator[str]:
        wrapped = textwrap.wrap(
            self._clean(text),
            self._width,
            initial_indent=indent[: self._width // 2],
            subsequent_indent=(indent + "  ")[: self._width // 2],
            break_on_hyphens=False,
        )
        yield from (self._paint(line, tone) for line in wrapped)

    def _heading(self, text: str) -> Iterator[str]:
        yield ""
        yield from self._paragraph(text, tone=_BOLD)

    def _states(self) -> Iterator[str]:
        page = self._page
        if not page.states:
            return
        yield from self._heading(f"Possible just before {page.label(page.failing)} returned:")
        for state in page.states[:LINES_MAX]:
            given = ", ".join(page.label(bar) for bar in state.given)
            text = state.text + (f", if {given} took effect" if given else "")
            yield from self._paragraph(text + (f": {state.reason}" if state.reason else ""), "  ")
        more = page.state_count - min(len(page.states), LINES_MAX)
        if more > 0:
            yield from self._paragraph(f"and {more:,} more", "  ", tone=_FAINT)

    def _order(self) -> Iterator[str]:
        page = self._page
        if len(page.orders) != 1 or not page.orders[0].groups:
            return
        groups = page.orders[0].groups
        if page.is_prefix:
            shown = range(max(0, len(groups) - LINES_MAX), len(groups))
            title = "The longest legal order before that"
        else:
            shown = range(min(len(groups), LINES_MAX))
            title = "The order"
        part = f", {len(shown)} of {len(groups):,} steps" if len(shown) < len(groups) else ""
        yield from self._heading(f"{title}{part}:")
        for rank in shown:
            label = " and ".join(page.label(bar) for bar in groups[rank])
            yield from self._paragraph(f"#{rank + 1} {label}", "  ")

    def _gaps(self) -> Iterator[str]:
        page = self._page
        if page.failing == NOWHERE:
            return
        gaps = list(gaps_of(page, page.failing))
        if not gaps:
            return
        yield from self._heading(f"Why not here? {page.label(page.failing)}")
        if len(gaps) > LINES_MAX:
            yield from self._paragraph(f"{len(gaps) - LINES_MAX} earlier", "  ", tone=_FAINT)
        for gap in gaps[-LINES_MAX:]:
            text = f"{gap.where}, where the state is {gap.state}: "
            yield from self._paragraph(text + gap.said[0].lower() + gap.said[1:], "  ")

    # --- picture --------------------------------------------------------------------------------

    def _picture(self) -> Iterator[str]:
        page = self._page
        if not len(page.bars) or (not page.core and len(page.bars) > BARS_MAX):
            return
        chosen = excerpt(page, BARS_MAX, core_only=True)
        names = {
            page.bars.lane[bar]: self._clean(page.lanes[page.bars.lane[bar]].name)
            for bar in chosen.bars
        }
        name_width = min(max(map(len, names.values())), 20)
        room = self._width - name_width - 4
        labels = {bar: self._clean(_short(page.label(bar))) for bar in chosen.bars}
        layout = self._layout(chosen.bars, labels)
        legend = layout.width > room
        if legend:
            short = {bar: str(number) for number, bar in enumerate(chosen.bars, start=1)}
            layout = self._layout(chosen.bars, short)
        else:
            short = labels
        yield ""
        if layout.width <= room:
            for lane in sorted(names):
                prefix = names[lane][:name_width]
                for row in self._rows(lane, chosen.bars, short, layout):
                    yield f"{prefix:{name_width}}  {row}"
                    prefix = ""
        if legend:
            for bar in chosen.bars:
                flag = " <- here" if bar == page.failing else ""
                yield from self._paragraph(f"{short[bar]}: {page.label(bar)}{flag}", "  ")
        left_out = about_left_out(page, chosen.left_out)
        if left_out:
            yield from self._paragraph(f"({left_out})", tone=_FAINT)

    def _layout(self, bars: Sequence[int], labels: dict[int, str]) -> Layout:
        # One column each: end, space, label, space; two more and a sign for an open or failing end.
        return Layout(self._page, bars, (), lambda bar: len(labels[bar]) + 6, 1)

    def _rows(
        self, lane: int, shown: Sequence[int], labels: dict[int, str], layout: Layout
    ) -> Iterator[str]:
        bars = self._page.bars
        rows = sorted({bars.row[bar] for bar in shown if bars.lane[bar] == lane})
        for row in rows:
            line, column = "", 0
            for bar in shown:
                if bars.lane[bar] != lane or bars.row[bar] != row:
                    continue
                start = int(layout.at(bars.start[bar]))
                text = self._bar(bar, labels[bar], start, layout)
                line += " " * (start - column) + self._paint(text, self._tone(bar))
                column = start + len(text)
            yield line

    def _bar(self, bar: int, label: str, start: int, layout: Layout) -> str:
        bars = self._page.bars
        left, right, rule, sign = "[]-!" if self._ascii_only else "├┤─◄"
        if bars.outcome[bar] == UNSEEN or bars.end[bar] == NOWHERE:
            return f"{left} {label} {rule} ?"
        width = int(layout.at(bars.end[bar])) - start + 1
        flag = sign if bar == self._page.failing else "x" if bars.outcome[bar] == FAILED else ""
        text = f"{left}{rule} {label} "
        return text + rule * (width - len(text) - 1 - len(flag)) + right + flag

    def _tone(self, bar: int) -> str:
        if bar == self._page.failing:
            return _RED
        return _FAINT if bar in self._page.context else ""


def _short(text: str) -> str:
    return text if len(text) <= _LABEL_MAX else text[: _LABEL_MAX - 1] + "…"
