# `make help` lists the targets. Every target builds .venv first when it is missing or out of date.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PIP = $(BIN)/pip install -qq --disable-pip-version-check
# The CPU's torch comes from PyTorch's own index, by the command of its install page; the pins of requirements.txt hold for both.
CPU := --index-url https://download.pytorch.org/whl/cpu
WANTED := $(if $(filter command,$(origin TORCH)),$(TORCH))# that of the environment is somebody else's
$(if $(filter-out cpu,$(WANTED)),$(error TORCH=$(WANTED): say TORCH=cpu, or leave it out))
# DVC runs each stage by a shell: the environment's python comes first on its path. Threads that wait spin for microseconds
# only: by default they spin for milliseconds, which on a busy machine makes small steps ten times slower.
RUN := PATH="$(CURDIR)/$(BIN):$$PATH" GOMP_SPINCOUNT=20000

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help env repro test soak check docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(READY) ## build .venv alone, to use spml by hand: . .venv/bin/activate; TORCH=cpu leaves CUDA out

repro: $(READY) ## run what is stale, raw images to report; PROFILE=name uses profiles/name.yaml, ROOT=folder its raw data
	@if [ -n "$(ROOT)" ] && [ -z "$(PROFILE)" ]; then echo "ROOT needs PROFILE: make repro PROFILE=voc_photos ROOT=folder" >&2; exit 2; fi
	@began=$$(date +%s); export $(RUN); \
	$(if $(PROFILE),spml profile "$(PROFILE)" $(if $(ROOT),--root "$(ROOT)") &&) \
	spml check && dvc repro && \
	echo "Report: $(CURDIR)/report/index.html ($$(( $$(date +%s) - began )) s)"

test: $(READY) ## run all tests
	@$(RUN) python -m pytest -q -n 2 --dist loadfile

soak: $(READY) ## kill stages 200 times and dvc repro 10 times, and compare every byte (20 minutes)
	@$(RUN) python -m benchmarks.soak

check: $(READY) ## format, lint, types and the fast tests
	@$(RUN); export PATH; ruff format --check . && ruff check . && pyright --pythonpath $(BIN)/python && \
	python -m pytest -q -n 2 --dist loadfile -m "not slow"

docs: $(READY) ## build the pages of docs/ as a site in site/; a broken link is an error
	@$(RUN) NO_MKDOCS_2_WARNING=1 python -m mkdocs build --strict --quiet && echo "Site: $(CURDIR)/site/index.html"

clean: ## remove .venv and what tools left; data, runs, report and DVC's cache stay
	rm -rf .venv site .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

$(READY): requirements.txt pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || { echo "No $(PYTHON) here: make PYTHON=/path/to/python3.11 (3.11 to 3.13)" >&2; exit 2; }
	@"$(PYTHON)" -c 'import sys; ok = (3, 11) <= sys.version_info[:2] <= (3, 13); \
	ok or sys.exit("Python 3.11, 3.12 or 3.13 is needed, this is %d.%d: make PYTHON=/path/to/python3.11" % sys.version_info[:2])'
	@"$(PYTHON)" -m venv .venv
	@echo "Installing what requirements.txt names into .venv (2 to 7 minutes the first time; $(if $(WANTED),torch without CUDA,6.5 GB; most is torch's CUDA libraries: without them by make env TORCH=cpu))"
	$(if $(WANTED),@$(PIP) $(CPU) $$(grep -E '^torch(vision)?==' requirements.txt))
	@$(PIP) --requirement requirements.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $(READY)
