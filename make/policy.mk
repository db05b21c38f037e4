.PHONY: bench-policy
bench-policy: $(BIN)/.dev ## wattflow beside every other policy: energy under a bound on waiting, the front of its dial
	$(BENCH) benchmarks/policy.py --workers $(or $(WORKERS),2)

.PHONY: bench-policy-streams
bench-policy-streams: $(BIN)/.dev ## wattflow and others on a busy and five light streams of workflows: response and joules
	$(BENCH) benchmarks/policy_streams.py

.PHONY: bench-promise
PROMISE ?=
bench-promise: $(BIN)/.dev ## Fewer joules and nobody waits, on clusters that nobody tuned on (PROMISE='--minutes 50' a portion); added up in out/promise
	$(BENCH) benchmarks/promise.py $(PROMISE)

.PHONY: bench-promise-phase
bench-promise-phase: $(BIN)/.dev ## Where it saves and where nothing can: 10,000 short streams over unlike nodes, wake time, load and error
	$(BENCH) benchmarks/promise_phase.py $(PROMISE)
