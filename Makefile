# octavo's tasks. A stamp in .venv remembers what was installed, so that repeating a target is quick.
PYTHON ?= python3
BIN := .venv/bin
PROMPT ?= Why is the sky blue? Answer in two sentences.

.PHONY: help install native browser demo test test-all test-clients client-environments test-sanitized lint bench-kv bench-peers
.PHONY: bench-load clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

install: native ## make .venv with octavo in it

native: .venv/.native ## build the C++ module again where its sources changed

demo: native ## fetch the default model and answer PROMPT
	$(BIN)/octavo generate smollm2-135m --chat --max-tokens 64 "$(PROMPT)"

test: .venv/.installed-dev native browser ## the default tests, under 8 minutes on two cores
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -q --durations=10 -m "not slow and not clients$(NO_BROWSER)"

# The live page is tested in the system's own browser. OCTAVO_REQUIRE_BROWSER=1 makes it a fault that there is none.
CHROMIUM := $(firstword $(foreach name,chromium chromium-browser google-chrome,$(shell command -v $(name) 2> /dev/null)))
NO_BROWSER := $(if $(CHROMIUM),, and not browser)

browser:
ifeq ($(CHROMIUM),)
	@echo "No Chromium was found, so the tests of the live page are LEFT OUT; apt-get install chromium brings one."
	@test -z "$(OCTAVO_REQUIRE_BROWSER)"
endif

test-all: .venv/.installed-dev native browser ## every test but those of clients, the slow ones too
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -q -m "not clients$(NO_BROWSER)"

CLIENTS := build/clients
CLIENT_ENVIRONMENTS := $(addprefix $(CLIENTS)/,openai-oldest.installed langchain.installed llamaindex.installed node.installed)

test-clients: .venv/.installed-dev native ## clients of OpenAI's protocol, in environments of their own, against octavo serve
	$(MAKE) --no-print-directory -j4 client-environments
	$(BIN)/pytest -q -m clients tests/server/clients

client-environments: $(CLIENT_ENVIRONMENTS)

$(CLIENTS)/%.installed: tests/server/clients/requirements-%.txt | .venv/bin/python
	$(BIN)/python -m venv $(CLIENTS)/$*
	$(CLIENTS)/$*/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r $<
	touch $@

$(CLIENTS)/node.installed: tests/server/clients/package.json
	mkdir -p $(CLIENTS)/node
	cp $< $(CLIENTS)/node
	cd $(CLIENTS)/node && npm install --loglevel=error --no-package-lock --no-audit --no-fund
	touch $@

SANITIZERS = $(foreach name,libasan.so libubsan.so,$(shell $(CXX) -print-file-name=$(name)))

test-sanitized: .venv/.installed-dev native ## the native tests and the conformance suite with address and undefined behaviour checked
	$(BUILD) -S native -B build/sanitized -G Ninja --log-level=WARNING -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DOCTAVO_SANITIZE=address,undefined -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python"
	$(BUILD) --build build/sanitized
	cp --remove-destination build/sanitized/_native*.so src/octavo/ops/native/
	ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$(SANITIZERS)" $(BIN)/pytest -q tests/native tests/ops; \
	  status=$$?; cp --remove-destination build/native/_native*.so src/octavo/ops/native/; exit $$status

lint: .venv/.installed-dev ## style, types, import contracts, sizes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_sizes.py

bench-kv: native ## what the verbs of octavo.kv cost
	$(BIN)/python bench/kv.py

bench-peers: .venv/.installed-dev native ## octavo beside other engines -> docs/peers.md; PEERS="--rounds 1" for a quick look
	$(BIN)/python -m bench.peers $(PEERS)

bench-load: .venv/.installed-dev native ## octavo's server beside other servers, at rising rates -> docs/peers-load.md
	$(BIN)/python -m bench.peers.load $(LOAD)

clean: ## remove what the targets made, not the cached models
	rm -rf .venv build dist src/octavo/ops/native/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "octavo needs Python 3.11 or newer: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv .venv

# Installed in place: sources are seen as they are edited, and only a change of pyproject.toml installs again.
.venv/.installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

.venv/.installed-dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch .venv/.installed $@

# The native module lies beside its Python in the source tree. CMake and Ninja come from the index where the system has none.
NATIVE := $(shell find native -name '*.cpp' -o -name '*.h' -o -name CMakeLists.txt)
BUILD := PATH="$(CURDIR)/$(BIN):$$PATH" cmake

.venv/.native: $(NATIVE) | .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'nanobind>=2.9' \
	  $$(command -v cmake > /dev/null || echo cmake) $$(command -v ninja > /dev/null || echo ninja)
	$(BUILD) -S native -B build/native -G Ninja --log-level=WARNING -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python"
	$(BUILD) --build build/native
	cp --remove-destination build/native/_native*.so src/octavo/ops/native/
	touch $@
