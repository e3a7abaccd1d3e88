# attnviz: every command that a developer needs.
#
#   make demo     the package at work on its own demo model: writes head_view.html and opens it
#   make test     what every change has to pass: lint, types, unit tests, models, a real browser, a
#                 real JupyterLab; all but the tests marked slow
#   make test-all the slow ones, too: every notebook, kernels that are lost, ...
#   make mutants  makes small wrong changes in a copy and sees whether the tests notice them
#   make processors  the tests that compare numbers, as other processors would run them (30 minutes)
#   make oldest   the sample of models with the oldest transformers that attnviz takes
#   make lab      JupyterLab on notebooks/
#   make watch    builds the front-end again on every change in js/src
#   make notebooks runs all notebooks and stores their outputs, with a picture for each view
#   make format   puts Python and TypeScript into the house's form
#   make coverage checks every model type and class of transformers (10 minutes), docs/coverage.md
#   make bench    attnviz beside BertViz, CircuitsVis and inspectus: about 14 minutes, docs/benchmarks.md
#   make gpu      the tests that need a CUDA device
#   make counts   renews the baseline of bytes, requests and DOM nodes that make test compares with
#   make protocol writes js/src/client/protocol.ts, the types of requests, from the Python classes
#   make docs     builds the documentation site into build/site
#   make docs-serve  serves it on http://localhost:8000, and again after every change
#   make package  builds wheel and source distribution and tries them with nothing else there
#   make clean    removes what was built (.venv and js/node_modules too)
#
# Each makes .venv and what it needs by itself, once. On a machine whose `python3` is too old:
# `make demo PYTHON=python3.12`. On Linux PyPI's torch brings CUDA along; where the CPU is
# enough, give pip PyTorch's CPU index through PIP_EXTRA_INDEX_URL (pytorch.org names it).

PYTHON ?= python3
VENV_PYTHON := .venv/bin/python
FRONT_END := $(VENV_PYTHON) scripts/front_end.py

.DEFAULT_GOAL := help
.PHONY: help demo test test-all checks mutants processors oldest coverage bench bench-quick gpu counts lab watch notebooks format protocol docs docs-serve package clean environment test-environment docs-environment front-end

help:
	@sed -n '3,23s/^#//p' Makefile

# What attnviz needs to run, front-end included.
environment:
	@$(PYTHON) scripts/environment.py

# The same, and what the tests and JupyterLab need.
test-environment:
	@$(PYTHON) scripts/environment.py test

# The same, and what builds the site; an environment for the tests has it already and stays as it is.
docs-environment:
	@$(PYTHON) scripts/environment.py docs

front-end: environment

demo: environment
	.venv/bin/attnviz demo -o head_view.html

test: checks
	$(VENV_PYTHON) scripts/run_tests.py

# Programs that show exported pages, in an environment of their own.
.hosts/installed: constraints-hosts.txt | test-environment
	@$(VENV_PYTHON) -m venv .hosts
	@.hosts/bin/python -m pip install --quiet --no-deps -r constraints-hosts.txt
	@touch .hosts/installed

# pip unpacks for a minute, on one core: beside the checks.
test-all: test-environment
	@$(MAKE) -j2 checks .hosts/installed
	@$(VENV_PYTHON) scripts/find_browser.py --others
	$(VENV_PYTHON) scripts/mutants.py --check
	$(VENV_PYTHON) scripts/run_tests.py --all

# What is quick comes first, so that a slip shows early. mypy runs on one core: beside Vitest.
checks: test-environment
	@$(VENV_PYTHON) scripts/find_browser.py --install
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	$(FRONT_END) run check
	$(FRONT_END) run lint
	.venv/bin/mypy & mypy=$$!; $(FRONT_END) run test; vitest=$$?; wait $$mypy && exit $$vitest

mutants: test-environment
	$(VENV_PYTHON) scripts/mutants.py

processors: test-environment
	$(VENV_PYTHON) scripts/processors.py

# Beside the other packages, which stay as they are: a few in place of the newest.
# On Linux PyPI has torch with CUDA alone, gigabytes: the CPU build comes from PyTorch's own index.
OLDEST_TORCH := torch==2.6.0$(if $(filter Linux,$(shell uname)),+cpu)
oldest: test-environment
	@$(VENV_PYTHON) -m pip install --quiet --upgrade --no-deps --target .oldest \
		-r constraints-oldest.txt
	@$(VENV_PYTHON) -m pip install --quiet --upgrade --no-deps --target .oldest \
		"$(OLDEST_TORCH)" 2>/dev/null \
		|| echo "$(OLDEST_TORCH) is not in this package index: the torch of .venv takes its place"
	PYTHONPATH=.oldest $(VENV_PYTHON) -m pytest --junitxml=test-results/oldest.xml \
		tests/models/test_traced.py tests/models/test_extract_weights.py \
		tests/models/test_extract_state.py tests/models/test_extract_inputs.py \
		tests/models/test_generation.py tests/model_types/test_sample.py

# Packages of some model types, beside the others, which stay as they are: timm needs torchvision.
.kinds: constraints-coverage.txt | test-environment
	@$(VENV_PYTHON) -m pip install --quiet --upgrade --no-deps --target .kinds \
		-r constraints-coverage.txt
	@touch .kinds

coverage: test-environment .kinds
	cd tests && PYTHONPATH=../.kinds ../$(VENV_PYTHON) -m model_types
	$(VENV_PYTHON) -m pytest tests/model_types/of_all_types.py --junitxml=test-results/coverage.xml

# The other tools beside the packages, which stay as they are.
.bench: constraints-bench.txt
	@$(VENV_PYTHON) -m pip install --quiet --upgrade --no-deps --target .bench \
		-r constraints-bench.txt
	@touch .bench

bench: test-environment .bench
	@$(VENV_PYTHON) scripts/find_browser.py --install
	cd tests && ../$(VENV_PYTHON) -m benchmarks --write-docs

# The small cases, two minutes; writes test-results/benchmarks.json alone.
bench-quick: test-environment .bench
	@$(VENV_PYTHON) scripts/find_browser.py --install
	cd tests && ../$(VENV_PYTHON) -m benchmarks --quick

# Needs a CUDA device.
gpu: test-environment
	$(VENV_PYTHON) -m pytest -m gpu tests/models

counts: test-environment
	@$(VENV_PYTHON) scripts/find_browser.py --install
	cd tests && ../$(VENV_PYTHON) -m benchmarks.counts --renew

lab: test-environment
	.venv/bin/jupyter lab notebooks

watch: environment
	$(FRONT_END) --watch

notebooks: test-environment
	@$(VENV_PYTHON) scripts/find_browser.py --install
	$(VENV_PYTHON) scripts/render_notebooks.py

format: test-environment
	.venv/bin/ruff check --fix-only
	.venv/bin/ruff format
	$(FRONT_END) run format

protocol: environment
	$(VENV_PYTHON) scripts/protocol.py

# The gallery's small pictures need a browser. It is named if it is missing, and not installed.
docs: docs-environment
	@$(VENV_PYTHON) scripts/find_browser.py >/dev/null
	$(VENV_PYTHON) scripts/build_site.py

docs-serve: docs-environment
	@$(VENV_PYTHON) scripts/find_browser.py >/dev/null
	$(VENV_PYTHON) scripts/build_site.py --serve

package: test-environment
	$(VENV_PYTHON) -m pytest tests/package --junitxml=test-results/package.xml

clean:
	rm -rf .venv .oldest .bench .hosts .kinds js/node_modules src/attnviz/static dist build test-results head_view.html
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
