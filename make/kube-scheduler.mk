# The scheduler on Kubernetes.
.PHONY: parity
parity: $(BIN)/.dev kube-rig ## Our filters against kube-scheduler's own on generated cases (WATTFLOW_PARITY_CASES, 10,000)
	$(BIN)/pytest -n 0 -s tests/cluster/test_scheduler_parity.py tests/cluster/test_parity_running.py

.PHONY: bench-kube-cpu
BENCH_KUBE_CPU ?=
bench-kube-cpu: $(BIN)/.dev ## Processor time of our scheduler per bound pod, without a cluster; BENCH_KUBE_CPU="--profile" says where
	$(RUN) benchmarks/kube_cpu.py $(BENCH_KUBE_CPU)

.PHONY: bench-kube-cold
BENCH_KUBE_COLD ?=
bench-kube-cold: $(BIN)/.dev ## Start to first binding with 5,000 nodes and 50,000 pods from prepared lists, without a cluster; BENCH_KUBE_COLD="--profile" says where
	$(RUN) benchmarks/kube_cold.py $(BENCH_KUBE_COLD)

.PHONY: bench-kube-frames
BENCH_KUBE_FRAMES ?=
bench-kube-frames: $(BIN)/.dev kube-rig ## The same frames as services on the rig and in the simulator: do they come in the same order?
	$(BENCH) benchmarks/kube_frames.py $(BENCH_KUBE_FRAMES)

.PHONY: bench-kube-policies bench-kube-joulie
BENCH_KUBE_POLICIES ?=
bench-kube-policies: $(BIN)/.dev kube-rig ## Policies from the literature, ours and the learned one on the rig and simulated: rank correlation
	$(BENCH) benchmarks/kube_policies.py $(BENCH_KUBE_POLICIES)

BENCH_KUBE_JOULIE ?=
bench-kube-joulie: $(BIN)/.dev kube-rig ## The 41 nodes of Joulie's second setting on the rig: its score, its opponents, ours
	$(BENCH) benchmarks/kube_policies.py --setting joulie $(BENCH_KUBE_JOULIE)

.PHONY: bench-kube-hpe
BENCH_KUBE_HPE ?=
bench-kube-hpe: $(BIN)/.dev kube-rig ## HPE's CPU experiment as pods on the rig, both readings: makespan, energy, peak watts, stretch
	$(BENCH) benchmarks/kube_hpe.py $(BENCH_KUBE_HPE)

.PHONY: test-karpenter
test-karpenter: $(BIN)/.dev kube-rig ## Nodes given back to a real Karpenter with its KWOK provider, and made anew (builds it: three minutes)
	$(KUBERIG) build karpenter
	WATTFLOW_KARPENTER=1 $(BIN)/pytest -n 0 tests/cluster/test_karpenter.py

.PHONY: bench-operator
BENCH_OPERATOR ?=
bench-operator: $(BIN)/.dev kube-rig ## What an operator may rely on: drawn sequences, a day of sleep, curves (BENCH_OPERATOR='--part stateful --seed 2 --sequences 60' for one portion); added up in out/operator.json
	$(BENCH) benchmarks/operator_figures.py $(BENCH_OPERATOR)

.PHONY: test-install
test-install: $(BIN)/.dev kube-rig image ## docs/install.md typed as a whole on an empty cluster, with the image on the rig's real node
	WATTFLOW_IMAGE=$(abspath $(IMAGE)) $(BIN)/pytest -n 0 -s tests/cluster/test_install.py
