.PHONY: test-browser
test-browser: $(BIN)/.dev ## The HTML report in a real browser (installs Chromium with apt where there is none)
	sh scripts/install-tools.sh chromium
	$(BIN)/pytest -n 0 tests/unit/lab/test_report_browser.py
