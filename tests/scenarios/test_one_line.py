"""Faults and settings in one line."""

from __future__ import annotations

import pytest

from coord_sim.faults import Crash, Degrade, Fault, Partition, Pause, Reset, Restart, Skew, Slow
from coord_sim.moments import SERVICE, When
from coord_sim.scenarios.one_line import fault_line, parse_fault, parse_setting, setting_lines
from coord_sim.schedule import Place, Schedule

FAULTS: list[tuple[str, Fault]] = [
    ("crash process=1 at=2.5", Crash(1, 2.5)),
    ("crash process=service at=3.0", Crash(SERVICE, 3.0)),
    (
        "restart process=1 at='crash 1#1 +0.5'",
        Restart(1, When("crash", 1, plus_s=0.5)),
    ),
    (
        "pause process=2 at='inside 0 block#2' for_s=4.0",
        Pause(2, When("inside", 0, "block", 2), 4.0),
    ),
    ("slow process=0 at=1.0 for_s=2.0 factor=3.0", Slow(0, 1.0, 2.0, factor=3.0)),
    ("skew process=0 at=1.0 drift=-0.25", Skew(0, 1.0, drift=-0.25)),
    ("degrade at=0.0 for_s=9.0 loss=0.5 raw=true", Degrade(None, 0.0, 9.0, loss=0.5, raw=True)),
    (
        "partition side='[0, \"service\"]' at=1.0 for_s=2.0 one_way=true",
        Partition((0, SERVICE), 1.0, 2.0, one_way=True),
    ),
    ("reset process=1 at=1.5", Reset(1, 1.5)),
]


@pytest.mark.parametrize(("line", "fault"), FAULTS)
def test_a_fault_is_read_from_a_line_and_written_again(line: str, fault: Fault) -> None:
    assert parse_fault(line, 3) == fault
    assert fault_line(fault) == line


@pytest.mark.parametrize(
    "sides",
    [
        'side=[2] other=["service"]',
        "side=[2] other=[service]",
        "side=2 other=service",
        "side='[2]' other='[\"service\"]'",
    ],
)
def test_lists_need_neither_quotes_nor_brackets(sides: str) -> None:
    assert parse_fault(f"partition {sides} at=5 for_s=4", 3) == Partition(
        (2,), 5.0, 4.0, (SERVICE,)
    )


def test_lists_may_have_blanks() -> None:
    line = "partition side=[0, service, 2] at='inside 1 block#3' for_s=4"
    assert parse_fault(line, 3) == Partition((0, SERVICE, 2), When("inside", 1, "block", 3), 4.0)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "unknown kind of fault ''"),
        ("crush process=1 at=1", "did you mean 'crash'"),
        ("crash process=1", "the key 'at' is missing"),
        ("crash process=7 at=1", "process 7 is not one of 0 to 2"),
        ("crash process=1 at=soon", "is no moment"),
        ("crash process=1 at=1 for_s=3", "unknown key 'for_s'"),
        ("pause process=1 at=1 for_s=long", "for_s: must be a number"),
        ("crash 1", "'1' is not of the form KEY=VALUE"),
        ("reset process=service at=1", "process: "),
        (
            "partition side=[0, servce] at=1 for_s=1",
            "side.1: unknown member 'servce'; did you mean",
        ),
        ("partition side=[0 at=1 for_s=1", "the key 'at' is missing"),
    ],
)
def test_what_is_no_fault_is_refused_in_words(line: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_fault(line, 3)


def test_settings_of_a_job_are_read_and_written() -> None:
    schedule = Schedule(
        processes=3,
        durable=True,
        hosts=((0, 1), (2,)),
        starts_s=(0.0, None, 2.0),
        places=(Place(process=2, task=7),),
        limit_s=60.0,
        quiet_from_s=5.0,
    )
    read = dict(parse_setting(line, 3) for line in setting_lines(schedule))
    assert Schedule(processes=3, **read) == schedule
    with pytest.raises(ValueError, match="did you mean 'limit_s'"):
        parse_setting("limits=3", 3)
    with pytest.raises(ValueError, match="must be true or false"):
        parse_setting("durable=maybe", 3)
