"""Recorded heartbeats under other time-outs."""

from __future__ import annotations

from itertools import pairwise

import pytest

from checker.history import Event, Header, History, Invoke, Ok, Start
from coord_sim.replay.silences import Silences, silences_of

S = 1_000_000_000


def recording(
    beats: dict[tuple[int, int], list[float]],
    end_s: float,
    *,
    calls: dict[tuple[int, int], list[float]] | None = None,
) -> Silences:
    """Starts (process, lifetime) that register at the first of these times and beat at the others."""
    rows: list[tuple[float, tuple[int, int], str]] = []
    for key, times in beats.items():
        rows.append((times[0], key, "register"))
        rows += [(time_s, key, "heartbeat") for time_s in times[1:]]
    for key, times in (calls or {}).items():
        rows += [(time_s, key, "key_value_delete") for time_s in times]
    rows.append((end_s, (9, 0), "key_value_delete"))
    events: list[Event] = []
    for number, (time_s, (process, lifetime), name) in enumerate(sorted(rows)):
        common = {"time_ns": round(time_s * S), "process": process, "lifetime": lifetime}
        events.append(Invoke(id=number, operation=name, arguments={}, **common))
        events.append(Ok(id=number, result=None, **common))
        if name == "register":
            events.append(Start(incarnation=process * 10 + lifetime, **common))
    return silences_of(History(Header(source="server", participants=tuple(range(10))), events))


STEADY = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]


def test_a_stall_is_a_false_alarm_for_time_outs_that_are_shorter() -> None:
    stalled = [0.0, 1.0, 2.0, 6.5, 7.5, 8.5, 9.5, 10.0]
    silences = recording({(0, 0): STEADY, (1, 0): stalled}, 10.5)
    row = silences.row(3.0)
    (alarm,) = silences.false_alarms(3.0)
    assert (alarm.process, alarm.is_sure, row.false) == (1, True, (1, 0))
    assert (alarm.last_heard_ns, alarm.earliest_ns, alarm.latest_ns) == (2 * S, 5 * S, 6 * S)
    assert alarm.lived_ns == round(6.5 * S)
    assert row.deaths == ()


def test_within_a_second_above_the_time_out_the_phase_decides() -> None:
    silences = recording({(1, 0): [0.0, 1.0, 2.0, 6.5, 7.5, 8.5]}, 9.0)
    (alarm,) = silences.false_alarms(4.0)
    assert not alarm.is_sure
    assert alarm.latest_ns == round(6.5 * S)
    assert silences.false_alarms(4.5) == []  # The service asks for strictly more.


def test_a_death_is_noticed_after_the_time_out_unless_a_restart_is_faster() -> None:
    lives = {(0, 0): STEADY, (1, 0): [0.0, 1.0, 2.0], (1, 1): [6.0, 7.0, 8.0, 9.0, 10.0]}
    silences = recording(lives, 10.5)
    assert [silences.died(life) for life in silences.lives] == [False, True, False]
    (death,) = silences.row(2.0).deaths
    assert (death.process, death.lifetime, death.lived_ns, death.is_sure) == (1, 0, None, True)
    assert (death.earliest_ns, death.latest_ns) == (4 * S, 5 * S)
    assert silences.row(5.0).deaths == ()


def test_a_death_is_noticed_by_some_phases_if_a_restart_is_nearly_as_fast() -> None:
    """A start that some phases declare dead while it lives dies all the same."""
    lives = {
        (0, 0): [0.0, 1.5, 3.0, 4.5, 6.0, 7.5, 9.0, 10.5],
        (1, 0): [0.0, 1.5, 3.0],
        (1, 1): [5.25, 6.75, 8.25, 9.75],
    }
    silences = recording(lives, 10.5)
    rows = [silences.row(timeout_s) for timeout_s in (0.4, 1.0, 1.25, 1.5, 2.0, 2.25)]
    assert [row.false for row in rows] == [(3, 0), (0, 3), (0, 3), (0, 0), (0, 0), (0, 0)]
    assert [row.noticed for row in rows] == [(1, 0), (1, 0), (0, 1), (0, 1), (0, 1), (0, 0)]
    after_s = [
        row.noticed_after_ns and tuple(ns / S for ns in row.noticed_after_ns) for row in rows
    ]
    # Not later than the replacement, which comes 2.25 s after the last heartbeat.
    assert after_s[:3] == [(0.4, 1.4), (1.0, 2.0), (1.25, 2.25)]
    assert after_s[3:] == [(1.5, 2.25), (2.0, 2.25), None]


def test_each_silence_is_an_alarm_and_each_start_counts_once() -> None:
    """The longer one comes later, and one as long as the time-out is none."""
    silences = recording({(1, 0): [0.0, 4.2, 6.2, 10.2, 12.2, 17.0, 19.0, 23.4, 25.4]}, 26.0)
    alarms = silences.false_alarms(4.0)
    assert [alarm.last_heard_ns / S for alarm in alarms] == [0.0, 12.2, 19.0]
    assert [alarm.lived_ns for alarm in alarms] == [round(s * S) for s in (4.2, 17.0, 23.4)]
    assert silences.row(4.0).false == (0, 1)
    assert silences.row(3.0).false == (1, 0)


def test_a_possible_false_alarm_does_not_hide_a_sure_one() -> None:
    silences = recording({(1, 0): [0.0, 2.5, 5.0, 10.0, 11.0, 12.0]}, 12.5)
    row = silences.row(2.0)
    assert row.false == (1, 0)
    found = [(alarm.last_heard_ns // S, alarm.is_sure) for alarm in silences.false_alarms(2.0)]
    assert found == [(0, False), (2, False), (5, True)]
    assert silences.row(4.5).false == (0, 1)


def test_who_still_calls_is_not_dead() -> None:
    """Its heartbeats stop at 2 s, and it calls until 4.5; then nobody hears of it."""
    silences = recording({(0, 0): STEADY, (1, 0): STEADY[:3]}, 10.5, calls={(1, 0): [4.5]})
    rows = [silences.row(timeout_s) for timeout_s in (1.0, 2.0, 3.0)]
    assert [row.false for row in rows] == [(1, 0), (0, 1), (0, 0)]
    assert [row.noticed for row in rows] == [(0, 0), (0, 1), (1, 0)]
    assert rows[1].noticed_after_ns == (2.5 * S, 3 * S), "only once it is dead"


def test_who_is_silent_until_the_end_is_dead_if_it_is_silent_for_longer_than_usual() -> None:
    silences = recording({(0, 0): STEADY, (1, 0): STEADY[:5]}, 10.5)
    assert [silences.died(life) for life in silences.lives] == [False, True]


def test_clients_that_beat_every_half_only_suffer_the_delay() -> None:
    silences = recording({(1, 0): [0.0, 1.0, 2.0, 6.5, 7.5, 8.5, 9.5]}, 10.0)
    assert silences.row(3.0).adapted == (1, 0)  # 1.5 s and 3.5 s of delay are more than 4 s.
    assert silences.row(6.0).adapted == (0, 1)
    assert silences.row(7.0).adapted == (0, 0)
    assert silences.recommended_s() == 11.0  # 1.5 times 2 times 3.5, in whole seconds.


@pytest.mark.parametrize("current_s", [None, 13.0])
def test_sensible_time_outs_surround_the_silences_that_there_were(current_s: float | None) -> None:
    silences = recording({(0, 0): STEADY, (1, 0): [0.0, 1.0, 2.0, 6.5, 7.5]}, 10.5)
    chosen = silences.sensible(current_s)
    assert chosen == sorted(set(chosen))
    assert min(chosen) <= 1.0
    assert max(chosen) >= 4.5
    assert current_s is None or current_s in chosen


def test_one_pass_agrees_with_asking_every_silence() -> None:
    times = [0.0]
    for number in range(200):
        times.append(times[-1] + 1.0 + (number * 37 % 101) / 50)
    silences = recording({(0, 0): times}, times[-1])
    gaps = [after - before for before, after in pairwise(times)]
    for timeout_s in (1.5, 2.0, 2.9, 3.5):
        longer = [gap for gap in gaps if round(gap * S) > round(timeout_s * S)]
        assert sum(silences.row(timeout_s).false) == min(1, len(longer))
        assert silences.row(timeout_s).false[0] == (max(gaps) > timeout_s + 1)
