"""Where keys stand in a TOML document."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coord_sim.scenarios.lines import Path, lines_of

DOCUMENT = r"""# a comment with [brackets] = "and" more
title = "a # that is no comment" # one that is

"quoted.key" = 1
'literal' = 'it'
dotted . name."third" = 2 # comment
long = DDD
[not a table]
key = 1
ends with a quote"DDD
longer = LLL
[[nor this]]
x = 2LLL
numbers = [ 1, # one
  2,

  [3,
   4],
]
inline = { a = 1, b = { c = "}" }, d = [
  1 ] }
after = 1979-05-27T07:32:00Z

[table]
first-of-all = true
  [table.sub."dotted.part"]
  deep = "\"]"
[[array]]
first = 1

[[array]]
second = 2
[array.nested]
in_second = 1
[[array.inner]]
one = 1
[[array.inner]]
two = 2
[[array]]
[[array.inner]]
three = 3
""".replace("DDD", '"' * 3).replace("LLL", "'" * 3)


def test_every_key_of_a_document_with_all_kinds_of_syntax_is_found() -> None:
    found = lines_of(DOCUMENT)
    numbered = {line.strip(): number for number, line in enumerate(DOCUMENT.split("\n"), 1)}
    expected: dict[Path, str] = {
        ("title",): 'title = "a # that is no comment" # one that is',
        ("quoted.key",): '"quoted.key" = 1',
        ("literal",): "'literal' = 'it'",
        ("dotted", "name", "third"): 'dotted . name."third" = 2 # comment',
        ("long",): 'long = """',
        ("longer",): "longer = '''",
        ("numbers", 0): "numbers = [ 1, # one",
        ("numbers", 1): "2,",
        ("numbers", 2): "[3,",
        ("numbers", 2, 1): "4],",
        ("inline", "b", "c"): 'inline = { a = 1, b = { c = "}" }, d = [',
        ("inline", "d", 0): "1 ] }",
        ("after",): "after = 1979-05-27T07:32:00Z",
        ("table",): "[table]",
        ("table", "first-of-all"): "first-of-all = true",
        ("table", "sub", "dotted.part", "deep"): 'deep = "\\"]"',
        ("array", 0, "first"): "first = 1",
        ("array", 1, "second"): "second = 2",
        ("array", 1, "nested", "in_second"): "in_second = 1",
        ("array", 1, "inner", 0, "one"): "one = 1",
        ("array", 1, "inner", 1, "two"): "two = 2",
        ("array", 2, "inner", 0, "three"): "three = 3",
    }
    assert {path: found[path] for path in expected} == {
        path: numbered[line] for path, line in expected.items()
    }


def paths_of(value: object, path: Path = ()) -> set[Path]:
    """All paths of a parsed document."""
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    found = {path}
    for name, element in inner:
        found |= paths_of(element, (*path, name))
    return found


def test_exactly_the_paths_of_the_document_are_found() -> None:
    assert lines_of(DOCUMENT).keys() == paths_of(tomllib.loads(DOCUMENT))


TEXTS = st.text(alphabet="ab\"'#[]{}=,.\n\\ \té", max_size=8)


def quoted(text: str) -> str:
    escaped = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
    return '"' + "".join(escaped.get(character, character) for character in text) + '"'


def long(text: str) -> str:
    return '"""\n' + text.replace("\\", "\\\\").replace('"', '\\"') + '"""'


SCALARS = st.one_of(
    TEXTS.map(quoted),
    TEXTS.map(long),
    TEXTS.map(lambda text: "'" + text.replace("'", "").replace("\n", "") + "'"),
    TEXTS.map(lambda text: "'''\n" + text.replace("'", "") + "'''"),
    st.sampled_from(["1", "-2.5e3", "true", "inf", "0x1f", "2020-01-02"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3).map(
        lambda elements: "[ # [\n" + ",\n".join(elements) + "\n]"
    ),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["[t]", "[[a]]", "[a.b]", '["x.y".z]', "# [c]"]), st.lists(VALUES)
        ),
        max_size=6,
    )
)
def test_random_documents_have_the_paths_that_tomllib_finds(
    sections: list[tuple[str, list[str]]],
) -> None:
    text = ""
    for number, (header, values) in enumerate(sections):
        text += header + "\n"
        for index, value in enumerate(values):
            text += f"k{number}_{index} = {value}\n"
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return  # A table is defined twice, say.
    found = lines_of(text)
    assert found.keys() == paths_of(document)
    lines = text.split("\n")
    for path, line in found.items():
        if path and str(path[-1]).startswith("k"):
            assert lines[line - 1].startswith(f"{path[-1]} = ")


@pytest.mark.parametrize("document", ["", "\n\n", "# only a comment", "a = 1", '"" = 0\n'])
def test_small_documents_have_lines(document: str) -> None:
    assert lines_of(document).keys() == paths_of(tomllib.loads(document))
