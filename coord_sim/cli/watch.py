"""The live table of `coordlab serve --watch`."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from coord_sim.core.identifiers import NS_PER_S
from coord_sim.core.messages import TaskState
from coord_sim.core.status import Code
from coord_sim.core.survey import Survey
from coord_sim.server.grpc_server import CoordinationServer

REDRAW_S = 0.5
_SHOWN_MAX = 12
_COLOURS = {
    TaskState.CONNECTED: "green",
    TaskState.DISCONNECTED: "yellow",
    TaskState.ERROR: "red",
}


class Watcher:
    """Draws what a server looks like, again and again.

    On a thread of its own: a terminal that is not read (Ctrl-S, a closed lid) must not stop the service.

    Args:
      server: Runs on the loop that creates this.
      console: Where to draw.
      title: Above the table.
    """

    def __init__(self, server: CoordinationServer, console: Console, title: str) -> None:
        self._server = server
        self._console = console
        self._title = title
        self._loop = asyncio.get_running_loop()
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._draw, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the drawing; a terminal that is not read is not waited for."""
        self._is_ending.set()
        self._thread.join(2 * REDRAW_S)

    def _draw(self) -> None:
        # Standard output stays as it is: its first line is for programs.
        with Live(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        ) as live:
            while not self._is_ending.is_set():
                look = asyncio.run_coroutine_threadsafe(self._look(), self._loop)
                with contextlib.suppress(TimeoutError):
                    survey, answers = look.result(REDRAW_S)
                    live.update(picture(survey, answers, self._title), refresh=True)
                self._is_ending.wait(REDRAW_S)

    async def _look(self) -> tuple[Survey, dict[tuple[str, Code], int]]:
        return self._server.survey(), dict(self._server.answers)


def picture(survey: Survey, answers: dict[tuple[str, Code], int], title: str) -> Group:
    """The table of one instant."""
    tasks = Table(title=f"{title}  {time.strftime('%H:%M:%S')}", title_justify="left")
    for name in ("task", "state", "incarnation", "last heartbeat", "waits in", "error"):
        tasks.add_column(name, overflow="ellipsis", no_wrap=True)
    for task in survey.tasks:
        heartbeat = "" if task.silent_ns is None else f"{task.silent_ns / NS_PER_S:.1f} s ago"
        places = [f"{b.barrier_id}::{b.counter}" for b in survey.barriers if task.task in b.arrived]
        places += ["live_processes" for round_ in survey.rounds if task.task in round_.entered]
        tasks.add_row(
            str(task.task),
            Text(task.state.name.lower(), style=_COLOURS[task.state]),
            str(task.incarnation) if task.incarnation else "",
            heartbeat,
            Text(", ".join(places)),
            Text("" if task.error is None else str(task.error).partition("\n")[0]),
        )
    # The lines come first: a terminal that is too low cuts off the end.
    return Group(*map(Text, _lines(survey, answers)), tasks)


def _lines(survey: Survey, answers: dict[tuple[str, Code], int]) -> list[str]:
    lines = [
        f"barrier {barrier.barrier_id}::{barrier.counter} waits for {_names(barrier.missing)}, "
        f"{max(barrier.remaining_ns, 0) / NS_PER_S:.0f} s left"
        for barrier in survey.barriers[:_SHOWN_MAX]
    ]
    lines += [
        f"live_processes {_names(round_.tasks)} waits for {_names(round_.missing)}"
        for round_ in survey.rounds[:_SHOWN_MAX]
    ]
    hidden = max(len(survey.barriers) - _SHOWN_MAX, 0) + max(len(survey.rounds) - _SHOWN_MAX, 0)
    if hidden:
        lines.append(f"and {hidden} more barriers and rounds")
    failed = {code: 0 for _, code in answers if code is not Code.OK}
    for (_, code), count in answers.items():
        if code in failed:
            failed[code] += count
    errors = ", ".join(f"{code.name} {count}" for code, count in sorted(failed.items()))
    lines.append(
        f"{survey.rounds_ended} rounds, {survey.keys} keys of {survey.value_bytes} bytes, "
        f"{sum(answers.values())} calls answered" + (f"; errors: {errors}" if errors else "")
    )
    return lines


def _names(tasks: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, tasks[:_SHOWN_MAX]))
    return f"tasks {shown}" + (", …" if len(tasks) > _SHOWN_MAX else "")
