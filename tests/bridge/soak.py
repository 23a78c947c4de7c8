"""Many random scenarios on real processes; nothing may be left behind, lost, or without an explanation.

`python -m tests.bridge.soak --runs 200 --service real [--semantics published] [--jobs 4] [--seed S]`

After each run it looks for processes of the run that still live, ports that they or the launcher still
listen on, descriptors that the launcher did not close, events that a process had recorded and the
history lacks, and calls that a program says were answered and the history has no answer of. What is
invalid must be of a kind that `docs/findings` explains, with faults that can bring it about. Exit code 1
if anything is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from checker.history import Enter, Event, Exit, Fail, Header, History, Info, Invoke, Ok
from checker.history import Fault as FaultEvent
from coord_sim.campaign.judgement import INVALID, Judgement
from coord_sim.cli.hunt import HuntJudge
from coord_sim.faults import Crash, Degrade, Partition, Pause, Reset, Restart
from coord_sim.sim.case import Case
from coord_sim.sim.run import Run
from jax_bridge.hunt import Trial, Where, draw_case, try_case
from jax_bridge.hunt.trying import NOT_RUN
from jax_bridge.hunt.workers import WorkerLost, Workers
from jax_bridge.parts import merged
from tests.bridge.remains import MARKER, held_sockets, listening, marked, open_files, sockets_of

GHOST_ENTRY = "ghost-entry"
DEAD_SERVED = "dead-served"
REPLACED_SERVED = "replaced-served"
GONE_TIMEOUT_S = 10.0
"""What was killed may take a moment to be gone."""

WRITES = 12
"""Of each start of `steady_writes`, as the hunt draws it."""

LOST = "an acknowledged event is lost"


@dataclass(frozen=True, slots=True)
class Soaked:
    """A run, and what is wrong beside its verdict."""

    trial: Trial
    page: str
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SoakJudge:
    """The hunt's judge, which also holds what programs say against the history."""

    def __call__(self, run: Run) -> Judgement:
        lost = "; ".join(_unrecorded(run))
        return Judgement(INVALID, LOST, lost) if lost else HuntJudge()(run)


def _unrecorded(run: Run) -> Iterable[str]:
    """What programs say was answered and the history has no answer of.

    They say so after the answer was recorded, so that a kill at any moment leaves at least as many
    answers as words.
    """
    ended: Counter[tuple[str, str]] = Counter()
    operations: dict[int, str] = {}
    for event in run.history.events:
        match event:
            case Invoke():
                operations[event.id] = event.operation
            case Ok() | Fail() | Info():
                ended[operations[event.id], type(event).__name__] += 1
            case Exit():
                ended["block", event.outcome] += 1
            case Enter():
                ended["block", "entered"] += 1
            case _:
                pass
    refused = sum("refused" not in line.text and "wrote" not in line.text for line in run.log)
    is_barriers = run.reached.get("a barrier of all", 0) or ended["barrier", "Fail"]
    for what, said, seen in (
        ("barriers passed", run.reached.get("a barrier of all", 0), ended["barrier", "Ok"]),
        (
            "barriers failed",
            refused if is_barriers else 0,
            ended["barrier", "Fail"] + ended["barrier", "Info"],
        ),
        ("failed blocks", run.reached.get("a failure in a block", 0), ended["block", "failed"]),
    ):
        if said > seen:
            yield f"{what}: programs say {said}, the history has {seen}"
    wrote = sum(line.text == "wrote all" for line in run.log)
    seen = ended["key_value_set", "Ok"]
    if wrote * WRITES > seen:
        yield f"writes: {wrote} starts say they wrote {WRITES} each, the history has {seen}"


def page_of(kind: str, case: Case) -> str:
    """The page of `docs/findings`, or of `hunt` there, that explains a failure; empty if none does."""
    schedule = case.schedule
    stalls = any(isinstance(f, Pause | Partition | Degrade | Reset) for f in schedule.faults)
    restarts = any(isinstance(f, Restart) for f in schedule.faults)
    deaths = any(isinstance(f, Crash) for f in schedule.faults)
    if schedule.semantics != "shipped" or not kind.startswith("live set"):
        return ""
    if "(a ghost entry)" in kind:
        return GHOST_ENTRY if restarts or schedule.places else ""
    if schedule.places:
        return REPLACED_SERVED
    if "told-otherwise" in kind and restarts and deaths:
        return GHOST_ENTRY
    return DEAD_SERVED if stalls or schedule.client_heartbeat_timeout_s else ""


@dataclass(frozen=True, slots=True)
class Soak:
    """What a worker does with a seed."""

    service: str
    semantics: str
    folder: Path

    def __call__(self, seed: int) -> Soaked:
        case = draw_case(seed, semantics=self.semantics)
        mark = uuid.uuid4().hex
        os.environ[MARKER] = mark
        addresses: list[str] = []
        lost: list[str] = []
        files = open_files()
        where = Where(self.service, SoakJudge(), self.folder, _Addresses(addresses))
        with mock.patch("jax_bridge.launcher.merged", _Counting(lost)):
            trial = try_case(case, f"seed-{seed}", where)
        problems = [*lost, *_left_behind(mark, addresses)]
        if open_files() > files:
            problems.append(f"{open_files() - files} descriptors are still open")
        page = ""
        if trial.word == INVALID:
            page = page_of(trial.kind, case)
            if not page:
                problems.append(f"without an explanation: {trial.kind}")
        elif trial.word == NOT_RUN:
            problems.append(f"{trial.word}: {trial.kind}: {trial.explanation}")
        if not problems:
            trial.clear()
        return Soaked(trial, page, tuple(problems))


@dataclass(frozen=True, slots=True)
class _Addresses:
    """Listens for the addresses of services."""

    found: list[str]

    def __call__(self, line: str) -> None:
        _, is_address, address = line.partition(" service at ")
        if is_address:
            self.found.append(address)


class _Counting:
    """Merges, and counts whether all that was recorded is in the history."""

    def __init__(self, lost: list[str]) -> None:
        self._lost = lost

    def __call__(
        self,
        header: Header,
        parts: Mapping[int, Sequence[Path]],
        seen: Iterable[Event],
        faults: tuple[FaultEvent, ...],
        *,
        began_ns: int,
    ) -> History:
        seen = list(seen)
        recorded = len(seen) + sum(_events_in(path) for paths in parts.values() for path in paths)
        history = merged(header, parts, seen, faults, began_ns=began_ns)
        if recorded != len(history.events):
            self._lost.append(f"{recorded} events recorded, {len(history.events)} in the history")
        return history


def _events_in(path: Path) -> int:
    """Whole lines of a recording, without its header and what is no event."""
    if not path.exists():
        return 0
    whole = path.read_bytes().rpartition(b"\n")[0].splitlines()[1:]
    return sum(json.loads(line)["type"] not in ("answer", "fault") for line in whole)


def _left_behind(mark: str, addresses: list[str]) -> Iterable[str]:
    until_s = time.monotonic() + GONE_TIMEOUT_S
    while (alive := marked(mark)) and time.monotonic() < until_s:
        time.sleep(0.1)
    if alive:
        yield f"processes {alive} still live"
    ports = listening()
    mine = sockets_of("self") | {inode for pid in alive for inode in sockets_of(pid)}
    for port, inode in ports.items():
        if inode in mine:
            yield f"port {port} is still listened on"
    others = held_sockets()
    for address in addresses:
        inode = ports.get(int(address.rpartition(":")[2]), "")
        if inode and inode not in others:
            yield f"{address} is still listened on, and by nobody"


def main() -> int:
    """Runs them and reports."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200, metavar="N")
    parser.add_argument("--service", choices=("real", "model"), default="real")
    parser.add_argument("--semantics", choices=("shipped", "published"), default="shipped")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--jobs", type=int, default=4, metavar="J")
    parser.add_argument("--minutes", type=float, metavar="M", help="begin no run after so long")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what is wrong there")
    options = parser.parse_args()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="coordlab-") as temporary:
        folder = (options.keep or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        soak = Soak(options.service, options.semantics, folder)
        seeds = list(range(options.seed, options.seed + options.runs))
        words: Counter[str] = Counter()
        bad = 0
        with Workers[int, Soaked](options.jobs, soak) as workers:
            while True:
                is_over = options.minutes and time.monotonic() - began_s > 60 * options.minutes
                while workers.idle and seeds and not is_over:
                    workers.give(seeds.pop(0))
                if workers.idle == workers.count:
                    break
                for seed, soaked in workers.wait(1.0):
                    bad += bool(_told(seed, soaked, words))
    took_s = time.monotonic() - began_s
    for word, count in sorted(words.items()):
        print(f"  {count:4} {word}")
    print(
        f"{words.total()} runs on the {options.service} service ({options.semantics}) in {took_s:.0f} s:"
        f" {bad} not as they should be"
    )
    return 1 if bad or not words else 0


def _told(seed: int, soaked: Soaked | WorkerLost, words: Counter[str]) -> bool:
    """Counts and tells what came of a seed; whether it is not as it should be."""
    if isinstance(soaked, WorkerLost):
        words["worker died"] += 1
        print(f"seed {seed}: {soaked}", flush=True)
        return True
    trial = soaked.trial
    why = f": {trial.kind}" if trial.kind else ""
    if trial.word == INVALID:
        why += f" ({soaked.page or 'no page'})"
    words[trial.word + why] += 1
    for problem in soaked.problems:
        print(f"seed {seed}: {problem}", flush=True)
        print(f"  {trial.case.schedule!r}", flush=True)
        for line in trial.explanation.splitlines()[:12]:
            print(f"  {line}", flush=True)
    return bool(soaked.problems)


if __name__ == "__main__":
    sys.exit(main())
