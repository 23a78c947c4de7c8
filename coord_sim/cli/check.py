"""`coordlab check`: verdicts on recorded histories."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from checker import (
    Anomaly,
    History,
    Invalid,
    LiveProcesses,
    MalformedHistory,
    Unknown,
    Valid,
    Verdict,
    check,
)
from checker.clocks import clock_report
from checker.operations import Operations
from checker.printable import printable
from checker.search.budget import MEMORY_BYTES_MAX
from checker.service import ObjectVerdict, check_service
from checker.specification import SetSpecification, Specification
from coord_sim.cli import follow
from coord_sim.cli.errors import CommandError, complain, problem_of
from coord_sim.cli.exit_codes import BAD_INPUT, code_of, worst
from coord_sim.cli.reading import (
    add_limits,
    add_reading,
    memory_bytes_max,
    published_verdict,
    read_history,
    spec_of,
)
from coord_sim.cli.specs import named_spec
from coord_sim.cli.terminal import Progress, plain
from coord_sim.cli.verdict_text import verdict_lines

EXAMPLES = """\
examples:
  coordlab check run.jsonl
      every object of a history of ours: live sets, blocks, keys, barriers
  coordlab check --definition published --failures crash-stop run.jsonl
      live sets by the guide's own definition
  coordlab check --spec cas-register history.edn etcd.log
      a history of Jepsen, Porcupine, etcd or Maelstrom, recognised by what it holds
  coordlab check --spec kv --timeout 60 --json history.edn
      one JSON object per file; unknown after a minute
  coordlab check --follow run.jsonl
      while it is written; ends at the first violation

Exit code: 0 valid, 1 invalid, 2 bad input, 3 unknown; for several files the first of 2, 1, 3, 0.
"""

ROWS_SHOWN_MAX = 30
"""Of the objects that are valid, so many are shown; of the others, all."""


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "check",
        help="check recorded histories",
        description="Checks histories: of the coordination service, object by object; or, with --spec, "
        "of any object.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument(
        "--spec", metavar="NAME", help="what the operations are checked against, e.g. register"
    )
    add_limits(parser)
    add_reading(parser)
    follow.add_follow_options(parser)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object per file")
    output.add_argument("--quiet", action="store_true", help="verdicts without explanations")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Checks every file, whatever becomes of the others."""
    if options.follow:
        if options.timeout or options.memory or options.paranoid:
            raise CommandError("--timeout, --memory and --paranoid do not go with --follow")
        return follow.run(options)
    spec = None if options.spec is None else named_spec(options.spec)
    codes = []
    for path in options.files:
        try:
            if spec is None:
                codes.append(_check_service(options, path))
            else:
                codes.append(_check_operations(options, path, spec))
        except BrokenPipeError:
            raise  # Of our own output: the file is not to blame.
        except (MalformedHistory, OSError) as error:
            codes.append(_report_error(options, path, _with_remedy(error, spec)))
    return worst(codes)


@dataclass(frozen=True, slots=True)
class ServiceOutcome:
    """What became of one file with objects of its own kind."""

    history: History
    rows: Sequence[ObjectVerdict]
    spec: LiveProcesses

    @property
    def live(self) -> Verdict | None:
        """The verdict on the live sets, which is told with the published one beside it."""
        return next((row.verdict for row in self.rows if row.is_live_sets), None)

    @property
    def worst(self) -> Verdict:
        """The verdict on the whole."""
        verdicts = [row.verdict for row in self.rows if row.verdict is not None]
        for kind in (Invalid, Unknown):
            for verdict in verdicts:
                if isinstance(verdict, kind):
                    return verdict
        return self.live or verdicts[0]


def judge_service(
    history: History,
    path: str,
    spec: LiveProcesses,
    *,
    timeout_s: float | None = None,
    memory_bytes_max: int = MEMORY_BYTES_MAX,
    paranoid: bool = False,
) -> ServiceOutcome:
    """Judges a history of ours object by object; progress goes to standard error.

    Args:
      history: What is checked.
      path: Its file, as messages name it.
      spec: Of the live sets.
      timeout_s: As `checker.service.check_service` takes it; so are the others.
      memory_bytes_max: Likewise.
      paranoid: Likewise.

    Raises:
      MalformedHistory: naming the file.
    """
    with Progress(f"checking {printable(path)}") as progress:
        progress.say(f"checking {printable(path)} ({len(history.events):,} events)")
        try:
            rows = check_service(
                history,
                live=spec,
                timeout_s=timeout_s,
                memory_bytes_max=memory_bytes_max,
                paranoid=paranoid,
            )
            if all(row.verdict is None for row in rows):
                # Nothing that is known was called: the lifetimes are looked at all the same.
                rows = (ObjectVerdict("live set", 0, check(history, spec)), *rows)
        except MalformedHistory as error:
            raise MalformedHistory(error.problem, path=path, field=error.field) from None
    return ServiceOutcome(history, rows, spec)


def _check_service(options: argparse.Namespace, path: str) -> int:
    outcome = judge_service(
        read_history(path),
        path,
        spec_of(options),
        timeout_s=options.timeout,
        memory_bytes_max=memory_bytes_max(options),
        paranoid=options.paranoid,
    )
    if options.json:
        print(json.dumps(_service_fields(path, outcome)))
    else:
        for line in service_lines(path, outcome, quiet=options.quiet):
            print(line)
    return code_of(outcome.worst)


def service_lines(path: str, outcome: ServiceOutcome, *, quiet: bool = False) -> Iterator[str]:
    """What became of a file, as `check` says it; with `quiet` the verdict alone."""
    verdict = outcome.worst
    others = [row for row in outcome.rows if not row.is_live_sets]
    if verdict is outcome.live:
        lines = verdict_lines(path, outcome.history, verdict, spec=outcome.spec, quiet=quiet)
    else:
        lines = iter([f"{plain(path)}: {verdict.word}"])
    yield next(lines)
    if quiet:
        return
    if others:
        yield from _table(outcome.rows)
    for row in outcome.rows:
        if row.verdict is not None and row.verdict is not outcome.live:
            if not isinstance(row.verdict, Valid):
                yield f"  {plain(row.object)}: {row.verdict.word}"
                for sentence in row.verdict.explain().splitlines():
                    yield f"    {plain(sentence)}"
    if outcome.live is not None and verdict is not outcome.live:
        if not isinstance(outcome.live, Valid):
            for sentence in outcome.live.explain().splitlines():
                yield f"  {plain(sentence)}"
    for sentence in clock_report(outcome.history):
        yield f"  {plain(sentence)}"
    yield from lines


def _table(rows: Sequence[ObjectVerdict]) -> Iterator[str]:
    """Object, operations, verdict, algorithm and time, a line each."""
    valid = [row for row in rows if isinstance(row.verdict, Valid)]
    shown = [row for row in rows if not isinstance(row.verdict, Valid)] + valid[:ROWS_SHOWN_MAX]
    shown.sort(key=rows.index)
    names = [plain(row.object) for row in shown]
    width = min(48, max(len("object"), *map(len, names)))
    yield f"  {'object':<{width}}  operations  verdict      algorithm                   time"
    for name, row in zip(names, shown, strict=True):
        name = name if len(name) <= width else f"{name[: width - 1]}~"
        time_ms = f"{row.seconds * 1e3:.1f} ms" if row.verdict is not None else ""
        how = row.algorithm if row.verdict is not None else row.reason
        yield (
            f"  {name:<{width}}  {row.operations:>10}  {row.word:<11}  {how:<22} {time_ms:>9}".rstrip()
        )
    if len(valid) > ROWS_SHOWN_MAX:
        operations = sum(row.operations for row in valid[ROWS_SHOWN_MAX:])
        yield f"  and {len(valid) - ROWS_SHOWN_MAX} more objects with {operations} operations: valid"


def _service_fields(path: str, outcome: ServiceOutcome) -> dict[str, object]:
    verdict = outcome.worst
    found: dict[str, object] = {
        "file": path,
        "verdict": verdict.word,
        "definition": outcome.spec.definition,
        "failures": outcome.spec.failures,
        "events": len(outcome.history.events),
        "explanation": verdict.explain(),
        "notes": list(outcome.history.notes),
        "cannot_know": list(outcome.history.header.cannot_know),
        "clocks": clock_report(outcome.history),
        "objects": [
            {
                "object": row.object,
                "operations": row.operations,
                "verdict": row.word,
                "algorithm": row.algorithm,
                "seconds": row.seconds,
                "reason": row.reason,
            }
            for row in outcome.rows
        ],
    }
    if outcome.live is not None:
        published = published_verdict(outcome.history, outcome.live, outcome.spec)
        if published is not None:
            found["published"] = published.word
    if isinstance(verdict, Invalid):
        found["anomaly"] = _anomaly_fields(verdict.anomaly)
    return found


def _check_operations(
    options: argparse.Namespace, path: str, spec: Specification | SetSpecification
) -> int:
    from checker.formats import read_operations

    with Progress(f"reading {printable(path)}") as progress:
        progress.say(f"reading {printable(path)}")
        operations = read_operations(path, independent=options.independent)
        progress.say(f"checking {printable(path)} ({len(operations):,} operations)")
        began_s = time.perf_counter()
        verdict = check(
            operations,
            spec,
            timeout_s=options.timeout,
            memory_bytes_max=memory_bytes_max(options),
            paranoid=options.paranoid,
        )
        seconds = time.perf_counter() - began_s
    for note in operations.notes:
        print(f"coordlab: {printable(path)}: {note}", file=sys.stderr)
    if options.json:
        print(json.dumps(_operations_fields(path, spec, operations, verdict, seconds)))
        return code_of(verdict)
    print(f"{plain(path)}: {verdict.word}")
    if not options.quiet:
        for sentence in verdict.explain().splitlines():
            print(f"  {plain(sentence)}")
        print(f"  {spec.name}, {verdict.algorithm or 'nothing to search'}, {seconds * 1e3:.1f} ms")
    return code_of(verdict)


def _operations_fields(
    path: str,
    spec: Specification | SetSpecification,
    operations: Operations,
    verdict: Verdict,
    seconds: float,
) -> dict[str, object]:
    found: dict[str, object] = {
        "file": path,
        "verdict": verdict.word,
        "spec": spec.name,
        "operations": len(operations),
        "explanation": verdict.explain(),
        "algorithm": verdict.algorithm,
        "seconds": seconds,
        "notes": list(operations.notes),
    }
    if isinstance(verdict, Invalid):
        found["anomaly"] = _anomaly_fields(verdict.anomaly)
    if isinstance(verdict, Unknown):
        found["events_done"] = verdict.events_done
        found["events"] = verdict.events
    return found


def _anomaly_fields(anomaly: Anomaly) -> dict[str, object]:
    """All of an anomaly but its evidence, which holds the whole history."""
    found = {field.name: getattr(anomaly, field.name) for field in fields(anomaly)}
    del found["evidence"]
    found["cycle"] = [
        {"before": r.before, "after": r.after, "because": r.because} for r in anomaly.cycle
    ]
    if anomaly.evidence is not None:
        found["core"] = list(anomaly.evidence.core)
        found["possible_states"] = [possible.state for possible in anomaly.evidence.possible]
    return found


def _with_remedy(
    error: MalformedHistory | OSError, spec: Specification | SetSpecification | None
) -> MalformedHistory | OSError:
    """The error; if the file may be another tool's, with what to do about that."""
    if spec is not None or not isinstance(error, MalformedHistory) or error.path is None:
        return error
    from checker.formats import read_operations

    try:
        read_operations(error.path)
    except (MalformedHistory, OSError):
        return error
    return MalformedHistory(
        "a history of another tool; --spec NAME says what to check it against", path=error.path
    )


def _report_error(options: argparse.Namespace, path: str, error: MalformedHistory | OSError) -> int:
    if options.json:
        print(json.dumps({"file": path, "error": problem_of(error)}))
    complain(problem_of(error))
    return BAD_INPUT
