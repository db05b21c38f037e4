.PHONY: bench-policy
bench-policy: $(BIN)/.dev ## wattflow beside every other policy: energy under a bound on waiting, the front of its dial
	$(RUN) benchmarks/policy.py --workers $(or $(WORKERS),2)

.PHONY: bench-policy-streams
bench-policy-streams: $(BIN)/.dev ## wattflow and others on a busy and five light streams of workflows: response and joules
	$(RUN) benchmarks/policy_streams.py

.PHONY: bench-promise
PROMISE ?=
bench-promise: $(BIN)/.dev ## Fewer joules and nobody waits, on clusters that nobody tuned on (PROMISE='--minutes 50' a portion); added up in out/promise
	$(RUN) benchmarks/promise.py $(PROMISE)
