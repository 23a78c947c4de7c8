"""A short run of the differential fuzzer, and proof that it finds what it looks for."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from coord_sim.core.semantics import SHIPPED
from tests.conformance.services import ForkServer, ModelService, RealService
from tests.differential.campaign import Campaign, Finding, drawn, real_and_model
from tests.differential.execute import Patience
from tests.differential.fuzz import has_reports
from tests.differential.programs import Program, Step

pytestmark = pytest.mark.jax

SEED = 20261129
PROGRAMS = {False: 150, True: 20}
PLANTED_WITHIN = 150


def some_programs(*, timed: bool, number: int) -> list[Program]:
    return drawn(number, SEED, timed=timed, reports=has_reports())


def test_drawn_programs_depend_on_the_seed_alone() -> None:
    once = some_programs(timed=True, number=5)
    assert once == some_programs(timed=True, number=5)
    assert once != drawn(5, SEED + 1, timed=True, reports=has_reports())


def test_programs_survive_being_written_down() -> None:
    for program in some_programs(timed=True, number=20):
        assert Program.from_json(program.to_json()) == program


@pytest.mark.parametrize(
    "step",
    [
        Step("report", 0, 0, (("code", 0), ("message", ""))),
        Step("barrier", 7, 0, (("barrier_id", "s"), ("tasks", ()))),
    ],
)
def test_what_the_real_service_does_not_survive_is_refused(step: Step) -> None:
    program = Program(
        tasks=2,
        recoverable=False,
        heartbeat_timeout_s=600,
        shutdown_timeout_s=600,
        register_timeout_s=600,
        steps=(step,),
    )
    with pytest.raises(ValueError, match="would not survive"):
        Program.from_json(program.to_json())


@pytest.mark.slow
def test_the_services_do_not_differ() -> None:
    async def look() -> tuple[list[Finding], Campaign]:
        async with real_and_model() as pair:
            campaign = Campaign(pair)
            batches = [
                some_programs(timed=timed, number=number) for timed, number in PROGRAMS.items()
            ]
            found = await asyncio.gather(*(campaign.batch(batch) for batch in batches))
            return [finding for findings in found for finding in findings], campaign

    findings, campaign = asyncio.run(look())
    assert not findings, "\n\n".join(map(str, findings))
    tally = campaign.tally
    assert tally.programs >= sum(PROGRAMS.values()) * 0.9, tally
    # The run means something only if it gets anywhere.
    for op, code in (
        ("register", "OK"),
        ("barrier", "OK"),
        ("barrier", "INTERNAL"),
        ("barrier", "INVALID_ARGUMENT"),
        ("alive", "OK"),
        ("shutdown", "OK"),
        ("poll", "CANCELLED"),
        ("watch", "OK"),
        ("get", "OK"),
    ):
        assert tally.counts[op, code], (op, code, str(tally))
    reached = {code for (_, code), count in tally.counts.items() if count}
    assert reached >= {"ABORTED", "ALREADY_EXISTS", "FAILED_PRECONDITION", "NOT_FOUND"}, str(tally)


@pytest.mark.slow
def test_a_planted_difference_is_found() -> None:
    planted = replace(SHIPPED, keeps_ghost_entries=False)

    async def look() -> Finding | None:
        async with ForkServer() as forks:
            campaign = Campaign(lambda: (RealService(forks), ModelService(planted)))
            programs = some_programs(timed=False, number=PLANTED_WITHIN)
            for begin in range(0, len(programs), 20):
                findings = await campaign.batch(programs[begin : begin + 20])
                if findings:
                    return findings[0]
        return None

    finding = asyncio.run(look())
    assert finding is not None, "a service with other semantics passed for the real one"
    one, other = finding.difference.texts
    assert one != other


def test_a_program_is_made_small() -> None:
    everybody = (("tasks", (0, 1, 2)),)
    needed = (
        Step("register", 0),
        Step("register", 1),
        Step("alive", 1, 0, (("tasks", (0, 1)),)),
        Step("restart", 1),
    )
    superfluous = (
        Step("register", 2),
        Step("insert", 0, 0, (("key", "é"), ("value", "1"), ("overwrite", False))),
        Step("alive", 2, 0, everybody),
        Step("poll", 0),
    )
    program = Program(
        tasks=3,
        recoverable=True,
        heartbeat_timeout_s=600,
        shutdown_timeout_s=600,
        register_timeout_s=600,
        steps=(*needed[:2], *superfluous, *needed[2:], Step("shutdown", 2)),
    )

    async def look() -> Finding | None:
        planted = replace(SHIPPED, keeps_ghost_entries=False)
        # Both services are in this process, and late together if it is.
        campaign = Campaign(
            lambda: (ModelService(), ModelService(planted)),
            quick=Patience(0.0, 0.5),
            long=Patience(0.05, 1.0),
        )
        finding = await campaign.confirm(program)
        return None if finding is None else await campaign.shrink(finding)

    finding = asyncio.run(look())
    assert finding is not None
    assert finding.program.steps == needed, finding
    assert finding.program.tasks == 2
    assert Program.from_json(finding.program.to_json()) == finding.program
    assert "--replay" in str(finding)


def test_a_batch_ends_when_its_time_is_up() -> None:
    async def look() -> int:
        async with real_and_model() as pair:
            campaign = Campaign(pair)
            await campaign.batch(some_programs(timed=False, number=5), until=time.monotonic())
            return campaign.tally.programs

    assert asyncio.run(look()) == 0
