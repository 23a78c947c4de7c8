"""What comes of a campaign depends on the campaign alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coord_sim.campaign import (
    Campaign,
    CheckpointError,
    Job,
    Judgement,
    Plan,
    SerialExecutor,
    Statistics,
    WorkersDied,
    load,
    process_pool,
    run_batch,
    save,
)
from coord_sim.campaign.failures import first_of_each_kind, shrink_failure
from coord_sim.cli.judges import ServiceJudge
from coord_sim.schedule import Schedule
from coord_sim.sim import Run
from coord_sim.sim.case import digest_of

STEPS = {"steps": 2, "step_s": 0.2}
SHIPPED = Job(Plan("training_loop", Schedule(processes=3), STEPS, until_s=2.0), ServiceJudge())
PUBLISHED = Job(
    replace(SHIPPED.plan, base=Schedule(processes=3, semantics="published")), ServiceJudge()
)
NAIVE = Job(replace(SHIPPED.plan, base=Schedule(processes=3, semantics="naive")), ServiceJudge())


class LastFirst(Executor):
    """Runs nothing until it is asked for a result, and then the latest first."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        if len(self.waiting) == 3:
            while self.waiting:
                done, call = self.waiting.pop()
                done.set_result(call())
        return future


def run(job: Job, runs: int, executor: Executor | None = None, **more: Any) -> Statistics:
    workers = more.pop("workers", 1)
    campaign = Campaign(job, runs, **{"stop_after": 0, "batch_runs": 10, **more})
    return campaign.run(executor or SerialExecutor(), workers=workers)


def test_other_executors_workers_and_batches_give_the_same_result() -> None:
    alone = run(SHIPPED, 60)
    with process_pool(2) as pool:
        assert run(SHIPPED, 60, pool, workers=2) == alone
    assert run(SHIPPED, 60, LastFirst(), workers=2, batch_runs=20) == alone
    assert run(SHIPPED, 60, batch_runs=7) == alone
    assert alone.runs == 60
    assert alone.states
    assert alone.faults


def test_the_digest_tells_campaigns_apart() -> None:
    digests = {
        run(SHIPPED, 10).digest,
        run(SHIPPED, 11).digest,
        run(SHIPPED, 10, first_seed=1).digest,
        run(NAIVE, 10).digest,
    }
    assert len(digests) == 4
    one, other = (SHIPPED.plan.case(seed).run() for seed in (0, 1))
    assert digest_of(one) != digest_of(other)
    assert digest_of(one) == digest_of(SHIPPED.plan.case(0).run())


def test_nothing_fails_on_the_published_service_and_something_does_on_the_shipped_one() -> None:
    assert run(PUBLISHED, 60).failed == 0
    assert run(SHIPPED, 60).failed > 0


def test_a_campaign_ends_with_the_batch_of_the_failure_that_is_too_much() -> None:
    everything = run(SHIPPED, 60)
    third = everything.failures[2].seed
    stopped = run(SHIPPED, 60, stop_after=3)
    assert stopped.runs == third // 10 * 10 + 10
    assert stopped.failures == [f for f in everything.failures if f.seed < stopped.runs]


def test_without_coverage_the_runs_are_the_same() -> None:
    watched, blind = run(SHIPPED, 10), run(replace(SHIPPED, coverage=False), 10)
    assert blind.digest == watched.digest
    assert not blind.states
    assert watched.transitions


def test_what_was_seen_late_is_told_apart() -> None:
    known = run(SHIPPED, 40)
    seen = known.transitions
    assert known.new_since(seen, 0.0) == len(seen)
    assert 0 < known.new_since(seen, 0.5) < len(seen)
    assert known.new_since(seen, 0.5) == len(seen.keys() - run(SHIPPED, 20).transitions.keys())
    assert known.seen_once(seen) == sum(1 for runs, _ in seen.values() if runs == 1) > 0


def test_a_campaign_that_is_resumed_comes_to_the_same(tmp_path: Path) -> None:
    path = tmp_path / "campaign.json"
    whole = run(SHIPPED, 60)
    first = Campaign(SHIPPED, 25, stop_after=0, batch_runs=10, checkpoint=path)
    first.run(SerialExecutor())
    second = replace(first, runs=60)
    known = second.resumed()
    assert known.runs == 25
    assert second.run(SerialExecutor(), known=known) == whole
    assert second.resumed() == whole


def test_what_determines_a_campaign_is_told_by_its_identity() -> None:
    first = Campaign(SHIPPED, 10)
    others = [
        Campaign(PUBLISHED, 10),
        Campaign(replace(SHIPPED, judge=ServiceJudge(failures="crash-stop")), 10),
        Campaign(replace(SHIPPED, judge=cannot_judge), 10),
        Campaign(replace(SHIPPED, coverage=False), 10),
        Campaign(SHIPPED, 10, first_seed=1),
    ]
    assert len({each.identity for each in (first, *others)}) == 6
    assert Campaign(SHIPPED, 99, stop_after=5).identity == first.identity
    assert "0x" not in others[2].identity


def test_a_campaign_that_is_stopped_keeps_what_it_knows(tmp_path: Path) -> None:
    campaign = Campaign(SHIPPED, 10**6, stop_after=0, batch_runs=10, checkpoint=tmp_path / "it")
    campaign.report = lambda known: campaign.stopped.set() if known.runs >= 20 else None
    known = campaign.run(SerialExecutor())
    assert known.runs == 20
    assert campaign.resumed() == known


def test_a_checkpoint_of_another_campaign_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "campaign.json"
    save(path, "one", Statistics())
    with pytest.raises(CheckpointError, match="another campaign, one; this one is two"):
        load(path, "two")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda _: "", "is no campaign"),
        (lambda _: "[1]", "is no campaign"),
        (lambda told: json.dumps(told | {"format": "x"}), "is no campaign"),
        (lambda told: json.dumps(told | {"version": 99}), "another version"),
        (lambda told: json.dumps(told | {"statistics": {}}), "is damaged"),
        (lambda told: json.dumps(told | {"statistics": 7}), "is damaged"),
    ],
)
def test_a_damaged_checkpoint_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], str], complaint: str
) -> None:
    path = tmp_path / "campaign.json"
    save(path, "it", run(SHIPPED, 10))
    path.write_text(change(json.loads(path.read_text())))
    with pytest.raises(CheckpointError, match=complaint):
        load(path, "it")


def test_a_judge_that_raises_fails_the_run_and_not_the_campaign() -> None:
    batch = run_batch(replace(SHIPPED, judge=cannot_judge), 0, 3)
    assert dict(batch.kinds) == {"the judge raised ZeroDivisionError": 3}


def cannot_judge(run: Run) -> Judgement:
    raise ZeroDivisionError


def test_workers_that_die_end_a_campaign_with_what_is_known(tmp_path: Path) -> None:
    job = Job(Plan("tests.campaign.programs:deadly", Schedule(processes=1)), ServiceJudge())
    campaign = Campaign(job, 100, batch_runs=10, checkpoint=tmp_path / "it")
    with process_pool(1) as pool, pytest.raises(WorkersDied, match="workers are gone"):
        campaign.run(pool, workers=1)


def test_a_failure_is_shrunk_to_one_of_its_kind() -> None:
    known = run(SHIPPED, 60)
    failure = next(first_of_each_kind(known.failures))
    found = shrink_failure(SHIPPED, failure)
    assert found.judgement.kind == failure.kind
    assert found.shrunk.before == SHIPPED.plan.case(failure.seed)
    after = found.shrunk.after.schedule
    assert len(after.faults) <= len(found.shrunk.before.schedule.faults)
    assert after.processes <= 2
    assert SHIPPED.judge(found.shrunk.after.run()) == found.judgement
