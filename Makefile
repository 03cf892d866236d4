# Two commands on a fresh machine: `make demo` and `make test`. Each installs what it needs.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
LOCK ?= requirements/lock.txt
# uv creates environments and installs where it is on the PATH; `make UV= …` takes venv and pip.
UV ?= $(shell command -v uv)
export UV
CREATE = test -x $(BIN)/python || $(if $(UV),$(UV) venv --quiet --seed --python $(PYTHON) $(VENV),$(PYTHON) -m venv $(VENV))
INSTALL = sh requirements/install.sh $(BIN)/python $(LOCK)
export CCRANK_DATA ?= $(abspath $(wildcard ../shared/data))

# Two test processes of one thread each: torch's own threads would only compete with them. The tests of a file stay in one
# process, which keeps the models and pages that they share.
JOBS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

.PHONY: demo test test-studies figures examples coverage mutants wheel-test clients notebooks docs lint bench format clean recording page-tools reproduction dist lock test-latest test-lowest

demo: $(VENV)/core
	$(BIN)/ccrank rank pizza broccoli candy apple rice --by healthiness --category food

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

# The programs, data and pages of studies/: fast, and apart from the tests of the package.
test-studies: $(VENV)/dev
	$(PYTEST) studies

# The wheel, built and run in a fresh environment. WHEEL=dist/NAME.whl takes one that is built already.
wheel-test: $(VENV)/dev
	$(BIN)/python -m pytest -m slow tests/test_wheel.py -rs

# What a release publishes: the wheel and the source archive, in dist/.
dist: $(VENV)/dev
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist

# Clients of search tools against a local server: the SDKs are larger than what they test, so `make test` has none.
clients: $(VENV)/dev
	$(INSTALL) '.[dev]' -r requirements/clients.txt
	$(BIN)/python -m pytest tests/server/test_clients.py -rs

# The notebooks of examples/, executed again; their outputs are compared with the committed ones.
notebooks: $(VENV)/dev
	$(BIN)/ccrank models pull default
	$(BIN)/python -m pytest -m slow tests/test_notebooks.py

# The documentation, in build/site. A broken link is an error.
docs: $(VENV)/docs
	$(BIN)/python docs/make_site.py
	$(BIN)/zensical build --config-file mkdocs.yml --clean --strict

# The picture and the recording of the page, in docs/images.
recording: $(VENV)/dev
	$(BIN)/ccrank models pull default
	$(BIN)/python docs/make_recording.py
	$(BIN)/python docs/make_card.py

# The figures of the studies' pages, from the tables of these pages.
figures: $(VENV)/dev
	$(BIN)/python -m studies.common.figures

# The outputs of the examples in README.md and docs/, as the default model prints them.
examples: $(VENV)/dev
	$(BIN)/ccrank models pull default
	PYTHONPATH=tests/support $(BIN)/python tests/write_examples.py

# TypeScript and axe-core, with which the tests check the page's types and accessibility; without them they do not.
page-tools:
	npm install --silent --no-fund --no-audit --prefix build/page-tools typescript@5.9.3 axe-core@4.14.0

lint: $(VENV)/dev
	$(BIN)/ruff check src tests benchmarks studies examples conftest.py
	$(BIN)/ruff format --check src tests benchmarks studies examples conftest.py
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff check --fix src tests benchmarks studies examples conftest.py
	$(BIN)/ruff format src tests benchmarks studies examples conftest.py

bench: $(VENV)/dev
	$(BIN)/ccrank models pull default
	$(BIN)/python benchmarks/reading.py
	$(BIN)/python benchmarks/probes.py

# The numbers of studies/reproduction: the study, the sensitivity of probes, the claims about prompting, what pairwise answers
# follow, then the page. All tasks take minutes on a GPU (DEVICE=cuda) and hours on a CPU. LIMIT=8 takes 8 tasks of each dataset,
# and two seeds and shuffles for the claims about prompting, whose lists are the longest prompts; it leaves the page of docs/
# alone: numbers and page are then in build/. A study that was interrupted is continued.
DEVICE ?= auto
STUDY ?= build/reproduction$(if $(LIMIT),-$(LIMIT))
NUMBERS := $(if $(LIMIT),$(STUDY)/data,studies/reproduction/data)
CLAIMS := $(if $(LIMIT),$(STUDY)/details.md,studies/reproduction/details.md)
FIGURE := $(if $(LIMIT),$(STUDY)/sensitivity,studies/reproduction/sensitivity)
HOW := --dtype float32 --device $(DEVICE) $(if $(LIMIT),--limit $(LIMIT))
FEWER := $(if $(LIMIT),--seeds 2 --shuffles 2)
CRITERIA := headline-positive tweet-joy politeness offensive formality
TEXTS := $(wildcard $(patsubst %,$(CCRANK_DATA)/textcriteria/%.jsonl,$(CRITERIA)))
reproduction: $(VENV)/dev
	$(BIN)/ccrank models pull default
	mkdir -p $(NUMBERS)
	$(if $(LIMIT),cp studies/reproduction/details.md $(CLAIMS))
	@echo "1 of 5: the study, in $(STUDY)"
	$(BIN)/ccrank bench --preset reproduction $(HOW) --out $(STUDY)
	@echo "2 of 5: how far probes depend on their settings"
	$(BIN)/python -m studies.reproduction.sensitivity $(HOW) --out $(NUMBERS)/sensitivity.json --figure $(FIGURE)
	@echo "3 of 5: the claims about prompting"
	$(BIN)/python -m studies.reproduction.claims_prompting $(HOW) $(FEWER) --json $(NUMBERS)/claims_prompting.json
	@echo "4 of 5: what pairwise answers follow"
	$(BIN)/python -m studies.reproduction.pair_answers reviews $(TEXTS) $(HOW) --json $(NUMBERS)/pair_answers.json
	@echo "5 of 5: numbers in $(NUMBERS), tables in $(CLAIMS)"
	$(BIN)/python -m studies.reproduction.numbers $(STUDY) --data $(NUMBERS)/reproduction.json --page $(CLAIMS)

# The exact versions that all of these install, on Python 3.10 to 3.13. `make lock` renews all of them, and `make lock KEEP=1`
# changes only what the ranges demand.
COMPILE = build/uv/bin/uv pip compile --quiet --no-annotate
lock: build/uv/bin/uv
	$(COMPILE) --universal --python-version 3.10 --all-extras $(if $(KEEP),,--upgrade) \
	  --custom-compile-command 'make lock' -c requirements/constraints.txt -o $(LOCK) pyproject.toml requirements/clients.txt

# The ranges of pyproject.toml, at both ends: the newest versions, and the oldest ones that it allows.
test-latest:
	$(MAKE) test VENV=build/latest LOCK=newest

test-lowest: build/uv/bin/uv
	$(COMPILE) --python $(PYTHON) --only-binary :all: --resolution lowest-direct --extra dev --extra all -o build/lowest.txt pyproject.toml
	$(MAKE) test VENV=build/lowest LOCK=build/lowest.txt

build/uv/bin/uv: requirements/lock.txt
	$(PYTHON) -m venv build/uv
	build/uv/bin/pip install --quiet --only-binary=:all: -c requirements/lock.txt uv

# Each says under which lock it was made; a test then compares what is installed with the lock.
$(VENV)/core: pyproject.toml $(wildcard $(LOCK)) requirements/install.sh
	$(CREATE)
	$(INSTALL) .
	echo $(LOCK) > $@

$(VENV)/dev: $(VENV)/core
	$(INSTALL) '.[dev]'
	echo $(LOCK) > $@

$(VENV)/docs: $(VENV)/core
	$(INSTALL) '.[docs]'
	echo $(LOCK) > $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
