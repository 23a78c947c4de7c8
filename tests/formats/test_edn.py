"""EDN values: read as hashable things, written back as they were."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest

from checker.errors import MalformedHistory
from checker.formats.edn import Character, EdnEvents, Keyword, Symbol, Tagged, edn_text, parse_value
from checker.operations import FrozenMap

VALUES = {
    "nil": None,
    "true": True,
    "-17": -17,
    "1.5": 1.5,
    "1.50M": Decimal("1.50"),
    "2/3": Fraction(2, 3),
    "##-Inf": float("-inf"),
    '"a\\n\\"b\\" \\\\ é"': 'a\n"b" \\ é',
    ":timed-out": Keyword("timed-out"),
    ":a.b/c?": Keyword("a.b/c?"),
    "some-symbol": Symbol("some-symbol"),
    "\\newline": Character("\n"),
    "\\a": Character("a"),
    "[1 [2 nil] []]": (1, (2, None), ()),
    "#{1}": frozenset({1}),
    '{:a 1, "b" [2]}': FrozenMap(((Keyword("a"), 1), ("b", (2,)))),
    '#inst "2026-01-01"': Tagged("inst", "2026-01-01"),
}


@pytest.mark.parametrize("text", VALUES)
def test_a_value_is_read_and_written_back(text: str) -> None:
    value = parse_value(text, 1)
    assert value == VALUES[text]
    assert type(value) is type(VALUES[text])
    assert parse_value(edn_text(value), 1) == value
    hash(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(1, 2 3)", (1, 2, 3)),
        ("12N", 12),
        ("+4", 4),
        ("[1 ; a comment ] }\n 2]", (1, 2)),
        ("[1 #_2 #_ #_ 3 4 5]", (1, 5)),
        ('"\\u00e9\\ud83d\\ude00"', "é😀"),
        ("\\u0041", Character("A")),
        ("1e400", float("inf")),
    ],
)
def test_other_notations_mean_the_same(text: str, value: object) -> None:
    assert parse_value(text, 1) == value


@pytest.mark.parametrize(
    "text",
    ["", "1 2", "[1", "1]", "(1]", "{:a}", "{:a 1 :a 2}", "##NaN", ":", "1x", "1/0", '"\\q"', "^a", "`a",
     "\\longname", "#_", "#foo", "1 :type :ok", "9" * 5000, "\\ud800"],
)  # fmt: skip
def test_what_is_no_value_is_refused(text: str) -> None:
    with pytest.raises(MalformedHistory):
        parse_value(text, 7)


def test_a_keyword_is_equal_to_its_letters_so_that_specifications_may_compare() -> None:
    assert Keyword("read") == "read"
    assert str(Keyword("read")) == "read"
    assert edn_text((Keyword("read"), "read")) == '[:read "read"]'


def test_what_edn_does_not_have_is_not_written() -> None:
    with pytest.raises(ValueError, match="cannot be written as EDN"):
        edn_text(object())


def test_events_may_be_spread_over_lines_anyhow() -> None:
    text = '; first\n[ #_{:type :ok} {:type\n:invoke, :value "two\nlines" :process\n3} {:type :ok}\n]\n'
    reader = EdnEvents()
    events = [
        event
        for number, line in enumerate(text.splitlines(keepends=True), 1)
        for event in reader.feed(line, number)
    ]
    reader.finish(6)
    assert [line for line, _ in events] == [2, 5]
    assert events[0][1] == {"type": "invoke", "value": "two\nlines", "process": 3}
