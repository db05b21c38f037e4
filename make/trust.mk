.PHONY: bench-trust
TRUST ?=
bench-trust: $(BIN)/.dev ## Poison, sequences of faults, drawn requests, floods, outages (TRUST='--part poison --seed 7' for one portion); added up in out/trust.json
	$(RUN) benchmarks/trust.py --record out/trust.json $(TRUST)
