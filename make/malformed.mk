.PHONY: malformed
malformed: $(BIN)/.dev ## 200 malformed inputs for every command: no traceback (`make test` feeds 30)
	WATTFLOW_CALLS=200 $(BIN)/pytest -n 2 tests/property/test_malformed.py
