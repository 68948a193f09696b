# Two commands matter: `make demo` and `make test`. Everything that they need, they install under ./.venv
# and ./.tools; nothing is written outside this folder but the package clients' own caches.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
TOOLS := $(CURDIR)/.tools
OPA_VERSION := v1.22.0
OPA := $(TOOLS)/bin/opa
WORKERS ?= 2

export VIRTUAL_ENV := $(VENV)
export PATH := $(BIN):$(TOOLS)/bin:$(PATH)
export UV_PYTHON_DOWNLOADS := never

LOCKS := requirements/bootstrap.txt requirements/base.txt requirements/dev.txt requirements/sdk.txt
RUST_SOURCES := $(wildcard rust/Cargo.toml rust/Cargo.lock rust/build.rs rust/src/*.rs rust/src/*/*.rs)

.PHONY: help
help: ## The targets, one line each
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 14

.PHONY: install
install: $(VENV)/.locked $(VENV)/.native ## The virtual environment, pinned by hash, with the native module built

$(VENV)/.locked: $(LOCKS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/bootstrap.txt
	$(BIN)/uv pip install --quiet --require-hashes -r requirements/base.txt -r requirements/dev.txt -r requirements/sdk.txt
	touch $@

$(VENV)/.native: $(VENV)/.locked $(RUST_SOURCES) pyproject.toml
	@if test -f rust/Cargo.toml; then \
	  echo "maturin develop --release"; $(BIN)/maturin develop --release --uv --quiet && touch $@; \
	else \
	  echo "rust/ is not here yet: the native module is not built"; \
	fi

.PHONY: opa
opa: $(TOOLS)/.opa-$(OPA_VERSION) ## The pinned OPA binary, built from its Go module, in .tools/bin

$(TOOLS)/.opa-$(OPA_VERSION):
	mkdir -p $(TOOLS)/bin
	GOBIN=$(TOOLS)/bin CGO_ENABLED=0 go install -trimpath github.com/open-policy-agent/opa@$(OPA_VERSION)
	touch $@

.PHONY: lock
lock: ## Resolve again and write requirements/*.txt with hashes
	for set in bootstrap:requirements/bootstrap.in base:pyproject.toml dev:requirements/dev.in sdk:requirements/sdk.in; do \
	  $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --custom-compile-command 'make lock' $(LOCK_FLAGS) $${set#*:} -o requirements/$${set%%:*}.txt; \
	done

.PHONY: clean
clean: ## Remove what was built; the virtual environment and the tools stay
	rm -rf rust/target dist build htmlcov .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
