"""Keeps programs inside the simulation: nothing real may be awaited, and everybody must yield.

An audit hook refuses what a program does with the real world (sockets, threads, processes) while it runs
inside a simulation. Before CPython 3.13 sleeping and starting threads are not audited, so that
`time.sleep` and `Thread.start` are replaced while a simulation runs, by functions that look whether it
is the program that calls. A program that computes for ever is found by a thread that looks once a
second, and gets an exception.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import time
from typing import Any, Final, Self

from coord_sim.errors import ProgramError

NEVER_YIELDS_S: Final = 20.0
"""A program that runs so long in real time without an `await` is taken to never yield."""

STEPS_PER_INSTANT_MAX: Final = 100_000
"""A program that goes on so often without virtual time passing is taken to never let it pass."""

_FOREIGN: Final = {
    "time.sleep": "time.sleep: use `await process.sleep(seconds)`",
    "socket.__new__": "a real socket: use `process.client`",
    "socket.connect": "a real socket: use `process.client`",
    "socket.getaddrinfo": "a real socket: use `process.client`",
    "_thread.start_joinable_thread": "a thread: use `process.start(coroutine)`",
    "subprocess.Popen": "a real process: write a second simulated program",
    "os.system": "a real process: write a second simulated program",
    "os.fork": "a real process: write a second simulated program",
    "os.posix_spawn": "a real process: write a second simulated program",
}

_UNAUDITED: Final = (
    ((time, "sleep", "time.sleep"), (threading.Thread, "start", "_thread.start_joinable_thread"))
    if sys.version_info < (3, 13)
    else ()
)
"""Owner, attribute, and the event that later versions raise."""

_LOOK_S: Final = 1.0
_SLEEP: Final = time.sleep


def refusal(running: Running, what: str) -> ProgramError:
    """Keeps, and gives, the error that says what a program must not use."""
    running.error = ProgramError(
        f"the program of process {running.process} uses {what}. A simulated program may await only "
        "what its process offers"
    )
    return running.error


class _NoLoop:
    """Stands where asyncio looks for its event loop while programs run."""

    def __getattr__(self, name: str) -> Any:
        running = _guard.running
        if running is None or running.process is None or name.startswith("__"):
            raise AttributeError(name)
        what = f"asyncio ({name}): there is no event loop; use `process.start` and `process.sleep`"
        raise refusal(running, what)


class _Guard(threading.local):
    """Whether this thread is inside a simulated program."""

    running: Running | None = None


class Running:
    """A simulation whose program runs now, in one thread.

    Attributes:
      thread: The thread.
      process: Whose program is inside a step; None between steps.
      turns: Grows with each step.
      error: What the program did that it must not; raised again after the step, if it was swallowed.
    """

    __slots__ = ("error", "process", "thread", "turns")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.process: int | None = None
        self.turns = 0
        self.error: ProgramError | None = None


_guard = _Guard()
_NO_LOOP: Final = _NoLoop()
_watched: dict[int, Running] = {}
_lock = threading.Lock()
_is_hooked = False
_watchdog: threading.Thread | None = None


class ProgramGuard:
    """Watches the programs of one simulation: `with guard:` around the run.

    Attributes:
      running: Whose program runs now; to be told around each step.
    """

    __slots__ = ("_before", "_loop_before", "running")

    def __init__(self) -> None:
        self.running = Running()
        self._before: Running | None = None
        self._loop_before: Any = None

    def __enter__(self) -> Self:
        _install()
        self.running.thread = threading.get_ident()
        self._before = _guard.running
        _guard.running = self.running
        if "asyncio" in sys.modules:
            self._loop_before = _exchange_loop(_NO_LOOP)
        with _lock:
            if not _watched:
                _replace_unaudited()
            _watched[id(self.running)] = self.running
        return self

    def __exit__(self, *_: object) -> None:
        _guard.running = self._before
        if "asyncio" in sys.modules:
            _exchange_loop(self._loop_before)
        with _lock:
            _watched.pop(id(self.running), None)
            if not _watched:
                _put_back()


def _exchange_loop(loop: Any) -> Any:
    """Sets the event loop that asyncio takes to be running in this thread; returns the former one."""
    events = sys.modules["asyncio.events"]
    before = events._get_running_loop()  # noqa: SLF001 - for those who make event loops
    events._set_running_loop(loop)  # noqa: SLF001
    return before


def _install() -> None:
    global _is_hooked, _watchdog  # noqa: PLW0603 - there is one hook and one watchdog a process
    if _is_hooked and _watchdog is not None and _watchdog.is_alive():
        return
    with _lock:
        if not _is_hooked:
            _is_hooked = True
            sys.addaudithook(_audit)
        if _watchdog is None or not _watchdog.is_alive():  # A fork leaves it behind.
            _watchdog = threading.Thread(target=_watch, name="coordlab-watchdog", daemon=True)
            _watchdog.start()


_originals: list[tuple[object, str, object]] = []


def _replace_unaudited() -> None:
    for owner, name, event in _UNAUDITED:
        original = getattr(owner, name)

        @functools.wraps(original)
        def checked(
            *arguments: object, original: Any = original, event: str = event, **named: object
        ) -> object:
            _audit(event, arguments)
            return original(*arguments, **named)

        _originals.append((owner, name, original))
        setattr(owner, name, checked)


def _put_back() -> None:
    while _originals:
        owner, name, original = _originals.pop()
        setattr(owner, name, original)


def _audit(event: str, _arguments: tuple[object, ...]) -> None:
    if event not in _FOREIGN:
        return
    running = _guard.running
    if running is not None and running.process is not None:
        raise refusal(running, _FOREIGN[event])


def _watch() -> None:
    seen: dict[int, tuple[int, float]] = {}
    while True:
        _SLEEP(_LOOK_S)
        with _lock:
            watched = list(_watched.items())
        now_s = time.monotonic()
        still: dict[int, tuple[int, float]] = {}
        for key, running in watched:
            if running.process is None:
                continue
            turns, since_s = seen.get(key, (-1, now_s))
            if turns != running.turns:
                since_s = now_s
            elif now_s - since_s > NEVER_YIELDS_S:
                running.error = NeverYieldsError()
                _raise_in(running.thread)  # Again and again: a program may swallow it.
            still[key] = (running.turns, since_s)
        seen = still


class NeverYieldsError(ProgramError):
    """A program computes for ever."""

    def __init__(self) -> None:
        super().__init__(
            f"a program ran for more than {NEVER_YIELDS_S:g} s of real time without an await; does it "
            "loop for ever?"
        )


class _StopNow(BaseException):
    """Ends a step that never ends; not for `except Exception`."""


def _raise_in(thread: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_StopNow))
