# Commands for developers of attnviz.
#
#   make demo        write the view of a demo model to head_view.html and open it
#   make test        run what every change must pass: linters, type checks, and all tests that are
#                    not marked slow (unit tests, models, Chromium, JupyterLab)
#   make test-sample run also the slow tests of one in twenty files, as .ci/run does: half of these
#                    files are chosen by the packages that changed last, the others by the commit
#   make test-all    run also all slow tests: every notebook, lost kernels, ...
#   make mutants     insert small faults into a copy of the code and check that tests fail
#   make processors  run the numerical tests as if on other processors (30 minutes)
#   make oldest      run a sample of the models with the oldest supported transformers
#   make lab         start JupyterLab in notebooks/
#   make watch       rebuild the front-end after every change in js/src
#   make notebooks   run all notebooks and store their outputs with a picture of each view
#   make format      format Python and TypeScript
#   make kernels     run kernels of linear layers in Triton's interpreter (Linux)
#   make coverage    check every model type of transformers (10 minutes), write docs/coverage.md
#   make calls       compare what pipelines and other wrappers read with records (2 minutes)
#   make bench       compare with other tools (14 minutes), write docs/benchmarks.md
#   make gpu         run the tests of devices on CUDA, and write their figures to docs/benchmarks.md
#   make counts      measure bytes, requests and DOM nodes again, with which make test compares
#   make protocol    write protocol.ts and traits.ts in js/src/client from the Python classes
#   make constraints write constraints.txt again, with the newest versions of all packages
#   make docs        build the documentation site in build/site
#   make docs-serve  serve it on http://localhost:8000 and rebuild it after every change
#   make package     build the wheel and the source distribution and test them
#   make clean       remove all build products, .venv and js/node_modules
#
# Each command creates .venv and installs what it needs. If `python3` is too old, name a newer one:
# `make demo PYTHON=python3.12`. On Linux, PyPI's torch includes CUDA. To install the CPU build, set
# PIP_EXTRA_INDEX_URL to PyTorch's package index for CPUs (see pytorch.org).

PYTHON ?= python3
VENV_PYTHON := .venv/bin/python
FRONT_END := $(VENV_PYTHON) scripts/front_end.py

.DEFAULT_GOAL := help
.PHONY: help demo test test-sample test-all checks front-end-checks python-checks browser other-browsers mutants processors oldest kernels coverage calls bench bench-quick gpu counts lab watch notebooks format protocol constraints docs docs-serve package clean environment test-environment docs-environment front-end

help:
	@sed -n '3,27s/^#//p' Makefile

# Build the front-end, and install Node if the machine has none.
front-end:
	@$(PYTHON) scripts/environment.py front-end

# Install everything that attnviz needs to run.
environment: front-end
	@$(PYTHON) scripts/environment.py

# Install everything for the tests and JupyterLab.
test-environment: front-end
	@$(PYTHON) scripts/environment.py test

# Install everything for the documentation site. It is also part of the test environment.
docs-environment: front-end
	@$(PYTHON) scripts/environment.py docs

demo: environment
	.venv/bin/attnviz demo -o head_view.html

# Two processes, because many tests wait for a browser or a kernel. tests/conftest.py divides the
# tests. Files with long tests come first, so that both processes end at the same time. A browser
# test that fails runs a second time and is named at the end. A process that ends in the middle of a
# test ends the run: in a new process, xdist would start with the same test.
WORKERS := -n 2 --max-worker-restart=0 --no-loadscope-reorder --second-try \
	--junitxml=test-results/pytest.xml tests/browser tests/models tests/unit

test:
	@$(MAKE) -j2 checks
	$(VENV_PYTHON) -m pytest $(WORKERS) -m "not slow"

# A separate environment (.hosts) with programs that show exported pages, for the slow tests.
.hosts/installed: constraints-hosts.txt | test-environment
	@$(VENV_PYTHON) -m venv .hosts
	@.hosts/bin/python -m pip install --quiet --no-compile --no-deps -r constraints-hosts.txt
	@touch .hosts/installed

browser: test-environment
	@$(VENV_PYTHON) scripts/find_browser.py --install

# After `browser`, because apt-get runs only once at a time.
other-browsers: browser
	@$(VENV_PYTHON) scripts/find_browser.py --others

# In the environment avx2, because all other runs use the instructions of the local processor. The
# packages of `make oldest` are installed while mypy uses only one core.
test-sample:
	@$(MAKE) -j2 checks .oldest/installed \
		$$($(PYTHON) scripts/slow_sample.py $$(git rev-parse HEAD))
	$(VENV_PYTHON) scripts/processors.py avx2 $(WORKERS) --slow-sample=$$(git rev-parse HEAD)

# `make test-all SEED=1` shuffles the tests and generates new examples. The same seed reproduces a
# failure.
SHUFFLED = --random-order-bucket=module --random-order-seed=$(SEED) \
	--hypothesis-profile=random --hypothesis-seed=$(SEED)
test-all:
	@$(MAKE) -j2 checks .hosts/installed other-browsers
	$(VENV_PYTHON) -m pytest $(WORKERS) $(if $(SEED),$(SHUFFLED))

# The front-end needs no packages of Python, so its checks run while pip installs them.
checks: front-end-checks python-checks browser

front-end-checks: front-end
	$(FRONT_END) run check
	$(FRONT_END) run lint
	$(FRONT_END) run test

# The quick checks come first.
python-checks: test-environment
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	$(VENV_PYTHON) scripts/prose.py
	$(VENV_PYTHON) scripts/mutants.py --check
	.venv/bin/mypy

mutants: test-environment
	$(VENV_PYTHON) scripts/mutants.py

processors: test-environment
	$(VENV_PYTHON) scripts/processors.py

# Old versions of a few packages are installed into .oldest, which comes first on Python's path.
# On Linux, torch from PyPI includes CUDA (gigabytes). The CPU build is in PyTorch's package index.
OLDEST_TORCH := torch==2.6.0$(if $(filter Linux,$(shell uname)),+cpu)
.oldest/installed: constraints-oldest.txt | test-environment
	@$(VENV_PYTHON) -m pip install --quiet --no-compile --upgrade --no-deps \
		--target .oldest -r constraints-oldest.txt
	@$(VENV_PYTHON) -m pip install --quiet --no-compile --upgrade --no-deps \
		--target .oldest "$(OLDEST_TORCH)" 2>/dev/null \
		|| echo "$(OLDEST_TORCH) is not in this package index: the torch of .venv takes its place"
	@touch .oldest/installed

oldest: .oldest/installed
	PYTHONPATH=.oldest $(VENV_PYTHON) -m pytest --junitxml=test-results/oldest.xml \
		tests/models/test_traced.py tests/models/test_extract_state.py \
		tests/models/test_extract_inputs.py tests/models/test_generation.py \
		tests/models/test_model_types.py

# A separate folder with kernels for GPUs. Its Triton interprets them on a CPU. mamba-ssm is
# installed without its compiled code.
.kernels: constraints-kernels.txt | test-environment
	@MAMBA_SKIP_CUDA_BUILD=TRUE MAMBA_FORCE_BUILD=TRUE $(VENV_PYTHON) -m pip install --quiet \
		--upgrade --no-deps --no-build-isolation --target .kernels -r constraints-kernels.txt
	@touch .kernels

kernels: test-environment .kernels
	TRITON_INTERPRET=1 PYTHONPATH=.kernels $(VENV_PYTHON) -m pytest \
		--junitxml=test-results/kernels.xml tests/models/test_kernels.py

# A separate folder with packages that some model types need, such as torchvision for timm.
.kinds: constraints-coverage.txt | test-environment
	@$(VENV_PYTHON) -m pip install --quiet --upgrade --no-deps --target .kinds \
		-r constraints-coverage.txt
	@touch .kinds

coverage: test-environment .kinds
	PYTHONPATH=tests:.kinds $(VENV_PYTHON) -m model_types
	$(VENV_PYTHON) -m pytest model_types/of_all_types.py --junitxml=test-results/coverage.xml

calls: test-environment
	PYTHONPATH=tests $(VENV_PYTHON) -m model_types.calls

# A separate folder with the tools that attnviz is compared with.
.bench: constraints-bench.txt
	@$(VENV_PYTHON) -m pip install --quiet --upgrade --no-deps --target .bench \
		-r constraints-bench.txt
	@touch .bench

bench: browser .bench
	PYTHONPATH=tests $(VENV_PYTHON) -m benchmarks --write-docs

# Run only the small cases (two minutes). The results are in test-results/benchmarks.json.
bench-quick: browser .bench
	PYTHONPATH=tests $(VENV_PYTHON) -m benchmarks --quick

# On CUDA. `make test` runs these tests on a pretended device. The test environment must have a
# torch for CUDA. Kernels in .venv (flash-attn, fla, mamba-ssm, bitsandbytes) are tested, too.
gpu: test-environment
	$(VENV_PYTHON) -m pytest -m gpu --junitxml=test-results/gpu.xml tests/models
	PYTHONPATH=tests $(VENV_PYTHON) -m benchmarks.on_a_device

counts: browser
	PYTHONPATH=tests $(VENV_PYTHON) -m benchmarks.counts --renew

lab: test-environment
	.venv/bin/jupyter lab notebooks

watch: environment
	$(FRONT_END) --watch

notebooks: browser
	$(VENV_PYTHON) scripts/render_notebooks.py

format: test-environment
	.venv/bin/ruff check --fix-only
	.venv/bin/ruff format
	$(FRONT_END) run format

protocol: environment
	$(VENV_PYTHON) scripts/protocol.py

# The gallery needs a browser for its thumbnails. `find_browser.py` fails if it is not installed.
# The file holds for all platforms. It has no hashes, because the CPU build of torch has the same
# version as PyPI's and other hashes.
constraints: test-environment
	@$(VENV_PYTHON) -m pip install --quiet uv
	.venv/bin/uv pip compile --quiet pyproject.toml --all-extras --group test --universal --upgrade \
		--python-version 3.11 --no-annotate --custom-compile-command "make constraints" \
		--output-file constraints.txt

docs: docs-environment
	@$(VENV_PYTHON) scripts/find_browser.py >/dev/null
	$(VENV_PYTHON) scripts/build_site.py

docs-serve: docs-environment
	@$(VENV_PYTHON) scripts/find_browser.py >/dev/null
	$(VENV_PYTHON) scripts/build_site.py --serve

package: test-environment
	$(VENV_PYTHON) -m pytest tests/package --junitxml=test-results/package.xml

clean:
	rm -rf .venv .oldest .bench .hosts .kinds .kernels js/node_modules src/attnviz/static dist build test-results head_view.html
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
