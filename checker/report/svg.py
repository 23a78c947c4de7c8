"""A report as a picture, for documents and notebooks: nothing in it runs."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from importlib.resources import files

from checker.report.excerpt import Layout, excerpt
from checker.report.model import FAILED, NOWHERE, UNSEEN, Mark, Order, Page
from checker.report.words import about_left_out, summary

BARS_MAX = (160, 80, 40, 20, 10)
"""So many operations are drawn: the first number with which the picture is not too wide."""

WIDTH_MAX = 2400
"""A wider picture is too wide, in pixels."""

_CHAR = 6.7
"""Width of a character, in pixels, of the font that labels are set in."""

_LABEL_MAX = 40
_STEP = 7
_BAR = 22
_ROW = 36
_THIN = 20
_TOP = 14
_MARGIN = 12


def svg_of(page: Page) -> str:
    """The picture. From left to right is the order of events; distances mean nothing."""
    return _Picture(page).draw()


def notebook_html_of(page: Page) -> str:
    """The picture with the words, for notebooks."""
    lines = "\n".join([*page.explanation, *page.notes])
    return (
        '<div style="max-width:100%">'
        f'<div style="overflow-x:auto">{svg_of(page)}</div>'
        f'<pre style="white-space:pre-wrap">{escape(lines)}</pre></div>'
    )


class _Picture:
    def __init__(self, page: Page) -> None:
        self._page = page
        for bars_max in BARS_MAX:
            self._take(bars_max)
            if self._width <= WIDTH_MAX:
                break

    def _take(self, bars_max: int) -> None:
        page = self._page
        self._excerpt = excerpt(page, bars_max)
        bars, shown = page.bars, self._excerpt.bars
        self._labels = {bar: _short(page.label(bar)) for bar in shown}
        first = min((bars.start[bar] for bar in shown), default=0)
        last = max((max(bars.start[bar], bars.end[bar]) for bar in shown), default=0)
        if not self._excerpt.left_out:
            first, last = -1, max(last, page.length)
        self._marks = [
            mark for mark in page.marks if mark.at <= last and max(mark.at, mark.until) >= first
        ]
        self._first, self._last = first, last
        places = {mark.at for mark in self._marks if mark.at >= first}
        places |= {mark.until for mark in self._marks if first <= mark.until <= last}
        self._layout = Layout(
            page, shown, places, lambda bar: len(self._labels[bar]) * _CHAR + 22, _STEP
        )
        lanes = {bars.lane[bar] for bar in shown} | {mark.lane for mark in self._marks}
        self._lanes = sorted(lanes)
        self._left = 24 + _CHAR * max((len(_short(page.lanes[n].name)) for n in lanes), default=0)
        self._y: dict[int, float] = {}
        y: float = _TOP + 26
        for lane in self._lanes:
            self._y[lane] = y
            is_thick = page.lanes[lane].kind == "operations"
            y += _ROW * page.lanes[lane].rows if is_thick else _THIN
        self._height = y + 30
        marks_end = max((len(mark.text) * _CHAR for mark in self._marks), default=0)
        self._width = self._left + self._layout.width + max(40, min(marks_end, 300))

    def draw(self) -> str:
        page = self._page
        width, height = round(self._width), round(self._height)
        css = files("checker.report").joinpath("static/picture.css").read_text(encoding="utf-8")
        words = f"{summary(page)}. {' '.join(page.explanation)}"
        begin = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="coordlab-report" role="img" '
            f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        )
        parts = [
            begin,
            f"<title>{escape(summary(page))}</title>",
            f"<desc>{escape(words)}</desc>",
            f"<style>{css}</style>",
            f'<rect class="cl-paper" width="{width}" height="{height}"/>',
            _text(_MARGIN, 20, summary(page), "cl-title"),
            *self._draw_lanes(),
            *self._draw_marks(),
            *self._draw_lines(),
            *(part for bar in self._excerpt.bars for part in self._draw_bar(bar)),
            *self._draw_points(),
            _text(_MARGIN, self._height - 10, self._caption(), "cl-note"),
            "</svg>",
        ]
        return "\n".join(parts)

    def _caption(self) -> str:
        left_out = about_left_out(self._page, self._excerpt.left_out)
        return f"From left to right: the order of events, not to scale. {left_out}".rstrip()

    def _x(self, moment: float) -> float:
        return round(self._left + self._layout.at(moment), 1)

    def _draw_lanes(self) -> Iterator[str]:
        for lane in self._lanes:
            y = self._y[lane]
            if not self._page.lanes[lane].is_inner:
                yield (
                    f'<line class="cl-rule" x1="{_MARGIN}" x2="{self._width:.0f}" '
                    f'y1="{y - 4}" y2="{y - 4}"/>'
                )
            is_thick = self._page.lanes[lane].kind == "operations"
            name = _short(self._page.lanes[lane].name)
            indent = 10 if self._page.lanes[lane].is_inner else 0
            yield _text(_MARGIN + indent, y + (15 if is_thick else 11), name, "cl-lane")

    def _draw_marks(self) -> Iterator[str]:
        for mark in self._marks:
            y = self._y[mark.lane]
            x = self._x(mark.at) if mark.at >= self._first else self._left
            label = _short(mark.text)
            if mark.until != NOWHERE:
                end = self._end_of(mark)
                yield (
                    f'<rect class="cl-span cl-{mark.kind}" x="{x}" y="{y}" '
                    f'width="{max(2, end - x):.1f}" height="{_THIN - 8}" rx="2"/>'
                )
                yield _text(x + 4, y + 10, label[: max(0, int((end - x) / _CHAR))], "cl-small")
                continue
            if mark.kind == "round":
                yield (
                    f'<line class="cl-round" x1="{x}" x2="{x}" y1="{y}" '
                    f'y2="{self._height - 34:.0f}"/>'
                )
            else:
                yield (f'<path class="cl-mark cl-{mark.kind}" d="M{x - 4} {y + 1}l8 8m0 -8l-8 8"/>')
            yield _text(x + 8, y + 10, label, "cl-small")

    def _end_of(self, mark: Mark) -> float:
        if mark.until > self._last:
            return self._left + self._layout.width + 24
        return self._x(mark.until)

    def _draw_bar(self, bar: int) -> Iterator[str]:
        page, bars = self._page, self._page.bars
        x, y = self._x(bars.start[bar]), self._y[bars.lane[bar]] + _ROW * bars.row[bar]
        is_open = bars.outcome[bar] == UNSEEN or bars.end[bar] == NOWHERE
        kinds = ["cl-bar"]
        if bar == page.failing:
            kinds.append("cl-failing")
        elif bar in page.core:
            kinds.append("cl-core")
        elif is_open:
            kinds.append("cl-open")
        elif bars.outcome[bar] == FAILED:
            kinds.append("cl-failed")
        if page.core and bar not in page.core and bar not in page.context:
            kinds.append("cl-dim")
        label_width = len(self._labels[bar]) * _CHAR + 22
        end = x + label_width if bars.end[bar] == NOWHERE else self._x(bars.end[bar])
        yield f'<g class="{" ".join(kinds)}"><title>{escape(page.label(bar))}</title>'
        yield f'<rect x="{x}" y="{y}" width="{max(4, end - x):.1f}" height="{_BAR}" rx="4"/>'
        if is_open:
            yield f'<path d="M{end:.1f} {y + _BAR / 2}h18" class="cl-fade"/>'
        yield _text(x + 7, y + 15, self._labels[bar], "cl-label")
        yield "</g>"

    def _points(self, order: Order) -> Iterator[tuple[int, float, float]]:
        bars, shown = self._page.bars, set(self._excerpt.bars)
        for rank, group in enumerate(order.groups):
            for bar in group:
                if bar in shown:
                    y = self._y[bars.lane[bar]] + _ROW * bars.row[bar] + _BAR
                    yield rank, self._x(bars.point[bar]), y

    def _draw_lines(self) -> Iterator[str]:
        for order in self._page.orders:
            line = " ".join(f"{x},{y}" for _, x, y in self._points(order))
            yield f'<polyline class="cl-order" points="{line}"/>'

    def _draw_points(self) -> Iterator[str]:
        for order in self._page.orders:
            for rank, x, y in self._points(order):
                yield f'<circle class="cl-point" cx="{x}" cy="{y}" r="3"/>'
                yield _text(x + 4, y + 10, str(rank + 1), "cl-number")


def _short(text: str) -> str:
    return text if len(text) <= _LABEL_MAX else text[: _LABEL_MAX - 1] + "…"


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'
