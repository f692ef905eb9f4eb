# Every command of the project. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help install demo test test-all test-numerics lint format bench docs clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "hf-mlcl needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@

install: $(INSTALLED) ## Make .venv with the tested versions (done once; the other commands call it)

demo: $(INSTALLED) ## Compare four losses on a built-in corpus: table, picture, classifier (three to six minutes on a CPU)
	$(BIN)/hf-mlcl demo

# Every process of the tests has one thread (tests/conftest.py), so that two on two cores do not wait for each other.
PYTEST := $(BIN)/python -m pytest --numprocesses logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder
NUMERICAL := tests/losses tests/metrics tests/evaluation tests/training

test: lint ## Lint, type-check and run the tests (six to twelve minutes on two cores)
	$(PYTEST)

test-all: lint ## The same with the slow tests, and with Ray
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[ray]"
	$(PYTEST) -m ""

test-numerics: $(INSTALLED) ## Run the numerical tests as other processors and other numbers of threads would
	ATEN_CPU_CAPABILITY=default $(PYTEST) $(NUMERICAL)
	MKL_ENABLE_INSTRUCTIONS=SSE4_2 $(PYTEST) $(NUMERICAL)
	OMP_NUM_THREADS=1 $(PYTEST) $(NUMERICAL)
	OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive $(PYTEST) --maxprocesses 1 $(NUMERICAL)

lint: $(INSTALLED) ## Check style (ruff) and types (mypy)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED) ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED) ## Measure speed and memory; prints the tables of docs/benchmarks.md
	$(BIN)/python benchmarks/run.py

docs: $(INSTALLED) ## Build the documentation as a website in site/; a link that leads nowhere is an error
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## Remove everything that was made, .venv included
	rm -rf $(VENV) site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
