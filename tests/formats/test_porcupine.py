"""Porcupine's histories and etcd's, which are of the same kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.errors import MalformedHistory
from checker.formats import read_operations
from checker.operations import UNKNOWN, Failed, Fault, FrozenMap, Operation
from tests.formats.samples import WRITTEN, calls, texts


def write(folder: Path, text: str) -> Path:
    path = folder / "history.json"
    path.write_text(text, encoding="utf-8")
    return path


def test_operations() -> None:
    history = read_operations(WRITTEN / "operations.json")
    assert texts(history) == [
        "0 put('x', 'a') -> ''",
        "1 get('x') -> 'a'",
        "2 append('x', 'b') -> ''",
        "1 get('x') -> 'ab'",
    ]
    # The append is called at the very moment at which the put returns: they are concurrent.
    assert list(history.events) == [0, 1, ~1, 2, ~0, 3, ~3, ~2]
    assert list(history.line) == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("given", "output", "operation"),
    [
        ('{"Op":"write","Value":3}', "null", Operation("write", None, 3, None)),
        ('{"f":"read"}', '{"Value":3}', Operation("read", None, None, 3)),
        ('"inc"', "7", Operation("inc", None, None, 7)),
        ("[1,2]", "true", Operation("operation", None, (1, 2), True)),
        ('{"Op":9,"Key":"k"}', "null", Operation("9", "k", None, None)),
        (
            '{"Name":"cas","From":1,"To":2}',
            '{"Ok":true}',
            Operation("cas", None, FrozenMap((("From", 1), ("To", 2))), FrozenMap((("Ok", True),))),
        ),
        ('{"x":1}', "null", Operation("operation", None, FrozenMap((("x", 1),)), None)),
        ('{"f":"w"}', '{"type":"fail","error":"no"}', Operation("w", None, None, Failed("no"))),
        ('{"f":"w"}', '{"type":"info"}', Operation("w", None, None, UNKNOWN)),
    ],
)
def test_what_a_user_may_put_into_inputs_and_outputs(
    tmp_path: Path, given: str, output: str, operation: Operation
) -> None:
    line = f'{{"ClientId":0,"Input":{given},"Call":0,"Output":{output},"Return":1}}'
    assert calls(read_operations(write(tmp_path, line))) == [(0, operation)]


def test_an_operation_without_a_return_is_open(tmp_path: Path) -> None:
    history = read_operations(
        write(tmp_path, '{"ClientId":0,"Input":{"f":"w"},"Call":0,"Output":null,"Return":null}')
    )
    assert history.at(0).is_open
    assert list(history.events) == [0]


def test_events_pair_by_their_ids() -> None:
    history = read_operations(WRITTEN / "events.json")
    assert texts(history) == ["0 write(5)", "1 read() -> 5", "2 read() -> ?"]
    assert list(history.events) == [0, 1, ~1, 2, ~0]


def test_a_page() -> None:
    history = read_operations(WRITTEN / "page.html")
    assert calls(history) == [
        (0, Operation("put", "x", 'a, "b"', None)),
        (2, Operation("cas", None, (3, 4), UNKNOWN)),
        (1, Operation("get", "x", None, "")),
        (1, Operation("get", "x", None, 'a, "b"')),
    ]
    assert list(history.invoked_ns) == [1000, 1000, 2000, 9500]
    # The annotation begins between drawn 100 and 200, and ends between 300 and 400.
    assert history.faults == (Fault("Server 1", "partition", 2500, 6500, 3),)


def test_a_page_of_an_older_version_has_neither_times_nor_annotations(tmp_path: Path) -> None:
    page = write(
        tmp_path,
        '<html><script>\nconst data = [{"History":[{"ClientId":0,"Start":0,"End":3,'
        '"Description":"something else"}],"PartialLinearizations":[],"Largest":{}}]\n</script></html>\n',
    )
    history = read_operations(page)
    assert calls(history) == [(0, Operation("something else", None, None, None))]
    assert history.clock == "abstract"


def test_etcd_operations_of_one_client() -> None:
    history = read_operations(WRITTEN / "etcd-report" / "client-1" / "operations.json")
    assert calls(history) == [
        (1, Operation("put", "key0", "1", None)),
        (1, Operation("get", "key0", None, FrozenMap((("Hash", 4051711745),)))),
        (
            1,
            Operation(
                "compact",
                None,
                FrozenMap((("Revision", 9),)),
                Failed("mvcc: required revision is a future revision"),
            ),
        ),
    ]
    assert list(history.line) == [1, 40, 58]


def test_an_etcd_report_is_the_history_of_all_clients() -> None:
    history = read_operations(WRITTEN / "etcd-report")
    assert [history.at(index).function for index in range(len(history))] == [
        "put",
        "put",
        "txn",
        "get",
        "compact",
    ]
    assert history.at(1).is_open  # "context deadline exceeded" says nothing of the effect.


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedHistory, match="name the file of a history"):
        read_operations(tmp_path)
