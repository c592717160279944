# Everything a user does. `make` alone lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# conda users run make inside the environment of environment.yml; everybody else gets .venv from uv.lock
BIN := $(if $(filter hcilib,$(CONDA_DEFAULT_ENV)),,.venv/bin/)
PY := $(BIN)python

.PHONY: help setup lab lab-again test report notebooks bench lint
help:
	@echo "make lab        set up, measure two systems on the embedded lab, report: out/lab/index.html"
	@echo "make lab-again  the same, measured anew; what was measured before is kept beside it"
	@echo "make test       set up, run every test"
	@echo "make report     every scenario under params/ as a site: out/report/index.html"
	@echo "make notebooks  open JupyterLab"
	@echo "make bench      side-by-side measurements, as ratios"
	@echo "make lint       ruff over code and notebooks"

setup:
	@./setup.sh

# One after the other while they measure: two campaigns at once would measure each other.
lab: setup
	@$(PY) -m hcilib.show.report params/01_plan.lab.yaml params/03_sweep.lab-*.yaml --out out/lab --workers 1
	@$(PY) -m hcilib.show.report params/*.lab*.yaml --out out/lab

lab-again:
	@[ ! -d data/runs/lab ] || mv data/runs/lab data/runs/lab.$$(date +%Y%m%dT%H%M%S)
	@$(MAKE) --no-print-directory lab

test: setup
	@$(PY) -m pytest

report: setup
	@$(PY) -m hcilib.show.report params --out out/report

notebooks: setup
	@$(PY) -m jupyterlab notebooks

bench: setup
	@for b in bench/*.py; do echo "== $$b"; $(PY) $$b || exit 1; done

lint: setup
	@$(BIN)ruff check . && $(BIN)ruff format --check .
