# make demo    set up, run the main job end to end (under two minutes after set-up)
# make test    set up, run the tests
# make check   set up, run tests, lint, types and layer rules, as CI does
# make warmup  set up, compile the fast searches ahead (else they are compiled when they first pay)
# make bench   set up, run the benchmarks
# make fuzz-checker        random histories against the oracle, FUZZ_HISTORIES of them
# make fuzz-differential   random programs on jaxlib's service and on ours, for FUZZ_SECONDS
#
# PYTHON picks the interpreter (3.11 to 3.13), VENV the folder of the virtual environment.

PYTHON ?= python3
VENV ?= .venv
FUZZ_SECONDS ?= 600
FUZZ_HISTORIES ?= 1000000
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-jax test-checker test-simulated test-others check lint types layers warmup bench fuzz-checker fuzz-differential proto clean

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if (3, 11) <= v[:2] <= (3, 13) else f"coordlab needs Python 3.11 to 3.13, found {v[0]}.{v[1]}: set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/coordlab demo

CHECKER_TESTS := tests/checker tests/formats tests/oracles tests/report
SIMULATED_TESTS := tests/campaign tests/explore tests/mutants tests/plugin tests/scenarios tests/sim

# Two at a time, as those that start JAX mostly wait; what each says comes when it is done. The fast
# searches are compiled by the second, and found compiled by the later ones.
test: $(STAMP)
	@$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target \
	  test-jax test-checker test-simulated test-others

# These mostly wait for processes of their own: three at a time. A file's tests share what they set up.
test-jax: $(STAMP)
	$(BIN)/python -m pytest -m jax -n 3 --dist loadfile tests

test-checker: $(STAMP)
	$(BIN)/python -m pytest -m "not jax" $(CHECKER_TESTS) checker

test-simulated: $(STAMP)
	$(BIN)/python -m pytest -m "not jax" $(SIMULATED_TESTS)

test-others: $(STAMP)
	$(BIN)/python -m pytest -m "not jax" tests coord_sim \
	  $(addprefix --ignore=,$(CHECKER_TESTS) $(SIMULATED_TESTS))

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

check: test lint types layers

warmup: $(STAMP)
	$(BIN)/coordlab warmup

bench: $(STAMP)
	$(BIN)/python benchmarks/linearizability.py
	$(BIN)/python benchmarks/live_processes.py
	$(BIN)/python benchmarks/service.py
	$(BIN)/python benchmarks/recording.py
	$(BIN)/python benchmarks/tap.py
	$(BIN)/python benchmarks/replay.py

fuzz-checker: $(STAMP)
	$(BIN)/python -m tests.checker.fuzz --histories $(FUZZ_HISTORIES)

fuzz-differential: $(STAMP)
	$(BIN)/python -m tests.differential.fuzz --seconds $(FUZZ_SECONDS)

# Generated code is committed; a test compares it with what this makes.
proto: $(STAMP)
	$(BIN)/python -m grpc_tools.protoc -I proto --python_out=coord_sim/wire/_generated \
	  --pyi_out=coord_sim/wire/_generated proto/coordination_service.proto

clean:
	rm -rf $(VENV) demo-out
