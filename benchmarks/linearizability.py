"""How fast histories are checked for linearizability.

Run as `python benchmarks/linearizability.py [--peers FOLDER] [--only WORD] [--repeats N]`. Prints a
table: the set, what is measured, the median and the worst of its histories, and the spread of
repeated runs. `--peers` is a folder with recorded histories of other checkers
(`etcd-register/*.log`, `kv/*.txt`); what needs it is left out, and said so, where there is none.
`--prototypes FOLDER` times the prototypes of the design notes on the same histories in the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import platform
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from checker.formats import read_operations
from checker.operations import Operations, Recorder
from checker.search import check_operations
from checker.search.budget import Budget, resident_bytes
from checker.search.choice import CODE
from checker.search.problem import classify, split
from checker.search.words import words_of
from checker.specification import Specification
from checker.specs import CasRegister, Kv, Register
from tests.random_operations import LongHistory

PEERS = Path(__file__).parents[2] / "shared" / "data" / "peers"


def columns_of(operations: Operations, spec: Specification) -> Any:
    """The columns that compiled searches read."""
    kinds = classify(operations, spec)
    words: dict[int, Any] = {}
    for part in range(len(kinds.keys)):
        used = [kind for kind, its in enumerate(kinds.part) if its == part]
        words.update(words_of(spec, operations.kinds, used, kinds.counts) or {})
    return CODE.load().Columns(operations, kinds.part, len(kinds.keys), words, spec.init())


def median_s(run: Callable[[], object], repeats: int) -> float:
    """The median of the seconds that some runs take."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def shown(seconds: float) -> str:
    """Seconds with a unit that fits."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


class Table:
    """Rows, printed as they come."""

    def __init__(self) -> None:
        print(f"{'set':<46} {'what':<34} {'median':>10} {'worst':>10}  note")

    def row(self, name: str, what: str, times: list[float], note: str = "") -> None:
        """Prints a row: seconds of each history of the set."""
        median, worst = shown(statistics.median(times)), shown(max(times))
        print(f"{name:<46} {what:<34} {median:>10} {worst:>10}  {note}", flush=True)


def etcd(table: Table, peers: Path, repeats: int) -> None:
    """The histories of etcd: from columns, from operations, and from files in plain Python."""
    driver = CODE.load()
    files = sorted((peers / "etcd-register").glob("*.log"))
    spec = CasRegister()
    histories = [read_operations(file) for file in files]
    columns = [columns_of(operations, spec) for operations in histories]
    stop = np.zeros(1, np.int64)
    compiled = driver.counting
    arrays = []
    for each in columns:
        check = driver.CompiledCheck(each, Budget())
        arrays.append(check.object_arrays(0))

    def decide(events: Any, words: Any, values: int) -> object:
        return compiled.decide(
            events, len(events), words, values, 0, 1 << 30, 1 << 40, 1, 1 << 20, 1 << 40, 0, stop
        )

    name = f"etcd-register, {len(files)} histories"
    times = [median_s(lambda a=each: decide(*a), repeats * 3) for each in arrays]
    table.row(name, "columns to verdict, kernel", times, "demand: median 15 us, worst 300 us")
    times = [
        median_s(lambda c=each: driver.CompiledCheck(c, Budget()), repeats * 3) for each in columns
    ]
    table.row(name, "columns to verdict, with the split", times)

    def from_files() -> None:
        for file in files:
            kinds = read_operations(file)
            check_operations(kinds, spec, compiled=False)

    def decided() -> None:
        for file in files:
            search(read_operations(file), spec)

    table.row(name, "all files to verdict, plain Python", [median_s(decided, 3)], "demand: 0.5 s")
    table.row(name, "the same with explanations", [median_s(from_files, 3)])


def search(operations: Operations, spec: Specification) -> bool | None:
    """The verdict alone, in plain Python."""
    from checker.search.object_search import ObjectSearch

    kinds = classify(operations, spec)
    for problem in split(operations, kinds):
        used = [kind for kind, its in enumerate(kinds.part) if its == problem.part]
        words = words_of(spec, operations.kinds, used, kinds.counts)
        searcher = ObjectSearch(problem, spec, operations.kinds, words)
        if not searcher.decide(Budget()).valid:
            return False
    return True


def kv(table: Table, peers: Path, repeats: int) -> None:
    """The store with 50 clients: from recorded operations to the verdict."""
    operations = read_operations(peers / "kv" / "c50-ok.txt")
    spec = Kv()
    times = [median_s(lambda: check_operations(operations, spec, compiled=True), repeats * 3)]
    table.row("kv c50-ok", "operations to verdict", times, "demand: 4 ms")


def registers(table: Table, repeats: int) -> None:
    """Long and very concurrent histories of one register, and many keys."""
    driver = CODE.load()
    for operations, clients, demand in (
        (1_000, 5, ""),
        (100_000, 5, ""),
        (1_000_000, 5, "demand: 0.6 s, 2n < 2.3 n"),
        (2_000_000, 5, ""),
        (1_000, 25, "demand: 2 ms"),
        (10_000, 25, ""),
    ):
        drawn = LongHistory(
            rng=random.Random(operations + clients), operations=operations, clients=clients
        )
        history = drawn.draw()
        columns = columns_of(history, Register())
        gc.collect()
        times = [
            median_s(lambda c=columns: driver.CompiledCheck(c, Budget()), max(3, repeats // 3))
        ]
        check = driver.CompiledCheck(columns, Budget())
        assert check.decision(0).valid
        note = demand
        if operations >= 1_000_000:
            note += f"; {bytes_of(history, columns) / operations:.0f} bytes an operation"
        table.row(
            f"register, {operations:,} operations, {clients} clients",
            "columns to verdict",
            times,
            note,
        )
    history = many_keys(1_000, 1_000_000)
    columns = columns_of(history, Register())
    times = [median_s(lambda: driver.CompiledCheck(columns, Budget()), 3)]
    table.row("1,000 keys, 1,000,000 operations", "columns to verdict", times, "demand: 0.6 s")


def bytes_of(operations: Operations, columns: Any) -> int:
    """Memory of a history and of its columns, and the most that a check holds beside them."""
    held = sum(
        len(column) * column.itemsize
        for column in (
            operations.events, operations.kind, operations.process, operations.invoked_ns,
            operations.ended_ns, operations.line,
        )
    ) + columns.words.nbytes + columns.part.nbytes  # fmt: skip
    before = most = resident_bytes()
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.001):
            most = max(most, resident_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    CODE.load().CompiledCheck(columns, Budget())
    done.set()
    watcher.join()
    return int(held + most - before)


def many_keys(keys: int, operations: int) -> Operations:
    """Reads and writes of many keys by 5 clients a key, valid."""
    rng = random.Random(7)
    recorder = Recorder()
    state: dict[int, int | None] = {}
    for turn in range(operations // 4):
        key = rng.randrange(keys)
        value = rng.randrange(5)
        first = recorder.invoke(4 * turn, "write", value, key=key)
        second = recorder.invoke(4 * turn + 1, "read", key=key)
        third = recorder.invoke(4 * turn + 2, "cas", (value, 1), key=key)
        fourth = recorder.invoke(4 * turn + 3, "read", key=key)
        recorder.ok(second, state.get(key))
        recorder.ok(first)
        recorder.ok(third)
        state[key] = 1
        recorder.ok(fourth, 1)
    return recorder.operations()


def crashed(table: Table, histories: int) -> None:
    """Many operations of unknown outcome on one key."""
    driver = CODE.load()
    for operations, crash, values, demand in (
        (2_000, 0.1, 5, "demand: 3 ms / 120 ms"),
        (10_000, 0.2, 50, "demand: none above 1 s"),
    ):
        for changed in (False, True):
            times, undecided = [], 0
            for seed in range(histories):
                drawn = LongHistory(
                    rng=random.Random(seed), operations=operations, values=values, crash=crash,
                    changed=changed,
                )  # fmt: skip
                columns = columns_of(drawn.draw(), Register())
                began = time.perf_counter()
                decision = driver.CompiledCheck(columns, Budget(timeout_s=60)).decision(0)
                times.append(time.perf_counter() - began)
                undecided += decision.valid is None
            name = f"{operations:,} operations, {crash:.0%} crashed, {values} values"
            what = f"{histories} {'with a changed read' if changed else 'linearizable'}"
            table.row(name, what, times, f"{undecided} undecided; {demand}")


def cold(table: Table, peers: Path) -> None:
    """Fresh processes."""
    for what, code in (
        ("python -c pass", "pass"),
        ("import checker", "import checker"),
        ("check a small file", None),
    ):
        command = [sys.executable, "-c", code] if code else [
            sys.executable, "-m", "coord_sim.cli.main", "check", "--quiet", "--spec", "cas-register",
            str(peers / "etcd-register" / "etcd_002.log"),
        ]  # fmt: skip
        times = [
            median_s(lambda c=command: subprocess.run(c, check=False, capture_output=True), 1)
            for _ in range(7)
        ]
        note = "demand: 0.1 s above an empty one" if what == "import checker" else ""
        table.row("cold start", what, times, note)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, default=PEERS)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    import numba

    print(
        f"{platform.python_implementation()} {platform.python_version()}, numba {numba.__version__}, "
        f"numpy {np.__version__}, {platform.machine()}, load {_load()}"
    )
    has_peers = (options.peers / "etcd-register").is_dir()
    if not has_peers:
        print(f"{options.peers} is not there: the sets etcd-register and kv are left out")
    table = Table()
    for name, run in _sets(table, options, has_peers=has_peers):
        if options.only in name:
            run()


def _sets(
    table: Table, options: argparse.Namespace, *, has_peers: bool
) -> Iterator[tuple[str, Callable[[], None]]]:
    if has_peers:
        yield "etcd", lambda: etcd(table, options.peers, options.repeats)
        yield "kv", lambda: kv(table, options.peers, options.repeats)
        yield "cold", lambda: cold(table, options.peers)
    yield "registers", lambda: registers(table, options.repeats)
    yield "crashed", lambda: crashed(table, options.histories)


def _load() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
    return "unknown"


if __name__ == "__main__":
    main()
