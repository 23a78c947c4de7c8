"""One start of one process: its client, its program, its open calls."""

from __future__ import annotations

import traceback
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from checker.history import LIVE_PROCESSES, Enter, Exit, Fail, Info, Invoke, Ok, Start
from coord_sim.core.client import CoordinationClient
from coord_sim.core.effects import ClientEffect, Connected, Fatal, Send
from coord_sim.core.identifiers import CallId, TaskId, seconds
from coord_sim.core.messages import (
    AliveTasks,
    Answer,
    GetAliveTasks,
    Request,
    TasksWatched,
    WatchTasks,
)
from coord_sim.core.status import Code, Status
from coord_sim.errors import ProgramError, ServiceError
from coord_sim.moments import BLOCK
from coord_sim.recording import operation_of, response
from coord_sim.sim.client import LEAVING, Client
from coord_sim.sim.clock import Clock
from coord_sim.sim.event_queue import EventQueue
from coord_sim.sim.gate import Gate
from coord_sim.sim.live_devices import LiveSet
from coord_sim.sim.network import Connection
from coord_sim.sim.process import Process
from coord_sim.sim.run import RAISED
from coord_sim.sim.waiting import Wait

if TYPE_CHECKING:
    from coord_sim.sim.data_plane import Devices
    from coord_sim.sim.service_host import ServiceHost
    from coord_sim.sim.simulation import Simulation

T = TypeVar("T")

RESET: Final = Status(code=Code.UNAVAILABLE, message="Connection reset by peer", service_error=None)
"""What a client sees of a call whose connection broke."""

_CANCELLED_BY_SHUTDOWN: Final = ("key_value_get", "barrier")
_TIMED_OUT: Final = "the call timed out on the client"
_DISK_NS: Final = seconds(0.005)
_CLAUSES_MAX: Final = 100
"""A coroutine with more `finally` clauses that await is left to the garbage collector."""

_EVERYBODY: Final[Mapping[str, object]] = {}


class Member:
    """What outlives the starts of one process.

    Attributes:
      clock: Its clock.
      gate: Its door.
    """

    __slots__ = ("clock", "gate")

    def __init__(self, queue: EventQueue) -> None:
        self.clock = Clock()
        self.gate = Gate(queue)


class _Call:
    """An open call of the program; one without a name is none that it made."""

    __slots__ = ("name", "operation", "wait")

    def __init__(self, operation: int, name: str, wait: Wait[Answer]) -> None:
        self.operation = operation
        self.name = name
        self.wait = wait


class _Task:
    """A coroutine of a process: its program, or one started beside it."""

    __slots__ = ("coroutine", "result", "waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine
        self.result: Wait[Any] = Wait("a coroutine")
        self.waits_for: Wait[Any] | None = None


class Lifetime:
    """One start of one process."""

    __slots__ = (
        "_armed_ns",
        "_began_ns",
        "_client",
        "_clock",
        "_devices",
        "_gate",
        "_host",
        "_link",
        "_open",
        "_own_calls",
        "_queue",
        "_random",
        "_simulation",
        "_step_ns",
        "_steps",
        "_tasks",
        "connection",
        "is_alive",
        "latest_live_set",
        "number",
        "process",
        "task",
    )

    def __init__(
        self, simulation: Simulation, process: int, number: int, host: ServiceHost
    ) -> None:
        self.process = process
        self.number = number
        self.task = TaskId(simulation.task_of(process))
        self.is_alive = True
        self.connection = Connection(simulation.network.link(process))
        self._link = self.connection.link
        self._gate = simulation.members[process].gate
        self._simulation = simulation
        self._queue = simulation.queue
        self._host = host
        self._clock = simulation.members[process].clock
        self._began_ns = self._queue.now_ns
        self._random = simulation.entropy.stream(f"process/{process}/{number}")
        schedule = simulation.schedule
        self._client = CoordinationClient(
            self.task,
            self._random.incarnation(),
            heartbeat_timeout_ns=simulation.client_timeout_ns,
            init_timeout_ns=seconds(schedule.init_timeout_s or schedule.limit_s),
            new_call=simulation.new_call,
        )
        self._open: dict[CallId, _Call] = {}
        self._own_calls: dict[CallId, None] = {}
        self._tasks: list[_Task] = []
        self.latest_live_set: LiveSet | None = None
        self._devices: Devices | None = None
        self._armed_ns = -1
        self._step_ns = 0
        self._steps = 0

    @property
    def incarnation(self) -> int:
        """The random number of this start."""
        return self._client.incarnation

    def begin(self) -> None:
        """Begins to register."""
        self._gate.begin_anew()
        self._carry_out(self._client.connect(self._local_ns()))

    def end(self) -> None:
        """Stops all coroutines, and closes the connection: nothing that they still do has any effect."""
        self.is_alive = False
        running = self._simulation.guard.running
        interrupted, running.process = running.process, self.process
        for task in self._tasks:
            for _ in range(_CLAUSES_MAX):  # Each `finally` that awaits needs another try.
                try:
                    task.coroutine.close()
                except RuntimeError:
                    continue
                except Exception:  # noqa: BLE001, S110 - nobody is there to be told
                    pass
                break
        running.process = interrupted
        self._tasks = []
        self.latest_live_set = None
        self._hang_up([*self._open, *self._own_calls])

    def _hang_up(self, calls: list[CallId]) -> None:
        if calls:
            now_ns = self._queue.now_ns
            arrivals = self._link.arrivals_ns(self.connection, now_ns, is_up=True)
            self._queue.at(max(arrivals, default=now_ns), self._host.hang_up, self, calls)

    def waits_for(self) -> str:
        """What the program waits for, in words."""
        if not self._tasks:
            return "its registration"
        wait = self._tasks[0].waits_for
        return "" if wait is None else wait.what

    def calls_at(self, host: ServiceHost) -> bool:
        """Whether it is connected to this service."""
        return self._host is host

    def pending(self, name: str) -> bool:
        """Whether a call of this operation is open."""
        return any(call.name == name for call in self._open.values())

    # --- messages ------------------------------------------------------------------------------

    def _send(self, call: CallId, request: Request) -> None:
        queue, link, connection, host = self._queue, self._link, self.connection, self._host
        now_ns = queue.now_ns
        if link.is_good:
            arrival_ns = link.up_ns(connection, now_ns)
            queue.at(arrival_ns, host.arrive, self, connection.epoch, host.deaths, call, request)
            return
        for arrival_ns in link.arrivals_ns(connection, now_ns, is_up=True):
            queue.at(arrival_ns, host.arrive, self, connection.epoch, host.deaths, call, request)

    def answer(self, call: CallId, answer: Answer) -> None:
        """The service answers a call of this lifetime: the answer is on its way."""
        queue, link, connection = self._queue, self._link, self.connection
        now_ns = queue.now_ns
        if link.is_good:
            arrival_ns = link.down_ns(connection, now_ns)
            queue.at(arrival_ns, self._receive, connection.epoch, call, answer)
            return
        for arrival_ns in link.arrivals_ns(connection, now_ns, is_up=False):
            queue.at(arrival_ns, self._receive, connection.epoch, call, answer)

    def has_arrived(self, call: CallId) -> None:
        """The service has a request of this lifetime."""
        opened = self._open.get(call)
        if opened is not None and opened.name and self.is_alive:
            self._simulation.happened("inside", self.process, opened.name)

    def _receive(self, epoch: int, call: CallId, answer: Answer) -> None:
        if not self.is_alive or epoch != self.connection.epoch:
            return
        if self._link.cut_down and answer not in (RESET, LEAVING):
            self._link.hold(self._receive, epoch, call, answer, is_up=False)
        elif self._gate.is_open:
            self._take(epoch, call, answer)
        else:
            self._gate.take(self._take, epoch, call, answer)

    def _take(self, epoch: int, call: CallId, answer: Answer) -> None:
        if not self.is_alive or epoch != self.connection.epoch:
            return
        opened = self._open.pop(call, None)
        if opened is not None:
            self._returned(opened, answer)
        elif self._own_calls.pop(call, self) is not self:
            self._carry_out(self._client.receive(call, answer, self._local_ns()))

    def reset(self) -> None:
        """The connection breaks: all that waits fails, and what is under way is lost."""
        if not self.is_alive:
            return
        connection = self.connection
        connection.epoch += 1
        connection.is_made = False
        connection.up_ns = connection.down_ns = self._queue.now_ns
        calls = [*self._open, *self._own_calls]
        if calls:
            self._queue.after(0, self._host.hang_up, self, calls)
        epoch = connection.epoch
        for call in calls:
            self._queue.after(0, self._receive, epoch, call, RESET)

    # --- the client's half ---------------------------------------------------------------------

    def _local_ns(self) -> int:
        now_ns = self._queue.now_ns
        return now_ns if self._clock.is_true else self._clock.monotonic_ns(now_ns)

    def _carry_out(self, effects: list[ClientEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._own_calls[effect.call] = None
                self._send(effect.call, effect.request)
            elif isinstance(effect, Connected):
                self._connected()
            else:
                assert isinstance(effect, Fatal)
                self.end_process(effect.reason)
                return
        deadline_ns = self._client.next_deadline_ns()
        if deadline_ns is not None and self.is_alive:
            if not self._clock.is_true:
                deadline_ns = self._clock.true_ns(deadline_ns)
            if not self._queue.now_ns <= self._armed_ns <= deadline_ns:
                self._armed_ns = deadline_ns
                self._queue.at(deadline_ns, self._wake, deadline_ns)

    def _wake(self, armed_ns: int) -> None:
        # Deadlines move, both ways: a wake-up that comes early arms the next one.
        if not self.is_alive:
            return
        if not self._gate.is_open and self._gate.is_paused:
            self._gate.defer(self._wake, armed_ns)
            return
        if armed_ns == self._armed_ns:
            self._armed_ns = -1
        self._carry_out(self._client.advance(self._local_ns()))

    def rearm(self) -> None:
        """The clock has changed: deadlines come at other true times."""
        self._armed_ns = -1
        if self.is_alive:
            self._carry_out([])

    def end_process(self, reason: Status) -> None:
        """The client ends the process, as jaxlib's does by SIGABRT."""
        self._simulation.end(self, f"client ended the process: {reason}")

    def _connected(self) -> None:
        simulation = self._simulation
        simulation.events.append(
            Start(
                time_ns=self._queue.now_ns,
                process=self.process,
                lifetime=self.number,
                incarnation=self._client.incarnation,
                since_ns=self._began_ns,
            )
        )
        caller = self._client.caller
        assert caller is not None
        client = Client(self.task, simulation.participants, caller, self)
        disk = simulation.disk(self.process)
        disk.sync_takes = self.sync
        process = Process(
            self.process,
            simulation.participants,
            self.number,
            client=client,
            disk=disk,
            random=self._random,
            host=self,
            blocks=simulation.kind_of_block,
        )
        try:
            coroutine = simulation.coroutine(process)
        except ProgramError:
            raise
        except Exception as error:  # noqa: BLE001 - of a function that makes the coroutine
            simulation.end(self, _story(error))
            return
        self._add_task(coroutine)

    # --- the program's half --------------------------------------------------------------------

    def _add_task(self, coroutine: Coroutine[Any, Any, Any]) -> _Task:
        task = _Task(coroutine)
        self._tasks.append(task)
        self._step(task)
        return task

    def _step(self, task: _Task) -> None:
        """Runs a coroutine up to its next wait."""
        self._look_at_time()
        running = self._simulation.guard.running
        interrupted = running.process  # A step of its own, if it has started this coroutine.
        running.process = self.process
        running.turns += 1
        try:
            waits_for = task.coroutine.send(None)
        except StopIteration as returned:
            running.process = interrupted
            if running.error is not None:
                raise running.error from None
            self._ended(task, returned.value)
            return
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            running.process = interrupted
            if running.error is not None:
                raise running.error from error
            self._raised(task, error)
            return
        running.process = interrupted
        if running.error is not None:  # It was swallowed.
            raise running.error
        if not isinstance(waits_for, Wait):
            task.coroutine.close()
            raise ProgramError(
                f"the program of process {self.process} awaits {waits_for!r}, which the simulator "
                "does not offer; use process.sleep and process.client"
            )
        task.waits_for = waits_for
        waits_for.then(self._resume, task)

    def _resume(self, task: _Task) -> None:
        if not self.is_alive:
            return
        if not self._gate.is_open and self._gate.is_paused:
            self._gate.defer(self._resume, task)
        else:
            self._step(task)

    def _look_at_time(self) -> None:
        now_ns = self._queue.now_ns
        if now_ns != self._step_ns:
            self._step_ns = now_ns
            self._steps = 0
        self._steps += 1
        if self._steps > self._simulation.steps_per_instant_max:
            raise ProgramError(
                f"the program of process {self.process} went on {self._steps} times at "
                f"{now_ns / 1e9:g} s without letting virtual time pass; does it loop for ever? Use "
                "`await process.sleep(seconds)` with more than 0"
            )

    def _ended(self, task: _Task, value: object) -> None:
        if not self.is_alive:
            return  # A coroutine that it started has ended the process within this step.
        if task is self._tasks[0]:
            self._simulation.end(self, None)
            return
        self._tasks.remove(task)
        # As an event: who waits may end too, and so on.
        self._queue.after(0, task.result.happen, value)

    def _raised(self, task: _Task, error: BaseException) -> None:
        if isinstance(error, ProgramError):
            raise error
        if not self.is_alive:
            return
        if isinstance(error, SystemExit) and error.code in (None, 0):
            self._simulation.end(self, None)
            return
        if task is self._tasks[0]:
            self._simulation.end(self, _story(error))
            return
        self._tasks.remove(task)
        self._queue.after(0, task.result.fail, error)
        self._queue.after(0, self._end_unless_awaited, task, error)

    def _end_unless_awaited(self, task: _Task, error: BaseException) -> None:
        if not task.result.is_awaited:
            self._simulation.end(self, _story(error))

    # --- what the program asks for -------------------------------------------------------------

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Wait[T]:
        """Runs a coroutine beside the program."""
        if not self.is_alive:
            coroutine.close()
            return Wait()
        return self._add_task(coroutine).result

    def call(self, request: Request, timeout_ns: int | None = None) -> Wait[Answer]:
        """Sends a request of the program."""
        if not self.is_alive:
            return Wait()
        simulation = self._simulation
        if isinstance(request, GetAliveTasks) and request.tasks is simulation.participants:
            name, arguments = LIVE_PROCESSES, _EVERYBODY
        else:
            described = operation_of(request, simulation.tasks)
            assert described is not None
            name, arguments = described
        operation = simulation.operations
        simulation.operations += 1
        simulation.events.append(
            Invoke(
                time_ns=self._queue.now_ns,
                process=self.process,
                lifetime=self.number,
                id=operation,
                operation=name,
                arguments=arguments,
            )
        )
        call = simulation.new_call()
        subject = arguments.get("key") or arguments.get("barrier")
        wait: Wait[Answer] = Wait(name if subject is None else f"{name} {subject}")
        self._open[call] = _Call(operation, name, wait)
        self._send(call, request)
        if timeout_ns is not None:
            self._queue.after(self._true_delay_ns(timeout_ns), self._time_out, call)
        return wait

    def _time_out(self, call: CallId) -> None:
        if not self.is_alive or call not in self._open:
            return
        if not self._gate.is_open and self._gate.is_paused:
            self._gate.defer(self._time_out, call)
        else:
            opened = self._open.pop(call)
            self._hang_up([call])
            status = Status(code=Code.DEADLINE_EXCEEDED, message=_TIMED_OUT, service_error=None)
            self._returned(opened, status)

    def _returned(self, opened: _Call, answer: Answer) -> None:
        simulation = self._simulation
        if opened.name:
            simulation.events.append(self._response(opened, answer))
        if self._client.is_fatal(answer):
            assert isinstance(answer, Status)
            self.end_process(answer)
            return
        opened.wait.happen(answer)
        if opened.name:
            simulation.happened("after", self.process, opened.name)

    def _response(self, opened: _Call, answer: Answer) -> Ok | Fail | Info:
        return response(
            answer,
            self._simulation.texts,
            time_ns=self._queue.now_ns,
            process=self.process,
            lifetime=self.number,
            operation=opened.operation,
            name=opened.name,
        )

    def enter_barrier(self, barrier_id: str) -> int | Status:
        """The counter to send, or why this client may not wait at the barrier now."""
        return self._client.enter_barrier(barrier_id)

    def leave_barrier(self, barrier_id: str, answer: Answer) -> None:
        """Takes the counter from an answer."""
        self._client.leave_barrier(barrier_id, answer)

    def live_set(self, answer: AliveTasks) -> LiveSet:
        """The answer as a mapping, one for all who got it."""
        live = self.latest_live_set = self._simulation.live_set(answer)
        if self._devices is not None:
            self._devices.note_live(live)
        return live

    def devices(self) -> Devices:
        """The data plane, as this process sees it."""
        if self._devices is None:
            self._devices = self._simulation.devices(self)
        return self._devices

    def wait(self) -> Wait[None]:
        """Something that the data plane will let happen."""
        return Wait("a collective")

    async def watch_tasks(self, version: int) -> TasksWatched:
        """The states of the tasks, as the client asks for them on its own account: not an operation."""
        if not self.is_alive:
            await Wait()
        caller = self._client.caller
        assert caller is not None
        call = self._simulation.new_call()
        wait: Wait[Answer] = Wait("the states of the tasks")
        self._open[call] = _Call(-1, "", wait)
        self._send(call, WatchTasks(caller=caller, version=version))
        answer = await wait
        if isinstance(answer, Status):
            raise ServiceError(answer)
        assert isinstance(answer, TasksWatched)
        return answer

    @property
    def shutdown_timeout_ns(self) -> int:
        """How long the client waits for the answer when it leaves."""
        return seconds(self._simulation.schedule.shutdown_timeout_s + 5.0)

    def left(self) -> None:
        """The process has left the job: its client neither beats, polls nor waits any more."""
        self._client.leave()
        for call, opened in list(self._open.items()):
            if opened.name in _CANCELLED_BY_SHUTDOWN:
                self._queue.after(0, self._receive, self.connection.epoch, call, LEAVING)

    def die(self, reason: Status) -> Wait[None]:
        """The client ends the process, as soon as its program waits: for something that never comes."""
        self._queue.after(0, self.end_process, reason)
        return Wait("its end")

    def sleep(self, delay_ns: int) -> Wait[None]:
        """Lets time pass on the process's own clock."""
        wait: Wait[None] = Wait("its sleep")
        self._queue.after(self._true_delay_ns(delay_ns), wait.happen, None)
        return wait

    def sync(self) -> Wait[None]:
        """Lets a disk write what it has."""
        wait: Wait[None] = Wait("its disk")
        self._queue.after(_DISK_NS, wait.happen, None)
        return wait

    def _true_delay_ns(self, delay_ns: int) -> int:
        if not self._gate.is_open:
            delay_ns = round(delay_ns * self._gate.factor)
        if self._clock.is_true:
            return delay_ns
        now_ns = self._queue.now_ns
        return self._clock.true_ns(self._clock.monotonic_ns(now_ns) + delay_ns) - now_ns

    def clock_ns(self) -> int:
        """The process's wall clock."""
        return self._clock.wall_ns(self._queue.now_ns)

    def log(self, text: str) -> None:
        """Keeps a line."""
        if self.is_alive:
            self._simulation.log(self, text)

    def reach(self, condition: str) -> None:
        """Counts a condition that was reached."""
        if self.is_alive:
            self._simulation.reach(condition)

    def enter_block(self, block: int, live: LiveSet) -> None:
        """Records a block's beginning."""
        if not self.is_alive:
            return
        simulation = self._simulation
        simulation.events.append(
            Enter(
                time_ns=self._queue.now_ns,
                process=self.process,
                lifetime=self.number,
                block=block,
                live=live.incarnation_by_process,
            )
        )
        simulation.happened("inside", self.process, BLOCK)

    def exit_block(self, block: int, outcome: str, failed: tuple[int, ...], message: str) -> None:
        """Records a block's end."""
        if not self.is_alive:
            return
        simulation = self._simulation
        simulation.events.append(
            Exit(
                time_ns=self._queue.now_ns,
                process=self.process,
                lifetime=self.number,
                block=block,
                outcome=outcome,
                failed=failed,
                message=message,
            )
        )
        simulation.happened("after", self.process, BLOCK)


def _story(error: BaseException) -> str:
    """What a program raised, and where: files by their names, so that all machines tell the same."""
    frames = (
        f"  {Path(frame.filename).name}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)[1:]
    )
    return "\n".join([f"{RAISED}{type(error).__name__}: {error}", *frames])
