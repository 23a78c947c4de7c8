"""What real processes cannot suffer is refused, where it is written."""

from __future__ import annotations

import pytest

from coord_sim.faults import Degrade, Fault, Partition, Refuse, Skew, Slow
from coord_sim.moments import SERVICE
from coord_sim.scenarios import ScenarioError, names, parse_scenario, scenario_named
from coord_sim.scenarios.for_processes import not_for_processes
from coord_sim.scenarios.scenario import PROCESSES

FILE = """\
name = "mine"
title = "x"
what = "x"
why = "x"
runs_on = ["simulator", "processes"]
[job]
processes = 2
[program]
name = "training_loop"
[[faults]]
kind = "degrade"
at = 1
for_s = 2
delay_s = 0.1
[expect]
finished = true
"""


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Slow(0, 1.0, 1.0), "slow cannot be done"),
        (Skew(0, 1.0), "skew cannot be done"),
        (Degrade(0, 1.0, 1.0, loss=0.1, raw=True), "(raw)"),
        (Degrade(0, 1.0, 1.0, duplicate=0.1), "(duplicate)"),
        (Degrade(0, 1.0, 1.0, reorder=0.1), "use delay_s and jitter_s"),
        (Partition((0,), 1.0, 1.0, (1,)), "has the service on one side"),
    ],
)
def test_it_is_refused_with_the_reason(fault: Fault, words: str) -> None:
    assert words in str(not_for_processes(fault, 2))


@pytest.mark.parametrize(
    "fault",
    [
        Degrade(None, 1.0, 1.0, delay_s=1.0, jitter_s=1.0, loss=0.1, bytes_per_s=9.0),
        Partition((0,), 1.0, 1.0),
        Partition((0,), 1.0, 1.0, (1, SERVICE)),
        Refuse(0, 1.0, 1.0),
    ],
)
def test_what_signals_and_a_relay_can_do_is_not(fault: Fault) -> None:
    assert not_for_processes(fault, 2) is None


@pytest.mark.parametrize("line", ["duplicate = 0.5", "reorder = 0.5", "raw = true"])
def test_a_file_that_asks_for_it_is_none(line: str) -> None:
    with pytest.raises(ScenarioError, match="leave 'processes' out of runs_on") as refused:
        parse_scenario(FILE.replace("delay_s = 0.1", line), "f.toml")
    assert refused.value.problems[0].line == FILE.split("\n").index("[[faults]]") + 1
    simulated = FILE.replace('"simulator", "processes"', '"simulator"')
    parse_scenario(simulated.replace("delay_s = 0.1", line), "f.toml")


def test_no_shipped_scenario_for_processes_asks_for_it() -> None:
    for name in names():
        scenario = scenario_named(name)
        if PROCESSES in scenario.runs_on:
            for fault in scenario.schedule.faults:
                assert not_for_processes(fault, scenario.schedule.processes) is None
