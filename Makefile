# One command each; `make help` lists them. Everything that is installed goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CSRC := find csrc -name '*.h' -print0 -o -name '*.cpp' -print0 -o -name '*.cu*' -print0
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_WAIT_POLICY=passive $(1)pytest -n auto --maxprocesses 8 --dist worksteal
TIMES := build/tests.xml
BESIDES := slow candidates of tests/candidates, all losses where test has three and four, more of \
	PyTorch's samples, CUDA compiled without a GPU, two processes that share tensors, templates, \
	a benchmark, the site, the browser
INSTALL := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=constraints.txt $(BIN)/pip install -qq --no-compile

.DEFAULT_GOAL := help
.PHONY: help bench test test-all test-times wheel docs test-gpu sanitize mutate mutate-python planted coverage check format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile

# Each process that is started imports torch: in half of the time where Python may keep its bytecode,
# which setting PYTHONDONTWRITEBYTECODE to nothing allows. Setting up ends with such an import, so that
# the processes of the first bench do not each compile it.

# The bench builds the kernels of its device; `losscli build` would compile those of both.
bench: $(READY) ## set up, build the kernels, time them against PyTorch
	@PYTHONDONTWRITEBYTECODE= $(BIN)/losscli bench

test: $(READY) ## set up, then lint, types and tests that need no GPU but those marked slow
	@$(MAKE) --no-print-directory check TOOLS=$(BIN)/
	@echo "make test-all has besides: $(BESIDES)"

test-all: test ## the same, then the slow tests
	@$(call PYTEST,$(BIN)/) -m "slow and not gpu"

check: ## run what test does with the tools of the active environment
	$(TOOLS)ruff check losscli tests tools docs examples
	$(TOOLS)ruff format --check losscli tests tools docs examples
	$(TOOLS)mypy
	$(CSRC) | xargs -0 $(TOOLS)clang-format --dry-run -Werror
	$(call PYTEST,$(TOOLS)) -m "not slow and not gpu" --junitxml $(TIMES)

test-times: ## print the slowest tests of the last `make test`, and the time by folder
	@$(PYTHON) -m tools.times $(TIMES) $(TIMES_OPTIONS)

wheel: $(READY) ## build the wheels into dist: the plain one, and one with kernels
	@$(BIN)/python -m tools.wheel $(WHEEL)

docs: $(READY) ## build the documentation into docs/_build/html, without a warning
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Only these files are collected: the others import what PYTHON may not have. One process at a time,
# for some tests measure.
test-gpu: ## run the tests that need a GPU, with the torch of PYTHON
	$(PYTHON) -m pytest -m gpu tests/kernels \
		$$(grep -rl --include='test_*.py' --exclude-dir=kernels 'mark\.gpu' tests tools)

sanitize: ## run the kernels under compute-sanitizer's four tools, on a GPU
	$(PYTHON) -m tools.sanitize

mutate: ## break the kernels line by line and check that verify finds it, half an hour
	$(PYTHON) -m tools.mutate $(MUTATE)

mutate-python: $(READY) ## break the Python of the core and report what no test finds, an hour
	$(BIN)/python -m tools.mutate_python $(MUTATE)

planted: ## slow a kernel by a tenth and check that compare finds it, and no other
	$(PYTHON) -m tools.planted $(PLANTED)

coverage: ## count how often the interval of a ratio contains the next run's ratio, a quarter of an hour
	$(PYTHON) -m tools.interval_coverage $(COVERAGE)

format: $(READY) ## rewrite Python and C++ in the project's style
	@$(BIN)/ruff check --fix losscli tests tools docs examples
	@$(BIN)/ruff format losscli tests tools docs examples
	@$(CSRC) | xargs -0 $(BIN)/clang-format -i

clean: ## remove .venv and caches; built kernels stay in the user's cache
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache

$(READY): pyproject.toml constraints.txt
	@echo "setting up $(VENV): installs PyTorch and the tools, several minutes the first time"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "losscli needs Python 3.11 or later: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip' \
		|| { echo "$(PYTHON) cannot make environments: apt install python3-venv"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) --editable '.[dev]'
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -c 'import torch.fx.experimental.symbolic_shapes'
	@touch $@
