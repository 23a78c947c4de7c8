"""The front page tells the truth."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from coord_sim.cli.main import main
from coord_sim.core.service import ServiceConfig
from coord_sim.server.grpc_server import CoordinationServer

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_example_of_the_simulator_runs() -> None:
    (code,) = (each for each in EXAMPLES if "simulate" in each)
    exec(compile(code, "README.md", "exec"), {})


def test_the_example_of_the_checker_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = (each for each in EXAMPLES if "Recorder" in each)
    exec(compile(code, "README.md", "exec"), {})
    assert "read() -> nil of process 1 cannot have happened" in capsys.readouterr().out


def test_the_example_of_the_client_runs() -> None:
    (code,) = (each for each in EXAMPLES if "DistributedRuntimeClient" in each)

    async def run() -> None:
        server = CoordinationServer(ServiceConfig(tasks=1, recoverable=True))
        names = {"address": f"127.0.0.1:{server.bind('127.0.0.1', 0)}"}
        await server.start()
        await asyncio.to_thread(exec, compile(code, "README.md", "exec"), names)
        await server.stop()

    asyncio.run(run())


def commands() -> list[list[str]]:
    """The `coordlab` commands of the shell blocks."""
    found = []
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(re.sub(r"\s#.*", "", line))
            if words and words[0] == "coordlab":
                found.append(words[1:])
    return found


@pytest.mark.parametrize("words", commands(), ids=lambda words: words[0])
def test_each_command_has_the_options_that_the_page_uses(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """`--help` after the options is reached only if they are understood."""
    script = words.index("--") if "--" in words else len(words)
    with pytest.raises(SystemExit) as stopped:
        main([*words[:script], "--help"])
    assert stopped.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_the_page_names_each_make_target_that_it_promises() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in [*re.findall(r"^make (\w+)", README, re.MULTILINE), "bench", "layers"]:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
