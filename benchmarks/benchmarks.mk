# One target per benchmark; each ends with one line per figure: figure NAME VALUE UNIT goal GOAL ok|short

.PHONY: bench-start
bench-start: $(BIN)/.base ## How long the command line takes to start and to compare
	$(RUN) benchmarks/bench_start.py
