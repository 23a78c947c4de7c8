"""The catalogue's own machinery: what counts as the same, and that a wrong service is found out."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from coord_sim.core.status import Code
from tests.conformance.catalogue import SCENARIOS
from tests.conformance.comparison import NOTHING, Difference, differences, judge
from tests.conformance.known_differences import KNOWN
from tests.conformance.outcome import BarrierPayload, Outcome, ServiceErrorPayload, sorted_lists
from tests.conformance.run import run_one
from tests.conformance.scenario import Arm, Result
from tests.conformance.services import ForkServer

MODEL = Arm("stub", "model")


def test_random_numbers_are_compared_by_their_names() -> None:
    outcome = Outcome(
        code=Code.INTERNAL,
        message="requested 1000000000000001, currently 7777777777777777",
        service_error=ServiceErrorPayload(source_task=1),
        barrier_error=BarrierPayload("b", 2),
        wrong_service=7777777777777777,
    )
    names = {1000000000000001: "a", 7777777777777777: "SI"}
    expected = 'INTERNAL CE{source 1} BE{b, 2} SE{<SI>} "requested <a>, currently <SI>"'
    assert outcome.text(names) == expected


def test_a_number_without_a_name_stays() -> None:
    answer = Outcome(code=Code.OK, answer={"value": b"-9223372036854775808"})
    assert answer.text({}) == "OK value=b'-9223372036854775808'"


def test_lists_of_arbitrary_order_are_sorted() -> None:
    assert sorted_lists("names:\n10\n2\n") == "names:\n2\n10\n"
    assert sorted_lists("names:\n10\n2") == "names:\n2\n10"
    quoted = "Error: x [type.b='1'] [type.a='[i]2']. End"
    assert sorted_lists(quoted) == "Error: x [type.a='[i]2'] [type.b='1']. End"


def test_observations_of_one_name_are_compared_in_their_order() -> None:
    base = Result((("reg", "OK"), ("reg", "ABORTED"), ("poll", "pending")))
    other = Result((("reg", "OK"), ("reg", "OK")))
    assert differences(base, other) == (
        Difference("reg", "ABORTED", "OK"),
        Difference("poll", "pending", NOTHING),
    )


def test_known_differences_must_occur_and_others_must_not() -> None:
    entry = next(each for each in KNOWN if str(MODEL) in each.arms)
    version = f"{entry.jaxlib}9"
    others = {
        each.observation for each in KNOWN if each.concerns(entry.scenario, str(MODEL), version)
    } - {entry.observation}
    new = Difference("something new", "OK", "ABORTED")
    found = (new, *(Difference(name, "OK", "ABORTED") for name in others))
    judgement = judge(entry.scenario, MODEL, version, found)
    assert judgement.unexplained == (new,)
    assert judgement.stale == (entry,)


@pytest.mark.jax
def test_a_service_in_the_other_mode_is_found_out() -> None:
    numbers = ("5", "7", "14", "30", "33", "46", "46r")
    inverted = [
        replace(
            scenario,
            options=replace(scenario.options, recoverable=not scenario.options.recoverable),
        )
        for scenario in map(SCENARIOS.__getitem__, numbers)
    ]

    async def run() -> list[Result]:
        forks = ForkServer()  # Not started: the model needs none.
        return await asyncio.gather(*(run_one(each, MODEL, forks) for each in inverted))

    results = dict(zip(numbers, asyncio.run(run()), strict=True))
    assert [number for number, result in results.items() if not result.problem] == []
