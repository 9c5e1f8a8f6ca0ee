# `make help` lists everything. All that is needed is Python 3.12+ and make.
#
#   make PYTHON=/path/to/python ...   use this interpreter (else scripts/find-python looks for one)
#   make pytest ARGS="tests/core -x"  pass options on to pytest
#   make test WORKERS=4               as many test processes

.DEFAULT_GOAL := help
.NOTPARALLEL:
.SUFFIXES:

# Every path is relative: the clone may lie under a path with spaces.
BIN := .venv/bin
ARGS ?=
WORKERS ?= logical
IMAGE ?= amends
SWEEP_KILLS ?= 200
SWEEP_SAGAS ?= 500
FUZZ_EXAMPLES ?= 300
BASE ?= python:3.13-slim-trixie
IMAGE_BUILDER ?= docker

export PYTHON
# What another environment may have left behind. Asserts stay on: Python is never run with -O.
unexport PYTHONPATH PYTHONHOME PYTHONOPTIMIZE VIRTUAL_ENV

.PHONY: help
help: ## list what can be made (this text)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: ## make .venv with the locked packages and the command amends (skipped when up to date)
	@scripts/setup

.PHONY: demo
demo: setup ## show the whole idea in a terminal
	@$(BIN)/python -m examples.demo

.PHONY: serve
serve: setup ## run the service, with its own Postgres unless AMENDS_DATABASE_URL is set
	@$(BIN)/amends serve

.PHONY: test
test: lint types imports pytest ## everything that CI runs: lint, types, imports, pytest

.PHONY: lint
lint: setup ## ruff: rules and format
	@scripts/timed lint $(BIN)/ruff check .
	@scripts/timed format $(BIN)/ruff format --check .

.PHONY: format
format: setup ## ruff: apply the format and the safe fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: types
types: setup ## mypy, strict
	@scripts/timed types $(BIN)/mypy

.PHONY: imports
imports: setup ## import-linter: who may import whom
	@scripts/timed imports $(BIN)/lint-imports --no-logo

.PHONY: pytest
pytest: setup ## the tests alone; ARGS= are passed on
	@scripts/timed tests $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

.PHONY: fuzz-api
fuzz-api: setup ## the API against its OpenAPI document, long: FUZZ_EXAMPLES=300
	@AMENDS_FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) \
		scripts/timed fuzz-api $(BIN)/python -m pytest -n 0 --timeout 3600 tests/api/test_contract.py $(ARGS)

.PHONY: sweep
sweep: setup ## the kill sweep, long: SWEEP_KILLS=200 SWEEP_SAGAS=500
	@AMENDS_SWEEP_KILLS=$(SWEEP_KILLS) AMENDS_SWEEP_SAGAS=$(SWEEP_SAGAS) \
		scripts/timed sweep $(BIN)/python -m pytest -s -n 0 --timeout 3600 tests/e2e/test_kill_sweep.py $(ARGS)

# New releases wait a week. The dev lock is constrained by the runtime lock, so that what is tested
# is what runs. No header: it would quote this command line; no index hosts: hashes suffice.
LOCK = UV_PYTHON_DOWNLOADS=never uv pip compile --quiet --universal --python-version 3.12 \
	--generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
	--exclude-newer '7 days' --upgrade pyproject.toml

.PHONY: lock
lock: ## resolve pyproject.toml into requirements/*.txt anew (needs uv)
	@uv --version >/dev/null 2>&1 || { echo 'make lock needs uv: pip install uv' >&2; exit 1; }
	$(LOCK) --output-file requirements/runtime.txt >/dev/null
	$(LOCK) --group dev --constraint requirements/runtime.txt --output-file requirements/dev.txt >/dev/null
	$(LOCK:pyproject.toml=) --group build --constraint requirements/dev.txt --output-file requirements/build.txt >/dev/null

.PHONY: image
image: ## build the container image (IMAGE=name, BASE=base image, IMAGE_BUILDER=docker or podman)
	$(IMAGE_BUILDER) build --build-arg BASE=$(BASE) --tag $(IMAGE) .

.PHONY: clean
clean: ## remove .venv, caches and build products; never data
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
