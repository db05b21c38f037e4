.PHONY: malformed
malformed: $(BIN)/.dev ## 200 malformed inputs for every command: no traceback
	WATTFLOW_MALFORMED=1 $(BIN)/pytest -n 2 tests/property/test_malformed.py
