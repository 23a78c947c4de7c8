"""What launchers and collectors put in front of lines is taken off."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from jax_bridge.explain import EXIT_CODES, FailureClass, explain
from jax_bridge.explain.naming import process_in_label
from jax_bridge.explain.prefixes import unprefixed
from tests.explain.failures import KEPT

RAISED = [
    (KEPT / "jaxlib-0.12.0.1" / "rank-raises" / f"process-{process}-0.log").read_text().splitlines()
    for process in range(3)
]
CAUSE = "process 1 raised ValueError: the shapes do not fit"


def first_sentence(path: Path, lines: list[str]) -> str:
    path.write_text("\n".join(lines) + "\n")
    explanation = explain([path], processes=3)
    assert explanation.exit_code == EXIT_CODES[FailureClass.USER_ERROR]
    return explanation.causes[0].sentence


@pytest.mark.parametrize(
    "prefix",
    [
        "{}: ",
        " {}: ",
        "[1,{}]<stderr>:",
        "[{}] ",
        "[rank{}]: ",
        "[pod/train-{}/main] ",
        "[pod/train-job-{}-x7k2p/main] ",
        "[pod/train-{}/main] 2026-11-30T09:27:00.000001Z ",
        "worker-{}  | ",
        "worker-{}  | 2026-11-30T09:27:00.000001Z ",
        "2026-11-30 09:27:00.123 {}: ",
        "{}: 2026-11-30T09:27:00.123Z ",
        "2026-11-30T09:27:00+01:00 [1,{}]<stderr>:",
        "Nov 30 09:27:00 node{} train[4711]: ",
        "<worker-{}> ",
    ],
)
def test_a_prefix_tells_the_process_of_each_line(prefix: str, tmp_path: Path) -> None:
    by_process = [[prefix.format(p) + line for line in RAISED[p]] for p in range(3)]
    mixed = [
        line for lines in itertools.zip_longest(*by_process) for line in lines if line is not None
    ]
    assert first_sentence(tmp_path / "job.out", mixed).startswith(CAUSE)


@pytest.mark.parametrize(
    "prefix", ["Nov 30 09:27:0{} host train[123]: ", "(pid=12{}, ip=10.0.0.1) ", "train main {} "]
)
def test_a_prefix_that_is_not_known_is_seen_through_and_named(prefix: str, tmp_path: Path) -> None:
    steps = [f"step {step} of 60" for step in range(60)]
    path = tmp_path / "rank-1.err"
    lines = [prefix.format(i % 10) + line for i, line in enumerate([*steps, *RAISED[1]])]
    assert first_sentence(path, lines).startswith(CAUSE)
    (file,) = explain([path]).files
    assert file.notes[0].startswith(
        "lines have a prefix that is not known, and was taken off: line 6"
    )


def test_streams_that_only_an_unknown_prefix_tells_apart_are_not_mixed(tmp_path: Path) -> None:
    mixed = [
        f"Nov 30 09:27:00 node-{name} train: {line}"
        for lines in itertools.zip_longest(*RAISED)
        for name, line in zip("abc", lines, strict=True)
        if line is not None
    ]
    sentence = first_sentence(tmp_path / "all.log", mixed)
    assert sentence.startswith("a process raised ValueError: the shapes do not fit")


@pytest.mark.parametrize(
    "lines",
    [
        ["step 1", "failed: Traceback (most recent call last):", "step 2"],
        ["main: E1130 05:26:57.472186 1 a.cc:1] x", "ValueError: bad", "my: E1130 is a header"],
        ["2026-11-30 09:27:00,123 [4711] step 1", "2026-11-30 09:27:01,123 [4711] step 2"],
        ["    Traceback (most recent call last):", '      File "a.py", line 1, in f', "    x"],
    ],
)
def test_what_is_no_prefix_stays(lines: list[str]) -> None:
    notes: list[str] = []
    found = list(unprefixed(enumerate(lines, 1), notes.append))
    assert notes == []
    assert {line.label for line in found} == {""}
    assert all(text.endswith(line.text) for text, line in zip(lines, found, strict=True))


def test_labels_name_processes() -> None:
    labels = {
        "3": 3,
        "rank3": 3,
        "default3": 3,
        "worker-3": 3,
        "job-trainer-3": 3,
        "pod/train-3/main": 3,
        "pod/train-3-x7k2p/main": 3,
        "pod/train-7d9f8b6c5-x7k2p/main": None,
        "pod/launcher-x7k2p/main 3": 3,
        "": None,
    }
    assert {label: process_in_label(label) for label in labels} == labels
