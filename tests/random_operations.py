"""Random histories of any object: linearizable by construction, nearly so, and wild.

The objects here are toys of their own (`TOYS`), written from the descriptions of the specifications and
not by their `step`, so that a specification that disagrees with its description is found out. Nothing
here decides whether a drawn history is linearizable, except that histories of the style `valid` are.
"""

from __future__ import annotations

import base64
import heapq
import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from checker.operations import Failed, Operations, Recorder, frozen
from checker.specs.service_store import NO_NUMBER

Style: TypeAlias = Literal["valid", "nearly", "wild"]
STYLES: tuple[Style, ...] = get_args(Style)

OPERATIONS_MIN, OPERATIONS_MAX = 2, 10
PROCESSES_MAX = 6


class Call(NamedTuple):
    """What is asked of an object."""

    function: str
    argument: Any = None
    key: str | None = None


class _Blocked:
    """The type of `BLOCKED`."""


BLOCKED = _Blocked()
"""In place of a result: the call cannot act yet. Its caller may lose patience."""


class Toy(NamedTuple):
    """An object to play with.

    Attributes:
      initial: Its state at the beginning.
      call: Draws a call.
      perform: The state after a call, and the result, or `BLOCKED`.
      guess: Draws a result that the call might have, in some state or in none.
    """

    initial: Any
    call: Callable[[random.Random], Call]
    perform: Callable[[Any, Call], tuple[Any, Hashable]]
    guess: Callable[[random.Random, Call], Hashable]


@dataclass
class _Pending:
    index: int
    call: Call
    process: int
    has_acted: bool = False
    result: Hashable = None


@dataclass
class _Run:
    """A random execution, one event at a time."""

    rng: random.Random
    toy: Toy
    style: Style
    crash: float
    fail: float
    length: int
    idle: list[int]
    recorder: Recorder = field(default_factory=Recorder)
    waiting: list[_Pending] = field(default_factory=list)
    crashed: list[_Pending] = field(default_factory=list)

    def run(self) -> Operations:
        state = self.toy.initial
        next_process = len(self.idle)
        changed = self.rng.randrange(self.length) if self.style == "nearly" else -1
        while len(self.recorder) < self.length or self.waiting:
            may_call = self.idle and len(self.recorder) < self.length
            lost = [each for each in self.crashed if not each.has_acted]
            choice = self.rng.random()
            if lost and choice < 0.1:
                # An operation whose caller has long given up takes effect at last.
                each = self.rng.choice(lost)
                each.has_acted = True
                state, _ = self.toy.perform(state, each.call)
            elif may_call and (choice < 0.5 or not self.waiting):
                process = self.idle.pop(self.rng.randrange(len(self.idle)))
                call = self.toy.call(self.rng)
                index = self.recorder.invoke(process, call.function, call.argument, key=call.key)
                self.waiting.append(_Pending(index, call, process))
            elif self.waiting:
                each = self.rng.choice(self.waiting)
                is_stuck = each.result is BLOCKED and self.rng.random() < 0.2
                if is_stuck or self.rng.random() < self.crash:
                    # The process is never heard of again; another one takes its place.
                    self.waiting.remove(each)
                    self.crashed.append(each)
                    self.recorder.info(each.index)
                    self.idle.append(next_process)
                    next_process += 1
                elif each.has_acted:
                    self.waiting.remove(each)
                    self.idle.append(each.process)
                    self._respond(each, is_changed=each.index == changed)
                elif self.rng.random() < self.fail:
                    self.waiting.remove(each)
                    self.idle.append(each.process)
                    self.recorder.fail(each.index, "refused")
                else:
                    state, each.result = self.toy.perform(state, each.call)
                    each.has_acted = each.result is not BLOCKED
        return self.recorder.operations()

    def _respond(self, each: _Pending, *, is_changed: bool) -> None:
        result = each.result
        if is_changed or self.style == "wild":
            result = self.toy.guess(self.rng, each.call)
        if isinstance(result, Failed):
            self.recorder.fail(each.index, result.error)
        else:
            self.recorder.ok(each.index, result)


def random_operations(
    rng: random.Random,
    name: str,
    *,
    style: Style | None = None,
    operations_max: int = OPERATIONS_MAX,
    processes_max: int = PROCESSES_MAX,
) -> Operations:
    """A small history of an object, which depends on the state of `rng` and the arguments alone.

    Args:
      rng: Where all choices come from.
      name: Of the object, in `TOYS`.
      style: Drawn if left out.
      operations_max: Largest number of operations.
      processes_max: Largest number of processes that call at the same time.
    """
    toy = TOYS[name]
    run = _Run(
        rng=rng,
        toy=toy,
        style=style if style is not None else rng.choice(STYLES),
        crash=rng.choice((0.0, 0.05, 0.25)),
        fail=rng.choice((0.0, 0.1)),
        length=rng.randint(OPERATIONS_MIN, operations_max),
        idle=list(range(rng.randint(1, processes_max))),
    )
    return run.run()


# --- the objects -------------------------------------------------------------------------------------

_VALUES = 3


def _value(rng: random.Random) -> int:
    return rng.randrange(_VALUES)


def _maybe(rng: random.Random) -> int | None:
    value = rng.randrange(-1, _VALUES)
    return value if value >= 0 else None


def _some(rng: random.Random) -> tuple[int, ...]:
    return tuple(_value(rng) for _ in range(rng.randrange(4)))


def _register_call(rng: random.Random) -> Call:
    function = rng.choice(("read", "read", "write", "cas"))
    if function == "cas":
        return Call(function, (_maybe(rng), _value(rng)))
    return Call(function, _value(rng) if function == "write" else None)


def _register(state: Any, call: Call) -> tuple[Any, Hashable]:
    if call.function == "read":
        return state, state
    if call.function == "write":
        return call.argument, None
    old, new = call.argument
    return (new, True) if state == old else (state, False)


def _register_guess(rng: random.Random, call: Call) -> Hashable:
    guesses = {"read": _maybe(rng), "write": None, "cas": rng.random() < 0.5}
    return guesses[call.function]


def _failing_register(state: Any, call: Call) -> tuple[Any, Hashable]:
    after, result = _register(state, call)
    return after, Failed("mismatch") if result is False else result


def _txn_call(rng: random.Random) -> Call:
    accesses: list[tuple[Hashable, ...]] = []
    for _ in range(rng.randint(1, 3)):
        key = rng.choice("xy")
        if rng.random() < 0.5:
            accesses.append((rng.choice(("read", "r")), key, None))
        else:
            accesses.append((rng.choice(("write", "w")), key, _value(rng)))
    return Call("txn", tuple(accesses))


def _txn(state: dict[str, int], call: Call) -> tuple[dict[str, int], Hashable]:
    state = dict(state)
    result = []
    for function, key, value in call.argument:
        if function[0] == "w":
            state[key] = value
        result.append((function, key, state.get(key, 0)))
    return state, tuple(result)


def _txn_guess(rng: random.Random, call: Call) -> Hashable:
    return tuple(
        (function, key, value if function[0] == "w" else _value(rng))
        for function, key, value in call.argument
    )


def _mutex_call(rng: random.Random) -> Call:
    return Call(rng.choice(("acquire", "release")))


def _mutex(state: bool, call: Call) -> tuple[bool, Hashable]:
    if (call.function == "acquire") == state:
        return state, Failed("held" if state else "free")
    return not state, None


def _mutex_guess(rng: random.Random, _: Call) -> Hashable:
    return None if rng.random() < 0.7 else Failed("refused")


def _counter_call(rng: random.Random) -> Call:
    function = rng.choice(("read", "read", "add", "inc", "dec"))
    return Call(function, rng.choice((-1, 0, 2)) if function == "add" else None)


def _counter(state: int, call: Call) -> tuple[int, Hashable]:
    if call.function == "read":
        return state, state
    return state + {"add": call.argument, "inc": 1, "dec": -1}[call.function], None


def _counter_guess(rng: random.Random, call: Call) -> Hashable:
    return rng.randint(-2, 3) if call.function == "read" else None


def _set_call(rng: random.Random) -> Call:
    function = rng.choice(("add", "add", "remove", "contains", "read"))
    return Call(function, None if function == "read" else _value(rng))


def _set(state: list[int], call: Call) -> tuple[list[int], Hashable]:
    if call.function == "read":
        return state, tuple(reversed(state))
    if call.function == "contains":
        return state, call.argument in state
    without = [element for element in state if element != call.argument]
    return ([*without, call.argument] if call.function == "add" else without), None


def _set_guess(rng: random.Random, call: Call) -> Hashable:
    if call.function == "read":
        return frozenset(_some(rng))
    return rng.random() < 0.5 if call.function == "contains" else None


def _container(put: str, take: str, end: int) -> Toy:
    def call(rng: random.Random) -> Call:
        return Call(put, _value(rng)) if rng.random() < 0.5 else Call(take)

    def perform(state: list[int], call: Call) -> tuple[list[int], Hashable]:
        state = list(state)
        if call.function == put:
            return [*state, call.argument], None
        return (state, state.pop(end)) if state else (state, None)

    def guess(rng: random.Random, call: Call) -> Hashable:
        return None if call.function == put else _maybe(rng)

    return Toy([], call, perform, guess)


def _log_call(rng: random.Random) -> Call:
    return Call("append", _value(rng)) if rng.random() < 0.5 else Call(rng.choice(("read", "r")))


def _log(state: tuple[int, ...], call: Call) -> tuple[tuple[int, ...], Hashable]:
    return ((*state, call.argument), None) if call.function == "append" else (state, state)


def _log_guess(rng: random.Random, call: Call) -> Hashable:
    return None if call.function == "append" else _some(rng)


def _kv_call(rng: random.Random) -> Call:
    function = rng.choice(("get", "get", "put", "append"))
    key = rng.choice(("0", "0", "1"))
    return Call(function, None if function == "get" else rng.choice(("", "a", "b")), key)


def _kv(state: dict[str, str], call: Call) -> tuple[dict[str, str], Hashable]:
    assert call.key is not None
    value = state.get(call.key, "")
    if call.function == "get":
        return state, value
    return {
        **state,
        call.key: call.argument if call.function == "put" else value + call.argument,
    }, None


def _kv_guess(rng: random.Random, call: Call) -> Hashable:
    return rng.choice(("", "a", "b", "aa", "ab")) if call.function == "get" else None


def _store_call(rng: random.Random, keys: str) -> Call:
    functions = ["set", "set", "get", "try_get", "try_get", "delete", "increment", "increment"]
    if len(keys) > 1:
        functions += ["dir_get", "dir_get", "dir_get"]
    function = f"key_value_{rng.choice(functions)}"
    key = rng.choice(keys.split())
    argument: Any = None
    if function.endswith("_set"):
        value = rng.choice((*_TEXTS, {"base64": rng.choice(("MQ==", "/w=="))}))
        argument = {"value": value, "allow_overwrite": rng.random() < 0.6}
    elif function.endswith("increment"):
        argument = {"increment": rng.choice((0, 1, -1, 2**31 - 1))}
    elif function.endswith("value_get") and rng.random() < 0.5:
        argument = {"timeout_ms": 100}
    return Call(function, argument, rng.choice((key, f"/{key}//")))


_TEXTS = ({"text": "1"}, {"text": " +01 "}, {"text": "x"}, {"text": ""})


def _store(state: dict[str, bytes], call: Call) -> tuple[dict[str, bytes], Hashable]:
    assert call.key is not None
    key = "/".join(filter(None, call.key.split("/")))
    now = state.get(key)
    match call.function.removeprefix("key_value_"):
        case "set":
            if now is not None and not call.argument["allow_overwrite"]:
                return state, Failed("ALREADY_EXISTS")
            value = call.argument["value"]
            raw = base64.b64decode(value["base64"]) if "base64" in value else value["text"].encode()
            return {**state, key: raw}, None
        case "get":
            return state, BLOCKED if now is None else _shown(now)
        case "try_get":
            return state, Failed("NOT_FOUND") if now is None else _shown(now)
        case "dir_get":
            inside = sorted(each for each in state if each.startswith(key + "/"))
            return state, tuple((each, _shown(state[each])) for each in inside)
        case "delete":
            left = {each for each in state if each != key and not each.startswith(key + "/")}
            return {each: state[each] for each in state if each in left}, None
    try:
        total = int(now or b"0") + call.argument["increment"] if now != b"" else None
    except ValueError:
        total = None
    if total is None or abs(int(now or b"0")) >= 2**31:
        return state, Failed(NO_NUMBER)
    return {**state, key: str(total).encode()}, total


def _shown(value: bytes) -> Hashable:
    try:
        return frozen({"text": value.decode()})
    except UnicodeDecodeError:
        return frozen({"base64": base64.b64encode(value).decode()})


def _store_guess(rng: random.Random, call: Call) -> Hashable:
    text = frozen(rng.choice(_TEXTS))
    match call.function.removeprefix("key_value_"):
        case "set":
            return rng.choice((None, Failed("ALREADY_EXISTS")))
        case "get":
            return text
        case "try_get":
            return rng.choice((text, Failed("NOT_FOUND")))
        case "dir_get":
            return rng.choice(((), (("a/b", text),), (("a/b", text), ("a/c", text))))
        case "delete":
            return None
    return rng.choice((0, 1, 2, Failed(NO_NUMBER)))


TOYS: dict[str, Toy] = {
    "register": Toy(None, _register_call, _register, _register_guess),
    "cas-register": Toy(None, _register_call, _failing_register, _register_guess),
    "multi-register": Toy({}, _txn_call, _txn, _txn_guess),
    "mutex": Toy(False, _mutex_call, _mutex, _mutex_guess),
    "counter": Toy(0, _counter_call, _counter, _counter_guess),
    "set": Toy([], _set_call, _set, _set_guess),
    "queue": _container("enqueue", "dequeue", 0),
    "stack": _container("push", "pop", -1),
    "append-log": Toy((), _log_call, _log, _log_guess),
    "kv": Toy({}, _kv_call, _kv, _kv_guess),
    "service-key": Toy({}, partial(_store_call, keys="k"), _store, _store_guess),
    "service-store": Toy({}, partial(_store_call, keys="a a/b a/c"), _store, _store_guess),
}
"""By the name of the specification that they satisfy."""

# --- long histories ----------------------------------------------------------------------------------


@dataclass(kw_only=True)
class LongHistory:
    """A long history of one `cas-register`: clients call, wait, think and call again.

    Attributes:
      rng: Where all choices come from.
      operations: How many.
      clients: How many call at the same time. A client that crashes is replaced by another.
      values: How many different ones are written.
      crash: Share of the writes and `cas` whose outcome nobody learns.
      cas: Share of `cas` among the operations; half of them are reads, the rest writes. A `cas` that
        finds another value returns False.
      unique: Whether each write and `cas` has a value of its own instead, and a `cas` asks for a value
        that was there when it was called.
      changed: Whether one read, in the last tenth if there is one, returns another value, so that the
        history is most likely not linearizable. Else it is linearizable.
    """

    rng: random.Random
    operations: int
    clients: int = 5
    values: int = 5
    crash: float = 0.0
    cas: float = 0.2
    unique: bool = False
    changed: bool = False
    _fresh: int = field(init=False, default=0)

    def draw(self) -> Operations:
        """The history."""
        functions = [self._function() for _ in range(self.operations)]
        reads = [each for each, function in enumerate(functions) if function == "read"]
        late = self.operations * 9 // 10
        wrong = next((each for each in reads if each >= late), reads[-1] if reads else -1)
        recorder = Recorder(clock="virtual", source="long history")
        number: dict[int, int] = {}
        calls: dict[int, Call] = {}
        results: dict[int, Hashable] = {}
        state: int | None = None
        for time, what, index, client in self._moments(functions):
            time_ns = int(time * 1e6)
            if what == _CALL:
                call = calls[index] = self._call(functions[index], state)
                number[index] = recorder.invoke(client, *call[:2], time_ns=time_ns)
            elif what == _ACT:
                state, results[index] = _register(state, calls.pop(index))
            elif what == _CRASH:
                recorder.info(number.pop(index), time_ns=time_ns)
            else:
                result = results.pop(index)
                if self.changed and index == wrong:
                    result = self._other_than(result)
                recorder.ok(number.pop(index), result, time_ns=time_ns)
        return recorder.operations()

    def _function(self) -> str:
        draw = self.rng.random()
        return "read" if draw < 0.5 else "cas" if draw < 0.5 + self.cas else "write"

    def _moments(self, functions: list[str]) -> list[tuple[float, int, int, int]]:
        """`(time, what, operation, client)`: when each is called, acts, and ends."""
        rng = self.rng
        free = [(rng.expovariate(1), client) for client in range(self.clients)]
        heapq.heapify(free)
        newcomer = self.clients
        moments = []
        for index, function in enumerate(functions):
            called, client = heapq.heappop(free)
            ended = called + rng.expovariate(1) + 0.01
            crashes = function != "read" and rng.random() < self.crash
            moments.append((called, _CALL, index, client))
            moments.append((called + (ended - called) * rng.random(), _ACT, index, client))
            moments.append((ended, _CRASH if crashes else _END, index, client))
            if crashes:
                client, newcomer = newcomer, newcomer + 1
            heapq.heappush(free, (ended + 0.3 * rng.expovariate(1), client))
        moments.sort()
        return moments

    def _call(self, function: str, state: int | None) -> Call:
        if function == "read":
            return Call(function)
        if function == "write":
            return Call(function, self._value())
        is_likely = state is not None and (self.unique or self.rng.random() < 0.5)
        return Call(function, (state if is_likely else self._any_value(), self._value()))

    def _value(self) -> int:
        self._fresh += 1
        return self._fresh if self.unique else self._any_value()

    def _any_value(self) -> int:
        return self.rng.randrange(self.values)

    def _other_than(self, result: Hashable) -> int:
        if self.unique or not isinstance(result, int):
            return -1
        return (result + self.rng.randrange(1, self.values)) % self.values


_CALL, _ACT, _END, _CRASH = range(4)
