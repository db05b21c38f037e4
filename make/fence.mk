.PHONY: test-check test-numba
NUMBAS ?= 0.63.1 0.68.1

test-check: $(BIN)/.dev ## Golden, reference and property tests with range checks and validate_state after every event
	WATTFLOW_CHECK=1 WATTFLOW_CASES=40 $(BIN)/pytest -n 2 --dist loadgroup -m "not slow" tests/golden tests/unit/kernel \
	  tests/unit/engine tests/unit/live/test_counted_rules.py tests/differential/test_reference.py \
	  tests/differential/test_live_replay.py tests/property/test_simulator.py tests/property/test_live.py \
	  --deselect tests/differential/test_live_replay.py::test_every_live_policy

test: test-check

test-numba: $(BIN)/.dev ## The kernel and the golden runs under the oldest and the newest numba allowed (own environments)
	@for version in $(NUMBAS); do sh scripts/test-numba.sh $(PYTHON) $$version || exit 1; done

.PHONY: bench-live-fence
bench-live-fence: $(BIN)/.dev ## Fork, wanted, threads, start from a warm cache alone (bench-live has them too)
	$(RUN) benchmarks/live_fence.py
