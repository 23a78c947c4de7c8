"""Jepsen's histories: EDN, logs, JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.errors import MalformedHistory
from checker.formats import read_operations
from checker.operations import OPEN_NS, Failed, Fault, Operation
from tests.formats.samples import PEERS, WRITTEN, calls, texts


def write(folder: Path, text: str) -> Path:
    path = folder / "history"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_recorded_log() -> None:
    history = read_operations(PEERS / "etcd_000.log")
    assert texts(history)[:5] == [
        "0 read() -> nil",
        "3 read() -> nil",
        "2 write(4) -> 4",
        "1 write(2) -> 2",
        "4 write(3) -> 3",
    ]
    assert list(history.events[:8]) == [0, 1, 2, 3, 4, ~1, ~0, ~4]
    assert history.clock == "abstract"
    assert history.line[5] == 11
    opened = [index for index in range(len(history)) if history.at(index).is_open]
    assert {history.at(index).function for index in opened} == {"write", "cas"}
    failed = [kind for _, kind in calls(history) if isinstance(kind.result, Failed)]
    assert {kind.function for kind in failed} == {"cas"}


def test_a_recorded_log_whose_columns_are_spaces() -> None:
    history = read_operations(PEERS / "etcd_100.log")
    assert texts(history)[:3] == ["1 write(3) -> 3", "2 write(0) -> 0", "4 cas([1 2]) failed"]
    assert history.notes == ()


def test_a_log_with_times_threads_and_a_nemesis() -> None:
    history = read_operations(WRITTEN / "history.txt")
    assert texts(history) == [
        "0 write(3) -> ?",
        "1 read() -> 3",
        "1 cas([3 4]) failed: precondition-failed",
    ]
    assert history.faults == (Fault("nemesis", "start", 2, 3, 1),)
    assert history.notes == ("1 line of the log is no event of the history.",)


def test_a_recorded_vector_with_comments_and_a_missing_comma() -> None:
    history = read_operations(PEERS / "bad-analysis.edn")
    assert texts(history)[1] == "6 read() -> ?"
    assert history.ended_ns[1] == OPEN_NS
    assert (22, Operation("read", None, 3, 3)) in calls(history)


def test_a_recorded_list() -> None:
    history = read_operations(PEERS / "rethink-fail-minimal.edn")
    assert texts(history) == [
        "0 write(0) -> 0",
        "1 read() -> 3",
        "2 write(4) -> 4",
        "3 read() -> 4",
    ]
    assert list(history.line) == [1, 4, 5, 12]


def test_maps_one_a_line_with_keys() -> None:
    history = read_operations(PEERS / "c01-bad.txt")
    assert calls(history)[0] == (0, Operation("append", "0", "x 0 0 y", "x 0 0 y"))
    assert calls(history)[1] == (0, Operation("get", "7", None, ""))


def test_errors_of_failed_calls_are_kept() -> None:
    history = read_operations(PEERS / "immediate-failure.edn")
    assert history.at(1).result == Failed(("temporarily-unavailable", None))


def test_transactions_over_several_lines_with_times_that_go_back() -> None:
    history = read_operations(PEERS / "multi-register.edn")
    assert history.at(0) == Operation("txn", None, (("read", "x", None),), (("read", "x", 0),))
    assert history.clock == "monotonic"
    assert all(
        history.ended_ns[i] >= history.invoked_ns[i]
        for i in range(len(history))
        if history.ended_ns[i] >= 0
    )
    assert any("earlier than that of the event before" in note for note in history.notes)


def test_a_history_of_nothing_but_faults() -> None:
    history = read_operations(PEERS / "mongodb-v0-ack-rollback-.edn")
    assert len(history) == 0
    assert {fault.name for fault in history.faults} == {"isolate", "kill", "recover"}
    assert all(fault.until_ns is not None for fault in history.faults)


def test_records_of_newer_versions_with_independent_keys() -> None:
    history = read_operations(WRITTEN / "history.edn")
    assert texts(history) == [
        "0 write('x', 3) -> ?",
        "1 read('x') -> nil",
        "1 cas('y', [1 2]) failed: precondition-failed",
        "2 read('x') -> 3",
    ]
    assert list(history.invoked_ns) == [1500000, 1600000, 1900000, 2200000]
    assert history.faults == (Fault("nemesis", "start-partition majority", 1700000, 1750000, 2),)


def test_a_history_of_maelstrom() -> None:
    history = read_operations(WRITTEN / "maelstrom.edn")
    assert calls(history)[0] == (0, Operation("write", 0, 4, 4))
    assert calls(history)[2][1].is_open
    assert history.ended_ns[2] == 5000099200


def test_independent_keys_can_be_asked_for_and_refused(tmp_path: Path) -> None:
    history = read_operations(WRITTEN / "maelstrom.edn", independent=False)
    assert history.at(0) == Operation("write", None, (0, 4), (0, 4))
    writes = write(
        tmp_path,
        "{:process 0, :type :invoke, :f :write, :value [:x 1]}\n"
        "{:process 0, :type :ok, :f :write, :value [:x 1]}\n",
    )
    assert read_operations(writes).at(0).argument == ("x", 1)  # Nothing reads: this may be a pair.
    assert read_operations(writes, independent=True).at(0) == Operation("write", "x", 1, 1)
    with pytest.raises(MalformedHistory, match="no pair of key and value") as caught:
        read_operations(PEERS / "etcd_000.log", independent=True)
    assert caught.value.line == 1


def test_a_compare_and_set_is_not_taken_for_an_independent_key(tmp_path: Path) -> None:
    history = write(
        tmp_path,
        "{:process 0, :type :invoke, :f :cas, :value [1 2]}\n"
        "{:process 1, :type :invoke, :f :read, :value nil}\n"
        "{:process 0, :type :ok, :f :cas, :value [1 2]}\n",
    )
    assert read_operations(history).at(0) == Operation("cas", None, (1, 2), (1, 2))


def test_an_ok_of_another_key_means_that_keys_are_not_independent(tmp_path: Path) -> None:
    history = write(
        tmp_path,
        "{:process 0, :type :invoke, :f :read, :value [1 nil]}\n"
        "{:process 0, :type :ok, :f :read, :value [2 nil]}\n",
    )
    assert read_operations(history).at(0).key is None


def test_json_of_the_same() -> None:
    history = read_operations(WRITTEN / "history.json")
    assert texts(history)[:2] == ["0 write(1) -> 1", "1 read() -> 1"]
    assert calls(history)[2][1].argument == (("r", "x", None), ("append", "y", 2))
    assert history.faults == (Fault("nemesis", "kill ['n1']", 150, None, 1),)
    assert list(history.line) == [2, 4, 7]


def test_json_one_object_a_line_with_colons(tmp_path: Path) -> None:
    history = write(
        tmp_path,
        '{"process":0,"type":":invoke","f":":read","value":null}\n'
        '{"process":":nemesis","type":":info","f":":kill","value":null}\n'
        '{"process":0,"type":":ok","f":":read","value":1}\n',
    )
    assert texts(read_operations(history)) == ["0 read() -> 1"]
    assert read_operations(history).faults[0].lane == "nemesis"


def test_an_empty_vector_is_an_empty_history(tmp_path: Path) -> None:
    assert len(read_operations(write(tmp_path, "; nothing\n[ ]\n"))) == 0
