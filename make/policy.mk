.PHONY: bench-policy
bench-policy: $(BIN)/.dev ## wattflow beside every other policy: energy under a bound on waiting, the front of its dial
	$(RUN) benchmarks/policy.py --workers $(or $(WORKERS),2)
