# What we did not write: Kubernetes' own scheduling specs and Argo's examples, with kube-scheduler as the control.
.PHONY: test-conformance bench-kube-perf
CONFORMANCE_E2E ?=
CONFORMANCE_ARGO ?=
test-conformance: $(BIN)/.dev kube-rig ## e2e [sig-scheduling] and argo-workflows' examples under kube-scheduler and under ours (about 40 minutes, mostly waiting; portions add up in out/conformance)
	$(BENCH) benchmarks/kube_conformance.py $(CONFORMANCE_E2E)
	$(BENCH) benchmarks/kube_examples.py $(CONFORMANCE_ARGO)

BENCH_KUBE_PERF ?=
bench-kube-perf: $(BIN)/.dev kube-rig ## Workloads of Kubernetes' scheduler_perf under kube-scheduler and ours; BENCH_KUBE_PERF="--only misc/SchedulingBasic" names some
	$(BENCH) benchmarks/kube_perf.py $(BENCH_KUBE_PERF)
