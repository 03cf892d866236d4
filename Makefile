# Two commands on a fresh machine: `make demo` and `make test`. Each sets up all that it needs.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements/constraints.txt
export CCRANK_DATA ?= $(wildcard ../shared/data)

.PHONY: demo test lint bench format clean

demo: $(VENV)/core
	$(BIN)/ccrank rank Russia Canada Brazil Chad Monaco --by size --category country

test: $(VENV)/dev
	$(BIN)/ccrank models pull default
	$(BIN)/python -m pytest

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
