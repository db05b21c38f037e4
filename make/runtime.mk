.PHONY: bench-runtime chaos
bench-runtime: $(BIN)/.dev ## The runtime beside Dask, Parsl and a process pool: rate, round trip, warm start, steps, joules
	$(RUN) benchmarks/runtime.py

chaos: $(BIN)/.dev ## Server, agents and workers killed at random (300 kills), cuts, full disk, clock steps: nothing lost, nothing twice
	$(RUN) benchmarks/chaos.py --kills 300

.PHONY: cluster-tools
cluster-tools: ## Slurm, munge and PostgreSQL, where apt can install them
	sh scripts/install-tools.sh slurm postgres

test-cluster: cluster-tools
