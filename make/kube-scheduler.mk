# The scheduler on Kubernetes.
.PHONY: parity
parity: $(BIN)/.dev kube-rig ## Our filters against kube-scheduler's own on generated cases (WATTFLOW_PARITY_CASES, 10,000)
	$(BIN)/pytest -n 0 -s tests/cluster/test_scheduler_parity.py
