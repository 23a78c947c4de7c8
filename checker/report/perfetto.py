"""A report as a trace in Chrome's JSON format (the "Trace Event Format"), which Perfetto reads too."""

from __future__ import annotations

import json
from collections.abc import Iterator

from checker.report.model import NOWHERE, OUTCOMES, UNSEEN, Page

_EVENT_US = 1000
"""One event of an abstract clock is drawn as a millisecond: such viewers show times only."""

_PROCESS = 1


def trace_of(page: Page) -> str:
    """The trace: an operation is a complete event, faults and points of the order are instants."""
    events = [*_metadata(page), *_operations(page), *_marks(page)]
    about = {
        "history": page.title,
        "verdict": page.headline,
        "explanation": "\n".join(page.explanation),
        "notes": "\n".join(page.notes),
    }
    trace = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}
    return json.dumps(trace, separators=(",", ":"))


def _thread(page: Page) -> list[int]:
    """The first thread of each lane: a thread shows nested bars only, so a row is one."""
    first, threads = 1, []
    for lane in page.lanes:
        threads.append(first)
        first += lane.rows
    return threads


def _metadata(page: Page) -> Iterator[dict[str, object]]:
    yield {
        "ph": "M",
        "name": "process_name",
        "pid": _PROCESS,
        "tid": 0,
        "args": {"name": page.title},
    }
    for lane, first in zip(page.lanes, _thread(page), strict=True):
        for row in range(lane.rows):
            name = lane.name if row == 0 else f"{lane.name} ({row + 1})"
            place = {"ph": "M", "pid": _PROCESS, "tid": first + row}
            yield {**place, "name": "thread_name", "args": {"name": name}}
            yield {**place, "name": "thread_sort_index", "args": {"sort_index": first + row}}


def _us(page: Page, at: float, at_ns: float) -> float:
    return at_ns / 1000 if page.has_times else at * _EVENT_US


def _operations(page: Page) -> Iterator[dict[str, object]]:
    bars, threads = page.bars, _thread(page)
    core = set(page.core)
    end_us = _us(page, page.length, page.length_ns)
    for bar in range(len(bars)):
        timed = page.has_times
        start = _us(page, bars.start[bar], bars.start_ns[bar] if timed else 0)
        is_open = bars.end[bar] == NOWHERE
        end = end_us if is_open else _us(page, bars.end[bar], bars.end_ns[bar] if timed else 0)
        args: dict[str, object] = {"outcome": OUTCOMES[bars.outcome[bar]], "operation": bar}
        if bars.line[bar]:
            args["line"] = bars.line[bar]
        if bars.key[bar] != NOWHERE:
            args["object"] = page.keys[bars.key[bar]]
        if bars.rank[bar] != NOWHERE:
            args["order"] = bars.rank[bar] + 1
        if is_open or bars.outcome[bar] == UNSEEN:
            args["open"] = True
        if bar in core:
            args["anomaly"] = "fails here" if bar == page.failing else "core"
        place = {"pid": _PROCESS, "tid": threads[bars.lane[bar]] + bars.row[bar]}
        yield {
            "ph": "X",
            "name": page.label(bar),
            "cat": "operation",
            "ts": start,
            "dur": max(0.0, end - start),
            **place,
            "args": args,
        }
        if bars.point[bar] != NOWHERE:
            yield {
                "ph": "i",
                "name": "takes effect",
                "cat": "order",
                "ts": _us(page, bars.point[bar], bars.point_ns[bar] if timed else 0),
                "s": "t",
                **place,
                "args": {"operation": page.label(bar)},
            }


def _marks(page: Page) -> Iterator[dict[str, object]]:
    threads = _thread(page)
    for mark in page.marks:
        start = _us(page, mark.at, mark.at_ns)
        event: dict[str, object] = {
            "name": mark.text or mark.kind,
            "cat": mark.kind,
            "ts": max(0.0, start),
            "pid": _PROCESS,
            "tid": threads[mark.lane],
            "args": {},
        }
        if mark.until == NOWHERE:
            yield {**event, "ph": "i", "s": "p" if mark.kind == "round" else "t"}
        else:
            end = _us(page, mark.until, mark.until_ns)
            yield {**event, "ph": "X", "dur": max(0.0, end - start)}
