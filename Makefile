# Everything a newcomer needs: `make demo` and `make test` work on a machine with python3, pip, venv and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETTINGS ?=

.PHONY: demo test test-slow test-torch dist audit check bench format clean

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

# What needs PyTorch, in an environment of its own: it is large.
test-torch:
	$(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check -e ".[dev,torch]" opacus
	OMP_NUM_THREADS=1 .venv-torch/bin/python -m pytest -n 0 -m "not slow" tests/problems/test_torch.py \
	    tests/deploy/test_outside_models.py tests/test_examples.py \
	    -k "test_torch.py or outside_models or torch_modules or (code_on and (neural or opacus))"

dist: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build twine
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

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
