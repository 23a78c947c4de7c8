"""Writes `docs/fidelity.md` from the saved results: `python -m tests.conformance.report`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.conformance.catalogue import SCENARIOS
from tests.conformance.comparison import baseline
from tests.conformance.known_differences import BEYOND, KNOWN, NOTE, KnownDifference
from tests.conformance.run import FOLDER, arms_of, load
from tests.conformance.scenario import Arm, Scenario

DOCUMENT = Path(__file__).parents[2] / "docs" / "fidelity.md"

_COLUMNS = (
    Arm("stub", "model"),
    Arm("jaxlib", "model"),
    Arm("coord_sim", "real"),
    Arm("coord_sim", "model"),
)

_INTRODUCTION = """\
# Fidelity

Does coordlab's service do what jaxlib's does? Every scenario of the conformance catalogue
(`tests/conformance`) is written once and run on both: by raw gRPC stubs and, where a client can express
it, by jaxlib's C++ client and by ours. What is compared: codes, payloads, answers, messages word for
word (random numbers replaced by names, lists of arbitrary order sorted), and whether a call was answered
at once, after a time-out, or not at all. This page is generated from the runs in `tests/data/fidelity`;
tests repeat them. Whole jobs are compared too, the simulator's with real processes on both services:
[diff](diff.md) has what differs there, each with its reason.

```sh
python -m tests.conformance.run 28             # one scenario on everything, side by side
python -m tests.conformance.run --save         # the whole catalogue; keeps the results
python -m tests.conformance.report             # writes this page
```
"""

_TABLE_INTRODUCTION = """\
The service of the installed jaxlib is the baseline: under raw stubs for raw stubs, under jaxlib's client
for clients. `=` no difference; `D1` a known difference, listed below; an empty cell: these callers
cannot express it. Numbers are those of the design note's catalogue, letters mark variants and additions.
"""


def versions() -> list[str]:
    """The versions of jaxlib with saved results, oldest first."""
    names = [path.stem.removeprefix("jaxlib-") for path in FOLDER.glob("jaxlib-*.json")]
    return sorted(names, key=lambda name: [int(part) for part in name.split(".")])


def document() -> str:
    """The whole page."""
    saved = {version: load(version) for version in versions()}
    reasons = list(dict.fromkeys(entry.reason for entry in KNOWN))
    parts = [_INTRODUCTION, "## Scenarios\n", _TABLE_INTRODUCTION, _table(saved, reasons)]
    parts += ["## Known differences\n", *_known(reasons)]
    parts += ["## Beyond the catalogue\n", BEYOND]
    parts += ["## Between versions of jaxlib\n", _between(saved)]
    parts += ["## Where jaxlib differs from the design note\n", _note()]
    return "\n".join(parts)


def _table(saved: dict[str, Any], reasons: list[str]) -> str:
    heads = [_head(arm) for arm in _COLUMNS]
    rows = [
        "| no. | scenario | " + " | ".join(f"{head}, {v}" for v in saved for head in heads) + " |",
        "| --- | --- |" + " --- |" * (len(saved) * len(heads)),
    ]
    for scenario in SCENARIOS.values():
        cells = [
            _cell(scenario, arm, version, saved[version], reasons)
            for version in saved
            for arm in _COLUMNS
        ]
        mode = " (recoverable)" if scenario.id.endswith("r") else ""
        rows.append(f"| {scenario.id} | {scenario.title}{mode} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _head(arm: Arm) -> str:
    caller = {"stub": "stubs", "jaxlib": "C++ client", "coord_sim": "our client"}[arm.caller]
    return f"{caller} on {'the C++ service' if arm.service == 'real' else 'ours'}"


def _cell(
    scenario: Scenario, arm: Arm, version: str, results: dict[str, Any], reasons: list[str]
) -> str:
    if arm not in arms_of(scenario):
        return ""
    if not results[scenario.id]["differences"][str(arm)]:
        return "="
    found = dict.fromkeys(
        f"D{reasons.index(entry.reason) + 1}"
        for entry in KNOWN
        if entry.concerns(scenario.id, str(arm), version)
    )
    return " ".join(found) or "**unexplained**"


def _known(reasons: list[str]) -> Iterable[str]:
    if not reasons:
        yield "None.\n"
    for number, reason in enumerate(reasons, 1):
        entries = [entry for entry in KNOWN if entry.reason == reason]
        yield f"**D{number}.** {reason}. {_where(entries)}\n"


def _where(entries: list[KnownDifference]) -> str:
    scenarios = list(dict.fromkeys(entry.scenario for entry in entries))
    arms = list(dict.fromkeys(arm for entry in entries for arm in entry.arms))
    only = {entry.jaxlib for entry in entries}
    version = "" if only == {""} else f"; jaxlib {', '.join(sorted(v + 'x' for v in only))} only"
    return f"(Scenarios {', '.join(scenarios)}; {', '.join(arms)}{version}.)"


def _between(saved: dict[str, Any]) -> str:
    lines = []
    *older, newest = saved
    for version in older:
        for scenario in SCENARIOS.values():
            for arm in arms_of(scenario):
                if arm != baseline(arm):
                    continue
                old = saved[version][scenario.id]["observations"][str(arm)]
                new = saved[newest][scenario.id]["observations"][str(arm)]
                lines += [
                    f"- {scenario.id}, {version}: `{line}`" for line in old if line not in new
                ]
    if not lines:
        return "No scenario shows a difference.\n"
    return (
        f"All that the C++ services of other versions do and that of {newest} does not:\n\n"
        + "\n".join(dict.fromkeys(lines))
        + "\n"
    )


def _note() -> str:
    rows = ["| section | the note | jaxlib, measured | scenario |", "| --- | --- | --- | --- |"]
    rows += [f"| {each.section} | {each.note} | {each.jaxlib} | {each.scenario} |" for each in NOTE]
    return "\n".join(rows) + "\n"


def main() -> None:
    """Writes the page."""
    DOCUMENT.write_text(document())


if __name__ == "__main__":
    main()
