.PHONY: notebook
notebook: $(BIN)/.dev ## Execute docs/first-hour.ipynb and store what it shows
	$(RUN) tools/run_notebook.py docs/first-hour.ipynb

.PHONY: wrap-docs
wrap-docs: ## Wrap the prose of all pages at 120 columns
	$(PYTHON) tools/wrap_docs.py $(wildcard docs/*.md) README.md CONTRIBUTING.md CHANGELOG.md

.PHONY: interfaces
interfaces: $(BIN)/.dev ## Write down what other people's code builds on, at a release (tests/golden/interfaces.txt)
	$(RUN) tests/golden/interfaces.py
