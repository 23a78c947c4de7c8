"""Scenario files: what they mean, and what is said about those that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coord_sim.faults import Crash, Degrade, Partition, Pause, Restart, Skew
from coord_sim.moments import When
from coord_sim.scenarios import (
    Blocks,
    Ends,
    Expectations,
    Problem,
    Scenario,
    ScenarioError,
    parse_scenario,
    read_scenario,
)
from coord_sim.schedule import Place, Schedule

FILE = """\
name = "one-dies"
title = "One dies"
what = "Process 1 is killed."
why = "It happens."
runs_on = ["simulator"]
sources = ["a/b#1"]
[job]
processes = 4
starts_s = [0, 0, 1.5, "never"]
places = [{ process = 3, task = 1 }]
recoverable = true
[hosts]
left = [0, 1]
right = [2, 3]
[program]
name = "training_loop"
steps = 10
slow = 2
[[faults]]
kind = "crash"
process = 1
at = "inside 1 block#3 +0.5"
[[faults]]
kind = "restart"
process = 1
at = "crash 1#1 +2"
[[faults]]
kind = "pause"
host = "right"
at = 3
for_s = 1
[[faults]]
kind = "degrade"
at = 4
for_s = 2
loss = 0.5
[[faults]]
kind = "partition"
host = "left"
other = ["service"]
at = 5
for_s = 1
one_way = true
[[faults]]
kind = "skew"
process = "service"
at = 6
drift = 0.1
[expect]
verdict = "valid"
finished = true
[[expect.ends]]
host = "left"
state = "left"
[expect.published]
[[expect.published.blocks]]
process = 0
outcome = "failed"
failed = [1]
"""

IN_PYTHON = Scenario(
    name="one-dies",
    title="One dies",
    what="Process 1 is killed.",
    why="It happens.",
    sources=("a/b#1",),
    schedule=Schedule(
        processes=4,
        starts_s=(0.0, 0.0, 1.5, None),
        places=(Place(process=3, task=1),),
        hosts=((0, 1), (2, 3)),
        faults=(
            Crash(1, When("inside", 1, "block", 3, 0.5)),
            Restart(1, When("crash", 1, plus_s=2.0)),
            Pause(2, 3.0, 1.0),
            Pause(3, 3.0, 1.0),
            Degrade(None, 4.0, 2.0, loss=0.5),
            Partition((0, 1), 5.0, 1.0, ("service",), one_way=True),
            Skew("service", 6.0, drift=0.1),
        ),
    ),
    program="training_loop",
    arguments={"steps": 10, "slow": 2},
    expect=Expectations(
        verdicts={"round-suspicion": "valid"},
        finished=True,
        ends=(Ends(processes=(0, 1), state="left"),),
    ),
    expect_of={
        "published": Expectations(blocks=(Blocks(processes=(0,), outcome="failed", failed=(1,)),))
    },
)


def problems(text: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "f.toml")
    return [str(problem) for problem in caught.value.problems]


def line_of(text: str, line: str) -> int:
    return text.split("\n").index(line) + 1


def test_a_file_and_python_say_the_same() -> None:
    assert parse_scenario(FILE, "f.toml") == IN_PYTHON


def test_what_is_expected_of_semantics_replaces_what_is_expected_else() -> None:
    published = IN_PYTHON.expectations("published")
    assert published.blocks == IN_PYTHON.expect_of["published"].blocks
    assert published.ends == IN_PYTHON.expect.ends
    assert IN_PYTHON.expectations("shipped") == IN_PYTHON.expect


def test_windows_line_ends_are_fine() -> None:
    assert parse_scenario(FILE.replace("\n", "\r\n"), "f.toml") == IN_PYTHON


WRONG = {
    # a line of the file, what stands there instead, the key, what is said
    "unknown key": ('title = "One dies"', 'titel = "x"', "titel", "did you mean 'title'?"),
    "missing key": ('why = "It happens."', "", "", "the key 'why' is missing"),
    "name": ('name = "one-dies"', 'name = "One dies"', "name", "lower-case-words"),
    "type of text": ('title = "One dies"', "title = 3", "title", "must be text, found 3"),
    "place": (
        'runs_on = ["simulator"]',
        'runs_on = ["procesess"]',
        "runs_on",
        "did you mean 'processes'?",
    ),
    "unreal fault": (
        'runs_on = ["simulator"]',
        'runs_on = ["processes"]',
        "faults[5]",
        "skew cannot be done to real processes",
    ),
    "setting": ("recoverable = true", "recoverabel = true", "job.recoverabel", "'recoverable'?"),
    "setting's type": (
        "recoverable = true",
        "recoverable = 1",
        "job.recoverable",
        "must be true or false, found 1",
    ),
    "bool for number": ("processes = 4", "processes = true", "job.processes", "a whole number"),
    "too many": ("processes = 4", "processes = 200000", "job.processes", "at most 100000"),
    "setting out of range": (
        "recoverable = true",
        "heartbeat_timeout_s = 0",
        "job.heartbeat_timeout_s",
        "must be positive",
    ),
    "semantics": (
        "recoverable = true",
        'semantics = "shiped"',
        "job.semantics",
        "one of shipped, published, naive",
    ),
    "start": (
        'starts_s = [0, 0, 1.5, "never"]',
        'starts_s = [0, 0, 1.5, "nevr"]',
        "job.starts_s[3]",
        "must be a number, found 'nevr'",
    ),
    "place's process": (
        "places = [{ process = 3, task = 1 }]",
        "places = [{ process = 9, task = 1 }]",
        "job.places",
        "processes are 0 to 3",
    ),
    "place's key": (
        "places = [{ process = 3, task = 1 }]",
        "places = [{ process = 3, tsak = 1 }]",
        "job.places[0].tsak",
        "did you mean 'task'?",
    ),
    "host's process": ("left = [0, 1]", "left = [0, 7]", "hosts.left", "7 is not one of 0 to 3"),
    "program": (
        'name = "training_loop"',
        'name = "trainning_loop"',
        "program.name",
        "did you mean 'training_loop'?",
    ),
    "argument": ("steps = 10", "stepps = 10", "program.stepps", "did you mean 'steps'?"),
    "argument's type": ("steps = 10", "steps = 1.5", "program.steps", "must be a whole number"),
    "negative argument": ("steps = 10", "steps = -1", "program.steps", "at least 0, found -1"),
    "argument's process": ("slow = 2", "slow = 4", "program.slow", "4 is not one of 0 to 3"),
    "kind": ('kind = "crash"', 'kind = "crahs"', "faults[0].kind", "did you mean 'crash'?"),
    "kind's type": ('kind = "crash"', "kind = 3", "faults[0].kind", "unknown kind 3"),
    "no kind": ('kind = "crash"', "", "faults[0]", "the key 'kind' is missing"),
    "fault's key": ("loss = 0.5", "los = 0.5", "faults[3].los", "did you mean 'loss'?"),
    "fault's process": (
        'at = "inside 1 block#3 +0.5"',
        'at = "inside 5 block#3"',
        "faults[0].at",
        "process 5 is not one of 0 to 3",
    ),
    "moment": (
        'at = "inside 1 block#3 +0.5"',
        'at = "insde 1 block#3"',
        "faults[0].at",
        "is no moment; write",
    ),
    "negative time": ("at = 3", "at = -3", "faults[2].at", "before the run begins"),
    "infinite time": ("at = 3", "at = inf", "faults[2].at", "must be finite"),
    "no number": ("at = 3", "at = nan", "faults[2].at", "must be finite"),
    "time as text": ("at = 3", 'at = "-3"', "faults[2].at", "before the run begins"),
    "length": ("loss = 0.5", "loss = 1.5", "faults[3]", "loss is a probability"),
    "unknown host": ('host = "right"', 'host = "rihgt"', "faults[2].host", "'right'?"),
    "member": ('process = "service"', 'process = "servce"', "faults[5].process", "'service'?"),
    "judgement": (
        'verdict = "valid"',
        'verdicts = { rond-suspicion = "valid" }',
        "expect.verdicts.rond-suspicion",
        "did you mean 'round-suspicion'?",
    ),
    "verdict": ('verdict = "valid"', 'verdict = "vald"', "expect.verdict", "'valid'?"),
    "expected key": ("finished = true", "finishd = true", "expect.finishd", "'finished'?"),
    "state": ('state = "left"', 'state = "lefft"', "expect.ends[0].state", "'left'?"),
    "cause of leaving": (
        'state = "left"',
        'state = "left"\ncause = "x"',
        "expect.ends[0].cause",
        "goes with the state 'crashed' only",
    ),
    "empty interval": (
        'state = "left"',
        'state = "left"\nafter_s = 3\nbefore_s = 2',
        "expect.ends[0].before_s",
        "nothing is after 3 s and before 2 s",
    ),
    "expected process": (
        "process = 0",
        "process = 8",
        "expect.published.blocks[0].process",
        "process 8 is not one of 0 to 3",
    ),
    "outcome": (
        'outcome = "failed"',
        'outcome = "faild"',
        "expect.published.blocks[0].outcome",
        "did you mean 'failed'?",
    ),
    "at least nothing": (
        'outcome = "failed"',
        'outcome = "failed"\nat_least = 0',
        "expect.published.blocks[0].at_least",
        "always holds",
    ),
    "semantics's key": (
        "[expect.published]",
        "[expect.publishd]",
        "expect.publishd",
        "unknown key 'publishd'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_with_its_line_and_the_nearest_right_name(case: str) -> None:
    right, wrong, key, said = WRONG[case]
    assert FILE.count(f"\n{right}\n") + FILE.startswith(f"{right}\n") >= 1
    text = FILE.replace(f"{right}\n", f"{wrong}\n" if wrong else "", 1)
    if case == "semantics's key":
        text = text.replace("[[expect.published.", "[[expect.publishd.")
    found = problems(text)
    fitting = [problem for problem in found if said in problem and key in problem]
    assert fitting, found
    line = int(fitting[0].split(":")[1])
    if wrong and case not in ("unreal fault", "length"):
        assert line == line_of(text, wrong.split("\n")[-1]), fitting
    assert fitting[0].startswith(f"f.toml:{line}: ")


def test_problems_of_faults_stand_at_the_fault() -> None:
    text = FILE.replace("loss = 0.5", "loss = 1.5")
    (problem,) = problems(text)
    line = line_of(text, 'kind = "degrade"') - 1
    assert problem.startswith(f"f.toml:{line}: faults[3]: ")


def test_many_problems_are_said_at_once_in_the_order_of_lines() -> None:
    text = FILE
    for right, wrong in (
        ('title = "One dies"', "title = 1"),
        ("steps = 10", "stepps = 10"),
        ('kind = "pause"', 'kind = "puase"'),
        ('state = "left"', 'state = "lefft"'),
        ("failed = [1]", "failed = 1"),
    ):
        text = text.replace(right, wrong)
    found = problems(text)
    keys = [problem.split(": ")[1] for problem in found]
    assert keys == [
        "title",
        "program.stepps",
        "faults[2].kind",
        "expect.published.blocks[0].failed",
    ]
    lines = [int(problem.split(":")[1]) for problem in found]
    assert lines == sorted(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = \n", "f.toml:1: no TOML: "),
        ("a = 1\nb = 2\na = 3\n", "f.toml:3: no TOML: "),
        ('a = """\nnever ends', "f.toml:2: no TOML: "),
        ("a = " + "[" * 3000 + "]" * 3000, "f.toml: is nested too deeply"),
        ("", "f.toml:1: the key 'name' is missing"),
        (
            "job = 3\nprogram = []\nfaults = 1\nhosts = 2\nexpect = 4",
            "f.toml:1: job: must be a table",
        ),
        ("faults = [1, [2]]\n[expect]\nends = 3", "f.toml:1: faults[0]: must be a table, found 1"),
    ],
)
def test_what_is_no_scenario_at_all_is_said_to_be_none(text: str, said: str) -> None:
    assert any(problem.startswith(said) for problem in problems(text))


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(ScenarioError, match=r"binary.toml:2: is not UTF-8"):
        read_scenario(path)
    path.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(ScenarioError, match="longer than 1 MiB"):
        read_scenario(path)


def test_a_scenario_in_python_is_checked_too() -> None:
    with pytest.raises(ScenarioError, match=r"scenario x: program.stepps: .*'steps'"):
        Scenario(
            name="x",
            title="x",
            what="x",
            why="x",
            schedule=Schedule(processes=2),
            program="training_loop",
            arguments={"stepps": 3},
            expect=Expectations(finished=True),
        )


def test_a_scenario_that_expects_nothing_is_none() -> None:
    text = FILE[: FILE.index("[expect]")] + "[expect]\n"
    assert problems(text) == [f"f.toml:{line_of(text, '[expect]')}: expect: expects nothing"]


def test_arguments_that_a_program_refuses_are_bad_input() -> None:
    text = FILE.replace('name = "training_loop"', 'name = "ignore_the_dead"')
    text = text.replace("slow = 2", 'batch = "half"')
    (problem,) = problems(text)
    assert "program: batch is one of live, global; found 'half'" in problem


WORDS = """-1|0|3|1e400|nan|true|''|'service'|'never'|[]|{}|[[]]|[0, 'x']|{ a = 1 }|2020-01-01|'crash'
'inside 9 block#0'|'crash 1'|'shipped'|99999999999999999999999|[{}]|[-1]|'partition'|'lockstep'"""
VALUES = st.one_of(st.sampled_from(WORDS.replace("\n", "|").split("|")), st.integers().map(str))


def assert_that_each_has_a_line(problems: tuple[Problem, ...], lines: int) -> None:
    assert problems
    for problem in problems:
        assert problem.file == "f.toml"
        assert 1 <= problem.line <= lines


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_the_values_are_it_is_a_scenario_or_is_said_to_be_none(
    data: st.DataObject,
) -> None:
    lines = FILE.rstrip("\n").split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        number = data.draw(st.integers(0, len(lines) - 1))
        key, equals, _value = lines[number].partition(" = ")
        if equals:
            lines[number] = f"{key} = {data.draw(VALUES)}"
        elif data.draw(st.booleans()):
            del lines[number]
    text = "\n".join(lines)
    try:
        parse_scenario(text, "f.toml").make_program()
    except ScenarioError as error:
        assert_that_each_has_a_line(error.problems, len(lines))
