.PHONY: bench-runtime chaos
bench-runtime: $(BIN)/.dev ## The runtime beside Dask, Parsl and a process pool: rate, round trip, warm start, steps, joules
	$(RUN) benchmarks/runtime.py

chaos: $(BIN)/.dev ## Server, agents and workers killed at random (300 kills), cuts, full disk, clock steps: nothing lost, nothing twice
	$(RUN) benchmarks/chaos.py --kills 300

.PHONY: slurm-tools fpga-tools
slurm-tools: ## Slurm and munge from Debian's packages, where apt can install them
	sh scripts/install-slurm.sh

fpga-tools: ## Verilator, where apt can install it
	sh scripts/install-verilator.sh

test-cluster: slurm-tools
tools: fpga-tools
