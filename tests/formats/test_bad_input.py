"""Whatever the bytes: a history, or one `MalformedHistory` that says where and what."""

from __future__ import annotations

import contextlib
import functools
import gzip
import os
import random
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checker.errors import MalformedHistory
from checker.formats import read_operations
from checker.formats.source import NESTING_MAX
from tests.formats.samples import FILES, PEERS, calls

MAP = "{:process %s, :type :%s, :f :%s, :value %s}\n"
OPERATION = '{"ClientId":0,"Input":{"f":"r"},"Call":%s,"Output":1,"Return":%s}\n'
EVENT = '{"ClientId":%s,"Kind":"%s","Value":"r","Id":%s}\n'
JSON = '{"process":%s,"type":"%s","f":"%s","value":%s}\n'
INVOKE = MAP % (0, "invoke", "read", "nil")

REFUSED = {
    # name: text, line, field, words of the problem
    "empty": ("", None, None, "the file is empty"),
    "blank": (" \n\n", None, None, "the file is empty"),
    "prose": ("Once upon a time\nthere was a log.\n", None, None, "no history that can be read"),
    "numbers": ("[1, 2, 3]", None, None, "no history that can be read"),
    "other JSON": ('{"a": 1}\n', None, None, "no history that can be read"),
    "vector left open": ("[" + INVOKE, 1, None, "'[' of this line is never closed"),
    "map left open": (INVOKE + "{:process 0,\n:type :ok", 2, None, "'{' of this line is never closed"),
    "string left open": (INVOKE + '{:f "a\n\n', 2, None, "string that begins here never ends"),
    "wrong bracket": ("[" + INVOKE + "}", 2, None, "'}' closes '[' of line 1"),
    "one bracket too many": (INVOKE + "]", 2, None, "']' closes nothing"),
    "more after the end": ("[" + INVOKE + "]\n" + INVOKE, 3, None, "more after the end"),
    "no map": ("[" + INVOKE + "7]", 2, None, "an event is a map, found '7'"),
    "key without value": ("{:process 0 :type}\n", 1, None, "needs a value for every key"),
    "twice the same key": ("{:type :ok, :type :ok}\n", 1, "type", "occurs twice"),
    "no EDN": (INVOKE + "{:process ^0}\n", 2, None, "'^' has no meaning"),
    "unknown type": (MAP % (0, "call", "read", "nil"), 1, "type", "must be one of invoke, ok"),
    "no type": ("{:process 0, :f :read}\n", 1, "type", "found nothing"),
    "no function": ("{:process 0, :type :invoke}\n", 1, "f", "must name what was called"),
    "no process": ("{:type :invoke, :f :read}\n", 1, "process", "must be a number from 0"),
    "large process": (MAP % (2**63, "invoke", "read", 1), 1, "process", "must be a number from 0"),
    "negative process": (MAP % (-1, "invoke", "read", 1), 1, "process", "must be a number from 0"),
    "time in words": (
        "{:process 0, :type :invoke, :f :read, :time :noon}\n", 1, "time", "nanoseconds",
    ),
    "response for nothing": (
        INVOKE + MAP % (1, "ok", "read", 1), 2, "process", "needs an invocation before it",
    ),
    "two responses": (
        INVOKE + 2 * (MAP % (0, "ok", "read", 1)), 3, "process", "needs an invocation before it",
    ),
    "info for nothing": (MAP % (4, "info", "read", 1), 1, "process", "needs an invocation"),
    "two open calls": (INVOKE + INVOKE, 2, "process", "its call of line 1 is open"),
    "response to another function": (
        INVOKE + MAP % (0, "ok", "write", 1), 2, "f", "called read in line 1",
    ),
    "crashed and back": (
        INVOKE + MAP % (0, "info", "read", "nil") + INVOKE, 3, "process", "goes on under a new number",
    ),
    "log, two open calls": (
        2 * "INFO  jepsen.util - 3\t:invoke\t:read\tnil\n", 2, "process", "its call of line 1 is open",
    ),
    "log, response for nothing": ("3 :ok :read 4\nx\n", 1, "process", "needs an invocation"),
    "log, value": ("x\n3\t:invoke\t:write\t[1\nx\n", 2, None, "'[1' is not one EDN value"),
    "JSON, two open calls": (
        2 * (JSON % (0, "invoke", "read", "null")), 2, "process", "its call of line 1 is open",
    ),
    "JSON, array left open": ("[" + JSON % (0, "invoke", "read", 1), 2, None, "array is never closed"),
    "JSON, no comma": (
        "[" + 2 * (JSON % (0, "invoke", "read", 1)) + "]", 2, None, "',' is missing",
    ),
    "JSON, more after the end": (
        "[" + JSON % (0, "invoke", "read", 1) + "] 7", 2, None, "more after the end",
    ),
    "JSON, cut": ((JSON % (0, "invoke", "read", 1)) + '{"process": 1,\n"ty', 3, None, "not JSON"),
    "JSON, NaN": (JSON % (0, "invoke", "write", "NaN"), 1, None, "NaN is not JSON"),
    "JSON, digits": (JSON % (0, "invoke", "write", "9" * 5000), 1, None, "too many digits"),
    "EDN, digits": (MAP % (0, "invoke", "write", "9" * 5000), 1, None, "too many digits"),
    "JSON, fraction": (JSON % (0.5, "invoke", "read", 1), 1, "process", "must be a number from 0"),
    "JSON, other value": ((JSON % (0, "invoke", "read", 1)) + "7", 2, None, "must be an object"),
    "returns before its call": (OPERATION % (5, 4), 1, "Return", "must not run backwards"),
    "no call": (OPERATION % ("null", 4), 1, "Call", "whole number of nanoseconds"),
    "time in text": (OPERATION % (3, '"4"'), 1, "Return", "whole number of nanoseconds"),
    "id used twice": (2 * (EVENT % (0, "call", 1)), 2, "Id", "a second time (first in line 1)"),
    "return of nothing": (EVENT % (0, "return", 1), 1, "Id", "was never called"),
    "two returns": (
        EVENT % (0, "call", 1) + 2 * (EVENT % (0, "return", 1)), 3, "Id", "has returned already",
    ),
    "return to another": (
        EVENT % (0, "call", 1) + EVENT % (1, "return", 1), 2, "ClientId", "called by client 0",
    ),
    "unknown kind": (EVENT % (0, "begin", 1), 1, "Kind", "must be call or return"),
    "no id": (EVENT % (0, "call", "null"), 1, "Id", "is missing"),
    "page without data": ("<!DOCTYPE html>\n<html></html>\n", None, None, "without Porcupine's data"),
    "page with other data": ("<html>\nconst data = {}\n", 2, None, "no partitions"),
    "page with broken data": ("<html>\nconst data = {]\n", 2, None, "not JSON"),
    "page, no times": (
        '<html>\nconst data = [{"History":[{}]}]\n', 2, "Start", "whole number of nanoseconds",
    ),
    "etcd, other type": (
        '{"Input":{"Type":"range"},"Call":1}\n{"Input":{"Type":"x"},"Call":1}\n', 1, "Start", "key",
    ),
    "ours, unknown version": (
        '{"coordlab_history":9}\n', 1, "coordlab_history", "is not supported",
    ),
    "Jepsen's binary": ("JEPSEN\x00\x01", None, None, "export the history as EDN"),
    "zip": ("PK\x03\x04", None, None, "unpack it first"),
    "NUL": (INVOKE + "\x00", None, None, "binary file"),
}  # fmt: skip


def refusal(path: Path) -> MalformedHistory:
    with pytest.raises(MalformedHistory) as caught:
        read_operations(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(path))
    assert caught.value.path == str(path)
    return caught.value


@pytest.mark.parametrize("name", REFUSED)
def test_a_malformed_file_is_refused_with_place_and_problem(name: str, tmp_path: Path) -> None:
    text, line, field, problem = REFUSED[name]
    path = tmp_path / "history"
    path.write_text(text, encoding="utf-8")
    error = refusal(path)
    assert (error.line, error.field) == (line, field)
    assert problem in error.problem


packed = functools.partial(gzip.compress, mtime=0)
"""Names of cases are made of their bytes: without the time they are the same in all workers."""


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        (b"\xff\xfe\x00", None, "UTF-16"),
        (INVOKE.encode() + b"{:process \xff}\n", 2, "not UTF-8"),
        (INVOKE.encode() * 0 + b"; " + b"x" * 70_000 + b"\n", None, "no history"),
        (b"\x1f\x8b\x08garbage", None, "damaged or cut"),
        (packed(INVOKE.encode() * 50)[:-9], None, "damaged or cut"),
        (zstandard.compress(INVOKE.encode())[:-3] + b"xxxxxx", None, "damaged or cut"),
        (packed(b"\x00" * 10_000_000), None, "binary"),
        (
            packed(packed(packed(packed(b"x")))),
            None,
            "more than 3 times",
        ),
    ],
)
def test_bytes_that_are_no_text(
    content: bytes, line: int | None, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "history"
    path.write_bytes(content)
    error = refusal(path)
    assert error.line == line
    assert problem in error.problem


def test_late_bytes_that_are_no_text_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "history"
    lines = [MAP % (process, "invoke", "read", "nil") for process in range(3000)]
    path.write_bytes("".join(lines).encode() + b"{:process \xff}\n")
    assert refusal(path).line == 3001


@pytest.mark.parametrize("opener", ["[", "{:a ", "#{", "#t ", "#_ "])
def test_deep_values_are_refused_and_not_so_deep_ones_read(opener: str, tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text(MAP % (0, "invoke", "write", opener * 100_000), encoding="utf-8")
    refusal(path)
    closer = {"[": "]", "{:a ": "}", "#{": "}"}.get(opener, "")
    depth = NESTING_MAX - 10
    value = opener * depth + "1" + closer * depth
    path.write_text(MAP % (0, "invoke", "write", value), encoding="utf-8")
    if opener != "#_ ":
        assert str(read_operations(path).at(0))


def test_deep_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history"
    for depth in (NESTING_MAX + 1, 3_000, 200_000):
        path.write_text(JSON % (0, "invoke", "write", "[" * depth + "]" * depth), encoding="utf-8")
        assert "nested" in refusal(path).problem


def test_two_gigabytes_of_noise_are_refused_after_the_head(tmp_path: Path) -> None:
    path = tmp_path / "noise"
    noise = random.Random(7).randbytes(40_000).hex()
    with open(path, "wb") as file:
        file.write(noise.encode())
        file.truncate(2 << 30)  # The rest is a hole: it takes no room on the disk.
    tracemalloc.start()
    try:
        refusal(path)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def write_for_ever(writer: int) -> None:
    while True:  # The reader goes away, or the test never ends.
        os.write(writer, b"noise and no end of it\n" * 1000)


def test_an_endless_stream_of_noise_is_refused_after_the_head() -> None:
    script = (
        "import sys\nfrom checker.formats import read_operations\nread_operations('/dev/stdin')"
    )
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=reader, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(reader)
        with pytest.raises(BrokenPipeError):
            write_for_ever(writer)
        os.close(writer)
        assert process.stderr is not None
        assert "no history that can be read here" in process.stderr.read()


def test_packed_histories_are_unpacked(tmp_path: Path) -> None:
    plain = PEERS / "rethink-fail-minimal.edn"
    content = plain.read_bytes()
    expected = calls(read_operations(plain))
    packed = {
        "gzip": gzip.compress(content),
        "zstd": zstandard.compress(content),
        "two frames": zstandard.compress(content[:100]) + zstandard.compress(content[100:]),
        "both": gzip.compress(zstandard.compress(content)),
        "byte order mark": b"\xef\xbb\xbf" + content,
    }
    for name, bytes_ in packed.items():
        path = tmp_path / "any-name"
        path.write_bytes(bytes_)
        assert calls(read_operations(path)) == expected, name


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_packed_file_that_was_cut_is_refused_wherever(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    lines = (MAP % (process, "invoke", "write", hash(process)) for process in range(20_000))
    packed = pack("".join(lines).encode())
    path = tmp_path / "history"
    for length in (len(packed) // 2, len(packed) - 1):
        path.write_bytes(packed[:length])
        assert "damaged or cut" in refusal(path).problem


def test_without_zstandard_the_remedy_is_told(tmp_path: Path) -> None:
    path = tmp_path / "history.zst"
    path.write_bytes(zstandard.compress(INVOKE.encode()))
    script = (
        "import sys; sys.modules['zstandard'] = None\n"
        "from checker.formats import read_operations\n"
        "try: read_operations(sys.argv[1])\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, check=True
    )
    assert re.match(r"MalformedHistory .*pip install 'coordlab\[zstd\]'", ended.stdout)


# --- mutations -------------------------------------------------------------------------------------

CONTENTS = [path.read_bytes()[:6000] for path in FILES]
PIECES = [b"", b"[", b"]", b"{", b"}", b'"', b"\\", b":", b"nil", b"#", b"#_", b"\n", b"\t", b",", b"0",
          b"-", b"99999999999999999999", b"1e999", b"\xff", b"\xc3", b"\x00", b";", b"(", b"null",
          b"true", b"\\u", b"\xed\xa0\x80", "\u2028".encode(), "٣".encode(), b"<html>", b":invoke",
          b":ok", b":info", b"##Inf", b"\\newline", b"2/3", b"1M", b"\\ud800", b'"type"', b"Return",
          b"\\time"]  # fmt: skip

edits = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 40),
        st.sampled_from(PIECES) | st.binary(max_size=4),
    ),
    min_size=1,
    max_size=6,
)


@settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(sample=st.sampled_from(CONTENTS), edits=edits, cut=st.none() | st.floats(0, 1))
def test_whatever_the_bytes_only_a_malformed_history_is_raised(
    sample: bytes, edits: list[tuple[float, int, bytes]], cut: float | None, tmp_path: Path
) -> None:
    content = bytearray(sample)
    for place, length, piece in edits:
        at = int(place * len(content))
        content[at : at + length] = piece
    if cut is not None:
        del content[int(cut * len(content)) :]
    path = tmp_path / "mutated"
    path.write_bytes(content)
    for independent in (None, True):
        with contextlib.suppress(MalformedHistory):  # Nothing else.
            operations = read_operations(path, independent=independent)
            assert len(operations.kind) == len(operations.line) == len(operations.process)
            assert all(0 <= kind < len(operations.kinds) for kind in operations.kind)
