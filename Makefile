# Everything a user does. `make` alone lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# conda users run make inside the environment of environment.yml; everybody else gets .venv from uv.lock
BIN := $(if $(filter hcilib,$(CONDA_DEFAULT_ENV)),,.venv/bin/)
PY := $(BIN)python
# Containers often set it: every child, every kernel and each of pytest's workers would compile the library and the tests again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup lab greeting lab-again cluster quick test deep report notebooks refresh bench chaos lint bounds picture pack nets wheel core site
help:
	@echo "make setup      install what is missing"
	@echo "make lab        set up, measure two systems on the embedded lab, report: out/lab/index.html"
	@echo "make lab-again  the same, measured anew; what was measured before is kept beside it"
	@echo "make cluster    real storage stacks on this machine, measured (installs qemu and ceph): out/box/index.html"
	@echo "make quick      lint, types and the fast tests of what was touched: an answer in under 90 seconds"
	@echo "make test       set up, lint, run every test"
	@echo "make deep       the tests that wait for a clock, and those of real storage stacks at length"
	@echo "make report     every scenario under params/ as a site: out/report/index.html"
	@echo "make notebooks  open JupyterLab"
	@echo "make refresh    execute every notebook in place and strip it as nbval wants it"
	@echo "make bench      side-by-side measurements, as ratios (bench/README.md)"
	@echo "make chaos      faults done to real parts, and thirty deaths of the controller: data/samples/chaos.csv"
	@echo "make nets       every table and figure into out/snapshot, compared with an earlier save: make nets BEFORE=out/old"
	@echo "make lint       ruff over code and notebooks, mypy over the library"
	@echo "make bounds     the quick tests and all notebooks with the lowest and the newest versions that pyproject.toml allows"
	@echo "make pack       a campaign under data/samples as one archive: make pack CAMPAIGN=data/samples/lab-mirror"
	@echo "make wheel      a wheel that needs no clone: out/wheel"
	@echo "make core       the wheel without extras in an environment of its own, on this Python, and what it must do there"
	@echo "make site       README, docs, API and (after make report) the report as a site that works offline: out/site/index.html"
	@echo "make picture    the README's picture, drawn at twice the size from the committed data"

setup:
	@./setup.sh

# What kernels and figures keep for themselves stays in this folder too.
LAB ?= params/*.lab*.yaml
OUT ?= out/lab
HERE := $(CURDIR)/out/.home
INSIDE := env MPLCONFIGDIR=$(HERE)/matplotlib IPYTHONDIR=$(HERE)/ipython XDG_CACHE_HOME=$(HERE)/cache \
  JUPYTER_CONFIG_DIR=$(HERE)/jupyter/config JUPYTER_DATA_DIR=$(HERE)/jupyter/data JUPYTER_RUNTIME_DIR=$(HERE)/jupyter/runtime
lab: greeting setup
	@mkdir -p $(HERE) && $(INSIDE) $(PY) -m hcilib.cli report $(LAB) --out $(OUT) --headline 04_compare.lab

greeting:
	@echo "make lab: one copy of the data against two, on drives of known speed; about three minutes, Ctrl-C keeps what is done"

# Measured anew: what was measured before is kept beside it.
lab-again:
	@[ ! -d data/runs/lab ] || mv data/runs/lab data/runs/lab.$$(date +%Y%m%dT%H%M%S)
	@$(MAKE) --no-print-directory lab

# Ceph on loopback; two virtual nodes for each other system, four for a mirror of three: their kernel and tools are kept in the user's cache folder.
cluster: setup
	@./setup.sh cluster
	@$(PY) -m hcilib.cli report params/box --out out/box --headline 04_compare.box

# What was touched since the last commit, or since BASE: make quick BASE=main
quick:
	@$(PY) .ci/quick $(or $(BASE),HEAD)

LINT := $(BIN)ruff check . && $(BIN)ruff format --check .
# Four files at once, on two cores too: what reaches hosts waits a third of its time, and one worker has those that look
# at a clock, one at a time (tests/conftest.py).
# Tests are compiled once, beside mypy, and not by each worker. Their errors are shown by the run itself.
# The same run has the reviewer's: every committed notebook again, strictly, against the outputs it was committed with.
# Their kernels compute while tests wait for hosts.
test: setup
	@./setup.sh test
	@$(LINT)
	@$(BIN)mypy & types=$$!; $(PY) -m pytest --collect-only >/dev/null 2>&1; \
	  $(PY) -m pytest --nbval --nbval-current-env -n 4 --dist loadfile --no-loadscope-reorder tests notebooks; \
	  code=$$?; wait $$types && exit $$code

# The marked tests one after another, as most look at a clock; then other examples of what is drawn.
deep: setup
	@./setup.sh cluster
	@$(PY) -m pytest -m deep
	@$(PY) -m pytest -n 2 --dist loadfile --ignore tests/drive --hypothesis-profile deep

report: setup
	@began=$$(date +%s); $(PY) -m hcilib.cli report params --out out/report; code=$$?; \
	  echo "Report made in $$(( $$(date +%s) - began )) s (at most 300 when all is executed on two quiet cores, 5 when unchanged)"; \
	  exit $$code

notebooks: setup
	@$(PY) -m jupyterlab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks $(if $(filter 0,$(shell id -u)),--allow-root)

# Outputs stay, figures too (in 256 colours): readers want them, nbval compares the tables alone.
STRIP := --keep-output --keep-count \
  --extra-keys "metadata.papermill cell.metadata.papermill metadata.language_info.version"
refresh: setup
	@$(PY) -m nbconvert --log-level WARN --to notebook --execute --inplace notebooks/*.ipynb
	@$(PY) .ci/palette.py notebooks/*.ipynb
	@$(BIN)nbstripout $(STRIP) notebooks/*.ipynb

# Those of a few minutes each; bench/README.md has all of them. One that is not ok does not stop the others.
bench: setup
	@failed=; for b in readers.py "fuzz.py --cases 10000" "truth.py --trials 20" outages.py; do \
	  echo "== $$b"; $(PY) bench/$$b || failed="$$failed $$b"; done; [ -z "$$failed" ] || { echo "Not ok:$$failed"; exit 1; }

chaos: setup
	@$(PY) bench/chaos.py

# What moved since BEFORE, an earlier save. Of another checkout: make nets TREE=../old SNAPSHOT=out/old
TREE ?= .
SNAPSHOT ?= out/snapshot
nets: setup
	@$(PY) -m tests.snapshot save $(SNAPSHOT) --tree $(TREE)
	@[ -z "$(BEFORE)" ] || $(PY) -m tests.snapshot compare $(BEFORE) $(SNAPSHOT)

lint: setup
	@$(LINT) && $(BIN)mypy

bounds: setup
	@.ci/bounds

pack: setup
	@$(PY) -c 'import sys; from pathlib import Path; from hcilib.model.archives import pack; print(pack(Path(sys.argv[1])))' $(CAMPAIGN)

picture: setup
	@$(PY) .ci/picture readme.png && $(PY) .ci/palette.py readme.png

wheel: setup
	@rm -rf out/wheel && $(PY) -m hatchling build -t wheel -d out/wheel

# For every system with a Python: needs no setup.sh. Another Python: make core PYTHON=python3.13
PYTHON ?= python3
core:
	@$(PYTHON) .ci/core

site: setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)mkdocs build --quiet --strict
	@echo "out/site/index.html (its search needs a server: python3 -m http.server -d out/site)"
