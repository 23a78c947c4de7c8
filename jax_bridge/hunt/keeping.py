"""The files of what was found: what anyone needs to see it again."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from coord_sim.scenarios import Expectations, Scenario
from coord_sim.scenarios.scenario import PROCESSES, SIMULATOR
from coord_sim.scenarios.writing import to_toml
from jax_bridge.hunt.reducing import Reduced
from jax_bridge.hunt.trying import HISTORY, Trial
from jax_bridge.launcher import run_folder

CASE: Final = "case.json"
DRAWN: Final = "drawn.json"
SCENARIO: Final = "scenario.toml"
EXPLANATION: Final = "explanation.txt"
SCRIPT: Final = "reproduce.sh"
LOGS: Final = "logs"

TRIES: Final = 5
"""So often `reproduce.sh` tries: real processes are not deterministic."""

_OF_THE_SERVICE: Final = re.compile(r"(live sets?|blocks?|keys?|barriers?)\b")
"""How kinds begin that a verdict on the history tells."""


def folder_name(kind: str) -> str:
    """A name for the folder of a kind: lower case, with hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-") or "failure"


def keep(folder: Path, drawn: Trial, reduced: Reduced, service: str) -> None:
    """Writes the files of a failure; those of an earlier state of the same one are replaced.

    Args:
      folder: Where to.
      drawn: The failure as it was met.
      reduced: The smallest that is known.
      service: On which service.

    Raises:
      OSError: they cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    trial = reduced.trial
    (folder / CASE).write_text(trial.case.to_text(), encoding="utf-8")
    (folder / DRAWN).write_text(drawn.case.to_text(), encoding="utf-8")
    lines = "\n".join(told(drawn, reduced))
    (folder / EXPLANATION).write_text(f"{lines}\n", encoding="utf-8")
    if (trial.folder / HISTORY).exists():  # Not if nobody started.
        shutil.copyfile(trial.folder / HISTORY, folder / HISTORY)
    logs = folder / LOGS
    shutil.rmtree(logs, ignore_errors=True)
    shutil.copytree(run_folder(trial.folder / HISTORY) / LOGS, logs)
    scenario = as_scenario(reduced)
    if scenario is not None:
        (folder / SCENARIO).write_text(to_toml(scenario), encoding="utf-8")
    else:
        (folder / SCENARIO).unlink(missing_ok=True)
    script = folder / SCRIPT
    script.write_text(_script(trial.kind, scenario, service), encoding="utf-8")
    script.chmod(0o755)


def told(drawn: Trial, reduced: Reduced) -> Iterator[str]:
    """What was found, in lines."""
    trial = reduced.trial
    yield trial.kind
    yield ""
    yield trial.explanation
    yield ""
    yield f"program {trial.case.program} {dict(trial.case.arguments)}"
    yield repr(trial.case.schedule)
    yield ""
    yield f"found with seed {drawn.case.schedule.seed}"
    if reduced.simulated or reduced.real:
        yield f"made smaller in {reduced.simulated} simulated and {reduced.real} real runs"
    if reduced.tried > 1:
        yield f"of {reduced.tried} runs on real processes {reduced.failed} showed it"
    if reduced.in_simulator:
        yield "the simulator shows the same"
    if reduced.in_simulator or reduced.real:
        yield _why(reduced)


def as_scenario(reduced: Reduced) -> Scenario | None:
    """A scenario that expects what was found; None where scenarios cannot say it."""
    case, kind = reduced.trial.case, reduced.trial.kind
    if _OF_THE_SERVICE.match(kind):
        if case.schedule.places:
            return None  # To the checker a duplicate is a process that answers know nothing of.
        expect = Expectations(verdicts={"service-suspicion": "invalid"})
    elif kind.startswith(("no progress", "the service died")):
        expect = Expectations(finished=False)
    else:
        return None
    return Scenario(
        name=folder_name(kind),
        title=f"Found by a hunt: {kind}",
        what=reduced.trial.explanation,
        why=_why(reduced),
        runs_on=(SIMULATOR, PROCESSES) if reduced.in_simulator else (PROCESSES,),
        schedule=case.schedule,
        program=case.program,
        arguments=dict(case.arguments),
        expect=expect,
    )


def _why(reduced: Reduced) -> str:
    if reduced.blamed:
        return f"A published service shows it with one deviation: {', '.join(reduced.blamed)}."
    if reduced.in_simulator:
        return "No single deviation of the service from the published one brings it about."
    return "The simulator does not show it with these faults alone."


def _script(kind: str, scenario: Scenario | None, service: str) -> str:
    if scenario is not None:
        file, done = SCENARIO, 0
        words = ["coordlab", "run", "--service", service, "--scenario"]
    else:
        file, done = CASE, 1
        words = ["coordlab", "hunt", "--service", service, "--replay"]
    return f"""\
#!/bin/sh
# {shlex.quote(kind)[:200]}
# Real processes are not deterministic: up to {TRIES} tries.
# Exit code: 0 seen again, 1 not seen, 2 not run.
if ! command -v coordlab >/dev/null; then
    echo "$0: coordlab is not on the path; activate the environment that it is in" >&2
    exit 2
fi
here=$(dirname "$0")
for try in $(seq {TRIES}); do
    {shlex.join(words)} "$here/{file}"
    code=$?
    if [ $code -eq {done} ]; then exit 0; fi
    if [ $code -ne {1 - done} ] && [ $code -ne 3 ]; then exit 2; fi
done
exit 1
"""
