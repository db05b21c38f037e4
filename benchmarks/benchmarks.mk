# One target per benchmark; each ends with one line per figure: figure NAME VALUE UNIT goal GOAL ok|short

.PHONY: bench-sim
bench-sim: $(BIN)/.dev ## The simulator's speed, memory and compilation, beside SimPy
	$(BENCH) benchmarks/sim.py

.PHONY: bench-start
bench-start: $(BIN)/.base ## How long the command line takes to start and to compare
	$(RUN) benchmarks/bench_start.py

.PHONY: bench-attribution
bench-attribution: $(BIN)/.dev ## Joules by task against measured truth (FaasMeter, 64 tasks on the virtual meter)
	$(BENCH) benchmarks/attribution.py

.PHONY: bench-enrich
bench-enrich: $(BIN)/.dev ## Modelled joules of whole runs against measured ones (Ichnos)
	$(RUN) benchmarks/enrich.py

.PHONY: bench-meters
bench-meters: $(BIN)/.dev ## What reading a meter ten times a second costs
	$(RUN) benchmarks/meters.py

bench-predict: $(BIN)/.dev ## Prediction figures on held-out data
	$(BENCH) benchmarks/predict.py

.PHONY: experiments
experiments: $(BIN)/.dev ## Every published claim under experiments/, ours beside theirs (out/experiments)
	@set -e; for file in $$(grep -l '^kind' experiments/*.toml); do $(RUN) -m research "$$file" --quiet; done

.PHONY: bench-hpe
bench-hpe: $(BIN)/.dev ## The HPE paper's CPU experiment: table, factorial, and what our policy saves beyond it
	$(RUN) -m research hpe_table1

.PHONY: bench-fgd
bench-fgd: $(BIN)/.dev ## GPU allocation ratio of FGD and its rivals on the Alibaba lists (out/experiments/fgd)
	$(RUN) -m research fgd

.PHONY: bench-wfinstances
bench-wfinstances: $(BIN)/.dev ## Recorded against simulated makespan of every shared instance (out/experiments/wfinstances)
	$(RUN) -m research wfinstances
.PHONY: bench-frames
bench-frames: $(BIN)/.dev ## Scheduler frames: speed, memory, the grid of 54 traces, stealing, delays, energy at a bound
	$(BENCH) benchmarks/frames.py

.PHONY: bench-explore
bench-explore: $(BIN)/.dev ## Design spaces: time, resuming, and how much of the variance is the frame's
	$(RUN) benchmarks/explore.py
