"""What is wrong with the service as shipped: found again, played again, and written down as it is."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from checker.history import Event, History, Invoke, Ok, read
from coord_sim.core.semantics import PUBLISHED
from coord_sim.core.service import CoordinationService
from coord_sim.mutants import CATALOGUE
from coord_sim.mutants.catalogue import NOTHING
from tests.conformance.report import versions
from tests.mutants.catches import HARMLESS, RETRYING
from tests.mutants.exploring import explored
from tests.mutants.findings import DATA, FINDINGS, PAGES, explanation, play_all
from tests.mutants.pages import MUTANTS_PAGE, pages, renewed, svg
from tests.repo.test_docs import anchors, links

AGAIN = "run: python -m tests.mutants.findings and python -m tests.mutants.pages"


@pytest.mark.parametrize("name", FINDINGS)
def test_what_is_found_again_is_as_short_as_the_history_that_is_kept(name: str) -> None:
    finding = FINDINGS[name]
    kept, found = read(finding.shortest_file), finding.shortest()
    assert len(found.events) == len(kept.events), AGAIN
    for history in (kept, found):
        assert finding.words in explanation(history, finding.failures)


@pytest.fixture(scope="module")
def played() -> dict[str, History]:
    """All findings, played on the service of the installed jaxlib."""
    return asyncio.run(play_all())


@pytest.mark.jax
@pytest.mark.parametrize("name", FINDINGS)
def test_the_service_of_jaxlib_shows_it_as_in_the_recording_that_is_kept(
    name: str, played: dict[str, History]
) -> None:
    finding = FINDINGS[name]
    kept = read(finding.real_file(version("jaxlib")))
    for history in (kept, played[name]):
        assert finding.words in explanation(history, finding.failures)
    assert shape(played[name]) == shape(kept), AGAIN


def shape(history: History) -> Counter[tuple[object, ...]]:
    """What happened, whenever that was."""
    return Counter(
        (type(event).__name__, event.process, event.lifetime, *_said(event))
        for event in history.events
    )


def _said(event: Event) -> tuple[object, ...]:
    if isinstance(event, Invoke):
        return (event.operation,)
    if isinstance(event, Ok) and isinstance(event.result, Mapping):
        return tuple(sorted(event.result.items()))
    return ()


def test_each_finding_blames_a_deviation_that_is_known_to_break_something() -> None:
    blamed = {finding.service.switch for finding in FINDINGS.values()}
    assert blamed == {m.switch for m in CATALOGUE.values() if m.switch and m.breaks != NOTHING}


def test_with_the_four_deviations_corrected_that_break_live_sets_nothing_is_found() -> None:
    """The other three stay as shipped: what is corrected is enough."""
    kept = {CATALOGUE[name].switch: True for name in (*HARMLESS, "forgets-who-passed")}
    semantics = replace(PUBLISHED, name="shipped, corrected", **kept)
    found = explored(CoordinationService, RETRYING, semantics=semantics)
    assert found.is_exhausted
    assert found.violation is None


# --- the pages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_generated_parts_of_a_page_are_what_is_generated(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == renewed(page), "run: python -m tests.mutants.pages"


@pytest.mark.parametrize("name", FINDINGS)
def test_the_picture_of_a_finding_is_drawn_from_its_history(name: str) -> None:
    assert (PAGES / f"{name}.svg").read_text(encoding="utf-8") == svg(name)


def test_there_is_a_page_a_picture_and_recordings_of_all_jaxlibs_for_each_finding() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == {*FINDINGS, "README"}
    kept = {finding.shortest_file for finding in FINDINGS.values()}
    kept |= {f.real_file(jaxlib) for f in FINDINGS.values() for jaxlib in versions()}
    assert {*DATA.iterdir()} == kept
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    assert all(f"[{name}]({name}.md)" in index for name in FINDINGS)


def test_the_example_of_the_page_runs_and_its_mutant_is_caught() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", MUTANTS_PAGE.read_text("utf-8"), re.DOTALL)
    seen: dict[str, Any] = {}
    exec(compile(example, MUTANTS_PAGE.name, "exec"), seen)
    assert explanation(seen["run"].history, "crash-stop")


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_link_of_these_pages_leads_somewhere(page: Path) -> None:
    for link in links(page):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
