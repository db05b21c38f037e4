.PHONY: bench-runtime chaos
bench-runtime: $(BIN)/.dev ## The runtime beside Dask, Parsl and a process pool: rate, round trip, warm start, steps, joules
	$(RUN) benchmarks/runtime.py

CHAOS_KILLS ?= 300
CHAOS_SEED ?= 1
chaos: $(BIN)/.dev ## Server, agents and workers killed at random (CHAOS_KILLS=300, CHAOS_SEED=1), cuts, full disk, clock steps; portions add up in out/chaos.json
	$(RUN) benchmarks/chaos.py --kills $(CHAOS_KILLS) --seed $(CHAOS_SEED) --record out/chaos.json

.PHONY: cluster-tools
cluster-tools: ## Slurm, munge, PostgreSQL, podman and stress-ng, where apt can install them
	sh scripts/install-tools.sh slurm postgres podman stress-ng

test-cluster: cluster-tools

.PHONY: bench-runtime-gpu
bench-runtime-gpu: $(BIN)/.dev ## The GPU executor on a real NVIDIA GPU: shares, memory limits, joules
	$(RUN) benchmarks/runtime_gpu.py

.PHONY: bench-runtime-gpu-whole
bench-runtime-gpu-whole: $(BIN)/.dev ## The whole product on a real NVIDIA GPU: up, the example of unlike devices, learned duty, joules
	$(RUN) benchmarks/runtime_gpu_whole.py --out out/runtime_gpu_whole.json
