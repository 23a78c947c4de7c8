"""`coordlab scenarios`, and running one."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker import read
from coord_sim.cli.errors import CommandError
from coord_sim.cli.main import main
from coord_sim.cli.scenarios import simulate_scenario
from coord_sim.scenarios import names, scenario_named
from coord_sim.scenarios.shelf import LIBRARY


def test_the_list_has_every_scenario_with_its_title(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenarios"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(names())
    for name, line in zip(names(), lines, strict=True):
        assert line.endswith(scenario_named(name).title)


@pytest.mark.parametrize("name", names())
def test_a_scenario_is_explained_in_words(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenarios", name]) == 0
    printed = capsys.readouterr().out
    scenario = scenario_named(name)
    flat = " ".join(printed.split())
    for text in (scenario.title, scenario.what, scenario.why, *scenario.sources):
        assert " ".join(text.split()) in flat
    assert f"coordlab simulate --scenario {name}" in printed
    assert "expected" in printed
    assert "(process=" not in printed, "a fault without words"


def test_a_scenario_s_schedule_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenarios", "ghost-entry", "two-jobs-one-coordinator"]) == 0
    printed = capsys.readouterr().out
    assert "when process 1 is inside its 3rd live_processes: process 1 dies" in printed
    assert "0.2 s after process 1 dies the 1st time: process 1 starts again" in printed
    assert "process 4 calls service 0 as task 8" in printed
    assert "process 4 starts at 3 s" in printed


def test_files_are_validated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = LIBRARY / "stall.toml"
    bad = tmp_path / "bad.toml"
    bad.write_text(good.read_text().replace("pause", "puase").replace("for_s = 6", "for_s = '6'"))
    assert main(["scenarios", "--check", str(good)]) == 0
    assert capsys.readouterr().out == f"{good}: fine\n"
    assert main(["scenarios", "--check", str(bad), str(good)]) == 2
    captured = capsys.readouterr()
    line = bad.read_text().split("\n").index('kind = "puase"') + 1
    said = f"coordlab: error: {bad}:{line}: faults[0].kind: unknown kind 'puase'; did you mean 'pause'?"
    assert captured.err.strip() == said
    assert captured.out == f"{good}: fine\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stal"], "no scenario 'stal'; did you mean 'stall'?"),
        (["xyzzy"], "no scenario 'xyzzy'; `coordlab scenarios` lists them"),
        (["nowhere.toml"], "nowhere.toml: No such file or directory"),
        (["/"], "/: Is a directory"),
        (["--check"], "--check needs the name of a file"),
    ],
)
def test_what_is_not_there_is_bad_input(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scenarios", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_running_a_scenario_says_expectation_by_expectation_what_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run.jsonl"
    assert simulate_scenario("key-set-twice", seeds=range(3), out=str(out)) == 0
    printed = capsys.readouterr().out
    assert "  holds  'claimed' is reached at least 1 time" in printed
    assert "5 of 5 expectations hold with each of 3 seeds (shipped semantics)" in printed
    assert read(out).header.source == "simulator"


def test_a_fault_that_did_not_happen_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate_scenario("service-restarted") == 0
    note = "note: Restart(process='service', at_s=5.1) did not happen: the run was over before"
    assert note in capsys.readouterr().out.splitlines()


def test_an_expectation_that_fails_is_shown_with_what_was_found_and_how_to_replay_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    text = (LIBRARY / "service-killed.toml").read_text(encoding="utf-8")
    path.write_text(text.replace("after_s = 5, before_s = 5.3", "after_s = 6"))
    assert simulate_scenario(str(path), seeds=[4, 5], semantics="published") == 1
    printed = capsys.readouterr().out
    assert "  FAILS  every process dies of 'UNAVAILABLE' after 6 s" in printed
    assert "process 0: crashed at 5." in printed
    assert f"replay: coordlab simulate --scenario {path} --seed 4 --semantics published" in printed


def test_a_scenario_of_real_processes_alone_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "name = 'throttle'\ntitle = 'x'\nwhat = 'x'\nwhy = 'x'\nruns_on = ['processes']\n"
        "[job]\nprocesses = 2\n[program]\nname = 'training_loop'\n"
        "[[faults]]\nkind = 'degrade'\nprocess = 1\nat = 2\nfor_s = 5\nbytes_per_s = 60\n"
        "[expect]\nfinished = true\n"
    )
    assert main(["simulate", "--scenario", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"coordlab: error: {path}: throttle runs on real processes only")


def test_a_scenario_that_is_not_there_does_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate_scenario("no-such") == 2
    assert "no scenario 'no-such'" in capsys.readouterr().err


def test_a_program_that_never_lets_time_pass_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "name = 'busy'\ntitle = 'x'\nwhat = 'x'\nwhy = 'x'\n"
        "[job]\nprocesses = 1\nlatency_min_s = 0\nlatency_max_s = 0\n"
        "[program]\nname = 'steady_writes'\nwrites = 1000000000\nevery_s = 0\n"
        "[expect]\nfinished = true\n"
    )
    with pytest.raises(CommandError, match="without letting virtual time pass"):
        simulate_scenario(str(path))
