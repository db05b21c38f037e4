.PHONY: bench-bounds
bench-bounds: $(BIN)/.dev ## Lower and upper bounds on energy: speed of annealing, headroom of HEFT and wattflow
	$(BENCH) benchmarks/bounds.py

