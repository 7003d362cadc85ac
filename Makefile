# Every target sets itself up: on a machine with Python 3.11+, make, gcc and Java, `make run` and
# `make test` need nothing done first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH := .bench-venv
WORKERS ?= 2

.PHONY: help install run test test-fast test-long tools lint format bench docs clean lock lock-image sbom

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "streamdp needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "cannot create a virtual environment; on Debian: apt-get install python3-venv"; exit 1; }
	@echo "installing pinned dependencies into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

install: $(STAMP) ## create .venv with the pinned dependencies

run: install ## the main job, on the embedded default: a daemon, a stream, its releases
	$(BIN)/streamdp demo

test: lint tools ## everything but the long campaigns
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup -m "not long"

test-fast: install ## the fast tests, under a minute
	$(BIN)/pytest -n $(WORKERS) -q -m "not slow and not long and not kafka"

test-long: install tools ## the long campaigns: kills, soaks, big audits
	$(BIN)/pytest -m long -s

tools: ## the programs some tests drive (Kafka's Maven, kcat, Chromium, Prometheus), where they can be installed
	@tests/tools.sh

lint: install ## ruff, mypy --strict, the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: install ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Peers live in pinned environments of their own: .bench-venv for requirements.txt, .bench-venv-kmeans for
# requirements-kmeans.txt, and so on.
.SECONDEXPANSION:
.bench-venv%/.installed: benchmarks/requirements$$*.txt
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(BENCH)/.installed: benchmarks/requirements.txt
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

bench: install $(BENCH)/.installed $(BENCH)-kmeans/.installed $(BENCH)-privpfc/.installed \
  $(BENCH)-copula/.installed $(BENCH)-strategies/.installed ## benchmarks, as ratios against named peers or limits in the same run
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/filelog.py
	$(BIN)/python benchmarks/population.py
	$(BIN)/python benchmarks/release_cost.py
	$(BIN)/python benchmarks/hindsight.py
	$(BIN)/python benchmarks/ingest.py --peer $(BENCH)/bin/python
	$(BIN)/python benchmarks/replay.py
	$(BIN)/python -W ignore benchmarks/kafka.py --peer $(BENCH)/bin/python
	$(BIN)/python benchmarks/kmeans.py --peer $(BENCH)-kmeans/bin/python
	$(BIN)/python benchmarks/privpfc.py --peer $(BENCH)-privpfc/bin/python
	$(BIN)/python benchmarks/histograms.py
	$(BIN)/python benchmarks/copula.py --peer $(BENCH)-copula/bin/python
	$(BIN)/python benchmarks/strategies.py --peer $(BENCH)-strategies/bin/python
	$(BIN)/python benchmarks/strategies.py --peer $(BENCH)-strategies/bin/python --held-out
	$(BIN)/python benchmarks/personalized.py

docs: install ## regenerate the pages that are made from the code
	$(BIN)/python -m streamdp.config.document > docs/configuration.md
	$(BIN)/python -m streamdp.cli._document > docs/commands.md
	$(BIN)/python -m streamdp.observe.metrics > docs/metrics.md

# No address of an index is written. uv does not read pip's configuration: for another index set UV_DEFAULT_INDEX.
HASHED = .lock-venv/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --only-binary :all: \
  --emit-build-options --no-annotate --custom-compile-command 'make lock'

lock: ## refresh constraints.txt and the image's hashed requirements from pyproject.toml
	$(PYTHON) -m venv .lock-venv
	.lock-venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	.lock-venv/bin/python -m pip freeze --exclude-editable --exclude streamdp > constraints.txt
	$(MAKE) lock-image

lock-image: ## refresh only the image's hashed requirements, at the versions of constraints.txt
	test -x .lock-venv/bin/python || $(PYTHON) -m venv .lock-venv
	.lock-venv/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.8
	$(HASHED) -c constraints.txt pyproject.toml -o deploy/requirements.txt
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  | $(HASHED) - -o deploy/requirements-build.txt
	rm -rf .lock-venv

# The environment that the Dockerfile makes, but for streamdp itself, which pyproject.toml describes.
IMAGE_VENV := .image-venv
SBOM := build/streamdp.cdx.json

$(IMAGE_VENV)/.installed: deploy/requirements.txt | .sbom-venv/.installed
	@$(PYTHON) -m venv --clear --without-pip $(@D)
	@.sbom-venv/bin/pip --python $(@D) install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

.sbom-venv/.installed: deploy/requirements-sbom.txt
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

sbom: .sbom-venv/.installed $(IMAGE_VENV)/.installed ## a CycloneDX list of the packages in the image: build/streamdp.cdx.json
	@mkdir -p $(dir $(SBOM))
	.sbom-venv/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --output-reproducible \
	  --validate --of JSON -o $(SBOM) $(IMAGE_VENV)

clean: ## remove what the targets made
	rm -rf $(VENV) $(BENCH)* .lock-venv .sbom-venv .image-venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
