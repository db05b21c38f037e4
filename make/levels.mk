.PHONY: bench-levels-gpu
LEVELS_PARTS ?= look
LEVELS_OPTIONS ?=
bench-levels-gpu: $(BIN)/.dev ## Levels on a real NVIDIA GPU, in parts (LEVELS_PARTS="look sweep profile kills"); those that set clocks need LEVELS_OPTIONS=--set-clocks
	$(RUN) benchmarks/levels_gpu.py $(LEVELS_PARTS) $(LEVELS_OPTIONS) --out out/levels_gpu.json

.PHONY: bench-levels
bench-levels: $(BIN)/.dev ## Levels without a GPU: the profiler against a recorded sweep, 50 kills of owners on a played tree
	$(RUN) benchmarks/levels.py
