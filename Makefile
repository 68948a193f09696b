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
OPA_VERSION := v1.22.2
OPA := $(TOOLS)/bin/opa
REGAL_VERSION := v0.39.0
REGAL := $(TOOLS)/bin/regal
WORKERS ?= 2
COVERAGE := 97
ENFORCEMENT := $(shell grep '^src/' tests/enforcing.txt | paste -sd, -)

export VIRTUAL_ENV := $(VENV)
export PATH := $(BIN):$(TOOLS)/bin:$(PATH)
export UV_PYTHON_DOWNLOADS := never
# Tests start hundreds of processes, each of which would compile all that it imports where nothing may be kept.
unexport PYTHONDONTWRITEBYTECODE

LOCKS := requirements/bootstrap.txt requirements/base.txt requirements/dev.txt requirements/sdk.txt requirements/integrations.txt
RUST_SOURCES := $(wildcard rust/Cargo.toml rust/Cargo.lock rust/build.rs rust/src/*.rs rust/src/*/*.rs)

.PHONY: help
help: ## The targets, one line each
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 14

.PHONY: install
install: $(VENV)/.locked $(VENV)/.native ## The virtual environment, pinned by hash, with the native module built

$(VENV)/.locked: $(LOCKS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/bootstrap.txt
	$(BIN)/uv pip install --quiet --require-hashes -r requirements/base.txt -r requirements/dev.txt -r requirements/sdk.txt -r requirements/integrations.txt
	touch $@

$(VENV)/.native: $(VENV)/.locked $(RUST_SOURCES) pyproject.toml
	$(BIN)/maturin develop --release --uv --quiet
	touch $@

.PHONY: opa
opa: $(TOOLS)/.opa-$(OPA_VERSION) ## The pinned OPA binary, built from its Go module, in .tools/bin

$(TOOLS)/.opa-$(OPA_VERSION):
	mkdir -p $(TOOLS)/bin
	GOBIN=$(TOOLS)/bin CGO_ENABLED=0 go install -trimpath github.com/open-policy-agent/opa@$(OPA_VERSION)
	rm -f $(TOOLS)/.opa-*
	touch $@

.PHONY: regal
regal: $(TOOLS)/.regal-$(REGAL_VERSION) ## The pinned Rego linter, built from its Go module, in .tools/bin

# Not `go install`: it asks for the list of all versions too, which not every module proxy has.
$(TOOLS)/.regal-$(REGAL_VERSION):
	mkdir -p $(TOOLS)/bin
	source=$$(go mod download -json github.com/open-policy-agent/regal@$(REGAL_VERSION) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p'); \
	  cd "$$source" && CGO_ENABLED=0 go build -mod=readonly -trimpath -o $(REGAL) .
	rm -f $(TOOLS)/.regal-*
	touch $@

.PHONY: chromium
chromium: ## A browser for the tests of the playground, from the system's packages; none is downloaded otherwise
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	  || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; }

.PHONY: postgres
postgres: ## A PostgreSQL server for the tests of the store, from the system's packages; they run it as its own user
	command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 \
	  || { apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql >/dev/null; }

.PHONY: demo
demo: install ## One agent conversation, judged part by part, in the terminal
	$(BIN)/python examples/demo.py

INTEGRATIONS := $(patsubst requirements/integrations/%.txt,$(TOOLS)/integrations/%/.locked,$(wildcard requirements/integrations/*.txt))

.PHONY: integrations
integrations: $(INTEGRATIONS) ## Virtual environments of what the tests try in one of its own

# What wants other versions than the rest has a virtual environment of its own, with what the product itself needs.
$(TOOLS)/integrations/%/.locked: requirements/integrations/%.txt $(VENV)/.locked
	test -x $(TOOLS)/integrations/$*/bin/python || $(PYTHON) -m venv $(TOOLS)/integrations/$*
	VIRTUAL_ENV=$(TOOLS)/integrations/$* $(BIN)/uv pip install --quiet --require-hashes -r $<
	touch $@

.PHONY: demo-review
demo-review: install ## An hour of made-up traffic on record, and the review site over it: open what it prints
	$(BIN)/python -m examples.demo_review .demo $(REVIEW_FLAGS)

.PHONY: test
test: install opa $(INTEGRATIONS) ## Everything CI runs: the tests, with the coverage gate
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --cov --cov-branch --cov-report=term --cov-fail-under=$(COVERAGE) $(PYTEST_FLAGS)
	@$(BIN)/coverage report --include='$(ENFORCEMENT)' --fail-under=100 > .coverage-enforcement \
	  || { cat .coverage-enforcement; echo "enforcement code is not covered in full"; exit 1; }

.PHONY: quick
quick: install ## The inner loop: the tests nearest to what changed, and the floors, in a minute
	@$(BIN)/python -m scripts.quick

.PHONY: check
check: ## Style, types, import floors, Rust lints, Rego lints, links of the documentation
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check-python check-rust check-policies check-docs

.PHONY: check-python
check-python: $(VENV)/.locked
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: check-rust
# As maturin asks for it: otherwise a build script that both share is run anew, and with it the module built anew.
check-rust: PYO3_CONFIG = $(firstword $(wildcard $(CURDIR)/rust/target/maturin/pyo3-config-*.txt))
check-rust:
	cargo fmt --manifest-path rust/Cargo.toml --check
	$(if $(PYO3_CONFIG),PYO3_CONFIG_FILE=$(PYO3_CONFIG) PYO3_BUILD_EXTENSION_MODULE=1 )cargo clippy --manifest-path rust/Cargo.toml --locked --quiet --release -- -D warnings

.PHONY: check-policies
check-policies: opa regal
	$(OPA) fmt --diff --fail policies examples/cookbook src/pipeline/templates
	$(OPA) check --strict --bundle --capabilities policies/capabilities.json policies
	$(REGAL) lint policies
	$(REGAL) lint --config-file src/pipeline/templates/common/dot-regal/config.yaml examples/cookbook src/pipeline/templates

SITE := $(TOOLS)/docs
MKDOCS := NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --quiet --strict

$(SITE)/.locked: requirements/docs.txt $(VENV)/.locked
	test -x $(SITE)/bin/python || $(PYTHON) -m venv $(SITE)
	VIRTUAL_ENV=$(SITE) $(BIN)/uv pip install --quiet --require-hashes -r $<
	touch $@

.PHONY: check-docs
check-docs: $(SITE)/.locked
	site=$$(mktemp -d); trap 'rm -rf "$$site"' EXIT; $(MKDOCS) --site-dir "$$site"

.PHONY: site
site: $(SITE)/.locked ## The documentation as a site with search, in build/site
	$(MKDOCS)

.PHONY: format
format: $(VENV)/.locked ## Rewrite Python, Rust and Rego in house format
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .
	cargo fmt --manifest-path rust/Cargo.toml
	test ! -x $(OPA) || $(OPA) fmt --write policies

.PHONY: docs
docs: $(VENV)/.native ## The generated pages: docs/reference.md, docs/rules, docs/cookbook, docs/input.md, docs/settings.md
	$(BIN)/python -m scripts.reference
	$(BIN)/python -m scripts.rule_pages
	$(BIN)/python -m scripts.cookbook
	$(BIN)/python -m scripts.input_reference
	$(BIN)/python -m scripts.settings_reference
	$(BIN)/python -m scripts.architecture

.PHONY: cldr
cldr: $(SITE)/.locked ## Names of countries, languages, months and units from CLDR: src/pipeline/provenance/cldr.json
	$(SITE)/bin/python scripts/cldr.py

.PHONY: proof
proof: install opa ## The proofs at full size; writes docs/proofs/<date>.md
	mkdir -p docs/proofs
	CMF_PROOF_SCALE=1 CMF_PROOF_TABLE=docs/proofs/$$(date -u +%F).md $(BIN)/pytest -m proof $(PYTEST_FLAGS)

.PHONY: wire-report
wire-report: $(VENV)/.locked ## What holds of each wire format over the recorded traffic; WIRE_FLAGS="--scale 0.1 gemini"
	$(BIN)/python -m tests.cmf.adapters.report --judge tests.policies.judge:SECRETS $(WIRE_FLAGS)

PEERS := cpex regorus litellm litellm_proxy pydantic_ai
BENCH_TOOLS := $(PEERS:%=$(TOOLS)/bench/%/.locked)

# Each peer has a virtual environment of its own: what they depend on does not go together.
$(TOOLS)/bench/%/.locked: bench/requirements/%.txt $(VENV)/.locked
	test -x $(TOOLS)/bench/$*/bin/python || $(PYTHON) -m venv $(TOOLS)/bench/$*
	VIRTUAL_ENV=$(TOOLS)/bench/$* $(BIN)/uv pip install --quiet --require-hashes -r $<
	touch $@

.PHONY: conformance
conformance: install ## What policy does to each kind of content, in every dialect, MCP too: asked, and printed
	$(BIN)/python -m tests.pipeline.gateway.conformance

.PHONY: bench-peers
bench-peers: $(BENCH_TOOLS) opa ## What measurements compare with, each in a virtual environment of its own

.PHONY: bench
bench: install bench-peers ## All measurements, full length, on this machine, and the page of them; BENCH="core decide"
	$(BIN)/python -m bench $(BENCH)
	test -n "$(BENCH)" || $(MAKE) bench-instructions

.PHONY: bench-quick
bench-quick: install bench-peers ## The same measurements, short; nothing is kept
	$(BIN)/python -m bench --quick $(BENCH)

.PHONY: bench-instructions
bench-instructions: install ## Instructions of fixed workloads against those that are kept, by valgrind; KEEP=1 keeps them
	command -v valgrind >/dev/null || { echo "valgrind is not installed: apt-get install valgrind"; exit 1; }
	$(BIN)/python -m bench.instructions $(if $(KEEP),--keep)

.PHONY: bench-lock
bench-lock: $(VENV)/.locked ## Resolve again and write bench/requirements/*.txt with hashes
	for peer in $(PEERS); do \
	  $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --custom-compile-command 'make bench-lock' $(LOCK_FLAGS) bench/requirements/$$peer.in -o bench/requirements/$$peer.txt; \
	done

.PHONY: wheel
wheel: $(VENV)/.locked ## A manylinux2014 wheel and an sdist in dist/
	$(BIN)/uv pip install --quiet --require-hashes -r requirements/wheel.txt
	rm -rf dist
	$(BIN)/maturin sdist --out dist
	$(BIN)/maturin build --release --zig --compatibility manylinux2014 --out dist

.PHONY: lock
lock: ## Resolve again and write requirements/*.txt with hashes
	for set in bootstrap:requirements/bootstrap.in base:pyproject.toml dev:pyproject.toml wheel:requirements/wheel.in docs:requirements/docs.in sdk:requirements/sdk.in integrations:requirements/integrations.in \
	  $(foreach one,$(patsubst requirements/integrations/%.in,%,$(wildcard requirements/integrations/*.in)),integrations/$(one):requirements/integrations/$(one).in); do \
	  name=$${set%%:*}; more=; \
	  case $$name in base) more='--extra all --extra ray';; dev) more='--extra dev -c requirements/base.txt';; integrations/*) more='pyproject.toml --extra all';; esac; \
	  $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --custom-compile-command 'make lock' $(LOCK_FLAGS) $${set#*:} $$more -o requirements/$$name.txt; \
	done

.PHONY: clean
clean: ## Remove what was built; the virtual environment and the tools stay
	rm -rf rust/target dist build htmlcov .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
