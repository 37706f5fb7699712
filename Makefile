PYTHON ?= python3
ARGS ?=
# Test processes. Many tests wait for brokers and timers, so more than there are cores.
WORKERS ?= 4

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
DEV_STAMP := $(VENV)/.stamp-dev
AZURITE := tests/azurite
AZURITE_STAMP := $(VENV)/azurite/.stamp
BROWSER := tests/browser
BROWSER_STAMP := $(VENV)/browser/.stamp
ASYNCAPI := tests/asyncapi
ASYNCAPI_STAMP := $(VENV)/asyncapi/.stamp
SDKS := tests/azuresdk
SDKS_STAMP := $(VENV)/azuresdk/.stamp
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
COMPILED_STAMP := build/compiled/.stamp
# COMPILED=1 runs tests and benchmarks on the compiled modules.
PYTHON_OF := $(if $(COMPILED),PYTHONPATH=$(abspath $(dir $(COMPILED_STAMP))) )$(BIN)/python
# What `make test-fast` runs: folders whose tests start no server and no browser, but for those marked as slow.
FAST := $(addprefix tests/,api conformance contract core engine ingress insight platform simulation)
# The trees the type checker covers, as far as they exist.
CODE := $(wildcard src tests bench tools)

COMPILE = uv pip compile --quiet --universal --generate-hashes --no-header \
	--no-emit-index-url --no-annotate --python-version 3.11

.DEFAULT_GOAL := help
.PHONY: azurite help setup demo check format test test-fast explore simulate bench matrix compiled dist sbom chart docs site lock clean

help: ## Show this help
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv with what LUCIUS and its services need to run, pinned

$(STAMP): pyproject.toml requirements/services.txt requirements/build.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --no-deps --require-hashes -r requirements/services.txt -r requirements/build.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

# What only developers need: checkers, test tools, brokers and the SDKs of all backends.
$(DEV_STAMP): $(STAMP) requirements/dev.txt
	$(INSTALL) --no-deps --require-hashes -r requirements/dev.txt
	@touch $@

demo: setup ## Run the demonstration
	$(BIN)/lucius demo $(ARGS)

check: $(DEV_STAMP) ## Check format, lint, types, import contracts and generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports
	$(if $(wildcard tools),$(BIN)/python -m tools.generate --check)

format: $(DEV_STAMP) ## Format the code and apply safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Azure Tables and Blob on this machine, for the tests and `lucius up --stack azure`.
$(AZURITE_STAMP): $(DEV_STAMP) $(AZURITE)/package.json $(AZURITE)/package-lock.json
	mkdir -p $(@D) && cp $(AZURITE)/package.json $(AZURITE)/package-lock.json $(@D)
	cd $(@D) && PATH="$(abspath $(BIN)):$$PATH" npm ci --silent --no-audit --no-fund
	@touch $@

azurite: $(AZURITE_STAMP) ## Install Azurite, for `lucius up --stack azure`

# Chromium and axe-core, for the tests of the console.
$(BROWSER_STAMP): $(DEV_STAMP) $(BROWSER)/package.json $(BROWSER)/package-lock.json $(BROWSER)/unpack.py
	mkdir -p $(@D) && cp $(BROWSER)/package.json $(BROWSER)/package-lock.json $(BROWSER)/.npmrc $(@D)
	cd $(@D) && PATH="$(abspath $(BIN)):$$PATH" npm ci --silent --no-audit --no-fund --ignore-scripts
	$(BIN)/python $(BROWSER)/unpack.py $(@D)
	@touch $@

# The JSON schemas of AsyncAPI, for the tests of the document of the bus.
$(ASYNCAPI_STAMP): $(DEV_STAMP) $(ASYNCAPI)/package.json $(ASYNCAPI)/package-lock.json
	mkdir -p $(@D) && cp $(ASYNCAPI)/package.json $(ASYNCAPI)/package-lock.json $(ASYNCAPI)/.npmrc $(@D)
	cd $(@D) && PATH="$(abspath $(BIN)):$$PATH" npm ci --silent --no-audit --no-fund --ignore-scripts
	@touch $@

# Microsoft's SDKs for JavaScript, which judge the stand-ins.
$(SDKS_STAMP): $(DEV_STAMP) $(SDKS)/package.json $(SDKS)/package-lock.json
	mkdir -p $(@D) && cp $(SDKS)/package.json $(SDKS)/package-lock.json $(SDKS)/.npmrc $(@D)
	cd $(@D) && PATH="$(abspath $(BIN)):$$PATH" npm ci --silent --no-audit --no-fund --ignore-scripts
	@touch $@

test: $(DEV_STAMP) $(AZURITE_STAMP) $(BROWSER_STAMP) $(ASYNCAPI_STAMP) $(SDKS_STAMP) $(if $(COMPILED),$(COMPILED_STAMP)) ## Run the tests (ARGS= is passed to pytest)
	$(PYTHON_OF) -m pytest -n $(WORKERS) --dist loadgroup $(if $(COMPILED),-m "not of_the_sources") $(ARGS)

test-fast: $(DEV_STAMP) ## Run the quick tests of the core, the engine, the kit and HTTP: no brokers, browsers or Azurite
	$(PYTHON_OF) -m pytest -n auto -m "not slow" $(or $(ARGS),$(FAST))

explore: $(DEV_STAMP) ## Explore the core's state space in depth
	$(BIN)/python -m tests.core.explore --deep $(ARGS)

simulate: $(DEV_STAMP) ## Simulate the engine under faults (ARGS="--seeds 1000", "--seed 7 --trace")
	$(BIN)/python -m tests.simulation $(ARGS)

bench: $(DEV_STAMP) $(if $(COMPILED),$(COMPILED_STAMP)) ## Run the benchmarks
	$(PYTHON_OF) -m bench $(ARGS)

matrix: ## Run check and test-fast on every supported Python that is installed here
	@$(PYTHON) -m tools.matrix

# A copy of the whole package with its hot modules compiled. Nothing is put beside the sources, where it would
# hide changes of theirs; and a copy that is older than a source is made anew.
compiled: $(COMPILED_STAMP) ## Compile the hot modules into build/compiled (PYTHONPATH= runs it; COMPILED=1 tests it)

$(COMPILED_STAMP): $(DEV_STAMP) setup.py pyproject.toml $(shell find src -type f -not -path '*/__pycache__/*' -not -path '*.egg-info/*')
	rm -rf build
	LUCIUS_COMPILED=1 $(INSTALL) --no-deps --no-build-isolation --target $(@D) .
	PYTHONPATH=$(@D) $(BIN)/python -m lucius --version | grep compiled
	@touch $@

dist: $(STAMP) ## Build the sdist and the wheel into dist: the same bytes for the same commit
	$(BIN)/python -m tools.dist

# Of the libraries that the image and the packaged services bring. It names no date, and no number of its own.
sbom: $(DEV_STAMP) ## Write the list of parts of a release into dist (CycloneDX)
	@mkdir -p dist
	cat requirements/image.txt requirements/services.txt | $(BIN)/cyclonedx-py requirements \
		--pyproject pyproject.toml --output-reproducible --output-file dist/lucius.cdx.json -

chart: $(DEV_STAMP) ## Package the Helm chart into dist
	@mkdir -p dist
	$(BIN)/helm package --destination dist deploy/chart

docs: $(DEV_STAMP) ## Regenerate the generated documentation
	$(BIN)/python -m tools.generate $(ARGS)

site: $(DEV_STAMP) ## Build the site into build/site; a link that leads nowhere is an error
	$(BIN)/python -m tools.site
	$(BIN)/mkdocs build --strict --config-file build/mkdocs.yml

lock: ## Regenerate the pinned requirements (ARGS=--upgrade to move all pins)
	@set -eu; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(PYTHON) -m venv "$$tmp"; \
	"$$tmp/bin/python" -m pip install --quiet --disable-pip-version-check uv; \
	"$$tmp/bin/"$(COMPILE) $(ARGS) pyproject.toml --extra dev -o requirements/dev.txt; \
	"$$tmp/bin/"$(COMPILE) $(ARGS) pyproject.toml -c requirements/dev.txt -o requirements/runtime.txt; \
	"$$tmp/bin/"$(COMPILE) $(ARGS) pyproject.toml --extra services -c requirements/dev.txt -o requirements/services.txt; \
	"$$tmp/bin/"$(COMPILE) $(ARGS) pyproject.toml --extra azure --extra nats --extra temporal -c requirements/dev.txt \
		-o requirements/image.txt; \
	printf 'setuptools\n' | "$$tmp/bin/"$(COMPILE) - -c requirements/dev.txt -o requirements/build.txt

clean: ## Remove the environment, builds and caches
	rm -rf $(VENV) .venvs build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache \
		.import_linter_cache .hypothesis .schemathesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
