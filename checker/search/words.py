"""Operations as guarded assignments `guard? state := value`, where a specification gives that form.

Values that no guard tests are indistinguishable: they become `UNTESTED`, so that operations that differ
in them are the same, and there are few states. What is found on words holds for the specification, and
witnesses are replayed by the specification itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeAlias, final

from checker.operations import Operation, show
from checker.search.steps import StepTable, Successors, first_state, reason_illegal
from checker.specification import Guarded, Hint, Specification


@final
class _Untested:
    def __repr__(self) -> str:
        return "a value that no operation asks for"


UNTESTED: Final = _Untested()
"""The state after a value that no guard tests."""


class WordSteps:
    """Steps of guarded assignments, with the interface of `StepTable`.

    Args:
      spec: The specification.
      kinds: The history's kinds.
      words: By kind, for the kinds of one object.
    """

    def __init__(
        self, spec: Specification, kinds: Sequence[Operation], words: dict[int, Guarded]
    ) -> None:
        self.spec = spec
        self.kinds = kinds
        self._initial = first_state(spec)
        tested = dict.fromkeys(
            [self._initial, *(word.value for word in words.values() if word.guard != "any")]
        )
        self._states = (*tested, UNTESTED)
        assigned = {word.new for word in words.values() if word.assigns}
        self.lacks_source = not assigned.union([self._initial]).issuperset(tested)
        """Whether a guard tests a value that no operation assigns."""
        self.words = {
            kind: Guarded(word.guard, word.value, assigns=True, new=UNTESTED)
            if word.assigns and word.new not in tested
            else word
            for kind, word in words.items()
        }
        self.rows: defaultdict[int, dict[Hashable, Successors]] = defaultdict(dict)

    @cached_property
    def hints(self) -> dict[int, Hint]:
        """What the form says about each kind."""
        return {kind: hint_of(word) for kind, word in self.words.items()}

    def states(self) -> Sequence[Hashable]:
        """All states that guards can tell apart."""
        return self._states

    def told_apart_by(self, kinds: Iterable[int]) -> Sequence[Hashable]:
        """Those that the guards of some kinds can tell apart, and one for all others."""
        words = [self.words[kind] for kind in dict.fromkeys(kinds)]
        return (*dict.fromkeys(word.value for word in words if word.guard != "any"), UNTESTED)

    def init(self) -> Hashable:
        """The first state."""
        return self._initial

    def ask(self, kind: int, state: Hashable) -> Successors:
        """As `StepTable.ask`."""
        word = self.words[kind]
        legal = word.guard == "any" or (state == word.value) == (word.guard == "is")
        successors: Successors = ((word.new if word.assigns else state),) if legal else ()
        self.rows[kind][state] = successors
        return successors

    def next(self, kind: int, state: Hashable) -> Successors:
        """The states after an operation of a kind in a state."""
        known = self.rows[kind].get(state)
        return self.ask(kind, state) if known is None else known

    def describe(self, state: Hashable) -> str:
        """A state in words."""
        return repr(state) if state is UNTESTED else self.spec.describe_state(state)

    def why_illegal(self, kind: int, state: Hashable) -> str:
        """The specification's own reason, or one in our words."""
        if state is UNTESTED:
            word = self.words[kind]
            return f"it needs {show(word.value)}"
        return reason_illegal(self.spec, self.kinds[kind], state)


Steps: TypeAlias = StepTable | WordSteps


def hint_of(word: Guarded) -> Hint:
    """What the form says."""
    hint = Hint.NOTHING
    if not word.assigns or (word.guard == "is" and word.value == word.new):
        hint |= Hint.PURE
    if word.guard == "any":
        hint |= Hint.TOTAL
        if word.assigns:
            hint |= Hint.BLIND
    return hint


def words_of(
    spec: Specification,
    kinds: Sequence[Operation],
    used: Sequence[int],
    counts: Mapping[int, int],
) -> dict[int, Guarded] | None:
    """The words of the kinds of one object; None if one of them has no such form.

    Args:
      spec: The specification.
      kinds: The history's.
      used: Those of the object.
      counts: By kind, how many operations there are.
    """
    guarded = spec.guarded_all([kinds[kind] for kind in used], [counts[kind] for kind in used])
    words: dict[int, Guarded] = {}
    for kind, word in zip(used, guarded, strict=True):
        if word is None:
            return None
        words[kind] = word
    return words
