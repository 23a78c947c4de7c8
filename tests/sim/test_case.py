"""Cases: every value of a run, as text and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coord_sim.faults import Crash, Restart
from coord_sim.moments import When
from coord_sim.schedule import Place, Schedule
from coord_sim.sim.case import Case, CaseError, digest_of, parse_case, read_case
from coord_sim.sim.nemesis import draw_schedule
from coord_sim.sim.run import CRASHED

PROGRAM = """
async def train(process):
    async with process.live_devices():
        await process.sleep(1.0)
    await process.client.shutdown()

def made(steps=2):
    async def program(process):
        for _ in range(steps):
            await process.sleep(1.0)
        await process.client.shutdown()
    return program

nothing = 7
"""


def test_a_case_comes_back_from_its_text() -> None:
    base = Schedule(
        processes=4,
        hosts=((0, 1), (2, 3)),
        starts_s=(0.0, None),
        places=(Place(process=3, task=1),),
        faults=(
            Crash(1, When("inside", 1, "live_processes", 2, 0.25)),
            Restart(1, When("crash", 1)),
        ),
        semantics="published",
    )
    case = Case("training_loop", base, {"steps": 3, "slow": None, "step_s": 0.25})
    assert parse_case(case.to_text()) == case
    for seed in range(100):
        drawn = Case("training_loop", draw_schedule(seed, Schedule(processes=4)))
        assert parse_case(drawn.to_text()) == drawn


def test_the_run_of_a_text_is_that_of_the_case() -> None:
    case = Case("training_loop", draw_schedule(3, Schedule(processes=3)), {"steps": 2})
    assert digest_of(parse_case(case.to_text()).run()) == digest_of(case.run())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("7", "is no case"),
        ("{}", "is no case"),
        ('{"format": "coordlab case", "version": 2}', "of another version"),
        ('{"format": "coordlab case", "version": 1}', "is no case"),
        (
            '{"format": "coordlab case", "version": 1, "is": "Schedule", "processes": 1}',
            "is no case",
        ),
        ('{"format": "coordlab case", "version": 1, "is": "Case"}', "a Case that cannot be"),
        ('{"format": "coordlab case", "version": 1, "is": "object"}', "something unknown"),
    ],
)
def test_text_that_is_no_case_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(CaseError, match=complaint):
        parse_case(text)


@pytest.mark.parametrize(
    "change",
    [
        {"processes": 0},
        {"processes": "three"},
        {"seed": None, "faults": 7},
        {"faults": [{"is": "Crash", "process": 9, "at_s": 1.0}]},
        {"faults": [{"is": "Crash", "process": 0, "at": 1.0}]},
        {"faults": [{"is": "Crash", "process": 0, "at_s": "noon"}]},
        {"faults": ["crash"]},
        {"colour": "red"},
        {"limit_s": {"is": "Place", "process": 0, "task": 0}},
    ],
)
def test_a_schedule_that_cannot_be_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    document = json.loads(Case("training_loop", Schedule(processes=2)).to_text())
    document["schedule"].update(change)
    path = tmp_path / "case.json"
    path.write_text(json.dumps(document))
    with pytest.raises(CaseError, match=r"case\.json: holds a "):
        read_case(path)


def test_any_value_in_any_place_is_refused_or_makes_a_case() -> None:
    document = json.loads(
        Case("training_loop", draw_schedule(7, Schedule(processes=3)), {"steps": 1}).to_text()
    )
    refused = 0

    def spoil(place: Any) -> None:
        nonlocal refused
        for key in place if isinstance(place, dict) else range(len(place)):
            value = place[key]
            for other in (None, -1, 1e400, "x", [], {}, {"is": "When"}, True, ["x"], [[0]]):
                place[key] = other
                try:
                    parse_case(json.dumps(document))
                except CaseError:
                    refused += 1
            place[key] = value
            if isinstance(value, dict | list):
                spoil(value)

    spoil(document)
    assert refused > 200


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "case.json").write_bytes(b"\xff\xfe")
    with pytest.raises(CaseError, match="UTF-8"):
        read_case(tmp_path / "case.json")


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(CaseError, match="longer than 1 MiB"):
        read_case("/dev/zero")


def test_programs_are_found_by_name_in_modules_and_in_files(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PROGRAM)
    schedule = Schedule(processes=2)
    for case in (
        Case("training_loop", schedule, {"steps": 1}),
        Case("tests.campaign.programs:plain", schedule),
        Case("tests.campaign.programs:failing", schedule, {"after": 1}),
        Case(f"{file}:train", schedule),
        Case(f"{file}:made", schedule, {"steps": 1}),
    ):
        assert case.run().finished
    failing = Case("tests.campaign.programs:failing", schedule).run()
    assert [end.state for end in failing.ends] == ["left", CRASHED]


def test_programs_that_cannot_be_made_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PROGRAM)
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_that_name\n")
    complaints = {
        "train": "no program 'train'; write module:function",
        ":train": "no program",
        f"{file}:test": "has no function 'test'",
        f"{file}:nothing": "has no function 'nothing'",
        f"{tmp_path}/other.py:train": "there is no file",
        f"{broken}:train": "cannot import .*ModuleNotFoundError",
        "no.such.module:train": "cannot import no.such.module: ModuleNotFoundError",
        "tests.campaign.programs:unmade": "nothing to make it of",
    }
    for program, complaint in complaints.items():
        with pytest.raises(CaseError, match=complaint):
            Case(program, Schedule(processes=1)).make_program()


def test_arguments_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PROGRAM)
    for program, arguments, complaint in (
        ("training_loop", {"stepz": 3}, "stepz"),
        (f"{file}:train", {"steps": 3}, "takes no arguments"),
        ("reused_barrier", {}, "late"),
    ):
        with pytest.raises(CaseError, match=complaint):
            Case(program, Schedule(processes=1), arguments).make_program()
