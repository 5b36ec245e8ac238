# The two commands are `make demo` and `make test`. Both make their own environment in .venv first.
PYTHON ?= python3
ARGS ?=
SERVICES ?=
BIN := .venv/bin
# `make test SERVICES=all` fetches every server and lets none be missing.
ifeq ($(SERVICES),all)
export WINDSOCK_REQUIRE_ALL := 1
endif

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types imports unit contract live services services-stop verify soak hunt bench pages lock format clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.venv/.ready: pyproject.toml requirements/bootstrap.txt requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
		|| (echo "Windsock needs Python 3.11, 3.12 or 3.13: make $(MAKECMDGOALS) PYTHON=python3.12" && exit 1)
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@$(BIN)/uv pip sync --system-certs --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements/dev.txt requirements/bootstrap.txt
	@$(BIN)/uv pip install --system-certs --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

demo: .venv/.ready  ## a real Airflow with Windsock: files and webhooks start runs (ARGS="--once --json")
	@$(BIN)/windsock demo $(ARGS)

test: check contract live  ## everything that can run here (SERVICES=all: every server is fetched, none may miss)

check: lint types imports unit  ## lint, types, import direction, unit tests: a minute or two

lint: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.ready
	$(BIN)/mypy

imports: .venv/.ready
	$(BIN)/lint-imports

unit: .venv/.ready
	$(BIN)/pytest -q -n 2 --dist loadfile tests/unit tests/docs tests/reference

contract: .venv/.ready  ## the contract suites over real databases and brokers, and the property tests
ifeq ($(SERVICES),all)
	@$(BIN)/python -m windsock.testing.services install
endif
	$(BIN)/pytest -q -n 3 --dist loadfile --reruns 1 tests/contract tests/property

live: .venv/.ready  ## live tests on a real Airflow: kill, burst, paused, poison
	$(BIN)/pytest -q --reruns 1 tests/live

services: .venv/.ready  ## fetch and start every server on loopback, no Docker, no root (ARGS="kafka redis")
	@$(BIN)/python -m windsock.testing.services start $(ARGS)

services-stop: .venv/.ready  ## end exactly those
	@$(BIN)/python -m windsock.testing.services stop

verify: .venv/.ready  ## play every reference Dag on a real Airflow (ARGS="117_01_01 --json")
	@$(BIN)/python -m windsock.testing.verify $(ARGS)

soak: .venv/.ready  ## the long kill test (ARGS="--minutes 10")
	PYTHONPATH=tests $(BIN)/python -m live.soak $(ARGS)

hunt: .venv/.ready  ## look for examples that break a property: new ones each time, many more than `make test`
	HYPOTHESIS_PROFILE=default WINDSOCK_LIVES=10 $(BIN)/pytest -q -n 2 tests/property $(ARGS)

bench: .venv/.ready  ## Windsock beside stock Airflow and the raw insert loop (ARGS="--quick")
	$(BIN)/python benchmarks/run.py $(ARGS)

pages: .venv/.ready  ## write the generated reference pages anew
	@$(BIN)/python -m windsock.testing.source_pages

lock: .venv/.ready  ## write the lock files anew
	$(BIN)/uv pip compile requirements/bootstrap.in --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --quiet --output-file requirements/bootstrap.txt
	$(BIN)/uv pip compile pyproject.toml --extra all --group dev --universal --python-version 3.11 \
		--generate-hashes --no-header --quiet --output-file requirements/dev.txt

format: .venv/.ready  ## mend what can be mended by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove the environment and the demo's data
	rm -rf .venv .windsock
