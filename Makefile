# Everything a contributor runs. Needs make and Python 3.11, 3.12 or 3.13; the rest goes into .venv, which is made on demand.

# The first interpreter that is new enough; `make setup PYTHON=/path/to/python` chooses another.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; exit; }; done; echo python3)

BIN := .venv/bin
STAMP := .venv/.installed
SERVES := .venv/.serves
JS := tests/js
JS_STAMP := $(JS)/node_modules/.installed
LLAMA := .venv/llama.cpp
LLAMA_STAMP := $(LLAMA)/.installed
# Tests wait as well as work, so two more of them than there are processors. Files take from milliseconds to a minute: a
# worker that has nothing left takes from the others.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) + 2)
PYTEST := $(BIN)/pytest -q -n $(WORKERS) --dist worksteal
# `make test TESTS=tests/unit` or `make fuzz TESTS=tests/conformance` narrows a run; by default pyproject.toml says what runs.
TESTS ?=
TESTED = $(or $(TESTS),$(if $(CAN_BROWSE),,--ignore=tests/browser))
# The page of the playground is tested in a browser of the machine, if it has one and its driver.
BROWSER := $(shell for p in chromium chromium-browser google-chrome google-chrome-stable chrome; do command -v $$p && break; done)
DRIVER := $(shell p=chromedriver; command -v $$p)
CAN_BROWSE := $(and $(BROWSER),$(DRIVER))
AGENTS := .venv-agents
PARITY := .venv-parity
FUZZ := .venv-fuzz
# A folder of chat templates for `make parity`; those of llama.cpp if none is named.
TEMPLATES ?=
# The environment may have a node of its own, newer than the machine's.
NODE := PATH="$(CURDIR)/$(BIN):$$PATH"
EXAMPLE := examples/claude_code_request.json
comma := ,

.DEFAULT_GOAL := help
.PHONY: help setup browser hooks test cover check check-all lint format types demo real convert-demo fuzz bench parity tiny golden laws map lock agents agents-test agents-lock clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) $(JS_STAMP) $(LLAMA_STAMP) ## make .venv with the project and its development tools, and fetch the JavaScript SDKs and llama.cpp's tests

# The version test comes first: pip would refuse an old interpreter too, but in many more words. A .venv that cannot be
# used is made anew: its Python is too old or gone, or it has no pip, as where Debian's python3-venv was missing.
define INSTALL
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "turnscript needs Python 3.11 or newer, and '$(PYTHON)' is '$$($(PYTHON) --version 2>&1)'."; \
	echo "Install one, or name it: make $(or $(firstword $(MAKECMDGOALS)),setup) PYTHON=/path/to/python3.11"; exit 1; } >&2
@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || $(PYTHON) -m venv --clear .venv
@echo "installing $(1) into .venv"
@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements/dev.txt -e '.[$(2)]' || { \
	$(BIN)/python -c 'import sys; sys.exit(sys.version_info >= (3, 14))' || { \
		echo "Some packages have no wheels yet for a Python as new as '$(PYTHON)'."; \
		echo "Take an older one: rm -rf .venv; make $(or $(firstword $(MAKECMDGOALS)),setup) PYTHON=/path/to/python3.13"; }; exit 1; } >&2
@touch $@
endef

$(STAMP): pyproject.toml requirements/dev.txt
	$(call INSTALL,the project and its tools,dev)

# What serving a model needs, and no more: whoever wants to see it work waits for no tools.
$(SERVES): pyproject.toml requirements/dev.txt
	$(call INSTALL,what serving a model needs,serve$(comma)embedded)

# Node and npm come with .venv. Without the SDKs everything but the tests that ask them works, so only CI ends here.
$(JS_STAMP): $(JS)/package.json $(JS)/package-lock.json $(JS)/.npmrc | $(STAMP)
	@if $(BIN)/npm --prefix $(JS) ci --loglevel=error >/dev/null; then touch $@; else \
		echo "The JavaScript SDKs could not be installed (npm ci in $(JS)): the tests that ask them will fail and say so."; \
		$(if $(CI),exit 1;) fi >&2

# A folder of the sources of llama-cpp-python: the tests of llama.cpp's server come with nothing else.
$(LLAMA_STAMP): requirements/llama-cpp.txt | $(STAMP)
	@rm -rf $(LLAMA)
	@echo "fetching the tests of llama.cpp's server"
	@if $(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --dest $(LLAMA) -r $< >/dev/null && \
		cd $(LLAMA) && tar -xzf *.tar.gz --strip-components=6 "$$(basename *.tar.gz .tar.gz)/vendor/llama.cpp/tools/server/tests"; \
	then rm *.tar.gz; touch .installed; else \
		echo "The tests of llama.cpp's server could not be fetched (requirements/llama-cpp.txt): the tests that run them will fail and say so."; \
		$(if $(CI),exit 1;) fi >&2

# Without a browser everything but the tests of the page can run, so only CI ends here.
browser:
	@$(if $(or $(CAN_BROWSE),$(TESTS)),:,{ \
		echo "The tests of the playground's page cannot run: this machine has no Chromium with its driver in PATH."; \
		echo "Get them with: apt-get install chromium chromium-driver"; \
		$(if $(CI),exit 1,echo "All other tests run; tests/browser is left out."); } >&2)

hooks: setup ## let git run the checks before each commit and push
	$(BIN)/pre-commit install --hook-type pre-commit --hook-type pre-push

# What only a long run shows, and as many examples as that draws, are for ALL=1 and for tests that are named.
test: export HYPOTHESIS_PROFILE ?= $(if $(or $(ALL),$(TESTS)),default,quick)
test: setup browser ## run the tests (TESTS=path narrows, ALL=1 has the long ones too)
	$(PYTEST) $(if $(or $(ALL),$(TESTS)),,-m 'not deep') $(TESTED)

cover: setup browser ## run the tests and report the branches that no test takes
	$(PYTEST) --cov --cov-branch --cov-report=term-missing $(TESTED)

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/codespell

types: setup
	$(BIN)/mypy

# Not prerequisites but one recipe: the order is kept under `make -j` too, and the line that pytest ends with comes last.
check: setup ## everything that must pass before a commit: style, types, layers, spelling, tests
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory test

check-all: ## the same with the tests that take long, as CI runs it
	@$(MAKE) --no-print-directory check ALL=1

format: setup ## put the code in its standard form and apply the safe fixes
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

demo: $(if $(wildcard $(STAMP)),$(STAMP),$(SERVES)) ## serve a tiny model, call a tool through each API, and show how; on a terminal, serve until Ctrl-C
	@$(BIN)/python -m tools.demo

real: setup ## ask a real model to call tools, through each API and of llama.cpp itself (MODEL=file.gguf, ARGS='--limit 12')
	@$(BIN)/python -m tools.real $(if $(MODEL),'$(MODEL)') $(ARGS)

convert-demo: setup ## convert a real Claude Code request to another API and to a transcript
	$(BIN)/turnscript convert $(EXAMPLE) --from anthropic-messages --to openai-chat --losses -
	$(BIN)/turnscript convert $(EXAMPLE) --from anthropic-messages --to rwkv-universal

fuzz: setup $(FUZZ)/.installed ## look for inputs that break a reader, guided by what code they reach (SECONDS=60 for each kind), then run the property tests with many more examples (hours; TESTS=path narrows)
	$(FUZZ)/bin/python -m tools.fuzz --seconds $(or $(SECONDS),60)
	HYPOTHESIS_PROFILE=fuzz $(PYTEST) -m hypothesis $(TESTS)

$(FUZZ)/.installed: tools/fuzz/requirements.txt pyproject.toml
	test -x $(FUZZ)/bin/python || $(PYTHON) -m venv $(FUZZ)
	$(FUZZ)/bin/python -m pip install --quiet --disable-pip-version-check -c requirements/dev.txt -r tools/fuzz/requirements.txt -e '.[data]'
	@touch $@

bench: ## measure speed, in benchmarks/ and with an environment of its own
	$(MAKE) -C benchmarks run

parity: $(PARITY)/.installed ## compare prompts with those of transformers, and read turns back, over many models' templates (TEMPLATES=folder ARGS="--write docs/models.md")
	$(PARITY)/bin/python -m tools.parity $(if $(TEMPLATES),--templates '$(TEMPLATES)') $(ARGS)

# An environment of its own: transformers is large, and nothing but this needs it. It also keeps the templates.
$(PARITY)/.installed: tools/parity/requirements.txt pyproject.toml
	test -x $(PARITY)/bin/python || $(PYTHON) -m venv $(PARITY)
	$(PARITY)/bin/python -m pip install --quiet --disable-pip-version-check -r tools/parity/requirements.txt -e .
	@touch $@

tiny: ## make the tiny model anew, from nothing, and judge it (OUT=folder, STEPS=14000 or MINUTES=60)
	$(MAKE) -C tiny model $(if $(OUT),OUT='$(abspath $(OUT))') $(if $(STEPS),STEPS=$(STEPS)) $(if $(MINUTES),MINUTES=$(MINUTES))

golden: setup ## rewrite the golden files of a format, a model's table or an API (NAME=rwkv-goose), or all; then read the difference
	$(PYTEST) tests/conformance/test_format_goldens.py tests/conformance/test_template_goldens.py tests/answers/test_goldens.py tests/unit/test_example_formats.py::test_an_example_writes_what_it_wrote --update-golden $(if $(NAME),-k '$(NAME)')

laws: export HYPOTHESIS_PROFILE ?= $(if $(FORMAT),default,quick)
laws: setup ## hold all laws of formats on a single one (FORMAT=my.toml, or a name such as qwen3), or on the tables of all models
	$(PYTEST) tests/conformance --format '$(or $(FORMAT),models)'

map: setup ## rewrite the file map in AGENTS.md from the module docstrings
	$(BIN)/python -m tools.agents_map

# A fresh environment without the old pins, so that the lock holds what pyproject.toml allows today and nothing else.
lock: ## rewrite requirements/dev.txt with today's versions
	$(PYTHON) -m venv --clear .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	{ sed '/^[^#]/d' requirements/dev.txt; \
	  .venv-lock/bin/python -m pip freeze --disable-pip-version-check --exclude-editable; } > requirements/dev.new
	mv requirements/dev.new requirements/dev.txt
	rm -rf .venv-lock

agents: setup $(AGENTS)/.installed ## install the real agents that agents-test drives (2.1 GB, two minutes)

# One folder for both: a virtual environment, and node's modules in it. Not `npm ci`, which wants every system's binaries.
$(AGENTS)/.installed: tests/agents/package.json tests/agents/package-lock.json tests/agents/requirements.txt
	@$(NODE) node -e 'process.exit(parseInt(process.versions.node) < 22 ? 1 : 0)' 2>/dev/null || { \
		echo "the agents need node 22 or newer in PATH"; exit 1; } >&2
	$(BIN)/python -m venv $(AGENTS)
	$(AGENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps -r tests/agents/requirements.txt
	cp tests/agents/package.json tests/agents/package-lock.json tests/agents/.npmrc $(AGENTS)/
	$(NODE) npm install --no-save --prefix $(AGENTS)
	@touch $@

agents-test: agents ## run real agents against the gateway
	$(BIN)/pytest -q -n auto tests/agents

agents-lock: ## rewrite the locks of the agents with what package.json and requirements.in name
	$(PYTHON) -m venv --clear .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check -r tests/agents/requirements.in
	{ sed '/^[^#]/d' tests/agents/requirements.txt; \
	  .venv-lock/bin/python -m pip freeze --disable-pip-version-check; } > tests/agents/requirements.new
	mv tests/agents/requirements.new tests/agents/requirements.txt
	cp tests/agents/package.json tests/agents/.npmrc .venv-lock/
	$(NODE) npm install --package-lock-only --prefix .venv-lock
	mv .venv-lock/package-lock.json tests/agents/
	rm -rf .venv-lock

clean: ## remove .venv and everything that the tools left behind
	rm -rf .venv .venv-* $(JS)/node_modules .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage build dist
	find src tests tools benchmarks tiny -name __pycache__ -type d -prune -exec rm -rf {} +
