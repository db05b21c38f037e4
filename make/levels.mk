.PHONY: bench-levels-gpu
LEVELS_PARTS ?= look
LEVELS_OPTIONS ?=
bench-levels-gpu: $(BIN)/.dev ## Levels on a real NVIDIA GPU, in parts (LEVELS_PARTS="look sweep profile kills dags"); those that set clocks need LEVELS_OPTIONS=--set-clocks
	$(RUN) benchmarks/levels_gpu.py $(LEVELS_PARTS) $(LEVELS_OPTIONS) --out out/levels_gpu.json

.PHONY: bench-levels
LEVELS_MINUTES ?= 40
bench-levels: $(BIN)/.dev ## Levels without a GPU: the profiler against a recorded sweep, 50 kills of owners on a played tree, simulated savings, caps (a later call goes on; out/levels)
	$(BENCH) benchmarks/levels.py
	$(BENCH) benchmarks/levels_simulated.py --minutes $(LEVELS_MINUTES)
	$(BENCH) benchmarks/levels_budget.py

.PHONY: bench-levels-kills
LEVELS_KILLS ?= 50
bench-levels-kills: $(BIN)/.dev ## Task, agent and server killed while a clock is held, on played files: as before within 5 s
	$(BENCH) benchmarks/levels_kills.py --kills $(LEVELS_KILLS)
