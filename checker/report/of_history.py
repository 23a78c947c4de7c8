"""The page of a history of the coordination service, with a verdict on `live_processes`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from checker.collector import collector_paused
from checker.history.events import Crash, Enter, Event, Exit, Fail, Info, Invoke, Leave, Ok, Start
from checker.history.history import History
from checker.live_processes.witness import Witness
from checker.report.model import FAILED, NOWHERE, OK, UNSEEN, Lane, Mark, Page
from checker.report.report import Report
from checker.report.rows import Rows
from checker.report.texts import Texts, clean, count, sentences
from checker.timeline.facts import Facts
from checker.timeline.words import Words, process_set
from checker.verdict import Invalid, Valid, Verdict

OPERATIONS_MAX = 200_000
"""Of a longer history, the stretch around the anomaly is shown."""

EVENTS_MAX = 2 * OPERATIONS_MAX


def report_of_history(history: History, verdict: Verdict, *, name: str = "") -> Report:
    """A report on a history of the coordination service.

    Args:
      history: What the callers saw.
      verdict: Its verdict on `live_processes`.
      name: The history's name, for the title.
    """
    with collector_paused():
        return Report(_Builder(history, verdict, name).page())


class _Builder:
    def __init__(self, history: History, verdict: Verdict, name: str) -> None:
        self._history = history
        self._texts = Texts()
        self._keys: dict[str, int] = {}
        self._witness: Witness | None = None
        if isinstance(verdict, Valid) and isinstance(verdict.witness, Witness):
            self._witness = verdict.witness
        self._accused = frozenset(
            verdict.anomaly.operations if isinstance(verdict, Invalid) else ()
        )
        self._page = Page(
            title=clean(name) or "history",
            word=verdict.word,
            headline=verdict.word,
            clock=history.header.clock,
            explanation=sentences(verdict.explain()),
            notes=[
                *sentences("\n".join(history.notes)),
                *(clean(f"The recorder cannot know {gap}.") for gap in history.header.cannot_know),
            ],
        )

    def page(self) -> Page:
        page, history = self._page, self._history
        facts = Facts(history)
        self._facts = facts
        self._words = Words(facts, ascii_only=False)
        self._shown = self._stretch()
        self._zero_ns = min((_begin(event) for event in self._events()), default=0)
        page.length = len(self._shown)
        self._times = [event.time_ns - self._zero_ns for event in self._events()]
        page.length_ns = max(self._times, default=0) if page.has_times else 0
        page.facts = [
            "live_processes",
            count(len(history.events), "event"),
            f"{len(history.header.participants)} processes",
        ]
        self._add_lanes()
        self._add_bars()
        self._add_lives()
        self._add_blocks()
        if self._witness is not None:
            self._add_witness(self._witness)
        page.texts = self._texts.all
        return page

    def _stretch(self) -> range:
        """Positions of the events to show."""
        length = len(self._history.events)
        if length <= EVENTS_MAX:
            return range(length)
        middle = max((self._facts.ended_at.get(id_, 0) for id_ in self._accused), default=0)
        start = max(0, min(middle - EVENTS_MAX // 2, length - EVENTS_MAX))
        around = "around the anomaly" if self._accused else "at the beginning"
        self._page.notes.append(
            f"{length:,} events are too many for a report: {EVENTS_MAX:,} {around} are shown."
        )
        return range(start, start + EVENTS_MAX)

    def _events(self) -> Iterator[Event]:
        events = self._history.events
        return (events[position] for position in self._shown)

    def _at(self, time_ns: int) -> float:
        """Where a moment that is no event's lies among the events."""
        return bisect_right(self._times, time_ns - self._zero_ns) - 0.5

    # --- lanes ----------------------------------------------------------------------------------

    def _add_lanes(self) -> None:
        page = self._page
        blocks = {event.process for event in self._events() if isinstance(event, Enter)}
        self._lane: dict[tuple[str, int], int] = {}
        lanes = [("faults", 0, "faults")]
        if self._witness is not None and self._witness.noun == "round":
            lanes.append(("rounds", 0, "rounds"))
        for process in self._history.header.participants:
            lanes.append(("operations", process, f"process {process}"))
            lanes.append(("lifetimes", process, "incarnations"))
            if process in blocks:
                lanes.append(("blocks", process, "blocks"))
        for kind, process, name in lanes:
            self._lane[kind, process] = len(page.lanes)
            page.lanes.append(Lane(name, kind, is_inner=kind in ("lifetimes", "blocks")))

    def _add_bars(self) -> None:
        page, bars, words, texts = self._page, self._page.bars, self._words, self._texts
        events, shown, facts = self._history.events, self._shown, self._facts
        self._bar_of: dict[int, int] = {}
        rows = {lane: Rows() for (kind, _), lane in self._lane.items() if kind == "operations"}
        for position in shown:
            event = events[position]
            if not isinstance(event, Invoke):
                continue
            bar = self._bar_of[event.id] = len(bars)
            ended_at = facts.ended_at.get(event.id)
            response = None if ended_at is None or ended_at not in shown else events[ended_at]
            call = words.invocation(event)
            result, outcome = "?", UNSEEN
            if isinstance(response, Ok):
                result, outcome = words.result(response).removeprefix(f"#{event.id} "), OK
            elif isinstance(response, Fail):
                result, outcome = f"failed: {words.clean(response.code)}", FAILED
            elif isinstance(response, Info):
                result = f"? ({words.clean(response.code)})"
            lane = self._lane["operations", event.process]
            start = position - shown.start
            end = NOWHERE if response is None or ended_at is None else ended_at - shown.start
            bars.lane.append(lane)
            bars.process.append(event.process)
            bars.row.append(rows[lane].take(start, start if response is None else end))
            bars.start.append(start)
            bars.end.append(end)
            if page.has_times:
                bars.start_ns.append(event.time_ns - self._zero_ns)
                bars.end_ns.append(
                    NOWHERE if response is None else response.time_ns - self._zero_ns
                )
            bars.label.append(texts.add(f"{call} -> {result}"))
            bars.call.append(texts.add(call))
            bars.outcome_text.append(texts.add(f"return {result}"))
            bars.outcome.append(outcome)
            key = event.arguments.get("key")
            bars.key.append(self._key(key) if isinstance(key, str) else NOWHERE)
            if event.id in self._accused:
                page.core.append(bar)
        for lane, used in rows.items():
            page.lanes[lane].rows = len(used)
        length = len(bars)
        for column in (bars.order, bars.rank, bars.point, bars.gap_first, bars.gap_at):
            column[:] = [NOWHERE] * length
        bars.gap_count, bars.line = [0] * length, [0] * length
        if page.has_times:
            bars.point_ns = [NOWHERE] * length
        page.facts.append(count(length, "operation"))

    def _key(self, key: str) -> int:
        text = clean(key) or "''"
        if text not in self._keys:
            self._keys[text] = len(self._keys)
            self._page.keys.append(text)
        return self._keys[text]

    # --- lives and blocks -----------------------------------------------------------------------

    def _mark(self, lane: int, kind: str, at: float, time_ns: int, text: str) -> Mark:
        mark = Mark(lane, kind, at, time_ns - self._zero_ns, text)
        self._page.marks.append(mark)
        return mark

    def _add_lives(self) -> None:
        faults = self._lane["faults", 0]
        alive: dict[tuple[int, int], Mark] = {}
        for at, event in enumerate(self._events()):
            life = (event.process, event.lifetime)
            whose = f"process {event.process}"
            match event:
                case Start():
                    begin_ns = _begin(event)
                    begin = at if begin_ns == event.time_ns else max(0.0, self._at(begin_ns))
                    incarnation = self._facts.incarnation.get(life)
                    text = "" if incarnation is None else self._words.incarnation(incarnation)
                    lane = self._lane["lifetimes", event.process]
                    alive[life] = self._mark(lane, "lifetime", begin, begin_ns, text)
                    if event.lifetime:
                        self._mark(faults, "start", at, event.time_ns, f"{whose} restarts")
                case Crash() | Leave():
                    is_crash = isinstance(event, Crash)
                    text = f"{whose} {'crashes' if is_crash else 'leaves'}"
                    if isinstance(event, Crash) and event.cause is not None:
                        text += f" ({self._words.clean(event.cause)})"
                    self._mark(
                        faults, "crash" if is_crash else "leave", at, event.time_ns, clean(text)
                    )
                    mark = alive.pop(life, None)
                    if mark is not None:
                        mark.until, mark.until_ns = at, event.time_ns - self._zero_ns
                case _:
                    pass
        for mark in alive.values():
            mark.until, mark.until_ns = self._page.length, self._page.length_ns

    def _add_blocks(self) -> None:
        entered: dict[tuple[int, int], tuple[int, Mark]] = {}
        for at, event in enumerate(self._events()):
            life = (event.process, event.lifetime)
            match event:
                case Enter():
                    lane = self._lane["blocks", event.process]
                    text = clean(self._words.entry(event))
                    mark = self._mark(lane, "block", at, event.time_ns, text)
                    mark.until, mark.until_ns = self._page.length, self._page.length_ns
                    entered[life] = event.block, mark
                case Exit() | Crash() | Leave() if life in entered:
                    block, mark = entered[life]
                    if isinstance(event, Exit) and event.block != block:
                        continue
                    del entered[life]
                    mark.until, mark.until_ns = at, event.time_ns - self._zero_ns
                    how = event.outcome if isinstance(event, Exit) else "never left"
                    mark.text = clean(f"{mark.text} {how}")
                case _:
                    pass

    # --- the witness ----------------------------------------------------------------------------

    def _add_witness(self, witness: Witness) -> None:
        bars, page = self._page.bars, self._page
        for answer in witness.answers:
            time_ns = answer.instant[0]
            after = [self._bar_of[id_] for id_ in answer.operations if id_ in self._bar_of]
            if not after:
                continue
            # Between the last call and the first answer, near the instant.
            at = max(self._at(time_ns), *(bars.start[bar] + 0.5 for bar in after))
            ends = [bars.end[bar] - 0.5 for bar in after if bars.end[bar] != NOWHERE]
            at = min([at, *ends])
            if witness.noun == "round":
                text = f"{answer.number}: {process_set(answer.live)}"
                self._mark(self._lane["rounds", 0], "round", at, time_ns, text)
            for bar in after:
                bars.point[bar] = at
                if page.has_times:
                    bars.point_ns[bar] = time_ns - self._zero_ns
        for failure in witness.failures:
            text = f"crash of process {failure.process} taken here"
            if failure.recorded_ns is None:
                text += " (none recorded)"
            at = self._at(failure.taken_ns)
            self._mark(self._lane["faults", 0], "taken", at, failure.taken_ns, text)


def _begin(event: Event) -> int:
    since_ns = event.since_ns if isinstance(event, Start | Crash) else None
    return event.time_ns if since_ns is None else min(since_ns, event.time_ns)
