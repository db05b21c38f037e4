# One target per benchmark; each ends with one line per figure: figure NAME VALUE UNIT goal GOAL ok|short

.PHONY: bench-start
bench-start: $(BIN)/.base ## How long the command line takes to start and to compare
	$(RUN) benchmarks/bench_start.py

.PHONY: bench-attribution
bench-attribution: $(BIN)/.dev ## Joules by task against measured truth (FaasMeter, 64 tasks on the virtual meter)
	$(RUN) benchmarks/attribution.py

.PHONY: bench-enrich
bench-enrich: $(BIN)/.dev ## Modelled joules of whole runs against measured ones (Ichnos)
	$(RUN) benchmarks/enrich.py

.PHONY: bench-meters
bench-meters: $(BIN)/.dev ## What reading a meter ten times a second costs
	$(RUN) benchmarks/meters.py

.PHONY: energy-set
energy-set: $(BIN)/.dev ## All shared WfInstances on three clusters, with modelled joules, for both archives (out/energy-set)
	$(RUN) scripts/energy_set.py out/energy-set
.PHONY: bench-predict
bench-predict: $(BIN)/.dev ## Prediction figures on held-out data
	$(RUN) benchmarks/predict.py

.PHONY: bench-frames
bench-frames: $(BIN)/.dev ## Scheduler frames: speed, memory, the grid of 54 traces, stealing, delays, energy at a bound
	$(RUN) benchmarks/frames.py

.PHONY: bench-explore
bench-explore: $(BIN)/.dev ## Design spaces: time, resuming, and how much of the variance is the frame's
	$(RUN) benchmarks/explore.py
