"""The plain data of a report."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from checker import Anomaly, Invalid, Unknown, Valid, check
from checker.linearization import Contradiction, ObjectOrder
from checker.operations import UNKNOWN, Fault, Operation, Recorder, from_intervals
from checker.report import report_of, report_of_history, whynot
from checker.report.model import FAILED, NOWHERE, OK, UNSEEN, Page
from checker.report.of_operations import OPERATIONS_MAX
from checker.report.whynot import Answer
from checker.report.words import gaps_of
from checker.specification import Illegal, OneOf, Specification
from tests.executions import load
from tests.report.histories import (
    Meeting,
    Register,
    invalid,
    invalid_run,
    small_contradiction,
    small_report,
    valid,
    valid_run,
)

# --- bars and lanes ---


def page_of(recorder: Recorder) -> Page:
    operations = recorder.operations()
    return report_of(operations, Unknown("undecided"), Register()).page


def test_a_bar_reaches_from_the_invocation_to_the_response() -> None:
    page = small_report().page
    assert page.label(0) == "write(1)"
    assert (page.bars.start[0], page.bars.end[0]) == (0, 3)
    assert [lane.name for lane in page.lanes if lane.kind == "operations"] == [
        "process 0",
        "process 1",
        "process 2",
        "process 3",
    ]


def test_outcomes_are_told_apart() -> None:
    page = small_report().page
    by_label = {page.label(bar): page.bars.outcome[bar] for bar in range(len(page.bars))}
    assert by_label["write(2)"] == OK
    assert by_label["write(9) failed: conflict"] == FAILED
    assert by_label["write(3) -> ?"] == UNSEEN


def test_an_operation_that_was_given_up_ends_there_and_one_that_never_ended_has_no_end() -> None:
    recorder = Recorder()
    given_up, never = recorder.invoke(0, "write", 1), recorder.invoke(1, "write", 2)
    recorder.info(given_up)
    recorder.ok(recorder.invoke(2, "read"), 0)
    page = page_of(recorder)
    assert page.bars.start[1] < page.bars.end[given_up] < page.bars.start[2]
    assert page.bars.end[never] == NOWHERE


def test_a_clock_with_times_gives_a_time_axis_from_zero() -> None:
    recorder = Recorder(clock="monotonic")
    read = recorder.invoke(0, "read", time_ns=5_000)
    recorder.ok(read, 0, time_ns=7_500)
    page = page_of(recorder)
    assert (page.bars.start_ns, page.bars.end_ns, page.length_ns) == ([0], [2_500], 2_500)
    assert not page_of(Recorder()).has_times


def test_overlapping_calls_of_one_process_have_rows_of_their_own() -> None:
    recorder = Recorder()
    first, second = recorder.invoke(0, "write", 1), recorder.invoke(0, "write", 2)
    recorder.ok(first)
    recorder.ok(second)
    page = page_of(recorder)
    assert page.bars.row == [0, 1]
    assert page.lanes[0].rows == 2


def test_processes_that_were_renumbered_after_a_crash_share_a_lane() -> None:
    recorder = Recorder()
    for process in range(10):
        call = recorder.invoke(process, "read")
        if process < 9:
            recorder.ok(call, 0)
    recorder.ok(recorder.invoke(19, "read"), 0)
    page = page_of(recorder)
    assert [lane.name for lane in page.lanes][-1] == "process 9, 19"
    assert page.bars.process[-2:] == [9, 19]
    assert page.bars.lane[-1] == page.bars.lane[-2]


def test_numbers_that_are_no_renumbering_have_lanes_of_their_own() -> None:
    recorder = Recorder()
    for process in range(20):
        recorder.ok(recorder.invoke(process, "read"), 0)
    assert len(page_of(recorder).lanes) == 20


def test_faults_have_lanes_and_those_of_a_process_stand_below_it() -> None:
    rows = [(0, Operation("read", result=0)), (1, Operation("read", result=0))]
    faults = [Fault("nemesis", "partition", 12, 15, 1), Fault("process 0", "kill", 16, None, 2)]
    operations = from_intervals(rows, [(10, 20), (14, 30)], faults=faults)
    page = report_of(operations, Unknown("?"), Register()).page
    assert [(lane.name, lane.kind, lane.is_inner) for lane in page.lanes] == [
        ("nemesis", "faults", False),
        ("process 0", "operations", False),
        ("process 0", "faults", True),
        ("process 1", "operations", False),
    ]
    partition, kill = page.marks
    assert (partition.at_ns, partition.until_ns, partition.text) == (2, 5, "partition")
    assert kill.until == NOWHERE


def test_objects_are_named_and_bars_know_theirs() -> None:
    recorder = Recorder()
    recorder.ok(recorder.invoke(0, "write", 1, key="x"))
    recorder.ok(recorder.invoke(0, "write", 1, key=7))
    recorder.ok(recorder.invoke(0, "write", 1, key="x"))
    page = page_of(recorder)
    assert page.keys == ["x", "7"]
    assert page.bars.key == [0, 1, 0]


def test_an_empty_history_has_a_page() -> None:
    page = page_of(Recorder())
    assert len(page.bars) == 0
    assert page.headline == "undecided"


@pytest.mark.parametrize("make", [valid_run, invalid_run])
def test_the_page_is_plain_data(make: Any) -> None:
    operations, verdict = make(30)
    page = report_of(operations, verdict, Register()).page
    again = json.loads(json.dumps(page.as_json()))
    assert again["bars"]["label"] == page.bars.label
    assert again == page.as_json()


def test_a_history_that_is_too_long_is_shown_around_the_anomaly() -> None:
    recorder = Recorder()
    for _ in range(OPERATIONS_MAX + 1000):
        recorder.ok(recorder.invoke(0, "read"), 0)
    failing = recorder.invoke(0, "read")
    recorder.ok(failing, 1)
    operations = recorder.operations()
    evidence = Contradiction(
        operations=operations,
        spec=Register(),
        key=None,
        failing=failing,
        possible=(),
        possible_count=1,
        core=(failing,),
    )
    page = report_of(operations, invalid(evidence), Register()).page
    assert len(page.bars) == OPERATIONS_MAX
    assert page.label(page.failing) == "read() -> 1"
    assert page.notes == [
        "201,001 operations are too many for a report: 200,000 around the anomaly are shown."
    ]


def test_ten_thousand_operations_take_less_than_seconds() -> None:
    operations, verdict = valid_run(10_000)
    begin = time.process_time()
    report_of(operations, verdict, Register()).html()
    assert time.process_time() - begin < 10, "usually half a second"


# --- orders and anomalies ---


@pytest.mark.parametrize("clock", ["abstract", "monotonic"])
def test_points_follow_the_order_and_lie_inside_their_operations(clock: str) -> None:
    for seed in range(20):
        operations, verdict = valid_run(60, seed=seed, clock=clock, crashes=0.1, keys=("a", "b"))
        page = report_of(operations, verdict, Register()).page
        bars = page.bars
        for order in page.orders:
            points = [bars.point[group[0]] for group in order.groups]
            assert points == sorted(points)
            assert len(set(points)) == len(points)
        for bar in range(len(bars)):
            if bars.rank[bar] == NOWHERE:
                continue
            end = len(operations.events) if bars.outcome[bar] == UNSEEN else bars.end[bar]
            assert bars.start[bar] < bars.point[bar] < end
            if clock == "monotonic" and bars.outcome[bar] == OK:
                assert bars.start_ns[bar] <= bars.point_ns[bar] <= bars.end_ns[bar]


def test_an_invalid_page_has_the_core_the_states_and_the_longest_prefix() -> None:
    page = small_report().page
    assert page.label(page.failing) == "read() -> 1"
    assert [page.label(bar) for bar in page.core] == ["write(1)", "write(2)", "read() -> 1"]
    assert [page.label(bar) for bar in page.context] == ["write(3) -> ?"]
    assert [[page.label(bar) for bar in group] for group in page.orders[0].groups] == [
        ["write(1)"],
        ["read() -> 1"],
        ["write(2)"],
    ]
    assert [(state.text, state.given) for state in page.states] == [
        ("2", []),
        ("3", [1]),
        ("4", []),
    ]
    assert page.explanation[0].startswith("read() -> 1 of process 1 has no place")


def test_operations_without_a_place_in_the_prefix_are_named() -> None:
    operations, verdict = small_contradiction()
    assert isinstance(verdict, Invalid)
    evidence = verdict.anomaly.evidence
    assert evidence is not None
    shorter = Contradiction(
        operations=operations,
        spec=Register(),
        key=None,
        failing=evidence.failing,
        possible=(),
        possible_count=3,
        prefix=evidence.prefix[:2],
        core=evidence.core,
    )
    page = report_of(operations, invalid(shorter), Register()).page
    assert [page.label(bar) for bar in page.unplaced] == ["write(2)"]


def test_an_anomaly_without_evidence_is_shown_by_its_words_and_operations() -> None:
    operations, _ = small_contradiction()
    verdict = Invalid(Anomaly(kind="stale", summary="It is stale.", operations=(0, 5, 99)))
    page = report_of(operations, verdict, Register()).page
    assert page.core == [0, 5]
    assert (page.failing, page.orders, page.explanation) == (NOWHERE, [], ["It is stale."])


# --- why not here? ---


def replay(groups: list[list[int]], page: Page, kinds: Any) -> tuple[int, str] | None:
    """The first operation that is illegal in an order of a register, and why."""
    spec = Register()
    state = spec.init()
    for (bar,) in groups:
        after = spec.step(state, kinds(bar))
        if isinstance(after, Illegal):
            return bar, after.reason
        state = after
    return None


def test_answers_agree_with_a_replay_of_the_whole_order() -> None:
    seen = set()
    for seed in range(40):
        operations, verdict = valid_run(30, seed=seed, crashes=0.1, failures=0.05, values=3)
        page = report_of(operations, verdict, Register()).page
        bars, groups = page.bars, page.orders[0].groups
        for bar in range(len(bars)):
            rest = [group for group in groups if group != [bar]]
            for number, gap in enumerate(gaps_of(page, bar)):
                place = bars.gap_first[bar] + number
                moved = [*rest[:place], [bar], *rest[place:]]
                wrong = replay(moved, page, operations.at)
                seen.add(gap.answer)
                match gap.answer:
                    case Answer.ILLEGAL:
                        assert wrong is not None
                        assert wrong[0] == bar
                        assert wrong[1] in gap.said
                    case Answer.NEXT_BREAKS | Answer.LATER_BREAKS | Answer.MISSED:
                        assert wrong is not None
                        assert wrong[0] != bar
                        assert page.label(wrong[0]) in gap.said
                    case _:
                        assert wrong is None
    assert seen >= set(Answer) - {Answer.LEGAL_SO_FAR}


def test_gaps_are_all_those_within_the_interval() -> None:
    for seed in range(20):
        operations, verdict = valid_run(30, seed=seed)
        page = report_of(operations, verdict, Register()).page
        bars, groups = page.bars, page.orders[0].groups
        for bar in range(len(bars)):
            points = [bars.point[group[0]] for group in groups if group != [bar]]
            edges = [float("-inf"), *points, float("inf")]
            within = [
                gap
                for gap in range(len(points) + 1)
                if edges[gap + 1] > bars.start[bar] and edges[gap] < bars.end[bar]
            ]
            assert (
                list(range(bars.gap_first[bar], bars.gap_first[bar] + bars.gap_count[bar]))
                == within
            )


def test_the_failing_operation_is_judged_in_the_longest_prefix() -> None:
    page = small_report().page
    (gap,) = gaps_of(page, page.failing)
    assert (gap.where, gap.state, gap.said) == (
        "after #3 write(2)",
        "2",
        "Not here: the register is 2.",
    )


def test_what_was_overtaken_could_no_longer_return_what_it_did() -> None:
    recorder = Recorder()
    write = recorder.invoke(0, "write", 1)
    read = recorder.invoke(1, "read")
    recorder.ok(read, 0)
    recorder.ok(write)
    operations = recorder.operations()
    verdict = valid(operations, [ObjectOrder(None, ((read,), (write,)))], Register())
    page = report_of(operations, verdict, Register()).page
    earlier, own = gaps_of(page, write)
    assert own.said == "Legal here: this is its place in this order."
    assert earlier.said == (
        "Legal here, but then read() -> 0, which comes next in this order, could no longer return 0: "
        "the register is 1."
    )


def test_of_many_gaps_those_around_its_place_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whynot, "GAPS_MAX", 6)
    recorder = Recorder()
    long = recorder.invoke(0, "write", 1)
    reads = []
    for number in range(40):
        reads.append(recorder.invoke(1, "read"))
        recorder.ok(reads[-1], 0 if number < 20 else 1)
    recorder.ok(long)
    operations = recorder.operations()
    order = [*reads[:20], long, *reads[20:]]
    verdict = valid(operations, [ObjectOrder(None, tuple((one,) for one in order))], Register())
    page = report_of(operations, verdict, Register()).page
    assert page.bars.gap_count[long] == 6
    assert Answer.ITS_PLACE in [gap.answer for gap in gaps_of(page, long)]


def test_when_steps_run_out_the_page_says_how_many_operations_have_no_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whynot, "STEPS_MAX", 100)
    operations, verdict = invalid_run(200)
    page = report_of(operations, verdict, Register()).page
    without = page.bars.gap_count.count(0)
    assert 0 < without < len(page.bars)
    assert page.bars.gap_count[page.failing]
    (note,) = page.notes
    assert "“Why not here?” has no answers for" in note


def test_states_that_are_too_large_to_keep_leave_answers_at_the_failing_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whynot, "STATES_BYTES_MAX", 2000)
    operations, verdict = invalid_run(200)
    page = report_of(operations, verdict, Register()).page
    assert [gap.answer for gap in gaps_of(page, page.failing)] == [Answer.ILLEGAL]
    assert page.bars.gap_count.count(0) > 100
    assert page.notes[0].endswith("far from the anomaly: the report would be too large.")
    assert len(page.answers) == 4 * sum(page.bars.gap_count)


def test_states_that_are_too_large_to_keep_leave_answers_at_the_beginning_of_a_valid_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whynot, "STATES_BYTES_MAX", 2000)
    page = report_of(*valid_run(200), Register()).page
    with_answers = [bar for bar, count in enumerate(page.bars.gap_count) if count]
    assert 10 < len(with_answers) < 100
    assert max(with_answers) < 110
    assert page.notes[0].endswith("late in the history: the report would be too large.")
    assert len(page.answers) == 4 * sum(page.bars.gap_count)


def test_several_that_act_as_one_cannot_act_alone() -> None:
    recorder = Recorder()
    one, other = recorder.invoke(0, "meet"), recorder.invoke(1, "meet")
    recorder.ok(one, (0, 1))
    recorder.ok(other, (0, 1))
    operations = recorder.operations()
    verdict = valid(operations, [ObjectOrder(None, ((one, other),))], Meeting())
    page = report_of(operations, verdict, Meeting()).page
    assert page.bars.rank == [0, 0]
    gaps = list(gaps_of(page, one))
    assert gaps[0].said == "Not here: a meeting takes two."
    assert {gap.answer for gap in gaps} <= {Answer.ILLEGAL, Answer.MISSED}


class Coin(Specification):
    name = "coin"

    def init(self) -> str:
        return "heads"

    def step(self, state: Any, operation: Any) -> Any:
        if operation.function == "toss":
            return OneOf(("heads", "tails"))
        if operation.result in (UNKNOWN, state):
            return state
        return Illegal(f"it shows {state}")


def test_steps_with_several_outcomes_keep_all_states_that_are_possible() -> None:
    recorder = Recorder()
    toss = recorder.invoke(0, "toss")
    recorder.ok(toss)
    look, again = recorder.invoke(0, "look"), recorder.invoke(1, "look")
    recorder.ok(look, "tails")
    recorder.ok(again, "tails")
    operations = recorder.operations()
    order = ObjectOrder(None, ((toss,), (look,), (again,)))
    page = report_of(operations, valid(operations, [order], Coin()), Coin()).page
    assert [gap.state for gap in gaps_of(page, look)] == ["'heads' or 'tails'", "'tails'"]
    assert {gap.answer for gap in gaps_of(page, look)} == {Answer.ITS_PLACE, Answer.STAYS_LEGAL}


class Broken(Register):
    def step(self, state: Any, operation: Any) -> Any:
        if operation.function == "write" and state == 1:
            raise ZeroDivisionError("no writes on 1")
        return super().step(state, operation)

    def describe_state(self, state: Any) -> str:
        raise ValueError(f"no words for {state}")


def test_a_specification_that_raises_has_said_no() -> None:
    recorder = Recorder()
    write, read = recorder.invoke(0, "write", 1), recorder.invoke(1, "write", 2)
    recorder.ok(write)
    recorder.ok(read)
    operations = recorder.operations()
    verdict = valid(operations, [ObjectOrder(None, ((read,), (write,)))], Broken())
    page = report_of(operations, verdict, Broken()).page
    assert [gap.said for gap in gaps_of(page, read)][-1] == (
        "Not here: the specification raised ZeroDivisionError: no writes on 1."
    )
    assert next(gaps_of(page, read)).state == "(its description raised ValueError)"


# --- histories of the coordination service ---


@pytest.mark.parametrize("execution", load(), ids=lambda execution: execution.name)
def test_executions_of_the_guide_have_pages(execution: Any) -> None:
    verdict = check(execution.history)
    page = report_of_history(execution.history, verdict, name=execution.name).page
    kinds = [lane.kind for lane in page.lanes]
    assert kinds[0] == "faults"
    assert kinds.count("operations") == kinds.count("lifetimes")
    rounds = [mark for mark in page.marks if mark.kind == "round"]
    if isinstance(verdict, Valid):
        assert len(rounds) == len(getattr(verdict.witness, "answers"))  # noqa: B009 - of a union
        placed = [bar for bar, point in enumerate(page.bars.point) if point != NOWHERE]
        assert all(page.bars.start[bar] <= page.bars.point[bar] for bar in placed)
    else:
        assert isinstance(verdict, Invalid)
        assert len(page.core) == len(verdict.anomaly.operations)
    assert json.loads(json.dumps(page.as_json()))["word"] == verdict.word


def test_crashes_and_incarnations_have_lanes() -> None:
    history = next(e.history for e in load() if e.name == "ghost-entry-of-a-restarted-caller")
    page = report_of_history(history, check(history)).page
    kinds = [mark.kind for mark in page.marks]
    assert "crash" in kinds
    assert "start" in kinds
    lives = [mark for mark in page.marks if mark.kind == "lifetime"]
    assert len(lives) > sum(lane.kind == "lifetimes" for lane in page.lanes)
    assert all(mark.until >= mark.at for mark in lives)


def test_the_same_history_gives_the_same_page() -> None:
    first, second = (report_of(*valid_run(50), Register()).html() for _ in range(2))
    assert first == second
