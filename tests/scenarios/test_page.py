"""`docs/scenarios.md`: the format reference is about all there is, and its example is one."""

from __future__ import annotations

import re
import typing
from dataclasses import fields

import pytest

from coord_sim.cli.scenarios import verdict_word
from coord_sim.core.semantics import SEMANTICS
from coord_sim.scenarios import (
    Answers,
    Blocks,
    Ends,
    Expectations,
    Logs,
    Scenario,
    ScenarioError,
    parse_scenario,
    run_scenario,
)
from coord_sim.scenarios.expectations import JUDGEMENTS, OUTCOMES, STATES, VERDICTS
from coord_sim.scenarios.reading import FAULT_KINDS
from coord_sim.schedule import Schedule
from tests.scenarios.page import PAGE, page

TEXT = PAGE.read_text(encoding="utf-8")
REFERENCE = TEXT[: TEXT.index("## Programs")]


def example() -> str:
    found = re.search(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_generated_parts_are_what_the_files_and_the_programs_say() -> None:
    assert page(TEXT) == TEXT, "run python -m tests.scenarios.page"


def test_the_example_is_a_scenario_that_holds() -> None:
    scenario = parse_scenario(example(), "mine.toml")
    for seed in range(5):
        assert run_scenario(scenario, verdict_word, seed=seed).holds


def test_the_example_in_python_says_the_same() -> None:
    found = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    names: dict[str, object] = {}
    exec(found[1], names)
    assert names["one_dies"] == parse_scenario(example(), "mine.toml")


def test_the_errors_that_are_shown_are_those_of_the_example() -> None:
    shown = re.findall(r"^coordlab: error: (.*)$", TEXT, re.MULTILINE)
    wrong = example().replace('kind = "crash"', 'kind = "crahs"').replace("steps =", "stepps =")
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(wrong, "mine.toml")
    assert shown == [str(problem) for problem in caught.value.problems]


def test_the_reference_names_every_key_and_word() -> None:
    words = {field.name for kind in (Schedule, Expectations) for field in fields(kind)}
    words |= {field.name for kind in (Ends, Blocks, Logs, Answers) for field in fields(kind)}
    words |= {field.name for kind in FAULT_KINDS.values() for field in fields(kind)} - {"at_s"}
    words |= set(typing.get_type_hints(Scenario)) - {"schedule", "arguments", "expect_of"}
    words |= {*FAULT_KINDS, *SEMANTICS, *JUDGEMENTS, *OUTCOMES, *STATES, *VERDICTS, "pending", "at"}
    known = set(re.findall(r"[\w-]+", REFERENCE)) | {"never started"}
    assert words <= known
