# Two commands on a fresh machine: `make demo` and `make test`. Each sets up all that it needs.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements/constraints.txt
export CCRANK_DATA ?= $(wildcard ../shared/data)

# Two test processes of one thread each: torch's own threads would only compete with them. The tests of a file stay in one
# process, which keeps the models and pages that they share.
JOBS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

.PHONY: demo test coverage mutants lint bench format clean

demo: $(VENV)/core
	$(BIN)/ccrank rank Russia Canada Brazil Chad Monaco --by size --category country

test: $(VENV)/dev
	$(BIN)/ccrank models pull default
	$(PYTEST)

# What no test runs, file by file; fails if it is more than it was.
coverage: $(VENV)/dev
	$(BIN)/ccrank models pull default
	$(PYTEST) --cov --cov-report=term-missing:skip-covered --cov-fail-under=97

# Faults that the tests must notice (tests/mutants.toml), each put into a copy of the tree.
mutants: $(VENV)/dev
	$(BIN)/ccrank models pull default
	$(BIN)/python tests/run_mutants.py --jobs $(JOBS)

lint: $(VENV)/dev
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff check --fix src tests benchmarks
	$(BIN)/ruff format src tests benchmarks

bench: $(VENV)/dev
	$(BIN)/ccrank models pull default
	$(BIN)/python benchmarks/reading.py
	$(BIN)/python benchmarks/probes.py

# torch goes in first, under the constraint: asked for as anything else's dependency it would bring gigabytes of CUDA.
$(VENV)/core: pyproject.toml requirements/constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) torch
	$(INSTALL) -e .
	touch $@

$(VENV)/dev: $(VENV)/core
	$(INSTALL) -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
