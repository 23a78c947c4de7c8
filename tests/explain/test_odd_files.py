"""Logs that are not as they should be: named, and the rest is used."""

from __future__ import annotations

import gzip
import random
import tracemalloc
from pathlib import Path

import pytest

from jax_bridge.explain import EXIT_CODES, FailureClass, explain
from jax_bridge.explain.naming import process_of
from tests.explain.failures import KEPT

PEER = KEPT / "jaxlib-0.12.0.1" / "killed-peer"
UNHEALTHY = (PEER / "process-1-0.log").read_bytes()


def first_cause(folder: Path, processes: int | None = None) -> tuple[str, tuple[int, ...]]:
    cause = explain([folder], processes=processes).causes[0]
    return cause.name, cause.processes


def test_noise_cuts_and_long_lines_are_named_and_the_rest_is_used(tmp_path: Path) -> None:
    noise = bytes(range(256)) * 40 + b"\n"
    (tmp_path / "rank-1.err").write_bytes(noise + b"x" * 300_000 + b"\n" + UNHEALTHY + noise[:700])
    (tmp_path / "rank-2.err").write_bytes(b"step 1\n\0\0\0\0\0")
    explanation = explain([tmp_path])
    assert (explanation.causes[0].name, explanation.causes[0].processes) == ("silent-death", (2,))
    notes = " ".join(note for file in explanation.files for note in file.notes)
    assert "hold bytes that are no text" in notes
    assert "longer than" in notes


def test_packed_logs_are_read_and_cut_ones_as_far_as_they_go(tmp_path: Path) -> None:
    packed = gzip.compress(UNHEALTHY + b"".join(b"%d\n" % (i * 7919) for i in range(20_000)))
    (tmp_path / "rank-1.err.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "rank-2.err").write_bytes(b"step 1\n")
    explanation = explain([tmp_path])
    assert explanation.causes[0].processes == (2,)
    assert any("cannot be read beyond line" in note for f in explanation.files for note in f.notes)


def test_logs_in_utf_16_are_read(tmp_path: Path) -> None:
    (tmp_path / "rank-1.err").write_bytes(UNHEALTHY.decode().encode("utf-16"))
    (tmp_path / "rank-2.err").write_bytes(b"")
    assert first_cause(tmp_path) == ("silent-death", (2,))


def test_a_format_that_cannot_be_unpacked_is_named(tmp_path: Path) -> None:
    (tmp_path / "rank-1.err").write_bytes(b"\x28\xb5\x2f\xfd" + b"\0" * 30)
    (file,) = explain([tmp_path]).files
    assert "zstd" in file.notes[0]


def test_ranks_are_taken_from_labels_in_front_of_the_lines(tmp_path: Path) -> None:
    lines = []
    for process in range(3):
        log = (PEER / f"process-{process}-0.log").read_text()
        lines += [f"{process}: {line}" for line in log.splitlines()]
    (tmp_path / "job.out").write_text("\n".join(lines) + "\n")
    assert first_cause(tmp_path) == ("silent-death", (2,))


def test_container_logs_with_times_in_front_are_read(tmp_path: Path) -> None:
    for process in range(3):
        log = (PEER / f"process-{process}-0.log").read_text()
        lines = [
            f"2026-11-30T05:26:00.{i:09}Z stderr F {line}" for i, line in enumerate(log.split("\n"))
        ]
        (tmp_path / f"pod-{process}.log").write_text("\n".join(lines))
    assert first_cause(tmp_path) == ("silent-death", (2,))


def test_progress_bars_do_not_hide_a_message(tmp_path: Path) -> None:
    (tmp_path / "rank-1.err").write_bytes(
        b"10%|#\r20%|##\r" + UNHEALTHY.removeprefix(b"connected\n")
    )
    (tmp_path / "rank-2.err").write_bytes(b"step\n")
    assert first_cause(tmp_path) == ("silent-death", (2,))


def test_a_chain_of_exceptions_is_one_cause_with_the_place_in_the_program(tmp_path: Path) -> None:
    (tmp_path / "rank-0.err").write_text(
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 3, in load\n'
        "KeyError: 'w'\n"
        "\nDuring handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 9, in main\n'
        '  File "/usr/lib/python3/site-packages/jax/x.py", line 1, in f\n'
        "RuntimeError: no weights\n"
    )
    (cause,) = explain([tmp_path]).causes
    assert cause.sentence == "process 0 raised RuntimeError: no weights, at /home/me/train.py:9"
    assert cause.evidence[0].line == 10


def test_a_logged_exception_after_which_the_program_went_on_is_doubted(tmp_path: Path) -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nOSError: try again\n'
    header = "I1130 05:26:00.000000    1 client.cc:134] Connected to distributed JAX controller\n"
    (tmp_path / "rank-0.err").write_text(text + header + header + "step\n" * 80)
    (cause,) = explain([tmp_path]).causes
    assert cause.confidence.name == "LOW"


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    path = tmp_path / "rank-1.err"
    with open(path, "wb") as file:
        for _ in range(400):
            file.write(UNHEALTHY)
            file.write(b"step 17 of 100: loss 0.25\n" * 100)
    tracemalloc.start()
    explain([path])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < path.stat().st_size / 5


@pytest.mark.parametrize(
    "names", [("rank-{}.err", "rank-{}.out"), ("host{}/stderr", "host{}/stdout")]
)
def test_standard_error_and_output_are_of_one_process(
    names: tuple[str, str], tmp_path: Path
) -> None:
    stalled = KEPT / "jaxlib-0.12.0.1" / "stalled-peer"
    for process in range(3):
        for name, text in zip(
            names, ((stalled / f"process-{process}-0.log").read_text(), "step 3\n"), strict=True
        ):
            path = tmp_path / name.format(process)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    assert first_cause(tmp_path) == ("stall", (1,))


def test_names_of_files_give_numbers_of_processes() -> None:
    names = {
        "logs/process-3-0.log": (3, 0),
        "logs/process-3-1.log": (3, 1),
        "rank-7.err": (7, 0),
        "worker_12.txt": (12, 0),
        "slurm-881234_5.out": (5, 0),
        "host3/stderr": (3, 0),
        "4.log": (4, 0),
        "service.log": (None, 0),
        "slurm-881234.out": (None, 0),
        "stderr": (None, 0),
    }
    assert {name: process_of(Path(name)) for name in names} == names


UNKNOWN = EXIT_CODES[FailureClass.UNKNOWN]
FINE = b"".join(b"step %d of 9000\n" % step for step in range(9000))


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("rank-0.err", b"", "nothing is in it"),
        ("rank-0.err", b" \n\n\t\n", "nothing is in it"),
        ("rank-0.err", random.Random(1).randbytes(5000), "lines hold bytes that are no text"),
        ("rank-0.err.gz", gzip.compress(FINE, mtime=0)[:5000], "cannot be read beyond line"),
        ("rank-0.err", b"\x28\xb5\x2f\xfd" + b"\0" * 30, "is packed with zstd"),
    ],
)
def test_no_failure_in_what_tells_nothing_is_unknown(
    name: str, content: bytes, why: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    explanation = explain([tmp_path])
    (cause,) = explanation.causes
    assert explanation.exit_code == UNKNOWN
    assert why in cause.evidence[0].text
    assert cause.evidence[0].path.endswith(name)


def test_dev_null_tells_nothing() -> None:
    assert explain(["/dev/null"]).exit_code == UNKNOWN


def test_an_empty_log_beside_one_that_tells_is_no_doubt(tmp_path: Path) -> None:
    (tmp_path / "rank-0.err").write_bytes(FINE)
    (tmp_path / "rank-1.err").write_bytes(b"")
    (tmp_path / "rank-2.err").write_bytes(b"\0\0\n" + FINE)  # A disk that lost its power.
    assert explain([tmp_path]).exit_code == 0


def test_a_failure_that_is_seen_counts_more_than_what_could_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "rank-0.err.gz").write_bytes(gzip.compress(FINE, mtime=0)[:5000])
    (tmp_path / "rank-1.err").write_bytes(UNHEALTHY)
    (tmp_path / "rank-2.err").write_bytes(b"step\n")
    assert first_cause(tmp_path) == ("silent-death", (2,))


def test_a_history_that_cannot_be_used_leaves_doubt(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text('{"coordlab_history":99,"source":"processes"}\n')
    (tmp_path / "rank-0.err").write_bytes(FINE)
    explanation = explain([tmp_path])
    assert explanation.exit_code == UNKNOWN
    assert "run.jsonl" in explanation.causes[0].evidence[0].path
