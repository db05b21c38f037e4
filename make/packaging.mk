.PHONY: dist test-dist test-python test-pythons bench-first changelog
dist: $(BIN)/.dev ## Wheel and sdist of this version in dist/
	sh scripts/build-dist.sh $(PYTHON) dist

test-dist: dist ## Install the wheel with all extras into an empty environment and run the README's commands there
	sh scripts/test-dist.sh $(PYTHON) dist

PY ?= 3.12
test-python: ## The unit tests under another Python in an environment of its own: make test-python PY=3.13
	sh scripts/test-python.sh python$(PY)

PYTHONS ?= 3.12 3.13
test-pythons: ## The unit tests under all other Pythons that wattflow allows (PYTHONS="3.12 3.13"), each in its environment
	@for version in $(PYTHONS); do sh scripts/test-python.sh python$$version || exit 1; done

bench-first: $(BIN)/.dev ## Seconds from pip install to the first decision, in an empty environment
	$(RUN) benchmarks/first_decision.py

changelog: ## Gather changelog.d/ into CHANGELOG.md under this version
	$(PYTHON) tools/gather_changelog.py
