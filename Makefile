# Everything a newcomer needs: `make demo` and `make test` work on a machine with python3, pip, venv and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETTINGS ?=

.PHONY: demo test test-slow audit check bench format clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@

demo: $(VENV)/.installed
	$(BIN)/hearsay demo --out out/demo

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not slow"

test-slow: $(VENV)/.installed-dev
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(BIN)/python -m pytest -m slow

audit: $(VENV)/.installed-dev
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(BIN)/python -m pytest tests/audit -m ""

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.scale
	$(BIN)/python -m benchmarks.tracking
	$(BIN)/python -m benchmarks.factorized
	$(BIN)/python -m benchmarks.lattice
	$(BIN)/python -m benchmarks.secrets
	$(BIN)/python -m benchmarks.clipping
	$(BIN)/python -m benchmarks.clip_bound
	$(BIN)/python -m benchmarks.deploy

clean:
	rm -rf $(VENV) out build *.egg-info .pytest_cache .mypy_cache .ruff_cache
