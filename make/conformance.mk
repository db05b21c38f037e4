# What we did not write: Kubernetes' own scheduling specs and Argo's examples, with kube-scheduler as the control.
.PHONY: test-conformance
CONFORMANCE_E2E ?=
CONFORMANCE_ARGO ?=
test-conformance: $(BIN)/.dev kube-rig ## e2e [sig-scheduling] and argo-workflows' examples under kube-scheduler and under ours (about 70 minutes, mostly waiting; portions add up in out/conformance)
	PYTHONPATH=tools/kube-rig $(RUN) benchmarks/kube_conformance.py $(CONFORMANCE_E2E)
	PYTHONPATH=tools/kube-rig $(RUN) benchmarks/kube_examples.py $(CONFORMANCE_ARGO)
