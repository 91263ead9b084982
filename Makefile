# make run    every shipped spec on the CPU, with a progress bar and a summary
# make test   the tests of opcheck itself, without the operator library
# make lint   ruff and mypy
# make mutants ARGS=opcheck/checks/vmap.py   which small changes of a module no test notices
# make bench  what derivative evidence costs, beside torch's own functions
# make clean  removes the virtual environment and caches
#
# A virtual environment is made on first use; nothing but Python 3.10+ and make is needed.

PYTHON  ?= python3
VENV    ?= .venv
BIN     := $(VENV)/bin
JOBS    ?= auto
ARGS    ?=

.PHONY: run test lint mutants bench clean docs
.DEFAULT_GOAL := run

# A stamp is newer than what it was installed from; a change of either installs again. torch comes first and exactly as
# pinned, so that pip does not look for a newer build of it while it resolves the rest. What the specs need is installed
# apart from what developers need: the first run need not wait for the latter.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[reference]'
	$(BIN)/python -m compileall -q opcheck
	touch $@

$(VENV)/.developing: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

run: $(VENV)/.installed
	$(BIN)/opcheck run specs --device cpu -n $(JOBS) $(ARGS)

test: $(VENV)/.developing
	$(BIN)/python -m pytest -q -n $(JOBS) $(ARGS)

lint: $(VENV)/.developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy opcheck

mutants: $(VENV)/.developing
	$(BIN)/python tools/mutate.py $(ARGS)

bench: $(VENV)/.installed
	$(BIN)/python tools/bench_derivatives.py $(ARGS)

docs: $(VENV)/.developing
	$(BIN)/python tools/generate_docs.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .opcheck_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
