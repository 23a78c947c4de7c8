"""Writes the generated parts of `docs/mutants.md` and `docs/findings`: tables and pictures.

A part stands between `<!-- NAME: ARGUMENT -->` and `<!-- end -->`. `python -m tests.mutants.pages`
writes all anew; a test holds that nothing would change.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from checker import Invalid, LiveProcesses, check
from checker.formats.from_history import operations_of
from checker.history import History, Leave, read
from checker.live_processes.spec import Definition, FailureModel
from checker.report import report_of, report_of_history
from checker.specs.named_barrier import NamedBarrier
from checker.timeline import timeline_lines
from coord_sim.mutants import CATALOGUE
from tests.mutants.catches import (
    CAMPAIGN_CATCHES,
    EXPLORER_CATCHES,
    RETRYING,
    ByCampaign,
    ByExplorer,
)
from tests.mutants.exploring import explored
from tests.mutants.findings import DATA, FINDINGS, PAGES, ROOT, explanation

MUTANTS_PAGE: Final = ROOT / "docs" / "mutants.md"
_WIDTH: Final = 98
_PART: Final = re.compile(r"<!-- (\w+): ?([\w.-]*) -->\n.*?<!-- end -->", re.DOTALL)
_READINGS: Final[tuple[tuple[Definition, FailureModel], ...]] = (
    ("round", "suspicion"),
    ("published", "suspicion"),
    ("round", "crash-stop"),
    ("published", "crash-stop"),
)


def pages() -> list[Path]:
    """The pages with generated parts."""
    return [MUTANTS_PAGE, *sorted(PAGES.glob("*.md"))]


def renewed(page: Path) -> str:
    """What a page should be."""
    text = page.read_text(encoding="utf-8")

    def part(found: re.Match[str]) -> str:
        name, argument = found[1], found[2]
        body = "\n".join(_PARTS[name](argument))
        return f"<!-- {name}: {argument} -->\n{body}\n<!-- end -->".replace(":  -->", ": -->")

    return _PART.sub(part, text)


def svg(name: str) -> str:
    """The picture of a finding's shortest history."""
    finding = FINDINGS[name]
    history = read(finding.shortest_file)
    verdict = check(history, LiveProcesses(failures=finding.failures))
    if isinstance(verdict, Invalid):
        return report_of_history(history, verdict, name=name).svg()
    calls = History(history.header, [e for e in history.events if not isinstance(e, Leave)])
    operations, barrier = operations_of(calls), NamedBarrier(history.header.participants)
    return report_of(operations, check(operations, barrier), barrier).svg()


# --- tables ------------------------------------------------------------------------------------------


def _mutants(side: str) -> Iterator[str]:
    yield "| name | what is wrong | caught by | within |"
    yield "| --- | --- | --- | --- |"
    for name, mutant in CATALOGUE.items():
        if mutant.side.replace(" ", "-") == side and not mutant.switch:
            yield f"| `{name}` | {mutant.wrong} | {mutant.breaks} | {_within(name)} |"


def _within(name: str) -> str:
    ways = [CAMPAIGN_CATCHES.get(name), EXPLORER_CATCHES.get(name)]
    return "; ".join(_in_words(way) for way in ways if way is not None)


def _in_words(way: ByCampaign | ByExplorer) -> str:
    if isinstance(way, ByCampaign):
        return f"{way.seeds} seeds of `{way.campaign}`"
    return "the explorer's bounds"


def _deviations(_: str) -> Iterator[str]:
    yield "| switch | mutant | " + " | ".join(", ".join(reading) for reading in _READINGS) + " |"
    yield "| --- " * (2 + len(_READINGS)) + "|"
    for name, mutant in CATALOGUE.items():
        if mutant.switch:
            assert mutant.service is not None
            cells = [f"`{mutant.switch}`", f"`{name}`"]
            for definition, failures in _READINGS:
                suspicions = int(failures == "suspicion")
                bounds = replace(RETRYING, suspicions=suspicions)
                found = explored(
                    mutant.service, bounds, definition=definition, failures=failures
                ).violation
                cells.append("no" if found is None else f"**yes**, {len(found.steps)} steps")
            yield f"| {' | '.join(cells)} |"


# --- pictures ----------------------------------------------------------------------------------------


def _picture(file: str) -> Iterator[str]:
    finding = next(
        each for name, each in FINDINGS.items() if file.removesuffix(".jsonl").startswith(name)
    )
    history = read(DATA / file)
    yield "```text"
    yield from _lanes(history, finding.failures)
    for paragraph in explanation(history, finding.failures).splitlines():
        yield from textwrap.wrap(paragraph, _WIDTH, subsequent_indent="    ") or [""]
    yield "```"


def _lanes(history: History, failures: FailureModel) -> Iterator[str]:
    verdict = check(history, LiveProcesses(failures=failures))
    shown = verdict if isinstance(verdict, Invalid) else None
    lines = timeline_lines(history, shown, width=_WIDTH)
    yield from (line.rstrip() for line in itertools.takewhile(bool, lines))
    yield ""


_PARTS: Final[Mapping[str, Callable[[str], Iterator[str]]]] = {
    "mutants": _mutants,
    "deviations": _deviations,
    "picture": _picture,
}


def main() -> None:
    """Writes all pages and pictures anew."""
    for page in pages():
        page.write_text(renewed(page), encoding="utf-8")
    for name in FINDINGS:
        (PAGES / f"{name}.svg").write_text(svg(name), encoding="utf-8")


if __name__ == "__main__":
    main()
