"""The page of a history of any object, with a linearizability verdict."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from pathlib import PurePath

from checker.collector import collector_paused
from checker.linearization import Contradiction, Linearization, ObjectOrder
from checker.operations import OPEN_NS, Failed, Operations, show
from checker.report.model import (
    FAILED,
    NOWHERE,
    OK,
    UNSEEN,
    Lane,
    Mark,
    Order,
    Page,
    State,
)
from checker.report.points import points_of
from checker.report.report import Report
from checker.report.rows import Rows, threads_of
from checker.report.texts import Texts, call_of, clean, count, label_of, outcome_of, sentences
from checker.report.whynot import WORDS, Machine, Replay, answer_all
from checker.specification import SetSpecification, Specification
from checker.verdict import Invalid, Valid, Verdict

OPERATIONS_MAX = 200_000
"""Of a longer history, the stretch around the anomaly is shown."""

HEADLINES = {
    "valid": "linearizable",
    "invalid": "not linearizable",
    "unknown": "undecided",
}


def report_of(
    operations: Operations, verdict: Verdict, spec: Specification | SetSpecification
) -> Report:
    """A report on a linearizability verdict.

    Args:
      operations: The history.
      verdict: `Valid` with a `Linearization`, `Invalid`, or `Unknown`. An anomaly whose `evidence` is a
        `Contradiction` is shown in full; of another one, its words and its operations.
      spec: What was checked.
    """
    with collector_paused():
        return Report(_Builder(operations, verdict, spec).page())


class _Builder:
    def __init__(
        self, operations: Operations, verdict: Verdict, spec: Specification | SetSpecification
    ) -> None:
        self._all = operations
        self._verdict = verdict
        self._spec = spec
        self._texts = Texts()
        self._evidence: Contradiction | None = None
        named: Sequence[int] = ()
        if isinstance(verdict, Invalid):
            evidence = verdict.anomaly.evidence
            if evidence is not None:
                self._evidence = evidence
                named = (evidence.failing, *evidence.core)
            else:
                named = verdict.anomaly.operations
        self._named = tuple(index for index in named if 0 <= index < len(operations))
        self._page = Page(
            title=clean(PurePath(operations.source).name) or "history",
            word=verdict.word,
            headline=HEADLINES[verdict.word],
            clock=operations.clock,
            explanation=sentences(verdict.explain()),
            notes=sentences("\n".join(operations.notes)),
            words=dict(WORDS),
        )

    def page(self) -> Page:
        page, shown = self._page, self._shown()
        self._first = shown.start
        self._read_events(shown)
        self._add_bars(shown)
        self._add_keys(shown)
        self._add_lanes(shown)
        self._add_orders(shown)
        self._add_anomaly(shown)
        self._add_answers()
        page.texts = self._texts.all
        page.facts = [
            clean(self._spec.name),
            count(len(self._all), "operation"),
            count(len(set(self._all.process)), "process").replace("processs", "processes"),
        ]
        if len(page.keys) > 1:
            page.facts.append(count(len(page.keys), "object"))
        if self._all.uncertainty_ns:
            page.facts.append(f"times are uncertain by up to {self._all.uncertainty_ns:,} ns")
        return page

    def _shown(self) -> range:
        """The operations to show."""
        length = len(self._all)
        if length <= OPERATIONS_MAX:
            return range(length)
        middle = self._named[0] if self._named else 0
        start = max(0, min(middle - OPERATIONS_MAX // 2, length - OPERATIONS_MAX))
        around = "around the anomaly" if self._named else "at the beginning"
        self._page.notes.append(
            f"{length:,} operations are too many for a report: {OPERATIONS_MAX:,} {around} are shown."
        )
        return range(start, start + OPERATIONS_MAX)

    # --- bars -----------------------------------------------------------------------------------

    def _read_events(self, shown: range) -> None:
        """Positions of the events of the operations shown, from 0."""
        self._invoked_at = [0] * len(shown)
        self._responded_at = [NOWHERE] * len(shown)
        times = []
        first, stop = shown.start, shown.stop
        invoked_ns, ended_ns = self._all.invoked_ns, self._all.ended_ns
        self._offset = 0
        """Events before the first one shown."""
        position = 0
        for event in self._all.events:
            if event >= 0:
                if first <= event < stop:
                    self._invoked_at[event - first] = position
                    times.append(invoked_ns[event])
                    position += 1
            elif first <= ~event < stop:
                self._responded_at[~event - first] = position
                times.append(ended_ns[~event])
                position += 1
            if not position:
                self._offset += 1
        self._zero_ns = min(times, default=0)
        self._event_ns = [time_ns - self._zero_ns for time_ns in times]
        self._page.length = len(times)
        self._page.length_ns = max(self._event_ns, default=0) if self._page.has_times else 0

    def _add_bars(self, shown: range) -> None:
        bars, texts, history = self._page.bars, self._texts, self._all
        kinds = [
            (
                texts.add(label_of(kind)),
                texts.add(call_of(kind)),
                texts.add(outcome_of(kind)),
                UNSEEN if kind.is_open else FAILED if isinstance(kind.result, Failed) else OK,
            )
            for kind in history.kinds
        ]
        chosen = [kinds[history.kind[index]] for index in shown]
        bars.label = [kind[0] for kind in chosen]
        bars.call = [kind[1] for kind in chosen]
        bars.outcome_text = [kind[2] for kind in chosen]
        bars.outcome = [kind[3] for kind in chosen]
        bars.line = [history.line[index] for index in shown]
        bars.start = list(self._invoked_at)
        bars.end = list(self._responded_at)
        ended = [history.ended_ns[index] for index in shown]
        for bar, end_ns in enumerate(ended):
            if bars.end[bar] == NOWHERE and end_ns != OPEN_NS:
                # Its caller gave up between two events.
                seen = bisect_right(self._event_ns, end_ns - self._zero_ns)
                bars.end[bar] = max(seen - 0.5, bars.start[bar] + 0.25)
        if self._page.has_times:
            bars.start_ns = [history.invoked_ns[index] - self._zero_ns for index in shown]
            bars.end_ns = [
                NOWHERE if end_ns == OPEN_NS else end_ns - self._zero_ns for end_ns in ended
            ]
        for column in (bars.order, bars.rank, bars.point, bars.gap_first, bars.gap_at):
            column[:] = [NOWHERE] * len(shown)
        bars.gap_count = [0] * len(shown)
        if self._page.has_times:
            bars.point_ns = [NOWHERE] * len(shown)

    def _add_keys(self, shown: range) -> None:
        numbers: dict[Hashable, int] = {}
        self._key_number = numbers
        of_kind: list[int] = []
        for kind in self._all.kinds:
            key = self._spec.partition(kind)
            of_kind.append(NOWHERE if key is None else numbers.setdefault(key, len(numbers)))
        self._page.bars.key = [of_kind[self._all.kind[index]] for index in shown]
        self._page.keys = [
            clean(key if isinstance(key, str) and key.isprintable() else show(key)) or "''"
            for key in numbers
        ]

    # --- lanes ----------------------------------------------------------------------------------

    def _add_lanes(self, shown: range) -> None:
        page, bars = self._page, self._page.bars
        processes = [self._all.process[index] for index in shown]
        threads = self._threads(processes)
        members: dict[int, list[int]] = {}
        for process in sorted(set(processes)):
            members.setdefault(threads.get(process, process), []).append(process)
        faults: dict[str, list[int]] = {}
        for number, fault in enumerate(self._all.faults):
            if self._offset <= fault.position <= self._offset + page.length:
                faults.setdefault(fault.lane, []).append(number)
        for lane in [name for name in faults if _process_named(name) not in threads]:
            self._add_faults(lane, faults[lane])
        lane_of: dict[int, int] = {}
        for thread in sorted(members):
            lane_of |= dict.fromkeys(members[thread], len(page.lanes))
            page.lanes.append(Lane(_lane_name(members[thread]), "operations"))
            for process in members[thread]:
                name = f"process {process}"
                if name in faults:
                    self._add_faults(name, faults[name], is_inner=True)
        rows = [Rows() for _ in page.lanes]
        bars.process = processes
        bars.lane = [lane_of[process] for process in processes]
        starts, ends = bars.start, bars.end
        if page.has_times:
            # Events at equal times are concurrent on the order axis, but need no second row.
            starts, ends = [*map(float, bars.start_ns)], [*map(float, bars.end_ns)]
        bars.row = [
            rows[lane].take(start, start if end < 0 else end)
            for lane, start, end in zip(bars.lane, starts, ends, strict=True)
        ]
        for strip, used in zip(page.lanes, rows, strict=True):
            if strip.kind == "operations":
                strip.rows = len(used)

    def _threads(self, processes: Sequence[int]) -> dict[int, int]:
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        is_open: dict[int, bool] = {}
        for bar, process in enumerate(processes):
            first.setdefault(process, self._invoked_at[bar])
            last[process] = self._invoked_at[bar]
            is_open[process] = self._page.bars.outcome[bar] == UNSEEN
        crashed = {process: last[process] for process in last if is_open[process]}
        threads = threads_of(sorted(first), first, crashed)
        return dict(threads) if threads is not None else {process: process for process in first}

    def _add_faults(self, name: str, numbers: Sequence[int], *, is_inner: bool = False) -> None:
        lane = len(self._page.lanes)
        self._page.lanes.append(Lane(clean(name), "faults", is_inner=is_inner))
        for number in numbers:
            fault = self._all.faults[number]
            position = fault.position - self._offset
            mark = Mark(
                lane, "fault", position - 0.5, fault.time_ns - self._zero_ns, clean(fault.name)
            )
            if fault.until_ns is not None:
                mark.until_ns = fault.until_ns - self._zero_ns
                mark.until = bisect_left(self._event_ns, mark.until_ns, lo=position) - 0.5
            self._page.marks.append(mark)

    # --- orders ---------------------------------------------------------------------------------

    def _add_orders(self, shown: range) -> None:
        page, bars = self._page, self._page.bars
        self._machine = Machine(self._all, self._spec)
        self._replays: dict[int, Replay] = {}
        number_of_key: dict[int, int] = {}
        for found in self._orders():
            number = len(page.orders)
            key = NOWHERE if found.key is None else self._key_number.get(found.key, NOWHERE)
            number_of_key[key] = number
            groups = found.groups
            if len(shown) < len(self._all):
                inside = (tuple(i for i in group if i in shown) for group in groups)
                groups = tuple(group for group in inside if group)
            self._place(number, key, groups, shown)
        for bar, key in enumerate(bars.key):
            bars.order[bar] = number_of_key.get(key, number_of_key.get(NOWHERE, NOWHERE))

    def _orders(self) -> tuple[ObjectOrder, ...]:
        if isinstance(self._verdict, Valid):
            witness = self._verdict.witness
            return witness.orders if isinstance(witness, Linearization) else ()
        if self._evidence is not None:
            self._page.is_prefix = True
            return (ObjectOrder(self._evidence.key, self._evidence.prefix),)
        return ()

    def _place(self, number: int, key: int, groups: Sequence[Sequence[int]], shown: range) -> None:
        page, bars, first = self._page, self._page.bars, shown.start
        placed = [[index - first for index in group] for group in groups]
        page.orders.append(Order(key, placed))
        last = int(page.length) - 1
        if self._evidence is not None and self._evidence.failing in shown:
            last = self._responded_at[self._evidence.failing - first] - 1
        points = points_of(
            placed,
            self._invoked_at,
            self._responded_at,
            self._event_ns if page.has_times else (),
            last,
        )
        for rank, group in enumerate(placed):
            for bar in group:
                bars.rank[bar] = rank
                bars.point[bar] = points.order[rank]
                if page.has_times:
                    bars.point_ns[bar] = points.time_ns[rank]
        # Without its beginning an order says nothing of states.
        if len(shown) == len(self._all):
            self._replays[number] = Replay(groups, points, self._machine, keep_last=page.is_prefix)

    def _add_anomaly(self, shown: range) -> None:
        page, first = self._page, shown.start
        evidence = self._evidence
        if evidence is None:
            page.core = [index - first for index in self._named if index in shown]
            return
        page.failing = evidence.failing - first
        page.core = [index - first for index in evidence.core if index in shown]
        if page.failing not in page.core:
            page.core.append(page.failing)
        page.context = [index - first for index in evidence.context if index in shown]
        page.state_count = evidence.possible_count
        page.states = [
            State(
                clean(possible.state),
                clean(possible.reason),
                [index - first for index in possible.given if index in shown],
            )
            for possible in evidence.possible
        ]
        bars = page.bars
        own = bars.order[page.failing]
        ends = self._responded_at[page.failing]
        page.unplaced = [
            bar
            for bar in range(len(bars))
            if bars.order[bar] == own
            and bars.rank[bar] == NOWHERE
            and bars.outcome[bar] == OK
            and 0 <= self._responded_at[bar] < ends
        ]

    def _add_answers(self) -> None:
        page, bars = self._page, self._page.bars
        if not self._replays:
            return
        middle = bars.start[page.failing] if page.failing != NOWHERE else 0
        near = sorted(range(len(bars)), key=lambda bar: abs(bars.start[bar] - middle))
        important = [page.failing] if page.failing != NOWHERE else []
        important += [*page.core, *page.context]
        sequence = list(dict.fromkeys([*important, *near]))
        end = page.length
        if page.is_prefix and page.failing != NOWHERE:
            # Past the failing response there is no order to be judged by.
            end = self._responded_at[page.failing]
            sequence = [bar for bar in sequence if bars.start[bar] < end]
        page.answers, left_out = answer_all(
            bars, self._replays, self._machine, self._texts, sequence=sequence, end=end
        )
        if left_out:
            where = "far from the anomaly" if page.is_prefix else "late in the history"
            page.notes.append(
                f"“Why not here?” has no answers for {count(left_out, 'operation')} {where}: "
                "the report would be too large."
            )


_PROCESS = re.compile(r"process (-?\d{1,18})")


def _process_named(lane: str) -> int | None:
    match = _PROCESS.fullmatch(lane)
    return None if match is None else int(match[1])


def _lane_name(processes: Sequence[int]) -> str:
    name = f"process {processes[0]}"
    if len(processes) > 1:
        name += "".join(f", {process}" for process in processes[1:6])
    return name + (", …" if len(processes) > 6 else "")
