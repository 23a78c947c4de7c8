"""What launchers, containers and collectors of logs put in front of each line, taken off again.

A time, and who printed the line, in either order and more than one of them:

    0: Traceback ...                          srun --label
    [1,0]<stderr>:Traceback ...               mpirun --tag-output
    [rank0]: Traceback ...                    torchrun
    [pod/train-2/main] Traceback ...          kubectl logs --prefix
    worker-2  | Traceback ...                 docker compose
    2026-11-30T09:27:00.123Z stderr F ...     containers
    2026-11-30 09:27:00.123 0: ...            a collector before srun's

Which of them a file has is seen in its first lines. A prefix that is none of these is learnt where a
message of the C++ libraries or a traceback stands behind it, and the next line has one of the same form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from jax_bridge.explain.naming import numbered

HEADER = re.compile(
    r"([IWEF])(?:\d{4})?(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,9})\s+(\d+) ([^\s:]+:\d+)\] ?(.*)",
    re.DOTALL,
)
"""The first line of a message of absl or glog."""

TRACEBACK = "Traceback (most recent call last):"

GROUP = f"Exception Group {TRACEBACK}"
"""The header of the traceback of a group of exceptions; a margin stands before it."""

ANY_YEAR = 2000
"""Messages do not tell the year; a leap year knows all days."""

_DATED = re.compile(r"\[?\d{4}-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_TIME = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
    r"(?: std(?:out|err) [FP])?(?: |$)"
)
_LABELS = (
    re.compile(r"\s*(?P<label>\d+):(?: |$)"),
    re.compile(r"\[\w+[,.](?P<label>\d+)\](?:<\w+>)?:? ?"),
    re.compile(r"\[(?P<label>(?:rank|default)\d+)\]:? ?"),
    re.compile(r"\[(?P<label>pod/[\w.-]+/[\w.-]+)\](?: |$)"),
    re.compile(r"(?P<label>[A-Za-z][\w.-]*\d) +\|(?: |$)"),
)
_BARE = re.compile(r"\[(?P<label>\d+)\](?:<\w+>)?:? ?")
"""mpiexec -prepend-rank; behind a time, it is a thread's number or a process id."""
_LAYERS_MAX = 4
_SHARE = 0.9
"""A prefix stands in front of at least this share of a file's first lines."""
_LOOKED_AT = 40
_LEARNT_MAX = 64
_PREFIX_MAX = 200
_OUTERMOST = f"  + {GROUP}"
_FRAME = re.compile(r'(?:  \|)?\s+File ".*", line \d+')
_SOURCE = re.compile(r'  File "[^"]+", line \d+$')
"""Where a file is no Python, which needs no traceback."""
_SOURCE_LINE = re.compile(r" {4}\S")
_BEHIND = re.compile(HEADER.pattern.removesuffix("(.*)"))


class Line(NamedTuple):
    """A line of a log.

    Attributes:
      number, text: Where it stands, and what it says.
      label: Who printed it, as a launcher says; empty if none does.
      stream: What else a prefix says; lines that differ in it may be of different processes.
      time_s: When, by the prefix, in seconds since a year's beginning.
    """

    number: int
    text: str
    label: str
    stream: str
    time_s: float | None


def unprefixed(lines: Iterable[tuple[int, str]], note: Callable[[str], object]) -> Iterator[Line]:
    """The lines without what stands in front of them.

    Args:
      lines: Numbers and texts.
      note: Told of a prefix that is not known.
    """
    learnt = _Learnt(note)
    held: Line | None = None  # What the next line may explain.
    for line in _known_off(lines):
        if held is not None:
            learnt.look(held, line.text)
            yield learnt.off(held)
            held = None
        if learnt.may_learn(line.text):
            held = line
        else:
            yield learnt.off(line)
    if held is not None:
        yield held


def _known_off(lines: Iterable[tuple[int, str]]) -> Iterator[Line]:
    iterator = iter(lines)
    first: list[tuple[int, str]] = []
    for line in iterator:
        first.append(line)
        if len(first) == _LOOKED_AT:
            break
    layers = _layers([text for _, text in first if text.strip()])
    label = ""
    for source in (first, iterator):
        for number, text in source:
            time_s, told = None, []
            for layer in layers:
                found = layer.match(text)
                if found is None:
                    continue
                groups = found.groupdict()
                if "label" in groups:
                    told.append(groups["label"])
                else:
                    time_s = dated(groups["time"])
                text = text[found.end() :]
            # A line without a label goes on with the line before.
            label = " ".join(told) or label
            yield Line(number, text, label, "", time_s)


def _layers(told: list[str]) -> list[re.Pattern[str]]:
    """What stands in front of these lines, from left to right."""
    layers: list[re.Pattern[str]] = []
    while len(layers) < _LAYERS_MAX:
        # A time is put there once, and so is each kind of label.
        kinds = (_TIME, *_LABELS) if layers else (_TIME, *_LABELS, _BARE)
        layer = next((one for one in kinds if one not in layers and _mostly(one, told)), None)
        if layer is None:
            break
        layers.append(layer)
        told = [layer.sub("", text, count=1) if layer.match(text) else text for text in told]
    return layers


def _mostly(pattern: re.Pattern[str], texts: list[str]) -> bool:
    return len(texts) > 1 and (
        sum(1 for text in texts if pattern.match(text)) >= _SHARE * len(texts)
    )


class _Learnt:
    """Prefixes that were seen in front of what is known."""

    def __init__(self, note: Callable[[str], object]) -> None:
        self._forms: list[re.Pattern[str]] = []
        self._note = note

    def may_learn(self, text: str) -> bool:
        """Whether something known stands behind a prefix that is new."""
        return (
            len(self._forms) < _LEARNT_MAX
            and self._form(text) is None
            and re.search(r"\w", text[: _offset(text)]) is not None
        )

    def look(self, line: Line, following: str) -> None:
        """Learns the prefix of a line, if the next one bears it out."""
        text = line.text
        prefix = text[: _offset(text)]
        form = re.compile(_form_of(prefix))
        found = form.match(following)
        if found is None:
            return
        if _SOURCE.match(text, len(prefix)):
            is_borne_out = _SOURCE_LINE.match(following, found.end()) is not None
        elif text.startswith((TRACEBACK, _OUTERMOST), len(prefix)):
            is_borne_out = _FRAME.match(following, found.end()) is not None
        else:
            is_borne_out = _offset(following) == found.end() or (
                _without_numbers(found[0]) == _without_numbers(prefix)
            )
        if not is_borne_out:
            return
        if not self._forms:
            self._note(
                "lines have a prefix that is not known, and was taken off: "
                f"line {line.number}, {prefix!r}"
            )
        self._forms.append(form)

    def off(self, line: Line) -> Line:
        """The line without such a prefix; its label, if the prefix names a process."""
        found = self._form(line.text)
        if found is None:
            return line
        process = numbered(found[0])
        label = line.label if process is None else f"{line.label} {process[0]}".strip()
        stream = " ".join(re.findall(r"[\w.-]*[A-Za-z][\w.-]*", _DATED.sub("", found[0])))
        return line._replace(text=line.text[found.end() :], label=label, stream=stream)

    def _form(self, text: str) -> re.Match[str] | None:
        for form in self._forms:
            if found := form.match(text):
                return found
        return None


def _offset(text: str) -> int:
    """Where a message or a traceback begins in a line; 0 if there is none behind a prefix."""
    if text.endswith(TRACEBACK):
        first = _OUTERMOST if text.endswith(GROUP) else TRACEBACK
        offset = len(text) - len(first)
        return offset if text.endswith(first) and offset <= _PREFIX_MAX else 0
    if '  File "' in text and (source := _SOURCE.search(text, 1, 2 * _PREFIX_MAX)):
        return source.start()
    if "] " not in text:
        return 0
    found = _BEHIND.search(text, 0, 2 * _PREFIX_MAX)
    return 0 if found is None else found.start()


def _without_numbers(prefix: str) -> str:
    return re.sub(r"\d+", "", prefix)


def _form_of(prefix: str) -> str:
    """A pattern of all prefixes with the same marks between their words."""
    body = prefix.rstrip()
    parts = re.findall(r"[\w.-]+|\s+|[^\w\s.-]+", body)
    return "".join(
        r"[\w.-]+"
        if part[0].isalnum() or part[0] in "_.-"
        else r"\s+"
        if part.isspace()
        else re.escape(part)
        for part in parts
    ) + re.escape(prefix[len(body) :])


def dated(text: str) -> float | None:
    """The time with which a text begins, in seconds since a year's beginning, if it does."""
    found = _DATED.match(text)
    return None if found is None else seconds_of(found.groups()[:5], found[6] or "0")


def seconds_of(numbers: Sequence[str | Any], fraction: str) -> float | None:
    """Since a year's beginning, of a month, a day, an hour, a minute and a second."""
    month, day, hour, minute, second = map(int, numbers)
    try:
        moment = datetime(ANY_YEAR, month, day, hour, minute, second)  # noqa: DTZ001 - the host's
    except ValueError:
        return None
    since_s: float = (moment - datetime(ANY_YEAR, 1, 1)).total_seconds()  # noqa: DTZ001
    return since_s + float(f"0.{fraction}")
