# The scheduler on Kubernetes.
.PHONY: parity
parity: $(BIN)/.dev kube-rig ## Our filters against kube-scheduler's own on generated cases (WATTFLOW_PARITY_CASES, 10,000)
	$(BIN)/pytest -n 0 -s tests/cluster/test_scheduler_parity.py

.PHONY: bench-kube-cpu
BENCH_KUBE_CPU ?=
bench-kube-cpu: $(BIN)/.dev ## Processor time of our scheduler per bound pod, without a cluster; BENCH_KUBE_CPU="--profile" says where
	$(RUN) benchmarks/kube_cpu.py $(BENCH_KUBE_CPU)

.PHONY: bench-kube-frames
BENCH_KUBE_FRAMES ?=
bench-kube-frames: $(BIN)/.dev kube-rig ## The same frames as services on the rig and in the simulator: do they come in the same order?
	PYTHONPATH=tools/kube-rig $(RUN) benchmarks/kube_frames.py $(BENCH_KUBE_FRAMES)
