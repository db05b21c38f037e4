.PHONY: test-browser
test-browser: $(BIN)/.dev ## The HTML report in a real browser (installs Chromium with apt where there is none)
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || apt-get install -y -qq chromium
	$(BIN)/pytest -n 0 tests/unit/lab/test_report_browser.py
