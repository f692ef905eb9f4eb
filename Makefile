# Every command of the project. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help install demo test lint format bench docs clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "hf-mlcl needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@

install: $(INSTALLED) ## Make .venv with the tested versions (done once; the other commands call it)

demo: $(INSTALLED) ## Compare four losses on a built-in corpus: table, picture, classifier (under three minutes on a CPU)
	$(BIN)/hf-mlcl demo

test: lint ## Lint, type-check and run the tests
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

lint: $(INSTALLED) ## Check style (ruff) and types (mypy)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED) ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED) ## Measure speed and memory; prints the tables of docs/benchmarks.md
	$(BIN)/python benchmarks/run.py

docs: $(INSTALLED) ## Build the documentation as a website in site/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[docs]"
	$(BIN)/mkdocs build --strict

clean: ## Remove everything that was made, .venv included
	rm -rf $(VENV) site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
