"""What a simulated program can await: things that will happen, and coroutines beside it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Wait(Generic[T]):
    """Something that will happen; programs await it.

    Attributes:
      what: In words, for who asks what a process waits for.
      done: Whether it has happened.
      is_awaited: Whether anybody has awaited it.
    """

    __slots__ = ("_error", "_value", "_waiting", "done", "is_awaited", "what")

    def __init__(self, what: str = "") -> None:
        self.what = what
        self.done = False
        self.is_awaited = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._waiting: list[tuple[Callable[..., None], Any]] = []

    def happen(self, value: T) -> None:
        """Lets it happen and resumes who waits."""
        self.done = True
        self._value = value
        for resume, argument in self._waiting:
            resume(argument)

    def fail(self, error: BaseException) -> None:
        """Lets it end with an exception, which is raised in who waits."""
        self.done = True
        self._error = error
        for resume, argument in self._waiting:
            resume(argument)

    def then(self, resume: Callable[[Any], None], argument: Any) -> None:
        """Says how to resume who waits."""
        self._waiting.append((resume, argument))

    def __await__(self) -> Generator[Wait[Any], None, T]:
        self.is_awaited = True
        while not self.done:
            yield self
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[no-any-return]  # set by `happen`
