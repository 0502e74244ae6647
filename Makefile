# Every target sets up what it needs: a virtual environment, the packages, and (when brokers are asked for) the Kafka jars.
# PYTHON=... chooses the interpreter; by default scripts/fastest-python does.
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-all check bench bench-downconversion chaos soak audit-faults audit-large halts events rules dashboards deep fuzz grid mutants clean setup

setup: $(READY)

$(READY): pyproject.toml setup.py scripts/fastest-python $(wildcard mirror/relay/hot/c/*)
	@test -x $(BIN)/python || { python=$${PYTHON:-$$(scripts/fastest-python)} && echo "virtual environment with $$python" && $$python -m venv $(VENV); }
	@echo "installing packages (a minute or two)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[audit,otlp,bench,dev]'
	@$(BIN)/python -m compileall -q mirror
	@touch $@

demo: $(READY)
	$(BIN)/mirror demo --out build/demo

# The suite takes more CPU than waiting: with six at a time, two cores are overloaded, and it is no sooner done.
TEST_PROCESSES := 3

PYTEST := $(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

# All but what shows a rule once more, in minutes: tests/plugins/nightly.py names those tests, and what stands for them.
test: $(READY)
	$(PYTEST) --by-day

# Everything: every night, after a change to what those tests try, and before a release.
test-all: $(READY)
	$(PYTEST)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vulture

bench: $(READY)
	$(BIN)/python -m bench

# KIP-283's table of chunk sizes and its memory test, of our converter: writes docs/results/DOWNCONVERSION.md (20 minutes).
bench-downconversion: $(READY)
	$(BIN)/python -m bench.downconversion

chaos: $(READY)
	$(BIN)/python -m chaos

# A steady load, a worker restarted every minute and the configuration changed every ten seconds, for so many MINUTES: neither
# memory nor descriptors may grow, and the copy has to be identical. Writes build/soak.
soak: MINUTES := 60
soak: $(READY)
	$(BIN)/python -m chaos.soak $(MINUTES)

# Random faults in logs of real brokers, each of which the audit has to find: COUNT of them, from SEED on.
COUNT := 10000
SEED := 1

audit-faults: $(READY)
	$(BIN)/python -m tests.audit.faults $(COUNT) $(SEED)

# Copies of which BATCHES batches differ: the audit has to name what is due, within 2 GB of memory.
BATCHES := 5000000

audit-large: $(READY)
	$(BIN)/python -m tests.audit.faults.large $(BATCHES)

# docs/HALTS.md, from the one list of reasons (mirror/reasons.py).
halts: $(READY)
	$(BIN)/python -m tests.project.halts_document

# docs/EVENTS.md, from the code that logs and the list beside the tests.
events: $(READY)
	$(BIN)/python -m tests.project.events_document

# What deploy/ has of the alerts, from mirror/configs/alerts.yaml.
rules: $(READY)
	$(BIN)/python -m tests.deploy.rules

# deploy/grafana/dashboards, from the code beside them.
dashboards: $(READY)
	$(BIN)/python -m deploy.grafana.generate

# Property tests, with other examples each time and 40 times as many; what fails is tried first the next time. Then all
# seeds of the simulation, of which `make test` plays a third (tests/simulation/seeds.py).
deep: $(READY)
	HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest -m hypothesis --numprocesses 2
	HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest -m long --numprocesses 2 tests/simulation

# Bytes that no broker would send, into all that reads bytes of brokers: SECONDS for each of 8 targets (30 minutes in all);
# ONLY='conversion' for the targets whose name matches. Guided by coverage where atheris can be installed; it says so.
fuzz: SECONDS := 225
fuzz: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]' || \
		echo "fuzz: atheris cannot be installed for this Python here; going on with Hypothesis"
	$(BIN)/python -m tests.fuzz $(SECONDS) '$(ONLY)'

# Every kind of batch and codec between brokers of four versions and of two: writes docs/results/GRID.md (half an hour).
# PAIR='2.8.2 to 4.3.0' for those that match, which writes nothing.
PAIR :=

grid: $(READY)
	$(BIN)/python -m tests.grid '$(PAIR)'

# COUNT small changes to records, offsetmap, relay and audit, drawn from SEED, each of which some test has to see (hours):
# make mutants COUNT=300; ONLY='locate/resync' for the files whose path matches.
ONLY :=

mutants: COUNT := 300
mutants: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[mutants]'
	$(BIN)/python -m tests.mutants $(COUNT) $(SEED) '$(ONLY)'

clean:
	rm -rf $(VENV) build *.egg-info mirror/relay/hot/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache spark-warehouse
