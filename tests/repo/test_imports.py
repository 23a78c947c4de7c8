"""What is optional is not imported before it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("jax", "jaxlib", "grpc", "google.protobuf", "numpy")

HELP = """
import contextlib, io
from coord_sim.cli.main import main
with contextlib.redirect_stdout(io.StringIO()) as told:
    try:
        main(["--help"])
    except SystemExit as stopped:
        assert stopped.code == 0
assert told.getvalue().startswith("usage: coordlab")
"""


def loaded_by(code: str, folder: Path) -> list[str]:
    """The heavy modules that a fresh interpreter has loaded after running `code`."""
    script = f"{code}\nimport sys\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import checker, checker.timeline", id="checker"),
        pytest.param("import coord_sim, coord_sim.sim", id="simulator"),
        pytest.param("import jax_bridge, jax_bridge.launcher", id="bridge"),
        pytest.param(HELP, id="coordlab --help"),
    ],
)
def test_nothing_optional_is_loaded_by(code: str, tmp_path: Path) -> None:
    assert loaded_by(code, tmp_path) == []


def test_a_loaded_module_would_be_noticed(tmp_path: Path) -> None:
    assert loaded_by("import google.protobuf", tmp_path) == ["google.protobuf"]
