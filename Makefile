# Two commands need nothing but Python >= 3.10 and make: `make demo` and `make test`.

PYTHON ?= python3
PYTHON_OLDEST ?= python3.10
JOBS ?= 2
VENV := .venv
VENV_OLDEST := .venv-oldest
RUN := $(VENV)/bin/python
# --no-compile: most modules of what is installed are never imported, and compiling all of them takes half a minute.
PIP := $(RUN) -m pip --disable-pip-version-check --quiet install --no-compile --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo bench test test-slow test-interop test-oldest lint format types docs wheel clean

help: ## List the commands.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

demo: $(VENV)/installed-test ## The paper's experiments in some minutes: figures, claims and a report in output/laptop.
	$(RUN) -m experiments all --scale laptop --output output/laptop

bench: $(VENV)/installed-test ## What one step costs, ours and the peers': tables and a chart.
	mkdir -p output
	$(RUN) -m benchmarks.steps --json output/steps.json --chart output/steps.png

test: $(VENV)/installed-test ## The tests, without the slow ones and those of trainers.
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n $(JOBS) --dist loadgroup -m "not slow and not interop"

test-slow: $(VENV)/installed-test ## The slow tests, if there are any (pytest says 5 when there are none).
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n $(JOBS) -m slow || test $$? -eq 5

test-interop: $(VENV)/installed-test $(VENV)/installed-interop ## The tests with trainers: transformers, Lightning, skorch, ...
	OMP_NUM_THREADS=1 GLIDESLOPE_INTEROP_INSTALLED=1 $(RUN) -m pytest -m interop tests/interop

test-oldest: $(VENV_OLDEST)/installed ## The tests on the oldest supported versions: Python 3.10, torch 2.6, numpy 1.26, scikit-learn 1.6.
	OMP_NUM_THREADS=1 $(VENV_OLDEST)/bin/python -m pytest -n $(JOBS) --dist loadgroup -m "not slow and not interop"

lint: $(VENV)/installed-dev ## Style and formatting; `make format` mends what can be mended.
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

format: $(VENV)/installed-dev ## Apply the formatter and the safe fixes.
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

types: $(VENV)/installed-dev ## Type check of the package, the experiments and the benchmark of steps.
	$(RUN) -m mypy

docs: $(VENV)/installed-dev ## The documentation site, into site/.
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

wheel: $(VENV)/installed-dev ## Source archive and wheel, into dist/.
	rm -rf dist
	$(RUN) -m build --no-isolation

clean: ## Remove what the other commands made, the environment included.
	rm -rf $(VENV) $(VENV_OLDEST) build dist site output .pytest_cache .mypy_cache .ruff_cache .hypothesis

# One environment; a stamp per extra, so that nothing is installed twice. All paths are relative: a clone may live
# in a folder whose name has spaces.
$(VENV)/installed-%: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "glideslope needs Python >= 3.10; say which: make PYTHON=python3.11 ...")'
	@$(RUN) -c "" 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing glideslope[$*] into $(VENV) (once; a minute or more, torch is large)"
	$(PIP) --editable ".[$*]"
	@touch $@

# Its own environment, with every package that pyproject.toml names in its oldest version.
$(VENV_OLDEST)/installed: pyproject.toml constraints-oldest.txt
	@$(PYTHON_OLDEST) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 10) and "this needs Python 3.10; say where: make PYTHON_OLDEST=... test-oldest")'
	@$(VENV_OLDEST)/bin/python -c "" 2>/dev/null || $(PYTHON_OLDEST) -m venv --clear $(VENV_OLDEST)
	@echo "Installing glideslope[test] into $(VENV_OLDEST) (once; on Linux torch 2.6 brings its CUDA packages, 6 GB in all)"
	$(VENV_OLDEST)/bin/python -m pip --disable-pip-version-check --quiet install --no-compile \
	  --constraint constraints-oldest.txt --editable ".[test]"
	@touch $@
