.PHONY: notebook
notebook: $(BIN)/.dev ## Execute docs/first-hour.ipynb and store what it shows
	$(RUN) tools/run_notebook.py docs/first-hour.ipynb

.PHONY: wrap-docs
wrap-docs: ## Wrap the prose of all pages at 120 columns
	$(PYTHON) tools/wrap_docs.py $(wildcard docs/*.md) README.md CONTRIBUTING.md CHANGELOG.md

.PHONY: interfaces
interfaces: $(BIN)/.dev ## Write down what other people's code builds on, at a release (tests/golden/interfaces.txt)
	$(RUN) tests/golden/interfaces.py

DOCS_ENV ?= build/docs-env
$(DOCS_ENV)/.ready: constraints.txt
	$(PYTHON) -m venv $(DOCS_ENV)
	$(DOCS_ENV)/bin/pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs,run]'
	@touch $@

.PHONY: docs
docs: $(DOCS_ENV)/.ready ## The documentation as a site with search in out/site; a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(DOCS_ENV)/bin/mkdocs build --strict --quiet
	@echo 'the site: out/site/index.html'
