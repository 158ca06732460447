# make demo | test | bench | docs | lint | clean          PYTHON=python3.12 chooses the interpreter, VENV=... another place
#
# Everything happens in .venv. Stamps in it make reruns fast: nothing is installed or compiled again while its sources are the same.

VENV ?= .venv
FITS = import sys, sysconfig, pathlib, venv, ensurepip; sys.exit(sys.version_info < (3, 11) or not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())
PYTHON ?= $(shell for p in python3.14 python3.13 python3.12 python3.11 python3; do $$p -c '$(FITS)' 2>/dev/null && echo $$p && break; done)

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# -P: what is installed, not the folder of the same name that lies here
RUN := $(BIN)/python -P -m
SOURCES := $(shell find qkernels qwen3 -type f ! -name '*.so' ! -path '*/__pycache__/*' 2>/dev/null) setup.py pyproject.toml

.PHONY: demo test bench docs lint format clean
.DELETE_ON_ERROR:

# A fresh machine with Python and a C compiler: build, check, and let the embedded demo model answer.
demo: $(VENV)/.demo
	$(RUN) qkernels
	$(RUN) qwen3 generate -p "What is 7 + 5?" --temperature 0

# PYTEST="-k sampling -x" for a part of it
test: $(VENV)/.editable
	$(BIN)/python -m pytest $(PYTEST)

# BENCH=sampling for one module
bench: $(VENV)/.bench
	cd asv_bench && $(abspath $(BIN))/asv machine --yes && $(abspath $(BIN))/asv run --python=same --quick --show-stderr $(if $(BENCH),-b '$(BENCH)')

docs: $(VENV)/.docs
	$(BIN)/python -m qkernels.registry > docs/operators.md
	$(BIN)/python -m sphinx -b html -W --keep-going -j auto docs docs/_build/html
	@echo "docs/_build/html/index.html"

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/cython-lint qkernels/*.pyx qkernels/*.pxd
	find qkernels/csrc -name '*.[ch]' | xargs $(BIN)/clang-format --dry-run --Werror

format: $(VENV)/.lint
	$(BIN)/ruff check --fix .
	find qkernels/csrc -name '*.[ch]' | xargs $(BIN)/clang-format -i

clean:
	rm -rf $(VENV) build dist *.egg-info docs/_build docs/generated asv_bench/env asv_bench/results asv_bench/html .pytest_cache .ruff_cache .hypothesis
	find qkernels qwen3 tests -name '__pycache__' -prune -exec rm -rf {} +
	rm -f qkernels/*.so

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no Python >= 3.11 with headers and venv found: install one, or name it with PYTHON=" >&2; exit 1; }
	@command -v cc >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null || { echo "no C compiler found: install gcc or clang" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(SOURCES) | $(BIN)/python
	$(PIP) -e '.[qwen3]'
	@touch $@

# Installed in place with the tests' extras; afterwards only what changed is compiled.
$(VENV)/.editable: $(SOURCES) | $(BIN)/python
	@if [ ! -e $(VENV)/.metadata ] || [ pyproject.toml -nt $(VENV)/.metadata ]; then set -x; $(PIP) -e '.[test]' && $(BIN)/python -c '$(BUILD_NEEDS)' | $(PIP) -r /dev/stdin; \
	else set -x; $(BIN)/python setup.py --quiet build_ext --inplace; fi
	@touch $(VENV)/.metadata $@

BUILD_NEEDS = import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")
EXTRA = import importlib.metadata as m; print(*[r.split(";")[0] for r in m.requires("qkernels") if r.endswith("extra == \"$*\"")], sep="\n")

# What an extra needs besides the package, without building the package again
$(VENV)/.bench $(VENV)/.docs $(VENV)/.lint: $(VENV)/.%: pyproject.toml | $(VENV)/.editable
	$(BIN)/python -c '$(EXTRA)' | $(PIP) -r /dev/stdin
	@touch $@
