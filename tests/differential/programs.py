"""Programs for the differential fuzzer: what they are made of, and how they are drawn.

A program is a list of steps that follow each other: the next one begins when the one before has had all
its effects. A step names what it refers to relatively ("the latest incarnation of task 1", "the newest
waiting call"), so that every part of a program is a program too, which shrinking relies on.

What is never drawn, because the real service's process does not survive it (`is_safe`):

* WatchTasks with a version that the service has not told yet (section 6 of the note);
* ReportErrorToService with code 0 (section 5);
* a Barrier call of an unknown task without a list of participants (section 8).

What is never drawn, because its outcome depends on the phase of the service's tick (once a second):

* time-outs other than `SHORT_S` and ones that never end, and more than one kind of short time-out in a
  program;
* silence that is shorter or longer than a `silence` step, which lets the silent die and nobody else.

What is never drawn, because its outcome depends on the order of a hash table of the real service:

* without recoverability, a later instance than the first of a reserved barrier. When all tasks leave
  together, one after the other in that order, the first one fails such a barrier, which puts those in
  error that have not left yet.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hypothesis import strategies as st

from tests.conformance.services import ServiceOptions

NEVER_S = 600
SHORT_S = 1
HEARTBEAT_TIMEOUT_S = 4
"""Of programs with timed steps. Short time-outs are noticed within 2 s, deaths after 4 s."""

FOREIGN = (99, -1)
KEYS = ("a", "a/b", "//a/", "", "a\0b", "/", "a/b/c", "a!", "ab", "A", "a/../b", "é", "a b")
VALUES = ("", "1", "x", "2147483647", " +7 ", "-2147483648", "-", "007", "1 2", "0x1", "\x00\xff")
INCREMENTS = (1, -1, 0, 5, 2**31, 2**63 - 1, -(2**63))
BARRIERS = ("s", "t", "u")
RESERVED_BARRIERS = ("[Init]Wait_for_all_tasks_to_register", "Shutdown::{SI}")
ERROR_CODES = (1, 9, 13, 14)
COUNTERS: tuple[int | None, ...] = (None, None, None, None, 0, 1, 2, -1)
"""None: as jaxlib's client counts."""

CALLS = (
    "register",
    "heartbeat",
    "poll",
    "report",
    "shutdown",
    "watch",
    "insert",
    "get",
    "try_get",
    "increment",
    "directory",
    "delete",
    "barrier",
    "cancel_barrier",
    "alive",
)
OTHER_STEPS = ("restart", "hang_up", "kill", "timeouts", "silence")
_OF_TASKS = ("register", "heartbeat", "poll", "report", "shutdown", "cancel_barrier", "restart")
"""Calls that a foreign id may make without more ado."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
      op: One of `CALLS`, or: `restart` (a new incarnation registers), `hang_up` (of a waiting call),
        `kill` (no more heartbeats, all calls hung up), `timeouts` (everybody beats until what is short
        has timed out), `silence` (the same until those in `silent` have died).
      task: Who.
      back: 0 for the latest incarnation, 1 for the one before it, and so on.
      arguments: Of the call, by the names of the methods of `tests.conformance.stubs.Task`.
    """

    op: str
    task: int = 0
    back: int = 0
    arguments: tuple[tuple[str, Any], ...] = ()

    def __getitem__(self, name: str) -> Any:
        return dict(self.arguments)[name]

    def get(self, name: str, default: Any = None) -> Any:
        """An argument, or the default."""
        return dict(self.arguments).get(name, default)

    def __str__(self) -> str:
        who = f"task {self.task}" + (f", {self.back} incarnations back" if self.back else "")
        what = ", ".join(f"{name}={value!r}" for name, value in self.arguments)
        if self.op in ("timeouts", "silence"):
            return f"{self.op} {what}".strip()
        return f"{who}: {self.op}({what})"


@dataclass(frozen=True, slots=True)
class Program:
    """A program, and the service it runs on.

    Attributes:
      tasks: Of the job; their ids are 0 to tasks - 1.
      recoverable: Of the service.
      heartbeat_timeout_s: Of the service, as the others.
      shutdown_timeout_s: 0 lets everybody leave alone.
      register_timeout_s: Of the registration barrier.
      steps: In order.
    """

    tasks: int
    recoverable: bool
    heartbeat_timeout_s: int
    shutdown_timeout_s: int
    register_timeout_s: int
    steps: tuple[Step, ...]

    @property
    def options(self) -> ServiceOptions:
        """How its service is made."""
        return ServiceOptions(
            tasks=self.tasks,
            recoverable=self.recoverable,
            heartbeat_timeout_s=self.heartbeat_timeout_s,
            shutdown_timeout_s=self.shutdown_timeout_s,
            register_timeout_s=self.register_timeout_s,
        )

    @property
    def timed(self) -> bool:
        """Whether real time plays a part."""
        return any(step.op in ("timeouts", "silence") for step in self.steps)

    def to_json(self) -> str:
        """One line that `from_json` reads."""
        fields = asdict(self)
        fields["steps"] = [
            {"op": step.op, "task": step.task, "back": step.back, **dict(step.arguments)}
            for step in self.steps
        ]
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str) -> Program:
        """Reads what `to_json` wrote.

        Raises:
          ValueError: it is no program, or one that the real service's process does not survive.
        """
        fields = json.loads(text)
        steps = []
        for each in fields.pop("steps"):
            op, task, back = each.pop("op"), each.pop("task"), each.pop("back")
            if op not in (*CALLS, *OTHER_STEPS):
                raise ValueError(f"no such step: {op}")
            arguments = tuple(
                (name, tuple(value) if isinstance(value, list) else value)
                for name, value in each.items()
            )
            steps.append(Step(op, task, back, arguments))
        program = cls(steps=tuple(steps), **fields)
        if not is_safe(program):
            raise ValueError("the real service's process would not survive this program")
        return program

    def __str__(self) -> str:
        kind = "recoverable" if self.recoverable else "not recoverable"
        head = (
            f"{self.tasks} tasks, {kind}, time-outs: heartbeat {self.heartbeat_timeout_s} s, "
            f"shutdown {self.shutdown_timeout_s} s, registration {self.register_timeout_s} s"
        )
        return "\n".join([head, *(f"{n:3} {step}" for n, step in enumerate(self.steps))])


def is_safe(program: Program) -> bool:
    """Whether the real service's process survives a program, as far as its text tells."""
    known = range(program.tasks)
    return not any(
        (step.op == "barrier" and step.task not in known and not step["tasks"])
        or (step.op == "report" and step["code"] == 0)
        for step in program.steps
    )


# --- drawing ---------------------------------------------------------------------------------------


def programs(*, timed: bool, reports: bool) -> st.SearchStrategy[Program]:
    """All programs.

    Args:
      timed: With steps that take real time, about 15 s in all; else without.
      reports: With ReportErrorToService, which jaxlib 0.10 does not have.
    """
    return _programs(timed, reports)


@st.composite
def _programs(draw: st.DrawFn, timed: bool, reports: bool) -> Program:
    tasks = draw(st.integers(1, 4))
    recoverable = draw(st.booleans())
    short = draw(st.sampled_from((*(4 * ("barrier",)), "none", "shutdown", "register")))
    if not timed:
        short = "none"
    leaving_alone = draw(st.sampled_from((False, False, False, True)))
    draws = _draws(tasks, recoverable, reports, short == "barrier")
    steps = draw(_opening(tasks))
    if not timed:
        for _ in range(draw(st.integers(2, 20))):
            steps += draw(draws.some())
    else:
        for _ in range(draw(st.integers(1, 3))):
            for _ in range(draw(st.integers(0, 4))):
                steps += draw(draws.some())
            steps.append(draw(draws.timed()))
        for _ in range(draw(st.integers(0, 3))):
            steps += draw(draws.some())
    return Program(
        tasks=tasks,
        recoverable=recoverable,
        heartbeat_timeout_s=HEARTBEAT_TIMEOUT_S if timed else NEVER_S,
        shutdown_timeout_s=SHORT_S if short == "shutdown" else 0 if leaving_alone else NEVER_S,
        register_timeout_s=SHORT_S if short == "register" else NEVER_S,
        steps=tuple(steps),
    )


@st.composite
def _opening(draw: st.DrawFn, tasks: int) -> list[Step]:
    """Mostly all tasks register, and some poll for errors."""
    order = draw(st.permutations(range(tasks)))
    kind = draw(st.sampled_from(("all", "all", "all", "all", "all", "all", "some", "none")))
    if kind == "none":
        return []
    if kind == "some":
        order = order[: draw(st.integers(0, tasks - 1))]
    polling = draw(st.sampled_from(("all", "none", "some")))
    polls = order if polling == "all" else order[:1] if polling == "some" else []
    return [Step("register", task) for task in order] + [Step("poll", task) for task in polls]


@functools.cache  # Making strategies takes longer than drawing from them.
def _draws(tasks: int, recoverable: bool, reports: bool, short_barriers: bool) -> _Draws:
    return _Draws(tasks, recoverable=recoverable, reports=reports, short_barriers=short_barriers)


class _Draws:
    """Strategies for the steps of a job.

    Args:
      tasks: Of the job.
      recoverable: Whether its tasks may come back.
      reports: See `programs`.
      short_barriers: Whether barriers may time out.
    """

    def __init__(
        self, tasks: int, *, recoverable: bool, reports: bool, short_barriers: bool
    ) -> None:
        self._tasks = tasks
        self._recoverable = recoverable
        self._known = st.integers(0, tasks - 1)
        self._anybody = st.sampled_from((*(5 * tuple(range(tasks))), *FOREIGN))
        self._back = st.sampled_from((0,) * 12 + (1, 1, 2))
        self._sets = self._lists()
        timeouts = (SHORT_S, SHORT_S, NEVER_S) if short_barriers else (NEVER_S,)
        self._timeouts = st.sampled_from(timeouts)
        self._missing = st.sampled_from((0, 1) if short_barriers else (0, 0, 0, 1))
        ones = [
            (2, self._register()),
            (3, self._restart()),
            (2, self._heartbeat()),
            (2, self._plain("poll")),
            (2, self._plain("shutdown")),
            (2, self._watch()),
            (2, self._insert()),
            (2, self._of_key("get")),
            (1, self._of_key("try_get")),
            (2, self._increment()),
            (1, self._of_key("directory")),
            (1, self._delete()),
            (6, self._barrier()),
            (2, self._cancel_barrier()),
            (5, self._alive()),
            (2, self._hang_up()),
            (1, self._known.map(lambda task: Step("kill", task))),
            *([(1, self._report())] if reports else []),
        ]
        self._weighted = [
            each.map(lambda step: [step]) for weight, each in ones for _ in range(weight)
        ]
        self._weighted += 4 * [self._meet_at_barrier()]
        self._weighted += 3 * [self._meet_alive()]
        self._weighted += [self._all_leave()]

    def some(self) -> st.SearchStrategy[list[Step]]:
        """A step, or several that belong together."""
        which = st.integers(0, len(self._weighted) - 1)  # `one_of` would not keep the weights.
        return which.flatmap(self._weighted.__getitem__)

    def timed(self) -> st.SearchStrategy[Step]:
        """A step that takes real time."""
        silences = st.lists(self._known, max_size=self._tasks, unique=True).map(
            lambda silent: Step("silence", 0, 0, (("silent", tuple(sorted(silent))),))
        )
        return st.one_of(st.just(Step("timeouts")), silences, silences)

    def _lists(self) -> st.SearchStrategy[tuple[int, ...]]:
        everybody = tuple(range(self._tasks))
        subsets = st.lists(self._known, min_size=1, max_size=self._tasks, unique=True)
        odd = st.lists(self._anybody, max_size=self._tasks + 1)
        return st.one_of(
            st.just(everybody), st.just(()), subsets.map(tuple), subsets.map(tuple), odd.map(tuple)
        )

    def _call(
        self, op: str, who: st.SearchStrategy[int], **arguments: st.SearchStrategy[Any]
    ) -> st.SearchStrategy[Step]:
        """A call with drawn arguments, rarely to the wrong incarnation of the service."""
        wrong = st.sampled_from((False,) * 30 + (True,))
        values = st.tuples(who, self._back, wrong, *arguments.values())

        def step(drawn: Sequence[Any]) -> Step:
            task, back, wrong_service, *rest = drawn
            named = tuple(zip(arguments, rest, strict=True))
            if wrong_service:
                named += (("wrong_service", True),)
            return Step(op, task, back, named)

        return values.map(step)

    def _plain(self, op: str) -> st.SearchStrategy[Step]:
        return self._call(op, self._anybody)

    def _register(self) -> st.SearchStrategy[Step]:
        who = st.tuples(self._anybody, self._back)
        return who.map(lambda drawn: Step("register", *drawn))

    def _restart(self) -> st.SearchStrategy[Step]:
        return self._known.map(lambda task: Step("restart", task))

    def _heartbeat(self) -> st.SearchStrategy[Step]:
        stranger = st.sampled_from((False, False, False, True))
        return self._call("heartbeat", self._anybody, stranger=stranger)

    def _report(self) -> st.SearchStrategy[Step]:
        return self._call(
            "report",
            self._anybody,
            code=st.sampled_from(ERROR_CODES),
            message=st.sampled_from(("boom", "")),
        )

    def _watch(self) -> st.SearchStrategy[Step]:
        version = st.sampled_from(("none", "latest", "latest", "first"))
        return self._call("watch", self._known, version=version)

    def _of_key(self, op: str) -> st.SearchStrategy[Step]:
        return self._call(op, self._known, key=st.sampled_from(KEYS))

    def _insert(self) -> st.SearchStrategy[Step]:
        return self._call(
            "insert",
            self._known,
            key=st.sampled_from(KEYS),
            value=st.sampled_from(VALUES),
            overwrite=st.booleans(),
        )

    def _increment(self) -> st.SearchStrategy[Step]:
        return self._call(
            "increment", self._known, key=st.sampled_from(KEYS), by=st.sampled_from(INCREMENTS)
        )

    def _delete(self) -> st.SearchStrategy[Step]:
        return self._call(
            "delete", self._known, key=st.sampled_from(KEYS), is_directory=st.booleans()
        )

    def _barrier(self) -> st.SearchStrategy[Step]:
        def step(drawn: Sequence[Any]) -> Step:
            task, back, barrier_id, counter, tasks, timeout_s = drawn
            if not 0 <= task < self._tasks and not tasks:
                tasks = tuple(range(self._tasks))  # Else the real service's process ends.
            if barrier_id in RESERVED_BARRIERS:
                timeout_s = NEVER_S  # All tasks are in error when one of those times out.
                if not self._recoverable:
                    counter = 0  # See the module: later instances fail when somebody leaves.
            return _barrier(task, barrier_id, counter, tasks, timeout_s, back=back)

        return st.tuples(
            self._anybody,
            self._back,
            st.sampled_from((*(6 * BARRIERS), *RESERVED_BARRIERS)),
            st.sampled_from(COUNTERS),
            self._sets,
            self._timeouts,
        ).map(step)

    def _cancel_barrier(self) -> st.SearchStrategy[Step]:
        return self._call(
            "cancel_barrier",
            self._anybody,
            barrier_id=st.sampled_from(BARRIERS),
            counter=st.sampled_from((0, 0, 0, 1, 2)),
        )

    def _alive(self) -> st.SearchStrategy[Step]:
        return self._call("alive", self._anybody, tasks=self._sets)

    def _hang_up(self) -> st.SearchStrategy[Step]:
        which = st.sampled_from(("newest", "oldest"))
        return st.tuples(self._known, which).map(
            lambda drawn: Step("hang_up", drawn[0], 0, (("which", drawn[1]),))
        )

    # Steps that belong together: left to chance, a barrier would hardly ever be passed.

    def _meet_at_barrier(self) -> st.SearchStrategy[list[Step]]:
        @st.composite
        def meet(draw: st.DrawFn) -> list[Step]:
            barrier_id = draw(st.sampled_from(BARRIERS))
            tasks = draw(st.one_of(st.just(()), st.lists(self._known, min_size=1, unique=True)))
            timeout_s = draw(self._timeouts)
            counter = draw(st.sampled_from((None, None, None, 0)))
            order = draw(st.permutations(tasks or range(self._tasks)))
            return [
                _barrier(task, barrier_id, counter, tuple(tasks), timeout_s)
                for task in order[: len(order) - draw(self._missing)]
            ]

        return meet()

    def _meet_alive(self) -> st.SearchStrategy[list[Step]]:
        @st.composite
        def meet(draw: st.DrawFn) -> list[Step]:
            tasks = draw(
                st.one_of(
                    st.just(list(range(self._tasks))),
                    st.lists(self._known, min_size=1, unique=True),
                )
            )
            order = draw(st.permutations(tasks))
            called = order[: len(order) - draw(st.sampled_from((0, 0, 1, 2)))]
            return [Step("alive", task, 0, (("tasks", tuple(tasks)),)) for task in called]

        return meet()

    def _all_leave(self) -> st.SearchStrategy[list[Step]]:
        orders = st.permutations(range(self._tasks))
        missing = st.sampled_from((0, 0, 1))
        return st.tuples(orders, missing).map(
            lambda drawn: [Step("shutdown", task) for task in drawn[0][drawn[1] :]]
        )


def _barrier(
    task: int,
    barrier_id: str,
    counter: int | None,
    tasks: tuple[int, ...],
    timeout_s: int,
    *,
    back: int = 0,
) -> Step:
    arguments = (
        ("barrier_id", barrier_id),
        ("counter", counter),
        ("tasks", tasks),
        ("timeout_s", timeout_s),
    )
    return Step("barrier", task, back, arguments)
