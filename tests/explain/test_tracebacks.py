"""What Python itself prints when a program fails, in all its forms, names what was raised."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jax_bridge.explain import EXIT_CODES, Cause, Confidence, FailureClass, explain
from jax_bridge.explain.entries import Entry, entries
from tests.explain.failures import KEPT

GROUP = 'raise ExceptionGroup("eg", [ValueError(1)])\n'
TASKS = """\
import asyncio

async def load(name):
    raise OSError("no " + name)

async def load_all():
    async with asyncio.TaskGroup() as group:
        group.create_task(load("weights"))

async def main():
    async with asyncio.TaskGroup() as group:
        group.create_task(load_all())
        group.create_task(load("data"))

asyncio.run(main())
"""
RAISED_AGAIN = """\
try:
    raise ExceptionGroup("several", [OSError("no disk"), TypeError("t")])
except* TypeError as group:
    raise RuntimeError("last") from group
"""
CHAIN_IN_A_GROUP = """\
try:
    try:
        1 / 0
    except ZeroDivisionError as first:
        raise KeyError("w") from first
except KeyError as second:
    raise ExceptionGroup("eg", [second])
"""
GROUP_IN_A_CHAIN = """\
try:
    raise ExceptionGroup("eg", [ValueError(1)])
except ExceptionGroup as group:
    raise RuntimeError("no weights") from group
"""
CHAIN_BEFORE_A_GROUP = """\
try:
    1 / 0
except ZeroDivisionError as first:
    raise ExceptionGroup("eg", [ValueError(2)]) from first
"""
DEEP = """\
error = ValueError("below what is shown")
for depth in range(14):
    error = ExceptionGroup(f"depth {depth}", [error])
raise error
"""
WIDE = """\
inner = [ValueError(number) for number in range(20)]
raise ExceptionGroup("all", [ExceptionGroup(f"part {part}", inner) for part in range(20)])
"""
LINES = """\
error = ExceptionGroup("two\\nlines", [ValueError("three\\nmore\\nlines")])
error.add_note("a note")
raise error
"""


def printed(folder: Path, program: str | None) -> str:
    """What this Python prints when it is to run a program; None stands for one that is not there."""
    script = folder / "train.py"
    if program is not None:
        script.write_text(program)
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode
    return ended.stderr


def explained(folder: Path, text: str) -> tuple[Cause, ...]:
    """The causes if this is the log of process 0."""
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    (logs / "rank-0.err").write_text(text)
    return explain([logs]).causes


def told(text: str) -> list[tuple[str, str]]:
    """What is raised in a text, and in which line of which file."""
    found: list[Entry] = list(entries(enumerate(text.splitlines(), 1)))
    return [
        (one.exception.partition("\n")[0], Path(one.frame).name)
        for one in found
        if one.kind == "traceback"
    ]


@pytest.mark.parametrize(
    ("program", "raised"),
    [
        (GROUP, [("ValueError: 1", "train.py:1")]),
        (TASKS, [("OSError: no data", "train.py:4"), ("OSError: no weights", "train.py:4")]),
        (RAISED_AGAIN, [("OSError: no disk", "train.py:2"), ("RuntimeError: last", "train.py:4")]),
        (CHAIN_IN_A_GROUP, [("KeyError: 'w'", "train.py:5")]),
        (GROUP_IN_A_CHAIN, [("RuntimeError: no weights", "train.py:4")]),
        (CHAIN_BEFORE_A_GROUP, [("ValueError: 2", "train.py:4")]),
        (DEEP, [("ExceptionGroup: depth 4 (1 sub-exception)", "train.py:4")]),
        (LINES, [("ValueError: three", "train.py:3")]),
        ("x = 1\ndef f(:\n    pass\n", [("SyntaxError: invalid syntax", "train.py:2")]),
        ("x = (\n", [("SyntaxError: '(' was never closed", "train.py:1")]),
        ("  x = 1\n", [("IndentationError: unexpected indent", "train.py:1")]),
        ("if 1:\n  x\n\ty\n", [("TabError: ", "train.py:3")]),
    ],
)
def test_what_was_raised_is_named(
    program: str, raised: list[tuple[str, str]], tmp_path: Path
) -> None:
    text = printed(tmp_path, program)
    found = sorted(told(text))
    assert [frame for _, frame in found] == [frame for _, frame in raised], text
    assert all(one.startswith(words) for (one, _), (words, _) in zip(found, raised, strict=True))
    cause, *_ = explained(tmp_path, text)
    assert cause.name == "program-raised"
    assert cause.failure_class is FailureClass.USER_ERROR
    assert cause.confidence is Confidence.HIGH
    assert cause.evidence[0].text in text.splitlines()[cause.evidence[0].line - 1]


def test_of_a_wide_group_the_first_are_named(tmp_path: Path) -> None:
    text = printed(tmp_path, WIDE)
    found = told(text)
    assert len(found) <= 60
    assert {frame for _, frame in found} == {"train.py:2"}
    assert found[:2] == [("ValueError: 0", "train.py:2"), ("ValueError: 1", "train.py:2")]
    assert [one.text for one in entries([*enumerate(text.splitlines()), (10**6, "step 3")])][
        -1
    ] == "step 3"


@pytest.mark.parametrize("program", [GROUP, TASKS, "def f(:\n", None])
def test_it_explains_who_lost_the_service_then(program: str | None, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    lost = KEPT / "jaxlib-0.10.2" / "killed-leader" / "process-1-0.log"
    shutil.copy(lost, logs / "rank-1.err")
    (logs / "rank-0.err").write_text(printed(tmp_path, program))
    explanation = explain([logs])
    assert explanation.exit_code == EXIT_CODES[FailureClass.USER_ERROR]
    assert explanation.causes[0].processes == (0,)


@pytest.mark.parametrize("name", ["absent.py", ".", "-m absent.train"])
def test_a_program_that_python_does_not_find_is_said(name: str, tmp_path: Path) -> None:
    command = [sys.executable, *name.split()]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path
    )
    (cause,) = explained(tmp_path, ended.stderr)
    assert cause.name == "program-not-started"
    assert cause.failure_class is FailureClass.USER_ERROR


def test_a_file_in_another_encoding_is_said(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(b'x = "\xff"\n')
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120
    )
    assert explained(tmp_path, ended.stderr)[0].name == "program-not-started"


@pytest.mark.parametrize(
    "prefix",
    [
        "{}: ",
        "[1,{}]<stderr>:",
        "[rank{}]: ",
        "[pod/train-{}/main] ",
        "worker-{}  | ",
        "2026-11-30T09:27:00.123Z stderr F [pod/train-{}/main] ",
        "Nov 30 09:27:00 node{} train[4711]: ",
    ],
)
@pytest.mark.parametrize(
    ("program", "words"),
    [(TASKS, "raised OSError: no "), ("x = 1\ndef f(:\n", "raised SyntaxError: invalid syntax")],
    ids=["group", "syntax"],
)
def test_a_prefix_hides_neither_a_group_nor_bad_syntax(
    prefix: str, program: str, words: str, tmp_path: Path
) -> None:
    lines = printed(tmp_path, program).splitlines()
    path = tmp_path / "job.out"
    path.write_text(
        "".join(f"{prefix.format(0)}step {step}\n" for step in range(len(lines)))
        + "".join(f"{prefix.format(1)}{line}\n" for line in lines)
    )
    cause, *_ = explain([path]).causes
    assert cause.sentence.startswith(f"process 1 {words}")
    assert cause.processes == (1,)


def test_a_group_goes_on_behind_messages_in_its_middle(tmp_path: Path) -> None:
    message = "I1130 05:26:00.000000    1 client.cc:134] Connected to distributed JAX controller"
    lines = printed(tmp_path, TASKS).splitlines()
    for at in range(2, len(lines)):
        text = "\n".join([*lines[:at], message, *lines[at:]])
        found = [exception for exception, _ in told(text)]
        assert sorted(found) == ["OSError: no data", "OSError: no weights"], text


def test_echoes_in_a_group_are_told_from_what_began(tmp_path: Path) -> None:
    lost = (
        "UNAVAILABLE: failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:8476"
    )
    program = (
        "class JaxRuntimeError(RuntimeError): pass\n"
        f'raise ExceptionGroup("g", [JaxRuntimeError("{lost}"), ValueError("bad rate")])\n'
    )
    cause, *_ = explained(tmp_path, printed(tmp_path, program))
    assert cause.sentence.startswith("process 0 raised ValueError: bad rate")


@pytest.mark.parametrize(
    "lines",
    [
        ['  File "a.py", line 1', "    x", "step 3"],
        ['  File "a.py", line 1', "    x", "    ^", "    y", "SyntaxError: no"],
        ["  | a | b |", "  +-+-----", "  | 1 | 2 |"],
        ["  + Exception Group Traceback", "  |   File"],
    ],
)
def test_what_is_no_traceback_stays_lines(lines: list[str]) -> None:
    found = list(entries(enumerate(lines, 1)))
    assert [(one.kind, one.line, one.text) for one in found] == [
        ("line", number, text) for number, text in enumerate(lines, 1)
    ]


def test_an_interrupted_program_has_no_error_of_its_own(tmp_path: Path) -> None:
    program = "import signal, time\nprint('up', flush=True)\nsignal.pause()\n"
    (tmp_path / "train.py").write_text(program)
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "train.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        _, text = process.communicate(timeout=120)
    (cause,) = explained(tmp_path, text)
    assert cause.name == "interrupted"
    assert cause.failure_class is FailureClass.UNKNOWN
    assert cause.sentence.startswith("process 0 was interrupted (Ctrl-C, or SIGINT from a launcher")


LOGGED = """\
import logging, sys
for step in range(3):
    print("step", step, "loss", 1 / (1 + step), file=sys.stderr)
try:
    1 / 0
except ZeroDivisionError:
    logging.exception("could not save")
{}
sys.exit(1)
"""


@pytest.mark.parametrize(
    ("after", "confidence"),
    [
        ("", Confidence.HIGH),
        ("sys.stderr.write('more\\nof its text\\n')", Confidence.HIGH),
        ("print('step 3 loss 0.2', file=sys.stderr)", Confidence.MEDIUM),
        ("logging.warning('going on without'); print('bye', file=sys.stderr)", Confidence.MEDIUM),
        ("print('step 3 loss 0.2\\nall done', file=sys.stderr)", Confidence.LOW),
        ("print('training finished', file=sys.stderr)", Confidence.LOW),
        ("print('the work could not be finished', file=sys.stderr)", Confidence.HIGH),
        ("for n in range(9): print('step', n, 'loss', n / 7, file=sys.stderr)", Confidence.LOW),
    ],
)
def test_what_the_program_prints_after_an_exception_makes_it_less_sure(
    after: str, confidence: Confidence, tmp_path: Path
) -> None:
    (cause,) = explained(tmp_path, printed(tmp_path, LOGGED.format(after)))
    assert cause.name == "program-raised"
    assert cause.confidence is confidence
    assert bool(cause.details) == (confidence is not Confidence.HIGH)
