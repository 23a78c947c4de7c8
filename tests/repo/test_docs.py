"""The pages say what the code does."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from checker import Valid, check
from checker.history import (
    FORMAT_VERSION,
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
    dumps,
    loads,
    read,
)
from checker.history.events import BLOCK_OUTCOMES
from checker.history.header import CLOCKS, SOURCES, VERSION_KEY
from checker.history.jsonl_writer import INLINE_LIVE_SET_MAX
from coord_sim.core.status import Code
from jax_bridge import client_recorder
from jax_bridge.recorder import process_recorder

ROOT = Path(__file__).parents[2]
FORMAT_PAGE = (ROOT / "docs" / "history-format.md").read_text(encoding="utf-8")
DEPENDENCIES_PAGE = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "tests" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

EVENTS: dict[str, type[Event]] = {
    "start": Start,
    "crash": Crash,
    "leave": Leave,
    "invoke": Invoke,
    "ok": Ok,
    "fail": Fail,
    "info": Info,
    "enter": Enter,
    "exit": Exit,
}
COMMON = {"type", "time_ns", "process", "lifetime", "incarnation", "uncertainty_ns"}
MAY_REFER = {"ok", "enter"}
"""Lines that may have `answer` in place of a live set."""


def section(page: str, title: str) -> str:
    """What stands under a heading, up to the next one of any level."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", page, re.DOTALL | re.MULTILINE)
    assert found is not None, f"the page has no section {title!r}"
    return found[1]


def fields_in_table(text: str) -> set[str]:
    return set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def example(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", FORMAT_PAGE, re.DOTALL)
    return str(text)


def names_in(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", text))


# --- the history format ------------------------------------------------------------------------------


def test_the_example_history_is_well_formed_and_valid() -> None:
    history = loads(example("jsonl"))
    assert history.notes == ()
    assert isinstance(check(history), Valid)


def test_the_example_history_shows_every_type_of_line() -> None:
    shown = set(re.findall(r'^{"type":"(\w+)"', example("jsonl"), re.MULTILINE))
    assert shown == {*EVENTS, "answer"}


def test_the_example_history_shows_every_field() -> None:
    written = set(re.findall(r'"(\w+)":', example("jsonl")))
    known = {field.name for kind in EVENTS.values() for field in fields(kind)}
    assert known <= written


def test_the_example_history_survives_being_written_again() -> None:
    history = loads(example("jsonl"))
    again = loads(dumps(history))
    assert again.header == history.header
    assert list(again.events) == list(history.events)


def test_the_example_recorder_runs_and_writes_a_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example("python"), "history-format.md", "exec"), {})
    (start,) = read(tmp_path / "run.jsonl").events
    assert isinstance(start, Start)


def test_the_page_is_about_the_version_that_the_code_writes() -> None:
    assert f"# The history format, version {FORMAT_VERSION}\n" in FORMAT_PAGE


def test_the_page_names_every_type_of_event() -> None:
    headings = re.findall(r"^### `(\w+)`$", FORMAT_PAGE, re.MULTILINE)
    assert headings == list(EVENTS)
    assert {kind.__name__.lower() for kind in EVENTS.values()} == set(EVENTS)
    assert set(EVENTS.values()) == set(Event.__args__)


def test_the_page_names_the_fields_that_all_events_share() -> None:
    assert fields_in_table(section(FORMAT_PAGE, "Events")) == COMMON


@pytest.mark.parametrize("name", EVENTS)
def test_the_page_names_exactly_the_fields_of_an_event(name: str) -> None:
    known = {field.name for field in fields(EVENTS[name])} - COMMON
    if name in MAY_REFER:
        known.add("answer")
    assert fields_in_table(section(FORMAT_PAGE, f"`{name}`")) == known


def test_the_page_names_exactly_the_fields_of_the_header() -> None:
    known = {field.name for field in fields(Header)} | {VERSION_KEY}
    assert fields_in_table(section(FORMAT_PAGE, "The header")) == known


def test_the_page_names_every_source_clock_and_outcome() -> None:
    assert names_in(section(FORMAT_PAGE, "The header")) >= {*SOURCES, *CLOCKS}
    assert names_in(section(FORMAT_PAGE, "`exit`")) >= set(BLOCK_OUTCOMES)


def test_the_page_says_from_which_size_on_answers_are_shared() -> None:
    shared = section(FORMAT_PAGE, "Shared answers")
    assert f"of more than {INLINE_LIVE_SET_MAX} processes" in shared


def test_the_page_and_both_recorders_agree_on_the_definite_codes() -> None:
    ends = section(FORMAT_PAGE, "How calls end")
    told = {name for name in names_in(ends) if name.isupper()}
    assert told == {code.name for code in Code if code.definite}
    assert told == process_recorder.DEFINITE_CODES


def test_the_page_names_every_operation_of_the_recorder_of_real_processes() -> None:
    operations = {operation for operation, _, _ in client_recorder._METHODS.values()}
    of_servers = {"watch_tasks", "cancel_barrier", "report_error"}
    of_servers |= {"register", "heartbeat", "poll_for_error"}
    assert fields_in_table(section(FORMAT_PAGE, "Operations")) == operations | of_servers


@pytest.mark.parametrize("kind", EVENTS)
def test_what_may_be_left_out_is_what_the_page_says(kind: str) -> None:
    """Leaves out one field of each line of the example at a time."""
    lines = example("jsonl").splitlines()
    number = next(n for n, line in enumerate(lines) if line.startswith(f'{{"type":"{kind}"'))
    table = section(FORMAT_PAGE, "Events") + section(FORMAT_PAGE, f"`{kind}`")
    optional = {
        row[0]: row[1].startswith("yes")
        for row in re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]*) \|", table, re.MULTILINE)
    }
    for field, may_be_left_out in optional.items():
        if field in {"result", "live", "answer"} or f'"{field}":' not in lines[number]:
            continue
        assert is_readable(without(lines, number, field)) == may_be_left_out, field


def without(lines: list[str], number: int, field: str) -> str:
    """The lines up to `number`, which loses a field."""
    value = r'(?:"[^"]*"|\d+|null|\[[^\]]*\]|\{.*?\}(?=,"|\}$))'
    line, count = re.subn(rf',?"{field}":{value}', "", lines[number], count=1)
    assert count == 1
    return "\n".join([*lines[:number], line.replace("{,", "{"), ""])


def is_readable(text: str) -> bool:
    try:
        history = loads(text)
    except ValueError:
        return False
    assert isinstance(history, History)
    return True


# --- dependencies ------------------------------------------------------------------------------------


def declared_dependencies() -> list[str]:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = declared["project"]
    requirements = [*declared["build-system"]["requires"], *project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        requirements += extra
    names = {re.split(r"[^\w.-]", requirement)[0] for requirement in requirements}
    return sorted(names - {project["name"]})


def test_the_page_of_dependencies_names_each_declared_one_and_no_other() -> None:
    told = re.findall(r"^\| `([\w.-]+)` \|", DEPENDENCIES_PAGE, re.MULTILINE)
    assert sorted(told) == declared_dependencies()


def test_the_page_of_dependencies_knows_the_versions_of_the_generated_code() -> None:
    title = re.search(r"^## Why protobuf from (\S+) on\n", DEPENDENCIES_PAGE, re.MULTILINE)
    assert title is not None
    text = section(DEPENDENCIES_PAGE, f"Why protobuf from {title[1]} on")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    generated = ROOT / "coord_sim" / "wire" / "_generated" / "coordination_service_pb2.py"
    assert f'"protobuf>={title[1]}"' in project
    assert f"# Protobuf Python Version: {title[1]}\n" in generated.read_text(encoding="utf-8")
    pinned = re.search(r'"grpcio-tools==([\d.]+)"', project)
    assert pinned is not None
    assert f"grpcio-tools {pinned[1]}," in text


# --- links -------------------------------------------------------------------------------------------


def links(path: Path) -> list[str]:
    text = re.sub(
        r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    text = re.sub(r"`[^`\n]*`", lambda code: "x" * len(code[0]), text)
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(
        r"^\[[^\]]+\]:\s+(\S+)", text, re.MULTILINE
    )


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_to_a_heading_that_exist(path: Path) -> None:
    broken = []
    for link in links(path):
        if re.match(r"(https?|mailto):", link):
            continue  # Another server's business; a test that needs the network is no use offline.
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target)
        ):
            broken.append(link)
    assert broken == []


def test_the_pages_that_others_link_to_exist() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in PAGES}
    assert names >= {"README.md", "docs/history-format.md", "docs/dependencies.md"}
