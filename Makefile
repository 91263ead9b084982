# make run         every shipped spec on the CPU, with a progress bar and a summary; TORCH=2.15.0 for another torch, SPECS=specs/nn
#                  for a part
# make test        the tests of opcheck itself, without the operator library and what is marked nightly, in a few minutes; TORCH as above
# make test-all    the same and what is marked nightly, in hours; after `make browser`, since no test may be skipped for want of a program
# make browser     installs what the tests of the HTML report need: Chromium, where Debian's packages are at hand, and axe-core
# make floors      the tests of `make test` on the lowest versions that pyproject.toml declares; TORCH=2.6.0 for torch's, too
# make torch-free  what needs no torch, under PYTHON=python3.13 for example; LOWEST=1 on the lowest versions that are declared
# make lint        ruff and mypy
# make mutants     which small changes of a module no test notices: ARGS=opcheck/checks/vmap.py
# make samples     which wrong gradients the samples of the shipped specs would not notice; SPECS=specs/nn for a part
# make bench       what derivative evidence costs, beside torch's own functions
# make docs        writes the reference tables of docs anew, and draws the run that README.md shows
# make site        builds the documentation site in site/; a broken link is an error
# make clean       removes the virtual environments and caches
#
# A virtual environment is made on first use; nothing but Python 3.10+ and make is needed.

PYTHON  ?= python3
PINNED  := $(shell sed -n 's/^torch==//p' constraints.txt)
TORCH   ?= $(PINNED)
OTHER   := $(filter-out $(PINNED),$(TORCH))
VENV    ?= .venv$(if $(OTHER),-torch-$(OTHER))
BIN     := $(VENV)/bin
JOBS    ?= auto
SPECS   ?= specs
ARGS    ?=

.PHONY: run samples test test-all browser floors torch-free lint mutants bench clean docs site
.DEFAULT_GOAL := run

# A stamp is newer than what it was installed from; a change of either installs again. torch comes first and exactly as
# pinned, so that pip does not look for a newer build of it while it resolves the rest. What the specs need is installed
# apart from what developers need: the first run need not wait for the latter.
#
# Another torch has an environment of its own, .venv-torch-2.15.0, and brings its own triton.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	sed -e 's/^torch==.*/torch==$(TORCH)/' $(if $(OTHER),-e '/^triton==/d') constraints.txt > $(VENV)/constraints.txt
	$(BIN)/python -m pip install --quiet 'torch==$(TORCH)'
	$(BIN)/python -m pip install --quiet --constraint $(VENV)/constraints.txt --editable '.[reference]'
	$(BIN)/python -m compileall -q opcheck
	touch $@

$(VENV)/.developing: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint $(VENV)/constraints.txt --editable '.[dev,kernels,ray]'
	touch $@

run: $(VENV)/.installed
	$(BIN)/opcheck run $(SPECS) --device cpu -n $(JOBS) $(ARGS)

samples: $(VENV)/.installed
	$(BIN)/opcheck mutate $(SPECS) $(ARGS)

# What tests, Ray and Hypothesis put into temporary folders goes with this one. Its path is short: sockets have no room for a long one.
# Modules whose assertions pytest rewrites are compiled once, not in each process, even where the environment says otherwise.
CLEANLY = unset PYTHONDONTWRITEBYTECODE && folder=$$(mktemp -d /tmp/opcheck.XXXXXX) && trap 'rm -rf "$$folder"' EXIT \
  && export TMPDIR="$$folder" RAY_TMPDIR="$$folder" HYPOTHESIS_STORAGE_DIRECTORY="$$folder/hypothesis" &&

test: $(VENV)/.developing
	$(CLEANLY) $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $(ARGS)

test-all: $(VENV)/.developing
	$(CLEANLY) COMPLETE=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal --nightly $(ARGS)

# Tests of the HTML report are skipped where there is no browser. Playwright would download one; the system's own will do.
CHROMIUM := $(firstword $(foreach name,chromium chromium-browser google-chrome,$(shell command -v $(name))))
SUDO     := $(if $(filter 0,$(shell id -u)),,sudo)
INSTALL  := $(SUDO) apt-get install -y -qq --no-install-recommends
AXE      := tests/e2e/node_modules/.package-lock.json

browser: $(AXE)
	$(if $(CHROMIUM),@echo the browser is $(CHROMIUM),$(SUDO) apt-get update -qq && $(INSTALL) chromium fonts-dejavu-core)

$(AXE): tests/e2e/package.json tests/e2e/package-lock.json
	$(if $(shell command -v npm),,$(SUDO) apt-get update -qq && $(INSTALL) npm)
	npm ci --prefix tests/e2e --no-audit --no-fund --ignore-scripts
	touch $@

# All in the lowest version that is declared, but for torch, which stays as pinned unless TORCH says otherwise: not every index
# has old builds of it for the CPU alone, and the others take gigabytes. The stamp names the torch that was installed last.
FLOORS := .venv-floors

$(FLOORS)/.installed-$(TORCH): pyproject.toml constraints.txt tools/declared.py
	test -x $(FLOORS)/bin/python || $(PYTHON) -m venv $(FLOORS)
	rm -f $(FLOORS)/.installed-*
	$(FLOORS)/bin/python -m pip install --quiet 'torch==$(TORCH)' packaging tomli
	$(FLOORS)/bin/python tools/declared.py --lowest --without torch test > $(FLOORS)/floors.txt
	$(FLOORS)/bin/python -m pip install --quiet --constraint $(FLOORS)/floors.txt --editable '.[test]'
	touch $@

floors: $(FLOORS)/.installed-$(TORCH)
	@echo torch==$(TORCH) $$(cat $(FLOORS)/floors.txt)
	$(CLEANLY) $(FLOORS)/bin/python -m pytest -q -n $(JOBS) --ignore tests/e2e/test_html_report.py $(ARGS)

# For interpreters without a build of torch at hand. Each has an environment of its own.
LOWEST ?=
FREE := .venv-torch-free-$(notdir $(PYTHON))$(if $(LOWEST),-lowest)

$(FREE)/.installed: pyproject.toml constraints.txt tools/declared.py
	test -x $(FREE)/bin/python || $(PYTHON) -m venv $(FREE)
	$(FREE)/bin/python -m pip install --quiet --constraint constraints.txt packaging tomli
	$(FREE)/bin/python tools/declared.py $(if $(LOWEST),--lowest) --without torch test > $(FREE)/declared.txt
	$(FREE)/bin/python -m pip install --quiet $(if $(LOWEST),,--constraint constraints.txt) --requirement $(FREE)/declared.txt
	$(FREE)/bin/python -m pip install --quiet --no-deps --editable .
	touch $@

torch-free: $(FREE)/.installed
	$(FREE)/bin/opcheck validate builtin
	$(FREE)/bin/opcheck list builtin > $(FREE)/list.txt
	$(FREE)/bin/opcheck schema > $(FREE)/schema.json
	$(FREE)/bin/opcheck matrix > $(FREE)/matrix.json
	$(FREE)/bin/python -m pytest -qq --collect-only specs
	$(CLEANLY) $(FREE)/bin/python -m pytest -q -n $(JOBS) tests/spec tests/planning tests/report tests/test_layers.py \
	  tests/tools/test_declared.py $(ARGS)

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
	$(BIN)/python tools/draw_run.py

# Needs neither torch nor opcheck: what comes from docstrings, `make docs` has written to docs/.
SITE := .venv-site

$(SITE)/.installed: constraints.txt
	test -x $(SITE)/bin/python || $(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --constraint constraints.txt mkdocs mkdocs-material
	touch $@

# Not --quiet: MkDocs would no longer count the warnings that --strict turns into an error.
site: $(SITE)/.installed
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict

clean:
	rm -rf $(VENV) .venv-* tests/e2e/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis .opcheck_cache build dist site *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
