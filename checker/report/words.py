"""Sentences that several forms of a report share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from checker.report.model import NOWHERE, Page
from checker.report.texts import count
from checker.report.whynot import sentence


@dataclass(frozen=True, slots=True)
class GapInWords:
    """What is to be said about one gap of an order."""

    where: str
    state: str
    said: str
    answer: int


def gaps_of(page: Page, bar: int) -> Iterator[GapInWords]:
    """The gaps that were judged for an operation."""
    bars = page.bars
    if not bars.gap_count[bar]:
        return
    own = bars.rank[bar]
    groups = page.orders[bars.order[bar]].groups
    if own != NOWHERE:
        rest = [other for other in groups[own] if other != bar]
        groups = [*groups[:own], *([rest] if rest else []), *groups[own + 1 :]]
    for number in range(bars.gap_count[bar]):
        gap = bars.gap_first[bar] + number
        at = 4 * (bars.gap_at[bar] + number)
        state, answer, about, reason = page.answers[at : at + 4]
        if gap < len(groups):
            where = f"before {_named(page, groups[gap][0])}"
        else:
            where = f"after {_named(page, groups[-1][0])}" if groups else "at the beginning"
        yield GapInWords(
            where,
            page.texts[state],
            sentence(
                page.words,
                answer,
                operation="" if about == NOWHERE else page.label(about),
                outcome="" if about == NOWHERE else page.texts[bars.outcome_text[about]],
                reason=page.texts[reason],
            ),
            answer,
        )


def _named(page: Page, bar: int) -> str:
    return f"#{page.bars.rank[bar] + 1} {page.label(bar)}"


def summary(page: Page) -> str:
    """The verdict in one line."""
    return f"{page.title}: {page.headline} ({', '.join(page.facts)})"


def about_left_out(page: Page, left_out: int) -> str:
    """A sentence about operations that a picture does not show; empty if there are none."""
    if not left_out:
        return ""
    shown = "those near the anomaly are shown" if page.core else "the first ones are shown"
    return f"{count(left_out, 'operation')} left out: {shown}."
