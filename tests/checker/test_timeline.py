"""Pictures of histories: some in full, and what holds for all."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checker import Invalid, LiveProcesses, Unknown, Valid, Witness, check
from checker.history import (
    LIVE_PROCESSES,
    Crash,
    Enter,
    Event,
    Exit,
    Fail,
    Header,
    History,
    Info,
    Invoke,
    Leave,
    Ok,
    Start,
)
from checker.timeline import timeline, timeline_lines
from tests.executions import Execution, load
from tests.random_histories import histories

MS = 1_000_000
NARROWEST = 60
"""The narrowest width that the properties try; four lanes of 14 do not fit into it."""


class Script:
    """Writes a history, one short line per event. Incarnations are 1000 * (process + 1) + lifetime."""

    def __init__(self, processes: int, *, clock: str = "abstract") -> None:
        self.events: list[Event] = []
        self._header = Header(source="manual", participants=tuple(range(processes)), clock=clock)
        self._lifetimes: dict[int, int] = {}
        self._calls: dict[int, int] = {}
        self._ids = 0

    @property
    def history(self) -> History:
        return History(self._header, self.events)

    def incarnation(self, process: int) -> int:
        return 1000 * (process + 1) + self._lifetimes[process]

    def start(self, at: int, process: int, *, since: int | None = None) -> None:
        lifetime = self._lifetimes[process] = self._lifetimes.get(process, -1) + 1
        self.events.append(
            Start(
                time_ns=at,
                process=process,
                lifetime=lifetime,
                incarnation=self.incarnation(process),
                since_ns=since,
            )
        )

    def crash(
        self, at: int, process: int, *, since: int | None = None, cause: str | None = None
    ) -> None:
        lifetime = self._lifetimes[process]
        self.events.append(
            Crash(time_ns=at, process=process, lifetime=lifetime, since_ns=since, cause=cause)
        )

    def leave(self, at: int, process: int) -> None:
        self.events.append(Leave(time_ns=at, process=process, lifetime=self._lifetimes[process]))

    def call(
        self, at: int, process: int, operation: str = LIVE_PROCESSES, **arguments: object
    ) -> None:
        self._calls[process] = self._ids
        self.events.append(
            Invoke(
                time_ns=at,
                process=process,
                lifetime=self._lifetimes[process],
                id=self._ids,
                operation=operation,
                arguments=arguments,
            )
        )
        self._ids += 1

    def told(self, at: int, process: int, *processes: int) -> None:
        self.returns(at, process, {other: self.incarnation(other) for other in processes})

    def returns(self, at: int, process: int, result: object = None) -> None:
        self.events.append(
            Ok(
                time_ns=at,
                process=process,
                lifetime=self._lifetimes[process],
                id=self._calls[process],
                result=result,
            )
        )

    def fails(self, at: int, process: int, kind: type[Fail | Info], code: str) -> None:
        self.events.append(
            kind(
                time_ns=at,
                process=process,
                lifetime=self._lifetimes[process],
                id=self._calls[process],
                code=code,
            )
        )

    def round(self, at: int, *processes: int, step: int = 1) -> None:
        """All call, then all are told."""
        for index, process in enumerate(processes):
            self.call(at + index * step, process)
        for index, process in enumerate(processes):
            self.told(at + (len(processes) + index) * step, process, *processes)


def ghost_entry() -> History:
    """A real-looking ghost: 1 dies in the barrier, and is counted in as its successor."""
    script = Script(3, clock="monotonic")
    script.start(100 * MS, 0, since=20 * MS)
    script.start(200 * MS, 1)
    script.start(200 * MS, 2)
    script.round(1000 * MS, 0, 1, 2, step=100 * MS)
    script.events.append(
        Enter(time_ns=1700 * MS, process=0, lifetime=0, block=0, live={0: 1000, 1: 2000, 2: 3000})
    )
    script.call(1800 * MS, 2, "key_value_set", key="step/1", value={"text": "17"})
    script.returns(1900 * MS, 2)
    script.events.append(
        Exit(time_ns=1950 * MS, process=0, lifetime=0, block=0, outcome="completed")
    )
    script.call(2000 * MS, 1)
    script.crash(2300 * MS, 1, since=2200 * MS, cause="SIGKILL")
    script.start(3000 * MS, 1, since=2500 * MS)
    script.call(3200 * MS, 0)
    script.call(3300 * MS, 2)
    script.told(3400 * MS, 0, 0, 1, 2)
    script.told(3401 * MS, 2, 0, 1, 2)
    return script.history


def moved_crash() -> History:
    """The round leaves 1 out before its crash is recorded; the next counts 2 in after its own."""
    script = Script(3)
    for process in range(3):
        script.start(process, process)
    script.call(4, 0)
    script.call(5, 2)
    script.told(6, 0, 0, 2)
    script.told(6, 2, 0, 2)
    script.crash(8, 1)
    script.call(9, 2)
    script.crash(10, 2)
    script.call(12, 0)
    script.told(13, 0, 0, 2)
    return script.history


GHOST = """\
   time  process 0                  process 1                  process 2
0.000 s  ╷ connecting
0.080 s  ● start 1000
0.180 s  │                          ● start 2000               ● start 3000
0.980 s  ╥ #0 live_processes        │                          │
1.080 s  ║                          ╥ #1 live_processes        │
1.180 s  ║                          ║                          ╥ #2 live_processes
1.280 s  ╨ #0 {0, 1:2000, 2}        ║                          ║
1.380 s  │                          ╨ #1 {0, 1:2000, 2}        ║
1.480 s  │                          │                          ╨ #2 {0, 1:2000, 2}
1.680 s  ▷ block 0 {0, 1:2000, 2}   │                          │
1.780 s  │                          │                          ╥ #3 key_value_set step/1
1.880 s  │                          │                          ╨ #3 ok
1.930 s  ◁ block 0 completed        │                          │
1.980 s  │                          ╥ #4 live_processes ◄      │
2.180 s  │                          × crash from here on       │
2.280 s  │                          × crash by here (SIGKILL)  │
2.480 s  │                          ╷ connecting               │
2.980 s  │                          ● restart 2001             │
3.180 s  ╥ #5 live_processes ◄      │                          │
3.280 s  ║                          │                          ╥ #6 live_processes
3.380 s  ╨ #5 {0, 1:2001, 2} ◄      │                          ║
3.381 s  │                          │                          ╨ #6 {0, 1:2001, 2}
"""


def test_an_invalid_history_is_drawn_with_the_accused_operations_marked() -> None:
    history = ghost_entry()
    verdict = check(history)
    assert isinstance(verdict, Invalid)
    lines, _, conclusion = timeline(history, verdict, width=90).partition("\n\n")
    assert lines + "\n" == GHOST
    assert conclusion.startswith("invalid\n  ")
    assert conclusion.removeprefix("invalid").split() == verdict.explain().split()


GHOST_IN_FOCUS = """\
   time  process 0            process 1            process 2
0.000 s  . connecting
0.080 s  * start 1000
0.180 s  |                    * start 2000         * start 3000
         : 8 rows left out
1.880 s  |                    |                    ] #3 ok
1.930 s  < block 0 completed  |                    |
1.980 s  |                    [ #4 live_proces~ !  |
2.180 s  |                    x crash from here ~  |
2.280 s  |                    x crash by here (S~  |
2.480 s  |                    . connecting         |
2.980 s  |                    * restart 2001       |
3.180 s  [ #5 live_proces~ !  |                    |
3.280 s  :                    |                    [ #6 live_processes
3.380 s  ] #5 {0, 1:2001,~ !  |                    :
3.381 s  |                    |                    ] #6 {0, 1:2001, 2}
"""


def test_in_focus_and_in_ascii_only_what_matters_is_drawn() -> None:
    history = ghost_entry()
    text = timeline(history, check(history), width=70, focus=True, ascii_only=True)
    assert text.isascii()
    assert text.partition("\n\n")[0] + "\n" == GHOST_IN_FOCUS


MOVED = """\
time  process 0             process 1             process 2
   0  ● start 1000
   1  │                     ● start 2000
   2  │                     │                     ● start 3000
   4  ╥ #0 live_processes   │                     │
   5  ║                     │                     ╥ #1 live_processes
   5  ║                     × crash taken here    ║
      ║                     │ (recorded at 8)     ║
   5  ── round 1: {0, 2} ─────────────────────────────────────────────
   6  ╨ #0 {0, 2}           │                     ╨ #1 {0, 2}
   8  │                     × crash               │
   9  │                                           ╥ #2 live_processes
  10  │                                           × crash
  12  ╥ #3 live_processes
  12  ── round 2: {0, 2} ─────────────────────────────────────────────
  12  ║                                           × crash taken here
      ║                                             (recorded at 10)
  13  ╨ #3 {0, 2}
"""


def test_a_valid_history_is_drawn_with_its_rounds_and_the_crashes_that_were_moved() -> None:
    history = moved_crash()
    verdict = check(history)
    assert isinstance(verdict, Valid)
    lines, _, conclusion = timeline(history, verdict, width=70).partition("\n\n")
    assert lines + "\n" == MOVED
    assert conclusion.removeprefix("valid").split() == verdict.explain().split()


def test_with_room_a_moved_crash_takes_one_line() -> None:
    history = moved_crash()
    text = timeline(history, check(history), width=140)
    assert "× crash taken here (recorded at 10)" in text


# --- lanes ---


def test_a_narrow_picture_shows_the_processes_that_matter() -> None:
    script = Script(100)
    for process in range(100):
        script.start(0, process)
    script.call(1, 77)
    script.told(2, 77, 50, 77)
    history = script.history
    note, header, *_ = timeline(history, check(history), width=60).splitlines()
    assert note == "(97 processes are not shown: a larger width shows more)"
    assert re.findall(r"process \d+", header) == ["process 0", "process 50", "process 77"]


def test_in_focus_processes_that_have_no_part_in_the_anomaly_are_not_shown() -> None:
    script = Script(4)
    for process in range(4):
        script.start(0, process)
    script.call(1, 0)
    script.returns(2, 0, {0: 1000, 1: 7})
    history = script.history
    text = timeline(history, check(history), focus=True)
    note, header, *_ = text.splitlines()
    assert note == "(2 processes are not shown: not part of the anomaly)"
    assert re.findall(r"process \d+", header) == ["process 0", "process 1"]


def test_without_an_anomaly_focus_leaves_nothing_out() -> None:
    history = moved_crash()
    verdict = check(history)
    assert timeline(history, verdict, focus=True) == timeline(history, verdict)


def test_focus_keeps_a_long_history_short_and_says_how_much_it_left_out() -> None:
    script = Script(2)
    script.start(0, 0)
    script.start(0, 1)
    for step in range(1000):
        script.round(10 + 10 * step, 0, 1)
    script.call(20_000, 0)
    script.returns(20_001, 0, {1: 2000})
    for step in range(1000):
        script.round(30_000 + 10 * step, 0, 1)
    history = script.history
    text = timeline(history, check(history), focus=True)
    left_out = [int(count) for count in re.findall(r"(\d+) rows? left out", text)]
    whole = timeline(history).splitlines()
    drawn = text.partition("\n\n")[0].splitlines()
    assert len(drawn) < 15
    assert sum(left_out) + len(drawn) - len(left_out) == len(whole)


def test_a_dead_process_has_no_line_and_an_unborn_one_neither() -> None:
    script = Script(2)
    script.start(0, 0)
    script.start(1, 1)
    script.crash(2, 1)
    script.leave(3, 0)
    script.start(4, 1)
    rows = timeline(script.history).splitlines()[1:]
    assert [row.split() for row in rows] == [
        ["0", "●", "start", "1000"],
        ["1", "│", "●", "start", "2000"],
        ["2", "│", "×", "crash"],
        ["3", "○", "leave"],
        ["4", "●", "restart", "2001"],
    ]


def test_events_of_one_moment_share_a_row_unless_they_share_a_lane() -> None:
    script = Script(2)
    script.start(0, 0)
    script.start(0, 1)
    script.call(5, 0)
    script.told(5, 0, 0)
    script.call(5, 1)
    rows = timeline(script.history).splitlines()[1:]
    assert [row.split() for row in rows] == [
        ["0", "●", "start", "1000", "●", "start", "2000"],
        ["5", "╥", "#0", "live_processes", "│"],
        ["5", "╨", "#0", "{0}", "╥", "#1", "live_processes"],
    ]


def test_an_act_of_an_outlived_lifetime_names_it() -> None:
    script = Script(1)
    script.start(0, 0)
    script.call(1, 0)
    script.start(2, 0)
    zombie = Ok(time_ns=3, process=0, lifetime=0, id=0, result={0: 1000})
    history = History(script.history.header, [*script.events, zombie])
    assert timeline(history).splitlines()[-1] == "   3  ╨ #0 {0:1000} (lifetime 0)"


# --- words ---


def last_words(history: History, *, ascii_only: bool = False) -> str:
    last = timeline(history, width=3000, ascii_only=ascii_only).splitlines()[-1]
    return last.lstrip().partition("  ")[2]


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "ok"),
        ({"text": "17"}, '"17"'),
        ({"base64": "AA=="}, '{base64: "AA=="}'),
        ('say "x"', '"say \\"x\\""'),
        (True, "true"),
        ([1, 2.5, None, "a", 5, 6], '[1, 2.5, null, "a", …]'),
        ({"a": {"b": {"c": {}}}}, "{a: {b: {…}}}"),
        ({}, "{}"),
        ("x" * 1000, '"' + "x" * 38 + "…"),
        ("line\nbreak \x1b[2J", r'"line\nbreak \x1b[2J"'),
        ("wide 漢 and half \ud800", r'"wide \u6f22 and half \ud800"'),
    ],
)
def test_results_are_shortened_and_harmless(result: object, words: str) -> None:
    script = Script(1)
    script.start(0, 0)
    script.call(1, 0, "key_value_get", key="k")
    script.returns(2, 0, result)
    assert last_words(script.history) == f"╨ #0 {words}"


def test_a_result_nested_as_deeply_as_json_allows_is_shortened() -> None:
    result: list[object] = []
    for _ in range(5000):
        result = [result]
    script = Script(1)
    script.start(0, 0)
    script.call(1, 0, "key_value_get", key="k")
    script.returns(2, 0, result)
    assert last_words(script.history) == "╨ #0 [[[…]]]"


@pytest.mark.parametrize(("kind", "word"), [(Fail, "fail"), (Info, "info")])
def test_errors_tell_their_kind_and_code(kind: type[Fail | Info], word: str) -> None:
    script = Script(1)
    script.start(0, 0)
    script.call(1, 0)
    script.fails(2, 0, kind, "ABORTED\r")
    assert last_words(script.history) == rf"╨ #0 {word} ABORTED\r"


def test_a_call_of_some_participants_names_them() -> None:
    script = Script(9)
    script.start(0, 0)
    script.call(1, 0, participants=(0, 1, 2, 3, 4, 5, 7, 8))
    assert last_words(script.history) == "╥ #0 live_processes of {0-5, 7, 8}"


def test_a_large_live_set_is_written_in_ranges() -> None:
    script = Script(64)
    script.start(0, 0)
    script.call(1, 0)
    script.returns(2, 0, dict.fromkeys(p for p in range(64) if p != 41))
    assert last_words(script.history) == "╨ #0 {0-40, 42-63}"


def test_only_incarnations_of_restarted_processes_are_told_and_shortly() -> None:
    script = Script(2)
    script.start(0, 0)
    script.start(1, 1)
    script.crash(2, 1)
    script.start(3, 1)
    script.call(4, 0)
    script.returns(5, 0, {0: 2**63, 1: 2**63 + 1})
    assert last_words(script.history).startswith("╨ #0 {0, 1:…75809}")
    assert last_words(script.history, ascii_only=True).startswith("] #0 {0, 1:~75809}")


def test_an_unknown_verdict_is_followed_by_its_reason() -> None:
    history = moved_crash()
    text = timeline(history, Unknown("too many ways"))
    assert text.endswith("\n\nunknown\n  too many ways")


def test_a_history_without_events_has_a_header_only() -> None:
    assert timeline(Script(2).history) == "time  process 0       process 1"


# --- what holds for all ---

_COLOUR = re.compile(r"\x1b\[[0-9;]+m")


@settings(deadline=None)
@given(histories(), st.integers(NARROWEST, 120), st.sampled_from(["round", "published"]))
def test_no_line_is_wider_than_asked_for(history: History, width: int, definition: str) -> None:
    spec = LiveProcesses(definition="round" if definition == "round" else "published")
    lines = timeline(history, check(history, spec), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


@settings(deadline=None)
@given(histories())
def test_colours_change_nothing_but_colours(history: History) -> None:
    verdict = check(history)
    coloured = timeline(history, verdict, colour=True)
    assert _COLOUR.sub("", coloured) == timeline(history, verdict)
    assert "\x1b" in coloured


@settings(deadline=None)
@given(histories())
def test_ascii_pictures_have_the_same_shape(history: History) -> None:
    verdict = check(history)
    boxes, ascii_ = timeline(history, verdict), timeline(history, verdict, ascii_only=True)
    assert ascii_.isascii()
    shape = [len(line) for line in boxes.partition("\n\n")[0].splitlines()]
    assert [len(line) for line in ascii_.partition("\n\n")[0].splitlines()] == shape


@settings(deadline=None)
@given(histories())
def test_every_event_is_drawn_once(history: History) -> None:
    text = timeline(history, width=1000)
    signs = {
        "●": Start,
        "×": Crash,
        "○": Leave,
        "╥": Invoke,
        "╨": Ok | Fail | Info,
        "▷": Enter,
        "◁": Exit,
    }
    for sign, kind in signs.items():
        assert text.count(sign) == sum(isinstance(event, kind) for event in history.events)


def row_of(text: str, lines: list[str]) -> int:
    return next(n for n, line in enumerate(lines) if re.search(rf"{text}( |$)", line))


@settings(deadline=None)
@given(histories())
def test_rounds_and_moved_crashes_of_the_witness_are_drawn(history: History) -> None:
    verdict = check(history)
    if not isinstance(verdict, Valid):
        return
    assert isinstance(verdict.witness, Witness)
    lines = timeline(history, verdict, width=1000).splitlines()
    answered = {event.id for event in history.events if isinstance(event, Ok)}
    for answer in verdict.witness.answers:
        rule = row_of(f"── round {answer.number}:", lines)
        for operation in answer.operations:
            assert rule > row_of(f"╥ #{operation}", lines)
            if operation in answered:
                assert rule < row_of(f"╨ #{operation}", lines)
    taken = sum(line.count("crash taken here") for line in lines)
    assert taken == len(verdict.witness.failures)


@pytest.mark.parametrize("execution", load(), ids=lambda execution: execution.name)
@pytest.mark.parametrize("definition", ["round", "published"])
def test_the_pictures_of_the_guide_can_be_drawn(execution: Execution, definition: str) -> None:
    spec = LiveProcesses(definition="round" if definition == "round" else "published")
    verdict = check(execution.history, spec)
    text = timeline(execution.history, verdict)
    assert "\n".join(timeline_lines(execution.history, verdict)) == text
    assert (" ◄" in text) == (isinstance(verdict, Invalid) and bool(verdict.anomaly.operations))
