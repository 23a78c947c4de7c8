"""Texts of a report: each distinct one is kept once, cut, and harmless wherever it is put."""

from __future__ import annotations

from checker.operations import UNKNOWN, Failed, Operation, show
from checker.printable import printable

TEXT_CHARS_MAX = 500
"""Longer texts are cut, with a note that tells their length."""

_VALUE_CHARS_MAX = 80
_SENTENCE_CHARS_MAX = 4000
_SENTENCES_MAX = 400


class Texts:
    """Numbers distinct texts from 0."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._number: dict[str, int] = {}

    def add(self, text: str) -> int:
        """The number of a text, which is cut and cleaned."""
        number = self._number.get(text)
        if number is None:
            number = self._number[text] = len(self.all)
            self.all.append(clean(text))
        return number


def clean(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """The text, cut, with escapes for line breaks, marks of direction and halves of surrogate pairs."""
    return printable(cut(text, chars_max))


def sentences(text: str) -> list[str]:
    """The lines of an explanation, each clean."""
    lines = text.splitlines()
    kept = [clean(line, _SENTENCE_CHARS_MAX) for line in lines[:_SENTENCES_MAX]]
    if len(lines) > len(kept):
        kept.append(f"({count(len(lines) - len(kept), 'further line')})")
    return kept


def cut(text: str, chars_max: int) -> str:
    """The text, or its beginning and how long it is."""
    if len(text) <= chars_max:
        return text
    return f"{text[:chars_max]}… ({len(text):,} characters)"


def call_of(operation: Operation) -> str:
    """What was called: `write(3)`."""
    inside = ", ".join(
        _value(value) for value in (operation.key, operation.argument) if value is not None
    )
    return f"{cut(operation.function, _VALUE_CHARS_MAX)}({inside})"


def label_of(operation: Operation) -> str:
    """What was called and what came back, as `str` writes it but for long values: `read() -> 4`."""
    call, result = call_of(operation), operation.result
    if result is UNKNOWN:
        return f"{call} -> ?"
    if isinstance(result, Failed):
        return f"{call} failed" + ("" if result.error is None else f": {_error(result)}")
    return call if result is None else f"{call} -> {_value(result)}"


def outcome_of(operation: Operation) -> str:
    """What came back, for sentences: it could no longer `return 4`."""
    result = operation.result
    if result is UNKNOWN:
        return "take effect"
    if isinstance(result, Failed):
        return "fail" if result.error is None else f"fail with {_error(result)}"
    return "succeed" if result is None else f"return {_value(result)}"


def _error(result: Failed) -> str:
    return cut(str(result.error), _VALUE_CHARS_MAX)


def _value(value: object) -> str:
    return cut(show(value), _VALUE_CHARS_MAX)


def count(number: int, noun: str) -> str:
    """`1 operation`, `2,000 operations`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
