"""Runs compiled code so that time limits and interrupts get through to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from numpy.typing import NDArray

from checker.search.budget import Budget

_T = TypeVar("_T")


def run_interruptibly(
    function: Callable[[], _T], stop: NDArray[Any], budget: Budget, *, wait: bool
) -> _T:
    """Calls a compiled search that looks at `stop[0]`.

    Args:
      function: Calls it.
      stop: Becomes non-zero when the budget's time is over, or an exception (Ctrl-C) comes.
      budget: Has the deadline.
      wait: Whether it may take long: then it runs in a thread of its own. Else it is called directly,
        which saves some 50 microseconds.
    """
    if not wait:
        return function()
    results: list[_T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again below, in the caller's thread
            failures.append(error)

    thread = threading.Thread(target=run, name="compiled search", daemon=True)
    thread.start()
    try:
        thread.join(budget.remaining_s)
    finally:
        if thread.is_alive():
            stop[0] = 1
            thread.join()
    if failures:
        raise failures[0]
    return results[0]
