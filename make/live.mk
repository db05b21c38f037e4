.PHONY: bench-live
bench-live: $(BIN)/.dev ## The live engine: steps, placements, waiting and held tasks, memory, threads on 5,000 nodes
	$(RUN) benchmarks/live.py
