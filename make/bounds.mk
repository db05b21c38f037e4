.PHONY: bench-bounds tune-portfolio
bench-bounds: $(BIN)/.dev ## Lower and upper bounds on energy: speed of annealing, headroom of HEFT and wattflow
	$(RUN) benchmarks/bounds.py

tune-portfolio: $(BIN)/.dev ## Measure every setting of the learned policy's opponent on the training streams
	$(RUN) -m wattflow.learn.tuning

.PHONY: bench-twin
bench-twin: $(BIN)/.dev ## Simulate before commit: milliseconds of one planning point
	$(RUN) benchmarks/twin.py
