# The two commands of the README are `make demo` and `make test`; both work on a fresh machine with Python 3.11 to 3.13.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WATTFLOW := $(BIN)/wattflow
RUN := $(BIN)/python
# benchmarks/ is a folder of scripts: what some of them share with research/ and the rig is found by the path
BENCH := PYTHONPATH=.:tools/kube-rig $(RUN)

# Python keeps what it compiled: without that each worker reads and rewrites every test anew, 10 s of each
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-fast test-differential check tools clean
help: ## What can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

$(BIN)/.base: pyproject.toml constraints.txt
	@# before anything is made: an environment of another Python would stay in the way of the next try
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v <= (3, 13) or sys.exit("needs Python 3.11 to 3.13, and $(PYTHON) is %d.%d: make PYTHON=python3.12 names another" % v)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[report,plan,run,kube,meters]'
	@touch $@

$(BIN)/.dev: $(BIN)/.base
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(BIN)/.base ## Set up and run the main job: three workflows under every policy, table and report.html
	$(WATTFLOW) demo --force --report report.html --runs out/demo
	@echo 'the runs of the table in a browser: $(WATTFLOW) view out/demo'

check: $(BIN)/.dev ## Format, lint, types, import order
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

tools: ## Outside programs that tests use (PCP, stress-ng, Verilator, Chromium, OpenSSL), where apt can install them
	sh scripts/install-tools.sh pcp stress-ng verilator chromium openssl

test: check tools ## Set up, all checks and all tests that need no cluster
	$(BIN)/pytest -n 2 --dist loadgroup --ignore tests/cluster --durations 40

test-fast: $(BIN)/.dev ## The unit part, under two minutes
	$(BIN)/pytest -n 2 --dist loadgroup tests/unit -m "not slow"

test-differential: $(BIN)/.dev ## The engine against the reference simulator on 50,000 random cases
	WATTFLOW_CASES=50000 $(BIN)/pytest -n 2 --dist loadgroup tests/differential/test_reference.py

clean: ## Remove the environment and everything made
	rm -rf $(VENV) build dist out .pytest_cache .mypy_cache .ruff_cache report.html

include benchmarks/benchmarks.mk
-include $(sort $(wildcard make/*.mk))
