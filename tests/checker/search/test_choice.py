"""What is imported when: nothing heavy at first, and nothing at all that is not installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAVY = ("numpy", "numba", "llvmlite", "networkx", "grpc", "jax")


def _child(code: str, *options: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_LOADED = f"""
import json, sys
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
"""


def test_the_package_is_imported_fast_and_alone() -> None:
    code = "import time; begun = time.process_time(); import checker; "
    code += "import sys; print(time.process_time() - begun, file=sys.stderr)" + _LOADED
    seconds = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
        )
        assert json.loads(done.stdout) == []
        seconds.append(float(done.stderr))
    assert min(seconds) < 0.3


_SMALL = """
from checker import check
from checker.operations import Recorder
from checker.specs import CasRegister
recorder = Recorder()
for value in range(300):
    recorder.ok(recorder.invoke(0, "write", value))
    recorder.ok(recorder.invoke(1, "read"), value + WRONG)
verdict = check(recorder.operations(), CasRegister())
assert verdict.word == ("invalid" if WRONG else "valid"), verdict
verdict.explain()
"""


def test_a_small_check_never_imports_numba() -> None:
    assert json.loads(_child(_SMALL.replace("WRONG", "0") + _LOADED)) == []
    loaded = json.loads(_child(_SMALL.replace("WRONG", "7") + _LOADED))
    assert "numba" not in loaded
    assert "numpy" not in loaded


_ABSENT = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("numba", "numpy", "llvmlite"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, Absent())
"""


@pytest.mark.parametrize("insist", [None, True])
def test_everything_works_without_numba(insist: bool | None) -> None:
    code = f"""
import importlib.util, random
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: (
    None if name in ("numba", "numpy") else find_spec(name, package))
from checker.search import check_operations
from checker.specs import CasRegister, spec_named
from tests.random_operations import TOYS, LongHistory, random_operations
for name in TOYS:
    for seed in range(5):
        history = random_operations(random.Random(seed), name, style="valid")
        verdict = check_operations(history, spec_named(name), compiled={insist})
        verdict.require_valid().witness.verify()
history = LongHistory(rng=random.Random(1), operations=25_000, values=50).draw()
check_operations(history, CasRegister(), compiled={insist}).require_valid().witness.verify()
wrong = LongHistory(rng=random.Random(1), operations=300, unique=True, changed=True).draw()
verdict = check_operations(wrong, CasRegister(), compiled={insist})
assert verdict.word == "invalid"
assert verdict.explain()
"""
    loaded = json.loads(_child(_ABSENT + code + _LOADED))
    assert "numba" not in loaded
    assert "numpy" not in loaded


def test_a_hard_check_without_numba_ends_at_its_limit() -> None:
    code = """
from checker import check
from checker.specs import Register
from tests.checker.search.hard import concurrent_writes
import importlib.util
importlib.util.find_spec = lambda name, package=None: None
verdict = check(concurrent_writes(30), Register(), timeout_s=0.5)
print(verdict.explain())
"""
    assert "time limit of 0.5 s" in _child(_ABSENT + code)
