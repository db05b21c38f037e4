.PHONY: web web-tools
web: web-tools ## Build the dashboard's page into src/wattflow/data/web (needs Node 20.19 or later)
	cd web && npm run --silent build

web-tools: ## Packages that build and test the page, where Node is installed; users need none of them
	@if command -v npm >/dev/null; then cd web && { cmp -s package-lock.json node_modules/.wattflow-lock || \
		{ npm install --no-save --no-audit --no-fund --loglevel=error && cp package-lock.json node_modules/.wattflow-lock; }; \
	}; else echo "no npm: the page in src/wattflow/data/web is used as it is"; fi

test: web-tools

.PHONY: bench-web bench-web-page
bench-web: bench-web-page bench-web-server ## All figures of the dashboard: the page in a browser, then the server

bench-web-page: $(BIN)/.dev web-tools ## The dashboard's page in a browser: first paint, frames, sizes, axe, event to pixel
	$(RUN) benchmarks/web.py

.PHONY: web-pictures
web-pictures: $(BIN)/.dev web-tools ## Draw the dashboard's pictures in docs/pictures anew
	$(RUN) tools/web_pictures.py
